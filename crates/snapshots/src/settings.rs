//! What people write about where snapshots lie, what is kept and what they are encrypted with: whether it can be so. Pure.
//!
//! Each function is told the field that the settings stand in, for what it says.

use std::{net::IpAddr, path::Path};

use api::{
    cluster::SecretKeyRef,
    snapshots::{AddressStyle, Encryption, Keep, S3, Store, VolumeClaim},
};
use controller::Problem;
use jiff::SignedDuration;

use crate::{retention, seal, store::Settings};

/// The key of a Secret with a passphrase, where none is named.
pub const PASSPHRASE: &str = "passphrase";
/// That of one with private keys.
pub const IDENTITY: &str = "identity";
/// That of one with certificates of authorities.
pub const CA: &str = "ca.crt";

/// The keys of a Secret with an access key, as buckets that are claimed have them.
pub mod access {
    /// Its id.
    pub const ID: &str = "AWS_ACCESS_KEY_ID";
    /// The key itself.
    pub const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
    /// The token of one that is given for a while.
    pub const TOKEN: &str = "AWS_SESSION_TOKEN";
}

/// The region that servers take that have none.
const REGION: &str = "us-east-1";

/// The key that a reference names, or the one of its kind.
pub fn key_of<'a>(reference: &'a SecretKeyRef, default: &'a str) -> &'a str {
    reference.key.as_deref().unwrap_or(default)
}

/// A bucket, and the place in it below which snapshots lie.
pub fn of_bucket(s3: &S3, below: &str) -> Settings {
    let prefix = s3.prefix.as_ref();
    let prefix = prefix.map_or_else(String::new, |prefix| format!("{prefix}/"));
    Settings {
        endpoint: s3.endpoint.clone(),
        bucket: s3.bucket.clone(),
        region: s3.region.clone().unwrap_or_else(|| REGION.to_owned()),
        prefix: format!("{prefix}{below}/"),
        virtual_host: s3.address_style == Some(AddressStyle::VirtualHost),
    }
}

/// What goes, of what lies in the store.
pub fn kept(keep: Option<&Keep>) -> retention::Keep {
    let keep = keep.cloned().unwrap_or_default();
    let seconds = |age: api::Duration| i64::try_from(age.seconds()).unwrap_or(i64::MAX);
    retention::Keep {
        count: keep.count.map(usize::from),
        age: keep
            .max_age
            .map(|age| SignedDuration::from_secs(seconds(age))),
    }
}

/// Where snapshots lie: the one field of a store that is set.
#[derive(Clone, Copy, Debug)]
pub enum Location<'a> {
    /// A directory of the machine that runs Windlass.
    Directory(&'a str),
    /// A volume that pods of runners mount.
    Claim(&'a VolumeClaim),
    /// A bucket.
    Bucket(&'a S3),
}

/// The place that a store names. None: it names none, or several.
pub const fn location(store: &Store) -> Option<Location<'_>> {
    let Store {
        directory,
        persistent_volume_claim,
        s3,
    } = store;
    match (directory, persistent_volume_claim, s3) {
        (Some(directory), None, None) => Some(Location::Directory(directory.as_str())),
        (None, Some(claim), None) => Some(Location::Claim(claim)),
        (None, None, Some(s3)) => Some(Location::Bucket(s3)),
        _ => None,
    }
}

/// What is wrong with where they lie; `in_pods` says whether runners are pods.
pub fn of_store(field: &str, store: &Store, in_pods: bool) -> Option<Problem> {
    match location(store) {
        Some(Location::Directory(directory)) => of_directory(field, directory, in_pods),
        Some(Location::Claim(claim)) => (!in_pods).then(|| of_claim(field, claim)),
        Some(Location::Bucket(s3)) => of_endpoint(field, s3),
        None => Some(Problem::new(
            format!("{field}.store"),
            "",
            "exactly one of directory, persistentVolumeClaim and s3 is set",
            "write where snapshots lie, for example directory: /srv/snapshots",
        )),
    }
}

fn of_directory(of: &str, directory: &str, in_pods: bool) -> Option<Problem> {
    let field = format!("{of}.store.directory");
    if in_pods {
        return Some(Problem::new(
            field,
            directory,
            "runners are pods here, whose directories go with them",
            "write store.persistentVolumeClaim or store.s3",
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

fn of_claim(of: &str, claim: &VolumeClaim) -> Problem {
    Problem::new(
        format!("{of}.store.persistentVolumeClaim.claimName"),
        &claim.claim_name,
        "runners are processes of this machine here, and a pod alone mounts a claim",
        "write store.directory or store.s3",
    )
}

fn of_endpoint(of: &str, s3: &S3) -> Option<Problem> {
    let field = format!("{of}.store.s3.endpoint");
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
        // Who hears what goes over the network has every Secret that is in them, where they are not encrypted.
        Some("http") if is_loopback(host) => None,
        Some("http") => problem("http is for servers of this machine alone"),
        _ => problem("it begins with https://"),
    }
}

fn is_loopback(host: &str) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || literal.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// What is wrong with what they are encrypted with.
pub fn of_encryption(of: &str, encryption: &Encryption) -> Vec<Problem> {
    let field = format!("{of}.encryption");
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
