//! A bucket of an S3-compatible server.
//!
//! Requests are signed by rusty-s3, which does no more than that, and sent by the client that everything here uses. (`object_store` would
//! bring another client and another crate of times.) An object is written by one request, which takes 5 GiB: etcd's own bound is 8 GiB at
//! most, and its default 2.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use reqwest::{
    Body, Certificate, Client, ClientBuilder, Method, RequestBuilder, Response, StatusCode,
    dns::{Addrs, Name, Resolve, Resolving},
    header::{CONTENT_LENGTH, HeaderValue, IF_NONE_MATCH},
    redirect,
};
use rusty_s3::{
    Credentials, S3Action, UrlStyle,
    actions::{ListObjectsV2, ListObjectsV2Response},
};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Notify;

use super::{Content, Error, MOST, Object, Taken, chunks};

/// The largest object that one request takes.
///
/// # Source
/// S3 `PutObject`: a single operation takes an object of up to 5 GiB.
const LARGEST: u64 = 5 * 1024 * 1024 * 1024;
/// How long a signature counts.
const SIGNED: Duration = Duration::from_hours(1);
/// How long a server may take to take a connection, and how long it may be silent.
const CONNECTING: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_mins(2);
/// The longest answer that is no object: a list of a thousand names.
const ANSWER: usize = 4 * 1024 * 1024;
/// How much of what a server says is told.
const TOLD: usize = 256;
/// What Kubernetes sets in every pod, and nobody else anywhere.
const IN_A_POD: &str = "KUBERNETES_SERVICE_HOST";

/// Where a bucket is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// The URL of the server.
    pub endpoint: String,
    /// The bucket.
    pub bucket: String,
    /// The region.
    pub region: String,
    /// What stands before the names of the cluster's objects, with a slash at its end.
    pub prefix: String,
    /// Whether the bucket's name is the first label of the host's, and not the first part of the path.
    pub virtual_host: bool,
}

/// Who asks, and whose word for the server is taken.
#[derive(Debug)]
pub struct Access {
    /// The id of the access key.
    pub id: String,
    /// The access key.
    pub secret: SecretString,
    /// The token of a session, where the key is of one.
    pub token: Option<SecretString>,
    /// The certificates of authorities, in PEM form, beside those that everybody trusts.
    pub authorities: Option<Vec<u8>>,
}

/// Whether a server may be this machine itself. Whoever writes where a store is has requests sent there, with signatures, and hears how they
/// were answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Loopback {
    /// It may: this machine is that of who writes.
    Allowed,
    /// It may not: what answers there is for who runs this program.
    Refused,
}

impl Loopback {
    /// A pod has a loopback of its own, and a process stands beside its user.
    pub fn of_this_process() -> Self {
        match std::env::var_os(IN_A_POD) {
            Some(_) => Self::Refused,
            None => Self::Allowed,
        }
    }

    /// Why no server of a user's has that address, if none has.
    fn refusal(self, address: IpAddr) -> Option<&'static str> {
        if self == Self::Allowed && address.is_loopback() {
            return None;
        }
        api::address::refused(address)
    }
}

/// Resolves names to addresses of servers alone.
struct Servers(Loopback);

impl Resolve for Servers {
    fn resolve(&self, name: Name) -> Resolving {
        let loopback = self.0;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found.collect();
            for address in found.iter().map(SocketAddr::ip) {
                if let Some(rule) = loopback.refusal(address) {
                    return Err(format!("{} is {address}, which {rule}", name.as_str()).into());
                }
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// A bucket, as far as one cluster is concerned.
#[derive(Debug)]
pub struct Bucket {
    place: rusty_s3::Bucket,
    credentials: Credentials,
    client: Client,
    /// Sends what takes its time: to this client, one who reads is not silent.
    sending: Client,
    silence: Duration,
    prefix: String,
}

impl Bucket {
    /// A bucket that nobody has asked yet.
    ///
    /// # Errors
    ///
    /// The settings are none, or its server has an address that no server of a user's has.
    pub fn new(settings: &Settings, access: &Access, loopback: Loopback) -> Result<Self, Error> {
        Self::patient((settings, access, loopback), SILENCE)
    }

    /// One whose server may be silent for so long.
    fn patient(
        (settings, access, loopback): (&Settings, &Access, Loopback),
        silence: Duration,
    ) -> Result<Self, Error> {
        let unusable = |why: String| Error::Unusable(why);
        let endpoint = reqwest::Url::parse(&settings.endpoint)
            .map_err(|error| unusable(format!("{} is no URL: {error}", settings.endpoint)))?;
        let host = endpoint.host_str().unwrap_or_default();
        // No resolver is asked for what is an address already.
        if let Some(rule) = literal(host).and_then(|address| loopback.refusal(address)) {
            return Err(unusable(format!("{host} {rule}, and no server of a store")));
        }
        let style = if settings.virtual_host {
            UrlStyle::VirtualHost
        } else {
            UrlStyle::Path
        };
        let bucket = rusty_s3::Bucket::new(
            endpoint,
            style,
            settings.bucket.clone(),
            settings.region.clone(),
        )
        .map_err(|error| unusable(error.to_string()))?;
        let secret = access.secret.expose_secret();
        let credentials = match &access.token {
            None => Credentials::new(&access.id, secret),
            Some(token) => Credentials::new_with_token(&access.id, secret, token.expose_secret()),
        };
        // Fails when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let built = |builder: ClientBuilder| {
            let client = builder.build();
            client.map_err(|error| unusable(chain(&error)))
        };
        Ok(Self {
            place: bucket,
            credentials,
            client: built(builder(access, loopback)?.read_timeout(silence))?,
            // The client's own count begins with the request, and would bound how long its body may take.
            sending: built(builder(access, loopback)?)?,
            silence,
            prefix: settings.prefix.clone(),
        })
    }

    pub(super) fn place(&self) -> String {
        format!("{}{}", self.place.base_url(), self.prefix)
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Writes an object under a name that is free. A server that knows no writes on a condition is asked without one: then it is the list
    /// before that says what is free.
    pub(super) async fn put(&self, name: &str, content: Content<'_>) -> Result<(), Error> {
        match self.write(name, content, Over::Nothing).await {
            Err(Put::NoConditions) => self.write(name, content, Over::Anything).await,
            other => other,
        }
        .map_err(|refused| match refused {
            Put::NoConditions => Error::Unusable(format!("{name}: it takes no objects")),
            Put::Failed(error) => error,
        })
    }

    async fn write(&self, name: &str, content: Content<'_>, over: Over) -> Result<(), Put> {
        let key = self.key(name);
        let url = self
            .place
            .put_object(Some(&self.credentials), &key)
            .sign(SIGNED);
        let moved = Arc::new(Notify::new());
        let (size, body) = match content {
            Content::Bytes(bytes) => (bytes.len() as u64, Body::from(bytes.to_vec())),
            Content::File(file, size) => {
                if size > LARGEST {
                    return Err(Put::Failed(Error::Unusable(format!(
                        "the snapshot has {size} bytes, and one request takes {LARGEST}"
                    ))));
                }
                let chunks = chunks(file).map_err(|error| Put::Failed(Error::Local(error)))?;
                let moves = Arc::clone(&moved);
                let chunks = chunks.inspect(move |_| moves.notify_one());
                (size, Body::wrap_stream(chunks))
            }
        };
        let mut request = self
            .sending
            .request(Method::PUT, url)
            .header(CONTENT_LENGTH, HeaderValue::from(size))
            .body(body);
        if over == Over::Nothing {
            request = request.header(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        let written = written(name, request, over);
        let written = while_it_moves(written, &moved, self.silence).await;
        written.unwrap_or_else(|| {
            let seconds = self.silence.as_secs();
            let why = format!("{name}: it took nothing more, and said nothing, for {seconds} s");
            Err(Put::Failed(Error::Unreachable(why)))
        })
    }

    pub(super) async fn read(&self, name: &str, taken: &mut Taken<'_>) -> Result<(), Error> {
        let key = self.key(name);
        let url = self
            .place
            .get_object(Some(&self.credentials), &key)
            .sign(SIGNED);
        let mut response = answered(name, self.client.get(url).send().await).await?;
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if !taken.take(&chunk).await? {
                break;
            }
        }
        Ok(())
    }

    pub(super) async fn list(&self) -> Result<Vec<Object>, Error> {
        let mut objects = Vec::new();
        let mut token: Option<String> = None;
        while objects.len() <= MOST {
            let mut action = self.place.list_objects_v2(Some(&self.credentials));
            action.with_prefix(self.prefix.as_str());
            if let Some(token) = &token {
                action.with_continuation_token(token.as_str());
            }
            let url = action.sign(SIGNED);
            let what = "a list of the bucket";
            let response = answered(what, self.client.get(url).send().await).await?;
            let listed = listed(&bounded(response).await?)?;
            let of_cluster = listed.contents.into_iter().filter_map(|object| {
                let name = object.key.strip_prefix(&self.prefix)?.to_owned();
                // What lies deeper is somebody else's.
                (!name.is_empty() && !name.contains('/')).then_some(Object {
                    name,
                    // None that is whole, and none that is empty.
                    size: object.size.unwrap_or(u64::MAX),
                })
            });
            objects.extend(of_cluster);
            match listed.next_continuation_token {
                next @ Some(_) if next != token => token = next,
                _ => break,
            }
        }
        Ok(objects)
    }

    pub(super) async fn remove(&self, name: &str) -> Result<(), Error> {
        let key = self.key(name);
        let url = self
            .place
            .delete_object(Some(&self.credentials), &key)
            .sign(SIGNED);
        match answered(name, self.client.delete(url).send().await).await {
            Ok(_) | Err(Error::Missing(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// What an object may be written over.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Over {
    Nothing,
    Anything,
}

/// Why an object was not written.
enum Put {
    /// The server knows no conditions of writes.
    NoConditions,
    Failed(Error),
}

/// Sends an object, and says what came of it.
async fn written(name: &str, request: RequestBuilder, over: Over) -> Result<(), Put> {
    let answer = request.send().await;
    let status = answer.as_ref().map(Response::status).ok();
    match (over, status) {
        (Over::Nothing, Some(StatusCode::NOT_IMPLEMENTED)) => Err(Put::NoConditions),
        (Over::Nothing, Some(StatusCode::PRECONDITION_FAILED)) => {
            Err(Put::Failed(Error::Taken(name.to_owned())))
        }
        (Over::Nothing, Some(StatusCode::CONFLICT)) => {
            let response = answer.map_err(|error| Put::Failed(unreachable(error)))?;
            let text = bounded(response).await.unwrap_or_default();
            Err(Put::Failed(conflict(name, &text)))
        }
        _ => answered(name, answer).await.map(drop).map_err(Put::Failed),
    }
}

/// What comes of something, unless nothing of it moves for so long.
async fn while_it_moves<T>(
    work: impl Future<Output = T>,
    moved: &Notify,
    silence: Duration,
) -> Option<T> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Some(done),
            () = moved.notified() => {}
            () = tokio::time::sleep(silence) => return None,
        }
    }
}

/// What a client of a bucket is made from.
fn builder(access: &Access, loopback: Loopback) -> Result<ClientBuilder, Error> {
    let builder = Client::builder()
        .no_proxy()
        .dns_resolver(Arc::new(Servers(loopback)))
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECTING)
        .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")));
    let Some(pem) = &access.authorities else {
        return Ok(builder);
    };
    let authorities = Certificate::from_pem_bundle(pem)
        .ok()
        .filter(|authorities| !authorities.is_empty())
        .ok_or_else(|| {
            let why = "what caSecretRef names has no certificate in PEM form";
            Error::Unusable(why.to_owned())
        })?;
    Ok(builder.tls_certs_merge(authorities))
}

/// The address that a host is, without asking anybody.
fn literal(host: &str) -> Option<IpAddr> {
    if host == "localhost" {
        return Some(Ipv4Addr::LOCALHOST.into());
    }
    host.trim_matches(['[', ']']).parse().ok()
}

fn listed(text: &str) -> Result<ListObjectsV2Response, Error> {
    ListObjectsV2::parse_response(text)
        .map_err(|error| Error::Altered(format!("its list cannot be read: {error}")))
}

/// An answer that is one.
async fn answered(what: &str, answer: Result<Response, reqwest::Error>) -> Result<Response, Error> {
    let response = answer.map_err(unreachable)?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = bounded(response).await.unwrap_or_default();
    Err(refused(what, status, &text))
}

async fn bounded(mut response: Response) -> Result<String, Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > ANSWER {
            return Err(Error::Altered(format!("it says more than {ANSWER} bytes")));
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What an answer that is an error means.
///
/// # Source
/// S3 error responses: `Code` says more than the status does.
fn refused(what: &str, status: StatusCode, text: &str) -> Error {
    let code = element(text, "Code").unwrap_or_default();
    let message = element(text, "Message").unwrap_or_default();
    let mut told = format!("{what}: {status}");
    for part in [&code, &message] {
        if !part.is_empty() {
            told = format!("{told}, {part}");
        }
    }
    match (code.as_str(), status.as_u16()) {
        ("NoSuchBucket", _) => Error::Unusable(told),
        ("NoSuchKey", _) => Error::Missing(what.to_owned()),
        ("QuotaExceeded" | "XMinioStorageFull" | "InsufficientStorage", _) | (_, 507) => {
            Error::Full(told)
        }
        (_, 404) => Error::Missing(what.to_owned()),
        ("OperationAborted", _) | (_, 429 | 500..=599) => Error::Unreachable(told),
        // A server that does not answer there leads elsewhere.
        (_, 300..=399) => Error::Unusable(told),
        _ => Error::Refused(told),
    }
}

/// What a conflict over a name that is to be given means: somebody was quicker, where the server does not say that it is one of another
/// kind.
fn conflict(name: &str, text: &str) -> Error {
    match element(text, "Code").as_deref() {
        None | Some("" | "ConditionalRequestConflict") => Error::Taken(name.to_owned()),
        Some(_) => refused(name, StatusCode::CONFLICT, text),
    }
}

/// The text of the first element of that name, as far as it is told.
fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inner, _) = rest.split_once(&format!("</{name}>"))?;
    let plain = inner.chars().filter(|c| !c.is_control());
    Some(plain.take(TOLD).collect())
}

/// Without the URL, which holds a signature.
fn unreachable(error: reqwest::Error) -> Error {
    Error::Unreachable(chain(&error.without_url()))
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |told, cause| format!("{told}: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::store::Caller;

    /// Who is told of errors.
    const CALLER: Caller = Caller {
        field: "spec.etcd.snapshots",
        command: "windlass snapshots list",
        noun: "snapshot",
        code: "Snapshot",
    };
    /// How large an object is that no buffer on the way takes as a whole.
    const SIZE: u64 = 64 << 20;
    /// How much of it the server takes at once.
    const PART: u64 = 1 << 20;

    fn at(endpoint: &str) -> Settings {
        Settings {
            endpoint: endpoint.to_owned(),
            bucket: "bucket".into(),
            region: "us-east-1".into(),
            prefix: String::new(),
            virtual_host: false,
        }
    }

    fn access() -> Access {
        Access {
            id: "id".into(),
            secret: SecretString::from("secret".to_owned()),
            token: None,
            authorities: None,
        }
    }

    #[test]
    fn a_server_is_none_of_this_machine_s_link_and_in_a_pod_none_of_its_loopback() {
        for (endpoint, allowed, refused) in [
            ("https://s3.example.org", true, true),
            ("https://10.0.0.1", true, true),
            ("http://127.0.0.1:7070", true, false),
            ("http://[::1]:7070", true, false),
            ("http://localhost", true, false),
            ("https://0x7f.1", true, false),
            ("https://169.254.169.254", false, false),
            ("https://[fe80::1]", false, false),
            ("https://0.0.0.0", false, false),
        ] {
            for (loopback, expected) in [(Loopback::Allowed, allowed), (Loopback::Refused, refused)]
            {
                let bucket = Bucket::new(&at(endpoint), &access(), loopback);
                assert_eq!(bucket.is_ok(), expected, "{endpoint} {loopback:?}");
                if let Err(error) = bucket {
                    assert_eq!(error.advice(&CALLER).0, "StoreUnusable", "{error}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_name_leads_to_no_address_that_may_not_be_asked() {
        let resolved = async |loopback| {
            let name: Name = "localhost".parse().unwrap();
            Servers(loopback).resolve(name).await.map(drop)
        };
        assert!(resolved(Loopback::Allowed).await.is_ok());
        let refused = resolved(Loopback::Refused).await.unwrap_err();
        assert!(refused.to_string().contains("loopback"), "{refused}");
    }

    /// Writes an object to a server that takes a part of it after each pause, and answers when it has it.
    async fn put(pause: Duration, silence: Duration) -> Result<(), Error> {
        let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = at(&format!("http://{}", door.local_addr().unwrap()));
        tokio::spawn(async move {
            let (mut client, _) = door.accept().await.unwrap();
            let mut sink = tokio::io::sink();
            for _ in 0..SIZE / PART {
                tokio::time::sleep(pause).await;
                let mut part = (&mut client).take(PART);
                tokio::io::copy(&mut part, &mut sink).await.unwrap();
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            client.write_all(answer).await.unwrap();
            let _ = tokio::io::copy(&mut client, &mut sink).await;
        });
        let file: File = tempfile::tempfile().unwrap();
        file.set_len(SIZE).unwrap();
        let bucket = Bucket::patient((&settings, &access(), Loopback::Allowed), silence);
        let bucket = bucket.unwrap();
        bucket.put("a.db", Content::File(&file, SIZE)).await
    }

    #[tokio::test]
    async fn an_object_may_take_longer_than_its_server_may_be_silent() {
        let silence = Duration::from_secs(2);
        let began = std::time::Instant::now();
        put(Duration::from_millis(60), silence).await.unwrap();
        assert!(began.elapsed() > silence, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_server_that_takes_nothing_is_left() {
        let silence = Duration::from_millis(500);
        let error = put(Duration::from_hours(1), silence).await.unwrap_err();
        assert_eq!(error.advice(&CALLER).0, "StoreUnreachable", "{error}");
        assert!(error.to_string().contains("took nothing"), "{error}");
    }

    #[test]
    fn what_a_server_says_is_told_by_its_kind() {
        let body =
            |code: &str| format!("<Error><Code>{code}</Code><Message>m\u{1b}</Message></Error>");
        for (code, status, kind) in [
            ("AccessDenied", 403, "StoreRefused"),
            ("SignatureDoesNotMatch", 403, "StoreRefused"),
            ("NoSuchBucket", 404, "StoreUnusable"),
            ("NoSuchKey", 404, "SnapshotMissing"),
            ("", 404, "SnapshotMissing"),
            ("QuotaExceeded", 403, "StoreFull"),
            ("", 507, "StoreFull"),
            ("SlowDown", 503, "StoreUnreachable"),
            ("PermanentRedirect", 301, "StoreUnusable"),
            ("EntityTooLarge", 400, "StoreRefused"),
            ("OperationAborted", 409, "StoreUnreachable"),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let error = refused("a.db", status, &body(code));
            assert_eq!(error.advice(&CALLER).0, kind, "{code} {status}");
            assert!(!error.to_string().contains('\u{1b}'));
        }
    }

    #[test]
    fn a_conflict_is_of_one_who_was_quicker_where_it_says_nothing_else() {
        let body = |code: &str| format!("<Error><Code>{code}</Code></Error>");
        for (text, kind) in [
            (body("ConditionalRequestConflict"), "SnapshotNameTaken"),
            (body(""), "SnapshotNameTaken"),
            (String::new(), "SnapshotNameTaken"),
            (body("OperationAborted"), "StoreUnreachable"),
            (body("InvalidBucketState"), "StoreRefused"),
        ] {
            assert_eq!(conflict("a.db", &text).advice(&CALLER).0, kind, "{text}");
        }
    }
}
