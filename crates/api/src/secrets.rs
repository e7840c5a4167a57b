//! `VaultSecret`: a Secret whose values come from HashiCorp Vault or OpenBao and follow what is written there.

use std::collections::BTreeMap;

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Duration;

/// The group of the kinds that make Secrets.
pub const GROUP: &str = "secrets.windlass.dev";

/// The type of a Secret with credentials for Vault. No other Secret of the namespace is sent to a server.
pub const CREDENTIALS_TYPE: &str = "secrets.windlass.dev/vault-credentials";

/// The ServiceAccount that the Kubernetes method logs in as, in the namespace of the VaultSecret: the only one that the operator may have
/// tokens made for.
pub const SERVICE_ACCOUNT: &str = "windlass-vault";

/// On the ServiceAccount, and on a Secret with credentials: the address of the server that they are for. They are sent to no other, so that who
/// may write VaultSecrets cannot have them sent to a server of theirs.
pub const ADDRESS_ANNOTATION: &str = "secrets.windlass.dev/address";

/// On the ServiceAccount: whom its tokens may be for.
pub const AUDIENCE_ANNOTATION: &str = "secrets.windlass.dev/audience";

/// How the names of Secrets end that Windlass itself makes beside a Cluster: no VaultSecret makes one first.
pub const OWN_SUFFIXES: [&str; 3] = ["-host-keys", "-kubeconfig", "-snapshots"];

/// The type of the Secret with the key that digests of what Secrets hold are made with.
pub const DIGEST_KEY_TYPE: &str = "secrets.windlass.dev/digest-key";

/// So many digits at the beginning of a digest name the key that it was made with.
pub const KEY_DIGITS: usize = 4;

/// On a VaultSecret: reads it anew as soon as the value changes.
pub const REFRESH_ANNOTATION: &str = "secrets.windlass.dev/refresh";

/// On a VaultSecret: as long as it is there, whatever its value, keys that its Secret has stay there with what they hold, though `spec.keys`
/// names them no longer. Whoever writes it knows of somebody who still reads them.
pub const KEEP_KEYS_ANNOTATION: &str = "secrets.windlass.dev/keep-keys";

/// Where an engine is mounted if nobody says it.
pub const MOUNT: &str = "secret";

/// Where a secret is in Vault, by its server, namespace, mount and path: one text for one place. Where a mount ends does not show, for the
/// same secret is read as `a/b` of the mount `kv` and as `b` of the mount `kv/a`.
pub fn place(address: &str, namespace: &str, mount: &str, path: &str) -> String {
    let parts = [address, namespace, mount, path].into_iter();
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    parts.join("/")
}

/// The definitions of the kinds that make Secrets.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![VaultSecret::crd()]
}

/// What is read where, and the Secret that it is written to.
#[derive(CustomResource, Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "secrets.windlass.dev",
    version = "v1alpha1",
    kind = "VaultSecret",
    namespaced,
    status = "VaultSecretStatus",
    shortname = "vsec",
    category = "windlass",
    derive = "PartialEq",
    doc = "A Secret whose values come from HashiCorp Vault or OpenBao and follow what is written there.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(
        name = "Stale",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Stale\")].status"
    ),
    printcolumn(name = "Secret", type_ = "string", json_path = ".status.secret"),
    printcolumn(name = "Version", type_ = "integer", json_path = ".status.version"),
    printcolumn(name = "Changed", type_ = "date", json_path = ".status.changedAt"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[x_kube(validation = (
    "!has(self.version) || !has(self.engine) || self.engine == 'KvV2'",
    "version 1 of the engine keeps no versions: take version out"
))]
#[serde(rename_all = "camelCase")]
pub struct VaultSecretSpec {
    /// The server, and how to log in.
    pub vault: Vault,
    /// Where the secrets engine is mounted. Default: secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = (PATH_RULE, "a mount is a path of letters, digits, dots, hyphens and underscores without slashes at its ends"))]
    pub mount: Option<String>,
    /// The version of the key/value engine there. Default: KvV2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// The path of the secret below the mount, as `vault kv get` takes it, without `data/`.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = (PATH_RULE, "a path has letters, digits, dots, hyphens and underscores without slashes at its ends, for example infra/openstack"))]
    pub path: String,
    /// The version to keep to, where the engine keeps versions. Default: the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub version: Option<u32>,
    /// The keys of the Secret by the fields of the secret in Vault. Default: each field under its own name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "keys")]
    pub keys: BTreeMap<String, String>,
    /// How often it is read, 30s to 24h. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_every: Option<Duration>,
    /// The Secret that is made. Default: one of the same name, of the type Opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Made>,
}

/// What paths in Vault are, for us: what needs no escape anywhere, and leads nowhere else.
const PATH_RULE: &str =
    "self.matches('^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$')";

/// A server, and how to log in.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Vault {
    /// Its URL, for example `https://vault.example.org:8200`. http is for loopback alone.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = (
        "self.startsWith('https://') || self.startsWith('http://')",
        "write a URL, for example https://vault.example.org:8200"
    ))]
    pub address: String,
    /// The namespace in Vault, where it has namespaces. Not one of Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = (PATH_RULE, "a namespace of Vault is a path without slashes at its ends, for example team/a"))]
    pub namespace: Option<String>,
    /// The ConfigMap with certificates of authorities whose word for the server is taken beside those that everybody trusts, in PEM form.
    /// Default key: ca.crt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_config_map_ref: Option<KeyRef>,
    /// How to log in.
    pub auth: Auth,
}

/// How to log in: exactly one of the fields.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = (
    "[has(self.kubernetes), has(self.appRole), has(self.token)].filter(is, is).size() == 1",
    "set exactly one of kubernetes, appRole and token"
))]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    /// As the ServiceAccount windlass-vault of this namespace, by a token that is made for each login and lives ten minutes. Its annotation
    /// secrets.windlass.dev/address names the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesAuth>,
    /// By an AppRole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_role: Option<AppRoleAuth>,
    /// By a token that somebody made; it is renewed while it can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenAuth>,
}

/// As a ServiceAccount.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesAuth {
    /// Where the method is mounted. Default: kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = (PATH_RULE, "a mount is a path without slashes at its ends"))]
    pub mount: Option<String>,
    /// The role in Vault.
    #[schemars(length(min = 1, max = 256))]
    pub role: String,
    /// Whom the token is for, which the role may ask for. Default: vault. Another one is named by the annotation
    /// secrets.windlass.dev/audience of the ServiceAccount too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub audience: Option<String>,
}

/// By an AppRole.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppRoleAuth {
    /// Where the method is mounted. Default: approle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = (PATH_RULE, "a mount is a path without slashes at its ends"))]
    pub mount: Option<String>,
    /// The id of the role.
    #[schemars(length(min = 1, max = 256))]
    pub role_id: String,
    /// The Secret with the secret id, of the type secrets.windlass.dev/vault-credentials and with the annotation secrets.windlass.dev/address.
    /// Default key: secretId.
    pub secret_id_secret_ref: KeyRef,
}

/// By a token.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenAuth {
    /// The Secret with the token, of the type secrets.windlass.dev/vault-credentials and with the annotation secrets.windlass.dev/address.
    /// Default key: token.
    pub secret_ref: KeyRef,
}

/// One key of a Secret or ConfigMap of the same namespace.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// The version of the key/value engine.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Engine {
    /// Version 1: what is written replaces what was.
    KvV1,
    /// Version 2: versions are kept.
    #[default]
    KvV2,
}

/// The Secret that is made.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Made {
    /// Its name. Default: that of the VaultSecret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = (
        "self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')",
        "a Secret's name has lower-case letters, digits, dots and hyphens"
    ))]
    pub name: Option<String>,
    /// Its type. Default: Opaque.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<SecretType>,
}

/// The types of Secrets that are made. None that Kubernetes or Windlass acts on by itself.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum SecretType {
    /// Anything.
    #[default]
    Opaque,
    /// A user name and a password.
    #[serde(rename = "kubernetes.io/basic-auth")]
    BasicAuth,
    /// A private key of ssh.
    #[serde(rename = "kubernetes.io/ssh-auth")]
    SshAuth,
    /// A certificate and its key.
    #[serde(rename = "kubernetes.io/tls")]
    Tls,
    /// Credentials for registries.
    #[serde(rename = "kubernetes.io/dockerconfigjson")]
    DockerConfig,
}

impl SecretType {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opaque => "Opaque",
            Self::BasicAuth => "kubernetes.io/basic-auth",
            Self::SshAuth => "kubernetes.io/ssh-auth",
            Self::Tls => "kubernetes.io/tls",
            Self::DockerConfig => "kubernetes.io/dockerconfigjson",
        }
    }
}

/// How a VaultSecret stands. Nothing of a value is here, and no digest of one.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VaultSecretStatus {
    /// The generation that this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The Secret that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub secret: Option<String>,
    /// The version in Vault of what it holds, where the engine keeps versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// What tells that a value changed: the beginning of an HMAC-SHA256 of each, by the key of the Secret. The key of the HMAC is the Secret
    /// windlass-digest-key of the operator's namespace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "digests")]
    pub digests: BTreeMap<String, String>,
    /// The same of the whole secret in Vault, where the engine keeps no versions: VaultSecrets that have read the same there have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub contents: Option<String>,
    /// When what it holds changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Time>,
    /// Ready: the Secret is there with what was read last. Stale: Vault could not be read since then. Stalled: nothing goes on until
    /// somebody changes something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
}

/// Keys of a Secret by fields in Vault.
fn digests(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 128,
        "additionalProperties": {"type": "string", "maxLength": 16},
    })
}

fn keys(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 128,
        "additionalProperties": {"type": "string", "minLength": 1, "maxLength": 253},
    })
}
