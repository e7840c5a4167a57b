//! Puts the same load on any API by its kubeconfig, so that the embedded API and a real one can be compared.
//!
//! `load serve DIRECTORY` serves the embedded API over TLS until its standard input ends, and prints the kubeconfig.
//! `load ready KUBECONFIG` ends when the API says that it is ready.
//! `load measure KUBECONFIG` creates 10,000 objects of 4 KiB with 1 and 16 clients, lists and watches them, and prints JSON.
//! `load list KUBECONFIG` lists them twenty times.
//! `load create KUBECONFIG FILE` posts what the file's lines say: a path, a tab, a body.

#![allow(clippy::expect_used, reason = "a measurement that fails shall stop")]

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{AsyncBufReadExt, StreamExt, stream};
use http::Request;
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::main]
async fn main() {
    // More than one provider may be compiled in; the first one that is installed is the one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["serve", directory] => serve(directory.as_ref()).await,
        ["ready", kubeconfig] => ready(kubeconfig.as_ref()).await,
        ["measure", kubeconfig] => measure(kubeconfig.as_ref()).await,
        ["list", kubeconfig] => {
            lists(&client(kubeconfig.as_ref()).await, 20).await;
        }
        ["create", kubeconfig, file] => create(kubeconfig.as_ref(), file.as_ref()).await,
        _ => {
            eprintln!(
                "load serve DIRECTORY | ready KUBECONFIG | measure KUBECONFIG | list KUBECONFIG | create KUBECONFIG FILE"
            );
            std::process::exit(2);
        }
    }
}

async fn serve(directory: &Path) {
    let options = kapi::Options {
        data_dir: directory.to_owned(),
        crds: Vec::new(),
        listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
    };
    let server = kapi::Server::open(options).await.expect("the API opens");
    let kubeconfig = server.kubeconfig().expect("it listens");
    println!("{}", kubeconfig.display());
    let end = tokio::task::spawn_blocking(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    });
    let end = async {
        let _ = end.await;
    };
    server.serve(end).await.expect("the API serves");
}

async fn ready(kubeconfig: &Path) {
    let client = client(kubeconfig).await;
    loop {
        let request = Request::get("/readyz").body(Vec::new()).expect("a request");
        if client.request_text(request).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn measure(kubeconfig: &Path) {
    // One connection a client, as separate programs have.
    let single = creates(kubeconfig, 1, 2_000).await;
    let sixteen = creates(kubeconfig, 16, 500).await;
    let client = client(kubeconfig).await;
    let (list, _) = quantiles(lists(&client, 5).await);
    let (fan_out, fan_out_slow) = quantiles(fan_out(&client).await);
    println!(
        r#"{{"single": {single:.1}, "sixteen": {sixteen:.1}, "list_ms": {list:.2}, "fan_out_ms": {fan_out:.2}, "fan_out_p99_ms": {fan_out_slow:.2}}}"#
    );
}

/// Until the last byte is here: what a client makes of it is not the server's.
async fn lists(client: &Client, count: usize) -> Vec<Duration> {
    let mut durations = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        let request = Request::get(MAPS).body(Body::empty()).expect("a request");
        let response = client.send(request).await.expect("a list");
        assert!(response.status().is_success());
        let mut parts = response.into_body().into_data_stream();
        let mut size = 0;
        while let Some(part) = parts.next().await {
            size += part.expect("a part").len();
        }
        assert!(size > 10_000 * 3_700, "{size} bytes");
        durations.push(start.elapsed());
    }
    durations
}

/// The median and the 99th of a hundred, in milliseconds.
fn quantiles(mut durations: Vec<Duration>) -> (f64, f64) {
    durations.sort();
    let at = |part: usize| durations[(durations.len() - 1) * part / 100].as_secs_f64() * 1e3;
    (at(50), at(99))
}

/// From a write until the last of 100 watchers has it.
async fn fan_out(client: &Client) -> Vec<Duration> {
    let object = format!("{MAPS}/c1-0-0");
    let watch = format!(
        "{MAPS}?watch=true&fieldSelector=metadata.name%3Dc1-0-0&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    );
    let (seen, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..100 {
        let request = Request::get(&watch).body(Vec::new()).expect("a request");
        let mut lines = client
            .request_stream(request)
            .await
            .expect("a watch")
            .lines();
        // The object as it is, and the bookmark that ends what is there.
        for _ in 0..2 {
            lines.next().await.expect("a line").expect("an event");
        }
        let seen = seen.clone();
        tokio::spawn(async move {
            while let Some(Ok(line)) = lines.next().await {
                if line.contains("MODIFIED") {
                    let _ = seen.send(Instant::now());
                }
            }
        });
    }
    let mut delays = Vec::new();
    for update in 0..200 {
        let body = format!(r#"{{"data":{{"n":"{update}"}}}}"#);
        let request = Request::patch(&object)
            .header("content-type", "application/merge-patch+json")
            .body(body.into_bytes())
            .expect("a request");
        let start = Instant::now();
        client.request_text(request).await.expect("it is patched");
        let mut last = start;
        for _ in 0..100 {
            last = last.max(arrivals.recv().await.expect("watchers are there"));
        }
        delays.push(last - start);
    }
    delays
}

/// Creates per second.
async fn creates(kubeconfig: &Path, clients: usize, each: usize) -> f64 {
    let payload: Arc<str> = "x".repeat(3_700).into();
    let mut connected = Vec::new();
    for _ in 0..clients {
        let client = client(kubeconfig).await;
        // The handshake is not what is measured.
        let request = Request::get("/version")
            .body(Vec::new())
            .expect("a request");
        client.request_text(request).await.expect("an answer");
        connected.push(client);
    }
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (number, client) in connected.into_iter().enumerate() {
        let payload = Arc::clone(&payload);
        tasks.spawn(async move {
            for index in 0..each {
                let body = format!(
                    r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c{clients}-{number}-{index}"}},"data":{{"d":"{payload}"}}}}"#
                );
                post(&client, MAPS, body).await.expect("it is created");
            }
        });
    }
    tasks.join_all().await;
    #[expect(clippy::cast_precision_loss, reason = "a figure to read")]
    let rate = (clients * each) as f64 / start.elapsed().as_secs_f64();
    rate
}

async fn create(kubeconfig: &Path, file: &Path) {
    let text = std::fs::read_to_string(file).expect("the file is there");
    let client = client(kubeconfig).await;
    stream::iter(text.lines())
        .for_each_concurrent(16, |line| {
            let client = client.clone();
            async move {
                let (path, body) = line.split_once('\t').expect("a path, a tab, a body");
                post(&client, path, body.to_owned())
                    .await
                    .expect("it is created");
            }
        })
        .await;
}

async fn post(client: &Client, path: &str, body: String) -> Result<(), kube::Error> {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(body.into_bytes())
        .expect("a request");
    client.request_text(request).await.map(drop)
}

async fn client(kubeconfig: &Path) -> Client {
    let file = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .expect("a kubeconfig that can be used");
    config.read_timeout = Some(Duration::from_mins(1));
    Client::try_from(config).expect("a client")
}
