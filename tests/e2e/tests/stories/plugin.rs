//! `kubectl windlass`: kubectl, of every version that this run goes through, finds the program under its other name, which
//! then talks to the API that kubectl talks to; here to that of `windlass up`.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use e2e::{Operator, root, wait_until, windlass};
use lab::{Extent, command::output, progress::Terminal};
use serde_json::json;

/// An API that starts takes a second; a loaded machine may take much longer.
const LIMIT: Duration = Duration::from_secs(90);

#[test]
fn kubectl_finds_windlass_and_windlass_finds_the_api() {
    let extent = Extent::of_this_run();
    let kubectls = extent.kubectls(&Terminal::default()).unwrap();
    let up = Up::start(kubectls.last().unwrap());
    let plugin = up.directory.path().join("bin/kubectl-windlass");
    fs::create_dir(plugin.parent().unwrap()).unwrap();
    symlink(windlass().unwrap(), &plugin).unwrap();
    let objects = up.directory.path().join("objects.json");
    fs::write(&objects, cluster()).unwrap();
    for kubectl in kubectls {
        let say = |arguments: &[&str]| output(up.kubectl(&kubectl).args(arguments)).unwrap();
        let own = |arguments: &[&str]| {
            let words = [&["windlass", "--namespace", "plugin"], arguments].concat();
            say(&words)
        };
        let listed = say(&["plugin", "list"]);
        assert!(listed.contains(plugin.to_str().unwrap()), "{listed}");
        own(&["apply", "--filename", objects.to_str().unwrap()]);
        let status = own(&["status"]);
        assert!(status.contains("first"), "{status}");
        let plan = up
            .kubectl(&kubectl)
            .args(["windlass", "plan", "--filename"])
            .arg(&objects)
            .output()
            .unwrap();
        let plan = String::from_utf8(plan.stdout).unwrap();
        assert!(plan.contains("cluster plugin/first"), "{plan}");
        let help = own(&["logs", "--help"]);
        assert!(help.contains("--follow"), "{help}");
        for kind in ["clusters", "clusternodes"] {
            let own = own(&["get", kind, "--output", "wide"]);
            let kubectls = say(&["--namespace", "plugin", "get", kind, "--output", "wide"]);
            assert_eq!(columns(&own), columns(&kubectls), "{kind}");
        }
    }
}

/// The words of the first line.
fn columns(table: &str) -> Vec<&str> {
    let head = table.lines().next().unwrap_or_default();
    head.split_whitespace().collect()
}

/// A Cluster that waits for more nodes than there are, in a namespace of its own.
fn cluster() -> String {
    let metadata = |name| json!({"name": name, "namespace": "plugin"});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "plugin"}},
        {
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": metadata("first"),
            "spec": {
                "kubespray": {"version": "2.30.0", "source": {"path": "bundle"}},
                "kubernetesVersion": "1.34.4",
                "operations": {"creation": {"startConditions": {"nodes": {"minimum": 9}}}},
            },
        },
        {
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
            "metadata": metadata("master-1"),
            "spec": {"type": "master", "inventory": {"ansible_host": "127.0.1.1"}},
        },
    ]})
    .to_string()
}

/// `windlass up` in a data directory of its own.
struct Up {
    operator: Operator,
    directory: tempfile::TempDir,
}

impl Up {
    fn start(kubectl: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let mut command = Command::new(windlass().unwrap());
        command.arg("--data-dir").arg(data).arg("up");
        let operator = Operator::start(&mut command, directory.path().join("log")).unwrap();
        let mut up = Self {
            operator,
            directory,
        };
        wait_until("the API to answer", LIMIT, || {
            assert!(!up.operator.has_ended()?, "windlass up ended");
            let ready = up
                .kubectl(kubectl)
                .args(["get", "--raw=/readyz"])
                .output()?;
            Ok(ready.status.success().then_some(()))
        })
        .unwrap();
        up
    }

    /// kubectl of the user who has the plugin on the `PATH`.
    fn kubectl(&self, program: &Path) -> Command {
        let home = self.directory.path();
        let inherited = env::var_os("PATH").unwrap_or_default();
        let places = [home.join("bin")].into_iter();
        let path = env::join_paths(places.chain(env::split_paths(&inherited))).unwrap();
        let mut command = Command::new(program);
        command
            .env("PATH", path)
            .env("HOME", home)
            .env("KUBECONFIG", self.kubeconfig())
            .current_dir(root())
            .stdin(Stdio::null());
        command
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("data/kubeconfig")
    }
}
