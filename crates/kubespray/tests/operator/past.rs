//! A cluster that was built a while ago, as `plan` sees it.

use std::{collections::BTreeMap, sync::Arc};

use ansible::source::{Policy, Sources};
use api::{Cluster, ClusterNode, run::Plan};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kubespray::{
    cluster::{
        decision::{Decision, NewRun, Planned},
        observe::Observed,
        plan, resolve,
    },
    operation::asked::Asked,
    playbooks::{self, Playbooks, Wish},
    request,
};
use serde_json::{Value, from_value, json};

use crate::world::BUNDLE;

const NOW: &str = "2026-06-01T00:00:00Z";

/// The cluster, and what is seen of it.
pub struct Past {
    pub cluster: Cluster,
    pub observed: Observed,
}

pub fn days(days: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * days)
}

pub fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// The steps of a plan, each with its hosts.
pub fn steps(plan: &Plan) -> Vec<String> {
    let steps = plan.steps.iter().map(|step| {
        let hosts: Vec<_> = plan.targets(step).map(ToString::to_string).collect();
        format!("{}: {}", step.id, hosts.join(" "))
    });
    steps.collect()
}

/// A host, named after its type and its place.
fn node(kind: &str, at: u8) -> ClusterNode {
    let node = json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
        "metadata": {"name": format!("{kind}-{at}"), "namespace": "demo", "generation": 1},
        "spec": {"type": kind, "inventory": {"ansible_host": format!("10.0.0.{at}")}},
    });
    from_value(node).unwrap()
}

impl Past {
    /// A cluster of hosts of these types, named after their type and their place, that was built 300 days ago.
    pub async fn new(mut spec: Value, kinds: &[&str]) -> Self {
        spec["kubespray"]["source"] = json!({"path": BUNDLE});
        let cluster = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "namespace": "demo", "uid": "c", "generation": 1}, "spec": spec,
        });
        let cluster: Cluster = from_value(cluster).unwrap();
        let wish = Wish::of(&cluster).unwrap();
        let data = tempfile::tempdir().unwrap();
        let sources = Sources::new(data.path().to_owned(), Policy::person());
        let checkout = playbooks::load(&wish, "demo", &sources).await.unwrap();
        let nodes = kinds.iter().zip(1..).map(|(kind, at)| node(kind, at));
        let observed = Observed {
            nodes: nodes.collect(),
            ..Observed::empty(now(), Playbooks::Ready(Arc::new(checkout)))
        };
        let mut past = Self { cluster, observed };
        let create = past.starts();
        past.ran(&create, "Succeeded", days(-300));
        past
    }

    pub fn decision(&self) -> Decision {
        self.planned().decision
    }

    /// What is decided, and what waits.
    pub fn planned(&self) -> Planned {
        let wanted = resolve::resolve(&self.cluster, &self.observed);
        let wanted = wanted.as_ref().map_err(Vec::as_slice);
        plan::planned(&self.cluster, wanted, &self.observed)
    }

    pub fn starts(&self) -> NewRun {
        match self.decision() {
            Decision::Start(new) => *new,
            other => panic!("{other:?}"),
        }
    }

    /// What the cluster is told to be missing, and that nothing starts.
    pub fn rests(&self) -> String {
        match self.decision() {
            Decision::Keep(built) => built.not_carried_out.join("; "),
            other => panic!("{other:?}"),
        }
    }

    /// Another host is declared, behind the others.
    pub fn declare(&mut self, kind: &str, at: u8) {
        self.observed.nodes.push(node(kind, at));
    }

    /// The ClusterNode of a host is deleted, which a finalizer holds.
    pub fn delete(&mut self, name: &str) {
        let mut nodes = self.observed.nodes.iter_mut();
        let node = nodes.find(|node| node.name_any() == name).unwrap();
        node.metadata.deletion_timestamp = Some(Time(now()));
    }

    /// The last of its runs gets to that phase.
    pub fn gets_to(&mut self, phase: &str) {
        let status = self.observed.runs.last_mut().unwrap().status.as_mut();
        status.unwrap().phase = from_value(json!(phase)).unwrap();
    }

    /// Why what somebody asked for is not carried out.
    pub fn refuses(&self, asked: &Asked) -> String {
        let answer = asked.answer(&self.cluster, &self.decision());
        answer.unwrap().refused.unwrap()
    }

    /// Somebody asks for it by that annotation.
    pub fn ask(&mut self, annotation: &str, request: &str) {
        let asked = (annotation.to_owned(), request.to_owned());
        self.cluster.annotations_mut().extend([asked]);
    }

    /// A run came to that end, so long from now.
    pub fn ran(&mut self, new: &NewRun, phase: &str, ended: SignedDuration) {
        self.ran_by_steps(new, phase, ended, &[]);
    }

    /// As [`Past::ran`], with these of its steps at that phase.
    pub fn ran_by_steps(
        &mut self,
        new: &NewRun,
        phase: &str,
        ended: SignedDuration,
        steps: &[(&str, &str)],
    ) {
        let steps = steps.iter();
        let steps: Vec<_> = steps
            .map(|(id, phase)| json!({"id": id, "phase": phase}))
            .collect();
        let asked = request::of(new.operation).zip(new.request.as_ref());
        let annotations: BTreeMap<_, _> = asked.into_iter().collect();
        let run = json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {"name": new.name, "namespace": "demo", "uid": new.name, "annotations": annotations},
            "spec": {
                "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "first"},
                "operation": new.operation.name, "generation": new.generation, "plan": new.plan,
            },
            "status": {"phase": phase, "finishedAt": (now() + ended).to_string(), "steps": steps},
        });
        self.observed.runs.push(from_value(run).unwrap());
    }
}
