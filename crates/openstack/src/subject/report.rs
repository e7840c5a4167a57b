//! How an object stands, for people and for those who wait for it: its status, and an Event where something happened.

use api::{
    Run,
    openstack::{KeysStatus, Phase, Standing as Told},
    run::{RunPhase, StepPhase},
};
use controller::{
    Conditions, Occurrence, Severity, Standing, Status, Summary,
    conditions::{READY, observed_generation},
    hint,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;
use runs::phase;

use super::{Applied, Context, Decision, Error, Layer, Observed};
use crate::{
    backup::{
        BACKED_UP, Errand, {errand, standing},
    },
    names::MANAGER,
};

/// Writes the status if it changed, and the Event of what happened.
pub(super) async fn publish<K: Layer>(
    object: &K,
    applied: &Applied,
    observed: &Observed,
    context: &Context<K>,
) -> Result<(), Error> {
    if matches!(applied.decision, Decision::Forget) {
        return Ok(());
    }
    let before = object.standing().cloned().unwrap_or_default();
    let generation = object.meta().generation;
    let namespace = object.namespace().unwrap_or_default();
    let now = Timestamp::now();
    let mut told = told((&before, generation), &namespace, applied, observed, now);
    of_backups(object, &before, applied, observed, &mut told);
    told.keys = of_keys(object, applied, observed);
    if let Some(occurrence) = occurrence(&before, &told) {
        let regarding = ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: Some(object.name_any()),
            namespace: object.namespace(),
            uid: object.uid(),
            ..ObjectReference::default()
        };
        context
            .events
            .publish(&regarding, &occurrence)
            .await
            .map_err(|source| Error::Api("publish an Event", source))?;
    }
    controller::apply::write_status(
        &context.client,
        &context.own,
        MANAGER,
        (object, Some(&before)),
        &told,
    )
    .await
    .map_err(Error::Apply)
}

/// The status that follows from what was done. Pure.
fn told(
    (before, generation): (&Told, Option<i64>),
    namespace: &str,
    applied: &Applied,
    observed: &Observed,
    now: Timestamp,
) -> Told {
    let mut conditions = Conditions::new(&before.conditions, generation, now);
    let (phase, mut summary) = summary(applied, observed);
    summary.message = hint::placed(&summary.message, namespace);
    conditions.summarise(&summary);
    let run = applied.run.as_ref();
    Told {
        observed_generation: observed_generation(
            before.observed_generation,
            generation,
            summary.standing,
        ),
        phase: Some(phase),
        goal: run.map(|run| run.spec.operation.clone()),
        steps: run.map(steps),
        blocked_on: run
            .and_then(blocked)
            .or_else(|| observed.unhealthy.first().cloned())
            .map(|what| hint::placed(&what, namespace)),
        run: run.map(ResourceExt::name_any),
        conditions: conditions.into_vec(),
        ..Told::default()
    }
}

/// What is told of backups: the last answers, what lies in the store, and whether that is young enough.
fn of_backups<K: Layer>(
    object: &K,
    before: &Told,
    applied: &Applied,
    observed: &Observed,
    told: &mut Told,
) {
    told.backup.clone_from(&before.backup);
    told.drill.clone_from(&before.drill);
    told.restore.clone_from(&before.restore);
    for (errand, answer) in errand::answers(object, &applied.decision, observed) {
        let place = match errand {
            Errand::Backup => &mut told.backup,
            Errand::Drill => &mut told.drill,
            Errand::Restore => &mut told.restore,
        };
        *place = Some(answer);
    }
    told.backups.clone_from(&observed.backups);
    let generation = object.meta().generation;
    let mut conditions = Conditions::new(&told.conditions, generation, observed.now);
    match object.backup() {
        Some(settings) => {
            let (status, reason, message) = standing::judge(settings, observed);
            let message = hint::placed(&message, &object.namespace().unwrap_or_default());
            conditions.set(BACKED_UP, status, reason, message);
        }
        None => conditions.remove(BACKED_UP),
    }
    told.conditions = conditions.into_vec();
}

/// What is told of keys that are rotated on a schedule, of what was made and is to stay.
fn of_keys<K: Layer>(object: &K, applied: &Applied, observed: &Observed) -> Option<KeysStatus> {
    if !observed.was_made() || object.meta().deletion_timestamp.is_some() {
        return None;
    }
    let mut fernet = object.rotation()?.told(&applied.decision, observed);
    let namespace = object.namespace().unwrap_or_default();
    fernet.message = fernet.message.map(|text| hint::placed(&text, &namespace));
    Some(KeysStatus {
        fernet: Some(fernet),
    })
}

/// How many of a run's steps are done.
fn steps(run: &Run) -> String {
    let status = run.status.as_ref();
    let steps = status.into_iter().flat_map(|status| &status.steps);
    let is_done = |phase: StepPhase| matches!(phase, StepPhase::Succeeded | StepPhase::Skipped);
    let done = steps.filter(|step| is_done(step.phase)).count();
    format!("{done}/{}", run.spec.plan.steps.len())
}

/// The step that is at work, or that failed, and what it sees.
fn blocked(run: &Run) -> Option<String> {
    let status = run.status.as_ref()?;
    if status.phase == RunPhase::Succeeded {
        return None;
    }
    let at = status.step.as_ref()?;
    let step = status.steps.iter().find(|step| step.id == *at)?;
    let failure = step.failure.as_ref().map(|failure| failure.message.clone());
    let sees = step.activity.clone().or(failure);
    let attempt = step.attempt.filter(|attempt| *attempt > 1);
    let attempt = attempt.map(|attempt| format!(", attempt {attempt}"));
    Some(api::text::lines(
        &format!(
            "{at}{}{}",
            sees.map(|sees| format!(": {sees}")).unwrap_or_default(),
            attempt.unwrap_or_default()
        ),
        500,
    ))
}

fn summary(applied: &Applied, observed: &Observed) -> (Phase, Summary) {
    let of = |phase, standing, reason, message: String| {
        let summary = Summary {
            standing,
            reason,
            message,
        };
        (phase, summary)
    };
    match &applied.decision {
        Decision::Stall(problems) => of(
            Phase::Stalled,
            Standing::Stalled,
            "InvalidSpec",
            controller::problem::text(problems),
        ),
        Decision::Keep(_) if observed.unhealthy.is_empty() => of(
            Phase::Ready,
            Standing::Ready,
            "Serves",
            "everything of it serves".to_owned(),
        ),
        Decision::Keep(_) => of(
            Phase::Unhealthy,
            Standing::Unhealthy,
            "DoesNotServe",
            observed.unhealthy.join("; "),
        ),
        Decision::Start(new) => at_work(&format!("run {} was made", new.name), observed),
        Decision::Follow(run) | Decision::Supersede(run, _) => follow(run, observed),
        Decision::Cancel(run) => {
            let (_, summary) = follow(run, observed);
            (Phase::Deleting, summary)
        }
        Decision::Forget => of(
            Phase::Deleting,
            Standing::AtWork,
            "Gone",
            "it is gone".to_owned(),
        ),
    }
}

fn follow(run: &Run, observed: &Observed) -> (Phase, Summary) {
    let name = run.name_any();
    let is_restore = run.spec.operation == crate::wish::Operation::Restore.name();
    let stalled = |message| {
        let summary = Summary {
            standing: Standing::Stalled,
            reason: "RunEnded",
            message,
        };
        (Phase::Stalled, summary)
    };
    match phase(run) {
        RunPhase::Failed => {
            let failure = run
                .status
                .as_ref()
                .and_then(|status| status.failure.clone());
            let why = failure.map(|failure| {
                let remedy = failure.remedy.map(|remedy| format!("; {remedy}"));
                format!("{}{}", failure.message, remedy.unwrap_or_default())
            });
            let why = why.unwrap_or_else(|| "nothing is known of why".to_owned());
            // One that holds nothing up is not followed.
            let held = is_restore.then(|| format!(". {}", errand::half_restored(run)));
            stalled(format!(
                "run {name} failed: {why}{}",
                held.unwrap_or_default()
            ))
        }
        RunPhase::Cancelled if is_restore => stalled(errand::half_restored(run)),
        RunPhase::Cancelled => stalled(format!(
            "run {name} was cancelled; change the spec, or delete the run, for another one"
        )),
        _ => {
            let deletes = run.spec.operation == crate::wish::Operation::Delete.name();
            let (phase, summary) = at_work(&format!("run {name} is at work"), observed);
            (if deletes { Phase::Deleting } else { phase }, summary)
        }
    }
}

/// What was made before may serve all the while.
fn at_work(message: &str, observed: &Observed) -> (Phase, Summary) {
    let serves = observed.was_made() && observed.unhealthy.is_empty();
    let summary = Summary {
        standing: if serves {
            Standing::ReadyAtWork
        } else {
            Standing::AtWork
        },
        reason: "RunInProgress",
        message: message.to_owned(),
    };
    (Phase::Working, summary)
}

/// What a change of `Ready` tells. The steps of runs have Events of their own.
fn occurrence(before: &Told, after: &Told) -> Option<Occurrence> {
    let ready = |told: &Told| {
        let mut conditions = told.conditions.iter();
        conditions
            .find(|condition| condition.type_ == READY)
            .cloned()
    };
    let (before, after) = (ready(before), ready(after)?);
    let is_new = before
        .as_ref()
        .is_none_or(|before| before.reason != after.reason || before.status != after.status);
    if !is_new || after.reason == "RunInProgress" {
        return None;
    }
    let well = after.status == Status::True.as_str();
    Some(Occurrence {
        severity: if well {
            Severity::Normal
        } else {
            Severity::Warning
        },
        edge: format!("{} {}", after.last_transition_time.0, after.message),
        note: after.message,
        reason: after.reason,
    })
}
