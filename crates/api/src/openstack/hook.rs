//! Hooks of a service: Jobs and approvals of people's own before, after or instead of its steps.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{
    Duration,
    hook::IMAGE,
    run::OnFailure,
    schema::{by_name, each_once},
};

/// An image that runs as a Job, or a question to a person, before, after or instead of a step of a service. Whoever may write it may run
/// programs that know what the service's own know: its database, its user, its keys.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[x_kube(
    validation = ("[has(self.before), has(self.after), has(self.instead)].filter(x, x).size() == 1", "set before, after or instead, one of the three: the id of the step that the hook stands at"),
    validation = ("has(self.image) != has(self.approval)", "set image or approval, one of the two: what the hook does")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceHook {
    /// Its name: lower-case words with `-`. Its step is `hook/NAME`; one that stands instead of a step has the id of that.
    #[schemars(
        length(min = 1, max = 16),
        regex(pattern = r"^[a-z0-9]+(-[a-z0-9]+)*$")
    )]
    pub name: String,
    /// The step before which it runs, by its id: `database/expand`.
    #[schemars(length(min = 1, max = 64), regex(pattern = STEP))]
    pub before: Option<String>,
    /// The step after which it runs, as `before`.
    #[schemars(length(min = 1, max = 64), regex(pattern = STEP))]
    pub after: Option<String>,
    /// The step in whose place it runs, as `before`: one that is a Job, or a question to the service.
    #[schemars(length(min = 1, max = 64), regex(pattern = STEP))]
    pub instead: Option<String>,
    /// The operations in whose runs it stands. Default: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "operations")]
    pub operations: Option<Vec<ServiceOperation>>,
    /// An image that runs as a Job, as those of the service do.
    pub image: Option<ServiceHookImage>,
    /// What a person is asked before the run goes on.
    #[schemars(length(min = 1, max = 1024))]
    pub approval: Option<String>,
    /// How long the Job may take with all its attempts, 1s to 24h; then it is ended, and has failed. Default: 5m.
    pub timeout: Option<Duration>,
    /// What happens when the Job fails. Default: Fail.
    pub on_failure: Option<OnFailure>,
}

/// What ids of steps look like.
const STEP: &str = r"^[a-z0-9]+([-./][a-z0-9]+)*$";

/// An image and what it runs. Nothing in it is a template, and it stands in the Run, so that it holds no secret. Its container has the
/// configuration files, the environment and the Secrets of the service, and its user.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceHookImage {
    /// The image, for example `registry.example.com/checks@sha256:...`. With a digest it is the same image each time. Default: that of
    /// the service.
    #[schemars(length(min = 1, max = 512), regex(pattern = IMAGE))]
    pub name: Option<String>,
    /// What runs instead of the image's own entry point.
    #[schemars(length(min = 1, max = 64), inner(length(max = 4096)))]
    pub command: Option<Vec<String>>,
    /// What it is given.
    #[schemars(length(min = 1, max = 64), inner(length(max = 4096)))]
    pub args: Option<Vec<String>>,
    /// Variables of its environment, beside those of the service and those that hooks have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "environment")]
    pub env: Option<Vec<ServiceHookVariable>>,
    /// Files that it finds in `/run/windlass/hook`, each of which may be executed, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "files")]
    pub files: BTreeMap<String, String>,
}

/// One variable of an environment: a value, or a key of a Secret.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("has(self.value) != has(self.secretKeyRef)", "set value or secretKeyRef, one of the two"))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceHookVariable {
    /// Its name. Those that begin with `WINDLASS_` are Windlass' own.
    #[schemars(
        length(min = 1, max = 128),
        regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$")
    )]
    pub name: String,
    /// Its value.
    #[schemars(length(max = 4096))]
    pub value: Option<String>,
    /// The key of a Secret of the namespace that holds it.
    pub secret_key_ref: Option<HookSecretKey>,
}

/// One key of a Secret of the same namespace.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookSecretKey {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in its data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// An operation in whose runs a hook of a service may stand.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum ServiceOperation {
    /// Nothing of the service is there yet.
    Install,
    /// What is there is another, of the same release.
    Update,
    /// What is there is of another release.
    Upgrade,
}

/// Hooks of a service.
pub(super) fn hooks(generator: &mut SchemaGenerator) -> Schema {
    by_name::<ServiceHook>(generator, 0, 16)
}

fn operations(generator: &mut SchemaGenerator) -> Schema {
    each_once::<ServiceOperation>(generator, 1, 3)
}

fn environment(generator: &mut SchemaGenerator) -> Schema {
    by_name::<ServiceHookVariable>(generator, 1, 64)
}

fn files(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 8,
        "additionalProperties": {"type": "string", "maxLength": 16384},
    })
}
