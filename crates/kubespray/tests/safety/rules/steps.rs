//! What a step works on.

use api::{
    HostName,
    node::Role,
    run::{Plan, Step},
};
use kubespray::action::{self, Action};

use super::Starting;

/// No step is on two control planes, but for those of which it is said here why they may be.
pub fn one_plane_at_a_time(starting: &Starting<'_>) {
    let planes = starting.before().with(Role::ControlPlane);
    let (name, plan) = (starting.name(), starting.plan());
    let lost = |host: &HostName| name == "Recover" && starting.inputs.leaving.contains(host);
    for step in &plan.steps {
        let mut touched = works_on(plan, step);
        // No more is lost of those that are given up.
        touched.retain(|host| planes.contains(host.as_str()) && !lost(host));
        assert!(
            touched.len() <= 1 || of_several(name, &step.id).is_some(),
            "{name}: {} is on {} control planes at once: {touched:?}",
            step.id,
            touched.len()
        );
    }
}

/// Why a step of an operation may be on several control planes, if it may.
fn of_several(operation: &str, step: &str) -> Option<&'static str> {
    Some(match (operation, step) {
        (_, "preamble/check-ansible" | "preamble/inventory" | "preamble/groups") => {
            "the inventory is proved, and no host is worked on"
        }
        (
            _,
            "bootstrap/hosts" | "bootstrap/facts" | "bootstrap/facts-of-others" | "endpoints/facts",
        ) => "facts are read, and the interpreter that reads them is brought",
        ("Reset", _) => "the cluster is to be no more",
        ("Converge" | "Upgrade", "dns/resolv-conf" | "apps/install") => {
            "what names resolve by, and what runs in the cluster: nothing of a control plane is restarted"
        }
        (
            "Converge",
            "prepare/hosts"
            | "etcd/install"
            | "kubelet/install"
            | "control-plane/install"
            | "nodes/join"
            | "network/install",
        ) => {
            "it is the play over all hosts as kubespray has it, which restarts what differs: people are told so, and ask for it"
        }
        ("Upgrade", "prepare/upgrade" | "etcd/install") => {
            "packages and downloads; and certificates of etcd's clients, once etcd has been asked for all of its members"
        }
        ("Scale", "etcd/install") => {
            "certificates of etcd's clients: the members are as they were, but for the one that joins"
        }
        ("Scale", "control-plane/install") => {
            "kubespray joins a control plane by a play of all of them, and what it finds as it is to be stays"
        }
        ("Scale" | "Remove" | "Recover", "endpoints/control-plane" | "endpoints/nodes") => {
            "the same plays again, for the names of those that joined or left"
        }
        ("Recover", "recover/check" | "recover/found") => {
            "all of etcd is rolled back to a snapshot, which is proved first of all of them"
        }
        ("Component", "network-plugin/upgrade") => {
            "the plugin is exchanged beneath running pods, and rolls out by itself"
        }
        ("Toolbox", "nodes/cordon" | "drain/pods") => {
            "a person names the nodes, and what serves on a control plane is none of the pods that go"
        }
        _ => return None,
    })
}

/// The hosts on which a step changes something.
fn works_on(plan: &Plan, step: &Step) -> Vec<HostName> {
    let Some(action) = action::of(step).unwrap() else {
        return Vec::new();
    };
    match action {
        // They look, wait, work on no host, or lay a file down on one.
        Action::Sandbox
        | Action::Probe
        | Action::Kubeconfig(_)
        | Action::Health
        | Action::Gate(_)
        | Action::Budgets { .. }
        | Action::Quorum(_)
        | Action::Members
        | Action::Versions { .. }
        | Action::ApiServers
        | Action::SaveSnapshot
        | Action::KeepSnapshots
        | Action::BringSnapshot { .. }
        | Action::DrillSnapshot { .. }
        | Action::Token { .. }
        | Action::Certificates
        | Action::Cordon { lets_in: true } => Vec::new(),
        // Its hosts are those that are asked.
        Action::TakeOut(change) => vec![change.host],
        Action::AnsiblePlay(_)
        | Action::Drain { .. }
        | Action::Cordon { lets_in: false }
        | Action::ForgetNodes { .. }
        | Action::Hook { .. } => action::hosts_of(plan, step),
    }
}
