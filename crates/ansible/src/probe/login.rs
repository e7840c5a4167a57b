//! One login, in which everything is asked.

use std::{
    io,
    os::fd::OwnedFd,
    process::{Output, Stdio},
    time::Duration,
};

use api::{node::NodeFacts, text::plain};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::TcpStream,
    process::{Child, Command},
    time::timeout,
};

use super::{Answer, Machine, Options, Reason, Target, Unusable, ssh_command};
use crate::{catalogue::PythonVersion, inventory::PythonPath};

/// What is asked of a host, one shell word; the numbers of the oldest Python are its arguments. The first word of each line
/// after `begin` says what it answers: what a login prints of its own stands before that. All of it goes to standard error,
/// as standard output may be the connection itself. Few processes, and of the Pythons no more than needed: on a small host
/// each costs more than the login's cryptography. One line without single quotes, so that every shell takes it for a word.
const SCRIPT: &str = concat!(
    r#"exec >&2; LC_ALL=C; export LC_ALL; echo begin; "#,
    r#"if [ "$(id -u)" = 0 ]; then echo sudo yes; "#,
    r#"elif said=$(sudo -n true 2>&1); then echo sudo yes; "#,
    r#"else echo sudo no "$said" | head -n 1; fi; "#,
    r#"for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 python3.7 "#,
    r#"/usr/libexec/platform-python; do "$python" -ISc ""#,
    r#"import posix, sys; version = sys.version_info[:2]; system = posix.uname(); "#,
    r#"print(\"python %s %d.%d\" % ((sys.executable,) + version)); "#,
    r#"print(\"kernel\", system[2]); print(\"machine\", system[4]); "#,
    r#"sys.exit(version < ($0, $1))" 2>/dev/null && break; done; "#,
    r#"{ read -r id </etc/machine-id && read -r boot </proc/sys/kernel/random/boot_id && echo identity "$id" "$boot"; } 2>/dev/null; "#,
    r#"[ -r /etc/os-release ] && . /etc/os-release && echo os "$PRETTY_NAME"; echo end"#,
);

/// Logs in and asks, over a connection whose banner is still to be read if there is one.
pub(super) async fn login(
    target: &Target,
    connection: Option<TcpStream>,
    options: &Options,
) -> Result<Answer, Unusable> {
    let limit = options.login_timeout;
    timeout(limit, session(target, connection, options))
        .await
        .unwrap_or_else(|_| Err(too_long(limit)))
}

pub(super) fn too_long(limit: Duration) -> Unusable {
    let detail = format!("no login within {} s", limit.as_secs());
    Unusable::new(Reason::LoginTimedOut, detail)
}

async fn session(
    target: &Target,
    connection: Option<TcpStream>,
    options: &Options,
) -> Result<Answer, Unusable> {
    let oldest = options.oldest_python;
    let child = command(target, connection, options)
        .map_err(|error| Unusable::broken(error.to_string()))?
        .arg(format!("sh -c '{SCRIPT}' {} {}", oldest.0, oldest.1))
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Unusable::broken(format!("ssh cannot be started: {error}")))?;
    let output = heard(child)
        .await
        .map_err(|error| Unusable::broken(error.to_string()))?;
    let (said, complaint) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if output.status.success() {
        return answer(&complaint, oldest);
    }
    let unusable = refusal(&complaint);
    // A shell that lets nobody in may say so on its output.
    match said.lines().rev().find(|line| !line.trim().is_empty()) {
        Some(last) if unusable.reason == Reason::Broken => Err(Unusable::broken(last.trim())),
        // It answered the connection: what times out is the login.
        _ if unusable.reason == Reason::TimedOut => Err(Unusable {
            reason: Reason::LoginTimedOut,
            ..unusable
        }),
        _ => Err(unusable),
    }
}

/// What a login says, if it comes to an end and is no more than can be an answer. Otherwise ssh is ended.
async fn heard(mut child: Child) -> io::Result<Output> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = tokio::try_join!(bounded(stdout), bounded(stderr))?;
    let status = child.wait().await?;
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

async fn bounded(stream: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut said = Vec::new();
    if let Some(stream) = stream {
        stream.take(ANSWER_LIMIT + 1).read_to_end(&mut said).await?;
    }
    if u64::try_from(said.len()).is_ok_and(|length| length > ANSWER_LIMIT) {
        let text = format!("it says more than {ANSWER_LIMIT} bytes at a login");
        return Err(io::Error::other(text));
    }
    Ok(said)
}

/// The longest answer of a login, in bytes: a long message of the day with the few lines that are asked for.
const ANSWER_LIMIT: u64 = 128 * 1024;

fn command(
    target: &Target,
    connection: Option<TcpStream>,
    options: &Options,
) -> io::Result<Command> {
    let Some(connection) = connection else {
        let mut command = Command::from(ssh_command(target, options));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        return Ok(command);
    };
    let connection = OwnedFd::from(connection.into_std()?);
    let mut command = Command::from(options.access.over_connection(
        &target.address,
        target.port,
        &target.user,
        options.login_timeout,
    ));
    command.stdin(connection.try_clone()?).stdout(connection);
    Ok(command)
}

/// Reads what the script printed.
fn answer(said: &str, oldest: PythonVersion) -> Result<Answer, Unusable> {
    let lines: Vec<(&str, &str)> = said
        .lines()
        .skip_while(|line| *line != "begin")
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .collect();
    let value = |name: &str| {
        let found = lines.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| plain(value, 256))
    };
    let word = |name: &str| value(name).filter(|value| is_word(value));
    if value("end").is_none() {
        return Err(Unusable::broken("the shell said nothing of what was asked"));
    }
    if let Some(("no", words)) = value("sudo").unwrap_or_default().split_once(' ') {
        return Err(Unusable::new(Reason::Sudo, words));
    }
    let pythons = lines.iter().filter(|(key, _)| *key == "python");
    let python = choose(pythons.map(|(_, value)| *value), oldest)?;
    let architecture = word("machine").map(|machine| match machine.as_str() {
        "x86_64" => "amd64".to_owned(),
        "aarch64" => "arm64".to_owned(),
        _ => machine,
    });
    let facts = NodeFacts {
        os: value("os"),
        kernel: word("kernel"),
        architecture,
        python: Some(python.to_string()),
    };
    let machine = value("identity").and_then(|ids| {
        let (id, boot) = ids.split_once(' ')?;
        Machine::of(id, boot)
    });
    Ok(Answer { facts, machine })
}

/// The first Python that is new enough; each is a path and a version, if it runs.
fn choose<'a>(
    pythons: impl Iterator<Item = &'a str>,
    oldest: PythonVersion,
) -> Result<PythonPath, Unusable> {
    let mut found = Vec::new();
    for python in pythons {
        let (path, version) = python.split_once(' ').unwrap_or((python, ""));
        match parse(version) {
            Some(version) if version >= oldest => {
                // Ansible takes the path for a template, and runs what it comes to: only a path goes on.
                return path.parse().map_err(|error| {
                    Unusable::broken(format!("it says that its Python is {path:?}: {error}"))
                });
            }
            Some(version) => found.push(format!("{path} is {version}")),
            None => tracing::debug!(path, "a Python does not run"),
        }
    }
    if found.is_empty() {
        let detail = "there is none on the PATH that runs";
        return Err(Unusable::new(Reason::NoPython, detail));
    }
    let detail = format!("{}, wanted is {oldest} or newer", found.join(", "));
    Err(Unusable::new(Reason::PythonTooOld, detail))
}

/// Whether a text is the name of a kernel or of an architecture.
fn is_word(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._+~-".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}

fn parse(version: &str) -> Option<PythonVersion> {
    let (major, minor) = version.trim().split_once('.')?;
    Some(PythonVersion(major.parse().ok()?, minor.parse().ok()?))
}

/// Tells from ssh's own words why there was no login.
pub(super) fn refusal(complaint: &str) -> Unusable {
    let lines = || {
        complaint
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let known = REFUSALS.iter().find_map(|(words, reason)| {
        let line = lines().find(|line| line.contains(words))?;
        Some(Unusable::new(*reason, line))
    });
    known.unwrap_or_else(|| Unusable::broken(lines().next_back().unwrap_or("ssh said nothing")))
}

/// ssh's words, the more particular ones first.
const REFUSALS: [(&str, Reason); 14] = [
    ("IDENTIFICATION HAS CHANGED", Reason::HostKeyChanged),
    ("host key is known", Reason::HostKeyUnknown),
    ("Host key verification failed", Reason::HostKeyChanged),
    ("Permission denied", Reason::Authentication),
    ("Too many authentication failures", Reason::Authentication),
    ("invalid format", Reason::Authentication),
    ("Could not resolve", Reason::Unresolved),
    ("Name or service not known", Reason::Unresolved),
    ("name resolution", Reason::Unresolved),
    ("Connection refused", Reason::Refused),
    ("timed out", Reason::TimedOut),
    ("No route to host", Reason::NoRoute),
    ("unreachable", Reason::NoRoute),
    ("administratively prohibited", Reason::Forwarding),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn said(python: &str, kernel: &str, os: &str) -> Result<NodeFacts, Unusable> {
        let text = format!(
            "Welcome\nbegin\nsudo yes\npython {python} 3.11\nkernel {kernel}\nmachine x86_64\nos {os}\nend\n"
        );
        answer(&text, PythonVersion(3, 8)).map(|answer| answer.facts)
    }

    #[test]
    fn a_machine_is_what_both_of_its_ids_say() {
        let of = |identity: &str| {
            let text = format!(
                "begin\nsudo yes\npython /usr/bin/python3 3.11\nidentity {identity}\nend\n"
            );
            answer(&text, PythonVersion(3, 8)).unwrap().machine
        };
        let (id, other) = (
            "0123456789abcdef0123456789abcdef",
            "1123456789abcdef0123456789abcdef",
        );
        let boot = "6b2d9a2e-2f3e-4c57-9b1c-6d9f1f0c0a11";
        assert_eq!(of(&format!("{id} {boot}")), Machine::of(id, boot));
        assert_ne!(of(&format!("{id} {boot}")), Machine::of(other, boot));
        for none in ["", "uninitialized 6b2d", id, &format!("{id} {id}x")] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn what_a_host_says_of_itself_is_a_path_a_word_or_plain_text() {
        let facts = said(
            "/usr/bin/python3.11",
            "6.1.0-13-amd64",
            "Debian GNU/Linux 12",
        )
        .unwrap();
        assert_eq!(facts.python.as_deref(), Some("/usr/bin/python3.11"));
        assert_eq!(facts.kernel.as_deref(), Some("6.1.0-13-amd64"));
        assert_eq!(facts.architecture.as_deref(), Some("amd64"));

        let facts = said(
            "/usr/bin/python3",
            "6.1;{{1}}",
            "De\u{1b}[31mbian\u{202e} 12",
        )
        .unwrap();
        assert_eq!(facts.kernel, None);
        assert_eq!(facts.os.as_deref(), Some("Debian 12"));
        let long = said("/usr/bin/python3", "6", &"x".repeat(10_000)).unwrap();
        assert_eq!(long.os.unwrap().len(), 256);
    }

    #[test]
    fn a_python_that_is_no_path_is_refused() {
        for python in [
            "{{lookup('pipe','touch${IFS}/tmp/x')}}",
            "/usr/bin/{{x}}",
            "/usr/bin/python3;id",
            "python3",
            "/usr/../etc/python3",
            "/usr/bin/py\u{1b}[0m",
        ] {
            let unusable = said(python, "6", "x").unwrap_err();
            assert_eq!(unusable.reason, Reason::Broken, "{python}");
            assert!(api::text::is_plain(&unusable.detail), "{unusable:?}");
        }
    }

    #[test]
    fn answers_of_hosts_survive_fuzzing() {
        let told = "Welcome\nbegin\nsudo yes\npython /usr/bin/python3 3.6\npython /usr/bin/python3.11 3.11\nkernel 6.1.0-13-amd64\n\
            machine aarch64\nos Debian GNU/Linux 12 (bookworm)\nend\n";
        let without =
            "begin\nsudo no sudo: a password is required\npython /usr/bin/python3.7 3.7\nend\n";
        let refused = "Warning: Permanently added '10.0.0.1' to the list of known hosts.\r\n\
            root@10.0.0.1: Permission denied (publickey).\r\n";
        answer(told, PythonVersion(3, 8)).unwrap();
        fuzz::text("answers", &[told, without, refused], |said| {
            let unusable = refusal(said);
            match answer(said, PythonVersion(3, 8)) {
                Ok(Answer { facts, .. }) => {
                    let python: Result<PythonPath, _> = facts.python.unwrap().parse();
                    assert!(python.is_ok());
                    for word in [facts.kernel, facts.architecture].into_iter().flatten() {
                        assert!(is_word(&word), "{word:?}");
                    }
                    let os = facts.os.unwrap_or_default();
                    assert!(api::text::is_plain(&os) && os.len() <= 256, "{os:?}");
                }
                Err(unusable) => is_told(&unusable),
            }
            is_told(&unusable);
        });
    }

    fn is_told(unusable: &Unusable) {
        let detail = &unusable.detail;
        assert!(api::text::is_plain(detail), "{detail:?}");
        assert!(detail.len() <= 1024, "{} bytes", detail.len());
    }
}
