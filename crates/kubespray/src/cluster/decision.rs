//! What can be decided about a cluster, and from what.

use api::{
    Cluster, Run,
    cluster::Pending,
    run::{Plan, RunPhase},
};
use jiff::SignedDuration;
use kube::{Resource, ResourceExt};
use runs::{object, phase};

use crate::{
    cluster::{
        built::{Built, of_built},
        maintain::RestChange,
        observe::Observed,
        resolve::Resolved,
    },
    operation::Operation,
    playbooks::{Checkout, Playbooks},
    problem::Problem,
};

/// What is decided from.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The wish, or what is wrong with it.
    pub wanted: Result<&'a Resolved, &'a [Problem]>,
    /// What there is.
    pub observed: &'a Observed,
    /// The cluster as it was built, if it is, and the wish can be held against it.
    pub built: Option<&'a Built>,
}

/// What to do.
#[derive(Clone, Debug)]
pub enum Decision {
    /// Nothing, until somebody changes something.
    Stall(Vec<Problem>),
    /// Wait for the playbooks; says why they are not there if that is known.
    AwaitPlaybooks(Option<String>),
    /// Wait for hosts.
    AwaitHosts {
        /// What is missing, for people.
        missing: Vec<String>,
        /// When the wait ends by itself.
        recheck: Option<SignedDuration>,
    },
    /// Store a new run.
    Start(Box<NewRun>),
    /// Let a run go on, or stand as it ended.
    Follow(Box<Run>),
    /// End a run at the next place where it may, for a newer plan.
    Supersede(Box<Run>, String),
    /// The cluster is built.
    Keep(Box<Built>),
    /// The cluster is built; let an operation on it go on, or stand as it failed.
    Maintain(Box<Built>, Box<Run>),
    /// End a run for good, because its cluster is being deleted.
    Cancel(Box<Run>),
    /// Forget the cluster.
    Forget,
}

/// A run to be stored.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Its name.
    pub name: String,
    /// What it does.
    pub operation: &'static Operation,
    /// The cluster's generation.
    pub generation: i64,
    /// Its plan.
    pub plan: Plan,
    /// The request that it answers, by the annotation of its operation.
    pub request: Option<String>,
    /// The request to start outside of a maintenance window that it answers.
    pub maintain: Option<String>,
}

/// What is decided, and what else is asked for.
#[derive(Clone, Debug)]
pub struct Planned {
    /// What to do.
    pub decision: Decision,
    /// What the wish asks for and does not run now, in its order.
    pub pending: Vec<Pending>,
    /// What changes of where the run at work rests.
    pub rest: Option<RestChange>,
    /// When a maintenance window opens or closes.
    pub recheck: Option<SignedDuration>,
}

impl Planned {
    /// The decision alone.
    pub const fn of(decision: Decision) -> Self {
        Self {
            decision,
            pending: Vec::new(),
            rest: None,
            recheck: None,
        }
    }
}

/// The playbooks, or what is to be done without them.
///
/// # Errors
///
/// They are not there: the decision says why.
pub fn checkout(observed: &Observed) -> Result<&Checkout, Decision> {
    match &observed.playbooks {
        Playbooks::Ready(checkout) => Ok(checkout),
        Playbooks::Unusable(problem) => Err(Decision::Stall(vec![problem.clone()])),
        Playbooks::Unreachable(reason) => Err(Decision::AwaitPlaybooks(Some(reason.clone()))),
        Playbooks::Fetching | Playbooks::Unwanted => Err(Decision::AwaitPlaybooks(None)),
    }
}

/// A run under a name that none of the cluster's runs has had, as far as they and the status remember.
pub fn new_run(
    cluster: &Cluster,
    observed: &Observed,
    operation: &'static Operation,
    plan: Plan,
) -> NewRun {
    let status = cluster.status.as_ref();
    let last = status.and_then(|status| status.last_operation.as_ref()?.run.clone());
    let names = observed.runs.iter().map(ResourceExt::name_any).chain(last);
    NewRun {
        name: object::next_name(&cluster.name_any(), operation.name, names),
        operation,
        generation: relocation::mark::generation(cluster.meta()),
        plan,
        request: None,
        maintain: None,
    }
}

/// What becomes of a plan that the wish asks for, on a cluster that is built: it is carried out once.
pub fn once(
    situation: &Situation<'_>,
    built: &Built,
    operation: &'static Operation,
    plan: Plan,
) -> Option<Decision> {
    let Situation {
        cluster, observed, ..
    } = *situation;
    let is_it = |run: &&Run| run.spec.plan.digest == plan.digest;
    // It is not begun anew by itself, whatever else was begun and given up since: somebody did not want it.
    let mut since = observed.runs.iter().rev();
    let mut since = since
        .by_ref()
        .take_while(|run| phase(run) != RunPhase::Succeeded);
    if since.any(|run| is_it(&run) && phase(run) == RunPhase::Cancelled) {
        return None;
    }
    let last = of_built(observed).filter(is_it);
    let failed = last.filter(|run| phase(run) == RunPhase::Failed);
    Some(match failed {
        Some(run) => Decision::Maintain(Box::new(built.clone()), Box::new(run.clone())),
        None => Decision::Start(Box::new(new_run(cluster, observed, operation, plan))),
    })
}
