//! Control planes and members of etcd join and leave a built cluster one by one.

use api::{Cluster, ClusterNode, Run, cluster::ClusterState, node::NodeState};
use kubespray::{inputs::Inputs, operation::converge, request::START_AGAIN};
use serde_json::{Value, json};

use crate::{
    remove::planned,
    scale::targets,
    world::{World, condition, is},
};

const EVEN: &str = "of an even number no more may fail than of one less";

impl World {
    /// A cluster of three members, one after the other made part of it.
    async fn three_members(&self) {
        self.built().await;
        self.node("master-2", "master", "10.0.0.12").await;
        self.node("master-3", "master", "10.0.0.13").await;
        for number in [2, 3] {
            self.run_until(number).await;
            let run = self.run_named(&format!("first-scale-{number}")).await;
            self.run_status(&run, json!({"phase": "Succeeded"})).await;
        }
        self.node_state("master-3", NodeState::Joined).await;
        self.state(ClusterState::Created).await;
        for name in ["master-2", "master-3"] {
            self.node_held(name).await;
        }
    }

    async fn stalled_with(&self, words: &str) -> String {
        let says = |cluster: &Cluster| {
            condition(cluster, "Stalled").is_some_and(|(_, _, why)| why.contains(words))
        };
        let cluster = self.until("first", words, says).await;
        condition(&cluster, "Stalled").unwrap().2.to_owned()
    }
}

fn ids(run: &Run) -> Vec<&str> {
    let steps = run.spec.plan.steps.iter();
    steps.map(|step| step.id.as_str()).collect()
}

fn parameters(run: &Run, step: &str) -> Value {
    let steps = &run.spec.plan.steps;
    let step = steps.iter().find(|known| known.id == step).unwrap();
    serde_json::to_value(&step.action).unwrap()["engine"]["parameters"].clone()
}

fn members(run: &Run) -> Vec<String> {
    let inputs = Inputs::from_map(&run.spec.plan.inputs).unwrap();
    let members = inputs.inventory.order["etcd"].iter();
    members.map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_control_planes_join_one_after_the_other() {
    let world = World::start().await;
    world.built().await;
    world.node("worker-3", "worker", "10.0.0.4").await;
    world.run_until(2).await;
    let workers = world.run_named("first-scale-2").await;
    world
        .run_status(&workers, json!({"phase": "Running"}))
        .await;
    world.state(ClusterState::Scaling).await;
    world.node("master-2", "master", "10.0.0.12").await;
    world.node("master-3", "master", "10.0.0.13").await;
    world.node("worker-4", "worker", "10.0.0.5").await;
    world
        .run_status(&workers, json!({"phase": "Succeeded"}))
        .await;

    world.run_until(3).await;
    let first = world.run_named("first-scale-3").await;
    let reason = first.spec.plan.reason.clone().unwrap();
    assert!(reason.starts_with("master-2 is no part"), "{reason}");
    assert!(
        reason.contains("2 of 3: until master-3 joins etcd has 2 members"),
        "{reason}"
    );
    assert_eq!(members(&first), ["master-1", "master-2"]);
    // It refuses an even number, and nothing else that is not proved.
    assert!(!ids(&first).contains(&"preamble/inventory"));
    let all = ["master-1", "master-2", "worker-1", "worker-2", "worker-3"];
    for id in ids(&first) {
        let expected: &[&str] = match id {
            "prepare/sandbox" => &[],
            "prepare/probe" | "bootstrap/facts" | "health/check" => &all,
            "etcd/quorum" | "etcd/quorum-again" | "etcd/joined" | "kubeconfig/store" => {
                &["master-1"]
            }
            "etcd/install"
            | "control-plane/install"
            | "endpoints/api-server-1"
            | "endpoints/api-servers" => &["master-1", "master-2"],
            "endpoints/nodes" => &["master-1", "worker-1", "worker-2", "worker-3"],
            _ => &["master-2"],
        };
        assert_eq!(targets(&first, id), expected, "{id}");
    }
    let place = |id: &str| ids(&first).iter().position(|step| *step == id).unwrap();
    assert!(place("prepare/probe") < place("etcd/quorum"));
    assert!(place("prepare/hosts") < place("etcd/quorum-again"));
    assert_eq!(place("etcd/quorum-again") + 1, place("etcd/install"));
    assert_eq!(place("etcd/install") + 1, place("etcd/joined"));
    assert!(place("control-plane/install") < place("endpoints/api-servers"));
    assert!(place("nodes/join") < place("endpoints/nodes"));
    let change = json!({"host": "master-2", "member": "etcd2", "turn": "Joins"});
    assert_eq!(parameters(&first, "etcd/quorum"), change);
    let inputs = Inputs::from_map(&first.spec.plan.inputs).unwrap();
    assert_eq!(inputs.operation_variables["etcd_retries"], 20);
    let only = "{{ inventory_hostname == 'master-2' }}";
    assert_eq!(inputs.operation_variables["windlass_founding"], only);
    assert!(
        !inputs
            .operation_variables
            .contains_key("ignore_assert_errors")
    );

    world
        .run_status(&first, json!({"phase": "Succeeded"}))
        .await;
    world.run_until(4).await;
    let second = world.run_named("first-scale-4").await;
    assert_eq!(members(&second), ["master-1", "master-2", "master-3"]);
    assert!(ids(&second).contains(&"preamble/inventory"));
    let reason = second.spec.plan.reason.clone().unwrap();
    assert!(!reason.contains("until"), "{reason}");
    assert_eq!(targets(&second, "etcd/quorum"), ["master-1", "master-2"]);

    world
        .run_status(&second, json!({"phase": "Succeeded"}))
        .await;
    world.run_until(5).await;
    let workers = world.run_named("first-scale-5").await;
    assert_eq!(targets(&workers, "nodes/join"), ["worker-4"]);
    world
        .run_status(&workers, json!({"phase": "Succeeded"}))
        .await;
    let last = world.state(ClusterState::Created).await.status.unwrap();
    let order = &last.inventory.unwrap().order["kube_control_plane"];
    let order: Vec<_> = order.iter().map(ToString::to_string).collect();
    assert_eq!(order, ["master-1", "master-2", "master-3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_more_member_than_an_odd_number_is_not_begun() {
    let world = World::start().await;
    world.built().await;
    world.node("master-2", "master", "10.0.0.12").await;
    let message = world.stalled_with("odd number of members").await;
    assert!(message.contains("2 etcd hosts"), "{message}");
    assert!(message.contains("add one more"), "{message}");
    assert_eq!(world.run_until(1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_without_etcd_joins_alone() {
    let world = World::start().await;
    world.built().await;
    let roles = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode", "metadata": {"name": "plane-2"},
        "spec": {"type": "master", "roles": ["control-plane"], "inventory": {"ansible_host": "10.0.0.12"}},
    });
    world.apply::<ClusterNode>("plane-2", roles).await;
    world.run_until(2).await;
    let run = world.run_named("first-scale-2").await;
    let ids = ids(&run);
    for absent in ["etcd/joined", "endpoints/api-servers"] {
        assert!(!ids.contains(&absent), "{absent}");
    }
    // The play of etcd gives it a certificate, and would make a member again of one that was taken out by a removal that was given up.
    let play = ids.iter().position(|id| *id == "etcd/install").unwrap();
    assert_eq!(ids[play - 1], "etcd/quorum-again");
    assert!(ids.contains(&"etcd/quorum"));
    assert!(ids.contains(&"preamble/inventory"));
    assert!(ids.contains(&"endpoints/nodes"));
    let reason = run.spec.plan.reason.unwrap();
    assert!(reason.contains("makes a control plane of it"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_left_alone_where_a_balancer_stands_before_the_cluster() {
    let world = World::start().await;
    let balancer = json!({"loadbalancer_apiserver": {"address": "10.0.0.99", "port": 6443}});
    let spec = json!({"nodes": {"all": {"deploy": {"extraVars": balancer}}}});
    world.built_as(spec).await;
    world.node("master-2", "master", "10.0.0.12").await;
    world.node("master-3", "master", "10.0.0.13").await;
    world.run_until(2).await;
    let run = world.run_named("first-scale-2").await;
    assert!(!ids(&run).contains(&"endpoints/nodes"));
    assert!(ids(&run).contains(&"endpoints/api-servers"));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_three_members_leave_one_after_the_other() {
    let world = World::start().await;
    world.three_members().await;
    // One alone would leave an even number.
    world.delete::<ClusterNode>("master-2").await;
    let message = world.stalled_with(EVEN).await;
    assert!(
        message.contains("the removal of host master-2"),
        "{message}"
    );
    assert!(message.contains("etcd would have 2 members"), "{message}");
    assert!(message.contains("node keep master-2"), "{message}");
    world.node_state("master-2", NodeState::Joined).await;
    assert_eq!(world.run_until(3).await.len(), 3);

    // All that stay are told of it, and of these the end does not wait for what is known to be down.
    let plan = planned(&world, &["master-3"], "worker-2").await;
    let last = plan.steps.last().unwrap();
    let waited_for = kubespray::action::hosts_of(&plan, last);
    let waited_for: Vec<_> = waited_for.iter().map(api::HostName::as_str).collect();
    assert_eq!(waited_for, ["master-1", "worker-1", "master-2"]);
    let reason = plan.reason.unwrap();
    let words = "does not wait for what was not Ready before: worker-2";
    assert!(reason.contains(words), "{reason}");

    world.delete::<ClusterNode>("master-3").await;
    world.run_until(4).await;
    let first = world.run_named("first-remove-4").await;
    let reason = first.spec.plan.reason.clone().unwrap();
    assert!(reason.contains("ClusterNode of master-3"), "{reason}");
    assert!(
        reason.contains("has 2 members until master-2 leaves"),
        "{reason}"
    );
    let stay = ["master-1", "master-2", "worker-1", "worker-2"];
    for id in ids(&first) {
        let expected: &[&str] = match id {
            "prepare/sandbox" => &[],
            "prepare/probe" | "kubeconfig/store" => &["master-1"],
            "etcd/quorum"
            | "etcd/take-out"
            | "endpoints/control-plane"
            | "endpoints/api-servers" => &["master-1", "master-2"],
            "endpoints/probe" | "endpoints/facts" | "endpoints/nodes" | "health/check" => &stay,
            _ => &["master-3"],
        };
        assert_eq!(targets(&first, id), expected, "{id}");
    }
    let place = |id: &str| ids(&first).iter().position(|step| *step == id).unwrap();
    assert!(place("etcd/quorum") < place("drain/budgets"));
    assert!(place("drain/pods") < place("etcd/take-out"));
    assert!(place("etcd/take-out") < place("remove/reset"));
    assert!(place("forget/nodes") < place("endpoints/facts"));
    assert!(!ids(&first).contains(&"preamble/inventory"));
    for id in [
        "endpoints/facts",
        "endpoints/control-plane",
        "endpoints/nodes",
    ] {
        assert_eq!(parameters(&first, id)["left"], true, "{id}");
        assert_eq!(parameters(&first, id)["limited"], true, "{id}");
    }
    let change = json!({"host": "master-3", "member": "etcd3", "turn": "Leaves"});
    assert_eq!(parameters(&first, "etcd/take-out"), change);
    assert_eq!(members(&first), ["master-1", "master-2"]);

    world.run_status(&first, json!({"phase": "Running"})).await;
    world.node_state("master-3", NodeState::Removing).await;
    world.node_state("master-2", NodeState::Joined).await;
    world
        .run_status(&first, json!({"phase": "Succeeded"}))
        .await;
    world.node_gone("master-3").await;
    world.run_until(5).await;
    let second = world.run_named("first-remove-5").await;
    assert_eq!(targets(&second, "etcd/quorum"), ["master-1"]);
    assert_eq!(members(&second), ["master-1"]);
    assert!(ids(&second).contains(&"preamble/inventory"));
    world
        .run_status(&second, json!({"phase": "Succeeded"}))
        .await;
    world.node_gone("master-2").await;
    let last = world.state(ClusterState::Created).await.status.unwrap();
    assert_eq!(last.inventory.unwrap().order["etcd"].len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_replaced_by_a_new_one() {
    let world = World::start().await;
    world.three_members().await;
    world.delete::<ClusterNode>("master-2").await;
    world.stalled_with(EVEN).await;
    world.node("master-4", "master", "10.0.0.14").await;
    world.run_until(4).await;
    let remove = world.run_named("first-remove-4").await;
    let reason = remove.spec.plan.reason.clone().unwrap();
    assert!(reason.contains("until another joins"), "{reason}");
    world
        .run_status(&remove, json!({"phase": "Succeeded"}))
        .await;
    world.node_gone("master-2").await;
    world.run_until(5).await;
    let scale = world.run_named("first-scale-5").await;
    assert_eq!(members(&scale), ["master-1", "master-3", "master-4"]);
    let inputs = Inputs::from_map(&scale.spec.plan.inputs).unwrap();
    let names = &inputs.inventory.etcd_member_names;
    assert_eq!(names["master-3"], "etcd3");
    assert_ne!(names["master-4"], "etcd3");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_is_kept_and_so_is_the_last_of_three_that_go() {
    let world = World::start().await;
    world.three_members().await;
    world.delete::<ClusterNode>("master-1").await;
    let message = world.stalled_with("holds the authorities").await;
    assert!(message.contains("node keep master-1"), "{message}");
    // With the head kept, these two leave one.
    world.delete::<ClusterNode>("master-2").await;
    world.delete::<ClusterNode>("master-3").await;
    world.run_until(4).await;
    let run = world.run_named("first-remove-4").await;
    assert_eq!(targets(&run, "remove/reset"), ["master-3"]);
    assert!(is(
        &world.state(ClusterState::Removing).await,
        "Reconciling",
        "Removing"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_etcd_forbids_waits_for_a_person() {
    let world = World::start().await;
    world.three_members().await;
    world.delete::<ClusterNode>("master-2").await;
    world.delete::<ClusterNode>("master-3").await;
    let runs = world.run_until(4).await;
    let run = runs.iter().find(|run| run.spec.operation == "Remove");
    let failure = json!({
        "class": "External", "code": "QuorumWouldBeLost", "targets": [],
        "message": "without master-3 etcd has 2 members, of which 2 must answer, and 1 would; these do not: master-2",
    });
    let failed = json!({"phase": "Failed", "failure": failure});
    world.run_status(run.unwrap(), failed).await;
    let cluster = world.state(ClusterState::Failed).await;
    let message = condition(&cluster, "Stalled").unwrap().2;
    assert!(message.contains("these do not: master-2"), "{message}");
    assert_eq!(world.run_until(4).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_does_not_become_something_else() {
    let world = World::start().await;
    world.built().await;
    let roles = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode", "metadata": {"name": "worker-1"},
        "spec": {"type": "worker", "roles": ["control-plane", "worker"], "inventory": {"ansible_host": "10.0.0.2"}},
    });
    world.apply::<ClusterNode>("worker-1", roles).await;
    let message = world.not_carried_out().await;
    assert!(
        message.contains("host worker-1: it was made a worker"),
        "{message}"
    );
    world.ask(&converge::ASKED, "now").await;
    let refused = world.answer(&converge::ASKED, "now").await.refused.unwrap();
    assert!(refused.contains("it was made a worker"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_cancelled_is_told_with_the_way_to_it() {
    let world = World::start().await;
    world.built().await;
    world.node("master-2", "master", "10.0.0.12").await;
    world.node("master-3", "master", "10.0.0.13").await;
    world.run_until(2).await;
    let run = world.run_named("first-scale-2").await;
    world.run_status(&run, json!({"phase": "Cancelled"})).await;
    let message = world.not_carried_out().await;
    for name in ["master-2", "master-3"] {
        assert!(message.contains(&format!("host {name}")), "{message}");
    }
    assert!(message.contains(START_AGAIN), "{message}");
}
