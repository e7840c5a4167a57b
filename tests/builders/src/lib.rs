//! Objects as Windlass makes them, for suites that hold them against more than one API.
//!
//! They come from the real `resolve` and `plan` and the real state machine of runs, so that nothing here can lag behind.

pub mod foretold;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use api::{
    Cluster, ClusterNode, Run, RunStatus,
    run::{Exclusion, Plan, Record, RecordEvent, Results, RunSpec, Subject},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
};
use kubespray::{
    Layout,
    preview::{Objects, PreviewOutcome, preview},
};
use serde_json::json;
use workflow::{
    CheckedPlan, State,
    status::{Live, derive},
};

/// The cluster of these objects.
pub const CLUSTER: &str = "first";
/// The namespace of these objects.
pub const NAMESPACE: &str = "demo";
/// What etcd takes for one object, in bytes.
pub const OBJECT: usize = 1_572_864;

/// So many hosts with these names, an address each; the first three are masters.
///
/// # Errors
///
/// A name is none of a ClusterNode.
pub fn nodes(count: usize, name: impl Fn(usize) -> String) -> Result<Vec<ClusterNode>> {
    let node = |at: usize| {
        let kind = if at < 3 { "master" } else { "worker" };
        let address = format!("10.{}.{}.{}", at / 62_500, at / 250 % 250, at % 250 + 1);
        serde_json::from_value(json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
            "metadata": {"name": name(at), "namespace": NAMESPACE},
            "spec": {"type": kind, "inventory": {"ansible_host": address}},
        }))
        .context("make a ClusterNode")
    };
    (0..count).map(node).collect()
}

/// Names as a large site gives them.
pub fn in_racks(at: usize) -> String {
    format!("rack-{:03}-node-{at:04}.dc1", at / 40)
}

/// What a person is shown of a cluster of these hosts, raised by the bundle.
///
/// # Errors
///
/// The objects cannot be made, or nothing is shown of the cluster.
pub async fn outcome(nodes: Vec<ClusterNode>) -> Result<PreviewOutcome> {
    let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundle");
    let cluster = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
        "metadata": {"name": CLUSTER, "namespace": NAMESPACE},
        "spec": {"kubespray": {"source": {"path": bundle}}},
    });
    let objects = Objects {
        clusters: vec![serde_json::from_value(cluster).context("make a Cluster")?],
        nodes,
        ..Objects::default()
    };
    let data = tempfile::tempdir().context("make a directory")?;
    let previews = preview(&objects, &Layout::new(data.path())).await;
    let shown = previews.into_iter().next().context("nothing is shown")?;
    Ok(shown.outcome)
}

/// The Run that creates the cluster of these hosts.
///
/// # Errors
///
/// There is no plan for them.
pub async fn creation(nodes: Vec<ClusterNode>) -> Result<Run> {
    let plan = match outcome(nodes).await? {
        PreviewOutcome::Plan(plan) => *plan,
        other => bail!("there is no plan: {other:?}"),
    };
    Ok(Run {
        metadata: ObjectMeta {
            name: Some(format!("{CLUSTER}-create-1")),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        spec: RunSpec {
            subject: Subject {
                api_group: Cluster::group(&()).into_owned(),
                kind: Cluster::kind(&()).into_owned(),
                name: CLUSTER.to_owned(),
                uid: None,
            },
            operation: "Create".to_owned(),
            generation: 1,
            plan,
            control: None,
        },
        status: None,
    })
}

/// The longest status of a run of that plan: its runner died often, a third of the hosts was left out, and every step is done.
///
/// # Errors
///
/// The plan is none, or does not go this way.
pub fn at_its_end(plan: &Plan) -> Result<RunStatus> {
    let plan = CheckedPlan::new(plan.clone()).context("check the plan")?;
    let mut story = Story {
        state: State::new(&plan),
        plan: &plan,
    };
    story.add(RecordEvent::RunStarted, None)?;
    for step in plan.steps() {
        let id = Some(step.id.as_str());
        for _ in 0..40 {
            story.add(RecordEvent::StepStarted, id)?;
            story.add(RecordEvent::StepInterrupted, id)?;
            story.add(RecordEvent::RunStarted, None)?;
        }
        story.add(RecordEvent::StepStarted, id)?;
        let mut end = story.record(RecordEvent::StepSucceeded, id)?;
        end.results = Some(Results::default());
        end.detail = Some("what is said of a step that went well, for people".repeat(4));
        if step.id == "prepare/probe" {
            let lost = plan.plan().targets(step).step_by(3).cloned();
            end.excluded = lost
                .map(|target| Exclusion {
                    target,
                    reason: "the connection timed out after 5".to_owned(),
                })
                .collect();
        }
        story.append(end)?;
    }
    story.add(RecordEvent::RunSucceeded, None)?;
    Ok(derive(&plan, &story.state, &Live::default()))
}

/// What an API has stored.
#[derive(Debug)]
pub struct Stored {
    /// The Run, as it is read again.
    pub run: Run,
    /// How large it is, with what the API remembers of who wrote what.
    pub run_bytes: usize,
    /// How large the Cluster is that remembers the order of all hosts.
    pub cluster_bytes: usize,
}

/// Writes a Run of so many hosts, its status at its end, and the Cluster that it made, each as Windlass does.
///
/// # Errors
///
/// The API refuses one of them.
pub async fn store(client: &Client, hosts: usize) -> Result<Stored> {
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .context("make the namespace")?;
    let run = creation(nodes(hosts, in_racks)?).await?;
    let runs: Api<Run> = Api::namespaced(client.clone(), NAMESPACE);
    let run = runs.create(&PostParams::default(), &run).await;
    let run = run.context("make the Run")?;
    let name = run.name_any();
    let status = json!({
        "apiVersion": Run::api_version(&()), "kind": Run::kind(&()),
        "metadata": {"name": name}, "status": at_its_end(&run.spec.plan)?,
    });
    let runner = PatchParams::apply("windlass-runner").force();
    let run = runs
        .patch_status(&name, &runner, &Patch::Apply(&status))
        .await;
    let run = run.context("write the status of the Run")?;

    let order: Vec<_> = (0..hosts).map(in_racks).collect();
    let cluster = json!({
        "apiVersion": Cluster::api_version(&()), "kind": Cluster::kind(&()),
        "metadata": {"name": CLUSTER}, "spec": {},
        "status": {"inventory": {"order": {"kube_node": order, "kube_control_plane": order[..3]}}},
    });
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), NAMESPACE);
    let operator = PatchParams::apply("windlass-cluster").force();
    let cluster = Patch::Apply(&cluster);
    let made = clusters.patch(CLUSTER, &operator, &cluster).await;
    made.context("make the Cluster")?;
    let told = clusters.patch_status(CLUSTER, &operator, &cluster).await;
    told.context("write the status of the Cluster")?;
    Ok(Stored {
        run_bytes: size::<Run>(client, &name).await?,
        cluster_bytes: size::<Cluster>(client, CLUSTER).await?,
        run,
    })
}

/// The parts of the spec of a stored Run that the API lets people change.
///
/// # Errors
///
/// The API refuses a change for another reason than that the part cannot change.
pub async fn changeable(client: &Client, run: &Run) -> Result<Vec<&'static str>> {
    let runs: Api<Run> = Api::namespaced(client.clone(), NAMESPACE);
    let mut inputs = run.spec.plan.inputs.clone();
    inputs.insert("ssh".to_owned(), json!({"user": "somebody"}));
    let mut steps = run.spec.plan.steps.clone();
    steps.pop();
    let changes = [
        ("subject", json!({"subject": {"name": "another"}})),
        ("operation", json!({"operation": "Reset"})),
        ("generation", json!({"generation": 7})),
        ("plan.digest", json!({"plan": {"digest": "another"}})),
        ("plan.reason", json!({"plan": {"reason": "another"}})),
        ("plan.groups", json!({"plan": {"groups": []}})),
        ("plan.inputs", json!({"plan": {"inputs": inputs}})),
        ("plan.steps", json!({"plan": {"steps": steps}})),
        ("control", json!({"control": {"state": "Paused"}})),
    ];
    let only_asked = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let mut changeable = Vec::new();
    for (part, spec) in changes {
        let change = Patch::Merge(json!({"spec": spec}));
        match runs.patch(&run.name_any(), &only_asked, &change).await {
            Ok(_) => changeable.push(part),
            Err(kube::Error::Api(answer)) if answer.message.contains("cannot change") => {}
            Err(error) => return Err(error).with_context(|| format!("change {part}")),
        }
    }
    Ok(changeable)
}

/// The size of an object as it is stored.
async fn size<K: Resource<DynamicType = ()>>(client: &Client, name: &str) -> Result<usize> {
    let kind = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &kind);
    let object = api.get(name).await.context("read it again")?;
    ensure!(object.metadata.managed_fields.is_some(), "nobody wrote it");
    Ok(serde_json::to_vec(&object)?.len())
}

/// A run as it is told record by record, compacted as a runner does it.
struct Story<'a> {
    plan: &'a CheckedPlan,
    state: State,
}

impl Story<'_> {
    fn add(&mut self, event: RecordEvent, step: Option<&str>) -> Result<()> {
        let record = self.record(event, step)?;
        self.append(record)
    }

    fn record(&self, event: RecordEvent, step: Option<&str>) -> Result<Record> {
        serde_json::from_value(json!({
            "sequence": self.state.next_sequence(), "time": "2026-01-01T00:00:00Z", "event": event, "step": step,
        }))
        .context("make a record")
    }

    fn append(&mut self, record: Record) -> Result<()> {
        self.state
            .apply(self.plan, record)
            .context("append a record")?;
        if let Some(shorter) = self.state.compacted(self.plan).context("compact")? {
            self.state = shorter;
        }
        Ok(())
    }
}
