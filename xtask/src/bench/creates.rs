//! An operator with many Clusters that are built, at rest; and while many are created: what a status that a runner writes costs it, by the size of the cluster.
//!
//! API, operator and simulated runners are processes of their own. What counts is the operator's processor time for each write at 500
//! hosts against the same at 5: a pass should cost what has changed, not what there is.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;

use super::{
    Profile, Row, example, output,
    process::{Guard, cpu, resident},
};

const CLUSTERS: u32 = 20;
const HOSTS: [u32; 2] = [5, 500];
/// The hosts of a built Cluster.
const NODES: u32 = 10;
/// How long the processor time of an operator at rest is counted.
const REST: Duration = Duration::from_mins(1);
/// For how long runners write.
const SECONDS: u32 = 60;
/// What the operator still does when the Runs are there.
const SETTLING: Duration = Duration::from_secs(15);

pub(crate) fn measure() -> anyhow::Result<Vec<Row>> {
    let program = example("kubespray", "creates", Profile::Release)?;
    let [few, many] = HOSTS;
    let small = created(&program, few)?;
    let large = created(&program, many)?;
    let shown = |seen: &Seen| {
        format!(
            "{:.1} ms a write ({:.1} % of one processor at {:.1} writes/s)",
            seen.each_ms(),
            seen.used.as_secs_f64() / f64::from(SECONDS) * 100.0,
            f64::from(seen.writes) / f64::from(SECONDS),
        )
    };
    Ok(vec![
        Row::new(
            &format!(
                "operator while {CLUSTERS} Clusters of {many} hosts are created: processor time"
            ),
            shown(&large),
        )
        .peer(
            &format!("{few} hosts {}", shown(&small)),
            large.each_ms() / small.each_ms(),
        )
        .wanted("about 1"),
    ])
}

/// Each has the Run that created it, which is all that says so. Their kubeconfigs are not there, so a probe of their health is a
/// question for a Secret.
pub(crate) fn built(clusters: u32) -> anyhow::Result<Vec<Row>> {
    let program = example("kubespray", "creates", Profile::Release)?;
    let scratch = tempfile::tempdir().context("failed to make a directory")?;
    let (_api, kubeconfig) = serve(&program, &scratch.path().join("api"))?;
    let part = |name: &str| {
        let mut command = Command::new(&program);
        command.arg(name).arg(&kubeconfig);
        command
    };
    let revision = || -> anyhow::Result<u64> {
        let said = output(&mut part("revision"))?;
        said.trim().parse().context("no revision")
    };
    output(part("build").args([clusters.to_string(), NODES.to_string()]))?;
    let started = Instant::now();
    let operator = Guard::start(part("operate").arg(scratch.path().join("data")))?;
    output(part("kept").arg(clusters.to_string()))?;
    let (known, worked) = (started.elapsed(), cpu(operator.pid())?);
    thread::sleep(SETTLING);
    let (before, written) = (cpu(operator.pid())?, revision()?);
    thread::sleep(REST);
    let used = cpu(operator.pid())?.saturating_sub(before);
    let written = revision()? - written;
    Ok(vec![
        Row::new(
            &format!("operator with {clusters} built Clusters of {NODES} nodes: resident"),
            format!("{:.0} MiB", resident(operator.pid())?),
        ),
        Row::new(
            "the same: until each is known to be built",
            format!(
                "{:.1} s ({:.1} s of a processor)",
                known.as_secs_f64(),
                worked.as_secs_f64()
            ),
        ),
        Row::new(
            "the same: processor over 60 s",
            format!(
                "{:.1} % of one",
                used.as_secs_f64() / REST.as_secs_f64() * 100.0
            ),
        ),
        Row::new("the same: writes in 60 s", written.to_string()).wanted("0"),
    ])
}

struct Seen {
    used: Duration,
    writes: u32,
}

impl Seen {
    fn each_ms(&self) -> f64 {
        self.used.as_secs_f64() * 1e3 / f64::from(self.writes)
    }
}

fn created(program: &Path, hosts: u32) -> anyhow::Result<Seen> {
    let scratch = tempfile::tempdir().context("failed to make a directory")?;
    let (_api, kubeconfig) = serve(program, &scratch.path().join("api"))?;
    let part = |name: &str| {
        let mut command = Command::new(program);
        command.arg(name).arg(&kubeconfig);
        command
    };
    output(part("create").args([CLUSTERS.to_string(), hosts.to_string()]))?;
    let operator = Guard::start(part("operate").arg(scratch.path().join("data")))?;
    output(part("ready").arg(CLUSTERS.to_string()))?;
    thread::sleep(SETTLING);
    let before = cpu(operator.pid())?;
    let writes = output(part("write").arg(SECONDS.to_string()))?;
    Ok(Seen {
        used: cpu(operator.pid())?.saturating_sub(before),
        writes: writes.trim().parse().context("no number of writes")?,
    })
}

/// An API of a process of its own, until the value goes, and its kubeconfig.
pub(super) fn serve(program: &Path, directory: &Path) -> anyhow::Result<(Guard, PathBuf)> {
    let mut command = Command::new(program);
    let child: Child = command
        .arg("serve")
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("failed to start the API")?;
    let mut api = Guard(child);
    let said = api.0.stdout.take().context("it has no output")?;
    let mut kubeconfig = String::new();
    BufReader::new(said).read_line(&mut kubeconfig)?;
    Ok((api, kubeconfig.trim().into()))
}
