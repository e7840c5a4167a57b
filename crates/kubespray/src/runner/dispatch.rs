//! Each step to what executes it.

use api::run::{FailureClass, Step};
use workflow::{Executor, StepContext, StepOutcome};

use super::{
    adopt, drain, etcd,
    executor::{KubesprayExecutor, failed},
    gate::gate,
    hook, plays, prepare, proof, servers, snapshots,
    steps::{forget_kubeconfig, health, kubeconfig},
    toolbox,
    workspace::failure,
};
use crate::action::{self, Action};

impl Executor for KubesprayExecutor {
    async fn execute(&self, steps: Vec<Step>, context: StepContext) {
        self.proven().await;
        // A runner may have been killed between the two.
        if is_behind_store(self, &steps) {
            forget_kubeconfig(self).await;
        }
        if steps.iter().all(|step| action::play_of(step).is_some()) {
            let Some(first) = steps.first() else { return };
            if let Some(outcome) = proof::renewed(self, first, &context).await {
                // A report that is not taken ends the runner.
                let _ = context.reporter.finished(&first.id, outcome).await;
                return;
            }
            plays::execute(self, steps, context).await;
            return;
        }
        for step in &steps {
            if context.reporter.started(&step.id).await.is_err() {
                return;
            }
            self.proven().await;
            let outcome = single(self, step, &context).await;
            let done = matches!(outcome, StepOutcome::Succeeded { .. });
            if done {
                proof::note(self, step);
            }
            if context.reporter.finished(&step.id, outcome).await.is_err() || !done {
                return;
            }
            if stores(step) {
                forget_kubeconfig(self).await;
            }
        }
    }
}

/// Whether these steps come right after one that stores the kubeconfig, which is so in the journal.
fn is_behind_store(executor: &KubesprayExecutor, steps: &[Step]) -> bool {
    let Some(first) = steps.first() else {
        return false;
    };
    let planned = executor.work.plan.plan().steps.windows(2);
    let mut planned = planned.filter_map(|pair| match pair {
        [before, after] => Some((before, after)),
        _ => None,
    });
    planned.any(|(before, after)| after.id == first.id && stores(before))
}

fn stores(step: &Step) -> bool {
    matches!(action::of(step), Ok(Some(Action::Kubeconfig(_))))
}

pub(crate) async fn single(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> StepOutcome {
    let misplaced = |text: String| {
        failed(failure(
            FailureClass::Permanent,
            "UnexpectedAction",
            text,
            None,
        ))
    };
    match action::of(step) {
        Ok(Some(Action::Sandbox)) => prepare::sandbox(executor, step, context).await,
        Ok(Some(Action::Probe)) => prepare::probe(executor, step, context).await,
        Ok(Some(Action::Kubeconfig(wanted))) => kubeconfig(executor, step, context, &wanted).await,
        Ok(Some(Action::Budgets { forced })) => drain::budgets(executor, step, &forced).await,
        Ok(Some(Action::Drain { forced })) => drain::drain(executor, step, context, &forced).await,
        Ok(Some(Action::ForgetNodes { forced })) => {
            drain::forget(executor, step, context, &forced).await
        }
        Ok(Some(Action::Gate(wanted))) => gate(executor, step, context, &wanted).await,
        Ok(Some(Action::Quorum(change))) => etcd::prove(executor, step, context, &change).await,
        Ok(Some(Action::TakeOut(change))) => etcd::take_out(executor, step, context, &change).await,
        Ok(Some(Action::Members)) => etcd::named(executor, step, context).await,
        Ok(Some(Action::Versions { kubernetes })) => {
            adopt::versions(executor, step, context, kubernetes).await
        }
        Ok(Some(Action::ApiServers)) => servers::wait(executor, step, context).await,
        Ok(Some(Action::SaveSnapshot)) => snapshots::save(executor, step, context).await,
        Ok(Some(Action::KeepSnapshots)) => snapshots::keep(executor, step, context).await,
        Ok(Some(Action::BringSnapshot { name, directory })) => {
            snapshots::bring(executor, step, context, (&name, &directory)).await
        }
        Ok(Some(Action::DrillSnapshot { name })) => {
            snapshots::drill(executor, step, context, &name).await
        }
        Ok(Some(Action::Cordon { lets_in })) => toolbox::cordon(executor, step, lets_in).await,
        Ok(Some(Action::Token { expires })) => toolbox::make_token(executor, expires).await,
        Ok(Some(Action::Certificates)) => toolbox::certificates(executor, step, context).await,
        Ok(Some(Action::Hook { .. })) => hook::run(executor, step, context).await,
        Ok(Some(Action::Health)) => health(executor, step, context).await,
        Ok(Some(Action::AnsiblePlay(_)) | None) => misplaced(format!(
            "step {} stands where no such step is expected",
            step.id
        )),
        Err(error) => misplaced(crate::chain(&error)),
    }
}
