//! What answers are made of.

use axum::{body::Body, response::Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

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
