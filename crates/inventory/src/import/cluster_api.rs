//! An inventory of existing clusters of Cluster API.
//!
//! What belongs to a cluster is its Cluster, what names that (`spec.clusterName` or the label), and what those refer to by kind and name:
//! control plane, infrastructure, machine deployments, templates. What controllers make of these (Machines, `MachineSets`, what a topology
//! gives) is not imported: it follows. Nor is what no cluster refers to, such as a `ClusterClass` or a template that was rotated away.
//!
//! Clusters would share little, for their objects are named after them. So where a field is a name and begins with that of the cluster,
//! the inventory says it by a template: clusters that differ in names alone are one set of values. What only looks like the name, in
//! other fields, stays as it is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use api::inventory::ValuePath;
use serde_json::{Map, Value, json};

use super::{
    Cluster, Level, agree, bare, called, inventory, map, ordered, parts, places, problem, twice,
};
use crate::{
    contract::{self, CLUSTER_NAME, TOPOLOGY_OWNED},
    fleet::field,
    problem::{Object, Problem, Problems, Rule},
    tree::TEMPLATE_MARK,
};

/// The inventory of the clusters of Cluster API among these objects; none of them: no object. Other objects are left alone. Without a
/// level there is one site.
///
/// # Errors
/// Clusters that contradict each other, and what an inventory cannot say.
pub fn import(objects: &[Value], levels: &[Level]) -> Result<Vec<Value>, Problems> {
    let levels = ordered(levels);
    let mut bare = bare::bare(objects, |_, value| is_ours(value)).map_err(Problems)?;
    let members = members(&bare).map_err(Problems)?;
    bare.retain(|object, _| members.contains_key(object));
    let clusters = clusters(&bare, &members, &levels).map_err(Problems)?;
    inventory(clusters, &levels, &bare, (TEMPLATE, template()))
}

/// The classes that Clusters among these objects name. They are of no one cluster, and no inventory has them.
pub fn classes(objects: &[Value]) -> BTreeSet<Object> {
    let clusters = objects.iter().filter(|value| {
        contract::group_of(value) == contract::CORE && value["kind"] == CLUSTER && is_ours(value)
    });
    let classes = clusters.filter_map(|cluster| {
        let namespace = cluster["metadata"]["namespace"].as_str();
        let class = contract::class(cluster, namespace.unwrap_or_default())?;
        Some(Object {
            kind: "ClusterClass".into(),
            namespace: class.namespace.to_owned(),
            name: class.name.to_owned(),
        })
    });
    classes.collect()
}

/// Whether an object is of Cluster API, and none that a controller made.
fn is_ours(value: &Value) -> bool {
    let metadata = &value["metadata"];
    let owners = metadata["ownerReferences"].as_array();
    let is_made = owners.into_iter().flatten().any(|owner| {
        // What people write is controlled by its Cluster, once that has found it.
        owner["controller"] == true && owner["kind"] != CLUSTER
    });
    contract::is_of_cluster_api(contract::group_of(value))
        && !is_made
        && metadata["labels"][TOPOLOGY_OWNED].is_null()
}

/// The Cluster of each object that belongs to one.
#[derive(Default)]
struct Members {
    of: BTreeMap<Object, Object>,
    /// Those whose references are still to be followed.
    open: VecDeque<Object>,
    problems: Vec<Problem>,
}

impl Members {
    /// Counts an object to a cluster, as another one says at a path.
    fn claim(&mut self, object: &Object, cluster: &Object, by: &Object, at: ValuePath) {
        match self.of.get(object) {
            Some(held) if held == cluster => {}
            Some(held) => {
                let what = format!(
                    "says that {object} belongs to {cluster}, and it belongs to {held} too"
                );
                let remedy =
                    "give each cluster an object of its own, or leave one of the two clusters out";
                let rule = Rule::Contradiction { what, remedy };
                self.problems.push(problem(by, Some("cluster"), at, rule));
            }
            None => {
                self.of.insert(object.clone(), cluster.clone());
                self.open.push_back(object.clone());
            }
        }
    }
}

/// Follows names of clusters, and references.
fn members(bare: &BTreeMap<Object, Value>) -> Result<BTreeMap<Object, Object>, Vec<Problem>> {
    let mut members = Members::default();
    for (object, value) in bare {
        if object.kind == CLUSTER {
            members.claim(object, object, object, ValuePath::default());
            continue;
        }
        for (at, name) in names_of_cluster(value) {
            let cluster = Object {
                kind: CLUSTER.into(),
                namespace: object.namespace.clone(),
                name: name.to_owned(),
            };
            if bare.contains_key(&cluster) {
                members.claim(object, &cluster, object, at);
                continue;
            }
            let what = format!("belongs to the Cluster {name}, which is not among the objects");
            let remedy = "import that Cluster with it, or leave it out";
            let rule = Rule::Contradiction { what, remedy };
            members
                .problems
                .push(problem(object, Some("cluster"), at, rule));
        }
    }
    while let Some(object) = members.open.pop_front() {
        let Some((cluster, value)) = members.of.get(&object).cloned().zip(bare.get(&object)) else {
            continue;
        };
        for reference in contract::references(&value["spec"], &field(&["spec"])) {
            let target = Object {
                kind: reference.kind.to_owned(),
                namespace: object.namespace.clone(),
                name: reference.name.to_owned(),
            };
            if target.kind != CLUSTER && bare.contains_key(&target) {
                members.claim(&target, &cluster, &object, reference.at);
            }
        }
    }
    if members.problems.is_empty() {
        Ok(members.of)
    } else {
        Err(members.problems)
    }
}

/// The names of the Cluster that an object says it is of, with the fields that say it.
fn names_of_cluster(value: &Value) -> impl Iterator<Item = (ValuePath, &str)> {
    let said = [
        (
            field(&["spec", "clusterName"]),
            &value["spec"]["clusterName"],
        ),
        (
            field(&["metadata", "labels", CLUSTER_NAME]),
            &value["metadata"]["labels"][CLUSTER_NAME],
        ),
    ];
    said.into_iter()
        .filter_map(|(at, name)| Some((at, name.as_str()?)))
}

/// The clusters, each with all of its objects as values.
fn clusters<'a>(
    bare: &'a BTreeMap<Object, Value>,
    members: &BTreeMap<Object, Object>,
    levels: &[Level],
) -> Result<Vec<Cluster<'a>>, Vec<Problem>> {
    let mut objects = BTreeMap::<&Object, Map<String, Value>>::new();
    for (object, value) in bare {
        if let Some(cluster) = members.get(object) {
            let held = objects.entry(cluster).or_default();
            let (key, value) = entry(object, value, &cluster.name);
            held.insert(key, value);
        }
    }
    let mut named = BTreeMap::<&str, usize>::new();
    for cluster in objects.keys() {
        *named.entry(&cluster.name).or_default() += 1;
    }
    let mut problems = Vec::new();
    let mut clusters = Vec::new();
    for (object, value) in bare {
        let Some(objects) = objects.get(object) else {
            continue;
        };
        let (name, own) = called(object, named.get(object.name.as_str()) == Some(&1));
        clusters.push(Cluster {
            object,
            name,
            places: places(object, value, levels, &mut problems),
            values: json!({"objects": objects}),
            own,
            state: Map::new(),
        });
    }
    agree(&clusters, levels, &mut problems);
    twice(&clusters, &mut problems);
    if problems.is_empty() {
        Ok(clusters)
    } else {
        Err(problems)
    }
}

/// An object as a value, below a key that it has in every cluster.
fn entry(object: &Object, value: &Value, cluster: &str) -> (String, Value) {
    let Object { kind, name, .. } = object;
    let key = match behind(name, cluster) {
        Some(behind) => format!("{kind}{behind}"),
        None => format!("{kind}/{name}"),
    };
    let mut said = parts(value);
    said["apiVersion"] = value["apiVersion"].clone();
    said["kind"] = json!(kind);
    said["name"] = json!(name);
    (key, by_name("", &said, cluster))
}

/// A value whose names are templates where they begin with the cluster's.
fn by_name(key: &str, value: &Value, cluster: &str) -> Value {
    match value {
        Value::String(text) if key.to_ascii_lowercase().ends_with("name") => {
            let behind = behind(text, cluster);
            behind.map_or_else(
                || json!(text),
                |behind| json!({TEMPLATE_MARK: format!("{NAME}{behind}")}),
            )
        }
        Value::Array(items) => {
            let items = items.iter();
            items.map(|item| by_name("", item, cluster)).collect()
        }
        // A reference to a secret is handed on as it is.
        _ => map(value).map_or_else(
            || value.clone(),
            |parts| {
                let parts = parts.iter();
                let parts = parts.map(|(key, value)| (key.clone(), by_name(key, value, cluster)));
                parts.collect::<Map<_, _>>().into()
            },
        ),
    }
}

/// What stands behind the cluster's name in the name of something of it.
fn behind<'a>(name: &'a str, cluster: &str) -> Option<&'a str> {
    let behind = name.strip_prefix(cluster)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let is_apart = behind.is_empty() || behind.starts_with('-');
    (is_apart && behind.bytes().all(is_plain)).then_some(behind)
}

/// Gives back the objects as the values have them.
fn template() -> Value {
    let text = |key: &str| format!("{{{{ object.{key} }}}}");
    let optional = |key: &str| format!("{{{{ object.{key} | default(omit) }}}}");
    json!({"backEnd": "Plain", "documents": [
        {"forEach": {"values": "objects", "as": "object"}, "object": {
            "apiVersion": text("apiVersion"), "kind": text("kind"),
            "metadata": {
                "name": text("name"), "namespace": "{{ namespace }}",
                "labels": optional("labels"), "annotations": optional("annotations"),
            },
            "spec": optional("spec"),
        }},
    ]})
}

const CLUSTER: &str = "Cluster";
/// The name of a cluster, in templates.
const NAME: &str = "{{ name | default(cluster.name) }}";
/// The `ClusterTemplate` of what was imported.
const TEMPLATE: &str = "cluster-api";
