//! The files that Ansible reads.

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use super::{GROUPS, Inventory, K8S_CLUSTER, NEEDS_ETCD};
use crate::{FileError, file::write_private};

/// The files that were written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InventoryFiles {
    /// The inventory, for `-i`.
    pub inventory: PathBuf,
    /// The variables, for `-e @`.
    pub vars: PathBuf,
}

impl Inventory {
    /// Writes `inventory/inventory.json` and `vars.json` into a run's directory, readable by the owner alone, and makes the
    /// cluster's own directories.
    ///
    /// # Errors
    ///
    /// A directory or file cannot be made.
    pub fn write(&self, run: &Path) -> Result<InventoryFiles, FileError> {
        let inventory = run.join("inventory");
        let own = [
            &self.directories.facts,
            &self.directories.credentials,
            &self.directories.artifacts,
        ];
        for directory in own.into_iter().chain([&inventory]) {
            private_directory(directory)?;
        }
        let files = InventoryFiles {
            inventory: inventory.join("inventory.json"),
            vars: run.join("vars.json"),
        };
        private_file(&files.inventory, &self.document())?;
        private_file(&files.vars, &Value::Object(self.extra_vars.clone()))?;
        Ok(files)
    }

    /// The inventory as Ansible's `yaml` plugin reads it; JSON is YAML, and keeps types and order.
    pub fn document(&self) -> Value {
        let mut children = Map::new();
        for (_, group) in GROUPS {
            children.insert(group.to_owned(), json!({"hosts": self.members(group)}));
        }
        let parts: Map<String, Value> = K8S_CLUSTER
            .iter()
            .map(|g| ((*g).to_owned(), json!({})))
            .collect();
        children.insert("k8s_cluster".to_owned(), json!({"children": parts}));
        children.insert(
            NEEDS_ETCD.to_owned(),
            json!({"hosts": self.members(NEEDS_ETCD)}),
        );
        let hosts: Map<String, Value> = self
            .hosts
            .iter()
            .map(|(name, variables)| (name.to_string(), Value::Object(variables.clone())))
            .collect();
        json!({"all": {"hosts": hosts, "vars": self.variables, "children": children}})
    }

    fn members(&self, group: &str) -> Map<String, Value> {
        self.group(group)
            .iter()
            .map(|name| (name.to_string(), json!({})))
            .collect()
    }
}

fn private_directory(path: &Path) -> Result<(), FileError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(FileError::of(path))
}

fn private_file(path: &Path, content: &Value) -> Result<(), FileError> {
    let text = format!("{content:#}\n");
    write_private(path, text.as_bytes()).map_err(FileError::of(path))
}
