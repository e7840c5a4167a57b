//! Whether clusters may have an Addon: its chart is brought, read and rendered once, and not by each cluster to be refused by each.

use std::{sync::Arc, time::Duration};

use api::magnum::{Addon, AddonStatus};
use controller::{
    Conditions, Problem, Standing, Summary, apply,
    conditions::{READY, is_true},
    stream::readable,
};
use futures::FutureExt as _;
use helm::{Change, Place};
use jiff::Timestamp;
use kube::{Api, ResourceExt, core::DeserializeGuard, runtime::controller::Action};

use super::{
    Context, Error, MANAGER, UNTIL_READ,
    chart::Missing,
    work::{RENDERS, proven},
};
use crate::addons::{self, Words};

/// How soon is looked again at what nobody tells of: a ConfigMap, a registry, Helm.
const LOOKS: Duration = Duration::from_mins(1);
/// The same, where it is what somebody has to mend.
const MENDED: Duration = Duration::from_secs(10);

/// What came of looking at an Addon.
enum Verdict {
    /// It is usable: its chart, the version of that, its digest.
    Usable(String, String, String),
    /// Somebody has to change something. The reason is a word for programs.
    Problem(&'static str, Problem),
    /// Something is not there that may come.
    Away(&'static str, String),
}

/// One pass of an Addon.
pub(super) async fn judge(
    object: Arc<DeserializeGuard<Addon>>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let Some(addon) = readable(&object) else {
        return Ok(Action::await_change());
    };
    if addon.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    if context.addons.wait_until_ready().now_or_never().is_none() {
        return Ok(Action::requeue(UNTIL_READ));
    }
    let verdict = context.verdict(addon).await;
    let status = status(addon, &verdict, Timestamp::now());
    let namespace = addon.namespace().unwrap_or_default();
    let api: Api<Addon> = Api::namespaced(context.client.clone(), &namespace);
    let existing = addon.status.as_ref();
    apply::apply_status(&api, MANAGER, &addon.name_any(), &status, existing)
        .await
        .map_err(Error::Tell)?;
    let is_kept = addon.spec.chart.config_map_ref.is_some();
    Ok(match verdict {
        Verdict::Usable(..) if !is_kept => Action::await_change(),
        Verdict::Usable(..) => Action::requeue(LOOKS),
        Verdict::Problem(..) | Verdict::Away(..) => Action::requeue(MENDED),
    })
}

impl Context {
    async fn verdict(&self, addon: &Addon) -> Verdict {
        if let Some((reason, problem)) = self.unfit(addon) {
            return Verdict::Problem(reason, problem);
        }
        let values = match addons::values(addon, &Words::sample()) {
            Ok(values) => values,
            Err(problem) => return Verdict::Problem("BadValues", problem),
        };
        let known = addons::usable(addon).ok();
        let chart = addon
            .status
            .as_ref()
            .and_then(|status| status.chart.clone());
        // What a registry gave by its version stays what it is.
        if let (Some(known), Some(chart), Some(_)) = (known, &chart, &addon.spec.chart.oci) {
            return usable(chart, known);
        }
        let helm = match self.helm(None).await {
            Ok(helm) => helm,
            Err(failure) => return Verdict::Away("NoHelm", failure.told().1),
        };
        let archive = match self.archive(&helm, addon).await {
            Ok(archive) => archive,
            Err(Missing::Problem(problem)) => return Verdict::Problem("NoChart", problem),
            Err(Missing::Away(why)) => return Verdict::Away("NoChart", why),
        };
        if let (Some(known), Some(chart)) = (known, &chart)
            && known.digest == archive.digest
        {
            return usable(chart, known);
        }
        let said = match helm.chart(&archive.file, RENDERS).await {
            Ok(said) => said,
            Err(error) => {
                let what = format!("Helm does not read it: {}", controller::chain(&error));
                let remedy = "name an archive as helm package writes it";
                let problem = Problem::new("spec.chart", "", what, remedy);
                return Verdict::Problem("BadChart", problem);
            }
        };
        let (namespace, release) = addons::place(addon);
        let place = Place {
            namespace: &namespace,
            release: &release,
        };
        let change = Change {
            chart: &archive.file,
            values: &values,
        };
        if let Err(problem) = proven(&helm, place, change).await {
            return Verdict::Problem("BadChart", problem);
        }
        let chart = format!("{}-{}", said.name, said.version);
        Verdict::Usable(chart, said.version, archive.digest)
    }

    /// What is wrong whatever its chart is.
    fn unfit(&self, addon: &Addon) -> Option<(&'static str, Problem)> {
        let all = self.addons.state();
        let all = all.iter().filter_map(|addon| addon.0.as_ref().ok());
        let all = all.filter(|addon| addon.metadata.deletion_timestamp.is_none());
        if let Some(other) = addons::rival(addon, all) {
            let rule = format!(
                "Addon {} was there first, for the same plugin or release; there is one of each in a namespace",
                addons::title(other)
            );
            let word = addon.spec.plugin.word();
            let problem = Problem::new("spec.plugin", word, rule, "delete one of the two");
            return Some(("Taken", problem));
        }
        addons::misnamed(addon).map(|problem| ("BadName", problem))
    }
}

fn usable(chart: &str, known: addons::Usable<'_>) -> Verdict {
    Verdict::Usable(
        chart.to_owned(),
        known.version.to_owned(),
        known.digest.to_owned(),
    )
}

fn status(addon: &Addon, verdict: &Verdict, now: Timestamp) -> AddonStatus {
    let known = addon.status.clone().unwrap_or_default();
    let generation = addon.metadata.generation;
    let (standing, reason, message) = match verdict {
        Verdict::Usable(chart, ..) => (Standing::Ready, "Usable", format!("clusters get {chart}")),
        Verdict::Problem(reason, problem) => (Standing::Stalled, *reason, problem.to_string()),
        // What was looked at before is as good as it was.
        Verdict::Away(..) if is_true(&known.conditions, READY) && is_seen(addon) => return known,
        Verdict::Away(reason, why) => (Standing::Stalled, *reason, why.clone()),
    };
    let mut conditions = Conditions::new(&known.conditions, generation, now);
    conditions.summarise(&Summary {
        standing,
        reason,
        message,
    });
    let conditions = conditions.into_vec();
    match verdict {
        Verdict::Usable(chart, version, digest) => AddonStatus {
            observed_generation: generation,
            chart: Some(api::text::plain(chart, 384)),
            version: Some(api::text::plain(version, 128)),
            digest: Some(digest.clone()),
            conditions,
        },
        Verdict::Problem(..) | Verdict::Away(..) => AddonStatus {
            observed_generation: generation,
            conditions,
            ..AddonStatus::default()
        },
    }
}

fn is_seen(addon: &Addon) -> bool {
    let status = addon.status.as_ref();
    let seen = status.and_then(|status| status.observed_generation);
    seen == addon.metadata.generation
}
