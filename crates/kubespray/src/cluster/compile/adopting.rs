//! Steps that take over a cluster that stands, and change nothing on its hosts. Pure.

use api::{HostName, KubernetesVersion, run::Step};

use super::{LOOK_TIMEOUT, Placed, beginning, compiled, kubeconfig, retry, step};
use crate::{
    action::{Action, MEMBERS, VERSIONS},
    cluster::resolve::Conduct,
    inputs::Inputs,
    operation::scale::manages_etcd,
    problem::Problem,
};

/// The steps that prove that a cluster is as its objects say, and bring its kubeconfig.
///
/// # Errors
///
/// The inputs make no inventory.
pub(crate) fn adopting(
    cluster: &str,
    conduct: &Conduct,
    inputs: &Inputs,
    kubernetes: KubernetesVersion,
) -> Result<Vec<Placed>, Problem> {
    let inventory = compiled(inputs)?;
    let look = |id: &str, title: &str, action: Action, hosts: Vec<HostName>| Placed {
        step: Step {
            timeout: Some(LOOK_TIMEOUT),
            weight: Some(2),
            retry: retry(conduct),
            ..step(id, title, action)
        },
        hosts,
    };
    let mut steps = beginning(conduct, inventory.hosts().cloned().collect());
    // A pod of kubeadm is called as its node is, and its host has no settings of etcd to ask with.
    if !manages_etcd(inputs) {
        let members = inventory.group("etcd").to_vec();
        let title = "Ask etcd whether its members are those of the inventory";
        steps.push(look(MEMBERS, title, Action::Members, members));
    }
    steps.push(kubeconfig(cluster, conduct, inputs));
    let title = "Ask the nodes which version they run";
    let versions = Action::Versions { kubernetes };
    steps.push(look(VERSIONS, title, versions, inputs.members()));
    Ok(steps)
}
