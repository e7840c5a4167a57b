//! When the certificates of a cluster end, as its servers show them.
//!
//! A handshake with each server of a host's that speaks TLS: the API server, etcd, the kubelet. Nothing is sent over the connection
//! and nothing is trusted; a host may show what it likes, which is a date or nothing. No login is needed for it, so the operator
//! looks by itself, and sees what the cluster works with: not a file that nobody has read yet. What kubeadm keeps in files beside
//! (the kubeconfigs of the scheduler and the controller manager, the clients' certificates of the API server) it makes and renews
//! together with what the API server shows.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use api::{
    ClusterNode,
    node::{CertificateStatus, Role},
};
use controller::kubeconfig;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::{net::TcpStream, sync::Semaphore};
use tokio_rustls::TlsConnector;

use crate::{
    health::not_after,
    inputs::{Host, Inputs},
};

/// How long one handshake may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How many are under way at once.
const AT_ONCE: usize = 64;

/// What shows a certificate.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Part {
    /// The API server of a host.
    ApiServer,
    /// The etcd member of a host.
    Etcd,
    /// The kubelet of a host. One that kubespray installs signs it by itself, once, and nobody checks it.
    Kubelet,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ApiServer, Self::Etcd, Self::Kubelet];

    /// Its name, as its process is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::Etcd => "etcd",
            Self::Kubelet => "kubelet",
        }
    }
}

/// A server to look at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// The host.
    pub host: String,
    /// What it is.
    pub part: Part,
    /// Where the host may be reached: the first address that answers counts.
    pub addresses: Vec<String>,
    /// Its port.
    pub port: u16,
}

/// What servers showed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Served {
    /// When the look began; none: nobody looked.
    pub at: Option<Timestamp>,
    /// The ends of certificates by host and part, of those that answered.
    pub ends: BTreeMap<(String, Part), Timestamp>,
}

impl Served {
    /// What statuses tell of it.
    pub fn told(nodes: &[ClusterNode]) -> Self {
        let status = |node: &ClusterNode| {
            let status = node.status.as_ref()?;
            Some((node.name_any(), status.certificates.clone()))
        };
        let told = nodes.iter().filter_map(status).flat_map(|(host, told)| {
            told.into_iter().filter_map(move |told| {
                let mut parts = Part::ALL.into_iter();
                let part = parts.find(|part| part.name() == told.name)?;
                Some(((host.clone(), part), told.not_after.0))
            })
        });
        let ends: BTreeMap<_, _> = told.collect();
        Self {
            at: (!ends.is_empty()).then(Timestamp::now),
            ends,
        }
    }

    /// When the certificate ends that a server of a host showed.
    pub fn end(&self, host: &str, part: Part) -> Option<Timestamp> {
        self.ends.get(&(host.to_owned(), part)).copied()
    }

    /// Those of a host, as its status has them.
    pub fn of(&self, host: &str) -> Vec<CertificateStatus> {
        let shown = Part::ALL.into_iter().filter_map(|part| {
            Some(CertificateStatus {
                name: part.name().to_owned(),
                not_after: Time(self.end(host, part)?),
            })
        });
        shown.collect()
    }

    /// The first to end of what must not: a certificate that nobody checks is left out.
    pub fn first(&self) -> Option<(&str, Part, Timestamp)> {
        let checked = self
            .ends
            .iter()
            .filter(|((_, part), _)| *part != Part::Kubelet);
        let first = checked.min_by_key(|(_, end)| **end);
        first.map(|((host, part), end)| (host.as_str(), *part, *end))
    }
}

/// The servers of a cluster that is made of these hosts.
pub fn places(inputs: &Inputs) -> Vec<Place> {
    let api_server = port(inputs);
    let of = |host: &Host| {
        let has = |role| host.roles.contains(&role);
        let parts = [
            (has(Role::ControlPlane), Part::ApiServer, api_server),
            (has(Role::Etcd), Part::Etcd, 2379),
            (
                has(Role::ControlPlane) || has(Role::Worker),
                Part::Kubelet,
                10250,
            ),
        ];
        let variables = &host.variables;
        let addresses = [&variables.access_ip, &variables.ip].into_iter().flatten();
        let mut addresses: Vec<_> = addresses.cloned().collect();
        addresses.push(variables.ansible_host.clone());
        addresses.dedup();
        let name = host.name.clone();
        parts
            .into_iter()
            .filter(|(is_there, ..)| *is_there)
            .map(move |(_, part, port)| Place {
                host: name.clone(),
                part,
                addresses: addresses.clone(),
                port,
            })
    };
    inputs.hosts.iter().flat_map(of).collect()
}

/// The port of the API servers.
fn port(inputs: &Inputs) -> u16 {
    let port = inputs.variables.get("kube_apiserver_port");
    let port = port.and_then(|port| port.as_u64().or_else(|| port.as_str()?.parse().ok()));
    port.and_then(|port| u16::try_from(port).ok())
        .unwrap_or(6443)
}

/// Looks at all of them. Who does not answer is left out.
pub async fn look(places: &[Place]) -> Served {
    let at = Timestamp::now();
    let turns = Semaphore::new(AT_ONCE);
    let looks = places.iter().map(async |place| {
        let _turn = turns.acquire().await;
        let end = shown(place).await?;
        Some(((place.host.clone(), place.part), end))
    });
    let ends = join_all(looks).await.into_iter().flatten().collect();
    Served { at: Some(at), ends }
}

async fn shown(place: &Place) -> Option<Timestamp> {
    for address in &place.addresses {
        // Only those of other machines.
        let Ok(addresses) = kubeconfig::addresses(address, place.port).await else {
            continue;
        };
        let seen = tokio::time::timeout(TIMEOUT, handshake(&addresses));
        if let Ok(Some(end)) = seen.await {
            return Some(end);
        }
    }
    None
}

/// The end of the certificate that is shown there.
async fn handshake(addresses: &[SocketAddr]) -> Option<Timestamp> {
    let stream = TcpStream::connect(addresses).await.ok()?;
    let eye = Arc::new(Eye {
        provider: ring::default_provider().into(),
        seen: OnceLock::new(),
    });
    let config = ClientConfig::builder_with_provider(Arc::clone(&eye.provider))
        .with_safe_default_protocol_versions()
        .ok()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&eye) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    let name = ServerName::try_from("kubernetes").ok()?;
    // One that asks for a certificate of ours ends it here, and has shown its own.
    let _ = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await;
    eye.seen.get().copied().flatten()
}

/// Looks at what a server shows, and lets it pass: nothing is said over the connection.
#[derive(Debug)]
struct Eye {
    provider: Arc<CryptoProvider>,
    seen: OnceLock<Option<Timestamp>>,
}

impl ServerCertVerifier for Eye {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.seen.get_or_init(|| not_after(certificate));
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
    use tokio::{io::AsyncWriteExt, net::TcpListener};
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// A server that wants to see a certificate, as etcd does.
    async fn server(end: (i32, u8, u8)) -> SocketAddr {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(["kubernetes".to_owned()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(end.0, end.1, end.2);
        let certificate = parameters.self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let provider: Arc<CryptoProvider> = ring::default_provider().into();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(
                vec![certificate.der().clone()],
                key.serialize_der().try_into().unwrap(),
            )
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let accepted = TlsAcceptor::from(Arc::new(config)).accept(stream).await;
            assert!(accepted.is_err(), "nobody showed a certificate");
        });
        address
    }

    #[tokio::test]
    async fn a_server_that_lets_nobody_in_has_shown_when_its_certificate_ends() {
        let end = handshake(&[server((2031, 2, 3)).await]).await.unwrap();
        assert_eq!(end.to_string(), "2031-02-03T00:00:00Z");
    }

    #[tokio::test]
    async fn what_is_no_certificate_is_nothing_and_this_machine_is_not_looked_at() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let talks = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(&[0x16; 4096]).await.unwrap();
        });
        assert_eq!(handshake(&[address]).await, None);
        talks.await.unwrap();
        let place = Place {
            host: "a".to_owned(),
            part: Part::Etcd,
            addresses: vec!["127.0.0.1".to_owned()],
            port: server((2031, 2, 3)).await.port(),
        };
        assert_eq!(shown(&place).await, None);
    }
}
