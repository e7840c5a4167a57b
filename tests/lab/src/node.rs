//! A whole Kubernetes cluster of one node on the first host of a lab, raised by kubeadm: pods, network, logs, exec.
//!
//! The lab's other hosts stay as they are: they are what an operator in the cluster works on. Pods reach them. One of them may become another
//! such cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::command;
use crate::programs::{self, Programs};
use crate::{Host, Lab, LabOptions, Progress};

/// A cluster of one node, and the hosts beside it.
#[derive(Debug)]
pub struct Node {
    /// The hosts; one of them is the node, and the first one where nothing else is said.
    pub lab: Arc<Lab>,
    host: String,
    programs: Programs,
}

impl Node {
    /// Boots the hosts and raises the cluster on the first; about half a minute.
    ///
    /// # Errors
    ///
    /// The hosts do not boot, or kubeadm fails; the error shows the end of its log.
    pub fn start(options: LabOptions, progress: &dyn Progress) -> Result<Self> {
        let programs = programs::ensure(progress)?;
        let options = options.with_kubernetes(progress)?;
        let lab = Arc::new(Lab::start(&options, progress)?);
        Self::raise(lab, HOST, programs, progress)
    }

    /// Raises another cluster, on another host of the same lab, which nobody uses yet.
    ///
    /// # Errors
    ///
    /// No such host, or kubeadm fails; the error shows the end of its log.
    pub fn beside(&self, host: &str, progress: &dyn Progress) -> Result<Self> {
        Self::raise(Arc::clone(&self.lab), host, self.programs.clone(), progress)
    }

    fn raise(
        lab: Arc<Lab>,
        host: &str,
        programs: Programs,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let node = Self {
            lab,
            host: host.to_owned(),
            programs,
        };
        progress.begin(
            &format!("Kubernetes {} on {host}", node.programs.version),
            "about 30 s",
        );
        fs::create_dir_all(node.dir()).context("make the node's directory")?;
        let address = node.lab.host(host)?.address.to_string();
        node.run(host, PREPARE, &[ONLY_PODS])
            .context("prepare the host")?;
        let arguments = [&address, &node.programs.version, &node.etcd_tag()];
        node.run(host, SCRIPT, &arguments.map(String::as_str))
            .context("raise the cluster")?;
        let config = node.ssh("cat /etc/kubernetes/admin.conf")?;
        fs::write(node.kubeconfig(), config).context("write the kubeconfig")?;
        progress.end();
        Ok(node)
    }

    /// Gives another host of the lab what an image of machines has that kubeadm makes nodes: Kubernetes' programs and images, containerd, and
    /// a network for pods, which reach those of all hosts that are prepared likewise.
    ///
    /// # Errors
    ///
    /// No such host, or it lacks something.
    pub fn prepare(&self, host: &str) -> Result<()> {
        let pods_of = |host: &Host| {
            let [.., number] = host.address.octets();
            format!("10.244.{number}.0/24")
        };
        let mut arguments = vec![pods_of(self.lab.host(host)?)];
        for other in self.lab.hosts().iter().filter(|other| other.name != host) {
            arguments.extend([pods_of(other), other.address.to_string()]);
        }
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        self.run(host, PREPARE, &arguments)
            .with_context(|| format!("prepare {host}"))
    }

    /// Lets whoever is in the lab's network reach the pods of a cluster of one node.
    ///
    /// # Errors
    ///
    /// There is no such way.
    pub fn open_pods(&self) -> Result<()> {
        let address = self.lab.host(&self.host)?.address.to_string();
        let mut way = Command::new("ip");
        way.args(["route", "replace", ONLY_PODS, "via", &address]);
        command::output(&mut self.lab.enter_network(&way)).map(drop)
    }

    /// The version of Kubernetes on all hosts, without a leading v.
    pub fn version(&self) -> &str {
        &self.programs.version
    }

    /// The tag of etcd's image on all hosts.
    pub fn etcd_tag(&self) -> String {
        format!("{}-0", self.programs.etcd)
    }

    /// Where what is of this cluster lies on the machine: the lab's directory, or one of its own in that for a cluster on another host.
    pub fn dir(&self) -> PathBuf {
        match self.host.as_str() {
            HOST => self.lab.dir().to_owned(),
            other => self.lab.dir().join("nodes").join(other),
        }
    }

    /// Runs a shell command on the node, and gives what it prints.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn ssh(&self, shell: &str) -> Result<String> {
        let mut ssh = self.lab.ssh_command(&self.host)?;
        command::output(ssh.arg("--").arg(shell))
    }

    /// The administrator's kubeconfig; its address is in the lab's network alone.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir().join("node.kubeconfig")
    }

    /// Where the Kubernetes programs are.
    pub fn programs(&self) -> &Path {
        &self.programs.dir
    }

    /// kubectl as an administrator, in the lab's network.
    pub fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut kubectl = self.programs.kubectl(&self.kubeconfig());
        kubectl.args(arguments);
        self.lab.enter_network(&kubectl)
    }

    /// Cuts the power of the node, gives it back, and waits until the API answers again. Nobody starts anything by hand.
    ///
    /// # Errors
    ///
    /// The node does not boot, or its API does not answer within five minutes.
    pub fn cut_power(&self) -> Result<()> {
        self.lab.kill_host(&self.host)?;
        self.lab.start_host(&self.host)?;
        self.await_api().context("after a power cut")
    }

    /// Kills the API server and its database at once, as a crash would, and waits until the API answers again. The kubelet
    /// starts both.
    ///
    /// # Errors
    ///
    /// They do not run, or the API does not answer within five minutes.
    pub fn crash_api(&self) -> Result<()> {
        let kill = "pkill -KILL -x etcd && pkill -KILL -x kube-apiserver";
        self.ssh(kill).context("kill the API")?;
        self.await_api().context("after a crash")
    }

    fn await_api(&self) -> Result<()> {
        let deadline = Instant::now() + API_RETURNS;
        let ready = ["get", "--raw", "/readyz", "--request-timeout=5s"];
        while let Err(error) = command::output(&mut self.kubectl(&ready)) {
            if Instant::now() > deadline {
                return Err(error.context("the API did not come back"));
            }
            thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// Puts an image (an OCI layout in a tar) into the node's containerd.
    ///
    /// # Errors
    ///
    /// The file cannot be read or imported.
    pub fn import(&self, image: &Path) -> Result<()> {
        self.lab.import(&self.host, image)
    }

    fn run(&self, host: &str, script: &str, arguments: &[&str]) -> Result<()> {
        // By a file, so that nobody has to write while somebody else does not read.
        let path = self.dir().join(format!("input-{host}"));
        fs::write(&path, script).context("write the input")?;
        let mut ssh = self.lab.ssh_command(host)?;
        ssh.args(["--", "bash", "-s"]).args(arguments);
        command::output_from(fs::File::open(&path)?, &mut ssh).map(drop)
    }
}

const HOST: &str = "host-1";
/// Half a minute on an idle machine.
const API_RETURNS: Duration = Duration::from_mins(5);
/// The pods of a cluster of one node.
const ONLY_PODS: &str = "10.244.0.0/24";
const PREPARE: &str = include_str!("scripts/prepare.sh");
const SCRIPT: &str = include_str!("scripts/node.sh");
