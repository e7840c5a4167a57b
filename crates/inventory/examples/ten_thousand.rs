//! How long a large fleet takes: `cargo run --release -p inventory --example ten_thousand [CLUSTERS]`.
//!
//! The template, hierarchy and environment of `examples/fleet`, with 100 sites, each with its own customer and machines, and clusters of
//! 13 hosts: 15 objects each.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot go on has failed"
)]

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Instant};

use api::inventory::FleetClusterSpec;
use inventory::{Fleet, Memo, Object};
use serde_json::{Value, json};

fn main() {
    let clusters: usize = std::env::args()
        .nth(1)
        .map_or(10_000, |number| number.parse().unwrap());
    let objects = objects(clusters);
    let begin = Instant::now();
    let fleet = Fleet::read(objects, "default").unwrap();
    println!("read          {:.1?}", begin.elapsed());

    let begin = Instant::now();
    let (mut documents, mut bytes) = (0, 0);
    fleet
        .render_all(|rendered| {
            for document in &rendered.documents {
                documents += 1;
                bytes += document.to_value().to_string().len();
            }
        })
        .unwrap();
    println!(
        "render all    {:.1?}: {documents} objects, {bytes} bytes of JSON",
        begin.elapsed()
    );

    let cluster = fleet.clusters().next().unwrap();
    let begin = Instant::now();
    let rendered = fleet.render(&cluster).unwrap();
    let question = format!("Cluster/{}", cluster.name).parse().unwrap();
    let leaves = rendered.explain(&question).unwrap().len();
    println!(
        "explain       {:.1?}: {leaves} leaves of one object",
        begin.elapsed()
    );
    println!("memory        {}", memory());
    // A second inventory, which would count as memory of the first.
    drop(fleet);
    one_site(clusters);
}

/// An edit of a site, as the operator sees it: all clusters are remembered, and those that were not edited are at hand.
fn one_site(clusters: usize) {
    let (own, mut shared): (Vec<_>, Vec<_>) = objects(clusters)
        .into_iter()
        .partition(|object| object["kind"] == "FleetCluster");
    let own: Vec<_> = own
        .into_iter()
        .map(|mut object| {
            let cluster = Object {
                kind: "FleetCluster".into(),
                namespace: "default".into(),
                name: object["metadata"]["name"].as_str().unwrap().into(),
            };
            let spec: FleetClusterSpec = serde_json::from_value(object["spec"].take()).unwrap();
            (cluster, Arc::new(spec))
        })
        .collect();
    let read = |shared: &[Value]| {
        let mut fleet = Fleet::read(shared.iter().cloned(), "default").unwrap();
        for (cluster, spec) in &own {
            fleet.add_cluster(cluster, Arc::clone(spec), BTreeMap::new());
        }
        fleet
    };
    let mut memo = Memo::default();
    let fleet = read(&shared);
    for (cluster, _) in &own {
        // What is remembered of each does not count, but that it is.
        memo.render(&fleet, cluster, || ());
    }
    let mut sites = shared.iter_mut().filter(|object| object["kind"] == "Site");
    let site = sites.next().unwrap();
    site["spec"]["values"]["edited"] = json!(true);
    let begin = Instant::now();
    let edited = read(&shared);
    let mut rendered = 0;
    for (cluster, _) in &own {
        memo.render(&edited, cluster, || {
            edited.render(cluster).unwrap();
            rendered += 1;
        });
    }
    println!(
        "one site      {:.1?}: {rendered} of {} clusters rendered again",
        begin.elapsed(),
        own.len()
    );
}

fn objects(clusters: usize) -> Vec<Value> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet");
    let read = |file: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(directory.join(file)).unwrap();
        serde_saphyr::from_multiple(&text).unwrap()
    };
    let mut objects = Vec::new();
    for file in ["hierarchy.yaml", "environment.yaml", "template.yaml"] {
        objects.extend(read(file));
    }
    for number in 0..SITES {
        for (file, parent) in [
            ("customer.yaml", None),
            ("site.yaml", Some("customer")),
            ("infra-provider.yaml", Some("site")),
        ] {
            let mut object = read(file).remove(0);
            object["metadata"]["name"] = json!(format!("n{number}"));
            if let Some(parent) = parent {
                object["spec"]["parents"][parent] = json!(format!("n{number}"));
            }
            objects.push(object);
        }
    }
    for number in 0..clusters {
        let name = format!("c{number:05}");
        let nodes: serde_json::Map<_, _> = (0..HOSTS)
            .map(|host| {
                let kind = if host < 3 { "master" } else { "worker" };
                let address = format!("10.{}.{}.{host}", number / 250, number % 250);
                (
                    format!("{name}-{host}"),
                    json!({"address": address, "type": kind}),
                )
            })
            .collect();
        let site = number * SITES / clusters.max(1);
        objects.push(json!({
            "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "FleetCluster", "metadata": {"name": name},
            "spec": {"parents": {"infraProvider": format!("n{site}")}, "values": {
                "network": {"dns": ["10.0.0.53"], "pods": "10.240.64.0/18"}, "nodes": nodes}},
        }));
    }
    objects
}

/// The most memory that this process had, as Linux tells it.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.unwrap_or_default()
        .replace("VmHWM:", "")
        .trim()
        .to_owned()
}

const SITES: usize = 100;
const HOSTS: usize = 13;
