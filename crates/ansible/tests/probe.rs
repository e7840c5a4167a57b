//! Hosts that answer, and hosts that do not, by a real sshd on loopback.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use ansible::probe::{HostKeys, Options, Reason, Report, Target, connect, probe};

/// An sshd of our own, which lets the user of the tests in by one key.
struct Sshd {
    directory: tempfile::TempDir,
    child: Child,
    port: u16,
}

impl Sshd {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for key in ["host", "user", "stranger"] {
            make_key(&directory.path().join(key));
        }
        let port = free_port();
        let at = |name: &str| directory.path().join(name).display().to_string();
        let configuration = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nUsePAM no\n",
            at("host"),
            at("user.pub"),
        );
        fs::write(at("conf"), configuration).expect("the configuration");
        if nix::unistd::geteuid().is_root() {
            fs::create_dir_all("/run/sshd").expect("sshd's own directory");
        }
        let child = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f", &at("conf")])
            .stdin(Stdio::null())
            .stderr(fs::File::create(at("log")).expect("the log"))
            .spawn()
            .expect("sshd: install openssh-server");
        Self {
            directory,
            child,
            port,
        }
    }

    fn options(&self) -> Options {
        Options {
            connect_timeout: Duration::from_secs(5),
            login_timeout: Duration::from_secs(30),
            key: Some(self.at("user")),
            known_hosts: self.at("known_hosts"),
            host_keys: HostKeys::AcceptNew,
            bastion: None,
        }
    }

    fn target(&self) -> Target {
        target(self.port)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Waits until it answers.
    async fn ready(self) -> Self {
        let deadline = Instant::now() + Duration::from_secs(20);
        while one(connect(&[self.target()], &self.options()).await).is_some() {
            assert!(Instant::now() < deadline, "sshd does not answer");
            tokio::task::yield_now().await;
        }
        self
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn make_key(path: &Path) {
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(path)
        .status()
        .expect("ssh-keygen");
    assert!(made.success());
}

/// A port that nothing listens on; another process might take it, which no test here survives and none has met.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its number").port()
}

fn target(port: u16) -> Target {
    Target {
        name: "one".parse().expect("a name"),
        address: "127.0.0.1".into(),
        port,
        user: std::env::var("USER").unwrap_or_else(|_| "root".into()),
    }
}

/// Why the only host cannot be used.
fn one(reports: Vec<Report>) -> Option<Reason> {
    assert_eq!(reports.len(), 1);
    reports
        .into_iter()
        .find_map(|report| report.answer.err())
        .map(|problem| problem.reason)
}

#[tokio::test]
async fn a_host_that_answers_says_what_it_is() {
    let sshd = Sshd::start().ready().await;
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
    let strict = Options {
        host_keys: HostKeys::Strict,
        ..sshd.options()
    };
    assert_eq!(one(probe(&[sshd.target()], &strict).await), None);
}

#[tokio::test]
async fn a_login_that_is_refused_says_why() {
    let sshd = Sshd::start().ready().await;
    let ask = async |options: Options| one(probe(&[sshd.target()], &options).await);
    let strict = Options {
        host_keys: HostKeys::Strict,
        ..sshd.options()
    };
    assert_eq!(ask(strict).await, Some(Reason::HostKeyUnknown));
    let stranger = Options {
        key: Some(sshd.at("stranger")),
        ..sshd.options()
    };
    assert_eq!(ask(stranger).await, Some(Reason::Authentication));
    let nobody = Target {
        user: "no-such-user".into(),
        ..sshd.target()
    };
    let reports = probe(&[nobody], &sshd.options()).await;
    assert_eq!(one(reports), Some(Reason::Authentication));
    let other = fs::read_to_string(sshd.at("stranger.pub")).expect("another key");
    let line = format!("[127.0.0.1]:{} {other}", sshd.port);
    fs::write(sshd.at("known_hosts"), line).expect("known_hosts");
    assert_eq!(ask(sshd.options()).await, Some(Reason::HostKeyChanged));
}

#[tokio::test]
async fn a_host_that_does_not_answer_says_how() {
    let sshd = Sshd::start();
    let options = Options {
        connect_timeout: Duration::from_millis(300),
        ..sshd.options()
    };
    assert_eq!(
        one(connect(&[target(free_port())], &options).await),
        Some(Reason::Refused)
    );
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("its number").port();
    assert_eq!(
        one(connect(&[target(port)], &options).await),
        Some(Reason::TimedOut)
    );
    let nameless = Target {
        address: "no-such-host.invalid".into(),
        ..target(22)
    };
    let patient = Options {
        connect_timeout: Duration::from_secs(20),
        ..options
    };
    assert_eq!(
        one(connect(&[nameless], &patient).await),
        Some(Reason::Unresolved)
    );
}

#[tokio::test]
async fn dead_hosts_cost_one_timeout_together() {
    let sshd = Sshd::start().ready().await;
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let dead = silent.local_addr().expect("its number").port();
    let banner = TcpListener::bind("127.0.0.1:0").expect("a port");
    let alive = banner.local_addr().expect("its number").port();
    std::thread::spawn(move || {
        for stream in banner.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut &stream, b"SSH-2.0-test\r\n");
        }
    });
    let targets: Vec<Target> = (0..200)
        .map(|number| target(if number % 10 == 0 { dead } else { alive }))
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
