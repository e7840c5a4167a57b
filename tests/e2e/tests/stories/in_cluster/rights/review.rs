//! What each account may do, as the API server tells it: the lists below are what was looked at and found needed.

use std::{collections::BTreeSet, fs};

use lab::{ControlPlane, command::output};
use serde_json::{Value, json};

/// Of the replicas, to be one of which one works, in the operator's namespace. What has no name yet cannot be named.
pub(super) const LEADER: &[&str] = &[
    "leases.coordination.k8s.io: create",
    "leases.coordination.k8s.io windlass: get update",
];

/// Of the operator, wherever it works: what it does, and what it gives its runners.
pub(super) const OPERATOR: &[&str] = &[
    "clusternodes.kubespray.k8s.io/status: patch",
    "clusternodes.kubespray.k8s.io: list patch watch",
    "clusters.kubespray.k8s.io/finalizers: update",
    "clusters.kubespray.k8s.io/status: patch",
    "clusters.kubespray.k8s.io: get list patch watch",
    "configmaps: get",
    "events.events.k8s.io: create",
    "events: list",
    "jobs.batch: create delete get list watch",
    "leases.coordination.k8s.io: create get patch update",
    "networkpolicies.networking.k8s.io: create patch",
    "persistentvolumeclaims: create get",
    "pods: list",
    "rolebindings.rbac.authorization.k8s.io: create patch",
    "roles.rbac.authorization.k8s.io: create patch",
    "runs.workflow.windlass.dev/finalizers: update",
    "runs.workflow.windlass.dev/status: patch",
    "runs.workflow.windlass.dev: create delete get list patch watch",
    "secrets: create get patch",
    "serviceaccounts: create patch",
];

/// Of the runner of the cluster `first`, whose Secret with the ssh key is `ssh`.
pub(super) const RUNNER: &[&str] = &[
    "clusters.kubespray.k8s.io first: get",
    "events.events.k8s.io: create",
    "leases.coordination.k8s.io cluster-first: get update",
    "runs.workflow.windlass.dev first-create-1: get list watch",
    "runs.workflow.windlass.dev/status first-create-1: patch",
    "secrets first-host-keys,first-kubeconfig,ssh: get",
    "secrets first-kubeconfig: patch",
];

/// Compares what an account of `windlass-system`, or else of the namespace, may do there with what it should.
pub(super) fn expect(plane: &ControlPlane, account: &str, namespace: &str, expected: &[&str]) {
    let home = if account == "windlass" {
        "windlass-system"
    } else if namespace == "windlass-system" && !expected.is_empty() {
        namespace
    } else {
        super::NAMESPACE
    };
    let user = format!("system:serviceaccount:{home}:{account}");
    let everybody = told(plane, "system:serviceaccount:default:nobody", namespace);
    let own: BTreeSet<_> = told(plane, &user, namespace)
        .difference(&everybody)
        .cloned()
        .collect();
    let expected: BTreeSet<_> = expected.iter().map(ToString::to_string).collect();
    // One resource with and without names is merged by nobody: each rule is a line.
    assert_eq!(own, merged(&expected), "{user} in {namespace}");
}

/// Lines of one resource and the same names as one.
fn merged(lines: &BTreeSet<String>) -> BTreeSet<String> {
    let mut verbs = std::collections::BTreeMap::<&str, BTreeSet<&str>>::new();
    for line in lines {
        let (what, words) = line.split_once(": ").unwrap();
        verbs.entry(what).or_default().extend(words.split(' '));
    }
    verbs
        .into_iter()
        .map(|(what, verbs)| {
            let verbs: Vec<_> = verbs.into_iter().collect();
            format!("{what}: {}", verbs.join(" "))
        })
        .collect()
}

/// The rights of a user in a namespace, one line for each resource and the same names.
fn told(plane: &ControlPlane, user: &str, namespace: &str) -> BTreeSet<String> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    });
    let file = plane.dir().join("review.json");
    fs::write(&file, review.to_string()).unwrap();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let group = "--as-group=system:serviceaccounts";
    let impersonated = [
        &format!("--as={user}"),
        group,
        "--as-group=system:authenticated",
    ];
    let mut kubectl = plane.kubectl();
    kubectl.args(["create", "--raw", path, "-f"]).arg(&file);
    let answer: Value = serde_json::from_str(&output(kubectl.args(impersonated)).unwrap()).unwrap();
    let status = &answer["status"];
    assert_eq!(status["incomplete"], false, "{answer:#}");
    let mut lines = BTreeSet::new();
    for rule in status["resourceRules"].as_array().unwrap() {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                lines.insert(line(&group, &resource, rule));
            }
        }
    }
    merged(&lines)
}

fn line(group: &str, resource: &str, rule: &Value) -> String {
    let (kind, part) = resource.split_once('/').unwrap_or((resource, ""));
    let dot = if group.is_empty() { "" } else { "." };
    let slash = if part.is_empty() { "" } else { "/" };
    let mut names = words(&rule["resourceNames"]);
    names.sort();
    let space = if names.is_empty() { "" } else { " " };
    let verbs = words(&rule["verbs"]).join(" ");
    format!(
        "{kind}{dot}{group}{slash}{part}{space}{}: {verbs}",
        names.join(",")
    )
}

fn words(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|word| word.as_str().unwrap().to_owned()).collect()
}
