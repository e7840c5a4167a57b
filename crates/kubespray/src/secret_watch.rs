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

use futures::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    api::{WatchEvent, WatchParams},
    core::PartialObjectMeta,
    runtime::WatchStreamExt,
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

async fn tell(api: Api<Secret>, name: String, cluster: Key, changed: mpsc::UnboundedSender<Key>) {
    let mut events = std::pin::pin!(watch(api, &name).default_backoff());
    let mut known = None;
    while let Some(event) = events.next().await {
        let revision = match event {
            Ok(WatchEvent::Added(secret) | WatchEvent::Modified(secret)) => {
                secret.resource_version()
            }
            Ok(WatchEvent::Deleted(_)) => None,
            Ok(WatchEvent::Bookmark(_) | WatchEvent::Error(_)) => continue,
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
        // A watch that begins anew tells of what is known already.
        if known != revision {
            known = revision;
            // Nobody listens any more when the operator stops.
            let _ = changed.send(cluster.clone());
        }
    }
}

/// One Secret's watches, one after another.
///
/// Each begins without a revision, so that the server first tells of the Secret that is there. Other than a list this
/// needs no right but `watch`, and other than a streamed list every server has it: Kubernetes 1.33 refuses those.
fn watch(
    api: Api<Secret>,
    name: &str,
) -> impl Stream<Item = kube::Result<WatchEvent<PartialObjectMeta<Secret>>>> {
    let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
    stream::repeat(())
        .then(move |()| {
            let (api, parameters) = (api.clone(), parameters.clone());
            async move { api.watch_metadata(&parameters, "").await }
        })
        .try_flatten()
        .map(|event| match event {
            Ok(WatchEvent::Error(status)) => Err(kube::Error::Api(status)),
            event => event,
        })
}
