//! Real kubespray, brought by whoever runs the suites: nothing of it is in this repository.

use std::{env, fs, path::PathBuf};

use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};

/// A kubespray checkout, and all that it downloads.
#[derive(Clone, Debug)]
pub struct Kubespray {
    /// The unmodified checkout.
    pub checkout: PathBuf,
    /// Its variables, such as where it downloads from.
    pub variables: Map<String, Value>,
    /// What is served to the hosts on port 80 of the lab's gateway; nothing where the variables name another place.
    pub mirror: Option<PathBuf>,
    /// The program that serves it.
    pub server: PathBuf,
}

impl Kubespray {
    /// What `WINDLASS_KUBESPRAY` (a checkout), `WINDLASS_KUBESPRAY_VARS` (a file of variables, JSON or YAML) and
    /// `WINDLASS_KUBESPRAY_MIRROR` (a directory) name; none without the first.
    ///
    /// # Errors
    ///
    /// What they name is not there or cannot be read.
    pub fn from_environment(server: PathBuf) -> anyhow::Result<Option<Self>> {
        let given = |name| {
            env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let Some(checkout) = given("WINDLASS_KUBESPRAY") else {
            return Ok(None);
        };
        ensure!(
            checkout.join("cluster.yml").is_file(),
            "WINDLASS_KUBESPRAY: {} is no kubespray checkout: it has no cluster.yml",
            checkout.display()
        );
        let variables = match given("WINDLASS_KUBESPRAY_VARS") {
            None => Map::new(),
            Some(file) => {
                let text = fs::read_to_string(&file)
                    .with_context(|| format!("WINDLASS_KUBESPRAY_VARS: {}", file.display()))?;
                serde_saphyr::from_str(&text)
                    .with_context(|| format!("WINDLASS_KUBESPRAY_VARS: {}", file.display()))?
            }
        };
        Ok(Some(Self {
            checkout,
            variables,
            mirror: given("WINDLASS_KUBESPRAY_MIRROR"),
            server,
        }))
    }

    /// Makes a Cluster's spec use this checkout and these variables.
    pub fn choose(&self, spec: &mut Value) {
        spec["kubespray"] = json!({"version": "2.30.0", "source": {"path": self.checkout}});
        spec["nodes"]["all"]["deploy"]["extraVars"] = Value::Object(self.variables.clone());
    }
}
