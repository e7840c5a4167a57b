//! Variables whose values are secret: files of their own, in memory, that Ansible reads beside the others.
//!
//! YAML, because only there a text can be marked as one that is not a template: a password may well contain `{{`, and who
//! may write a Secret need not be who may have Ansible compute something.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{FileError, file::write_private};

const VARS: &str = "vars.yml";
const HOSTS: &str = "hosts.yml";
const NAMES: &str = "names.json";

/// A value, some of which may be secret.
#[derive(Clone, PartialEq)]
pub enum SecretValue {
    /// Not secret: as a person wrote it.
    Plain(Value),
    /// Secret: no text in it is a template.
    Secret(Value),
    /// A list.
    List(Vec<SecretValue>),
    /// An object.
    Map(BTreeMap<String, SecretValue>),
}

/// The variables that are secret, or contain what is.
#[derive(Clone, Default, PartialEq)]
pub struct SecretInventory {
    /// Those of every play. They win over all others.
    pub everywhere: BTreeMap<String, SecretValue>,
    /// Those of hosts, by host.
    pub hosts: BTreeMap<String, BTreeMap<String, SecretValue>>,
}

/// The files that were written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SecretFiles {
    /// The variables of every play, for a further `-e @`; none: there are none.
    pub vars: Option<PathBuf>,
    /// The variables of hosts, for a further `-i`; none: there are none.
    pub hosts: Option<PathBuf>,
    /// The names of all of them, for [`crate::playbook::PlaybookRun::secret_names`].
    pub names: Option<PathBuf>,
}

impl SecretFiles {
    /// What an earlier [`SecretInventory::write`] wrote.
    pub fn found(directory: &Path) -> Self {
        let there = |name| Some(directory.join(name)).filter(|path| path.exists());
        let (vars, hosts) = (there(VARS), there(HOSTS));
        // Named even where an earlier release did not write it: then no value of any variable is told.
        let names = (vars.is_some() || hosts.is_some()).then(|| directory.join(NAMES));
        Self { vars, hosts, names }
    }
}

impl SecretInventory {
    /// Writes `vars.yml`, `hosts.yml` and `names.json`, readable by the owner alone. The directory should lie in memory.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<SecretFiles, FileError> {
        let write = |name: &str, text: Option<String>| {
            let path = directory.join(name);
            let Some(text) = text else {
                return match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        Err(FileError::of(&path)(error))
                    }
                    _ => Ok(None),
                };
            };
            write_private(&path, text.as_bytes()).map_err(FileError::of(&path))?;
            Ok(Some(path))
        };
        Ok(SecretFiles {
            vars: write(
                VARS,
                (!self.everywhere.is_empty()).then(|| document(&self.everywhere)),
            )?,
            hosts: write(HOSTS, self.hosts_document())?,
            names: write(NAMES, self.names_document())?,
        })
    }

    /// Everything that is secret, as texts.
    pub fn texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        let of_hosts = self.hosts.values().flat_map(BTreeMap::values);
        for value in self.everywhere.values().chain(of_hosts) {
            secret_texts(value, &mut texts);
        }
        texts
    }

    fn names_document(&self) -> Option<String> {
        let of_hosts = self.hosts.values().flat_map(BTreeMap::keys);
        let names: BTreeSet<&String> = self.everywhere.keys().chain(of_hosts).collect();
        (!names.is_empty()).then(|| serde_json::json!(names).to_string())
    }

    fn hosts_document(&self) -> Option<String> {
        let with = self.hosts.iter().filter(|(_, vars)| !vars.is_empty());
        let hosts: BTreeMap<_, _> = with
            .map(|(host, variables)| (host.clone(), SecretValue::Map(variables.clone())))
            .collect();
        let nest = |name: &str, value| SecretValue::Map(BTreeMap::from([(name.to_owned(), value)]));
        (!hosts.is_empty()).then(|| {
            let mut text = String::new();
            write_value(
                &nest("all", nest("hosts", SecretValue::Map(hosts))),
                &mut text,
            );
            text + "\n"
        })
    }
}

fn secret_texts(value: &SecretValue, texts: &mut Vec<String>) {
    match value {
        SecretValue::Plain(_) => {}
        SecretValue::Secret(value) => scalars(value, texts),
        SecretValue::List(items) => items.iter().for_each(|item| secret_texts(item, texts)),
        SecretValue::Map(entries) => entries
            .values()
            .for_each(|value| secret_texts(value, texts)),
    }
}

fn scalars(value: &Value, texts: &mut Vec<String>) {
    match value {
        // Neither is a secret, and both stand everywhere.
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => texts.push(number.to_string()),
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| scalars(item, texts)),
        Value::Object(entries) => entries.values().for_each(|value| scalars(value, texts)),
    }
}

fn document(variables: &BTreeMap<String, SecretValue>) -> String {
    let mut text = String::new();
    write_map(variables, &mut text);
    text + "\n"
}

fn write_value(value: &SecretValue, to: &mut String) {
    match value {
        SecretValue::Plain(value) => write_json(value, "", to),
        SecretValue::Secret(value) => write_json(value, "!unsafe ", to),
        SecretValue::List(items) => {
            separated('[', items, ']', to, write_value);
        }
        SecretValue::Map(entries) => write_map(entries, to),
    }
}

fn write_map(entries: &BTreeMap<String, SecretValue>, to: &mut String) {
    separated('{', entries, '}', to, |(name, value), to| {
        write_text(name, to);
        to.push_str(": ");
        write_value(value, to);
    });
}

/// `mark` stands before every text.
fn write_json(value: &Value, mark: &str, to: &mut String) {
    match value {
        Value::Null | Value::Bool(_) => to.push_str(&value.to_string()),
        // YAML 1.1 takes 1e30 for a text.
        Value::Number(number) if number.is_f64() => {
            to.push_str(&format!("!!float \"{number}\""));
        }
        Value::Number(number) => to.push_str(&number.to_string()),
        Value::String(text) => {
            to.push_str(mark);
            write_text(text, to);
        }
        Value::Array(items) => {
            separated('[', items, ']', to, |item, to| write_json(item, mark, to));
        }
        Value::Object(entries) => separated('{', entries, '}', to, |(name, value), to| {
            write_text(name, to);
            to.push_str(": ");
            write_json(value, mark, to);
        }),
    }
}

fn separated<T>(
    open: char,
    items: impl IntoIterator<Item = T>,
    close: char,
    to: &mut String,
    mut write: impl FnMut(T, &mut String),
) {
    to.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            to.push_str(", ");
        }
        write(item, to);
    }
    to.push(close);
}

/// A text in double quotes; what YAML does not call printable is escaped.
fn write_text(text: &str, to: &mut String) {
    to.push('"');
    for character in text.chars() {
        match character {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            ' '..='~' => to.push(character),
            '\u{a0}'..='\u{d7ff}' if !matches!(character, '\u{2028}' | '\u{2029}') => {
                to.push(character);
            }
            _ => to.push_str(&format!("\\U{:08x}", u32::from(character))),
        }
    }
    to.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_secret_texts_are_marked_and_nothing_breaks_out_of_its_quotes() {
        let secret = |value| SecretValue::Secret(value);
        let nested = SecretValue::Map(BTreeMap::from([
            ("user".into(), SecretValue::Plain(json!("{{ name }}"))),
            ("token".into(), secret(json!("{{ lookup('pipe', 'id') }}"))),
        ]));
        let inventory = SecretInventory {
            everywhere: BTreeMap::from([
                ("a".into(), secret(json!("x\"\n\\\u{7f}\u{2028}"))),
                ("b".into(), SecretValue::List(vec![nested])),
                (
                    "c".into(),
                    secret(json!({"port": 22, "on": true, "share": 1e30})),
                ),
            ]),
            hosts: BTreeMap::from([
                (
                    "one".into(),
                    BTreeMap::from([("pin".into(), secret(json!("0000")))]),
                ),
                ("two".into(), BTreeMap::new()),
            ]),
        };
        assert_eq!(
            document(&inventory.everywhere),
            concat!(
                "{\"a\": !unsafe \"x\\\"\\U0000000a\\\\\\U0000007f\\U00002028\", ",
                "\"b\": [{\"token\": !unsafe \"{{ lookup('pipe', 'id') }}\", \"user\": \"{{ name }}\"}], ",
                "\"c\": {\"port\": 22, \"on\": true, \"share\": !!float \"1e+30\"}}\n"
            )
        );
        assert_eq!(
            inventory.hosts_document().unwrap(),
            "{\"all\": {\"hosts\": {\"one\": {\"pin\": !unsafe \"0000\"}}}}\n"
        );
    }
}
