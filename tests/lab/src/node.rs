//! A whole Kubernetes cluster of one node on the first host of a lab, raised by kubeadm: pods, network, logs, exec.
//!
//! The lab's other hosts stay as they are: they are what an operator in the cluster works on. Pods reach them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::command;
use crate::programs::{self, Programs};
use crate::{Lab, LabOptions, Progress};

/// A cluster of one node, and the hosts beside it.
#[derive(Debug)]
pub struct Node {
    /// The hosts; the first one is the node.
    pub lab: Arc<Lab>,
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
        let node = Self {
            lab: Arc::new(Lab::start(&options, progress)?),
            programs,
        };
        progress.begin(
            &format!("Kubernetes {} on host-1", node.programs.version),
            "about 30 s",
        );
        let address = node.lab.host(HOST)?.address.to_string();
        let etcd = format!("{}-0", node.programs.etcd);
        let mut ssh = node.lab.ssh_command(HOST)?;
        ssh.args(["--", "bash", "-s", &address, &node.programs.version, &etcd]);
        node.feed(&mut ssh, SCRIPT.as_bytes())
            .context("raise the cluster")?;
        let config = node.lab.ssh(HOST, "cat /etc/kubernetes/admin.conf")?;
        ensure!(config.status.success(), "no kubeconfig on the node");
        fs::write(node.kubeconfig(), config.stdout).context("write the kubeconfig")?;
        progress.end();
        Ok(node)
    }

    /// The administrator's kubeconfig; its address is in the lab's network alone.
    pub fn kubeconfig(&self) -> PathBuf {
        self.lab.dir().join("node.kubeconfig")
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
        self.lab.kill_host(HOST)?;
        self.lab.start_host(HOST)?;
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
        let killed = self.lab.ssh(HOST, kill)?;
        ensure!(
            killed.status.success(),
            "kill the API: {}",
            String::from_utf8_lossy(&killed.stderr)
        );
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
        self.lab.import(HOST, image)
    }

    fn feed(&self, ssh: &mut Command, input: &[u8]) -> Result<()> {
        // By a file, so that nobody has to write while somebody else does not read.
        let path = self.lab.dir().join("input");
        fs::write(&path, input).context("write the input")?;
        command::output_from(fs::File::open(&path)?, ssh).map(drop)
    }
}

const HOST: &str = "host-1";
/// Half a minute on an idle machine.
const API_RETURNS: Duration = Duration::from_mins(5);
const SCRIPT: &str = include_str!("scripts/node.sh");
