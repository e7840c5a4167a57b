//! The service: from a request to an answer.
//!
//! Every request goes the same way: who asks, in which version, for what. The table of paths is one `match`; what stands behind a
//! path is in the module of its object.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Query, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header},
    response::Response,
};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tracing::Instrument as _;
use uuid::Uuid;

use crate::{
    address,
    cloud::{CloudError, Session},
    contract::{Fault, Fields, Version, page::Marker, page::Page, patch::Patch, version},
    identity::{self, Caller, Keystone},
    policy::{Grant, Policy, denied},
    store::{Scope, Store},
};

mod actions;
mod certificates;
mod clusters;
mod credentials;
mod groups;
mod lookups;
mod quotas;
mod route;
mod site;
mod templates;
mod upgrade;

use route::Route;

/// The longest body, in bytes.
const LONGEST_BODY: usize = 1 << 20;

/// How the service works.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many clusters a project may have that has no quota.
    pub max_clusters_per_project: u32,
    /// The name of this machine, as administrators see it.
    pub host: String,
    /// The scheme by which it is served: http or https.
    pub scheme: &'static str,
    /// Rules that hold instead of the defaults.
    pub policy: Policy,
    /// What links begin with, as [`crate::public_url`] reads it. None: what the client wrote.
    pub public_url: Option<String>,
}

/// The service.
pub struct Service {
    store: Store,
    keystone: Arc<Keystone>,
    options: Options,
    started: Timestamp,
    /// Clusters of a project are counted and made by one request at a time.
    counted: std::sync::Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Service {
    /// Over the objects behind a client, for whom Keystone vouches.
    pub fn new(client: Client, keystone: impl Into<Arc<Keystone>>, options: Options) -> Self {
        Self {
            store: Store::new(client),
            keystone: keystone.into(),
            options,
            started: Timestamp::now(),
            counted: std::sync::Mutex::default(),
        }
    }

    /// The paths that it serves.
    pub fn router(self) -> Router {
        Router::new().fallback(lasting).with_state(Arc::new(self))
    }

    fn turn(&self, project: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(counted.entry(project.to_owned()).or_default())
    }
}

/// What a request is answered with, where it is done.
struct Answer {
    status: StatusCode,
    body: Option<Value>,
    location: Option<String>,
}

impl Answer {
    fn ok(body: impl serde::Serialize) -> Result<Self, Fault> {
        Self::with(StatusCode::OK, body)
    }

    fn accepted(body: impl serde::Serialize) -> Result<Self, Fault> {
        Self::with(StatusCode::ACCEPTED, body)
    }

    fn with(status: StatusCode, body: impl serde::Serialize) -> Result<Self, Fault> {
        let body = serde_json::to_value(body).map_err(|error| {
            tracing::error!(
                error = controller::chain(&error),
                "an object cannot be written as JSON"
            );
            Fault::told(
                StatusCode::INTERNAL_SERVER_ERROR,
                "The object can not be shown.",
            )
        })?;
        Ok(Self {
            status,
            body: Some(body),
            location: None,
        })
    }

    const fn done() -> Self {
        Self {
            status: StatusCode::NO_CONTENT,
            body: None,
            location: None,
        }
    }
}

/// A request that somebody may make.
struct Asked<'a> {
    service: &'a Service,
    caller: Caller,
    token: &'a str,
    /// What a rule says of it that holds instead of the default.
    grant: Option<Grant>,
    version: Version,
    /// The address of the service as the client knows it.
    base: String,
    query: Vec<(String, String)>,
    body: Bytes,
}

impl Asked<'_> {
    fn store(&self) -> &Store {
        &self.service.store
    }

    /// The cloud, as the caller sees it.
    async fn cloud(&self) -> Result<Session, CloudError> {
        self.service.keystone.open(self.token).await
    }

    /// Lets pass whom a rule lets, or else the default.
    fn may(&self, default: impl FnOnce(&Caller) -> Result<(), Fault>) -> Result<(), Fault> {
        match self.grant {
            Some(Grant { own, others }) if own || others => Ok(()),
            Some(_) => Err(denied()),
            None => default(&self.caller),
        }
    }

    /// An administrator sees every project, unless a rule leaves them their own, and everybody else their own.
    fn scope(&self) -> Scope<'_> {
        let sees_others = self.grant.is_none_or(|grant| grant.others);
        if sees_others && self.caller.is_admin() {
            Scope::All
        } else {
            self.own()
        }
    }

    fn own(&self) -> Scope<'_> {
        Scope::Project(&self.caller.project_id)
    }

    fn fields(&self) -> Result<Fields, Fault> {
        Fields::of_body(&self.body)
    }

    fn patch(&self) -> Result<Patch, Fault> {
        Patch::of_body(&self.body)
    }

    fn argument(&self, name: &str) -> Option<&str> {
        let mut query = self.query.iter();
        query.find_map(|(known, value)| (known == name).then_some(value.as_str()))
    }

    /// Lets pass a query that has these arguments alone; none: whoever reads it says which there are.
    fn known(&self, arguments: Option<&[&str]>) -> Result<(), Fault> {
        let is_known = |name: &str| arguments.is_none_or(|known| known.contains(&name));
        match self.query.iter().find(|(name, _)| !is_known(name)) {
            Some((name, _)) => {
                let name: String = name.chars().take(256).collect();
                Err(Fault::invalid(format!("Unknown argument: \"{name}\"")))
            }
            None => Ok(()),
        }
    }

    /// A page of a list, under its word.
    fn page(&self, word: &str, path: &str, page: &Page, all: Vec<Value>) -> Result<Answer, Fault> {
        let (entries, next) = page.cut(all)?;
        let mut body = json!({ word: entries });
        if let (Some(next), Some(body)) = (next, body.as_object_mut()) {
            body.insert(
                "next".to_owned(),
                json!(format!("{}/v1/{path}?{next}", self.base)),
            );
        }
        Answer::ok(body)
    }

    fn paged(&self, columns: &[&str], others: &[&str]) -> Result<Page, Fault> {
        Page::read(&self.query, Marker::Uuid, columns, others)
    }
}

/// Objects as the entries of a list.
fn entries<T: serde::Serialize>(objects: impl IntoIterator<Item = T>) -> Result<Vec<Value>, Fault> {
    let values = objects
        .into_iter()
        .map(|object| Ok(Answer::ok(object)?.body.unwrap_or_default()));
    values.collect()
}

/// Does to its end what changes something, though who asked is gone: what was made in Keystone by then would stay, known to nobody.
async fn lasting(service: State<Arc<Service>>, request: Request) -> Response {
    if request.method().is_safe() {
        return answer(service, request).await;
    }
    let answered = tokio::spawn(answer(service, request).in_current_span()).await;
    answered.unwrap_or_else(|error| {
        let error = controller::chain(&error);
        tracing::error!(error, "a request is not answered");
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

async fn answer(State(service): State<Arc<Service>>, request: Request) -> Response {
    // Browsers ask so before they send a token.
    if *request.method() == Method::OPTIONS {
        return Response::new(Body::empty());
    }
    let id = format!("req-{}", Uuid::new_v4());
    let (parts, body) = request.into_parts();
    let requested = parts
        .headers
        .get(version::HEADER)
        .and_then(|value| value.to_str().ok());
    let version = Version::requested(requested);
    let effective = match &version {
        Ok(version) => version.to_string(),
        Err(Fault::UnsupportedVersion(version)) => version.clone(),
        Err(_) => Version::MINIMUM.to_string(),
    };
    let is_root = parts.uri.path().trim_matches('/').is_empty();
    let asked = Parts {
        method: parts.method,
        uri: parts.uri,
        headers: parts.headers,
    };
    let done = asked.answer(&service, version, body).await;
    let uri = service.keystone.address();
    let is_versioned = !is_root && done.as_ref().err().is_none_or(Fault::is_versioned);
    let mut response = done.map_or_else(|fault| refusal(&fault, uri), respond);
    put(&mut response, "x-openstack-request-id", id);
    if !is_versioned {
        return response;
    }
    for (name, value) in [
        (version::HEADER, format!("{} {effective}", version::SERVICE)),
        (
            version::MINIMUM_HEADER,
            format!("{} {}", version::SERVICE, Version::MINIMUM),
        ),
        (
            version::MAXIMUM_HEADER,
            format!("{} {}", version::SERVICE, Version::MAXIMUM),
        ),
        ("vary", "OpenStack-API-Version".to_owned()),
    ] {
        put(&mut response, name, value);
    }
    response
}

fn put(response: &mut Response, name: &'static str, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        let name = HeaderName::from_static(name);
        response.headers_mut().insert(name, value);
    }
}

struct Parts {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

impl Parts {
    async fn answer(
        self,
        service: &Service,
        version: Result<Version, Fault>,
        body: Body,
    ) -> Result<Answer, Fault> {
        let base = address::base(&self.headers, &service.options);
        let path = self.uri.path().trim_matches('/');
        if self.method == Method::GET
            && let Some(public) = site::public(path, &base)
        {
            return public;
        }
        let caller = service.keystone.caller(&self.headers).await?;
        let version = version?;
        let segments = route::segments(path).ok_or(Fault::NO_ROUTE)?;
        let segments: Vec<_> = segments.iter().map(String::as_str).collect();
        let route = Route::of(&segments).ok_or(Fault::NO_ROUTE)?;
        self.acceptable()?;
        let Query(query) = Query::try_from_uri(&self.uri)
            .map_err(|_| Fault::invalid("The arguments can not be read."))?;
        let body = axum::body::to_bytes(body, LONGEST_BODY)
            .await
            .map_err(|_| Fault::told(StatusCode::PAYLOAD_TOO_LARGE, "The body is too long."))?;
        let policy = route.policy(&self.method);
        let grant = policy.and_then(|name| service.options.policy.grant(name, &caller));
        let asked = Asked {
            service,
            caller,
            token: identity::own_token(&self.headers).unwrap_or_default(),
            grant,
            version,
            base,
            query,
            body,
        };
        dispatch(&route, &self.method, &asked).await
    }

    fn acceptable(&self) -> Result<(), Fault> {
        let header = |name| {
            self.headers
                .get(name)
                .and_then(|value: &HeaderValue| value.to_str().ok())
        };
        let is_json = |text: &str| text.trim_start().starts_with("application/json");
        let any = ["application/json", "application/*", "*/*"];
        let accepts = |text: &str| any.iter().any(|kind| text.contains(kind));
        if header(header::ACCEPT).is_some_and(|text| !accepts(text)) {
            return Err(Fault::NOT_ACCEPTABLE);
        }
        let writes = matches!(self.method, Method::POST | Method::PATCH | Method::PUT);
        let is_other = header(header::CONTENT_TYPE).is_some_and(|text| !is_json(text));
        if writes && is_other {
            return Err(Fault::told(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Unknown mimetype. Use application/json.",
            ));
        }
        Ok(())
    }
}

async fn dispatch(route: &Route<'_>, method: &Method, asked: &Asked<'_>) -> Result<Answer, Fault> {
    match *method {
        Method::GET => get(route, asked).await,
        Method::POST => post(route, asked).await,
        Method::PATCH => patch(route, asked).await,
        Method::DELETE => delete(route, asked).await,
        _ => Err(Fault::NO_VERB),
    }
}

async fn get(route: &Route<'_>, asked: &Asked<'_>) -> Result<Answer, Fault> {
    asked.may(Caller::may_read)?;
    asked.known(arguments(route))?;
    match route {
        Route::Templates => templates::list(asked).await,
        Route::Template(ident) => templates::show(asked, ident).await,
        Route::Clusters => clusters::list(asked).await,
        Route::ClustersDetail => clusters::list_detail(asked).await,
        Route::Cluster(ident) => clusters::show(asked, ident).await,
        Route::Groups(cluster) => groups::list(asked, cluster).await,
        Route::Group(cluster, ident) => groups::show(asked, cluster, ident).await,
        Route::Certificate(cluster) => certificates::show(asked, cluster).await,
        Route::Quotas => quotas::list(asked).await,
        Route::Quota(project, resource) => quotas::show(asked, project, resource).await,
        Route::Stats => site::stats(asked).await,
        Route::Services => site::services(asked),
        Route::Federations => Answer::ok(json!({"federations": []})),
        Route::Federation(ident) => Err(Fault::not_found("Federation", ident)),
        Route::Resize(_)
        | Route::Upgrade(_)
        | Route::Certificates
        | Route::Credential(_)
        | Route::Mute => Err(Fault::NO_VERB),
    }
}

/// The arguments of what is read. Those of lists are read with their pages.
fn arguments(route: &Route<'_>) -> Option<&'static [&'static str]> {
    match route {
        Route::Templates
        | Route::Clusters
        | Route::ClustersDetail
        | Route::Groups(_)
        | Route::Quotas => None,
        Route::Certificate(_) => Some(&["ca_cert_type"]),
        Route::Stats => Some(&["project_id", "type"]),
        _ => Some(&[]),
    }
}

async fn post(route: &Route<'_>, asked: &Asked<'_>) -> Result<Answer, Fault> {
    asked.may(Caller::may_write)?;
    asked.known(Some(&[]))?;
    match route {
        Route::Templates => templates::create(asked).await,
        Route::Clusters => clusters::create(asked).await,
        Route::Resize(cluster) => actions::resize(asked, cluster).await,
        Route::Upgrade(cluster) => upgrade::upgrade(asked, cluster).await,
        Route::Groups(cluster) => groups::create(asked, cluster).await,
        Route::Certificates => certificates::sign(asked).await,
        Route::Quotas => quotas::create(asked).await,
        Route::Federations => Err(Fault::invalid("Federations are not supported.")),
        _ => Err(Fault::NO_VERB),
    }
}

async fn patch(route: &Route<'_>, asked: &Asked<'_>) -> Result<Answer, Fault> {
    asked.may(Caller::may_write)?;
    asked.known(Some(&["rollback"]))?;
    match route {
        Route::Template(ident) => templates::update(asked, ident).await,
        Route::Cluster(ident) => clusters::update(asked, ident).await,
        Route::Group(cluster, ident) => groups::update(asked, cluster, ident).await,
        Route::Certificate(cluster) => certificates::rotate(asked, cluster).await,
        Route::Credential(cluster) => credentials::rotate(asked, cluster).await,
        Route::Quota(project, resource) => quotas::update(asked, project, resource).await,
        Route::Federation(ident) => Err(Fault::not_found("Federation", ident)),
        route => Err(nameless(route)),
    }
}

async fn delete(route: &Route<'_>, asked: &Asked<'_>) -> Result<Answer, Fault> {
    asked.may(Caller::may_write)?;
    asked.known(Some(&[]))?;
    match route {
        Route::Template(ident) => templates::delete(asked, ident).await,
        Route::Cluster(ident) => clusters::delete(asked, ident).await,
        Route::Group(cluster, ident) => groups::delete(asked, cluster, ident).await,
        Route::Quota(project, resource) => quotas::delete(asked, project, resource).await,
        Route::Federation(ident) => Err(Fault::not_found("Federation", ident)),
        route => Err(nameless(route)),
    }
}

/// Where one object is changed or removed, the path names it.
fn nameless(route: &Route<'_>) -> Fault {
    let missing = match route {
        Route::Templates => "cluster_template_ident",
        Route::Clusters => "cluster_ident",
        Route::Quotas => "project_id",
        Route::Federations => "federation_ident",
        _ => return Fault::NO_VERB,
    };
    Fault::invalid(format!("Missing argument: \"{missing}\""))
}

fn respond(answer: Answer) -> Response {
    let body = match &answer.body {
        // What people type into a browser and probes ask for is a word.
        Some(Value::String(word)) => word.clone(),
        Some(body) => body.to_string(),
        None => String::new(),
    };
    let kind = match answer.body {
        Some(Value::String(_)) => "text/plain; charset=UTF-8",
        _ => "application/json",
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    if answer.body.is_some() {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    if let Some(location) = answer
        .location
        .and_then(|text| HeaderValue::try_from(text).ok())
    {
        headers.insert(header::LOCATION, location);
    }
    response
}

fn refusal(fault: &Fault, keystone: &str) -> Response {
    let mut response = respond(Answer {
        status: fault.status(),
        body: Some(fault.body()),
        location: None,
    });
    if *fault == Fault::Unauthenticated
        && let Ok(value) = HeaderValue::try_from(format!("Keystone uri=\"{keystone}\""))
    {
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, value);
    }
    response
}

#[cfg(test)]
mod tests;
