//! Where backups lie, and what they are sealed with and opened with.

use std::{fs::File, path::Path};

use age::secrecy::SecretString as AgeSecret;
use api::{
    cluster::SecretKeyRef,
    run::{Failure, FailureClass},
};
use runs::calls::{config, failure};
use snapshots::{
    Name, Store,
    seal::{self, Key, OpenError, Seal},
    settings::{self, CA, IDENTITY, Location, PASSPHRASE, access, key_of},
    store::{self, Access, Bucket, Caller, Directory, Loopback},
};

use crate::{backup::FIELD, engine::backups::Backups};

/// Whose words the advice of a store is in.
const CALLER: Caller = Caller {
    field: "spec.backup",
    command: "windlass openstack backups",
    noun: "backup",
    code: "Backup",
};

impl Backups<'_> {
    /// The store of the cloud.
    pub(super) async fn store(&self) -> Result<Store, Failure> {
        let worker = self.worker;
        let below = format!("openstack/{}/{}", worker.namespace(), worker.name());
        let s3 = match settings::location(&self.backup.store) {
            Some(Location::Bucket(s3)) => s3,
            Some(Location::Directory(directory)) => {
                let directory = Directory::open(Path::new(directory), &below).await;
                return directory
                    .map(Store::Directory)
                    .map_err(|error| of_store(&error));
            }
            // Refused before: this runs in the operator, which mounts no claims.
            Some(Location::Claim(_)) | None => {
                return Err(of_store(&store::Error::Unusable("none is named".into())));
            }
        };
        let credentials = &s3.credentials_secret_ref.name;
        let access = Access {
            id: worker.site().secret_value(credentials, access::ID).await?,
            secret: worker
                .site()
                .secret_value(credentials, access::SECRET)
                .await?
                .into(),
            token: worker
                .site()
                .optional_value(credentials, access::TOKEN)
                .await?
                .map(Into::into),
            authorities: match &s3.ca_secret_ref {
                Some(reference) => Some(self.referred(reference, CA).await?.into_bytes()),
                None => None,
            },
        };
        let settings = settings::of_bucket(s3, &below);
        Bucket::new(&settings, &access, Loopback::of_this_process())
            .map(|bucket| Store::Bucket(Box::new(bucket)))
            .map_err(|error| of_store(&error))
    }

    /// What a backup is sealed with: something always is.
    pub(super) async fn sealing(&self) -> Result<Seal, Failure> {
        let encryption = &self.backup.encryption;
        if let Some(reference) = &encryption.passphrase_secret_ref {
            return Ok(Seal::Passphrase(self.passphrase(reference).await?));
        }
        let keys = encryption.recipients.iter();
        let keys: Result<Vec<_>, _> = keys.map(|key| seal::recipient(key)).collect();
        let unfit = |why: &str| {
            let text = format!("{FIELD}.encryption.recipients: {why}");
            config("BackupKeyUnfit", text, "correct it, then ask again")
        };
        let keys = keys.map_err(unfit)?;
        if keys.is_empty() {
            return Err(unfit("there is none"));
        }
        Ok(Seal::Recipients(keys))
    }

    /// What opens one.
    pub(super) async fn opening(&self) -> Result<Key, Failure> {
        let encryption = &self.backup.encryption;
        if let Some(reference) = &encryption.identity_secret_ref {
            let text = self.referred(reference, IDENTITY).await?;
            return seal::identities(&text).map(Key::Identities).map_err(|why| {
                let (name, key) = (&reference.name, key_of(reference, IDENTITY));
                config(
                    "BackupKeyUnfit",
                    format!("Secret {name}, key {key}: {why}"),
                    "correct the Secret, then retry the run",
                )
            });
        }
        if let Some(reference) = &encryption.passphrase_secret_ref {
            return Ok(Key::Passphrase(self.passphrase(reference).await?));
        }
        Err(config(
            "BackupKeyUnfit",
            format!("{FIELD}.encryption names no key that opens a backup"),
            "name the Secret with the private key in spec.backup.encryption.identitySecretRef, then ask again",
        ))
    }

    async fn passphrase(&self, reference: &SecretKeyRef) -> Result<AgeSecret, Failure> {
        let text = self.referred(reference, PASSPHRASE).await?;
        // As people write one into a file.
        let text = text.trim_end_matches(['\n', '\r']);
        if text.is_empty() {
            let (name, key) = (&reference.name, key_of(reference, PASSPHRASE));
            return Err(config(
                "BackupKeyUnfit",
                format!("Secret {name}, key {key}: it holds no passphrase"),
                "correct the Secret, then retry the run",
            ));
        }
        Ok(AgeSecret::from(text.to_owned()))
    }

    async fn referred(&self, reference: &SecretKeyRef, default: &str) -> Result<String, Failure> {
        let key = key_of(reference, default);
        self.worker.site().secret_value(&reference.name, key).await
    }

    /// A file of this machine without a name: what it holds goes with this process.
    pub(super) fn unnamed(&self) -> Result<File, Failure> {
        let directory = &self.worker.work.directory;
        seal::unnamed(directory).map_err(|error| disk(&error))
    }
}

/// A store that did not do what was asked, in the words of backups.
pub(super) fn of_store(error: &store::Error) -> Failure {
    let (code, remedy) = error.advice(&CALLER);
    failure(error.class(), &code, controller::chain(error), &remedy)
}

pub(super) fn unopened(name: &Name, error: &OpenError) -> Failure {
    match error {
        OpenError::Key => config(
            "BackupKeyUnfit",
            format!("backup {name} is encrypted for other keys than the one that is given"),
            "put the private key of one of its recipients into the Secret of spec.backup.encryption.identitySecretRef, or the passphrase of its day into that of passphraseSecretRef; then retry the run",
        ),
        OpenError::Altered(why) => of_store(&store::Error::Altered(format!("{name}: {why}"))),
        OpenError::File(error) => disk(error),
    }
}

/// More than a backup may hold.
#[derive(Debug, thiserror::Error)]
#[error("the databases have more than {0} bytes as text, and no backup has more")]
pub(super) struct TooLarge(pub(super) u64);

pub(super) fn disk(error: &std::io::Error) -> Failure {
    let inner = error.get_ref();
    if let Some(large) = inner.and_then(|inner| inner.downcast_ref::<TooLarge>()) {
        return failure(
            FailureClass::Permanent,
            "BackupTooLarge",
            large.to_string(),
            "remove the rows that no service needs any more (glance-manage db purge), or save these databases by other means",
        );
    }
    failure(
        FailureClass::Permanent,
        "FileUnwritable",
        format!("a file of this machine cannot be read or written: {error}"),
        "see to the disk of the data directory, then retry the run",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_told_of_in_the_words_of_backups() {
        let why = || "x".to_owned();
        for error in [
            store::Error::Unusable(why()),
            store::Error::Refused(why()),
            store::Error::Full(why()),
            store::Error::Missing(why()),
            store::Error::Unreachable(why()),
            store::Error::Taken(why()),
            store::Error::Altered(why()),
            store::Error::Local(std::io::ErrorKind::Other.into()),
        ] {
            let failure = of_store(&error);
            let told = format!("{} {:?}", failure.code, failure.remedy);
            assert!(!told.to_lowercase().contains("etcd"), "{told}");
            assert!(!told.to_lowercase().contains("snapshot"), "{told}");
        }
        let altered = of_store(&store::Error::Altered(why()));
        assert_eq!(altered.code, "BackupAltered");
        let remedy =
            "find out who writes to the store; take another backup: windlass openstack backups";
        assert_eq!(altered.remedy.as_deref(), Some(remedy));
    }
}
