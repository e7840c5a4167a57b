//! What to do about an object. Pure.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    Run,
    openstack::BackupsStatus,
    run::{Plan, RunPhase, StepPhase},
};
use controller::Problem;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use runs::{is_active, object, phase};

use crate::{
    action::Action,
    backup::{errand, standing},
    health::Down,
    hooks, names,
    release::{self, Change},
    rotation::{Noted, schedule},
    seed::look::Looked,
    subject::Resolved,
    wish::{Operation, Wanted, Wish},
};

/// Everything that the decision reads beside the object.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Its runs, oldest first.
    pub runs: Vec<Run>,
    /// What of it does not serve.
    pub unhealthy: Vec<String>,
    /// What it said when it was asked. None: it was not asked, as nothing is made of it or it goes, or a cloud.
    pub answer: Option<Result<(), Down>>,
    /// What keeps what it is made of, in the words of that.
    pub blocked_on: Option<String>,
    /// Whether a restore stopped its pods, and nobody started them since.
    pub is_stopped: bool,
    /// The restore of the cloud that it belongs to, where that is at work or left the databases half loaded.
    pub held_by: Option<Run>,
    /// What lies in the store of backups, if anybody has looked.
    pub backups: Option<BackupsStatus>,
    /// What Keystone has of a seed. None: it is none, or nobody could look.
    pub seeded: Option<Looked>,
    /// What is noted beside its keys, where they are rotated on a schedule.
    pub keys: Noted,
    /// Since when the passwords that are rotated on a schedule are in use, by the names of their Secrets.
    pub passwords: BTreeMap<String, Timestamp>,
    /// When it was looked at.
    pub now: Timestamp,
    /// Whether it goes because its whole namespace does, which takes no new objects.
    pub is_namespace_going: bool,
}

impl Observed {
    /// The runs that answer a wish, newest first. What a person had done by hand answers none, and a backup neither.
    fn answers(&self) -> impl Iterator<Item = &Run> {
        let runs = self.runs.iter().rev();
        runs.filter(|run| !is_aside(run))
    }

    /// The run that made what is there.
    pub(super) fn made(&self) -> Option<&Run> {
        self.answers().find(|run| phase(run) == RunPhase::Succeeded)
    }

    /// The newest run that names a release and began to bring the service to it, however it ended.
    fn reached(&self) -> Option<&Run> {
        self.answers().find(|run| {
            !is_of(run, Operation::Delete)
                && run.spec.plan.inputs.contains_key("release")
                && has_begun(run)
        })
    }

    /// What may be wished for after what was reached. None: nothing was made.
    ///
    /// # Errors
    ///
    /// There is no way from the one release to the other.
    pub fn change(&self, wanted: &Wanted) -> Result<Option<Change>, Problem> {
        let Some(from) = self.reached().or_else(|| self.made()) else {
            return Ok(None);
        };
        let change = release::change(&from.spec.plan.inputs, &wanted.inputs)?;
        Ok(self.was_made().then_some(change))
    }

    /// Whether what was made is of another release than what is wished for.
    fn is_between(&self, wanted: &Wanted) -> bool {
        let release =
            |inputs: &serde_json::Map<String, serde_json::Value>| inputs.get("release").cloned();
        let made = self.made().and_then(|made| release(&made.spec.plan.inputs));
        made.is_some_and(|made| release(&wanted.inputs).is_some_and(|wanted| wanted != made))
    }

    /// Why a seed is made again that this run made: Keystone has something else. Where somebody changes it in turn, runs leave time between
    /// them, and none is begun that would only fail.
    fn drift(&self, made_by: &Run) -> Option<String> {
        let looked = self.seeded.as_ref()?;
        let ended = made_by.status.as_ref()?.finished_at.as_ref()?.0;
        let is_due = self.now.duration_since(ended) >= BETWEEN_REPAIRS;
        let repairs = is_due && looked.refused.is_empty() && !looked.differs.is_empty();
        repairs.then(|| api::text::plain(&looked.told().join("; "), 1000))
    }

    /// Whether what is wished for, or was, has been made.
    pub fn was_made(&self) -> bool {
        self.made().is_some()
    }

    /// The runs that are read however old they are, by name. Without them it would be made anew.
    pub fn kept(&self) -> BTreeSet<String> {
        let read = self.answers().next().into_iter();
        let read = read.chain(self.made()).chain(self.reached());
        // Without one that ended well, an older one that did not would count again.
        let read = read.chain(restored(&self.runs));
        // Whether a backup is due is told by the run that took the last one.
        let read = read.chain(standing::newest(&self.runs));
        // And whether a rotation is.
        let read = read.chain(schedule::kept(&self.runs));
        read.map(ResourceExt::name_any).collect()
    }
}

fn is_of(run: &Run, operation: Operation) -> bool {
    run.spec.operation == operation.name()
}

fn is_aside(run: &Run) -> bool {
    Operation::ASIDE.iter().any(|aside| is_of(run, *aside))
}

/// Whether a step of the run that changes tables, or has a service changed, was begun.
fn has_begun(run: &Run) -> bool {
    let steps = run.status.iter().flat_map(|status| &status.steps);
    let mut begun = steps.filter(|step| step.phase != StepPhase::Pending);
    begun.any(|begun| {
        let of = run.spec.plan.steps.iter().find(|step| step.id == begun.id);
        of.is_some_and(|step| {
            hooks::is_instead(step)
                || matches!(Action::of(step), Some(Action::Job(_) | Action::Declare(_)))
        })
    })
}

/// The newest restore that replaced databases, or began to. A step that has begun tells nothing: it brings the backup first.
fn restored(runs: &[Run]) -> Option<&Run> {
    let mut restores = runs.iter().rev();
    restores.find(|run| {
        let has_emptied = run.annotations().contains_key(names::EMPTIED);
        is_of(run, Operation::Restore) && (has_emptied || phase(run) == RunPhase::Succeeded)
    })
}

/// The restore that left databases which are neither what was nor what is to be, if one did.
fn half_restored(runs: &[Run]) -> Option<&Run> {
    restored(runs).filter(|run| phase(run) != RunPhase::Succeeded && !has_loaded(run))
}

/// Whether the databases of a restore are whole again, or a person has said so.
fn has_loaded(run: &Run) -> bool {
    let steps = run.status.iter().flat_map(|status| &status.steps);
    let mut done =
        steps.filter(|step| matches!(step.phase, StepPhase::Succeeded | StepPhase::Skipped));
    done.any(|done| {
        let of = run.spec.plan.steps.iter().find(|step| step.id == done.id);
        matches!(of.and_then(Action::of), Some(Action::LoadBackup(_)))
    })
}

/// Of the restores of a cloud, oldest first, the one that holds its services: it is at work, or left the databases half loaded.
pub(super) fn holding(restores: &[Run]) -> Option<&Run> {
    let mut newest = restores.iter().rev();
    newest
        .find(|run| is_active(phase(run)))
        .or_else(|| half_restored(restores))
}

/// What to do.
#[derive(Clone, Debug)]
pub enum Decision {
    /// Nothing, until somebody changes something.
    Stall(Vec<Problem>),
    /// What the API refused, which no plan knows before: it is said, and tried again.
    Refused(String),
    /// Store a new run.
    Start(Box<NewRun>),
    /// Let a run go on, or stand as it ended.
    Follow(Box<Run>),
    /// End a run at the next place where it may, for a newer plan.
    Supersede(Box<Run>, String),
    /// End a run for good, because its object is being deleted.
    Cancel(Box<Run>),
    /// It is as it should be.
    Keep(Box<Run>),
    /// Let it go.
    Forget,
}

impl Decision {
    /// Whether it begins what is done beside what the object wishes for.
    pub(super) fn is_aside(&self) -> bool {
        matches!(self, Self::Start(new) if Operation::ASIDE.contains(&new.operation))
    }
}

/// A run to be stored.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Its name.
    pub name: String,
    /// What it does.
    pub operation: Operation,
    /// Its plan.
    pub plan: Plan,
    /// The annotation that asked for it, and the value of that. None: nobody asked.
    pub request: Option<(&'static str, String)>,
}

impl NewRun {
    /// Whether it came of that value of that annotation.
    pub fn is_for(&self, annotation: &str, value: &str) -> bool {
        let request = self.request.as_ref();
        request.is_some_and(|(asked, request)| *asked == annotation && request == value)
    }
}

/// Decides.
///
/// # Errors
///
/// A plan cannot be written as JSON.
pub fn plan<K: Wish>(object: &K, observed: &Observed) -> Result<Decision, serde_json::Error> {
    decide(object, &Resolved::of(object), observed)
}

/// The same of an object whose meaning is known.
///
/// # Errors
///
/// As of [`plan`].
pub(crate) fn decide<K: Wish>(
    object: &K,
    resolved: &Resolved,
    observed: &Observed,
) -> Result<Decision, serde_json::Error> {
    // What a person had done by hand has to end first, and a backup or what is done with one, and a rotation of keys.
    let mut asides = observed.runs.iter().rev().filter(|run| is_aside(run));
    let aside = asides.find(|run| is_active(phase(run)));
    let last = observed.answers().next();
    if object.meta().deletion_timestamp.is_some() {
        return deletion(object, resolved, observed, aside.or(last));
    }
    let at_work = last.filter(|run| is_active(phase(run)));
    // What is at work is of a wish that could be carried out, and leaves nothing half done.
    let refused = |problems| match at_work {
        Some(run) => Decision::Follow(Box::new(run.clone())),
        None => Decision::Stall(problems),
    };
    // A Job would change tables that are being replaced, and pods would meet them.
    if let Some(restore) = &observed.held_by {
        return Ok(Decision::Follow(Box::new(
            at_work.unwrap_or(restore).clone(),
        )));
    }
    let wanted = match &resolved.wanted {
        Ok(wanted) => wanted,
        Err(problems) => return Ok(refused(problems.clone())),
    };
    let is_for = |run: &&Run| {
        run.spec.plan.inputs == wanted.inputs
            && !is_of(run, Operation::Delete)
            // One that gave way to another wish did not make this one true, though it was this one.
            && phase(run) != RunPhase::Superseded
    };
    let is_same = |run: &&Run| {
        let operation = Operation::of_wish(&run.spec.operation);
        let steps = operation.map(|operation| wanted.steps(operation));
        is_for(run) && steps.as_ref() == Some(&run.spec.plan.steps)
    };
    // Pods would meet half of a backup, and a backup of that would drive the good ones out.
    if let Some(restore) = half_restored(&observed.runs) {
        // Another Windlass may come to the same by other steps.
        let is_made = last.is_some_and(|run| is_for(&run) && phase(run) == RunPhase::Succeeded);
        let again = match aside {
            None if is_made => errand::next_restore(object, observed, wanted)?,
            _ => None,
        };
        let at_work = aside.filter(|run| !is_of(run, Operation::Step));
        return Ok(match again {
            Some(new) => Decision::Start(Box::new(new)),
            None => Decision::Follow(Box::new(at_work.unwrap_or(restore).clone())),
        });
    }
    if let Some(run) = last.filter(is_same) {
        let run = Box::new(run.clone());
        if phase(&run) != RunPhase::Succeeded {
            return Ok(Decision::Follow(run));
        }
        if observed.is_stopped && aside.is_none() {
            let plan = wanted.plan(Operation::Update, "a restore stopped its pods")?;
            return Ok(start(object, observed, Operation::Update, plan));
        }
        if let (None, Some(drift)) = (aside, observed.drift(&run)) {
            let plan = wanted.plan(Operation::Update, &drift)?;
            return Ok(start(object, observed, Operation::Update, plan));
        }
        return Ok(match aside {
            Some(by_hand) if is_of(by_hand, Operation::Step) => Decision::Keep(run),
            Some(errand) => Decision::Follow(Box::new(errand.clone())),
            None => match aside_of(object, resolved, observed, wanted)? {
                Some(new) => Decision::Start(Box::new(new)),
                None => Decision::Keep(run),
            },
        });
    }
    if let Some(run) = aside {
        return Ok(Decision::Follow(Box::new(run.clone())));
    }
    let (operation, reason) = match observed.change(wanted) {
        Ok(None) => (Operation::Install, "it is wanted"),
        Ok(Some(Change::Release)) => (Operation::Upgrade, "another release is wanted"),
        // The run that began it did not end it: what stands at steps of upgrades stands at these.
        Ok(Some(Change::None)) if observed.is_between(wanted) => {
            (Operation::Upgrade, "another release is wanted still")
        }
        Ok(Some(Change::None)) => (Operation::Update, "what is wanted has changed"),
        Err(problem) => return Ok(refused(vec![problem])),
    };
    let plan = wanted.plan(operation, reason)?;
    Ok(match at_work {
        Some(run) => Decision::Supersede(Box::new(run.clone()), plan.digest),
        None => start(object, observed, operation, plan),
    })
}

/// What is begun for an object that is as it should be: one thing after the other.
fn aside_of<K: Wish>(
    object: &K,
    resolved: &Resolved,
    observed: &Observed,
    wanted: &Wanted,
) -> Result<Option<NewRun>, serde_json::Error> {
    match errand::next(object, observed, wanted)? {
        Some(new) => Ok(Some(new)),
        None => schedule::next(object, &resolved.rotations, observed, wanted),
    }
}

fn deletion<K: Wish>(
    object: &K,
    resolved: &Resolved,
    observed: &Observed,
    last: Option<&Run>,
) -> Result<Decision, serde_json::Error> {
    // Everything that is ours goes with the namespace, and what waits for it would keep the namespace.
    if observed.is_namespace_going {
        return Ok(Decision::Forget);
    }
    let Some(last) = last else {
        return Ok(Decision::Forget);
    };
    // What does not render, or cannot be otherwise, need not be to go: what was made of it is known.
    let wanted = resolved.wanted.clone().or_else(|problems| {
        let mut made = observed.answers();
        let removal = made.find_map(|run| object.removal(&run.spec.plan.inputs));
        removal.ok_or(problems)
    });
    let own = || Box::new(last.clone());
    let deletes = is_of(last, Operation::Delete);
    // Whoever cannot have something removed may want it to stay after all.
    let is_outdated = || {
        let wanted = wanted.as_ref();
        wanted.is_ok_and(|wanted| wanted.inputs != last.spec.plan.inputs)
    };
    match (deletes, phase(last)) {
        (true, RunPhase::Succeeded) => return Ok(Decision::Forget),
        (true, _) if !is_outdated() => return Ok(Decision::Follow(own())),
        // It may wait for ever for what need not go any more.
        (true, phase) if is_active(phase) => {
            return Ok(match wanted {
                Ok(wanted) => {
                    let plan = wanted.plan(Operation::Delete, "it is being deleted")?;
                    Decision::Supersede(own(), plan.digest)
                }
                Err(_) => Decision::Follow(own()),
            });
        }
        (false, phase) if is_active(phase) => return Ok(Decision::Cancel(own())),
        _ => {}
    }
    match wanted {
        // Everything of it stays.
        Ok(wanted) if wanted.delete.is_empty() => Ok(Decision::Forget),
        Ok(wanted) => {
            let plan = wanted.plan(Operation::Delete, "it is being deleted")?;
            Ok(start(object, observed, Operation::Delete, plan))
        }
        Err(problems) => Ok(Decision::Stall(problems)),
    }
}

fn start<K: Wish>(object: &K, observed: &Observed, operation: Operation, plan: Plan) -> Decision {
    Decision::Start(Box::new(NewRun {
        name: object::next(object, operation.name(), &observed.runs),
        operation,
        plan,
        request: None,
    }))
}

/// How long after a run that made a seed another one may mend what differs since.
const BETWEEN_REPAIRS: SignedDuration = SignedDuration::from_secs(60);

#[cfg(test)]
mod tests {
    use api::{
        openstack::{IdentitySeed, OpenStack, OpenStackService},
        run::RunStatus,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use runs::history::{self, Limits};
    use serde_json::json;

    use super::*;

    fn service(image: &str) -> OpenStackService {
        serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStackService",
            "metadata": {"name": "identity", "namespace": "cloud", "uid": "u"},
            "spec": {"service": "keystone", "image": image,
                "database": {"host": "db", "adminSecret": {"name": "admin"}}},
        }))
        .unwrap()
    }

    fn short(decision: &Decision) -> String {
        let name = |run: &Run| run.name_any().replace("openstackservice-identity-", "");
        match decision {
            Decision::Stall(_) => "stall".to_owned(),
            Decision::Refused(_) => "refused".to_owned(),
            Decision::Start(new) => {
                format!(
                    "start {}",
                    new.name.replace("openstackservice-identity-", "")
                )
            }
            Decision::Follow(run) => format!("follow {}", name(run)),
            Decision::Supersede(run, _) => format!("supersede {}", name(run)),
            Decision::Cancel(run) => format!("cancel {}", name(run)),
            Decision::Keep(run) => format!("keep {}", name(run)),
            Decision::Forget => "forget".to_owned(),
        }
    }

    /// Plans, and stores the run that is started.
    fn decide(object: &OpenStackService, world: &mut Observed) -> String {
        let decision = plan(object, world).unwrap();
        if let Decision::Start(new) = &decision {
            let run = object::of(
                object,
                new.name.clone(),
                new.operation.name(),
                1,
                new.plan.clone(),
            );
            world.runs.push(run);
        }
        short(&decision)
    }

    fn end(world: &mut Observed, phase: RunPhase) {
        world.runs.last_mut().unwrap().status = Some(RunStatus {
            phase,
            ..RunStatus::default()
        });
    }

    #[test]
    fn one_run_makes_one_wish_true() {
        let mut world = Observed::default();
        let first = service("keystone:1");
        assert_eq!(decide(&first, &mut world), "start install-1");
        assert_eq!(decide(&first, &mut world), "follow install-1");
        let other = service("keystone:2");
        assert_eq!(decide(&other, &mut world), "supersede install-1");
        end(&mut world, RunPhase::Failed);
        assert_eq!(decide(&first, &mut world), "follow install-1");
        end(&mut world, RunPhase::Succeeded);
        assert_eq!(decide(&first, &mut world), "keep install-1");
        assert_eq!(decide(&other, &mut world), "start update-2");
        let mut wrong = service("keystone:3");
        wrong.spec.config.insert("a.conf".to_owned(), String::new());
        assert_eq!(decide(&wrong, &mut world), "follow update-2");
        end(&mut world, RunPhase::Succeeded);
        assert_eq!(decide(&wrong, &mut world), "stall");
    }

    #[test]
    fn there_is_no_way_back_once_tables_are_changed() {
        let of = |release: &str| {
            let mut service = service(&format!("keystone:{release}"));
            service.spec.release = Some(release.to_owned());
            service
        };
        let mut world = Observed::default();
        assert_eq!(decide(&of("2026.1"), &mut world), "start install-1");
        end(&mut world, RunPhase::Succeeded);
        assert_eq!(decide(&of("2027.2"), &mut world), "stall");
        assert_eq!(decide(&of("2026.2"), &mut world), "start upgrade-2");
        end(&mut world, RunPhase::Failed);
        assert_eq!(decide(&of("2026.1"), &mut world.clone()), "start update-3");
        let begun = serde_json::from_value(json!({"id": "database/expand", "phase": "Failed"}));
        let status = world.runs.last_mut().unwrap().status.as_mut().unwrap();
        status.steps = vec![begun.unwrap()];
        assert_eq!(decide(&of("2026.1"), &mut world), "stall");
        assert!(world.kept().iter().any(|name| name.ends_with("upgrade-2")));
        let mut mended = of("2026.2");
        mended.spec.image = "keystone:mended".to_owned();
        assert_eq!(decide(&mended, &mut world), "start upgrade-3");
    }

    #[test]
    fn a_hook_that_changes_makes_a_new_plan_where_it_stands_in_one() {
        let with = |command: &str, operations: serde_json::Value| {
            let mut service = service("keystone:1");
            let hooks = json!([{"name": "a", "after": "database/expand", "operations": operations,
                "image": {"command": [command]}}]);
            service.spec.hooks = serde_json::from_value(hooks).unwrap();
            service
        };
        let all = || json!(null);
        let mut world = Observed::default();
        assert_eq!(decide(&with("a", all()), &mut world), "start install-1");
        assert_eq!(decide(&with("a", all()), &mut world), "follow install-1");
        // In the middle of its run.
        assert_eq!(decide(&with("b", all()), &mut world), "supersede install-1");
        end(&mut world, RunPhase::Superseded);
        assert_eq!(decide(&with("b", all()), &mut world), "start install-2");
        end(&mut world, RunPhase::Succeeded);
        assert_eq!(decide(&with("b", all()), &mut world), "keep install-2");
        assert_eq!(decide(&with("c", all()), &mut world), "start update-3");
        end(&mut world, RunPhase::Succeeded);
        // What stands in upgrades alone is none of what was made.
        let plain = service("keystone:1");
        assert_eq!(decide(&plain, &mut world), "start update-4");
        end(&mut world, RunPhase::Succeeded);
        for command in ["a", "b"] {
            let upgrades = with(command, json!(["Upgrade"]));
            assert_eq!(decide(&upgrades, &mut world), "keep update-4");
        }
    }

    #[test]
    fn an_upgrade_that_is_mended_has_the_hooks_of_upgrades() {
        let of = |release: &str, image: &str| {
            let mut service = service(image);
            service.spec.release = Some(release.to_owned());
            let hooks = json!([{"name": "look", "before": "database/contract", "operations": ["Upgrade"], "approval": "?"}]);
            service.spec.hooks = serde_json::from_value(hooks).unwrap();
            service
        };
        let mut world = Observed::default();
        assert_eq!(decide(&of("2026.1", "a"), &mut world), "start install-1");
        end(&mut world, RunPhase::Succeeded);
        assert_eq!(decide(&of("2026.2", "b"), &mut world), "start upgrade-2");
        end(&mut world, RunPhase::Failed);
        let begun = serde_json::from_value(json!({"id": "database/expand", "phase": "Failed"}));
        let status = world.runs.last_mut().unwrap().status.as_mut().unwrap();
        status.steps = vec![begun.unwrap()];
        assert_eq!(decide(&of("2026.2", "c"), &mut world), "start upgrade-3");
        let mut steps = world.runs.last().unwrap().spec.plan.steps.iter();
        assert!(steps.any(|step| step.id == "hook/look"));
    }

    #[test]
    fn what_stands_instead_of_a_job_changes_tables_too() {
        for does in [
            json!({"image": {"command": ["a"]}}),
            json!({"approval": "Did you expand them?"}),
        ] {
            let of = |release: &str| {
                let mut service = service(&format!("keystone:{release}"));
                service.spec.release = Some(release.to_owned());
                let mut hook = json!({"name": "own", "instead": "database/expand"});
                let fields = hook.as_object_mut().unwrap();
                fields.extend(does.as_object().unwrap().clone());
                service.spec.hooks = serde_json::from_value(json!([hook])).unwrap();
                service
            };
            let mut world = Observed::default();
            assert_eq!(decide(&of("2026.1"), &mut world), "start install-1");
            end(&mut world, RunPhase::Succeeded);
            assert_eq!(decide(&of("2026.2"), &mut world), "start upgrade-2");
            end(&mut world, RunPhase::Failed);
            assert_eq!(decide(&of("2026.1"), &mut world.clone()), "start update-3");
            let begun =
                serde_json::from_value(json!({"id": "database/expand", "phase": "Waiting"}));
            let status = world.runs.last_mut().unwrap().status.as_mut().unwrap();
            status.steps = vec![begun.unwrap()];
            assert_eq!(decide(&of("2026.1"), &mut world), "stall");
        }
    }

    #[test]
    fn a_wish_that_comes_back_is_made_true_though_its_run_gave_way() {
        let mut world = Observed::default();
        let first = service("keystone:1");
        assert_eq!(decide(&first, &mut world), "start install-1");
        assert_eq!(
            decide(&service("keystone:2"), &mut world),
            "supersede install-1"
        );
        assert_eq!(decide(&first, &mut world), "follow install-1");
        end(&mut world, RunPhase::Superseded);
        assert_eq!(decide(&first, &mut world), "start install-2");
    }

    #[test]
    fn nothing_of_a_service_is_begun_while_a_restore_holds_it() {
        let mut world = Observed::default();
        let first = service("keystone:1");
        assert_eq!(decide(&first, &mut world), "start install-1");
        let name = "openstack-one-restore-2".to_owned();
        let restore = object::of(&first, name, Operation::Restore.name(), 1, Plan::default());
        world.held_by = Some(restore);
        let other = service("keystone:2");
        assert_eq!(decide(&other, &mut world), "follow install-1");
        end(&mut world, RunPhase::Succeeded);
        world.is_stopped = true;
        // Also where another Windlass has other steps for it.
        world.runs[0].spec.plan.steps.pop();
        for wish in [&first, &other] {
            let followed = decide(wish, &mut world);
            assert_eq!(followed, "follow openstack-one-restore-2");
        }
        world.held_by = None;
        assert_eq!(decide(&other, &mut world), "start update-2");
    }

    #[test]
    fn a_service_that_a_restore_stopped_is_started_once_nothing_holds_it() {
        let mut world = Observed::default();
        let object = service("keystone:1");
        assert_eq!(decide(&object, &mut world), "start install-1");
        end(&mut world, RunPhase::Succeeded);
        world.unhealthy = vec!["Deployment identity-api is stopped".to_owned()];
        // By a person.
        assert_eq!(decide(&object, &mut world), "keep install-1");
        world.is_stopped = true;
        assert_eq!(decide(&object, &mut world), "start update-2");
        let steps = world.runs[1].spec.plan.steps.iter();
        let mut actions = steps.filter_map(Action::of);
        assert!(actions.any(|action| action == Action::Deploy));
        assert_eq!(decide(&object, &mut world), "follow update-2");
        end(&mut world, RunPhase::Succeeded);
        world.is_stopped = false;
        assert_eq!(decide(&object, &mut world), "keep update-2");
    }

    #[test]
    fn who_cannot_have_a_database_removed_may_keep_it() {
        let mut world = Observed::default();
        let mut going = service("keystone:1");
        assert_eq!(decide(&going, &mut world), "start install-1");
        end(&mut world, RunPhase::Succeeded);
        going.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        going.spec.on_delete = Some(api::openstack::OnDelete::Delete);
        assert_eq!(decide(&going, &mut world), "start delete-2");
        end(&mut world, RunPhase::Failed);
        assert_eq!(decide(&going, &mut world), "follow delete-2");
        going.spec.on_delete = None;
        assert_eq!(decide(&going, &mut world), "start delete-3");
    }

    #[test]
    fn what_cannot_be_any_more_goes_as_what_was_made_of_it() {
        let mut world = Observed::default();
        let mut going = service("keystone:1");
        assert_eq!(decide(&going, &mut world), "start install-1");
        end(&mut world, RunPhase::Succeeded);
        // Text of before is a template now.
        let text = "[DEFAULT]\ntransport_url = {{ not set }}\n".to_owned();
        going.spec.config.insert("keystone.conf".to_owned(), text);
        assert_eq!(decide(&going, &mut world), "stall");
        going.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        going.spec.on_delete = Some(api::openstack::OnDelete::Delete);
        assert_eq!(decide(&going, &mut world), "start delete-2");
        let deletes = |world: &Observed| {
            let plan = &world.runs.last().unwrap().spec.plan;
            assert_eq!(plan.inputs["image"], "keystone:1");
            let ids = plan.steps.iter().map(|step| step.id.clone());
            ids.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            deletes(&world),
            "releases/remove database/drop secrets/remove"
        );
        end(&mut world, RunPhase::Failed);
        assert_eq!(decide(&going, &mut world), "follow delete-2");
        going.spec.on_delete = None;
        assert_eq!(decide(&going, &mut world), "start delete-3");
        assert_eq!(deletes(&world), "releases/remove");
        end(&mut world, RunPhase::Succeeded);
        assert_eq!(decide(&going, &mut world), "forget");
        // Nothing is known of what another Windlass made.
        world.runs.truncate(1);
        let inputs = &mut world.runs[0].spec.plan.inputs;
        inputs.insert("unknown".to_owned(), json!(1));
        assert_eq!(decide(&going, &mut world), "stall");
    }

    #[test]
    fn a_cloud_and_a_seed_that_cannot_be_any_more_go_too() {
        fn ids<K: Wish>(object: &K, going: &K) -> String {
            let of = |decision| match decision {
                Decision::Start(new) => *new,
                other => panic!("{other:?}"),
            };
            let made = of(plan(object, &Observed::default()).unwrap());
            let run = object::of(object, made.name, "Install", 1, made.plan);
            let mut world = Observed::default();
            world.runs.push(run);
            end(&mut world, RunPhase::Succeeded);
            assert!(going.wanted().is_err());
            let going = of(plan(going, &world).unwrap());
            let ids = going.plan.steps.into_iter().map(|step| step.id);
            ids.collect::<Vec<_>>().join(" ")
        }
        let now = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        let cloud: OpenStack = serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStack",
            "metadata": {"name": "one", "namespace": "cloud", "uid": "u"},
            "spec": {"database": {"managed": {"image": "db"}}, "onDelete": "Delete",
                "services": [{"name": "keystone", "image": "k"}]},
        }))
        .unwrap();
        let mut going = cloud.clone();
        going.spec.config = Some("a = {{ not set }}".to_owned());
        going.metadata.deletion_timestamp.clone_from(&now);
        assert_eq!(ids(&cloud, &going), "services/remove database/remove");
        let seed: IdentitySeed = serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "IdentitySeed",
            "metadata": {"name": "people", "namespace": "cloud", "uid": "u"},
            "spec": {"cloud": "one", "roles": ["reader"], "onDelete": "Delete"},
        }))
        .unwrap();
        let mut going = seed.clone();
        going.spec.roles.push("READER".to_owned());
        going.metadata.deletion_timestamp = now;
        assert_eq!(ids(&seed, &going), "seed/remove");
    }

    #[test]
    fn what_was_done_by_hand_drives_no_answer_out() {
        let mut world = Observed::default();
        let object = service("keystone:1");
        let by_hand = |number: usize| {
            let name = format!("openstackservice-identity-step-{number}");
            object::of(&object, name, Operation::Step.name(), 1, Plan::default())
        };
        world.runs.push(by_hand(1));
        end(&mut world, RunPhase::Succeeded);
        assert!(!world.was_made(), "a step is not the whole");
        assert_eq!(decide(&object, &mut world), "start install-2");
        end(&mut world, RunPhase::Succeeded);
        assert_eq!(decide(&service("keystone:2"), &mut world), "start update-3");
        end(&mut world, RunPhase::Cancelled);
        for number in 4..40 {
            world.runs.push(by_hand(number));
            end(&mut world, RunPhase::Succeeded);
        }
        let (limits, now) = (Limits::default(), jiff::Timestamp::UNIX_EPOCH);
        let runs: Vec<_> = world.runs.iter().collect();
        let gone = history::surplus(&runs, &limits, &world.kept(), now);
        let gone: BTreeSet<_> = gone.into_iter().map(ResourceExt::name_any).collect();
        world.runs.retain(|run| !gone.contains(&run.name_any()));
        assert!(world.runs.len() < 25, "{}", world.runs.len());
        assert!(world.was_made());
        assert_eq!(
            decide(&service("keystone:2"), &mut world),
            "follow update-3"
        );
    }

    #[test]
    fn what_goes_is_removed_first_unless_everything_goes() {
        let mut going = service("keystone:1");
        let mut world = Observed::default();
        assert_eq!(decide(&going, &mut world), "start install-1");
        going.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(decide(&going, &mut Observed::default()), "forget");
        assert_eq!(decide(&going, &mut world), "cancel install-1");
        end(&mut world, RunPhase::Cancelled);
        let mut all = world.clone();
        all.is_namespace_going = true;
        assert_eq!(decide(&going, &mut all), "forget");
        assert_eq!(decide(&going, &mut world), "start delete-2");
        // Whoever waits for a server that is away may let everything stay.
        let mut retained = going.clone();
        going.spec.on_delete = Some(api::openstack::OnDelete::Delete);
        assert_eq!(decide(&going, &mut world), "supersede delete-2");
        end(&mut world, RunPhase::Superseded);
        assert_eq!(decide(&going, &mut world), "start delete-3");
        assert_eq!(decide(&going, &mut world), "follow delete-3");
        std::mem::swap(&mut going, &mut retained);
        assert_eq!(decide(&going, &mut world), "supersede delete-3");
        end(&mut world, RunPhase::Superseded);
        assert_eq!(decide(&going, &mut world), "start delete-4");
        end(&mut world, RunPhase::Failed);
        assert_eq!(decide(&going, &mut world), "follow delete-4");
        end(&mut world, RunPhase::Succeeded);
        assert_eq!(decide(&going, &mut world), "forget");
    }

    #[test]
    fn a_seed_is_made_again_where_keystone_differs_and_not_all_the_time() {
        let seed: IdentitySeed = serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "IdentitySeed",
            "metadata": {"name": "people", "namespace": "cloud", "uid": "u"},
            "spec": {"cloud": "one", "roles": ["reader"]},
        }))
        .unwrap();
        let decide = |seed: &IdentitySeed, world: &mut Observed| match plan(seed, world).unwrap() {
            Decision::Start(new) => {
                let operation = new.operation.name();
                let run = object::of(seed, new.name.clone(), operation, 1, new.plan.clone());
                world.runs.push(run);
                format!("start {operation}")
            }
            Decision::Keep(_) => "keep".to_owned(),
            Decision::Follow(_) => "follow".to_owned(),
            Decision::Forget => "forget".to_owned(),
            other => format!("{other:?}"),
        };
        let ended = |world: &mut Observed| {
            end(world, RunPhase::Succeeded);
            let status = world.runs.last_mut().unwrap().status.as_mut().unwrap();
            status.finished_at = Some(Time(Timestamp::UNIX_EPOCH));
        };
        let mut world = Observed::default();
        assert_eq!(decide(&seed, &mut world), "start Install");
        ended(&mut world);
        assert_eq!(decide(&seed, &mut world), "keep");
        let drift = Looked {
            differs: vec!["role reader".to_owned()],
            ..Looked::default()
        };
        world.seeded = Some(drift.clone());
        assert_eq!(
            decide(&seed, &mut world),
            "keep",
            "a moment ago it was made"
        );
        world.now = Timestamp::UNIX_EPOCH + BETWEEN_REPAIRS;
        world.seeded = Some(Looked {
            refused: vec!["somebody else's".to_owned()],
            ..drift.clone()
        });
        assert_eq!(decide(&seed, &mut world), "keep", "a run would fail");
        world.seeded = Some(drift);
        assert_eq!(decide(&seed, &mut world), "start Update");
        let reason = world.runs.last().unwrap().spec.plan.reason.clone();
        assert_eq!(reason.unwrap(), "Keystone differs in role reader");
        assert_eq!(decide(&seed, &mut world), "follow");
        ended(&mut world);

        // It goes, and nobody is asked for anything unless something of it goes along.
        let mut going = seed;
        going.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(decide(&going, &mut world.clone()), "forget");
        going.spec.on_delete = Some(api::openstack::OnDelete::Delete);
        assert_eq!(decide(&going, &mut world), "start Delete");
        end(&mut world, RunPhase::Failed);
        assert_eq!(decide(&going, &mut world), "follow");
        going.spec.on_delete = None;
        assert_eq!(
            decide(&going, &mut world),
            "forget",
            "who cannot have it removed lets it stay"
        );
    }
}
