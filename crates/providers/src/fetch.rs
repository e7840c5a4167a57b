//! Releases over the network: brought once, and kept in a ConfigMap like any other.
//!
//! What is held already is never asked for again, so an operator that starts anew asks nobody, and what is installed does not change
//! because a server does. Whoever may write providers names the address, so it is a stranger's: only https is spoken, every name is
//! resolved here and only to addresses that [`Policy`] lets pass, the connection goes to the very address that was looked at, and
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

use api::provider::{FetchConfig, Kind, Provider};
use clusterctl::{
    Object, Version,
    source::{ConfigMapError, Files, Location, config_map},
};
use controller::{BackOff, Problem};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{
    check::given,
    inputs,
    names::{COMPONENTS_DIGEST, FETCHED_FROM, MANAGER},
};

mod error;
mod http;
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
    pub location: Location,
    /// The version. None: the newest one.
    pub version: Option<Version>,
    /// SHA-256 of its components, in hex, if somebody insists on it.
    pub pin: Option<String>,
}

impl Wanted {
    /// What is to be brought for a provider whose release is not held. None: nothing may be.
    pub fn of<K: Kind>(provider: &Provider<K>, reach: Reach) -> Option<Self> {
        let identity = inputs::provider(K::TYPE, &provider.name_any()).ok()?;
        let (field, url) = match &provider.spec.fetch_config {
            Some(FetchConfig { url, .. }) if reach >= Reach::Named => {
                ("spec.fetchConfig.url", given(url.as_deref())?.to_owned())
            }
            // As the existing operator, which takes known providers from where clusterctl does.
            None if reach >= Reach::Known => (
                "spec.fetchConfig",
                clusterctl::entry(&identity)?.url.clone(),
            ),
            _ => return None,
        };
        Some(Self {
            provider: identity,
            field: format!("{} {field}", K::TYPE),
            location: Location::parse(&url).ok()?,
            version: version(provider),
            pin: pin(provider).and_then(Result::ok),
            url,
        })
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
    let url = provider.spec.fetch_config.as_ref()?.url.as_deref();
    Location::parse(given(url)?).ok()?.version().cloned()
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

/// SHA-256 of a text, in hex.
pub fn digest_of(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

/// Brings releases, and remembers what could not be brought.
#[derive(Debug, Default)]
pub struct Fetcher {
    policy: Policy,
    pauses: BackOff,
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
        let (version, map) = match self.made(&namespace, wanted).await {
            Ok(made) => made,
            Err(error) => return Ok(Err(self.failed(key, wanted, &error))),
        };
        self.forget(&key);
        keep(client, provider, wanted, &namespace, &map).await?;
        Ok(Ok(version))
    }

    /// A release as its server has it now.
    ///
    /// # Errors
    ///
    /// It is not there, is not what it must be, or does not come.
    pub async fn release(&self, wanted: &Wanted) -> Result<(Version, Files), FetchError> {
        let fetched = http::release(&self.policy, wanted);
        let fetched = tokio::time::timeout(self.policy.time, fetched).await;
        fetched.unwrap_or(Err(FetchError::Late(self.policy.time)))
    }

    async fn made(
        &self,
        namespace: &str,
        wanted: &Wanted,
    ) -> Result<(Version, Object), FetchError> {
        let (version, files) = self.release(wanted).await?;
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
        let pause = self.pauses.failed(&key).max(SHORTEST_PAUSE);
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
