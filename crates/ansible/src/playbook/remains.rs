//! What an ansible-playbook that was killed leaves on this machine.
//!
//! Its workers go on with their task, and modules that run here with them; a second playbook must not work beside them. They
//! are told by the control directory in their environment: a process id alone may have been given to another program since,
//! and since ansible-core 2.18 each worker is a session of its own. Connections that ssh keeps open are left: they do
//! nothing.

use std::{collections::BTreeSet, thread};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, getsid},
};

use super::{Error, PlaybookRun};
use crate::program::{LOOK, ROUNDS, marked, words};

/// Kills the workers and local modules of the run; to be called when its ansible-playbook is gone. Looks again until nothing is
/// left: a worker may have started a module while the others were killed, and only the worker tells whose that is.
pub(super) fn end(run: &PlaybookRun) -> Result<(), Error> {
    let mut sessions = BTreeSet::new();
    for _ in 0..ROUNDS {
        let ours = ours(run);
        let workers = ours.iter().filter(|pid| is_playbook(**pid));
        sessions.extend(workers.filter_map(|pid| getsid(Some(*pid)).ok()));
        let of_them = |pid: &Pid| getsid(Some(*pid)).is_ok_and(|sid| sessions.contains(&sid));
        let left: Vec<Pid> = ours.into_iter().filter(of_them).collect();
        if left.is_empty() {
            break;
        }
        for pid in left {
            end_one(pid)?;
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

fn end_one(pid: Pid) -> Result<(), Error> {
    match kill(pid, Signal::SIGKILL) {
        Ok(()) | Err(nix::Error::ESRCH) => Ok(()),
        Err(source) => Err(Error::Signal {
            pid: pid.as_raw(),
            source,
        }),
    }
}

/// The processes with the run's control directory in their environment.
fn ours(run: &PlaybookRun) -> Vec<Pid> {
    marked(&format!("WINDLASS_CONTROL={}", run.control().display()))
}

/// A worker is a copy of ansible-playbook, command line and all; modules and ssh are given no inventory.
fn is_playbook(pid: Pid) -> bool {
    words(pid.as_raw(), "cmdline").any(|word| word == b"--inventory")
}
