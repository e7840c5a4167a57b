//! An engine in small: what it takes for runs of another kind to be executed. Nothing outside this file knows it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::disallowed_methods,
    reason = "the kubeconfig is of a server of the test's own"
)]

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    sync::Arc,
};

use api::{
    Run,
    run::{Record, RecordEvent, Results, RunPhase, RunSpec, Step},
};
use controller::lease::Proof;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace, events::v1::Event};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use runs::{
    Engine, Words, Work,
    engine::{EngineError, Leave},
    runner::{self, Exit, Options, TakenUp},
};
use serde_json::json;
use tokio::{sync::mpsc, task::JoinHandle};
use workflow::{CheckedPlan, Executor, StepContext, StepOutcome};

const NAMESPACE: &str = "demo";
const STEPS: [&str; 3] = ["widget/cut", "widget/bend", "widget/paint"];

/// Where a runner is killed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Edge {
    /// The journal has the start of the step, and nothing is done.
    Started,
    /// The work of the step is done, and the journal does not know it.
    Worked,
}

/// Makes widgets: each step writes its name into a file.
struct Widgets {
    /// Where it stands still, and whom it tells.
    stop: Option<(&'static str, Edge, mpsc::UnboundedSender<()>)>,
}

struct Maker {
    work: Arc<Work>,
    proof: Proof,
    stop: Option<(&'static str, Edge, mpsc::UnboundedSender<()>)>,
}

impl Maker {
    async fn reached(&self, step: &str, edge: Edge) {
        if let Some((at, wanted, tell)) = &self.stop
            && *at == step
            && *wanted == edge
        {
            tell.send(()).unwrap();
            std::future::pending::<()>().await;
        }
    }
}

impl Executor for Maker {
    async fn execute(&self, steps: Vec<Step>, context: StepContext) {
        for step in &steps {
            self.reached(&step.id, Edge::Started).await;
            assert!(self.proof.holds(), "nothing is done without the Lease");
            let made = self.work.directory.join("made");
            let mut made = File::options()
                .create(true)
                .append(true)
                .open(made)
                .unwrap();
            writeln!(made, "{}", step.id).unwrap();
            self.reached(&step.id, Edge::Worked).await;
            let outcome = StepOutcome::Succeeded {
                results: Results([("made".to_owned(), 1)].into()),
                unreachable: Vec::new(),
                detail: None,
            };
            if context.reporter.finished(&step.id, outcome).await.is_err() {
                return;
            }
        }
    }
}

impl Engine for Widgets {
    type Executor = Maker;

    fn digest(&self, spec: &RunSpec) -> Result<String, serde_json::Error> {
        workflow::plan::digest_of(&spec.operation, &spec.plan)
    }

    fn leave(&self, _: &Work) -> Result<Leave, EngineError> {
        Ok(Arc::new(|_| {}))
    }

    fn prepare(&self, work: &Arc<Work>, proof: Proof) -> Result<Maker, EngineError> {
        Ok(Maker {
            work: Arc::clone(work),
            proof,
            stop: self.stop.clone(),
        })
    }

    async fn end_now(&self, _: &Work) {}

    fn clean(&self, _: Maker) {}

    fn words(&self) -> Words {
        Words {
            targets: "widgets",
            excluded: "WidgetsExcluded",
            own_logs: "widget",
        }
    }
}

/// An API of this machine with one run of a Widget.
struct World {
    directory: tempfile::TempDir,
    client: Client,
    kubeconfig: std::path::PathBuf,
    server: JoinHandle<()>,
}

impl World {
    async fn new() -> Self {
        // Fails when another test was first, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().unwrap();
        let server = kapi::Server::open(kapi::Options {
            data_dir: directory.path().join("api"),
            crds: api::custom_resource_definitions(),
            listen: Some("127.0.0.1:0".parse().unwrap()),
        });
        let server = server.await.unwrap();
        let kubeconfig = server.kubeconfig().unwrap().to_owned();
        let serving = async move { server.serve(std::future::pending()).await.unwrap() };
        let server = tokio::spawn(serving);
        let options = KubeConfigOptions::default();
        let config = Kubeconfig::read_from(&kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(config, &options)
            .await
            .unwrap();
        let client = Client::try_from(config).unwrap();
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let world = Self {
            directory,
            client,
            kubeconfig,
            server,
        };
        world
            .runs()
            .create(&PostParams::default(), &run())
            .await
            .unwrap();
        world
    }

    fn runs(&self) -> Api<Run> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn options(&self) -> Options {
        Options {
            namespace: NAMESPACE.to_owned(),
            run: "first-make-1".to_owned(),
            data_dir: self.directory.path().join("data"),
            kubeconfig: Some(self.kubeconfig.clone()),
        }
    }

    /// Executes the run to its end.
    async fn execute(&self) -> Exit {
        let execute = async |run: TakenUp| run.execute(Widgets { stop: None }).await;
        runner::main(self.options(), execute).await.unwrap()
    }

    /// Kills a runner at this edge of this step.
    async fn kill_at(&self, step: &'static str, edge: Edge) {
        let (tell, mut told) = mpsc::unbounded_channel();
        let engine = Widgets {
            stop: Some((step, edge, tell)),
        };
        let options = self.options();
        let runner = tokio::spawn(async move {
            runner::main(options, async |run: TakenUp| run.execute(engine).await).await
        });
        told.recv().await.unwrap();
        runner.abort();
        assert!(runner.await.unwrap_err().is_cancelled());
    }

    fn made(&self) -> Vec<String> {
        let directory = self.directory.path().join("data/runs").join(NAMESPACE);
        let made = fs::read_to_string(directory.join("first-make-1/made")).unwrap();
        made.lines().map(str::to_owned).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn run() -> Run {
    let step = |id: &str, before: &[&str]| {
        json!({
            "id": id, "dependsOn": before, "groups": ["all"],
            "action": {"engine": {"name": "widgets", "type": "Work"}},
        })
    };
    let [cut, bend, paint] = STEPS;
    let mut run: Run = serde_json::from_value(json!({
        "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
        "metadata": {"name": "first-make-1", "namespace": NAMESPACE},
        "spec": {
            "subject": {"apiGroup": "example.com", "kind": "Widget", "name": "first"},
            "operation": "Make", "generation": 1,
            "plan": {
                "digest": "", "groups": [{"name": "all", "targets": ["left", "shop/right"]}],
                "steps": [step(cut, &[]), step(bend, &[cut]), step(paint, &[bend])],
            },
        },
    }))
    .unwrap();
    let digest = workflow::plan::digest_of(&run.spec.operation, &run.spec.plan);
    run.spec.plan.digest = digest.unwrap();
    run
}

/// How often each step is recorded to have succeeded.
fn succeeded(history: &[Record], step: &str) -> usize {
    let of_step = |record: &&Record| record.step.as_deref() == Some(step);
    let of_step = history.iter().filter(of_step);
    of_step
        .filter(|record| record.event == RecordEvent::StepSucceeded)
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_another_kind_is_executed_by_its_own_engine() {
    let world = World::new().await;
    assert_eq!(world.execute().await, Exit::Succeeded);
    assert_eq!(world.made(), STEPS);

    let run = world.runs().get("first-make-1").await.unwrap();
    let status = run.status.unwrap();
    assert_eq!(status.phase, RunPhase::Succeeded);
    let made = Results([("made".to_owned(), 1)].into());
    assert!(
        status
            .steps
            .iter()
            .all(|step| step.results == Some(made.clone()))
    );
    CheckedPlan::new(run.spec.plan).unwrap();

    let leases: Api<Lease> = Api::namespaced(world.client.clone(), NAMESPACE);
    let lease = leases.get("widget-first").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity, None, "it is given up");
    let events: Api<Event> = Api::namespaced(world.client.clone(), NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let regarding = events.iter().filter_map(|event| event.regarding.as_ref());
    assert!(
        regarding
            .clone()
            .all(|subject| subject.kind.as_deref() == Some("Widget"))
    );
    assert!(regarding.count() >= STEPS.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_killed_at_any_edge_is_followed_by_one_that_goes_on() {
    for step in STEPS {
        for edge in [Edge::Started, Edge::Worked] {
            let world = World::new().await;
            world.kill_at(step, edge).await;
            assert_eq!(world.execute().await, Exit::Succeeded, "{step} {edge:?}");
            let mut expected: Vec<_> = STEPS.to_vec();
            let at = STEPS.iter().position(|other| *other == step).unwrap();
            if edge == Edge::Worked {
                // Steps are safe to repeat; what is in the journal as done is not repeated.
                expected.insert(at, step);
            }
            assert_eq!(world.made(), expected, "{step} {edge:?}");
            let run = world.runs().get("first-make-1").await.unwrap();
            let history = run.status.unwrap().history;
            for step in STEPS {
                assert_eq!(succeeded(&history, step), 1, "{step}");
            }
            let numbers: Vec<_> = history.iter().map(|record| record.sequence).collect();
            let gapless: Vec<_> = (1..).take(numbers.len()).collect();
            assert_eq!(numbers, gapless);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_no_engine_knows_is_refused_by_its_kind() {
    let world = World::new().await;
    let error = runner::main(world.options(), async |run: TakenUp| {
        assert_eq!(run.subject().name, "first");
        Err(run.without_engine())
    });
    let error = error.await.unwrap_err().to_string();
    assert!(error.contains("Widget.example.com"), "{error}");
    assert!(!Path::new(&world.options().data_dir).join("made").exists());
    let run = world.runs().get("first-make-1").await.unwrap();
    assert!(run.status.is_none(), "{}", run.name_any());
}
