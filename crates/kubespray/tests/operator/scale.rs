//! New workers become part of a built cluster by themselves.

use api::{
    Cluster, ClusterNode, Run,
    cluster::ClusterState,
    node::NodeState,
    run::{RecordEvent, RunPhase},
};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use kubespray::{
    cluster::decision::Decision,
    inputs::Inputs,
    operation::converge,
    request::{CONVERGE, START_AGAIN},
};
use serde_json::json;

use crate::{
    past::{Past, days},
    world::{BUNDLE, World, condition, is},
};

const HEALTH: &str = "health/check";
const PROBE: &str = "prepare/probe";
const FACTS_OF_OTHERS: &str = "bootstrap/facts-of-others";

impl World {
    pub async fn node_state(&self, name: &str, state: NodeState) {
        let wanted = |node: Option<&ClusterNode>| {
            let status = node.and_then(|node| node.status.as_ref());
            status.is_some_and(|status| status.state == Some(state))
        };
        let nodes = self.all::<ClusterNode>();
        let waiting = kube::runtime::wait::await_condition(nodes, name, wanted);
        let waiting = tokio::time::timeout(std::time::Duration::from_secs(20), waiting);
        waiting.await.unwrap().unwrap();
    }

    pub async fn not_carried_out(&self) -> String {
        let stalled = |cluster: &Cluster| is(cluster, "Stalled", "NotCarriedOut");
        let cluster = self.until("first", "says what is missing", stalled).await;
        condition(&cluster, "Stalled").unwrap().2.to_owned()
    }
}

pub fn targets(run: &Run, step: &str) -> Vec<String> {
    let plan = &run.spec.plan;
    let step = plan.steps.iter().find(|known| known.id == step).unwrap();
    let groups = plan.groups.iter();
    let groups = groups.filter(|group| step.groups.contains(&group.name));
    let mut targets: Vec<_> = groups
        .flat_map(|group| group.targets.iter().map(ToString::to_string))
        .collect();
    targets.sort();
    targets
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_worker_joins_by_a_run_that_leaves_the_others_alone() {
    let world = World::start().await;
    world.built().await;
    // Asked for since: not what the new host is for.
    let later = json!({"nodes": {"all": {"deploy": {"extraVars": {"node_labels": {"a": "b"}}}}}});
    world.cluster("first", later).await;
    world.not_carried_out().await;
    world.node("worker-3", "worker", "10.0.0.4").await;

    world.run_until(2).await;
    let run = world.run_named("first-scale-2").await;
    assert_eq!(run.spec.operation, "Scale");
    let reason = run.spec.plan.reason.clone().unwrap();
    assert!(reason.starts_with("worker-3 is no part"), "{reason}");
    assert!(reason.contains("the 3 hosts"), "{reason}");
    let all = ["master-1", "worker-1", "worker-2", "worker-3"];
    for step in &run.spec.plan.steps {
        let works_on = targets(&run, &step.id);
        match step.id.as_str() {
            "prepare/sandbox" => assert!(works_on.is_empty()),
            PROBE | HEALTH => assert_eq!(works_on, all, "{}", step.id),
            FACTS_OF_OTHERS => assert_eq!(works_on, all[..3]),
            _ => {
                assert_eq!(works_on, ["worker-3"], "{}", step.id);
                let limited = serde_json::to_value(&step.action).unwrap();
                assert_eq!(
                    limited["engine"]["parameters"]["limited"], true,
                    "{limited}"
                );
            }
        }
    }
    let inputs = Inputs::from_map(&run.spec.plan.inputs).unwrap();
    assert!(inputs.variables.is_empty(), "{:?}", inputs.variables);
    let nodes = &inputs.inventory.order["kube_node"];
    assert_eq!(nodes.last().unwrap().as_str(), "worker-3");

    world.run_status(&run, json!({"phase": "Running"})).await;
    let scaling = world.state(ClusterState::Scaling).await;
    assert!(is(&scaling, "Reconciling", "Scaling"));
    let stored = scaling.status.unwrap().inventory.unwrap();
    assert_eq!(stored.run.as_deref(), Some("first-scale-2"));
    assert_eq!(stored.order, inputs.inventory.order);
    world.node_state("worker-3", NodeState::Probing).await;
    world.node_state("worker-2", NodeState::Joined).await;
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.node_state("worker-3", NodeState::Joined).await;
    let last = world.state(ClusterState::Created).await.status.unwrap();
    assert_eq!(last.last_operation.unwrap().operation, "Scale");
    // What was asked for before the host came still is.
    let message = world.not_carried_out().await;
    assert!(message.contains("changed variables"), "{message}");
    assert!(!message.contains("worker-3"), "{message}");
}

#[tokio::test]
async fn a_run_that_waits_for_a_person_ends_when_its_host_is_taken_back() {
    let manual = json!({"operations": {"scale": {"approval": "Manual"}}});
    let mut past = Past::new(manual, &["master", "worker"]).await;
    past.declare("worker", 3);
    let new = past.starts();
    past.ran(&new, "Waiting", days(0));
    // One that was declared since comes after it.
    past.declare("worker", 4);
    assert!(matches!(past.decision(), Decision::Maintain(..)));

    past.delete("worker-3");
    let Decision::Supersede(run, why) = past.decision() else {
        panic!("it waits still");
    };
    assert_eq!(run.name_any(), new.name);
    assert_eq!(why, "worker-3 was taken back");
    // What is asked for meanwhile is answered when that has ended.
    past.ask(CONVERGE, "1");
    let answer = converge::ASKED.answer(&past.cluster, &past.decision());
    assert!(answer.is_none(), "{answer:?}");
    past.cluster.annotations_mut().clear();
    past.gets_to("Superseded");
    let next = past.starts();
    let reason = next.plan.reason.as_deref().unwrap();
    assert!(reason.starts_with("worker-4 is no part"), "{reason}");
}

#[tokio::test]
async fn a_run_that_has_begun_comes_to_its_end_though_its_host_is_taken_back() {
    let mut past = Past::new(json!({}), &["master", "worker"]).await;
    past.declare("worker", 3);
    let new = past.starts();
    past.ran_by_steps(
        &new,
        "Waiting",
        days(0),
        &[("prepare/sandbox", "Succeeded"), (PROBE, "Waiting")],
    );
    past.delete("worker-3");
    assert!(matches!(past.decision(), Decision::Maintain(..)));
}

/// Whatever way a person asks: here as kubectl does, past every check of the command line.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_cluster_has_moved_on_is_not_taken_up_again() {
    let world = World::start().await;
    world.built().await;
    world.node("worker-3", "worker", "10.0.0.4").await;
    world.run_until(2).await;
    let failed = world.run_named("first-scale-2").await;
    let step = failed.spec.plan.steps[0].id.clone();
    let record = |sequence: u32, event: &str| json!({"sequence": sequence, "time": "2026-01-01T00:00:00Z", "event": event});
    let of_step = |sequence, event| {
        let mut record = record(sequence, event);
        record["step"] = json!(step);
        record["attempt"] = json!(1);
        record
    };
    let mut ended = of_step(3, "StepFailed");
    ended["failure"] = json!({"class": "External", "code": "Gate", "message": "m"});
    let history = json!([
        record(1, "RunStarted"),
        of_step(2, "StepStarted"),
        ended,
        record(4, "RunFailed")
    ]);
    world
        .run_status(&failed, json!({"phase": "Failed", "history": history}))
        .await;
    world.state(ClusterState::Failed).await;
    world.delete::<ClusterNode>("worker-3").await;
    world.node("worker-4", "worker", "10.0.0.5").await;
    world.run_until(3).await;
    let later = world.run_named("first-scale-3").await;
    world
        .run_status(&later, json!({"phase": "Succeeded"}))
        .await;
    world.node_state("worker-4", NodeState::Joined).await;
    let runs = world.all::<Run>();
    for (id, action) in [("1", "Retry"), ("2", "Skip")] {
        let request = json!({"id": id, "action": action, "step": step, "reason": "why not"});
        let patch = json!({"spec": {"control": {"requests": [request]}}});
        let parameters = PatchParams::default();
        runs.patch("first-scale-2", &parameters, &Patch::Merge(&patch))
            .await
            .unwrap();
        let answered = |run: Option<&Run>| {
            let status = run.and_then(|run| run.status.as_ref());
            status.is_some_and(|status| status.has_answered(id))
        };
        let waiting = kube::runtime::wait::await_condition(runs.clone(), "first-scale-2", answered);
        let waiting = tokio::time::timeout(std::time::Duration::from_secs(20), waiting);
        let status = waiting.await.unwrap().unwrap().unwrap().status.unwrap();
        assert_eq!(status.phase, RunPhase::Failed);
        let answer = status.history.last().unwrap();
        assert_eq!(answer.event, RecordEvent::RequestRefused, "{action}");
        let why = answer.detail.as_deref().unwrap();
        assert!(why.contains("run first-scale-3 has changed"), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_are_declared_while_one_joins_join_together_after_it() {
    let world = World::start().await;
    world.built().await;
    world.node("worker-3", "worker", "10.0.0.4").await;
    world.run_until(2).await;
    let first = world.run_named("first-scale-2").await;
    world.run_status(&first, json!({"phase": "Running"})).await;
    world.state(ClusterState::Scaling).await;
    world.node("worker-4", "worker", "10.0.0.5").await;
    world.node("worker-5", "worker", "10.0.0.6").await;
    // Converging waits for its turn too.
    world.ask(&converge::ASKED, "now").await;
    let refused = world.answer(&converge::ASKED, "now").await.refused.unwrap();
    assert!(refused.contains("first-scale-2"), "{refused}");
    world.node_state("worker-5", NodeState::Waiting).await;
    world
        .run_status(&first, json!({"phase": "Succeeded"}))
        .await;

    world.run_until(3).await;
    let second = world.run_named("first-scale-3").await;
    assert_eq!(targets(&second, "nodes/join"), ["worker-4", "worker-5"]);
    let inputs = Inputs::from_map(&second.spec.plan.inputs).unwrap();
    assert_eq!(inputs.hosts.len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_failed_waits_for_a_person_or_for_another_wish() {
    let world = World::start().await;
    world.built().await;
    world.node("worker-3", "worker", "10.0.0.4").await;
    world.run_until(2).await;
    let run = world.run_named("first-scale-2").await;
    let failure =
        json!({"class": "Config", "code": "X", "message": "no disk", "targets": ["worker-3"]});
    world
        .run_status(&run, json!({"phase": "Failed", "failure": failure}))
        .await;
    let failed = world.state(ClusterState::Failed).await;
    let message = condition(&failed, "Stalled").unwrap().2;
    assert!(
        message.contains("windlass -n demo retry first-scale-2"),
        "{message}"
    );
    world.node_state("worker-3", NodeState::Failed).await;
    world.node_state("worker-1", NodeState::Joined).await;

    // The host is taken back, and another one comes.
    world.delete::<ClusterNode>("worker-3").await;
    world.state(ClusterState::Created).await;
    assert_eq!(world.run_until(2).await.len(), 2);
    world.node("worker-4", "worker", "10.0.0.5").await;
    world.run_until(3).await;
    let next = world.run_named("first-scale-3").await;
    assert_eq!(targets(&next, "nodes/join"), ["worker-4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_cancelled_is_not_begun_again_by_itself() {
    let world = World::start().await;
    world.built().await;
    world.node("worker-3", "worker", "10.0.0.4").await;
    world.run_until(2).await;
    let run = world.run_named("first-scale-2").await;
    world.run_status(&run, json!({"phase": "Cancelled"})).await;
    let message = world.not_carried_out().await;
    assert!(message.contains("host worker-3"), "{message}");
    assert!(message.contains(START_AGAIN), "{message}");
    let again = json!({"metadata": {"annotations": {START_AGAIN: "1"}}});
    world
        .all::<Cluster>()
        .patch("first", &PatchParams::default(), &Patch::Merge(&again))
        .await
        .unwrap();
    let runs = world.run_until(3).await;
    assert!(runs.iter().any(|run| run.name_any() == "first-scale-3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_scaling_cannot_do_is_said_and_not_begun() {
    let world = World::start().await;
    world.built().await;
    world.node("reflector", "calico-rr", "10.0.0.4").await;
    let message = world.not_carried_out().await;
    assert!(message.contains("host reflector"), "{message}");
    // A worker beside it joins all the same.
    world.node("worker-3", "worker", "10.0.0.5").await;
    world.run_until(2).await;
    let run = world.run_named("first-scale-2").await;
    let inputs = Inputs::from_map(&run.spec.plan.inputs).unwrap();
    assert!(inputs.hosts.iter().all(|host| host.name != "reflector"));
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.state(ClusterState::Created).await;
    assert!(world.not_carried_out().await.contains("host reflector"));

    // Nor by another release than the one that built the cluster.
    let release = json!({"kubespray": {"version": "2.29.0"}, "kubernetesVersion": "1.34.4"});
    world.cluster("first", release).await;
    world.node("worker-4", "worker", "10.0.0.6").await;
    let refused = |cluster: &Cluster| {
        condition(cluster, "Stalled").is_some_and(|(_, _, why)| why.contains("an older one"))
    };
    world.until("first", "says why", refused).await;
    assert_eq!(world.run_until(2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_asked_where_the_spec_says_so() {
    let world = World::start().await;
    world.built().await;
    world
        .cluster(
            "first",
            json!({"operations": {"scale": {"approval": "Manual", "maxRetries": 3}}}),
        )
        .await;
    world.node("worker-3", "worker", "10.0.0.4").await;
    world.run_until(2).await;
    let run = world.run_named("first-scale-2").await;
    let first = serde_json::to_value(&run.spec.plan.steps[0].action).unwrap();
    let question = first["approve"]["question"].as_str().unwrap();
    assert_eq!(question, "make worker-3 part of the cluster");
    let retries = run.spec.plan.steps[1].retry.as_ref().unwrap().limit;
    assert_eq!(retries, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn playbooks_that_cannot_scale_are_named() {
    let world = World::start().await;
    world.built().await;
    let own = world.data.path().join("own");
    let copied = std::process::Command::new("cp")
        .args(["-r", BUNDLE])
        .arg(&own)
        .status();
    assert!(copied.unwrap().success());
    for file in ["scale.yml", "playbooks/scale.yml"] {
        std::fs::remove_file(own.join(file)).unwrap();
    }
    world
        .cluster("first", json!({"kubespray": {"source": {"path": own}}}))
        .await;
    world.node("worker-3", "worker", "10.0.0.4").await;
    let stalled = |cluster: &Cluster| is(cluster, "Stalled", "InvalidSpec");
    let cluster = world.until("first", "says what is missing", stalled).await;
    let message = condition(&cluster, "Stalled").unwrap().2;
    assert!(message.contains("no scale.yml"), "{message}");
    assert!(message.contains("take the ClusterNodes back"), "{message}");
    assert_eq!(cluster.status.unwrap().state, Some(ClusterState::Created));
}

/// Its host is a node already, under the name that it had: it leaves as that, and joins anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_was_renamed_leaves_before_it_joins() {
    let world = World::start().await;
    world.built().await;
    world.node_held("worker-1").await;
    world.node("renamed", "worker", "10.0.0.2").await;
    let stalled = |cluster: &Cluster| is(cluster, "Stalled", "InvalidSpec");
    let cluster = world.until("first", "sees it", stalled).await;
    let message = condition(&cluster, "Stalled").unwrap().2;
    assert!(message.contains("worker-1"), "{message}");
    assert!(message.contains("same address"), "{message}");
    world.delete::<ClusterNode>("worker-1").await;
    world.run_until(2).await;
    let remove = world.run_named("first-remove-2").await;
    world
        .run_status(&remove, json!({"phase": "Succeeded"}))
        .await;
    world.run_until(3).await;
    let join = world.run_named("first-scale-3").await;
    assert_eq!(targets(&join, "nodes/join"), ["renamed"]);
}
