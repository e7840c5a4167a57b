//! What can be done to a cluster: what people see of each operation, and what it does to the cluster.
//!
//! When an operation has the say and what it compiles to stands in a file of its own. To add one, write that file, its row here and its
//! place among [`ALL`]. What else there is to say of it the table asks for, and what of it only others know, such as the steps at which
//! hooks may stand, a test misses.

pub mod adopt;
pub mod asked;
pub mod component;
pub mod converge;
pub mod create;
pub mod drill;
pub mod recover;
pub mod remove;
pub mod renew;
pub mod replace;
pub mod reset;
pub mod reset_host;
pub mod scale;
pub mod snapshot;
pub mod toolbox;
pub mod upgrade;

use api::{
    Cluster, Run,
    cluster::{self, ClusterState},
    run::RunPhase,
};
use runs::phase;

use self::asked::Asked;
use crate::{
    cluster::decision::{Decision, Situation},
    request,
};

/// The operations, in the order in which they are asked: the first with a decision has the say.
pub const ALL: [&Operation; 15] = [
    &RESET,
    &RECOVER,
    &SNAPSHOT,
    &DRILL,
    &RENEW,
    &TOOLBOX,
    &RESET_HOST,
    &REPLACE,
    &REMOVE,
    &UPGRADE,
    &SCALE,
    &COMPONENT,
    &CONVERGE,
    &ADOPT,
    &CREATE,
];

/// Removes Kubernetes from the hosts.
pub static RESET: Operation = Operation {
    name: "Reset",
    state: ClusterState::Deleting,
    reason: "Resetting",
    leaves: Leaves::Nothing,
    order: Order::Takes,
    of_built: false,
    disruptive: true,
    quiet: false,
    decide: reset::decide,
    asked: AskedBy::Nobody,
    fails: Fails::AsWished,
    reaches: Reaches::WhomItConcerns,
    thresholds: "reset",
};

/// Removes what is left of Kubernetes from a host that is no part of a built cluster.
pub static RESET_HOST: Operation = Operation {
    name: "ResetHost",
    state: ClusterState::Removing,
    reason: "ResettingHost",
    leaves: Leaves::AsItWas,
    order: Order::Says,
    of_built: true,
    disruptive: false,
    quiet: false,
    decide: reset_host::decide,
    asked: AskedBy::Host(request::RESET_HOST),
    fails: Fails::Passes,
    reaches: Reaches::WhomItConcerns,
    thresholds: "creation",
};

/// Brings back a built cluster whose etcd lost its quorum.
pub static RECOVER: Operation = Operation {
    name: "Recover",
    state: ClusterState::Recovering,
    reason: "Recovering",
    leaves: Leaves::Cluster,
    order: Order::Moves,
    of_built: true,
    disruptive: true,
    quiet: false,
    decide: recover::decide,
    asked: AskedBy::Cluster(&recover::ASKED),
    fails: Fails::AsWished,
    reaches: Reaches::WhomItConcerns,
    thresholds: "creation",
};

/// Saves a snapshot of a built cluster's etcd outside of it.
pub static SNAPSHOT: Operation = Operation {
    name: "Snapshot",
    state: ClusterState::Created,
    reason: "SavingSnapshot",
    leaves: Leaves::AsItWas,
    order: Order::Takes,
    of_built: true,
    disruptive: false,
    quiet: true,
    decide: snapshot::decide,
    asked: AskedBy::Cluster(&snapshot::ASKED),
    fails: Fails::Passes,
    reaches: Reaches::WhomItConcerns,
    thresholds: "creation",
};

/// Starts a snapshot in a throw-away etcd.
pub static DRILL: Operation = Operation {
    name: "Drill",
    state: ClusterState::Created,
    reason: "DrillingSnapshot",
    leaves: Leaves::AsItWas,
    order: Order::Takes,
    of_built: true,
    disruptive: false,
    quiet: true,
    decide: drill::decide,
    asked: AskedBy::Cluster(&drill::ASKED),
    fails: Fails::Passes,
    reaches: Reaches::WhomItConcerns,
    thresholds: "creation",
};

/// Renews the certificates of a built cluster's control plane.
pub static RENEW: Operation = Operation {
    name: "Renew",
    state: ClusterState::Renewing,
    reason: "Renewing",
    leaves: Leaves::AsItWas,
    order: Order::Says,
    of_built: true,
    disruptive: true,
    quiet: false,
    decide: renew::decide,
    asked: AskedBy::Cluster(&renew::ASKED),
    fails: Fails::Waits,
    reaches: Reaches::WhomItConcerns,
    thresholds: "renew",
};

/// Puts another host first in a built cluster, where the one that is first is to leave.
pub static REPLACE: Operation = Operation {
    name: "Replace",
    state: ClusterState::Replacing,
    reason: "Replacing",
    leaves: Leaves::Cluster,
    order: Order::Moves,
    of_built: true,
    disruptive: true,
    quiet: false,
    decide: replace::decide,
    asked: AskedBy::Nobody,
    fails: Fails::AsWished,
    reaches: Reaches::WhomItConcerns,
    thresholds: "creation",
};

/// Removes hosts from a built cluster.
pub static REMOVE: Operation = Operation {
    name: "Remove",
    state: ClusterState::Removing,
    reason: "Removing",
    leaves: Leaves::Cluster,
    order: Order::Says,
    of_built: true,
    disruptive: true,
    quiet: false,
    decide: remove::decide,
    asked: AskedBy::Nobody,
    fails: Fails::AsWished,
    reaches: Reaches::WhomItConcerns,
    thresholds: "creation",
};

/// Brings a built cluster to another version.
pub static UPGRADE: Operation = Operation {
    name: "Upgrade",
    state: ClusterState::Upgrading,
    reason: "Upgrading",
    leaves: Leaves::Cluster,
    order: Order::Says,
    of_built: true,
    disruptive: true,
    quiet: false,
    decide: upgrade::decide,
    asked: AskedBy::Nobody,
    fails: Fails::AsWished,
    reaches: Reaches::EveryHost,
    thresholds: "creation",
};

/// Brings one component of a built cluster to what the spec says.
pub static COMPONENT: Operation = Operation {
    name: "Component",
    state: ClusterState::Upgrading,
    reason: "UpgradingComponent",
    leaves: Leaves::Cluster,
    order: Order::Says,
    of_built: true,
    disruptive: true,
    quiet: false,
    decide: component::decide,
    asked: AskedBy::Cluster(&component::ASKED),
    fails: Fails::Waits,
    reaches: Reaches::WhomItConcerns,
    thresholds: "creation",
};

/// Makes new hosts part of a built cluster.
pub static SCALE: Operation = Operation {
    name: "Scale",
    state: ClusterState::Scaling,
    reason: "Scaling",
    leaves: Leaves::Cluster,
    order: Order::Says,
    of_built: true,
    disruptive: false,
    quiet: false,
    decide: scale::decide,
    asked: AskedBy::Nobody,
    fails: Fails::AsWished,
    reaches: Reaches::WhomItConcerns,
    thresholds: "scale",
};

/// Does to nodes or certificates of a built cluster what a person asks for.
pub static TOOLBOX: Operation = Operation {
    name: "Toolbox",
    state: ClusterState::Tending,
    reason: "Tending",
    leaves: Leaves::AsItWas,
    order: Order::Takes,
    of_built: true,
    disruptive: true,
    quiet: false,
    decide: toolbox::decide,
    asked: AskedBy::Cluster(&toolbox::ASKED),
    fails: Fails::Passes,
    reaches: Reaches::WhomItConcerns,
    thresholds: "creation",
};

/// Runs the playbooks once more over a built cluster.
pub static CONVERGE: Operation = Operation {
    name: cluster::CONVERGE,
    state: ClusterState::Converging,
    reason: "Converging",
    leaves: Leaves::Cluster,
    order: Order::Takes,
    of_built: true,
    disruptive: true,
    quiet: false,
    decide: converge::decide,
    asked: AskedBy::Cluster(&converge::ASKED),
    fails: Fails::HoldsUp,
    reaches: Reaches::EveryHost,
    thresholds: "converge",
};

/// Takes over a cluster that somebody else has built, as it stands.
pub static ADOPT: Operation = Operation {
    name: "Adopt",
    state: ClusterState::Adopting,
    reason: "Adopting",
    leaves: Leaves::Cluster,
    order: Order::Finds,
    of_built: false,
    disruptive: false,
    quiet: false,
    decide: adopt::decide,
    asked: AskedBy::Nobody,
    fails: Fails::AsWished,
    reaches: Reaches::WhomItConcerns,
    thresholds: "adopt",
};

/// Builds a cluster.
pub static CREATE: Operation = Operation {
    name: cluster::CREATE,
    state: ClusterState::Creating,
    reason: "Creating",
    leaves: Leaves::Cluster,
    order: Order::Says,
    of_built: false,
    disruptive: false,
    quiet: false,
    decide: create::decide,
    asked: AskedBy::Nobody,
    fails: Fails::AsWished,
    reaches: Reaches::EveryHost,
    thresholds: "creation",
};

/// One operation.
#[derive(Debug)]
pub struct Operation {
    /// Its word in a Run.
    pub name: &'static str,
    /// The state of the cluster meanwhile.
    pub state: ClusterState,
    /// The reason of its conditions meanwhile.
    pub reason: &'static str,
    /// What one that succeeded leaves on the hosts.
    pub leaves: Leaves,
    /// What its plan is to the order of the inventory.
    pub order: Order,
    /// It is of clusters only that are built.
    pub of_built: bool,
    /// It moves pods, or restarts what they rely on: it keeps to maintenance windows, unless a person asks for it.
    pub disruptive: bool,
    /// The cluster is the same before, meanwhile and after it, whatever becomes of it: it is Ready all the time, and what was the last run
    /// of it stays that. It comes at its own time, and keeps to no maintenance window.
    pub quiet: bool,
    /// What it decides about a cluster. None: another one has the say.
    pub decide: fn(&Situation<'_>) -> Option<Decision>,
    /// Whether people ask for it by an annotation.
    pub asked: AskedBy,
    /// What becomes of a built cluster after one that failed.
    pub fails: Fails,
    /// Which hosts it brings to what the spec says.
    pub reaches: Reaches,
    /// Where the thresholds of its steps stand, in `spec.operations`.
    pub thresholds: &'static str,
}

/// How people ask for an operation.
#[derive(Debug)]
pub enum AskedBy {
    /// By no annotation: it follows from what is declared.
    Nobody,
    /// By one of the Cluster.
    Cluster(&'static Asked),
    /// By that of a ClusterNode.
    Host(&'static str),
}

/// The hosts that an operation brings to what the spec says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reaches {
    /// All of the cluster.
    EveryHost,
    /// Those that it is about, or none.
    WhomItConcerns,
}

/// What becomes of a built cluster whose last run failed, where nobody asks for it anew.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fails {
    /// It waits for a person, and what could not go on without stands before it.
    Waits,
    /// It waits for a person, and what goes over the hosts that it may have left broken waits for that: hosts that join, and upgrades.
    HoldsUp,
    /// What it was for is found again in what is declared, or the operation says so itself.
    AsWished,
    /// That is past: the cluster is what it was.
    Passes,
}

/// What an operation is to the order of the inventory, which is state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Order {
    /// Its plan takes it as it is.
    Takes,
    /// Its plan says it: it puts hosts at the end of it, takes hosts out of it, or keeps that which the cluster was built with,
    /// whatever was given up since.
    Says,
    /// Its plan says it as the objects do. That counts once it succeeded: until the cluster has said the same, the objects may be corrected.
    Finds,
    /// Its plan says it, and may put another host first. That counts once it succeeded, and no sooner.
    Moves,
}

/// What an operation leaves on the hosts when it succeeded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Leaves {
    /// The cluster, as the plan says.
    Cluster,
    /// The cluster as it was before.
    AsItWas,
    /// Nothing of it.
    Nothing,
}

impl Operation {
    /// Whether the order of the inventory is that of the plan of a run.
    pub fn says_order(run: &Run) -> bool {
        Self::of(run).is_some_and(|operation| match operation.order {
            Order::Takes => false,
            Order::Says => true,
            Order::Finds | Order::Moves => phase(run) == RunPhase::Succeeded,
        })
    }

    /// Whether a Run is of an operation that leaves that.
    pub fn leaves(run: &Run, what: Leaves) -> bool {
        Self::of(run).is_some_and(|operation| operation.leaves == what)
    }

    /// Whether a Run is of an operation that brings every host of a cluster to what the spec says.
    pub fn is_whole(run: &Run) -> bool {
        Self::of(run).is_some_and(|operation| operation.reaches == Reaches::EveryHost)
    }

    /// Whether a Run is of an operation that leaves the cluster alone.
    pub fn is_quiet(run: &Run) -> bool {
        Self::of(run).is_some_and(|operation| operation.quiet)
    }

    /// The operation of a Run, if it is a cluster's and this program knows it. Runs of other engines have some of these words too.
    pub fn of(run: &Run) -> Option<&'static Self> {
        let is_ours = run.spec.subject.is_a::<Cluster>();
        let mut all = ALL.into_iter();
        all.find(|operation| is_ours && operation.name == run.spec.operation)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use api::run::{Plan, RunSpec, Subject};

    use super::*;

    #[test]
    fn each_operation_has_a_word_of_its_own() {
        let names: BTreeSet<_> = ALL.iter().map(|operation| operation.name).collect();
        assert_eq!(names.len(), ALL.len());
        for operation in ALL {
            let names_itself = operation
                .name
                .starts_with(|first: char| first.is_ascii_uppercase());
            assert!(names_itself, "{}", operation.name);
        }
    }

    #[test]
    fn a_word_is_an_operation_of_clusters_only() {
        let run = |subject| {
            Run::new(
                "r",
                RunSpec {
                    subject,
                    operation: UPGRADE.name.to_owned(),
                    generation: 1,
                    plan: Plan::default(),
                    control: None,
                },
            )
        };
        let of = |api_group: &str, kind: &str| {
            let subject = Subject {
                api_group: api_group.to_owned(),
                kind: kind.to_owned(),
                ..Subject::default()
            };
            Operation::of(&run(subject)).map(|operation| operation.name)
        };
        let ours = Subject::of(&Cluster::new("c", api::ClusterSpec::default()));
        assert_eq!(of(&ours.api_group, &ours.kind), Some(UPGRADE.name));
        assert_eq!(of("operator.cluster.x-k8s.io", "CoreProvider"), None);
        assert_eq!(of("cluster.x-k8s.io", &ours.kind), None);
    }

    #[test]
    fn the_page_of_concepts_tells_what_people_see_of_each_operation() {
        let page = include_str!("../../../docs/concepts.md");
        let (states, reasons) = page.split_once("| reason").expect("the table of reasons");
        for Operation {
            name,
            state,
            reason,
            ..
        } in ALL
        {
            let state = format!("{state:?}");
            let mut words = states.split(|letter: char| !letter.is_alphanumeric());
            assert!(words.any(|word| word == state), "{name}: {state}");
            assert!(reasons.contains(&format!("`{reason}`")), "{name}: {reason}");
        }
    }
}
