//! What people encrypt files with: SOPS, and age with its maker of keys.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::foreign::module_of_ours;
use crate::Progress;

/// The directory of `sops`, `age` and `age-keygen`, built where the cache does not have these sources.
///
/// # Errors
///
/// A module cannot be had or does not build.
pub fn sops_programs(progress: &dyn Progress) -> Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("sops");
    let packages = [
        "filippo.io/age/cmd/age",
        "filippo.io/age/cmd/age-keygen",
        "github.com/getsops/sops/v3/cmd/sops",
    ];
    let words = (
        "sops and age",
        "built from source, about 3 minutes on 2 cores, 90 MB",
    );
    module_of_ours("sops", &sources, &packages, words, progress)
}
