//! Releases over the network: brought once, and kept in a ConfigMap like any other.
//!
//! What is held already is never asked for again, so an operator that starts anew asks nobody, and what is installed does not change
//! because a server does. Whoever may write providers names the address, so it is a stranger's: only https is spoken, but with
//! registries at addresses that whoever runs the operator has let in, every name is resolved here and only to addresses that [`Policy`] lets pass, the connection goes to the very address that was looked at, and
//! redirects are followed by hand, each by the same rules. What comes is bounded in bytes, packed and unpacked, and in time. No proxy of
//! the environment is used: it would resolve names on its own.
//!
//! A release is kept only when its metadata has its version. One with a broken `metadata.yaml` is asked for again, with growing
//! pauses, and is right as soon as its server is.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use api::provider::{FetchConfig, Kind, Provider, label};
use clusterctl::{
    Object, Overlay, Version,
    source::{Artefact, ConfigMapError, Files, Location, config_map},
};
use controller::{BackOff, Problem};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use registry::Login;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{
    check::given,
    inputs, lent,
    names::{COMPONENTS_DIGEST, COMPONENTS_KEY, FETCHED_FROM, MANAGER, REFETCHED},
    signature::Key,
    source,
};

mod error;
mod http;
mod limit;
mod oci;
mod policy;

pub use error::FetchError;
pub use policy::{Policy, Reach};

/// A release to be brought.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wanted {
    /// The provider.
    pub provider: clusterctl::Provider,
    /// The field that says where it is.
    pub field: String,
    /// What stands there.
    pub url: String,
    /// What that means.
    pub place: Place,
    /// The version. None: the newest one.
    pub version: Option<Version>,
    /// SHA-256 of its components, in hex, if somebody insists on it.
    pub pin: Option<String>,
    /// By whose key they must be signed, if somebody insists on it.
    pub key: Option<Key>,
    /// Series that somebody knows better than its metadata.
    pub overlay: Overlay,
    /// The value for which it is brought anew, where it is held already.
    pub refetch: Option<String>,
}

/// Where a release is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// Files of a server.
    Files(Location),
    /// An artefact of a registry.
    Artefact(Artefact),
}

impl Wanted {
    /// What is to be brought for a provider whose release is not held. None: nothing may be.
    pub fn of<K: Kind>(provider: &Provider<K>, reach: Reach) -> Option<Self> {
        let identity = inputs::provider(K::TYPE, &provider.name_any()).ok()?;
        let (field, url) = match &provider.spec.fetch_config {
            Some(FetchConfig { oci, url, .. }) if reach >= Reach::Named => {
                match (given(oci.as_deref()), given(url.as_deref())) {
                    (Some(oci), None) => ("spec.fetchConfig.oci", oci.to_owned()),
                    (None, Some(url)) => ("spec.fetchConfig.url", url.to_owned()),
                    _ => return None,
                }
            }
            // As the existing operator, which takes known providers from where clusterctl does.
            None if reach >= Reach::Known => (
                "spec.fetchConfig",
                clusterctl::entry(&identity)?.url.clone(),
            ),
            _ => return None,
        };
        let place = if field.ends_with("oci") {
            Place::Artefact(Artefact::parse(&url).ok()?)
        } else {
            Place::Files(Location::parse(&url).ok()?)
        };
        Some(Self {
            provider: identity,
            field: format!("{} {field}", K::TYPE),
            place,
            version: version(provider),
            pin: pin(provider).and_then(Result::ok),
            key: key(provider).and_then(Result::ok),
            overlay: source::overlay(provider).unwrap_or_default(),
            refetch: source::refetch(provider).map(str::to_owned),
            url,
        })
    }

    /// The server that is asked first.
    fn host(&self) -> String {
        match &self.place {
            Place::Files(location) => location.host().to_owned(),
            Place::Artefact(artefact) => artefact.registry.clone(),
        }
    }

    /// Why it was not brought, for people.
    fn problem(&self, error: &FetchError) -> Problem {
        let url = api::text::plain(&self.url, LONGEST_URL);
        let rule = api::text::plain(&controller::chain(error), LONGEST_TEXT);
        Problem::new(&self.field, url, rule, error.remedy())
    }
}

/// The version that a provider is to have: that of its spec, or else that of its address. None: the newest one.
pub fn version<K: Kind>(provider: &Provider<K>) -> Option<Version> {
    if let Some(version) = given(provider.spec.version.as_deref()) {
        return version.parse().ok();
    }
    let FetchConfig { oci, url, .. } = provider.spec.fetch_config.as_ref()?;
    if let Some(oci) = given(oci.as_deref()) {
        return Artefact::parse(oci).ok()?.version();
    }
    Location::parse(given(url.as_deref())?)
        .ok()?
        .version()
        .cloned()
}

/// The address that a release must have been brought from to count: one that names more than a version.
pub fn only_from<K: Kind>(provider: &Provider<K>) -> Option<&str> {
    let oci = given(provider.spec.fetch_config.as_ref()?.oci.as_deref())?;
    let artefact = Artefact::parse(oci).ok()?;
    let names_more =
        artefact.digest.is_some() || (artefact.tag.is_some() && artefact.version().is_none());
    names_more.then_some(oci)
}

/// The digest that a provider's components must have, in hex; its annotation, where that says none.
pub fn pin<K: Kind>(provider: &Provider<K>) -> Option<Result<String, String>> {
    let said = given(
        provider
            .annotations()
            .get(COMPONENTS_DIGEST)
            .map(String::as_str),
    )?;
    let hex = said.strip_prefix("sha256:").unwrap_or_default();
    let is_digest = hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    Some(if is_digest {
        Ok(hex.to_owned())
    } else {
        Err(said.to_owned())
    })
}

/// The key that a provider's components must be signed by; its annotation, where that says none.
pub fn key<K: Kind>(provider: &Provider<K>) -> Option<Result<Key, String>> {
    let said = provider.annotations().get(COMPONENTS_KEY)?;
    Some(said.parse().map_err(|_| said.clone()))
}

/// SHA-256 of a text, in hex.
pub fn digest_of(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

/// Brings releases, and remembers what could not be brought.
#[derive(Debug, Default)]
pub struct Fetcher {
    policy: Policy,
    pauses: BackOff,
    limits: limit::Limits,
    failures: Mutex<HashMap<String, Failure>>,
}

/// A release that could not be brought.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    wanted: Wanted,
    /// Why, with field, value, rule and remedy.
    pub problem: Problem,
    /// When it is tried again.
    pub until: Instant,
}

impl Failure {
    /// How long until it is tried again.
    pub fn pause(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

impl Fetcher {
    /// One that goes where the policy lets it.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// Where it goes.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Brings a release into a ConfigMap of the provider's namespace, unless that failed a moment ago, and gives its version.
    ///
    /// # Errors
    ///
    /// The API refuses the ConfigMap or does not answer. That the release could not be brought is no error: it is the inner one.
    pub async fn bring<K: Kind>(
        &self,
        client: &Client,
        provider: &Provider<K>,
        wanted: &Wanted,
    ) -> Result<Result<Version, Failure>, kube::Error> {
        let namespace = provider.namespace().unwrap_or_default();
        let key = format!("{} {namespace}/{}", K::TYPE, provider.name_any());
        if let Some(failure) = self.failed_lately(&key, wanted) {
            return Ok(Err(failure));
        }
        let login = match wanted.place {
            Place::Artefact(_) => login(client, provider).await?,
            Place::Files(_) => None,
        };
        let (version, map) = match self.made(&namespace, wanted, login).await {
            Ok(made) => made,
            Err(error) => return Ok(Err(self.failed(key, wanted, &error))),
        };
        self.forget(&key);
        keep(client, provider, wanted, &namespace, &map).await?;
        Ok(Ok(version))
    }

    /// A release as its server has it now. Who asks is told to registries alone.
    ///
    /// # Errors
    ///
    /// It is not there, is not what it must be, or does not come.
    pub async fn release(
        &self,
        wanted: &Wanted,
        login: Option<Login>,
    ) -> Result<(Version, Files), FetchError> {
        let host = wanted.host();
        if let Some(limited) = self.limits.of(&host) {
            return Err(limited);
        }
        let fetched = async {
            let policy = &self.policy;
            let (from, version, files) = match &wanted.place {
                Place::Files(location) => http::release(policy, wanted, location).await?,
                Place::Artefact(artefact) => oci::release(policy, wanted, artefact, login).await?,
            };
            checked(wanted, from, &version, &files)?;
            Ok((version, files))
        };
        let fetched = tokio::time::timeout(self.policy.time, fetched).await;
        let fetched = fetched.unwrap_or(Err(FetchError::Late(self.policy.time)));
        if let Err(FetchError::Limited { pause, .. }) = &fetched {
            self.limits.note(host, *pause);
        }
        fetched
    }

    async fn made(
        &self,
        namespace: &str,
        wanted: &Wanted,
        login: Option<Login>,
    ) -> Result<(Version, Object), FetchError> {
        let (version, files) = self.release(wanted, login).await?;
        let map = config_map(&wanted.provider, &version, namespace, &files);
        let map = map.map_err(|error: ConfigMapError| FetchError::Keep(error))?;
        Ok((version, map))
    }

    fn failed_lately(&self, key: &str, wanted: &Wanted) -> Option<Failure> {
        let failures = self.failures.lock();
        let failures = failures.unwrap_or_else(PoisonError::into_inner);
        let failure = failures.get(key)?;
        let is_same = failure.wanted == *wanted && failure.until > Instant::now();
        is_same.then(|| failure.clone())
    }

    fn failed(&self, key: String, wanted: &Wanted, error: &FetchError) -> Failure {
        let problem = wanted.problem(error);
        tracing::warn!(provider = key, %problem, "a release was not brought");
        // A server that is asked for the wrong thing, or has none, is not asked every second.
        let pause = self.pauses.failed(&key).max(match error {
            FetchError::Limited { pause, .. } => *pause,
            _ => SHORTEST_PAUSE,
        });
        let failure = Failure {
            wanted: wanted.clone(),
            problem,
            until: Instant::now() + pause,
        };
        let failures = self.failures.lock();
        let mut failures = failures.unwrap_or_else(PoisonError::into_inner);
        failures.insert(key, failure.clone());
        failure
    }

    fn forget(&self, key: &str) {
        self.pauses.reset(key);
        let failures = self.failures.lock();
        failures.unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// What cannot be installed is not kept either: it may be mended where it comes from.
fn checked(
    wanted: &Wanted,
    from: String,
    version: &Version,
    files: &Files,
) -> Result<(), FetchError> {
    if let Some(pinned) = &wanted.pin {
        let found = digest_of(&files.components);
        if found != *pinned {
            let pinned = pinned.clone();
            return Err(FetchError::Digest { found, pinned });
        }
    }
    if let Some(key) = &wanted.key {
        key.verify(&files.components, files.signature.as_deref())
            .map_err(FetchError::Unsigned)?;
    }
    let read = files.metadata();
    let read = read.map(|metadata| metadata.overlaid(&wanted.overlay));
    read.and_then(|metadata| metadata.contract(version).map(drop))
        .map_err(|source| FetchError::Metadata(from, source))
}

/// Who asks a registry, as the Secret with the provider's variables says it.
async fn login<K: Kind>(
    client: &Client,
    provider: &Provider<K>,
) -> Result<Option<Login>, kube::Error> {
    let Some(reference) = &provider.spec.config_secret else {
        return Ok(None);
    };
    let own = provider.namespace().unwrap_or_default();
    let namespace = given(reference.namespace.as_deref()).unwrap_or(&own);
    let secret = Api::<Secret>::namespaced(client.clone(), namespace)
        .get_opt(&reference.name)
        .await?;
    let secret = secret.filter(|secret| lent::is_lent(&secret.metadata, &own));
    let data = secret.and_then(|secret| secret.data).unwrap_or_default();
    Ok(login_of(|key| {
        let text = String::from_utf8(data.get(key)?.0.clone()).ok()?;
        Some(text.trim().to_owned())
    }))
}

/// Who asks a registry, of what stands under the names that the existing operator and its plugin have for it.
pub fn login_of(value: impl Fn(&str) -> Option<String>) -> Option<Login> {
    let value = |key| value(key).filter(|text| !text.is_empty());
    if let Some(token) = value("OCI_ACCESS_TOKEN") {
        return Some(Login::Access(token));
    }
    if let Some(token) = value("OCI_REFRESH_TOKEN") {
        return Some(Login::Refresh(token));
    }
    Some(Login::Password {
        user: value("OCI_USERNAME")?,
        password: value("OCI_PASSWORD").unwrap_or_default(),
    })
}

/// Keeps it as the existing operator would, until its provider is gone.
async fn keep<K: Kind>(
    client: &Client,
    provider: &Provider<K>,
    wanted: &Wanted,
    namespace: &str,
    map: &Object,
) -> Result<(), kube::Error> {
    let mut value = map.value().clone();
    if let Some(metadata) = value
        .get_mut("metadata")
        .and_then(|meta| meta.as_object_mut())
    {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(FETCHED_FROM.to_owned(), json!(wanted.url));
            if let Some(refetch) = &wanted.refetch {
                annotations.insert(REFETCHED.to_owned(), json!(refetch));
            }
        }
        if let (Place::Artefact(_), Some(labels)) = (
            &wanted.place,
            metadata
                .get_mut("labels")
                .and_then(|labels| labels.as_object_mut()),
        ) {
            labels.insert(label::SOURCE.to_owned(), json!("oci"));
        }
        metadata.insert(
            "ownerReferences".to_owned(),
            json!(provider.owner_ref(&()).into_iter().collect::<Vec<_>>()),
        );
    }
    Api::<ConfigMap>::namespaced(client.clone(), namespace)
        .patch(
            map.name(),
            &PatchParams::apply(MANAGER).force(),
            &Patch::Apply(&value),
        )
        .await
        .map(drop)
}

const LONGEST_URL: usize = 256;
const LONGEST_TEXT: usize = 1024;
/// How soon a release that could not be brought is asked for again, at the soonest.
const SHORTEST_PAUSE: Duration = Duration::from_secs(5);
