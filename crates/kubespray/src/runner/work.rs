//! What every part of the engine knows of a run.

use std::{ops::Deref, path::PathBuf, sync::Arc, time::Duration};

use ansible::source::Policy;
use controller::{away, kubeconfig::Foreign};
use runs::Work;

use crate::{
    inputs::Inputs,
    layout::Layout,
    secret::{self, KubeconfigError},
};

/// How long a step waits for the API that its run is kept in, which is away while its process is started again: less than the step that
/// stores the kubeconfig may take. One that may take less is ended by its own timeout.
pub(crate) const PATIENCE: Duration = Duration::from_secs(100);

/// The file of a run's directory with what its tasks did, one event a line.
pub const EVENTS: &str = "events.jsonl";
/// The file with the events before those, where they were many.
pub const FORMER_EVENTS: &str = "events-former.jsonl";

/// The file that says until when playbooks may work.
pub(super) fn leave_file(work: &Work) -> PathBuf {
    work.directory.join("leave")
}

/// What every part of the engine knows of a run.
pub(crate) struct ClusterWork {
    pub(crate) work: Arc<Work>,
    pub(crate) layout: Layout,
    pub(crate) inputs: Inputs,
    pub(crate) sources: Policy,
}

impl Deref for ClusterWork {
    type Target = Work;

    fn deref(&self) -> &Work {
        &self.work
    }
}

impl ClusterWork {
    pub(crate) fn cluster(&self) -> &str {
        self.work.subject()
    }

    /// The file that says until when playbooks may work.
    pub(crate) fn leave(&self) -> PathBuf {
        leave_file(&self.work)
    }

    /// What is kept of the cluster from run to run.
    pub(crate) fn cluster_directory(&self) -> PathBuf {
        self.layout.cluster(&self.namespace(), self.cluster())
    }

    /// The kubeconfig of the cluster, if it is stored.
    pub(crate) async fn kubeconfig(&self) -> Result<Option<Foreign>, KubeconfigError> {
        let namespace = self.namespace();
        let is_away = |error: &KubeconfigError| matches!(error, KubeconfigError::Api(why) if away::is_away(why));
        away::outlive(PATIENCE, is_away, || {
            secret::read_kubeconfig(&self.client, &namespace, self.cluster())
        })
        .await
    }
}
