//! What becomes of the pods of a step that has ended: they are deleted, or it is said which may be left.

use std::time::Duration;

use api::{run::Step, text::plain};
use futures::{StreamExt, stream};
use kube::ResourceExt;
use workflow::{Signal, StepContext, StepOutcome};

use super::{
    LOOK, Trouble, Wanted, keep_log,
    pods::{ANSWER, Pods},
    remove,
};
use crate::runner::executor::KubesprayExecutor;

/// How long it is tried.
const CLEARING: Duration = Duration::from_mins(1);
/// How many pods at a time.
const AT_A_TIME: usize = 16;
/// How many pods a message names.
const NAMED: usize = 5;

/// Removes the pods of a step that has ended, until the API has taken that, for a minute at most, or ten seconds from a stop on. Gives
/// the names of those that may be left: another attempt or the next run with a hook removes them.
pub(super) async fn clear(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
    wanted: &mut [Wanted],
) -> Vec<String> {
    tokio::select! {
        () = clearing(executor, step, wanted) => {}
        () = enough(context) => {}
    }
    let left = wanted.iter().filter(|one| !one.gone);
    let left: Vec<_> = left.map(named).collect();
    if !left.is_empty() {
        tracing::warn!(pods = left.join(", "), "pods of a hook were not removed");
    }
    left
}

async fn clearing(executor: &KubesprayExecutor, step: &Step, wanted: &mut [Wanted]) {
    loop {
        // Another runner may be at work on them.
        executor.proven().await;
        if let Ok(pods) = Pods::connect(&executor.work).await {
            let left = wanted.iter_mut().filter(|one| !one.gone);
            let asked: Vec<_> = left
                .map(|one| clear_one(executor, &pods, step, one))
                .collect();
            let asked = stream::iter(asked).buffer_unordered(AT_A_TIME);
            asked.for_each(|()| std::future::ready(())).await;
        }
        if wanted.iter().all(|one| one.gone) {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns when it was tried for long enough.
async fn enough(context: &StepContext) {
    tokio::select! {
        () = tokio::time::sleep(CLEARING) => {}
        () = stopped(context) => tokio::time::sleep(ANSWER).await,
    }
}

/// Returns when a stop is asked for.
async fn stopped(context: &StepContext) {
    let mut signal = context.signal.clone();
    let stop = signal.wait_for(|signal| *signal == Signal::Stop);
    if stop.await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn clear_one(executor: &KubesprayExecutor, pods: &Pods, step: &Step, one: &mut Wanted) {
    if one.uid.is_some() && one.end.is_none() && !one.told {
        // What it said until then tells what it was at; that it was not written is told where the step's end is.
        let _ = keep_log(executor, pods, step, one).await;
    }
    match remove(pods, one).await {
        Ok(()) => one.gone = true,
        Err(Trouble::Refused(why) | Trouble::Silent(why)) => {
            tracing::debug!(pod = named(one), why, "a pod of a hook is not removed yet");
        }
        Err(Trouble::Disk(_)) => {}
    }
}

fn named(one: &Wanted) -> String {
    let namespace = one.pod.namespace().unwrap_or_default();
    format!("{namespace}/{}", one.pod.name_any())
}

/// The end of a step, with the pods that may be left.
pub(super) fn telling(outcome: StepOutcome, left: &[String]) -> StepOutcome {
    if left.is_empty() {
        return outcome;
    }
    let mut names = left.iter().take(NAMED).cloned().collect::<Vec<_>>();
    let more = left.len().saturating_sub(NAMED);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    let words = format!("pods that may be left: {}", names.join(", "));
    let with = |detail: Option<String>| {
        let detail = detail.map_or_else(|| words.clone(), |detail| format!("{detail}; {words}"));
        Some(plain(&detail, 1024))
    };
    match outcome {
        StepOutcome::Succeeded {
            results,
            unreachable,
            detail,
        } => StepOutcome::Succeeded {
            results,
            unreachable,
            detail: with(detail),
        },
        StepOutcome::Interrupted { detail } => StepOutcome::Interrupted {
            detail: with(detail),
        },
        StepOutcome::Failed {
            mut failure,
            results,
            unreachable,
            remedies,
        } => {
            failure.message = format!("{} ({words})", failure.message);
            StepOutcome::Failed {
                failure,
                results,
                unreachable,
                remedies,
            }
        }
        waiting @ StepOutcome::Waiting { .. } => waiting,
    }
}
