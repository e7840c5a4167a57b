//! What a provider in small sees of its objects at one moment, and how it writes into them.

use serde_json::{Value, json};

use super::Management;

/// Objects of some kinds, of all namespaces.
pub(super) struct Seen(Vec<Value>);

impl Seen {
    pub(super) fn of_all(management: &Management, kinds: &[&str]) -> anyhow::Result<Self> {
        let kinds = kinds.join(",");
        let list = ["get", &kinds, "--all-namespaces", "--output=json"];
        let mut list: Value = serde_json::from_str(&management.kubectl(&list)?)?;
        Ok(Self(serde_json::from_value(list["items"].take())?))
    }

    pub(super) fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    /// The object of a kind that has the name and the namespace of another one.
    pub(super) fn beside(&self, kind: &str, object: &Value) -> Option<&Value> {
        let place = |object: &Value| {
            let metadata = &object["metadata"];
            [metadata["namespace"].clone(), metadata["name"].clone()]
        };
        self.0
            .iter()
            .find(|other| other["kind"] == kind && place(other) == place(object))
    }

    pub(super) fn owner(&self, kind: &str, object: &Value) -> Option<&Value> {
        let owner = reference(kind, object)?;
        self.0
            .iter()
            .find(|object| object["kind"] == kind && object["metadata"]["uid"] == owner["uid"])
    }
}

/// How an object refers to its owner of a kind.
pub(super) fn reference<'a>(kind: &str, object: &'a Value) -> Option<&'a Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["kind"] == kind)
}

pub(super) fn is_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Whether both are of one cluster.
pub(super) fn is_one(left: &Value, right: &Value) -> bool {
    let of = |object: &Value| {
        let metadata = &object["metadata"];
        [
            metadata["namespace"].clone(),
            metadata["labels"]["cluster.x-k8s.io/cluster-name"].clone(),
        ]
    };
    of(left) == of(right)
}

/// Writes into an object's spec, and has it stay until [`let_go`].
pub(super) fn keep(
    management: &Management,
    object: &Value,
    spec: &Value,
    finalizer: &str,
) -> anyhow::Result<()> {
    let mut finalizers = others(object, finalizer);
    finalizers.push(json!(finalizer));
    let patch = json!({"metadata": {"finalizers": finalizers}, "spec": spec});
    write(management, object, &patch, &[])
}

pub(super) fn let_go(
    management: &Management,
    object: &Value,
    finalizer: &str,
) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"finalizers": others(object, finalizer)}});
    write(management, object, &patch, &[])
}

pub(super) fn tell(management: &Management, object: &Value, status: &Value) -> anyhow::Result<()> {
    let patch = json!({"status": status});
    write(management, object, &patch, &["--subresource=status"])
}

fn write(
    management: &Management,
    object: &Value,
    patch: &Value,
    options: &[&str],
) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let kind = format!("{}.{group}", text(&object["kind"]));
    let name = text(&object["metadata"]["name"]);
    let namespace = text(&object["metadata"]["namespace"]);
    let patch = patch.to_string();
    let arguments = [
        "--namespace",
        &namespace,
        "patch",
        &kind,
        &name,
        "--type=merge",
        "--patch",
        &patch,
    ];
    management
        .kubectl(&[&arguments[..], options].concat())
        .map(drop)
}

/// The finalizers of others.
fn others(object: &Value, own: &str) -> Vec<Value> {
    let finalizers = object["metadata"]["finalizers"].as_array();
    let others = finalizers
        .into_iter()
        .flatten()
        .filter(|finalizer| *finalizer != own);
    others.cloned().collect()
}
