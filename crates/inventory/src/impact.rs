//! What an edit does to machines and hosts, before anything moves: which are replaced, come, go, or are updated in place.
//!
//! Who decides that is Cluster API, and the operator of kubespray's objects; their rules stand here once more, each in the file of what
//! keeps machines. Where a rule depends on what is not rendered, as what a ClusterClass makes of a variable, the answer is a bound and
//! says so. Nothing here follows a roll-out: it says where one ends, whatever way it takes.
//!
//! # Source
//! Cluster API 1.14.2: `core/reconcilers/machinedeployment/mdutil/util.go` (`MachineTemplateUpToDate`),
//! `controlplane/kubeadm/pkg/filters.go` (`UpToDate`), `core/webhooks/admission/machinedeployment.go`
//! (`calculateMachineDeploymentReplicas`) and `docs/book/src/tasks/updating-machine-templates.md`.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::{
    contract::{self, CONTROL_PLANE, CORE},
    fleet::identity,
    problem::Object,
};

pub mod autoscaler;
mod control_plane;
mod fields;
mod group;
mod hosts;
mod live;
mod pool;
mod summary;
mod topology;
mod workers;

pub use live::Live;
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
    /// The fields whose change does that.
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
        effects.extend(match (*group, object.kind.as_str()) {
            (CORE, "MachineDeployment") => workers::deployment(object, *edit, &all, live),
            (CORE, "MachineSet") => workers::set(object, *edit, &all, live),
            (CORE, "Machine") => workers::machine(object, *edit),
            (CORE, "MachinePool") => pool::pool(object, *edit, &all, live),
            (CORE, "Cluster") => topology::topology(object, *edit, &all, live),
            (CONTROL_PLANE, "KubeadmControlPlane") => {
                control_plane::kubeadm(object, *edit, &all, live)
            }
            (CONTROL_PLANE, kind) if kind.ends_with("ControlPlane") => {
                control_plane::other(object, *edit, live)
            }
            _ => Vec::new(),
        });
    }
    effects.extend(hosts::hosts(&all));
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

    /// Those of the references whose object was changed under its name, as kind and name.
    fn changed(&self, namespace: &str, references: &[&Value]) -> Vec<String> {
        let changed = references.iter().filter_map(|reference| {
            let text = |key: &str| reference[key].as_str().unwrap_or_default();
            let object = Object {
                kind: text("kind").to_owned(),
                namespace: namespace.to_owned(),
                name: text("name").to_owned(),
            };
            let said = format!("{}/{}", object.kind, object.name);
            let edit = self
                .0
                .get(&(contract::group_of_reference(reference), object));
            edit.filter(|edit| edit.is_change()).map(|_| said)
        });
        changed.collect()
    }
}

impl Edit<'_> {
    /// Whether the object stays and is not the same.
    fn is_change(&self) -> bool {
        matches!((self.before, self.after), (Some(before), Some(after)) if before["spec"] != after["spec"])
    }
}

const KUBESPRAY: &str = "kubespray.k8s.io";
