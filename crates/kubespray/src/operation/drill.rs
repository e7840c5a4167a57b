//! Drill: starts a snapshot in a throw-away etcd on a host of the cluster, and compares what it has with what was noted. Pure.
//!
//! It is asked for by the annotation [`request::DRILL`], whose first word is the name of the snapshot.

use api::{Cluster, run::Plan};

use super::{
    DRILL,
    asked::{self, Asked},
    snapshot,
};
use crate::{
    cluster::{
        compile::{self, Asks},
        decision::{Decision, NewRun, Situation, new_run},
        resolve::Resolved,
    },
    inputs::Inputs,
    problem::Problem,
    request,
    snapshots::Snapshots,
};

/// How it is asked for.
pub static ASKED: Asked = Asked {
    operation: &DRILL,
    annotation: request::DRILL,
    length: asked::LENGTH,
    answered: |status| status.snapshot_drill.as_ref(),
    place: |status| &mut status.snapshot_drill,
    wrong: |request| named(request).err().map(|problem| problem.to_string()),
    refusal: |cluster, request, _| refusal(cluster, request),
    unbuilt: "there is no host to drill a snapshot on",
};

/// Where a request stands.
const FIELD: &str = "Cluster metadata.annotations kubespray.k8s.io/drill-snapshot";

fn named(request: &str) -> Result<snapshots::Name, Problem> {
    let name = request.split_whitespace().next().unwrap_or_default();
    name.parse()
        .map_err(|error: snapshots::manifest::InvalidName| {
            Problem::new(
                FIELD,
                "",
                error.to_string(),
                "see which there are: windlass snapshots list",
            )
        })
}

fn refusal(cluster: &Cluster, request: &str) -> Option<String> {
    let wrong = || named(request).err().map(|problem| problem.to_string());
    snapshot::nowhere(cluster).or_else(wrong)
}

/// Has the say about a built cluster a snapshot of which somebody wants drilled.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let Situation {
        cluster, observed, ..
    } = *situation;
    let built = situation.built?;
    let resolved = situation.wanted.ok()?;
    let snapshots = resolved.snapshots.as_ref()?;
    let request = ASKED.wanted(cluster, &observed.runs)?;
    let name = named(&request).ok()?;
    let before = built.inputs.as_ref().unwrap_or(&resolved.inputs);
    Some(
        match compiled(resolved, before, snapshots, (&name, &request)) {
            Ok(plan) => Decision::Start(Box::new(NewRun {
                request: Some(request),
                ..new_run(cluster, observed, &DRILL, plan)
            })),
            Err(problem) => Decision::Stall(vec![problem]),
        },
    )
}

fn compiled(
    resolved: &Resolved,
    before: &Inputs,
    snapshots: &Snapshots,
    (name, request): (&snapshots::Name, &str),
) -> Result<Plan, Problem> {
    let inputs = Inputs {
        snapshots: Some(snapshots.input.clone()),
        ..before.reached_as(&resolved.inputs)
    };
    let steps = compile::drilling(&snapshot::conduct(resolved), &inputs, name);
    let reason = format!(
        "somebody asked for it: snapshot {name} is started in a throw-away etcd, and its keys are counted"
    );
    compile::finish(&DRILL, Some(request), &inputs, reason, Asks::Nobody, steps)
}
