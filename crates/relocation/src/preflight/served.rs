//! Whether the kinds of the other side are there, and have every field that the objects of this side use.

use controller::problem::Problem;
use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use crate::{
    domain::Domains,
    error::{Error, Result},
    graph::{Graph, Item},
    kind::Kind,
    side::Side,
};

/// How far the schemas that an API server tells may lag behind those that it serves.
const LAG: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// What is done to learn the fields of kinds.
const ASK: &str = "ask for the schemas there";
/// What installs them.
const INSTALL: &str = "windlass crds | kubectl apply --server-side -f -";

/// The kinds that are not there.
pub(crate) async fn missing(target: &Side, domains: &Domains<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for kind in domains.acted_on() {
        if !is_served(target, kind).await? {
            problems.push(Problem::new(
                format!("{} apiVersion", kind.name()),
                &kind.resource.api_version,
                "it is not served there",
                format!("install the kinds: {INSTALL}"),
            ));
        }
    }
    Ok(problems)
}

/// The fields that are not there, and the kinds of which nobody tells. Who has just installed the newer kinds is not
/// refused: an API server takes a moment to tell their fields.
pub(crate) async fn older(
    target: &Side,
    graph: &Graph,
    domains: &Domains<'_>,
) -> Result<(Vec<Problem>, Vec<String>)> {
    let deadline = Instant::now() + LAG;
    loop {
        let found = told(target, graph, domains).await?;
        if found.0.is_empty() || Instant::now() >= deadline {
            return Ok(found);
        }
        sleep(LOOK_AGAIN).await;
    }
}

async fn told(
    target: &Side,
    graph: &Graph,
    domains: &Domains<'_>,
) -> Result<(Vec<Problem>, Vec<String>)> {
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    for kind in domains.acted_on() {
        match schema(target, kind).await? {
            Some(schema) => problems.extend(lost(&schema, graph, kind)),
            None => warnings.push(format!(
                "the API there does not tell the fields of {}: that none is lost is only seen when the copies are compared",
                kind.name()
            )),
        }
    }
    Ok((problems, warnings))
}

/// Whether a kind is served there in the version that is used here.
async fn is_served(target: &Side, kind: &Kind) -> Result<bool> {
    let resource = &kind.resource;
    let served = target
        .client
        .list_api_group_resources(&resource.api_version)
        .await;
    let served = match served {
        Ok(list) => list.resources,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => {
            return Err(Error::api("ask which kinds are served there", error));
        }
    };
    let has = |name: &str| served.iter().any(|served| served.name == name);
    Ok(has(&resource.plural) && has(&format!("{}/status", resource.plural)))
}

/// The schema of a kind there, if the API tells it.
async fn schema(target: &Side, kind: &Kind) -> Result<Option<Value>> {
    let resource = &kind.resource;
    let request = http::Request::get(format!("/openapi/v3/apis/{}", resource.api_version))
        .body(Vec::new())
        .map_err(|source| Error::api(ASK, kube::Error::HttpError(source)))?;
    let document = match target.client.request::<Value>(request).await {
        Ok(document) => document,
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => return Ok(None),
        Err(error) => {
            return Err(Error::api(ASK, error));
        }
    };
    let is_kind = |schema: &&Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.into_iter().flatten().any(|found| {
            found["group"] == resource.group.as_str()
                && found["version"] == resource.version.as_str()
                && found["kind"] == resource.kind.as_str()
        })
    };
    let schemas = document["components"]["schemas"].as_object();
    let found = schemas.and_then(|schemas| schemas.values().find(is_kind));
    Ok(found.cloned())
}

/// The first field that the kind there does not have: it would be lost on the way.
fn lost(schema: &Value, graph: &Graph, kind: &Kind) -> Option<Problem> {
    let unknown = |item: &Item| Some((item.shown(), unknown(schema, &item.object.data, "")?));
    let (object, field) = graph.of_kind(kind).find_map(unknown)?;
    Some(Problem::new(
        format!("{object} {field}"),
        "",
        format!(
            "{} has no such field there: the kinds there are older than the objects here",
            kind.name()
        ),
        format!("install the newer ones: {INSTALL}"),
    ))
}

/// The path of a field that a schema does not know.
fn unknown(schema: &Value, value: &Value, path: &str) -> Option<String> {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return None;
    }
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .find_map(|(field, value)| {
                let path = if path.is_empty() {
                    field.clone()
                } else {
                    format!("{path}.{field}")
                };
                match field_of(schema, field) {
                    Some(schema) => unknown(schema, value, &path),
                    None => Some(path),
                }
            }),
        Value::Array(values) => values
            .iter()
            .enumerate()
            .find_map(|(at, value)| unknown(&schema["items"], value, &format!("{path}[{at}]"))),
        _ => None,
    }
}

fn field_of<'a>(schema: &'a Value, field: &str) -> Option<&'a Value> {
    let properties = schema.get("properties");
    let named = properties.and_then(|properties| properties.get(field));
    let any = || {
        schema
            .get("additionalProperties")
            .filter(|any| **any != false)
    };
    named.or_else(any)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_is_known_by_its_name_by_a_map_or_by_a_schema_that_takes_all() {
        let schema = json!({"properties": {
            "spec": {"properties": {
                "hosts": {"items": {"properties": {"name": {"type": "string"}}}},
                "labels": {"additionalProperties": {"type": "string"}},
                "variables": {"x-kubernetes-preserve-unknown-fields": true},
                "either": {"x-kubernetes-int-or-string": true},
            }},
        }});
        for (spec, expected) in [
            (
                json!({"hosts": [{"name": "a"}], "labels": {"a": "b"}, "either": 7}),
                None,
            ),
            (
                json!({"variables": {"any": {"depth": [1]}}, "later": null}),
                None,
            ),
            (json!({"later": 1}), Some("spec.later")),
            (
                json!({"hosts": [{"name": "a"}, {"name": "b", "later": 1}]}),
                Some("spec.hosts[1].later"),
            ),
        ] {
            let found = unknown(&schema, &json!({ "spec": spec }), "");
            assert_eq!(found.as_deref(), expected, "{spec}");
        }
    }
}
