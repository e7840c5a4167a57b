//! Where each variable goes: to the Cluster, to each host that has it, into the Secret, or nowhere.

use std::collections::BTreeMap;

use ansible::inventory::{self, InventoryError, Level, SecretValue};
use serde_json::{Map, Value, json};

use super::{
    existing::{self, Existing},
    hosts::{FIELDS, Found},
};
use crate::variables::REFERENCE;

/// The key of the Secret with the variables of the whole cluster.
pub(super) const FILE: &str = "vars.yml";

/// The key of the Secret with the variables of a host.
pub(super) fn file_of(host: &str) -> String {
    format!("host-{host}.yml")
}

/// Variables in their places.
#[derive(Default)]
pub(super) struct Spread {
    pub(super) cluster: Map<String, Value>,
    pub(super) hosts: BTreeMap<String, Map<String, Value>>,
    /// What the Secret holds, by key.
    pub(super) secret: BTreeMap<String, String>,
    pub(super) notes: Vec<String>,
}

/// Puts every variable into its place.
pub(super) fn spread(existing: &Existing, hosts: &[Found], secret: &str) -> Spread {
    let mut spreading = Spreading {
        existing,
        hosts,
        secret,
        spread: Spread::default(),
        whole: BTreeMap::new(),
        left: BTreeMap::new(),
    };
    let mut names: Vec<&str> = hosts
        .iter()
        .flat_map(|host| existing.variables(&host.name).map(|(name, _)| name))
        .filter(|name| !FIELDS.contains(name))
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        spreading.put(name);
    }
    spreading.finish()
}

struct Spreading<'a> {
    existing: &'a Existing,
    hosts: &'a [Found],
    /// The name of the Secret.
    secret: &'a str,
    spread: Spread,
    /// Variables that are secret as a whole, by key of the Secret.
    whole: BTreeMap<String, Map<String, Value>>,
    /// What is left out, and why, on which hosts.
    left: BTreeMap<(String, String), Vec<String>>,
}

impl Spreading<'_> {
    fn put(&mut self, name: &str) {
        let mut values: Vec<(&Found, &SecretValue)> = Vec::new();
        for host in self.hosts {
            let mut variables = self.existing.variables(&host.name);
            if let Some((_, value)) = variables.find(|(other, _)| *other == name) {
                values.push((host, value));
            }
        }
        let values: Vec<(String, SecretValue)> = values
            .iter()
            .map(|(host, value)| (host.name.clone(), (*value).clone()))
            .collect();
        let Some((_, first)) = values.first() else {
            return;
        };
        let is_ssh = |value: &SecretValue| matches!(value, SecretValue::Plain(Value::String(text)) if text == "ssh" || text == "smart");
        if name == "ansible_connection" && values.iter().all(|(_, value)| is_ssh(value)) {
            return;
        }
        if self.existing.is_secret_template(name) {
            self.note(
                name,
                &values,
                "it is encrypted and a template, and what comes from a Secret is never one: write the template into extraVars, and \
                 only what is secret in it into a Secret",
            );
            return;
        }
        let agree = values.iter().all(|(_, value)| value == first);
        if agree && self.is_of_cluster(name, &values) {
            let first = first.clone();
            if let Some(value) = self.taken(Level::Cluster, name, "", &values, &first) {
                self.spread.cluster.insert(name.to_owned(), value);
            }
            return;
        }
        if inventory::is_of_the_whole_cluster(name) {
            self.note(
                name,
                &values,
                "Windlass reads it for the whole cluster, and hosts disagree about it: give it one value for all",
            );
            return;
        }
        for (host, value) in &values {
            let one = [(host.clone(), value.clone())];
            if let Some(value) = self.taken(Level::Host, name, host, &one, value) {
                let variables = self.spread.hosts.entry(host.clone()).or_default();
                variables.insert(name.to_owned(), value);
            }
        }
    }

    /// Whether a variable that all who have it agree about is one of the whole cluster: every node has it, and not each for
    /// itself, for then a host that comes later has none. So is what only the Cluster can hold.
    fn is_of_cluster(&self, name: &str, values: &[(String, SecretValue)]) -> bool {
        if inventory::is_of_the_whole_cluster(name) {
            return true;
        }
        let has = |host: &&Found| values.iter().any(|(name, _)| *name == host.name);
        let all = self
            .hosts
            .iter()
            .filter(|host| host.is_node())
            .all(|h| has(&h));
        let own = values
            .iter()
            .all(|(host, _)| self.existing.is_own(host, name));
        let template = values
            .first()
            .is_some_and(|(_, value)| existing::holds_template(&existing::revealed(value)));
        all && (template || !own)
    }

    /// A value as it stands in a spec, with what is secret put into the Secret. None: in the Secret as a whole, or nowhere.
    fn taken(
        &mut self,
        level: Level,
        name: &str,
        host: &str,
        values: &[(String, SecretValue)],
        value: &SecretValue,
    ) -> Option<Value> {
        let refused: Vec<InventoryError> = if existing::is_secret(value) {
            let refused = inventory::refused_as_secret(level, name, name);
            refused.into_iter().collect()
        } else {
            inventory::refused(level, name, name, &existing::revealed(value))
        };
        if let Some(refused) = refused.first() {
            let why = format!("{}: {}", refused.rule, refused.remedy);
            self.note(name, values, &why);
            return None;
        }
        if let SecretValue::Secret(value) = value {
            let key = match level {
                Level::Cluster => FILE.to_owned(),
                Level::Host => file_of(host),
            };
            let variables = self.whole.entry(key).or_default();
            variables.insert(name.to_owned(), value.clone());
            return None;
        }
        let key = match level {
            Level::Cluster => name.to_owned(),
            Level::Host => format!("{host}.{name}"),
        };
        let value = self.referring(&key, value);
        let names_files = ["inventory_dir", "inventory_file", "playbook_dir"];
        if let Some(place) = names_files
            .iter()
            .find(|place| value.to_string().contains(**place))
        {
            self.spread.notes.push(format!(
                "{name}: carried over, but it refers to {place}, which is another place with Windlass"
            ));
        }
        Some(value)
    }

    fn referring(&mut self, key: &str, value: &SecretValue) -> Value {
        match value {
            SecretValue::Plain(value) => value.clone(),
            SecretValue::Secret(value) => {
                let mut names = (1..).map(|number| match number {
                    1 => key.to_owned(),
                    more => format!("{key}-{more}"),
                });
                let free = names.find(|name| !self.spread.secret.contains_key(name));
                let free = free.unwrap_or_default();
                let text = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                self.spread.secret.insert(free.clone(), text);
                json!({REFERENCE: {"name": self.secret, "key": free}})
            }
            SecretValue::List(items) => {
                items.iter().map(|item| self.referring(key, item)).collect()
            }
            SecretValue::Map(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(name, value)| (name.clone(), self.referring(key, value)))
                    .collect(),
            ),
        }
    }

    fn note(&mut self, name: &str, values: &[(String, SecretValue)], why: &str) {
        let hosts = self.left.entry((name.to_owned(), why.to_owned()));
        let hosts = hosts.or_default();
        hosts.extend(values.iter().map(|(host, _)| host.clone()));
    }

    fn finish(mut self) -> Spread {
        for (key, variables) in self.whole {
            // JSON is YAML, and keeps types.
            let text = format!("{:#}\n", Value::Object(variables));
            self.spread.secret.insert(key, text);
        }
        for ((name, why), hosts) in self.left {
            let hosts = listed(&hosts, self.hosts.len());
            let note = format!("{name}: left out on {hosts}: {why}");
            self.spread.notes.push(note);
        }
        self.spread
    }
}

/// Hosts as people read them.
pub(super) fn listed(hosts: &[String], all: usize) -> String {
    const FEW: usize = 5;
    match hosts {
        hosts if hosts.len() == all && all > 1 => "all hosts".to_owned(),
        hosts if hosts.len() <= FEW => hosts.join(", "),
        [first, .., last] => format!("{} hosts, {first} to {last}", hosts.len()),
        _ => String::new(),
    }
}
