//! The loop that accepts connections, and what it lets them cost.
//!
//! Every user of this machine can open connections here, and one without a certificate must not be able to stop those
//! who have one. So a connection is a stranger until its handshake has proved a client certificate, and strangers are
//! few: they have a deadline for all they do, little memory, and when there are too many of them, the oldest of the
//! user who has the most of them goes, those first that have not said their hello yet. Whoever floods this address
//! thereby only pushes out their own connections, and with silence not even those of their own that do speak.
//! A plain bound would not do: it lets the first to come keep everybody else out.
//!
//! The loop itself ends only when it is told to: when the process has no more files, strangers make room.

mod peer;

use std::{
    collections::BTreeMap,
    future::Future,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{Router, body::Body, response::IntoResponse};
use futures::StreamExt;
use http::Request;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use rustls::{ServerConfig, server::Acceptor};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::{Instant, MissedTickBehavior, timeout, timeout_at},
};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};
use tower::ServiceExt;

use self::peer::Peers;
use crate::{
    failure::Failure,
    rest::{request::Identity, watch::Endless},
    tls,
};

/// What connections may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connections without a certificate, of all users together. Far below the 1,024 files that a process has at least.
    pub strangers: usize,
    /// The time for a handshake. It takes milliseconds, also on a machine that is busy.
    pub handshake: Duration,
    /// The time for everything that a connection without a certificate does: health checks.
    pub stranger: Duration,
    /// The time for the head of a request, and of idleness between two requests of HTTP/1.
    pub head: Duration,
    /// How long requests may take to end when the server does.
    pub drain: Duration,
    /// How often certificates are looked at.
    pub renewal: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            strangers: 256,
            handshake: Duration::from_secs(10),
            stranger: Duration::from_secs(30),
            head: Duration::from_secs(90),
            drain: Duration::from_secs(5),
            renewal: Duration::from_hours(1),
        }
    }
}

/// Accepts connections until `shutdown` is done. `renewed` is asked now and then for another configuration.
pub(crate) async fn serve(
    listener: TcpListener,
    config: ServerConfig,
    mut renewed: impl FnMut() -> Option<ServerConfig> + Send,
    router: Router,
    limits: Limits,
    shutdown: impl Future<Output = ()> + Send,
) {
    let mut config = Arc::new(config);
    let (end, ending) = watch::channel(false);
    let strangers = Arc::new(Strangers::default());
    let mut peers = Peers::open();
    // Dropped on return, which ends what has not ended by then.
    let mut connections = JoinSet::new();
    let mut renewal = tokio::time::interval(limits.renewal);
    renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            _ = renewal.tick() => {
                if let Some(renewed) = renewed() {
                    config = Arc::new(renewed);
                }
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let (stream, remote) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                make_room(&error, &strangers, &mut connections).await;
                continue;
            }
        };
        let local = stream.local_addr();
        let user = local.ok().and_then(|local| peers.user(remote, local));
        let connection = Connection {
            config: Arc::clone(&config),
            router: router.clone(),
            limits,
            ending: ending.clone(),
            remote,
        };
        strangers.admit(user, limits.strangers, |place| {
            connections.spawn(connection.run(stream, place))
        });
    }
    drop(listener);
    let _ = end.send(true);
    strangers.clear();
    let drained = async { while connections.join_next().await.is_some() {} };
    if timeout(limits.drain, drained).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "requests did not end in time and are cut off"
        );
    }
}

/// After a failed accept. A connection that ended before it was accepted is nothing; all else is a lack of files or
/// memory, for which a stranger has to go, or a little time has to pass.
async fn make_room(error: &std::io::Error, strangers: &Strangers, connections: &mut JoinSet<()>) {
    if error.kind() == std::io::ErrorKind::ConnectionAborted {
        return;
    }
    tracing::warn!(%error, "accept");
    let waited = async {
        if strangers.evict() {
            connections.join_next().await;
        } else {
            tokio::time::sleep(PAUSE).await;
        }
    };
    let _ = timeout(PAUSE, waited).await;
}

/// The connections without a certificate, in the order in which they came.
#[derive(Default)]
struct Strangers(Mutex<Crowd>);

#[derive(Default)]
struct Crowd {
    /// How many ever came.
    came: u64,
    there: BTreeMap<u64, Stranger>,
}

struct Stranger {
    user: Option<u32>,
    /// The whole hello of a handshake has come, which a client sends at once.
    greeted: bool,
    task: AbortHandle,
}

impl Strangers {
    /// Lets a connection in, for which another may have to go.
    fn admit(
        self: &Arc<Self>,
        user: Option<u32>,
        most: usize,
        start: impl FnOnce(Place) -> AbortHandle,
    ) {
        // Held until the newcomer is in: it may end, and leave, at once.
        let mut crowd = self.crowd();
        if crowd.there.len() >= most {
            crowd.evict();
        }
        crowd.came += 1;
        let number = crowd.came;
        let place = Place {
            number,
            strangers: Arc::clone(self),
        };
        let task = start(place);
        let stranger = Stranger {
            user,
            greeted: false,
            task,
        };
        crowd.there.insert(number, stranger);
    }

    fn evict(&self) -> bool {
        self.crowd().evict()
    }

    fn clear(&self) {
        let there = std::mem::take(&mut self.crowd().there);
        for stranger in there.values() {
            stranger.task.abort();
        }
    }

    fn crowd(&self) -> MutexGuard<'_, Crowd> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Crowd {
    /// Ends the oldest connection of the user who has the most, of those without a hello if there are any.
    fn evict(&mut self) -> bool {
        let mut counts = BTreeMap::<_, usize>::new();
        for stranger in self.there.values() {
            *counts.entry(stranger.user).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let oldest = most.and_then(|(user, _)| {
            let of_user = self.there.iter().filter(|(_, one)| one.user == user);
            let oldest = of_user.min_by_key(|(number, one)| (one.greeted, **number));
            oldest.map(|(number, _)| *number)
        });
        let Some(stranger) = oldest.and_then(|number| self.there.remove(&number)) else {
            return false;
        };
        stranger.task.abort();
        true
    }
}

/// A place among the strangers: given back when it is dropped.
struct Place {
    number: u64,
    strangers: Arc<Strangers>,
}

impl Place {
    fn greeted(&self) {
        if let Some(stranger) = self.strangers.crowd().there.get_mut(&self.number) {
            stranger.greeted = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.strangers.crowd().there.remove(&self.number);
    }
}

struct Connection {
    config: Arc<ServerConfig>,
    router: Router,
    limits: Limits,
    ending: watch::Receiver<bool>,
    remote: SocketAddr,
}

impl Connection {
    async fn run(self, stream: TcpStream, place: Place) {
        let _ = stream.set_nodelay(true);
        let until = Instant::now() + self.limits.stranger;
        let handshake = async {
            let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
            place.greeted();
            hello.into_stream(Arc::clone(&self.config)).await
        };
        let stream = match timeout(self.limits.handshake, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, remote = %self.remote, "TLS handshake");
                return;
            }
            Err(_) => {
                tracing::debug!(remote = %self.remote, "TLS handshake: not in time");
                return;
            }
        };
        let identity = stream
            .get_ref()
            .1
            .peer_certificates()
            .and_then(|chain| tls::identity(chain.first()?));
        match identity {
            Some(identity) => {
                drop(place);
                self.serve(stream, Some(identity)).await;
            }
            None => {
                let _ = timeout_at(until, self.serve(stream, None)).await;
            }
        }
    }

    async fn serve(mut self, stream: TlsStream<TcpStream>, identity: Option<Identity>) {
        let server = server(&self.limits, identity.is_some());
        let (router, ending) = (self.router, self.ending.clone());
        let service = tower::service_fn(move |request: Request<hyper::body::Incoming>| {
            answer(router.clone(), identity.clone(), ending.clone(), request)
        });
        let service = TowerToHyperService::new(service);
        let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
        let result = tokio::select! {
            result = &mut connection => result,
            () = ended(&mut self.ending) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = result {
            tracing::debug!(error, remote = %self.remote, "connection");
        }
    }
}

/// HTTP, with less of everything for those without a certificate. Hyper itself bounds the heads of requests (100 fields;
/// 16 KiB of them in HTTP/2) and streams that are opened and reset.
fn server(limits: &Limits, known: bool) -> auto::Builder<TokioExecutor> {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .keep_alive(known);
    let mut http2 = server.http2();
    http2
        .timer(TokioTimer::new())
        .max_concurrent_streams(if known { STREAMS } else { STREAMS_OF_STRANGERS })
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    if !known {
        http2
            .initial_stream_window_size(WINDOW_OF_STRANGERS)
            .initial_connection_window_size(WINDOW_OF_STRANGERS);
    }
    server
}

async fn answer(
    router: Router,
    identity: Option<Identity>,
    mut ending: watch::Receiver<bool>,
    mut request: Request<hyper::body::Incoming>,
) -> Result<http::Response<Body>, std::convert::Infallible> {
    let health = matches!(request.uri().path(), "/healthz" | "/livez" | "/readyz");
    match identity {
        Some(identity) => {
            request.extensions_mut().insert(identity);
        }
        None if health => {}
        None => return Ok(Failure::unauthorized().into_response()),
    }
    let mut response = router.oneshot(request.map(Body::new)).await?;
    if response.extensions_mut().remove::<Endless>().is_some() {
        let ended = Box::pin(async move { ended(&mut ending).await });
        return Ok(
            response.map(|body| Body::from_stream(body.into_data_stream().take_until(ended)))
        );
    }
    Ok(response)
}

async fn ended(ending: &mut watch::Receiver<bool>) {
    let _ = ending.wait_for(|ending| *ending).await;
}

/// After a failed accept without a stranger who could go.
const PAUSE: Duration = Duration::from_millis(100);
/// Requests at once on one connection, as in Kubernetes.
const STREAMS: u32 = 250;
const STREAMS_OF_STRANGERS: u32 = 4;
/// Enough for a health check.
const WINDOW_OF_STRANGERS: u32 = 64 * 1024;
/// How often HTTP/2 asks whether the client is still there, and how long it waits for the answer.
const PING: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
