//! A world in which nothing starts.

use std::collections::BTreeSet;

use api::{
    Run,
    cluster::{DeletionPolicy, Pending},
    run::{RunPhase, StepPhase},
    text::lines,
};
use controller::hint;
use kube::ResourceExt;
use kubespray::{
    cluster::decision::{Decision, Planned},
    inputs::Inputs,
    operation::Operation,
};

use crate::world::World;

/// The reasons that mend themselves.
const BY_THEMSELVES: [&str; 2] = ["BehindRun", "WaitingForPlaybooks"];

/// What a person is told to type or to write.
const REMEDIES: [&str; 7] = [
    "windlass ",
    "kubectl ",
    "declare",
    "correct",
    "write",
    "add ",
    "take ",
];

/// Of a world in which nothing starts.
pub fn of_rest(world: &World, planned: &Planned) {
    if let Decision::Stall(problems) = &planned.decision {
        assert!(!problems.is_empty(), "it stalls and says nothing");
        for problem in problems {
            let parts = [&problem.field, &problem.rule, &problem.remedy];
            assert!(
                parts.iter().all(|part| !part.trim().is_empty()),
                "{problem:?}"
            );
        }
    }
    for pending in &planned.pending {
        let remedy = BY_THEMSELVES.contains(&pending.reason.as_str())
            || REMEDIES
                .iter()
                .any(|remedy| pending.message.contains(remedy));
        assert!(remedy, "a refusal without a remedy: {pending:?}");
        assert!(pending.hosts.len() <= 100 && pending.message.len() <= 2048);
    }
    assert!(planned.pending.len() <= 16);
    let status = world.cluster.status.clone().unwrap();
    let namespace = world.cluster.namespace().unwrap();
    let told = planned.pending.iter().map(|pending| Pending {
        message: lines(&hint::placed(&pending.message, &namespace), 2048),
        ..pending.clone()
    });
    assert_eq!(status.pending, told.collect::<Vec<_>>());
    if world.cluster.metadata.deletion_timestamp.is_some() {
        ended(world, planned);
        return;
    }
    // What is drained is either on its way out, or people are told of it.
    let mut told = world.observed.runs.iter().rev();
    let told = told.find(|run| !Operation::is_quiet(run));
    let told = match &planned.decision {
        Decision::Maintain(_, run) | Decision::Follow(run) => Some(&**run),
        _ => told,
    };
    for host in &world.reality.drained {
        let text = serde_json::to_string(&(&status.pending, &status.conditions)).unwrap();
        let failed = told.is_some_and(|run| {
            runs::phase(run) == RunPhase::Failed
                && (Inputs::removes(&run.spec.plan.inputs, host) || failed_on(run, host))
        });
        assert!(
            text.contains(host) || failed || matches!(planned.decision, Decision::Stall(_)),
            "{host} takes no pods, and nobody is told: {text}"
        );
    }
    settled(world, planned);
}

/// Of a Cluster that is deleted: where it is forgotten and its hosts were to be reset, nothing of it is left on them.
fn ended(world: &World, planned: &Planned) {
    let resets = world.cluster.spec.deletion_policy == Some(DeletionPolicy::Reset);
    if !resets || !matches!(planned.decision, Decision::Forget) {
        return;
    }
    // What was to be taken over and was not is what it was.
    let is_of_it =
        |run: &&Run| run.spec.operation != "Adopt" || runs::phase(run) == RunPhase::Succeeded;
    let begun = |name: &str| {
        let mut runs = world.observed.runs.iter().filter(is_of_it);
        runs.any(|run| Inputs::has_host(&run.spec.plan.inputs, name))
    };
    for name in world.observed.nodes.iter().map(ResourceExt::name_any) {
        let is_left = world.reality.hosts.contains_key(&name) && begun(&name);
        assert!(!is_left, "the cluster is forgotten, and is on {name} yet");
    }
}

/// Whether a run failed in a step of this host: its failure says so.
fn failed_on(run: &Run, host: &str) -> bool {
    let steps = run.status.iter().flat_map(|status| &status.steps);
    let failed = steps.filter(|step| step.phase == StepPhase::Failed);
    let plan = &run.spec.plan;
    failed
        .filter_map(|failed| plan.steps.iter().find(|step| step.id == failed.id))
        .any(|step| plan.targets(step).any(|target| target.as_str() == host))
}

/// Where nothing is left to do, the cluster is what was wished.
fn settled(world: &World, planned: &Planned) {
    let Decision::Keep(built) = &planned.decision else {
        return;
    };
    if !planned.pending.is_empty() || !built.not_carried_out.is_empty() {
        return;
    }
    let wished: BTreeSet<_> = world
        .observed
        .nodes
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    // That a host is no node any more which somebody kept too late is what the health tells.
    let there = world.reality.hosts.keys().chain(&world.reality.lost);
    let there: BTreeSet<_> = there.cloned().collect();
    assert_eq!(wished, there, "it rests, and is not what was wished");
    if let Some(wished) = world.cluster.spec.kubernetes_version {
        assert_eq!(Some(wished), world.reality.kubernetes);
    }
}
