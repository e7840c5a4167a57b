//! Whether what a spec says of runner pods gives a pod: told before a run is planned, with the field's name. Pure.

use controller::Problem;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, PodSpec, ResourceRequirements};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::manifest::PLACEMENT;
use crate::subject::Settings;

/// What is wrong with `spec.runner` of a subject of this kind.
pub(super) fn problems(kind: &str, settings: &Settings) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (field, value) in &settings.placement {
        problems.extend(placement(kind, field, value));
    }
    let resources = settings.resources.clone();
    problems.extend(unfit::<ResourceRequirements>(kind, "resources", resources));
    let template = settings.volume_claim_template.as_ref();
    problems.extend(template.and_then(|template| {
        unfit::<PersistentVolumeClaimSpec>(kind, "volumeClaimTemplate", claim_spec(template))
    }));
    problems
}

/// The spec of a claim template: it stands in `spec`, as in a StatefulSet, or is the template.
pub(super) fn claim_spec(template: &Map<String, Value>) -> Map<String, Value> {
    match template.get("spec") {
        Some(Value::Object(spec)) => spec.clone(),
        Some(other) => [("spec".to_owned(), other.clone())].into_iter().collect(),
        None => template.clone(),
    }
}

fn placement(kind: &str, field: &str, value: &Value) -> Option<Problem> {
    if !PLACEMENT.contains(&field) {
        return Some(Problem::new(
            format!("{kind} spec.runner.placement.{field}"),
            "",
            format!(
                "a runner's placement has no such field, it has: {}",
                PLACEMENT.join(", ")
            ),
            "remove it, or write one of these",
        ));
    }
    let mut pod = Map::new();
    pod.insert("containers".to_owned(), json!([]));
    pod.insert(field.to_owned(), value.clone());
    unfit::<PodSpec>(kind, &format!("placement.{field}"), pod)
}

fn unfit<T: DeserializeOwned>(
    kind: &str,
    field: &str,
    value: Map<String, Value>,
) -> Option<Problem> {
    let error = serde_json::from_value::<T>(Value::Object(value)).err()?;
    Some(Problem::new(
        format!("{kind} spec.runner.{field}"),
        "",
        format!("it does not fit into a pod: {error}"),
        "write it as a pod has it; `kubectl explain pod.spec` describes it",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::settings;

    fn problems_of(runner: &Value) -> Vec<String> {
        let settings = settings(&json!({"runner": runner}));
        problems("Widget", &settings)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn what_fits_a_pod_is_taken() {
        let runner = json!({
            "placement": {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]},
            "resources": {"requests": {"cpu": "1"}},
            "volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}},
        });
        assert!(problems_of(&runner).is_empty());
        let bare = json!({"volumeClaimTemplate": {"accessModes": ["ReadWriteOnce"]}});
        assert!(problems_of(&bare).is_empty());
    }

    #[test]
    fn what_does_not_is_named_by_its_field() {
        for (runner, field) in [
            (
                json!({"placement": {"serviceAccountName": "x"}}),
                "placement.serviceAccountName",
            ),
            (
                json!({"placement": {"nodeSelector": ["x"]}}),
                "placement.nodeSelector",
            ),
            (json!({"resources": {"limits": "much"}}), "resources"),
            (
                json!({"volumeClaimTemplate": {"spec": {"accessModes": 1}}}),
                "volumeClaimTemplate",
            ),
            (
                json!({"volumeClaimTemplate": {"accessModes": 1}}),
                "volumeClaimTemplate",
            ),
        ] {
            let found = problems_of(&runner);
            let start = format!("Widget spec.runner.{field}");
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(&start), "{found:?}");
        }
    }
}
