//! What may be secret, in what goes into a bundle.

use ansible::mask::{Mask, may_be_secret};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// The one field of a value that stands in a Secret.
const REFERENCE: &str = "secretKeyRef";

/// A shorter value whose name alone says that it may be secret is in too many other words to be looked for everywhere.
const SHORTEST: usize = 6;

/// How secrets are taken out of documents and texts.
#[derive(Clone, Debug)]
pub struct Redaction {
    mask: Mask,
    key: [u8; 32],
}

impl Redaction {
    /// Masks these texts, which Secrets hold, and makes digests of other values with a key of its own.
    pub fn of<'a>(secrets: impl IntoIterator<Item = &'a str>, key: [u8; 32]) -> Self {
        Self {
            mask: Mask::of(secrets),
            key,
        }
    }

    /// Masks wherever they stand the values too of which a document's redaction makes digests: a task may have printed them.
    #[must_use]
    pub fn knowing(self, document: &Value) -> Self {
        let mut values = Vec::new();
        secrets(document, false, &mut values);
        let mask = Mask::of(values.iter().map(String::as_str));
        Self {
            mask: self.mask.and(mask),
            key: self.key,
        }
    }

    /// A text of lines.
    pub fn text(&self, text: &str) -> String {
        self.mask.apply(text).into_owned()
    }

    /// A document: texts are masked, and what a name says may be secret becomes a digest.
    pub fn document(&self, mut document: Value) -> Value {
        self.redact(&mut document);
        document
    }

    /// Lines of JSON; one that is none is a text.
    pub fn lines(&self, text: &str) -> String {
        let lines = text.lines().map(|line| {
            let document = serde_json::from_str(line);
            let told = document.map_or_else(
                |_| self.text(line),
                |document| self.document(document).to_string(),
            );
            told + "\n"
        });
        lines.collect()
    }

    fn redact(&self, value: &mut Value) {
        self.redact_of(value, false);
    }

    /// Below a name that says so everything is secret, however deep.
    fn redact_of(&self, value: &mut Value, is_secret: bool) {
        match value {
            Value::String(_) | Value::Number(_) if is_secret => *value = self.digest(value).into(),
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => {
                for item in items {
                    self.redact_of(item, is_secret);
                }
            }
            // Where a secret is, is none.
            Value::Object(fields) if fields.len() == 1 && fields.contains_key(REFERENCE) => {}
            Value::Object(fields) => {
                let pairs_one = pairs_secret(fields);
                for (name, field) in fields {
                    self.redact_of(field, is_secret || holds_secret(name, pairs_one));
                }
            }
            _ => {}
        }
    }

    /// The key has one length and the digest is cut, so that none can be made longer.
    fn digest(&self, value: &Value) -> String {
        let digest = Sha256::new()
            .chain_update(self.key)
            .chain_update(value.to_string());
        let digest = hex::encode(digest.finalize());
        format!("digest:{}", digest.get(..24).unwrap_or_default())
    }
}

/// Whether a field holds what is secret, as its name says, or the name beside it.
fn holds_secret(name: &str, pairs_one: bool) -> bool {
    (may_be_secret(name) && !name.ends_with("Ref")) || (pairs_one && name == "value")
}

/// Whether these are `name` and `value` of something that may be secret, as containers are given their environment.
fn pairs_secret(fields: &Map<String, Value>) -> bool {
    let name = fields.get("name").and_then(Value::as_str);
    fields.contains_key("value") && name.is_some_and(may_be_secret)
}

/// The values of which a redaction makes digests, but for those of a field that names a Secret: its name is none.
fn secrets(value: &Value, is_secret: bool, found: &mut Vec<String>) {
    let mut add = |text: String| {
        if is_secret && text.trim().chars().count() >= SHORTEST {
            found.push(text);
        }
    };
    match value {
        Value::String(text) => add(text.clone()),
        Value::Number(number) => add(number.to_string()),
        Value::Array(items) => {
            for item in items {
                secrets(item, is_secret, found);
            }
        }
        Value::Object(fields) if fields.len() == 1 && fields.contains_key(REFERENCE) => {}
        Value::Object(fields) => {
            let pairs_one = pairs_secret(fields);
            for (name, field) in fields {
                if !name.contains("Secret") {
                    secrets(field, is_secret || holds_secret(name, pairs_one), found);
                }
            }
        }
        _ => {}
    }
}
