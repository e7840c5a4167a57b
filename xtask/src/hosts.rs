//! `cargo xtask hosts`: throw-away hosts by hand.
//!
//! `up` is the owner's other end: the hosts live as long as it runs. Where it left word of them is one file
//! in the runtime directory, so the other commands need no name.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{self, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use lab::base::Base;
use lab::progress::Terminal;
use lab::{Lab, LabOptions, Presence};

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
        Command::Up(up) if up.detach => detach(),
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
    // Blocked before any thread starts, so that the signals wait until they are asked for below.
    let signals = nix::sys::signal::SigSet::from_iter([
        nix::sys::signal::Signal::SIGINT,
        nix::sys::signal::Signal::SIGTERM,
        nix::sys::signal::Signal::SIGHUP,
    ]);
    let mut lab = Lab::start(&options, &progress)?;
    signals.thread_block().context("block signals")?;
    let record = record();
    fs::write(
        &record,
        format!("{}\n{}\n", process::id(), lab.dir().display()),
    )
    .with_context(|| format!("write {}", record.display()))?;
    print(&lab);
    println!("{UP}");
    std::io::stdout().flush()?;
    signals.wait().context("wait for a signal")?;
    eprintln!("stopping the hosts");
    let _ = fs::remove_file(&record);
    lab.stop()
}

/// Runs `up` again in a session of its own and waits until it says that all is up.
fn detach() -> Result<()> {
    let log = record().with_extension("log");
    let errors = fs::File::create(&log).with_context(|| format!("make {}", log.display()))?;
    let mut child = process::Command::new("setsid")
        .arg(env::current_exe()?)
        .args(
            env::args_os()
                .skip(1)
                .filter(|argument| argument != "--detach"),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .context("start in the background")?;
    let output = child.stdout.take().context("no output to read")?;
    eprintln!(
        "starting hosts in the background; progress: {}",
        log.display()
    );
    for line in BufReader::new(output).lines() {
        let line = line?;
        if line == UP {
            return Ok(());
        }
        println!("{line}");
    }
    let text = fs::read_to_string(&log).unwrap_or_default();
    bail!("the hosts did not start:\n{text}")
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
    let keeper = nix::unistd::Pid::from_raw(keeper);
    nix::sys::signal::kill(keeper, nix::sys::signal::Signal::SIGTERM).context("end the keeper")?;
    let deadline = Instant::now() + Duration::from_mins(1);
    while lab.dir().exists() {
        if Instant::now() > deadline {
            bail!("{} is still there", lab.dir().display());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
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
    let runtime = env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_dir());
    let directory = runtime.unwrap_or_else(lab::cache::dir);
    let _ = fs::create_dir_all(&directory);
    directory.join("windlass-hosts")
}

/// The last line that `up` prints.
const UP: &str = "hosts are up";
