//! Gates on the embedded API: a rule is asked where the Cluster is read, and the roll-out tells what it waits for.

use api::{
    Cluster,
    inventory::{Environment, FleetCluster, MemberPhase, Rollout},
};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::world::{FLEET, World, environment, inventory, is_ready};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_done_when_the_rule_about_it_is_true() {
    let world = World::start().await;
    inventory(&world).await;
    for name in ["a1", "a2", "b1", "b2", "c1"] {
        world.until::<FleetCluster>(name, "born", is_ready).await;
    }
    let gate = json!({
        "rule": "self.metadata.annotations['acme.example/tested'] == self.spec.kubernetesVersion",
        "message": "nobody has tested it",
    });
    world
        .apply::<Rollout>("all", json!({"soak": "0s", "gates": [gate]}))
        .await;
    world
        .apply::<Environment>("production", environment("1.34.4"))
        .await;
    let waits = |rollout: &Rollout, words: &str| {
        let waits = rollout
            .status
            .as_ref()
            .and_then(|status| status.waits.as_ref());
        waits.is_some_and(|waits| waits.ends_with(words))
    };
    world
        .until::<Rollout>("all", "no answer", |rollout| {
            waits(
                rollout,
                "nobody has tested it (no answer: no such key: acme.example/tested)",
            )
        })
        .await;
    let clusters = world.all::<Cluster>("a1");
    let test = async |version: &str| {
        let tested = json!({"metadata": {"annotations": {"acme.example/tested": version}}});
        clusters
            .patch("a1", &PatchParams::default(), &Patch::Merge(&tested))
            .await
            .unwrap();
    };
    test("1.34.3").await;
    world
        .until::<Rollout>("all", "not true", |rollout| {
            waits(rollout, "is not open: nobody has tested it")
        })
        .await;
    test("1.34.4").await;
    world
        .until::<Rollout>("all", "true", |rollout| {
            let run = rollout
                .status
                .as_ref()
                .and_then(|status| status.run.as_ref());
            let mut members = run.into_iter().flat_map(|run| &run.clusters);
            members.any(|member| member.name == "a1" && member.phase == MemberPhase::Done)
        })
        .await;
}

#[tokio::test]
async fn a_gate_is_a_condition_or_a_rule() {
    let world = World::start().await;
    let rollouts = world.all::<Rollout>(FLEET);
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    for (gate, refused) in [
        (json!({"type": "Ready", "status": "True"}), None),
        (json!({"rule": "self.status.ready == true"}), None),
        (json!({"rule": "true", "message": "never"}), None),
        (json!({}), Some("give one of the two")),
        (
            json!({"type": "Ready", "status": "True", "rule": "true"}),
            Some("give one of the two"),
        ),
        (json!({"type": "Ready"}), Some("a gate by type names")),
        (
            json!({"rule": "true", "status": "True"}),
            Some("a gate by type names"),
        ),
        (
            json!({"type": "Ready", "status": "True", "message": "never"}),
            Some("a message is of a rule"),
        ),
    ] {
        let rollout: Rollout = serde_json::from_value(json!({
            "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "Rollout",
            "metadata": {"name": "all"}, "spec": {"gates": [gate]},
        }))
        .unwrap();
        let answer = rollouts.create(&parameters, &rollout).await;
        match refused {
            None => assert!(answer.is_ok(), "{gate}: {answer:?}"),
            Some(words) => {
                let told = format!("{:?}", answer.unwrap_err());
                assert!(told.contains(words), "{gate}: {told}");
            }
        }
    }
}
