//! What is refused before a host is asked anything.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use api::node::Role;
use serde_json::Value;

use super::{Host, InventoryInput};

mod data;
mod order;
mod settings;

pub(super) use data::override_rule;
pub use data::overrides;
pub use order::appends;
pub(super) use order::order;
pub(super) use settings::settings;

/// One mistake of an inventory's input.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{field}: {value}: {rule}; {remedy}")]
pub struct InventoryError {
    /// Where it stands, for example `ClusterNode/worker-1 spec.inventory.ip`.
    pub field: String,
    /// What stands there.
    pub value: String,
    /// What it breaks.
    pub rule: String,
    /// What a person can do.
    pub remedy: String,
}

impl InventoryError {
    fn new(
        field: impl Into<String>,
        value: impl fmt::Display,
        rule: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (field, rule, remedy) = (field.into(), rule.into(), remedy.into());
        Self {
            field,
            value: value.to_string(),
            rule,
            remedy,
        }
    }
}

/// Checks the hosts, one by one and against each other.
pub(super) fn hosts(input: &InventoryInput) -> Vec<InventoryError> {
    let mut errors = Vec::new();
    for host in &input.hosts {
        name(host, &mut errors);
        addresses(host, &mut errors);
        variables(host, &mut errors);
    }
    unique_names(&input.hosts, &mut errors);
    let default_port = input.settings.port.unwrap_or(22);
    unique(
        &input.hosts,
        "ansible_host",
        |host| {
            let port = host.variables.ansible_port.unwrap_or(default_port);
            Some(format!("{} port {port}", host.variables.ansible_host))
        },
        &mut errors,
    );
    unique(
        &input.hosts,
        "ip",
        |host| kubernetes_address(host).map(|ip| ip.to_string()),
        &mut errors,
    );
    unique(
        &input.hosts,
        "access_ip",
        |host| host.variables.access_ip.clone(),
        &mut errors,
    );
    crossed(&input.hosts, default_port, &mut errors);
    errors
}

/// What a host is reached by may not be the address of another one in another field either: what is done to the one would be done to the
/// other. A port of its own leads elsewhere.
fn crossed(hosts: &[Host], default_port: u16, errors: &mut Vec<InventoryError>) {
    let port = |host: &Host| host.variables.ansible_port.unwrap_or(default_port);
    let (mut ips, mut access_ips) = (BTreeMap::new(), BTreeMap::new());
    for host in hosts {
        if let Some(ip) = kubernetes_address(host) {
            ips.entry(ip.to_string()).or_insert(host);
        }
        if let Some(ip) = &host.variables.access_ip {
            access_ips.entry(ip.clone()).or_insert(host);
        }
    }
    for host in hosts {
        let variables = &host.variables;
        let of_access = variables.access_ip.as_ref().and_then(|ip| {
            let other = ips.get(ip).filter(|other| other.name != host.name)?;
            Some(("access_ip", ip, *other))
        });
        let reached = &variables.ansible_host;
        let mut others = [&ips, &access_ips]
            .into_iter()
            .filter_map(|of| of.get(reached));
        let of_host = others
            .find(|other| port(other) == port(host) && other.variables.ansible_host != *reached)
            .map(|other| ("ansible_host", reached, *other));
        for (path, address, other) in of_access.into_iter().chain(of_host) {
            errors.push(InventoryError::new(
                field(host, &format!("spec.inventory.{path}")),
                address,
                format!("ClusterNode/{} has the same address", other.name),
                "give every host its own address, or delete one of the two ClusterNodes",
            ));
        }
    }
}

/// The address that Kubernetes uses on the host, where the inventory says it.
pub(super) fn kubernetes_address(host: &Host) -> Option<IpAddr> {
    let variables = &host.variables;
    variables
        .ip
        .as_ref()
        .unwrap_or(&variables.ansible_host)
        .parse()
        .ok()
}

fn field(host: &Host, path: &str) -> String {
    format!("ClusterNode/{} {path}", host.name)
}

fn name(host: &Host, errors: &mut Vec<InventoryError>) {
    if let Err(error) = host.name.parse::<api::HostName>() {
        let rule = error.to_string();
        errors.push(InventoryError::new(
            field(host, "metadata.name"),
            &host.name,
            rule,
            "rename the ClusterNode",
        ));
    }
    if GROUP_NAMES.contains(&host.name.as_str()) {
        let rule = "a host must not have the name of an inventory group: Ansible could not tell them apart";
        errors.push(InventoryError::new(
            field(host, "metadata.name"),
            &host.name,
            rule,
            format!("name the ClusterNode for example {}-1", host.name),
        ));
    }
    if host.roles.is_empty() {
        errors.push(InventoryError::new(
            field(host, "spec.roles"),
            "[]",
            "a host stands in at least one group",
            "name its roles, or leave the field out to take them from spec.type",
        ));
    }
}

fn addresses(host: &Host, errors: &mut Vec<InventoryError>) {
    let variables = &host.variables;
    if !is_address(&variables.ansible_host) {
        errors.push(InventoryError::new(
            field(host, "spec.inventory.ansible_host"),
            format!("{:?}", variables.ansible_host),
            "is neither an IP address nor a host name",
            "write the address that ssh connects to, for example 10.0.0.11",
        ));
    }
    for (path, value) in [("ip", &variables.ip), ("access_ip", &variables.access_ip)] {
        let Some(text) = value else { continue };
        if text.parse::<IpAddr>().is_err() {
            errors.push(InventoryError::new(
                field(host, &format!("spec.inventory.{path}")),
                format!("{text:?}"),
                "is not an IP address",
                "write an address of the host, for example 10.0.0.11",
            ));
        }
    }
    let user = &variables.ansible_user;
    if let Some(user) = user.as_ref().filter(|user| !is_user(user)) {
        errors.push(InventoryError::new(
            field(host, "spec.inventory.ansible_user"),
            format!("{user:?}"),
            "is not a user name",
            "use letters, digits, '_', '-', '.' and begin with a letter or '_'",
        ));
    }
    let member = &variables.etcd_member_name;
    if let Some(member) = member.as_ref().filter(|member| !is_address(member)) {
        errors.push(InventoryError::new(
            field(host, "spec.inventory.etcd_member_name"),
            format!("{member:?}"),
            "is not a name of letters, digits, '-', '_' and '.'",
            "write a name such as etcd1, or leave it out",
        ));
    }
    if variables.ansible_port == Some(0) {
        errors.push(InventoryError::new(
            field(host, "spec.inventory.ansible_port"),
            0,
            PORT_RULE,
            PORT_REMEDY,
        ));
    }
}

fn variables(host: &Host, errors: &mut Vec<InventoryError>) {
    for (name, value) in &host.variables.other {
        let path = field(host, &format!("spec.inventory.{name}"));
        errors.extend(refused(Level::Host, &path, name, value));
        // Drains, removals and health ask for the node by the host's name.
        if name == "kube_override_hostname" && value.as_str() != Some(&host.name) {
            errors.push(InventoryError::new(
                path,
                value,
                "the node of a host is called as its ClusterNode",
                "leave it out, and name the ClusterNode as the node is called",
            ));
        }
    }
}

/// Why a variable with this value is refused, whatever else there is. `path` is where it is named.
pub fn refused(level: Level, path: &str, name: &str, value: &Value) -> Vec<InventoryError> {
    if let Some((_, remedy)) = reserved(level, name) {
        let rule = "the variable is reserved: a value of your own would break the run";
        return vec![InventoryError::new(path, value, rule, remedy)];
    }
    let mut errors = Vec::new();
    errors.extend(settings::variable_name(path, name));
    errors.extend(settings::port(path, name, value));
    errors.extend(data::steering(path, name, value));
    match level {
        Level::Cluster => errors.extend(settings::switch(path, name, value)),
        Level::Host => {
            data::templates(path, value, &mut errors);
            unknown_types(path, value, &mut errors);
        }
    }
    errors
}

/// Whether Windlass itself reads the variable, as one that all hosts have in common.
pub fn is_of_the_whole_cluster(name: &str) -> bool {
    // How many pods a node may run is each node's own; it is only held against the room that all have.
    settings::READ.contains(&name) && name != "kubelet_max_pods"
}

/// A variable of a level that is Windlass' or Ansible's own, with what to do instead.
fn reserved(level: Level, name: &str) -> Option<(&'static str, &'static str)> {
    let own = match level {
        Level::Cluster => settings::RESERVED,
        Level::Host => RESERVED_ON_HOSTS,
    };
    let mut all = own.iter().chain(MAGIC);
    all.find(|(reserved, _)| *reserved == name).copied()
}

/// Null and floats have no meaning that YAML, JSON and Ansible agree on.
fn unknown_types(path: &str, value: &Value, errors: &mut Vec<InventoryError>) {
    let unknown = match value {
        Value::Null => Some("null"),
        Value::Number(number) if number.is_f64() => Some("a float"),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                unknown_types(&format!("{path}[{index}]"), item, errors);
            }
            None
        }
        Value::Object(entries) => {
            for (key, item) in entries {
                unknown_types(&format!("{path}.{key}"), item, errors);
            }
            None
        }
        _ => None,
    };
    if let Some(kind) = unknown {
        errors.push(InventoryError::new(
            path,
            value,
            format!("{kind} is not a type of a host variable: string, integer, boolean, list and object are"),
            "quote it if it is a text, or remove it",
        ));
    }
}

fn unique_names(hosts: &[Host], errors: &mut Vec<InventoryError>) {
    let mut seen = BTreeMap::new();
    for host in hosts {
        *seen.entry(host.name.as_str()).or_insert(0_usize) += 1;
    }
    for (name, count) in seen.into_iter().filter(|(_, count)| *count > 1) {
        errors.push(InventoryError::new(
            format!("ClusterNode/{name} metadata.name"),
            name,
            format!("{count} hosts have this name"),
            "give every host its own name",
        ));
    }
}

fn unique(
    hosts: &[Host],
    path: &str,
    value: impl Fn(&Host) -> Option<String>,
    errors: &mut Vec<InventoryError>,
) {
    let mut first: BTreeMap<String, &Host> = BTreeMap::new();
    for host in hosts {
        let Some(value) = value(host) else { continue };
        match first.get(&value).filter(|other| other.name != host.name) {
            Some(other) => errors.push(InventoryError::new(
                field(host, &format!("spec.inventory.{path}")),
                &value,
                format!("ClusterNode/{} has the same address", other.name),
                "give every host its own address, or delete one of the two ClusterNodes",
            )),
            None => {
                first.entry(value).or_insert(host);
            }
        }
    }
}

fn is_address(text: &str) -> bool {
    // RFC 1123, 2.1: what has the form of an address is one. 999.1.1.1 is a slip, and no name.
    let last = text.rsplit('.').next().unwrap_or_default();
    let like_an_address = text.contains('.') && last.bytes().all(|b| b.is_ascii_digit());
    let name = || {
        !like_an_address
            && text.len() <= 253
            && text.split('.').all(|label| {
                !label.is_empty()
                    && label.len() <= 63
                    && !label.starts_with('-')
                    && label
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            })
    };
    text.parse::<IpAddr>().is_ok() || name()
}

fn is_user(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-.@$".contains(&b))
}

/// For what a variable holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Level {
    /// For the whole cluster.
    Cluster,
    /// For one host.
    Host,
}

/// Why a variable may not have its value from a Secret, if it may not: as one of a spec, and where Windlass itself must read
/// the value to make a plan. `path` is where the variable is named.
pub fn refused_as_secret(level: Level, path: &str, name: &str) -> Option<InventoryError> {
    if let Some((_, remedy)) = reserved(level, name) {
        let rule = "the variable is reserved: a value of your own would break the run";
        return Some(InventoryError::new(path, name, rule, remedy));
    }
    let read = match level {
        Level::Cluster => settings::READ,
        Level::Host => READ_ON_HOSTS,
    };
    if read.contains(&name) {
        let rule =
            "the variable decides what is done and is checked before, so it cannot be a secret";
        let remedy = match level {
            Level::Cluster => "write it into spec.nodes.all.deploy.extraVars",
            Level::Host => "write it into the ClusterNode's spec.inventory",
        };
        return Some(InventoryError::new(path, name, rule, remedy));
    }
    // What steers Ansible is no secret, and a value that cannot be looked at is none that is known to be harmless.
    data::steering(path, name, &Value::Null).or_else(|| settings::variable_name(path, name))
}

/// Whether Ansible itself sets a variable.
pub(crate) fn is_magic(name: &str) -> bool {
    MAGIC.iter().any(|(magic, _)| *magic == name)
}

/// The hosts of a role.
fn with_role(hosts: &[Host], role: Role) -> impl Iterator<Item = &Host> {
    hosts.iter().filter(move |host| host.roles.contains(&role))
}

const PORT_RULE: &str = "a port is a number from 1 to 65535";
const PORT_REMEDY: &str = "write the port, for example 22, or leave it out";

/// Names that mean something else in a host pattern.
const GROUP_NAMES: &[&str] = &["all", "ungrouped", "localhost", "etcd", "bastion"];

const ADDRESS_REMEDY: &str = "write ansible_host, ansible_port and ansible_user";
const SECRET_REMEDY: &str =
    "put the key into a Secret and name it in the Cluster's spec.ssh.privateKeySecretRef";
const SSH_REMEDY: &str =
    "use spec.ssh of the Cluster, or spec.runner.ansible for settings of ansible.cfg";

/// Variables of a host that Windlass owns.
const RESERVED_ON_HOSTS: &[(&str, &str)] = &[
    ("ansible_ssh_host", ADDRESS_REMEDY),
    ("ansible_ssh_port", ADDRESS_REMEDY),
    ("ansible_ssh_user", ADDRESS_REMEDY),
    ("ansible_connection", SSH_REMEDY),
    ("ansible_ssh_args", SSH_REMEDY),
    ("ansible_ssh_common_args", SSH_REMEDY),
    ("ansible_ssh_extra_args", SSH_REMEDY),
    ("ansible_ssh_executable", SSH_REMEDY),
    ("ansible_ssh_private_key_file", SECRET_REMEDY),
    ("ansible_private_key_file", SECRET_REMEDY),
    ("ansible_password", SECRET_REMEDY),
    ("ansible_ssh_pass", SECRET_REMEDY),
    ("ansible_ssh_password", SECRET_REMEDY),
    (
        "ansible_become_password",
        "allow sudo without a password for the user",
    ),
    (
        "ansible_become_pass",
        "allow sudo without a password for the user",
    ),
    (
        "ansible_sudo_pass",
        "allow sudo without a password for the user",
    ),
];

/// Variables of a host that have fields of their own.
const READ_ON_HOSTS: &[&str] = &[
    "ansible_host",
    "ansible_port",
    "ansible_user",
    "ansible_python_interpreter",
    "ip",
    "access_ip",
    "etcd_member_name",
];

const MAGIC_REMEDY: &str = "use another name: Ansible sets this variable itself";

/// Variables that Ansible sets.
const MAGIC: &[(&str, &str)] = &[
    ("groups", MAGIC_REMEDY),
    ("group_names", MAGIC_REMEDY),
    ("hostvars", MAGIC_REMEDY),
    ("inventory_hostname", MAGIC_REMEDY),
    ("inventory_hostname_short", MAGIC_REMEDY),
    ("inventory_dir", MAGIC_REMEDY),
    ("inventory_file", MAGIC_REMEDY),
    ("playbook_dir", MAGIC_REMEDY),
    ("role_path", MAGIC_REMEDY),
    ("role_name", MAGIC_REMEDY),
    ("play_hosts", MAGIC_REMEDY),
    ("ansible_play_hosts", MAGIC_REMEDY),
    ("ansible_play_batch", MAGIC_REMEDY),
    ("ansible_check_mode", MAGIC_REMEDY),
    ("ansible_version", MAGIC_REMEDY),
    ("ansible_facts", MAGIC_REMEDY),
    ("vars", MAGIC_REMEDY),
    ("omit", MAGIC_REMEDY),
    ("environment", MAGIC_REMEDY),
];
