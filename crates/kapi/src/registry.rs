//! What is served: a closed list of built-in resources, and the resources of the CustomResourceDefinitions.
//!
//! A registry never changes. When a definition does, [`crate::definitions`] makes another one, which shares with the one
//! before what stayed the same; a request sees one registry from its start to its end.

use std::{cmp::Ordering, collections::HashMap, sync::Arc};

use serde_json::Value;

use crate::{
    events,
    scale::Scale,
    schema::Schema,
    served::Served,
    shape::{self, Shape},
    store::StoredKind,
    table::{self, Column},
};

/// The kinds that answer and are not stored: group, kind, plural.
pub(crate) const REVIEWS: [(&str, &str, &str); 2] = [
    (
        "authorization.k8s.io",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
    ),
    (
        "authentication.k8s.io",
        "SelfSubjectReview",
        "selfsubjectreviews",
    ),
];

/// One resource under one group and version.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Index of the kind in the store.
    pub stored: usize,
    /// Which time of the stored kind this is; see [`crate::store::Opened`].
    pub epoch: u64,
    pub status: bool,
    pub scale: Option<Arc<Scale>>,
    pub form: Form,
    pub schema: Shape,
    pub columns: Vec<Column>,
    /// The selectable fields of the stored kind.
    pub fields: Arc<[String]>,
    /// Those of this version, by the names of this version, with their index in `fields`.
    pub selectable: Vec<(String, usize)>,
    /// Where it is another version in which the objects are kept.
    pub kept: Option<Arc<Kept>>,
    /// Its definition is being deleted: there are no new objects.
    pub terminating: bool,
    pub author: Author,
}

/// The version in which the objects of a custom kind are kept.
#[derive(Debug)]
pub(crate) struct Kept {
    pub api_version: String,
    pub schema: Arc<Schema>,
}

/// Whose definition a resource is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    /// It is part of this program.
    Program,
    Client,
}

/// Which rules an object follows beyond those of every object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Namespace,
    Secret,
    Event,
    /// An Event as `events.k8s.io/v1`.
    NewEvent,
    Definition,
    Plain,
    Custom,
}

/// Every resource.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub resources: Vec<Arc<Resource>>,
    /// The resource in whose form the objects of each stored kind are kept; it need not be served.
    kept: HashMap<usize, Arc<Resource>>,
    /// The definitions behind the custom ones, in their order.
    pub definitions: Vec<Arc<Served>>,
}

impl Resource {
    /// `plural.group`, as messages name it.
    pub fn qualified(&self) -> String {
        match self.group.as_str() {
            "" => self.plural.clone(),
            group => format!("{}.{group}", self.plural),
        }
    }

    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    pub fn selectable_index(&self, path: &str) -> Option<usize> {
        self.selectable
            .iter()
            .find(|(known, _)| known == path)
            .map(|(_, index)| *index)
    }

    /// Whether objects are served as they are kept.
    pub fn serves_as_kept(&self) -> bool {
        self.form != Form::NewEvent && self.kept.is_none()
    }

    /// From this version of a custom kind to the one that is kept.
    pub fn keep_custom(&self, value: &mut Value) {
        if let Some(kept) = &self.kept {
            value["apiVersion"] = kept.api_version.as_str().into();
            kept.schema.prune(value);
        }
    }

    /// From the version that is kept to this one. Only the version that is kept fills in its defaults, as in Kubernetes.
    pub fn to_served(&self, value: &mut Value) {
        if self.form == Form::NewEvent {
            events::to_events(value);
        } else if self.kept.is_some() {
            value["apiVersion"] = self.api_version().into();
            self.schema.prune(value);
        }
    }

    /// The verbs in discovery.
    pub fn verbs(&self) -> &'static [&'static str] {
        match self.form {
            Form::Namespace => &[
                "create", "delete", "get", "list", "patch", "update", "watch",
            ],
            _ if self.terminating => &["delete", "deletecollection", "get", "list", "watch"],
            _ => &[
                "create",
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "update",
                "watch",
            ],
        }
    }
}

impl Registry {
    /// What every server has, and its stored kinds, in the order of their indices.
    pub fn built_in() -> Result<(Self, Vec<StoredKind>), DefinitionError> {
        let mut registry = Self::default();
        let mut kinds = Vec::new();
        for built_in in BUILT_IN {
            registry.add_built_in(built_in, &mut kinds)?;
        }
        Ok((registry, kinds))
    }

    /// The built-in resources with those of other definitions.
    pub fn with(&self, definitions: Vec<Arc<Served>>) -> Self {
        let built_in = |resource: &&Arc<Resource>| resource.form != Form::Custom;
        let mut registry = Self {
            resources: self.resources.iter().filter(built_in).cloned().collect(),
            kept: self
                .kept
                .iter()
                .filter(|(_, resource)| built_in(resource))
                .map(|(stored, resource)| (*stored, Arc::clone(resource)))
                .collect(),
            definitions: Vec::new(),
        };
        for definition in &definitions {
            registry
                .resources
                .extend(definition.resources.iter().cloned());
            if let Some(kept) = &definition.kept {
                registry.kept.insert(kept.stored, Arc::clone(kept));
            }
        }
        registry.definitions = definitions;
        registry
    }

    /// Whether a definition is part of this program.
    pub fn owns(&self, definition: &str) -> bool {
        let mut own = self.definitions.iter().filter(|known| known.own);
        own.any(|known| known.name == definition)
    }

    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        self.resources
            .iter()
            .find(|r| r.kind == kind && r.api_version() == api_version)
            .map(AsRef::as_ref)
    }

    /// The resource in which the objects of a stored kind are kept.
    pub fn of_stored(&self, stored: usize) -> Option<&Resource> {
        self.kept.get(&stored).map(AsRef::as_ref)
    }

    pub fn of_form(&self, form: Form) -> Option<&Resource> {
        self.resources
            .iter()
            .find(|r| r.form == form)
            .map(AsRef::as_ref)
    }

    /// Groups with their versions, the preferred one first, in the order of registration; the core group is empty.
    pub fn groups(&self) -> Vec<(&str, Vec<&str>)> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for resource in &self.resources {
            let (group, version) = (resource.group.as_str(), resource.version.as_str());
            match groups.iter_mut().find(|(name, _)| *name == group) {
                Some((_, versions)) if versions.contains(&version) => {}
                Some((_, versions)) => versions.push(version),
                None => groups.push((group, vec![version])),
            }
        }
        for (_, versions) in &mut groups {
            versions.sort_by(|a, b| by_preference(a, b));
        }
        groups
    }

    pub fn of_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Resource> {
        self.resources
            .iter()
            .map(AsRef::as_ref)
            .filter(move |r: &&Resource| r.group == group && r.version == version)
    }

    fn add_built_in(
        &mut self,
        built_in: &BuiltIn,
        kinds: &mut Vec<StoredKind>,
    ) -> Result<(), DefinitionError> {
        let own = |names: &[&str]| -> Vec<String> { names.iter().map(|s| (*s).into()).collect() };
        // Events are the same objects under a second group.
        let other = self.of_form(Form::Event);
        let (stored, fields) = match other.filter(|_| built_in.form == Form::NewEvent) {
            Some(event) => (event.stored, Arc::clone(&event.fields)),
            None => (kinds.len(), own(built_in.selectable).into()),
        };
        let selectable = match built_in.form {
            Form::NewEvent => own(NEW_EVENT_FIELDS),
            _ => fields.to_vec(),
        };
        let resource = Arc::new(Resource {
            group: built_in.group.into(),
            version: "v1".into(),
            kind: built_in.kind.into(),
            list_kind: format!("{}List", built_in.kind),
            plural: built_in.plural.into(),
            singular: built_in.kind.to_lowercase(),
            short_names: own(built_in.short),
            categories: own(built_in.categories),
            namespaced: built_in.namespaced,
            stored,
            epoch: 0,
            status: matches!(built_in.form, Form::Namespace | Form::Definition),
            scale: None,
            form: built_in.form,
            schema: shape::built_in_schema(built_in.kind).map_err(|problems| DefinitionError {
                name: built_in.plural.into(),
                problems,
            })?,
            columns: table::builtin_columns(built_in.kind),
            selectable: selectable.into_iter().zip(0..).collect(),
            fields,
            kept: None,
            terminating: false,
            author: Author::Program,
        });
        if built_in.form != Form::NewEvent {
            kinds.push(StoredKind {
                name: resource.qualified(),
                fields: resource.fields.to_vec(),
                read: None,
            });
            self.kept.insert(stored, Arc::clone(&resource));
        }
        self.resources.push(resource);
        Ok(())
    }
}

/// A CustomResourceDefinition that cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("CustomResourceDefinition {name} cannot be served: {}", problems.join("; "))]
pub struct DefinitionError {
    /// Its name.
    pub name: String,
    /// What is wrong, each with the path in the definition.
    pub problems: Vec<String>,
}

/// The order in which Kubernetes prefers versions: stable before beta before alpha, later before earlier, and then those
/// that are named otherwise, by their names.
pub(crate) fn by_preference(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// How stable, and the two numbers: `v1beta2` has 1, 1 and 2.
fn rank(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let (stable, major, minor) = if let Some((major, minor)) = rest.split_once("beta") {
        (1, major, minor)
    } else if let Some((major, minor)) = rest.split_once("alpha") {
        (0, major, minor)
    } else {
        (2, rest, "0")
    };
    Some((stable, major.parse().ok()?, minor.parse().ok()?))
}

/// Whether a group is one of those that every server has.
pub(crate) fn is_built_in(group: &str) -> bool {
    let reviews = REVIEWS.iter().map(|(group, _, _)| *group);
    let resources = BUILT_IN.iter().map(|built_in| built_in.group);
    resources.chain(reviews).any(|known| known == group)
}

struct BuiltIn {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    form: Form,
    selectable: &'static [&'static str],
}

const fn namespaced(group: &'static str, kind: &'static str, plural: &'static str) -> BuiltIn {
    BuiltIn {
        group,
        kind,
        plural,
        short: &[],
        categories: &[],
        namespaced: true,
        form: Form::Plain,
        selectable: &[],
    }
}

const BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        short: &["ns"],
        namespaced: false,
        form: Form::Namespace,
        selectable: &["status.phase"],
        ..namespaced("", "Namespace", "namespaces")
    },
    BuiltIn {
        form: Form::Secret,
        selectable: &["type"],
        ..namespaced("", "Secret", "secrets")
    },
    BuiltIn {
        short: &["cm"],
        ..namespaced("", "ConfigMap", "configmaps")
    },
    BuiltIn {
        short: &["ev"],
        form: Form::Event,
        selectable: EVENT_FIELDS,
        ..namespaced("", "Event", "events")
    },
    BuiltIn {
        short: &["sa"],
        ..namespaced("", "ServiceAccount", "serviceaccounts")
    },
    BuiltIn {
        short: &["ev"],
        form: Form::NewEvent,
        ..namespaced("events.k8s.io", "Event", "events")
    },
    namespaced("coordination.k8s.io", "Lease", "leases"),
    BuiltIn {
        short: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        form: Form::Definition,
        ..namespaced(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "customresourcedefinitions",
        )
    },
];

/// Selectable fields of an Event as they are stored, and under their names of `events.k8s.io/v1`, in the same order.
const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source.component",
    "type",
];
const NEW_EVENT_FIELDS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "deprecatedSource.component",
    "type",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_and_more_stable_versions_are_preferred() {
        let mut versions = [
            "v1",
            "foo1",
            "v10beta3",
            "v2",
            "v3beta1",
            "v11alpha2",
            "foo10",
        ];
        versions.sort_by(|a, b| by_preference(a, b));
        assert_eq!(
            versions,
            [
                "v2",
                "v1",
                "v10beta3",
                "v3beta1",
                "v11alpha2",
                "foo1",
                "foo10"
            ]
        );
    }
}
