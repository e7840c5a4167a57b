//! `cargo xtask hosts`: throw-away hosts by hand.
//!
//! `up` is the owner's other end: the hosts live as long as it runs. Where it left word of them is one file
//! in the runtime directory, so the other commands need no name.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use lab::base::Base;
use lab::progress::Terminal;
use lab::{Lab, LabOptions, Presence};

use crate::keeper;

/// What to do with the hosts.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start hosts and keep them until this command ends (Ctrl-C, or `hosts down`).
    Up(Up),
    /// Open a shell on a host, or run a command there.
    Ssh {
        /// `host-1`, `host-2`, ...
        name: String,
        /// The command; none opens a shell.
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Run a command of this machine in the hosts' network.
    Exec {
        /// The program and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Cut the power of a host.
    Kill {
        /// `host-1`, `host-2`, ...
        name: String,
    },
    /// Boot a host that was killed.
    Start {
        /// `host-1`, `host-2`, ...
        name: String,
    },
    /// List the hosts.
    Status,
    /// Stop the hosts and remove all traces of them.
    Down,
}

/// What hosts to start.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Hosts to boot.
    #[arg(long, default_value_t = 3)]
    count: u8,
    /// Further hosts that swallow every packet.
    #[arg(long, default_value_t = 0)]
    dead: u8,
    /// Further hosts that refuse every connection.
    #[arg(long, default_value_t = 0)]
    refusing: u8,
    /// Without containerd, for kubespray.
    #[arg(long)]
    bare: bool,
    /// Without the Kubernetes programs and images.
    #[arg(long)]
    plain: bool,
    /// Return when the hosts are up; `hosts down` ends them.
    #[arg(long)]
    detach: bool,
}

/// Runs one of the commands.
pub(crate) fn run(command: Command) -> Result<()> {
    match command {
        Command::Up(up) if up.detach => keeper::detach(&record()),
        Command::Up(up) => stay(&up),
        Command::Ssh { name, command } => {
            let mut ssh = current()?.0.ssh_command(&name)?;
            if !command.is_empty() {
                ssh.arg("--").args(command);
            }
            Err(ssh.exec()).context("start ssh")
        }
        Command::Exec { command } => exec(&command),
        Command::Kill { name } => current()?.0.kill_host(&name),
        Command::Start { name } => current()?.0.start_host(&name),
        Command::Status => {
            let (lab, keeper) = current()?;
            print(&lab);
            println!("kept by process {keeper}");
            Ok(())
        }
        Command::Down => down(),
    }
}

fn stay(up: &Up) -> Result<()> {
    if let Ok((_, keeper)) = current() {
        bail!("hosts are up already, kept by process {keeper}; `cargo xtask hosts down` ends them");
    }
    let progress = Terminal::default();
    let mut options = LabOptions {
        hosts: up.count,
        dead: up.dead,
        refusing: up.refusing,
        base: if up.bare {
            Base::Bare
        } else {
            Base::Containerd
        },
        ..LabOptions::default()
    };
    if !up.plain {
        options = options.with_kubernetes(&progress)?;
    }
    let mut lab = Lab::start(&options, &progress)?;
    let signals = keeper::block_signals()?;
    let record = record();
    fs::write(
        &record,
        format!("{}\n{}\n", process::id(), lab.dir().display()),
    )
    .with_context(|| format!("write {}", record.display()))?;
    print(&lab);
    keeper::keep(&signals, &record)?;
    lab.stop()
}

fn exec(command: &[String]) -> Result<()> {
    let (lab, _) = current()?;
    let [program, arguments @ ..] = command else {
        bail!("no command is given")
    };
    let mut inner = process::Command::new(program);
    inner.args(arguments);
    Err(lab.enter_network(&inner).exec()).with_context(|| format!("start {program}"))
}

fn down() -> Result<()> {
    let (lab, keeper) = current()?;
    keeper::end(keeper, lab.dir())
}

fn print(lab: &Lab) {
    for host in lab.hosts() {
        let state = match host.presence {
            Presence::Live => "live",
            Presence::Dead => "dead (connections time out)",
            Presence::Refusing => "refuses connections",
        };
        println!("{:10} {:12} {state}", host.name, host.address);
    }
    println!("key         {}", lab.key_path().display());
    println!("known hosts {}", lab.known_hosts().display());
    println!("network     nsenter --net --target {} COMMAND", lab.owner());
}

/// The hosts that `up` keeps, and its process.
fn current() -> Result<(Lab, i32)> {
    let hint = "no hosts are up; `cargo xtask hosts up` starts some";
    let text = fs::read_to_string(record()).context(hint)?;
    let (keeper, dir) = text.trim_end().split_once('\n').context(hint)?;
    Ok((
        Lab::attach(dir.as_ref()).context(hint)?,
        keeper.parse().context(hint)?,
    ))
}

fn record() -> PathBuf {
    keeper::record("windlass-hosts")
}
