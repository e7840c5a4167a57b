//! Hosts of kubespray. A ClusterNode that comes is a host that joins, one that goes a host that leaves, one that is another a host that is
//! worked on. A change of the Cluster is brought to all of its hosts, but for what says how that is done.

use serde_json::Value;

use super::{Bound, Edit, Edits, Effect, Happens, KUBESPRAY, What, fields, group};
use crate::problem::Object;

pub(super) fn node(object: &Object, edit: Edit<'_>) -> Option<Effect> {
    let (happens, because) = match (edit.before, edit.after) {
        (None, _) => (Happens::Added, Vec::new()),
        (_, None) => (Happens::Removed, Vec::new()),
        (Some(before), Some(after)) => {
            let changed = fields::keys("spec", &before["spec"], &after["spec"]);
            if changed.is_empty() {
                return None;
            }
            (Happens::Updated, changed)
        }
    };
    Some(Effect {
        of: object.clone(),
        part: None,
        what: What::Host,
        happens,
        count: Some(1),
        bound: Bound::Exactly,
        names: vec![object.name.clone()],
        because,
    })
}

/// The hosts that stay, where something changes that is brought to them; those that were named already are not named again.
pub(super) fn cluster(object: &Object, edit: Edit<'_>, all: &Edits<'_>) -> Option<Effect> {
    let of = |value: &Value| fields::without(&value["spec"], &HOW);
    let because = fields::keys("spec", &of(edit.before?), &of(edit.after?));
    if because.is_empty() {
        return None;
    }
    let nodes = all.0.iter().filter(|((group, node), edit)| {
        *group == KUBESPRAY
            && node.kind == "ClusterNode"
            && node.namespace == object.namespace
            && edit.before.is_some()
            && edit.after.is_some()
            && !edit.is_change()
    });
    let names: Vec<_> = nodes.map(|((_, node), _)| node.name.clone()).collect();
    (!names.is_empty()).then(|| Effect {
        of: object.clone(),
        part: None,
        what: What::Host,
        happens: Happens::Updated,
        count: Some(group::number(names.len())),
        // Bastions are left alone, and hosts that need nothing.
        bound: Bound::AtMost,
        names,
        because,
    })
}

/// Fields of a Cluster that say how hosts are reached and when work is done, and nothing of what they are.
const HOW: [&str; 10] = [
    "image",
    "runner",
    "ssh",
    "operations",
    "maintenance",
    "radar",
    "hooks",
    "remedies",
    "deletionPolicy",
    "runHistory",
];
