//! An engine in small: what it takes for runs of another kind to be executed. Nothing outside this file knows it.
//!
//! A widget is cut and bent side by side; then it is painted, which is a run of its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::disallowed_methods,
    reason = "the kubeconfig is of a server of the test's own"
)]

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use api::{
    Run,
    run::{ChildRun, Failure, FailureClass, Record, RecordEvent, Results, RunPhase, RunSpec, Step},
};
use controller::lease::Proof;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace, events::v1::Event};
use kube::{
    Api, Client, Config, Resource, ResourceExt,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use runs::{
    Engine, Words, Work,
    control::Wish,
    engine::{EngineError, Leave},
    runner::{self, Exit, Options, TakenUp},
};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    task::{JoinHandle, JoinSet},
};
use workflow::{CheckedPlan, Executor, Signal, StepContext, StepOutcome};

const NAMESPACE: &str = "demo";
const PARENT: &str = "first-make-1";
/// The variable that names the directory of the world to a runner as a process.
const PROCESS: &str = "WINDLASS_TEST_WIDGETS";
/// What is done side by side.
const SHAPING: [&str; 2] = ["widget/bend", "widget/cut"];
/// What another run does, and the one step of that.
const PAINTING: &str = "widget/paint";
const SPRAYING: &str = "paint/spray";

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

impl Maker {
    /// Cutting waits for bending, and bending for cutting.
    async fn beside(&self, step: &str) {
        if !SHAPING.contains(&step) {
            return;
        }
        let begun = |step: &str| self.work.directory.join(step.replace('/', "-"));
        fs::write(begun(step), "").unwrap();
        while !SHAPING.iter().all(|step| begun(step).exists()) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Some: the paint cannot be sprayed, or it was told to stop while it waits for that.
    async fn spray(&self, step: &str, context: &StepContext) -> Option<StepOutcome> {
        // Beside the directories of the runs.
        let data = self.work.directory.ancestors().nth(3).unwrap();
        if step == SPRAYING && data.join("jam").exists() {
            return Some(StepOutcome::Failed {
                failure: Failure {
                    class: FailureClass::Permanent,
                    code: "Jammed".to_owned(),
                    message: "the gun is jammed".to_owned(),
                    remedy: None,
                    targets: Vec::new(),
                },
                results: Results::default(),
                unreachable: Vec::new(),
            });
        }
        let mut signal = context.signal.clone();
        while step == SPRAYING && data.join("wait").exists() {
            let wanted = *signal.borrow_and_update();
            match wanted {
                Signal::Continue => {}
                Signal::Pause => context.reporter.held(step).await.ok()?,
                Signal::Stop => return Some(StepOutcome::Interrupted { detail: None }),
            }
            signal.changed().await.ok()?;
        }
        None
    }
}

impl Executor for Maker {
    async fn execute(&self, steps: Vec<Step>, context: StepContext) {
        for step in &steps {
            self.reached(&step.id, Edge::Started).await;
            self.beside(&step.id).await;
            if let Some(outcome) = self.spray(&step.id, &context).await {
                let _ = context.reporter.finished(&step.id, outcome).await;
                return;
            }
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

    async fn child(&self, _: &Work, wanted: &ChildRun) -> Result<RunSpec, EngineError> {
        let colour = wanted.parameters.get("colour").ok_or("no colour")?;
        let spray = json!({"name": "widgets", "type": "Work", "parameters": {"colour": colour}});
        Ok(spec(json!({
            "subject": wanted.subject, "operation": wanted.operation, "generation": 1,
            "plan": {"digest": "", "steps": [{"id": SPRAYING, "action": {"engine": spray}}]},
        })))
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
            run: PARENT.to_owned(),
            data_dir: self.directory.path().join("data"),
            kubeconfig: Some(self.kubeconfig.clone()),
        }
    }

    fn directory(&self, run: &str) -> PathBuf {
        let runs = self.directory.path().join("data/runs");
        runs.join(NAMESPACE).join(run)
    }

    /// Executes the run to its end, and its children beside it.
    async fn execute(&self) -> Exit {
        let own = main(self.options(), Widgets { stop: None });
        tokio::select! {
            exit = own => exit.unwrap(),
            () = self.children() => unreachable!("it goes on for ever"),
        }
    }

    /// Executes the children of the run, as often as there is something to do for them.
    async fn children(&self) {
        let mut executed = JoinSet::new();
        let mut names = BTreeSet::new();
        loop {
            for run in self.runs().list(&ListParams::default()).await.unwrap() {
                let waits = match phase(&run) {
                    RunPhase::Pending | RunPhase::Running | RunPhase::Paused => true,
                    RunPhase::Failed => !runs::control::open_requests(&run).is_empty(),
                    _ => false,
                };
                let name = run.name_any();
                if name != PARENT && waits && names.insert(name.clone()) {
                    let options = Options {
                        run: name.clone(),
                        ..self.options()
                    };
                    let execute = main(options, Widgets { stop: None });
                    executed.spawn(async move { execute.await.map(|_| name) });
                }
            }
            let pause = tokio::time::sleep(Duration::from_millis(20));
            tokio::select! {
                Some(ended) = executed.join_next() => drop(names.remove(&ended.unwrap().unwrap())),
                () = pause => {}
            }
        }
    }

    /// Kills a runner at this edge of this step.
    async fn kill_at(&self, step: &'static str, edge: Edge) {
        let (tell, mut told) = mpsc::unbounded_channel();
        let engine = Widgets {
            stop: Some((step, edge, tell)),
        };
        let runner = tokio::spawn(main(self.options(), engine));
        told.recv().await.unwrap();
        runner.abort();
        assert!(runner.await.unwrap_err().is_cancelled());
    }

    /// Kills a runner, as a process, when its journal has so many records. False: the run was over before.
    async fn kill_after(&self, records: usize) -> bool {
        let mut runner = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "a_runner_as_a_process",
                "--nocapture",
            ])
            .env(PROCESS, self.directory.path())
            .env("KUBECONFIG", &self.kubeconfig)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let journal = self.directory(PARENT).join("journal.jsonl");
        let lines = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
        let children = self.children();
        let killed = async {
            loop {
                if lines() >= records {
                    runner.kill().unwrap();
                    runner.wait().unwrap();
                    return true;
                }
                if runner.try_wait().unwrap().is_some() {
                    return false;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            killed = killed => killed,
            () = children => unreachable!("it goes on for ever"),
        }
    }

    fn made(&self, run: &str) -> Vec<String> {
        let made = fs::read_to_string(self.directory(run).join("made")).unwrap();
        let mut made: Vec<_> = made.lines().map(str::to_owned).collect();
        made.sort();
        made
    }

    async fn child(&self) -> Run {
        let runs = self.runs().list(&ListParams::default()).await.unwrap();
        let mut children = runs
            .items
            .into_iter()
            .filter(|run| run.name_any() != PARENT);
        let child = children.next().unwrap();
        assert!(children.next().is_none(), "one child, whoever dies");
        child
    }

    async fn until(&self, run: &str, wanted: impl Fn(&Run) -> bool) -> Run {
        loop {
            match self.runs().get_opt(run).await.unwrap() {
                Some(run) if wanted(&run) => return run,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    async fn steer(&self, wish: Wish) {
        let steered = runs::control::steer(&self.client, NAMESPACE, PARENT, wish, "kim");
        steered.await.unwrap();
    }

    /// A file that says how the paint is sprayed, whoever does it.
    fn spray_gun(&self, file: &str) -> PathBuf {
        self.directory.path().join("data").join(file)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn main(options: Options, engine: Widgets) -> Result<Exit, runner::Error> {
    runner::main(options, async |run: TakenUp| run.execute(engine).await).await
}

fn phase(run: &Run) -> RunPhase {
    let status = run.status.as_ref();
    status.map_or(RunPhase::Pending, |status| status.phase)
}

fn spec(spec: Value) -> RunSpec {
    let mut spec: RunSpec = serde_json::from_value(spec).unwrap();
    spec.plan.digest = workflow::plan::digest_of(&spec.operation, &spec.plan).unwrap();
    spec
}

fn run() -> Run {
    let step = |id: &str, group: &str| {
        json!({
            "id": id, "groups": [group],
            "action": {"engine": {"name": "widgets", "type": "Work"}},
        })
    };
    let [bend, cut] = SHAPING;
    let painted = json!({"apiGroup": "example.com", "kind": "Paint", "name": "first"});
    let paint = json!({"subject": painted, "operation": "Spray", "parameters": {"colour": "blue"}});
    let spec = spec(json!({
        "subject": {"apiGroup": "example.com", "kind": "Widget", "name": "first"},
        "operation": "Make", "generation": 1,
        "plan": {
            "digest": "", "parallelism": 2,
            "groups": [{"name": "left", "targets": ["left"]}, {"name": "right", "targets": ["shop/right"]}],
            "steps": [
                step(cut, "left"), step(bend, "right"),
                {"id": PAINTING, "dependsOn": SHAPING, "groups": ["left", "right"], "action": {"run": paint}},
            ],
        },
    }));
    let mut run = Run::new(PARENT, spec);
    run.metadata.namespace = Some(NAMESPACE.to_owned());
    run
}

/// How often this is recorded of a step.
fn recorded(run: &Run, event: RecordEvent, step: &str) -> usize {
    let history = &run.status.as_ref().unwrap().history;
    let of_step = |record: &&Record| record.step.as_deref() == Some(step) && record.event == event;
    history.iter().filter(of_step).count()
}

/// What holds for a run that succeeded, whoever was killed.
async fn prove(world: &World, why: &str) {
    let run = world.runs().get(PARENT).await.unwrap();
    assert_eq!(phase(&run), RunPhase::Succeeded, "{why}");
    for step in [SHAPING[0], SHAPING[1], PAINTING] {
        assert_eq!(
            recorded(&run, RecordEvent::StepSucceeded, step),
            1,
            "{step}: {why}"
        );
    }
    for step in SHAPING {
        // Steps are safe to repeat; what is in the journal as done is not repeated.
        let made = world
            .made(PARENT)
            .iter()
            .filter(|made| *made == step)
            .count();
        let started = recorded(&run, RecordEvent::StepStarted, step);
        assert!((1..=started).contains(&made), "{step}: {why}");
    }
    let history = run.status.unwrap().history;
    let numbers: Vec<_> = history.iter().map(|record| record.sequence).collect();
    let gapless: Vec<_> = (1..).take(numbers.len()).collect();
    assert_eq!(numbers, gapless, "{why}");
    let child = world.child().await;
    assert_eq!(phase(&child), RunPhase::Succeeded, "{why}");
    assert_eq!(world.made(&child.name_any()), [SPRAYING], "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_another_kind_is_executed_by_its_own_engine() {
    let world = World::new().await;
    assert_eq!(world.execute().await, Exit::Succeeded);
    assert_eq!(world.made(PARENT), SHAPING);
    prove(&world, "nobody was killed").await;

    let run = world.runs().get(PARENT).await.unwrap();
    let made = Results([("made".to_owned(), 1)].into());
    let steps = run.status.as_ref().unwrap().steps.iter();
    let shaping = steps.filter(|step| SHAPING.contains(&step.id.as_str()));
    assert!(
        shaping
            .clone()
            .all(|step| step.results == Some(made.clone()))
    );
    assert_eq!(shaping.count(), SHAPING.len());
    CheckedPlan::new(run.spec.plan.clone()).unwrap();

    let child = world.child().await;
    let owner = child
        .controller_owner_ref(&())
        .map(|_| child.owner_references()[0].clone());
    assert_eq!(owner.unwrap().uid, run.uid().unwrap());
    assert_eq!(child.spec.operation, "Spray");

    let leases: Api<Lease> = Api::namespaced(world.client.clone(), NAMESPACE);
    for lease in ["widget-first", "paint-first"] {
        let lease = leases.get(lease).await.unwrap();
        assert_eq!(lease.spec.unwrap().holder_identity, None, "it is given up");
    }
    let events: Api<Event> = Api::namespaced(world.client.clone(), NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let regarding = events.iter().filter_map(|event| event.regarding.as_ref());
    let kinds: BTreeSet<_> = regarding
        .filter_map(|subject| subject.kind.as_deref())
        .collect();
    assert_eq!(kinds, ["Paint", "Widget"].into());
    assert!(events.len() >= SHAPING.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_killed_at_any_edge_is_followed_by_one_that_goes_on() {
    for step in SHAPING {
        for edge in [Edge::Started, Edge::Worked] {
            let world = World::new().await;
            world.kill_at(step, edge).await;
            assert_eq!(world.execute().await, Exit::Succeeded, "{step} {edge:?}");
            prove(&world, &format!("{step} {edge:?}")).await;
        }
    }
}

/// The records of the run are as many as edges: each of them was the last that a runner wrote.
#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_killed_after_any_record_is_followed_by_one_that_goes_on() {
    for records in 1.. {
        let world = World::new().await;
        if !world.kill_after(records).await {
            assert!(records > 8, "killed after each of them: {records}");
            return prove(&world, "nobody was killed").await;
        }
        assert_eq!(world.execute().await, Exit::Succeeded, "{records} records");
        prove(&world, &format!("{records} records")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the process of a runner, started by the test above"]
async fn a_runner_as_a_process() {
    let Some(directory) = std::env::var_os(PROCESS) else {
        return;
    };
    let options = Options {
        namespace: NAMESPACE.to_owned(),
        run: PARENT.to_owned(),
        data_dir: PathBuf::from(directory).join("data"),
        kubeconfig: std::env::var_os("KUBECONFIG").map(PathBuf::from),
    };
    main(options, Widgets { stop: None }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_is_paused_resumed_and_cancelled_with_its_parent() {
    let world = World::new().await;
    fs::create_dir_all(world.spray_gun("")).unwrap();
    fs::write(world.spray_gun("wait"), "").unwrap();
    let story = async {
        let sprays = |run: &Run| {
            let activity = run
                .status
                .as_ref()
                .and_then(|status| status.steps[2].activity.clone());
            activity.is_some_and(|activity| activity.contains(SPRAYING))
        };
        world.until(PARENT, sprays).await;
        let child = world.child().await.name_any();
        world.steer(Wish::Pause).await;
        world
            .until(&child, |run| phase(run) == RunPhase::Paused)
            .await;
        world
            .until(PARENT, |run| phase(run) == RunPhase::Paused)
            .await;
        world.steer(Wish::Resume).await;
        world
            .until(&child, |run| phase(run) == RunPhase::Running)
            .await;
        world
            .until(PARENT, |run| phase(run) == RunPhase::Running)
            .await;
        world.steer(Wish::Cancel).await;
        world
            .until(PARENT, |run| phase(run) == RunPhase::Cancelled)
            .await;
        // The parent ends when its child has.
        assert_eq!(phase(&world.child().await), RunPhase::Cancelled);
    };
    let (exit, ()) = tokio::join!(world.execute(), story);
    assert_eq!(exit, Exit::Ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_failed_is_tried_again_with_the_step_of_its_parent() {
    let world = World::new().await;
    fs::create_dir_all(world.spray_gun("")).unwrap();
    fs::write(world.spray_gun("jam"), "").unwrap();
    assert_eq!(world.execute().await, Exit::Failed);
    let run = world.runs().get(PARENT).await.unwrap();
    let failure = run.status.unwrap().failure.unwrap();
    assert_eq!(failure.code, "Jammed");
    let child = world.child().await.name_any();
    assert_eq!(failure.message, format!("run {child}: the gun is jammed"));

    fs::remove_file(world.spray_gun("jam")).unwrap();
    world.steer(Wish::Retry(None)).await;
    assert_eq!(world.execute().await, Exit::Succeeded);
    prove(&world, "the child failed once").await;
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
    let run = world.runs().get(PARENT).await.unwrap();
    assert!(run.status.is_none(), "{}", run.name_any());
}
