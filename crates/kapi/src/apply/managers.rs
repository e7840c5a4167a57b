//! `metadata.managedFields`: the owners of an object's fields.

use std::{collections::BTreeMap, fmt, sync::LazyLock};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    Options, path,
    set::Set,
    shape::Shape,
    walk::{self, Comparison},
};

/// Who an entry belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    manager: String,
    operation: Operation,
    /// Appliers have one entry whatever version they speak; updaters have one per version.
    api_version: Option<String>,
    subresource: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Managers(BTreeMap<Identity, Entry>);

#[derive(Clone, Debug)]
struct Entry {
    api_version: String,
    time: Option<String>,
    set: Set,
}

impl Identity {
    pub fn new(options: &Options<'_>, operation: Operation) -> Self {
        let version = (operation == Operation::Update).then(|| options.api_version.to_owned());
        Self {
            manager: options.manager.to_owned(),
            operation,
            api_version: version,
            subresource: options.subresource.unwrap_or_default().to_owned(),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.manager)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        match &self.api_version {
            Some(version) => write!(f, " using {version}"),
            None => Ok(()),
        }
    }
}

impl Managers {
    pub fn decode(entries: Option<&Value>) -> Result<Self, String> {
        let mut managers = Self::default();
        for (at, entry) in entries
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            if text("apiVersion").is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
                other => {
                    return Err(format!(
                        "invalid fieldsType {other:?} in managed fields entry {at}"
                    ));
                }
            }
            let identity = Identity {
                manager: text("manager").to_owned(),
                operation,
                api_version: (operation == Operation::Update)
                    .then(|| text("apiVersion").to_owned()),
                subresource: text("subresource").to_owned(),
            };
            let set = match entry.get("fieldsV1") {
                None | Some(Value::Null) => Set::default(),
                Some(fields) => Set::decode(fields)?,
            };
            let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
            let api_version = text("apiVersion").to_owned();
            managers.0.insert(
                identity,
                Entry {
                    api_version,
                    time,
                    set,
                },
            );
        }
        Ok(managers)
    }

    /// Writes the entries into an object: appliers first, then by time, as Kubernetes orders them.
    pub fn store(&self, object: &mut Value) {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by(|(one, first), (two, second)| {
            let key =
                |identity: &Identity| (identity.manager.clone(), identity.subresource.clone());
            (one.operation, &first.time)
                .cmp(&(two.operation, &second.time))
                .then(key(one).cmp(&key(two)))
        });
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(identity, entry)| entry.encode(identity))
            .collect();
        remove(object);
        if entries.is_empty() {
            return;
        }
        if let Value::Object(fields) = object {
            let metadata = fields
                .entry("metadata")
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(metadata) = metadata {
                metadata.insert("managedFields".to_owned(), Value::Array(entries));
            }
        }
    }

    /// Forgets whoever spoke a version of another group: of Events, which two groups have, Kubernetes does not translate
    /// what is owned in the one to the other.
    pub fn keep_group(&mut self, api_version: &str) {
        self.0
            .retain(|_, entry| group(&entry.api_version) == group(api_version));
    }

    /// Notes the changes of an update under its manager.
    pub fn update(
        &mut self,
        root: Shape<'_>,
        before: &Value,
        after: &Value,
        options: &Options<'_>,
        relevant: &dyn Fn(Set) -> Set,
    ) {
        let comparison = walk::compare(root, before, after).map(relevant);
        let identity = Identity::new(options, Operation::Update);
        self.retain_left(None, &comparison);
        let mut set = comparison.into_set();
        set.remove(&UNOWNED);
        if !set.is_empty() {
            // As in Kubernetes, which forgets when somebody scaled.
            let time = (options.subresource != Some("scale")).then(|| seconds(options.time));
            let entry = self.0.entry(identity).or_insert_with(|| Entry {
                api_version: options.api_version.to_owned(),
                time: None,
                set: Set::default(),
            });
            entry.set.extend(set);
            entry.time = time;
        }
    }

    pub fn insert(&mut self, identity: Identity, api_version: &str, set: Set) {
        let time = self.0.get(&identity).and_then(|entry| entry.time.clone());
        self.0.insert(
            identity,
            Entry {
                api_version: api_version.to_owned(),
                time,
                set,
            },
        );
    }

    pub fn touch(&mut self, identity: &Identity, time: Timestamp) {
        if let Some(entry) = self.0.get_mut(identity) {
            entry.time = Some(seconds(time));
        }
    }

    /// Takes the fields that every object has out of a manager's entry.
    pub fn strip(&mut self, identity: &Identity) {
        if let Some(entry) = self.0.get_mut(identity) {
            entry.set.remove(&UNOWNED);
        }
        self.0.retain(|_, entry| !entry.set.is_empty());
    }

    /// Takes from all others what was set or removed.
    pub fn yield_to(&mut self, identity: &Identity, comparison: &Comparison) {
        self.retain_left(Some(identity), comparison);
    }

    fn retain_left(&mut self, but: Option<&Identity>, comparison: &Comparison) {
        if self.0.is_empty() {
            return;
        }
        let set = comparison.set();
        for (_, entry) in self.0.iter_mut().filter(|(other, _)| Some(*other) != but) {
            entry.set.remove(&entry.set.intersection(&set));
            entry.set.remove(&comparison.removed);
        }
        self.0.retain(|_, entry| !entry.set.is_empty());
    }

    /// Merges the oldest updaters into one once there are more than ten.
    pub fn cap(&mut self) {
        let mut updaters: Vec<_> = self
            .0
            .iter()
            .filter(|(identity, _)| identity.operation == Operation::Update)
            .map(|(identity, entry)| (entry.time.clone(), identity.clone()))
            .collect();
        updaters.sort();
        let mut left = updaters.len();
        let mut first_of: BTreeMap<String, Identity> = BTreeMap::new();
        for (time, identity) in updaters {
            if left <= MOST_UPDATERS {
                return;
            }
            let Some(version) = identity.api_version.clone() else {
                continue;
            };
            let Some(first) = first_of.get(&version).cloned() else {
                first_of.insert(version, identity);
                continue;
            };
            let bucket = Identity {
                manager: OLD_UPDATERS.to_owned(),
                subresource: String::new(),
                ..identity.clone()
            };
            if !self.0.contains_key(&bucket)
                && let Some(entry) = self.0.remove(&first)
            {
                self.0.insert(bucket.clone(), entry);
            }
            if identity != bucket
                && let Some(merged) = self.0.remove(&identity)
                && let Some(entry) = self.0.get_mut(&bucket)
            {
                entry.set.extend(merged.set);
                entry.time = time;
                left -= 1;
            }
        }
    }

    pub fn conflicts(&self, but: &Identity, comparison: &Comparison) -> Vec<(Identity, Set)> {
        let changed = comparison.set();
        let others = self.0.iter().filter(|(identity, _)| *identity != but);
        let owned =
            others.map(|(identity, entry)| (identity.clone(), entry.set.intersection(&changed)));
        owned.filter(|(_, set)| !set.is_empty()).collect()
    }

    pub fn set(&self, identity: &Identity) -> Option<Set> {
        self.0.get(identity).map(|entry| entry.set.clone())
    }

    /// All fields that anybody owns.
    pub fn all(&self) -> Set {
        self.0
            .values()
            .fold(Set::default(), |all, entry| all.union(&entry.set))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Entry {
    fn encode(&self, identity: &Identity) -> Value {
        let mut entry = Map::new();
        entry.insert("apiVersion".to_owned(), json!(self.api_version));
        entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
        entry.insert("fieldsV1".to_owned(), self.set.encode());
        entry.insert("manager".to_owned(), json!(identity.manager));
        let operation = match identity.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        entry.insert("operation".to_owned(), json!(operation));
        if !identity.subresource.is_empty() {
            entry.insert("subresource".to_owned(), json!(identity.subresource));
        }
        if let Some(time) = &self.time {
            entry.insert("time".to_owned(), json!(time));
        }
        Value::Object(entry)
    }
}

/// The entries as they stand in an object.
pub(super) fn entries(object: &Value) -> Option<&Value> {
    object.pointer("/metadata/managedFields")
}

pub(super) fn remove(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
}

pub(super) fn forget_times(object: &mut Value) {
    let entries = object
        .pointer_mut("/metadata/managedFields")
        .and_then(Value::as_array_mut);
    for entry in entries
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        entry.shift_remove("time");
    }
}

/// A list of one empty entry asks to forget all owners; an empty list asks for nothing.
pub(super) fn is_reset(entries: Option<&Value>) -> bool {
    match entries.and_then(Value::as_array).map(Vec::as_slice) {
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Metadata as it is stored: without nulls and empty values.
pub(super) fn tidy(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            _ => true,
        });
    }
}

/// The group of a version; none of `v1`.
fn group(api_version: &str) -> Option<&str> {
    api_version.split_once('/').map(|(group, _)| group)
}

/// Kubernetes' times have whole seconds.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What nobody owns, because the server sets it or the request needs it.
static UNOWNED: LazyLock<Set> = LazyLock::new(|| {
    let mut unowned = Set::default();
    for names in UNOWNED_FIELDS {
        unowned.insert(&path(names));
    }
    unowned
});
const UNOWNED_FIELDS: [&[&str]; 12] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// Kubernetes' own limit.
const MOST_UPDATERS: usize = 10;
const OLD_UPDATERS: &str = "ancient-changes";
