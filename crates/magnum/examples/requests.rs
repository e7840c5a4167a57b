//! Puts the same load on any Magnum API, so that Windlass and the real one can be compared.
//!
//! The token that lets in is in `OS_TOKEN`, for what is in arguments is seen by everybody on the machine.
//!
//! `requests fill ADDRESS COUNT` makes a template and so many clusters of one control plane.
//! `requests build KUBECONFIG COUNT` gives them hosts, and tells for kubespray that they are built, until each is complete.
//! `requests measure ADDRESS` gets, lists and makes templates, and prints JSON.
//! `requests pace ADDRESS RATE SECONDS` gets a cluster so often a second, whatever the answers take, and prints JSON.
//! `requests change KUBECONFIG ADDRESS` changes the health of a cluster twenty times, and prints how long nobody sees it, in milliseconds.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement that fails shall stop"
)]

use std::{
    env,
    time::{Duration, Instant},
};

use api::{
    Cluster, ClusterNode,
    magnum::{CoeCluster, Host},
};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How often each request is repeated whose figures are single.
const GETS: usize = 1000;
const LISTS: usize = 5;
const TEMPLATES: usize = 50;
/// How many requests of 8 clients there are.
const MANY: usize = 2000;

#[tokio::main]
async fn main() {
    // More than one provider may be compiled in; the first one that is installed is the one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().expect("a number");
    match arguments.as_slice() {
        ["fill", address, count] => Magnum::at(address).fill(number(count)).await,
        ["build", kubeconfig, count] => build(&client(kubeconfig).await, number(count)).await,
        ["measure", address] => println!("{}", Magnum::at(address).measure().await),
        ["pace", address, rate, seconds] => {
            let magnum = Magnum::at(address);
            println!("{}", magnum.pace(number(rate), number(seconds)).await);
        }
        ["change", kubeconfig, address] => {
            let seen = change(&client(kubeconfig).await, &Magnum::at(address)).await;
            println!("{seen:.1}");
        }
        _ => {
            eprintln!(
                "requests fill ADDRESS COUNT | build KUBECONFIG COUNT | measure ADDRESS | pace ADDRESS RATE SECONDS | change KUBECONFIG ADDRESS"
            );
            std::process::exit(2);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the bench names a kubeconfig that it made itself"
)]
async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

/// A Magnum API.
#[derive(Clone)]
struct Magnum {
    http: reqwest::Client,
    address: String,
    token: String,
}

impl Magnum {
    fn at(address: &str) -> Self {
        let http = reqwest::Client::builder().no_proxy().build();
        Self {
            http: http.expect("a client"),
            address: address.to_owned(),
            token: env::var("OS_TOKEN").expect("OS_TOKEN holds a token"),
        }
    }

    /// The body of an answer, when its last byte is here.
    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let mut request = self.http.request(method, format!("{}{path}", self.address));
        request = request
            .header("x-auth-token", &self.token)
            .header("openstack-api-version", "container-infra 1.14");
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body.to_string());
        }
        let response = request.send().await.expect("an answer");
        let status = response.status();
        let text = response.text().await.expect("a body");
        assert!(status.is_success(), "{path}: {status}: {text}");
        if status == StatusCode::NO_CONTENT {
            return Value::Null;
        }
        serde_json::from_str(&text).expect("JSON")
    }

    async fn template(&self, name: &str) -> String {
        let body = json!({
            "name": name, "coe": "kubernetes", "image_id": "debian", "server_type": "bm", "external_network_id": "public",
            "flavor_id": "metal", "master_flavor_id": "metal", "network_driver": "calico",
            "labels": {"kube_tag": "v1.34.3"},
        });
        let made = self
            .ask(Method::POST, "/clustertemplates", Some(body))
            .await;
        made["uuid"].as_str().expect("a UUID").to_owned()
    }

    async fn fill(&self, count: usize) {
        let template = self.template("small").await;
        let made = stream::iter(0..count).map(|at| {
            let body = json!({"name": format!("c-{at}"), "cluster_template_id": template, "node_count": 0});
            self.ask(Method::POST, "/clusters", Some(body))
        });
        made.buffer_unordered(8).for_each(async |_| {}).await;
    }

    /// The path of a cluster in the middle.
    async fn one(&self) -> String {
        let all = self.ask(Method::GET, "/clusters", None).await;
        let all = all["clusters"].as_array().expect("a list");
        let uuid = all[all.len() / 2]["uuid"].as_str().expect("a UUID");
        format!("/clusters/{uuid}")
    }

    async fn measure(&self) -> Value {
        let one = self.one().await;
        let (get, get_slow) = quantiles(self.repeat(&one, GETS).await);
        let (list, _) = quantiles(self.repeat("/clusters", LISTS).await);
        let mut templates = Vec::new();
        for at in 0..TEMPLATES {
            let start = Instant::now();
            self.template(&format!("t-{at}")).await;
            templates.push(start.elapsed());
        }
        let (template, _) = quantiles(templates);
        let start = Instant::now();
        let many = stream::iter(0..MANY).map(|_| self.ask(Method::GET, &one, None));
        many.buffer_unordered(8).for_each(async |_| {}).await;
        let rate = count(MANY) / start.elapsed().as_secs_f64();
        json!({"get_ms": get, "get_p99_ms": get_slow, "list_ms": list, "template_ms": template, "rate": rate, "many": MANY})
    }

    async fn repeat(&self, path: &str, times: usize) -> Vec<Duration> {
        let mut durations = Vec::new();
        for _ in 0..times {
            let start = Instant::now();
            self.ask(Method::GET, path, None).await;
            durations.push(start.elapsed());
        }
        durations
    }

    /// Each is timed from when it was due: what waits for others is not let off.
    async fn pace(&self, rate: usize, seconds: usize) -> Value {
        let one = self.one().await;
        let mut due = interval(Duration::from_secs(1) / u32::try_from(rate).expect("a rate"));
        due.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut asked = Vec::new();
        for _ in 0..rate * seconds {
            let start = due.tick().await.into_std();
            let (magnum, one) = (self.clone(), one.clone());
            asked.push(tokio::spawn(async move {
                magnum.ask(Method::GET, &one, None).await;
                start.elapsed()
            }));
        }
        let mut durations = Vec::new();
        for answered in asked {
            durations.push(answered.await.expect("an answer"));
        }
        let (median, slow) = quantiles(durations);
        json!({"p50_ms": median, "p99_ms": slow})
    }
}

/// The median and the 99th of a hundred, in milliseconds.
fn quantiles(mut durations: Vec<Duration>) -> (f64, f64) {
    durations.sort();
    let at = |part: usize| durations[(durations.len() - 1) * part / 100].as_secs_f64() * 1e3;
    (at(50), at(99))
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).expect("a small number"))
}

/// Hosts that nobody logs in to; what the operator of kubespray's objects would tell is written into their status.
async fn build(client: &Client, count: usize) {
    let hosts: Api<Host> = Api::default_namespaced(client.clone());
    let pool = stream::iter(0..count).map(|at| {
        let host = json!({
            "apiVersion": "magnum.windlass.dev/v1alpha1", "kind": "Host", "metadata": {"name": format!("host-{at}")},
            "spec": {"address": format!("10.{}.{}.{}", at >> 16, (at >> 8) & 255, at & 255)},
        });
        let host: Host = serde_json::from_value(host).expect("a Host");
        let hosts = hosts.clone();
        async move { hosts.create(&PostParams::default(), &host).await }
    });
    let made: Result<Vec<_>, _> = pool.buffer_unordered(8).try_collect().await;
    made.expect("hosts");
    let key = json!({"metadata": {"name": "magnum-ssh"}, "stringData": {"ssh-privatekey": "none"}});
    let key: Secret = serde_json::from_value(key).expect("a Secret");
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let stored = secrets.create(&PostParams::default(), &key).await;
    stored.expect("the key of the hosts");
    let wanted: Api<CoeCluster> = Api::all(client.clone());
    loop {
        play(client).await;
        let all = wanted.list(&ListParams::default()).await;
        let all = all.expect("clusters").items;
        let state = |cluster: &CoeCluster| cluster.status.as_ref().and_then(|status| status.state);
        let complete = all
            .iter()
            .filter(|cluster| state(cluster).is_some_and(api::magnum::State::is_complete));
        if complete.count() >= count {
            return;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Tells of each new Cluster that it is built, and of its nodes that they have joined.
async fn play(client: &Client) {
    let clusters: Api<Cluster> = Api::all(client.clone());
    let clusters = clusters.list(&ListParams::default()).await;
    let clusters = clusters.expect("clusters of kubespray").items.into_iter();
    let new = clusters.filter(|cluster| {
        let status = cluster.status.as_ref();
        status.is_none_or(|status| status.observed_generation != cluster.metadata.generation)
    });
    let told = stream::iter(new).map(async |cluster| {
        let namespace = cluster.namespace().expect("a namespace");
        let nodes: Api<ClusterNode> = Api::namespaced(client.clone(), &namespace);
        let there = nodes.list(&ListParams::default()).await.expect("nodes");
        for node in there {
            let joined = Patch::Merge(json!({"status": {"state": "Joined"}}));
            let patched = nodes
                .patch_status(&node.name_any(), &PatchParams::default(), &joined)
                .await;
            patched.expect("a node");
        }
        tell(client, &cluster, "HEALTH_OK").await;
    });
    told.buffer_unordered(8).for_each(async |()| {}).await;
}

async fn tell(client: &Client, cluster: &Cluster, health: &str) {
    let namespace = cluster.namespace().expect("a namespace");
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &namespace);
    let status = json!({"status": {
        "state": "Created", "observedGeneration": cluster.metadata.generation, "kubernetesVersion": "1.34.3",
        "cluster": {"health": health},
    }});
    let patched = clusters
        .patch_status(
            &cluster.name_any(),
            &PatchParams::default(),
            &Patch::Merge(status),
        )
        .await;
    patched.expect("a status");
}

/// From a write of kubespray's Cluster until the API of Magnum tells of it, in milliseconds: the median.
async fn change(client: &Client, magnum: &Magnum) -> f64 {
    let path = magnum.one().await;
    let uuid = path.rsplit('/').next().expect("a UUID");
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &format!("coe-{uuid}"));
    let cluster = clusters.get("cluster").await.expect("a cluster");
    let mut durations = Vec::new();
    for (health, word) in [("HEALTH_WARN", "UNHEALTHY"), ("HEALTH_OK", "HEALTHY")].repeat(10) {
        let start = Instant::now();
        tell(client, &cluster, health).await;
        while magnum.ask(Method::GET, &path, None).await["health_status"] != word {
            sleep(Duration::from_millis(1)).await;
        }
        durations.push(start.elapsed());
    }
    quantiles(durations).0
}
