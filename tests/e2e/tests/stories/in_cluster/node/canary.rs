//! A value that stands in a Secret of a cluster whose runners are pods, and must be nowhere else when all is over.

use base64::{Engine, engine::general_purpose::STANDARD};
use lab::{Node, command::output};
use serde_json::{Value, json};

use super::super::{NAMESPACE, spec_of};

/// The value, of which no part is a word of anything else.
pub(super) const CANARY: &str = "canary-of-the-pods-5b1f0e77";

/// What people and programs can read of a pod's work. Secrets are not among it.
const KINDS: &str = "clusters.kubespray.k8s.io,clusternodes,runs,jobs,pods,events,configmaps,persistentvolumeclaims,\
                     serviceaccounts,roles,rolebindings,leases,networkpolicies";

/// Where a node keeps what its pods wrote: their logs, their file systems, their volumes.
const KEPT: &str = "/var/log /var/lib/containerd /var/lib/kubelet /var/lib/windlass-volume";

/// Gives a cluster the value as a variable.
pub(super) fn hide(objects: &mut Vec<Value>) {
    let variables = format!("canary_of_the_pods: {CANARY}\n");
    objects.push(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "variables", "namespace": NAMESPACE},
        "data": {"vars.yml": STANDARD.encode(variables)},
    }));
    let reference = json!({"name": "variables", "key": "vars.yml"});
    *spec_of(objects, "/nodes") = json!({"all": {"deploy": {"extraVarsSecretRef": reference}}});
}

/// The value is in its Secret, which was used, and in nothing that the pods have left.
pub(super) fn assert_in_its_secret_alone(node: &Node) {
    let secret =
        output(&mut node.kubectl(&["-n", NAMESPACE, "get", "secret", "variables", "-o", "json"]));
    let secret: Value = serde_json::from_str(&secret.unwrap()).unwrap();
    let stored = STANDARD
        .decode(secret["data"]["vars.yml"].as_str().unwrap())
        .unwrap();
    assert!(String::from_utf8(stored).unwrap().contains(CANARY));

    let objects = [
        "get",
        KINDS,
        "--all-namespaces",
        "--output=json",
        "--show-managed-fields",
    ];
    let objects = output(&mut node.kubectl(&objects)).unwrap();
    assert!(
        objects.contains("\"variables\""),
        "the Cluster refers to it"
    );
    for spelling in [CANARY.to_owned(), STANDARD.encode(CANARY)] {
        assert!(!objects.contains(&spelling), "an object holds {spelling}");
    }
    // Of a run's name there is much, so what is looked through is what the pods wrote.
    assert_ne!(files_with(node, "first-create-1"), "");
    assert_eq!(files_with(node, CANARY), "", "files of the node hold it");
}

/// The files of the node that hold a text. Files that go while they are looked for are no matter.
fn files_with(node: &Node, text: &str) -> String {
    let search = format!("grep -rlsF -e {text} {KEPT} || true");
    let found = node.lab.ssh("host-1", &search).unwrap();
    assert!(found.status.success(), "{found:?}");
    String::from_utf8_lossy(&found.stdout).into_owned()
}
