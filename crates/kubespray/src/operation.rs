//! What can be done to a cluster: what people see of each operation, and what it does to the cluster.
//!
//! When an operation has the say and what it compiles to stands in a file of its own. To add one, write that file, its row here
//! and its place in [`cluster::plan`](crate::cluster::plan). Everything else asks the table.

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

use api::{Cluster, Run, cluster::ClusterState, run::RunPhase};
use runs::phase;

/// The operations.
pub const ALL: [&Operation; 15] = [
    &RESET,
    &RESET_HOST,
    &RECOVER,
    &SNAPSHOT,
    &DRILL,
    &RENEW,
    &REPLACE,
    &REMOVE,
    &UPGRADE,
    &COMPONENT,
    &SCALE,
    &TOOLBOX,
    &CONVERGE,
    &ADOPT,
    &CREATE,
];

/// Removes Kubernetes from the hosts.
pub const RESET: Operation = Operation {
    name: "Reset",
    state: ClusterState::Deleting,
    reason: "Resetting",
    leaves: Leaves::Nothing,
    order: Order::Takes,
    of_built: false,
    disruptive: true,
    quiet: false,
};

/// Removes what is left of Kubernetes from a host that is no part of a built cluster.
pub const RESET_HOST: Operation = Operation {
    name: "ResetHost",
    state: ClusterState::Removing,
    reason: "ResettingHost",
    leaves: Leaves::AsItWas,
    order: Order::Says,
    of_built: true,
    disruptive: false,
    quiet: false,
};

/// Brings back a built cluster whose etcd lost its quorum.
pub const RECOVER: Operation = Operation {
    name: "Recover",
    state: ClusterState::Recovering,
    reason: "Recovering",
    leaves: Leaves::Cluster,
    order: Order::Moves,
    of_built: true,
    disruptive: true,
    quiet: false,
};

/// Saves a snapshot of a built cluster's etcd outside of it.
pub const SNAPSHOT: Operation = Operation {
    name: "Snapshot",
    state: ClusterState::Created,
    reason: "SavingSnapshot",
    leaves: Leaves::AsItWas,
    order: Order::Takes,
    of_built: true,
    disruptive: false,
    quiet: true,
};

/// Starts a snapshot in a throw-away etcd.
pub const DRILL: Operation = Operation {
    name: "Drill",
    state: ClusterState::Created,
    reason: "DrillingSnapshot",
    leaves: Leaves::AsItWas,
    order: Order::Takes,
    of_built: true,
    disruptive: false,
    quiet: true,
};

/// Renews the certificates of a built cluster's control plane.
pub const RENEW: Operation = Operation {
    name: "Renew",
    state: ClusterState::Renewing,
    reason: "Renewing",
    leaves: Leaves::AsItWas,
    order: Order::Says,
    of_built: true,
    disruptive: true,
    quiet: false,
};

/// Puts another host first in a built cluster, where the one that is first is to leave.
pub const REPLACE: Operation = Operation {
    name: "Replace",
    state: ClusterState::Replacing,
    reason: "Replacing",
    leaves: Leaves::Cluster,
    order: Order::Moves,
    of_built: true,
    disruptive: true,
    quiet: false,
};

/// Removes hosts from a built cluster.
pub const REMOVE: Operation = Operation {
    name: "Remove",
    state: ClusterState::Removing,
    reason: "Removing",
    leaves: Leaves::Cluster,
    order: Order::Says,
    of_built: true,
    disruptive: true,
    quiet: false,
};

/// Brings a built cluster to another version.
pub const UPGRADE: Operation = Operation {
    name: "Upgrade",
    state: ClusterState::Upgrading,
    reason: "Upgrading",
    leaves: Leaves::Cluster,
    order: Order::Says,
    of_built: true,
    disruptive: true,
    quiet: false,
};

/// Brings one component of a built cluster to what the spec says.
pub const COMPONENT: Operation = Operation {
    name: "Component",
    state: ClusterState::Upgrading,
    reason: "UpgradingComponent",
    leaves: Leaves::Cluster,
    order: Order::Says,
    of_built: true,
    disruptive: true,
    quiet: false,
};

/// Makes new hosts part of a built cluster.
pub const SCALE: Operation = Operation {
    name: "Scale",
    state: ClusterState::Scaling,
    reason: "Scaling",
    leaves: Leaves::Cluster,
    order: Order::Says,
    of_built: true,
    disruptive: false,
    quiet: false,
};

/// Does to nodes or certificates of a built cluster what a person asks for.
pub const TOOLBOX: Operation = Operation {
    name: "Toolbox",
    state: ClusterState::Tending,
    reason: "Tending",
    leaves: Leaves::AsItWas,
    order: Order::Takes,
    of_built: true,
    disruptive: true,
    quiet: false,
};

/// Runs the playbooks once more over a built cluster.
pub const CONVERGE: Operation = Operation {
    name: "Converge",
    state: ClusterState::Converging,
    reason: "Converging",
    leaves: Leaves::Cluster,
    order: Order::Takes,
    of_built: true,
    disruptive: true,
    quiet: false,
};

/// Takes over a cluster that somebody else has built, as it stands.
pub const ADOPT: Operation = Operation {
    name: "Adopt",
    state: ClusterState::Adopting,
    reason: "Adopting",
    leaves: Leaves::Cluster,
    order: Order::Finds,
    of_built: false,
    disruptive: false,
    quiet: false,
};

/// Builds a cluster.
pub const CREATE: Operation = Operation {
    name: "Create",
    state: ClusterState::Creating,
    reason: "Creating",
    leaves: Leaves::Cluster,
    order: Order::Says,
    of_built: false,
    disruptive: false,
    quiet: false,
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
        let whole = [&CREATE, &CONVERGE, &UPGRADE];
        Self::of(run).is_some_and(|of| whole.iter().any(|whole| whole.name == of.name))
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
