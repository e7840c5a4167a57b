//! Server-side apply: who owns which field, and what an apply changes.
//!
//! Every write leaves in `metadata.managedFields` which fields its manager set. [`apply`] merges a configuration into
//! an object: fields that somebody else owns with another value are conflicts, fields that the manager stops
//! mentioning go away unless somebody else owns them. [`track_update`] does the bookkeeping for all other writes.
//!
//! Ownership follows the schema of the kind and nothing else: one code path for built-in and custom kinds. Entries of
//! several versions of a kind are read as one version, because one version of each kind is stored and served.
//!
//! # Source
//!
//! The behaviour of structured-merge-diff v6 and of apimachinery's `managedfields` (1.34).

mod managers;
mod set;
mod shape;
mod walk;

use serde_json::{Map, Value};

use self::{
    managers::{Identity, Managers, Operation},
    set::{Element, Set},
    shape::Shape,
    walk::Twice,
};
use crate::{canonical::canonical, events, schema::Schema};

/// Who writes, how and when.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// Whether an apply takes over fields that others own.
    pub force: bool,
    /// The subresource that is written, such as `status`; none for the object itself.
    pub subresource: Option<&'a str>,
    /// The version that the request speaks: `v1`, `example.com/v1`.
    pub api_version: &'a str,
    /// The time of the request.
    pub time: jiff::Timestamp,
}

/// Why an apply is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else owns fields with other values: 409 with one cause per conflict.
    #[error("{}", conflict_message(.0))]
    Conflict(Vec<Conflict>),
    /// The request speaks another version than its configuration: 400.
    #[error(
        "Incorrect version specified in apply patch. Specified patch version: {given}, expected: {expected}"
    )]
    Version {
        /// What the configuration says.
        given: String,
        /// What the request says.
        expected: String,
    },
    /// The configuration says who owns what: 400.
    #[error("metadata.managedFields must be nil")]
    ManagedFields,
    /// The configuration does not fit the schema: an unknown field, an item twice.
    #[error("failed to create typed patch object ({object}): {detail}")]
    Configuration {
        /// `namespace/name; group/version, Kind=Kind`.
        object: String,
        /// What is wrong, and where.
        detail: String,
    },
    /// The stored entries cannot be read.
    #[error("failed to decode managed fields: {0}")]
    Decode(String),
}

/// A field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Its owner as it is shown: `"name" using v1`.
    pub manager: String,
    /// The path of the field: `.spec.replicas`.
    pub path: String,
}

impl Conflict {
    /// The message of the cause in a `Status`.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

/// Applies a configuration to an object, or makes a new one from it.
///
/// The result carries the managed fields. When nothing changes, it equals `live`, time stamps included.
///
/// # Errors
///
/// Conflicts without `force`, and configurations that cannot be applied. Taking away a field that others own is not an
/// error: it stays.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    options: &Options<'_>,
    shape: &Schema,
) -> Result<Value, Error> {
    check(applied, options, shape)?;
    let root = Shape::Known(&shape.root);
    let relevant = |set: Set| reset_fields(set, options, shape);
    let (mut managers, live_object) = before_apply(live, options, shape, &relevant)?;
    let identity = Identity::new(options, Operation::Apply);

    let merged = walk::merge(root, Some(&live_object), Some(applied)).unwrap_or(Value::Null);
    let last = managers.set(&identity);
    managers.insert(
        identity.clone(),
        options.api_version,
        relevant(walk::fields(root, applied)),
    );
    let pruned = prune(root, merged, &managers, last.as_ref());

    let comparison = walk::compare(root, &live_object, &pruned).map(relevant);
    let conflicts = managers.conflicts(&identity, &comparison);
    let force = options.force || may_migrate(live, &conflicts, options, root);
    if !force && !conflicts.is_empty() {
        return Err(Error::Conflict(listed(&conflicts)));
    }
    managers.yield_to(&identity, &comparison);
    managers.strip(&identity);
    if pruned != live_object || live.is_none() {
        managers.touch(&identity, options.time);
    }
    let mut result = keep_reset(live, pruned, options, shape);
    managers::tidy(&mut result);
    managers.store(&mut result);
    if options.manager == KUBECTL {
        renew_last_applied(&mut result, applied);
    }
    Ok(settle(live, result))
}

/// Notes in `new` who owns its fields after a create, an update or a patch.
///
/// `old` is the stored object, none on create. Entries that the request sends itself count, except through a
/// subresource; a list of one empty entry resets them.
pub fn track_update(old: Option<&Value>, new: &mut Value, options: &Options<'_>, shape: &Schema) {
    let root = Shape::Known(&shape.root);
    let sent = managers::entries(new).cloned();
    let stored = old.and_then(managers::entries).cloned();
    let stored = || Managers::decode(stored.as_ref()).unwrap_or_default();
    let mut managers = if options.subresource.is_some() {
        stored()
    } else if managers::is_reset(sent.as_ref()) {
        Managers::default()
    } else {
        Managers::decode(sent.as_ref())
            .ok()
            .filter(|sent| !sent.is_empty())
            .unwrap_or_else(stored)
    };
    managers::remove(new);
    managers::tidy(new);
    if walk::check(root, new, Twice::Allowed).is_err() {
        // As Kubernetes does when it cannot tell what the fields are: nobody owns any.
        return;
    }
    if managers.is_empty() && old.is_some() {
        return;
    }
    managers.keep_group(options.api_version);
    let before = old.map_or_else(|| empty(new, shape), without_managers);
    managers.update(root, &before, new, options, &|set| {
        reset_fields(set, options, shape)
    });
    managers.cap();
    managers.store(new);
    if let Some(old) = old {
        *new = settle(Some(old), new.take());
    }
}

fn check(applied: &Value, options: &Options<'_>, shape: &Schema) -> Result<(), Error> {
    let given = applied
        .get("apiVersion")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if given != options.api_version {
        return Err(Error::Version {
            given: given.to_owned(),
            expected: options.api_version.to_owned(),
        });
    }
    if managers::entries(applied).is_some_and(|entries| !entries.is_null()) {
        return Err(Error::ManagedFields);
    }
    walk::check(Shape::Known(&shape.root), applied, Twice::Refused).map_err(|detail| {
        Error::Configuration {
            object: described(applied, options.api_version),
            detail,
        }
    })
}

fn described(object: &Value, api_version: &str) -> String {
    let text = |path: &str| {
        object
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (namespace, name, kind) = (
        text("/metadata/namespace"),
        text("/metadata/name"),
        text("/kind"),
    );
    format!("{namespace}/{name}; {api_version}, Kind={kind}")
}

/// The owners so far, and the object without them. Fields of an object that nobody owns yet get an owner of their own.
fn before_apply(
    live: Option<&Value>,
    options: &Options<'_>,
    shape: &Schema,
    relevant: &dyn Fn(Set) -> Set,
) -> Result<(Managers, Value), Error> {
    let root = Shape::Known(&shape.root);
    let Some(live) = live else {
        return Ok((Managers::default(), Value::Object(Map::new())));
    };
    let mut managers = Managers::decode(managers::entries(live)).map_err(Error::Decode)?;
    let object = without_managers(live);
    walk::check(root, &object, Twice::Allowed).map_err(|detail| Error::Configuration {
        object: described(&object, options.api_version),
        detail,
    })?;
    if managers.is_empty() {
        let first = Options {
            manager: BEFORE_FIRST_APPLY,
            ..options.clone()
        };
        managers.update(root, &empty(live, shape), &object, &first, relevant);
    }
    managers.keep_group(options.api_version);
    Ok((managers, object))
}

/// Takes away what the manager applied the last time, does not any more, and nobody else owns.
fn prune(root: Shape<'_>, merged: Value, managers: &Managers, last: Option<&Set>) -> Value {
    let Some(last) = last.filter(|last| !last.is_empty()) else {
        return merged;
    };
    let named = |set: &Set| root.with_named(set);
    let last = named(last);
    let all = named(&walk::fields(root, &merged));
    let pruned = walk::remove(root, &merged, &last);
    // Others' fields come back,
    let kept = named(&walk::fields(root, &pruned)).union(&named(&managers.all()));
    let pruned = walk::remove(root, &merged, &all.difference(&kept));
    // and so does what went only because its parent went.
    let left = named(&walk::fields(root, &pruned));
    walk::remove(root, &merged, &all.difference(&left).intersection(&last))
}

/// Fields that a request cannot change do not count: `status` outside of its subresource, `spec` inside (what else
/// is ignored there is owned all the same, as in Kubernetes).
fn reset_fields(set: Set, options: &Options<'_>, shape: &Schema) -> Set {
    match options.subresource {
        None if shape.separate_status() => set.only("status", false),
        Some("status") => set.only("spec", false),
        _ => set,
    }
}

/// Puts back what a request cannot change.
fn keep_reset(
    live: Option<&Value>,
    mut result: Value,
    options: &Options<'_>,
    shape: &Schema,
) -> Value {
    match (options.subresource, live) {
        (None, live) if shape.separate_status() => {
            replace_field(
                &mut result,
                "status",
                live.and_then(|live| live.get("status")),
            );
            result
        }
        (Some("status"), Some(live)) if shape.is_built_in() => {
            replace_field(&mut result, "spec", live.get("spec"));
            result
        }
        (Some("status"), Some(live)) => {
            let mut kept = live.clone();
            replace_field(&mut kept, "status", result.get("status"));
            kept
        }
        _ => result,
    }
}

fn replace_field(object: &mut Value, name: &str, value: Option<&Value>) {
    if let Value::Object(fields) = object {
        match value {
            Some(value) => {
                fields.insert(name.to_owned(), value.clone());
            }
            None => {
                fields.shift_remove(name);
            }
        }
    }
}

/// An object that changed in nothing but time stamps of owners is the live one.
fn settle(live: Option<&Value>, result: Value) -> Value {
    let plain = |object: &Value| {
        let mut object = object.clone();
        managers::forget_times(&mut object);
        object
    };
    match live {
        Some(live) if plain(live) == plain(&result) => live.clone(),
        _ => result,
    }
}

fn without_managers(object: &Value) -> Value {
    let mut object = object.clone();
    managers::remove(&mut object);
    object
}

/// An object before anybody wrote to it. The structs of kinds that are built in are there from the beginning.
fn empty(object: &Value, shape: &Schema) -> Value {
    if let Some(event) = events::blank(&object["apiVersion"], &object["kind"]) {
        return event;
    }
    let fields = ["apiVersion", "kind"].into_iter();
    let fields = fields.filter_map(|name| Some((name.to_owned(), object.get(name)?.clone())));
    let structs = shape
        .structs()
        .map(|name| (name.to_owned(), Value::Object(Map::new())));
    let mut empty = Value::Object(fields.chain(structs).collect());
    if object["kind"] == "CustomResourceDefinition"
        && let Some(spec) = empty.get_mut("spec").and_then(Value::as_object_mut)
    {
        // The one struct within another.
        spec.insert("names".to_owned(), Value::Object(Map::new()));
    }
    empty
}

/// Whether all conflicts are about fields that kubectl itself set before by client-side apply.
fn may_migrate(
    live: Option<&Value>,
    conflicts: &[(Identity, Set)],
    options: &Options<'_>,
    root: Shape<'_>,
) -> bool {
    let annotation = live
        .and_then(|live| live.pointer(LAST_APPLIED))
        .and_then(Value::as_str);
    let (Some(text), KUBECTL) = (annotation, options.manager) else {
        return false;
    };
    let Ok(configuration) = serde_json::from_str::<Value>(text) else {
        return false;
    };
    let own = walk::fields(root, &configuration);
    conflicts
        .iter()
        .all(|(_, set)| set.difference(&own).is_empty())
}

/// What client-side apply left behind says what was applied last, or a later one would take fields away that it does not
/// know of. Nobody owns it. One that does not fit any more goes.
fn renew_last_applied(result: &mut Value, applied: &Value) {
    let is_there = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty());
    if !result.pointer(LAST_APPLIED).is_some_and(is_there) {
        return;
    }
    let mut configuration = applied.clone();
    let annotations = |object: &mut Value| -> Option<Map<String, Value>> {
        let annotations = object
            .pointer_mut("/metadata/annotations")?
            .as_object_mut()?;
        Some(std::mem::take(annotations))
    };
    if let Some(mut others) = annotations(&mut configuration) {
        others.shift_remove(LAST_APPLIED_NAME);
        if !others.is_empty() {
            configuration["metadata"]["annotations"] = Value::Object(others);
        } else if let Some(metadata) = configuration["metadata"].as_object_mut() {
            metadata.shift_remove("annotations");
        }
    }
    let text = as_go_writes(&canonical(&configuration));
    let Some(mut all) = annotations(result) else {
        return;
    };
    all.insert(LAST_APPLIED_NAME.to_owned(), text.into());
    let size = |(name, text): (&String, &Value)| name.len() + text.as_str().map_or(0, str::len);
    if all.iter().map(size).sum::<usize>() > ANNOTATIONS_MAX {
        all.shift_remove(LAST_APPLIED_NAME);
    }
    result["metadata"]["annotations"] = Value::Object(all);
}

/// JSON with the escapes and the end of line of Go's encoder.
fn as_go_writes(json: &str) -> String {
    let escaped = [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026")]
        .into_iter()
        .fold(json.to_owned(), |text, (sign, escape)| {
            text.replace(sign, escape)
        });
    escaped + "\n"
}

fn listed(conflicts: &[(Identity, Set)]) -> Vec<Conflict> {
    let each = conflicts.iter().flat_map(|(identity, set)| {
        let manager = identity.to_string();
        set.paths().into_iter().map(move |path| Conflict {
            manager: manager.clone(),
            path,
        })
    });
    each.collect()
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            only.manager, only.path
        );
    }
    let mut lines = Vec::new();
    let mut last = None;
    for conflict in conflicts {
        if last != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager));
            last = Some(&conflict.manager);
        }
        lines.push(format!("- {}", conflict.path));
    }
    format!(
        "Apply failed with {} conflicts: {}",
        conflicts.len(),
        lines.join("\n")
    )
}

fn path(names: &[&str]) -> Vec<Element> {
    names
        .iter()
        .map(|name| Element::Field((*name).to_owned()))
        .collect()
}

/// The owner of what was there before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager whose configurations are also kept in an annotation.
const KUBECTL: &str = "kubectl";
const LAST_APPLIED_NAME: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// What annotations have at most, in bytes.
pub(crate) const ANNOTATIONS_MAX: usize = 256 << 10;
const LAST_APPLIED: &str =
    "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";
