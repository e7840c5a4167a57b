//! What people ask of a cloud's backups by annotations, what is done then, and how each value is answered. Pure.
//!
//! A value is answered once: by a Run, which carries it, or by a refusal; the answer is kept in the status. The Run is stored first, so
//! that after a crash between the two it is the answer, and no request is lost or carried out twice.

use api::{
    Run,
    cluster::ConvergeRequest,
    openstack::{self, Standing},
    run::{Plan, RunPhase},
};
use controller::Problem;
use kube::ResourceExt;
use runs::{is_active, object, phase};
use snapshots::Name;

use crate::{
    action::{Action, Brought, in_order},
    backup::{FIELD, Input, standing},
    subject::{Decision, NewRun, Observed},
    wish::{Operation, Wanted, Wish},
};

/// How much of a request is remembered.
const LENGTH: usize = 512;

/// What is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Errand {
    /// A backup.
    Backup,
    /// A backup brought back beside the cloud, and compared.
    Drill,
    /// The cloud brought back to a backup.
    Restore,
}

impl Errand {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Backup, Self::Drill, Self::Restore];

    /// The annotation that asks for it.
    pub const fn annotation(self) -> &'static str {
        match self {
            Self::Backup => openstack::BACKUP,
            Self::Drill => openstack::DRILL,
            Self::Restore => openstack::RESTORE,
        }
    }

    /// What its run does.
    pub const fn operation(self) -> Operation {
        match self {
            Self::Backup => Operation::Backup,
            Self::Drill => Operation::Drill,
            Self::Restore => Operation::Restore,
        }
    }

    /// The last answer.
    pub const fn answered(self, standing: &Standing) -> Option<&ConvergeRequest> {
        match self {
            Self::Backup => standing.backup.as_ref(),
            Self::Drill => standing.drill.as_ref(),
            Self::Restore => standing.restore.as_ref(),
        }
    }

    /// The request that no answer is known to.
    fn open<K: Wish>(self, object: &K) -> Option<String> {
        let value = object.annotations().get(self.annotation())?;
        let asked: String = value.chars().take(LENGTH).collect();
        let answered = object
            .standing()
            .and_then(|standing| self.answered(standing));
        let is_answered = answered.is_some_and(|answered| answered.request == asked);
        (!is_answered).then_some(asked)
    }

    fn is_for(self, run: &Run, request: &str) -> bool {
        run.annotations().get(self.annotation()).map(String::as_str) == Some(request)
    }

    /// The request that is open and that no run carries out.
    fn wanted<K: Wish>(self, object: &K, observed: &Observed) -> Option<String> {
        let mut runs = observed.runs.iter();
        self.open(object)
            .filter(|request| !runs.any(|run| self.is_for(run, request)))
    }

    /// What a request means, for the cloud of this name.
    ///
    /// # Errors
    ///
    /// It names no backup, or is not confirmed.
    fn read(self, cloud: &str, request: &str) -> Result<Option<Brought>, Problem> {
        if self == Self::Backup {
            return Ok(None);
        }
        let field = format!("OpenStack metadata.annotations {}", self.annotation());
        let mut words = request.split_whitespace();
        let name = words.next().unwrap_or_default().parse::<Name>();
        let name = name.map_err(|error| {
            let remedy = "see which there are: windlass openstack backups";
            Problem::new(&field, "", error.to_string(), remedy)
        })?;
        let mut brought = Brought {
            name: name.to_string(),
            from: None,
        };
        let mut confirmed = None;
        for word in words {
            if let Some(cluster) = word.strip_prefix("from=") {
                brought.from = Some(api::text::plain(cluster, 64));
            } else if let Some(cloud) = word.strip_prefix("confirm=") {
                confirmed = Some(cloud.to_owned());
            }
        }
        if self == Self::Restore && confirmed.as_deref() != Some(cloud) {
            let remedy = format!(
                "write confirm={cloud} (windlass openstack restore: add --confirm {cloud})"
            );
            let rule =
                "what was written since the backup is lost, and nobody who names the cloud said so";
            let confirmed = confirmed.unwrap_or_default();
            return Err(Problem::new(field, confirmed, rule, remedy));
        }
        Ok(Some(brought))
    }

    fn steps(self, brought: Option<&Brought>) -> Vec<(&'static str, &'static str, Action)> {
        let of = || brought.cloned().unwrap_or_default();
        match self {
            Self::Backup => vec![
                (
                    "store/check",
                    "Check that the store can be used",
                    Action::CheckStore,
                ),
                (
                    "backup/save",
                    "Save the databases and the keys, and read them back",
                    Action::SaveBackup,
                ),
                (
                    "backup/keep",
                    "Remove backups that are kept no longer",
                    Action::KeepBackups,
                ),
            ],
            Self::Drill => vec![
                (
                    "drill/load",
                    "Bring the backup, load it beside the cloud's databases, and compare them",
                    Action::DrillLoad(of()),
                ),
                (
                    "drill/login",
                    "Have a Keystone of its own know its administrator",
                    Action::DrillLogin(of()),
                ),
                (
                    "drill/clear",
                    "Remove what the drill made",
                    Action::DrillClear(of()),
                ),
            ],
            Self::Restore => vec![
                (
                    "backup/check",
                    "Bring the backup, and check that it is whole and this cloud's",
                    Action::CheckBackup(of()),
                ),
                ("services/stop", "Stop the services", Action::StopServices),
                (
                    "database/load",
                    "Bring the databases back, compare them, and bring the keys and passwords back",
                    Action::LoadBackup(of()),
                ),
                (
                    "services/start",
                    "Start the services, and wait until they serve",
                    Action::StartServices,
                ),
                (
                    "identity/seed",
                    "Mend the services' users and their places in the catalogue",
                    Action::SeedServices(of()),
                ),
                (
                    "identity/token",
                    "Have a token issued and validated",
                    Action::LogIn,
                ),
            ],
        }
    }

    fn plan(
        self,
        wanted: &Wanted,
        backup: &openstack::Backup,
        (why, brought): (&str, Option<&Brought>),
    ) -> Result<Plan, serde_json::Error> {
        let mut inputs = wanted.inputs.clone();
        inputs.insert(
            "backup".to_owned(),
            serde_json::to_value(Input::of(backup))?,
        );
        let mut plan = Plan {
            reason: Some(why.to_owned()),
            inputs,
            steps: in_order(self.steps(brought))?,
            ..Plan::default()
        };
        plan.digest = workflow::plan::digest_of(self.operation().name(), &plan)?;
        Ok(plan)
    }

    /// The run of it. None: the object has no backups.
    fn start<K: Wish>(
        self,
        object: &K,
        observed: &Observed,
        wanted: &Wanted,
        (why, brought, request): (&str, Option<&Brought>, Option<(&'static str, String)>),
    ) -> Result<Option<NewRun>, serde_json::Error> {
        let Some(backup) = object.backup() else {
            return Ok(None);
        };
        let operation = self.operation();
        Ok(Some(NewRun {
            name: object::next(object, operation.name(), &observed.runs),
            operation,
            plan: self.plan(wanted, backup, (why, brought))?,
            request,
        }))
    }
}

/// What is begun for an object that is as it should be, if somebody asks for something or a backup is due.
///
/// # Errors
///
/// A plan cannot be written as JSON.
pub fn next<K: Wish>(
    object: &K,
    observed: &Observed,
    wanted: &Wanted,
) -> Result<Option<NewRun>, serde_json::Error> {
    if let Some(asked) = next_of(&Errand::ALL, object, observed, wanted)? {
        return Ok(Some(asked));
    }
    let due = object
        .backup()
        .and_then(|backup| standing::due(backup, observed));
    match due {
        Some(why) => Errand::Backup.start(object, observed, wanted, (&why, None, None)),
        None => Ok(None),
    }
}

/// What is begun for an object whose databases a restore left half loaded: another restore, if somebody asks for one.
///
/// # Errors
///
/// A plan cannot be written as JSON.
pub fn next_restore<K: Wish>(
    object: &K,
    observed: &Observed,
    wanted: &Wanted,
) -> Result<Option<NewRun>, serde_json::Error> {
    next_of(&[Errand::Restore], object, observed, wanted)
}

fn next_of<K: Wish>(
    errands: &[Errand],
    object: &K,
    observed: &Observed,
    wanted: &Wanted,
) -> Result<Option<NewRun>, serde_json::Error> {
    let cloud = object.name_any();
    for errand in errands {
        let Some(request) = errand.wanted(object, observed) else {
            continue;
        };
        if let Ok(brought) = errand.read(&cloud, &request) {
            let request = Some((errand.annotation(), request));
            let asked = ("somebody asked for it", brought.as_ref(), request);
            return errand.start(object, observed, wanted, asked);
        }
    }
    Ok(None)
}

/// The answers to open requests, if the decision is one.
pub fn answers<K: Wish>(
    object: &K,
    decision: &Decision,
    observed: &Observed,
) -> Vec<(Errand, ConvergeRequest)> {
    let answer = |errand: Errand| {
        let request = errand.open(object)?;
        let answer = errand.answer(object, &request, (decision, observed))?;
        let (run, refused) = match answer {
            Ok(run) => (Some(run), None),
            Err(why) => (None, Some(api::text::lines(&why, 2048))),
        };
        let answer = ConvergeRequest {
            request,
            run,
            refused,
        };
        Some((errand, answer))
    };
    if !K::HAS_BACKUPS {
        return Vec::new();
    }
    let all = Errand::ALL.into_iter();
    all.filter_map(answer).collect()
}

impl Errand {
    /// The run that carries a request out, or why none does. None: that comes.
    fn answer<K: Wish>(
        self,
        object: &K,
        request: &str,
        (decision, observed): (&Decision, &Observed),
    ) -> Option<Result<String, String>> {
        if let Some(run) = observed.runs.iter().find(|run| self.is_for(run, request)) {
            return Some(Ok(run.name_any()));
        }
        let under_way = |run: &str| {
            format!(
                "run {run} is under way: ask again when it has ended, or end it: windlass cancel {run}"
            )
        };
        let wrong = || {
            let read = self.read(&object.name_any(), request);
            read.err().map(|problem| problem.to_string())
        };
        match decision {
            // What was refused is tried again.
            Decision::Cancel(_) | Decision::Forget | Decision::Refused(_) => None,
            Decision::Start(new) if new.is_for(self.annotation(), request) => {
                Some(Ok(new.name.clone()))
            }
            Decision::Start(new) => {
                let first = || format!("run {} comes first: ask again when it has ended", new.name);
                Some(Err(wrong().unwrap_or_else(first)))
            }
            Decision::Stall(problems) => Some(Err(format!(
                "this must be corrected first: {}",
                controller::problem::text(problems)
            ))),
            Decision::Supersede(run, _) => Some(Err(under_way(&run.name_any()))),
            Decision::Follow(run) if is_active(phase(run)) => Some(Err(under_way(&run.name_any()))),
            Decision::Follow(run) if run.spec.operation == Operation::Restore.name() => {
                let half = || half_restored(run);
                // What is wrong with a further restore is what its writer must hear of.
                let wrong = wrong().filter(|_| self == Self::Restore);
                Some(Err(wrong.unwrap_or_else(half)))
            }
            Decision::Follow(run) => Some(Err(format!(
                "run {run} did not make the cloud what it is to be: see to that first (windlass logs {run}), then ask again",
                run = run.name_any()
            ))),
            Decision::Keep(_) if object.backup().is_none() => Some(Err(format!(
                "{FIELD}: it is not set, so there is no place for backups; write its store and its encryption"
            ))),
            Decision::Keep(_) => wrong().map(Err),
        }
    }
}

/// What is to be done about a restore that did not end well.
pub fn half_restored(run: &Run) -> String {
    let (name, namespace) = (run.name_any(), run.namespace().unwrap_or_default());
    let retry = if phase(run) == RunPhase::Failed {
        format!("retry it (windlass retry {name}), or ")
    } else {
        String::new()
    };
    format!(
        "restore {name} left the databases half loaded, and nothing else is begun on them: {retry}restore a backup, with the spec as it \
         was; where you have mended them by other means, delete it (kubectl -n {namespace} delete run {name}), and the services start on \
         what is there"
    )
}

#[cfg(test)]
mod tests {
    use api::{openstack::OpenStack, run::RunStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;
    use crate::{names, subject::plan};

    fn cloud(annotations: &serde_json::Value, schedule: Option<&str>) -> OpenStack {
        serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStack",
            "metadata": {"name": "one", "namespace": "cloud", "uid": "u", "annotations": annotations},
            "spec": {
                "database": {"managed": {"image": "db"}}, "services": [{"name": "keystone", "image": "k"}],
                "backup": {"store": {"directory": "/srv"}, "schedule": schedule,
                    "encryption": {"passphraseSecretRef": {"name": "p"}}},
            },
        }))
        .unwrap()
    }

    /// Plans, and stores the run that is started as it would be.
    fn decide(cloud: &OpenStack, world: &mut Observed) -> (String, Vec<(Errand, ConvergeRequest)>) {
        let decision = plan(cloud, world).unwrap();
        let answers = answers(cloud, &decision, world);
        let told = match &decision {
            Decision::Start(new) => {
                let plan = new.plan.clone();
                let mut run = object::of(cloud, new.name.clone(), new.operation.name(), 1, plan);
                run.metadata.creation_timestamp = Some(Time(world.now));
                if let Some((annotation, request)) = &new.request {
                    let annotations = run.annotations_mut();
                    annotations.insert((*annotation).to_owned(), request.clone());
                }
                world.runs.push(run);
                format!("start {}", new.name)
            }
            Decision::Follow(run) => format!("follow {}", run.name_any()),
            Decision::Keep(run) => format!("keep {}", run.name_any()),
            other => format!("{other:?}"),
        };
        (told.replace("openstack-one-", ""), answers)
    }

    fn end(world: &mut Observed, phase: RunPhase) {
        world.runs.last_mut().unwrap().status = Some(RunStatus {
            phase,
            ..RunStatus::default()
        });
    }

    fn made() -> Observed {
        let mut world = Observed {
            now: "2026-11-25T12:00:00Z".parse().unwrap(),
            ..Observed::default()
        };
        decide(&cloud(&json!({}), None), &mut world);
        end(&mut world, RunPhase::Succeeded);
        world
    }

    #[test]
    fn each_request_is_answered_once() {
        let mut world = made();
        let asked = cloud(&json!({openstack::BACKUP: "a"}), None);
        let (told, answers) = decide(&asked, &mut world);
        assert_eq!(told, "start backup-2");
        assert_eq!(answers[0].1.run.as_deref(), Some("openstack-one-backup-2"));
        let steps: Vec<_> = world.runs[1]
            .spec
            .plan
            .steps
            .iter()
            .map(|step| step.id.as_str())
            .collect();
        assert_eq!(steps, ["store/check", "backup/save", "backup/keep"]);
        // Another one meanwhile has to be asked for again.
        let both = cloud(
            &json!({openstack::BACKUP: "a", openstack::DRILL: "2026-11-25T03-30-00Z b"}),
            None,
        );
        let (told, answers) = decide(&both, &mut world);
        assert_eq!(told, "follow backup-2");
        assert_eq!(answers.len(), 2);
        assert!(
            answers[1]
                .1
                .refused
                .as_ref()
                .unwrap()
                .contains("is under way")
        );
        end(&mut world, RunPhase::Failed);
        assert_eq!(decide(&asked, &mut world).0, "keep install-1");
        let again = cloud(&json!({openstack::BACKUP: "b"}), None);
        assert_eq!(decide(&again, &mut world).0, "start backup-3");
    }

    #[test]
    fn what_is_not_confirmed_is_refused() {
        let mut world = made();
        for (request, why) in [
            ("", "no name of a backup"),
            ("../x confirm=one", "no name of a"),
            ("2026-11-25T03-30-00Z", "write confirm=one"),
            ("2026-11-25T03-30-00Z confirm=two", "write confirm=one"),
        ] {
            let asked = cloud(&json!({openstack::RESTORE: request}), None);
            let (told, answers) = decide(&asked, &mut world);
            assert_eq!(told, "keep install-1", "{request}");
            let refused = answers[0].1.refused.clone().unwrap();
            assert!(
                refused.contains(why) || refused.contains("no name of a"),
                "{refused}"
            );
            assert!(refused.contains(openstack::RESTORE), "{refused}");
        }
        let confirmed = "2026-11-25T03-30-00Z confirm=one from=u-1 now";
        let asked = cloud(&json!({openstack::RESTORE: confirmed}), None);
        assert_eq!(decide(&asked, &mut world).0, "start restore-2");
        let steps = &world.runs[1].spec.plan.steps;
        let brought = Brought {
            name: "2026-11-25T03-30-00Z".into(),
            from: Some("u-1".into()),
        };
        assert_eq!(
            Action::of(&steps[0]),
            Some(Action::CheckBackup(brought.clone()))
        );
        let seed = steps.iter().find(|step| step.id == "identity/seed");
        let seed = Action::of(seed.unwrap());
        assert_eq!(seed, Some(Action::SeedServices(brought)));
        let place = |id: &str| steps.iter().position(|step| step.id == id).unwrap();
        assert!(place("services/stop") < place("database/load"));
        assert!(place("database/load") < place("services/start"));
        assert!(place("services/start") < place("identity/seed"));
    }

    #[test]
    fn a_drill_begins_with_the_step_that_notes_that_it_began() {
        let mut world = made();
        let asked = cloud(&json!({openstack::DRILL: "2026-11-25T03-30-00Z"}), None);
        assert_eq!(decide(&asked, &mut world).0, "start drill-2");
        let steps = &world.runs[1].spec.plan.steps;
        let first = Action::of(&steps[0]);
        assert!(matches!(first, Some(Action::DrillLoad(_))), "{first:?}");
    }

    /// The last run ends, and the last of its steps that has begun is this one.
    fn end_at(world: &mut Observed, phase: RunPhase, step: &serde_json::Value) {
        end(world, phase);
        let status = world.runs.last_mut().unwrap().status.as_mut().unwrap();
        status.steps = vec![serde_json::from_value(step.clone()).unwrap()];
    }

    /// As the step notes it before it empties a database.
    fn empty(world: &mut Observed) {
        let run = world.runs.last_mut().unwrap();
        let now = "2026-11-25T12:00:00Z".to_owned();
        run.annotations_mut().insert(names::EMPTIED.to_owned(), now);
    }

    #[test]
    fn a_restore_that_ended_in_the_middle_is_followed_by_no_backup_and_no_other_wish() {
        let nightly = |annotations| cloud(&annotations, Some("0 3 * * *"));
        let first = nightly(json!({openstack::RESTORE: "2026-11-25T03-30-00Z confirm=one a"}));
        for (phase, step) in [
            (
                RunPhase::Failed,
                json!({"id": "database/load", "phase": "Failed"}),
            ),
            // Retried, and cancelled before the step was begun again.
            (
                RunPhase::Cancelled,
                json!({"id": "database/load", "phase": "Pending", "attempt": 1}),
            ),
        ] {
            let mut world = made();
            assert_eq!(decide(&first, &mut world).0, "start restore-2");
            end_at(&mut world, phase, &step);
            empty(&mut world);
            // By a Windlass that plans other steps.
            world.runs[0].spec.plan.steps.pop();
            assert_eq!(decide(&first, &mut world).0, "follow restore-2", "{step}");
            let mut edited = first.clone();
            edited.spec.services[0].image = "k:2".to_owned();
            assert_eq!(decide(&edited, &mut world).0, "follow restore-2", "{step}");
            let (told, answers) = decide(&nightly(json!({openstack::BACKUP: "b"})), &mut world);
            assert_eq!(told, "follow restore-2", "{step}");
            let refused = answers[0].1.refused.clone().unwrap();
            let retry = "windlass retry openstack-one-restore-2";
            assert_eq!(refused.contains(retry), phase == RunPhase::Failed);
            let delete = "kubectl -n cloud delete run openstack-one-restore-2";
            assert!(refused.contains(delete), "{refused}");
            assert!(world.kept().contains("openstack-one-restore-2"));
            let unconfirmed = nightly(json!({openstack::RESTORE: "2026-11-25T03-30-00Z"}));
            let (told, answers) = decide(&unconfirmed, &mut world);
            assert_eq!(told, "follow restore-2", "{step}");
            let refused = answers[0].1.refused.clone().unwrap();
            assert!(refused.contains("write confirm=one"), "{refused}");
            let second = nightly(json!({openstack::RESTORE: "2026-11-24T03-30-00Z confirm=one b"}));
            assert_eq!(decide(&second, &mut world).0, "start restore-3");
            assert_eq!(decide(&second, &mut world).0, "follow restore-3");
            // Whoever mended the databases by other means deletes what holds them.
            let mut mended = world.clone();
            mended.runs.truncate(1);
            assert_eq!(decide(&edited, &mut mended).0, "start update-2");
            end(&mut world, RunPhase::Succeeded);
            world.runs[0].spec.plan.steps = first.wanted().unwrap().install;
            assert_eq!(decide(&second, &mut world).0, "start backup-4");
        }
    }

    #[test]
    fn a_restore_that_left_the_databases_whole_holds_nothing_up() {
        let request = json!({openstack::RESTORE: "2026-11-25T03-30-00Z confirm=one"});
        let asked = cloud(&request, Some("0 3 * * *"));
        let mut edited = asked.clone();
        edited.spec.services[0].image = "k:2".to_owned();
        for (step, has_emptied) in [
            (json!({"id": "backup/check", "phase": "Failed"}), false),
            // The store did not answer, and it was retried in vain.
            (
                json!({"id": "database/load", "phase": "Failed", "attempt": 2}),
                false,
            ),
            // What failed came after it.
            (json!({"id": "database/load", "phase": "Succeeded"}), true),
            (json!({"id": "database/load", "phase": "Skipped"}), true),
        ] {
            let mut world = made();
            assert_eq!(decide(&asked, &mut world).0, "start restore-2");
            if has_emptied {
                empty(&mut world);
            }
            assert_eq!(decide(&edited, &mut world).0, "follow restore-2", "{step}");
            end_at(&mut world, RunPhase::Failed, &step);
            let mut another = world.clone();
            assert_eq!(decide(&edited, &mut another).0, "start update-3", "{step}");
            assert_eq!(decide(&asked, &mut world).0, "start backup-3", "{step}");
        }
    }

    #[test]
    fn a_restore_that_did_not_get_that_far_makes_no_earlier_one_whole() {
        let mut world = made();
        let request = |word: &str| {
            let value = format!("2026-11-25T03-30-00Z confirm=one {word}");
            cloud(&json!({openstack::RESTORE: value}), Some("0 3 * * *"))
        };
        assert_eq!(decide(&request("a"), &mut world).0, "start restore-2");
        let step = json!({"id": "database/load", "phase": "Failed"});
        end_at(&mut world, RunPhase::Failed, &step);
        empty(&mut world);
        assert_eq!(decide(&request("b"), &mut world).0, "start restore-3");
        end_at(&mut world, RunPhase::Failed, &step);
        assert_eq!(decide(&request("b"), &mut world).0, "follow restore-2");
    }

    #[test]
    fn a_cloud_that_is_not_made_or_keeps_no_backups_refuses() {
        let mut none = cloud(&json!({openstack::BACKUP: "a"}), None);
        none.spec.backup = None;
        let mut world = made();
        let (_, answers) = decide(&none, &mut world);
        assert!(
            answers[0]
                .1
                .refused
                .as_ref()
                .unwrap()
                .contains("spec.backup")
        );
        let asked = cloud(&json!({openstack::BACKUP: "a"}), None);
        let (told, answers) = decide(&asked, &mut Observed::default());
        assert_eq!(told, "start install-1");
        assert!(
            answers[0]
                .1
                .refused
                .as_ref()
                .unwrap()
                .contains("comes first")
        );
    }

    #[test]
    fn one_is_taken_by_itself_when_its_time_has_come() {
        let scheduled = cloud(&json!({}), Some("0 3 * * *"));
        let mut world = made();
        assert_eq!(decide(&scheduled, &mut world).0, "start backup-2");
        end(&mut world, RunPhase::Failed);
        assert_eq!(decide(&scheduled, &mut world).0, "keep install-1");
        let settings = scheduled.spec.backup.clone().unwrap();
        let (_, reason, message) = standing::judge(&settings, &world);
        assert_eq!(reason, "NoBackup");
        assert!(message.contains("openstack-one-backup-2"), "{message}");
        world.now = "2026-11-26T03:00:01Z".parse().unwrap();
        assert_eq!(decide(&scheduled, &mut world).0, "start backup-3");
        assert!(world.kept().iter().any(|name| name.ends_with("backup-3")));
        let seen = json!({"place": "/srv", "seenAt": world.now, "count": 1, "kept": [
            {"name": "2026-11-26T03-00-01Z", "state": "Verified", "takenAt": world.now},
        ]});
        world.backups = Some(serde_json::from_value(seen).unwrap());
        assert_eq!(standing::judge(&settings, &world).1, "BackupVerified");
        world.now = "2026-11-27T05:00:00Z".parse().unwrap();
        assert_eq!(standing::judge(&settings, &world).1, "BackupOverdue");
    }
}
