//! Whether what a spec says of runner pods gives a pod: told before a run is planned, with the field's name. Pure.

use api::cluster::ClusterSpec;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, PodSpec, ResourceRequirements};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::manifest::PLACEMENT;
use crate::problem::Problem;

/// What is wrong with `spec.runner`.
pub(crate) fn problems(spec: &ClusterSpec) -> Vec<Problem> {
    let Some(runner) = &spec.runner else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    for (field, value) in runner.placement.iter().flatten() {
        problems.extend(placement(field, value));
    }
    let resources = runner.resources.as_ref();
    problems.extend(
        resources.and_then(|value| unfit::<ResourceRequirements>("resources", value.clone())),
    );
    let template = runner.volume_claim_template.as_ref();
    problems.extend(template.and_then(|template| {
        unfit::<PersistentVolumeClaimSpec>("volumeClaimTemplate", claim_spec(template))
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

fn placement(field: &str, value: &Value) -> Option<Problem> {
    if !PLACEMENT.contains(&field) {
        return Some(Problem::new(
            format!("Cluster spec.runner.placement.{field}"),
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
    unfit::<PodSpec>(&format!("placement.{field}"), pod)
}

fn unfit<T: DeserializeOwned>(field: &str, value: Map<String, Value>) -> Option<Problem> {
    let error = serde_json::from_value::<T>(Value::Object(value)).err()?;
    Some(Problem::new(
        format!("Cluster spec.runner.{field}"),
        "",
        format!("it does not fit into a pod: {error}"),
        "write it as a pod has it; `kubectl explain pod.spec` describes it",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(runner: &Value) -> Vec<String> {
        let spec = serde_json::from_value(json!({"runner": runner})).unwrap();
        problems(&spec).iter().map(ToString::to_string).collect()
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
            let start = format!("Cluster spec.runner.{field}");
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(&start), "{found:?}");
        }
    }
}
