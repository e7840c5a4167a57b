//! The requests that bring a release: by https, to addresses that were looked at, by no more redirects than may be.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use clusterctl::{
    Version,
    source::{Files, LARGEST, Location, SIGNATURE, Unfit, plain_text, unpacked_text},
};
use jiff::Timestamp;
use reqwest::{
    Client, Method, Request, Response, StatusCode, Url,
    header::{CONTENT_ENCODING, LOCATION},
    redirect,
};

use super::{FetchError, Policy, Wanted, limit};

/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(15);
/// How many redirects are followed: GitHub's releases have one, those of a repository that moved have two.
pub(super) const REDIRECTS: usize = 5;
/// How much of what a server says is repeated.
const SHOWN: usize = 256;

/// The release as its server has it, and where its metadata is.
pub(super) async fn release(
    policy: &Policy,
    wanted: &Wanted,
    location: &Location,
) -> Result<(String, Version, Files), FetchError> {
    let version = match &wanted.version {
        Some(version) => version.clone(),
        None => newest(policy, location).await?,
    };
    let url = location.metadata(&version);
    let (_, metadata) = first(policy, vec![url.clone()]).await?;
    let components = location.components(&wanted.provider, &version);
    let (from, components) = first(policy, components).await?;
    let signature = match &wanted.key {
        Some(_) => file(policy, parsed(&format!("{from}{SIGNATURE}"))?).await?,
        None => None,
    };
    let files = Files {
        metadata,
        components,
        signature,
    };
    Ok((url, version, files))
}

/// The version of the newest release, to which its server redirects.
async fn newest(policy: &Policy, location: &Location) -> Result<Version, FetchError> {
    let url = location.newest().ok_or(FetchError::NoVersion)?;
    let mut url = parsed(&url)?;
    for _ in 0..=REDIRECTS {
        let response = ask(policy, &url).await?;
        let Some(next) = led(&url, &response)? else {
            return Err(match response.status() {
                StatusCode::OK => FetchError::NoVersion,
                status => FetchError::Status(shown(&url), status.as_u16()),
            });
        };
        let last = next.path_segments().and_then(|mut names| names.next_back());
        if let Some(version) = last.and_then(|name| name.parse().ok()) {
            return Ok(version);
        }
        url = next;
    }
    Err(FetchError::Redirects(REDIRECTS))
}

/// The first of these files that is there, and where.
async fn first(policy: &Policy, urls: Vec<String>) -> Result<(String, String), FetchError> {
    for url in &urls {
        if let Some(text) = file(policy, parsed(url)?).await? {
            return Ok((url.clone(), text));
        }
    }
    Err(FetchError::Missing(urls))
}

/// A file. None: it is not there.
async fn file(policy: &Policy, mut url: Url) -> Result<Option<String>, FetchError> {
    for _ in 0..=REDIRECTS {
        let response = ask(policy, &url).await?;
        match (led(&url, &response)?, response.status()) {
            (Some(next), _) => url = next,
            (None, StatusCode::OK) => return text(&url, response).await.map(Some),
            (None, StatusCode::NOT_FOUND | StatusCode::GONE) => return Ok(None),
            (None, status) => return Err(FetchError::Status(shown(&url), status.as_u16())),
        }
    }
    Err(FetchError::Redirects(REDIRECTS))
}

/// Where an answer leads, if it does.
pub(super) fn led(from: &Url, response: &Response) -> Result<Option<Url>, FetchError> {
    if !response.status().is_redirection() {
        return Ok(None);
    }
    let Some(to) = response.headers().get(LOCATION) else {
        return Ok(None);
    };
    let refused = || {
        let to = String::from_utf8_lossy(to.as_bytes());
        FetchError::Led(api::text::plain(&without_user(&to), SHOWN))
    };
    let next = to.to_str().ok().and_then(|to| from.join(to).ok());
    let next = next.ok_or_else(refused)?;
    // A registry that is asked in the clear leads on within itself.
    let is_safe = next.scheme() == "https" || next.origin() == from.origin();
    let is_plain = is_safe && next.username().is_empty() && next.password().is_none();
    if is_plain {
        Ok(Some(next))
    } else {
        Err(refused())
    }
}

/// Asks for what an address has.
async fn ask(policy: &Policy, url: &Url) -> Result<Response, FetchError> {
    send(policy, Request::new(Method::GET, url.clone())).await
}

/// One request, to the address that was looked at. Without TLS it goes to none that was not let in by whoever runs the operator.
pub(super) async fn send(policy: &Policy, request: Request) -> Result<Response, FetchError> {
    let url = request.url().clone();
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or(443);
    let addresses = addresses(policy, host, port).await?;
    let is_clear = url.scheme() != "https";
    if is_clear && !addresses.iter().all(|address| policy.allows(address.ip())) {
        return Err(FetchError::Clear(host.to_owned()));
    }
    // Fails when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .https_only(!is_clear)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .resolve_to_addrs(host, &addresses)
        .connect_timeout(CONNECTING)
        .read_timeout(policy.silence)
        .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")));
    if let Some(pem) = &policy.authorities {
        let authorities = reqwest::Certificate::from_pem_bundle(pem).map_err(FetchError::Client)?;
        builder = builder.tls_certs_merge(authorities);
    }
    let client = builder.build().map_err(FetchError::Client)?;
    let answered = client.execute(request).await;
    let answer = answered.map_err(|error| FetchError::Answer(shown(&url), error.without_url()))?;
    match limit::pause(answer.status(), answer.headers(), Timestamp::now()) {
        Some(pause) => Err(FetchError::Limited {
            host: host.to_owned(),
            pause,
        }),
        None => Ok(answer),
    }
}

/// The addresses of a host. One that may not be reached is reason to refuse them all: a name with both is no accident.
async fn addresses(policy: &Policy, host: &str, port: u16) -> Result<Vec<SocketAddr>, FetchError> {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    let found: Vec<_> = match literal.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => tokio::net::lookup_host((host, port))
            .await
            .map_err(|source| FetchError::Nowhere(host.to_owned(), source))?
            .collect(),
    };
    if found.is_empty() {
        let nothing = io::Error::from(io::ErrorKind::NotFound);
        return Err(FetchError::Nowhere(host.to_owned(), nothing));
    }
    for address in &found {
        if let Some(what) = policy.refusal(address.ip()) {
            return Err(FetchError::Address {
                host: host.to_owned(),
                address: address.ip(),
                what,
            });
        }
    }
    Ok(found)
}

/// The text of an answer, if it is not too much.
async fn text(url: &Url, mut response: Response) -> Result<String, FetchError> {
    let unfit = |source| FetchError::Unfit(shown(url), source);
    let encoding = response.headers().get(CONTENT_ENCODING);
    let encoding = encoding.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let unpack = match encoding.as_deref() {
        None | Some("identity") => plain_text,
        Some("gzip" | "x-gzip") => unpacked_text,
        Some(other) => {
            let other = api::text::plain(other, SHOWN);
            return Err(FetchError::Encoding(shown(url), other));
        }
    };
    let is_too_much = |length: u64| length > LARGEST;
    if response.content_length().is_some_and(is_too_much) {
        return Err(unfit(Unfit::Large));
    }
    let mut bytes = Vec::new();
    let cut = |error: reqwest::Error| FetchError::Answer(shown(url), error.without_url());
    while let Some(part) = response.chunk().await.map_err(cut)? {
        if is_too_much(bytes.len().saturating_add(part.len()) as u64) {
            return Err(unfit(Unfit::Large));
        }
        bytes.extend_from_slice(&part);
    }
    unpack(&bytes).map_err(unfit)
}

fn parsed(url: &str) -> Result<Url, FetchError> {
    url.parse()
        .map_err(|_| FetchError::Led(api::text::plain(&without_user(url), SHOWN)))
}

/// A URL for people. What stands before the host is a credential, and what a redirect puts behind the path may be one for the file.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // An address that can hold neither has none.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    api::text::plain(url.as_str(), SHOWN)
}

/// The same of what may be no URL.
fn without_user(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match text.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}/{path}")
        }
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_credentials_are_shown_of_an_address() {
        for address in [
            "https://bot:hush@a.example/b?token=hush#hush",
            "https://hush@a.example/b",
        ] {
            assert_eq!(shown(&address.parse().unwrap()), "https://a.example/b");
            assert_eq!(without_user(address), "https://a.example/b");
        }
        let error = parsed("https://bot:hush@a.example:port/b").unwrap_err();
        assert!(!error.to_string().contains("hush"), "{error}");
    }
}
