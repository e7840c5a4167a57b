//! Gives what is in a mirror to whoever asks, or to who has its login: files by their places, images as a registry does that can only
//! be read. No path leads out of the directory, not even by a link that somebody put into it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing::get,
};
use http::{HeaderValue, Method, StatusCode, header};
use registry::{Manifest, hex_digest};
use serde_json::json;
use tower::ServiceExt as _;
use tower_http::services::ServeFile;

use crate::{
    list::{Place, is_repository, is_tag},
    store::Store,
};

struct Served {
    store: Store,
    /// The header that everybody must send; none: whoever asks is served.
    authorization: Option<String>,
}

/// What serves a mirror. With an authorization, which is the text of that header, nobody else gets anything.
pub fn router(store: Store, authorization: Option<String>) -> Router {
    let served = Served {
        store,
        authorization,
    };
    Router::new()
        .fallback(get(answer))
        .with_state(Arc::new(served))
}

async fn answer(State(served): State<Arc<Served>>, request: Request) -> Response {
    let given = request.headers().get(header::AUTHORIZATION);
    if let Some(wanted) = &served.authorization
        && given.is_none_or(|given| given != wanted.as_str())
    {
        let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"mirror\"")];
        return (StatusCode::UNAUTHORIZED, challenge).into_response();
    }
    let path = request.uri().path().to_owned();
    let path = path.trim_start_matches('/');
    if path == "v2" || path == "v2/" {
        return axum::Json(json!({})).into_response();
    }
    match path.strip_prefix("v2/") {
        Some(rest) => image(&served.store, rest, request).await,
        None => match path.parse::<Place>() {
            Ok(place) => file(&served.store, &served.store.file(&place), request).await,
            Err(_) => StatusCode::NOT_FOUND.into_response(),
        },
    }
}

/// `NAME/manifests/REFERENCE`, `NAME/blobs/DIGEST` or `NAME/tags/list`, where NAME may have slashes.
async fn image(store: &Store, path: &str, request: Request) -> Response {
    if let Some((name, reference)) = path.rsplit_once("/manifests/")
        && is_repository(name)
    {
        let hex = match hex_digest(reference) {
            Some(hex) => Some(hex.to_owned()),
            None if is_tag(reference) => store.tagged(name, reference),
            None => None,
        };
        return match hex.and_then(|hex| Some((store.manifest(&hex)?, hex))) {
            Some((bytes, hex)) => manifest(bytes, &hex, request.method()),
            None => unknown("MANIFEST_UNKNOWN"),
        };
    }
    if let Some((name, digest)) = path.rsplit_once("/blobs/")
        && is_repository(name)
        && let Some(hex) = hex_digest(digest)
    {
        let mut response = file(store, &store.blob(hex), request).await;
        if response.status() == StatusCode::NOT_FOUND {
            return unknown("BLOB_UNKNOWN");
        }
        named(&mut response, "application/octet-stream", hex);
        return response;
    }
    if let Some(name) = path.strip_suffix("/tags/list")
        && is_repository(name)
        && let Some(tags) = tags(store, &store.manifests().join(name))
    {
        return axum::Json(json!({"name": name, "tags": tags})).into_response();
    }
    unknown("NAME_UNKNOWN")
}

fn manifest(bytes: Vec<u8>, hex: &str, method: &Method) -> Response {
    let Ok(read) = Manifest::read(&bytes) else {
        return unknown("MANIFEST_UNKNOWN");
    };
    let length = HeaderValue::from(bytes.len());
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        Body::from(bytes)
    };
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, length);
    named(&mut response, read.kind(), hex);
    response
}

fn named(response: &mut Response, kind: &str, hex: &str) {
    let headers = response.headers_mut();
    if let Ok(kind) = HeaderValue::from_str(kind) {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    if let Ok(digest) = HeaderValue::from_str(&format!("sha256:{hex}")) {
        headers.insert("Docker-Content-Digest", digest);
    }
}

/// The tags of a repository, whose directory lies in the mirror wherever links lead.
fn tags(store: &Store, directory: &Path) -> Option<Vec<String>> {
    let directory = fs::canonicalize(directory).ok()?;
    if !directory.starts_with(store.root()) {
        return None;
    }
    let entries = fs::read_dir(directory).ok()?.flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    let mut tags: Vec<_> = names.filter(|name| is_tag(name)).collect();
    tags.sort();
    (!tags.is_empty()).then_some(tags)
}

fn unknown(code: &str) -> Response {
    let body = json!({"errors": [{"code": code, "message": "this mirror does not have it"}]});
    (StatusCode::NOT_FOUND, axum::Json(body)).into_response()
}

/// A file, whole or the part that is asked for.
async fn file(store: &Store, path: &Path, request: Request) -> Response {
    let Some(path) = inside(store, path).await else {
        return StatusCode::NOT_FOUND.into_response();
    };
    match ServeFile::new(path).oneshot(request).await {
        Ok(response) => {
            let mut response = response.map(Body::new);
            let kind = HeaderValue::from_static("application/octet-stream");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        Err(never) => match never {},
    }
}

/// The file, if it is one, wherever links lead, and lies in the mirror.
async fn inside(store: &Store, path: &Path) -> Option<PathBuf> {
    let path = tokio::fs::canonicalize(path).await.ok()?;
    let is_file = tokio::fs::metadata(&path).await.ok()?.is_file();
    (is_file && path.starts_with(store.root())).then_some(path)
}
