//! What a spec says of snapshots. Pure.

use std::{collections::BTreeSet, net::IpAddr, path::Path};

use api::{
    cluster::{ClusterSpec, SecretKeyRef},
    snapshots::{Encryption, Keep, S3, Store},
};
use controller::window::Recurrence;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use snapshots::{retention, seal};

use crate::problem::Problem;

/// Where the settings stand.
pub(crate) const FIELD: &str = "Cluster spec.etcd.snapshots";
/// The key of a Secret with a passphrase, with private keys, and with certificates of authorities, where none is named.
pub(crate) const PASSPHRASE: &str = "passphrase";
pub(crate) const IDENTITY: &str = "identity";
pub(crate) const CA: &str = "ca.crt";

/// What a spec says of snapshots, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshots {
    /// When one is taken by itself.
    pub schedule: Option<Recurrence>,
    /// What a plan carries of it.
    pub input: SnapshotsInput,
}

/// What a plan carries for its runner. References to Secrets, never Secrets.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotsInput {
    /// Where they lie.
    pub store: Store,
    /// What is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
    /// What they are encrypted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
}

impl SnapshotsInput {
    /// The names of the Secrets that it refers to.
    pub fn secrets(&self) -> BTreeSet<String> {
        let s3 = self.store.s3.iter();
        let of_store = s3.flat_map(|s3| {
            let authorities = s3.ca_secret_ref.iter().map(|ca| ca.name.clone());
            authorities.chain([s3.credentials_secret_ref.name.clone()])
        });
        let encryption = self.encryption.iter();
        let of_keys = encryption.flat_map(|encryption| {
            let Encryption {
                recipients: _,
                passphrase_secret_ref,
                identity_secret_ref,
            } = encryption;
            let references = passphrase_secret_ref.iter().chain(identity_secret_ref);
            references.map(|reference| reference.name.clone())
        });
        of_store.chain(of_keys).collect()
    }

    /// The port of the store's server, if it has one.
    pub fn port(&self) -> Option<u16> {
        let endpoint: http::Uri = self.store.s3.as_ref()?.endpoint.parse().ok()?;
        let port = endpoint.port_u16();
        port.or_else(|| Some(if is_plain(&endpoint) { 80 } else { 443 }))
    }

    /// What goes, of what lies in the store.
    pub fn kept(&self) -> retention::Keep {
        let keep = self.keep.clone().unwrap_or_default();
        let seconds = |age: api::Duration| i64::try_from(age.seconds()).unwrap_or(i64::MAX);
        retention::Keep {
            count: keep.count.map(usize::from),
            age: keep
                .max_age
                .map(|age| SignedDuration::from_secs(seconds(age))),
        }
    }
}

/// The key that a reference names, or the one of its kind.
pub(crate) fn key_of<'a>(reference: &'a SecretKeyRef, default: &'a str) -> &'a str {
    reference.key.as_deref().unwrap_or(default)
}

/// Checks what a spec says; `in_pods` says whether runners are pods.
pub(crate) fn resolve(
    spec: &ClusterSpec,
    in_pods: bool,
    problems: &mut Vec<Problem>,
) -> Option<Snapshots> {
    let written = spec.etcd.as_ref()?.snapshots.as_ref()?;
    let schedule = written.schedule.as_deref().and_then(|schedule| {
        let (field, zone) = (format!("{FIELD}.schedule"), format!("{FIELD}.timeZone"));
        Recurrence::read((schedule, &field), (written.time_zone.as_deref(), &zone))
            .map_err(|wrong| problems.extend(wrong))
            .ok()
    });
    problems.extend(of_store(&written.store, in_pods));
    if let Some(encryption) = &written.encryption {
        problems.extend(of_encryption(encryption));
    }
    Some(Snapshots {
        schedule,
        input: SnapshotsInput {
            store: written.store.clone(),
            keep: written.keep.clone(),
            encryption: written.encryption.clone(),
        },
    })
}

fn of_store(store: &Store, in_pods: bool) -> Option<Problem> {
    match (&store.directory, &store.s3) {
        (Some(directory), None) => of_directory(directory, in_pods),
        (None, Some(s3)) => of_endpoint(s3),
        _ => Some(Problem::new(
            format!("{FIELD}.store"),
            "",
            "exactly one of directory and s3 is set",
            "write where snapshots lie, for example directory: /srv/snapshots",
        )),
    }
}

fn of_directory(directory: &str, in_pods: bool) -> Option<Problem> {
    let field = format!("{FIELD}.store.directory");
    if in_pods {
        return Some(Problem::new(
            field,
            directory,
            "runners are pods here, whose directories go with them",
            "write spec.etcd.snapshots.store.s3",
        ));
    }
    let path = Path::new(directory);
    let plain =
        !directory.chars().any(char::is_control) && !directory.split('/').any(|part| part == "..");
    (!path.is_absolute() || !plain).then(|| {
        Problem::new(
            field,
            api::text::plain(directory, 256),
            "it is the absolute path of a directory, without ..",
            "write for example /srv/snapshots",
        )
    })
}

fn of_endpoint(s3: &S3) -> Option<Problem> {
    let field = format!("{FIELD}.store.s3.endpoint");
    let shown = api::text::plain(&s3.endpoint, 256);
    let remedy = "write for example https://s3.example.org";
    let problem = |rule: &str| Some(Problem::new(&field, &shown, rule, remedy));
    let Ok(endpoint) = s3.endpoint.parse::<http::Uri>() else {
        return problem("it is the URL of a server");
    };
    let Some(host) = endpoint.host().filter(|host| !host.is_empty()) else {
        return problem("it is the URL of a server");
    };
    if endpoint
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        return Some(Problem::new(
            &field,
            "",
            "it has no user and no password",
            "write them into the Secret of credentialsSecretRef",
        ));
    }
    if endpoint.query().is_some() {
        return problem("it has no query");
    }
    match endpoint.scheme_str() {
        Some("https") => None,
        // Who hears what goes over the network has every Secret of the cluster.
        Some("http") if is_loopback(host) => None,
        Some("http") => problem("http is for servers of this machine alone"),
        _ => problem("it begins with https://"),
    }
}

fn is_plain(endpoint: &http::Uri) -> bool {
    endpoint.scheme_str() == Some("http")
}

fn is_loopback(host: &str) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || literal.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

fn of_encryption(encryption: &Encryption) -> Vec<Problem> {
    let field = format!("{FIELD}.encryption");
    let with_keys = !encryption.recipients.is_empty();
    if with_keys == encryption.passphrase_secret_ref.is_some() {
        return vec![Problem::new(
            field,
            "",
            "exactly one of recipients and passphraseSecretRef is set",
            "write recipients: [age1...], the public key that age-keygen shows",
        )];
    }
    let keys = encryption.recipients.iter().enumerate();
    keys.filter_map(|(at, key)| {
        let why = seal::recipient(key).err()?;
        let shown = if key.starts_with("age1") {
            api::text::plain(key, 128)
        } else {
            // It may be a private one.
            String::new()
        };
        let field = format!("{field}.recipients[{at}]");
        let remedy = "write the line that age-keygen calls the public key";
        Some(Problem::new(field, shown, why, remedy))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn resolved(written: &Value, in_pods: bool) -> (Option<Snapshots>, Vec<String>) {
        let spec: ClusterSpec =
            serde_json::from_value(json!({"etcd": {"snapshots": written}})).unwrap();
        let mut problems = Vec::new();
        let resolved = resolve(&spec, in_pods, &mut problems);
        let told = problems.iter().map(ToString::to_string).collect();
        (resolved, told)
    }

    fn s3(endpoint: &str) -> Value {
        json!({"s3": {"endpoint": endpoint, "bucket": "b-1", "credentialsSecretRef": {"name": "s3"}}})
    }

    #[test]
    fn what_is_wrong_is_told_with_its_field() {
        let key = age::x25519::Identity::generate();
        let secret = secrecy::ExposeSecret::expose_secret(&key.to_string()).to_owned();
        let directory = || json!({"directory": "/srv"});
        for (written, field, rule) in [
            (json!({"store": {}}), ".store", "exactly one"),
            (
                json!({"store": {"directory": "srv"}}),
                ".store.directory",
                "absolute",
            ),
            (
                json!({"store": {"directory": "/srv/../etc"}}),
                ".store.directory",
                "without ..",
            ),
            (
                json!({"store": s3("http://10.0.0.1")}),
                ".s3.endpoint",
                "of this machine alone",
            ),
            (
                json!({"store": s3("http://127.0.0.1.example.org")}),
                ".s3.endpoint",
                "alone",
            ),
            (json!({"store": s3("ftp://s3")}), ".s3.endpoint", "https://"),
            (
                json!({"store": s3("https://")}),
                ".s3.endpoint",
                "URL of a server",
            ),
            (
                json!({"store": s3("https://u:p@s3")}),
                ".s3.endpoint",
                "no password",
            ),
            (
                json!({"store": s3("https://s3/?a=b")}),
                ".s3.endpoint",
                "no query",
            ),
            (
                json!({"store": directory(), "schedule": "0 0 30 2 *"}),
                ".schedule",
                "never comes",
            ),
            (
                json!({"store": directory(), "schedule": "0 0 * *"}),
                ".schedule",
                "five fields",
            ),
            (
                json!({"store": directory(), "schedule": "0 0 * * *", "timeZone": "Berlin"}),
                ".timeZone",
                "zones",
            ),
            (
                json!({"store": directory(), "encryption": {}}),
                ".encryption",
                "exactly one",
            ),
            (
                json!({"store": directory(), "encryption": {"recipients": ["age1x"]}}),
                ".recipients[0]",
                "public key",
            ),
            (
                json!({"store": directory(), "encryption": {"recipients": [secret]}}),
                ".recipients[0]",
                "belongs into a Secret",
            ),
        ] {
            let (_, told) = resolved(&written, false);
            assert_eq!(told.len(), 1, "{written}: {told:?}");
            assert!(
                told[0].contains(field) && told[0].contains(rule),
                "{told:?}"
            );
            assert!(!told[0].contains("AGE-SECRET-KEY-1"), "{told:?}");
        }
        let (_, told) = resolved(&json!({"store": directory()}), true);
        assert!(told[0].contains("runners are pods"), "{told:?}");
    }

    #[test]
    fn a_runner_reads_what_is_referred_to_and_reaches_the_server() {
        let key = age::x25519::Identity::generate().to_public().to_string();
        for (endpoint, port) in [
            ("https://s3.example.org", 443),
            ("https://s3.example.org:9000/", 9000),
            ("http://localhost", 80),
            ("http://[::1]:7070", 7070),
        ] {
            let mut written = json!({"store": s3(endpoint), "encryption": {
                "recipients": [key], "identitySecretRef": {"name": "age"},
            }});
            written["store"]["s3"]["caSecretRef"] = json!({"name": "ca"});
            let (resolved, told) = resolved(&written, true);
            assert_eq!(told, [""; 0], "{endpoint}");
            let input = resolved.unwrap().input;
            assert_eq!(input.port(), Some(port), "{endpoint}");
            let names: Vec<_> = input.secrets().into_iter().collect();
            assert_eq!(names, ["age", "ca", "s3"]);
        }
    }
}
