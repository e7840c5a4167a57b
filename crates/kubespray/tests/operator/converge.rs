//! A built cluster converges when somebody asks, once for each request.

use api::{
    Cluster, Run,
    cluster::{ClusterState, ConvergeRequest},
};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use kubespray::{
    Layout,
    inputs::Inputs,
    operation::{asked::Asked, converge},
    preview::{self, PreviewOutcome},
    request::CONVERGE,
};
use serde_json::json;

use crate::world::{World, condition, is};

impl World {
    /// Somebody asks for an operation.
    pub async fn ask(&self, asked: &Asked, request: &str) {
        let patch = json!({"metadata": {"annotations": {asked.annotation: request}}});
        self.all::<Cluster>()
            .patch("first", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    /// What was answered to that request.
    pub async fn answer(&self, asked: &Asked, request: &str) -> ConvergeRequest {
        let answer = |cluster: &Cluster| (asked.answered)(cluster.status.as_ref()?).cloned();
        let answered = |cluster: &Cluster| answer(cluster).is_some_and(|is| is.request == request);
        let cluster = self.until("first", "answers", answered).await;
        answer(&cluster).unwrap()
    }

    pub async fn state(&self, state: ClusterState) -> Cluster {
        self.until("first", &format!("is {state:?}"), |cluster| {
            let status = cluster.status.as_ref();
            status.is_some_and(|status| status.state == Some(state))
        })
        .await
    }

    pub async fn run_named(&self, name: &str) -> Run {
        self.all::<Run>().get(name).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_runs_the_playbooks_over_the_built_cluster_once() {
    let world = World::start().await;
    world.built().await;
    world.ask(&converge::ASKED, "1").await;
    let answer = world.answer(&converge::ASKED, "1").await;
    assert_eq!(answer.run.as_deref(), Some("first-converge-2"));
    let run = world.run_named("first-converge-2").await;
    assert_eq!(run.spec.operation, "Converge");
    let built = world.run_named("first-create-1").await;
    let steps = |run: &Run| {
        let steps = run.spec.plan.steps.iter();
        steps.map(|step| step.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(steps(&run), steps(&built));

    world.run_status(&run, json!({"phase": "Running"})).await;
    world.state(ClusterState::Converging).await;
    // Another one while this one is under way is refused, and stays so when it has ended.
    world.ask(&converge::ASKED, "2").await;
    let refused = world.answer(&converge::ASKED, "2").await.refused.unwrap();
    assert!(refused.contains("first-converge-2"), "{refused}");
    assert_eq!(world.events("ConvergeRefused").await, [refused]);

    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    let created = world.state(ClusterState::Created).await;
    let last = created.status.unwrap().last_operation.unwrap();
    assert_eq!(last.operation, "Converge");
    assert_eq!(world.run_until(2).await.len(), 2);
    world.ask(&converge::ASKED, "3").await;
    let answer = world.answer(&converge::ASKED, "3").await;
    assert_eq!(answer.run.as_deref(), Some("first-converge-3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_stored_before_a_crash_is_the_answer() {
    let world = World::start().await;
    world.built().await;
    world.ask(&converge::ASKED, "1").await;
    world.answer(&converge::ASKED, "1").await;
    let run = world.run_named("first-converge-2").await;
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.state(ClusterState::Created).await;
    // As after a crash between the two writes.
    let lost = json!({"status": {"converge": null}});
    world
        .all::<Cluster>()
        .patch_status("first", &PatchParams::default(), &Patch::Merge(&lost))
        .await
        .unwrap();
    world.three_nodes().await;
    world
        .cluster("first", json!({"ssh": {"user": "admin"}}))
        .await;
    assert_eq!(
        world.answer(&converge::ASKED, "1").await.run.unwrap(),
        run.name_any()
    );
    assert_eq!(world.run_until(2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_refused_while_the_cluster_is_not_built() {
    let world = World::start().await;
    world.three_nodes().await;
    world.cluster("first", json!({})).await;
    let run = world.run_until(1).await.remove(0);
    world.ask(&converge::ASKED, "early").await;
    let refused = world
        .answer(&converge::ASKED, "early")
        .await
        .refused
        .unwrap();
    assert!(refused.contains("not built yet"), "{refused}");
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.state(ClusterState::Created).await;
    assert_eq!(world.run_until(1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn converging_changes_variables_and_refuses_other_members() {
    let world = World::start().await;
    world.built().await;
    let variables =
        json!({"nodes": {"all": {"deploy": {"extraVars": {"node_labels": {"a": "b"}}}}}});
    world.cluster("first", variables).await;
    let stalled = world
        .until("first", "says what is missing", |c| {
            is(c, "Stalled", "NotCarriedOut")
        })
        .await;
    let message = condition(&stalled, "Stalled").unwrap().2;
    assert!(message.contains("converge"), "{message}");
    world.ask(&converge::ASKED, "variables").await;
    let run = world
        .run_named(
            &world
                .answer(&converge::ASKED, "variables")
                .await
                .run
                .unwrap(),
        )
        .await;
    let inputs = Inputs::from_map(&run.spec.plan.inputs).unwrap();
    assert_eq!(inputs.variables["node_labels"]["a"], "b");
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world
        .until("first", "has them", |c| condition(c, "Stalled").is_none())
        .await;

    world.node("reflector", "calico-rr", "10.0.0.4").await;
    world
        .until("first", "sees the host", |c| {
            is(c, "Stalled", "NotCarriedOut")
        })
        .await;
    world.ask(&converge::ASKED, "a host").await;
    let refused = world
        .answer(&converge::ASKED, "a host")
        .await
        .refused
        .unwrap();
    assert!(refused.contains("host reflector"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_request_would_come_to_is_shown_and_nothing_is_touched() {
    let world = World::start().await;
    world.built().await;
    let variables =
        json!({"nodes": {"all": {"deploy": {"extraVars": {"node_labels": {"a": "b"}}}}}});
    world.cluster("first", variables).await;
    let cluster = world
        .until("first", "says what is missing", |c| {
            is(c, "Stalled", "NotCarriedOut")
        })
        .await;
    let data = tempfile::tempdir().unwrap();
    let preview = async || {
        let cluster = world.all::<Cluster>().get("first").await.unwrap();
        preview::asked(
            &world.client,
            &cluster,
            (CONVERGE, "now"),
            &Layout::new(data.path()),
        )
        .await
        .unwrap()
    };
    let shown = preview().await;
    assert_eq!(
        shown.changes,
        ["spec.nodes.all.deploy.extraVars: node_labels"]
    );
    let PreviewOutcome::Plan(plan) = shown.outcome else {
        panic!("{shown:?}");
    };
    assert_eq!(world.run_until(1).await.len(), 1);
    let after = world.all::<Cluster>().get("first").await.unwrap();
    assert_eq!(after.resource_version(), cluster.resource_version());

    world.ask(&converge::ASKED, "variables").await;
    let run = world
        .run_named(
            &world
                .answer(&converge::ASKED, "variables")
                .await
                .run
                .unwrap(),
        )
        .await;
    assert_eq!(run.spec.plan.steps, plan.steps);
    assert_eq!(run.spec.plan.reason, plan.reason);
    let refused = preview().await.outcome;
    let under_way = |why: &String| why.contains(&run.name_any());
    assert!(
        matches!(&refused, PreviewOutcome::Refused(why) if under_way(why)),
        "{refused:?}"
    );
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    world.state(ClusterState::Created).await;
    assert!(preview().await.changes.is_empty());
    world.node("worker-3", "worker", "10.0.0.4").await;
    world.run_until(3).await;
    let refused = preview().await.outcome;
    assert!(
        matches!(&refused, PreviewOutcome::Refused(why) if why.contains("first-scale-3")),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_one_is_shown_until_the_next_and_no_name_comes_again() {
    let world = World::start().await;
    world.built().await;
    world.ask(&converge::ASKED, "1").await;
    world.answer(&converge::ASKED, "1").await;
    let run = world.run_named("first-converge-2").await;
    let failure = json!({"class": "External", "code": "X", "message": "no way", "targets": []});
    world
        .run_status(&run, json!({"phase": "Failed", "failure": failure}))
        .await;
    let failed = world.state(ClusterState::Failed).await;
    assert!(is(&failed, "Stalled", "RunFailed"));
    // Its files on a machine must not be taken for those of another run.
    world.delete::<Run>("first-converge-2").await;
    world.state(ClusterState::Created).await;
    world.delete::<Run>("first-create-1").await;
    world.ask(&converge::ASKED, "2").await;
    assert_eq!(
        world.answer(&converge::ASKED, "2").await.run.unwrap(),
        "first-converge-3"
    );
}
