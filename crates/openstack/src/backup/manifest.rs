//! What is told of a backup beside it, and what it must say to be brought back. Pure.

use api::run::Failure;
use jiff::Timestamp;
use runs::calls::config;
use serde::{Deserialize, Serialize};
use snapshots::{
    Name,
    manifest::{LARGEST_SNAPSHOT, Stored, Told, is_digest},
};

use crate::release;

/// The form of manifests that this program writes.
const FORM: u32 = 1;
/// The longest text of a manifest, in bytes.
const TEXT: usize = 256;
/// What may be added where it is sealed, in bytes.
const SEALING: u64 = 64 << 20;
/// The most databases.
const DATABASES: usize = 64;

/// What is told of a backup beside it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The form of this manifest.
    pub form: u32,
    /// Its name.
    pub name: Name,
    /// The cloud that it is of, as `NAMESPACE/NAME`.
    pub cloud: String,
    /// The unique id of the cluster that the cloud is in: that of its namespace `kube-system`.
    pub cluster: String,
    /// The release of the cloud, where somebody says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// The version of the database server.
    pub server: String,
    /// The unique id of the run that took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// When it was taken.
    pub taken_at: Timestamp,
    /// The databases in it.
    pub databases: Vec<Database>,
    /// Its size, in bytes.
    pub size: u64,
    /// Its SHA-256 digest.
    pub digest: String,
    /// What is stored of it.
    pub stored: Stored,
}

/// A database in a backup.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Database {
    /// The service that it is of.
    pub service: String,
    /// Its name.
    pub name: String,
    /// How many tables it has.
    pub tables: u64,
    /// How many rows they have.
    pub rows: u64,
}

/// What a backup is to be brought back to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Here {
    /// The cloud, as `NAMESPACE/NAME`.
    pub cloud: String,
    /// The unique id of its cluster.
    pub cluster: String,
    /// The other cluster whose backups are wanted all the same.
    pub from: Option<String>,
    /// The release of the cloud.
    pub release: Option<String>,
    /// Its services.
    pub services: Vec<String>,
}

impl Manifest {
    /// The form of manifests that this program writes.
    pub const FORM: u32 = FORM;

    /// How many tables and rows it has.
    pub fn counts(&self) -> (u64, u64) {
        let sum = |of: fn(&Database) -> u64| self.databases.iter().map(of).sum();
        (
            sum(|database| database.tables),
            sum(|database| database.rows),
        )
    }

    /// Whether it can be brought back there.
    ///
    /// # Errors
    ///
    /// It is of another cloud, of another release, or of other services.
    pub fn fits(&self, here: &Here) -> Result<(), Failure> {
        let Self { name, cloud, .. } = self;
        let theirs = here.from.as_ref().unwrap_or(&here.cluster);
        if *cloud != here.cloud || self.cluster != *theirs {
            return Err(config(
                "BackupOfAnotherCloud",
                format!(
                    "backup {name} is of cloud {cloud} in cluster {}, and this is {} in cluster {}",
                    self.cluster, here.cloud, here.cluster
                ),
                "name a backup of this cloud (windlass openstack backups); where its cluster was lost and this one stands for it, say so: windlass openstack restore --from-cluster UID",
            ));
        }
        let word = |release: &Option<String>| release.clone().unwrap_or_else(|| "none".to_owned());
        if self.release != here.release {
            let newer = release::is_newer(self.release.as_deref(), here.release.as_deref());
            let (code, rule, remedy) = if newer {
                (
                    "BackupOfNewerRelease",
                    "tables do not go back to a release before",
                    "bring the cloud to the release of the backup first (spec.release and the images), or name an older backup",
                )
            } else {
                (
                    "BackupOfAnotherRelease",
                    "what runs would meet tables of another release",
                    "bring the backup back in a cloud of its release, and upgrade that; or name a newer backup",
                )
            };
            return Err(config(
                code,
                format!(
                    "backup {name} is of release {}, and the cloud is of {}: {rule}",
                    word(&self.release),
                    word(&here.release)
                ),
                remedy,
            ));
        }
        let mut theirs: Vec<_> = self.databases.iter().map(|of| of.service.clone()).collect();
        theirs.sort();
        theirs.dedup();
        let mut ours = here.services.clone();
        ours.sort();
        if theirs != ours {
            return Err(config(
                "BackupOfOtherServices",
                format!(
                    "backup {name} is of {}, and the cloud has {}",
                    theirs.join(", "),
                    ours.join(", ")
                ),
                "give spec.services the same services first, or name another backup",
            ));
        }
        Ok(())
    }
}

impl Told for Manifest {
    fn name(&self) -> &Name {
        &self.name
    }

    fn named(self, name: Name) -> Self {
        Self { name, ..self }
    }

    fn stored(&self) -> &Stored {
        &self.stored
    }

    fn write(&self) -> Vec<u8> {
        // Strings and numbers alone are always JSON.
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    fn read(name: &Name, bytes: &[u8]) -> Result<Self, String> {
        let read: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("it is no manifest: {error}"))?;
        if read.form != FORM {
            let form = read.form;
            return Err(format!(
                "it has form {form}, and this Windlass reads form {FORM}"
            ));
        }
        if read.name != *name {
            return Err(format!("it is that of backup {}", read.name));
        }
        let of_databases = read.databases.iter();
        let of_databases = of_databases.flat_map(|of| [Some(&of.service), Some(&of.name)]);
        let texts = [
            Some(&read.cloud),
            Some(&read.cluster),
            Some(&read.server),
            read.release.as_ref(),
            read.run.as_ref(),
        ];
        let is_line = |text: &&String| text.len() <= TEXT && !text.chars().any(char::is_control);
        let are_lines = texts
            .into_iter()
            .chain(of_databases)
            .flatten()
            .all(|text| is_line(&text));
        if !are_lines {
            return Err(format!("a text in it is no line of at most {TEXT} bytes"));
        }
        if read.databases.is_empty() || read.databases.len() > DATABASES {
            return Err(format!("it has no databases, or more than {DATABASES}"));
        }
        if !is_digest(&read.digest) || !is_digest(&read.stored.digest) {
            return Err("a digest in it is no SHA-256 digest".to_owned());
        }
        let most = LARGEST_SNAPSHOT;
        if read.size > most || read.stored.size > most.saturating_add(SEALING) {
            return Err(format!("its size is more than {most} bytes"));
        }
        // Passwords and keys are in it: one that is not encrypted is none of this program's.
        if !read.stored.sealed {
            return Err("it tells of a backup that is not encrypted".to_owned());
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let database = |service: &str| Database {
            service: service.into(),
            name: service.into(),
            tables: 2,
            rows: 9,
        };
        Manifest {
            form: FORM,
            name: "2026-11-25T03-30-00Z".parse().unwrap(),
            cloud: "cloud/one".into(),
            cluster: "u-1".into(),
            release: Some("2026.1".into()),
            server: "10.11.19-MariaDB".into(),
            run: Some("6f6b".into()),
            taken_at: "2026-11-25T03:30:00Z".parse().unwrap(),
            databases: vec![database("keystone"), database("glance")],
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
        let bytes = Told::write(&written);
        assert_eq!(Manifest::read(&written.name, &bytes), Ok(written.clone()));
        assert_eq!(written.counts(), (4, 18));
        let text = String::from_utf8(bytes).unwrap();
        for (from, to, why) in [
            ("\"form\": 1", "\"form\": 2", "has form 2"),
            ("03-30-00Z", "03-31-00Z", "that of backup"),
            (&"b".repeat(64), "b", "no SHA-256"),
            ("cloud/one", "cloud\\u001bone", "no line"),
            ("\"size\": 4096", "\"size\": 9663676417", "more than"),
            ("\"sealed\": true", "\"sealed\": false", "not encrypted"),
        ] {
            let altered = text.replace(from, to);
            assert_ne!(altered, text, "{from}");
            let error = Manifest::read(&written.name, altered.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{to}: {error}");
        }
    }

    #[test]
    fn what_fits_no_cloud_is_refused_with_a_way_out() {
        let here = Here {
            cloud: "cloud/one".into(),
            cluster: "u-1".into(),
            from: None,
            release: Some("2026.1".into()),
            services: vec!["glance".into(), "keystone".into()],
        };
        let backup = manifest();
        assert!(backup.fits(&here).is_ok());
        let code = |backup: &Manifest, here: &Here| backup.fits(here).unwrap_err().code;
        let elsewhere = Here {
            cluster: "u-2".into(),
            ..here.clone()
        };
        assert_eq!(code(&backup, &elsewhere), "BackupOfAnotherCloud");
        let meant = Here {
            from: Some("u-1".into()),
            ..elsewhere
        };
        assert!(backup.fits(&meant).is_ok());
        let named = Here {
            cloud: "cloud/two".into(),
            ..meant
        };
        assert_eq!(code(&backup, &named), "BackupOfAnotherCloud");
        let older = Here {
            release: Some("2025.2".into()),
            ..here.clone()
        };
        assert_eq!(code(&backup, &older), "BackupOfNewerRelease");
        let newer = Here {
            release: Some("2026.2".into()),
            ..here.clone()
        };
        assert_eq!(code(&backup, &newer), "BackupOfAnotherRelease");
        let fewer = Here {
            services: vec!["keystone".into()],
            ..here
        };
        assert_eq!(code(&backup, &fewer), "BackupOfOtherServices");
    }
}
