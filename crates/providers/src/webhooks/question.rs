//! What the API is asked to try, and whom it asks about that.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt, api::ApiResource};
use serde_json::{Value, json};

use super::{
    sample::sample,
    webhook::{OfKind, Part, Webhook, converting},
};
use crate::{
    names::WEBHOOK_CHECK,
    outline::{Outline, OutlineVersion},
};

/// So many kinds are tried: core has some 15.
const MOST: usize = 64;

/// A kind, the smallest object of which is to be tried.
#[derive(Debug)]
pub(super) struct Question<'a> {
    /// The name of its definition.
    definition: String,
    pub(super) resource: ApiResource,
    pub(super) is_namespaced: bool,
    /// Those that are certainly asked about it, if those before them let it pass.
    pub(super) asked: Vec<&'a Webhook>,
}

impl Question<'_> {
    /// The smallest object. The schema is read for it, and let go again: of all definitions together they are large.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub(super) async fn object(&self, there: &Client) -> Result<Value, kube::Error> {
        let definitions = Api::<CustomResourceDefinition>::all(there.clone());
        let definition = definitions.get(&self.definition).await?;
        Ok(object(&definition, &self.resource))
    }
}

/// For each definition about whose objects somebody is asked, what is asked about.
pub(super) fn questions<'a>(webhooks: &'a [Webhook], definitions: &[Outline]) -> Vec<Question<'a>> {
    let found = definitions.iter();
    let found = found.filter_map(|definition| question(webhooks, definition));
    found.take(MOST).collect()
}

fn question<'a>(webhooks: &'a [Webhook], definition: &Outline) -> Option<Question<'a>> {
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
    Some(Question {
        definition: definition.name_any(),
        resource: ApiResource {
            group: spec.group.clone(),
            version: version.name.clone(),
            api_version: format!("{}/{}", spec.group, version.name),
            kind: spec.names.kind.clone(),
            plural: spec.names.plural.clone(),
        },
        is_namespaced,
        asked,
    })
}

/// One that is not stored, where that takes somebody who converts it; else the stored one, if it is served.
fn version(definition: &Outline, is_converted: bool) -> Option<&OutlineVersion> {
    let served = definition.spec.versions.iter().filter(|one| one.served);
    let mut other = served.clone().filter(|one| is_converted && !one.storage);
    let mut stored = served.clone().filter(|one| one.storage);
    let mut served = served;
    other
        .next()
        .or_else(|| stored.next())
        .or_else(|| served.next())
}

fn object(definition: &CustomResourceDefinition, resource: &ApiResource) -> Value {
    let mut versions = definition.spec.versions.iter();
    let version = versions.find(|version| version.name == resource.version);
    let schema = version.and_then(|version| version.schema.as_ref());
    let schema = schema.and_then(|schema| schema.open_api_v3_schema.as_ref());
    let mut object = json!({});
    if let Some(Value::Object(found)) = schema.map(sample) {
        object = Value::Object(found);
    }
    object["apiVersion"] = json!(resource.api_version);
    object["kind"] = json!(resource.kind);
    object["metadata"] = json!({"name": WEBHOOK_CHECK});
    object
}
