//! Runs of widgets beside the embedded API: executed here, by processes, and in Jobs as far as making these.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::disallowed_methods,
    reason = "the kubeconfig is of a server of the test's own"
)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use api::{
    Run,
    run::{Action, DesiredState, Record, RecordEvent, Results, RunPhase},
};
use controller::{Manager, Metrics, Shutdown, manager};
use http::{Request, Response};
use k8s_openapi::{
    api::{
        batch::v1::Job,
        coordination::v1::Lease,
        core::v1::{Namespace, Secret, ServiceAccount},
        events::v1::Event,
        rbac::v1::{Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use runs::{
    Layout,
    control::Change,
    job::{Bounds, Template},
    operator::Place,
    reconciler::report::obstacle,
    runner::{self, Exit, Options, TakenUp},
    supervisor,
};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    task::{JoinHandle, JoinSet},
};
use widgets::{Edge, IMAGE, PAINTING, PARENT, SHAPING, SPRAYING, Stop, Widgets, Workshop, make};
use workflow::CheckedPlan;

const NAMESPACE: &str = "demo";
/// How an operator starts a runner. It dies before there is a file `well`.
const RUNNER: &str = r#"test -e "$1/well" || exit 7
echo "${4#*/} starts" >> "$1/runners"
"$0" runner --run "$4" --data-dir "$1/data" --kubeconfig "$2"
echo "${4#*/} ends" >> "$1/runners""#;

/// An API of this machine with one run of a Widget.
struct World {
    directory: tempfile::TempDir,
    client: Client,
    kubeconfig: std::path::PathBuf,
    server: JoinHandle<()>,
}

impl World {
    async fn new() -> Self {
        Self::with(make(NAMESPACE).unwrap()).await
    }

    async fn with(run: Run) -> Self {
        // Fails when another test was first, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().unwrap();
        let server = kapi::Server::open(kapi::Options {
            data_dir: directory.path().join("api"),
            crds: definitions(),
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
            .create(&PostParams::default(), &run)
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
        let own = Box::pin(Widgets::default().main(self.options()));
        tokio::select! {
            exit = own => exit.unwrap(),
            () = Box::pin(self.children()) => unreachable!("it goes on for ever"),
        }
    }

    /// Makes the children of the run, and executes them, as often as there is something to do for them.
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
                runs::child::make(&self.client, &run, &Workshop)
                    .await
                    .unwrap();
                let name = run.name_any();
                if name != PARENT && waits && names.insert(name.clone()) {
                    let options = Options {
                        run: name.clone(),
                        ..self.options()
                    };
                    let execute = Widgets::default().main(options);
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
    async fn kill_at(&self, stop: &Stop) {
        let stops = vec![stop.clone()];
        let runner = tokio::spawn(Widgets { stops }.main(self.options()));
        let stands_still = |run: &Run| {
            let steps = run.status.iter().flat_map(|status| &status.steps);
            let mut activities = steps.filter_map(|step| step.activity.as_ref());
            activities.any(|activity| *activity == stop.activity())
        };
        self.until(PARENT, stands_still).await;
        runner.abort();
        assert!(runner.await.unwrap_err().is_cancelled());
    }

    /// Kills a runner, as a process, when its journal has so many records. False: the run was over before.
    async fn kill_after(&self, records: usize) -> bool {
        let data = self.options().data_dir;
        let mut runner = Command::new(env!("CARGO_BIN_EXE_widgets"))
            .args(["runner", "--run", &format!("{NAMESPACE}/{PARENT}")])
            .arg("--data-dir")
            .arg(&data)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
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

    /// A client whose API takes Jobs, which the embedded one does not have, and where they are told.
    fn with_jobs(&self) -> (Client, mpsc::UnboundedReceiver<Job>) {
        let (told, jobs) = mpsc::unbounded_channel();
        let client = self.client.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, told) = (client.clone(), told.clone());
            async move {
                if !request.uri().path().starts_with("/apis/batch/") {
                    return client.send(request).await;
                }
                let uri = request.uri().to_string();
                let body = request.into_body().collect_bytes().await?;
                let (code, body) = if !body.is_empty() {
                    told.send(serde_json::from_slice(&body).unwrap()).unwrap();
                    (201, body.to_vec())
                } else if uri.contains("watch=") {
                    std::future::pending().await
                } else if uri.contains("/jobs/") {
                    let absent = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
                    (404, absent.to_string().into_bytes())
                } else {
                    let none = json!({"metadata": {"resourceVersion": "1"}, "items": []});
                    (200, none.to_string().into_bytes())
                };
                let response = Response::builder().status(code).body(Body::from(body));
                Ok(response.unwrap())
            }
        });
        (Client::new(service, NAMESPACE), jobs)
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
            .filter(|run| !run.owner_references().is_empty());
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

    async fn steer(&self, change: Change) {
        let steered = runs::control::steer(&self.client, NAMESPACE, PARENT, change, "kim");
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

/// Of this project, and of Kubernetes what stands beside a Job and the embedded API has not.
fn definitions() -> Vec<CustomResourceDefinition> {
    let foreign = [
        ("rbac.authorization.k8s.io", "roles", "Role"),
        ("rbac.authorization.k8s.io", "rolebindings", "RoleBinding"),
    ];
    let foreign = foreign.map(|(group, plural, kind)| {
        let (approved, by) = api::API_APPROVED;
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        serde_json::from_value(json!({
            "metadata": {"name": format!("{plural}.{group}"), "annotations": {approved: by}},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any},
                }],
            },
        }))
        .unwrap()
    });
    let own = api::custom_resource_definitions();
    own.into_iter().chain(foreign).collect()
}

/// Has an operator keep runners there until the test ends.
fn operate(client: Client, place: Place) {
    let settings = manager::Settings {
        namespace: None,
        concurrency: 4,
        metrics: Metrics::default(),
        shutdown: Shutdown::default(),
    };
    let mut manager = Manager::new(client, settings);
    runs::operate(&mut manager, place, Workshop);
    tokio::spawn(manager.run());
}

fn phase(run: &Run) -> RunPhase {
    let status = run.status.as_ref();
    status.map_or(RunPhase::Pending, |status| status.phase)
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
            let step = step.to_owned();
            let stop = Stop { step, edge };
            let world = World::new().await;
            world.kill_at(&stop).await;
            assert_eq!(world.execute().await, Exit::Succeeded, "{stop}");
            prove(&world, &stop.to_string()).await;
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
        world.steer(Change::Pause).await;
        world
            .until(&child, |run| phase(run) == RunPhase::Paused)
            .await;
        world
            .until(PARENT, |run| phase(run) == RunPhase::Paused)
            .await;
        world.steer(Change::Resume).await;
        world
            .until(&child, |run| phase(run) == RunPhase::Running)
            .await;
        world
            .until(PARENT, |run| phase(run) == RunPhase::Running)
            .await;
        world.steer(Change::Cancel).await;
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
    world.steer(Change::Retry(None)).await;
    assert_eq!(world.execute().await, Exit::Succeeded);
    prove(&world, "the child failed once").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_cannot_be_planned_fails_its_step_each_time_that_is_tried() {
    let mut colourless = make(NAMESPACE).unwrap();
    let Action::Run(paint) = &mut colourless.spec.plan.steps[2].action else {
        unreachable!("it is painted");
    };
    paint.parameters.clear();
    colourless.spec.plan.digest =
        workflow::plan::digest_of(&colourless.spec.operation, &colourless.spec.plan).unwrap();
    let world = World::with(colourless).await;
    for failures in 1..3 {
        assert_eq!(world.execute().await, Exit::Failed);
        let run = world.runs().get(PARENT).await.unwrap();
        assert_eq!(recorded(&run, RecordEvent::StepFailed, PAINTING), failures);
        let failure = run.status.unwrap().failure.unwrap();
        assert_eq!(failure.code, "NoPlan");
        assert!(failure.message.ends_with(": no colour"), "{failure:?}");
        world.steer(Change::Retry(None)).await;
    }
    let runs = world.runs().list(&ListParams::default()).await.unwrap();
    assert_eq!(runs.items.len(), 1);
}

/// As by a runner that somebody took over, who writes into the status what they like.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_the_plan_does_not_have_is_not_made() {
    let world = World::new().await;
    let asks = |phase: &str, step: &str, awaits: &str| json!({"status": {"phase": phase, "steps": [{"id": step, "phase": "Running", "attempt": 1, "awaits": awaits}]}});
    let first = "first-make-1-a9553f75-1";
    let second = "first-make-1-a9553f75-2";
    let asked = async |patch: Value| {
        let params = PatchParams::default();
        let (runs, patch) = (world.runs(), Patch::Merge(patch));
        let parent = runs.patch_status(PARENT, &params, &patch).await.unwrap();
        let made = runs::child::make(&world.client, &parent, &Workshop).await;
        made.unwrap();
        runs.list(&ListParams::default()).await.unwrap().items.len() - 1
    };
    let [bend, cut] = SHAPING;
    for (step, name) in [
        (bend, first),
        (cut, "first-make-1-00000000-1"),
        ("widget/other", first),
        (PAINTING, second),
        (PAINTING, "first-make-2"),
        (PAINTING, "first-make-1-00000000-1"),
        (PAINTING, PARENT),
    ] {
        let made = asked(asks("Running", step, name)).await;
        assert_eq!(made, 0, "{step} {name}");
    }
    assert_eq!(asked(asks("Failed", PAINTING, first)).await, 0);
    assert_eq!(asked(asks("Running", PAINTING, first)).await, 1);
    // Not before the one that is there was ended for good.
    assert_eq!(asked(asks("Running", PAINTING, second)).await, 1);
    let child = world.child().await;
    assert_eq!(child.spec.subject.kind, "Paint");
    assert_eq!(child.spec.operation, "Spray");
    assert_eq!(child.spec.plan.steps[0].id, SPRAYING);
}

/// The runner of the parent is gone, and its operator is all that is left to do it.
#[tokio::test(flavor = "multi_thread")]
async fn children_of_a_run_that_was_ended_without_its_runner_are_cancelled() {
    let world = World::new().await;
    let status = async |status: Value| {
        let (params, patch) = (
            PatchParams::default(),
            Patch::Merge(json!({"status": status})),
        );
        let runs = world.runs();
        runs.patch_status(PARENT, &params, &patch).await.unwrap()
    };
    let awaits = "first-make-1-a9553f75-1";
    let painting = json!({"id": PAINTING, "phase": "Running", "attempt": 1, "awaits": awaits});
    let parent = status(json!({"phase": "Running", "steps": [painting]})).await;
    let made = runs::child::make(&world.client, &parent, &Workshop).await;
    made.unwrap();
    let child = world.child().await.name_any();
    status(json!({"phase": "Cancelled"})).await;

    let nobody = supervisor::Command {
        program: "/bin/false".into(),
        arguments: Vec::new(),
    };
    let layout = Layout::new(world.options().data_dir);
    operate(world.client.clone(), Place::Here(layout, nobody));
    let is_cancelled = |run: &Run| {
        let control = run.spec.control.as_ref();
        control.and_then(|control| control.state) == Some(DesiredState::Cancelled)
    };
    world.until(&child, is_cancelled).await;
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

/// The operator's half: each run gets a process, the child too that one of them makes.
#[tokio::test(flavor = "multi_thread")]
async fn runs_of_another_kind_are_executed_by_processes_that_an_operator_keeps() {
    let world = World::new().await;
    let file = |name: &str| world.directory.path().join(name);
    let texts = [
        "-c".to_owned(),
        RUNNER.to_owned(),
        env!("CARGO_BIN_EXE_widgets").to_owned(),
        world.directory.path().display().to_string(),
        world.kubeconfig.display().to_string(),
    ];
    let command = supervisor::Command {
        program: "/bin/sh".into(),
        arguments: texts.into(),
    };
    let place = Place::Here(Layout::new(file("data")), command);
    // It is of another domain, whose operator is not here.
    let mut foreign = make(NAMESPACE).unwrap();
    foreign.metadata.name = Some("first-tune-1".to_owned());
    foreign.spec.subject.api_group = "example.org".to_owned();
    let foreign = world.runs().create(&PostParams::default(), &foreign).await;
    let foreign = foreign.unwrap().name_any();
    operate(world.client.clone(), place);

    // One that dies is told of and followed by another.
    let died = |run: &Run| obstacle(run).is_some_and(|(reason, _)| reason == "RunnerDied");
    let told = world.until(PARENT, died).await;
    let (_, why) = obstacle(&told).unwrap();
    assert!(why.contains("exit status: 7"), "{why}");
    fs::write(file("well"), "").unwrap();
    let succeeded = |run: &Run| phase(run) == RunPhase::Succeeded;
    world.until(PARENT, succeeded).await;
    prove(&world, "its first runners died").await;
    let child = world.child().await.name_any();
    let runners = fs::read_to_string(file("runners")).unwrap();
    assert!(!runners.contains(&foreign), "{runners}");
    for run in [PARENT, &child] {
        let edges = runners.lines().filter_map(|line| line.split_once(' '));
        let edges: Vec<_> = edges.filter(|(of, _)| *of == run).collect();
        assert_eq!(edges.first(), Some(&(run, "starts")), "{runners}");
        let alone = edges.windows(2).all(|edges| edges[0] != edges[1]);
        assert!(alone, "none starts beside another: {runners}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_another_kind_has_a_job_with_the_rights_of_its_kind() {
    let world = World::new().await;
    let template = Template {
        image: "windlass:v1".to_owned(),
        runner_image: "runner:v1".to_owned(),
        pull_policy: "IfNotPresent".to_owned(),
        arguments: vec!["--tools".to_owned(), "all".to_owned()],
        bounds: Bounds {
            images: vec!["widgets".to_owned()],
            ..Bounds::default()
        },
        ..Template::default()
    };
    let (client, mut jobs) = world.with_jobs();
    operate(client, Place::Jobs(Arc::new(template)));

    let job = jobs.recv().await.unwrap();
    assert_eq!(job.name_any(), PARENT);
    assert_eq!(job.owner_references()[0].kind, "Run");
    let pod = job.spec.unwrap().template.spec.unwrap();
    let account = "windlass-runner-widget-first";
    assert_eq!(pod.service_account_name.as_deref(), Some(account));
    let runner = &pod.containers[0];
    assert_eq!(runner.image.as_deref(), Some(IMAGE));
    let run = format!("{NAMESPACE}/{PARENT}");
    let expected = [
        "runner",
        "--run",
        &run,
        "--data-dir",
        "/data",
        "--tools",
        "all",
    ];
    assert_eq!(runner.args.as_deref().unwrap(), expected);

    // What it needs was there before it.
    let there: Api<ServiceAccount> = Api::namespaced(world.client.clone(), NAMESPACE);
    there.get(account).await.unwrap();
    let there: Api<RoleBinding> = Api::namespaced(world.client.clone(), NAMESPACE);
    there.get(account).await.unwrap();
    let there: Api<Lease> = Api::namespaced(world.client.clone(), NAMESPACE);
    there.get("widget-first").await.unwrap();
    let roles: Api<Role> = Api::namespaced(world.client.clone(), NAMESPACE);
    let rules = roles.get(account).await.unwrap().rules.unwrap();
    let subject = &rules[0];
    assert_eq!(subject.api_groups.as_deref().unwrap(), ["example.com"]);
    assert_eq!(subject.resources.as_deref().unwrap(), ["widgets"]);
    assert_eq!(subject.resource_names.as_deref().unwrap(), ["first"]);
    let secrets = rules
        .iter()
        .filter(|rule| rule.resources.as_deref() == Some(&["secrets".to_owned()]));
    let secrets: Vec<_> = secrets
        .flat_map(|rule| rule.resource_names.clone().unwrap())
        .collect();
    assert_eq!(secrets, ["glue"]);
    let of_runs = |verb: &str| {
        let rules = rules.iter().filter(|rule| {
            rule.resources.as_deref() == Some(&["runs".to_owned()])
                && rule.verbs.iter().any(|name| name == verb)
        });
        let names = rules.flat_map(|rule| rule.resource_names.clone().unwrap());
        names.collect::<Vec<_>>()
    };
    assert_eq!(of_runs("create"), [""; 0]);
    let steered = of_runs("patch");
    assert_eq!(steered.len(), 8);
    assert!(steered.contains(&format!("{PARENT}-a9553f75-1")));
    let written: Api<Secret> = Api::namespaced(world.client.clone(), NAMESPACE);
    assert!(
        written
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}
