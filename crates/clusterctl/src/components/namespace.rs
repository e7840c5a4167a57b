//! The namespace that a provider is installed into, on its objects and wherever they name it.

use serde_json::{Value, json};

use super::{ComponentsError, is_namespace};
use crate::{Object, Scope, Scopes};

/// The namespace that is given, or else that of the objects.
pub(super) fn target(objects: &[Object], given: Option<&str>) -> Result<String, ComponentsError> {
    let mut own = objects
        .iter()
        .filter(|object| is_of(object, "", "Namespace"));
    let (first, second) = (own.next(), own.next());
    if let (Some(first), Some(second)) = (first, second) {
        return Err(ComponentsError::Namespaces {
            first: first.name().to_owned(),
            second: second.name().to_owned(),
        });
    }
    let target = given
        .or_else(|| first.map(Object::name))
        .ok_or(ComponentsError::NoNamespace)?;
    if !is_namespace(target) {
        let cut = target.chars().take(80).collect();
        return Err(ComponentsError::TargetNamespace(cut));
    }
    Ok(target.to_owned())
}

/// Puts the namespace behind the objects where they have none.
pub(super) fn add_missing(objects: &mut Vec<Object>, target: &str) -> Result<(), ComponentsError> {
    if objects.iter().any(|object| is_of(object, "", "Namespace")) {
        return Ok(());
    }
    let value = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": target}});
    let namespace =
        Object::new(value).map_err(|_| ComponentsError::TargetNamespace(target.to_owned()))?;
    objects.push(namespace);
    Ok(())
}

/// Moves an object, and what it refers to, to the target namespace; what is of the namespace that `stays` only refers to it.
pub(super) fn move_to(
    object: &mut Object,
    target: &str,
    stays: Option<&str>,
    scopes: &Scopes,
) -> Result<(), ComponentsError> {
    if is_of(object, "", "Namespace") {
        object.set_name(target);
    }
    let original = object.namespace().to_owned();
    if scopes.of(object) == Scope::Namespaced && stays != Some(original.as_str()) {
        object.set_namespace(target);
    }
    match (object.group(), object.kind()) {
        ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => {
            subjects(object, target);
            Ok(())
        }
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => {
            certificate_authority(object, target)?;
            webhooks(object, target)
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            certificate_authority(object, target)?;
            conversion(object, target)
        }
        (_, "Certificate") => dns_names(object, &original, target),
        _ => Ok(()),
    }
}

/// Service accounts, which are the subjects with a namespace.
fn subjects(object: &mut Object, target: &str) {
    let subjects = object.value_mut().get_mut("subjects");
    let subjects = subjects.and_then(Value::as_array_mut);
    for subject in subjects.into_iter().flatten() {
        if let Some(namespace) = subject.get_mut("namespace")
            && namespace.as_str().is_some_and(|text| !text.is_empty())
        {
            *namespace = json!(target);
        }
    }
}

/// cert-manager is told by `NAMESPACE/NAME` which certificate's authority it puts into an object.
fn certificate_authority(object: &mut Object, target: &str) -> Result<(), ComponentsError> {
    let annotations = object.value().pointer("/metadata/annotations");
    let given = annotations.and_then(|all| all.get(INJECT_FROM));
    let Some(given) = given.and_then(Value::as_str) else {
        return Ok(());
    };
    let name = match given.split('/').collect::<Vec<_>>()[..] {
        [_, name] => name.to_owned(),
        _ => {
            return Err(ComponentsError::Field {
                object: object.title(),
                field: "annotation cert-manager.io/inject-ca-from",
                rule: "not NAMESPACE/NAME of a Certificate; write it so",
            });
        }
    };
    object.set_annotation(INJECT_FROM, &format!("{target}/{name}"));
    Ok(())
}

fn webhooks(object: &mut Object, target: &str) -> Result<(), ComponentsError> {
    known_version(object)?;
    let webhooks = object.value_mut().get_mut("webhooks");
    let webhooks = webhooks.and_then(Value::as_array_mut);
    for webhook in webhooks.into_iter().flatten() {
        service(webhook.pointer_mut("/clientConfig/service"), target);
    }
    Ok(())
}

fn conversion(object: &mut Object, target: &str) -> Result<(), ComponentsError> {
    known_version(object)?;
    let pointer = if object.version() == "v1" {
        "/spec/conversion/webhook/clientConfig/service"
    } else {
        "/spec/conversion/webhookClientConfig/service"
    };
    service(object.value_mut().pointer_mut(pointer), target);
    Ok(())
}

fn service(service: Option<&mut Value>, target: &str) {
    if let Some(service) = service.and_then(Value::as_object_mut) {
        service.insert("namespace".to_owned(), json!(target));
    }
}

fn known_version(object: &Object) -> Result<(), ComponentsError> {
    match object.version() {
        "v1" | "v1beta1" => Ok(()),
        other => Err(ComponentsError::Version {
            object: object.title(),
            version: other.to_owned(),
        }),
    }
}

/// The names of services hold their namespace: `SERVICE.NAMESPACE.svc`.
fn dns_names(object: &mut Object, original: &str, target: &str) -> Result<(), ComponentsError> {
    let title = object.title();
    let Some(names) = object.value_mut().pointer_mut("/spec/dnsNames") else {
        return Ok(());
    };
    let wrong = || ComponentsError::Field {
        object: title.clone(),
        field: "spec.dnsNames",
        rule: "no list of texts; write one",
    };
    let (from, to) = (format!(".{original}."), format!(".{target}."));
    for name in names.as_array_mut().ok_or_else(wrong)? {
        *name = json!(name.as_str().ok_or_else(wrong)?.replacen(&from, &to, 1));
    }
    Ok(())
}

fn is_of(object: &Object, group: &str, kind: &str) -> bool {
    object.group() == group && object.kind() == kind
}

const INJECT_FROM: &str = "cert-manager.io/inject-ca-from";
