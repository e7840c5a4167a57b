//! Requests: for files over HTTP, for images to registries.

use std::{net::IpAddr, time::Duration};

use registry::{Place, Transport};
use reqwest::{ClientBuilder, Request, Response, redirect};

use crate::{chain, list::Endpoint};

/// How long a connection may take to be made.
pub(crate) const CONNECTING: Duration = Duration::from_secs(15);
/// How long a server may be silent.
pub(crate) const SILENCE: Duration = Duration::from_mins(1);
/// How many redirects are followed.
const REDIRECTS: usize = 10;

/// A client for files. It is led by https to no place that is not.
///
/// # Errors
///
/// The machine's certificates cannot be read.
pub(crate) fn files() -> Result<reqwest::Client, reqwest::Error> {
    builder().build()
}

fn builder() -> ClientBuilder {
    provide();
    let follow = redirect::Policy::custom(|attempt| {
        let before = attempt.previous().last().map(reqwest::Url::scheme);
        if attempt.previous().len() > REDIRECTS {
            attempt.error("there are too many redirects")
        } else if before == Some("https") && attempt.url().scheme() != "https" {
            let to = attempt.url().host_str().unwrap_or_default().to_owned();
            attempt.error(format!("a redirect leads from https to {to} in the clear"))
        } else {
            attempt.follow()
        }
    });
    reqwest::Client::builder()
        .redirect(follow)
        .connect_timeout(CONNECTING)
        .read_timeout(SILENCE)
        .user_agent(AGENT)
}

pub(crate) const AGENT: &str = concat!("windlass/", env!("CARGO_PKG_VERSION"));

pub(crate) fn provide() {
    // Fails when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// An address, without a password that it may have.
pub(crate) fn shown(url: &reqwest::Url) -> String {
    let mut url = url.clone();
    let _ = url.set_password(None);
    let _ = url.set_username("");
    api::text::plain(url.as_str(), 400)
}

/// Whether a registry is on this machine, and asked without TLS, as clients of registries do.
pub(crate) fn is_loopback(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// A repository of a registry that is read from.
pub(crate) type Repository = registry::Repository<Client>;
/// Why a registry does not give something; what was not sent, with its reason.
pub(crate) type Refusal = registry::Refusal<String>;

/// # Errors
///
/// The machine's certificates cannot be read.
pub(crate) fn repository(endpoint: &Endpoint) -> Result<Repository, reqwest::Error> {
    let client = builder().danger_accept_invalid_certs(endpoint.unverified);
    let place = Place {
        registry: endpoint.registry.clone(),
        repository: endpoint.repository.clone(),
        clear: endpoint.clear,
    };
    Ok(Repository::new(Client(client.build()?), place, None))
}

/// Sends what registries are asked.
pub(crate) struct Client(reqwest::Client);

impl Transport for Client {
    type Error = String;

    async fn send(&self, request: Request) -> Result<Response, String> {
        let sent = self.0.execute(request).await;
        sent.map_err(|error| self.broken(error))
    }

    fn broken(&self, error: reqwest::Error) -> String {
        chain(&error.without_url())
    }
}
