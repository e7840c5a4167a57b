//! Bodies: JSON, YAML, and the protobuf that kubectl sends since 1.32.

use axum::extract::Request;
use http::header;
use http_body_util::{BodyExt, Limited};
use serde_json::Value;

use crate::{
    failure::{Failure, Result},
    pipeline,
};

/// Reads the whole body; empty if there is none.
pub(crate) async fn read(request: Request) -> Result<bytes::Bytes> {
    Limited::new(request.into_body(), BODY_MAX)
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                Failure::too_large(format!(
                    "Request entity too large: limit is {BODY_MAX} bytes"
                ))
            } else {
                Failure::bad_request(format!("the body could not be read: {error}"))
            }
        })
}

/// The media type without its parameters.
pub(crate) fn media_type(request: &Request) -> String {
    request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .unwrap_or("application/json")
        .trim()
        .to_ascii_lowercase()
}

/// Reads and decodes an object.
pub(crate) async fn object(request: Request) -> Result<Value> {
    let media = media_type(&request);
    let bytes = read(request).await?;
    decode(&media, &bytes)
}

pub(crate) fn decode(media: &str, bytes: &[u8]) -> Result<Value> {
    let value = match media {
        "application/vnd.kubernetes.protobuf" => pipeline::protobuf(bytes)?,
        "application/yaml" => yaml(bytes)?,
        "application/json" | "" => serde_json::from_slice(bytes).map_err(|error| {
            Failure::bad_request(format!("the body is not valid JSON: {error}"))
        })?,
        _ => {
            return Err(Failure::unsupported_media(
                "application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ));
        }
    };
    if value.is_object() {
        Ok(value)
    } else {
        Err(Failure::bad_request("the body is not an object"))
    }
}

/// YAML, which is JSON most of the time.
pub(crate) fn yaml(bytes: &[u8]) -> Result<Value> {
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Failure::bad_request(format!("the body is not UTF-8: {error}")))?;
    serde_saphyr::from_str(text)
        .map_err(|error| Failure::bad_request(format!("the body is not valid YAML: {error}")))
}

/// What Kubernetes reads at most.
const BODY_MAX: usize = 3 << 20;
