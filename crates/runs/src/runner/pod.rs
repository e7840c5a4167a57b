//! What is different for a runner that is a pod: its name, its end, and what its image brings along.
//!
//! A pod cannot say of another pod that it is gone: process numbers mean nothing between pods, and a pod that the API has
//! forgotten may still work on a node that the API has lost. So a pod is known by its own name, a Lease that it left without a word
//! is taken over when it has expired and not before, and a pod that cannot renew its Lease stops before that.

use std::{
    collections::BTreeMap,
    io::{Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use api::run::RunnerIdentity;
use controller::Shutdown;
use tokio::signal::unix::{SignalKind, signal};

/// The environment variable with the pod's name.
pub const POD_VARIABLE: &str = "WINDLASS_POD_NAME";
/// The environment variable with the pod's uid.
pub const UID_VARIABLE: &str = "WINDLASS_POD_UID";
/// The environment variable with the pod's namespace.
pub const NAMESPACE_VARIABLE: &str = "WINDLASS_POD_NAMESPACE";
/// The environment variable with the directory of Python environments that the image brings along.
pub const SANDBOXES_VARIABLE: &str = "WINDLASS_SANDBOXES";

/// How often the logs of steps are looked at: they are files, and nothing tells when they grow.
const LOOK: Duration = Duration::from_millis(500);

/// The pod that this process is in, if it is in one.
pub(crate) fn identity() -> Option<RunnerIdentity> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    Some(RunnerIdentity {
        id: format!(
            "pod/{}/{}",
            variable(POD_VARIABLE)?,
            variable(UID_VARIABLE)?
        ),
        pid: None,
    })
}

/// Whether a runner is a pod.
pub fn is_pod(identity: &RunnerIdentity) -> bool {
    identity.pid.is_none()
}

/// The directory of Python environments that the image brings along.
pub fn sandboxes() -> Option<PathBuf> {
    std::env::var_os(SANDBOXES_VARIABLE).map(PathBuf::from)
}

/// Waits until the pod is told to end. A process that is no pod is never told so: it survives its operator.
pub(crate) async fn told_to_end(identity: &RunnerIdentity) {
    if is_pod(identity)
        && let Ok(mut terminate) = signal(SignalKind::terminate())
    {
        terminate.recv().await;
        tracing::info!("the pod is told to end");
        return;
    }
    std::future::pending::<()>().await;
}

/// What stands before the lines of a step in a log of many.
pub fn heading(step: &str) -> String {
    format!("{HEADING}{step}")
}

/// The step that a line is the heading of.
pub fn step_of_heading(line: &str) -> Option<&str> {
    line.strip_prefix(HEADING)
}

const HEADING: &str = "== ";

/// Copies what the steps write into their logs to standard output, for `kubectl logs`, until and including what is there
/// at `end`.
pub(crate) async fn echo(logs: PathBuf, own_logs: &str, end: Shutdown) {
    // What earlier pods wrote has been told by them.
    let mut told: BTreeMap<PathBuf, u64> = lengths(&logs, own_logs).into_iter().collect();
    let mut last = false;
    let mut at = None;
    while !last {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = end.wait() => last = true,
        }
        for (file, length) in lengths(&logs, own_logs) {
            let from = told.entry(file.clone()).or_default();
            // One that was cut to stay small goes on from its end.
            *from = length.min(*from);
            if length == *from {
                continue;
            }
            let heading = (at.as_ref() != Some(&file)).then(|| heading(&step_of(&file)));
            if let Ok(copied @ 1..) = copy(&file, *from, heading) {
                *from += copied;
                at = Some(file);
            }
        }
    }
}

fn lengths(directory: &Path, own_logs: &str) -> Vec<(PathBuf, u64)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            // What an engine itself printed stands in the log of its step as well.
            let stem = name.strip_suffix(".log");
            stem.is_some_and(|stem| {
                Path::new(stem)
                    .extension()
                    .is_none_or(|end| end != own_logs)
            })
        })
        .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.len())))
        .collect()
}

/// The step whose log a file is.
fn step_of(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    stem.replace("__", "/")
}

fn copy(file: &Path, from: u64, heading: Option<String>) -> std::io::Result<u64> {
    let mut file = std::fs::File::open(file)?;
    file.seek(std::io::SeekFrom::Start(from))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    // A line that is still being written is left for the next look.
    let whole = text.iter().rposition(|byte| *byte == b'\n');
    text.truncate(whole.map_or(0, |at| at.saturating_add(1)));
    if text.is_empty() {
        return Ok(0);
    }
    let mut out = std::io::stdout().lock();
    if let Some(heading) = heading {
        writeln!(out, "{heading}")?;
    }
    out.write_all(&text)?;
    Ok(text.len() as u64)
}
