//! Plans that can be executed: a graph without cycles, in an order in which every step follows what it depends on.

use std::collections::HashMap;

use api::run::{Plan, Step};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A plan whose step ids are unique, whose dependencies are known, and whose steps stand in an order of execution.
///
/// A plan in such an order keeps it; another is reordered, as little as possible.
#[derive(Clone, Debug)]
pub struct CheckedPlan {
    plan: Plan,
    positions: HashMap<String, usize>,
}

/// Why a plan cannot be executed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Two steps have one id.
    #[error("step {0:?} stands in the plan twice: ids must be unique")]
    Duplicate(String),
    /// A step depends on one that does not exist.
    #[error("step {step:?} depends on {dependency:?}, which is no step of the plan")]
    UnknownDependency {
        /// The step.
        step: String,
        /// What it names.
        dependency: String,
    },
    /// Steps depend on each other in a circle.
    #[error("steps {} wait for each other: remove one of the dependencies", .0.join(", "))]
    Cycle(Vec<String>),
}

impl CheckedPlan {
    /// Checks a plan.
    pub fn new(mut plan: Plan) -> Result<Self, PlanError> {
        let before = positions(&plan.steps)?;
        for step in &plan.steps {
            if let Some(dependency) = step.depends_on.iter().find(|id| !before.contains_key(*id)) {
                return Err(PlanError::UnknownDependency {
                    step: step.id.clone(),
                    dependency: dependency.clone(),
                });
            }
        }
        plan.steps = ordered(plan.steps)?;
        let positions = positions(&plan.steps)?;
        Ok(Self { plan, positions })
    }

    /// The plan, in order.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.plan.steps
    }

    /// Where a step stands, from 0.
    pub fn position(&self, id: &str) -> Option<usize> {
        self.positions.get(id).copied()
    }

    /// A step by its id.
    pub fn step(&self, id: &str) -> Option<&Step> {
        self.position(id).and_then(|at| self.plan.steps.get(at))
    }
}

/// SHA-256, in hex, of a value as JSON with sorted keys and no spaces: equal values have equal digests, in whatever
/// order their fields were written.
pub fn digest(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let canonical = sorted(serde_json::to_value(value)?);
    Ok(hex::encode(Sha256::digest(serde_json::to_vec(&canonical)?)))
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.into_iter().map(|(k, v)| (k, sorted(v))).collect();
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        scalar => scalar,
    }
}

fn positions(steps: &[Step]) -> Result<HashMap<String, usize>, PlanError> {
    let mut positions = HashMap::new();
    for (at, step) in steps.iter().enumerate() {
        if positions.insert(step.id.clone(), at).is_some() {
            return Err(PlanError::Duplicate(step.id.clone()));
        }
    }
    Ok(positions)
}

/// Takes, again and again, the first step whose dependencies are all taken.
fn ordered(mut rest: Vec<Step>) -> Result<Vec<Step>, PlanError> {
    let mut done: Vec<Step> = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let ready = |step: &Step| {
            let taken = |id: &String| done.iter().any(|step| step.id == *id);
            step.depends_on.iter().all(taken)
        };
        match rest.iter().position(ready) {
            Some(at) => done.push(rest.remove(at)),
            None => return Err(PlanError::Cycle(rest.into_iter().map(|s| s.id).collect())),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(steps: &[(&str, &[&str])]) -> Plan {
        let step = |(id, on): &(&str, &[&str])| {
            serde_json::from_value(
                serde_json::json!({"id": id, "dependsOn": on, "action": {"probe": {}}}),
            )
            .unwrap()
        };
        Plan {
            steps: steps.iter().map(step).collect(),
            ..Plan::default()
        }
    }

    #[test]
    fn an_order_that_can_be_executed_is_kept_and_another_is_mended() {
        let ids = |plan| {
            let plan = CheckedPlan::new(plan).unwrap();
            plan.steps()
                .iter()
                .map(|s| s.id.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            ids(plan(&[("c", &[]), ("a", &[]), ("b", &["c"])])),
            ["c", "a", "b"]
        );
        assert_eq!(
            ids(plan(&[("b", &["a"]), ("a", &[]), ("c", &[])])),
            ["a", "b", "c"]
        );
    }

    #[test]
    fn what_is_no_graph_is_refused() {
        let error = |steps: &[(&str, &[&str])]| CheckedPlan::new(plan(steps)).unwrap_err();
        assert_eq!(
            error(&[("a", &[]), ("a", &[])]),
            PlanError::Duplicate("a".into())
        );
        assert!(matches!(
            error(&[("a", &["z"])]),
            PlanError::UnknownDependency { .. }
        ));
        assert_eq!(
            error(&[("x", &[]), ("a", &["b"]), ("b", &["a"])]),
            PlanError::Cycle(vec!["a".into(), "b".into()])
        );
    }

    #[test]
    fn the_digest_does_not_depend_on_the_order_of_fields() {
        let read = |text| serde_json::from_str::<Value>(text).unwrap();
        let one = digest(&read(r#"{"a":{"x":1,"y":[1,2]},"b":null}"#)).unwrap();
        let two = digest(&read(r#"{"b":null,"a":{"y":[1,2],"x":1}}"#)).unwrap();
        assert_eq!(one, two);
        assert_ne!(
            one,
            digest(&read(r#"{"b":null,"a":{"y":[2,1],"x":1}}"#)).unwrap()
        );
    }
}
