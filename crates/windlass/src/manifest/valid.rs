//! What an API would say of objects before it takes them: the definitions of Windlass' kinds, held against objects of files.

use std::collections::BTreeMap;

use anyhow::Context;
use api::crd::{SETS, Set};
use kapi::schema::{FieldError, Fields, RULES_NOT_CHECKED, Schema};
use kube::api::DynamicObject;
use kubespray::problem::nearest;
use serde_json::Value;

/// Kinds that a plan is made of.
const PLANNED: [&str; 2] = ["Cluster", "ClusterNode"];
/// Kinds of Kubernetes that stand beside Windlass' and need no word.
const KNOWN: [&str; 2] = ["Namespace", "Secret"];

/// The schemas of Windlass' kinds, by apiVersion and kind.
struct Schemas(BTreeMap<(String, String), Schema>);

impl Schemas {
    fn new() -> anyhow::Result<Self> {
        let mut schemas = BTreeMap::new();
        for definition in SETS.into_iter().flat_map(Set::definitions) {
            let (group, kind) = (definition.spec.group, definition.spec.names.kind);
            for version in definition.spec.versions {
                let schema = version.schema.and_then(|schema| schema.open_api_v3_schema);
                let Some(schema) = schema else { continue };
                let source = serde_json::to_value(schema).context("failed to read a definition")?;
                let schema = Schema::compile_stored(&source)
                    .map_err(|errors| anyhow::anyhow!("{kind}: {}", errors.join("; ")))?;
                schemas.insert((format!("{group}/{}", version.name), kind.clone()), schema);
            }
        }
        Ok(Self(schemas))
    }

    /// The kinds that a group has, if it is one of Windlass'.
    fn kinds(&self, api_version: &str) -> Vec<&str> {
        let group = |api_version: &str| api_version.split('/').next().map(str::to_owned);
        let of_group = self
            .0
            .keys()
            .filter(|(of, _)| group(of) == group(api_version));
        of_group.map(|(_, kind)| kind.as_str()).collect()
    }
}

/// Holds objects of Windlass' kinds against their definitions. Returns those of kinds that nothing is done with.
///
/// # Errors
///
/// Everything that is wrong with all of them: a field that nobody knows, a value of another type or out of bounds, a kind that the
/// group does not have.
pub(crate) fn check(objects: &[DynamicObject]) -> anyhow::Result<Vec<String>> {
    let values = objects.iter().map(serde_json::to_value);
    let values: Vec<_> = values.collect::<Result<_, _>>()?;
    check_values(&values)
}

/// The same of objects that were not read yet.
///
/// # Errors
///
/// As [`check`].
pub(crate) fn check_values<'a>(
    objects: impl IntoIterator<Item = &'a Value>,
) -> anyhow::Result<Vec<String>> {
    let schemas = Schemas::new()?;
    let mut wrong = Vec::new();
    let mut others = Vec::new();
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let shown = format!("{kind} {}", text(&object["metadata"]["name"]));
        let kinds = schemas.kinds(&version);
        // Read beside a plan.
        let is_known = version == "v1" && KNOWN.contains(&kind.as_str());
        let is_planned = PLANNED.contains(&kind.as_str());
        let lower = kind.to_lowercase();
        let rule = |name| super::rule(&version, name);
        match schemas.0.get(&(version.clone(), kind)) {
            Some(schema) => {
                others.extend((!is_planned).then(|| shown.clone()));
                let faults = faults(schema, &lower, object.clone());
                let rule = rule("Schema");
                wrong.extend(
                    faults
                        .into_iter()
                        .map(|fault| format!("{shown}: {fault}{rule}")),
                );
            }
            None if is_known => {}
            None if kinds.is_empty() => others.push(shown),
            None => wrong.push(format!(
                "{shown}: {version} has no such kind: write one of {}{}",
                kinds.join(", "),
                rule("UnknownKind")
            )),
        }
    }
    anyhow::ensure!(
        wrong.is_empty(),
        "{}\nthe rest (versions, variables, what the objects say of each other) is checked when this is put right",
        wrong.join("\n")
    );
    Ok(others)
}

/// What is wrong with an object, as the API tells it.
fn faults(schema: &Schema, kind: &str, mut value: Value) -> Vec<String> {
    if let Some(undecodable) = schema.undecodable(&value, Fields::Metadata) {
        return vec![undecodable];
    }
    let unknown = schema.prune(&mut value).into_iter();
    let mut faults: Vec<_> = unknown
        .map(|path| unknown_field(schema.source(), kind, &path))
        .collect();
    schema.default(&mut value);
    let errors = schema.validate(&value, None);
    // That rules could not be asked says nothing to mend.
    let errors = errors
        .iter()
        .filter(|error| !error.message.ends_with(RULES_NOT_CHECKED));
    let told: Vec<_> = errors.map(|error| with_remedy(error, &value)).collect();
    faults.extend(told);
    faults
}

/// A field that nobody knows, and the one that may be meant.
fn unknown_field(schema: &Value, kind: &str, path: &str) -> String {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let place = parts(parent).try_fold(schema, |place, part| match part {
        Part::Field(name) => place
            .get("properties")
            .and_then(|fields| fields.get(name))
            .or_else(|| place.get("additionalProperties")),
        Part::Item(_) => place.get("items"),
    });
    let fields = place.and_then(|place| place.get("properties")?.as_object());
    let names = fields.into_iter().flatten().map(|(name, _)| name.as_str());
    let meant = nearest(name, names).map_or_else(String::new, |meant| {
        format!("write {meant}, if that is meant, or ")
    });
    let mut explained = kind.to_owned();
    for part in parts(parent) {
        if let Part::Field(name) = part {
            explained.push('.');
            explained.push_str(name);
        }
    }
    format!("unknown field {path}: {meant}remove it; what there is: kubectl explain {explained}")
}

/// A step on the way to a field.
enum Part<'a> {
    Field(&'a str),
    Item(usize),
}

/// The way to a field: `spec.list[0].bar`.
fn parts(path: &str) -> impl Iterator<Item = Part<'_>> {
    let parts = path.split(['.', '[']).filter(|part| !part.is_empty());
    parts.map(|part| {
        let item = part.strip_suffix(']').and_then(|item| item.parse().ok());
        item.map_or(Part::Field(part), Part::Item)
    })
}

/// What is wrong with a value, and how it is written.
fn with_remedy(error: &FieldError, object: &Value) -> String {
    let told = error.to_string();
    if let Some((wrong, _)) = told.split_once(" in body should match '^([0-9]{1,9}[smhdwy])+$'") {
        return format!("{wrong} is no duration: write one such as 30s, 10m, 2h or 31d");
    }
    let wants = |kind: &str| told.contains(&format!("must be of type {kind}:"));
    let remedy = if wants("string") {
        // YAML takes what looks like a number for one.
        "write it in quotes".to_owned()
    } else if wants("object") {
        format!("write {}", map(written(object, &error.path)))
    } else if wants("array") {
        "write a list, such as [ONE, TWO]".to_owned()
    } else if told.ends_with(": \"string\"") {
        "write it without quotes".to_owned()
    } else if let Some(remedy) = within_bounds(&told) {
        remedy
    } else {
        return told;
    };
    format!("{told}: {remedy}")
}

/// What to write where a value is out of bounds, or missing.
fn within_bounds(told: &str) -> Option<String> {
    let bound = |words: &str| told.split_once(words).map(|(_, bound)| bound);
    if let Some(least) = bound("should be greater than or equal to ") {
        return Some(format!("write {least} or more"));
    }
    if let Some(most) = bound("should be less than or equal to ") {
        return Some(format!("write {most} or less"));
    }
    let remedies = [
        ("Unsupported value: ", "write one of them"),
        ("Duplicate value: ", "remove one of the two"),
        ("Too many: ", "remove some"),
        ("Too long: ", "write a shorter one"),
        (": Required value", "write it"),
    ];
    let remedy = remedies.into_iter().find(|(words, _)| told.contains(words));
    remedy.map(|(_, remedy)| remedy.to_owned())
}

fn written<'a>(object: &'a Value, path: &str) -> Option<&'a str> {
    let value = parts(path).try_fold(object, |value, part| match part {
        Part::Field(name) => value.get(name),
        Part::Item(at) => value.get(at),
    });
    value?.as_str()
}

/// A map; what was written as a label selector is kept in it.
fn map(written: Option<&str>) -> String {
    match written.and_then(|written| written.split_once('=')) {
        Some((key, value)) => format!("{{{key}: {value}}}"),
        None => "a map, such as {KEY: VALUE}".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, kind: &str, spec: &Value) -> DynamicObject {
        let metadata = json!({"name": "a", "namespace": "b"});
        let object =
            json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let group = "kubespray.k8s.io/v1";
        let objects = [
            object(
                group,
                "Cluster",
                &json!({"kubesprai": {}, "kubernetesVersion": 1.34}),
            ),
            object(
                group,
                "ClusterNode",
                &json!({"type": "boss", "inventory": {"ansible_host": "h"}}),
            ),
            object(group, "Clusternode", &json!({})),
        ];
        let told = check(&objects).unwrap_err().to_string();
        for part in [
            "Cluster a: unknown field spec.kubesprai",
            "Cluster a: spec.kubernetesVersion",
            "ClusterNode a: spec.type",
            "Clusternode a: kubespray.k8s.io/v1 has no such kind: write one of",
            "write it in quotes",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }

    #[test]
    fn a_fault_is_told_with_what_to_write() {
        let wrong = json!({
            "kubernetsVersion": "1.34.3",
            "maintenance": {"windows": [{"schedule": "0 1 * * 6", "duration": "5 min", "timezone": "UTC"}]},
            "operations": {"upgrade": {"gate": {"selector": "app=web"}}},
        });
        let cluster = object("kubespray.k8s.io/v1", "Cluster", &wrong);
        let told = check(&[cluster]).unwrap_err().to_string();
        for part in [
            "unknown field spec.kubernetsVersion: write kubernetesVersion, if that is meant, or remove it; what there is: kubectl explain \
             cluster.spec\n",
            "unknown field spec.maintenance.windows[0].timezone: write timeZone, if",
            "kubectl explain cluster.spec.maintenance.windows\n",
            "windows[0].duration is no duration: write one such as 30s, 10m, 2h",
            ": write {app: web}",
            "is checked when this is put right",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!told.contains("<nil>"), "{told}");
    }

    #[test]
    fn what_is_out_of_bounds_in_an_inventory_is_told_with_its_rule_and_what_to_write() {
        let wrong = json!({
            "budgets": [{"level": "site", "maximum": 0}, {"maximum": 2000}, {"level": "site", "maximum": "2"}],
            "approval": "Sometimes",
        });
        let rollout = object("inventory.windlass.dev/v1alpha1", "Rollout", &wrong);
        let told = check(&[rollout]).unwrap_err().to_string();
        for part in [
            "spec.budgets[0].maximum in body should be greater than or equal to 1: write 1 or more [Schema]\n",
            "write it [Schema]\n",
            "must be of type integer: \"string\": write it without quotes [Schema]\n",
            "write one of them [Schema]\n",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }

    #[test]
    fn a_rule_over_several_fields_names_the_one_that_is_to_go() {
        let rotate = json!({"rotate": {"schedule": "0 2 1 * *"}});
        let spec = json!({
            "database": {"external": {"host": "db.example.org", "adminSecret": {"name": "db"}}},
            "services": [{"name": "keystone", "image": "k"}],
            "passwords": {"databaseServer": rotate},
        });
        let cloud = object("openstack.windlass.dev/v1alpha1", "OpenStack", &spec);
        let told = check(&[cloud]).unwrap_err().to_string();
        assert!(told.contains("spec.passwords.databaseServer: "), "{told}");
        assert!(!told.contains("<nil>"), "{told}");
    }

    #[test]
    fn objects_of_every_set_are_looked_at() {
        for set in SETS {
            for definition in set.definitions() {
                let spec = definition.spec;
                let group = format!("{}/{}", spec.group, spec.versions[0].name);
                let unknown = object(&group, &spec.names.kind, &json!({"unknownField": 1}));
                let told = check(&[unknown]).unwrap_err().to_string();
                assert!(told.contains("unknown field spec.unknownField"), "{told}");
            }
        }
    }

    #[test]
    fn what_an_api_takes_is_taken() {
        let spec = json!({"type": "worker", "inventory": {"ansible_host": "192.0.2.1"}});
        let node = object("kubespray.k8s.io/v1", "ClusterNode", &spec);
        let others = check(&[node, object("v1", "ConfigMap", &json!({}))]).unwrap();
        assert_eq!(others, ["ConfigMap a"]);
    }
}
