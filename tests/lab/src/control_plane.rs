//! A real control plane without nodes: etcd, kube-apiserver and kube-controller-manager on loopback.
//!
//! Ready after about three seconds. Everything hangs on one owner (see [`ControlPlane`]), has a directory of its own and
//! free ports, so several stand beside each other.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::owner::{self, Owner};
use crate::programs::kubernetes::Servers;
use crate::programs::{self, Kubernetes, Programs};
use crate::{Progress, command};

mod certificates;

use certificates::Authority;

/// One program of a control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
}

impl Part {
    const fn program(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
        }
    }
}

/// A running control plane. It ends with this value, and with this process however that ends: its processes are in a
/// process namespace whose first process waits on a pipe that only this process holds.
#[derive(Debug)]
pub struct ControlPlane {
    programs: Programs,
    servers: Servers,
    ports: Ports,
    running: Vec<(Part, Child)>,
    /// Last, so that it goes last.
    owner: Owner,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    etcd: u16,
    peer: u16,
    api: u16,
}

impl ControlPlane {
    /// Starts one and waits until it is ready. etcd and kubectl are those of the newest Kubernetes.
    ///
    /// # Errors
    ///
    /// Not root, the programs cannot be built, or one of them ends; the error shows the end of its log.
    pub fn start(kubernetes: Kubernetes, progress: &dyn Progress) -> Result<Self> {
        let programs = programs::ensure(progress)?;
        let servers = kubernetes.servers(progress)?;
        progress.begin(
            &format!("Kubernetes {} control plane", servers.version),
            "about 5 s",
        );
        let ports = Ports::free()?;
        let owner = Owner::start("control-planes")?;
        let authority = Authority::new(owner.dir())?;
        let server = format!("https://127.0.0.1:{}", ports.api);
        authority.kubeconfig(&server, "admin", Some("system:masters"))?;
        authority.kubeconfig(&server, "system:kube-controller-manager", None)?;
        let mut plane = Self {
            programs,
            servers,
            ports,
            running: Vec::new(),
            owner,
        };
        plane.start_part(Part::Etcd)?;
        plane.start_part(Part::ApiServer)?;
        // A controller manager ends when the API server lets it wait for ten seconds, and a busy machine does.
        plane.await_answers(&[READY])?;
        plane.start_part(Part::ControllerManager)?;
        plane.await_ready()?;
        progress.end();
        Ok(plane)
    }

    /// The kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir().join("admin.kubeconfig")
    }

    /// Of Kubernetes, without a leading v.
    pub fn version(&self) -> &str {
        &self.servers.version
    }

    /// The directory with logs, certificates and etcd's data.
    pub fn dir(&self) -> &Path {
        self.owner.dir()
    }

    /// Where the programs of the newest Kubernetes are, kubectl among them.
    pub fn programs(&self) -> &Path {
        &self.programs.dir
    }

    /// kubectl as an administrator.
    pub fn kubectl(&self) -> Command {
        self.programs.kubectl(&self.kubeconfig())
    }

    /// Applies the definitions in a file, and waits until these and all others are served.
    ///
    /// # Errors
    ///
    /// They are refused, or not served within half a minute.
    pub fn define(&self, file: &Path) -> Result<()> {
        command::output(
            self.kubectl()
                .args(["apply", "--server-side", "-f"])
                .arg(file),
        )?;
        self.await_definitions()
    }

    /// Waits until every definition is served.
    ///
    /// # Errors
    ///
    /// One is not within half a minute.
    pub fn await_definitions(&self) -> Result<()> {
        let established = ["--for=condition=Established", "crd", "--all"];
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let mut wait = self.kubectl();
            wait.arg("wait").args(established).arg("--timeout=30s");
            match command::output(&mut wait) {
                // kubectl does not wait for one that is so new that it has no conditions at all.
                Err(error) if Instant::now() < deadline => {
                    if !error.to_string().contains(NO_CONDITIONS) {
                        return Err(error);
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
                waited => return waited.map(drop),
            }
        }
    }

    /// etcdctl for this etcd.
    pub fn etcdctl(&self) -> Command {
        let mut etcdctl = Command::new(self.programs.dir.join("etcdctl"));
        etcdctl.arg(format!("--endpoints=http://127.0.0.1:{}", self.ports.etcd));
        etcdctl
    }

    /// Kills one of the programs at once, as a crash would.
    ///
    /// # Errors
    ///
    /// It does not run.
    pub fn kill(&mut self, part: Part) -> Result<()> {
        let place = self
            .running
            .iter()
            .position(|(running, _)| *running == part)
            .with_context(|| format!("{} does not run", part.program()))?;
        let (_, mut child) = self.running.swap_remove(place);
        // nsenter stands between. It ends once the program has, and with that its ports are free again.
        let program = owner::child_of(child.id()).context("the program has ended before")?;
        let id = nix::unistd::Pid::from_raw(program.try_into()?);
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGKILL).context("kill")?;
        child.wait().context("wait for the end")?;
        Ok(())
    }

    /// Starts a killed program again and waits until the API answers.
    ///
    /// # Errors
    ///
    /// It runs already, or does not start.
    pub fn revive(&mut self, part: Part) -> Result<()> {
        ensure!(
            self.running.iter().all(|(running, _)| *running != part),
            "{} runs already",
            part.program()
        );
        self.start_part(part)?;
        self.await_ready()
    }

    fn start_part(&mut self, part: Part) -> Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log(part))?;
        let dir = match part {
            Part::Etcd => &self.programs.dir,
            Part::ApiServer | Part::ControllerManager => &self.servers.dir,
        };
        let child = self
            .owner
            .enter(&dir.join(part.program()))
            .args(self.arguments(part))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", part.program()))?;
        self.running.push((part, child));
        Ok(())
    }

    fn log(&self, part: Part) -> PathBuf {
        self.dir().join(format!("{}.log", part.program()))
    }

    fn arguments(&self, part: Part) -> Vec<String> {
        let Ports { etcd, peer, api } = self.ports;
        let file = |name: &str| self.dir().join(name).display().to_string();
        match part {
            Part::Etcd => vec![
                "--name=testenv".into(),
                format!("--data-dir={}", file("etcd")),
                format!("--listen-client-urls=http://127.0.0.1:{etcd}"),
                format!("--advertise-client-urls=http://127.0.0.1:{etcd}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-cluster=testenv=http://127.0.0.1:{peer}"),
                "--logger=zap".into(),
                "--log-level=warn".into(),
            ],
            Part::ApiServer => vec![
                format!("--etcd-servers=http://127.0.0.1:{etcd}"),
                format!("--secure-port={api}"),
                "--bind-address=127.0.0.1".into(),
                "--endpoint-reconciler-type=none".into(),
                "--service-cluster-ip-range=10.254.0.0/24".into(),
                "--authorization-mode=Node,RBAC".into(),
                "--allow-privileged=true".into(),
                format!("--client-ca-file={}", file("ca.crt")),
                format!("--tls-cert-file={}", file("server.crt")),
                format!("--tls-private-key-file={}", file("server.key")),
                "--service-account-issuer=https://kubernetes.default.svc".into(),
                format!("--service-account-key-file={}", file("accounts.pub")),
                format!(
                    "--service-account-signing-key-file={}",
                    file("accounts.key")
                ),
            ],
            Part::ControllerManager => vec![
                format!(
                    "--kubeconfig={}",
                    file("system:kube-controller-manager.kubeconfig")
                ),
                "--use-service-account-credentials".into(),
                format!(
                    "--service-account-private-key-file={}",
                    file("accounts.key")
                ),
                format!("--root-ca-file={}", file("ca.crt")),
                "--leader-elect=false".into(),
                "--secure-port=0".into(),
            ],
        }
    }

    fn await_ready(&mut self) -> Result<()> {
        // The default namespace's account is the controller manager's first visible work.
        let account = ["get", "serviceaccount", "default", "-n", "default"];
        self.await_answers(&[READY, &account])
    }

    /// Waits until the API answers all of these.
    fn await_answers(&mut self, asked: &[&[&str]]) -> Result<()> {
        let deadline = Instant::now() + Duration::from_mins(1);
        while !asked.iter().all(|arguments| self.answers(arguments)) {
            for (part, child) in &mut self.running {
                if let Some(status) = child.try_wait()? {
                    let log = self.owner.dir().join(format!("{}.log", part.program()));
                    let log = fs::read_to_string(log).unwrap_or_default();
                    bail!(
                        "{} ended ({status}): {}",
                        part.program(),
                        command::tail(&log)
                    );
                }
            }
            ensure!(Instant::now() < deadline, "the API did not become ready");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn answers(&self, arguments: &[&str]) -> bool {
        self.kubectl()
            .arg("--request-timeout=2s")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .is_ok_and(|output| output.status.success())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // In this order the API server does not complain of a lost etcd; the owner would end them all the same.
        for (part, child) in self.running.iter_mut().rev() {
            if let Err(error) = child.kill().and_then(|()| child.wait().map(drop)) {
                eprintln!("{}: {error}", part.program());
            }
        }
    }
}

impl Ports {
    fn free() -> Result<Self> {
        // All three are held until all are known, so that they differ.
        let listen = || TcpListener::bind(("127.0.0.1", 0)).context("find a free port");
        let (etcd, peer, api) = (listen()?, listen()?, listen()?);
        Ok(Self {
            etcd: etcd.local_addr()?.port(),
            peer: peer.local_addr()?.port(),
            api: api.local_addr()?.port(),
        })
    }
}

/// What an API server answers that has made its own objects.
const READY: &[&str] = &["get", "--raw", "/readyz"];

/// What kubectl says of a definition that has no conditions yet.
const NO_CONDITIONS: &str = ".status.conditions accessor error: <nil>";
