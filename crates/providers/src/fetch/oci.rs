//! Releases that are artefacts of registries: each file a layer, whose title is its name.
//!
//! # Source
//! cluster-api-operator, `internal/controller/oci_source.go`, and what its plugin publishes.

use clusterctl::{
    Version,
    source::{Artefact, Files, LARGEST, SIGNATURE, plain_text},
};
use registry::{Login, Manifest, Place, Refusal, Repository, Transport};
use reqwest::{
    Method, Request, Response,
    header::{AUTHORIZATION, HOST},
};

use super::{
    FetchError, Policy, Wanted,
    http::{REDIRECTS, led, send},
};

/// How much of the names of files is repeated.
const SHOWN: usize = 512;

/// The release as its registry has it, and where its metadata is.
pub(super) async fn release(
    policy: &Policy,
    wanted: &Wanted,
    artefact: &Artefact,
    login: Option<Login>,
) -> Result<(String, Version, Files), FetchError> {
    let place = Place {
        registry: artefact.registry.clone(),
        repository: artefact.repository.clone(),
        clear: artefact.clear,
    };
    let repository = Repository::new(Asking { policy }, place, login);
    let reference = artefact.reference(wanted.version.as_ref());
    let reference = reference.ok_or(FetchError::NoVersion)?;
    let manifest = repository.manifest(&reference).await;
    let (bytes, _) = manifest.map_err(|refusal| refused(&wanted.url, refusal))?;
    let other = |why: String| FetchError::Registry(wanted.url.clone(), why);
    let manifest = Manifest::read(&bytes).map_err(other)?;
    if manifest.is_index() {
        return Err(other(
            "it is an index, and an artefact is wanted".to_owned(),
        ));
    }
    let titled = || {
        let blobs = manifest.blobs();
        blobs.filter_map(|blob| Some((blob.title()?, blob)))
    };
    let version = wanted
        .version
        .clone()
        .or_else(|| Artefact::version_of(&wanted.provider, titled().map(|(title, _)| title)));
    let version = version.ok_or(FetchError::NoVersion)?;
    let file = async |names: &[String]| {
        let found = names.iter().find_map(|name| {
            let (title, blob) = titled().find(|(title, _)| title == name)?;
            Some((title.to_owned(), blob))
        });
        let Some((title, blob)) = found else {
            let there: Vec<_> = titled().map(|(title, _)| title).collect();
            let there = if there.is_empty() {
                "no files with titles".to_owned()
            } else {
                api::text::plain(&there.join(", "), SHOWN)
            };
            let names = names.to_vec();
            return Err(FetchError::NoFile { there, names });
        };
        let what = format!("{} of {}", title, wanted.url);
        let bytes = repository.small_blob(&blob.digest, LARGEST).await;
        let bytes = bytes.map_err(|refusal| refused(&what, refusal))?;
        plain_text(&bytes).map_err(|unfit| FetchError::Unfit(what, unfit))
    };
    let metadata = file(&wanted.provider.metadata_files(&version)).await?;
    let components = file(&wanted.provider.components_files(&version)).await?;
    let signatures = wanted.provider.components_files(&version);
    let signatures = signatures.map(|name| format!("{name}{SIGNATURE}"));
    let is_signed = titled().any(|(title, _)| signatures.iter().any(|name| name == title));
    let signature = match &wanted.key {
        Some(_) if is_signed => Some(file(&signatures).await?),
        _ => None,
    };
    let from = format!("metadata.yaml of {}", wanted.url);
    let files = Files {
        metadata,
        components,
        signature,
    };
    Ok((from, version, files))
}

fn refused(what: &str, refusal: Refusal<FetchError>) -> FetchError {
    let what = what.to_owned();
    match refusal {
        Refusal::Missing => FetchError::Absent(what),
        Refusal::Login => FetchError::Login(what),
        Refusal::Unsent(error) => error,
        Refusal::Other(why) => FetchError::Registry(what, why),
    }
}

/// Sends what a registry is asked to addresses that were looked at, and follows where blobs lie elsewhere.
struct Asking<'a> {
    policy: &'a Policy,
}

impl Transport for Asking<'_> {
    type Error = FetchError;

    async fn send(&self, mut request: Request) -> Result<Response, FetchError> {
        for _ in 0..=REDIRECTS {
            let url = request.url().clone();
            let (method, mut headers) = (request.method().clone(), request.headers().clone());
            let response = send(self.policy, request).await?;
            // A form with a credential goes nowhere else.
            if method == Method::POST {
                return Ok(response);
            }
            let Some(next) = led(&url, &response)? else {
                return Ok(response);
            };
            headers.remove(HOST);
            if next.origin() != url.origin() {
                headers.remove(AUTHORIZATION);
            }
            request = Request::new(method, next);
            *request.headers_mut() = headers;
        }
        Err(FetchError::Redirects(REDIRECTS))
    }

    fn broken(&self, error: reqwest::Error) -> FetchError {
        let url = error.url().map(super::http::shown).unwrap_or_default();
        FetchError::Answer(url, error.without_url())
    }
}
