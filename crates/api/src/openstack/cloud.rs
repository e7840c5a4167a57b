//! `OpenStack`: a cloud, made of services.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Backup, CloudMessaging, CloudPasswords, Contract, Existing, Identity, Keys, MemcachedServers,
    OnDelete, Passwords, SchemaCheck, ServiceComponent, ServiceHook, Standing, Storage,
};
use crate::cluster::SecretRef;

/// A cloud of OpenStack.
#[serde_with::skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "openstack.windlass.dev",
    version = "v1alpha1",
    kind = "OpenStack",
    plural = "openstacks",
    singular = "openstack",
    namespaced,
    status = "Standing",
    category = "windlass",
    doc = "A cloud of OpenStack.",
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
#[kube(validation = Rule::new("!has(self.spec.passwords) || !has(self.spec.passwords.databaseServer) || has(self.spec.database.managed)")
    .message("an external database server's password is for whoever runs that: leave passwords.databaseServer out")
    .field_path(".spec.passwords.databaseServer"))]
#[kube(validation = ("size(self.metadata.name) <= 20", "the name of an OpenStack has 20 characters at most: what is made for it is named after it"))]
pub struct OpenStackSpec {
    /// The release of OpenStack, for people: 2026.1. What runs are the images.
    #[schemars(length(min = 1, max = 64))]
    pub release: Option<String>,
    /// The region of all endpoints. Default: RegionOne.
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[A-Za-z0-9._-]+$"))]
    pub region: Option<String>,
    /// The database server of all services.
    pub database: Server,
    /// The memcached of all services. Default: they have no cache.
    pub memcached: Option<Memcached>,
    /// The RabbitMQ of all services that send messages. Default: they send none.
    pub messaging: Option<CloudMessaging>,
    /// The Keystone of its services, where it is none of theirs.
    pub identity: Option<Identity>,
    /// The services.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub services: Vec<CloudService>,
    /// How many of its services are made or changed side by side at most, once what they need is there. Default: 4.
    #[schemars(range(min = 1, max = 16))]
    pub parallelism: Option<u8>,
    /// What the configuration files of all services say: what stands in that of a service itself comes later.
    #[schemars(length(max = 65536))]
    pub config: Option<String>,
    /// What becomes of databases that are there already and not known to be ours. Default: Refuse.
    pub existing: Option<Existing>,
    /// What becomes of databases and Secrets when it is deleted. Default: Retain.
    pub on_delete: Option<OnDelete>,
    /// Passwords of it that are rotated on a schedule, beside those of its services. Default: none are.
    pub passwords: Option<CloudPasswords>,
    /// Backups of the databases of its services and of their keys. Default: none are taken.
    pub backup: Option<Backup>,
}

/// The database server of a cloud: one of the two.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.managed) != has(self.external)", "a database server is managed or external: give one of the two"))]
pub struct Server {
    /// One that Windlass makes: a single MariaDB.
    pub managed: Option<Managed>,
    /// One that is there.
    pub external: Option<External>,
}

/// A single MariaDB in the namespace of the cloud.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(oldSelf.storage) || has(self.storage)", "storage that was given cannot be taken away: what lies there would be out of reach"))]
pub struct Managed {
    /// Its image.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// Where its data is kept. Default: nowhere, it goes with its pod, which is for trials.
    pub storage: Option<Storage>,
}

/// A database server that is there.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct External {
    /// Its host, as pods reach it.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9.:-]+$"))]
    pub host: String,
    /// Its port. Default: 3306.
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// The Secret with whom databases are made by: its keys are username and password.
    pub admin_secret: SecretRef,
}

/// The memcached of a cloud: one of the two.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.managed) != has(self.external)", "a memcached is managed or external: give one of the two"))]
pub struct Memcached {
    /// One that Windlass makes: a single server.
    pub managed: Option<ManagedMemcached>,
    /// Servers that are there.
    pub external: Option<MemcachedServers>,
}

/// A single memcached in the namespace of the cloud.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedMemcached {
    /// Its image.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// How much it keeps: 256Mi. Default: 64Mi.
    #[schemars(regex(pattern = r"^[1-9][0-9]{0,4}(Mi|Gi)$"))]
    pub memory: Option<String>,
}

/// A service of a cloud.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudService {
    /// Which service, by its name, such as keystone. A name that no service has is refused with a list of those that there are.
    #[schemars(
        length(min = 1, max = 30),
        regex(pattern = r"^[a-z0-9]+(-[a-z0-9]+)*$")
    )]
    pub name: String,
    /// The image of its containers.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// How that image is told its configuration and its command. Default: Mounted.
    pub contract: Option<Contract>,
    /// How many pods serve its API. Default: 1.
    #[schemars(range(min = 1, max = 100))]
    pub replicas: Option<u16>,
    /// Where its public endpoint answers: a URL without a path. Default: its Service, which only the cluster reaches.
    #[schemars(
        length(min = 1, max = 255),
        regex(pattern = r"^https?://[A-Za-z0-9.:\[\]-]+$")
    )]
    pub public_url: Option<String>,
    /// Where its data is kept that is in no database, such as Glance's images. Default: nowhere, it goes with its pod, which is for
    /// trials.
    pub storage: Option<Storage>,
    /// What its configuration files say beside what Windlass gives, by the names of the files. It has the last word. Those that no
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
}
