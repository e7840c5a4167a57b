//! Runs of a stage, and the same playbooks without Windlass, with the time that their plays took.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail, ensure};
use e2e::{NAMESPACE, Stage, wait_until};
use serde_json::Value;

use super::output;

/// One run through Windlass. Moments are seconds since the epoch.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Where its files are.
    pub(crate) directory: PathBuf,
    /// The records of its journal, each with the moment it was seen: the journal's own times are whole seconds.
    pub(crate) records: Vec<(f64, Value)>,
    /// When the first play started.
    pub(crate) began: f64,
    /// From the first play's start to the last one's end, in seconds.
    pub(crate) plays: f64,
    /// How many plays there were.
    pub(crate) steps: usize,
}

impl Ran {
    /// What Ansible told while the plays were at work.
    pub(crate) fn events(&self) -> anyhow::Result<Vec<Value>> {
        let text = fs::read_to_string(self.directory.join("events.jsonl"))
            .context("failed to read the events")?;
        let events = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        Ok(events
            .filter(|event: &Value| event["time"].as_f64() >= Some(self.began))
            .collect())
    }

    /// How many processes of Ansible the plays took.
    pub(crate) fn processes(&self) -> anyhow::Result<usize> {
        let events = self.events()?;
        let processes = events.iter().filter_map(|event| event["run"].as_str());
        Ok(processes.collect::<BTreeSet<_>>().len())
    }

    /// The seconds from one record to another, by their events and steps; no step: the run's own.
    pub(crate) fn between(&self, from: (&str, &str), to: (&str, &str)) -> anyhow::Result<f64> {
        let at = |(event, step): (&str, &str)| {
            let mut records = self.records.iter();
            let found = records.find(|(_, record)| {
                let of = record["step"].as_str().unwrap_or_default();
                record["event"] == event && of == step
            });
            let found = found.with_context(|| format!("the journal has no {event} {step}"));
            found.map(|(moment, _)| *moment)
        };
        Ok(at(to)? - at(from)?)
    }
}

/// Asks for something and follows the journal of the run that comes of it.
pub(crate) fn through_windlass(
    stage: &Stage,
    ask: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Ran> {
    let (directory, records) = followed(stage, ask)?;
    let plays = plays(&stage.run()?);
    let of_plays = |event: &str| -> Vec<f64> {
        let is_of_play = |record: &Value| {
            let step = record["step"].as_str().unwrap_or_default();
            record["event"] == event && plays.contains(step)
        };
        let found = records.iter().filter(|(_, record)| is_of_play(record));
        found.map(|(moment, _)| *moment).collect()
    };
    let (started, ended) = (of_plays("StepStarted"), of_plays("StepSucceeded"));
    let began = *started.first().context("no play started")?;
    Ok(Ran {
        plays: ended.last().context("no play ended")? - began,
        steps: started.len(),
        directory,
        records,
        began,
    })
}

/// Asks for something and follows the journal of the run that comes of it: the directory of the run, and its records with the moments at
/// which they were seen.
pub(crate) fn followed(
    stage: &Stage,
    ask: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<(PathBuf, Vec<(f64, Value)>)> {
    let runs = stage.data().join("runs").join(NAMESPACE);
    let known = entries(&runs);
    let before = SystemTime::now();
    ask()?;
    let directory = wait_until("a run", Duration::from_mins(1), || {
        // A run of the same name takes the directory of the one before.
        let fresh = entries(&runs).into_iter().find(|directory| {
            let journal = directory.join("journal.jsonl");
            let written = fs::metadata(journal).and_then(|data| data.modified());
            written.is_ok_and(|at| at >= before) || !known.contains(directory)
        });
        Ok(fresh)
    })?;
    let records = follow(stage, &directory.join("journal.jsonl"))?;
    Ok((directory, records))
}

/// The steps that are plays of a playbook.
fn plays(run: &Value) -> BTreeSet<String> {
    let steps = run["spec"]["plan"]["steps"]
        .as_array()
        .into_iter()
        .flatten();
    steps
        .filter(|step| step["action"]["engine"]["type"] == "AnsiblePlay")
        .filter_map(|step| step["id"].as_str().map(str::to_owned))
        .collect()
}

/// Reads lines as they are written, each with the moment it was seen: the journal's own times are whole seconds.
fn follow(stage: &Stage, journal: &Path) -> anyhow::Result<Vec<(f64, Value)>> {
    let deadline = Instant::now() + stage.patience();
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
        ensure!(
            Instant::now() < deadline,
            "the run took over {} minutes",
            stage.patience().as_secs() / 60
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A playbook without Windlass, with the inventory, the variables and the ansible.cfg that Windlass wrote for a run whose files are
/// in this directory; gives its time in seconds.
pub(crate) fn plain(
    stage: &Stage,
    directory: &Path,
    playbook: &str,
    arguments: &[&str],
) -> anyhow::Result<f64> {
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
            .arg(stage.playbooks()),
    )?;
    let made: Value = serde_json::from_str(&made)?;
    let path = made["path"].as_str().context("the sandbox has no path")?;
    let program = Path::new(path).join("bin/ansible-playbook");
    let home = stage.lab.dir().join("plain-ansible");
    let log = fs::File::create(stage.lab.dir().join("plain.log"))?;
    let mut command = Command::new(program);
    command
        .arg("--inventory")
        .arg(inventory)
        .arg("--extra-vars")
        .arg(format!("@{}", directory.join("vars.json").display()))
        .arg(playbook)
        .args(arguments)
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
        "the plain {playbook} failed:\n{}",
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
