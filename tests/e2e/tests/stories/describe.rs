//! `windlass describe cluster` on a real API server whose management cluster is half broken: a webhook that converts does not answer, and
//! who asks may not see everything.

use std::{fs, path::PathBuf, process::Command};

use e2e::windlass;
use lab::{ControlPlane, Kubernetes, command::output, progress::Terminal};
use serde_json::{Value, json};

const CORE: &str = "cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

/// Stored as v1beta1, served as v1beta2 too, which only a webhook that is not there could make of it, where one converts.
fn definition(group: &str, kind: &str, conversion: &Value) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &str| {
        json!({
            "name": name, "served": true, "storage": name == "v1beta1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "conversion": conversion,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [version("v1beta1"), version("v1beta2")],
        },
    })
}

fn object(group: &str, kind: &str, name: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": format!("{group}/v1beta1"), "kind": kind,
        "metadata": {"name": name, "namespace": "default", "labels": {"cluster.x-k8s.io/cluster-name": "shop"}},
        "spec": spec, "status": status,
    })
}

fn documents(objects: &[Value]) -> String {
    let texts: Vec<_> = objects.iter().map(Value::to_string).collect();
    texts.join("\n---\n")
}

struct World {
    plane: ControlPlane,
}

impl World {
    fn start() -> Self {
        let plane = ControlPlane::start(Kubernetes::Newest, &Terminal::default()).unwrap();
        let none = json!({"strategy": "None"});
        let dead = json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"}}});
        let definitions = plane.dir().join("definitions.yaml");
        let kinds = [
            definition(CORE, "Cluster", &none),
            definition(CORE, "Machine", &dead),
            definition(INFRASTRUCTURE, "TinMachine", &none),
            definition(INFRASTRUCTURE, "TinCluster", &none),
        ];
        fs::write(&definitions, documents(&kinds)).unwrap();
        plane.define(&definitions).unwrap();
        plane.await_definitions().unwrap();
        let world = Self { plane };
        let reference = |kind: &str, name: &str| json!({"apiVersion": format!("{INFRASTRUCTURE}/v1beta1"), "kind": kind, "name": name});
        let waiting = json!({"conditions": [
            {"type": "Ready", "status": "False", "severity": "Info", "reason": "Starting", "message": "it starts", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let ready = json!({"ready": true});
        world.apply(&[
            object(
                CORE,
                "Cluster",
                "shop",
                &json!({"infrastructureRef": reference("TinCluster", "shop")}),
                &waiting,
            ),
            object(INFRASTRUCTURE, "TinCluster", "shop", &json!({}), &ready),
            object(
                CORE,
                "Machine",
                "shop-a",
                &json!({"infrastructureRef": reference("TinMachine", "shop-a")}),
                &waiting,
            ),
            object(INFRASTRUCTURE, "TinMachine", "shop-a", &json!({}), &ready),
        ]);
        world
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        output(self.plane.kubectl().args(arguments)).unwrap()
    }

    fn apply(&self, objects: &[Value]) {
        let file = self.plane.dir().join("objects.yaml");
        fs::write(&file, documents(objects)).unwrap();
        let file = file.to_str().unwrap();
        self.kubectl(&["apply", "--server-side", "--filename", file]);
    }

    /// The kubeconfig of an account that may read clusters and machines, and nothing else.
    fn onlooker(&self) -> PathBuf {
        let role = "onlooker";
        self.kubectl(&["create", "serviceaccount", role]);
        let kinds = "--resource=clusters.cluster.x-k8s.io,machines.cluster.x-k8s.io";
        self.kubectl(&["create", "role", role, "--verb=get,list", kinds]);
        let account = format!("--serviceaccount=default:{role}");
        self.kubectl(&["create", "rolebinding", role, "--role", role, &account]);
        let token = self.kubectl(&["create", "token", role]);
        let config = self.kubectl(&["config", "view", "--raw", "--output=json"]);
        let mut config: Value = serde_json::from_str(&config).unwrap();
        config["users"][0]["user"] = json!({"token": token.trim()});
        let file = self.plane.dir().join("onlooker.conf");
        fs::write(&file, config.to_string()).unwrap();
        file
    }

    fn describe(&self, kubeconfig: PathBuf) -> String {
        let mut command = Command::new(windlass().unwrap());
        command.arg("--data-dir").arg(self.plane.dir().join("data"));
        command.arg("--kubeconfig").arg(kubeconfig);
        output(command.args(["describe", "cluster", "shop"])).unwrap()
    }
}

#[test]
fn a_cluster_is_described_while_its_management_cluster_is_half_broken() {
    let world = World::start();
    let told = world.describe(world.plane.kubeconfig());
    // The machine is read in the version that needs no webhook.
    for line in [
        "Machine/shop-a",
        "Ready (Starting): it starts",
        "infrastructure: TinMachine/shop-a",
        "infrastructure: TinCluster/shop",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    assert!(!told.contains("unread"), "{told}");

    let told = world.describe(world.onlooker());
    for line in ["Machine/shop-a", "TinMachine/shop-a", "TinCluster/shop"] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let forbidden = told.lines().filter(|line| line.contains("is forbidden"));
    // Both objects of infrastructure, above and in the tree.
    assert_eq!(forbidden.count(), 4, "{told}");
}
