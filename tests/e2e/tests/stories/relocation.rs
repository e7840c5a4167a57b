//! A cluster is carried from the embedded API to a real API server while its run waits half way, by commands alone, by
//! somebody who has there what the guide grants and no more. No host is needed: the run waits for an approval that it is not
//! given.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use e2e::{Operator, root, wait_until, windlass};
use lab::{ControlPlane, Kubernetes, command::output, progress::Terminal};
use serde_json::Value;

const NAMESPACE: &str = "story";

/// What a loaded machine may take for anything here.
const LIMIT: Duration = Duration::from_mins(3);

fn program(data: &Path, kubeconfig: &Path) -> Command {
    let mut command = Command::new(windlass().unwrap());
    command.arg("--data-dir").arg(data);
    command.arg("--kubeconfig").arg(kubeconfig);
    command.args(["--namespace", NAMESPACE]);
    command
}

fn objects(data: &Path, kubeconfig: &Path, kind: &str) -> Vec<Value> {
    let mut command = program(data, kubeconfig);
    let text = output(command.args(["get", kind, "--output", "json"])).unwrap();
    let list: Value = serde_json::from_str(&text).unwrap();
    list["items"].as_array().cloned().unwrap_or_default()
}

/// The only run, when it is in that phase.
fn run_in(data: &Path, kubeconfig: &Path, phase: &str) -> Value {
    wait_until(&format!("the run to be {phase}"), LIMIT, || {
        let runs = objects(data, kubeconfig, "runs");
        let run = runs.first().cloned().unwrap_or_default();
        Ok((run["status"]["phase"] == phase).then_some(run))
    })
    .unwrap()
}

fn history(run: &Value) -> Vec<String> {
    let records = run["status"]["history"].as_array().unwrap();
    let text = |record: &Value| record["event"].as_str().unwrap_or_default().to_owned();
    records.iter().map(text).collect()
}

/// A cluster that waits for an approval before its first step, and would reset its hosts when it is deleted.
fn manifests(directory: &Path) -> PathBuf {
    let key = directory.join("key");
    let mut keygen = Command::new("ssh-keygen");
    output(
        keygen
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&key),
    )
    .unwrap();
    let key = fs::read_to_string(key).unwrap().replace('\n', "\n    ");
    let host = |name: &str, kind: &str, address: &str| {
        format!(
            "---\napiVersion: kubespray.k8s.io/v1\nkind: ClusterNode\nmetadata: {{name: {name}}}\n\
             spec: {{type: {kind}, inventory: {{ansible_host: {address}}}}}\n"
        )
    };
    let text = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n---\n\
         apiVersion: v1\nkind: Secret\nmetadata: {{name: ssh}}\nstringData:\n  ssh-privatekey: |\n    {key}\n\
         {}{}---\napiVersion: kubespray.k8s.io/v1\nkind: Cluster\nmetadata: {{name: first}}\nspec:\n  \
         kubespray: {{version: 2.30.0, source: {{path: bundle}}}}\n  \
         ssh: {{privateKeySecretRef: {{name: ssh}}}}\n  deletionPolicy: Reset\n  \
         operations: {{creation: {{approval: Manual, startConditions: {{nodes: {{minimum: 2}}}}}}}}\n",
        host("z-master", "master", "192.0.2.11"),
        host("a-worker", "worker", "192.0.2.12"),
    );
    let file = directory.join("story.yaml");
    fs::write(&file, text).unwrap();
    file
}

/// The kubeconfig of somebody who has no rights at first.
fn impersonating(kubeconfig: &Path, directory: &Path) -> PathBuf {
    let text = fs::read_to_string(kubeconfig).unwrap();
    let mut config: Value = serde_saphyr::from_str(&text).unwrap();
    config["users"][0]["user"]["as"] = "kim".into();
    let file = directory.join("limited");
    fs::write(&file, config.to_string()).unwrap();
    file
}

/// Grants what the guide says, in one of its two namespaces.
fn grant(plane: &ControlPlane, directory: &Path, namespace: &str) {
    let guide = fs::read_to_string(root().join("docs/move.md")).unwrap();
    let (_, roles) = guide.split_once("```yaml\n").unwrap();
    let (roles, _) = roles.split_once("```").unwrap();
    let roles = roles.replace("my-cluster", NAMESPACE);
    let wanted = format!("namespace: {namespace}}}");
    let role = roles.split("---\n").find(|role| role.contains(&wanted));
    let file = directory.join(format!("{namespace}.yaml"));
    fs::write(&file, role.unwrap()).unwrap();
    output(plane.kubectl().args(["apply", "-f"]).arg(file)).unwrap();
    let binding = [
        "create",
        "rolebinding",
        "windlass-move",
        "--role=windlass-move",
    ];
    let of = ["--user=kim", "--namespace", namespace];
    output(plane.kubectl().args(binding).args(of)).unwrap();
}

#[test]
fn a_half_done_run_goes_on_behind_a_real_api_server() {
    let plane = ControlPlane::start(Kubernetes::Newest, &Terminal::default()).unwrap();
    let crds = root().join("deploy/manifests/crds.yaml");
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("laptop");
    let own = data.join("kubeconfig");
    let mut up = Command::new(windlass().unwrap());
    up.arg("--data-dir").arg(&data).arg("up");
    let _laptop = Operator::start(&mut up, directory.path().join("up.log")).unwrap();
    wait_until("the embedded API", LIMIT, || Ok(own.exists().then_some(()))).unwrap();
    let files = manifests(directory.path());
    wait_until("the objects to be applied", LIMIT, || {
        let applied = program(&data, &own)
            .args(["apply", "-f"])
            .arg(&files)
            .output()?;
        Ok(applied.status.success().then_some(()))
    })
    .unwrap();
    let waiting = run_in(&data, &own, "Waiting");
    fs::create_dir_all(data.join(format!("clusters/{NAMESPACE}/first"))).unwrap();
    let recorded = data.join(format!("clusters/{NAMESPACE}/first/known_hosts"));
    fs::write(recorded, "192.0.2.11 ssh-ed25519 AAAA\n").unwrap();

    let to = plane.kubeconfig();
    let limited = impersonating(&to, directory.path());
    let relocate = |more: &[&str]| {
        let mut command = program(&data, &own);
        command
            .args(["move", "--to-kubeconfig"])
            .arg(&limited)
            .args(more);
        command
    };
    let refused = |said: &[&str]| {
        let refused = relocate(&[]).output().unwrap();
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{error}");
        assert!(said.iter().all(|part| error.contains(part)), "{error}");
    };
    refused(&["nothing was changed", "get namespaces", "Namespace default"]);
    grant(&plane, directory.path(), "default");
    refused(&["nothing was changed", "windlass crds"]);
    plane.define(&crds).unwrap();
    refused(&[
        "nothing was changed",
        "right there (--to-kubeconfig) is \"create runs.workflow.windlass.dev\"",
        "kubectl -n story auth can-i create runs.workflow.windlass.dev",
    ]);
    output(plane.kubectl().args(["create", "namespace", NAMESPACE])).unwrap();
    grant(&plane, directory.path(), NAMESPACE);
    let planned = output(&mut relocate(&["--dry-run"])).unwrap();
    assert!(planned.contains("Run/first-create-1"), "{planned}");

    let kill = || {
        // As soon as it has copied something.
        let mut killed = relocate(&[]).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(killed.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().starts_with("copied ClusterNode")));
        killed.kill().unwrap();
        killed.wait().unwrap();
    };
    kill();
    let back = output(&mut relocate(&["--abort"])).unwrap();
    assert!(back.contains("took the move back"), "{back}");
    for kind in ["clusters", "clusternodes", "runs", "secrets"] {
        let left = objects(&data, &to, kind);
        assert!(left.is_empty(), "{left:#?}");
    }
    let before = history(&waiting);
    let waiting = wait_until("the run to go on here", LIMIT, || {
        let run = run_in(&data, &own, "Waiting");
        let taken_up = history(&run)[before.len()..].contains(&"RunStarted".to_owned());
        Ok(taken_up.then_some(run))
    })
    .unwrap();
    kill();
    let there = directory.path().join("there");
    let moved = output(&mut relocate(&["--output", "json"])).unwrap();
    let moved: Value = serde_json::from_str(&moved).unwrap();
    assert_eq!(moved["outcome"], "Moved");
    for kind in ["clusters", "clusternodes", "runs", "secrets"] {
        let left = objects(&data, &own, kind);
        assert!(left.is_empty(), "{left:#?}");
    }
    let again = output(&mut relocate(&[])).unwrap();
    assert!(again.contains("nothing to do"), "{again}");

    let [cluster] = objects(&there, &to, "clusters").try_into().unwrap();
    assert_eq!(cluster["spec"]["deletionPolicy"], "Reset");
    assert!(cluster["metadata"]["annotations"]["windlass.dev/moving"].is_null());
    let secrets = objects(&there, &to, "secrets");
    assert!(
        secrets
            .iter()
            .any(|secret| secret["metadata"]["name"] == "first-host-keys")
    );
    let run = run_in(&there, &to, "Paused");
    let before = history(&waiting);
    let carried = history(&run);
    assert_eq!(carried[..before.len()], before);
    assert_eq!(run["spec"], waiting["spec"]);

    let mut controller = program(&there, &to);
    controller.args(["controller", "--runners=process"]);
    controller.arg(format!("--source-root={}", e2e::root().display()));
    let operator = Operator::start(&mut controller, directory.path().join("there.log")).unwrap();
    // That it waits stands in the history already: what shows that it is at work is that it was taken up.
    let goes_on = wait_until("the run to be taken up", LIMIT, || {
        let run = run_in(&there, &to, "Waiting");
        let taken_up = history(&run)[carried.len()..].contains(&"RunStarted".to_owned());
        Ok(taken_up.then_some(run))
    })
    .unwrap();
    assert_eq!(history(&goes_on)[..carried.len()], carried);
    // The hosts come in the order in which they were declared, so it is the same plan: nothing was begun anew.
    assert_eq!(objects(&there, &to, "runs").len(), 1);
    output(program(&there, &to).args(["cancel", "first-create-1"])).unwrap();
    run_in(&there, &to, "Cancelled");
    drop(operator);
}
