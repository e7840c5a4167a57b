//! A stage in Kubernetes: a real cluster of one node with hosts beside it, Windlass installed by its chart, and the cluster
//! that it raises, in which Windlass is installed next.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, anyhow, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use lab::{LabOptions, Node, Progress, command::output};
use serde_json::{Value, json};

use crate::{NAMESPACE, checkout::root, wait_until};

/// The namespace of the operator, on both sides.
pub const SYSTEM: &str = "windlass-system";

/// One of the two clusters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// The cluster of one node that raises the other.
    First,
    /// The cluster that is raised.
    Raised,
}

/// Two clusters, the second one made by the first. All of it ends with the value, and with its process.
#[derive(Debug)]
pub struct InCluster {
    /// The first cluster, and the hosts beside it.
    pub node: Node,
    windlass: PathBuf,
    helm: PathBuf,
    images: Vec<PathBuf>,
}

impl InCluster {
    /// Boots four hosts and raises a cluster of one node on the first. `images` is the directory that `cargo xtask image`
    /// wrote to.
    ///
    /// # Errors
    ///
    /// What is needed cannot be made, or the cluster does not come up.
    pub fn set(windlass: PathBuf, images: &Path, progress: &dyn Progress) -> anyhow::Result<Self> {
        let entries = fs::read_dir(images)
            .with_context(|| format!("no images in {}", images.display()))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>()?;
        let is_tar = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "tar");
        let images: Vec<_> = entries.into_iter().filter(is_tar).collect();
        ensure!(
            images.len() == 2,
            "two images are needed, of the operator and of the runner: {images:?}"
        );
        let helm = lab::helm(progress)?;
        let options = LabOptions {
            hosts: 4,
            ..LabOptions::default()
        };
        Ok(Self {
            node: Node::start(options, progress)?,
            windlass,
            helm,
            images,
        })
    }

    /// The hosts of one side.
    pub fn hosts(&self, side: Side) -> Vec<&lab::Host> {
        let (first, others) = self.node.lab.hosts().split_at(1);
        match side {
            Side::First => first.iter().collect(),
            Side::Raised => others.iter().collect(),
        }
    }

    /// Loads the images into the nodes of one side, as a registry would hand them out, and installs Windlass by its chart.
    ///
    /// # Errors
    ///
    /// The images cannot be loaded, or the operator does not become ready.
    pub fn install(&self, side: Side) -> anyhow::Result<()> {
        self.load(side)?;
        output(&mut self.helm(side, &self.install_arguments()))?;
        Ok(())
    }

    /// What `helm install` is given.
    pub fn install_arguments(&self) -> Vec<String> {
        let chart = root().join("deploy/chart/windlass").display().to_string();
        let words = ["install", "windlass", &chart, "--namespace", SYSTEM];
        let rest = ["--create-namespace", "--wait", "--timeout=3m"];
        words.iter().chain(&rest).map(ToString::to_string).collect()
    }

    /// Loads the images into the nodes of one side.
    ///
    /// # Errors
    ///
    /// A node cannot import one.
    pub fn load(&self, side: Side) -> anyhow::Result<()> {
        thread::scope(|scope| {
            let loads: Vec<_> = self
                .hosts(side)
                .into_iter()
                .map(|host| {
                    scope.spawn(|| {
                        let mut images = self.images.iter();
                        images.try_for_each(|image| self.node.lab.import(&host.name, image))
                    })
                })
                .collect();
            let join = |load: thread::ScopedJoinHandle<'_, anyhow::Result<()>>| {
                load.join()
                    .map_err(|_| anyhow!("loading images panicked"))?
            };
            loads.into_iter().try_for_each(join)
        })
    }

    /// The example of a first cluster, on the hosts beside the node, by the playbooks that the images bring along.
    ///
    /// # Errors
    ///
    /// The example cannot be read, or the changed one not be written.
    pub fn example(&self) -> anyhow::Result<PathBuf> {
        let example = root().join("examples/first-cluster");
        let mut items = Vec::new();
        for name in ["cluster.yaml", "nodes.yaml"] {
            let text =
                fs::read_to_string(example.join(name)).context("failed to read an example")?;
            items.extend(serde_saphyr::from_multiple::<Value>(&text)?);
        }
        let known_hosts = fs::read_to_string(self.node.lab.known_hosts())?;
        let mut hosts = self.hosts(Side::Raised).into_iter();
        for item in &mut items {
            match item["kind"].as_str() {
                Some("Cluster") => {
                    let spec = &mut item["spec"];
                    spec["kubespray"]["source"] = json!({"path": "/opt/windlass/bundle"});
                    spec["ssh"]["knownHosts"] = json!(known_hosts);
                    spec["runner"] =
                        json!({"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}});
                }
                Some("ClusterNode") => {
                    let host = hosts
                        .next()
                        .context("the example has more nodes than hosts")?;
                    item["spec"]["inventory"]["ansible_host"] = json!(host.address.to_string());
                }
                _ => {}
            }
        }
        let file = self.node.lab.dir().join("example.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        fs::write(&file, serde_json::to_vec_pretty(&list)?)
            .context("failed to write the example")?;
        Ok(file)
    }

    /// Applies the file of [`InCluster::example`] to the first cluster, after the ssh key of the hosts.
    ///
    /// # Errors
    ///
    /// An object is refused.
    pub fn apply(&self, file: &Path) -> anyhow::Result<()> {
        let apply = |file: &str| {
            let arguments = ["apply", "--server-side", "--field-manager=demo", "-f", file];
            output(&mut self.kubectl(Side::First, &arguments)).map(drop)
        };
        let key = fs::read(self.node.lab.key_path()).context("failed to read the lab's key")?;
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/ssh-auth",
                "metadata": {"name": "ssh", "namespace": NAMESPACE},
                "data": {"ssh-privatekey": STANDARD.encode(key)},
            },
        ]});
        // A file, because keys have no place in arguments.
        let secret = self.node.lab.dir().join("secret.json");
        fs::write(&secret, objects.to_string()).context("failed to write the Secret")?;
        let applied = apply(&secret.to_string_lossy());
        fs::remove_file(&secret).context("failed to remove the Secret")?;
        applied?;
        apply(&file.to_string_lossy())
    }

    /// The administrator's kubeconfig of one side; that of the raised cluster is there after [`InCluster::fetch`].
    pub fn kubeconfig(&self, side: Side) -> PathBuf {
        match side {
            Side::First => self.node.kubeconfig(),
            Side::Raised => self.node.lab.dir().join("raised.kubeconfig"),
        }
    }

    /// Fetches the kubeconfig of the raised cluster from the first one.
    ///
    /// # Errors
    ///
    /// There is none yet.
    pub fn fetch(&self) -> anyhow::Result<()> {
        let mut command = self.windlass(Side::First, &["kubeconfig", "--write"]);
        output(command.arg(self.kubeconfig(Side::Raised))).map(drop)
    }

    /// `kubectl` of one side, in the lab's network.
    pub fn kubectl(&self, side: Side, arguments: &[&str]) -> Command {
        let mut kubectl = Command::new(self.node.programs().join("kubectl"));
        kubectl
            .arg("--kubeconfig")
            .arg(self.kubeconfig(side))
            .args(arguments)
            .env("KUBECACHEDIR", self.cache(side, "kubectl"));
        self.node.lab.enter_network(&kubectl)
    }

    /// `windlass` against the API of one side, in the lab's network and the namespace of the objects.
    pub fn windlass(&self, side: Side, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.windlass);
        command
            .arg("--data-dir")
            .arg(self.cache(side, "data"))
            .arg("--kubeconfig")
            .arg(self.kubeconfig(side))
            .args(["--namespace", NAMESPACE])
            .args(arguments);
        self.node.lab.enter_network(&command)
    }

    /// `helm` of one side, in the lab's network.
    pub fn helm(&self, side: Side, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.helm);
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig(side))
            .args(arguments)
            .env("HELM_CACHE_HOME", self.cache(side, "helm"))
            .env("HELM_CONFIG_HOME", self.cache(side, "helm"))
            .env("HELM_DATA_HOME", self.cache(side, "helm"));
        self.node.lab.enter_network(&command)
    }

    /// Moves all objects of the namespace into the cluster that they describe.
    ///
    /// # Errors
    ///
    /// They cannot be moved.
    pub fn move_in(&self) -> anyhow::Result<String> {
        output(&mut self.move_command())
    }

    /// The command of [`InCluster::move_in`].
    pub fn move_command(&self) -> Command {
        let mut command = self.windlass(Side::First, &["move", "--to-kubeconfig"]);
        command.arg(self.kubeconfig(Side::Raised));
        command
    }

    /// All objects of a kind of one side, in the namespace of the objects.
    ///
    /// # Errors
    ///
    /// The API does not answer.
    pub fn objects(&self, side: Side, kind: &str) -> anyhow::Result<Vec<Value>> {
        let arguments = ["--namespace", NAMESPACE, "get", kind, "--output", "json"];
        let list: Value = serde_json::from_str(&output(&mut self.kubectl(side, &arguments))?)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until the Cluster is Created and healthy.
    ///
    /// # Errors
    ///
    /// It is not within the limit.
    pub fn healthy(&self, side: Side, limit: Duration) -> anyhow::Result<Value> {
        wait_until("the cluster to be Created and HEALTH_OK", limit, || {
            // Its own API server may be busy.
            let clusters = self
                .objects(side, "clusters.kubespray.k8s.io")
                .unwrap_or_default();
            Ok(clusters.into_iter().find(|cluster| {
                let status = &cluster["status"];
                status["state"] == "Created" && status["cluster"]["health"] == "HEALTH_OK"
            }))
        })
    }

    /// Waits until all nodes of the raised cluster are Ready.
    ///
    /// # Errors
    ///
    /// They are not within two minutes.
    pub fn ready_nodes(&self) -> anyhow::Result<()> {
        let wait = [
            "wait",
            "--for=condition=Ready",
            "node",
            "--all",
            "--timeout=120s",
        ];
        output(self.kubectl(Side::Raised, &wait).stdin(Stdio::null())).map(drop)
    }

    /// A Run of one side that has ended.
    ///
    /// # Errors
    ///
    /// It has not within the limit; the error shows the end of its pods' logs.
    pub fn finished(&self, side: Side, run: &str, limit: Duration) -> anyhow::Result<Value> {
        let job = format!("job/{run}");
        let logs = ["--namespace", NAMESPACE, "logs", "--tail=40", &job];
        wait_until(&format!("run {run} to end"), limit, || {
            let runs = self
                .objects(side, "runs.workflow.windlass.dev")
                .unwrap_or_default();
            let run = runs
                .into_iter()
                .find(|found| found["metadata"]["name"] == run);
            Ok(run.filter(|run| run["status"]["finishedAt"].is_string()))
        })
        .with_context(|| {
            let log = output(&mut self.kubectl(side, &logs));
            log.unwrap_or_else(|error| format!("there is no log: {error:#}"))
        })
    }

    fn cache(&self, side: Side, what: &str) -> PathBuf {
        self.node.lab.dir().join(format!("{side:?}-{what}"))
    }
}
