//! What playbooks ask the network for, as a real Ansible evaluates it.
//!
//! The bundle has a role `download` that fetches nothing, so that its entries are given here. The test of `kubespray_checkout` holds
//! the list of an unmodified kubespray against the one that its own `contrib/offline` makes. It needs `WINDLASS_KUBESPRAY=DIR`, and
//! `WINDLASS_ANSIBLE_PLAYBOOK=FILE` if that needs another Ansible than 2.30.0.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration,
};

use ansible::downloads::{Architecture, Question, evaluate};
use serde_json::{Map, Value, json};

mod support {
    pub mod environment;
}

const BUNDLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bundle");

fn inventory() -> Value {
    json!({"all": {
        "hosts": {"plane": {"ansible_host": "192.0.2.1", "ansible_become": true}, "worker": {}},
        "vars": {"ansible_user": "nobody"},
        "children": {
            "kube_control_plane": {"hosts": {"plane": {}}},
            "etcd": {"hosts": {"plane": {}}},
            "kube_node": {"hosts": {"worker": {}}},
            "k8s_cluster": {"children": {"kube_control_plane": {}, "kube_node": {}}},
        },
    }})
}

fn question(ansible_playbook: &Path, checkout: &Path, variables: Value) -> Question {
    let Value::Object(variables) = variables else {
        return question(ansible_playbook, checkout, json!({}));
    };
    Question {
        ansible_playbook: ansible_playbook.to_owned(),
        checkout: checkout.to_owned(),
        inventory: inventory(),
        variables,
        hosts: BTreeMap::from([
            ("plane".to_owned(), Architecture::Amd64),
            ("worker".to_owned(), Architecture::Arm64),
        ]),
    }
}

#[tokio::test]
async fn templates_come_to_what_each_host_asks_for() {
    let sandbox = support::environment::sandbox().await;
    let variables = json!({
        "ansible_become": true, "ansible_connection": "nonsense",
        "files_repo": "http://10.0.0.1", "arch": "{{ 'arm64' if ansible_architecture == 'aarch64' else 'amd64' }}",
        "downloads": {
            "kubelet": {
                "enabled": true, "file": true, "groups": ["k8s_cluster"],
                "url": "{{ files_repo }}/v{{ kube_version }}/{{ arch }}/kubelet",
                "checksum": "sha256:{{ 'x' | hash('sha256') }}",
            },
            "etcd": {"enabled": "{{ not skip_downloads }}", "file": true, "url": "{{ files_repo }}/etcd", "groups": ["etcd"]},
            "off": {"enabled": "{{ skip_downloads }}", "file": true, "url": "{{ files_repo }}/off", "groups": ["k8s_cluster"]},
            "pause": {"enabled": true, "container": true, "repo": "registry.k8s.io/pause", "tag": 3.10, "checksum": null, "groups": ["kube_node"]},
        },
        "containerd_registries_mirrors": [{"prefix": "registry.k8s.io", "mirrors": [{"host": "{{ files_repo }}:5000", "skip_verify": true}]}],
    });
    let asked = question(&sandbox.ansible_playbook(), Path::new(BUNDLE), variables);
    let answers = evaluate(&asked).await.unwrap();
    let wanted = |host: &str| -> Vec<String> {
        let wanted = answers[host].wanted();
        let shown = wanted.map(|(name, one)| format!("{name} {}{}:{}", one.url, one.repo, one.tag));
        shown.collect()
    };
    assert_eq!(
        wanted("plane"),
        [
            "etcd http://10.0.0.1/etcd:",
            "kubelet http://10.0.0.1/v1.34.4/amd64/kubelet:"
        ]
    );
    assert_eq!(
        wanted("worker"),
        [
            "kubelet http://10.0.0.1/v1.34.4/arm64/kubelet:",
            "pause registry.k8s.io/pause:3.1"
        ]
    );
    let mirrors = &answers["plane"].mirrors;
    assert_eq!(mirrors[0].mirrors[0].host, "http://10.0.0.1:5000");
    assert!(mirrors[0].mirrors[0].skip_verify);
    // The bundle asks kubeadm for no images.
    assert_eq!(answers["plane"].kubeadm, None);
}

#[tokio::test]
async fn a_variable_that_is_not_defined_is_named() {
    let sandbox = support::environment::sandbox().await;
    for (url, words) in [
        ("{{ file_repo }}/x", "'file_repo' is undefined"),
        ("{{ files_repo }", "template error"),
    ] {
        let variables = json!({
            "files_repo": "http://10.0.0.1",
            "downloads": {"x": {"enabled": true, "url": url, "groups": ["k8s_cluster"]}},
        });
        let asked = question(&sandbox.ansible_playbook(), Path::new(BUNDLE), variables);
        let refused = evaluate(&asked).await.unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

/// Nobody waits for it any more: its time is up, or a person has typed Ctrl-C.
#[tokio::test]
async fn what_ansible_started_ends_with_it() {
    let home = tempfile::tempdir().unwrap();
    let (program, pids) = (
        home.path().join("ansible-playbook"),
        home.path().join("pids"),
    );
    // One of its group, and one that is a session of its own, as workers are.
    let script = format!(
        "#!/bin/sh\nsleep 1000 & echo $! > {0}.part\nsetsid sleep 1000 & echo $! >> {0}.part\nmv {0}.part {0}\nwait\n",
        pids.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let asked = question(&program, Path::new(BUNDLE), json!({}));
    let begun = async {
        loop {
            match fs::read_to_string(&pids) {
                Ok(begun) => break begun,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let begun = tokio::select! {
        answer = evaluate(&asked) => panic!("it has no answer: {answer:?}"),
        begun = begun => begun,
    };
    for pid in begun.lines() {
        // What was killed and not waited for yet has no command line.
        let left = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!left.starts_with(b"sleep"), "{pid} is left");
    }
    assert_eq!(begun.lines().count(), 2);
}

mod kubespray_checkout {
    use std::{collections::BTreeSet, env, path::PathBuf, process::Command};

    use super::*;

    /// The list is the one that `contrib/offline/generate_list.sh` of the release makes, and what that forgets: it knows files by
    /// variables named `*_download_url` alone.
    #[tokio::test]
    #[ignore = "it needs a checkout of kubespray: WINDLASS_KUBESPRAY"]
    async fn the_list_is_the_release_s_own() {
        let checkout = PathBuf::from(env::var_os("WINDLASS_KUBESPRAY").unwrap());
        let program = match env::var_os("WINDLASS_ANSIBLE_PLAYBOOK") {
            Some(program) => PathBuf::from(program),
            None => support::environment::sandbox().await.ansible_playbook(),
        };
        let asked = question(&program, &checkout, Value::Object(Map::new()));
        let answers = evaluate(&asked).await.unwrap();
        let plane = &answers["plane"];
        let all = plane.downloads.values();
        let files = all.clone().map(|one| one.url.clone());
        let images = all.filter(|one| !one.repo.is_empty());
        let images = images.map(|one| format!("{}:{}", one.repo, one.tag));
        let kubeadm = plane.kubeadm.as_ref().unwrap();
        let of_kubeadm = ["apiserver", "controller-manager", "scheduler", "proxy"];
        let of_kubeadm = of_kubeadm
            .map(|name| format!("{}/kube-{name}:{}", kubeadm.repository, kubeadm.version));
        let files: BTreeSet<String> = files.filter(|url| !url.is_empty()).collect();
        let images: BTreeSet<String> = images.chain(of_kubeadm).collect();

        // It writes into the checkout.
        let home = tempfile::tempdir().unwrap();
        let copy = home.path().join("kubespray");
        let copied = Command::new("cp")
            .arg("-r")
            .args([&checkout, &copy])
            .status();
        assert!(copied.unwrap().success());
        let inventory_file = home.path().join("inventory.json");
        fs::write(&inventory_file, inventory().to_string()).unwrap();
        let path = env::join_paths(
            [program.parent().unwrap().to_owned()]
                .into_iter()
                .chain(env::split_paths(&env::var_os("PATH").unwrap())),
        );
        let offline = copy.join("contrib/offline");
        let made = Command::new("bash")
            .arg("generate_list.sh")
            .arg("-i")
            .arg(&inventory_file)
            .current_dir(&offline)
            .env("PATH", path.unwrap())
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stdout)
        );
        let listed = |name: &str| -> BTreeSet<String> {
            let text = fs::read_to_string(offline.join("temp").join(name)).unwrap();
            text.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(images, listed("images.list"));
        let theirs = listed("files.list");
        assert_eq!(theirs.difference(&files).next(), None);
        let forgotten: Vec<_> = files.difference(&theirs).collect();
        assert!(
            forgotten.iter().all(|url| url.contains("/argo-cd/")),
            "{forgotten:?}"
        );
        assert!(theirs.len() > 20 && images.len() > 40);
    }
}
