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
    Cluster, Run,
    cluster::ClusterState,
    run::{Record, RecordEvent, Step},
};
use controller::{Events, Occurrence, Severity};
use jiff::Timestamp;
use k8s_openapi::api::{core::v1::ObjectReference, events::v1::Event};
use kapi::fault::{Fault, Faults};
use kube::{
    Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::sync::watch;
use workflow::{
    CheckedPlan, Executor, MemoryJournal, Observer, Outcome, State, Steering, StepContext,
    StepOutcome, SystemClock,
    runner::{self, Runner, STOP_GRACE},
    status::{Live, derive},
};

use crate::world::{NAMESPACE, World, condition};

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
    let done = execute(world.faulty.clone(), run).await;
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
        // The operator's notes say how far it has seen the run, which is chance.
        let about = match about.as_deref() {
            Some("first") => "first".to_owned(),
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

/// Executes the plan with steps that do nothing, and writes what happens to the API as a runner does. Gives the steps that
/// succeeded, by the journal.
async fn execute(client: Client, run: Run) -> Vec<String> {
    let plan = CheckedPlan::new(run.spec.plan.clone()).unwrap();
    let (sender, states) = watch::channel(State::replay(&plan, &[]).unwrap());
    let mirror = tokio::spawn(mirror(client, run, plan.clone(), states));
    let (_steer, controls) = watch::channel(Steering::default());
    let journal = MemoryJournal::default();
    let done = Arc::new(Mutex::new(Vec::new()));
    let mut runner = Runner {
        journal: journal.clone(),
        executor: Nothing(Arc::clone(&done)),
        clock: SystemClock,
        observer: Tell(sender),
        stop_grace: STOP_GRACE,
    };
    let outcome = runner::run(&plan, &mut runner, controls).await.unwrap();
    assert_eq!(outcome, Outcome::Succeeded);
    drop(runner);
    mirror.await.unwrap();
    let succeeded = journal
        .records()
        .into_iter()
        .filter(|record| record.event == RecordEvent::StepSucceeded);
    let succeeded: Vec<String> = succeeded.filter_map(|record| record.step).collect();
    assert_eq!(*done.lock().unwrap(), succeeded);
    succeeded
}

/// Steps that do nothing but take a moment.
struct Nothing(Arc<Mutex<Vec<String>>>);

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

struct Tell(watch::Sender<State>);

impl Observer for Tell {
    fn recorded(&mut self, _: &Record, state: &State) {
        self.0.send_replace(state.clone());
    }
}

/// Tells of each step and writes the status, each until it is done.
async fn mirror(client: Client, run: Run, plan: CheckedPlan, mut states: watch::Receiver<State>) {
    let events = Events::new(client.clone(), "runner");
    let regarding: ObjectReference = run.object_ref(&());
    let runs = kube::Api::<Run>::namespaced(client, NAMESPACE);
    let name = run.name_any();
    let mut told = 0;
    loop {
        let last = states.changed().await.is_err();
        let state = states.borrow_and_update().clone();
        for record in state
            .records()
            .iter()
            .filter(|record| record.sequence > told)
        {
            let Some(step) = &record.step else { continue };
            let occurrence = Occurrence {
                severity: Severity::Normal,
                reason: format!("{:?}", record.event),
                note: step.clone(),
                edge: record.sequence.to_string(),
            };
            while events.publish(&regarding, &occurrence).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        told = state.next_sequence().saturating_sub(1);
        let mut live = Live {
            steps: std::collections::HashMap::new(),
            runner: None,
            now: Timestamp::now(),
        };
        live.runner = Some(serde_json::from_value(json!({"id": "test"})).unwrap());
        let body = json!({
            "apiVersion": Run::api_version(&()), "kind": Run::kind(&()),
            "metadata": {"name": name}, "status": derive(&plan, &state, &live),
        });
        let parameters = PatchParams::apply(runs::runner::FIELD_MANAGER).force();
        while runs
            .patch_status(&name, &parameters, &Patch::Apply(&body))
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if last {
            return;
        }
    }
}
