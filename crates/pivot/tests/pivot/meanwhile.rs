//! What others do on a side while a move is at work.

use http::Method;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    assert_moved, assert_untouched,
    sides::{HERE, How, INFRASTRUCTURE, Of, Stop, TEAM, THERE, patience},
    snapshot::{bare, snapshot},
    world::{api, install, make, raise_small},
};

const CORE: &str = "cluster.x-k8s.io";

/// Right before the first Machine is made there.
const AT_A_COPY: Of = Of(THERE, Method::POST, "/machines");

async fn patch(client: &kube::Client, kind: &str, name: &str, patch: Value) {
    let api = api(client, CORE, kind, Some(TEAM));
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

/// How a move ended that could not: what was left, and why.
fn undone(moved: pivot::Result<relocation::Summary>) -> (String, String) {
    match moved.unwrap_err() {
        pivot::Error::Undone { left, source } => (left, source.to_string()),
        other => unreachable!("it had to be taken back: {other}"),
    }
}

/// Whether a Cluster is paused, and was by a move.
async fn is_paused(client: &kube::Client) -> (bool, bool) {
    let cluster = api(client, CORE, "Cluster", Some(TEAM))
        .get("c")
        .await
        .unwrap();
    let is_own = kube::ResourceExt::annotations(&cluster).contains_key("windlass.dev/pivot-paused");
    (cluster.data["spec"]["paused"] == true, is_own)
}

#[tokio::test]
async fn a_cluster_that_somebody_lets_go_on_here_never_acts_there() {
    let (sides, _) = crate::small_sides().await;
    let moved = sides
        .carry_over_and(AT_A_COPY, async || {
            let go_on = json!({"spec": {"paused": false}});
            patch(&sides.here(), "Cluster", "c", go_on).await;
        })
        .await;
    let (left, why) = undone(moved);
    assert!(left.starts_with("taken back"), "{left}");
    assert!(
        why.contains("Cluster/c was let go on by somebody while it was moved"),
        "{why}"
    );
    assert_eq!(is_paused(&sides.here()).await, (false, false));
    assert!(bare(&snapshot(&sides.there()).await).is_empty());
}

#[tokio::test]
async fn an_abort_beside_a_running_move_leaves_everything_here_and_nothing_there() {
    let at_the_pause = Of(HERE, Method::PATCH, "/clusters/c");
    let at_the_last_copies = Of(THERE, Method::POST, "/clusterresourcesetbindings");
    for write in [at_the_pause, AT_A_COPY, at_the_last_copies] {
        let when = format!("aborted at {write:?}");
        let (sides, before) = crate::small_sides().await;
        let abort = async || drop(sides.take_back().await.unwrap());
        let moved = sides.carry_over_and(write, abort).await;
        let (left, _) = undone(moved);
        assert!(
            left.contains("another command ended the move"),
            "{when}: {left}"
        );
        assert_untouched(&sides, &before, &when).await;
    }
}

/// Deletes an object that is held by nobody then.
async fn delete(client: &kube::Client, group: &str, kind: &str, name: &str) {
    let api = api(client, group, kind, Some(TEAM));
    let let_go = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let parameters = PatchParams::default();
    api.patch(name, &parameters, &let_go).await.unwrap();
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

/// The machine that the control plane has.
async fn delete_machine(client: &kube::Client) {
    for (group, kind) in [
        ("", "Secret"),
        ("bootstrap.cluster.x-k8s.io", "KubeadmConfig"),
        (INFRASTRUCTURE, "DevMachine"),
        (CORE, "Machine"),
    ] {
        delete(client, group, kind, "c-cp-a").await;
    }
}

/// Sides of a move that was given up without a look at the other one.
async fn given_up() -> crate::Sides {
    let (sides, _) = crate::small_sides().await;
    let stop = Stop::of(Of(HERE, Method::PUT, "/windlass-pivot"), How::KilledBefore);
    assert!(sides.carry_over_until(&stop).await.is_none());
    let here = sides.side_here().await;
    pivot::take_back(&here, None, patience(), &|_| {})
        .await
        .unwrap();
    sides
}

#[tokio::test]
async fn copies_of_what_is_gone_here_do_not_come_to_life() {
    let sides = given_up().await;
    let there = bare(&snapshot(&sides.there()).await);
    assert!(there.contains_key("Machine/c-cp-a"), "it was copied");
    delete_machine(&sides.here()).await;
    // One of the same name is another one.
    delete(&sides.here(), "", "Secret", "c-ca").await;
    let data = json!({"data": {"tls.key": "eQ=="}});
    make(&sides.here(), "", "Secret", "c-ca", None, data).await;
    let before = snapshot(&sides.here()).await;
    assert!(!before.contains_key("Machine/c-cp-a"));
    sides.carry_over().await.unwrap();
    assert_moved(&sides, &before, "after a move that was given up").await;
}

#[tokio::test]
async fn what_goes_here_while_it_is_copied_goes_there_too() {
    let (sides, mut before) = crate::small_sides().await;
    let at_the_last_copies = Of(THERE, Method::POST, "/clusterresourcesetbindings");
    let moved = sides
        .carry_over_and(at_the_last_copies, async || {
            delete_machine(&sides.here()).await;
        })
        .await;
    moved.unwrap();
    for gone in ["Secret", "KubeadmConfig", "DevMachine", "Machine"] {
        before.remove(&format!("{gone}/c-cp-a"));
    }
    assert_moved(&sides, &before, "with a machine less").await;
}

#[tokio::test]
async fn a_copy_that_acts_is_refused_although_its_original_is_gone() {
    let (sides, _) = crate::small_sides().await;
    let status = json!({
        "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true},
        "conditions": [{"type": "ControlPlaneInitialized", "status": "True"}],
    });
    let other = json!({"status": status});
    make(&sides.here(), CORE, "Cluster", "d", None, other).await;
    let stop = Stop::of(Of(HERE, Method::PUT, "/windlass-pivot"), How::KilledBefore);
    assert!(sides.carry_over_until(&stop).await.is_none());
    let here = sides.side_here().await;
    let back = pivot::take_back(&here, None, patience(), &|_| {});
    back.await.unwrap();
    delete(&sides.here(), CORE, "Cluster", "d").await;
    let go_on = json!({"spec": {"paused": null}});
    patch(&sides.there(), "Cluster", "d", go_on).await;
    let before = snapshot(&sides.here()).await;
    let error = sides.carry_over().await.unwrap_err();
    assert!(matches!(error, pivot::Error::Refused(_)), "{error:?}");
    let error = error.to_string();
    assert!(
        error.contains("Cluster/d spec.paused: its copy there was let go on"),
        "{error}"
    );
    assert_eq!(snapshot(&sides.here()).await, before);
    assert!(bare(&snapshot(&sides.there()).await).contains_key("Cluster/d"));
}

/// Right before the first object here is deleted for good.
const AT_THE_DELETION: Of = Of(HERE, Method::DELETE, "");

#[tokio::test]
async fn what_changed_here_after_the_point_of_no_return_is_not_deleted() {
    let (sides, before) = crate::small_sides().await;
    let (here, there) = (sides.here(), sides.there());
    let stop = Stop::of(AT_THE_DELETION, How::KilledBefore);
    assert!(sides.carry_over_until(&stop).await.is_none());
    // Somebody's automation writes what it knows, and controllers work on.
    let go_on = json!({"spec": {"paused": false}});
    patch(&here, "Cluster", "c", go_on).await;
    let replicas = json!({"spec": {"replicas": 5}});
    patch(&here, "MachineDeployment", "c-md", replicas.clone()).await;
    let left = snapshot(&here).await.len();
    let error = sides.carry_over().await.unwrap_err().to_string();
    assert!(
        error.contains("MachineDeployment/c-md spec: it was changed here"),
        "{error}"
    );
    assert_eq!(snapshot(&here).await.len(), left, "nothing is deleted");
    assert_eq!(is_paused(&here).await, (true, true), "it works on");
    patch(&there, "MachineDeployment", "c-md", replicas.clone()).await;
    sides.carry_over().await.unwrap();
    let mut expected = before;
    expected.get_mut("MachineDeployment/c-md").unwrap()["spec"] = replicas["spec"].clone();
    assert_moved(&sides, &expected, "with what was changed").await;
}

#[tokio::test]
async fn nothing_more_is_deleted_once_somebody_lets_a_cluster_go_on() {
    let (sides, before) = crate::small_sides().await;
    let here = sides.here();
    let moved = sides
        .carry_over_and(AT_THE_DELETION, async || {
            patch(&here, "Cluster", "c", json!({"spec": {"paused": null}})).await;
        })
        .await;
    let error = moved.unwrap_err().to_string();
    assert!(
        error.contains("Cluster/c was let go on by somebody while what was moved is deleted"),
        "{error}"
    );
    let left = snapshot(&here).await;
    assert!(left.contains_key("MachineSet/c-md-1") && left.contains_key("Machine/c-cp-a"));
    sides.carry_over().await.unwrap();
    assert_moved(&sides, &before, "paused once more").await;
}

#[tokio::test]
async fn an_original_that_is_written_while_it_goes_is_compared_once_more() {
    let (sides, _) = crate::small_sides().await;
    let here = sides.here();
    let at_its_deletion = Of(HERE, Method::PATCH, "/machinedeployments/c-md");
    let moved = sides
        .carry_over_and(at_its_deletion, async || {
            patch(
                &here,
                "MachineDeployment",
                "c-md",
                json!({"spec": {"replicas": 5}}),
            )
            .await;
        })
        .await;
    let error = moved.unwrap_err().to_string();
    assert!(error.contains("MachineDeployment/c-md spec: "), "{error}");
    let held = snapshot(&here).await["MachineDeployment/c-md"]["metadata"]["finalizers"].clone();
    assert_eq!(held, json!(["cluster/md"]), "it is held as before");
}

/// Deletes an object that its controller still holds.
async fn ask_to_delete(client: &kube::Client, kind: &str, name: &str) {
    let api = api(client, CORE, kind, Some(TEAM));
    drop(api.delete(name, &DeleteParams::default()).await.unwrap());
}

#[tokio::test]
async fn what_somebody_deletes_while_it_is_copied_is_still_being_deleted() {
    let (sides, _) = crate::small_sides().await;
    let here = sides.here();
    let deletes = async || ask_to_delete(&here, "Machine", "c-cp-a").await;
    let (left, why) = undone(sides.carry_over_and(AT_A_COPY, deletes).await);
    assert!(left.starts_with("taken back"), "{left}");
    assert!(
        why.contains("Machine/c-cp-a metadata.deletionTimestamp: it is being deleted"),
        "{why}"
    );
    let machine = snapshot(&here).await["Machine/c-cp-a"].clone();
    let metadata = &machine["metadata"];
    assert!(metadata["deletionTimestamp"].is_string());
    assert_eq!(metadata["finalizers"], json!(["machine.cluster.x-k8s.io"]));
    assert_eq!(is_paused(&here).await, (false, false));
    assert!(bare(&snapshot(&sides.there()).await).is_empty());
}

#[tokio::test]
async fn what_somebody_deletes_after_the_point_of_no_return_is_told() {
    let (sides, before) = crate::small_sides().await;
    let here = sides.here();
    let deletes = async || ask_to_delete(&here, "MachineSet", "c-md-1").await;
    let moved = sides
        .carry_over_and(AT_THE_DELETION, deletes)
        .await
        .unwrap();
    let warnings = moved.warnings.join("\n");
    assert!(
        warnings.contains("MachineSet/c-md-1 was being deleted by somebody when it left"),
        "{warnings}"
    );
    assert_moved(&sides, &before, "although it was being deleted").await;
}

#[tokio::test]
async fn a_machine_that_comes_before_everything_is_paused_is_not_moved_half_made() {
    let sides = crate::Sides::start().await;
    let here = sides.here();
    let set = raise_small(&here).await;
    install(&sides.there(), "v0.3.0").await;
    // After the checks, before the pause.
    for (write, name) in [
        (Of(HERE, Method::POST, "/configmaps"), "early"),
        (AT_A_COPY, "late"),
    ] {
        let spec = json!({"spec": {"clusterName": "c"}});
        let comes = async || drop(make(&here, CORE, "Machine", name, Some(&set), spec).await);
        let (left, why) = undone(sides.carry_over_and(write, comes).await);
        assert!(left.starts_with("taken back"), "{left}");
        let half_made = format!("Machine/{name} status.nodeRef: its node has not joined");
        assert!(why.contains(&half_made), "{why}");
        assert_eq!(is_paused(&here).await, (false, false));
        assert!(bare(&snapshot(&sides.there()).await).is_empty());
        delete(&here, CORE, "Machine", name).await;
    }
}
