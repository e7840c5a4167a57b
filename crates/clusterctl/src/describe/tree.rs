//! Which object stands below which, and in which order.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    mem,
};

use serde_json::Value;

use super::{Fact, Looked, Node, Reference, Replicas, Role, Seen, State, selector::selects};

/// Whether machines that are ready stand in one line, where they have the same owner.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Grouping {
    /// They do, and what they are made of is left out.
    Grouped,
    /// Each has its own line.
    Single,
}

/// The tree of a cluster. What failed stands before what is not finished, the deepest of it first, and that before what is.
pub fn tree(seen: &Seen, grouping: Grouping) -> Node {
    let mut build = Build {
        seen,
        grouping,
        sets: by_owner(&seen.sets.objects),
        machines: by_owner(&seen.machines.objects),
    };
    let mut root = Node::of(&seen.cluster, None);
    let spec = &seen.cluster["spec"];
    let infrastructure = build.referred(&spec["infrastructureRef"], Role::Infrastructure);
    root.children.extend(infrastructure);
    root.children.extend(build.plane());
    root.children.extend(build.workers());
    let checks = seen.checks.objects.iter();
    root.children
        .extend(checks.map(|check| Node::of(check, None)));
    root.children.extend(build.resource_sets());
    root.children.extend(build.unlisted());
    sort(&mut root);
    root
}

/// What remains to be put into the tree: each object goes below one owner, once, whatever objects say of each other.
struct Build<'a> {
    seen: &'a Seen,
    grouping: Grouping,
    sets: BTreeMap<Owner<'a>, Vec<&'a Value>>,
    machines: BTreeMap<Owner<'a>, Vec<&'a Value>>,
}

/// A kind and a name; both empty where an object has no controller.
type Owner<'a> = (&'a str, &'a str);

impl<'a> Build<'a> {
    fn plane(&mut self) -> Option<Node> {
        let reference = &self.seen.cluster["spec"]["controlPlaneRef"];
        let mut plane = self.referred(reference, Role::ControlPlane)?;
        let kind = reference["kind"].as_str().unwrap_or_default();
        let owner = (kind, name(reference));
        let mut machines = self.machines.remove(&owner).unwrap_or_default();
        // Without a provider of control planes the machines of one have a label alone.
        if let Some(lone) = self.machines.get_mut(&NOBODY) {
            let (of_plane, others) = mem::take(lone).into_iter().partition(|machine: &&Value| {
                machine["metadata"]["labels"]["cluster.x-k8s.io/control-plane"].is_string()
            });
            machines.extend::<Vec<_>>(of_plane);
            *lone = others;
        }
        plane.children = self.of_machines(&machines);
        Some(plane)
    }

    fn workers(&mut self) -> Vec<Node> {
        let mut workers = Vec::new();
        for deployment in &self.seen.deployments.objects {
            let mut node = Node::of(deployment, None);
            let owner = ("MachineDeployment", own_name(deployment));
            let sets = self.sets.remove(&owner).unwrap_or_default();
            node.children = sets.into_iter().map(|set| self.set(set)).collect();
            // Those of before, which are kept to go back to, wait for nothing.
            node.children.retain(|set| !is_over(set));
            workers.push(node);
        }
        let sets = mem::take(&mut self.sets).into_values().flatten();
        workers.extend(sets.map(|set| self.set(set)));
        for pool in &self.seen.pools.objects {
            let mut node = Node::of(pool, None);
            node.children = self.made_of(&pool["spec"]["template"]["spec"]);
            let owner = ("MachinePool", own_name(pool));
            let machines = self.machines.remove(&owner).unwrap_or_default();
            node.children.extend(self.of_machines(&machines));
            workers.push(node);
        }
        let machines = mem::take(&mut self.machines).into_values();
        let machines: Vec<_> = machines.flatten().collect();
        workers.extend(self.of_machines(&machines));
        workers
    }

    fn set(&mut self, set: &'a Value) -> Node {
        let mut node = Node::of(set, None);
        let owner = ("MachineSet", own_name(set));
        let machines = self.machines.remove(&owner).unwrap_or_default();
        node.children = self.of_machines(&machines);
        node
    }

    fn of_machines(&self, machines: &[&'a Value]) -> Vec<Node> {
        let nodes = machines.iter().map(|machine| {
            let mut node = Node::of(machine, None);
            node.children = self.made_of(&machine["spec"]);
            node
        });
        match self.grouping {
            Grouping::Grouped => {
                let (ready, mut others): (Vec<_>, Vec<_>) = nodes.partition(Node::is_finished);
                others.extend(group(ready));
                others
            }
            Grouping::Single => nodes.collect(),
        }
    }

    /// What a machine or a pool is made of.
    fn made_of(&self, spec: &Value) -> Vec<Node> {
        [
            (&spec["infrastructureRef"], Role::Infrastructure),
            (&spec["bootstrap"]["configRef"], Role::Bootstrap),
        ]
        .into_iter()
        .filter_map(|(reference, role)| self.referred(reference, role))
        .collect()
    }

    fn referred(&self, reference: &Value, role: Role) -> Option<Node> {
        let namespace = self.seen.cluster["metadata"]["namespace"].as_str();
        let reference = Reference::read(reference, namespace.unwrap_or_default());
        Node::referred(reference, role, |it| self.seen.referenced.get(it).cloned())
    }

    /// What is applied to the cluster when it is there: by its binding, and by the sets that select it and are not in that yet.
    fn resource_sets(&self) -> Vec<Node> {
        let binding = match &self.seen.binding {
            Some(Looked::Found(binding)) => binding["spec"]["bindings"].as_array(),
            Some(Looked::Unread(problem)) => {
                let problem = format!("it cannot be read: {problem}");
                let kind = "ClusterResourceSetBinding";
                return vec![Node::lacking(kind, State::Unread, &problem)];
            }
            Some(Looked::Missing) | None => None,
        };
        let bound = binding.into_iter().flatten().filter_map(|one| {
            let called = one["clusterResourceSetName"].as_str()?;
            let resources = one["resources"].as_array();
            Some((called, resources.map(Vec::as_slice).unwrap_or_default()))
        });
        let mut all: Vec<_> = bound.collect();
        let known: BTreeSet<_> = all.iter().map(|(called, _)| *called).collect();
        // What goes has nothing applied any more.
        let goes = |object: &Value| object["metadata"]["deletionTimestamp"].is_string();
        let cluster = &self.seen.cluster;
        let sets = self.seen.resource_sets.objects.iter();
        let selecting = sets.filter(|set| {
            !goes(cluster) && !goes(set) && selects(&set["spec"]["clusterSelector"], cluster)
        });
        let selecting = selecting.map(own_name).filter(|one| !known.contains(one));
        all.extend(selecting.map(|called| (called, &[][..])));
        let shown = all.into_iter().take(MOST_SETS);
        shown
            .map(|(called, bound)| self.resource_set(called, bound))
            .collect()
    }

    /// A set, with what the cluster's binding says of its resources.
    fn resource_set(&self, called: &str, bound: &[Value]) -> Node {
        let mut sets = self.seen.resource_sets.objects.iter();
        let set = sets.find(|set| own_name(set) == called);
        // A resource that its controller does not find is in no binding.
        let wanted = set.and_then(|set| set["spec"]["resources"].as_array());
        let wanted = wanted.map_or(bound, Vec::as_slice);
        let applied = bound.iter().filter(|one| one["applied"] == true);
        let applied: BTreeSet<_> = applied.map(title).collect();
        let left = wanted.iter().map(title);
        let left: Vec<_> = left.filter(|one| !applied.contains(one)).collect();
        let mut node = match set {
            Some(set) => Node::of(set, None),
            None => Node {
                names: vec![api::text::plain(called, super::NAME)],
                waits_for: None,
                ..Node::lacking("ClusterResourceSet", State::Ready, "")
            },
        };
        let count = |of: usize| u64::try_from(of).unwrap_or(u64::MAX);
        node.replicas = Some(Replicas {
            ready: count(wanted.len().saturating_sub(left.len())),
            wanted: count(wanted.len()),
        });
        // The set speaks for all clusters at once, its binding for this one.
        let told = match left.as_slice() {
            [] => {
                (node.state, node.waits_for) = (State::Ready, None);
                return node;
            }
            [one] => format!("{one} is not applied"),
            many => {
                let named = many.get(..MOST_RESOURCES).unwrap_or(many);
                format!("{} are not applied", named.join(", "))
            }
        };
        // What it says may have failed for another one.
        if !matches!(node.state, State::Paused | State::Deleting) {
            node.state = State::Waiting;
        }
        node.waits_for = Some(match node.waits_for {
            Some(own) => Fact {
                message: super::message(&format!("{told}: {}", own.message)),
                ..own
            },
            None => Fact::new(&told),
        });
        node
    }

    fn unlisted(&self) -> Vec<Node> {
        [
            ("MachineDeployments", &self.seen.deployments),
            ("MachineSets", &self.seen.sets),
            ("MachinePools", &self.seen.pools),
            ("Machines", &self.seen.machines),
            ("MachineHealthChecks", &self.seen.checks),
            ("ClusterResourceSets", &self.seen.resource_sets),
        ]
        .into_iter()
        .filter_map(|(kind, listing)| Node::unlisted(kind, listing))
        .collect()
    }
}

fn by_owner(objects: &[Value]) -> BTreeMap<Owner<'_>, Vec<&Value>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for object in objects {
        let owners = object["metadata"]["ownerReferences"].as_array();
        let mut owners = owners.into_iter().flatten();
        let owner = owners.find(|owner| owner["controller"] == true);
        let owner =
            owner.and_then(|owner| Some((owner["kind"].as_str()?, owner["name"].as_str()?)));
        all.entry(owner.unwrap_or(NOBODY)).or_default().push(object);
    }
    all
}

/// What a resource of a set is called in a line.
fn title(resource: &Value) -> String {
    let word = |key: &str| resource[key].as_str().unwrap_or("?");
    format!("{}/{}", word("kind"), word("name"))
}

/// Machines that are ready, as one.
fn group(ready: Vec<Node>) -> Option<Node> {
    ready
        .into_iter()
        .reduce(|mut all, one| {
            all.names.extend(one.names);
            all.conditions.clear();
            // Since then all of them are.
            all.since = all.since.max(one.since);
            all
        })
        .map(|mut all| {
            all.children.clear();
            all
        })
}

/// Whether a set has no machines, and is to have none.
fn is_over(set: &Node) -> bool {
    let is_empty = set.replicas.is_some_and(|replicas| replicas.wanted == 0);
    is_empty && set.children.is_empty() && set.is_finished()
}

fn sort(node: &mut Node) {
    node.children.iter_mut().for_each(sort);
    node.children
        .sort_by_key(|child| Reverse((fails(child), depth(child))));
}

/// How deep below an object, itself included, something is not finished; 0 where nothing is.
fn depth(node: &Node) -> usize {
    match node.children.iter().map(depth).max().unwrap_or_default() {
        0 => usize::from(node.state != State::Ready),
        below => below + 1,
    }
}

fn fails(node: &Node) -> bool {
    node.state == State::Failed || node.children.iter().any(fails)
}

fn own_name(object: &Value) -> &str {
    name(&object["metadata"])
}

fn name(value: &Value) -> &str {
    value["name"].as_str().unwrap_or_default()
}

const NOBODY: Owner<'static> = ("", "");
/// So many sets of resources are shown.
const MOST_SETS: usize = 100;
/// So many of their resources are named.
const MOST_RESOURCES: usize = 4;
