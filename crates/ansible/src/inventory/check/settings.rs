//! What holds for the whole cluster: counts, networks, variables.

use std::net::IpAddr;

use api::cluster::InventoryStatus;
use ipnet::IpNet;
use serde_json::Value;

use super::{
    InventoryError, InventoryInput, Level, PORT_REMEDY, PORT_RULE, field, is_address, is_user,
    kubernetes_address, refused,
};
use crate::{
    inventory::{AUTHORITIES, ExtraVars, K8S_CLUSTER},
    slice::FOUNDING,
};

/// Checks them.
pub(in crate::inventory) fn settings(
    input: &InventoryInput,
    variables: &ExtraVars,
    order: &InventoryStatus,
) -> Vec<InventoryError> {
    let mut errors = counts(input, variables, order);
    errors.extend(names_and_types(input));
    for family in [&V4, &V6] {
        if variables.flag(family.enabled, family.default_enabled) {
            errors.extend(networks(input, variables, order, family));
        }
    }
    errors
}

fn counts(
    input: &InventoryInput,
    variables: &ExtraVars,
    order: &InventoryStatus,
) -> Vec<InventoryError> {
    let count = |group: &str| order.order.get(group).map_or(0, Vec::len);
    let mut errors = Vec::new();
    if count("kube_control_plane") == 0 {
        errors.push(InventoryError::new(
            "ClusterNodes",
            "0 control-plane hosts",
            "a cluster has at least one control-plane host",
            "add a ClusterNode of type master",
        ));
    }
    let etcd = count("etcd");
    let with_kubeadm = variables.text("etcd_deployment_type", "host") == "kubeadm";
    if etcd == 0 && !with_kubeadm {
        errors.push(InventoryError::new(
            "ClusterNodes",
            "0 etcd hosts",
            "a cluster has at least one etcd member",
            "add a ClusterNode of type etcd, or give a master the role etcd",
        ));
    }
    let (count, kind) = if etcd == 0 && with_kubeadm {
        (
            count("kube_control_plane"),
            "control-plane hosts, each with an etcd member",
        )
    } else {
        (etcd, "etcd hosts")
    };
    if count > 0 && count % 2 == 0 && !input.settings.passing {
        errors.push(InventoryError::new(
            "ClusterNodes",
            format!("{count} {kind}"),
            "an etcd cluster has an odd number of members: an even one survives no more failures than the odd one below it",
            format!("add one more, or go down to {}", count.saturating_sub(1)),
        ));
    }
    errors
}

fn names_and_types(input: &InventoryInput) -> Vec<InventoryError> {
    let mut errors = Vec::new();
    if input.settings.port == Some(0) {
        errors.push(InventoryError::new(
            "Cluster spec.ssh.port",
            0,
            PORT_RULE,
            PORT_REMEDY,
        ));
    }
    errors.extend(logins(input));
    for (name, value) in &input.settings.extra_vars {
        let path = format!("Cluster spec.nodes.all.deploy.extraVars.{name}");
        errors.extend(refused(Level::Cluster, &path, name, value));
    }
    errors
}

/// Where and as whom ssh logs in: Ansible would template the user, and ssh take an address with a dash for an option.
fn logins(input: &InventoryInput) -> Vec<InventoryError> {
    let bastion = input.settings.bastion.as_ref();
    let users = [
        ("Cluster spec.ssh.user", input.settings.user.as_ref()),
        (
            "Cluster spec.ssh.bastion.user",
            bastion.and_then(|bastion| bastion.user.as_ref()),
        ),
    ];
    let users = users
        .into_iter()
        .filter_map(|(path, user)| Some((path, user.filter(|user| !is_user(user))?)))
        .map(|(path, user)| {
            InventoryError::new(
                path,
                format!("{user:?}"),
                "is not a user name",
                "use letters, digits, '_', '-', '.' and begin with a letter or '_'",
            )
        });
    let address = bastion
        .filter(|bastion| !is_address(&bastion.address))
        .map(|bastion| {
            InventoryError::new(
                "Cluster spec.ssh.bastion.address",
                format!("{:?}", bastion.address),
                "is neither an IP address nor a host name",
                "write the address that ssh connects to, for example 10.0.0.11",
            )
        });
    users.chain(address).collect()
}

/// A variable whose name Ansible would not accept.
pub(super) fn variable_name(path: &str, name: &str) -> Option<InventoryError> {
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let valid = first && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (!valid).then(|| {
        let rule = "the name of a variable is letters, digits and '_', and begins with no digit";
        InventoryError::new(
            path,
            name,
            rule,
            "write it as kubespray's documentation does",
        )
    })
}

/// A variable that is called a port and is none.
pub(super) fn port(path: &str, name: &str, value: &Value) -> Option<InventoryError> {
    let called = name == "port" || name.ends_with("_port");
    let wrong = value.is_number()
        && !value
            .as_u64()
            .is_some_and(|port| (1..=65535).contains(&port));
    (called && wrong).then(|| InventoryError::new(path, value, PORT_RULE, PORT_REMEDY))
}

/// A switch with a value that a run cannot work with.
pub(super) fn switch(path: &str, name: &str, value: &Value) -> Vec<InventoryError> {
    let mut errors: Vec<_> = boolean(path, name, value).into_iter().collect();
    if value == &Value::Bool(true)
        && let Some((_, why)) = MUST_BE_FALSE.iter().find(|(n, _)| *n == name)
    {
        let remedy = "write false, or leave it out";
        errors.push(InventoryError::new(path, value, *why, remedy));
    }
    errors
}

/// A switch that is written as a text: kubespray refuses some, and takes "false" for true in others.
fn boolean(path: &str, name: &str, value: &Value) -> Option<InventoryError> {
    let switch = name.ends_with("_enabled") && name != TEXT || SWITCHES.contains(&name);
    let text = value.as_str()?;
    let looks = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "yes" | "no" | "on" | "off"
    );
    (switch && looks).then(|| {
        InventoryError::new(
            path,
            format!("{text:?}"),
            "is a text, not a boolean",
            "write true or false without quotes",
        )
    })
}

struct Family {
    enabled: &'static str,
    default_enabled: bool,
    services: (&'static str, &'static str),
    pods: (&'static str, &'static str),
    node_prefix: (&'static str, u8),
}

fn networks(
    input: &InventoryInput,
    variables: &ExtraVars,
    order: &InventoryStatus,
    family: &Family,
) -> Vec<InventoryError> {
    let mut errors = Vec::new();
    let services = network(variables, family.services, &mut errors);
    let pods = network(variables, family.pods, &mut errors);
    if let (Some(services), Some(pods)) = (services, pods)
        && (services.contains(&pods) || pods.contains(&services))
    {
        errors.push(InventoryError::new(
            path(family.pods.0),
            pods,
            format!("overlaps {} {services}", family.services.0),
            "choose two networks that have no address in common",
        ));
    }
    for (name, network) in [(family.services.0, services), (family.pods.0, pods)] {
        errors.extend(hosts_inside(input, name, network));
    }
    errors.extend(pods.and_then(|pods| room(variables, order, family, pods)));
    errors.extend(room_on_a_node(variables, family));
    errors
}

fn path(name: &str) -> String {
    format!("Cluster spec.nodes.all.deploy.extraVars.{name}")
}

fn network(
    variables: &ExtraVars,
    (name, default): (&str, &str),
    errors: &mut Vec<InventoryError>,
) -> Option<IpNet> {
    let text = variables.text(name, default);
    if text.contains("{{") {
        return None;
    }
    let (rule, remedy) = match text.parse::<IpNet>() {
        Ok(network) if network.trunc() == network => return Some(network),
        Ok(network) => (
            "is an address inside a network, not a network",
            format!("write {}", network.trunc()),
        ),
        Err(_) => (
            "is not a network",
            format!("write an address and a prefix length, for example {default}"),
        ),
    };
    errors.push(InventoryError::new(
        path(name),
        format!("{text:?}"),
        rule,
        remedy,
    ));
    None
}

fn hosts_inside(input: &InventoryInput, name: &str, network: Option<IpNet>) -> Vec<InventoryError> {
    let inside = |ip: &IpAddr| network.is_some_and(|network| network.contains(ip));
    let hosts = input
        .hosts
        .iter()
        .filter_map(|host| Some((host, kubernetes_address(host).filter(inside)?)));
    let errors = hosts.map(|(host, ip)| {
        InventoryError::new(
            field(host, "spec.inventory.ip"),
            ip,
            format!(
                "lies in {name} {}",
                network.map_or_else(String::new, |n| n.to_string())
            ),
            format!("choose another {name}: the network of the hosts must be outside"),
        )
    });
    errors.collect()
}

/// Calico hands out blocks by itself; the other plugins give every node a network of fixed size.
fn room(
    variables: &ExtraVars,
    order: &InventoryStatus,
    family: &Family,
    pods: IpNet,
) -> Option<InventoryError> {
    if variables.text("kube_network_plugin", "calico") == "calico" {
        return None;
    }
    let prefix = integer(variables, family.node_prefix)?;
    let mut nodes: Vec<_> = K8S_CLUSTER
        .iter()
        .filter_map(|group| order.order.get(*group))
        .flatten()
        .collect();
    nodes.sort();
    nodes.dedup();
    let possible = prefix
        .checked_sub(i64::from(pods.prefix_len()))
        .filter(|bits| *bits >= 0);
    let possible = possible.map_or(0, |bits| {
        1_u64
            .checked_shl(u32::try_from(bits).unwrap_or(63))
            .unwrap_or(u64::MAX)
    });
    let count = u64::try_from(nodes.len()).unwrap_or(u64::MAX);
    (possible < count).then(|| {
        InventoryError::new(
            path(family.pods.0),
            pods,
            format!(
                "holds {possible} networks of /{prefix} ({}), one a node, for {count} nodes",
                family.node_prefix.0
            ),
            "choose a larger network for pods, or a longer prefix for a node",
        )
    })
}

fn room_on_a_node(variables: &ExtraVars, family: &Family) -> Option<InventoryError> {
    let plugin = variables.text("kube_network_plugin", "calico");
    if !family.default_enabled || matches!(plugin, "calico" | "none") {
        return None;
    }
    let prefix = integer(variables, family.node_prefix)?;
    let pods = integer(variables, ("kubelet_max_pods", 110))?;
    let bits = u32::try_from(32 - prefix).unwrap_or(0).min(32);
    let room = (1_i64 << bits) - 2;
    (pods > room).then(|| {
        InventoryError::new(
            path(family.node_prefix.0),
            prefix,
            format!("a network of /{prefix} has {} addresses for pods, and a node may run {pods} (kubelet_max_pods)", room.max(0)),
            "write a smaller number for the prefix, or a smaller kubelet_max_pods",
        )
    })
}

fn integer(variables: &ExtraVars, (name, default): (&str, u8)) -> Option<i64> {
    match variables.value(name) {
        None => Some(i64::from(default)),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(value) => value.as_i64(),
    }
}

const V4: Family = Family {
    enabled: "ipv4_stack",
    default_enabled: true,
    services: ("kube_service_addresses", "10.233.0.0/18"),
    pods: ("kube_pods_subnet", "10.233.64.0/18"),
    node_prefix: ("kube_network_node_prefix", 24),
};

const V6: Family = Family {
    enabled: "ipv6_stack",
    default_enabled: false,
    services: (
        "kube_service_addresses_ipv6",
        "fd85:ee78:d8a6:8607::1000/116",
    ),
    pods: ("kube_pods_subnet_ipv6", "fd85:ee78:d8a6:8607::1:0000/112"),
    node_prefix: ("kube_network_node_prefix_ipv6", 120),
};

const HOST_REMEDY: &str =
    "write it into the ClusterNode's spec.inventory: here it would hold for every host";
const OPERATION_REMEDY: &str = "leave it out: the operation sets it";
const DIRECTORY_REMEDY: &str = "leave it out: every cluster has its own directory";
const SSH_REMEDY: &str =
    "use spec.ssh of the Cluster, or spec.runner.ansible for settings of ansible.cfg";

/// Variables that may not be set for the whole cluster.
pub(super) const RESERVED: &[(&str, &str)] = &[
    ("ansible_host", HOST_REMEDY),
    ("ansible_ssh_host", HOST_REMEDY),
    ("ansible_port", "write spec.ssh.port of the Cluster"),
    ("ansible_user", "write spec.ssh.user of the Cluster"),
    ("ansible_ssh_user", "write spec.ssh.user of the Cluster"),
    ("ansible_connection", SSH_REMEDY),
    ("ansible_ssh_args", SSH_REMEDY),
    ("ansible_ssh_common_args", SSH_REMEDY),
    ("ansible_ssh_extra_args", SSH_REMEDY),
    (
        "ansible_ssh_private_key_file",
        "name a Secret in spec.ssh.privateKeySecretRef",
    ),
    (
        "ansible_password",
        "use a key: spec.ssh.privateKeySecretRef",
    ),
    (
        "ansible_ssh_pass",
        "use a key: spec.ssh.privateKeySecretRef",
    ),
    (
        "ansible_become_password",
        "allow sudo without a password for the user",
    ),
    ("ip", HOST_REMEDY),
    ("access_ip", HOST_REMEDY),
    ("etcd_member_name", HOST_REMEDY),
    ("kube_override_hostname", HOST_REMEDY),
    (
        "kube_version",
        "write spec.kubernetesVersion of the Cluster",
    ),
    ("artifacts_dir", DIRECTORY_REMEDY),
    ("credentials_dir", DIRECTORY_REMEDY),
    ("node", OPERATION_REMEDY),
    ("reset_nodes", OPERATION_REMEDY),
    ("reset_confirmation", OPERATION_REMEDY),
    ("skip_confirmation", OPERATION_REMEDY),
    (FOUNDING, OPERATION_REMEDY),
    (
        AUTHORITIES,
        "use spec.operations.creation.authoritiesSecretRef",
    ),
    (
        "any_errors_fatal",
        "use spec.operations.creation.thresholds: Ansible ignores the variable",
    ),
];

/// Variables for the whole cluster that are read here, or where a plan is made of them.
pub(super) const READ: &[&str] = &[
    "calico_datastore",
    "cilium_deploy_additionally",
    "etcd_deployment_type",
    "ipv4_stack",
    "ipv6_stack",
    "kube_network_node_prefix",
    "kube_network_node_prefix_ipv6",
    "kube_network_plugin",
    "kube_pods_subnet",
    "kube_pods_subnet_ipv6",
    "kube_service_addresses",
    "kube_service_addresses_ipv6",
    "kubeconfig_localhost",
    "kubelet_binary_checksum",
    "kubelet_max_pods",
    "unsafe_show_logs",
    "upgrade_node_confirm",
    "upgrade_node_post_upgrade_confirm",
];

const WAITS: &str = "would wait for a person at a terminal that is not there";

/// Switches that a run cannot work with.
const MUST_BE_FALSE: &[(&str, &str)] = &[
    ("upgrade_node_confirm", WAITS),
    ("upgrade_node_post_upgrade_confirm", WAITS),
    ("unsafe_show_logs", "would write credentials into logs"),
];

/// Part of a command line: kubespray's samples write it as a text.
const TEXT: &str = "docker_iptables_enabled";

/// Switches whose names do not end in `_enabled`.
const SWITCHES: &[&str] = &[
    "deploy_netchecker",
    "download_always_pull",
    "download_localhost",
    "download_run_once",
    "flush_iptables",
    "ipv4_stack",
    "ipv6_stack",
    "kube_external_ca_mode",
    "kubeconfig_localhost",
    "kubectl_localhost",
    "reset_restart_network",
    "skip_downloads",
];
