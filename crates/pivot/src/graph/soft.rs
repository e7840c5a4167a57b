//! What belongs to another object without an owner reference. Pure.

use std::collections::HashMap;

use super::Node;
use crate::contract;

/// The pairs of an object and the one that it hangs below, by position.
///
/// A Secret that nobody owns is a cluster's by its name. A Cluster hangs below the ClusterClass that it uses, which so is made before it,
/// and a ClusterResourceSetBinding below its Cluster. What a ClusterResourceSet names is its own even if nobody owns it: its
/// controller takes ownership only when it first applies it, and clusterctl leaves behind what was not applied yet.
pub(super) fn links(nodes: &[Node]) -> Vec<(usize, usize)> {
    let by_name = |is_it: fn(&Node) -> bool| -> HashMap<(String, String), usize> {
        let found = nodes.iter().enumerate().filter(|(_, node)| is_it(node));
        found.map(|(at, node)| (place(node), at)).collect()
    };
    let clusters = by_name(|node| node.item.kind.is_cluster());
    let classes = by_name(|node| node.item.kind.is_cluster_class());
    let secrets = by_name(|node| node.item.kind.is_secret());
    let maps = by_name(|node| node.item.kind.is_config_map());
    let is_nobodys = |node: &Node| node.above.is_empty() && node.unseen.is_empty();
    let mut links = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        let item = &node.item;
        let (namespace, name) = place(node);
        if item.kind.is_secret() && is_nobodys(node) {
            let owners = contract::clusters_of_secret(&name);
            let owners =
                owners.filter_map(|cluster| clusters.get(&(namespace.clone(), cluster.to_owned())));
            links.extend(owners.map(|cluster| (at, *cluster)));
        } else if item.kind.is_cluster() {
            let class = contract::class(item).and_then(|class| classes.get(&class));
            links.extend(class.map(|class| (at, *class)));
        } else if item.kind.is_resource_set_binding() {
            let cluster = contract::bound(item)
                .and_then(|cluster| clusters.get(&(namespace, cluster.to_owned())));
            links.extend(cluster.map(|cluster| (at, *cluster)));
        } else if item.kind.is_resource_set() {
            for resource in contract::resources(item) {
                let found = match resource.kind.as_str() {
                    "Secret" => &secrets,
                    "ConfigMap" => &maps,
                    _ => continue,
                };
                let found = found.get(&(namespace.clone(), resource.name)).copied();
                let found = found.filter(|at| nodes.get(*at).is_some_and(is_nobodys));
                links.extend(found.map(|found| (found, at)));
            }
        }
    }
    links
}

fn place(node: &Node) -> (String, String) {
    let namespace = node.item.namespace().unwrap_or_default();
    (namespace.to_owned(), node.item.name())
}
