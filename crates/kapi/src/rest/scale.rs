//! `/scale`: get, replace and patch of the replicas of a custom object.

use axum::{extract::Request, response::Response};
use http::{Method, StatusCode};
use serde_json::Value;

use super::{
    answer::json_response,
    body::{self, Body},
    check::{accept, prepare, strictly, undecodable},
    negotiate::{View, include, present_value},
    read::find,
    request::Call,
    update::{change, converted, modify, named, read_patch},
    write::Stored,
};
use crate::{
    failure::{Failure, Result},
    pipeline::Operation,
    registry::Resource,
    scale::Scale,
    state::Api,
};

/// A request for the Scale of an object.
pub(crate) struct Scaling<'a> {
    pub api: &'a Api,
    pub call: &'a Call,
    pub scale: &'a Scale,
    pub view: View,
}

impl Scaling<'_> {
    pub async fn answer(&self, request: Request) -> Result<Response> {
        match *request.method() {
            Method::GET => self.get(),
            Method::PUT => self.replace(request).await,
            Method::PATCH => self.patch(request).await,
            _ => Err(Failure::method_not_supported(self.resource())),
        }
    }

    fn get(&self) -> Result<Response> {
        let include = include(self.call, self.view)?;
        let object = find(self.api, self.call)?.value();
        let (shown, is_wanted) = self.scale.of(&converted(self.resource(), &object))?;
        if !is_wanted {
            return Err(self.scale.unknown());
        }
        let shown = present_value(&self.scale.resource, shown, self.view, include);
        Ok(json_response(StatusCode::OK, &shown))
    }

    async fn replace(&self, request: Request) -> Result<Response> {
        let Body {
            value: mut new,
            faults,
        } = body::object(request).await?;
        if let Some(why) = undecodable(&self.scale.resource, &new) {
            return Err(Failure::undecodable(&self.scale.resource, &why));
        }
        named(self.call, &new)?;
        let mut warnings = strictly(self.call, &self.scale.resource, faults)?;
        warnings.extend(self.settle(&mut new)?);
        let uid = new["metadata"]["uid"].clone();
        let stored = modify(self.api, self.call, Operation::Update, |old| {
            let mut object = self.scale.put(old, &new)?;
            if uid.as_str().is_some_and(|uid| !uid.is_empty()) {
                object["metadata"]["uid"] = uid.clone();
            }
            Ok(object)
        })
        .await?;
        self.respond(stored, warnings)
    }

    async fn patch(&self, request: Request) -> Result<Response> {
        let media = body::media_type(&request);
        let bytes = body::read(request).await?;
        let (kind, patch, mut warnings) = read_patch(self.call, self.resource(), &media, &bytes)?;
        let mut more = Vec::new();
        let stored = modify(self.api, self.call, Operation::Update, |old| {
            let before = self.scale.before(old)?;
            let mut new = change(self.call, &self.scale.resource, kind, &before, &patch)?;
            more = self.settle(&mut new)?;
            self.scale.put(old, &new)
        })
        .await?;
        warnings.extend(more);
        self.respond(stored, warnings)
    }

    /// The scaled resource.
    fn resource(&self) -> &Resource {
        self.call.resource(self.api)
    }

    fn settle(&self, new: &mut Value) -> Result<Vec<String>> {
        accept(self.call, &self.scale.resource, new)?;
        prepare(self.call, &self.scale.resource, new, Operation::Update)
    }

    fn respond(&self, stored: Stored, mut warnings: Vec<String>) -> Result<Response> {
        let (object, more) = stored.into_parts();
        let (shown, _) = self.scale.of(&converted(self.resource(), &object))?;
        warnings.extend(more);
        let shown = Stored::Shown(shown, warnings);
        Ok(shown.response(&self.scale.resource, self.view, StatusCode::OK))
    }
}
