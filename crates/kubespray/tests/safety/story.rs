//! What people do, what becomes of runs, and what is looked at between.

use api::{Run, node::Role, run::RunPhase};
use kubespray::{
    cluster::decision::{Decision, NewRun},
    request::{CONVERGE, FORCE_REMOVAL, MAINTAIN, START_AGAIN},
};
use lab::Extent;
use proptest::prelude::*;
use serde_json::json;

use crate::{
    drains, effect, rules,
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
    let plan = &run.spec.plan;
    let failed = plan.steps.get(steps);
    if let Some(step) = failed.filter(|step| phase == RunPhase::Failed && drains(plan, step)) {
        let hosts = plan.targets(step).map(ToString::to_string);
        world.reality.drained.extend(hosts);
    }
    if ["Component", "Recover", "Upgrade"].contains(&new.operation.name) {
        world.came(steps, phase);
    }
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
        1 => Just(Kind::Store),
    ]
}

/// Most can be built: an odd number of members, and a control plane.
fn hosts() -> impl Strategy<Value = Vec<Kind>> {
    let masters = prop_oneof![Just(1usize), Just(3), Just(5)];
    let firsts = prop_oneof![
        Just(vec![Kind::Master]),
        Just(vec![Kind::All]),
        Just(vec![Kind::Plane, Kind::Store])
    ];
    let plain = (masters, 0..7usize, firsts).prop_map(|(masters, workers, firsts)| {
        let mut kinds = firsts.repeat(masters);
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

/// Every cluster of up to four hosts (in a full run five), each set of whose members is switched off, and each member of which is to be all that is left
/// of etcd: it is where the quorum is lost and it answers, and nowhere else.
#[test]
fn members_are_given_up_only_where_the_quorum_is_lost() {
    let (mut recovered, mut refused) = (0, 0);
    let most = match Extent::of_this_run() {
        Extent::Usual => 4,
        Extent::Full => 5,
    };
    for many in 1..=most {
        for kinds in chosen(many, &Kind::ALL) {
            let Some(world) = built(&kinds) else {
                continue;
            };
            let members = world.reality.order["etcd"].clone();
            let planes = world.reality.with(Role::ControlPlane);
            for (set, stays) in (0..1_usize << members.len())
                .flat_map(|set| (0..members.len()).map(move |stays| (set, stays)))
            {
                let mut world = world.clone();
                let dead = members.iter().enumerate();
                let dead = dead.filter(|(at, _)| set >> at & 1 == 1);
                world.dead = dead.map(|(_, name)| name.clone()).collect();
                let lost = world.dead.len() * 2 >= members.len();
                let given_up = |name: &String| members.contains(name) && *name != members[stays];
                let mut left = planes.iter().filter(|name| !given_up(name));
                let head = left.next().cloned();
                let answers = |name: &String| !world.dead.contains(name);
                let can = answers(&members[stays]) && head.as_ref().is_some_and(answers);
                happen(&mut world, &Event::Recover(stays, true));
                // Whatever fails stops the run: what follows a success is looked at elsewhere.
                let planned = world.pass();
                let Decision::Start(new) = &planned.decision else {
                    assert!(
                        head.is_none(),
                        "{kinds:?} {set} {stays}: {:?}",
                        planned.decision
                    );
                    continue;
                };
                let run = stored(&world, new);
                rules::of_start(&world, &planned, new, &run);
                carried_out(&mut world, new, &run, Fate::Succeeds);
                let is: Vec<_> = world.reality.with(Role::Etcd).into_iter().collect();
                if lost && can {
                    assert_eq!(is, [members[stays].clone()], "{kinds:?} {set}");
                    recovered += 1;
                } else {
                    assert_eq!(is.len(), members.len(), "{kinds:?} {set} {stays}");
                    refused += 1;
                }
            }
        }
    }
    assert!(recovered > 20 && refused > 20, "{recovered} {refused}");
}

/// Every cluster of up to four hosts (in a full run five), each host of which is replaced by a new one, while one of them, which the
/// operator knows or does not, is switched off: where all answer, the new one is there in the end and the old one is gone, and
/// another host is first if it was.
#[test]
fn any_host_is_replaced_and_nobody_loses_a_quorum_by_it() {
    let (mut replaced, mut first) = (0, 0);
    let most = match Extent::of_this_run() {
        Extent::Usual => 4,
        Extent::Full => 5,
    };
    for many in 1..=most {
        for kinds in chosen(many, &Kind::ALL) {
            let Some(built) = built(&kinds) else {
                continue;
            };
            let names: Vec<_> = built.reality.hosts.keys().cloned().collect();
            for (old, dead, seen) in (0..many)
                .flat_map(|old| (0..=many).map(move |dead| (old, dead)))
                .flat_map(|(old, dead)| [(old, dead, true), (old, dead, false)])
            {
                let mut world = built.clone();
                world.dead.extend(names.get(dead).cloned());
                if seen {
                    happen(&mut world, &Event::See);
                }
                happen(&mut world, &Event::Replace(old, None));
                rest(&mut world, &mut std::iter::empty());
                let was = &built.reality.hosts[&names[old]];
                let gone = !world.reality.hosts.contains_key(&names[old]);
                let all = world.reality.hosts.len() == many;
                let newcomer = world
                    .reality
                    .hosts
                    .iter()
                    .find(|(name, _)| !names.contains(name));
                if dead == many {
                    assert!(gone && all, "{kinds:?} {old}: {:?}", world.reality);
                    assert_eq!(newcomer.map(|(_, roles)| roles), Some(was));
                    replaced += 1;
                } else if dead == old && seen && world.dead.len() < many {
                    // It leaves first, where the cluster can do without it.
                    let alone =
                        |role: Role| was.contains(&role) && built.reality.with(role).len() == 1;
                    let needed = [Role::ControlPlane, Role::Etcd, Role::Worker]
                        .into_iter()
                        .any(alone);
                    let keeps = built.reality.with(Role::Etcd).len() != 2;
                    assert!(
                        gone || needed || !keeps,
                        "{kinds:?} {old}: {:?}",
                        world.reality
                    );
                }
                let heads = ["etcd", "kube_control_plane"];
                for head in heads.map(|group| world.reality.order[group].first().unwrap()) {
                    assert!(world.reality.hosts.contains_key(head), "{head} is first");
                    first += usize::from(gone && *head != names[0]);
                }
            }
        }
    }
    assert!(replaced > 100 && first > 20, "{replaced} {first}");
}

/// Of three control planes the second was reset by a removal that was cancelled, and kept too late: it is next in order, and has nothing of
/// what the first one needs. The run that is to put it first proves that, and the order stays.
#[test]
fn a_host_that_was_reset_does_not_become_the_first() {
    let kinds = [Kind::Plane, Kind::Plane, Kind::Plane, Kind::Etcd];
    let mut world = built(&kinds).unwrap();
    let order = world.reality.order.clone();
    happen(&mut world, &Event::Delete(1));
    rest(&mut world, &mut [Fate::Cancelled(250)].into_iter());
    assert!(
        world.reality.lost.contains("host-02"),
        "{:?}",
        world.reality
    );
    happen(&mut world, &Event::Keep(1));
    // The first one is known to be lost, so that nobody joins before.
    world.dead.insert("host-01".to_owned());
    happen(&mut world, &Event::See);
    happen(&mut world, &Event::Replace(0, None));
    rest(&mut world, &mut std::iter::empty());
    let last = world.observed.runs.last().unwrap();
    assert_eq!(last.spec.operation, "Replace");
    assert_eq!(runs::phase(last), RunPhase::Failed);
    let first = |order: &std::collections::BTreeMap<String, Vec<String>>| {
        order["kube_control_plane"][0].clone()
    };
    assert_eq!(first(&world.reality.order), first(&order));
    assert!(world.reality.hosts.contains_key("host-01"));
}
