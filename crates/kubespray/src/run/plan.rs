//! What a run needs: pure.

use api::{
    Run,
    run::{RequestAction, RunPhase},
};
use kube::Resource;

use crate::{
    cluster::plan::{is_active, phase},
    control::open_requests,
};

/// What a run needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// A runner.
    Start,
    /// Nothing: it has a runner.
    Watch,
    /// Nothing: it is at its end.
    Rest,
}

/// Decides. A failed run needs a runner again when a person asked for something that takes it up.
pub fn plan(run: &Run, has_runner: bool) -> Decision {
    let asked = open_requests(run)
        .iter()
        .any(|request| matches!(request.action, RequestAction::Retry | RequestAction::Skip));
    let phase = phase(run);
    let wanted = is_active(phase) || (phase == RunPhase::Failed && asked);
    match (wanted, has_runner) {
        (_, true) => Decision::Watch,
        (true, false) if run.meta().deletion_timestamp.is_none() => Decision::Start,
        _ => Decision::Rest,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(phase: &str, request: Option<&str>, answered: bool) -> Run {
        let requests: Vec<_> = request
            .iter()
            .map(|action| json!({"id": "1", "action": action}))
            .collect();
        let mut history = Vec::new();
        if answered {
            history.push(json!({"sequence": 1, "time": "2026-01-01T00:00:00Z", "event": "StepRetried", "request": "1"}));
        }
        serde_json::from_value(json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run", "metadata": {"name": "r"},
            "spec": {
                "clusterRef": {"name": "c"}, "operation": "Create", "generation": 1,
                "plan": {"digest": "d", "steps": []}, "control": {"requests": requests},
            },
            "status": {"phase": phase, "history": history},
        }))
        .unwrap()
    }

    #[test]
    fn a_run_has_a_runner_until_its_end() {
        for (name, run, has_runner, expected) in [
            ("new", run("Pending", None, false), false, Decision::Start),
            (
                "at work",
                run("Running", None, false),
                true,
                Decision::Watch,
            ),
            (
                "its runner died",
                run("Running", None, false),
                false,
                Decision::Start,
            ),
            ("paused", run("Paused", None, false), false, Decision::Start),
            ("failed", run("Failed", None, false), false, Decision::Rest),
            (
                "retry asked",
                run("Failed", Some("Retry"), false),
                false,
                Decision::Start,
            ),
            (
                "retry answered",
                run("Failed", Some("Retry"), true),
                false,
                Decision::Rest,
            ),
            (
                "approve asked",
                run("Failed", Some("Approve"), false),
                false,
                Decision::Rest,
            ),
            (
                "done",
                run("Succeeded", Some("Retry"), false),
                false,
                Decision::Rest,
            ),
            (
                "cancelled",
                run("Cancelled", None, false),
                false,
                Decision::Rest,
            ),
        ] {
            assert_eq!(plan(&run, has_runner), expected, "{name}");
        }
    }
}
