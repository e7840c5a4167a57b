//! HTTP: one handler that parses the path, finds the resource, and hands over to the verb.
//!
//! One fallback handler instead of a route table, because the resources are data: they come from the definitions.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod check;
pub(crate) mod deadline;
pub(crate) mod delete;
pub(crate) mod discovery;
pub(crate) mod guard;
pub(crate) mod listing;
pub(crate) mod negotiate;
pub(crate) mod options;
pub(crate) mod read;
pub(crate) mod request;
pub(crate) mod review;
pub(crate) mod scale;
pub(crate) mod update;
pub(crate) mod watch;
pub(crate) mod write;

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode};

use self::{
    negotiate::View,
    request::{Call, Sub},
    scale::Scaling,
};
use crate::{
    definitions::Live,
    failure::{Failure, Result},
    registry::Form,
    state::Api,
};

pub(crate) async fn handle(State(live): State<Arc<Live>>, request: Request) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    match route(&live, request).await {
        Ok(response) => response,
        Err(failure) => {
            tracing::debug!(%method, path, code = failure.code.as_u16(), message = failure.message, "refused");
            failure.into_response()
        }
    }
}

async fn route(live: &Live, request: Request) -> Result<Response> {
    let api = live.now();
    nobody_else(&request)?;
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
    let changes_definitions = call.resource(&api).form == Form::Definition
        && !matches!(*request.method(), Method::GET | Method::HEAD);
    if !changes_definitions {
        return dispatch(api, call, request).await;
    }
    if let Some(name) = &call.name {
        guard::guard(&api, call.resource(&api), name)?;
    }
    let response = dispatch(api, call, request).await?;
    // The next request finds the kind.
    live.settle().await;
    Ok(response)
}

/// Whoever may impersonate expects to have no more rights than the other one has: there are no fewer here, so that is
/// refused.
fn nobody_else(request: &Request) -> Result<()> {
    let headers = request.headers().iter();
    let mut asked = headers.filter(|(name, _)| name.as_str().starts_with("impersonate-"));
    asked.next().map_or(Ok(()), |(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes());
        Err(Failure::impersonation(name.as_str(), &value))
    })
}

async fn dispatch(api: Arc<Api>, call: Call, request: Request) -> Result<Response> {
    let method = request.method().clone();
    let view = View::of(request.headers()).map_err(|failure| match call.resource(&api).form {
        Form::Custom => Failure {
            details: None,
            ..failure
        },
        _ => failure,
    })?;
    call.check_manager(&method)?;
    if !call.flag("watch") {
        deadline::check(call.query("timeout"))?;
    }
    if let (Some(Sub::Scale), Some(scale)) = (call.sub, &call.resource(&api).scale) {
        let scaling = Scaling {
            api: &api,
            call: &call,
            scale,
            view,
        };
        return scaling.answer(request).await;
    }
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
        _ if call.resource(&api).form == Form::Custom => {
            Err(Failure::method_not_supported(call.resource(&api)))
        }
        _ => Err(Failure::method_not_allowed()),
    }
}
