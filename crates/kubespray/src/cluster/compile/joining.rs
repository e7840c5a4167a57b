//! Plays that make new hosts part of a cluster, and leave those alone that are part of it. Pure.
//!
//! kubespray documents that as `scale.yml` with `--limit`, after the facts of all hosts were gathered: a new host's files name the
//! addresses of the others. What it needs done on the first control plane, as a token to join with, its plays delegate.

use ansible::{inventory::Inventory, slice::Playbook};
use api::HostName;

use super::{Placed, limit, pattern, play};
use crate::{action::FACTS, cluster::resolve::Conduct, problem::Problem};

/// A step for each play that works on a new host, bound to the new ones; facts are read of all hosts.
pub(crate) fn joining(
    playbook: &Playbook,
    conduct: &Conduct,
    inventory: &Inventory,
    new: &[HostName],
    steps: &mut Vec<Placed>,
) -> Result<(), Problem> {
    for slice in playbook.slices() {
        let targets = slice
            .targets(inventory)
            .map_err(|error| pattern(playbook, &slice.id, &error))?;
        let reads = slice.id == FACTS;
        let hosts = targets.hosts.into_iter();
        let hosts: Vec<_> = hosts.filter(|host| reads || new.contains(host)).collect();
        if hosts.is_empty() {
            continue;
        }
        let mut placed = play(playbook, slice, conduct, hosts);
        if !reads {
            limit(&mut placed.step, "new");
        }
        steps.push(placed);
    }
    Ok(())
}
