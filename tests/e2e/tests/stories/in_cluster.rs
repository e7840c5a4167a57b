//! Windlass in a real cluster: installed by its manifests, with the rights that they give and no others.
//!
//! The stories of `rights` need an API server alone; that of `node` a node, and the images of `cargo xtask image` in the
//! directory that `WINDLASS_IMAGES` names (`cargo xtask test` makes them).

mod large;
mod node;
mod rights;

use std::{fs, path::Path, process::Command, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use e2e::wait_until;
use lab::command::output;
use serde_json::{Value, json};

/// The namespace of a cluster whose runner has a volume that outlives its pods.
const NAMESPACE: &str = "story";
/// Raising a cluster of one host takes about a minute; a loaded machine may take much longer.
const LIMIT: Duration = Duration::from_mins(10);
/// A cluster of these hosts, the first one its control plane, in a namespace that admits confined pods only.
fn objects(namespace: &str, hosts: &[&str], source: &str, key: &[u8]) -> Vec<Value> {
    let mut items = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        }}),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/ssh-auth",
            "metadata": {"name": "ssh", "namespace": namespace},
            "data": {"ssh-privatekey": STANDARD.encode(key)},
        }),
        json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "namespace": namespace},
            "spec": {
                "kubespray": {"version": "2.30.0", "source": {"path": source}},
                "kubernetesVersion": "1.34.4",
                "runner": {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}},
                "ssh": {"privateKeySecretRef": {"name": "ssh"}},
            },
        }),
    ];
    for (number, host) in (1..).zip(hosts) {
        items.push(json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
            "metadata": {"name": format!("host-{number}"), "namespace": namespace},
            "spec": {
                "type": if number == 1 { "master" } else { "worker" },
                "inventory": {"ansible_host": host},
            },
        }));
    }
    items
}

/// A field of the spec of the Cluster among these objects, as a JSON pointer whose last name may be new.
fn spec_of<'a>(objects: &'a mut [Value], field: &str) -> &'a mut Value {
    let cluster = objects
        .iter_mut()
        .find(|object| object["kind"] == "Cluster");
    let (parent, name) = field.rsplit_once('/').unwrap();
    let spec = &mut cluster.unwrap()["spec"];
    &mut spec.pointer_mut(parent).unwrap()[name]
}

fn apply(kubectl: &mut Command, directory: &Path, objects: &[Value]) {
    output(applying(kubectl, directory, objects)).unwrap();
}

/// The command that applies these objects.
fn applying<'a>(kubectl: &'a mut Command, directory: &Path, objects: &[Value]) -> &'a mut Command {
    let file = directory.join("objects.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    fs::write(&file, list.to_string()).unwrap();
    let arguments = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=story",
        "-f",
    ];
    kubectl.args(arguments).arg(&file)
}

fn get(kubectl: &mut Command, namespace: &str, kind: &str) -> Vec<Value> {
    let text = output(kubectl.args(["-n", namespace, "get", kind, "-o", "json"])).unwrap();
    let list: Value = serde_json::from_str(&text).unwrap();
    list["items"].as_array().cloned().unwrap_or_default()
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Waits for a condition of the cluster.
fn condition(kubectl: &dyn Fn() -> Command, namespace: &str, kind: &str, status: &str) {
    let condition = format!("--for=condition={kind}={status}");
    let wait = [
        "-n",
        namespace,
        "wait",
        &condition,
        "cluster/first",
        "--timeout=120s",
    ];
    output(kubectl().args(wait)).unwrap();
}

/// Waits until cluster and run tell this reason, in these words.
fn await_reason(kubectl: &dyn Fn() -> Command, namespace: &str, reason: &str, words: &str) {
    let tells = |kind: &str, reason: &str| {
        let object = get(&mut kubectl(), namespace, kind).pop();
        let conditions = object.unwrap_or_default()["status"]["conditions"].clone();
        let conditions = conditions.as_array().into_iter().flatten();
        let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
        ready.any(|ready| {
            ready["reason"] == reason && ready["message"].as_str().unwrap().contains(words)
        })
    };
    let of_the_run = if reason == "Creating" {
        "Pending"
    } else {
        reason
    };
    wait_until(&format!("{reason}: {words}"), LIMIT, || {
        Ok((tells("clusters", reason) && tells("runs", of_the_run)).then_some(()))
    })
    .unwrap();
}
