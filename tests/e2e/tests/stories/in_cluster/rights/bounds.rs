//! What a Cluster may ask of its runner pods: at the door, by the real API server, and within, by the operator.

use e2e::Replica;
use lab::{ControlPlane, Kubernetes, command::output};
use serde_json::{Value, json};

use super::{NAMESPACE, apply, condition, described, get, installed, new_key, spec_of, wait_until};
use crate::in_cluster::{LIMIT, applying};

/// Allows more at the door.
pub(super) fn widen(plane: &ControlPlane, bound: &str, value: &str) {
    let change = json!({"data": {bound: value}}).to_string();
    let patch = [
        "-n",
        "windlass-system",
        "patch",
        "configmap",
        "windlass-bounds",
    ];
    output(
        plane
            .kubectl()
            .args(patch)
            .args(["--type=merge", "-p", &change]),
    )
    .unwrap();
}

#[test]
fn what_a_cluster_may_not_ask_for_is_refused_at_the_door_and_by_the_operator() {
    let (plane, kubeconfig) = installed(Kubernetes::Newest, "windlass.yaml");
    let objects = described(NAMESPACE, &new_key(&plane));
    apply(&mut plane.kubectl(), plane.dir(), &objects);
    let with = |field: &str, value: &Value| {
        let mut objects = objects.clone();
        *spec_of(&mut objects, field) = value.clone();
        objects
    };

    let asked = [
        ("/image", json!("registry/ok-evil"), "--allow-image"),
        (
            "/runner/image",
            json!("registry/ok/../evil"),
            "--allow-image",
        ),
        ("/runner/hostNetwork", json!(true), "--allow-host-network"),
        (
            "/runner/placement",
            json!({"priorityClassName": "high"}),
            "--allow-priority-class",
        ),
        (
            "/runner/placement",
            json!({"runtimeClassName": "other"}),
            "--allow-runtime-class",
        ),
        (
            "/runner/placement",
            json!({"tolerations": [{"operator": "Exists"}]}),
            "--allow-toleration",
        ),
        (
            "/runner/volumeClaimTemplate",
            json!({"storageClassName": "fast"}),
            "--allow-storage-class",
        ),
        (
            "/runner/volumeClaimTemplate",
            json!({"spec": {"volumeName": "of-another"}}),
            "volumeName",
        ),
        (
            "/runner/volumeClaimTemplate",
            json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "fast"}}}),
            "volumeClaimTemplate.metadata.annotations",
        ),
    ];
    widen(&plane, "images", "registry/ok, other");
    // A policy is in force some time after it is there, and so is a change of its bounds.
    let door = |objects: &[Value]| tried(&plane, objects);
    wait_until("the door to know its bounds", LIMIT, || {
        let shut = door(&with("/runner/hostNetwork", &json!(true))).is_err();
        let open = door(&with("/image", &json!("registry/ok/windlass:v1"))).is_ok();
        Ok((shut && open).then_some(()))
    })
    .unwrap();
    for (field, value, flag) in &asked {
        let said = door(&with(field, value)).unwrap_err();
        assert!(
            said.contains(flag) && said.contains("windlass-bounds"),
            "{field}: {said}"
        );
    }
    for image in [
        "registry/ok",
        "registry/ok@sha256:00",
        "other:v1",
        "windlass:v0.1.0",
    ] {
        let taken = door(&with("/runner/image", &json!(image)));
        assert!(taken.is_ok(), "{image}: {taken:?}");
    }
    let free = json!({"nodeSelector": {"a": "b"}, "affinity": {}, "priorityClassName": ""});
    assert!(door(&with("/runner/placement", &free)).is_ok());
    let path = [
        "get",
        "validatingadmissionpolicy",
        "windlass-bounds",
        "-o",
        "json",
    ];
    let policy: Value = serde_json::from_str(&output(plane.kubectl().args(path)).unwrap()).unwrap();
    let warned = &policy["status"]["typeChecking"]["expressionWarnings"];
    assert!(warned.is_null(), "{warned:#}");

    // Somebody takes the door away: the operator holds the bounds by itself, before there is a run.
    let delete = [
        "delete",
        "validatingadmissionpolicybinding",
        "windlass-bounds",
    ];
    output(plane.kubectl().args(delete)).unwrap();
    let denied = with("/runner/hostNetwork", &json!(true));
    wait_until("the door to be open", LIMIT, || Ok(door(&denied).ok())).unwrap();
    apply(&mut plane.kubectl(), plane.dir(), &denied);
    let operator = Replica::start(&plane, &kubeconfig, "operator", &[]).unwrap();
    condition(&|| plane.kubectl(), NAMESPACE, "Stalled", "True");
    let cluster = get(&mut plane.kubectl(), NAMESPACE, "clusters")
        .pop()
        .unwrap();
    let told = cluster["status"]["conditions"].to_string();
    assert!(told.contains("--allow-host-network"), "{told}");
    for kind in ["runs", "jobs"] {
        assert!(get(&mut plane.kubectl(), NAMESPACE, kind).is_empty());
    }
    // What is asked for no more stands in nobody's way.
    apply(&mut plane.kubectl(), plane.dir(), &objects);
    wait_until("a Job", LIMIT, || {
        Ok(get(&mut plane.kubectl(), NAMESPACE, "jobs").pop())
    })
    .unwrap();

    // Nor does a run get another Job that was planned before.
    apply(&mut plane.kubectl(), plane.dir(), &denied);
    condition(&|| plane.kubectl(), NAMESPACE, "Stalled", "True");
    let delete = ["-n", NAMESPACE, "delete", "jobs", "--all"];
    output(plane.kubectl().args(delete)).unwrap();
    wait_until("the run to tell why it has no runner", LIMIT, || {
        let run = get(&mut plane.kubectl(), NAMESPACE, "runs").pop().unwrap();
        let told = run["status"]["conditions"].to_string();
        Ok(
            (told.contains("RunnerNotCreated") && told.contains("--allow-host-network"))
                .then_some(()),
        )
    })
    .unwrap();
    assert!(get(&mut plane.kubectl(), NAMESPACE, "jobs").is_empty());
    assert!(!operator.process.said().contains("orbidden"));
}

/// What becomes of these objects, without a change.
fn tried(plane: &ControlPlane, objects: &[Value]) -> Result<(), String> {
    let mut kubectl = plane.kubectl();
    let trial = applying(&mut kubectl, plane.dir(), objects).arg("--dry-run=server");
    let answer = trial.output().unwrap();
    if answer.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&answer.stderr).into_owned())
    }
}
