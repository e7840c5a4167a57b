//! `Cluster`: one Kubernetes cluster that kubespray builds and keeps.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    Duration, HostName, KubernetesVersion, KubesprayVersion, Threshold, VersionPart,
    hook::Hook,
    maintenance::Maintenance,
    node::Health,
    radar::Radar,
    remedy::Remedy,
    run::OnBreach,
    snapshots::{Etcd, SnapshotsStatus},
    upgrade::UpgradePolicy,
};

pub mod request;

/// The operation that builds a cluster, in Runs and in what the status tells of them.
pub const CREATE: &str = "Create";
/// The operation that runs the playbooks once more over a built cluster, in the same places.
pub const CONVERGE: &str = "Converge";
/// The reason of what waits for a person who asks for it, in `status.pending`.
pub const NOT_REQUESTED: &str = "NotRequested";

/// What a cluster should be. One cluster a namespace, so that its Events stay together; its hosts are the ClusterNodes
/// of the same namespace.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "kubespray.k8s.io",
    version = "v1",
    kind = "Cluster",
    namespaced,
    status = "ClusterStatus",
    shortname = "kc",
    category = "windlass",
    doc = "A Kubernetes cluster that kubespray builds and keeps.",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(
        name = "Health",
        type_ = "string",
        json_path = ".status.cluster.health"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Progress",
        type_ = "integer",
        json_path = ".status.lastOperation.progress"
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.kubernetesVersion"
    ),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodes.summary"),
    printcolumn(
        name = "Kubespray",
        type_ = "string",
        json_path = ".status.kubesprayVersion",
        priority = 1
    ),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.available[*].kubernetesVersion",
        priority = 1
    ),
    printcolumn(
        name = "Step",
        type_ = "string",
        json_path = ".status.lastOperation.step",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// The operator image that in-cluster runs use. Default: the image of the running operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub image: Option<String>,

    /// The Kubernetes version to install, for example 1.34.3. Default: the kubespray release's own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<KubernetesVersion>,

    /// Which kubespray builds the cluster, and where it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubespray: Option<Kubespray>,

    /// How runs are executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<Runner>,

    /// How hosts are reached. A ClusterNode's inventory variables override it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<Ssh>,

    /// Settings of the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,

    /// How each operation behaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<Operations>,

    /// When operations may start that start by themselves. Default: at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Maintenance>,

    /// What is done with etcd beside building it: snapshots that are kept outside of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<Etcd>,

    /// Looks at the hosts between runs, and says what is not as a run left it. Default: nobody looks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub radar: Option<Radar>,

    /// What runs before and after steps of plans, in this order where several stand at one step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::hooks")]
    pub hooks: Option<Vec<Hook>>,

    /// What may be done on hosts by itself when a step has failed there, before the step is tried again. Default:
    /// `[WaitForPackageLock]`, which changes nothing; `[]` allows nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::remedies")]
    pub remedies: Option<Vec<Remedy>>,

    /// What deleting this object does to the hosts. Default: Retain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,

    /// How many Runs are kept after their end, and how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_history: Option<RunHistory>,
}

/// How many Runs are kept after their end, and how long; their logs go with them. Never removed are a Run that has not ended,
/// the newest one, the last that failed, the one that built the cluster, and those that the Cluster's status names.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunHistory {
    /// How many, the newest first, 1 to 100. Default: 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub limit: Option<u16>,
    /// How long after their end. Default: 90d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Duration>,
}

/// Which kubespray builds the cluster.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kubespray {
    /// The kubespray release, for example 2.30.0. Default: that which built the cluster, and of a new one the newest that
    /// Windlass knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<KubesprayVersion>,
    /// Where the playbooks come from. Default: the tag of `version` in the upstream git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The mirror that `extraVars` tell hosts to ask, where there is no network beyond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
}

/// A mirror of files and images.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mirror {
    /// Whether it is looked at. Default: Never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<MirrorCheck>,
}

/// When a mirror is looked at.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum MirrorCheck {
    /// Not at all: a host says what is missing.
    #[default]
    Never,
    /// Before a run that has hosts fetch from it touches one. If anything is missing, the run fails, and names all that is.
    BeforeRuns,
}

/// Where playbooks come from: exactly one of the fields.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(
    validation = ("[has(self.git), has(self.path), has(self.image)].filter(x, x).size() == 1", "set exactly one of git, path and image")
)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// A git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// A directory on the machine that runs Windlass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub path: Option<String>,
    /// An OCI image that holds the playbooks, for example quay.io/kubespray/kubespray:v2.30.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
}

/// A git repository and the commit to take from it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GitSource {
    /// The repository's address. Default: the upstream kubespray repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub url: Option<String>,
    /// A tag, branch or commit. Default: the tag of the kubespray version. What it resolved to stands in the Run.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub reference: Option<String>,
}

/// How runs are executed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Runner {
    /// The runner image, in-cluster only. Default: the runner image that the operator was started with. Others must be allowed
    /// there (`--allow-image`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub image: Option<String>,
    /// Secrets of the cluster's namespace with which the images of runner pods are pulled, in-cluster only. Default: those
    /// that the operator was installed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::references")]
    pub image_pull_secrets: Option<Vec<SecretRef>>,
    /// How many hosts Ansible works on at once. Default: by the number of hosts, at most 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 500))]
    pub max_forks: Option<u16>,
    /// Whether runner pods use the node's network, in-cluster only. `hostNetwok`, as first proposed, is read too.
    #[serde(default, alias = "hostNetwok", skip_serializing_if = "Option::is_none")]
    pub host_network: Option<bool>,
    /// Affinity, tolerations and node selector of runner pods, in-cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::variables")]
    pub placement: Option<Map<String, Value>>,
    /// Resource requests and limits of runner pods, in-cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::variables")]
    pub resources: Option<Map<String, Value>>,
    /// A volume for the runner's files, in-cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::variables")]
    pub volume_claim_template: Option<Map<String, Value>>,
    /// Overrides of the generated ansible.cfg: section, then key, then value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::variables")]
    pub ansible: Option<BTreeMap<String, BTreeMap<String, String>>>,
}

/// How hosts are reached.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(
    validation = ("!(has(self.knownHosts) && has(self.knownHostsSecretRef))", "set knownHosts or knownHostsSecretRef, not both: remove one of them")
)]
#[serde(rename_all = "camelCase")]
pub struct Ssh {
    /// The user to log in as. Default: root. Another user needs sudo without a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub user: Option<String>,
    /// The port. Default: 22.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// The Secret that holds the private key, without a passphrase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_key_secret_ref: Option<SecretKeyRef>,
    /// The hosts' public keys, as lines of a known_hosts file. Without them the key that a host shows first is recorded
    /// and every later one must be the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262_144))]
    pub known_hosts: Option<String>,
    /// The Secret that holds the hosts' public keys instead, as a known_hosts file. It is read anew whenever hosts are asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_hosts_secret_ref: Option<SecretKeyRef>,
    /// The host to reach the others through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bastion: Option<Bastion>,
    /// How long a host may take to answer before it counts as unreachable. Default: 5s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_timeout: Option<Duration>,
}

/// One key of a Secret of the same namespace.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in its data. Default: ssh-privatekey for a private key, known_hosts for public keys of hosts; for variables
    /// all keys, each the name of a variable and its value a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// A Secret of the same namespace.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The host to reach the others through.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bastion {
    /// Its address.
    #[schemars(length(min = 1, max = 253))]
    pub address: String,
    /// The user to log in as. Default: the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub user: Option<String>,
    /// The port. Default: 22.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
}

/// Settings of the nodes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Nodes {
    /// Settings of every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<AllNodes>,
}

/// Settings of every node; a ClusterNode may override them for itself.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AllNodes {
    /// When certificates are renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Certificates>,
    /// Up to which part of a version the cluster upgrades itself, to what the playbooks of its kubespray release install and, where
    /// `kubespray.source` leaves the release open, to the releases after it, one minor after the other; no playbooks lead to another
    /// major version yet. `kubernetesVersion` and `kubespray.version` are then the least that it has. How such an upgrade goes is said by
    /// `operations.upgrade`, when by `maintenance`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<UpgradePolicy>,
    /// What is deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy: Option<Deploy>,
}

/// When certificates are renewed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificates {
    /// How long before their end those of the control plane are renewed by themselves; less than the year that they live. Default:
    /// they are not, and 30 days before the cluster says that they end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew: Option<Duration>,
}

/// What is deployed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deploy {
    /// Variables of kubespray for the whole cluster, typed as written. `extra_vars`, as first proposed, is read too. A value,
    /// however deep, may be `{secretKeyRef: {name: SECRET, key: KEY}}`: the text that a Secret of the namespace holds.
    #[serde(default, alias = "extra_vars", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::variables")]
    pub extra_vars: Option<Map<String, Value>>,
    /// The Secret with further variables for the whole cluster. With a `key`, that holds a YAML document: a map of variables;
    /// without one, each key is a variable and its value a text. `extraVars` wins over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_vars_secret_ref: Option<SecretKeyRef>,
}

/// How each operation behaves.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Operations {
    /// Creation of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation: Option<Creation>,
    /// Taking over a cluster that somebody else has built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<Conduct>,
    /// Making new hosts part of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Conduct>,
    /// Removing hosts from the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remove: Option<Remove>,
    /// Putting another host first, when the first one is replaced. The new host joins in the settings of `scale`, and the old one leaves in
    /// those of `remove`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace: Option<Replace>,
    /// Renewing the certificates of the control plane. When it begins by itself is said by `nodes.all.certificates`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew: Option<Conduct>,
    /// Upgrading the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
    /// Bringing back a cluster whose etcd lost its quorum, or rolling one back to a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recover: Option<Recover>,
    /// Bringing one component (container engine, etcd, network plugin) to what the spec says, in the settings of an upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<Upgrade>,
    /// Running the playbooks once more over the built cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub converge: Option<Converge>,
    /// Removing Kubernetes from the hosts of a cluster that is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<Conduct>,
}

/// How an operation behaves.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conduct {
    /// How many hosts may be missing, and what happens when it is more. Default: as of creation; of `renew`, none, and the run fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<Thresholds>,
    /// How often a step is tried again before the operation fails, 0 to 10. Default: as of creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10))]
    pub max_retries: Option<u8>,
    /// Whether a person must approve the plan before it starts. Default: Automatic; of `adopt`, as of creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

/// How putting another host first behaves. A host that it needs is never left out.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replace {
    /// How often a step is tried again before the operation fails, 0 to 10. Default: as of `remove`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10))]
    pub max_retries: Option<u8>,
    /// Whether a person must approve the plan before it starts. Default: as of `remove`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

/// How running the playbooks once more over the built cluster behaves, and when it begins by itself.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("has(self.schedule) || !has(self.timeZone)", "timeZone is that of schedule: write a schedule too, or take timeZone out"))]
#[serde(rename_all = "camelCase")]
pub struct Converge {
    /// When: minute, hour, day of the month, month and day of the week, as cron has them. `0 3 * * 0` is each Sunday at three in the
    /// morning. Outside of a maintenance window it waits for the next one. Default: only when somebody asks (`windlass converge`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 9, max = 128))]
    #[x_kube(validation = (
        "self.matches('^ *[^ ]+( +[^ ]+){4} *$')",
        "a schedule has five fields: minute, hour, day of the month, month, day of the week; write for example 0 3 * * 0"
    ))]
    pub schedule: Option<String>,
    /// The time zone of the schedule, by its name in the IANA database, for example Europe/Berlin. Default: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
    /// How many hosts may be missing, and what happens when it is more. Default: as of creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<Thresholds>,
    /// How often a step is tried again before the operation fails, 0 to 10. Default: as of creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10))]
    pub max_retries: Option<u8>,
    /// Whether a person must approve the plan before it starts. Default: Automatic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

/// How bringing back a cluster behaves whose etcd lost its quorum.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recover {
    /// How often a step is tried again before the operation fails, 0 to 10. Default: as of creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10))]
    pub max_retries: Option<u8>,
    /// Whether a person must approve the plan before it starts, beside the confirmation of the request. Default: Automatic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

/// How upgrading the cluster behaves. Control planes and hosts of etcd go one by one, then the workers in batches.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// How many workers are out of service at a time: a number, or a share of all, rounded down; at least one. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<Threshold>,
    /// How many workers go first, after which a person must approve the others, 0 to 100. Default: 0, nobody is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub canary: Option<u8>,
    /// How long the pods of one node may take to go elsewhere. Default: as of the playbooks, 6m of kubespray's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<Duration>,
    /// Pods that must be Ready before the first batch and after each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<PodGate>,
    /// How long the cluster may take to be well again after a batch: its nodes Ready, etcd and API server healthy, no system pod in
    /// a new crash loop, the pods of `gate` Ready. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_timeout: Option<Duration>,
    /// How long it must be well without a break before the next batch. Default: 0s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<Duration>,
    /// How often a step is tried again before the operation fails, 0 to 10. Default: as of creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10))]
    pub max_retries: Option<u8>,
    /// Whether a person must approve the plan before it starts. Default: Automatic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

/// Pods of the cluster that must be Ready. That there are none is as bad as that one is not.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodGate {
    /// Their namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Their labels: a pod is meant that has all of these, for example `{app: shop}`.
    #[schemars(schema_with = "crate::schema::labels")]
    pub selector: BTreeMap<String, String>,
}

/// How removing hosts from the cluster behaves.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Remove {
    /// How long the pods of all hosts that leave may take to go elsewhere. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<Duration>,
    /// How often a step is tried again before the operation fails, 0 to 10. Default: as of creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10))]
    pub max_retries: Option<u8>,
    /// Whether a person must approve the plan before it starts. Default: Automatic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

/// How creation behaves.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Creation {
    /// What must be there before it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_conditions: Option<StartConditions>,
    /// How many hosts may be missing, and what happens when it is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<Thresholds>,
    /// How often a step is tried again before the operation fails, 0 to 10. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10))]
    pub max_retries: Option<u8>,
    /// Whether a person must approve the plan before it starts. Default: Automatic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// The Secret with variables for the playbooks that build the cluster and converge it, in the form of
    /// `nodes.all.deploy.extraVarsSecretRef`. It wins over that and over `extraVars`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_vars_secret_ref: Option<SecretKeyRef>,
    /// The Secret with authorities of your own that the cluster is founded with: `ca.crt` and `ca.key` for Kubernetes, and if wished
    /// `front-proxy-ca.crt` and `front-proxy-ca.key`, `etcd-ca.crt` and `etcd-ca.key`, each in PEM form. What is not named the cluster
    /// makes for itself. Once the cluster is built, the Secret is read no more and the field says nothing. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorities_secret_ref: Option<SecretRef>,
}

/// Whether a person must approve a plan before it starts.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Approval {
    /// The plan starts by itself.
    #[default]
    Automatic,
    /// The plan waits for `windlass approve`.
    Manual,
}

/// What must be there before creation starts.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StartConditions {
    /// How many etcd members. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<OddMinimum>,
    /// How many control-plane hosts. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<Minimum>,
    /// How many hosts in all. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Minimum>,
    /// How long no ClusterNode may have been added. Default: 0s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_node_creation: Option<Duration>,
}

/// A least number of hosts.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Minimum {
    /// The number.
    #[schemars(range(max = 5000))]
    pub minimum: u16,
}

/// A least number of etcd members.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OddMinimum {
    /// The number: odd, because an even number of members survives no more failures than the odd number below it.
    #[schemars(range(min = 1, max = 9))]
    #[x_kube(validation = ("self % 2 == 1", "an etcd cluster has an odd number of members: write 1, 3, 5, 7 or 9"))]
    pub minimum: u16,
}

/// How many hosts may be missing.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Thresholds {
    /// How many hosts may not answer. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<Threshold>,
    /// What happens when it is more. Default: Fail. Up to the bound, hosts that do not answer are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_breach: Option<OnBreach>,
}

/// What deleting a Cluster does to its hosts.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum DeletionPolicy {
    /// The cluster is forgotten and no host is touched.
    #[default]
    Retain,
    /// kubespray's reset runs on every host: Kubernetes and its data are removed. The hosts' firewall and network
    /// services are left alone.
    Reset,
}

/// What was observed of a cluster.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// The generation that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What the operator is doing with the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ClusterState>,
    /// Its health.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterHealth>,
    /// The operation that ran last or runs now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// Ready, Reconciling, Stalled and what they are made of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The order of hosts that the cluster was built with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<InventoryStatus>,
    /// How many nodes there are and how many are healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounts>,
    /// The installed Kubernetes version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<KubernetesVersion>,
    /// The kubespray release that built it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubespray_version: Option<KubesprayVersion>,
    /// The name of the Secret that holds the kubeconfig, under the key `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub kubeconfig_secret: Option<String>,
    /// What the spec asks for and does not run now, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub pending: Vec<Pending>,
    /// The last request to let start what waits for a maintenance window, by the annotation `kubespray.k8s.io/maintain-now`, and
    /// what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintain: Option<MaintainRequest>,
    /// The last request to converge, by the annotation `kubespray.k8s.io/converge`, and what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub converge: Option<ConvergeRequest>,
    /// The schedule of converging, and since when it is known: times before that begin nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub converge_schedule: Option<ConvergeSchedule>,
    /// What the last converge that succeeded changed on hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub converged: Option<Converged>,
    /// The last request to renew certificates, by the annotation `kubespray.k8s.io/renew-certificates`, and what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew: Option<ConvergeRequest>,
    /// The last request to recover, by the annotation `kubespray.k8s.io/recover`, and what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recover: Option<ConvergeRequest>,
    /// The last request to upgrade a component, by the annotation `kubespray.k8s.io/upgrade-component`, and what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<ConvergeRequest>,
    /// The last request for a snapshot of etcd, by the annotation `kubespray.k8s.io/snapshot`, and what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<ConvergeRequest>,
    /// The last request to drill a snapshot, by the annotation `kubespray.k8s.io/drill-snapshot`, and what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_drill: Option<ConvergeRequest>,
    /// The snapshots of etcd that lie in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<SnapshotsStatus>,
    /// The last request of the toolbox, by the annotation `kubespray.k8s.io/toolbox`, and what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toolbox: Option<ConvergeRequest>,
    /// The certificate that ends first, of those that the control plane and etcd work with and that can be seen from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_certificate: Option<FirstCertificate>,
    /// Newer versions that can be had and that the cluster is not on its way to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub available: Vec<Available>,
}

/// A newer version that can be had.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Available {
    /// Which part of a version changes: Patch, Minor or Major.
    pub change: VersionPart,
    /// The kubespray release whose playbooks bring it.
    pub kubespray_version: KubesprayVersion,
    /// The Kubernetes version that they bring: the newest, or that which the release installs unless told otherwise.
    pub kubernetes_version: KubernetesVersion,
    /// What a person can do to have it.
    #[schemars(length(max = 2048))]
    pub message: String,
}

/// What the spec asks for, and why it does not run now.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// What would be done: Scale, Remove and so on.
    #[schemars(length(max = 64))]
    pub operation: String,
    /// For what it waits, in one word: BehindRun, WaitingForWindow, WaitingForApproval, WaitingForPlaybooks, Paused, RunFailed,
    /// RunCancelled, NotRequested, InvalidSpec or Refused.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// The same for people, with what they can do about it.
    #[schemars(length(max = 2048))]
    pub message: String,
    /// The hosts that it is about, the first hundred; none: all of the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub hosts: Vec<HostName>,
}

/// A request to let start what waits for a maintenance window that was answered. Each value of the annotation is answered once.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MaintainRequest {
    /// The first 128 characters of the annotation's value.
    #[schemars(length(max = 512))]
    pub request: String,
    /// The Run that started by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub run: Option<String>,
    /// Why nothing started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub refused: Option<String>,
}

/// The certificate of a cluster that ends first.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FirstCertificate {
    /// What shows it: kube-apiserver, etcd, or kubeconfig, which is the administrator's own.
    #[schemars(length(max = 64))]
    pub name: String,
    /// The host of it, where it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node: Option<String>,
    /// When it ends.
    pub not_after: Time,
}

/// A request to converge, to renew certificates, to recover, to upgrade a component, for a snapshot, to drill one or of the toolbox that was answered. Each value of the annotation is answered once.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConvergeRequest {
    /// The first 128 characters of the annotation's value, of a request to recover or of the toolbox the first 512.
    #[schemars(length(max = 512))]
    pub request: String,
    /// The Run that carries it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub run: Option<String>,
    /// Why it is not carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub refused: Option<String>,
}

/// A schedule of converging, as the spec says it.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConvergeSchedule {
    /// `spec.operations.converge.schedule`.
    #[schemars(length(max = 128))]
    pub schedule: String,
    /// `spec.operations.converge.timeZone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub time_zone: Option<String>,
    /// Since when the operator knows it.
    pub since: Time,
}

/// What a converge changed on hosts.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Converged {
    /// Its Run.
    #[schemars(length(max = 253))]
    pub run: String,
    /// How many tasks changed something, each host counted.
    pub changed: u32,
    /// How many of them did on the same host in the converge before it too, where that was given the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<u32>,
    /// Which the others are, by step and host, the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub message: Option<String>,
}

/// What the operator is doing with a cluster.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum ClusterState {
    /// For its start conditions, an approval, or a mended spec.
    #[default]
    Waiting,
    /// Being built.
    Creating,
    /// Built by somebody else, and being taken over as it stands.
    Adopting,
    /// Built, nothing to do.
    Created,
    /// Being brought back to its spec.
    Converging,
    /// New hosts are being made part of it.
    Scaling,
    /// Hosts are being removed from it.
    Removing,
    /// Another host takes the first place, which one is to leave.
    Replacing,
    /// Its certificates are being renewed.
    Renewing,
    /// It is being brought back after etcd lost its quorum.
    Recovering,
    /// Being brought to another version, node by node.
    Upgrading,
    /// Nodes or certificates are being seen to, as a person asked by the toolbox.
    Tending,
    /// Being deleted.
    Deleting,
    /// Its last operation failed and waits for a person.
    Failed,
}

/// The health of a cluster, from real probes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterHealth {
    /// The worst of what was probed.
    pub health: Health,
    /// When it became what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_changed: Option<Time>,
    /// When it was probed last, moved at most once an hour while nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_checked: Option<Time>,
    /// What it was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_health: Option<Health>,
}

/// The operation that ran last or runs now.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastOperation {
    /// What it does: Create, Adopt, Upgrade, Component, Scale, Remove, Replace, Renew, Recover, Converge, Snapshot, Drill, Toolbox, Reset or ResetHost.
    #[serde(rename = "type")]
    #[schemars(length(max = 64))]
    pub operation: String,
    /// How it stands.
    pub state: crate::run::RunPhase,
    /// Percent done, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub progress: Option<u8>,
    /// The step it is at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub step: Option<String>,
    /// What is going on, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub description: Option<String>,
    /// The Run's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub run: Option<String>,
}

/// The order of hosts that the cluster was built with. It is state: the first control-plane and etcd hosts are the
/// authorities for certificates, so names are only ever appended.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InventoryStatus {
    /// Hosts by group, first built first: `kube_control_plane`, `etcd`, `kube_node`.
    #[serde(default)]
    #[schemars(schema_with = "order_schema")]
    pub order: BTreeMap<String, Vec<HostName>>,
    /// The name of each etcd member, pinned on the first day so that a changed order can rename nobody.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "names_schema")]
    pub etcd_member_names: BTreeMap<String, String>,
    /// The run whose plan said this order. One that was stored since knows better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub run: Option<String>,
}

/// How many nodes there are.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// All declared.
    pub total: u32,
    /// Those whose health is HEALTH_OK.
    pub healthy: u32,
    /// Both as people read them: `3/3`.
    #[schemars(length(max = 32))]
    pub summary: String,
}

fn order_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "type": "array",
            "maxItems": 5000,
            "items": {"type": "string", "maxLength": 253},
        },
    })
}

fn names_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {"type": "string", "maxLength": 253},
    })
}
