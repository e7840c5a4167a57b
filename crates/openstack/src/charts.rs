//! The charts: one step is one small release without hooks, so that nothing in one waits for what comes after it.

use std::{fs, io, path::Path};

use tempfile::TempDir;

/// A chart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Chart {
    /// A command that runs once.
    Job,
    /// Pods that serve.
    Api,
    /// A single MariaDB.
    Database,
    /// A single memcached.
    Memcached,
    /// A single RabbitMQ.
    Rabbitmq,
}

impl Chart {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Job,
        Self::Api,
        Self::Database,
        Self::Memcached,
        Self::Rabbitmq,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Api => "api",
            Self::Database => "database",
            Self::Memcached => "memcached",
            Self::Rabbitmq => "rabbitmq",
        }
    }

    /// Whether people may go on with what it makes. What ran once is done.
    pub const fn is_kept(self) -> bool {
        match self {
            Self::Api | Self::Database | Self::Memcached | Self::Rabbitmq => true,
            Self::Job => false,
        }
    }

    const fn files(self) -> [(&'static str, &'static str); 3] {
        match self {
            Self::Job => [
                ("Chart.yaml", include_str!("../charts/job/Chart.yaml")),
                (
                    "templates/job.yaml",
                    include_str!("../charts/job/templates/job.yaml"),
                ),
                POD,
            ],
            Self::Api => [
                ("Chart.yaml", include_str!("../charts/api/Chart.yaml")),
                (
                    "templates/api.yaml",
                    include_str!("../charts/api/templates/api.yaml"),
                ),
                POD,
            ],
            Self::Database => [
                ("Chart.yaml", include_str!("../charts/database/Chart.yaml")),
                (
                    "templates/database.yaml",
                    include_str!("../charts/database/templates/database.yaml"),
                ),
                POD,
            ],
            Self::Memcached => [
                ("Chart.yaml", include_str!("../charts/memcached/Chart.yaml")),
                (
                    "templates/memcached.yaml",
                    include_str!("../charts/memcached/templates/memcached.yaml"),
                ),
                POD,
            ],
            Self::Rabbitmq => [
                ("Chart.yaml", include_str!("../charts/rabbitmq/Chart.yaml")),
                (
                    "templates/rabbitmq.yaml",
                    include_str!("../charts/rabbitmq/templates/rabbitmq.yaml"),
                ),
                POD,
            ],
        }
    }

    /// A directory with it, which goes with the value.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn unpack(self) -> io::Result<TempDir> {
        let directory = TempDir::new()?;
        self.write(directory.path())?;
        Ok(directory)
    }

    /// Writes it into a directory that is there.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write(self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory.join("templates"))?;
        for (name, text) in self.files() {
            fs::write(directory.join(name), text)?;
        }
        Ok(())
    }
}

const POD: (&str, &str) = ("templates/_pod.tpl", include_str!("../charts/_pod.tpl"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::STOPPED;

    #[test]
    fn what_a_restore_stopped_is_marked_as_the_operator_reads_it() {
        let marked = format!(
            "{{{{- if .Values.stopped }}}}\n  annotations:\n    # Whoever stops it otherwise meant it.\n    {STOPPED}: restore\n"
        );
        let [_, (_, template), _] = Chart::Api.files();
        assert!(template.contains(&marked), "{template}");
    }
}
