//! `cargo xtask demo --providers`: providers of Cluster API by custom resources, from nothing to an upgrade that nobody notices.

use std::{sync::atomic::AtomicBool, time::Instant};

use e2e::{Management, Tally};
use lab::progress::Terminal;

use super::{build, go_on, heading, keep, show};
use crate::tools;

/// Plays it; whatever it made is gone when it ends.
pub(super) fn play(keep_up: bool, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let [old, new] = Management::VERSIONS;
    let management = management()?;
    go_on(interrupted)?;
    install(&management, old)?;
    go_on(interrupted)?;
    raise(&management, "first")?;
    go_on(interrupted)?;
    let tallies = upgrade(&management, new)?;
    go_on(interrupted)?;
    raise(&management, "second")?;
    told(&tallies);
    next(&management);
    if keep_up {
        keep(interrupted);
    }
    Ok(())
}

fn management() -> anyhow::Result<Management> {
    heading("What is needed (kept for the next time)");
    println!("windlass, and the providers' managers: about ten minutes the first time");
    build(false)?;
    heading("A real cluster of one node, and Windlass beside it (about a minute)");
    let windlass = tools::root().join("target/debug/windlass");
    let management = Management::set(windlass, &Terminal::default())?;
    show(
        &mut management
            .node
            .kubectl(&["get", "nodes,pods", "--all-namespaces"]),
    )?;
    Ok(management)
}

fn install(management: &Management, version: &str) -> anyhow::Result<()> {
    heading(&format!(
        "Four providers {version}, by their objects (about a minute)"
    ));
    management.preload(version)?;
    let installing = Instant::now();
    management.install(version)?;
    println!("installed in {} s", installing.elapsed().as_secs());
    status(management)?;
    show(
        &mut management
            .node
            .kubectl(&["get", "pods", "--all-namespaces"]),
    )
}

fn raise(management: &Management, name: &str) -> anyhow::Result<()> {
    heading(&format!(
        "The providers raise cluster {name}, whose machines are in memory (about half a minute)"
    ));
    let raising = Instant::now();
    management.raise(name)?;
    println!("Available after {} s", raising.elapsed().as_secs());
    show(
        &mut management
            .node
            .kubectl(&["get", "clusters.cluster.x-k8s.io,machines"]),
    )
}

fn upgrade(management: &Management, version: &str) -> anyhow::Result<Vec<Tally>> {
    heading("What an upgrade would do: windlass providers plan");
    management.preload(version)?;
    show(&mut management.windlass(&["providers", "plan"]))?;
    heading(&format!(
        "The upgrade to {version}, while every kind is called all the time (some minutes)"
    ));
    let upgrading = Instant::now();
    let tell = |what: &str| println!("{:>4} s: {what}", upgrading.elapsed().as_secs());
    let tallies = management.upgrade(version, "first", &tell)?;
    println!();
    status(management)?;
    show(
        &mut management
            .node
            .kubectl(&["get", "runs", "--all-namespaces"]),
    )?;
    Ok(tallies)
}

fn status(management: &Management) -> anyhow::Result<()> {
    show(&mut management.windlass(&["providers", "status"]))
}

fn told(tallies: &[Tally]) {
    heading("Calls during the upgrade: created, read through all versions, deleted");
    println!(
        "{:<24}{:>8}{:>8}{:>12}",
        "KIND", "CALLS", "FAILED", "LONGEST GAP"
    );
    for tally in tallies {
        let gap = tally.gap.as_millis();
        println!(
            "{:<24}{:>8}{:>8}{gap:>9} ms",
            tally.kind, tally.calls, tally.failed
        );
        for said in &tally.said {
            println!("    {said}");
        }
    }
    let [calls, failed] = [
        tallies.iter().map(|tally| tally.calls).sum::<u64>(),
        tallies.iter().map(|tally| tally.failed).sum(),
    ];
    println!("{failed} of {calls} calls failed");
}

fn next(management: &Management) {
    heading("To try next");
    println!("with --keep the cluster stays up until Ctrl-C; then, in another terminal:");
    let enter = format!("nsenter --target {} --net --", management.node.lab.owner());
    let kubeconfig = management.node.kubeconfig();
    let kubeconfig = kubeconfig.display();
    println!("  {enter} target/debug/windlass --kubeconfig {kubeconfig} providers status");
    println!(
        "  {enter} kubectl --kubeconfig {kubeconfig} get coreproviders,infrastructureproviders -A"
    );
    println!("  {enter} kubectl --kubeconfig {kubeconfig} describe cluster second");
}
