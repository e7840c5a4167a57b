//! What is told of a backup beside it, and what it must say to be brought back. Pure.

use std::collections::BTreeMap;

use api::run::Failure;
use runs::calls::config;
use serde::{Deserialize, Serialize};
use snapshots::{
    Name,
    manifest::{Stored, Told},
    seal::Spooled,
};

use crate::{backup::archive::Origin, release};

/// The most databases.
const DATABASES: usize = 64;
/// The longest name of an image, in bytes: that of an object's field.
const IMAGE: usize = 512;

/// What is told of a backup beside it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The form of this manifest.
    pub form: u32,
    /// Its name.
    pub name: Name,
    /// What it is of. It counts when what is sealed says the same.
    #[serde(flatten)]
    pub origin: Origin,
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
    /// Their images, by their names.
    pub images: BTreeMap<String, String>,
    /// The version of its database server.
    pub server: String,
}

impl Manifest {
    /// That of a backup that was written to its end, under the first name that it may get.
    pub fn of(origin: Origin, databases: Vec<Database>, spooled: &Spooled) -> Self {
        Self {
            form: Self::FORM,
            name: Name::of(origin.taken_at),
            origin,
            databases,
            size: spooled.size,
            digest: spooled.digest.clone(),
            stored: Stored {
                size: spooled.stored_size,
                digest: spooled.stored_digest.clone(),
                sealed: true,
            },
        }
    }

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
    /// It is of another cloud, of another release, of other services, or of a newer database server.
    pub fn fits(&self, here: &Here) -> Result<(), Failure> {
        let Self { name, origin, .. } = self;
        let (cloud, cluster) = (&origin.cloud, &origin.cluster);
        let theirs = here.from.as_ref().unwrap_or(&here.cluster);
        if *cloud != here.cloud || cluster != theirs {
            return Err(config(
                "BackupOfAnotherCloud",
                format!(
                    "backup {name} is of cloud {cloud} in cluster {cluster}, and this is {} in cluster {}",
                    here.cloud, here.cluster
                ),
                "name a backup of this cloud (windlass openstack backups); where its cluster was lost and this one stands for it, say so: windlass openstack restore --from-cluster UID",
            ));
        }
        let word = |release: &Option<String>| release.clone().unwrap_or_else(|| "none".to_owned());
        if origin.release != here.release {
            let newer = release::is_newer(origin.release.as_deref(), here.release.as_deref());
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
                    word(&origin.release),
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
        self.fits_images(here)?;
        self.fits_server(here)
    }

    /// Where nobody says a release, other images may be one.
    fn fits_images(&self, here: &Here) -> Result<(), Failure> {
        let images = &self.origin.images;
        if self.origin.release.is_some() || images.is_empty() || *images == here.images {
            return Ok(());
        }
        let word = |images: &BTreeMap<String, String>| {
            let images: Vec<_> = images.values().map(String::as_str).collect();
            images.join(", ")
        };
        Err(config(
            "BackupOfOtherImages",
            format!(
                "backup {} was made with {}, and the cloud runs {}: nobody says which releases they are of, and what runs could meet tables of another one",
                self.name,
                word(images),
                word(&here.images)
            ),
            "give spec.services the images of the backup first, or name another backup; say spec.release, and later backups go by that",
        ))
    }

    /// The statements of a newer server may need what an older one lacks, and it would be told when the tables are gone.
    fn fits_server(&self, here: &Here) -> Result<(), Failure> {
        let theirs = &self.origin.server;
        if release_of(theirs) <= release_of(&here.server) {
            return Ok(());
        }
        Err(config(
            "BackupOfNewerServer",
            format!(
                "backup {} was made on a database server {theirs}, and that of the cloud is {}, which is older",
                self.name, here.server
            ),
            "bring the database server to that version first (spec.database), or name another backup",
        ))
    }
}

/// The release of a database server: the first two numbers of its version.
fn release_of(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

impl Told for Manifest {
    const WHAT: &str = "backup";
    /// Of form 1 are those whose texts do not say under their seal what they are of.
    const FORM: u32 = 2;

    fn form(&self) -> u32 {
        self.form
    }

    fn name(&self) -> &Name {
        &self.name
    }

    fn named(self, name: Name) -> Self {
        Self { name, ..self }
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn stored(&self) -> &Stored {
        &self.stored
    }

    fn texts(&self) -> Vec<(&'static str, &str)> {
        let databases = self.databases.iter();
        let of_databases = databases.flat_map(|of| [("service", &*of.service), ("name", &of.name)]);
        let origin = &self.origin;
        [
            ("cloud", &*origin.cloud),
            ("cluster", &origin.cluster),
            ("server", &origin.server),
            ("release", origin.release.as_deref().unwrap_or_default()),
            ("run", origin.run.as_deref().unwrap_or_default()),
        ]
        .into_iter()
        .chain(of_databases)
        .collect()
    }

    fn digests(&self) -> Vec<(&'static str, &str)> {
        vec![
            ("digest", &self.digest),
            ("stored.digest", &self.stored.digest),
        ]
    }

    fn checked(&self) -> Result<(), String> {
        if self.databases.is_empty() || self.databases.len() > DATABASES {
            return Err(format!("it has no databases, or more than {DATABASES}"));
        }
        let is_line = |text: &String| text.len() <= IMAGE && !text.chars().any(char::is_control);
        let mut images = self.origin.images.iter();
        if !images.all(|(service, image)| is_line(service) && is_line(image)) {
            return Err(format!("its images are no lines of at most {IMAGE} bytes"));
        }
        // By its name somebody picks it for its time.
        let first = Name::of(self.origin.taken_at);
        if !first.and_next().any(|name| name == self.name) {
            let taken = self.origin.taken_at;
            return Err(format!("it tells of a backup that was taken at {taken}"));
        }
        // Passwords and keys are in it: one that is not encrypted is none of this program's.
        if !self.stored.sealed {
            return Err("it tells of a backup that is not encrypted".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(tag: &str) -> BTreeMap<String, String> {
        ["glance", "keystone"]
            .map(|service| (service.to_owned(), format!("{service}:{tag}")))
            .into()
    }

    fn manifest() -> Manifest {
        let database = |service: &str| Database {
            service: service.into(),
            name: service.into(),
            tables: 2,
            rows: 9,
        };
        Manifest {
            form: Manifest::FORM,
            name: "2026-11-25T03-30-00Z".parse().unwrap(),
            origin: Origin {
                cloud: "cloud/one".into(),
                cluster: "u-1".into(),
                release: Some("2026.1".into()),
                images: images("1"),
                server: "10.11.19-MariaDB".into(),
                run: Some("6f6b".into()),
                taken_at: "2026-11-25T03:30:00Z".parse().unwrap(),
            },
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
        let bytes = written.write();
        assert_eq!(Manifest::read(&written.name, &bytes), Ok(written.clone()));
        assert_eq!(written.counts(), (4, 18));
        let text = String::from_utf8(bytes).unwrap();
        for (from, to, why) in [
            ("\"form\": 2", "\"form\": 3", "has form 3"),
            ("\"form\": 2", "\"form\": 1", "take another one"),
            ("03-30-00Z", "03-31-00Z", "that of backup"),
            (&"b".repeat(64), "b", "no SHA-256"),
            ("cloud/one", "cloud\\u001bone", "no line"),
            ("\"size\": 4096", "\"size\": 9663676417", "more than"),
            ("\"sealed\": true", "\"sealed\": false", "not encrypted"),
            ("keystone:1", "keystone\\n:1", "images are no lines"),
            ("2026-11-25T03:30", "2025-11-25T03:30", "taken at 2025"),
        ] {
            let altered = text.replace(from, to);
            assert_ne!(altered, text, "{from}");
            let error = Manifest::read(&written.name, altered.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{to}: {error}");
        }
    }

    #[test]
    fn a_backup_has_the_time_of_what_is_in_it() {
        let origin = Origin {
            taken_at: "2026-11-27T09:10:11.5Z".parse().unwrap(),
            ..manifest().origin
        };
        let spooled = Spooled {
            size: 1,
            digest: "b".repeat(64),
            stored_size: 2,
            stored_digest: "c".repeat(64),
        };
        let made = Manifest::of(origin.clone(), manifest().databases, &spooled);
        assert_eq!(made.name.as_str(), "2026-11-27T09-10-11Z");
        assert_eq!(made.origin, origin);
        let second = made.name.and_next().nth(1).unwrap();
        let second = made.named(second);
        assert_eq!(
            Manifest::read(&second.name, &second.write()),
            Ok(second.clone())
        );
    }

    #[test]
    fn what_fits_no_cloud_is_refused_with_a_way_out() {
        let here = Here {
            cloud: "cloud/one".into(),
            cluster: "u-1".into(),
            from: None,
            release: Some("2026.1".into()),
            services: vec!["glance".into(), "keystone".into()],
            images: images("2"),
            server: "10.11.4-MariaDB".into(),
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

    #[test]
    fn what_the_cloud_could_not_read_is_refused_before_anything_is_emptied() {
        let here = |server: &str, images: BTreeMap<String, String>| Here {
            cloud: "cloud/one".into(),
            cluster: "u-1".into(),
            from: None,
            release: None,
            services: vec!["glance".into(), "keystone".into()],
            images,
            server: server.into(),
        };
        let mut backup = manifest();
        backup.origin.release = None;
        let code = |backup: &Manifest, here: &Here| backup.fits(here).err().map(|why| why.code);
        for server in ["10.11.0-MariaDB", "10.12.1-MariaDB", "11.4.2-MariaDB-log"] {
            assert_eq!(code(&backup, &here(server, images("1"))), None, "{server}");
        }
        for server in ["10.6.22-MariaDB", "9.12.1", ""] {
            let told = code(&backup, &here(server, images("1")));
            assert_eq!(told.as_deref(), Some("BackupOfNewerServer"), "{server}");
        }
        let server = "10.11.19-MariaDB";
        let told = code(&backup, &here(server, images("2")));
        assert_eq!(told.as_deref(), Some("BackupOfOtherImages"));
        // One that does not tell its images.
        backup.origin.images.clear();
        assert_eq!(code(&backup, &here(server, images("2"))), None);
    }
}
