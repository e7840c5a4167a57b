//! Registries of images and artefacts, read: nothing that one says is held in memory beyond its bound, or believed without its digest.
//!
//! Who sends the requests is a [`Transport`]: it decides which addresses are reached, whom to trust and which redirects to follow.
//!
//! # Source
//! The distribution specification of the Open Container Initiative, 1.1; of tokens, "Token Authentication Specification" and "OAuth2
//! Token Authentication" of the distribution project.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use reqwest::{Request, Response, Url};
use serde::Deserialize;
use tokio::sync::Mutex;

mod challenge;
mod manifest;
pub mod publish;

use challenge::Challenge;
pub use manifest::{Descriptor, Manifest};

/// The longest manifest that is read, in bytes. The largest one that a registry must take.
pub const LARGEST_MANIFEST: u64 = 4 << 20;
/// The longest token, with what stands beside it: real ones have some thousand bytes.
const LARGEST_TOKEN: u64 = 64 << 10;

/// Who sends requests.
pub trait Transport: Sync {
    /// Why a request has no answer.
    type Error: Send;

    /// Sends a request. The answer is that to which redirects lead.
    fn send(&self, request: Request) -> impl Future<Output = Result<Response, Self::Error>> + Send;

    /// What an error of a connection is that breaks in the middle of an answer.
    fn broken(&self, error: reqwest::Error) -> Self::Error;
}

/// Why a registry does not give something.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refusal<E> {
    /// It does not have it.
    Missing,
    /// It wants to know who asks, or does not let them.
    Login,
    /// It is not reached, or not to the end.
    Unsent(E),
    /// Anything else; the registry may answer the same again, or not.
    Other(String),
}

/// Who asks.
#[derive(Clone)]
pub enum Login {
    /// Somebody with a password.
    Password {
        /// Their name.
        user: String,
        /// It.
        password: String,
    },
    /// Whoever has this token, which the registry itself takes.
    Access(String),
    /// Whoever has this token, for which another one is given.
    Refresh(String),
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Password { .. } => "Password",
            Self::Access(_) => "Access",
            Self::Refresh(_) => "Refresh",
        })
    }
}

/// Which repository of which registry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// The registry's host and port.
    pub registry: String,
    /// The name of the repository there.
    pub repository: String,
    /// Whether the registry is asked by http.
    pub clear: bool,
}

/// A repository of a registry.
pub struct Repository<T> {
    transport: T,
    place: Place,
    login: Option<Login>,
    /// What the registry wants to see, once it has said so.
    authorization: Mutex<Option<HeaderValue>>,
}

impl<T: Transport> Repository<T> {
    /// One that is asked by anybody, or by somebody.
    pub fn new(transport: T, place: Place, login: Option<Login>) -> Self {
        Self {
            transport,
            place,
            login,
            authorization: Mutex::default(),
        }
    }

    /// The bytes of a manifest by its tag or digest, and their digest, which is the one that was asked for, if one was.
    ///
    /// # Errors
    ///
    /// The registry does not give it, or gives another one.
    pub async fn manifest(&self, what: &str) -> Result<(Vec<u8>, String), Refusal<T::Error>> {
        let mut accepted = HeaderMap::new();
        for kind in manifest::ACCEPTED {
            accepted.append(header::ACCEPT, HeaderValue::from_static(kind));
        }
        let path = format!("manifests/{what}");
        let response = self.ask(Method::GET, &path, &accepted).await?;
        judged(response.status())?;
        let bytes = self
            .bounded(response, LARGEST_MANIFEST, "its manifest")
            .await?;
        let digest = format!("sha256:{}", hex_of(&bytes));
        if hex_digest(what).is_some() && digest != what {
            return Err(Refusal::Other(format!(
                "its manifest has the digest {digest}"
            )));
        }
        Ok((bytes, digest))
    }

    /// Whether a blob is there.
    ///
    /// # Errors
    ///
    /// The registry does not say.
    pub async fn has_blob(&self, digest: &str) -> Result<bool, Refusal<T::Error>> {
        let path = format!("blobs/{digest}");
        let response = self.ask(Method::HEAD, &path, &HeaderMap::new()).await?;
        match judged(response.status()) {
            Ok(()) => Ok(true),
            Err(Refusal::Missing) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// A blob from so many bytes on, whatever the registry answers.
    ///
    /// # Errors
    ///
    /// It does not answer.
    pub async fn blob(&self, digest: &str, have: u64) -> Result<Response, Refusal<T::Error>> {
        let mut headers = HeaderMap::new();
        if have > 0
            && let Ok(range) = HeaderValue::from_str(&format!("bytes={have}-"))
        {
            headers.insert(header::RANGE, range);
        }
        let path = format!("blobs/{digest}");
        self.ask(Method::GET, &path, &headers).await
    }

    /// All of a blob that is small enough, and is what its digest says.
    ///
    /// # Errors
    ///
    /// The registry does not give it, or gives another one, or it is too much.
    pub async fn small_blob(&self, digest: &str, most: u64) -> Result<Vec<u8>, Refusal<T::Error>> {
        let response = self.blob(digest, 0).await?;
        judged(response.status())?;
        let bytes = self
            .bounded(response, most, &format!("its part {digest}"))
            .await?;
        let found = format!("sha256:{}", hex_of(&bytes));
        if found != digest {
            let what = format!("its part {digest} has the digest {found}");
            return Err(Refusal::Other(what));
        }
        Ok(bytes)
    }

    /// Asks, and once more as the registry wants to be asked.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Response, Refusal<T::Error>> {
        let scheme = if self.place.clear { "http" } else { "https" };
        // As every client of registries reads it.
        let registry = match self.place.registry.as_str() {
            "docker.io" => "registry-1.docker.io",
            other => other,
        };
        let repository = &self.place.repository;
        let url = format!("{scheme}://{registry}/v2/{repository}/{path}");
        let url = Url::parse(&url).map_err(|error| Refusal::Other(error.to_string()))?;
        let send = async |authorization: Option<HeaderValue>| {
            let mut request = Request::new(method.clone(), url.clone());
            request.headers_mut().extend(headers.clone());
            if let Some(authorization) = authorization {
                request
                    .headers_mut()
                    .insert(header::AUTHORIZATION, authorization);
            }
            self.transport.send(request).await.map_err(Refusal::Unsent)
        };
        let held = self.authorization.lock().await.clone();
        let response = send(held).await?;
        // Whoever a redirect led to is not asked who may see the login.
        let is_its = response.url().origin() == url.origin();
        let wanted = (is_its && response.status() == StatusCode::UNAUTHORIZED)
            .then(|| Challenge::of(&response))
            .flatten();
        let Some(challenge) = wanted else {
            return Ok(response);
        };
        let authorization = self.authorized(&challenge).await?;
        *self.authorization.lock().await = Some(authorization.clone());
        send(Some(authorization)).await
    }

    async fn authorized(&self, challenge: &Challenge) -> Result<HeaderValue, Refusal<T::Error>> {
        match (challenge, &self.login) {
            (Challenge::Basic, Some(Login::Password { user, password })) => basic(user, password),
            (Challenge::Basic, _) => Err(Refusal::Login),
            (Challenge::Bearer { .. }, Some(Login::Access(token))) => bearer(token),
            (Challenge::Bearer { realm, service }, login) => {
                let token = self.given(realm, service.as_deref(), login.as_ref());
                bearer(&token.await?)
            }
        }
    }

    /// The token that somebody gives who the registry names.
    async fn given(
        &self,
        realm: &Url,
        service: Option<&str>,
        login: Option<&Login>,
    ) -> Result<String, Refusal<T::Error>> {
        let by = api::text::plain(realm.host_str().unwrap_or_default(), 200);
        if realm.scheme() != "https" && !self.place.clear {
            return Err(Refusal::Other(format!(
                "its tokens are given in the clear by {by}"
            )));
        }
        let request = self.request_of_token(realm, service, login)?;
        let response = self
            .transport
            .send(request)
            .await
            .map_err(Refusal::Unsent)?;
        match judged(response.status()) {
            Err(Refusal::Other(said)) => {
                return Err(Refusal::Other(format!("{by} gives no token: {said}")));
            }
            other => other?,
        }
        let bytes = self.bounded(response, LARGEST_TOKEN, "its token").await?;
        let given: Given = serde_json::from_slice(&bytes)
            .map_err(|_| Refusal::Other(format!("{by} gives no token that can be read")))?;
        let token = given.token.or(given.access_token);
        token.ok_or_else(|| Refusal::Other(format!("{by} gives no token")))
    }

    fn request_of_token(
        &self,
        realm: &Url,
        service: Option<&str>,
        login: Option<&Login>,
    ) -> Result<Request, Refusal<T::Error>> {
        let scope = format!("repository:{}:pull", self.place.repository);
        let mut asked = vec![("scope", scope.as_str())];
        asked.extend(service.map(|service| ("service", service)));
        let Some(Login::Refresh(token)) = login else {
            let mut url = realm.clone();
            url.query_pairs_mut().extend_pairs(asked);
            let mut request = Request::new(Method::GET, url);
            if let Some(Login::Password { user, password }) = login {
                let authorization = basic(user, password)?;
                request
                    .headers_mut()
                    .insert(header::AUTHORIZATION, authorization);
            }
            return Ok(request);
        };
        asked.extend([
            ("grant_type", "refresh_token"),
            ("client_id", "windlass"),
            ("refresh_token", token),
        ]);
        // The encoding of a query is that of a form.
        let mut form = realm.clone();
        form.query_pairs_mut().clear().extend_pairs(asked);
        let form = form.query().unwrap_or_default().to_owned();
        let mut request = Request::new(Method::POST, realm.clone());
        request.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        *request.body_mut() = Some(form.into());
        Ok(request)
    }

    /// All of an answer, of which no more is read than may come.
    async fn bounded(
        &self,
        mut response: Response,
        most: u64,
        what: &str,
    ) -> Result<Vec<u8>, Refusal<T::Error>> {
        let mut bytes = Vec::new();
        let broken = |error| Refusal::Unsent(self.transport.broken(error));
        while let Some(part) = response.chunk().await.map_err(broken)? {
            bytes.extend_from_slice(&part);
            if bytes.len() as u64 > most {
                return Err(Refusal::Other(format!(
                    "{what} is larger than {} KiB",
                    most >> 10
                )));
            }
        }
        Ok(bytes)
    }
}

#[derive(Deserialize)]
struct Given {
    token: Option<String>,
    access_token: Option<String>,
}

fn basic<E>(user: &str, password: &str) -> Result<HeaderValue, Refusal<E>> {
    sensitive(&format!(
        "Basic {}",
        STANDARD.encode(format!("{user}:{password}"))
    ))
}

fn bearer<E>(token: &str) -> Result<HeaderValue, Refusal<E>> {
    sensitive(&format!("Bearer {token}"))
}

fn sensitive<E>(text: &str) -> Result<HeaderValue, Refusal<E>> {
    let value = HeaderValue::from_str(text);
    let mut value = value.map_err(|_| Refusal::Other("its token is no line of text".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn judged<E>(status: StatusCode) -> Result<(), Refusal<E>> {
    match status {
        status if status.is_success() => Ok(()),
        StatusCode::NOT_FOUND | StatusCode::GONE => Err(Refusal::Missing),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Refusal::Login),
        status => Err(Refusal::Other(format!("it answers {status}"))),
    }
}

/// The digest of bytes by SHA-256, in hex.
pub fn hex_of(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    hex::encode(sha2::Sha256::digest(bytes))
}

/// The hex digits of a digest by SHA-256.
pub fn hex_digest(text: &str) -> Option<&str> {
    let hex = text.strip_prefix("sha256:")?;
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (hex.len() == 64 && hex.bytes().all(is_hex)).then_some(hex)
}
