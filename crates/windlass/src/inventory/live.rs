//! `windlass inventory` on the API: what an edit changes, and how a roll-out is steered.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, bail, ensure};
use api::inventory::{
    Rollout, RolloutControl, RolloutPhase, RolloutRun, RolloutState, WaveApproval, WaveApprovalSpec,
};
use fleet::plan::Error;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    cli::{Global, OfRollout, PlanInventory, SkipCluster},
    client::{answered, named_or_only},
    manifest::Opener,
    terminal::{text, told},
};

/// Says which clusters change, and what becomes of their machines. Who may not read Machines is told their number by replicas.
pub(super) async fn plan(global: &Global, options: &PlanInventory) -> anyhow::Result<ExitCode> {
    let client = global.client().await?;
    let edits = match options.filename.as_slice() {
        [] => {
            let objects = objects(&client, &global.namespace).await?;
            ensure!(
                objects
                    .iter()
                    .any(|object| object["kind"] == "FleetCluster"),
                "the namespace {} has no FleetCluster: name that of the fleet with --namespace",
                global.namespace
            );
            Vec::new()
        }
        files => super::values(&Opener::new(&options.age_keys), files)?,
    };
    let mut plan = said(fleet::plan::plan(&client, &global.namespace, edits).await)?;
    say_unread(plan.unread);
    super::hide(&mut plan.changes, [&plan.fleet])?;
    super::print_changes(&plan.changes, options.output)?;
    Ok(if plan.changes.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The inventory of a namespace.
pub(super) async fn objects(client: &Client, namespace: &str) -> anyhow::Result<Vec<Value>> {
    said(fleet::plan::objects_of(client, namespace).await)
}

/// What the API said, in words for people.
fn said<T>(result: Result<T, Error>) -> anyhow::Result<T> {
    match result {
        Err(Error::Api(what, error)) => answered(Err(error), &what),
        Err(Error::Inventory(problems)) => Err(problems.into()),
        Err(error) => Err(anyhow::Error::new(error).context("failed to plan")),
        Ok(done) => Ok(done),
    }
}

/// Says why Machines were counted by replicas, where they were.
pub(super) fn say_unread(error: Option<kube::Error>) {
    if let Some(error) = error.map(anyhow::Error::new) {
        eprintln!(
            "windlass: Machines are counted by replicas, as they cannot be read: {}",
            text(&told(&error))
        );
    }
}

/// Steers a roll-out.
pub(super) async fn steer(
    global: &Global,
    of: &OfRollout,
    verb: Verb<'_>,
) -> anyhow::Result<ExitCode> {
    let client = global.client().await?;
    let rollout = pick(&client, of.rollout.as_deref(), &global.namespace).await?;
    ask(client, rollout, |rollout| control(rollout, verb)).await
}

/// Lets the wave begin that waits for it, by an object: whoever may approve need not be able to write Rollouts.
pub(super) async fn approve(global: &Global, of: &OfRollout) -> anyhow::Result<ExitCode> {
    let client = global.client().await?;
    let rollout = pick(&client, of.rollout.as_deref(), &global.namespace).await?;
    let approval = approval(&rollout)?;
    let parameters = PostParams {
        field_manager: Some(manager(&client).await),
        ..PostParams::default()
    };
    let (name, wave) = (rollout.name_any(), approval.spec.wave.clone());
    let approvals = Api::<WaveApproval>::namespaced(client, &global.namespace);
    let created = approvals.create(&parameters, &approval).await;
    answered(
        created,
        &format!("approve the wave {wave} of roll-out {name}"),
    )?;
    println!("roll-out {name} may begin the wave {wave}");
    Ok(ExitCode::SUCCESS)
}

/// Writes what is asked of a roll-out, as it was read. The operator writes its status at any time, most of all after an edit, and then
/// the version that was read is the stored one no more: it is read again, and asked of that.
pub(super) async fn ask(
    client: Client,
    rollout: Rollout,
    wanted: impl Fn(&Rollout) -> anyhow::Result<(RolloutControl, String)>,
) -> anyhow::Result<ExitCode> {
    let parameters = PatchParams {
        field_manager: Some(manager(&client).await),
        ..PatchParams::default()
    };
    let namespace = rollout.namespace().unwrap_or_default();
    let api = Api::<Rollout>::namespaced(client, &namespace);
    let name = rollout.name_any();
    let run = open(&rollout).map(|run| run.id.clone());
    let mut read = rollout;
    for _ in 0..ATTEMPTS {
        let (control, effect) = wanted(&read)?;
        let body = Patch::Merge(body(&read, &control));
        let patched = api.patch(&name, &parameters, &body).await;
        if !matches!(&patched, Err(kube::Error::Api(status)) if status.is_conflict()) {
            answered(patched, &format!("steer roll-out {name}"))?;
            println!("roll-out {name} {effect}");
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(BETWEEN).await;
        let again = api.get(&name).await;
        read = answered(again, &format!("read roll-out {name} again"))?;
        ensure!(
            open(&read).map(|run| &run.id) == run.as_ref(),
            "roll-out {name} has come to another run meanwhile, so nothing was asked of it: look at it (kubectl get rollouts), and run the \
             command again if it is still to be"
        );
    }
    bail!(
        "roll-out {name} was written by others {ATTEMPTS} times while this was to be, so nothing was asked of it: run the command again in a \
         moment"
    )
}

/// How often a roll-out is read again that others write, and how long after the last time.
const ATTEMPTS: usize = 10;
const BETWEEN: Duration = Duration::from_millis(200);

/// The patch that makes the controls these and no others: a field that a merge leaves out stays, and would speak of another run from then on.
fn body(rollout: &Rollout, control: &RolloutControl) -> Value {
    let RolloutControl {
        state,
        run,
        approved,
        skip,
    } = control;
    let said = |names: &Vec<String>| (!names.is_empty()).then(|| names.clone());
    json!({
        "metadata": {"resourceVersion": rollout.resource_version()},
        "spec": {"control": {"state": state, "run": run, "approved": said(approved), "skip": said(skip)}},
    })
}

/// Whom the API takes us for, as the field manager of what we ask: the record of a run says by it who let a wave begin. An API that does
/// not tell, or not us, refuses nothing by that: then it is Windlass alone.
async fn manager(client: &Client) -> String {
    let reviews = Api::<SelfSubjectReview>::all(client.clone());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await;
    let user = review
        .ok()
        .and_then(|review| review.status?.user_info?.username);
    manager_of(user.as_deref())
}

fn manager_of(user: Option<&str>) -> String {
    match user.filter(|user| !user.is_empty()) {
        Some(user) => api::text::plain(&format!("windlass:{user}"), LONGEST_MANAGER),
        None => "windlass".to_owned(),
    }
}

/// Bytes of a field manager, by the API.
const LONGEST_MANAGER: usize = 128;

/// Leaves a cluster out.
pub(super) async fn skip(global: &Global, options: &SkipCluster) -> anyhow::Result<ExitCode> {
    let of = OfRollout {
        rollout: options.rollout.clone(),
    };
    steer(global, &of, Verb::Skip(&options.cluster)).await
}

/// What somebody wants of a roll-out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb<'a> {
    Pause,
    Resume,
    Abort,
    Skip(&'a str),
}

/// The controls that follow, and what they do. A verb that would do nothing is refused.
fn control(rollout: &Rollout, verb: Verb<'_>) -> anyhow::Result<(RolloutControl, String)> {
    let name = rollout.name_any();
    let mut control = rollout.spec.control.clone().unwrap_or_default();
    let open = || open(rollout).with_context(|| no_run(&name));
    let effect = match verb {
        Verb::Pause => {
            control.state = Some(RolloutState::Paused);
            "begins no other cluster, and no other run".to_owned()
        }
        Verb::Resume => {
            let status = rollout.status.clone().unwrap_or_default();
            ensure!(
                asked(rollout) != RolloutState::Running,
                "roll-out {name} is neither paused, aborted nor to be rolled back, it is {:?}: {}",
                status.phase.unwrap_or_default(),
                status
                    .waits
                    .unwrap_or_else(|| "kubectl get rollouts".to_owned())
            );
            control.state = Some(RolloutState::Running);
            return Ok((control, "goes on".to_owned()));
        }
        Verb::Abort => {
            let run = open()?;
            control = of_run(control, &run.id);
            control.state = Some(RolloutState::Aborted);
            format!(
                "ends run {}: those under way go on, no other is begun",
                run.id
            )
        }
        Verb::Skip(cluster) => {
            let run = open()?;
            let names: Vec<_> = run
                .clusters
                .iter()
                .map(|member| member.name.as_str())
                .collect();
            ensure!(
                names.contains(&cluster),
                "run {} of roll-out {name} has no cluster {cluster}; it has {}",
                run.id,
                names.join(", ")
            );
            control = of_run(control, &run.id);
            if !control.skip.iter().any(|known| known == cluster) {
                control.skip.push(cluster.to_owned());
            }
            format!("leaves {cluster} out, unless it is under way")
        }
    };
    let forgotten =
        wanted_back(rollout).filter(|_| control.state != Some(RolloutState::RolledBack));
    let forgotten = forgotten.map(|run| {
        format!("; that run {run} be taken back is asked for no more: ask again when it may be")
    });
    Ok((control, effect + &forgotten.unwrap_or_default()))
}

/// The run that is under way.
pub(super) fn open(rollout: &Rollout) -> Option<&RolloutRun> {
    let run = rollout.status.as_ref()?.run.as_ref()?;
    Some(run).filter(|run| run.ended.is_none())
}

/// What was said so far, where it was said of this run. Of what was said of another one, that the roll-out is paused alone counts for this
/// one too: approvals, clusters that are left out, and that it is to end or to be taken back were never said of it.
fn of_run(control: RolloutControl, run: &str) -> RolloutControl {
    if control.run.as_deref() == Some(run) {
        return control;
    }
    let is_held = |state: &RolloutState| *state == RolloutState::Paused;
    RolloutControl {
        state: control.state.filter(is_held),
        run: Some(run.to_owned()),
        ..RolloutControl::default()
    }
}

/// What is asked for that counts: of a run that has ended, that it is aborted is not.
fn asked(rollout: &Rollout) -> RolloutState {
    let control = rollout.spec.control.clone().unwrap_or_default();
    let state = control.state.unwrap_or_default();
    let is_open = open(rollout).is_some_and(|run| control.run.as_ref() == Some(&run.id));
    match state {
        RolloutState::Aborted if !is_open => RolloutState::Running,
        RolloutState::RolledBack if !is_open && wanted_back(rollout).is_none() => {
            RolloutState::Running
        }
        state => state,
    }
}

/// The run that has ended, and is to be taken back as soon as that can be.
fn wanted_back(rollout: &Rollout) -> Option<&str> {
    let control = rollout.spec.control.as_ref()?;
    let status = rollout.status.as_ref()?;
    let run = control.run.as_deref()?;
    let mut history = status.history.iter();
    let record = history.find(|record| record.id == run)?;
    // One that was aborted is not taken back, nor one that was already.
    let is_over = matches!(
        record.phase,
        RolloutPhase::Aborted | RolloutPhase::RolledBack
    );
    let history = status.history.iter().map(|record| &record.rolls_back);
    let mut backs = history.chain(status.run.iter().map(|run| &run.rolls_back));
    let is_back = backs.any(|back| back.as_deref() == Some(run));
    let is_wanted = control.state == Some(RolloutState::RolledBack);
    (is_wanted && !is_over && !is_back).then_some(run)
}

/// The approval of the wave that waits for one.
fn approval(rollout: &Rollout) -> anyhow::Result<WaveApproval> {
    let name = rollout.name_any();
    let run = open(rollout).with_context(|| no_run(&name))?;
    let status = rollout.status.clone().unwrap_or_default();
    let phase = status.phase.unwrap_or_default();
    ensure!(
        phase == RolloutPhase::WaitingForApproval,
        "roll-out {name} waits for no approval, it is {phase:?}"
    );
    let wave = status.wave.unwrap_or_default();
    let Some((_, wave)) = wave.split_once(' ') else {
        bail!("roll-out {name} does not say which wave waits")
    };
    Ok(WaveApproval {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            // Of no use to anything once that is gone.
            owner_references: rollout.owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: WaveApprovalSpec {
            rollout: name,
            run: run.id.clone(),
            wave: wave.to_owned(),
        },
    })
}

fn no_run(rollout: &str) -> String {
    format!("roll-out {rollout} has no run under way")
}

pub(super) async fn pick(
    client: &Client,
    name: Option<&str>,
    namespace: &str,
) -> anyhow::Result<Rollout> {
    named_or_only(&Api::namespaced(client.clone(), namespace), name).await
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;

    use super::*;

    #[test]
    fn the_record_of_a_run_can_say_who_asked() {
        assert_eq!(
            manager_of(Some("alice@acme.example")),
            "windlass:alice@acme.example"
        );
        assert_eq!(manager_of(Some("")), "windlass");
        assert_eq!(manager_of(None), "windlass");
        let long = manager_of(Some(&"a".repeat(300)));
        assert!(long.len() <= 128, "{long}");
    }

    #[tokio::test]
    async fn a_status_that_is_written_meanwhile_keeps_nobody_from_asking() {
        let directory = tempfile::tempdir().unwrap();
        let server = kapi::Server::open(kapi::Options {
            data_dir: directory.path().to_owned(),
            crds: api::inventory::definitions(),
            listen: None,
        })
        .await
        .unwrap();
        let client = Client::new(server.router(), "fleet");
        let api = Api::<Rollout>::namespaced(client.clone(), "fleet");
        let space: Namespace =
            serde_json::from_value(json!({"metadata": {"name": "fleet"}})).unwrap();
        let spaces = Api::<Namespace>::all(client.clone());
        spaces.create(&PostParams::default(), &space).await.unwrap();
        let mut made = rollout("Running", json!("Paused"));
        made.metadata.namespace = Some("fleet".to_owned());
        api.create(&PostParams::default(), &made).await.unwrap();
        let usual = PatchParams::default();
        let written = async |run: &str| {
            let mut status = json!(made.status);
            status["run"]["id"] = json!(run);
            let status = Patch::Merge(json!({"status": status}));
            let written = api.patch_status("all", &usual, &status).await;
            written.unwrap()
        };
        let stale = written("new").await;
        let status = Patch::Merge(json!({"status": {"done": "0/1"}}));
        api.patch_status("all", &usual, &status).await.unwrap();
        let wanted = |rollout: &Rollout| control(rollout, Verb::Skip("shop"));
        ask(client.clone(), stale.clone(), wanted).await.unwrap();
        let stored = api.get("all").await.unwrap().spec.control.unwrap();
        assert_eq!(
            (stored.run.as_deref(), stored.skip),
            (Some("new"), vec!["shop".to_owned()])
        );

        written("newer").await;
        let refused = ask(client, stale, wanted).await.unwrap_err().to_string();
        assert!(refused.contains("has come to another run"), "{refused}");
        let stored = api.get("all").await.unwrap().spec.control.unwrap();
        assert_eq!(stored.run.as_deref(), Some("new"));
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is written in place")]
    fn rollout(phase: &str, state: Value) -> Rollout {
        serde_json::from_value(json!({
            "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "Rollout", "metadata": {"name": "all"},
            "spec": {"control": {"run": "old", "approved": ["canary"], "state": state}},
            "status": {"phase": phase, "wave": "2/3 fra1", "run": {
                "id": "new", "waves": ["canary", "fra1"],
                "clusters": [{"name": "shop", "wave": "fra1", "revision": "r", "phase": "Pending"}],
            }},
        }))
        .unwrap()
    }

    #[test]
    fn what_was_said_of_another_run_is_not_said_of_this_one() {
        let mut rollout = rollout("Running", json!("Paused"));
        let known = rollout.spec.control.get_or_insert_default();
        known.skip = vec!["billing".to_owned()];
        let stored = |control: &RolloutControl| {
            let before = serde_json::to_value(&rollout).unwrap();
            let after = kapi::patch::merge(&before, &body(&rollout, control));
            let after: Rollout = serde_json::from_value(after).unwrap();
            after.spec.control.unwrap()
        };
        let (skips, _) = control(&rollout, Verb::Skip("shop")).unwrap();
        let skipped = stored(&skips);
        assert_eq!(skipped.run.as_deref(), Some("new"));
        assert_eq!(skipped.skip, ["shop"]);
        assert_eq!(skipped.approved, Vec::<String>::new());
        assert_eq!(skipped.state, Some(RolloutState::Paused));
        assert_eq!(
            stored(&RolloutControl::default()),
            RolloutControl::default()
        );
    }

    #[test]
    fn no_verb_ends_a_run_that_another_one_was_meant_by() {
        for (state, verb, wanted) in [
            ("Aborted", Verb::Skip("shop"), None),
            ("RolledBack", Verb::Skip("shop"), None),
            ("Paused", Verb::Skip("shop"), Some(RolloutState::Paused)),
            ("RolledBack", Verb::Abort, Some(RolloutState::Aborted)),
            ("Aborted", Verb::Pause, Some(RolloutState::Paused)),
        ] {
            let former = rollout("Running", json!(state));
            let (control, _) = control(&former, verb).unwrap();
            assert_eq!(control.state, wanted, "{state} {verb:?}");
            let run = control.run.as_deref();
            let is_about = matches!(verb, Verb::Pause) || run == Some("new");
            assert!(is_about, "{state} {verb:?}: {run:?}");
        }
        // Said of this run, it stays.
        let mut aborted = rollout("Aborted", json!("Aborted"));
        aborted.spec.control.get_or_insert_default().run = Some("new".to_owned());
        let (skips, _) = control(&aborted, Verb::Skip("shop")).unwrap();
        assert_eq!(skips.state, Some(RolloutState::Aborted));
        assert!(control(&aborted, Verb::Resume).is_ok());
        for state in ["Aborted", "RolledBack"] {
            let former = rollout("Running", json!(state));
            let refused = control(&former, Verb::Resume).unwrap_err().to_string();
            assert!(refused.contains("it is Running"), "{refused}");
        }
    }

    #[test]
    fn what_is_asked_for_no_more_is_told() {
        let mut waits = rollout("Running", json!("RolledBack"));
        let status = waits.status.get_or_insert_default();
        let old = json!([{"id": "old", "phase": "Succeeded", "done": 1, "notDone": 0}]);
        status.history = serde_json::from_value(old).unwrap();
        for verb in [Verb::Skip("shop"), Verb::Pause, Verb::Abort] {
            let (_, effect) = control(&waits, verb).unwrap();
            assert!(effect.contains("that run old be taken back"), "{effect}");
        }
        assert!(control(&waits, Verb::Resume).is_ok());
        let back = waits.status.as_mut().and_then(|status| status.run.as_mut());
        back.unwrap().rolls_back = Some("old".to_owned());
        let (_, effect) = control(&waits, Verb::Abort).unwrap();
        assert!(!effect.contains("taken back"), "{effect}");
    }

    #[test]
    fn a_verb_is_about_the_run_that_is_under_way() {
        let waits = rollout("WaitingForApproval", json!("Running"));
        let approved = approval(&waits).unwrap();
        let expected = json!({"rollout": "all", "run": "new", "wave": "fra1"});
        assert_eq!(json!(approved.spec), expected);
        let (skipped, _) = control(&waits, Verb::Skip("shop")).unwrap();
        assert_eq!(
            (skipped.run.as_deref(), skipped.skip),
            (Some("new"), vec!["shop".to_owned()])
        );
        for (rollout, verb, words) in [
            (
                rollout("Running", json!("Running")),
                Verb::Resume,
                "neither paused, aborted nor to be rolled back",
            ),
            (
                rollout("Running", json!("Running")),
                Verb::Skip("shup"),
                "it has shop",
            ),
        ] {
            let error = control(&rollout, verb).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let runs = rollout("Running", json!("Running"));
        let error = approval(&runs).unwrap_err().to_string();
        assert!(error.contains("waits for no approval"), "{error}");
        let paused = rollout("Paused", json!("Paused"));
        let (resumed, _) = control(&paused, Verb::Resume).unwrap();
        assert_eq!(resumed.state, Some(RolloutState::Running));
    }
}
