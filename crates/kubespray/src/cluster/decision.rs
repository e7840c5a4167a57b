//! What can be decided about a cluster, and from what.

use api::{
    Cluster, HostName, Run,
    cluster::Pending,
    run::{Plan, RunPhase},
};
use jiff::SignedDuration;
use kube::{Resource, ResourceExt};
use runs::{object, phase};

use crate::{
    cluster::{built::Built, maintain::RestChange, observe::Observed, resolve::Resolved},
    inputs::Inputs,
    operation::{Leaves, Operation, RESET_HOST, recover, upgrade},
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
    /// End a run at the next place where it may, for a newer plan, which is named by its digest, or because it is for nothing, which is said.
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

/// What becomes of a plan that the wish asks for, on a cluster that is built: it is carried out once. `about` says what is wished for:
/// the hosts, the versions. It is not begun anew by itself once somebody cancelled it, whatever else was begun since; and one that
/// failed waits for a person, unless the cluster is another one since, or a person has changed what it is made from.
pub fn once(
    situation: &Situation<'_>,
    built: &Built,
    operation: &'static Operation,
    mut plan: Plan,
    about: &[String],
) -> Option<Decision> {
    let Situation {
        cluster, observed, ..
    } = *situation;
    plan.wish = workflow::plan::digest(&about).ok();
    let last = of_wish(&observed.runs, operation, &plan);
    let new = || Box::new(new_run(cluster, observed, operation, plan.clone()));
    Some(match last.map(|run| (phase(run), run)) {
        Some((RunPhase::Cancelled, _)) => return None,
        Some((RunPhase::Failed, run))
            if changed_since(&observed.runs, run).is_none() && !is_changed(cluster, run, &plan) =>
        {
            Decision::Maintain(Box::new(built.clone()), Box::new(run.clone()))
        }
        _ => Decision::Start(new()),
    })
}

/// Hosts as a wish is about them: one that is declared anew under the same name is another one.
pub fn declared<'a>(
    observed: &Observed,
    names: impl IntoIterator<Item = &'a HostName>,
) -> Vec<String> {
    let created = |name: &HostName| {
        let mut nodes = observed.nodes.iter();
        let node = nodes.find(|node| node.name_any() == name.as_str())?;
        relocation::mark::created(node.meta())
    };
    let mut declared: Vec<_> = names
        .into_iter()
        .map(|name| match created(name) {
            Some(time) => format!("{name} of {}", time.0),
            None => name.to_string(),
        })
        .collect();
    declared.sort_unstable();
    declared
}

/// The newest run that was for the same wish.
fn of_wish<'a>(runs: &'a [Run], operation: &Operation, plan: &Plan) -> Option<&'a Run> {
    let is_it = |run: &&Run| {
        let its = &run.spec.plan;
        let same = match &its.wish {
            Some(wish) => plan.wish.as_ref() == Some(wish) && its.request == plan.request,
            // It is older than that this was noted.
            None => its.digest == plan.digest,
        };
        same && run.spec.operation == operation.name
    };
    runs.iter().rev().find(is_it)
}

/// The newest run, of those oldest first, by which the cluster has become another one since a run: what that would go on with is not
/// what there is.
fn changed_since<'a>(
    runs: impl IntoIterator<Item = &'a Run, IntoIter: DoubleEndedIterator>,
    run: &Run,
) -> Option<&'a Run> {
    let name = run.name_any();
    let since = runs.into_iter().rev();
    let mut since = since.take_while(|later| later.name_any() != name);
    since.find(|later| {
        let changes = Operation::leaves(later, Leaves::Cluster) || resets_of(later, run);
        phase(later) == RunPhase::Succeeded && changes
    })
}

/// Why a run that failed cannot be taken up again, if it cannot: of these runs, one has changed its cluster since.
pub fn outdated<'a>(runs: impl IntoIterator<Item = &'a Run>, run: &Run) -> Option<String> {
    if phase(run) != RunPhase::Failed {
        return None;
    }
    let runs = runs.into_iter();
    let mut runs: Vec<&Run> = runs
        .filter(|other| other.spec.subject == run.spec.subject)
        .collect();
    runs.sort_by_cached_key(|run| object::age(run));
    let name = run.name_any();
    if let Some(since) = changed_since(runs.iter().copied(), run) {
        return Some(format!(
            "run {name} failed, and run {} has changed the cluster since: it cannot be taken up again. What the spec still asks for is \
             planned anew: see `windlass status` and `windlass plan --live`",
            since.name_any(),
        ));
    }
    let later = runs.iter().copied();
    let later = later.skip_while(|other| other.name_any() != name).skip(1);
    let later: Vec<&Run> = later.collect();
    let upgrade = upgrade::begun_run(later.iter().copied()).map(|(run, _)| run);
    let begun = recover::begun(later.iter().copied()).or(upgrade)?;
    Some(format!(
        "run {name} failed, and run {} has begun since what it did not end: the cluster is not what {name} would go on with. Have that \
         ended first: see `windlass status`",
        begun.name_any(),
    ))
}

/// Whether a run is to work on a host that another one has reset.
fn resets_of(reset: &Run, run: &Run) -> bool {
    if reset.spec.operation != RESET_HOST.name {
        return false;
    }
    let inputs = Inputs::from_map(&reset.spec.plan.inputs);
    let mut reset = inputs.iter().flat_map(|inputs| &inputs.leaving);
    reset.any(|host| Inputs::has_host(&run.spec.plan.inputs, host.as_str()))
}

/// Whether a person has changed what a run was made from: the Cluster, a host, a Secret with variables, or playbooks in a directory. What
/// else differs may be another Windlass, or a branch that moved.
fn is_changed(cluster: &Cluster, run: &Run, plan: &Plan) -> bool {
    if run.spec.plan.digest == plan.digest {
        return false;
    }
    if run.spec.generation != relocation::mark::generation(cluster.meta()) {
        return true;
    }
    let inputs = |plan: &Plan| Inputs::from_map(&plan.inputs);
    let (Ok(before), Ok(now)) = (inputs(&run.spec.plan), inputs(plan)) else {
        return true;
    };
    let directory = |inputs: &Inputs| {
        let source = &inputs.source;
        source.revision.is_none().then(|| source.digest.clone())
    };
    before.hosts != now.hosts
        || before.revisions != now.revisions
        || directory(&before) != directory(&now)
}
