//! Steps before the playbook: the Python environment, and whether the hosts answer.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use ansible::{
    catalogue,
    inventory::PythonPath,
    probe::{self, Options, Report, Target, Unusable},
    sandbox::{self, Packages, Request, Sandbox},
    ssh::{Access, HostKeys},
};
use api::{
    HostName,
    run::{Exclusion, Failure, FailureClass, Plan, Results, Step},
};
use tokio::sync::mpsc;
use workflow::{StepContext, StepOutcome, StepProgress};

use super::{
    carried,
    executor::{KubesprayExecutor, failed, stopped, succeeded},
    identity, source,
    workspace::{disk, failure},
};
use crate::{action, mirror};

/// How long a look at the mirror may take.
const LOOKING: Duration = Duration::from_mins(5);
/// How long a login and a few questions may take on a host that answers.
const LOGIN: Duration = Duration::from_secs(30);

/// The code of the failure when a host shows another key.
pub(crate) const HOST_KEY_CHANGED: &str = "HostKeyChanged";

/// Makes the Python environment.
pub(crate) async fn sandbox(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> StepOutcome {
    let (tell, mut told) = mpsc::unbounded_channel();
    let progress = move |text: &str| {
        // Nobody listens when the step was stopped.
        let _ = tell.send(text.to_owned());
    };
    let making = ensure(executor, &progress);
    tokio::pin!(making);
    let made = loop {
        tokio::select! {
            made = &mut making => break made,
            Some(task) = told.recv() => {
                let progress = StepProgress { activity: Some(task), ..StepProgress::default() };
                if context.reporter.progress(&step.id, progress).await.is_err() {
                    return StepOutcome::Interrupted { detail: None };
                }
            }
        }
    };
    let sandbox = match made {
        Ok(sandbox) => sandbox,
        Err(failure) => return failed(failure),
    };
    let core = format!("ansible-core {}", sandbox.core);
    if !executor.work.inputs.mirrored || !has_hosts_fetch(executor.work.plan.plan()) {
        return succeeded(Some(core));
    }
    let looked = tokio::select! {
        looked = tokio::time::timeout(LOOKING, look_at_mirror(executor, &sandbox)) => looked,
        () = stopped(context) => return StepOutcome::Interrupted { detail: None },
    };
    match looked {
        Ok(Ok(there)) => succeeded(Some(format!(
            "{core}; the mirror has all {there} files and images"
        ))),
        Ok(Err(failure)) => failed(failure),
        Err(_) => failed(mirror::too_slow(LOOKING)),
    }
}

/// Whether hosts are to fetch programs and images in a plan: not where they leave, where they are asked alone, and where they are told of
/// members that left. Nor where a cluster is recovered: that never waits for a mirror.
fn has_hosts_fetch(plan: &Plan) -> bool {
    let steps = plan.steps.iter();
    let mut plays = steps
        .filter(|step| !step.id.starts_with("endpoints/"))
        .filter_map(action::play_of);
    plays.any(|play| ["cluster", "scale", "upgrade-cluster"].contains(&play.playbook.as_str()))
}

/// That everything is where hosts will ask for it, before one is touched.
async fn look_at_mirror(executor: &KubesprayExecutor, sandbox: &Sandbox) -> Result<usize, Failure> {
    let inputs = &executor.work.inputs;
    let facts = executor.workspace.directories().facts;
    mirror::look(&mirror::Asking {
        inputs,
        checkout: &executor.workspace.checkout(),
        ansible_playbook: sandbox.ansible_playbook(),
        processors: mirror::Processors::of_facts(inputs, &facts),
    })
    .await
}

/// The environment, made if it is not there, and verified once by each runner.
pub(crate) async fn ensure(
    executor: &KubesprayExecutor,
    progress: &(dyn Fn(&str) + Send + Sync),
) -> Result<Sandbox, Failure> {
    let mut verified = executor.sandbox.lock().await;
    if let Some(sandbox) = verified.as_ref()
        && sandbox.ansible_playbook().exists()
    {
        return Ok(sandbox.clone());
    }
    let sandbox = make(executor, progress).await?;
    Ok(verified.insert(sandbox).clone())
}

async fn make(
    executor: &KubesprayExecutor,
    progress: &(dyn Fn(&str) + Send + Sync),
) -> Result<Sandbox, Failure> {
    let hold = source::ensure(&executor.work, &executor.workspace.checkout(), progress).await?;
    *executor.playbooks.lock().await = Some(hold);
    let release = release(executor)?;
    let request = Request {
        checkout: executor.workspace.checkout(),
        python: release.python,
        core: release.ansible_core,
        packages: Packages::OfTheIndex,
    };
    if let Some(cache) = runs::runner::sandboxes()
        && let Some(sandbox) = sandbox::find(&request, &cache).await
    {
        return Ok(sandbox);
    }
    let cache = executor.work.layout.sandboxes();
    let sandbox = sandbox::ensure(&request, &cache, progress)
        .await
        .map_err(|error| {
            let (class, code, remedy) = match &error {
                sandbox::Error::NoPython { .. } => (
                    FailureClass::External,
                    "NoPython",
                    "install a Python of that range, then retry the run",
                ),
                sandbox::Error::NoUv(_) => (
                    FailureClass::External,
                    "NoUv",
                    "install uv, or python3-venv and python3-pip, then retry the run",
                ),
                sandbox::Error::NotAPackage(_) => (
                    FailureClass::Config,
                    "RequirementsRefused",
                    "name playbooks whose requirements.txt names packages alone",
                ),
                sandbox::Error::Unfit { .. } => (
                    FailureClass::Permanent,
                    "SandboxUnfit",
                    "remove the environment's directory, then retry the run",
                ),
                sandbox::Error::File { .. } | sandbox::Error::Command { .. } => (
                    FailureClass::Transient,
                    "SandboxNotMade",
                    "check the network and the disk of this machine, then retry the run",
                ),
            };
            failure(class, code, crate::chain(&error), Some(remedy))
        })?;
    let work = &executor.work;
    let used = crate::sandbox_users::note_use(
        &cache,
        &sandbox.digest,
        (&work.namespace(), work.cluster()),
    );
    used.map_err(|error| disk(&cache, &error))?;
    Ok(sandbox)
}

/// Asks every host whether it answers.
pub(crate) async fn probe(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> StepOutcome {
    let options = match options(executor).await {
        Ok(options) => options,
        Err(failure) => return failed(failure),
    };
    let left_out = |name: &HostName| {
        context
            .excluded
            .iter()
            .any(|left_out| left_out.target == *name)
    };
    let targets: Vec<_> = targets(executor, &action::hosts_of(executor.work.plan.plan(), step))
        .into_iter()
        .filter(|target| !left_out(&target.name))
        .collect();
    let reports = probe::probe(&targets, &options).await;
    if let Err(error) = remember_pythons(executor, &reports) {
        return failed(disk(&pythons_file(executor), &error));
    }
    let mut outcome = judge(&reports);
    if let StepOutcome::Failed { failure, .. } = &mut outcome
        && failure.code == HOST_KEY_CHANGED
    {
        failure.remedy = Some(new_key_remedy(executor));
    }
    if matches!(outcome, StepOutcome::Succeeded { .. })
        && let Some(failure) = identity::confused(executor, &reports).await
    {
        return failed(failure);
    }
    outcome
}

/// What to do about a host that shows another key than the one that is known.
pub(crate) fn new_key_remedy(executor: &KubesprayExecutor) -> String {
    let ssh = &executor.work.inputs.ssh;
    if let Some(reference) = &ssh.known_hosts_secret {
        return format!(
            "if the host was made anew, put its new key into Secret {} (spec.ssh.knownHostsSecretRef) and retry the run; if \
             not, find out who answers",
            reference.name
        );
    }
    if ssh.known_hosts.is_some() {
        return "if the host was made anew, put its new key into spec.ssh.knownHosts; if not, find out who answers"
            .to_owned();
    }
    format!(
        "if the host was made anew, forget its old key (ssh-keygen -f {} -R ADDRESS) and retry the run; if not, find out \
         who answers",
        executor.workspace.known_hosts().display()
    )
}

/// Asks the hosts again where what an earlier runner learned of them, host keys and interpreters, went with its pod. What
/// they answer now decides nothing: the play does.
pub(crate) async fn acquaint(
    executor: &KubesprayExecutor,
    excluded: &[HostName],
) -> Result<(), Failure> {
    if pythons_file(executor).exists() {
        return Ok(());
    }
    let all = executor.work.inputs.hosts.iter();
    let hosts: Vec<HostName> = all
        .filter_map(|host| host.name.parse().ok())
        .filter(|host| !excluded.contains(host))
        .collect();
    let options = options(executor).await?;
    let reports = probe::probe(&targets(executor, &hosts), &options).await;
    remember_pythons(executor, &reports).map_err(|error| disk(&pythons_file(executor), &error))
}

/// Hosts that do not answer are left to the gate; hosts that answer and refuse need a person.
fn judge(reports: &[Report]) -> StepOutcome {
    let troubled = || {
        reports
            .iter()
            .filter_map(|report| Some((&report.host, report.answer.as_ref().err()?)))
    };
    let unreachable: Vec<_> = troubled()
        .filter(|(_, unusable)| unusable.is_unreachable())
        .map(|(host, unusable)| Exclusion {
            target: host.into(),
            reason: unusable.message(),
        })
        .collect();
    let refused: Vec<_> = troubled()
        .filter(|(_, unusable)| !unusable.is_unreachable())
        .collect();
    let answering = reports.len() - unreachable.len() - refused.len();
    let Some((_, first)) = refused.first() else {
        return StepOutcome::Succeeded {
            results: Results::default(),
            unreachable,
            detail: Some(format!("{answering} of {} hosts answer", reports.len())),
        };
    };
    let told = |unusable: &Unusable| format!("{} ({})", unusable.message(), unusable.detail);
    let (class, text) = if first.bastion.is_some() {
        // It is the same for every host.
        (FailureClass::External, told(first))
    } else {
        let texts: Vec<_> = refused
            .iter()
            .map(|(host, unusable)| format!("{host}: {}", told(unusable)))
            .collect();
        (FailureClass::Config, texts.join("; "))
    };
    let mut failure = failure(class, first.code(), text, Some(first.remedy()));
    failure.targets = refused.iter().map(|(host, _)| (*host).into()).collect();
    StepOutcome::Failed {
        failure,
        results: Results::default(),
        unreachable,
        remedies: Vec::new(),
    }
}

/// How hosts are asked, and their keys checked.
pub(crate) async fn options(executor: &KubesprayExecutor) -> Result<Options, Failure> {
    let ssh = &executor.work.inputs.ssh;
    let known_hosts = executor.workspace.known_hosts();
    let host_keys = if let Some(lines) = executor.workspace.given_host_keys().await? {
        let text = format!("{}\n", lines.trim_end());
        fs::write(&known_hosts, text).map_err(|error| disk(&known_hosts, &error))?;
        HostKeys::Strict
    } else if ssh.known_hosts_secret.is_some() {
        // What was written before: the API is away.
        HostKeys::Strict
    } else {
        let work = &executor.work;
        carried::bring(
            &work.client,
            &work.namespace(),
            work.cluster(),
            &known_hosts,
        )
        .await?;
        HostKeys::AcceptNew
    };
    Ok(Options {
        access: Access {
            key: executor.workspace.key().await?,
            known_hosts,
            host_keys,
            bastion: executor.workspace.bastion(),
        },
        connect_timeout: ssh.connect_timeout.into(),
        login_timeout: LOGIN,
        oldest_python: release(executor)?.host_python(),
    })
}

fn release(executor: &KubesprayExecutor) -> Result<&'static catalogue::Release, Failure> {
    catalogue::release(executor.work.inputs.kubespray).map_err(|error| {
        let text = error.to_string();
        failure(FailureClass::Config, "UnknownRelease", text, None)
    })
}

/// The hosts as ssh reaches them.
pub(crate) fn targets<'a>(
    executor: &KubesprayExecutor,
    hosts: impl IntoIterator<Item = &'a HostName>,
) -> Vec<Target> {
    executor.work.inputs.targets(hosts)
}

fn pythons_file(executor: &KubesprayExecutor) -> PathBuf {
    executor.work.directory.join("pythons.json")
}

/// Interpreter discovery may pick a broken one; the probe's is known to work. A later runner reads it again.
fn remember_pythons(executor: &KubesprayExecutor, reports: &[Report]) -> std::io::Result<()> {
    let mut pythons = pythons(executor);
    for report in reports {
        if let Ok(facts) = &report.answer
            && let Some(python) = facts.python.as_ref().and_then(|path| path.parse().ok())
        {
            pythons.insert(report.host.to_string(), python);
        }
    }
    fs::write(pythons_file(executor), serde_json::to_vec(&pythons)?)
}

/// The Python of each host that the probe found.
pub(crate) fn pythons(executor: &KubesprayExecutor) -> BTreeMap<String, PythonPath> {
    fs::read(pythons_file(executor))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}
