//! How pods stand, in words, and what they said last.

use std::collections::BTreeSet;

use api::run::Failure;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, LogParams},
};
use runs::calls::call;

use crate::{
    engine::{Of, Worker, account::NEXT},
    names,
};

/// How many lines of a log are told.
const LINES: i64 = 20;

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
            tail_lines: Some(LINES),
            limit_bytes: Some(64 * 1024),
            ..LogParams::default()
        };
        let Ok(secrets) = self.known_secrets(secrets).await else {
            return "it is not told, since what is secret in it is not known".to_owned();
        };
        let log = self.every_pod().logs(&pod.name_any(), &parameters).await;
        let mut log = log.unwrap_or_else(|error| controller::chain(&error));
        for secret in secrets {
            log = log.replace(&secret, "***");
        }
        // The cause stands at the end.
        let start = log.len().saturating_sub(1500);
        let start = (start..=log.len()).find(|at| log.is_char_boundary(*at));
        log.get(start.unwrap_or_default()..)
            .unwrap_or_default()
            .to_owned()
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

    async fn newest(&self, labels: &str) -> Option<Pod> {
        let pods = self.list(labels).await.unwrap_or_default();
        pods.into_iter()
            .max_by_key(|pod| pod.metadata.creation_timestamp.clone())
    }

    fn every_pod(&self) -> Api<Pod> {
        Api::namespaced(self.work.client.clone(), &self.namespace())
    }

    /// What must not be told: all values of the service's Secrets and of those that something gets beside them, longest first, so that one
    /// within another is no trace of it.
    async fn known_secrets(&self, further: &BTreeSet<String>) -> Result<Vec<String>, kube::Error> {
        let Of::Service(of) = &self.of else {
            return Ok(Vec::new());
        };
        let words = of.1.secrets.iter().map(|secret| secret.name.as_str());
        let mut data = Vec::new();
        // By their names: one that a person brought has no label.
        let own = words
            .chain(["database", NEXT])
            .map(|word| names::secret(self.name(), word));
        let all: BTreeSet<_> = own.chain(further.iter().cloned()).collect();
        for name in all {
            let found = self.secrets().get_opt(&name).await?;
            data.extend(found.and_then(|secret| secret.data));
        }
        let values = data.into_iter().flatten();
        let mut values: Vec<_> = values
            .filter(|(key, _)| key != "username")
            .filter_map(|(_, value)| String::from_utf8(value.0).ok())
            .filter(|value| value.len() >= 8)
            .collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
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
