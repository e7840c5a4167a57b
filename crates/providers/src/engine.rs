//! The engine of providers' runs: what the steps of a plan do in the API that is installed in.
//!
//! A step keeps nothing for the next: each reads the manifests and makes the objects anew, which takes milliseconds, and holds them
//! against the digest of the plan. So it does not matter which runner executes which step.

use std::sync::{Arc, OnceLock};

use api::run::{Action as StepAction, Failure, Results, RunSpec, Step};
use controller::lease::Proof;
use hidden::Hidden;
use runs::{
    Words, Work,
    calls::{Act, Ended, FORBIDDEN, each, held, unknown_action},
    engine::{EngineError, Leave},
};
use workflow::{Executor, StepContext, StepOutcome};

use crate::{
    action::Action,
    inputs::{self, Inputs},
    rights,
};

mod applied;
mod calls;
mod certificates;
mod hidden;
mod inventory;
mod material;
mod migrate;
mod objects;
mod prune;
mod release;
mod steps;
mod takeover;

pub(crate) use migrate::resource;
pub(crate) use takeover::{Known, keeper, keeper_beside};

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
            hidden: OnceLock::new(),
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
    /// The values of variables, once they were read: before that there is nothing that could hold them.
    hidden: OnceLock<Hidden>,
}

impl Executor for Installer {
    async fn execute(&self, steps: Vec<Step>, context: StepContext) {
        each(self, &steps, context).await;
    }
}

impl Act for Installer {
    async fn act(&self, step: &Step, context: &mut StepContext) -> Result<StepOutcome, Ended> {
        let action = action_of(step).ok_or_else(|| unknown_action(step, "providers"))?;
        let acted = self.do_action(action, step, context).await;
        let acted = acted.map_err(|ended| self.told(ended));
        match (acted, self.hidden.get()) {
            (Ok(outcome), Some(hidden)) => Ok(hidden.outcome(outcome)),
            (Err(Ended::Failed(failure)), Some(hidden)) => {
                Err(Ended::Failed(hidden.failure(failure)))
            }
            (acted, _) => acted,
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

/// The counts of what was done.
fn done<const N: usize>(counts: [(&str, usize); N]) -> StepOutcome {
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let counts =
        counts.map(|(word, count)| (word.to_owned(), u32::try_from(count).unwrap_or(u32::MAX)));
    runs::calls::done(Results(counts.collect()), None)
}

impl Installer {
    /// Who may not do something is told how to be allowed.
    fn told(&self, ended: Ended) -> Ended {
        match ended {
            Ended::Failed(failure) if failure.code == FORBIDDEN => Ended::Failed(Failure {
                remedy: Some(rights::remedy(&self.provider)),
                ..failure
            }),
            ended => ended,
        }
    }

    /// Says what a step is at.
    async fn tell(&self, step: &Step, context: &StepContext, what: &str) -> Result<(), Ended> {
        runs::calls::tell(step, context, &self.hidden_text(what)).await
    }

    /// A text without what is secret.
    fn hidden_text(&self, text: &str) -> String {
        let hidden = self.hidden.get();
        hidden.map_or_else(|| text.to_owned(), |hidden| hidden.text(text))
    }

    /// Nothing is written without the Lease.
    fn held(&self) -> Result<(), Failure> {
        held(&self.proof)
    }
}
