//! Plays scenarios against any API server and notes what it answers, without what differs from run to run.
//!
//! A step is `VERB PATH: BODY`. A path begins with a resource, which stands for where it is served in the scenario's own
//! namespace, or with a slash. `{rv:N}`, `{uid:N}` and `{continue:N}` are of the answer to step N, from 0; `NS` is the
//! namespace.

use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use http::{Request, header};
use kube::{Client, client::Body};
use regex::Regex;
use serde_json::{Map, Value, json};

/// Requests that are sent in order, in a namespace of their own.
#[derive(Debug, serde::Deserialize)]
pub struct Scenario {
    pub scenario: String,
    pub steps: Vec<Map<String, Value>>,
}

/// The scenarios of the suite.
pub fn scenarios() -> Result<Vec<Scenario>> {
    serde_saphyr::from_str(include_str!("scenarios.yaml")).context("read scenarios.yaml")
}

/// The definition whose objects the scenarios use.
pub fn widgets() -> Result<Value> {
    let golden: Value = serde_json::from_str(include_str!("../golden/table.json"))?;
    Ok(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [golden["columns"]],
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
        },
    }))
}

/// Plays a scenario. Returns each step with its answer.
pub async fn play(client: &Client, scenario: &Scenario) -> Result<Vec<Value>> {
    let namespace = format!("play-{}", suffix());
    let metadata =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    send(client, "post", "/api/v1/namespaces", &metadata).await?;
    let mut answers: Vec<(u16, Value)> = Vec::new();
    for (step, body) in scenario.steps.iter().flatten() {
        let (verb, path) = step
            .split_once(' ')
            .with_context(|| format!("no verb and path: {step}"))?;
        let path = filled(&located(path), &namespace, &answers);
        let body: Value = match body {
            Value::Null => Value::Null,
            body => serde_json::from_str(&filled(&body.to_string(), &namespace, &answers))?,
        };
        let body = typed(verb, &path, body);
        let answer = send(client, verb, &path, &body)
            .await
            .with_context(|| format!("{}: {step}", scenario.scenario))?;
        answers.push(answer);
    }
    let path = format!("/api/v1/namespaces/{namespace}");
    send(client, "delete", &path, &Value::Null).await?;
    let steps = scenario.steps.iter().flat_map(Map::keys);
    Ok(steps
        .zip(answers)
        .map(|(step, (code, body))| json!({"step": step, "code": code, "body": normal(body, &namespace)}))
        .collect())
}

/// Where a resource is served.
fn located(path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let plural = path.split(['/', '?']).next().unwrap_or_default();
    let (prefix, path) = match plural {
        "widgets" => ("/apis/example.com/v1", path),
        "leases" => ("/apis/coordination.k8s.io/v1", path),
        "newevents" => ("/apis/events.k8s.io/v1", path.trim_start_matches("new")),
        _ => ("/api/v1", path),
    };
    format!("{prefix}/namespaces/NS/{path}")
}

fn filled(text: &str, namespace: &str, answers: &[(u16, Value)]) -> String {
    let text = REFERENCE.replace_all(text, |found: &regex::Captures<'_>| {
        let field = match &found[1] {
            "rv" => "resourceVersion",
            other => other,
        };
        let answer = found[2].parse().ok().and_then(|at: usize| answers.get(at));
        answer
            .and_then(|(_, body)| body["metadata"][field].as_str())
            .unwrap_or_default()
            .to_owned()
    });
    text.replace("NS", namespace)
}

/// Bodies of objects say what they are: filled in, so that the scenarios need not.
fn typed(verb: &str, path: &str, body: Value) -> Value {
    if !["post", "put", "apply"].contains(&verb) || !body.is_object() || body.get("kind").is_some()
    {
        return body;
    }
    let path = path.split('?').next().unwrap_or_default();
    let known = [
        ("/configmaps", "v1", "ConfigMap"),
        ("/secrets", "v1", "Secret"),
        ("/serviceaccounts", "v1", "ServiceAccount"),
        ("/widgets", "example.com/v1", "Widget"),
        ("/leases", "coordination.k8s.io/v1", "Lease"),
        ("events.k8s.io/v1", "events.k8s.io/v1", "Event"),
        ("/events", "v1", "Event"),
        ("/namespaces", "v1", "Namespace"),
    ];
    let mut typed = Map::new();
    if let Some((_, version, kind)) = known.iter().find(|(part, ..)| path.contains(part)) {
        typed.insert("apiVersion".into(), json!(version));
        typed.insert("kind".into(), json!(kind));
    }
    typed.extend(body.as_object().cloned().unwrap_or_default());
    Value::Object(typed)
}

async fn send(client: &Client, verb: &str, path: &str, body: &Value) -> Result<(u16, Value)> {
    let (method, content, accept) = match verb {
        "get" | "watch" => ("GET", "", "application/json"),
        "table" => ("GET", "", "application/json;as=Table;v=v1;g=meta.k8s.io"),
        "partial" => (
            "GET",
            "",
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ),
        "partials" => (
            "GET",
            "",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        ),
        "post" => ("POST", "application/json", "application/json"),
        "put" => ("PUT", "application/json", "application/json"),
        "delete" => ("DELETE", "application/json", "application/json"),
        "json" => ("PATCH", "application/json-patch+json", "application/json"),
        "merge" => ("PATCH", "application/merge-patch+json", "application/json"),
        "strategic" => (
            "PATCH",
            "application/strategic-merge-patch+json",
            "application/json",
        ),
        "apply" => ("PATCH", "application/apply-patch+yaml", "application/json"),
        other => bail!("{other} is no verb"),
    };
    let text = match body {
        Value::Null => String::new(),
        // A string is sent as it stands: bodies that are no objects.
        Value::String(text) => text.clone(),
        body => body.to_string(),
    };
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::ACCEPT, accept)
        .header(header::USER_AGENT, "play/1");
    if !content.is_empty() && !text.is_empty() {
        request = request.header(header::CONTENT_TYPE, content);
    }
    let response = client
        .send(request.body(Body::from(text.into_bytes()))?)
        .await?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await?;
    let text = String::from_utf8_lossy(&bytes);
    if let Ok(value) = serde_json::from_str(&text) {
        // A watch may also have one line.
        let value = if verb == "watch" && code == 200 {
            json!([value])
        } else {
            value
        };
        return Ok((code, value));
    }
    let lines: serde_json::Result<Vec<Value>> = text.lines().map(serde_json::from_str).collect();
    Ok((code, lines.map_or_else(|_| json!(text), Value::Array)))
}

/// Without what a server makes up (ids, revisions, times, generated names, objects that controllers add), and without
/// prose: messages and descriptions are each server's own, while codes, reasons and fields are for programs.
fn normal(value: Value, namespace: &str) -> Value {
    match value {
        Value::String(text) => json!(UID.replace_all(&text.replace(namespace, "NS"), "UID")),
        Value::Array(items) => items
            .into_iter()
            .filter(|item| !added(item))
            .map(|item| normal(item, namespace))
            .collect(),
        Value::Object(fields) => {
            let generated = fields
                .get("generateName")
                .and_then(Value::as_str)
                .map(|prefix| format!("{prefix}*****"));
            let hidden = hidden(&fields);
            let mut out: Map<String, Value> = fields
                .into_iter()
                .filter(|(name, _)| !hidden.contains(&name.as_str()))
                .map(|(name, field)| {
                    let field = match (name.as_str(), field) {
                        ("resourceVersion", Value::String(text)) if !text.is_empty() => json!("RV"),
                        ("continue", Value::String(text)) if !text.is_empty() => json!("CONTINUE"),
                        ("creationTimestamp" | "deletionTimestamp" | "time", Value::String(_)) => {
                            json!("TIME")
                        }
                        (_, field) => normal(field, namespace),
                    };
                    (name, field)
                })
                .collect();
            if let Some(name) = generated {
                out.insert("name".into(), json!(name));
            }
            if let Some(entries) = out.get_mut("managedFields").and_then(Value::as_array_mut) {
                entries.sort_by_key(|entry| {
                    ["operation", "manager", "subresource"].map(|name| entry[name].to_string())
                });
            }
            // The real server leaves these out in lists of built-in kinds; ours sends objects as they are stored.
            for item in out
                .get_mut("items")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                if let Some(item) = item.as_object_mut() {
                    item.retain(|name, _| !["apiVersion", "kind"].contains(&name.as_str()));
                }
            }
            for name in ["verbs", "causes"] {
                // The real server has no order for these.
                if let Some(list) = out.get_mut(name).and_then(Value::as_array_mut) {
                    list.sort_by_key(ToString::to_string);
                }
            }
            out.sort_keys();
            Value::Object(out)
        }
        scalar => scalar,
    }
}

/// Fields that are not compared.
fn hidden(fields: &Map<String, Value>) -> &'static [&'static str] {
    let is = |name: &str| fields.contains_key(name);
    if fields.get("kind") == Some(&json!("Status")) || is("field") && is("reason") {
        &["message"]
    } else if is("priority") && is("format") {
        // The column of a table.
        &["description"]
    } else if is("storageVersionHash") || is("serverAddressByClientCIDRs") {
        &["storageVersionHash", "serverAddressByClientCIDRs"]
    } else {
        &[]
    }
}

/// What the controllers of a real cluster put into every namespace.
fn added(item: &Value) -> bool {
    let name = ["", "/object", "/object/object"]
        .into_iter()
        .find_map(|path| item.pointer(&format!("{path}/metadata/name"))?.as_str());
    matches!(name, Some("kube-root-ca.crt" | "default"))
}

fn suffix() -> String {
    uuid::Uuid::new_v4()
        .simple()
        .to_string()
        .chars()
        .take(8)
        .collect()
}

static REFERENCE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\{(rv|uid|continue):(\d+)\}"));
static UID: LazyLock<Regex> =
    LazyLock::new(|| pattern("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"));

#[expect(clippy::expect_used, reason = "a constant that is tried by every run")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid pattern")
}
