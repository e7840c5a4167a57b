//! The order of hosts, which is state: the first control-plane and etcd hosts are the authorities for certificates.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use api::{HostName, cluster::InventoryStatus};

use super::{Host, InventoryError, InventoryInput, field, with_role};
use crate::{inventory::GROUPS, slice::distinct};

/// The order to build with: what was persisted and is still there, then the new hosts. With what is wrong with it.
pub(in crate::inventory) fn order(
    input: &InventoryInput,
    names: &BTreeMap<&str, HostName>,
) -> (InventoryStatus, Vec<InventoryError>) {
    let mut errors = Vec::new();
    let mut order = BTreeMap::new();
    for (role, group) in GROUPS {
        let now = with_role(&input.hosts, role).filter_map(|host| names.get(host.name.as_str()));
        let now: Vec<&HostName> = now.collect();
        let before = input
            .persisted
            .order
            .get(group)
            .map_or(&[][..], Vec::as_slice);
        errors.extend(head(group, before, &now));
        let those: HashSet<_> = now.iter().copied().collect();
        let kept = before.iter().filter(|name| those.contains(name));
        let members = distinct(kept.chain(now));
        if !members.is_empty() {
            order.insert(group.to_owned(), members);
        }
    }
    let members = order.get("etcd").cloned().unwrap_or_default();
    let etcd_member_names = member_names(input, &members, &mut errors);
    (
        InventoryStatus {
            order,
            etcd_member_names,
            run: None,
        },
        errors,
    )
}

/// Checks that an order only appends to another: nothing in front, nothing between, the head in its place.
///
/// [`super::super::compile`] never makes another order by itself; this is for an order that comes from elsewhere, for
/// example from the Run before.
pub fn appends(before: &InventoryStatus, after: &InventoryStatus) -> Vec<InventoryError> {
    let mut errors = Vec::new();
    for (group, before) in &before.order {
        let after = after.order.get(group).map_or(&[][..], Vec::as_slice);
        let those: HashSet<_> = after.iter().collect();
        let kept: Vec<&HostName> = before.iter().filter(|name| those.contains(name)).collect();
        let front: Vec<&HostName> = after.iter().take(kept.len()).collect();
        if kept != front {
            errors.push(InventoryError::new(
                format!("status.inventory.order.{group}"),
                join(after.iter()),
                format!("the order that the cluster was built with is {}: hosts may only be added at its end", join(before.iter())),
                "put the hosts back into that order",
            ));
        }
        errors.extend(head(group, before, &after.iter().collect::<Vec<_>>()));
    }
    errors
}

/// The head of a group of authorities must stay.
fn head(group: &str, before: &[HostName], now: &[&HostName]) -> Option<InventoryError> {
    let head = before.first().filter(|_| HEADED.contains(&group))?;
    (!now.contains(&head)).then(|| {
        InventoryError::new(
            format!("ClusterNode/{head}"),
            "missing",
            format!("{head} is the head of {group}: it holds the authorities that the cluster was built with, and a run without it would make new ones"),
            format!("restore the ClusterNode {head} with its roles; to replace it, another host must be made head first"),
        )
    })
}

fn member_names(
    input: &InventoryInput,
    members: &[HostName],
    errors: &mut Vec<InventoryError>,
) -> BTreeMap<String, String> {
    let persisted = &input.persisted.etcd_member_names;
    let wish = |name: &HostName| -> Option<(&Host, &String)> {
        let host = input.hosts.iter().find(|host| host.name == name.as_str())?;
        Some((host, host.variables.etcd_member_name.as_ref()?))
    };
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for name in members {
        let pinned = persisted.get(name.as_str());
        if let (Some(pinned), Some((host, wished))) = (pinned, wish(name))
            && pinned != wished
        {
            errors.push(InventoryError::new(
                field(host, "spec.inventory.etcd_member_name"),
                wished,
                format!("the etcd member was created as {pinned}; a member cannot be renamed"),
                format!("write {pinned}, or leave the variable out"),
            ));
        }
        if let Some(fixed) = pinned.or_else(|| wish(name).map(|(_, wished)| wished)) {
            names.insert(name.to_string(), fixed.clone());
        }
    }
    let mut taken: BTreeSet<String> = names.values().cloned().collect();
    if taken.len() != names.len() {
        errors.push(InventoryError::new(
            "ClusterNode spec.inventory.etcd_member_name",
            join(names.values()),
            "two etcd members have the same name",
            "give every member its own name, or leave the variable out",
        ));
    }
    for (index, name) in members.iter().enumerate() {
        if names.contains_key(name.as_str()) {
            continue;
        }
        let mut candidates = (index.saturating_add(1)..).map(|number| format!("etcd{number}"));
        if let Some(free) = candidates.find(|candidate| !taken.contains(candidate)) {
            taken.insert(free.clone());
            names.insert(name.to_string(), free);
        }
    }
    names
}

fn join<T: ToString>(items: impl Iterator<Item = T>) -> String {
    let items: Vec<String> = items.map(|item| item.to_string()).collect();
    items.join(", ")
}

/// The groups whose first host is an authority.
const HEADED: &[&str] = &["kube_control_plane", "etcd"];
