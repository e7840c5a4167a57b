//! What the steps of a run share, and how one ends.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex as Lock, MutexGuard, PoisonError},
};

use ansible::{sandbox::Sandbox, source::Hold};
use api::run::{Results, Step};
use controller::lease::Proof;
use tokio::{sync::Mutex, time::Instant};
use workflow::{Signal, StepContext, StepOutcome};

use super::{work::ClusterWork, workspace::Workspace};

/// Executes the steps of a kubespray plan.
pub struct KubesprayExecutor {
    pub(crate) work: Arc<ClusterWork>,
    pub(crate) workspace: Workspace,
    /// The environment once it is verified: to ask it again takes longer than a small play.
    pub(crate) sandbox: Mutex<Option<Sandbox>>,
    /// Keeps the playbooks in the cache while they are run.
    pub(crate) playbooks: Mutex<Option<Hold>>,
    /// Held while a playbook gets ready: what it is given lies at the same place for all.
    pub(crate) preparing: Mutex<()>,
    /// That the cluster's Lease is held.
    pub(crate) proof: Proof,
    /// When this runner had a proof that a play rests on, by its step.
    given: Lock<HashMap<String, Instant>>,
}

impl KubesprayExecutor {
    pub(crate) fn new(work: Arc<ClusterWork>, workspace: Workspace, proof: Proof) -> Self {
        Self {
            work,
            workspace,
            sandbox: Mutex::default(),
            playbooks: Mutex::default(),
            preparing: Mutex::default(),
            proof,
            given: Lock::default(),
        }
    }

    /// When this runner had a proof, by its step.
    pub(crate) fn given(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns if the cluster's Lease is held. If it is not, the runner is about to end, and nothing is to be done until then.
    pub(crate) async fn proven(&self) {
        if !self.proof.holds() {
            std::future::pending::<()>().await;
        }
    }

    /// Removes what must not stay.
    pub(crate) fn clean(&self) {
        self.workspace.clean();
    }
}

/// A success without results.
pub(crate) fn succeeded(detail: Option<String>) -> StepOutcome {
    StepOutcome::Succeeded {
        results: Results::default(),
        unreachable: Vec::new(),
        detail,
    }
}

/// A failure without results.
pub(crate) fn failed(failure: api::run::Failure) -> StepOutcome {
    StepOutcome::Failed {
        failure,
        results: Results::default(),
        unreachable: Vec::new(),
        remedies: Vec::new(),
    }
}

/// Waits while a pause is asked for, as a step does that can hold. Some: it must end.
pub(crate) async fn hold(step: &Step, context: &StepContext) -> Option<StepOutcome> {
    paused(step, context).await.err()
}

/// The same for a step with a deadline of its own, to which a pause does not count. Whether there was one.
pub(crate) async fn hold_within(
    step: &Step,
    context: &StepContext,
    deadline: &mut Instant,
) -> Result<bool, StepOutcome> {
    let began = Instant::now();
    let paused = paused(step, context).await?;
    if paused {
        *deadline += began.elapsed();
    }
    Ok(paused)
}

async fn paused(step: &Step, context: &StepContext) -> Result<bool, StepOutcome> {
    let mut signal = context.signal.clone();
    let mut paused = false;
    loop {
        match *signal.borrow_and_update() {
            Signal::Continue => return Ok(paused),
            Signal::Stop => return Err(StepOutcome::Interrupted { detail: None }),
            Signal::Pause => paused = true,
        }
        if context.reporter.held(&step.id).await.is_err() || signal.changed().await.is_err() {
            return Err(StepOutcome::Interrupted { detail: None });
        }
    }
}

/// Returns when a stop is asked for.
pub(crate) async fn stopped(context: &StepContext) {
    let mut signal = context.signal.clone();
    if signal
        .wait_for(|signal| *signal == Signal::Stop)
        .await
        .is_err()
    {
        std::future::pending::<()>().await;
    }
}
