//! A run through Windlass against plain `ansible-playbook` of the same playbooks on the same hosts.
//!
//! Both run again on a finished cluster, by turns. Windlass' run is what people get: the Cluster is forgotten (its
//! deletion policy is to retain the hosts) and applied again, and the time is that from the first play's `StepStarted` to
//! the last one's `StepSucceeded` in the journal. The plain run takes the inventory, the variables and the ansible.cfg
//! that Windlass wrote for that very run, with a key and a directory for ssh's sockets in the same places, and is timed
//! from the start of its process to its end; so only the slicing, the events and the journal differ.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail, ensure};
use e2e::{NAMESPACE, Options, Stage, wait_until};
use lab::progress::Terminal;
use serde_json::Value;

use super::{Row, median, output};
use crate::tools;

pub(crate) fn measure(pairs: u8, windlass: PathBuf) -> anyhow::Result<Vec<Row>> {
    let mut stage = Stage::set(
        Options {
            hosts: 3,
            dead: 0,
            windlass,
            directory: tools::root(),
            playbooks: tools::root().join("bundle"),
        },
        &Terminal::default(),
    )?;
    stage.up()?;
    eprintln!("sliced: raising the cluster");
    let mut last = through_windlass(&stage)?;
    eprintln!("sliced: raised in {:.1} s of plays", last.plays);
    let (mut sliced, mut plain, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 1..=pairs {
        // By turns who is first, so that what warms up or fills up falls on both.
        if pair % 2 == 0 {
            plain.push(without(&stage, &last)?);
        }
        output(&mut stage.kubectl(&[
            "delete",
            "cluster",
            "first",
            "--namespace",
            NAMESPACE,
            "--timeout=60s",
        ]))?;
        last = through_windlass(&stage)?;
        sliced.push(last.plays);
        starts.push(last.start);
        if pair % 2 == 1 {
            plain.push(without(&stage, &last)?);
        }
        if let (Some(own), Some(peer)) = (sliced.last(), plain.last()) {
            eprintln!(
                "sliced: pair {pair} of {pairs}: Windlass {own:.2} s, plain {peer:.2} s, start {:.2} s",
                last.start
            );
        }
    }
    let ratios: Vec<f64> = sliced
        .iter()
        .zip(&plain)
        .map(|(own, peer)| own / peer)
        .collect();
    Ok(vec![
        Row::new(
            &format!(
                "cluster.yml of the bundle again on 3 hosts, median of {pairs} pairs ({} steps in {} processes)",
                last.steps, last.processes
            ),
            format!("{:.2} s", median(&sliced)),
        )
        .peer(
            &format!("ansible-playbook {:.2} s", median(&plain)),
            median(&ratios),
        )
        .wanted("<= 1.03"),
        Row::new(
            "from StepStarted of the first play to its first task",
            format!("{:.2} s", median(&starts)),
        )
        .wanted("<= 1.5 s"),
    ])
}

/// One run through Windlass.
struct Ran {
    directory: PathBuf,
    /// From the first play's start to the last one's end, in seconds.
    plays: f64,
    /// From the first play's start to the first task.
    start: f64,
    steps: usize,
    processes: usize,
}

/// Applies the example and follows the journal of the run that comes of it.
fn through_windlass(stage: &Stage) -> anyhow::Result<Ran> {
    let runs = stage.data().join("runs").join(NAMESPACE);
    let known = entries(&runs);
    let before = SystemTime::now();
    stage.apply_example(&tools::root().join("examples/first-cluster"))?;
    let directory = wait_until("a run", Duration::from_mins(1), || {
        // A run of the same name takes the directory of the one before.
        let fresh = entries(&runs).into_iter().find(|directory| {
            let journal = directory.join("journal.jsonl");
            let written = fs::metadata(journal).and_then(|data| data.modified());
            written.is_ok_and(|at| at >= before) || !known.contains(directory)
        });
        Ok(fresh)
    })?;
    let lines = follow(stage, &directory.join("journal.jsonl"))?;
    let of_plays = |event: &str| -> Vec<&(f64, Value)> {
        lines
            .iter()
            .filter(|(_, line)| line["event"] == event && is_play(&line["step"]))
            .collect()
    };
    let (started, ended) = (of_plays("StepStarted"), of_plays("StepSucceeded"));
    let (first, end) = (
        started.first().context("no play started")?.0,
        ended.last().context("no play ended")?.0,
    );
    let events =
        fs::read_to_string(directory.join("events.jsonl")).context("failed to read the events")?;
    let events: Vec<Value> = events
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|event: &Value| event["time"].as_f64() >= Some(first))
        .collect();
    let task = events
        .iter()
        .find(|event| event["event"] == "task_start")
        .and_then(|event| event["time"].as_f64())
        .context("no task started")?;
    let processes: BTreeSet<_> = events
        .iter()
        .filter_map(|event| event["run"].as_str())
        .collect();
    Ok(Ran {
        plays: end - first,
        start: task - first,
        steps: started.len(),
        processes: processes.len(),
        directory,
    })
}

/// The steps of the run that are no plays stand outside of any playbook.
fn is_play(step: &Value) -> bool {
    step.as_str()
        .is_some_and(|step| !OTHER_STEPS.contains(&step))
}

/// Reads lines as they are written, each with the moment it was seen: the journal's own times are whole seconds.
fn follow(stage: &Stage, journal: &Path) -> anyhow::Result<Vec<(f64, Value)>> {
    let deadline = Instant::now() + Duration::from_mins(10);
    let mut lines: Vec<(f64, Value)> = Vec::new();
    loop {
        let text = fs::read_to_string(journal).unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines().skip(lines.len()) {
            // Each record stands beside its checksum.
            let mut line: Value = serde_json::from_str(line).context("a journal of JSON")?;
            lines.push((now, line["record"].take()));
        }
        match lines.last().and_then(|(_, line)| line["event"].as_str()) {
            Some("RunSucceeded") => return Ok(lines),
            Some(end @ ("RunFailed" | "RunPaused" | "RunCancelled")) => {
                bail!("{end}: {:?}\n{}", lines.last(), stage.log_tail())
            }
            _ => {}
        }
        ensure!(Instant::now() < deadline, "the run took over ten minutes");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The same playbook without Windlass; gives its time in seconds.
fn without(stage: &Stage, ran: &Ran) -> anyhow::Result<f64> {
    let directory = &ran.directory;
    let config = directory.join("ansible.cfg");
    let private = Private::make(
        &fs::read_to_string(&config)?,
        directory,
        &stage.lab.key_path(),
    )?;
    let inventory = directory.join("inventory");
    let checkout = only(&stage.data().join("sources"))?;
    let made = output(
        stage
            .windlass(&["sandbox", "--output", "json"])
            .arg(tools::root().join("bundle")),
    )?;
    let made: Value = serde_json::from_str(&made)?;
    let path = made["path"].as_str().context("the sandbox has no path")?;
    let playbook = Path::new(path).join("bin/ansible-playbook");
    let home = stage.lab.dir().join("plain-ansible");
    let log = fs::File::create(stage.lab.dir().join("plain.log"))?;
    let mut command = Command::new(playbook);
    command
        .arg("--inventory")
        .arg(inventory)
        .arg("--extra-vars")
        .arg(format!("@{}", directory.join("vars.json").display()))
        .arg("cluster.yml")
        .current_dir(checkout)
        .env("ANSIBLE_CONFIG", &config)
        .env("ANSIBLE_HOME", home)
        .env("ANSIBLE_NOCOLOR", "1")
        .env("LC_ALL", "C.UTF-8")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let mut command = stage.lab.enter(&command);
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let started = Instant::now();
    let status = command
        .status()
        .context("failed to start ansible-playbook")?;
    let took = started.elapsed().as_secs_f64();
    drop(private);
    let text = fs::read_to_string(stage.lab.dir().join("plain.log")).unwrap_or_default();
    let tail: Vec<_> = text.lines().rev().take(30).collect();
    let tail: Vec<_> = tail.into_iter().rev().collect();
    ensure!(
        status.success(),
        "the plain playbook failed:\n{}",
        tail.join("\n")
    );
    Ok(took)
}

/// The key and the directory of ssh's sockets, where the run had its own; removed with the value.
struct Private(PathBuf);

impl Private {
    fn make(config: &str, run: &Path, key: &Path) -> anyhow::Result<Self> {
        let named = format!(
            "{config}\n{}",
            fs::read_to_string(run.join("vars.json")).unwrap_or_default()
        );
        let all = entries(&run.join("inventory"))
            .iter()
            .filter_map(|file| fs::read_to_string(file).ok())
            .fold(named, |all, text| all + "\n" + &text);
        let start = all
            .find("/dev/shm/windlass-")
            .context("the run's files name no private directory")?;
        let name: String = all[start..]
            .chars()
            .take_while(|letter| letter.is_ascii_alphanumeric() || "/-".contains(*letter))
            .collect();
        let directory: PathBuf = Path::new(&name).iter().take(4).collect();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory.join("c"))?;
        let copy = directory.join("key");
        fs::copy(key, &copy)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
        Ok(Self(directory))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} is left: {error}", self.0.display());
        }
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

fn only(directory: &Path) -> anyhow::Result<PathBuf> {
    entries(directory)
        .into_iter()
        .find(|entry| entry.join("cluster.yml").exists())
        .with_context(|| format!("{} holds no playbooks", directory.display()))
}

/// The steps that are no plays.
const OTHER_STEPS: [&str; 4] = [
    "prepare/sandbox",
    "prepare/probe",
    "kubeconfig/store",
    "health/check",
];
