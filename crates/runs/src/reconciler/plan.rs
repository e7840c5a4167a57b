//! What a run needs: pure.

use api::{Run, RunStatus, run::RunPhase};
use workflow::{
    CheckedPlan, State, SystemClock,
    runner::{end_without_runner, refuse_without_runner},
    status::{Live, derive},
};

use crate::{
    control::steering,
    obstacle::{Kind, Obstacle},
    phase,
    presence::{Presence, needs_runner},
};

/// What a run needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// A runner; the last one died of this, if it did.
    Start(Option<Obstacle>),
    /// Its runner, which has been asked for and does not come if there is an obstacle.
    Await(Option<Obstacle>),
    /// Its runner, asked for anew: this stood in the way, and its subject wants it otherwise by now.
    Renew(Obstacle),
    /// Its end, which is wanted of it and which no runner comes to carry out.
    End(Box<RunStatus>),
    /// The answer to those who ask for it to be taken up again: it cannot be.
    Refuse(Box<RunStatus>),
    /// Nothing: it has a runner.
    Watch,
    /// Nothing: it is at its end.
    Rest,
}

/// Decides. `outdated` says why the run cannot be taken up again once it failed, if it cannot.
pub fn plan(run: &Run, runner: Presence, outdated: Option<&str>) -> Decision {
    let wanted = needs_runner(run);
    let taken_up = wanted && phase(run) == RunPhase::Failed;
    if let Some(why) = outdated.filter(|_| taken_up)
        && !works(&runner)
        && let Some(refused) = refuse(run, why)
    {
        return Decision::Refuse(Box::new(refused));
    }
    match runner {
        Presence::AtWork => Decision::Watch,
        Presence::Absent(death) if wanted => Decision::Start(death),
        Presence::Coming if wanted => Decision::Await(None),
        Presence::Blocked { obstacle, outdated } if wanted => blocked(run, obstacle, outdated),
        _ => Decision::Rest,
    }
}

fn blocked(run: &Run, obstacle: Obstacle, outdated: bool) -> Decision {
    // Its pod may work: neither must another one come, nor may the run count as ended.
    if obstacle.kind == Kind::Lost {
        return Decision::Await(Some(obstacle));
    }
    if let Some(ended) = end(run) {
        return Decision::End(Box::new(ended));
    }
    if outdated {
        Decision::Renew(obstacle)
    } else {
        Decision::Await(Some(obstacle))
    }
}

/// Whether a runner is at work, or may be.
fn works(runner: &Presence) -> bool {
    match runner {
        Presence::AtWork => true,
        Presence::Blocked { obstacle, .. } => obstacle.kind == Kind::Lost,
        Presence::Absent(_) | Presence::Coming => false,
    }
}

/// The status that its end leaves a run with, if that is wanted of it. A history that does not tell how it stands is left to a
/// runner.
fn end(run: &Run) -> Option<RunStatus> {
    without_runner(run, |plan, status| {
        end_without_runner(plan, &status.history, &steering(run), &SystemClock).ok()?
    })
}

/// The status of a run with the answer to those who ask something of it. A history that does not tell how it stands is left to a
/// runner here too.
fn refuse(run: &Run, why: &str) -> Option<RunStatus> {
    let refused = without_runner(run, |plan, status| {
        refuse_without_runner(plan, &status.history, &steering(run), why, &SystemClock).ok()?
    });
    refused.filter(|status| status.phase == RunPhase::Failed)
}

fn without_runner(
    run: &Run,
    recorded: impl FnOnce(&CheckedPlan, &RunStatus) -> Option<State>,
) -> Option<RunStatus> {
    let plan = CheckedPlan::new(run.spec.plan.clone()).ok()?;
    let status = run.status.clone().unwrap_or_default();
    let ended = recorded(&plan, &status)?;
    let live = Live {
        runner: status.runner,
        ..Live::default()
    };
    Some(derive(&plan, &ended, &live))
}

#[cfg(test)]
mod tests {
    use api::run::{DesiredState, RecordEvent};
    use kube::ResourceExt;
    use serde_json::json;

    use super::*;
    use crate::control::SUPERSEDED_BY;

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
                "subject": {"apiGroup": "example.com", "kind": "Widget", "name": "w"}, "operation": "Make", "generation": 1,
                "plan": {"digest": "d", "steps": []}, "control": {"requests": requests},
            },
            "status": {"phase": phase, "history": history},
        }))
        .unwrap()
    }

    #[test]
    fn a_run_has_a_runner_until_its_end() {
        use Presence::{AtWork, Coming};
        let (absent, start) = (|| Presence::Absent(None), || Decision::Start(None));

        for (name, run, runner, expected) in [
            ("new", run("Pending", None, false), absent(), start()),
            (
                "asked for",
                run("Pending", None, false),
                Coming,
                Decision::Await(None),
            ),
            (
                "at work",
                run("Running", None, false),
                AtWork,
                Decision::Watch,
            ),
            (
                "its runner died",
                run("Running", None, false),
                absent(),
                start(),
            ),
            ("paused", run("Paused", None, false), absent(), start()),
            (
                "failed",
                run("Failed", None, false),
                absent(),
                Decision::Rest,
            ),
            (
                "retry asked",
                run("Failed", Some("Retry"), false),
                absent(),
                start(),
            ),
            (
                "retry answered",
                run("Failed", Some("Retry"), true),
                absent(),
                Decision::Rest,
            ),
            (
                "approve asked",
                run("Failed", Some("Approve"), false),
                absent(),
                Decision::Rest,
            ),
            (
                "done",
                run("Succeeded", Some("Retry"), false),
                absent(),
                Decision::Rest,
            ),
            (
                "cancelled",
                run("Cancelled", None, false),
                absent(),
                Decision::Rest,
            ),
        ] {
            assert_eq!(plan(&run, runner, None), expected, "{name}");
        }
    }

    fn obstacle(kind: Kind) -> Obstacle {
        let message = "why".to_owned();
        Obstacle { kind, message }
    }

    #[test]
    fn a_runner_that_does_not_come_is_asked_for_as_its_subject_wants_it() {
        let run = run("Pending", None, false);
        for kind in Kind::ALL {
            let runner = |outdated| Presence::Blocked {
                obstacle: obstacle(kind),
                outdated,
            };
            let awaited = Decision::Await(Some(obstacle(kind)));
            assert_eq!(plan(&run, runner(false), None), awaited);
            let renewed = match kind {
                // Its pod may work.
                Kind::Lost => awaited,
                _ => Decision::Renew(obstacle(kind)),
            };
            assert_eq!(plan(&run, runner(true), None), renewed);
        }
    }

    #[test]
    fn a_run_that_is_to_end_needs_no_runner_that_does_not_come() {
        let mut cancelled = run("Running", None, false);
        cancelled.spec.control.get_or_insert_default().state = Some(DesiredState::Cancelled);
        let mut superseded = run("Running", None, false);
        let annotations = superseded.annotations_mut();
        annotations.insert(SUPERSEDED_BY.to_owned(), "another".to_owned());
        for (run, expected) in [
            (cancelled, RunPhase::Cancelled),
            (superseded, RunPhase::Superseded),
        ] {
            for kind in Kind::ALL {
                let runner = Presence::Blocked {
                    obstacle: obstacle(kind),
                    outdated: true,
                };
                match plan(&run, runner, None) {
                    Decision::End(ended) => assert_eq!(ended.phase, expected),
                    decision => assert_eq!(decision, Decision::Await(Some(obstacle(Kind::Lost)))),
                }
            }
            // One that is at work ends it.
            assert_eq!(plan(&run, Presence::AtWork, None), Decision::Watch);
        }
    }

    /// A run whose only step failed, and of which somebody asks something.
    fn failed(request: &str) -> Run {
        let record = |sequence: u32, event: &str| json!({"sequence": sequence, "time": "2026-01-01T00:00:00Z", "event": event});
        let step = |sequence, event| {
            let mut record = record(sequence, event);
            record["step"] = json!("s");
            record["attempt"] = json!(1);
            record
        };
        let mut ended = step(3, "StepFailed");
        ended["failure"] = json!({"class": "External", "code": "Gate", "message": "m"});
        let mut run = run("Failed", Some(request), false);
        let action = json!({"engine": {"name": "e", "type": "T"}});
        let steps = json!([{"id": "s", "action": action}]);
        run.spec.plan.steps = serde_json::from_value(steps).unwrap();
        let history = json!([
            record(1, "RunStarted"),
            step(2, "StepStarted"),
            ended,
            record(4, "RunFailed")
        ]);
        run.status.as_mut().unwrap().history = serde_json::from_value(history).unwrap();
        run
    }

    #[test]
    fn an_outdated_run_is_not_taken_up_whoever_asks() {
        let old = Some("old");
        for request in ["Retry", "Skip"] {
            for runner in [Presence::Absent(None), Presence::Coming] {
                let mut run = failed(request);
                let Decision::Refuse(status) = plan(&run, runner, old) else {
                    panic!("{request} is not refused");
                };
                assert_eq!(status.phase, RunPhase::Failed);
                let answer = status.history.last().unwrap();
                assert_eq!(answer.event, RecordEvent::RequestRefused);
                assert_eq!(answer.detail.as_deref(), old);
                run.status = Some(*status);
                let rests = plan(&run, Presence::Absent(None), old);
                assert_eq!(rests, Decision::Rest, "answered once");
            }
        }
        let up_to_date = plan(&failed("Retry"), Presence::Absent(None), None);
        assert_eq!(up_to_date, Decision::Start(None));
        let at_work = plan(&failed("Retry"), Presence::AtWork, old);
        assert_eq!(at_work, Decision::Watch);
        let begun = plan(&run("Running", None, false), Presence::Absent(None), old);
        assert_eq!(begun, Decision::Start(None));
        // It does not tell how it stands.
        let untold = plan(
            &run("Failed", Some("Retry"), false),
            Presence::Absent(None),
            old,
        );
        assert_eq!(untold, Decision::Start(None));
    }
}
