//! What may be done on hosts by itself, as people are told. Pure.

use ansible::failure::remedy;
use api::{
    Run,
    remedy::Remedy,
    run::{Plan, Record},
};

use crate::inputs::Inputs;

/// What a run of this plan may do by itself, and after which failures, for people; nothing: it may do nothing, or is none of a Cluster.
pub fn allowed(plan: &Plan) -> Option<String> {
    let inputs = Inputs::from_map(&plan.inputs).ok()?;
    let each = inputs.remedies.iter().map(|allowed| {
        let code = remedy::code(*allowed);
        format!("{allowed} (after {code})")
    });
    let each: Vec<_> = each.collect();
    (!each.is_empty()).then(|| each.join(", "))
}

/// What may be done about a failure of that code where `spec.remedies` allows it.
pub fn of_code(code: &str) -> &'static [Remedy] {
    remedy::of(code)
}

/// What was done about the failures of a step, oldest first, for people.
pub fn applied(run: &Run, step: &str) -> Vec<String> {
    let history = run.status.iter().flat_map(|status| &status.history);
    let of_step = history.filter(|record: &&Record| record.step.as_deref() == Some(step));
    of_step
        .flat_map(|record| &record.remedies)
        .map(ToString::to_string)
        .collect()
}
