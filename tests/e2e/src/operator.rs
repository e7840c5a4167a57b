//! A Windlass that works beside the test, as a process of its own.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use lab::{ControlPlane, Node, command::output};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{root, wait_until, windlass};
use charged::Charged;

mod charged;

/// `windlass` of a node's administrator, whose address is in the lab's network alone.
pub(crate) fn beside(node: &Node, windlass: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(windlass);
    command
        .arg("--data-dir")
        .arg(node.dir().join("windlass"))
        .arg("--kubeconfig")
        .arg(node.kubeconfig())
        .args(arguments);
    node.lab.enter_network(&command)
}

/// Gives a cluster the kinds that all of Windlass needs, and those of `further`, an option of `windlass crds`; they are served then.
pub(crate) fn define(node: &Node, windlass: &Path, further: &str) -> Result<()> {
    for kinds in [["crds"].as_slice(), &["crds", further]] {
        let definitions = output(Command::new(windlass).args(kinds))?;
        let file = node.dir().join("crds.yaml");
        fs::write(&file, definitions).context("write the definitions")?;
        let file = file.display().to_string();
        output(&mut node.kubectl(&["apply", "--server-side", "--filename", &file]))?;
    }
    let wait = ["wait", "--for=condition=Established", "crd", "--all"];
    output(&mut node.kubectl(&[&wait[..], &["--timeout=60s"]].concat()))?;
    Ok(())
}

/// What a process takes of the machine's memory, in MiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Now.
    pub now: u64,
    /// At most, since it was started.
    pub most: u64,
    /// Of what it has now what is its own, and no page of a file.
    pub anonymous: u64,
    /// Its working set, as `kubectl top` shows that of a container, where it is counted.
    pub working_set: Option<u64>,
}

/// Ended when it is dropped; what it said is shown if the test fails.
pub struct Operator {
    child: Child,
    log: PathBuf,
    /// Behind the process, which it outlives.
    charged: Option<Charged>,
}

impl Operator {
    /// Starts a command of `windlass` in the repository.
    ///
    /// # Errors
    ///
    /// The log cannot be written, or the program cannot be started.
    pub fn start(command: &mut Command, log: PathBuf) -> Result<Self> {
        let file = fs::File::create(&log).context("make the log")?;
        let child = command
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(file.try_clone().context("share the log")?)
            .stderr(file)
            .spawn()
            .context("start windlass")?;
        Ok(Self {
            child,
            log,
            charged: None,
        })
    }

    /// The same, and its working set is counted.
    ///
    /// # Errors
    ///
    /// The log cannot be written, the program cannot be started, or this user may make no control group.
    pub fn start_counted(command: &Command, log: PathBuf) -> Result<Self> {
        let name = log.file_stem().unwrap_or_default().to_string_lossy();
        let charged = Charged::make(&name)?;
        let mut operator = Self::start(&mut charged.enter(command), log)?;
        operator.charged = Some(charged);
        Ok(operator)
    }

    /// What it said up to now.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The number of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = Pid::from_raw(self.child.id().try_into()?);
        kill(id, signal).context("send a signal to windlass")
    }

    /// What the process takes.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn memory(&self) -> Result<Memory> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let of = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let kibibytes = line.and_then(|line| line.split_whitespace().next());
            let kibibytes = kibibytes.with_context(|| format!("{path} has no {field}"))?;
            Ok::<u64, anyhow::Error>(kibibytes.parse::<u64>()? / 1024)
        };
        let working_set = self.charged.as_ref().map(Charged::working_set);
        Ok(Memory {
            now: of("VmRSS:")?,
            most: of("VmHWM:")?,
            anonymous: of("RssAnon:")?,
            working_set: working_set.transpose()?.map(|kibibytes| kibibytes / 1024),
        })
    }

    /// Whether the process has ended.
    ///
    /// # Errors
    ///
    /// The system does not say.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait().context("ask for its end")?.is_some())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
    }
}

/// One of the operators of a control plane; of several, one leads.
pub struct Replica {
    /// The process.
    pub process: Operator,
    probes: u16,
    metrics: u16,
}

impl Replica {
    /// Starts `windlass controller` with runners as Jobs, and with more arguments.
    ///
    /// # Errors
    ///
    /// There is no free port, or the program cannot be started.
    pub fn start(
        plane: &ControlPlane,
        kubeconfig: &Path,
        name: &str,
        more: &[&str],
    ) -> Result<Self> {
        let free = || {
            let free = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
            Ok::<_, anyhow::Error>((free.local_addr().context("read the port")?.port(), free))
        };
        let ((probes, one), (metrics, other)) = (free()?, free()?);
        drop((one, other));
        let mut command = Command::new(windlass()?);
        command.arg("--data-dir").arg(plane.dir().join(name));
        command.arg("--kubeconfig").arg(kubeconfig);
        command.args([
            "controller",
            "--runners=job",
            "--lease=windlass-system/windlass",
        ]);
        // The bundle as this machine has it, and as the images do.
        let roots = format!("--source-root={},/opt/windlass", crate::root().display());
        command.arg(roots);
        command.arg(format!("--listen=127.0.0.1:{probes}"));
        command
            .arg(format!("--metrics=127.0.0.1:{metrics}"))
            .args(more);
        let log = plane.dir().join(format!("{name}.log"));
        Ok(Self {
            process: Operator::start(&mut command, log)?,
            probes,
            metrics,
        })
    }

    /// What it answers to a GET, or nothing while it does not.
    pub fn get(&self, path: &str) -> Option<String> {
        let port = if path == "/metrics" {
            self.metrics
        } else {
            self.probes
        };
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// Whether it says that it is "leading" or "standing by".
    pub fn stands(&self, standing: &str) -> bool {
        self.get("/readyz")
            .is_some_and(|answer| answer.ends_with(standing))
    }

    /// Waits until it stands so.
    ///
    /// # Errors
    ///
    /// It does not in this time.
    pub fn await_standing(&self, standing: &str, limit: Duration) -> Result<()> {
        wait_until(&format!("windlass to be {standing}"), limit, || {
            Ok(self.stands(standing).then_some(()))
        })
    }
}
