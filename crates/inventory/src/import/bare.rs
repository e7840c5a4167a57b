//! What there is, without what an API and operators write into it and without what people asked for once.
//!
//! What is left out is listed, not what is kept: whatever else an object has is compared with what the inventory renders, so what
//! nobody thought of here is refused, not lost.

use std::collections::BTreeMap;

use api::{
    cluster::request,
    inventory::{GROUP, ValuePath},
};
use serde_json::{Value, json};

use super::problem;
use crate::{
    fleet::{field, identity},
    problem::{Object, Problem, Rule},
    tree::TEMPLATE_MARK,
};

/// The objects that an inventory is to render to, of those that are to be imported.
pub(super) fn bare(
    objects: &[Value],
    is_ours: impl Fn(&Object, &Value) -> bool,
) -> Result<BTreeMap<Object, Value>, Vec<Problem>> {
    let mut found = BTreeMap::new();
    let mut problems = Vec::new();
    for value in objects {
        let object = identity(value, "default");
        if !is_ours(&object, value) {
            continue;
        }
        let kept = said(&object, value);
        if !value["metadata"]["annotations"][MOVING].is_null() {
            let what = format!("has the annotation {MOVING}: nobody acts on it here");
            let remedy = "import it from where it is at work when the move has ended or was taken back, or leave the cluster out";
            let at = field(&["metadata", "annotations", MOVING]);
            let rule = Rule::Reserved { what, remedy };
            problems.push(problem(&object, None, at, rule));
        }
        if let Some(at) = marked(&kept, &ValuePath::default()) {
            let rule = Rule::Reserved {
                what: format!("has the key {TEMPLATE_MARK}, which an inventory would render"),
                remedy: "give the key another name, or leave the cluster out",
            };
            problems.push(problem(&object, None, at, rule));
        }
        if found.insert(object.clone(), kept).is_some() {
            problems.push(problem(&object, None, ValuePath::default(), Rule::Twice));
        }
    }
    if problems.is_empty() {
        Ok(found)
    } else {
        Err(problems)
    }
}

/// Whether an annotation says how far its object has come: it is kept, and is true of no other object.
pub(super) fn is_state(name: &str) -> bool {
    !is_note(name) && [KUBESPRAY, WINDLASS].contains(&group(name))
}

/// What people say in an object.
fn said(object: &Object, value: &Value) -> Value {
    let mut metadata = value["metadata"].as_object().cloned().unwrap_or_default();
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.retain(|name, _| !is_note(name));
    }
    metadata.retain(|key, value| {
        !OF_THE_API.contains(&key.as_str()) && !value.is_null() && *value != json!({})
    });
    metadata.insert("name".into(), json!(object.name));
    metadata.insert("namespace".into(), json!(object.namespace));
    let mut said = value.as_object().cloned().unwrap_or_default();
    said.remove("status");
    said.insert("metadata".into(), metadata.into());
    said.into()
}

/// An annotation that asks an operator for something once, or that one wrote.
fn is_note(name: &str) -> bool {
    match group(name) {
        // Cluster API's controllers count the revisions of a MachineDeployment.
        GROUP | "kubectl.kubernetes.io" | "machinedeployment.clusters.x-k8s.io" => true,
        // Of a host that was adopted or moved it says when it was created, which orders hosts.
        WINDLASS => name != "windlass.dev/created",
        // `kubespray.k8s.io/adopted` is none: without it a cluster that is at work would be founded anew.
        _ => request::ALL.contains(&name),
    }
}

fn group(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

fn marked(value: &Value, at: &ValuePath) -> Option<ValuePath> {
    match value {
        Value::Object(map) if map.contains_key(TEMPLATE_MARK) => Some(at.key(TEMPLATE_MARK)),
        Value::Object(map) => map
            .iter()
            .find_map(|(key, value)| marked(value, &at.key(key))),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(number, item)| marked(item, &at.index(number)))
        }
        _ => None,
    }
}

const KUBESPRAY: &str = "kubespray.k8s.io";
const WINDLASS: &str = "windlass.dev";
/// The annotation of what is being moved, or was moved away.
const MOVING: &str = "windlass.dev/moving";
/// The metadata that an API and operators write.
const OF_THE_API: [&str; 11] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];
