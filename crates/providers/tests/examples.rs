//! `examples/providers-n-infra` and `examples/providers-n-core` on the embedded API: each provider of them is planned as it is written. Nothing runs
//! there, so the test plays what runs install.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "the helpers are test code too"
)]

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use api::{
    Run,
    provider::{ProviderSet, ProviderType, definitions, label},
};
use controller::{Manager, Metrics, Shutdown, manager::Settings};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
    discovery::{self, Scope},
};
use providers::{
    Options,
    fetch::{Policy, Reach},
    inputs::Inputs,
    names::TARGET,
    stand,
};
use runs::{operator::Place, supervisor::Command};
use serde_json::{Value, json};

const METADATA: &str = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n\
     - {major: 1, minor: 13, contract: v1beta2}\n- {major: 1, minor: 14, contract: v1beta2}\n\
     - {major: 1, minor: 21, contract: v1beta2}\n- {major: 2, minor: 13, contract: v1beta2}\n";
const COMPONENTS: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: some-system}\n";

/// Missing values are looked for every ten seconds; a loaded machine takes its time.
const LIMIT: Duration = Duration::from_mins(2);

/// A provider of an example.
#[derive(Clone, Debug)]
struct One {
    kind: ProviderType,
    namespace: String,
    name: String,
    version: String,
}

struct World {
    _server: kapi::Server,
    _data: tempfile::TempDir,
    client: Client,
}

impl World {
    /// An API, and the controllers that are begun there.
    async fn start(begin: impl FnOnce(&mut Manager, &Options), runs_pods: bool) -> Self {
        let mut kinds = api::custom_resource_definitions();
        kinds.extend(definitions());
        let server = kapi::Server::in_memory(&kinds).await.unwrap();
        let client = Client::new(server.router(), "default");
        let settings = Settings {
            namespace: None,
            concurrency: 4,
            metrics: Metrics::default(),
            shutdown: Shutdown::default(),
        };
        let data = tempfile::tempdir().unwrap();
        let nobody = Command {
            program: "/bin/false".into(),
            arguments: Vec::new(),
        };
        let options = Options {
            runners: Place::Here(runs::Layout::new(data.path()), nobody),
            fetch: Policy {
                reach: Reach::Nowhere,
                ..Policy::default()
            },
            runs_pods,
        };
        let mut manager = Manager::new(client.clone(), settings);
        begin(&mut manager, &options);
        tokio::spawn(manager.run());
        Self {
            _server: server,
            _data: data,
            client,
        }
    }

    /// Applies an example as `kubectl apply --server-side` does, and gives its providers as they are written.
    async fn apply(&self, example: &str) -> Vec<One> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let files = fs::read_dir(directory.join(example)).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        let mut found = Vec::new();
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            for document in documents {
                self.put(&document).await;
                let text = |path: &str| document.pointer(path).and_then(Value::as_str);
                let mut kinds = ProviderType::ALL.into_iter();
                if let Some(kind) = kinds.find(|kind| Some(kind.kind()) == text("/kind")) {
                    found.push(One {
                        kind,
                        namespace: text("/metadata/namespace").unwrap().to_owned(),
                        name: text("/metadata/name").unwrap().to_owned(),
                        version: text("/spec/version").unwrap().to_owned(),
                    });
                }
            }
        }
        found
    }

    async fn put(&self, document: &Value) {
        let object: DynamicObject = serde_json::from_value(document.clone()).unwrap();
        let types = object.types.clone().unwrap();
        let kind = GroupVersionKind::try_from(&types).unwrap();
        let (resource, capabilities) = discovery::pinned_kind(&self.client, &kind).await.unwrap();
        let client = self.client.clone();
        let api: Api<DynamicObject> = match capabilities.scope {
            Scope::Cluster => Api::all_with(client, &resource),
            Scope::Namespaced => {
                let namespace = object.metadata.namespace.as_deref().unwrap();
                Api::namespaced_with(client, namespace, &resource)
            }
        };
        let name = object.metadata.name.clone().unwrap();
        let parameters = PatchParams::apply("kubectl");
        api.patch(&name, &parameters, &Patch::Apply(document))
            .await
            .unwrap();
    }

    /// Keeps a release, as `windlass providers preload` does.
    async fn preload(&self, one: &One, version: &str) {
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": format!("{}-{}-{version}", one.kind.word(), one.name), "labels": {
                label::NAME: one.name, label::TYPE: one.kind.word(), label::VERSION: version,
            }},
            "data": {"metadata": METADATA, "components": COMPONENTS},
        }))
        .unwrap();
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), &one.namespace);
        maps.create(&PostParams::default(), &map).await.unwrap();
    }

    fn of(&self, one: &One) -> Api<DynamicObject> {
        let resource = stand::resource(one.kind);
        Api::namespaced_with(self.client.clone(), &one.namespace, &resource)
    }

    async fn write_status(&self, one: &One, status: &Value) {
        let patch = Patch::Merge(json!({"status": status}));
        let of = self.of(one);
        of.patch_status(&one.name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// What its run and its pods do: the version that stands in its spec is installed, and all is well.
    async fn become_ready(&self, one: &One) {
        let object = self.of(one).get(&one.name).await.unwrap();
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "DeploymentAvailable", "message": "all is well",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({
            "contract": "v1beta2", "installedVersion": object.data["spec"]["version"],
            "observedGeneration": object.metadata.generation, "conditions": [ready],
        });
        self.write_status(one, &status).await;
    }

    async fn runs(&self, one: &One) -> Vec<Run> {
        let runs = Api::<Run>::namespaced(self.client.clone(), &one.namespace);
        let found = runs.list(&ListParams::default()).await.unwrap().items;
        let is_it = |run: &Run| {
            let subject = &run.spec.subject;
            (subject.kind.as_str(), &subject.name) == (one.kind.kind(), &one.name)
        };
        found.into_iter().filter(is_it).collect()
    }

    /// The run that a provider is planned by.
    async fn planned(&self, one: &One) -> Run {
        until(&format!("{one:?} is to be planned"), async || {
            let runs = self.runs(one).await;
            let told = self.of(one).get(&one.name).await.unwrap().data["status"].to_string();
            runs.into_iter().next().ok_or(told)
        })
        .await
    }

    /// Core is installed, and well, for as long as it takes to see that: nothing runs here by which it would stay so.
    async fn core_is_ready_until<T>(
        &self,
        core: &One,
        what: &str,
        is: impl AsyncFn() -> Result<T, String>,
    ) -> T {
        let run = self.planned(core).await;
        let runs = Api::<Run>::namespaced(self.client.clone(), &core.namespace);
        let done = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        let name = run.metadata.name.unwrap();
        runs.patch_status(&name, &PatchParams::default(), &done)
            .await
            .unwrap();
        until(what, async || {
            self.become_ready(core).await;
            is().await
        })
        .await
    }

    async fn reason(&self, one: &One) -> String {
        let object = self.of(one).get(&one.name).await.unwrap();
        let conditions = object.data["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.unwrap_or_default().into_iter();
        let ready = conditions.find(|condition| condition["type"] == "Ready");
        ready.unwrap_or_default()["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    async fn is_told(&self, one: &One, reason: &str) {
        until(&format!("{one:?} is to be {reason}"), async || {
            let found = self.reason(one).await;
            if found == reason { Ok(()) } else { Err(found) }
        })
        .await;
    }
}

/// Waits for what comes by itself.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match ask().await {
            Ok(found) => return found,
            Err(seen) => assert!(begun.elapsed() < LIMIT, "{what}: {seen}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn inputs(run: &Run) -> Inputs {
    Inputs::from_map(&run.spec.plan.inputs).unwrap()
}

fn split(all: &[One]) -> (&One, Vec<&One>) {
    let (core, others): (Vec<_>, Vec<_>) =
        all.iter().partition(|one| one.kind == ProviderType::Core);
    let [core] = core.as_slice() else {
        panic!("one core: {core:?}")
    };
    (core, others)
}

#[tokio::test]
async fn n_infrastructures_are_planned_beside_one_core() {
    // As in a cluster that runs what is installed.
    let world = World::start(providers::operator::operate_kinds, true).await;
    let all = world.apply("providers-n-infra").await;
    for one in &all {
        world.preload(one, &one.version).await;
    }
    let (core, others) = split(&all);
    for other in &others {
        world.is_told(other, "WaitingForCoreProviderReady").await;
        assert!(world.runs(other).await.is_empty(), "{other:?}");
    }
    let (with_values, without): (Vec<_>, Vec<_>) =
        others.iter().copied().partition(|one| one.name == "aws");
    world
        .core_is_ready_until(core, "the others are to be planned", async || {
            for other in &without {
                if world.runs(other).await.is_empty() {
                    return Err(format!("{other:?}"));
                }
            }
            Ok(())
        })
        .await;
    let infrastructures: BTreeSet<_> = others
        .iter()
        .filter(|one| one.kind == ProviderType::Infrastructure)
        .map(|one| one.namespace.as_str())
        .collect();
    assert_eq!(infrastructures.len(), 3, "each has a namespace of its own");
    for other in &without {
        let run = world.planned(other).await;
        assert_eq!(run.spec.operation, "Install");
        let inputs = inputs(&run);
        assert_eq!(
            (inputs.version, inputs.target),
            (other.version.clone(), None)
        );
    }

    // What one still lacks holds up no other.
    let [aws] = with_values.as_slice() else {
        panic!("{with_values:?}")
    };
    assert!(world.runs(aws).await.is_empty());
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "aws-variables"}, "stringData": {"AWS_B64ENCODED_CREDENTIALS": "a"},
    }))
    .unwrap();
    let secrets = Api::<Secret>::namespaced(world.client.clone(), &aws.namespace);
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    let run = world
        .core_is_ready_until(core, "the one with values is to be planned", async || {
            world.runs(aws).await.pop().ok_or(world.reason(aws).await)
        })
        .await;
    assert_eq!(inputs(&run).variables.unwrap().name, "aws-variables");
}

#[tokio::test]
async fn n_cores_are_planned_each_for_a_cluster_of_its_own() {
    // As `windlass up --providers`, which runs nothing itself.
    let world = World::start(providers::operator::operate_kinds, false).await;
    let all = world.apply("providers-n-core").await;
    for one in &all {
        world.preload(one, &one.version).await;
    }
    let of = |namespace: &str| -> Vec<One> {
        let found = all.iter().filter(|one| one.namespace == namespace);
        found.cloned().collect()
    };
    let (staging, production) = (of("staging"), of("production"));
    assert_eq!((staging.len(), production.len()), (4, 4));
    let ((first, others), (second, later)) = (split(&staging), split(&production));
    for core in [first, second] {
        let run = world.planned(core).await;
        let inputs = inputs(&run);
        let target = inputs.target.as_deref();
        assert_eq!(
            (run.spec.operation.as_str(), target),
            ("Install", Some("management"))
        );
        let object = world.of(core).get(&core.name).await.unwrap();
        assert_eq!(object.metadata.annotations.unwrap()[TARGET], "management");
    }
    world
        .core_is_ready_until(first, "those beside it are to be planned", async || {
            for other in &others {
                if world.runs(other).await.is_empty() {
                    return Err(format!("{other:?}"));
                }
            }
            Ok(())
        })
        .await;
    for other in later {
        world.is_told(other, "WaitingForCoreProviderReady").await;
        assert!(
            world.runs(other).await.is_empty(),
            "its own core is not ready: {other:?}"
        );
    }
}

#[tokio::test]
async fn a_release_goes_to_the_first_stage_by_itself_and_to_the_second_when_somebody_approves_it() {
    let sets = |manager: &mut Manager, _: &Options| providers::operator::operate_sets(manager);
    let world = World::start(sets, false).await;
    let all = world.apply("providers-n-core").await;
    for one in &all {
        world.preload(one, &one.version).await;
        world.become_ready(one).await;
        world.preload(one, "v1.14.2").await;
    }
    let (first, rest): (Vec<_>, Vec<_>) = all.iter().partition(|one| one.namespace == "staging");
    let set = |namespace: &str| Api::<ProviderSet>::namespaced(world.client.clone(), namespace);
    let told = async |namespace: &str, reason: &str| -> ProviderSet {
        until(&format!("{namespace} is to be {reason}"), async || {
            let found = set(namespace).get("main").await.unwrap();
            let status = found.status.clone().unwrap_or_default();
            let mut conditions = status.conditions.iter();
            let ready = conditions.find(|condition| condition.type_ == "Ready");
            let is_it = ready.is_some_and(|ready| ready.reason == reason);
            if is_it {
                Ok(found)
            } else {
                Err(format!("{ready:?}"))
            }
        })
        .await
    };
    let goes = async |stage: &[&One]| {
        // Core first, and each when the one before is ready: whoever has the version is made ready.
        until("the stage is to be at v1.14.2", async || {
            let mut behind = Vec::new();
            for one in stage {
                let object = world.of(one).get(&one.name).await.unwrap();
                if object.data["spec"]["version"] == "v1.14.2" {
                    world.become_ready(one).await;
                } else {
                    behind.push(one.name.clone());
                }
            }
            if behind.is_empty() {
                Ok(())
            } else {
                Err(behind.join(", "))
            }
        })
        .await;
    };
    goes(&first).await;
    told("staging", "UpToDate").await;

    let waiting = told("production", "WaitingForApproval").await;
    for one in &rest {
        let object = world.of(one).get(&one.name).await.unwrap();
        assert_eq!(object.data["spec"]["version"], "v1.13.4", "{one:?}");
    }
    let plan = waiting.status.unwrap().plan.unwrap();
    assert_eq!(plan.upgrades.len(), 4);
    let approval = json!({"metadata": {"annotations": {"windlass.dev/approve-plan": plan.id}}});
    set("production")
        .patch("main", &PatchParams::default(), &Patch::Merge(&approval))
        .await
        .unwrap();
    goes(&rest).await;
    told("production", "UpToDate").await;
}
