//! A workload cluster of one control plane and one worker on hosts.

use e2e::Hosts;
use serde_json::{Value, json};

/// Its objects, as one list.
pub(super) fn cluster(name: &str, version: &str, etcd: &str) -> Value {
    let plane = format!("{name}-plane");
    let worker = format!("{name}-worker");
    let version = format!("v{version}");
    let objects = vec![
        object(
            CLUSTER,
            "Cluster",
            name,
            &json!({
                "clusterNetwork": {"pods": {"cidrBlocks": ["10.244.0.0/16"]}},
                "controlPlaneRef": reference(CONTROL_PLANE, "KubeadmControlPlane", &plane),
                "infrastructureRef": reference(Hosts::GROUP, "HostCluster", name),
            }),
        ),
        object(Hosts::GROUP, "HostCluster", name, &json!({})),
        object(
            Hosts::GROUP,
            "HostMachineTemplate",
            name,
            &json!({"template": {"spec": {}}}),
        ),
        object(
            CONTROL_PLANE,
            "KubeadmControlPlane",
            &plane,
            &json!({
                "replicas": 1, "version": version,
                "machineTemplate": {"spec": {"infrastructureRef": reference(Hosts::GROUP, "HostMachineTemplate", name)}},
                "kubeadmConfigSpec": {
                    "clusterConfiguration": {
                        "etcd": {"local": {"imageTag": etcd}},
                        // Each host has a network for pods already.
                        "controllerManager": {"extraArgs": [{"name": "allocate-node-cidrs", "value": "false"}]},
                    },
                    "initConfiguration": {"nodeRegistration": registration()},
                    "joinConfiguration": {"nodeRegistration": registration()},
                    "files": [{"path": FURTHER, "content": further()}],
                    // Nothing in Cluster API's own types says it.
                    "preKubeadmCommands": [format!("cat {FURTHER} >> /run/kubeadm/kubeadm.yaml")],
                },
            }),
        ),
        object(
            BOOTSTRAP,
            "KubeadmConfigTemplate",
            &worker,
            &json!({
                "template": {"spec": {"joinConfiguration": {"nodeRegistration": registration()}}},
            }),
        ),
        object(
            CLUSTER,
            "MachineDeployment",
            &worker,
            &json!({
                "clusterName": name, "replicas": 1,
                "selector": {"matchLabels": labels(name)},
                "template": {"metadata": {"labels": labels(name)}, "spec": {
                    "clusterName": name, "version": version,
                    "bootstrap": {"configRef": reference(BOOTSTRAP, "KubeadmConfigTemplate", &worker)},
                    "infrastructureRef": reference(Hosts::GROUP, "HostMachineTemplate", name),
                }},
            }),
        ),
    ];
    json!({"apiVersion": "v1", "kind": "List", "items": objects})
}

/// How a host registers: cloud-init fills in which one it is.
fn registration() -> Value {
    json!({
        "name": "{{ v1.local_hostname }}",
        "criSocket": "unix:///run/containerd/containerd.sock",
        "ignorePreflightErrors": ["SystemVerification"],
        "kubeletExtraArgs": [{"name": "provider-id", "value": "host:///{{ v1.instance_id }}"}],
    })
}

/// What hosts that share the kernel and the disk of a machine take beside what kubeadm configures: see `scripts/node.sh` of `tests/lab`.
fn further() -> String {
    let proxy = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "mode": "iptables", "conntrack": {"maxPerCore": 0},
    });
    let available = json!({"memory.available": "100Mi", "nodefs.available": "100Mi", "imagefs.available": "100Mi"});
    let kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd", "evictionHard": available, "imageGCHighThresholdPercent": 100,
    });
    format!("---\n{proxy}\n---\n{kubelet}\n")
}

fn object(group: &str, kind: &str, name: &str, spec: &Value) -> Value {
    let version = if group == Hosts::GROUP {
        "v1alpha1"
    } else {
        "v1beta2"
    };
    json!({
        "apiVersion": format!("{group}/{version}"), "kind": kind,
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

fn reference(group: &str, kind: &str, name: &str) -> Value {
    json!({"apiGroup": group, "kind": kind, "name": name})
}

fn labels(name: &str) -> Value {
    json!({"cluster.x-k8s.io/cluster-name": name})
}

const CLUSTER: &str = "cluster.x-k8s.io";
const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";
const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";
const FURTHER: &str = "/etc/further-kubeadm.yaml";
