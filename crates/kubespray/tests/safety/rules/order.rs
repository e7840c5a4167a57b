//! Who is first, and who comes after whom.

use std::collections::BTreeSet;

use kube::ResourceExt;
use kubespray::{operation::Order, request::REPLACED_BY};

use super::Starting;
use crate::{GUARDED, order};

/// The order changes so far as the operation is allowed to, and no further.
///
/// # Panics
///
/// Or it may do more to the order than to add to it, and is not known here.
pub fn follows(starting: &Starting<'_>) {
    match (starting.new.operation.order, starting.name()) {
        (Order::Takes | Order::Says, _) => stays(starting, First::Stays),
        (Order::Moves, "Replace") => hands_over(starting),
        // Those who are given up go, also from the head; that the next one is not given up is proved with the members.
        (Order::Moves, "Recover") => stays(starting, First::MayLeave),
        (Order::Moves | Order::Finds, other) => panic!(
            "operation {other} may change who is first: say in `rules/order.rs` what of it is safe"
        ),
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum First {
    Stays,
    MayLeave,
}

/// The head holds the authorities: nobody comes before it, and the rest keeps its order.
fn stays(starting: &Starting<'_>, first: First) {
    let (before, name) = (starting.before(), starting.name());
    let after = order(&starting.left);
    for (_, group) in GUARDED {
        let none = Vec::new();
        let (was, is) = (
            before.order.get(group).unwrap_or(&none),
            after.get(group).unwrap_or(&none),
        );
        let stay: Vec<_> = was.iter().filter(|host| is.contains(host)).collect();
        let firsts: Vec<_> = is.iter().take(stay.len()).collect();
        assert_eq!(firsts, stay, "{name} reorders {group}: {was:?} to {is:?}");
        let leaves = |host: &String| {
            let mut leaving = starting.inputs.leaving.iter();
            leaving.any(|leaves| leaves.as_str() == host)
        };
        let gone = first == First::MayLeave && was.first().is_some_and(leaves);
        assert!(
            gone || was.first() == is.first(),
            "{name} moves the head of {group}: {was:?} to {is:?}"
        );
    }
    for (host, member) in &starting.left.inventory.etcd_member_names {
        if let Some(known) = before.members.get(host) {
            assert_eq!(known, member, "{name} renames the member {host}");
        }
    }
}

/// Another host is first, which stays and works as far as is known; the one that was is the last of its group and is to leave; nobody
/// else moves, and nobody joins or leaves by it.
fn hands_over(starting: &Starting<'_>) {
    let Starting { world, left, .. } = starting;
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
