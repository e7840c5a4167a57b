//! A short script on one host, as root.

use std::{process::Stdio, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
    time::timeout,
};

use super::{Options, Reason, Target, Unusable, ssh_command};

/// The longest answer, in bytes.
const ANSWER_LIMIT: u64 = 256 * 1024;

/// Runs a script of a POSIX shell on a host as root, and returns what it prints: data of the host's, up to a bound. What it prints to
/// standard error goes nowhere. No secret belongs into a script.
///
/// # Errors
///
/// The host does not answer, refuses the login, or says nothing within `limit`. That a command of the script fails is no error.
pub async fn run(
    target: &Target,
    options: &Options,
    script: &str,
    limit: Duration,
) -> Result<String, Unusable> {
    let shell = match target.user.as_str() {
        "root" => "sh -s",
        _ => "sudo -n sh -s",
    };
    let mut command = Command::from(ssh_command(target, options));
    command
        .arg(shell)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let answer = async {
        let broken = |error: std::io::Error| Unusable::broken(error.to_string());
        let mut child = command.spawn().map_err(broken)?;
        if let Some(mut input) = child.stdin.take() {
            // A login that was refused has closed it: what ssh says of that is told below.
            let _ = input.write_all(script.as_bytes()).await;
        }
        let (mut said, mut complaint) = (Vec::new(), Vec::new());
        if let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) {
            let mut output = output.take(ANSWER_LIMIT);
            let mut errors = errors.take(ANSWER_LIMIT);
            let read = (
                output.read_to_end(&mut said),
                errors.read_to_end(&mut complaint),
            );
            tokio::try_join!(read.0, read.1).map_err(broken)?;
        }
        let status = child.wait().await.map_err(broken)?;
        // ssh's own number: the connection or the login failed.
        if status.code() == Some(255) {
            let complaint = String::from_utf8_lossy(&complaint);
            let last = complaint.lines().rev().find(|line| !line.trim().is_empty());
            return Err(Unusable::broken(last.unwrap_or("ssh failed").trim()));
        }
        Ok(String::from_utf8_lossy(&said).into_owned())
    };
    timeout(limit, answer).await.unwrap_or_else(|_| {
        let detail = format!("no answer within {} s", limit.as_secs());
        Err(Unusable::new(Reason::LoginTimedOut, detail))
    })
}
