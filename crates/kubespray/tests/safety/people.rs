//! What people do, and what happens to hosts.

use api::run::RunPhase;
use kubespray::request::{CONVERGE, FORCE_REMOVAL, MAINTAIN, START_AGAIN};
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
    Version(usize),
    Release(bool),
    Variable(u8),
    /// How many workers of an upgrade go at a time, and how many before a person is asked.
    Batches(u8, u8),
    Converge,
    /// A component is to be upgraded: container engine, etcd or network plugin.
    Component(u8),
    StartAgain,
    Retry,
    Cancel,
    Window(Option<u8>),
    Maintain,
    /// All members of etcd are given up but that one, if not from a snapshot.
    Recover(usize, bool),
    Wait(u8),
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
        Event::Converge => world.annotate(CONVERGE),
        Event::Component(which) => world.component(*which),
        Event::StartAgain => world.annotate(START_AGAIN),
        Event::Maintain => world.annotate(MAINTAIN),
        Event::Recover(at, snapshot) => world.recover(*at, *snapshot),
        Event::Retry => finish(world, RunPhase::Failed, RunPhase::Succeeded),
        Event::Cancel => finish(world, RunPhase::Failed, RunPhase::Cancelled),
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
    }
}

/// A person takes a failed run up again, or gives it up.
fn finish(world: &mut World, from: RunPhase, to: RunPhase) {
    let Some(run) = world.observed.runs.last().cloned() else {
        return;
    };
    if runs::phase(&run) != from {
        return;
    }
    // Etcd says no once more.
    if to == RunPhase::Succeeded && rules::stops(world, &run).is_some() {
        return;
    }
    if to == RunPhase::Succeeded {
        world.reality = effect(&world.reality, &run, run.spec.plan.steps.len());
    }
    world.phase(to);
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
        1 => Just(Event::Revive),
        2 => (0..6usize).prop_map(Event::Version),
        1 => any::<bool>().prop_map(Event::Release),
        1 => (0..3u8).prop_map(Event::Variable),
        2 => (0..4u8, 0..4u8).prop_map(|(many, canary)| Event::Batches(many, canary)),
        2 => Just(Event::Converge),
        2 => (0..3_u8).prop_map(Event::Component),
        1 => Just(Event::StartAgain),
        2 => Just(Event::Retry),
        1 => Just(Event::Cancel),
        2 => proptest::option::of(0..6u8).prop_map(Event::Window),
        1 => Just(Event::Maintain),
        2 => (0..5usize, any::<bool>()).prop_map(|(at, snapshot)| Event::Recover(at, snapshot)),
        1 => (0..200u8).prop_map(Event::Wait),
    ]
}
