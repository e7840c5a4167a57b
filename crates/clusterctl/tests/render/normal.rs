//! What counts as equal.
//!
//! clusterctl sends some kinds through Go's types and back, which writes fields that are empty and leaves out others that are.
//! An API server makes the same of both; so does this.

use serde_json::Value;

/// Objects in the order in which they are made, except that those of cert-manager stand in some order: clusterctl turns them round
/// by a comparison that is none.
pub fn normal(objects: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let mut objects: Vec<Value> = objects.into_iter().map(object).collect();
    let is_foreign = |object: &Value| {
        object["apiVersion"]
            .as_str()
            .is_some_and(|version| version.starts_with("cert-manager.io/"))
    };
    let (first, count) = (
        objects.iter().position(is_foreign).unwrap_or(0),
        objects.iter().filter(|object| is_foreign(object)).count(),
    );
    if let Some(foreign) = objects.get_mut(first..first + count) {
        foreign.sort_by_key(|object| object["metadata"]["name"].as_str().map(str::to_owned));
    }
    objects
}

fn object(mut object: Value) -> Value {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if matches!(kind.as_str(), "Deployment" | "DaemonSet") {
        drop_empty(&mut object, "", "status");
        if kind == "DaemonSet" {
            remove(&mut object, "", "status");
        }
        drop_empty(&mut object, "/spec", "strategy");
        drop_empty(&mut object, "/spec", "updateStrategy");
        for list in ["containers", "initContainers"] {
            let containers = object.pointer_mut(&format!("/spec/template/spec/{list}"));
            for container in containers
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                drop_empty(container, "", "resources");
                for variable in container["env"].as_array_mut().into_iter().flatten() {
                    if variable["value"] == "" {
                        remove(variable, "", "value");
                    }
                }
            }
        }
    }
    if kind == "CustomResourceDefinition" {
        remove(&mut object, "", "status");
        if object["spec"]["preserveUnknownFields"] == false {
            remove(&mut object, "/spec", "preserveUnknownFields");
        }
    }
    without_nulls(&mut object);
    whole_numbers(&mut object);
    object
}

/// `1.0` and `1` are one number, which Go writes in the shorter form.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Array(entries) => entries.iter_mut().for_each(whole_numbers),
        Value::Number(number) => {
            let float = number
                .as_f64()
                .filter(|float| number.is_f64() && float.fract() == 0.0);
            if let Some(Ok(short)) = float.map(|float| format!("{float:.0}").parse::<i64>()) {
                *value = short.into();
            }
        }
        _ => {}
    }
}

/// Fields without a value; in lists they stay.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
            fields.sort_keys();
        }
        Value::Array(entries) => entries.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

fn drop_empty(value: &mut Value, parent: &str, field: &str) {
    let is_empty = value.pointer(&format!("{parent}/{field}")) == Some(&serde_json::json!({}));
    if is_empty {
        remove(value, parent, field);
    }
}

fn remove(value: &mut Value, parent: &str, field: &str) {
    if let Some(fields) = value.pointer_mut(parent).and_then(Value::as_object_mut) {
        fields.remove(field);
    }
}
