//! The controllers of FleetClusters and Rollouts, and what wakes them.

use std::{sync::Arc, time::Duration};

use api::{
    Cluster, ClusterNode,
    inventory::{
        ClusterTemplate, Customer, Environment, FleetCluster, FleetRevision, Hierarchy,
        InfraProvider, LEVEL_LABEL, Rollout, Site, WaveApproval,
    },
    secrets::VaultSecret,
};
use controller::{
    BackOff, Events, Manager, WakeUps, reads,
    watch::{Kind, Watch},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{api::ObjectMeta, core::DeserializeGuard, runtime::reflector::ObjectRef};

use crate::{
    cluster::{
        self,
        away::{self, owner_of},
    },
    inventories::Inventories,
    rollout,
};

/// How the controllers work.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// For how long a cluster is well before the VaultSecrets and keys of Secrets go that it needs no longer: longer than its operator
    /// takes to say what of a change waits.
    pub settle_after: Duration,
    /// Whether the manager works on VaultSecrets as well, so that clusters may be woken by them.
    pub vault: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settle_after: Duration::from_mins(1),
            vault: false,
        }
    }
}

/// Has the manager work on fleets.
pub fn operate(manager: &mut Manager, options: Options) {
    let inventories = Arc::new(Inventories::new(manager));
    let own = manager.watch::<FleetCluster>();
    let rollouts = manager.watch::<Rollout>();
    let approvals = manager.watch::<WaveApproval>();
    let clusters = manager.watch::<Cluster>();
    let nodes = manager.watch::<ClusterNode>();
    let revisions = manager.watch::<FleetRevision>();
    let hierarchies = manager.watch::<Hierarchy>();
    let environments = manager.watch::<Environment>();
    let customers = manager.watch::<Customer>();
    let sites = manager.watch::<Site>();
    let providers = manager.watch::<InfraProvider>();
    let templates = manager.watch::<ClusterTemplate>();
    let config_maps = manager.watch_labelled::<ConfigMap>(LEVEL_LABEL);
    // An API may have no such kind, unless somebody works on it.
    let vault_secrets = options.vault.then(|| manager.watch::<VaultSecret>());
    let client = manager.client().clone();
    let events = Events::new(client.clone(), "fleet");
    let of_clusters = Arc::new(cluster::Context {
        client: client.clone(),
        own: own.store(),
        rollouts: rollouts.store(),
        revisions: revisions.store(),
        vault_secrets: vault_secrets.as_ref().map(Watch::store),
        inventories: Arc::clone(&inventories),
        events: events.clone(),
        held: cluster::Held::default(),
        resources: cluster::Resources::default(),
        back_off: BackOff::default(),
        settle_after: options.settle_after,
    });
    let wake_ups = WakeUps::default();
    // What is gone is as good a change as what is there.
    hierarchies.gone_wakes(&own, &wake_ups);
    environments.gone_wakes(&own, &wake_ups);
    customers.gone_wakes(&own, &wake_ups);
    sites.gone_wakes(&own, &wake_ups);
    providers.gone_wakes(&own, &wake_ups);
    templates.gone_wakes(&own, &wake_ups);
    config_maps.gone_wakes(&own, &wake_ups);
    rollouts.gone_wakes(&own, &wake_ups);
    clusters.on_gone(wakes_owner(&wake_ups));
    nodes.on_gone(wakes_owner(&wake_ups));
    let mut controller = manager.controller(&own, wish_and_applied);
    if let Some(vault_secrets) = &vault_secrets {
        let known = revisions.store();
        let gone = wake_ups.clone();
        vault_secrets.on_gone(move |meta| {
            if let Some(owner) = away::owner(&known, meta) {
                gone.wake(&owner);
            }
        });
        let known = revisions.store();
        controller = controller.woken_by(vault_secrets, said, move |object| {
            let (namespace, name) = away::owner(&known, kube::Resource::meta(object))?;
            Some(ObjectRef::new(&name).within(&namespace))
        });
    }
    controller
        .woken_by(&hierarchies, reads::wish, own.in_namespace_of())
        .woken_by(&environments, reads::wish, own.in_namespace_of())
        .woken_by(&customers, reads::wish, own.in_namespace_of())
        .woken_by(&sites, reads::wish, own.in_namespace_of())
        .woken_by(&providers, reads::wish, own.in_namespace_of())
        .woken_by(&templates, reads::wish, own.in_namespace_of())
        .woken_by(&config_maps, reads::everything, own.in_namespace_of())
        .woken_by(&rollouts, reads::everything, own.in_namespace_of())
        .woken_by(&clusters, reads::everything, owner)
        .woken_by(&nodes, reads::everything, owner)
        .woken_on(&wake_ups, |(namespace, name)| {
            [ObjectRef::new(&name).within(&namespace)]
        })
        .reconcile(cluster::reconcile, of_clusters);

    let of_rollouts = Arc::new(rollout::Context {
        client,
        turn: tokio::sync::Mutex::default(),
        clusters: own.store(),
        revisions: revisions.store(),
        inventories,
        events,
    });
    let wake_ups = WakeUps::default();
    own.gone_wakes(&rollouts, &wake_ups);
    rollouts.gone_wakes(&rollouts, &wake_ups);
    manager
        .controller(&rollouts, reads::wish)
        // An edit that changes no cluster changes what the next one is born from.
        .woken_by(&hierarchies, reads::wish, rollouts.in_namespace_of())
        .woken_by(&environments, reads::wish, rollouts.in_namespace_of())
        .woken_by(&customers, reads::wish, rollouts.in_namespace_of())
        .woken_by(&sites, reads::wish, rollouts.in_namespace_of())
        .woken_by(&providers, reads::wish, rollouts.in_namespace_of())
        .woken_by(&templates, reads::wish, rollouts.in_namespace_of())
        .woken_by(&config_maps, reads::everything, rollouts.in_namespace_of())
        .woken_by(&own, reads::everything, rollouts.in_namespace_of())
        .woken_by(&approvals, reads::wish, rollouts.in_namespace_of())
        // One that cannot be read holds the others.
        .woken_by(
            &rollouts,
            |rollout| rollout.0.is_err(),
            rollouts.in_namespace_of(),
        )
        .woken_on(&wake_ups, |(namespace, name)| {
            [ObjectRef::new(&name).within(&namespace)]
        })
        .reconcile(rollout::reconcile, of_rollouts);
}

/// A wish, and from what somebody says that it is made: the remedy of a lost record is to say that by hand.
fn wish_and_applied(object: &DeserializeGuard<FleetCluster>) -> impl PartialEq + Send + use<> {
    let cluster = object.0.as_ref().ok();
    let status = cluster.and_then(|cluster| cluster.status.as_ref());
    let applied = status.and_then(|status| status.applied.clone());
    (reads::wish(object), applied)
}

/// What a VaultSecret says of itself, but for when.
fn said(object: &DeserializeGuard<VaultSecret>) -> impl PartialEq + Send + use<> {
    let status = object.0.as_ref().ok();
    let status = status.and_then(|object| object.status.clone());
    let status = status.unwrap_or_default();
    let conditions = status.conditions.into_iter();
    let conditions = conditions.map(|it| (it.type_, it.status, it.reason, it.observed_generation));
    let conditions: Vec<_> = conditions.collect();
    (conditions, status.digests, status.version, status.contents)
}

/// The FleetCluster that an object was made for.
fn owner<K: Kind>(
    object: &DeserializeGuard<K>,
) -> Option<ObjectRef<DeserializeGuard<FleetCluster>>> {
    let (namespace, name) = owner_of(kube::Resource::meta(object))?;
    Some(ObjectRef::new(&name).within(&namespace))
}

fn wakes_owner(wake_ups: &WakeUps) -> impl Fn(&ObjectMeta) + Send + Sync + use<> {
    let wake_ups = wake_ups.clone();
    move |meta| {
        if let Some(owner) = owner_of(meta) {
            wake_ups.wake(&owner);
        }
    }
}
