//! The engine of roll-outs in every state that a small fleet can get into: clusters are applied or refused, become well, fail, heal, are
//! at work for another reason or are deleted, windows open and close, people approve a wave, leave clusters out, edit the inventory again
//! and have the run rolled back, and time passes, in any order. An operator that dies is nothing more: the engine remembers nothing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside of them"
)]
#![allow(
    clippy::struct_excessive_bools,
    reason = "what may be said of it is what a state is"
)]

use std::collections::{BTreeMap, BTreeSet, HashSet};

use api::{
    Threshold,
    inventory::{
        Approval, FleetHealth, MemberPhase, RolloutMember, RolloutPhase, RolloutRun, RolloutState,
    },
};
use fleet::rollout::{
    engine::{CANARY, Policy, Seen, Steering, Verdict, advance},
    rollback::{self, WAVE},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A roll-out of three clusters, two of which are of one site.
#[derive(Clone, Eq, Hash, PartialEq)]
struct State {
    clusters: [Own; 3],
    /// Whether a maintenance window is open, or there is none.
    is_open: bool,
    /// Whether people have had it rolled back.
    is_back: bool,
    /// Whether people have let the wave behind the canary begin.
    is_approved: bool,
    /// Whether a later edit is to take its place.
    gives_way: bool,
}

/// A cluster, and how far its roll-out is.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
struct Own {
    wave: &'static str,
    phase: MemberPhase,
    /// For how many seconds, where that matters.
    age: u8,
    is_applied: bool,
    health: FleetHealth,
    /// Whether its change was begun, and waits for what does not come by itself.
    is_stuck: bool,
    /// Whether the way back has nothing to do with it: it was never begun.
    is_left: bool,
    /// Whether somebody has deleted its description.
    is_gone: bool,
    /// Whether people have it left out.
    is_skipped: bool,
}

impl Own {
    /// Whether its objects are written.
    const fn is_granted(self) -> bool {
        matches!(self.phase, MemberPhase::Updating | MemberPhase::Failed)
    }
}

impl State {
    /// Whether a cluster is what the run makes of it.
    const fn is_there(&self, own: Own) -> bool {
        own.is_applied != self.is_back && !own.is_stuck
    }

    /// What the run makes of clusters.
    const fn revision(&self) -> &'static str {
        if self.is_back { "old" } else { "new" }
    }
}

const NAMES: [&str; 3] = ["a1", "a2", "b1"];
const SOAK: u64 = 1;
const DEADLINE: u64 = 2;

/// What may come to a roll-out from outside, at any time.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Comes {
    Nothing,
    /// Maintenance windows open and close.
    Windows,
    /// People have it rolled back.
    WayBack,
    /// People approve the wave behind the canary.
    Approval,
    /// An edit takes its place.
    Edit,
    /// Clusters are deleted, and left out.
    Deletion,
}

/// A fleet and how it is rolled out.
struct Fleet {
    policy: Policy,
    waves: [&'static str; 3],
    comes: Comes,
}

impl Fleet {
    fn run(state: &State) -> RolloutRun {
        let named = state.clusters.iter().map(|own| own.wave);
        let (first, rest): (Vec<_>, Vec<_>) = named.partition(|wave| *wave == CANARY);
        let mut waves: Vec<String> = first
            .into_iter()
            .chain(rest)
            .map(ToOwned::to_owned)
            .collect();
        waves.dedup();
        let clusters = NAMES.iter().zip(&state.clusters);
        let clusters = clusters.filter(|(_, own)| !own.is_left);
        let clusters = clusters.map(|(name, own)| RolloutMember {
            name: (*name).to_owned(),
            wave: own.wave.to_owned(),
            domains: vec![domain(name)],
            revision: state.revision().to_owned(),
            before: (!state.is_back).then(|| "old".to_owned()),
            phase: own.phase,
            since: Some(Time(
                Timestamp::from_second(NOW - i64::from(own.age)).unwrap(),
            )),
            begun: None,
            message: None,
        });
        RolloutRun {
            id: "run".to_owned(),
            waves,
            clusters: clusters.collect(),
            ..RolloutRun::default()
        }
    }

    /// The way back from a run.
    fn back(state: &State) -> State {
        let back = rollback::run(&Self::run(state), &BTreeSet::new());
        let mut after = State {
            is_back: true,
            ..state.clone()
        };
        for (own, name) in after.clusters.iter_mut().zip(NAMES) {
            let mut members = back.clusters.iter();
            let member = members.find(|member| member.name == name);
            assert!(member.is_none_or(|member| member.revision == "old"));
            own.is_left = member.is_none();
            own.wave = WAVE;
            own.phase = MemberPhase::Pending;
            own.age = 0;
            // Nothing is written until it is begun: what was refused is what it was, and what is half changed is held.
            if own.health == FleetHealth::Refused {
                own.health = FleetHealth::Well;
            }
        }
        after
    }

    fn seen(state: &State) -> BTreeMap<String, Seen> {
        let all = NAMES.iter().zip(&state.clusters);
        all.filter(|(_, own)| !own.is_gone)
            .map(|(name, own)| {
                let refused = own.health == FleetHealth::Refused;
                let seen = Seen {
                    domains: vec![domain(name)],
                    applied: Some(if own.is_applied { "new" } else { "old" }.to_owned()),
                    is_halfway: own.is_stuck,
                    target: (own.is_granted() && (refused || own.is_stuck))
                        .then(|| state.revision().to_owned()),
                    health: own.health,
                    ..Seen::default()
                };
                ((*name).to_owned(), seen)
            })
            .collect()
    }

    /// What people and the clock want of it.
    fn steering(state: &State) -> Steering {
        let all = NAMES.iter().zip(&state.clusters);
        let skip = all.filter(|(_, own)| own.is_skipped);
        Steering {
            closed: (!state.is_open).then(|| "later".to_owned()),
            approved: state
                .is_approved
                .then(|| "rest".to_owned())
                .into_iter()
                .collect(),
            gives_way: state.gives_way,
            skip: skip.map(|(name, _)| (*name).to_owned()).collect(),
            ..Steering::default()
        }
    }

    /// One pass.
    fn advance(&self, state: &State, steering: &Steering) -> (State, Verdict) {
        let mut run = Self::run(state);
        let now = Timestamp::from_second(NOW).unwrap();
        let verdict = advance(&mut run, &self.policy, &Self::seen(state), steering, now);
        let mut after = state.clone();
        let of_run = after.clusters.iter_mut().filter(|own| !own.is_left);
        for (own, member) in of_run.zip(&run.clusters) {
            own.phase = member.phase;
            own.wave = if member.wave == CANARY {
                CANARY
            } else {
                own.wave
            };
            let matters = matches!(own.phase, MemberPhase::Updating | MemberPhase::Soaking);
            let since = member.since.as_ref().unwrap().0.as_second();
            own.age = if matters {
                u8::try_from(NOW - since).unwrap()
            } else {
                0
            };
        }
        (after, verdict)
    }

    /// What the roll-out keeps to, from one state to the next.
    fn check(&self, before: &State, after: &State, verdict: &Verdict) {
        let is_under_way =
            |own: &Own| matches!(own.phase, MemberPhase::Updating | MemberPhase::Soaking);
        let told = || format!("{}\n-> {}\n{verdict:?}", show(before), show(after));
        let mut has_begun = false;
        for (number, own) in after.clusters.iter().enumerate() {
            if own.phase != MemberPhase::Updating
                || before.clusters[number].phase != MemberPhase::Pending
            {
                continue;
            }
            has_begun = true;
            assert!(before.is_open, "begun outside of a window: {}", told());
            assert!(
                !before.gives_way,
                "begun though an edit takes its place: {}",
                told()
            );
            assert!(
                !own.is_gone && !own.is_skipped,
                "begun though it is out: {}",
                told()
            );
            assert!(
                own.wave == CANARY || before.is_approved || self.comes != Comes::Approval,
                "begun without an approval: {}",
                told()
            );
            let others = (0..3)
                .filter(|other| *other != number && domain(NAMES[*other]) == domain(NAMES[number]));
            // To mend one that is down waits for none that is down too.
            let is_well = before.clusters[number].health == FleetHealth::Well;
            let busy = others.filter(|other| {
                let other = &after.clusters[*other];
                is_under_way(other)
                    || other.phase == MemberPhase::Failed
                    || is_well && !other.is_gone && other.health != FleetHealth::Well
            });
            assert_eq!(
                busy.count(),
                0,
                "begun beside another of its site: {}",
                told()
            );
            let canaries = after.clusters.iter().filter(|other| other.wave == CANARY);
            let open = canaries.filter(|other| !is_out(other));
            assert!(
                before.is_back || own.wave == CANARY || open.count() == 0,
                "begun past a canary: {}",
                told()
            );
            let failed = after
                .clusters
                .iter()
                .filter(|own| own.phase == MemberPhase::Failed)
                .count();
            assert!(
                !self.policy.failures.is_exceeded(failed, 3),
                "begun past failures: {}",
                told()
            );
        }
        let under_way = after
            .clusters
            .iter()
            .filter(|own| is_under_way(own))
            .count();
        // One that failed and heals is watched, however many there are.
        assert!(
            !has_begun || under_way <= self.policy.parallel,
            "begun beside too many: {}",
            told()
        );
        let is_explained = verdict.is_over() || under_way > 0 || verdict.waits.is_some();
        assert!(is_explained, "waits without a reason: {}", told());
        if verdict.phase == RolloutPhase::Succeeded {
            let mut clusters = after.clusters.iter();
            assert!(clusters.all(|own| own.is_left || is_out(own)), "{}", told());
            // All that was begun is back, and nothing else was touched.
            let mut clusters = after
                .clusters
                .iter()
                .filter(|own| !own.is_gone && !own.is_skipped);
            assert!(clusters.all(|own| after.is_there(*own)), "{}", told());
        }
        if verdict.phase == RolloutPhase::Superseded {
            assert!(before.gives_way && under_way == 0, "{}", told());
        }
        for state in [
            RolloutState::Paused,
            RolloutState::Aborted,
            RolloutState::RolledBack,
        ] {
            let steering = Steering {
                state,
                ..Steering::default()
            };
            self.begins_nothing(before, &steering);
        }
        self.begins_nothing(
            before,
            &Steering {
                unknown: Some("a cluster cannot be rendered".to_owned()),
                ..Steering::default()
            },
        );
        self.begins_nothing(
            before,
            &Steering {
                closed: Some("later".to_owned()),
                ..Steering::default()
            },
        );
        self.begins_nothing(
            before,
            &Steering {
                gives_way: true,
                ..Steering::default()
            },
        );
    }

    fn begins_nothing(&self, state: &State, steering: &Steering) {
        let (after, verdict) = self.advance(state, steering);
        let begun = after
            .clusters
            .iter()
            .zip(&state.clusters)
            .any(|(after, before)| {
                before.phase == MemberPhase::Pending && after.phase == MemberPhase::Updating
            });
        assert!(!begun, "{} {steering:?} {verdict:?}", show(state));
    }

    /// In a world that does what it should from now on, whose windows open again and again, the run ends.
    fn ends(&self, state: &State) {
        let mut now = state.clone();
        for round in 0..60 {
            now.is_open = self.comes != Comes::Windows || round % 2 == 0;
            now.is_approved = true;
            for own in &mut now.clusters {
                // What is half changed and nobody's any more is for people to say.
                own.is_skipped |= own.is_gone;
                if own.is_granted() {
                    own.is_applied = !now.is_back;
                    own.is_stuck = false;
                }
                own.health = FleetHealth::Well;
                own.age = (own.age + 1).min(OLDEST);
            }
            let (after, verdict) = self.advance(&now, &Self::steering(&now));
            now = after;
            if verdict.is_over() {
                return;
            }
        }
        panic!("never ends: {}\n{}", show(state), show(&now));
    }

    /// What may happen next, beside a pass.
    fn next(&self, state: &State) -> Vec<State> {
        use FleetHealth::{AtWork, Failed, Refused, Well};
        let mut all = Vec::new();
        let mut other = state.clone();
        match self.comes {
            Comes::Nothing => {}
            Comes::Windows => other.is_open = !state.is_open,
            Comes::WayBack if state.is_back => {}
            Comes::WayBack => other = Self::back(state),
            Comes::Approval => other.is_approved = true,
            Comes::Edit => other.gives_way = true,
            Comes::Deletion => all.extend(Self::losses(state)),
        }
        all.push(other);
        let mut older = state.clone();
        for own in &mut older.clusters {
            own.age = if matches!(own.phase, MemberPhase::Updating | MemberPhase::Soaking) {
                (own.age + 1).min(OLDEST)
            } else {
                0
            };
        }
        all.push(older);
        for (number, own) in state.clusters.iter().enumerate() {
            let mut becomes = |is_applied, health, is_stuck| {
                let mut next = state.clone();
                next.clusters[number].is_applied = is_applied;
                next.clusters[number].health = health;
                next.clusters[number].is_stuck = is_stuck;
                all.push(next);
            };
            if own.is_granted() && !state.is_there(*own) {
                becomes(!state.is_back, AtWork, false);
                becomes(own.is_applied, Refused, own.is_stuck);
                becomes(own.is_applied, Failed, true);
            }
            match own.health {
                // Half changed it is not well before its change is through.
                _ if own.is_stuck => {}
                AtWork => {
                    becomes(own.is_applied, Well, false);
                    becomes(own.is_applied, Failed, false);
                }
                Failed => becomes(own.is_applied, Well, false),
                // With what comes by itself to clusters that may go, too, it would be minutes.
                Well if self.comes == Comes::Deletion && !own.is_applied => {}
                Well => becomes(own.is_applied, AtWork, false),
                Refused => {}
            }
        }
        all
    }

    /// A cluster is deleted, or left out. Of one of them that is enough: with each that may go there are ten times as many states.
    fn losses(state: &State) -> Vec<State> {
        let mut all = Vec::new();
        let is_touched = |own: &Own| own.is_gone || own.is_skipped;
        let touched = state.clusters.iter().position(is_touched);
        for number in touched.map_or(0..NAMES.len(), |only| only..only + 1) {
            let mut gone = state.clone();
            gone.clusters[number].is_gone = true;
            let mut skipped = state.clone();
            skipped.clusters[number].is_skipped = true;
            all.extend([gone, skipped]);
        }
        all
    }

    fn explore(&self) -> usize {
        let begin = |wave| Own {
            wave,
            phase: MemberPhase::Pending,
            age: 0,
            is_applied: false,
            health: FleetHealth::Well,
            is_stuck: false,
            is_left: false,
            is_gone: false,
            is_skipped: false,
        };
        let first = State {
            clusters: self.waves.map(begin),
            is_open: true,
            is_back: false,
            is_approved: false,
            gives_way: false,
        };
        let mut known = HashSet::from([first]);
        let mut open: Vec<_> = known.iter().cloned().collect();
        while let Some(state) = open.pop() {
            let (after, verdict) = self.advance(&state, &Self::steering(&state));
            self.check(&state, &after, &verdict);
            let mut next = self.next(&state);
            next.push(after);
            for state in next {
                if known.insert(state.clone()) {
                    open.push(state);
                }
            }
        }
        for state in &known {
            self.ends(state);
        }
        known.len()
    }
}

/// Whether nothing more is to be done with a cluster.
const fn is_out(own: &Own) -> bool {
    matches!(
        own.phase,
        MemberPhase::Done | MemberPhase::Gone | MemberPhase::Skipped
    )
}

const NOW: i64 = 1_000_000;
const OLDEST: u8 = 2;

fn domain(name: &str) -> String {
    format!("site/{}", &name[..1])
}

fn show(state: &State) -> String {
    let all = NAMES.iter().zip(&state.clusters);
    let all = all.map(|(name, own)| {
        let applied = if own.is_applied { "new" } else { "old" };
        format!(
            "{name}: {:?} for {}s, {applied} {:?}{}{}",
            own.phase,
            own.age,
            own.health,
            if own.is_gone { ", gone" } else { "" },
            if own.is_skipped { ", left out" } else { "" },
        )
    });
    all.collect::<Vec<_>>().join(" | ")
}

fn policy(parallel: usize, failures: u32) -> Policy {
    Policy {
        parallel,
        budgets: [("site".to_owned(), 1)].into(),
        soak: SOAK,
        deadline: DEADLINE,
        gates: Vec::new(),
        approval: api::inventory::Approval::Never,
        failures: Threshold::Count(failures),
    }
}

#[test]
fn a_canary_goes_first_and_no_two_of_a_site_are_begun() {
    let fleet = Fleet {
        policy: policy(3, 0),
        waves: [CANARY, "rest", "rest"],
        comes: Comes::Nothing,
    };
    let states = fleet.explore();
    assert!(states > 1000, "{states}");
}

#[test]
fn without_a_canary_failures_are_borne_up_to_their_bound() {
    let fleet = Fleet {
        policy: policy(2, 1),
        waves: ["rest", "rest", "rest"],
        comes: Comes::Nothing,
    };
    let states = fleet.explore();
    assert!(states > 1000, "{states}");
}

#[test]
fn nothing_is_begun_outside_of_a_window_and_the_run_ends_all_the_same() {
    let fleet = Fleet {
        policy: policy(1, 0),
        waves: [CANARY, "rest", "rest"],
        comes: Comes::Windows,
    };
    let states = fleet.explore();
    assert!(states > 1000, "{states}");
}

#[test]
fn a_run_that_is_rolled_back_anywhere_brings_back_all_that_it_began() {
    let fleet = Fleet {
        policy: policy(1, 0),
        waves: [CANARY, "rest", "rest"],
        comes: Comes::WayBack,
    };
    let states = fleet.explore();
    assert!(states > 1000, "{states}");
}

#[test]
fn the_wave_behind_the_canary_begins_when_people_say_so_and_not_before() {
    let mut policy = policy(1, 0);
    policy.approval = Approval::AfterCanary;
    let fleet = Fleet {
        policy,
        waves: [CANARY, "rest", "rest"],
        comes: Comes::Approval,
    };
    let states = fleet.explore();
    assert!(states > 1000, "{states}");
}

#[test]
fn a_run_gives_way_to_an_edit_when_what_it_began_is_through() {
    let fleet = Fleet {
        policy: policy(2, 1),
        waves: [CANARY, "rest", "rest"],
        comes: Comes::Edit,
    };
    let states = fleet.explore();
    assert!(states > 1000, "{states}");
}

#[test]
fn clusters_that_are_deleted_or_left_out_hold_nothing_up_for_ever() {
    let fleet = Fleet {
        policy: policy(1, 0),
        waves: [CANARY, "rest", "rest"],
        comes: Comes::Deletion,
    };
    let states = fleet.explore();
    assert!(states > 1000, "{states}");
}
