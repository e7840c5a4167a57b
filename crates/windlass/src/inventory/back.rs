//! `windlass inventory rollback`: what a run of a roll-out has done is shown the other way round, and then asked for.

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::bail;
use api::inventory::{
    FleetCluster, FleetClusterStatus, MemberPhase, Rollout, RolloutControl, RolloutMember,
    RolloutState,
};
use fleet::{
    plan::{
        Error,
        back::{self, Back, NoWay, Which},
    },
    rollout::engine,
};
use kube::{Api, Client, ResourceExt};

use super::live;
use crate::{
    cli::{Global, Output, RollBack},
    client::answered,
    terminal::text,
};

/// Shows what goes back to what, and asks for it with `--yes`.
pub(super) async fn roll_back(global: &Global, options: &RollBack) -> anyhow::Result<ExitCode> {
    let client = global.client().await?;
    let rollout = live::pick(&client, options.rollout.as_deref(), &global.namespace).await?;
    let which = match (&options.to, &options.before) {
        (Some(left), _) => Which::After(left),
        (None, Some(run)) => Which::Run(run),
        (None, None) => Which::Last,
    };
    let skip: BTreeSet<_> = options.skip.iter().cloned().collect();
    let left = left_out(&rollout);
    // Of what is no part of a run any more nobody has to ask that it be left out.
    let stays = left.iter().filter(|member| engine::has_begun(member));
    let stays = stays.map(|member| member.name.clone());
    let stays: BTreeSet<_> = stays.chain(skip.iter().cloned()).collect();
    let mut back = match back::back(&client, &rollout, which, &stays).await {
        Err(NoWay::Refused(why)) => bail!("{why}"),
        Err(NoWay::Unknown(Error::Api(what, error))) => return answered(Err(error), &what),
        Err(NoWay::Unknown(error)) => {
            return Err(anyhow::Error::new(error).context("failed to plan"));
        }
        Ok(back) => back,
    };
    let name = rollout.name_any();
    live::say_unread(back.plan.unread.take());
    if matches!(options.output, Output::Text) {
        global.say(&format!(
            "run {} of roll-out {name} is what is taken back",
            back.run
        ));
    }
    super::print_changes(&back.plan.changes, options.output)?;
    let mut changed = Vec::new();
    if back.is_under_way {
        changed = changed_of(&client, &rollout, left).await?;
        for cluster in &changed {
            eprintln!(
                "{}",
                text(&format!("windlass: {}", staying(cluster, &back.run)))
            );
        }
    }
    if let Some(why) = refusal(&back) {
        bail!(why);
    }
    let run = &back.run;
    if back.plan.changes.is_empty() {
        bail!(nothing(&name, &back, !changed.is_empty()));
    }
    if !options.yes {
        if matches!(options.output, Output::Text) {
            let again = global.carried_out_with(&chosen(options, run));
            global.say(&format!("nothing was done; to carry it out: {again}"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let effect = if back.is_under_way {
        format!(
            "ends run {run}, and takes back what it has begun; kubectl get rollouts says how it goes"
        )
    } else {
        format!(
            "takes back run {run} and what came after it; kubectl get rollouts says how it goes"
        )
    };
    let wanted = |rollout: &Rollout| {
        let known = rollout.spec.control.clone();
        let known = known.filter(|_| back.is_under_way);
        Ok((control(known, run, &skip), effect.clone()))
    };
    live::ask(client, rollout.clone(), wanted).await
}

/// The clusters of the run under way that somebody has had left out of it: no way back from it touches them.
fn left_out(rollout: &Rollout) -> Vec<&RolloutMember> {
    let Some(run) = live::open(rollout) else {
        return Vec::new();
    };
    let control = rollout.spec.control.as_ref();
    let control = control.filter(|control| control.run.as_ref() == Some(&run.id));
    let named = |name| control.is_some_and(|control| control.skip.contains(name));
    let members = run.clusters.iter();
    let left = members.filter(|it| it.phase == MemberPhase::Skipped || named(&it.name));
    left.collect()
}

/// Those of the clusters to which the run has brought something already.
async fn changed_of(
    client: &Client,
    rollout: &Rollout,
    left: Vec<&RolloutMember>,
) -> anyhow::Result<Vec<String>> {
    let namespace = rollout.namespace().unwrap_or_default();
    let clusters = Api::<FleetCluster>::namespaced(client.clone(), &namespace);
    let mut changed = Vec::new();
    for member in left {
        let cluster = clusters.get_opt(&member.name).await;
        let cluster = answered(cluster, &format!("read FleetCluster {}", member.name))?;
        if cluster.is_some_and(|cluster| is_changed(member, cluster.status.as_ref())) {
            changed.push(member.name.clone());
        }
    }
    Ok(changed)
}

/// Whether a run has brought something to a cluster.
fn is_changed(member: &RolloutMember, status: Option<&FleetClusterStatus>) -> bool {
    let brought = Some(&member.revision);
    let is_brought = |status: &FleetClusterStatus| {
        [&status.applied, &status.begun]
            .map(Option::as_ref)
            .contains(&brought)
    };
    member.before.as_ref() != brought && status.is_some_and(is_brought)
}

/// That a cluster which was left out is not taken back, why, and what to do.
fn staying(cluster: &str, run: &str) -> String {
    format!(
        "FleetCluster {cluster} stays as run {run} has left it, changed: somebody has had it skipped, and what is skipped is no part of the way \
         back; to change it, edit the inventory"
    )
}

/// That nothing would go back, why, and what can be done instead.
fn nothing(rollout: &str, back: &Back, is_other_changed: bool) -> String {
    let run = &back.run;
    if !back.is_under_way {
        return format!(
            "every cluster is what it was before run {run} of roll-out {rollout} already, or stays as it is: there is nothing to take back"
        );
    }
    let why = if is_other_changed {
        "of what it has changed, all stays"
    } else {
        "it has changed no cluster, or none that is not left out"
    };
    format!(
        "run {run} of roll-out {rollout} has nothing to take back: {why}; to have it begin no other cluster: windlass inventory abort"
    )
}

/// Why none of the clusters goes back, and what to do about it. None: they can. Nothing is asked for then, so the run goes on meanwhile.
fn refusal(back: &Back) -> Option<String> {
    let (name, why) = back.refused.iter().next()?;
    let more = match back.refused.len() {
        1 => String::new(),
        all => format!(" (and {} more)", all - 1),
    };
    let goes_on = if back.is_under_way {
        "; until then the run goes on, unless you hold it: windlass inventory pause; or end it: windlass inventory abort"
    } else {
        ""
    };
    Some(format!(
        "run {} is not taken back: FleetCluster {name}{more}: {why}; to let the others go back, leave it out with --skip {name}{goes_on}",
        back.run
    ))
}

/// What names a run that nobody has: by the time that somebody types the command again another one may be the last.
fn chosen<'a>(options: &RollBack, run: &'a str) -> Vec<&'a str> {
    if options.to.is_none() && options.before.is_none() {
        vec!["--before", run]
    } else {
        Vec::new()
    }
}

/// What is asked for: of the same run, with what was said of it while it was under way. What was left out of a run that has ended may have
/// failed in it, and goes back with it.
fn control(known: Option<RolloutControl>, run: &str, skip: &BTreeSet<String>) -> RolloutControl {
    let known = known.filter(|known| known.run.as_deref() == Some(run));
    let mut control = known.unwrap_or_default();
    control.run = Some(run.to_owned());
    control.state = Some(RolloutState::RolledBack);
    let new = skip.iter().filter(|name| !control.skip.contains(name));
    let new: Vec<_> = new.cloned().collect();
    control.skip.extend(new);
    control
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fleet::plan::Plan;
    use serde_json::json;

    use super::*;

    fn under_way(refused: BTreeMap<String, String>, is_under_way: bool) -> Back {
        Back {
            run: "r1".to_owned(),
            is_under_way,
            plan: Plan::default(),
            refused,
        }
    }

    #[test]
    fn a_cluster_that_was_left_out_after_it_was_changed_is_told() {
        let of = |named: &str| -> Rollout {
            serde_json::from_value(json!({
                "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "Rollout", "metadata": {"name": "all"},
                "spec": {"control": {"run": named, "skip": ["done"]}},
                "status": {"run": {"id": "r1", "waves": ["rest"], "clusters": [
                    {"name": "skipped", "wave": "rest", "before": "1", "revision": "2", "phase": "Skipped"},
                    {"name": "done", "wave": "rest", "before": "1", "revision": "2", "phase": "Done"},
                    {"name": "other", "wave": "rest", "before": "1", "revision": "2", "phase": "Done"},
                ]}},
            }))
            .unwrap()
        };
        let left = |rollout: &Rollout| -> Vec<String> {
            let left = left_out(rollout).into_iter();
            left.map(|member| member.name.clone()).collect()
        };
        assert_eq!(left(&of("r1")), ["skipped", "done"]);
        assert_eq!(left(&of("r0")), ["skipped"]);

        let rollout = of("r1");
        let member = left_out(&rollout)[0];
        for (status, changed) in [
            (json!({"applied": "1"}), false),
            (json!({"applied": "1", "begun": "2"}), true),
            (json!({"applied": "2"}), true),
            (json!({}), false),
        ] {
            let read: FleetClusterStatus = serde_json::from_value(status.clone()).unwrap();
            assert_eq!(is_changed(member, Some(&read)), changed, "{status}");
        }
        assert!(!is_changed(member, None));
        let told = staying("skipped", "r1");
        assert!(
            told.contains("FleetCluster skipped stays as run r1"),
            "{told}"
        );
    }

    #[test]
    fn where_nothing_goes_back_that_is_said_and_what_to_do() {
        let told = |is_under_way, changed| {
            nothing("all", &under_way(BTreeMap::new(), is_under_way), changed)
        };
        let skipped = told(true, true);
        assert!(
            skipped.contains("has nothing to take back: of what it has changed, all stays"),
            "{skipped}"
        );
        assert!(skipped.ends_with("windlass inventory abort"), "{skipped}");
        assert!(told(true, false).contains("it has changed no cluster"));
        assert!(told(false, false).ends_with("there is nothing to take back"));
    }

    #[test]
    fn a_run_that_goes_on_is_told_with_what_holds_it() {
        let refused = |names: &[&str], is_under_way| {
            let refused = names.iter();
            let refused: BTreeMap<_, _> = refused
                .map(|name| ((*name).to_owned(), "no version goes down".to_owned()))
                .collect();
            refusal(&under_way(refused, is_under_way))
        };
        assert_eq!(refused(&[], true), None);
        let at_work = refused(&["shop", "wiki"], true).unwrap();
        for words in [
            "run r1 is not taken back: FleetCluster shop (and 1 more): no version goes down",
            "--skip shop",
            "windlass inventory pause",
            "windlass inventory abort",
        ] {
            assert!(at_work.contains(words), "{at_work}");
        }
        let ended = refused(&["shop"], false).unwrap();
        assert!(ended.ends_with("leave it out with --skip shop"), "{ended}");
    }

    #[test]
    fn what_is_carried_out_is_what_was_shown() {
        let mut options = RollBack {
            rollout: None,
            to: None,
            before: None,
            skip: Vec::new(),
            yes: false,
            output: Output::Text,
        };
        assert_eq!(chosen(&options, "r2"), ["--before", "r2"]);
        options.to = Some("r1".to_owned());
        assert_eq!(chosen(&options, "r2"), Vec::<&str>::new());
        (options.to, options.before) = (None, Some("r2".to_owned()));
        assert_eq!(chosen(&options, "r2"), Vec::<&str>::new());
    }

    #[test]
    fn what_was_said_of_the_same_run_stays_said() {
        let known = RolloutControl {
            run: Some("r1".to_owned()),
            approved: vec!["rest".to_owned()],
            skip: vec!["a".to_owned()],
            ..RolloutControl::default()
        };
        let skip = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let same = control(Some(known.clone()), "r1", &skip);
        assert_eq!(same.skip, ["a", "b"]);
        assert_eq!(same.approved, ["rest"]);
        assert_eq!(same.state, Some(RolloutState::RolledBack));
        let other = control(Some(known), "r2", &BTreeSet::new());
        assert_eq!(other.run.as_deref(), Some("r2"));
        assert!(other.skip.is_empty() && other.approved.is_empty());
    }
}
