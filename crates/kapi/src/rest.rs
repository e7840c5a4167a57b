//! HTTP: one handler that parses the path, finds the resource, and hands over to the verb.
//!
//! One fallback handler instead of a route table, because the resources are data: they come from the definitions.

pub(crate) mod body;
pub(crate) mod check;
pub(crate) mod delete;
pub(crate) mod discovery;
pub(crate) mod listing;
pub(crate) mod negotiate;
pub(crate) mod read;
pub(crate) mod request;
pub(crate) mod review;
pub(crate) mod update;
pub(crate) mod watch;
pub(crate) mod write;

use std::{fs::File, sync::Arc};

use axum::{
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, Method, StatusCode, header};
use nix::fcntl::Flock;
use serde_json::{Value, json};

use self::{negotiate::View, request::Call};
use crate::{
    failure::{Failure, Result},
    registry::{Form, Registry},
    store::Store,
};

/// Everything a request needs.
pub(crate) struct Api {
    pub registry: Registry,
    pub store: Store,
    /// The lock of the data directory. Last, so that it is given back after the store is closed, whoever holds the API
    /// longest.
    pub _lock: Option<Flock<File>>,
}

pub(crate) async fn handle(State(api): State<Arc<Api>>, request: Request) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    match route(api, request).await {
        Ok(response) => response,
        Err(failure) => {
            tracing::debug!(%method, path, code = failure.code.as_u16(), message = failure.message, "refused");
            failure.into_response()
        }
    }
}

async fn route(api: Arc<Api>, request: Request) -> Result<Response> {
    let path = request.uri().path().trim_matches('/').to_owned();
    let parts: Vec<&str> = path.split('/').collect();
    if matches!(
        parts.as_slice(),
        ["healthz" | "livez" | "readyz"] | ["healthz" | "livez" | "readyz", "ping"]
    ) {
        return Ok((StatusCode::OK, "ok").into_response());
    }
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return discovery::route(&api, &parts, &request),
    };
    if let Some(review) = review::route(&api, group, version, rest, &request)? {
        return review::answer(&api, review, request).await;
    }
    let call = Call::parse(&api.registry, group, version, rest, &request)?;
    if call.resource(&api).form == Form::Definition
        && !matches!(*request.method(), Method::GET | Method::HEAD)
    {
        let name = call.name.as_deref().unwrap_or_default();
        return Err(Failure::forbidden(
            call.resource(&api),
            name,
            "this server serves the definitions it was built with; others cannot be registered",
        ));
    }
    dispatch(api, call, request).await
}

async fn dispatch(api: Arc<Api>, call: Call, request: Request) -> Result<Response> {
    let method = request.method().clone();
    let view = View::of(request.headers());
    match (method, call.name.is_some()) {
        (Method::GET, _) if call.flag("watch") => watch::watch(api, &call, view),
        (Method::GET, false) => read::list(&api, &call, view),
        (Method::GET, true) => read::get(&api, &call, view),
        (Method::POST, false) => write::create(&api, &call, view, request).await,
        (Method::PUT, true) => update::replace(&api, &call, view, request).await,
        (Method::PATCH, true) => update::patch(&api, &call, view, request).await,
        (Method::DELETE, true) if call.sub.is_none() => {
            delete::one(&api, &call, view, request).await
        }
        (Method::DELETE, false) => delete::collection(&api, &call, request).await,
        _ => Err(Failure::method_not_allowed()),
    }
}

/// A JSON answer from a value.
pub(crate) fn json_response(code: StatusCode, value: &Value) -> Response {
    bytes_response(code, value.to_string())
}

pub(crate) fn bytes_response(code: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// The answer of a successful deletion.
pub(crate) fn success(details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
