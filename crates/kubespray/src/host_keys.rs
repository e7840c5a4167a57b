//! Public keys of hosts that a spec gives, in itself or by a Secret: whether ssh can read them. Pure but for [`look`].

use api::cluster::{SecretKeyRef, Ssh};
use base64::Engine as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use crate::{problem::Problem, secret};

/// The key of the Secret where none is named.
pub const KNOWN_HOSTS: &str = "known_hosts";

/// What was found where keys of hosts should be.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum HostKeys {
    /// No Secret is referred to.
    #[default]
    NotReferred,
    /// There is no such Secret.
    NoSecret,
    /// The Secret has no such key, but these.
    NoKey(Vec<String>),
    /// This line is none of a known_hosts file.
    NotALine(usize),
    /// There is no line.
    Empty,
    /// They can be used.
    Usable,
}

impl HostKeys {
    /// Whether ssh can read them.
    pub const fn is_usable(&self) -> bool {
        matches!(self, Self::NotReferred | Self::Usable)
    }
}

/// The key that a reference names.
pub fn key_of(reference: &SecretKeyRef) -> &str {
    reference.key.as_deref().unwrap_or(KNOWN_HOSTS)
}

/// Looks at the keys of hosts that `reference` names.
///
/// # Errors
///
/// The API refuses or does not answer. That there is no such Secret is no error.
pub async fn look(
    client: &Client,
    namespace: &str,
    reference: Option<&SecretKeyRef>,
) -> Result<HostKeys, kube::Error> {
    let Some(reference) = reference else {
        return Ok(HostKeys::NotReferred);
    };
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = api.get_opt(&reference.name).await?;
    Ok(judge(secret.as_ref(), key_of(reference)))
}

pub(crate) fn judge(secret: Option<&Secret>, key: &str) -> HostKeys {
    let Some(secret) = secret else {
        return HostKeys::NoSecret;
    };
    match secret::text(secret, key) {
        Some(text) => judge_text(&text),
        None => HostKeys::NoKey(secret::keys(secret)),
    }
}

/// # Source
/// sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT": an optional marker, host names, the type of the key, the key in base 64, a
/// comment; empty lines and such that begin with `#` are comments.
pub(crate) fn judge_text(text: &str) -> HostKeys {
    let mut found = HostKeys::Empty;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if !is_line(line) {
            return HostKeys::NotALine(number);
        }
        found = HostKeys::Usable;
    }
    found
}

fn is_line(line: &str) -> bool {
    let mut words = line.split_whitespace().peekable();
    if matches!(words.peek(), Some(&"@cert-authority" | &"@revoked")) {
        words.next();
    }
    let (Some(_hosts), Some(kind), Some(key)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    let Ok(bytes) = base64::engine::general_purpose::STANDARD.decode(key) else {
        return false;
    };
    // A key begins with the name of its type, and that with its length.
    let length = u32::try_from(kind.len()).unwrap_or_default().to_be_bytes();
    bytes
        .strip_prefix(&length)
        .is_some_and(|rest| rest.starts_with(kind.as_bytes()))
}

/// What is wrong with the keys of a spec, or with those of its Secret.
pub fn problems(ssh: Option<&Ssh>, found: &HostKeys) -> Vec<Problem> {
    let Some(ssh) = ssh else {
        return Vec::new();
    };
    let own = ssh.known_hosts.as_deref().filter(|text| !text.is_empty());
    let own = own.and_then(|text| own_problem(&judge_text(text)));
    let referred = ssh.known_hosts_secret_ref.as_ref();
    let referred = referred.and_then(|reference| problem(reference, found));
    own.into_iter().chain(referred).collect()
}

const RULE: &str = "is not of the form HOSTS TYPE KEY, as in a known_hosts file";
const REMEDY: &str = "write the lines as `ssh-keyscan HOST` prints them, and compare the keys with those of the hosts";

fn own_problem(found: &HostKeys) -> Option<Problem> {
    let HostKeys::NotALine(number) = found else {
        return None;
    };
    let value = format!("line {number}");
    let field = "Cluster spec.ssh.knownHosts";
    Some(Problem::new(field, value, format!("it {RULE}"), REMEDY))
}

fn problem(reference: &SecretKeyRef, found: &HostKeys) -> Option<Problem> {
    let (name, key) = (&reference.name, key_of(reference));
    let field = "Cluster spec.ssh.knownHostsSecretRef";
    let value = || format!("the value in Secret {name}");
    match found {
        HostKeys::NotReferred | HostKeys::Usable => None,
        HostKeys::NoSecret => Some(secret::missing(field, name, key)),
        HostKeys::NoKey(keys) => Some(secret::missing_key(field, name, key, keys)),
        HostKeys::Empty => Some(Problem::new(
            format!("{field}.key"),
            key,
            format!("{} holds no key of a host", value()),
            REMEDY,
        )),
        HostKeys::NotALine(number) => Some(Problem::new(
            format!("{field}.key"),
            key,
            format!("line {number} of {} {RULE}", value()),
            REMEDY,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHnd6aeKrvIUDCL0vxzx2mIJvGXxeoMFlzEQfKzPcMBy";

    #[test]
    fn lines_are_those_that_ssh_reads() {
        for (text, expected) in [
            (format!("host {KEY}\n"), HostKeys::Usable),
            (
                format!("# a comment\n\n[host]:22,10.0.0.1 {KEY} root@host\n"),
                HostKeys::Usable,
            ),
            (
                format!("|1|c2FsdA==|aGFzaA== {KEY}\n@cert-authority *.example {KEY}"),
                HostKeys::Usable,
            ),
            (String::new(), HostKeys::Empty),
            ("# nothing\n".to_owned(), HostKeys::Empty),
            (format!("host {KEY}\n{KEY}\n"), HostKeys::NotALine(2)),
            (
                "host ssh-ed25519 no-base-64".to_owned(),
                HostKeys::NotALine(1),
            ),
            (
                format!("host {}", KEY.replace("ssh-ed25519", "ssh-rsa")),
                HostKeys::NotALine(1),
            ),
            ("host ssh-ed25519".to_owned(), HostKeys::NotALine(1)),
        ] {
            assert_eq!(judge_text(&text), expected, "{text}");
        }
    }
}
