//! Definitions that a provider left: which are found, and which go.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use clusterctl::{Provider, ProviderType};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use providers::{
    definitions::{self, RemoveError},
    names::COMPONENTS_MANAGER,
    stand::Stand,
};
use serde_json::{Value, json};

async fn define(client: &Client, kind: &str, label: &str, annotations: &Value) {
    let plural = format!("{}s", kind.to_lowercase());
    let definition = json!({
        "metadata": {
            "name": format!("{plural}.example.com"), "annotations": annotations,
            "labels": {"cluster.x-k8s.io/provider": label},
        },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
    let made = Api::all(client.clone())
        .create(&PostParams::default(), &definition)
        .await;
    made.unwrap();
}

#[tokio::test]
async fn a_definition_goes_when_nothing_is_of_it_and_nobody_else_keeps_it() {
    let data = tempfile::tempdir().unwrap();
    let options = kapi::Options {
        data_dir: data.path().to_owned(),
        crds: Vec::new(),
        listen: None,
    };
    let server = kapi::Server::open(options).await.unwrap();
    let client = Client::new(server.router(), "default");
    let provider = Provider::new(ProviderType::Infrastructure, "boat").unwrap();
    let label = provider.manifest_label();
    // An API without pods has no workloads either.
    let left = definitions::workloads_left(&client, &provider, "harbour").await;
    assert_eq!(left.unwrap(), [""; 0]);
    define(&client, "Boat", &label, &json!({})).await;
    define(&client, "Train", "infrastructure-train", &json!({})).await;
    let helm = json!({"meta.helm.sh/release-name": "harbour"});
    define(&client, "Mast", &label, &helm).await;

    let found = definitions::of(&client, &provider).await.unwrap();
    let told: Vec<_> = found.iter().map(|one| (one.name(), one.keeper())).collect();
    assert_eq!(
        told,
        [
            ("boats.example.com".to_owned(), None),
            ("masts.example.com".to_owned(), Some("Helm release harbour")),
        ]
    );

    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Boat"));
    let boats: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        let boat = DynamicObject::new(name, &resource);
        boats.create(&PostParams::default(), &boat).await.unwrap();
    }
    let counted = "Boat default/a, default/b, default/c and 2 more";
    let refused = definitions::remove(&client, &found[0]).await.unwrap_err();
    assert!(
        matches!(&refused, RemoveError::InUse(_, objects) if objects == counted),
        "{refused}"
    );
    for name in names {
        boats.delete(name, &DeleteParams::default()).await.unwrap();
    }
    definitions::remove(&client, &found[0]).await.unwrap();
    let left = definitions::of(&client, &provider).await.unwrap();
    assert_eq!(left.len(), 1, "{left:?}");
    // Once more, as by a command that is repeated.
    definitions::remove(&client, &found[0]).await.unwrap();

    // Where somebody applies it too it is theirs as well, whoever installed it, and however long ago that was looked at.
    define(&client, "Hull", &label, &json!({})).await;
    let all = Api::<CustomResourceDefinition>::all(client.clone());
    let apply = async |manager: &str| {
        let labels = json!({"cluster.x-k8s.io/provider": &label});
        let applied = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "hulls.example.com", "labels": labels},
        });
        let parameters = PatchParams::apply(manager).force();
        let applied = Patch::Apply(applied);
        all.patch("hulls.example.com", &parameters, &applied)
            .await
            .unwrap();
    };
    let hull = async || {
        let found = definitions::of(&client, &provider).await.unwrap();
        let mut found = found.into_iter();
        found.find(|one| one.name() == "hulls.example.com").unwrap()
    };
    apply(COMPONENTS_MANAGER).await;
    let looked_at = hull().await;
    assert_eq!(looked_at.keeper(), None);
    apply("kustomize-controller").await;
    assert_eq!(hull().await.keeper(), Some("kustomize-controller"));
    let refused = definitions::remove(&client, &looked_at).await.unwrap_err();
    assert!(
        matches!(&refused, RemoveError::Kept(_, keeper) if keeper == "kustomize-controller"),
        "{refused}"
    );
    let taken =
        json!({"metadata": {"labels": {"cluster.x-k8s.io/provider": "infrastructure-train"}}});
    let taken = Patch::Merge(&taken);
    all.patch("hulls.example.com", &PatchParams::default(), &taken)
        .await
        .unwrap();
    let refused = definitions::remove(&client, &looked_at).await.unwrap_err();
    assert!(matches!(refused, RemoveError::Released(_)), "{refused}");

    // What somebody has made anew meanwhile is theirs.
    define(&client, "Boat", &label, &json!({})).await;
    let refused = definitions::remove(&client, &found[0]).await.unwrap_err();
    assert!(matches!(refused, RemoveError::Replaced(_)), "{refused}");
}

#[tokio::test]
async fn a_kind_that_is_not_served_hides_no_provider_of_another_one() {
    let data = tempfile::tempdir().unwrap();
    let mut crds = api::provider::provider_definitions();
    crds.retain(|definition| definition.spec.names.kind != "CoreProvider");
    let options = kapi::Options {
        data_dir: data.path().to_owned(),
        crds,
        listen: None,
    };
    let server = kapi::Server::open(options).await.unwrap();
    let client = Client::new(server.router(), "default");
    let kind = GroupVersionKind::gvk(
        "operator.cluster.x-k8s.io",
        "v1alpha2",
        "InfrastructureProvider",
    );
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    let boat = DynamicObject::new("boat", &resource);
    api.create(&PostParams::default(), &boat).await.unwrap();
    let stands = Stand::all_served(&client).await.unwrap();
    let titles: Vec<_> = stands.iter().map(Stand::title).collect();
    assert_eq!(titles, ["InfrastructureProvider default/boat"]);
    let unread = Stand::all(&client).await.unwrap_err();
    assert_eq!(unread.what, "list CoreProvider objects");
}
