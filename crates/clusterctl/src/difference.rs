//! What an upgrade changes, told from the objects of both versions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::Object;

/// What the objects of one version have and those of another do not.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Difference {
    /// Objects that come, by kind, namespace and name.
    pub added: Vec<String>,
    /// Objects that go. Definitions among them stay, for with them would go what is of them.
    pub removed: Vec<String>,
    /// Definitions that change what they serve.
    pub definitions: Vec<Definition>,
    /// Images of containers: of which workload, before and after.
    pub images: Vec<(String, Vec<String>, Vec<String>)>,
    /// Roles that give other rights.
    pub rights: Vec<Rights>,
}

/// How a definition changes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// Versions that are served from then on.
    pub served: Vec<String>,
    /// Versions that are served no more.
    pub gone: Vec<String>,
    /// The version in which objects are stored, before and after, if it is another.
    pub storage: Option<(String, String)>,
    /// Fields that go, as `VERSION: path`, without those below them.
    pub fields: Vec<String>,
}

/// How a role changes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rights {
    /// The role.
    pub role: String,
    /// What it gives then, as `verb resource.group`.
    pub gained: Vec<String>,
    /// What it gives no more.
    pub lost: Vec<String>,
}

impl Difference {
    /// Whether objects of people lose fields or versions of their kind.
    pub fn loses(&self) -> bool {
        let mut definitions = self.definitions.iter();
        definitions.any(|one| !one.gone.is_empty() || !one.fields.is_empty())
    }

    /// Between the objects of two versions.
    pub fn between(old: &[Object], new: &[Object]) -> Self {
        let (old, new) = (by_key(old), by_key(new));
        let only = |these: &BTreeMap<Key, &Object>, others: &BTreeMap<Key, &Object>| {
            let only = these.iter().filter(|(key, _)| !others.contains_key(*key));
            only.map(|(_, object)| object.title()).collect()
        };
        let mut difference = Self {
            added: only(&new, &old),
            removed: only(&old, &new),
            ..Self::default()
        };
        for (key, new) in &new {
            let Some(old) = old.get(key) else { continue };
            match new.kind() {
                "CustomResourceDefinition" => {
                    difference.definitions.extend(definition(old, new));
                }
                "Role" | "ClusterRole" => difference.rights.extend(rights(old, new)),
                _ => {
                    let (before, after) = (images(old), images(new));
                    if before != after {
                        difference.images.push((new.title(), before, after));
                    }
                }
            }
        }
        difference
    }
}

/// Group, kind, namespace and name.
type Key = [String; 4];

fn by_key(objects: &[Object]) -> BTreeMap<Key, &Object> {
    let keyed = objects.iter().map(|object| {
        let key = [
            object.group(),
            object.kind(),
            object.namespace(),
            object.name(),
        ];
        (key.map(str::to_owned), object)
    });
    keyed.collect()
}

fn definition(old: &Object, new: &Object) -> Option<Definition> {
    let (before, after) = (versions(old), versions(new));
    let served = |versions: &BTreeMap<&str, &Value>| -> BTreeSet<String> {
        let served = versions
            .iter()
            .filter(|(_, version)| version["served"] == true);
        served.map(|(name, _)| (*name).to_owned()).collect()
    };
    let stored = |versions: &BTreeMap<&str, &Value>| {
        let mut stored = versions
            .iter()
            .filter(|(_, version)| version["storage"] == true);
        stored.next().map(|(name, _)| (*name).to_owned())
    };
    let (was, is) = (served(&before), served(&after));
    let mut fields = Vec::new();
    for (name, version) in &before {
        let Some(now) = after.get(name) else { continue };
        let schema = |version: &Value| {
            let mut paths = BTreeSet::new();
            let root = version.pointer("/schema/openAPIV3Schema");
            paths_of(root.unwrap_or(&Value::Null), "", &mut paths);
            paths
        };
        let kept = schema(now);
        let lost: BTreeSet<_> = schema(version).difference(&kept).cloned().collect();
        let is_below = |path: &str| {
            let above = path.match_indices('.').filter_map(|(at, _)| path.get(..at));
            above
                .filter(|above| !above.is_empty())
                .any(|above| lost.contains(above))
        };
        let top = lost.iter().filter(|path| !is_below(path));
        fields.extend(top.map(|path| format!("{name}: {path}")));
    }
    let definition = Definition {
        name: new.name().to_owned(),
        served: is.difference(&was).cloned().collect(),
        gone: was.difference(&is).cloned().collect(),
        storage: stored(&before)
            .zip(stored(&after))
            .filter(|(before, after)| before != after),
        fields,
    };
    let is_same = definition
        == Definition {
            name: definition.name.clone(),
            ..Definition::default()
        };
    (!is_same).then_some(definition)
}

fn versions(definition: &Object) -> BTreeMap<&str, &Value> {
    let versions = definition
        .value()
        .pointer("/spec/versions")
        .and_then(Value::as_array);
    let versions = versions.into_iter().flatten();
    versions
        .filter_map(|version| Some((version["name"].as_str()?, version)))
        .collect()
}

/// Every field of a schema, as `.spec.replicas`; what lists and maps hold has the path of the list or map.
fn paths_of(schema: &Value, at: &str, paths: &mut BTreeSet<String>) {
    for holder in ["items", "additionalProperties"] {
        if let Some(held) = schema.get(holder) {
            paths_of(held, at, paths);
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let path = format!("{at}.{name}");
        paths.insert(path.clone());
        paths_of(property, &path, paths);
    }
}

fn images(object: &Object) -> Vec<String> {
    let pod = object.value().pointer("/spec/template/spec");
    let containers = ["initContainers", "containers"]
        .into_iter()
        .flat_map(|list| {
            let list = pod.and_then(|pod| pod.get(list)).and_then(Value::as_array);
            list.into_iter().flatten()
        });
    containers
        .filter_map(|container| container["image"].as_str().map(str::to_owned))
        .collect()
}

fn rights(old: &Object, new: &Object) -> Option<Rights> {
    let (before, after) = (given(old), given(new));
    (before != after).then(|| Rights {
        role: new.title(),
        gained: after.difference(&before).cloned().collect(),
        lost: before.difference(&after).cloned().collect(),
    })
}

/// Every right of a role by itself.
fn given(role: &Object) -> BTreeSet<String> {
    let mut given = BTreeSet::new();
    let rules = role.value().get("rules").and_then(Value::as_array);
    for rule in rules.into_iter().flatten() {
        let of = |field: &str| {
            let list = rule.get(field).and_then(Value::as_array);
            let texts = list.into_iter().flatten().filter_map(Value::as_str);
            texts.map(str::to_owned).collect::<Vec<_>>()
        };
        let names = of("resourceNames");
        let names = if names.is_empty() {
            String::new()
        } else {
            format!(" {}", names.join(","))
        };
        for verb in of("verbs") {
            for resource in of("resources") {
                for group in of("apiGroups") {
                    let group = if group.is_empty() {
                        group
                    } else {
                        format!(".{group}")
                    };
                    given.insert(format!("{verb} {resource}{group}{names}"));
                }
            }
            given.extend(
                of("nonResourceURLs")
                    .iter()
                    .map(|path| format!("{verb} {path}")),
            );
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Object {
        Object::new(value).unwrap()
    }

    fn definition_of(versions: &Value) -> Object {
        object(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"}, "spec": {"versions": versions},
        }))
    }

    fn role(rules: &Value) -> Object {
        object(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "manager"}, "rules": rules,
        }))
    }

    fn workload(image: &str) -> Object {
        let pod = json!({"spec": {"containers": [{"name": "manager", "image": image}]}});
        object(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "manager", "namespace": "system"},
            "spec": {"template": pod},
        }))
    }

    #[test]
    fn what_an_upgrade_changes_is_told() {
        let schema = |spec: &Value| json!({"openAPIV3Schema": {"properties": {"spec": {"properties": spec}}}});
        let old = [
            definition_of(&json!([
                {"name": "v1", "served": true, "storage": true, "schema": schema(&json!({
                    "a": {"properties": {"b": {}}}, "c": {}, "list": {"items": {"properties": {"d": {}}}},
                }))},
                {"name": "v0", "served": true, "storage": false},
            ])),
            role(&json!([{"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get"]}])),
            workload("example.com/manager:v1"),
            object(
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "old", "namespace": "system"}}),
            ),
        ];
        let new = [
            definition_of(&json!([
                {"name": "v1", "served": true, "storage": false, "schema": schema(&json!({"c": {}, "list": {"items": {}}}))},
                {"name": "v2", "served": true, "storage": true},
            ])),
            role(
                &json!([{"apiGroups": ["", "example.com"], "resources": ["pods"], "verbs": ["get"]}]),
            ),
            workload("example.com/manager:v2"),
        ];
        let difference = Difference::between(&old, &new);
        assert_eq!(difference.removed, ["Service system/old"]);
        assert!(difference.added.is_empty());
        assert_eq!(
            difference.definitions,
            [Definition {
                name: "things.example.com".to_owned(),
                served: vec!["v2".to_owned()],
                gone: vec!["v0".to_owned()],
                storage: Some(("v1".to_owned(), "v2".to_owned())),
                fields: vec!["v1: .spec.a".to_owned(), "v1: .spec.list.d".to_owned()],
            }]
        );
        assert_eq!(
            difference.rights,
            [Rights {
                role: "ClusterRole manager".to_owned(),
                gained: vec!["get pods.example.com".to_owned()],
                lost: vec!["get secrets".to_owned()],
            }]
        );
        assert_eq!(difference.images[0].1, ["example.com/manager:v1"]);
        assert_eq!(Difference::between(&new, &new), Difference::default());
    }
}
