//! Plans that can be executed: a graph without cycles, in an order in which every step follows what it depends on.

use std::collections::{HashMap, HashSet};

use api::{
    Target,
    run::{Group, Plan, Step},
};
use serde::Serialize;
use serde_json::{Value, json};
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
    /// A step works on a group that does not exist.
    #[error("step {step:?} works on {group:?}, which is no group of the plan")]
    UnknownGroup {
        /// The step.
        step: String,
        /// What it names.
        group: String,
    },
    /// A target is named more than once.
    #[error("target {0:?} stands in the groups of the plan twice: each is named once")]
    DuplicateTarget(String),
    /// Steps depend on each other in a circle.
    #[error("steps {} wait for each other: remove one of the dependencies", .0.join(", "))]
    Cycle(Vec<String>),
}

impl CheckedPlan {
    /// Checks a plan.
    ///
    /// # Errors
    ///
    /// Steps share an id, depend on what is not there or on each other in a circle, or groups do not fit.
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
        check_groups(&plan)?;
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

    /// How many steps may run at a time. With one, steps run in the order of the plan, whatever they depend on; with more,
    /// only what a step depends on comes before it.
    pub fn parallelism(&self) -> usize {
        self.plan.parallelism.map_or(1, usize::from).max(1)
    }

    /// Whether two steps work on one target: then they never run at the same time. Each target stands in one group.
    pub fn share_targets(one: &Step, other: &Step) -> bool {
        one.groups.iter().any(|group| other.groups.contains(group))
    }

    /// A step by its id.
    pub fn step(&self, id: &str) -> Option<&Step> {
        self.position(id).and_then(|at| self.plan.steps.get(at))
    }
}

/// The digest that names a plan: of the operation and of all that its runner reads.
///
/// # Errors
///
/// The plan cannot be written as JSON.
pub fn digest_of(operation: &str, plan: &Plan) -> Result<String, serde_json::Error> {
    let Plan {
        digest: _,
        // Words for people, which another version of the program may choose otherwise.
        reason: _,
        wish: _,
        request,
        groups,
        inputs,
        parallelism,
        steps,
    } = plan;
    digest(&json!({
        "operation": operation,
        "request": request,
        "groups": groups,
        "inputs": inputs,
        "parallelism": parallelism,
        "steps": steps,
    }))
}

/// Names each target once, in this order: the fewest groups that every list can be made of, and those that each list is made of.
pub fn grouped(order: &[Target], lists: &[Vec<Target>]) -> (Vec<Group>, Vec<Vec<String>>) {
    let mut members: HashMap<&Target, Vec<usize>> = HashMap::new();
    for (at, list) in lists.iter().enumerate() {
        for target in list {
            let places = members.entry(target).or_default();
            if places.last() != Some(&at) {
                places.push(at);
            }
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut known: HashMap<Vec<usize>, usize> = HashMap::new();
    let mut made_of = vec![Vec::new(); lists.len()];
    for target in order.iter().chain(lists.iter().flatten()) {
        let Some(places) = members.remove(target) else {
            continue;
        };
        let at = *known.entry(places).or_insert_with_key(|places| {
            let name = format!("group-{}", groups.len() + 1);
            for place in places {
                if let Some(names) = made_of.get_mut(*place) {
                    names.push(name.clone());
                }
            }
            groups.push(Group {
                name,
                targets: Vec::new(),
            });
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(at) {
            group.targets.push(target.clone());
        }
    }
    (groups, made_of)
}

fn check_groups(plan: &Plan) -> Result<(), PlanError> {
    let mut targets = HashSet::new();
    let all = plan.groups.iter().flat_map(|group| &group.targets);
    for target in all {
        if !targets.insert(target) {
            return Err(PlanError::DuplicateTarget(target.to_string()));
        }
    }
    let names: HashSet<_> = plan.groups.iter().map(|group| &group.name).collect();
    for step in &plan.steps {
        if let Some(group) = step.groups.iter().find(|name| !names.contains(name)) {
            return Err(PlanError::UnknownGroup {
                step: step.id.clone(),
                group: group.clone(),
            });
        }
    }
    Ok(())
}

/// SHA-256, in hex, of a value as JSON with sorted keys and no spaces: equal values have equal digests, in whatever
/// order their fields were written.
///
/// # Errors
///
/// The value cannot be written as JSON.
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
                serde_json::json!({"id": id, "dependsOn": on, "action": {"engine": {"name": "simulated", "type": "Work"}}}),
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
    fn each_host_is_named_once_and_every_step_has_its_own() {
        let names = |text: &str| -> Vec<Target> {
            text.split_whitespace()
                .map(|name| name.parse().unwrap())
                .collect()
        };
        let lists = ["a b c d e", "a", "", "a b", "e d c", "a b c d e", "f"].map(names);
        let (groups, made_of) = grouped(&names("a b c d e"), &lists);
        let targets = groups.iter().flat_map(|group| group.targets.clone());
        assert_eq!(targets.collect::<Vec<_>>(), names("a b c d e f"));
        assert_eq!(groups.len(), 4, "a, b, the rest, and f: {groups:?}");
        let plan = Plan {
            groups,
            ..plan(&[("s", &[])])
        };
        for (list, groups) in lists.iter().zip(made_of) {
            let step = Step {
                groups,
                ..plan.steps[0].clone()
            };
            let mut wanted = list.clone();
            wanted.sort();
            assert_eq!(plan.targets(&step).cloned().collect::<Vec<_>>(), wanted);
        }
        assert!(CheckedPlan::new(plan).is_ok());
    }

    #[test]
    fn groups_are_known_and_name_each_host_once() {
        let with = |groups: &str, of_step: &str| {
            let mut plan = plan(&[("s", &[])]);
            plan.groups = serde_json::from_str(groups).unwrap();
            plan.steps[0].groups = vec![of_step.to_owned()];
            CheckedPlan::new(plan).unwrap_err()
        };
        let unknown = with(r#"[{"name":"g","targets":["a"]}]"#, "h");
        assert!(
            matches!(unknown, PlanError::UnknownGroup { .. }),
            "{unknown}"
        );
        let twice = with(
            r#"[{"name":"g","targets":["a"]},{"name":"h","targets":["a"]}]"#,
            "h",
        );
        assert_eq!(twice, PlanError::DuplicateTarget("a".into()));
    }

    #[test]
    fn the_digest_is_of_all_that_a_runner_reads() {
        let mut whole = plan(&[("s", &[])]);
        whole.groups = serde_json::from_str(r#"[{"name":"g","targets":["a"]}]"#).unwrap();
        whole.inputs.insert("a".into(), json!(1));
        let of = |plan: &Plan| digest_of("Create", plan).unwrap();
        let changed = |change: fn(&mut Plan)| {
            let mut plan = whole.clone();
            change(&mut plan);
            of(&plan) != of(&whole)
        };
        assert!(changed(|plan| plan.steps[0].title = "another".into()));
        assert!(changed(|plan| plan.groups[0].targets.clear()));
        assert!(changed(|plan| drop(
            plan.inputs.insert("a".into(), json!(2))
        )));
        assert!(changed(|plan| plan.request = Some("again".into())));
        assert!(changed(|plan| plan.parallelism = Some(2)));
        assert!(!changed(|plan| plan.reason = Some("other words".into())));
        assert!(!changed(|plan| plan.digest = "another".into()));
        assert_ne!(of(&whole), digest_of("Reset", &whole).unwrap());
        let stored = serde_json::to_string(&whole).unwrap();
        assert_eq!(of(&serde_json::from_str(&stored).unwrap()), of(&whole));
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
