//! The pods of hooks in the API of their cluster.

use std::time::Duration;

use api::text::plain;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, LogParams, PostParams, Preconditions},
};

use super::{NAMESPACE, ON_HOSTS, Trouble, namespace_of};
use crate::{runner::work::ClusterWork, workload};

/// How long one answer of the API may take.
pub(super) const ANSWER: Duration = Duration::from_secs(10);
/// How much of the log of a pod is kept, in lines and bytes.
const LOG: (i64, i64) = (200, 64 * 1024);
/// What all pods of hooks have.
const OURS: &str = "app.kubernetes.io/managed-by=windlass,windlass.dev/hook";

/// Where the pods of hooks are.
pub(super) struct Pods(Client);

impl Pods {
    /// Those of the cluster that a run is of.
    pub(super) async fn connect(work: &ClusterWork) -> Result<Self, String> {
        workload::client(&work.access(Duration::ZERO).await?)
            .await
            .map(Self)
    }

    pub(super) async fn get(&self, pod: &Pod) -> Result<Option<Pod>, Trouble> {
        answered(self.beside(pod).get_opt(&pod.name_any())).await
    }

    /// Makes a pod, and its namespace where that is missing; nothing: it is there.
    pub(super) async fn make(&self, pod: &Pod) -> Result<Option<Pod>, Trouble> {
        let namespaces = Api::<Namespace>::all(self.0.clone());
        let namespace = namespace_of(&pod.namespace().unwrap_or_default());
        let parameters = PostParams::default();
        answered(made(namespaces.create(&parameters, &namespace))).await?;
        answered(made(self.beside(pod).create(&parameters, pod))).await
    }

    /// Deletes the pod of this UID, and none that somebody put in its place.
    pub(super) async fn delete(&self, pod: &Pod, uid: String) -> Result<(), Trouble> {
        let parameters = DeleteParams::default().preconditions(Preconditions {
            uid: Some(uid),
            resource_version: None,
        });
        answered(async {
            match self.beside(pod).delete(&pod.name_any(), &parameters).await {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
                answer => answer.map(drop),
            }
        })
        .await
    }

    /// Deletes what other runs left: of the runs of a cluster one is at work at a time.
    pub(super) async fn delete_of_other_runs(&self, run: &str) -> Result<(), Trouble> {
        for namespace in [NAMESPACE, ON_HOSTS] {
            let pods = Api::<Pod>::namespaced(self.0.clone(), namespace);
            let ours = ListParams::default().labels(OURS);
            let found = answered(pods.list(&ours)).await?.items;
            for pod in found.iter().filter(|pod| is_of_other_run(pod, run)) {
                self.delete(pod, pod.uid().unwrap_or_default()).await?;
            }
        }
        Ok(())
    }

    /// The end of what a pod has said.
    pub(super) async fn log(&self, pod: &Pod) -> Result<String, Trouble> {
        let parameters = LogParams {
            tail_lines: Some(LOG.0),
            limit_bytes: Some(LOG.1),
            ..LogParams::default()
        };
        answered(self.beside(pod).logs(&pod.name_any(), &parameters)).await
    }

    fn beside(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.0.clone(), &pod.namespace().unwrap_or_default())
    }
}

/// Whether another run made a pod, and nobody has deleted it.
pub(super) fn is_of_other_run(pod: &Pod, run: &str) -> bool {
    let whose = pod.annotations().get(super::RUN).map(String::as_str);
    whose != Some(run) && pod.meta().deletion_timestamp.is_none()
}

async fn answered<T>(asked: impl Future<Output = kube::Result<T>>) -> Result<T, Trouble> {
    match tokio::time::timeout(ANSWER, asked).await {
        Ok(answer) => answer.map_err(|error| trouble(&error)),
        Err(_) => Err(Trouble::Silent(
            "the API server does not answer within 10 s".to_owned(),
        )),
    }
}

/// What was made; nothing, if it was there.
async fn made<T>(asked: impl Future<Output = kube::Result<T>>) -> kube::Result<Option<T>> {
    match asked.await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
        answer => answer.map(Some),
    }
}

/// An API that is away, at its limit or broken says nothing of what it was asked for.
pub(super) fn trouble(error: &kube::Error) -> Trouble {
    let why = plain(&crate::chain(error), 512);
    let refuses = |code| (400..500).contains(&code) && !matches!(code, 408 | 429);
    match error {
        kube::Error::Api(status) if refuses(status.code) => Trouble::Refused(why),
        _ => Trouble::Silent(why),
    }
}
