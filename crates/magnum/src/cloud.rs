//! The cloud, as somebody sees it whom Keystone knows: the services of its catalogue, asked by their token.
//!
//! # Source
//! Identity API v3, `/v3/auth/tokens`.

use std::collections::BTreeSet;

use http::{HeaderMap, StatusCode};
use reqwest::{RequestBuilder, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    contract::Fault,
    identity::{Keystone, bounded},
};

/// What people call the service that vouches for others.
pub(crate) const KEYSTONE: &str = "Keystone";
const TOKEN: &str = "x-auth-token";
const SUBJECT: &str = "x-subject-token";
/// The longest word of a service that is told.
const LONGEST: usize = 512;
/// What is told of a refusal that no service of the cloud wrote, or that says nothing.
const SILENT: &str = "it says no more";

/// Why the cloud does not do what it is asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CloudError {
    /// A service cannot be reached, or what it answers cannot be read.
    #[error("{0} does not answer as it should")]
    Unavailable(&'static str),
    /// A service does not know who asks.
    #[error("{0} does not know who asks")]
    Unknown(&'static str),
    /// Keystone has an application credential no more.
    #[error("Keystone has the application credential no more")]
    Gone,
    /// A service does not do it.
    #[error("{service} refuses it ({status}): {message}")]
    Refused {
        service: &'static str,
        status: StatusCode,
        message: String,
    },
}

impl CloudError {
    /// Whether there is no such thing.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::NOT_FOUND)
    }

    /// Whether it cannot be done now.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::CONFLICT)
    }

    /// Whether it is there for others.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::FORBIDDEN)
    }

    /// What a client is told who cannot do without it.
    pub(crate) fn told(&self) -> Fault {
        match self {
            Self::Unavailable(KEYSTONE) => Fault::IdentityUnavailable,
            Self::Unavailable(_) => Fault::told(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{self}; try again later."),
            ),
            Self::Unknown(_) => Fault::Unauthenticated,
            Self::Gone | Self::Refused { .. } => Fault::forbidden(format!("{self}.")),
        }
    }
}

/// An application credential of a user.
#[derive(Clone, Deserialize, Eq, PartialEq, serde::Serialize)]
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) secret: String,
}

/// Somebody whom Keystone knows.
pub(crate) struct Session {
    client: reqwest::Client,
    /// Where Keystone answers us; the catalogue says where it answers others.
    identity: String,
    token: String,
    pub(crate) user_id: String,
    /// None: the token is for no project.
    pub(crate) project_id: Option<String>,
    pub(crate) roles: Vec<Role>,
    endpoints: Vec<Endpoint>,
    /// The region whose services are used. None: there are several, and none was named, or they have no names.
    pub(crate) region: Option<String>,
}

/// A role in the project of a token.
#[derive(Deserialize)]
pub(crate) struct Role {
    pub(crate) id: String,
    pub(crate) name: String,
}

struct Endpoint {
    kind: String,
    region: Option<String>,
    url: String,
}

impl Keystone {
    /// Who bears this token.
    pub(crate) async fn open(&self, token: &str) -> Result<Session, CloudError> {
        let url = format!("{}/v3/auth/tokens", self.address());
        let request = self.client.get(url);
        let request = request.header(TOKEN, token).header(SUBJECT, token);
        let (_, body) = ask(KEYSTONE, request).await?;
        self.session(token.to_owned(), body)
    }

    /// Whose application credential this is.
    ///
    /// # Errors
    ///
    /// It is [gone](CloudError::Gone), by somebody's hand, or with its user or with a role that they lost: Keystone does not find it
    /// then. Whoever is [unknown](CloudError::Unknown) has it still: the user or the project is disabled, or it has ended.
    pub(crate) async fn enter(&self, key: &Key) -> Result<Session, CloudError> {
        let url = format!("{}/v3/auth/tokens", self.address());
        let identity =
            json!({"methods": ["application_credential"], "application_credential": key});
        let body = json!({"auth": {"identity": identity}});
        let answer = ask(KEYSTONE, self.client.post(url).json(&body)).await;
        let (headers, body) = answer.map_err(|error| match error {
            // What stands before Keystone, and has no page of this address, says nothing that it would.
            CloudError::Refused {
                status: StatusCode::NOT_FOUND,
                message,
                ..
            } if message != SILENT => CloudError::Gone,
            error => error,
        })?;
        let token = headers.get(SUBJECT).and_then(|token| token.to_str().ok());
        let token = token.ok_or(CloudError::Unavailable(KEYSTONE))?;
        self.session(token.to_owned(), body)
    }

    fn session(&self, token: String, body: Value) -> Result<Session, CloudError> {
        let told: Told =
            serde_json::from_value(body).map_err(|error| unavailable(KEYSTONE, &error))?;
        let all = told.token.catalog.into_iter();
        let endpoints = all.flat_map(|Service { kind, endpoints }| {
            let public = endpoints.into_iter();
            let public = public.filter(|endpoint| endpoint.interface == "public");
            public.map(move |endpoint| Endpoint {
                kind: kind.clone(),
                region: endpoint.region_id,
                url: endpoint.url.trim_end_matches('/').to_owned(),
            })
        });
        let mut endpoints: Vec<_> = endpoints.collect();
        let regions = endpoints.iter().filter_map(|one| one.region.clone());
        let regions: BTreeSet<_> = regions.collect();
        let is_only = regions.len() == 1;
        let only = regions.into_iter().next().filter(|_| is_only);
        let region = self.region().map(str::to_owned).or(only);
        if let Some(region) = self.region() {
            endpoints.retain(|one| one.region.as_deref().is_none_or(|own| own == region));
        }
        Ok(Session {
            client: self.client.clone(),
            identity: self.address().to_owned(),
            token,
            user_id: told.token.user.id,
            project_id: told.token.project.map(|project| project.id),
            roles: told.token.roles,
            endpoints,
            region,
        })
    }
}

impl Session {
    /// Where a service answers that goes by one of these words. None: the catalogue has none, or several.
    pub(crate) fn address(&self, kinds: &[&str]) -> Option<&str> {
        let all = self.endpoints.iter();
        let mut all = all.filter(|one| kinds.contains(&one.kind.as_str()));
        let first = all.next()?;
        all.all(|other| other.url == first.url)
            .then_some(first.url.as_str())
    }

    /// Where Keystone has what belongs to the user.
    pub(crate) fn own(&self, what: &str) -> String {
        format!("{}/v3/users/{}/{what}", self.identity, self.user_id)
    }

    /// Reads what a service has.
    pub(crate) async fn get(&self, service: &'static str, url: Url) -> Result<Value, CloudError> {
        self.ask(service, |client| client.get(url)).await
    }

    /// Removes what a service has. What is gone already is as good.
    pub(crate) async fn remove(&self, service: &'static str, url: Url) -> Result<(), CloudError> {
        match self.ask(service, |client| client.delete(url)).await {
            Err(error) if error.is_absent() => Ok(()),
            removed => removed.map(drop),
        }
    }

    /// Asks a service, by the token of this session.
    pub(crate) async fn ask(
        &self,
        service: &'static str,
        request: impl FnOnce(&reqwest::Client) -> RequestBuilder,
    ) -> Result<Value, CloudError> {
        let request = request(&self.client).header(TOKEN, &self.token);
        ask(service, request).await.map(|(_, body)| body)
    }
}

/// The catalogue may say an address with its version or without.
pub(crate) fn versioned(address: &str, version: &str) -> String {
    match address.strip_suffix(version) {
        Some(_) => address.to_owned(),
        None => format!("{address}/{version}"),
    }
}

/// What people name is a part of a path, whatever is in it.
pub(crate) fn below(base: &Url, part: &str) -> Url {
    let mut url = base.clone();
    if let Ok(mut parts) = url.path_segments_mut() {
        parts.pop_if_empty().push(part);
    }
    url
}

pub(crate) fn with(base: &Url, query: &[(&str, &str)]) -> Url {
    let mut url = base.clone();
    url.query_pairs_mut().extend_pairs(query);
    url
}

async fn ask(
    service: &'static str,
    request: RequestBuilder,
) -> Result<(HeaderMap, Value), CloudError> {
    let answer = request.send().await;
    let answer = answer.map_err(|error| unavailable(service, &error.without_url()))?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let body = bounded(answer).await;
    let body = body.map_err(|error| unavailable(service, &*error))?;
    match status {
        StatusCode::UNAUTHORIZED => return Err(CloudError::Unknown(service)),
        status if status.is_client_error() => {
            return Err(CloudError::Refused {
                service,
                status,
                message: message(&body),
            });
        }
        status if !status.is_success() => {
            tracing::warn!(service, %status, "a service of the cloud does not do what it is asked");
            return Err(CloudError::Unavailable(service));
        }
        _ => {}
    }
    if body.is_empty() {
        return Ok((headers, Value::Null));
    }
    let body = serde_json::from_slice(&body).map_err(|error| unavailable(service, &error))?;
    Ok((headers, body))
}

/// What a service says of why it refuses: under a word of its own, as all of them do.
fn message(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut texts = body.as_object().into_iter().flatten();
    let said = texts.find_map(|(_, entry)| entry["message"].as_str());
    api::text::plain(said.unwrap_or(SILENT), LONGEST)
}

fn unavailable(service: &'static str, error: &dyn std::error::Error) -> CloudError {
    let error = controller::chain(error);
    tracing::warn!(error, service, "a service of the cloud does not answer");
    CloudError::Unavailable(service)
}

#[derive(Deserialize)]
struct Told {
    token: Token,
}

#[derive(Deserialize)]
struct Token {
    user: Named,
    project: Option<Named>,
    #[serde(default)]
    roles: Vec<Role>,
    #[serde(default)]
    catalog: Vec<Service>,
}

#[derive(Deserialize)]
struct Named {
    id: String,
}

#[derive(Deserialize)]
struct Service {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Place>,
}

#[derive(Deserialize)]
struct Place {
    interface: String,
    region_id: Option<String>,
    url: String,
}
