//! A cluster that somebody else has built is taken over as it stands, and operations follow as on any other.

use api::{
    Cluster,
    cluster::ClusterState,
    run::{Action, Run},
};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use kubespray::{
    Layout,
    inputs::Inputs,
    preview::{self, PreviewOutcome},
    request::{CONVERGE, RECOVER},
};
use serde_json::json;

use crate::world::{BUNDLE, World, is};

impl World {
    /// The objects of a cluster that was adopted.
    async fn adopted(&self) {
        self.three_nodes().await;
        let cluster = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "annotations": {"kubespray.k8s.io/adopted": "true"}},
            "spec": {"kubernetesVersion": "1.34.4", "kubespray": {"source": {"path": BUNDLE}}},
        });
        self.apply::<Cluster>("first", cluster).await;
    }
}

/// The playbooks that a run executes.
fn playbooks(run: &Run) -> Vec<String> {
    let steps = run.spec.plan.steps.iter();
    let plays = steps.filter_map(kubespray::action::play_of);
    plays.map(|play| play.playbook).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_looked_at_and_counts_as_built() {
    let world = World::start().await;
    world.adopted().await;
    let run = world.run_until(1).await.remove(0);
    assert_eq!(run.name_any(), "first-adopt-1");
    assert_eq!(playbooks(&run), [""; 0]);
    let asks = |step: &api::run::Step| matches!(step.action, Action::Approve(_));
    assert!(!run.spec.plan.steps.iter().any(asks));
    world.run_status(&run, json!({"phase": "Running"})).await;
    let adopting = world.state(ClusterState::Adopting).await;
    assert!(is(&adopting, "Reconciling", "Adopting"));
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    let built = world.state(ClusterState::Created).await;
    let status = built.status.clone().unwrap();
    assert_eq!(status.kubernetes_version, "1.34.4".parse().ok());

    // The playbooks would be given what the cluster was adopted with, and nothing else.
    let data = tempfile::tempdir().unwrap();
    let asked = (CONVERGE, "now");
    let layout = Layout::new(data.path());
    let preview = preview::asked(&world.client, &built, asked, &layout).await;
    let preview = preview.unwrap();
    assert_eq!(preview.changes, [""; 0]);
    assert!(matches!(preview.outcome, PreviewOutcome::Plan(_)));

    world.node("worker-3", "worker", "10.0.0.4").await;
    world.run_until(2).await;
    let scale = world.run_named("first-scale-2").await;
    assert!(!playbooks(&scale).is_empty());
    world
        .run_status(&scale, json!({"phase": "Succeeded"}))
        .await;
    world.state(ClusterState::Created).await;
    world.delete::<api::ClusterNode>("worker-2").await;
    world.run_until(3).await;
    world.run_named("first-remove-3").await;
}

/// Where its API is lost, and the objects of its own Windlass with it: what asks etcd or the API cannot be proved, and a person skips it.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_over_by_skips_alone_can_be_recovered() {
    let world = World::start().await;
    world.node("master-2", "master", "10.0.0.12").await;
    world.node("master-3", "master", "10.0.0.13").await;
    world.adopted().await;
    let run = world.run_until(1).await.remove(0);
    let steps = run.spec.plan.steps.iter();
    let skipped: Vec<_> = steps
        .map(|step| json!({"id": step.id, "phase": "Skipped"}))
        .collect();
    world
        .run_status(&run, json!({"phase": "Succeeded", "steps": skipped}))
        .await;
    world.state(ClusterState::Created).await;
    let asked = json!({"at": "1", "confirm": "first", "giveUp": ["master-1", "master-2"]});
    let patch = json!({"metadata": {"annotations": {RECOVER: asked.to_string()}}});
    let clusters = world.all::<Cluster>();
    clusters
        .patch("first", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    world.run_until(2).await;
    let recover = world.run_named("first-recover-2").await;
    let inputs = Inputs::from_map(&recover.spec.plan.inputs).unwrap();
    let order = &inputs.inventory.order;
    assert_eq!(order["etcd"], ["master-3".parse().unwrap()]);
}

/// A run that was refused is planned anew once the objects say what the cluster says.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_named_wrongly_is_corrected_in_its_object() {
    let world = World::start().await;
    world.adopted().await;
    let run = world.run_until(1).await.remove(0);
    let failure = json!({"class": "External", "code": "MembersDiffer", "message": "the member at master-1 is called m1", "targets": []});
    world
        .run_status(
            &run,
            json!({"phase": "Failed", "step": "adopt/members", "failure": failure}),
        )
        .await;
    world.state(ClusterState::Failed).await;
    let node = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode", "metadata": {"name": "master-1"},
        "spec": {"type": "master", "inventory": {"ansible_host": "10.0.0.1", "etcd_member_name": "m1"}},
    });
    world.apply::<api::ClusterNode>("master-1", node).await;
    world.run_until(2).await;
    world.run_named("first-adopt-2").await;
}
