//! What kind of failure it is, and what a person can do.

use api::{
    Target,
    run::{Failure, FailureClass},
    text::lines,
};

use super::Verdict;
use crate::{
    event::HostFailure,
    failure::{self, Kind, Rank},
};

mod variables;

/// The failure that a verdict means; `None` if it means none. An interruption that was asked for is none.
pub fn failure(verdict: &Verdict) -> Option<Failure> {
    match verdict {
        Verdict::Succeeded
        | Verdict::Interrupted {
            timed_out: false, ..
        } => None,
        Verdict::Interrupted {
            timed_out: true, ..
        } => Some(of_kind(
            "TimedOut",
            "the step took longer than its timeout and was killed".to_owned(),
        )),
        Verdict::Failed { failures, .. } => Some(of_hosts(failures)),
        Verdict::Unreachable { unreachable } => {
            let failures: Vec<HostFailure> = unreachable.values().cloned().collect();
            Some(not_reached(&failures))
        }
        Verdict::Missing { hosts } => Some(Failure {
            targets: names(hosts),
            ..of_kind(
                "HostsMissing",
                format!("{} took no part in the step", list(hosts)),
            )
        }),
        Verdict::Crashed { reason } => Some(crash(reason)),
    }
}

/// The failure that a text means, for texts that come from elsewhere.
pub fn failure_of_text(text: &str) -> Failure {
    let code = failure::of_text(text).map_or("TaskFailed", |kind| kind.code);
    of_kind(code, lines(text, 4096))
}

/// A failure of a kind of the table.
fn of_kind(code: &str, message: String) -> Failure {
    let kind = failure::named(code);
    Failure {
        class: kind.map_or(FailureClass::Permanent, |kind| kind.class),
        code: code.to_owned(),
        message,
        remedy: kind.map(|kind| kind.remedy.to_owned()),
        targets: Vec::new(),
    }
}

/// Of several hosts the first whose failure is a cause by itself: what else failed may follow from it.
fn worst(failures: &[HostFailure]) -> Option<&HostFailure> {
    let is_cause = |failed: &&HostFailure| {
        let kind = failure::of_text(&words(failed));
        kind.is_some_and(|kind| kind.rank == Rank::Cause)
    };
    failures.iter().find(is_cause).or_else(|| failures.first())
}

fn of_hosts(failures: &[HostFailure]) -> Failure {
    let Some(first) = worst(failures) else {
        return failure_of_text("");
    };
    let mut failure = of_host(first);
    let more = match failures.len() {
        1 => String::new(),
        all => format!(" (and on {} more)", all - 1),
    };
    let told = format!("{}: {}: {}", first.host, first.task, first.message);
    failure.message = lines(&told, 4000) + &more;
    // Whose failure it is comes first: what else failed may have failed otherwise.
    let others = failures.iter().filter(|failure| failure.host != first.host);
    let hosts = std::iter::once(first).chain(others);
    failure.targets = names(hosts.map(|failure| &failure.host));
    failure
}

/// What a failure on one host is: what is known of variables goes before words.
fn of_host(failure: &HostFailure) -> Failure {
    let why = &failure.why;
    let of_variables = |code: &str, remedy| Failure {
        class: FailureClass::Config,
        code: code.to_owned(),
        message: String::new(),
        remedy: Some(remedy),
        targets: Vec::new(),
    };
    if why.assertion.is_some() {
        return of_variables("AssertionFailed", variables::to_correct(&why.values));
    }
    if why.path.is_some() {
        return of_variables("UndefinedVariable", variables::to_set(&why.undefined));
    }
    let mut told = failure_of_text(&words(failure));
    if why.hidden {
        told.remedy = Some(
            "The task deals with secrets and hides what it says: look on the host at what its name says, then retry the step."
                .to_owned(),
        );
    }
    told
}

fn not_reached(failures: &[HostFailure]) -> Failure {
    let first = failures.first().cloned().unwrap_or_default();
    let hosts: Vec<&String> = failures.iter().map(|failure| &failure.host).collect();
    // Why a host is not reached is told by ssh, and what Ansible tells beside it: only some of the kinds are of that.
    let of_login = |kind: &&Kind| kind.code.starts_with("Host") || kind.code == "DiskFull";
    let kind = failure::of_text(&words(&first)).filter(of_login);
    let message = format!("{} not reached: {}", list(&hosts), first.message);
    Failure {
        targets: names(hosts),
        ..of_kind(
            kind.map_or("HostUnreachable", |kind| kind.code),
            lines(&message, 4096),
        )
    }
}

fn crash(reason: &str) -> Failure {
    let told = lines(reason, 4096);
    if reason.contains("killed by signal") {
        return of_kind("Killed", told);
    }
    let code = failure::of_text(reason).map_or("Crashed", |kind| kind.code);
    of_kind(code, told)
}

fn words(failure: &HostFailure) -> String {
    let why = &failure.why;
    [
        Some(&failure.message),
        why.stderr.as_ref(),
        why.stdout.as_ref(),
        why.exception.as_ref(),
    ]
    .into_iter()
    .flatten()
    .map(String::as_str)
    .collect::<Vec<_>>()
    .join("\n")
}

fn names<S: AsRef<str>>(hosts: impl IntoIterator<Item = S>) -> Vec<Target> {
    hosts
        .into_iter()
        .filter_map(|host| host.as_ref().parse().ok())
        .collect()
}

/// The first few, and how many more.
fn list<S: AsRef<str>>(hosts: impl IntoIterator<Item = S>) -> String {
    let hosts: Vec<S> = hosts.into_iter().collect();
    let shown: Vec<&str> = hosts.iter().take(5).map(AsRef::as_ref).collect();
    match hosts.len().saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_whose_failure_it_is_comes_first() {
        let failed = |host: &str, message: &str| HostFailure {
            host: host.to_owned(),
            message: message.to_owned(),
            ..HostFailure::default()
        };
        let told = of_hosts(&[
            failed("a", "non-zero return code"),
            failed("b", "cp: No space left on device"),
            failed("c", "non-zero return code"),
        ]);
        let targets: Vec<_> = told.targets.iter().map(Target::as_str).collect();
        assert_eq!(
            (told.code.as_str(), targets.join(" ")),
            ("DiskFull", "b a c".to_owned())
        );
    }

    #[test]
    fn a_kill_is_told_from_a_crash() {
        let crash = |reason: &str| {
            failure(&Verdict::Crashed {
                reason: reason.to_owned(),
            })
            .expect("a failure")
        };
        assert_eq!(
            crash("ansible-playbook was killed by signal 9").code,
            "Killed"
        );
        assert_eq!(
            crash("ansible-playbook ended early with exit code 250").code,
            "Crashed"
        );
    }
}
