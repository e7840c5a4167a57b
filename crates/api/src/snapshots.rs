//! Snapshots of etcd that are kept outside of the cluster: when they are taken, where they lie, and what lies there.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Duration,
    cluster::{SecretKeyRef, SecretRef},
};

/// What is done with etcd beside building it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Etcd {
    /// Snapshots that are kept outside of the cluster. Default: none are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<Snapshots>,
}

/// Snapshots of etcd that are kept outside of the cluster.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("has(self.schedule) || !has(self.timeZone)", "timeZone is that of schedule: write a schedule too, or take timeZone out"))]
#[serde(rename_all = "camelCase")]
pub struct Snapshots {
    /// When one is taken by itself: minute, hour, day of the month, month and day of the week, as cron has them. `0 */6 * * *` is every six
    /// hours. It keeps to no maintenance window: nothing restarts. Default: only when somebody asks (`windlass snapshot`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 9, max = 128))]
    #[x_kube(validation = (
        "self.matches('^ *[^ ]+( +[^ ]+){4} *$')",
        "a schedule has five fields: minute, hour, day of the month, month, day of the week; write for example 0 */6 * * *"
    ))]
    pub schedule: Option<String>,
    /// The time zone of the schedule, by its name in the IANA database, for example Europe/Berlin. Default: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
    /// What is kept: what is beyond either bound is removed, and the newest one never is. Default: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
    /// Where they lie.
    pub store: Store,
    /// What they are encrypted with, in the format of age. Default: nothing; they hold every Secret of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
}

/// How many snapshots are kept, and how long.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Keep {
    /// How many, the newest first, 1 to 1000. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub count: Option<u16>,
    /// How old, for example 90d. Default: of any age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Duration>,
}

/// Where snapshots lie: exactly one of the fields. Those of a cluster are in `NAMESPACE/CLUSTER` below it, and backups of an OpenStack in
/// `openstack/NAMESPACE/NAME`.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = (
    "[has(self.directory), has(self.persistentVolumeClaim), has(self.s3)].filter(set, set).size() == 1",
    "set exactly one of directory, persistentVolumeClaim and s3"
))]
#[serde(rename_all = "camelCase")]
pub struct Store {
    /// A directory of the machine that runs Windlass, by its absolute path; it must be there. Not in-cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub directory: Option<String>,
    /// A volume that the pods of runners mount. In-cluster alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<VolumeClaim>,
    /// A bucket of an S3-compatible server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3>,
}

/// A volume, by its claim in the namespace of the Cluster.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeClaim {
    /// The name of the PersistentVolumeClaim; it must be there, and outlives the Cluster.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = ("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')", "a claim has lower-case letters, digits, dots and hyphens"))]
    pub claim_name: String,
}

/// A bucket of an S3-compatible server.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct S3 {
    /// The URL of the server, for example `https://s3.eu-central-1.amazonaws.com`. http is for loopback alone.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = ("self.startsWith('https://') || self.startsWith('http://')", "write a URL, for example https://s3.example.org"))]
    pub endpoint: String,
    /// The bucket; it must be there.
    #[schemars(length(min = 3, max = 63))]
    #[x_kube(validation = ("self.matches('^[a-z0-9][a-z0-9.-]*[a-z0-9]$')", "a bucket has lower-case letters, digits, dots and hyphens"))]
    pub bucket: String,
    /// What stands before the names of objects, as a path without slashes at its ends. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = (
        "self.matches('^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$')",
        "a prefix is a path of letters, digits, dots, hyphens and underscores without slashes at its ends, for example backups/etcd"
    ))]
    pub prefix: Option<String>,
    /// The region. Default: us-east-1, which servers take that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = ("self.matches('^[A-Za-z0-9-]+$')", "a region has letters, digits and hyphens, for example eu-central-1"))]
    pub region: Option<String>,
    /// How the bucket is named in requests. Default: Path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_style: Option<AddressStyle>,
    /// The Secret with the access key: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, where it is of a session, `AWS_SESSION_TOKEN`.
    pub credentials_secret_ref: SecretRef,
    /// The Secret with certificates of authorities whose word for the server is taken beside those that everybody trusts, in PEM form.
    /// Default key: ca.crt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretKeyRef>,
}

/// How a bucket is named in requests.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum AddressStyle {
    /// As the first part of the path: https://HOST/BUCKET.
    #[default]
    Path,
    /// As the first label of the host: `https://BUCKET.HOST`.
    VirtualHost,
}

/// What snapshots are encrypted with: `recipients` or `passphraseSecretRef`.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(
    validation = (
        "(has(self.recipients) && size(self.recipients) > 0) != has(self.passphraseSecretRef)",
        "set exactly one of recipients and passphraseSecretRef"
    ),
    validation = (
        "!(has(self.passphraseSecretRef) && has(self.identitySecretRef))",
        "a passphrase opens what it encrypted: take identitySecretRef out"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct Encryption {
    /// Public keys of age (`age1...`): who has a private key of one of them can decrypt, and nobody needs one to take snapshots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 128)))]
    pub recipients: Vec<String>,
    /// The Secret with a passphrase instead. Default key: passphrase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passphrase_secret_ref: Option<SecretKeyRef>,
    /// The Secret with a private key, as age-keygen writes it. It is read to bring a snapshot back and to drill, and only then need it be
    /// there. Default key: identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_secret_ref: Option<SecretKeyRef>,
}

/// What lies in the store, as the last run that looked saw it.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotsStatus {
    /// Where that is.
    #[schemars(length(max = 2048))]
    pub place: String,
    /// When it was looked at.
    pub seen_at: Time,
    /// How many there are.
    pub count: u32,
    /// The newest hundred, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub kept: Vec<SnapshotStatus>,
    /// The last drill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<DrillStatus>,
}

/// A snapshot that lies in the store.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotStatus {
    /// Its name.
    #[schemars(length(max = 64))]
    pub name: String,
    /// How it stands.
    pub state: SnapshotState,
    /// When it was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<Time>,
    /// Its size, in bytes, before it was encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// The revision of etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// How many keys etcd has at that revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<i64>,
    /// The version of etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub etcd_version: Option<String>,
    /// Its SHA-256 digest, before it was encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub digest: Option<String>,
}

/// How a snapshot in the store stands.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum SnapshotState {
    /// etcd's own program checked it, and it was read back from the store as it was written.
    Verified,
    /// It has no manifest: it was not written to its end.
    Unfinished,
    /// Its manifest cannot be read, or its size is another one.
    Altered,
    /// It is of another cluster of the same name.
    OtherCluster,
}

/// A drill: a snapshot started in a throw-away etcd.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrillStatus {
    /// The snapshot.
    #[schemars(length(max = 64))]
    pub name: String,
    /// When it was drilled.
    pub at: Time,
    /// What came of it.
    pub result: DrillResult,
    /// The same for people.
    #[schemars(length(max = 2048))]
    pub message: String,
}

/// What came of a drill.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum DrillResult {
    /// etcd serves it, with as many keys as the manifest says.
    Passed,
    /// It does not.
    Failed,
}
