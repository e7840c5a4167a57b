//! Which Kubernetes versions a checkout can install.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use api::KubernetesVersion;
use serde::Deserialize;

use super::{list, nearest};

/// What a checkout can install.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Installable {
    /// What it installs unless told otherwise.
    pub default: KubernetesVersion,
    /// The oldest version that it accepts.
    pub minimum: KubernetesVersion,
    /// Every version that it has checksums of and accepts, for x86-64 hosts.
    pub versions: BTreeSet<KubernetesVersion>,
}

/// Why a checkout does not say what it can install.
#[derive(Debug, thiserror::Error)]
pub enum InstallableError {
    /// None of the places where a release keeps its checksums is there.
    #[error(
        "find the checksums of Kubernetes in {checkout}: looked for {}: is this a kubespray checkout?",
        CHECKSUMS.join(", ")
    )]
    NoChecksums {
        /// The checkout.
        checkout: PathBuf,
    },
    /// A file cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not the YAML that it should be.
    #[error("parse {path}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    /// The checksums name no version of the kubelet for amd64.
    #[error(
        "find a version of the kubelet for amd64 in {path}: `kubelet_checksums.amd64` has no entry"
    )]
    Empty {
        /// The checksums file.
        path: PathBuf,
    },
}

/// Why a Kubernetes version is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum VersionError {
    /// The checkout has no checksums of it.
    #[error(
        "Kubernetes {wanted} cannot be installed by this kubespray: it installs {minimum} to {newest}{}",
        told(.nearest)
    )]
    NotInstallable {
        /// What was asked for.
        wanted: KubernetesVersion,
        /// The oldest that can be installed.
        minimum: KubernetesVersion,
        /// The newest that can be installed.
        newest: KubernetesVersion,
        /// Up to three that can be installed and are newer than what is installed, nearest first.
        nearest: Vec<KubernetesVersion>,
    },
    /// A minor version would be skipped.
    #[error(
        "Kubernetes {wanted} is more than one minor version after the installed {installed}, and this kubespray installs no \
         {}.{minor} to go by",
        .installed.major
    )]
    SkippedMinor {
        /// What was asked for.
        wanted: KubernetesVersion,
        /// What is installed.
        installed: KubernetesVersion,
        /// The first minor version between them that cannot be installed.
        minor: u16,
    },
    /// The version would go down.
    #[error(
        "Kubernetes {wanted} is older than the installed {installed}: a cluster cannot be downgraded; ask for {installed} or newer"
    )]
    Downgrade {
        /// What was asked for.
        wanted: KubernetesVersion,
        /// What is installed.
        installed: KubernetesVersion,
    },
}

/// Reads what a checkout can install from its checksums file and its defaults.
///
/// # Errors
///
/// The checksums are not there or name no kubelet for amd64, or a file cannot be read or parsed.
pub fn installable(checkout: &Path) -> Result<Installable, InstallableError> {
    let (path, keys) = kubelets(checkout)?;
    let (Some(first), Some(last)) = (keys.first().copied(), keys.last().copied()) else {
        return Err(InstallableError::Empty { path });
    };
    let defaults: Defaults = match first_file(checkout, DEFAULTS) {
        Some(path) => read(&path)?,
        None => Defaults::default(),
    };
    // Since 2.28 the defaults are templates that name the first and the last key; before, they are versions.
    let default = defaults
        .kube_version
        .as_deref()
        .and_then(literal)
        .unwrap_or(first);
    let minimum = defaults
        .kube_version_min_required
        .as_deref()
        .and_then(literal)
        .unwrap_or(last);
    let versions = keys
        .into_iter()
        .filter(|version| *version >= minimum)
        .collect();
    Ok(Installable {
        default,
        minimum,
        versions,
    })
}

/// Whether a version can be installed, given what is installed now.
///
/// # Errors
///
/// The checkout cannot install it, it is older than what is installed, or a minor version between them cannot be installed.
pub fn check_version(
    wanted: KubernetesVersion,
    installable: &Installable,
    installed: Option<KubernetesVersion>,
) -> Result<KubernetesVersion, VersionError> {
    if let Some(installed) = installed {
        hops(wanted, installed, installable)?;
    }
    if installable.versions.contains(&wanted) || wanted == installable.default {
        return Ok(wanted);
    }
    let distance = |v: &KubernetesVersion| {
        (
            v.major.abs_diff(wanted.major),
            v.minor.abs_diff(wanted.minor),
            v.patch.abs_diff(wanted.patch),
        )
    };
    // Of older ones a cluster can make no use.
    let candidates = installable.versions.iter().copied();
    let candidates = candidates.filter(|version| installed.is_none_or(|old| *version > old));
    Err(VersionError::NotInstallable {
        wanted,
        minimum: installable.minimum,
        newest: installable
            .versions
            .last()
            .copied()
            .unwrap_or(installable.default),
        nearest: nearest(candidates, distance),
    })
}

fn told(nearest: &[KubernetesVersion]) -> String {
    if nearest.is_empty() {
        String::new()
    } else {
        format!("; the nearest are {}", list(nearest))
    }
}

/// The versions that lead from what is installed to a newer one: the newest of each minor version between them, then the wanted
/// one. Whether that itself can be installed is not asked.
///
/// # Errors
///
/// A minor version between them cannot be installed, or the wanted one is older.
pub fn hops(
    wanted: KubernetesVersion,
    installed: KubernetesVersion,
    installable: &Installable,
) -> Result<Vec<KubernetesVersion>, VersionError> {
    let skipped = |minor| VersionError::SkippedMinor {
        wanted,
        installed,
        minor,
    };
    if wanted < installed {
        return Err(VersionError::Downgrade { wanted, installed });
    }
    let next = installed.minor.saturating_add(1);
    if wanted.major != installed.major {
        return Err(skipped(next));
    }
    let newest = |minor| {
        let mut newest_first = installable.versions.iter().rev();
        newest_first.find(|version| (version.major, version.minor) == (wanted.major, minor))
    };
    let between = (next..wanted.minor).map(|minor| newest(minor).copied().ok_or(skipped(minor)));
    let mut hops = between.collect::<Result<Vec<_>, _>>()?;
    hops.extend((wanted != installed).then_some(wanted));
    Ok(hops)
}

/// The versions of the kubelet in the order of the file, and the file. One release has two files that look like it.
fn kubelets(checkout: &Path) -> Result<(PathBuf, Vec<KubernetesVersion>), InstallableError> {
    let mut found = None;
    let candidates = CHECKSUMS.iter().map(|candidate| checkout.join(candidate));
    for path in candidates.filter(|path| path.is_file()) {
        let keys = versions(&read(&path)?);
        if !keys.is_empty() {
            return Ok((path, keys));
        }
        found.get_or_insert((path, keys));
    }
    found.ok_or_else(|| InstallableError::NoChecksums {
        checkout: checkout.to_owned(),
    })
}

/// Serde keeps the order of the file: the first key is the default and the last is the minimum.
#[derive(Default, Deserialize)]
struct Checksums {
    #[serde(default)]
    kubelet_checksums: serde_json::Map<String, serde_json::Value>,
}

#[derive(Default, Deserialize)]
struct Defaults {
    #[serde(default)]
    kube_version: Option<String>,
    #[serde(default)]
    kube_version_min_required: Option<String>,
}

fn versions(checksums: &Checksums) -> Vec<KubernetesVersion> {
    let amd64 = checksums.kubelet_checksums.get("amd64");
    let keys = amd64
        .and_then(serde_json::Value::as_object)
        .into_iter()
        .flatten();
    keys.filter_map(|(key, _)| key.parse().ok()).collect()
}

fn literal(text: &str) -> Option<KubernetesVersion> {
    text.trim().parse().ok()
}

fn first_file(checkout: &Path, candidates: &[&str]) -> Option<PathBuf> {
    let mut paths = candidates.iter().map(|candidate| checkout.join(candidate));
    paths.find(|path| path.is_file())
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, InstallableError> {
    let text = fs::read_to_string(path).map_err(|source| InstallableError::Read {
        path: path.to_owned(),
        source,
    })?;
    serde_saphyr::from_str(&text).map_err(|source| InstallableError::Parse {
        path: path.to_owned(),
        source: Box::new(source),
    })
}

/// Where releases keep the checksums, newest layout first.
pub(super) const CHECKSUMS: &[&str] = &[
    "roles/kubespray_defaults/vars/main/checksums.yml",
    "roles/kubespray-defaults/defaults/main/checksums.yml",
    "roles/download/defaults/main/checksums.yml",
    "roles/download/defaults/main.yml",
];

/// Where releases keep `kube_version`, newest layout first.
const DEFAULTS: &[&str] = &[
    "roles/kubespray_defaults/defaults/main/main.yml",
    "roles/kubespray-defaults/defaults/main/main.yml",
    "roles/kubespray-defaults/defaults/main.yaml",
];
