//! The table of releases: what each tag says of itself.
//!
//! # Source
//! The tags of github.com/kubernetes-sigs/kubespray: `requirements.txt` (up to 2.22 `requirements-2.12.txt`) for Ansible,
//! `playbooks/ansible_version.yml` for ansible-core, the role `kubespray_defaults` (up to 2.27 `kubespray-defaults`) for
//! Kubernetes. The commit is what the tag stood for when the release was added. The Python range is that of the newest accepted ansible-core, from its support matrix.

use api::{KubernetesVersion, KubesprayVersion};

use super::{CoreRange, CoreVersion, PythonRange, PythonVersion, Release};

type Numbers = (u16, u16, u16);

const fn release(
    version: Numbers,
    commit: &'static str,
    ansible: &'static str,
    core: (Numbers, Numbers),
    python: (u16, u16),
    kubernetes: (Numbers, Numbers),
) -> Release {
    let ((from, before), (default, minimum)) = (core, kubernetes);
    Release {
        version: KubesprayVersion::new(version.0, version.1, version.2),
        commit,
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
    release((2, 20, 0), "18efdc2c51c5881c8647c06d02f8b505c5712876", "5.7.1", ((2, 11, 0), (2, 13, 0)), (8, 10), ((1, 24, 6), (1, 22, 0))),
    release((2, 21, 0), "c4346e590f12239fe9f597cebdb00b5c0ffdc7b3", "5.7.1", ((2, 11, 0), (2, 13, 0)), (8, 10), ((1, 25, 6), (1, 23, 0))),
    release((2, 22, 0), "4014a1cccb4d3d91aca79a374b092447af872ad7", "5.7.1", ((2, 11, 0), (2, 13, 0)), (8, 10), ((1, 26, 5), (1, 24, 0))),
    release((2, 22, 1), "2cf23e3104f9b8b20ca1aefd36e3e89be26fd090", "5.7.1", ((2, 11, 0), (2, 13, 0)), (8, 10), ((1, 26, 5), (1, 24, 0))),
    release((2, 22, 2), "12a65c45e994d62b41811e3ae165181a3ac4383b", "5.7.1", ((2, 11, 0), (2, 13, 0)), (8, 10), ((1, 26, 13), (1, 24, 0))),
    release((2, 23, 0), "c33e4d7bb76cadb52707b2714bb199885563f2a9", "7.6.0", ((2, 14, 0), (2, 15, 0)), (9, 11), ((1, 27, 5), (1, 25, 0))),
    release((2, 23, 1), "10679ebb5ded86187cdb6792c485e2fda25ff3e2", "7.6.0", ((2, 14, 0), (2, 15, 0)), (9, 11), ((1, 27, 7), (1, 25, 0))),
    release((2, 23, 2), "ca271b8a650b16d64d960c1b10c93e7faba7f8b2", "7.6.0", ((2, 14, 0), (2, 15, 0)), (9, 11), ((1, 27, 9), (1, 25, 0))),
    release((2, 23, 3), "3f6567bba01fffa53f256a85c0fa52f57dc88840", "7.6.0", ((2, 14, 0), (2, 15, 0)), (9, 11), ((1, 27, 10), (1, 25, 0))),
    release((2, 24, 0), "64447e745e53d3f486356d03ecb195729a302ea1", "8.5.0", ((2, 15, 5), (2, 17, 0)), (9, 11), ((1, 28, 6), (1, 26, 0))),
    release((2, 24, 1), "2cb8c8544fc5aeff7e1bc0865e65837dd6e8eaca", "8.5.0", ((2, 15, 5), (2, 17, 0)), (9, 11), ((1, 28, 6), (1, 26, 0))),
    release((2, 24, 2), "1601b0db5781809f81824719d10348eee800c8a4", "8.5.0", ((2, 15, 5), (2, 17, 0)), (9, 11), ((1, 28, 10), (1, 26, 0))),
    release((2, 24, 3), "0b64ab15b54b7e4c8fd36114a7162b923b636817", "8.5.0", ((2, 15, 5), (2, 17, 0)), (9, 11), ((1, 28, 14), (1, 26, 0))),
    release((2, 25, 0), "7e0a40725067f7818bb0cd4acaf27a6620af6e3f", "9.5.1", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 29, 5), (1, 27, 0))),
    release((2, 25, 1), "f4dd4056daef907dc9fa47989fed92b98737a496", "9.5.1", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 29, 10), (1, 27, 0))),
    release((2, 26, 0), "f9ebd45c749647c0e8fdd55ea58d0fb0b6612d08", "9.8.0", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 30, 4), (1, 28, 0))),
    release((2, 26, 1), "2555c340866ed0fe240f7ddb71fabb86b09f0b54", "9.8.0", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 30, 6), (1, 28, 0))),
    release((2, 27, 0), "9ec9b3a202ab15f7577cfd755df9b11881edde83", "9.13.0", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 31, 4), (1, 29, 0))),
    release((2, 27, 1), "45140b558266014296ddc6075b0518662a4d4cbe", "9.13.0", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 31, 9), (1, 29, 0))),
    release((2, 28, 0), "63cdf87915421dda5955281f38401fd1b55b230b", "9.13.0", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 32, 5), (1, 30, 0))),
    release((2, 28, 1), "a20891ab67136f8c92ccad3fad9ad11fc71363d0", "9.13.0", ((2, 16, 4), (2, 17, 0)), (10, 12), ((1, 32, 8), (1, 30, 0))),
    release((2, 29, 0), "9991412b4597d6eaf37f86e5f20f9f903a731c08", "10.7.0", ((2, 17, 3), (2, 18, 0)), (10, 12), ((1, 33, 5), (1, 31, 0))),
    release((2, 29, 1), "0c6a29553f90c55cba5e0e359470321dc7cf7d29", "10.7.0", ((2, 17, 3), (2, 18, 0)), (10, 12), ((1, 33, 7), (1, 31, 0))),
    release((2, 30, 0), "f4ccdb5e72395eaf9f3444056ebd1a6625ddb89a", "10.7.0", ((2, 17, 3), (2, 18, 0)), (10, 12), ((1, 34, 3), (1, 32, 0))),
    release((2, 31, 0), "1c9add48975060f45396b34d8e022c30d7f80dab", "11.13.0", ((2, 18, 0), (2, 19, 0)), (11, 13), ((1, 35, 4), (1, 33, 0))),
];

/// The newest of them. An index into a constant: a table without entries does not compile.
pub(super) static NEWEST: &Release = &RELEASES[RELEASES.len() - 1];
