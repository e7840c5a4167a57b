//! Each operation behaves as its own settings say, and as those of creation where they say nothing.

use api::{ClusterNode, run::Action};
use kube::ResourceExt;
use kubespray::{
    action::APPROVE,
    cluster::decision::{Decision, NewRun},
    names::ADOPTED,
    request::{CONVERGE, REPLACED_BY},
};
use serde_json::{Value, from_value, json};

use crate::past::{Past, days};

/// The settings that stand out in a plan: who is asked, how often a step is tried, and how many hosts may be silent.
fn told(new: &NewRun) -> (bool, Vec<u32>, String) {
    let steps = &new.plan.steps;
    let first = steps.first().unwrap();
    let asks = first.id == APPROVE && matches!(first.action, Action::Approve(_));
    let mut tries: Vec<_> = steps
        .iter()
        .filter(|step| step.id != APPROVE)
        .map(|step| {
            step.retry
                .as_ref()
                .map_or(0, |retry| u32::from(retry.limit))
        })
        .collect();
    tries.sort_unstable();
    tries.dedup();
    let probe = steps.iter().find(|step| step.id == "prepare/probe");
    let gate = probe.and_then(|probe| probe.gate.clone()).unwrap();
    (asks, tries, gate.unreachable.to_string())
}

fn operations(past: &mut Past, operations: Value) {
    past.cluster.spec.operations = from_value(operations).unwrap();
}

fn creation() -> Value {
    json!({"maxRetries": 2, "thresholds": {"unreachable": 1}})
}

fn own() -> Value {
    json!({"maxRetries": 4, "thresholds": {"unreachable": "30%"}, "approval": "Manual"})
}

#[tokio::test]
async fn converging_has_its_own() {
    let mut past = Past::new(json!({}), &["master", "worker"]).await;
    past.ask(CONVERGE, "1");
    operations(&mut past, json!({"creation": creation()}));
    assert_eq!(told(&past.starts()), (false, vec![2], "1".to_owned()));
    operations(
        &mut past,
        json!({"creation": creation(), "converge": own()}),
    );
    assert_eq!(told(&past.starts()), (true, vec![4], "30%".to_owned()));
}

#[tokio::test]
async fn resetting_has_its_own() {
    let mut past = Past::new(json!({"deletionPolicy": "Reset"}), &["master", "worker"]).await;
    past.cluster.metadata.deletion_timestamp = from_value(json!("2026-06-01T00:00:00Z")).unwrap();
    operations(&mut past, json!({"creation": creation()}));
    assert_eq!(told(&past.starts()), (false, vec![2], "1".to_owned()));
    operations(&mut past, json!({"creation": creation(), "reset": own()}));
    let new = past.starts();
    assert_eq!(told(&new), (true, vec![4], "30%".to_owned()));
    let Action::Approve(approve) = &new.plan.steps[0].action else {
        panic!("nobody is asked");
    };
    assert_eq!(
        approve.question,
        "remove Kubernetes from master-1, worker-2"
    );
}

#[tokio::test]
async fn a_reset_touches_what_the_cluster_was_built_on_and_nothing_else() {
    let mut past = Past::new(json!({"deletionPolicy": "Reset"}), &["master", "worker"]).await;
    past.cluster.metadata.deletion_timestamp = from_value(json!("2026-06-01T00:00:00Z")).unwrap();
    // The object of a host was changed to name another machine.
    let mut moved = past.observed.nodes.clone();
    moved[1].spec.inventory.ansible_host = "10.9.0.2".to_owned();
    std::mem::swap(&mut past.observed.nodes, &mut moved);
    let Decision::Stall(problems) = past.decision() else {
        panic!("it is reset");
    };
    let text = problems[0].to_string();
    assert!(
        text.contains("ClusterNode/worker-2 spec.inventory.ansible_host"),
        "{text}"
    );
    assert!(text.contains("was built with 10.0.0.2"), "{text}");

    std::mem::swap(&mut past.observed.nodes, &mut moved);
    let reset = past.starts();

    // A second member of etcd was declared, which is one too few or too many for a cluster that stays.
    let mut second = past.observed.nodes[0].clone();
    second.metadata.name = Some("master-3".to_owned());
    second.spec.inventory.ansible_host = "10.0.0.3".to_owned();
    past.observed.nodes.push(second);
    let without = past.starts();
    assert_eq!(without.plan.steps, reset.plan.steps);
    let reason = without.plan.reason.unwrap();
    assert!(reason.contains("left alone: master-3"), "{reason}");
    past.observed.nodes.pop();

    // A run that was taken up again is ended first, though a later one has ended.
    let mut again = past.observed.runs[0].clone();
    again.metadata.name = Some("first-upgrade-2".to_owned());
    again.spec.operation = "Upgrade".to_owned();
    again.status = from_value(json!({"phase": "Running"})).unwrap();
    past.observed.runs.insert(0, again);
    assert!(
        matches!(past.decision(), Decision::Cancel(run) if run.name_any() == "first-upgrade-2")
    );
    past.observed.runs.remove(0);

    // What was to be adopted, or was never begun, is not the cluster's.
    for operation in ["Adopt", "Create"] {
        let run = &mut past.observed.runs[0];
        operation.clone_into(&mut run.spec.operation);
        run.status = from_value(json!({
            "phase": "Failed", "steps": [{"id": "prepare/probe", "phase": "Failed"}],
        }))
        .unwrap();
        assert!(matches!(past.decision(), Decision::Forget), "{operation}");
    }
    let run = &mut past.observed.runs[0];
    let step = json!({"id": "bootstrap/hosts", "phase": "Failed"});
    run.status = from_value(json!({"phase": "Failed", "steps": [step]})).unwrap();
    assert_eq!(past.starts().plan.digest, reset.plan.digest);
}

#[tokio::test]
async fn adopting_asks_as_creating_does_unless_told_otherwise() {
    let adopted = |past: &mut Past, settings: Value| {
        past.observed.runs.clear();
        let annotations = past.cluster.annotations_mut();
        annotations.insert(ADOPTED.to_owned(), "true".to_owned());
        past.cluster.spec.kubernetes_version = "1.34.4".parse().ok();
        operations(past, settings);
        told(&past.starts())
    };
    let mut past = Past::new(json!({}), &["master", "worker"]).await;
    let manual = json!({"creation": {"approval": "Manual", "maxRetries": 0}});
    assert_eq!(adopted(&mut past, manual), (true, vec![0], "0%".to_owned()));
    let own = json!({"creation": own(), "adopt": {"approval": "Automatic", "maxRetries": 1}});
    assert_eq!(adopted(&mut past, own), (false, vec![1], "30%".to_owned()));
}

#[tokio::test]
async fn handing_over_behaves_as_removing_unless_told_otherwise() {
    let mut past = Past::new(json!({}), &["master"; 3]).await;
    let new = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
        "metadata": {"name": "master-4", "namespace": "demo", "generation": 1},
        "spec": {"type": "master", "inventory": {"ansible_host": "10.0.0.4"}},
    });
    let nodes = &mut past.observed.nodes;
    nodes.push(from_value::<ClusterNode>(new).unwrap());
    let named = (REPLACED_BY.to_owned(), "master-4".to_owned());
    nodes[0].annotations_mut().extend([named]);
    nodes[0].metadata.deletion_timestamp = from_value(json!("2026-06-01T00:00:00Z")).unwrap();
    let joins = past.starts();
    assert_eq!(joins.operation.name, "Scale");
    past.ran(&joins, "Succeeded", days(-1));
    let remove = json!({"maxRetries": 5, "approval": "Manual"});
    operations(&mut past, json!({"remove": remove}));
    let handing_over = past.starts();
    assert_eq!(handing_over.operation.name, "Replace");
    let (asks, tries, _) = told(&handing_over);
    assert!(asks && tries.contains(&5), "{tries:?}");
    let replace = json!({"maxRetries": 3, "approval": "Automatic"});
    operations(&mut past, json!({"remove": remove, "replace": replace}));
    let (asks, tries, _) = told(&past.starts());
    assert!(!asks && tries.contains(&3), "{tries:?}");
}
