//! What is asked of an operator: whether it lives and whether it is ready, by the cluster that it is a pod of, and how much there is.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use axum::{Router, extract::State, http::StatusCode, http::header, middleware, routing::get};
use controller::Metrics;
use futures::future::Either;
use kube::Client;
use tokio::net::TcpListener;

mod access;
pub(crate) mod advice;
pub(crate) mod tls;

/// How long the first lists may take when somebody asks whether they are there.
const READY: Duration = Duration::from_millis(500);

/// How many connections gather metrics at once. Each scraper keeps one.
const SCRAPERS: usize = 32;

/// How this process stands.
#[derive(Clone)]
pub(crate) struct Standing {
    leads: Arc<AtomicBool>,
    metrics: Metrics,
}

impl Standing {
    /// Of a process that stands by.
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self {
            leads: Arc::default(),
            metrics,
        }
    }

    /// From now on it works.
    pub(crate) fn lead(&self) {
        self.leads.store(true, Ordering::Relaxed);
    }

    fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }
}

/// Listens for probes; what is returned serves for as long as it is polled.
pub(crate) async fn probes(
    address: SocketAddr,
    standing: Standing,
) -> anyhow::Result<impl Future<Output = ()> + Send> {
    let listener = bind(address).await?;
    let router = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(ready))
        .with_state(standing);
    Ok(plain(listener, router))
}

/// Listens for whoever gathers metrics; what is returned, beside the address, serves for as long as it is polled.
///
/// The names and numbers that metrics tell are for everybody on the same machine, a pod, and for nobody else: another address
/// is served over TLS, to those whom the API server lets.
pub(crate) async fn metrics(
    address: SocketAddr,
    certificate: Option<PathBuf>,
    client: &Client,
    standing: &Standing,
) -> anyhow::Result<(SocketAddr, impl Future<Output = ()> + Send + use<>)> {
    let listener = bind(address).await?;
    let address = listener.local_addr().context("failed to listen")?;
    let router = Router::new()
        .route("/metrics", get(told))
        .with_state(standing.clone());
    if address.ip().is_loopback() {
        return Ok((address, Either::Left(plain(listener, router))));
    }
    let reviewed = middleware::from_fn_with_state(client.clone(), access::review);
    let certificate = tls::Certificate::new(certificate, address)?;
    let serving = tls::serve(listener, certificate, router.layer(reviewed), SCRAPERS);
    Ok((address, Either::Right(serving)))
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("failed to listen on {address}"))
}

async fn plain(listener: TcpListener, router: Router) {
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "probes and metrics are not served"
        );
    }
}

/// A replica that stands by is ready to take over; one that leads is when it has seen every object.
async fn ready(State(standing): State<Standing>) -> (StatusCode, &'static str) {
    if !standing.leads() {
        return (StatusCode::OK, "standing by");
    }
    match tokio::time::timeout(READY, standing.metrics.are_watches_ready()).await {
        Ok(true) => (StatusCode::OK, "leading"),
        _ => (
            StatusCode::SERVICE_UNAVAILABLE,
            "waiting for the first lists",
        ),
    }
}

async fn told(
    State(standing): State<Standing>,
) -> ([(header::HeaderName, &'static str); 1], String) {
    let mut text = standing.metrics.render();
    text.push_str(
        "# HELP windlass_leader Whether this replica works.\n# TYPE windlass_leader gauge\n",
    );
    text.push_str(&format!("windlass_leader {}\n", u8::from(standing.leads())));
    text.push_str("# HELP windlass_build_info The version of this program.\n# TYPE windlass_build_info gauge\n");
    text.push_str(&format!(
        "windlass_build_info{{version=\"{}\"}} 1\n",
        env!("CARGO_PKG_VERSION")
    ));
    if let Some(bytes) = resident() {
        text.push_str("# HELP process_resident_memory_bytes Resident memory.\n# TYPE process_resident_memory_bytes gauge\n");
        text.push_str(&format!("process_resident_memory_bytes {bytes}\n"));
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

/// From `/proc/self/status`, in bytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests;
