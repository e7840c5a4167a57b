//! Pods that answer webhooks go on answering for some seconds when they are to end.
//!
//! A pod is told to end in the moment in which it is taken out of its Service, and managers of providers end at once. Until the
//! nodes have heard of it, calls still go to the pod and are refused: in each upgrade some would fail. clusterctl leaves this out.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::Object;

/// How long, in seconds. Nodes hear of it within one or two; the API can be told within the rest to call others over other connections.
const SECONDS: u8 = 15;
/// The grace period of a pod that has none, in seconds.
///
/// # Source
/// `core/v1` of Kubernetes.
const GRACE: u64 = 30;

/// Has the pods of every Deployment that answers webhooks do so, but for containers that say themselves what they do at their end.
/// They have as much longer until they are killed.
/// From Kubernetes 1.30 on pods can be told so.
pub fn linger(objects: &mut [Object]) {
    let called = called(objects);
    let services: Vec<_> = objects
        .iter()
        .filter(|object| is(object, "", "Service") && called.contains(&key(object)))
        .filter_map(|object| {
            let selector = object.value().pointer("/spec/selector")?.as_object()?;
            Some((object.namespace().to_owned(), selector.clone()))
        })
        .collect();
    for object in objects
        .iter_mut()
        .filter(|object| is(object, "apps", "Deployment"))
    {
        let labels = object.value().pointer("/spec/template/metadata/labels");
        let labels = labels.and_then(Value::as_object).cloned();
        let labels = labels.unwrap_or_default();
        let answers = services.iter().any(|(namespace, selector)| {
            namespace == object.namespace() && selects(selector, &labels)
        });
        let pod = object.value_mut().pointer_mut("/spec/template/spec");
        if let Some(pod) = pod.and_then(Value::as_object_mut).filter(|_| answers) {
            go_on(pod);
        }
    }
}

fn go_on(pod: &mut Map<String, Value>) {
    let containers = pod.get_mut("containers").and_then(Value::as_array_mut);
    let mut lingers = false;
    for container in containers.into_iter().flatten() {
        if let Some(container) = container.as_object_mut()
            && !container.contains_key("lifecycle")
        {
            let sleep = json!({"preStop": {"sleep": {"seconds": SECONDS}}});
            container.insert("lifecycle".to_owned(), sleep);
            lingers = true;
        }
    }
    if lingers {
        let grace = pod.get("terminationGracePeriodSeconds");
        let grace = grace.and_then(Value::as_u64).unwrap_or(GRACE);
        let grace = grace.saturating_add(u64::from(SECONDS));
        pod.insert("terminationGracePeriodSeconds".to_owned(), json!(grace));
    }
}

/// The Services that webhooks and conversions call, by namespace and name.
fn called(objects: &[Object]) -> BTreeSet<(String, String)> {
    let calls = objects.iter().flat_map(|object| {
        let webhooks = object.value().get("webhooks").and_then(Value::as_array);
        let webhooks = webhooks.into_iter().flatten();
        let conversion = object.value().pointer("/spec/conversion/webhook");
        webhooks.chain(conversion)
    });
    calls
        .filter_map(|call| {
            let service = call.pointer("/clientConfig/service")?;
            let text = |field: &str| service.get(field)?.as_str().map(str::to_owned);
            Some((text("namespace")?, text("name")?))
        })
        .collect()
}

fn key(object: &Object) -> (String, String) {
    (object.namespace().to_owned(), object.name().to_owned())
}

fn is(object: &Object, group: &str, kind: &str) -> bool {
    object.group() == group && object.kind() == kind
}

/// An empty selector selects nothing.
fn selects(selector: &Map<String, Value>, labels: &Map<String, Value>) -> bool {
    !selector.is_empty()
        && selector
            .iter()
            .all(|(name, value)| labels.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_called_linger_and_no_others() {
        let of = |kind: &str, name: &str, rest: &Value| {
            let mut value =
                json!({"kind": kind, "metadata": {"name": name, "namespace": "system"}});
            for (field, content) in rest.as_object().unwrap() {
                value[field] = content.clone();
            }
            Object::new(value).unwrap()
        };
        let service = |name: &str, app: &str| {
            of(
                "Service",
                name,
                &json!({"apiVersion": "v1", "spec": {"selector": {"app": app}}}),
            )
        };
        let deployment = |app: &str, lifecycle: &Value| {
            let mut container = json!({"name": "manager"});
            if !lifecycle.is_null() {
                container["lifecycle"] = lifecycle.clone();
            }
            let template =
                json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [container]}});
            of(
                "Deployment",
                app,
                &json!({"apiVersion": "apps/v1", "spec": {"template": template}}),
            )
        };
        let own = json!({"preStop": {"exec": {"command": ["wait"]}}});
        let mut objects = [
            of(
                "ValidatingWebhookConfiguration",
                "webhooks",
                &json!({"apiVersion": "admissionregistration.k8s.io/v1", "webhooks": [
                    {"clientConfig": {"service": {"namespace": "system", "name": "called"}}},
                    {"clientConfig": {"service": {"namespace": "system", "name": "own"}}},
                ]}),
            ),
            service("called", "called"),
            service("own", "own"),
            service("quiet", "quiet"),
            deployment("called", &Value::Null),
            deployment("own", &own),
            deployment("quiet", &Value::Null),
        ];
        linger(&mut objects);
        let lifecycle = |object: &Object| {
            object
                .value()
                .pointer("/spec/template/spec/containers/0/lifecycle")
                .cloned()
        };
        let found: Vec<_> = objects.iter().skip(4).map(lifecycle).collect();
        let sleep = json!({"preStop": {"sleep": {"seconds": SECONDS}}});
        assert_eq!(found, [Some(sleep), Some(own), None]);
        let grace = |object: &Object| {
            let pod = object.value().pointer("/spec/template/spec")?;
            pod.get("terminationGracePeriodSeconds")?.as_u64()
        };
        let found: Vec<_> = objects.iter().skip(4).map(grace).collect();
        assert_eq!(found, [Some(45), None, None]);
    }
}
