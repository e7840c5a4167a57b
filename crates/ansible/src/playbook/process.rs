//! The ansible-playbook process: started, found again, waited for, killed.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessSession};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::{
    net::UnixDatagram,
    process::Command,
    sync::watch,
    time::{sleep, timeout},
};

use super::{Adopted, End, Error, Handle, Outcome, PlaybookRun, remains, remove, write};
use crate::{
    event::{self, PLUGIN, PLUGIN_NAME, Tally},
    file::{chance_directory, recorded_directory, remove_recorded},
};

/// ansible-playbook ends in under 0.2 s when it is terminated (measured); then it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// A process that is not our child can only be looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How much of the log's end is kept to explain a failure.
const LOG_TAIL: u64 = 8192;

/// Which process is at work. A process id alone may have been given to another program since.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Recorded {
    pub(super) pid: i32,
    /// Clock ticks from the machine's boot to the start of the process.
    pub(super) start: u64,
    /// The machine's boot.
    pub(super) boot: String,
}

pub(super) async fn start(run: &PlaybookRun) -> Result<Handle, Error> {
    if let Some(recorded) = recorded(run)?
        && is_alive(&recorded)
    {
        return Err(Error::Busy {
            id: run.id.clone(),
            pid: recorded.pid,
        });
    }
    remains::end(run)?;
    prepare(run)?;
    let bell = bind(run);
    let mut child = spawn(run)?;
    let pid = child
        .id()
        .and_then(|pid| i32::try_from(pid).ok())
        .unwrap_or_default();
    let recorded = Recorded {
        pid,
        start: start_time(pid).unwrap_or_default(),
        boot: boot(),
    };
    let text = serde_json::to_string(&recorded).unwrap_or_default();
    if let Err(error) = write(&record_file(run), &text) {
        // A process that nobody could find again must not run.
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        let _ = child.wait().await;
        return Err(error);
    }
    let killed = Arc::new(AtomicBool::new(false));
    let limit = run.timeout;
    let (exit_sender, exit) = watch::channel(None);
    let (ended_sender, ended) = watch::channel(false);
    let flag = Arc::clone(&killed);
    tokio::spawn(async move {
        let end = await_child(&mut *child, pid, limit, &flag).await;
        let _ = exit_sender.send(Some(end));
        let _ = ended_sender.send(true);
    });
    Ok(Handle {
        run: run.clone(),
        recorded,
        bell,
        exit,
        ended,
        killed,
    })
}

pub(super) fn adopt(run: &PlaybookRun) -> Result<Adopted, Error> {
    let Some(recorded) = recorded(run)? else {
        return Ok(Adopted::Never);
    };
    if !is_alive(&recorded) {
        remains::end(run)?;
        return Ok(Adopted::Ended(outcome(run, End::Unseen)?));
    }
    let killed = Arc::new(AtomicBool::new(false));
    let (exit_sender, exit) = watch::channel(None);
    let (ended_sender, ended) = watch::channel(false);
    let (flag, watched) = (Arc::clone(&killed), recorded.clone());
    let limit = run
        .timeout
        .map(|limit| limit.saturating_sub(age(&recorded)));
    tokio::spawn(async move {
        let gone = async {
            while is_alive(&watched) {
                sleep(LOOK).await;
            }
        };
        let late = if let Some(limit) = limit {
            timeout(limit, gone).await.is_err()
        } else {
            gone.await;
            false
        };
        if late {
            terminate(&watched).await;
        }
        let end = match (late, flag.load(Ordering::SeqCst)) {
            (true, _) => End::TimedOut,
            (false, true) => End::Killed,
            (false, false) => End::Unseen,
        };
        let _ = exit_sender.send(Some(end));
        let _ = ended_sender.send(true);
    });
    Ok(Adopted::Running(Box::new(Handle {
        run: run.clone(),
        recorded,
        bell: bind(run),
        exit,
        ended,
        killed,
    })))
}

/// Kills the process group and waits for its leader to be gone.
pub(super) async fn kill(
    recorded: &Recorded,
    ended: &mut watch::Receiver<bool>,
) -> Result<(), Error> {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        if *ended.borrow() || !is_alive(recorded) {
            return Ok(());
        }
        match killpg(Pid::from_raw(recorded.pid), signal) {
            Ok(()) | Err(nix::Error::ESRCH) => {}
            Err(source) => {
                return Err(Error::Signal {
                    pid: recorded.pid,
                    source,
                });
            }
        }
        let _ = timeout(GRACE, ended.wait_for(|ended| *ended)).await;
    }
    Ok(())
}

/// Kills the process group of a run and what it leaves, and waits for both.
pub(super) fn end_now(run: &PlaybookRun) -> Result<(), Error> {
    let Some(recorded) = recorded(run)? else {
        return Ok(());
    };
    let deadline = Instant::now() + GRACE;
    while is_alive(&recorded) && Instant::now() < deadline {
        match killpg(Pid::from_raw(recorded.pid), Signal::SIGKILL) {
            Ok(()) | Err(nix::Error::ESRCH) => std::thread::sleep(Duration::from_millis(10)),
            Err(source) => {
                return Err(Error::Signal {
                    pid: recorded.pid,
                    source,
                });
            }
        }
    }
    remains::end(run)
}

pub(super) fn outcome(run: &PlaybookRun, end: End) -> Result<Outcome, Error> {
    let events = event::read(&run.events, &run.id).map_err(Error::Events)?;
    Ok(Outcome {
        end,
        tally: Tally::of(&events),
        log_tail: tail(&run.log),
    })
}

fn prepare(run: &PlaybookRun) -> Result<(), Error> {
    for directory in [&run.control(), &plugins(run), &run.home] {
        make_directory(directory)?;
    }
    for file in [&run.events, &run.log] {
        if let Some(parent) = file.parent() {
            make_directory(parent)?;
        }
    }
    let record = sockets(&run.home);
    chance_directory(&record, Path::new("/tmp")).map_err(|source| Error::Write {
        path: record,
        source,
    })?;
    for name in ["PAUSE", "STOP"] {
        remove(&run.control().join(name))?;
    }
    if run.config.is_none() {
        write(&empty_config(run), "")?;
    }
    if !run.limit.is_empty() {
        write(&limit_file(run), &(run.limit.join("\n") + "\n"))?;
    }
    write(&plugins(run).join(format!("{PLUGIN_NAME}.py")), PLUGIN)
}

fn spawn(run: &PlaybookRun) -> Result<Box<dyn ChildWrapper>, Error> {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&run.log)
        .and_then(|log| Ok((log.try_clone()?, log)))
        .map_err(|source| Error::Write {
            path: run.log.clone(),
            source,
        })?;
    let mut command = Command::new(&run.ansible_playbook);
    command
        .current_dir(&run.directory)
        .stdin(Stdio::null())
        .stdout(log.0)
        .stderr(log.1)
        .arg("--inventory")
        .arg(&run.inventory);
    if let Some(secrets) = &run.host_secrets {
        command.arg("--inventory").arg(secrets);
    }
    for vars in &run.vars {
        let mut argument = std::ffi::OsString::from("@");
        argument.push(vars);
        command.arg("--extra-vars").arg(argument);
    }
    if !run.limit.is_empty() {
        let mut argument = std::ffi::OsString::from("@");
        argument.push(limit_file(run));
        command.arg("--limit").arg(argument);
    }
    command.args(&run.playbooks);
    environment(&mut command, run);
    CommandWrap::from(command)
        .wrap(ProcessSession)
        .spawn()
        .map_err(|source| Error::Start {
            program: run.ansible_playbook.clone(),
            source,
        })
}

fn environment(command: &mut Command, run: &PlaybookRun) {
    // What a person has set for their own Ansible must not leak in.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ANSIBLE_") {
            command.env_remove(name);
        }
    }
    let short = short_directory(&run.home);
    let config = run.config.clone().unwrap_or_else(|| empty_config(run));
    command
        .env("ANSIBLE_CONFIG", config)
        .env("ANSIBLE_HOME", &run.home)
        .env(
            "ANSIBLE_LOCAL_TEMP",
            run.temporary
                .clone()
                .unwrap_or_else(|| run.home.join("tmp")),
        )
        .env("ANSIBLE_SSH_CONTROL_PATH_DIR", short.join("ssh"))
        .env("ANSIBLE_CALLBACK_PLUGINS", plugins(run))
        .env("ANSIBLE_CALLBACKS_ENABLED", PLUGIN_NAME)
        .env("ANSIBLE_NOCOLOR", "1")
        .env("ANSIBLE_RETRY_FILES_ENABLED", "0")
        .env("LC_ALL", "C.UTF-8")
        .env("PYTHONUNBUFFERED", "1")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("WINDLASS_RUN", &run.id)
        .env("WINDLASS_EVENTS", &run.events)
        .env("WINDLASS_CONTROL", run.control())
        .env("WINDLASS_DOORBELL", doorbell(run))
        .envs(run.mask.iter().map(|mask| ("WINDLASS_MASK", mask)))
        .envs(
            run.secret_names
                .iter()
                .map(|names| ("WINDLASS_SECRET_NAMES", names)),
        )
        .envs(&run.environment);
    if let Some(leave) = &run.leave {
        command.env("WINDLASS_LEAVE", leave);
    }
    // Ansible starts its own helpers by name.
    if let Some(bin) = run.ansible_playbook.parent() {
        let mut path = bin.as_os_str().to_owned();
        if let Some(rest) = std::env::var_os("PATH") {
            path.push(":");
            path.push(rest);
        }
        command.env("PATH", path);
    }
}

async fn await_child(
    child: &mut dyn ChildWrapper,
    pid: i32,
    limit: Option<Duration>,
    killed: &AtomicBool,
) -> End {
    let status = match limit {
        Some(limit) => match timeout(limit, child.wait()).await {
            Ok(status) => status,
            Err(_) => return end_late(child, pid).await,
        },
        None => child.wait().await,
    };
    match status {
        _ if killed.load(Ordering::SeqCst) => End::Killed,
        Ok(status) => end_of(status),
        Err(_) => End::Unseen,
    }
}

async fn end_late(child: &mut dyn ChildWrapper, pid: i32) -> End {
    let _ = killpg(Pid::from_raw(pid), Signal::SIGTERM);
    if timeout(GRACE, child.wait()).await.is_err() {
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        let _ = child.wait().await;
    }
    End::TimedOut
}

async fn terminate(recorded: &Recorded) {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let _ = killpg(Pid::from_raw(recorded.pid), signal);
        let gone = async {
            while is_alive(recorded) {
                sleep(LOOK).await;
            }
        };
        if timeout(GRACE, gone).await.is_ok() {
            return;
        }
    }
}

fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        // Ansible turns a termination into this exit code by itself.
        (Some(143), _) => End::Signal(15),
        (Some(code), _) => End::Exit(code),
        (None, Some(signal)) => End::Signal(signal),
        (None, None) => End::Unseen,
    }
}

fn recorded(run: &PlaybookRun) -> Result<Option<Recorded>, Error> {
    let path = record_file(run);
    match std::fs::read(&path) {
        // A record that was half written belongs to a process that was killed before it did anything.
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path, source }),
    }
}

fn is_alive(recorded: &Recorded) -> bool {
    recorded.boot == boot()
        && state_and_start(recorded.pid)
            .is_some_and(|(state, start)| start == recorded.start && !matches!(state, 'Z' | 'X'))
}

fn start_time(pid: i32) -> Option<u64> {
    state_and_start(pid).map(|(_, start)| start)
}

/// State and start time from `/proc/PID/stat`; the second field may contain blanks and brackets.
fn state_and_start(pid: i32) -> Option<(char, u64)> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = line.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    // The start time is field 22 of the line, the state field 3.
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

/// How long ago the record was written, by the file system's clock: only a timeout hangs on it.
fn age(recorded: &Recorded) -> Duration {
    Path::new(&format!("/proc/{}", recorded.pid))
        .metadata()
        .and_then(|metadata| metadata.created().or_else(|_| metadata.modified()))
        .ok()
        .and_then(|since| since.elapsed().ok())
        .unwrap_or_default()
}

fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The bell is a convenience: without it followers look at the file now and then.
fn bind(run: &PlaybookRun) -> Option<UnixDatagram> {
    let path = doorbell(run);
    let _ = std::fs::remove_file(&path);
    UnixDatagram::bind(&path).ok()
}

fn tail(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

fn record_file(run: &PlaybookRun) -> PathBuf {
    run.work.join("process.json")
}

fn limit_file(run: &PlaybookRun) -> PathBuf {
    run.work.join("limit")
}

/// Ansible takes no /dev/null: a configuration must be named `.cfg`.
fn empty_config(run: &PlaybookRun) -> PathBuf {
    run.work.join("ansible.cfg")
}

fn plugins(run: &PlaybookRun) -> PathBuf {
    run.work.join("plugins")
}

fn doorbell(run: &PlaybookRun) -> PathBuf {
    let name = Sha256::digest(run.work.as_os_str().as_encoded_bytes());
    short_directory(&run.home).join(hex::encode(name.get(..6).unwrap_or_default()))
}

/// Removes what runs with that home left outside of it: the sockets of ssh and of events. To be called when none of them is at
/// work; connections that are still open end by themselves.
///
/// # Errors
///
/// The directory cannot be removed. That there is none is no error.
pub fn forget(home: &Path) -> io::Result<()> {
    remove_recorded(&sockets(home))
}

/// The path of a socket holds 107 bytes, and ssh adds 17 to it while it binds: a data directory may be deeper than that.
/// The directory is the cluster's, so that its runs share ssh connections.
fn short_directory(home: &Path) -> PathBuf {
    let record = sockets(home);
    // Too long a path, maybe, and ours.
    recorded_directory(&record).unwrap_or(record)
}

/// What leads to the directory of sockets.
fn sockets(home: &Path) -> PathBuf {
    home.join("sockets")
}

fn make_directory(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path).map_err(|source| Error::Write {
        path: path.to_owned(),
        source,
    })
}
