//! Operations on a cluster of three: a worker joins and leaves, by Windlass and by plain `ansible-playbook`; one host dies; the
//! operator is started again in the middle of a run.
//!
//! A worker joins on a host that left before, on either side. The plain run has the facts of the other hosts in the cache already,
//! which people who give `--limit` to kubespray see to by another playbook before.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::Context;
use e2e::{NAMESPACE, Stage, node, wait_until};
use serde_json::{Value, json};

use super::{
    Row, median, output,
    plays::{Ran, plain, through_windlass},
    stage,
};
use crate::tools;

/// The worker that joins, and its host.
const NEW: (&str, &str) = ("worker-3", "host-4");
/// The host of an old worker.
const OLD: &str = "host-3";
/// How long a host may take to answer, as `spec.ssh` has it by default, in seconds.
const TIMEOUT: f64 = 5.0;

pub(crate) fn measure(pairs: u8, windlass: PathBuf) -> anyhow::Result<Vec<Row>> {
    let mut stage = stage("living", 4, windlass)?;
    through_windlass(&stage, || {
        stage.apply_example(&tools::root().join("examples/first-cluster"))
    })?;
    // The first time the host has nothing yet, which is another thing than on a host that was reset.
    let mut last = joins(&stage)?;
    leaves(&stage)?;
    let mut rows = scale(&stage, pairs, &mut last)?;
    rows.push(untouched(&last)?);
    // What these show is Windlass' own, and a converge takes kubespray itself ten minutes.
    if !stage.is_of_kubespray() {
        rows.extend(one_dead(&stage)?);
        rows.push(resume(&mut stage)?);
    }
    Ok(rows)
}

/// How long something took through Windlass and without it, in seconds.
#[derive(Default)]
struct Pairs {
    own: Vec<f64>,
    peer: Vec<f64>,
}

impl Pairs {
    fn row(&self, what: &str, peer: &str) -> Row {
        let ratios = self.own.iter().zip(&self.peer);
        let ratios: Vec<_> = ratios.map(|(own, peer)| own / peer).collect();
        let peer = format!("ansible-playbook {peer} {:.2} s", median(&self.peer));
        Row::new(what, format!("{:.2} s", median(&self.own))).peer(&peer, median(&ratios))
    }
}

fn scale(stage: &Stage, pairs: u8, last: &mut Ran) -> anyhow::Result<Vec<Row>> {
    let [mut joined, mut whole, mut left] = [(); 3].map(|()| Pairs::default());
    for pair in 1..=pairs {
        let mut plain = None;
        // By turns who is first, so that what warms up or fills up falls on both.
        if pair % 2 == 0 {
            plain = Some(without(stage, last)?);
        }
        *last = joins(stage)?;
        joined.own.push(last.plays);
        whole.own.push(all_of(last)?);
        left.own.push(leaves(stage)?.plays);
        let (joins, leaves) = match plain {
            Some(took) => took,
            None => without(stage, last)?,
        };
        joined.peer.push(joins);
        whole.peer.push(joins);
        left.peer.push(leaves);
        eprintln!(
            "living: pair {pair} of {pairs}: Windlass {:.2} s, plain {joins:.2} s",
            last.plays
        );
    }
    let scale = "scale.yml --limit";
    let joins = format!("one worker joins a cluster of three, median of {pairs} pairs: the plays");
    Ok(vec![
        joined.row(&joins, scale).wanted("<= 1.0"),
        whole.row(
            "the same: the whole run, with the probe before and the wait until the node is Ready",
            scale,
        ),
        left.row("the same worker leaves: the plays", "remove-node.yml"),
    ])
}

/// What the plays did to the hosts that were there before.
fn untouched(ran: &Ran) -> anyhow::Result<Row> {
    let mut tasks: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let events = ran.events()?;
    for event in events.iter().filter(|event| event["event"] == "ok") {
        let Some(host) = event["host"].as_str() else {
            continue;
        };
        let (told, changed) = tasks.entry(host.to_owned()).or_default();
        *told += 1;
        *changed += u32::from(event["changed"] == true);
    }
    let new = tasks.remove(NEW.0).unwrap_or_default();
    let old: Vec<_> = tasks
        .iter()
        .map(|(host, (told, changed))| format!("{host} {told} ({changed} changed)"))
        .collect();
    Ok(Row::new(
        "the same: tasks on the new host / on old ones",
        format!("{} ({} changed) / {}", new.0, new.1, old.join(", ")),
    )
    .wanted("no old host changed but the first control plane"))
}

/// What one dead host costs, beyond the time after which it counts as dead.
fn one_dead(stage: &Stage) -> anyhow::Result<Vec<Row>> {
    let converge = || {
        through_windlass(stage, || {
            output(&mut stage.windlass(&["converge"])).map(drop)
        })
    };
    let well = [all_of(&converge()?)?, all_of(&joins(stage)?)?];
    leaves(stage)?;
    stage.lab.kill_host(OLD)?;
    let dead = [all_of(&converge()?)?, all_of(&joins(stage)?)?];
    leaves(stage)?;
    stage.lab.start_host(OLD)?;
    Ok(["converge", "a worker joins"]
        .into_iter()
        .zip(well.into_iter().zip(dead))
        .map(|(operation, (well, dead))| {
            Row::new(
                &format!("{operation}, with one of three old hosts dead: the whole run"),
                format!(
                    "{dead:.2} s, beyond the timeout {:+.2} s",
                    dead - well - TIMEOUT
                ),
            )
            .peer(&format!("all alive {well:.2} s"), dead / well)
            .wanted("<= +3 s")
        })
        .collect())
}

/// Operator and runner are killed while a play is at work; how long after the start of the operator the run goes on.
fn resume(stage: &mut Stage) -> anyhow::Result<Row> {
    output(&mut stage.windlass(&["converge"]))?;
    let (name, runner) = wait_until("a play to be at work", stage.patience(), || {
        let run = stage.run()?;
        let steps = run["status"]["steps"].as_array().into_iter().flatten();
        let at_work = |step: &Value| {
            step["phase"] == "Running" && step["progress"]["done"].as_u64() > Some(0)
        };
        let is_at_work = run["spec"]["operation"] == "Converge" && steps.into_iter().any(at_work);
        let name = run["metadata"]["name"].as_str().map(str::to_owned);
        let runner = run["status"]["runner"]["pid"].as_i64();
        Ok(name.zip(runner).filter(|_| is_at_work))
    })?;
    let journal = stage
        .data()
        .join("runs")
        .join(NAMESPACE)
        .join(name)
        .join("journal.jsonl");
    stage.down()?;
    stage.kill_inside(runner)?;
    let starts = |event: &str| count(&journal, event);
    let before = starts("RunStarted")?;
    let started = Instant::now();
    stage.up()?;
    let answers = started.elapsed();
    wait_until("the run to go on", stage.patience(), || {
        Ok((starts("RunStarted")? > before).then_some(()))
    })?;
    let resumed = started.elapsed();
    stage.finished(stage.patience())?;
    Ok(Row::new(
        "operator and runner killed in a play: from the operator's start until the run goes on",
        format!(
            "{:.1} s (its API answers after {:.1} s)",
            resumed.as_secs_f64(),
            answers.as_secs_f64()
        ),
    )
    .wanted("< 5 s"))
}

fn count(journal: &Path, event: &str) -> anyhow::Result<usize> {
    let text = fs::read_to_string(journal).context("failed to read the journal")?;
    let records = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(records
        .filter(|line| line["record"]["event"] == event)
        .count())
}

fn joins(stage: &Stage) -> anyhow::Result<Ran> {
    let (name, host) = NEW;
    let address = stage.lab.host(host)?.address.to_string();
    through_windlass(stage, || {
        stage.apply(&node(name, json!({"type": "worker"}), &address))
    })
}

fn leaves(stage: &Stage) -> anyhow::Result<Ran> {
    let (name, _) = NEW;
    let ran = through_windlass(stage, || {
        output(&mut stage.windlass(&["node", "remove", name])).map(drop)
    })?;
    stage.until_gone("clusternode", name, stage.patience())?;
    Ok(ran)
}

/// The worker joins and leaves by plain Ansible; gives how long either took.
fn without(stage: &Stage, ran: &Ran) -> anyhow::Result<(f64, f64)> {
    let (name, _) = NEW;
    let only = format!("--limit={name}");
    let joins = plain(stage, &ran.directory, "scale.yml", &[&only])?;
    // As `key=value` it would be a word, which kubespray takes and the bundle does not.
    let gone = json!({"node": name, "skip_confirmation": true}).to_string();
    let leaves = plain(stage, &ran.directory, "remove-node.yml", &["-e", &gone])?;
    Ok((joins, leaves))
}

/// From the start of a run to its end, in seconds.
fn all_of(ran: &Ran) -> anyhow::Result<f64> {
    ran.between(("RunStarted", ""), ("RunSucceeded", ""))
}
