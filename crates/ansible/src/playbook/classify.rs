//! What kind of failure it is, and what a person can do.

use api::{
    Target,
    run::{Failure, FailureClass},
    text::lines,
};
use regex::RegexSet;

use super::Verdict;
use crate::event::HostFailure;

/// A kind of failure that is known by its words.
struct Known {
    pattern: &'static str,
    class: FailureClass,
    code: &'static str,
    remedy: &'static str,
}

/// The first that fits wins: what is more particular stands first.
const KNOWN: [Known; 13] = [
    Known {
        pattern: r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key verification failed",
        class: FailureClass::External,
        code: "HostKeyChanged",
        remedy: "If the host was made anew, remove its line from the cluster's known_hosts; otherwise find out who answers at its address.",
    },
    Known {
        pattern: r"Permission denied \((publickey|password|keyboard|gssapi)|Too many authentication failures",
        class: FailureClass::Config,
        code: "Authentication",
        remedy: "Put the cluster's public key into authorized_keys of the ssh user on the host, or correct ssh.user and ssh.privateKeySecretRef.",
    },
    Known {
        pattern: r"(?i)could not get lock|unable to (acquire|lock)[^\n]*(dpkg|apt)|Failed to lock apt|dpkg frontend lock|another app is currently holding the (yum|dnf) lock|waiting for process with pid \d+ to finish",
        class: FailureClass::Transient,
        code: "PackageManagerLocked",
        remedy: "Another program installs packages on the host; it is tried again.",
    },
    Known {
        pattern: r"(?i)no space left on device|disk quota exceeded|you don't have enough free space|at least \d+\S* more space needed",
        class: FailureClass::External,
        code: "DiskFull",
        remedy: "Free space on the disk, then retry the step.",
    },
    Known {
        pattern: r"(?i)missing sudo password|sudo: a password is required|is not in the sudoers file|incorrect sudo password",
        class: FailureClass::Config,
        code: "Sudo",
        remedy: "Let the ssh user run sudo without a password on the host.",
    },
    Known {
        pattern: r"(?i)read-only file system",
        class: FailureClass::External,
        code: "ReadOnlyFileSystem",
        remedy: "Mount the file system writable, then retry the step.",
    },
    Known {
        pattern: r"(?i)syntax error|unexpected parameter type in action|couldn't resolve module/action|is not a valid attribute for a|the playbook: \S+ could not be found|conflicting action statements|no module/action detected",
        class: FailureClass::Config,
        code: "PlaybookSyntax",
        remedy: "The playbook source is broken: compare it with the release, or choose another source.",
    },
    Known {
        pattern: r"(?i)is undefined|has no attribute|undefined variable|AnsibleUndefined",
        class: FailureClass::Config,
        code: "UndefinedVariable",
        remedy: "Set the variable in nodes.all.deploy.extraVars, or in the ClusterNode's inventory.",
    },
    Known {
        pattern: r"(?i)temporary failure in name resolution|could not resolve host|name or service not known|failed to fetch|connection timed out|connection refused|network is unreachable|request failed|TLS handshake timeout|\b50[234]\b[^\n]*(gateway|unavailable)|i/o timeout",
        class: FailureClass::Transient,
        code: "Network",
        remedy: "The host could not reach something that it needs; it is tried again. Check the host's network, proxy and mirrors.",
    },
    Known {
        pattern: r"(?i)checksum (mismatch|did not match)|destination checksum",
        class: FailureClass::External,
        code: "ChecksumMismatch",
        remedy: "A download is not what the release expects: check the mirror.",
    },
    Known {
        pattern: r"(?i)permission denied|operation not permitted",
        class: FailureClass::External,
        code: "PermissionDenied",
        remedy: "Give the ssh user, or the files that the message names, the rights that the task needs.",
    },
    Known {
        pattern: r"(?i)MODULE FAILURE|python[^\n]*(not found|no such file)|requires python|future feature annotations is not defined",
        class: FailureClass::External,
        code: "Python",
        remedy: "Install a Python that the kubespray release supports on the host.",
    },
    Known {
        pattern: r"(?i)assertion failed|assert(ion)? that|Evaluated to false",
        class: FailureClass::Config,
        code: "AssertionFailed",
        remedy: "The playbook refuses what was asked for: correct what the message names.",
    },
];

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
    let mut failure = failure_of_text(&words(first));
    let more = match failures.len() {
        1 => String::new(),
        all => format!(" (and on {} more)", all - 1),
    };
    let told = format!("{}: {}: {}", first.host, first.task, first.message);
    failure.message = lines(&told, 4000) + &more;
    failure.targets = names(failures.iter().map(|failure| &failure.host));
    failure
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

fn known(text: &str) -> Option<&'static Known> {
    static PATTERNS: std::sync::LazyLock<Option<RegexSet>> =
        std::sync::LazyLock::new(|| RegexSet::new(KNOWN.iter().map(|known| known.pattern)).ok());
    let first = PATTERNS.as_ref()?.matches(text).iter().next()?;
    KNOWN.get(first)
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
    fn patterns_compile_and_tell_kinds_apart() {
        RegexSet::new(KNOWN.iter().map(|known| known.pattern)).expect("patterns");
        for (text, code) in [
            (
                "Failed to lock apt for exclusive operation: E:Could not get lock /var/lib/dpkg/lock",
                "PackageManagerLocked",
            ),
            ("[Errno 28] No space left on device", "DiskFull"),
            (
                "root@10.0.0.1: Permission denied (publickey).",
                "Authentication",
            ),
            ("Permission denied: '/etc/shadow'", "PermissionDenied"),
            ("'foo' is undefined", "UndefinedVariable"),
            ("ERROR! Syntax Error while loading YAML.", "PlaybookSyntax"),
            ("Missing sudo password", "Sudo"),
            ("something else", "TaskFailed"),
        ] {
            assert_eq!(failure_of_text(text).code, code, "{text}");
        }
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
