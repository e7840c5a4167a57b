//! Machines of a MachinePool. Its infrastructure provider decides how a pool comes to another version, bootstrap configuration or
//! infrastructure, and need not replace all of them.
//!
//! It names no templates, as what makes Machines one by one does, but the objects themselves: the pool of its provider and the
//! configuration that is made into its bootstrap data. A change of those under their names is one of its machines.
//!
//! # Source
//! Cluster API 1.14.2: `core/reconcilers/machinepool/machinepool_controller_phases.go` (`reconcileBootstrap`, `reconcileInfrastructure`) and
//! `docs/book/src/developer/providers/contracts/infra-machinepool.md`.

use super::{
    Bound, Edit, Edits, Effect, Happens, Live, fields,
    group::{Change, Group, Outdated},
    workers,
};
use crate::problem::Object;

pub(super) fn pool(
    object: &Object,
    edit: Edit<'_>,
    all: &Edits<'_>,
    live: Option<&Live>,
) -> Vec<Effect> {
    // Not every provider has a Machine for each of its instances.
    let machines = live
        .map(|live| live.labelled(&object.namespace, None, POOL_NAME, Some(&object.name)))
        .filter(|machines| !machines.is_empty());
    let group = Group {
        of: object,
        part: None,
        machines,
    };
    let (before, after) = match workers::of_both(&group, edit) {
        Ok(both) => both,
        Err(effects) => return effects,
    };
    let (old, new) = (&before["spec"]["template"], &after["spec"]["template"]);
    let mut because = fields::differing(&workers::rolled(old), &workers::rolled(new));
    let named = Edits::named(&object.namespace, &workers::named(after));
    because.extend(all.changed(&named));
    group.changed(Change {
        size: workers::size(before, after, group.there()),
        outdated: Outdated {
            bound: Bound::AtMost,
            ..Outdated::all(Happens::Replaced, because)
        },
        in_place: Vec::new(),
    })
}

const POOL_NAME: &str = "cluster.x-k8s.io/pool-name";
