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

    /// The data directory for what writes into it: made, and its user's alone, as is whatever this process writes from now on.
    pub(crate) fn private_data_directory(&self) -> anyhow::Result<PathBuf> {
        kubespray::private::close();
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use clap::Parser as _;

    use crate::cli::Cli;

    #[test]
    fn what_is_written_into_the_data_directory_is_its_users_alone() {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        let cli = Cli::parse_from(["windlass", "--data-dir", data.to_str().unwrap(), "status"]);
        let given = cli.global.private_data_directory().unwrap();
        std::fs::write(given.join("file"), "").unwrap();
        std::fs::create_dir(given.join("directory")).unwrap();
        for (name, expected) in [("file", 0o600), ("directory", 0o700)] {
            let mode = given.join(name).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, expected, "{name}");
        }
    }
}
