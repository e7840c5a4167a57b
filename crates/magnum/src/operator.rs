//! What follows from a stored cluster: its hosts are claimed, the objects that build it are applied, and what becomes of them is
//! told.
//!
//! Decisions are [`crate::bare_metal`]'s and [`report`]'s, or those of [`crate::machines`]; what is here reads and writes.

use std::{sync::Arc, time::Duration};

use api::{
    Cluster, ClusterNode,
    magnum::{
        CLUSTER_LABEL, Claim, CoeCluster, CoeClusterStatus, FINALIZER, Host, PROJECT_LABEL,
        ServerType, project_namespace,
    },
};
use controller::{Manager, WakeUps, Watch, apply, finalizer, reads};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
    core::DeserializeGuard,
    runtime::{controller::Action, reflector, reflector::ObjectRef},
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{
    bare_metal::{AUTHORITIES, KEY, NAME, Plan, Settings},
    identity::Keystone,
    store::secret_name,
    view::backing_namespace,
};

pub mod addons;
mod credentials;
mod leftovers;
mod machines;
mod observe;
pub(crate) mod orphans;
mod pool;
pub mod report;

use observe::Stores;
use report::Seen;

/// The field manager of what is applied.
const MANAGER: &str = "windlass-magnum";
/// How soon a pass is tried again where somebody else took a host first.
const TAKEN: Duration = Duration::from_millis(200);
/// How soon a pass is tried again that began before everything was read once.
const UNTIL_READ: Duration = Duration::from_millis(50);
/// How soon is looked again at a cluster of which nobody told anything.
const SURE: Duration = Duration::from_mins(5);

/// How the operator works.
#[derive(Clone, Debug)]
pub struct Options {
    /// The namespace of the Hosts of the pool, and of the Secret with their ssh key.
    pub pool: String,
    /// The Secret with the ssh key of the pool's hosts.
    pub key: String,
    /// What builds clusters.
    pub settings: Settings,
    /// Who knows the credentials of clusters of servers.
    pub keystone: Arc<Keystone>,
    /// How Addons are installed into clusters.
    pub addons: addons::Settings,
}

/// What a pass works with.
struct Context {
    client: Client,
    options: Options,
    stores: Stores,
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or did not answer.
    #[error("{0}")]
    Api(&'static str, #[source] kube::Error),
    /// Something could not be applied.
    #[error("apply what builds the cluster")]
    Apply(#[source] apply::Error),
}

/// Has the manager work on clusters.
pub fn operate(manager: &mut Manager, options: Options) {
    operate_reaching(manager, options, addons::Reach::Authority);
}

/// The same, with clusters that are reached so when something is installed into them.
pub(crate) fn operate_reaching(manager: &mut Manager, options: Options, reach: addons::Reach) {
    addons::operate(manager, &options, reach);
    let own = manager.watch::<CoeCluster>();
    let hosts = manager.watch::<Host>();
    let clusters = manager.watch::<Cluster>();
    let nodes = manager.watch::<ClusterNode>();
    let client = manager.client().clone();
    let (key, key_writer) = reflector::store();
    let pool = Arc::new(Notify::new());
    let wake_ups = WakeUps::default();
    on_gone(&clusters, &wake_ups);
    on_gone(&nodes, &wake_ups);
    let secrets = Api::namespaced(client.clone(), &options.pool);
    manager.beside(pool::follow_key(
        secrets,
        options.key.clone(),
        key_writer,
        Arc::clone(&pool),
    ));
    manager.beside(pool::wake_waiting(
        Arc::clone(&pool),
        own.store(),
        wake_ups.clone(),
    ));
    manager.beside(machines::followed(client.clone(), wake_ups.clone()));
    manager.beside(orphans::swept(
        client.clone(),
        Arc::clone(&options.keystone),
    ));
    let context = Arc::new(Context {
        client,
        options,
        stores: Stores {
            hosts: hosts.store(),
            clusters: clusters.store(),
            nodes: nodes.store(),
            key,
        },
    });
    let all = own.store();
    manager
        .controller(&own, reads::wish)
        .woken_by(&hosts, reads::wish, move |host| {
            pool::concerned(host, &all, &pool)
        })
        .woken_by(&clusters, reads::everything, subject)
        .woken_by(&nodes, reads::everything, subject)
        .woken_on(&wake_ups, |(namespace, name)| {
            [ObjectRef::new(&name).within(&namespace)]
        })
        .reconcile(reconcile, context);
}

fn on_gone<K: controller::watch::Kind>(watch: &Watch<K>, wake_ups: &WakeUps) {
    let wake_ups = wake_ups.clone();
    watch.on_gone(move |meta| {
        if let Some(key) = key_of(meta) {
            wake_ups.wake(&key);
        }
    });
}

/// The cluster that something was made for.
fn subject<K: Resource<DynamicType = ()>>(
    object: &DeserializeGuard<K>,
) -> Option<ObjectRef<DeserializeGuard<CoeCluster>>> {
    let (namespace, name) = key_of(object.meta())?;
    Some(ObjectRef::new(&name).within(&namespace))
}

fn key_of(meta: &ObjectMeta) -> Option<(String, String)> {
    let labels = meta.labels.as_ref()?;
    let namespace = project_namespace(labels.get(PROJECT_LABEL)?)?;
    Some((namespace, labels.get(CLUSTER_LABEL)?.clone()))
}

/// One pass.
async fn reconcile(
    object: Arc<DeserializeGuard<CoeCluster>>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let Ok(cluster) = &object.0 else {
        tracing::warn!(name = object.name_any(), "a CoeCluster cannot be read");
        return Ok(Action::await_change());
    };
    if cluster.spec.imported.is_some() {
        // What it is made of is looked after by whoever made it.
        return Ok(Action::await_change());
    }
    match cluster.spec.server_type.unwrap_or_default() {
        ServerType::Vm => return context.of_machines(cluster).await,
        ServerType::Bm => {}
    }
    if !context.stores.are_read() {
        return Ok(Action::requeue(UNTIL_READ));
    }
    let (seen, plan, is_raced) = if cluster.meta().deletion_timestamp.is_some() {
        let seen = context.observe(cluster).await?;
        if context.end(cluster, &seen).await? {
            return Ok(Action::await_change());
        }
        (seen, Plan::default(), false)
    } else {
        let (seen, plan) = Box::pin(context.decide(cluster)).await?;
        let is_raced = !context.apply(cluster, &plan, &seen).await?;
        (seen, plan, is_raced)
    };
    let now = Timestamp::now();
    let status = report::status(cluster, &seen, &plan, now);
    let waits = !status.state.is_some_and(api::magnum::State::is_complete);
    context.tell(cluster, &status).await?;
    Ok(match (is_raced, waits) {
        (true, _) => Action::requeue(TAKEN),
        // What it waits for wakes it, but for its time.
        (false, true) => {
            Action::requeue(report::late_in(cluster, now).map_or(SURE, |left| left.min(SURE)))
        }
        (false, false) => Action::await_change(),
    })
}

impl Context {
    fn pool<K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>>(
        &self,
    ) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.options.pool)
    }

    /// Says whether all of it was done; somebody else may have claimed a host meanwhile.
    ///
    /// Hosts come first: an object of a host that is another's would build on it. Secrets come before the cluster that reads them.
    async fn apply(&self, cluster: &CoeCluster, plan: &Plan, seen: &Seen) -> Result<bool, Error> {
        for (name, claim) in &plan.claims {
            if !self.claim(seen, name, Some(claim)).await? {
                return Ok(false);
            }
        }
        for name in &plan.releases {
            self.claim(seen, name, None).await?;
        }
        let (Some(objects), Some(key)) = (&plan.objects, &seen.key) else {
            return Ok(true);
        };
        let namespace = backing_namespace(&cluster.name_any());
        self.prepare(cluster, &namespace, key).await?;
        let clusters: Api<Cluster> = Api::namespaced(self.client.clone(), &namespace);
        apply::apply(
            &clusters,
            MANAGER,
            &objects.cluster,
            seen.kubespray.as_ref(),
        )
        .await
        .map_err(Error::Apply)?;
        let nodes: Api<ClusterNode> = Api::namespaced(self.client.clone(), &namespace);
        for node in &objects.nodes {
            let existing = seen
                .nodes
                .iter()
                .find(|seen| seen.name_any() == node.name_any());
            apply::apply(&nodes, MANAGER, node, existing)
                .await
                .map_err(Error::Apply)?;
        }
        for name in &plan.leaving {
            gone(nodes.delete(name, &DeleteParams::default()).await.map(drop))
                .map_err(|error| Error::Api("delete a ClusterNode", error))?;
        }
        Ok(true)
    }

    /// Claims a host, or gives it back. It is written as it was read: who comes second is refused.
    async fn claim(&self, seen: &Seen, name: &str, claim: Option<&Claim>) -> Result<bool, Error> {
        let Some(host) = seen.hosts.iter().find(|host| host.name_any() == name) else {
            return Ok(false);
        };
        let mut host = host.clone();
        host.spec.claim = claim.cloned();
        match self
            .pool::<Host>()
            .replace(name, &PostParams::default(), &host)
            .await
        {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => Err(Error::Api("claim a Host", error)),
        }
    }

    /// The namespace of a cluster, and the Secrets in it: the key, and the cluster's authorities.
    async fn prepare(
        &self,
        cluster: &CoeCluster,
        namespace: &str,
        key: &Secret,
    ) -> Result<(), Error> {
        self.make_namespace(cluster, namespace).await?;
        let authorities = self.authorities(cluster).await?;
        // Where somebody took the authorities away, the cluster says what it lacks.
        let found = [(KEY, Some(key)), (AUTHORITIES, authorities.as_ref())];
        for (name, secret) in found {
            let Some(Secret { type_, data, .. }) = secret else {
                continue;
            };
            let object = json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": name, "labels": marks(cluster)}, "type": type_, "data": data,
            });
            self.put(namespace, name, &object).await?;
        }
        Ok(())
    }

    async fn make_namespace(&self, cluster: &CoeCluster, namespace: &str) -> Result<(), Error> {
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": marks(cluster)},
        });
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        put(&namespaces, namespace, &object)
            .await
            .map_err(|error| Error::Api("make the namespace of the cluster", error))
    }

    async fn authorities(&self, cluster: &CoeCluster) -> Result<Option<Secret>, Error> {
        let project = cluster.namespace().unwrap_or_default();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &project);
        let found = secrets.get_opt(&secret_name(&cluster.name_any())).await;
        found.map_err(|error| Error::Api("get the authorities of the cluster", error))
    }

    /// Puts a Secret beside what builds a cluster.
    async fn put(&self, namespace: &str, name: &str, object: &Value) -> Result<(), Error> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        put(&secrets, name, object)
            .await
            .map_err(|error| Error::Api("put a Secret beside the cluster", error))
    }

    /// Ends a cluster: what it is built of goes, its hosts are given back, and it is let go. Says whether it is.
    async fn end(&self, cluster: &CoeCluster, seen: &Seen) -> Result<bool, Error> {
        let namespace = backing_namespace(&cluster.name_any());
        if seen.kubespray.is_some() {
            let clusters: Api<Cluster> = Api::namespaced(self.client.clone(), &namespace);
            gone(
                clusters
                    .delete(NAME, &DeleteParams::default())
                    .await
                    .map(drop),
            )
            .map_err(|error| Error::Api("delete the kubespray Cluster", error))?;
            return Ok(false);
        }
        if !seen.nodes.is_empty() {
            let nodes: Api<ClusterNode> = Api::namespaced(self.client.clone(), &namespace);
            for node in &seen.nodes {
                let deleted = nodes
                    .delete(&node.name_any(), &DeleteParams::default())
                    .await;
                gone(deleted.map(drop))
                    .map_err(|error| Error::Api("delete a ClusterNode", error))?;
            }
            return Ok(false);
        }
        let uuid = cluster.name_any();
        for host in &seen.hosts {
            let is_ours = host
                .spec
                .claim
                .as_ref()
                .is_some_and(|claim| claim.cluster == uuid);
            if is_ours && !self.claim(seen, &host.name_any(), None).await? {
                return Ok(false);
            }
        }
        self.remove_namespace(&namespace).await?;
        self.let_go(cluster).await?;
        Ok(true)
    }

    async fn has_namespace(&self, namespace: &str) -> Result<bool, Error> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let found = namespaces.get_metadata_opt(namespace).await;
        let found = found.map_err(|error| Error::Api("get the namespace of the cluster", error))?;
        Ok(found.is_some_and(|found| found.metadata.deletion_timestamp.is_none()))
    }

    async fn remove_namespace(&self, namespace: &str) -> Result<(), Error> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let deleted = namespaces.delete(namespace, &DeleteParams::default()).await;
        gone(deleted.map(drop))
            .map_err(|error| Error::Api("delete the namespace of the cluster", error))
    }

    async fn let_go(&self, cluster: &CoeCluster) -> Result<(), Error> {
        finalizer::release(&self.own(cluster), cluster, FINALIZER)
            .await
            .map_err(|error| Error::Api("let the cluster go", error))
    }

    async fn tell(&self, cluster: &CoeCluster, status: &CoeClusterStatus) -> Result<(), Error> {
        let name = cluster.name_any();
        // What is installed into it is told by somebody else.
        let existing = cluster.status.clone().map(|existing| CoeClusterStatus {
            addons: Vec::new(),
            ..existing
        });
        let api = self.own(cluster);
        let told = apply::apply_status(&api, MANAGER, &name, status, existing.as_ref()).await;
        told.map(drop).map_err(Error::Apply)
    }

    fn own(&self, cluster: &CoeCluster) -> Api<CoeCluster> {
        let namespace = cluster.namespace().unwrap_or_default();
        Api::namespaced(self.client.clone(), &namespace)
    }
}

/// Applies an object unless it is there as it should be: passes are many, and what is written is told to all who watch.
async fn put<K>(objects: &Api<K>, name: &str, object: &Value) -> kube::Result<()>
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let there = objects.get_opt(name).await?;
    let there = there.and_then(|there| serde_json::to_value(there).ok());
    if there.is_some_and(|there| apply::contains(&there, object)) {
        return Ok(());
    }
    let applied = objects
        .patch(name, &parameters(), &Patch::Apply(object))
        .await;
    applied.map(drop)
}

/// On what is made for a cluster.
fn marks(cluster: &CoeCluster) -> Value {
    json!({
        CLUSTER_LABEL: cluster.name_any(),
        PROJECT_LABEL: cluster.spec.project_id,
    })
}

fn parameters() -> PatchParams {
    PatchParams::apply(MANAGER).force()
}

/// What is gone already is as good.
fn gone(deleted: kube::Result<()>) -> kube::Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted,
    }
}
