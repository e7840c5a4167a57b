//! The providers of Cluster API, played: definitions of their kinds, and what their operators would say of the objects. No machine
//! is behind them.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use anyhow::Context;
use e2e::Stage;
use lab::command::output;
use serde_json::{Value, json};

/// How long an operator is at work on a change.
const AT_WORK: Duration = Duration::from_secs(5);
/// What says of itself how it stands.
const TELL: &str = "clusters.cluster.x-k8s.io,machinedeployments.cluster.x-k8s.io,kubeadmcontrolplanes.controlplane.cluster.x-k8s.io";
const KINDS: [(&str, &str); 6] = [
    ("cluster.x-k8s.io", "Cluster"),
    ("cluster.x-k8s.io", "MachineDeployment"),
    ("controlplane.cluster.x-k8s.io", "KubeadmControlPlane"),
    ("bootstrap.cluster.x-k8s.io", "KubeadmConfigTemplate"),
    ("infrastructure.cluster.x-k8s.io", "DevCluster"),
    ("infrastructure.cluster.x-k8s.io", "DevMachineTemplate"),
];

/// What was seen of each object: its generation, and since when.
#[derive(Default)]
pub(super) struct Played {
    seen: BTreeMap<String, (i64, Instant)>,
}

impl Played {
    /// Says of each object that has been at work for long enough that it is Available.
    pub(super) fn step(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let get = ["get", TELL, "--all-namespaces", "--output", "json"];
        let list: Value = serde_json::from_str(&output(&mut stage.kubectl(&get))?)?;
        let objects = list["items"].as_array().into_iter().flatten();
        let due: Vec<_> = objects.filter_map(|object| self.due(object)).collect();
        if due.is_empty() {
            return Ok(());
        }
        let file = stage.lab.dir().join("played.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": due});
        fs::write(&file, serde_json::to_vec(&list)?).context("failed to write a status")?;
        let mut apply = stage.kubectl(&[
            "apply",
            "--server-side",
            "--subresource=status",
            "--validate=false",
            "--field-manager=played",
            "--filename",
        ]);
        output(apply.arg(&file))?;
        Ok(())
    }

    fn due(&mut self, object: &Value) -> Option<Value> {
        let generation = object["metadata"]["generation"].as_i64()?;
        if object["status"]["observedGeneration"].as_i64() == Some(generation) {
            return None;
        }
        let uid = object["metadata"]["uid"].as_str()?.to_owned();
        let new = (generation, Instant::now());
        let seen = self.seen.entry(uid).or_insert(new);
        if seen.0 != generation {
            *seen = new;
        }
        let metadata = &object["metadata"];
        (seen.1.elapsed() >= AT_WORK).then(|| {
            json!({
                "apiVersion": object["apiVersion"], "kind": object["kind"],
                "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
                "status": {
                    "observedGeneration": generation,
                    "conditions": [{"type": "Available", "status": "True", "reason": "Played", "message": "played by the demo"}],
                },
            })
        })
    }
}

/// Definitions of their kinds, without the schemas of the real ones.
pub(super) fn definitions() -> Value {
    let definitions: Vec<_> = KINDS
        .iter()
        .map(|(group, kind)| definition(group, kind))
        .collect();
    json!({"apiVersion": "v1", "kind": "List", "items": definitions})
}

fn definition(group: &str, kind: &str) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": singular},
            "versions": [{
                "name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
            }],
        },
    })
}
