//! Tokens by which nodes join: what is said of one to a person, and what never is. Pure.
//!
//! A token has two parts. The first is its name, by which it is found and which is no secret; the second lies in the cluster alone, in the
//! Secret that its API server reads and its token cleaner removes when the token ends. So a run makes it and tells its name, and who asked
//! reads the rest there with the cluster's kubeconfig: no Run, Event, log or journal has it.
//!
//! # Source
//! Kubernetes, "Authenticating with Bootstrap Tokens"; kubeadm `cmd/kubeadm/app/util/pubkeypin`.

use std::collections::BTreeMap;

use base64::Engine;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use sha2::{Digest, Sha256};

/// The namespace of bootstrap tokens.
pub const NAMESPACE: &str = "kube-system";
/// The type of their Secrets.
const KIND: &str = "bootstrap.kubernetes.io/token";
/// The group by which kubeadm lets nodes join.
const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
/// What the second part is made of.
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// The first part of the token that a run makes: a step that is repeated makes no second one.
pub fn id(run: &str) -> String {
    let digest = hex::encode(Sha256::digest(run));
    digest.chars().take(6).collect()
}

/// The name of its Secret.
pub fn secret_name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

/// A new token.
pub(crate) fn secret(id: &str, run: &str, expires: Timestamp) -> Secret {
    let second: String = (0..16)
        .filter_map(|_| LETTERS.get(rand::random_range(0..LETTERS.len())))
        .map(|letter| char::from(*letter))
        .collect();
    let data = [
        ("token-id", id.to_owned()),
        ("token-secret", second),
        (
            "expiration",
            expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        ),
        ("usage-bootstrap-authentication", "true".to_owned()),
        ("usage-bootstrap-signing", "true".to_owned()),
        ("auth-extra-groups", GROUP.to_owned()),
        ("description", format!("made by Windlass in run {run}")),
    ];
    let data: BTreeMap<_, _> = data
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    Secret {
        metadata: ObjectMeta {
            name: Some(secret_name(id)),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some(KIND.to_owned()),
        string_data: Some(data),
        ..Secret::default()
    }
}

/// A value of the Secret of a token, as text.
pub fn value(secret: &Secret, key: &str) -> Option<String> {
    let bytes = &secret.data.as_ref()?.get(key)?.0;
    String::from_utf8(bytes.clone()).ok()
}

/// The whole token.
pub fn whole(secret: &Secret) -> Option<String> {
    let plain = |text: &String| text.bytes().all(|byte| LETTERS.contains(&byte));
    let first = value(secret, "token-id").filter(plain)?;
    let second = value(secret, "token-secret").filter(plain)?;
    Some(format!("{first}.{second}"))
}

/// The digest of an authority by which a node that joins knows it, of its certificate as a kubeconfig holds it: PEM in base64.
pub fn authority_hash(data: &str) -> Option<String> {
    let pem = base64::engine::general_purpose::STANDARD
        .decode(data)
        .ok()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).ok()?;
    let certificate = pem.parse_x509().ok()?;
    let digest = Sha256::digest(certificate.public_key().raw);
    Some(format!("sha256:{}", hex::encode(digest)))
}

/// The address of an API server as `kubeadm join` takes it, of one with its scheme. What is none is refused: it is put into a command.
pub fn endpoint(server: &str) -> Option<String> {
    let address = server.strip_prefix("https://")?.trim_end_matches('/');
    let (host, port) = address.rsplit_once(':')?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    let is_host = !host.is_empty() && host.bytes().all(fits) && !host.starts_with('-');
    let is_port = port.parse::<u16>().is_ok();
    (is_host && is_port).then(|| address.to_owned())
}

/// The command by which a node joins.
pub fn join_command(endpoint: &str, token: &str, authority: &str) -> String {
    format!("kubeadm join {endpoint} --token {token} --discovery-token-ca-cert-hash {authority}")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn a_token_is_named_by_its_run_and_known_by_its_secret_alone() {
        let name = id("u-1");
        assert_eq!(name, id("u-1"));
        assert_ne!(name, id("u-2"));
        let expires = Timestamp::from_second(1_800_000_000).unwrap();
        let made = secret(&name, "first-toolbox-2", expires);
        let stored = Secret {
            data: made.string_data.clone().map(|data| {
                let bytes = |(key, value): (String, String)| (key, ByteString(value.into_bytes()));
                data.into_iter().map(bytes).collect()
            }),
            ..made.clone()
        };
        let token = whole(&stored).unwrap();
        let (first, second) = token.split_once('.').unwrap();
        assert_eq!((first, second.len()), (name.as_str(), 16));
        assert_ne!(whole(&stored), None);
        let other = secret(&name, "first-toolbox-2", expires);
        assert_ne!(
            made.string_data.unwrap()["token-secret"],
            other.string_data.unwrap()["token-secret"]
        );
        assert_eq!(
            value(&stored, "expiration").unwrap(),
            "2027-01-15T08:00:00Z"
        );
    }

    #[test]
    fn what_is_no_address_gets_into_no_command() {
        for (server, expected) in [
            ("https://10.0.0.1:6443", Some("10.0.0.1:6443")),
            ("https://[fd00::1]:6443/", Some("[fd00::1]:6443")),
            ("https://api.example.com:443", Some("api.example.com:443")),
            ("http://10.0.0.1:6443", None),
            ("https://10.0.0.1", None),
            ("https://a;reboot:6443", None),
            ("https://$(id):6443", None),
            ("https://-a:6443", None),
        ] {
            assert_eq!(endpoint(server).as_deref(), expected, "{server}");
        }
    }

    #[test]
    fn an_authority_is_known_by_its_key() {
        let authority = rcgen::generate_simple_self_signed(["kubernetes".to_owned()]).unwrap();
        let data = base64::engine::general_purpose::STANDARD.encode(authority.cert.pem());
        let hash = authority_hash(&data).unwrap();
        assert_eq!(hash.len(), "sha256:".len() + 64);
        assert_eq!(authority_hash("none"), None);
    }
}
