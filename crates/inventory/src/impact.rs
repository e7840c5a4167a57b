//! What an edit does to machines and hosts, before anything moves: which are replaced, come, go, or are updated in place.
//!
//! Who decides that is Cluster API, and the operator of kubespray's objects; their rules stand here once more, each in the file of what
//! keeps machines. Where a rule depends on what is not rendered, as what a ClusterClass makes of a variable, the answer is a bound and
//! says so; where no rule reads an object, it says that too. Nothing here follows a roll-out: it says where one ends, whatever way it takes.
//!
//! # Source
//! Cluster API 1.14.2: `core/reconcilers/machinedeployment/mdutil/util.go` (`MachineTemplateUpToDate`),
//! `controlplane/kubeadm/pkg/filters.go` (`UpToDate`), `core/webhooks/admission/machinedeployment.go`
//! (`calculateMachineDeploymentReplicas`) and `docs/book/src/tasks/updating-machine-templates.md`.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::{contract, fleet::identity, problem::Object};

pub mod autoscaler;
mod control_plane;
mod fields;
mod group;
mod hosts;
mod live;
mod pool;
mod rule;
mod summary;
mod topology;
mod workers;

pub use live::Live;
use rule::Rule;
pub use summary::Summary;

/// What happens to some machines or hosts of one object.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Effect {
    /// The object that keeps them; of kubespray, the Cluster or the ClusterNode.
    pub of: Object,
    /// Which part of it, for one that keeps several kinds of machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Machines, or hosts.
    pub what: What,
    /// What happens to them.
    pub happens: Happens,
    /// How many they are. None: as many as there are, which nothing that was looked at says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Whether they are all of these, or at most these.
    pub bound: Bound,
    /// Their names, as far as it is known which they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The fields whose change does that; of what is unknown, behind the API version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<String>,
}

/// Who something happens to.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum What {
    /// A Machine of Cluster API.
    Machine,
    /// A host of kubespray: it stays, whatever is done on it.
    Host,
    /// Nobody knows: Machines, hosts, or none.
    Unknown,
}

/// What happens.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Happens {
    /// They go, and others come for them.
    Replaced,
    /// They come.
    Added,
    /// They go.
    Removed,
    /// They stay, and something of them changes.
    Updated,
    /// They stay as they are, though what is declared is something else: it is of those that are made later.
    Outdated,
    /// Nobody knows: no rule reads this version of the object, or its kind.
    Unknown,
}

/// How sure a count is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub enum Bound {
    /// So many.
    Exactly,
    /// So many, or fewer: what decides is not in the inventory.
    AtMost,
}

/// An object before and after an edit; one of them may be missing.
#[derive(Clone, Copy, Debug, Default)]
struct Edit<'a> {
    before: Option<&'a Value>,
    after: Option<&'a Value>,
}

/// What follows for machines and hosts from a cluster becoming other objects. Objects without a namespace are of `namespace`. What is
/// there of machines says which they are, and how many, where that is left to somebody else; without it they are counted by replicas.
pub fn impact(
    namespace: &str,
    before: &[Value],
    after: &[Value],
    live: Option<&Live>,
) -> Vec<Effect> {
    let all = Edits::new(namespace, before, after);
    let mut effects = Vec::new();
    for ((group, object), edit) in &all.0 {
        if edit.before == edit.after && !all.has_changes() {
            continue;
        }
        let Some(rule) = Rule::reads(group, object, *edit) else {
            continue;
        };
        effects.extend(match rule {
            Rule::Deployment => workers::deployment(object, *edit, &all, live),
            Rule::Set => workers::set(object, *edit, &all, live),
            Rule::Machine => workers::machine(object, *edit),
            Rule::Pool => pool::pool(object, *edit, &all, live),
            Rule::Topology => topology::topology(object, *edit, &all, live),
            Rule::Kubeadm => control_plane::kubeadm(object, *edit, &all, live),
            Rule::OtherControlPlane => control_plane::other(object, *edit, live),
            Rule::Host => hosts::node(object, *edit).into_iter().collect(),
            Rule::Hosts => hosts::cluster(object, *edit, &all).into_iter().collect(),
            Rule::Nothing => Vec::new(),
        });
    }
    effects.extend(rule::unknown(&all));
    effects
}

/// The objects of a cluster before and after, by group and what they are: another version of the same is the same object.
struct Edits<'a>(BTreeMap<(&'a str, Object), Edit<'a>>);

impl<'a> Edits<'a> {
    fn new(namespace: &str, before: &'a [Value], after: &'a [Value]) -> Self {
        let key = |value: &'a Value| (contract::group_of(value), identity(value, namespace));
        let mut all = BTreeMap::<_, Edit<'_>>::new();
        for value in before {
            all.entry(key(value)).or_default().before = Some(value);
        }
        for value in after {
            all.entry(key(value)).or_default().after = Some(value);
        }
        Self(all)
    }

    /// Whether something stays and is not the same: what refers to it may be about other machines, and be the same itself.
    fn has_changes(&self) -> bool {
        self.0.values().any(Edit::is_change)
    }

    /// What references name.
    fn named<'r>(namespace: &str, references: &[&'r Value]) -> Vec<(&'r str, Object)> {
        let named = references.iter().map(|reference| {
            let text = |key: &str| reference[key].as_str().unwrap_or_default().to_owned();
            let object = Object {
                kind: text("kind"),
                namespace: namespace.to_owned(),
                name: text("name"),
            };
            (contract::group_of_reference(reference), object)
        });
        named.collect()
    }

    /// Those that were changed under their names, as kind and name.
    fn changed(&self, named: &[(&str, Object)]) -> Vec<String> {
        let changed = named.iter().filter(|named| {
            let edit = self.0.get(*named);
            edit.is_some_and(Edit::is_change)
        });
        let said = changed.map(|(_, object)| format!("{}/{}", object.kind, object.name));
        said.collect()
    }
}

impl Edit<'_> {
    /// Whether the object stays and is not the same.
    fn is_change(&self) -> bool {
        matches!((self.before, self.after), (Some(before), Some(after)) if before["spec"] != after["spec"])
    }
}

const KUBESPRAY: &str = "kubespray.k8s.io";
