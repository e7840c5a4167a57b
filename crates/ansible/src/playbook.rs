//! Runs ansible-playbook, and says how it went.
//!
//! The process is a session of its own, reads nothing and writes to a file, so it outlives the runner that started it; a
//! runner that comes back finds it by its process id and start time ([`PlaybookRun::adopt`]). It is paused and stopped
//! between two tasks, where no host is at work. Killing it is the last resort: modules that run on hosts go on
//! ([`leftovers`] waits for them); what it leaves on this machine is ended before the next playbook starts. How it went is judged by its events against the hosts that were expected, never by the
//! exit code alone: Ansible exits with 0 when no host matched.

mod classify;
mod judge;
mod leave;
mod leftover;
mod process;
mod remains;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{net::UnixDatagram, sync::watch};

pub use classify::{failure, failure_of_text};
pub use judge::{Verdict, judge};
pub use leave::Leave;
pub use leftover::{Leftover, Module, leftovers};
pub use process::forget;

use crate::event::{self, Follower, Tally};
use process::Recorded;

/// What to run, and where everything is kept. Two runs with the same `work` directory are the same run.
#[derive(Clone, Debug, Default)]
pub struct PlaybookRun {
    /// What tells its events from others' in the same file, for example `etcd/install#1`.
    pub id: String,
    /// The ansible-playbook of the sandbox.
    pub ansible_playbook: PathBuf,
    /// Where it runs: the view of the playbooks, so that relative paths hold.
    pub directory: PathBuf,
    /// The playbooks, run one after the other in one process.
    pub playbooks: Vec<PathBuf>,
    /// The inventory: a file or a directory.
    pub inventory: PathBuf,
    /// A further inventory, with variables of hosts that are secret.
    pub host_secrets: Option<PathBuf>,
    /// Files of extra variables. Never on the command line: other users could read them there.
    pub vars: Vec<PathBuf>,
    /// The texts that are masked in events and output, as [`crate::mask::Mask::save`] writes them.
    pub mask: Option<PathBuf>,
    /// The names of secret variables, as [`crate::inventory::SecretInventory::write`] writes them: a failure tells no value of
    /// these, nor of what is made of them. If the file cannot be read it tells none at all.
    pub secret_names: Option<PathBuf>,
    /// Where Ansible makes what it sends to hosts, variables and filled templates among it. Default: below `home`.
    pub temporary: Option<PathBuf>,
    /// The ansible.cfg. Default: none, and that of the directory is not read.
    pub config: Option<PathBuf>,
    /// The hosts to work on. Empty: all of the play's.
    pub limit: Vec<String>,
    /// More of the environment. No secrets.
    pub environment: BTreeMap<String, String>,
    /// The directory of this run alone: the plugin, the limit, the control files, the record of the process.
    pub work: PathBuf,
    /// The directory that the runs of one cluster share: Ansible's home.
    pub home: PathBuf,
    /// The file that events are appended to.
    pub events: PathBuf,
    /// The file that output is appended to.
    pub log: PathBuf,
    /// The file of the [`Leave`] that it works under: it ends by itself when that is over. Default: none is needed.
    pub leave: Option<PathBuf>,
    /// How long it may take; then it is killed. Default: no limit.
    pub timeout: Option<Duration>,
}

/// A playbook that runs, or did. Dropping it does not end the process.
#[derive(Debug)]
pub struct Handle {
    run: PlaybookRun,
    recorded: Recorded,
    bell: Option<UnixDatagram>,
    exit: watch::Receiver<Option<End>>,
    ended: watch::Receiver<bool>,
    killed: Arc<std::sync::atomic::AtomicBool>,
}

/// What is left of a run that an earlier runner started.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one is made per step, and moved once"
)]
pub enum Adopted {
    /// It still runs: follow it from its first event.
    Running(Box<Handle>),
    /// It has ended since; nobody saw its exit code.
    Ended(Outcome),
    /// It was never started.
    Never,
}

/// How a process ended, and everything it told.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How the process ended.
    pub end: End,
    /// Its events, added up.
    pub tally: Tally,
    /// The end of its log, for failures that come before the first event.
    pub log_tail: String,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// By itself, or between two tasks when it was asked to stop.
    Exit(i32),
    /// By a signal that we did not send.
    Signal(i32),
    /// By [`Handle::kill`].
    Killed,
    /// It took longer than its timeout and was killed.
    TimedOut,
    /// Nobody was there to see.
    Unseen,
}

/// Why a playbook cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory of the run cannot be written.
    #[error("write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of the run cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The process cannot be started.
    #[error("start {program}")]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The process cannot be signalled.
    #[error("signal process {pid}")]
    Signal {
        /// The process.
        pid: i32,
        /// Why.
        source: nix::Error,
    },
    /// The same run is at work already.
    #[error("run {id:?}: process {pid} is at work on it; adopt it instead")]
    Busy {
        /// The run.
        id: String,
        /// The process.
        pid: i32,
    },
    /// The events cannot be read.
    #[error("follow the playbook")]
    Events(#[source] event::Error),
}

impl PlaybookRun {
    /// Starts the playbook.
    ///
    /// # Errors
    ///
    /// A process is at work on the same run, its files cannot be written, or Ansible cannot be started.
    pub async fn start(&self) -> Result<Handle, Error> {
        process::start(self).await
    }

    /// Finds what an earlier runner started with the same `work` directory.
    ///
    /// # Errors
    ///
    /// What the earlier runner wrote cannot be read, or what it left behind cannot be ended. That it started nothing is no
    /// error.
    pub fn adopt(&self) -> Result<Adopted, Error> {
        process::adopt(self)
    }

    /// Kills what was started with the same `work` directory, and waits until it is gone from this machine. Modules that run on
    /// hosts go on: see [`leftovers`]. Blocks, for three seconds at most.
    ///
    /// # Errors
    ///
    /// The record of what was started cannot be read, or it cannot be signalled. That nothing was started is no error.
    pub fn end_now(&self) -> Result<(), Error> {
        process::end_now(self)
    }
}

impl Handle {
    /// The process.
    pub fn pid(&self) -> i32 {
        self.recorded.pid
    }

    /// Follows the events from the first one. The first follower is told at once, later ones within 200 ms.
    pub fn events(&mut self) -> Follower {
        Follower::new(
            self.run.events.clone(),
            self.run.id.clone(),
            self.bell.take(),
            self.ended.clone(),
        )
    }

    /// Lets the playbook wait before its next task.
    ///
    /// # Errors
    ///
    /// The file that says so cannot be written.
    pub fn pause(&self) -> Result<(), Error> {
        write(&self.run.control().join("PAUSE"), "")
    }

    /// Lets it go on.
    ///
    /// # Errors
    ///
    /// The file that says otherwise cannot be removed. That it does not wait is no error.
    pub fn resume(&self) -> Result<(), Error> {
        remove(&self.run.control().join("PAUSE"))
    }

    /// Ends it before its next task, also while it is paused. Returns at once: [`Handle::wait`] tells when.
    ///
    /// # Errors
    ///
    /// The file that says so cannot be written.
    pub fn stop(&self) -> Result<(), Error> {
        write(&self.run.control().join("STOP"), "")
    }

    /// Kills its whole process group, now. Modules that run on hosts go on: see [`leftovers`].
    ///
    /// # Errors
    ///
    /// The processes cannot be signalled. That they are gone is no error.
    pub async fn kill(&self) -> Result<(), Error> {
        self.killed.store(true, std::sync::atomic::Ordering::SeqCst);
        process::kill(&self.recorded, &mut self.ended.clone()).await
    }

    /// Waits for the end.
    ///
    /// # Errors
    ///
    /// Its events cannot be read. However it ended is no error.
    pub async fn wait(&mut self) -> Result<Outcome, Error> {
        let end = match self.exit.wait_for(Option::is_some).await {
            Ok(end) => end.unwrap_or(End::Unseen),
            Err(_) => End::Unseen,
        };
        process::outcome(&self.run, end)
    }
}

impl PlaybookRun {
    fn control(&self) -> PathBuf {
        self.work.join("control")
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|source| Error::Write {
        path: path.to_owned(),
        source,
    })
}

fn remove(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::Write {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}
