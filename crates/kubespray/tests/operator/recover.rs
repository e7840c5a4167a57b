//! A cluster whose etcd lost its quorum is brought back when somebody asks, once for each request.

use std::collections::BTreeSet;

use api::{Cluster, ClusterNode, Run, cluster::ClusterState, cluster::ConvergeRequest};
use kubespray::{inputs::Inputs, playbooks::Own, request::RECOVER};
use serde_json::{Value, json};

use crate::{scale::targets, world::World};

impl World {
    /// A cluster of five hosts: three control planes with members of etcd, and two workers.
    async fn three_planes(&self) {
        for at in 1..=3 {
            self.node(&format!("master-{at}"), "master", &format!("10.0.0.1{at}"))
                .await;
        }
        for at in 1..=2 {
            self.node(&format!("worker-{at}"), "worker", &format!("10.0.0.2{at}"))
                .await;
        }
        self.cluster("first", json!({})).await;
        let run = self.run_until(1).await.remove(0);
        self.run_status(&run, json!({"phase": "Succeeded"})).await;
        self.state(ClusterState::Created).await;
    }

    /// What becomes of a request.
    async fn recovers(&self, request: &Value) -> ConvergeRequest {
        let text = request
            .as_str()
            .map_or_else(|| request.to_string(), str::to_owned);
        let asked = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "annotations": {RECOVER: text}},
            "spec": {"kubespray": {"source": {"path": crate::world::BUNDLE}}},
        });
        self.apply::<Cluster>("first", asked).await;
        let answered = |cluster: &Cluster| {
            let status = cluster.status.as_ref()?.recover.clone()?;
            let first: String = text.chars().take(512).collect();
            (status.request == first).then_some(status)
        };
        let cluster = self
            .until("first", "an answer", |cluster| answered(cluster).is_some())
            .await;
        answered(&cluster).unwrap()
    }
}

fn ids(run: &Run) -> Vec<&str> {
    let steps = run.spec.plan.steps.iter();
    steps.map(|step| step.id.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_is_founded_on_what_is_left_though_the_first_host_is_lost() {
    let world = World::start().await;
    world.three_planes().await;
    let request = json!({
        "at": "1", "confirm": "first", "giveUp": ["master-1", "master-2"],
    });
    let answer = world.recovers(&request).await;
    assert_eq!(answer.run.as_deref(), Some("first-recover-2"), "{answer:?}");
    let run = world.run_named("first-recover-2").await;
    world.run_status(&run, json!({"phase": "Running"})).await;
    world.state(ClusterState::Recovering).await;

    let gone = ["master-1", "master-2"];
    for id in ids(&run) {
        let expected: &[&str] = match id {
            "prepare/sandbox" => &[],
            "endpoints/probe" | "health/check" | "endpoints/facts" => {
                &["master-3", "worker-1", "worker-2"]
            }
            "recover/probe" | "recover/set-aside" | "forget/nodes" => &gone,
            "recover/quorum" => &["master-1", "master-2", "master-3"],
            "endpoints/nodes" => &["master-3", "worker-1", "worker-2"],
            // Those of remove-node.yml.
            id if ["preamble/", "bootstrap/", "remove/"]
                .iter()
                .any(|part| id.starts_with(part)) =>
            {
                &gone
            }
            _ => &["master-3"],
        };
        let mut hosts = targets(&run, id);
        hosts.sort();
        assert_eq!(hosts, expected, "{id}");
    }
    let place = |id: &str| {
        let place = ids(&run).iter().position(|step| *step == id);
        place.unwrap_or_else(|| panic!("{id}: {:?}", ids(&run)))
    };
    let order = [
        "prepare/probe",
        "recover/quorum",
        "recover/check",
        "recover/set-aside",
        "recover/found",
        "recover/founded",
        "recover/serve-1",
        "recover/kubeconfig",
        "remove/reset",
        "forget/nodes",
        "endpoints/control-plane",
        "health/check",
    ];
    assert!(order.map(place).is_sorted(), "{:?}", ids(&run));
    let all: BTreeSet<&str> = ids(&run).into_iter().collect();
    assert_eq!(all.len(), ids(&run).len(), "{:?}", ids(&run));
    let inputs = Inputs::from_map(&run.spec.plan.inputs).unwrap();
    let order = &inputs.inventory.order;
    assert_eq!(order["etcd"], ["master-3".parse().unwrap()]);
    assert_eq!(order["kube_control_plane"], ["master-3".parse().unwrap()]);
    assert_eq!(inputs.inventory.etcd_member_names["master-3"], "etcd3");
    let variables = &inputs.operation_variables;
    assert_eq!(
        variables["windlass_old_head_addresses"],
        json!(["10.0.0.11"])
    );
    assert!(!variables.contains_key("windlass_recover_snapshot"));
    let reason = run.spec.plan.reason.clone().unwrap();
    assert!(
        reason.contains("the first of etcd was master-1, and is master-3 from then on"),
        "{reason}"
    );
    let step = &run.spec.plan.steps[place("recover/found")];
    let step = serde_json::to_value(step).unwrap();
    assert_eq!(
        step["action"]["engine"]["parameters"]["own"],
        Own::RecoverEtcd.digest()
    );

    // Nothing is asked twice, the dead one goes, and the other joins again, a new one.
    world.delete::<ClusterNode>("master-1").await;
    world.node("master-4", "master", "10.0.0.14").await;
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.run_until(3).await;
    let joins = world.run_named("first-scale-3").await;
    let inputs = Inputs::from_map(&joins.spec.plan.inputs).unwrap();
    assert_eq!(
        inputs.inventory.order["etcd"],
        ["master-3".parse().unwrap(), "master-2".parse().unwrap()]
    );
    world
        .run_status(&joins, json!({"phase": "Succeeded"}))
        .await;
    world.run_until(4).await;
    let joins = world.run_named("first-scale-4").await;
    world
        .run_status(&joins, json!({"phase": "Succeeded"}))
        .await;
    let status = world.state(ClusterState::Created).await.status.unwrap();
    let order = &status.inventory.unwrap().order["kube_control_plane"];
    let order: Vec<_> = order.iter().map(ToString::to_string).collect();
    assert_eq!(order, ["master-3", "master-2", "master-4"]);
    assert!(
        world
            .all::<ClusterNode>()
            .get_opt("master-1")
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_meant_or_cannot_be_is_refused() {
    let world = World::start().await;
    world.three_planes().await;
    let ask = |at: usize, give_up: Value| json!({"at": at.to_string(), "confirm": "first", "giveUp": give_up});
    let long = "x".repeat(600);
    let mut unconfirmed = ask(1, json!(["master-2", "master-3"]));
    unconfirmed["confirm"] = json!("");
    let mut relative = ask(2, json!(["master-2", "master-3"]));
    relative["snapshot"] = json!("../snapshot.db");
    let mut unknown = ask(3, json!([]));
    unknown["force"] = json!(true);
    let cases: [(Value, &str); 11] = [
        (json!("yes"), "it is no request"),
        (json!(long), "at most 512"),
        (unknown, "unknown field `force`"),
        (
            unconfirmed,
            "what these hosts have and no other: master-2 (a control plane with a member of etcd)",
        ),
        (relative, "absolute path of a file"),
        (
            ask(4, json!(["master-2"])),
            "the others join it again: master-1, master-3 stay",
        ),
        (
            ask(5, json!(["master-1", "master-2", "master-3"])),
            "one control plane must stay",
        ),
        (
            ask(6, json!(["master-2", "master-3", "worker-1"])),
            "node remove worker-1",
        ),
        (
            ask(7, json!(["master-2", "master-9"])),
            "those of etcd are master-1, master-2, master-3",
        ),
        (
            ask(8, json!(["master-2", "master-2", "master-3"])),
            "it stands there twice",
        ),
        (ask(9, json!([])), "give up all of them but one"),
    ];
    for (request, words) in cases {
        let answer = world.recovers(&request).await;
        let why = answer.refused.unwrap_or_default();
        assert!(why.contains(words), "{request}: {why}");
    }
    world.run_until(1).await;
}

/// Nothing else is begun between a recovery that changed something and its end.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_given_up_in_the_middle_holds_up_the_rest_until_it_is_done() {
    let world = World::start().await;
    world.three_planes().await;
    let ask = |at: &str| {
        json!({
            "at": at, "confirm": "first", "giveUp": ["master-2", "master-3"],
            "snapshot": "/var/backups/snapshot.db",
        })
    };
    world.recovers(&ask("1")).await;
    let run = world.run_named("first-recover-2").await;
    let inputs = Inputs::from_map(&run.spec.plan.inputs).unwrap();
    let file = &inputs.operation_variables["windlass_recover_snapshot"];
    assert_eq!(file, "/var/backups/snapshot.db");
    let came =
        json!({"phase": "Cancelled", "steps": [{"id": "recover/found", "phase": "Succeeded"}]});
    world.run_status(&run, came).await;
    world.node("worker-3", "worker", "10.0.0.23").await;
    let told = |cluster: &Cluster| {
        let text = serde_json::to_string(&cluster.status).unwrap();
        text.contains("the recovery that run first-recover-2 has begun")
    };
    world
        .until("first", "the recovery to be told of", told)
        .await;
    world.run_until(2).await;
    // The order is what it was: nothing was done in another one.
    let cluster = world.all::<Cluster>().get("first").await.unwrap();
    let order = &cluster.status.unwrap().inventory.unwrap().order["etcd"];
    assert_eq!(order.len(), 3);

    let answer = world.recovers(&ask("2")).await;
    assert_eq!(answer.run.as_deref(), Some("first-recover-3"), "{answer:?}");
    // That one fails before it touches anything: what the first one has begun is as it was.
    let again = world.run_named("first-recover-3").await;
    let failed = json!({"phase": "Failed", "steps": [{"id": "prepare/probe", "phase": "Failed"}]});
    world.run_status(&again, failed).await;
    world
        .until("first", "the recovery to be told of again", told)
        .await;
    world.run_until(3).await;

    let answer = world.recovers(&ask("3")).await;
    assert_eq!(answer.run.as_deref(), Some("first-recover-4"), "{answer:?}");
    let again = world.run_named("first-recover-4").await;
    world
        .run_status(&again, json!({"phase": "Succeeded"}))
        .await;
    world.run_until(5).await;
}
