//! `OpenStackService`: one service, such as Keystone.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Keys, Messaging, Passwords, SchemaCheck, ServiceComponent, ServiceHook, Standing};
use crate::cluster::SecretRef;

/// One service of OpenStack.
#[serde_with::skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "openstack.windlass.dev",
    version = "v1alpha1",
    kind = "OpenStackService",
    namespaced,
    status = "Standing",
    category = "windlass",
    doc = "One service of OpenStack.",
    printcolumn(name = "Service", type_ = "string", json_path = ".spec.service"),
    printcolumn(name = "Release", type_ = "string", json_path = ".spec.release"),
    printcolumn(name = "Goal", type_ = "string", json_path = ".status.goal"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Steps", type_ = "string", json_path = ".status.steps"),
    printcolumn(name = "Blocked-On", type_ = "string", json_path = ".status.blockedOn"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[kube(validation = Rule::new("!has(oldSelf.spec.storage) || has(self.spec.storage)")
    .message("storage that was given cannot be taken away: what lies there would be out of reach")
    .field_path(".spec.storage"))]
#[kube(validation = ("size(self.metadata.name) <= 30", "the name of an OpenStackService has 30 characters at most: what is made for it is named after it"))]
pub struct OpenStackServiceSpec {
    /// Which service, by its name, such as keystone. A name that no service has is refused with a list of those that there are.
    #[schemars(
        length(min = 1, max = 30),
        regex(pattern = r"^[a-z0-9]+(-[a-z0-9]+)*$")
    )]
    #[x_kube(validation = ("self == oldSelf", "the service cannot change: make another object"))]
    pub service: String,
    /// The release of OpenStack, for people: 2026.1. What runs is the image.
    #[schemars(length(min = 1, max = 64))]
    pub release: Option<String>,
    /// The image of its containers.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// How that image is told its configuration and its command. Default: Mounted.
    pub contract: Option<Contract>,
    /// How many pods serve its API. Default: 1.
    #[schemars(range(min = 1, max = 100))]
    pub replicas: Option<u16>,
    /// The region of its endpoints. Default: RegionOne.
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[A-Za-z0-9._-]+$"))]
    pub region: Option<String>,
    /// Where its public endpoint answers: a URL without a path. Default: its Service, which only the cluster reaches.
    #[schemars(
        length(min = 1, max = 255),
        regex(pattern = r"^https?://[A-Za-z0-9.:\[\]-]+$")
    )]
    pub public_url: Option<String>,
    /// The database server.
    pub database: Database,
    /// The Keystone that knows its users and its endpoints. Every service but Keystone itself needs one.
    pub identity: Option<Identity>,
    /// The servers of memcached that it keeps in its cache what it would ask again. Default: it has no cache.
    pub memcached: Option<MemcachedServers>,
    /// The RabbitMQ that it sends messages to, if it is a service that sends some. Default: it sends none.
    pub messaging: Option<Messaging>,
    /// Where its data is kept that is in no database, such as Glance's images. Default: nowhere, it goes with its pod, which is for
    /// trials.
    pub storage: Option<Storage>,
    /// What all its configuration files say beside what Windlass gives, before `config`: what its OpenStack says for all services.
    #[schemars(length(max = 65536))]
    pub cloud_config: Option<String>,
    /// What its configuration files say beside what Windlass gives, by the names of the files: keystone.conf. It has the last word. Those that no
    /// setting is merged into, as policy.yaml, are taken whole.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "super::files")]
    pub config: BTreeMap<String, String>,
    /// What is said for single components of it, by their names: every service has api, which its Jobs read the files of, too.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub components: BTreeMap<String, ServiceComponent>,
    /// How its configuration files are held against the schema of the release. Default: nothing is let through.
    pub schema: Option<SchemaCheck>,
    /// Keys of it that are rotated on a schedule. Default: none are.
    pub keys: Option<Keys>,
    /// Passwords of it that are rotated on a schedule. Default: none are.
    pub passwords: Option<Passwords>,
    /// What runs before, after and instead of its steps, in this order where several stand at one step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::hook::hooks")]
    pub hooks: Option<Vec<ServiceHook>>,
    /// What becomes of a database of its name, and of its user and its place in Keystone's catalogue, that are there already and not known to
    /// be its own. Default: Refuse.
    pub existing: Option<Existing>,
    /// What becomes of its database and its Secrets when it is deleted. Default: Retain.
    pub on_delete: Option<OnDelete>,
}

/// A database server of MariaDB.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Database {
    /// Its host, as pods reach it: a Service of the same namespace, or a name or address anywhere.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9.:-]+$"))]
    pub host: String,
    /// Its port. Default: 3306.
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// The Secret with whom databases are made by: its keys are username and password.
    pub admin_secret: SecretRef,
}

/// A Keystone.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Where it answers, as pods reach it: a URL that ends with /v3.
    #[schemars(
        length(min = 1, max = 255),
        regex(pattern = r"^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._-]+)*/v3$")
    )]
    pub url: String,
    /// The Secret with an administrator of it: its keys are username and password, and project where that is not admin.
    pub admin_secret: SecretRef,
}

/// How the image of a service is told its configuration and its command.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Contract {
    /// The files are mounted where the service reads them, the command is the container's, and nothing in it may become root.
    #[default]
    Mounted,
    /// The image is Kolla's, or starts as those do: `kolla_start` copies the files by sudo, and runs what `config.json` names.
    Kolla,
}

/// Servers of memcached.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedServers {
    /// Their addresses, as pods reach them: `cache.example.org:11211`, and one of IPv6 as `inet6:[2001:db8::1]:11211`.
    #[schemars(
        length(min = 1, max = 16),
        inner(
            length(max = 255),
            regex(
                pattern = r"^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|inet6:\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$"
            )
        )
    )]
    pub servers: Vec<String>,
}

/// A volume.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Its size: 10Gi.
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[0-9]+(Mi|Gi|Ti)$"))]
    pub size: String,
    /// Its class. Default: that of the cluster.
    #[schemars(length(min = 1, max = 253))]
    pub class: Option<String>,
}

/// What becomes of what is there already.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Existing {
    /// Nothing is done to it, and the service is not installed.
    #[default]
    Refuse,
    /// It becomes that of the service, with what is in it.
    Adopt,
    /// It is removed with what is in it when the service is installed, and made anew. What belongs to another object, and what a service that
    /// was here may have left, is not.
    Replace,
}

/// What becomes of the database and the Secrets of what is deleted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OnDelete {
    /// They stay.
    #[default]
    Retain,
    /// They go too.
    Delete,
}
