use serde_json::{Value, json};

use super::*;

const CREATED: &str = "2026-01-01T00:00:00Z";

fn cluster(generation: i64, more: Value) -> CoeCluster {
    let mut spec = json!({
        "name": "first", "projectId": "p", "userId": "u", "clusterTemplateId": "t",
        "nodeGroups": [
            {"uuid": "m", "name": "default-master", "role": "master", "nodeCount": 1, "isDefault": true},
            {"uuid": "w", "name": "default-worker", "role": "worker", "nodeCount": 1, "isDefault": true},
        ],
    });
    let Value::Object(more) = more else {
        panic!("an object")
    };
    spec.as_object_mut().unwrap().extend(more);
    serde_json::from_value(json!({
        "apiVersion": "magnum.windlass.dev/v1alpha1", "kind": "CoeCluster",
        "metadata": {"name": "u", "generation": generation, "creationTimestamp": CREATED}, "spec": spec,
    }))
    .unwrap()
}

fn seen(status: &Value) -> Seen {
    let host = |at: u8, group: &str, node: &str| {
        serde_json::from_value(json!({
            "apiVersion": "magnum.windlass.dev/v1alpha1", "kind": "Host", "metadata": {"name": format!("h{at}")},
            "spec": {"address": format!("10.0.0.{at}"), "claim": {"cluster": "u", "group": group, "node": node}},
        }))
        .unwrap()
    };
    let node = |name: &str| {
        serde_json::from_value(json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode", "metadata": {"name": name},
            "spec": {"type": "master", "inventory": {"ansible_host": "x"}}, "status": {"state": "Joined"},
        }))
        .unwrap()
    };
    Seen {
        hosts: vec![host(1, "m", "m-1"), host(2, "w", "w-1")],
        nodes: vec![node("m-1"), node("w-1")],
        kubespray: serde_json::from_value(json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "cluster", "generation": 3},
            "spec": {}, "status": status,
        }))
        .unwrap(),
        key: Some(Secret::default()),
        key_name: "default/magnum-ssh".to_owned(),
    }
}

fn built(state: &str) -> Value {
    json!({
        "state": state, "observedGeneration": 3, "kubernetesVersion": "1.34.3", "cluster": {"health": "HEALTH_OK"},
        "nodes": {"total": 2, "healthy": 2, "summary": "2/2"},
        "conditions": [{"type": "APIServerAvailable", "status": "True", "reason": "x", "message": "", "lastTransitionTime": CREATED}],
    })
}

fn at(minutes: i64) -> Timestamp {
    let created: Timestamp = CREATED.parse().unwrap();
    Timestamp::from_second(created.as_second() + minutes * 60).unwrap()
}

fn lacking() -> Plan {
    let missing = [(
        "w".to_owned(),
        "node group default-worker needs 1 more".to_owned(),
    )];
    Plan {
        missing: missing.into(),
        ..Plan::default()
    }
}

#[test]
fn a_built_cluster_is_complete_with_its_address_version_and_health() {
    let status = status(
        &cluster(1, json!({})),
        &seen(&built("Created")),
        &Plan::default(),
        at(5),
    );
    assert_eq!(status.state, Some(State::CreateComplete));
    assert_eq!(status.api_address.as_deref(), Some("https://10.0.0.1:6443"));
    assert_eq!(status.coe_version.as_deref(), Some("v1.34.3"));
    assert_eq!(status.groups["w"].node_addresses, ["10.0.0.2"]);
    let health = status.health.unwrap();
    assert_eq!(health.status, HealthStatus::Healthy);
    assert_eq!(json!(health.reasons), json!({"api": "ok", "nodes": "2/2"}));
}

#[test]
fn a_state_follows_from_what_is_seen() {
    let mut joining = seen(&built("Created"));
    joining.nodes[1].status = None;
    let failed = json!({"state": "Failed", "lastOperation": {"type": "Create", "state": "Failed", "description": "etcd did not start"}});
    let rows = vec![
        (
            "nothing yet",
            1,
            seen(&json!(null)),
            Plan::default(),
            State::CreateInProgress,
        ),
        (
            "being built",
            1,
            seen(&json!({"state": "Creating"})),
            Plan::default(),
            State::CreateInProgress,
        ),
        (
            "failed to build",
            1,
            seen(&failed),
            Plan::default(),
            State::CreateFailed,
        ),
        (
            "a host joins",
            2,
            joining,
            Plan::default(),
            State::UpdateInProgress,
        ),
        (
            "scaling",
            2,
            seen(&built("Scaling")),
            Plan::default(),
            State::UpdateInProgress,
        ),
        (
            "changed",
            2,
            seen(&built("Created")),
            Plan::default(),
            State::UpdateComplete,
        ),
        (
            "no host for more",
            2,
            seen(&built("Created")),
            lacking(),
            State::UpdateFailed,
        ),
        (
            "failed to change",
            2,
            seen(&built("Failed")),
            Plan::default(),
            State::UpdateFailed,
        ),
    ];
    for (name, generation, seen, plan, wanted) in rows {
        let status = status(&cluster(generation, json!({})), &seen, &plan, at(1));
        assert_eq!(status.state, Some(wanted), "{name}: {status:?}");
    }
}

#[test]
fn what_waits_says_for_what_until_its_time_is_over() {
    let mut nothing = seen(&json!(null));
    nothing.kubespray = None;
    let early = status(&cluster(1, json!({})), &nothing, &lacking(), at(59));
    assert_eq!(early.state, Some(State::CreateInProgress));
    assert_eq!(
        early.reason.as_deref(),
        Some("node group default-worker needs 1 more")
    );
    let late = status(&cluster(1, json!({})), &nothing, &lacking(), at(61));
    assert_eq!(late.state, Some(State::CreateFailed));
    assert!(
        late.reason
            .unwrap()
            .starts_with("it was not made within 60 minutes: node group")
    );
    let patient = status(
        &cluster(1, json!({"createTimeout": 0})),
        &nothing,
        &lacking(),
        at(6000),
    );
    assert_eq!(patient.state, Some(State::CreateInProgress));
    nothing.key = None;
    let keyless = status(&cluster(1, json!({})), &nothing, &Plan::default(), at(1));
    assert!(keyless.reason.unwrap().contains("default/magnum-ssh"));
}

#[test]
fn only_the_group_that_lacks_something_fails() {
    let status = status(
        &cluster(2, json!({})),
        &seen(&built("Created")),
        &lacking(),
        at(1),
    );
    assert_eq!(status.groups["w"].state, Some(State::UpdateFailed));
    assert_eq!(status.groups["m"].state, Some(State::UpdateComplete));
}

#[test]
fn a_group_that_came_later_is_created_until_it_is_changed() {
    let later = |more: Value| {
        let mut group = json!({"uuid": "l", "name": "later", "role": "worker", "nodeCount": 0});
        group
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let mut cluster = cluster(2, json!({}));
        let group = serde_json::from_value(group).unwrap();
        cluster.spec.node_groups.push(group);
        let told = status(&cluster, &seen(&built("Created")), &Plan::default(), at(1));
        assert_eq!(told.groups["w"].state, Some(State::UpdateComplete));
        told.groups["l"].state
    };
    assert_eq!(later(json!({})), Some(State::CreateComplete));
    let changed = json!({"updatedAt": "2026-01-01T00:00:00+00:00"});
    assert_eq!(later(changed), Some(State::UpdateComplete));
}

#[test]
fn a_delete_that_fails_says_why() {
    let mut going = cluster(2, json!({}));
    going.metadata.deletion_timestamp = going.metadata.creation_timestamp.clone();
    let mut failed = built("Failed");
    failed["lastOperation"] =
        json!({"type": "Reset", "state": "Failed", "description": "10.0.0.2 does not answer"});
    let told = status(&going, &seen(&failed), &Plan::default(), at(1));
    assert_eq!(
        (told.state, told.reason.as_deref()),
        (Some(State::DeleteFailed), Some("10.0.0.2 does not answer"))
    );
    let told = status(&going, &seen(&built("Deleting")), &Plan::default(), at(1));
    assert_eq!(told.state, Some(State::DeleteInProgress));
}

#[test]
fn a_group_is_of_the_version_that_its_last_node_has() {
    let told = |versions: &[&'static str]| oldest(versions.iter().copied());
    assert_eq!(
        told(&["v1.34.10", "v1.34.9", "1.35.0"]).as_deref(),
        Some("v1.34.9")
    );
    assert_eq!(told(&["v1.34.9", "<b>"]).as_deref(), Some("v1.34.9"));
    assert_eq!(told(&[]), None);
}

#[test]
fn what_is_late_is_looked_at_when_it_becomes_so() {
    let mut cluster = CoeCluster::new("a", api::magnum::CoeClusterSpec::default());
    let at = |second| Timestamp::from_second(second).unwrap();
    let created = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1000));
    cluster.metadata.creation_timestamp = Some(created);
    cluster.spec.create_timeout = Some(1);
    for now in [1000, 1030, 1060] {
        let left = late_in(&cluster, at(now)).unwrap();
        let then = now + i64::try_from(left.as_secs()).unwrap();
        assert!(!is_late(&cluster, at(then - 1)), "{now}");
        assert!(is_late(&cluster, at(then)), "{now}");
    }
    assert_eq!(late_in(&cluster, at(1061)), None);
    cluster.spec.create_timeout = Some(0);
    assert_eq!(late_in(&cluster, at(1000)), None);
}
