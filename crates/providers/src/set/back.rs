//! Whether a provider whose new version did not get ready may have the old one again.
//!
//! An old version knows old versions of its kinds. Objects that may be stored in one that it does not know could not be read
//! any more, so nothing goes back to it then. What was stored in the new version, and is known to both, is stored anew by the run that goes back.
//!
//! It knows old fields too. The API leaves out what a definition does not have when an object is written next, so nothing goes back either
//! while an object has such a field. Definitions gain fields in most releases, and hardly any object has them within the minutes that a version had
//! to get ready: so the objects are looked at, and not the definitions alone.

use std::collections::BTreeSet;

use api::{
    Run,
    run::{RunPhase, StepPhase},
};
use clusterctl::{Object, label};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
};
use runs::phase;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    action::Action, engine::resource, inputs::Inputs, operation::Operation, render, stand::Stand,
    target,
};

/// How many objects are read at once.
const CHUNK: u32 = 200;

/// Whether there is a way back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Back {
    /// There is.
    Open,
    /// There is none, and why.
    Closed(String),
}

/// Why the last upgrade of a provider to that version failed, if its workloads did not get ready.
pub(super) fn failure(runs: &[Run], version: &str) -> Option<String> {
    let run = runs.iter().rfind(|run| is_upgrade(run, version))?;
    let status = run.status.as_ref()?;
    let mut steps = status.steps.iter();
    let is_unready = phase(run) == RunPhase::Failed
        && steps.any(|step| step.id == Action::AwaitReady.id() && step.phase == StepPhase::Failed);
    let message = status
        .failure
        .as_ref()
        .map(|failure| failure.message.clone());
    is_unready.then(|| {
        let why = message.unwrap_or_default();
        format!(
            "{version} did not get ready in run {}: {why}",
            run.name_any()
        )
    })
}

fn is_upgrade(run: &Run, version: &str) -> bool {
    let inputs = Inputs::from_map(&run.spec.plan.inputs);
    run.spec.operation == Operation::Upgrade.name()
        && inputs.is_ok_and(|inputs| inputs.version == version)
}

/// Looks whether the version that a provider had may be installed again.
pub(super) async fn look(own: &Client, stand: &Stand, from: &str) -> Back {
    let closed = |why: String| Back::Closed(why);
    let Some(label) = stand.label() else {
        return closed(format!("{} is no provider by its name", stand.title()));
    };
    let old = match from.parse().map(|version| stand.objects(&version)) {
        Ok(Ok(Some(objects))) => objects,
        Ok(Ok(None)) => {
            return closed(
                "no ConfigMap keeps it; load it with `windlass providers preload`".to_owned(),
            );
        }
        Ok(Err(error)) => return closed(controller::chain(&error)),
        Err(error) => return closed(error.to_string()),
    };
    let there = match target::client(own, &stand.namespace, stand.target.as_deref()).await {
        Ok(there) => there,
        Err(error) => return closed(controller::chain(&error)),
    };
    look_at(&there, &label, &old)
        .await
        .unwrap_or_else(|unseen| closed(controller::chain(&unseen)))
}

/// What could not be looked at, and why.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Unseen {
    /// What was asked for.
    pub what: String,
    /// What the API said.
    #[source]
    pub source: kube::Error,
}

/// Looks whether these may be applied again where definitions of a newer version of a provider are.
///
/// # Errors
///
/// The API refuses or does not answer.
pub(crate) async fn look_at(there: &Client, label: &str, old: &[Object]) -> Result<Back, Unseen> {
    let unseen = |what: String| move |source| Unseen { what, source };
    let selector = format!("{}={label}", label::PROVIDER);
    let found = Api::<CustomResourceDefinition>::all(there.clone())
        .list(&ListParams::default().labels(&selector))
        .await;
    let found = found.map_err(unseen("list its definitions".to_owned()))?;
    let unknown = unknown(&found.items, old);
    if !unknown.is_empty() {
        let why = format!("{}; it could not read these", unknown.join("; "));
        return Ok(Back::Closed(why));
    }
    for definition in &found {
        let what = || {
            let name = definition.name_any();
            format!("see whether objects of {name} have fields that it does not have")
        };
        let held = holds(there, definition, old).await;
        if let Some(held) = held.map_err(unseen(what()))? {
            let why = format!("{held}, which it does not have and would lose");
            return Ok(Back::Closed(why));
        }
    }
    Ok(Back::Open)
}

/// Versions in which objects may be stored and which the definitions of `old` do not have. A definition that `old` does not have at all stays
/// as it is.
fn unknown(found: &[CustomResourceDefinition], old: &[Object]) -> Vec<String> {
    let mut unknown = Vec::new();
    for definition in found {
        let name = definition.name_any();
        let Some(old) = same(old, &name) else {
            continue;
        };
        let known: BTreeSet<_> = versions(old)
            .filter_map(|version| version["name"].as_str())
            .collect();
        let status = definition.status.iter();
        let stored = status.flat_map(|status| status.stored_versions.iter().flatten());
        for version in stored.filter(|version| !known.contains(version.as_str())) {
            unknown.push(format!("objects of {name} may be stored as {version}"));
        }
    }
    unknown
}

/// An object with a field that the old definition does not have. What is stored has the form of the version in which it is stored now, so no other
/// one is asked for, and no webhook of a provider that is not ready has to answer where all is stored so.
async fn holds(
    there: &Client,
    definition: &CustomResourceDefinition,
    old: &[Object],
) -> Result<Option<String>, kube::Error> {
    let name = definition.name_any();
    let mut now = definition.spec.versions.iter();
    let (Some(now), Some(old)) = (now.find(|version| version.storage), same(old, &name)) else {
        return Ok(None);
    };
    let Some(was) = versions(old).find(|version| version["name"] == *now.name) else {
        return Ok(None);
    };
    let was = CustomResourceDefinitionVersion::deserialize(was);
    let was = schema(&was.map_err(kube::Error::SerdeError)?)?;
    let version = &now.name;
    let has_status = now.subresources.iter().any(|one| one.status.is_some());
    let now = schema(now)?;
    if now == was {
        return Ok(None);
    }
    let all: Api<DynamicObject> = Api::all_with(there.clone(), &resource(definition, version));
    let mut parameters = ListParams::default().limit(CHUNK);
    loop {
        let listed = all.list(&parameters).await?;
        for object in listed.items {
            let mut fields = object.data.clone();
            // What controllers have seen they see again.
            if let Some(fields) = fields.as_object_mut().filter(|_| has_status) {
                fields.remove("status");
            }
            if let Some(field) = lost(&fields, (&now, &was), "") {
                let namespace = object.namespace().map(|namespace| namespace + "/");
                let whose = format!("{}{}", namespace.unwrap_or_default(), object.name_any());
                return Ok(Some(format!("{whose} of {name} has {field}")));
            }
        }
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(None),
        }
    }
}

/// The schema of a version in the one form of those that a number and what is empty may have.
fn schema(version: &CustomResourceDefinitionVersion) -> Result<Value, kube::Error> {
    let schema = version.schema.as_ref();
    let schema = schema.and_then(|schema| schema.open_api_v3_schema.as_ref());
    serde_json::to_value(schema).map_err(kube::Error::SerdeError)
}

/// The first field of a value that the API would leave out under the old schema. One that has the default that it has now is no loss.
fn lost(value: &Value, (now, was): (&Value, &Value), at: &str) -> Option<String> {
    let keeps_unknown = was["x-kubernetes-preserve-unknown-fields"] == true;
    let is_object = at.is_empty() || was["x-kubernetes-embedded-resource"] == true;
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            if is_object && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                return None;
            }
            let path = format!("{at}.{name}");
            let now = property(now, name).unwrap_or(&Value::Null);
            match property(was, name) {
                Some(was) => lost(value, (now, was), &path),
                None if keeps_unknown || is_default(value, now) => None,
                None => Some(path),
            }
        }),
        Value::Array(_) if keeps_unknown && was["items"].is_null() => None,
        Value::Array(items) => {
            let schemas = (&now["items"], &was["items"]);
            items.iter().find_map(|item| lost(item, schemas, at))
        }
        _ => None,
    }
}

/// The schema of a field, or of any key of a map.
fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let named = schema.get("properties").and_then(|fields| fields.get(name));
    named.or_else(|| schema.get("additionalProperties"))
}

/// Whether a value is what the API fills in by itself.
fn is_default(value: &Value, schema: &Value) -> bool {
    let Some(default) = schema.get("default") else {
        return false;
    };
    let (Some(fields), Some(defaults)) = (value.as_object(), default.as_object()) else {
        return value == default;
    };
    fields.iter().all(|(name, value)| {
        defaults.get(name) == Some(value)
            || property(schema, name).is_some_and(|schema| is_default(value, schema))
    })
}

fn same<'a>(objects: &'a [Object], definition: &str) -> Option<&'a Object> {
    let mut definitions = objects
        .iter()
        .filter(|object| render::is_definition(object));
    definitions.find(|object| object.name() == definition)
}

fn versions(definition: &Object) -> impl Iterator<Item = &Value> {
    let versions = definition.value().pointer("/spec/versions");
    versions.and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use api::provider::{Core, Provider};
    use kube::api::{Patch, PatchParams, PostParams};
    use serde_json::json;

    use super::*;

    fn definition(name: &str, versions: &[&str], stored: &[&str]) -> Value {
        let versions: Vec<_> = versions
            .iter()
            .map(|name| json!({"name": name, "served": true, "storage": false}))
            .collect();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"}, "versions": versions},
            "status": {"storedVersions": stored},
        })
    }

    #[test]
    fn nothing_goes_back_to_a_version_that_does_not_know_what_is_stored() {
        let old = Object::new(definition("things.example.com", &["v1", "v2"], &[])).unwrap();
        let told = |name: &str, stored: &[&str]| {
            let found = serde_json::from_value(definition(name, &["v1", "v2", "v3"], stored));
            unknown(&[found.unwrap()], std::slice::from_ref(&old))
        };
        assert_eq!(
            told("things.example.com", &["v1", "v2"]),
            Vec::<String>::new()
        );
        assert_eq!(
            told("things.example.com", &["v2", "v3"]),
            ["objects of things.example.com may be stored as v3"]
        );
        assert_eq!(told("new.example.com", &["v3"]), Vec::<String>::new());
    }

    /// A definition of a provider whose objects have these fields in their spec.
    fn things(fields: &Value) -> Value {
        let mut things = definition("things.example.com", &["v1"], &["v1"]);
        things["metadata"]["labels"] = json!({label::PROVIDER: "cluster-api"});
        things["spec"]["names"]["listKind"] = "ThingList".into();
        things["spec"]["names"]["singular"] = "thing".into();
        things["spec"]["versions"][0]["storage"] = true.into();
        things["spec"]["versions"][0]["schema"] = json!({"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": fields}},
        }});
        things
    }

    #[tokio::test]
    async fn nothing_goes_back_to_a_version_that_does_not_have_a_field_that_an_object_has() {
        let old = things(&json!({"size": {"type": "string"}}));
        let new = things(&json!({
            "size": {"type": "string"}, "colour": {"type": "string"}, "shape": {"type": "string", "default": "round"},
        }));
        let live: CustomResourceDefinition = serde_json::from_value(new).unwrap();
        let server = kapi::Server::in_memory(&[]).await.unwrap();
        let client = Client::new(server.router(), "default");
        let definitions = Api::<CustomResourceDefinition>::all(client.clone());
        let created = definitions.create(&PostParams::default(), &live).await;
        created.unwrap();
        let all: Api<DynamicObject> =
            Api::default_namespaced_with(client.clone(), &resource(&live, "v1"));
        let apply = async |spec: Value| {
            let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": spec});
            let parameters = PatchParams::apply("test");
            let begun = Instant::now();
            // A kind is served soon after its definition is there.
            while let Err(error) = all.patch("one", &parameters, &Patch::Apply(&thing)).await {
                assert!(begun.elapsed() < Duration::from_secs(10), "{error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let stand = stand(&old);
        apply(json!({"size": "s"})).await;
        assert_eq!(look(&client, &stand, "v1.13.4").await, Back::Open);
        apply(json!({"size": "s", "colour": "red"})).await;
        assert_eq!(
            look(&client, &stand, "v1.13.4").await,
            Back::Closed(
                "default/one of things.example.com has .spec.colour, which it does not have and would lose".to_owned()
            )
        );
    }

    /// A core with v1.13.4 kept, which has this definition.
    fn stand(definition: &Value) -> Stand {
        let spec = serde_json::from_value(json!({"version": "v1.14.2"})).unwrap();
        let core = Provider::<Core>::new("default", "cluster-api", spec);
        let metadata = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n- {major: 1, minor: 13, contract: v1beta2}\n";
        let components = format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: some-system}}\n---\n{definition}\n"
        );
        let map = serde_json::from_value(json!({
            "metadata": {"name": "v1.13.4"}, "data": {"metadata": metadata, "components": components},
        }));
        Stand::of(&core, vec![map.unwrap()])
    }

    #[test]
    fn a_field_is_lost_that_the_old_schema_would_leave_out() {
        let was = json!({"properties": {
            "list": {"items": {"properties": {"a": {}}}},
            "map": {"additionalProperties": {"properties": {"a": {}}}},
            "any": {"x-kubernetes-preserve-unknown-fields": true, "properties": {"b": {"properties": {}}}},
            "template": {"x-kubernetes-embedded-resource": true, "properties": {}},
        }});
        let now = json!({"properties": {
            "rollout": {"default": {}, "properties": {"after": {"default": 1}, "pause": {}}},
        }});
        for (value, expected) in [
            (
                json!({"kind": "Thing", "list": [{"a": 1}], "map": {"x": {"a": 1}}}),
                None,
            ),
            (json!({"list": [{"a": 1}, {"b": 1}]}), Some(".list.b")),
            (json!({"map": {"x": {"b": 1}}}), Some(".map.x.b")),
            (json!({"any": {"x": [{"y": 1}]}}), None),
            (json!({"any": {"b": {"y": 1}}}), Some(".any.b.y")),
            (json!({"template": {"metadata": {"name": "x"}}}), None),
            (json!({"template": {"data": {}}}), Some(".template.data")),
            (json!({"rollout": {"after": 1}}), None),
            (
                json!({"rollout": {"after": 1, "pause": true}}),
                Some(".rollout"),
            ),
            (json!({"rollout": {"after": 2}}), Some(".rollout")),
        ] {
            assert_eq!(
                lost(&value, (&now, &was), "").as_deref(),
                expected,
                "{value}"
            );
        }
    }

    /// An upgrade that failed at a step.
    fn upgrade(version: &str, step: &str) -> Run {
        serde_json::from_value(json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": "core-upgrade-2"},
            "spec": {
                "subject": {"apiGroup": "operator.cluster.x-k8s.io", "kind": "CoreProvider", "name": "cluster-api"},
                "operation": "Upgrade", "generation": 1,
                "plan": {"digest": "d", "steps": [], "inputs": {"version": version, "contract": "v1beta2"}},
            },
            "status": {
                "phase": "Failed", "steps": [{"id": step, "phase": "Failed"}],
                "failure": {"class": "Config", "code": "NotReady", "message": "no pod is up"},
            },
        }))
        .unwrap()
    }

    #[test]
    fn what_did_not_get_ready_goes_back_and_nothing_else_that_failed() {
        let runs = [upgrade("v1.14.2", Action::AwaitReady.id())];
        assert_eq!(
            failure(&runs, "v1.14.2").as_deref(),
            Some("v1.14.2 did not get ready in run core-upgrade-2: no pod is up")
        );
        assert_eq!(failure(&runs, "v1.14.3"), None);
        let before = [upgrade("v1.14.2", Action::Preflight.id())];
        assert_eq!(failure(&before, "v1.14.2"), None);
    }
}
