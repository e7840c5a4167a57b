//! A bucket of an S3-compatible server.
//!
//! Requests are signed by rusty-s3, which does no more than that, and sent by the client that everything here uses. (`object_store` would
//! bring another client and another crate of times.) An object is written by one request, which takes 5 GiB: etcd's own bound is 8 GiB at
//! most, and its default 2.

use std::time::Duration;

use reqwest::{
    Body, Certificate, Client, Method, Response, StatusCode,
    header::{CONTENT_LENGTH, HeaderValue, IF_NONE_MATCH},
    redirect,
};
use rusty_s3::{
    Credentials, S3Action, UrlStyle,
    actions::{ListObjectsV2, ListObjectsV2Response},
};
use secrecy::{ExposeSecret, SecretString};

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

/// A bucket, as far as one cluster is concerned.
#[derive(Debug)]
pub struct Bucket {
    place: rusty_s3::Bucket,
    credentials: Credentials,
    client: Client,
    prefix: String,
}

impl Bucket {
    /// A bucket that nobody has asked yet.
    ///
    /// # Errors
    ///
    /// The settings are none.
    pub fn new(settings: &Settings, access: &Access) -> Result<Self, Error> {
        let unusable = |why: String| Error::Unusable(why);
        let endpoint = reqwest::Url::parse(&settings.endpoint)
            .map_err(|error| unusable(format!("{} is no URL: {error}", settings.endpoint)))?;
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
        let mut builder = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECTING)
            .read_timeout(SILENCE)
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")));
        if let Some(pem) = &access.authorities {
            let authorities = Certificate::from_pem_bundle(pem)
                .ok()
                .filter(|authorities| !authorities.is_empty())
                .ok_or_else(|| {
                    unusable("what caSecretRef names has no certificate in PEM form".to_owned())
                })?;
            builder = builder.tls_certs_merge(authorities);
        }
        let client = builder.build().map_err(|error| unusable(chain(&error)))?;
        Ok(Self {
            place: bucket,
            credentials,
            client,
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
        let (size, body) = match content {
            Content::Bytes(bytes) => (bytes.len() as u64, Body::from(bytes.to_vec())),
            Content::File(file, size) => {
                if size > LARGEST {
                    return Err(Put::Failed(Error::Unusable(format!(
                        "the snapshot has {size} bytes, and one request takes {LARGEST}"
                    ))));
                }
                let chunks = chunks(file).map_err(|error| Put::Failed(Error::Local(error)))?;
                (size, Body::wrap_stream(chunks))
            }
        };
        let mut request = self
            .client
            .request(Method::PUT, url)
            .header(CONTENT_LENGTH, HeaderValue::from(size))
            .body(body);
        if over == Over::Nothing {
            request = request.header(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
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
    use super::*;

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
            assert_eq!(error.advice().0, kind, "{code} {status}");
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
            assert_eq!(conflict("a.db", &text).advice().0, kind, "{text}");
        }
    }
}
