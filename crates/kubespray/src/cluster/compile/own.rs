//! Steps that run a playbook of Windlass' own. Pure.

use api::{HostName, run::Step};

use super::{
    Placed, gate,
    planes::{ETCD, PLANES},
    retry, step,
};
use crate::{
    action::{AUTHORITIES, Action, AnsiblePlay, SNAPSHOT},
    cluster::resolve::{Conduct, Resolved},
    inputs::Inputs,
    playbooks::Own,
    problem::Problem,
};

/// A step that runs a playbook of Windlass' own on these hosts alone, in a process of its own.
pub(crate) fn own(
    own: Own,
    conduct: &Conduct,
    (id, title): (&str, &str),
    hosts: Vec<HostName>,
) -> Placed {
    let play = Action::AnsiblePlay(AnsiblePlay {
        playbook: own.name().to_owned(),
        // Each has one.
        play: 0,
        limited: true,
        own: Some(own.digest()),
        left: false,
    });
    Placed {
        step: Step {
            retry: retry(conduct),
            gate: Some(gate(conduct)),
            batch: Some(format!("{}/{id}", own.name())),
            weight: Some(10),
            ..step(id, title, play)
        },
        hosts,
    }
}

/// Puts the step that brings the authorities of a new cluster before the first play that makes certificates.
///
/// # Errors
///
/// The playbooks have no play that is known to be the first one.
pub(super) fn bring_authorities(
    resolved: &Resolved,
    steps: &mut Vec<Placed>,
) -> Result<(), Problem> {
    let Some(reference) = &resolved.creation.authorities else {
        return Ok(());
    };
    let first = steps
        .iter()
        .position(|placed| makes_certificates(&placed.step));
    let first = first.ok_or_else(|| {
        Problem::new(
            "Cluster spec.operations.creation.authoritiesSecretRef",
            &reference.name,
            "the playbooks have no play of kubespray's that makes the first certificate",
            "use playbooks whose plays install etcd and control planes as those of kubespray do, or take the field out",
        )
    })?;
    let inputs = &resolved.inputs;
    let heads = ["kube_control_plane", "etcd"].map(|group| inputs.group(group).first());
    let mut hosts: Vec<_> = heads.into_iter().flatten().cloned().collect();
    hosts.dedup();
    let words = (AUTHORITIES, "Bring the authorities of the cluster");
    let step = own(Own::Authorities, &resolved.creation.conduct, words, hosts);
    steps.insert(first, step);
    Ok(())
}

fn makes_certificates(step: &Step) -> bool {
    [ETCD, PLANES].contains(&step.id.as_str())
}

/// The step that saves a snapshot of etcd on the first of its hosts.
pub(crate) fn snapshot(conduct: &Conduct, inputs: &Inputs) -> Placed {
    let first = inputs.group("etcd").iter().take(1).cloned().collect();
    let words = (SNAPSHOT, "Save a snapshot of etcd");
    own(Own::EtcdSnapshot, conduct, words, first)
}
