//! What people start from: each example is read as it is written, and can be planned.

use std::{
    fs,
    path::{Path, PathBuf},
};

use kubespray::{
    Layout,
    preview::{Objects, PreviewOutcome, preview},
};
use serde_json::{Value, json};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// The documents of an example, in the order of its files.
fn documents(example: &str) -> Vec<Value> {
    let mut files: Vec<_> = fs::read_dir(examples().join(example))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "yaml"))
        .collect();
    files.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        documents
    };
    files.iter().flat_map(read).collect()
}

/// The objects of an example, with these playbooks. A field that is misspelt is in none of them.
fn objects(example: &str, playbooks: &str, kubernetes: Option<&str>) -> Objects {
    let mut objects = Objects::default();
    for mut document in documents(example) {
        match document["kind"].as_str().unwrap() {
            "Cluster" => {
                document["spec"]["kubespray"]["source"] = json!({"path": playbooks});
                if let Some(version) = kubernetes {
                    document["spec"]["kubernetesVersion"] = version.into();
                }
                let cluster: api::Cluster = serde_json::from_value(document.clone()).unwrap();
                holds(&json!(cluster), &document, example);
                objects.clusters.push(cluster);
            }
            "ClusterNode" => {
                let node: api::ClusterNode = serde_json::from_value(document.clone()).unwrap();
                holds(&json!(node), &document, example);
                objects.nodes.push(node);
            }
            "Namespace" => {}
            other => panic!("{example}: {other}"),
        }
    }
    objects
}

/// Whether everything that is written was read.
fn holds(read: &Value, written: &Value, path: &str) {
    match written {
        Value::Object(fields) => {
            for (name, value) in fields {
                holds(&read[name], value, &format!("{path}.{name}"));
            }
        }
        other => assert_eq!(read, other, "{path}"),
    }
}

async fn plan(objects: &Objects) -> api::run::Plan {
    let data = tempfile::tempdir().unwrap();
    let mut previews = preview(objects, &Layout::new(data.path())).await;
    match previews.remove(0).outcome {
        PreviewOutcome::Plan(plan) => *plan,
        other => panic!("expected a plan, got {other:?}"),
    }
}

/// An example with its control planes, etcd members and workers.
type Example = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);

const EXAMPLES: [Example; 6] = [
    (
        "first-cluster",
        &["master-1"],
        &["master-1"],
        &["worker-1", "worker-2"],
    ),
    (
        "three-control-planes",
        &["control-plane-1", "control-plane-2", "control-plane-3"],
        &["control-plane-1", "control-plane-2", "control-plane-3"],
        &["worker-1", "worker-2"],
    ),
    (
        "external-etcd",
        &["control-plane-1", "control-plane-2"],
        &["etcd-1", "etcd-2", "etcd-3"],
        &["worker-1"],
    ),
    (
        "bastion",
        &["control-plane-1"],
        &["control-plane-1"],
        &["worker-1", "worker-2"],
    ),
    (
        "air-gap",
        &["control-plane-1"],
        &["control-plane-1"],
        &["worker-1", "worker-2"],
    ),
    (
        "adopted/objects",
        &["node1", "node2", "node3"],
        &["node1", "node2", "node3"],
        &["node4", "node5"],
    ),
];

async fn each_is_planned(examples: &[Example], playbooks: &str, kubernetes: Option<&str>) {
    for (example, control_planes, etcd, workers) in examples {
        let plan = plan(&objects(example, playbooks, kubernetes)).await;
        let order = &plan.inputs["inventory"]["order"];
        assert_eq!(
            order["kube_control_plane"],
            json!(control_planes),
            "{example}"
        );
        assert_eq!(order["etcd"], json!(etcd), "{example}");
        assert_eq!(order["kube_node"], json!(workers), "{example}");
    }
}

#[tokio::test]
async fn each_can_be_planned() {
    // With the one Kubernetes that the bundle has.
    each_is_planned(&EXAMPLES, super::BUNDLE, Some("1.34.4")).await;
}

#[test]
fn each_example_is_planned_and_named_in_the_docs() {
    let started = fs::read_to_string(examples().join("../docs/getting-started.md")).unwrap();
    for entry in fs::read_dir(examples()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let planned = EXAMPLES
            .iter()
            .any(|(example, ..)| example.starts_with(&name))
            // What they are rendered to is planned in crates/windlass/tests/inventory.rs, and in crates/inventory/tests/fleet.
            || ["fleet", "fleet-topology", "fleet-cluster-api"].contains(&name.as_str())
            // Of crates/providers/tests/examples.rs.
            || ["providers-n-core", "providers-n-infra"].contains(&name.as_str());
        assert!(planned, "{name} is planned by no test");
        let link = format!("examples/{name}");
        assert!(
            started.contains(&link),
            "{link} is not in getting-started.md"
        );
    }
}

/// With the release itself: a checkout of 2.30.0.
mod kubespray_checkout {
    #[tokio::test]
    #[ignore = "needs WINDLASS_KUBESPRAY, a checkout of kubespray 2.30.0"]
    async fn each_can_be_planned_with_the_release_it_names() {
        let checkout = std::env::var("WINDLASS_KUBESPRAY").unwrap();
        // The first one is for the bundle.
        super::each_is_planned(&super::EXAMPLES[1..], &checkout, None).await;
    }
}
