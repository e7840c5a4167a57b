//! Schemas of what belongs to Kubernetes, in the words of the Kubernetes that the existing definitions were made with.
//!
//! # Source
//! Kubernetes v1.35 `k8s.io/api/core/v1` and `k8s.io/apimachinery/pkg/apis/meta/v1`, as controller-gen writes them.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A selector of labels.
pub(super) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    schema(selector())
}

/// The tolerations of a pod.
pub(super) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    schema(list(object(json!({
        "effect": text(),
        "key": text(),
        "operator": text(),
        "tolerationSeconds": {"type": "integer", "format": "int64"},
        "value": text(),
    }))))
}

/// The affinity of a pod.
pub(super) fn affinity(_: &mut SchemaGenerator) -> Schema {
    let term = atomic(object(json!({
        "matchExpressions": atomic_list(requirement()),
        "matchFields": atomic_list(requirement()),
    })));
    let terms = required(
        object(json!({"nodeSelectorTerms": atomic_list(term.clone())})),
        &["nodeSelectorTerms"],
    );
    let nodes = object(json!({
        PREFERRED: atomic_list(weighted("preference", term)),
        REQUIRED: atomic(terms),
    }));
    let pod = required(
        object(json!({
            "labelSelector": selector(),
            "matchLabelKeys": atomic_list(text()),
            "mismatchLabelKeys": atomic_list(text()),
            "namespaceSelector": selector(),
            "namespaces": atomic_list(text()),
            "topologyKey": text(),
        })),
        &["topologyKey"],
    );
    let pods = object(json!({
        PREFERRED: atomic_list(weighted("podAffinityTerm", pod.clone())),
        REQUIRED: atomic_list(pod),
    }));
    schema(object(
        json!({"nodeAffinity": nodes, "podAffinity": pods, "podAntiAffinity": pods}),
    ))
}

/// What a container asks for and may use.
pub(super) fn resources(_: &mut SchemaGenerator) -> Schema {
    let quantities = json!({"type": "object", "additionalProperties": quantity()});
    let claim = required(
        object(json!({"name": text(), "request": text()})),
        &["name"],
    );
    let claims = with(
        list(claim),
        json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
    );
    schema(object(
        json!({"claims": claims, "limits": quantities, "requests": quantities}),
    ))
}

/// Where the value of a variable of an environment is.
pub(super) fn value_from(_: &mut SchemaGenerator) -> Schema {
    let of_key = || {
        let name = json!({"type": "string", "default": ""});
        let fields = json!({"key": text(), "name": name, "optional": {"type": "boolean"}});
        atomic(required(object(fields), &["key"]))
    };
    let field = object(json!({"apiVersion": text(), "fieldPath": text()}));
    let file = object(json!({
        "key": text(),
        "optional": {"type": "boolean", "default": false},
        "path": text(),
        "volumeName": text(),
    }));
    let resource =
        object(json!({"containerName": text(), "divisor": quantity(), "resource": text()}));
    schema(object(json!({
        "configMapKeyRef": of_key(),
        "fieldRef": atomic(required(field, &["fieldPath"])),
        "fileKeyRef": atomic(required(file, &["key", "path", "volumeName"])),
        "resourceFieldRef": atomic(required(resource, &["resource"])),
        "secretKeyRef": of_key(),
    })))
}

/// Conditions. The existing definition makes no map of their list, so one writer has it whole.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    let condition = required(
        object(json!({
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "message": {"type": "string", "maxLength": 32768},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "reason": {
                "type": "string", "minLength": 1, "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "type": {"type": "string", "maxLength": 316, "pattern": QUALIFIED_NAME},
        })),
        &["lastTransitionTime", "message", "reason", "status", "type"],
    );
    schema(list(condition))
}

fn schema(value: Value) -> Schema {
    value.try_into().unwrap_or_else(|_| json_schema!({}))
}

fn text() -> Value {
    json!({"type": "string"})
}

fn object(properties: Value) -> Value {
    Value::from_iter([("type", "object".into()), ("properties", properties)])
}

fn list(items: Value) -> Value {
    Value::from_iter([("type", "array".into()), ("items", items)])
}

fn atomic(object: Value) -> Value {
    with(object, json!({"x-kubernetes-map-type": "atomic"}))
}

fn atomic_list(items: Value) -> Value {
    with(list(items), json!({"x-kubernetes-list-type": "atomic"}))
}

fn required(object: Value, fields: &[&str]) -> Value {
    with(object, json!({"required": fields}))
}

fn with(mut schema: Value, more: Value) -> Value {
    if let (Value::Object(schema), Value::Object(more)) = (&mut schema, more) {
        schema.extend(more);
    }
    schema
}

fn weighted(name: &str, term: Value) -> Value {
    let weight = json!({"type": "integer", "format": "int32"});
    let fields = Value::from_iter([(name, term), ("weight", weight)]);
    required(object(fields), &[name, "weight"])
}

fn requirement() -> Value {
    let fields = json!({"key": text(), "operator": text(), "values": atomic_list(text())});
    required(object(fields), &["key", "operator"])
}

fn selector() -> Value {
    atomic(object(json!({
        "matchExpressions": atomic_list(requirement()),
        "matchLabels": {"type": "object", "additionalProperties": text()},
    })))
}

fn quantity() -> Value {
    json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": true,
    })
}

const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

const QUALIFIED_NAME: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
