//! Serves a directory to the hosts of a lab, without any network beyond it: `mirror DIR ADDRESS:PORT [USER:PASSWORD]`.
//! With a user, nobody else gets anything.
//!
//! `DIR/files/PATH` is the file `/PATH`. `DIR/registry` is a registry of container images that can only be read:
//! `manifests/NAME/TAG` holds the hex digest of a manifest, `blobs/HEX` are manifests, configurations and layers.

use std::{
    env,
    io::Write as _,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::get,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use tokio::{fs::File, net::TcpListener};
use tokio_util::io::ReaderStream;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const BYTES: &str = "application/octet-stream";

const USAGE: &str = "usage: mirror DIR ADDRESS:PORT [USER:PASSWORD]";

/// What is served, and to whom.
struct Mirror {
    directory: PathBuf,
    /// The header that everybody must send; none: whoever asks is served.
    authorization: Option<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args_os().skip(1);
    let directory = PathBuf::from(arguments.next().context(USAGE)?);
    let mut texts = arguments.map(|argument| argument.into_string().ok().context(USAGE));
    let address = texts.next().context(USAGE)??;
    let login = texts.next().transpose()?;
    let mirror = Mirror {
        directory,
        authorization: login.map(|login| format!("Basic {}", STANDARD.encode(login))),
    };
    let listener = TcpListener::bind(&address)
        .await
        .with_context(|| format!("failed to listen on {address}"))?;
    println!("listening on {address}");
    std::io::stdout().flush()?;
    let router = Router::new()
        .fallback(get(serve))
        .with_state(Arc::new(mirror));
    axum::serve(listener, router)
        .await
        .context("failed to serve")
}

async fn serve(State(mirror): State<Arc<Mirror>>, headers: HeaderMap, uri: Uri) -> Response {
    let Mirror {
        directory,
        authorization,
    } = mirror.as_ref();
    let given = headers.get(header::AUTHORIZATION);
    if let Some(wanted) = authorization
        && given.is_none_or(|given| given != wanted.as_str())
    {
        let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"mirror\"")];
        return (StatusCode::UNAUTHORIZED, challenge).into_response();
    }
    let path = Path::new(uri.path().trim_start_matches('/'));
    if !path
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
    {
        return StatusCode::NOT_FOUND.into_response();
    }
    match path.strip_prefix("v2") {
        Ok(rest) => image(&directory.join("registry"), rest).await,
        Err(_) => file(&directory.join("files").join(path), BYTES, None).await,
    }
}

/// `NAME/manifests/REFERENCE` or `NAME/blobs/DIGEST`, where NAME may have slashes.
async fn image(registry: &Path, path: &Path) -> Response {
    let Some(path) = path.to_str().filter(|path| !path.is_empty()) else {
        return "{}".into_response();
    };
    let (digest, kind) = if let Some((name, reference)) = path.rsplit_once("/manifests/") {
        let digest = if let Some(digest) = reference.strip_prefix("sha256:") {
            digest.to_owned()
        } else {
            let file = registry.join("manifests").join(name).join(reference);
            tokio::fs::read_to_string(file).await.unwrap_or_default()
        };
        (digest.trim().to_owned(), MANIFEST)
    } else if let Some((_, digest)) = path.rsplit_once("/blobs/sha256:") {
        (digest.to_owned(), BYTES)
    } else {
        return StatusCode::NOT_FOUND.into_response();
    };
    file(&registry.join("blobs").join(&digest), kind, Some(&digest)).await
}

async fn file(path: &Path, kind: &str, digest: Option<&str>) -> Response {
    let opened = async {
        let file = File::open(path).await.ok()?;
        let metadata = file.metadata().await.ok()?;
        metadata.is_file().then_some((file, metadata.len()))
    };
    let Some((file, length)) = opened.await else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let mut response = Response::builder()
        .header(header::CONTENT_TYPE, kind)
        .header(header::CONTENT_LENGTH, length);
    if let Some(digest) = digest {
        response = response.header("Docker-Content-Digest", format!("sha256:{digest}"));
    }
    response
        .body(Body::from_stream(ReaderStream::with_capacity(
            file,
            1 << 18,
        )))
        .unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}
