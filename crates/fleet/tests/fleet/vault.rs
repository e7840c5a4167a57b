//! Values in Vault, from a reference in an inventory to the Secret that a cluster reads: with a real server of OpenBao, and the operator
//! of VaultSecrets beside that of fleets.

use std::time::{Duration, Instant};

use api::{
    Cluster, ClusterNode,
    inventory::{
        ClusterTemplate, FLEET_CLUSTER_ANNOTATION, FleetCluster, FleetRevision, Hierarchy, Rollout,
        RolloutPhase, Site,
    },
    secrets::{ADDRESS_ANNOTATION, CREDENTIALS_TYPE, REFRESH_ANNOTATION, VaultSecret},
};
use controller::{Manager, Metrics, Shutdown, manager::Settings};
use k8s_openapi::api::{
    core::v1::{Namespace, Secret},
    events::v1::Event,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::world::{FLEET, World, is_ready, status};

/// A server of OpenBao with a secret for ssh and one for a registry.
struct Bao {
    server: lab::OpenBao,
    client: reqwest::Client,
}

impl Bao {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let bao = Self {
            server: lab::OpenBao::start(&lab::progress::Silent).unwrap(),
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
        };
        bao.put(
            "infra/ssh",
            json!({"key": "hush-ssh", "unused": "hush-unused"}),
        )
        .await;
        bao.put("infra/registry", json!({"login": "hush-login"}))
            .await;
        bao
    }

    async fn put(&self, path: &str, fields: Value) {
        let url = format!("{}/v1/secret/data/{path}", self.server.address);
        let request = self.client.post(url);
        let request = request.header("X-Vault-Token", lab::OpenBao::TOKEN);
        let response = request.json(&json!({"data": fields})).send().await.unwrap();
        assert!(response.status().is_success(), "{path}");
    }
}

/// The operator of VaultSecrets.
struct Keeper(Shutdown);

impl Keeper {
    fn start(client: &Client) -> Self {
        let shutdown = Shutdown::default();
        let settings = Settings {
            namespace: None,
            concurrency: 4,
            metrics: Metrics::default(),
            shutdown: shutdown.clone(),
        };
        let mut manager = Manager::new(client.clone(), settings);
        secrets::operate(&mut manager, secrets::Options { loopback: true });
        tokio::spawn(manager.run());
        Self(shutdown)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.trigger();
    }
}

fn site(address: &str) -> Value {
    json!({"template": "kubespray", "values": {
        "vault": {"address": address},
        "version": "1.34.3",
        "ssh": {"vault": {"path": "infra/ssh", "key": "key"}},
        "variables": {"registry": {"login": {"vault": {"path": "infra/registry", "key": "login"}}}},
    }})
}

fn template() -> Value {
    json!({
        "backEnd": "Kubespray",
        "vaultSecrets": {"vault": {
            "address": "{{ vault.address }}",
            "auth": {"token": {"secretRef": {"name": "vault"}}},
        }},
        "documents": [
            {"object": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{{ cluster.name }}"}}},
            {"object": {
                "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
                "metadata": {"name": "{{ cluster.name }}-m", "namespace": "{{ cluster.name }}"},
                "spec": {"type": "master", "inventory": {"ansible_host": "{{ address }}"}},
            }},
            {"object": {
                "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
                "metadata": {"name": "{{ cluster.name }}", "namespace": "{{ cluster.name }}"},
                "spec": {
                    "kubernetesVersion": "{{ version }}",
                    "kubespray": {"version": "2.30.0", "source": {"path": "bundle"}},
                    "ssh": {"user": "root", "privateKeySecretRef": "{{ ssh }}"},
                    "nodes": {"all": {"deploy": {"extraVars": "{{ variables }}"}}},
                },
            }},
        ],
    })
}

async fn begin(world: &World, address: &str) {
    let levels = json!({"levels": [{"name": "site", "kind": "Site"}]});
    world.apply::<Hierarchy>("default", levels).await;
    world
        .apply::<ClusterTemplate>("kubespray", template())
        .await;
    world.apply::<Site>("fra", site(address)).await;
}

fn cluster(values: &Value) -> Value {
    json!({"parents": {"site": "fra"}, "values": values})
}

async fn credentials(world: &World, namespace: &str, address: &str) {
    let secret = json!({
        "metadata": {"name": "vault", "annotations": {ADDRESS_ANNOTATION: address}}, "type": CREDENTIALS_TYPE, "stringData": {"token": lab::OpenBao::TOKEN},
    });
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let api = world.all::<Secret>(namespace);
    api.create(&PostParams::default(), &secret).await.unwrap();
}

async fn value(world: &World, reference: &Value) -> Option<String> {
    let name = reference["name"].as_str().unwrap();
    let secret = world.all::<Secret>("shop").get_opt(name).await.unwrap()?;
    let bytes = secret.data?.remove(reference["key"].as_str().unwrap())?;
    Some(String::from_utf8(bytes.0).unwrap())
}

/// Has all VaultSecrets read anew, and waits until they say whether Vault could be.
async fn refresh(world: &World, stale: &str) {
    let api = world.all::<VaultSecret>("shop");
    let all = api.list(&ListParams::default()).await.unwrap().items;
    let now = format!("{:?}", Instant::now());
    for object in &all {
        let patch = json!({"metadata": {"annotations": {REFRESH_ANNOTATION: now}}});
        let patched = api
            .patch(
                &object.name_any(),
                &PatchParams::default(),
                &Patch::Merge(&patch),
            )
            .await;
        patched.unwrap();
    }
    for object in &all {
        until("VaultSecrets", async || {
            let object = api.get(&object.name_any()).await.unwrap();
            let conditions = object.status.unwrap_or_default().conditions;
            let mut conditions = conditions.iter();
            conditions.any(|it| it.type_ == "Stale" && it.status == stale)
        })
        .await;
    }
}

async fn until(what: &str, mut ask: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !ask().await {
        assert!(begun.elapsed() < Duration::from_mins(1), "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Nothing but Secrets holds what is in Vault.
async fn keeps_quiet(world: &World) {
    async fn all<K>(client: &Client) -> Value
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + serde::de::DeserializeOwned
            + serde::Serialize,
        K: std::fmt::Debug,
    {
        let api = Api::<K>::all(client.clone());
        let items = api.list(&ListParams::default()).await.unwrap().items;
        assert!(!items.is_empty(), "{}", K::kind(&()));
        json!(items)
    }
    let client = &world.client;
    let told = json!([
        all::<FleetCluster>(client).await,
        all::<FleetRevision>(client).await,
        all::<Rollout>(client).await,
        all::<VaultSecret>(client).await,
        all::<Cluster>(client).await,
        all::<ClusterNode>(client).await,
        all::<Event>(client).await,
    ])
    .to_string();
    assert!(!told.contains("hush"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_in_vault_reaches_its_secret_alone_and_rolls_nothing() {
    let bao = Bao::start().await;
    let world = World::with(api::secrets::definitions()).await;
    let _keeper = Keeper::start(&world.client);
    begin(&world, &bao.server.address).await;
    let rollout = json!({"soak": "0s", "canary": {"count": 0}});
    world.apply::<Rollout>("all", rollout).await;
    world
        .apply::<FleetCluster>("shop", cluster(&json!({"address": "10.0.0.1"})))
        .await;

    // Without its Secrets nothing of it is written but what makes them.
    let waits = |cluster: &FleetCluster| {
        let message = status(cluster).message.unwrap_or_default();
        message.contains("VaultSecret/shop/vault-infra-") && message.contains("Secret vault")
    };
    world.until::<FleetCluster>("shop", "waits", waits).await;
    let clusters = world.all::<Cluster>("shop");
    assert!(clusters.get_opt("shop").await.unwrap().is_none());
    let hosts = world.all::<ClusterNode>("shop");
    assert!(hosts.get_opt("shop-m").await.unwrap().is_none());

    credentials(&world, "shop", &bao.server.address).await;
    let born = world.until::<FleetCluster>("shop", "born", is_ready).await;
    let made = clusters.get("shop").await.unwrap();
    let spec = serde_json::to_value(&made.spec).unwrap();
    let ssh = spec["ssh"]["privateKeySecretRef"].clone();
    let login =
        spec["nodes"]["all"]["deploy"]["extraVars"]["registry"]["login"]["secretKeyRef"].clone();
    assert_eq!(value(&world, &ssh).await.unwrap(), "hush-ssh");
    assert_eq!(value(&world, &login).await.unwrap(), "hush-login");
    // What is not referred to stays in Vault.
    let unused = json!({"name": ssh["name"], "key": "unused"});
    assert_eq!(value(&world, &unused).await, None);
    let vault_secrets = world.all::<VaultSecret>("shop");
    for object in vault_secrets.list(&ListParams::default()).await.unwrap() {
        assert_eq!(object.annotations()[FLEET_CLUSTER_ANNOTATION], "fleet/shop");
    }
    keeps_quiet(&world).await;

    // Vault holds something else: the Secret follows, and no object of the cluster changes.
    let before = world.versions_of_objects().await;
    bao.put("infra/ssh", json!({"key": "hush-other"})).await;
    refresh(&world, "False").await;
    until("the new value", async || {
        value(&world, &ssh).await.as_deref() == Some("hush-other")
    })
    .await;
    // Vault is gone: the same, and a pass over the cluster does nothing.
    let address = bao.server.address.clone();
    drop(bao);
    refresh(&world, "True").await;
    let mut unused = site(&address);
    unused["values"]["unused"] = json!(true);
    world.apply::<Site>("fra", unused.clone()).await;
    let seen = world.all::<FleetCluster>(FLEET).get("shop").await.unwrap();
    assert_eq!(status(&seen).rendered, status(&born).rendered);
    assert_eq!(status(&seen).applied, status(&born).applied);
    assert_eq!(status(&seen).pending, None);
    assert!(is_ready(&seen));
    assert_eq!(world.versions_of_objects().await, before);
    let rollout = world.all::<Rollout>(FLEET).get("all").await.unwrap();
    let run = rollout.status.and_then(|status| status.run);
    assert!(run.is_none(), "{run:?}");

    // An edit that has nothing to do with Vault does not wait for it.
    unused["values"]["version"] = json!("1.34.4");
    world.apply::<Site>("fra", unused.clone()).await;
    world.rollout("an edit", RolloutPhase::Succeeded).await;
    assert_eq!(world.versions().await["shop"], "1.34.4");
    assert_eq!(value(&world, &ssh).await.unwrap(), "hush-other");
    keeps_quiet(&world).await;

    // A reference that goes takes its VaultSecret along.
    unused["values"]["variables"] = json!({"registry": null});
    world.apply::<Site>("fra", unused).await;
    let gone = login["name"].as_str().unwrap();
    until("the VaultSecret goes", async || {
        vault_secrets.get_opt(gone).await.unwrap().is_none()
    })
    .await;
    assert_eq!(value(&world, &ssh).await.unwrap(), "hush-other");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reference_that_cannot_stand_is_told_and_nothing_is_written() {
    let world = World::with(api::secrets::definitions()).await;
    begin(&world, "https://vault.example.org:8200").await;
    let values = json!({"address": {"vault": {"path": "infra/ssh", "key": "key"}}});
    world.apply::<FleetCluster>("shop", cluster(&values)).await;
    let refused = |cluster: &FleetCluster| !status(cluster).problems.is_empty();
    let told = world
        .until::<FleetCluster>("shop", "refused", refused)
        .await;
    let problem = status(&told).problems[0].clone();
    assert_eq!(problem.level.as_deref(), Some("cluster"));
    assert_eq!(problem.path.as_deref(), Some("spec.values.address"));
    assert_eq!(problem.rule, "NoReference");
    assert!(
        problem
            .message
            .contains("{vault: {path: infra/ssh, key: key}}")
    );
    assert!(problem.message.contains("spec.inventory.ansible_host"));
    let namespaces = Api::<Namespace>::all(world.client.clone());
    assert!(namespaces.get_opt("shop").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_without_vault_secrets_is_told() {
    let world = World::start().await;
    begin(&world, "https://vault.example.org:8200").await;
    world
        .apply::<FleetCluster>("shop", cluster(&json!({"address": "10.0.0.1"})))
        .await;
    let refused = |cluster: &FleetCluster| {
        let problems = status(cluster).problems;
        problems
            .iter()
            .any(|problem| problem.rule == "NoVaultSecrets")
    };
    world
        .until::<FleetCluster>("shop", "refused", refused)
        .await;
}
