//! Why the runner of a Job does not come to work, in the words of Kubernetes.
//!
//! Asked, not watched, and only while a Job has no pod at work: a pod that cannot be made is told of by Events alone, and a
//! watch on those would bring every Event of the cluster. An operator at rest asks nothing.

use api::Run;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ContainerStateTerminated, ContainerStatus, Event, Pod, PodCondition},
};
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::{error::Error, manifest::RUN_LABEL};
use crate::obstacle::{Kind, Obstacle, last_words};

/// How long after its grace a pod that was told to end may still be there before its node counts as silent: kubelets tell of
/// themselves every ten seconds.
const SILENCE: SignedDuration = SignedDuration::from_secs(10);

/// The reason of a container that took more memory than it may.
const OUT_OF_MEMORY: &str = "OOMKilled";

/// How long an Event must last to count: the first moments of a pod may lack what comes by itself, as the certificates of a new
/// namespace do.
const LASTING: SignedDuration = SignedDuration::from_secs(5);

/// Looks for what keeps the runner of `job` from its work.
pub(super) async fn find(client: &Client, run: &Run, job: &Job) -> Result<Option<Obstacle>, Error> {
    let kind = &*run.spec.subject.kind;
    let newest = newest_pod(client, job).await?;
    let pod = newest.as_ref();
    let now = Timestamp::now();
    if let Some(obstacle) = pod.and_then(|pod| of_pod(kind, pod, now)) {
        return Ok(Some(obstacle));
    }
    let of = match pod {
        Some(pod) if waits_on_its_node(pod) => pod.uid(),
        Some(pod) if !has_ended(pod) => return Ok(None),
        _ => job.uid(),
    };
    let warnings = format!("involvedObject.uid={},type=Warning", of.unwrap_or_default());
    let events = Api::<Event>::namespaced(client.clone(), &job.namespace().unwrap_or_default())
        .list(&ListParams::default().fields(&warnings))
        .await
        .map_err(Error::api("list the Events of the runner's Job"))?;
    Ok(of_events(kind, job, pod, &events.items))
}

/// Looks how the last runner of `job`, which has ended, came to its end.
pub(super) async fn death(
    client: &Client,
    run: &Run,
    job: &Job,
) -> Result<Option<Obstacle>, Error> {
    let newest = newest_pod(client, job).await?;
    let kind = &run.spec.subject.kind;
    Ok(newest.as_ref().and_then(|pod| died(kind, pod)))
}

async fn newest_pod(client: &Client, job: &Job) -> Result<Option<Pod>, Error> {
    let labelled = ListParams::default().labels(&format!("{RUN_LABEL}={}", job.name_any()));
    let pods = Api::<Pod>::namespaced(client.clone(), &job.namespace().unwrap_or_default())
        .list(&labelled)
        .await
        .map_err(Error::api("list the runner's pods"))?;
    let uid = job.uid().unwrap_or_default();
    let own = |pod: &Pod| pod.owner_references().iter().any(|owner| owner.uid == uid);
    let own = pods.items.into_iter().filter(own);
    Ok(own.max_by_key(ResourceExt::creation_timestamp))
}

/// What a pod itself tells, of a runner of a subject of this kind.
fn of_pod(kind: &str, pod: &Pod, now: Timestamp) -> Option<Obstacle> {
    let name = pod.name_any();
    let node = node(pod);
    if let Some(due) = &pod.metadata.deletion_timestamp {
        let silent = now.duration_since(due.0) >= SILENCE && !has_ended(pod);
        return silent.then(|| Obstacle {
            kind: Kind::Lost,
            message: format!(
                "pod {name} was told to end, and its node {node} does not say that it has; if that machine is gone: \
                 kubectl delete node {node}"
            ),
        });
    }
    if phase(pod) != "Pending" {
        return died(kind, pod);
    }
    if let Some(why) = unschedulable(pod) {
        return Some(Obstacle {
            kind: Kind::Unschedulable,
            message: format!(
                "no node takes pod {name}: {why} What it asks for stands in the {kind}'s spec.runner: placement, resources, \
                 volumeClaimTemplate"
            ),
        });
    }
    let (container, state, why) = waiting(pod)?;
    let remedy = if state.contains("Image") {
        format!("see to the image's name, or to spec.runner.imagePullSecrets of the {kind}")
    } else {
        format!("kubectl describe pod {name} tells more")
    };
    Some(Obstacle {
        kind: Kind::NotStarted,
        message: format!(
            "container {container} of pod {name} does not start on node {node}: {state}: {why}; {remedy}"
        ),
    })
}

/// Why a pod ended, if it failed.
fn died(kind: &str, pod: &Pod) -> Option<Obstacle> {
    if phase(pod) != "Failed" || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let status = pod.status.as_ref()?;
    // What befell the pod as a whole says more than how its containers took it.
    let mut why = if let Some(reason) = &status.reason {
        format!(
            "{reason}: {}",
            status.message.as_deref().unwrap_or_default()
        )
    } else {
        let (container, end) = terminated(pod)?;
        format!("container {container}: {}", ending(end))
    };
    if why.contains(OUT_OF_MEMORY) {
        why.push_str(&format!(
            "; its memory is limited by the {kind}'s spec.runner.resources"
        ));
    }
    let name = pod.name_any();
    Some(Obstacle {
        kind: Kind::Died,
        message: format!("pod {name} died and is replaced: {why}"),
    })
}

/// How a container ended.
fn ending(end: &ContainerStateTerminated) -> String {
    let reason = end.reason.as_deref().unwrap_or("Error");
    let message = end.message.as_deref().unwrap_or_default();
    // Of a program that was at work the message is the end of its log.
    let said = match reason {
        "Error" | OUT_OF_MEMORY => last_words(message),
        _ => Some(message.trim()),
    };
    let said = said.map(|said| format!(": {said}")).unwrap_or_default();
    format!("{reason}, exit code {}{said}", end.exit_code)
}

/// What the Events of a Job tell, or those of its pod.
fn of_events(kind: &str, job: &Job, newest: Option<&Pod>, events: &[Event]) -> Option<Obstacle> {
    let event = events.iter().max_by_key(|event| seen(event))?;
    let at_work = newest.filter(|pod| !has_ended(pod));
    let since = match (at_work, newest) {
        (Some(pod), _) => placed(pod),
        // A pod that there was has shown that it can be made.
        (None, Some(pod)) => pod.creation_timestamp().map(|time| time.0),
        (None, None) => job.creation_timestamp().map(|time| time.0),
    };
    let lasts = seen(event).zip(since);
    if lasts.is_none_or(|(seen, since)| seen.duration_since(since) < LASTING) {
        return None;
    }
    let why = event.message.clone().unwrap_or_default();
    let reason = event.reason.clone().unwrap_or_default();
    match at_work {
        Some(pod) => Some(Obstacle {
            kind: Kind::NotStarted,
            message: format!(
                "pod {} does not start on node {}: {reason}: {why}",
                pod.name_any(),
                node(pod)
            ),
        }),
        None if reason == "FailedCreate" => {
            // The pod's name is another one at each try.
            let why = why
                .split_once(" is forbidden: ")
                .map_or(&*why, |(_, why)| why);
            Some(Obstacle {
                kind: Kind::NotCreated,
                message: format!(
                    "Kubernetes makes no pod for Job {}: {why}; change what the namespace allows, or the {kind}'s \
                     spec.runner",
                    job.name_any()
                ),
            })
        }
        None => None,
    }
}

fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Pending")
}

fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

fn waits_on_its_node(pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    node.is_some() && phase(pod) == "Pending" && pod.metadata.deletion_timestamp.is_none()
}

fn node(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.node_name.as_deref())
        .unwrap_or("<none>")
}

fn unschedulable(pod: &Pod) -> Option<&str> {
    let condition = scheduled(pod)?;
    let waits = condition.status == "False" && condition.reason.as_deref() == Some("Unschedulable");
    waits.then_some(condition.message.as_deref().unwrap_or_default())
}

/// When a pod got its node.
fn placed(pod: &Pod) -> Option<Timestamp> {
    let since = scheduled(pod)?.last_transition_time.as_ref()?;
    Some(since.0)
}

fn scheduled(pod: &Pod) -> Option<&PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == "PodScheduled")
}

/// The first container that waits for what does not come by itself: its name, the state it is in, and why.
fn waiting(pod: &Pod) -> Option<(&str, &str, &str)> {
    containers(pod).find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        (!matches!(reason, "ContainerCreating" | "PodInitializing")).then(|| {
            let why = waiting.message.as_deref().unwrap_or_default();
            (container.name.as_str(), reason, why)
        })
    })
}

/// The first container that ended badly, and its end.
fn terminated(pod: &Pod) -> Option<(&str, &ContainerStateTerminated)> {
    containers(pod).find_map(|container| {
        let end = container.state.as_ref()?.terminated.as_ref()?;
        (end.exit_code != 0).then_some((container.name.as_str(), end))
    })
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let lists = status.map(|status| [&status.init_container_statuses, &status.container_statuses]);
    lists.into_iter().flatten().flatten().flatten()
}

/// When an Event was seen last.
fn seen(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref();
    let last = series.and_then(|series| series.last_observed_time.as_ref());
    let times = [
        last.map(|time| time.0),
        event.last_timestamp.as_ref().map(|time| time.0),
        event.event_time.as_ref().map(|time| time.0),
    ];
    times.into_iter().flatten().max()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:01:00Z".parse().unwrap()
    }

    fn pod(spec: &Value, status: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "one", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [], "nodeName": spec["nodeName"]}, "status": status,
        }))
        .unwrap()
    }

    fn waits(reason: &str, message: &str) -> Value {
        let state = json!({"waiting": {"reason": reason, "message": message}});
        json!({"name": "runner", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state})
    }

    fn events(items: &[(&str, &str, &str)]) -> Vec<Event> {
        let event = |(reason, message, seen): &(&str, &str, &str)| {
            serde_json::from_value(json!({
                "metadata": {}, "involvedObject": {}, "reason": reason, "message": message,
                "lastTimestamp": seen,
            }))
        };
        items.iter().map(|item| event(item).unwrap()).collect()
    }

    fn job() -> Job {
        serde_json::from_value(json!({"metadata": {
            "name": "first-create-1", "creationTimestamp": "2026-01-01T00:00:00Z",
        }}))
        .unwrap()
    }

    #[test]
    fn a_pod_tells_why_it_does_not_start() {
        let placed = json!({"nodeName": "node-1"});
        let no_node = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available."},
        ]});
        let gated = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"},
        ]});
        let of = |list: &str, reason: &str| json!({"phase": "Pending", list: [waits("PodInitializing", ""), waits(reason, "no such image")]});
        for (spec, status, expected) in [
            (json!({}), json!({}), None),
            (
                json!({}),
                no_node,
                Some((
                    Kind::Unschedulable,
                    "0/3 nodes are available. What it asks for",
                )),
            ),
            (json!({}), gated, None),
            (
                placed.clone(),
                of("containerStatuses", "ContainerCreating"),
                None,
            ),
            (
                placed.clone(),
                of("containerStatuses", "ErrImagePull"),
                Some((
                    Kind::NotStarted,
                    "on node node-1: ErrImagePull: no such image; see to the image's name",
                )),
            ),
            (
                placed.clone(),
                of("initContainerStatuses", "CreateContainerConfigError"),
                Some((Kind::NotStarted, "no such image; kubectl describe pod one")),
            ),
            (placed, json!({"phase": "Running"}), None),
        ] {
            let found = of_pod("Widget", &pod(&spec, &status), now());
            assert_eq!(
                found.as_ref().map(|found| found.kind),
                expected.map(|(kind, _)| kind),
                "{status}: {found:?}"
            );
            if let (Some(found), Some((_, words))) = (found, expected) {
                assert!(found.message.contains(words), "{found:?}");
            }
        }
    }

    #[test]
    fn a_pod_that_died_tells_of_what() {
        let ended = |reason: &str, code: u8, message: &str| {
            let state =
                json!({"terminated": {"reason": reason, "exitCode": code, "message": message}});
            json!({"name": "runner", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state})
        };
        let log = "INFO at work\nwindlass: failed to find Run one\n";
        let failed = |state: Value| json!({"phase": "Failed", "containerStatuses": [state]});
        for (status, expected) in [
            (
                failed(ended("Error", 1, log)),
                Some("container runner: Error, exit code 1: failed to find Run one"),
            ),
            (
                failed(ended("Error", 101, "no word of ours")),
                Some("container runner: Error, exit code 101"),
            ),
            (
                failed(ended("OOMKilled", 137, "INFO at work")),
                Some(
                    "container runner: OOMKilled, exit code 137; its memory is limited by the Widget's \
                     spec.runner.resources",
                ),
            ),
            (
                failed(ended("StartError", 128, "no such file\n")),
                Some("container runner: StartError, exit code 128: no such file"),
            ),
            (
                json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}),
                Some("Evicted: The node was low on memory."),
            ),
            (json!({"phase": "Succeeded"}), None),
        ] {
            let found = of_pod("Widget", &pod(&json!({}), &status), now());
            let expected = expected.map(|why| Obstacle {
                kind: Kind::Died,
                message: format!("pod one died and is replaced: {why}"),
            });
            assert_eq!(found, expected, "{status}");
        }
    }

    #[test]
    fn a_pod_that_does_not_end_when_it_should_is_lost() {
        for (due, phase, expected) in [
            ("2026-01-01T00:00:50Z", "Running", Some(Kind::Lost)),
            ("2026-01-01T00:00:51Z", "Running", None),
            ("2026-01-01T00:00:50Z", "Failed", None),
        ] {
            let mut pod = pod(&json!({"nodeName": "node-1"}), &json!({"phase": phase}));
            pod.metadata.deletion_timestamp = serde_json::from_value(json!(due)).unwrap();
            let found = of_pod("Widget", &pod, now()).map(|found| found.kind);
            assert_eq!(found, expected, "{due} {phase}");
        }
    }

    #[test]
    fn the_newest_event_tells_why_there_is_no_pod() {
        let refused =
            "Error creating: pods \"first-create-1-x7k2p\" is forbidden: exceeded quota: none";
        let early = "2026-01-01T00:00:10Z";
        let items = events(&[
            ("FailedCreate", refused, "2026-01-01T00:00:30Z"),
            ("FailedCreate", "Error creating: another", early),
        ]);
        let found = of_events("Widget", &job(), None, &items).unwrap();
        assert_eq!(found.kind, Kind::NotCreated);
        // The same at each try.
        let words = "first-create-1: exceeded quota: none; change";
        assert!(found.message.contains(words), "{found:?}");

        let ended = pod(&json!({}), &json!({"phase": "Failed"}));
        for (reason, seen, expected) in [
            (
                "FailedCreate",
                "2026-01-01T00:00:05Z",
                Some(Kind::NotCreated),
            ),
            ("FailedCreate", "2026-01-01T00:00:04Z", None),
            ("BackoffLimitExceeded", early, None),
        ] {
            for newest in [None, Some(&ended)] {
                let items = events(&[(reason, refused, seen)]);
                let found = of_events("Widget", &job(), newest, &items).map(|found| found.kind);
                assert_eq!(found, expected, "{reason} {seen}");
            }
        }
        assert_eq!(of_events("Widget", &job(), None, &[]), None);
    }

    #[test]
    fn the_newest_event_of_a_pod_tells_what_its_node_lacks() {
        let placed = json!({"phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:40Z",
        }]});
        let placed = pod(&json!({"nodeName": "node-1"}), &placed);
        assert!(waits_on_its_node(&placed));
        let at_first = ("FailedMount", "no such volume", "2026-01-01T00:00:41Z");
        let before = ("FailedScheduling", "0/1 nodes", "2026-01-01T00:00:39Z");
        assert_eq!(
            of_events(
                "Widget",
                &job(),
                Some(&placed),
                &events(&[before, at_first])
            ),
            None
        );
        let still = ("FailedMount", "no such volume", "2026-01-01T00:00:46Z");
        let found = of_events("Widget", &job(), Some(&placed), &events(&[before, still])).unwrap();
        assert_eq!(found.kind, Kind::NotStarted);
        assert_eq!(
            found.message,
            "pod one does not start on node node-1: FailedMount: no such volume"
        );
    }
}
