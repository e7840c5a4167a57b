//! One call of a program: with a deadline, told to end first and killed only then.

use std::{
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
    time::timeout,
};

/// How long a program that was told to end may take: Helm marks its release as failed meanwhile.
const GRACE: Duration = Duration::from_secs(10);
/// How much of what a program prints is kept, of each stream. What is more is read and dropped, so that it can go on.
const KEPT: u64 = 8 * 1024 * 1024;

/// What a program left.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub output: String,
    /// What it complained of.
    pub errors: String,
    /// Whether it was told to end because its time was up.
    pub is_late: bool,
}

/// Runs a program with this input to its end, or to the deadline. It is killed when the future is dropped.
///
/// # Errors
///
/// It cannot be started or waited for. How it ends is no error.
pub async fn run(mut command: Command, input: Stdio, deadline: Duration) -> std::io::Result<Ended> {
    command
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // What it starts ends with it.
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let reading = async { tokio::join!(read(output), read(errors)) };
    let waiting = wait(&mut child, deadline);
    let ((output, errors), waited) = tokio::join!(reading, waiting);
    let (status, is_late) = waited?;
    Ok(Ended {
        status,
        output,
        errors,
        is_late,
    })
}

async fn wait(child: &mut Child, deadline: Duration) -> std::io::Result<(ExitStatus, bool)> {
    if let Ok(ended) = timeout(deadline, child.wait()).await {
        return Ok((ended?, false));
    }
    signal(child, Signal::SIGTERM);
    if let Ok(ended) = timeout(GRACE, child.wait()).await {
        return Ok((ended?, true));
    }
    signal(child, Signal::SIGKILL);
    Ok((child.wait().await?, true))
}

/// One that has ended needs no signal.
fn signal(child: &Child, signal: Signal) {
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(group) = group {
        let _ = killpg(Pid::from_raw(group), signal);
    }
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut kept = Vec::new();
    if let Some(mut stream) = stream {
        let mut first = (&mut stream).take(KEPT);
        let _ = first.read_to_end(&mut kept).await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn one_that_is_late_is_told_to_end_and_may_tidy_up() {
        let script = "trap 'echo tidied; exit 3' TERM; echo begun; sleep 60 & wait";
        let ended = run(shell(script), Stdio::null(), Duration::from_millis(300))
            .await
            .unwrap();
        assert!(ended.is_late);
        assert_eq!(ended.output, "begun\ntidied\n");
        assert_eq!(ended.status.code(), Some(3));
    }

    #[tokio::test]
    async fn what_it_says_is_kept_and_bounded() {
        let script = "echo said; echo complained >&2; head -c 20000000 /dev/zero; exit 1";
        let ended = run(shell(script), Stdio::null(), Duration::from_mins(1))
            .await
            .unwrap();
        assert!(!ended.is_late && !ended.status.success());
        assert_eq!(ended.errors, "complained\n");
        assert_eq!(ended.output.len() as u64, KEPT);
    }
}
