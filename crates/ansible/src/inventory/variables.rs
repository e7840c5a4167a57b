//! Variables: of a host, of all hosts, and those that are passed to every play.

use std::net::Ipv4Addr;

use api::cluster::InventoryStatus;
use serde_json::{Map, Value, json};

use super::{Host, Settings};
use crate::catalogue;

/// The variables of every play, resolved: Windlass' defaults, then the person's, then what Windlass must own.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtraVars(Map<String, Value>);

impl ExtraVars {
    /// Resolves them.
    pub fn resolve(settings: &Settings) -> Self {
        let mut variables = defaults();
        let release = settings.kubespray.unwrap_or(catalogue::newest().version);
        if let Some(version) = settings.kubernetes {
            variables.insert(
                "kube_version".to_owned(),
                catalogue::kube_version(release, version).into(),
            );
        }
        variables.extend(settings.extra_vars.clone());
        variables.extend(owned(settings));
        variables.extend(settings.operation_vars.clone());
        Self(variables)
    }

    /// The value of one variable.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The text of one variable, or kubespray's default.
    pub(super) fn text<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.0.get(name).and_then(Value::as_str).unwrap_or(default)
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(default)
    }

    /// Whether every node needs an etcd client certificate, as kubespray's playbook `install_etcd.yml` decides it.
    pub(super) fn nodes_need_etcd(&self) -> bool {
        let plugin = self.text("kube_network_plugin", "calico");
        let datastore = self.text("calico_datastore", "kdd");
        let wanted = matches!(plugin, "flannel" | "canal" | "cilium")
            || self.flag("cilium_deploy_additionally", false)
            || (plugin == "calico" && datastore == "etcd");
        wanted && self.text("etcd_deployment_type", "host") != "kubeadm"
    }

    /// All of them, typed.
    pub fn into_map(self) -> Map<String, Value> {
        self.0
    }
}

/// Where Windlass differs from kubespray, because kubespray's defaults can lock a person out of the hosts
/// (`flush_iptables`, `reset_restart_network`), wait for a person at a terminal that is not there, or leave the kubeconfig
/// on the cluster only.
fn defaults() -> Map<String, Value> {
    object(json!({
        "kubeconfig_localhost": true,
        "kubectl_localhost": false,
        "flush_iptables": false,
        "reset_restart_network": false,
        "upgrade_node_confirm": false,
        "upgrade_node_post_upgrade_confirm": false,
    }))
}

fn owned(settings: &Settings) -> Map<String, Value> {
    object(json!({
        "artifacts_dir": settings.directories.artifacts,
        "credentials_dir": settings.directories.credentials,
    }))
}

/// The variables of one host.
pub(super) fn of_host(host: &Host, order: &InventoryStatus) -> Map<String, Value> {
    let given = &host.variables;
    let mut variables = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            variables.insert(name.to_owned(), value);
        }
    };
    let text = |value: &Option<String>| value.clone().map(Value::from);
    set("ansible_host", Some(given.ansible_host.clone().into()));
    set("ansible_port", given.ansible_port.map(Value::from));
    set("ansible_user", text(&given.ansible_user));
    set(
        "ansible_python_interpreter",
        host.python.as_ref().map(|path| path.to_string().into()),
    );
    let address = given
        .ansible_host
        .parse::<Ipv4Addr>()
        .ok()
        .map(|ip| ip.to_string());
    set("ip", given.ip.clone().or(address).map(Value::from));
    set("access_ip", text(&given.access_ip));
    set(
        "etcd_member_name",
        order
            .etcd_member_names
            .get(&host.name)
            .cloned()
            .map(Value::from),
    );
    variables.extend(given.other.clone());
    variables
}

/// The variables of all hosts.
pub(super) fn of_all(settings: &Settings) -> Map<String, Value> {
    let user = settings.user.as_deref().unwrap_or("root");
    let mut variables = object(json!({
        "ansible_user": user,
        "ansible_port": settings.port.unwrap_or(22),
        "ansible_become": user != "root",
    }));
    if let Some(key) = &settings.private_key {
        variables.insert("ansible_ssh_private_key_file".to_owned(), json!(key));
    }
    variables
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
