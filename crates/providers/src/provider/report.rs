//! How a provider stands, for people and for those who wait for it: its status, and an Event where something happened.

use api::{
    Run,
    provider::{Kind, Provider, ProviderStatus, Reason, condition},
    run::RunPhase,
};
use controller::{
    Conditions, Occurrence, Severity, Standing, Status, Summary,
    conditions::{READY, observed_generation},
    hint,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, ResourceExt};
use runs::phase;

use super::{Applied, Context, Decision, Error, NewRun, Observed, plan::drifted};
use crate::{check::Finding, inputs::Inputs, names::MANAGER, operation::Operation};

/// Writes the status if it changed, and the Event of what happened.
pub(super) async fn publish<K: Kind>(
    provider: &Provider<K>,
    applied: &Applied,
    observed: &Observed,
    context: &Context<K>,
) -> Result<(), Error> {
    if matches!(applied.decision(), Decision::Forget) {
        return Ok(());
    }
    let status = status(provider, applied, observed, Timestamp::now());
    let before = provider.status.clone().unwrap_or_default();
    if let Some(occurrence) = occurrence(&before, &status) {
        let regarding = ObjectReference {
            api_version: Some(Provider::<K>::api_version(&()).into_owned()),
            kind: Some(K::TYPE.kind().to_owned()),
            name: Some(provider.name_any()),
            namespace: provider.namespace(),
            uid: provider.uid(),
            ..ObjectReference::default()
        };
        context
            .events
            .publish(&regarding, &occurrence)
            .await
            .map_err(|source| Error::Api("publish an Event", source))?;
    }
    controller::apply::write_status(
        &context.client,
        &context.own,
        MANAGER,
        (provider, Some(&before)),
        &status,
    )
    .await
    .map_err(Error::Apply)
}

/// The status that follows from what was done. Pure.
pub(super) fn status<K: Kind>(
    provider: &Provider<K>,
    applied: &Applied,
    observed: &Observed,
    now: Timestamp,
) -> ProviderStatus {
    let before = provider.status.clone().unwrap_or_default();
    let generation = provider.meta().generation;
    let mut conditions = Conditions::new(&before.conditions, generation, now);
    preflight(applied.decision(), &mut conditions);
    let done = observed.runs.iter().rfind(|run| is_done(run));
    let inputs = done.and_then(|run| Inputs::from_map(&run.spec.plan.inputs).ok());
    if let Some(inputs) = &inputs {
        conditions.set(
            condition::PROVIDER_INSTALLED,
            Status::True,
            Reason::ProviderInstalled.as_str(),
            format!("version {} is installed", inputs.version),
        );
    }
    if let Some(run) = done.filter(|run| run.spec.operation == Operation::Upgrade.name()) {
        conditions.set(
            condition::PROVIDER_UPGRADED,
            Status::True,
            Reason::ProviderUpgraded.as_str(),
            format!("run {} upgraded it", run.name_any()),
        );
    }
    if let Some(run) = applied.run()
        && let Some(failure) = failure(run)
        && !Operation::is_last(&run.spec.operation)
    {
        let (kind, reason) = if run.spec.operation == Operation::Upgrade.name() {
            (condition::PROVIDER_UPGRADED, Reason::ComponentsUpgradeError)
        } else {
            (condition::PROVIDER_INSTALLED, Reason::InstallFailed)
        };
        let reason = unfit(run).unwrap_or(reason);
        conditions.set(kind, Status::False, reason.as_str(), failure);
    }
    let mut summary = summary(applied, observed);
    summary.message = hint::placed(&summary.message, &provider.namespace().unwrap_or_default());
    conditions.summarise(&summary);
    ProviderStatus {
        contract: inputs
            .as_ref()
            .map(|inputs| inputs.contract.clone())
            .or(before.contract),
        installed_version: inputs
            .map(|inputs| inputs.version)
            .or(before.installed_version),
        observed_generation: observed_generation(
            before.observed_generation,
            generation,
            summary.standing,
        ),
        conditions: conditions.into_vec(),
    }
}

fn is_done(run: &Run) -> bool {
    phase(run) == RunPhase::Succeeded && !Operation::is_last(&run.spec.operation)
}

fn preflight(decision: &Decision, conditions: &mut Conditions) {
    let kind = condition::PREFLIGHT_CHECK_PASSED;
    match decision {
        Decision::Stall(findings) => {
            let reason = findings
                .first()
                .map_or(Reason::InvalidSpec, |finding| finding.reason);
            conditions.set(kind, Status::False, reason.as_str(), text(findings));
        }
        Decision::Await(waiting) => conditions.set(
            kind,
            Status::False,
            waiting.reason().as_str(),
            waiting.message(),
        ),
        Decision::Start(_)
        | Decision::Follow(_)
        | Decision::Supersede(..)
        | Decision::Keep(_)
        | Decision::Fetch(_)
        | Decision::AwaitParts(..) => {
            conditions.set(
                kind,
                Status::True,
                Reason::PreflightChecksPassed.as_str(),
                "everything was checked",
            );
        }
        // What was checked before it was to go is of no interest any more.
        Decision::Cancel(_) | Decision::Stick(_) | Decision::Refuse(_) | Decision::Forget => {}
    }
}

fn summary(applied: &Applied, observed: &Observed) -> Summary {
    let of = |standing, reason: Reason, message: String| Summary {
        standing,
        reason: reason.as_str(),
        message,
    };
    match applied.decision() {
        Decision::Stall(findings) => {
            let reason = findings
                .first()
                .map_or(Reason::InvalidSpec, |finding| finding.reason);
            of(Standing::Stalled, reason, text(findings))
        }
        Decision::Await(waiting) => of(
            Standing::AtWork,
            waiting.reason(),
            waiting.message().to_owned(),
        ),
        Decision::AwaitParts(reason, message) => of(Standing::AtWork, *reason, message.clone()),
        Decision::Stick(why) => of(
            Standing::Stalled,
            Reason::OldComponentsDeletionError,
            why.clone(),
        ),
        Decision::Fetch(wanted) => match applied.fetched() {
            Some(Err(problem)) => of(
                Standing::AtWork,
                Reason::ComponentsFetchError,
                problem.clone(),
            ),
            Some(Ok(version)) => of(
                Standing::AtWork,
                Reason::ComponentsFetched,
                format!("version {version} was brought from {}", wanted.url),
            ),
            None => of(
                Standing::AtWork,
                Reason::ComponentsFetched,
                format!("its release is brought from {}", wanted.url),
            ),
        },
        Decision::Refuse(dependents) => of(
            Standing::Stalled,
            Reason::DependentsExist,
            format!(
                "it is to be deleted, and these need it: {}; delete them first",
                dependents.join(", ")
            ),
        ),
        Decision::Keep(_) if !observed.drifted.is_empty() => of(
            Standing::Unhealthy,
            Reason::Drifted,
            format!("it is not as it was applied: {}", drifted(observed)),
        ),
        Decision::Keep(_) => match &observed.health {
            Some(Ok(health)) if health.is_well() => of(
                Standing::Ready,
                Reason::DeploymentAvailable,
                health.message(),
            ),
            Some(Ok(health)) => of(
                Standing::Unhealthy,
                if health.stands() {
                    Reason::WebhookUnavailable
                } else {
                    Reason::NoDeploymentAvailable
                },
                health.message(),
            ),
            Some(Err(error)) => of(
                Standing::Unhealthy,
                Reason::NoDeploymentAvailable,
                format!("how it stands is not known: {error}"),
            ),
            None => of(
                Standing::AtWork,
                Reason::NoDeploymentAvailable,
                "how it stands is looked at".to_owned(),
            ),
        },
        Decision::Start(new) if new.operation == Operation::Repair => Summary {
            reason: Reason::Drifted.as_str(),
            ..started(new, observed)
        },
        Decision::Start(new) => started(new, observed),
        Decision::Follow(run) | Decision::Supersede(run, _) | Decision::Cancel(run) => {
            follow(run, observed)
        }
        Decision::Forget => of(
            Standing::AtWork,
            Reason::RunInProgress,
            "it is gone".to_owned(),
        ),
    }
}

fn started(new: &NewRun, observed: &Observed) -> Summary {
    let reason = new.plan.reason.clone().unwrap_or_default();
    at_work(&format!("run {} was made: {reason}", new.name), observed)
}

/// What was installed before may be well all the while.
fn at_work(message: &str, observed: &Observed) -> Summary {
    let is_well = observed
        .health
        .as_ref()
        .is_some_and(|health| health.as_ref().is_ok_and(crate::health::Health::is_well));
    Summary {
        standing: if is_well {
            Standing::ReadyAtWork
        } else {
            Standing::AtWork
        },
        reason: Reason::RunInProgress.as_str(),
        message: message.to_owned(),
    }
}

fn follow(run: &Run, observed: &Observed) -> Summary {
    if let Some(failure) = failure(run) {
        return Summary {
            standing: Standing::Stalled,
            reason: unfit(run).unwrap_or(Reason::InstallFailed).as_str(),
            message: failure,
        };
    }
    let step = run.status.as_ref().and_then(|status| status.step.clone());
    let step = step.map_or_else(
        || " waits for its runner".to_owned(),
        |step| format!(" is at step {step}"),
    );
    at_work(&format!("run {}{step}", run.name_any()), observed)
}

/// The reason of a run that failed because the spec does not fit the manifests.
fn unfit(run: &Run) -> Option<Reason> {
    let failure = run.status.as_ref()?.failure.as_ref()?;
    let mut reasons = [
        Reason::ComponentsCustomizationError,
        Reason::ComponentsPatchError,
    ]
    .into_iter();
    reasons.find(|reason| failure.code == reason.as_str())
}

/// Why a run ended that did not succeed, and what to do.
fn failure(run: &Run) -> Option<String> {
    let name = run.name_any();
    match phase(run) {
        RunPhase::Failed => {
            let failure = run.status.as_ref()?.failure.clone();
            let why = failure.map(|failure| {
                let remedy = failure
                    .remedy
                    .map(|remedy| format!("; {remedy}"))
                    .unwrap_or_default();
                format!("{}{remedy}", failure.message)
            });
            Some(format!(
                "run {name} failed: {}; when it is mended: windlass retry {name}",
                why.unwrap_or_else(|| "nothing is known of why".to_owned())
            ))
        }
        RunPhase::Cancelled => Some(format!(
            "run {name} was cancelled; change the spec, or delete the run, for another one"
        )),
        _ => None,
    }
}

fn text(findings: &[Finding]) -> String {
    let lines: Vec<_> = findings.iter().map(Finding::to_string).collect();
    lines.join(". ")
}

/// What a change of `Ready` tells. The steps of runs have Events of their own.
fn occurrence(before: &ProviderStatus, after: &ProviderStatus) -> Option<Occurrence> {
    let ready = |status: &ProviderStatus| {
        status
            .conditions
            .iter()
            .find(|condition| condition.type_ == READY)
            .cloned()
    };
    let (before, after) = (ready(before), ready(after)?);
    let is_new = before
        .as_ref()
        .is_none_or(|before| before.reason != after.reason || before.status != after.status);
    if !is_new || after.reason == Reason::RunInProgress.as_str() {
        return None;
    }
    let well = after.status == Status::True.as_str();
    let goes_on = [
        Reason::WaitingForCoreProviderReady,
        Reason::WaitingForCertManager,
        Reason::ComponentsFetched,
    ];
    let goes_on = goes_on.map(Reason::as_str).contains(&after.reason.as_str());
    Some(Occurrence {
        severity: if well || goes_on {
            Severity::Normal
        } else {
            Severity::Warning
        },
        edge: format!("{} {}", after.last_transition_time.0, after.message),
        note: after.message,
        reason: after.reason,
    })
}
