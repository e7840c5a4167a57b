//! A short script on one host, as root, and files that go to a host and come from it that way.

use std::{process::Stdio, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdout, Command},
    task::JoinHandle,
    time::timeout,
};

use super::{Options, Reason, Target, Unusable, ssh_command};
use crate::ssh::quote;

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
    let answer = async {
        let mut child = start(target, options, "sh -s")?;
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
            tokio::try_join!(read.0, read.1).map_err(|error| broken(&error))?;
        }
        let status = child.wait().await.map_err(|error| broken(&error))?;
        // ssh's own number: the connection or the login failed.
        if status.code() == Some(255) {
            return Err(complained(&complaint));
        }
        Ok(String::from_utf8_lossy(&said).into_owned())
    };
    timeout(limit, answer).await.unwrap_or_else(|_| {
        let detail = format!("no answer within {} s", limit.as_secs());
        Err(Unusable::new(Reason::LoginTimedOut, detail))
    })
}

/// What a script prints, as it comes.
pub struct Output {
    child: Child,
    stdout: ChildStdout,
    complaint: JoinHandle<Vec<u8>>,
}

/// Runs a script of a POSIX shell on a host as root whose output is a file. No secret belongs into a script.
///
/// # Errors
///
/// ssh cannot be started. What it says is told at the end.
pub async fn fetch(target: &Target, options: &Options, script: &str) -> Result<Output, Unusable> {
    let mut child = start(target, options, "sh -s")?;
    if let Some(mut input) = child.stdin.take() {
        // A login that was refused has closed it: what ssh says of that is told at the end.
        let _ = input.write_all(script.as_bytes()).await;
    }
    let complaint = complaint(&mut child);
    match child.stdout.take() {
        Some(output) => Ok(Output {
            child,
            stdout: output,
            complaint,
        }),
        None => Err(Unusable::broken("ssh has no output")),
    }
}

impl Output {
    /// What comes next; nothing: it has ended.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub async fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Unusable> {
        self.stdout
            .read(buffer)
            .await
            .map_err(|error| broken(&error))
    }

    /// The end, once everything was read.
    ///
    /// # Errors
    ///
    /// The host does not answer, refuses the login, or the last command of the script failed.
    pub async fn end(self) -> Result<(), Unusable> {
        drop(self.stdout);
        ended(self.child, self.complaint).await
    }
}

/// Runs a script of a POSIX shell on a host as root with a file as its input. No secret belongs into a script, which others on the
/// host can see.
///
/// # Errors
///
/// The host does not answer, refuses the login, or the last command of the script failed.
pub async fn send(
    target: &Target,
    options: &Options,
    script: &str,
    file: &mut (dyn AsyncRead + Send + Unpin),
) -> Result<(), Unusable> {
    let mut child = start(target, options, &format!("sh -c {}", quote(script)))?;
    let complaint = complaint(&mut child);
    if let Some(mut input) = child.stdin.take() {
        // What ended before its time says why at the end.
        let _ = tokio::io::copy(file, &mut input).await;
        let _ = input.shutdown().await;
    }
    ended(child, complaint).await
}

fn start(target: &Target, options: &Options, shell: &str) -> Result<Child, Unusable> {
    let shell = match target.user.as_str() {
        "root" => shell.to_owned(),
        _ => format!("sudo -n {shell}"),
    };
    Command::from(ssh_command(target, options))
        .arg(shell)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| broken(&error))
}

fn complaint(child: &mut Child) -> JoinHandle<Vec<u8>> {
    let errors = child.stderr.take();
    tokio::spawn(async move {
        let mut said = Vec::new();
        if let Some(errors) = errors {
            let _ = errors.take(ANSWER_LIMIT).read_to_end(&mut said).await;
        }
        said
    })
}

async fn ended(mut child: Child, complaint: JoinHandle<Vec<u8>>) -> Result<(), Unusable> {
    let status = child.wait().await.map_err(|error| broken(&error))?;
    if status.success() {
        return Ok(());
    }
    Err(complained(&complaint.await.unwrap_or_default()))
}

/// What ssh, or the script, said last.
fn complained(complaint: &[u8]) -> Unusable {
    let complaint = String::from_utf8_lossy(complaint);
    let last = complaint.lines().rev().find(|line| !line.trim().is_empty());
    Unusable::broken(last.unwrap_or("ssh failed").trim())
}

fn broken(error: &std::io::Error) -> Unusable {
    Unusable::broken(error.to_string())
}
