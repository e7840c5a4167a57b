//! Brings what is to be moved to rest: marks it, and takes the cluster's Lease so that no runner works.

use std::time::Duration;

use api::{
    Run,
    run::{RunPhase, RunnerIdentity},
};
use controller::lease::{Candidate, Claim, Error};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kubespray::{
    cluster::plan::{is_active, phase},
    moving::{MOVING, leaving},
    process::is_gone,
    runner::lease_name,
};
use serde_json::json;
use tokio::time::Instant;

use super::{
    Tell, Wish,
    graph::{self, Graph},
    side::{Item, Kind, Side, is_marked},
};

/// How the name begins under which a move holds a cluster's Lease.
pub(super) const HOLDER: &str = "windlass move to ";

/// How often a run that is to pause is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Marks everything, the Cluster first so that nothing new is begun, then waits until nobody works.
pub(super) async fn settle(
    source: &Side,
    target: &Side,
    graph: &Graph,
    wish: &Wish,
    tell: Tell<'_>,
) -> anyhow::Result<()> {
    let mark = leaving(&target.place());
    for cluster in graph.clusters() {
        put(source, cluster, &mark).await?;
    }
    // A run that was made meanwhile is among these.
    for kind in [Kind::Run, Kind::ClusterNode] {
        for item in source.list(kind).await? {
            put(source, &item, &mark).await?;
        }
    }
    tell(&format!(
        "marked {} objects: nothing is begun here any more",
        graph
            .items
            .iter()
            .filter(|item| item.kind.is_ours())
            .count()
    ));
    for cluster in graph.clusters() {
        take(source, target, cluster, wish, tell).await?;
    }
    // And a run whose maker had not seen the mark: the Lease keeps its runner from working.
    for item in source.list(Kind::Run).await? {
        put(source, &item, &mark).await?;
    }
    ended(source, wish).await
}

async fn put(source: &Side, item: &Item, mark: &str) -> anyhow::Result<()> {
    if is_marked(&item.object) {
        return Ok(());
    }
    source
        .patch_metadata(item, json!({"annotations": {MOVING: mark}}))
        .await
}

/// Takes the Lease with a generation that no run can have: whoever comes later is refused for good.
async fn take(
    source: &Side,
    target: &Side,
    cluster: &Item,
    wish: &Wish,
    tell: Tell<'_>,
) -> anyhow::Result<()> {
    let resource = cluster.kind.resource();
    let claim = Claim {
        name: lease_name(&cluster.name()),
        // The same at every try, so that the next one may go on.
        holder: format!("{HOLDER}{}", target.place()),
        generation: i64::MAX,
        owner: Some(OwnerReference {
            api_version: resource.api_version,
            kind: resource.kind,
            name: cluster.name(),
            uid: cluster.object.uid().unwrap_or_default(),
            ..OwnerReference::default()
        }),
    };
    let deadline = Instant::now() + wish.timeout;
    let mut told = String::new();
    let mut candidate = Candidate::new(
        source.client.clone(),
        source.namespace.clone(),
        claim,
        is_gone,
    );
    loop {
        match candidate.attempt().await {
            Ok(()) => return Ok(()),
            Err(Error::Held { .. }) => {}
            Err(Error::Api {
                source: kube::Error::Api(status),
                ..
            }) if status.code == 409 => continue,
            Err(error) => {
                return Err(anyhow::Error::new(error).context("failed to take the cluster's Lease"));
            }
        }
        let waiting = waiting(source).await?;
        anyhow::ensure!(
            Instant::now() < deadline,
            "--timeout {}s: {waiting} has not paused, and its runner holds the cluster's Lease. Everything is still here and \
             marked; start the same command again, with a longer --timeout, or take the move back with --abort",
            wish.timeout.as_secs()
        );
        if waiting != told {
            tell(&format!(
                "waiting for {waiting} to pause at a task boundary"
            ));
            told = waiting;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What is waited for, for people.
async fn waiting(source: &Side) -> anyhow::Result<String> {
    let graph = graph::read(source).await?;
    let active = graph.runs().find(|run| is_active(phase(run)));
    Ok(active.map_or_else(
        || "the last run".to_owned(),
        |run| {
            let step = run.status.as_ref().and_then(|status| status.step.clone());
            match step {
                Some(step) => format!("Run/{} (at {step})", run.name_any()),
                None => format!("Run/{}", run.name_any()),
            }
        },
    ))
}

/// The Lease is ours, so no runner that sees the API works. One that did not see it for a while, and went on, stops when it
/// sees it again: it is given the time for that.
async fn ended(source: &Side, wish: &Wish) -> anyhow::Result<()> {
    let deadline = Instant::now() + wish.settle;
    loop {
        let graph = graph::read(source).await?;
        let unknown = graph.runs().any(|run| may_work(&run));
        if !unknown || Instant::now() >= deadline {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn may_work(run: &Run) -> bool {
    let runner = run
        .status
        .as_ref()
        .and_then(|status| status.runner.as_ref());
    let is_alive = |runner: &RunnerIdentity| !is_gone(&runner.id);
    matches!(phase(run), RunPhase::Running | RunPhase::Waiting) && runner.is_some_and(is_alive)
}
