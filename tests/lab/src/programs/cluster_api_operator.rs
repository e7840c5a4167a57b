//! The operator of Cluster API providers that others run.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::foreign::module_of_ours;
use crate::Progress;

/// The program, built where the cache does not have these sources.
///
/// # Errors
///
/// A module cannot be had or does not build.
pub fn cluster_api_operator(progress: &dyn Progress) -> Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster-api-operator");
    let packages = ["sigs.k8s.io/cluster-api-operator/cmd"];
    let words = (
        "the Cluster API operator",
        "built from source, about 3 minutes on 2 cores, 60 MB",
    );
    let directory = module_of_ours("cluster-api-operator", &sources, &packages, words, progress)?;
    Ok(directory.join("cmd"))
}
