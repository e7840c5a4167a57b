//! Running other programs to their end, with an error that tells what went wrong.

use std::fs::File;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Runs to the end and returns standard output.
///
/// # Errors
///
/// Anything but success, with the end of standard error.
pub fn output(command: &mut Command) -> Result<String> {
    output_of(command.stdin(Stdio::null()))
}

/// [`output`] of a command that reads a file.
///
/// # Errors
///
/// Anything but success, with the end of standard error.
pub fn output_from(file: File, command: &mut Command) -> Result<String> {
    output_of(command.stdin(file))
}

fn output_of(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("start {}", shown(command)))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{} ended with {}: {}",
            shown(command),
            output.status,
            tail(&errors)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs to the end with its output shown.
///
/// # Errors
///
/// Anything but success.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("start {}", shown(command)))?;
    ensure!(status.success(), "{} ended with {status}", shown(command));
    Ok(())
}

/// A command as a person would type it, without the text of scripts.
pub fn shown(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .map(|word| {
            if word.contains('\n') {
                "...".to_owned()
            } else {
                word.into_owned()
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// The last lines of a text: where programs say why they failed.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
