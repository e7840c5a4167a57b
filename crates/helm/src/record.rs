//! What Helm keeps of a release: a Secret for each revision.
//!
//! # Source
//! `pkg/storage/driver` and `pkg/release` of Helm 3 and 4: the Secret is called `sh.helm.release.v1.NAME.vREVISION`, and its key
//! `release` holds JSON, compressed by gzip, in base64.

use std::{collections::BTreeMap, io::Read as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::Value;

/// How large a record may be once it is decompressed. A Secret holds 1 MiB, and charts are text, which is some
/// ten times as long before it is compressed.
const LARGEST: u64 = 16 * 1024 * 1024;

/// How a revision of a release stands, in Helm's words.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// It is the one that is installed.
    Deployed,
    /// A later one took its place.
    Superseded,
    /// It could not be installed.
    Failed,
    /// A client is at work on it, or died at that.
    Pending,
    /// It is being removed, or a client died at that.
    Uninstalling,
    /// It was removed, and its history kept.
    Uninstalled,
    /// Something that no known Helm writes.
    Unknown,
}

impl State {
    fn read(word: &str) -> Self {
        match word {
            "deployed" => Self::Deployed,
            "superseded" => Self::Superseded,
            "failed" => Self::Failed,
            "pending-install" | "pending-upgrade" | "pending-rollback" => Self::Pending,
            "uninstalling" => Self::Uninstalling,
            "uninstalled" => Self::Uninstalled,
            _ => Self::Unknown,
        }
    }
}

/// One revision of a release.
#[derive(Clone, Debug)]
pub struct Record {
    secret: Secret,
    content: Value,
}

/// What the labels of the last record of a release say: it is known without what it holds, which may be much.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outline {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub release: String,
    /// The number of the revision.
    pub revision: u64,
    /// How it stands.
    pub state: State,
    /// All labels, also those of [`Helm::upgrade_marked`](crate::Helm::upgrade_marked).
    pub labels: BTreeMap<String, String>,
}

/// Why the records of a release are of no use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or did not answer.
    #[error("{what}")]
    Api {
        /// What was asked.
        what: &'static str,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// One is not as Helm writes it.
    #[error("read Secret {name}, which should hold a release: {why}")]
    Unreadable {
        /// The Secret.
        name: String,
        /// What is wrong with it.
        why: String,
    },
}

/// The revisions of a release, oldest first. Empty: it is not installed.
///
/// # Errors
///
/// The API refuses or does not answer, or one cannot be read.
pub async fn history(
    client: &Client,
    namespace: &str,
    release: &str,
) -> Result<Vec<Record>, Error> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let selector = ListParams::default().labels(&format!("owner=helm,name={release}"));
    let found = api.list(&selector).await.map_err(|source| Error::Api {
        what: "list the Secrets of the release",
        source: Box::new(source),
    })?;
    let mut records = found
        .items
        .into_iter()
        .map(Record::read)
        .collect::<Result<Vec<_>, _>>()?;
    records.sort_by_key(Record::revision);
    Ok(records)
}

/// The last revision of each release of a cluster, by namespace and name. What has no labels of a release is none.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn outlines(client: &Client) -> Result<Vec<Outline>, Error> {
    let api = Api::<Secret>::all(client.clone());
    let selector = ListParams::default().labels("owner=helm");
    let found = api.list_metadata(&selector).await;
    let found = found.map_err(|source| Error::Api {
        what: "list the releases",
        source: Box::new(source),
    })?;
    Ok(last(found.items.iter().filter_map(|secret| {
        Outline::read(secret.namespace()?, secret.labels())
    })))
}

fn last(all: impl Iterator<Item = Outline>) -> Vec<Outline> {
    let mut last: BTreeMap<(String, String), Outline> = BTreeMap::new();
    for outline in all {
        let place = (outline.namespace.clone(), outline.release.clone());
        let known = last.get(&place).map_or(0, |known| known.revision);
        if outline.revision >= known {
            last.insert(place, outline);
        }
    }
    last.into_values().collect()
}

/// Makes a release that a dead client left at work one that failed, which Helm goes on from. Returns the revision, if there was
/// one. Only who knows that no client is alive may call it: that is what Helm itself cannot know.
///
/// # Errors
///
/// As of [`history`]; also that somebody else changed the record meanwhile: then a client is alive.
pub async fn recover(
    client: &Client,
    namespace: &str,
    release: &str,
) -> Result<Option<u64>, Error> {
    let Some(last) = history(client, namespace, release).await?.pop() else {
        return Ok(None);
    };
    if !matches!(last.state(), State::Pending | State::Uninstalling) {
        return Ok(None);
    }
    let revision = last.revision();
    let name = last.secret.name_any();
    let failed = last.failed().map_err(|why| Error::Unreadable {
        name: name.clone(),
        why,
    })?;
    // With the version that was read, so that a client that lives is not overwritten.
    Api::<Secret>::namespaced(client.clone(), namespace)
        .replace(&name, &PostParams::default(), &failed)
        .await
        .map_err(|source| Error::Api {
            what: "mark the release of a dead client as failed",
            source: Box::new(source),
        })?;
    tracing::warn!(
        release,
        revision,
        "a client of Helm died at this release: marked as failed"
    );
    Ok(Some(revision))
}

impl Outline {
    fn read(namespace: String, labels: &BTreeMap<String, String>) -> Option<Self> {
        Some(Self {
            namespace,
            release: labels.get("name")?.clone(),
            revision: labels.get("version")?.parse().ok()?,
            state: State::read(labels.get("status")?),
            labels: labels.clone(),
        })
    }

    /// The revision that was stored last by [`Helm::upgrade_as`](crate::Helm::upgrade_as), as [`Record::stored`].
    pub fn stored(&self) -> Option<u64> {
        self.labels.get(STORED)?.parse().ok()
    }
}

impl Record {
    fn read(secret: Secret) -> Result<Self, Error> {
        let content = secret
            .data
            .as_ref()
            .and_then(|data| data.get(KEY))
            .ok_or_else(|| "it has no key release".to_owned())
            .and_then(|packed| unpack(&packed.0));
        match content {
            Ok(content) => Ok(Self { secret, content }),
            Err(why) => Err(Error::Unreadable {
                name: secret.name_any(),
                why,
            }),
        }
    }

    /// The number of the revision, from 1.
    pub fn revision(&self) -> u64 {
        self.content["version"].as_u64().unwrap_or_default()
    }

    /// The revision that was stored last by [`Helm::upgrade_as`](crate::Helm::upgrade_as). Helm hands a label on from one revision to the
    /// next, so a later one is somebody else's. None: of all that is kept, none was.
    pub fn stored(&self) -> Option<u64> {
        self.secret.labels().get(STORED)?.parse().ok()
    }

    /// How it stands.
    pub fn state(&self) -> State {
        State::read(self.content["info"]["status"].as_str().unwrap_or_default())
    }

    /// What Helm says of it, which may quote what the API said.
    pub fn description(&self) -> &str {
        self.content["info"]["description"]
            .as_str()
            .unwrap_or_default()
    }

    /// The chart and its version.
    pub fn chart(&self) -> String {
        let of = |field| {
            self.content["chart"]["metadata"][field]
                .as_str()
                .unwrap_or_default()
        };
        format!("{}-{}", of("name"), of("version"))
    }

    /// The values that it was installed with, beside those of the chart.
    pub fn values(&self) -> &Value {
        &self.content["config"]
    }

    /// The objects that it is made of, as YAML documents.
    pub fn manifest(&self) -> &str {
        self.content["manifest"].as_str().unwrap_or_default()
    }

    /// The Secret of the record as one that failed.
    fn failed(mut self) -> Result<Secret, String> {
        let info = self.content.get_mut("info").and_then(Value::as_object_mut);
        let info = info.ok_or("it has no info")?;
        info.insert("status".to_owned(), "failed".into());
        info.insert("description".to_owned(), DIED.into());
        let packed = pack(&self.content)?;
        let labels: &mut BTreeMap<_, _> = self.secret.labels_mut();
        labels.insert("status".to_owned(), "failed".to_owned());
        let data = self.secret.data.get_or_insert_default();
        data.insert(KEY.to_owned(), ByteString(packed));
        Ok(self.secret)
    }
}

fn unpack(packed: &[u8]) -> Result<Value, String> {
    let packed = STANDARD.decode(packed).map_err(|error| error.to_string())?;
    let mut json = Vec::new();
    let mut limited = GzDecoder::new(packed.as_slice()).take(LARGEST + 1);
    limited
        .read_to_end(&mut json)
        .map_err(|error| error.to_string())?;
    if json.len() as u64 > LARGEST {
        return Err(format!("it is larger than {LARGEST} bytes"));
    }
    serde_json::from_slice(&json).map_err(|error| error.to_string())
}

fn pack(content: &Value) -> Result<Vec<u8>, String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    serde_json::to_writer(&mut encoder, content).map_err(|error| error.to_string())?;
    let packed = encoder.finish().map_err(|error| error.to_string())?;
    Ok(STANDARD.encode(packed).into_bytes())
}

/// On a record: the number of the revision that was last stored with it.
pub(crate) const STORED: &str = "windlass.dev/revision";
const KEY: &str = "release";
const DIED: &str = "The client that was at work on it died";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(status: &str) -> Record {
        let content = json!({
            "name": "a", "version": 3, "info": {"status": status, "description": "Install complete"},
            "chart": {"metadata": {"name": "job", "version": "1.0.0"}}, "config": {"a": 1},
        });
        let data = BTreeMap::from([(KEY.to_owned(), ByteString(pack(&content).unwrap()))]);
        Record::read(Secret {
            data: Some(data),
            ..Secret::default()
        })
        .unwrap()
    }

    #[test]
    fn a_record_is_read_and_marked_as_failed() {
        let pending = record("pending-upgrade");
        assert_eq!(
            (
                pending.revision(),
                pending.state(),
                pending.chart().as_str()
            ),
            (3, State::Pending, "job-1.0.0")
        );
        let failed = Record::read(pending.failed().unwrap()).unwrap();
        assert_eq!(failed.state(), State::Failed);
        assert_eq!(failed.values(), &json!({"a": 1}));
        assert_eq!(failed.secret.labels()["status"], "failed");
    }

    #[test]
    fn a_revision_of_somebody_else_has_the_label_of_the_last_one_of_ours() {
        let mut third = record("deployed");
        assert_eq!(third.stored(), None);
        let labels = third.secret.labels_mut();
        labels.insert(STORED.to_owned(), "2".to_owned());
        assert_eq!((third.revision(), third.stored()), (3, Some(2)));
    }

    #[test]
    fn of_each_release_the_last_revision_is_told() {
        let outline = |name: &str, revision: &str, status: &str| {
            let labels = [("name", name), ("version", revision), ("status", status)];
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
            Outline::read("kube-system".to_owned(), &labels.into())
        };
        let all = [
            outline("a", "9", "superseded"),
            outline("a", "10", "deployed"),
            outline("b", "1", "failed"),
            outline("c", "none", "deployed"),
        ];
        let told: Vec<_> = last(all.into_iter().flatten())
            .into_iter()
            .map(|outline| (outline.release, outline.revision, outline.state))
            .collect();
        let expected = [
            ("a".to_owned(), 10, State::Deployed),
            ("b".to_owned(), 1, State::Failed),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_no_record_is_refused_with_its_name() {
        for data in ["", "!", "aGVsbG8="] {
            let data = BTreeMap::from([(KEY.to_owned(), ByteString(data.into()))]);
            let secret = Secret {
                data: Some(data),
                ..Secret::default()
            };
            assert!(Record::read(secret).is_err());
        }
        assert!(Record::read(Secret::default()).is_err());
    }
}
