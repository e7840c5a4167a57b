//! What an operator registers, so that its objects move: data, and code where data does not say it.

use std::{error::Error as StdError, sync::Arc};

use controller::problem::Problem;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    ResourceExt as _,
    core::{Selector, SelectorExt as _},
};

use crate::{
    error::{Error, Result},
    graph::{Graph, Item},
    kind::{Config, Kind},
};

/// The objects of one operator.
pub struct Domain {
    /// What messages call it.
    pub name: &'static str,
    /// The kinds that move, in the order of their creation where no owner says otherwise. At least one has a [`crate::Root`].
    /// A kind that several domains share, such as that of their runs, stands in each of them, with what says which objects are its
    /// own ([`Kind::only`]). What is one's own moves, once.
    pub kinds: Vec<Kind>,
    /// The field managers of its reconcilers: what they wrote beside the status, such as finalizers, the reconcilers of the other
    /// side write anew on the copy. All other managers keep their fields.
    pub field_managers: &'static [&'static str],
    /// The Secrets and ConfigMaps that belong to it by their labels. Those that its objects own move without being named.
    pub selected: Vec<Selected>,
    /// What only code can say.
    pub hooks: Box<dyn Hooks>,
}

impl Domain {
    /// Whether an object is one of it.
    fn has(&self, item: &Item) -> bool {
        let mut kinds = self.kinds.iter();
        kinds.any(|kind| *kind == *item.kind && kind.takes(&item.object))
    }
}

/// Secrets or ConfigMaps by their labels.
#[derive(Clone, Debug)]
pub struct Selected {
    /// Which of the two.
    pub kind: Config,
    /// Their labels.
    pub labels: Selector,
}

/// A Secret or a ConfigMap by its name.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Reference {
    /// Which of the two.
    pub kind: Config,
    /// Its name.
    pub name: String,
}

/// What lies beside the objects on the side that they leave, such as in a file, and moves in a Secret.
#[derive(Clone, Debug)]
pub struct Brought {
    /// What it is, for people; in the plural.
    pub what: &'static str,
    /// The Secret to apply on the side that the objects leave; it moves if something owns it, names it or selects it.
    pub secret: Secret,
}

/// What only code can say of a domain's objects. Each method looks at what was read and changes nothing; `here` and `there`
/// hold the objects of all domains that move.
pub trait Hooks: Send + Sync {
    /// The Secrets and ConfigMaps that an object of the domain names and does not own.
    fn references(&self, _item: &Item) -> Vec<Reference> {
        Vec::new()
    }

    /// What stands in the way of a move, here or there, that the machinery cannot know: it looks itself for rights, for kinds and
    /// fields that are not served there, for other objects of a name there, and for objects here that are being deleted.
    fn refusals(&self, _here: &Graph, _there: &Graph) -> Vec<Problem> {
        Vec::new()
    }

    /// What will need a person's hand after the move.
    fn warnings(&self, _here: &Graph) -> Vec<String> {
        Vec::new()
    }

    /// What lies beside the objects and is to move. What its Secret here says already is left out.
    ///
    /// # Errors
    /// It is there and cannot be read. That there is none is no error.
    fn brings(&self, _here: &Graph) -> Result<Vec<Brought>, Box<dyn StdError + Send + Sync>> {
        Ok(Vec::new())
    }

    /// Who is at work on a marked root, for people. While the Lease of the root is held this names who is waited for; of a root
    /// without a Lease, the move waits until it is nobody.
    fn at_work(&self, _here: &Graph, _root: &Item) -> Option<String> {
        None
    }

    /// Whether somebody may still be at work who lost sight of the API, and sees only later that the Lease is the move's.
    fn may_be_at_work(&self, _here: &Graph) -> bool {
        false
    }
}

/// The domains of a move, and their kinds.
pub(crate) struct Domains<'a> {
    list: Vec<&'a Domain>,
    acted_on: Vec<Arc<Kind>>,
    configs: [(Config, Arc<Kind>); 2],
}

impl<'a> Domains<'a> {
    pub(crate) fn new(domains: Vec<&'a Domain>) -> Self {
        let mut acted_on: Vec<Kind> = Vec::new();
        for kind in domains.iter().flat_map(|domain| &domain.kinds) {
            match acted_on.iter_mut().find(|known| **known == *kind) {
                Some(known) => known.and(kind),
                None => acted_on.push(kind.clone()),
            }
        }
        Self {
            list: domains,
            acted_on: acted_on.into_iter().map(Arc::new).collect(),
            configs: Config::ALL.map(|config| (config, Arc::new(config.kind()))),
        }
    }

    /// The kinds that are marked, in the order of their creation.
    pub(crate) fn acted_on(&self) -> &[Arc<Kind>] {
        &self.acted_on
    }

    /// Those of them that are roots.
    pub(crate) fn roots(&self) -> impl DoubleEndedIterator<Item = &Arc<Kind>> {
        self.acted_on.iter().filter(|kind| kind.is_root())
    }

    /// Those of them that are none.
    pub(crate) fn members(&self) -> impl DoubleEndedIterator<Item = &Arc<Kind>> {
        self.acted_on.iter().filter(|kind| !kind.is_root())
    }

    /// Secret and ConfigMap.
    pub(crate) const fn configs(&self) -> &[(Config, Arc<Kind>)] {
        &self.configs
    }

    /// All kinds, in the order of their creation.
    pub(crate) fn kinds(&self) -> impl DoubleEndedIterator<Item = &Arc<Kind>> {
        let configs = self.configs.iter().map(|(_, kind)| kind);
        configs.chain(&self.acted_on)
    }

    /// The kinds of the roots, for people.
    pub(crate) fn root_names(&self) -> String {
        let names: Vec<_> = self.roots().map(|kind| kind.name()).collect();
        names.join(" or ")
    }

    pub(crate) fn has_leases(&self) -> bool {
        let mut roots = self.acted_on.iter().filter_map(|kind| kind.root.as_ref());
        roots.any(|root| root.lease.is_some())
    }

    /// What the objects name.
    pub(crate) fn references(&self, items: &[Item]) -> Vec<Reference> {
        let of = |item: &Item| {
            let domains = self.list.iter();
            let domains = domains.filter(|domain| domain.has(item));
            let named = domains.flat_map(|domain| domain.hooks.references(item));
            named.collect::<Vec<_>>()
        };
        items.iter().flat_map(of).collect()
    }

    /// Whether the labels of an object make it one of a domain.
    pub(crate) fn selects(&self, config: Config, item: &Item) -> bool {
        let mut selected = self.list.iter().flat_map(|domain| &domain.selected);
        selected.any(|selected| {
            selected.kind == config && selected.labels.matches(item.object.labels())
        })
    }

    /// Whether a field manager is of a reconciler.
    pub(crate) fn manages(&self, manager: &str) -> bool {
        let mut managers = self.list.iter().flat_map(|domain| domain.field_managers);
        managers.any(|own| *own == manager)
    }

    pub(crate) fn refusals(&self, here: &Graph, there: &Graph) -> Vec<Problem> {
        self.each(|hooks| hooks.refusals(here, there))
    }

    pub(crate) fn warnings(&self, here: &Graph) -> Vec<String> {
        self.each(|hooks| hooks.warnings(here))
    }

    pub(crate) fn brings(&self, here: &Graph) -> Result<Vec<Brought>> {
        let mut all = Vec::new();
        for domain in &self.list {
            let brought = domain.hooks.brings(here);
            all.extend(brought.map_err(|source| Error::Domain {
                domain: domain.name,
                source,
            })?);
        }
        Ok(all)
    }

    pub(crate) fn at_work(&self, here: &Graph, root: &Item) -> Option<String> {
        let mut domains = self.list.iter();
        domains.find_map(|domain| {
            domain
                .has(root)
                .then(|| domain.hooks.at_work(here, root))
                .flatten()
        })
    }

    pub(crate) fn may_be_at_work(&self, here: &Graph) -> bool {
        let mut domains = self.list.iter();
        domains.any(|domain| domain.hooks.may_be_at_work(here))
    }

    fn each<T>(&self, of: impl Fn(&dyn Hooks) -> Vec<T>) -> Vec<T> {
        let domains = self.list.iter();
        domains.flat_map(|domain| of(&*domain.hooks)).collect()
    }
}
