//! Measures the embedded API on a durable store: `cargo run --release -p kapi --example bench [DIRECTORY]`.
//!
//! How long until it answers (a new directory with keys and certificates to make, and one that is there), creates per second with 1 and 16 clients (objects of 4 KiB, one commit to disk before each answer), the list of
//! 10,000 of them, the way of an event to 100 watchers, and the resident memory. Clients are in-process.

#![allow(clippy::expect_used, reason = "a measurement that fails shall stop")]

mod payload;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use axum::body::Body;
use futures::StreamExt;
use http::{Request, StatusCode, header};
use kapi::{Options, Server};
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::main]
async fn main() {
    let directory = std::env::args().nth(1).map_or_else(
        || std::env::temp_dir().join(format!("kapi-bench-{}", std::process::id())),
        PathBuf::from,
    );
    let options = Options {
        data_dir: directory.clone(),
        crds: Vec::new(),
        listen: None,
    };
    start("ready in a new directory", &directory).await;
    start("ready in one that is there", &directory).await;
    let server = match Server::open(options).await {
        Ok(server) => server,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    println!(
        "start                        {:>8.1} MiB resident",
        resident()
    );
    creates(&server, 1, 2_000).await;
    creates(&server, 16, 500).await;
    println!(
        "10,000 objects               {:>8.1} MiB resident",
        resident()
    );
    list(&server).await;
    fan_out(&server).await;
    println!(
        "end                          {:>8.1} MiB resident",
        resident()
    );
    drop(server);
    let _ = std::fs::remove_dir_all(directory);
}

/// Opens a server that listens, with the definitions of Windlass, and asks it whether it is ready.
async fn start(what: &str, directory: &std::path::Path) {
    let options = Options {
        data_dir: directory.to_owned(),
        crds: api::custom_resource_definitions(),
        listen: Some(([127, 0, 0, 1], 0).into()),
    };
    let begun = Instant::now();
    let server = Server::open(options).await.expect("a server");
    let request = Request::get("/readyz")
        .body(Body::empty())
        .expect("a request");
    let answer = server.router().oneshot(request).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    println!("{what:<28} {:>8.1} ms", begun.elapsed().as_secs_f64() * 1e3);
}

async fn creates(server: &Server, clients: usize, each: usize) {
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..clients {
        let router = server.router();
        let payload = payload::inventory(client);
        tasks.spawn(async move {
            for index in 0..each {
                let body = format!(
                    r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c{clients}-{client}-{index}"}},"data":{{"d":"{payload}"}}}}"#
                );
                let request = Request::post(MAPS)
                    .header(header::CONTENT_TYPE, "application/json")
                    .body(Body::from(body))
                    .expect("a request");
                let response = router.clone().oneshot(request).await.expect("infallible");
                assert_eq!(response.status(), StatusCode::CREATED);
            }
        });
    }
    tasks.join_all().await;
    #[expect(clippy::cast_precision_loss, reason = "a figure to read")]
    let rate = (clients * each) as f64 / start.elapsed().as_secs_f64();
    println!("create, {clients:>2} clients, durable  {rate:>8.0} /s");
}

async fn list(server: &Server) {
    let mut best = Duration::MAX;
    let mut size = 0;
    for _ in 0..5 {
        let start = Instant::now();
        let request = Request::get(MAPS).body(Body::empty()).expect("a request");
        let response = server.router().oneshot(request).await.expect("infallible");
        // Part by part, as a connection takes it.
        let mut parts = response.into_body().into_data_stream();
        size = 0;
        while let Some(part) = parts.next().await {
            size += part.expect("a part").len();
        }
        best = best.min(start.elapsed());
    }
    println!(
        "list of 10,000, {:>3} MiB       {:>8.1} ms",
        size >> 20,
        best.as_secs_f64() * 1e3
    );
}

async fn fan_out(server: &Server) {
    const UPDATES: usize = 200;
    let (seen, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let mut watchers = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let seen = seen.clone();
        let path = format!(
            "{MAPS}?watch=true&fieldSelector=metadata.name%3Dc1-0-0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
        );
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let response = server.router().oneshot(request).await.expect("infallible");
        watchers.spawn(async move {
            let mut stream = response.into_body().into_data_stream();
            while let Some(Ok(_)) = stream.next().await {
                let _ = seen.send(Instant::now());
            }
        });
    }
    let mut delays = Vec::new();
    for update in 0..UPDATES {
        let body = format!(r#"{{"data":{{"n":"{update}"}}}}"#);
        let request = Request::patch(format!("{MAPS}/c1-0-0"))
            .header(header::CONTENT_TYPE, "application/merge-patch+json")
            .body(Body::from(body))
            .expect("a request");
        let start = Instant::now();
        let response = server.router().oneshot(request).await.expect("infallible");
        assert_eq!(response.status(), StatusCode::OK);
        let mut last = start;
        for _ in 0..100 {
            last = arrivals.recv().await.expect("watchers are there");
        }
        delays.push(last - start);
    }
    delays.sort();
    let at = |part: usize| delays[(delays.len() - 1) * part / 100].as_secs_f64() * 1e3;
    println!(
        "write to last of 100 watchers {:>7.2} ms p50, {:.2} ms p99",
        at(50),
        at(99)
    );
}

/// Resident memory in MiB, as the system counts it.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or_default() / 1024.0
}
