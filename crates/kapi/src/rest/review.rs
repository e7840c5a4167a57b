//! Questions about oneself: `kubectl auth can-i` and `kubectl auth whoami`.
//!
//! There is one right here: a client certificate of this server's authority. Whoever has it may do everything that is
//! served.

use axum::{extract::Request, response::Response};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{answer::json_response, body, negotiate::View, request::Identity};
use crate::{
    failure::{Cause, Failure, Result},
    registry::REVIEWS,
    state::Api,
};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Review {
    Access,
    Subject,
}

pub(crate) fn route(
    _: &Api,
    group: &str,
    version: &str,
    rest: &[&str],
    request: &Request,
) -> Result<Option<Review>> {
    let review = match (group, version, rest) {
        ("authorization.k8s.io", "v1", ["selfsubjectaccessreviews"]) => Review::Access,
        ("authentication.k8s.io", "v1", ["selfsubjectreviews"]) => Review::Subject,
        _ => return Ok(None),
    };
    if request.method() == Method::POST {
        Ok(Some(review))
    } else {
        Err(Failure::method_not_allowed())
    }
}

pub(crate) async fn answer(api: &Api, review: Review, request: Request) -> Result<Response> {
    let identity = request
        .extensions()
        .get::<Identity>()
        .cloned()
        .unwrap_or_default();
    View::of(request.headers())?;
    let mut value = body::object(request).await?.value;
    if let Review::Access = review {
        one_question(&value["spec"])?;
    }
    value["metadata"] = json!({});
    value["status"] = match review {
        Review::Subject => {
            json!({"userInfo": {"username": identity.user, "groups": identity.groups}})
        }
        Review::Access => access(api, &value["spec"]),
    };
    Ok(json_response(StatusCode::CREATED, &value))
}

/// A review asks either about a resource or about a path.
fn one_question(spec: &Value) -> Result<()> {
    let asks = |name: &str| spec.get(name).is_some_and(|value| !value.is_null());
    let (field, rule) = match (asks("resourceAttributes"), asks("nonResourceAttributes")) {
        (true, true) => (
            "spec.nonResourceAttributes",
            "cannot be specified in combination with resourceAttributes",
        ),
        (false, false) => (
            "spec.resourceAttributes",
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        _ => return Ok(()),
    };
    let cause = Cause {
        reason: "FieldValueInvalid".into(),
        message: format!("Invalid value: {rule}"),
        field: field.into(),
    };
    let (group, ..) = REVIEWS[0];
    Err(Failure::invalid_review(group, &cause))
}

fn access(api: &Api, spec: &Value) -> Value {
    let wanted = &spec["resourceAttributes"];
    let text = |name: &str| wanted[name].as_str().unwrap_or_default();
    let any = |given: &str, actual: &str| given.is_empty() || given == "*" || given == actual;
    let served = !wanted.is_object()
        || text("resource") == "*"
        || api.registry.resources.iter().any(|resource| {
            text("resource") == resource.plural
                && (text("group") == resource.group || text("group") == "*")
                && any(text("version"), &resource.version)
                && (any(text("verb"), "") || resource.verbs().contains(&text("verb")))
        });
    if served {
        json!({"allowed": true})
    } else {
        json!({"allowed": false, "reason": "this server does not serve it"})
    }
}
