//! The real kubectl against the API over TLS, each version that is at hand against a server of its own.
//!
//! `WINDLASS_KUBECTL` names the programs, separated as in PATH; else the one on the PATH is taken. `cargo xtask test` brings
//! the newest one, and with `--full` 1.29 to 1.33 too.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use kapi::{Options, Server};

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_talks_to_it() {
    let programs = programs();
    assert!(
        !programs.is_empty(),
        "there is no kubectl: set WINDLASS_KUBECTL or put one on the PATH"
    );
    let mut failed = Vec::new();
    for program in programs {
        // Each of them is shown by its own failure.
        if tokio::spawn(talk(program.clone())).await.is_err() {
            failed.push(program);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

async fn talk(program: PathBuf) {
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
    let talked = tokio::task::spawn_blocking(move || {
        let version = kubectl.ok("version --output=json");
        assert!(version.contains("serverVersion"), "{version}");
        built_in_kinds(&kubectl);
        applies_and_patches(&kubectl);
        custom_kinds(&kubectl);
        events(&kubectl);
        questions(&kubectl);
        watches(&kubectl);
    })
    .await;
    serving.abort();
    talked.unwrap();
}

fn built_in_kinds(kubectl: &Kubectl) {
    kubectl.ok("create namespace team");
    kubectl.ok("create configmap m --from-literal=a=1 -n team");
    kubectl.ok("create secret generic s --from-literal=k=v -n team");
    let value = kubectl.ok("get secret s -n team -o jsonpath={.data.k}");
    assert_eq!(value, "dg==");
    kubectl.ok("label configmap m x=y -n team");
    kubectl.says("get cm -n team -l x=y -o name", "configmap/m");
    kubectl.says("get cm -n team -l x!=y -o name", "");
    kubectl.ok("annotate configmap m note=seen -n team");
    kubectl.says("describe configmap m -n team", "note: seen");
    kubectl.says("describe namespace team", "Active");
    kubectl.says("describe secret s -n team", "1 bytes");
    kubectl.ok("delete configmap m -n team");
    kubectl.refused("get configmap m -n team", "NotFound");
    kubectl.ok("delete namespace team --timeout=20s");
}

fn applies_and_patches(kubectl: &Kubectl) {
    // Older versions take what begins with a brace for JSON.
    let map = |data: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: client-side}}\ndata: {data}\n")
    };
    kubectl.file("map.yaml", &map("{a: '1', b: '2'}"));
    kubectl.says("apply -f map.yaml", "created");
    kubectl.says("apply -f map.yaml", "unchanged");
    kubectl.file("map.yaml", &map("{a: '3'}"));
    kubectl.says("apply -f map.yaml", "configured");
    let data = "get cm client-side -o jsonpath={.data}";
    assert_eq!(kubectl.ok(data), r#"{"a":"3"}"#);
    kubectl.file("other.yaml", &map("{a: '4'}"));
    kubectl.refused(
        "apply --server-side --field-manager=other -f other.yaml",
        "conflict",
    );
    kubectl.ok("apply --server-side --force-conflicts --field-manager=other -f other.yaml");
    for (kind, patch, now) in [
        ("strategic", r#"{"data":{"b":"5"}}"#, r#"{"a":"4","b":"5"}"#),
        ("merge", r#"{"data":{"a":null}}"#, r#"{"b":"5"}"#),
        (
            "json",
            r#"[{"op":"replace","path":"/data/b","value":"6"}]"#,
            r#"{"b":"6"}"#,
        ),
    ] {
        kubectl.ok(&format!("patch cm client-side --type={kind} -p {patch}"));
        assert_eq!(kubectl.ok(data), now, "{kind}");
    }
    kubectl.says(
        "replace --dry-run=server -f map.yaml",
        "replaced (server dry run)",
    );
    assert_eq!(kubectl.ok(data), r#"{"b":"6"}"#);
}

fn custom_kinds(kubectl: &Kubectl) {
    kubectl.file("cluster.yaml", CLUSTER);
    kubectl.says("apply --server-side -f cluster.yaml", "serverside-applied");
    kubectl.says("get clusters", "NAME");
    kubectl.says("get clusters -o wide", "demo");
    kubectl.says("describe cluster demo", "1.35.4");
    let differences = |arguments: &str| kubectl.run(arguments).status.code();
    assert_eq!(
        differences("diff --server-side -f cluster.yaml"),
        Some(0),
        "{}: as it was applied",
        kubectl.program.display()
    );
    kubectl.ok(r#"patch cluster demo --type=merge -p {"spec":{"kubernetesVersion":"1.35.5"}}"#);
    kubectl.ok(r#"patch cluster demo --type=json -p [{"op":"add","path":"/metadata/labels/x","value":"y"}]"#);
    kubectl.refused(
        r#"patch cluster demo --type=strategic -p {"spec":{}}"#,
        "strategic",
    );
    assert_eq!(differences("diff -f cluster.yaml"), Some(1), "changed");
    kubectl.ok(
        r#"patch cluster demo --subresource=status --type=merge -p {"status":{"state":"Created","conditions":[{"type":"Ready","status":"True","reason":"Created","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#,
    );
    kubectl.ok("wait cluster/demo --for=condition=Ready --timeout=10s");
    kubectl.ok("wait cluster/demo --for=jsonpath={.status.state}=Created --timeout=10s");
    kubectl.says("get cluster,cm -A", "client-side");
    kubectl.file("wrong.yaml", &format!("{CLUSTER}\nstranger: 1\n"));
    kubectl.refused("apply -f wrong.yaml", "unknown field");
    kubectl.ok("delete cluster demo --timeout=10s");
    kubectl.refused("get pods", "doesn't have a resource type");
}

fn events(kubectl: &Kubectl) {
    kubectl.file("event.yaml", EVENT);
    kubectl.ok("create -f event.yaml");
    kubectl.says("events", "Tried");
    kubectl.says("events --for configmap/client-side", "Tried");
    kubectl.says("get events --sort-by=.lastTimestamp", "Tried");
    kubectl.says("get events --field-selector reason=Tried -o name", "event/");
}

fn questions(kubectl: &Kubectl) {
    kubectl.says("auth can-i create clusters.kubespray.k8s.io", "yes");
    kubectl.says("auth whoami", "windlass-admin");
    kubectl.says("api-resources", "clusters");
    kubectl.says("api-versions", "kubespray.k8s.io/v1");
    kubectl.says("explain cluster.spec.operations", "operations");
    kubectl.says("explain cluster.spec --recursive", "kubernetesVersion");
    kubectl.says("explain configmap.data", "data");
}

/// `get -w` prints a row when an object comes.
fn watches(kubectl: &Kubectl) {
    let output = kubectl.home.join("watch.txt");
    let mut watch = kubectl
        .command("get configmaps -w")
        .stdout(std::fs::File::create(&output).unwrap())
        .spawn()
        .unwrap();
    wait_for(&output, "client-side");
    kubectl.ok("create configmap late");
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

struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

impl Kubectl {
    /// The command with these words.
    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(arguments.split_whitespace())
            .current_dir(&self.home)
            .env("HOME", &self.home)
            .env("KUBECTL_EXTERNAL_DIFF", "diff -u")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What it says when it succeeds.
    fn ok(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let text = text(&output);
        let program = self.program.display();
        assert!(output.status.success(), "{program} {arguments}:\n{text}");
        text
    }

    fn says(&self, arguments: &str, wanted: &str) {
        let text = self.ok(arguments);
        let program = self.program.display();
        assert!(
            text.contains(wanted),
            "{program} {arguments}: no {wanted:?} in\n{text}"
        );
    }

    fn refused(&self, arguments: &str, wanted: &str) {
        let output = self.run(arguments);
        let text = text(&output);
        let program = self.program.display();
        assert!(
            !output.status.success() && text.contains(wanted),
            "{program} {arguments}: no {wanted:?} in\n{text}"
        );
    }

    fn file(&self, name: &str, content: &str) {
        std::fs::write(self.home.join(name), content).unwrap();
    }
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn programs() -> Vec<PathBuf> {
    if let Some(paths) = std::env::var_os("WINDLASS_KUBECTL") {
        return std::env::split_paths(&paths).collect();
    }
    std::env::var_os("PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .map(|directory| directory.join("kubectl"))
        .find(|path| path.is_file())
        .into_iter()
        .collect()
}

const CLUSTER: &str = "
apiVersion: kubespray.k8s.io/v1
kind: Cluster
metadata: {name: demo, labels: {tier: test}}
spec: {kubernetesVersion: 1.35.4}
";

const EVENT: &str = "
apiVersion: v1
kind: Event
metadata: {name: client-side.1, namespace: default}
involvedObject: {apiVersion: v1, kind: ConfigMap, name: client-side, namespace: default}
reason: Tried
message: it was tried
type: Warning
lastTimestamp: 2026-01-01T00:00:00Z
";
