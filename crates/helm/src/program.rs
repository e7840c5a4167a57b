//! The program: which version it is, and its calls.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io::Write as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use semver::Version;
use serde::Deserialize;
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};
use tokio::process::Command;

use crate::{
    deadlock::Proven,
    lock::Held,
    process::{self, Ended},
    record::STORED,
};

/// The oldest version whose options are used here.
const OLDEST: Version = Version::new(3, 14, 0);
/// How long it may take to say its version.
const ANSWERS: Duration = Duration::from_secs(30);
/// How many revisions are kept of a release: each is a Secret of up to half a megabyte.
const HISTORY: &str = "3";
/// Helm 4 otherwise fails where somebody else has written a field; Helm 3 leaves such a field alone where the chart says the same as before.
const AS_BEFORE: &str = "--server-side=false";
/// How much of its complaint an error tells.
const COMPLAINT: usize = 2000;

/// Helm as it is on this machine.
#[derive(Clone, Debug)]
pub struct Helm {
    program: PathBuf,
    version: Version,
    kubeconfig: Option<PathBuf>,
}

/// Where a release is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The name.
    pub release: &'a str,
}

/// What a release is to be.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The directory of the chart, or its archive.
    pub chart: &'a Path,
    /// The values, beside those of the chart. References to secrets, never secrets: Helm keeps them in clear.
    pub values: &'a Value,
}

/// What a chart says of itself.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
pub struct Chart {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Why a call did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program cannot be started.
    #[error("start Helm ({program})")]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It does not say its version in a form that is known.
    #[error("read the version of Helm ({program}): it said {said:?}")]
    Unknown {
        /// The program.
        program: PathBuf,
        /// What it said.
        said: String,
    },
    /// It is too old.
    #[error("use Helm {found} ({program}): {OLDEST} is the oldest that will do")]
    TooOld {
        /// The program.
        program: PathBuf,
        /// Its version.
        found: Version,
    },
    /// What it reads cannot be written, or what it wrote cannot be read.
    #[error("write what Helm reads")]
    Files(#[source] std::io::Error),
    /// It brought no archive.
    #[error("pull {reference}: Helm left no archive")]
    Empty {
        /// What was to be brought.
        reference: String,
    },
    /// What the chart says of itself cannot be read.
    #[error("read Chart.yaml")]
    Chart(#[source] serde_saphyr::Error),
    /// It was told to end at the deadline.
    #[error("{what} within {} s", deadline.as_secs())]
    Late {
        /// What was asked of it.
        what: String,
        /// The deadline.
        deadline: Duration,
    },
    /// It failed.
    #[error("{what}: {said} ({status})")]
    Failed {
        /// What was asked of it.
        what: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it said.
        said: String,
    },
}

impl Helm {
    /// The program at this path or of this name, for the cluster of this kubeconfig; none: the cluster that this process is in.
    ///
    /// # Errors
    ///
    /// It cannot be started, or is too old.
    pub async fn find(program: &Path, kubeconfig: Option<&Path>) -> Result<Self, Error> {
        let mut helm = Self {
            program: program.to_owned(),
            version: OLDEST,
            kubeconfig: kubeconfig.map(Path::to_owned),
        };
        let template = ["version", "--template", "{{.Version}}"];
        let said = helm
            .call("say its version", &template, Stdio::null(), ANSWERS)
            .await?;
        let unknown = || Error::Unknown {
            program: program.to_owned(),
            said: cut(&said),
        };
        let text = said.trim().trim_start_matches('v');
        helm.version = Version::parse(text).map_err(|_| unknown())?;
        // One that was built of a later state says so behind a dash, which orders it before that version.
        let plain = Version::new(helm.version.major, helm.version.minor, helm.version.patch);
        if plain < OLDEST {
            return Err(Error::TooOld {
                program: program.to_owned(),
                found: helm.version,
            });
        }
        Ok(helm)
    }

    /// Its version.
    pub const fn version(&self) -> &Version {
        &self.version
    }

    /// Makes a release what it is to be, whether it is there or not. Hooks run; whether what was installed works is not waited for,
    /// which whoever knows what it is can do with better words.
    ///
    /// # Errors
    ///
    /// It cannot be done, or not in time.
    pub async fn upgrade(
        &self,
        held: &Held,
        change: Change<'_>,
        deadline: Duration,
    ) -> Result<(), Error> {
        self.changed(held, change, &[], deadline).await
    }

    /// The same, with a label on its record from which [`Record::stored`](crate::Record::stored) knows that nobody else stored a later one.
    ///
    /// # Errors
    ///
    /// It cannot be done, or not in time.
    pub async fn upgrade_as(
        &self,
        held: &Held,
        change: Change<'_>,
        revision: u64,
        deadline: Duration,
    ) -> Result<(), Error> {
        self.upgrade_marked(held, change, revision, &BTreeMap::new(), deadline)
            .await
    }

    /// The same, with more labels on its record, which [`outlines`](crate::record::outlines) shows.
    ///
    /// # Errors
    ///
    /// It cannot be done, or not in time.
    pub async fn upgrade_marked(
        &self,
        held: &Held,
        change: Change<'_>,
        revision: u64,
        marks: &BTreeMap<String, String>,
        deadline: Duration,
    ) -> Result<(), Error> {
        let marks = marks.iter().map(|(key, value)| format!(",{key}={value}"));
        let labels = format!("{STORED}={revision}{}", marks.collect::<String>());
        self.changed(held, change, &["--labels", &labels], deadline)
            .await
    }

    /// Makes a release what it is to be, and waits until it is ready: one of which is [`Proven`] that this can end.
    ///
    /// # Errors
    ///
    /// It cannot be done, or not in time.
    pub async fn upgrade_and_wait(
        &self,
        held: &Held,
        change: Change<'_>,
        _: &Proven,
        deadline: Duration,
    ) -> Result<(), Error> {
        let waiting = ["--wait", "--wait-for-jobs"];
        self.changed(held, change, &waiting, deadline).await
    }

    async fn changed(
        &self,
        held: &Held,
        change: Change<'_>,
        further: &[&str],
        deadline: Duration,
    ) -> Result<(), Error> {
        let place = held.place();
        let values = values(change.values)?;
        let timeout = format!("{}s", deadline.as_secs().max(1));
        let mut arguments: Vec<&OsStr> = vec![
            "upgrade".as_ref(),
            "--install".as_ref(),
            place.release.as_ref(),
            change.chart.as_os_str(),
            "--namespace".as_ref(),
            place.namespace.as_ref(),
            "--values".as_ref(),
            values.path().as_os_str(),
            // What was given before is not kept: what stands in the values is all.
            "--reset-values".as_ref(),
            "--history-max".as_ref(),
            HISTORY.as_ref(),
            "--timeout".as_ref(),
            timeout.as_ref(),
        ];
        arguments.extend(further.iter().map(OsStr::new));
        if self.version.major >= 4 {
            arguments.push(AS_BEFORE.as_ref());
        }
        let what = format!("install release {}", place.release);
        self.call(&what, &arguments, input(held)?, deadline)
            .await
            .map(drop)
    }

    /// The objects that a release would be made of and its hooks, as YAML documents. The cluster is not asked.
    ///
    /// # Errors
    ///
    /// The chart cannot be rendered.
    pub async fn template(
        &self,
        place: Place<'_>,
        change: Change<'_>,
        deadline: Duration,
    ) -> Result<String, Error> {
        let values = values(change.values)?;
        let arguments = [
            "template".as_ref(),
            place.release.as_ref(),
            change.chart.as_os_str(),
            "--namespace".as_ref(),
            place.namespace.as_ref(),
            "--values".as_ref(),
            values.path().as_os_str(),
        ];
        let what = format!("render release {}", place.release);
        self.call(&what, &arguments, Stdio::null(), deadline).await
    }

    /// What a chart says of itself.
    ///
    /// # Errors
    ///
    /// There is no chart.
    pub async fn chart(&self, chart: &Path, deadline: Duration) -> Result<Chart, Error> {
        let arguments = ["show".as_ref(), "chart".as_ref(), chart.as_os_str()];
        let said = self
            .call("read the chart", &arguments, Stdio::null(), deadline)
            .await?;
        serde_saphyr::from_str(&said).map_err(Error::Chart)
    }

    /// Brings the archive of a chart from a registry into a directory that is empty.
    ///
    /// # Errors
    ///
    /// It is not there, or not for everybody to read.
    pub async fn pull(
        &self,
        reference: &str,
        version: &str,
        into: &Path,
        deadline: Duration,
    ) -> Result<PathBuf, Error> {
        let arguments = [
            "pull".as_ref(),
            reference.as_ref(),
            "--version".as_ref(),
            version.as_ref(),
            "--destination".as_ref(),
            into.as_os_str(),
        ];
        let what = format!("pull {reference} {version}");
        self.call(&what, &arguments, Stdio::null(), deadline)
            .await?;
        let mut entries = std::fs::read_dir(into).map_err(Error::Files)?;
        let reference = reference.to_owned();
        let first = entries.next().ok_or(Error::Empty { reference })?;
        first.map(|entry| entry.path()).map_err(Error::Files)
    }

    /// Removes a release and its history. One that is not there is no error.
    ///
    /// # Errors
    ///
    /// It cannot be done, or not in time.
    pub async fn uninstall(&self, held: &Held, deadline: Duration) -> Result<(), Error> {
        let place = held.place();
        let timeout = format!("{}s", deadline.as_secs().max(1));
        let arguments = [
            "uninstall",
            place.release,
            "--namespace",
            place.namespace,
            "--ignore-not-found",
            "--timeout",
            &timeout,
        ];
        let what = format!("remove release {}", place.release);
        self.call(&what, &arguments, input(held)?, deadline)
            .await
            .map(drop)
    }

    async fn call(
        &self,
        what: &str,
        arguments: &[impl AsRef<OsStr>],
        input: Stdio,
        deadline: Duration,
    ) -> Result<String, Error> {
        // Repositories, plugins and caches of the person who runs this have no say.
        let own = TempDir::new().map_err(Error::Files)?;
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HELM_") {
                command.env_remove(name);
            }
        }
        for (name, directory) in [
            ("HELM_CACHE_HOME", "cache"),
            ("HELM_CONFIG_HOME", "config"),
            ("HELM_DATA_HOME", "data"),
        ] {
            command.env(name, own.path().join(directory));
        }
        if let Some(kubeconfig) = &self.kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        command.args(arguments);
        let Ended {
            status,
            output,
            errors,
            is_late,
        } = process::run(command, input, deadline)
            .await
            .map_err(|source| Error::Start {
                program: self.program.clone(),
                source,
            })?;
        if status.success() {
            return Ok(output);
        }
        let what = what.to_owned();
        if is_late {
            return Err(Error::Late { what, deadline });
        }
        Err(Error::Failed {
            what,
            status,
            said: cut(&errors),
        })
    }
}

fn input(held: &Held) -> Result<Stdio, Error> {
    held.input().map_err(Error::Files)
}

/// A file that only its owner reads.
fn values(values: &Value) -> Result<NamedTempFile, Error> {
    let mut file = NamedTempFile::new().map_err(Error::Files)?;
    file.write_all(values.to_string().as_bytes())
        .map_err(Error::Files)?;
    Ok(file)
}

/// The end of what was said, on one line.
fn cut(said: &str) -> String {
    let line: Vec<_> = said.split_whitespace().collect();
    let line = line.join(" ");
    let start = line.len().saturating_sub(COMPLAINT);
    let start = (start..=line.len()).find(|at| line.is_char_boundary(*at));
    line.get(start.unwrap_or_default()..)
        .unwrap_or_default()
        .to_owned()
}
