//! What a plan carries for its runner: the resolved wish, typed. References to secrets, never secrets.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use ansible::{
    inventory::{Directories, InventoryInput, Settings},
    probe::Target,
};
use api::{
    Duration, HostName, KubernetesVersion, KubesprayVersion,
    cluster::{Bastion, InventoryStatus, SecretKeyRef, SecretRef},
    node::Role,
    remedy::Remedy,
    run::Plan,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{hooks::HookInput, snapshots::SnapshotsInput, variables};

/// Everything that the steps of a plan read.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inputs {
    /// The kubespray release.
    pub kubespray: KubesprayVersion,
    /// The Kubernetes version to install.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesVersion>,
    /// Where the playbooks come from, and which.
    pub source: SourceInput,
    /// Whether what hosts fetch must be where they are told to ask, before one is touched.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mirrored: bool,
    /// The hosts, in inventory order.
    pub hosts: Vec<Host>,
    /// Those of them that the operation removes from the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<HostName>,
    /// Whether etcd may have an even number of members on the way: one of several that join or leave one by one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passing: bool,
    /// The order that is state, and the pinned names of etcd members.
    #[serde(default)]
    pub inventory: InventoryStatus,
    /// How hosts are reached.
    pub ssh: SshInput,
    /// How many hosts Ansible works on at once. Default: by their number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forks: Option<u16>,
    /// Overrides of ansible.cfg.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ansible: BTreeMap<String, BTreeMap<String, String>>,
    /// Variables for the whole cluster, some of which may hold references to Secrets.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub variables: Map<String, Value>,
    /// The Secret with further ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_vars_secret_ref: Option<SecretKeyRef>,
    /// The Secret with those of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_secret_ref: Option<SecretKeyRef>,
    /// The Secret with the authorities that it founds a cluster with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorities_secret_ref: Option<SecretRef>,
    /// The store of snapshots that it works with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<SnapshotsInput>,
    /// Which revision of each Secret with variables the plan was made with, by name. No part of the plan's digest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub revisions: BTreeMap<String, String>,
    /// Variables that the operation itself sets.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub operation_variables: Map<String, Value>,
    /// How long before their end certificates count as about to end.
    pub renew: Duration,
    /// What may be done on hosts by itself about a failure. Not written: what changes nothing there.
    #[serde(default = "harmless", skip_serializing_if = "is_harmless")]
    pub remedies: Vec<Remedy>,
    /// What runs before and after steps: of a wish all of it, of a plan what stands in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookInput>,
}

/// What is allowed where a spec says nothing: to wait.
pub(crate) fn harmless() -> Vec<Remedy> {
    vec![Remedy::WaitForPackageLock]
}

fn is_harmless(remedies: &Vec<Remedy>) -> bool {
    *remedies == harmless()
}

/// Where the playbooks come from.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceInput {
    /// In words, for people.
    pub origin: String,
    /// What it resolved to: a commit, an image digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The name of its directory in `sources`.
    pub digest: String,
}

/// One host.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its roles, sorted.
    pub roles: Vec<Role>,
    /// Its variables as written.
    pub variables: api::node::HostVariables,
    /// The Secret with further ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_vars_secret_ref: Option<SecretKeyRef>,
}

impl Host {
    /// Whether it is a worker and nothing else.
    pub fn is_worker(&self) -> bool {
        self.roles == [Role::Worker]
    }

    /// Whether it is one of the control plane or of etcd, which join and leave one by one.
    pub fn is_member(&self) -> bool {
        let of_cluster =
            |role: &Role| matches!(role, Role::ControlPlane | Role::Etcd | Role::Worker);
        !self.is_worker() && self.roles.iter().all(of_cluster)
    }

    /// Whether it has a role.
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// What it is, for people.
    pub fn part(&self) -> &'static str {
        match (self.has(Role::ControlPlane), self.has(Role::Etcd)) {
            (true, true) => "a control plane with a member of etcd",
            (true, false) => "a control plane",
            (false, true) => "a member of etcd",
            (false, false) => "a worker",
        }
    }

    /// The addresses at which other hosts may know it.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        let variables = &self.variables;
        let own = [variables.access_ip.as_deref(), variables.ip.as_deref()];
        own.into_iter()
            .flatten()
            .chain([variables.ansible_host.as_str()])
    }
}

/// How hosts are reached.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SshInput {
    /// The user to log in as, where a host names none.
    pub user: String,
    /// The port, where a host names none.
    pub port: u16,
    /// The Secret with the private key. None: what ssh finds by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<SecretKeyRef>,
    /// The hosts' public keys. None: the first one shown is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_hosts: Option<String>,
    /// The Secret with the hosts' public keys instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_hosts_secret: Option<SecretKeyRef>,
    /// The host to reach the others through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bastion: Option<Bastion>,
    /// How long a host may take to answer.
    pub connect_timeout: Duration,
}

impl SshInput {
    /// The host to reach the others through, with this directory for the socket of the connection to it.
    pub fn bastion(&self, control: PathBuf) -> Option<ansible::ssh::Bastion> {
        let bastion = self.bastion.as_ref()?;
        Some(ansible::ssh::Bastion {
            address: bastion.address.clone(),
            user: bastion.user.clone().unwrap_or_else(|| self.user.clone()),
            port: bastion.port.unwrap_or(22),
            control,
        })
    }
}

impl Inputs {
    /// The inputs as a plan stores them.
    ///
    /// # Errors
    ///
    /// They cannot be written as JSON.
    pub fn to_map(&self) -> Result<Map<String, Value>, serde_json::Error> {
        match serde_json::to_value(self)? {
            Value::Object(map) => Ok(map),
            _ => Ok(Map::new()),
        }
    }

    /// The inputs of a plan.
    ///
    /// # Errors
    ///
    /// The map is not what [`Inputs::to_map`] gives: a plan of another engine or version.
    pub fn from_map(map: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        Inputs::deserialize(map)
    }

    /// The same on the way from one odd number of etcd members to the next, if that is where it is.
    #[must_use]
    pub fn on_the_way(self) -> Self {
        let is_member = |host: &&Host| host.roles.contains(&Role::Etcd);
        let stays = |host: &&Host| !self.leaving.iter().any(|name| name.as_str() == host.name);
        let members = self.hosts.iter().filter(is_member);
        let left = members.clone().filter(stays).count();
        let passing = left.is_multiple_of(2) || members.count().is_multiple_of(2);
        Self { passing, ..self }
    }

    /// A host.
    pub fn host(&self, name: &HostName) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name.as_str())
    }

    /// The same cluster, whose hosts are reached as another wish says.
    #[must_use]
    pub fn reached_as(&self, wanted: &Self) -> Self {
        Self {
            source: wanted.source.clone(),
            ssh: wanted.ssh.clone(),
            forks: wanted.forks,
            ansible: wanted.ansible.clone(),
            renew: wanted.renew,
            mirrored: wanted.mirrored,
            remedies: wanted.remedies.clone(),
            hooks: wanted.hooks.clone(),
            ..self.clone()
        }
    }

    /// What the cluster is made of once the operation succeeded.
    #[must_use]
    pub fn left(mut self) -> Self {
        if !self.leaving.is_empty() {
            let leaving = std::mem::take(&mut self.leaving);
            let leaves = |host: &Host| leaving.iter().any(|name| name.as_str() == host.name);
            self.hosts.retain(|host| !leaves(host));
        }
        // They were of that operation, and the next one has its own.
        self.operation_variables.clear();
        self.authorities_secret_ref = None;
        self.snapshots = None;
        self
    }

    /// Whether the inputs of a plan have a host of that name: each host asks it of each plan, so nothing else is read.
    pub fn has_host(map: &Map<String, Value>, name: &str) -> bool {
        let hosts = map.get("hosts").and_then(Value::as_array);
        hosts
            .into_iter()
            .flatten()
            .any(|host| host["name"] == *name)
    }

    /// Whether the operation of a plan with these inputs removes a host of that name.
    pub fn removes(map: &Map<String, Value>, name: &str) -> bool {
        let leaving = map.get("leaving").and_then(Value::as_array);
        leaving.into_iter().flatten().any(|host| *host == *name)
    }

    /// What the inventory is compiled from: nothing that holds a secret. `excluded` names hosts to leave out.
    pub fn to_inventory(
        &self,
        directories: Directories,
        key: Option<PathBuf>,
        excluded: &[HostName],
    ) -> InventoryInput {
        InventoryInput {
            hosts: self
                .hosts
                .iter()
                .map(|host| ansible::inventory::Host {
                    name: host.name.clone(),
                    roles: host.roles.clone(),
                    variables: api::node::HostVariables {
                        other: variables::plain(&host.variables.other),
                        ..host.variables.clone()
                    },
                    python: None,
                    excluded: excluded.iter().any(|name| name.as_str() == host.name),
                })
                .collect(),
            persisted: self.inventory.clone(),
            settings: Settings {
                kubespray: Some(self.kubespray),
                kubernetes: self.kubernetes,
                extra_vars: variables::plain(&self.variables),
                operation_vars: self.operation_variables.clone(),
                user: Some(self.ssh.user.clone()),
                port: Some(self.ssh.port),
                private_key: key,
                bastion: self.ssh.bastion.clone(),
                directories,
                passing: self.passing,
            },
        }
    }

    /// The names of the Secrets that the steps read.
    pub fn secrets(&self) -> BTreeSet<String> {
        let SshInput {
            key,
            known_hosts_secret,
            user: _,
            port: _,
            known_hosts: _,
            bastion: _,
            connect_timeout: _,
        } = &self.ssh;
        let references = [key, known_hosts_secret].into_iter().flatten();
        let names = references.map(|reference| reference.name.clone());
        let authorities = self.authorities_secret_ref.iter();
        names
            .chain(authorities.map(|reference| reference.name.clone()))
            .chain(self.snapshots.iter().flat_map(SnapshotsInput::secrets))
            .chain(self.variable_secrets())
            .collect()
    }

    /// The names of those that variables come from.
    pub fn variable_secrets(&self) -> BTreeSet<String> {
        let whole = [&self.extra_vars_secret_ref, &self.operation_secret_ref];
        let of_hosts = self.hosts.iter().map(|host| &host.extra_vars_secret_ref);
        let references = whole.into_iter().chain(of_hosts).flatten();
        let mut names: BTreeSet<String> =
            references.map(|reference| reference.name.clone()).collect();
        let of_hosts = self.hosts.iter().map(|host| &host.variables.other);
        let values = of_hosts.chain([&self.variables]).flat_map(Map::values);
        for value in values {
            variables::each_reference(value, &mut |reference| {
                names.insert(reference.name);
            });
        }
        names
    }

    /// The ports that the hosts are reached by.
    pub fn ssh_ports(&self) -> BTreeSet<u16> {
        let own = self
            .hosts
            .iter()
            .filter_map(|host| host.variables.ansible_port);
        let bastion = self
            .ssh
            .bastion
            .iter()
            .map(|bastion| bastion.port.unwrap_or(22));
        own.chain(bastion).chain([self.ssh.port]).collect()
    }

    /// These hosts as ssh reaches them. A bastion is proved by every host behind it.
    pub fn targets<'a>(&self, hosts: impl IntoIterator<Item = &'a HostName>) -> Vec<Target> {
        let known = self.hosts.iter().map(|host| (host.name.as_str(), host));
        let known: BTreeMap<_, _> = known.collect();
        let target = |name: &HostName| {
            let host = known.get(name.as_str())?;
            if host.roles == [Role::Bastion] {
                return None;
            }
            let variables = &host.variables;
            let user = variables.ansible_user.as_ref();
            Some(Target {
                name: name.clone(),
                address: variables.ansible_host.clone(),
                port: variables.ansible_port.unwrap_or(self.ssh.port),
                user: user.unwrap_or(&self.ssh.user).clone(),
            })
        };
        hosts.into_iter().filter_map(target).collect()
    }

    /// The hosts of one group, in order.
    pub fn group(&self, name: &str) -> &[HostName] {
        self.inventory.order.get(name).map_or(&[], Vec::as_slice)
    }

    /// The hosts that are nodes of the cluster once the operation succeeded.
    pub fn members(&self) -> Vec<HostName> {
        self.hosts
            .iter()
            .filter(|host| {
                host.roles
                    .iter()
                    .any(|role| matches!(role, Role::ControlPlane | Role::Worker))
            })
            .filter_map(|host| host.name.parse().ok())
            .filter(|name| !self.leaving.contains(name))
            .collect()
    }
}

/// The digest that names a plan. What changes while the wish stays the same has no part in it: the revisions of Secrets.
///
/// # Errors
///
/// The plan cannot be written as JSON.
pub fn digest(operation: &str, plan: &Plan) -> Result<String, serde_json::Error> {
    let mut lasting = plan.clone();
    lasting.inputs.remove("revisions");
    workflow::plan::digest_of(operation, &lasting)
}
