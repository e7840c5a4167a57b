//! Which rights a move needs on either side.

use std::collections::BTreeSet;

use relocation::rights::{Reach, Right};

use crate::graph::{Graph, Node};

const LEAVE: &[&str] = &["list", "get", "patch", "delete"];
const STAY: &[&str] = &["list", "get"];
/// What is there is deleted again if the move is taken back.
const ARRIVE: &[&str] = &["list", "get", "create", "update", "patch", "delete"];

/// What is needed of the side that is left.
pub(super) fn here(graph: &Graph, home: &str) -> Vec<Right> {
    let going = graph.moving().filter(|node| !node.stays());
    let mut rights = of(going, home, LEAVE);
    rights.extend(of(graph.moving().filter(|node| node.stays()), home, STAY));
    let paused = graph
        .moving()
        .filter(|node| node.stays() && node.item.kind.is_cluster_class());
    rights.extend(of(paused, home, &["patch"]));
    rights.push(Right {
        group: String::new(),
        resource: "configmaps".to_owned(),
        reach: Reach::Side,
        verbs: &["get", "create", "update", "delete"],
    });
    rights
}

/// What is needed of the side that takes over.
pub(super) fn there(graph: &Graph, home: &str) -> Vec<Right> {
    of(graph.moving(), home, ARRIVE)
}

fn of<'a>(
    nodes: impl Iterator<Item = &'a Node>,
    home: &str,
    verbs: &'static [&'static str],
) -> Vec<Right> {
    let places = nodes.map(|node| {
        let resource = &node.item.kind.resource;
        let namespace = node.item.namespace().map(str::to_owned);
        (resource.group.clone(), resource.plural.clone(), namespace)
    });
    let places: BTreeSet<_> = places.collect();
    let right = |(group, resource, namespace): (String, String, Option<String>)| Right {
        group,
        resource,
        reach: match namespace {
            None => Reach::Everywhere,
            Some(namespace) if namespace == home => Reach::Side,
            Some(namespace) => Reach::Namespace(namespace),
        },
        verbs,
    };
    places.into_iter().map(right).collect()
}
