//! How a playbook went, from its events and the hosts that were expected.

use std::collections::{BTreeMap, BTreeSet};

use super::{End, Outcome};
use crate::event::HostFailure;

/// How a playbook went.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Every expected host did every play that is about it.
    Succeeded,
    /// Tasks failed on hosts.
    Failed {
        /// The failure that ended each host, in the order in which they happened.
        failures: Vec<HostFailure>,
        /// Hosts that were not reached besides.
        unreachable: BTreeMap<String, HostFailure>,
    },
    /// Nothing failed, but hosts were not reached.
    Unreachable {
        /// Which, and why.
        unreachable: BTreeMap<String, HostFailure>,
    },
    /// The playbook came to its end and nothing failed, but expected hosts did not take part.
    Missing {
        /// Which.
        hosts: BTreeSet<String>,
    },
    /// It ended before its end because we wanted it to: between two tasks, or killed, or by its timeout.
    Interrupted {
        /// Whether modules may still run on hosts.
        remote_work: bool,
        /// Whether its timeout did it.
        timed_out: bool,
    },
    /// It ended before its end and nobody wanted it to.
    Crashed {
        /// What is known, for people.
        reason: String,
    },
}

/// Judges how a playbook went. `expected` are the hosts that it was started for.
///
/// A play that no expected host belongs to is not asked for anything. A play of which every task runs once, on one host
/// for all, needs no more than that.
pub fn judge<'a>(expected: impl IntoIterator<Item = &'a str>, outcome: &Outcome) -> Verdict {
    let tally = &outcome.tally;
    if tally.stopped {
        return interrupted(false, false);
    }
    if !tally.ended() {
        return match outcome.end {
            End::Killed => interrupted(true, false),
            End::TimedOut => interrupted(true, true),
            end => crashed(end, &outcome.log_tail),
        };
    }
    if !tally.failures.is_empty() {
        return Verdict::Failed {
            failures: last_of_each_host(&tally.failures),
            unreachable: tally.unreachable.clone(),
        };
    }
    if !tally.unreachable.is_empty() {
        return Verdict::Unreachable {
            unreachable: tally.unreachable.clone(),
        };
    }
    if tally.lost > 0 {
        return Verdict::Crashed {
            reason: format!("{} events were not written: is the disk full?", tally.lost),
        };
    }
    match outcome.end {
        End::Exit(0) | End::Unseen => complete(expected, outcome),
        end => crashed(end, &outcome.log_tail),
    }
}

fn complete<'a>(expected: impl IntoIterator<Item = &'a str>, outcome: &Outcome) -> Verdict {
    let plays = &outcome.tally.plays;
    let known = plays.iter().any(|play| !play.hosts.is_empty());
    let hosts: BTreeSet<String> = expected
        .into_iter()
        .filter(|host| {
            let mut own = plays
                .iter()
                .filter(|play| play.hosts.contains(*host))
                .peekable();
            let absent = known && own.peek().is_none();
            let silent = own.any(|play| play.for_all_hosts && !play.seen.contains(*host));
            absent || silent || !known
        })
        .map(str::to_owned)
        .collect();
    if hosts.is_empty() {
        Verdict::Succeeded
    } else {
        Verdict::Missing { hosts }
    }
}

/// A host does nothing more after a failure that nothing mended: what a rescue block mended stands before it.
fn last_of_each_host(failures: &[HostFailure]) -> Vec<HostFailure> {
    let mut seen = BTreeSet::new();
    let mut last: Vec<HostFailure> = failures
        .iter()
        .rev()
        .filter(|failure| seen.insert(failure.host.as_str()))
        .cloned()
        .collect();
    last.reverse();
    last
}

fn interrupted(remote_work: bool, timed_out: bool) -> Verdict {
    Verdict::Interrupted {
        remote_work,
        timed_out,
    }
}

/// Ansible says why it could not begin on its last lines, as `ERROR! ...`.
fn crashed(end: End, log: &str) -> Verdict {
    let how = match end {
        End::Signal(signal) => format!("ansible-playbook was killed by signal {signal}"),
        End::Exit(code) => format!("ansible-playbook ended early with exit code {code}"),
        End::Unseen | End::Killed | End::TimedOut => "ansible-playbook ended early".to_owned(),
    };
    let why = match end {
        End::Signal(_) => String::new(),
        _ => error_lines(log),
    };
    Verdict::Crashed {
        reason: if why.is_empty() {
            how
        } else {
            format!("{how}: {why}")
        },
    }
}

fn error_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().map(str::trim_end).collect();
    let from = lines
        .iter()
        .rposition(|line| line.starts_with("ERROR!") || line.starts_with("[ERROR]"));
    let lines = match from {
        Some(from) => lines.get(from..).unwrap_or_default(),
        None => lines
            .get(lines.len().saturating_sub(5)..)
            .unwrap_or_default(),
    };
    let text: Vec<&str> = lines
        .iter()
        .copied()
        .filter(|line| !line.is_empty())
        .take(12)
        .collect();
    text.join("\n")
}
