//! What to do about a provider. Pure.

use api::{
    Run,
    provider::{Kind, Provider, Reason},
    run::{Plan, RunPhase},
};
use controller::Problem;
use kube::{Resource, ResourceExt};
use runs::{is_active, object, phase};

use super::{
    Observed,
    observe::{target_of, target_where_it_is},
    past::{self, is_installation},
};
use crate::{
    check::{Finding, Waiting, given},
    fetch,
    inputs::{self, Changes, Inputs, Manifests},
    names::{COMPONENTS_DIGEST, COMPONENTS_KEY, KEEP, KUBECONFIG_KEY, TARGET},
    operation::Operation,
    source::{Held, Missing},
    target,
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
    /// It is to be deleted, and cannot be before somebody changes something, and why.
    Stick(String),
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
    let mut wanted = match wanted(provider, observed) {
        Ok(wanted) => wanted,
        // What is at work is of a wish that could be carried out, and leaves nothing half done.
        Err(decision) => {
            return Ok(at_work.map_or(decision, |run| Decision::Follow(Box::new(run.clone()))));
        }
    };
    let map = wanted.to_map()?;
    let is_same = |run: &&Run| {
        Inputs::wish(&run.spec.plan.inputs) == map
            && !Operation::is_last(&run.spec.operation)
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
    wanted.goes_back_from = past::newer(&observed.runs, installed, &wanted.version);
    let operation = match Operation::towards(&wanted.version, installed) {
        // Another operator's status says so, and its work is left as it is where it is right.
        Operation::Reconfigure if !observed.runs.iter().any(is_installation) => Operation::Install,
        operation => operation,
    };
    let reason = match (operation, installed) {
        (Operation::Install, Some(installed)) => {
            format!("version {installed} is installed, and not by Windlass: it is taken over")
        }
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
    findings.extend(moved(provider, observed));
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
                // Who may not use a Secret has no release brought with what it holds.
            ) => match &observed.variables {
                Ok(_) => Decision::Fetch(Box::new(fetch.clone())),
                Err(what) => missing(what),
            },
            _ => missing(&error.to_string()),
        })?;
    if let Some(problem) = changed(provider, held).or_else(|| unsigned(provider, held)) {
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
        goes_back_from: None,
        was_installed: false,
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

/// What is held is not signed by whom somebody insists on.
fn unsigned<K: Kind>(provider: &Provider<K>, held: &Held) -> Option<Problem> {
    let said = provider.annotations().get(COMPONENTS_KEY)?;
    let key = fetch::key(provider)?.ok()?;
    let verified = key.verify(&held.components, held.signature.as_deref());
    verified.err().map(|unsigned| {
        Problem::new(
            format!("{} metadata.annotations[{COMPONENTS_KEY}]", K::TYPE),
            api::text::plain(said, 256),
            format!("of ConfigMap {}, {unsigned}", held.config_map),
            "find out who changed them, delete the ConfigMap, so that the release is brought or loaded anew with the key signature, or mend the annotation",
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

/// What runs have written is in one cluster, and the provider names another one by now: what is in the first would be left there, at work,
/// with nobody who sees to it.
fn moved<K: Kind>(provider: &Provider<K>, observed: &Observed) -> Option<Finding> {
    let (there, wanted) = (past::place(&observed.runs)?.target, target_of(provider));
    if there.as_deref() == wanted {
        return None;
    }
    let (place, back) = match &there {
        Some(secret) => (
            format!("the cluster of Secret {secret}"),
            format!("write {secret} again"),
        ),
        None => (
            "the cluster that has its object".to_owned(),
            "remove the annotation again".to_owned(),
        ),
    };
    let place = api::text::plain(&place, 300);
    Some(Finding {
        reason: Reason::InvalidSpec,
        problem: Problem::new(
            format!("{} metadata.annotations[{TARGET}]", K::TYPE),
            api::text::plain(wanted.unwrap_or_default(), 256),
            format!("what is installed of the provider is in {place}, and would be left there"),
            format!(
                "{}; or delete the provider, and make it anew with this annotation",
                api::text::plain(&back, 300)
            ),
        ),
    })
}

fn deletion<K: Kind>(
    provider: &Provider<K>,
    observed: &Observed,
    last: Option<&Run>,
) -> Result<Decision, serde_json::Error> {
    let operation = if keeps(provider) {
        Operation::Release
    } else {
        Operation::Delete
    };
    if let Some(run) = last {
        let is_it = run.spec.operation == operation.name();
        let own = || Box::new(run.clone());
        match phase(run) {
            RunPhase::Succeeded if Operation::is_last(&run.spec.operation) => {
                return Ok(Decision::Forget);
            }
            _ if is_it => return Ok(Decision::Follow(own())),
            phase if is_active(phase) => return Ok(Decision::Cancel(own())),
            _ => {}
        }
    }
    let installed = provider
        .status
        .as_ref()
        .filter(|status| given(status.installed_version.as_deref()).is_some());
    if operation == Operation::Release {
        return release(provider, observed);
    }
    let Some(run) = past::undone(&observed.runs) else {
        // What another operator installed is that one's to delete, and without a run nothing of it is known to be ours.
        return Ok(match installed {
            None => Decision::Forget,
            Some(_) => Decision::Stick(format!(
                "no run of Windlass installed it; let the operator that did delete it, or annotate it {KEEP}=true, and what is installed stays"
            )),
        });
    };
    let has_written = observed.runs.iter().any(past::has_written);
    match &observed.dependents {
        // Whatever one before it may have left there is left there.
        Err(_) if !has_written && installed.is_none() && target_of(provider).is_some() => {
            return Ok(Decision::Forget);
        }
        Err(error) => {
            let [namespace, kind, name] = titles(provider);
            let leave = target::leave(&namespace, &kind, &name);
            return Ok(Decision::AwaitParts(
                Reason::OldComponentsDeletionError,
                format!("what needs it is not known: {error}; {leave}"),
            ));
        }
        Ok(dependents) if !dependents.is_empty() => {
            return Ok(Decision::Refuse(dependents.clone()));
        }
        Ok(_) => {}
    }
    let inputs = match Inputs::from_map(&run.spec.plan.inputs) {
        Ok(inputs) => Inputs {
            was_installed: observed.runs.iter().any(is_installation),
            // Where it was asked who needs it.
            target: target_where_it_is(provider, &observed.runs),
            ..inputs.bare()
        },
        Err(error) => return Ok(unreadable(provider, &error)),
    };
    let new = new(
        provider,
        observed,
        operation,
        &inputs,
        "the provider is being deleted",
    )?;
    Ok(Decision::Start(Box::new(new)))
}

/// Whether everything stays when the provider is deleted.
pub(super) fn keeps<K: Kind>(provider: &Provider<K>) -> bool {
    provider
        .annotations()
        .get(KEEP)
        .is_some_and(|value| value == "true")
}

/// Nobody loses what they need by it, so nobody is asked.
fn release<K: Kind>(
    provider: &Provider<K>,
    observed: &Observed,
) -> Result<Decision, serde_json::Error> {
    let last = past::undone(&observed.runs);
    let status = provider.status.clone().unwrap_or_default();
    let inputs = match (last, status.installed_version) {
        (Some(run), _) => match Inputs::from_map(&run.spec.plan.inputs) {
            Ok(inputs) => inputs.bare(),
            Err(error) => return Ok(unreadable(provider, &error)),
        },
        // Another operator owns what it installed by the provider's object.
        (None, Some(version)) => Inputs {
            version,
            contract: status.contract.unwrap_or_default(),
            target: target_of(provider).map(str::to_owned),
            manifests: None,
            variables: None,
            additional: None,
            changes: Changes::default(),
            goes_back_from: None,
            was_installed: false,
        },
        (None, None) => return Ok(Decision::Forget),
    };
    let reason = "the provider is being deleted, and what it installed stays";
    let new = new(provider, observed, Operation::Release, &inputs, reason)?;
    Ok(Decision::Start(Box::new(new)))
}

/// Its namespace, kind and name.
fn titles<K: Kind>(provider: &Provider<K>) -> [String; 3] {
    let namespace = provider.namespace().unwrap_or_default();
    let kind = Provider::<K>::kind(&()).into_owned();
    [namespace, kind, provider.name_any()]
}

fn unreadable<K: Kind>(provider: &Provider<K>, error: &inputs::Unreadable) -> Decision {
    let error = controller::chain(error);
    let [namespace, kind, name] = titles(provider);
    let let_go = target::let_go(&namespace, &kind, &name);
    Decision::Stick(format!(
        "its last run is not of this version of Windlass: {error}; delete it with the version that made the run, or leave what is installed: {let_go}"
    ))
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
