//! Processes of a bench: ended with the value, and what the system says of them.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context;

/// A process that is killed when the value goes.
#[derive(Debug)]
pub(crate) struct Guard(pub(crate) Child);

impl Guard {
    /// Starts it without input and output.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        if let Some(path) = std::env::var_os("WINDLASS_BENCH_LOG") {
            let log = fs::File::options().create(true).append(true).open(path)?;
            command.stderr(log);
        } else {
            command.stderr(Stdio::null());
        }
        let child = command
            .spawn()
            .with_context(|| format!("failed to start {command:?}"))?;
        Ok(Self(child))
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Resident memory in MiB.
pub(crate) fn resident(pid: u32) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} has ended"))?;
    let kib: f64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .context("the system does not say how much memory is resident")?;
    Ok(kib / 1024.0)
}

/// The processor time that it has used, its ended children's not.
pub(crate) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    // utime and stime are fields 14 and 15.
    times(&pid.to_string(), 11)
}

/// The processor time that the ended children of this process have used.
pub(crate) fn cpu_of_children() -> anyhow::Result<Duration> {
    times("self", 13)
}

fn times(pid: &str, first: usize) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("process {pid} has ended"))?;
    // The name may hold blanks; it ends with the last parenthesis.
    let after = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest)
        .unwrap_or_default();
    let ticks: u64 = after
        .split_whitespace()
        .skip(first)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    // USER_HZ is 100 on every architecture that Linux has in use.
    Ok(Duration::from_millis(ticks * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_knows_this_process() {
        let own = std::process::id();
        assert!(resident(own).unwrap() > 0.1);
        let before = cpu(own).unwrap();
        let mut sum = 0_u64;
        while cpu(own).unwrap() < before + Duration::from_millis(20) {
            sum = sum.wrapping_mul(31).wrapping_add(1);
        }
        assert!(cpu("0".parse().unwrap()).is_err(), "{sum}");
    }
}
