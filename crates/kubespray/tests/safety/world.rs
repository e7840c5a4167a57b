//! A cluster in small: the objects as an operator has them, and what its runs would have left on the hosts.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use ansible::source::{Policy, Sources};
use api::{
    Cluster, ClusterNode, ClusterStatus, KubernetesVersion, Run,
    cluster::InventoryStatus,
    node::Role,
    run::{RunPhase, RunStatus, StepPhase, StepStatus},
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kubespray::{
    cluster::{
        decision::{Decision, NewRun, Planned},
        observe::Observed,
        plan, report, resolve,
    },
    inputs::Inputs,
    operation::Order,
    playbooks::{self, Checkout, Playbooks, Wish},
    request,
};
use serde_json::{Value, json};

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

/// What a host is for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// Control plane and member of etcd.
    Master,
    /// The same, and takes pods.
    All,
    /// Control plane alone.
    Plane,
    /// Member of etcd alone.
    Etcd,
    /// Member of etcd, and takes pods.
    Store,
    /// Takes pods.
    Worker,
}

impl Kind {
    /// Those of which each way to put them together is looked at.
    pub const ALL: [Self; 5] = [
        Self::Master,
        Self::All,
        Self::Plane,
        Self::Etcd,
        Self::Worker,
    ];

    fn spec(self) -> (&'static str, Vec<Role>) {
        match self {
            Self::Master => ("master", vec![Role::ControlPlane, Role::Etcd]),
            Self::All => ("master", vec![Role::ControlPlane, Role::Etcd, Role::Worker]),
            Self::Plane => ("master", vec![Role::ControlPlane]),
            Self::Etcd => ("etcd", vec![Role::Etcd]),
            Self::Store => ("etcd", vec![Role::Etcd, Role::Worker]),
            Self::Worker => ("worker", vec![Role::Worker]),
        }
    }
}

/// What a run left on the hosts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reality {
    /// The hosts of the cluster, and their roles.
    pub hosts: BTreeMap<String, Vec<Role>>,
    /// Those of them that take no pods.
    pub drained: BTreeSet<String>,
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

    /// The versions that the playbooks can install, oldest first.
    pub fn versions(&self) -> Vec<KubernetesVersion> {
        let Playbooks::Ready(checkout) = &self.observed.playbooks else {
            panic!("there are playbooks");
        };
        checkout.installable.versions.iter().copied().collect()
    }

    pub fn declare(&mut self, kind: Kind) {
        self.made += 1;
        let at = self.made;
        let (node_type, roles) = kind.spec();
        let node = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
            "metadata": {
                "name": format!("host-{at:02}"), "namespace": "demo", "uid": at.to_string(), "generation": 1,
                "creationTimestamp": format!("2026-01-01T00:{:02}:{:02}Z", at / 60, at % 60),
            },
            "spec": {
                "type": node_type, "roles": roles, "inventory": {"ansible_host": format!("10.0.0.{at}")},
            },
        });
        self.observed
            .nodes
            .push(serde_json::from_value(node).unwrap());
    }

    /// One of the declared hosts.
    pub fn node(&mut self, at: usize) -> Option<&mut ClusterNode> {
        let many = self.observed.nodes.len();
        self.observed.nodes.get_mut(at.checked_rem(many)?)
    }

    pub fn delete(&mut self, at: usize) {
        let now = serde_json::from_value(json!(NOON)).unwrap();
        if let Some(node) = self.node(at) {
            node.metadata.deletion_timestamp.get_or_insert(now);
        }
        self.let_go();
    }

    /// As `windlass node replace`: by a new host of the same roles, or by one that there is.
    pub fn replace(&mut self, at: usize, by: Option<usize>) {
        let Some(roles) = self.node(at).map(|node| node.spec.roles.clone()) else {
            return;
        };
        let by = if let Some(other) = by {
            self.node(other).map(|node| node.name_any())
        } else {
            self.declare(Kind::Worker);
            let new = self.observed.nodes.last_mut().unwrap();
            new.spec.roles = roles;
            Some(new.name_any())
        };
        if let (Some(node), Some(by)) = (self.node(at), by) {
            let named = (request::REPLACED_BY.to_owned(), by);
            node.annotations_mut().extend([named]);
        }
        self.delete(at);
    }

    /// As `windlass node reset`.
    pub fn reset(&mut self, at: usize) {
        self.made += 1;
        let number = self.made;
        if let Some(node) = self.node(at) {
            let asked = format!("{} {number}", node.name_any());
            let asked = (request::RESET_HOST.to_owned(), asked);
            node.annotations_mut().extend([asked]);
        }
    }

    /// The operator sees who is switched off, and says it of their nodes.
    pub fn see(&mut self) {
        let dead = self.dead.clone();
        for node in &mut self.observed.nodes {
            let health = if dead.contains(&node.name_any()) {
                "HEALTH_ERR"
            } else {
                "HEALTH_OK"
            };
            let status = json!({"state": "Joined", "node": {"health": health}});
            node.status = Some(serde_json::from_value(status).unwrap());
        }
    }

    /// As `windlass node keep`: the object is made anew, and the node takes pods again.
    pub fn keep(&mut self, at: usize) {
        self.made += 1;
        let uid = format!("again-{}", self.made);
        let Some(node) = self.node(at) else { return };
        if node.metadata.deletion_timestamp.take().is_some() {
            node.metadata.uid = Some(uid);
            node.annotations_mut().remove(request::REPLACED_BY);
            let name = node.name_any();
            self.reality.drained.remove(&name);
        }
    }

    pub fn annotate(&mut self, annotation: &str) {
        self.made += 1;
        let value = self.made.to_string();
        let annotations = self.cluster.annotations_mut();
        annotations.insert(annotation.to_owned(), value);
    }

    /// As `windlass component upgrade`.
    pub fn component(&mut self, which: u8) {
        self.made += 1;
        let named = ["container-engine", "etcd", "network-plugin"][usize::from(which % 3)];
        let annotations = self.cluster.annotations_mut();
        annotations.insert(
            request::COMPONENT.to_owned(),
            format!("{named} {}", self.made),
        );
    }

    /// As `windlass recover`: all members of etcd but one are given up.
    pub fn recover(&mut self, stays: usize, snapshot: bool) {
        self.made += 1;
        let members = self.reality.order.get("etcd").cloned().unwrap_or_default();
        let stays = stays
            .checked_rem(members.len())
            .and_then(|at| members.get(at));
        let give_up: Vec<_> = members.iter().filter(|name| Some(*name) != stays).collect();
        let mut request =
            json!({"at": self.made.to_string(), "confirm": "first", "giveUp": give_up});
        if snapshot {
            request["snapshot"] = json!("/var/backups/snapshot.db");
        }
        let annotations = self.cluster.annotations_mut();
        annotations.insert(request::RECOVER.to_owned(), request.to_string());
    }

    /// Whether the request to recover gives a host up.
    pub fn gives_up(&self, host: &str) -> bool {
        let annotations = self.cluster.annotations();
        let request = annotations.get(request::RECOVER);
        request.is_some_and(|request| request.contains(&format!("\"{host}\"")))
    }

    pub fn spec(&mut self, change: &Value) {
        let mut spec = serde_json::to_value(&self.cluster.spec).unwrap();
        for (field, value) in change.as_object().unwrap() {
            spec[field] = value.clone();
        }
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
        for (annotation, value) in [
            (request::of(new.operation), &new.request),
            (request::MAINTAIN, &new.maintain),
        ] {
            let value = value.clone().map(|value| (annotation.to_owned(), value));
            run.annotations_mut().extend(value);
        }
        run.metadata.uid = Some(new.name.clone());
        self.observed.runs.push(run);
        self.phase(RunPhase::Running);
        // The order is state from then on.
        let mut status = self.cluster.status.clone().unwrap_or_default();
        if let Ok(inputs) = Inputs::from_map(&new.plan.inputs)
            && new.operation.order != Order::Moves
        {
            status.inventory = Some(InventoryStatus {
                run: Some(new.name.clone()),
                ..inputs.inventory
            });
        }
        self.cluster.status = Some(status);
    }

    /// How the last run stands from now on.
    pub fn phase(&mut self, phase: RunPhase) {
        let run = self.observed.runs.last_mut().unwrap();
        let before = run.status.take().unwrap_or_default();
        run.status = Some(RunStatus {
            phase,
            steps: before.steps,
            ..RunStatus::default()
        });
    }

    /// How far the last run came, and how it ended there.
    pub fn came(&mut self, steps: usize, ended: RunPhase) {
        let run = self.observed.runs.last_mut().unwrap();
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
