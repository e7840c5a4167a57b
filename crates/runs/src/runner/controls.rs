//! What people want, followed by a watch on the Run.

use std::sync::Arc;

use api::{Run, run::DesiredState};
use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::sync::watch;
use workflow::Steering;

use crate::control::steering;
use crate::{Engine, Work};

/// Why a run whose plan was changed does not go on.
const CHANGED: &str =
    "its plan was changed after it was stored: its digest is another, a new plan takes its place";

/// Follows `spec.control` for as long as the process lives. The first value is that of the Run as it was fetched.
pub(crate) fn follow<E: Engine>(work: &Work, engine: Arc<E>) -> watch::Receiver<Steering> {
    let wanted = move |run: &Run| wanted(run, &engine.digest(&run.spec));
    let (sender, receiver) = watch::channel(wanted(&work.run));
    let api = Api::<Run>::namespaced(work.client.clone(), &work.namespace());
    let name = work.run.name_any();
    let uid = work.run.uid();
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    tokio::spawn(async move {
        let mut events = watcher(api, config).default_backoff().boxed();
        while let Some(event) = events.next().await {
            let wanted = match event {
                Ok(watcher::Event::Apply(run) | watcher::Event::InitApply(run))
                    if run.uid() == uid =>
                {
                    wanted(&run)
                }
                // Nobody can want anything of a Run that is gone, and nobody would see how it goes on.
                Ok(watcher::Event::Delete(run)) if run.uid() == uid => {
                    let mut steering = wanted(&run);
                    steering.control.state = Some(DesiredState::Cancelled);
                    steering
                }
                Ok(_) => continue,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the watch on the Run failed, trying again"
                    );
                    continue;
                }
            };
            sender.send_if_modified(|now| {
                let changed = *now != wanted;
                *now = wanted;
                changed
            });
        }
    });
    receiver
}

/// What a Run asks for. A plan that is not what its digest says was not planned so, and is not executed: before the first step,
/// or at the next place where it may, the run ends for a plan that is compiled anew.
fn wanted(run: &Run, digest: &Result<String, serde_json::Error>) -> Steering {
    let mut steering = steering(run);
    if digest
        .as_ref()
        .is_ok_and(|digest| *digest != run.spec.plan.digest)
    {
        steering
            .superseded
            .get_or_insert_with(|| CHANGED.to_owned());
    }
    steering
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn run() -> Value {
        let mut run = json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": "r"},
            "spec": {
                "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": "c"}, "operation": "Create", "generation": 1,
                "plan": {
                    "digest": "", "reason": "why", "request": "again",
                    "groups": [{"name": "g", "targets": ["a", "b"]}],
                    "inputs": {"kubespray": "2.31.0"},
                    "steps": [{"id": "s", "title": "S", "action": {"engine": {"name": "kubespray", "type": "Probe"}}, "groups": ["g"]}],
                },
            },
        });
        let stored: Run = serde_json::from_value(run.clone()).unwrap();
        run["spec"]["plan"]["digest"] = json!(digest(&stored).unwrap());
        run
    }

    fn digest(run: &Run) -> Result<String, serde_json::Error> {
        workflow::plan::digest_of(&run.spec.operation, &run.spec.plan)
    }

    fn superseded(run: &Value) -> Option<String> {
        let run: Run = serde_json::from_value(run.clone()).unwrap();
        wanted(&run, &digest(&run)).superseded
    }

    #[test]
    fn a_plan_that_was_changed_after_it_was_stored_gives_way_to_a_new_one() {
        assert_eq!(superseded(&run()), None);
        for (place, value) in [
            ("/spec/operation", json!("Reset")),
            ("/spec/plan/request", json!("other")),
            ("/spec/plan/groups/0/targets/1", json!("c")),
            ("/spec/plan/inputs/kubespray", json!("2.30.0")),
            (
                "/spec/plan/steps/0/action",
                json!({"engine": {"name": "kubespray", "type": "Sandbox"}}),
            ),
            ("/spec/plan/steps/0/groups", json!([])),
            ("/spec/plan/digest", json!("another")),
        ] {
            let mut changed = run();
            *changed.pointer_mut(place).unwrap() = value;
            assert_eq!(superseded(&changed).as_deref(), Some(CHANGED), "{place}");
        }
        // What people read may be put otherwise.
        let mut changed = run();
        changed["spec"]["plan"]["reason"] = json!("other words");
        assert_eq!(superseded(&changed), None);
    }
}
