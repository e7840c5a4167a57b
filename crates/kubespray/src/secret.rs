//! Secrets that a cluster refers to and makes: the ssh key and the kubeconfig.
//!
//! What is in them never leaves this process but into files that only the owner can read.

use api::{
    cluster::SecretKeyRef,
    secrets::{CREDENTIALS_TYPE, DIGEST_KEY_TYPE},
};
use base64::Engine;
use controller::kubeconfig::{Foreign, Refusal};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use crate::problem::Problem;

/// The key of the ssh Secret where none is named, as in Secrets of type kubernetes.io/ssh-auth.
pub const SSH_KEY: &str = "ssh-privatekey";
/// The key of the kubeconfig Secret, as Cluster API names it.
pub const KUBECONFIG_KEY: &str = "value";

/// Whether a Secret is what VaultSecrets log in with, or make digests with. Nothing of a cluster is made of it: whoever may write a spec, and may read no Secret,
/// could have it brought to a host of theirs.
pub(crate) fn is_for_vault(secret: &Secret) -> bool {
    let kind = secret.type_.as_deref();
    kind.is_some_and(|kind| [CREDENTIALS_TYPE, DIGEST_KEY_TYPE].contains(&kind))
}

/// The name of the Secret that takes a cluster's kubeconfig.
pub fn kubeconfig_name(cluster: &str) -> String {
    format!("{cluster}-kubeconfig")
}

/// Why there is no kubeconfig to use.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The API did not give the Secret.
    #[error("the kubeconfig Secret cannot be read")]
    Api(#[source] kube::Error),
    /// The Secret has what must not be used.
    #[error("Secret {secret} has a kubeconfig that is not used: {refusal}")]
    Refused {
        /// The name of the Secret.
        secret: String,
        /// What is wrong with it.
        refusal: Refusal,
    },
}

/// The kubeconfig of a cluster, if it is stored. Whoever may write Secrets of the namespace can have written it.
///
/// # Errors
///
/// The API refuses or does not answer, or the kubeconfig says what none may. That none is stored is no error.
pub async fn read_kubeconfig(
    client: &Client,
    namespace: &str,
    cluster: &str,
) -> Result<Option<Foreign>, KubeconfigError> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let name = kubeconfig_name(cluster);
    let secret = api.get_opt(&name).await.map_err(KubeconfigError::Api)?;
    secret
        .and_then(|secret| secret.data?.remove(KUBECONFIG_KEY))
        .map(|bytes| Foreign::read(&bytes.0))
        .transpose()
        .map_err(|refusal| KubeconfigError::Refused {
            secret: name,
            refusal,
        })
}

/// What was found where an ssh key should be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SshKey {
    /// None is referred to: ssh uses what the operator's user has.
    NotReferred,
    /// There is no such Secret.
    NoSecret,
    /// The Secret has no such key, but these.
    NoKey(Vec<String>),
    /// It is no private key.
    NotAKey,
    /// It has a passphrase.
    Passphrase,
    /// It can be used.
    Usable,
}

impl SshKey {
    /// Whether ssh can log in with it, as far as can be seen from here.
    pub const fn is_usable(&self) -> bool {
        matches!(self, Self::NotReferred | Self::Usable)
    }
}

/// Looks at the ssh key that `reference` names.
///
/// # Errors
///
/// The API refuses or does not answer. That there is no such Secret is no error.
pub async fn look(
    client: &Client,
    namespace: &str,
    reference: Option<&SecretKeyRef>,
) -> Result<SshKey, kube::Error> {
    let Some(reference) = reference else {
        return Ok(SshKey::NotReferred);
    };
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = api.get_opt(&reference.name).await?;
    Ok(judge(secret.as_ref(), key_of(reference)))
}

/// The key that a reference names.
pub fn key_of(reference: &SecretKeyRef) -> &str {
    reference.key.as_deref().unwrap_or(SSH_KEY)
}

pub(crate) fn judge(secret: Option<&Secret>, key: &str) -> SshKey {
    let Some(secret) = secret else {
        return SshKey::NoSecret;
    };
    match text(secret, key) {
        Some(text) => judge_key(&text),
        None => SshKey::NoKey(keys(secret)),
    }
}

/// What a Secret holds under a key. One from a file may hold plain text.
pub(crate) fn text(secret: &Secret, key: &str) -> Option<String> {
    if let Some(text) = secret.string_data.as_ref().and_then(|data| data.get(key)) {
        return Some(text.clone());
    }
    let bytes = secret.data.as_ref()?.get(key)?;
    Some(String::from_utf8_lossy(&bytes.0).into_owned())
}

/// The keys that a Secret has.
pub(crate) fn keys(secret: &Secret) -> Vec<String> {
    let data = secret.data.iter().flat_map(|data| data.keys());
    let plain = secret.string_data.iter().flat_map(|data| data.keys());
    data.chain(plain).cloned().collect()
}

/// # Source
/// OpenSSH `PROTOCOL.key`: "openssh-key-v1", a zero byte, then the name of the cipher with its length before it; RFC 1421
/// and PKCS#8 say ENCRYPTED in words.
fn judge_key(text: &str) -> SshKey {
    let Some((_, rest)) = text.split_once("-----BEGIN ") else {
        return SshKey::NotAKey;
    };
    let Some((kind, body)) = rest.split_once("-----") else {
        return SshKey::NotAKey;
    };
    if !kind.ends_with("PRIVATE KEY") {
        return SshKey::NotAKey;
    }
    if kind.contains("ENCRYPTED") || body.contains("ENCRYPTED") {
        return SshKey::Passphrase;
    }
    if kind != "OPENSSH PRIVATE KEY" {
        return SshKey::Usable;
    }
    let body = body.split("-----").next().unwrap_or_default();
    let body: String = body.split_whitespace().collect();
    let Ok(bytes) = base64::engine::general_purpose::STANDARD.decode(body) else {
        return SshKey::NotAKey;
    };
    match bytes.strip_prefix(b"openssh-key-v1\0") {
        None => SshKey::NotAKey,
        Some(rest) if rest.starts_with(b"\0\0\0\x04none") => SshKey::Usable,
        Some(_) => SshKey::Passphrase,
    }
}

/// What is wrong with the key, if anything is.
pub fn problem(reference: Option<&SecretKeyRef>, found: &SshKey) -> Option<Problem> {
    let reference = reference?;
    let (name, key) = (&reference.name, key_of(reference));
    let field = "Cluster spec.ssh.privateKeySecretRef";
    match found {
        SshKey::NotReferred | SshKey::Usable => None,
        SshKey::NoSecret => Some(missing(field, name, key)),
        SshKey::NoKey(keys) => Some(missing_key(field, name, key, keys)),
        SshKey::NotAKey => Some(Problem::new(
            format!("{field}.key"),
            key,
            format!("the value in Secret {name} is not a private key in PEM or OpenSSH form"),
            "store the whole file that ssh-keygen wrote, with its first and last line",
        )),
        SshKey::Passphrase => Some(Problem::new(
            format!("{field}.key"),
            key,
            format!("the private key in Secret {name} has a passphrase, which nobody could type"),
            "store a key without one: ssh-keygen -p -N '' -f PATH",
        )),
    }
}

/// That a Secret is not there.
pub(crate) fn missing(field: &str, name: &str, key: &str) -> Problem {
    Problem::new(
        format!("{field}.name"),
        name,
        "there is no such Secret in the cluster's namespace",
        format!("create it: kubectl create secret generic {name} --from-file={key}=PATH"),
    )
}

/// That a Secret has other keys.
pub(crate) fn missing_key(field: &str, name: &str, key: &str, keys: &[String]) -> Problem {
    Problem::new(
        format!("{field}.key"),
        key,
        format!("Secret {name} has no such key, it has: {}", list(keys)),
        "name a key that it has, or add this one",
    )
}

fn list(keys: &[String]) -> String {
    if keys.is_empty() {
        "none".to_owned()
    } else {
        keys.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn openssh(cipher: &str) -> String {
        let mut bytes = b"openssh-key-v1\0\0\0\0".to_vec();
        bytes.push(u8::try_from(cipher.len()).unwrap());
        bytes.extend(cipher.as_bytes());
        let body = base64::engine::general_purpose::STANDARD.encode(bytes);
        format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n")
    }

    #[test]
    fn keys_are_told_from_what_is_none() {
        for (text, expected) in [
            (openssh("none"), SshKey::Usable),
            (openssh("aes256-ctr"), SshKey::Passphrase),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END".into(),
                SshKey::Usable,
            ),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n".into(),
                SshKey::Passphrase,
            ),
            (
                "-----BEGIN ENCRYPTED PRIVATE KEY-----\n".into(),
                SshKey::Passphrase,
            ),
            ("-----BEGIN PUBLIC KEY-----\n".into(), SshKey::NotAKey),
            ("ssh-ed25519 AAAA".into(), SshKey::NotAKey),
            (String::new(), SshKey::NotAKey),
        ] {
            assert_eq!(judge_key(&text), expected, "{text}");
        }
    }

    #[test]
    fn a_missing_secret_or_key_is_named_with_its_remedy() {
        let reference = SecretKeyRef {
            name: "ssh".into(),
            key: None,
        };
        let missing = problem(Some(&reference), &judge(None, SSH_KEY))
            .unwrap()
            .to_string();
        assert!(
            missing.contains("kubectl create secret generic ssh"),
            "{missing}"
        );
        let empty = judge(Some(&Secret::default()), SSH_KEY);
        let empty = problem(Some(&reference), &empty).unwrap().to_string();
        assert!(empty.contains("it has: none"), "{empty}");
    }
}
