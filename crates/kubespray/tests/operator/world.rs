//! The reconcilers, the embedded API, and a runner that does nothing.

use std::{path::Path, time::Duration};

use api::{Cluster, ClusterNode, Run};
use controller::{Manager, Metrics, Shutdown, WatchesEnded, manager::Settings};
use k8s_openapi::api::{core::v1::Namespace, events::v1::Event};
use kapi::fault::{Fault, Faults};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use kubespray::Options;
use runs::{operator::Place, supervisor::Command};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::Layer;

pub const BUNDLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bundle");
pub const NAMESPACE: &str = "demo";
/// Does nothing, or dies while there is a file `ill` in the data directory.
const RUNNER: &str = r#"test ! -e "$4/ill" || { echo windlass: no memory; exit 7; }"#;

pub struct World {
    pub client: Client,
    /// As the operator reaches the API.
    pub faulty: Client,
    /// As `faulty`, for runners.
    pub of_runners: Client,
    shutdown: Shutdown,
    operator: JoinHandle<Result<(), WatchesEnded>>,
    pub data: tempfile::TempDir,
}

impl World {
    pub async fn start() -> Self {
        Self::behind(Faults::when(|_| None)).await
    }

    /// With faults between the operator and the API.
    pub async fn behind(faults: Faults) -> Self {
        let server = kapi::Server::in_memory(&api::custom_resource_definitions())
            .await
            .unwrap();
        let client = Client::new(server.router(), "default");
        let faulty = Client::new(faults.layer(server.router()), "default");
        // What the API refuses of a runner for what it says is refused again: it says less from then on.
        let faults = faults.without(Fault::Invalid);
        let of_runners = Client::new(faults.layer(server.router()), "default");
        let data = tempfile::tempdir().unwrap();
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
        Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let shutdown = Shutdown::default();
        let operator = operate(&faulty, data.path(), &shutdown);
        Self {
            client,
            faulty,
            of_runners,
            shutdown,
            operator,
            data,
        }
    }

    /// Ends the operator, and starts another one.
    pub async fn take_over(&mut self) {
        self.shutdown.trigger();
        (&mut self.operator).await.unwrap().unwrap();
        self.shutdown = Shutdown::default();
        self.operator = operate(&self.faulty, self.data.path(), &self.shutdown);
    }

    pub async fn apply<K>(&self, name: &str, object: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        self.all::<K>()
            .patch(
                name,
                &PatchParams::apply("test").force(),
                &Patch::Apply(&object),
            )
            .await
            .unwrap();
    }

    pub async fn delete<K>(&self, name: &str)
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        self.all::<K>()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// Waits until the cluster is gone.
    pub async fn until_gone(&self, name: &str) {
        let gone = await_condition(self.all(), name, |now: Option<&Cluster>| now.is_none());
        tokio::time::timeout(Duration::from_secs(10), gone)
            .await
            .unwrap()
            .unwrap();
    }

    pub fn all<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub async fn cluster(&self, name: &str, spec: Value) {
        let mut spec = spec;
        if spec.pointer("/kubespray/source").is_none() {
            spec["kubespray"]["source"] = json!({"path": BUNDLE});
        }
        self.apply::<Cluster>(
            name,
            json!({
                "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
                "metadata": {"name": name}, "spec": spec,
            }),
        )
        .await;
    }

    pub async fn node(&self, name: &str, kind: &str, address: &str) {
        self.apply::<ClusterNode>(
            name,
            json!({
                "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
                "metadata": {"name": name}, "spec": {"type": kind, "inventory": {"ansible_host": address}},
            }),
        )
        .await;
    }

    pub async fn three_nodes(&self) {
        self.node("master-1", "master", "10.0.0.1").await;
        self.node("worker-1", "worker", "10.0.0.2").await;
        self.node("worker-2", "worker", "10.0.0.3").await;
    }

    /// Waits until the cluster is as `wanted` says: far shorter than a stalled cluster waits by itself.
    pub async fn until(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&Cluster) -> bool,
    ) -> Cluster {
        let api = self.all::<Cluster>();
        let mut last = None;
        for _ in 0..400 {
            last = api.get_opt(name).await.unwrap();
            if let Some(cluster) = last.as_ref().filter(|cluster| wanted(cluster)) {
                return cluster.clone();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{what}: {:#?}", last.and_then(|cluster| cluster.status));
    }

    pub async fn run_until(&self, count: usize) -> Vec<Run> {
        for _ in 0..200 {
            let runs = self
                .all::<Run>()
                .list(&ListParams::default())
                .await
                .unwrap()
                .items;
            if runs.len() == count {
                return runs;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("there are not {count} runs");
    }

    /// Writes the status as a runner does.
    pub async fn run_status(&self, run: &Run, mut status: Value) {
        status["runner"] = json!({"id": "test"});
        let body = json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {"name": run.name_any()}, "status": status,
        });
        self.all::<Run>()
            .patch_status(
                &run.name_any(),
                &PatchParams::apply("windlass-runner").force(),
                &Patch::Apply(&body),
            )
            .await
            .unwrap();
    }

    pub async fn events(&self, reason: &str) -> Vec<String> {
        let events = self
            .all::<Event>()
            .list(&ListParams::default())
            .await
            .unwrap();
        events
            .items
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some(reason))
            .filter_map(|event| event.note)
            .collect()
    }
}

fn operate(
    client: &Client,
    data: &Path,
    shutdown: &Shutdown,
) -> JoinHandle<Result<(), WatchesEnded>> {
    let runner = Command {
        program: "/bin/sh".into(),
        arguments: ["-c", RUNNER, "runner"].map(Into::into).into(),
    };
    let options = Options {
        data_dir: data.to_owned(),
        runners: Place::Here(runs::Layout::new(data), runner),
        sources: ansible::source::Policy::person(),
    };
    let settings = Settings {
        namespace: None,
        concurrency: 4,
        metrics: Metrics::default(),
        shutdown: shutdown.clone(),
    };
    let mut manager = Manager::new(client.clone(), settings);
    kubespray::operate(&mut manager, options);
    tokio::spawn(manager.run())
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.trigger();
    }
}

pub fn condition<'a>(cluster: &'a Cluster, kind: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let status = cluster.status.as_ref()?;
    let condition = status.conditions.iter().find(|c| c.type_ == kind)?;
    Some((&condition.status, &condition.reason, &condition.message))
}

pub fn is(cluster: &Cluster, kind: &str, reason: &str) -> bool {
    condition(cluster, kind).is_some_and(|(status, is, _)| status == "True" && is == reason)
}
