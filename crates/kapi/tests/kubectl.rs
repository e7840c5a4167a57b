//! The real kubectl against the API over TLS.
//!
//! `WINDLASS_KUBECTL` names the program; else the one on the PATH is taken. Without one the test says so and passes:
//! kubectl is not part of this repository.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use kapi::{Options, Server};

struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

impl Kubectl {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(arguments)
            .env("HOME", &self.home)
            .env("KUBECTL_EXTERNAL_DIFF", "diff -u")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(output.status.success(), "kubectl {arguments:?}:\n{text}");
        text
    }

    /// Applies a manifest that is in a file of its own.
    fn file(&self, name: &str, manifest: &str) -> String {
        let path = self.home.join(name);
        std::fs::write(&path, manifest).unwrap();
        path.display().to_string()
    }
}

fn program() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("WINDLASS_KUBECTL") {
        return Some(path.into());
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join("kubectl"))
        .find(|path| path.is_file())
}

const CLUSTER: &str = "
apiVersion: kubespray.k8s.io/v1
kind: Cluster
metadata: {name: demo, labels: {tier: test}}
spec: {kubernetesVersion: 1.35.4}
";

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_talks_to_it() {
    let Some(program) = program() else {
        eprintln!("NOT TESTED: there is no kubectl; set WINDLASS_KUBECTL or put one on the PATH");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        data_dir: directory.path().join("data"),
        crds: api::custom_resource_definitions(),
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
    };
    let server = Server::open(options).await.unwrap();
    let kubectl = Kubectl {
        program,
        kubeconfig: server.kubeconfig().unwrap().to_path_buf(),
        home: directory.path().to_path_buf(),
    };
    let serving = tokio::spawn(async move { server.serve(std::future::pending()).await });
    tokio::task::spawn_blocking(move || {
        built_in_kinds(&kubectl);
        custom_kinds(&kubectl);
        questions(&kubectl);
        watches(&kubectl);
    })
    .await
    .unwrap();
    serving.abort();
}

fn built_in_kinds(kubectl: &Kubectl) {
    kubectl.ok(&["create", "namespace", "team"]);
    kubectl.ok(&[
        "create",
        "configmap",
        "m",
        "--from-literal=a=1",
        "-n",
        "team",
    ]);
    kubectl.ok(&[
        "create",
        "secret",
        "generic",
        "s",
        "--from-literal=k=v",
        "-n",
        "team",
    ]);
    let value = kubectl.ok(&[
        "get",
        "secret",
        "s",
        "-n",
        "team",
        "-o",
        "jsonpath={.data.k}",
    ]);
    assert_eq!(value, "dg==");
    kubectl.ok(&["label", "configmap", "m", "x=y", "-n", "team"]);
    let map = kubectl.file(
        "map.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: client-side}, data: {a: '1', b: '2'}}",
    );
    assert!(kubectl.ok(&["apply", "-f", &map]).contains("created"));
    assert!(kubectl.ok(&["apply", "-f", &map]).contains("unchanged"));
    kubectl.file(
        "map.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: client-side}, data: {a: '3'}}",
    );
    assert!(kubectl.ok(&["apply", "-f", &map]).contains("configured"));
    let data = kubectl.ok(&["get", "cm", "client-side", "-o", "jsonpath={.data}"]);
    assert_eq!(data, r#"{"a":"3"}"#);
    kubectl.ok(&["delete", "namespace", "team", "--timeout=20s"]);
}

fn custom_kinds(kubectl: &Kubectl) {
    let cluster = kubectl.file("cluster.yaml", CLUSTER);
    let applied = kubectl.ok(&["apply", "--server-side", "-f", &cluster]);
    assert!(applied.contains("serverside-applied"), "{applied}");
    let wide = kubectl.ok(&["get", "clusters", "-o", "wide"]);
    assert!(wide.contains("NAME") && wide.contains("demo"), "{wide}");
    assert!(
        kubectl
            .ok(&["describe", "cluster", "demo"])
            .contains("1.35.4")
    );
    let diff = kubectl.run(&["diff", "--server-side", "-f", &cluster]);
    assert_eq!(
        diff.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&diff.stderr)
    );
    kubectl.ok(&[
        "patch",
        "cluster",
        "demo",
        "--type=merge",
        "-p",
        r#"{"spec":{"kubernetesVersion":"1.35.5"}}"#,
    ]);
    let diff = kubectl.run(&["diff", "-f", &cluster]);
    assert_eq!(
        diff.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&diff.stderr)
    );
    kubectl.ok(&[
        "patch",
        "cluster",
        "demo",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"state":"Created"}}"#,
    ]);
    kubectl.ok(&[
        "wait",
        "cluster/demo",
        "--for=jsonpath={.status.state}=Created",
        "--timeout=10s",
    ]);
    assert!(
        kubectl
            .ok(&["get", "cluster,cm", "-A"])
            .contains("client-side")
    );
    kubectl.ok(&["delete", "cluster", "demo", "--timeout=10s"]);
    let missing = kubectl.run(&["get", "pods"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("doesn't have a resource type"));
}

fn questions(kubectl: &Kubectl) {
    assert!(
        kubectl
            .ok(&["auth", "can-i", "create", "clusters.kubespray.k8s.io"])
            .contains("yes")
    );
    assert!(kubectl.ok(&["auth", "whoami"]).contains("windlass-admin"));
    assert!(kubectl.ok(&["api-resources"]).contains("clusters"));
    assert!(
        kubectl
            .ok(&["explain", "cluster.spec.operations"])
            .contains("operations")
    );
    assert!(kubectl.ok(&["explain", "configmap.data"]).contains("data"));
}

/// `get -w` prints a row when an object comes.
fn watches(kubectl: &Kubectl) {
    let output = kubectl.home.join("watch.txt");
    let mut watch = kubectl
        .command(&["get", "configmaps", "-w"])
        .stdout(std::fs::File::create(&output).unwrap())
        .spawn()
        .unwrap();
    wait_for(&output, "client-side");
    kubectl.ok(&["create", "configmap", "late"]);
    wait_for(&output, "late");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

fn wait_for(path: &Path, text: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !std::fs::read_to_string(path)
        .unwrap_or_default()
        .contains(text)
    {
        assert!(
            Instant::now() < deadline,
            "no {text:?} in the output of the watch"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
