//! How the cluster stands, for people: status and Events.
//!
//! The status is computed from what was applied and from what the run and the probes say, never from the plan. An Event is
//! published when the reason of `Ready` changes, when a stall says something new, and when the health changes; the Events
//! of steps come from the runner, which knows of each edge first.

use api::{
    Cluster, ClusterStatus, Run,
    cluster::{
        ClusterHealth, ClusterState, Converged, FirstCertificate, InventoryStatus, LastOperation,
        NodeCounts, Pending,
    },
    node::Health,
    run::RunPhase,
    text::lines,
};
use controller::{Conditions, Outcome, Standing, Status, Summary, conditions, hint};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{Api, Resource, ResourceExt, core::error_boundary::InvalidObject};
use runs::reconciler::report::obstacle;
use serde_json::json;

use crate::{
    cluster::{
        apply::Applied,
        built::Built,
        decision::Decision,
        maintain,
        pending::{WAITING_FOR_WINDOW, named, rest_of},
    },
    context::{Context, Error},
    failures,
    health::Check,
    health_book::Checked,
    inputs::Inputs,
    names::CLUSTER_MANAGER,
    operation::{CREATE, Operation, RESET, asked, converge},
    problem,
    radar::{DRIFTED, book::Hosts, compare::standing},
    request::start_again,
    secret,
    snapshots::BACKED_UP,
};

mod occurrences;
mod refusal;

use refusal::{REFUSED, refusal};

/// Something waits for a maintenance window. Present only while true.
pub const AWAITING_WINDOW: &str = "AwaitingWindow";

/// How long `lastChecked` may lag behind while nothing changes.
const LAST_CHECKED: SignedDuration = SignedDuration::from_hours(1);

/// What the status is computed from.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// What was decided and carried out.
    pub decision: &'a Decision,
    /// What else is asked for and waits.
    pub pending: &'a [Pending],
    /// The run that stands for it.
    pub run: Option<&'a Run>,
    /// What the last probes found.
    pub health: Option<&'a Checked>,
    /// How the hosts stood at the last look between runs.
    pub radar: Option<&'a Hosts>,
    /// How many hosts are declared.
    pub nodes: usize,
    /// The clock.
    pub now: Timestamp,
}

/// Writes status and Events, on success and on failure.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn publish(
    cluster: &Cluster,
    outcome: &Result<Outcome<Applied>, Error>,
    context: &Context,
) -> Result<(), Error> {
    let health = context.health.latest(cluster);
    let radar = context.radar.latest(cluster);
    let status = match outcome {
        Ok(outcome) => {
            let applied = outcome.applied();
            if applied.is_forgotten() {
                return Ok(());
            }
            let namespace = cluster.namespace().unwrap_or_default();
            let view = View {
                decision: applied.decision(),
                pending: applied.pending(),
                run: applied.run(),
                health: health.as_deref(),
                radar: radar.as_deref(),
                nodes: controller::stream::in_namespace(&context.stores.nodes, &namespace).len(),
                now: Timestamp::now(),
            };
            status(cluster, &view)
        }
        Err(error) => match (refusal(error), error) {
            (Some(refusal), _) => failing(cluster, REFUSED, refusal),
            // Nothing can be said through an API that does not answer.
            (None, Error::Api { .. } | Error::Apply(_) | Error::Control(_)) => return Ok(()),
            (None, error) => {
                let error = crate::chain(error);
                failing(
                    cluster,
                    "Failing",
                    format!("failed to {error}, trying again"),
                )
            }
        },
    };
    for occurrence in occurrences::between(cluster.status.as_ref(), &status) {
        context
            .events
            .publish(&cluster.object_ref(&()), &occurrence)
            .await
            .map_err(|source| Error::api("publish an Event", source))?;
    }
    controller::apply::write_status(
        &context.client,
        &context.stores.clusters,
        CLUSTER_MANAGER,
        (cluster, cluster.status.as_ref()),
        &status,
    )
    .await
    .map_err(Error::Apply)
}

/// Says on a Cluster that cannot be read why it cannot.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn publish_invalid(invalid: &InvalidObject, context: &Context) -> Result<(), Error> {
    let namespace = invalid.metadata.namespace.clone().unwrap_or_default();
    let name = invalid.metadata.name.clone().unwrap_or_default();
    let api = Api::<kube::core::DynamicObject>::namespaced_with(
        context.client.clone(),
        &namespace,
        &kube::api::ApiResource::erase::<Cluster>(&()),
    );
    let current = api
        .get_status(&name)
        .await
        .map_err(|source| Error::api("read the Cluster", source))?;
    let previous: Vec<_> = current
        .data
        .pointer("/status/conditions")
        .and_then(|value| serde_json::from_value(value.clone()).ok())
        .unwrap_or_default();
    let mut conditions = Conditions::new(&previous, invalid.metadata.generation, Timestamp::now());
    conditions.summarise(&Summary {
        standing: Standing::Stalled,
        reason: "Unreadable",
        message: format!(
            "{}; correct the field, `kubectl explain cluster.spec` describes it",
            invalid.error
        ),
    });
    let conditions = conditions.into_vec();
    if conditions == previous {
        return Ok(());
    }
    let body = json!({
        "apiVersion": Cluster::api_version(&()),
        "kind": Cluster::kind(&()),
        "metadata": {"name": name},
        "status": {"conditions": conditions, "observedGeneration": invalid.metadata.generation},
    });
    api.patch_status(
        &name,
        &kube::api::PatchParams::apply(CLUSTER_MANAGER).force(),
        &kube::api::Patch::Apply(&body),
    )
    .await
    .map(drop)
    .map_err(|source| Error::api("write the Cluster's status", source))
}

/// The status after a pass. Pure.
pub fn status(cluster: &Cluster, view: &View<'_>) -> ClusterStatus {
    let mut status = cluster.status.clone().unwrap_or_default();
    status.converge_schedule = converge::schedule(cluster, view.now);
    let generation = cluster.metadata.generation;
    if matches!(view.decision, Decision::Start(new) if new.operation.quiet) {
        // It stays what it is. Who asked is told.
        return answered(cluster, view, status);
    }
    if matches!(view.decision, Decision::AwaitPlaybooks(None)) && was_told(&status, generation) {
        return status;
    }
    let namespace = cluster.namespace().unwrap_or_default();
    let placed = |message: &str| hint::placed(message, &namespace);
    let pending = view.pending.iter().cloned().map(|pending| Pending {
        // Commands that name a namespace are longer.
        message: lines(&placed(&pending.message), 2048),
        ..pending
    });
    let pending: Vec<_> = pending.collect();
    let mut summary = summary(view);
    summary.message = placed(&summary.message);
    let mut conditions = Conditions::new(&status.conditions, generation, view.now);
    conditions.summarise(&summary);
    if let Some(run) = view.run {
        reachable(&mut conditions, run);
        // The order is state from the first run on; the object that this pass saw may be older than it.
        // Who waits for the cluster waits for none that leaves it alone.
        if !Operation::is_quiet(run) && !is_earlier(run, status.last_operation.as_ref()) {
            status.last_operation = Some(last_operation(run));
            if let Ok(inputs) = Inputs::from_map(&run.spec.plan.inputs)
                && Operation::says_order(run)
            {
                status.inventory = Some(InventoryStatus {
                    run: Some(run.name_any()),
                    ..inputs.inventory
                });
            }
        }
    }
    if let Decision::Stall(problems) = view.decision {
        let why = placed(&problem::text(problems));
        unjudged(&mut conditions, &status.conditions, &why);
    }
    if let Decision::Keep(built) | Decision::Maintain(built, _) = view.decision {
        status.kubernetes_version = built.kubernetes;
        status.kubespray_version = Some(built.kubespray);
        if let Some(available) = &built.available {
            status.available.clone_from(available);
        }
        status.kubeconfig_secret = Some(secret::kubeconfig_name(&cluster.name_any()));
        if let Some(standing) = &built.snapshots {
            let message = placed(&standing.message);
            conditions.set(BACKED_UP, standing.backed_up, standing.reason, message);
            status.snapshots.clone_from(&standing.store);
        } else {
            conditions.remove(BACKED_UP);
            status.snapshots = None;
        }
        drifted(&mut conditions, built, view.radar);
        if let Some(converged) = &built.converged {
            status.converged = Some((**converged).clone());
        }
        if let Some(checked) = view.health {
            health_conditions(&mut conditions, checked);
            status.cluster = Some(health(status.cluster.as_ref(), checked));
            status.first_certificate = first_certificate(checked).or(status.first_certificate);
        }
    }
    status = answered(cluster, view, status);
    if let Some(mut answer) = maintain::answer(cluster, view.decision) {
        answer.refused = answer.refused.as_deref().map(placed);
        status.maintain = Some(answer);
    }
    // Who takes over has to bring the playbooks again, which changes nothing of what waits.
    if !matches!(view.decision, Decision::AwaitPlaybooks(None)) {
        waiting(&mut conditions, &pending);
        status.pending = pending;
    }
    status.nodes = Some(counts(view));
    status.state = Some(state(cluster, view));
    status.conditions = conditions.into_vec();
    status.observed_generation =
        conditions::observed_generation(status.observed_generation, generation, summary.standing);
    status
}

/// The status with the answers to what was asked for.
fn answered(cluster: &Cluster, view: &View<'_>, mut status: ClusterStatus) -> ClusterStatus {
    let namespace = cluster.namespace().unwrap_or_default();
    for asked in asked::all() {
        if let Some(mut answer) = asked.answer(cluster, view.decision) {
            let placed = |message: &str| hint::placed(message, &namespace);
            answer.refused = answer.refused.as_deref().map(placed);
            *(asked.place)(&mut status) = Some(answer);
        }
    }
    status
}

/// Whether the playbooks were there once, and it was said of this generation what is missing since. Who takes over has to
/// bring them again, which changes nothing of that.
fn was_told(status: &ClusterStatus, generation: Option<i64>) -> bool {
    status.conditions.iter().any(|condition| {
        condition.type_ == conditions::READY
            && condition.observed_generation == generation
            && matches!(&*condition.reason, "WaitingForHosts" | "InvalidSpec")
    })
}

fn failing(cluster: &Cluster, reason: &'static str, message: String) -> ClusterStatus {
    let mut status = cluster.status.clone().unwrap_or_default();
    let mut conditions = Conditions::new(
        &status.conditions,
        cluster.metadata.generation,
        Timestamp::now(),
    );
    conditions.summarise(&Summary {
        standing: Standing::AtWork,
        reason,
        message,
    });
    status.conditions = conditions.into_vec();
    status
}

fn summary(view: &View<'_>) -> Summary {
    if let Some(summary) = runner_missing(view.decision) {
        return summary;
    }
    let (standing, reason, message) = match view.decision {
        Decision::Stall(problems) => (Standing::Stalled, "InvalidSpec", problem::text(problems)),
        Decision::AwaitPlaybooks(None) => (
            Standing::AtWork,
            "FetchingPlaybooks",
            "the kubespray playbooks are being brought".to_owned(),
        ),
        Decision::AwaitPlaybooks(Some(why)) => (
            Standing::AtWork,
            "PlaybooksUnreachable",
            format!("the kubespray playbooks cannot be had, trying again: {why}"),
        ),
        Decision::AwaitHosts { missing, .. } => (
            Standing::AtWork,
            "WaitingForHosts",
            format!("waiting for {}", missing.join(", ")),
        ),
        Decision::Start(new) => (
            Standing::AtWork,
            new.operation.reason,
            format!(
                "run {} with {} steps starts",
                new.name,
                new.plan.steps.len()
            ),
        ),
        Decision::Maintain(built, run) if Operation::is_quiet(run) => kept(built, view.health),
        Decision::Follow(run) | Decision::Maintain(_, run) => followed(run),
        Decision::Supersede(run, _) => (
            Standing::AtWork,
            "Superseding",
            format!(
                "the spec changed: run {} ends at the next step where it may, then what is asked for now is planned",
                run.name_any()
            ),
        ),
        Decision::Cancel(run) => (
            Standing::AtWork,
            "Deleting",
            format!("run {} ends at its next task boundary", run.name_any()),
        ),
        Decision::Forget => (Standing::AtWork, "Deleting", "being forgotten".to_owned()),
        Decision::Keep(built) => match &built.looks_before {
            Some(new) => (
                Standing::AtWork,
                new.operation.reason,
                format!("hosts are looked at before run {} changes them", new.name),
            ),
            None => kept(built, view.health),
        },
    };
    Summary {
        standing,
        reason,
        message,
    }
}

/// What there is to say while a run has no runner, and it is known why.
fn runner_missing(decision: &Decision) -> Option<Summary> {
    if matches!(decision, Decision::Maintain(_, run) if Operation::is_quiet(run)) {
        return None;
    }
    let (Decision::Follow(run)
    | Decision::Maintain(_, run)
    | Decision::Supersede(run, _)
    | Decision::Cancel(run)) = decision
    else {
        return None;
    };
    let (reason, why) = obstacle(run)?;
    Some(Summary {
        standing: Standing::AtWork,
        reason,
        message: format!("run {} waits for its runner: {why}", run.name_any()),
    })
}

/// The reason of the conditions while a run is at work.
fn reason(run: &Run) -> &'static str {
    Operation::of(run).map_or("Running", |operation| operation.reason)
}

/// The state of the cluster while a run is at work on it.
fn at_work(run: &Run) -> ClusterState {
    Operation::of(run).map_or(ClusterState::Creating, |operation| operation.state)
}

fn followed(run: &Run) -> (Standing, &'static str, String) {
    let name = run.name_any();
    let status = run.status.clone().unwrap_or_default();
    let message = status.message.clone().unwrap_or_default();
    match status.phase {
        RunPhase::Pending => (
            Standing::AtWork,
            reason(run),
            format!("run {name} waits for its runner"),
        ),
        RunPhase::Running | RunPhase::Succeeded => (Standing::AtWork, reason(run), message),
        RunPhase::Paused if rest_of(run).is_some() => (
            Standing::AtWork,
            WAITING_FOR_WINDOW,
            rest_of(run).unwrap_or_default(),
        ),
        RunPhase::Paused => (
            Standing::AtWork,
            "Paused",
            format!("run {name} is paused; go on with: windlass resume {name}. {message}"),
        ),
        RunPhase::Waiting => (
            Standing::AtWork,
            "WaitingForApproval",
            format!("{message}; approve with: windlass approve {name}"),
        ),
        RunPhase::Failed => (Standing::Stalled, "RunFailed", failure(run, &message)),
        RunPhase::Cancelled => (Standing::Stalled, "RunCancelled", cancelled(run, &message)),
        RunPhase::Superseded => (
            Standing::AtWork,
            "Superseding",
            format!("run {name} ended for a newer plan"),
        ),
    }
}

/// What begins anew what somebody ended: of a reset no edit does.
fn cancelled(run: &Run, message: &str) -> String {
    let (name, cluster) = (run.name_any(), &run.spec.subject.name);
    let again = start_again(&run.namespace().unwrap_or_default(), cluster);
    if run.spec.operation == RESET.name {
        return format!(
            "run {name} was {message}. To start anew: windlass reset {cluster}, or: {again}. To leave the hosts as they are write \
             spec.deletionPolicy: Retain"
        );
    }
    format!("run {name} was {message}. To start anew change the spec, or: {again}")
}

fn failure(run: &Run, message: &str) -> String {
    let failure = run
        .status
        .as_ref()
        .and_then(|status| status.failure.as_ref());
    let Some(failure) = failure else {
        return message.to_owned();
    };
    let remedy = failures::remedy(run, failure)
        .unwrap_or_else(|| format!("then: windlass retry {}", run.name_any()));
    let ways = if run.spec.operation == CREATE.name {
        ways_on(run)
    } else {
        String::new()
    };
    format!("{}: {}; {remedy}{ways}", failure.code, failure.message)
}

/// What can always be done about a cluster that could not be created, whatever has failed.
fn ways_on(run: &Run) -> String {
    format!(
        "; ways on: windlass retry {}, another spec (which starts a new run), or windlass reset {} and anew",
        run.name_any(),
        run.spec.subject.name
    )
}

fn kept(built: &Built, checked: Option<&Checked>) -> (Standing, &'static str, String) {
    if let Some(waiting) = &built.waiting {
        let (standing, reason, message) = healthy(built, checked);
        return (standing, reason, format!("{message}; {}", waiting.told()));
    }
    if !built.not_carried_out.is_empty() {
        return (
            Standing::Stalled,
            "NotCarriedOut",
            format!(
                "the cluster is built; the spec also asks for {}",
                built.not_carried_out.join("; ")
            ),
        );
    }
    healthy(built, checked)
}

fn healthy(built: &Built, checked: Option<&Checked>) -> (Standing, &'static str, String) {
    match checked {
        None => (
            Standing::AtWork,
            "CheckingHealth",
            "the cluster is built and its health is being probed".to_owned(),
        ),
        Some(Checked {
            report: Err(error), ..
        }) => (Standing::Unhealthy, "Unhealthy", error.clone()),
        Some(Checked {
            report: Ok(report), ..
        }) => match report.health() {
            Health::Ok => (
                Standing::Ready,
                "Created",
                format!(
                    "Kubernetes {} runs on {} nodes",
                    built.kubernetes.map_or_else(
                        || "of the release".to_owned(),
                        |version| version.to_string()
                    ),
                    built.expected.nodes.len()
                ),
            ),
            Health::Warn => (Standing::Ready, "NeedsAttention", report.trouble()),
            Health::Err => (Standing::Unhealthy, "Unhealthy", report.trouble()),
        },
    }
}

fn state(cluster: &Cluster, view: &View<'_>) -> ClusterState {
    if cluster.meta().deletion_timestamp.is_some() {
        return ClusterState::Deleting;
    }
    let before = cluster
        .status
        .as_ref()
        .and_then(|status| status.state)
        .unwrap_or_default();
    match view.decision {
        Decision::Keep(built) => built
            .looks_before
            .as_ref()
            .map_or(ClusterState::Created, |new| new.operation.state),
        Decision::Start(new) => new.operation.state,
        Decision::Supersede(run, _) | Decision::Cancel(run) => at_work(run),
        Decision::Maintain(_, run) if Operation::is_quiet(run) => ClusterState::Created,
        Decision::Maintain(_, run) => match runs::phase(run) {
            RunPhase::Failed => ClusterState::Failed,
            _ => at_work(run),
        },
        Decision::Follow(run) => match runs::phase(run) {
            RunPhase::Failed | RunPhase::Cancelled => ClusterState::Failed,
            RunPhase::Waiting => ClusterState::Waiting,
            _ => at_work(run),
        },
        // Neither a bad spec nor playbooks that are being brought unbuild a cluster.
        Decision::Stall(_) | Decision::AwaitPlaybooks(_) if before == ClusterState::Created => {
            ClusterState::Created
        }
        Decision::Forget => ClusterState::Deleting,
        Decision::Stall(_) | Decision::AwaitPlaybooks(_) | Decision::AwaitHosts { .. } => {
            ClusterState::Waiting
        }
    }
}

/// Whether a run came before the last one: that one's Run may have been deleted, and its name must not come again.
fn is_earlier(run: &Run, last: Option<&LastOperation>) -> bool {
    let last = last.and_then(|last| last.run.as_deref());
    last.is_some_and(|last| runs::number(&run.name_any()) < runs::number(last))
}

fn last_operation(run: &Run) -> LastOperation {
    let status = run.status.clone().unwrap_or_default();
    LastOperation {
        operation: run.spec.operation.clone(),
        state: status.phase,
        progress: status.progress,
        step: status.step,
        description: status
            .failure
            .map(|failure| failure.message)
            .or(status.message)
            .map(|text| lines(&text, 2048)),
        run: Some(run.name_any()),
    }
}

/// `BackedUp` while nothing is saved, because the spec is wrong: nobody knows, where it was good.
fn unjudged(conditions: &mut Conditions, before: &[Condition], why: &str) {
    let mut before = before.iter();
    let found = before.find(|condition| condition.type_ == BACKED_UP);
    if found.is_some_and(|found| found.status != "False") {
        let message = format!("no snapshot is begun before this is corrected: {why}");
        conditions.set(BACKED_UP, Status::Unknown, "InvalidSpec", message);
    }
}

/// `Reachable`, as far as the run's probe of the hosts knows.
fn reachable(conditions: &mut Conditions, run: &Run) {
    let Some(status) = run.status.as_ref() else {
        return;
    };
    let step = status
        .steps
        .iter()
        .find(|step| step.id == crate::action::PROBE);
    let failed = step.and_then(|step| step.failure.as_ref());
    if let Some(failure) = failed {
        conditions.set(
            "Reachable",
            Status::False,
            &failure.code,
            failure.message.clone(),
        );
    } else if !status.excluded.is_empty() {
        conditions.set(
            "Reachable",
            Status::False,
            "HostsExcluded",
            format!("left out: {}", runs::runner::left_out(&status.excluded)),
        );
    } else if step.is_some_and(|step| step.phase == api::run::StepPhase::Succeeded) {
        conditions.set("Reachable", Status::True, "Answered", "every host answers");
    }
}

/// What waits for a maintenance window.
fn waiting(conditions: &mut Conditions, pending: &[Pending]) {
    let waits = |pending: &&Pending| pending.reason == WAITING_FOR_WINDOW;
    let waiting: Vec<_> = pending
        .iter()
        .filter(waits)
        .map(|waits| {
            format!(
                "{}: {}",
                named(&waits.operation, &waits.hosts),
                waits.message
            )
        })
        .collect();
    if waiting.is_empty() {
        conditions.remove(AWAITING_WINDOW);
    } else {
        let message = waiting.join("; ");
        conditions.set(AWAITING_WINDOW, Status::True, WAITING_FOR_WINDOW, message);
    }
}

/// `Drifted`, as far as the radar knows; without one, by what the last converge of a schedule changed.
fn drifted(conditions: &mut Conditions, built: &Built, radar: Option<&Hosts>) {
    match (&built.watch, radar, &built.converged) {
        (Some(_), Some(hosts), _) => {
            let (status, reason, message) = standing(hosts);
            conditions.set(DRIFTED, status, reason, message);
        }
        // Until the first look it is what it was.
        (Some(_), None, _) => {}
        (None, _, Some(converged)) if built.converges => {
            let (status, reason) = match converged.changed {
                0 => (Status::False, "NothingChanged"),
                _ if converged.again.is_none() => (Status::Unknown, "NothingToCompare"),
                _ if converged.message.is_none() => (Status::False, "AsBefore"),
                _ => (Status::True, "ConvergeChanged"),
            };
            conditions.set(DRIFTED, status, reason, what_changed(converged));
        }
        (None, ..) => conditions.remove(DRIFTED),
    }
}

/// What a converge changed, and what of that is nothing new.
fn what_changed(converged: &Converged) -> String {
    let Converged {
        run,
        changed,
        again,
        message,
    } = converged;
    let tasks = if *changed == 1 { "task" } else { "tasks" };
    let text = format!("{changed} {tasks} of run {run} changed something");
    if *changed == 0 {
        return text;
    }
    let known = match again {
        None => ", and no converge before it with the same spec tells whether they do so each time"
            .to_owned(),
        Some(0) => String::new(),
        Some(again) => format!(
            "; {again} of these changes the converge before made too: what the playbooks change each time, or what something takes back \
             each time"
        ),
    };
    let which = match (message, again) {
        (Some(message), None | Some(0)) => format!(": {message}"),
        (Some(message), Some(_)) => format!("; new: {message}"),
        (None, _) => String::new(),
    };
    text + &known + &which
}

fn health_conditions(conditions: &mut Conditions, checked: &Checked) {
    let mut set = |kind, check: &Check| {
        let (status, reason) = match check.health {
            Health::Ok => (Status::True, "Healthy"),
            Health::Warn => (Status::False, "NeedsAttention"),
            Health::Err => (Status::False, "Unhealthy"),
        };
        conditions.set(kind, status, reason, check.message.clone());
    };
    match &checked.report {
        Ok(report) => {
            set("APIServerAvailable", &report.api_server);
            set("EtcdHealthy", &report.etcd);
            set("NodesReady", &report.nodes);
            set("CertificatesValid", &report.certificates);
        }
        Err(error) => {
            for kind in [
                "APIServerAvailable",
                "EtcdHealthy",
                "NodesReady",
                "CertificatesValid",
            ] {
                conditions.set(kind, Status::Unknown, "NotProbed", error.clone());
            }
        }
    }
}

fn health(before: Option<&ClusterHealth>, checked: &Checked) -> ClusterHealth {
    let now = checked.health();
    match before {
        Some(before) if before.health == now => {
            let lags = before
                .last_checked
                .as_ref()
                .is_none_or(|last| checked.at.duration_since(last.0) >= LAST_CHECKED);
            ClusterHealth {
                last_checked: if lags {
                    Some(Time(checked.at))
                } else {
                    before.last_checked.clone()
                },
                ..before.clone()
            }
        }
        before => ClusterHealth {
            health: now,
            last_changed: Some(Time(checked.at)),
            last_checked: Some(Time(checked.at)),
            previous_health: before.map(|before| before.health),
        },
    }
}

/// The first to end of what was seen.
fn first_certificate(checked: &Checked) -> Option<FirstCertificate> {
    let served = checked
        .served
        .first()
        .map(|(host, part, end)| FirstCertificate {
            name: part.name().to_owned(),
            node: Some(host.to_owned()),
            not_after: Time(end),
        });
    let own = checked.own_end().map(|end| FirstCertificate {
        name: "kubeconfig".to_owned(),
        node: None,
        not_after: Time(end),
    });
    let known = served.into_iter().chain(own);
    known.min_by_key(|certificate| certificate.not_after.0)
}

fn counts(view: &View<'_>) -> NodeCounts {
    let total = u32::try_from(view.nodes).unwrap_or(u32::MAX);
    let healthy = match (view.decision, view.health) {
        (
            Decision::Keep(built) | Decision::Maintain(built, _),
            Some(Checked {
                report: Ok(report), ..
            }),
        ) => built
            .expected
            .nodes
            .iter()
            .filter_map(|name| report.members.get(name.as_str()))
            .filter(|member| member.check.health == Health::Ok)
            .count(),
        _ => 0,
    };
    let healthy = u32::try_from(healthy).unwrap_or(u32::MAX);
    NodeCounts {
        total,
        healthy,
        summary: format!("{healthy}/{total}"),
    }
}
