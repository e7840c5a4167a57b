//! What the runs of a provider have done so far. Pure.

use api::{
    Run,
    run::{RunPhase, StepPhase},
};
use clusterctl::Version;
use runs::{object::age, phase};

use crate::{action::Action, inputs::Inputs, operation::Operation};

/// Whether Windlass made a version the installed one by it.
pub(super) fn is_installation(run: &Run) -> bool {
    phase(run) == RunPhase::Succeeded && !Operation::is_last(&run.spec.operation)
}

/// Whether it came to a step that writes, and was to make a version the installed one.
pub(super) fn has_written(run: &Run) -> bool {
    if Operation::is_last(&run.spec.operation) {
        return false;
    }
    let begun = |id: &str| {
        let steps = run.status.iter().flat_map(|status| &status.steps);
        let mut phases = steps.filter(|step| step.id == id).map(|step| step.phase);
        phases.any(|phase| {
            !matches!(
                phase,
                StepPhase::Pending | StepPhase::Skipped | StepPhase::Waiting
            )
        })
    };
    let writes = |action: &Action| action.writes();
    is_installation(run)
        || Action::INSTALL
            .iter()
            .filter(|one| writes(one))
            .any(|one| begun(one.id()))
}

/// The version that was there last, or was to be, where `wanted` is an older one: its definitions may be there. `installed` is what the status
/// says, where somebody else installed it.
pub(super) fn newer(runs: &[Run], installed: Option<&str>, wanted: &str) -> Option<String> {
    let last = runs.iter().rfind(|run| has_written(run));
    let inputs = last.and_then(|run| Inputs::from_map(&run.spec.plan.inputs).ok());
    let was = inputs.as_ref().map(|inputs| inputs.version.as_str());
    let was = was.or(installed)?;
    let version = |text: &str| text.parse::<Version>().ok();
    if version(was)? > version(wanted)? {
        return Some(was.to_owned());
    }
    // One that went back itself, and did not come to its end. What is newer than both goes on.
    let ended = last.is_some_and(is_installation);
    let newest = inputs.filter(|_| !ended)?.goes_back_from?;
    (version(&newest)? > version(wanted)?).then_some(newest)
}

/// The run that a deletion undoes: the last one that wrote something, or else the last one at all.
pub(super) fn undone(runs: &[Run]) -> Option<&Run> {
    runs.iter()
        .rfind(|run| has_written(run))
        .or_else(|| runs.last())
}

/// A cluster that something of a provider is in.
pub(crate) struct There {
    /// The Secret with its kubeconfig. None: it is the one that has the provider's object.
    pub target: Option<String>,
}

/// Where something of the provider is, as its runs have it. None: nothing was written anywhere.
pub(crate) fn place<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Option<There> {
    let written = runs.into_iter().filter(|run| has_written(run));
    let run = written.max_by_key(|run| age(run))?;
    let inputs = Inputs::from_map(&run.spec.plan.inputs).ok()?;
    Some(There {
        target: inputs.target,
    })
}

/// Those of these runs that are a provider's.
pub(crate) fn of<'a>(
    runs: impl IntoIterator<Item = &'a Run>,
    uid: &str,
) -> impl Iterator<Item = &'a Run> {
    let is_its = move |run: &&Run| {
        let owners = run.metadata.owner_references.iter().flatten();
        owners.map(|owner| &owner.uid).any(|owner| owner == uid)
    };
    runs.into_iter().filter(is_its)
}
