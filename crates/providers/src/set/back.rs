//! Whether a provider whose new version did not get ready may have the old one again.
//!
//! An old version knows old versions of its kinds. Objects that may be stored in one that it does not know could not be read
//! any more, so nothing goes back to it then. What was stored in the new version, and is known to both, is stored anew by the run that goes back.

use std::collections::BTreeSet;

use api::{
    Run,
    run::{RunPhase, StepPhase},
};
use clusterctl::{Object, label};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt, api::ListParams};
use runs::phase;
use serde_json::Value;

use crate::{action::Action, inputs::Inputs, operation::Operation, render, stand::Stand, target};

/// Whether there is a way back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Back {
    /// There is.
    Open,
    /// There is none, and why.
    Closed(String),
}

/// Why the last upgrade of a provider to that version failed, if its workloads did not get ready.
pub(super) fn failure(runs: &[Run], version: &str) -> Option<String> {
    let run = runs.iter().rfind(|run| is_upgrade(run, version))?;
    let status = run.status.as_ref()?;
    let mut steps = status.steps.iter();
    let is_unready = phase(run) == RunPhase::Failed
        && steps.any(|step| step.id == Action::AwaitReady.id() && step.phase == StepPhase::Failed);
    let message = status
        .failure
        .as_ref()
        .map(|failure| failure.message.clone());
    is_unready.then(|| {
        let why = message.unwrap_or_default();
        format!(
            "{version} did not get ready in run {}: {why}",
            run.name_any()
        )
    })
}

fn is_upgrade(run: &Run, version: &str) -> bool {
    let inputs = Inputs::from_map(&run.spec.plan.inputs);
    run.spec.operation == Operation::Upgrade.name()
        && inputs.is_ok_and(|inputs| inputs.version == version)
}

/// Looks whether the version that a provider had may be installed again.
pub(super) async fn look(own: &Client, stand: &Stand, from: &str) -> Back {
    let closed = |why: String| Back::Closed(why);
    let Some(label) = stand.label() else {
        return closed(format!("{} is no provider by its name", stand.title()));
    };
    let old = match from.parse().map(|version| stand.objects(&version)) {
        Ok(Ok(Some(objects))) => objects,
        Ok(Ok(None)) => {
            return closed(
                "no ConfigMap keeps it; load it with `windlass providers preload`".to_owned(),
            );
        }
        Ok(Err(error)) => return closed(controller::chain(&error)),
        Err(error) => return closed(error.to_string()),
    };
    let there = match target::client(own, &stand.namespace, stand.target.as_deref()).await {
        Ok(there) => there,
        Err(error) => return closed(controller::chain(&error)),
    };
    let selector = format!("{}={label}", label::PROVIDER);
    let found = Api::<CustomResourceDefinition>::all(there)
        .list(&ListParams::default().labels(&selector))
        .await;
    match found.map(|found| unknown(&found.items, &old)) {
        Ok(unknown) if unknown.is_empty() => Back::Open,
        Ok(unknown) => closed(format!("{}; it could not read these", unknown.join("; "))),
        Err(error) => closed(controller::chain(&error)),
    }
}

/// Versions in which objects may be stored and which the definitions of `old` do not have. A definition that `old` does not have at all stays
/// as it is.
fn unknown(found: &[CustomResourceDefinition], old: &[Object]) -> Vec<String> {
    let mut unknown = Vec::new();
    for definition in found {
        let name = definition.name_any();
        let mut old = old.iter().filter(|object| render::is_definition(object));
        let Some(old) = old.find(|object| object.name() == name) else {
            continue;
        };
        let versions = old.value().pointer("/spec/versions");
        let versions = versions.and_then(Value::as_array).into_iter().flatten();
        let known: BTreeSet<_> = versions
            .filter_map(|version| version["name"].as_str())
            .collect();
        let status = definition.status.iter();
        let stored = status.flat_map(|status| status.stored_versions.iter().flatten());
        for version in stored.filter(|version| !known.contains(version.as_str())) {
            unknown.push(format!("objects of {name} may be stored as {version}"));
        }
    }
    unknown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(name: &str, versions: &[&str], stored: &[&str]) -> Value {
        let versions: Vec<_> = versions
            .iter()
            .map(|name| json!({"name": name, "served": true, "storage": false}))
            .collect();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"}, "versions": versions},
            "status": {"storedVersions": stored},
        })
    }

    #[test]
    fn nothing_goes_back_to_a_version_that_does_not_know_what_is_stored() {
        let old = Object::new(definition("things.example.com", &["v1", "v2"], &[])).unwrap();
        let told = |name: &str, stored: &[&str]| {
            let found = serde_json::from_value(definition(name, &["v1", "v2", "v3"], stored));
            unknown(&[found.unwrap()], std::slice::from_ref(&old))
        };
        assert_eq!(
            told("things.example.com", &["v1", "v2"]),
            Vec::<String>::new()
        );
        assert_eq!(
            told("things.example.com", &["v2", "v3"]),
            ["objects of things.example.com may be stored as v3"]
        );
        assert_eq!(told("new.example.com", &["v3"]), Vec::<String>::new());
    }

    /// An upgrade that failed at a step.
    fn upgrade(version: &str, step: &str) -> Run {
        serde_json::from_value(json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": "core-upgrade-2"},
            "spec": {
                "subject": {"apiGroup": "operator.cluster.x-k8s.io", "kind": "CoreProvider", "name": "cluster-api"},
                "operation": "Upgrade", "generation": 1,
                "plan": {"digest": "d", "steps": [], "inputs": {"version": version, "contract": "v1beta2"}},
            },
            "status": {
                "phase": "Failed", "steps": [{"id": step, "phase": "Failed"}],
                "failure": {"class": "Config", "code": "NotReady", "message": "no pod is up"},
            },
        }))
        .unwrap()
    }

    #[test]
    fn what_did_not_get_ready_goes_back_and_nothing_else_that_failed() {
        let runs = [upgrade("v1.14.2", Action::AwaitReady.id())];
        assert_eq!(
            failure(&runs, "v1.14.2").as_deref(),
            Some("v1.14.2 did not get ready in run core-upgrade-2: no pod is up")
        );
        assert_eq!(failure(&runs, "v1.14.3"), None);
        let before = [upgrade("v1.14.2", Action::Preflight.id())];
        assert_eq!(failure(&before, "v1.14.2"), None);
    }
}
