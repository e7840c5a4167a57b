//! What clusters were rendered to, from one inventory to the next.
//!
//! An inventory never changes, an edit makes another one. Most clusters read nothing of what was edited: they are told by the content of
//! all that they read (the Hierarchy, the objects of their levels, the template, themselves), and need not be rendered again. Which objects
//! those are is looked up anew in each inventory, so a cluster that another parent is given to, or an object that comes or goes, is noticed
//! too.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use api::inventory::FleetClusterSpec;

use crate::{
    fleet::{Changed, Fleet},
    problem::Object,
};

/// What a cluster is rendered from, by content.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    pub(crate) cluster: Arc<FleetClusterSpec>,
    /// What has changed in Vault.
    pub(crate) changed: Option<Arc<Changed>>,
    /// The objects that it reads.
    pub(crate) read: Reads,
}

impl PartialEq for Inputs {
    fn eq(&self, other: &Self) -> bool {
        // Of thousands that were not edited none is compared whole.
        let is_same = Arc::ptr_eq(&self.cluster, &other.cluster) || self.cluster == other.cluster;
        is_same && self.changed == other.changed && self.read == other.read
    }
}

/// Objects that are read, in the order in which they count, with the digests of what they say.
pub(crate) type Reads = Arc<[(Object, Option<Arc<str>>)]>;

/// What a cluster names. Those that name the same read the same: of thousands each would be looked up, and kept, by itself.
#[derive(Debug, Eq, Hash, PartialEq)]
pub(crate) struct Named {
    pub(crate) namespace: String,
    pub(crate) hierarchy: Option<String>,
    pub(crate) parents: BTreeMap<String, String>,
    pub(crate) template: Option<String>,
}

/// Remembers what was made of clusters.
#[derive(Debug)]
pub struct Memo<T> {
    known: HashMap<Object, (Inputs, T)>,
}

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
        }
    }
}

impl<T: Clone> Memo<T> {
    /// What `render` makes of a cluster of an inventory. It is not asked where the cluster reads what it read the last time.
    pub fn render(&mut self, fleet: &Fleet, cluster: &Object, render: impl FnOnce() -> T) -> T {
        if let Some(made) = self.get(fleet, cluster) {
            return made;
        }
        let made = render();
        self.put(fleet, cluster, made.clone());
        made
    }

    /// What was made of a cluster that reads what it read then.
    pub fn get(&mut self, fleet: &Fleet, cluster: &Object) -> Option<T> {
        let inputs = fleet.inputs(cluster)?;
        let (held, made) = self.known.get_mut(cluster)?;
        if *held != inputs {
            return None;
        }
        // So nothing of an inventory before is kept in memory.
        *held = inputs;
        Some(made.clone())
    }

    /// Remembers what was made of a cluster of an inventory.
    pub fn put(&mut self, fleet: &Fleet, cluster: &Object, made: T) {
        // Where an object is missing the problem may name others, which come and go.
        match fleet.inputs(cluster) {
            Some(inputs) => self.known.insert(cluster.clone(), (inputs, made)),
            None => self.known.remove(cluster),
        };
    }

    /// Forgets the clusters that an inventory has not.
    pub fn retain(&mut self, fleet: &Fleet) {
        self.known.retain(|cluster, _| {
            let name = (cluster.namespace.clone(), cluster.name.clone());
            fleet.clusters.contains_key(&name)
        });
    }
}
