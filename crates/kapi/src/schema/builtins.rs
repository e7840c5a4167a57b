//! The kinds that every API has, and the metadata that every object has.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Map, Value, json};

use super::{Schema, convert, node::Node};

/// The schema of a built-in kind. `Event` is the core one, `events.k8s.io/Event` the other.
pub fn builtin(kind: &str) -> Option<&'static Schema> {
    SCHEMAS.get(kind)
}

/// Puts the schema of metadata into every whole object.
pub(super) fn embed_metadata(root: &mut Node) {
    root.embedded = true;
    embed(root);
}

fn embed(node: &mut Node) {
    for child in node
        .properties
        .values_mut()
        .chain(node.items.as_deref_mut())
    {
        embed(child);
    }
    if let super::Additional::Node(child) = &mut node.additional {
        embed(child);
    }
    if node.embedded {
        for name in ["apiVersion", "kind"] {
            node.properties
                .entry(name.to_owned())
                .or_insert_with(|| compiled(&string()));
        }
        node.properties
            .insert("metadata".to_owned(), METADATA.clone());
    }
}

fn compiled(schema: &Value) -> Node {
    convert::node(schema, "", &mut Vec::new())
}

static METADATA: LazyLock<Node> = LazyLock::new(|| compiled(&metadata()));

static SCHEMAS: LazyLock<BTreeMap<&str, Schema>> = LazyLock::new(|| {
    let kinds = [
        ("Namespace", namespace()),
        ("Secret", secret()),
        ("ConfigMap", config_map()),
        ("Event", core_event()),
        ("events.k8s.io/Event", event()),
        ("Lease", lease()),
        ("Scale", scale()),
        ("ServiceAccount", service_account()),
        ("CustomResourceDefinition", definition()),
    ];
    kinds
        .into_iter()
        .map(|(kind, schema)| (kind, Schema::trusted(&schema)))
        .collect()
});

/// The schema of `metadata`.
pub(crate) fn metadata() -> Value {
    object(json!({
        "annotations": map(string()),
        "creationTimestamp": time(),
        "deletionGracePeriodSeconds": integer(),
        "deletionTimestamp": time(),
        "finalizers": {"type": "array", "items": string(), "x-kubernetes-list-type": "set"},
        "generateName": string(),
        "generation": integer(),
        "labels": map(string()),
        "managedFields": {"type": "array", "items": object(json!({
            "apiVersion": string(),
            "fieldsType": string(),
            "fieldsV1": anything(),
            "manager": string(),
            "operation": string(),
            "subresource": string(),
            "time": time(),
        }))},
        "name": string(),
        "namespace": string(),
        "ownerReferences": keyed("uid", with(
            object(json!({
                "apiVersion": string(),
                "blockOwnerDeletion": boolean(),
                "controller": boolean(),
                "kind": string(),
                "name": string(),
                // A missing key of a keyed list is an error, but for this one, whose Go type has a default.
                "uid": {"type": "string", "default": ""},
            })),
            json!({
                "required": ["apiVersion", "kind", "name", "uid"],
                "x-kubernetes-map-type": "atomic",
            }),
        )),
        "resourceVersion": string(),
        "selfLink": string(),
        "uid": string(),
    }))
}

fn namespace() -> Value {
    whole(json!({
        "spec": object(json!({"finalizers": list(string())})),
        "status": object(json!({
            "phase": string(),
            "conditions": keyed("type", condition()),
        })),
    }))
}

fn secret() -> Value {
    whole(json!({
        "data": map(json!({"type": "string", "format": "byte"})),
        "stringData": map(string()),
        "type": string(),
        "immutable": boolean(),
    }))
}

fn config_map() -> Value {
    whole(json!({
        "data": map(string()),
        "binaryData": map(json!({"type": "string", "format": "byte"})),
        "immutable": boolean(),
    }))
}

fn core_event() -> Value {
    with(
        whole(json!({
            "action": string(),
            "count": integer(),
            "eventTime": time(),
            "firstTimestamp": time(),
            "involvedObject": reference(),
            "lastTimestamp": time(),
            "message": string(),
            "reason": string(),
            "related": reference(),
            "reportingComponent": string(),
            "reportingInstance": string(),
            "series": series(),
            "source": object(json!({"component": string(), "host": string()})),
            "type": string(),
        })),
        json!({"required": ["involvedObject"]}),
    )
}

fn event() -> Value {
    with(
        whole(json!({
            "action": string(),
            "deprecatedCount": integer(),
            "deprecatedFirstTimestamp": time(),
            "deprecatedLastTimestamp": time(),
            "deprecatedSource": object(json!({"component": string(), "host": string()})),
            "eventTime": time(),
            "note": string(),
            "reason": string(),
            "regarding": reference(),
            "related": reference(),
            "reportingController": string(),
            "reportingInstance": string(),
            "series": series(),
            "type": string(),
        })),
        json!({"required": ["eventTime"]}),
    )
}

fn lease() -> Value {
    let pointer = || with(string(), json!({"nullable": true}));
    whole(json!({
        "spec": object(json!({
            "acquireTime": time(),
            "holderIdentity": pointer(),
            "leaseDurationSeconds": integer(),
            "leaseTransitions": integer(),
            "preferredHolder": pointer(),
            "renewTime": time(),
            "strategy": pointer(),
        })),
    }))
}

fn scale() -> Value {
    whole(json!({
        "spec": object(json!({"replicas": integer()})),
        "status": object(json!({"replicas": integer(), "selector": string()})),
    }))
}

fn service_account() -> Value {
    let local = with(
        object(json!({"name": string()})),
        json!({"x-kubernetes-map-type": "atomic"}),
    );
    whole(json!({
        "automountServiceAccountToken": boolean(),
        "imagePullSecrets": list(local),
        "secrets": keyed("name", reference_fields()),
    }))
}

/// Loose where the definition carries schemas: those are checked when it is registered.
fn definition() -> Value {
    let names = || {
        object(json!({
            "categories": list(string()),
            "kind": string(),
            "listKind": string(),
            "plural": string(),
            "shortNames": list(string()),
            "singular": string(),
        }))
    };
    let version = object(json!({
        "additionalPrinterColumns": list(anything()),
        "deprecated": boolean(),
        "deprecationWarning": string(),
        "name": string(),
        "schema": object(json!({"openAPIV3Schema": anything()})),
        "selectableFields": list(anything()),
        "served": boolean(),
        "storage": boolean(),
        "subresources": object(json!({
            "scale": object(json!({
                "labelSelectorPath": string(),
                "specReplicasPath": string(),
                "statusReplicasPath": string(),
            })),
            "status": anything(),
        })),
    }));
    with(
        whole(json!({
            "spec": with(
                object(json!({
                    "conversion": anything(),
                    "group": string(),
                    "names": names(),
                    "preserveUnknownFields": boolean(),
                    "scope": string(),
                    "versions": list(version),
                })),
                json!({"required": ["group", "names", "scope", "versions"]}),
            ),
            "status": object(json!({
                "acceptedNames": names(),
                // A definition that is new has none, and says so.
                "conditions": with(keyed("type", condition()), json!({"nullable": true})),
                "storedVersions": list(string()),
                "observedGeneration": integer(),
            })),
        })),
        json!({"required": ["spec"]}),
    )
}

fn condition() -> Value {
    object(json!({
        "type": string(),
        "status": string(),
        "reason": string(),
        "message": string(),
        "lastTransitionTime": time(),
        "observedGeneration": integer(),
    }))
}

fn reference() -> Value {
    with(
        reference_fields(),
        json!({"x-kubernetes-map-type": "atomic"}),
    )
}

fn reference_fields() -> Value {
    with(
        object(json!({
            "apiVersion": string(),
            "fieldPath": string(),
            "kind": string(),
            "name": string(),
            "namespace": string(),
            "resourceVersion": string(),
            "uid": string(),
        })),
        json!({"x-kubernetes-map-type": "atomic"}),
    )
}

fn series() -> Value {
    object(json!({"count": integer(), "lastObservedTime": time()}))
}

fn whole(mut fields: Value) -> Value {
    if let Value::Object(fields) = &mut fields {
        fields.insert("apiVersion".to_owned(), string());
        fields.insert("kind".to_owned(), string());
        fields.insert("metadata".to_owned(), json!({"type": "object"}));
    }
    object(fields)
}

fn with(mut schema: Value, more: Value) -> Value {
    if let (Value::Object(schema), Value::Object(more)) = (&mut schema, more) {
        schema.extend(more);
    }
    schema
}

fn object(properties: Value) -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), properties);
    Value::Object(schema)
}

fn keyed(key: &str, items: Value) -> Value {
    with(
        list(items),
        json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}),
    )
}

fn list(items: Value) -> Value {
    with(
        json!({"type": "array"}),
        Value::Object(Map::from_iter([("items".to_owned(), items)])),
    )
}

fn map(values: Value) -> Value {
    let values = Map::from_iter([("additionalProperties".to_owned(), values)]);
    with(
        json!({"type": "object", "nullable": true}),
        Value::Object(values),
    )
}

fn anything() -> Value {
    json!({"x-kubernetes-preserve-unknown-fields": true})
}

fn string() -> Value {
    json!({"type": "string"})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time", "nullable": true})
}

fn integer() -> Value {
    json!({"type": "integer"})
}

fn boolean() -> Value {
    json!({"type": "boolean"})
}
