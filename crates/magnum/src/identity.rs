//! Who asks: a token, and what Keystone says of it.
//!
//! A token vouches for itself: Keystone lets its bearer validate it, so nothing is kept here that could be stolen, no service user
//! and no password. What Keystone said is remembered for ten seconds, by the digest of the token, and never beyond the token's
//! end. Where Keystone does not answer, nobody whom it has not just vouched for gets in.
//!
//! # Source
//! Identity API v3, `GET /v3/auth/tokens`; keystonemiddleware for what clients are answered.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{BoxError, http::HeaderMap};
use futures::StreamExt as _;
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::contract::Fault;

/// How long an answer of Keystone is good: a revoked token works so long at most.
const REMEMBERED: Duration = Duration::from_secs(10);
/// How long Keystone may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many tokens are remembered.
const MOST: usize = 10_000;
/// The longest token, and the longest answer about one, in bytes.
const LONGEST_TOKEN: usize = 16_384;
const LONGEST_ANSWER: usize = 4 << 20;

/// Who asks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Caller {
    /// The user.
    pub user_id: String,
    /// The project that the token is for.
    pub project_id: String,
    /// The roles that the user has there, in lower case.
    pub roles: BTreeSet<String>,
}

/// Why there is no Keystone to ask.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The address is none of http or https.
    #[error("use {0} as the address of Keystone: it is no http or https URL")]
    Address(String),
    /// No client can be made.
    #[error("make a client of Keystone")]
    Client(#[source] reqwest::Error),
}

/// Keystone.
#[derive(Debug)]
pub struct Keystone {
    pub(crate) client: reqwest::Client,
    address: String,
    region: Option<String>,
    remembered: Mutex<HashMap<[u8; 32], Remembered>>,
}

#[derive(Clone, Debug)]
struct Remembered {
    until: Instant,
    vouched: Vouched,
}

/// What Keystone says of a token. The project is none where the token is for a domain, for the whole system or for nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Vouched {
    user_id: String,
    project_id: Option<String>,
    roles: BTreeSet<String>,
    expires: Timestamp,
}

impl Keystone {
    /// Of this address, with or without `/v3` at its end.
    ///
    /// # Errors
    ///
    /// The address is no http or https URL, or no client can be made.
    pub fn new(address: &str) -> Result<Self, IdentityError> {
        let is_url = |scheme| {
            address
                .strip_prefix(scheme)
                .is_some_and(|rest: &str| !rest.is_empty())
        };
        if !is_url("http://") && !is_url("https://") {
            return Err(IdentityError::Address(address.to_owned()));
        }
        let address = address.trim_end_matches('/');
        let address = address.strip_suffix("/v3").unwrap_or(address);
        let client = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(IdentityError::Client)?;
        Ok(Self {
            client,
            address: address.to_owned(),
            region: None,
            remembered: Mutex::default(),
        })
    }

    /// Of whose catalogue only what is in this region is used. None: there is one region.
    #[must_use]
    pub fn in_region(self, region: Option<String>) -> Self {
        Self { region, ..self }
    }

    /// Where clients get a token.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The region whose services are used, if one was named.
    pub(crate) fn region(&self) -> Option<&str> {
        self.region.as_deref()
    }

    /// Who asks with these headers.
    ///
    /// # Errors
    ///
    /// There is no token, or Keystone does not vouch for it or for the service that handed it on, or it is for no project; or
    /// Keystone does not answer.
    pub async fn caller(&self, headers: &HeaderMap) -> Result<Caller, Fault> {
        let token = own_token(headers).ok_or(Fault::Unauthenticated)?;
        let vouched = self.vouched(token).await?;
        if headers.contains_key("x-service-token") {
            let token = self::token(headers, "x-service-token").ok_or(Fault::Unauthenticated)?;
            self.vouched(token).await?;
        }
        let Some(project_id) = vouched.project_id else {
            return Err(Fault::forbidden(
                "The token is for no project. Ask for one that is for a project.",
            ));
        };
        Ok(Caller {
            user_id: vouched.user_id,
            project_id,
            roles: vouched.roles,
        })
    }

    async fn vouched(&self, token: &str) -> Result<Vouched, Fault> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        if let Some(vouched) = self.remembered(&digest) {
            return valid(vouched);
        }
        let vouched = valid(self.ask(token).await?)?;
        self.remember(digest, vouched.clone());
        Ok(vouched)
    }

    fn remembered(&self, digest: &[u8; 32]) -> Option<Vouched> {
        let remembered = self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = remembered.get(digest)?;
        (known.until > Instant::now()).then(|| known.vouched.clone())
    }

    fn remember(&self, digest: [u8; 32], vouched: Vouched) {
        let mut remembered = self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MOST {
            let now = Instant::now();
            remembered.retain(|_, known| known.until > now);
        }
        // Still full: so many are asking at once that one more question to Keystone is the smaller evil.
        if remembered.len() < MOST {
            let until = Instant::now() + REMEMBERED;
            remembered.insert(digest, Remembered { until, vouched });
        }
    }

    async fn ask(&self, token: &str) -> Result<Vouched, Fault> {
        let asked = self
            .client
            .get(format!("{}/v3/auth/tokens?nocatalog", self.address))
            .header("x-auth-token", token)
            .header("x-subject-token", token)
            .send()
            .await;
        let answer = asked.map_err(|error| unavailable(&error))?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => {
                return Err(Fault::Unauthenticated);
            }
            status => {
                tracing::warn!(%status, "Keystone does not tell who asks");
                return Err(Fault::IdentityUnavailable);
            }
        }
        let body = bounded(answer).await;
        let body = body.map_err(|error| unavailable(&*error))?;
        let answer: Answer = serde_json::from_slice(&body).map_err(|error| unavailable(&error))?;
        Ok(answer.token.into())
    }
}

/// An answer has more than it should.
#[derive(Debug, thiserror::Error)]
#[error("the answer is longer than {LONGEST_ANSWER} bytes")]
struct TooLong;

/// The body, up to a bound: what says it is Keystone may send anything.
pub(crate) async fn bounded(answer: reqwest::Response) -> Result<Vec<u8>, BoxError> {
    let mut body = Vec::new();
    let mut parts = answer.bytes_stream();
    while let Some(part) = parts.next().await {
        body.extend_from_slice(&part?);
        if body.len() > LONGEST_ANSWER {
            return Err(TooLong.into());
        }
    }
    Ok(body)
}

fn unavailable(error: &dyn std::error::Error) -> Fault {
    tracing::warn!(error = controller::chain(error), "Keystone does not answer");
    Fault::IdentityUnavailable
}

/// The token of who asks.
pub(crate) fn own_token(headers: &HeaderMap) -> Option<&str> {
    token(headers, "x-auth-token")
}

fn token<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let token = headers.get(name)?.to_str().ok()?;
    (1..=LONGEST_TOKEN).contains(&token.len()).then_some(token)
}

fn valid(vouched: Vouched) -> Result<Vouched, Fault> {
    if vouched.expires <= Timestamp::now() {
        return Err(Fault::Unauthenticated);
    }
    Ok(vouched)
}

#[derive(Deserialize)]
struct Answer {
    token: Token,
}

#[derive(Deserialize)]
struct Token {
    user: Named,
    project: Option<Named>,
    #[serde(default)]
    roles: Vec<Role>,
    expires_at: Timestamp,
}

#[derive(Deserialize)]
struct Named {
    id: String,
}

#[derive(Deserialize)]
struct Role {
    name: String,
}

impl From<Token> for Vouched {
    fn from(token: Token) -> Self {
        Self {
            user_id: token.user.id,
            project_id: token.project.map(|project| project.id),
            roles: token
                .roles
                .into_iter()
                .map(|role| role.name.to_lowercase())
                .collect(),
            expires: token.expires_at,
        }
    }
}
