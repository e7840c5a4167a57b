//! Four providers of Cluster API in a real cluster of one node: their upgrade by Windlass while everything that they bring along is called, and
//! by plain clusterctl under the same calls. And Windlass at rest, and beside it the Cluster API operator on the same installation.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use e2e::{Management, Tally};
use lab::progress::Terminal;

use super::{
    Row,
    operator::{asked, requests},
};

/// How long requests are counted, and how long an operator rests before its memory is read.
const REST: Duration = Duration::from_mins(1);
/// What Windlass still asks when it has found everything well.
const SETTLING: Duration = Duration::from_secs(90);

pub(crate) fn measure(windlass: &Path) -> anyhow::Result<Vec<Row>> {
    let [old, new] = Management::VERSIONS;
    let peer = by_clusterctl(windlass)?;
    let management = installed(windlass)?;
    management.raise("first")?;
    let tell = |what: &str| eprintln!("management: {what}");
    let upgrading = Instant::now();
    let own = management.upgrade(new, "first", &tell)?;
    let took = upgrading.elapsed().as_secs();
    eprintln!("{own:#?}");
    let mut rows = upgraded(&own, &peer, &format!("four providers {old} become {new}"));
    rows.push(Row::new(
        "the same: how long it takes, with the deletion of a cluster",
        format!("{took} s"),
    ));
    Ok(rows)
}

/// What an operator takes that has nothing to do: Windlass, then the Cluster API operator with the same four providers.
pub(crate) fn resting(windlass: &Path) -> anyhow::Result<Vec<Row>> {
    let [_, new] = Management::VERSIONS;
    let management = Management::set(windlass.to_owned(), &Terminal::default())?;
    management.preload(new)?;
    management.install(new)?;
    at_rest(&management)
}

fn installed(windlass: &Path) -> anyhow::Result<Management> {
    let [old, new] = Management::VERSIONS;
    let management = Management::set(windlass.to_owned(), &Terminal::default())?;
    for version in [old, new] {
        management.preload(version)?;
    }
    eprintln!("management: {old} is installed");
    management.install(old)?;
    Ok(management)
}

fn by_clusterctl(windlass: &Path) -> anyhow::Result<Vec<Tally>> {
    let [_, new] = Management::VERSIONS;
    let management = installed(windlass)?;
    eprintln!("management: clusterctl upgrades");
    let tallies = management.upgrade_by_clusterctl(new)?;
    eprintln!("{tallies:#?}");
    Ok(tallies)
}

fn upgraded(own: &[Tally], peer: &[Tally], what: &str) -> Vec<Row> {
    let said = |tallies: &[Tally]| {
        let failed: u64 = tallies.iter().map(|tally| tally.failed).sum();
        let calls: u64 = tallies.iter().map(|tally| tally.calls).sum();
        format!("{failed} of {calls}")
    };
    let gap = |tallies: &[Tally]| {
        let longest = tallies.iter().map(|tally| tally.gap).max();
        longest.unwrap_or_default().as_secs_f64()
    };
    let row = |what: &str, own: String, peer: String, wanted: &str| Row {
        peer: format!("clusterctl upgrade apply {peer}"),
        ..Row::new(what, own).wanted(wanted)
    };
    vec![
        row(
            &format!("{what} while all is called every 50 ms: calls that fail"),
            said(own),
            said(peer),
            "0",
        ),
        row(
            "the same: the longest time in which no call to a kind succeeds",
            format!("{:.1} s", gap(own)),
            format!("{:.1} s", gap(peer)),
            "",
        ),
    ]
}

fn at_rest(management: &Management) -> anyhow::Result<Vec<Row>> {
    eprintln!("management: at rest");
    let count = || {
        anyhow::Ok(requests(
            &management.kubectl(&["get", "--raw", "/metrics"])?,
        ))
    };
    // One that has installed nothing yet, as the other one.
    management.operate_counted()?;
    thread::sleep(SETTLING);
    let before = count()?;
    thread::sleep(REST);
    let after = count()?;
    let own = management.memory()?;
    management.stop();
    thread::sleep(REST);
    let asked = asked([&before, &after, &count()?]);
    eprintln!("management: {own:?}, asked: {asked}");
    eprintln!("management: the Cluster API operator at rest");
    let theirs = lab::cluster_api_operator(&Terminal::default())?;
    let other = management.operate_by_other(&theirs)?;
    thread::sleep(SETTLING + REST);
    let peer = other.memory()?;
    eprintln!("management: theirs {peer:?}");
    let mut rows = vec![
        compared(
            "an operator with these four providers at rest: working set, as `kubectl top` shows it",
            [own, peer].map(|memory| memory.working_set.unwrap_or_default()),
        )?
        .wanted("< 0.5"),
        compared("the same: resident", [own, peer].map(|memory| memory.now))?,
        compared(
            "the same: resident, without pages of files",
            [own, peer].map(|memory| memory.anonymous),
        )?,
        compared(
            "the same: resident at most, from its start on",
            [own, peer].map(|memory| memory.most),
        )?,
    ];
    rows.push(
        Row::new(
            "the same: requests in 60 s, by the server's metrics, less those of 60 s without it",
            asked,
        )
        .wanted("watches, renewals of the Lease"),
    );
    Ok(rows)
}

/// Ours and theirs, in MiB.
fn compared(what: &str, [own, peer]: [u64; 2]) -> anyhow::Result<Row> {
    let ratio = f64::from(u32::try_from(own)?) / f64::from(u32::try_from(peer)?);
    let theirs = format!("cluster-api-operator {peer} MiB");
    Ok(Row::new(what, format!("{own} MiB")).peer(&theirs, ratio))
}
