//! Ids of plays: by what the play does, so that they hold over releases and playbooks.
//!
//! Plays have no names up to kubespray 2.22, and names change after; the roles of a play change less. A play that no rule
//! knows gets an id from its own name.

use std::collections::BTreeMap;

use super::Slice;

/// Gives every play its id, and a name where it has none.
pub(super) fn name(playbook: &str, slices: &mut [Slice]) {
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    for slice in slices {
        let id = known(slice).unwrap_or_else(|| general(playbook, slice));
        let count = used.entry(id.clone()).or_default();
        *count = count.saturating_add(1);
        slice.id = if *count > 1 {
            format!("{id}-{count}")
        } else {
            id
        };
        if slice.name.is_empty() {
            slice.name.clone_from(&slice.id);
        }
    }
}

fn known(slice: &Slice) -> Option<String> {
    if let Some((_, id)) = BY_NAME
        .iter()
        .find(|(name, _)| slice.name.eq_ignore_ascii_case(name))
    {
        return Some((*id).to_owned());
    }
    let stem = slice
        .file
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    if stem == "ansible_version" {
        return Some("preamble/check-ansible".to_owned());
    }
    let words: Vec<&str> = slice.name.split_whitespace().collect();
    if let ["Add", _, "nodes", "to", group] = words.as_slice() {
        return Some(format!("preamble/group-{}", slug(group)));
    }
    by_roles(slice).map(str::to_owned)
}

fn by_roles(slice: &Slice) -> Option<&'static str> {
    let roles = working_roles(slice);
    let has = |role: &str| roles.iter().any(|name| name == role);
    let only = |role: &str| roles.len() == 1 && has(role);
    let whole_cluster = slice.hosts.starts_with("k8s_cluster");
    let id = match () {
        () if roles.is_empty() && slice.hosts.contains("{{ node") => "remove/confirm",
        () if only("etcd") && sets_up_no_etcd(slice) && slice.hosts.contains("etcd") => {
            "etcd/certificates"
        }
        () if only("etcd") && slice.hosts.contains("etcd") => "etcd/install",
        () if only("etcd") => "etcd/node-certificates",
        () if only("kubernetes/preinstall") => "dns/resolv-conf",
        () if only("kubernetes/node") => "kubelet/install",
        () if only("container-engine") => "prepare/container-engine",
        () if has("upgrade/pre-upgrade") && has("kubernetes/control-plane") => {
            "control-plane/upgrade"
        }
        () if has("upgrade/pre-upgrade") => "workers/upgrade",
        () if has("kubernetes/control-plane") => "control-plane/install",
        () if has("remove-node/pre-remove") => "remove/reset",
        () if has("remove-node/post-remove") => "remove/forget",
        () if has("reset") => "reset/hosts",
        () if has("kubernetes/preinstall") && has("container-engine") && whole_cluster => {
            "prepare/hosts"
        }
        () if has("kubernetes/preinstall") && has("container-engine") => "prepare/workers",
        () if has("kubernetes/preinstall") && has("download") && whole_cluster => "prepare/upgrade",
        () if has("kubernetes/preinstall") && has("download") => "prepare/download",
        () if has("kubernetes/kubeadm") => "nodes/join",
        () if has("network-plugin/calico/rr") => "network/calico-rr",
        () if has("network-plugin") => "network/upgrade",
        () if has("kubernetes-apps") => "apps/install",
        () => ROLES.iter().find(|(role, _)| has(role))?.1,
    };
    Some(id)
}

/// The roles that do something, spelled with `-`: releases differ in `_` and `-`.
fn working_roles(slice: &Slice) -> Vec<String> {
    let roles = slice.roles.iter().map(|role| role.replace('_', "-"));
    roles.filter(|role| role != "kubespray-defaults").collect()
}

/// Whether the play only makes certificates: what leads to it says that no etcd is set up.
fn sets_up_no_etcd(slice: &Slice) -> bool {
    let mut imports = slice
        .imports
        .iter()
        .filter_map(|import| import.value.get("vars")?.get("etcd_cluster_setup"));
    let carried = imports.next_back().is_some_and(|value| value == false);
    carried || slice.text.contains("etcd_cluster_setup: false")
}

fn general(playbook: &str, slice: &Slice) -> String {
    let roles = working_roles(slice);
    let text = [slice.name.as_str()]
        .into_iter()
        .chain(roles.last().map(String::as_str))
        .chain([slice.hosts.as_str()])
        .map(slug)
        .find(|slug| !slug.is_empty());
    format!(
        "{}/{}",
        slug(playbook),
        text.unwrap_or_else(|| "play".to_owned())
    )
}

/// Lower-case words with `-`, at most 60 characters.
fn slug(text: &str) -> String {
    let mut slug = String::new();
    for c in text.chars().map(|c| c.to_ascii_lowercase()) {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.truncate(60);
    slug.trim_end_matches('-').to_owned()
}

/// Plays that only their name tells.
const BY_NAME: &[(&str, &str)] = &[
    ("Check Ansible version", "preamble/check-ansible"),
    ("Inventory setup and validation", "preamble/inventory"),
    ("Check inventory settings", "preamble/inventory"),
    (
        "Define groups for legacy less structured inventories",
        "preamble/groups",
    ),
    ("Install bastion ssh config", "preamble/bastion"),
    ("Bootstrap hosts for Ansible", "bootstrap/hosts"),
    ("Gather facts", "bootstrap/facts"),
    (
        "Add worker nodes to the etcd play if needed",
        "etcd/clients",
    ),
    (
        "Upload control plane certs and retrieve encryption key",
        "control-plane/upload-certificates",
    ),
    ("Validate nodes for removal", "remove/validate"),
    ("Confirm node removal", "remove/confirm"),
];

/// Plays that one role tells.
const ROLES: &[(&str, &str)] = &[
    ("bastion-ssh-config", "preamble/bastion"),
    ("bootstrap-os", "bootstrap/hosts"),
    ("win-nodes/kubernetes-patch", "apps/windows"),
    ("recover-control-plane/etcd", "recover/etcd"),
    (
        "recover-control-plane/control-plane",
        "recover/control-plane",
    ),
    ("recover-control-plane/post-recover", "recover/finish"),
];
