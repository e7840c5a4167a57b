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
    match error {
        source::Error::NoDirectory(_)
        | source::Error::NotKubespray { .. }
        | source::Error::NoGit(_)
        | source::Error::Image(_) => unusable(origin, error),
        _ => LoadError::Unreachable(crate::chain(error)),
    }
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
    LoadError::Unusable(Problem::new(
        "Cluster spec.kubespray.source",
        origin,
        crate::chain(error),
        "name an unmodified kubespray checkout, or playbooks with its contract",
    ))
}
