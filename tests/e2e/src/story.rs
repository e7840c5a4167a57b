//! What the stories of several suites wait for.

use std::{process::Stdio, time::Duration};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::{Stage, wait_until};

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
            Ok(matches!(phase, "Succeeded" | "Failed" | "Cancelled").then(|| run.clone()))
        })
        .with_context(|| format!("the end of the log:\n{}", self.log_tail()))
    }

    /// The nodes of the raised cluster by its kubeconfig, when this many are Ready and no others are there.
    ///
    /// # Errors
    ///
    /// There is no kubeconfig, or the nodes are not Ready within two minutes.
    pub fn ready_nodes(&self, expected: usize) -> anyhow::Result<Vec<Value>> {
        let kubeconfig = self.data().join("raised.kubeconfig");
        let written = self
            .windlass(&["kubeconfig", "--write"])
            .arg(&kubeconfig)
            .status()?;
        ensure!(written.success(), "there is no kubeconfig");
        let arguments = ["get", "nodes", "--output", "json"];
        wait_until("the nodes to be Ready", Duration::from_mins(2), || {
            let output = self
                .kubectl_by(&kubeconfig, &arguments)
                .stdin(Stdio::null())
                .output()?;
            let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let ready = items.iter().filter(|node| is_ready(node)).count();
            Ok((ready == expected && items.len() == expected).then_some(items))
        })
    }
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
