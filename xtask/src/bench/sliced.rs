//! A run through Windlass against plain `ansible-playbook` of the same playbooks on the same hosts.
//!
//! Both run again on a finished cluster, by turns. Windlass' run is what people get: the Cluster is forgotten (its
//! deletion policy is to retain the hosts) and applied again, and the time is that from the first play's `StepStarted` to
//! the last one's `StepSucceeded` in the journal. The plain run takes the inventory, the variables and the ansible.cfg
//! that Windlass wrote for that very run, with a key and a directory for ssh's sockets in the same places, and is timed
//! from the start of its process to its end; so only the slicing, the events and the journal differ.

use std::path::PathBuf;

use anyhow::Context;
use e2e::{NAMESPACE, Stage};

use super::{
    Row, median, output,
    plays::{Ran, plain, through_windlass},
    stage,
};
use crate::tools;

pub(crate) fn measure(pairs: u8, windlass: PathBuf) -> anyhow::Result<Vec<Row>> {
    let stage = stage("sliced", 3, windlass)?;
    let create = || stage.apply_example(&tools::root().join("examples/first-cluster"));
    let mut last = through_windlass(&stage, create)?;
    eprintln!("sliced: raised in {:.1} s of plays", last.plays);
    let (mut sliced, mut bare, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 1..=pairs {
        // By turns who is first, so that what warms up or fills up falls on both.
        if pair % 2 == 0 {
            bare.push(without(&stage, &last)?);
        }
        output(&mut stage.kubectl(&[
            "delete",
            "cluster",
            "first",
            "--namespace",
            NAMESPACE,
            "--timeout=60s",
        ]))?;
        last = through_windlass(&stage, create)?;
        sliced.push(last.plays);
        starts.push(start(&last)?);
        if pair % 2 == 1 {
            bare.push(without(&stage, &last)?);
        }
        if let (Some(own), Some(peer)) = (sliced.last(), bare.last()) {
            eprintln!(
                "sliced: pair {pair} of {pairs}: Windlass {own:.2} s, plain {peer:.2} s, start {:.2} s",
                starts.last().copied().unwrap_or(f64::NAN)
            );
        }
    }
    let ratios: Vec<f64> = sliced
        .iter()
        .zip(&bare)
        .map(|(own, peer)| own / peer)
        .collect();
    Ok(vec![
        Row::new(
            &format!(
                "cluster.yml of the bundle again on 3 hosts, median of {pairs} pairs ({} steps in {} processes)",
                last.steps, last.processes()?
            ),
            format!("{:.2} s", median(&sliced)),
        )
        .peer(
            &format!("ansible-playbook {:.2} s", median(&bare)),
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

/// The same playbook without Windlass; gives its time in seconds.
fn without(stage: &Stage, ran: &Ran) -> anyhow::Result<f64> {
    plain(stage, &ran.directory, "cluster.yml", &[])
}

/// From the first play's start to its first task, in seconds.
fn start(ran: &Ran) -> anyhow::Result<f64> {
    let events = ran.events()?;
    let task = events.iter().find(|event| event["event"] == "task_start");
    let task = task.and_then(|event| event["time"].as_f64());
    Ok(task.context("no task started")? - ran.began)
}
