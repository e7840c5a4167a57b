//! Faults between a client and its API, for tests.
//!
//! A [`tower::Layer`] around the service that a `kube::Client` uses: the embedded API's router, or a connection to a real
//! server. Each request may meet a [`Fault`], as a predicate says or by chance from a seed; nothing else changes on its way.
//!
//! ```
//! # tokio_test(async {
//! use kapi::fault::{Fault, Faults};
//! use tower::Layer;
//!
//! let server = kapi::Server::in_memory(&[]).await.unwrap();
//! let faults = Faults::when(|request| (request.method == "DELETE").then_some(Fault::Internal));
//! let client = kube::Client::new(faults.layer(server.router()), "default");
//! # let _ = client;
//! # });
//! # fn tokio_test(future: impl Future<Output = ()>) {
//! #     tokio::runtime::Runtime::new().unwrap().block_on(future);
//! # }
//! ```

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    response::{IntoResponse, Response},
};
use futures::StreamExt;
use http::{Method, Request, StatusCode, header, request::Parts};
use serde_json::json;
use tower::{BoxError, Layer, Service};

/// What a request meets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// It is answered, but later.
    Latency(Duration),
    /// 409: somebody else was faster.
    Conflict,
    /// 410: the revision is too old. A watch is told by its first event.
    Gone,
    /// 429, with the seconds after which to try again.
    TooMany {
        /// `Retry-After`.
        seconds: u32,
    },
    /// 422: it takes what was written in no form.
    Invalid,
    /// 500.
    Internal,
    /// A watch breaks off after this time; the answer to another request comes whole.
    DroppedWatch(Duration),
    /// The request takes effect, and its answer is lost.
    LostAnswer,
}

impl Fault {
    /// Its name, for counting.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency(_) => "latency",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::TooMany { .. } => "too many",
            Self::Invalid => "invalid",
            Self::Internal => "internal",
            Self::DroppedWatch(_) => "dropped watch",
            Self::LostAnswer => "lost answer",
        }
    }
}

/// Which requests meet which faults. Clones share their state.
#[derive(Clone)]
pub struct Faults(Arc<Inner>);

/// Whether a request meets a fault, and which.
type Decide = dyn Fn(&Parts) -> Option<Fault> + Send + Sync;

struct Inner {
    decide: Box<Decide>,
    calm: AtomicBool,
    met: Mutex<BTreeMap<&'static str, usize>>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults")
            .field("met", &self.met())
            .finish_non_exhaustive()
    }
}

impl Faults {
    /// Faults by a predicate over the request without its body.
    pub fn when(decide: impl Fn(&Parts) -> Option<Fault> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            decide: Box::new(decide),
            calm: AtomicBool::new(false),
            met: Mutex::default(),
        }))
    }

    /// Faults by chance, of every kind that fits the request: `of_hundred` requests in a hundred meet one. The same seed gives
    /// the same decisions to the same requests in the same order.
    pub fn seeded(seed: u64, of_hundred: u8) -> Self {
        let state = Mutex::new(seed);
        Self::when(move |request| {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            (next(&mut state) % 100 < u64::from(of_hundred)).then(|| chosen(request, &mut state))
        })
    }

    /// The same faults, but for one kind of them.
    #[must_use]
    pub fn without(&self, kind: Fault) -> Self {
        let all = self.clone();
        Self::when(move |request| {
            all.decide(request)
                .filter(|fault| fault.name() != kind.name())
        })
    }

    /// No faults from now on.
    pub fn end(&self) {
        self.0.calm.store(true, Ordering::Relaxed);
    }

    /// How often each fault was met, by its name.
    pub fn met(&self) -> BTreeMap<&'static str, usize> {
        self.0
            .met
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn decide(&self, request: &Parts) -> Option<Fault> {
        if self.0.calm.load(Ordering::Relaxed) {
            return None;
        }
        let fault = (self.0.decide)(request)?;
        let mut met = self.0.met.lock().unwrap_or_else(PoisonError::into_inner);
        *met.entry(fault.name()).or_default() += 1;
        Some(fault)
    }
}

impl<S> Layer<S> for Faults {
    type Service = Faulty<S>;

    fn layer(&self, inner: S) -> Faulty<S> {
        Faulty {
            inner,
            faults: self.clone(),
        }
    }
}

/// A service whose requests meet faults.
#[derive(Clone, Debug)]
pub struct Faulty<S> {
    inner: S,
    faults: Faults,
}

impl<S, B, R> Service<Request<B>> for Faulty<S>
where
    S: Service<Request<B>, Response = http::Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Send + 'static,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let fault = self.faults.decide(&parts);
        let watch = is_watch(&parts);
        let request = Request::from_parts(parts, body);
        // The one that was found ready is the one to call.
        let mut inner = self.inner.clone();
        std::mem::swap(&mut inner, &mut self.inner);
        Box::pin(async move {
            if let Some(Fault::Latency(time)) = fault {
                tokio::time::sleep(time).await;
            }
            if let Some(refusal) = fault.and_then(|fault| refusal(fault, watch)) {
                return Ok(refusal);
            }
            let response = inner
                .call(request)
                .await
                .map_err(Into::into)?
                .map(Body::new);
            match fault {
                Some(Fault::LostAnswer) => {
                    Err("the connection broke before the answer came".into())
                }
                Some(Fault::DroppedWatch(after)) if watch => {
                    Ok(response.map(|body| cut(body, after)))
                }
                _ => Ok(response),
            }
        })
    }
}

/// The answer of a fault that keeps the request from the server.
fn refusal(fault: Fault, watch: bool) -> Option<Response> {
    let (code, reason) = match fault {
        Fault::Conflict => (StatusCode::CONFLICT, "Conflict"),
        Fault::Gone => (StatusCode::GONE, "Expired"),
        Fault::TooMany { .. } => (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
        Fault::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
        Fault::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        Fault::Latency(_) | Fault::DroppedWatch(_) | Fault::LostAnswer => return None,
    };
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "code": code.as_u16(), "reason": reason, "message": format!("{} by a test", fault.name()),
    });
    if watch && fault == Fault::Gone {
        let event = json!({"type": "ERROR", "object": status});
        return Some(format!("{event}\n").into_response());
    }
    let mut response = (code, status.to_string()).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    if let Fault::TooMany { seconds } = fault {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    Some(response)
}

/// The body for some time, and an error after it.
fn cut(body: Body, after: Duration) -> Body {
    let broken = futures::stream::once(async {
        Err::<Bytes, BoxError>("the connection broke in a watch".into())
    });
    let whole = body
        .into_data_stream()
        .map(|chunk| chunk.map_err(BoxError::from));
    Body::from_stream(
        whole
            .take_until(Box::pin(tokio::time::sleep(after)))
            .chain(broken),
    )
}

fn is_watch(request: &Parts) -> bool {
    let query = request.uri.query().unwrap_or_default();
    query
        .split('&')
        .any(|pair| ["watch=true", "watch=1"].contains(&pair))
}

/// A fault that a request of this kind may meet.
fn chosen(request: &Parts, state: &mut u64) -> Fault {
    let short = Duration::from_millis(next(state) % 100);
    let of_all = [
        Fault::Latency(short),
        Fault::TooMany { seconds: 0 },
        Fault::Internal,
    ];
    let more = match request.method {
        Method::GET if is_watch(request) => [Fault::Gone, Fault::DroppedWatch(short)],
        Method::GET => [Fault::LostAnswer; 2],
        _ => [Fault::Conflict, Fault::LostAnswer],
    };
    let all = [of_all.as_slice(), more.as_slice()].concat();
    let at = usize::try_from(next(state)).unwrap_or_default() % all.len();
    all.get(at).copied().unwrap_or(Fault::Internal)
}

/// Splitmix64: the decisions must not change with a library's generator.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
