//! A router over TLS, for strangers: few connections at a time, and none that keeps its place by silence.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

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

/// How long a handshake may take, or the head of a request, also of the next one on an open connection: scrapers come every
/// minute or more often.
const PATIENCE: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(90);

/// What waits for room again when the system gives no more connections.
const PAUSE: Duration = Duration::from_millis(200);

/// A certificate with its key.
pub(crate) enum Certificate {
    /// Files that somebody else keeps, such as a Secret that is mounted.
    Kept(Kept),
    /// Made for this process.
    Own(Arc<ServerConfig>),
}

/// Files, and what they were when they were read last.
pub(crate) struct Kept {
    chain: PathBuf,
    key: PathBuf,
    last: Mutex<Option<Read>>,
}

struct Read {
    chain: Vec<u8>,
    key: Vec<u8>,
    config: Arc<ServerConfig>,
}

impl Certificate {
    /// That of `directory`; else a new one.
    pub(super) fn new(directory: Option<PathBuf>, address: SocketAddr) -> anyhow::Result<Self> {
        if let Some(directory) = directory {
            return Self::of_files(directory.join("tls.crt"), directory.join("tls.key"));
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

    /// That of a file with the chain and of one with the key, which are read once to tell early what is wrong with them.
    pub(crate) fn of_files(chain: PathBuf, key: PathBuf) -> anyhow::Result<Self> {
        let kept = Kept::new(chain, key);
        kept.read()?;
        Ok(Self::Kept(kept))
    }

    /// The same of files that may come later: until then connections are refused, and it is logged why.
    pub(super) fn of_files_to_come(chain: PathBuf, key: PathBuf) -> Self {
        let kept = Kept::new(chain, key);
        if let Err(error) = kept.read() {
            tracing::warn!("no connection is served until the certificate is there: {error:#}");
        }
        Self::Kept(kept)
    }

    fn config(&self) -> anyhow::Result<Arc<ServerConfig>> {
        match self {
            Self::Own(config) => Ok(Arc::clone(config)),
            Self::Kept(kept) => kept.config(),
        }
    }
}

impl Kept {
    fn new(chain: PathBuf, key: PathBuf) -> Self {
        Self {
            chain,
            key,
            last: Mutex::default(),
        }
    }

    /// As the files are now. While they cannot be used, as between the writing of the one and of the other, the last that could.
    fn config(&self) -> anyhow::Result<Arc<ServerConfig>> {
        self.read().or_else(|error| {
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let last = last.as_ref().map(|last| Arc::clone(&last.config));
            last.inspect(|_| tracing::warn!("{error:#}; the last one goes on"))
                .ok_or(error)
        })
    }

    fn read(&self) -> anyhow::Result<Arc<ServerConfig>> {
        let read = |file: &PathBuf| {
            fs::read(file).with_context(|| format!("failed to read {}", file.display()))
        };
        let (chain, key) = (read(&self.chain)?, read(&self.key)?);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last
            .as_ref()
            .filter(|last| last.chain == chain && last.key == key)
        {
            return Ok(Arc::clone(&last.config));
        }
        let config = config(&chain, &key)
            .with_context(|| format!("failed to use {}", self.chain.display()))?;
        *last = Some(Read {
            chain,
            key,
            config: Arc::clone(&config),
        });
        Ok(config)
    }
}

fn config(chain: &[u8], key: &[u8]) -> anyhow::Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<Vec<_>, _>>()
        .context("the certificate is not in PEM form")?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .context("the key of the certificate is not in PEM form")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("no version of TLS")?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("the certificate and its key do not fit")?;
    Ok(Arc::new(config))
}

/// Serves for as long as it is polled, so many connections at once; more wait.
pub(crate) async fn serve(
    listener: TcpListener,
    certificate: Certificate,
    router: Router,
    connections: usize,
) {
    let places = Arc::new(Semaphore::new(connections));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Read anew for each connection: a certificate that was renewed serves at once.
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
        tracing::debug!(%error, "a connection ended");
    }
}

#[cfg(test)]
mod tests;
