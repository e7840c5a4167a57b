//! `IdentitySeed`: what people make in a Keystone.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Identity, OnDelete, Standing};

/// What is to be in a Keystone: domains, roles, projects, users, groups, who has which role where, and services with their endpoints.
/// Things are known by their names; what an entry names and does not make may be of the seed or in Keystone already.
#[serde_with::skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "openstack.windlass.dev",
    version = "v1alpha1",
    kind = "IdentitySeed",
    namespaced,
    status = "Standing",
    category = "windlass",
    doc = "What is to be in a Keystone.",
    printcolumn(name = "Goal", type_ = "string", json_path = ".status.goal"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Steps", type_ = "string", json_path = ".status.steps"),
    printcolumn(
        name = "Drifted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Drifted')].status"
    ),
    printcolumn(name = "Blocked-On", type_ = "string", json_path = ".status.blockedOn"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[kube(validation = ("size(self.metadata.name) <= 30", "the name of an IdentitySeed has 30 characters at most: its runs are named after it"))]
#[x_kube(validation = ("has(self.identity) != has(self.cloud)", "a seed is for one Keystone: give cloud, the name of an OpenStack with one of its own, or identity, one of the two"))]
pub struct IdentitySeedSpec {
    /// The OpenStack of the namespace whose own Keystone is meant, with the administrator that it was made with.
    #[schemars(
        length(min = 1, max = 20),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub cloud: Option<String>,
    /// The Keystone, where it is none of an OpenStack of the namespace.
    pub identity: Option<Identity>,
    /// Domains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub domains: Vec<SeedDomain>,
    /// Roles, by their names. What is there stays as it is, and none is ever removed: others may have them too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(min = 1, max = 255), regex(pattern = NAME))
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub roles: Vec<String>,
    /// Projects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub projects: Vec<SeedProject>,
    /// Users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub users: Vec<SeedUser>,
    /// Groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub groups: Vec<SeedGroup>,
    /// Who has which role where.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512))]
    pub assignments: Vec<SeedAssignment>,
    /// Services in the catalogue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub services: Vec<SeedService>,
    /// What becomes of domains, projects, users, groups and services that are there already and not known to be the seed's. What is
    /// another object's is refused in any case. Default: Refuse.
    pub existing: Option<SeedExisting>,
    /// Whether what the seed made and no longer names is removed where it is the seed's. Default: no, and the status names it.
    pub prune: Option<bool>,
    /// What becomes of what is the seed's when the seed is deleted. Default: Retain.
    pub on_delete: Option<OnDelete>,
}

/// What names of Keystone look like: no space at an end, no line break.
const NAME: &str = r"^\S(.*\S)?$";

/// A domain.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedDomain {
    /// Its name.
    #[schemars(length(min = 1, max = 64), regex(pattern = NAME))]
    pub name: String,
    /// What its description says behind whose it is. Default: what it says there.
    #[schemars(length(min = 1, max = 255))]
    pub description: Option<String>,
}

/// A project.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedProject {
    /// Its name.
    #[schemars(length(min = 1, max = 64), regex(pattern = NAME))]
    pub name: String,
    /// The domain that it is in. Default: Default.
    #[schemars(length(min = 1, max = 64), regex(pattern = NAME))]
    pub domain: Option<String>,
    /// What its description says behind whose it is. Default: what it says there.
    #[schemars(length(min = 1, max = 255))]
    pub description: Option<String>,
}

/// A user.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedUser {
    /// The name.
    #[schemars(length(min = 1, max = 255), regex(pattern = NAME))]
    pub name: String,
    /// The domain that the user is in. Default: Default.
    #[schemars(length(min = 1, max = 64), regex(pattern = NAME))]
    pub domain: Option<String>,
    /// What the description says behind whose it is. Default: what it says there.
    #[schemars(length(min = 1, max = 255))]
    pub description: Option<String>,
    /// Where the password is. It is set where a login shows that it is another one.
    pub password_secret: SeedPassword,
}

/// A key of a Secret of the same namespace, with a password.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedPassword {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in its data. Default: password.
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// A group.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedGroup {
    /// Its name.
    #[schemars(length(min = 1, max = 64), regex(pattern = NAME))]
    pub name: String,
    /// The domain that it is in. Default: Default.
    #[schemars(length(min = 1, max = 64), regex(pattern = NAME))]
    pub domain: Option<String>,
    /// What its description says behind whose it is. Default: what it says there.
    #[schemars(length(min = 1, max = 255))]
    pub description: Option<String>,
    /// Who is in it: others may be, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub users: Vec<SeedNamed>,
}

/// A role that somebody has somewhere. It is made where it is missing; others stay.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[x_kube(
    validation = ("has(self.user) != has(self.group)", "a role is for a user or for a group: give one of the two"),
    validation = ("has(self.project) != has(self.domain)", "a role is for a project or for a domain: give one of the two")
)]
#[serde(rename_all = "camelCase")]
pub struct SeedAssignment {
    /// The role.
    #[schemars(length(min = 1, max = 255), regex(pattern = NAME))]
    pub role: String,
    /// The user who has it.
    pub user: Option<SeedNamed>,
    /// The group that has it.
    pub group: Option<SeedNamed>,
    /// The project that it is for.
    pub project: Option<SeedNamed>,
    /// The domain that it is for.
    #[schemars(length(min = 1, max = 64), regex(pattern = NAME))]
    pub domain: Option<String>,
}

/// Something of a domain, by its name.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedNamed {
    /// The name.
    #[schemars(length(min = 1, max = 255), regex(pattern = NAME))]
    pub name: String,
    /// The domain that it is in. Default: Default; of a user of a group, that of the group.
    #[schemars(length(min = 1, max = 64), regex(pattern = NAME))]
    pub domain: Option<String>,
}

/// A service in the catalogue.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedService {
    /// Its name, as glance.
    #[schemars(length(min = 1, max = 255), regex(pattern = NAME))]
    pub name: String,
    /// Its type, as image.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 255), regex(pattern = NAME))]
    pub type_: String,
    /// What its description says behind whose it is. Default: what it says there.
    #[schemars(length(min = 1, max = 255))]
    pub description: Option<String>,
    /// Where it answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub endpoints: Vec<SeedEndpoint>,
}

/// Where a service answers.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedEndpoint {
    /// For whom.
    pub interface: SeedInterface,
    /// The URL. What Keystone puts in it, such as `$(project_id)s`, may be in it.
    #[schemars(
        length(min = 1, max = 2048),
        regex(pattern = r"^https?://[A-Za-z0-9.:\[\]-]+(/\S*)?$")
    )]
    pub url: String,
    /// The region. Default: RegionOne.
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[A-Za-z0-9._-]+$"))]
    pub region: Option<String>,
}

/// For whom an endpoint is.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum SeedInterface {
    /// For everybody.
    #[default]
    Public,
    /// For other services.
    Internal,
    /// For administrators.
    Admin,
}

/// What becomes of what is there already and not known to be the seed's.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum SeedExisting {
    /// Nothing is done to it.
    #[default]
    Refuse,
    /// It becomes the seed's, with what is in it.
    Adopt,
}

/// Something of a seed that its spec no longer names and that is in Keystone still.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedLeft {
    /// What it is.
    #[schemars(length(max = 2048))]
    pub what: String,
    /// Where it is in Keystone's API.
    #[schemars(length(max = 512))]
    pub path: String,
}
