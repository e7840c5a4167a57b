//! Real sockets, and connections that take their time.

use std::{
    path::Path,
    sync::atomic::{AtomicI64, Ordering},
};

use jiff::Timestamp;
use kube::config::{AuthInfo, Kubeconfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use secrecy::ExposeSecret;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client};

use super::*;
use crate::{Options, Server, expiry::Clock};

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_ends_at_the_deadline_of_the_handshake() {
    let limits = Limits {
        handshake: SHORT,
        ..Limits::default()
    };
    let siege = Siege::of(limits).await;
    let mut silent = siege.connect().await;
    assert_eq!(read(&mut silent).await, "", "closed without a word");
    siege.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_ends_at_the_deadline_whatever_they_send() {
    let limits = Limits {
        stranger: SHORT,
        ..Limits::default()
    };
    let siege = Siege::of(limits).await;
    for protocol in ["http/1.1", "h2"] {
        let mut stranger = siege.stranger(protocol).await;
        let _ = stranger.write_all(b"GET /readyz HT").await;
        within("closed", read(&mut stranger)).await;
    }
    siege.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_of_a_request_has_a_deadline() {
    let limits = Limits {
        head: SHORT,
        ..Limits::default()
    };
    let siege = Siege::of(limits).await;
    let mut known = siege.known("http/1.1").await;
    known
        .write_all(b"GET /readyz HTTP/1.1\r\na:")
        .await
        .unwrap();
    within("closed", read(&mut known)).await;
    siege.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_strangers_push_out_the_oldest_and_nobody_with_a_certificate() {
    let limits = Limits {
        strangers: 4,
        ..Limits::default()
    };
    let siege = Siege::of(limits).await;
    let mut known = siege.known("http/1.1").await;
    let mut first = siege.connect().await;
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(siege.connect().await);
    }
    assert_eq!(read(&mut first).await, "", "the oldest has to go");
    let again = b"GET /api/v1/namespaces HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    known.write_all(again).await.unwrap();
    assert!(read(&mut known).await.starts_with("HTTP/1.1 200"));
    siege.end().await;
}

#[tokio::test]
async fn whoever_has_the_most_connections_makes_room() {
    let strangers = Arc::new(Strangers::default());
    let mut tasks = JoinSet::<()>::new();
    let mut places = Vec::new();
    for user in [7, 1, 1, 1, 1, 1, 1] {
        strangers.admit(Some(user), 3, |place| {
            places.push(place);
            tasks.spawn(std::future::pending())
        });
    }
    let left: Vec<_> = strangers
        .crowd()
        .there
        .values()
        .map(|one| one.user)
        .collect();
    assert_eq!(left, [Some(7), Some(1), Some(1)]);
    let left: Vec<_> = strangers.crowd().there.keys().copied().collect();
    assert_eq!(left, [1, 6, 7], "the newest of them stay");
    drop(places);
    assert!(strangers.crowd().there.is_empty());
}

#[tokio::test]
async fn the_silent_make_room_before_those_that_speak() {
    let strangers = Arc::new(Strangers::default());
    let mut tasks = JoinSet::<()>::new();
    let mut places = Vec::new();
    let mut admit = |places: &mut Vec<Place>| {
        strangers.admit(Some(1), 3, |place| {
            places.push(place);
            tasks.spawn(std::future::pending())
        });
    };
    admit(&mut places);
    places[0].greeted();
    for _ in 0..4 {
        admit(&mut places);
    }
    let left: Vec<_> = strangers.crowd().there.keys().copied().collect();
    assert_eq!(left, [1, 4, 5], "the oldest, which spoke, stays");
    places[3].greeted();
    places[4].greeted();
    admit(&mut places);
    let left: Vec<_> = strangers.crowd().there.keys().copied().collect();
    assert_eq!(left, [4, 5, 6], "of those that spoke, the oldest goes");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_waits_for_requests_but_not_for_watches_and_not_for_ever() {
    let limits = Limits {
        drain: Duration::from_millis(500),
        ..Limits::default()
    };
    let siege = Siege::of(limits).await;
    let mut watching = siege.known("http/1.1").await;
    let watch = b"GET /api/v1/namespaces?watch=true HTTP/1.1\r\nhost: x\r\n\r\n";
    watching.write_all(watch).await.unwrap();
    let mut head = [0; 12];
    watching.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    let mut hanging = siege.known("http/1.1").await;
    let half = b"POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{";
    hanging.write_all(half).await.unwrap();
    let _silent = siege.connect().await;
    siege.end().await;
    let rest = read(&mut watching).await;
    assert!(
        rest.ends_with("0\r\n\r\n"),
        "a watch ends as at its timeout: {rest}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_while_the_server_runs() {
    let end = Timestamp::now();
    let year = |days: i64| end.as_second() - days * 86_400;
    // A server that was started almost a year ago.
    let time = Arc::new(AtomicI64::new(year(360)));
    let clock = Arc::clone(&time);
    let clock = Arc::new(move || {
        Timestamp::from_second(clock.load(Ordering::Relaxed)).expect("a time of this year")
    });
    let limits = Limits {
        renewal: Duration::from_millis(10),
        ..Limits::default()
    };
    let siege = Siege::with(limits, clock).await;
    let kubeconfig = siege.kubeconfig();
    let old = siege.known("http/1.1").await;
    let old = end_of(&old);
    time.store(year(331), Ordering::Relaxed);
    for _ in 0..10 {
        let same = siege.known("http/1.1").await;
        assert_eq!(end_of(&same), old, "there is more than a month left");
    }
    time.store(year(0), Ordering::Relaxed);
    let renewed = async {
        loop {
            let new = siege.known("http/1.1").await;
            if end_of(&new) > old {
                return;
            }
        }
    };
    within("renewed", renewed).await;
    let renewed = siege.kubeconfig();
    let authority = |kubeconfig: &Kubeconfig| {
        let cluster = kubeconfig.clusters[0].cluster.as_ref().unwrap();
        cluster.certificate_authority_data.clone()
    };
    assert_eq!(authority(&kubeconfig), authority(&renewed));
    let certificate = |kubeconfig: &Kubeconfig| {
        let user = kubeconfig.auth_infos[0].auth_info.as_ref().unwrap();
        user.client_certificate_data.clone()
    };
    assert_ne!(certificate(&kubeconfig), certificate(&renewed));
    siege.end().await;
}

/// A server in a directory of its own.
struct Siege {
    address: SocketAddr,
    directory: TempDir,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Siege {
    async fn of(limits: Limits) -> Self {
        Self::with(limits, Arc::new(Timestamp::now)).await
    }

    async fn with(limits: Limits, clock: Clock) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            data_dir: directory.path().to_owned(),
            crds: Vec::new(),
            listen: Some("127.0.0.1:0".parse().unwrap()),
        };
        let server = Server::open_with(options, clock, limits).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        Self {
            address: server.address().unwrap(),
            directory,
            stop,
            serving: tokio::spawn(async move {
                let stopped = async { stopped.await.unwrap_or_default() };
                server.serve(stopped).await.unwrap();
            }),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the kubeconfig is the server's own"
    )]
    fn kubeconfig(&self) -> Kubeconfig {
        let path: &Path = self.directory.path();
        Kubeconfig::read_from(path.join("kubeconfig")).unwrap()
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection with the certificate of the kubeconfig.
    async fn known(&self, protocol: &str) -> client::TlsStream<TcpStream> {
        let kubeconfig = self.kubeconfig();
        self.handshake(kubeconfig.auth_infos[0].auth_info.as_ref(), protocol)
            .await
    }

    async fn stranger(&self, protocol: &str) -> client::TlsStream<TcpStream> {
        self.handshake(None, protocol).await
    }

    async fn handshake(
        &self,
        user: Option<&AuthInfo>,
        protocol: &str,
    ) -> client::TlsStream<TcpStream> {
        let kubeconfig = self.kubeconfig();
        let decoded = |text: &str| {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD
                .decode(text)
                .unwrap()
        };
        let cluster = kubeconfig.clusters[0].cluster.as_ref().unwrap();
        let authority = decoded(cluster.certificate_authority_data.as_ref().unwrap());
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(&authority).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match user {
            None => config.with_no_client_auth(),
            Some(user) => {
                let certificate = decoded(user.client_certificate_data.as_ref().unwrap());
                let key = decoded(user.client_key_data.as_ref().unwrap().expose_secret());
                let certificate = CertificateDer::from_pem_slice(&certificate).unwrap();
                let key = PrivateKeyDer::from_pem_slice(&key).unwrap();
                config
                    .with_client_auth_cert(vec![certificate], key)
                    .unwrap()
            }
        };
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = self.connect().await;
        let connected = TlsConnector::from(Arc::new(config)).connect(name, stream);
        connected.await.unwrap()
    }

    /// Tells the server to end, and waits for it.
    async fn end(self) {
        self.stop.send(()).unwrap();
        within("ended", self.serving).await.unwrap();
    }
}

/// When the certificate of the server ends.
fn end_of(stream: &client::TlsStream<TcpStream>) -> i64 {
    let certificate = &stream.get_ref().1.peer_certificates().unwrap()[0];
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).unwrap();
    certificate.validity().not_after.timestamp()
}

/// Everything that comes until the server closes the connection, in whatever way.
async fn read(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    let _ = within("closed", stream.read_to_end(&mut bytes)).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(8), work)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within 8 s"))
}

const SHORT: Duration = Duration::from_millis(200);
