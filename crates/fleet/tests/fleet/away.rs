//! A Vault that is sealed or gone, as a FleetCluster says it: with a real server of OpenBao, and the operator of VaultSecrets.

use api::{inventory::FleetCluster, secrets::VaultSecret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{ResourceExt, api::ListParams};
use serde_json::json;

use crate::{
    vault::{Bao, Keeper, born, refresh},
    world::{World, is_ready, operate_beside_vault, status},
};

fn told(cluster: &FleetCluster) -> Option<Condition> {
    let mut conditions = status(cluster).conditions.into_iter();
    conditions.find(|it| it.type_ == "VaultUnavailable")
}

/// Waits until it is told of all VaultSecrets: each says it when it is read next.
async fn says(world: &World, reason: &str) -> Condition {
    let secrets = world.all::<VaultSecret>("shop");
    let secrets = secrets.list(&ListParams::default()).await.unwrap();
    let secrets = secrets.iter().map(ResourceExt::name_any);
    let titles: Vec<_> = secrets
        .map(|name| format!("VaultSecret/shop/{name}"))
        .collect();
    assert_eq!(titles.len(), 2);
    let is = |cluster: &FleetCluster| {
        told(cluster).is_some_and(|it| {
            let mut titles = titles.iter();
            it.reason == reason && titles.all(|title| it.message.contains(title))
        })
    };
    let cluster = world.until::<FleetCluster>("shop", reason, is).await;
    assert!(is_ready(&cluster), "what was read last counts");
    told(&cluster).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vault_that_is_away_is_told_with_what_waits_until_it_is_back() {
    let bao = Bao::start().await;
    let mut world = World::with(api::secrets::definitions()).await;
    world.kill().await;
    world.operator = operate_beside_vault(&world.client);
    let _keeper = Keeper::start(&world.client);
    let born = born(&world, &bao).await;
    assert_eq!(told(&born), None);
    let before = world.versions_of_objects().await;

    bao.post("sys/seal", json!({})).await;
    refresh(&world, "True").await;
    let sealed = says(&world, "VaultSealed").await;
    assert_eq!(sealed.status, "True");
    let words = format!("cannot be read from {}: unseal it", bao.server.address);
    assert!(sealed.message.contains(&words), "{}", sealed.message);
    // It outlives the operator, and says since when.
    world.kill().await;
    world.operator = operate_beside_vault(&world.client);
    refresh(&world, "True").await;
    let still = says(&world, "VaultSealed").await;
    assert_eq!(still.last_transition_time, sealed.last_transition_time);

    bao.post("sys/unseal", json!({"key": bao.server.unseal}))
        .await;
    refresh(&world, "False").await;
    let is_gone = |cluster: &FleetCluster| told(cluster).is_none();
    world
        .until::<FleetCluster>("shop", "it is back", is_gone)
        .await;

    drop(bao);
    refresh(&world, "True").await;
    says(&world, "VaultUnreachable").await;
    // Nothing was rolled for any of it.
    assert_eq!(world.versions_of_objects().await, before);
}
