//! What is served: a closed list of built-in resources and the resources of the CustomResourceDefinitions handed in.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use crate::{
    pipeline::{Column, Schema, Shape},
    store::StoredKind,
    table,
};

/// One resource under one group and version.
#[derive(Debug)]
pub(crate) struct Resource {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Index of the kind in the store.
    pub stored: usize,
    pub status: bool,
    pub form: Form,
    pub schema: Shape,
    pub columns: Vec<Column>,
    selectable: Vec<String>,
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

/// Every resource, and the stored kinds behind them.
#[derive(Debug)]
pub(crate) struct Registry {
    pub resources: Vec<Resource>,
    pub kinds: Vec<StoredKind>,
    pub definitions: Vec<Value>,
}

/// A CustomResourceDefinition that cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("CustomResourceDefinition {name} cannot be served: {}", problems.join("; "))]
pub struct DefinitionError {
    /// Its name.
    pub name: String,
    /// What is wrong, each with the path in the schema.
    pub problems: Vec<String>,
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
        self.selectable.iter().position(|known| known == path)
    }

    /// The verbs in discovery.
    pub fn verbs(&self) -> &'static [&'static str] {
        match self.form {
            Form::Definition => &["get", "list", "watch"],
            Form::Namespace => &[
                "create", "delete", "get", "list", "patch", "update", "watch",
            ],
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
    pub fn new(definitions: &[CustomResourceDefinition]) -> Result<Self, DefinitionError> {
        let mut registry = Self {
            resources: Vec::new(),
            kinds: Vec::new(),
            definitions: Vec::new(),
        };
        for built_in in BUILT_IN {
            registry.add_built_in(built_in)?;
        }
        for definition in definitions {
            registry.add_definition(definition)?;
        }
        Ok(registry)
    }

    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        self.resources
            .iter()
            .find(|r| r.kind == kind && r.api_version() == api_version)
    }

    /// The resource in which the objects of a stored kind are kept.
    pub fn of_stored(&self, stored: usize) -> Option<&Resource> {
        self.resources.iter().find(|r| r.stored == stored)
    }

    pub fn of_form(&self, form: Form) -> Option<&Resource> {
        self.resources.iter().find(|r| r.form == form)
    }

    /// Groups with their versions, in the order of registration; the core group is empty.
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
        groups
    }

    pub fn of_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Resource> {
        self.resources
            .iter()
            .filter(move |r| r.group == group && r.version == version)
    }

    fn add_built_in(&mut self, built_in: &BuiltIn) -> Result<(), DefinitionError> {
        let selectable: Vec<String> = built_in.selectable.iter().map(|s| (*s).into()).collect();
        let stored = if built_in.form == Form::NewEvent {
            // The same objects under a second group.
            self.of_form(Form::Event).map_or(0, |event| event.stored)
        } else {
            self.store(built_in.group, built_in.plural, &selectable)
        };
        self.resources.push(Resource {
            group: built_in.group.into(),
            version: "v1".into(),
            kind: built_in.kind.into(),
            plural: built_in.plural.into(),
            singular: built_in.kind.to_lowercase(),
            short_names: built_in.short.iter().map(|s| (*s).into()).collect(),
            categories: built_in.categories.iter().map(|s| (*s).into()).collect(),
            namespaced: built_in.namespaced,
            stored,
            status: matches!(built_in.form, Form::Namespace),
            form: built_in.form,
            schema: crate::pipeline::built_in_schema(built_in.kind).map_err(|problems| {
                DefinitionError {
                    name: built_in.plural.into(),
                    problems,
                }
            })?,
            columns: table::builtin_columns(built_in.kind),
            selectable: if built_in.form == Form::NewEvent {
                NEW_EVENT_FIELDS.iter().map(|s| (*s).into()).collect()
            } else {
                selectable
            },
        });
        Ok(())
    }

    fn store(&mut self, group: &str, plural: &str, fields: &[String]) -> usize {
        let name = match group {
            "" => plural.to_owned(),
            group => format!("{plural}.{group}"),
        };
        self.kinds.push(StoredKind {
            name,
            fields: fields.to_vec(),
        });
        self.kinds.len() - 1
    }

    fn add_definition(
        &mut self,
        definition: &CustomResourceDefinition,
    ) -> Result<(), DefinitionError> {
        let spec = &definition.spec;
        let name = format!("{}.{}", spec.names.plural, spec.group);
        let failed = |problems: Vec<String>| DefinitionError {
            name: name.clone(),
            problems,
        };
        let served: Vec<_> = spec.versions.iter().filter(|v| v.served).collect();
        let [version] = served.as_slice() else {
            return Err(failed(vec![format!(
                "spec.versions: {} served versions; conversion is not supported, so exactly one is",
                served.len()
            )]));
        };
        let published = version
            .schema
            .as_ref()
            .and_then(|schema| serde_json::to_value(schema.open_api_v3_schema.as_ref()?).ok())
            .ok_or_else(|| failed(vec!["spec.versions.schema.openAPIV3Schema: missing".into()]))?;
        let schema = Schema::compile(&published).map_err(failed)?;
        let schema = Shape::Defined(Box::new(schema));
        let selectable: Vec<String> = version
            .selectable_fields
            .iter()
            .flatten()
            .map(|field| field.json_path.trim_start_matches('.').to_owned())
            .collect();
        let stored = self.store(&spec.group, &spec.names.plural, &selectable);
        let columns = table::crd_columns(&serde_json::to_value(version).unwrap_or_default());
        self.resources.push(Resource {
            group: spec.group.clone(),
            version: version.name.clone(),
            kind: spec.names.kind.clone(),
            plural: spec.names.plural.clone(),
            singular: spec
                .names
                .singular
                .clone()
                .unwrap_or_else(|| spec.names.kind.to_lowercase()),
            short_names: spec.names.short_names.clone().unwrap_or_default(),
            categories: spec.names.categories.clone().unwrap_or_default(),
            namespaced: spec.scope == "Namespaced",
            stored,
            status: version
                .subresources
                .as_ref()
                .is_some_and(|subresources| subresources.status.is_some()),
            form: Form::Custom,
            schema,
            columns,
            selectable,
        });
        self.definitions.push(established(definition, &name));
        Ok(())
    }
}

/// The definition as a client sees it: with the conditions that say it is served.
fn established(definition: &CustomResourceDefinition, name: &str) -> Value {
    let mut value = serde_json::to_value(definition).unwrap_or_default();
    let names = value["spec"]["names"].clone();
    let versions: Vec<&str> = definition
        .spec
        .versions
        .iter()
        .filter(|version| version.storage)
        .map(|version| version.name.as_str())
        .collect();
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message});
    value["status"] = json!({
        "acceptedNames": names,
        "storedVersions": versions,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
    });
    value["metadata"]["name"] = json!(name);
    value
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
