//! What becomes of runs, and what is looked at between the things that people do.

use std::{cell::RefCell, collections::BTreeSet};

use api::{Run, run::RunPhase};
use kube::ResourceExt;
use kubespray::{
    cluster::decision::{Decision, NewRun},
    operation,
};
use lab::Extent;
use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

use crate::{
    drains,
    effect::effect,
    people::{Event, event, happen, kind},
    rules,
    world::{Kind, World},
};

/// How many runs may follow from one thing that people do: as many as there are hosts, and some to spare.
const MOST_RUNS: usize = 24;

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

/// Decides and carries out until nothing starts by itself, and says what is decided then.
pub fn rest(world: &mut World, fates: &mut impl Iterator<Item = Fate>) -> Decision {
    for _ in 0..MOST_RUNS {
        let planned = world.pass();
        match planned.decision {
            Decision::Start(ref new) => {
                let run = stored(world, new);
                rules::of_start(world, &planned, new, &run);
                carried_out(world, new, &run, fates.next().unwrap_or(Fate::Succeeds));
            }
            Decision::Supersede(run, _) => world.phase(&run.name_any(), RunPhase::Superseded),
            Decision::Cancel(run) => world.phase(&run.name_any(), RunPhase::Cancelled),
            _ => {
                rules::of_rest(world, &planned);
                // It stays so.
                let again = world.pass();
                assert!(
                    !matches!(again.decision, Decision::Start(_)),
                    "it does not rest"
                );
                assert_eq!(again.pending, planned.pending);
                return planned.decision;
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

pub fn stored(world: &World, new: &NewRun) -> Run {
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

pub fn carried_out(world: &mut World, new: &NewRun, run: &Run, fate: Fate) {
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
    world.came(&new.name, steps, phase);
    world.phase(&new.name, phase);
    world.let_go();
}

/// A cluster of these hosts, if one can be built of them.
pub fn built(kinds: &[Kind]) -> Option<World> {
    let mut world = World::new(kinds);
    rest(&mut world, &mut std::iter::empty());
    (!world.reality.hosts.is_empty()).then_some(world)
}

/// A story of a cluster that is built of these hosts, or of one of them that was found. It says which operations came to their end.
fn told(kinds: &[Kind], found: bool, events: &[Event], fates: &[Fate]) -> BTreeSet<String> {
    let mut fates = fates.iter().copied().cycle();
    let world = if found {
        let mut world = World::found(kinds);
        rest(&mut world, &mut fates);
        Some(world)
    } else {
        built(kinds)
    };
    let Some(mut world) = world else {
        return BTreeSet::new();
    };
    let mut forgotten = false;
    for event in events {
        happen(&mut world, event);
        forgotten = matches!(rest(&mut world, &mut fates), Decision::Forget);
        if forgotten {
            break;
        }
    }
    if !forgotten {
        // Whatever failed is taken up again, and every window opens: then it rests for good.
        happen(&mut world, &Event::Window(None));
        happen(&mut world, &Event::Retry);
        rest(&mut world, &mut std::iter::empty());
    }
    let runs = world.observed.runs.into_iter();
    let ended = runs.filter(|run| runs::phase(run) == RunPhase::Succeeded);
    ended.map(|run| run.spec.operation).collect()
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

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Succeeds),
        1 => any::<u8>().prop_map(Fate::Fails),
        1 => any::<u8>().prop_map(Fate::Cancelled),
    ]
}

/// A member of etcd was taken out by a removal that was given up, and a control plane joins, whose play of etcd goes over that host too.
#[test]
fn a_control_plane_does_not_join_beside_a_member_that_is_half_removed() {
    let kinds = [Kind::Plane, Kind::Store].repeat(5);
    let events = [
        Event::Replace(1, Some(5)),
        Event::Delete(3),
        Event::Replace(0, None),
    ];
    let fates = [Fate::Succeeds, Fate::Cancelled(192)];
    told(&kinds, false, &events, &fates);
}

/// Two runs of one upgrade fail, each on another node.
#[test]
fn a_node_that_the_first_run_of_an_upgrade_left_is_told_of_when_the_second_fails_elsewhere() {
    let kinds = [Kind::Master, Kind::Master, Kind::Master, Kind::Worker];
    let events = [Event::Ask(0, 0), Event::Version(5), Event::Window(None)];
    let fates = [Fate::Succeeds, Fate::Fails(154), Fate::Fails(134)];
    told(&kinds, false, &events, &fates);
}

/// The operations that no story can have come to their end, and why. Whoever adds one here takes it out of all that is proved.
const UNTOLD: [(&str, &str); 0] = [];

/// And every operation is among them: one that nobody does here is one of which nothing is known to hold.
#[test]
fn no_story_ends_badly() {
    let stories = (
        hosts(),
        proptest::bool::weighted(0.1),
        proptest::collection::vec(event(), 1..6),
        proptest::collection::vec(fate(), 1..4),
    );
    let seen = RefCell::new(BTreeSet::new());
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(Extent::of_this_run().stories())
    };
    let mut runner = match Extent::of_this_run() {
        // The same ones each time: what they find is of the change at hand. New ones are looked for in a full run.
        Extent::Usual => {
            let same = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
            TestRunner::new_with_rng(config, same)
        }
        Extent::Full => TestRunner::new(config),
    };
    let ended = runner.run(&stories, |(kinds, found, events, fates)| {
        let ended = told(&kinds, found, &events, &fates);
        seen.borrow_mut().extend(ended);
        Ok(())
    });
    if let Err(badly) = ended {
        panic!("{badly}");
    }
    let all = operation::ALL.iter().map(|operation| operation.name);
    let known = all.filter(|name| UNTOLD.iter().all(|(untold, _)| untold != name));
    assert_eq!(
        seen.into_inner(),
        known.map(str::to_owned).collect(),
        "an operation that no story comes to: have an event of `people` lead to it"
    );
}
