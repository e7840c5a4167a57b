//! What people of an OpenStack have: Keystone, the Magnum API of a `windlass up`, and hosts in its pool.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use lab::{Progress, command::output};
use serde_json::{Value, json};

use crate::{Keystone, Stage, wait_until};

/// Where the Magnum API is served.
const MAGNUM: &str = "http://127.0.0.1:9511/v1";
/// The namespace of the pool.
const POOL: &str = "default";
/// Who asks, where nothing else is said.
const USER: &str = "ann";

/// A stage whose hosts are in the pool of a Magnum API. All of it ends with the value, and with its process.
pub struct Cloud {
    /// Who vouches for people.
    pub keystone: Keystone,
    /// The hosts, and Windlass.
    pub stage: Stage,
}

impl Cloud {
    /// Starts Keystone and `windlass up --magnum` on a stage, and puts all its hosts into the pool.
    ///
    /// # Errors
    ///
    /// One of them does not start, or refuses what it is given.
    pub fn over(mut stage: Stage, progress: &dyn Progress) -> Result<Self> {
        let directory = stage.lab.dir().join("keystone");
        let keystone = Keystone::start(&directory, Some(stage.lab.entrance()), progress)?;
        let playbooks = stage.playbooks().display().to_string();
        stage.up_with(&[
            "--magnum",
            &keystone.address,
            "--magnum-checkout",
            &playbooks,
        ])?;
        keystone.people(MAGNUM)?;
        stage.apply(&pool(&stage)?)?;
        Ok(Self { keystone, stage })
    }

    /// `openstack coe` of a member of the project.
    pub fn coe(&self, arguments: &[&str]) -> Command {
        self.keystone.coe(USER, arguments)
    }

    /// A cluster, as `openstack coe cluster show` tells it.
    ///
    /// # Errors
    ///
    /// There is none, or more than one of that name.
    pub fn show(&self, cluster: &str) -> Result<Value> {
        let shown = output(&mut self.coe(&["cluster", "show", cluster, "-f", "json"]))?;
        serde_json::from_str(&shown).context("read what openstack tells of a cluster")
    }

    /// The namespace of what builds a cluster.
    ///
    /// # Errors
    ///
    /// There is no such cluster.
    pub fn namespace(&self, cluster: &str) -> Result<String> {
        let shown = self.show(cluster)?;
        let uuid = shown["uuid"].as_str().context("a cluster has no UUID")?;
        Ok(format!("coe-{uuid}"))
    }

    /// Waits until a run is at work for a cluster.
    ///
    /// # Errors
    ///
    /// None is within the limit; the error shows the end of the log.
    pub fn begun(&self, cluster: &str, limit: Duration) -> Result<()> {
        let namespace = self.namespace(cluster)?;
        let get = [
            "--namespace",
            &namespace,
            "get",
            "clusters.kubespray.k8s.io",
        ];
        let state = "--output=jsonpath={.items[*].status.state}";
        wait_until("a run to be at work", limit, || {
            let state = output(self.stage.kubectl(&get).arg(state))?;
            let is_at_work = !matches!(state.as_str(), "" | "Waiting" | "Created");
            Ok(is_at_work.then_some(()))
        })
        .with_context(|| format!("the end of the log:\n{}", self.stage.log_tail()))
    }

    /// Waits until a cluster is in this state, and gives it.
    ///
    /// # Errors
    ///
    /// It has failed, or is not within the limit; the error shows the end of the log.
    pub fn until(&self, cluster: &str, state: &str, limit: Duration) -> Result<Value> {
        wait_until(state, limit, || {
            let shown = self.show(cluster)?;
            let now = shown["status"].as_str().unwrap_or_default();
            if now.ends_with("_FAILED") {
                bail!("{now}: {}", shown["status_reason"]);
            }
            Ok((now == state).then_some(shown))
        })
        .with_context(|| format!("the end of the log:\n{}", self.stage.log_tail()))
    }

    /// Waits until there is no cluster, and no host is claimed.
    ///
    /// # Errors
    ///
    /// One is left within the limit; the error shows the end of the log.
    pub fn until_gone(&self, limit: Duration) -> Result<()> {
        wait_until("the cluster to be gone", limit, || {
            let listed = output(&mut self.coe(&["cluster", "list", "-f", "json"]))?;
            Ok((listed.trim() == "[]" && self.claimed()?.is_empty()).then_some(()))
        })
        .with_context(|| format!("the end of the log:\n{}", self.stage.log_tail()))
    }

    /// The hosts that some cluster has.
    ///
    /// # Errors
    ///
    /// The API does not answer.
    pub fn claimed(&self) -> Result<Vec<String>> {
        let get = ["--namespace", POOL, "get", "hosts.magnum.windlass.dev"];
        let names = "--output=jsonpath={.items[?(@.spec.claim)].metadata.name}";
        let names = output(self.stage.kubectl(&get).arg(names))?;
        Ok(names.split_whitespace().map(str::to_owned).collect())
    }

    /// The kubeconfig that `openstack coe cluster config` writes.
    ///
    /// # Errors
    ///
    /// It is refused.
    pub fn config(&self, cluster: &str) -> Result<PathBuf> {
        let directory = self.stage.lab.dir().join("config").join(cluster);
        fs::create_dir_all(&directory).context("make a directory")?;
        let to = directory.display().to_string();
        output(&mut self.coe(&["cluster", "config", cluster, "--dir", &to, "--force"]))?;
        Ok(directory.join("config"))
    }

    /// Waits until so many nodes are Ready, as somebody sees them who has this kubeconfig.
    ///
    /// # Errors
    ///
    /// They are not within the limit.
    pub fn ready_nodes(&self, kubeconfig: &Path, nodes: usize, limit: Duration) -> Result<()> {
        let ready = "--output=jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}";
        wait_until(&format!("{nodes} nodes to be Ready"), limit, || {
            let mut get = self.stage.kubectl_by(kubeconfig, &["get", "nodes", ready]);
            let found = output(&mut get)?;
            let states: Vec<_> = found.split_whitespace().collect();
            let all = states.iter().all(|state| *state == "True");
            Ok((all && states.len() == nodes).then_some(()))
        })
    }
}

fn pool(stage: &Stage) -> Result<Value> {
    let key = fs::read(stage.lab.key_path()).context("read the lab's key")?;
    let mut items = vec![json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/ssh-auth",
        "metadata": {"name": "magnum-ssh", "namespace": POOL},
        "data": {"ssh-privatekey": STANDARD.encode(key)},
    })];
    items.extend(stage.lab.hosts().iter().map(|host| {
        json!({
            "apiVersion": "magnum.windlass.dev/v1alpha1", "kind": "Host",
            "metadata": {"name": host.name, "namespace": POOL},
            "spec": {"address": host.address.to_string(), "user": "root"},
        })
    }));
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": items}))
}
