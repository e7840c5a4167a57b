//! Where things are on this machine.

use std::path::PathBuf;

use anyhow::Context;

use crate::cli::Global;

impl Global {
    /// The data directory: as given, else `$XDG_DATA_HOME/windlass`, else `~/.local/share/windlass`.
    pub(crate) fn data_directory(&self) -> anyhow::Result<PathBuf> {
        if let Some(directory) = &self.data_dir {
            return std::path::absolute(directory).context("failed to resolve --data-dir");
        }
        let base = std::env::var_os("XDG_DATA_HOME")
            .filter(|value| !value.is_empty())
            .map_or_else(
                || std::env::home_dir().map(|home| home.join(".local/share")),
                |value| Some(PathBuf::from(value)),
            );
        let base = base.context("no home directory: name one with --data-dir")?;
        Ok(base.join("windlass"))
    }

    /// The data directory for what writes into it: made, and its user's alone.
    pub(crate) fn private_data_directory(&self) -> anyhow::Result<PathBuf> {
        let directory = self.data_directory()?;
        kubespray::private::data_directory(&directory)?;
        Ok(directory)
    }

    /// The kubeconfig in the data directory, which `windlass up` writes.
    pub(crate) fn own_kubeconfig(&self) -> anyhow::Result<PathBuf> {
        Ok(self.data_directory()?.join("kubeconfig"))
    }

    /// What `kubectl` is given to reach the same API: `--kubeconfig`, else that of `windlass up`, started or not.
    pub(crate) fn api_kubeconfig(&self) -> anyhow::Result<PathBuf> {
        self.kubeconfig
            .clone()
            .map_or_else(|| self.own_kubeconfig(), Ok)
    }
}
