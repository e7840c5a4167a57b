//! What an edit changes, before it is applied: clusters, fields, machines, hosts. Nothing is written.

use std::collections::BTreeMap;

use api::inventory::{
    ClusterTemplate, Customer, Environment, FLEET_CLUSTER_ANNOTATION, FLEET_LABEL, FleetCluster,
    Hierarchy, InfraProvider, LEVEL_LABEL, Site,
};
use inventory::{
    Fleet, Object, Problems,
    diff::{self, Change, ClusterChange},
    impact::{self, Live, Summary},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DynamicObject, ListParams},
    core::{GroupVersionKind, NamespaceResourceScope},
    discovery::{self, Scope},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{machines, pending};

pub mod back;

/// What would change.
#[derive(Debug, Default)]
pub struct Plan {
    /// The clusters that are not what they are made from.
    pub changes: Vec<ClusterChange>,
    /// The inventory that was planned for.
    pub fleet: Fleet,
    /// Why machines were counted by replicas, where they could not be read.
    pub unread: Option<kube::Error>,
}

/// Why nothing is known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or did not answer.
    #[error("{0}")]
    Api(String, #[source] kube::Error),
    /// The inventory is wrong.
    #[error("render the inventory")]
    Inventory(#[source] Problems),
    /// An object is none.
    #[error("read an object of the API")]
    Object(#[source] serde_json::Error),
}

/// What changes of the clusters of a namespace by what its inventory says and nothing has carried out, with these objects in place of
/// those that it has.
///
/// # Errors
/// Of what is wrong with the inventory, everything; then nothing is told of any cluster.
pub async fn plan(client: &Client, namespace: &str, edits: Vec<Value>) -> Result<Plan, Error> {
    let mut objects = BTreeMap::new();
    for value in objects_of(client, namespace).await? {
        objects.insert(identity(&value, namespace), value);
    }
    for mut value in edits {
        let identity = identity(&value, namespace);
        // What has changed in Vault is known of the one that is there, and of no file.
        if let Some(fields) = value.as_object_mut() {
            let there = objects.get(&identity);
            match there.and_then(|there| there.get("status")) {
                Some(status) => drop(fields.insert("status".to_owned(), status.clone())),
                None => drop(fields.remove("status")),
            }
        }
        objects.insert(identity, value);
    }
    let fleet = Fleet::read(objects.into_values(), namespace).map_err(Error::Inventory)?;
    let applied = applied(client, namespace).await?;
    let mut edits = Vec::new();
    let rendered = fleet.render_all(|rendered| {
        let cluster = rendered.resolved.cluster.clone();
        if cluster.namespace != *namespace {
            return;
        }
        let after = rendered.objects();
        // Of most nothing changes, and what they are is neither read nor kept.
        if applied.get(&cluster.name) != Some(&inventory::revision(&after)) {
            edits.push((cluster, after));
        }
    });
    rendered.map_err(Error::Inventory)?;
    let mut changed = Vec::new();
    for (cluster, after) in edits {
        let (change, before) = match applied.get(&cluster.name) {
            None => (Change::Added, Vec::new()),
            Some(revision) => {
                let of = (namespace, cluster.name.as_str());
                let before = match back::record(client, of, revision).await? {
                    Some(before) => before,
                    None => there(client, &cluster, &after).await?,
                };
                (Change::Changed, before)
            }
        };
        changed.push(Edit {
            cluster,
            change,
            before,
            after,
        });
    }
    let plan = foretold(client, namespace, changed).await;
    Ok(Plan { fleet, ..plan })
}

/// What becomes of a cluster.
struct Edit {
    cluster: Object,
    change: Change,
    before: Vec<Value>,
    after: Vec<Value>,
}

/// What differs, and what becomes of machines by it.
async fn foretold(client: &Client, namespace: &str, edits: Vec<Edit>) -> Plan {
    let mut plan = Plan::default();
    let mut objects = Vec::new();
    for edit in edits {
        let differing = diff::between(&edit.before, &edit.after);
        if !differing.is_empty() {
            plan.changes.push(ClusterChange {
                cluster: edit.cluster,
                change: edit.change,
                objects: differing,
                effects: Vec::new(),
            });
            objects.push((edit.before, edit.after));
        }
    }
    let foretell = |changes: &mut [ClusterChange], live: Option<&Live>| {
        for (change, (before, after)) in changes.iter_mut().zip(&objects) {
            change.effects = impact::impact(namespace, before, after, live);
        }
    };
    foretell(&mut plan.changes, None);
    let places = machines::places(plan.changes.iter().flat_map(|change| &change.effects));
    if !places.is_empty() {
        match machines::read(client, &places).await {
            Ok(Some(live)) => foretell(&mut plan.changes, Some(&live)),
            Ok(None) => {}
            Err(error) => plan.unread = Some(error),
        }
    }
    plan
}

/// How many clusters, machines and hosts changes are about.
pub fn summary(changes: &[ClusterChange]) -> String {
    let effects = changes.iter().flat_map(|change| &change.effects);
    let clusters = match changes.len() {
        1 => "1 cluster".to_owned(),
        number => format!("{number} clusters"),
    };
    format!("{clusters}: {}", Summary::of(effects))
}

/// The inventory of a namespace.
///
/// # Errors
///
/// The API does not give it.
pub async fn objects_of(client: &Client, namespace: &str) -> Result<Vec<Value>, Error> {
    let mut all = listed::<Hierarchy>(client, namespace, "").await?;
    all.extend(listed::<Environment>(client, namespace, "").await?);
    all.extend(listed::<Customer>(client, namespace, "").await?);
    all.extend(listed::<Site>(client, namespace, "").await?);
    all.extend(listed::<InfraProvider>(client, namespace, "").await?);
    all.extend(listed::<ClusterTemplate>(client, namespace, "").await?);
    all.extend(listed::<FleetCluster>(client, namespace, "").await?);
    all.extend(listed::<ConfigMap>(client, namespace, LEVEL_LABEL).await?);
    Ok(all)
}

/// The revision that each cluster was made from. Of one that was handed over, or whose record is lost, nobody has kept what that is.
async fn applied(client: &Client, namespace: &str) -> Result<BTreeMap<String, String>, Error> {
    let clusters = Api::<FleetCluster>::namespaced(client.clone(), namespace);
    let clusters = clusters.list(&ListParams::default()).await;
    let clusters =
        clusters.map_err(|error| Error::Api("list the FleetClusters".to_owned(), error))?;
    let applied = clusters.into_iter().filter_map(|cluster| {
        let name = cluster.name_any();
        Some((name, cluster.status?.applied?))
    });
    Ok(applied.collect())
}

/// What there is of a cluster, as far as its rendering speaks of it. What others own is nobody's to be told.
async fn there(client: &Client, cluster: &Object, wanted: &[Value]) -> Result<Vec<Value>, Error> {
    let namespace = &cluster.namespace;
    let own = format!("{namespace}/{}", cluster.name);
    let mut found = Vec::new();
    let mut resources = BTreeMap::new();
    for wanted in wanted {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&wanted["apiVersion"]), text(&wanted["kind"]));
        let key = (version.clone(), kind.clone());
        if !resources.contains_key(&key) {
            let (group, version) = version.split_once('/').unwrap_or(("", &version));
            let kind = GroupVersionKind::gvk(group, version, &kind);
            let resource = match discovery::pinned_kind(client, &kind).await {
                Ok((resource, capabilities)) => Some((resource, capabilities.scope)),
                // There is none of a kind that the API does not have.
                Err(kube::Error::Discovery(_)) => None,
                Err(kube::Error::Api(status)) if status.is_not_found() => None,
                Err(error) => return Err(Error::Api(format!("look for {}", kind.kind), error)),
            };
            resources.insert(key.clone(), resource);
        }
        let Some(Some((resource, scope))) = resources.get(&key) else {
            continue;
        };
        let object = identity(wanted, namespace);
        let api = match scope {
            Scope::Cluster => Api::<DynamicObject>::all_with(client.clone(), resource),
            Scope::Namespaced => Api::namespaced_with(client.clone(), &object.namespace, resource),
        };
        let live = api.get_opt(&object.name).await;
        let live = live.map_err(|error| Error::Api(format!("read {object}"), error))?;
        let is_own = |live: &DynamicObject| {
            live.annotations().get(FLEET_CLUSTER_ANNOTATION) == Some(&own)
                || object.kind == "Namespace" && live.labels().get(FLEET_LABEL) == Some(namespace)
        };
        if let Some(live) = live.filter(is_own) {
            let live = serde_json::to_value(live).map_err(Error::Object)?;
            found.push(pending::restricted(&live, wanted));
        }
    }
    Ok(found)
}

async fn listed<K>(client: &Client, namespace: &str, labels: &str) -> Result<Vec<Value>, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Serialize
        + DeserializeOwned
        + std::fmt::Debug,
{
    let kind = K::kind(&());
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let list = api.list(&ListParams::default().labels(labels)).await;
    let list = list.map_err(|error| {
        let what = format!("list {kind} objects; their definitions: windlass crds --fleet");
        Error::Api(what, error)
    })?;
    let mut values = Vec::new();
    for object in list {
        let mut value = serde_json::to_value(object).map_err(Error::Object)?;
        value["apiVersion"] = K::api_version(&()).into();
        value["kind"] = kind.clone().into();
        values.push(value);
    }
    Ok(values)
}

/// Which object it is; an edit stands in place of that of the API.
fn identity(value: &Value, namespace: &str) -> Object {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let own = text(&value["metadata"]["namespace"]);
    Object {
        kind: text(&value["kind"]),
        namespace: if own.is_empty() {
            namespace.to_owned()
        } else {
            own
        },
        name: text(&value["metadata"]["name"]),
    }
}
