//! Steps that take nodes out of a cluster through its API: their pods go elsewhere, then the nodes go.
//!
//! As `kubectl drain --force --ignore-daemonsets --delete-emptydir-data` does it: pods of DaemonSets and mirrors of static pods
//! stay, every other pod is evicted, and an eviction that a PodDisruptionBudget refuses is asked for again.

use std::{collections::BTreeMap, time::Duration};

use api::{
    HostName,
    run::{FailureClass, Step},
};
use tokio::time::Instant;
use workflow::{StepContext, StepOutcome, StepProgress};

use super::{
    executor::{KubesprayExecutor, failed, hold_within, succeeded},
    work::{ClusterWork, PATIENCE},
    workspace::failure,
};
pub(super) use crate::budgets::{first, named};
use crate::{
    action,
    budgets::Going,
    workload::{Workload, is_ready},
};

/// How often is asked again.
const LOOK: Duration = Duration::from_secs(2);
/// How long a step may take that says nothing.
const DEADLINE: Duration = Duration::from_mins(10);

/// Tells which pods cannot go elsewhere, before one was asked to.
pub(crate) async fn budgets(
    executor: &KubesprayExecutor,
    step: &Step,
    forced: &[HostName],
) -> StepOutcome {
    let looked = async {
        let cluster = connect(&executor.work, PATIENCE).await?;
        let hosts = action::hosts_of(executor.work.plan.plan(), step);
        Going::of(&cluster, &hosts, forced).await
    };
    match looked.await {
        Err(error) => failed(unanswered(error)),
        Ok(Going { held, .. }) if !held.is_empty() => failed(failure(
            FailureClass::Config,
            "BudgetForbids",
            format!(
                "no PodDisruptionBudget lets these pods go, now or later: {}",
                first(&held)
            ),
            Some(if executor.work.inputs.leaving.is_empty() {
                "give their workloads more replicas, or the budget a disruption that it allows, then retry the run; no node has been \
                 touched"
            } else {
                "give their workloads more replicas, or the budget a disruption that it allows, then retry the run; or give the \
                 pods up: windlass node remove NAME --force"
            }),
        )),
        Ok(Going { number, alone, .. }) if alone.is_empty() => {
            succeeded(Some(format!("{number} pods go elsewhere")))
        }
        Ok(Going { number, alone, .. }) => succeeded(Some(format!(
            "{number} pods go; without a controller, and lost: {}",
            first(&alone)
        ))),
    }
}

/// Cordons the nodes, and has their pods go elsewhere.
pub(crate) async fn drain(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
    forced: &[HostName],
) -> StepOutcome {
    let hosts = action::hosts_of(executor.work.plan.plan(), step);
    // Nobody leaves: a person wants the nodes without their pods.
    let stays = executor.work.inputs.leaving.is_empty();
    let limit = step.timeout.map_or(DEADLINE, Duration::from);
    // Ends before the step's timeout does, to say what is left rather than that time is up.
    let mut deadline = Instant::now() + limit.mul_f64(0.95);
    loop {
        if let Err(outcome) = hold_within(step, context, &mut deadline).await {
            return outcome;
        }
        let left = match connect(&executor.work, Duration::ZERO).await {
            Ok(cluster) => round(&cluster, &hosts, forced, stays).await,
            Err(error) => Err(error),
        };
        let trouble = match left {
            Ok(left) if left.is_empty() => {
                return succeeded(Some("no pod is left but those of DaemonSets".to_owned()));
            }
            Ok(left) => format!("{} pods left: {}", left.len(), first(&left)),
            Err(error) => error,
        };
        if Instant::now() >= deadline {
            return failed(failure(
                FailureClass::Transient,
                "DrainBlocked",
                format!("after {} s there are {trouble}", limit.as_secs()),
                Some(if stays {
                    "let them go, then retry the run; or give them up: windlass node drain NAME --force; or let pods come again: \
                     windlass node uncordon NAME"
                } else {
                    "let them go, then retry the run; or give them up: windlass node remove NAME --force; or keep the host: \
                     windlass node keep NAME"
                }),
            ));
        }
        let progress = StepProgress {
            activity: Some(trouble),
            ..StepProgress::default()
        };
        if context.reporter.progress(&step.id, progress).await.is_err() {
            return StepOutcome::Interrupted { detail: None };
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Asks each pod that is still there to go, and says what is left.
async fn round(
    cluster: &Workload,
    hosts: &[HostName],
    forced: &[HostName],
    stays: bool,
) -> Result<Vec<String>, String> {
    let mut silent = BTreeMap::new();
    // All of them first: what leaves one does not come to the next.
    for host in hosts {
        if let Some(node) = cluster.node(host).await? {
            if stays {
                cluster.keep_out(&node).await?;
            } else {
                cluster.cordon(&node).await?;
            }
            silent.insert(host, !is_ready(&node));
        }
    }
    let mut left = Vec::new();
    for (host, silent) in silent {
        for pod in cluster.pods(host).await? {
            let answer = match pod.metadata.deletion_timestamp {
                // Nobody is there to end it: it goes with the node.
                Some(_) if silent => None,
                Some(_) => Some("is ending".to_owned()),
                None => cluster.end(&pod, forced.contains(host)).await?,
            };
            left.extend(answer.map(|answer| format!("{} on {host} {answer}", named(&pod))));
        }
    }
    Ok(left)
}

/// Deletes the nodes.
pub(crate) async fn forget(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
    forced: &[HostName],
) -> StepOutcome {
    let hosts = action::hosts_of(executor.work.plan.plan(), step);
    let left_out = action::hosts_left_out(&context.excluded);
    let limit = step.timeout.map_or(DEADLINE, Duration::from);
    let mut deadline = Instant::now() + limit.mul_f64(0.95);
    loop {
        if let Err(outcome) = hold_within(step, context, &mut deadline).await {
            return outcome;
        }
        let (class, code, trouble) = match forgotten(executor, &hosts, &left_out, forced).await {
            Ok(running) if running.is_empty() => {
                let not_reset: Vec<_> = hosts
                    .iter()
                    .filter(|host| left_out.contains(host))
                    .collect();
                return succeeded((!not_reset.is_empty()).then(|| {
                    let names: Vec<_> = not_reset.iter().map(ToString::to_string).collect();
                    format!(
                        "not reset, because they did not answer: {}; reset them before they are switched on again, or they come back as nodes",
                        first(&names)
                    )
                }));
            }
            Ok(running) => (
                FailureClass::External,
                "StillRunning",
                format!(
                    "they do not answer, so they were not reset, and they are Ready nodes of the cluster: {}",
                    first(&running)
                ),
            ),
            Err(error) => (FailureClass::Transient, "APIServerUnreachable", error),
        };
        if Instant::now() >= deadline {
            return failed(failure(
                class,
                code,
                trouble,
                Some(
                    "have them answer ssh, or switch them off, then retry the run; or remove them as they are: windlass node remove \
                     NAME --force",
                ),
            ));
        }
        let progress = StepProgress {
            activity: Some(trouble),
            ..StepProgress::default()
        };
        if context.reporter.progress(&step.id, progress).await.is_err() {
            return StepOutcome::Interrupted { detail: None };
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Deletes the nodes that may be deleted, and says which may not.
async fn forgotten(
    executor: &KubesprayExecutor,
    hosts: &[HostName],
    left_out: &[HostName],
    forced: &[HostName],
) -> Result<Vec<String>, String> {
    let cluster = connect(&executor.work, PATIENCE).await?;
    let mut running = Vec::new();
    for host in hosts {
        let Some(node) = cluster.node(host).await? else {
            continue;
        };
        if left_out.contains(host) && is_ready(&node) && !forced.contains(host) {
            running.push(host.to_string());
        } else {
            cluster.delete(&node).await?;
        }
    }
    Ok(running)
}

/// The cluster that the run is of.
pub(super) async fn connect(work: &ClusterWork, patience: Duration) -> Result<Workload, String> {
    Workload::connect(&work.access(patience).await?).await
}

pub(super) fn unanswered(error: String) -> api::run::Failure {
    failure(
        FailureClass::Transient,
        "APIServerUnreachable",
        error,
        Some("see to the control plane, then retry the run"),
    )
}
