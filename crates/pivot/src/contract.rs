//! What a move reads of objects of Cluster API, by path, wherever a version of the contract has it. Pure.
//!
//! # Source
//! Cluster API v1.14, `docs/book/src/developer/providers/contracts`, and the types of `api/core` in v1beta1 and v1beta2.

use clusterctl::describe::is_name;
use serde_json::Value;

use crate::place::Item;

/// The annotation that pauses whatever carries it, and a ClusterClass, which has no field for it.
pub(crate) const PAUSED: &str = "cluster.x-k8s.io/paused";
/// The annotation with which a provider asks to wait.
pub(crate) const BLOCK_MOVE: &str = "clusterctl.cluster.x-k8s.io/block-move";
/// The annotation that tells webhooks that an object is deleted because it was moved.
pub(crate) const DELETE_FOR_MOVE: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";

/// The purposes of the Secrets that are called CLUSTER-PURPOSE.
const PURPOSES: [&str; 6] = [
    "kubeconfig",
    "ca",
    "etcd",
    "sa",
    "proxy",
    "apiserver-etcd-client",
];

/// What another object is called: its group, its kind, its name.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Named {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// The names that a cluster may have whose Secret is called so.
pub(crate) fn clusters_of_secret(name: &str) -> impl Iterator<Item = &str> {
    PURPOSES
        .iter()
        .filter_map(move |purpose| name.strip_suffix(purpose)?.strip_suffix('-'))
}

/// The namespace and the name of the ClusterClass of a Cluster.
pub(crate) fn class(cluster: &Item) -> Option<(String, String)> {
    let topology = &cluster.object.data["spec"]["topology"];
    let text = |value: &Value| {
        let text = value.as_str().filter(|text| is_name(text));
        text.map(str::to_owned)
    };
    let reference = &topology["classRef"];
    let name = text(&reference["name"]).or_else(|| text(&topology["class"]))?;
    let namespace = text(&reference["namespace"]).or_else(|| text(&topology["classNamespace"]));
    let own = || cluster.namespace().map(str::to_owned);
    Some((namespace.or_else(own)?, name))
}

/// The templates that a ClusterClass names.
pub(crate) fn templates(class: &Item) -> Vec<Named> {
    let spec = &class.object.data["spec"];
    let control_plane = &spec["controlPlane"];
    let mut places = vec![
        &spec["infrastructure"],
        control_plane,
        &control_plane["machineInfrastructure"],
    ];
    for workers in ["machineDeployments", "machinePools"] {
        for class in spec["workers"][workers].as_array().into_iter().flatten() {
            // v1beta1 has them in a template of their own.
            for class in [class, &class["template"]] {
                places.extend([&class["bootstrap"], &class["infrastructure"]]);
            }
        }
    }
    let references = places
        .into_iter()
        .flat_map(|place| [&place["templateRef"], &place["ref"]]);
    references.filter_map(named).collect()
}

fn named(reference: &Value) -> Option<Named> {
    let text = |field: &str| reference[field].as_str().filter(|text| !text.is_empty());
    let version = text("apiVersion").unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let name = text("name").filter(|name| is_name(name))?;
    Some(Named {
        group: text("apiGroup").unwrap_or(group).to_owned(),
        kind: text("kind")?.to_owned(),
        name: name.to_owned(),
    })
}

/// The Secrets and ConfigMaps that a ClusterResourceSet names.
pub(crate) fn resources(set: &Item) -> Vec<Named> {
    let resources = set.object.data["spec"]["resources"].as_array();
    resources.into_iter().flatten().filter_map(named).collect()
}

/// The cluster that a ClusterResourceSetBinding is of.
pub(crate) fn bound(binding: &Item) -> Option<&str> {
    binding.object.data["spec"]["clusterName"].as_str()
}

/// Whether somebody paused a Cluster or a ClusterClass.
pub(crate) fn is_paused(item: &Item) -> bool {
    item.annotation(PAUSED).is_some() || item.object.data["spec"]["paused"] == true
}

/// Whether an object that says whether it is paused says no.
pub(crate) fn is_still_at_work(item: &Item) -> bool {
    condition(item, "Paused").is_some_and(|status| status != "True")
}

/// What of a Cluster or a Machine is not there yet: the field that says so, what it says, and what it should.
pub(crate) fn unprovisioned(item: &Item) -> Option<(&'static str, String, &'static str)> {
    if item.kind.is_machine() {
        let node = &item.object.data["status"]["nodeRef"]["name"];
        return node.is_null().then_some((
            "status.nodeRef",
            String::new(),
            "its node has not joined the cluster yet",
        ));
    }
    let status = &item.object.data["status"];
    let initialization = &status["initialization"];
    let is_so = |new: &str, old: &str| initialization[new] == true || status[old] == true;
    if !is_so("infrastructureProvisioned", "infrastructureReady") {
        return Some((
            "status.initialization.infrastructureProvisioned",
            shown(&initialization["infrastructureProvisioned"]),
            "its infrastructure is still being provisioned",
        ));
    }
    let initialized = condition(item, "ControlPlaneInitialized");
    if initialized.as_deref() != Some("True") {
        return Some((
            "status.conditions[ControlPlaneInitialized].status",
            initialized.unwrap_or_default(),
            "its control plane is not initialized yet",
        ));
    }
    let has_control_plane = !item.object.data["spec"]["controlPlaneRef"].is_null();
    let is_initialized = is_so("controlPlaneInitialized", "controlPlaneReady");
    (has_control_plane && !is_initialized).then(|| {
        (
            "status.initialization.controlPlaneInitialized",
            shown(&initialization["controlPlaneInitialized"]),
            "its control plane is not initialized yet",
        )
    })
}

fn shown(value: &Value) -> String {
    value
        .as_bool()
        .map(|value| value.to_string())
        .unwrap_or_default()
}

/// The status of a condition, in the newest form that has it.
fn condition(item: &Item, kind: &str) -> Option<String> {
    let status = &item.object.data["status"];
    let places = [
        &status["v1beta2"]["conditions"],
        &status["conditions"],
        &status["deprecated"]["v1beta1"]["conditions"],
    ];
    let found = places.into_iter().find_map(|conditions| {
        let conditions = conditions.as_array()?;
        conditions
            .iter()
            .find(|condition| condition["type"] == kind)
    })?;
    found["status"].as_str().map(str::to_owned)
}

/// Whether something is one of the kinds that a move pauses.
pub(crate) fn is_pausable(item: &Item) -> bool {
    item.kind.is_cluster() || item.kind.is_cluster_class()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use serde_json::json;

    use super::*;
    use crate::kind::Kind;

    fn object(kind: &str, parts: &Value) -> Item {
        let definition: CustomResourceDefinition = serde_json::from_value(json!({
            "metadata": {"name": "x"},
            "spec": {
                "group": "cluster.x-k8s.io", "scope": "Namespaced", "names": {"kind": kind, "plural": "x"},
                "versions": [{"name": "v1beta2", "served": true, "storage": true}],
            },
        }))
        .unwrap();
        let mut object = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "c"}});
        for (field, value) in parts.as_object().unwrap() {
            object[field] = value.clone();
        }
        Item {
            kind: Arc::new(Kind::of(&definition).unwrap()),
            object: serde_json::from_value(object).unwrap(),
        }
    }

    #[test]
    fn a_cluster_of_either_version_is_provisioned_when_it_says_so() {
        let initialized = json!([{"type": "ControlPlaneInitialized", "status": "True"}]);
        let plane = json!({"controlPlaneRef": {"name": "cp"}});
        let new = |infrastructure: bool, plane: bool| {
            json!({
                "initialization": {"infrastructureProvisioned": infrastructure, "controlPlaneInitialized": plane}, "conditions": initialized,
            })
        };
        let old = |infrastructure: bool, plane: bool| {
            json!({
                "infrastructureReady": infrastructure, "controlPlaneReady": plane, "conditions": initialized,
            })
        };
        for status in [&new as &dyn Fn(bool, bool) -> Value, &old] {
            let field = |status: Value| {
                let cluster = object("Cluster", &json!({"spec": plane, "status": status}));
                unprovisioned(&cluster).map(|(field, ..)| field)
            };
            assert_eq!(field(status(true, true)), None);
            assert_eq!(
                field(status(false, true)),
                Some("status.initialization.infrastructureProvisioned")
            );
            assert_eq!(
                field(status(true, false)),
                Some("status.initialization.controlPlaneInitialized")
            );
            let mut uninitialized = status(true, true);
            uninitialized["conditions"] = json!([]);
            assert_eq!(
                field(uninitialized),
                Some("status.conditions[ControlPlaneInitialized].status")
            );
        }
        // Nobody provides the control plane as an object.
        let cluster = object("Cluster", &json!({"spec": {}, "status": new(true, false)}));
        assert_eq!(unprovisioned(&cluster), None);
    }

    #[test]
    fn the_templates_of_a_class_are_found_in_either_version() {
        let of = |name: &str| json!({"apiVersion": "infra/v1", "kind": "T", "name": name});
        let new = json!({
            "infrastructure": {"templateRef": of("a")},
            "controlPlane": {"templateRef": of("b"), "machineInfrastructure": {"templateRef": of("c")}},
            "workers": {
                "machineDeployments": [{"bootstrap": {"templateRef": of("d")}, "infrastructure": {"templateRef": of("e")}}],
                "machinePools": [{"bootstrap": {"templateRef": of("f")}, "infrastructure": {"templateRef": of("g")}}],
            },
        });
        let old = json!({
            "infrastructure": {"ref": of("a")},
            "controlPlane": {"ref": of("b"), "machineInfrastructure": {"ref": of("c")}},
            "workers": {
                "machineDeployments": [{"template": {"bootstrap": {"ref": of("d")}, "infrastructure": {"ref": of("e")}}}],
                "machinePools": [{"template": {"bootstrap": {"ref": of("f")}, "infrastructure": {"ref": of("g")}}}],
            },
        });
        for spec in [new, old] {
            let templates = templates(&object("ClusterClass", &json!({"spec": spec})));
            let names: Vec<_> = templates.iter().map(|one| one.name.as_str()).collect();
            assert_eq!(names, ["a", "b", "c", "d", "e", "f", "g"]);
            assert!(templates.iter().all(|one| one.group == "infra"));
        }
    }

    #[test]
    fn who_says_nothing_of_pausing_is_not_waited_for() {
        let says = |status: &str| json!([{"type": "Paused", "status": status}]);
        let cases = [
            (json!({}), false),
            (json!({"conditions": says("True")}), false),
            (json!({"conditions": says("False")}), true),
            (json!({"conditions": says("Unknown")}), true),
            (
                json!({"v1beta2": {"conditions": says("False")}, "conditions": []}),
                true,
            ),
        ];
        for (status, waits) in cases {
            let machine = object("Machine", &json!({"status": status}));
            assert_eq!(is_still_at_work(&machine), waits, "{status}");
        }
    }
}
