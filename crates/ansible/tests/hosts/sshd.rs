//! An sshd of our own.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use ansible::{
    catalogue,
    probe::{Options, Report, Target, Unusable},
    ssh::{Access, HostKeys},
};

/// No wait here takes longer on a machine that does nothing else.
pub const LONG: Duration = Duration::from_mins(1);

/// What a host is to be like.
#[derive(Default)]
pub struct Setup {
    /// More lines of its configuration.
    pub configuration: String,
    /// The namespaces of its own, as options of `unshare`. Empty: it is this machine.
    pub namespaces: &'static [&'static str],
    /// What a shell does in them before sshd starts; `$1` is its directory.
    pub prepare: String,
}

/// An sshd that lets the user of the tests in by one key.
pub struct Sshd {
    pub directory: tempfile::TempDir,
    pub child: Child,
    pub port: u16,
}

impl Sshd {
    /// Starts it, and waits until it listens.
    pub async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    pub async fn with(setup: Setup) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let port = free_port();
        write_configuration(directory.path(), port, &setup.configuration);
        let at = |name: &str| directory.path().join(name);
        let serve = format!(
            "{}\nexec /usr/sbin/sshd -D -e -f \"$1/conf\"",
            setup.prepare
        );
        let mut command = if setup.namespaces.is_empty() {
            Command::new("sh")
        } else {
            let mut command = Command::new("unshare");
            command.args(setup.namespaces).arg("sh");
            command
        };
        let child = command
            .args(["-euc", &serve, "sh"])
            .arg(directory.path())
            .stdin(Stdio::null())
            .stderr(fs::File::create(at("log")).expect("the log"))
            .spawn()
            .expect("sshd: install openssh-server");
        let sshd = Self {
            directory,
            child,
            port,
        };
        sshd.logged("Server listening").await;
        sshd
    }

    pub fn options(&self) -> Options {
        Options {
            access: Access {
                key: Some(self.at("user")),
                known_hosts: self.at("known_hosts"),
                host_keys: HostKeys::AcceptNew,
                bastion: None,
            },
            connect_timeout: Duration::from_secs(20),
            login_timeout: LONG,
            oldest_python: catalogue::newest().host_python(),
        }
    }

    pub fn target(&self) -> Target {
        target(self.port)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Waits until its log contains the words.
    pub async fn logged(&self, words: &str) {
        let said = || fs::read_to_string(self.at("log")).is_ok_and(|log| log.contains(words));
        until(words, said).await;
    }
}

impl Drop for Sshd {
    /// What runs in a process namespace of its own ends with it.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until it is so.
pub async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited too long: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Ends a test that needs namespaces where there are none to be had: a test that does nothing would tell nobody.
pub fn need_root() {
    assert!(is_root(), "this test makes namespaces: run it as root");
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Makes the keys `host`, `user` and `stranger`, and an sshd's configuration that trusts `user`.
pub fn write_configuration(directory: &Path, port: u16, more: &str) {
    for key in ["host", "user", "stranger"] {
        make_key(&directory.join(key));
    }
    let at = |name: &str| directory.join(name).display().to_string();
    let configuration = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nUsePAM no\n{more}\n",
        at("host"),
        at("user.pub"),
    );
    fs::write(at("conf"), configuration).expect("the configuration");
    if is_root() {
        fs::create_dir_all("/run/sshd").expect("sshd's own directory");
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
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its number").port()
}

pub fn target(port: u16) -> Target {
    Target {
        name: "one".parse().expect("a name"),
        address: "127.0.0.1".into(),
        port,
        user: std::env::var("USER").unwrap_or_else(|_| "root".into()),
    }
}

/// Why the only host cannot be used.
pub fn one(reports: Vec<Report>) -> Option<Unusable> {
    assert_eq!(reports.len(), 1);
    reports.into_iter().find_map(|report| report.answer.err())
}
