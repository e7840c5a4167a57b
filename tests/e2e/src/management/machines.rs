//! A workload cluster whose machines are in memory.

use serde_json::{Value, json};

/// How long what is in memory takes to come up.
pub(super) fn in_memory() -> Value {
    let part = |duration: &str| json!({"provisioning": {"startupDuration": duration, "startupJitter": "0.2"}});
    json!({"vm": part("2s"), "node": part("1s"), "apiServer": part("1s"), "etcd": part("1s")})
}

/// The objects of a workload cluster of one control plane machine and one worker.
pub(super) fn workload(namespace: &str, name: &str) -> Vec<Value> {
    let machine = |part: &str| format!("{name}-{part}");
    let object = |group: &str, kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": format!("{group}/v1beta2"), "kind": kind,
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        })
    };
    let reference = |kind: &str, name: &str| {
        let group = match kind {
            "KubeadmControlPlane" => CONTROL_PLANE,
            "KubeadmConfigTemplate" => BOOTSTRAP,
            _ => INFRASTRUCTURE,
        };
        json!({"apiGroup": group, "kind": kind, "name": name})
    };
    let template = |part: &str| {
        let spec = json!({"template": {"spec": {"backend": {"inMemory": in_memory()}}}});
        object(INFRASTRUCTURE, "DevMachineTemplate", &machine(part), spec)
    };
    let labels = json!({"cluster.x-k8s.io/cluster-name": name});
    let memory = json!({"backend": {"inMemory": {}}});
    let mut infrastructure = object(INFRASTRUCTURE, "DevCluster", name, memory);
    // Its controller writes an annotation, and falls over where there are none.
    infrastructure["metadata"]["annotations"] = json!({"example.com/in-memory": "true"});
    let version = "v1.34.4";
    vec![
        object(
            CLUSTER,
            "Cluster",
            name,
            json!({
                "clusterNetwork": {"pods": {"cidrBlocks": ["192.168.0.0/16"]}, "services": {"cidrBlocks": ["10.128.0.0/12"]}},
                "controlPlaneRef": reference("KubeadmControlPlane", &machine("plane")),
                "infrastructureRef": reference("DevCluster", name),
            }),
        ),
        infrastructure,
        template("plane"),
        template("worker"),
        object(
            CONTROL_PLANE,
            "KubeadmControlPlane",
            &machine("plane"),
            json!({
                "replicas": 1, "version": version,
                "kubeadmConfigSpec": {"clusterConfiguration": {"apiServer": {"certSANs": ["localhost"]}}},
                "machineTemplate": {"spec": {"infrastructureRef": reference("DevMachineTemplate", &machine("plane"))}},
            }),
        ),
        object(
            BOOTSTRAP,
            "KubeadmConfigTemplate",
            &machine("worker"),
            json!({
                "template": {"spec": {"joinConfiguration": {"nodeRegistration": {"criSocket": "unix:///run/containerd/containerd.sock"}}}},
            }),
        ),
        object(
            CLUSTER,
            "MachineDeployment",
            &machine("worker"),
            json!({
                "clusterName": name, "replicas": 1, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {
                    "clusterName": name, "version": version,
                    "bootstrap": {"configRef": reference("KubeadmConfigTemplate", &machine("worker"))},
                    "infrastructureRef": reference("DevMachineTemplate", &machine("worker")),
                }},
            }),
        ),
    ]
}

const CLUSTER: &str = "cluster.x-k8s.io";
const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";
const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
