//! Throw-away hosts under one owner process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::base::{self, Base};
use crate::declare::declare;
use crate::{Progress, cache, command, images, packages, programs, sweep};

/// What to start.
#[derive(Debug, Clone)]
pub struct LabOptions {
    /// Hosts that boot; `host-1` has the address 10.77.0.11.
    pub hosts: u8,
    /// Further hosts that are declared but swallow every packet.
    pub dead: u8,
    /// Further hosts that are declared but refuse every connection.
    pub refusing: u8,
    /// Where labs keep their directories; default: `labs` in the cache. Not on an overlay file system.
    pub dir: Option<PathBuf>,
    /// What the hosts have installed.
    pub base: Base,
    /// Shown to every host at `/opt/windlass/bin`, read-only.
    pub programs: Option<PathBuf>,
    /// Shown to every host at `/opt/windlass/images`, read-only.
    pub images: Option<PathBuf>,
    /// Programs and images of another version, shown likewise below `/opt/windlass/older`.
    pub older: Option<(PathBuf, PathBuf)>,
}

impl Default for LabOptions {
    /// Three hosts without the Kubernetes programs.
    fn default() -> Self {
        Self {
            hosts: 3,
            dead: 0,
            refusing: 0,
            dir: None,
            base: Base::default(),
            programs: None,
            images: None,
            older: None,
        }
    }
}

impl LabOptions {
    /// With the Kubernetes programs and images, made where the cache lacks them.
    ///
    /// # Errors
    ///
    /// What is missing cannot be built.
    pub fn with_kubernetes(mut self, progress: &dyn Progress) -> Result<Self> {
        let programs = programs::ensure(progress)?;
        self.images = Some(images::ensure(&programs, progress)?);
        self.programs = Some(programs.dir);
        Ok(self)
    }

    /// With those of an older version that nodes are upgraded from, as well.
    ///
    /// # Errors
    ///
    /// What is missing cannot be built.
    pub fn with_older_kubernetes(
        mut self,
        older: programs::Kubernetes,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let programs = older.programs(progress)?;
        let images = images::ensure(&programs, progress)?;
        self.older = Some((programs.dir, images));
        Ok(self)
    }
}

/// What is to be expected at a host's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    /// A booted host with sshd.
    Live,
    /// Nothing answers: connections time out.
    Dead,
    /// Connections are refused.
    Refusing,
}

/// One host of a lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Host {
    /// `host-1`, `host-2`, ...: first the live ones, then the dead, then the refusing.
    pub name: String,
    /// Its address, in the lab's network namespace only.
    pub address: Ipv4Addr,
    /// What is to be expected there.
    pub presence: Presence,
    /// Its line for a `known_hosts` file; none for hosts that are not there.
    pub known_hosts: Option<String>,
}

/// Booted Debian hosts that only this lab's network namespace can reach.
///
/// # The owner
///
/// All hangs on one process, the first one of its own mount, process and network namespaces, which does
/// nothing but wait for its standard input to end. This process holds the other end: when it ends, in
/// whatever way (Ctrl-C, a panic, `kill -9`), so does the owner, and the kernel ends every process of the lab
/// and frees its mounts, interfaces and namespaces. What no kernel removes, the lab's directory and its
/// empty control groups, is removed by [`Lab::stop`] and by the next start of any lab.
///
/// # Processes in the lab
///
/// [`Lab::enter`] puts a process into the lab for good: its death is the lab's at the latest. Such a process may
/// be killed and started again while the lab lives; its own children (a runner that shall outlive its
/// operator) stay and belong to the owner. [`Lab::enter_network`] lends only the network: the process keeps
/// its place under the caller and survives the lab.
#[derive(Debug)]
pub struct Lab {
    state: State,
    /// The owner's lifeline and `unshare`, its parent; none for a lab that belongs to another process.
    owner: Option<(ChildStdin, Child)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct State {
    dir: PathBuf,
    owner: u32,
    hosts: Vec<Host>,
    base: PathBuf,
    programs: Option<PathBuf>,
    images: Option<PathBuf>,
    #[serde(default)]
    older: Option<(PathBuf, PathBuf)>,
}

impl Lab {
    /// Starts the owner and boots the hosts; about three seconds for three hosts.
    ///
    /// # Errors
    ///
    /// Not root, a missing package that cannot be installed, or a host that did not come up; the lab is
    /// removed again.
    pub fn start(options: &LabOptions, progress: &dyn Progress) -> Result<Self> {
        ensure!(nix::unistd::geteuid().is_root(), "hosts need root");
        let count =
            u16::from(options.hosts) + u16::from(options.dead) + u16::from(options.refusing);
        ensure!(
            count <= 200,
            "{count} hosts are more than the lab's network has addresses for"
        );
        packages::ensure(packages::HOSTS, progress)?;
        let base = base::ensure(options.base, progress)?;
        let labs = options.dir.clone().unwrap_or_else(default_dir);
        sweep::dead(&labs)?;
        progress.begin(
            "hosts",
            &format!("{} of them, a few seconds", options.hosts),
        );
        let lab = Self::own(options, base, &labs)?;
        lab.boot_all(progress)?;
        progress.end();
        Ok(lab)
    }

    /// A lab that another process started, by its directory. It is not stopped when this value goes.
    ///
    /// # Errors
    ///
    /// There is no such lab, or it is dead.
    pub fn attach(dir: &Path) -> Result<Self> {
        let text = fs::read(dir.join("state.json"))
            .with_context(|| format!("no lab in {}", dir.display()))?;
        let state: State = serde_json::from_slice(&text).context("read the lab's state")?;
        ensure!(is_alive(dir), "the lab in {} is dead", dir.display());
        Ok(Self { state, owner: None })
    }

    /// Boots a host that was killed; its disk is as it was, its processes and routes are gone.
    ///
    /// # Errors
    ///
    /// No such host, or it did not come up.
    pub fn start_host(&self, name: &str) -> Result<()> {
        let host = self.host(name)?;
        ensure!(
            host.presence == Presence::Live,
            "{name} is declared to be no live host"
        );
        self.boot(host)
    }

    /// Cuts the power of a host.
    ///
    /// # Errors
    ///
    /// No such host, or it does not run.
    pub fn kill_host(&self, name: &str) -> Result<()> {
        let host = self.host(name)?;
        command::output(self.script(KILL).env("HOST", &host.name))
            .with_context(|| format!("kill {name}"))?;
        Ok(())
    }

    /// Ends everything and removes what is left. Safe to call twice.
    ///
    /// # Errors
    ///
    /// The lab belongs to another process, or a directory cannot be removed.
    pub fn stop(&mut self) -> Result<()> {
        let Some((lifeline, mut unshare)) = self.owner.take() else {
            return Ok(());
        };
        drop(lifeline);
        unshare.wait().context("wait for the lab's owner")?;
        sweep::remove(&self.state.dir)
    }

    /// All hosts, also those that are declared to be dead.
    pub fn hosts(&self) -> &[Host] {
        &self.state.hosts
    }

    /// One host by its name.
    ///
    /// # Errors
    ///
    /// No such host.
    pub fn host(&self, name: &str) -> Result<&Host> {
        let known = || {
            self.hosts()
                .iter()
                .map(|host| host.name.as_str())
                .collect::<Vec<_>>()
        };
        self.hosts()
            .iter()
            .find(|host| host.name == name)
            .ok_or_else(|| anyhow!("no host {name}; there are {}", known().join(", ")))
    }

    /// The lab's directory: keys, `known_hosts`, and `hosts/NAME/console.log`.
    pub fn dir(&self) -> &Path {
        &self.state.dir
    }

    /// The private key (ed25519, no passphrase) that opens root's account on every host.
    pub fn key_path(&self) -> PathBuf {
        self.state.dir.join("id")
    }

    /// A `known_hosts` file with every live host, by address and by name.
    pub fn known_hosts(&self) -> PathBuf {
        self.state.dir.join("known_hosts")
    }

    /// The owner, as this process counts; the process to give to `nsenter --target`.
    pub fn owner(&self) -> u32 {
        self.state.owner
    }

    /// The address that the machine has on the lab's bridge, in the lab's network.
    pub fn gateway(&self) -> Ipv4Addr {
        GATEWAY
    }

    /// The command inside the lab: its network, its processes, its mounts (the machine's own files are the
    /// same). It dies with the lab, and it is killed (`SIGKILL`) when the process that this starts is.
    /// To send it another signal, send it to [`Lab::inner`] of the child.
    #[must_use]
    pub fn enter(&self, command: &Command) -> Command {
        self.entrance().enter(command)
    }

    /// The way into the lab, for what outlives a loan of it.
    pub fn entrance(&self) -> Entrance {
        Entrance(self.state.owner)
    }

    /// The command with the lab's network alone. It survives the lab, and its process is the child itself.
    #[must_use]
    pub fn enter_network(&self, command: &Command) -> Command {
        self.entrance().nsenter(&["--net", "--"], command)
    }

    /// The process that [`Lab::enter`]'s command became, as the machine counts it: `nsenter` is between.
    pub fn inner(child: &Child) -> Option<u32> {
        let id = child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    /// `ssh` to a host as root, with its host key checked; add the remote command as arguments.
    ///
    /// # Errors
    ///
    /// No such host.
    pub fn ssh_command(&self, host: &str) -> Result<Command> {
        let host = self.host(host)?;
        let mut ssh = Command::new("ssh");
        ssh.arg("-F")
            .arg("/dev/null")
            .arg("-i")
            .arg(self.key_path());
        for option in [
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "StrictHostKeyChecking=yes",
            "ConnectTimeout=10",
        ] {
            ssh.arg("-o").arg(option);
        }
        ssh.arg("-o").arg(format!(
            "UserKnownHostsFile={}",
            self.known_hosts().display()
        ));
        ssh.arg(format!("root@{}", host.address));
        Ok(self.enter_network(&ssh))
    }

    /// Runs a shell command on a host and waits for it; its exit code is ssh's.
    ///
    /// # Errors
    ///
    /// No such host. That the command fails is not an error.
    pub fn ssh(&self, host: &str, command: &str) -> Result<Output> {
        let mut ssh = self.ssh_command(host)?;
        ssh.arg("--")
            .arg(command)
            .stdin(Stdio::null())
            .output()
            .context("start ssh")
    }

    /// Puts an image (an OCI layout in a tar) into a host's containerd, as Kubernetes sees it.
    ///
    /// # Errors
    ///
    /// No such host, it has no containerd, or the file cannot be read.
    pub fn import(&self, host: &str, image: &Path) -> Result<()> {
        let mut ssh = self.ssh_command(host)?;
        let import = ["ctr", "--namespace", "k8s.io", "images", "import", "-"];
        ssh.arg("--").args(import);
        let file = File::open(image).with_context(|| format!("open {}", image.display()))?;
        command::output_from(file, &mut ssh)
            .with_context(|| format!("import {} on {host}", image.display()))?;
        Ok(())
    }

    fn own(options: &LabOptions, base: PathBuf, labs: &Path) -> Result<Self> {
        fs::create_dir_all(labs).with_context(|| format!("make {}", labs.display()))?;
        let dir = fs::canonicalize(labs)?;
        let dir = tempfile::Builder::new()
            .prefix("lab-")
            .rand_bytes(8)
            .tempdir_in(dir)?
            .keep();
        let hosts = declare(options, &dir)?;
        // The owner holds the lock by its standard output, so the lock tells for certain whether it lives.
        let lock = sweep::lock(&dir)?;
        let addresses = |presence| {
            let chosen = hosts.iter().filter(|host| host.presence == presence);
            chosen
                .map(|host| host.address.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let mut unshare = Command::new("unshare")
            .args([
                "--mount",
                "--pid",
                "--net",
                "--fork",
                "--kill-child",
                "bash",
                "-c",
                OWNER,
                "lab",
            ])
            .env("LAB", &dir)
            .env("BRIDGE", format!("{GATEWAY}/24"))
            .env("SILENT", addresses(Presence::Dead))
            .env("REFUSING", addresses(Presence::Refusing))
            .stdin(Stdio::piped())
            .stdout(lock)
            .stderr(File::create(dir.join("owner.log"))?)
            .spawn()
            .context("start the lab's owner")?;
        let lifeline = unshare
            .stdin
            .take()
            .context("the owner has no standard input")?;
        let state = State {
            dir,
            owner: 0,
            hosts,
            base,
            programs: options.programs.clone(),
            images: options.images.clone(),
            older: options.older.clone(),
        };
        let mut lab = Self {
            state,
            owner: Some((lifeline, unshare)),
        };
        lab.await_owner()?;
        Ok(lab)
    }

    /// Waits for the owner and writes down what [`Lab::attach`] reads.
    fn await_owner(&mut self) -> Result<()> {
        let dir = &self.state.dir;
        let deadline = Instant::now() + Duration::from_secs(20);
        while !dir.join("ready").exists() {
            let ended = match &mut self.owner {
                Some((_, unshare)) => unshare.try_wait()?,
                None => None,
            };
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(dir.join("owner.log")).unwrap_or_default();
                bail!("the lab's owner did not start: {}", command::tail(&log));
            }
            thread::sleep(Duration::from_millis(10));
        }
        let owner = fs::read_to_string(dir.join("owner.pid")).context("read the owner's number")?;
        self.state.owner = owner.trim().parse().context("the owner's number is none")?;
        let text = serde_json::to_vec_pretty(&self.state)?;
        fs::write(dir.join("state.json"), text).context("write the lab's state")
    }

    fn boot_all(&self, progress: &dyn Progress) -> Result<()> {
        let live = self
            .hosts()
            .iter()
            .filter(|host| host.presence == Presence::Live);
        thread::scope(|scope| {
            let boots: Vec<_> = live
                .map(|host| (host, scope.spawn(|| self.boot(host))))
                .collect();
            for (host, boot) in boots {
                boot.join()
                    .map_err(|_| anyhow!("booting {} panicked", host.name))??;
                progress.step(&format!("{} at {} is up", host.name, host.address));
            }
            Ok(())
        })
    }

    fn boot(&self, host: &Host) -> Result<()> {
        let name = self
            .state
            .dir
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let shown = |path: &Option<PathBuf>| path.clone().unwrap_or_default();
        let (programs, images) = self.state.older.clone().unzip();
        command::output(
            self.script(BOOT)
                .env("HOST", &host.name)
                .env("ADDRESS", host.address.to_string())
                .env("GATEWAY", GATEWAY.to_string())
                .env("BASE", &self.state.base)
                .env("CGROUP", sweep::control_group(&name))
                .env("PROGRAMS", shown(&self.state.programs))
                .env("IMAGES", shown(&self.state.images))
                .env("OLDER_PROGRAMS", shown(&programs))
                .env("OLDER_IMAGES", shown(&images)),
        )
        .with_context(|| format!("boot {}", host.name))?;
        Ok(())
    }

    /// One of our scripts in the owner's namespaces.
    fn script(&self, text: &str) -> Command {
        let mut bash = Command::new("bash");
        bash.args(["-c", text, "lab"]);
        let mut command = self
            .entrance()
            .nsenter(&["--mount", "--pid", "--net", "--"], &bash);
        command.env("LAB", &self.state.dir);
        command
    }
}

/// The way into a lab, by its owner.
#[derive(Clone, Copy, Debug)]
pub struct Entrance(u32);

impl Entrance {
    /// As [`Lab::enter`].
    #[must_use]
    pub fn enter(self, command: &Command) -> Command {
        let prefix = [
            "--mount",
            "--pid",
            "--net",
            "--wd=.",
            "--",
            "setpriv",
            "--pdeathsig",
            "KILL",
            "--",
        ];
        self.nsenter(&prefix, command)
    }

    fn nsenter(self, options: &[&str], command: &Command) -> Command {
        let mut nsenter = Command::new("nsenter");
        nsenter
            .arg("--target")
            .arg(self.0.to_string())
            .args(options);
        nsenter.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs().collect::<BTreeMap<_, _>>() {
            match value {
                Some(value) => nsenter.env(name, value),
                None => nsenter.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            nsenter.current_dir(directory);
        }
        nsenter
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("lab {}: {error:#}", self.state.dir.display());
        }
    }
}

/// Where labs keep their directories when nothing else is said.
pub(crate) fn default_dir() -> PathBuf {
    cache::dir().join("labs")
}

/// Whether the owner of the lab in this directory lives: it holds the lock.
fn is_alive(dir: &Path) -> bool {
    File::open(dir.join(sweep::LOCK)).is_ok_and(|lock| lock.try_lock().is_err())
}

const OWNER: &str = include_str!("scripts/owner.sh");
const BOOT: &str = include_str!("scripts/boot.sh");
const KILL: &str = include_str!("scripts/kill.sh");

/// The machine's own address on the bridge; hosts count up from .11.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
