//! A built cluster is brought to another version, hop by hop, each a run that goes node by node.

use std::path::PathBuf;

use api::{
    Cluster, ClusterNode, Run,
    cluster::ClusterState,
    run::{Action, Interrupt},
};
use kube::api::{Patch, PatchParams};
use kubespray::{
    action,
    inputs::Inputs,
    operation::{converge, renew},
    request::START_AGAIN,
};
use serde_json::{Value, json};

use crate::{
    scale::targets,
    world::{BUNDLE, World, condition, is},
};

impl World {
    /// Playbooks of our own that install these versions, the newest first.
    fn playbooks(&self, versions: &[&str]) -> PathBuf {
        let own = self.data.path().join("own");
        if !own.exists() {
            let mut copy = std::process::Command::new("cp");
            let copied = copy.args(["-r", BUNDLE]).arg(&own).status();
            assert!(copied.unwrap().success());
        }
        let lines: Vec<_> = versions
            .iter()
            .map(|version| format!("    {version}: x\n"))
            .collect();
        let lines = lines.concat();
        let checksums = own.join("roles/kubespray_defaults/vars/main/checksums.yml");
        let text = format!("---\nkubelet_checksums:\n  amd64:\n{lines}");
        std::fs::write(checksums, text).unwrap();
        own
    }

    /// Has a cluster built with the first of these versions, and wishes for another one.
    async fn built_at(&self, versions: &[&str], built: &str) -> PathBuf {
        let own = self.playbooks(versions);
        self.three_nodes().await;
        self.wish(&own, built, json!({})).await;
        let run = self.run_until(1).await.remove(0);
        self.run_status(&run, json!({"phase": "Succeeded"})).await;
        self.state(ClusterState::Created).await;
        own
    }

    async fn wish(&self, playbooks: &PathBuf, kubernetes: &str, upgrade: Value) {
        let spec = json!({
            "kubernetesVersion": kubernetes,
            "kubespray": {"version": "2.30.0", "source": {"path": playbooks}},
            "operations": {"upgrade": upgrade},
        });
        self.cluster("first", spec).await;
    }

    async fn stands_still(&self, words: &str) -> String {
        let says = |cluster: &Cluster| {
            condition(cluster, "Stalled").is_some_and(|(_, _, why)| why.contains(words))
        };
        let cluster = self.until("first", words, says).await;
        condition(&cluster, "Stalled").unwrap().2.to_owned()
    }
}

fn inputs(run: &Run) -> Inputs {
    Inputs::from_map(&run.spec.plan.inputs).unwrap()
}

fn steps(run: &Run) -> Vec<&str> {
    let steps = run.spec.plan.steps.iter();
    steps.map(|step| step.id.as_str()).collect()
}

fn parameters(run: &Run, step: &str) -> Value {
    let mut steps = run.spec.plan.steps.iter();
    let step = steps.find(|known| known.id == step).unwrap();
    serde_json::to_value(&step.action).unwrap()["engine"]["parameters"].clone()
}

/// The status of a run that failed or was ended in that step.
fn ended_in(run: &Run, at: &str, phase: &str) -> Value {
    let mut before = true;
    let steps: Vec<_> = steps(run)
        .into_iter()
        .map(|id| {
            let here = id == at;
            before &= !here;
            let phase = match (here, before) {
                (true, _) => "Failed",
                (_, true) => "Succeeded",
                _ => "Pending",
            };
            json!({"id": id, "phase": phase})
        })
        .collect();
    let failure =
        json!({"class": "External", "code": "X", "message": "no disk left", "targets": []});
    match phase {
        "Failed" => json!({"phase": phase, "steps": steps, "failure": failure}),
        _ => json!({"phase": phase, "steps": steps}),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_upgraded_minor_by_minor_and_node_by_node() {
    let world = World::start().await;
    let versions = ["1.35.1", "1.34.4", "1.34.2", "1.33.13"];
    let own = world.built_at(&versions, "1.33.13").await;
    let spec = json!({
        "kubernetesVersion": "1.35.1", "kubespray": {"version": "2.30.0", "source": {"path": own}},
        "etcd": {"snapshots": {"store": {"directory": "/srv/snapshots"}}},
    });
    world.cluster("first", spec).await;
    world.run_until(2).await;
    let run = world.run_named("first-upgrade-2").await;
    assert_eq!(run.spec.operation, "Upgrade");
    let reason = run.spec.plan.reason.clone().unwrap();
    let words =
        "Kubernetes 1.33.13 to 1.34.4, hop 1 of 2 on the way to 1.35.1, by kubespray 2.30.0";
    assert!(reason.contains(words), "{reason}");
    let steps = steps(&run);
    let place = |id: &str| steps.iter().position(|step| *step == id).unwrap();
    let order = [
        "prepare/probe",
        "gate/before",
        "drain/budgets",
        "etcd/quorum",
        "snapshot/save",
        "snapshot/keep",
        "bootstrap/facts",
        "etcd/snapshot",
        "prepare/upgrade",
        "etcd/quorum-again",
        "etcd/install",
        "control-plane/upgrade/1",
        "gate/control-plane/upgrade/1",
        "workers/upgrade/1",
        "gate/workers/upgrade/1",
        "workers/upgrade/2",
        "gate/workers/upgrade/2",
        "apps/install",
        "kubeconfig/store",
        "health/check",
    ];
    assert!(order.map(place).is_sorted(), "{steps:?}");
    for (step, host) in [
        ("etcd/snapshot", "master-1"),
        ("control-plane/upgrade/1", "master-1"),
        ("workers/upgrade/1", "worker-1"),
        ("gate/workers/upgrade/1", "worker-1"),
        ("workers/upgrade/2", "worker-2"),
    ] {
        assert_eq!(targets(&run, step), [host], "{step}");
    }
    assert_eq!(parameters(&run, "workers/upgrade/2")["limited"], true);
    let gate = parameters(&run, "gate/workers/upgrade/2");
    assert_eq!(gate["kubernetes"], "1.34.4");
    assert_eq!(parameters(&run, "gate/before")["begins"], true);
    for step in &run.spec.plan.steps {
        let batch = |play: action::AnsiblePlay| play.limited && play.own.is_none();
        let bound = action::play_of(step).is_some_and(batch);
        let never = step.interrupt == Interrupt::Never;
        assert_eq!(bound, never, "{}: a node would stay cordoned", step.id);
    }
    let given = inputs(&run);
    assert_eq!(given.kubernetes.unwrap().to_string(), "1.34.4");
    assert_eq!(given.operation_variables["serial"], 1);
    assert_eq!(given.operation_variables["upgrade_node_confirm"], false);

    world.run_status(&run, json!({"phase": "Running"})).await;
    let upgrading = world.state(ClusterState::Upgrading).await;
    assert!(is(&upgrading, "Reconciling", "Upgrading"));
    world.run_status(&run, json!({"phase": "Succeeded"})).await;

    // The second hop follows by itself, from where the first one led.
    world.run_until(3).await;
    let second = world.run_named("first-upgrade-3").await;
    let reason = second.spec.plan.reason.clone().unwrap();
    assert!(
        reason.contains("Kubernetes 1.34.4 to 1.35.1, by"),
        "{reason}"
    );
    assert_eq!(inputs(&second).kubernetes.unwrap().to_string(), "1.35.1");
    world
        .run_status(&second, json!({"phase": "Succeeded"}))
        .await;
    let status = world.state(ClusterState::Created).await.status.unwrap();
    assert_eq!(status.kubernetes_version.unwrap().to_string(), "1.35.1");
    assert_eq!(status.last_operation.unwrap().operation, "Upgrade");
    assert_eq!(world.run_until(3).await.len(), 3);
}

/// The versions that a status says can be had.
fn available(cluster: &Cluster) -> Vec<String> {
    let status = cluster.status.as_ref().unwrap();
    let available = status.available.iter();
    available
        .map(|one| {
            let versions = (one.kubernetes_version, one.kubespray_version);
            format!("{:?} {} by {}", one.change, versions.0, versions.1)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_takes_by_itself_what_its_policy_lets_it_and_is_told_of_the_rest() {
    let world = World::start().await;
    let versions = ["1.34.4", "1.33.14", "1.33.13"];
    let own = world.built_at(&versions, "1.33.13").await;
    let offered = |cluster: &Cluster| available(cluster).len() == 3;
    let cluster = world.until("first", "offers", offered).await;
    assert_eq!(
        available(&cluster),
        [
            "Patch 1.33.14 by 2.30.0",
            "Minor 1.34.4 by 2.30.0",
            "Minor 1.35.4 by 2.31.0"
        ]
    );
    let offers = cluster.status.unwrap().available;
    let words = "write spec.kubernetesVersion: 1.33.14, or have the cluster take it by itself: \
                 spec.nodes.all.upgrade.patch.auto: true";
    assert_eq!(offers[0].message, words);
    // The playbooks are of one release: another one comes only with others.
    let words =
        "write spec.kubespray.version: 2.31.0, and name its playbooks in spec.kubespray.source";
    assert_eq!(offers[2].message, words);

    let spec = |policy: Value| {
        json!({
            "kubernetesVersion": "1.33.13",
            "kubespray": {"version": "2.30.0", "source": {"path": own}},
            "nodes": {"all": {"upgrade": policy}},
        })
    };
    let policy = json!({"patch": {"auto": true}});
    world.cluster("first", spec(policy)).await;
    world.run_until(2).await;
    let run = world.run_named("first-upgrade-2").await;
    let reason = run.spec.plan.reason.clone().unwrap();
    let words = "spec.nodes.all.upgrade leads there: Kubernetes 1.33.13 to 1.33.14, by";
    assert!(reason.contains(words), "{reason}");
    // One that failed in the middle waits for a person, whatever else the policy would lead to.
    let failed = ended_in(&run, "workers/upgrade/1", "Failed");
    world.run_status(&run, failed).await;
    world.state(ClusterState::Failed).await;
    let policy = json!({"minor": {"auto": true}});
    world.cluster("first", spec(policy)).await;
    let named = |cluster: &Cluster| {
        let waits = condition(cluster, "Stalled").is_some();
        waits && cluster.status.as_ref().unwrap().observed_generation == cluster.metadata.generation
    };
    world.until("first", "has seen it", named).await;
    assert_eq!(world.run_until(2).await.len(), 2);
    world.run_status(&run, json!({"phase": "Succeeded"})).await;

    // The written version is the least: what was reached by itself stays, and the next minor follows.
    world.run_until(3).await;
    let run = world.run_named("first-upgrade-3").await;
    assert_eq!(inputs(&run).kubernetes.unwrap().to_string(), "1.34.4");
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    let reached = |cluster: &Cluster| {
        let status = cluster.status.as_ref().unwrap();
        let installed = status.kubernetes_version.unwrap().to_string();
        installed == "1.34.4" && available(cluster) == ["Minor 1.35.4 by 2.31.0"]
    };
    world.until("first", "reaches", reached).await;

    // Without the policy the written version is a downgrade, and refused as one.
    world.cluster("first", spec(json!({}))).await;
    let message = world.stands_still("cannot be downgraded").await;
    assert!(message.contains("1.34.4 or newer"), "{message}");
    assert_eq!(world.run_until(3).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_canaries_and_gates_are_as_the_spec_says() {
    let world = World::start().await;
    for number in 3..=6_u8 {
        let (name, address) = (format!("worker-{number}"), format!("10.0.0.{}", number + 1));
        world.node(&name, "worker", &address).await;
    }
    let own = world.built_at(&["1.34.4", "1.34.2"], "1.34.2").await;
    let settings = json!({
        "maxUnavailable": "50%", "canary": 1, "drainTimeout": "90s", "soak": "30s", "gateTimeout": "5m",
        "gate": {"namespace": "shop", "selector": {"app": "web"}}, "approval": "Manual", "maxRetries": 2,
    });
    world.wish(&own, "1.34.4", settings).await;
    world.run_until(2).await;
    let run = &world.run_named("first-upgrade-2").await;
    let batches: Vec<_> = (1..=3)
        .map(|number| targets(run, &format!("workers/upgrade/{number}")))
        .collect();
    let sizes: Vec<_> = batches.iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 3, 2], "{batches:?}");
    let steps = steps(run);
    assert_eq!(steps[0], "approve/plan");
    let place = |id: &str| steps.iter().position(|step| *step == id).unwrap();
    assert!(place("gate/workers/upgrade/1") < place("approve/canary"));
    assert!(place("approve/canary") < place("workers/upgrade/2"));
    let canary = &run.spec.plan.steps[place("approve/canary")];
    assert!(matches!(canary.action, Action::Approve(_)));
    let gate = &run.spec.plan.steps[place("gate/workers/upgrade/2")];
    assert_eq!(gate.timeout.unwrap().seconds(), 330);
    let gate = parameters(run, "gate/workers/upgrade/2");
    assert_eq!(gate["soak"], "30s");
    assert_eq!(gate["pods"]["selector"]["app"], "web");
    assert_eq!(parameters(run, "gate/before")["soak"], "0s");
    assert_eq!(inputs(run).operation_variables["drain_timeout"], "90s");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_failed_in_the_middle_cannot_be_taken_back() {
    let world = World::start().await;
    let versions = ["1.34.4", "1.34.3", "1.33.13"];
    let own = world.built_at(&versions, "1.33.13").await;
    world.wish(&own, "1.34.3", json!({})).await;
    world.run_until(2).await;
    let run = world.run_named("first-upgrade-2").await;
    let failed = ended_in(&run, "workers/upgrade/1", "Failed");
    world.run_status(&run, failed).await;
    let cluster = world.state(ClusterState::Failed).await;
    let message = condition(&cluster, "Stalled").unwrap().2;
    assert!(message.contains("retry first-upgrade-2"), "{message}");
    // New hosts wait for it.
    world.node("worker-3", "worker", "10.0.0.4").await;
    // What runs on some hosts is not taken back from them in silence.
    world.wish(&own, "1.33.13", json!({})).await;
    let message = world
        .stands_still("has begun the upgrade to Kubernetes 1.34.3")
        .await;
    assert!(message.contains("write 1.34.3"), "{message}");
    assert!(message.contains("retry first-upgrade-2"), "{message}");
    assert_eq!(world.run_until(2).await.len(), 2);
    // A newer one is a way on.
    world.wish(&own, "1.34.4", json!({})).await;
    world.run_until(3).await;
    let next = world.run_named("first-upgrade-3").await;
    let reason = next.spec.plan.reason.clone().unwrap();
    assert!(reason.contains("1.33.13 to 1.34.4"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_failed_before_it_touched_a_host_can() {
    let world = World::start().await;
    let own = world.built_at(&["1.34.4", "1.33.13"], "1.33.13").await;
    world.wish(&own, "1.34.4", json!({})).await;
    world.run_until(2).await;
    let run = world.run_named("first-upgrade-2").await;
    let failed = ended_in(&run, "drain/budgets", "Failed");
    world.run_status(&run, failed).await;
    world.state(ClusterState::Failed).await;
    world.wish(&own, "1.33.13", json!({})).await;
    world.state(ClusterState::Created).await;
    assert_eq!(world.run_until(2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_cancelled_in_the_middle_names_what_it_left() {
    let world = World::start().await;
    let own = world.built_at(&["1.34.4", "1.33.13"], "1.33.13").await;
    world.wish(&own, "1.34.4", json!({})).await;
    world.run_until(2).await;
    let run = world.run_named("first-upgrade-2").await;
    let ended = ended_in(&run, "workers/upgrade/2", "Cancelled");
    world.run_status(&run, ended).await;
    let message = world.not_carried_out().await;
    assert!(
        message.contains("Kubernetes 1.33.13 to 1.34.4"),
        "{message}"
    );
    assert!(message.contains("kubectl uncordon): worker-2"), "{message}");
    assert!(message.contains(START_AGAIN), "{message}");
    world.node("worker-3", "worker", "10.0.0.4").await;
    let message = world.stands_still("worker-3").await;
    assert!(
        message.contains("cannot join before the upgrade"),
        "{message}"
    );
    world.ask(&converge::ASKED, "now").await;
    assert!(
        world
            .answer(&converge::ASKED, "now")
            .await
            .refused
            .is_some()
    );
    let again = json!({"metadata": {"annotations": {START_AGAIN: "1"}}});
    let (clusters, again) = (world.all::<Cluster>(), Patch::Merge(again));
    clusters
        .patch("first", &PatchParams::default(), &again)
        .await
        .unwrap();
    world.run_until(3).await;
    let next = world.run_named("first-upgrade-3").await;
    assert_eq!(inputs(&next).hosts.len(), 3);
    // What the first one has cordoned is not taken for its owner's wish.
    let after = &parameters(&next, "gate/before")["after"];
    let left = json!({"run": "first-upgrade-2", "halfway": ["worker-2"]});
    assert_eq!(*after, left);
    world.run_status(&next, json!({"phase": "Succeeded"})).await;
    // Then the new host joins, with the version that the others have.
    world.run_until(4).await;
    let join = world.run_named("first-scale-4").await;
    assert_eq!(inputs(&join).kubernetes.unwrap().to_string(), "1.34.4");
    assert!(inputs(&join).operation_variables.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_failed_waits_for_a_person_whatever_else_succeeds() {
    let world = World::start().await;
    // The first one that is declared is the one that cannot leave.
    world.three_nodes().await;
    for number in [2, 3] {
        let (name, address) = (format!("master-{number}"), format!("10.0.0.1{number}"));
        world.node(&name, "master", &address).await;
    }
    let own = world.built_at(&["1.34.4", "1.33.13"], "1.33.13").await;
    world.wish(&own, "1.34.4", json!({})).await;
    world.run_until(2).await;
    let run = world.run_named("first-upgrade-2").await;
    let failed = ended_in(&run, "workers/upgrade/1", "Failed");
    world.run_status(&run, failed).await;
    world.state(ClusterState::Failed).await;
    world.ask(&renew::ASKED, "now").await;
    let renew = world.answer(&renew::ASKED, "now").await.run.unwrap();
    let renew = world.run_named(&renew).await;
    world
        .run_status(&renew, json!({"phase": "Succeeded"}))
        .await;
    let waits = |cluster: &Cluster| {
        let message = condition(cluster, "Ready").map(|(_, _, message)| message);
        message.is_some_and(|message| message.contains("retry first-upgrade-2"))
    };
    world.until("first", "waits", waits).await;
    // A control plane would have the others told of it by the old version: it waits, too.
    for name in ["master-2", "master-3"] {
        world.node_held(name).await;
        world.delete::<ClusterNode>(name).await;
    }
    let waits = |cluster: &Cluster| {
        let mut pending = cluster.status.iter().flat_map(|status| &status.pending);
        pending.any(|one| one.message.contains("leave a cluster of one version only"))
    };
    world.until("first", "waits", waits).await;
    assert_eq!(world.run_until(3).await.len(), 3);
    // Taken up again it is at work, though it is not the last one.
    world.run_status(&run, json!({"phase": "Running"})).await;
    world.state(ClusterState::Upgrading).await;
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.run_until(4).await;
    let remove = world.run_named("first-remove-4").await;
    assert_eq!(inputs(&remove).kubernetes.unwrap().to_string(), "1.34.4");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_worker_leaves_and_the_upgrade_goes_on() {
    let world = World::start().await;
    let own = world.built_at(&["1.34.4", "1.33.13"], "1.33.13").await;
    world.node_held("worker-2").await;
    world.wish(&own, "1.34.4", json!({})).await;
    world.run_until(2).await;
    let run = world.run_named("first-upgrade-2").await;
    let failed = ended_in(&run, "prepare/probe", "Failed");
    world.run_status(&run, failed).await;
    world.state(ClusterState::Failed).await;
    world.delete::<api::ClusterNode>("worker-2").await;
    world.run_until(3).await;
    let remove = world.run_named("first-remove-3").await;
    assert_eq!(inputs(&remove).kubernetes.unwrap().to_string(), "1.33.13");
    world
        .run_status(&remove, json!({"phase": "Succeeded"}))
        .await;
    world.run_until(4).await;
    let next = world.run_named("first-upgrade-4").await;
    assert_eq!(inputs(&next).hosts.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_upgrade_can_do_is_refused_with_the_remedy() {
    let world = World::start().await;
    let own = world
        .built_at(&["1.35.1", "1.33.13", "1.33.2"], "1.33.13")
        .await;
    let wish = async |version: &str, release: &str| {
        let source = json!({"version": release, "source": {"path": own}});
        let spec = json!({"kubernetesVersion": version, "kubespray": source});
        world.cluster("first", spec).await;
    };
    for (kubernetes, release, words) in [
        (
            "1.35.1",
            "2.30.0",
            [
                "installs no 1.34 to go by",
                "which kubespray 2.30.0 installs",
            ],
        ),
        (
            "1.33.2",
            "2.30.0",
            [
                "older than the installed 1.33.13",
                "write 1.33.13, or a newer one",
            ],
        ),
        (
            "1.33.13",
            "2.29.1",
            ["back to an older one", "write 2.30.0, or a newer one"],
        ),
    ] {
        wish(kubernetes, release).await;
        for words in words {
            world.stands_still(words).await;
        }
        let cluster = world.state(ClusterState::Created).await;
        assert!(
            is(&cluster, "Stalled", "InvalidSpec"),
            "{kubernetes} {release}"
        );
    }
    assert_eq!(world.run_until(1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_moves_to_the_next_one_where_it_is_written() {
    let world = World::start().await;
    let own = world.playbooks(&["1.34.4", "1.33.13"]);
    // Playbooks of nobody's release follow the one that is written.
    let galaxy = own.join("galaxy.yml");
    let text = std::fs::read_to_string(&galaxy).unwrap();
    let text = text.replace("2.30.0", "2.99.0");
    std::fs::write(&galaxy, text).unwrap();
    world.three_nodes().await;
    let wish = async |release: Option<&str>, variables: Value| {
        let mut spec = json!({
            "kubernetesVersion": "1.33.13", "kubespray": {"source": {"path": own}},
            "nodes": {"all": {"deploy": {"extraVars": variables}}},
        });
        if let Some(release) = release {
            spec["kubespray"]["version"] = json!(release);
        }
        world.cluster("first", spec).await;
    };
    wish(Some("2.29.1"), json!({"node_labels": {}})).await;
    let run = world.run_until(1).await.remove(0);
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.state(ClusterState::Created).await;
    // The newest one is nobody's wish: where nothing is written, what was built stays.
    wish(None, json!({"node_labels": {}})).await;
    world.ask(&converge::ASKED, "now").await;
    assert_eq!(
        world.answer(&converge::ASKED, "now").await.run.as_deref(),
        Some("first-converge-2")
    );
    let run = world.run_named("first-converge-2").await;
    assert_eq!(inputs(&run).kubespray.to_string(), "2.29.1");
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.state(ClusterState::Created).await;
    wish(Some("2.31.0"), json!({"node_labels": {}})).await;
    let message = world
        .stands_still("from one minor release to the next")
        .await;
    assert!(message.contains("write 2.30.0"), "{message}");
    assert_eq!(world.run_until(2).await.len(), 2);
    // With the variables that the spec has for it; a host that is to leave waits for it: the playbooks are of that release.
    world.node_held("worker-2").await;
    world.delete::<ClusterNode>("worker-2").await;
    wish(Some("2.30.0"), json!({"node_labels": {"a": "b"}})).await;
    world.run_until(3).await;
    let run = world.run_named("first-upgrade-3").await;
    let waits = |cluster: &Cluster| {
        let mut pending = cluster.status.iter().flat_map(|status| &status.pending);
        pending.any(|one| {
            one.message
                .contains("after the upgrade to kubespray 2.30.0")
        })
    };
    world.until("first", "waits", waits).await;
    let reason = run.spec.plan.reason.clone().unwrap();
    assert!(reason.contains("kubespray 2.29.1 to 2.30.0"), "{reason}");
    let given = inputs(&run);
    assert_eq!(given.kubespray.to_string(), "2.30.0");
    assert_eq!(given.kubernetes.unwrap().to_string(), "1.33.13");
    assert_eq!(given.variables["node_labels"]["a"], "b");
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.run_until(4).await;
    let run = world.run_named("first-remove-4").await;
    assert_eq!(inputs(&run).kubespray.to_string(), "2.30.0");
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    let status = world.state(ClusterState::Created).await.status.unwrap();
    assert_eq!(status.kubespray_version.unwrap().to_string(), "2.30.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn playbooks_that_cannot_upgrade_are_named() {
    let world = World::start().await;
    let own = world.built_at(&["1.34.4", "1.33.13"], "1.33.13").await;
    for file in ["upgrade-cluster.yml", "playbooks/upgrade_cluster.yml"] {
        std::fs::remove_file(own.join(file)).unwrap();
    }
    world.wish(&own, "1.34.4", json!({})).await;
    let message = world.stands_still("no upgrade-cluster.yml").await;
    assert!(message.contains("take the version back"), "{message}");
    assert_eq!(world.run_until(1).await.len(), 1);
}

mod kubespray_checkout {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "it needs a checkout of kubespray: WINDLASS_KUBESPRAY"]
    async fn its_batches_are_steps() {
        let checkout = std::env::var_os("WINDLASS_KUBESPRAY").unwrap();
        let checkout = PathBuf::from(checkout);
        let installable = ansible::catalogue::installable(&checkout).unwrap();
        let release = ansible::catalogue::contract(&checkout).release.unwrap();
        let wish = async |world: &World, version: String| {
            let source = json!({"version": release, "source": {"path": checkout}});
            let spec = json!({"kubernetesVersion": version, "kubespray": source});
            world.cluster("first", spec).await;
        };
        let world = World::start().await;
        world.three_nodes().await;
        wish(&world, installable.minimum.to_string()).await;
        let run = world.run_until(1).await.remove(0);
        world.run_status(&run, json!({"phase": "Succeeded"})).await;
        world.state(ClusterState::Created).await;
        wish(&world, installable.default.to_string()).await;
        world.run_until(2).await;
        let run = world.run_named("first-upgrade-2").await;
        let reason = run.spec.plan.reason.clone().unwrap();
        assert!(reason.contains("hop 1 of 2"), "{reason}");
        let order = [
            "prepare/upgrade",
            "etcd/install",
            "control-plane/upgrade/1",
            "gate/control-plane/upgrade/1",
            "network/upgrade/1",
            "network/upgrade/3",
            "workers/upgrade/1",
            "gate/workers/upgrade/2",
            "apps/install",
        ];
        let steps = steps(&run);
        let place = |id: &str| steps.iter().position(|step| *step == id).unwrap();
        assert!(order.map(place).is_sorted(), "{steps:?}");
        let gate = parameters(&run, "gate/network/upgrade/3");
        assert_eq!(
            gate.get("kubernetes"),
            None,
            "its node has the old version yet"
        );
    }
}
