//! What an edit changes, before it is applied: clusters, fields, machines, hosts. Nothing is written.

use std::collections::BTreeMap;

use api::inventory::{
    ClusterTemplate, Customer, Environment, FleetCluster, FleetRevision, Hierarchy, InfraProvider,
    LEVEL_LABEL, Site,
};
use inventory::{
    Fleet, Object, Problems,
    diff::{self, Change, ClusterChange},
    impact::{self, Live, Summary},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Resource, ResourceExt, api::ListParams, core::NamespaceResourceScope};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{machines, names};

/// What would change.
#[derive(Debug, Default)]
pub struct Plan {
    /// The clusters that are not what they are made from.
    pub changes: Vec<ClusterChange>,
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
    let mut put = |values: Vec<Value>| {
        for value in values {
            objects.insert(identity(&value, namespace), value);
        }
    };
    put(listed::<Hierarchy>(client, namespace, "").await?);
    put(listed::<Environment>(client, namespace, "").await?);
    put(listed::<Customer>(client, namespace, "").await?);
    put(listed::<Site>(client, namespace, "").await?);
    put(listed::<InfraProvider>(client, namespace, "").await?);
    put(listed::<ClusterTemplate>(client, namespace, "").await?);
    put(listed::<FleetCluster>(client, namespace, "").await?);
    put(listed::<ConfigMap>(client, namespace, LEVEL_LABEL).await?);
    put(edits);
    let fleet = Fleet::read(objects.into_values(), namespace).map_err(Error::Inventory)?;
    let records = records(client, namespace).await?;
    let mut plan = Plan::default();
    let mut rendered_to = Vec::new();
    let rendered = fleet.render_all(|rendered| {
        let cluster = rendered.resolved.cluster.clone();
        if cluster.namespace != *namespace {
            return;
        }
        let before = records.get(&cluster.name);
        let after = rendered.objects();
        let objects = diff::between(before.map_or(&[], Vec::as_slice), &after);
        if !objects.is_empty() {
            let change = before.map_or(Change::Added, |_| Change::Changed);
            plan.changes.push(ClusterChange {
                cluster,
                change,
                objects,
                effects: Vec::new(),
            });
            rendered_to.push(after);
        }
    });
    rendered.map_err(Error::Inventory)?;
    let foretell = |changes: &mut [ClusterChange], live: Option<&Live>| {
        for (change, after) in changes.iter_mut().zip(&rendered_to) {
            let before = records.get(&change.cluster.name);
            let before = before.map_or(&[][..], Vec::as_slice);
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
    Ok(plan)
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

/// What each cluster was made from.
async fn records(client: &Client, namespace: &str) -> Result<BTreeMap<String, Vec<Value>>, Error> {
    let failed = |what: &'static str| move |error| Error::Api(what.to_owned(), error);
    let clusters = Api::<FleetCluster>::namespaced(client.clone(), namespace);
    let clusters = clusters.list(&ListParams::default()).await;
    let clusters = clusters.map_err(failed("list the FleetClusters"))?;
    let records = Api::<FleetRevision>::namespaced(client.clone(), namespace);
    let mut known = BTreeMap::new();
    for cluster in clusters {
        let name = cluster.name_any();
        let Some(applied) = cluster.status.and_then(|status| status.applied) else {
            continue;
        };
        let record = records.get_opt(&names::record(&name, &applied)).await;
        let record = record.map_err(failed("read a FleetRevision"))?;
        let objects = record.map(|record| record.spec.objects).unwrap_or_default();
        known.insert(name, objects.into_iter().map(Value::Object).collect());
    }
    Ok(known)
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
