//! Values in Vault, from a reference in an inventory to the Secret that a cluster reads: with a real server of OpenBao, and the operator
//! of VaultSecrets beside that of fleets.

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, LazyLock, Mutex},
    time::{Duration, Instant},
};

use api::{
    Cluster, ClusterNode,
    inventory::{
        ClusterTemplate, FLEET_CLUSTER_ANNOTATION, FleetCluster, Hierarchy, MemberPhase, Rollout,
        RolloutPhase, Site,
    },
    secrets::{ADDRESS_ANNOTATION, CREDENTIALS_TYPE, REFRESH_ANNOTATION, VaultSecret},
};
use controller::{Manager, Metrics, Shutdown, manager::Settings};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
    discovery::{ApiGroup, Discovery, verbs},
};
use serde_json::{Value, json};
use tracing::Level;

use crate::world::{FLEET, World, is_ready, status};

/// A server of OpenBao with a secret for ssh and one for a registry.
pub struct Bao {
    pub server: lab::OpenBao,
    client: reqwest::Client,
}

impl Bao {
    pub async fn start() -> Self {
        LazyLock::force(&LOG);
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

    pub async fn put(&self, path: &str, fields: Value) {
        self.post(&format!("secret/data/{path}"), json!({"data": fields}))
            .await;
    }

    pub async fn post(&self, path: &str, body: Value) {
        let url = format!("{}/v1/{path}", self.server.address);
        let request = self.client.post(url);
        let request = request.header("X-Vault-Token", lab::OpenBao::TOKEN);
        let response = request.json(&body).send().await.unwrap();
        assert!(response.status().is_success(), "{path}");
    }
}

/// The operator of VaultSecrets.
pub struct Keeper(Shutdown);

impl Keeper {
    pub fn start(client: &Client) -> Self {
        let shutdown = Shutdown::default();
        let settings = Settings {
            namespace: None,
            concurrency: 4,
            metrics: Metrics::default(),
            shutdown: shutdown.clone(),
        };
        let mut manager = Manager::new(client.clone(), settings);
        let own = secrets::Options {
            loopback: true,
            namespace: "default".to_owned(),
        };
        secrets::operate(&mut manager, own);
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

pub async fn credentials(world: &World, namespace: &str, address: &str) {
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
pub async fn refresh(world: &World, stale: &str) {
    refresh_in(world, "shop", stale).await;
}

/// The same in another namespace.
pub async fn refresh_in(world: &World, namespace: &str, stale: &str) {
    let api = world.all::<VaultSecret>(namespace);
    let all = api.list(&ListParams::default()).await.unwrap().items;
    let all: Vec<_> = all.iter().map(ResourceExt::name_any).collect();
    let names: Vec<_> = all.iter().map(String::as_str).collect();
    refresh_of(world, (namespace, &names), stale).await;
}

/// The same of some.
pub async fn refresh_of(world: &World, (namespace, names): (&str, &[&str]), stale: &str) {
    let api = world.all::<VaultSecret>(namespace);
    let now = format!("{:?}", Instant::now());
    for name in names {
        let patch = json!({"metadata": {"annotations": {REFRESH_ANNOTATION: now}}});
        let patched = api
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched.unwrap();
    }
    for name in names {
        until("VaultSecrets", async || {
            let object = api.get(name).await.unwrap();
            let conditions = object.status.unwrap_or_default().conditions;
            let mut conditions = conditions.iter();
            conditions.any(|it| it.type_ == "Stale" && it.status == stale)
        })
        .await;
    }
}

/// A cluster that is born with its Secrets, and a roll-out for what follows.
pub async fn born(world: &World, bao: &Bao) -> FleetCluster {
    begin(world, &bao.server.address).await;
    let rollout = json!({"soak": "0s", "canary": {"count": 0}});
    world.apply::<Rollout>("all", rollout).await;
    world
        .apply::<FleetCluster>("shop", cluster(&json!({"address": "10.0.0.1"})))
        .await;
    let has_begun = |cluster: &FleetCluster| status(cluster).begun.is_some();
    world
        .until::<FleetCluster>("shop", "begun", has_begun)
        .await;
    credentials(world, "shop", &bao.server.address).await;
    world.until::<FleetCluster>("shop", "born", is_ready).await
}

/// The same in a world of its own, where Vault has this secret too.
async fn born_beside(path: &str, fields: Value) -> (Bao, World, Keeper, FleetCluster) {
    let bao = Bao::start().await;
    bao.put(path, fields).await;
    let world = World::with(api::secrets::definitions()).await;
    let keeper = Keeper::start(&world.client);
    let born = born(&world, &bao).await;
    (bao, world, keeper, born)
}

/// A site whose clusters have another field of one secret, and another path of the other.
fn moved(address: &str) -> Value {
    let mut site = site(address);
    site["values"]["ssh"] = json!({"vault": {"path": "infra/ssh", "key": "unused"}});
    site["values"]["variables"]["registry"]["login"] =
        json!({"vault": {"path": "infra/mirror", "key": "login"}});
    site
}

/// The Secrets that the Cluster refers to: for ssh, and for the registry.
async fn references(world: &World) -> (Value, Value) {
    let made = world.all::<Cluster>("shop").get("shop").await.unwrap();
    let spec = serde_json::to_value(&made.spec).unwrap();
    let variables = &spec["nodes"]["all"]["deploy"]["extraVars"];
    (
        spec["ssh"]["privateKeySecretRef"].clone(),
        variables["registry"]["login"]["secretKeyRef"].clone(),
    )
}

pub async fn until(what: &str, mut ask: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !ask().await {
        assert!(begun.elapsed() < Duration::from_mins(1), "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What all operators of the process have logged since it was asked for first.
static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::DEBUG)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    log
});

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Of all that the API has nothing but Secrets holds what is in Vault, and no line of the log does.
async fn keeps_quiet(world: &World) {
    let log = LOG.text();
    assert!(log.contains("fleet"), "nothing was logged: {log}");
    assert!(!log.contains("hush"), "{log}");
    let client = &world.client;
    let kinds = Discovery::new(client.clone()).run().await.unwrap();
    let mut seen = BTreeSet::new();
    for (kind, capabilities) in kinds.groups().flat_map(ApiGroup::recommended_resources) {
        if kind.kind == "Secret" || !capabilities.supports_operation(verbs::LIST) {
            continue;
        }
        let api = Api::<DynamicObject>::all_with(client.clone(), &kind);
        let items = api.list(&ListParams::default()).await.unwrap().items;
        let told = json!(items).to_string();
        assert!(!told.contains("hush"), "{told}");
        if !items.is_empty() {
            seen.insert(kind.kind);
        }
    }
    // They are where it would be.
    for kind in [
        "Cluster",
        "ClusterNode",
        "Event",
        "FleetCluster",
        "FleetRevision",
        "Rollout",
        "VaultSecret",
    ] {
        assert!(seen.contains(kind), "{seen:?}");
    }
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
    let (ssh, login) = references(&world).await;
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
    world.ended("an edit", RolloutPhase::Succeeded).await;
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
async fn what_a_cluster_still_works_with_stays_until_it_is_well() {
    let mirror = json!({"login": "hush-mirror"});
    let (bao, world, _keeper, born) = born_beside("infra/mirror", mirror).await;
    let born = status(&born);
    let (ssh, login) = references(&world).await;

    // Another version, another field of one secret and another path of the other, in one edit. It takes its time.
    world.play.held.lock().unwrap().insert("shop".to_owned());
    let mut edited = moved(&bao.server.address);
    edited["values"]["version"] = json!("1.34.4");
    world.apply::<Site>("fra", edited).await;
    let is_written = |cluster: &FleetCluster| {
        let status = status(cluster);
        status.applied == status.rendered && status.applied != born.applied
    };
    let written = world
        .until::<FleetCluster>("shop", "written", is_written)
        .await;
    assert_eq!(
        Some(status(&written).former),
        born.applied.clone().map(|it| vec![it])
    );
    let (other_ssh, other_login) = references(&world).await;
    assert_eq!(ssh["name"], other_ssh["name"]);
    assert_ne!(login["name"], other_login["name"]);
    let has = async |reference: &Value| value(&world, reference).await;
    assert_eq!(has(&other_ssh).await.as_deref(), Some("hush-unused"));
    assert_eq!(has(&other_login).await.as_deref(), Some("hush-mirror"));
    // The upgrade reads them anew, as the cluster was built with them.
    refresh(&world, "False").await;
    assert_eq!(has(&ssh).await.as_deref(), Some("hush-ssh"));
    assert_eq!(has(&login).await.as_deref(), Some("hush-login"));

    world.play.held.lock().unwrap().clear();
    until("what is needed no longer goes", async || {
        has(&ssh).await.is_none() && has(&login).await.is_none()
    })
    .await;
    assert_eq!(has(&other_ssh).await.as_deref(), Some("hush-unused"));
    assert_eq!(has(&other_login).await.as_deref(), Some("hush-mirror"));
    let forgets = |cluster: &FleetCluster| status(cluster).former.is_empty();
    world
        .until::<FleetCluster>("shop", "forgets", forgets)
        .await;
    keeps_quiet(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_goes_while_a_rollout_watches_a_cluster_that_says_it_is_well() {
    let mirror = json!({"login": "hush-mirror"});
    let (bao, world, _keeper, born) = born_beside("infra/mirror", mirror).await;
    let born = status(&born);
    let (ssh, login) = references(&world).await;

    let rollout = |soak: &str| json!({"soak": soak, "canary": {"count": 0}});
    world.apply::<Rollout>("all", rollout("1h")).await;
    let edited = moved(&bao.server.address);
    world.apply::<Site>("fra", edited).await;
    let soaks = |rollout: &Rollout| {
        let run = rollout
            .status
            .as_ref()
            .and_then(|status| status.run.as_ref());
        let mut members = run.into_iter().flat_map(|run| &run.clusters);
        members.any(|member| member.phase == MemberPhase::Soaking)
    };
    world.until::<Rollout>("all", "soaks", soaks).await;
    let has = async |reference: &Value| value(&world, reference).await;
    let kept = async || {
        let watched = world.all::<FleetCluster>(FLEET).get("shop").await.unwrap();
        assert_eq!(status(&watched).former, [born.applied.clone().unwrap()]);
        assert_eq!(has(&ssh).await.as_deref(), Some("hush-ssh"));
        assert_eq!(has(&login).await.as_deref(), Some("hush-login"));
    };
    kept().await;
    // Nor after another pass, which the unused value makes.
    let seen = world.all::<FleetCluster>(FLEET).get("shop").await.unwrap();
    world
        .apply::<FleetCluster>(
            "shop",
            cluster(&json!({"address": "10.0.0.1", "unused": true})),
        )
        .await;
    let is_passed = |cluster: &FleetCluster| {
        let generation = status(cluster).observed_generation;
        generation > status(&seen).observed_generation
    };
    world
        .until::<FleetCluster>("shop", "passed", is_passed)
        .await;
    kept().await;

    world.apply::<Rollout>("all", rollout("0s")).await;
    until("what is needed no longer goes", async || {
        has(&ssh).await.is_none() && has(&login).await.is_none()
    })
    .await;
    let forgets = |cluster: &FleetCluster| status(cluster).former.is_empty();
    world
        .until::<FleetCluster>("shop", "forgets", forgets)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_path_halts_the_rollout_and_an_edit_mends_it_whatever_else_is_missing() {
    let other = json!({"key": "hush-other"});
    let (bao, world, _keeper, _) = born_beside("infra/other", other).await;
    let (_, login) = references(&world).await;
    let before = world.versions_of_objects().await;

    let mut edited = site(&bao.server.address);
    edited["values"]["ssh"] = json!({"vault": {"path": "infra/shh", "key": "key"}});
    world.apply::<Site>("fra", edited.clone()).await;
    let halted = world.rollout("halted", RolloutPhase::Halted).await;
    let waits = halted.status.unwrap().waits.unwrap();
    assert!(
        waits.contains("VaultSecret/shop/vault-infra-shh"),
        "{waits}"
    );
    assert_eq!(world.versions_of_objects().await, before);

    // Another secret, which the edit has nothing to do with, is in Vault no more.
    bao.put("infra/registry", json!({"unused": "hush-unused"}))
        .await;
    refresh_of(&world, ("shop", &[login["name"].as_str().unwrap()]), "True").await;
    edited["values"]["ssh"] = json!({"vault": {"path": "infra/other", "key": "key"}});
    world.apply::<Site>("fra", edited).await;
    let is_mended = |cluster: &FleetCluster| {
        let status = status(cluster);
        status.applied == status.rendered && status.begun.is_none() && is_ready(cluster)
    };
    world
        .until::<FleetCluster>("shop", "mended", is_mended)
        .await;
    let (ssh, _) = references(&world).await;
    assert_eq!(value(&world, &ssh).await.unwrap(), "hush-other");
    assert_eq!(value(&world, &login).await.unwrap(), "hush-login");
    // What was begun and never stood goes too.
    let vault_secrets = world.all::<VaultSecret>("shop");
    until("the wrong one goes", async || {
        let all = vault_secrets.list(&ListParams::default()).await.unwrap();
        all.iter()
            .all(|one| !one.name_any().starts_with("vault-infra-shh"))
    })
    .await;
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
