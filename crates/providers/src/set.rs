//! The reconciler of a `ProviderSet`: brings the providers of an installation to versions that go together, one after the other.
//!
//! A plan is of the whole set and is made by `clusterctl`, which says every reason against it at once. What is carried out is the
//! upgrade of one provider at a time, core first: its `spec.version` is written, and its own reconciler makes a run of that. The set waits
//! until the provider is ready, and begins no other where one fails.
//!
//! The plan that was begun is kept in the status, and goes on from there: half of the way a new one could lead further away, as core to
//! a minor that those behind it cannot follow to. How far it is, is seen from the providers. A status that was lost is a plan
//! made anew from what is there, under the same rules.

use std::sync::Arc;

use api::{Run, provider::ProviderSet};
use controller::{Events, Outcome, WakeUps, stream::readable};
use futures::FutureExt;
use kube::{
    Client,
    core::DeserializeGuard,
    runtime::{controller::Action, reflector::Store},
};

use crate::{attention::Attention, provider::Error, stand::Unread};

mod apply;
pub(crate) mod back;
mod check;
mod observe;
mod plan;
mod progress;
mod reason;
mod report;
mod wanted;

pub use apply::Applied;
pub use back::Back;
pub use observe::Observed;
pub use plan::{Decided, Decision, Held, plan};
pub use reason::Reason;

/// What the passes share.
pub struct Context {
    /// The API.
    pub client: Client,
    /// The sets.
    pub sets: Store<DeserializeGuard<ProviderSet>>,
    /// The runs of providers.
    pub runs: Store<DeserializeGuard<Run>>,
    /// What happened.
    pub events: Events,
    /// Watches releases.
    pub attention: Attention,
    /// What wakes sets.
    pub wake_ups: WakeUps,
}

/// One pass.
///
/// # Errors
///
/// The API refuses or does not answer. What is wrong with the set is no error: its status says it.
pub async fn reconcile(
    object: Arc<DeserializeGuard<ProviderSet>>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let Some(set) = readable(&object) else {
        return Ok(Action::await_change());
    };
    // Providers stay as they are when it goes.
    if set.metadata.deletion_timestamp.is_some() {
        context.attention.forget(&observe::key(set));
        return Ok(Action::await_change());
    }
    let is_read = context.runs.wait_until_ready().now_or_never().is_some()
        && context.sets.wait_until_ready().now_or_never().is_some();
    if !is_read {
        return Ok(Action::requeue(UNTIL_READ));
    }
    let observed = observe::observe(set, &context).await?;
    let decided = plan(set, &observed);
    let outcome = apply::apply(decided, &observed, &context).await?;
    report::publish(set, outcome.applied(), &observed, &context).await?;
    Ok(Outcome::action(&outcome))
}

fn unread(Unread { source, .. }: Unread) -> Error {
    Error::Api("read the providers and their releases", source)
}

/// How soon a pass is tried again that began before the stores were read.
const UNTIL_READ: std::time::Duration = std::time::Duration::from_millis(50);

#[cfg(test)]
mod tests;
