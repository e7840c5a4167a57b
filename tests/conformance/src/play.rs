//! Plays scenarios against any API server and notes what it answers, without what differs from run to run.
//!
//! A step is `VERB PATH: BODY`. A path begins with a resource, which stands for where it is served in the scenario's own
//! namespace, or with a slash. `{rv:N}`, `{uid:N}` and `{continue:N}` are of the answer to step N, from 0; `NS` is the
//! namespace, `{long:N}` so many letters. What controllers do in their own time is waited for: `gone PATH`, and `until PATH: PART OF THE BODY`. `forget
//! PATH` drives the past out of the server until the path is too old for it, `bookmark PATH` waits for
//! a bookmark, and writes the object `a` there meanwhile.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use http::{Request, header};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Client, client::Body};
use regex::Regex;
use serde_json::{Map, Value, json};

use crate::{normal::normal, target::Target};

/// Requests that are sent in order, in a namespace of their own.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Scenario {
    /// Its name.
    pub scenario: String,
    /// Whether no other may be under way.
    #[serde(default)]
    pub alone: bool,
    /// One request each.
    pub steps: Vec<Map<String, Value>>,
}

/// The scenarios of the suite.
///
/// # Errors
///
/// A file of them is broken.
pub fn scenarios() -> Result<Vec<Scenario>> {
    let mut all = Vec::new();
    for text in FILES {
        let scenarios: Vec<Scenario> =
            serde_saphyr::from_str(text).context("read the scenarios")?;
        all.extend(scenarios);
    }
    Ok(all)
}

/// The definitions that are served: the one whose objects the scenarios use, and Windlass's own.
///
/// # Errors
///
/// The one of the scenarios is broken.
pub fn definitions() -> Result<Vec<CustomResourceDefinition>> {
    let widgets = serde_saphyr::from_str(include_str!("../scenarios/widgets.yaml"))
        .context("read widgets.yaml")?;
    let own = api::custom_resource_definitions();
    Ok([widgets].into_iter().chain(own).collect())
}

/// What a server answers.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub code: u16,
    pub body: Value,
    /// What it has to say beside the body: kubectl prints it.
    pub warnings: Vec<String>,
}

/// Plays a scenario. Returns each step with its answer.
///
/// # Errors
///
/// A step is no request, or the server cannot be reached; a refusal is an answer.
pub async fn play(target: &Target, scenario: &Scenario) -> Result<Vec<Value>> {
    let client = &target.client;
    let namespace = format!("play-{}", suffix());
    let metadata =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    send(client, "post", "/api/v1/namespaces", &metadata).await?;
    let mut answers: Vec<Answer> = Vec::new();
    let mut patience = PATIENCE;
    for (step, body) in scenario.steps.iter().flatten() {
        let answer = answer(target, step, body, &namespace, &answers, patience)
            .await
            .with_context(|| format!("{}: {step}", scenario.scenario))?;
        let waits = ["gone ", "until "]
            .iter()
            .any(|verb| step.starts_with(verb));
        if !waits {
            // Nothing comes of what was refused.
            patience = if answer.code < 400 {
                PATIENCE
            } else {
                Duration::ZERO
            };
        }
        answers.push(answer);
    }
    let path = format!("/api/v1/namespaces/{namespace}");
    send(client, "delete", &path, &Value::Null).await?;
    let steps = scenario.steps.iter().flat_map(Map::keys);
    Ok(steps
        .zip(answers)
        .map(|(step, answer)| {
            let Answer { code, body, warnings } = answer;
            let warnings = normal(json!(warnings), &namespace);
            json!({"step": step, "code": code, "body": normal(body, &namespace), "warnings": warnings})
        })
        .collect())
}

async fn answer(
    target: &Target,
    step: &str,
    body: &Value,
    namespace: &str,
    answers: &[Answer],
    patience: Duration,
) -> Result<Answer> {
    let client = &target.client;
    let (verb, path) = step.split_once(' ').context("no verb and path")?;
    let path = filled(&located(path), namespace, answers);
    let body: Value = serde_json::from_str(&filled(&body.to_string(), namespace, answers))?;
    match verb {
        "gone" => wait(client, &path, patience, |code, _| code == 404).await,
        "until" => {
            let wanted = |_, seen: &Value| contains(seen, &body);
            let mut seen = wait(client, &path, patience, wanted).await?;
            if contains(&seen.body, &body) {
                seen.body = body;
            }
            Ok(seen)
        }
        "pick" => pick(client, &path, &body).await,
        "bookmark" => bookmark(client, &path).await,
        "forget" => forget(target, &path).await,
        verb => send(client, verb, &path, &typed(verb, &path, body)).await,
    }
}

/// Reads until it is as wanted; what was read last, also when it is not by then.
async fn wait(
    client: &Client,
    path: &str,
    patience: Duration,
    wanted: impl Fn(u16, &Value) -> bool,
) -> Result<Answer> {
    let deadline = Instant::now() + patience;
    loop {
        let answer = send(client, "get", path, &Value::Null).await?;
        if wanted(answer.code, &answer.body) || Instant::now() > deadline {
            return Ok(answer);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Whether all that is wanted is there; null stands for what is not.
fn contains(seen: &Value, wanted: &Value) -> bool {
    match (seen, wanted) {
        (Value::Object(_), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| contains(seen.get(name).unwrap_or(&Value::Null), wanted)),
        (Value::Array(seen), Value::Array(wanted)) => {
            seen.len() == wanted.len() && seen.iter().zip(wanted).all(|(s, w)| contains(s, w))
        }
        (seen, wanted) => seen == wanted,
    }
}

/// Watches until there is a bookmark, and returns the first. How many there are, and when, is each server's own: the real one
/// has none to send where nothing was written, and may be too late with the one before the end.
async fn bookmark(client: &Client, path: &str) -> Result<Answer> {
    let deadline = Instant::now() + PATIENCE;
    let object = format!("{}/a", path.split('?').next().unwrap_or_default());
    loop {
        let mut answer = tokio::select! {
            answer = send(client, "watch", path, &Value::Null) => answer?,
            Err(error) = touch(client, &object) => return Err(error),
        };
        let mut events = answer.body.as_array().into_iter().flatten();
        let bookmark = events.find(|event| event["type"] == "BOOKMARK");
        if bookmark.is_some() || Instant::now() > deadline {
            answer.body = json!({"bookmark": bookmark});
            return Ok(answer);
        }
    }
}

/// Writes an object over and over.
async fn touch(client: &Client, path: &str) -> Result<()> {
    for round in 0_u64.. {
        let annotations = json!({"touched": round.to_string()});
        let patch = json!({"metadata": {"annotations": annotations}});
        send(client, "merge", path, &patch).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Drives the past out of the server until a list of it is refused.
async fn forget(target: &Target, path: &str) -> Result<Answer> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        target.forget().await?;
        let answer = send(&target.client, "get", path, &Value::Null).await?;
        if answer.code == 410 || Instant::now() > deadline {
            return Ok(answer);
        }
    }
}

/// Parts of a large document. A part is a path of names; `NAME=VALUE` is the item of a list that has it.
async fn pick(client: &Client, path: &str, parts: &Value) -> Result<Answer> {
    let (verb, path) = match path.strip_prefix("/aggregated") {
        Some(path) => ("aggregated", path),
        None => ("get", path),
    };
    let mut answer = send(client, verb, path, &Value::Null).await?;
    let mut picked = Map::new();
    for part in parts.as_array().into_iter().flatten() {
        let part = part.as_str().context("a part is a string")?;
        let found = part
            .split(' ')
            .try_fold(&answer.body, |at, name| match name.split_once('=') {
                Some((name, value)) => at.as_array()?.iter().find(|item| {
                    let pointer = format!("/{}", name.replace('.', "/"));
                    item.pointer(&pointer).is_some_and(|field| field == value)
                }),
                None => at.get(name),
            });
        picked.insert(part.to_owned(), found.cloned().unwrap_or_default());
    }
    answer.body = Value::Object(picked);
    Ok(answer)
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

fn filled(text: &str, namespace: &str, answers: &[Answer]) -> String {
    let text = text.replace("NS", namespace);
    let text = REFERENCE.replace_all(&text, |found: &regex::Captures<'_>| {
        let field = match &found[1] {
            "rv" => "resourceVersion",
            other => other,
        };
        let answer = found[2].parse().ok().and_then(|at: usize| answers.get(at));
        answer
            .and_then(|answer| answer.body["metadata"][field].as_str())
            .unwrap_or_default()
            .to_owned()
    });
    let text = LONG.replace_all(&text, |found: &regex::Captures<'_>| {
        "x".repeat(found[1].parse().unwrap_or_default())
    });
    text.into_owned()
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

pub(crate) async fn send(client: &Client, verb: &str, path: &str, body: &Value) -> Result<Answer> {
    let (method, content, accept) = match verb {
        "get" | "watch" => ("GET", "", "application/json"),
        "aggregated" => (
            "GET",
            "",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        ),
        "yaml" => ("POST", "application/yaml", "application/json"),
        "plain" => ("POST", "text/plain", "application/json"),
        "html" => ("GET", "", "text/html"),
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
    let warnings = response.headers().get_all(header::WARNING).iter();
    let warnings = warnings
        .map(|warning| String::from_utf8_lossy(warning.as_bytes()).into_owned())
        .collect();
    let bytes = response.into_body().collect_bytes().await?;
    let text = String::from_utf8_lossy(&bytes);
    let body = match serde_json::from_str(&text) {
        // A watch may also have one line.
        Ok(value) if verb == "watch" && code == 200 => json!([value]),
        Ok(value) => value,
        Err(_) => {
            let lines: serde_json::Result<Vec<Value>> =
                text.lines().map(serde_json::from_str).collect();
            lines.map_or_else(|_| json!(text), Value::Array)
        }
    };
    Ok(Answer {
        code,
        body,
        warnings,
    })
}

pub(crate) fn suffix() -> String {
    uuid::Uuid::new_v4()
        .simple()
        .to_string()
        .chars()
        .take(8)
        .collect()
}

static REFERENCE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\{(rv|uid|continue):(\d+)\}"));

static LONG: LazyLock<Regex> = LazyLock::new(|| pattern(r"\{long:(\d+)\}"));

#[expect(clippy::expect_used, reason = "a constant that is tried by every run")]
pub(crate) fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid pattern")
}

/// How long controllers are waited for: they take some tenths of a second on a machine at rest.
const PATIENCE: Duration = Duration::from_secs(30);

const FILES: [&str; 8] = [
    include_str!("../scenarios/basics.yaml"),
    include_str!("../scenarios/kinds.yaml"),
    include_str!("../scenarios/apply.yaml"),
    include_str!("../scenarios/guards.yaml"),
    include_str!("../scenarios/lifecycle.yaml"),
    // Last: what controllers do to a namespace waits for kinds that come and go.
    include_str!("../scenarios/scale.yaml"),
    include_str!("../scenarios/definitions.yaml"),
    include_str!("../scenarios/rules.yaml"),
];
