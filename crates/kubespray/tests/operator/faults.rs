//! A whole simulated creation while the API fails by chance: the same end as on a calm day.
//!
//! `WINDLASS_FAULT_SEED` takes another seed than the usual ones.

use std::{
    collections::BTreeMap,
    env,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use api::{
    Cluster, ClusterNode, Run,
    cluster::ClusterState,
    run::{RecordEvent, RunSpec, Step},
};
use controller::lease::Proof;
use k8s_openapi::api::events::v1::Event;
use kapi::fault::{Fault, Faults};
use kube::{ResourceExt, api::ListParams};
use kubespray::{cluster::decision::NewRun, inputs};
use runs::{
    Engine, Words, Work,
    engine::{EngineError, Leave},
    runner::{self, Exit, Options, TakenUp},
};
use serde_json::{Value, json};
use workflow::{Executor, StepContext, StepOutcome};

use crate::{
    past::{Past, days},
    world::{NAMESPACE, World, condition},
};

/// Of hundred requests, so many meet a fault.
const OFTEN: u8 = 25;
/// How much longer the list of the hosts takes than that of the clusters.
const SLOW: Duration = Duration::from_millis(300);

/// What is left of a creation, without what differs from day to day.
#[derive(Debug, PartialEq)]
struct End {
    cluster: Value,
    runs: Vec<(String, Value)>,
    /// How often each Event appeared, by its reason and what it is about.
    events: BTreeMap<(String, String), usize>,
    /// The steps that succeeded, in order.
    done: Vec<String>,
}

/// A cluster that has begun must not look as if it had lost its hosts, because their list takes longer than its own.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_decided_before_all_is_read() {
    let slow = Arc::new(AtomicBool::new(false));
    let faults = Faults::when({
        let slow = Arc::clone(&slow);
        move |request| {
            let hosts = request.uri.path().ends_with("/clusternodes");
            (hosts && slow.load(Ordering::SeqCst)).then_some(Fault::Latency(SLOW))
        }
    });
    let mut world = World::behind(faults).await;
    world.three_nodes().await;
    world.cluster("first", json!({})).await;
    let run = world.run_until(1).await.remove(0);
    let status = json!({"phase": "Running", "message": "at work"});
    world.run_status(&run, status).await;
    let says = |text: &'static str| {
        move |cluster: &Cluster| {
            condition(cluster, "Ready").is_some_and(|(_, _, message)| message == text)
        }
    };
    world.until("first", "works", says("at work")).await;
    slow.store(true, Ordering::SeqCst);
    world.take_over().await;
    let status = json!({"phase": "Running", "message": "further"});
    world.run_status(&run, status).await;
    world.until("first", "goes on", says("further")).await;
    assert_eq!(world.events("InvalidSpec").await, Vec::<String>::new());
}

/// An order that stood in the status without its run would be taken for what hosts are in.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_run_was_not_stored_binds_nobody() {
    let faults = Faults::when(|request| {
        let stores = request.method == "POST" && request.uri.path().ends_with("/runs");
        stores.then_some(Fault::Internal)
    });
    let mut world = World::behind(faults.clone()).await;
    world.three_nodes().await;
    world.cluster("first", json!({})).await;
    let fails = |_: &Cluster| faults.met().contains_key("internal");
    let cluster = world.until("first", "cannot begin", fails).await;
    let status = cluster.status.unwrap_or_default();
    assert_eq!(status.inventory, None);
    // The host that would have been first is taken back, and the operator dies.
    world.delete::<ClusterNode>("master-1").await;
    world.node("master-2", "master", "10.0.0.4").await;
    world.take_over().await;
    faults.end();
    let run = world.run_until(1).await.remove(0);
    let inputs = inputs::Inputs::from_map(&run.spec.plan.inputs).unwrap();
    assert_eq!(inputs.inventory.order["etcd"][0].as_str(), "master-2");
}

/// The other edge: the run is stored, and the operator dies before the status tells of it.
#[tokio::test]
async fn a_run_that_the_status_does_not_know_yet_says_the_order() {
    let mut past = Past::new(json!({}), &["master", "worker"]).await;
    let names = |new: &NewRun| {
        let inputs = inputs::Inputs::from_map(&new.plan.inputs).unwrap();
        let nodes = &inputs.inventory.order["kube_node"];
        nodes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let node = |name: &str, address: &str| -> ClusterNode {
        let node = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
            "metadata": {"name": name, "namespace": "demo", "generation": 1},
            "spec": {"type": "worker", "inventory": {"ansible_host": address}},
        });
        serde_json::from_value(node).unwrap()
    };
    let status = json!({"inventory": {
        "order": {"kube_control_plane": ["master-1"], "etcd": ["master-1"], "kube_node": ["worker-2"]},
        "etcdMemberNames": {"master-1": "etcd1"}, "run": "first-create-1",
    }});
    past.cluster.status = serde_json::from_value(status).unwrap();
    past.observed.nodes.push(node("worker-9", "10.0.0.9"));
    let scale = past.starts();
    assert_eq!(names(&scale), ["worker-2", "worker-9"]);
    past.ran(&scale, "Succeeded", days(-1));
    // The host joins last, whatever its name says.
    past.observed.nodes.insert(2, node("worker-3", "10.0.0.3"));
    assert_eq!(names(&past.starts()), ["worker-2", "worker-9", "worker-3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_under_faults_ends_as_on_a_calm_day() {
    let calm = creation(Faults::when(|_| None)).await;
    let steps = calm.done.len();
    assert!(steps > 5, "{calm:#?}");
    assert_eq!(calm.runs.len(), 1);
    let given = env::var("WINDLASS_FAULT_SEED").ok();
    let seeds = given.map_or(vec![1, 2, 3], |seed| vec![seed.parse().unwrap()]);
    for seed in seeds {
        let faults = Faults::seeded(seed, OFTEN);
        let end = creation(faults.clone()).await;
        let met = faults.met();
        eprintln!("WINDLASS_FAULT_SEED={seed}: {met:?}");
        assert!(met.values().sum::<usize>() > 10, "{met:?}");
        assert_eq!(end, calm, "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_to_a_write_is_lost_once() {
    let calm = creation(Faults::when(|_| None)).await;
    let lost = Mutex::new(std::collections::HashSet::new());
    let faults = Faults::when(move |request| {
        let first = request.method != "GET"
            && lost
                .lock()
                .unwrap()
                .insert((request.method.clone(), request.uri.path().to_owned()));
        first.then_some(Fault::LostAnswer)
    });
    let end = creation(faults.clone()).await;
    assert!(faults.met()["lost answer"] > 5);
    assert_eq!(end, calm);
}

/// The operator and the runner reach the API through the faults; what looks at it does not.
async fn creation(faults: Faults) -> End {
    let world = World::behind(faults.clone()).await;
    world.three_nodes().await;
    world.cluster("first", json!({})).await;
    let run = world.run_until(1).await.remove(0);
    let done = execute(&world, run).await;
    world
        .until("first", "is built and probed", |cluster| {
            let built = cluster.status.as_ref().and_then(|status| status.state)
                == Some(ClusterState::Created);
            built && condition(cluster, "Ready").is_some_and(|ready| ready.1 == "Unhealthy")
        })
        .await;
    for _ in 0..400 {
        if !world.events("Unhealthy").await.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    faults.end();
    end(&world, done).await
}

async fn end(world: &World, done: Vec<String>) -> End {
    let cluster = world.all::<Cluster>().get("first").await.unwrap();
    let status = json!(cluster.status);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let conditions: Vec<Value> = conditions
        .map(|condition| {
            json!([
                condition["type"],
                condition["status"],
                condition["reason"],
                condition["message"]
            ])
        })
        .collect();
    let runs = world
        .all::<Run>()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    let events = world
        .all::<Event>()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    let mut counts = BTreeMap::new();
    for event in events {
        let about = event.regarding.and_then(|about| about.name);
        // The operator's notes say how far it has seen the run, which is chance; those of the runner say what happened.
        let by_runner = event.reporting_controller.as_deref() == Some("windlass.dev/runner");
        let about = match about.as_deref() {
            Some("first") if !by_runner => "first".to_owned(),
            _ => event.note.unwrap_or_default(),
        };
        let key = (event.reason.unwrap_or_default(), about);
        *counts.entry(key).or_default() += 1;
    }
    // How often each appeared is compared; which states the operator saw on the way is chance.
    assert!(counts.values().all(|times| *times == 1), "{counts:#?}");
    counts.retain(|(reason, about), _| {
        about != "first" || ["Creating", "Unhealthy"].contains(&reason.as_str())
    });
    End {
        cluster: json!([
            status["state"],
            status["nodes"],
            status["inventory"],
            conditions
        ]),
        runs: runs
            .iter()
            .map(|run| {
                (
                    run.name_any(),
                    json!(
                        run.status
                            .as_ref()
                            .map(|status| (&status.phase, status.progress))
                    ),
                )
            })
            .collect(),
        events: counts,
        done,
    }
}

/// Has the runner execute the run, with steps that do nothing. Gives the steps that succeeded, by the Run's history.
async fn execute(world: &World, run: Run) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        namespace: NAMESPACE.to_owned(),
        run: run.name_any(),
        data_dir: directory.path().to_owned(),
        kubeconfig: None,
    };
    let done = Arc::new(Mutex::new(Vec::new()));
    let engine = Nothing(Arc::clone(&done));
    let execute = async |run: TakenUp| run.execute(engine).await;
    let exit = runner::take_up(world.of_runners.clone(), options, execute);
    assert_eq!(exit.await.unwrap(), Exit::Succeeded);
    let run = world.all::<Run>().get(&run.name_any()).await.unwrap();
    let history = run.status.unwrap().history.into_iter();
    let succeeded = history.filter(|record| record.event == RecordEvent::StepSucceeded);
    let succeeded: Vec<String> = succeeded.filter_map(|record| record.step).collect();
    assert_eq!(*done.lock().unwrap(), succeeded);
    succeeded
}

/// An engine whose steps do nothing but take a moment.
struct Nothing(Arc<Mutex<Vec<String>>>);

impl Engine for Nothing {
    type Executor = Self;

    fn digest(&self, spec: &RunSpec) -> Result<String, serde_json::Error> {
        inputs::digest(&spec.operation, &spec.plan)
    }

    fn leave(&self, _: &Work) -> Result<Leave, EngineError> {
        Ok(Arc::new(|_| {}))
    }

    fn prepare(&self, _: &Arc<Work>, _: Proof) -> Result<Self, EngineError> {
        Ok(Self(Arc::clone(&self.0)))
    }

    async fn end_now(&self, _: &Work) {}

    fn clean(&self, _: Self) {}

    fn words(&self) -> Words {
        Words {
            targets: "hosts",
            excluded: "HostsExcluded",
            own_logs: "nothing",
        }
    }
}

impl Executor for Nothing {
    async fn execute(&self, steps: Vec<Step>, context: StepContext) {
        for step in steps {
            if context.reporter.started(&step.id).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.0.lock().unwrap().push(step.id.clone());
            let outcome = StepOutcome::Succeeded {
                results: api::run::Results::default(),
                unreachable: Vec::new(),
                detail: None,
            };
            if context.reporter.finished(&step.id, outcome).await.is_err() {
                return;
            }
        }
    }
}
