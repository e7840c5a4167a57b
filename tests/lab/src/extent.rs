//! How much of the matrix of versions and random cases the suites go through.

use std::path::PathBuf;

use anyhow::Result;

use crate::{Kubernetes, Progress, kubectl, programs};

/// How much of the matrix the suites go through. Every story and every assertion is part of both, but for the stories that [`Extent::ADDED`] names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// One of each: what every change is tested with.
    Usual,
    /// All of each.
    Full,
}

impl Extent {
    /// Names the extent to the suites: `full`, or anything else for the usual one.
    pub const VARIABLE: &str = "WINDLASS_TESTS";

    /// What [`Extent::Full`] adds. `CONTRIBUTING.md` says of each why it is not in every run.
    pub const ADDED: &[&str] = &[
        "the oldest Kubernetes: conformance, `tests/lab`, the operator of one namespace",
        "the images with musl in their programs, as released, instead of this machine's C library",
        "kubectl 1.29 to 1.33: the embedded API, conformance, the plugin",
        "eight seeds of random requests instead of one",
        "100,000 random stories of a cluster instead of 2,000, and recoveries of every cluster of five hosts, not four",
        "the origins of 10,000 random hierarchies instead of 1,000",
        "300 random documents of SOPS instead of 40",
        "runners in Jobs are killed at five edges of their journals instead of two",
        "a control plane becomes three, and two of them leave, of which one is dead",
        "a cluster that was raised by a job of another one manages itself",
        "a cluster of three control planes is brought back of which two are lost",
        "a cluster whose data is broken is brought back from a snapshot of the store",
        "the container engine, etcd and the network plugin of a cluster are upgraded alone",
        "the host that heads the control plane and etcd is replaced",
        "three control planes are upgraded by a patch release and renewed while their API is asked all the time",
        "a cluster that plain `ansible-playbook` raised is adopted, and a worker joins it",
        "a cluster is asked for by OpenStack's command line, on hosts, and grows and goes by it",
        "clusters of a real Magnum 21, 22 and 23 are made by the driver in it",
        "a real Magnum 23 answers as Windlass does",
        "OpenStack's and gophercloud's own tests of a Magnum",
        "a cluster of servers lives by OpenStack's command line under the real managers of Cluster API, on servers in memory",
        "the databases of a real Magnum 21 and 23 come from a real MariaDB, and are shown as that Magnum shows them",
        "a cloud is backed up, drilled and brought back",
        "in a cloud, keys, users and passwords are rotated and a slip in a file is refused while tokens are issued, and what `render` prints is held against it",
        "Keystone in an image that starts by Kolla's own scripts, with a memcached; and an update that ends at it, for it lets nobody in",
        "a cloud has a RabbitMQ of its own, which Keystone tells what people do",
        "people work at each layer of a cloud by the guides' own commands, and come back: what they changed is kept or named; a database server has a volume that is too small",
        "releases by Helm 4 beside Helm 3",
        "the runner of a Keystone dies at all that it is about to write, instead of at one such place",
        "clusterctl beside our move of its objects",
        "a move of Cluster API objects is stopped at each of its writes instead of each seventh",
        "clusterctl beside our rendering of providers",
        "four providers of Cluster API run in a real cluster, raise clusters, survive an image that is nowhere, and are upgraded while they are called and Windlass is killed; plain clusterctl sees them",
        "a ProviderSet upgrades four real providers of Cluster API in its window, and goes back from a release of core that does not start; a running cluster is carried to other managers by a move that is killed, and fifty clusters come up at once",
        "providers of Cluster API that Windlass installs make throw-away hosts a real cluster by cloud-init and kubeadm, take its worker away and delete it",
        "a fleet on machines in memory: an edit of a site replaces the Machines that it changes and no others, and ten random edits those that were foretold",
        "a fleet of topologies on machines in memory, under the real topology controller: clusters go to another class, to other variables and to another version, and replace the Machines that were foretold",
        "scale and remove are killed at every edge of their journals, runner and operator, instead of at one step",
        "a cluster is upgraded by a minor version, node by node, while somebody uses it, and runner and operator are killed at every edge",
        "a provider that the Cluster API operator installed goes on under Windlass, and under that operator again",
        "definitions of providers: held against those of the Cluster API operator",
    ];

    /// The extent of this run, as [`Extent::VARIABLE`] says.
    pub fn of_this_run() -> Self {
        match std::env::var(Self::VARIABLE) {
            Ok(text) if text == Self::Full.name() => Self::Full,
            _ => Self::Usual,
        }
    }

    /// What [`Extent::VARIABLE`] is set to.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::Full => "full",
        }
    }

    /// The versions of Kubernetes, oldest first.
    pub const fn kubernetes(self) -> &'static [Kubernetes] {
        match self {
            Self::Usual => &[Kubernetes::Newest],
            Self::Full => &Kubernetes::ALL,
        }
    }

    /// kubectl of each version, oldest first.
    ///
    /// # Errors
    ///
    /// One cannot be had.
    pub fn kubectls(self, progress: &dyn Progress) -> Result<Vec<PathBuf>> {
        let newest = programs::ensure(progress)?.dir.join("kubectl");
        let mut kubectls = match self {
            Self::Usual => Vec::new(),
            Self::Full => kubectl::ensure(progress)?,
        };
        kubectls.push(newest);
        Ok(kubectls)
    }

    /// How many random stories of a cluster are told.
    pub const fn stories(self) -> u32 {
        match self {
            Self::Usual => 2_000,
            Self::Full => 100_000,
        }
    }

    /// How many random hierarchies have the origins of their leaves proved.
    pub const fn hierarchies(self) -> u32 {
        match self {
            Self::Usual => 1_000,
            Self::Full => 10_000,
        }
    }

    /// How many seeds random suites go through.
    pub const fn seeds(self) -> u64 {
        match self {
            Self::Usual => 1,
            Self::Full => 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_what_a_full_run_adds() {
        let guide = include_str!("../../../CONTRIBUTING.md");
        for added in Extent::ADDED {
            let row = format!("\n| {added} | ");
            assert!(guide.contains(&row), "CONTRIBUTING.md has no row {row:?}");
        }
    }
}
