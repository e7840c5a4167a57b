//! The archive of a chart, wherever it is.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use api::magnum::{Addon, ChartRef, OciChart};
use controller::Problem;
use helm::Helm;
use kube::ResourceExt;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::Context;

/// How long a registry may take.
const BRINGS: Duration = Duration::from_mins(2);
/// The largest archive, in bytes. What Helm keeps of a release is at most 1 MiB, with the chart in it.
const LARGEST: u64 = 4 << 20;

/// An archive, which goes with the value.
pub(super) struct Archive {
    pub(super) file: PathBuf,
    /// Its SHA-256, in hex.
    pub(super) digest: String,
    _directory: TempDir,
}

/// Why there is no archive.
#[derive(Debug)]
pub(super) enum Missing {
    /// Somebody has to change something.
    Problem(Problem),
    /// It is tried again.
    Away(String),
}

impl Context {
    /// The chart of an Addon.
    pub(super) async fn archive(&self, helm: &Helm, addon: &Addon) -> Result<Archive, Missing> {
        let chart = &addon.spec.chart;
        match (&chart.oci, &chart.config_map_ref) {
            (Some(oci), _) => pulled(helm, oci).await,
            (None, Some(named)) => {
                let namespace = addon.namespace().unwrap_or_default();
                self.kept(&namespace, named).await
            }
            // The definition refuses it.
            (None, None) => Err(Missing::Problem(Problem::new(
                "spec.chart",
                "",
                "it names no chart",
                "set one of oci and configMapRef",
            ))),
        }
    }

    async fn kept(&self, namespace: &str, named: &ChartRef) -> Result<Archive, Missing> {
        let (name, key) = (&named.name, named.key());
        let command =
            format!("kubectl -n {namespace} create configmap {name} --from-file={key}=CHART.tgz");
        let map = self.maps(namespace).get_opt(name).await;
        let map =
            map.map_err(|error| Missing::Away(format!("failed to get ConfigMap {name}: {error}")))?;
        let Some(map) = map else {
            return Err(Missing::Problem(Problem::new(
                "spec.chart.configMapRef.name",
                name,
                format!("there is no such ConfigMap in namespace {namespace}"),
                format!("make it: {command}"),
            )));
        };
        let bytes = map
            .binary_data
            .and_then(|mut data| data.remove(key))
            .map(|bytes| bytes.0)
            .or_else(|| map.data?.remove(key).map(String::into_bytes));
        let Some(bytes) = bytes else {
            return Err(Missing::Problem(Problem::new(
                "spec.chart.configMapRef.key",
                key,
                format!("ConfigMap {namespace}/{name} has no such key"),
                format!("name one that it has, or make it anew: {command}"),
            )));
        };
        let directory = TempDir::new().map_err(|error| away(&error))?;
        let file = directory.path().join("chart.tgz");
        fs::write(&file, &bytes).map_err(|error| away(&error))?;
        Ok(Archive {
            file,
            digest: hex(&bytes),
            _directory: directory,
        })
    }
}

async fn pulled(helm: &Helm, oci: &OciChart) -> Result<Archive, Missing> {
    let OciChart {
        repository,
        version,
    } = oci;
    let problem = |rule: String| {
        Missing::Problem(Problem::new(
            "spec.chart.oci",
            format!("{repository} {version}"),
            rule,
            "name one that its registry gives to everybody",
        ))
    };
    let directory = TempDir::new().map_err(|error| away(&error))?;
    let file = helm
        .pull(repository, version, directory.path(), BRINGS)
        .await;
    let file = match file {
        Ok(file) => file,
        Err(error @ helm::program::Error::Late { .. }) => {
            return Err(Missing::Away(controller::chain(&error)));
        }
        Err(error) => return Err(problem(controller::chain(&error))),
    };
    let bytes = read(&file).map_err(|error| away(&error))?;
    let bytes = bytes.ok_or_else(|| problem(format!("it is larger than {LARGEST} bytes")))?;
    Ok(Archive {
        file,
        digest: hex(&bytes),
        _directory: directory,
    })
}

fn read(file: &Path) -> std::io::Result<Option<Vec<u8>>> {
    if fs::metadata(file)?.len() > LARGEST {
        return Ok(None);
    }
    fs::read(file).map(Some)
}

fn away(error: &std::io::Error) -> Missing {
    Missing::Away(format!("failed to write the chart: {error}"))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        // A String takes everything.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
