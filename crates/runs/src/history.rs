//! How long ended runs are kept, and their removal: [`keep`] is what a reconciler calls after each pass over an object that is not
//! being deleted.
//!
//! What goes on, what somebody asked for, the newest run and the newest of each end stay whatever the limits say. What else a
//! domain reads of old runs, it names.

use std::collections::BTreeSet;

use api::{Run, run::RunPhase};
use jiff::{SignedDuration, Timestamp};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Preconditions},
};

use crate::{control::open_requests, is_active, phase};

/// How long runs of one subject are kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// How many.
    pub count: usize,
    /// How long after their end.
    pub age: SignedDuration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            count: 20,
            age: SignedDuration::from_hours(90 * 24),
        }
    }
}

/// Removes those of a subject's `runs`, oldest first, that the default limits let go: what is in `kept`, by name, stays.
///
/// # Errors
///
/// As of [`prune`].
pub async fn keep(
    client: &Client,
    runs: &[Run],
    kept: &BTreeSet<String>,
) -> Result<(), kube::Error> {
    let surplus = surplus(runs, &Limits::default(), kept, Timestamp::now());
    prune(client, &surplus).await
}

/// Which of a subject's `runs`, oldest first, are to go: what is in `kept`, by name, is not.
pub fn surplus<'a>(
    runs: &'a [Run],
    limits: &Limits,
    kept: &BTreeSet<String>,
    now: Timestamp,
) -> Vec<&'a Run> {
    let ended = runs.iter().filter(|run| !is_active(phase(run))).count();
    let newest: BTreeSet<_> = newest(runs).map(ResourceExt::name_any).collect();
    let mut beyond = ended.saturating_sub(limits.count);
    let goes = |run: &&Run| {
        let name = run.name_any();
        if is_to_go_on(run) || kept.contains(&name) || newest.contains(&name) {
            return false;
        }
        let old = ended_at(run).is_some_and(|end| now.duration_since(end) > limits.age);
        let surplus = beyond > 0;
        beyond = beyond.saturating_sub(1);
        surplus || old
    };
    runs.iter().filter(goes).collect()
}

/// Removes them: each only as it was seen, for somebody may have asked something of it since.
///
/// # Errors
///
/// The API refused, or did not answer. That a run is gone or changed is no error: the next pass sees it.
pub async fn prune(client: &Client, surplus: &[&Run]) -> Result<(), kube::Error> {
    for run in surplus {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: run.uid(),
                resource_version: run.resource_version(),
            }),
            ..DeleteParams::background()
        };
        let api = Api::<Run>::namespaced(client.clone(), &run.namespace().unwrap_or_default());
        match api.delete(&run.name_any(), &parameters).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error),
            Ok(_) => tracing::info!(
                run = run.name_any(),
                "removed a run that was kept long enough"
            ),
        }
    }
    Ok(())
}

/// The newest run, and the newest that failed and that succeeded.
fn newest(runs: &[Run]) -> impl Iterator<Item = &Run> {
    let last = |end| runs.iter().rev().find(move |run| phase(run) == end);
    let ends = [last(RunPhase::Failed), last(RunPhase::Succeeded)];
    ends.into_iter().chain([runs.last()]).flatten()
}

/// Whether a run is at work, a person asked for something that nobody answered yet, or it is about to go anyway.
fn is_to_go_on(run: &Run) -> bool {
    is_active(phase(run))
        || run.meta().deletion_timestamp.is_some()
        || !open_requests(run).is_empty()
}

fn ended_at(run: &Run) -> Option<Timestamp> {
    let ended = run.status.as_ref()?.finished_at.as_ref()?;
    Some(ended.0)
}

#[cfg(test)]
mod tests {
    use api::run::{RunSpec, RunStatus};
    use kube::api::{ListParams, PostParams};

    use super::*;

    #[tokio::test]
    async fn what_the_limits_let_go_is_removed_and_nothing_else() {
        let definitions = api::custom_resource_definitions();
        let server = kapi::Server::in_memory(&definitions).await.unwrap();
        let client = Client::new(server.router(), "default");
        let api = Api::<Run>::namespaced(client.clone(), "default");
        let mut runs = Vec::new();
        for number in 1..=24 {
            let run = Run::new(&format!("first-update-{number:02}"), spec());
            let mut run = api.create(&PostParams::default(), &run).await.unwrap();
            run.status = Some(RunStatus {
                phase: RunPhase::Succeeded,
                ..RunStatus::default()
            });
            runs.push(run);
        }
        let kept = BTreeSet::from(["first-update-02".to_owned()]);
        keep(&client, &runs, &kept).await.unwrap();
        keep(&client, &runs, &kept)
            .await
            .expect("those are gone already");
        let left = api.list(&ListParams::default()).await.unwrap();
        let left: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
        assert_eq!(left.len(), 20);
        assert_eq!(left[..2], ["first-update-02", "first-update-06"]);
    }

    fn spec() -> RunSpec {
        serde_json::from_value(serde_json::json!({
            "subject": {"apiGroup": "example.com", "kind": "Widget", "name": "first"}, "operation": "Update", "generation": 1,
            "plan": {"digest": "", "steps": []},
        }))
        .unwrap()
    }
}
