//! What an edit of an inventory changes, for an API server that asks by a webhook when somebody tries one: `kubectl apply --dry-run=server`.
//!
//! Everything passes: it only warns, and says nothing where an edit is meant. Whoever reaches the port can ask, as with any webhook, and
//! learns what an edit would change and what would be wrong with it. So one edit is looked at at a time, on a thread of its own: rendering a
//! fleet takes seconds of a processor, and reconcilers and probes go on beside it.
//!
//! # Source
//! Kubernetes, "Dynamic Admission Control": `AdmissionReview` of admission.k8s.io/v1.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::StatusCode,
    routing::post,
};
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{bind, tls};

/// How many connections are open at once: an API server keeps one or two.
const CONNECTIONS: usize = 16;
/// How many edits are looked at side by side: each renders the fleet.
const AT_ONCE: usize = 1;
/// How long an edit is looked at. The webhook waits for ten seconds.
const LONGEST: Duration = Duration::from_secs(8);
/// Two objects of the largest size that a store takes, and what is said beside them.
const LARGEST: usize = 4 << 20;
const VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    api_version: String,
    kind: String,
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default)]
    object: Value,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answered {
    api_version: &'static str,
    kind: &'static str,
    response: Answer,
}

#[derive(Debug, Serialize)]
struct Answer {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Clone)]
struct Asking {
    client: Client,
    places: Arc<Semaphore>,
    longest: Duration,
}

/// Listens for the API server; what is returned serves for as long as it is polled.
pub(crate) async fn advice(
    address: SocketAddr,
    certificate: &Path,
    client: Client,
) -> anyhow::Result<impl Future<Output = ()> + Send + use<>> {
    // Who works on clusters does not stop for a Secret that only warnings need.
    let (chain, key) = (certificate.join("tls.crt"), certificate.join("tls.key"));
    let certificate = tls::Certificate::of_files_to_come(chain, key);
    let listener = bind(address).await?;
    let router = router(client, LONGEST);
    Ok(tls::serve(listener, certificate, router, CONNECTIONS))
}

fn router(client: Client, longest: Duration) -> Router {
    let asking = Asking {
        client,
        places: Arc::new(Semaphore::new(AT_ONCE)),
        longest,
    };
    Router::new()
        .route("/advice", post(advise))
        .layer(DefaultBodyLimit::max(LARGEST))
        .with_state(asking)
}

async fn advise(
    State(asking): State<Asking>,
    body: Bytes,
) -> Result<Json<Answered>, (StatusCode, &'static str)> {
    let asked: Option<Asked> = serde_json::from_slice(&body).ok();
    let asked = asked.filter(|asked| asked.api_version == VERSION && asked.kind == KIND);
    let Some(Asked { request, .. }) = asked else {
        return Err((
            StatusCode::BAD_REQUEST,
            "the body is no AdmissionReview of admission.k8s.io/v1 with a request",
        ));
    };
    let warnings = if request.dry_run == Some(true) {
        warnings(&asking, &request.object).await
    } else {
        Vec::new()
    };
    Ok(Json(Answered {
        api_version: VERSION,
        kind: KIND,
        response: Answer {
            uid: request.uid,
            allowed: true,
            warnings,
        },
    }))
}

async fn warnings(asking: &Asking, object: &Value) -> Vec<String> {
    let (client, object) = (asking.client.clone(), object.clone());
    let looked = tokio::time::timeout(asking.longest, async {
        let place = Arc::clone(&asking.places).acquire_owned().await.ok()?;
        let runtime = tokio::runtime::Handle::current();
        // Who waits no longer does not end it, so the place is its own until it has ended.
        let looking = tokio::task::spawn_blocking(move || {
            let _place = place;
            runtime.block_on(fleet::advice::warnings(&client, &object))
        });
        looking.await.ok()
    });
    looked.await.ok().flatten().unwrap_or_else(|| {
        vec![format!(
            "what this changes was not known within {:?}; windlass inventory plan takes its time",
            asking.longest
        )]
    })
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http};
    use serde_json::json;
    use tower::ServiceExt as _;

    use super::*;

    /// How long an edit is looked at here, and an API that takes longer.
    const SHORT: Duration = Duration::from_millis(10);

    fn slow() -> Client {
        let answer = async |_: http::Request<kube::client::Body>| {
            tokio::time::sleep(20 * SHORT).await;
            Err::<http::Response<Body>, _>(std::io::Error::other("nobody"))
        };
        Client::new(tower::service_fn(answer), "default")
    }

    async fn ask(body: String) -> (StatusCode, Value) {
        let request = http::Request::post("/advice")
            .body(Body::from(body))
            .unwrap();
        let response = router(slow(), SHORT).oneshot(request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20)
            .await
            .unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    fn review(dry_run: Option<bool>) -> String {
        let object = json!({
            "apiVersion": "inventory.windlass.dev/v1alpha1", "kind": "Site", "metadata": {"name": "a", "namespace": "fleet"},
        });
        let request = json!({"uid": "u", "dryRun": dry_run, "object": object});
        json!({"apiVersion": VERSION, "kind": KIND, "request": request}).to_string()
    }

    #[tokio::test]
    async fn everything_passes_and_what_is_meant_is_not_looked_at() {
        for dry_run in [None, Some(false)] {
            let (status, answer) = ask(review(dry_run)).await;
            assert_eq!(status, StatusCode::OK);
            let expected = json!({"apiVersion": VERSION, "kind": KIND, "response": {"uid": "u", "allowed": true}});
            assert_eq!(answer, expected);
        }
        let (status, answer) = ask(review(Some(true))).await;
        assert_eq!(
            (status, &answer["response"]["allowed"]),
            (StatusCode::OK, &json!(true))
        );
        let warning = answer["response"]["warnings"][0].as_str().unwrap();
        assert!(
            warning.starts_with("what this changes was not known within 10ms"),
            "{warning}"
        );
    }

    #[tokio::test]
    async fn what_is_no_review_is_refused() {
        let version = review(None).replace(VERSION, "admission.k8s.io/v1beta1");
        for body in ["", "{}", "[]", "{\"request\": {}}", &version, "\u{0}"] {
            let (status, _) = ask(body.to_owned()).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{body:?}");
        }
        let (status, _) = ask("x".repeat(LARGEST + 1)).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
