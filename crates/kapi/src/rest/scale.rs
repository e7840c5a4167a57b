//! `/scale`: get, replace and patch of the replicas of a custom object.

use axum::{extract::Request, response::Response};
use http::{Method, StatusCode};
use serde_json::Value;

use super::{
    Api, body,
    check::{accept, prepare, undecodable},
    json_response,
    negotiate::{View, include, present_value},
    read::find,
    request::Call,
    update::{change, converted, kind_of_patch, modify, named},
    write::Stored,
};
use crate::{
    failure::{Failure, Result},
    pipeline::Operation,
    scale::Scale,
};

pub(crate) async fn route(
    api: &Api,
    call: &Call,
    scale: &Scale,
    view: View,
    request: Request,
) -> Result<Response> {
    match *request.method() {
        Method::GET => get(api, call, scale, view),
        Method::PUT => replace(api, call, scale, view, request).await,
        Method::PATCH => patch(api, call, scale, view, request).await,
        _ => Err(Failure::method_not_supported(call.resource(api))),
    }
}

fn get(api: &Api, call: &Call, scale: &Scale, view: View) -> Result<Response> {
    let include = include(call, view)?;
    let (shown, is_wanted) = scale.of(&converted(call.resource(api), &find(api, call)?.value()))?;
    if !is_wanted {
        return Err(scale.unknown());
    }
    let shown = present_value(&scale.resource, shown, view, include);
    Ok(json_response(StatusCode::OK, &shown))
}

async fn replace(
    api: &Api,
    call: &Call,
    scale: &Scale,
    view: View,
    request: Request,
) -> Result<Response> {
    let mut new = body::object(request).await?;
    if let Some(why) = undecodable(&scale.resource, &new) {
        return Err(Failure::undecodable(&scale.resource, &why));
    }
    named(call, &new)?;
    let warnings = settle(call, scale, &mut new)?;
    let uid = new["metadata"]["uid"].clone();
    let stored = modify(api, call, Operation::Update, |old| {
        let mut object = scale.put(old, &new)?;
        if uid.as_str().is_some_and(|uid| !uid.is_empty()) {
            object["metadata"]["uid"] = uid.clone();
        }
        Ok(object)
    })
    .await?;
    respond(api, call, scale, view, stored, warnings)
}

async fn patch(
    api: &Api,
    call: &Call,
    scale: &Scale,
    view: View,
    request: Request,
) -> Result<Response> {
    let media = body::media_type(&request);
    let bytes = body::read(request).await?;
    let kind = kind_of_patch(call, call.resource(api), &media)?;
    let patch: Value = body::yaml(&bytes)?;
    let stored = modify(api, call, Operation::Update, |old| {
        let mut new = change(call, &scale.resource, kind, &scale.before(old)?, &patch)?;
        settle(call, scale, &mut new)?;
        scale.put(old, &new)
    })
    .await?;
    respond(api, call, scale, view, stored, Vec::new())
}

fn settle(call: &Call, scale: &Scale, new: &mut Value) -> Result<Vec<String>> {
    accept(call, &scale.resource, new)?;
    prepare(call, &scale.resource, new, Operation::Update)
}

fn respond(
    api: &Api,
    call: &Call,
    scale: &Scale,
    view: View,
    stored: Stored,
    mut warnings: Vec<String>,
) -> Result<Response> {
    let (object, more) = stored.into_parts();
    let (shown, _) = scale.of(&converted(call.resource(api), &object))?;
    warnings.extend(more);
    Ok(Stored::Shown(shown, warnings).response(&scale.resource, view, StatusCode::OK))
}
