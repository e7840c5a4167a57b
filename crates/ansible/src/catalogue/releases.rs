//! The table of releases: what each tag says of itself.
//!
//! # Source
//! The tags of github.com/kubernetes-sigs/kubespray: `requirements.txt` (up to 2.22 `requirements-2.12.txt`) for Ansible,
//! `playbooks/ansible_version.yml` for ansible-core, the role `kubespray_defaults` (up to 2.27 `kubespray-defaults`) for
//! Kubernetes. The Python range is that of the newest accepted ansible-core, from its support matrix.

use api::{KubernetesVersion, KubesprayVersion};

use super::{CoreRange, CoreVersion, PythonRange, PythonVersion, Release};

type Numbers = (u16, u16, u16);

const fn release(
    version: Numbers,
    ansible: &'static str,
    core: (Numbers, Numbers),
    python: (u16, u16),
    kubernetes: (Numbers, Numbers),
) -> Release {
    let ((from, before), (default, minimum)) = (core, kubernetes);
    Release {
        version: KubesprayVersion::new(version.0, version.1, version.2),
        ansible,
        ansible_core: CoreRange {
            from: CoreVersion(from.0, from.1, from.2),
            before: CoreVersion(before.0, before.1, before.2),
        },
        python: PythonRange {
            oldest: PythonVersion(3, python.0),
            newest: PythonVersion(3, python.1),
        },
        kubernetes_default: KubernetesVersion::new(default.0, default.1, default.2),
        kubernetes_minimum: KubernetesVersion::new(minimum.0, minimum.1, minimum.2),
    }
}

/// Every release, oldest first.
#[rustfmt::skip]
pub(super) static RELEASES: &[Release] = &[
    release((2, 20, 0), "5.7.1", ((2, 11, 0), (2, 13, 0)), (8, 10), ((1, 24, 6), (1, 22, 0))),
    release((2, 21, 0), "5.7.1", ((2, 11, 0), (2, 13, 0)), (8, 10), ((1, 25, 6), (1, 23, 0))),
    release((2, 22, 0), "5.7.1", ((2, 11, 0), (2, 13, 0)), (8, 10), ((1, 26, 5), (1, 24, 0))),
    release((2, 22, 1), "5.7.1", ((2, 11, 0), (2, 13, 0)), (8, 10), ((1, 26, 5), (1, 24, 0))),
    release((2, 22, 2), "5.7.1", ((2, 11, 0), (2, 13, 0)), (8, 10), ((1, 26, 13), (1, 24, 0))),
    release((2, 23, 0), "7.6.0", ((2, 14, 0), (2, 15, 0)), (9, 11), ((1, 27, 5), (1, 25, 0))),
    release((2, 23, 1), "7.6.0", ((2, 14, 0), (2, 15, 0)), (9, 11), ((1, 27, 7), (1, 25, 0))),
    release((2, 23, 2), "7.6.0", ((2, 14, 0), (2, 15, 0)), (9, 11), ((1, 27, 9), (1, 25, 0))),
    release((2, 23, 3), "7.6.0", ((2, 14, 0), (2, 15, 0)), (9, 11), ((1, 27, 10), (1, 25, 0))),
    release((2, 24, 0), "8.5.0", ((2, 15, 5), (2, 17, 0)), (9, 11), ((1, 28, 6), (1, 26, 0))),
    release((2, 24, 1), "8.5.0", ((2, 15, 5), (2, 17, 0)), (9, 11), ((1, 28, 6), (1, 26, 0))),
    release((2, 24, 2), "8.5.0", ((2, 15, 5), (2, 17, 0)), (9, 11), ((1, 28, 10), (1, 26, 0))),
    release((2, 24, 3), "8.5.0", ((2, 15, 5), (2, 17, 0)), (9, 11), ((1, 28, 14), (1, 26, 0))),
    release((2, 25, 0), "9.5.1", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 29, 5), (1, 27, 0))),
    release((2, 25, 1), "9.5.1", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 29, 10), (1, 27, 0))),
    release((2, 26, 0), "9.8.0", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 30, 4), (1, 28, 0))),
    release((2, 26, 1), "9.8.0", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 30, 6), (1, 28, 0))),
    release((2, 27, 0), "9.13.0", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 31, 4), (1, 29, 0))),
    release((2, 27, 1), "9.13.0", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 31, 9), (1, 29, 0))),
    release((2, 28, 0), "9.13.0", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 32, 5), (1, 30, 0))),
    release((2, 28, 1), "9.13.0", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 32, 8), (1, 30, 0))),
    release((2, 29, 0), "10.7.0", ((2, 17, 3), (2, 18, 0)), (10, 12), ((1, 33, 5), (1, 31, 0))),
    release((2, 29, 1), "10.7.0", ((2, 17, 3), (2, 18, 0)), (10, 12), ((1, 33, 7), (1, 31, 0))),
    release((2, 30, 0), "10.7.0", ((2, 17, 3), (2, 18, 0)), (10, 12), ((1, 34, 3), (1, 32, 0))),
    release((2, 31, 0), "11.13.0", ((2, 18, 0), (2, 19, 0)), (11, 13), ((1, 35, 4), (1, 33, 0))),
];

/// The newest of them. An index into a constant: a table without entries does not compile.
pub(super) static NEWEST: &Release = &RELEASES[RELEASES.len() - 1];
