//! What kind of failure it is, and what a person can do.

use api::{
    Target,
    run::{Failure, FailureClass},
    text::lines,
};

use super::Verdict;
use crate::event::HostFailure;
use known::known;

mod known;
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
        } => Some(Failure {
            class: FailureClass::Transient,
            code: "TimedOut".to_owned(),
            message: "the step took longer than its timeout and was killed".to_owned(),
            remedy: Some(
                "It is tried again; give the step more time if its hosts are slow.".to_owned(),
            ),
            targets: Vec::new(),
        }),
        Verdict::Failed { failures, .. } => Some(of_hosts(failures)),
        Verdict::Unreachable { unreachable } => {
            let failures: Vec<HostFailure> = unreachable.values().cloned().collect();
            Some(not_reached(&failures))
        }
        Verdict::Missing { hosts } => Some(Failure {
            class: FailureClass::Permanent,
            code: "HostsMissing".to_owned(),
            message: format!("{} took no part in the step", list(hosts)),
            remedy: Some(
                "Look into the step's log: the play does not match these hosts.".to_owned(),
            ),
            targets: names(hosts),
        }),
        Verdict::Crashed { reason } => Some(crash(reason)),
    }
}

/// The failure that a text means, for texts that come from elsewhere.
pub fn failure_of_text(text: &str) -> Failure {
    let known = known(text);
    Failure {
        class: known.map_or(FailureClass::Permanent, |known| known.class),
        code: known.map_or("TaskFailed", |known| known.code).to_owned(),
        message: lines(text, 4096),
        remedy: Some(
            known
                .map_or("Look into the step's log, then retry the step.", |known| {
                    known.remedy
                })
                .to_owned(),
        ),
        targets: Vec::new(),
    }
}

fn of_hosts(failures: &[HostFailure]) -> Failure {
    let Some(first) = failures.first() else {
        return failure_of_text("");
    };
    let mut failure = of_host(first);
    let more = match failures.len() {
        1 => String::new(),
        all => format!(" (and on {} more)", all - 1),
    };
    let told = format!("{}: {}: {}", first.host, first.task, first.message);
    failure.message = lines(&told, 4000) + &more;
    failure.targets = names(failures.iter().map(|failure| &failure.host));
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
    // Why a host is not reached is told by ssh: only some of it is more than a dead host.
    let known = known(&words(&first))
        .filter(|known| matches!(known.code, "HostKeyChanged" | "Authentication" | "DiskFull"));
    let hosts: Vec<&String> = failures.iter().map(|failure| &failure.host).collect();
    Failure {
        class: known.map_or(FailureClass::External, |known| known.class),
        code: known
            .map_or("HostUnreachable", |known| known.code)
            .to_owned(),
        message: lines(
            &format!("{} not reached: {}", list(&hosts), first.message),
            4096,
        ),
        remedy: Some(
            known
                .map_or(
                    "Bring the host back, or leave it out; then retry the step.",
                    |k| k.remedy,
                )
                .to_owned(),
        ),
        targets: names(hosts),
    }
}

fn crash(reason: &str) -> Failure {
    let killed = reason.contains("killed by signal");
    let mut failure = failure_of_text(reason);
    if killed {
        failure.class = FailureClass::Transient;
        "Killed".clone_into(&mut failure.code);
        failure.remedy = Some(
            "It is tried again. If it happens again, look for the out-of-memory killer in the kernel's log.".to_owned(),
        );
    } else if failure.code == "TaskFailed" {
        "Crashed".clone_into(&mut failure.code);
        failure.remedy = Some("Look into the step's log.".to_owned());
    }
    failure
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
