//! Which objects move, in which order, and which of them stay here all the same. Pure.
//!
//! An object moves because it is the head of a hierarchy (a Cluster, a ClusterClass, a ClusterResourceSet, what is labelled so),
//! because it hangs below one by owner references or by its name ([`soft`]), or because it or its kind is labelled to move.
//!
//! What more than this namespace may need is copied and stays: what is in no namespace and what hangs below that, what is in
//! another namespace, and a ClusterClass, with its templates, that clusters of other namespaces use. clusterctl deletes labelled
//! Secrets in the namespaces of providers; here they stay, as every other object outside of the namespace does.
//!
//! An object one of whose owners does not move cannot come after it. clusterctl leaves it behind without a word, and everything below
//! it; here it is a reason to refuse the move ([`Graph::stranded`]), because half of a cluster on each side is worse than none.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use crate::{
    kind::{MOVE, MOVE_HIERARCHY, Moves},
    place::Item,
};

mod soft;

/// The objects that were read, and what binds them.
#[derive(Debug)]
pub(crate) struct Graph {
    home: String,
    nodes: Vec<Node>,
    /// Those that move, each group after all owners of its members.
    groups: Vec<Vec<usize>>,
}

/// An object of the graph.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) item: Item,
    /// The positions of those above it, by owner references and by name.
    above: BTreeSet<usize>,
    /// Owners that were not read.
    unseen: Vec<OwnerReference>,
    fate: Fate,
    /// Whether it hangs below what is in no namespace, or is such: one of that name there serves as it is.
    pub(crate) is_global: bool,
    /// Whether it hangs below a Cluster, or is one: it pauses with it.
    below_cluster: bool,
}

/// What a move does with an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// Nothing.
    Left,
    /// It is copied, and stays here all the same.
    Copied,
    /// It leaves.
    Moved,
}

/// An object that cannot follow its owners.
#[derive(Debug)]
pub(crate) struct Stranded<'a> {
    pub(crate) item: &'a Item,
    /// KIND NAME of the owner that does not move. None: its owners own each other.
    pub(crate) owner: Option<String>,
}

impl Graph {
    /// The graph of what was read. `used` are the ClusterClasses that clusters of other namespaces use, as (namespace, name).
    pub(crate) fn new(items: Vec<Item>, home: &str, used: &BTreeSet<(String, String)>) -> Self {
        let mut graph = Self {
            home: home.to_owned(),
            nodes: nodes(items),
            groups: Vec::new(),
        };
        let hard = graph.below();
        for (below, above) in soft::links(&graph.nodes) {
            if let Some(node) = graph.nodes.get_mut(below) {
                node.above.insert(above);
            }
        }
        graph.mark_moving();
        graph.mark_staying(&hard, used);
        graph.groups = graph.ordered();
        graph
    }

    /// Those that move, in an order in which each comes after its owners.
    pub(crate) fn moving(&self) -> impl DoubleEndedIterator<Item = &Node> {
        let groups = self.groups.iter().flatten();
        groups.filter_map(|at| self.nodes.get(*at))
    }

    /// As [`Self::moving`], by groups of which no member owns another one.
    pub(crate) fn groups(&self) -> impl DoubleEndedIterator<Item = Vec<&Node>> {
        let group = |group: &Vec<usize>| {
            let members = group.iter().filter_map(|at| self.nodes.get(*at));
            members.collect()
        };
        self.groups.iter().map(group)
    }

    /// All that was read, whether it moves or not.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Item> {
        self.nodes.iter().map(|node| &node.item)
    }

    /// Whether nothing leaves: identities that everybody may need are no reason to move.
    pub(crate) fn is_empty(&self) -> bool {
        !self.nodes.iter().any(|node| node.fate == Fate::Moved)
    }

    /// What moves, as KIND/NAME, in its order.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.moving().map(|node| node.item.shown(&self.home));
        names.collect()
    }

    /// What should move and cannot.
    pub(crate) fn stranded(&self) -> Vec<Stranded<'_>> {
        let placed: BTreeSet<_> = self.groups.iter().flatten().copied().collect();
        let mut stranded = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if !node.moves() || placed.contains(&at) {
                continue;
            }
            let unseen = node.unseen.first();
            let unseen = unseen.map(|owner| format!("{} {}", owner.kind, owner.name));
            let mut above = node.above.iter().filter_map(|at| self.nodes.get(*at));
            // What only waits for another stranded one is not named: it follows when that one does.
            let still = above.clone().find(|owner| !owner.moves());
            let still =
                still.map(|owner| format!("{} {}", owner.item.kind.name(), owner.item.name()));
            let owner = unseen.or(still);
            if owner.is_some() || self.is_circular(at) || above.next().is_none() {
                stranded.push(Stranded {
                    item: &node.item,
                    owner,
                });
            }
        }
        stranded
    }

    fn is_circular(&self, start: usize) -> bool {
        let mut seen = BTreeSet::new();
        let mut left = vec![start];
        while let Some(at) = left.pop() {
            for above in self.nodes.get(at).into_iter().flat_map(|node| &node.above) {
                if *above == start {
                    return true;
                }
                if seen.insert(*above) {
                    left.push(*above);
                }
            }
        }
        false
    }

    /// Of each, those that are directly below it.
    fn below(&self) -> Vec<Vec<usize>> {
        let mut below = vec![Vec::new(); self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            for above in &node.above {
                if let Some(below) = below.get_mut(*above) {
                    below.push(at);
                }
            }
        }
        below
    }

    fn mark_moving(&mut self) {
        let below = self.below();
        let heads: Vec<_> = self.positions(|node| moves(&node.item) == Moves::WithHierarchy);
        let global = self.positions(|node| {
            moves(&node.item) == Moves::WithHierarchy && !node.item.kind.is_namespaced
        });
        let clusters = self.positions(|node| node.item.kind.is_cluster());
        let hierarchy = reach(heads, &below);
        let global = reach(global, &below);
        let below_clusters = reach(clusters, &below);
        for (at, node) in self.nodes.iter_mut().enumerate() {
            if hierarchy.contains(&at) || moves(&node.item) != Moves::WithOwner {
                node.fate = Fate::Moved;
            }
            node.is_global = global.contains(&at) || !node.item.kind.is_namespaced;
            node.below_cluster = below_clusters.contains(&at);
        }
    }

    fn mark_staying(&mut self, hard: &[Vec<usize>], used: &BTreeSet<(String, String)>) {
        let home = self.home.clone();
        let shared = self.positions(|node| {
            let namespace = node.item.namespace().unwrap_or_default();
            let place = (namespace.to_owned(), node.item.name());
            node.item.kind.is_cluster_class() && (namespace != home || used.contains(&place))
        });
        // A Cluster that uses such a class goes: it hangs below it by name only.
        let shared = reach(shared, hard);
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let is_home = node.item.namespace() == Some(home.as_str());
            if node.moves() && (node.is_global || !is_home || shared.contains(&at)) {
                node.fate = Fate::Copied;
            }
        }
    }

    fn positions(&self, is_it: impl Fn(&Node) -> bool) -> Vec<usize> {
        let nodes = self.nodes.iter().enumerate();
        let found = nodes.filter(|(_, node)| is_it(node));
        found.map(|(at, _)| at).collect()
    }

    fn ordered(&self) -> Vec<Vec<usize>> {
        let mut left: BTreeSet<usize> = self.positions(Node::moves).into_iter().collect();
        let mut placed = BTreeSet::new();
        let mut groups = Vec::new();
        loop {
            let may_go = |at: &usize| {
                let node = self.nodes.get(*at);
                node.is_some_and(|node| node.unseen.is_empty() && node.above.is_subset(&placed))
            };
            let mut group: Vec<_> = left.iter().copied().filter(may_go).collect();
            if group.is_empty() {
                return groups;
            }
            for at in &group {
                left.remove(at);
            }
            placed.extend(&group);
            group.sort_by_cached_key(|at| self.nodes.get(*at).map(|node| node.item.key()));
            groups.push(group);
        }
    }
}

impl Node {
    fn moves(&self) -> bool {
        self.fate != Fate::Left
    }

    /// Whether it is copied, and stays here all the same.
    pub(crate) fn stays(&self) -> bool {
        self.fate == Fate::Copied
    }

    /// Whether a move waits for it to say that it is paused: what only its own annotation would pause, such as a ClusterResourceSet,
    /// goes on until it is deleted.
    pub(crate) fn pauses(&self) -> bool {
        self.below_cluster || self.item.kind.is_cluster_class()
    }
}

/// How an object moves: as its kind does, or as it says itself.
fn moves(item: &Item) -> Moves {
    let labels = item.object.labels();
    let own = if labels.contains_key(MOVE_HIERARCHY) {
        Moves::WithHierarchy
    } else if labels.contains_key(MOVE) {
        Moves::Always
    } else {
        Moves::WithOwner
    };
    own.max(item.kind.moves)
}

/// Each object once, with the positions of its owners.
fn nodes(items: Vec<Item>) -> Vec<Node> {
    let mut seen = BTreeSet::new();
    let items: Vec<_> = items
        .into_iter()
        .filter(|item| seen.insert(item.uid().to_owned()))
        .collect();
    let mut positions = HashMap::new();
    for (at, item) in items.iter().enumerate() {
        positions.insert(item.uid().to_owned(), at);
    }
    let node = |item: Item| {
        let (mut above, mut unseen) = (BTreeSet::new(), Vec::new());
        for owner in item.object.owner_references() {
            match positions.get(&owner.uid) {
                Some(at) => drop(above.insert(*at)),
                None => unseen.push(owner.clone()),
            }
        }
        Node {
            item,
            above,
            unseen,
            fate: Fate::Left,
            is_global: false,
            below_cluster: false,
        }
    };
    items.into_iter().map(node).collect()
}

/// What can be reached downwards, with where it begins.
fn reach(from: Vec<usize>, below: &[Vec<usize>]) -> BTreeSet<usize> {
    let mut reached: BTreeSet<_> = from.iter().copied().collect();
    let mut left = from;
    while let Some(at) = left.pop() {
        for next in below.get(at).into_iter().flatten() {
            if reached.insert(*next) {
                left.push(*next);
            }
        }
    }
    reached
}

/// Copies that were found, owners first: those of an interrupted move need not be complete, so what is missing holds nothing up.
pub(crate) fn owners_first(items: Vec<Item>) -> Vec<Vec<Item>> {
    let mut nodes = nodes(items);
    let links = soft::links(&nodes);
    for (below, above) in links {
        if let Some(node) = nodes.get_mut(below) {
            node.above.insert(above);
        }
    }
    let mut left: BTreeMap<usize, Node> = nodes.into_iter().enumerate().collect();
    let mut groups = Vec::new();
    while !left.is_empty() {
        let is_free = |node: &Node| !node.above.iter().any(|at| left.contains_key(at));
        let free = left.iter().filter(|(_, node)| is_free(node));
        let mut free: Vec<_> = free.map(|(at, _)| *at).collect();
        if free.is_empty() {
            // Owners that own each other go at once.
            free = left.keys().copied().collect();
        }
        let group = free.iter().filter_map(|at| left.remove(at));
        groups.push(group.map(|node| node.item).collect());
    }
    groups
}

#[cfg(test)]
mod tests;
