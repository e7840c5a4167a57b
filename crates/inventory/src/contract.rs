//! Where the objects of Cluster API say what is read of them, alike in v1beta1 and v1beta2.
//!
//! They are read by path, for their types are another project's. A field that a version has elsewhere is looked for here and nowhere else,
//! so that two readers cannot take it from two places.
//!
//! # Source
//! Cluster API 1.14.2: `api/core/v1beta1` and `api/core/v1beta2`, `api/controlplane/kubeadm`, and the book's "Migrating to v1beta2".

use api::inventory::{Segment, ValuePath};
use serde_json::Value;

/// The group of an API version; of the core of Kubernetes it is empty.
pub fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The group of an object.
pub fn group_of(object: &Value) -> &str {
    group(object["apiVersion"].as_str().unwrap_or_default())
}

/// The version of the API that an object is of, without the group.
pub fn version_of(object: &Value) -> &str {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    version
        .split_once('/')
        .map_or(version, |(_, version)| version)
}

/// The group of a reference: v1beta2 names it alone, v1beta1 with a version.
pub fn group_of_reference(reference: &Value) -> &str {
    let alone = reference["apiGroup"].as_str();
    alone.unwrap_or_else(|| group_of(reference))
}

/// Whether kinds of this group are of Cluster API or of a provider.
pub fn is_of_cluster_api(group: &str) -> bool {
    group
        .strip_suffix(CORE)
        .is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// A `ClusterClass` as a Cluster names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Class<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it is.
    pub namespace: &'a str,
    /// Where the Cluster says the name.
    pub at: &'static [&'static str],
}

/// The class that the topology of a Cluster names, which is of `namespace` where it says no other. A field that only the other version has
/// counts where the Cluster's own says nothing.
pub fn class<'a>(cluster: &'a Value, namespace: &'a str) -> Option<Class<'a>> {
    let topology = &cluster["spec"]["topology"];
    let reference = &topology["classRef"];
    let mut places = [
        (&reference["name"], &reference["namespace"], CLASS_REF),
        (&topology["class"], &topology["classNamespace"], CLASS),
    ];
    if version_of(cluster) == V1BETA1 {
        places.reverse();
    }
    places.into_iter().find_map(|(name, place, at)| {
        Some(Class {
            name: name.as_str()?,
            namespace: place.as_str().unwrap_or(namespace),
            at,
        })
    })
}

/// The reference to the template of the Machines of a control plane: v1beta1 has it one level higher.
pub fn infrastructure_of_control_plane(object: &Value) -> &Value {
    let template = &object["spec"]["machineTemplate"];
    match &template["spec"]["infrastructureRef"] {
        Value::Null => &template["infrastructureRef"],
        reference => reference,
    }
}

/// An object that is named by kind and name.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference<'a> {
    /// Where that stands.
    pub at: ValuePath,
    /// Its kind.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
    /// All that is said of it.
    pub value: &'a Value,
}

/// What is named by kind and name in a value, which itself stands at a path, or anywhere below it.
pub fn references<'a>(value: &'a Value, at: &ValuePath) -> Vec<Reference<'a>> {
    let mut found = Vec::new();
    collect(value, &mut at.clone(), &mut found);
    found
}

fn collect<'a>(value: &'a Value, at: &mut ValuePath, found: &mut Vec<Reference<'a>>) {
    if let (Some(kind), Some(name)) = (value["kind"].as_str(), value["name"].as_str()) {
        let at = at.clone();
        found.push(Reference {
            at,
            kind,
            name,
            value,
        });
    }
    let mut below = |segment: Segment, part: &'a Value, found: &mut Vec<Reference<'a>>| {
        at.0.push(segment);
        collect(part, at, found);
        at.0.pop();
    };
    match value {
        Value::Object(map) => {
            for (key, part) in map {
                below(Segment::Key(key.as_str().into()), part, found);
            }
        }
        Value::Array(list) => {
            for (number, part) in list.iter().enumerate() {
                below(Segment::Index(number), part, found);
            }
        }
        _ => {}
    }
}

/// The group of the core; those of providers end with it.
pub const CORE: &str = "cluster.x-k8s.io";
/// The group of control planes.
pub const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";
/// The versions of the core and of control planes that are read here.
pub const VERSIONS: [&str; 2] = [V1BETA1, "v1beta2"];
/// The label by which objects name their Cluster.
pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// The label of what the topology of a Cluster gives.
pub const TOPOLOGY_OWNED: &str = "topology.cluster.x-k8s.io/owned";

/// What makes Machines from templates that it names, by group and kind. A `ClusterClass` makes none: its templates are copied.
pub const MAKERS: [(&str, &str); 4] = [
    (CORE, "MachineDeployment"),
    (CORE, "MachineSet"),
    (CORE, "MachinePool"),
    (CONTROL_PLANE, "KubeadmControlPlane"),
];

const V1BETA1: &str = "v1beta1";
/// Where a Cluster says the name of its class from v1beta2 on.
const CLASS_REF: &[&str] = &["spec", "topology", "classRef", "name"];
/// Where it does so in v1beta1.
const CLASS: &[&str] = &["spec", "topology", "class"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_class_is_that_of_the_version_and_of_the_namespace_that_is_said() {
        let both = json!({"class": "word", "classNamespace": "w", "classRef": {"name": "reference", "namespace": "r"}});
        for (version, topology, expected) in [
            ("v1beta1", both.clone(), Some(("word", "w", CLASS))),
            ("v1beta2", both, Some(("reference", "r", CLASS_REF))),
            ("v1beta1", json!({"class": "c"}), Some(("c", "here", CLASS))),
            (
                "v1beta2",
                json!({"classRef": {"name": "c"}}),
                Some(("c", "here", CLASS_REF)),
            ),
            ("v1beta2", json!({"class": "c"}), Some(("c", "here", CLASS))),
            ("v1beta2", json!({"version": "v1.34.4"}), None),
        ] {
            let cluster =
                json!({"apiVersion": format!("{CORE}/{version}"), "spec": {"topology": topology}});
            let found = class(&cluster, "here");
            let found = found.map(|class| (class.name, class.namespace, class.at));
            assert_eq!(found, expected, "{cluster}");
        }
    }

    #[test]
    fn groups_are_those_of_versions_and_of_references() {
        let reference = |reference: Value| group_of_reference(&reference).to_owned();
        assert_eq!(group("v1"), "");
        assert_eq!(group("cluster.x-k8s.io/v1beta2"), CORE);
        assert_eq!(reference(json!({"apiVersion": "a.b/v1"})), "a.b");
        assert_eq!(reference(json!({"apiGroup": "c"})), "c");
        assert!(is_of_cluster_api(CORE) && is_of_cluster_api(CONTROL_PLANE));
        assert!(!is_of_cluster_api("evilcluster.x-k8s.io") && !is_of_cluster_api(""));
    }

    #[test]
    fn references_are_found_at_any_depth_with_their_paths() {
        let spec = json!({"a": [{"kind": "K", "name": "one", "more": {"kind": "L", "name": "two"}}], "kind": "M"});
        let at = ValuePath::default().key("spec");
        let found: Vec<_> = references(&spec, &at)
            .iter()
            .map(|found| format!("{} {}/{}", found.at, found.kind, found.name))
            .collect();
        assert_eq!(found, ["spec.a[0] K/one", "spec.a[0].more L/two"]);
    }
}
