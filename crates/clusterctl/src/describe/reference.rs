//! What objects of Cluster API say of others, in either form of the contract.

use api::text::plain;
use serde_json::Value;

use super::WORD;

/// An object of the cluster's namespace that another one refers to. Which version it is read in is for the API to say.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Reference {
    /// Its group.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl Reference {
    /// Reads one: `{apiVersion, kind, name, namespace}` of v1beta1 or `{apiGroup, kind, name}` of v1beta2. None where there is none.
    ///
    /// # Errors
    ///
    /// Why it is not followed. A name goes into the address that the API is asked at, so that one that is none asks for nothing, and
    /// Cluster API refers to no other namespace.
    pub fn read(value: &Value, namespace: &str) -> Option<Result<Self, String>> {
        let text = |key: &str| value[key].as_str().unwrap_or_default();
        let (kind, name) = (text("kind"), text("name"));
        if kind.is_empty() && name.is_empty() {
            return None;
        }
        let group = match text("apiGroup") {
            "" => text("apiVersion").split_once('/').map_or("", |it| it.0),
            group => group,
        };
        if !is_kind(kind) || !is_name(name) || !is_name(group) {
            let told = format!("{group} {kind} {name}");
            return Some(Err(format!(
                "the reference names no object: {}",
                plain(&told, WORD)
            )));
        }
        let other = text("namespace");
        if !other.is_empty() && other != namespace {
            return Some(Err(format!(
                "the reference is to another namespace: {}",
                plain(other, WORD)
            )));
        }
        Some(Ok(Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        }))
    }
}

/// Whether a text is a name that an object of Cluster API can have.
pub fn is_name(text: &str) -> bool {
    let is_in = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().copied().is_some_and(is_in)
            && bytes.last().copied().is_some_and(is_in)
            && bytes.iter().all(|byte| is_in(*byte) || *byte == b'-')
    };
    text.len() <= super::NAME && text.split('.').all(is_part)
}

fn is_kind(text: &str) -> bool {
    text.len() <= 63 && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
