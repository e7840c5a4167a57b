//! Brings playbooks and cuts them.

use ansible::{
    catalogue,
    slice::Playbook,
    source::{self, SourceRequest},
};

use super::{Checkout, Place, Wish};
use crate::{inputs::SourceInput, layout::Layout, problem::Problem};

/// Why playbooks are not there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LoadError {
    /// It may pass.
    Unreachable(String),
    /// Somebody must change something.
    Unusable(Problem),
}

/// Brings the playbooks of a wish into the data directory and reads them.
pub async fn load(wish: &Wish, layout: &Layout) -> Result<Checkout, LoadError> {
    let request = match &wish.place {
        Place::Git { url, reference } => SourceRequest::Git {
            url: url.clone(),
            reference: reference.clone(),
        },
        Place::Path(path) => SourceRequest::Path(path.clone()),
        Place::Image(image) => SourceRequest::Image(image.clone()),
    };
    let origin = wish.place.to_string();
    let fetched = source::fetch(&request, &layout.sources())
        .await
        .map_err(|error| not_fetched(&origin, &error))?;
    let source = SourceInput {
        origin,
        revision: fetched.revision,
        digest: fetched.digest,
    };
    let cut = tokio::task::spawn_blocking(move || cut(source, fetched.path));
    cut.await
        .map_err(|error| LoadError::Unreachable(error.to_string()))?
}

fn not_fetched(origin: &str, error: &source::Error) -> LoadError {
    if !error.is_final() {
        return LoadError::Unreachable(crate::chain(error));
    }
    let (field, remedy) = match error {
        source::Error::NoReference { .. } => (
            ".git.ref",
            "name a tag, branch or commit of that repository; releases of kubespray are v2.30.0 and the like",
        ),
        source::Error::NoDirectory(_) => (
            ".path",
            "name the directory of a kubespray checkout; a relative path starts where `windlass up` was started",
        ),
        source::Error::ImageName { .. } | source::Error::Registry { .. } => (
            ".image",
            "name an image that its registry gives to everybody, for example quay.io/kubespray/kubespray:v2.30.0",
        ),
        source::Error::Layer { .. } => (".image", "name an image as kubespray publishes them"),
        source::Error::NoGit(_) => (
            "",
            "install git on this machine, or name a path or an image",
        ),
        _ => ("", CHECKOUT),
    };
    problem(field, origin, error, remedy)
}

fn cut(source: SourceInput, directory: std::path::PathBuf) -> Result<Checkout, LoadError> {
    let origin = source.origin.clone();
    let installable =
        catalogue::installable(&directory).map_err(|error| unusable(&origin, &error))?;
    let read = |name| Playbook::read(&directory, name).map_err(|error| unusable(&origin, &error));
    Ok(Checkout {
        create: read("cluster")?,
        reset: read("reset")?,
        source,
        directory,
        installable,
    })
}

fn unusable(origin: &str, error: &dyn std::error::Error) -> LoadError {
    problem("", origin, error, CHECKOUT)
}

fn problem(field: &str, origin: &str, error: &dyn std::error::Error, remedy: &str) -> LoadError {
    LoadError::Unusable(Problem::new(
        format!("Cluster spec.kubespray.source{field}"),
        origin,
        crate::chain(error),
        remedy,
    ))
}

const CHECKOUT: &str = "name an unmodified kubespray checkout, or playbooks with its contract";
