//! Paths that speak of no value: a lock or a rule of merging that no cluster has anything for. It may be meant for later, and most often
//! a key is written wrongly.

use std::collections::BTreeMap;

use api::inventory::{Segment, ValuePath};

use crate::{
    chain::Resolved,
    fleet::Fleet,
    problem::Object,
    tree::{Shape, Tree},
};

/// The locks and the rules of merging of a fleet, but for those that a cluster has a value for.
#[derive(Debug)]
pub struct Idle(BTreeMap<(Object, Field, ValuePath), IsMeant>);

/// Whether a cluster was seen that it speaks of.
type IsMeant = bool;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Field {
    Final,
    Merges,
}

impl Fleet {
    /// Its locks and rules of merging, of which no cluster was seen yet.
    pub fn idle(&self) -> Idle {
        let locks = self.layers.values().flat_map(|layer| {
            let paths = layer.settings.locks.iter();
            paths.map(|path| (layer.object.clone(), Field::Final, path.clone()))
        });
        let merges = self.orders.values().flat_map(|order| {
            let rules = order.merges.iter();
            rules.map(|rule| (order.object.clone(), Field::Merges, rule.path.clone()))
        });
        Idle(locks.chain(merges).map(|key| (key, false)).collect())
    }
}

impl Idle {
    /// Looks at what a cluster has values for.
    pub fn see(&mut self, cluster: &Resolved) {
        self.0.retain(|(object, field, path), is_meant| {
            let is_of_it = match field {
                Field::Final => cluster.levels.iter().any(|source| source.object == *object),
                Field::Merges => cluster.cluster.namespace == object.namespace,
            };
            *is_meant |= is_of_it;
            !is_of_it || !is_there(&cluster.values, &path.0)
        });
    }

    /// What is left of those that speak of a cluster, one line each.
    pub fn told(self) -> impl Iterator<Item = String> {
        let left = self.0.into_iter().filter(|(_, is_meant)| *is_meant);
        left.map(|((object, field, path), _)| {
            let (field, whose) = match field {
                Field::Final => ("spec.final", "below it"),
                Field::Merges => ("spec.merges", "of its namespace"),
            };
            format!("{object} {field}: no cluster {whose} has a value at {path}; mend the path, unless it is meant for later")
        })
    }
}

/// Whether anything stands at a path, in which `*` is any key or entry.
fn is_there(tree: &Tree, path: &[Segment]) -> bool {
    let Some((step, below)) = path.split_first() else {
        return true;
    };
    match (step, &tree.shape) {
        (Segment::Any, Shape::Map(map)) => map.values().any(|child| is_there(child, below)),
        (Segment::Any, Shape::List(list)) => list.iter().any(|child| is_there(child, below)),
        _ => tree.child(step).is_some_and(|child| is_there(child, below)),
    }
}
