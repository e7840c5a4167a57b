//! Snapshot: saves a snapshot of etcd outside of the cluster, verifies it, and removes those that are kept no longer. Pure.
//!
//! It is asked for by the annotation [`request::SNAPSHOT`], each value of which is [answered](asked) once; or it begins by itself when its
//! time by the schedule has come. One that failed is not begun again before the next time: the condition `BackedUp` tells of it. It takes
//! part in no play and needs no playbooks, and the cluster is what it was all the time.

use api::{
    Cluster,
    run::{OnBreach, Plan},
};
use jiff::SignedDuration;

use super::{
    SNAPSHOT,
    asked::{self, Asked},
};
use crate::{
    cluster::{
        compile::{self, Asks},
        decision::{Decision, NewRun, Situation, new_run},
        resolve::{Conduct, Resolved},
    },
    inputs::Inputs,
    problem::Problem,
    request,
    snapshots::{
        Snapshots,
        standing::{self, Due},
    },
};

/// How it is asked for.
pub static ASKED: Asked = Asked {
    operation: &SNAPSHOT,
    annotation: request::SNAPSHOT,
    length: asked::LENGTH,
    answered: |status| status.snapshot.as_ref(),
    place: |status| &mut status.snapshot,
    wrong: |_| None,
    refusal: |cluster, _, _| nowhere(cluster),
    unbuilt: "there is no etcd to save",
};

/// Why a cluster has no snapshots, if it has none.
pub(super) fn nowhere(cluster: &Cluster) -> Option<String> {
    let etcd = cluster.spec.etcd.as_ref();
    let set = etcd.is_some_and(|etcd| etcd.snapshots.is_some());
    (!set).then(|| {
        "Cluster spec.etcd.snapshots: it is not set, so there is no place for snapshots; write its store, for example {directory: \
         /srv/snapshots}"
            .to_owned()
    })
}

/// Has the say about a built cluster of which somebody wants a snapshot, or one is due.
pub fn decide(situation: &Situation<'_>) -> Option<Decision> {
    let Situation {
        cluster, observed, ..
    } = *situation;
    let built = situation.built?;
    let resolved = situation.wanted.ok()?;
    let snapshots = resolved.snapshots.as_ref()?;
    let asked = ASKED.wanted(cluster, &observed.runs);
    let (why, mark) = match &asked {
        Some(request) => ("somebody asked for it".to_owned(), request.clone()),
        None => by_itself(situation, snapshots)?,
    };
    let before = built.inputs.as_ref().unwrap_or(&resolved.inputs);
    Some(match compiled(resolved, before, snapshots, &why, &mark) {
        Ok(plan) => Decision::Start(Box::new(NewRun {
            request: asked,
            ..new_run(cluster, observed, &SNAPSHOT, plan)
        })),
        Err(problem) => Decision::Stall(vec![problem]),
    })
}

/// How long one that is due waits for what a person asks for, which may wait for its playbooks for ever.
const GIVES_WAY: SignedDuration = SignedDuration::from_mins(5);

/// Why one is due. What a person asks for comes first: it would be refused while this is at work.
fn by_itself(situation: &Situation<'_>, snapshots: &Snapshots) -> Option<(String, String)> {
    let Situation {
        cluster, observed, ..
    } = *situation;
    let store = observed.snapshots.as_ref();
    let due = match standing::due(snapshots, store, &observed.runs, observed.now)? {
        Due::At(due) => due,
        Due::First => {
            let why = "none has been taken yet".to_owned();
            return Some((why, observed.now.to_string()));
        }
    };
    let is_wanted = |asked: &Asked| asked.wanted(cluster, &observed.runs).is_some();
    let gives_way = observed.now.duration_since(due) < GIVES_WAY;
    if gives_way && asked::all().any(is_wanted) {
        return None;
    }
    Some((format!("one was due at {due}"), due.to_string()))
}

fn compiled(
    resolved: &Resolved,
    before: &Inputs,
    snapshots: &Snapshots,
    why: &str,
    mark: &str,
) -> Result<Plan, Problem> {
    let inputs = Inputs {
        snapshots: Some(snapshots.input.clone()),
        ..before.reached_as(&resolved.inputs)
    };
    let steps = compile::saving(&conduct(resolved), &inputs);
    let reason = format!("{why}: a snapshot of etcd is saved outside of the cluster, and verified");
    compile::finish(&SNAPSHOT, Some(mark), &inputs, reason, Asks::Nobody, steps)
}

/// One host that answers is enough, and nobody is asked.
pub(super) fn conduct(resolved: &Resolved) -> Conduct {
    Conduct {
        on_breach: OnBreach::Fail,
        approval: api::cluster::Approval::Automatic,
        ..resolved.creation.conduct
    }
}
