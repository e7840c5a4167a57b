//! What to do about a cluster, and why: every decision, pure and total.

use api::{
    Cluster, Run,
    run::{RunPhase, StepPhase},
};
use jiff::SignedDuration;
use kube::Resource;
use runs::{is_active, phase};

use crate::{
    cluster::{
        built::{Built, as_built},
        compile,
        decision::{Decision, Planned, Situation},
        maintain::{self, Waiting},
        observe::Observed,
        pending,
        resolve::Resolved,
    },
    operation::{self, Leaves, Operation},
    problem::Problem,
};

/// Decides.
pub fn plan(
    cluster: &Cluster,
    wanted: Result<&Resolved, &[Problem]>,
    observed: &Observed,
) -> Decision {
    with(cluster, wanted, observed, decide)
}

/// Decides, and says what else the wish asks for.
pub fn planned(
    cluster: &Cluster,
    wanted: Result<&Resolved, &[Problem]>,
    observed: &Observed,
) -> Planned {
    with(cluster, wanted, observed, |situation| {
        let decision = decide(situation);
        Planned {
            pending: pending::pending(situation, &decision),
            rest: maintain::rest(situation, &decision),
            recheck: recheck(situation),
            decision: looked(situation, decision),
        }
    })
}

/// The decision, where hosts are looked at once more before a run changes them: until then all stays as it is.
fn looked(situation: &Situation<'_>, decision: Decision) -> Decision {
    match (decision, situation.built) {
        (Decision::Start(new), Some(built))
            if situation.observed.unlooked
                && built.watch.is_some()
                && new.operation.leaves == Leaves::Cluster
                && situation.cluster.meta().deletion_timestamp.is_none() =>
        {
            Decision::Keep(Box::new(Built {
                looks_before: Some(new),
                ..built.clone()
            }))
        }
        (decision, _) => decision,
    }
}

/// How long until a maintenance window opens or closes, or a snapshot or a converge is due.
fn recheck(situation: &Situation<'_>) -> Option<SignedDuration> {
    let (wanted, now) = (situation.wanted.ok()?, situation.observed.now);
    let snapshots = situation.built.and(wanted.snapshots.as_ref());
    let schedule = snapshots.and_then(|snapshots| snapshots.schedule.as_ref());
    let converges = situation.built.and(wanted.converges.as_ref());
    let schedules = schedule.into_iter().chain(converges);
    let due = schedules.filter_map(|schedule| schedule.next(now));
    let due = due.map(|due| due.timestamp().duration_since(now));
    wanted.maintenance.left(now).into_iter().chain(due).min()
}

fn with<T>(
    cluster: &Cluster,
    wanted: Result<&Resolved, &[Problem]>,
    observed: &Observed,
    judge: impl FnOnce(&Situation<'_>) -> T,
) -> T {
    let built = wanted.ok();
    let built = built.and_then(|resolved| as_built(cluster, observed, resolved));
    judge(&Situation {
        cluster,
        wanted,
        observed,
        built: built.as_ref(),
    })
}

fn decide(situation: &Situation<'_>) -> Decision {
    let decision = at_work(situation).or_else(|| match situation.built {
        Some(built) => of_windows(situation, built),
        None => operation::ALL
            .iter()
            .find_map(|operation| (operation.decide)(situation)),
    });
    decision.unwrap_or_else(|| Decision::Stall(situation.wanted.err().unwrap_or_default().to_vec()))
}

/// The first decision. What waits for a maintenance window holds up nothing that does not: the next one is asked, and has the say if
/// a run or a person's word comes of it.
fn of_windows(situation: &Situation<'_>, built: &Built) -> Option<Decision> {
    let mut waiting: Option<Box<Waiting>> = None;
    for operation in operation::ALL {
        // There is a cluster already.
        if waiting.is_some() && !operation.of_built {
            continue;
        }
        match (operation.decide)(situation) {
            Some(Decision::Start(new)) => match maintain::admitted(situation, built, *new) {
                Ok(new) => return Some(Decision::Start(Box::new(new))),
                Err(waits) => {
                    waiting.get_or_insert(waits);
                }
            },
            Some(Decision::Keep(_) | Decision::Stall(_)) if waiting.is_some() => {}
            Some(decision) => return Some(decision),
            None => {}
        }
    }
    waiting.map(|waiting| {
        Decision::Keep(Box::new(Built {
            waiting: Some(waiting),
            ..built.clone()
        }))
    })
}

/// An operation on a cluster that is built comes to its end, or a person's word, before another one is begun.
fn at_work(situation: &Situation<'_>) -> Option<Decision> {
    // Not the last one only: one that failed may have been taken up again since.
    let of_built = |run: &&Run| Operation::of(run).is_some_and(|operation| operation.of_built);
    let mut runs = situation.observed.runs.iter().rev().filter(of_built);
    let run = runs.find(|run| is_active(phase(run)))?;
    if situation.cluster.meta().deletion_timestamp.is_some() {
        return None;
    }
    let built = situation.built?;
    if let Some(why) = taken_back(situation, built, run) {
        return Some(Decision::Supersede(Box::new(run.clone()), why));
    }
    Some(Decision::Maintain(
        Box::new(built.clone()),
        Box::new(run.clone()),
    ))
}

/// Why a run that waits for a person before its first step is for nothing, if it is: a host that it makes part of the cluster was taken
/// back. One that has begun comes to its end, so that no host is left half joined. (That a host stays after all is no matter: nobody can
/// say so before the run that removes it was cancelled.)
fn taken_back(situation: &Situation<'_>, built: &Built, run: &Run) -> Option<String> {
    let wanted = situation.wanted.ok()?;
    let mut steps = run.status.iter().flat_map(|status| &status.steps);
    let untouched = steps.all(|step| matches!(step.phase, StepPhase::Pending | StepPhase::Waiting));
    let waits = phase(run) == RunPhase::Waiting && untouched;
    if !waits || run.spec.operation != operation::SCALE.name {
        return None;
    }
    let mut gone = pending::hosts(built, &run.spec.plan);
    gone.retain(|host| wanted.inputs.host(host).is_none());
    (!gone.is_empty()).then(|| format!("{} was taken back", compile::listed(&gone)))
}
