//! A host is replaced by another one: that one joins, takes the first place where that is needed, and the host leaves.

use api::{Cluster, ClusterNode, Run, cluster::ClusterState, node::NodeState};
use kube::api::{Patch, PatchParams};
use kubespray::{
    inputs::Inputs,
    playbooks::Own,
    request::{FORCE_REMOVAL, REPLACED_BY, RESET_HOST, START_AGAIN},
};
use serde_json::{Value, json};

use crate::{
    scale::targets,
    world::{World, condition},
};

impl World {
    /// A cluster of so many control planes with members of etcd, and two workers.
    async fn of_masters(&self, masters: usize) {
        for at in 1..=masters {
            let address = format!("10.0.0.1{at}");
            self.node(&format!("master-{at}"), "master", &address).await;
        }
        for at in 1..=2 {
            let address = format!("10.0.0.2{at}");
            self.node(&format!("worker-{at}"), "worker", &address).await;
        }
        self.cluster("first", json!({})).await;
        let run = self.run_until(1).await.remove(0);
        self.run_status(&run, json!({"phase": "Succeeded"})).await;
        self.state(ClusterState::Created).await;
        for at in 1..=masters {
            self.node_held(&format!("master-{at}")).await;
        }
        self.node_held("worker-2").await;
    }

    /// As `windlass node replace`.
    async fn replaces(&self, name: &str, annotations: Value) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let nodes = self.all::<ClusterNode>();
        let parameters = PatchParams::default();
        nodes.patch(name, &parameters, &patch).await.unwrap();
        self.delete::<ClusterNode>(name).await;
    }

    async fn says(&self, words: &str) -> String {
        let told = |cluster: &Cluster| {
            let (_, _, why) = condition(cluster, "Stalled")?;
            why.contains(words).then(|| why.to_owned())
        };
        let cluster = self
            .until("first", words, |cluster| told(cluster).is_some())
            .await;
        told(&cluster).unwrap()
    }

    async fn first_of(&self, group: &str) -> String {
        let cluster = self.all::<Cluster>().get("first").await.unwrap();
        let order = cluster.status.unwrap().inventory.unwrap().order;
        order[group][0].to_string()
    }
}

fn ids(run: &Run) -> Vec<&str> {
    let steps = run.spec.plan.steps.iter();
    steps.map(|step| step.id.as_str()).collect()
}

fn order(run: &Run, group: &str) -> Vec<String> {
    let inputs = Inputs::from_map(&run.spec.plan.inputs).unwrap();
    let hosts = inputs.inventory.order[group].iter();
    hosts.map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_host_leaves_when_another_has_joined_and_another_is_first() {
    let world = World::start().await;
    world.of_masters(3).await;
    world.node("master-4", "master", "10.0.0.14").await;
    world
        .replaces("master-1", json!({REPLACED_BY: "master-4"}))
        .await;

    world.run_until(2).await;
    let joins = world.run_named("first-scale-2").await;
    let reason = joins.spec.plan.reason.clone().unwrap();
    let rotation = "the first of etcd was master-1, and is master-2 from then on: their order master-1, master-2, master-3, master-4 \
                    becomes master-2, master-3, master-4, master-1";
    for words in [rotation, "master-4 joins first", "master-1 leaves last"] {
        assert!(reason.contains(words), "{reason}");
    }
    world.run_status(&joins, json!({"phase": "Running"})).await;
    let waits = |cluster: &Cluster| {
        let pending = &cluster.status.as_ref().unwrap().pending;
        pending.iter().any(|pending| {
            pending.operation == "Replace"
                && pending.message.contains(rotation)
                && pending.message.contains("node keep master-1")
        })
    };
    world.until("first", "says what follows", waits).await;
    world
        .run_status(&joins, json!({"phase": "Succeeded"}))
        .await;

    world.run_until(3).await;
    let hands = world.run_named("first-replace-3").await;
    for id in ids(&hands) {
        let expected: &[&str] = match id {
            "prepare/sandbox" => &[],
            "prepare/probe" | "replace/head-1" | "kubeconfig/store" | "replace/endpoints-1" => {
                &["master-2"]
            }
            "endpoints/probe" | "health/check" => {
                &["master-2", "master-3", "master-4", "worker-1", "worker-2"]
            }
            "replace/endpoints-2" => &["master-3"],
            "replace/endpoints-3" => &["master-4"],
            "replace/endpoints-4" => &["worker-1", "worker-2"],
            other => panic!("{other}"),
        };
        let mut hosts = targets(&hands, id);
        hosts.retain(|host| id != "health/check" || !host.starts_with("none"));
        hosts.sort();
        if id == "kubeconfig/store" {
            assert_eq!(hosts, ["master-2"], "{id}");
        } else {
            assert_eq!(hosts, expected, "{id}");
        }
    }
    let inputs = Inputs::from_map(&hands.spec.plan.inputs).unwrap();
    assert_eq!(
        inputs.operation_variables["windlass_old_head_addresses"],
        json!(["10.0.0.11"])
    );
    let rotated = ["master-2", "master-3", "master-4", "master-1"];
    assert_eq!(order(&hands, "etcd"), rotated);
    assert_eq!(order(&hands, "kube_control_plane"), rotated);
    let head = hands.spec.plan.steps.iter();
    let head = head
        .clone()
        .find(|step| step.id == "replace/head-1")
        .unwrap();
    let head = serde_json::to_value(head).unwrap();
    let digest = &head["action"]["engine"]["parameters"]["own"];
    assert_eq!(*digest, Own::ReplaceHead.digest());

    // The order is the old one until it is done.
    world.run_status(&hands, json!({"phase": "Running"})).await;
    world.state(ClusterState::Replacing).await;
    world.node_state("master-1", NodeState::Joined).await;
    assert_eq!(world.first_of("etcd").await, "master-1");
    world
        .run_status(&hands, json!({"phase": "Succeeded"}))
        .await;

    world.run_until(4).await;
    let leaves = world.run_named("first-remove-4").await;
    assert_eq!(world.first_of("etcd").await, "master-2");
    assert_eq!(order(&leaves, "etcd"), rotated[..3]);
    assert_eq!(targets(&leaves, "prepare/probe"), ["master-2"]);
    assert_eq!(targets(&leaves, "remove/reset"), ["master-1"]);
    let reason = leaves.spec.plan.reason.clone().unwrap();
    assert!(reason.contains("master-4 has taken its place"), "{reason}");
    world
        .run_status(&leaves, json!({"phase": "Succeeded"}))
        .await;
    world.node_gone("master-1").await;
    world.state(ClusterState::Created).await;
    assert_eq!(world.first_of("kube_control_plane").await, "master-2");
    assert_eq!(world.run_until(4).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_lost_leaves_before_the_other_joins() {
    let world = World::start().await;
    world.of_masters(3).await;
    world.node("master-4", "master", "10.0.0.14").await;
    let lost = json!({REPLACED_BY: "master-4", FORCE_REMOVAL: "true"});
    world.replaces("master-1", lost).await;
    for (number, operation) in [(2, "replace"), (3, "remove"), (4, "scale")] {
        world.run_until(number).await;
        let name = format!("first-{operation}-{number}");
        let run = world.run_named(&name).await;
        if operation == "replace" {
            let reason = run.spec.plan.reason.clone().unwrap();
            assert!(reason.contains("which joins last"), "{reason}");
            assert_eq!(order(&run, "etcd"), ["master-2", "master-3", "master-1"]);
        }
        world.run_status(&run, json!({"phase": "Succeeded"})).await;
    }
    world.node_gone("master-1").await;
    world.node_state("master-4", NodeState::Joined).await;
    assert_eq!(world.first_of("etcd").await, "master-2");
}

#[tokio::test(flavor = "multi_thread")]
async fn others_are_replaced_without_another_first_host() {
    let world = World::start().await;
    world.of_masters(1).await;
    // The only one stays until there is another.
    world.node("master-2", "master", "10.0.0.12").await;
    world.node("worker-3", "worker", "10.0.0.23").await;
    world
        .replaces("worker-1", json!({REPLACED_BY: "worker-3"}))
        .await;
    world
        .replaces("master-1", json!({REPLACED_BY: "master-2"}))
        .await;
    let expected = ["scale", "replace", "remove", "scale", "remove"];
    for (number, operation) in (2..).zip(expected) {
        world.run_until(number).await;
        let name = format!("first-{operation}-{number}");
        let run = world.run_named(&name).await;
        if operation == "replace" {
            assert_eq!(order(&run, "etcd"), ["master-2", "master-1"]);
        }
        world.run_status(&run, json!({"phase": "Succeeded"})).await;
    }
    for gone in ["master-1", "worker-1"] {
        world.node_gone(gone).await;
    }
    assert_eq!(world.first_of("kube_control_plane").await, "master-2");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_cancelled_is_told_and_begins_anew_when_asked() {
    let world = World::start().await;
    world.of_masters(3).await;
    world.node("master-4", "master", "10.0.0.14").await;
    let lost = json!({REPLACED_BY: "master-4", FORCE_REMOVAL: "true"});
    world.replaces("master-1", lost).await;
    world.run_until(2).await;
    let run = world.run_named("first-replace-2").await;
    world.run_status(&run, json!({"phase": "Cancelled"})).await;
    // The other one joins meanwhile, if etcd takes it.
    world.run_until(3).await;
    let joins = world.run_named("first-scale-3").await;
    world
        .run_status(&joins, json!({"phase": "Cancelled"}))
        .await;
    let message = world.says("the replacement of host master-1").await;
    for words in [START_AGAIN, "node keep master-1"] {
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(world.first_of("etcd").await, "master-1");
    let patch = Patch::Merge(json!({"metadata": {"annotations": {START_AGAIN: "1"}}}));
    let clusters = world.all::<Cluster>();
    let parameters = PatchParams::default();
    clusters.patch("first", &parameters, &patch).await.unwrap();
    world.run_until(4).await;
    world.run_named("first-replace-4").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_replaced_is_said_with_its_remedy() {
    type Case = (
        usize,
        &'static str,
        &'static str,
        &'static [(&'static str, &'static str)],
        &'static [&'static str],
    );
    let cases: [Case; 7] = [
        (
            3,
            "master-1",
            "nobody",
            &[],
            &["there is no ClusterNode nobody", "[control-plane, etcd]"],
        ),
        (
            3,
            "master-1",
            "No Name",
            &[],
            &["no name of a host", "node replace master-1 --by"],
        ),
        (
            3,
            "master-1",
            "master-1",
            &[],
            &["cannot take its own place"],
        ),
        (
            3,
            "master-1",
            "new",
            &[("new", "worker")],
            &["has the roles [worker]", "spec.roles [control-plane, etcd]"],
        ),
        // Etcd would have an even number of members in the end.
        (
            3,
            "master-1",
            "master-2",
            &[],
            &["etcd would have 2 members"],
        ),
        (
            1,
            "master-1",
            "new",
            &[("new", "worker")],
            &["has the roles [worker]"],
        ),
        (
            3,
            "worker-1",
            "master-2",
            &[],
            &["has the roles [control-plane, etcd]", "spec.roles [worker]"],
        ),
    ];
    for (masters, old, by, new, words) in cases {
        let world = World::start().await;
        world.of_masters(masters).await;
        for (name, kind) in new {
            world.node(name, kind, "10.0.0.40").await;
        }
        let runs = 1 + new.len();
        world.run_until(runs).await;
        for run in world.run_until(runs).await {
            world.run_status(&run, json!({"phase": "Succeeded"})).await;
        }
        world.replaces(old, json!({REPLACED_BY: by})).await;
        let message = world.says(words[0]).await;
        for words in words.iter().copied().chain(["node keep"]) {
            assert!(message.contains(words), "{old} by {by}: {message}");
        }
        assert_eq!(world.run_until(runs).await.len(), runs, "{old} by {by}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_are_not_replaced_by_one_and_the_only_one_not_when_it_is_lost() {
    let world = World::start().await;
    world.of_masters(1).await;
    world.node("worker-3", "worker", "10.0.0.23").await;
    world.run_until(2).await;
    let run = world.run_named("first-scale-2").await;
    world.run_status(&run, json!({"phase": "Running"})).await;
    for old in ["worker-1", "worker-2"] {
        world.replaces(old, json!({REPLACED_BY: "worker-3"})).await;
    }
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.run_until(3).await;
    let run = world.run_named("first-remove-3").await;
    assert_eq!(targets(&run, "remove/reset"), ["worker-1"]);
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.node_gone("worker-1").await;

    world.node("master-2", "master", "10.0.0.12").await;
    let lost = json!({REPLACED_BY: "master-2", FORCE_REMOVAL: "true"});
    world.replaces("master-1", lost).await;
    let message = world.says("it is lost").await;
    for words in ["bring the host back", "recover"] {
        assert!(message.contains(words), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_failed_to_join_is_reset_once_and_joins_anew() {
    let world = World::start().await;
    world.of_masters(1).await;
    world.node("worker-3", "worker", "10.0.0.23").await;
    world.run_until(2).await;
    let joins = world.run_named("first-scale-2").await;
    world.run_status(&joins, json!({"phase": "Failed"})).await;
    let ask = async |name: &str, value: &str| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {RESET_HOST: value}}}));
        let nodes = world.all::<ClusterNode>();
        let parameters = PatchParams::default();
        nodes.patch(name, &parameters, &patch).await.unwrap();
    };
    let refused = async |host: &str, words: &str| {
        let told = |cluster: &Cluster| {
            let pending = &cluster.status.as_ref().unwrap().pending;
            pending.iter().any(|pending| {
                pending.operation == "ResetHost"
                    && pending.reason == "Refused"
                    && pending.hosts[0].as_str() == host
                    && pending.message.contains(words)
            })
        };
        world.until("first", words, told).await;
    };
    // A part of the cluster is not reset beneath it, and the name is the word for it.
    ask("worker-1", "worker-1 1").await;
    refused("worker-1", "node remove worker-1").await;
    ask("worker-3", "yes").await;
    refused("worker-3", "--confirm worker-3").await;
    assert_eq!(world.run_until(2).await.len(), 2);

    ask("worker-3", "worker-3 1").await;
    world.run_until(3).await;
    let reset = world.run_named("first-resethost-3").await;
    for id in ids(&reset) {
        let expected: &[&str] = if id == "prepare/sandbox" {
            &[]
        } else {
            &["worker-3"]
        };
        assert_eq!(targets(&reset, id), expected, "{id}");
    }
    assert!(
        ids(&reset).iter().any(|id| id.starts_with("reset/")),
        "{:?}",
        ids(&reset)
    );
    assert_eq!(ids(&reset).last(), Some(&"forget/nodes"));
    world.run_status(&reset, json!({"phase": "Running"})).await;
    world.node_state("worker-3", NodeState::Removing).await;
    world
        .run_status(&reset, json!({"phase": "Succeeded"}))
        .await;
    // It is another start, not the rest of the one that failed.
    world.run_until(4).await;
    let joins = world.run_named("first-scale-4").await;
    world
        .run_status(&joins, json!({"phase": "Succeeded"}))
        .await;
    world.node_state("worker-3", NodeState::Joined).await;
    let node = world.all::<ClusterNode>().get("worker-3").await.unwrap();
    assert_eq!(node.status.unwrap().reset.as_deref(), Some("worker-3 1"));
    assert_eq!(world.run_until(4).await.len(), 4);
}
