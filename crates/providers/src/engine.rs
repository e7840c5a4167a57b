//! The engine of providers' runs: what the steps of a plan do in the API that is installed in.
//!
//! A step keeps nothing for the next: each reads the manifests and makes the objects anew, which takes milliseconds, and holds them
//! against the digest of the plan. So it does not matter which runner executes which step.

use std::sync::Arc;

use api::run::{Action as StepAction, Failure, FailureClass, Results, RunSpec, Step};
use controller::lease::Proof;
use runs::{
    Words, Work,
    engine::{EngineError, Leave},
};
use workflow::{Executor, Signal, StepContext, StepOutcome, StepProgress};

use crate::{
    action::Action,
    inputs::{self, Inputs},
};

mod applied;
mod calls;
mod certificates;
mod inventory;
mod material;
mod migrate;
mod objects;
mod prune;
mod steps;

/// Executes runs of providers.
#[derive(Clone, Copy, Debug)]
pub struct Engine;

impl runs::Engine for Engine {
    type Executor = Installer;

    fn digest(&self, spec: &RunSpec) -> Result<String, serde_json::Error> {
        workflow::plan::digest_of(&spec.operation, &spec.plan)
    }

    /// What is written is written at once: nothing is started that could go on.
    fn leave(&self, _: &Work) -> Result<Leave, EngineError> {
        Ok(Arc::new(|_| {}))
    }

    fn prepare(&self, work: &Arc<Work>, proof: Proof) -> Result<Installer, EngineError> {
        let spec = &work.run.spec;
        Ok(Installer {
            provider: inputs::provider_of(&spec.subject)?,
            inputs: Inputs::from_map(&spec.plan.inputs)?,
            work: Arc::clone(work),
            proof,
        })
    }

    async fn end_now(&self, _: &Work) {}

    fn clean(&self, _: Installer) {}

    fn words(&self) -> Words {
        Words {
            targets: "providers",
            excluded: "ProvidersExcluded",
            own_logs: "provider",
        }
    }
}

/// Executes the steps of one run.
pub struct Installer {
    work: Arc<Work>,
    proof: Proof,
    provider: clusterctl::Provider,
    inputs: Inputs,
}

impl Executor for Installer {
    async fn execute(&self, steps: Vec<Step>, mut context: StepContext) {
        for step in &steps {
            let outcome = match action_of(step) {
                Some(action) => match self.act(action, step, &mut context).await {
                    Ok(done) => done,
                    Err(Ended::Failed(failure)) => failed(failure),
                    Err(Ended::Interrupted) => StepOutcome::Interrupted { detail: None },
                    Err(Ended::Rejected) => return,
                },
                None => failed(config(
                    "UnknownAction",
                    format!("step {} has no action of providers", step.id),
                    "let the operator plan anew",
                )),
            };
            if context.reporter.finished(&step.id, outcome).await.is_err() {
                return;
            }
        }
    }
}

fn action_of(step: &Step) -> Option<Action> {
    match &step.action {
        StepAction::Engine(action) if action.name == crate::names::ENGINE => {
            Action::named(&action.action)
        }
        _ => None,
    }
}

/// How a step ends that is not done.
enum Ended {
    /// It failed.
    Failed(Failure),
    /// It was told to stop.
    Interrupted,
    /// Nobody takes what it says.
    Rejected,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The counts of what was done.
fn done<const N: usize>(counts: [(&str, usize); N]) -> StepOutcome {
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let counts =
        counts.map(|(word, count)| (word.to_owned(), u32::try_from(count).unwrap_or(u32::MAX)));
    StepOutcome::Succeeded {
        results: Results(counts.collect()),
        unreachable: Vec::new(),
        detail: None,
    }
}

fn failed(failure: Failure) -> StepOutcome {
    StepOutcome::Failed {
        failure,
        results: Results::default(),
        unreachable: Vec::new(),
    }
}

fn failure(class: FailureClass, code: &str, message: impl Into<String>, remedy: &str) -> Failure {
    Failure {
        class,
        code: code.to_owned(),
        // What the API says may quote anything.
        message: api::text::lines(&message.into(), 2048),
        remedy: Some(remedy.to_owned()),
        targets: Vec::new(),
    }
}

/// What a person must change.
fn config(code: &str, message: impl Into<String>, remedy: &str) -> Failure {
    failure(FailureClass::Config, code, message, remedy)
}

/// A call that did not do what it should: tried again where that may help.
fn call(what: impl Into<String>, error: &kube::Error) -> Failure {
    let refused = matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 401 | 403 | 405 | 413 | 415 | 422));
    let message = format!("failed to {}: {}", what.into(), controller::chain(error));
    if refused {
        failure(
            FailureClass::External,
            "Refused",
            message,
            "mend what the API names, and retry the run",
        )
    } else {
        failure(
            FailureClass::Transient,
            "NoAnswer",
            message,
            "it is tried again; look at the API if it stays so",
        )
    }
}

impl Installer {
    /// Nothing is written without the Lease.
    fn held(&self) -> Result<(), Failure> {
        if self.proof.holds() {
            return Ok(());
        }
        Err(failure(
            FailureClass::Transient,
            "NotHeld",
            "the Lease of the provider is not held",
            "it is tried again",
        ))
    }
}

/// Lets people stop or pause a step between two of its calls.
async fn boundary(step: &Step, context: &mut StepContext) -> Result<(), Ended> {
    loop {
        let wanted = *context.signal.borrow_and_update();
        match wanted {
            Signal::Continue => return Ok(()),
            Signal::Stop => return Err(Ended::Interrupted),
            Signal::Pause => {
                context
                    .reporter
                    .held(&step.id)
                    .await
                    .map_err(|_| Ended::Rejected)?;
                context
                    .signal
                    .changed()
                    .await
                    .map_err(|_| Ended::Rejected)?;
            }
        }
    }
}

async fn tell(step: &Step, context: &StepContext, activity: String) -> Result<(), Ended> {
    let progress = StepProgress {
        activity: Some(activity),
        ..StepProgress::default()
    };
    context
        .reporter
        .progress(&step.id, progress)
        .await
        .map_err(|_| Ended::Rejected)
}
