//! An API that hangs, in time that passes at once.

use std::sync::{Arc, Mutex};

use axum::{Json, Router, http::Uri};
use serde_json::json;

use super::*;

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const MACHINES: usize = 20;

/// What came of reading, what was asked for and how long it took.
struct Reading {
    seen: anyhow::Result<Seen>,
    asked: Vec<String>,
    took: Duration,
}

/// Reads a cluster from an API that never answers at some paths.
async fn reading(hangs: fn(&str) -> bool) -> Reading {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let router = Router::new().fallback(move |uri: Uri| {
        let path = uri.path().to_owned();
        log.lock().unwrap().push(path.clone());
        async move {
            if hangs(&path) {
                std::future::pending::<()>().await;
            }
            Json(answer(&path))
        }
    });
    let client = Client::new(router, "default");
    let begun = Instant::now();
    let seen = read(&client, "site", "shop");
    let seen = tokio::time::timeout(Duration::from_hours(1), seen).await;
    let asked = asked.lock().unwrap().clone();
    Reading {
        seen: seen.expect("reading ends"),
        asked,
        took: begun.elapsed(),
    }
}

fn answer(path: &str) -> Value {
    let group = |name: &str, versions: &[&str]| {
        let versions = versions.iter().map(
            |version| json!({"groupVersion": format!("{name}/{version}"), "version": version}),
        );
        json!({"name": name, "versions": versions.collect::<Vec<_>>()})
    };
    let resource = |kind: &str| {
        let plural = format!("{}s", kind.to_lowercase());
        json!({"name": plural, "kind": kind, "namespaced": true, "verbs": ["get", "list"]})
    };
    let resources = |version: &str, kinds: &[&str]| {
        let kinds = kinds.iter().map(|kind| resource(kind));
        json!({"groupVersion": version, "resources": kinds.collect::<Vec<_>>()})
    };
    let machine = |at: usize| {
        let name = format!("shop-{at}");
        let reference = json!({"apiGroup": INFRASTRUCTURE, "kind": "TinMachine", "name": name});
        json!({"metadata": {"name": name}, "spec": {"infrastructureRef": reference}})
    };
    match path {
        "/apis" => {
            let core = group(CORE, &["v1beta2"]);
            let tin = group(INFRASTRUCTURE, &["v1beta1", "v1beta2"]);
            json!({"groups": [core, tin]})
        }
        "/apis/cluster.x-k8s.io/v1beta2" => {
            resources("cluster.x-k8s.io/v1beta2", &["Cluster", "Machine"])
        }
        "/apis/infrastructure.cluster.x-k8s.io/v1beta1" => resources(
            "infrastructure.cluster.x-k8s.io/v1beta1",
            &["TinCluster", "TinMachine"],
        ),
        "/apis/infrastructure.cluster.x-k8s.io/v1beta2" => resources(
            "infrastructure.cluster.x-k8s.io/v1beta2",
            &["TinCluster", "TinMachine"],
        ),
        _ if path.ends_with("/clusters/shop") => {
            let reference =
                json!({"apiGroup": INFRASTRUCTURE, "kind": "TinCluster", "name": "shop"});
            json!({"metadata": {"name": "shop", "namespace": "site"}, "spec": {"infrastructureRef": reference}})
        }
        _ if path.ends_with("/tinclusters/shop") => json!({"metadata": {"name": "shop"}}),
        _ if path.ends_with("/machines") => {
            let machines: Vec<_> = (0..MACHINES).map(machine).collect();
            json!({"metadata": {}, "items": machines})
        }
        _ => json!({"metadata": {}, "items": []}),
    }
}

/// Why the machines' infrastructure is not read, each time.
fn unread_machines(seen: &Seen) -> Vec<&str> {
    let machines = seen.referenced.iter();
    let machines = machines.filter(|(reference, _)| reference.kind == "TinMachine");
    let why = machines.filter_map(|(_, looked)| match looked {
        Looked::Unread(why) => Some(why.as_str()),
        _ => None,
    });
    why.collect()
}

const SILENT: &str = "the API has not answered within 15 s";

#[tokio::test(start_paused = true)]
async fn a_kind_whose_list_hangs_is_asked_for_once_in_each_version() {
    let reading = reading(|path| path.contains("/tinmachines")).await;
    let seen = reading.seen.unwrap();
    assert_eq!(unread_machines(&seen), [SILENT; MACHINES]);
    let asked = reading.asked.iter();
    let asked: Vec<_> = asked.filter(|path| path.contains("/tinmachines")).collect();
    assert_eq!(
        asked,
        [
            "/apis/infrastructure.cluster.x-k8s.io/v1beta2/namespaces/site/tinmachines",
            "/apis/infrastructure.cluster.x-k8s.io/v1beta1/namespaces/site/tinmachines",
        ]
    );
    let others = seen.referenced.values();
    let found = others.filter(|looked| matches!(looked, Looked::Found(_)));
    assert_eq!(found.count(), 1, "the TinCluster is read all the same");
    assert!(reading.took < ALL, "{:?}", reading.took);
}

#[tokio::test(start_paused = true)]
async fn all_of_it_takes_no_longer_than_a_minute() {
    let reading = reading(|path| path.contains("/tinmachines/")).await;
    let seen = reading.seen.unwrap();
    let why = unread_machines(&seen);
    assert_eq!(why.len(), MACHINES);
    assert!(why.contains(&SILENT), "{why:?}");
    let late = "the API has not answered all within 60 s";
    assert!(why.contains(&late), "{why:?}");
    assert!(reading.took < ALL + ANSWER, "{:?}", reading.took);
}

#[tokio::test(start_paused = true)]
async fn what_hangs_before_the_cluster_is_read_is_the_end() {
    let first = reading(|path| path == "/apis").await;
    let refused = format!("{:#}", first.seen.unwrap_err());
    assert!(refused.contains(SILENT), "{refused}");
    let refused = reading(|path| path.contains("/clusters/")).await.seen;
    let refused = refused.unwrap_err().to_string();
    let expected = format!("failed to read Cluster site/shop: {SILENT}");
    assert_eq!(refused, expected);
    let listed = reading(|path| path.ends_with("/machines")).await.seen;
    let lack = listed.unwrap().machines.lack;
    assert_eq!(lack.as_deref(), Some(SILENT));
}
