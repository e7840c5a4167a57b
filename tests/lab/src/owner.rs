//! One process that everything hangs on: when it ends, the kernel ends the rest.
//!
//! The owner is the first process of a process namespace of its own and does nothing but wait for its standard input to
//! end. This process holds the other end, so however this one ends, the owner does too, and the kernel kills what runs
//! in its namespace. It holds a lock, by which a later start knows a dead owner's directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::{cache, sweep};

/// An owner and its directory, which goes with it.
#[derive(Debug)]
pub(crate) struct Owner {
    dir: PathBuf,
    /// As this process counts it.
    id: u32,
    lifeline: Option<ChildStdin>,
    unshare: Child,
}

impl Owner {
    /// Starts an owner with a new directory in `area` of the cache; removes those of dead ones there.
    pub(crate) fn start(area: &str) -> Result<Self> {
        let area = cache::dir().join(area);
        sweep::dead(&area)?;
        fs::create_dir_all(&area).with_context(|| format!("make {}", area.display()))?;
        let dir = tempfile::Builder::new().prefix("env-").tempdir_in(&area)?;
        let lock = sweep::lock(dir.path())?;
        let mut unshare = Command::new("unshare")
            .args(["--pid", "--mount-proc", "--fork", "--kill-child"])
            .args(["sh", "-c", "while read -r _; do :; done"])
            .stdin(Stdio::piped())
            .stdout(lock)
            .spawn()
            .context("start an owner (util-linux, root)")?;
        let lifeline = unshare.stdin.take();
        let deadline = Instant::now() + Duration::from_secs(10);
        let id = loop {
            if let Some(id) = child_of(unshare.id()) {
                break id;
            }
            ensure!(
                unshare.try_wait()?.is_none() && Instant::now() < deadline,
                "the owner did not start: root is needed"
            );
            std::thread::sleep(Duration::from_millis(5));
        };
        Ok(Self {
            dir: dir.keep(),
            id,
            lifeline,
            unshare,
        })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The command among the owner's processes; it is killed when the process that this starts is.
    pub(crate) fn enter(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg("--target")
            .arg(self.id.to_string())
            .args(["--pid", "--", "setpriv", "--pdeathsig", "KILL", "--"])
            .arg(program);
        command
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        if let Err(error) = self.unshare.wait() {
            eprintln!("wait for an owner: {error}");
        }
        if let Err(error) = sweep::remove(&self.dir) {
            eprintln!("{}: {error:#}", self.dir.display());
        }
    }
}

/// The only child of a process, once it is there.
pub(crate) fn child_of(id: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}
