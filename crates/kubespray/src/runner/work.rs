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

    /// The kubeconfig of the cluster, if it is stored. For so long an API is waited for that is away.
    pub(crate) async fn kubeconfig(
        &self,
        patience: Duration,
    ) -> Result<Option<Foreign>, away::Error<KubeconfigError>> {
        let namespace = self.namespace();
        let is_away = |error: &KubeconfigError| matches!(error, KubeconfigError::Api(why) if away::is_away(why));
        away::outlive(patience, is_away, || {
            secret::read_kubeconfig(&self.client, &namespace, self.cluster())
        })
        .await
    }

    /// The kubeconfig of the cluster, or why there is none. What looks again and again has no patience of its own: it must hear that it
    /// is to stop, and keep to its own time.
    pub(crate) async fn access(&self, patience: Duration) -> Result<Foreign, String> {
        let kubeconfig = self.kubeconfig(patience).await;
        let kubeconfig = kubeconfig.map_err(|error| crate::chain(&error))?;
        kubeconfig.ok_or_else(|| "the kubeconfig Secret is not there".to_owned())
    }
}
