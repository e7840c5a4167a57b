//! Adopt: takes over a cluster that somebody else has built, as it stands. Pure.
//!
//! Nothing is changed on its hosts: they are asked whether they answer, etcd who its members are, the first control plane for the
//! kubeconfig, and the nodes for their version. Where all of that is as the objects say, what the run was planned from is what the
//! cluster was built with, and every operation on a built cluster may follow. To run the playbooks over it instead was rejected: it
//! restarts what differs, on hosts that are at work, before anybody has asked for a change.

use api::{Cluster, run::Plan};
use kube::ResourceExt;

use super::{ADOPT, create};
use crate::{
    cluster::{
        compile::{self, Asks},
        decision::{Decision, Situation},
        resolve::Resolved,
    },
    names::ADOPTED,
    playbooks::Checkout,
    problem::Problem,
};

/// Has the say about a cluster that was adopted and is not taken over yet.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let is_adopted = situation.cluster.annotations().contains_key(ADOPTED);
    if !is_adopted || situation.built.is_some() {
        return None;
    }
    create::begin(situation, &ADOPT, compiled)
}

/// The plan that takes a cluster over.
fn compiled(cluster: &Cluster, resolved: &Resolved, _: &Checkout) -> Result<Plan, Problem> {
    let kubernetes = cluster.spec.kubernetes_version.ok_or_else(|| {
        Problem::new(
            "Cluster spec.kubernetesVersion",
            "",
            "is not set, and which version a cluster that was adopted runs does not follow from the kubespray release",
            "write the version that its nodes report: kubectl get nodes",
        )
    })?;
    let inputs = &resolved.inputs;
    let conduct = &resolved.adoption;
    let steps = compile::adopting(&cluster.name_any(), conduct, inputs, kubernetes)?;
    let hosts = inputs.hosts.len();
    let question =
        format!("take the cluster over as it stands: nothing is changed on its {hosts} hosts");
    let asks = Asks::Person(conduct, question);
    let reason = format!(
        "the cluster was built before and is taken over as it stands: kubespray {}{} on {hosts} hosts, on which nothing is changed",
        inputs.kubespray,
        compile::with_kubernetes(inputs),
    );
    compile::finish(
        &ADOPT,
        resolved.again.as_deref(),
        inputs,
        reason,
        asks,
        steps,
    )
}
