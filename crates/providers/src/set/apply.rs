//! Carries a decision out: writes only, no decisions.

use std::time::Duration;

use api::provider::{AvailableRelease, SetPlan, SetUpgrade};
use controller::{Outcome, Until, backoff::jittered};

use super::{Context, Decided, Decision, Observed, progress};
use crate::{provider::Error, stand::write_version};

/// How soon a plan goes on that was noted as begun.
const AT_ONCE: Duration = Duration::from_millis(50);
/// How often releases are looked at, where not each change of them is told, and windows.
const LOOK: Duration = Duration::from_mins(1);
/// And where every provider has its version, and whatever changes that is told.
const TOLD_LOOK: Duration = Duration::from_hours(1);

/// What was done. Only `apply` makes it.
#[derive(Clone, Debug)]
pub struct Applied {
    decided: Decided,
}

impl Applied {
    #[cfg(test)]
    pub(super) fn of(decided: Decided) -> Self {
        Self { decided }
    }

    /// The decision that was carried out.
    pub const fn decision(&self) -> &Decision {
        &self.decided.decision
    }

    /// What else there is.
    pub fn available(&self) -> &[AvailableRelease] {
        &self.decided.available
    }
}

pub(super) async fn apply(
    decided: Decided,
    observed: &Observed,
    context: &Context,
) -> Result<Outcome<Applied>, Error> {
    let until = match &decided.decision {
        Decision::Begin(_) => AT_ONCE,
        Decision::Upgrade(plan, at) => {
            write(plan, *at, |upgrade| &upgrade.to, observed, context).await?;
            jittered(LOOK)
        }
        Decision::GoBack(plan, at, _) => {
            write(plan, *at, |upgrade| &upgrade.from, observed, context).await?;
            jittered(LOOK)
        }
        Decision::Keep(_) if observed.is_told => jittered(TOLD_LOOK),
        Decision::Stall(..)
        | Decision::Await(..)
        | Decision::Keep(_)
        | Decision::Hold(_)
        | Decision::Follow(..)
        | Decision::Stop(..) => jittered(LOOK),
    };
    Ok(Outcome::Waiting {
        applied: Applied { decided },
        until: Until::Elapsed(until),
    })
}

async fn write(
    plan: &SetPlan,
    at: usize,
    version: impl Fn(&SetUpgrade) -> &String,
    observed: &Observed,
    context: &Context,
) -> Result<(), Error> {
    let Some(upgrade) = plan.upgrades.get(at) else {
        return Ok(());
    };
    // One that went meanwhile is seen by the next pass.
    let Some(stand) = progress::of(upgrade, &observed.stands) else {
        return Ok(());
    };
    write_version(
        &context.client,
        stand.kind,
        (&stand.namespace, &stand.name),
        version(upgrade),
    )
    .await
    .map_err(|source| Error::Api("write the version of a provider", source))
}
