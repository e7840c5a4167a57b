//! How a roll-out stands: its status, which is the record that the next pass goes on from, and Events of what happened.

use std::collections::BTreeMap;

use api::inventory::{Rollout, RolloutPhase, RolloutStatus};
use controller::{
    Conditions, Occurrence, Severity, Standing, Summary, conditions::observed_generation,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Resource, ResourceExt};

use super::{Context, Error, decision::Decided, engine, history, known::Known, sources};
use crate::{inventories::Sources, names::STATUS_MANAGER};

/// Writes the status under the version that was read, and then the Events.
pub(super) async fn publish(
    rollout: &Rollout,
    decided: &Decided,
    known: &Known,
    sources: Option<&Sources>,
    context: &Context,
) -> Result<(), Error> {
    let before = rollout.status.clone().unwrap_or_default();
    let told = told(rollout, &before, decided, known, Timestamp::now());
    let namespace = rollout.namespace().unwrap_or_default();
    let name = rollout.name_any();
    // What the status names is there before it does.
    if let Some(sources) = sources {
        sources::keep(rollout, &told, sources, context).await?;
    }
    if told != before {
        let api = Api::<Rollout>::namespaced(context.client.clone(), &namespace);
        let version = rollout.resource_version().unwrap_or_default();
        let written =
            controller::apply::apply_status_at(&api, STATUS_MANAGER, &name, &version, &told);
        written.await.map_err(Error::Apply)?;
        sources::prune(rollout, &told, context).await?;
    }
    for occurrence in occurrences(&before, &told, decided) {
        let object = ObjectReference {
            namespace: rollout.namespace(),
            ..rollout.object_ref(&())
        };
        let published = context.events.publish(&object, &occurrence).await;
        published.map_err(|error| Error::Api("publish an Event", error))?;
    }
    Ok(())
}

/// The status that follows from what was decided. Pure.
fn told(
    rollout: &Rollout,
    before: &RolloutStatus,
    decided: &Decided,
    known: &Known,
    now: Timestamp,
) -> RolloutStatus {
    use api::inventory::MemberPhase::{Done, Gone, Skipped, Soaking, Updating};
    let verdict = &decided.verdict;
    let run = decided.run.as_ref();
    let open = run.filter(|run| run.ended.is_none());
    let count = |phases: &[api::inventory::MemberPhase]| {
        let members = open.iter().flat_map(|run| &run.clusters);
        members
            .filter(|member| phases.contains(&member.phase))
            .count()
    };
    let limit = super::waves::policy(&rollout.spec).parallel;
    let (standing, reason, message) = summary(decided, known);
    let mut conditions = Conditions::new(&before.conditions, rollout.metadata.generation, now);
    conditions.summarise(&Summary {
        standing,
        reason,
        message,
    });
    let mut history = before.history.clone();
    if let Some((run, phase)) = &decided.ended {
        let record = history::record(run, *phase, before.sources.as_ref());
        history = history::remembered(&history, record);
    }
    let first: Vec<_> = verdict.next.iter().take(3).map(String::as_str).collect();
    let more = verdict.next.len().saturating_sub(3);
    let more = (more > 0).then(|| format!(" and {more} more"));
    let mut told = RolloutStatus {
        observed_generation: observed_generation(
            before.observed_generation,
            rollout.metadata.generation,
            standing,
        ),
        phase: Some(verdict.phase),
        wave: open.and_then(|run| {
            let (number, name) = verdict.wave.as_ref()?;
            Some(format!("{number}/{} {name}", run.waves.len()))
        }),
        done: open.map(|run| format!("{}/{}", count(&[Done, Skipped, Gone]), run.clusters.len())),
        budget: open.map(|_| format!("{}/{limit}", count(&[Updating, Soaking]))),
        next: (!first.is_empty()).then(|| {
            api::text::plain(
                &format!("{}{}", first.join(", "), more.unwrap_or_default()),
                500,
            )
        }),
        waits: verdict
            .waits
            .as_ref()
            .map(|waits| api::text::plain(waits, 1000)),
        queued: decided
            .queued
            .as_ref()
            .map(|queued| api::text::plain(queued, 1000)),
        run: decided.run.clone(),
        sources: decided.sources.clone(),
        births: decided.births.clone(),
        skipped: decided.skipped.clone(),
        history,
        conditions: conditions.into_vec(),
    };
    history::fit(&mut told);
    told
}

fn summary(decided: &Decided, known: &Known) -> (Standing, &'static str, String) {
    let waits = decided.verdict.waits.clone();
    let waits = || waits.clone().unwrap_or_else(|| "it goes on".to_owned());
    if let Some(problem) = &decided.problem {
        return (Standing::Stalled, "InvalidSpec", problem.clone());
    }
    match decided.verdict.phase {
        RolloutPhase::Idle | RolloutPhase::Succeeded if known.broken.is_empty() => (
            Standing::Ready,
            "UpToDate",
            up_to_date(&decided.skipped, known),
        ),
        RolloutPhase::Idle | RolloutPhase::Succeeded => (
            Standing::Unhealthy,
            "NotRendered",
            known.is_broken().unwrap_or_default(),
        ),
        RolloutPhase::Halted => (Standing::Stalled, "Halted", waits()),
        RolloutPhase::Aborted => (Standing::Stalled, "Aborted", waits()),
        RolloutPhase::WaitingForApproval => (Standing::AtWork, "WaitingForApproval", waits()),
        RolloutPhase::WaitingForWindow => (Standing::AtWork, "WaitingForWindow", waits()),
        RolloutPhase::Paused => (Standing::AtWork, "Paused", waits()),
        RolloutPhase::Gathering => (Standing::AtWork, "Gathering", waits()),
        RolloutPhase::RolledBack => (Standing::AtWork, "RollingBack", waits()),
        RolloutPhase::Running | RolloutPhase::Superseded => (Standing::AtWork, "Running", waits()),
    }
}

/// Who was left out stays so for as long as nobody edits it: whoever asks why it is of another revision finds it here.
fn up_to_date(skipped: &BTreeMap<String, String>, known: &Known) -> String {
    let is_there = |name: &str, revision: &String| {
        let seen = known.seen.get(name);
        seen.is_some_and(|seen| !seen.is_halfway && seen.applied.as_ref() == Some(revision))
    };
    let out = skipped.iter();
    let out = out.filter(|(name, revision)| !is_there(name, revision));
    let out: Vec<_> = out.map(|(name, _)| name.clone()).collect();
    let whole = "every cluster is as the inventory renders it";
    match out.as_slice() {
        [] => whole.to_owned(),
        _ => format!(
            "{whole}, but {}: left out, and brought to what the next edit of them makes",
            engine::listed(&out)
        ),
    }
}

fn occurrences(
    before: &RolloutStatus,
    after: &RolloutStatus,
    decided: &Decided,
) -> Vec<Occurrence> {
    let mut all = Vec::new();
    let of = |severity, reason: &str, note: String, edge: String| Occurrence {
        severity,
        reason: reason.to_owned(),
        note,
        edge,
    };
    let id = |status: &RolloutStatus| status.run.as_ref().map(|run| run.id.clone());
    if let Some(run) = after
        .run
        .as_ref()
        .filter(|run| id(before).as_ref() != Some(&run.id))
    {
        let note = format!(
            "run {} of {} clusters began, in the waves {}",
            run.id,
            run.clusters.len(),
            run.waves.join(", ")
        );
        let edge = format!("{} {:?}", run.id, run.started);
        all.push(of(Severity::Normal, "RunBegan", note, edge));
    }
    if before.phase != after.phase && after.phase == Some(RolloutPhase::Halted) {
        let note = after.waits.clone().unwrap_or_default();
        let edge = format!("{:?} {note}", id(after));
        all.push(of(Severity::Warning, "Halted", note, edge));
    }
    if let Some((run, phase)) = &decided.ended {
        let note = format!("run {} ended: {phase:?}", run.id);
        let edge = format!("{} {:?}", run.id, run.started);
        all.push(of(Severity::Normal, "RunEnded", note, edge));
    }
    all
}
