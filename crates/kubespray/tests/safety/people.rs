//! What people do, and what happens to hosts.

use api::run::RunPhase;
use kube::ResourceExt;
use kubespray::{
    cluster::decision::outdated,
    operation::asked,
    request::{FORCE_REMOVAL, MAINTAIN, START_AGAIN},
};
use proptest::prelude::*;
use serde_json::json;

use crate::{
    effect::effect,
    rules,
    world::{Kind, World},
};

/// What people do, and what happens to hosts.
#[derive(Clone, Debug)]
pub enum Event {
    Declare(Kind),
    Delete(usize),
    Keep(usize),
    Force(usize),
    Die(usize),
    Revive,
    /// A host is replaced, by a new one or by one that there is.
    Replace(usize, Option<usize>),
    /// The operator sees who is switched off.
    See,
    /// Somebody wants a host reset, whatever it is.
    ResetHost(usize),
    /// A host is declared that had an earlier life, which is to be removed from it first.
    Used(Kind),
    Version(usize),
    Release(bool),
    Variable(u8),
    /// How many workers of an upgrade go at a time, and how many before a person is asked.
    Batches(u8, u8),
    /// An operation is asked for by its annotation: which one, and what of what may be said of it.
    Ask(usize, usize),
    StartAgain,
    Retry,
    Cancel,
    Window(Option<u8>),
    Maintain,
    /// There is a store of snapshots, and a schedule for them, or none.
    Store(Option<bool>),
    /// The operator sees the certificates of the control planes, which end in so many days.
    Certificates(u8),
    Wait(u8),
    /// The Cluster is deleted, and its hosts are to be reset by it.
    End(bool),
}

pub fn happen(world: &mut World, event: &Event) {
    match event {
        Event::Declare(kind) => world.declare(*kind),
        Event::Delete(at) => world.delete(*at),
        Event::Keep(at) => world.keep(*at),
        Event::Force(at) => {
            if let Some(node) = world.node(*at) {
                let annotations = node.metadata.annotations.get_or_insert_default();
                annotations.insert(FORCE_REMOVAL.to_owned(), "true".to_owned());
            }
        }
        Event::Die(at) => {
            let hosts: Vec<_> = world.reality.hosts.keys().cloned().collect();
            let host = at.checked_rem(hosts.len()).and_then(|at| hosts.get(at));
            world.dead.extend(host.cloned());
        }
        Event::Revive => world.dead.clear(),
        Event::Replace(at, by) => world.replace(*at, *by),
        Event::See => world.see(),
        Event::ResetHost(at) => world.reset(*at),
        Event::Used(kind) => {
            world.declare(*kind);
            world.reset(world.observed.nodes.len() - 1);
        }
        Event::Version(at) => {
            let versions = world.versions();
            let version = versions[at % versions.len()];
            world.spec(&json!({"kubernetesVersion": version}));
        }
        Event::Release(other) => {
            let mut kubespray = serde_json::to_value(&world.cluster.spec.kubespray).unwrap();
            kubespray["version"] = if *other { json!("2.30.0") } else { json!(null) };
            world.spec(&json!({"kubespray": kubespray}));
        }
        Event::Variable(value) => {
            let variables = json!({
                "node_labels": {"a": value.to_string()}, "etcd_snapshot_count": 1000 + u32::from(*value),
            });
            world.spec(&json!({"nodes": {"all": {"deploy": {"extraVars": variables}}}}));
        }
        Event::Batches(many, canary) => {
            let many =
                [json!(1), json!(3), json!("50%"), json!("100%")][usize::from(many % 4)].clone();
            let settings = json!({"maxUnavailable": many, "canary": canary});
            world.spec(&json!({"operations": {"upgrade": settings, "component": settings}}));
        }
        Event::Ask(which, how) => world.ask(*which, *how),
        Event::StartAgain => world.annotate(START_AGAIN),
        Event::Maintain => world.annotate(MAINTAIN),
        Event::Store(None) => world.spec(&json!({"etcd": null})),
        Event::Store(Some(scheduled)) => {
            let schedule = scheduled.then_some("0 3 * * *");
            let snapshots = json!({"store": {"directory": "/srv/snapshots"}, "schedule": schedule});
            world.spec(&json!({"etcd": {"snapshots": snapshots}}));
        }
        Event::Certificates(days) => world.certificates(i64::from(*days)),
        Event::Retry => finish(world, RunPhase::Succeeded),
        Event::Cancel => finish(world, RunPhase::Cancelled),
        Event::Window(None) => world.spec(&json!({"maintenance": null})),
        Event::Window(Some(what)) => {
            let confine = ["Disruptive", "All", "None"][usize::from(what % 3)];
            let windows = [
                json!({"schedule": "0 22 * * 6", "duration": "4h", "timeZone": "Europe/Berlin"}),
                json!({"schedule": "0 11 * * 1", "duration": "3h"}),
            ];
            let windows = &windows[..=usize::from(what % 2)];
            world.spec(&json!({"maintenance": {"windows": windows, "confine": confine}}));
        }
        Event::Wait(hours) => world.wait(i64::from(*hours)),
        Event::End(reset) => world.end(if *reset { "Reset" } else { "Retain" }),
    }
}

/// A person takes the newest run up again that failed and can be, or gives it up.
fn finish(world: &mut World, to: RunPhase) {
    let runs = &world.observed.runs;
    let mut failed = runs.iter().rev();
    let failed = failed.find(|run| runs::phase(run) == RunPhase::Failed);
    let failed = failed.filter(|run| outdated(runs, run).is_none());
    let Some(run) = failed.cloned() else {
        return;
    };
    // Etcd says no once more.
    if to == RunPhase::Succeeded && rules::stops(world, &run).is_some() {
        return;
    }
    let steps = run.spec.plan.steps.len();
    if to == RunPhase::Succeeded {
        world.reality = effect(&world.reality, &run, steps);
        world.came(&run.name_any(), steps, to);
    }
    world.phase(&run.name_any(), to);
    world.let_go();
}

pub fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        3 => Just(Kind::Worker),
        2 => Just(Kind::Master),
        1 => Just(Kind::All),
        1 => Just(Kind::Plane),
        1 => Just(Kind::Etcd),
        1 => Just(Kind::Store),
    ]
}

pub fn event() -> impl Strategy<Value = Event> {
    let at = 0..12usize;
    prop_oneof![
        4 => kind().prop_map(Event::Declare),
        6 => at.clone().prop_map(Event::Delete),
        2 => at.clone().prop_map(Event::Keep),
        1 => at.clone().prop_map(Event::Force),
        2 => at.clone().prop_map(Event::Die),
        4 => (at, proptest::option::weighted(0.3, 0..12usize)).prop_map(|(at, by)| Event::Replace(at, by)),
        1 => Just(Event::See),
        1 => (0..12usize).prop_map(Event::ResetHost),
        1 => kind().prop_map(Event::Used),
        1 => Just(Event::Revive),
        2 => (0..6usize).prop_map(Event::Version),
        1 => any::<bool>().prop_map(Event::Release),
        1 => (0..3u8).prop_map(Event::Variable),
        2 => (0..4u8, 0..4u8).prop_map(|(many, canary)| Event::Batches(many, canary)),
        9 => (0..asked::all().count(), any::<u16>()).prop_map(|(which, how)| Event::Ask(which, usize::from(how))),
        1 => Just(Event::StartAgain),
        2 => Just(Event::Retry),
        1 => Just(Event::Cancel),
        2 => proptest::option::of(0..6u8).prop_map(Event::Window),
        1 => Just(Event::Maintain),
        3 => proptest::option::weighted(0.9, any::<bool>()).prop_map(Event::Store),
        1 => (0..60u8).prop_map(Event::Certificates),
        1 => (0..200u8).prop_map(Event::Wait),
        1 => any::<bool>().prop_map(Event::End),
    ]
}
