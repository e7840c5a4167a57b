//! Rotation on a schedule: whether a schedule can be kept to, when the next rotation is due, and its run. Pure.
//!
//! A schedule is proved before it is taken: by [`Rule::least_gap`], with the shortest time between two of its times. A rotation that comes
//! late, or that a person had done between two times, is beyond that proof; so each one waits for [`earliest`], too, and is then not
//! refused by the step.

use std::collections::BTreeMap;

use api::{
    Run,
    openstack::{KeyRingStatus, KeySchedule, OpenStackService},
    run::{RunPhase, Step},
};
use controller::{Problem, window::Recurrence};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use runs::{object, phase};
use snapshots::retention::is_past;

use super::{Rule, SPREAD, earliest, value};
use crate::{
    action::{Action, Rotation},
    config::Merged,
    definition::{Definition, StepDefinition},
    subject::{Decision, NewRun, Observed},
    wish::{Operation, Wanted, Wish, unwritable},
};

/// Keys that are rotated on a schedule that can be kept to.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduled {
    schedule: Recurrence,
    rule: Rule,
    secret: String,
    step: Step,
}

/// Where the settings stand.
const FIELD: &str = "OpenStackService spec.keys.fernet.rotate";
/// The Secret with the keys of Fernet, by the word behind the name of the object.
const FERNET: &str = "fernet-keys";

/// What a service with these configuration files says of the rotation of its keys. None: nothing.
///
/// # Errors
///
/// Everything that is wrong with it: keys that it has not, a schedule that is none, one that would have a valid token refused.
pub fn read(
    service: &OpenStackService,
    definition: &Definition,
    files: &BTreeMap<String, Merged>,
) -> Result<Option<Scheduled>, Vec<Problem>> {
    let keys = service.spec.keys.as_ref();
    let Some(written) = keys.and_then(|keys| keys.fernet.as_ref()?.rotate.as_ref()) else {
        return Ok(None);
    };
    let Some((rotates, rotation)) = rotates(definition) else {
        let rule = format!("{} has no keys of Fernet", definition.name);
        let problem = Problem::new(FIELD, &written.schedule, rule, "leave it out");
        return Err(vec![problem]);
    };
    let (field, zone) = (format!("{FIELD}.schedule"), format!("{FIELD}.timeZone"));
    let schedule = Recurrence::read(
        (&written.schedule, &field),
        (written.time_zone.as_deref(), &zone),
    );
    let (schedule, rule) = match (schedule, rule(rotation, files)) {
        (Ok(schedule), Ok(rule)) => (schedule, rule),
        (schedule, rule) => {
            let wrong = schedule.err().into_iter().flatten();
            return Err(wrong.chain(rule.err()).collect());
        }
    };
    if let Some(problem) = unproved(&schedule, rule, written, rotation) {
        return Err(vec![problem]);
    }
    let step = rotates.does.step(&rotates.id, &rotates.title, None);
    Ok(Some(Scheduled {
        schedule,
        rule,
        secret: rotation.secret.clone(),
        step: step.map_err(|error| unwritable(&error))?,
    }))
}

/// The step that rotates the keys, if the service has such keys.
fn rotates(definition: &Definition) -> Option<(&StepDefinition, &Rotation)> {
    let mut steps = definition.by_hand.iter();
    steps.find_map(|step| match &step.does {
        Action::RotateKeys(rotation) if rotation.secret == FERNET => Some((step, rotation)),
        _ => None,
    })
}

fn rule(rotation: &Rotation, files: &BTreeMap<String, Merged>) -> Result<Rule, Problem> {
    let nothing = Merged::default();
    let file = files.get(&rotation.file).unwrap_or(&nothing);
    Rule::of(file, rotation).map_err(|setting| {
        Problem::new(
            place(rotation, setting),
            value(file, setting).unwrap_or_default(),
            "it is no number, and by it a schedule of rotations is proved to have no valid token refused",
            format!("give it one, or take {FIELD} out"),
        )
    })
}

/// Where a setting stands.
fn place(rotation: &Rotation, setting: &str) -> String {
    let file = &rotation.file;
    format!("OpenStackService spec.config[{file}] {setting}")
}

/// Why a schedule cannot be kept to without a valid token being refused.
fn unproved(
    schedule: &Recurrence,
    rule: Rule,
    written: &KeySchedule,
    rotation: &Rotation,
) -> Option<Problem> {
    let keep = rule.keep;
    let Some(least) = rule.least_gap() else {
        return Some(Problem::new(
            place(rotation, &rotation.keep),
            keep,
            "with fewer than 3 keys each rotation makes tokens invalid at once",
            format!("let it be 3 or more, or take {FIELD} out"),
        ));
    };
    // What comes no second time is rare enough for anything.
    let gap = schedule.shortest_gap(SPREAD)?;
    if gap >= least {
        return None;
    }
    let often = format!("it comes again after {} at times", shown(gap));
    let rarer = format!("write one with {} or more between two times", shown(least));
    let late = shown(SPREAD);
    let (why, remedy) = match rule.enough(gap) {
        None => (
            format!("{often}, and pods have the next key up to {late} after a rotation"),
            rarer,
        ),
        Some(enough) => {
            let kept = shown(gap).seconds();
            let kept = kept.saturating_mul(u64::try_from(keep).ok()?.saturating_sub(2));
            (
                format!(
                    "{often}, so one of {keep} keys goes {} after it sealed last; but a token is valid for {} ({}), and pods hear of a \
                     rotation up to {late} late",
                    api::Duration::from_seconds(kept),
                    shown(rule.lifetime),
                    rotation.lifetime.join(" and "),
                ),
                format!(
                    "{rarer}, or let {} in spec.config[{}] be {enough} or more",
                    rotation.keep, rotation.file
                ),
            )
        }
    };
    let field = format!("{FIELD}.schedule");
    Some(Problem::new(field, &written.schedule, why, remedy))
}

fn shown(time: SignedDuration) -> api::Duration {
    api::Duration::from_seconds(time.as_secs().unsigned_abs())
}

/// The newest run that was to rotate keys because it was time.
pub fn newest(runs: &[Run]) -> Option<&Run> {
    let mut newest = runs.iter().rev();
    newest.find(|run| run.spec.operation == Operation::Rotate.name())
}

/// What is begun for an object that is as it should be and whose keys are to be rotated by now. What does not serve is seen to first.
///
/// # Errors
///
/// A plan cannot be written as JSON.
pub fn next<K: Wish>(
    object: &K,
    observed: &Observed,
    wanted: &Wanted,
) -> Result<Option<NewRun>, serde_json::Error> {
    if !observed.unhealthy.is_empty() {
        return Ok(None);
    }
    let Some(scheduled) = object.rotation() else {
        return Ok(None);
    };
    let due = scheduled.due(observed).filter(|due| *due <= observed.now);
    let Some(due) = due else {
        return Ok(None);
    };
    let alone = Wanted {
        install: vec![scheduled.step],
        ..wanted.clone()
    };
    let operation = Operation::Rotate;
    Ok(Some(NewRun {
        name: object::next(object, operation.name(), &observed.runs),
        operation,
        plan: alone.plan(operation, &format!("a rotation was due at {due}"))?,
        request: None,
    }))
}

impl Scheduled {
    /// The Secret with the keys, by the word behind the name of the object.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// When the next rotation is due. However many times have passed without one, it is one.
    pub fn due(&self, observed: &Observed) -> Option<Timestamp> {
        let now = observed.now;
        let last = begun(observed).max(rotated(observed));
        let missed = self.schedule.last(now).map(|time| time.timestamp());
        let missed = missed.filter(|time| last.is_none_or(|last| last < *time));
        let time = match missed {
            Some(missed) => missed,
            None => self.schedule.next(now)?.timestamp(),
        };
        let rule = Rule {
            lifetime: self.rule.lifetime.max(observed.keys.lifetime),
            ..self.rule
        };
        // Where it would be refused at any time, the step says why to people.
        let from = earliest(&observed.keys.since, rule).unwrap_or(Timestamp::MIN);
        Some(time.max(from))
    }

    /// How the keys stand.
    pub fn told(&self, decision: &Decision, observed: &Observed) -> KeyRingStatus {
        let due = self.due(observed);
        KeyRingStatus {
            rotated_at: rotated(observed).and_then(whole),
            due_at: due.and_then(whole),
            message: message(due, decision, observed),
        }
    }
}

/// When the last rotation that was due was begun, whatever became of it: it is not begun again before the next time.
fn begun(observed: &Observed) -> Option<Timestamp> {
    let run = newest(&observed.runs)?;
    let begun = run.metadata.creation_timestamp.as_ref()?.0;
    is_past(begun, observed.now).then_some(begun)
}

/// Since when the key that seals does.
fn rotated(observed: &Observed) -> Option<Timestamp> {
    let since = observed.keys.since.values().next_back().copied();
    since.filter(|since| is_past(*since, observed.now))
}

/// In full seconds, as times of objects are written.
fn whole(time: Timestamp) -> Option<Time> {
    Timestamp::from_second(time.as_second()).ok().map(Time)
}

fn message(due: Option<Timestamp>, decision: &Decision, observed: &Observed) -> Option<String> {
    if matches!(decision, Decision::Start(new) if new.operation == Operation::Rotate) {
        return None;
    }
    if due.is_some_and(|due| due <= observed.now) {
        let waits = "a rotation is due, and waits until no run is at work and the service is Ready";
        return Some(waits.to_owned());
    }
    let failed = newest(&observed.runs).filter(|run| phase(run) == RunPhase::Failed)?;
    // Somebody may have had them rotated since.
    (rotated(observed) <= begun(observed)).then(|| {
        let name = failed.name_any();
        format!("run {name}, which was to rotate the keys, failed: windlass logs {name}")
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use api::{
        openstack::OpenStack,
        run::{Plan, RunStatus},
    };
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{
        rotation::{Keys, Since, rotate},
        subject::plan,
    };

    /// Keystone with this schedule, `SCHEDULE` or `SCHEDULE in ZONE`, and what else its file says.
    fn keystone(schedule: &str, config: &str) -> OpenStackService {
        let (schedule, zone) = match schedule.split_once(" in ") {
            Some((schedule, zone)) => (schedule, Some(zone)),
            None => (schedule, None),
        };
        serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStackService",
            "metadata": {"name": "identity", "namespace": "cloud", "uid": "u"},
            "spec": {"service": "keystone", "image": "keystone:1", "config": {"keystone.conf": config},
                "database": {"host": "db", "adminSecret": {"name": "admin"}},
                "keys": {"fernet": {"rotate": {"schedule": schedule, "timeZone": zone}}}},
        }))
        .unwrap()
    }

    /// Three keys, and tokens of 49 hours, on Sundays.
    fn weekly() -> OpenStackService {
        keystone("0 3 * * 0", "")
    }

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    /// Plans, and stores the run that is started as it would be.
    fn decide(object: &OpenStackService, world: &mut Observed) -> String {
        let told = match plan(object, world).unwrap() {
            Decision::Start(new) => {
                let name = new.name.clone();
                let mut run = object::of(object, name, new.operation.name(), 1, new.plan.clone());
                run.metadata.creation_timestamp = Some(Time(world.now));
                world.runs.push(run);
                format!("start {}", new.name)
            }
            Decision::Follow(run) => format!("follow {}", run.name_any()),
            Decision::Keep(run) => format!("keep {}", run.name_any()),
            other => format!("{other:?}"),
        };
        told.replace("openstackservice-identity-", "")
    }

    fn end(world: &mut Observed, phase: RunPhase) {
        world.runs.last_mut().unwrap().status = Some(RunStatus {
            phase,
            ..RunStatus::default()
        });
    }

    /// The last run rotated the keys.
    fn rotated_now(world: &mut Observed) {
        end(world, RunPhase::Succeeded);
        let next = world.keys.since.keys().next_back().unwrap() + 1;
        world.keys.since.insert(next, world.now);
    }

    /// A service that was made on a Wednesday.
    fn made(object: &OpenStackService) -> Observed {
        let mut world = Observed {
            now: at("2026-11-25T12:00:00Z"),
            ..Observed::default()
        };
        assert_eq!(decide(object, &mut world), "start install-1");
        end(&mut world, RunPhase::Succeeded);
        world.keys.since = Since::from([(1, world.now)]);
        world
    }

    fn status(object: &OpenStackService, world: &Observed) -> KeyRingStatus {
        let decision = plan(object, world).unwrap();
        object.rotation().unwrap().told(&decision, world)
    }

    fn due_at(object: &OpenStackService, world: &Observed) -> String {
        status(object, world).due_at.unwrap().0.to_string()
    }

    #[test]
    fn one_rotation_comes_of_each_time_and_of_all_that_were_missed() {
        let object = weekly();
        let mut world = made(&object);
        assert_eq!(decide(&object, &mut world), "keep install-1");
        assert_eq!(due_at(&object, &world), "2026-11-29T03:00:00Z");
        world.now = at("2026-11-29T02:59:59Z");
        assert_eq!(decide(&object, &mut world), "keep install-1");
        world.now = at("2026-11-29T03:00:00Z");
        assert_eq!(decide(&object, &mut world), "start rotate-2");
        assert_eq!(decide(&object, &mut world), "follow rotate-2");
        let steps = &world.runs[1].spec.plan.steps;
        assert_eq!(steps.len(), 1);
        assert!(matches!(Action::of(&steps[0]), Some(Action::RotateKeys(_))));
        rotated_now(&mut world);
        assert_eq!(decide(&object, &mut world), "keep install-1");
        let told = status(&object, &world);
        assert_eq!(told.rotated_at, Some(Time(world.now)));
        assert_eq!(told.due_at, Some(Time(at("2026-12-06T03:00:00Z"))));
        assert_eq!(told.message, None);
        // Nobody looked for three Sundays.
        world.now = at("2026-12-23T12:00:00Z");
        assert_eq!(decide(&object, &mut world), "start rotate-3");
        rotated_now(&mut world);
        assert_eq!(decide(&object, &mut world), "keep install-1");
        assert_eq!(due_at(&object, &world), "2026-12-27T03:00:00Z");
        assert!(world.kept().iter().any(|name| name.ends_with("rotate-3")));
    }

    #[test]
    fn nothing_rotates_beside_another_run_or_where_something_does_not_serve() {
        let object = weekly();
        let mut world = made(&object);
        world.now = at("2026-11-29T03:00:00Z");
        world.unhealthy = vec!["none of 1 pods serves".to_owned()];
        assert_eq!(decide(&object, &mut world), "keep install-1");
        let waits = status(&object, &world).message.unwrap();
        assert!(waits.contains("waits until no run is at work"), "{waits}");
        world.unhealthy.clear();
        let by_hand = "openstackservice-identity-step-2".to_owned();
        let by_hand = object::of(&object, by_hand, Operation::Step.name(), 1, Plan::default());
        world.runs.push(by_hand);
        assert_eq!(decide(&object, &mut world), "keep install-1");
        end(&mut world, RunPhase::Succeeded);
        let mut other = object.clone();
        other.spec.image = "keystone:2".to_owned();
        assert_eq!(decide(&other, &mut world), "start update-3");
        assert_eq!(decide(&other, &mut world), "follow update-3");
        end(&mut world, RunPhase::Failed);
        assert_eq!(decide(&other, &mut world), "follow update-3");
        end(&mut world, RunPhase::Succeeded);
        assert_eq!(decide(&other, &mut world), "start rotate-4");
        // Another wish waits for it.
        assert_eq!(decide(&object, &mut world), "follow rotate-4");
        rotated_now(&mut world);
        assert_eq!(decide(&object, &mut world), "start update-5");
    }

    #[test]
    fn one_that_failed_is_told_and_not_begun_again_before_the_next_time() {
        let object = weekly();
        let mut world = made(&object);
        world.now = at("2026-11-29T03:00:00Z");
        assert_eq!(decide(&object, &mut world), "start rotate-2");
        end(&mut world, RunPhase::Failed);
        assert_eq!(decide(&object, &mut world), "keep install-1");
        let failed = status(&object, &world).message.unwrap();
        assert!(failed.contains("rotate-2, which was to"), "{failed}");
        assert_eq!(due_at(&object, &world), "2026-12-06T03:00:00Z");
        // A person had it done.
        let mut mended = world.clone();
        mended.now = at("2026-11-30T12:00:00Z");
        mended.keys.since.insert(2, mended.now);
        assert_eq!(status(&object, &mended).message, None);
        world.now = at("2026-12-06T03:00:00Z");
        assert_eq!(decide(&object, &mut world), "start rotate-3");
    }

    #[test]
    fn one_for_which_a_key_would_go_too_early_waits() {
        let object = weekly();
        let mut world = made(&object);
        world.keys.since = Since::from([
            (2, at("2026-11-29T03:00:00Z")),
            // By a person, on the evening before it is time.
            (3, at("2026-12-05T20:00:00Z")),
        ]);
        world.now = at("2026-12-06T03:00:00Z");
        assert_eq!(decide(&object, &mut world), "keep install-1");
        let told = status(&object, &world);
        assert_eq!(told.due_at, Some(Time(at("2026-12-07T21:05:00Z"))));
        assert_eq!(told.message, None);
        // Tokens were valid for longer once.
        let mut longer = world.clone();
        longer.keys.lifetime = SignedDuration::from_hours(100);
        assert_eq!(due_at(&object, &longer), "2026-12-10T00:05:00Z");
        world.now = at("2026-12-07T21:05:00Z");
        assert_eq!(decide(&object, &mut world), "start rotate-2");
    }

    #[test]
    fn a_schedule_changes_no_service_and_goes_with_its_cloud() {
        let mut without = weekly();
        without.spec.keys = None;
        assert_eq!(without.wanted().unwrap(), weekly().wanted().unwrap());
        assert_eq!(without.rotation(), None);
        let cloud = |schedule: &str| -> OpenStack {
            serde_json::from_value(json!({
                "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStack",
                "metadata": {"name": "one", "namespace": "cloud"},
                "spec": {"database": {"managed": {"image": "db"}}, "services": [
                    {"name": "keystone", "image": "k", "keys": {"fernet": {"rotate": {"schedule": schedule}}}},
                ]},
            }))
            .unwrap()
        };
        let wanted = cloud("0 3 * * 0").wanted().unwrap();
        let keys = &wanted.inputs["services"][0]["keys"];
        assert_eq!(keys["fernet"]["rotate"]["schedule"], "0 3 * * 0");
        let refused = cloud("0 3 * * *").wanted().unwrap_err();
        let refused = controller::problem::text(&refused);
        assert!(refused.contains(FIELD), "{refused}");
    }

    #[test]
    fn a_schedule_is_taken_where_its_shortest_gap_is_long_enough() {
        let days = "[fernet_tokens]\nmax_active_keys = 5\n[token]\nexpiration = 79200\n";
        for (schedule, config) in [
            ("0 3 * * 0", ""),
            (
                "0 3 */3 * * in UTC",
                "[fernet_tokens]\nmax_active_keys = 5\n",
            ),
            // 70 hours, and three days are 72 of them.
            ("0 3 * * *", days),
            ("0 * * * *", "[fernet_tokens]\nmax_active_keys = 52\n"),
        ] {
            let object = keystone(schedule, config);
            let wrong = object.wanted().err().unwrap_or_default();
            assert!(wrong.is_empty(), "{schedule}: {wrong:?}");
            assert!(object.rotation().is_some(), "{schedule}");
        }
        // There one of the days has 23 hours.
        let berlin = "0 3 * * * in Europe/Berlin";
        assert!(keystone(berlin, days).rotation().is_none());
        let shorter = days.replace("79200", "72000");
        assert!(keystone(berlin, &shorter).rotation().is_some());
    }

    #[test]
    fn what_cannot_be_kept_to_is_refused_by_field_value_rule_and_remedy() {
        let keys = |number: u32| format!("[fernet_tokens]\nmax_active_keys = {number}\n");
        let soon = "[token]\nexpiration = soon\n".to_owned();
        let at_schedule = "spec.keys.fernet.rotate.schedule";
        for (schedule, config, field, value, parts) in [
            (
                "0 3 * * *",
                keys(3),
                at_schedule,
                "0 3 * * *",
                vec![
                    "it comes again after 1d at times, so one of 3 keys goes 1d after it sealed last",
                    "a token is valid for 2d1h (token.expiration and token.allow_expired_window)",
                    "write one with 2d1h5m or more between two times",
                    "let fernet_tokens.max_active_keys in spec.config[keystone.conf] be 5 or more",
                ],
            ),
            (
                "* * * * *",
                keys(9),
                at_schedule,
                "* * * * *",
                vec![
                    "after 1m at times",
                    "up to 5m after a rotation",
                    "7h1m or more",
                ],
            ),
            (
                "0 3 * * 0",
                keys(2),
                "spec.config[keystone.conf] fernet_tokens.max_active_keys",
                "2",
                vec!["fewer than 3 keys", "3 or more"],
            ),
            (
                "0 3 * * 0",
                soon,
                "spec.config[keystone.conf] token.expiration",
                "soon",
                vec!["no number", "give it one"],
            ),
            (
                "0 3 30 2 *",
                keys(3),
                at_schedule,
                "0 3 30 2 *",
                vec!["never comes"],
            ),
            (
                "0 3 * * 0 in Berlin",
                keys(3),
                "spec.keys.fernet.rotate.timeZone",
                "Berlin",
                vec!["write Europe/Berlin"],
            ),
        ] {
            let wrong = keystone(schedule, &config).wanted().unwrap_err();
            let [problem] = wrong.as_slice() else {
                panic!("{schedule}: {wrong:?}");
            };
            assert_eq!(problem.field, format!("OpenStackService {field}"));
            assert_eq!(problem.value, value);
            for part in parts {
                assert!(problem.to_string().contains(part), "{problem}");
            }
            assert!(!problem.remedy.is_empty());
        }
        // All at once.
        let wrong = keystone("0 3 * * in Berlin", "[token]\nexpiration = soon\n");
        assert_eq!(wrong.wanted().unwrap_err().len(), 3);
        let mut elsewhere = weekly();
        elsewhere.spec.service = "placement".to_owned();
        elsewhere.spec.config.clear();
        let wrong = controller::problem::text(&elsewhere.wanted().unwrap_err());
        assert!(wrong.contains("placement has no keys of Fernet"), "{wrong}");
    }

    proptest! {
        /// Whoever looks whenever it may be, and whatever people rotate in between.
        #[test]
        fn what_is_due_is_never_refused_and_comes_once_for_each_time(
            events in prop::collection::vec((0..4_u8, 1..3000_i64), 1..60),
        ) {
            let object = keystone("0 3 * * *", "[fernet_tokens]\nmax_active_keys = 5\n");
            let scheduled = object.rotation().unwrap();
            let mut world = Observed {
                now: at("2026-11-25T12:00:00Z"),
                ..Observed::default()
            };
            let mut keys = Keys::from([(0, String::new()), (1, String::new())]);
            world.keys.since = Since::from([(1, world.now)]);
            let mut answered = BTreeSet::new();
            for (event, minutes) in events {
                world.now += SignedDuration::from_mins(minutes);
                let by_hand = event == 0;
                let is_due = scheduled.due(&world).unwrap() <= world.now;
                if !by_hand && !is_due {
                    continue;
                }
                let since = &world.keys.since;
                let rotated = rotate(&keys, since, scheduled.rule, world.now, String::new());
                if by_hand && rotated.is_err() {
                    continue;
                }
                prop_assert!(rotated.is_ok(), "{:?}", rotated);
                (keys, world.keys.since) = rotated.unwrap();
                prop_assert!(scheduled.due(&world).unwrap() > world.now);
                let time = scheduled.schedule.last(world.now).unwrap().timestamp();
                prop_assert!(by_hand || answered.insert(time), "{}", time);
            }
        }
    }
}
