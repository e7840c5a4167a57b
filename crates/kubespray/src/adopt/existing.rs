//! What Ansible made of an inventory, with what was encrypted in the open.

use std::collections::{BTreeMap, BTreeSet};

use ansible::{
    inventory::SecretValue,
    listing::{Listing, UNSAFE, VAULTED},
    template::is_template,
};
use serde_json::{Map, Value};

/// An inventory as Ansible reads it. It cannot be printed: some of it is secret.
#[derive(Clone, Default, PartialEq)]
pub struct Existing {
    pub(super) listing: Listing,
    hosts: BTreeMap<String, BTreeMap<String, SecretValue>>,
    /// The variables that are written at each host itself.
    own: BTreeMap<String, BTreeSet<String>>,
    /// Secret variables with a template in them.
    templates: BTreeSet<String>,
}

impl Existing {
    /// An inventory of which `own` lists the variables that are written at hosts themselves. Variables in `vaulted` stand in
    /// encrypted files; `decrypted` has the text of each encrypted value.
    pub fn new(
        listing: Listing,
        own: &Listing,
        vaulted: &BTreeSet<String>,
        decrypted: &BTreeMap<String, String>,
    ) -> Self {
        let mut hosts = BTreeMap::new();
        let mut templates = BTreeSet::new();
        for (host, variables) in listing.hosts() {
            let mut values = BTreeMap::new();
            for (name, printed) in variables {
                let mut value = read(printed, decrypted);
                if vaulted.contains(name) {
                    value = SecretValue::Secret(revealed(&value));
                }
                if holds_secret_template(printed, vaulted.contains(name), decrypted) {
                    templates.insert(name.clone());
                }
                values.insert(name.clone(), value);
            }
            hosts.insert(host.clone(), values);
        }
        let own = own.hosts().iter();
        let own = own.map(|(host, variables)| (host.clone(), variables.keys().cloned().collect()));
        Self {
            own: own.collect(),
            hosts,
            templates,
            listing,
        }
    }

    /// The variables of a host.
    pub fn variables(&self, host: &str) -> impl Iterator<Item = (&str, &SecretValue)> {
        let variables = self.hosts.get(host).into_iter().flatten();
        variables.map(|(name, value)| (name.as_str(), value))
    }

    /// A variable of a host, unless it is secret.
    pub(super) fn value(&self, host: &str, name: &str) -> Option<&Value> {
        match self.hosts.get(host)?.get(name)? {
            SecretValue::Plain(value) => Some(value),
            _ => None,
        }
    }

    /// Whether a host has a variable.
    pub(super) fn has(&self, host: &str, name: &str) -> bool {
        let variables = self.hosts.get(host);
        variables.is_some_and(|variables| variables.contains_key(name))
    }

    /// Whether a variable is written at the host itself, and not at a group of it.
    pub(super) fn is_own(&self, host: &str, name: &str) -> bool {
        self.own.get(host).is_some_and(|names| names.contains(name))
    }

    /// Whether a variable is secret and Ansible would fill it in. A value from a Secret never is.
    pub(super) fn is_secret_template(&self, name: &str) -> bool {
        self.templates.contains(name)
    }
}

/// Every value that is encrypted by itself.
pub fn encrypted(listing: &Listing) -> BTreeSet<String> {
    fn collect(value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => match marked(fields, VAULTED) {
                Some(text) => drop(into.insert(text.to_owned())),
                None => fields.values().for_each(|value| collect(value, into)),
            },
            Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    let values = listing.hosts().values().flat_map(Map::values);
    values.for_each(|value| collect(value, &mut found));
    found
}

/// A value without its secrets kept apart. Not to be shown.
pub(super) fn revealed(value: &SecretValue) -> Value {
    match value {
        SecretValue::Plain(value) | SecretValue::Secret(value) => value.clone(),
        SecretValue::List(items) => items.iter().map(revealed).collect(),
        SecretValue::Map(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (name.clone(), revealed(value)));
            Value::Object(fields.collect())
        }
    }
}

/// Whether a value is secret, or contains what is.
pub(super) fn is_secret(value: &SecretValue) -> bool {
    match value {
        SecretValue::Plain(_) => false,
        SecretValue::Secret(_) => true,
        SecretValue::List(items) => items.iter().any(is_secret),
        SecretValue::Map(fields) => fields.values().any(is_secret),
    }
}

/// Whether Ansible would fill a value in.
pub(super) fn holds_template(value: &Value) -> bool {
    match value {
        Value::String(text) => is_template(text),
        Value::Array(items) => items.iter().any(holds_template),
        Value::Object(fields) => fields
            .iter()
            .any(|(key, value)| is_template(key) || holds_template(value)),
        _ => false,
    }
}

fn read(printed: &Value, decrypted: &BTreeMap<String, String>) -> SecretValue {
    let value = match printed {
        Value::Object(fields) => {
            if let Some(vaulted) = marked(fields, VAULTED) {
                let text = decrypted.get(vaulted).cloned().unwrap_or_default();
                return SecretValue::Secret(text.into());
            }
            if let Some(text) = marked(fields, UNSAFE) {
                // No template, though it looks like one: what a value of a Secret is as well.
                return if is_template(text) {
                    SecretValue::Secret(text.into())
                } else {
                    SecretValue::Plain(text.into())
                };
            }
            let fields = fields.iter();
            SecretValue::Map(
                fields
                    .map(|(name, value)| (name.clone(), read(value, decrypted)))
                    .collect(),
            )
        }
        Value::Array(items) => {
            SecretValue::List(items.iter().map(|item| read(item, decrypted)).collect())
        }
        plain => SecretValue::Plain(plain.clone()),
    };
    if is_secret(&value) {
        value
    } else {
        SecretValue::Plain(revealed(&value))
    }
}

fn holds_secret_template(
    printed: &Value,
    secret: bool,
    decrypted: &BTreeMap<String, String>,
) -> bool {
    match printed {
        Value::String(text) => secret && is_template(text),
        Value::Array(items) => items
            .iter()
            .any(|item| holds_secret_template(item, secret, decrypted)),
        Value::Object(fields) => match (marked(fields, VAULTED), marked(fields, UNSAFE)) {
            (Some(vaulted), _) => decrypted.get(vaulted).is_some_and(|text| is_template(text)),
            (_, Some(_)) => false,
            _ => fields
                .values()
                .any(|value| holds_secret_template(value, secret, decrypted)),
        },
        _ => false,
    }
}

/// The text of an object whose only field has this name.
fn marked<'a>(fields: &'a Map<String, Value>, mark: &str) -> Option<&'a str> {
    fields.get(mark).filter(|_| fields.len() == 1)?.as_str()
}
