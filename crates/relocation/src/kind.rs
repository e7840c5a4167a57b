//! The kinds of objects that move: what a domain registers of each.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Resource,
    api::{ApiResource, DynamicObject},
};

/// A kind whose objects move.
#[derive(Clone, Debug)]
pub struct Kind {
    pub(crate) resource: ApiResource,
    /// Who writes the status: the copy of a status belongs to nobody else, or fields that it gives up would stay. None: it
    /// has none, and nobody acts on it.
    pub(crate) status_manager: Option<&'static str>,
    /// The finalizer with which its operator holds an object, if it does.
    pub(crate) finalizer: Option<&'static str>,
    pub(crate) root: Option<Root>,
    /// What makes an object one that moves: any of these; none: every one does.
    only: Vec<fn(&DynamicObject) -> bool>,
}

/// What a kind is more whose objects the others stand or fall with, such as the one that a person applies.
///
/// A root is marked first and let go last, so its marks say how far the move is: that of the last root which is marked as moved
/// is the point of no return. A namespace without a root of a domain has nothing of it to move.
#[derive(Clone, Debug)]
pub struct Root {
    /// What messages call what it stands for, in lower case.
    pub noun: &'static str,
    /// What of the world it is about, which a move does not touch, for messages; such as `host`.
    pub spared: &'static str,
    /// The Lease of who works on it. None: those who work on it are asked for by [`crate::Hooks::at_work`].
    pub lease: Option<RootLease>,
    /// The types of the conditions that its operator writes while it is marked: they are not compared.
    pub told_meanwhile: &'static [&'static str],
}

/// The Lease that whoever works on a root holds. A move takes it with a generation that nobody can have, for good.
#[derive(Clone, Copy, Debug)]
pub struct RootLease {
    /// Its name, by the root's.
    pub name: fn(&str) -> String,
    /// Whether a holder is known to be gone, so that its Lease need not be waited for.
    pub is_gone: fn(&str) -> bool,
}

impl Kind {
    /// A kind that somebody acts on, and which is therefore marked; `status_manager` is the field manager of its status.
    pub fn acted_on<K>(status_manager: &'static str) -> Self
    where
        K: Resource<DynamicType = ()>,
    {
        Self {
            status_manager: Some(status_manager),
            ..Self::passive::<K>()
        }
    }

    /// The finalizer with which its operator holds an object. The operator lets go of a marked root that is deleted, and puts files
    /// of its own aside as it does; where none is at work, and from other objects, the finalizer is taken away.
    #[must_use]
    pub const fn held_by(mut self, finalizer: &'static str) -> Self {
        self.finalizer = Some(finalizer);
        self
    }

    /// The kind of a root.
    #[must_use]
    pub fn root(mut self, root: Root) -> Self {
        self.root = Some(root);
        self
    }

    /// Only the objects that `own` is true of are the domain's: of a kind that several operators share. The others stay as they are.
    #[must_use]
    pub fn only(mut self, own: fn(&DynamicObject) -> bool) -> Self {
        self.only.push(own);
        self
    }

    /// Takes what `other`, the same kind of another domain, takes too.
    pub(crate) fn and(&mut self, other: &Self) {
        if self.only.is_empty() || other.only.is_empty() {
            self.only.clear();
        } else {
            self.only.extend(&other.only);
        }
    }

    /// Whether an object of the kind moves.
    pub(crate) fn takes(&self, object: &DynamicObject) -> bool {
        self.only.is_empty() || self.only.iter().any(|own| own(object))
    }

    fn passive<K>() -> Self
    where
        K: Resource<DynamicType = ()>,
    {
        Self {
            resource: ApiResource::erase::<K>(&()),
            status_manager: None,
            finalizer: None,
            root: None,
            only: Vec::new(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.resource.kind
    }

    /// Whether it is the kind of `K`.
    pub(crate) fn is<K>(&self) -> bool
    where
        K: Resource<DynamicType = ()>,
    {
        self.resource.kind == K::kind(&()) && self.resource.group == K::group(&())
    }

    /// Whether somebody acts on objects of the kind, so that they are marked while they are moved.
    pub(crate) const fn is_acted_on(&self) -> bool {
        self.status_manager.is_some()
    }

    pub(crate) const fn is_root(&self) -> bool {
        self.root.is_some()
    }
}

/// Two domains that name the same group and kind mean the same.
impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        let (own, other) = (&self.resource, &other.resource);
        own.group == other.group && own.kind == other.kind
    }
}

/// The kinds of every namespace that objects of a domain name or own. Nobody acts on them, so they carry no marks.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Config {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
}

impl Config {
    /// In the order of their creation.
    pub(crate) const ALL: [Self; 2] = [Self::Secret, Self::ConfigMap];

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Secret => Kind::passive::<Secret>(),
            Self::ConfigMap => Kind::passive::<ConfigMap>(),
        }
    }
}
