//! TLS on loopback: an authority of our own, a server and a client certificate.
//!
//! The client certificate is the only credential. Without it every path but the health checks answers 401.

use std::{
    fs,
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::rest::request::Identity;

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
    /// When the first of them has to be made anew.
    due: Timestamp,
}

struct Pair {
    certificate: String,
    key: String,
}

impl Pair {
    /// When it has to be made anew: 30 days before its end.
    fn due(&self) -> Result<Timestamp, TlsError> {
        let error = |reason: &dyn std::fmt::Display| failed("certificate", reason);
        let der = CertificateDer::from_pem_slice(self.certificate.as_bytes())
            .map_err(|reason| error(&reason))?;
        let (_, certificate) =
            x509_parser::parse_x509_certificate(&der).map_err(|reason| error(&reason))?;
        let end = certificate.validity().not_after.timestamp();
        Timestamp::from_second(end.saturating_sub(RENEW_DAYS * 86_400))
            .map_err(|reason| error(&reason))
    }
}

impl Pki {
    /// Reads the certificates, and makes those that are missing or have less than 30 days to live.
    pub fn open(directory: &Path, now: Timestamp) -> Result<Self, TlsError> {
        let (authority, fresh) = pair(directory, "ca", false, now, |key| {
            self_signed(key, now).map_err(|e| failed("ca", &e))
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
        let (server, _) = pair(directory, "server", fresh, now, |key| {
            sign(server_params(now), key)
        })?;
        let (client, _) = pair(directory, "client", fresh, now, |key| {
            sign(client_params(now), key)
        })?;
        let due = [&authority, &server, &client]
            .into_iter()
            .map(Pair::due)
            .try_fold(Timestamp::MAX, |least, due| due.map(|due| least.min(due)))?;
        Ok(Self {
            due,
            authority: authority.certificate,
            server,
            client,
        })
    }

    /// Whether one of them has less than 30 days to live.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.due <= now
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

/// The user (common name) and groups (organisations) of a client certificate, as in Kubernetes.
pub(crate) fn identity(certificate: &CertificateDer<'_>) -> Option<Identity> {
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
    now: Timestamp,
    certify: impl FnOnce(&KeyPair) -> Result<String, TlsError>,
) -> Result<(Pair, bool), TlsError> {
    let certificate_path = directory.join(format!("{name}.crt"));
    let key_path = directory.join(format!("{name}.key"));
    if !renew && certificate_path.exists() && key_path.exists() {
        let certificate = read(&certificate_path)?;
        let key = read(&key_path)?;
        let pair = Pair { certificate, key };
        if pair
            .due()
            .map_err(|error| in_file(error, &certificate_path))?
            > now
        {
            return Ok((pair, false));
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

fn self_signed(key: &KeyPair, now: Timestamp) -> Result<String, rcgen::Error> {
    let mut params = authority_params();
    live(&mut params, now, AUTHORITY_DAYS);
    Ok(params.self_signed(key)?.pem())
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = name("windlass-ca", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn server_params(now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = name("windlass", None);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    live(&mut params, now, LEAF_DAYS);
    Ok(params)
}

fn client_params(now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = name("windlass-admin", Some("system:masters"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    live(&mut params, now, LEAF_DAYS);
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
fn live(params: &mut CertificateParams, now: Timestamp, days: i64) {
    let today = now.to_zoned(TimeZone::UTC).date();
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

fn in_file(error: TlsError, path: &Path) -> TlsError {
    match error {
        TlsError::Certificate { reason, .. } => failed(&path.display().to_string(), &reason),
        other => other,
    }
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
