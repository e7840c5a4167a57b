//! How pods stand, in words, and what they said last.

use std::collections::BTreeSet;

use api::run::Failure;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{ContainerStatus, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, LogParams, Preconditions},
};
use percent_encoding::percent_decode_str;
use runs::calls::call;

use crate::{
    audit,
    engine::{
        Of, Worker,
        account::{NEXT, NEXT_IDENTITY},
        objects::gone,
    },
    names,
};

/// How many lines of a log are told.
const LINES: usize = 20;
/// How many are told of a pod that is waited for.
const LAST: usize = 2;
/// After how long a pod is late, in seconds. One whose image is on its node serves within some.
const LATE: i64 = 30;
/// How many are read: what is secret may have many, and is known as a whole.
const READ: i64 = 400;
/// How much is read.
const LONGEST: i64 = 256 * 1024;
/// What is shorter stands in any text.
const SHORTEST: usize = 8;

impl Worker {
    /// How the pods with these labels stand, for people.
    pub(super) async fn pods(&self, labels: &str) -> Result<String, Failure> {
        let pods = self.list(labels).await?;
        let words: Vec<_> = pods.iter().filter_map(stands).collect();
        Ok(match words.first() {
            Some(first) => first.clone(),
            None if pods.is_empty() => "no pod yet".to_owned(),
            None => "its pod starts".to_owned(),
        })
    }

    /// How the pods stand that are to serve; where one should by now, with what it said last: that names what it waits for.
    pub(super) async fn pods_and_words(
        &self,
        labels: &str,
        secrets: &BTreeSet<String>,
    ) -> Result<String, Failure> {
        let stands = self.pods(labels).await?;
        let newest = self.newest(labels).await;
        let Some(late) = newest.filter(|pod| is_late(pod, Timestamp::now())) else {
            return Ok(stands);
        };
        let words = self.last_words(labels, secrets).await;
        let lines: Vec<_> = words.lines().collect();
        let last = lines.len().saturating_sub(LAST);
        let last = lines.get(last..).unwrap_or_default().join("; ");
        // What is told while it is waited for is short.
        let last: Vec<_> = last.split_whitespace().collect();
        Ok(format!(
            "pod {} does not serve, and said last: {}",
            late.name_any(),
            last.join(" ")
        ))
    }

    /// A pod with these labels that runs and is none of this Job.
    pub(super) async fn at_work(&self, labels: &str, job: &str) -> Result<Option<String>, Failure> {
        let pods = self.list(labels).await?;
        let mut others = pods.iter().filter(|pod| {
            let of = pod.labels().get("batch.kubernetes.io/job-name");
            of.is_some_and(|of| of != job)
        });
        let runs = |pod: &&Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_ref());
            phase.is_some_and(|phase| phase == "Running")
        };
        Ok(others.find(runs).map(ResourceExt::name_any))
    }

    /// The end of the log of the newest pod, without what is secret. That there is none is no failure of its own.
    pub(super) async fn last_words(&self, labels: &str, secrets: &BTreeSet<String>) -> String {
        let Some(pod) = self.newest(labels).await else {
            return "its pods are gone".to_owned();
        };
        let parameters = LogParams {
            tail_lines: Some(READ),
            limit_bytes: Some(LONGEST),
            ..LogParams::default()
        };
        let Ok(secrets) = self.known_secrets(secrets).await else {
            return "it is not told, since what is secret in it is not known".to_owned();
        };
        match self.every_pod().logs(&pod.name_any(), &parameters).await {
            Ok(log) => end_of(&log, &masks(&secrets)),
            Err(error) => controller::chain(&error),
        }
    }

    /// The log of the newest pod, of those that are given nothing secret. Nothing where it is gone.
    pub(super) async fn log(&self, labels: &str) -> Result<String, Failure> {
        let Some(pod) = self.newest(labels).await else {
            return Ok(String::new());
        };
        let parameters = LogParams {
            limit_bytes: Some(256 * 1024),
            ..LogParams::default()
        };
        let log = self.every_pod().logs(&pod.name_any(), &parameters).await;
        log.map_err(|error| call("read the log of a pod", &error))
    }

    /// Ends the pods of a set that keep others from taking their place: Kubernetes waits until they are ready, which they are not in the form
    /// of before, and nobody else ends them.
    pub(super) async fn end_stuck(&self, set: &StatefulSet, labels: &str) -> Result<(), Failure> {
        for pod in self
            .list(labels)
            .await?
            .iter()
            .filter(|pod| is_stuck(set, pod))
        {
            let name = pod.name_any();
            let as_seen = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: pod.uid(),
                    resource_version: pod.resource_version(),
                }),
                ..DeleteParams::default()
            };
            self.about(&audit::removed(&audit::object("Pod", &name)))?;
            match gone(self.every_pod().delete(&name, &as_seen).await) {
                // It has changed since, and may be ready by now.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                deleted => {
                    deleted.map_err(|error| call(format!("delete pod {name}"), &error))?;
                }
            }
        }
        Ok(())
    }

    async fn newest(&self, labels: &str) -> Option<Pod> {
        let pods = self.list(labels).await.unwrap_or_default();
        pods.into_iter()
            .max_by_key(|pod| pod.metadata.creation_timestamp.clone())
    }

    fn every_pod(&self) -> Api<Pod> {
        Api::namespaced(self.work.client.clone(), &self.namespace())
    }

    /// What must not be told: all values of the service's Secrets and of those that something gets beside them.
    async fn known_secrets(&self, further: &BTreeSet<String>) -> Result<Vec<Vec<u8>>, kube::Error> {
        // By their names: one that a person brought has no label.
        let mut further = further.clone();
        if let Of::Service(of) = &self.of {
            further.extend(of.0.messaging.iter().map(|address| address.secret.clone()));
        }
        let own: BTreeSet<_> = match &self.of {
            Of::Service(of) => {
                let own = of.1.secret_words().chain([NEXT, NEXT_IDENTITY]);
                own.map(|word| names::secret(self.name(), word)).collect()
            }
            Of::Cloud(_) | Of::Seed(_) => BTreeSet::new(),
        };
        let mut values = Vec::new();
        for name in own.union(&further) {
            let found = self.secrets().get_opt(name).await?;
            let data = found.and_then(|secret| secret.data).into_iter().flatten();
            // What users of a service are called is no secret.
            let secret = data.filter(|(key, _)| key != "username" || !own.contains(name));
            values.extend(secret.map(|(_, value)| value.0));
        }
        Ok(values)
    }

    pub(super) async fn list(&self, labels: &str) -> Result<Vec<Pod>, Failure> {
        let found = self
            .every_pod()
            .list(&ListParams::default().labels(labels))
            .await;
        Ok(found.map_err(|error| call("list the pods", &error))?.items)
    }
}

/// In what forms a value may stand in a log: as it is, line by line, and in base64. The longest first, so that one within another leaves no
/// trace of it.
fn masks(values: &[Vec<u8>]) -> Vec<String> {
    let mut masks = BTreeSet::new();
    for value in values {
        masks.insert(STANDARD.encode(value));
        let text = String::from_utf8_lossy(value);
        let text = text.trim();
        masks.insert(STANDARD.encode(text));
        masks.insert(text.to_owned());
        masks.extend(text.lines().map(|line| line.trim().to_owned()));
        masks.extend(passwords(text));
    }
    let mut masks: Vec<_> = masks
        .into_iter()
        .filter(|mask| mask.len() >= SHORTEST)
        .collect();
    masks.sort_by_key(|mask| std::cmp::Reverse(mask.len()));
    masks
}

/// The passwords of an address, which may be of several servers: programs print one alone.
fn passwords(text: &str) -> Vec<String> {
    let Some((_, rest)) = text.split_once("://") else {
        return Vec::new();
    };
    let users = rest.split(',').filter_map(|server| server.rsplit_once('@'));
    let passwords = users.filter_map(|(user, _)| user.split_once(':'));
    // As it is written, and as it is meant.
    let forms = passwords.flat_map(|(_, password)| {
        let meant = percent_decode_str(password).decode_utf8_lossy();
        [password.to_owned(), meant.into_owned()]
    });
    forms.collect()
}

/// The last lines of a log, blanked before anything is cut off.
fn end_of(log: &str, masks: &[String]) -> String {
    // What was not read to its end may end within something secret.
    let is_whole = i64::try_from(log.len()).is_ok_and(|length| length < LONGEST);
    let log = match log.rsplit_once('\n') {
        Some((whole, _)) if !is_whole => whole,
        None if !is_whole => "",
        _ => log,
    };
    let blanked = masks
        .iter()
        .fold(log.to_owned(), |log, mask| log.replace(mask, "***"));
    let lines: Vec<_> = blanked.lines().collect();
    let start = lines.len().saturating_sub(LINES);
    let end = lines.get(start..).unwrap_or_default().join("\n");
    // The cause stands at the end.
    let start = end.len().saturating_sub(1500);
    let start = (start..=end.len()).find(|at| end.is_char_boundary(*at));
    let end = end.get(start.unwrap_or_default()..);
    end.unwrap_or_default().to_owned()
}

/// Whether a pod of a set is of a form of before, and not ready.
fn is_stuck(set: &StatefulSet, pod: &Pod) -> bool {
    let status = set.status.as_ref();
    let is_seen = status.and_then(|status| status.observed_generation) >= set.metadata.generation;
    let newest = status.and_then(|status| status.update_revision.as_ref());
    let own = pod.labels().get("controller-revision-hash");
    let conditions = pod.status.iter().flat_map(|status| &status.conditions);
    let mut conditions = conditions.flatten();
    let is_ready = conditions.any(|found| found.type_ == "Ready" && found.status == "True");
    is_seen
        && newest.is_some()
        && own.is_some()
        && own != newest
        && !is_ready
        && pod.metadata.deletion_timestamp.is_none()
}

/// Whether a pod should serve by now: it died once, or has had the time.
fn is_late(pod: &Pod, now: Timestamp) -> bool {
    let Some(status) = &pod.status else {
        return false;
    };
    let containers = || status.container_statuses.iter().flatten();
    let has_died = containers().any(|container| container.restart_count > 0);
    let state = |container: &ContainerStatus| container.state.clone().unwrap_or_default();
    let runs = containers().any(|container| state(container).running.is_some());
    let since = status.start_time.as_ref();
    let has_time = since.is_some_and(|since| now.as_second() - since.0.as_second() > LATE);
    has_died || (runs && has_time)
}

/// What keeps a pod, if anything does.
fn stands(pod: &Pod) -> Option<String> {
    let name = pod.name_any();
    let status = pod.status.as_ref()?;
    let mut containers = status.container_statuses.iter().flatten();
    if let Some(why) = containers.find_map(waits) {
        return Some(format!("pod {name}: {why}"));
    }
    let mut conditions = status.conditions.iter().flatten();
    let unscheduled = conditions
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    if let Some(condition) = unscheduled {
        let why = condition.message.as_deref().unwrap_or_default();
        return Some(format!("pod {name} has no node: {why}"));
    }
    let phase = status.phase.as_deref().unwrap_or("Unknown");
    Some(format!("pod {name} is {phase}"))
}

fn waits(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref()?;
    let last = container.last_state.as_ref();
    let died = |state: &k8s_openapi::api::core::v1::ContainerState| {
        let ended = state.terminated.as_ref()?;
        Some(format!(
            "{} with exit code {}",
            ended.reason.as_deref().unwrap_or("ended"),
            ended.exit_code
        ))
    };
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref().unwrap_or("Waiting");
        let message = waiting.message.as_deref().unwrap_or_default();
        let before = last.and_then(died).map(|died| format!(" ({died})"));
        return Some(format!("{reason} {message}{}", before.unwrap_or_default()));
    }
    died(state).filter(|_| {
        state
            .terminated
            .as_ref()
            .is_some_and(|ended| ended.exit_code != 0)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_late_that_died_or_does_not_serve_in_time() {
        let now: Timestamp = "2026-11-28T10:01:00Z".parse().unwrap();
        for (since, restarts, state, late) in [
            ("2026-11-28T10:00:50Z", 0, "running", false),
            ("2026-11-28T10:00:50Z", 1, "waiting", true),
            ("2026-11-28T10:00:10Z", 0, "running", true),
            // One that never ran has said nothing.
            ("2026-11-28T10:00:10Z", 0, "waiting", false),
        ] {
            let container = json!({
                "name": "a", "image": "a", "imageID": "a", "ready": false, "restartCount": restarts, "state": {state: {}},
            });
            let pod = json!({"metadata": {}, "status": {"startTime": since, "containerStatuses": [container]}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(is_late(&pod, now), late, "{since} {restarts} {state}");
        }
        assert!(!is_late(&Pod::default(), now));
    }

    #[test]
    fn a_pod_that_never_was_ready_makes_way_for_one_of_the_newest_form() {
        let set = |revision: &str, seen: i64| -> StatefulSet {
            serde_json::from_value(json!({
                "metadata": {"generation": 2}, "status": {"replicas": 1, "observedGeneration": seen, "updateRevision": revision},
            }))
            .unwrap()
        };
        let pod = |revision: &str, ready: &str, going: Option<&str>| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"labels": {"controller-revision-hash": revision}, "deletionTimestamp": going},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };
        assert!(is_stuck(&set("b", 2), &pod("a", "False", None)));
        let stays = |set: &StatefulSet, pod: &Pod| {
            assert!(!is_stuck(set, pod), "{set:?} {pod:?}");
        };
        stays(&set("b", 2), &pod("a", "True", None));
        stays(&set("b", 2), &pod("b", "False", None));
        let going = pod("a", "False", Some("2026-11-28T10:00:00Z"));
        stays(&set("b", 2), &going);
        // What is newest is not known yet.
        stays(&set("b", 1), &pod("a", "False", None));
        stays(&StatefulSet::default(), &pod("a", "False", None));
        stays(&set("b", 2), &Pod::default());
    }

    #[test]
    fn the_passwords_of_an_address_are_secret_alone_too() {
        let address = "rabbit://cloud:hunter22-a@one:5672,cloud:hunter22%23b@two:5672/cloud";
        let masks = masks(&[address.as_bytes().to_vec()]);
        let log = format!("{address}\nhunter22-a, hunter22%23b and hunter22#b at one:5672\n");
        let told = end_of(&log, &masks);
        assert!(
            !told.contains("hunter22") && told.contains("at one:5672"),
            "{told}"
        );
    }

    #[test]
    fn a_secret_stands_in_no_form_in_what_is_told() {
        let lines: Vec<_> = (0..30).map(|line| format!("secretline{line:02}")).collect();
        let key = format!("{}\n", lines.join("\n"));
        let values = [b"password-x\n".to_vec(), key.clone().into_bytes()];
        let masks = masks(&values);
        let encoded = [
            STANDARD.encode("password-x\n"),
            STANDARD.encode("password-x"),
        ];
        let log = format!(
            "{key}at https://u:password-x@host\n{}\nit failed\n",
            encoded.join(" ")
        );
        let told = end_of(&log, &masks);
        for secret in ["password-x", "secretline", &encoded[0], &encoded[1]] {
            assert!(!told.contains(secret), "{told}");
        }
        assert!(told.ends_with("it failed"), "{told}");
        // The whole key is one mask.
        assert_eq!(told.lines().count(), 4, "{told}");
        assert_eq!(
            end_of(&"a line\n".repeat(100), &masks).lines().count(),
            LINES
        );
        // What stops in the middle tells nothing of where it did.
        let most = usize::try_from(LONGEST).unwrap();
        let cut = format!("{}\npasswor", "x".repeat(most));
        assert!(!end_of(&cut, &masks).contains("passwor"));
        assert_eq!(end_of(&"password-".repeat(most), &masks), "");
    }
}
