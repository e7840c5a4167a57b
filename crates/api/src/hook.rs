//! Hooks: what people run before or after steps of a plan, as a Cluster's spec writes them.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Duration, run::OnFailure};

/// A script or a playbook that runs on hosts before or after a step, or an image that runs as a pod of the cluster, as a step of its
/// own. Whoever may write it, here or in the ConfigMap that it names, may run programs as root on the hosts; a playbook runs programs
/// where Ansible runs, too.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[x_kube(
    validation = ("has(self.before) != has(self.after)", "set before or after, one of the two: the id of the step that the hook stands at"),
    validation = ("[has(self.script), has(self.playbook), has(self.image)].filter(x, x).size() == 1", "set script, playbook or image, one of the three: what the hook runs")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hook {
    /// Its name: lower-case words with `-`. Its step is `hook/NAME`, and where it stands at several steps `hook/NAME/1` and so on.
    #[schemars(
        length(min = 1, max = 40),
        regex(pattern = r"^[a-z0-9]+(-[a-z0-9]+)*$")
    )]
    pub name: String,
    /// The step before which it runs, by its id: `etcd/install`. One that is carried out in batches, as `workers/upgrade`, means
    /// each of them; `workers/upgrade/1` is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 96),
        regex(pattern = r"^[a-z0-9]+([-./][a-z0-9]+)*$")
    )]
    pub before: Option<String>,
    /// The step after which it runs, as `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 96),
        regex(pattern = r"^[a-z0-9]+([-./][a-z0-9]+)*$")
    )]
    pub after: Option<String>,
    /// The operations in whose plans it stands. Default: all whose plan has the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::hook_operations")]
    pub operations: Option<Vec<HookOperation>>,
    /// The hosts that it runs on: groups as `kube_control_plane`, and names of ClusterNodes. Default: those of the step, and where
    /// it has none all of the cluster; of an image: any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::hook_hosts")]
    pub hosts: Option<Vec<String>>,
    /// A script that runs on each of these hosts as root. Its first line names its interpreter: `#!/bin/sh`. It is a value: nothing in
    /// it is a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<HookText>,
    /// An Ansible playbook, as a list of plays. It is a template as playbooks are, with kubespray's variables and roles at hand; its
    /// plays are bound to these hosts, and to localhost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub playbook: Option<HookText>,
    /// An image that runs as a pod of the cluster: one on each of the hosts that `hosts` names, or one on any node where it names none.
    /// Only at steps at which the cluster's API answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<HookImage>,
    /// How long it may take, 1s to 24h; then it is ended, and has failed. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// What happens when it fails. Default: Fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
}

/// What a name of an image looks like: a registry or none, a path, a tag, a digest.
pub const IMAGE: &str = r"^[a-zA-Z0-9][a-zA-Z0-9._-]*(:[0-9]{1,5})?(/[a-z0-9][a-z0-9._-]*)*(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$";

/// An image and what it runs. Its pod has no token of the API, no capabilities of Linux and no more rights than it began with, and
/// stands in namespace `windlass-hooks` of the cluster. Nothing in it is a template, and it stands in the Run, so that it holds no secret.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookImage {
    /// The image, for example `registry.example.com/checks@sha256:...`. With a digest it is the same image each time.
    #[schemars(length(min = 1, max = 512), regex(pattern = IMAGE))]
    pub name: String,
    /// What runs instead of the image's own entry point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), inner(length(max = 4096)))]
    pub command: Option<Vec<String>>,
    /// What it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), inner(length(max = 4096)))]
    pub args: Option<Vec<String>>,
    /// Variables of its environment, beside those that scripts of hooks have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::hook_environment")]
    pub env: Option<Vec<HookVariable>>,
    /// Whether it shares the network of its node. Its pod stands in namespace `windlass-hooks-on-hosts` then. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_network: Option<bool>,
}

/// One variable of an environment.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookVariable {
    /// Its name. Those that begin with `WINDLASS_` are Windlass' own.
    #[schemars(
        length(min = 1, max = 128),
        regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$")
    )]
    pub name: String,
    /// Its value.
    #[schemars(length(max = 4096))]
    pub value: String,
}

/// The text of a hook: exactly one of the fields. It stands in the Run, so that it holds no secret.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[x_kube(
    validation = ("has(self.inline) != has(self.configMapKeyRef)", "set inline or configMapKeyRef, one of the two: where the text stands")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookText {
    /// The text itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65536))]
    pub inline: Option<String>,
    /// The key of a ConfigMap that holds it. A plan has the text that stands there when it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapKeyRef>,
}

/// One key of a ConfigMap of the same namespace.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigMapKeyRef {
    /// The ConfigMap's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in its data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// The SHA-256 of the text, in hex: another text is refused. It keeps who may write ConfigMaps, and not this object, from
    /// choosing what runs. Default: any text is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9a-f]{64}$"), length(max = 64))]
    pub sha256: Option<String>,
}

/// An operation in whose plans a hook may stand.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum HookOperation {
    /// The cluster is built.
    Create,
    /// The cluster was built by somebody else, and is taken over as it stands.
    Adopt,
    /// Hosts join.
    Scale,
    /// Hosts leave.
    Remove,
    /// Another host takes the first place.
    Replace,
    /// The cluster gets another version.
    Upgrade,
    /// One component is brought to what the spec says.
    Component,
    /// Certificates are made anew.
    Renew,
    /// The playbooks run once more.
    Converge,
    /// The cluster is brought back after etcd lost its quorum.
    Recover,
    /// Kubernetes is removed from all hosts.
    Reset,
    /// Kubernetes is removed from a host that is no part of the cluster.
    ResetHost,
    /// Nodes are cordoned, drained, let in again, or a part of them is restarted; certificates are looked at; a token is made.
    Toolbox,
}
