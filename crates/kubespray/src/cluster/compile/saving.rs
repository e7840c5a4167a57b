//! Steps that save, bring back and drill snapshots of etcd that are kept outside of the cluster. Pure.

use api::{
    Duration, HostName,
    run::{Interrupt, OnFailure, Step},
};
use snapshots::Name;

use super::{Placed, retry, step};
use crate::{
    action::{Action, BRING_SNAPSHOT, DRILL_SNAPSHOT, KEEP_SNAPSHOTS, SAVE_SNAPSHOT},
    cluster::resolve::Conduct,
    inputs::Inputs,
};

/// How long a snapshot may take on its way: etcd's own bound is 8 GiB.
const TIMEOUT: Duration = Duration::from_seconds(7200);
/// How long the store may take to be looked through.
const LOOK_TIMEOUT: Duration = Duration::from_seconds(1800);

/// The steps that save a snapshot of the first member that can, and let go of those that are kept no longer.
pub(crate) fn saving(conduct: &Conduct, inputs: &Inputs) -> Vec<Placed> {
    saved(conduct, inputs.group("etcd")).into()
}

fn saved(conduct: &Conduct, members: &[HostName]) -> [Placed; 2] {
    let title = "Save a snapshot of etcd in the store, and read it back";
    let action = Action::SaveSnapshot;
    let save = placed(conduct, (SAVE_SNAPSHOT, title), action, members);
    let title = "Let go of the snapshots that are kept no longer";
    let mut keep = placed(conduct, (KEEP_SNAPSHOTS, title), Action::KeepSnapshots, &[]);
    keep.step.timeout = Some(LOOK_TIMEOUT);
    keep.step.weight = Some(2);
    [save, keep]
}

/// The step that saves one before an operation puts etcd at risk, where the plan has a store: of the first of these members that can. It
/// holds the operation up when it fails; to note what lies there never does. None is let go of where the store has room: several operations in a
/// day would push out what the schedule keeps for weeks.
pub(crate) fn saving_first(
    conduct: &Conduct,
    inputs: &Inputs,
    members: &[HostName],
) -> Vec<Placed> {
    if inputs.snapshots.is_none() {
        return Vec::new();
    }
    let [save, mut keep] = saved(conduct, members);
    keep.step.on_failure = Some(OnFailure::Ignore);
    "Note what lies in the store".clone_into(&mut keep.step.title);
    vec![save, keep]
}

/// The step that drills a snapshot on the first host that can.
pub(crate) fn drilling(conduct: &Conduct, inputs: &Inputs, name: &Name) -> Vec<Placed> {
    let title = format!("Start snapshot {name} in a throw-away etcd");
    let action = Action::DrillSnapshot { name: name.clone() };
    let hosts = inputs.group("etcd");
    vec![placed(conduct, (DRILL_SNAPSHOT, &title), action, hosts)]
}

/// The step that brings a snapshot from the store to a host.
pub(super) fn bringing(
    conduct: &Conduct,
    (name, directory): (&Name, &str),
    host: &HostName,
) -> Placed {
    let title = format!("Bring snapshot {name} from the store to {host}");
    let action = Action::BringSnapshot {
        name: name.clone(),
        directory: directory.to_owned(),
    };
    let hosts = std::slice::from_ref(host);
    placed(conduct, (BRING_SNAPSHOT, &title), action, hosts)
}

fn placed(
    conduct: &Conduct,
    (id, title): (&str, &str),
    action: Action,
    hosts: &[HostName],
) -> Placed {
    Placed {
        step: Step {
            timeout: Some(TIMEOUT),
            retry: retry(conduct),
            weight: Some(10),
            interrupt: Interrupt::AtTask,
            ..step(id, title, action)
        },
        hosts: hosts.to_vec(),
    }
}
