//! A cluster that plain `ansible-playbook` raised is adopted, without a change on its hosts, and a worker joins it. Only in a full run.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use e2e::{NAMESPACE, Stage, node};
use lab::command::output;
use serde_json::{Value, json};

use crate::{
    edges::ended,
    first_cluster::{assert_each_step_succeeded_once, stage},
    whole::{members, remember, remembered},
};

/// The hosts of the cluster, as its inventory has them: the second one heads it.
const ORDER: [usize; 3] = [2, 1, 3];
/// What a host is told by that must not be touched.
const MARK: &str = "/root/before-adoption";

#[test]
fn a_cluster_of_plain_ansible_is_adopted_and_grows() {
    let mut stage = stage(4, 0);
    let inventory = inventory(&stage);
    raised(&stage, &inventory);
    let list = etcd_members(&stage);
    on_each(&stage, &format!("touch {MARK}"));

    stage.up().unwrap();
    it_is_refused_where_it_contradicts_the_cluster(&stage, &inventory, &list);
    let objects = adopted(&stage, &inventory, &list);
    let mut key = stage.secret().unwrap();
    key["metadata"]["name"] = json!("first-ssh");
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let both = json!({"apiVersion": "v1", "kind": "List", "items": [namespace, key]});
    stage.apply(&both).unwrap();
    stage.apply_files(&objects).unwrap();

    let run = ended(&stage, "first-adopt-1");
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_each_step_succeeded_once(&run);
    stage.ready_nodes(3).unwrap();
    nothing_is_changed(&stage);
    let cluster = stage.object("cluster", "first").unwrap();
    let expected = ORDER.map(|number| format!("master-{number}"));
    for group in ["etcd", "kube_control_plane"] {
        let order = &cluster["status"]["inventory"]["order"][group];
        assert_eq!(*order, json!(expected), "{group}");
    }
    let shown = output(&mut stage.windlass(&["converge", "--dry-run"])).unwrap();
    assert!(shown.contains("etcd/install"), "{shown}");
    assert!(!shown.contains("changed since it was built"), "{shown}");
    remember(&stage, "data");

    let address = stage.lab.hosts()[3].address.to_string();
    let worker = node("worker-1", json!({"type": "worker"}), &address);
    stage.apply(&worker).unwrap();
    let run = ended(&stage, "first-scale-2");
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_each_step_succeeded_once(&run);
    stage.ready_nodes(4).unwrap();
    assert_eq!(
        members(&stage, 2),
        ["10.77.0.11", "10.77.0.12", "10.77.0.13"]
    );
    assert_eq!(remembered(&stage), "kept");
}

/// An inventory as people have it: a hosts file, and variables of the cluster beside it.
fn inventory(stage: &Stage) -> PathBuf {
    let mut spec = json!({"kubernetesVersion": "1.34.4"});
    stage.choose(&mut spec);
    let variables = spec.pointer("/nodes/all/deploy/extraVars");
    let mut variables = variables.cloned().unwrap_or_else(|| json!({}));
    variables["kube_version"] = spec["kubernetesVersion"].clone();
    variables["kubeconfig_localhost"] = json!(true);
    let hosts = ORDER.map(|number| {
        let address = stage.lab.hosts()[number - 1].address;
        format!("master-{number} ansible_host={address} ip={address}\n")
    });
    let text = format!(
        "[all:vars]\nansible_user=root\nansible_ssh_private_key_file={}\n\n[kube_control_plane]\n{}\n\
         [etcd:children]\nkube_control_plane\n\n[kube_node:children]\nkube_control_plane\n\n\
         [k8s_cluster:children]\nkube_control_plane\nkube_node\n",
        stage.lab.key_path().display(),
        hosts.concat()
    );
    let directory = stage.lab.dir().join("inventory");
    fs::create_dir_all(directory.join("group_vars")).unwrap();
    fs::write(directory.join("inventory.ini"), text).unwrap();
    // JSON is YAML.
    let file = directory.join("group_vars/k8s_cluster.yml");
    fs::write(file, variables.to_string()).unwrap();
    directory
}

/// Raises the cluster without Windlass, as kubespray's documentation has it.
fn raised(stage: &Stage, inventory: &Path) {
    let mut sandbox = stage.windlass(&["sandbox", "--output", "json"]);
    let made = output(sandbox.arg(stage.playbooks())).unwrap();
    let made: Value = serde_json::from_str(&made).unwrap();
    let program = Path::new(made["path"].as_str().unwrap()).join("bin/ansible-playbook");
    let log = stage.lab.dir().join("plain.log");
    let file = File::create(&log).unwrap();
    let mut command = Command::new(program);
    command
        .arg("--inventory")
        .arg(inventory.join("inventory.ini"))
        .arg("cluster.yml")
        .current_dir(stage.playbooks())
        .env("ANSIBLE_CONFIG", stage.playbooks().join("ansible.cfg"))
        .env("ANSIBLE_HOME", stage.lab.dir().join("plain-ansible"))
        // What other hosts of these names told before lies where the configuration says.
        .env(
            "ANSIBLE_CACHE_PLUGIN_CONNECTION",
            stage.lab.dir().join("plain-facts"),
        )
        .env("ANSIBLE_HOST_KEY_CHECKING", "False")
        .env("ANSIBLE_NOCOLOR", "1")
        .env("LC_ALL", "C.UTF-8")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let mut command = stage.lab.enter(&command);
    command
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file);
    let status = command.status().unwrap();
    let said = fs::read_to_string(&log).unwrap();
    let lines: Vec<_> = said.lines().collect();
    let tail = lines[lines.len().saturating_sub(30)..].join("\n");
    assert!(status.success(), "plain cluster.yml failed:\n{tail}");
}

/// A file with what etcd says of its members.
fn etcd_members(stage: &Stage) -> PathBuf {
    let head = ORDER[0];
    let list = format!(
        "cd /etc/ssl/etcd/ssl && ETCDCTL_API=3 /usr/local/bin/etcdctl --endpoints=https://127.0.0.1:2379 --cacert=ca.pem \
         --cert=admin-master-{head}.pem --key=admin-master-{head}-key.pem member list --write-out=json"
    );
    let host = &stage.lab.hosts()[head - 1].name;
    let told = stage.lab.ssh(host, &list).unwrap();
    assert!(told.status.success(), "{told:?}");
    let file = stage.lab.dir().join("members.json");
    fs::write(&file, told.stdout).unwrap();
    file
}

/// `windlass adopt` of an inventory, held against the cluster that runs.
fn adopt(stage: &Stage, inventory: &Path, list: &Path, out: &Path) -> Command {
    let mut command = stage.windlass(&["adopt", "--name", "first", "--check", "--checkout"]);
    command
        .arg(stage.playbooks())
        .arg("--etcd-members")
        .arg(list)
        .arg("--output")
        .arg(out)
        .arg(inventory)
        .arg("--live");
    command
}

/// A member under another name is an error, and nothing is written.
fn it_is_refused_where_it_contradicts_the_cluster(stage: &Stage, inventory: &Path, list: &Path) {
    let out = stage.lab.dir().join("refused");
    let variables = inventory.join("host_vars");
    fs::create_dir_all(&variables).unwrap();
    let file = variables.join("master-3.yml");
    fs::write(&file, "etcd_member_name: other\n").unwrap();
    let refused = adopt(stage, inventory, list, &out).output().unwrap();
    fs::remove_dir_all(&variables).unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{said}");
    let words = "host master-3 etcd_member_name is \"other\": its member of etcd is called etcd3";
    assert!(said.contains(words), "{said}");
    assert!(!out.exists());
}

/// The objects that the inventory becomes: they give every host what it had.
fn adopted(stage: &Stage, inventory: &Path, list: &Path) -> PathBuf {
    let out = stage.lab.dir().join("objects");
    let adopted = adopt(stage, inventory, list, &out).output().unwrap();
    let said = String::from_utf8_lossy(&adopted.stderr).into_owned();
    assert!(adopted.status.success(), "{said}");
    for words in [
        "Every host gets what the inventory gave it.",
        "The cluster has the nodes, versions and members that the inventory names.",
    ] {
        assert!(said.contains(words), "{said}");
    }
    out
}

/// No file is newer than the mark of which Kubernetes, etcd or the container engine are made.
fn nothing_is_changed(stage: &Stage) {
    let find = format!(
        "test -e {MARK} && {{ find /etc/kubernetes /etc/containerd /etc/etcd.env /etc/ssl/etcd /etc/hosts /usr/local/bin -newer {MARK} \
         2>/dev/null; true; }}"
    );
    for said in on_each(stage, &find) {
        assert_eq!(said, "");
    }
}

/// Runs a command on each host of the cluster, and gives what each prints.
fn on_each(stage: &Stage, command: &str) -> [String; 3] {
    ORDER.map(|number| {
        let host = &stage.lab.hosts()[number - 1].name;
        let answer = stage.lab.ssh(host, command).unwrap();
        assert!(answer.status.success(), "{host}: {answer:?}");
        String::from_utf8(answer.stdout).unwrap()
    })
}
