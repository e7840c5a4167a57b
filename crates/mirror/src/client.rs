//! Requests: for files over HTTP, for images to registries.

use std::{net::IpAddr, time::Duration};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use reqwest::{ClientBuilder, Response, Url, redirect};
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::{
    chain,
    list::{Endpoint, hex_digest},
};

/// How long a connection may take to be made.
pub(crate) const CONNECTING: Duration = Duration::from_secs(15);
/// How long a server may be silent.
pub(crate) const SILENCE: Duration = Duration::from_mins(1);
/// How many redirects are followed.
const REDIRECTS: usize = 10;

/// A client for files. It is led by https to no place that is not.
///
/// # Errors
///
/// The machine's certificates cannot be read.
pub(crate) fn files() -> Result<reqwest::Client, reqwest::Error> {
    builder().build()
}

fn builder() -> ClientBuilder {
    provide();
    let follow = redirect::Policy::custom(|attempt| {
        let before = attempt.previous().last().map(reqwest::Url::scheme);
        if attempt.previous().len() > REDIRECTS {
            attempt.error("there are too many redirects")
        } else if before == Some("https") && attempt.url().scheme() != "https" {
            let to = attempt.url().host_str().unwrap_or_default().to_owned();
            attempt.error(format!("a redirect leads from https to {to} in the clear"))
        } else {
            attempt.follow()
        }
    });
    reqwest::Client::builder()
        .redirect(follow)
        .connect_timeout(CONNECTING)
        .read_timeout(SILENCE)
        .user_agent(AGENT)
}

pub(crate) const AGENT: &str = concat!("windlass/", env!("CARGO_PKG_VERSION"));

pub(crate) fn provide() {
    // Fails when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// An address, without a password that it may have.
pub(crate) fn shown(url: &reqwest::Url) -> String {
    let mut url = url.clone();
    let _ = url.set_password(None);
    let _ = url.set_username("");
    api::text::plain(url.as_str(), 400)
}

/// Whether a registry is on this machine, and asked without TLS, as clients of registries do.
pub(crate) fn is_loopback(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// A repository of a registry that is read from. Nothing that a registry says is held in memory beyond its bound.
pub(crate) struct Repository {
    client: reqwest::Client,
    endpoint: Endpoint,
    /// What the registry gives to anybody who asks, and wants to see then.
    token: Mutex<Option<String>>,
}

/// Why a registry does not give something.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// It does not have it.
    Missing,
    /// It wants to know who asks.
    Login,
    /// Anything else; the registry may answer the same again, or not.
    Other(String),
}

impl Repository {
    /// # Errors
    ///
    /// The machine's certificates cannot be read.
    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, reqwest::Error> {
        let client = builder().danger_accept_invalid_certs(endpoint.unverified);
        Ok(Self {
            client: client.build()?,
            endpoint: endpoint.clone(),
            token: Mutex::default(),
        })
    }

    /// The bytes of a manifest, which have that digest where one is asked for.
    pub(crate) async fn manifest(&self, what: &str) -> Result<(Vec<u8>, String), Refusal> {
        let mut accepted = HeaderMap::new();
        for kind in ACCEPTED {
            accepted.append(header::ACCEPT, HeaderValue::from_static(kind));
        }
        let path = format!("manifests/{what}");
        let response = self.ask(Method::GET, &path, &accepted).await?;
        judged(response.status())?;
        let bytes = bounded(response, crate::store::MANIFEST, "its manifest").await?;
        let digest = format!("sha256:{}", hex_of(&bytes));
        if hex_digest(what).is_some() && digest != what {
            return Err(Refusal::Other(format!(
                "its manifest has the digest {digest}"
            )));
        }
        Ok((bytes, digest))
    }

    /// Whether a blob is there.
    pub(crate) async fn has_blob(&self, digest: &str) -> Result<bool, Refusal> {
        let path = format!("blobs/{digest}");
        let response = self.ask(Method::HEAD, &path, &HeaderMap::new()).await?;
        match judged(response.status()) {
            Ok(()) => Ok(true),
            Err(Refusal::Missing) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// A blob from so many bytes on, whatever the registry answers.
    pub(crate) async fn blob(&self, digest: &str, have: u64) -> Result<Response, Refusal> {
        let mut headers = HeaderMap::new();
        if have > 0
            && let Ok(range) = HeaderValue::from_str(&format!("bytes={have}-"))
        {
            headers.insert(header::RANGE, range);
        }
        let path = format!("blobs/{digest}");
        self.ask(Method::GET, &path, &headers).await
    }

    /// Asks, and once more with a token where the registry wants one.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Response, Refusal> {
        let scheme = if self.endpoint.clear { "http" } else { "https" };
        // As every client of registries reads it.
        let registry = match self.endpoint.registry.as_str() {
            "docker.io" => "registry-1.docker.io",
            other => other,
        };
        let repository = &self.endpoint.repository;
        let url = format!("{scheme}://{registry}/v2/{repository}/{path}");
        let url = Url::parse(&url).map_err(|error| Refusal::Other(error.to_string()))?;
        let send = async |token: Option<&str>| {
            let mut request = self.client.request(method.clone(), url.clone());
            request = request.headers(headers.clone());
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            request.send().await.map_err(unreached)
        };
        let held = self.token.lock().await.clone();
        let response = send(held.as_deref()).await?;
        let wanted = (response.status() == StatusCode::UNAUTHORIZED)
            .then(|| Challenge::of(&response))
            .flatten();
        let Some(challenge) = wanted else {
            return Ok(response);
        };
        let token = self.give_token(&challenge).await?;
        *self.token.lock().await = Some(token.clone());
        send(Some(&token)).await
    }

    async fn give_token(&self, challenge: &Challenge) -> Result<String, Refusal> {
        let realm = &challenge.realm;
        let by = api::text::plain(realm.host_str().unwrap_or_default(), 200);
        let is_clear = realm.scheme() != "https";
        if is_clear && !self.endpoint.clear {
            return Err(Refusal::Other(format!(
                "its tokens are given in the clear by {by}"
            )));
        }
        let scope = format!("repository:{}:pull", self.endpoint.repository);
        let mut url = realm.clone();
        url.query_pairs_mut().append_pair("scope", &scope);
        if let Some(service) = &challenge.service {
            url.query_pairs_mut().append_pair("service", service);
        }
        let response = self.client.get(url).send().await.map_err(unreached)?;
        match judged(response.status()) {
            Err(Refusal::Other(said)) => {
                return Err(Refusal::Other(format!("{by} gives no token: {said}")));
            }
            other => other?,
        }
        let bytes = bounded(response, TOKEN, "its token").await?;
        let given: Given = serde_json::from_slice(&bytes)
            .map_err(|_| Refusal::Other(format!("{by} gives no token that can be read")))?;
        let token = given.token.or(given.access_token);
        token.ok_or_else(|| Refusal::Other(format!("{by} gives no token")))
    }
}

/// The longest token, with what stands beside it: real ones have some thousand bytes.
const TOKEN: u64 = 64 << 10;

#[derive(Deserialize)]
struct Given {
    token: Option<String>,
    access_token: Option<String>,
}

/// Who gives a token to anybody, as a registry says.
struct Challenge {
    realm: Url,
    service: Option<String>,
}

impl Challenge {
    fn of(response: &Response) -> Option<Self> {
        let told = response.headers().get(header::WWW_AUTHENTICATE)?;
        Self::read(told.to_str().ok()?)
    }

    /// `Bearer realm="URL",service="NAME"`; none: it is of another kind.
    fn read(text: &str) -> Option<Self> {
        let (scheme, rest) = text.trim().split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let value = |wanted: &str| {
            let mut rest = rest;
            while let Some((name, after)) = rest.split_once('=') {
                let (value, left) = match after.strip_prefix('"') {
                    Some(quoted) => quoted.split_once('"')?,
                    None => after.split_once(',').unwrap_or((after, "")),
                };
                let name = name.trim_matches([',', ' ']);
                if name.eq_ignore_ascii_case(wanted) {
                    return Some(value.to_owned());
                }
                rest = left;
            }
            None
        };
        let realm = Url::parse(&value("realm")?).ok()?;
        matches!(realm.scheme(), "http" | "https").then_some(())?;
        Some(Self {
            realm,
            service: value("service"),
        })
    }
}

fn unreached(error: reqwest::Error) -> Refusal {
    Refusal::Other(chain(&error.without_url()))
}

fn judged(status: StatusCode) -> Result<(), Refusal> {
    match status {
        status if status.is_success() => Ok(()),
        StatusCode::NOT_FOUND | StatusCode::GONE => Err(Refusal::Missing),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Refusal::Login),
        status => Err(Refusal::Other(format!("it answers {status}"))),
    }
}

/// All of an answer, of which no more is read than may come.
async fn bounded(mut response: Response, most: u64, what: &str) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    while let Some(part) = response.chunk().await.map_err(unreached)? {
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

/// The digest of bytes, in hex.
pub(crate) fn hex_of(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    hex::encode(sha2::Sha256::digest(bytes))
}

const INDEXES: [&str; 2] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// What manifests may be.
const ACCEPTED: &[&str] = &[
    INDEXES[0],
    INDEXES[1],
    MANIFEST,
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// How many parts a manifest may name: real ones have some dozens.
const DESCRIPTORS: usize = 512;
/// The largest part.
const LARGEST: u64 = 16 << 30;

/// What a manifest says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    media_type: Option<String>,
    /// Those of an index, one for each platform.
    #[serde(default)]
    pub(crate) manifests: Vec<Descriptor>,
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

/// What a manifest says of another file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) digest: String,
    pub(crate) size: u64,
    platform: Option<Platform>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

impl Manifest {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let manifest: Self = serde_json::from_slice(bytes)
            .map_err(|error| format!("its manifest cannot be read: {error}"))?;
        let all = manifest.manifests.iter().chain(manifest.blobs());
        if let Some(other) = all
            .map(|one| &one.digest)
            .find(|digest| hex_digest(digest).is_none())
        {
            let other = api::text::plain(other, 80);
            return Err(format!(
                "its manifest names {other:?}, which is no digest by SHA-256"
            ));
        }
        let all = || manifest.manifests.iter().chain(manifest.blobs());
        if all().count() > DESCRIPTORS {
            return Err(format!("its manifest names more than {DESCRIPTORS} parts"));
        }
        if let Some(large) = all().find(|one| one.size > LARGEST) {
            return Err(format!(
                "its part {} is said to have {} bytes: more than {} GiB are not fetched",
                large.digest,
                large.size,
                LARGEST >> 30
            ));
        }
        if manifest.manifests.is_empty() && manifest.config.is_none() {
            return Err("its manifest is of a kind that is not used any more".to_owned());
        }
        Ok(manifest)
    }

    /// The kind that a registry says it has.
    pub(crate) fn kind(&self) -> &str {
        let implied = if self.is_index() {
            INDEXES[0]
        } else {
            MANIFEST
        };
        let said = self.media_type.as_deref();
        said.filter(|said| ACCEPTED.contains(said))
            .unwrap_or(implied)
    }

    pub(crate) fn is_index(&self) -> bool {
        !self.manifests.is_empty()
    }

    /// Configuration and layers.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        self.config.iter().chain(&self.layers)
    }

    /// The manifest of an index for Linux on a processor.
    pub(crate) fn of_platform(&self, architecture: &str) -> Option<&Descriptor> {
        self.manifests.iter().find(|one| {
            let platform = one.platform.clone().unwrap_or_default();
            platform.os == "linux" && platform.architecture == architecture
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_tokens_is_read_from_what_registries_say() {
        let read = |text: &str| {
            let read = Challenge::read(text);
            read.map(|read| (read.realm.to_string(), read.service.unwrap_or_default()))
        };
        let told = |realm: &str, service: &str| Some((realm.to_owned(), service.to_owned()));
        for (text, expected) in [
            (
                "Bearer realm=\"https://a.example/token\",service=\"r.example\",scope=\"repository:a,b:pull\"",
                told("https://a.example/token", "r.example"),
            ),
            (
                "bearer scope=\"a=b,c\", service=r.example, realm=https://a.example/",
                told("https://a.example/", "r.example"),
            ),
            (
                "Bearer realm=\"https://a.example/t\"",
                told("https://a.example/t", ""),
            ),
            ("Basic realm=\"https://a.example/token\"", None),
            ("Bearer realm=\"file:///etc/passwd\"", None),
            ("Bearer realm=\"https://a.example", None),
            ("Bearer", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
