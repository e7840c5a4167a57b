//! Steps that take hosts out of a cluster, and leave those alone that stay. Pure.
//!
//! kubespray documents that as `remove-node.yml`, which drains as well; here the pods go first, in a step that knows what they wait
//! for. What its plays need done in the cluster they delegate to the first control plane.

use ansible::{inventory::Inventory, slice::Playbook};
use api::{
    Duration, HostName,
    run::{Gate, OnBreach, Step},
};

use super::{LOOK_TIMEOUT, PROBE_TIMEOUT, Placed, gate, limit, pattern, play, retry, step};
use crate::{
    action::{Action, BUDGETS, DRAIN, LEAVING},
    cluster::resolve::Conduct,
    problem::Problem,
};

/// The steps before the first play: which hosts answer, which budgets would hold pods, and the pods go.
pub(crate) fn draining(
    conduct: &Conduct,
    timeout: Duration,
    leaving: &[HostName],
    forced: &[HostName],
) -> [Placed; 3] {
    let probe = Step {
        timeout: Some(PROBE_TIMEOUT),
        // A host that does not answer leaves all the same.
        gate: Some(Gate {
            on_breach: OnBreach::Exclude,
            ..gate(conduct)
        }),
        ..step(
            LEAVING,
            "Ask the hosts that leave whether they answer",
            Action::Probe,
        )
    };
    let forced = forced.to_vec();
    let drain = Action::Drain {
        forced: forced.clone(),
    };
    let drain = Step {
        timeout: Some(timeout),
        weight: Some(60),
        ..step(DRAIN, "Have the pods go elsewhere", drain)
    };
    let budgets = Step {
        timeout: Some(LOOK_TIMEOUT),
        ..step(
            BUDGETS,
            "Ask which pods cannot go elsewhere",
            Action::Budgets { forced },
        )
    };
    [probe, budgets, drain].map(|step| Placed {
        step: Step {
            weight: step.weight.or(Some(2)),
            retry: retry(conduct),
            ..step
        },
        hosts: leaving.to_vec(),
    })
}

/// A step on the nodes of these hosts.
pub(crate) fn of_nodes(
    conduct: &Conduct,
    id: &str,
    title: &str,
    action: Action,
    hosts: &[HostName],
) -> Placed {
    Placed {
        step: Step {
            timeout: Some(LOOK_TIMEOUT),
            weight: Some(2),
            retry: retry(conduct),
            ..step(id, title, action)
        },
        hosts: hosts.to_vec(),
    }
}

/// A step for each play that works on a host that leaves, bound to those.
pub(crate) fn leaving(
    playbook: &Playbook,
    conduct: &Conduct,
    inventory: &Inventory,
    leaving: &[HostName],
    steps: &mut Vec<Placed>,
) -> Result<(), Problem> {
    for slice in playbook.slices() {
        let targets = slice
            .targets(inventory)
            .map_err(|error| pattern(playbook, &slice.id, &error))?;
        let mut hosts = targets.hosts;
        hosts.retain(|host| leaving.contains(host));
        if hosts.is_empty() {
            continue;
        }
        let mut placed = play(playbook, slice, conduct, hosts);
        limit(&mut placed.step, "leaving");
        // A host that goes silent meanwhile leaves all the same.
        placed.step.gate = Some(Gate {
            on_breach: OnBreach::Exclude,
            ..gate(conduct)
        });
        steps.push(placed);
    }
    Ok(())
}
