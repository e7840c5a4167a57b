//! Why a run failed: the first cause, not the last symptom. The Run and what is [`Kept`] of it in, words out.
//!
//! What fails last is often what something else led to: an API server is silent because a disk was full two tasks before, or because
//! the step that makes it was skipped. So it is looked for, in this order, in the tasks of the step that failed, then in what
//! failed before it in the run and was passed over.
//!
//! Ansible tells some hundred events a host, nearly all of what went well. So the events are read from where the attempt
//! began, not at all where the failure is a cause by itself, and only those of trouble are parsed, up to the first cause.

mod kept;

use std::io::{self, BufRead};

use ansible::{
    event::{Event, Kind, Why},
    failure::{self, Rank},
};
use api::{
    Run, Target,
    run::{Failure, Record, RecordEvent},
    text::plain,
};
use jiff::Timestamp;

use crate::failures;

pub use kept::{Directory, Kept};

/// Events and records are written by different processes of one machine, one after the other.
const SLACK: f64 = 2.0;
/// How much of a log is shown.
const LINES: usize = 20;
/// How much of a message is shown of what led to a failure.
const WORDS: usize = 1024;

/// Why a run failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The step.
    pub step: String,
    /// Its attempt.
    pub attempt: Option<u32>,
    /// When it failed.
    pub at: Timestamp,
    /// What it failed with.
    pub failure: Failure,
    /// What led to it, where that is something else.
    pub first: Option<First>,
    /// The log at the task that failed; none: nobody has it.
    pub log: Vec<String>,
}

/// What led to a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct First {
    /// When, where that is known.
    pub at: Option<Timestamp>,
    /// Where: a task on a host, or a step.
    pub place: String,
    /// What kind of failure.
    pub code: String,
    /// What was said.
    pub message: String,
    /// What to do.
    pub remedy: Option<String>,
}

/// Why a run failed; nothing: it has not.
///
/// # Errors
///
/// What Ansible told is there and cannot be read. That nothing is kept is no error.
pub fn explain(run: &Run, kept: &impl Kept) -> io::Result<Option<Explanation>> {
    let Some((at, record, failure)) = last_failure(run) else {
        return Ok(None);
    };
    let history = run.status.iter().flat_map(|status| &status.history);
    let before: Vec<&Record> = history.take(at).collect();
    let step = record.step.clone().unwrap_or_default();
    let first = match rank(&failure.code) {
        // It has none, whatever failed before it.
        Rank::Cause => None,
        Rank::Symptom => match in_events(run, &before, record, kept)? {
            Some(first) => Some(first),
            None => in_history(&before, record),
        },
    };
    Ok(Some(Explanation {
        attempt: record.attempt,
        at: record.time.0,
        first: first.filter(|first| first.code != failure.code),
        log: at_failure(&kept.log(&step), failure),
        step,
        failure: failure.clone(),
    }))
}

/// The record of the step that a run failed in last, its place in the history, and what the run failed with.
fn last_failure(run: &Run) -> Option<(usize, &Record, &Failure)> {
    let status = run.status.as_ref()?;
    let history = &status.history;
    let at = history
        .iter()
        .rposition(|record| record.event == RecordEvent::StepFailed)?;
    let record = history.get(at)?;
    let failure = status.failure.as_ref().or(record.failure.as_ref())?;
    let step = record.step.as_deref()?;
    // One that was tried again with success is no failure of the run.
    let is_mended = status.failure.is_none() && is_done(history.iter().skip(at + 1), step);
    (!is_mended).then_some((at, record, failure))
}

fn is_done<'a>(mut later: impl Iterator<Item = &'a Record>, step: &str) -> bool {
    later.any(|record| {
        record.event == RecordEvent::StepSucceeded && record.step.as_deref() == Some(step)
    })
}

/// A task of the same attempt that failed before and was ignored, mended or tried again, with what is a cause by itself. One on a host
/// that was left out only where there is no other: the run went on without it.
fn in_events(
    run: &Run,
    before: &[&Record],
    failed: &Record,
    kept: &impl Kept,
) -> io::Result<Option<First>> {
    let excluded = run.status.iter().flat_map(|status| &status.excluded);
    let excluded: Vec<&str> = excluded.map(|host| host.target.as_str()).collect();
    let mut of_excluded = None;
    let mut started = before
        .iter()
        .rev()
        .filter(|record| record.event == RecordEvent::StepStarted && record.step == failed.step);
    let Some(started) = started.next() else {
        return Ok(None);
    };
    let from = seconds(started) - SLACK;
    let to = seconds(failed) + SLACK;
    let mut events = kept.events_since(from)?;
    let mut line = Vec::new();
    loop {
        line.clear();
        if events.read_until(b'\n', &mut line)? == 0 {
            return Ok(of_excluded);
        }
        if !is_of_trouble(&line) {
            continue;
        }
        // The half line of a process that was killed is none.
        let Ok(event) = serde_json::from_slice::<Event>(&line) else {
            continue;
        };
        if event.time > to {
            return Ok(of_excluded);
        }
        let cause = Some(&event).filter(|event| event.time >= from);
        match cause.and_then(cause_of) {
            Some((host, first)) if excluded.contains(&host) => {
                of_excluded = of_excluded.or(Some(first));
            }
            Some((_, first)) => return Ok(Some(first)),
            None => {}
        }
    }
}

/// Whether a line may tell of a failure. In text within JSON the quotes would be escaped.
fn is_of_trouble(line: &[u8]) -> bool {
    const KIND: &str = "\"event\":\"";
    let Ok(line) = std::str::from_utf8(line) else {
        return false;
    };
    let Some((_, kind)) = line.split_once(KIND) else {
        return false;
    };
    ["failed\"", "unreachable\"", "retry\""]
        .iter()
        .any(|word| kind.starts_with(word))
        || kind.starts_with("item\"") && line.contains("\"failed\"")
}

/// What a task failed with, and on which host.
fn cause_of(event: &Event) -> Option<(&str, First)> {
    let (host, task, why) = match &event.kind {
        Kind::Failed {
            host, name, why, ..
        }
        | Kind::Unreachable {
            host, name, why, ..
        }
        | Kind::Retry {
            host, name, why, ..
        } => (host, name.as_str(), why),
        Kind::Item {
            host,
            why,
            outcome: ansible::event::ItemOutcome::Failed,
            ..
        } => (host, "an item of a loop", why),
        _ => return None,
    };
    let kind = failure::of_text(&said(why)).filter(|kind| kind.rank == Rank::Cause)?;
    #[expect(clippy::cast_possible_truncation, reason = "whole seconds are shown")]
    let at = Timestamp::from_second(event.time as i64).ok();
    let first = First {
        at,
        place: format!("{task} on {host}"),
        code: kind.code.to_owned(),
        message: plain(&why.text(), WORDS),
        remedy: Some(kind.remedy.to_owned()),
    };
    Some((host, first))
}

fn said(why: &Why) -> String {
    let parts = [
        Some(&why.message),
        why.stderr.as_ref(),
        why.stdout.as_ref(),
        why.exception.as_ref(),
    ];
    let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
    parts.join("\n")
}

/// A failure before it that was not mended: of an earlier attempt, or of a step that a person skipped.
fn in_history(before: &[&Record], failed: &Record) -> Option<First> {
    let after = |at: usize| before.iter().skip(at).copied();
    let unmended = |(at, record): &(usize, &&Record)| {
        let step = record.step.as_deref().unwrap_or_default();
        record.event == RecordEvent::StepFailed && !is_done(after(*at), step)
    };
    let mut earlier = before.iter().enumerate().filter(unmended);
    let (at, first) = earlier.next()?;
    let failure = first.failure.as_ref()?;
    let step = first.step.clone().unwrap_or_default();
    let skipped = after(at).find(|record| {
        record.event == RecordEvent::StepSkipped && record.step.as_ref() == Some(&step)
    });
    let place = match skipped {
        Some(skipped) => format!(
            "step {step}, which {} had counted as done: {}",
            skipped.by.as_deref().unwrap_or("somebody"),
            skipped.detail.as_deref().unwrap_or("no reason is known")
        ),
        None if first.step == failed.step => format!(
            "attempt {} of the same step",
            first.attempt.unwrap_or_default()
        ),
        None => format!("step {step}"),
    };
    Some(First {
        at: Some(first.time.0),
        place,
        code: failure.code.clone(),
        message: plain(&failure.message, WORDS),
        remedy: failure.remedy.clone(),
    })
}

fn rank(code: &str) -> Rank {
    failures::named(code).map_or(Rank::Symptom, |kind| kind.rank)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "seconds of a few thousand years"
)]
fn seconds(record: &Record) -> f64 {
    record.time.0.as_second() as f64
}

/// The log at the task that failed, on the host whose failure it is, else its end.
fn at_failure(log: &str, failure: &Failure) -> Vec<String> {
    let lines: Vec<&str> = log.lines().collect();
    let begins = |line: &&str| line.starts_with("TASK [") || line.starts_with("PLAY [");
    let targets: Vec<&str> = failure.targets.iter().map(Target::as_str).collect();
    let of_first = |host: &str| targets.first().is_some_and(|first| *first == host);
    let of_any = |host: &str| targets.is_empty() || targets.contains(&host);
    let failed = last_failed(&lines, of_first).or_else(|| last_failed(&lines, of_any));
    let shown = match failed {
        Some(failed) => {
            let above = lines.get(..failed).unwrap_or_default();
            let from = above.iter().rposition(begins).unwrap_or(failed);
            let rest = lines.get(from..).unwrap_or_default();
            let next = rest.iter().skip(1).position(begins);
            let until = next.map_or(rest.len(), |next| next + 1);
            shortened(rest.get(..until).unwrap_or_default(), failed - from)
        }
        None => lines
            .get(lines.len().saturating_sub(LINES)..)
            .unwrap_or_default()
            .to_vec(),
    };
    shown.into_iter().map(str::to_owned).collect()
}

/// The last line by which a task failed on such a host.
fn last_failed(lines: &[&str], is_meant: impl Fn(&str) -> bool) -> Option<usize> {
    lines.iter().rposition(|line| {
        let mut starts = ["failed: [", "unreachable: ["].iter();
        let rest = starts.find_map(|start| line.strip_prefix(start));
        let host = rest.and_then(|rest| rest.split(']').next());
        host.is_some_and(&is_meant)
    })
}

/// The task and what failed in it: of five hundred hosts that did well before nobody wants to hear.
fn shortened<'a>(lines: &[&'a str], failed: usize) -> Vec<&'a str> {
    let Some((task, _)) = lines.split_first().filter(|_| lines.len() > LINES) else {
        return lines.to_vec();
    };
    let from = failed.max(1);
    let rest = lines.iter().skip(from).take(LINES - 1);
    std::iter::once(task).chain(rest).copied().collect()
}

#[cfg(test)]
mod tests;
