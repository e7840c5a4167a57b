//! Until when playbooks may work.
//!
//! A playbook outlives its runner, and goes on while that is stopped. Where only one runner may work on the hosts, each of its
//! playbooks goes by a file that says until when that is sure, in nanoseconds since the machine's boot, suspended or not. The
//! plugin looks at it before each task and on each host, and all the time besides: when the time is over, the playbook kills
//! itself and its workers.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    time::Duration,
};

/// Leave to work, given by who keeps it.
#[derive(Debug)]
pub struct Leave(File);

impl Leave {
    /// The leave in this file, which is made if it is not there. What was given before stands.
    ///
    /// # Errors
    ///
    /// The file can neither be opened nor made.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self(file))
    }

    /// Gives leave until this time since boot; zero: it is over. In place, so that a disk that is full takes it too.
    ///
    /// # Errors
    ///
    /// The file cannot be written: what was given before stands.
    pub fn until(&self, end: Duration) -> io::Result<()> {
        let text = format!(
            "{:020}\n",
            u64::try_from(end.as_nanos()).unwrap_or(u64::MAX)
        );
        self.0.write_all_at(text.as_bytes(), 0)
    }
}
