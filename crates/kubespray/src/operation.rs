//! What can be done to a cluster. Each operation is a file: when it has the say, what it compiles to, and what people see.
//!
//! To add one, write its file and name it in [`ALL`]. Everything else asks the table.

pub mod converge;
pub mod create;
pub mod reset;

use api::{Cluster, Run, cluster::ClusterState};

use crate::{
    cluster::{observe::Observed, plan::Decision, resolve::Resolved},
    problem::Problem,
};

/// The operations, in the order in which they are asked: the first with a decision has the say.
pub const ALL: [&Operation; 3] = [&reset::RESET, &converge::CONVERGE, &create::CREATE];

/// One operation.
#[derive(Debug)]
pub struct Operation {
    /// Its word in a Run.
    pub name: &'static str,
    /// What is to be done about a cluster. None: another operation has the say.
    pub decide: fn(&Situation<'_>) -> Option<Decision>,
    /// The state of the cluster meanwhile.
    pub state: ClusterState,
    /// The reason of its conditions meanwhile.
    pub reason: &'static str,
    /// What one that succeeded leaves on the hosts.
    pub leaves: Leaves,
    /// Its plan may put hosts at the end of the order of the inventory.
    pub orders: bool,
    /// It is of clusters only that are built.
    pub of_built: bool,
}

/// What an operation leaves on the hosts when it succeeded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Leaves {
    /// The cluster, as the plan says.
    Cluster,
    /// Nothing of it.
    Nothing,
}

/// What is decided from.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The wish, or what is wrong with it.
    pub wanted: Result<&'a Resolved, &'a [Problem]>,
    /// What there is.
    pub observed: &'a Observed,
}

impl Operation {
    /// Whether a Run is of an operation that leaves that.
    pub fn leaves(run: &Run, what: Leaves) -> bool {
        Self::of(run).is_some_and(|operation| operation.leaves == what)
    }

    /// The operation of a Run, if this program knows it.
    pub fn of(run: &Run) -> Option<&'static Self> {
        let mut all = ALL.into_iter();
        all.find(|operation| operation.name == run.spec.operation)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
}
