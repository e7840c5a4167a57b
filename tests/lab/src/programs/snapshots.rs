//! What snapshots of etcd are checked, restored and stored by: etcdutl, and an S3-compatible server.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::foreign::module_of_ours;
use crate::Progress;

/// The directory of `etcdutl`, of the release of the lab's etcd, and of `versitygw`, built where the cache does not have these sources.
///
/// # Errors
///
/// A module cannot be had or does not build.
pub fn snapshot_programs(progress: &dyn Progress) -> Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots");
    let packages = [
        "go.etcd.io/etcd/etcdutl/v3",
        "github.com/versity/versitygw/cmd/versitygw",
    ];
    let words = (
        "etcdutl and versitygw",
        "built from source, about 3 minutes on 2 cores, 80 MB",
    );
    module_of_ours("snapshots", &sources, &packages, words, progress)
}
