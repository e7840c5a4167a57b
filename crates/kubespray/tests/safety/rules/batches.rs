//! Nodes that lose their pods.

use std::collections::BTreeSet;

use api::{Threshold, node::Role};
use kubespray::action::{self, QUORUM, QUORUM_AGAIN, SNAPSHOT};

use super::Starting;
use crate::drains;

/// Where nodes lose their pods: control planes first and, as members of etcd, alone; no more workers at a time than the spec lets go; a
/// person is asked once, when the canaries are done and others are left; and before all of it etcd is saved and, where its play is one
/// of all members, asked.
pub fn batches(starting: &Starting<'_>) {
    let (inputs, plan) = (&starting.inputs, starting.plan());
    let operations = starting.world.cluster.spec.operations.clone();
    let operations = operations.unwrap_or_default();
    let settings = match starting.name() {
        "Upgrade" => operations.upgrade,
        "Component" => operations.component,
        other => {
            let goes = plan.steps.iter().find(|step| drains(plan, step));
            assert!(
                goes.is_none(),
                "operation {other} has batches: say in `rules/batches.rs` which settings they keep to"
            );
            return;
        }
    };
    let settings = settings.unwrap_or_default();
    let with = |role: Role| {
        let hosts = inputs.hosts.iter();
        let hosts = hosts.filter(move |host| host.roles.contains(&role));
        hosts.map(|host| host.name.clone()).collect::<BTreeSet<_>>()
    };
    let planes = with(Role::ControlPlane);
    let alone: BTreeSet<_> = planes.union(&with(Role::Etcd)).cloned().collect();
    let of_nodes = inputs.members();
    let workers = of_nodes
        .iter()
        .filter(|host| !alone.contains(host.as_str()));
    let workers = workers.count();
    let most = match settings.max_unavailable.unwrap_or(Threshold::Count(1)) {
        Threshold::Count(count) => usize::try_from(count).unwrap(),
        Threshold::Percent(percent) => workers * usize::from(percent) / 100,
    };
    let place = |id: &str| plan.steps.iter().position(|step| step.id == id);
    let (mut gone, mut canaries, mut asked) = (0, None, 0);
    let mut worker_went = false;
    for (at, step) in plan.steps.iter().enumerate() {
        if step.id == "approve/canary" {
            (canaries, asked) = (Some(gone), asked + 1);
        }
        if !drains(plan, step) {
            continue;
        }
        let hosts = action::hosts_of(plan, step);
        let single = hosts.iter().any(|host| alone.contains(host.as_str()));
        assert!(!single || hosts.len() == 1, "{}: {hosts:?}", step.id);
        assert!(hosts.len() <= most.max(1), "{}: {hosts:?}, {most}", step.id);
        let is_plane = hosts.iter().any(|host| planes.contains(host.as_str()));
        assert!(!is_plane || !worker_went, "{}: workers before it", step.id);
        worker_went |= !is_plane;
        gone += hosts.len() * usize::from(!single);
        assert!(
            place(SNAPSHOT).is_some_and(|saved| saved < at),
            "{}: nothing is saved",
            step.id
        );
    }
    let canary = usize::from(settings.canary.unwrap_or_default());
    let asks = gone > 0 && canary > 0 && canary < workers;
    assert_eq!(asked, usize::from(asks), "{canary} of {workers}");
    assert_eq!(canaries, asks.then_some(canary));
    if gone > 0 {
        assert_eq!(gone, workers, "somebody is left out");
    }
    if let Some(etcd) = place("etcd/install") {
        let before = etcd.checked_sub(1).and_then(|at| plan.steps.get(at));
        assert_eq!(before.map(|step| step.id.as_str()), Some(QUORUM_AGAIN));
        assert!(place(QUORUM) < place(SNAPSHOT) && place(SNAPSHOT) < Some(etcd));
    }
}
