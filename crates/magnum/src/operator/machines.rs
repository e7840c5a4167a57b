//! Clusters of virtual machines: objects of Cluster API are applied, followed and taken away.
//!
//! The kinds may not be served, now or ever, so they are no watches of the manager's: where one is not there the cluster says what
//! to install, and [`followed`] tries again.

use std::{collections::BTreeMap, time::Duration};

use api::magnum::{CLUSTER_LABEL, CoeCluster, CoeClusterTemplate};
use controller::WakeUps;
use futures::{StreamExt as _, future::join_all};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams},
    runtime::{
        WatchStreamExt as _,
        controller::Action,
        watcher::{self, Event, watcher},
    },
};
use serde_json::json;

use super::{
    Context, Error, SURE,
    credentials::{no_credentials, secret},
    gone, key_of, marks, parameters,
};
use crate::{
    authority::Purpose,
    machines::{
        self, ADDON_LABEL, Addon, Kind, Objects, name_of,
        plan::{FIRST, Plan},
        report::{self, Seen, Trouble},
    },
    store::secret_name,
    view::backing_namespace,
};

/// How soon is looked again at what waits: for its time to run out, or for what nobody tells of.
const WAITING: Duration = Duration::from_secs(5);

/// What a pass came to.
enum Pass {
    /// The cluster is gone.
    Ended,
    /// There is more to be done, or to be waited for.
    GoesOn,
}

/// Wakes the cluster of every object of Cluster API that changes.
pub(super) async fn followed(client: Client, wake_ups: WakeUps) {
    let all = Kind::TELLING.map(|kind| follow(client.clone(), kind, wake_ups.clone()));
    join_all(all).await;
}

async fn follow(client: Client, kind: Kind, wake_ups: WakeUps) {
    let objects: Api<DynamicObject> = Api::all_with(client, &kind.resource());
    let ours = watcher::Config::default().labels(CLUSTER_LABEL);
    // Where the kind is not served this waits longer each time, up to half a minute.
    let mut events = watcher(objects, ours).default_backoff().boxed();
    while let Some(event) = events.next().await {
        let object = match event {
            Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => object,
            Ok(Event::Init | Event::InitDone) => continue,
            Err(error) => {
                let error = controller::chain(&error);
                tracing::debug!(error, kind = kind.word(), "a kind is not followed");
                continue;
            }
        };
        if let Some(key) = key_of(&object.metadata) {
            wake_ups.wake(&key);
        }
    }
}

impl Context {
    /// One pass. What the API does not do is told before it is tried again, or a cluster would never be late.
    pub(super) async fn of_machines(&self, cluster: &CoeCluster) -> Result<Action, Error> {
        let mut seen = Seen::default();
        let mut plan = Plan::default();
        let failed = match self.pass(cluster, &mut seen, &mut plan).await {
            Ok(Pass::Ended) => return Ok(Action::await_change()),
            Ok(Pass::GoesOn) => None,
            Err(error) => {
                seen.lacks = Some(interrupted(&error));
                Some(error)
            }
        };
        let status = report::status(cluster, &seen, &plan, Timestamp::now());
        let waits = !status.state.is_some_and(api::magnum::State::is_complete);
        self.tell(cluster, &status).await?;
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(Action::requeue(if waits { WAITING } else { SURE }))
    }

    /// What it saw and planned is there also where it failed.
    async fn pass(
        &self,
        cluster: &CoeCluster,
        seen: &mut Seen,
        plan: &mut Plan,
    ) -> Result<Pass, Error> {
        self.machines(cluster, seen).await?;
        if cluster.metadata.deletion_timestamp.is_some() {
            return self.end_machines(cluster, seen).await;
        }
        if seen.lacks.is_none() {
            seen.lacks = self.missing(cluster).await?;
        }
        if seen.lacks.is_none() {
            seen.notice = self.renew_credential(cluster).await?;
            self.provide(cluster).await?;
            let left = self.tidy_credentials(cluster).await?;
            seen.note(left);
            seen.addons = self.addons(cluster).await?;
            if let Some(wanted) = wanted(cluster, seen) {
                *plan = machines::plan::plan(cluster, &wanted, &seen.live);
                seen.lacks = self.make(cluster, plan).await?;
            }
        }
        Ok(Pass::GoesOn)
    }

    async fn machines(&self, cluster: &CoeCluster, seen: &mut Seen) -> Result<(), Error> {
        seen.is_partial = true;
        for kind in Kind::ALL {
            match self
                .objects(cluster, kind)
                .list(&ListParams::default())
                .await
            {
                Ok(list) => {
                    let objects = list.items.into_iter().map(|object| {
                        let object = serde_json::to_value(object).unwrap_or_default();
                        (kind, object)
                    });
                    seen.live.0.extend(objects);
                }
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    seen.lacks = Some(not_served(kind));
                }
                Err(error) => return Err(Error::Api("list objects of Cluster API", error)),
            }
        }
        seen.is_partial = false;
        let templates: Api<CoeClusterTemplate> = Api::all(self.client.clone());
        let uuid = &cluster.spec.cluster_template_id;
        let named = ListParams::default().fields(&format!("metadata.name={uuid}"));
        let found = templates.list(&named).await;
        let found = found.map_err(|error| Error::Api("get the template of the cluster", error))?;
        seen.template = found.items.into_iter().next();
        Ok(())
    }

    /// The Secret that is not there, if one is not. Without the authorities Cluster API would make others.
    async fn missing(&self, cluster: &CoeCluster) -> Result<Option<Trouble>, Error> {
        let namespace = cluster.namespace().unwrap_or_default();
        if self.credentials(cluster).await?.is_none() {
            return Ok(Some(no_credentials(cluster, "by which servers are made")));
        }
        if self.authorities(cluster).await?.is_some() {
            return Ok(None);
        }
        let name = secret_name(&cluster.name_any());
        Ok(Some(Trouble {
            is_final: false,
            message: format!(
                "the Secret {namespace}/{name} with the cluster's authorities is gone: bring it back"
            ),
        }))
    }

    /// Puts manifests beside a cluster that are to go into it, and says which. Those of its project go before those of the pool.
    async fn addons(&self, cluster: &CoeCluster) -> Result<Vec<(&'static str, String)>, Error> {
        let (driver, _) = machines::network(cluster.spec.network_driver.unwrap_or_default());
        let ours = format!("{ADDON_LABEL} in ({}, {driver})", machines::ANY);
        let ours = ListParams::default().labels(&ours);
        let failed = |error| Error::Api("list the addons of clusters", error);
        let mut found = BTreeMap::new();
        for namespace in [
            self.options.pool.clone(),
            cluster.namespace().unwrap_or_default(),
        ] {
            let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &namespace);
            for ConfigMap { metadata, data, .. } in maps.list(&ours).await.map_err(failed)? {
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
                found.insert(("ConfigMap", copied(&metadata)), body);
            }
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
            for Secret { metadata, data, .. } in secrets.list(&ours).await.map_err(failed)? {
                let kind = "addons.cluster.x-k8s.io/resource-set";
                let body =
                    json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "data": data});
                found.insert(("Secret", copied(&metadata)), body);
            }
        }
        let namespace = backing_namespace(&cluster.name_any());
        for ((kind, name), object) in &mut found {
            object["metadata"] = json!({"name": name, "labels": marks(cluster)});
            if *kind == "Secret" {
                self.put(&namespace, name, object).await?;
            } else {
                let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &namespace);
                super::put(&maps, name, object)
                    .await
                    .map_err(|error| Error::Api("put an addon beside the cluster", error))?;
            }
        }
        Ok(found.into_keys().collect())
    }

    /// Does what the plan says. What Cluster API refuses is told: it would refuse it again.
    async fn make(&self, cluster: &CoeCluster, plan: &Plan) -> Result<Option<Trouble>, Error> {
        for machine in &plan.marks {
            let first = Patch::Merge(json!({"metadata": {"annotations": {FIRST: "yes"}}}));
            let machines = self.objects(cluster, Kind::Machine);
            let marked = machines
                .patch(machine, &PatchParams::default(), &first)
                .await;
            gone(marked.map(drop)).map_err(|error| Error::Api("mark a Machine", error))?;
        }
        for object in &plan.apply {
            let Some(kind) = Kind::of(object) else {
                continue;
            };
            let applied = self
                .objects(cluster, kind)
                .patch(name_of(object), &parameters(), &Patch::Apply(object))
                .await;
            match applied {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
                    let (kind, name) = (kind.word(), name_of(object));
                    return Ok(Some(Trouble {
                        is_final: true,
                        message: format!("{kind} {name} is refused: {}", status.message),
                    }));
                }
                Err(error) => return Err(Error::Api("apply an object of Cluster API", error)),
            }
        }
        for (kind, name) in &plan.delete {
            self.remove(cluster, *kind, name).await?;
        }
        Ok(None)
    }

    /// The namespace of a cluster, and what is read in it: the credentials, and its own authorities, as Cluster API looks for them.
    async fn provide(&self, cluster: &CoeCluster) -> Result<(), Error> {
        let namespace = &backing_namespace(&cluster.name_any());
        self.make_namespace(cluster, namespace).await?;
        self.give_credentials(cluster).await?;
        let authorities = self.authorities(cluster).await?;
        let data = authorities
            .and_then(|secret| secret.data)
            .unwrap_or_default();
        let name = machines::name(cluster);
        for purpose in Purpose::ALL {
            let (certificate, key) = purpose.keys();
            let Some((certificate, key)) = data.get(certificate).zip(data.get(key)) else {
                continue;
            };
            let own = machines::authority(&name, purpose);
            let data = json!({"tls.crt": certificate, "tls.key": key});
            let mut object = secret(cluster, &own, "cluster.x-k8s.io/secret", &data);
            object["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] = json!(name);
            self.put(namespace, &own, &object).await?;
        }
        Ok(())
    }

    /// Ends a cluster. Only the Cluster is deleted, for Cluster API knows in which order the others go; and it is let go when all are
    /// gone, so that no server is left that nobody knows of.
    ///
    /// Its credentials are kept as they should be until then, for by others nothing goes any more. Where they cannot be, that is told,
    /// and holds nothing up.
    async fn end_machines(&self, cluster: &CoeCluster, seen: &mut Seen) -> Result<Pass, Error> {
        let not_served = seen.lacks.take();
        let whole: Vec<_> = seen.live.of(Kind::Cluster).collect();
        for object in &whole {
            if object["metadata"]["deletionTimestamp"].is_null() {
                self.remove(cluster, Kind::Cluster, name_of(object)).await?;
            }
        }
        let built: Vec<_> = seen
            .live
            .0
            .iter()
            .filter(|(kind, _)| !kind.is_made_by_us_alone())
            .collect();
        if !built.is_empty() {
            // What was made before there was a Cluster to own it.
            if whole.is_empty() {
                for (kind, object) in built {
                    self.remove(cluster, *kind, name_of(object)).await?;
                }
            }
            seen.notice = self.renew_credential(cluster).await?;
            if self.give_credentials(cluster).await? {
                // The network stays as long as they are in it.
                seen.lacks = self.clear(cluster, seen).await?;
            } else {
                seen.lacks = Some(no_credentials(cluster, "by which servers are taken away"));
            }
            return Ok(Pass::GoesOn);
        }
        // What is not served may be there all the same, with servers behind it, if it ever was: whoever let it go would forget them.
        let namespace = backing_namespace(&cluster.name_any());
        if let Some(Trouble { message, .. }) = not_served
            && self.has_namespace(&namespace).await?
        {
            seen.lacks = Some(Trouble {
                is_final: false,
                message: format!(
                    "{message}; or, where nothing of the cluster is left, delete the namespace {namespace}"
                ),
            });
            return Ok(Pass::GoesOn);
        }
        for (kind, object) in &seen.live.0 {
            self.remove(cluster, *kind, name_of(object)).await?;
        }
        seen.lacks = self.clear(cluster, seen).await?;
        if seen.lacks.is_none() {
            seen.lacks = self.end_credential(cluster, seen).await?;
        }
        if seen.lacks.is_some() {
            return Ok(Pass::GoesOn);
        }
        self.remove_namespace(&namespace).await?;
        self.let_go(cluster).await?;
        Ok(Pass::Ended)
    }

    async fn remove(&self, cluster: &CoeCluster, kind: Kind, name: &str) -> Result<(), Error> {
        let objects = self.objects(cluster, kind);
        let deleted = objects.delete(name, &DeleteParams::default()).await;
        gone(deleted.map(drop))
            .map_err(|error| Error::Api("delete an object of Cluster API", error))
    }

    fn objects(&self, cluster: &CoeCluster, kind: Kind) -> Api<DynamicObject> {
        let namespace = backing_namespace(&cluster.name_any());
        Api::namespaced_with(self.client.clone(), &namespace, &kind.resource())
    }
}

/// What a copy of manifests is called: never as the Secrets are that Cluster API reads.
fn copied(metadata: &ObjectMeta) -> String {
    format!("addon-{}", metadata.name.as_deref().unwrap_or_default())
}

/// What there is to be, where all that it needs is there.
fn wanted(cluster: &CoeCluster, seen: &mut Seen) -> Option<Objects> {
    let addons = seen.addons.iter();
    let addons: Vec<_> = addons.map(|(kind, name)| Addon { kind, name }).collect();
    let found = match &seen.template {
        Some(template) => {
            machines::objects(cluster, &template.spec, &addons).map_err(|unfit| unfit.to_string())
        }
        None => Err(format!(
            "there is no template {}: make it again, or delete the cluster",
            cluster.spec.cluster_template_id
        )),
    };
    match found {
        Ok(objects) => Some(objects),
        Err(message) => {
            seen.lacks = Some(Trouble {
                is_final: true,
                message,
            });
            None
        }
    }
}

/// What the API did not do. What it says itself is for people; where it does not answer, its address is not.
fn interrupted(error: &Error) -> Trouble {
    let why = match error {
        Error::Api(_, kube::Error::Api(status)) => status.message.as_str(),
        _ => "the Kubernetes API does not answer as it should",
    };
    Trouble {
        is_final: false,
        message: format!("failed to {error}: {why}; this is tried again"),
    }
}

fn not_served(kind: Kind) -> Trouble {
    Trouble {
        is_final: true,
        message: format!(
            "the API does not serve {} of {}: install Cluster API with its kubeadm providers and the OpenStack provider",
            kind.word(),
            kind.api_version()
        ),
    }
}
