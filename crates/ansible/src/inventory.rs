//! Hosts and settings compiled to what Ansible reads: an inventory with static groups, typed variables, an ansible.cfg.
//!
//! Pure but for [`Inventory::write`]. Everything that kubespray's role `validate_inventory` checks without asking a host is
//! checked by [`compile`], before anything is touched, and more: kubespray trusts the order of its groups, so an order that
//! would move the head is refused here.
//!
//! Groups are written out, never left to kubespray's `group_by`: a dynamic group holds only the hosts of the play that made
//! it, so a run that is limited to some hosts would see a smaller `k8s_cluster` (measured; the guard for missing facts then
//! passes silently). Variables are JSON with their types, because Ansible makes strings of `-e key=value`.

use std::{collections::BTreeMap, path::PathBuf};

use api::{
    HostName, KubernetesVersion, KubesprayVersion,
    cluster::{Bastion, InventoryStatus},
    node::{HostVariables, Role},
};
use serde_json::{Map, Value};

use crate::slice::distinct;

mod check;
mod configuration;
mod files;
mod interpreter;
mod secret;
mod variables;

pub(crate) use check::is_magic;
pub use check::{
    InventoryError, Level, appends, is_of_the_whole_cluster, overrides, refused, refused_as_secret,
};
pub use configuration::{Configuration, ConfigurationError, ansible_cfg, forks};
pub use files::InventoryFiles;
pub use interpreter::{InvalidPythonPath, PythonPath};
pub use secret::{SecretFiles, SecretInventory, SecretValue};
pub use variables::ExtraVars;

/// The variable with the authorities that a new cluster is founded with. It is secret, and nobody else's.
pub const AUTHORITIES: &str = "windlass_authorities";

/// Everything an inventory is compiled from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InventoryInput {
    /// The hosts, in order of creation. Hosts that the persisted order knows are put where it says.
    pub hosts: Vec<Host>,
    /// The order that the cluster was built with, and the pinned names of its etcd members. Empty before the first run.
    pub persisted: InventoryStatus,
    /// What holds for the whole cluster.
    pub settings: Settings,
}

/// One host.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its name in the inventory: the name of its ClusterNode.
    pub name: String,
    /// The groups that it stands in, resolved: a master that is an etcd member says so.
    pub roles: Vec<Role>,
    /// Its variables.
    pub variables: HostVariables,
    /// The Python that Ansible uses on it, where a probe found one.
    pub python: Option<PythonPath>,
    /// Whether this run leaves it out. It stays in its groups, so that the others see the whole cluster.
    pub excluded: bool,
}

/// What holds for the whole cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The kubespray release; it decides how versions are written. Default: the newest.
    pub kubespray: Option<KubesprayVersion>,
    /// The Kubernetes version to install. Default: the release's own.
    pub kubernetes: Option<KubernetesVersion>,
    /// The person's variables. They win over Windlass' defaults, not over what Windlass must own.
    pub extra_vars: Map<String, Value>,
    /// What the operation itself sets, for example `node` or `upgrade_cluster_setup`. Wins over everything.
    pub operation_vars: Map<String, Value>,
    /// The user to log in as. Default: root.
    pub user: Option<String>,
    /// The ssh port. Default: 22.
    pub port: Option<u16>,
    /// The file that holds the private key.
    pub private_key: Option<PathBuf>,
    /// The host to reach the others through.
    pub bastion: Option<Bastion>,
    /// The cluster's own directories.
    pub directories: Directories,
    /// Whether etcd may have an even number of members: a cluster on its way from one odd number to the next, of which one joins
    /// or leaves at a time. No cluster is to stay so.
    pub passing: bool,
}

/// The directories that one cluster keeps from run to run. Two clusters must not share them: facts are files named after
/// hosts, and two clusters may both have a `node-1`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directories {
    /// Ansible's fact cache.
    pub facts: PathBuf,
    /// kubespray's `credentials_dir`.
    pub credentials: PathBuf,
    /// kubespray's `artifacts_dir`.
    pub artifacts: PathBuf,
}

impl Directories {
    /// The directories below a cluster's own.
    pub fn below(cluster: &std::path::Path) -> Self {
        Self {
            facts: cluster.join("facts"),
            credentials: cluster.join("credentials"),
            artifacts: cluster.join("artifacts"),
        }
    }
}

/// A compiled inventory.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    hosts: Vec<(HostName, Map<String, Value>)>,
    groups: BTreeMap<String, Vec<HostName>>,
    excluded: Vec<HostName>,
    variables: Map<String, Value>,
    extra_vars: Map<String, Value>,
    order: InventoryStatus,
    directories: Directories,
}

impl Inventory {
    /// Every host, in inventory order: control plane, etcd, nodes, route reflectors, bastions, each group in its order.
    pub fn hosts(&self) -> impl Iterator<Item = &HostName> {
        self.hosts.iter().map(|(name, _)| name)
    }

    /// The variables of one host.
    pub fn host(&self, name: &str) -> Option<&Map<String, Value>> {
        let mut hosts = self.hosts.iter();
        hosts
            .find(|(host, _)| host.as_str() == name)
            .map(|(_, variables)| variables)
    }

    /// The hosts of each group, `k8s_cluster` and `all` among them, in the order in which Ansible counts them.
    pub fn groups(&self) -> &BTreeMap<String, Vec<HostName>> {
        &self.groups
    }

    /// The hosts of one group; none if there is no such group.
    pub fn group(&self, name: &str) -> &[HostName] {
        self.groups.get(name).map_or(&[], Vec::as_slice)
    }

    /// The hosts that this run leaves out.
    pub fn excluded(&self) -> &[HostName] {
        &self.excluded
    }

    /// The value of `--limit` that leaves the excluded hosts out; none if no host is.
    pub fn limit(&self) -> Option<String> {
        let names: Vec<String> = self
            .excluded
            .iter()
            .map(|name| format!("!{name}"))
            .collect();
        (!names.is_empty()).then(|| format!("all:localhost:{}", names.join(":")))
    }

    /// The variables that are passed with `-e @vars.json`.
    pub fn extra_vars(&self) -> &Map<String, Value> {
        &self.extra_vars
    }

    /// The order to persist: what was persisted, and the new hosts behind it.
    pub fn order(&self) -> &InventoryStatus {
        &self.order
    }

    /// The cluster's directories.
    pub fn directories(&self) -> &Directories {
        &self.directories
    }
}

/// Compiles hosts and settings to an inventory.
///
/// # Errors
/// Every mistake of the input at once, not only the first.
pub fn compile(input: &InventoryInput) -> Result<Inventory, Vec<InventoryError>> {
    let mut errors = check::hosts(input);
    let names = parsed_names(input);
    let (order, order_errors) = check::order(input, &names);
    errors.extend(order_errors);
    let extra = ExtraVars::resolve(&input.settings);
    errors.extend(check::settings(input, &extra, &order));
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut groups: BTreeMap<String, Vec<HostName>> = GROUPS
        .iter()
        .map(|(_, group)| {
            (
                (*group).to_owned(),
                order.order.get(*group).cloned().unwrap_or_default(),
            )
        })
        .collect();
    let members = |groups: &BTreeMap<String, Vec<HostName>>, of: &[&str]| -> Vec<HostName> {
        distinct(of.iter().filter_map(|group| groups.get(*group)).flatten())
    };
    let cluster = members(&groups, K8S_CLUSTER);
    let all = members(&groups, &GROUPS.map(|(_, group)| group));
    let clients = if extra.nodes_need_etcd() {
        members(&groups, &["kube_node"])
    } else {
        Vec::new()
    };
    groups.insert("k8s_cluster".to_owned(), cluster);
    groups.insert(NEEDS_ETCD.to_owned(), clients);
    groups.insert("all".to_owned(), all.clone());
    let by_name: BTreeMap<&str, _> = input
        .hosts
        .iter()
        .map(|host| (host.name.as_str(), host))
        .collect();
    let hosts = all
        .into_iter()
        .filter_map(|name| {
            let host = by_name.get(name.as_str())?;
            let variables = variables::of_host(host, &order);
            Some((name, variables))
        })
        .collect();
    let excluded = input.hosts.iter().filter(|host| host.excluded);
    Ok(Inventory {
        hosts,
        groups,
        excluded: excluded
            .filter_map(|host| names.get(host.name.as_str()).cloned())
            .collect(),
        variables: variables::of_all(&input.settings),
        extra_vars: extra.into_map(),
        order,
        directories: input.settings.directories.clone(),
    })
}

fn parsed_names(input: &InventoryInput) -> BTreeMap<&str, HostName> {
    let names = input.hosts.iter().filter_map(|host| {
        let name = host.name.parse::<HostName>().ok()?;
        Some((host.name.as_str(), name))
    });
    names.collect()
}

/// The group of each role, in inventory order.
pub(crate) const GROUPS: [(Role, &str); 5] = [
    (Role::ControlPlane, "kube_control_plane"),
    (Role::Etcd, "etcd"),
    (Role::Worker, "kube_node"),
    (Role::CalicoRr, "calico_rr"),
    (Role::Bastion, "bastion"),
];

/// The children of `k8s_cluster`.
pub(crate) const K8S_CLUSTER: &[&str] = &["kube_control_plane", "kube_node", "calico_rr"];

/// The group that kubespray's play fills for nodes that need an etcd client certificate.
pub(crate) const NEEDS_ETCD: &str = "_kubespray_needs_etcd";
