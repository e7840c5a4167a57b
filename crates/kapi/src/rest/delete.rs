//! delete and deletecollection.

use std::sync::Arc;

use axum::{extract::Request, response::Response};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    answer::{json_response, success},
    body,
    guard::guard,
    listing,
    negotiate::View,
    options::check_list,
    read::{find, within},
    request::{Call, dry_run, unsupported},
    update::finished,
    write::{Stored, draft, retryable},
};
use crate::{
    definitions,
    failure::{Failure, Result},
    registry::{Form, Resource},
    state::Api,
    store::{Expect, Object, Write},
    value::now,
};

/// `DeleteOptions`, from the body or the query.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Options {
    pub propagation_policy: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub preconditions: Option<Preconditions>,
    pub dry_run: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Preconditions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

/// What became of a deletion.
pub(crate) enum Outcome {
    Gone(Arc<Object>),
    /// Finalizers hold it.
    Held(Stored),
}

pub(crate) async fn one(api: &Api, call: &Call, view: View, request: Request) -> Result<Response> {
    let resource = call.resource(api);
    let options = options(call, request).await?;
    let name = call.name.as_deref().unwrap_or_default();
    if resource.form == Form::Namespace && PROTECTED.contains(&name) {
        let why = "this namespace may not be deleted";
        return Err(Failure::forbidden(resource, name, why));
    }
    match delete(api, resource, &options, || find(api, call)).await? {
        // The one kind of ours whose deletion Kubernetes answers with the object.
        Outcome::Gone(object) if resource.kind == "ServiceAccount" => {
            let stored = Stored::Object(object, Vec::new());
            Ok(stored.response(resource, view, StatusCode::OK))
        }
        Outcome::Gone(object) => {
            let mut details = json!({
                "name": &*object.key.name, "kind": resource.plural, "uid": &*object.meta.uid,
            });
            if !resource.group.is_empty() {
                details["group"] = json!(resource.group);
            }
            Ok(json_response(StatusCode::OK, &success(&details)))
        }
        Outcome::Held(stored) => Ok(stored.response(resource, view, StatusCode::OK)),
    }
}

/// Deletes what is selected. The answer is the list of it.
pub(crate) async fn collection(api: &Api, call: &Call, request: Request) -> Result<Response> {
    let resource = call.resource(api);
    if resource.form == Form::Namespace {
        return Err(Failure::method_not_allowed());
    }
    let selector = call.selector(resource)?;
    check_list(call)?;
    let options = options(call, request).await?;
    let snapshot = api.store.snapshot(resource.stored);
    let selected: Vec<_> = within(&snapshot, call.namespace.as_deref(), None)
        .filter(|object| selector.matches(object))
        .collect();
    if resource.form == Form::Definition {
        for object in &selected {
            guard(api, resource, &object.key.name)?;
        }
    }
    let mut deleted = Vec::new();
    for object in selected {
        let current = || {
            api.store
                .object(resource.stored, &object.key)
                .ok_or_else(|| Failure::not_found(resource, &object.key.name))
        };
        match delete(api, resource, &options, current).await {
            // Gone meanwhile is what was wanted.
            Err(failure) if failure.code != StatusCode::NOT_FOUND => return Err(failure),
            _ => deleted.push(Arc::clone(object)),
        }
    }
    let metadata = json!({"resourceVersion": snapshot.revision.to_string()});
    Ok(listing::respond(resource, &metadata, deleted))
}

/// Deletes an object, or marks it as deleted if finalizers hold it.
pub(crate) async fn delete(
    api: &Api,
    resource: &Resource,
    options: &Options,
    current: impl Fn() -> Result<Arc<Object>>,
) -> Result<Outcome> {
    let dry = dry_run(
        options.dry_run.iter().flatten().next().map(String::as_str),
        "DeleteOptions",
    )?;
    let mut attempts = 0;
    loop {
        attempts += 1;
        let object = current()?;
        check(resource, &object, options)?;
        let old = object.value();
        let new = marked(resource, &old, options)?;
        let gone = finished(resource, &new);
        if dry {
            return Ok(if gone {
                Outcome::Gone(object)
            } else {
                Outcome::Held(Stored::Shown(new, Vec::new()))
            });
        }
        if !gone && new == old {
            return Ok(Outcome::Held(Stored::Object(object, Vec::new())));
        }
        let write = Write {
            kind: resource.stored,
            key: object.key.clone(),
            expect: Expect::Revision(object.revision),
            draft: draft(resource, if gone { &old } else { &new })?,
            delete: gone,
        };
        match api.store.write(write).await {
            Ok(object) if gone => return Ok(Outcome::Gone(object)),
            Ok(object) => return Ok(Outcome::Held(Stored::Object(object, Vec::new()))),
            Err(error) if retryable(&error) && attempts < 32 => {}
            Err(error) => return Err(Failure::of_write(&error, resource, &object.key.name)),
        }
    }
}

fn check(resource: &Resource, object: &Object, options: &Options) -> Result<()> {
    let Some(preconditions) = &options.preconditions else {
        return Ok(());
    };
    let differs = |what: &str, given: &Option<String>, actual: &str| match given {
        Some(given) if given != actual => {
            let why = format!(
                "Precondition failed: {what} in precondition: {given}, {what} in object meta: {actual}"
            );
            let mut failure = Failure::conflict(resource, &object.key.name, &why);
            if let Some(details) = &mut failure.details
                && resource.form != Form::Definition
            {
                details["kind"] = json!(resource.kind);
            }
            Err(failure)
        }
        _ => Ok(()),
    };
    differs("UID", &preconditions.uid, &object.meta.uid)?;
    differs(
        "ResourceVersion",
        &preconditions.resource_version,
        &object.revision.to_string(),
    )
}

/// The object as it is after the request for its deletion.
fn marked(resource: &Resource, old: &Value, options: &Options) -> Result<Value> {
    let mut new = old.clone();
    if resource.form == Form::Definition && old["metadata"].get("deletionTimestamp").is_none() {
        // Whatever the policy says: first its objects go, then it goes.
        definitions::status::delete(&mut new);
        return Ok(new);
    }
    let policy = match (&options.propagation_policy, options.orphan_dependents) {
        (Some(policy), _) => policy.as_str(),
        (None, Some(true)) => "Orphan",
        _ => "Background",
    };
    let (add, drop) = match policy {
        "Foreground" => (Some(FOREGROUND), Some(ORPHAN)),
        "Orphan" => (Some(ORPHAN), Some(FOREGROUND)),
        "Background" => (None, None),
        other => {
            return Err(unsupported(
                "DeleteOptions",
                "propagationPolicy",
                &format!("{other:?}: supported values: \"Foreground\", \"Background\", \"Orphan\""),
            ));
        }
    };
    let mut finalizers: Vec<Value> = new["metadata"]["finalizers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    finalizers.retain(|finalizer| finalizer.as_str() != drop || drop.is_none());
    if let Some(add) = add.filter(|add| !finalizers.iter().any(|f| f == add)) {
        finalizers.push(json!(add));
    }
    if finalizers.is_empty() {
        crate::value::remove(&mut new["metadata"], "finalizers");
    } else {
        new["metadata"]["finalizers"] = json!(finalizers);
    }
    if new["metadata"].get("deletionTimestamp").is_none() {
        new["metadata"]["deletionTimestamp"] = json!(now());
        if resource.form != Form::Namespace {
            new["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        }
        if let Some(generation) = new["metadata"]["generation"].as_i64() {
            new["metadata"]["generation"] = json!(generation + 1);
        }
    }
    if resource.form == Form::Namespace {
        new["status"]["phase"] = json!("Terminating");
    }
    Ok(new)
}

/// The body may be missing, empty, or `DeleteOptions` in any encoding; the query overrides it.
async fn options(call: &Call, request: Request) -> Result<Options> {
    let media = body::media_type(&request);
    let bytes = body::read(request).await?;
    let mut options = if bytes.is_empty() {
        Options::default()
    } else {
        let value = body::decode(&media, &bytes)?.value;
        serde_json::from_value(value)
            .map_err(|error| Failure::bad_request(format!("invalid DeleteOptions: {error}")))?
    };
    if let Some(policy) = call.query("propagationPolicy") {
        options.propagation_policy = Some(policy.to_owned());
    }
    if call.query("orphanDependents").is_some() {
        options.orphan_dependents = Some(call.flag("orphanDependents"));
    }
    if let Some(value) = call.query("dryRun") {
        options.dry_run = Some(vec![value.to_owned()]);
    }
    Ok(options)
}

/// Namespaces that Kubernetes lets nobody delete.
const PROTECTED: [&str; 3] = ["default", "kube-public", "kube-system"];

/// Held until the dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Held until the dependents have forgotten their owner.
pub(crate) const ORPHAN: &str = "orphan";
