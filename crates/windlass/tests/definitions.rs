//! `windlass providers delete --include-crds`: which definitions go with a provider, and which not.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::SocketAddr;

use k8s_openapi::{
    api::core::v1::Namespace,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kapi::{Options, Server};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use tokio::process::Command;

struct World {
    client: Client,
    kubeconfig: std::path::PathBuf,
    home: tempfile::TempDir,
}

impl World {
    /// An API that serves providers, without anybody who acts on them.
    async fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let server = Server::open(Options {
            data_dir: home.path().join("api"),
            crds: api::provider::provider_definitions(),
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

    fn definitions(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.client.clone())
    }

    /// A definition with the label of the provider of boats.
    async fn define(&self, kind: &str, annotations: &Value) {
        let labels = json!({"cluster.x-k8s.io/provider": "infrastructure-boat"});
        let metadata = json!({"labels": labels, "annotations": annotations});
        let definition = definition("example.com", kind, &metadata);
        let parameters = PostParams::default();
        let made = self.definitions().create(&parameters, &definition).await;
        made.unwrap();
    }

    async fn is_defined(&self, kind: &str) -> bool {
        let name = format!("{}s.example.com", kind.to_lowercase());
        self.definitions().get_opt(&name).await.unwrap().is_some()
    }

    async fn apply(&self, object: &Value) {
        let text = |field: &str| object[field].as_str().unwrap();
        let (group, version) = text("apiVersion").split_once('/').unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("kind")));
        let api: Api<DynamicObject> = Api::default_namespaced_with(self.client.clone(), &resource);
        let name = object["metadata"]["name"].as_str().unwrap();
        let parameters = PatchParams::apply("test");
        api.patch(name, &parameters, &Patch::Apply(object))
            .await
            .unwrap();
    }

    /// Everything that `providers delete` says of the provider of boats, with its success.
    async fn delete(&self, more: &[&str]) -> (bool, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--data-dir")
            .arg(self.home.path().join("data"))
            .args(["providers", "delete", "--infrastructure", "boat"])
            .args(more)
            .output()
            .await
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }
}

fn definition(group: &str, kind: &str, metadata: &Value) -> CustomResourceDefinition {
    let plural = format!("{}s", kind.to_lowercase());
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {
            "name": format!("{plural}.{group}"),
            "labels": metadata["labels"], "annotations": metadata["annotations"],
        },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": open}}],
        },
    });
    serde_json::from_value(definition).unwrap()
}

fn boat(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": name}})
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_go_with_a_provider_where_a_person_says_so_and_nothing_is_of_them() {
    let world = World::start().await;
    world.define("Boat", &json!({})).await;
    world.define("Sail", &json!({})).await;
    let helm = json!({"meta.helm.sh/release-name": "harbour"});
    world.define("Mast", &helm).await;
    world
        .apply(&json!({
            "apiVersion": "operator.cluster.x-k8s.io/v1alpha2", "kind": "InfrastructureProvider", "metadata": {"name": "boat"},
        }))
        .await;
    for name in ["a", "b", "c", "d", "e"] {
        world.apply(&boat(name)).await;
    }

    // With the provider's own confirmation, and without any.
    let both = ["--include-crds", "--confirm", "boat-and-2-definitions"];
    let (done, said) = world.delete(&both).await;
    assert!(!done, "{said}");
    let needed = "Boat default/a, default/b, default/c and 2 more; delete them first";
    assert!(said.contains(needed), "{said}");
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Boat"));
    let boats: Api<DynamicObject> = Api::default_namespaced_with(world.client.clone(), &resource);
    for name in ["a", "b", "c", "d", "e"] {
        boats.delete(name, &DeleteParams::default()).await.unwrap();
    }
    for confirmed in [
        &["--include-crds"][..],
        &["--include-crds", "--confirm", "boat"],
    ] {
        let (done, said) = world.delete(confirmed).await;
        assert!(!done, "{said}");
        for line in [
            "leaves definition masts.example.com to Helm release harbour",
            "deletes definition boats.example.com",
            "deletes definition sails.example.com",
            "--confirm boat-and-2-definitions",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
    }
    assert!(world.is_defined("Boat").await);

    let (done, said) = world.delete(&both).await;
    assert!(done, "{said}");
    assert!(
        said.contains("definition sails.example.com is gone"),
        "{said}"
    );
    for (kind, is_left) in [("Boat", false), ("Sail", false), ("Mast", true)] {
        assert_eq!(world.is_defined(kind).await, is_left, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_stay_unless_they_are_asked_for_and_may_go_later() {
    let world = World::start().await;
    world.define("Boat", &json!({})).await;
    world
        .apply(&json!({
            "apiVersion": "operator.cluster.x-k8s.io/v1alpha2", "kind": "InfrastructureProvider", "metadata": {"name": "boat"},
        }))
        .await;
    let (done, said) = world.delete(&["--confirm", "boat"]).await;
    assert!(done, "{said}");
    assert!(
        said.contains("all of its objects but definitions"),
        "{said}"
    );
    assert!(world.is_defined("Boat").await);

    let both = ["--include-crds", "--confirm", "boat-and-1-definition"];
    world.apply(&boat("a")).await;
    let (done, said) = world.delete(&both).await;
    assert!(!done && said.contains("Boat default/a;"), "{said}");
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Boat"));
    let boats: Api<DynamicObject> = Api::default_namespaced_with(world.client.clone(), &resource);
    boats.delete("a", &DeleteParams::default()).await.unwrap();

    let (done, said) = world.delete(&both).await;
    assert!(done, "{said}");
    assert!(
        said.contains("InfrastructureProvider boat is gone already"),
        "{said}"
    );
    assert!(!world.is_defined("Boat").await);
    let (done, said) = world.delete(&both).await;
    assert!(!done && said.contains("nothing is left of it"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_deleted_of_a_provider_that_is_installed_from_another_namespace_too() {
    let world = World::start().await;
    world.define("Boat", &json!({})).await;
    let namespaces = Api::<Namespace>::all(world.client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "harbour"}})).unwrap();
    let made = namespaces.create(&PostParams::default(), &namespace).await;
    made.unwrap();
    let kind = GroupVersionKind::gvk(
        "operator.cluster.x-k8s.io",
        "v1alpha2",
        "InfrastructureProvider",
    );
    let resource = ApiResource::from_gvk(&kind);
    let providers = ["default", "harbour"].map(|namespace| {
        Api::<DynamicObject>::namespaced_with(world.client.clone(), namespace, &resource)
    });
    for api in &providers {
        let provider = DynamicObject::new("boat", &resource);
        api.create(&PostParams::default(), &provider).await.unwrap();
    }
    let both = ["--include-crds", "--confirm", "boat-and-1-definition"];
    let (done, said) = world.delete(&both).await;
    assert!(!done, "{said}");
    let why =
        "nothing was done: the definitions are those of InfrastructureProvider harbour/boat too";
    assert!(said.contains(why), "{said}");
    for api in &providers {
        assert!(api.get_opt("boat").await.unwrap().is_some());
    }
    // The one goes without them, and the other with them.
    let (done, said) = world.delete(&["--confirm", "boat"]).await;
    assert!(done, "{said}");
    let of_harbour = [&["--namespace", "harbour"][..], &both].concat();
    let (done, said) = world.delete(&of_harbour).await;
    assert!(done, "{said}");
    assert!(said.contains("Ctrl-C leaves the definitions"), "{said}");
    assert!(!said.contains("and not what is done"), "{said}");
    assert!(!world.is_defined("Boat").await);
}
