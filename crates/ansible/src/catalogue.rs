//! Which kubespray releases there are, what each needs, and which Kubernetes versions a checkout can install.
//!
//! The table of [`releases`] is compiled in, because it must answer before anything is fetched: which Python to look for,
//! which version is the default. What a checkout can install is read from the checkout itself ([`installable`]): its
//! checksums file is what kubespray downloads by, so a version that is not in it cannot be installed whatever a table says.
//! So is what it demands of its variables ([`contract`](fn@contract)).
//! Reads files below the given checkout and nothing else.

use std::fmt;

use api::{KubernetesVersion, KubesprayVersion};

mod contract;
mod installable;
mod moves;
mod releases;

pub use contract::{Assertion, COMPONENTS, Contract, Known, Test, contract};
pub use installable::{
    Installable, InstallableError, VersionError, check_version, hops, installable,
};
pub use moves::{MoveError, bridge, check_move, installing};

/// One kubespray release and what it needs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Release {
    /// The release.
    pub version: KubesprayVersion,
    /// The commit that its tag stands for in the upstream repository.
    pub commit: &'static str,
    /// The version of the PyPI package `ansible` that it pins.
    pub ansible: &'static str,
    /// The ansible-core versions that its first play accepts.
    pub ansible_core: CoreRange,
    /// The Python versions that can run that Ansible.
    pub python: PythonRange,
    /// The Kubernetes version that it installs unless told otherwise.
    pub kubernetes_default: KubernetesVersion,
    /// The oldest Kubernetes version that it accepts.
    pub kubernetes_minimum: KubernetesVersion,
}

impl Release {
    /// The Kubernetes version as this release writes it in `kube_version`: without a leading `v` since 2.28, with it before.
    pub fn kube_version(&self, version: KubernetesVersion) -> String {
        kube_version(self.version, version)
    }

    /// Whether its checksums may have the version. Up to 2.27 its default is not the newest that it installs.
    pub fn may_install(&self, version: KubernetesVersion) -> bool {
        let default = self.kubernetes_default;
        let is_of_default = (version.major, version.minor) == (default.major, default.minor);
        let has_newer = self.version < KubesprayVersion::new(2, 28, 0) && is_of_default;
        version >= self.kubernetes_minimum && (version <= default || has_newer)
    }

    /// The oldest Python on a host that the modules of this release's Ansible run with.
    ///
    /// # Source
    /// The support matrix of ansible-core, "target Python". 2.11 to 2.16 also run with 2.7, which kubespray does not.
    pub fn host_python(&self) -> PythonVersion {
        match self.ansible_core.from {
            CoreVersion(2, ..=15, _) => PythonVersion(3, 5),
            CoreVersion(2, 16, _) => PythonVersion(3, 6),
            CoreVersion(2, 17, _) => PythonVersion(3, 7),
            _ => PythonVersion(3, 8),
        }
    }
}

/// The Kubernetes version as a kubespray release writes it in `kube_version`: without a leading `v` since 2.28, with it
/// before.
pub fn kube_version(release: KubesprayVersion, version: KubernetesVersion) -> String {
    if release < KubesprayVersion::new(2, 28, 0) {
        format!("v{version}")
    } else {
        version.to_string()
    }
}

/// A version of ansible-core: MAJOR, MINOR, PATCH.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct CoreVersion(pub u16, pub u16, pub u16);

impl fmt::Display for CoreVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// The ansible-core versions from `from`, before `before`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CoreRange {
    /// The oldest that is accepted.
    pub from: CoreVersion,
    /// The first that is too new.
    pub before: CoreVersion,
}

impl CoreRange {
    /// Whether the version is in the range.
    pub fn contains(self, version: CoreVersion) -> bool {
        self.from <= version && version < self.before
    }
}

impl fmt::Display for CoreRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ">={},<{}", self.from, self.before)
    }
}

/// A version of Python: MAJOR, MINOR.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct PythonVersion(pub u16, pub u16);

impl fmt::Display for PythonVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The Python versions from `oldest` to `newest`, both included.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PythonRange {
    /// The oldest that fits.
    pub oldest: PythonVersion,
    /// The newest that fits.
    pub newest: PythonVersion,
}

impl PythonRange {
    /// Whether the version is in the range.
    pub fn contains(self, version: PythonVersion) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// The versions of the range, newest first: the order in which to look for an interpreter.
    pub fn newest_first(self) -> impl Iterator<Item = PythonVersion> {
        (self.oldest.1..=self.newest.1)
            .rev()
            .map(move |minor| PythonVersion(self.oldest.0, minor))
    }
}

impl fmt::Display for PythonRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.oldest, self.newest)
    }
}

/// A kubespray release that the table does not know.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "kubespray {wanted} is not a release that Windlass knows: the nearest are {}; all are from {oldest} to {newest}",
    list(.nearest)
)]
pub struct UnknownRelease {
    /// What was asked for.
    pub wanted: KubesprayVersion,
    /// Up to three known releases, nearest first.
    pub nearest: Vec<KubesprayVersion>,
    /// The oldest known release.
    pub oldest: KubesprayVersion,
    /// The newest known release.
    pub newest: KubesprayVersion,
}

/// Every known release, oldest first.
pub fn releases() -> &'static [Release] {
    releases::RELEASES
}

/// The newest known release.
pub fn newest() -> &'static Release {
    releases::NEWEST
}

/// The release of that version.
///
/// # Errors
///
/// Windlass does not know that release.
pub fn release(version: KubesprayVersion) -> Result<&'static Release, UnknownRelease> {
    let known = releases().iter().find(|release| release.version == version);
    known.ok_or_else(|| UnknownRelease {
        wanted: version,
        nearest: nearest(releases().iter().map(|r| r.version), |v| {
            distance(*v, version)
        }),
        oldest: releases().first().map_or(version, |r| r.version),
        newest: newest().version,
    })
}

fn distance(a: KubesprayVersion, b: KubesprayVersion) -> (u16, u16, u16) {
    (
        a.major.abs_diff(b.major),
        a.minor.abs_diff(b.minor),
        a.patch.abs_diff(b.patch),
    )
}

/// Up to three of the candidates, nearest first.
fn nearest<T, D: Ord>(candidates: impl Iterator<Item = T>, distance: impl Fn(&T) -> D) -> Vec<T> {
    let mut candidates: Vec<T> = candidates.collect();
    candidates.sort_by_key(|candidate| distance(candidate));
    candidates.truncate(3);
    candidates
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    let texts: Vec<String> = items.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ordered_and_consistent() {
        for pair in releases().windows(2) {
            assert!(pair[0].version < pair[1].version, "{:?}", pair[1].version);
        }
        for release in releases() {
            assert!(release.kubernetes_minimum < release.kubernetes_default);
            assert!(release.ansible_core.from < release.ansible_core.before);
            assert!(release.python.oldest < release.python.newest);
            let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
            assert!(release.commit.len() == 40 && release.commit.chars().all(hex));
        }
        assert_eq!(newest().version, KubesprayVersion::new(2, 31, 0));
    }

    #[test]
    fn the_guide_lists_every_release() {
        let page = include_str!("../../../docs/kubespray.md");
        let listed = page.lines().filter(|line| line.starts_with("| 2."));
        let listed: Vec<_> = listed.collect();
        let row = |release: &Release| {
            let (version, python) = (release.version, release.python);
            let (from, default) = (release.kubernetes_minimum, release.kubernetes_default);
            format!("| {version} | {from} | {default} | {python} |")
        };
        let known: Vec<_> = releases().iter().rev().map(row).collect();
        assert_eq!(listed, known, "newest first");
    }

    #[test]
    fn an_unknown_release_names_the_nearest() {
        for (wanted, nearest) in [
            ((2, 30, 1), "2.30.0"),
            ((2, 19, 0), "2.20.0"),
            ((2, 24, 9), "2.24.3"),
            ((3, 0, 0), "2.20.0"),
        ] {
            let wanted = KubesprayVersion::new(wanted.0, wanted.1, wanted.2);
            let error = release(wanted).unwrap_err();
            assert_eq!(error.nearest[0].to_string(), nearest, "{wanted}");
            assert!(error.to_string().contains(nearest), "{error}");
        }
    }

    #[test]
    fn the_table_says_which_release_installs_a_version() {
        for (version, by) in [
            ((1, 35, 4), Some((2, 31, 0))),
            ((1, 31, 6), Some((2, 27, 1))),
            ((1, 36, 1), None),
        ] {
            let version = KubernetesVersion::new(version.0, version.1, version.2);
            let by = by.map(|(major, minor, patch)| KubesprayVersion::new(major, minor, patch));
            let known = installing(version);
            assert_eq!(known.map(|release| release.version), by, "{version}");
            assert!(known.is_none_or(|release| release.may_install(version)));
            let older = release(KubesprayVersion::new(2, 26, 1)).unwrap();
            assert!(!older.may_install(version), "{version}");
        }
    }

    #[test]
    fn kube_version_has_a_v_before_2_28() {
        let kubernetes = KubernetesVersion::new(1, 31, 4);
        for (minor, written) in [(27, "v1.31.4"), (28, "1.31.4")] {
            let release = release(KubesprayVersion::new(2, minor, 0)).unwrap();
            assert_eq!(release.kube_version(kubernetes), written);
        }
    }

    #[test]
    fn interpreters_are_looked_for_newest_first() {
        let python = release(KubesprayVersion::new(2, 30, 0)).unwrap().python;
        let order: Vec<String> = python.newest_first().map(|v| v.to_string()).collect();
        assert_eq!(order, ["3.12", "3.11", "3.10"]);
    }
}
