//! Kubeconfigs, and the only ways to a client from one.
//!
//! A kubeconfig is a program: `exec` and `auth-provider` run commands, `tokenFile`, `certificate-authority` and the like read
//! files of whoever uses it, `proxy-url` and `insecure-skip-tls-verify` hand the connection to others. One that a person names
//! on the command line by its path, or that the environment names, is that person's own and is used as kubectl would: [`own`].
//! One out of a Secret or from a host was written by somebody else. It is never handed to a client, but rebuilt field by field
//! into a [`Foreign`], which has the address of a server, what to know it by, and credentials as data, and nothing else.
//! Everything that this leaves out is refused with its name, so that nobody wonders why it has no effect. The lints of the
//! workspace forbid every other way from a kubeconfig to a client.
//!
//! # Where a foreign server may be
//!
//! Whoever may write the Secret chooses the address, and the operator connects to it from its own place in the network. A
//! cluster may be anywhere, on public and private addresses, so these are all allowed, and what the operator may reach is a
//! matter of its `NetworkPolicy`. What is never a cluster of somebody else is refused ([`api::address::refused`]): loopback,
//! link-local and metadata addresses, as numbers and as what a name resolves to at the moment of connecting. No proxy of the
//! environment and no redirect is followed, only TLS that the named authority vouches for is spoken, and an answer is read up
//! to a bound.

mod connect;
mod read;

use std::{fmt, path::Path};

use base64::Engine;
use kube::{
    Config,
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

pub use connect::{ConnectError, addresses};
pub use read::LIMIT;

/// A kubeconfig of somebody else, rebuilt from the fields that are allowed.
#[derive(Clone)]
pub struct Foreign {
    server: Server,
    tls_server_name: Option<String>,
    authority: String,
    credentials: Credentials,
    namespace: Option<String>,
}

/// Where an API server is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Server {
    /// A name or an address, the latter without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What stands after the port, with its slash: empty, or where a gateway keeps the API.
    pub path: String,
}

#[derive(Clone)]
enum Credentials {
    Certificate { chain: String, key: SecretString },
    Token(SecretString),
}

/// Why a kubeconfig of somebody else is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{field}{}: {rule}; {remedy}", shown(.value))]
pub struct Refusal {
    /// The path of the field, as `users[0].user.exec`.
    pub field: String,
    /// What stands there, where it is no secret and says something. Empty: not told.
    pub value: String,
    /// What it should be.
    pub rule: String,
    /// What to do.
    pub remedy: String,
}

fn shown(value: &str) -> String {
    if value.is_empty() {
        String::new()
    } else {
        format!(" is {value:?}")
    }
}

impl Foreign {
    /// Rebuilds what was read from a Secret or from a host.
    ///
    /// Of several contexts, clusters and users the current context and what it names are taken. `preferences`, `extensions` and
    /// `disable-compression` change nothing about who is reached and how, and are left out without a word; so are the entries
    /// that the current context does not name, as they have no effect.
    ///
    /// # Errors
    /// Any other field that says something is refused, by its name; so is data that is not what it should be. A server on an
    /// address of this machine is not refused here but where it is to be reached, since a file from a host may name that host
    /// so, and [`Foreign::at`] mends it.
    pub fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        read::read(bytes)
    }

    /// The same with its server elsewhere, known by a name that its certificate has.
    #[must_use]
    pub fn at(mut self, host: &str, port: u16, tls_server_name: &str) -> Self {
        host.clone_into(&mut self.server.host);
        self.server.port = port;
        self.tls_server_name = Some(tls_server_name.to_owned());
        self
    }

    /// The same server for somebody else, who has this certificate, in PEM, and its key.
    #[must_use]
    pub fn of(mut self, chain: String, key: SecretString) -> Self {
        self.credentials = Credentials::Certificate { chain, key };
        self
    }

    /// Where its server is.
    pub const fn server(&self) -> &Server {
        &self.server
    }

    /// The client certificate in PEM, if it is what the user shows.
    pub fn client_certificate(&self) -> Option<&str> {
        match &self.credentials {
            Credentials::Certificate { chain, .. } => Some(chain),
            Credentials::Token(_) => None,
        }
    }

    /// The kubeconfig anew, for a Secret or a file that only its owner reads: it has the credentials.
    pub fn document(&self) -> SecretString {
        let mut cluster = json!({
            "certificate-authority-data": encode(&self.authority),
            "server": self.server.to_string(),
        });
        if let Some(name) = &self.tls_server_name {
            cluster["tls-server-name"] = name.as_str().into();
        }
        let user = match &self.credentials {
            Credentials::Certificate { chain, key } => json!({
                "client-certificate-data": encode(chain),
                "client-key-data": encode(key.expose_secret()),
            }),
            Credentials::Token(token) => json!({"token": token.expose_secret()}),
        };
        let mut context = json!({"cluster": NAME, "user": NAME});
        if let Some(namespace) = &self.namespace {
            context["namespace"] = namespace.as_str().into();
        }
        let document = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": NAME, "cluster": cluster}],
            "contexts": [{"name": NAME, "context": context}],
            "current-context": NAME,
            "users": [{"name": NAME, "user": user}],
        });
        // JSON is YAML too, and every reader of kubeconfigs takes it; the first is for people.
        serde_saphyr::to_string(&document)
            .unwrap_or_else(|_| document.to_string())
            .into()
    }
}

/// Credentials stay out of logs.
impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign")
            .field("server", &self.server)
            .field("tls_server_name", &self.tls_server_name)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, path } = self;
        if host.contains(':') {
            write!(f, "https://[{host}]:{port}{path}")
        } else {
            write!(f, "https://{host}:{port}{path}")
        }
    }
}

/// What the context, the cluster and the user are called: names of others say nothing here.
const NAME: &str = "default";

fn encode(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// The configuration of a kubeconfig that the person who runs this named by its path: their own, used as kubectl would,
/// programs and files included.
///
/// # Errors
///
/// The file cannot be read, or does not say how to reach a server: by the context, if one is named.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that trusts a kubeconfig, as its path comes from the command line"
)]
pub async fn own(file: &Path, context: Option<&str>) -> Result<Config, KubeconfigError> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &options).await
}

/// The configuration that the environment of this process names: `KUBECONFIG`, `~/.kube/config` or the service account of the
/// pod. Their own, as with [`own`].
///
/// # Errors
///
/// There is neither a kubeconfig that can be used nor a service account.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that trusts the environment's kubeconfig"
)]
pub async fn environment() -> Result<Config, InferConfigError> {
    Config::infer().await
}

#[cfg(test)]
mod tests;
