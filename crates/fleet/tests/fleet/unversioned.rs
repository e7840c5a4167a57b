//! Clusters that share a secret of an engine without versions: by what was read, with a real server of OpenBao.

use api::{
    inventory::{ClusterTemplate, FleetCluster, Hierarchy, Rollout},
    secrets::{VaultSecret, definitions},
};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    cluster_api::{CORE, definition},
    rolls::{BOOTSTRAP, KIND, template},
    vault::{Bao, Keeper, credentials, refresh_of, until},
    world::{FLEET, World, operate_beside_vault, status},
};

/// Writes a cluster, with what is rendered nowhere.
async fn write(world: &World, name: &str, address: &str) {
    let key = json!({"vault": {"path": "infra/ssh", "key": "key", "onChange": "RollMachines"}});
    let values = json!({"vault": {"address": address}, "secret": key});
    let spec = json!({"template": "dev", "values": values});
    world.apply::<FleetCluster>(name, spec).await;
}

/// What a cluster has read of Vault.
fn contents(cluster: &FleetCluster) -> Option<String> {
    status(cluster).secrets.first()?.contents.clone()
}

fn unversioned() -> Value {
    let mut template = template();
    template["vaultSecrets"]["mount"] = json!("old");
    template["vaultSecrets"]["engine"] = json!("KvV1");
    template
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_share_a_secret_without_versions_go_by_one_run() {
    let bao = Bao::start().await;
    let mount = json!({"type": "kv", "options": {"version": "1"}});
    bao.post("sys/mounts/old", mount).await;
    bao.post("old/infra/ssh", json!({"key": "hush-one"})).await;
    let mut kinds = definitions();
    kinds.extend([
        definition(CORE, "Cluster"),
        definition(CORE, "MachineDeployment"),
        definition(BOOTSTRAP, KIND),
    ]);
    let mut world = World::with(kinds).await;
    world.kill().await;
    world.operator = operate_beside_vault(&world.client);
    let _keeper = Keeper::start(&world.client);
    let levels = json!({"levels": [{"name": "site", "kind": "Site", "presence": "Optional"}]});
    world.apply::<Hierarchy>("default", levels).await;
    world.apply::<ClusterTemplate>("dev", unversioned()).await;
    let address = bao.server.address.clone();
    credentials(&world, FLEET, &address).await;
    let rollout = json!({"soak": "0s", "canary": {"clusters": ["two"]}});
    world.apply::<Rollout>("all", rollout).await;
    let mut read = Vec::new();
    for name in ["one", "two"] {
        write(&world, name, &address).await;
        let is_born = |cluster: &FleetCluster| {
            status(cluster).applied.is_some() && contents(cluster).is_some()
        };
        let born = world.until::<FleetCluster>(name, "born", is_born).await;
        read.push(contents(&born).unwrap());
        assert_eq!(status(&born).secrets[0].version, None);
    }
    assert_eq!(
        read[0], read[1],
        "they have read the same, in their own Secrets"
    );

    // One of them is read anew; nobody asks for the other.
    bao.post("old/infra/ssh", json!({"key": "hush-other"}))
        .await;
    let one = world.all::<FleetCluster>(FLEET).get("one").await.unwrap();
    let (of_one, _) = status(&one).secrets[0]
        .name
        .split_once('/')
        .map(|(secret, key)| (secret.to_owned(), key.to_owned()))
        .unwrap();
    refresh_of(&world, (FLEET, &[&of_one]), "False").await;
    let mut run = None;
    until("a run", async || {
        let rollout = world.all::<Rollout>(FLEET).get("all").await.unwrap();
        run = rollout.status.and_then(|status| status.run);
        run.is_some()
    })
    .await;
    let run = run.unwrap();
    let members: Vec<_> = run.clusters.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(members, ["two", "one"], "canary first");
    // What is told of Vault holds nothing of it.
    let secrets = world.all::<VaultSecret>(FLEET);
    let secrets = secrets.list(&kube::api::ListParams::default()).await;
    for secret in secrets.unwrap() {
        let told = json!(secret.status).to_string();
        assert!(!told.contains("hush"), "{} {told}", secret.name_any());
    }
}
