//! What was proved before a play is proved again where that is long ago.
//!
//! Between the step that asks etcd, or that waits until the cluster is well, and the play that rests on the answer there may be a pause, an
//! approval, a window that ended, a retry days later. The play finds out by itself: a runner knows for how long a proof of its own
//! holds, and one that it has not seen is none.

use std::time::Duration;

use api::run::{Plan, Step};
use tokio::time::Instant;
use workflow::{StepContext, StepOutcome};

use super::{dispatch, executor::KubesprayExecutor};
use crate::{
    action::{self, Action, Turn},
    playbooks::Own,
};

/// How long a proof holds: longer than what is between it and its play where nobody waits.
const HOLDS: Duration = Duration::from_mins(2);

/// Notes that a step has succeeded, if it is a proof.
pub(crate) fn note(executor: &KubesprayExecutor, step: &Step) {
    if matches!(
        action::of(step),
        Ok(Some(Action::Gate(_) | Action::Quorum(_)))
    ) {
        let mut given = executor.given();
        given.insert(step.id.clone(), Instant::now());
    }
}

/// Gives the proofs anew that the first of these plays rests on; some: it may not begin.
pub(crate) async fn renewed(
    executor: &KubesprayExecutor,
    first: &Step,
    context: &StepContext,
) -> Option<StepOutcome> {
    let repeated = context.interrupted || context.attempt > 1;
    let plan = executor.work.plan.plan();
    for proof in rested_on(plan, first, repeated) {
        let given = executor.given().get(&proof.id).copied();
        if given.is_some_and(|given| given.elapsed() < HOLDS) {
            continue;
        }
        // Told as what the play begins with: the step of the proof has ended.
        let again = Step {
            id: first.id.clone(),
            ..proof.clone()
        };
        let outcome = dispatch::single(executor, &again, context).await;
        if !matches!(outcome, StepOutcome::Succeeded { .. }) {
            return Some(outcome);
        }
        note(executor, proof);
    }
    None
}

/// The last proof of each kind right before a play. Plays on the one host that it works on may be between it and what etcd said of that
/// host. In the middle of its own work a cluster is not well, nor do all members of etcd answer: a play that is repeated rests on neither.
fn rested_on<'a>(plan: &'a Plan, first: &Step, repeated: bool) -> Vec<&'a Step> {
    let own: Vec<_> = plan.targets(first).collect();
    let before: Vec<&Step> = plan
        .steps
        .iter()
        .take_while(|step| step.id != first.id)
        .collect();
    let (mut gate, mut quorum, mut played) = (None, None, false);
    for step in before.into_iter().rev() {
        match action::of(step) {
            Ok(Some(Action::Gate(_))) if gate.is_none() && !played && !repeated => {
                gate = Some(step);
            }
            Ok(Some(Action::Quorum(change))) if quorum.is_none() => {
                let all_answer = change.turn == Turn::AllRestart;
                quorum = (!all_answer || !played && !repeated).then_some(step);
                break;
            }
            Ok(Some(Action::AnsiblePlay(play))) if play.playbook != Own::RecoverCheck.name() => {
                played = true;
                if own.len() != 1 || !plan.targets(step).eq(own.iter().copied()) {
                    break;
                }
            }
            _ => {}
        }
    }
    quorum.into_iter().chain(gate).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A plan of steps, each on a host of its own or on several.
    fn plan(steps: &[(&str, Action, &[&str])]) -> Plan {
        let groups = steps
            .iter()
            .enumerate()
            .map(|(at, (_, _, hosts))| json!({"name": at.to_string(), "targets": hosts}));
        let steps_of = steps.iter().enumerate().map(|(at, (id, action, _))| {
            let action = api::run::Action::from(action.clone());
            json!({"id": id, "title": id, "action": action, "groups": [at.to_string()]})
        });
        serde_json::from_value(json!({
            "digest": "d", "groups": groups.collect::<Value>(), "steps": steps_of.collect::<Value>(),
        }))
        .unwrap()
    }

    fn quorum(host: &str, turn: Turn) -> Action {
        Action::Quorum(crate::action::MemberChange {
            host: host.parse().unwrap(),
            member: host.to_owned(),
            turn,
        })
    }

    fn play() -> Action {
        Action::AnsiblePlay(crate::action::AnsiblePlay {
            playbook: "cluster".to_owned(),
            limited: true,
            ..Default::default()
        })
    }

    fn ids(plan: &Plan, first: &str, repeated: bool) -> Vec<String> {
        let first = plan.steps.iter().find(|step| step.id == first).unwrap();
        let rested_on = rested_on(plan, first, repeated).into_iter();
        rested_on.map(|step| step.id.clone()).collect()
    }

    #[test]
    fn a_play_rests_on_what_was_proved_for_it() {
        let gate = || Action::Gate(crate::action::Gate::default());
        let members = plan(&[
            ("before-1", quorum("m1", Turn::Restarts), &["m1", "m2"]),
            ("etcd-1", play(), &["m1"]),
            ("after-1", quorum("m1", Turn::Restarted), &["m1", "m2"]),
            ("before-2", quorum("m2", Turn::Restarts), &["m1", "m2"]),
            ("etcd-2", play(), &["m2"]),
            ("again-2", play(), &["m2"]),
            ("others", play(), &["w1"]),
        ]);
        for repeated in [false, true] {
            assert_eq!(ids(&members, "etcd-1", repeated), ["before-1"]);
            assert_eq!(ids(&members, "etcd-2", repeated), ["before-2"]);
            // What is done to a host goes on resting on what etcd said of it; on another host it never did.
            assert_eq!(ids(&members, "again-2", repeated), ["before-2"]);
            assert!(ids(&members, "others", repeated).is_empty());
        }
        let batches = plan(&[
            ("begins", gate(), &["m1"]),
            ("all", quorum("m1", Turn::AllRestart), &["m1"]),
            ("batch-1", play(), &["m1"]),
            ("gate-1", gate(), &["m1"]),
            ("approve", Action::Health, &["m1"]),
            ("batch-2", play(), &["w1"]),
            ("rest-2", play(), &["w1"]),
        ]);
        assert_eq!(ids(&batches, "batch-1", false), ["all"]);
        assert_eq!(ids(&batches, "batch-2", false), ["gate-1"]);
        // It has begun: its own work is why the cluster is not well.
        assert!(ids(&batches, "batch-1", true).is_empty());
        assert!(ids(&batches, "batch-2", true).is_empty());
        assert!(ids(&batches, "rest-2", false).is_empty());
    }
}
