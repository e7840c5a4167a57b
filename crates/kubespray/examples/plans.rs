//! How long it takes to plan what is asked of a cluster of so many hosts: from the objects, as the operator has them in memory, to the
//! plan that it would store. `plans HOSTS TIMES` prints, as JSON, the milliseconds of each time, by operation.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement that fails shall stop"
)]

use std::{sync::Arc, time::Instant};

use ansible::source::{Policy, Sources};
use api::{
    Cluster, ClusterNode,
    run::{RunPhase, RunStatus},
};
use jiff::Timestamp;
use kubespray::{
    cluster::{
        decision::{Decision, NewRun},
        observe::Observed,
        plan, resolve,
    },
    inputs::Inputs,
    playbooks::{self, Playbooks, Wish},
};
use serde_json::{Map, Value, json};

const BUNDLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bundle");
const CONTROL_PLANES: u32 = 3;
/// What the cluster is built with, and what it is upgraded to.
const VERSIONS: [&str; 2] = ["1.33.13", "1.34.4"];

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [hosts, times] = &arguments[..] else {
        panic!("plans HOSTS TIMES");
    };
    let hosts: u32 = hosts.parse().expect("a number of hosts");
    let times: u32 = times.parse().expect("a number of times");
    let mut world = World::new(hosts).await;
    let mut figures = Map::new();
    let new = world.measure("Create", times, &mut figures);
    world.build(&new);
    world.declare(hosts);
    world.measure("Scale", times, &mut figures);
    world.observed.nodes.pop();
    world.wish(VERSIONS[1]);
    world.measure("Upgrade", times, &mut figures);
    println!("{}", Value::Object(figures));
}

struct World {
    cluster: Cluster,
    observed: Observed,
}

impl World {
    async fn new(hosts: u32) -> Self {
        let cluster: Cluster = object(json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "namespace": "bench", "uid": "c", "generation": 1},
            "spec": {
                "kubernetesVersion": VERSIONS[0],
                "kubespray": {"version": "2.30.0", "source": {"path": BUNDLE}},
                "operations": {
                    "creation": {"startConditions": {"nodes": {"minimum": hosts}}},
                    "upgrade": {"maxUnavailable": "5%"},
                },
            },
        }));
        let data = tempfile::tempdir().expect("a directory");
        let sources = Sources::new(data.path().to_owned(), Policy::person());
        let wish = Wish::of(&cluster).expect("playbooks are named");
        let checkout = playbooks::load(&wish, "bench", &sources).await;
        let checkout = checkout.expect("the bundle is there");
        let mut world = Self {
            cluster,
            observed: Observed::empty(Timestamp::now(), Playbooks::Ready(Arc::new(checkout))),
        };
        (0..hosts).for_each(|host| world.declare(host));
        world
    }

    fn declare(&mut self, host: u32) {
        let kind = if host < CONTROL_PLANES {
            "master"
        } else {
            "worker"
        };
        let made = Timestamp::from_second(host.into()).expect("shortly after the epoch");
        let node: ClusterNode = object(json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
            "metadata": {
                "name": format!("host-{host:04}"), "namespace": "bench", "uid": host.to_string(),
                "generation": 1, "creationTimestamp": made,
            },
            "spec": {"type": kind, "inventory": {
                "ansible_host": format!("10.0.{}.{}", host / 200, host % 200 + 1),
            }},
        }));
        self.observed.nodes.push(node);
    }

    fn wish(&mut self, version: &str) {
        let version = version.parse().expect("a version");
        self.cluster.spec.kubernetes_version = Some(version);
        self.cluster.metadata.generation = Some(2);
    }

    /// Notes how long each time took, and gives the plan.
    fn measure(&self, operation: &str, times: u32, figures: &mut Map<String, Value>) -> NewRun {
        let mut last = None;
        let mut each = Vec::new();
        for _ in 0..times {
            let started = Instant::now();
            let new = self.plan();
            each.push(started.elapsed().as_secs_f64() * 1e3);
            assert_eq!(
                new.operation.name, operation,
                "another operation has the say"
            );
            last = Some(new);
        }
        figures.insert(operation.to_owned(), json!(each));
        last.expect("at least once")
    }

    fn plan(&self) -> NewRun {
        let wanted = resolve::resolve(&self.cluster, &self.observed);
        let wanted = wanted.as_ref().map_err(Vec::as_slice);
        match plan::planned(&self.cluster, wanted, &self.observed).decision {
            Decision::Start(new) => *new,
            other => panic!("there is no plan: {other:?}"),
        }
    }

    /// As the operator and a runner leave it.
    fn build(&mut self, new: &NewRun) {
        let NewRun {
            name,
            operation,
            generation,
            plan,
            ..
        } = new;
        let mut run = runs::object::of(
            &self.cluster,
            name.clone(),
            operation.name,
            *generation,
            plan.clone(),
        );
        run.status = Some(RunStatus {
            phase: RunPhase::Succeeded,
            ..RunStatus::default()
        });
        self.observed.runs.push(run);
        let inputs = Inputs::from_map(&plan.inputs).expect("a plan has inputs");
        let mut status = self.cluster.status.take().unwrap_or_default();
        status.inventory = Some(inputs.inventory);
        self.cluster.status = Some(status);
    }
}

fn object<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("a valid object")
}
