//! The catalogue agrees with the releases, and plays have the same ids in all of them.
//!
//! The tests of `kubespray_clone` read every release of the table. They are ignored where nobody has kubespray, and need
//! `WINDLASS_KUBESPRAY_GIT=DIR`, a clone with its tags.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, also in what it calls"
)]
#![expect(clippy::type_complexity, reason = "rows of tables are short this way")]

use std::{
    collections::BTreeSet,
    env, fs,
    process::{Command, Stdio},
};

use ansible::{
    catalogue::{
        Contract, Installable, InstallableError, Known, VersionError, check_version, contract,
        hops, installable, releases,
    },
    slice::Playbook,
};
use api::KubernetesVersion;
use serde_json::{Value, json};
use tempfile::TempDir;

fn version(text: &str) -> KubernetesVersion {
    text.parse().unwrap()
}

/// Every release of the table, as its tag has it.
mod kubespray_clone {
    use super::*;

    #[test]
    #[ignore = "it needs a clone of kubespray: WINDLASS_KUBESPRAY_GIT"]
    fn the_table_is_what_the_tags_say() {
        for release in releases() {
            let checkout = extract(&format!("v{}", release.version));
            let found = installable(checkout.path()).unwrap();
            assert_eq!(
                found.default, release.kubernetes_default,
                "{}",
                release.version
            );
            assert_eq!(
                found.minimum, release.kubernetes_minimum,
                "{}",
                release.version
            );
            let playbooks = checkout.path().join("playbooks/ansible_version.yml");
            let playbooks = if playbooks.is_file() {
                playbooks
            } else {
                checkout.path().join("ansible_version.yml")
            };
            let text = fs::read_to_string(playbooks).unwrap();
            for bound in [release.ansible_core.from, release.ansible_core.before] {
                assert!(
                    text.contains(&format!("_ansible_version: {bound}")),
                    "{}: {bound}",
                    release.version
                );
            }
            let pins = ["requirements.txt", "requirements-2.12.txt"]
                .map(|file| fs::read_to_string(checkout.path().join(file)).unwrap_or_default());
            let pin = format!("ansible=={}", release.ansible);
            assert!(
                pins.concat().lines().any(|line| line == pin),
                "{}: {pin}",
                release.version
            );
            eprintln!(
                "{}: {} versions of Kubernetes",
                release.version,
                found.versions.len()
            );
        }
    }

    #[test]
    #[ignore = "it needs a clone of kubespray: WINDLASS_KUBESPRAY_GIT"]
    fn what_a_release_demands_is_read_of_every_tag() {
        for release in releases() {
            let checkout = extract(&format!("v{}", release.version));
            let found = contract(checkout.path());
            let reliable = release.version >= api::KubesprayVersion::new(2, 24, 0);
            assert_eq!(found.release, reliable.then_some(release.version));
            assert_eq!(
                found.listed_only,
                release.version >= api::KubesprayVersion::new(2, 31, 0)
            );
            assert_eq!(refused(&found, &json!({})), [""; 0], "{}", release.version);
            for (variable, wrong) in [
                ("kube_network_plugin", "flanel"),
                ("container_manager", "podman"),
                ("dns_mode", "kubedns"),
                ("etcd_deployment_type", "docker"),
                ("kube_proxy_mode", "userspace"),
                ("resolvconf_mode", "yes"),
            ] {
                let refused = refused(&found, &json!({variable: wrong}));
                assert_eq!(refused.len(), 1, "{}: {variable}", release.version);
            }
            let names = found.names.unwrap();
            for name in ["kube_version", "etcd_access_addresses", "kube_pods_subnet"] {
                assert!(names.contains(name), "{}: {name}", release.version);
            }
            eprintln!(
                "{}: {} assertions, {} names, removed: {:?}",
                release.version,
                found.assertions.len(),
                names.len(),
                found.removed
            );
        }
    }

    #[test]
    #[ignore = "it needs a clone of kubespray: WINDLASS_KUBESPRAY_GIT"]
    fn plays_have_the_same_ids_in_every_release() {
        let expected: &[(&str, &[&str])] = &[
            (
                "cluster",
                &[
                    "preamble/check-ansible",
                    "preamble/bastion",
                    "bootstrap/hosts",
                    "bootstrap/facts",
                    "prepare/hosts",
                    "etcd/install",
                    "kubelet/install",
                    "control-plane/install",
                    "nodes/join",
                    "network/calico-rr",
                    "apps/windows",
                    "apps/install",
                    "dns/resolv-conf",
                ],
            ),
            (
                "scale",
                &[
                    "bootstrap/facts",
                    "etcd/certificates",
                    "prepare/download",
                    "prepare/workers",
                    "kubelet/install",
                    "control-plane/upload-certificates",
                    "nodes/join",
                    "dns/resolv-conf",
                ],
            ),
            (
                "upgrade-cluster",
                &[
                    "bootstrap/facts",
                    "prepare/download",
                    "prepare/upgrade",
                    "prepare/container-engine",
                    "etcd/install",
                    "control-plane/upgrade",
                    "network/upgrade",
                    "workers/upgrade",
                    "apps/windows",
                    "network/calico-rr",
                    "apps/install",
                    "dns/resolv-conf",
                ],
            ),
            ("reset", &["bootstrap/facts", "reset/hosts"]),
            (
                "remove-node",
                &["remove/confirm", "remove/reset", "remove/forget"],
            ),
            (
                "recover-control-plane",
                &[
                    "recover/etcd",
                    "recover/control-plane",
                    "control-plane/install",
                    "recover/finish",
                ],
            ),
        ];
        let mut all = BTreeSet::new();
        for release in releases() {
            let checkout = extract(&format!("v{}", release.version));
            for (name, ids) in expected {
                let playbook = Playbook::read(checkout.path(), name).unwrap();
                let found: Vec<&str> = playbook
                    .slices()
                    .iter()
                    .map(|slice| slice.id.as_str())
                    .collect();
                let mut rest = found.iter();
                for id in *ids {
                    assert!(
                        rest.any(|found| found == id),
                        "{} {name}: {id} in {found:?}",
                        release.version
                    );
                }
                all.extend(found.iter().map(|id| format!("{name}: {id}")));
            }
        }
        for id in all {
            eprintln!("{id}");
        }
    }

    fn extract(tag: &str) -> TempDir {
        let git =
            env::var_os("WINDLASS_KUBESPRAY_GIT").expect("WINDLASS_KUBESPRAY_GIT names a clone");
        let directory = tempfile::tempdir().unwrap();
        let mut archive = Command::new("git")
            .arg("-C")
            .arg(git)
            .args(["archive", tag])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let tar = Command::new("tar")
            .arg("-x")
            .arg("-C")
            .arg(directory.path())
            .stdin(archive.stdout.take().unwrap())
            .status()
            .unwrap();
        assert!(archive.wait().unwrap().success() && tar.success(), "{tag}");
        directory
    }
}

fn checkout(checksums: (&str, &str), defaults: (&str, &str)) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in [checksums, defaults] {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

const NEW: (&str, &str) = (
    "roles/kubespray_defaults/vars/main/checksums.yml",
    "kubelet_checksums:\n  arm64:\n    1.34.9: sha256:0\n  amd64:\n    1.34.3: sha256:1\n    1.34.2: sha256:2\n    1.33.7: sha256:3\n    1.32.0: sha256:4\n",
);

#[test]
fn a_checkout_says_what_it_installs() {
    let template = "kube_version: \"{{ (kubelet_checksums['amd64'] | dict2items)[0].key }}\"\n";
    let new = checkout(
        NEW,
        ("roles/kubespray_defaults/defaults/main/main.yml", template),
    );
    let found = installable(new.path()).unwrap();
    assert_eq!(
        (found.default, found.minimum),
        (version("1.34.3"), version("1.32.0"))
    );
    assert_eq!(found.versions.len(), 4);

    let old = checkout(
        (
            "roles/kubespray-defaults/defaults/main/checksums.yml",
            "kubelet_checksums:\n  amd64:\n    v1.30.1: 0\n    v1.29.4: 1\n    v1.27.0: 2\n",
        ),
        (
            "roles/kubespray-defaults/defaults/main/main.yml",
            "kube_version: v1.29.4\nkube_version_min_required: v1.28.0\n",
        ),
    );
    let found = installable(old.path()).unwrap();
    assert_eq!(
        (found.default, found.minimum),
        (version("1.29.4"), version("1.28.0"))
    );
    assert_eq!(
        found.versions,
        BTreeSet::from([version("1.29.4"), version("1.30.1")])
    );
}

/// The assertions that these variables break, with the release's own values for all others.
fn refused(contract: &Contract, variables: &Value) -> Vec<String> {
    let known = |name: &str| match variables.get(name).or(contract.defaults.get(name)) {
        Some(Value::String(text)) if text.contains("{{") => Known::Hidden,
        Some(value) => Known::Value(value),
        None => Known::Unset,
    };
    let assertions = contract.assertions.iter();
    assertions
        .filter(|assertion| assertion.holds(known) == Some(false))
        .map(ToString::to_string)
        .collect()
}

#[test]
fn a_checkout_says_what_it_demands() {
    let tasks = "---
- name: Fail if removed variables are used
  vars: {removed_vars: [kubelet_static_pod_path, 7]}
  assert: {that: \"{{ query('varnames', removed_vars) | length == 0 }}\"}
- block:
    - ansible.builtin.assert:
        that:
          - kube_network_plugin in ['calico', 'flannel']
          - groups.get('etcd') | length > 0
          - etcd_deployment_type in ['host'] or container_manager == 'docker'
      when: not ignore_assert_errors
- assert: {that: item.value is boolean}
  loop: [1, 2]
- assert: {that: 'kube_version in kubelet_checksums[image_arch]'}
- debug: {msg: 'no assertion'}
  register: the_answer
";
    let defaults =
        "etcd_deployment_type: host\ncontainer_manager: containerd\nignore_assert_errors: false\n";
    let checkout = checkout(
        ("roles/validate_inventory/tasks/main.yml", tasks),
        ("roles/kubespray_defaults/defaults/main/main.yml", defaults),
    );
    let galaxy = "namespace: kubernetes_sigs\nname: kubespray\nversion: 2.31.0\n";
    fs::write(checkout.path().join("galaxy.yml"), galaxy).unwrap();
    let found = contract(checkout.path());
    assert_eq!(found.release.unwrap().to_string(), "2.31.0");
    assert!(found.listed_only);
    assert_eq!(
        found.removed,
        BTreeSet::from(["kubelet_static_pod_path".to_owned()])
    );
    assert_eq!(found.assertions.len(), 2);
    assert_eq!(
        refused(
            &found,
            &json!({"kube_network_plugin": "flanel", "etcd_deployment_type": "docker"})
        ),
        [
            "kube_network_plugin is one of calico, flannel",
            "etcd_deployment_type is host or container_manager is docker"
        ]
    );
    let ignored = json!({"kube_network_plugin": "flanel", "ignore_assert_errors": true});
    assert_eq!(refused(&found, &ignored), [""; 0]);
    let names = found.names.unwrap();
    for name in ["container_manager", "the_answer", "removed_vars"] {
        assert!(names.contains(name), "{name} is not in {names:?}");
    }
    assert!(!names.contains("kubelet_static_pod_path"));
}

#[test]
fn what_a_checkout_does_not_say_is_no_check() {
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(contract(empty.path()), Contract::default());
    let large = format!("galaxy: {}\n", "x".repeat(2 << 20));
    let broken = checkout(
        ("roles/validate_inventory/tasks/main.yml", "- assert: [\n"),
        ("roles/large/defaults/main.yml", &large),
    );
    for galaxy in [
        "version: 2.31.0",
        "name: kubespray\nversion: 2.23.0",
        "name: mine\nversion: 2.31.0",
        "name: kubespray\nversion: [2]",
    ] {
        fs::write(broken.path().join("galaxy.yml"), galaxy).unwrap();
        assert_eq!(contract(broken.path()), Contract::default(), "{galaxy}");
    }
    // A link leads nowhere.
    let defaults = broken.path().join("roles/large/defaults");
    fs::remove_file(defaults.join("main.yml")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", broken.path().join("roles/link.yml")).unwrap();
    let names = contract(broken.path()).names.unwrap();
    assert_eq!(names, BTreeSet::from(["assert".to_owned()]));
}

#[test]
fn what_is_no_checkout_is_told() {
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(
        installable(empty.path()),
        Err(InstallableError::NoChecksums { .. })
    ));
    let broken = checkout((NEW.0, "kubelet_checksums: [\n"), ("x", ""));
    assert!(matches!(
        installable(broken.path()),
        Err(InstallableError::Parse { .. })
    ));
    let without = checkout((NEW.0, "kubelet_checksums: {}\n"), ("x", ""));
    assert!(matches!(
        installable(without.path()),
        Err(InstallableError::Empty { .. })
    ));
}

fn four_versions() -> Installable {
    Installable {
        default: version("1.34.3"),
        minimum: version("1.32.0"),
        versions: ["1.32.0", "1.33.7", "1.34.2", "1.34.3"].map(version).into(),
    }
}

#[test]
fn the_way_to_a_version_goes_by_the_newest_of_each_minor() {
    for (installed, wanted, expected) in [
        ("1.32.0", "1.34.2", vec!["1.33.7", "1.34.2"]),
        ("1.33.7", "1.34.3", vec!["1.34.3"]),
        ("1.34.2", "1.34.3", vec!["1.34.3"]),
        ("1.34.3", "1.34.3", vec![]),
    ] {
        let hops = hops(version(wanted), version(installed), &four_versions()).unwrap();
        let expected: Vec<_> = expected.into_iter().map(version).collect();
        assert_eq!(hops, expected, "{installed} to {wanted}");
    }
}

#[test]
fn versions_move_by_one_minor_up() {
    let installable = four_versions();
    let check = |wanted: &str, installed: Option<&str>| {
        check_version(version(wanted), &installable, installed.map(version))
    };
    let rows: &[(
        &str,
        &str,
        Option<&str>,
        fn(&Result<KubernetesVersion, VersionError>) -> bool,
    )] = &[
        ("first", "1.34.2", None, Result::is_ok),
        ("same", "1.34.2", Some("1.34.2"), Result::is_ok),
        ("patch", "1.34.3", Some("1.34.2"), Result::is_ok),
        ("minor", "1.33.7", Some("1.32.0"), Result::is_ok),
        ("bridged minors", "1.34.3", Some("1.32.0"), Result::is_ok),
        ("two minors", "1.34.3", Some("1.31.0"), Result::is_ok),
        ("a minor without a bridge", "1.34.3", Some("1.30.9"), |r| {
            matches!(r, Err(VersionError::SkippedMinor { minor: 31, .. }))
        }),
        ("major", "2.0.0", Some("1.34.3"), |r| {
            matches!(r, Err(VersionError::SkippedMinor { .. }))
        }),
        ("older patch", "1.34.2", Some("1.34.3"), |r| {
            matches!(r, Err(VersionError::Downgrade { .. }))
        }),
        ("older minor", "1.33.7", Some("1.34.2"), |r| {
            matches!(r, Err(VersionError::Downgrade { .. }))
        }),
        (
            "unknown patch",
            "1.33.8",
            None,
            |r| matches!(r, Err(VersionError::NotInstallable { nearest, .. }) if nearest[0] == version("1.33.7")),
        ),
        (
            "unknown, and nothing newer than what there is",
            "1.35.4",
            Some("1.34.3"),
            |r| matches!(r, Err(VersionError::NotInstallable { nearest, .. }) if nearest.is_empty()),
        ),
        (
            "too old",
            "1.31.0",
            None,
            |r| matches!(r, Err(VersionError::NotInstallable { nearest, .. }) if nearest[0] == version("1.32.0")),
        ),
        (
            "too new",
            "1.35.0",
            None,
            |r| matches!(r, Err(VersionError::NotInstallable { nearest, .. }) if nearest[0] == version("1.34.2")),
        ),
    ];
    for (name, wanted, installed, expected) in rows {
        let result = check(wanted, *installed);
        assert!(expected(&result), "{name}: {result:?}");
        if let Err(error) = result {
            assert!(error.to_string().contains(wanted), "{name}: {error}");
        }
    }
}
