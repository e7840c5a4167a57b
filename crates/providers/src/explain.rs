//! What of an installed provider is not as its release says, and by what. Pure.
//!
//! Variables stay as they are written in the release, so that nothing of a credential is told.

use std::collections::BTreeMap;

use clusterctl::{Object, Scopes, Substitution};
use json_patch::PatchOperation;
use serde_json::Value;

use crate::render::{self, Material, RenderError};

/// A field of an object that something has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// By what: a field of the spec, or Windlass itself.
    pub by: String,
    /// The object, by kind, namespace and name.
    pub object: String,
    /// The field, as a JSON pointer.
    pub path: String,
    /// What the release says there. None: nothing.
    pub before: Option<Value>,
    /// What is there instead. None: nothing.
    pub after: Option<Value>,
}

/// What is told of what a Secret holds.
const HIDDEN: &str = "(not shown)";

/// What is changed in the objects of a release, in the order in which it is done, and what of the spec has no effect, for people.
///
/// # Errors
///
/// The manifests cannot be read, or what is changed does not fit them.
pub fn explain(material: &Material) -> Result<(Vec<Change>, Vec<String>), RenderError> {
    let mut objects = render::released(material, &Scopes::default(), &Substitution::Raw)?;
    let mut before = objects.clone();
    let mut changes = Vec::new();
    let notices = render::change(&mut objects, material, |by, now| {
        changes.extend(between(by, &before, now));
        before = now.to_vec();
    })?;
    Ok((changes, notices))
}

fn between(by: &str, before: &[Object], now: &[Object]) -> Vec<Change> {
    let known: BTreeMap<_, _> = before
        .iter()
        .map(|object| (object.title(), object.value()))
        .collect();
    let nothing = Value::Null;
    let mut changes = Vec::new();
    for object in now {
        let title = object.title();
        let was = known.get(&title).copied().unwrap_or(&nothing);
        // Each operation is of what those before it have made.
        let mut was = was.clone();
        for operation in json_patch::diff(&was.clone(), object.value()).0 {
            let there = |path: &str| was.pointer(path).cloned();
            let (path, before, after) = match &operation {
                // In a list, what stood there moves on.
                PatchOperation::Add(add) => (add.path.to_string(), None, Some(add.value.clone())),
                PatchOperation::Replace(replace) => {
                    let path = replace.path.to_string();
                    let before = there(&path);
                    (path, before, Some(replace.value.clone()))
                }
                PatchOperation::Remove(remove) => {
                    let path = remove.path.to_string();
                    let before = there(&path);
                    (path, before, None)
                }
                // A difference is made of these three.
                PatchOperation::Move(_) | PatchOperation::Copy(_) | PatchOperation::Test(_) => {
                    continue;
                }
            };
            let hidden = Value::from(HIDDEN);
            let is_secret = object.kind() == "Secret";
            let told = |value: Option<Value>| {
                value.map(|value| if is_secret { hidden.clone() } else { value })
            };
            changes.push(Change {
                by: by.to_owned(),
                object: title.clone(),
                path,
                before: told(before),
                after: told(after),
            });
            // It is a difference of these very values.
            let _ = json_patch::patch(&mut was, std::slice::from_ref(&operation));
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;
    use crate::{inputs::Changes, render::tests::material};

    #[test]
    fn what_is_changed_says_by_what_and_what_was_there() {
        let mut material = material(None);
        material.changes = Changes {
            deployment: from_value(json!({"replicas": 2})).unwrap(),
            manifest_patches: Some(vec![
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {annotations: {note: a}}".to_owned(),
            ]),
            patches: from_value(json!([
                {"patch": "[{op: replace, path: /spec/replicas, value: 3}]", "target": {"kind": "Deployment"}},
                {"patch": "[{op: remove, path: /spec/a}]", "target": {"kind": "StatefulSet"}},
            ]))
            .unwrap(),
            ..Changes::default()
        };
        let (changes, notices) = explain(&material).unwrap();
        let told: Vec<_> = changes
            .iter()
            .map(|change| {
                assert_eq!(
                    change.object,
                    "Deployment example-system/example-controller-manager"
                );
                let by = change.by.split(' ').next().unwrap();
                (
                    by,
                    change.path.as_str(),
                    change.before.clone(),
                    change.after.clone(),
                )
            })
            .collect();
        assert_eq!(
            told[0],
            ("spec.manager,", "/spec/replicas", None, Some(json!(2)))
        );
        assert!(told.contains(&(
            "spec.manifestPatches[0]",
            "/metadata/annotations",
            None,
            Some(json!({"note": "a"}))
        )));
        let last = told.last().unwrap();
        assert_eq!(
            *last,
            (
                "spec.patches[0]",
                "/spec/replicas",
                Some(json!(2)),
                Some(json!(3))
            )
        );
        assert_eq!(notices, ["spec.patches[1] is for no object"]);
        assert!(!format!("{changes:?}").contains("hunter2"));
    }

    #[test]
    fn what_a_secret_holds_is_not_told_and_lists_are_by_what_was_there() {
        let mut material = material(None);
        material.components +=
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: list, finalizers: [a, b, c]}\n";
        material.changes = Changes {
            patches: from_value(json!([
                {"patch": "[{op: replace, path: /stringData/token, value: hush}]", "target": {"kind": "Secret"}},
                {"patch": "[{op: replace, path: /metadata/finalizers, value: [a]}]", "target": {"kind": "ConfigMap"}},
                {"patch": "[{op: add, path: /metadata/labels/a, value: b}]", "target": {"kind": "Namespace"}},
            ]))
            .unwrap(),
            ..Changes::default()
        };
        let (changes, notices) = explain(&material).unwrap();
        assert!(!format!("{changes:?}").contains("hush"), "{changes:?}");
        let secret = changes
            .iter()
            .find(|change| change.object.starts_with("Secret "))
            .unwrap();
        assert_eq!(secret.path, "/stringData/token");
        assert_eq!(secret.after, Some(json!(HIDDEN)));
        let gone = changes
            .iter()
            .filter(|change| change.path.starts_with("/metadata/finalizers"));
        let mut gone: Vec<_> = gone.map(|change| change.before.clone().unwrap()).collect();
        gone.sort_by_key(ToString::to_string);
        assert_eq!(gone, [json!("b"), json!("c")]);
        assert_eq!(notices, ["spec.patches[2] is for no object"]);
    }
}
