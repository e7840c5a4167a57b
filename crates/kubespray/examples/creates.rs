//! The parts of a bench of the operator, each a process of its own, so that the processor time of each is known.
//!
//! `creates serve DIRECTORY` serves the embedded API over TLS until it is killed, and prints the kubeconfig.
//! `creates create KUBECONFIG CLUSTERS HOSTS` makes Clusters of so many hosts, each in a namespace of its own.
//! `creates operate KUBECONFIG DIRECTORY` is the operator; its runners are processes that do nothing.
//! `creates build KUBECONFIG CLUSTERS HOSTS` makes Clusters that are built: each with the Run that created it, and its order.
//! `creates ready KUBECONFIG RUNS` ends when there are so many Runs.
//! `creates kept KUBECONFIG CLUSTERS` ends when so many Clusters are told to be built.
//! `creates revision KUBECONFIG` prints the revision of the store: how often something was written.
//! `creates fail KUBECONFIG DIRECTORY TASKS` has every Run fail in the middle, on a tenth of its hosts, after so many tasks of the step; the
//! events lie in that data directory then. It prints the name of the last one.
//! `creates write KUBECONFIG SECONDS` writes the status of every Run as its runner would, and prints how often it did.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement that fails shall stop"
)]

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    time::Duration,
};

use api::{Cluster, ClusterNode, Run, cluster::ClusterState, run::Progress};
use controller::{Manager, Metrics, Shutdown, manager::Settings};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use kubespray::{Options, preview::PreviewOutcome};
use runs::{operator::Place, supervisor::Command};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};
use workflow::{
    CheckedPlan, State, StepProgress,
    status::{Live, derive},
};

/// How many objects are created at a time.
const CLIENTS: usize = 16;
/// How often a runner writes progress at most.
const THROTTLE: Duration = Duration::from_secs(2);
/// A step is at an end after so many writes.
const WRITES_OF_A_STEP: u32 = 5;

#[tokio::main]
async fn main() {
    // More than one provider may be compiled in; the first one that is installed is the one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().expect("a number");
    match arguments.as_slice() {
        ["serve", directory] => serve(directory.as_ref()).await,
        ["create", kubeconfig, clusters, hosts] => {
            create(&client(kubeconfig).await, number(clusters), number(hosts)).await;
        }
        ["build", kubeconfig, clusters, hosts] => {
            build(&client(kubeconfig).await, number(clusters), number(hosts)).await;
        }
        ["operate", kubeconfig, directory] => {
            operate(client(kubeconfig).await, directory.as_ref()).await;
        }
        ["ready", kubeconfig, wanted] => ready(&client(kubeconfig).await, number(wanted)).await,
        ["kept", kubeconfig, wanted] => kept(&client(kubeconfig).await, number(wanted)).await,
        ["revision", kubeconfig] => println!("{}", revision(&client(kubeconfig).await).await),
        ["fail", kubeconfig, directory, tasks] => {
            let client = client(kubeconfig).await;
            fail(&client, directory.as_ref(), number(tasks)).await;
        }
        ["write", kubeconfig, seconds] => {
            let until = Instant::now() + Duration::from_secs(number(seconds).into());
            println!("{}", write(client(kubeconfig).await, until).await);
        }
        _ => panic!("see the first lines of this file for its arguments"),
    }
}

async fn client(kubeconfig: &str) -> Client {
    let config = controller::kubeconfig::own(kubeconfig.as_ref(), None).await;
    Client::try_from(config.expect("a kubeconfig")).expect("a client")
}

async fn serve(directory: &Path) {
    let options = kapi::Options {
        data_dir: directory.to_owned(),
        crds: api::custom_resource_definitions(),
        listen: Some("127.0.0.1:0".parse().expect("an address")),
    };
    let server = kapi::Server::open(options).await.expect("the API opens");
    let kubeconfig = server.kubeconfig().expect("it listens");
    println!("{}", kubeconfig.display());
    let served = server.serve(std::future::pending()).await;
    served.expect("it serves");
}

/// As a runner left them long ago.
async fn build(client: &Client, clusters: u32, hosts: u32) {
    create(client, clusters, hosts).await;
    let mut plan = None;
    for number in 0..clusters {
        let namespace = format!("n{number}");
        let all = Api::<Cluster>::namespaced(client.clone(), &namespace);
        let cluster = all.get("first").await.expect("a Cluster");
        if plan.is_none() {
            let data = tempfile::tempdir().expect("a directory");
            let layout = kubespray::Layout::new(data.path());
            let next = kubespray::preview::next(client, &cluster, &[], &layout).await;
            let PreviewOutcome::Plan(first) = next.expect("a preview").outcome else {
                panic!("there is no plan");
            };
            // All have it: only the addresses of the hosts are others.
            plan = Some(*first);
        }
        let plan = plan.clone().expect("there is one");
        let run = runs::object::of(&cluster, "first-create-1".to_owned(), "Create", 1, plan);
        let runs = Api::<Run>::namespaced(client.clone(), &namespace);
        let run = runs
            .create(&PostParams::default(), &run)
            .await
            .expect("taken");
        let now = Timestamp::now();
        let body = json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {"name": run.name_any()},
            "status": {"phase": "Succeeded", "startedAt": now, "finishedAt": now, "progress": 100},
        });
        let params = PatchParams::apply("windlass-runner").force();
        let body = Patch::Apply(&body);
        let written = runs.patch_status(&run.name_any(), &params, &body).await;
        written.expect("taken");
    }
}

async fn create(client: &Client, clusters: u32, hosts: u32) {
    let bundle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bundle");
    let params = PostParams::default();
    for number in 0..clusters {
        let namespace = format!("n{number}");
        let object = json!({"metadata": {"name": namespace}});
        let object = serde_json::from_value::<Namespace>(object).expect("a Namespace");
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.create(&params, &object).await.expect("taken");
        let nodes = Api::<ClusterNode>::namespaced(client.clone(), &namespace);
        let described = (0..hosts).map(|host| {
            let kind = if host < 3 { "master" } else { "worker" };
            let object = json!({
                "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
                "metadata": {"name": format!("host-{host}")},
                "spec": {"type": kind, "inventory": {
                    "ansible_host": format!("10.{}.{}.{}", number % 200, host / 200, host % 200 + 1),
                }},
            });
            serde_json::from_value(object).expect("a ClusterNode")
        });
        let made = stream::iter(described).for_each_concurrent(CLIENTS, async |node| {
            nodes.create(&params, &node).await.expect("taken");
        });
        made.await;
        // The last, so that its run has all the hosts.
        let object = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "first"},
            "spec": {
                "kubespray": {"version": "2.30.0", "source": {"path": bundle}},
                "kubernetesVersion": "1.34.4",
                "ssh": {"user": "root"},
                "operations": {"creation": {"startConditions": {"nodes": {"minimum": hosts}}}},
            },
        });
        let object = serde_json::from_value(object).expect("a Cluster");
        let all = Api::<Cluster>::namespaced(client.clone(), &namespace);
        all.create(&params, &object).await.expect("taken");
    }
}

async fn operate(client: Client, directory: &Path) {
    let idle = "exec tail --pid=$PPID -f /dev/null";
    let runner = Command {
        program: "/bin/sh".into(),
        arguments: ["-c", idle, "runner"].map(Into::into).into(),
    };
    let options = Options {
        data_dir: directory.to_owned(),
        runners: Place::Here(runs::Layout::new(directory), runner),
        sources: ansible::source::Policy::person(),
    };
    let settings = Settings {
        namespace: None,
        concurrency: 4,
        metrics: Metrics::default(),
        shutdown: Shutdown::default(),
    };
    let mut manager = Manager::new(client, settings);
    kubespray::operate(&mut manager, options);
    manager.run().await.expect("nobody tells it to end");
}

async fn ready(client: &Client, wanted: u32) {
    let runs = Api::<Run>::all(client.clone());
    loop {
        let listed = runs.list_metadata(&ListParams::default()).await;
        if listed.expect("a list").items.len() >= wanted as usize {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn kept(client: &Client, wanted: u32) {
    let clusters = Api::<Cluster>::all(client.clone());
    let is_kept = |cluster: &Cluster| {
        let status = cluster.status.as_ref();
        status.is_some_and(|status| status.state == Some(ClusterState::Created))
    };
    loop {
        let listed = clusters.list(&ListParams::default()).await;
        let listed = listed.expect("a list").items;
        if listed.iter().filter(|cluster| is_kept(cluster)).count() >= wanted as usize {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn revision(client: &Client) -> String {
    let namespaces = Api::<Namespace>::all(client.clone());
    let listed = namespaces
        .list_metadata(&ListParams::default().limit(1))
        .await;
    let revision = listed.expect("a list").metadata.resource_version;
    revision.expect("a list has one")
}

/// As a runner leaves them that failed: by the records of its journal, beside what Ansible told.
async fn fail(client: &Client, directory: &Path, tasks: u32) {
    let all = Api::<Run>::all(client.clone());
    for run in all.list(&ListParams::default()).await.expect("a list") {
        let plan = CheckedPlan::new(run.spec.plan.clone()).expect("a plan");
        let mut state = State::new(&plan);
        let mut record = |event: &str, step: Option<&str>, failure: Option<&Value>| {
            let record = json!({
                "sequence": state.next_sequence(), "time": Timestamp::now(), "event": event, "step": step,
                "attempt": step.map(|_| 1), "failure": failure,
            });
            let record = serde_json::from_value(record).expect("a record");
            state.apply(&plan, record).expect("it can have happened");
        };
        record("RunStarted", None, None);
        let middle = plan.steps().len() / 2;
        for step in plan.steps().iter().take(middle) {
            record("StepStarted", Some(&step.id), None);
            record("StepSucceeded", Some(&step.id), None);
        }
        let groups = run.spec.plan.groups.iter();
        let hosts = groups.flat_map(|group| &group.targets);
        let hosts: BTreeSet<String> = hosts.map(ToString::to_string).collect();
        let failing: Vec<&String> = hosts.iter().take(hosts.len() / 10).collect();
        let failure = json!({
            "class": "Permanent", "code": "TaskFailed", "message": "task files/copy failed on a tenth of the hosts", "targets": failing,
        });
        let step = plan.steps().get(middle).expect("a step").id.clone();
        record("StepStarted", Some(&step), None);
        record("StepFailed", Some(&step), Some(&failure));
        record("RunFailed", None, Some(&failure));
        let live = Live {
            now: Timestamp::now(),
            ..Live::default()
        };
        let body = json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {"name": run.name_any()}, "status": derive(&plan, &state, &live),
        });
        let namespace = run.namespace().unwrap_or_default();
        let runs = Api::<Run>::namespaced(client.clone(), &namespace);
        let params = PatchParams::apply("windlass-runner").force();
        let body = Patch::Apply(&body);
        let written = runs.patch_status(&run.name_any(), &params, &body).await;
        written.expect("taken");

        let directory = runs::Layout::new(directory).run(&namespace, &run.name_any());
        tell(&directory, &step, (&hosts, &failing), tasks);
        println!("{}", run.name_any());
    }
}

/// What Ansible told of a step whose last task failed on some hosts: events and a log.
fn tell(
    directory: &Path,
    step: &str,
    (hosts, failing): (&BTreeSet<String>, &[&String]),
    tasks: u32,
) {
    std::fs::create_dir_all(directory.join("logs")).expect("a directory");
    let (mut events, mut log) = (String::new(), String::new());
    let mut sequence = 0_u64;
    let now = Timestamp::now().as_second();
    for task in 1..=tasks {
        let name = format!("files : copy number {task}");
        log += &format!("TASK [{name}]\n");
        for host in hosts {
            sequence += 1;
            let failed = task == tasks && failing.contains(&host);
            let mut event = json!({
                "run": "p-1", "sequence": sequence, "time": now, "event": if failed { "failed" } else { "ok" }, "host": host,
                "task": task, "name": name,
            });
            if failed {
                event["ignored"] = false.into();
                event["message"] = "[Errno 28] No space left on device".into();
                log += &format!("failed: [{host}] [Errno 28] No space left on device\n");
            } else {
                event["changed"] = false.into();
                log += &format!("ok: [{host}]\n");
            }
            events += &format!("{event}\n");
        }
    }
    std::fs::write(directory.join(kubespray::runner::EVENTS), events).expect("written");
    let file = directory
        .join("logs")
        .join(format!("{}.log", step.replace('/', "__")));
    std::fs::write(file, log).expect("written");
}

/// Writes until then; gives how often.
async fn write(client: Client, until: Instant) -> u32 {
    let runs = Api::<Run>::all(client.clone());
    let runs = runs.list(&ListParams::default()).await.expect("a list");
    let mut runners: JoinSet<_> = runs
        .into_iter()
        .map(|run| runner(client.clone(), run, until))
        .collect();
    let mut writes = 0;
    while let Some(written) = runners.join_next().await {
        writes += written.expect("no runner panics");
    }
    writes
}

/// Goes through the steps of a run, as its journal would tell of them.
async fn runner(client: Client, run: Run, until: Instant) -> u32 {
    let runs = Api::<Run>::namespaced(client, &run.namespace().unwrap_or_default());
    let plan = CheckedPlan::new(run.spec.plan.clone()).expect("a plan");
    let mut state = State::new(&plan);
    let mut record = |event: &str, step: Option<&str>| {
        let attempt = step.map(|_| 1);
        let record = json!({
            "sequence": state.next_sequence(), "time": Timestamp::now(), "event": event,
            "step": step, "attempt": attempt,
        });
        let record = serde_json::from_value(record).expect("a record");
        state.apply(&plan, record).expect("it can have happened");
        state.clone()
    };
    record("RunStarted", None);
    let mut writes = 0;
    for step in plan.steps() {
        let now = record("StepStarted", Some(&step.id));
        for at in 1..=WRITES_OF_A_STEP {
            let progress = StepProgress {
                activity: Some(format!("task {at}")),
                progress: Some(Progress {
                    done: at,
                    total: Some(WRITES_OF_A_STEP),
                    unit: "tasks".to_owned(),
                }),
                ..StepProgress::default()
            };
            let live = Live {
                steps: HashMap::from([(step.id.clone(), progress)]),
                now: Timestamp::now(),
                ..Live::default()
            };
            let body: Value = json!({
                "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
                "metadata": {"name": run.name_any()}, "status": derive(&plan, &now, &live),
            });
            let params = PatchParams::apply("windlass-runner").force();
            let body = Patch::Apply(&body);
            let written = runs.patch_status(&run.name_any(), &params, &body).await;
            written.expect("taken");
            writes += 1;
            if Instant::now() >= until {
                return writes;
            }
            tokio::time::sleep(THROTTLE).await;
        }
        record("StepSucceeded", Some(&step.id));
    }
    writes
}
