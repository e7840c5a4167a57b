//! What the API is asked to try, and whom it asks about that.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::api::ApiResource;
use serde_json::{Value, json};

use super::{
    sample::sample,
    webhook::{OfKind, Part, Webhook, converting},
};
use crate::names::WEBHOOK_CHECK;

/// So many kinds are tried: core has some 15.
const MOST: usize = 64;

/// An object to be tried.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) resource: ApiResource,
    pub(super) is_namespaced: bool,
    pub(super) object: Value,
    /// Those that are certainly asked about it, if those before them let it pass.
    pub(super) asked: Vec<&'a Webhook>,
}

/// For each definition about whose objects somebody is asked, the smallest object.
pub(super) fn questions<'a>(
    webhooks: &'a [Webhook],
    definitions: &[CustomResourceDefinition],
) -> Vec<Question<'a>> {
    let found = definitions.iter();
    let found = found.filter_map(|definition| question(webhooks, definition));
    found.take(MOST).collect()
}

fn question<'a>(
    webhooks: &'a [Webhook],
    definition: &CustomResourceDefinition,
) -> Option<Question<'a>> {
    let spec = &definition.spec;
    let converting = converting(definition);
    let version = version(definition, converting.is_some())?;
    let converting = converting.filter(|_| !version.storage);
    let converts = |webhook: &Webhook| {
        let own = converting.as_ref();
        webhook.part == Part::Converts && own.is_some_and(|own| webhook.name == own.name)
    };
    let served: Vec<_> = spec.versions.iter().filter(|one| one.served).collect();
    let served: Vec<_> = served.iter().map(|one| one.name.as_str()).collect();
    let is_namespaced = spec.scope == "Namespaced";
    let kind = OfKind {
        group: &spec.group,
        plural: &spec.names.plural,
        is_namespaced,
        version: &version.name,
        served: &served,
    };
    let asked = webhooks.iter();
    let asked = asked.filter(|webhook| webhook.is_asked(&kind) || converts(webhook));
    let asked: Vec<_> = asked.collect();
    if asked.is_empty() {
        return None;
    }
    let api_version = format!("{}/{}", spec.group, version.name);
    Some(Question {
        object: object(version, &api_version, &spec.names.kind),
        resource: ApiResource {
            group: spec.group.clone(),
            version: version.name.clone(),
            api_version,
            kind: spec.names.kind.clone(),
            plural: spec.names.plural.clone(),
        },
        is_namespaced,
        asked,
    })
}

/// One that is not stored, where that takes somebody who converts it; else the stored one, if it is served.
fn version(
    definition: &CustomResourceDefinition,
    is_converted: bool,
) -> Option<&CustomResourceDefinitionVersion> {
    let served = definition.spec.versions.iter().filter(|one| one.served);
    let mut other = served.clone().filter(|one| is_converted && !one.storage);
    let mut stored = served.clone().filter(|one| one.storage);
    let mut served = served;
    other
        .next()
        .or_else(|| stored.next())
        .or_else(|| served.next())
}

fn object(version: &CustomResourceDefinitionVersion, api_version: &str, kind: &str) -> Value {
    let schema = version.schema.as_ref();
    let schema = schema.and_then(|schema| schema.open_api_v3_schema.as_ref());
    let mut object = json!({});
    if let Some(Value::Object(found)) = schema.map(sample) {
        object = Value::Object(found);
    }
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    object["metadata"] = json!({"name": WEBHOOK_CHECK});
    object
}
