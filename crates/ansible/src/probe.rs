//! Asks hosts whether they answer: TCP, the ssh banner, a login, sudo and Python, all hosts at once.
//!
//! A dead host costs Ansible minutes and takes the living down with it. Here it costs one timeout, for any number of them,
//! and the reason is known.

use std::{io, path::PathBuf, process::Stdio, time::Duration};

use api::{HostName, node::NodeFacts};
use futures::{StreamExt, stream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
    time::timeout,
};

/// How many hosts are connected to at once.
const CONNECTIONS: usize = 256;
/// How many logins are under way at once: each is an ssh process.
const LOGINS: usize = 32;
/// What is asked of a host, in one login. The first word of each line says what it answers.
const SCRIPT: &str = r#"
if [ "$(id -u)" = 0 ]; then echo sudo yes
elif sudo -n true 2>/dev/null; then echo sudo yes
else echo sudo no; fi
p=$(command -v python3 || command -v /usr/libexec/platform-python || true)
[ -z "$p" ] || echo python "$p" "$("$p" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)"
echo kernel "$(uname -r)"
echo machine "$(uname -m)"
[ -r /etc/os-release ] && . /etc/os-release && echo os "$PRETTY_NAME"
echo end
"#;

/// One host to ask.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// Its name.
    pub name: HostName,
    /// The address that ssh connects to.
    pub address: String,
    /// The port.
    pub port: u16,
    /// The user to log in as.
    pub user: String,
}

/// How hosts are asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a host may take to answer a connection.
    pub connect_timeout: Duration,
    /// How long a login and the questions may take.
    pub login_timeout: Duration,
    /// The private key. Default: what ssh finds.
    pub key: Option<PathBuf>,
    /// The file of host keys.
    pub known_hosts: PathBuf,
    /// What happens with a host whose key is not in it.
    pub host_keys: HostKeys,
    /// The host to go through, as ssh's `-J` takes it.
    pub bastion: Option<String>,
}

impl Options {
    /// How long everything that is asked of one host may take.
    pub fn total(&self) -> Duration {
        self.connect_timeout + self.login_timeout
    }
}

/// What happens with a host whose key is not known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HostKeys {
    /// It is refused.
    Strict,
    /// Its key is recorded; from then on no other is accepted.
    AcceptNew,
}

/// What one host answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The host.
    pub host: HostName,
    /// What it said of itself, or why it cannot be used.
    pub answer: Result<NodeFacts, Problem>,
}

/// Why a host cannot be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// The reason.
    pub reason: Reason,
    /// More about it, for people.
    pub detail: String,
}

/// Why a host cannot be used.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Reason {
    /// The name has no address.
    Unresolved,
    /// Nothing listens.
    Refused,
    /// Nothing answers.
    TimedOut,
    /// There is no way to it.
    NoRoute,
    /// What answers is not ssh.
    NotSsh,
    /// It shows another key than the one that is known.
    HostKeyChanged,
    /// Its key is not known.
    HostKeyUnknown,
    /// It does not accept the user and key.
    Authentication,
    /// The user may not become root without a password.
    Sudo,
    /// It has no Python 3.
    NoPython,
    /// It answers, but not as expected.
    Broken,
}

impl Reason {
    /// A constant in CamelCase, as in `Failure.code`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unresolved => "HostUnresolved",
            Self::Refused => "HostRefused",
            Self::TimedOut => "HostTimedOut",
            Self::NoRoute => "HostNoRoute",
            Self::NotSsh => "HostNotSsh",
            Self::HostKeyChanged => "HostKeyChanged",
            Self::HostKeyUnknown => "HostKeyUnknown",
            Self::Authentication => "HostAuthentication",
            Self::Sudo => "HostSudo",
            Self::NoPython => "HostNoPython",
            Self::Broken => "HostBroken",
        }
    }

    /// What is wrong, for people.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Unresolved => "its name has no address",
            Self::Refused => "connection refused",
            Self::TimedOut => "connection timed out",
            Self::NoRoute => "no route to the host",
            Self::NotSsh => "what answers is not ssh",
            Self::HostKeyChanged => "its host key changed",
            Self::HostKeyUnknown => "its host key is not known",
            Self::Authentication => "it does not accept the user and key",
            Self::Sudo => "the user may not become root without a password",
            Self::NoPython => "it has no Python 3",
            Self::Broken => "it answers, but not as expected",
        }
    }

    /// What to do.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Unresolved => "correct spec.inventory.ansible_host",
            Self::Refused => "start sshd on the host, or correct the port",
            Self::TimedOut | Self::NoRoute => {
                "start the host, or mend the network or firewall between"
            }
            Self::NotSsh => "correct the address or the port",
            Self::HostKeyChanged => {
                "if the host was installed anew, remove its old line from the cluster's known_hosts; if not, find out who \
                 answers"
            }
            Self::HostKeyUnknown => "add its key to spec.ssh.knownHosts",
            Self::Authentication => {
                "add the public key to the user's authorized_keys on the host, or correct spec.ssh"
            }
            Self::Sudo => "allow the user to sudo without a password, or log in as root",
            Self::NoPython => "install python3 on the host",
            Self::Broken => "log in by hand with the same user and key and look",
        }
    }

    /// Whether the host did not answer at all, as opposed to answering and refusing.
    pub const fn is_unreachable(self) -> bool {
        matches!(
            self,
            Self::Unresolved | Self::Refused | Self::TimedOut | Self::NoRoute | Self::NotSsh
        )
    }
}

/// Asks whether hosts accept connections and speak ssh; the answers are in the order of the targets. It takes no longer
/// than one connection timeout, for up to 256 hosts.
pub async fn connect(targets: &[Target], options: &Options) -> Vec<Report> {
    let asked = targets.iter().cloned().map(|target| {
        let limit = options.connect_timeout;
        async move {
            let answer = banner(&target, limit).await.map(|()| NodeFacts::default());
            Report {
                host: target.name,
                answer,
            }
        }
    });
    in_order(asked.collect(), CONNECTIONS).await
}

/// Asks everything; the answers are in the order of the targets.
pub async fn probe(targets: &[Target], options: &Options) -> Vec<Report> {
    let direct = options.bastion.is_none();
    let connected = if direct {
        connect(targets, options).await
    } else {
        Vec::new()
    };
    let asked = targets.iter().enumerate().map(|(index, target)| {
        // Behind a bastion only ssh itself can tell.
        let lost = connected
            .get(index)
            .filter(|report| report.answer.is_err())
            .cloned();
        let (target, options) = (target.clone(), options.clone());
        async move {
            match lost {
                Some(report) => report,
                None => Report {
                    answer: login(&target, &options).await,
                    host: target.name,
                },
            }
        }
    });
    in_order(asked.collect(), LOGINS).await
}

/// Runs so many at once; the results are in the order of the futures.
async fn in_order<F: Future>(futures: Vec<F>, at_once: usize) -> Vec<F::Output> {
    stream::iter(futures).buffered(at_once).collect().await
}

/// Connects and reads the banner, both within the limit.
async fn banner(target: &Target, limit: Duration) -> Result<(), Problem> {
    let greeting = async {
        let address = (target.address.as_str(), target.port);
        let mut stream = TcpStream::connect(address)
            .await
            .map_err(|error| connection_problem(&error))?;
        let mut greeting = [0; 4];
        stream
            .read_exact(&mut greeting)
            .await
            .map_err(|error| Problem {
                reason: Reason::NotSsh,
                detail: format!("no banner: {error}"),
            })?;
        if &greeting == b"SSH-" {
            return Ok(());
        }
        Err(Problem {
            reason: Reason::NotSsh,
            detail: "the banner is not ssh's".into(),
        })
    };
    timeout(limit, greeting).await.unwrap_or_else(|_| {
        Err(Problem {
            reason: Reason::TimedOut,
            detail: format!("no answer within {} s", limit.as_secs_f32()),
        })
    })
}

fn connection_problem(error: &io::Error) -> Problem {
    let reason = match error.kind() {
        io::ErrorKind::ConnectionRefused => Reason::Refused,
        io::ErrorKind::TimedOut => Reason::TimedOut,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Reason::NoRoute,
        // Name resolution has no kind of its own.
        _ if error.to_string().contains("lookup") => Reason::Unresolved,
        _ => Reason::NoRoute,
    };
    Problem {
        reason,
        detail: error.to_string(),
    }
}

async fn login(target: &Target, options: &Options) -> Result<NodeFacts, Problem> {
    let session = async {
        let mut child = Command::from(ssh_command(target, options))
            .arg("sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| broken(format!("ssh cannot be started: {error}")))?;
        if let Some(mut input) = child.stdin.take() {
            // A host that refuses the login closes the pipe; ssh then says why.
            if let Err(error) = input.write_all(SCRIPT.as_bytes()).await {
                tracing::debug!(host = %target.name, %error, "the questions were not taken");
            }
        }
        let output = child
            .wait_with_output()
            .await
            .map_err(|error| broken(error.to_string()))?;
        let (said, complaint) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        if output.status.success() {
            answer(&said)
        } else {
            Err(refusal(&complaint))
        }
    };
    timeout(options.login_timeout, session)
        .await
        .unwrap_or_else(|_| {
            Err(Problem {
                reason: Reason::TimedOut,
                detail: format!("no login within {} s", options.login_timeout.as_secs()),
            })
        })
}

/// ssh to a host, with nothing of the user's own configuration, so that a probe and Ansible see the same; the remote command
/// is to be added.
pub fn ssh_command(target: &Target, options: &Options) -> std::process::Command {
    let mut command = std::process::Command::new("ssh");
    let accept = match options.host_keys {
        HostKeys::Strict => "yes",
        HostKeys::AcceptNew => "accept-new",
    };
    command.args(["-F", "/dev/null", "-T", "-o", "BatchMode=yes"]);
    command
        .arg("-o")
        .arg(format!("StrictHostKeyChecking={accept}"));
    command.arg("-o").arg(format!(
        "UserKnownHostsFile={}",
        options.known_hosts.display()
    ));
    command.args([
        "-o",
        "GlobalKnownHostsFile=/dev/null",
        "-o",
        "ConnectionAttempts=1",
    ]);
    command.arg("-o").arg(format!(
        "ConnectTimeout={}",
        options.connect_timeout.as_secs().max(1)
    ));
    if let Some(key) = &options.key {
        command
            .arg("-i")
            .arg(key)
            .args(["-o", "IdentitiesOnly=yes"]);
    }
    if let Some(bastion) = &options.bastion {
        command.arg("-J").arg(bastion);
    }
    command.arg("-p").arg(target.port.to_string());
    command
        .arg("-l")
        .arg(&target.user)
        .arg("--")
        .arg(&target.address);
    command
}

/// Reads what the script printed.
fn answer(said: &str) -> Result<NodeFacts, Problem> {
    let value = |name: &str| {
        let mut lines = said.lines().filter_map(|line| line.split_once(' '));
        lines
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.trim().to_owned())
            .filter(|text| !text.is_empty())
    };
    if !said.lines().any(|line| line == "end") {
        return Err(broken("the shell said nothing of what was asked".into()));
    }
    if value("sudo").as_deref() != Some("yes") {
        return Err(Problem {
            reason: Reason::Sudo,
            detail: "sudo -n true failed".into(),
        });
    }
    let Some(python) =
        value("python").and_then(|text| Some(text.split_whitespace().next()?.to_owned()))
    else {
        return Err(Problem {
            reason: Reason::NoPython,
            detail: "python3 is not on the PATH".into(),
        });
    };
    let architecture = value("machine").map(|machine| match machine.as_str() {
        "x86_64" => "amd64".to_owned(),
        "aarch64" => "arm64".to_owned(),
        _ => machine,
    });
    Ok(NodeFacts {
        os: value("os"),
        kernel: value("kernel"),
        architecture,
        python: Some(python),
    })
}

/// Tells from ssh's own words why there was no login.
fn refusal(complaint: &str) -> Problem {
    let reason = [
        ("IDENTIFICATION HAS CHANGED", Reason::HostKeyChanged),
        ("host key is known", Reason::HostKeyUnknown),
        ("Host key verification failed", Reason::HostKeyChanged),
        ("Permission denied", Reason::Authentication),
        ("Too many authentication failures", Reason::Authentication),
        ("invalid format", Reason::Authentication),
        ("Could not resolve", Reason::Unresolved),
        ("Connection refused", Reason::Refused),
        ("timed out", Reason::TimedOut),
        ("No route to host", Reason::NoRoute),
    ]
    .into_iter()
    .find(|(words, _)| complaint.contains(words))
    .map_or(Reason::Broken, |(_, reason)| reason);
    let last = complaint
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("ssh said nothing");
    Problem {
        reason,
        detail: last.trim().to_owned(),
    }
}

fn broken(detail: String) -> Problem {
    Problem {
        reason: Reason::Broken,
        detail,
    }
}
