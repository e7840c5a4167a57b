use std::time::Duration as StdDuration;

use api::{Duration, run::OnFailure};

use super::*;
use crate::hooks::{Kind, Side};

fn hook(image: Value) -> (HookInput, HookImage) {
    let image: HookImage = from_value(image).unwrap();
    let input = HookInput {
        name: "check".into(),
        side: Side::After,
        step: "kubeconfig/store".into(),
        operations: Vec::new(),
        hosts: Vec::new(),
        kind: Kind::Image,
        text: String::new(),
        image: Some(image.clone()),
        timeout: Duration::from_seconds(60),
        on_failure: OnFailure::Fail,
    };
    (input, image)
}

fn told() -> Told {
    Told {
        variables: BTreeMap::from([("WINDLASS_HOOK", "check".to_owned())]),
        name: "check-0123456789ab".into(),
        run: "first-create-1".into(),
    }
}

#[test]
fn a_pod_has_few_rights_and_what_it_is_told_is_no_template() {
    let (input, image) = hook(json!({
        "name": "a/b:1", "command": ["sh", "-c"], "args": ["echo $HOME $(HOSTNAME)"],
        "env": [{"name": "A", "value": "$(B)"}],
    }));
    let host: HostName = "worker-1".parse().unwrap();
    let pod = |host: Option<&HostName>| {
        serde_json::to_value(super::pod((&input, &image), &told(), host)).unwrap()
    };
    let there = pod(Some(&host));
    let spec = &there["spec"];
    assert_eq!(there["metadata"]["namespace"], NAMESPACE);
    assert_eq!(spec["nodeName"], "worker-1");
    assert_eq!(spec["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["activeDeadlineSeconds"], 60);
    assert_eq!(spec["restartPolicy"], "Never");
    assert!(spec["hostNetwork"].is_null() && spec["volumes"].is_null());
    let container = &spec["containers"][0];
    assert_eq!(container["args"], json!(["echo $$HOME $$(HOSTNAME)"]));
    assert_eq!(
        container["env"],
        json!([{"name": "WINDLASS_HOOK", "value": "check"}, {"name": "A", "value": "$$(B)"}])
    );
    let context = &container["securityContext"];
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));

    let anywhere = pod(None);
    assert!(anywhere["spec"]["nodeName"].is_null());
    assert_eq!(
        anywhere["spec"]["tolerations"][0]["key"],
        "node-role.kubernetes.io/control-plane"
    );
}

#[test]
fn the_network_of_a_node_has_a_namespace_of_its_own() {
    let (input, image) = hook(json!({"name": "a", "hostNetwork": true}));
    let pod = super::pod((&input, &image), &told(), None);
    assert_eq!(pod.namespace().unwrap(), ON_HOSTS);
    let enforced = |name: &str| {
        let labels = namespace_of(name).metadata.labels.unwrap();
        labels["pod-security.kubernetes.io/enforce"].clone()
    };
    assert_eq!(enforced(NAMESPACE), "baseline");
    assert_eq!(enforced(ON_HOSTS), "privileged");
}

#[test]
fn a_pod_says_how_it_stands() {
    let waiting = |reason: &str, message: &str| {
        json!({"phase": "Pending", "containerStatuses": [{
            "name": "hook", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": message}},
        }]})
    };
    let ended = |code: i32, reason: &str| {
        json!({"phase": "Failed", "containerStatuses": [{
            "name": "hook", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code, "reason": reason}},
        }]})
    };
    let unscheduled = json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"},
    ]});
    let mut pull = None;
    let mut told = |status: &Value| {
        let pod: Pod = from_value(json!({"metadata": {}, "status": status})).unwrap();
        match stand(&pod, &mut pull) {
            Stand::Waits(why) => format!("waits: {why}"),
            Stand::Ended(Ok(())) => "done".to_owned(),
            Stand::Ended(Err(End::Late)) => "late".to_owned(),
            Stand::Ended(Err(End::Failed(why))) => format!("failed: {why}"),
        }
    };
    for (status, expected) in [
        (json!({"phase": "Succeeded"}), "done"),
        (ended(3, "Error"), "failed: exit code 3"),
        (ended(137, "OOMKilled"), "failed: exit code 137 (OOMKilled)"),
        (
            json!({"phase": "Failed", "reason": "DeadlineExceeded"}),
            "late",
        ),
        (
            json!({"phase": "Failed", "reason": "Evicted", "message": "the node was low on disk"}),
            "failed: Evicted: the node was low on disk",
        ),
        (
            waiting("ContainerCreating", ""),
            "waits: ContainerCreating:",
        ),
        (
            waiting("InvalidImageName", "no"),
            "failed: InvalidImageName: no",
        ),
        (
            waiting("ErrImagePull", "manifest unknown"),
            "waits: ErrImagePull: manifest unknown",
        ),
        // Which says no more why.
        (
            waiting("ImagePullBackOff", "Back-off pulling image"),
            "failed: ErrImagePull: manifest unknown",
        ),
        (
            unscheduled,
            "waits: no node takes its pod: 0/1 nodes are available",
        ),
        (json!({}), "waits: its pod waits for its node"),
    ] {
        assert_eq!(told(&status).trim(), expected, "{status}");
    }
}

#[test]
fn an_image_that_is_missing_is_told_as_that() {
    let end = End::Failed("ErrImagePull: manifest unknown: a/b:1".into());
    let failure = end.told("worker-1", "");
    assert_eq!(failure.code, "ImageMissing");
    assert!(failure.message.starts_with("worker-1: "), "{failure:?}");
    assert_eq!(End::Late.told("worker-1", "").code, "TimedOut");
    let failure = End::Failed("exit code 3".into()).told("worker-1", "no licence");
    assert_eq!(failure.message, "worker-1: exit code 3: no licence");
}

fn there(uid: &str, deleted: bool) -> Pod {
    let deleted = deleted.then_some("2026-01-01T00:00:00Z");
    from_value(json!({"metadata": {
        "name": "check", "namespace": NAMESPACE, "uid": uid, "deletionTimestamp": deleted,
        "annotations": {RUN: "first-create-1"},
    }}))
    .unwrap()
}

#[test]
fn the_pod_that_was_seen_first_is_the_pod_of_the_step() {
    let (first, ending, other) = (there("1", false), there("1", true), there("2", false));
    let told = |uid: &mut Option<String>, found| match seen(uid, found) {
        Seen::There(_) => "there",
        Seen::Missing => "missing",
        Seen::Ending => "ending",
        Seen::Lost(why) => why,
    };
    let mut uid = None;
    assert_eq!(told(&mut uid, None), "missing");
    // Of an attempt before.
    assert_eq!(told(&mut uid, Some(&ending)), "ending");
    assert_eq!(told(&mut uid, Some(&first)), "there");
    assert_eq!(told(&mut uid, Some(&first)), "there");
    assert_eq!(told(&mut uid, Some(&ending)), "ending");
    assert_eq!(told(&mut uid, Some(&other)), "somebody replaced its pod");
    assert_eq!(told(&mut uid, None), "somebody deleted its pod");
    assert_eq!(uid.as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn the_api_refuses_for_good_when_it_does_so_in_a_row() {
    let wait = async |seconds| tokio::time::advance(StdDuration::from_secs(seconds)).await;
    let mut refusals = Refusals::default();
    wait(60).await;
    assert!(!refusals.are_final(true));
    wait(29).await;
    assert!(!refusals.are_final(true));
    // It took a pod, or was away.
    assert!(!refusals.are_final(false));
    wait(29).await;
    assert!(!refusals.are_final(true));
    wait(31).await;
    assert!(refusals.are_final(true));
}

#[test]
fn an_api_that_is_away_refuses_nothing() {
    for (code, refused) in [
        (403, true),
        (404, true),
        (422, true),
        (408, false),
        (429, false),
        (500, false),
        (503, false),
        (504, false),
    ] {
        let status = kube::core::Status::failure("no", "No").with_code(code);
        let told = pods::trouble(&kube::Error::Api(status.boxed()));
        assert_eq!(matches!(told, Trouble::Refused(_)), refused, "{code}");
    }
}

#[test]
fn pods_of_other_runs_are_told_from_those_of_this_one() {
    let pod = there("1", false);
    assert!(!pods::is_of_other_run(&pod, "first-create-1"));
    assert!(pods::is_of_other_run(&pod, "first-upgrade-2"));
    assert!(!pods::is_of_other_run(&there("1", true), "first-upgrade-2"));
}

#[test]
fn pods_that_may_be_left_are_named() {
    let left: Vec<_> = (0..7)
        .map(|pod| format!("windlass-hooks/check-{pod}"))
        .collect();
    let StepOutcome::Succeeded { detail, .. } = telling(succeeded(None), &left) else {
        panic!("no success");
    };
    let detail = detail.unwrap();
    assert!(
        detail.contains("check-0, ") && detail.ends_with("check-4, 2 more"),
        "{detail}"
    );
    let outcome = telling(failed(failure_of_text("no")), &left[..1]);
    let StepOutcome::Failed { failure, .. } = outcome else {
        panic!("no failure");
    };
    assert_eq!(
        failure.message,
        "no (pods that may be left: windlass-hooks/check-0)"
    );
    let StepOutcome::Succeeded { detail, .. } = telling(succeeded(None), &[]) else {
        panic!("no success");
    };
    assert_eq!(detail, None);
}
