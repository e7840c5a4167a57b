//! Steps that run a playbook of Windlass' own. Pure.

use api::{HostName, run::Step};

use super::{Placed, gate, retry, step};
use crate::{
    action::{Action, AnsiblePlay, SNAPSHOT},
    cluster::resolve::Conduct,
    inputs::Inputs,
    playbooks::Own,
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

/// The step that saves a snapshot of etcd on the first of its hosts.
pub(crate) fn snapshot(conduct: &Conduct, inputs: &Inputs) -> Placed {
    let first = inputs.group("etcd").iter().take(1).cloned().collect();
    let words = (SNAPSHOT, "Save a snapshot of etcd");
    own(Own::EtcdSnapshot, conduct, words, first)
}
