//! From which release to which one a cluster may move.

use api::{KubernetesVersion, KubesprayVersion};

use super::{Release, releases};

/// Why a cluster that one release built is not given to another.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MoveError {
    /// The other one is older.
    #[error(
        "kubespray {built} built the cluster, and no release takes a cluster back to an older one"
    )]
    Downgrade {
        /// The release that built it.
        built: KubesprayVersion,
    },
    /// There are releases between them.
    #[error(
        "kubespray {built} built the cluster, and upgrades go from one minor release to the next"
    )]
    Skipped {
        /// The release that built it.
        built: KubesprayVersion,
        /// The newest one of the next minor release, if there is one.
        next: Option<KubesprayVersion>,
    },
}

/// Whether a cluster may move from the release that built it to another one.
///
/// # Errors
///
/// That is an older one, or a minor release lies between them.
///
/// # Source
/// kubespray `docs/operations/upgrades.md`, "Multiple upgrades": no release may be skipped.
pub fn check_move(wanted: KubesprayVersion, built: KubesprayVersion) -> Result<(), MoveError> {
    if wanted < built {
        return Err(MoveError::Downgrade { built });
    }
    let next = built.minor.saturating_add(1);
    if wanted.major == built.major && wanted.minor <= next {
        return Ok(());
    }
    let mut newest_first = releases().iter().rev().map(|release| release.version);
    let next = newest_first.find(|known| (known.major, known.minor) == (built.major, next));
    Err(MoveError::Skipped { built, next })
}

/// The newest release that installs this minor version of Kubernetes unless told otherwise.
pub fn bridge(minor: u16) -> Option<&'static Release> {
    let mut newest_first = releases().iter().rev();
    newest_first.find(|release| release.kubernetes_default.minor == minor)
}

/// The oldest release of which the table knows that it installs this version of Kubernetes.
pub fn installing(version: KubernetesVersion) -> Option<&'static Release> {
    let minor = |version: KubernetesVersion| (version.major, version.minor);
    releases().iter().find(|release| {
        let default = release.kubernetes_default;
        minor(default) == minor(version) && version <= default
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_moves_release_by_release_and_never_back() {
        for (built, wanted, expected) in [
            ((2, 29, 0), (2, 29, 0), "ok"),
            ((2, 29, 0), (2, 29, 1), "ok"),
            ((2, 29, 1), (2, 30, 0), "ok"),
            ((2, 29, 1), (2, 29, 0), "an older one"),
            ((2, 31, 0), (2, 30, 0), "an older one"),
            ((2, 28, 0), (2, 30, 0), "to the next"),
            ((2, 31, 0), (3, 0, 0), "to the next"),
        ] {
            let version = |(major, minor, patch)| KubesprayVersion::new(major, minor, patch);
            let said = match check_move(version(wanted), version(built)) {
                Ok(()) => "ok".to_owned(),
                Err(error) => error.to_string(),
            };
            assert!(said.contains(expected), "{built:?} to {wanted:?}: {said}");
        }
        let skipped = check_move(
            KubesprayVersion::new(2, 30, 0),
            KubesprayVersion::new(2, 28, 0),
        );
        let next = Some(KubesprayVersion::new(2, 29, 1));
        let built = KubesprayVersion::new(2, 28, 0);
        assert_eq!(skipped, Err(MoveError::Skipped { built, next }));
    }

    #[test]
    fn the_release_that_bridges_a_minor_version_is_known() {
        let version = bridge(33).map(|release| release.version);
        assert_eq!(version, Some(KubesprayVersion::new(2, 29, 1)));
        assert!(bridge(1).is_none());
    }
}
