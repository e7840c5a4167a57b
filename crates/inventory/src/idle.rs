//! Paths that speak of no value: a lock or a rule of merging that no cluster has anything for. It may be meant for later, and most often
//! a key is written wrongly.

use std::collections::BTreeMap;

use api::inventory::{Segment, ValuePath};

use crate::{
    chain::Resolved,
    fleet::Fleet,
    problem::Object,
    tree::{Leaf, Shape, Tree},
};

/// The locks and the rules of merging of a fleet, but for those that a cluster has a value for: by the object that they stand in.
#[derive(Debug)]
pub struct Idle(BTreeMap<Object, Paths>);

#[derive(Debug)]
struct Paths {
    field: &'static str,
    /// Which clusters they speak of.
    of: &'static str,
    left: Vec<ValuePath>,
    /// Whether such a cluster was seen.
    is_meant: bool,
}

impl Fleet {
    /// Its locks and rules of merging, of which no cluster was seen yet.
    pub fn idle(&self) -> Idle {
        let locks = self.layers.values().map(|layer| {
            let field = match layer.object.kind.as_str() {
                "ConfigMap" => "data.final",
                _ => "spec.final",
            };
            let left = layer.settings.locks.clone();
            (layer.object.clone(), Paths::new(field, "below it", left))
        });
        let merges = self.orders.values().map(|order| {
            let left = order.merges.iter().map(|rule| rule.path.clone()).collect();
            let paths = Paths::new("spec.merges", "of its namespace", left);
            (order.object.clone(), paths)
        });
        let all = locks.chain(merges);
        Idle(all.filter(|(_, paths)| !paths.left.is_empty()).collect())
    }

    /// The Hierarchies of a namespace.
    fn orders_of(&self, namespace: &str) -> impl Iterator<Item = &Object> {
        let orders = self.orders.values().map(|order| &order.object);
        orders.filter(move |object| object.namespace == namespace)
    }
}

impl Paths {
    const fn new(field: &'static str, of: &'static str, left: Vec<ValuePath>) -> Self {
        Self {
            field,
            of,
            left,
            is_meant: false,
        }
    }
}

impl Idle {
    /// Looks at what a cluster has values for.
    pub fn see(&mut self, fleet: &Fleet, cluster: &Resolved) {
        let levels = cluster.levels.iter().map(|source| &source.object);
        for object in levels.chain(fleet.orders_of(&cluster.cluster.namespace)) {
            if let Some(paths) = self.0.get_mut(object) {
                paths.is_meant = true;
                paths
                    .left
                    .retain(|path| !is_there(&cluster.values, &path.0));
            }
        }
    }

    /// What is left of those that speak of a cluster, one line each.
    pub fn told(self) -> impl Iterator<Item = String> {
        let meant = self.0.into_iter().filter(|(_, paths)| paths.is_meant);
        meant.flat_map(|(object, Paths { field, of, left, .. })| {
            left.into_iter().map(move |path| {
                format!(
                    "{object} {field}: no cluster {of} has a value at {path}; mend the path, unless it forbids one or is meant for later"
                )
            })
        })
    }
}

/// Whether anything stands at a path, in which `*` is any key or entry.
fn is_there(tree: &Tree, path: &[Segment]) -> bool {
    let Some((step, below)) = path.split_first() else {
        return true;
    };
    match (step, &tree.shape) {
        // What it comes to is known later.
        (_, Shape::Leaf(Leaf::Template(_))) => true,
        (Segment::Any, Shape::Map(map)) => map.values().any(|child| is_there(child, below)),
        (Segment::Any, Shape::List(list)) => list.iter().any(|child| is_there(child, below)),
        _ => tree.child(step).is_some_and(|child| is_there(child, below)),
    }
}
