//! Bodies: JSON, YAML, and the protobuf that kubectl sends since 1.32.

mod repeated;

use std::time::Duration;

use axum::extract::Request;
use http::header;
use http_body_util::{BodyExt, Limited};
use serde_json::Value;

use crate::{
    failure::{Failure, Result},
    patch, pipeline,
};

/// How much of a body that is too large is heard out.
const HEARD_OUT: usize = 32 << 20;

/// Reads the whole body; empty if there is none.
pub(crate) async fn read(request: Request) -> Result<bytes::Bytes> {
    let mut body = request.into_body();
    let whole = async {
        let read = Limited::new(&mut body, BODY_MAX).collect().await;
        if read
            .as_ref()
            .is_err_and(|error| is_too_large(error.as_ref()))
        {
            hear_out(&mut body).await;
        }
        read
    };
    tokio::time::timeout(BODY_TIME, whole)
        .await
        .map_err(|_| Failure::timeout(BODY_TIME))?
        .map(http_body_util::Collected::to_bytes)
        .map_err(|error| {
            if is_too_large(error.as_ref()) {
                Failure::too_large(format!(
                    "Request entity too large: limit is {BODY_MAX} bytes"
                ))
            } else {
                Failure::bad_request(format!("the body could not be read: {error}"))
            }
        })
}

fn is_too_large(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    error.is::<http_body_util::LengthLimitError>()
}

/// Lets the client send the rest of what is refused: one that still writes when the connection closes reads no answer.
async fn hear_out(body: &mut axum::body::Body) {
    let mut heard = 0_usize;
    while let Some(Ok(frame)) = body.frame().await {
        heard = heard.saturating_add(frame.data_ref().map_or(0, bytes::Bytes::len));
        if heard > HEARD_OUT {
            return;
        }
    }
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

/// What a body says, and what a strict decoder would not take of it.
pub(crate) struct Body {
    pub value: Value,
    pub faults: Vec<String>,
}

/// Reads and decodes an object.
pub(crate) async fn object(request: Request) -> Result<Body> {
    let media = media_type(&request);
    let bytes = read(request).await?;
    decode(&media, &bytes)
}

pub(crate) fn decode(media: &str, bytes: &[u8]) -> Result<Body> {
    let body = match media {
        "application/vnd.kubernetes.protobuf" => shallow(pipeline::protobuf(bytes)?.into())?,
        "application/yaml" => yaml(bytes)?,
        "application/json" | "" => json(bytes).map_err(|error| {
            Failure::bad_request(format!("the body is not valid JSON: {error}"))
        })?,
        _ => {
            return Err(Failure::unsupported_media(
                "application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ));
        }
    };
    if body.value.is_object() {
        Ok(body)
    } else {
        Err(Failure::bad_request("the body is not an object"))
    }
}

fn json(bytes: &[u8]) -> serde_json::Result<Body> {
    let (value, repeated) = repeated::json(bytes)?;
    let faults = repeated
        .iter()
        .map(|path| format!("duplicate field \"{path}\""))
        .collect();
    Ok(Body { value, faults })
}

/// YAML, which is JSON most of the time.
pub(crate) fn yaml(bytes: &[u8]) -> Result<Body> {
    if let Ok(body) = json(bytes) {
        return Ok(body);
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Failure::bad_request(format!("the body is not UTF-8: {error}")))?;
    serde_saphyr::from_str(text)
        .map(Value::into)
        .map_err(|error| Failure::bad_request(format!("the body is not valid YAML: {error}")))
        .and_then(shallow)
}

/// Refuses what the store could not read again. JSON that deep is not even read.
fn shallow(body: Body) -> Result<Body> {
    if !patch::too_deep(&body.value) {
        return Ok(body);
    }
    Err(Failure::bad_request(format!(
        "the body is nested more than {} levels deep",
        patch::DEEPEST
    )))
}

impl From<Value> for Body {
    fn from(value: Value) -> Self {
        let faults = Vec::new();
        Self { value, faults }
    }
}

/// What Kubernetes reads at most.
const BODY_MAX: usize = 3 << 20;

/// The time for a whole request in Kubernetes.
const BODY_TIME: Duration = Duration::from_mins(1);
