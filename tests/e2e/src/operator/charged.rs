//! What a process takes as Kubernetes counts it: a control group of its own, as each container has one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

/// Removed with the value, when the process has ended.
#[derive(Debug)]
pub(super) struct Charged(PathBuf);

impl Charged {
    /// A group of this name.
    ///
    /// # Errors
    ///
    /// The system has none, or not for this user.
    pub(super) fn make(name: &str) -> Result<Self> {
        let first = Path::new("/sys/fs/cgroup/memory");
        let root = if first.is_dir() {
            first
        } else {
            Path::new("/sys/fs/cgroup")
        };
        let directory = root.join(format!("windlass-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory)
            .with_context(|| format!("make the group {}", directory.display()))?;
        Ok(Self(directory))
    }

    /// The same command, in the group from its first page on.
    pub(super) fn enter(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.0.join("cgroup.procs"))
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    /// The working set in KiB, which is what `kubectl top` shows: everything that the group is charged with, less pages of files that nobody
    /// has used of late.
    ///
    /// # Errors
    ///
    /// The group is gone.
    ///
    /// # Source
    /// cAdvisor `container/libcontainer/handler.go`, `setMemoryStats`.
    pub(super) fn working_set(&self) -> Result<u64> {
        let (usage, inactive) = if self.0.join("memory.current").is_file() {
            ("memory.current", "inactive_file ")
        } else {
            ("memory.usage_in_bytes", "total_inactive_file ")
        };
        let read = |name: &str| {
            let path = self.0.join(name);
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
        };
        let usage: u64 = read(usage)?.trim().parse().context("read a number")?;
        let stat = read("memory.stat")?;
        let inactive = stat.lines().find_map(|line| line.strip_prefix(inactive));
        let inactive = inactive.context("memory.stat says nothing of inactive files")?;
        let inactive: u64 = inactive.trim().parse().context("read a number")?;
        Ok(usage.saturating_sub(inactive) / 1024)
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        // One that something is still in is left.
        let _ = fs::remove_dir(&self.0);
    }
}
