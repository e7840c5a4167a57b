//! Stand-in.
#![allow(missing_docs)]
use serde_json::{Value, json};
#[derive(Debug, Clone)]
pub struct Column { pub name: String, pub path: String }
pub fn table(objects: &[Value], metadata: &Value) -> Value {
    let rows: Vec<Value> = objects.iter().map(|o| json!({"cells": [o["metadata"]["name"]], "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"], "data": o["data"]}})).collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}], "rows": rows})
}
