//! What one definition serves: a resource for each served version, over one stored kind.

use std::sync::Arc;

use serde_json::Value;

use super::{Stored, valid};
use crate::{
    registry::{Author, Form, Kept, Resource},
    scale::Scale,
    schema::Schema,
    served::Served,
    shape::Shape,
    store::{Opened, Reader, Store, StoredKind},
    table,
    value::name_of,
};

/// One version of a definition, compiled.
struct Version {
    name: String,
    served: bool,
    storage: bool,
    schema: Arc<Schema>,
    columns: Vec<table::Column>,
    selectable: Vec<String>,
    status: bool,
    scale: Value,
}

/// What is served of a definition under the names that it was given.
pub(super) fn serve(
    store: &Store,
    stored: &Stored,
    names: &Value,
    before: Option<&Arc<Served>>,
) -> Arc<Served> {
    let spec = &stored.value["spec"];
    let terminating = stored.object.meta.deleting;
    // One of the same name may have been made anew.
    let same = before
        .filter(|before| before.uid == stored.object.meta.uid)
        .filter(|before| before.spec == *spec && before.names == *names);
    if let Some(same) = same {
        return match &same.kept {
            Some(kept) if kept.terminating != terminating => same.terminating(store),
            _ => Arc::clone(same),
        };
    }
    let mut served = Served::empty(stored, spec, names);
    match versions(spec).and_then(|versions| open(store, stored, names, versions)) {
        Ok(resources) => {
            for (resource, role) in resources {
                let resource = Arc::new(resource);
                if role.storage {
                    served.kept = Some(Arc::clone(&resource));
                }
                if role.served {
                    served.resources.push(resource);
                }
            }
            if terminating && let Some(kept) = &served.kept {
                store.close_kind(kept.stored);
            }
        }
        Err(problems) => {
            tracing::warn!(
                definition = served.name,
                problems = problems.join("; "),
                "not served"
            );
            served.problems = problems;
            if let Some(before) = before {
                before.retire(store);
            }
        }
    }
    Arc::new(served)
}

/// A definition of which nothing is served, because it has not got its names.
pub(super) fn nothing(store: &Store, stored: &Stored, before: Option<&Arc<Served>>) -> Arc<Served> {
    if let Some(before) = before {
        before.retire(store);
    }
    Arc::new(Served::empty(stored, &Value::Null, &Value::Null))
}

impl Served {
    fn empty(stored: &Stored, spec: &Value, names: &Value) -> Self {
        Self {
            name: name_of(&stored.value).to_owned(),
            own: stored.own,
            uid: stored.object.meta.uid.clone(),
            spec: spec.clone(),
            names: names.clone(),
            problems: Vec::new(),
            kept: None,
            resources: Vec::new(),
        }
    }

    /// The same, on its way out.
    fn terminating(&self, store: &Store) -> Arc<Self> {
        let leave = |resource: &Arc<Resource>| {
            Arc::new(Resource {
                terminating: true,
                ..Resource::clone(resource)
            })
        };
        if let Some(kept) = &self.kept {
            store.close_kind(kept.stored);
        }
        Arc::new(Self {
            name: self.name.clone(),
            own: self.own,
            uid: self.uid.clone(),
            spec: self.spec.clone(),
            names: self.names.clone(),
            problems: self.problems.clone(),
            kept: self.kept.as_ref().map(leave),
            resources: self.resources.iter().map(leave).collect(),
        })
    }

    /// Ends the watches, and takes nothing new.
    pub fn retire(&self, store: &Store) {
        if let Some(kept) = &self.kept {
            store.close_kind(kept.stored);
            store.end_watches(kept.stored);
        }
    }
}

/// The versions of a definition, compiled.
fn versions(spec: &Value) -> Result<Vec<Version>, Vec<String>> {
    let mut problems = valid::unusable(spec);
    let mut versions = Vec::new();
    for (index, version) in spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        match Schema::compile_stored(&version["schema"]["openAPIV3Schema"]) {
            Ok(schema) => versions.push(Version {
                name: version["name"].as_str().unwrap_or_default().to_owned(),
                served: version["served"] == true,
                storage: version["storage"] == true,
                schema: Arc::new(schema),
                columns: table::crd_columns(version),
                selectable: selectable(version),
                status: version["subresources"]["status"].is_object(),
                scale: version["subresources"]["scale"].clone(),
            }),
            Err(more) => {
                let place = format!("spec.versions[{index}].schema");
                problems.extend(more.iter().map(|problem| format!("{place}.{problem}")));
            }
        }
    }
    if problems.is_empty() {
        Ok(versions)
    } else {
        Err(problems)
    }
}

fn selectable(version: &Value) -> Vec<String> {
    let fields = version["selectableFields"].as_array();
    fields
        .into_iter()
        .flatten()
        .filter_map(|field| field["jsonPath"].as_str())
        .map(|path| path.trim_start_matches('.').to_owned())
        .collect()
}

/// Opens the kind in the store, in the form of the version in which objects are kept.
fn open(
    store: &Store,
    stored: &Stored,
    names: &Value,
    versions: Vec<Version>,
) -> Result<Vec<(Resource, Version)>, Vec<String>> {
    let spec = &stored.value["spec"];
    let group = spec["group"].as_str().unwrap_or_default();
    let hub = versions.iter().find(|version| version.storage);
    let hub = hub.ok_or_else(|| vec!["spec.versions: none is stored".to_owned()])?;
    let kept = Arc::new(Kept {
        api_version: format!("{group}/{}", hub.name),
        schema: Arc::clone(&hub.schema),
    });
    let mut fields: Vec<String> = Vec::new();
    for field in versions.iter().flat_map(|version| &version.selectable) {
        if !fields.contains(field) {
            fields.push(field.clone());
        }
    }
    let opened = store
        .open_kind(StoredKind {
            name: name_of(&stored.value).to_owned(),
            fields: fields.clone(),
            read: Some(reader(Arc::clone(&kept))),
        })
        .map_err(|error| vec![format!("its objects cannot be read: {error}")])?;
    let fields: Arc<[String]> = fields.into();
    let resources = versions.into_iter().map(|version| {
        let kept = (!version.storage).then(|| Arc::clone(&kept));
        let resource = resource(stored, names, &version, kept, opened, &fields);
        (resource, version)
    });
    Ok(resources.collect())
}

/// As Kubernetes decodes what it has stored: in the version that is stored now, without what its schema does not know, and
/// with its defaults.
fn reader(kept: Arc<Kept>) -> Reader {
    Reader(Arc::new(move |value| {
        value["apiVersion"] = kept.api_version.as_str().into();
        kept.schema.prune(value);
        kept.schema.default(value);
    }))
}

fn resource(
    stored: &Stored,
    names: &Value,
    version: &Version,
    kept: Option<Arc<Kept>>,
    opened: Opened,
    fields: &Arc<[String]>,
) -> Resource {
    let spec = &stored.value["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect();
    let place = |path: &String| Some((path.clone(), fields.iter().position(|f| f == path)?));
    let mut resource = Resource {
        group: text(&spec["group"]),
        version: version.name.clone(),
        kind: text(&names["kind"]),
        list_kind: text(&names["listKind"]),
        plural: text(&names["plural"]),
        singular: text(&names["singular"]),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        stored: opened.index,
        epoch: opened.epoch,
        status: version.status,
        scale: None,
        form: Form::Custom,
        schema: Shape::Defined(Arc::clone(&version.schema)),
        columns: version.columns.clone(),
        selectable: version.selectable.iter().filter_map(place).collect(),
        fields: Arc::clone(fields),
        kept,
        terminating: stored.object.meta.deleting,
        author: if stored.own {
            Author::Program
        } else {
            Author::Client
        },
    };
    resource.scale = Scale::new(&version.scale, &resource).map(Arc::new);
    resource
}
