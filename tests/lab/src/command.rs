//! Running other programs with an error that tells what went wrong.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs to the end and returns standard output; a failure carries the end of standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {name}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{name} ended with {}: {}", output.status, tail(&errors));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The last lines of a text: where programs say why they failed.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
