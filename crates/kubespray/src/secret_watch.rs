//! Secrets that clusters wait for: a cluster whose ssh key cannot be used goes on as soon as its Secret changes.
//!
//! Only the one Secret that a Cluster names is watched, by its name and for its metadata alone, and only for as long as its
//! key cannot be used. So the operator never lists the Secrets of a namespace and needs no right to, and a cluster at rest
//! costs no watch. A watch on all Secrets would be one instead of several, and would keep every Secret of every namespace
//! within this process's reach.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::playbooks::Key;

/// The Secrets that clusters wait for.
pub struct SecretWatch {
    client: Client,
    changed: mpsc::UnboundedSender<Key>,
    watched: Mutex<HashMap<Key, Vec<Watch>>>,
}

/// The watch on one Secret; it ends with the value.
struct Watch {
    secret: String,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SecretWatch {
    /// Watches nothing yet; tells `changed` of every cluster whose Secret appears, changes or goes.
    pub fn new(client: Client, changed: mpsc::UnboundedSender<Key>) -> Self {
        Self {
            client,
            changed,
            watched: Mutex::default(),
        }
    }

    /// Watches the Secrets that a cluster waits for, and no others any more.
    ///
    /// A Secret that is there is told of once when its watch begins: it may have come since it was looked at.
    pub fn follow(&self, cluster: &Key, secrets: &[&str]) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if secrets.is_empty() {
            watched.remove(cluster);
            return;
        }
        let watches = watched.entry(cluster.clone()).or_default();
        watches.retain(|watch| secrets.contains(&watch.secret.as_str()));
        for secret in secrets {
            if watches.iter().all(|watch| watch.secret != **secret) {
                watches.push(self.watch(cluster, secret));
            }
        }
    }

    fn watch(&self, cluster: &Key, secret: &str) -> Watch {
        let api = Api::namespaced(self.client.clone(), &cluster.0);
        let changed = self.changed.clone();
        let task = tokio::spawn(tell(api, secret.to_owned(), cluster.clone(), changed));
        let secret = secret.to_owned();
        Watch { secret, task }
    }
}

async fn tell(
    api: Api<PartialObjectMeta<Secret>>,
    name: String,
    cluster: Key,
    changed: mpsc::UnboundedSender<Key>,
) {
    // Streamed, the list needs no right but `watch`.
    let config = watcher::Config::default()
        .streaming_lists()
        .fields(&format!("metadata.name={name}"));
    let mut events = watcher(api, config).default_backoff().boxed();
    let mut known = None;
    while let Some(event) = events.next().await {
        let revision = match event {
            Ok(watcher::Event::Apply(secret) | watcher::Event::InitApply(secret)) => {
                secret.resource_version()
            }
            Ok(watcher::Event::Delete(_)) => None,
            Ok(watcher::Event::Init | watcher::Event::InitDone) => continue,
            Err(error) => {
                tracing::warn!(
                    namespace = cluster.0,
                    secret = name,
                    error = &error as &dyn std::error::Error,
                    "the watch on a Secret failed, trying again"
                );
                continue;
            }
        };
        // A watch that begins anew lists what is known already.
        if known != revision {
            known = revision;
            // Nobody listens any more when the operator stops.
            let _ = changed.send(cluster.clone());
        }
    }
}
