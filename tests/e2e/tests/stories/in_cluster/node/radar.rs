//! The radar of an operator in a cluster, which has ssh beside it where it was installed so.

use e2e::{SYSTEM, root, wait_until};
use lab::{Node, command::output};
use serde_json::json;

use super::{LIMIT, NAMESPACE, get, wish};

/// A file that the playbooks write, and a person edits.
const EDITED: &str = "/etc/crictl.yaml";

/// What somebody edits on a host of the cluster that was raised is named; without ssh the radar is refused.
pub(super) fn sees_an_edit(node: &Node) {
    wish(node, &json!({"spec": {"radar": {"every": "10s"}}}));
    told(node, "Stalled", "True", "this operator has no ssh");

    let file = root().join("deploy/manifests/radar.yaml");
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "-f",
        file.to_str().unwrap(),
    ];
    output(&mut node.kubectl(&apply)).unwrap();
    let rollout = [
        "-n",
        SYSTEM,
        "rollout",
        "status",
        "deployment/windlass",
        "--timeout=300s",
    ];
    output(&mut node.kubectl(&rollout)).unwrap();
    told(node, "Drifted", "False", "");
    let edit = format!("echo '# by hand' >> {EDITED}");
    assert!(node.lab.ssh("host-2", &edit).unwrap().status.success());
    told(node, "Drifted", "True", EDITED);
}

/// Waits until the cluster tells this condition, in these words.
fn told(node: &Node, kind: &str, status: &str, words: &str) {
    wait_until(&format!("{kind}={status}: {words}"), LIMIT, || {
        let clusters = get(&mut node.kubectl(&[]), NAMESPACE, "clusters");
        let conditions = clusters[0]["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let told = conditions.any(|condition| {
            let message = condition["message"].as_str().unwrap_or_default();
            condition["type"] == kind && condition["status"] == status && message.contains(words)
        });
        Ok(told.then_some(()))
    })
    .unwrap();
}
