//! What people do, what becomes of runs, and what is looked at between.

use api::{Run, run::RunPhase};
use kubespray::{
    cluster::decision::{Decision, NewRun},
    request::{CONVERGE, FORCE_REMOVAL, MAINTAIN, START_AGAIN},
};
use lab::Extent;
use proptest::prelude::*;
use serde_json::json;

use crate::{
    effect, rules,
    world::{Kind, World},
};

/// How many runs may follow from one thing that people do: as many as there are hosts, and some to spare.
const MOST_RUNS: usize = 24;

/// What people do, and what happens to hosts.
#[derive(Clone, Debug)]
pub enum Event {
    Declare(Kind),
    Delete(usize),
    Keep(usize),
    Force(usize),
    Die(usize),
    Revive,
    Version(usize),
    Release(bool),
    Variable(u8),
    Converge,
    StartAgain,
    Retry,
    Cancel,
    Window(Option<u8>),
    Maintain,
    Wait(u8),
}

/// What becomes of a run.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    Succeeds,
    /// After so many of its steps, in parts of 255.
    Fails(u8),
    Cancelled(u8),
    /// After so many steps, whatever else might have become of it.
    Stops(usize),
}

fn happen(world: &mut World, event: &Event) {
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
            let variables = json!({"node_labels": {"a": value.to_string()}});
            world.spec(&json!({"nodes": {"all": {"deploy": {"extraVars": variables}}}}));
        }
        Event::Converge => world.annotate(CONVERGE),
        Event::StartAgain => world.annotate(START_AGAIN),
        Event::Maintain => world.annotate(MAINTAIN),
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

/// Decides and carries out until nothing starts by itself.
fn rest(world: &mut World, fates: &mut impl Iterator<Item = Fate>) {
    for _ in 0..MOST_RUNS {
        let planned = world.pass();
        match planned.decision {
            Decision::Start(ref new) => {
                let run = stored(world, new);
                rules::of_start(world, &planned, new, &run);
                carried_out(world, new, &run, fates.next().unwrap_or(Fate::Succeeds));
            }
            Decision::Supersede(..) | Decision::Cancel(_) => {
                world.phase(RunPhase::Superseded);
            }
            _ => {
                rules::of_rest(world, &planned);
                // It stays so.
                let again = world.pass();
                assert!(
                    !matches!(again.decision, Decision::Start(_)),
                    "it does not rest"
                );
                assert_eq!(again.pending, planned.pending);
                return;
            }
        }
    }
    let runs: Vec<_> = world
        .observed
        .runs
        .iter()
        .map(|run| &run.metadata.name)
        .collect();
    panic!("it does not come to rest: {runs:?}");
}

fn stored(world: &World, new: &NewRun) -> Run {
    let operation = new.operation.name;
    let name = new.name.clone();
    runs::object::of(
        &world.cluster,
        name,
        operation,
        new.generation,
        new.plan.clone(),
    )
}

fn carried_out(world: &mut World, new: &NewRun, run: &Run, fate: Fate) {
    world.store(new);
    // While it is at work, nothing else begins.
    let meanwhile = world.pass();
    assert!(
        matches!(
            &meanwhile.decision,
            Decision::Maintain(..) | Decision::Follow(_)
        ),
        "{} is at work: {:?}",
        new.name,
        meanwhile.decision
    );
    let all = run.spec.plan.steps.len();
    let part = |of: u8| all * usize::from(of) / 256;
    let fate = rules::stops(world, run).map_or(fate, Fate::Stops);
    let (steps, phase) = match fate {
        Fate::Stops(at) => (at, RunPhase::Failed),
        Fate::Succeeds => (all, RunPhase::Succeeded),
        Fate::Fails(of) => (part(of), RunPhase::Failed),
        Fate::Cancelled(of) => (part(of), RunPhase::Cancelled),
    };
    world.reality = effect(&world.reality, run, steps);
    world.phase(phase);
    world.let_go();
}

/// A cluster of these hosts, if one can be built of them.
fn built(kinds: &[Kind]) -> Option<World> {
    let mut world = World::new(kinds);
    rest(&mut world, &mut std::iter::empty());
    (!world.reality.hosts.is_empty()).then_some(world)
}

fn told(kinds: &[Kind], events: &[Event], fates: &[Fate]) {
    let Some(mut world) = built(kinds) else {
        return;
    };
    let mut fates = fates.iter().copied().cycle();
    for event in events {
        happen(&mut world, event);
        rest(&mut world, &mut fates);
    }
    // Whatever failed is taken up again, and every window opens: then it rests for good.
    happen(&mut world, &Event::Window(None));
    happen(&mut world, &Event::Retry);
    rest(&mut world, &mut std::iter::empty());
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        3 => Just(Kind::Worker),
        2 => Just(Kind::Master),
        1 => Just(Kind::All),
        1 => Just(Kind::Plane),
        1 => Just(Kind::Etcd),
    ]
}

/// Most can be built: an odd number of members, and a control plane.
fn hosts() -> impl Strategy<Value = Vec<Kind>> {
    let masters = prop_oneof![Just(1usize), Just(3), Just(5)];
    let plain = (masters, 0..7usize, any::<bool>()).prop_map(|(masters, workers, all)| {
        let first = if all { Kind::All } else { Kind::Master };
        let mut kinds = vec![first; masters];
        kinds.extend(std::iter::repeat_n(Kind::Worker, workers));
        kinds
    });
    prop_oneof![
        4 => plain,
        1 => proptest::collection::vec(kind(), 1..=12),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let at = 0..12usize;
    prop_oneof![
        4 => kind().prop_map(Event::Declare),
        6 => at.clone().prop_map(Event::Delete),
        2 => at.clone().prop_map(Event::Keep),
        1 => at.clone().prop_map(Event::Force),
        2 => at.prop_map(Event::Die),
        1 => Just(Event::Revive),
        2 => (0..6usize).prop_map(Event::Version),
        1 => any::<bool>().prop_map(Event::Release),
        1 => (0..3u8).prop_map(Event::Variable),
        2 => Just(Event::Converge),
        1 => Just(Event::StartAgain),
        2 => Just(Event::Retry),
        1 => Just(Event::Cancel),
        2 => proptest::option::of(0..6u8).prop_map(Event::Window),
        1 => Just(Event::Maintain),
        1 => (0..200u8).prop_map(Event::Wait),
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Succeeds),
        1 => any::<u8>().prop_map(Fate::Fails),
        1 => any::<u8>().prop_map(Fate::Cancelled),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(Extent::of_this_run().stories()) })]

    #[test]
    fn no_story_ends_badly(
        kinds in hosts(),
        events in proptest::collection::vec(event(), 1..6),
        fates in proptest::collection::vec(fate(), 1..4),
    ) {
        told(&kinds, &events, &fates);
    }
}

/// Each way to choose so many of these, without regard to their order.
fn chosen(many: usize, kinds: &[Kind]) -> Vec<Vec<Kind>> {
    let Some((first, rest)) = kinds.split_first() else {
        return if many == 0 {
            vec![Vec::new()]
        } else {
            Vec::new()
        };
    };
    let mut all = chosen(many, rest);
    if many > 0 {
        all.extend(chosen(many - 1, kinds).into_iter().map(|mut kinds| {
            kinds.insert(0, *first);
            kinds
        }));
    }
    all
}

/// Every cluster of up to five hosts, each pair of whose hosts is deleted, with each of them switched off before, while each kind
/// of host is declared.
#[test]
fn up_to_five_hosts_every_way_is_safe() {
    let mut told = 0;
    for many in 1..=5 {
        for kinds in chosen(many, &Kind::ALL) {
            let Some(world) = built(&kinds) else {
                continue;
            };
            for (one, other) in (0..many).flat_map(|one| (one..many).map(move |other| (one, other)))
            {
                for new in [
                    None,
                    Some(Kind::Worker),
                    Some(Kind::Master),
                    Some(Kind::Etcd),
                ] {
                    let mut world = world.clone();
                    world
                        .dead
                        .extend(world.reality.hosts.keys().nth(other).cloned());
                    // Both at once: what was deleted later does not wait for what was deleted first.
                    for event in [Event::Delete(other), Event::Delete(one)] {
                        happen(&mut world, &event);
                    }
                    if let Some(kind) = new {
                        world.declare(kind);
                    }
                    rest(&mut world, &mut std::iter::empty());
                    told += 1;
                }
            }
        }
    }
    assert!(told > 1_000, "{told}");
}
