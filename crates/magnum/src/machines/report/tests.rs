use serde_json::json;

use super::*;
use crate::machines::{objects, plan::plan, tests::cluster};

const NOW: &str = "2026-01-01T00:10:00Z";
const LATE: &str = "2026-01-01T01:01:00Z";

/// A cluster, and what there is of it when Cluster API has done all.
fn world() -> (CoeCluster, Seen) {
    let cluster = cluster(json!({}));
    let template = json!({
        "apiVersion": "magnum.windlass.dev/v1alpha1", "kind": "CoeClusterTemplate", "metadata": {"name": "t"},
        "spec": {"name": "t", "projectId": "p1", "userId": "ann", "imageId": "ubuntu"},
    });
    let template: CoeClusterTemplate = serde_json::from_value(template).unwrap();
    let wanted = objects(&cluster, &template.spec, &[]).unwrap();
    let mut live = Live::default();
    for object in wanted.all() {
        let mut object = object.clone();
        let kind = Kind::of(&object).unwrap();
        object["metadata"]["generation"] = json!(1);
        match kind {
            Kind::Cluster => {
                object["spec"]["controlPlaneEndpoint"] = json!({"host": "192.0.2.9", "port": 6443});
                object["status"] = json!({
                    "initialization": {"controlPlaneInitialized": true}, "conditions": [{"type": "Available", "status": "True"}],
                });
            }
            Kind::ControlPlane | Kind::Deployment => {
                let count = object["spec"]["replicas"].clone();
                object["status"] = json!({
                    "observedGeneration": 1, "replicas": count, "readyReplicas": count, "upToDateReplicas": count,
                    "version": object["spec"]["version"], "initialization": {"controlPlaneInitialized": true},
                    "conditions": [{"type": "Available", "status": "True"}],
                });
            }
            _ => {}
        }
        live.0.push((kind, object));
    }
    for (name, group, at) in [("cp-a", 0, 1), ("w-a", 1, 2), ("w-b", 1, 3)] {
        let machine = json!({
            "metadata": {"name": name, "labels": {GROUP_LABEL: cluster.spec.node_groups[group].uuid}},
            "spec": {"infrastructureRef": {"kind": "OpenStackMachine", "name": name}},
            "status": {
                "phase": "Running", "nodeRef": {"name": name}, "conditions": [{"type": "NodeReady", "status": "True"}],
                "addresses": [
                    {"type": "InternalIP", "address": format!("10.0.0.{at}")}, {"type": "Hostname", "address": name},
                ],
            },
        });
        live.0.push((Kind::Machine, machine));
    }
    let seen = Seen {
        live,
        template: Some(template),
        ..Seen::default()
    };
    (cluster, seen)
}

/// One of which something else was asked since it was made, and which is not known to be so yet.
fn changed() -> (CoeCluster, Seen) {
    let (mut cluster, seen) = world();
    cluster.metadata.generation = Some(2);
    cluster.status = Some(CoeClusterStatus {
        state: Some(State::UpdateInProgress),
        ..CoeClusterStatus::default()
    });
    (cluster, seen)
}

fn told(cluster: &CoeCluster, seen: &Seen, now: &str) -> CoeClusterStatus {
    let template = seen.template.clone().unwrap();
    let plan = plan(
        cluster,
        &objects(cluster, &template.spec, &[]).unwrap(),
        &seen.live,
    );
    status(cluster, seen, &plan, now.parse().unwrap())
}

fn change(seen: &mut Seen, kind: Kind, name: &str, what: impl Fn(&mut Value)) {
    let mut all = seen.live.0.iter_mut();
    let (_, object) = all
        .find(|(other, object)| *other == kind && name_of(object).contains(name))
        .unwrap();
    what(object);
}

/// A worker that does not come, as its server says.
fn stuck(seen: &mut Seen, server: &Value) {
    change(seen, Kind::Machine, "w-a", |machine| {
        machine["status"] = json!({"phase": "Provisioning", "conditions": [
            {"type": "InfrastructureReady", "status": "False", "message": "* see the server"},
        ]});
    });
    change(seen, Kind::Deployment, "worker", |object| {
        object["status"]["readyReplicas"] = json!(1);
    });
    let server = json!({"metadata": {"name": "w-a"}, "status": server});
    seen.live.0.push((Kind::Server, server));
}

fn quota() -> Value {
    json!({"conditions": [
        {"type": "Ready", "status": "False", "message": "it is not ready"},
        {"type": "InstanceReady", "status": "False", "severity": "Error", "reason": "InstanceCreateFailed", "message": "Quota exceeded for cores: 4, 20 of 20"},
    ]})
}

#[test]
fn a_change_is_complete_when_the_last_old_machine_is_gone() {
    let (mut cluster, mut seen) = changed();
    assert_eq!(
        told(&cluster, &seen, NOW).state,
        Some(State::UpdateComplete)
    );
    change(&mut seen, Kind::Machine, "w-b", |machine| {
        machine["metadata"]["deletionTimestamp"] = json!(NOW);
    });
    assert_eq!(
        told(&cluster, &seen, NOW).state,
        Some(State::UpdateInProgress)
    );
    // Its group is no more, and nothing has told it to go yet.
    change(&mut seen, Kind::Machine, "w-b", |machine| {
        machine["metadata"] = json!({"name": "w-b", "labels": {GROUP_LABEL: "gone"}});
    });
    assert_eq!(
        told(&cluster, &seen, NOW).state,
        Some(State::UpdateInProgress)
    );
    // Nobody asked for that one to go.
    cluster.status.as_mut().unwrap().state = Some(State::UpdateComplete);
    cluster.status.as_mut().unwrap().observed_generation = cluster.metadata.generation;
    assert_eq!(
        told(&cluster, &seen, NOW).state,
        Some(State::UpdateComplete)
    );
}

#[test]
fn a_change_is_not_complete_while_machines_are_of_a_set_of_before() {
    let (cluster, seen) = changed();
    let now = seen.live.of(Kind::Deployment).next().unwrap();
    let (spec, labels) = (now["spec"].clone(), now["metadata"]["labels"].clone());
    let mut set = json!({
        "metadata": {"name": "of-before", "labels": labels},
        "spec": {"replicas": 2, "template": spec["template"]}, "status": {"replicas": 2},
    });
    let state_with = |set: &Value| {
        let mut seen = seen.clone();
        seen.live.0.push((Kind::MachineSet, set.clone()));
        told(&cluster, &seen, NOW).state
    };
    assert_eq!(state_with(&set), Some(State::UpdateComplete));
    set["spec"]["template"]["spec"]["version"] = json!("v1.33.1");
    assert_eq!(state_with(&set), Some(State::UpdateInProgress));
    set["spec"]["replicas"] = json!(0);
    assert_eq!(state_with(&set), Some(State::UpdateInProgress));
    set["status"]["replicas"] = json!(0);
    assert_eq!(state_with(&set), Some(State::UpdateComplete));
}

#[test]
fn a_cluster_that_is_there_is_complete_and_well() {
    let (cluster, seen) = world();
    let told = told(&cluster, &seen, NOW);
    assert_eq!(
        (told.state, &told.reason),
        (Some(State::CreateComplete), &None)
    );
    assert_eq!(told.api_address.as_deref(), Some("https://192.0.2.9:6443"));
    assert_eq!(told.coe_version.as_deref(), Some("v1.34.3"));
    let health = told.health.unwrap();
    assert_eq!(health.status, HealthStatus::Healthy);
    assert_eq!(
        (&*health.reasons["api"], &*health.reasons["w-a.Ready"]),
        ("ok", "True")
    );
    let workers = &told.groups[&cluster.spec.node_groups[1].uuid];
    assert_eq!(workers.node_addresses, ["10.0.0.2", "10.0.0.3"]);
}

#[test]
fn the_reason_is_that_of_the_machine_that_does_not_come() {
    let (cluster, mut seen) = world();
    stuck(&mut seen, &quota());
    let reason = Some("machine w-a: Quota exceeded for cores: 4, 20 of 20".to_owned());
    let first = told(&cluster, &seen, NOW);
    assert_eq!(
        (first.state, &first.reason),
        (Some(State::CreateInProgress), &reason)
    );
    let groups = &cluster.spec.node_groups;
    assert_eq!(first.groups[&groups[1].uuid].reason, reason);
    assert_eq!(first.groups[&groups[0].uuid].reason, None);
    let late = told(&cluster, &seen, LATE);
    assert_eq!(late.state, Some(State::CreateFailed));
    let why = late.reason.unwrap();
    assert!(
        why.contains("60 minutes") && why.contains("Quota exceeded"),
        "{why}"
    );
    assert_eq!(
        late.groups[&groups[0].uuid].state,
        Some(State::CreateComplete)
    );
}

#[test]
fn a_machine_that_failed_for_good_fails_at_once() {
    for server in [
        json!({"failureMessage": "No valid host was found"}),
        json!({"deprecated": {"v1beta1": {"failureMessage": "No valid host was found"}}}),
    ] {
        let (cluster, mut seen) = world();
        stuck(&mut seen, &server);
        let told = told(&cluster, &seen, NOW);
        assert_eq!(told.state, Some(State::CreateFailed));
        assert_eq!(
            told.reason.as_deref(),
            Some("machine w-a: No valid host was found")
        );
    }
    let (cluster, mut seen) = world();
    stuck(&mut seen, &quota());
    change(&mut seen, Kind::Machine, "w-a", |machine| {
        machine["status"]["phase"] = json!("Failed");
    });
    assert_eq!(told(&cluster, &seen, NOW).state, Some(State::CreateFailed));
}

#[test]
fn a_cluster_that_was_made_is_not_made_again() {
    let (mut cluster, mut seen) = world();
    cluster.status = Some(told(&cluster, &seen, NOW));
    stuck(&mut seen, &quota());
    let unwell = told(&cluster, &seen, LATE);
    assert_eq!(unwell.state, Some(State::CreateComplete));
    assert_eq!(unwell.health.unwrap().status, HealthStatus::Unhealthy);
    // Asked for more, it is at work, and fails where a machine does.
    cluster.metadata.generation = Some(2);
    assert_eq!(
        told(&cluster, &seen, LATE).state,
        Some(State::UpdateInProgress)
    );
    change(&mut seen, Kind::Server, "w-a", |server| {
        server["status"]["failureMessage"] = json!("gone");
    });
    let failed = told(&cluster, &seen, LATE);
    assert_eq!(
        (failed.state, failed.reason.as_deref()),
        (Some(State::UpdateFailed), Some("machine w-a: gone"))
    );
    cluster.status = Some(failed);
    let (_, well) = world();
    assert_eq!(
        told(&cluster, &well, LATE).state,
        Some(State::UpdateComplete)
    );
}

#[test]
fn what_is_missing_is_told_and_what_is_not_served_fails() {
    for (is_final, state) in [
        (false, State::CreateInProgress),
        (true, State::CreateFailed),
    ] {
        let lacks = Trouble {
            is_final,
            message: "install it".to_owned(),
        };
        let seen = Seen {
            lacks: Some(lacks),
            ..Seen::default()
        };
        let told = status(
            &cluster(json!({})),
            &seen,
            &Plan::default(),
            NOW.parse().unwrap(),
        );
        assert_eq!(
            (told.state, told.reason.as_deref()),
            (Some(state), Some("install it"))
        );
        assert_eq!(told.api_address, None);
    }
}

#[test]
fn a_cluster_that_goes_says_what_it_waits_for() {
    let (mut cluster, mut seen) = world();
    cluster.metadata.deletion_timestamp = cluster.metadata.creation_timestamp.clone();
    change(&mut seen, Kind::Machine, "w-b", |machine| {
        let waits =
            json!([{"type": "Deleting", "status": "True", "message": "Drain not completed yet"}]);
        machine["status"]["conditions"] = waits;
    });
    let told = told(&cluster, &seen, NOW);
    assert_eq!(told.state, Some(State::DeleteInProgress));
    assert_eq!(
        told.reason.as_deref(),
        Some("machine w-b: Drain not completed yet")
    );
}

#[test]
fn numbers_of_an_older_generation_settle_nothing() {
    let (cluster, mut seen) = world();
    change(&mut seen, Kind::ControlPlane, "", |object| {
        object["metadata"]["generation"] = json!(2);
    });
    assert_eq!(
        told(&cluster, &seen, NOW).state,
        Some(State::CreateInProgress)
    );
}

#[test]
fn an_address_of_six_has_brackets() {
    let (cluster, mut seen) = world();
    change(&mut seen, Kind::Cluster, "", |object| {
        object["spec"]["controlPlaneEndpoint"]["host"] = json!("2001:db8::9");
    });
    let told = told(&cluster, &seen, NOW);
    assert_eq!(
        told.api_address.as_deref(),
        Some("https://[2001:db8::9]:6443")
    );
}

#[test]
fn a_cluster_that_does_not_go_says_what_may_hold_it() {
    let (mut cluster, mut seen) = world();
    cluster.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    change(&mut seen, Kind::Cluster, "k8s-", |object| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    let soon = told(&cluster, &seen, NOW);
    assert_eq!(
        (soon.state, soon.reason),
        (Some(State::DeleteInProgress), None)
    );
    let reason = told(&cluster, &seen, LATE).reason.unwrap();
    assert!(reason.contains("load balancer of a Service"), "{reason}");
    seen.lacks = Some(Trouble {
        is_final: false,
        message: "there is no Secret".to_owned(),
    });
    let reason = told(&cluster, &seen, LATE).reason.unwrap();
    assert!(
        reason.starts_with("there is no Secret; it has been"),
        "{reason}"
    );
}

#[test]
fn what_could_not_be_read_stays_as_it_was_and_is_late_all_the_same() {
    let (mut cluster, mut seen) = world();
    cluster.status = Some(told(&cluster, &seen, NOW));
    seen.live = Live::default();
    seen.is_partial = true;
    seen.lacks = Some(Trouble {
        is_final: false,
        message: "failed to list objects of Cluster API".to_owned(),
    });
    let status = told(&cluster, &seen, LATE);
    let known = cluster.status.clone().unwrap();
    assert_eq!(
        status,
        CoeClusterStatus {
            reason: Some("failed to list objects of Cluster API".to_owned()),
            ..known.clone()
        }
    );
    cluster.status = None;
    let status = told(&cluster, &seen, NOW);
    assert_eq!(status.state, Some(State::CreateInProgress));
    let status = told(&cluster, &seen, LATE);
    assert_eq!(status.state, Some(State::CreateFailed));
    let reason = status.reason.unwrap();
    assert!(
        reason.contains("within 60 minutes: failed to list"),
        "{reason}"
    );
}
