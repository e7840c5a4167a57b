//! `windlass describe cluster` against an API: what it finds there by itself, in whatever version, and what it says of what it cannot
//! find.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{net::SocketAddr, path::PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kapi::{Options, Server};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use tokio::process::Command;

/// A kind in these versions, the last of which is stored.
fn definition(group: &str, kind: &str, versions: &[&str]) -> CustomResourceDefinition {
    let plural = format!("{}s", kind.to_lowercase());
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let versions = versions.iter().enumerate().map(|(at, version)| {
        json!({
            "name": version, "served": true, "storage": at + 1 == versions.len(), "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
        })
    });
    serde_json::from_value(json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "versions": versions.collect::<Vec<_>>(),
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
        },
    }))
    .unwrap()
}

struct World {
    client: Client,
    kubeconfig: PathBuf,
    home: tempfile::TempDir,
}

impl World {
    async fn start(crds: Vec<CustomResourceDefinition>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let server = Server::open(Options {
            data_dir: home.path().join("api"),
            crds,
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        })
        .await
        .unwrap();
        let kubeconfig = server.kubeconfig().unwrap().to_owned();
        let client = Client::new(server.router(), "default");
        tokio::spawn(async move { server.serve(std::future::pending()).await });
        Self {
            client,
            kubeconfig,
            home,
        }
    }

    async fn object(&self, group: &str, version: &str, kind: &str, name: &str, object: Value) {
        let mut object = object;
        object["apiVersion"] = format!("{group}/{version}").into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = name.into();
        object["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] = "shop".into();
        let status = json!({"apiVersion": object["apiVersion"], "kind": kind, "status": object["status"].take()});
        object.as_object_mut().unwrap().remove("status");
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), "default", &resource);
        let parameters = PatchParams::apply("test").force();
        api.patch(name, &parameters, &Patch::Apply(&object))
            .await
            .unwrap();
        api.patch_status(name, &parameters, &Patch::Apply(&status))
            .await
            .unwrap();
    }

    /// Standard output, or standard error where it failed.
    async fn describe(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--data-dir")
            .arg(self.home.path().join("data"))
            .args(["describe", "cluster"])
            .args(arguments)
            .output()
            .await
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() {
            Ok(text(output.stdout))
        } else {
            Err(text(output.stderr))
        }
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

const CORE: &str = "cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const ADDONS: &str = "addons.cluster.x-k8s.io";
const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_read_in_the_versions_that_the_api_serves() {
    let world = World::start(vec![
        definition(CORE, "Cluster", &["v1beta1", "v1beta2"]),
        definition(CORE, "Machine", &["v1beta1", "v1beta2"]),
        definition(INFRASTRUCTURE, "TinMachine", &["v1alpha7"]),
        definition(INFRASTRUCTURE, "TinCluster", &["v1alpha7"]),
    ])
    .await;
    let available = json!({"conditions": [condition("Available", "False", "NotAvailable", "* WorkersAvailable: no")]});
    let spec = json!({
        // Of v1beta1, in a version that is served no more.
        "infrastructureRef": {"apiVersion": format!("{INFRASTRUCTURE}/v1alpha3"), "kind": "TinCluster", "name": "shop"},
        "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "TinPlane", "name": "shop"},
    });
    let cluster = json!({"spec": spec, "status": available});
    world
        .object(CORE, "v1beta2", "Cluster", "shop", cluster)
        .await;
    let provisioned = json!({"status": {"ready": true}});
    world
        .object(
            INFRASTRUCTURE,
            "v1alpha7",
            "TinCluster",
            "shop",
            provisioned.clone(),
        )
        .await;
    for at in 0..5 {
        let name = format!("shop-{at}");
        let spec = json!({
            "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "TinMachine", "name": name},
            "bootstrap": {"configRef": {"apiGroup": BOOTSTRAP, "kind": "TinConfig", "name": name}},
        });
        let spec = if at == 0 {
            spec
        } else {
            json!({"infrastructureRef": spec["infrastructureRef"]})
        };
        let status = json!({"conditions": [condition("Ready", if at == 1 { "False" } else { "True" }, "Some", "")]});
        let machine = json!({"spec": spec, "status": status});
        world
            .object(CORE, "v1beta2", "Machine", &name, machine)
            .await;
        // One of them is not there.
        if at != 4 {
            let status = match at {
                1 => {
                    json!({"status": {"conditions": [condition("Powered", "False", "NoPower", "the \u{1b}[31mswitch\u{1b}[0m is off")]}})
                }
                _ => provisioned.clone(),
            };
            world
                .object(INFRASTRUCTURE, "v1alpha7", "TinMachine", &name, status)
                .await;
        }
    }
    let shown = world.describe(&["shop"]).await.unwrap();
    let told: Vec<&str> = shown.lines().collect();
    assert_eq!(told[0], "Cluster/shop waits for:", "{shown}");
    assert!(
        told[1].trim_start().starts_with("TinMachine/shop-4"),
        "{shown}"
    );
    assert!(
        told[2].contains("Powered (NoPower): the switch is off"),
        "{shown}"
    );
    for line in [
        "control plane: TinPlane/shop",
        "it cannot be read: the API serves no TinPlane of controlplane.cluster.x-k8s.io",
        "infrastructure: TinCluster/shop",
        "the API serves no TinConfig of bootstrap.cluster.x-k8s.io",
        "2 Machines: shop-2, shop-3",
        "it is referred to and not there",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let single = world
        .describe(&["shop", "--grouping=false", "--show-conditions", "all"])
        .await
        .unwrap();
    assert!(single.contains("Machine/shop-2 "), "{single}");
    assert!(single.contains("Some"), "{single}");

    let document = world.describe(&["shop", "-o", "json"]).await.unwrap();
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(
        document["tree"]["apiVersion"],
        format!("{CORE}/v1beta2"),
        "the newest that is served"
    );
    assert_eq!(document["unfinished"][0]["names"], json!(["shop-4"]));

    let other = world.describe(&["other"]).await.unwrap_err();
    assert!(
        other.contains("no Cluster other of cluster.x-k8s.io in namespace default, but shop"),
        "{other}"
    );
    let no_name = world.describe(&["../shop"]).await.unwrap_err();
    assert!(no_name.contains("NAME is"), "{no_name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_selects_the_cluster_is_shown_before_it_is_applied() {
    let world = World::start(vec![
        definition(CORE, "Cluster", &["v1beta2"]),
        definition(ADDONS, "ClusterResourceSet", &["v1beta2"]),
        definition(ADDONS, "ClusterResourceSetBinding", &["v1beta2"]),
    ])
    .await;
    let available = json!({"conditions": [condition("Available", "True", "Available", "")]});
    let cluster = json!({"spec": {}, "status": available});
    world
        .object(CORE, "v1beta2", "Cluster", "shop", cluster)
        .await;
    let spec = json!({
        "clusterSelector": {"matchLabels": {"cluster.x-k8s.io/cluster-name": "shop"}},
        "resources": [{"kind": "ConfigMap", "name": "calico"}, {"kind": "Secret", "name": "pool"}],
    });
    let lacks = json!({"conditions": [condition("ResourcesApplied", "False", "InternalError", "see the logs")]});
    let set = json!({"spec": spec, "status": lacks});
    world
        .object(ADDONS, "v1beta2", "ClusterResourceSet", "network", set)
        .await;
    let unbound = world.describe(&["shop"]).await.unwrap();
    let told = "ResourcesApplied (InternalError): ConfigMap/calico, Secret/pool are not applied: see the logs";
    assert!(unbound.contains(told), "{unbound}");
    let resources = json!([{"kind": "ConfigMap", "name": "calico", "applied": true}]);
    let binding = json!({"spec": {"bindings": [{"clusterResourceSetName": "network", "resources": resources}]}, "status": {}});
    world
        .object(
            ADDONS,
            "v1beta2",
            "ClusterResourceSetBinding",
            "shop",
            binding,
        )
        .await;
    let bound = world.describe(&["shop"]).await.unwrap();
    assert!(bound.contains("Secret/pool is not applied"), "{bound}");
    assert!(bound.contains(" 1/2 "), "{bound}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_without_cluster_api_is_told_as_one() {
    let world = World::start(Vec::new()).await;
    let refused = world.describe(&["shop"]).await.unwrap_err();
    assert!(
        refused.contains("the API serves no Cluster of cluster.x-k8s.io"),
        "{refused}"
    );
}
