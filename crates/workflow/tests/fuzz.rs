//! What a journal and an object of the API hold, damaged: it is read or refused, and nothing else happens.

use api::run::{Plan, Record};
use workflow::{
    CheckedPlan, State,
    journal::merge,
    status::{Live, derive},
};

const PLAN: &str = r#"{"digest": "d", "steps": [
    {"id": "prepare/probe", "action": {"engine": {"name": "simulated", "type": "Work"}}, "targets": ["one", "two"], "gate": {"unreachable": "50%", "onBreach": "Pause"}},
    {"id": "etcd/install", "dependsOn": ["prepare/probe"], "action": {"engine": {"name": "simulated", "type": "Work", "parameters": {"play": 3, "tasks": 7}}},
     "targets": ["one"], "timeout": "1h", "retry": {"limit": 3, "backOff": "5s"}, "batch": "a", "weight": 9},
    {"id": "done", "dependsOn": ["etcd/install"], "action": {"approve": {"question": "well?"}}}]}"#;

const HISTORY: &str = r#"[
    {"sequence": 1, "time": "2026-01-01T00:00:00Z", "event": "RunStarted"},
    {"sequence": 2, "time": "2026-01-01T00:00:01Z", "event": "StepStarted", "step": "prepare/probe", "attempt": 1},
    {"sequence": 3, "time": "2026-01-01T00:00:02Z", "event": "StepSucceeded", "step": "prepare/probe", "attempt": 1,
     "excluded": [{"target": "two", "reason": "away"}], "results": {"ok": 1}},
    {"sequence": 4, "time": "2026-01-01T00:00:03Z", "event": "StepStarted", "step": "etcd/install", "attempt": 1},
    {"sequence": 5, "time": "2026-01-01T00:00:04Z", "event": "StepFailed", "step": "etcd/install", "attempt": 1,
     "failure": {"class": "Transient", "code": "DiskFull", "message": "no room", "remedy": "make some", "targets": ["one"]}},
    {"sequence": 6, "time": "2026-01-01T00:00:05Z", "event": "RunPaused", "step": "etcd/install", "detail": "no room"}]"#;

#[test]
fn histories_survive_fuzzing() {
    let plan: Plan = serde_json::from_str(PLAN).expect("a plan");
    let plan = CheckedPlan::new(plan).expect("a plan that can be executed");
    let whole: Vec<Record> = serde_json::from_str(HISTORY).expect("a history");
    State::replay(&plan, &whole).expect("a history of the plan");
    fuzz::bytes("history", &[HISTORY.as_bytes()], |bytes| {
        let Ok(records) = serde_json::from_slice::<Vec<Record>>(bytes) else {
            return;
        };
        if let Ok(merged) = merge(&whole, &records) {
            assert!(merged.last().expect("records").sequence >= 6);
        }
        if let Ok(state) = State::replay(&plan, &records) {
            let status = derive(&plan, &state, &Live::default());
            assert_eq!(status.steps.len(), plan.steps().len());
        }
    });
}

#[test]
fn plans_survive_fuzzing() {
    fuzz::bytes("plan", &[PLAN.as_bytes()], |bytes| {
        let Ok(plan) = serde_json::from_slice::<Plan>(bytes) else {
            return;
        };
        let steps = plan.steps.len();
        let Ok(plan) = CheckedPlan::new(plan) else {
            return;
        };
        assert_eq!(plan.steps().len(), steps);
        let state = State::replay(&plan, &[]).expect("nothing happened");
        drop(derive(&plan, &state, &Live::default()));
    });
}
