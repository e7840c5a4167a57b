//! Operations that people ask for by an annotation of the Cluster, and how each value of it is answered. Pure.
//!
//! A value is answered once: by a Run, which carries it, or by a refusal; the answer is kept in the status. The Run is stored first, so
//! that after a crash between the two it is the answer, and no request is lost or carried out twice.

use api::{
    Cluster, Run,
    cluster::{ClusterStatus, ConvergeRequest},
};
use kube::{Resource, ResourceExt};
use runs::{is_active, phase};

use super::{AskedBy, Operation};
use crate::{
    cluster::{
        built::{Built, is_built},
        decision::Decision,
    },
    operation, problem,
};

/// The operations that are asked for by an annotation of the Cluster.
pub fn all() -> impl Iterator<Item = &'static Asked> {
    operation::ALL
        .into_iter()
        .filter_map(|operation| match operation.asked {
            AskedBy::Cluster(asked) => Some(asked),
            AskedBy::Nobody | AskedBy::Host(_) => None,
        })
}

/// How much of a request is remembered, where an operation does not say more.
pub const LENGTH: usize = 128;

/// An operation that is asked for.
#[derive(Debug)]
pub struct Asked {
    /// The operation.
    pub operation: &'static Operation,
    /// The annotation of a Cluster, and of the Run that came of it.
    pub annotation: &'static str,
    /// How many characters of a request are remembered.
    pub length: usize,
    /// The last answer.
    pub answered: fn(&ClusterStatus) -> Option<&ConvergeRequest>,
    /// Where answers go.
    pub place: fn(&mut ClusterStatus) -> &mut Option<ConvergeRequest>,
    /// What is wrong with a request, whatever the cluster is like.
    pub wrong: fn(&str) -> Option<String>,
    /// Why a cluster that is built and stays as it is does not carry a request out. None: it is about to.
    pub refusal: fn(&Cluster, &str, &Built) -> Option<String>,
    /// Why a cluster that is not built has no need of it.
    pub unbuilt: &'static str,
}

impl Asked {
    /// The request that no answer is known to.
    pub fn open(&self, cluster: &Cluster) -> Option<String> {
        let answered = cluster.status.as_ref().and_then(self.answered);
        let answered = answered.map(|last| last.request.as_str());
        open(cluster, self.annotation, self.length, answered)
    }

    /// The request that is open and that no run carries out.
    pub fn wanted(&self, cluster: &Cluster, runs: &[Run]) -> Option<String> {
        let carried_out = |request: &String| runs.iter().any(|run| self.is_for(run, request));
        self.open(cluster).filter(|request| !carried_out(request))
    }

    fn is_for(&self, run: &Run, request: &str) -> bool {
        is_for(run, self.annotation, request)
    }

    /// The answer to an open request, if the decision is one.
    pub fn answer(&self, cluster: &Cluster, decision: &Decision) -> Option<ConvergeRequest> {
        let request = self.open(cluster)?;
        let run = |name: String| ConvergeRequest {
            request: request.clone(),
            run: Some(name),
            refused: None,
        };
        let refused = |why: String| ConvergeRequest {
            request: request.clone(),
            run: None,
            refused: Some(api::text::lines(&why, 2048)),
        };
        match decision {
            Decision::Start(new)
                if new.operation.name == self.operation.name
                    && new.request.as_ref() == Some(&request) =>
            {
                Some(run(new.name.clone()))
            }
            Decision::Maintain(_, at_work) if self.is_for(at_work, &request) => {
                Some(run(at_work.name_any()))
            }
            Decision::Maintain(_, at_work) if is_active(phase(at_work)) => Some(refused(format!(
                "run {run} is under way: ask again when it has ended, or end it: windlass cancel {run}",
                run = at_work.name_any()
            ))),
            // The next pass begins a run.
            Decision::Keep(built) if built.looks_before.is_some() => None,
            Decision::Keep(built) | Decision::Maintain(built, _) => {
                let last = built.run.as_ref().filter(|run| self.is_for(run, &request));
                last.map(|last| run(last.name_any()))
                    .or_else(|| (self.refusal)(cluster, &request, built).map(refused))
                    .or_else(|| comes_first(decision).map(refused))
            }
            Decision::Stall(problems) => Some(refused(format!(
                "this must be corrected first: {}",
                problem::text(problems)
            ))),
            // Of a cluster that is built and waits for its playbooks only.
            Decision::AwaitPlaybooks(_) if is_built(cluster) => None,
            // When that has ended.
            Decision::Supersede(run, _) if Operation::of(run).is_some_and(|it| it.of_built) => None,
            // A request that is wrong has no say.
            Decision::Start(new) if new.operation.of_built => {
                let comes_first =
                    || format!("run {} comes first: ask again when it has ended", new.name);
                Some(refused((self.wrong)(&request).unwrap_or_else(comes_first)))
            }
            Decision::Cancel(_) | Decision::Forget => None,
            _ if cluster.meta().deletion_timestamp.is_some() => None,
            _ => Some(refused(format!(
                "the cluster is not built yet: {}",
                self.unbuilt
            ))),
        }
    }
}

/// Why a request waits for a person, where a run that failed comes first.
fn comes_first(decision: &Decision) -> Option<String> {
    let Decision::Maintain(_, failed) = decision else {
        return None;
    };
    Some(format!(
        "run {run} failed and comes first: windlass retry {run}, or take back what it was for; then ask again",
        run = failed.name_any()
    ))
}

/// What an annotation asks for that is not the last request that was answered.
pub fn open(
    cluster: &Cluster,
    annotation: &str,
    length: usize,
    answered: Option<&str>,
) -> Option<String> {
    let value = cluster.annotations().get(annotation)?;
    let asked: String = value.chars().take(length).collect();
    (answered != Some(asked.as_str())).then_some(asked)
}

/// Whether a run came of a request.
pub fn is_for(run: &Run, annotation: &str, request: &str) -> bool {
    run.annotations().get(annotation).map(String::as_str) == Some(request)
}
