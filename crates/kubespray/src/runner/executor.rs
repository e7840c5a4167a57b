//! The engine behind a plan's steps.

use std::sync::Arc;

use ansible::{sandbox::Sandbox, source::Hold};
use api::run::{Action, FailureClass, Results, Step};
use controller::lease::Proof;
use tokio::sync::Mutex;
use workflow::{Executor, Signal, StepContext, StepOutcome};

use super::{
    Job, plays, prepare,
    steps::{health, kubeconfig},
    workspace::{Workspace, failure},
};

/// Executes the steps of a kubespray plan.
pub(crate) struct KubesprayExecutor {
    pub(crate) job: Arc<Job>,
    pub(crate) workspace: Workspace,
    /// The environment once it is verified: to ask it again takes longer than a small play.
    pub(crate) sandbox: Mutex<Option<Sandbox>>,
    /// Keeps the playbooks in the cache while they are run.
    pub(crate) playbooks: Mutex<Option<Hold>>,
    /// That the cluster's Lease is held.
    pub(crate) proof: Proof,
}

impl KubesprayExecutor {
    pub(crate) fn new(job: Arc<Job>, workspace: Workspace, proof: Proof) -> Self {
        Self {
            job,
            workspace,
            sandbox: Mutex::default(),
            playbooks: Mutex::default(),
            proof,
        }
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

    async fn single(&self, step: &Step, context: &StepContext) -> StepOutcome {
        match &step.action {
            Action::Approve(approve) if context.approved => {
                succeeded(Some(format!("approved: {}", approve.question)))
            }
            Action::Approve(approve) => StepOutcome::Waiting {
                question: approve.question.clone(),
            },
            Action::Sandbox(_) => prepare::sandbox(self, step, context).await,
            Action::Probe(_) => prepare::probe(self, step, context).await,
            Action::Kubeconfig(wanted) => kubeconfig(self, &wanted.secret).await,
            Action::Health(_) => health(self, step, context).await,
            Action::AnsiblePlay(_) => failed(failure(
                FailureClass::Permanent,
                "UnexpectedPlay",
                format!(
                    "step {} is a play and stands where none is expected",
                    step.id
                ),
                None,
            )),
        }
    }
}

impl Executor for KubesprayExecutor {
    async fn execute(&self, steps: Vec<Step>, context: StepContext) {
        self.proven().await;
        if steps
            .iter()
            .all(|step| matches!(step.action, Action::AnsiblePlay(_)))
        {
            plays::execute(self, steps, context).await;
            return;
        }
        for step in &steps {
            if context.reporter.started(&step.id).await.is_err() {
                return;
            }
            self.proven().await;
            let outcome = self.single(step, &context).await;
            let done = matches!(outcome, StepOutcome::Succeeded { .. });
            if context.reporter.finished(&step.id, outcome).await.is_err() || !done {
                return;
            }
        }
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
    }
}

/// Waits while a pause is asked for, as a step does that can hold. Some: it must end.
pub(crate) async fn hold(step: &Step, context: &StepContext) -> Option<StepOutcome> {
    let mut signal = context.signal.clone();
    loop {
        match *signal.borrow_and_update() {
            Signal::Continue => return None,
            Signal::Stop => return Some(StepOutcome::Interrupted { detail: None }),
            Signal::Pause => {}
        }
        if context.reporter.held(&step.id).await.is_err() || signal.changed().await.is_err() {
            return Some(StepOutcome::Interrupted { detail: None });
        }
    }
}
