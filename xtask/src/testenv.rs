//! `cargo xtask testenv`: a real Kubernetes to try things on, and what it is made of.
//!
//! `up` is the owner's other end: what it started lives as long as it runs. Where it left word of it is one file in the
//! runtime directory, so the other commands need no name.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use lab::base::{self, Base};
use lab::progress::Terminal;
use lab::{ControlPlane, Kubernetes, Lab, LabOptions, Node, images, programs};

use crate::keeper;

/// What to do with the test environment.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build what hosts need (Kubernetes programs, Debian root, images) and print where it is.
    Build,
    /// Start a real Kubernetes and keep it until this command ends (Ctrl-C, or `testenv down`).
    Up(Up),
    /// Run a command of this machine with KUBECONFIG, kubectl and the network of what is up.
    Exec {
        /// The program and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// End it and remove all traces of it.
    Down,
}

/// What to start.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// A whole cluster of one node, with pods, network, logs and exec, instead of an API server on loopback.
    #[arg(long)]
    node: bool,
    /// The version of that API server, as a whole or as its minor: the oldest or the newest that Windlass is tested with.
    #[arg(
        long,
        value_name = "VERSION",
        default_value = "newest",
        conflicts_with = "node"
    )]
    kubernetes: Kubernetes,
    /// With --node: further hosts beside the node, for an operator in the cluster to work on.
    #[arg(long, default_value_t = 0, requires = "node")]
    hosts: u8,
    /// Return when it is up; `testenv down` ends it.
    #[arg(long)]
    detach: bool,
}

/// Runs one of the commands.
pub(crate) fn run(command: Command) -> Result<()> {
    match command {
        Command::Build => build(),
        Command::Up(up) if up.detach => keeper::detach(&Record::path()),
        Command::Up(up) => stay(&up),
        Command::Exec { command } => exec(&command),
        Command::Down => down(),
    }
}

fn build() -> Result<()> {
    let progress = Terminal::default();
    let programs = programs::ensure(&progress)?;
    let oldest = Kubernetes::Oldest.servers(&progress)?;
    let root = base::ensure(Base::Containerd, &progress)?;
    let images = images::ensure(&programs, &progress)?;
    println!(
        "programs  {}  (Kubernetes {})",
        programs.dir.display(),
        programs.version
    );
    println!(
        "oldest    {}  (API server of Kubernetes {})",
        oldest.dir.display(),
        oldest.version
    );
    println!("root      {}", root.display());
    println!("images    {}", images.display());
    Ok(())
}

/// What is up; it ends with the value.
enum Environment {
    ControlPlane(Box<ControlPlane>),
    Node(Box<Node>),
}

impl Environment {
    fn dir(&self) -> &Path {
        match self {
            Self::ControlPlane(plane) => plane.dir(),
            Self::Node(node) => node.lab.dir(),
        }
    }

    fn record(&self) -> Record {
        let (kubeconfig, programs) = match self {
            Self::ControlPlane(plane) => (plane.kubeconfig(), plane.programs()),
            Self::Node(node) => (node.kubeconfig(), node.programs()),
        };
        Record {
            keeper: process::id().to_string(),
            dir: self.dir().to_owned(),
            kubeconfig,
            programs: programs.to_owned(),
        }
    }
}

fn stay(up: &Up) -> Result<()> {
    if let Ok(record) = Record::read() {
        bail!(
            "a test environment is up already, kept by process {}; `cargo xtask testenv down` ends it",
            record.keeper
        );
    }
    let progress = Terminal::default();
    let environment = if up.node {
        let options = LabOptions {
            hosts: 1 + up.hosts,
            ..LabOptions::default()
        };
        Environment::Node(Box::new(Node::start(options, &progress)?))
    } else {
        Environment::ControlPlane(Box::new(ControlPlane::start(up.kubernetes, &progress)?))
    };
    let signals = keeper::block_signals()?;
    let record = environment.record();
    record.write()?;
    println!("kubeconfig  {}", record.kubeconfig.display());
    println!("kubectl     {}", record.programs.join("kubectl").display());
    if let Environment::Node(node) = &environment {
        for host in node.lab.hosts() {
            println!("{:10}  {}", host.name, host.address);
        }
        println!("key         {}", node.lab.key_path().display());
    }
    println!("try         cargo xtask testenv exec -- kubectl get --raw /readyz");
    keeper::keep(&signals, &Record::path())?;
    drop(environment);
    Ok(())
}

fn exec(command: &[String]) -> Result<()> {
    let record = Record::read()?;
    let [program, arguments @ ..] = command else {
        bail!("no command is given")
    };
    let path = env::var_os("PATH").unwrap_or_default();
    let path =
        env::join_paths(std::iter::once(record.programs.clone()).chain(env::split_paths(&path)))?;
    let mut inner = process::Command::new("env");
    inner.arg(program).args(arguments);
    inner
        .env("KUBECONFIG", &record.kubeconfig)
        .env("KUBECACHEDIR", record.dir.join("kubectl-cache"))
        .env("PATH", path);
    // A node is in its lab's network, a control plane on this machine's loopback.
    let mut outer = match Lab::attach(&record.dir) {
        Ok(lab) => lab.enter_network(&inner),
        Err(_) => inner,
    };
    Err(outer.exec()).with_context(|| format!("start {program}"))
}

fn down() -> Result<()> {
    let record = Record::read()?;
    keeper::end(record.process()?, &record.dir)
}

/// What `up` tells the other commands.
struct Record {
    keeper: String,
    dir: PathBuf,
    kubeconfig: PathBuf,
    programs: PathBuf,
}

impl Record {
    fn path() -> PathBuf {
        keeper::record("windlass-testenv")
    }

    fn write(&self) -> Result<()> {
        let Self {
            keeper,
            dir,
            kubeconfig,
            programs,
        } = self;
        let text = format!(
            "{keeper}\n{}\n{}\n{}\n",
            dir.display(),
            kubeconfig.display(),
            programs.display()
        );
        let path = Self::path();
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }

    /// Of an environment that lives: one whose keeper was killed is gone, and its record says nothing.
    fn read() -> Result<Self> {
        let hint = "no test environment is up; `cargo xtask testenv up` starts one";
        let text = fs::read_to_string(Self::path()).context(hint)?;
        let mut lines = text.lines();
        let mut next = || lines.next().context(hint);
        let record = Self {
            keeper: next()?.to_owned(),
            dir: next()?.into(),
            kubeconfig: next()?.into(),
            programs: next()?.into(),
        };
        let arguments = fs::read(format!("/proc/{}/cmdline", record.keeper)).unwrap_or_default();
        if !String::from_utf8_lossy(&arguments).contains("testenv") {
            bail!(hint);
        }
        Ok(record)
    }

    fn process(&self) -> Result<i32> {
        self.keeper.parse().context("no number of a process")
    }
}
