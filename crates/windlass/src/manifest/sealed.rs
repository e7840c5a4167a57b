//! Files that are encrypted with SOPS or age: opened in memory, and what was in them is shown nowhere.

use std::{
    cell::OnceCell,
    collections::HashSet,
    path::{Path, PathBuf},
};

use anyhow::Context;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use sops::{Keys, Opened};

use crate::{cli::AgeKeys, terminal};

/// What opens them. Keys are looked for when the first file needs one.
pub(crate) struct Opener {
    /// The file with the keys; none: those that SOPS would find.
    key_file: Option<PathBuf>,
    keys: OnceCell<Keys>,
    /// Why none is to be opened.
    refuses: Option<&'static str>,
}

impl Opener {
    pub(crate) fn new(keys: &AgeKeys) -> Self {
        Self {
            key_file: keys.age_key_file.clone(),
            keys: OnceCell::new(),
            refuses: None,
        }
    }

    /// One for a command that would show or write what is in them.
    pub(crate) fn refusing(why: &'static str) -> Self {
        Self {
            key_file: None,
            keys: OnceCell::new(),
            refuses: Some(why),
        }
    }

    /// The documents of a manifest; none: it is not encrypted.
    pub(crate) fn documents(&self, file: &[u8]) -> anyhow::Result<Option<Vec<Value>>> {
        if sops::is_age(file) {
            let text = sops::unseal(file, self.keys()?)?;
            if sops::is_sops(&text) {
                let documents = self.open(&text)?.documents;
                // What SOPS left in the open was encrypted all the same.
                terminal::hide(documents.iter().flat_map(texts));
                return Ok(Some(documents));
            }
            let documents = super::documents(&text).map_err(|error| {
                // What the parser says shows the lines around it.
                let at = error.location();
                let line = at.map_or(0, |at| at.line());
                anyhow::anyhow!("line {line} of what is encrypted: it is no YAML")
            })?;
            terminal::hide(documents.iter().flat_map(texts));
            return Ok(Some(documents));
        }
        match str::from_utf8(file) {
            Ok(text) if sops::is_sops(text) => Ok(Some(self.open(text)?.documents)),
            _ => Ok(None),
        }
    }

    /// Opens a file of SOPS.
    pub(crate) fn open(&self, text: &str) -> anyhow::Result<Opened> {
        let opened = sops::open(text, self.keys()?)?;
        let secrets = opened.secrets.iter();
        let secrets = secrets.filter(|secret| !is_shown(&secret.field, secret.within.as_deref()));
        let secrets: Vec<String> = secrets.map(|secret| secret.text.clone()).collect();
        let known: HashSet<&str> = secrets.iter().map(String::as_str).collect();
        let decoded = opened.documents.iter().flat_map(data);
        let decoded = decoded.filter(|(encoded, _)| known.contains(encoded));
        let decoded: Vec<String> = decoded.map(|(_, text)| text).collect();
        terminal::hide(secrets.into_iter().chain(decoded));
        Ok(opened)
    }

    fn keys(&self) -> anyhow::Result<&Keys> {
        if let Some(why) = self.refuses {
            anyhow::bail!(
                "it is encrypted, and {why}: decrypt it with sops or age, and name what that prints"
            );
        }
        if let Some(keys) = self.keys.get() {
            return Ok(keys);
        }
        let environment = |name: &str| std::env::var(name).ok();
        let keys = Keys::find(self.key_file.as_deref(), environment)
            .context("failed to read the private keys of age")?;
        Ok(self.keys.get_or_init(|| keys))
    }
}

/// Whether a file may be a manifest, by its name. The configuration of SOPS is none.
pub(crate) fn is_manifest(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    if name == ".sops.yaml" {
        return false;
    }
    let name = name.strip_suffix(".age").unwrap_or(&name);
    [".yaml", ".yml", ".json"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// The texts and numbers of a document that was encrypted as a whole, and what is encoded in it.
fn texts(document: &Value) -> Vec<String> {
    fn collect(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::String(text) => into.push(text.clone()),
            Value::Number(number) => into.push(number.to_string()),
            Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
            Value::Object(fields) => fields.values().for_each(|value| collect(value, into)),
            Value::Null | Value::Bool(_) => {}
        }
    }
    let mut found = Vec::new();
    for (name, value) in document.as_object().into_iter().flatten() {
        let Some(fields) = value.as_object() else {
            if value.is_array() || !is_shown(name, None) {
                collect(value, &mut found);
            }
            continue;
        };
        for (within, value) in fields {
            if value.is_object() || value.is_array() || !is_shown(name, Some(within)) {
                collect(value, &mut found);
            }
        }
    }
    found.extend(data(document).into_iter().map(|(_, text)| text));
    found
}

/// The texts in the `data` of a Secret, or of those in a list: as they stand there, and decoded.
fn data(document: &Value) -> Vec<(&str, String)> {
    let items = document["items"].as_array().into_iter().flatten();
    let secrets = std::iter::once(document).chain(items);
    let secrets = secrets.filter(|object| object["kind"] == "Secret");
    let values = secrets.filter_map(|secret| secret["data"].as_object());
    let encoded = values
        .flat_map(|data| data.values())
        .filter_map(Value::as_str);
    let decoded = |encoded: &str| {
        let whole: String = encoded.split_ascii_whitespace().collect();
        String::from_utf8(STANDARD.decode(whole).ok()?).ok()
    };
    encoded
        .filter_map(|encoded| Some((encoded, decoded(encoded)?)))
        .collect()
}

/// Whether what stands there is told of an object, whatever was encrypted: what it is, and what it is called.
fn is_shown(field: &str, within: Option<&str>) -> bool {
    matches!(
        (field, within),
        ("apiVersion" | "kind", None) | ("metadata", Some("name" | "namespace"))
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_what_was_encrypted_the_name_of_an_object_alone_is_told() {
        let document = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "shown", "namespace": "shown too", "labels": {"name": "label"}, "finalizers": ["last"],
            },
            "data": {"a": "aGlkZGVu", "b": "aGlk\nZGVu\n", "c": "/w==", "d": "no base64"},
            "stringData": {"e": "text"}, "immutable": true, "count": 5,
        });
        let expected = [
            "label",
            "last",
            "aGlkZGVu",
            "aGlk\nZGVu\n",
            "/w==",
            "no base64",
            "text",
            "5",
            "hidden",
            "hidden",
        ];
        assert_eq!(texts(&document), expected);
        let list = json!({"kind": "List", "items": [document]});
        assert!(texts(&list).ends_with(&["hidden".to_owned(), "hidden".to_owned()]));
        // No object is called so.
        let odd = json!({"kind": ["kind"], "metadata": {"name": {"a": "name"}}});
        assert_eq!(texts(&odd), ["kind", "name"]);
    }
}
