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
use crate::{Lab, LabOptions, Progress};

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
        let etcd = format!("{}-0", node.programs.etcd);
        let mut ssh = node.lab.ssh_command(host)?;
        ssh.args(["--", "bash", "-s", &address, &node.programs.version, &etcd]);
        node.feed(&mut ssh, SCRIPT.as_bytes())
            .context("raise the cluster")?;
        let config = node.ssh("cat /etc/kubernetes/admin.conf")?;
        fs::write(node.kubeconfig(), config).context("write the kubeconfig")?;
        progress.end();
        Ok(node)
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

    fn feed(&self, ssh: &mut Command, input: &[u8]) -> Result<()> {
        // By a file, so that nobody has to write while somebody else does not read.
        let path = self.dir().join("input");
        fs::write(&path, input).context("write the input")?;
        command::output_from(fs::File::open(&path)?, ssh).map(drop)
    }
}

const HOST: &str = "host-1";
/// Half a minute on an idle machine.
const API_RETURNS: Duration = Duration::from_mins(5);
const SCRIPT: &str = include_str!("scripts/node.sh");
