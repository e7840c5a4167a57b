//! Who is first, and who comes after whom.

use std::collections::BTreeSet;

use kube::ResourceExt;
use kubespray::{
    inputs::Inputs,
    operation::{Operation, Order},
    request::REPLACED_BY,
};

use crate::{
    GUARDED, order,
    world::{Reality, World},
};

/// The head holds the authorities: nobody comes before it, and the rest keeps its order.
pub fn order_stays(before: &Reality, left: &Inputs, operation: &Operation) {
    // That one is for another head.
    if operation.order == Order::Moves {
        return;
    }
    let after = order(left);
    for (_, group) in GUARDED {
        let none = Vec::new();
        let (was, is) = (
            before.order.get(group).unwrap_or(&none),
            after.get(group).unwrap_or(&none),
        );
        let stay: Vec<_> = was.iter().filter(|host| is.contains(host)).collect();
        let first: Vec<_> = is.iter().take(stay.len()).collect();
        assert_eq!(
            first, stay,
            "{} reorders {group}: {was:?} to {is:?}",
            operation.name
        );
        assert_eq!(
            was.first(),
            is.first(),
            "{} moves the head of {group}",
            operation.name
        );
    }
    for (host, name) in &left.inventory.etcd_member_names {
        if let Some(known) = before.members.get(host) {
            assert_eq!(known, name, "{} renames the member {host}", operation.name);
        }
    }
}

/// Another host is first, which stays and works as far as is known; the one that was is the last of its group and is to leave; nobody
/// else moves, and nobody joins or leaves by it.
pub fn hands_over(world: &World, left: &Inputs) {
    let (before, after) = (&world.reality, order(left));
    assert!(left.leaving.is_empty(), "somebody leaves by it");
    let hosts: BTreeSet<_> = left.hosts.iter().map(|host| host.name.clone()).collect();
    let there: BTreeSet<_> = before.hosts.keys().cloned().collect();
    assert!(hosts.is_superset(&there), "{there:?} to {hosts:?}");
    let node = |name: &str| {
        let mut nodes = world.observed.nodes.iter();
        nodes.find(|node| node.name_any() == name)
    };
    let leaves =
        |name: &str| node(name).is_none_or(|node| node.metadata.deletion_timestamp.is_some());
    let mut moved = 0;
    for (role, group) in GUARDED {
        let (was, is) = (&before.order[group], &after[group]);
        if was == is {
            continue;
        }
        moved += 1;
        let (old, heir) = (&was[0], &is[0]);
        let replaced = node(old)
            .is_some_and(|node| leaves(old) && node.annotations().contains_key(REPLACED_BY));
        assert!(replaced, "{old} is not to be replaced, and {heir} is first");
        assert!(
            !leaves(heir),
            "{heir} is the head of {group}, and is to leave"
        );
        let roles = before.hosts.get(heir);
        assert!(
            roles.map_or(before.lost.contains(heir), |roles| roles.contains(&role)),
            "{heir} is none of {group}"
        );
        let told = node(heir).and_then(|node| node.status.as_ref()?.node.as_ref());
        let works = told.is_none_or(|told| told.health == api::node::Health::Ok);
        assert!(
            works,
            "{heir} is known to be switched off, and is to be first"
        );
        let mut expected: Vec<_> = was
            .iter()
            .filter(|host| *host != old && *host != heir)
            .collect();
        expected.insert(0, heir);
        expected.push(old);
        assert_eq!(is.iter().collect::<Vec<_>>(), expected, "{group}");
    }
    assert!(moved > 0, "nobody else is first by it");
    assert_eq!(
        left.inventory.etcd_member_names, before.members,
        "a member is renamed"
    );
}
