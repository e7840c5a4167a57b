//! TLS on loopback: an authority of our own, a server and a client certificate, and the loop that accepts.
//!
//! The client certificate is the only credential. Without it every path but the health checks answers 401.

use std::{
    fs,
    future::Future,
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{Router, body::Body, response::IntoResponse};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::Request;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::{failure::Failure, rest::request::Identity};

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A key or certificate cannot be made or understood.
    #[error("{what}: {reason}; remove the file, and the next start makes a new one")]
    Certificate {
        /// The file or step.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// The certificates of a data directory.
pub(crate) struct Pki {
    authority: String,
    server: Pair,
    client: Pair,
}

struct Pair {
    certificate: String,
    key: String,
}

impl Pki {
    /// Reads the certificates, and makes those that are missing or have less than 30 days to live.
    pub fn open(directory: &Path) -> Result<Self, TlsError> {
        let (authority, fresh) = pair(directory, "ca", false, |key| {
            self_signed(key).map_err(|e| failed("ca", &e))
        })?;
        let key = KeyPair::from_pem(&authority.key).map_err(|e| failed("ca.key", &e))?;
        let params = authority_params();
        let issuer = Issuer::from_params(&params, &key);
        let sign = |params: Result<CertificateParams, rcgen::Error>, key: &KeyPair| {
            params
                .and_then(|params| params.signed_by(key, &issuer))
                .map(|certificate| certificate.pem())
                .map_err(|error| failed("sign a certificate", &error))
        };
        let (server, _) = pair(directory, "server", fresh, |key| sign(server_params(), key))?;
        let (client, _) = pair(directory, "client", fresh, |key| sign(client_params(), key))?;
        Ok(Self {
            authority: authority.certificate,
            server,
            client,
        })
    }

    pub fn server_config(&self) -> Result<ServerConfig, TlsError> {
        let error = |reason: &dyn std::fmt::Display| failed("server certificate", reason);
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.authority.as_bytes()) {
            roots
                .add(certificate.map_err(|e| error(&e))?)
                .map_err(|e| error(&e))?;
        }
        // Named, and not the process default: several crates bring rustls, and who installs the default is not ours.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .map_err(|e| error(&e))?;
        let chain = CertificateDer::pem_slice_iter(self.server.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| error(&e))?;
        let key =
            PrivateKeyDer::from_pem_slice(self.server.key.as_bytes()).map_err(|e| error(&e))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| error(&e))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|e| error(&e))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// A kubeconfig with everything in it.
    pub fn kubeconfig(&self, address: SocketAddr) -> String {
        let encode = |text: &str| STANDARD.encode(text);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: windlass\n\
             clusters:\n- name: windlass\n  cluster:\n    server: https://{address}\n    certificate-authority-data: {}\n\
             contexts:\n- name: windlass\n  context: {{cluster: windlass, user: windlass, namespace: default}}\n\
             users:\n- name: windlass\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n",
            encode(&self.authority),
            encode(&self.client.certificate),
            encode(&self.client.key),
        )
    }
}

/// Accepts connections until `shutdown` is done.
pub(crate) async fn serve(
    listener: tokio::net::TcpListener,
    config: ServerConfig,
    router: Router,
    shutdown: impl Future<Output = ()> + Send,
) {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    // Dropped on return, which ends all connections: a watch would otherwise hold them open.
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => return,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                connections.spawn(connection(stream, acceptor.clone(), router.clone()));
            }
            Err(error) => {
                // Mostly too many open files: the next connection that ends makes room.
                tracing::warn!(%error, "accept");
                connections.join_next().await;
            }
        }
    }
}

async fn connection(stream: tokio::net::TcpStream, acceptor: TlsAcceptor, router: Router) {
    let stream = match acceptor.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "TLS handshake");
            return;
        }
    };
    let identity = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| identity(chain.first()?));
    let service = tower::service_fn(move |mut request: Request<hyper::body::Incoming>| {
        let router = router.clone();
        let identity = identity.clone();
        async move {
            let health = matches!(request.uri().path(), "/healthz" | "/livez" | "/readyz");
            match identity {
                Some(identity) => {
                    request.extensions_mut().insert(identity);
                }
                None if health => {}
                None => return Ok(Failure::unauthorized().into_response()),
            }
            router.oneshot(request.map(Body::new)).await
        }
    });
    let service = hyper_util::service::TowerToHyperService::new(service);
    let result = auto::Builder::new(TokioExecutor::new())
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .await;
    if let Err(error) = result {
        tracing::debug!(error, "connection");
    }
}

/// The user (common name) and groups (organisations) of a client certificate, as in Kubernetes.
fn identity(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let subject = certificate.subject();
    let user = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let mut groups: Vec<String> = subject
        .iter_organization()
        .filter_map(|name| name.as_str().ok().map(str::to_owned))
        .collect();
    groups.push("system:authenticated".into());
    Some(Identity { user, groups })
}

/// Reads a key pair, or makes it when it is missing, short-lived, or `renew` is set. Says whether it is new.
fn pair(
    directory: &Path,
    name: &str,
    renew: bool,
    certify: impl FnOnce(&KeyPair) -> Result<String, TlsError>,
) -> Result<(Pair, bool), TlsError> {
    let certificate_path = directory.join(format!("{name}.crt"));
    let key_path = directory.join(format!("{name}.key"));
    if !renew && certificate_path.exists() && key_path.exists() {
        let certificate = read(&certificate_path)?;
        if remaining_days(&certificate)
            .map_err(|e| failed(&certificate_path.display().to_string(), &e))?
            >= RENEW_DAYS
        {
            let key = read(&key_path)?;
            return Ok((Pair { certificate, key }, false));
        }
        tracing::info!(
            certificate = name,
            "renewed: it had less than {RENEW_DAYS} days left"
        );
    }
    let key = KeyPair::generate().map_err(|error| failed(name, &error))?;
    let pair = Pair {
        certificate: certify(&key)?,
        key: key.serialize_pem(),
    };
    for (path, text) in [
        (&key_path, &pair.key),
        (&certificate_path, &pair.certificate),
    ] {
        write_private(path, text.as_bytes()).map_err(|source| TlsError::File {
            path: path.clone(),
            source,
        })?;
    }
    Ok((pair, true))
}

fn remaining_days(pem: &str) -> Result<i64, String> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| e.to_string())?;
    let (_, certificate) =
        x509_parser::parse_x509_certificate(&der).map_err(|error| error.to_string())?;
    let end = certificate.validity().not_after.timestamp();
    Ok((end - Timestamp::now().as_second()) / 86_400)
}

fn self_signed(key: &KeyPair) -> Result<String, rcgen::Error> {
    let mut params = authority_params();
    live(&mut params, AUTHORITY_DAYS);
    Ok(params.self_signed(key)?.pem())
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = name("windlass-ca", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn server_params() -> Result<CertificateParams, rcgen::Error> {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = name("windlass", None);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    live(&mut params, LEAF_DAYS);
    Ok(params)
}

fn client_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = name("windlass-admin", Some("system:masters"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    live(&mut params, LEAF_DAYS);
    Ok(params)
}

fn name(common: &str, organisation: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    if let Some(organisation) = organisation {
        name.push(DnType::OrganizationName, organisation);
    }
    name
}

/// Valid from yesterday, for clocks that differ, for some days from now.
fn live(params: &mut CertificateParams, days: i64) {
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let on = |offset: i64| {
        let date = today.saturating_add(offset.days());
        let part = |number: i8| u8::try_from(number).unwrap_or(1);
        rcgen::date_time_ymd(i32::from(date.year()), part(date.month()), part(date.day()))
    };
    params.not_before = on(-1);
    params.not_after = on(days);
}

/// Writes a file that only its owner may read, all of it or nothing.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    if let Err(error) = fs::remove_file(&temporary)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

fn read(path: &Path) -> Result<String, TlsError> {
    fs::read_to_string(path).map_err(|source| TlsError::File {
        path: path.to_path_buf(),
        source,
    })
}

fn failed(what: &str, reason: &(impl std::fmt::Display + ?Sized)) -> TlsError {
    TlsError::Certificate {
        what: what.into(),
        reason: reason.to_string(),
    }
}

const AUTHORITY_DAYS: i64 = 3650;
const LEAF_DAYS: i64 = 365;
const RENEW_DAYS: i64 = 30;
