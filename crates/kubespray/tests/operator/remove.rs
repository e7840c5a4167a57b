//! A ClusterNode that is deleted is held until its host is no part of the cluster any more.

use std::time::Duration;

use api::{
    ClusterNode, HostName, Run,
    cluster::{ClusterState, Pending},
    node::NodeState,
    run::Plan,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
    runtime::wait::await_condition,
};
use kubespray::{
    Layout,
    inputs::Inputs,
    names::NODE_FINALIZER,
    operation::converge,
    preview::{self, PreviewOutcome},
    request::{FORCE_REMOVAL, START_AGAIN},
};
use serde_json::{Value, json};

use crate::{
    scale::targets,
    world::{World, condition, is},
};

impl World {
    pub async fn node_held(&self, name: &str) {
        self.node_until(name, |node| {
            node.is_some_and(|node| node.finalizers().iter().any(|held| held == NODE_FINALIZER))
        })
        .await;
    }

    /// Deletes the object of a host that somebody takes the finalizer of.
    pub async fn lose(&self, name: &str) {
        self.node_held(name).await;
        self.delete::<ClusterNode>(name).await;
        let bare = json!({"metadata": {"finalizers": null}});
        let (parameters, bare) = (PatchParams::default(), Patch::Merge(bare));
        let nodes = self.all::<ClusterNode>();
        nodes.patch(name, &parameters, &bare).await.unwrap();
        self.node_gone(name).await;
    }

    pub async fn node_gone(&self, name: &str) {
        self.node_until(name, |node| node.is_none()).await;
    }

    async fn node_until(&self, name: &str, wanted: impl Fn(Option<&ClusterNode>) -> bool) {
        let waiting = await_condition(self.all::<ClusterNode>(), name, wanted);
        let waiting = tokio::time::timeout(Duration::from_secs(20), waiting);
        waiting.await.unwrap().unwrap();
    }

    async fn annotate<K>(&self, name: &str, annotation: &str)
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        let patch = json!({"metadata": {"annotations": {annotation: "1"}}});
        let api = self.all::<K>();
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        api.patch(name, &parameters, &patch).await.unwrap();
    }

    /// The Remove run of the cluster, of whose nodes those are being deleted.
    async fn removing(&self, names: &[&str]) -> Run {
        for name in names {
            self.node_held(name).await;
        }
        for name in names {
            self.delete::<ClusterNode>(name).await;
        }
        self.run_until(2).await;
        self.run_named("first-remove-2").await
    }
}

fn action(run: &Run, step: &str) -> Value {
    let step = run.spec.plan.steps.iter().find(|known| known.id == step);
    serde_json::to_value(&step.unwrap().action).unwrap()["engine"]["parameters"].clone()
}

fn hosts(names: &[HostName]) -> Vec<&str> {
    names.iter().map(HostName::as_str).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_leaves_by_a_run_and_its_object_is_held_until_then() {
    let world = World::start().await;
    world.built().await;
    let run = world.removing(&["worker-1"]).await;
    assert_eq!(run.spec.operation, "Remove");
    let reason = run.spec.plan.reason.clone().unwrap();
    assert!(reason.contains("ClusterNode of worker-1"), "{reason}");
    assert!(reason.contains("2 nodes stay"), "{reason}");
    let steps: Vec<_> = run
        .spec
        .plan
        .steps
        .iter()
        .map(|step| step.id.as_str())
        .collect();
    let place = |id: &str| steps.iter().position(|step| *step == id).unwrap();
    assert!(place("drain/budgets") < place("drain/pods"));
    assert!(place("drain/pods") < place("remove/reset"));
    assert!(place("remove/forget") < place("forget/nodes"));
    assert_eq!(steps.last(), Some(&"health/check"));
    for id in &steps {
        let expected: &[&str] = match *id {
            "prepare/sandbox" => &[],
            "prepare/probe" | "health/check" => &["master-1"],
            _ => &["worker-1"],
        };
        assert_eq!(targets(&run, id), expected, "{id}");
    }
    let inputs = Inputs::from_map(&run.spec.plan.inputs).unwrap();
    assert_eq!(inputs.operation_variables["node"], "worker-1");
    assert_eq!(
        inputs.operation_variables["allow_ungraceful_removal"],
        false
    );
    assert_eq!(hosts(&inputs.leaving), ["worker-1"]);
    assert_eq!(hosts(&inputs.inventory.order["kube_node"]), ["worker-2"]);

    world.run_status(&run, json!({"phase": "Running"})).await;
    world.state(ClusterState::Removing).await;
    world.node_state("worker-1", NodeState::Removing).await;
    world.node_state("worker-2", NodeState::Joined).await;
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.node_gone("worker-1").await;
    let last = world.state(ClusterState::Created).await.status.unwrap();
    assert_eq!(last.last_operation.unwrap().operation, "Remove");
    assert_eq!(last.inventory.unwrap().order, inputs.inventory.order);

    // What joins later knows nothing of it.
    world.node("worker-3", "worker", "10.0.0.4").await;
    world.run_until(3).await;
    let scale = world.run_named("first-scale-3").await;
    let inputs = Inputs::from_map(&scale.spec.plan.inputs).unwrap();
    let names: Vec<_> = inputs.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["master-1", "worker-2", "worker-3"]);
    assert!(inputs.operation_variables.is_empty());
    assert!(inputs.leaving.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_its_drain_would_meet_is_asked_of_the_cluster_and_is_nothing_the_plan_needs() {
    let world = World::start().await;
    world.built().await;
    let data = tempfile::tempdir().unwrap();
    let layout = Layout::new(data.path());
    let cluster = world.all::<api::Cluster>().get("first").await.unwrap();
    let shown = async |leaving: &[ClusterNode]| {
        let next = preview::next(&world.client, &cluster, leaving, &layout);
        let mut next = next.await.unwrap();
        assert!(next.drains.is_empty());
        preview::foresee(&world.client, &mut next).await;
        next
    };
    let nothing = shown(&[]).await;
    assert!(matches!(nothing.outcome, PreviewOutcome::Nothing(_)));
    assert!(nothing.drains.is_empty());

    let mut leaving = world.all::<ClusterNode>().get("worker-1").await.unwrap();
    leaving.metadata.deletion_timestamp = Some(Time(Timestamp::now()));
    let removal = shown(&[leaving]).await;
    assert!(matches!(removal.outcome, PreviewOutcome::Plan(_)));
    let [told] = removal.drains.as_slice() else {
        panic!("{:?}", removal.drains);
    };
    assert!(told.contains("is not known"), "{told}");
    assert!(
        told.contains("Secret first-kubeconfig is not there"),
        "{told}"
    );
}

/// The plan that comes of it when these leave and that one is known to be down.
pub async fn planned(world: &World, leaving: &[&str], dead: &str) -> Plan {
    let data = tempfile::tempdir().unwrap();
    let cluster = world.all::<api::Cluster>().get("first").await.unwrap();
    let nodes = world.all::<ClusterNode>();
    let mut changed = Vec::new();
    for name in leaving {
        let mut leaving = nodes.get(name).await.unwrap();
        leaving.metadata.deletion_timestamp = Some(Time(Timestamp::now()));
        changed.push(leaving);
    }
    let mut dead = nodes.get(dead).await.unwrap();
    dead.status =
        serde_json::from_value(json!({"state": "Joined", "node": {"health": "HEALTH_ERR"}}))
            .unwrap();
    changed.push(dead);
    let layout = Layout::new(data.path());
    let next = preview::next(&world.client, &cluster, &changed, &layout);
    match next.await.unwrap().outcome {
        PreviewOutcome::Plan(plan) => *plan,
        other => panic!("nothing is removed: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_removal_does_not_wait_for_workers_on_which_nothing_is_done() {
    let world = World::start().await;
    world.built().await;
    let plan = planned(&world, &["worker-1"], "worker-2").await;
    let last = plan.steps.last().unwrap();
    assert_eq!(last.id, "health/check");
    assert_eq!(
        hosts(&kubespray::action::hosts_of(&plan, last)),
        ["master-1"]
    );
    let reason = plan.reason.as_deref().unwrap();
    assert!(!reason.contains("worker-2"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cluster_cannot_do_without_is_kept_and_said() {
    let world = World::start().await;
    world.built().await;
    for name in ["master-1", "worker-1", "worker-2"] {
        world.node_held(name).await;
    }
    world.delete::<ClusterNode>("master-1").await;
    let message = world.not_carried_out().await;
    assert!(
        message.contains("only host of the control plane"),
        "{message}"
    );
    assert!(message.contains("node keep master-1"), "{message}");
    world.node_state("master-1", NodeState::Joined).await;
    assert_eq!(world.run_until(1).await.len(), 1);

    // Of two workers one may go, and then the other one may not.
    world.delete::<ClusterNode>("worker-1").await;
    world.run_until(2).await;
    let run = world.run_named("first-remove-2").await;
    world.run_status(&run, json!({"phase": "Running"})).await;
    world.state(ClusterState::Removing).await;
    world.delete::<ClusterNode>("worker-2").await;
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.node_gone("worker-1").await;
    world
        .until("first", "says why", |cluster| {
            condition(cluster, "Stalled").is_some_and(|(_, _, why)| why.contains("no worker left"))
        })
        .await;
    assert_eq!(world.run_until(2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_a_clusternode_is_not_removed() {
    let world = World::start().await;
    world.built().await;
    world.node_held("worker-1").await;
    world.delete::<ClusterNode>("worker-2").await;
    let held = world.run_until(2).await;
    let run = held
        .iter()
        .find(|run| run.spec.operation == "Remove")
        .unwrap();
    world.run_status(run, json!({"phase": "Cancelled"})).await;
    let message = world.not_carried_out().await;
    assert!(message.contains("removal of host worker-2"), "{message}");
    assert!(message.contains(START_AGAIN), "{message}");
    world.lose("worker-2").await;
    world
        .until("first", "says it", |cluster| {
            condition(cluster, "Stalled")
                .is_some_and(|(_, _, why)| why.contains("has no ClusterNode"))
        })
        .await;
    assert_eq!(world.run_until(2).await.len(), 2);
    world.node("worker-2", "worker", "10.0.0.3").await;
    world
        .until("first", "is content", |cluster| {
            !is(cluster, "Stalled", "NotCarriedOut")
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_cancelled_stays_so_whatever_is_done_since() {
    let world = World::start().await;
    world.built().await;
    let run = world.removing(&["worker-2"]).await;
    world.run_status(&run, json!({"phase": "Cancelled"})).await;
    // Another host joins, and the plan of the removal would be another one.
    world.node("worker-3", "worker", "10.0.0.4").await;
    world.run_until(3).await;
    let scale = world.run_named("first-scale-3").await;
    world
        .run_status(&scale, json!({"phase": "Succeeded"}))
        .await;
    world.state(ClusterState::Created).await;
    let spec = json!({"runner": {"maxForks": 7}, "operations": {"remove": {"drainTimeout": "1m"}}});
    world.cluster("first", spec).await;
    let told = |cluster: &api::Cluster| {
        let seen = cluster.status.as_ref().unwrap().observed_generation;
        let mut pending = cluster.status.iter().flat_map(|status| &status.pending);
        seen == cluster.metadata.generation && pending.any(|one| one.reason == "RunCancelled")
    };
    world.until("first", "tells it", told).await;
    assert_eq!(world.run_until(3).await.len(), 3);
    world.annotate::<api::Cluster>("first", START_AGAIN).await;
    world.run_until(4).await;
    world.run_named("first-remove-4").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_failed_waits_and_one_by_force_is_another() {
    let world = World::start().await;
    world.built().await;
    let settings = json!({"operations": {"remove": {"drainTimeout": "90s", "maxRetries": 0}}});
    world.cluster("first", settings).await;
    let run = world.removing(&["worker-1"]).await;
    let drain = run
        .spec
        .plan
        .steps
        .iter()
        .find(|step| step.id == "drain/pods")
        .unwrap();
    assert_eq!(drain.timeout.unwrap().seconds(), 90);
    assert!(drain.retry.is_none());
    assert_eq!(action(&run, "drain/pods")["forced"], json!([]));
    let failure = json!({"class": "Config", "code": "BudgetForbids", "message": "shop/web stays", "targets": []});
    let failed = json!({"phase": "Failed", "failure": failure});
    world.run_status(&run, failed).await;
    let cluster = world.state(ClusterState::Failed).await;
    let message = condition(&cluster, "Stalled").unwrap().2;
    assert!(message.contains("retry first-remove-2"), "{message}");
    // New workers wait until that is decided.
    world.node("worker-3", "worker", "10.0.0.4").await;
    world
        .annotate::<ClusterNode>("worker-1", FORCE_REMOVAL)
        .await;
    world.run_until(3).await;
    let forced = world.run_named("first-remove-3").await;
    for step in ["drain/budgets", "drain/pods", "forget/nodes"] {
        assert_eq!(
            action(&forced, step)["forced"],
            json!(["worker-1"]),
            "{step}"
        );
    }
    let inputs = Inputs::from_map(&forced.spec.plan.inputs).unwrap();
    assert_eq!(inputs.operation_variables["allow_ungraceful_removal"], true);
    assert!(forced.spec.plan.reason.unwrap().contains("by force"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_no_part_of_a_cluster_is_let_go_of_at_once() {
    let world = World::start().await;
    world.node("worker-9", "worker", "10.0.0.9").await;
    world.delete::<ClusterNode>("worker-9").await;
    world.node_gone("worker-9").await;
    // One that another run was about to make part of it.
    world.built().await;
    world.node("worker-3", "worker", "10.0.0.4").await;
    world.run_until(2).await;
    let scale = world.run_named("first-scale-2").await;
    world.run_status(&scale, json!({"phase": "Running"})).await;
    world.node_held("worker-3").await;
    world.delete::<ClusterNode>("worker-3").await;
    world.run_status(&scale, json!({"phase": "Failed"})).await;
    world.node_gone("worker-3").await;
    world.state(ClusterState::Created).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_another_run_works_on_waits_behind_it_and_the_run_is_named() {
    let world = World::start().await;
    world.built().await;
    world.node_held("worker-2").await;
    world.ask(&converge::ASKED, "1").await;
    let answer = world.answer(&converge::ASKED, "1").await;
    assert_eq!(answer.run.as_deref(), Some("first-converge-2"));
    let run = world.run_named("first-converge-2").await;
    let works_on_it = |step: &str| targets(&run, step).contains(&"worker-2".to_owned());
    assert!(works_on_it("prepare/probe"));
    world.run_status(&run, json!({"phase": "Running"})).await;
    world.state(ClusterState::Converging).await;

    world.delete::<ClusterNode>("worker-2").await;
    let behind = |pending: &[Pending]| pending.iter().any(|one| one.reason == "BehindRun");
    let pending = world.pending("waits behind it", behind).await;
    let [removal] = pending.as_slice() else {
        panic!("{pending:?}");
    };
    assert_eq!(removal.operation, "Remove");
    assert_eq!(hosts(&removal.hosts), ["worker-2"]);
    assert_eq!(
        removal.message,
        "run first-converge-2 comes first, and is at work"
    );
    assert_eq!(world.run_until(2).await.len(), 2);
    world.node_held("worker-2").await;

    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.run_until(3).await;
    let remove = world.run_named("first-remove-3").await;
    let inputs = Inputs::from_map(&remove.spec.plan.inputs).unwrap();
    assert_eq!(hosts(&inputs.leaving), ["worker-2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_go_with_their_cluster() {
    let world = World::start().await;
    world.built().await;
    world
        .cluster("first", json!({"deletionPolicy": "Reset"}))
        .await;
    world.node_held("worker-1").await;
    // As `kubectl delete namespace` does it: in no order.
    world.delete::<ClusterNode>("worker-1").await;
    world.run_until(2).await;
    let remove = world.run_named("first-remove-2").await;
    world.run_status(&remove, json!({"phase": "Running"})).await;
    world.state(ClusterState::Removing).await;
    // What no run was ever to work on is not the cluster's to reset.
    world.node("worker-9", "worker", "10.0.0.99").await;
    world.delete::<api::Cluster>("first").await;
    let seen = |cluster: &api::Cluster| is(cluster, "Reconciling", "Deleting");
    world.until("first", "is being deleted", seen).await;
    world
        .run_status(&remove, json!({"phase": "Cancelled"}))
        .await;
    world.run_until(3).await;
    let reset = world.run_named("first-reset-3").await;
    let inputs = Inputs::from_map(&reset.spec.plan.inputs).unwrap();
    let names: Vec<_> = inputs.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["master-1", "worker-1", "worker-2"]);
    let reason = reset.spec.plan.reason.clone().unwrap();
    assert!(reason.contains("left alone: worker-9"), "{reason}");
    world
        .run_status(&reset, json!({"phase": "Succeeded"}))
        .await;
    world.until_gone("first").await;
    world.node_gone("worker-1").await;
}
