//! What each host gets from the objects, held against what it got from the inventory that they were made of.

use std::collections::{BTreeMap, BTreeSet};

use ansible::{
    inventory::{self, Directories, Inventory, Level},
    listing::Listing,
};
use api::node::Role;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use serde_json::{Map, Value};

use super::{
    Adopted, Existing,
    existing::{is_secret, revealed},
    hosts::{self, KEYS},
    variables::listed,
};
use crate::{
    preview::{self, Objects},
    problem::{self, Problem},
    variables::{self, Content, Holds},
};

/// The inventory that a plan of the objects would be executed with.
///
/// # Errors
///
/// Everything that is wrong with the objects at once.
pub fn inventory(adopted: &Adopted, directories: Directories) -> Result<Inventory, Vec<Problem>> {
    let objects = Objects {
        clusters: vec![adopted.cluster.clone()],
        nodes: adopted.nodes.clone(),
        secrets: adopted.secret.iter().cloned().collect(),
        ..Objects::default()
    };
    let inputs = preview::inputs(&adopted.cluster, &objects)?;
    let input = inputs.to_inventory(directories, None, &[]);
    inventory::compile(&input)
        .map_err(|errors| errors.into_iter().map(problem::of_inventory).collect())
}

/// Something that hosts get another value of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Difference {
    /// The variable, or the group.
    pub name: String,
    /// On which hosts.
    pub hosts: String,
    /// What it was, if it was. `(secret)`: that is not shown.
    pub before: Option<String>,
    /// What it is, if it is.
    pub after: Option<String>,
    /// Why it is no difference to the cluster, or how to make it none.
    pub why: Option<&'static str>,
    /// Whether Windlass sets the variable itself, so that it is no difference to the cluster.
    pub own: bool,
}

/// What differs. `inventory` is what the objects are compiled to, and `read` what Ansible makes of its files.
pub fn differences(
    existing: &Existing,
    adopted: &Adopted,
    inventory: &Inventory,
    read: &Listing,
) -> Vec<Difference> {
    let mut differences = orders(existing, inventory);
    let mut found: BTreeMap<Told, Vec<String>> = BTreeMap::new();
    let everywhere = everywhere(adopted, inventory);
    let ssh = adopted.cluster.spec.ssh.as_ref();
    let named_user = ssh.is_some_and(|ssh| ssh.user.is_some());
    for node in &adopted.nodes {
        let host = node.name_any();
        let before: BTreeMap<String, Seen> = existing
            .variables(&host)
            .map(|(name, value)| (name.to_owned(), Seen(revealed(value), is_secret(value))))
            .collect();
        let mut after = of_host(adopted, node, read);
        after.extend(everywhere.clone());
        let names = before.keys().chain(after.keys());
        let names: BTreeSet<_> = names.collect();
        for name in names {
            let (was, is) = (before.get(name), after.get(name));
            let same = match (was, is) {
                (Some(was), Some(is)) => was.0 == is.0,
                (was, is) => was.is_none() && is.is_none(),
            };
            if !same {
                let told = Told {
                    name: name.clone(),
                    before: was.map(Seen::shown),
                    after: is.map(|is| {
                        // Where that lies is not known here.
                        let own = DIRECTORIES.contains(&name.as_str());
                        if own { OWN.to_owned() } else { is.shown() }
                    }),
                    judged: judge(name, &before, &after, &host, named_user),
                };
                found.entry(told).or_default().push(host.clone());
            }
        }
    }
    let count = adopted.nodes.len();
    differences.extend(found.into_iter().map(|(told, hosts)| {
        let (why, own) = match told.judged {
            Judged::Own(why) => (Some(why), true),
            Judged::Hint(why) => (Some(why), false),
            Judged::Other => (None, false),
        };
        Difference {
            name: told.name,
            hosts: listed(&hosts, count),
            before: told.before,
            after: told.after,
            why,
            own,
        }
    }));
    differences
}

/// A value, and whether it is secret.
#[derive(Clone)]
struct Seen(Value, bool);

impl Seen {
    fn shown(&self) -> String {
        if self.1 {
            "(secret)".to_owned()
        } else {
            api::text::plain(&self.0.to_string(), 256)
        }
    }
}

#[derive(Eq, Ord, PartialEq, PartialOrd)]
struct Told {
    name: String,
    before: Option<String>,
    after: Option<String>,
    judged: Judged,
}

#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum Judged {
    Own(&'static str),
    Hint(&'static str),
    Other,
}

/// What a difference of a variable means.
fn judge(
    name: &str,
    before: &BTreeMap<String, Seen>,
    after: &BTreeMap<String, Seen>,
    host: &str,
    named_user: bool,
) -> Judged {
    let text = |of: &BTreeMap<String, Seen>, name: &str| {
        let value = of.get(name).map(|seen| &seen.0);
        value.map(|value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        })
    };
    let (was, is) = (text(before, name), text(after, name));
    let renamed = |older: &str, newer: &str| {
        (name == older && text(before, older) == text(after, newer))
            || (name == newer && text(before, older) == is)
    };
    match name {
        name if DIRECTORIES.contains(&name) => Judged::Own("every cluster has such a directory"),
        "flush_iptables"
        | "kubeconfig_localhost"
        | "kubectl_localhost"
        | "reset_restart_network"
        | "upgrade_node_confirm"
        | "upgrade_node_post_upgrade_confirm"
            if was.is_none() =>
        {
            Judged::Own("Windlass' default")
        }
        "ansible_host" if was.is_none() && is.as_deref() == Some(host) => {
            Judged::Own("Ansible connects to the name where nothing is said")
        }
        "ansible_host" | "ansible_ssh_host" if renamed("ansible_ssh_host", "ansible_host") => {
            Judged::Own("the older name of ansible_host")
        }
        "ansible_user" | "ansible_ssh_user" if renamed("ansible_ssh_user", "ansible_user") => {
            Judged::Own("the older name of ansible_user")
        }
        "ansible_port" | "ansible_ssh_port" if renamed("ansible_ssh_port", "ansible_port") => {
            Judged::Own("the older name of ansible_port")
        }
        "ansible_port" if was.is_none() && is.as_deref() == Some("22") => {
            Judged::Own("ssh's own port")
        }
        "ansible_user" if was.is_none() && named_user => Judged::Own("spec.ssh.user says it"),
        "ansible_user" if was.is_none() => {
            Judged::Hint("Ansible logged in as whoever ran it: name that user with --ssh-user")
        }
        "ansible_become" if was.as_deref().is_none_or(is_true) || !is_other_user(after) => {
            Judged::Own("Windlass becomes root where it logs in as somebody else")
        }
        "ansible_connection" if is.is_none() && matches!(was.as_deref(), Some("ssh" | "smart")) => {
            Judged::Own("Windlass always connects by ssh")
        }
        name if KEYS.contains(&name) => Judged::Own("the key is in the Secret that spec.ssh names"),
        "kube_version" if same_version(was.as_deref(), is.as_deref()) => {
            Judged::Own("written as the release writes it")
        }
        "etcd_member_name" if was.is_none() => {
            Judged::Own("the name of the member, which the inventory does not say")
        }
        "ip" if was.is_none() => Judged::Hint(
            "kubespray would take the address of the host's default route: write the ip that it has into the old inventory",
        ),
        _ => Judged::Other,
    }
}

/// What is shown of them.
const OWN: &str = "a directory of Windlass";

/// The variables that name directories which Windlass keeps of each cluster.
const DIRECTORIES: [&str; 2] = ["artifacts_dir", "credentials_dir"];

fn is_true(text: &str) -> bool {
    matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "yes" | "on" | "1"
    )
}

fn is_other_user(after: &BTreeMap<String, Seen>) -> bool {
    after
        .get("ansible_user")
        .is_some_and(|user| user.0 != "root")
}

fn same_version(was: Option<&str>, is: Option<&str>) -> bool {
    let bare = |text: &str| text.trim_start_matches('v').to_owned();
    was.zip(is).is_some_and(|(was, is)| bare(was) == bare(is))
}

/// The first hosts of these hold authorities, and the others have names by their place.
fn orders(existing: &Existing, inventory: &Inventory) -> Vec<Difference> {
    let mut differences = Vec::new();
    for (role, group) in [
        (Role::ControlPlane, "kube_control_plane"),
        (Role::Etcd, "etcd"),
    ] {
        let before = hosts::members(existing, role);
        let after = inventory.group(group).iter().map(ToString::to_string);
        let after: Vec<String> = after.collect();
        if before != after {
            differences.push(Difference {
                name: format!("groups['{group}']"),
                hosts: "all hosts".to_owned(),
                before: Some(before.join(", ")),
                after: Some(after.join(", ")),
                why: None,
                own: false,
            });
        }
    }
    differences
}

/// What a host has beside what all have.
fn of_host(adopted: &Adopted, node: &api::ClusterNode, read: &Listing) -> BTreeMap<String, Seen> {
    let mut all = BTreeMap::new();
    if let Some(reference) = &node.spec.extra_vars_secret_ref {
        all.extend(whole(adopted.secret.as_ref(), reference, Level::Host));
    }
    if let Some(variables) = read.hosts().get(&node.name_any()) {
        all.extend(open(variables));
    }
    all.extend(filled_in(
        adopted.secret.as_ref(),
        &node.spec.inventory.other,
    ));
    all
}

/// What all hosts have, which wins over what each has.
fn everywhere(adopted: &Adopted, inventory: &Inventory) -> BTreeMap<String, Seen> {
    let mut all = BTreeMap::new();
    let nodes = adopted.cluster.spec.nodes.as_ref();
    let deploy = nodes.and_then(|nodes| nodes.all.as_ref()?.deploy.as_ref());
    let Some(deploy) = deploy else { return all };
    if let Some(reference) = &deploy.extra_vars_secret_ref {
        all.extend(whole(adopted.secret.as_ref(), reference, Level::Cluster));
    }
    all.extend(open(inventory.extra_vars()));
    if let Some(variables) = &deploy.extra_vars {
        all.extend(filled_in(adopted.secret.as_ref(), variables));
    }
    all
}

fn open(variables: &Map<String, Value>) -> impl Iterator<Item = (String, Seen)> {
    let variables = variables.iter();
    variables.map(|(name, value)| (name.clone(), Seen(value.clone(), false)))
}

/// The variables that a Secret holds.
fn whole(
    secret: Option<&Secret>,
    reference: &api::cluster::SecretKeyRef,
    level: Level,
) -> Vec<(String, Seen)> {
    let content = secret.map(|secret| variables::read(secret, reference, Holds::Variables(level)));
    match content {
        Some(Ok(Content::Variables(variables))) => variables
            .into_iter()
            .map(|(name, value)| (name, Seen(value, true)))
            .collect(),
        _ => Vec::new(),
    }
}

/// The variables with references, with what these refer to.
fn filled_in(secret: Option<&Secret>, variables: &Map<String, Value>) -> Vec<(String, Seen)> {
    let with = variables
        .iter()
        .filter(|(_, value)| variables::holds_reference(value));
    with.map(|(name, value)| (name.clone(), Seen(filled(secret, value), true)))
        .collect()
}

fn filled(secret: Option<&Secret>, value: &Value) -> Value {
    match (value, variables::reference(value)) {
        (_, Some(reference)) => {
            let content = reference.zip(secret);
            match content
                .map(|(reference, secret)| variables::read(secret, &reference, Holds::Value))
            {
                Some(Ok(Content::Value(text))) => text.into(),
                _ => Value::Null,
            }
        }
        (Value::Object(fields), _) => Value::Object(
            fields
                .iter()
                .map(|(name, value)| (name.clone(), filled(secret, value)))
                .collect(),
        ),
        (Value::Array(items), _) => items.iter().map(|item| filled(secret, item)).collect(),
        (plain, _) => plain.clone(),
    }
}
