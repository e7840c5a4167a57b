//! The subject's Lease, held while the runner works.
//!
//! Whatever others would see asks for the proof that the Lease is held, and what the engine starts is told until when that is
//! sure ([`Leave`]), for a runner that is stopped ends nothing.
//!
//! An API that runs beside its runners, as `windlass up` does, may end before them: they go on. Nobody can take the Lease
//! while nobody listens at its address, and it is the same machine that says so.

use std::{sync::Arc, time::Duration};

use api::Run;
use controller::lease::{Candidate, Claim, Error, Hold, is_refused};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;

use crate::{
    engine::{Leave, Work},
    process::is_gone,
};

/// How often a Lease that somebody else holds is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Takes the Lease; waits for a holder to give it up. A run that has `begun` goes on without it while its API is away for
/// everybody: it held the Lease before, and whoever takes it meanwhile must see the API, where this run stands unfinished.
pub(crate) async fn take(work: &Work, leave: Leave, begun: bool) -> Result<Hold, Error> {
    let claim = Claim {
        name: crate::lease_name(&work.run.spec.subject.kind, work.subject()),
        holder: work.identity.id.clone(),
        generation: work.run.spec.generation,
        owner: owner(&work.run),
    };
    let mut candidate = Candidate::new(work.client.clone(), work.namespace(), claim, is_gone);
    if !begun && is_first(&work.run) {
        candidate = candidate.first();
    }
    if let Some(beside) = work.beside.clone() {
        candidate = candidate.outliving(move |error| is_refused(error) && beside.is_there());
    }
    loop {
        let told = Arc::clone(&leave);
        let tell = move |end| told(end);
        match candidate.take(tell.clone()).await {
            Ok(hold) => return Ok(hold),
            Err(error @ Error::Fenced { .. }) => return Err(error),
            Err(error @ (Error::Held { .. } | Error::Unknown { .. })) => {
                tracing::info!(
                    error = &error as &dyn std::error::Error,
                    "waiting for the subject's lease"
                );
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the subject's lease cannot be taken yet"
                );
                if begun && candidate.is_away(&error) {
                    return Ok(candidate.outlive(tell));
                }
            }
        }
        tokio::time::sleep(controller::backoff::jittered(LOOK)).await;
    }
}

/// Whether nobody can have held the subject's Lease before a runner of this run. Runs are counted by what the subject remembers of
/// them too, so that this is known after they were deleted.
fn is_first(run: &Run) -> bool {
    let has_begun = run
        .status
        .as_ref()
        .is_some_and(|status| !status.history.is_empty());
    crate::number(&run.name_any()) == 1 && !has_begun
}

/// The subject, as the Run's owner reference names it: the Lease of a subject that is deleted goes by itself, and another one
/// of the name is not fenced off by it.
fn owner(run: &Run) -> Option<OwnerReference> {
    let owner = run.metadata.owner_references.iter().flatten().next()?;
    Some(OwnerReference {
        controller: None,
        block_owner_deletion: None,
        ..owner.clone()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_run_of_a_subject_is_known_by_its_number_until_it_has_begun() {
        let run = |name: &str, history: serde_json::Value| -> Run {
            serde_json::from_value(json!({
                "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
                "metadata": {"name": name},
                "spec": {
                    "subject": {"apiGroup": "example.com", "kind": "Widget", "name": "first"},
                    "operation": "Create", "generation": 1, "plan": {"digest": "", "steps": []},
                },
                "status": {"history": history},
            }))
            .unwrap()
        };
        assert!(is_first(&run("first-create-1", json!([]))));
        assert!(!is_first(&run("first-reset-2", json!([]))));
        assert!(!is_first(&run("mine", json!([]))));
        let started =
            json!([{"sequence": 1, "time": "2026-01-01T00:00:00Z", "event": "RunStarted"}]);
        assert!(!is_first(&run("first-create-1", started)));
    }
}
