//! Rotation on a schedule: whether a schedule can be kept to, when the next rotation is due, and its run. Pure.
//!
//! A schedule of keys is proved before it is taken: by [`Rule::least_gap`], with the shortest time between two of its times. A rotation that
//! comes late, or that a person had done between two times, is beyond that proof; so each one waits for [`earliest`], too, and is then not
//! refused by the step. Of a schedule of passwords it is asked only that one rotation is over before the next.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    Run,
    openstack::{OpenStack, OpenStackService, Password, RotationSchedule, RotationStatus},
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
    cloud::{self, database_server},
    config::Merged,
    definition::{ADMIN, DATABASE, Definition, IDENTITY, StepDefinition},
    names,
    subject::{Decision, NewRun, Observed},
    wish::{Operation, Wanted, Wish, unwritable},
};

/// What is rotated on a schedule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rotated {
    /// The keys of Fernet.
    Fernet,
    /// The user of a service's database.
    Database,
    /// The user of a service in Keystone.
    Identity,
    /// The password of Keystone's administrator.
    Administrator,
    /// The password of a managed database server's administrator.
    DatabaseServer,
}

impl Rotated {
    /// Where its schedule stands.
    const fn field(self) -> &'static str {
        match self {
            Self::Fernet => "OpenStackService spec.keys.fernet.rotate",
            Self::Database => "OpenStackService spec.passwords.database.rotate",
            Self::Identity => "OpenStackService spec.passwords.identity.rotate",
            Self::Administrator => "OpenStackService spec.passwords.administrator.rotate",
            Self::DatabaseServer => "OpenStack spec.passwords.databaseServer.rotate",
        }
    }

    fn schedule(self) -> String {
        format!("{}.schedule", self.field())
    }

    /// What it is, for people.
    const fn told(self) -> &'static str {
        match self {
            Self::Fernet => "the keys",
            Self::Database => "the user of its database",
            Self::Identity => "its user in Keystone",
            Self::Administrator => "the password of the administrator",
            Self::DatabaseServer => "the password of the database server's administrator",
        }
    }

    /// The Secret with it, by the word behind the name of the object.
    const fn word(self) -> &'static str {
        match self {
            Self::Fernet => "fernet-keys",
            Self::Database => DATABASE,
            Self::Identity => IDENTITY,
            Self::Administrator | Self::DatabaseServer => ADMIN,
        }
    }

    fn is_done_by(self, action: &Action) -> bool {
        match self {
            Self::Fernet => {
                matches!(action, Action::RotateKeys(rotation) if rotation.secret == self.word())
            }
            Self::Database => *action == Action::RotateAccount,
            Self::Identity => *action == Action::RotateIdentity,
            Self::Administrator => *action == Action::RotateAdministrator,
            Self::DatabaseServer => *action == Action::RotateServerAdministrator,
        }
    }

    /// The step of a service that does it, if the service has such a thing.
    fn step(self, definition: &Definition) -> Option<&StepDefinition> {
        let mut steps = definition.by_hand.iter();
        steps.find(|step| self.is_done_by(&step.does))
    }
}

/// Something that is rotated on a schedule that can be kept to.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduled {
    what: Rotated,
    schedule: Recurrence,
    /// Of keys: when one may go.
    rule: Option<Rule>,
    secret: String,
    step: Step,
}

/// How long has to lie between two rotations of a password at least: as long as one may take.
const BETWEEN_PASSWORDS: SignedDuration = SignedDuration::from_hours(1);

/// What a service with these configuration files says of what is rotated.
///
/// # Errors
///
/// Everything that is wrong with it: keys or passwords that it has not, a schedule that is none, one that comes too often, one that would
/// have a valid token refused.
pub fn of_service(
    service: &OpenStackService,
    definition: &Definition,
    files: &BTreeMap<String, Merged>,
) -> Result<Vec<Scheduled>, Vec<Problem>> {
    let keys = of_keys(service, definition, files).transpose();
    let passwords = service.spec.passwords.clone().unwrap_or_default();
    let passwords = [
        (Rotated::Database, passwords.database),
        (Rotated::Identity, passwords.identity),
        (Rotated::Administrator, passwords.administrator),
    ];
    let passwords = passwords.into_iter().filter_map(|(what, password)| {
        let written = rotate(password.as_ref())?;
        Some(of_password(what, written, service, definition))
    });
    collected(keys.into_iter().chain(passwords))
}

/// What a cloud says of what is rotated, beside its services.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn of_cloud(cloud: &OpenStack) -> Result<Vec<Scheduled>, Vec<Problem>> {
    let what = Rotated::DatabaseServer;
    let passwords = cloud.spec.passwords.as_ref();
    let Some(written) = passwords.and_then(|all| rotate(all.database_server.as_ref())) else {
        return Ok(Vec::new());
    };
    if cloud.spec.database.managed.is_none() {
        let rule = "an external database server's password is for whoever runs that";
        let problem = Problem::new(what.field(), &written.schedule, rule, "leave it out");
        return Err(vec![problem]);
    }
    let step = cloud::rotation().map_err(|error| unwritable(&error))?;
    let secret = names::secret(&database_server(&cloud.name_any()), what.word());
    Ok(vec![Scheduled {
        what,
        schedule: rare_enough(what, written)?,
        rule: None,
        secret,
        step,
    }])
}

fn rotate(password: Option<&Password>) -> Option<&RotationSchedule> {
    password?.rotate.as_ref()
}

fn collected(
    all: impl Iterator<Item = Result<Scheduled, Vec<Problem>>>,
) -> Result<Vec<Scheduled>, Vec<Problem>> {
    let (mut read, mut problems) = (Vec::new(), Vec::new());
    for one in all {
        match one {
            Ok(scheduled) => read.push(scheduled),
            Err(wrong) => problems.extend(wrong),
        }
    }
    if problems.is_empty() {
        Ok(read)
    } else {
        Err(problems)
    }
}

fn of_keys(
    service: &OpenStackService,
    definition: &Definition,
    files: &BTreeMap<String, Merged>,
) -> Result<Option<Scheduled>, Vec<Problem>> {
    let what = Rotated::Fernet;
    let keys = service.spec.keys.as_ref();
    let Some(written) = keys.and_then(|keys| keys.fernet.as_ref()?.rotate.as_ref()) else {
        return Ok(None);
    };
    let rotates = what.step(definition);
    let Some((rotates, Action::RotateKeys(rotation))) = rotates.map(|step| (step, &step.does))
    else {
        let rule = format!("{} has no keys of Fernet", definition.name);
        return Err(vec![absent(what, written, rule)]);
    };
    let (schedule, rule) = match (recurrence(what, written), rule(rotation, files)) {
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
        what,
        schedule,
        rule: Some(rule),
        secret: names::secret(&service.name_any(), &rotation.secret),
        step: step.map_err(|error| unwritable(&error))?,
    }))
}

fn of_password(
    what: Rotated,
    written: &RotationSchedule,
    service: &OpenStackService,
    definition: &Definition,
) -> Result<Scheduled, Vec<Problem>> {
    let name = &definition.name;
    let Some(rotates) = what.step(definition) else {
        let rule = match what {
            Rotated::Identity => format!("{name} has no user in Keystone"),
            _ => format!("{name} has no administrator"),
        };
        return Err(vec![absent(what, written, rule)]);
    };
    let step = rotates.does.step(&rotates.id, &rotates.title, None);
    Ok(Scheduled {
        what,
        schedule: rare_enough(what, written)?,
        rule: None,
        secret: names::secret(&service.name_any(), what.word()),
        step: step.map_err(|error| unwritable(&error))?,
    })
}

fn absent(what: Rotated, written: &RotationSchedule, rule: String) -> Problem {
    Problem::new(what.field(), &written.schedule, rule, "leave it out")
}

fn recurrence(what: Rotated, written: &RotationSchedule) -> Result<Recurrence, Vec<Problem>> {
    let zone = format!("{}.timeZone", what.field());
    Recurrence::read(
        (&written.schedule, &what.schedule()),
        (written.time_zone.as_deref(), &zone),
    )
}

/// A schedule of a password.
fn rare_enough(what: Rotated, written: &RotationSchedule) -> Result<Recurrence, Vec<Problem>> {
    let schedule = recurrence(what, written)?;
    let gap = schedule.shortest_gap(BETWEEN_PASSWORDS);
    let Some(gap) = gap.filter(|gap| *gap < BETWEEN_PASSWORDS) else {
        return Ok(schedule);
    };
    let least = shown(BETWEEN_PASSWORDS);
    Err(vec![Problem::new(
        what.schedule(),
        &written.schedule,
        format!(
            "it comes again after {} at times, and a rotation of {} may take {least}",
            shown(gap),
            what.told()
        ),
        format!("write one with {least} or more between two times"),
    )])
}

fn rule(rotation: &Rotation, files: &BTreeMap<String, Merged>) -> Result<Rule, Problem> {
    let nothing = Merged::default();
    let file = files.get(&rotation.file).unwrap_or(&nothing);
    Rule::of(file, rotation).map_err(|setting| {
        Problem::new(
            place(rotation, setting),
            value(file, setting).unwrap_or_default(),
            "it is no number, and by it a schedule of rotations is proved to have no valid token refused",
            format!("give it one, or take {} out", Rotated::Fernet.field()),
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
    written: &RotationSchedule,
    rotation: &Rotation,
) -> Option<Problem> {
    let keep = rule.keep;
    let Some(least) = rule.least_gap() else {
        return Some(Problem::new(
            place(rotation, &rotation.keep),
            keep,
            "with fewer than 3 keys each rotation makes tokens invalid at once",
            format!(
                "let it be 3 or more, or take {} out",
                Rotated::Fernet.field()
            ),
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
    let field = Rotated::Fernet.schedule();
    Some(Problem::new(field, &written.schedule, why, remedy))
}

fn shown(time: SignedDuration) -> api::Duration {
    api::Duration::from_seconds(time.as_secs().unsigned_abs())
}

/// The newest run of each thing that was to rotate it because it was time.
pub fn kept(runs: &[Run]) -> impl Iterator<Item = &Run> {
    let mut seen = BTreeSet::new();
    let newest = runs.iter().rev().filter(|run| is_rotation(run));
    newest.filter(move |run| seen.insert(run.spec.plan.steps.first().map(|step| &step.id)))
}

fn is_rotation(run: &Run) -> bool {
    run.spec.operation == Operation::Rotate.name()
}

/// What is begun for an object that is as it should be and of which something is to be rotated by now: what is due for the longest time.
/// What does not serve is seen to first.
///
/// # Errors
///
/// A plan cannot be written as JSON.
pub fn next<K: Wish>(
    object: &K,
    rotations: &[Scheduled],
    observed: &Observed,
    wanted: &Wanted,
) -> Result<Option<NewRun>, serde_json::Error> {
    if !observed.unhealthy.is_empty() {
        return Ok(None);
    }
    let all = rotations.iter();
    let due = all.filter_map(|scheduled| Some((scheduled.due(observed)?, scheduled)));
    let due = due.filter(|(due, _)| *due <= observed.now);
    let Some((due, scheduled)) = due.min_by_key(|(due, _)| *due) else {
        return Ok(None);
    };
    let alone = Wanted {
        install: vec![scheduled.step.clone()],
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
    /// What is rotated.
    pub const fn what(&self) -> Rotated {
        self.what
    }

    /// The Secret with the keys or the password.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// When the next rotation is due. However many times have passed without one, it is one.
    pub fn due(&self, observed: &Observed) -> Option<Timestamp> {
        let now = observed.now;
        let last = self.begun(observed).max(self.rotated(observed));
        let missed = self.schedule.last(now).map(|time| time.timestamp());
        let missed = missed.filter(|time| last.is_none_or(|last| last < *time));
        let time = match missed {
            Some(missed) => missed,
            None => self.schedule.next(now)?.timestamp(),
        };
        let Some(rule) = self.rule else {
            return Some(time);
        };
        let rule = Rule {
            lifetime: rule.lifetime.max(observed.keys.lifetime),
            ..rule
        };
        // Where it would be refused at any time, the step says why to people.
        let from = earliest(&observed.keys.since, rule).unwrap_or(Timestamp::MIN);
        Some(time.max(from))
    }

    /// How it stands.
    pub fn told(&self, decision: &Decision, observed: &Observed) -> RotationStatus {
        let due = self.due(observed);
        RotationStatus {
            rotated_at: self.rotated(observed).and_then(whole),
            due_at: due.and_then(whole),
            message: self.message(due, decision, observed),
        }
    }

    /// The newest run that was to rotate it because it was time.
    fn newest<'a>(&self, observed: &'a Observed) -> Option<&'a Run> {
        let mut newest = observed.runs.iter().rev().filter(|run| is_rotation(run));
        newest.find(|run| self.is_step(&run.spec.plan.steps))
    }

    fn is_step(&self, steps: &[Step]) -> bool {
        steps.iter().any(|step| step.id == self.step.id)
    }

    /// When the last rotation that was due was begun, whatever became of it: it is not begun again before the next time.
    fn begun(&self, observed: &Observed) -> Option<Timestamp> {
        let run = self.newest(observed)?;
        let begun = run.metadata.creation_timestamp.as_ref()?.0;
        is_past(begun, observed.now).then_some(begun)
    }

    /// Since when the key that seals does, or the password is in use.
    fn rotated(&self, observed: &Observed) -> Option<Timestamp> {
        let since = match self.what {
            Rotated::Fernet => observed.keys.since.values().next_back().copied(),
            _ => observed.passwords.get(&self.secret).copied(),
        };
        since.filter(|since| is_past(*since, observed.now))
    }

    fn message(
        &self,
        due: Option<Timestamp>,
        decision: &Decision,
        observed: &Observed,
    ) -> Option<String> {
        let is_own =
            |new: &NewRun| new.operation == Operation::Rotate && self.is_step(&new.plan.steps);
        if matches!(decision, Decision::Start(new) if is_own(new)) {
            return None;
        }
        if due.is_some_and(|due| due <= observed.now) {
            let waits =
                "a rotation is due, and waits until no run is at work and everything of it serves";
            return Some(waits.to_owned());
        }
        let failed = self.newest(observed);
        let failed = failed.filter(|run| phase(run) == RunPhase::Failed)?;
        // Somebody may have had it rotated since.
        (self.rotated(observed) <= self.begun(observed)).then(|| {
            let (name, what) = (failed.name_any(), self.what.told());
            format!("run {name}, which was to rotate {what}, failed: windlass logs {name}")
        })
    }
}

/// In full seconds, as times of objects are written.
fn whole(time: Timestamp) -> Option<Time> {
    Timestamp::from_second(time.as_second()).ok().map(Time)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use api::{
        openstack::Passwords,
        run::{Plan, RunStatus},
    };
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{
        rotation::{Keys, Since},
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

    fn status(object: &OpenStackService, world: &Observed) -> RotationStatus {
        let decision = plan(object, world).unwrap();
        object.rotations()[0].told(&decision, world)
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

    fn passwords(written: serde_json::Value) -> Option<Passwords> {
        serde_json::from_value(written).unwrap()
    }

    #[test]
    fn what_is_due_for_the_longest_time_is_rotated_first_each_by_a_run_of_its_own() {
        let mut object = weekly();
        object.spec.passwords = passwords(json!({
            "database": {"rotate": {"schedule": "0 1 * * 0"}},
            "administrator": {"rotate": {"schedule": "0 2 * * 0"}},
            "identity": {},
        }));
        let mut world = made(&object);
        let (database, admin) = ("identity-database", "identity-admin");
        for secret in [database, admin] {
            world.passwords.insert(secret.to_owned(), world.now);
        }
        assert_eq!(decide(&object, &mut world), "keep install-1");
        let told = |world: &Observed, at: usize| {
            let decision = plan(&object, world).unwrap();
            object.rotations()[at].told(&decision, world)
        };
        let due = Some(Time(super::tests::at("2026-11-29T02:00:00Z")));
        assert_eq!(told(&world, 2).due_at, due);
        world.now = at("2026-11-29T03:00:00Z");
        for (run, step, secret) in [
            ("rotate-2", "database/rotate", Some(database)),
            ("rotate-3", "administrator/rotate", Some(admin)),
            ("rotate-4", "keys/rotate", None),
        ] {
            assert_eq!(decide(&object, &mut world), format!("start {run}"));
            let steps = &world.runs.last().unwrap().spec.plan.steps;
            assert_eq!(steps[0].id, step);
            assert_eq!(decide(&object, &mut world), format!("follow {run}"));
            match secret {
                Some(secret) => {
                    world.passwords.insert(secret.to_owned(), world.now);
                    // Of the keys nobody is told so.
                    end(&mut world, RunPhase::Succeeded);
                }
                None => rotated_now(&mut world),
            }
        }
        assert_eq!(decide(&object, &mut world), "keep install-1");
        for at in 0..3 {
            let told = told(&world, at);
            assert_eq!(told.rotated_at, Some(Time(world.now)));
            let next = told.due_at.unwrap().0;
            assert_eq!(
                next.duration_since(world.now).as_hours() / 24,
                if at == 0 { 7 } else { 6 }
            );
        }
        // That of the keys is read still, though others came after it.
        world.now = at("2026-12-06T01:30:00Z");
        assert_eq!(decide(&object, &mut world), "start rotate-5");
        end(&mut world, RunPhase::Failed);
        let failed = told(&world, 1).message.unwrap();
        assert!(
            failed.contains("rotate-5, which was to rotate the user of its database"),
            "{failed}"
        );
        assert_eq!(told(&world, 2).message, None);
        assert_eq!(decide(&object, &mut world), "keep install-1");
        for run in ["rotate-3", "rotate-4", "rotate-5"] {
            assert!(world.kept().iter().any(|name| name.ends_with(run)), "{run}");
        }
    }

    #[test]
    fn a_cloud_rotates_the_password_of_its_own_database_server_alone() {
        let cloud = |database: serde_json::Value| -> OpenStack {
            serde_json::from_value(json!({
                "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStack",
                "metadata": {"name": "one", "namespace": "cloud", "uid": "u"},
                "spec": {"database": database, "services": [{"name": "keystone", "image": "k"}],
                    "passwords": {"databaseServer": {"rotate": {"schedule": "0 3 1 * *"}}}},
            }))
            .unwrap()
        };
        let external = cloud(json!({"external": {"host": "db", "adminSecret": {"name": "a"}}}));
        let refused = controller::problem::text(&external.wanted().unwrap_err());
        assert!(
            refused.contains("OpenStack spec.passwords.databaseServer.rotate"),
            "{refused}"
        );
        assert_eq!(external.rotations(), []);
        let managed = cloud(json!({"managed": {"image": "db"}}));
        let [scheduled] = managed.rotations().try_into().unwrap();
        assert_eq!(scheduled.secret(), "one-mariadb-admin");
        let wanted = managed.wanted().unwrap();
        assert_eq!(wanted.by_hand, [scheduled.step]);
        let mut without = managed.clone();
        without.spec.passwords = None;
        assert_eq!(without.wanted().unwrap(), wanted);
    }

    #[test]
    fn a_schedule_of_a_password_that_is_not_there_or_comes_too_often_is_refused() {
        let often = [
            "it comes again after 30m at times",
            "may take 1h",
            "1h or more",
        ];
        for (service, which, schedule, field, parts) in [
            (
                "keystone",
                "identity",
                "0 3 * * 0",
                "",
                &["keystone has no user in Keystone"][..],
            ),
            (
                "placement",
                "administrator",
                "0 3 * * 0",
                "",
                &["placement has no administrator"],
            ),
            ("keystone", "database", "*/30 * * * *", ".schedule", &often),
            ("placement", "identity", "*/30 * * * *", ".schedule", &often),
            (
                "keystone",
                "administrator",
                "0 3 30 2 *",
                ".schedule",
                &["never comes"],
            ),
        ] {
            let mut object = keystone("0 3 * * 0", "");
            object.spec.keys = None;
            if service != "keystone" {
                object.spec.service = service.to_owned();
                object.spec.config.clear();
                let identity =
                    json!({"url": "http://k.cloud.svc:5000/v3", "adminSecret": {"name": "a"}});
                object.spec.identity = serde_json::from_value(identity).unwrap();
            }
            let of = |schedule: &str| passwords(json!({which: {"rotate": {"schedule": schedule}}}));
            object.spec.passwords = of(schedule);
            let wrong = object.wanted().unwrap_err();
            let [problem] = wrong.as_slice() else {
                panic!("{service} {which}: {wrong:?}");
            };
            let field = format!("OpenStackService spec.passwords.{which}.rotate{field}");
            assert_eq!(problem.field, field);
            assert_eq!(problem.value, schedule);
            for part in parts {
                assert!(problem.to_string().contains(part), "{problem}");
            }
            assert_eq!(object.rotations(), []);
            object.spec.passwords = of("0 * * * *");
            assert_eq!(object.wanted().is_ok(), !field.ends_with("rotate"));
        }
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
        assert_eq!(without.rotations(), []);
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
        assert!(refused.contains(Rotated::Fernet.field()), "{refused}");
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
            assert_eq!(object.rotations().len(), 1, "{schedule}");
        }
        // There one of the days has 23 hours.
        let berlin = "0 3 * * * in Europe/Berlin";
        assert_eq!(keystone(berlin, days).rotations(), []);
        let shorter = days.replace("79200", "72000");
        assert_eq!(keystone(berlin, &shorter).rotations().len(), 1);
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
            let scheduled = object.rotations().remove(0);
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
                let rotated = super::super::rotate(&keys, since, scheduled.rule.unwrap(), world.now, String::new());
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
