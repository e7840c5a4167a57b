//! The objects of a namespace that belong together, each after its owners.

use std::{collections::BTreeSet, sync::Arc};

use kube::{Resource, ResourceExt, api::DynamicObject};

use crate::{
    error::{Error, Result, ensure},
    kind::Kind,
    mark::{self, MOVED, MOVING},
};

/// An object and its kind.
///
/// It is handled as JSON, not as its type: what a newer Windlass wrote must arrive whole.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its kind.
    pub(crate) kind: Arc<Kind>,
    /// The object.
    pub object: DynamicObject,
}

impl Item {
    /// Its name.
    pub fn name(&self) -> String {
        self.object.name_any()
    }

    /// Whether it is of the kind `K`.
    pub fn is<K>(&self) -> bool
    where
        K: Resource<DynamicType = ()>,
    {
        self.kind.is::<K>()
    }

    /// As KIND/NAME, for people.
    pub fn shown(&self) -> String {
        format!("{}/{}", self.kind.name(), self.name())
    }
}

/// What a namespace of one side holds of the domains that are moved, with the Secrets and ConfigMaps that belong to it.
#[derive(Clone, Debug)]
pub struct Graph {
    namespace: String,
    items: Vec<Item>,
}

impl Graph {
    /// The objects of `kinds`, which stand in the order of their creation where no owner says otherwise.
    ///
    /// # Errors
    /// They own each other in a circle.
    pub(crate) fn new(namespace: &str, kinds: Vec<Vec<Item>>) -> Result<Self> {
        let sorted = kinds.into_iter().flat_map(|mut items| {
            items.sort_by_key(|item| (mark::created(&item.object.metadata), item.name()));
            items
        });
        Ok(Self {
            namespace: namespace.to_owned(),
            items: after_owners(sorted.collect())?,
        })
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The objects, each after its owners.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The objects of a kind.
    pub fn of<K>(&self) -> impl Iterator<Item = &Item>
    where
        K: Resource<DynamicType = ()>,
    {
        self.items.iter().filter(|item| item.is::<K>())
    }

    /// The objects of a kind, as far as this version can read them.
    pub fn parsed<K>(&self) -> impl Iterator<Item = K>
    where
        K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned,
    {
        self.of::<K>()
            .filter_map(|item| item.object.clone().try_parse().ok())
    }

    /// The objects of a kind that was registered.
    pub(crate) fn of_kind(&self, kind: &Kind) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(move |item| *item.kind == *kind)
    }

    pub(crate) fn roots(&self) -> impl DoubleEndedIterator<Item = &Item> {
        self.items.iter().filter(|item| item.kind.is_root())
    }

    pub(crate) fn has_roots(&self) -> bool {
        self.roots().next().is_some()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.items.iter().map(Item::shown).collect()
    }

    /// Whether the point of no return is behind: every copy was compared.
    pub(crate) fn is_moved(&self) -> bool {
        self.roots()
            .all(|root| root.object.annotations().contains_key(MOVED))
    }

    /// An earlier move that did not end must have been to the same place.
    pub(crate) fn same_target(&self, place: &str) -> Result<()> {
        let (leaving, returning) = (mark::leaving(place), mark::returning(place));
        for root in self.roots() {
            let found = mark::of(&root.object.metadata).unwrap_or(&leaving);
            ensure(*found != returning, || {
                format!(
                    "{}: annotation {MOVING} is {found:?}; end that first, with --abort",
                    root.shown()
                )
            })?;
            ensure(*found == leaving, || {
                format!(
                    "{}: annotation {MOVING} is {found:?}, another move that has not ended; end it first, with the same \
                     --to-kubeconfig and --to-namespace as then, or take it back with --abort",
                    root.shown()
                )
            })?;
        }
        Ok(())
    }
}

fn after_owners(mut items: Vec<Item>) -> Result<Vec<Item>> {
    let mut waiting: BTreeSet<String> = items.iter().filter_map(|item| item.object.uid()).collect();
    let mut done = Vec::new();
    while !items.is_empty() {
        let free = |item: &Item| {
            let owners = item.object.owner_references();
            !owners.iter().any(|owner| waiting.contains(&owner.uid))
        };
        let Some(at) = items.iter().position(free) else {
            let names: Vec<_> = items.iter().map(Item::shown).collect();
            return Err(Error::Stopped(format!(
                "metadata.ownerReferences of {}: they own each other in a circle; remove one of the references",
                names.join(", ")
            )));
        };
        let item = items.remove(at);
        if let Some(uid) = item.object.uid() {
            waiting.remove(&uid);
        }
        done.push(item);
    }
    Ok(done)
}
