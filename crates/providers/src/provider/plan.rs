//! What to do about a provider. Pure.

use api::{
    Run,
    provider::{Kind, Provider, Reason},
    run::{Plan, RunPhase},
};
use controller::Problem;
use kube::{Resource, ResourceExt};
use runs::{is_active, object, phase};

use super::{Observed, observe::target_of};
use crate::{
    check::{Finding, Waiting, given},
    fetch,
    inputs::{self, Changes, Inputs, Manifests},
    names::{COMPONENTS_DIGEST, KUBECONFIG_KEY, TARGET},
    operation::Operation,
    source::{Held, Missing},
};

/// What to do.
#[derive(Clone, Debug)]
pub enum Decision {
    /// Nothing, until somebody changes something.
    Stall(Vec<Finding>),
    /// Wait for what comes by itself.
    Await(Waiting),
    /// Bring its manifests, which are not held.
    Fetch(Box<fetch::Wanted>),
    /// Wait for what the provider is made of, and tell what is missing.
    AwaitParts(Reason, String),
    /// Store a new run.
    Start(Box<NewRun>),
    /// Let a run go on, or stand as it ended.
    Follow(Box<Run>),
    /// End a run at the next place where it may, for a newer plan.
    Supersede(Box<Run>, String),
    /// End a run for good, because its provider is being deleted.
    Cancel(Box<Run>),
    /// It is installed as it should be.
    Keep(Box<Run>),
    /// It is to be deleted, and these need it.
    Refuse(Vec<String>),
    /// Let it go.
    Forget,
}

/// A run to be stored.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Its name.
    pub name: String,
    /// What it does.
    pub operation: Operation,
    /// Its plan.
    pub plan: Plan,
}

/// Decides.
///
/// # Errors
///
/// A plan cannot be written as JSON.
pub fn plan<K: Kind>(
    provider: &Provider<K>,
    observed: &Observed,
) -> Result<Decision, serde_json::Error> {
    let last = observed.runs.last();
    if provider.meta().deletion_timestamp.is_some() {
        return deletion(provider, observed, last);
    }
    let at_work = last.filter(|run| is_active(phase(run)));
    let wanted = match wanted(provider, observed) {
        Ok(wanted) => wanted,
        // What is at work is of a wish that could be carried out, and leaves nothing half done.
        Err(decision) => {
            return Ok(at_work.map_or(decision, |run| Decision::Follow(Box::new(run.clone()))));
        }
    };
    let map = wanted.to_map()?;
    let is_same = |run: &&Run| {
        run.spec.plan.inputs == map
            && run.spec.operation != Operation::Delete.name()
            // One that gave way to another wish did not make this one true, though it was this one.
            && phase(run) != RunPhase::Superseded
    };
    if let Some(run) = last.filter(is_same) {
        if phase(run) != RunPhase::Succeeded {
            return Ok(Decision::Follow(Box::new(run.clone())));
        }
        if observed.drifted.is_empty() || !observed.repairs {
            return Ok(Decision::Keep(Box::new(run.clone())));
        }
        let reason = drifted(observed);
        let new = new(provider, observed, Operation::Repair, &wanted, &reason)?;
        return Ok(Decision::Start(Box::new(new)));
    }
    let installed = provider
        .status
        .as_ref()
        .and_then(|status| given(status.installed_version.as_deref()));
    let operation = Operation::towards(&wanted.version, installed);
    let reason = match (operation, installed) {
        (Operation::Upgrade, Some(installed)) => format!(
            "version {installed} is installed, {} is wanted",
            wanted.version
        ),
        (Operation::Reconfigure, _) => {
            "the settings, the manifests or the values of variables have changed".to_owned()
        }
        _ => format!("version {} is wanted", wanted.version),
    };
    let new = new(provider, observed, operation, &wanted, &reason)?;
    Ok(match at_work {
        Some(run) => Decision::Supersede(Box::new(run.clone()), new.plan.digest),
        None => Decision::Start(Box::new(new)),
    })
}

/// What others have written, for people.
pub(super) fn drifted(observed: &Observed) -> String {
    let shown = observed.drifted.iter().take(SHOWN).cloned();
    let more = observed.drifted.len().saturating_sub(SHOWN);
    let more = (more > 0).then(|| format!("{more} more"));
    api::text::lines(&shown.chain(more).collect::<Vec<_>>().join("; "), 1024)
}

/// So many objects are named.
const SHOWN: usize = 5;

/// What a run is to work from, or why there is none to make.
fn wanted<K: Kind>(provider: &Provider<K>, observed: &Observed) -> Result<Inputs, Decision> {
    let mut findings = observed.findings.clone();
    if observed.is_nowhere {
        findings.push(nowhere(provider));
    }
    let waiting = match &observed.among {
        Ok(waiting) => *waiting,
        Err(among) => {
            findings.extend(among.iter().cloned());
            None
        }
    };
    if !findings.is_empty() {
        return Err(Decision::Stall(findings));
    }
    if let Some(waiting) = waiting {
        return Err(Decision::Await(waiting));
    }
    let missing = |what: &String| Decision::AwaitParts(Reason::ComponentsFetchError, what.clone());
    let held = observed
        .source
        .as_ref()
        .map_err(|error| match (&observed.fetch, error) {
            (
                Some(fetch),
                Missing::Nothing { .. } | Missing::Version { .. } | Missing::Stale { .. },
            ) => Decision::Fetch(Box::new(fetch.clone())),
            _ => missing(&error.to_string()),
        })?;
    if let Some(problem) = changed(provider, held) {
        return Err(missing(&problem.to_string()));
    }
    let variables = observed.variables.as_ref().map_err(missing)?;
    let additional = observed.additional.as_ref().map_err(missing)?;
    Ok(Inputs {
        version: held.version.to_string(),
        contract: held.contract.clone(),
        target: target_of(provider).map(str::to_owned),
        manifests: Some(Manifests {
            config_map: held.config_map.clone(),
            digest: held.digest(),
        }),
        variables: variables.clone(),
        additional: additional.clone(),
        changes: Changes::of(&provider.spec),
    })
}

/// What is held is not what somebody insists on.
fn changed<K: Kind>(provider: &Provider<K>, held: &Held) -> Option<Problem> {
    let pinned = fetch::pin(provider)?.ok()?;
    let found = held.components_digest();
    (found != pinned).then(|| {
        Problem::new(
            format!("{} metadata.annotations[{COMPONENTS_DIGEST}]", K::TYPE),
            format!("sha256:{pinned}"),
            format!("the components in ConfigMap {} have the digest sha256:{found}", held.config_map),
            "find out who changed them, and delete the ConfigMap, so that the release is brought or loaded anew, or mend the annotation",
        )
    })
}

fn nowhere<K: Kind>(provider: &Provider<K>) -> Finding {
    Finding {
        reason: Reason::InvalidSpec,
        problem: Problem::new(
            format!("{} metadata.annotations[{TARGET}]", K::TYPE),
            provider
                .annotations()
                .get(TARGET)
                .cloned()
                .unwrap_or_default(),
            "the embedded API runs no pods, so a provider is installed in another cluster",
            format!(
                "put that cluster's kubeconfig into a Secret of this namespace, under the key {KUBECONFIG_KEY}, and name the Secret here"
            ),
        ),
    }
}

fn deletion<K: Kind>(
    provider: &Provider<K>,
    observed: &Observed,
    last: Option<&Run>,
) -> Result<Decision, serde_json::Error> {
    if let Some(run) = last {
        let deletes = run.spec.operation == Operation::Delete.name();
        let own = || Box::new(run.clone());
        match (deletes, phase(run)) {
            (true, RunPhase::Succeeded) => return Ok(Decision::Forget),
            (true, _) => return Ok(Decision::Follow(own())),
            (false, phase) if is_active(phase) => return Ok(Decision::Cancel(own())),
            (false, _) => {}
        }
    }
    let installed = provider
        .status
        .as_ref()
        .and_then(|status| given(status.installed_version.as_deref()));
    let Some(run) = last else {
        // What another operator installed is that one's to delete, and without a run nothing of it is known to be ours.
        return Ok(match installed {
            None => Decision::Forget,
            Some(_) => Decision::AwaitParts(
                Reason::OldComponentsDeletionError,
                "no run of Windlass installed it; let the operator that did delete it, or remove the finalizer".to_owned(),
            ),
        });
    };
    match &observed.dependents {
        Err(error) => {
            return Ok(Decision::AwaitParts(
                Reason::OldComponentsDeletionError,
                format!("what needs it is not known: {error}"),
            ));
        }
        Ok(dependents) if !dependents.is_empty() => {
            return Ok(Decision::Refuse(dependents.clone()));
        }
        Ok(_) => {}
    }
    let inputs = match Inputs::from_map(&run.spec.plan.inputs) {
        Ok(inputs) => Inputs {
            manifests: None,
            variables: None,
            additional: None,
            changes: Changes::default(),
            ..inputs
        },
        Err(error) => {
            let error = controller::chain(&error);
            return Ok(Decision::AwaitParts(
                Reason::OldComponentsDeletionError,
                format!("its last run is not of this version of Windlass: {error}"),
            ));
        }
    };
    let new = new(
        provider,
        observed,
        Operation::Delete,
        &inputs,
        "the provider is being deleted",
    )?;
    Ok(Decision::Start(Box::new(new)))
}

fn new<K: Kind>(
    provider: &Provider<K>,
    observed: &Observed,
    operation: Operation,
    inputs: &Inputs,
    reason: &str,
) -> Result<NewRun, serde_json::Error> {
    // Providers of two kinds may have one name.
    let subject = inputs::provider(K::TYPE, &provider.name_any()).map_or_else(
        |_| provider.name_any(),
        |provider| provider.manifest_label(),
    );
    let names = observed.runs.iter().map(ResourceExt::name_any);
    Ok(NewRun {
        name: object_name(&subject, operation, names),
        operation,
        plan: operation.plan(inputs, reason)?,
    })
}

fn object_name(subject: &str, operation: Operation, names: impl Iterator<Item = String>) -> String {
    object::next_name(subject, operation.name(), names)
}
