//! An annotation of pods, by which they are replaced when it changes.
//!
//! A value of a variable that lands in a Secret or a ConfigMap changes no workload, so pods would go on with the old one. clusterctl
//! leaves this out, and so does what prints the objects that it would print.

use serde_json::{Value, json};

use crate::Object;

/// Puts an annotation into the pods of every Deployment, DaemonSet and StatefulSet.
pub fn mark_pods(objects: &mut [Object], annotation: &str, value: &str) {
    for object in objects {
        let is_workload = object.group() == "apps"
            && matches!(object.kind(), "Deployment" | "DaemonSet" | "StatefulSet");
        let template = object.value_mut().pointer_mut("/spec/template");
        let Some(template) = template
            .and_then(Value::as_object_mut)
            .filter(|_| is_workload)
        else {
            continue;
        };
        let metadata = field(template.entry("metadata").or_insert(Value::Null));
        let annotations = metadata
            .and_then(|metadata| field(metadata.entry("annotations").or_insert(Value::Null)));
        if let Some(annotations) = annotations {
            annotations.insert(annotation.to_owned(), json!(value));
        }
    }
}

/// The fields of an object that may not be there yet. None: it is none, which the API refuses.
fn field(value: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_marked_and_nothing_else_is() {
        let made = |group: &str, kind: &str, template: Value| {
            let object = json!({"apiVersion": group, "kind": kind, "metadata": {"name": "a"}, "spec": {"template": template}});
            Object::new(object).unwrap()
        };
        let mut objects = [
            made(
                "apps/v1",
                "Deployment",
                json!({"metadata": {"annotations": {"own": "kept"}}}),
            ),
            made("apps/v1", "DaemonSet", json!({"metadata": null})),
            made("apps/v1", "StatefulSet", json!({})),
            made("example.com/v1", "Deployment", json!({})),
        ];
        mark_pods(&mut objects, "mark", "1");
        let found = objects
            .map(|object| object.value()["spec"]["template"]["metadata"]["annotations"].clone());
        let marked = json!({"mark": "1"});
        let expected = [
            json!({"own": "kept", "mark": "1"}),
            marked.clone(),
            marked,
            Value::Null,
        ];
        assert_eq!(found, expected);
    }
}
