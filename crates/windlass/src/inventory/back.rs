//! `windlass inventory rollback`: what a run of a roll-out has done is shown the other way round, and then asked for.

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::{bail, ensure};
use api::inventory::{Rollout, RolloutControl, RolloutState};
use fleet::plan::{
    Error,
    back::{self, Back, NoWay, Which},
};
use kube::ResourceExt;

use super::live;
use crate::{
    cli::{Global, Output, RollBack},
    client::answered,
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
    let mut back = match back::back(&client, &rollout, which, &skip).await {
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
    if let Some(why) = refusal(&back) {
        bail!(why);
    }
    let run = &back.run;
    ensure!(
        back.is_under_way || !back.plan.changes.is_empty(),
        "every cluster is what it was before run {run} of roll-out {name} already, or stays as it is: there is nothing to take back"
    );
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

    use super::*;

    #[test]
    fn a_run_that_goes_on_is_told_with_what_holds_it() {
        let refused = |names: &[&str], is_under_way| {
            let refused = names.iter();
            let refused: BTreeMap<_, _> = refused
                .map(|name| ((*name).to_owned(), "no version goes down".to_owned()))
                .collect();
            refusal(&Back {
                run: "r1".to_owned(),
                is_under_way,
                plan: Plan::default(),
                refused,
            })
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
