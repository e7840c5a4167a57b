//! A server of releases over TLS on loopback, which answers as it is told to. It ends with the value.

use std::{
    io::Write as _,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::Context as _;
use flate2::{Compression, write::GzEncoder};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

/// What a server says.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A file.
    Whole(String),
    /// A file, compressed by gzip.
    Packed(String),
    /// A file that is said to be compressed like that.
    Encoded(String),
    /// The beginning of a file that is longer.
    Half(String),
    /// A file without end.
    Endless,
    /// Nothing, for as long as anybody waits.
    Silence,
    /// A redirect.
    Led(String),
    /// A status alone.
    Status(u16),
    /// A status, and for how many seconds it holds.
    Limited(u16, u32),
}

/// The server. It ends with the value.
pub struct Server {
    address: SocketAddr,
    authority: String,
    asked: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

impl Server {
    /// One that answers what is asked for, path and query.
    ///
    /// # Errors
    ///
    /// There is no port or no certificate to be had.
    pub async fn start(
        answer: impl Fn(&str) -> Answer + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).context("make a certificate")?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("speak TLS")?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(key))
            .context("use the certificate")?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let address = listener.local_addr().context("listen")?;
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let answer = Arc::new(answer);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
                let count = Arc::clone(&count);
                clients.spawn(async move {
                    // One that does not trust it, or has heard enough, goes away.
                    let Ok(mut client) = acceptor.accept(client).await else {
                        return;
                    };
                    let Some(path) = asked_for(&mut client).await else {
                        return;
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                    let _ = say(&mut client, answer(&path)).await;
                });
            }
        });
        Ok(Self {
            address,
            authority: made.cert.pem(),
            asked,
            _serving: serving,
        })
    }

    /// A URL of it.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The certificate by which it is trusted, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// How many requests it answered.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

async fn asked_for(client: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    head.split(' ').nth(1).map(str::to_owned)
}

async fn say(client: &mut (impl AsyncWrite + Unpin), answer: Answer) -> std::io::Result<()> {
    let whole = |header: &str, body: &[u8]| {
        let head = format!(
            "HTTP/1.1 200 OK\r\n{header}Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    };
    let empty = |line: String| {
        format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
    };
    let bytes = match answer {
        Answer::Whole(text) => whole("", text.as_bytes()),
        Answer::Packed(text) => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text.as_bytes())?;
            whole("Content-Encoding: gzip\r\n", &encoder.finish()?)
        }
        Answer::Encoded(encoding) => whole(&format!("Content-Encoding: {encoding}\r\n"), b"a"),
        Answer::Half(text) => {
            let length = text.len().saturating_mul(2);
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}").into_bytes()
        }
        Answer::Led(to) => empty(format!("302 Found\r\nLocation: {to}")),
        Answer::Status(status) => empty(format!("{status} Said")),
        Answer::Limited(status, seconds) => {
            empty(format!("{status} Said\r\nRetry-After: {seconds}"))
        }
        Answer::Silence => std::future::pending().await,
        Answer::Endless => {
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            loop {
                client.write_all(&[b'a'; 1 << 14]).await?;
            }
        }
    };
    client.write_all(&bytes).await?;
    client.shutdown().await
}
