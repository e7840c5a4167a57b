//! What a spec says of snapshots. Pure.

use std::collections::BTreeSet;

use api::{
    cluster::ClusterSpec,
    snapshots::{Encryption, Keep, Store},
};
use controller::window::Recurrence;
use serde::{Deserialize, Serialize};
use snapshots::{
    retention,
    settings::{self, Location},
};

use crate::problem::Problem;

/// Where the settings stand.
pub(crate) const FIELD: &str = "Cluster spec.etcd.snapshots";

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
        let of_store = match settings::location(&self.store) {
            Some(Location::Bucket(s3)) => {
                let authorities = s3.ca_secret_ref.iter().map(|ca| ca.name.clone());
                authorities
                    .chain([s3.credentials_secret_ref.name.clone()])
                    .collect()
            }
            Some(Location::Directory(_) | Location::Claim(_)) | None => Vec::new(),
        };
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
        of_store.into_iter().chain(of_keys).collect()
    }

    /// The port of the store's server, if it has one.
    pub fn port(&self) -> Option<u16> {
        let endpoint: http::Uri = match settings::location(&self.store)? {
            Location::Bucket(s3) => s3.endpoint.parse().ok()?,
            Location::Directory(_) | Location::Claim(_) => return None,
        };
        let port = endpoint.port_u16();
        port.or_else(|| Some(if is_plain(&endpoint) { 80 } else { 443 }))
    }

    /// What goes, of what lies in the store.
    pub fn kept(&self) -> retention::Keep {
        settings::kept(self.keep.as_ref())
    }
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
    problems.extend(settings::of_store(FIELD, &written.store, in_pods));
    if let Some(encryption) = &written.encryption {
        problems.extend(settings::of_encryption(FIELD, encryption));
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

fn is_plain(endpoint: &http::Uri) -> bool {
    endpoint.scheme_str() == Some("http")
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
                json!({"store": {"persistentVolumeClaim": {"claimName": "shelf"}}}),
                ".persistentVolumeClaim.claimName",
                "a pod alone mounts a claim",
            ),
            (
                json!({"store": {"directory": "/srv", "persistentVolumeClaim": {"claimName": "shelf"}}}),
                ".store",
                "exactly one",
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
        let claim = json!({"store": {"persistentVolumeClaim": {"claimName": "shelf"}}});
        assert_eq!(resolved(&claim, true).1, [""; 0]);
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
