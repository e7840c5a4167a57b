//! Hooks of each form in the creation of a cluster whose runners are pods: two on its host, one as a pod of the cluster itself.

use lab::Node;
use serde_json::{Value, json};

use super::{NAMESPACE, canary::CANARY, run, said, spec_of};

/// Each by its name, its side and step, and how the plan tells of it.
const HOOKS: [(&str, &str, &str, &str); 3] = [
    ("mark", "before", "etcd/install", "a script"),
    ("told", "after", "kubeconfig/store", "a playbook"),
    (
        "smoke",
        "after",
        "health/check",
        "image registry.k8s.io/busybox",
    ),
];
/// The ConfigMap with the text of the script.
const TEXTS: &str = "hooks";
/// What the script leaves on the host.
const MARK: &str = "/root/mark";
/// What the playbook leaves on the host.
const TOLD: &str = "/root/told";

/// Has the hooks stand in the creation of a cluster. The text of one is in a ConfigMap, which the operator may read and runners
/// may not; another one knows a variable that comes from a Secret.
pub(super) fn stand(objects: &mut Vec<Value>) {
    let tell = "echo \"$WINDLASS_HOST $WINDLASS_OPERATION $WINDLASS_STEP\"";
    let told = format!(
        "- hosts: kube_control_plane\n  gather_facts: false\n  tasks:\n    - name: Tell\n      ansible.builtin.copy:\n        \
         content: \"{{{{ inventory_hostname }}}} knows {{{{ canary_of_the_pods | length }}}}\"\n        dest: {TOLD}\n"
    );
    let runs = [
        json!({"script": {"configMapKeyRef": {"name": TEXTS, "key": "mark"}}}),
        json!({"playbook": {"inline": told}}),
        json!({"image": {
            "name": "registry.k8s.io/busybox:1", "command": ["sh", "-c"], "args": [tell],
        }}),
    ];
    let hooks = HOOKS.into_iter().zip(runs).map(|(place, mut hook)| {
        let (name, side, step, _) = place;
        hook["name"] = json!(name);
        hook[side] = json!(step);
        hook["hosts"] = json!(["host-1"]);
        hook["operations"] = json!(["Create"]);
        hook
    });
    *spec_of(objects, "/hooks") = hooks.collect();
    let texts = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": TEXTS, "namespace": NAMESPACE},
        "data": {"mark": format!("#!/bin/sh\nset -eu\n{tell} > {MARK}\n")},
    });
    // Behind its namespace, and there before the cluster that names it.
    objects.insert(1, texts);
}

/// The run that raised the cluster tells of each hook in its place, and each did what it says.
pub(super) fn have_run(node: &Node) {
    let run = run(node, NAMESPACE);
    let steps = run["spec"]["plan"]["steps"].as_array().unwrap();
    let ids: Vec<_> = steps
        .iter()
        .map(|step| step["id"].as_str().unwrap())
        .collect();
    for (name, side, at, what) in HOOKS {
        let id = format!("hook/{name}");
        let in_order = if side == "before" {
            [id.as_str(), at]
        } else {
            [at, id.as_str()]
        };
        let stands = ids.windows(2).any(|pair| pair == in_order);
        assert!(stands, "{in_order:?}: {ids:#?}");
        let planned = steps.iter().find(|step| step["id"] == id).unwrap();
        let title = planned["title"].as_str().unwrap();
        let place = format!("{side} {at} on host-1");
        assert!(
            title.starts_with(&format!("Hook {name}: {what}")) && title.ends_with(&place),
            "{title}"
        );
        let mut ends = run["status"]["steps"].as_array().unwrap().iter();
        let end = ends.find(|step| step["id"] == id).unwrap();
        assert_eq!(end["phase"], "Succeeded", "{end:#}");
    }

    assert_eq!(on_the_host(node, MARK), "host-1 Create etcd/install\n");
    let knows = format!("host-1 knows {}", CANARY.len());
    assert_eq!(on_the_host(node, TOLD), knows);
    // The log of a pod of the raised cluster comes into that of the runner's.
    let logs = said(node, NAMESPACE);
    for line in ["== hook/smoke", "host-1: host-1 Create health/check"] {
        assert!(logs.lines().any(|found| found == line), "{line}: {logs}");
    }
}

/// A file of the host that the cluster is made of.
fn on_the_host(node: &Node, path: &str) -> String {
    let file = node.lab.ssh("host-2", &format!("cat {path}")).unwrap();
    assert!(file.status.success(), "{file:?}");
    String::from_utf8(file.stdout).unwrap()
}
