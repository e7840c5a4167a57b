//! A router over TLS, for strangers: few connections at a time, and none that keeps its place by silence.

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use axum::Router;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

/// How many connections are open at once; more wait. Each scraper keeps one.
const CONNECTIONS: usize = 32;

/// How long a handshake may take, or the head of a request, also of the next one on an open connection: scrapers come every
/// minute or more often.
const PATIENCE: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(90);

/// What waits for room again when the system gives no more connections.
const PAUSE: Duration = Duration::from_millis(200);

/// A certificate with its key.
pub(super) enum Certificate {
    /// Files that somebody else keeps, such as a Secret that is mounted.
    Kept(PathBuf),
    /// Made for this process.
    Own(Arc<ServerConfig>),
}

impl Certificate {
    /// That of `directory`, which is read once to tell early what is wrong with it; else a new one.
    pub(super) fn new(directory: Option<PathBuf>, address: SocketAddr) -> anyhow::Result<Self> {
        if let Some(directory) = directory {
            let certificate = Self::Kept(directory);
            certificate.config()?;
            return Ok(certificate);
        }
        let names = vec!["windlass-metrics".to_owned(), address.ip().to_string()];
        let made = rcgen::generate_simple_self_signed(names)
            .context("failed to make a certificate for /metrics")?;
        let key = made.signing_key.serialize_pem();
        Ok(Self::Own(config(
            made.cert.pem().as_bytes(),
            key.as_bytes(),
        )?))
    }

    fn config(&self) -> anyhow::Result<Arc<ServerConfig>> {
        match self {
            Self::Own(config) => Ok(Arc::clone(config)),
            Self::Kept(directory) => {
                let read = |name: &str| {
                    let file = directory.join(name);
                    fs::read(&file).with_context(|| format!("failed to read {}", file.display()))
                };
                config(&read("tls.crt")?, &read("tls.key")?)
            }
        }
    }
}

fn config(chain: &[u8], key: &[u8]) -> anyhow::Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<Vec<_>, _>>()
        .context("the certificate of /metrics is not in PEM form")?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .context("the key of the certificate of /metrics is not in PEM form")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("no version of TLS")?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("the certificate of /metrics and its key do not fit")?;
    Ok(Arc::new(config))
}

/// Serves for as long as it is polled.
pub(super) async fn serve(listener: TcpListener, certificate: Certificate, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection for /metrics was not accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Read anew for each connection, of which there are few: a certificate that was renewed serves at once.
        let config = match certificate.config() {
            Ok(config) => config,
            Err(error) => {
                tracing::warn!("{error:#}");
                continue;
            }
        };
        let router = router.clone();
        tokio::spawn(async move {
            connection(stream, TlsAcceptor::from(config), router).await;
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, router: Router) {
    let Ok(Ok(stream)) = timeout(PATIENCE, acceptor.accept(stream)).await else {
        return;
    };
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection for /metrics ended");
    }
}

#[cfg(test)]
mod tests;
