//! Puts the same load on any API by its kubeconfig, so that the embedded API and a real one can be compared.
//!
//! `load serve DIRECTORY` serves the embedded API over TLS until its standard input ends, and prints the kubeconfig.
//! `load ready KUBECONFIG` ends when the API says that it is ready.
//! `load measure KUBECONFIG` creates 10,000 objects of 4 KiB with 1 and 16 clients, lists and watches them, and prints JSON.
//! `load rate KUBECONFIG CLIENTS EACH` only creates, as many as it is told, for a profiler.
//! `load list KUBECONFIG` lists them twenty times.
//! `load create KUBECONFIG FILE` posts what the file's lines say: a path, a tab, a body.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement that fails shall stop"
)]

mod payload;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{AsyncBufReadExt, StreamExt, stream};
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
    config::{KubeConfigOptions, Kubeconfig},
};
use rustls_pki_types::ServerName;
use secrecy::ExposeSecret;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

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
        ["rate", kubeconfig, clients, each] => {
            let number = |text: &str| text.parse().expect("a number");
            let rate = creates(kubeconfig.as_ref(), number(clients), number(each)).await;
            println!("{rate:.0}/s");
        }
        ["list", kubeconfig] => {
            lists(&client(kubeconfig.as_ref()).await, 20).await;
        }
        ["create", kubeconfig, file] => create(kubeconfig.as_ref(), file.as_ref()).await,
        _ => {
            eprintln!(
                "load serve DIRECTORY | ready KUBECONFIG | measure KUBECONFIG | rate KUBECONFIG CLIENTS EACH | list KUBECONFIG | create KUBECONFIG FILE"
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
    let mut connected = Vec::new();
    for _ in 0..clients {
        // The handshake is not what is measured.
        connected.push(Connection::open(kubeconfig).await);
    }
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (number, connection) in connected.into_iter().enumerate() {
        let payload = payload::inventory(number);
        let bodies = (0..each).map(move |index| {
            format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c{clients}-{number}-{index}"}},"data":{{"d":"{payload}"}}}}"#
            )
        });
        tasks.spawn(connection.post_all(MAPS, bodies));
    }
    tasks.join_all().await;
    #[expect(clippy::cast_precision_loss, reason = "a figure to read")]
    let rate = (clients * each) as f64 / start.elapsed().as_secs_f64();
    rate
}

/// One connection and nothing around it: the clients share the processor with the servers that are compared.
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: http1::Connection<TokioIo<TlsStream<TcpStream>>, Full<Bytes>>,
    host: String,
    authorization: Option<HeaderValue>,
}

impl Connection {
    async fn open(kubeconfig: &Path) -> Self {
        let config = config(kubeconfig).await;
        let host = config.cluster_url.authority().expect("a host").clone();
        let name = host.host().to_owned();
        let name = ServerName::try_from(name).expect("a name for TLS");
        let tls = config.rustls_client_config().expect("settings for TLS");
        let stream = TcpStream::connect(host.as_str()).await.expect("it accepts");
        stream.set_nodelay(true).expect("a socket");
        let stream = TlsConnector::from(Arc::new(tls))
            .connect(name, stream)
            .await;
        let stream = TokioIo::new(stream.expect("it agrees on TLS"));
        let (sender, driver) = http1::handshake(stream).await.expect("it speaks HTTP");
        let token = config.auth_info.token;
        let authorization = token.map(|token| {
            let text = format!("Bearer {}", token.expose_secret());
            HeaderValue::from_str(&text).expect("a token")
        });
        Self {
            sender,
            driver,
            host: host.to_string(),
            authorization,
        }
    }

    /// Posts one after the other; each must be created.
    async fn post_all(mut self, path: &str, bodies: impl Iterator<Item = String>) {
        let work = async {
            for body in bodies {
                let mut request = Request::post(path)
                    .header(header::HOST, &self.host)
                    .header(header::CONTENT_TYPE, "application/json");
                if let Some(authorization) = &self.authorization {
                    request = request.header(header::AUTHORIZATION, authorization);
                }
                let request = request.body(Full::from(body)).expect("a request");
                let response = self.sender.send_request(request).await.expect("an answer");
                assert_eq!(response.status(), StatusCode::CREATED);
                let answer = response
                    .into_body()
                    .collect()
                    .await
                    .expect("a whole answer");
                assert!(answer.to_bytes().len() > 3_700);
            }
        };
        // Both in one task, so that no request has to wake another.
        tokio::select! {
            ended = self.driver => panic!("the server ended the connection: {ended:?}"),
            () = work => {}
        }
    }
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
    Client::try_from(config(kubeconfig).await).expect("a client")
}

#[expect(
    clippy::disallowed_methods,
    reason = "the kubeconfig is of a server that is measured"
)]
async fn config(kubeconfig: &Path) -> Config {
    let file = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .expect("a kubeconfig that can be used");
    config.read_timeout = Some(Duration::from_mins(1));
    config
}
