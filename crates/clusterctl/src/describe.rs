//! What a cluster of Cluster API waits for: the tree of its objects, and what each says of itself. Pure.
//!
//! Whoever reads fills a [`Seen`], and asks it which other objects are referred to ([`Seen::references`]); [`tree`] puts them in order
//! and [`lines()`] prints them. What could not be read is part of what was seen and stands where the object would stand: half a tree
//! helps whoever has half a management cluster.
//!
//! Nothing here knows a version. Conditions are read wherever a version of the contract has them, with a severity or without, and a
//! reference is read with an `apiVersion`, as of v1beta1, or with an `apiGroup`, as of v1beta2.
//!
//! All that is in those objects was written by others: every text passes [`api::text::plain`] with a bound when it is taken into the tree,
//! and a name that is none asks for nothing.
//!
//! # Source
//! Cluster API v1.14, `cmd/clusterctl/client/tree`, `docs/book/src/developer/providers/contracts`, and the proposal "Improving status in CAPI
//! resources".

mod condition;
mod node;
mod reference;
mod selector;
mod text;
mod tree;

use std::{cmp::Reverse, collections::BTreeMap};

use api::text::plain;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

pub use condition::{Condition, Polarity};
pub use reference::{Reference, is_name};
pub use text::{Shown, lines};
pub use tree::{Grouping, tree};

/// The group of the kinds of core.
pub const CORE: &str = "cluster.x-k8s.io";
/// The group of what is applied to new clusters.
pub const ADDONS: &str = "addons.cluster.x-k8s.io";
/// The label with the name of the cluster, on all objects that are its own.
pub const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// What was read of a cluster. All of it is in one namespace.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The Cluster.
    pub cluster: Value,
    /// Its MachineDeployments.
    pub deployments: Listing,
    /// Its MachineSets.
    pub sets: Listing,
    /// Its MachinePools.
    pub pools: Listing,
    /// Its Machines.
    pub machines: Listing,
    /// Its MachineHealthChecks.
    pub checks: Listing,
    /// The ClusterResourceSets of the namespace, whosever.
    pub resource_sets: Listing,
    /// The ClusterResourceSetBinding, which is called as the cluster is. Nothing was looked for where the API has no such kind.
    pub binding: Option<Looked>,
    /// The objects of other groups that are referred to.
    pub referenced: BTreeMap<Reference, Looked>,
}

/// Objects of a kind.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Those that were read.
    pub objects: Vec<Value>,
    /// Why they are not all.
    pub lack: Option<String>,
}

/// What came of looking for an object.
#[derive(Clone, Debug)]
pub enum Looked {
    /// It is there.
    Found(Value),
    /// It is not.
    Missing,
    /// Why that is not known.
    Unread(String),
}

impl Seen {
    /// The objects of other groups that are referred to, each once.
    pub fn references(&self) -> Vec<Reference> {
        let spec = &self.cluster["spec"];
        let own = [&spec["infrastructureRef"], &spec["controlPlaneRef"]];
        let machines = self.machines.objects.iter().map(|one| &one["spec"]);
        let pools = self.pools.objects.iter();
        let pools = pools.map(|one| &one["spec"]["template"]["spec"]);
        let of_machines = machines
            .chain(pools)
            .flat_map(|spec| [&spec["infrastructureRef"], &spec["bootstrap"]["configRef"]]);
        let namespace = self.cluster["metadata"]["namespace"].as_str();
        let namespace = namespace.unwrap_or_default();
        let all = own.into_iter().chain(of_machines);
        let mut all: Vec<_> = all
            .filter_map(|value| Reference::read(value, namespace)?.ok())
            .collect();
        all.sort();
        all.dedup();
        all
    }
}

/// An object of the tree, or several that stand in one line.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// What it is to the object above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Its version, with the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Its kind.
    pub kind: String,
    /// What it is called; several where they stand in one line, and none where objects of the kind could not be listed.
    pub names: Vec<String>,
    /// How it stands.
    pub state: State,
    /// How many of what it is to have are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Replicas>,
    /// Since when it stands so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Fact>,
    /// All that it says of itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What it is made of; what is not finished first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Node>,
}

/// What an object is to the one above.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Its infrastructure.
    Infrastructure,
    /// Its control plane.
    ControlPlane,
    /// What makes it a node.
    Bootstrap,
}

/// How an object stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// It is as it is to be.
    Ready,
    /// It is not yet.
    Waiting,
    /// It will not be by itself.
    Failed,
    /// Nobody works on it until somebody lets them.
    Paused,
    /// It goes.
    Deleting,
    /// It is referred to, and not there.
    Missing,
    /// It could not be read.
    Unread,
    /// It has said nothing of itself.
    Silent,
}

/// How many there are of what an object is to have.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Replicas {
    /// Those that are ready.
    pub ready: u64,
    /// Those that are wanted.
    pub wanted: u64,
}

/// What an object waits for.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fact {
    /// The condition that says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Its reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// In words.
    pub message: String,
}

/// The tree as a document for programs, with what stands in the way beside it.
pub fn document(root: &Node) -> Value {
    let unfinished = root.unfinished().into_iter().map(|node| {
        json!({
            "kind": node.kind, "names": node.names, "state": node.state, "since": node.since,
            "waitsFor": node.waits_for,
        })
    });
    json!({"unfinished": unfinished.collect::<Vec<_>>(), "tree": root})
}

impl Node {
    /// Whether it and all below it are as they are to be.
    pub fn is_finished(&self) -> bool {
        self.state == State::Ready && self.children.iter().all(Self::is_finished)
    }

    /// What stands in the way: objects that are not finished and have nothing below them that is not, and those above that will not be by
    /// themselves. Failures come first, then what does not itself wait for another, then what is deepest, then what stands so the longest.
    pub fn unfinished(&self) -> Vec<&Self> {
        let mut found = Vec::new();
        self.collect(0, &mut found);
        found.sort_by_key(|(depth, node)| (node.rank(), Reverse(*depth), node.since));
        found.into_iter().map(|(_, node)| node).collect()
    }

    fn collect<'a>(&'a self, depth: usize, found: &mut Vec<(usize, &'a Self)>) {
        let before = found.len();
        let below = self.children.iter();
        below.for_each(|child| child.collect(depth + 1, found));
        let mut below = found.iter().skip(before).map(|(_, node)| node.state);
        let is_told = match self.state {
            State::Ready => false,
            // What failed below may be why.
            State::Failed => !below.any(|state| state == State::Failed),
            State::Paused | State::Unread => true,
            _ => below.next().is_none(),
        };
        if is_told {
            found.push((depth, self));
        }
    }

    fn rank(&self) -> u8 {
        // Reasons of the contract for one that waits for another: WaitingForBootstrapData, WaitingForControlPlaneInitialized.
        let reason = self.waits_for.as_ref().and_then(|it| it.reason.as_deref());
        let is_behind = reason.is_some_and(|reason| reason.starts_with("WaitingFor"));
        match self.state {
            State::Failed | State::Missing => 0,
            State::Paused => 1,
            State::Unread => 5,
            State::Silent => 4,
            _ if is_behind => 3,
            _ => 2,
        }
    }
}

/// What an object says in words, in one line: their lists are indented.
fn message(text: &str) -> String {
    let text = plain(text, MESSAGE);
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ")
}

/// How long a name of an object may be shown.
const NAME: usize = 253;
/// How long a kind, a reason and a type may be.
const WORD: usize = 316;
/// How long what an object says may be.
const MESSAGE: usize = 1000;
