//! Minimal YAML through the real `resolve` and `plan`, with the bundle's playbooks.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use api::{
    Cluster, Run,
    run::{
        Action, ClusterRef, ExcludedHost, Operation, Plan, Record, RecordEvent, Results, RunSpec,
    },
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use kubespray::{
    Layout,
    cluster::compile,
    preview::{Objects, PreviewOutcome, preview},
};
use workflow::{
    CheckedPlan, State,
    status::{Live, derive},
};

const BUNDLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bundle");

struct World(Objects);

impl World {
    /// A cluster from the spec's YAML, and hosts as `name type address extra...`.
    fn new(spec: &str, hosts: &[&str]) -> Self {
        let mut spec: serde_json::Value = serde_saphyr::from_str(spec).unwrap();
        if spec.is_null() {
            spec = serde_json::json!({});
        }
        if spec.pointer("/kubespray/source").is_none() {
            spec["kubespray"]["source"] = serde_json::json!({"path": BUNDLE});
        }
        let mut world = Self(Objects::default());
        world.add_cluster("first", &spec);
        world.0.nodes = hosts.iter().map(|line| host(line)).collect();
        world
    }

    fn add_cluster(&mut self, name: &str, spec: &serde_json::Value) {
        let cluster = serde_json::json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": name, "namespace": "demo"}, "spec": spec,
        });
        self.0
            .clusters
            .push(serde_json::from_value(cluster).unwrap());
    }

    async fn outcome(&self, cluster: &str) -> PreviewOutcome {
        let data = tempfile::tempdir().unwrap();
        let previews = preview(&self.0, &Layout::new(data.path())).await;
        let found = previews
            .into_iter()
            .find(|preview| preview.cluster == cluster);
        found.unwrap().outcome
    }

    async fn problems(&self) -> String {
        match self.outcome("first").await {
            PreviewOutcome::Problems(problems) => kubespray::problem::text(&problems),
            other => panic!("expected problems, got {other:?}"),
        }
    }

    async fn plan(&self) -> Plan {
        match self.outcome("first").await {
            PreviewOutcome::Plan(plan) => *plan,
            other => panic!("expected a plan, got {other:?}"),
        }
    }
}

fn host(line: &str) -> api::ClusterNode {
    let mut words = line.split_whitespace();
    let (name, kind, address) = (
        words.next().unwrap(),
        words.next().unwrap(),
        words.next().unwrap(),
    );
    let mut inventory = serde_json::json!({"ansible_host": address});
    for word in words {
        let (key, value) = word.split_once('=').unwrap();
        inventory[key] = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    }
    serde_json::from_value(serde_json::json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
        "metadata": {"name": name, "namespace": "demo"},
        "spec": {"type": kind, "inventory": inventory},
    }))
    .unwrap()
}

const THREE: [&str; 3] = [
    "master-1 master 10.0.0.1",
    "worker-1 worker 10.0.0.2",
    "worker-2 worker 10.0.0.3",
];

fn shown(plan: &Plan) -> String {
    let mut text = format!("{}\n", plan.reason.clone().unwrap_or_default());
    for step in &plan.steps {
        let hosts: Vec<_> = plan.hosts(step).map(ToString::to_string).collect();
        let play = match &step.action {
            Action::AnsiblePlay(play) => format!(" play {} of {}", play.play, play.playbook),
            _ => String::new(),
        };
        text.push_str(&format!("{}{play} on {}\n", step.id, hosts.join(" ")));
    }
    text
}

#[tokio::test]
async fn the_plan_of_a_first_cluster() {
    let plan = World::new("{}", &THREE).plan().await;
    insta::assert_snapshot!(shown(&plan));
    assert!(plan.steps.iter().all(|step| !step.title.is_empty()));
    assert!(
        plan.steps
            .windows(2)
            .all(|pair| pair[1].depends_on == [pair[0].id.clone()])
    );
}

#[tokio::test]
async fn the_same_wish_gives_the_same_plan_and_another_wish_another() {
    let digest = async |spec: &str| World::new(spec, &THREE).plan().await.digest;
    let base = digest("{}").await;
    assert_eq!(base, digest("{}").await);
    assert_ne!(base, digest("ssh: {user: admin}").await);
}

#[tokio::test]
async fn an_approval_comes_first() {
    let spec = "operations: {creation: {approval: Manual}}";
    let plan = World::new(spec, &THREE).plan().await;
    assert!(
        matches!(plan.steps[0].action, Action::Approve(_)),
        "{:?}",
        plan.steps[0]
    );
}

#[tokio::test]
async fn thresholds_and_retries_reach_the_steps() {
    let spec =
        "operations: {creation: {maxRetries: 3, thresholds: {unreachable: 20%, onBreach: Pause}}}";
    let plan = World::new(spec, &THREE).plan().await;
    let probe = plan
        .steps
        .iter()
        .find(|step| step.id == "prepare/probe")
        .unwrap();
    let gate = probe.gate.clone().unwrap();
    assert_eq!(gate.unreachable.to_string(), "20%");
    assert_eq!(gate.on_breach, api::run::OnBreach::Pause);
    assert_eq!(probe.retry.clone().unwrap().limit, 3);
}

#[tokio::test]
async fn start_conditions_say_what_is_missing() {
    for (name, spec, hosts, expected) in [
        (
            "no host",
            "{}",
            &[][..],
            "1 more etcd host, 1 more control-plane host, 1 more host",
        ),
        (
            "etcd",
            "operations: {creation: {startConditions: {etcd: {minimum: 3}}}}",
            &THREE[..1],
            "2 more etcd hosts",
        ),
        (
            "an even count on the way",
            "operations: {creation: {startConditions: {etcd: {minimum: 3}}}}",
            &["a master 10.0.0.1", "b master 10.0.0.2"],
            "1 more etcd host",
        ),
        (
            "nodes",
            "operations: {creation: {startConditions: {nodes: {minimum: 5}}}}",
            &THREE,
            "2 more hosts",
        ),
    ] {
        let outcome = World::new(spec, hosts).outcome("first").await;
        let PreviewOutcome::Waiting(missing) = outcome else {
            panic!("{name}: {outcome:?}");
        };
        assert_eq!(missing.join(", "), expected, "{name}");
    }
}

#[tokio::test]
async fn bad_input_is_told_with_field_value_rule_and_remedy() {
    let two_etcd = ["a master 10.0.0.1", "b master 10.0.0.2"];
    let twin = ["a master 10.0.0.1", "b worker 10.0.0.1"];
    let typed = ["a master 10.0.0.1 label=1.5", "b worker 10.0.0.2"];
    for (name, spec, hosts, expected) in [
        (
            "even etcd",
            "{}",
            &two_etcd[..],
            &["odd number", "ClusterNodes"][..],
        ),
        (
            "duplicate address",
            "{}",
            &twin,
            &["10.0.0.1", "ansible_host"],
        ),
        (
            "unknown release",
            "kubespray: {version: 2.99.0}",
            &THREE,
            &["spec.kubespray.version", "2.99.0", "nearest"],
        ),
        (
            "version not installable",
            "kubernetesVersion: 1.20.0",
            &THREE,
            &["spec.kubernetesVersion", "1.20.0", "installs"],
        ),
        (
            "overlapping networks",
            "nodes: {all: {deploy: {extraVars: {kube_pods_subnet: 10.233.0.0/16}}}}",
            &THREE,
            &["kube_pods_subnet", "10.233.0.0/16", "overlap"],
        ),
        ("variable type", "{}", &typed, &["label", "1.5"]),
        (
            "no kubespray",
            "kubespray: {source: {path: /usr/share}}",
            &THREE,
            &["spec.kubespray.source", "/usr/share"],
        ),
    ] {
        let text = World::new(spec, hosts).problems().await;
        for part in expected {
            assert!(text.contains(part), "{name}: {part:?} is not in: {text}");
        }
    }
}

#[tokio::test]
async fn the_second_cluster_of_a_namespace_is_refused() {
    let mut world = World::new("{}", &THREE);
    let spec = serde_json::json!({"kubespray": {"source": {"path": BUNDLE}}});
    world.add_cluster("second", &spec);
    assert!(matches!(
        world.outcome("first").await,
        PreviewOutcome::Plan(_)
    ));
    let PreviewOutcome::Problems(problems) = world.outcome("second").await else {
        panic!("the second cluster was accepted");
    };
    assert!(
        problems[0].rule.contains("first was there first"),
        "{problems:?}"
    );
}

#[tokio::test]
async fn a_playbook_with_a_syntax_error_is_told_with_its_place() {
    let checkout = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("cp")
        .args([
            "-r",
            &format!("{BUNDLE}/."),
            checkout.path().to_str().unwrap(),
        ])
        .status()
        .unwrap();
    assert!(status.success());
    std::fs::write(
        checkout.path().join("playbooks/cluster.yml"),
        "- name: [broken\n",
    )
    .unwrap();
    let spec = format!(
        "kubespray: {{source: {{path: {}}}}}",
        checkout.path().display()
    );
    let text = World::new(&spec, &THREE).problems().await;
    assert!(text.contains("playbooks/cluster.yml"), "{text}");
}

#[tokio::test]
async fn what_a_built_cluster_cannot_become_is_refused_with_its_remedy() {
    let built = serde_json::json!({
        "kubernetesVersion": "1.34.4",
        "inventory": {"order": {"kube_control_plane": ["master-1"], "etcd": ["master-1"], "kube_node": ["worker-1", "worker-2"]}},
    });
    let spec = |version: &str| format!("kubernetesVersion: {version}");
    let without_head = &["master-9 master 10.0.0.9", THREE[1], THREE[2]];
    let other_role = &["master-1 worker 10.0.0.1", "master-9 master 10.0.0.9"];
    let cases: [(&str, String, &[&str], [&str; 4]); 4] = [
        (
            "a skipped minor",
            spec("1.36.0"),
            &THREE,
            [
                "spec.kubernetesVersion",
                "1.36.0",
                "more than one minor version after the installed 1.34.4",
                "write a version of 1.35",
            ],
        ),
        (
            "a downgrade",
            spec("1.33.0"),
            &THREE,
            [
                "spec.kubernetesVersion",
                "1.33.0",
                "older than the installed 1.34.4",
                "write 1.34.4",
            ],
        ),
        (
            "a head that is gone",
            spec("1.34.4"),
            without_head,
            [
                "ClusterNode/master-1",
                "missing",
                "head of kube_control_plane",
                "restore the ClusterNode master-1",
            ],
        ),
        (
            "a head that lost its role",
            spec("1.34.4"),
            other_role,
            [
                "ClusterNode/master-1",
                "missing",
                "head of etcd",
                "with its roles",
            ],
        ),
    ];
    for (name, spec, hosts, expected) in cases {
        let mut world = World::new(&spec, hosts);
        world.0.clusters[0].status = serde_json::from_value(built.clone()).unwrap();
        let said = world.problems().await;
        for words in expected {
            assert!(said.contains(words), "{name}: {words:?} is not in: {said}");
        }
    }
}

#[tokio::test]
async fn the_order_of_hosts_is_that_of_the_first_plan() {
    // Declared in another order than the cluster was built in, as after a restore from files.
    let mut world = World::new("{}", &[THREE[2], THREE[1], THREE[0]]);
    let built =
        serde_json::json!({"inventory": {"order": {"kube_node": ["worker-1", "worker-2"]}}});
    world.0.clusters[0].status = serde_json::from_value(built).unwrap();
    let inputs = kubespray::inputs::Inputs::from_map(&world.plan().await.inputs).unwrap();
    let order: Vec<_> = inputs
        .group("kube_node")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(order, ["worker-1", "worker-2"]);
}

/// What etcd takes for one object.
const OBJECT: usize = 1_572_864;

fn many(count: usize, name: impl Fn(usize) -> String) -> Vec<String> {
    let line = |at: usize| {
        let kind = if at < 3 { "master" } else { "worker" };
        format!(
            "{} {kind} 10.{}.{}.{}",
            name(at),
            at / 62_500,
            at / 250 % 250,
            at % 250 + 1
        )
    };
    (0..count).map(line).collect()
}

fn record(sequence: usize, event: RecordEvent, step: Option<&str>) -> Record {
    serde_json::from_value(serde_json::json!({
        "sequence": sequence, "time": "2026-01-01T00:00:00Z", "event": event, "step": step,
    }))
    .unwrap()
}

/// A run of that plan with a runner that died often, a third of the hosts left out, and every step done.
fn done(plan: &CheckedPlan) -> State {
    let mut state = State::new(plan);
    let mut add = |record: Record| {
        state.apply(plan, record).unwrap();
        if let Some(shorter) = state.compacted(plan).unwrap() {
            state = shorter;
        }
        state.next_sequence() as usize
    };
    let mut next = add(record(1, RecordEvent::RunStarted, None));
    for step in plan.steps() {
        let id = Some(step.id.as_str());
        for _ in 0..40 {
            next = add(record(next, RecordEvent::StepStarted, id));
            next = add(record(next, RecordEvent::StepInterrupted, id));
            next = add(record(next, RecordEvent::RunStarted, None));
        }
        next = add(record(next, RecordEvent::StepStarted, id));
        let mut end = record(next, RecordEvent::StepSucceeded, id);
        end.results = Some(Results::default());
        end.detail = Some("what is said of a step that went well, for people".repeat(4));
        if step.id == "prepare/probe" {
            let lost = plan.plan().hosts(step).step_by(3).cloned();
            let reason = || "the connection timed out after 5".to_owned();
            end.excluded = lost
                .map(|host| ExcludedHost {
                    host,
                    reason: reason(),
                })
                .collect();
        }
        next = add(end);
    }
    add(record(next, RecordEvent::RunSucceeded, None));
    state
}

/// A plan names each host once for the steps, and so a large cluster fits into one object with all that becomes of its run.
#[tokio::test]
async fn five_thousand_hosts_fit_into_a_run_and_a_cluster() {
    let hosts = many(5000, |at| format!("rack-{:03}-node-{at:04}.dc1", at / 40));
    let lines: Vec<_> = hosts.iter().map(String::as_str).collect();
    let plan = World::new("{}", &lines).plan().await;
    assert!(plan.groups.len() < 5, "{} groups", plan.groups.len());
    let named: usize = plan.groups.iter().map(|group| group.hosts.len()).sum();
    assert_eq!(named, 5000);

    let server = kapi::Server::in_memory(&api::custom_resource_definitions())
        .await
        .unwrap();
    let client = Client::new(server.router(), "default");
    let namespace = serde_json::json!({"metadata": {"name": "demo"}});
    let namespace = serde_json::from_value(namespace).unwrap();
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let run = Run {
        metadata: ObjectMeta {
            name: Some("first-create-1".to_owned()),
            ..ObjectMeta::default()
        },
        spec: RunSpec {
            cluster_ref: ClusterRef {
                name: "first".to_owned(),
            },
            operation: Operation::Create,
            generation: 1,
            plan,
            control: None,
        },
        status: None,
    };
    let runs: Api<Run> = Api::namespaced(client.clone(), "demo");
    let stored = runs.create(&PostParams::default(), &run).await.unwrap();
    let plan = CheckedPlan::new(stored.spec.plan.clone()).unwrap();
    let digest = compile::digest(Operation::Create, plan.plan());
    assert_eq!(
        digest.unwrap(),
        plan.plan().digest,
        "it is read as it was written"
    );
    let status = derive(&plan, &done(&plan), &Live::default());
    assert_eq!(status.excluded.len(), 1667);
    let body = serde_json::json!({
        "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "status": status,
    });
    let apply = PatchParams::apply("windlass-runner").force();
    runs.patch_status("first-create-1", &apply, &Patch::Apply(&body))
        .await
        .unwrap();
    let size = size_of::<Run>(&client, "first-create-1").await;
    assert!(size < OBJECT, "the Run takes {size} bytes");
    println!("a Run of 5,000 hosts takes {size} bytes");

    let order: Vec<_> = hosts.iter().map(|line| line.split(' ').next()).collect();
    let body = serde_json::json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "spec": {},
        "status": {"inventory": {"order": {"kube_node": order, "kube_control_plane": order[..3]}}},
    });
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), "demo");
    let apply = PatchParams::apply("windlass-cluster").force();
    clusters
        .patch("first", &apply, &Patch::Apply(&body))
        .await
        .unwrap();
    clusters
        .patch_status("first", &apply, &Patch::Apply(&body))
        .await
        .unwrap();
    let size = size_of::<Cluster>(&client, "first").await;
    assert!(size < 512 * 1024, "the Cluster takes {size} bytes");
    println!("a Cluster of 5,000 hosts takes {size} bytes");
}

/// As it is stored: with what the API remembers of who wrote what.
async fn size_of<K>(client: &Client, name: &str) -> usize
where
    K: kube::Resource<DynamicType = ()>,
{
    let resource = kube::api::ApiResource::erase::<K>(&());
    let api: Api<kube::api::DynamicObject> =
        Api::namespaced_with(client.clone(), "demo", &resource);
    let object = api.get(name).await.unwrap();
    assert!(object.metadata.managed_fields.is_some());
    serde_json::to_vec(&object).unwrap().len()
}

#[tokio::test]
async fn a_plan_that_no_object_can_hold_is_refused_with_the_way_out() {
    let hosts = many(5000, |at| format!("{at:05}-{}", "long".repeat(14)));
    let lines: Vec<_> = hosts.iter().map(String::as_str).collect();
    let text = World::new("{}", &lines).problems().await;
    for part in ["ClusterNodes", "5000 hosts", "KiB", "shorter names"] {
        assert!(text.contains(part), "{text}");
    }
}
