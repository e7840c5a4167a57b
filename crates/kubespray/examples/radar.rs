//! Measures the drift radar: `radar KEY LOOKS ADDRESS...` prints JSON.
//!
//! It looks as an operator does, at a Cluster of an API in memory with these hosts. The processor time is that of this process, and that
//! of its ssh clients. The first look learns the keys of the hosts.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement that fails shall stop"
)]

use std::{collections::BTreeMap, time::Duration};

use api::{Cluster, ClusterNode};
use controller::WakeUps;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{Api, Client, api::PostParams};
use kubespray::{
    Layout,
    preview::{Objects, inputs},
    radar::{Mark, RadarBook, Watch},
};
use serde_json::{from_value, json};
use tokio::time::Instant;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [key, looks, addresses @ ..] = arguments.as_slice() else {
        eprintln!("radar KEY LOOKS ADDRESS...");
        std::process::exit(2);
    };
    let looks: usize = looks.parse().expect("a number of looks");
    let kinds = api::custom_resource_definitions();
    let server = kapi::Server::in_memory(&kinds).await;
    let server = server.expect("the API opens");
    let client = Client::new(server.router(), "default");
    let object = json!({"metadata": {"name": "demo"}});
    let namespace: Namespace = from_value(object).expect("a Namespace");
    let params = PostParams::default();
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.create(&params, &namespace).await.expect("taken");
    let key = std::fs::read_to_string(key).expect("a key");
    let object = json!({"metadata": {"name": "key"}, "stringData": {"ssh-privatekey": key}});
    let secret: Secret = from_value(object).expect("a Secret");
    let secrets = Api::<Secret>::namespaced(client.clone(), "demo");
    secrets.create(&params, &secret).await.expect("taken");

    let (cluster, objects) = described(addresses);
    let watch = Watch {
        every: Duration::from_mins(5),
        inputs: inputs(&cluster, &objects).expect("a cluster"),
        mark: Mark::default(),
    };
    let data = tempfile::tempdir().expect("a directory");
    let layout = Layout::new(data.path());
    let book = RadarBook::new(client, layout, WakeUps::default(), WakeUps::default());
    let mut seconds = Vec::new();
    for _ in 0..looks {
        let (start, before) = (Instant::now(), processor_seconds());
        book.awaits(&cluster, true);
        book.refresh(&cluster, watch.clone(), BTreeMap::new);
        // While it looks nobody knows when it looks next.
        while book.interval(&cluster).is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let after = processor_seconds();
        let (own, ssh) = (after.0 - before.0, after.1 - before.1);
        seconds.push(json!({"wall": start.elapsed().as_secs_f64(), "own": own, "ssh": ssh}));
    }
    let hosts = book.latest(&cluster).expect("somebody has looked");
    let mut states = BTreeMap::new();
    for host in hosts.values() {
        *states.entry(format!("{:?}", host.state)).or_insert(0) += 1;
        if let Some(why) = &host.message {
            eprintln!("{why}");
        }
    }
    println!("{}", json!({"looks": seconds, "states": states}));
}

fn described(addresses: &[String]) -> (Cluster, Objects) {
    let bundle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bundle");
    let object = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "first", "namespace": "demo"},
        "spec": {
            "kubespray": {"version": "2.30.0", "source": {"path": bundle}},
            "kubernetesVersion": "1.34.4",
            "ssh": {"user": "root", "privateKeySecretRef": {"name": "key"}},
            "radar": {"every": "5m"},
        },
    });
    let cluster: Cluster = from_value(object).expect("a Cluster");
    let node = |(at, address): (usize, &String)| -> ClusterNode {
        let kind = if at < 3 { "master" } else { "worker" };
        let object = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
            "metadata": {"name": format!("host-{at}"), "namespace": "demo"},
            "spec": {"type": kind, "inventory": {"ansible_host": address}},
        });
        from_value(object).expect("a ClusterNode")
    };
    let objects = Objects {
        clusters: vec![cluster.clone()],
        nodes: addresses.iter().enumerate().map(node).collect(),
        ..Objects::default()
    };
    (cluster, objects)
}

/// Fields 14 to 17 of `/proc/self/stat`, in hundredths: of this process, and of its children that ended.
fn processor_seconds() -> (f64, f64) {
    let line = std::fs::read_to_string("/proc/self/stat").expect("the kernel's record");
    let (_, rest) = line.rsplit_once(") ").expect("a name in brackets");
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |index: usize| fields[index].parse::<f64>().expect("a number");
    (
        (ticks(11) + ticks(12)) / 100.0,
        (ticks(13) + ticks(14)) / 100.0,
    )
}
