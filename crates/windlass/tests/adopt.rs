//! `windlass adopt`: real inventories, read by a real Ansible.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// A data directory whose Python environments are built once per machine.
fn data() -> PathBuf {
    std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("windlass")
}

fn windlass(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.arg("--data-dir").arg(data()).args(arguments);
    command.stdin(Stdio::null());
    command
}

fn bundle() -> PathBuf {
    let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundle");
    fs::canonicalize(bundle).unwrap()
}

/// Encrypts a text as a person does.
fn encrypted(text: &str, password: &Path) -> String {
    let made = windlass(&["sandbox", "--output", "json"])
        .arg(bundle())
        .output()
        .unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let program = Path::new(made["path"].as_str().unwrap()).join("bin/ansible-vault");
    let mut child = Command::new(program)
        .args(["encrypt", "--output", "-", "--vault-password-file"])
        .arg(password)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// An inventory as kubespray's documentation has it, with all that must not run or be shown.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.write("password", "opens\n");
        place.write("wrong", "does not\n");
        let vault = encrypted(
            "vault_token: hidden-one\nvault_number: 7\n",
            &place.at("password"),
        );
        let inline = encrypted("hidden-two", &place.at("password")).replace('\n', "\n          ");
        place.write(
            "mycluster/inventory.ini",
            "[all:vars]\nansible_user=ubuntu\n\n\
             [kube_control_plane]\n\
             node-2 ansible_host=192.0.2.12 ip=10.3.0.12 etcd_member_name=etcd1\n\
             node-1 ansible_host=192.0.2.11 ip=10.3.0.11 etcd_member_name=etcd2\n\
             node-10 ansible_host=192.0.2.20 ip=10.3.0.20 etcd_member_name=etcd3\n\n\
             [etcd:children]\nkube_control_plane\n\n\
             [kube_node]\nnode-3 ansible_host=192.0.2.13 ip=10.3.0.13 ansible_port=2222\n\n\
             [gpu]\nnode-3\n\n[k8s_cluster:children]\nkube_control_plane\nkube_node\n",
        );
        place.write(
            "mycluster/group_vars/all/all.yml",
            "files_repo: http://{{ registry }}\nregistry: 192.0.2.1\n",
        );
        place.write("mycluster/group_vars/all/vault.yml", &vault);
        place.write(
            "mycluster/group_vars/k8s_cluster.yml",
            &format!(
                "kube_version: v1.34.4\nkube_network_plugin: bridge\ncluster_name: \"{{{{ 'a' }}}}.local\"\n\
                 containerd_registry_auth:\n  - registry: \"{{{{ registry }}}}\"\n    password: !vault |\n          {inline}\n"
            ),
        );
        place.write(
            "mycluster/group_vars/gpu/gpu.yml",
            "node_labels:\n  gpu: \"yes\"\n",
        );
        place.write("mycluster/host_vars/node-1.yml", "kubelet_max_pods: 50\n");
        // What would run, were it not left alone.
        let run = place.at("ran").display().to_string();
        place.program(
            "mycluster/dynamic.py",
            &format!("#!/bin/sh\ntouch {run}\necho '{{}}'\n"),
        );
        place.write(
            "mycluster/cloud.yaml",
            "plugin: ansible.builtin.generator\n",
        );
        place.write(
            "mycluster/ansible.cfg",
            &format!(
                "[defaults]\nvault_password_file = {run}\nvars_plugins = {}\n",
                place.at("plugins").display()
            ),
        );
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn program(&self, name: &str, text: &str) {
        self.write(name, text);
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn adopt(&self, options: &[&str]) -> Output {
        windlass(&["-n", "prod", "adopt", "--checkout"])
            .arg(bundle())
            .arg(self.at("mycluster"))
            .args(options)
            .env("ANSIBLE_CONFIG", self.at("mycluster/ansible.cfg"))
            .env("ANSIBLE_INVENTORY_ENABLED", "script")
            .current_dir(self.at("mycluster"))
            .output()
            .unwrap()
    }

    fn password(&self) -> String {
        self.at("password").display().to_string()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_inventory_becomes_objects_that_can_be_planned_and_nothing_in_it_runs() {
    let place = Place::new();
    let password = place.password();
    let objects = place.at("objects");
    let out = objects.display().to_string();
    let output = place.adopt(&[
        "--vault-password-file",
        &password,
        "--check",
        "--output",
        &out,
    ]);
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("Every host gets what the inventory gave it."),
        "{said}"
    );
    for word in [
        "dynamic.py: left out",
        "cloud.yaml: left out",
        "group gpu: ",
        "Secret mycluster-vault: ",
        "kube_version on all hosts: \"v1.34.4\" -> \"1.34.4\"",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(
        !place.at("ran").exists(),
        "a program of the inventory was run"
    );
    // What was encrypted is in one file, for its owner.
    let read = |name: &str| fs::read_to_string(objects.join(name)).unwrap();
    let open = [read("cluster.yaml"), read("nodes.yaml"), said].concat();
    assert!(!open.contains("hidden-"), "{open}");
    let secrets = read("secrets.yaml");
    assert!(secrets.contains("hidden-one") && secrets.contains("hidden-two"));
    let mode = objects
        .join("secrets.yaml")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // The order of the inventory, which is not that of the names.
    let nodes = read("nodes.yaml");
    let at = |name: &str| nodes.find(&format!("\n  name: {name}\n")).unwrap();
    assert!(
        at("node-2") < at("node-1") && at("node-1") < at("node-10") && at("node-10") < at("node-3")
    );
    let plan = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .arg("--data-dir")
        .arg(place.at("data"))
        .args(["plan", "--output", "json", "--filename", &out])
        .output()
        .unwrap();
    let plans: Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert!(plan.status.success(), "{plans:#}");
    let order = &plans[0]["plan"]["inputs"]["inventory"]["order"];
    let expected = serde_json::json!(["node-2", "node-1", "node-10"]);
    assert_eq!(
        (&order["etcd"], &order["kube_control_plane"]),
        (&expected, &expected)
    );
    // A directory in use is left alone.
    let again = place.adopt(&["--vault-password-file", &password, "--output", &out]);
    assert!(!again.status.success());
}

/// What is shown to people as an example is what they would get.
#[test]
fn the_example_is_what_adopt_makes_of_it() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/adopted");
    let place = tempfile::tempdir().unwrap();
    let made = place.path().join("objects");
    let output = windlass(&["-n", "adopted", "adopt", "--name", "mycluster"])
        .args(["--kubespray-version", "2.30.0", "--check", "--output"])
        .arg(&made)
        .arg(example.join("inventory"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    for file in ["cluster.yaml", "nodes.yaml"] {
        let read = |directory: &Path| fs::read_to_string(directory.join(file)).unwrap();
        // The command that writes it anew stands in the inventory's first lines.
        assert_eq!(read(&example.join("objects")), read(&made), "{file}");
    }
    assert_eq!(fs::read_dir(&made).unwrap().count(), 2);
}

/// The layout of kubespray's sample since 2.27: the playbooks alone make `k8s_cluster`, and most variables stand there.
#[test]
fn the_groups_that_playbooks_make_give_their_variables() {
    let place = tempfile::tempdir().unwrap();
    let (inventory, objects) = (place.path().join("sample"), place.path().join("objects"));
    for (file, text) in [
        (
            "inventory.ini",
            "[kube_control_plane]\nm1 ansible_host=192.0.2.11 ip=10.3.0.11 etcd_member_name=etcd1\n\n\
             [etcd:children]\nkube_control_plane\n\n\
             [kube_node]\nw1 ansible_host=192.0.2.12 ip=10.3.0.12\n\n[gpu]\nw1\n",
        ),
        (
            "group_vars/all/all.yml",
            "ansible_user: ubuntu\nloadbalancer_apiserver_port: 6443\n",
        ),
        (
            "group_vars/k8s_cluster/k8s-cluster.yml",
            "kube_version: 1.34.3\nkube_network_plugin: cilium\nkube_pods_subnet: 10.200.0.0/16\nkubelet_max_pods: 90\n",
        ),
        // By its name k8s_cluster comes behind it, where it is made at the side of it.
        ("group_vars/gpu.yml", "kubelet_max_pods: 50\n"),
        ("group_vars/k8s-cluster.yml", "kubelet_max_pods: 10\n"),
    ] {
        let path = inventory.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let output = windlass(&["-n", "prod", "adopt", "--kubespray-version", "2.30.0"])
        .args(["--check", "--output"])
        .args([&objects, &inventory])
        .output()
        .unwrap();
    let told = said(&output);
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains("group_vars/k8s-cluster: Ansible reads it for no host")
            && !told.contains("group_vars/k8s_cluster"),
        "{told}"
    );
    // No host but those of the inventory.
    assert!(!told.contains("left out, it stands in no group"), "{told}");
    let cluster = fs::read_to_string(objects.join("cluster.yaml")).unwrap();
    let cluster: Value = serde_saphyr::from_str(&cluster).unwrap();
    assert_eq!(cluster["spec"]["kubernetesVersion"], "1.34.3");
    assert_eq!(
        cluster["spec"]["nodes"]["all"]["deploy"]["extraVars"],
        serde_json::json!({
            "kube_network_plugin": "cilium",
            "kube_pods_subnet": "10.200.0.0/16",
            "kubelet_max_pods": 90,
            "loadbalancer_apiserver_port": 6443,
        })
    );
}

#[test]
fn a_difference_fails_a_check_and_is_shown_by_host_name_and_value() {
    let place = Place::new();
    place.write("mycluster/group_vars/gpu/more.yml", "pools: \"{{ a }}\"\n");
    let password = place.password();
    let output = place.adopt(&["--vault-password-file", &password, "--check"]);
    assert!(!output.status.success());
    let said = said(&output);
    assert!(
        said.contains("pools on node-3: \"{{ a }}\" -> unset"),
        "{said}"
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.contains("kind: ClusterNode") && !printed.contains("hidden-"),
        "{printed}"
    );
    let output = place.adopt(&["--vault-password-file", &password]);
    assert!(output.status.success());
}

#[test]
fn without_the_right_password_nothing_is_printed() {
    let place = Place::new();
    let wrong = place.at("wrong").display().to_string();
    for (name, options, word) in [
        (
            "wrong",
            &["--vault-password-file", &wrong][..],
            "no password that was given fits",
        ),
        ("none, and nobody to ask", &[], "--vault-password-file"),
        (
            "missing",
            &["--vault-password-file", "/nowhere"],
            "/nowhere",
        ),
    ] {
        let output = place.adopt(options);
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{name}"
        );
        assert!(said(&output).contains(word), "{name}: {}", said(&output));
    }
    // A wrong one for a value alone.
    fs::remove_file(place.at("mycluster/group_vars/all/vault.yml")).unwrap();
    let output = place.adopt(&["--vault-password-file", &wrong]);
    assert!(!output.status.success());
    assert!(
        said(&output).contains("no password that was given fits"),
        "{}",
        said(&output)
    );
}

#[test]
fn what_ansible_cannot_read_is_an_error() {
    let place = Place::new();
    place.write("mycluster/inventory.ini", "[kube_node\nnode-1\n");
    let password = place.password();
    let output = place.adopt(&["--vault-password-file", &password]);
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(
        said(&output).contains("have Ansible read the inventory"),
        "{}",
        said(&output)
    );
}

/// A link of the inventory is followed inside of it alone, and a cluster that does not answer stops everything.
#[test]
fn a_link_out_of_the_inventory_and_a_cluster_that_is_away_are_refused() {
    let place = Place::new();
    let password = place.password();
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n\
                      users: [{name: a, user: {token: hidden-three}}]\n\
                      clusters: [{name: a, cluster: {server: \"http://127.0.0.1:9\"}}]\n";
    place.write("admin.conf", kubeconfig);
    let live = place.at("admin.conf").display().to_string();
    let output = place.adopt(&["--vault-password-file", &password, "--live", &live]);
    assert!(!output.status.success() && output.stdout.is_empty());
    let told = said(&output);
    assert!(
        told.contains("failed to look at the cluster that runs"),
        "{told}"
    );
    assert!(!told.contains("hidden-three"), "{told}");
    let link = place.at("mycluster/group_vars/all/password.yml");
    std::os::unix::fs::symlink(place.at("password"), link).unwrap();
    let output = place.adopt(&["--vault-password-file", &password]);
    assert!(!output.status.success() && output.stdout.is_empty());
    let told = said(&output);
    assert!(told.contains("leads out of the inventory"), "{told}");
}

/// The kubeconfig of an inventory is used without what it would run, and only if it is there.
#[test]
fn the_kubeconfig_beside_an_inventory_runs_nothing() {
    let place = Place::new();
    let password = place.password();
    let adopt = || place.adopt(&["--vault-password-file", &password, "--live"]);
    let missing = adopt();
    assert!(!missing.status.success() && missing.stdout.is_empty());
    let told = said(&missing);
    for words in ["artifacts/admin.conf is not there", "--live KUBECONFIG"] {
        assert!(told.contains(words), "{told}");
    }
    let run = place.at("ran").display().to_string();
    place.write(
        "mycluster/artifacts/admin.conf",
        &format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             users: [{{name: a, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: touch, args: [{run}]}}}}}}]\n\
             clusters: [{{name: a, cluster: {{server: \"https://192.0.2.1:6443\"}}}}]\n"
        ),
    );
    let refused = adopt();
    assert!(!refused.status.success() && refused.stdout.is_empty());
    let told = said(&refused);
    assert!(
        told.contains("artifacts/admin.conf") && told.contains("exec"),
        "{told}"
    );
    assert!(!place.at("ran").exists(), "a program was run");
}

#[test]
fn nothing_is_printed_where_the_members_of_etcd_contradict_the_inventory() {
    let place = Place::new();
    let password = place.password();
    let adopt = |third: &str| {
        let members = [("etcd1", 12), ("etcd2", 11), (third, 20)];
        let members = members.map(|(name, at)| {
            let url = |port| format!("https://10.3.0.{at}:{port}");
            serde_json::json!({"ID": at, "name": name, "peerURLs": [url(2380)], "clientURLs": [url(2379)]})
        });
        let list = serde_json::json!({"header": {}, "members": members});
        place.write("members.json", &list.to_string());
        let file = place.at("members.json").display().to_string();
        place.adopt(&["--vault-password-file", &password, "--etcd-members", &file])
    };
    let same = adopt("etcd3");
    assert!(same.status.success(), "{}", said(&same));
    let other = adopt("node-10");
    assert!(!other.status.success() && other.stdout.is_empty());
    let told = said(&other);
    for words in [
        "the inventory contradicts the cluster",
        "host node-10 etcd_member_name is \"etcd3\": its member of etcd is called node-10; write etcd_member_name: node-10",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn variables_of_sops_are_opened_as_its_plugin_does() {
    let programs = lab::sops_programs(&lab::progress::Silent).unwrap();
    let place = Place::new();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(programs.join(program))
            .args(arguments)
            .current_dir(place.0.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    run("age-keygen", &["-o", "key"]);
    let public = run("age-keygen", &["-y", "key"]);
    for (file, text) in [
        (
            "group_vars/all/secret.sops.yaml",
            "all_word: hidden-four\nregistry: 192.0.2.9\n",
        ),
        (
            "group_vars/k8s_cluster.sops.yml",
            "cluster_words:\n- inner_word: hidden-five\n  port: 5\non_word: true\n",
        ),
        (
            "host_vars/node-1.sops.json",
            "{\"node_word\": \"hidden-six\"}",
        ),
    ] {
        place.write(&format!("mycluster/{file}"), text);
        run(
            "sops",
            &[
                "encrypt",
                "--in-place",
                "--age",
                &public,
                "--encrypted-regex",
                "word$",
                &format!("mycluster/{file}"),
            ],
        );
    }
    let (key, password, out) = (
        place.at("key").display().to_string(),
        place.password(),
        place.at("objects").display().to_string(),
    );
    let options = [
        "--vault-password-file",
        &password,
        "--check",
        "--output",
        &out,
    ];
    let output = place.adopt(&[&options[..], &["--age-key-file", &key]].concat());
    let told = said(&output);
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains("Every host gets what the inventory gave it."),
        "{told}"
    );
    assert!(!told.contains("Ansible reads it for no host"), "{told}");
    let read = |name: &str| fs::read_to_string(place.at("objects").join(name)).unwrap();
    let secrets = read("secrets.yaml");
    for word in ["one", "two", "four", "five", "six"] {
        assert!(secrets.contains(&format!("hidden-{word}")), "{word}");
    }
    assert!(
        secrets.contains("\"on_word\": true"),
        "what is true or false too"
    );
    let open = [read("cluster.yaml"), read("nodes.yaml"), told].concat();
    for word in ["hidden-", "ENC[", "on_word"] {
        assert!(!open.contains(word), "{word}: {open}");
    }
    // What was encrypted wins over the plain file beside it.
    assert!(
        open.contains("192.0.2.9") && !open.contains("192.0.2.1\n"),
        "{open}"
    );

    fs::remove_dir_all(place.at("objects")).unwrap();
    place.write("mycluster/host_vars/node-1.sops.json", "{\"sops\": {}}");
    for (options, word) in [
        (&[][..], public.as_str()),
        (&["--age-key-file", "/nowhere"], "/nowhere"),
        (&["--age-key-file", &key], "node-1.sops.json"),
    ] {
        let output = place.adopt(
            &["--vault-password-file", &password, "--output", &out]
                .iter()
                .chain(options)
                .copied()
                .collect::<Vec<_>>(),
        );
        let told = said(&output);
        assert!(
            !output.status.success() && told.contains(word),
            "{word}: {told}"
        );
        assert!(
            !place.at("objects").exists() && !told.contains("hidden-"),
            "{told}"
        );
    }
}
