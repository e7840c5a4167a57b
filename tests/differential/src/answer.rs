//! What of an answer is compared.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use http::Request;
use kube::{Client, client::Body};
use serde_json::{Map, Value, json};

use crate::case::Place;

/// What a server answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The code of HTTP.
    pub code: u16,
    /// The object without what a server makes up (ids, revisions, times), or the reason and the causes of a refusal.
    pub body: Value,
    /// Whether the object got another revision than before.
    pub written: bool,
    /// The revision, for the next request.
    pub revision: String,
    /// As it came, for people.
    pub message: String,
}

impl Answer {
    /// What becomes of a request that a server breaks off in the middle of.
    pub fn broken_off(why: &anyhow::Error, place: &Place<'_>) -> Self {
        Self {
            code: 0,
            body: Value::Null,
            written: false,
            revision: place.revision.to_owned(),
            message: format!("{why:#}"),
        }
    }

    /// Whether there was no answer.
    pub const fn is_broken_off(&self) -> bool {
        self.code == 0
    }

    /// Whether the request did the same to both objects, or was refused for the same reason.
    pub fn agrees(&self, other: &Self) -> bool {
        (self.code, &self.body, self.written) == (other.code, &other.body, other.written)
    }
}

/// Sends a request.
///
/// # Errors
///
/// No answer.
pub async fn ask(client: &Client, request: Request<Body>, place: &Place<'_>) -> Result<Answer> {
    let response = client.send(request).await.context("send")?;
    let code = response.status().as_u16();
    let bytes = response
        .into_body()
        .collect_bytes()
        .await
        .context("read the answer")?;
    let text = place.without_ids(&String::from_utf8_lossy(&bytes));
    let body: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    if body["kind"] == "Status" || !body.is_object() {
        let message = body["message"].as_str().unwrap_or(&text).to_owned();
        return Ok(Answer {
            code,
            body: refusal(&body),
            written: false,
            revision: place.revision.to_owned(),
            message,
        });
    }
    let now = body["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    Ok(Answer {
        code,
        body: normal(body, place.name),
        written: now != place.revision,
        revision: now,
        message: String::new(),
    })
}

fn refusal(status: &Value) -> Value {
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    let causes: BTreeSet<String> = causes
        .map(|cause| {
            let part = |name: &str| cause[name].as_str().unwrap_or_default().to_owned();
            format!("{} {}", part("field"), part("reason"))
        })
        .collect();
    json!({"reason": status["reason"], "causes": causes})
}

fn normal(mut object: Value, name: &str) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for made in ["uid", "resourceVersion", "creationTimestamp"] {
            metadata.shift_remove(made);
        }
        let entries = metadata
            .get_mut("managedFields")
            .and_then(Value::as_array_mut);
        if let Some(entries) = entries {
            for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
                entry.shift_remove("time");
            }
            entries.sort_by_key(|entry| {
                ["manager", "operation", "subresource"].map(|field| entry[field].to_string())
            });
        }
    }
    renamed(object, name)
}

fn renamed(value: Value, name: &str) -> Value {
    match value {
        Value::String(text) if text == name => json!("NAME"),
        Value::Array(items) => items.into_iter().map(|item| renamed(item, name)).collect(),
        Value::Object(fields) => {
            let mut fields: Map<String, Value> = fields
                .into_iter()
                .map(|(field, value)| (field, renamed(value, name)))
                .collect();
            fields.sort_keys();
            Value::Object(fields)
        }
        scalar => scalar,
    }
}

/// Where two values differ, one line a place.
pub fn differences(ours: &Value, real: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    differ(Some(ours), Some(real), "", &mut lines);
    lines
}

fn differ(ours: Option<&Value>, real: Option<&Value>, path: &str, lines: &mut Vec<String>) {
    match (ours, real) {
        (Some(Value::Object(one)), Some(Value::Object(two))) => {
            let names: BTreeSet<&String> = one.keys().chain(two.keys()).collect();
            for name in names {
                differ(
                    one.get(name),
                    two.get(name),
                    &format!("{path}/{name}"),
                    lines,
                );
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(two))) if one.len() == two.len() => {
            for (at, (one, two)) in one.iter().zip(two).enumerate() {
                differ(Some(one), Some(two), &format!("{path}/{at}"), lines);
            }
        }
        (ours, real) if ours == real => {}
        (ours, real) => {
            let shown =
                |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
            lines.push(format!(
                "{path}: ours {}, real {}",
                shown(ours),
                shown(real)
            ));
        }
    }
}
