//! Two embedded APIs that serve Cluster API's kinds, and ways to stop a command that talks to them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    extract::Request,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{Method, StatusCode};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use pivot::{Move, Patience};
use relocation::{Side, Summary};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The namespace that is moved.
pub(crate) const TEAM: &str = "team";
/// The namespace of the provider of infrastructure.
pub(crate) const SYSTEM: &str = "dev-system";

/// Group, kind, plural, and the label that makes all its objects move.
pub(crate) const KINDS: [(&str, &str, &str, &str); 18] = [
    ("cluster.x-k8s.io", "Cluster", "clusters", ""),
    ("cluster.x-k8s.io", "ClusterClass", "clusterclasses", ""),
    (
        "cluster.x-k8s.io",
        "MachineDeployment",
        "machinedeployments",
        "",
    ),
    ("cluster.x-k8s.io", "MachineSet", "machinesets", ""),
    ("cluster.x-k8s.io", "Machine", "machines", ""),
    (INFRASTRUCTURE, "DevCluster", "devclusters", ""),
    (
        INFRASTRUCTURE,
        "DevClusterTemplate",
        "devclustertemplates",
        "",
    ),
    (INFRASTRUCTURE, "DevMachine", "devmachines", ""),
    (
        INFRASTRUCTURE,
        "DevMachineTemplate",
        "devmachinetemplates",
        "",
    ),
    (
        INFRASTRUCTURE,
        "DevIdentity",
        "devidentities",
        "move-hierarchy",
    ),
    (INFRASTRUCTURE, "DevPool", "devpools", "move"),
    (
        "controlplane.cluster.x-k8s.io",
        "KubeadmControlPlane",
        "kubeadmcontrolplanes",
        "",
    ),
    (
        "bootstrap.cluster.x-k8s.io",
        "KubeadmConfig",
        "kubeadmconfigs",
        "",
    ),
    (
        "bootstrap.cluster.x-k8s.io",
        "KubeadmConfigTemplate",
        "kubeadmconfigtemplates",
        "",
    ),
    (
        "addons.cluster.x-k8s.io",
        "ClusterResourceSet",
        "clusterresourcesets",
        "",
    ),
    (
        "addons.cluster.x-k8s.io",
        "ClusterResourceSetBinding",
        "clusterresourcesetbindings",
        "",
    ),
    ("clusterctl.cluster.x-k8s.io", "Provider", "providers", ""),
    ("example.com", "Note", "notes", ""),
];
pub(crate) const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

pub(crate) fn version(group: &str) -> &'static str {
    match group {
        "" | "example.com" => "v1",
        "clusterctl.cluster.x-k8s.io" => "v1alpha3",
        _ => "v1beta2",
    }
}

fn definition(group: &str, kind: &str, plural: &str, label: &str) -> Value {
    let mut labels = json!({});
    if group != "example.com" {
        labels["clusterctl.cluster.x-k8s.io"] = json!("");
        labels["cluster.x-k8s.io/v1beta2"] = json!("v1beta2");
    }
    if !label.is_empty() {
        labels[format!("clusterctl.cluster.x-k8s.io/{label}")] = json!("");
    }
    let scope = if kind == "DevIdentity" {
        "Cluster"
    } else {
        "Namespaced"
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "labels": labels},
        "spec": {
            "group": group, "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{
                "name": version(group), "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// The definitions, after `change` had a look at each.
pub(crate) fn definitions(change: impl Fn(&mut Value) -> bool) -> Vec<CustomResourceDefinition> {
    let all = KINDS
        .iter()
        .map(|(group, kind, plural, label)| definition(group, kind, plural, label));
    let kept = all.filter_map(|mut one| change(&mut one).then_some(one));
    kept.map(|one| serde_json::from_value(one).unwrap())
        .collect()
}

pub(crate) struct Sides {
    here: kapi::Server,
    there: kapi::Server,
}

impl Sides {
    pub(crate) async fn start() -> Self {
        Self::with(&definitions(|_| true)).await
    }

    pub(crate) async fn with(there: &[CustomResourceDefinition]) -> Self {
        Self {
            here: kapi::Server::in_memory(&definitions(|_| true))
                .await
                .unwrap(),
            there: kapi::Server::in_memory(there).await.unwrap(),
        }
    }

    pub(crate) fn here(&self) -> Client {
        Client::new(self.here.router(), "default")
    }

    pub(crate) fn there(&self) -> Client {
        Client::new(self.there.router(), "default")
    }

    pub(crate) async fn side_here(&self) -> Side {
        side(self.here()).await
    }

    pub(crate) async fn side_there(&self) -> Side {
        side(self.there()).await
    }

    /// That of the other side, which answers nothing after it was found.
    pub(crate) async fn side_there_once(&self) -> Side {
        let is_away = Arc::new(AtomicBool::new(false));
        let away = Arc::clone(&is_away);
        let answer = move |request: Request, next: Next| {
            let away = Arc::clone(&away);
            async move {
                if away.load(Ordering::SeqCst) {
                    return failure(StatusCode::SERVICE_UNAVAILABLE);
                }
                next.run(request).await
            }
        };
        let router = self.there.router();
        let found = side(Client::new(
            router.layer(axum::middleware::from_fn(answer)),
            "default",
        ))
        .await;
        is_away.store(true, Ordering::SeqCst);
        found
    }

    pub(crate) async fn carry_over(&self) -> pivot::Result<Summary> {
        carry_over(&self.side_here().await, &self.side_there().await).await
    }

    /// Moves until it has ended, or is stopped: then there is no answer.
    pub(crate) async fn carry_over_until(
        &self,
        stop: &Arc<Stop>,
    ) -> Option<pivot::Result<Summary>> {
        let source = side(stop.before(self.here.router(), HERE)).await;
        let target = side(stop.before(self.there.router(), THERE)).await;
        tokio::select! {
            moved = carry_over(&source, &target) => Some(moved),
            () = stop.stopped.notified() => None,
        }
    }

    /// Moves, and has something happen right before a write of the move is done.
    pub(crate) async fn carry_over_and(
        &self,
        write: Of,
        happens: impl AsyncFnOnce(),
    ) -> pivot::Result<Summary> {
        let stop = Stop::of(write, How::Held);
        let source = side(stop.before(self.here.router(), HERE)).await;
        let target = side(stop.before(self.there.router(), THERE)).await;
        let mut moved = Box::pin(carry_over(&source, &target));
        tokio::select! {
            early = &mut moved => panic!("it ended before the write: {early:?}"),
            () = stop.stopped.notified() => {}
        }
        happens().await;
        stop.go_on.notify_one();
        moved.await
    }

    /// Takes back until it has ended, or is stopped.
    pub(crate) async fn take_back_until(&self, stop: &Arc<Stop>) -> Option<pivot::Result<Summary>> {
        let source = side(stop.before(self.here.router(), HERE)).await;
        let target = side(stop.before(self.there.router(), THERE)).await;
        tokio::select! {
            back = pivot::take_back(&source, Some(&target), patience(), &|_| {}) => Some(back),
            () = stop.stopped.notified() => None,
        }
    }

    pub(crate) async fn take_back(&self) -> pivot::Result<Summary> {
        let (source, target) = (self.side_here().await, self.side_there().await);
        pivot::take_back(&source, Some(&target), patience(), &|_| {}).await
    }
}

async fn side(client: Client) -> Side {
    Side::find(client, TEAM).await.unwrap()
}

pub(crate) fn patience() -> Patience {
    Patience {
        settle: Duration::from_millis(200),
        gone: Duration::from_secs(20),
        look: Duration::from_millis(20),
    }
}

pub(crate) async fn carry_over(source: &Side, target: &Side) -> pivot::Result<Summary> {
    let this = Move::prepare(source, target, patience(), &|_| {}).await?;
    this.carry_over().await
}

/// Where a command is stopped, and how.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum How {
    /// The process ends before the write is done.
    KilledBefore,
    /// Every second write is done, and answered as if nobody had done it.
    Unheard,
    /// The write is refused, as an admission policy does.
    Refused,
    /// The write waits for something else to happen.
    Held,
}

/// The first write of a method to a path that ends so, on a side.
#[derive(Clone, Debug)]
pub(crate) struct Of(
    pub(crate) &'static str,
    pub(crate) Method,
    pub(crate) &'static str,
);

pub(crate) const HERE: &str = "here";
pub(crate) const THERE: &str = "there";

/// Stops a command at a write, by its number or by what it is.
pub(crate) struct Stop {
    at: usize,
    of: Option<Of>,
    how: How,
    writes: AtomicUsize,
    seen: AtomicUsize,
    stopped: Notify,
    go_on: Notify,
}

impl Stop {
    pub(crate) fn at(write: usize, how: How) -> Arc<Self> {
        Self::new(write, None, how)
    }

    pub(crate) fn of(write: Of, how: How) -> Arc<Self> {
        Self::new(usize::MAX, Some(write), how)
    }

    fn new(at: usize, of: Option<Of>, how: How) -> Arc<Self> {
        Arc::new(Self {
            at,
            of,
            how,
            writes: AtomicUsize::new(0),
            seen: AtomicUsize::new(0),
            stopped: Notify::new(),
            go_on: Notify::new(),
        })
    }

    /// Whether it is the write to stop at, by its number or by what it is.
    fn is_at(&self, number: usize, request: &Request, side: &str) -> bool {
        let Some(Of(of_side, method, path)) = &self.of else {
            return number == self.at;
        };
        let is_it =
            *of_side == side && request.method() == method && request.uri().path().ends_with(path);
        is_it && self.seen.fetch_add(1, Ordering::SeqCst) == 0
    }

    /// Whether the command came so far.
    pub(crate) fn was_reached(&self) -> bool {
        self.writes.load(Ordering::SeqCst) >= self.at
    }

    fn before(self: &Arc<Self>, router: axum::Router, side: &'static str) -> Client {
        let stop = Arc::clone(self);
        let watch = move |request: Request, next: Next| {
            let stop = Arc::clone(&stop);
            async move {
                let is_write = *request.method() != Method::GET
                    && !request.uri().path().contains("selfsubjectaccessreviews");
                if !is_write {
                    return next.run(request).await;
                }
                let write = stop.writes.fetch_add(1, Ordering::SeqCst) + 1;
                if stop.how == How::Unheard && write % 2 == 1 {
                    drop(next.run(request).await);
                    return failure(StatusCode::SERVICE_UNAVAILABLE);
                }
                if !stop.is_at(write, &request, side) {
                    return next.run(request).await;
                }
                if stop.how == How::Refused {
                    return failure(StatusCode::UNPROCESSABLE_ENTITY);
                }
                stop.stopped.notify_one();
                if stop.how == How::Held {
                    stop.go_on.notified().await;
                    return next.run(request).await;
                }
                std::future::pending().await
            }
        };
        Client::new(router.layer(axum::middleware::from_fn(watch)), "default")
    }
}

fn failure(code: StatusCode) -> Response {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code.as_u16(), "message": "not now, or never",
    });
    (code, axum::Json(status)).into_response()
}
