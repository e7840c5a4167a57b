//! The definitions of providers, held against those of the Cluster API operator.

#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use std::{fs, path::Path};

use api::provider::{ProviderType, provider_definitions};
use lab::{Extent, progress::Terminal};
use serde_json::{Value, json};

/// The operator whose definitions ours equal.
const MODULE: (&str, &str) = ("sigs.k8s.io/cluster-api-operator", "v0.29.0");

/// Of all seven definitions of that operator.
const DIGEST: &str = "31e53fa863e17a5fc2a14d2402897bd0c2f6f1175d65e7eed6e10cfe0b561013";

#[test]
fn the_definitions_of_providers_are_those_of_the_existing_operator() {
    let ours: Vec<_> = provider_definitions()
        .iter()
        .map(|definition| canonical(&serde_json::to_value(definition).unwrap()))
        .collect();
    assert_eq!(workflow::plan::digest(&ours).unwrap(), DIGEST);
    if Extent::of_this_run() == Extent::Usual {
        return;
    }
    let (name, version) = MODULE;
    let module = lab::module(name, version, &Terminal::default()).unwrap();
    for (provider, ours) in ProviderType::ALL.into_iter().zip(ours) {
        assert_eq!(ours, theirs(&module, provider), "{provider}");
    }
}

fn theirs(module: &Path, provider: ProviderType) -> Value {
    let file = format!("operator.cluster.x-k8s.io_{}.yaml", provider.plural());
    let text = fs::read_to_string(module.join("config/crd/bases").join(file)).unwrap();
    canonical(&serde_saphyr::from_str(&text).unwrap())
}

/// What a definition accepts, defaults, keeps and shows: without words for people, marks of tools, and what every server adds.
fn canonical(definition: &Value) -> Value {
    let mut spec = without_descriptions(&definition["spec"]);
    for version in spec["versions"].as_array_mut().into_iter().flatten() {
        let properties = &mut version["schema"]["openAPIV3Schema"]["properties"];
        for implied in ["apiVersion", "kind", "metadata"] {
            properties.as_object_mut().unwrap().remove(implied);
        }
    }
    json!({"name": definition["metadata"]["name"], "spec": spec})
}

fn without_descriptions(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            // A field that is called so has a schema, no text.
            let kept = fields
                .iter()
                .filter(|(key, value)| *key != "description" || !value.is_string());
            let stripped = kept.map(|(key, value)| (key.clone(), without_descriptions(value)));
            Value::Object(stripped.collect())
        }
        Value::Array(items) => items.iter().map(without_descriptions).collect(),
        // Bounds are floating-point numbers in one and whole ones in the other.
        Value::Number(number) => json!(number.as_f64()),
        scalar => scalar.clone(),
    }
}
