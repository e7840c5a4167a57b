//! The ServiceAccount of the operator, as it is used from outside of its cluster.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};
use lab::{ControlPlane, command::output};
use serde_json::{Value, json};

/// A kubeconfig with the rights of the operator's ServiceAccount and no others.
///
/// # Errors
///
/// The manifests are not applied, or the file cannot be written.
pub fn account(plane: &ControlPlane) -> Result<PathBuf> {
    let create = ["-n", "windlass-system", "create", "token", "windlass"];
    let token = output(plane.kubectl().args(create))?;
    let text = fs::read_to_string(plane.kubeconfig()).context("read the kubeconfig")?;
    let mut config: Value = serde_json::from_str(&text).context("parse the kubeconfig")?;
    config["users"][0]["user"] = json!({"token": token.trim()});
    let file = plane.dir().join("account.kubeconfig");
    fs::write(&file, config.to_string()).context("write the kubeconfig")?;
    Ok(file)
}
