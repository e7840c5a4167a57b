//! What the stories of several suites wait for.

use std::{fs::File, path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context, ensure};
use lab::{command::output, progress::Terminal};
use serde_json::{Value, json};

use crate::{NAMESPACE, Stage, is_true, wait_until};

impl Stage {
    /// The newest Run of the stage's namespace; null where there is none yet.
    ///
    /// # Errors
    ///
    /// The API does not answer.
    pub fn run(&self) -> anyhow::Result<Value> {
        let runs = self.objects("runs")?;
        let made = |run: &Value| {
            run["metadata"]["creationTimestamp"]
                .as_str()
                .map(str::to_owned)
        };
        Ok(runs.into_iter().max_by_key(made).unwrap_or_default())
    }

    /// The newest Run, when it has ended: Succeeded, Failed or Cancelled.
    ///
    /// # Errors
    ///
    /// It did not end within the limit; the error shows the end of the log.
    pub fn finished(&self, limit: Duration) -> anyhow::Result<Value> {
        wait_until("the run to end", limit, || {
            let run = self.run()?;
            let phase = run["status"]["phase"].as_str().unwrap_or_default();
            if matches!(phase, "Succeeded" | "Failed" | "Cancelled") {
                return Ok(Some(run));
            }
            if let Some(name) = run["metadata"]["name"].as_str() {
                // A watch: to ask all the time would take a good part of a small machine from the playbooks.
                let wait = [
                    "wait",
                    "--for=jsonpath={.status.finishedAt}",
                    "--timeout=60s",
                ];
                let of = ["--namespace", NAMESPACE, "run", name];
                self.kubectl(&[wait.as_slice(), &of].concat())
                    .stdin(Stdio::null())
                    .output()?;
            }
            Ok(None)
        })
        .with_context(|| {
            let said = self.said_of_clusters();
            let said = said.unwrap_or_else(|error| format!("no clusters: {error:#}"));
            format!("{said}\nthe end of the log:\n{}", self.log_tail())
        })
    }

    /// What the Clusters say of themselves, a line each: why one waits.
    fn said_of_clusters(&self) -> anyhow::Result<String> {
        let lines = self.objects("clusters.kubespray.k8s.io")?;
        let lines = lines.iter().map(|cluster| {
            let conditions = cluster["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let ready = conditions.find(|condition| condition["type"] == "Ready");
            let name = &cluster["metadata"]["name"];
            let ready = ready.unwrap_or(&Value::Null);
            format!("cluster {name}: {} {}", ready["reason"], ready["message"])
        });
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }

    /// Changes what a merge patch names in an object of the stage's namespace.
    ///
    /// # Errors
    ///
    /// The API refuses, or does not answer.
    pub fn merge(&self, kind: &str, name: &str, patch: &Value) -> anyhow::Result<()> {
        let merge = ["patch", kind, name, "--type=merge", "--patch"];
        let mut kubectl = self.kubectl(&["--namespace", NAMESPACE]);
        kubectl.args(merge).arg(patch.to_string());
        output(kubectl.stdin(Stdio::null())).map(drop)
    }

    /// Brings the program to a host that checks and restores snapshots.
    ///
    /// # Errors
    ///
    /// It cannot be built, or the host does not take it.
    pub fn bring_etcdutl(&self, host: &str) -> anyhow::Result<()> {
        let programs = lab::snapshot_programs(&Terminal::default())?;
        let program = File::open(programs.join("etcdutl")).context("open etcdutl")?;
        let mut command = self.lab.ssh_command(host)?;
        command.arg("cat > /usr/local/bin/etcdutl && chmod 755 /usr/local/bin/etcdutl");
        let brought = command.stdin(program).status().context("run ssh")?;
        ensure!(brought.success(), "{host} does not take etcdutl: {brought}");
        Ok(())
    }

    /// Deletes an object of the stage's namespace, or that namespace, and does not wait for its end.
    ///
    /// # Errors
    ///
    /// The API refuses, or does not answer.
    pub fn delete(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        let delete = [
            "--namespace",
            NAMESPACE,
            "delete",
            kind,
            name,
            "--wait=false",
        ];
        output(self.kubectl(&delete).stdin(Stdio::null())).map(drop)
    }

    /// Waits until an object of the stage's namespace, or that namespace, is gone.
    ///
    /// # Errors
    ///
    /// It is not gone within the limit; the error shows it and the end of the log.
    pub fn until_gone(&self, kind: &str, name: &str, limit: Duration) -> anyhow::Result<()> {
        let of = ["--namespace", NAMESPACE, kind, name];
        let kubectl = |verb: &[&str]| {
            self.kubectl(&[verb, &of].concat())
                .stdin(Stdio::null())
                .output()
        };
        wait_until("the end of the deletion", limit, || {
            // A watch, and more than one, because the API may be restarted meanwhile.
            let gone = kubectl(&["wait", "--for=delete", "--timeout=60s"])?;
            Ok(gone.status.success().then_some(()))
        })
        .with_context(|| {
            let left = kubectl(&["get", "--output=yaml"]).map(|left| left.stdout);
            format!(
                "{}\nthe end of the log:\n{}",
                String::from_utf8_lossy(&left.unwrap_or_default()),
                self.log_tail()
            )
        })
    }

    /// Writes the kubeconfig of the raised cluster, and gives its path.
    ///
    /// # Errors
    ///
    /// There is none yet.
    pub fn kubeconfig(&self) -> anyhow::Result<PathBuf> {
        let file = self.data().join("raised.kubeconfig");
        let mut command = self.windlass(&["kubeconfig", "--write"]);
        output(command.arg(&file))?;
        Ok(file)
    }

    /// The nodes of the raised cluster by its kubeconfig, when this many are Ready and no others are there.
    ///
    /// # Errors
    ///
    /// There is no kubeconfig, or the nodes are not Ready within two minutes.
    pub fn ready_nodes(&self, expected: usize) -> anyhow::Result<Vec<Value>> {
        let kubeconfig = self.kubeconfig()?;
        let arguments = ["get", "nodes", "--output", "json"];
        wait_until("the nodes to be Ready", Duration::from_mins(2), || {
            // Right after a cluster is raised its API may still restart.
            let answer = self
                .kubectl_by(&kubeconfig, &arguments)
                .stdin(Stdio::null())
                .output()?;
            let list: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let ready = items.iter().filter(|node| is_true(node, "Ready")).count();
            Ok((ready == expected && items.len() == expected).then_some(items))
        })
    }

    /// Runs a shell command in a pod of the raised cluster, and gives what it prints.
    ///
    /// # Errors
    ///
    /// The pod cannot be made, or has not succeeded within two minutes; the error describes it.
    pub fn in_pod(&self, name: &str, command: &str) -> anyhow::Result<String> {
        let kubeconfig = self.kubeconfig()?;
        let kubectl = |arguments: &[&str]| output(&mut self.kubectl_by(&kubeconfig, arguments));
        let run = [
            "run",
            name,
            "--image=registry.k8s.io/busybox:1",
            // The lab's hosts may have it and reach no registry.
            "--image-pull-policy=IfNotPresent",
            "--restart=Never",
            "--command",
            "--",
            "sh",
            "-c",
            command,
        ];
        kubectl(&run)?;
        let pod = format!("pod/{name}");
        let done = "--for=jsonpath={.status.phase}=Succeeded";
        kubectl(&["wait", done, &pod, "--timeout=120s"]).with_context(|| {
            kubectl(&["describe", &pod]).unwrap_or_else(|error| format!("{error:#}"))
        })?;
        Ok(kubectl(&["logs", name])?.trim_end().to_owned())
    }
}

/// A ClusterNode of the stage's namespace.
pub fn node(name: &str, mut spec: Value, address: &str) -> Value {
    spec["inventory"] = json!({"ansible_host": address});
    json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    })
}
