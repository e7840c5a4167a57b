//! Errors as clients of Kubernetes know them: a `metav1.Status` with a reason, details and causes.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    registry::{Form, Resource},
    store::WriteError,
};

/// A refused request.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub code: StatusCode,
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Box<Value>>,
    /// Where a list can go on all the same.
    pub next: Option<String>,
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// One cause of an `Invalid` status.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

impl Failure {
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            next: None,
        }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        self.details = Some(Box::new(details(resource, name)));
        self
    }

    /// A body with a value of another type than its field has.
    pub fn undecodable(resource: &Resource, why: &str) -> Self {
        Self::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {why}",
            resource.kind, resource.version, resource.kind
        ))
    }

    /// A patch that would leave such a body.
    pub fn undecodable_patch(why: &str) -> Self {
        let message = format!("Invalid value: {why}");
        let cause = Cause {
            reason: "FieldValueInvalid".into(),
            message: message.clone(),
            field: "patch".into(),
        };
        let message = format!("\"\" is invalid: patch: {message}");
        let mut failure = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        failure.details = Some(Box::new(json!({"causes": causes_json(&[cause])})));
        failure
    }

    /// No such path: exactly what kubectl looks for when it decides that a server lacks a resource.
    pub fn no_route() -> Self {
        let mut failure = Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        );
        failure.details = Some(Box::new(json!({})));
        failure
    }

    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(resource, name)
    }

    pub fn exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, name)
    }

    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            resource.qualified()
        );
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(resource, name)
    }

    pub fn modified(resource: &Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Another field manager owns what an apply wants to change.
    pub fn apply_conflict(message: String, causes: &[Cause]) -> Self {
        let mut failure = Self::new(StatusCode::CONFLICT, "Conflict", message);
        failure.details = Some(Box::new(json!({"causes": causes_json(causes)})));
        failure
    }

    pub fn invalid(resource: &Resource, name: &str, causes: &[Cause]) -> Self {
        let kind = match resource.group.as_str() {
            "" => resource.kind.clone(),
            group => format!("{}.{group}", resource.kind),
        };
        let message = format!("{kind} \"{name}\" is invalid: {}", listed(causes));
        let mut details = json!({"kind": resource.kind, "causes": causes_json(causes)});
        if !name.is_empty() {
            details["name"] = json!(name);
        }
        // Events of both groups are checked as those of the core.
        if !resource.group.is_empty() && resource.form != Form::NewEvent {
            details["group"] = json!(resource.group);
        }
        Self {
            code: StatusCode::UNPROCESSABLE_ENTITY,
            reason: "Invalid",
            message,
            details: Some(Box::new(details)),
            next: None,
        }
    }

    /// A parameter of the request that is not allowed; `kind` is the one of its options, such as `CreateOptions`.
    pub fn invalid_option(kind: &str, cause: &Cause) -> Self {
        Self::invalid_options(kind, std::slice::from_ref(cause))
    }

    /// Parameters of the request that are not allowed.
    pub fn invalid_options(kind: &str, causes: &[Cause]) -> Self {
        let message = format!("{kind}.meta.k8s.io \"\" is invalid: {}", listed(causes));
        let mut failure = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        let details = json!({"group": "meta.k8s.io", "kind": kind, "causes": causes_json(causes)});
        failure.details = Some(Box::new(details));
        failure
    }

    /// A review of a group, whose kind Kubernetes does not name.
    pub fn invalid_review(group: &str, cause: &Cause) -> Self {
        let causes = std::slice::from_ref(cause);
        let message = format!(".{group} \"\" is invalid: {}", listed(causes));
        let mut failure = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        let details = json!({"group": group, "causes": causes_json(causes)});
        failure.details = Some(Box::new(details));
        failure
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified());
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(resource, name)
    }

    pub fn method_not_allowed() -> Self {
        let mut failure = Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        failure.details = Some(Box::new(json!({})));
        failure
    }

    /// [`Failure::method_not_allowed`] of a custom resource.
    pub fn method_not_supported(resource: &Resource) -> Self {
        Self::method_not_allowed().about(resource, "")
    }

    pub fn unsupported_media(accepted: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            ),
        )
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            message,
        )
    }

    /// An answer in a form in which there is none.
    pub fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json";
        let mut failure = Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message);
        failure.details = Some(Box::new(json!({})));
        failure
    }

    /// A request in the name of somebody else.
    pub fn impersonation(header: &str, name: &str) -> Self {
        let message = format!(
            "users \"{name}\" is forbidden: this server impersonates nobody: it has one user, who may do everything; leave out the header {header} (of kubectl: --as, --as-group, --as-uid)"
        );
        let mut failure = Self::new(StatusCode::FORBIDDEN, "Forbidden", message);
        failure.details = Some(Box::new(json!({"name": name, "kind": "users"})));
        failure
    }

    /// A request whose body does not come.
    pub fn timeout(after: std::time::Duration) -> Self {
        let message = format!(
            "the body of the request was not there after {} s",
            after.as_secs()
        );
        Self::new(StatusCode::REQUEST_TIMEOUT, "Timeout", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub fn internal(message: impl std::fmt::Display) -> Self {
        let mut failure = Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {message}"),
        );
        let cause = json!({"message": message.to_string()});
        failure.details = Some(Box::new(json!({"causes": [cause]})));
        failure
    }

    /// The failure of a write on which no retry is left.
    pub fn of_write(error: &WriteError, resource: &Resource, name: &str) -> Self {
        match error {
            WriteError::Conflict => Self::modified(resource, name),
            WriteError::Exists => Self::exists(resource, name),
            WriteError::Terminating => Self {
                message: "create not allowed while custom resource definition is terminating"
                    .into(),
                details: Some(Box::new(
                    json!({"group": resource.group, "kind": resource.plural}),
                )),
                ..Self::method_not_allowed()
            },
            WriteError::Full => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "InternalError",
                format!(
                    "{} \"{name}\" was not stored: the disk of the data directory is full; free some space and try again",
                    resource.qualified()
                ),
            ),
            WriteError::Closed => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailable",
                "the server is shutting down",
            ),
            error @ WriteError::Failed(_) => Self::internal(error),
        }
    }

    /// The status object of this failure.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message,
        });
        if let Some(next) = &self.next {
            status["metadata"]["continue"] = json!(next);
        }
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = (**details).clone();
        }
        status["code"] = json!(self.code.as_u16());
        status
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.code, self.status().to_string()).into_response();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        response
    }
}

fn details(resource: &Resource, name: &str) -> Value {
    let mut details = json!({});
    if !name.is_empty() {
        details["name"] = json!(name);
    }
    details["kind"] = json!(resource.plural);
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    details
}

/// The causes in one sentence.
fn listed(causes: &[Cause]) -> String {
    let texts: Vec<String> = causes
        .iter()
        .map(|cause| match cause.field.as_str() {
            "" => cause.message.clone(),
            field => format!("{field}: {}", cause.message),
        })
        .collect();
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn causes_json(causes: &[Cause]) -> Vec<Value> {
    causes
        .iter()
        .map(|cause| {
            let field = match cause.field.as_str() {
                "" => "<nil>",
                field => field,
            };
            json!({"reason": cause.reason, "message": cause.message, "field": field})
        })
        .collect()
}
