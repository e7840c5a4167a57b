//! What a host is for.

use api::node::Role;

/// What a host is for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// Control plane and member of etcd.
    Master,
    /// The same, and takes pods.
    All,
    /// Control plane alone.
    Plane,
    /// Member of etcd alone.
    Etcd,
    /// Member of etcd, and takes pods.
    Store,
    /// Takes pods.
    Worker,
}

impl Kind {
    /// Those of which each way to put them together is looked at.
    pub const ALL: [Self; 5] = [
        Self::Master,
        Self::All,
        Self::Plane,
        Self::Etcd,
        Self::Worker,
    ];

    pub fn spec(self) -> (&'static str, Vec<Role>) {
        match self {
            Self::Master => ("master", vec![Role::ControlPlane, Role::Etcd]),
            Self::All => ("master", vec![Role::ControlPlane, Role::Etcd, Role::Worker]),
            Self::Plane => ("master", vec![Role::ControlPlane]),
            Self::Etcd => ("etcd", vec![Role::Etcd]),
            Self::Store => ("etcd", vec![Role::Etcd, Role::Worker]),
            Self::Worker => ("worker", vec![Role::Worker]),
        }
    }
}
