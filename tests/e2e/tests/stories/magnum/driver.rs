//! The real Magnum whose driver is ours: what its users ask for is made by Windlass.

use e2e::{MagnumService, wait_until};
use lab::{MagnumRelease, progress::Terminal};
use serde_json::json;

use super::{LIMIT, World, read};

#[test]
fn clusters_of_a_real_magnum_21_are_made_by_windlass() {
    a_cluster_lives_in(MagnumRelease::V21);
}

#[test]
fn clusters_of_a_real_magnum_22_are_made_by_windlass() {
    a_cluster_lives_in(MagnumRelease::V22);
}

#[test]
fn clusters_of_a_real_magnum_23_are_made_by_windlass() {
    a_cluster_lives_in(MagnumRelease::V23);
}

fn a_cluster_lives_in(release: MagnumRelease) {
    let (world, _) = World::without_catalogue();
    let directory = world.directory.path();
    let kubeconfig = directory.join("data/kubeconfig");
    let place = directory.join("magnum");
    let progress = Terminal::default();
    let magnum =
        MagnumService::start(&world.keystone, release, &place, &kubeconfig, &progress).unwrap();
    world.keystone.people(&magnum.address).unwrap();
    world.pool(4);
    let small = template(&world, "small", "v1.34.3");
    let create = format!("cluster create first --cluster-template {small} --node-count 1");
    coe(&world, &create);
    let uuid = wait_until("the cluster to be there", LIMIT, || {
        // Magnum accepts a cluster before it has it.
        let listed = read(&coe(&world, "cluster list -f json"));
        Ok(listed[0]["uuid"].as_str().map(str::to_owned))
    })
    .unwrap();
    world.play_kubespray(&uuid, 2);
    world.until("first", "CREATE_COMPLETE");
    let shown = world.show("first");
    assert_eq!(shown["api_address"], "https://10.0.0.1:6443");
    assert_eq!(shown["coe_version"], "v1.34.3");
    assert_eq!(shown["master_addresses"], json!(["10.0.0.1"]));
    assert_eq!(shown["node_addresses"], json!(["10.0.0.2"]));
    world.may_enter("first", &uuid);

    coe(&world, "cluster resize first 2");
    world.play_kubespray(&uuid, 3);
    world.until("first", "UPDATE_COMPLETE");
    assert_eq!(world.show("first")["node_count"], 2);

    groups(&world, &uuid);
    upgrades(&world, &uuid);
    authorities(&world, &uuid);

    coe(&world, "cluster delete first");
    wait_until("the cluster to be gone", LIMIT, || {
        let left = read(&coe(&world, "cluster list -f json"));
        Ok((left == json!([])).then_some(()))
    })
    .unwrap();
    assert_eq!(world.claimed(), 0);
    coe(&world, &format!("cluster template delete {small}"));
}

fn groups(world: &World, uuid: &str) {
    coe(world, "nodegroup create first more --node-count 1");
    world.play_kubespray(uuid, 4);
    world.until("first", "UPDATE_COMPLETE");
    let states = || {
        let groups = read(&coe(world, "nodegroup list first -f json"));
        let groups = groups.as_array().unwrap().clone();
        let word = |group: &serde_json::Value| format!("{}: {}", group["name"], group["status"]);
        groups.iter().map(word).collect::<Vec<_>>()
    };
    let more = "\"more\": \"CREATE_COMPLETE\"";
    assert!(states().contains(&more.to_owned()), "{:?}", states());
    coe(world, "nodegroup delete first more");
    world.play_kubespray(uuid, 3);
    world.until("first", "UPDATE_COMPLETE");
    assert_eq!(states().len(), 2);
}

/// What cannot be done is refused before anything changes.
fn upgrades(world: &World, uuid: &str) {
    let later = template(world, "later", "v1.36.0");
    let refused = world.refused("ann", &["cluster", "upgrade", "first", &later]);
    // Clients are told what Magnum takes for the title: up to the first dot.
    let told = "Upgrading Kubernetes 1";
    assert!(refused.contains(told), "{refused}");
    assert_eq!(world.show("first")["status"], "UPDATE_COMPLETE");
    let next = template(world, "next", "v1.35.0");
    coe(world, &format!("cluster upgrade first {next}"));
    world.play_kubespray(uuid, 3);
    world.until("first", "UPDATE_COMPLETE");
    assert_eq!(world.show("first")["labels"]["kube_tag"], "v1.35.0");
}

/// A rotation that is refused leaves the authorities as they are.
fn authorities(world: &World, uuid: &str) {
    let refused = world.refused("ann", &["ca", "rotate", "first"]);
    assert!(refused.contains("not supported"), "{refused}");
    let shown = coe(world, "ca show first");
    assert_eq!(shown.trim(), world.authority(uuid).trim());
}

/// Makes a template, and gives its UUID: Magnum 21 does not find the template of a new cluster by its name.
fn template(world: &World, name: &str, version: &str) -> String {
    coe(
        world,
        &format!(
            "cluster template create {name} --coe kubernetes --image debian --server-type bm \
             --external-network public --flavor metal --master-flavor metal \
             --network-driver calico --labels kube_tag={version}"
        ),
    );
    let shown = coe(world, &format!("cluster template show {name} -f json"));
    read(&shown)["uuid"].as_str().unwrap().to_owned()
}

fn coe(world: &World, words: &str) -> String {
    let words: Vec<_> = words.split(' ').filter(|word| !word.is_empty()).collect();
    world.coe("ann", &words)
}
