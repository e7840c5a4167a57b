//! A cluster in small: the objects as an operator has them, and what its runs would have left on the hosts.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use ansible::source::{Policy, Sources};
use api::{
    Cluster, ClusterStatus, KubernetesVersion, Run,
    cluster::InventoryStatus,
    node::Role,
    run::{RunPhase, RunStatus, StepPhase, StepStatus},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kubespray::{
    cluster::{
        decision::{Decision, NewRun, Planned},
        observe::Observed,
        plan, report, resolve,
    },
    inputs::Inputs,
    names::ADOPTED,
    operation::Operation,
    playbooks::{self, Checkout, Playbooks, Wish},
    request,
};
use serde_json::{Value, json};

mod kind;
mod wishes;

pub use kind::Kind;

const BUNDLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bundle");
/// What could be installed beside the default.
const VERSIONS: [&str; 5] = ["1.33.5", "1.33.8", "1.34.6", "1.35.2", "1.36.0"];
/// A Monday at noon.
const NOON: &str = "2026-06-01T12:00:00Z";

/// The playbooks, cut once.
fn checkout(cluster: &Cluster) -> Arc<Checkout> {
    static CUT: OnceLock<Arc<Checkout>> = OnceLock::new();
    let cut = CUT.get_or_init(|| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let data = tempfile::tempdir().unwrap();
        let sources = Sources::new(data.path().to_owned(), Policy::person());
        let wish = Wish::of(cluster).unwrap();
        let load = playbooks::load(&wish, "demo", &sources);
        let mut checkout = runtime.block_on(load).unwrap();
        // The bundle installs one version; moves between several are what is looked at here.
        let further = VERSIONS.map(|version| version.parse().unwrap());
        checkout.installable.minimum = further[0];
        checkout.installable.versions.extend(further);
        Arc::new(checkout)
    });
    Arc::clone(cut)
}

/// What a run left on the hosts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reality {
    /// The hosts of the cluster, and their roles.
    pub hosts: BTreeMap<String, Vec<Role>>,
    /// Those of them that take no pods, because of what a run did and has not come to the end of.
    pub drained: BTreeSet<String>,
    /// Those that take no pods because a person has it so.
    pub cordoned: BTreeSet<String>,
    /// Those that were taken out of it by a run that did not come to its end.
    pub lost: BTreeSet<String>,
    /// The version that they run.
    pub kubernetes: Option<KubernetesVersion>,
    /// The order of the groups in which order is state.
    pub order: BTreeMap<String, Vec<String>>,
    /// How the members of etcd are called.
    pub members: BTreeMap<String, String>,
}

impl Reality {
    pub fn with(&self, role: Role) -> BTreeSet<String> {
        let with = |(_, roles): &(&String, &Vec<Role>)| roles.contains(&role);
        let hosts = self.hosts.iter().filter(with);
        hosts.map(|(name, _)| name.clone()).collect()
    }
}

/// All of it.
#[derive(Clone, Debug)]
pub struct World {
    pub cluster: Cluster,
    pub observed: Observed,
    pub reality: Reality,
    /// The hosts that are switched off.
    pub dead: BTreeSet<String>,
    made: usize,
}

impl World {
    pub fn new(kinds: &[Kind]) -> Self {
        let cluster: Cluster = serde_json::from_value(json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "namespace": "demo", "uid": "c", "generation": 1},
            "spec": {"kubespray": {"source": {"path": BUNDLE}}},
        }))
        .unwrap();
        let observed = Observed::empty(NOON.parse().unwrap(), Playbooks::Ready(checkout(&cluster)));
        let mut world = Self {
            cluster,
            observed,
            reality: Reality::default(),
            dead: BTreeSet::new(),
            made: 0,
        };
        for kind in kinds {
            world.declare(*kind);
        }
        world
    }

    /// A cluster that somebody else has built, and that is to be taken over as it stands.
    pub fn found(kinds: &[Kind]) -> Self {
        let mut world = Self::new(kinds);
        let Playbooks::Ready(checkout) = &world.observed.playbooks else {
            panic!("there are playbooks");
        };
        let version = checkout.installable.default;
        world.reality.kubernetes = Some(version);
        let nodes = world.observed.nodes.iter();
        let nodes =
            nodes.map(|node| (node.name_any(), node.spec.roles.clone().unwrap_or_default()));
        world.reality.hosts = nodes.collect();
        world.annotate(ADOPTED);
        world.spec(&json!({"kubernetesVersion": version}));
        world
    }

    /// The versions that the playbooks can install, oldest first.
    pub fn versions(&self) -> Vec<KubernetesVersion> {
        let Playbooks::Ready(checkout) = &self.observed.playbooks else {
            panic!("there are playbooks");
        };
        checkout.installable.versions.iter().copied().collect()
    }

    pub fn spec(&mut self, change: &Value) {
        let mut spec = serde_json::to_value(&self.cluster.spec).unwrap();
        merge(&mut spec, change);
        self.cluster.spec = serde_json::from_value(spec).unwrap();
        *self.cluster.metadata.generation.as_mut().unwrap() += 1;
    }

    /// What a pass decides, and the status that it writes.
    pub fn pass(&mut self) -> Planned {
        let wanted = resolve::resolve(&self.cluster, &self.observed);
        let wanted = wanted.as_ref().map_err(Vec::as_slice);
        let planned = plan::planned(&self.cluster, wanted, &self.observed);
        let run = match &planned.decision {
            Decision::Follow(run) | Decision::Maintain(_, run) | Decision::Cancel(run) => {
                Some((**run).clone())
            }
            Decision::Keep(built) => built.run.clone(),
            _ => None,
        };
        let status = self.told(&planned, run.as_ref());
        self.cluster.status = Some(status);
        planned
    }

    pub fn told(&self, planned: &Planned, run: Option<&Run>) -> ClusterStatus {
        let view = report::View {
            decision: &planned.decision,
            pending: &planned.pending,
            run,
            radar: None,
            health: None,
            nodes: self.observed.nodes.len(),
            now: self.observed.now,
        };
        report::status(&self.cluster, &view)
    }

    /// Stores a run, as the operator does.
    pub fn store(&mut self, new: &NewRun) {
        let mut run = runs::object::of(
            &self.cluster,
            new.name.clone(),
            new.operation.name,
            new.generation,
            new.plan.clone(),
        );
        let asked = request::of(new.operation).zip(new.request.clone());
        let maintained = Some(request::MAINTAIN).zip(new.maintain.clone());
        let answers = asked.into_iter().chain(maintained);
        let answers = answers.map(|(annotation, value)| (annotation.to_owned(), value));
        run.annotations_mut().extend(answers);
        run.metadata.uid = Some(new.name.clone());
        run.metadata.creation_timestamp = Some(Time(self.observed.now));
        // Where its plan says the order, that is state from then on.
        if Operation::says_order(&run) {
            let inputs = Inputs::from_map(&new.plan.inputs).unwrap();
            let status = self.cluster.status.get_or_insert_default();
            status.inventory = Some(InventoryStatus {
                run: Some(new.name.clone()),
                ..inputs.inventory
            });
        }
        self.observed.runs.push(run);
        self.phase(&new.name, RunPhase::Running);
    }

    /// How a run stands from now on.
    pub fn phase(&mut self, run: &str, phase: RunPhase) {
        let now = Time(self.observed.now);
        let mut runs = self.observed.runs.iter_mut();
        let run = runs.find(|known| known.name_any() == run).unwrap();
        let before = run.status.take().unwrap_or_default();
        run.status = Some(RunStatus {
            phase,
            steps: before.steps,
            finished_at: (!runs::is_active(phase)).then_some(now),
            ..RunStatus::default()
        });
    }

    /// How far a run came, and how it ended there.
    pub fn came(&mut self, run: &str, steps: usize, ended: RunPhase) {
        let mut runs = self.observed.runs.iter_mut();
        let run = runs.find(|known| known.name_any() == run).unwrap();
        let phase = |at: usize| match at.cmp(&steps) {
            Ordering::Less => StepPhase::Succeeded,
            Ordering::Equal if ended == RunPhase::Failed => StepPhase::Failed,
            _ => StepPhase::Pending,
        };
        let all = run.spec.plan.steps.iter().enumerate();
        let all = all.map(|(at, step)| StepStatus {
            id: step.id.clone(),
            phase: phase(at),
            ..StepStatus::default()
        });
        run.status.get_or_insert_default().steps = all.collect();
    }

    /// ClusterNodes go whose hosts are no part of the cluster, as their finalizer has it.
    pub fn let_go(&mut self) {
        let runs = &self.observed.runs;
        let builder = kubespray::cluster::built::built_by(runs);
        let before = builder.and_then(kubespray::cluster::built::built_with);
        let active = runs.last().filter(|run| runs::is_active(runs::phase(run)));
        let has = |inputs: &Inputs, name: &str| inputs.hosts.iter().any(|host| host.name == name);
        let in_work = active.and_then(|run| Inputs::from_map(&run.spec.plan.inputs).ok());
        self.observed.nodes.retain(|node| {
            let name = node.name_any();
            let needed = [&before, &in_work]
                .into_iter()
                .flatten()
                .any(|inputs| has(inputs, &name));
            node.metadata.deletion_timestamp.is_none() || needed
        });
    }

    /// Time passes.
    pub fn wait(&mut self, hours: i64) {
        self.observed.now += SignedDuration::from_hours(hours);
    }

    pub fn now(&self) -> Timestamp {
        self.observed.now
    }
}

/// Brings a change into a spec, as a merge patch does.
fn merge(into: &mut Value, change: &Value) {
    let (Some(_), Some(fields)) = (into.as_object(), change.as_object()) else {
        into.clone_from(change);
        return;
    };
    for (field, value) in fields {
        merge(&mut into[field], value);
    }
}
