//! Small clusters in every way.

use api::{node::Role, run::RunPhase};
use kubespray::{action::DRAIN, cluster::decision::Decision};
use lab::Extent;

use crate::{
    drains,
    people::{Event, happen},
    rules,
    story::{Fate, built, carried_out, rest, stored},
    world::{Kind, World},
};

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

/// How many hosts the clusters have at most all of which are gone through.
fn most_hosts() -> usize {
    match Extent::of_this_run() {
        Extent::Usual => 4,
        Extent::Full => 5,
    }
}

/// Every cluster of up to four hosts (in a full run five), each set of whose members is switched off, and each member of which is to be all that is left
/// of etcd: it is where the quorum is lost and it answers, and nowhere else.
#[test]
fn members_are_given_up_only_where_the_quorum_is_lost() {
    let (mut recovered, mut refused) = (0, 0);
    for many in 1..=most_hosts() {
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
                world.recover(stays, true);
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
    for many in 1..=most_hosts() {
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

/// An upgrade failed on a control plane, and then a roll-back of etcd: people are told of the node that takes no pods, though another run is
/// what comes first.
#[test]
fn a_node_that_an_upgrade_left_is_told_of_while_a_recovery_comes_first() {
    let mut world = built(&[Kind::Plane, Kind::Store, Kind::Worker]).unwrap();
    happen(&mut world, &Event::Version(5));
    let upgrade = world.pass();
    let Decision::Start(new) = upgrade.decision else {
        panic!("{:?}", upgrade.decision);
    };
    let run = stored(&world, &new);
    let mut steps = new.plan.steps.iter();
    let batch = steps.position(|step| drains(&new.plan, step)).unwrap();
    carried_out(&mut world, &new, &run, Fate::Stops(batch));
    let failed = runs::phase(&world.observed.runs[1]);
    assert_eq!((failed, world.reality.drained.len()), (RunPhase::Failed, 1));
    world.roll_back();
    let ended = rest(&mut world, &mut [Fate::Fails(250)].into_iter());
    let Decision::Maintain(_, run) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(run.spec.operation, "Recover");
}

/// The same of a removal that failed after its host was drained.
#[test]
fn a_host_that_a_removal_has_drained_is_told_of_while_a_recovery_comes_first() {
    let mut world = built(&[Kind::Master, Kind::Worker, Kind::Worker]).unwrap();
    happen(&mut world, &Event::Delete(1));
    let removal = world.pass();
    let Decision::Start(new) = removal.decision else {
        panic!("{:?}", removal.decision);
    };
    let run = stored(&world, &new);
    let mut steps = new.plan.steps.iter();
    let drained = steps.position(|step| step.id == DRAIN).unwrap();
    carried_out(&mut world, &new, &run, Fate::Stops(drained + 1));
    assert_eq!(world.reality.drained.len(), 1);
    world.roll_back();
    let ended = rest(&mut world, &mut [Fate::Fails(250)].into_iter());
    let Decision::Maintain(_, run) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(run.spec.operation, "Recover");
}

/// A cluster could not be taken over, its host was taken back, and another was declared that no run was to work on: it is not the cluster's,
/// and goes as it came when the Cluster does.
#[test]
fn a_host_that_no_run_was_to_work_on_is_not_reset() {
    let mut world = World::found(&[Kind::Master]);
    rest(&mut world, &mut [Fate::Fails(100)].into_iter());
    happen(&mut world, &Event::Delete(0));
    world.declare(Kind::Master);
    happen(&mut world, &Event::End(true));
    let ended = rest(&mut world, &mut std::iter::empty());
    assert!(matches!(ended, Decision::Forget), "{ended:?}");
    assert_eq!(world.observed.runs.len(), 1);
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
