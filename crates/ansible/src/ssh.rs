//! How ssh reaches hosts: one set of options, for the probe as for Ansible, so that what one can reach the other can.
//!
//! Nothing of the user's own configuration is read. The way through a bastion is a `ProxyCommand`, not `-J`: a jump takes
//! neither key nor known hosts from the command line, so it would trust other keys than the rest does. One connection to the
//! bastion carries those to all hosts: sshd refuses new ones at random while ten are not logged in (`MaxStartups`).

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use sha2::{Digest as _, Sha256};

/// How hosts are reached.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Access {
    /// The private key, for hosts and bastion. Default: what ssh finds.
    pub key: Option<PathBuf>,
    /// The file of host keys, the bastion's too.
    pub known_hosts: PathBuf,
    /// What happens with a host whose key is not in it.
    pub host_keys: HostKeys,
    /// The host to reach the others through.
    pub bastion: Option<Bastion>,
}

/// What happens with a host whose key is not known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HostKeys {
    /// It is refused.
    Strict,
    /// Its key is recorded; from then on no other is accepted.
    AcceptNew,
}

/// The host to reach the others through.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Bastion {
    /// Its address.
    pub address: String,
    /// The user to log in as.
    pub user: String,
    /// The port.
    pub port: u16,
    /// The directory for the socket by which all share one connection to it. The path of a socket holds 107 bytes, of which
    /// the file's name takes 28.
    pub control: PathBuf,
}

/// As people write it.
impl fmt::Display for Bastion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.user, self.address)?;
        if self.port == 22 {
            Ok(())
        } else {
            write!(f, " port {}", self.port)
        }
    }
}

/// Whether there is an ssh client for this process to start.
pub fn is_there() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join("ssh").is_file())
}

impl Access {
    /// What ssh is told whoever starts it: Ansible adds user, port and key itself. A host may take `timeout` to answer.
    pub(crate) fn options(&self, timeout: Duration, attempts: u8) -> Vec<String> {
        let mut options = self.checked(timeout, attempts);
        if let Some(bastion) = &self.bastion {
            options.push("-o".to_owned());
            options.push(format!("ProxyCommand={}", self.proxy(bastion, timeout)));
        }
        options
    }

    /// ssh to a host for questions that are no secret; the remote command is to be added.
    pub(crate) fn to_host(
        &self,
        address: &str,
        port: u16,
        user: &str,
        timeout: Duration,
    ) -> Command {
        self.ask(&self.options(timeout, 1), address, port, user)
    }

    /// The same over a connection that is ssh's standard input and output; the remote command's output goes nowhere else
    /// than to standard error, or it would be taken for ssh's own words to the host.
    pub(crate) fn over_connection(
        &self,
        address: &str,
        port: u16,
        user: &str,
        timeout: Duration,
    ) -> Command {
        let mut options = self.checked(timeout, 1);
        options.extend(["-n", "-o", "ProxyCommand=-"].map(str::to_owned));
        self.ask(&options, address, port, user)
    }

    fn ask(&self, options: &[String], address: &str, port: u16, user: &str) -> Command {
        let mut command = Command::new("ssh");
        command.args(options);
        command.args(["-T", "-o", CHEAP_KEY_EXCHANGE]);
        command.args(self.login(address, port, user));
        command
    }

    /// ssh to the bastion that connects its standard input and output to `destination`, as ssh's `-W` takes it.
    pub(crate) fn through(
        &self,
        bastion: &Bastion,
        destination: &str,
        timeout: Duration,
        share: Share,
    ) -> Command {
        let mut command = Command::new("ssh");
        command.args(self.to_bastion(bastion, destination, timeout, share));
        command
    }

    fn to_bastion(
        &self,
        bastion: &Bastion,
        destination: &str,
        timeout: Duration,
        share: Share,
    ) -> Vec<String> {
        let mut words = self.checked(timeout, 1);
        if share == Share::Yes {
            let socket = value(&bastion.socket());
            for option in [
                "ControlMaster=auto",
                "ControlPersist=60",
                &format!("ControlPath={socket}"),
            ] {
                words.extend(["-o".to_owned(), option.to_owned()]);
            }
        }
        words.extend(["-W".to_owned(), destination.to_owned()]);
        words.extend(self.login(&bastion.address, bastion.port, &bastion.user));
        words
    }

    /// The options that neither say where to nor how to get there.
    fn checked(&self, timeout: Duration, attempts: u8) -> Vec<String> {
        let accept = match self.host_keys {
            HostKeys::Strict => "yes",
            HostKeys::AcceptNew => "accept-new",
        };
        let mut words = vec!["-F".to_owned(), "/dev/null".to_owned()];
        let mut set = |option: String| words.extend(["-o".to_owned(), option]);
        set("BatchMode=yes".to_owned());
        set(format!("StrictHostKeyChecking={accept}"));
        set(format!("UserKnownHostsFile={}", value(&self.known_hosts)));
        set("GlobalKnownHostsFile=/dev/null".to_owned());
        set(format!("ConnectTimeout={}", timeout.as_secs().max(1)));
        set(format!("ConnectionAttempts={attempts}"));
        set("ServerAliveInterval=10".to_owned());
        set("ServerAliveCountMax=3".to_owned());
        // It looks names up, and nothing here has a ticket.
        set("GSSAPIAuthentication=no".to_owned());
        if self.key.is_some() {
            // The keys of a person's agent would count as failed attempts.
            set("IdentitiesOnly=yes".to_owned());
            set("IdentityAgent=none".to_owned());
        }
        words
    }

    fn login(&self, address: &str, port: u16, user: &str) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(key) = &self.key {
            words.extend(["-o".to_owned(), format!("IdentityFile={}", value(key))]);
        }
        words.extend(["-p", &port.to_string(), "-l", user, "--", address].map(str::to_owned));
        words
    }

    /// A shell's words, in which ssh fills in `%h` and `%p`.
    fn proxy(&self, bastion: &Bastion, timeout: Duration) -> String {
        let destination = "[%h]:%p";
        let words = self.to_bastion(bastion, destination, timeout, Share::Yes);
        let words = words.iter().map(|word| {
            if word == destination {
                quote(word)
            } else {
                quote(&word.replace('%', "%%"))
            }
        });
        let words: Vec<String> = ["ssh".to_owned()].into_iter().chain(words).collect();
        words.join(" ")
    }
}

/// Whether a connection to the bastion is the one that all share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Share {
    Yes,
    /// What is wrong is told to the one who has a connection of its own.
    No,
}

impl Bastion {
    /// A bastion at another address has another socket: an old connection may be open still.
    fn socket(&self) -> PathBuf {
        let mut digest = hex::encode(Sha256::digest(self.to_string()));
        digest.truncate(10);
        self.control.join(format!("b{digest}"))
    }
}

/// ssh's first choice protects what is said today from the quantum computers of tomorrow, and takes 60 of the 70 ms of
/// processor time of a login (OpenSSH 9.2). That a host has Python need not be kept from them; Ansible keeps ssh's choice.
const CHEAP_KEY_EXCHANGE: &str = "KexAlgorithms=^curve25519-sha256";

/// A word as a shell reads it, and Python's `shlex`.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A path as the value of one of ssh's options: ssh splits values at blanks and fills in what follows a percent sign.
fn value(path: &Path) -> String {
    let text = path.display().to_string().replace('%', "%%");
    if text.contains([' ', '"', '\\', '\'', '#']) {
        format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
    } else {
        text
    }
}
