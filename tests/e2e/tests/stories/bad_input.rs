//! What a person writes wrong is answered with the field, the value, the rule and the remedy. No host is needed: nothing
//! here gets as far as asking one.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use e2e::{root, wait_until, windlass};
use serde_json::{Value, json};

/// A message takes milliseconds; a loaded machine may take much longer.
const LIMIT: Duration = Duration::from_secs(90);

/// Objects that are accepted, and stall their Cluster.
struct Stall {
    /// What is wrong; the namespace of its objects.
    name: &'static str,
    /// Changes to the spec of the Cluster `first`, by merge.
    cluster: Value,
    /// Other objects of the namespace.
    others: Vec<Value>,
    /// The Cluster that stalls.
    stalled: &'static str,
    /// Field, value, rule and remedy.
    expected: [&'static str; 4],
}

#[test]
fn a_cluster_that_cannot_be_built_says_what_to_change() {
    let up = Up::start();
    let cases = stalls(up.directory.path());
    for case in &cases {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.name}});
        let mut first = cluster("first");
        merge(&mut first["spec"], &case.cluster);
        // Clusters come last: one that is complete without a node that follows would be begun without it.
        let mut items = vec![namespace, first];
        items.extend(case.others.clone());
        items[1..].sort_by_key(|item| item["kind"] == "Cluster");
        let applied = up.apply(
            case.name,
            &json!({"apiVersion": "v1", "kind": "List", "items": items}),
        );
        assert!(
            applied.status.success(),
            "{}: {}",
            case.name,
            text(&applied)
        );
    }
    let mut wrong = Vec::new();
    for case in &cases {
        // What is said first may be about an object that was not there yet.
        let said = wait_until(case.name, LIMIT, || {
            let message = up.stalled(case.name, case.stalled).unwrap_or_default();
            let complete = case.expected.iter().all(|words| message.contains(words));
            Ok(complete.then_some(()))
        });
        if said.is_err() {
            let object = up.get(case.name, case.stalled);
            let conditions = &object["status"]["conditions"];
            wrong.push(format!(
                "{}: {:?} are not all in: {conditions:#}",
                case.name, case.expected
            ));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), up.log());
}

fn stalls(directory: &Path) -> Vec<Stall> {
    let mut cases = hosts_and_versions();
    cases.extend(secrets(directory));
    cases.extend(sources(directory));
    cases
}

fn hosts_and_versions() -> Vec<Stall> {
    let one = || vec![node("master-1", "master", "127.0.1.1")];
    let stall = |name, cluster, others, expected| Stall {
        name,
        cluster,
        others,
        stalled: "first",
        expected,
    };
    let variables = |variables| json!({"nodes": {"all": {"deploy": {"extraVars": variables}}}});
    let mut two = node("master-2", "master", "127.0.1.2");
    let mut untyped = node("master-1", "master", "127.0.1.1");
    untyped["spec"]["inventory"]["weight"] = json!(null);
    let even = vec![node("master-1", "master", "127.0.1.1"), two.clone()];
    two["spec"]["inventory"]["ansible_host"] = json!("127.0.1.1");
    let waiting =
        json!({"operations": {"creation": {"startConditions": {"nodes": {"minimum": 9}}}}});
    let mut second = Stall {
        stalled: "second",
        ..stall(
            "two-clusters",
            waiting,
            one(),
            [
                "metadata.namespace",
                "two-clusters",
                "first was there first",
                "namespace of their own",
            ],
        )
    };
    second.others.push(cluster("second"));
    vec![
        second,
        stall(
            "even-etcd",
            json!({}),
            even,
            ["ClusterNodes", "2 etcd hosts", "odd number", "go down to 1"],
        ),
        stall(
            "same-address",
            json!({}),
            vec![node("master-1", "master", "127.0.1.1"), two],
            [
                "ClusterNode/master-2 spec.inventory.ansible_host",
                "127.0.1.1",
                "ClusterNode/master-1 has the same",
                "its own address",
            ],
        ),
        stall(
            "host-variable-type",
            json!({}),
            vec![untyped],
            [
                "ClusterNode/master-1 spec.inventory.weight",
                "null",
                "null is not a type of a host variable",
                "quote it",
            ],
        ),
        stall(
            "unknown-release",
            json!({"kubespray": {"version": "2.99.0"}}),
            one(),
            [
                "spec.kubespray.version",
                "2.99.0",
                "knows the releases from",
                "nearest: 2.",
            ],
        ),
        stall(
            "kubernetes-version",
            json!({"kubernetesVersion": "1.20.0"}),
            one(),
            ["spec.kubernetesVersion", "1.20.0", "1.3", "write a version"],
        ),
        stall(
            "overlapping-networks",
            variables(
                json!({"kube_pods_subnet": "10.96.0.0/16", "kube_service_addresses": "10.96.0.0/12"}),
            ),
            one(),
            [
                "extraVars.kube_pods_subnet",
                "10.96.0.0/16",
                "overlaps kube_service_addresses",
                "no address in common",
            ],
        ),
        stall(
            "host-in-pod-network",
            variables(json!({"kube_pods_subnet": "127.0.0.0/16"})),
            one(),
            [
                "spec.inventory.ip",
                "127.0.1.1",
                "lies in kube_pods_subnet",
                "choose another",
            ],
        ),
    ]
}

fn secrets(directory: &Path) -> Vec<Stall> {
    let file = directory.join("locked");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "secret", "-f"])
        .arg(&file)
        .status();
    assert!(made.unwrap().success());
    let locked = fs::read(&file).unwrap();
    let stall = |name, data: Option<Value>, expected| {
        let mut others = vec![node("master-1", "master", "127.0.1.1")];
        others.extend(data.map(|data| {
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ssh"}, "data": data})
        }));
        Stall {
            name,
            cluster: json!({"ssh": {"privateKeySecretRef": {"name": "ssh"}}}),
            others,
            stalled: "first",
            expected,
        }
    };
    let key = "spec.ssh.privateKeySecretRef.key";
    vec![
        stall(
            "no-secret",
            None,
            [
                "spec.ssh.privateKeySecretRef.name",
                "ssh",
                "no such Secret",
                "kubectl -n no-secret create secret",
            ],
        ),
        stall(
            "no-key",
            Some(json!({"id_rsa": STANDARD.encode("x")})),
            [
                key,
                "ssh-privatekey",
                "it has: id_rsa",
                "name a key that it has",
            ],
        ),
        stall(
            "not-a-key",
            Some(json!({"ssh-privatekey": STANDARD.encode("ssh-ed25519 AAAA")})),
            [
                key,
                "ssh-privatekey",
                "not a private key",
                "ssh-keygen wrote",
            ],
        ),
        stall(
            "passphrase",
            Some(json!({"ssh-privatekey": STANDARD.encode(locked)})),
            [key, "ssh-privatekey", "has a passphrase", "ssh-keygen -p"],
        ),
    ]
}

fn sources(directory: &Path) -> Vec<Stall> {
    let changed = |name: &str, file: &str, text: Option<&str>| {
        let tree = directory.join(name);
        copy(&root().join("bundle"), &tree);
        match text {
            Some(text) => fs::write(tree.join(file), text).unwrap(),
            None => fs::remove_file(tree.join(file)).unwrap(),
        }
        tree
    };
    let other = directory.join("other");
    fs::create_dir(&other).unwrap();
    let repository = directory.join("repository");
    copy(&root().join("bundle"), &repository);
    for arguments in [
        &["init", "--quiet"][..],
        &["add", "."],
        &[
            "-c",
            "user.name=test",
            "-c",
            "user.email=test@localhost",
            "commit",
            "--quiet",
            "-m",
            "one",
        ],
    ] {
        let done = Command::new("git")
            .arg("-C")
            .arg(&repository)
            .args(arguments)
            .status();
        assert!(done.unwrap().success());
    }
    let field = "Cluster spec.kubespray.source";
    let broken = changed("broken", "cluster.yml", Some("- hosts: [all\n  roles: x\n"));
    let lacking = changed("lacking", "reset.yml", None);
    let empty = changed("empty", "cluster.yml", Some("[]\n"));
    [
        (
            "source-other",
            json!({"path": other}),
            [
                field,
                "other",
                "it has no cluster.yml",
                "unmodified kubespray checkout",
            ],
        ),
        (
            "source-nowhere",
            json!({"path": "/no/such/place"}),
            [
                field,
                "/no/such/place",
                "is not a directory",
                "name the directory",
            ],
        ),
        (
            "source-syntax",
            json!({"path": broken}),
            [
                field,
                "broken",
                "cluster.yml:",
                "unmodified kubespray checkout",
            ],
        ),
        (
            "source-playbook",
            json!({"path": lacking}),
            [
                field,
                "lacking",
                "find the playbook reset",
                "unmodified kubespray checkout",
            ],
        ),
        (
            "source-play",
            json!({"path": empty}),
            [
                field,
                "empty",
                "it has no play",
                "unmodified kubespray checkout",
            ],
        ),
        (
            "source-reference",
            json!({"git": {"url": format!("file://{}", repository.display()), "ref": "v9.9.9"}}),
            [
                "Cluster spec.kubespray.source.git.ref",
                "v9.9.9",
                "has no tag, branch or commit",
                "name a tag",
            ],
        ),
        (
            "source-image",
            json!({"image": "Not An Image"}),
            [
                "Cluster spec.kubespray.source.image",
                "Not An Image",
                "is not the name of an image",
                "name an image",
            ],
        ),
    ]
    .into_iter()
    .map(|(name, source, expected)| Stall {
        name,
        cluster: json!({"kubespray": {"source": replacement(&source)}}),
        others: vec![node("master-1", "master", "127.0.1.1")],
        stalled: "first",
        expected,
    })
    .collect()
}

#[test]
fn an_object_that_breaks_a_rule_is_refused() {
    let up = Up::start();
    let mut nameless = node("Worker_1", "worker", "127.0.1.1");
    let refused = [
        ("name", vec![nameless.clone()], ["Worker_1", "RFC 1123"]),
        (
            "type",
            vec![node("one", "boss", "127.0.1.1")],
            ["spec.type", "worker"],
        ),
        (
            "null",
            vec![{
                nameless = node("one", "worker", "127.0.1.1");
                nameless["spec"]["inventory"]["ansible_host"] = Value::Null;
                nameless.clone()
            }],
            ["ansible_host", "spec.inventory"],
        ),
        (
            "two sources",
            vec![{
                let mut first = cluster("first");
                first["spec"]["kubespray"]["source"]["image"] = json!("a/b:c");
                first
            }],
            [
                "spec.kubespray.source",
                "exactly one of git, path and image",
            ],
        ),
        (
            "version",
            vec![{
                let mut first = cluster("first");
                first["spec"]["kubernetesVersion"] = json!("latest");
                first
            }],
            ["spec.kubernetesVersion", "latest"],
        ),
        (
            "twice in the files",
            vec![
                node("one", "worker", "127.0.1.1"),
                node("one", "worker", "127.0.1.2"),
            ],
            ["ClusterNode one", "twice"],
        ),
        (
            "size",
            vec![{
                let mut first = cluster("first");
                let large = json!({"deploy": {"extraVars": {"text": "x".repeat(2 << 20)}}});
                first["spec"]["nodes"] = json!({"all": large});
                first
            }],
            ["1572864 bytes", "split it"],
        ),
        (
            "size of data",
            vec![json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"},
                "data": {"text": "x".repeat(2 << 20)},
            })],
            ["large", "may not be more than 1048576 bytes"],
        ),
        (
            "request size",
            vec![json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"},
                "data": {"text": "x".repeat(4 << 20)},
            })],
            ["large", "limit is 3145728 bytes"],
        ),
    ];
    let mut wrong = Vec::new();
    for (name, items, expected) in refused {
        let answer = up.apply(
            "default",
            &json!({"apiVersion": "v1", "kind": "List", "items": items}),
        );
        let said = text(&answer);
        for words in expected {
            if answer.status.success() || !said.contains(words) {
                wrong.push(format!("{name}: {words:?} is not in: {said}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_data_directory_has_one_operator() {
    let up = Up::start();
    let second = up.windlass(&["up"]).output().unwrap();
    let said = text(&second);
    assert!(!second.status.success(), "{said}");
    for words in [up.data().display().to_string().as_str(), "another"] {
        assert!(said.contains(words), "{words:?} is not in: {said}");
    }
}

#[test]
fn a_truncated_database_is_named() {
    let mut up = Up::start();
    up.end();
    let file = up.data().join("state.db");
    // A log that was not merged yet would bring back what is cut off here. Where Ansible is, Python is.
    let merge = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('pragma wal_checkpoint(truncate)')";
    let merged = Command::new("python3")
        .args(["-c", merge])
        .arg(&file)
        .status();
    assert!(merged.unwrap().success());
    let length = fs::metadata(&file).unwrap().len();
    let database = File::options().write(true).open(&file).unwrap();
    database.set_len(length / 2).unwrap();
    let log = up.directory.path().join("again");
    let output = File::create(&log).unwrap();
    let mut command = up.windlass(&["up"]);
    command.stdout(output.try_clone().unwrap()).stderr(output);
    up.child = Some(command.spawn().unwrap());
    let ended = wait_until("the second start to end", LIMIT, || {
        Ok(up.child.as_mut().and_then(|child| child.try_wait().ok()?))
    });
    let said = fs::read_to_string(&log).unwrap();
    assert!(
        !ended
            .unwrap_or_else(|error| panic!("{error:#}: {said}"))
            .success(),
        "{said}"
    );
    for words in [file.display().to_string().as_str(), "backup"] {
        assert!(said.contains(words), "{words:?} is not in: {said}");
    }
}

/// `windlass up` in a data directory of its own.
struct Up {
    directory: tempfile::TempDir,
    child: Option<Child>,
}

impl Up {
    fn start() -> Self {
        let mut up = Self {
            directory: tempfile::tempdir().unwrap(),
            child: None,
        };
        let log = File::create(up.directory.path().join("log")).unwrap();
        let mut command = up.windlass(&["up"]);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        up.child = Some(command.spawn().unwrap());
        wait_until("the API to answer", LIMIT, || {
            let answer = up.windlass(&["get", "clusters"]).output()?;
            Ok(answer.status.success().then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", up.log()));
        up
    }

    /// Ends it as `kill` does, and waits for it.
    fn end(&mut self) {
        let mut child = self.child.take().unwrap();
        let pid = child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        child.wait().unwrap();
    }

    fn apply(&self, namespace: &str, objects: &Value) -> Output {
        let file = self.directory.path().join("objects.json");
        fs::write(&file, objects.to_string()).unwrap();
        let mut command = self.windlass(&["--namespace", namespace, "apply", "--filename"]);
        command.arg(&file).output().unwrap()
    }

    fn get(&self, namespace: &str, cluster: &str) -> Value {
        let arguments = [
            "--namespace",
            namespace,
            "get",
            "clusters",
            cluster,
            "--output",
            "json",
        ];
        let answer = self.windlass(&arguments).output().unwrap();
        serde_json::from_slice(&answer.stdout).unwrap_or_default()
    }

    /// The message of a Cluster's condition `Stalled`.
    fn stalled(&self, namespace: &str, cluster: &str) -> Option<String> {
        let object = self.get(namespace, cluster);
        let conditions = object["status"]["conditions"].as_array()?;
        let stalled = conditions
            .iter()
            .find(|condition| condition["type"] == "Stalled" && condition["status"] == "True")?;
        Some(stalled["message"].as_str()?.to_owned())
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn windlass(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(windlass().unwrap());
        command
            .arg("--data-dir")
            .arg(self.data())
            .args(arguments)
            .current_dir(root())
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn cluster(name: &str) -> Value {
    json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {
            "kubespray": {"version": "2.30.0", "source": {"path": "bundle"}},
            "kubernetesVersion": "1.34.4",
        },
    })
}

fn node(name: &str, kind: &str, address: &str) -> Value {
    json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode", "metadata": {"name": name},
        "spec": {"type": kind, "inventory": {"ansible_host": address}},
    })
}

/// A merge that leaves no other source.
fn replacement(source: &Value) -> Value {
    let mut all = json!({"path": null});
    merge(&mut all, source);
    all
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name.as_str()], value);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp")
        .arg("--archive")
        .arg(from)
        .arg(to)
        .status();
    assert!(copied.unwrap().success());
}

fn text(output: &Output) -> String {
    let (said, complained) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(said),
        String::from_utf8_lossy(complained)
    )
}
