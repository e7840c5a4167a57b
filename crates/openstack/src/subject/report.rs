//! How an object stands, for people and for those who wait for it: its status, and an Event where something happened.

use api::{
    Run,
    openstack::{KeysStatus, PasswordsStatus, Phase, Standing as Told},
    run::{Action as StepAction, Record, RecordEvent, RunPhase, StepPhase, StepStatus},
};
use controller::{
    Conditions, Occurrence, Severity, Standing, Status, Summary,
    conditions::{READY, observed_generation},
    hint,
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};
use kube::ResourceExt;
use runs::{calls::AGAIN, is_active, phase};

use super::{Applied, Context, Decision, Error, Layer, Observed, Resolved, refusal::REFUSED};
use crate::{
    action::Action,
    backup::{
        BACKED_UP, Errand, {errand, standing},
    },
    health::{ENDPOINT_HEALTHY, Part, waits},
    names::MANAGER,
    rotation::Rotated,
    seed::look::{DRIFTED, Looked},
};

/// Writes the status if it changed, and the Event of what happened.
pub(super) async fn publish<K: Layer>(
    object: &K,
    resolved: &Resolved,
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
    let place = (object.service(), namespace.as_str());
    let mut told = told((&before, generation), place, applied, observed, now);
    of_backups(object, &before, applied, observed, &mut told);
    of_rotations(object, resolved, applied, observed, &mut told);
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
    (service, namespace): (Option<&str>, &str),
    applied: &Applied,
    observed: &Observed,
    now: Timestamp,
) -> Told {
    let mut conditions = Conditions::new(&before.conditions, generation, now);
    let (phase, mut summary) = summary(applied, observed);
    summary.message = hint::placed(&summary.message, namespace);
    conditions.summarise(&summary);
    // Where nobody was asked, what was said last stays.
    match &observed.answer {
        Some(Ok(())) => conditions.set(ENDPOINT_HEALTHY, Status::True, ANSWERS, "it answers"),
        Some(Err(down)) => {
            let message = hint::placed(&down.message(), namespace);
            conditions.set(ENDPOINT_HEALTHY, Status::False, down.part.reason(), message);
        }
        None => {}
    }
    if let Some(looked) = &observed.seeded {
        let (status, reason, message) = drift(looked);
        let message = hint::placed(&message, namespace);
        conditions.set(DRIFTED, status, reason, message);
    }
    let conditions = conditions.into_vec();
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
        blocked_on: blocked(service, run, observed, &conditions)
            .or_else(|| applied.refused.clone())
            .map(|what| api::text::lines(&hint::placed(&what, namespace), BLOCKED_ON)),
        run: run.map(ResourceExt::name_any),
        left: match &observed.seeded {
            Some(looked) => looked.left.clone(),
            None => before.left.clone(),
        },
        conditions,
        ..Told::default()
    }
}

/// Whether Keystone has something else than a seed names.
fn drift(looked: &Looked) -> (Status, &'static str, String) {
    let told = looked.told();
    if told.is_empty() {
        (Status::False, IN_STEP, looked.well())
    } else {
        (Status::True, looked.reason(), told.join("; "))
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

/// What is told of keys and passwords that are rotated on a schedule, of what was made and is to stay.
fn of_rotations<K: Layer>(
    object: &K,
    resolved: &Resolved,
    applied: &Applied,
    observed: &Observed,
    told: &mut Told,
) {
    if !observed.was_made() || object.meta().deletion_timestamp.is_some() {
        return;
    }
    let namespace = object.namespace().unwrap_or_default();
    for scheduled in &resolved.rotations {
        let mut status = scheduled.told(&applied.decision, observed);
        status.message = status.message.map(|text| hint::placed(&text, &namespace));
        let status = Some(status);
        let mut passwords = told.passwords.take().unwrap_or_default();
        match scheduled.what() {
            Rotated::Fernet => told.keys = Some(KeysStatus { fernet: status }),
            Rotated::Database => passwords.database = status,
            Rotated::Identity => passwords.identity = status,
            Rotated::Administrator => passwords.administrator = status,
            Rotated::DatabaseServer => passwords.database_server = status,
        }
        told.passwords = (passwords != PasswordsStatus::default()).then_some(passwords);
    }
}

/// How many of a run's steps are done.
fn steps(run: &Run) -> String {
    let status = run.status.as_ref();
    let steps = status.into_iter().flat_map(|status| &status.steps);
    let is_done = |phase: StepPhase| matches!(phase, StepPhase::Succeeded | StepPhase::Skipped);
    let done = steps.filter(|step| is_done(step.phase)).count();
    format!("{done}/{}", run.spec.plan.steps.len())
}

/// What keeps an object, at the bottom of it: the step that is at work or failed, or what does not answer.
fn blocked(
    service: Option<&str>,
    run: Option<&Run>,
    observed: &Observed,
    conditions: &[Condition],
) -> Option<String> {
    let of_run = run.and_then(|run| of_steps(service, run, observed.now));
    if of_run.is_some() {
        return of_run;
    }
    if let Some(Err(down)) = &observed.answer {
        let mut conditions = conditions.iter();
        let since = conditions.find(|condition| condition.type_ == ENDPOINT_HEALTHY);
        let since = since.map_or(observed.now, |since| since.last_transition_time.0);
        let who = format!("{}/health", service.unwrap_or_default());
        let seconds = seconds(since, observed.now);
        return Some(waits(&who, down.part, &down.why, seconds, down.attempts));
    }
    let below = observed.blocked_on.clone();
    below.or_else(|| observed.unhealthy.first().cloned())
}

/// The steps that are at work or failed, and what they see; the next one where none is.
fn of_steps(service: Option<&str>, run: &Run, now: Timestamp) -> Option<String> {
    let status = run.status.as_ref()?;
    if status.phase == RunPhase::Succeeded {
        return None;
    }
    let is_at_work = |step: &&StepStatus| {
        let phases = [StepPhase::Running, StepPhase::Waiting, StepPhase::Failed];
        phases.contains(&step.phase)
    };
    let next = |step: &&StepStatus| Some(&step.id) == status.step.as_ref();
    let mut steps: Vec<_> = status.steps.iter().filter(is_at_work).collect();
    if steps.is_empty() {
        steps.extend(status.steps.iter().find(next));
    }
    let told: Vec<_> = steps
        .into_iter()
        .map(|step| of_step(service, run, step, now))
        .collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn of_step(service: Option<&str>, run: &Run, step: &StepStatus, now: Timestamp) -> String {
    let at = &step.id;
    let planned = run.spec.plan.steps.iter().find(|step| step.id == *at);
    if let (Some(Action::AwaitService(_) | Action::AwaitUpdated(_)), Some(activity)) =
        (planned.and_then(Action::of), &step.activity)
    {
        return activity.clone();
    }
    let at = match service {
        Some(service) => format!("{service}/{at}"),
        None => at.clone(),
    };
    if step.phase == StepPhase::Waiting
        && let Some(StepAction::Approve(approve)) = planned.map(|step| &step.action)
    {
        let question = &approve.question;
        let run = run.name_any();
        return format!("{at} waits for an approval: {question} (windlass approve {run})");
    }
    // While it is tried again, the journal alone has why.
    let failures = || {
        let history = run.status.iter().flat_map(|status| &status.history);
        history.filter(|record| is_failure_of(record, &step.id))
    };
    let last = failures()
        .next_back()
        .and_then(|last| last.failure.as_ref());
    let failure = step.failure.as_ref().or(last);
    let attempt = step.attempt.unwrap_or(1);
    if let (true, None, Some(failure), Some(first)) = (
        is_active(phase(run)),
        &step.activity,
        failure,
        failures().next(),
    ) && let Some(part) = Part::of(failure)
    {
        let seconds = seconds(first.time.0, now);
        return waits(&at, part, &failure.message, seconds, attempt);
    }
    let sees = step.activity.clone();
    let sees = sees.or_else(|| step.failure.as_ref().map(|failure| failure.message.clone()));
    let attempt = (attempt > 1).then(|| format!(", attempt {attempt}"));
    format!(
        "{at}{}{}",
        sees.map(|sees| format!(": {sees}")).unwrap_or_default(),
        attempt.unwrap_or_default()
    )
}

fn is_failure_of(record: &Record, step: &str) -> bool {
    record.event == RecordEvent::StepFailed && record.step.as_deref() == Some(step)
}

fn seconds(since: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(since).as_secs()
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
        Decision::Refused(refusal) => {
            of(Phase::Stalled, Standing::Stalled, REFUSED, refusal.clone())
        }
        Decision::Keep(_) if observed.unhealthy.is_empty() => {
            let (reason, message) = match &observed.seeded {
                Some(looked) => (IN_STEP, looked.well()),
                None => ("Serves", "everything of it serves".to_owned()),
            };
            of(Phase::Ready, Standing::Ready, reason, message)
        }
        Decision::Keep(_) => of(
            Phase::Unhealthy,
            Standing::Unhealthy,
            match (&observed.answer, &observed.seeded) {
                (Some(Err(down)), _) => down.part.reason(),
                (_, Some(looked)) => looked.reason(),
                _ => Part::Pods.reason(),
            },
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
                // Nobody does so any more.
                let remedy = failure.remedy.filter(|remedy| remedy != AGAIN);
                let remedy = remedy.map(|remedy| format!("; {remedy}"));
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

/// What a change of `Ready` tells, or one of what an object answers while a run is at work. The steps of runs have Events of their own.
fn occurrence(before: &Told, after: &Told) -> Option<Occurrence> {
    let ready = edge(READY, before, after).filter(|ready| ready.reason != "RunInProgress");
    // A seed that is mended is not told of twice.
    let ready = ready.or_else(|| edge(DRIFTED, before, after).filter(|_| is_true(DRIFTED, after)));
    ready.or_else(|| {
        // Nobody is told that what was just made answers.
        edge(ENDPOINT_HEALTHY, before, after).filter(|_| is_known(ENDPOINT_HEALTHY, before))
    })
}

/// What a condition tells that has changed.
fn edge(kind: &str, before: &Told, after: &Told) -> Option<Occurrence> {
    let of = |told: &Told| {
        let mut conditions = told.conditions.iter();
        conditions
            .find(|condition| condition.type_ == kind)
            .cloned()
    };
    let (before, after) = (of(before), of(after)?);
    let is_new = before
        .as_ref()
        .is_none_or(|before| before.reason != after.reason || before.status != after.status);
    if !is_new {
        return None;
    }
    let well = (after.status == Status::True.as_str()) != (kind == DRIFTED);
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

fn is_known(kind: &str, told: &Told) -> bool {
    told.conditions
        .iter()
        .any(|condition| condition.type_ == kind)
}

fn is_true(kind: &str, told: &Told) -> bool {
    controller::conditions::is_true(&told.conditions, kind)
}

/// The reason of a seed that Keystone has.
const IN_STEP: &str = "InKeystone";
/// The reason of what answers.
const ANSWERS: &str = "Answers";
/// How long the schema lets the text be.
const BLOCKED_ON: usize = 500;

#[cfg(test)]
mod tests {
    use api::run::RunStatus;
    use serde_json::json;

    use super::*;
    use crate::health::Down;

    fn run(status: serde_json::Value) -> Run {
        let mut run: Run = serde_json::from_value(json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {"name": "openstackservice-one-glance-install-1", "namespace": "cloud"},
            "spec": {"subject": {"apiGroup": "openstack.windlass.dev", "kind": "OpenStackService", "name": "one-glance", "uid": "u"},
                "operation": "Install", "generation": 1, "plan": {"digest": "d", "steps": []}},
        }))
        .unwrap();
        run.status = Some(serde_json::from_value::<RunStatus>(status).unwrap());
        run
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn judge(before: &Told, observed: &Observed, run: Run) -> Told {
        let decision = match phase(&run) {
            RunPhase::Succeeded => Decision::Keep(Box::new(run.clone())),
            _ => Decision::Follow(Box::new(run.clone())),
        };
        let run = Some(run);
        let applied = Applied::new(decision, run);
        let place = (Some("glance"), "cloud");
        told((before, Some(1)), place, &applied, observed, observed.now)
    }

    fn condition<'a>(told: &'a Told, kind: &str) -> &'a Condition {
        let mut conditions = told.conditions.iter();
        conditions.find(|found| found.type_ == kind).unwrap()
    }

    #[test]
    fn a_step_that_is_tried_again_says_what_it_waits_for() {
        let failure = json!({"class": "Transient", "code": "Keystone",
            "message": "failed to log in as admin: HTTP 503", "remedy": "wait"});
        let record = |sequence: u32, seconds: i64| {
            json!({"sequence": sequence, "time": at(seconds).to_string(), "event": "StepFailed",
                "step": "identity/seed", "attempt": sequence, "failure": failure})
        };
        let of = |phase: &str| {
            run(json!({
                "phase": "Running", "step": "identity/seed",
                "steps": [{"id": "identity/seed", "phase": phase, "attempt": 7}],
                "history": [record(1, 0), record(2, 20)],
            }))
        };
        let observed = Observed {
            now: at(42),
            ..Observed::default()
        };
        let told = judge(&Told::default(), &observed, of("Running"));
        assert_eq!(
            told.blocked_on.unwrap(),
            "glance/identity/seed waits for keystone/health: log in as admin: HTTP 503 for 42 s, attempt 7"
        );
    }

    #[test]
    fn what_does_not_answer_is_not_ready_and_has_one_event() {
        let made = || run(json!({"phase": "Succeeded"}));
        let observed = |seconds: i64, attempts: Option<u32>| {
            let down = attempts.map(|attempts| Down {
                part: Part::Keystone,
                why: "log in as glance: HTTP 503".to_owned(),
                attempts,
            });
            Observed {
                runs: vec![made()],
                unhealthy: down.iter().map(Down::message).collect(),
                answer: Some(down.map_or(Ok(()), Err)),
                now: at(seconds),
                ..Observed::default()
            }
        };
        let well = judge(&Told::default(), &observed(0, None), made());
        assert_eq!(condition(&well, READY).status, "True");
        assert_eq!(condition(&well, ENDPOINT_HEALTHY).status, "True");
        assert_eq!(well.blocked_on, None);

        let down = judge(&well, &observed(20, Some(1)), made());
        assert_eq!(down.phase, Some(Phase::Unhealthy));
        let ready = condition(&down, READY);
        assert_eq!(
            (ready.status.as_str(), ready.reason.as_str()),
            ("False", "KeystoneUnavailable")
        );
        assert_eq!(condition(&down, ENDPOINT_HEALTHY).status, "False");
        let event = occurrence(&well, &down).unwrap();
        assert_eq!(event.reason, "KeystoneUnavailable");

        let later = judge(&down, &observed(62, Some(7)), made());
        assert_eq!(
            later.blocked_on.as_deref().unwrap(),
            "glance/health waits for keystone/health: log in as glance: HTTP 503 for 42 s, attempt 7"
        );
        assert_eq!(later.conditions, down.conditions, "no clock is in them");
        assert!(occurrence(&down, &later).is_none());

        let again = judge(&later, &observed(80, None), made());
        assert_eq!(condition(&again, READY).status, "True");
        assert_eq!(occurrence(&later, &again).unwrap().reason, "Serves");
    }

    #[test]
    fn what_ceases_to_answer_while_a_run_is_at_work_is_told() {
        let working = || run(json!({"phase": "Running"}));
        let mut observed = Observed {
            runs: vec![run(json!({"phase": "Succeeded"}))],
            answer: Some(Ok(())),
            now: at(0),
            ..Observed::default()
        };
        let well = judge(&Told::default(), &observed, working());
        assert_eq!(condition(&well, READY).status, "True");
        assert!(occurrence(&Told::default(), &well).is_none());
        let down = Down {
            part: Part::Database,
            why: "no answer within 10 s".to_owned(),
            attempts: 1,
        };
        observed.unhealthy = vec![down.message()];
        observed.answer = Some(Err(down));
        let down = judge(&well, &observed, working());
        assert_eq!(condition(&down, READY).status, "False");
        let event = occurrence(&well, &down).unwrap();
        assert_eq!(event.reason, "DatabaseUnavailable");
    }
}
