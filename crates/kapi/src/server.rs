//! The server: opens a data directory (or memory), and hands out the API as a router and over TLS.

use std::{
    fs::{self, File},
    future::Future,
    io::{Read, Seek, Write as _},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::Router;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use nix::{
    fcntl::{Flock, FlockArg},
    sys::socket::{Backlog, listen},
};
use rustls::ServerConfig;
use serde_json::{Value, json};

use crate::{
    advice::{Advice, Advisor},
    definitions::{self, Live},
    expiry::{self, Clock},
    gc,
    listen::{self, Limits},
    registry::{DefinitionError, Form, Registry},
    rest,
    state::Api,
    store::{
        Draft, Expect, Key, Store, Write,
        backend::{BackendError, Memory},
        sqlite::Sqlite,
    },
    tls::{self, Pki, TlsError},
    value::{name_of, now},
};

/// How a server is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Holds the database, the keys and the kubeconfig; made if it is not there. One server at a time.
    pub data_dir: PathBuf,
    /// The definitions of the program itself: brought to this version at every start, and not for clients to change.
    pub crds: Vec<CustomResourceDefinition>,
    /// Where TLS is served: a loopback address. Port 0 takes the port of the last time, or a free one. Nothing: the
    /// server is only reached in-process.
    pub listen: Option<SocketAddr>,
}

/// Why a server cannot be opened or cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Another process has the data directory.
    #[error(
        "another windlass (pid {pid}) uses this directory: stop it or choose another --data-dir ({})",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process that holds it, as it wrote itself down.
        pid: String,
    },
    /// A file or directory cannot be made, read or written.
    #[error("use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The database or its key cannot be used; the text names the file and the remedy. Nothing was changed.
    #[error("open the store: {0}")]
    Store(String),
    /// A definition is not served.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// The address is not one of this machine only.
    #[error("listen on {0}: only loopback addresses are served")]
    NotLoopback(SocketAddr),
    /// The address cannot be bound.
    #[error("listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Certificates cannot be made or read.
    #[error("prepare TLS")]
    Tls(#[source] TlsError),
    /// The server was opened without an address.
    #[error("serve: the server was opened without an address to listen on")]
    NoAddress,
}

/// An open API server. The directory is free again when it and all its routers are dropped.
pub struct Server {
    live: Arc<Live>,
    listening: Option<Listening>,
}

struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    /// Where the certificates are.
    directory: PathBuf,
    kubeconfig: PathBuf,
    pki: Pki,
    clock: Clock,
    limits: Limits,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    /// Opens the data directory. Must be called in a tokio runtime: garbage collection is a task of it.
    ///
    /// # Errors
    ///
    /// The directory is in use or cannot be read or written, its database is damaged, a definition is refused, the address
    /// cannot be listened on, or certificates cannot be made.
    pub async fn open(options: Options) -> Result<Self, ServerError> {
        Self::open_with(options, Arc::new(Timestamp::now), Limits::default()).await
    }

    /// On another clock for what expires, certificates among it, and with other limits for connections.
    pub(crate) async fn open_with(
        options: Options,
        clock: Clock,
        limits: Limits,
    ) -> Result<Self, ServerError> {
        let directory = &options.data_dir;
        make_directory(directory)?;
        let lock = lock(directory)?;
        let backend = Sqlite::open(&directory.join("state.db"), &directory.join("secrets.key"))
            .map_err(store_error)?;
        let (registry, kinds) = Registry::built_in()?;
        let store = Store::threaded(kinds, Box::new(backend), Some(lock)).map_err(store_error)?;
        let live = start(registry, store, &options.crds, Arc::clone(&clock)).await?;
        let listening = options
            .listen
            .map(|address| Listening::open(directory, address, clock, limits))
            .transpose()?;
        Ok(Self { live, listening })
    }

    /// Opens a server that forgets everything, and commits in the caller's task: for tests, also with paused time.
    ///
    /// # Errors
    ///
    /// A definition is refused.
    pub async fn in_memory(crds: &[CustomResourceDefinition]) -> Result<Self, ServerError> {
        Self::forgetful(crds, Arc::new(Timestamp::now)).await
    }

    async fn forgetful(
        crds: &[CustomResourceDefinition],
        clock: Clock,
    ) -> Result<Self, ServerError> {
        let (registry, kinds) = Registry::built_in()?;
        let store = Store::inline(kinds, Box::new(Memory)).map_err(store_error)?;
        Ok(Self {
            live: start(registry, store, crds, clock).await?,
            listening: None,
        })
    }

    /// In memory, without definitions, on another clock for what expires.
    #[cfg(test)]
    pub(crate) async fn with_clock(clock: Clock) -> Result<Self, ServerError> {
        Self::forgetful(&[], clock).await
    }

    #[cfg(test)]
    pub(crate) fn api(&self) -> Arc<Api> {
        self.live.now()
    }

    /// The API as a service for callers in this process, who may do everything:
    /// `kube::Client::new(server.router(), "default")`.
    pub fn router(&self) -> Router {
        Router::new()
            .fallback(rest::handle)
            .with_state(Arc::clone(&self.live))
    }

    /// Has somebody asked about writes that are only tried, for as long as it is there. The first one stays.
    pub fn advise(&self, advisor: &Arc<dyn Advisor>) {
        self.live.now().advice.take(advisor);
    }

    /// The address that is listened on.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listening.as_ref().map(|listening| listening.address)
    }

    /// The kubeconfig for this server, with the client certificate in it.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.listening
            .as_ref()
            .map(|listening| listening.kubeconfig.as_path())
    }

    /// Serves TLS until `shutdown` is done, then ends open connections: watches at once, and other requests when they
    /// are answered, or after 5 s. Certificates, also the one in the kubeconfig, are renewed 30 days before their end.
    ///
    /// # Errors
    ///
    /// The server was opened without an address, or its socket or its certificates cannot be used.
    pub async fn serve(
        &self,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServerError> {
        let listening = self.listening.as_ref().ok_or(ServerError::NoAddress)?;
        let bind = |source| ServerError::Bind {
            address: listening.address,
            source,
        };
        let listener = listening.listener.try_clone().map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(bind)?;
        let config = listening.pki.server_config().map_err(ServerError::Tls)?;
        let renewed = listening.renewal();
        let limits = listening.limits;
        listen::serve(listener, config, renewed, self.router(), limits, shutdown).await;
        Ok(())
    }
}

impl Listening {
    fn open(
        data: &Path,
        address: SocketAddr,
        clock: Clock,
        limits: Limits,
    ) -> Result<Self, ServerError> {
        if !address.ip().is_loopback() {
            return Err(ServerError::NotLoopback(address));
        }
        let directory = data.join("pki");
        make_directory(&directory)?;
        let remembered = directory.join("port");
        let listener = bind(address, &remembered)?;
        // Room for those who wait while somebody else floods this address: the system's own default is small.
        listen(&listener, Backlog::MAXALLOWABLE).map_err(|errno| ServerError::Bind {
            address,
            source: errno.into(),
        })?;
        let address = listener
            .local_addr()
            .map_err(|source| ServerError::Bind { address, source })?;
        tls::write_private(&remembered, address.port().to_string().as_bytes())
            .map_err(file_error(&remembered))?;
        let kubeconfig = data.join("kubeconfig");
        Ok(Self {
            pki: certify(&directory, &kubeconfig, address, clock())?,
            listener,
            address,
            directory,
            kubeconfig,
            clock,
            limits,
        })
    }

    /// Renews what is about to end. With it comes the configuration for connections from then on.
    fn renewal(&self) -> impl FnMut() -> Option<ServerConfig> + Send {
        let mut current: Option<Pki> = None;
        move || {
            let now = (self.clock)();
            if !current.as_ref().unwrap_or(&self.pki).is_due(now) {
                return None;
            }
            let renewed = certify(&self.directory, &self.kubeconfig, self.address, now)
                .and_then(|pki| Ok((pki.server_config().map_err(ServerError::Tls)?, pki)));
            match renewed {
                Ok((config, pki)) => {
                    current = Some(pki);
                    Some(config)
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "certificates are not renewed; tried again in an hour"
                    );
                    None
                }
            }
        }
    }
}

/// The certificates of a directory, made or renewed where needed, and the kubeconfig with them.
fn certify(
    directory: &Path,
    kubeconfig: &Path,
    address: SocketAddr,
    now: Timestamp,
) -> Result<Pki, ServerError> {
    let pki = Pki::open(directory, now).map_err(ServerError::Tls)?;
    tls::write_private(kubeconfig, pki.kubeconfig(address).as_bytes())
        .map_err(file_error(kubeconfig))?;
    Ok(pki)
}

/// Binds the address; for port 0 the port of the last time if it is free.
fn bind(address: SocketAddr, remembered: &Path) -> Result<TcpListener, ServerError> {
    if address.port() == 0
        && let Some(port) = fs::read_to_string(remembered)
            .ok()
            .and_then(|text| text.trim().parse::<u16>().ok())
    {
        match TcpListener::bind(SocketAddr::new(address.ip(), port)) {
            Ok(listener) => return Ok(listener),
            Err(error) => {
                tracing::warn!(port, %error, "the port of the last time is taken; another is chosen, and the kubeconfig rewritten");
            }
        }
    }
    TcpListener::bind(address).map_err(|source| ServerError::Bind { address, source })
}

async fn start(
    registry: Registry,
    store: Store,
    crds: &[CustomResourceDefinition],
    clock: Clock,
) -> Result<Arc<Live>, ServerError> {
    let api = Api {
        registry,
        store: Arc::new(store),
        advice: Advice::default(),
    };
    let mut own = Vec::new();
    for definition in crds {
        own.push(definitions::own(definition)?);
    }
    seed(&api, &own).await?;
    let names = own.iter().map(|definition| name_of(definition).to_owned());
    let live = Arc::new(Live::new(api, names.collect()));
    live.settle().await;
    tokio::spawn(gc::collect(Arc::downgrade(&live)));
    tokio::spawn(expiry::expire(Arc::downgrade(&live), clock));
    Ok(live)
}

/// Makes what is there from the beginning: the first namespaces and the definitions.
async fn seed(api: &Api, own: &[Value]) -> Result<(), ServerError> {
    if let Some(namespaces) = api.registry.of_form(Form::Namespace) {
        for name in ["default", "kube-system"] {
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            });
            put(api, namespaces.stored, namespace).await?;
        }
    }
    if let Some(definitions) = api.registry.of_form(Form::Definition) {
        for definition in own {
            put(api, definitions.stored, definition.clone()).await?;
        }
    }
    Ok(())
}

/// Creates an object, or brings a definition to what this program has; nothing is written when nothing changed.
async fn put(api: &Api, kind: usize, mut value: Value) -> Result<(), ServerError> {
    let key = Key::new("", name_of(&value));
    let current = api.store.object(kind, &key);
    let old = current.as_ref().map(|object| object.value());
    for (name, fresh) in [
        ("uid", json!(uuid::Uuid::new_v4().to_string())),
        ("creationTimestamp", json!(now())),
    ] {
        let kept = old
            .as_ref()
            .and_then(|old| old["metadata"].get(name).cloned());
        value["metadata"][name] = kept.unwrap_or(fresh);
    }
    let definition = value["kind"] == "CustomResourceDefinition";
    if let Some(old) = &old {
        // One that a client deleted, before it became part of this program, is made anew.
        let is_there = old["metadata"].get("deletionTimestamp").is_none();
        if !definition || (is_there && old["spec"] == value["spec"]) {
            return Ok(());
        }
        // What became of it is noted when it is served.
        value["status"] = old["status"].clone();
        let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
        value["metadata"]["generation"] = json!(generation + 1);
    }
    let write = Write {
        kind,
        key,
        expect: current.map_or(Expect::Absent, |object| Expect::Revision(object.revision)),
        draft: Draft::new(&value, &[]),
        delete: false,
    };
    api.store
        .write(write)
        .await
        .map(|_| ())
        .map_err(|error| ServerError::Store(error.to_string()))
}

fn make_directory(path: &Path) -> Result<(), ServerError> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(file_error(path))
}

/// Takes the lock of the directory, which the system gives back however this process ends.
fn lock(directory: &Path) -> Result<Flock<File>, ServerError> {
    let path = directory.join("lock");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(file_error(&path))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut lock) => {
            let text = std::process::id().to_string();
            lock.set_len(0)
                .and_then(|()| lock.rewind())
                .and_then(|()| lock.write_all(text.as_bytes()))
                .map_err(file_error(&path))?;
            Ok(lock)
        }
        Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            Err(ServerError::InUse {
                path: directory.to_path_buf(),
                pid: if pid.is_empty() {
                    "unknown".into()
                } else {
                    pid
                },
            })
        }
        Err((_, errno)) => Err(file_error(&path)(errno.into())),
    }
}

fn file_error(path: &Path) -> impl Fn(std::io::Error) -> ServerError + '_ {
    move |source| ServerError::File {
        path: path.to_path_buf(),
        source,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "shaped for map_err")]
fn store_error(error: BackendError) -> ServerError {
    ServerError::Store(error.to_string())
}
