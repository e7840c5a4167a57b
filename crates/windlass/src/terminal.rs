//! What others wrote, as it may stand on a terminal.
//!
//! What Windlass writes into a status has passed the gate for foreign text already. But whoever may write objects of a
//! namespace writes names, reasons and whole statuses too, and an answer of a server is theirs: on the terminal of the person
//! who looks, none of it may hide what stands beside it or steer the terminal. JSON and YAML are for programs and stay whole.

use std::{borrow::Cow, sync::RwLock};

use ansible::mask::{MASK, Mask};
use anyhow::Context;
use api::text::{lines, plain};
use comfy_table::{Row, Table, presets};
use controller::hint::placed;
use kube::core::Status;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Prints a line. That nobody reads any more ends nothing that is being done.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}
/// As [`say`], of what goes wrong.
macro_rules! complain {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
pub(crate) use {complain, say};

/// An object whose every text is one line without control characters, and whose hints name its namespace.
pub(crate) fn shown<K: Serialize + DeserializeOwned>(object: K) -> K {
    let cleaned = serde_json::to_value(&object).ok().and_then(|mut value| {
        let namespace = value.pointer("/metadata/namespace");
        let namespace = namespace.and_then(Value::as_str).map(str::to_owned);
        clean(&mut value, namespace.as_deref().unwrap_or_default());
        serde_json::from_value(value).ok()
    });
    cleaned.unwrap_or(object)
}

/// A text of several lines, without what is hidden.
pub(crate) fn text(text: &str) -> String {
    lines(&masked(text), usize::MAX)
}

/// A text without what is hidden.
pub(crate) fn masked(text: &str) -> Cow<'_, str> {
    match HIDDEN.read() {
        Ok(hidden) => match hidden.as_ref() {
            Some(mask) => Cow::Owned(mask.apply(text).into_owned()),
            None => Cow::Borrowed(text),
        },
        // Who held it has died, and nothing is known of what is in it.
        Err(_) => Cow::Borrowed(MASK),
    }
}

/// A document as JSON, for programs, without what is hidden.
pub(crate) fn json(document: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_json::to_string_pretty(&veiled(document)?).context("failed to print")?;
    Ok(masked(&text).into_owned())
}

/// A document as YAML, for programs, without what is hidden.
pub(crate) fn yaml(document: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(&veiled(document)?).context("failed to print")?;
    Ok(masked(&text).into_owned())
}

/// A document whose values are without what is hidden. In its text they are quoted and folded, and no longer found.
fn veiled(document: &impl Serialize) -> anyhow::Result<Value> {
    let mut document = serde_json::to_value(document).context("failed to print")?;
    veil(&mut document);
    Ok(document)
}

fn veil(value: &mut Value) {
    match value {
        Value::String(text) => *text = masked(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(veil),
        Value::Object(fields) => {
            for (name, mut value) in std::mem::take(fields) {
                veil(&mut value);
                fields.insert(masked(&name).into_owned(), value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            let text = value.to_string();
            if masked(&text) != text {
                *value = MASK.into();
            }
        }
    }
}

/// Has texts hidden from here on: what was encrypted in files.
pub(crate) fn hide(texts: impl IntoIterator<Item = String>) {
    let texts: Vec<String> = texts.into_iter().collect();
    let mask = Mask::of(texts.iter().map(String::as_str));
    if let Ok(mut hidden) = HIDDEN.write() {
        let before = hidden.take().unwrap_or_default();
        *hidden = Some(before.and(mask));
    }
}

/// Whether anything is hidden.
pub(crate) fn hides() -> bool {
    HIDDEN.read().is_ok_and(|hidden| hidden.is_some())
}

/// Whether anything of a value is hidden.
pub(crate) fn is_hidden(value: &Value) -> bool {
    let mut veiled = value.clone();
    veil(&mut veiled);
    veiled != *value
}

/// What this process must not show. Of whole errors and answers of an API nobody knows what they repeat, so it is known here, where all
/// is shown.
static HIDDEN: RwLock<Option<Mask>> = RwLock::new(None);

/// An error and what led to it. What an API refuses is told in its words.
pub(crate) fn told(error: &anyhow::Error) -> String {
    let mut told = Vec::new();
    for cause in error.chain() {
        let Some(status) = refusal(cause) else {
            told.push(cause.to_string());
            continue;
        };
        told.push(words(status));
        // The next cause is the same one.
        break;
    }
    told.join(": ")
}

fn refusal<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a Status> {
    let boxed = || {
        cause
            .downcast_ref::<Box<kube::Error>>()
            .map(|error| &**error)
    };
    match cause.downcast_ref::<kube::Error>().or_else(boxed)? {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// What a status says. The client makes one up where the answer was none.
fn words(status: &Status) -> String {
    if status.reason == "Failed to parse error data" {
        format!(
            "{} was answered, and no status of Kubernetes: is this the address of its API? It said: {}",
            status.code,
            plain(&status.message, ANSWER)
        )
    } else {
        status.message.clone()
    }
}

/// How much is shown of an answer that is no status.
const ANSWER: usize = 200;

/// A table as kubectl prints one: the first column where the line begins, and nothing after the last.
pub(crate) fn table<R: Into<Row>>(
    header: impl Into<Row>,
    rows: impl IntoIterator<Item = R>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    text(&table.trim_fmt())
}

fn clean(value: &mut Value, namespace: &str) {
    let items = |item: &mut Value| clean(item, namespace);
    match value {
        Value::String(text) => {
            if !api::text::is_plain(text) {
                *text = plain(text, usize::MAX);
            }
            *text = placed(text, namespace);
        }
        Value::Array(array) => array.iter_mut().for_each(items),
        Value::Object(fields) => fields.values_mut().for_each(items),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_api_refuses_is_told_in_its_words() {
        let refused = |message: &str, reason: &str| {
            let status = Status::failure(message, reason).with_code(404);
            let error = kube::Error::Api(Box::new(status));
            told(&anyhow::Error::new(error).context("failed to get the Secret s"))
        };
        assert_eq!(
            refused("secrets \"s\" not found", "NotFound"),
            "failed to get the Secret s: secrets \"s\" not found"
        );
        let page = refused("<html>no such page</html>", "Failed to parse error data");
        assert!(
            page.contains("404 was answered, and no status of Kubernetes"),
            "{page}"
        );
        assert!(!page.contains("Status {"), "{page}");
        let other = anyhow::anyhow!("inner").context("outer");
        assert_eq!(told(&other), "outer: inner");
    }

    #[test]
    fn a_table_begins_where_its_lines_begin() {
        let shown = table(["NAME", "READY"], [["first", "True"], ["second-one", ""]]);
        assert_eq!(shown, "NAME         READY\nfirst        True\nsecond-one");
    }

    #[test]
    fn what_is_hidden_stands_in_no_document_however_it_would_be_written() {
        let long = "wheel barrow ".repeat(10);
        let long = long.get(..120).unwrap();
        let quoted = "# veil's \"inner\": side";
        hide([long, quoted, "918273645"].map(str::to_owned));
        let document = json!({
            "long": long, "among": format!("before {long} behind"), "quoted": quoted,
            "number": 918_273_645, "list": [{quoted: true}, null, 1.5], "other": "it's in the open",
        });
        let expected = json!({
            "long": MASK, "among": format!("before {MASK} behind"), "quoted": MASK,
            "number": MASK, "list": [{MASK: true}, null, 1.5], "other": "it's in the open",
        });
        let from_json: Value = serde_json::from_str(&super::json(&document).unwrap()).unwrap();
        assert_eq!(from_json, expected);
        let from_yaml: Value = serde_saphyr::from_str(&yaml(&document).unwrap()).unwrap();
        assert_eq!(from_yaml, expected);
    }

    #[test]
    fn a_status_of_a_stranger_steers_no_terminal() {
        let cluster: api::Cluster = serde_json::from_value(json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "first"}, "spec": {},
            "status": {"lastOperation": {
                "type": "Create", "state": "Running", "progress": 0, "run": "r", "description": "\u{1b}[2J\u{1b}]0;x\u{7}all\nwell\u{202e}",
            }},
        }))
        .unwrap();
        let said = shown(cluster).status.unwrap().last_operation.unwrap();
        assert_eq!(said.description.as_deref(), Some("all well"));
    }
}
