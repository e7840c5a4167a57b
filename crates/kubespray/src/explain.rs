//! Why a run failed: the first cause, not the last symptom. Pure: the Run, its events and the log of its step in, words out.
//!
//! What fails last is often what something else led to: an API server is silent because a disk was full two tasks before, or because
//! the step that makes it was skipped. So it is looked for, in this order, in the tasks of the step that failed, then in what
//! failed before it in the run and was passed over.

use std::io::BufRead;

use ansible::{
    event::{Event, Kind, Why},
    failure::{self, Rank},
};
use api::{
    Run,
    run::{Failure, Record, RecordEvent},
    text::plain,
};
use jiff::Timestamp;

use crate::failures;

/// Events and records are written by different processes of one machine, one after the other.
const SLACK: f64 = 2.0;
/// How much of a log is shown.
const LINES: usize = 40;
/// How much of a message is shown of what led to a failure.
const WORDS: usize = 1024;

/// Why a run failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The step.
    pub step: String,
    /// Its attempt.
    pub attempt: Option<u32>,
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
pub fn explain(run: &Run, events: impl BufRead, log: &str) -> Option<Explanation> {
    let status = run.status.as_ref()?;
    let history = &status.history;
    let failed = |record: &&Record| record.event == RecordEvent::StepFailed;
    let at = history.iter().rposition(|record| failed(&record))?;
    let record = history.get(at)?;
    // One that was tried again with success is no failure of the run.
    let failure = status.failure.clone().or_else(|| record.failure.clone())?;
    let step = record.step.clone()?;
    if is_done_after(history, at, &step) && status.failure.is_none() {
        return None;
    }
    let before = history.get(..at).unwrap_or_default();
    let first = in_events(before, record, &failure, events).or_else(|| in_history(before, record));
    Some(Explanation {
        attempt: record.attempt,
        first: first.filter(|first| first.code != failure.code),
        log: at_failure(log, &failure),
        step,
        failure,
    })
}

fn is_done_after(history: &[Record], at: usize, step: &str) -> bool {
    let mut later = history.iter().skip(at + 1);
    later.any(|record| {
        record.event == RecordEvent::StepSucceeded && record.step.as_deref() == Some(step)
    })
}

/// A task of the same attempt that failed before and was ignored, mended or tried again, with what is a cause by itself.
fn in_events(
    before: &[Record],
    failed: &Record,
    failure: &Failure,
    events: impl BufRead,
) -> Option<First> {
    if rank(&failure.code) == Rank::Cause {
        return None;
    }
    let mut started = before
        .iter()
        .rev()
        .filter(|record| record.event == RecordEvent::StepStarted && record.step == failed.step);
    let from = seconds(started.next()?) - SLACK;
    let to = seconds(failed) + SLACK;
    let lines = events.lines().map_while(Result::ok);
    // Most of many thousand lines are of what went well.
    let of_trouble = lines.filter(|line| {
        ["\"failed\"", "\"unreachable\"", "\"retry\""]
            .iter()
            .any(|word| line.contains(word))
    });
    let events = of_trouble.filter_map(|line| serde_json::from_str::<Event>(&line).ok());
    let mut causes = events
        .filter(|event| event.time >= from && event.time <= to)
        .filter_map(|event| cause(&event));
    causes.next()
}

fn cause(event: &Event) -> Option<First> {
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
    Some(First {
        at,
        place: format!("{task} on {host}"),
        code: kind.code.to_owned(),
        message: plain(&why.text(), WORDS),
        remedy: Some(kind.remedy.to_owned()),
    })
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
fn in_history(before: &[Record], failed: &Record) -> Option<First> {
    let unmended = |(at, record): &(usize, &Record)| {
        let step = record.step.as_deref().unwrap_or_default();
        record.event == RecordEvent::StepFailed && !is_done_after(before, *at, step)
    };
    let mut earlier = before.iter().enumerate().filter(unmended);
    let (at, first) = earlier.next()?;
    let failure = first.failure.as_ref()?;
    let step = first.step.clone().unwrap_or_default();
    let skipped = before.iter().skip(at).find(|record| {
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

/// The log from the task that failed on, else its end.
fn at_failure(log: &str, failure: &Failure) -> Vec<String> {
    let lines: Vec<&str> = log.lines().collect();
    let of_host = |line: &&str| {
        let rest = ["failed: [", "unreachable: ["];
        let host = rest.iter().find_map(|start| line.strip_prefix(start));
        let host = host.and_then(|rest| rest.split(']').next());
        host.is_some_and(|host| {
            let mut targets = failure.targets.iter();
            failure.targets.is_empty() || targets.any(|target| target.as_str() == host)
        })
    };
    let begins = |line: &&str| line.starts_with("TASK [") || line.starts_with("PLAY [");
    let shown = match lines.iter().rposition(of_host) {
        Some(failed) => {
            let above = lines.get(..failed).unwrap_or_default();
            let from = above.iter().rposition(begins).unwrap_or(failed);
            let rest = lines.get(from..).unwrap_or_default();
            let next = rest.iter().skip(1).position(begins);
            let until = next.map_or(rest.len(), |next| next + 1);
            shortened(rest.get(..until).unwrap_or_default(), failed - from)
        }
        None => lines
            .get(lines.len().saturating_sub(LINES / 2)..)
            .unwrap_or_default()
            .to_vec(),
    };
    shown.into_iter().map(str::to_owned).collect()
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

/// The log of a step in the directory of a run, as much as is kept of it.
pub fn log_of(directory: &std::path::Path, step: &str) -> String {
    let name = format!("{}.log", step.replace('/', "__"));
    let bytes = std::fs::read(directory.join("logs").join(name)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
