//! What is told of a snapshot beside it, and what it must say to be brought back. Pure.

use std::{fmt, iter, str::FromStr};

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The longest manifest that is read, in bytes.
pub const LARGEST: u64 = 16 * 1024;
/// The largest snapshot that is taken or brought, in bytes.
///
/// # Source
/// etcd, "System limits": its data has 8 GiB at most.
pub const LARGEST_SNAPSHOT: u64 = 9 << 30;
/// What may be added to it where it is sealed, in bytes.
const SEALING: u64 = 64 << 20;
/// How the name of a snapshot tells its time.
const NAME: &str = "%Y-%m-%dT%H-%M-%SZ";
/// How many snapshots of one second have names.
const OF_ONE_SECOND: u32 = 99;
/// The longest name, in bytes.
const NAME_LENGTH: usize = 64;
/// The longest text of a manifest, in bytes.
const TEXT_LENGTH: usize = 256;

/// The name of a snapshot: when it was taken, for example `2026-11-25T03-30-00Z`. Names sort as they were taken. Of several of one second the
/// further ones have a number, as `2026-11-25T03-30-00Z-2`.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Why a text is no name of a snapshot.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{0:?} is no name of a snapshot: it has letters, digits and -, at most 64, for example 2026-11-25T03-30-00Z"
)]
pub struct InvalidName(String);

impl Name {
    /// The one of a snapshot that is taken at a time.
    pub fn of(time: Timestamp) -> Self {
        Self(time.strftime(NAME).to_string())
    }

    /// This name and those that are taken instead of it where it is taken already, as far as that goes.
    pub fn and_next(&self) -> impl Iterator<Item = Self> {
        let next = (2..=OF_ONE_SECOND).map(move |number| Self(format!("{self}-{number}")));
        iter::once(self.clone()).chain(next)
    }

    /// The time that it tells, if it is one that this program gives.
    pub fn time(&self) -> Option<Timestamp> {
        let (time, number) = match self.0.split_once("Z-") {
            Some((time, number)) => (format!("{time}Z"), Some(number)),
            None => (self.0.clone(), None),
        };
        let time = DateTime::strptime(NAME, &time).ok()?;
        let time = time.to_zoned(TimeZone::UTC).ok()?.timestamp();
        let of_time = Self::of(time);
        let is_it = match number {
            Some(_) => of_time.and_next().any(|name| name == *self),
            None => of_time == *self,
        };
        is_it.then_some(time)
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of its manifest in a store.
    pub fn manifest(&self) -> String {
        format!("{self}.json")
    }

    /// The name of what is stored of it.
    pub fn object(&self, sealed: bool) -> String {
        let ending = if sealed { ".db.age" } else { ".db" };
        format!("{self}{ending}")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let good = (1..=NAME_LENGTH).contains(&text.len()) && text.bytes().all(plain);
        if good {
            return Ok(Self(text.to_owned()));
        }
        let shown: String = text.chars().take(NAME_LENGTH).collect();
        Err(InvalidName(shown))
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

/// What is told of a snapshot beside it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The form of this manifest.
    pub form: u32,
    /// Its name.
    pub name: Name,
    /// The cluster that it is of, as `NAMESPACE/NAME`.
    pub cluster: String,
    /// The SHA-256 digest of the certificate of etcd's authority: that which makes a cluster this one and no other of its name.
    pub authority: String,
    /// The number of the cluster in etcd. Etcd that is founded anew has another one.
    pub cluster_id: String,
    /// The version of etcd.
    pub etcd_version: String,
    /// The host that it was taken on.
    pub host: String,
    /// The unique id of the run that took it: a run knows its own by that, whatever name they got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// When it was taken.
    pub taken_at: Timestamp,
    /// The revision of etcd.
    pub revision: u64,
    /// How many keys etcd has at that revision.
    pub keys: u64,
    /// How many entries the file has, by etcd's own count: every revision of a key that is not compacted, and what etcd keeps beside.
    pub entries: u64,
    /// The program of etcd that checked the file on the host.
    pub checked_by: String,
    /// Its size, in bytes.
    pub size: u64,
    /// Its SHA-256 digest.
    pub digest: String,
    /// What is stored of it.
    pub stored: Stored,
}

/// What is told of what lies in a store, beside it: of a snapshot of etcd, or of what else is kept as snapshots are.
pub trait Told: Clone + DeserializeOwned + Serialize {
    /// What it tells of, as a word for people.
    const WHAT: &str;
    /// The form of manifests that this program writes.
    const FORM: u32 = 1;

    /// The form that it is of.
    fn form(&self) -> u32;

    /// The name of what it tells of.
    fn name(&self) -> &Name;

    /// The same of what got another name.
    #[must_use]
    fn named(self, name: Name) -> Self;

    /// Its size, in bytes.
    fn size(&self) -> u64;

    /// What lies in the store.
    fn stored(&self) -> &Stored;

    /// All texts in it that have no form of their own, by their fields.
    fn texts(&self) -> Vec<(&'static str, &str)>;

    /// All digests in it, by their fields.
    fn digests(&self) -> Vec<(&'static str, &str)>;

    /// Holds what else it tells against what can be. Pure.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    fn checked(&self) -> Result<(), String>;

    /// As it is stored.
    fn write(&self) -> Vec<u8> {
        // Strings and numbers alone are always JSON.
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Reads what is told of something of this name.
    ///
    /// # Errors
    ///
    /// Why it is none, or not that of the name.
    fn read(name: &Name, bytes: &[u8]) -> Result<Self, String> {
        let read: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("it is no manifest: {error}"))?;
        let form = read.form();
        if form != Self::FORM {
            let ours = Self::FORM;
            let remedy = if form < ours {
                ": take another one"
            } else {
                ""
            };
            return Err(format!(
                "it has form {form}, and this Windlass reads form {ours}{remedy}"
            ));
        }
        if read.name() != name {
            return Err(format!("it is that of {} {}", Self::WHAT, read.name()));
        }
        for (field, text) in read.texts() {
            if text.len() > TEXT_LENGTH || text.chars().any(char::is_control) {
                return Err(format!(
                    "its {field} is no line of at most {TEXT_LENGTH} bytes"
                ));
            }
        }
        for (field, digest) in read.digests() {
            if !is_digest(digest) {
                return Err(format!("its {field} is no SHA-256 digest"));
            }
        }
        let most = LARGEST_SNAPSHOT;
        if read.size() > most || read.stored().size > most.saturating_add(SEALING) {
            return Err(format!("its size is more than {most} bytes"));
        }
        read.checked()?;
        Ok(read)
    }

    /// The name of what is stored.
    fn object(&self) -> String {
        self.name().object(self.stored().sealed)
    }
}

impl Told for Manifest {
    const WHAT: &str = "snapshot";

    fn name(&self) -> &Name {
        &self.name
    }

    fn named(self, name: Name) -> Self {
        Self { name, ..self }
    }

    fn form(&self) -> u32 {
        self.form
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn stored(&self) -> &Stored {
        &self.stored
    }

    fn texts(&self) -> Vec<(&'static str, &str)> {
        vec![
            ("cluster", &self.cluster),
            ("clusterId", &self.cluster_id),
            ("etcdVersion", &self.etcd_version),
            ("host", &self.host),
            ("checkedBy", &self.checked_by),
            ("run", self.run.as_deref().unwrap_or_default()),
        ]
    }

    fn digests(&self) -> Vec<(&'static str, &str)> {
        vec![
            ("authority", &self.authority),
            ("digest", &self.digest),
            ("stored.digest", &self.stored.digest),
        ]
    }

    fn checked(&self) -> Result<(), String> {
        let stored = (self.stored.size, &self.stored.digest);
        if !self.stored.sealed && stored != (self.size, &self.digest) {
            return Err("it tells of a snapshot that is not encrypted, and of another size or digest where it is stored".to_owned());
        }
        if release(&self.etcd_version).is_none() {
            return Err(format!(
                "its etcdVersion is {:?}, which is no version",
                self.etcd_version
            ));
        }
        Ok(())
    }
}

/// What lies in the store.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    /// Its size, in bytes.
    pub size: u64,
    /// Its SHA-256 digest.
    pub digest: String,
    /// Whether it is encrypted, in the format of age.
    pub sealed: bool,
}

/// What a snapshot is to be brought back to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Here {
    /// The digest of the certificate of etcd's authority.
    pub authority: String,
    /// The version of etcd that is there.
    pub etcd_version: String,
}

/// Why a snapshot is not brought back.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unfit {
    /// It is of another cluster.
    #[error(
        "snapshot {name} is of another cluster ({cluster}): its authority of etcd is {theirs}, and here it is {here}"
    )]
    AnotherCluster {
        /// Its name.
        name: Name,
        /// The cluster that it says it is of.
        cluster: String,
        /// The digest of its authority.
        theirs: String,
        /// The one here.
        here: String,
    },
    /// A newer etcd made it.
    #[error(
        "snapshot {name} was made by etcd {theirs}, which is newer than {here}, which is to read it"
    )]
    NewerEtcd {
        /// Its name.
        name: Name,
        /// The version that made it.
        theirs: String,
        /// The version here.
        here: String,
    },
}

impl Manifest {
    /// Whether it can be brought back there.
    ///
    /// # Errors
    ///
    /// It is of another cluster, or of a newer etcd.
    pub fn fits(&self, here: &Here) -> Result<(), Unfit> {
        if self.authority != here.authority {
            let short = |digest: &str| digest.chars().take(16).collect();
            return Err(Unfit::AnotherCluster {
                name: self.name.clone(),
                cluster: self.cluster.clone(),
                theirs: short(&self.authority),
                here: short(&here.authority),
            });
        }
        // Within a release the form of data does not change.
        if release(&self.etcd_version) > release(&here.etcd_version) {
            return Err(Unfit::NewerEtcd {
                name: self.name.clone(),
                theirs: self.etcd_version.clone(),
                here: here.etcd_version.clone(),
            });
        }
        Ok(())
    }
}

/// Whether a text is a SHA-256 digest.
pub fn is_digest(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 64 && text.bytes().all(plain)
}

/// The release of a version: its first two numbers.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let name: Name = "2026-11-25T03-30-00Z".parse().unwrap();
        Manifest {
            form: Manifest::FORM,
            name,
            cluster: "demo/first".into(),
            authority: "a".repeat(64),
            cluster_id: "cdf818194e3a8c32".into(),
            etcd_version: "3.5.21".into(),
            host: "m1".into(),
            run: Some("6f6b".into()),
            taken_at: "2026-11-25T03:30:00Z".parse().unwrap(),
            revision: 12,
            keys: 4,
            entries: 20,
            checked_by: "etcdutl".into(),
            size: 4096,
            digest: "b".repeat(64),
            stored: Stored {
                size: 4296,
                digest: "c".repeat(64),
                sealed: true,
            },
        }
    }

    #[test]
    fn a_manifest_comes_back_as_it_was_and_no_other_one_does() {
        let written = manifest();
        let bytes = written.write();
        assert_eq!(Manifest::read(&written.name, &bytes), Ok(written.clone()));
        assert_eq!(written.object(), "2026-11-25T03-30-00Z.db.age");
        let text = String::from_utf8(bytes).unwrap();
        for (from, to, why) in [
            ("\"form\": 1", "\"form\": 2", "has form 2"),
            ("03-30-00Z", "03-31-00Z", "that of snapshot"),
            (&"a".repeat(64), "a", "authority is no SHA-256"),
            (&"b".repeat(64), &"B".repeat(64), "digest is no SHA-256"),
            (&"c".repeat(64), &"g".repeat(64), "stored.digest is no"),
            ("3.5.21", "latest", "no version"),
            ("demo/first", "demo\\u001bfirst", "cluster is no line"),
            ("6f6b", "6f6b\\n", "run is no line"),
            ("\"size\": 4096", "\"size\": -1", "is no manifest"),
            ("\"size\": 4096", "\"size\": 9663676417", "more than"),
            ("\"size\": 4296", "\"size\": 99999999999", "more than"),
            ("\"sealed\": true", "\"sealed\": false", "not encrypted"),
            ("2026-11-25T03-30-00Z", "../../x", "no name of a snapshot"),
        ] {
            let altered = text.replace(from, to);
            assert_ne!(altered, text, "{from}");
            let error = Manifest::read(&written.name, altered.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{to}: {error}");
        }
        assert!(Manifest::read(&written.name, b"").is_err());
    }

    #[test]
    fn another_cluster_and_a_newer_etcd_are_refused() {
        let here = |authority: &str, version: &str| Here {
            authority: authority.repeat(64),
            etcd_version: version.into(),
        };
        let fits = |here: &Here| manifest().fits(here);
        for version in ["3.5.21", "3.5.0", "3.6.1", "4.0.0", "3.10.0"] {
            assert_eq!(fits(&here("a", version)), Ok(()), "{version}");
        }
        for version in ["3.4.30", "2.9.9", ""] {
            let error = fits(&here("a", version)).unwrap_err();
            assert!(matches!(error, Unfit::NewerEtcd { .. }), "{version}");
        }
        let error = fits(&here("d", "3.5.21")).unwrap_err();
        assert!(matches!(error, Unfit::AnotherCluster { .. }));
        assert!(error.to_string().contains("demo/first"), "{error}");
    }

    #[test]
    fn names_are_times_and_no_paths() {
        let time: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let name = Name::of(time);
        assert_eq!(name.as_str(), "2026-01-02T03-04-05Z");
        assert_eq!(name.as_str().parse(), Ok(name.clone()));
        assert_eq!(name.time(), "2026-01-02T03:04:05Z".parse().ok());
        let names: Vec<_> = name.and_next().collect();
        assert_eq!((names.len(), &names[0]), (99, &name));
        assert_eq!(names[1].as_str(), "2026-01-02T03-04-05Z-2");
        assert!(names.iter().all(|next| next.time() == name.time()));
        for other in [
            "2026-01-02T03-04-05Z-1",
            "2026-01-02T03-04-05Z-02",
            "2026-01-02T03-04-05Z-",
            "customers",
            "2026-01-02",
            "2026-1-2T3-4-5Z",
            "2026-13-02T03-04-05Z",
        ] {
            assert_eq!(other.parse::<Name>().unwrap().time(), None, "{other}");
        }
        for bad in ["", ".", "a/b", "a b", "a.db", "ä", &"a".repeat(65)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
