//! The objects of kubespray.k8s.io, held against their definitions.

use api::inventory::ValuePath;
use api::{Cluster, ClusterNode};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::RenderedDocument;
use crate::{
    problem::{Problem, Rule},
    template::{Compiled, world::MadeShape},
};

/// What is wrong with the objects of a kubespray cluster.
pub(super) fn check(template: &Compiled, documents: &[RenderedDocument]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let own = documents
        .iter()
        .filter(|document| document.api_version == API_VERSION);
    let mut clusters = 0;
    for document in own {
        let found = match document.object.kind.as_str() {
            "Cluster" => {
                clusters += 1;
                typed::<Cluster>(document)
            }
            "ClusterNode" => typed::<ClusterNode>(document),
            kind => vec![(
                ValuePath::default(),
                format!("gives a {kind}, which {API_VERSION} does not have"),
                "it has Cluster and ClusterNode",
            )],
        };
        let vaults = document.content.leaves().into_iter().filter(|(_, leaf)| {
            matches!(&leaf.shape, MadeShape::Secret(value) if value.get("vault").is_some())
        });
        let vaults = vaults.map(|(path, _)| {
            (
                path,
                "is a reference to Vault, which kubespray's objects cannot hold".to_owned(),
                "use {secretKeyRef: {name: SECRET, key: KEY}}",
            )
        });
        for (path, what, remedy) in found.into_iter().chain(vaults) {
            let object = &document.object;
            let what = format!("{} {}, {path}: {what}", object.kind, object.name);
            let rule = Rule::Rendered { what, remedy };
            problems.push(
                template
                    .source
                    .problem(ValuePath::clone(&document.at), rule),
            );
        }
    }
    if clusters != 1 {
        let rule = Rule::Rendered {
            what: format!("gives {clusters} Clusters of {API_VERSION}"),
            remedy: "a template of the back end Kubespray gives one; take the back end Plain for other objects",
        };
        let at = crate::fleet::field(&["spec", "documents"]);
        problems.push(template.source.problem(at, rule));
    }
    problems
}

/// Reads an object as its type, and says which of its fields that does not have.
fn typed<K: Serialize + DeserializeOwned>(
    document: &RenderedDocument,
) -> Vec<(ValuePath, String, &'static str)> {
    let value = document.to_value();
    let read: Result<K, _> = serde_path_to_error::deserialize(value.clone());
    let read = match read {
        Ok(read) => read,
        Err(error) => {
            let text = error.path().to_string();
            let path = text.parse().unwrap_or_default();
            let what = api::text::plain(&error.inner().to_string(), 300);
            return vec![(path, what, "mend the template or the value")];
        }
    };
    let known = serde_json::to_value(read).unwrap_or_default();
    let mut unknown = Vec::new();
    compare(&value, &known, &ValuePath::default(), &mut unknown);
    unknown
        .into_iter()
        .map(|path| {
            let what = "is no field of it".to_owned();
            (
                path,
                what,
                "correct the name; docs/reference/custom-resources.md has all",
            )
        })
        .collect()
}

/// What stands in a value and not in what its type kept of it.
fn compare(value: &Value, known: &Value, path: &ValuePath, unknown: &mut Vec<ValuePath>) {
    match (value, known) {
        (Value::Object(value), Value::Object(known)) => {
            for (key, value) in value.iter().filter(|(_, value)| !is_nothing(value)) {
                match known.get(key) {
                    Some(known) => compare(value, known, &path.key(key), unknown),
                    None => unknown.push(path.key(key)),
                }
            }
        }
        (Value::Array(value), Value::Array(known)) => {
            for (number, (value, known)) in value.iter().zip(known).enumerate() {
                compare(value, known, &path.index(number), unknown);
            }
        }
        _ => {}
    }
}

/// What a type may leave out when it is written again.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

const API_VERSION: &str = "kubespray.k8s.io/v1";
