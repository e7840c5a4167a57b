//! Plays that make new hosts part of a cluster, and leave those alone that are part of it. Pure.
//!
//! kubespray documents that as `scale.yml` with `--limit`, after the facts of all hosts were gathered: a new host's files name the
//! addresses of the others. What it needs done on the first control plane, as a token to join with, its plays delegate.

use ansible::{inventory::Inventory, slice::Playbook};
use api::HostName;

use super::{Placed, limit, pattern, play};
use crate::{
    action::{FACTS, FACTS_OF_OTHERS},
    cluster::resolve::Conduct,
    problem::Problem,
};

/// A step for each play that works on a new host, bound to the new ones. The facts of the others come first, in a process of their own
/// where they have to be read at all.
pub(crate) fn joining(
    playbook: &Playbook,
    conduct: &Conduct,
    inventory: &Inventory,
    new: &[HostName],
    steps: &mut Vec<Placed>,
) -> Result<(), Problem> {
    let mut joining = Vec::new();
    for slice in playbook.slices() {
        let targets = slice
            .targets(inventory)
            .map_err(|error| pattern(playbook, &slice.id, &error))?;
        let hosts = targets.hosts.into_iter();
        let (hosts, others): (Vec<_>, Vec<_>) = hosts.partition(|host| new.contains(host));
        if slice.id == FACTS && !others.is_empty() {
            let mut placed = play(playbook, slice, conduct, others);
            FACTS_OF_OTHERS.clone_into(&mut placed.step.id);
            "Read the facts of the other hosts, where they are stale"
                .clone_into(&mut placed.step.title);
            limit(&mut placed.step, "others");
            steps.push(placed);
        }
        if !hosts.is_empty() {
            let mut placed = play(playbook, slice, conduct, hosts);
            limit(&mut placed.step, "new");
            joining.push(placed);
        }
    }
    steps.extend(joining);
    Ok(())
}
