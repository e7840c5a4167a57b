//! Hooks that are images: pods of the cluster that the run is of.
//!
//! The name of a pod is made of the run, the step and the host, so that the API itself keeps it from running twice at a time: a runner
//! that takes over from one that was killed finds the pod and goes on waiting. The kubelet ends a pod whose time is over, whether a
//! runner is there or not; one that no kubelet has taken has no such end, and the next hook of the cluster removes it. Tenants may see
//! these pods; what comes back of them, states and logs, is data of the cluster's.

use std::{collections::BTreeMap, time::Duration};

use ansible::playbook::failure_of_text;
use api::{
    HostName,
    hook::HookImage,
    run::{Failure, FailureClass, Step},
    text::plain,
};
use k8s_openapi::api::core::v1::{ContainerState, Namespace, Pod};
use kube::ResourceExt;
use runs::small_log;
use serde_json::{Value, from_value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use workflow::{Signal, StepContext, StepOutcome, StepProgress};

use crate::{
    action,
    hooks::HookInput,
    operation::RESET,
    runner::{
        drain::unanswered,
        executor::{KubesprayExecutor, failed, succeeded},
        work::{ClusterWork, PATIENCE},
        workspace::{disk, failure},
    },
};

mod clear;
mod pods;

use self::{
    clear::{clear, telling},
    pods::Pods,
};

/// The namespace of pods that keep to the baseline of Kubernetes' Pod Security Standards.
const NAMESPACE: &str = "windlass-hooks";
/// That of pods that share the network of their nodes, which the baseline forbids.
const ON_HOSTS: &str = "windlass-hooks-on-hosts";
/// How often pods are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long the API may refuse a pod in a row: it makes what a new namespace needs in a moment.
const REFUSING: Duration = Duration::from_secs(30);
/// The annotation of a pod that names its run.
const RUN: &str = "windlass.dev/run";

/// One pod of a step.
struct Wanted {
    /// Its host; none: the scheduler chooses.
    host: Option<HostName>,
    pod: Pod,
    /// That of the pod that was made, or seen first: another one of its name is not the step's.
    uid: Option<String>,
    /// What the kubelet last said of a pull that failed.
    pull: Option<String>,
    end: Option<Result<(), Failure>>,
    /// Whether what it said is in the log of the step.
    told: bool,
    /// Whether it was removed after the step.
    gone: bool,
}

impl Wanted {
    fn new(host: Option<HostName>, pod: Pod) -> Self {
        Self {
            host,
            pod,
            uid: None,
            pull: None,
            end: None,
            told: false,
            gone: false,
        }
    }

    fn place(&self) -> &str {
        self.host.as_ref().map_or("the pod", HostName::as_str)
    }
}

/// Runs the pods of a hook to their end.
pub(super) async fn run(
    executor: &KubesprayExecutor,
    (hook, image): (&HookInput, &HookImage),
    step: &Step,
    context: &StepContext,
) -> StepOutcome {
    let work = &executor.work;
    match is_without_cluster(work).await {
        Ok(true) => {
            return succeeded(Some(
                "nothing was done: the cluster was not built".to_owned(),
            ));
        }
        Ok(false) => {}
        Err(failure) => return failed(failure),
    }
    let left_out = action::hosts_left_out(&context.excluded);
    let hosts = action::hosts_of(work.plan.plan(), step);
    let mut places: Vec<Option<HostName>> = hosts
        .into_iter()
        .filter(|host| !left_out.contains(host))
        .map(Some)
        .collect();
    if hook.is_anywhere() {
        places.push(None);
    }
    let wanted = places.into_iter().map(|host| {
        let told = told_of(work, hook, step, host.as_ref());
        let pod = pod((hook, image), &told, host.as_ref());
        Wanted::new(host, pod)
    });
    let mut wanted: Vec<_> = wanted.collect();
    executor.proven().await;
    let ended = follow(executor, hook, step, context, &mut wanted).await;
    let left = clear(executor, step, context, &mut wanted).await;
    telling(ended.unwrap_or_else(|| concluded(&wanted)), &left)
}

/// Whether there is no cluster that a pod could run in, though its hosts are reset: it was never built.
async fn is_without_cluster(work: &ClusterWork) -> Result<bool, Failure> {
    if work.run.spec.operation != RESET.name {
        return Ok(false);
    }
    let found = work.kubeconfig(PATIENCE).await;
    found
        .map(|kubeconfig| kubeconfig.is_none())
        .map_err(|error| unanswered(crate::chain(&error)))
}

/// Makes the pods and waits for their ends. Some: the step ends otherwise.
async fn follow(
    executor: &KubesprayExecutor,
    hook: &HookInput,
    step: &Step,
    context: &StepContext,
    wanted: &mut [Wanted],
) -> Option<StepOutcome> {
    let deadline = Instant::now() + Duration::from(hook.timeout);
    let mut refusals = Refusals::default();
    let mut before = Some(if context.interrupted {
        Before::OfOthers
    } else {
        Before::All
    });
    loop {
        if *context.signal.borrow() == Signal::Stop {
            return Some(StepOutcome::Interrupted { detail: None });
        }
        let looked = match Pods::connect(&executor.work).await {
            Ok(pods) => round(executor, &pods, step, &mut before, wanted).await,
            Err(why) => Err(Trouble::Silent(why)),
        };
        let is_final = refusals.are_final(matches!(looked, Err(Trouble::Refused(_))));
        let trouble = match looked {
            Ok(waits) => waits,
            Err(Trouble::Refused(why)) if is_final => return Some(failed(failure_of_text(&why))),
            Err(Trouble::Refused(why) | Trouble::Silent(why)) => Some(why),
            Err(Trouble::Disk(failure)) => return Some(failed(failure)),
        };
        // None: every pod has ended.
        let trouble = trouble?;
        if Instant::now() >= deadline {
            return Some(failed(failure(
                FailureClass::Transient,
                "TimedOut",
                trouble,
                None,
            )));
        }
        let progress = StepProgress {
            activity: Some(plain(&trouble, 256)),
            ..StepProgress::default()
        };
        if context.reporter.progress(&step.id, progress).await.is_err() {
            return Some(StepOutcome::Interrupted { detail: None });
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Since when the API refuses in a row.
#[derive(Default)]
struct Refusals(Option<Instant>);

impl Refusals {
    /// Notes whether it refused just now, and says whether it has done so for too long.
    fn are_final(&mut self, refused: bool) -> bool {
        if !refused {
            self.0 = None;
            return false;
        }
        self.0.get_or_insert_with(Instant::now).elapsed() > REFUSING
    }
}

/// What is removed before the pods of an attempt are made.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Before {
    /// What other runs left.
    OfOthers,
    /// That, and the pods of an attempt before this one: that they have ended says nothing of this one.
    All,
}

/// Why a round came to nothing.
#[derive(Debug)]
enum Trouble {
    /// The API does not take what it is asked for.
    Refused(String),
    /// The API does not answer, or says nothing of what it was asked for.
    Silent(String),
    /// This machine does not write.
    Disk(Failure),
}

/// Looks at each pod that has not ended, makes those that are not there, and says what is waited for; nothing: all have ended.
async fn round(
    executor: &KubesprayExecutor,
    pods: &Pods,
    step: &Step,
    before: &mut Option<Before>,
    wanted: &mut [Wanted],
) -> Result<Option<String>, Trouble> {
    if let Some(what) = *before {
        pods.delete_of_other_runs(&executor.work.run.name_any())
            .await?;
        if what == Before::All {
            for one in wanted.iter() {
                remove(pods, one).await?;
            }
        }
        *before = None;
    }
    let mut waits = None;
    for one in wanted.iter_mut().filter(|one| one.end.is_none()) {
        let found = pods.get(&one.pod).await?;
        let why = match seen(&mut one.uid, found.as_ref()) {
            Seen::Missing => {
                one.uid = pods.make(&one.pod).await?.and_then(|pod| pod.uid());
                "its pod was made".to_owned()
            }
            Seen::Ending => "an earlier pod of it is ending".to_owned(),
            Seen::Lost(why) => {
                let why = format!("{}: {why}", one.place());
                one.end = Some(Err(failure_of_text(&why)));
                continue;
            }
            Seen::There(found) => match stand(found, &mut one.pull) {
                Stand::Waits(why) => why,
                Stand::Ended(end) => {
                    let last = keep_log(executor, pods, step, one).await?;
                    one.end = Some(end.map_err(|end| end.told(one.place(), &last)));
                    continue;
                }
            },
        };
        waits = Some(format!("{}: {why}", one.place()));
    }
    Ok(waits)
}

/// What is seen where a pod is to be.
#[derive(Debug)]
enum Seen<'a> {
    There(&'a Pod),
    /// It is not there yet.
    Missing,
    /// It is being deleted: one of an attempt before this one, or by somebody, which is told when it is gone.
    Ending,
    /// Somebody took it away.
    Lost(&'static str),
}

/// What is seen where a pod is to be; `uid` keeps which one was seen first.
fn seen<'a>(uid: &mut Option<String>, found: Option<&'a Pod>) -> Seen<'a> {
    match (uid.as_ref(), found) {
        (None, None) => Seen::Missing,
        (Some(_), None) => Seen::Lost("somebody deleted its pod"),
        (Some(uid), Some(found)) if found.uid().as_ref() != Some(uid) => {
            Seen::Lost("somebody replaced its pod")
        }
        (_, Some(found)) if found.metadata.deletion_timestamp.is_some() => Seen::Ending,
        (_, Some(found)) => {
            *uid = found.uid();
            Seen::There(found)
        }
    }
}

/// Writes what a pod said into the log of its step, and gives the last line.
async fn keep_log(
    executor: &KubesprayExecutor,
    pods: &Pods,
    step: &Step,
    one: &mut Wanted,
) -> Result<String, Trouble> {
    // A pod that never ran has none.
    let said = pods.log(&one.pod).await;
    one.told = said.is_ok();
    let said = said.unwrap_or_default();
    let name = format!("{}.log", step.id.replace('/', "__"));
    let path = executor.work.directory.join("logs").join(name);
    let mask = executor.workspace.mask();
    let mut last = String::new();
    for line in said.lines().filter(|line| !line.trim().is_empty()) {
        last = plain(&mask.apply(line), 1024);
        let line = format!("{}: {last}", one.place());
        small_log::append(&path, &line).map_err(|error| Trouble::Disk(disk(&path, &error)))?;
    }
    Ok(last)
}

/// Removes a pod of the step, or one of its name that an earlier attempt left.
async fn remove(pods: &Pods, one: &Wanted) -> Result<(), Trouble> {
    let uid = match &one.uid {
        Some(uid) => Some(uid.clone()),
        None => pods.get(&one.pod).await?.and_then(|found| found.uid()),
    };
    match uid {
        Some(uid) => pods.delete(&one.pod, uid).await,
        None => Ok(()),
    }
}

/// How the step ended, of whose pods each has ended.
fn concluded(wanted: &[Wanted]) -> StepOutcome {
    let failures = wanted.iter().filter_map(|one| match &one.end {
        Some(Err(failure)) => Some((one.host.as_ref(), failure)),
        _ => None,
    });
    let failures: Vec<_> = failures.collect();
    let Some((_, first)) = failures.first() else {
        return succeeded(None);
    };
    let more = match failures.len() {
        1 => String::new(),
        all => format!(" (and on {} more)", all - 1),
    };
    let hosts = failures.iter().filter_map(|(host, _)| *host);
    failed(Failure {
        message: format!("{}{more}", first.message),
        targets: hosts.map(Into::into).collect(),
        ..(*first).clone()
    })
}

/// How a pod stands.
#[derive(Debug)]
enum Stand {
    /// It has not ended, and what it waits for.
    Waits(String),
    /// It has.
    Ended(Result<(), End>),
}

/// How a pod ended badly.
#[derive(Debug)]
enum End {
    /// Its program did, or never began.
    Failed(String),
    /// Its time was over.
    Late,
}

impl End {
    fn told(self, place: &str, last: &str) -> Failure {
        match self {
            Self::Late => failure(
                FailureClass::Transient,
                "TimedOut",
                "its time is over".to_owned(),
                None,
            ),
            Self::Failed(why) if last.is_empty() => failure_of_text(&format!("{place}: {why}")),
            Self::Failed(why) => failure_of_text(&format!("{place}: {why}: {last}")),
        }
    }
}

/// How a pod stands, by what the API says of it. `pull` keeps why its image was not pulled, which the next state says no more.
fn stand(pod: &Pod, pull: &mut Option<String>) -> Stand {
    let Some(status) = &pod.status else {
        return Stand::Waits("its pod waits for a node".to_owned());
    };
    let mut containers = status.container_statuses.iter().flatten();
    let state = containers.find_map(|one| one.state.as_ref());
    match status.phase.as_deref() {
        Some("Succeeded") => return Stand::Ended(Ok(())),
        Some("Failed") if status.reason.as_deref() == Some("DeadlineExceeded") => {
            return Stand::Ended(Err(End::Late));
        }
        Some("Failed") => {
            let of_pod = [&status.reason, &status.message];
            let of_pod = of_pod.into_iter().flatten().map(String::as_str);
            let why = state.and_then(ended);
            let why = why.unwrap_or_else(|| of_pod.collect::<Vec<_>>().join(": "));
            return Stand::Ended(Err(End::Failed(plain(&why, 1024))));
        }
        _ => {}
    }
    if let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let message = waiting.message.as_deref().unwrap_or_default();
        let why = plain(&format!("{reason}: {message}"), 1024);
        match reason {
            "ErrImagePull" => *pull = Some(why.clone()),
            // By then it was tried twice.
            "ImagePullBackOff" => {
                return Stand::Ended(Err(End::Failed(pull.take().unwrap_or(why))));
            }
            "InvalidImageName" | "ErrImageNeverPull" | "CreateContainerConfigError" => {
                return Stand::Ended(Err(End::Failed(why)));
            }
            _ => {}
        }
        return Stand::Waits(why);
    }
    let conditions = status.conditions.iter().flatten();
    let mut unscheduled = conditions
        .filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    match unscheduled.next() {
        Some(condition) => {
            let why = condition.message.as_deref().unwrap_or_default();
            Stand::Waits(plain(&format!("no node takes its pod: {why}"), 512))
        }
        None if state.is_some() => Stand::Waits("its pod runs".to_owned()),
        None => Stand::Waits("its pod waits for its node".to_owned()),
    }
}

/// What is said of a program that has ended.
fn ended(state: &ContainerState) -> Option<String> {
    let ended = state.terminated.as_ref()?;
    let words = [&ended.reason, &ended.message];
    let words = words.into_iter().flatten().filter(|word| *word != "Error");
    let words: Vec<_> = words.map(|word| word.trim()).collect();
    let code = format!("exit code {}", ended.exit_code);
    Some(match words.as_slice() {
        [] => code,
        words => format!("{code} ({})", words.join(": ")),
    })
}

/// What is told to a pod, and what makes its name.
struct Told {
    variables: BTreeMap<&'static str, String>,
    name: String,
    run: String,
}

fn told_of(work: &ClusterWork, hook: &HookInput, step: &Step, host: Option<&HostName>) -> Told {
    let at = super::at(hook, step);
    let host = host.map(ToString::to_string);
    let run = work.run.name_any();
    let mut variables = BTreeMap::from([
        ("WINDLASS_CLUSTER", work.cluster().to_owned()),
        ("WINDLASS_HOOK", hook.name.clone()),
        ("WINDLASS_OPERATION", work.run.spec.operation.clone()),
        ("WINDLASS_RUN", run.clone()),
        ("WINDLASS_STEP", at),
    ]);
    let uid = work.run.uid().unwrap_or_default();
    let whose = format!(
        "{uid}\n{}\n{}",
        step.id,
        host.as_deref().unwrap_or_default()
    );
    variables.extend(host.map(|host| ("WINDLASS_HOST", host)));
    let digest = hex::encode(Sha256::digest(whose));
    Told {
        variables,
        name: format!("{}-{}", hook.name, digest.get(..12).unwrap_or_default()),
        run,
    }
}

/// The pod of a hook: with as few rights as a pod can have, on one host or wherever there is room.
fn pod((hook, image): (&HookInput, &HookImage), told: &Told, host: Option<&HostName>) -> Pod {
    let on_hosts = image.host_network.unwrap_or_default();
    let own = told
        .variables
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}));
    let theirs = image.env.iter().flatten();
    let theirs =
        theirs.map(|variable| json!({"name": variable.name, "value": plainly(&variable.value)}));
    let tolerations = match host {
        Some(_) => json!([{"operator": "Exists"}]),
        None => json!([{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]),
    };
    let mut spec = json!({
        "restartPolicy": "Never",
        "activeDeadlineSeconds": hook.timeout.seconds(),
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": tolerations,
        "containers": [{
            "name": "hook", "image": image.name, "imagePullPolicy": "IfNotPresent",
            "env": own.chain(theirs).collect::<Vec<_>>(),
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        }],
    });
    let container = &mut spec["containers"][0];
    for (field, words) in [("command", &image.command), ("args", &image.args)] {
        if let Some(words) = words {
            let words = words.iter().map(|word| plainly(word));
            container[field] = words.collect::<Vec<_>>().into();
        }
    }
    if let Some(host) = host {
        spec["nodeName"] = host.as_str().into();
    }
    if on_hosts {
        spec["hostNetwork"] = true.into();
        spec["dnsPolicy"] = "ClusterFirstWithHostNet".into();
    }
    let pod: Value = json!({
        "metadata": {
            "name": told.name,
            "namespace": if on_hosts { ON_HOSTS } else { NAMESPACE },
            "labels": {"app.kubernetes.io/managed-by": "windlass", "windlass.dev/hook": hook.name},
            "annotations": {RUN: told.run},
        },
        "spec": spec,
    });
    from_value(pod).unwrap_or_default()
}

/// A word in which the kubelet puts no variable in place of `$(NAME)`.
fn plainly(word: &str) -> String {
    word.replace('$', "$$")
}

/// The namespace of pods, with what Pod Security Admission lets in.
fn namespace_of(name: &str) -> Namespace {
    let level = if name == ON_HOSTS {
        "privileged"
    } else {
        "baseline"
    };
    let namespace = json!({"metadata": {"name": name, "labels": {
        "app.kubernetes.io/managed-by": "windlass",
        "pod-security.kubernetes.io/enforce": level,
    }}});
    from_value(namespace).unwrap_or_default()
}

#[cfg(test)]
mod tests;
