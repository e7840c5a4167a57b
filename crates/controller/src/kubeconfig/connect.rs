//! A client of a foreign kubeconfig that goes nowhere but to where it may.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use http::Uri;
use http_body_util::Limited;
use hyper_util::{
    client::legacy::{
        Client as HttpClient,
        connect::{HttpConnector, dns::Name},
    },
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt},
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use tower::{ServiceBuilder, ServiceExt};

use super::{Credentials, Foreign, encode};

/// The longest answer that is read, in bytes. Five hundred nodes with all their images have about 15 MB.
const ANSWER_LIMIT: usize = 32 << 20;

/// Why there is no client of a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Its server is where nobody else's is.
    #[error(
        "the server {server} of the kubeconfig {rule}; name the address that other machines reach it by"
    )]
    Address {
        /// The server, as it is written.
        server: String,
        /// What is wrong with the address.
        rule: String,
    },
    /// Its server's name leads nowhere.
    #[error("find the address of {server}")]
    Resolve {
        /// The server, as it is written.
        server: String,
        /// What the resolver said.
        #[source]
        source: io::Error,
    },
    /// Its data makes no client.
    #[error("make a client of the kubeconfig")]
    Client(#[source] Box<kube::Error>),
    /// Its data makes no address or certificate.
    #[error("the kubeconfig has no {0}")]
    Data(&'static str),
}

/// The addresses of a host that may be connected to.
///
/// # Errors
/// One that may not is reason to refuse them all: a name with both is no accident.
pub async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<_> = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => tokio::net::lookup_host((host, port)).await?.collect(),
    };
    for address in &found {
        if let Some(rule) = api::address::refused(address.ip()) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, rule));
        }
    }
    Ok(found)
}

impl Foreign {
    /// The addresses of its server, each of them one that may be connected to.
    ///
    /// # Errors
    ///
    /// The name of the server cannot be resolved, or stands for an address that may not be connected to.
    pub async fn addresses(&self) -> Result<Vec<SocketAddr>, ConnectError> {
        let server = self.server.to_string();
        match addresses(&self.server.host, self.server.port).await {
            Ok(found) => Ok(found),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(ConnectError::Address {
                    server,
                    rule: error.to_string(),
                })
            }
            Err(source) => Err(ConnectError::Resolve { server, source }),
        }
    }

    /// A client of its server at these addresses, whose every call ends within about `timeout`.
    ///
    /// # Errors
    ///
    /// The kubeconfig holds certificates, keys or an address that cannot be used.
    pub fn client(
        &self,
        addresses: Vec<SocketAddr>,
        timeout: Duration,
    ) -> Result<Client, ConnectError> {
        let config = self.config()?;
        let failed = |error| ConnectError::Client(Box::new(error));
        // The addresses are those that were looked at: a name is not asked for again, when it could say something else.
        let resolver = tower::service_fn(move |_: Name| {
            std::future::ready(Ok::<_, io::Error>(addresses.clone().into_iter()))
        });
        let mut connector = HttpConnector::new_with_resolver(resolver);
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(timeout));
        let connector = config
            .rustls_https_connector_with_connector(connector)
            .map_err(failed)?;
        let client = HttpClient::builder(TokioExecutor::new()).build::<_, Body>(connector);
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer().map_err(failed)?)
            .map_err(tower::BoxError::from)
            .service(client)
            .map_response(|response: http::Response<_>| {
                response.map(|body| Limited::new(body, ANSWER_LIMIT))
            });
        Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
    }

    fn config(&self) -> Result<Config, ConnectError> {
        let server: Uri = self
            .server
            .to_string()
            .parse()
            .map_err(|_| ConnectError::Data("address of a server"))?;
        let authorities: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(self.authority.as_bytes()).collect();
        let authorities = authorities.map_err(|_| ConnectError::Data("authority"))?;
        let mut config = Config::new(server);
        config.root_cert = Some(authorities.iter().map(|der| der.to_vec()).collect());
        config.tls_server_name.clone_from(&self.tls_server_name);
        if let Some(namespace) = &self.namespace {
            config.default_namespace.clone_from(namespace);
        }
        match &self.credentials {
            Credentials::Certificate { chain, key } => {
                config.auth_info.client_certificate_data = Some(encode(chain));
                config.auth_info.client_key_data =
                    Some(encode(secrecy::ExposeSecret::expose_secret(key)).into());
            }
            Credentials::Token(token) => config.auth_info.token = Some(token.clone()),
        }
        Ok(config)
    }
}
