//! What is left to an autoscaler: how many machines there are, and the field that says so.

use inventory::impact::{Bound, Happens, Summary};
use serde_json::{Value, json};

use super::{between, deployment, edited, live, short, told};

#[test]
fn what_is_left_to_an_autoscaler_has_its_bounds_alone() {
    let left = |least: &str, most: &str| {
        let mut object = deployment();
        object["spec"].as_object_mut().unwrap().remove("replicas");
        object["metadata"]["annotations"] = json!({
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": least,
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": most,
        });
        object
    };
    let newer = |object: &Value| edited(object, "/spec/template/spec/version", json!("v1.35.0"));
    let live = live("worker", 4, "v1.34.4");
    let with = |before: &Value, after: &Value| {
        let effects = between(before, after, Some(&live));
        effects.iter().map(short).collect::<Vec<_>>()
    };
    let wide = left("1", "10");
    assert_eq!(told(&wide, &newer(&wide)), "(Replaced, None, Exactly)");
    assert_eq!(
        with(&wide, &newer(&wide)),
        [(Happens::Replaced, Some(4), Bound::Exactly)]
    );
    assert_eq!(
        with(&wide, &left("6", "10")),
        [(Happens::Added, Some(2), Bound::Exactly)]
    );
    assert_eq!(
        with(&wide, &left("1", "3")),
        [(Happens::Removed, Some(1), Bound::Exactly)]
    );
    assert_eq!(with(&wide, &left("2", "9")), []);
    // It is handed over as it stands.
    assert_eq!(told(&deployment(), &wide), "");
    assert_eq!(
        Summary::of(&between(&wide, &newer(&wide), None)).to_string(),
        "all Machines of 1 groups replaced"
    );
}

#[test]
fn replicas_are_left_to_an_autoscaler_that_is_asked_for() {
    const MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
    const MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
    let rendered = |annotations: &str| {
        let text = crate::two_levels("[]", "{}", "{}").replace(
            "{object: {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}}",
            &format!(
                "
  {{object: {{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineDeployment, metadata: {{{annotations}name: w}}, spec: {{replicas: 3, clusterName: c}}}}}},
  {{object: {{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachinePool, metadata: {{{annotations}name: p}}, spec: {{replicas: 3, clusterName: c}}}}}},
  {{object: {{apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlane, metadata: {{{annotations}name: k}}, spec: {{replicas: 3}}}}}},
  {{object: {{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {{name: c}}, spec: {{topology: {{workers: {{machineDeployments: [
    {{name: a, replicas: 3, metadata: {{{annotations}labels: {{}}}}}}, {{name: b, replicas: 3}}]}}}}}}}}}}"
            ),
        );
        let objects = crate::render(&text).unwrap().objects();
        let workers = objects[3]["spec"]["topology"]["workers"]["machineDeployments"].clone();
        let parts = objects[..3].iter().map(|object| &object["spec"]);
        let parts = parts.chain(workers.as_array().unwrap());
        parts
            .map(|part| part["replicas"].as_u64())
            .collect::<Vec<_>>()
    };
    let all = vec![Some(3); 5];
    assert_eq!(rendered(""), all);
    // Cluster API takes it for one that is scaled by an autoscaler if both are there.
    assert_eq!(rendered(&format!("annotations: {{{MIN}: '1'}}, ")), all);
    assert_eq!(
        rendered(&format!("annotations: {{{MIN}: '1', {MAX}: '5'}}, ")),
        [None, None, Some(3), None, Some(3)]
    );
}
