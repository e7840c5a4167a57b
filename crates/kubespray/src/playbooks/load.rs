//! Brings playbooks and cuts them.

use ansible::{catalogue, slice::Playbook};

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

/// Brings the playbooks of a wish.
pub async fn load(wish: &Wish, layout: &Layout) -> Result<Checkout, LoadError> {
    let Place::Path(path) = &wish.place else {
        return Err(LoadError::Unreachable("not yet".into()));
    };
    let directory = path.clone();
    let _ = layout;
    let source = SourceInput {
        origin: wish.place.to_string(),
        revision: None,
        digest: "x".into(),
    };
    tokio::task::spawn_blocking(move || cut(source, directory))
        .await
        .map_err(|error| LoadError::Unreachable(error.to_string()))?
}

fn cut(source: SourceInput, directory: std::path::PathBuf) -> Result<Checkout, LoadError> {
    let unusable = |error: &dyn std::error::Error| {
        LoadError::Unusable(Problem::new(
            "Cluster spec.kubespray.source",
            &source.origin,
            crate::chain(error),
            "point it at an unmodified kubespray checkout, or at a playbook bundle with its contract",
        ))
    };
    let installable = catalogue::installable(&directory).map_err(|error| unusable(&error))?;
    let create = Playbook::read(&directory, "cluster").map_err(|error| unusable(&error))?;
    let reset = Playbook::read(&directory, "reset").map_err(|error| unusable(&error))?;
    Ok(Checkout {
        source,
        directory,
        installable,
        create,
        reset,
    })
}
