//! Brings playbooks and cuts them.

use ansible::{
    catalogue,
    slice::{self, Playbook},
    source::{self, Sources},
};

use super::{Checkout, Wish};
use crate::{inputs::SourceInput, problem::Problem};

/// Why playbooks are not there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LoadError {
    /// It may pass.
    Unreachable(String),
    /// Somebody must change something.
    Unusable(Problem),
}

/// Brings the playbooks of a wish for a tenant, and reads them.
///
/// # Errors
///
/// They cannot be brought now, or somebody must change something first.
pub async fn load(wish: &Wish, tenant: &str, sources: &Sources) -> Result<Checkout, LoadError> {
    let origin = wish.place.to_string();
    let fetched = sources
        .fetch(tenant, &wish.place.clone().request())
        .await
        .map_err(|error| not_fetched(&origin, &error))?;
    let source = SourceInput {
        origin,
        revision: fetched.revision.clone(),
        digest: fetched.digest.clone(),
    };
    let cut = tokio::task::spawn_blocking(move || {
        let cut = cut(source, fetched.path);
        drop(fetched.hold);
        cut
    });
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
        source::Error::Url(_) => (
            ".git.url",
            "name a repository as https://HOST/PATH or ssh://USER@HOST/PATH",
        ),
        source::Error::Protocol { .. } => (
            "",
            "name the source by one of these protocols, or start the operator with --source-protocol",
        ),
        source::Error::Network { .. } => (
            "",
            "name a source that is reached over the network, or start the operator with --source-address",
        ),
        source::Error::Outside { .. } => (
            ".path",
            "name a directory below these, or start the operator with --source-root",
        ),
        source::Error::Moved { .. } => (
            ".git.ref",
            "find out who moved the tag; to use what it stands for now all the same, name that commit itself",
        ),
        source::Error::Refused { .. } | source::Error::Unpack { .. } => (
            "",
            "name playbooks that hold nothing but files, directories and links within them, as kubespray's do",
        ),
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
    let optional = |name| match Playbook::read(&directory, name) {
        Err(slice::Error::NoPlaybook { .. }) => Ok(None),
        read => read.map(Some).map_err(|error| unusable(&origin, &error)),
    };
    Ok(Checkout {
        create: read("cluster")?,
        scale: optional("scale")?,
        remove: optional("remove-node")?,
        upgrade: optional("upgrade-cluster")?,
        recover: optional("recover-control-plane")?,
        reset: read("reset")?,
        contract: catalogue::contract(&directory),
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
