//! Hosts that answer, and hosts that do not.

use std::{
    fs,
    io::Write as _,
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use ansible::{
    catalogue::PythonVersion,
    probe::{Options, Reason, Target, Unusable, connect, probe},
    ssh::{Access, HostKeys},
};

use super::sshd::{Setup, Sshd, free_port, need_root, one, target};

fn reason(unusable: Option<Unusable>) -> Option<Reason> {
    unusable.map(|unusable| unusable.reason)
}

#[tokio::test]
async fn a_host_that_answers_says_what_it_is() {
    let sshd = Sshd::start().await;
    let reports = probe(&[sshd.target()], &sshd.options()).await;
    let facts = reports[0].answer.as_ref().expect("it answers");
    assert!(
        facts.python.as_ref().is_some_and(|p| p.contains("python")),
        "{facts:?}"
    );
    assert!(facts.kernel.is_some() && facts.os.is_some(), "{facts:?}");
    let known = fs::read_to_string(sshd.at("known_hosts")).expect("its key is recorded");
    assert!(known.contains("ssh-ed25519"), "{known}");
    // From now on the recorded key is enough for those who accept no new one.
    let mut strict = sshd.options();
    strict.access.host_keys = HostKeys::Strict;
    assert_eq!(one(probe(&[sshd.target()], &strict).await), None);
}

#[tokio::test]
async fn a_host_is_connected_to_once() {
    let sshd = Sshd::with(Setup {
        configuration: "LogLevel VERBOSE".to_owned(),
        ..Setup::default()
    })
    .await;
    assert_eq!(one(probe(&[sshd.target()], &sshd.options()).await), None);
    let log = fs::read_to_string(sshd.at("log")).expect("its log");
    assert_eq!(log.matches("Connection from").count(), 1, "{log}");
}

/// Over the connection itself such words would be taken for ssh's own.
#[tokio::test]
async fn a_host_that_greets_every_login_is_usable() {
    let sshd = Sshd::with(Setup {
        configuration: r#"ForceCommand echo Welcome; sh -c "$SSH_ORIGINAL_COMMAND""#.to_owned(),
        ..Setup::default()
    })
    .await;
    assert_eq!(one(probe(&[sshd.target()], &sshd.options()).await), None);
}

#[tokio::test]
async fn a_login_that_is_refused_says_why() {
    let sshd = Sshd::start().await;
    let ask = async |access: Access| {
        let options = Options {
            access,
            ..sshd.options()
        };
        reason(one(probe(&[sshd.target()], &options).await))
    };
    let access = || sshd.options().access;
    let strict = Access {
        host_keys: HostKeys::Strict,
        ..access()
    };
    assert_eq!(ask(strict).await, Some(Reason::HostKeyUnknown));
    let stranger = Access {
        key: Some(sshd.at("stranger")),
        ..access()
    };
    assert_eq!(ask(stranger).await, Some(Reason::Authentication));
    let nobody = Target {
        user: "no-such-user".into(),
        ..sshd.target()
    };
    let reports = probe(&[nobody], &sshd.options()).await;
    assert_eq!(reason(one(reports)), Some(Reason::Authentication));
    let other = fs::read_to_string(sshd.at("stranger.pub")).expect("another key");
    let line = format!("[127.0.0.1]:{} {other}", sshd.port);
    fs::write(sshd.at("known_hosts"), line).expect("known_hosts");
    assert_eq!(ask(access()).await, Some(Reason::HostKeyChanged));
}

/// A host with a user `helper` of the given rule in sudoers, whose shell reads no files. `more` is done before sshd starts.
async fn host_with_helper(rule: &str, more: &str) -> (Sshd, Target) {
    let sshd = Sshd::with(Setup {
        configuration: format!("#rule {rule}"),
        namespaces: &["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"],
        prepare: format!("{HELPER}\n{more}"),
    })
    .await;
    let helper = Target {
        user: "helper".into(),
        ..sshd.target()
    };
    (sshd, helper)
}

const HELPER: &str = "
    { cat /etc/passwd; echo 'helper:x:4242:4242::/:/bin/sh'; } > $1/passwd
    { cat /etc/shadow; echo 'helper:*:1::::::'; } > $1/shadow
    sed -n 's/^#rule/helper/p' $1/conf > $1/sudoers
    chmod 755 $1; chmod 640 $1/shadow; chmod 440 $1/sudoers
    for file in passwd shadow sudoers; do mount --bind $1/$file /etc/$file; done";

const EVERYTHING: &str = "ALL=(ALL) NOPASSWD: ALL";

#[tokio::test]
async fn a_user_who_may_not_become_root_is_told_in_the_words_of_sudo() {
    need_root();
    for (rule, expected) in [
        (EVERYTHING, None),
        ("ALL=(ALL) ALL", Some("a password is required")),
        (
            "ALL=(ALL) NOPASSWD: ALL, !/usr/bin/true",
            Some("not allowed"),
        ),
        (
            "nowhere=(ALL) NOPASSWD: ALL",
            Some("a password is required"),
        ),
    ] {
        let (sshd, helper) = host_with_helper(rule, "").await;
        let unusable = one(probe(&[helper], &sshd.options()).await);
        match (&unusable, expected) {
            (None, None) => {}
            (Some(unusable), Some(words)) => {
                assert_eq!(unusable.reason, Reason::Sudo, "{unusable:?}");
                assert!(unusable.detail.contains(words), "{unusable:?}");
                assert!(!unusable.is_unreachable());
            }
            _ => panic!("{rule}: {unusable:?}"),
        }
    }
}

/// Leaves few programs on the PATH.
const FEW: &str = "
    mkdir $1/bin
    for name in sh id uname head; do ln -s $(command -v $name) $1/bin/$name; done
    ln -s /usr/bin/sudo /usr/bin/true $1/bin
    echo \"SetEnv PATH=$1/bin\" >> $1/conf";

#[tokio::test]
async fn a_host_without_python_is_told_from_one_with_an_old_one() {
    need_root();
    let (sshd, helper) = host_with_helper(EVERYTHING, FEW).await;
    let unusable = one(probe(&[helper], &sshd.options()).await);
    assert_eq!(reason(unusable), Some(Reason::NoPython));

    let sshd = Sshd::start().await;
    let options = Options {
        oldest_python: PythonVersion(3, 99),
        ..sshd.options()
    };
    let unusable = one(probe(&[sshd.target()], &options).await).expect("a problem");
    assert_eq!(unusable.reason, Reason::PythonTooOld);
    assert!(
        unusable.detail.ends_with("wanted is 3.99 or newer"),
        "{unusable:?}"
    );
}

/// What calls itself 3.6 is a stub: no distribution ships one beside a newer one any more.
const OLD_AND_NEW: &str = "
        ln -s /usr/bin/python3 $1/bin/python3.9
        printf '#!/bin/sh\\necho 3.6; exit 1\\n' > $1/bin/python3
        chmod +x $1/bin/python3";

/// An old distribution's `python3` stays as it is; a newer one beside it is found.
#[tokio::test]
async fn a_newer_python_beside_an_old_one_is_found() {
    need_root();
    let (sshd, helper) = host_with_helper(EVERYTHING, &format!("{FEW}\n{OLD_AND_NEW}")).await;
    let reports = probe(&[helper], &sshd.options()).await;
    let facts = reports[0].answer.as_ref().expect("it answers");
    let expected = sshd.at("bin/python3.9").display().to_string();
    assert_eq!(facts.python.as_ref(), Some(&expected));
}

#[tokio::test]
async fn a_host_that_does_not_answer_says_how() {
    let sshd = Sshd::start().await;
    let options = Options {
        connect_timeout: Duration::from_millis(300),
        ..sshd.options()
    };
    let ask = async |target| reason(one(connect(&[target], &options).await));
    assert_eq!(ask(target(free_port())).await, Some(Reason::Refused));
    let dead = Dead::new();
    assert_eq!(ask(target(dead.port)).await, Some(Reason::TimedOut));
    // It takes connections and says nothing.
    let silent = answering(b"");
    assert_eq!(ask(target(silent)).await, Some(Reason::LoginTimedOut));
    let patient = Options {
        connect_timeout: Duration::from_secs(20),
        ..options
    };
    let web = answering(b"HTTP/1.1 400 Bad Request\r\n");
    let unusable = one(probe(&[target(web)], &patient).await);
    assert_eq!(reason(unusable), Some(Reason::NotSsh));
    let nameless = Target {
        address: "no-such-host.invalid".into(),
        ..target(22)
    };
    let unusable = one(connect(&[nameless], &patient).await);
    assert_eq!(reason(unusable), Some(Reason::Unresolved));
}

/// A port where everybody is told the same.
fn answering(words: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its number").port();
    thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(words);
            open.push(stream);
        }
    });
    port
}

/// A port that swallows every packet, as a dead host's address does: its queue is full.
pub struct Dead {
    pub port: u16,
    _listener: tokio::net::TcpListener,
    _queue: Vec<TcpStream>,
}

impl Dead {
    pub fn new() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let listener = socket.listen(0).expect("a queue");
        let address = listener.local_addr().expect("its number");
        let enter = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
        Self {
            port: address.port(),
            _listener: listener,
            _queue: std::iter::from_fn(enter).collect(),
        }
    }
}

/// A host that hangs at its login has answered: that is not what a dead one does.
#[tokio::test]
async fn a_login_that_hangs_is_told_from_a_host_that_is_dead() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = Options {
        access: Access {
            key: None,
            known_hosts: directory.path().join("known_hosts"),
            host_keys: HostKeys::AcceptNew,
            bastion: None,
        },
        connect_timeout: Duration::from_secs(20),
        login_timeout: Duration::from_secs(1),
        oldest_python: PythonVersion(3, 7),
    };
    let port = answering(b"SSH-2.0-hangs\r\n");
    let unusable = one(probe(&[target(port)], &options).await);
    assert_eq!(reason(unusable), Some(Reason::LoginTimedOut));
}

/// A host that is slow to greet does so only when another one has been logged in to: who waits for all greetings first sees
/// it time out.
#[tokio::test]
async fn hosts_are_logged_in_to_while_others_are_waited_for() {
    let sshd = Sshd::start().await;
    let slow = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = slow.local_addr().expect("its number").port();
    let log = sshd.at("log");
    thread::spawn(move || {
        let (mut stream, _) = slow.accept().expect("a connection");
        while !fs::read_to_string(&log).is_ok_and(|log| log.contains("Accepted publickey")) {
            thread::yield_now();
        }
        let _ = stream.write_all(b"not ssh");
    });
    let reports = probe(&[target(port), sshd.target()], &sshd.options()).await;
    let slow = reports[0].answer.clone().err();
    assert_eq!(reason(slow), Some(Reason::NotSsh));
    assert!(reports[1].answer.is_ok(), "{reports:?}");
}

#[tokio::test]
async fn dead_hosts_cost_one_timeout_together() {
    let sshd = Sshd::start().await;
    let dead = Dead::new();
    let alive = answering(b"SSH-2.0-test\r\n");
    let targets: Vec<Target> = (0..200)
        .map(|number| target(if number % 10 == 0 { dead.port } else { alive }))
        .collect();
    let options = Options {
        connect_timeout: Duration::from_secs(2),
        ..sshd.options()
    };
    let start = Instant::now();
    let reports = connect(&targets, &options).await;
    let took = start.elapsed();
    let lost = reports
        .iter()
        .filter(|report| report.answer.is_err())
        .count();
    assert_eq!(lost, 20);
    assert!(
        took <= options.connect_timeout + Duration::from_millis(200),
        "{took:?}"
    );
}

/// A host that was taken over: what it says becomes a variable of Ansible, a status and a line on a terminal.
#[tokio::test]
async fn a_host_cannot_name_a_python_that_is_a_template() {
    let traces = tempfile::tempdir().expect("a directory");
    let trace = traces.path().join("trace");
    let python = format!("{{{{lookup(\"pipe\",\"touch\\t{}\")}}}}", trace.display());
    let unusable = one(probe_of_one_that_says(&python, "6.1").await).expect("it is refused");
    assert_eq!(unusable.reason, Reason::Broken);
    assert!(unusable.detail.contains("its Python"), "{unusable:?}");
    assert!(!trace.exists());
}

#[tokio::test]
async fn a_host_cannot_steer_a_terminal_or_fill_a_status() {
    let said = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}6.1";
    let reports = probe_of_one_that_says("/usr/bin/python3", said).await;
    let facts = reports[0].answer.as_ref().expect("it answers");
    assert_eq!(facts.os.as_deref(), Some("6.1"), "{facts:?}");
    assert_eq!(facts.kernel.as_deref(), Some("6.1"), "{facts:?}");

    let sshd = Sshd::with(Setup {
        configuration: "ForceCommand yes x >&2".to_owned(),
        ..Setup::default()
    })
    .await;
    let begun = Instant::now();
    let unusable = one(probe(&[sshd.target()], &sshd.options()).await).expect("it is refused");
    assert!(unusable.detail.contains("says more than"), "{unusable:?}");
    assert!(
        begun.elapsed() < super::sshd::LONG,
        "nobody waits for its end"
    );
}

async fn probe_of_one_that_says(python: &str, system: &str) -> Vec<ansible::probe::Report> {
    let answer = format!(
        "begin\nsudo yes\npython {python} 3.99\nkernel {system}\nmachine x86_64\nos {system}\nend\n"
    );
    let octal: Vec<_> = answer.bytes().map(|byte| format!("\\{byte:03o}")).collect();
    let octal = octal.concat();
    let sshd = Sshd::with(Setup {
        configuration: format!("ForceCommand printf '{octal}' >&2"),
        ..Setup::default()
    })
    .await;
    probe(&[sshd.target()], &sshd.options()).await
}
