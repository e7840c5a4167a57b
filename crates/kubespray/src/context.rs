//! What the reconcilers of this crate share.

use std::{path::PathBuf, sync::Arc, time::Duration};

use api::{Cluster, ClusterNode, Run};
use controller::Events;
use futures::FutureExt;
use kube::{Client, ResourceExt, core::DeserializeGuard, runtime::reflector::Store};
use runs::job::Template;

use crate::{health_book::HealthBook, layout::Layout, playbooks::PlaybookCache, radar::RadarBook};

/// The objects as they were seen last.
pub struct Stores {
    /// Clusters.
    pub clusters: Store<DeserializeGuard<Cluster>>,
    /// ClusterNodes.
    pub nodes: Store<DeserializeGuard<ClusterNode>>,
    /// Runs.
    pub runs: Store<DeserializeGuard<Run>>,
}

impl Stores {
    /// Whether each has been read once. Before that a cluster looks as if it had lost its hosts, or its runs.
    pub fn are_read(&self) -> bool {
        self.clusters.wait_until_ready().now_or_never().is_some()
            && self.nodes.wait_until_ready().now_or_never().is_some()
            && self.runs.wait_until_ready().now_or_never().is_some()
    }
}

/// How soon a pass is tried again that began before the stores were read.
pub const UNTIL_READ: Duration = Duration::from_millis(50);

/// What the reconcilers share.
pub struct Context {
    /// The API.
    pub client: Client,
    /// The data directory.
    pub layout: Layout,
    /// The objects as they were seen last.
    pub stores: Stores,
    /// Playbooks, brought in the background.
    pub playbooks: PlaybookCache,
    /// Health, probed in the background.
    pub health: HealthBook,
    /// How hosts stand against what the last run left on them, looked at in the background.
    pub radar: RadarBook,
    /// What runner pods are made after, where runners are pods.
    pub pods: Option<Arc<Template>>,
    /// Whether there is ssh beside the operator.
    pub logs_in: bool,
    /// Events.
    pub events: Events,
}

impl Context {
    /// Forgets what is remembered of a cluster.
    pub fn forget(&self, cluster: &Cluster) {
        let key = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        self.playbooks.forget(&key);
        self.health.forget(&key);
        self.radar.forget(&key);
    }
}

/// Why a pass over an object failed. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or did not answer.
    #[error("{operation}")]
    Api {
        /// What was tried.
        operation: &'static str,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// An object could not be applied.
    #[error("write an object")]
    Apply(#[source] controller::apply::Error),
    /// A run could not be steered.
    #[error("steer a run")]
    Control(#[source] runs::control::Error),
    /// A file could not be written or removed.
    #[error("change {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    /// An error of the API.
    pub fn api(operation: &'static str, source: kube::Error) -> Self {
        Self::Api {
            operation,
            source: Box::new(source),
        }
    }
}
