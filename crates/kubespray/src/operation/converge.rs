//! Converging: the playbooks once more over a cluster that is built. Pure.
//!
//! It is asked for by the annotation [`request::CONVERGE`], and [`asked`] says how that is answered; or it begins by itself when its time
//! by the schedule has come, in a maintenance window if there are any.

use api::{
    Cluster, Run,
    cluster::{ConvergeSchedule, Converged},
    run::{Plan, RecordEvent, RunPhase, StepStatus},
    text::lines,
};
use controller::window::Moment;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use runs::phase;

use super::{
    CONVERGE, Fails, Operation,
    asked::{self, Asked},
};
use crate::{
    cluster::{
        built::{Built, built_by, built_with, differing_sources, differing_variables, failed},
        compile::{self, Asks},
        decision::{Decision, NewRun, Situation, checkout, new_run},
        observe::Observed,
        resolve::Resolved,
    },
    playbooks::Checkout,
    problem::Problem,
    request, variables,
};
use changes::Told;

pub mod changes;

/// How it is asked for.
pub static ASKED: Asked = Asked {
    operation: &CONVERGE,
    annotation: request::CONVERGE,
    length: asked::LENGTH,
    answered: |status| status.converge.as_ref(),
    place: |status| &mut status.converge,
    wrong: |_| None,
    refusal: |_, _, built| refusal(built),
    unbuilt: "its creation runs the same playbooks",
};

/// Has the say about a cluster that is built.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let Situation {
        cluster,
        wanted,
        observed,
        built,
    } = *situation;
    let (built, resolved) = (built?, wanted.ok()?);
    // Before anything that could not go on without.
    Some(match failed(observed, Fails::Waits) {
        Some(failed) => Decision::Maintain(Box::new(built.clone()), Box::new(failed.clone())),
        None => maintain(cluster, built, resolved, observed),
    })
}

/// What to do about a cluster that is built.
fn maintain(
    cluster: &Cluster,
    built: &Built,
    resolved: &Resolved,
    observed: &Observed,
) -> Decision {
    let wanted = ASKED.wanted(cluster, &observed.runs).map(Why::Asked);
    let wanted = wanted.or_else(|| due(cluster, resolved, observed).map(Why::Due));
    if let Some(why) = wanted.filter(|_| built.beyond_converge.is_empty()) {
        return start(cluster, resolved, observed, why);
    }
    // A failed one of another operation was for what nobody asks for any more.
    match failed(observed, Fails::HoldsUp) {
        Some(failed) => Decision::Maintain(Box::new(built.clone()), Box::new(failed.clone())),
        None => Decision::Keep(Box::new(built.clone())),
    }
}

/// Why it begins.
enum Why {
    /// Somebody asked for it.
    Asked(String),
    /// This was its time by the schedule.
    Due(Moment),
}

/// How long after its time by the schedule, or after the maintenance window opened that it waited for, one may begin. What was not begun
/// by then, because another run was at work or nobody was there to begin it, comes with the next time.
const LATE: SignedDuration = SignedDuration::from_hours(1);

/// The time by the schedule for which one is to begin. A time that passed while the playbooks were at work all the same is none: a
/// schedule that overlaps itself begins nothing twice. Nor is one that had passed when the schedule was written.
fn due(cluster: &Cluster, resolved: &Resolved, observed: &Observed) -> Option<Moment> {
    let now = observed.now;
    let due = resolved.converges.as_ref()?.last(now)?;
    let known = known(cluster)?;
    if known.since.0 >= due.timestamp() {
        return None;
    }
    let mut newest = observed.runs.iter().rev();
    let newest = newest.find(|run| Operation::is_whole(run));
    let over = newest.and_then(|run| {
        let finished = run.status.as_ref().and_then(|it| it.finished_at.clone());
        finished.or_else(|| run.metadata.creation_timestamp.clone())
    });
    if over.is_some_and(|over| over.0 >= due.timestamp()) {
        return None;
    }
    let opens = resolved.maintenance.waits(&CONVERGE, due.timestamp());
    let begins = opens.map_or(due.timestamp(), |opens| opens.timestamp());
    (now.duration_since(begins) < LATE).then_some(due)
}

/// The schedule of the spec, and since when it is known; none before a pass has seen it as it is.
fn known(cluster: &Cluster) -> Option<&ConvergeSchedule> {
    let known = cluster.status.as_ref()?.converge_schedule.as_ref()?;
    let written = cluster.spec.operations.as_ref()?.converge.as_ref()?;
    let is_written = (Some(&known.schedule), &known.time_zone)
        == (written.schedule.as_ref(), &written.time_zone);
    is_written.then_some(known)
}

/// What a status says of the schedule after a pass.
pub fn schedule(cluster: &Cluster, now: Timestamp) -> Option<ConvergeSchedule> {
    let written = cluster.spec.operations.as_ref()?.converge.as_ref()?;
    let new = || {
        Some(ConvergeSchedule {
            schedule: written.schedule.clone()?,
            time_zone: written.time_zone.clone(),
            since: Time(now),
        })
    };
    known(cluster).cloned().or_else(new)
}

/// What the last converge that succeeded changed on hosts, held against the one before it that was given the same.
///
/// Playbooks change some things each time they run. What both changed is their habit, or what something else takes back each time: from
/// here the two look alike.
pub fn converged(runs: &[Run]) -> Option<Converged> {
    let succeeded =
        |run: &&Run| run.spec.operation == CONVERGE.name && phase(run) == RunPhase::Succeeded;
    let mut newest = runs.iter().rev().filter(succeeded);
    let run = newest.next()?;
    let inputs = &run.spec.plan.inputs;
    let before = newest.next();
    let before = before.filter(|before| before.spec.plan.inputs == *inputs);
    let told = told(run);
    let (beyond, again) = match before {
        Some(before) => {
            let beyond = told.beyond(&self::told(before));
            let again = told.count().saturating_sub(beyond.count());
            (beyond, u32::try_from(again).ok())
        }
        None => (told, None),
    };
    let message = beyond.to_string();
    Some(Converged {
        run: run.name_any(),
        changed: changed(run),
        again,
        message: (!message.is_empty()).then(|| lines(&message, 2048)),
    })
}

/// How many changes its steps count.
fn changed(run: &Run) -> u32 {
    let steps = run.status.iter().flat_map(|status| &status.steps);
    steps.fold(0, |sum, step| sum.saturating_add(changed_in(step)))
}

fn changed_in(step: &StepStatus) -> u32 {
    let results = step.results.as_ref();
    let changed = results.and_then(|results| results.0.get("changed").copied());
    changed.unwrap_or_default()
}

/// What its records tell of changes.
fn told(run: &Run) -> Told {
    let mut told = Told::default();
    let Some(status) = &run.status else {
        return told;
    };
    for step in &status.steps {
        let mut records = status.history.iter().rev();
        let record = records.find(|record| {
            let is_of_it = record.step.as_ref() == Some(&step.id);
            is_of_it && record.event == RecordEvent::StepSucceeded
        });
        let detail = record.and_then(|record| record.detail.as_deref());
        let before = told.count();
        told.add(&step.id, detail.unwrap_or_default());
        if told.count() == before {
            // Their record is gone: a history of many is made shorter.
            let lost = usize::try_from(changed_in(step)).unwrap_or(usize::MAX);
            told.more = told.more.saturating_add(lost);
        }
    }
    told
}

fn start(cluster: &Cluster, resolved: &Resolved, observed: &Observed, why: Why) -> Decision {
    let checkout = match checkout(observed) {
        Ok(checkout) => checkout,
        Err(decision) => return decision,
    };
    let (because, mark, request) = match why {
        Why::Asked(request) => {
            let because = "somebody asked for it".to_owned();
            (because, request.clone(), Some(request))
        }
        Why::Due(due) => (format!("one was due at {due}"), due.to_string(), None),
    };
    match compiled(&cluster.name_any(), resolved, checkout, (&because, &mark)) {
        Ok(plan) => Decision::Start(Box::new(NewRun {
            request,
            ..new_run(cluster, observed, &CONVERGE, plan)
        })),
        Err(problem) => Decision::Stall(vec![problem]),
    }
}

/// The plan that carries the same playbook over the whole built cluster once more.
fn compiled(
    cluster: &str,
    resolved: &Resolved,
    checkout: &Checkout,
    (because, mark): (&str, &str),
) -> Result<Plan, Problem> {
    let inputs = &resolved.inputs;
    let conduct = &resolved.converging;
    let steps = compile::building(cluster, resolved, conduct, checkout)?;
    let question = format!("run the playbooks over all {} hosts", inputs.hosts.len());
    let asks = Asks::Person(conduct, question);
    let reason = format!(
        "{because}: kubespray {} brings all {} hosts{} back to the spec",
        inputs.kubespray,
        inputs.hosts.len(),
        compile::with_kubernetes(inputs),
    );
    compile::finish(&CONVERGE, Some(mark), inputs, reason, asks, steps)
}

/// Why a cluster that stays as it is is not converged.
pub(crate) fn refusal(built: &Built) -> Option<String> {
    built.comes_first().or_else(|| {
        (!built.beyond_converge.is_empty()).then(|| {
            format!(
                "converging does not change what a cluster is made of, and the spec also asks for {}",
                built.beyond_converge.join("; ")
            )
        })
    })
}

/// What the playbooks would be given that is not what the cluster was built with, if that is known. Names only: values may be
/// secret.
pub fn changes(runs: &[Run], resolved: &Resolved) -> Vec<String> {
    let Some(before) = built_by(runs).and_then(built_with) else {
        return Vec::new();
    };
    let wanted = &resolved.inputs;
    let variables = differing_variables(&before, wanted)
        .into_iter()
        .map(|name| format!("spec.nodes.all.deploy.extraVars: {name}"));
    let hosts = wanted
        .hosts
        .iter()
        .filter(|host| {
            let mut built = before.hosts.iter();
            built.any(|built| {
                built.name == host.name
                    && (&built.variables, &built.extra_vars_secret_ref)
                        != (&host.variables, &host.extra_vars_secret_ref)
            })
        })
        .map(|host| format!("ClusterNode {} spec.inventory", host.name));
    let secrets = variables::changed(&before.revisions, &wanted.revisions)
        .map(|name| format!("Secret {name}"));
    let sources = differing_sources(&before, wanted);
    variables
        .chain(sources)
        .chain(hosts)
        .chain(secrets)
        .collect()
}
