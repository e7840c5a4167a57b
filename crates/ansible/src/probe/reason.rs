//! Why a host cannot be used.

use api::text::plain;

/// The longest detail, in bytes: a line of ssh is shorter.
const DETAIL_LIMIT: usize = 512;

/// Why a host cannot be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unusable {
    /// The reason.
    pub reason: Reason,
    /// More about it, for people.
    pub detail: String,
    /// The bastion, if the reason is about it instead of the host.
    pub bastion: Option<String>,
}

impl Unusable {
    pub(super) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self {
            reason,
            // Mostly ssh's words, or the host's: whoever answers there chooses them.
            detail: plain(&detail.into(), DETAIL_LIMIT),
            bastion: None,
        }
    }

    pub(super) fn broken(detail: impl Into<String>) -> Self {
        Self::new(Reason::Broken, detail)
    }

    /// A constant in CamelCase, as in `Failure.code`.
    pub fn code(&self) -> &'static str {
        match self.bastion {
            Some(_) => "BastionUnusable",
            None => self.reason.code(),
        }
    }

    /// What is wrong, for people: follows the host's name.
    pub fn message(&self) -> String {
        let message = self.reason.message();
        match &self.bastion {
            Some(bastion) => format!("bastion {bastion}: {message}"),
            None => message.to_owned(),
        }
    }

    /// What to do.
    pub fn remedy(&self) -> &'static str {
        match (&self.bastion, self.reason) {
            (Some(_), Reason::Unresolved | Reason::Refused | Reason::NotSsh) => {
                "start sshd on the bastion, or correct spec.ssh.bastion"
            }
            (Some(_), Reason::Authentication) => {
                "add the public key to the user's authorized_keys on the bastion, or correct spec.ssh.bastion"
            }
            (Some(_), Reason::HostKeyChanged) => {
                "if the bastion was installed anew, remove its old line from the cluster's known_hosts; if not, find out \
                 who answers"
            }
            _ => self.reason.remedy(),
        }
    }

    /// Whether the host did not answer at all, as opposed to answering and refusing. Of a host behind a bastion that cannot
    /// be used nothing is known.
    pub fn is_unreachable(&self) -> bool {
        self.bastion.is_none() && self.reason.is_unreachable()
    }
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
    /// It takes connections, but a login does not come to its end.
    LoginTimedOut,
    /// It shows another key than the one that is known.
    HostKeyChanged,
    /// Its key is not known.
    HostKeyUnknown,
    /// It does not accept the user and key.
    Authentication,
    /// The bastion does not open connections to it.
    Forwarding,
    /// The user may not become root without a password.
    Sudo,
    /// It has no Python 3.
    NoPython,
    /// None of its Pythons is as new as the modules need.
    PythonTooOld,
    /// It answers, but not as expected.
    Broken,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 14] = [
        Self::Unresolved,
        Self::Refused,
        Self::TimedOut,
        Self::NoRoute,
        Self::NotSsh,
        Self::LoginTimedOut,
        Self::HostKeyChanged,
        Self::HostKeyUnknown,
        Self::Authentication,
        Self::Forwarding,
        Self::Sudo,
        Self::NoPython,
        Self::PythonTooOld,
        Self::Broken,
    ];

    /// A constant in CamelCase, as in `Failure.code`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unresolved => "HostUnresolved",
            Self::Refused => "HostRefused",
            Self::TimedOut => "HostTimedOut",
            Self::NoRoute => "HostNoRoute",
            Self::NotSsh => "HostNotSsh",
            Self::LoginTimedOut => "HostLoginTimedOut",
            Self::HostKeyChanged => "HostKeyChanged",
            Self::HostKeyUnknown => "HostKeyUnknown",
            Self::Authentication => "HostAuthentication",
            Self::Forwarding => "HostForwarding",
            Self::Sudo => "HostSudo",
            Self::NoPython => "HostNoPython",
            Self::PythonTooOld => "HostPythonTooOld",
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
            Self::LoginTimedOut => "it answers, but a login takes too long",
            Self::HostKeyChanged => "its host key changed",
            Self::HostKeyUnknown => "its host key is not known",
            Self::Authentication => "it does not accept the user and key",
            Self::Forwarding => "the bastion does not open connections to it",
            Self::Sudo => "the user may not become root without a password",
            Self::NoPython => "it has no Python 3",
            Self::PythonTooOld => "its Python is too old",
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
            Self::LoginTimedOut => {
                "log in by hand and look what it waits for: disks, name service, load"
            }
            Self::HostKeyChanged => {
                "if the host was installed anew, remove its old line from the cluster's known_hosts; if not, find out who \
                 answers"
            }
            Self::HostKeyUnknown => {
                "add its key to spec.ssh.knownHosts, or to the Secret of spec.ssh.knownHostsSecretRef"
            }
            Self::Authentication => {
                "add the public key to the user's authorized_keys on the host, or correct spec.ssh"
            }
            Self::Forwarding => {
                "allow it in the bastion's sshd_config: AllowTcpForwarding, PermitOpen"
            }
            Self::Sudo => "allow the user to sudo without a password, or log in as root",
            Self::NoPython => "install python3 on the host",
            Self::PythonTooOld => "install a newer Python 3 on the host, beside its own or instead",
            Self::Broken => "log in by hand with the same user and key and look",
        }
    }

    /// Whether the host did not answer at all, as opposed to answering and refusing.
    pub const fn is_unreachable(self) -> bool {
        matches!(
            self,
            Self::Unresolved
                | Self::Refused
                | Self::TimedOut
                | Self::NoRoute
                | Self::NotSsh
                | Self::LoginTimedOut
        )
    }
}
