//! The one gate that every connection of a source passes: a proxy on loopback, for one fetch.
//!
//! git and the client of registries each resolve names, follow redirects and ask for tokens where they are told to. Instead
//! of teaching both, they are given this proxy and nothing else. It resolves a name itself, refuses addresses that no
//! source is fetched from, and connects to the very address that it looked at, so that neither a redirect nor a name that
//! resolves differently the second time leads anywhere else. It counts what comes back.
//!
//! Whoever is on this machine can connect to loopback, and would reach by the gate what the operator does and they do not. So it
//! serves only who shows a credential, made by chance for this one fetch. That goes to git in its environment, which other users
//! cannot read as they can arguments, and to the client of registries in memory.

use std::{
    env, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, lookup_host},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

use super::{
    policy::{Policy, Protocol},
    tree,
};

/// Why a connection was not made, or cut.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The address is one that no source is fetched from.
    #[error("{host} is {address}, which {what}")]
    Address {
        /// What was asked for.
        host: String,
        /// What it stands for.
        address: IpAddr,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The connection would be in the clear.
    #[error("{host} is to be reached by http, which is not among the protocols of sources")]
    Clear {
        /// What was asked for.
        host: String,
    },
    /// A redirect leads to another host in the clear. The client of registries shows the gate no credential for such a one.
    #[error(
        "a redirect leads to {host} by http, and to other hosts redirects are followed by https alone"
    )]
    Redirect {
        /// Where it leads.
        host: String,
    },
    /// More came than may.
    #[error("more than {0} bytes come over the network")]
    Bytes(u64),
    /// The name stands for nothing.
    #[error("{0} has no address")]
    Nowhere(String),
    /// The volume is full.
    #[error("the volume of the data directory is full: {0}")]
    Full(String),
}

impl Refusal {
    /// Whether it stays so until somebody changes something.
    pub(super) fn is_final(&self) -> bool {
        !matches!(self, Self::Full(_) | Self::Nowhere(_))
    }
}

/// How many connections one fetch may have at once: git has one, a registry's client as many as it loads layers.
const CONNECTIONS: usize = 16;

/// The longest head of a request: a URL with a signature, as registries redirect to, is about 2 KiB.
const HEAD: usize = 32 << 10;

/// How long a name may take to resolve, a connection to be made, a head to come.
const PATIENCE: Duration = Duration::from_secs(15);

/// How much comes between two looks at the volume.
const LOOK: u64 = 16 << 20;

/// What a client that shows no credential is told.
const UNKNOWN: &[u8] = b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"windlass\"\r\n\
    Content-Length: 0\r\nConnection: close\r\n\r\n";

/// What a client is told whose connection is not made.
const REFUSED: &[u8] = b"HTTP/1.1 403 Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// The header that a client shows its credential in.
const CREDENTIAL: &str = "proxy-authorization";

struct Inner {
    /// What a client must show.
    credential: String,
    policy: Policy,
    volume: PathBuf,
    left: AtomicU64,
    most: AtomicU64,
    refused: Mutex<Option<Refusal>>,
}

/// The gate of one fetch. It closes when it is dropped, and every connection with it.
pub(super) struct Gate {
    address: SocketAddr,
    /// User and password, as they stand in its address.
    login: String,
    inner: Arc<Inner>,
    _serving: JoinSet<()>,
}

impl Gate {
    /// Opens a gate that lets `bytes` in.
    pub(super) async fn open(policy: &Policy, volume: &Path, bytes: u64) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let login = format!("windlass:{:032x}", rand::random::<u128>());
        let inner = Arc::new(Inner {
            credential: format!("Basic {}", STANDARD.encode(&login)),
            policy: policy.clone(),
            volume: volume.to_owned(),
            left: AtomicU64::new(bytes),
            most: AtomicU64::new(bytes),
            refused: Mutex::default(),
        });
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, Arc::clone(&inner)));
        Ok(Self {
            address,
            login,
            inner,
            _serving: serving,
        })
    }

    /// Its address as a proxy, with the credential: not for arguments, files or errors.
    pub(super) fn url(&self) -> String {
        format!("http://{}@{}", self.login, self.address)
    }

    /// Lets more in.
    pub(super) fn allow(&self, bytes: u64) {
        self.inner.most.fetch_add(bytes, Ordering::Relaxed);
        self.inner.left.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What it refused first.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let refused = self.inner.refused.lock();
        refused.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Inner {
    /// Whether the head of a request shows the credential. Digests are compared: how long that takes tells nothing of it.
    fn is_known(&self, head: &str) -> bool {
        let mut shown = head.split("\r\n").skip(1).filter_map(credential);
        shown.next().is_some_and(|shown| {
            Sha256::digest(shown.as_bytes()) == Sha256::digest(self.credential.as_bytes())
        })
    }

    fn refuse(&self, refusal: Refusal) -> io::Error {
        let told = io::Error::other(refusal.to_string());
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.get_or_insert(refusal);
        told
    }

    /// Counts what came.
    fn take(&self, bytes: u64) -> io::Result<()> {
        let less = |left: u64| left.checked_sub(bytes);
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .map(drop)
            .map_err(|_| self.refuse(Refusal::Bytes(self.most.load(Ordering::Relaxed))))
    }

    fn has_room(&self) -> io::Result<()> {
        tree::has_room(&self.volume, self.policy.room.reserve).map_err(|error| {
            if error.kind() == io::ErrorKind::StorageFull {
                self.refuse(Refusal::Full(error.to_string()))
            } else {
                error
            }
        })
    }

    /// Connects to a host, by the address that was looked at.
    async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let found = timeout(PATIENCE, lookup_host((host, port))).await;
        let mut addresses = found.map_err(|_| late("resolve"))??.peekable();
        if addresses.peek().is_none() {
            return Err(io::Error::other("the name has no address"));
        }
        let mut last = None;
        for address in addresses {
            if let Some(what) = self.policy.refusal(address.ip()) {
                return Err(self.refuse(Refusal::Address {
                    host: tree::shown(host),
                    address: address.ip(),
                    what,
                }));
            }
            match timeout(PATIENCE, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = Some(error),
                Err(_) => last = Some(late("connect")),
            }
        }
        Err(last.unwrap_or_else(|| late("connect")))
    }
}

/// The first address of a host that may be reached, for what does not pass the gate itself.
pub(super) async fn resolve(policy: &Policy, host: &str, port: u16) -> Result<IpAddr, Refusal> {
    let found = timeout(PATIENCE, lookup_host((host, port))).await;
    let addresses: Vec<IpAddr> = match found {
        Ok(Ok(addresses)) => addresses.map(|address| address.ip()).collect(),
        _ => Vec::new(),
    };
    for address in &addresses {
        if let Some(what) = policy.refusal(*address) {
            return Err(Refusal::Address {
                host: tree::shown(host),
                address: *address,
                what,
            });
        }
    }
    let first = addresses.first().copied();
    first.ok_or_else(|| Refusal::Nowhere(tree::shown(host)))
}

fn late(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("{what}: nothing within 15 s"),
    )
}

async fn serve(listener: TcpListener, inner: Arc<Inner>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let inner = Arc::clone(&inner);
                connections.spawn(async move {
                    let _place = place;
                    if let Err(error) = pass(stream, &inner).await {
                        tracing::debug!(%error, "a connection of a source ended");
                    }
                });
            }
            // Out of descriptors, which passes.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// What a client asks of a proxy.
#[derive(Debug, Eq, PartialEq)]
struct Asked {
    host: String,
    port: u16,
    /// The head as the server is to see it; none: a tunnel.
    head: Option<String>,
}

async fn pass(mut client: TcpStream, inner: &Inner) -> io::Result<()> {
    let (head, rest) = timeout(PATIENCE, read_head(&mut client))
        .await
        .map_err(|_| late("read a request"))??;
    if !inner.is_known(&head) {
        return refuse(client, UNKNOWN, io::Error::other("who asks is not known")).await;
    }
    let head = without_credential(&head);
    let asked = parse(&head)?;
    match connect(&asked, &head, inner).await {
        Ok((mut server, begin)) => {
            if asked.head.is_none() {
                client
                    .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    .await?;
            }
            server.write_all(begin.as_bytes()).await?;
            server.write_all(&rest).await?;
            both_ways(client, server, inner).await
        }
        Err(error) => refuse(client, REFUSED, error).await,
    }
}

async fn refuse(mut client: TcpStream, answer: &[u8], error: io::Error) -> io::Result<()> {
    client.write_all(answer).await?;
    client.shutdown().await?;
    Err(error)
}

/// What a line of a head shows as a credential.
fn credential(line: &str) -> Option<&str> {
    let (name, value) = line.split_once(':')?;
    let is_shown = name.trim().eq_ignore_ascii_case(CREDENTIAL);
    is_shown.then_some(value.trim())
}

/// The head as others may see it: the credential is for this gate alone, and for no proxy behind it.
fn without_credential(head: &str) -> String {
    let lines = head.split("\r\n").filter(|line| credential(line).is_none());
    lines.collect::<Vec<_>>().join("\r\n")
}

/// The connection, and what the server is told first.
async fn connect(asked: &Asked, head: &str, inner: &Inner) -> io::Result<(TcpStream, String)> {
    let protocol = if asked.head.is_some() {
        Protocol::Http
    } else {
        Protocol::Https
    };
    if !inner.policy.protocols.contains(&protocol) {
        return Err(inner.refuse(Refusal::Clear {
            host: tree::shown(&asked.host),
        }));
    }
    let Some((host, port)) = proxy_of_environment(protocol, &asked.host) else {
        let server = inner.connect(&asked.host, asked.port).await?;
        return Ok((server, asked.head.clone().unwrap_or_default()));
    };
    // Behind a proxy names may have no meaning here; those that have one are looked at all the same.
    match resolve(&inner.policy, &asked.host, asked.port).await {
        Ok(_) | Err(Refusal::Nowhere(_)) => {}
        Err(refusal) => return Err(inner.refuse(refusal)),
    }
    let mut server = timeout(PATIENCE, TcpStream::connect((host.as_str(), port)))
        .await
        .map_err(|_| late("connect to the proxy"))??;
    if asked.head.is_some() {
        return Ok((server, head.to_owned()));
    }
    server.write_all(head.as_bytes()).await?;
    let (answer, _) = timeout(PATIENCE, read_head(&mut server))
        .await
        .map_err(|_| late("hear from the proxy"))??;
    if answer.split(' ').nth(1) == Some("200") {
        return Ok((server, String::new()));
    }
    let first = answer.lines().next().unwrap_or_default();
    Err(io::Error::other(format!("the proxy said {first:?}")))
}

/// The proxy that the operator's own environment names for a host, as curl and kubectl read it.
fn proxy_of_environment(protocol: Protocol, host: &str) -> Option<(String, u16)> {
    let value = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let named = match protocol {
        Protocol::Http => value("http_proxy"),
        _ => value("https_proxy").or_else(|| value("HTTPS_PROXY")),
    }?;
    let without = value("no_proxy").or_else(|| value("NO_PROXY"));
    let is_direct = |pattern: &str| {
        let pattern = pattern.trim().trim_start_matches('.');
        pattern == "*"
            || pattern == host
            || (!pattern.is_empty() && host.ends_with(&format!(".{pattern}")))
    };
    if without.is_some_and(|without| without.split(',').any(is_direct)) {
        return None;
    }
    let authority = named.strip_prefix("http://").unwrap_or(&named);
    let authority = authority.split('/').next().unwrap_or_default();
    host_and_port(authority, 3128)
}

/// Whether the environment names a proxy at all.
pub(super) fn is_behind_proxy() -> bool {
    [
        "http_proxy",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ]
    .iter()
    .any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// The head of a request or an answer with its empty line, and what came after it already.
async fn read_head(stream: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let rest = read.split_off(end.saturating_add(4));
            let head = String::from_utf8(read).map_err(io::Error::other)?;
            return Ok((head, rest));
        }
        if read.len() > HEAD {
            return Err(io::Error::other("the head of a request is too long"));
        }
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(buffer.get(..count).unwrap_or_default());
    }
}

fn parse(head: &str) -> io::Result<Asked> {
    let refused = || io::Error::other("this is a proxy for CONNECT and http alone");
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let [method, target, version] = *first.split(' ').collect::<Vec<_>>() else {
        return Err(refused());
    };
    if method == "CONNECT" {
        let (host, port) = host_and_port(target, 443).ok_or_else(refused)?;
        return Ok(Asked {
            host,
            port,
            head: None,
        });
    }
    let rest = target.strip_prefix("http://").ok_or_else(refused)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let (host, port) = host_and_port(authority, 80).ok_or_else(refused)?;
    let mut seen = format!("{method} /{path} {version}\r\n");
    // One request a connection: the next may be for another host.
    let of_connection = ["connection", "keep-alive", "proxy-connection"];
    for line in lines.take_while(|line| !line.is_empty()) {
        let name = line
            .split(':')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        if !of_connection.contains(&name.as_str()) {
            seen.push_str(line);
            seen.push_str("\r\n");
        }
    }
    seen.push_str("Connection: close\r\n\r\n");
    Ok(Asked {
        host,
        port,
        head: Some(seen),
    })
}

/// A host, without brackets, and its port.
pub(super) fn host_and_port(authority: &str, default: u16) -> Option<(String, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            (host, after.strip_prefix(':'))
        }
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        Some(port) if !port.is_empty() => port.parse().ok()?,
        _ => default,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

async fn both_ways(client: TcpStream, server: TcpStream, inner: &Inner) -> io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = async {
        let copied = tokio::io::copy(&mut from_client, &mut to_server).await;
        let _ = to_server.shutdown().await;
        match copied {
            // What the server still has to say is waited for.
            Ok(_) => std::future::pending().await,
            Err(error) => Err(error),
        }
    };
    let down = async {
        let mut buffer = vec![0; 1 << 14];
        let mut looked = LOOK;
        loop {
            let count = from_server.read(&mut buffer).await?;
            let Some(part) = buffer.get(..count).filter(|part| !part.is_empty()) else {
                return to_client.shutdown().await;
            };
            let count = part.len() as u64;
            inner.take(count)?;
            looked = looked.saturating_add(count);
            if looked >= LOOK {
                looked = 0;
                inner.has_room()?;
            }
            to_client.write_all(part).await?;
        }
    };
    tokio::select! {
        ended = up => ended,
        ended = down => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tunnels_and_plain_requests_are_understood() {
        let asked = |head: &str| parse(head).ok();
        let tunnel = asked("CONNECT git.example:443 HTTP/1.1\r\nHost: other\r\n\r\n").unwrap();
        assert_eq!((tunnel.host.as_str(), tunnel.port), ("git.example", 443));
        let six = asked("CONNECT [2001:db8::1]:8443 HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!((six.host.as_str(), six.port), ("2001:db8::1", 8443));
        let plain = asked(
            "GET http://user@git.example:81/a/b?c HTTP/1.1\r\nHost: git.example\r\nProxy-Connection: keep-alive\r\n\r\n",
        )
        .unwrap();
        assert_eq!((plain.host.as_str(), plain.port), ("git.example", 81));
        assert_eq!(
            plain.head.unwrap(),
            "GET /a/b?c HTTP/1.1\r\nHost: git.example\r\nConnection: close\r\n\r\n"
        );
        for refused in [
            "GET / HTTP/1.1\r\n\r\n",
            "CONNECT :443 HTTP/1.1\r\n\r\n",
            "CONNECT host:99999 HTTP/1.1\r\n\r\n",
            "GET ftp://host/ HTTP/1.1\r\n\r\n",
            "nonsense\r\n\r\n",
        ] {
            assert!(asked(refused).is_none(), "{refused:?}");
        }
    }

    #[test]
    fn requests_to_the_gate_survive_fuzzing() {
        let corpus = [
            "CONNECT git.example:443 HTTP/1.1\r\nHost: git.example\r\nProxy-Authorization: Basic YTpi\r\n\r\n",
            "CONNECT [2001:db8::1]:8443 HTTP/1.1\r\n\r\n",
            "GET http://user@git.example:81/a/b?c HTTP/1.1\r\nHost: git.example\r\nproxy-authorization:Basic YTpi\r\n\r\n",
        ];
        fuzz::text("requests", &corpus, |head| {
            let seen = without_credential(head);
            assert!(seen.split("\r\n").all(|line| credential(line).is_none()));
            if let Ok(asked) = parse(&seen) {
                assert!(!asked.host.is_empty());
                let passed = asked.head.unwrap_or_default();
                assert!(passed.is_empty() || passed.ends_with("Connection: close\r\n\r\n"));
            }
        });
    }

    /// What a client hears that asks a gate for `url` and shows this.
    async fn asks(gate: &Gate, url: &str, shown: &str) -> String {
        let mut client = TcpStream::connect(gate.address).await.unwrap();
        let request = format!("GET {url} HTTP/1.1\r\nHost: a\r\n{shown}\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let mut heard = String::new();
        client.read_to_string(&mut heard).await.unwrap();
        heard
    }

    #[tokio::test]
    async fn the_gate_serves_nobody_else_on_this_machine() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/a", server.local_addr().unwrap());
        let (told, mut served) = tokio::sync::mpsc::unbounded_channel();
        let serving = tokio::spawn(async move {
            loop {
                let (mut client, _) = server.accept().await.unwrap();
                let (head, _) = read_head(&mut client).await.unwrap();
                told.send(head).unwrap();
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
                client.write_all(answer).await.unwrap();
            }
        });
        let work = tempfile::tempdir().unwrap();
        let policy = Policy::person();
        let gate = Gate::open(&policy, work.path(), 1 << 20).await.unwrap();
        let other = Gate::open(&policy, work.path(), 1 << 20).await.unwrap();
        for shown in [
            String::new(),
            "Proxy-Authorization: Basic d2luZGxhc3M6\r\n".to_owned(),
            format!("Authorization: {}\r\n", gate.inner.credential),
            format!("Proxy-Authorization: {}\r\n", other.inner.credential),
        ] {
            let heard = asks(&gate, &url, &shown).await;
            assert!(heard.starts_with("HTTP/1.1 407 "), "{shown:?}: {heard}");
        }
        assert!(served.is_empty() && gate.refusal().is_none());
        let shown = format!("proxy-authorization: {}\r\n", gate.inner.credential);
        let heard = asks(&gate, &url, &shown).await;
        assert!(
            heard.starts_with("HTTP/1.1 200 ") && heard.ends_with("hi"),
            "{heard}"
        );
        let head = served.recv().await.unwrap().to_ascii_lowercase();
        assert!(!head.contains(CREDENTIAL), "{head}");
        serving.abort();
    }
}
