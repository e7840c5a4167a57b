//! `cargo xtask demo --in-cluster`: a cluster is raised by a Job of another cluster, and takes over its own management.

use std::{
    process::Command,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use anyhow::Context;
use e2e::{InCluster, NAMESPACE, SYSTEM, Side};

use super::{go_on, heading, keep, show, watch};
use crate::{image, tools};

/// How long the cluster may take to be found healthy after an operation.
const HEALTHY: Duration = Duration::from_mins(2);

/// Plays it; whatever it made is gone when it ends.
pub(super) fn play(keep_up: bool, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let stage = stage()?;
    go_on(interrupted)?;
    first(&stage)?;
    go_on(interrupted)?;
    raise(&stage, interrupted)?;
    go_on(interrupted)?;
    install(&stage)?;
    go_on(interrupted)?;
    carry(&stage)?;
    go_on(interrupted)?;
    itself(&stage, interrupted)?;
    next(&stage);
    if keep_up {
        keep(interrupted);
    }
    Ok(())
}

fn stage() -> anyhow::Result<InCluster> {
    heading("What is needed (kept for the next time)");
    println!("windlass and its two images: building them takes about five minutes the first time");
    let images = image::target().join("images-debug");
    image::image(&image::Image::quick(&images))?;
    tools::run(&mut tools::cargo(&[
        "build",
        "--quiet",
        "--package",
        "windlass",
    ]))?;
    heading("A real cluster of one node, and three hosts beside it (about 45 s)");
    let windlass = tools::root().join("target/debug/windlass");
    let stage = InCluster::set(windlass, &images, &lab::progress::Terminal::default())?;
    for host in stage.node.lab.hosts() {
        println!("{:<8} {}", host.name, host.address);
    }
    show(&mut stage.kubectl(Side::First, &["get", "nodes,pods", "--all-namespaces"]))?;
    Ok(stage)
}

fn first(stage: &InCluster) -> anyhow::Result<()> {
    heading("Windlass in that cluster, by its chart (about 20 s)");
    stage.load(Side::First)?;
    helm(stage, Side::First)
}

fn raise(stage: &InCluster, interrupted: &AtomicBool) -> anyhow::Result<()> {
    heading("Raising a cluster of three nodes by a Job (about 90 s)");
    let file = stage.example()?;
    println!(
        "objects of examples/first-cluster, for these hosts: {}",
        file.display()
    );
    stage.apply(&file)?;
    let raising = Instant::now();
    follow(stage, Side::First, interrupted)?;
    stage.healthy(Side::First, HEALTHY)?;
    println!("raised in {} s", raising.elapsed().as_secs());
    objects(stage, Side::First)?;
    stage.fetch()?;
    stage.ready_nodes()?;
    println!("\nthe raised cluster, by its kubeconfig:");
    show(&mut stage.kubectl(Side::Raised, &["get", "nodes", "--output", "wide"]))
}

fn install(stage: &InCluster) -> anyhow::Result<()> {
    heading("Windlass in the raised cluster, by the same chart (about 40 s)");
    stage.load(Side::Raised)?;
    helm(stage, Side::Raised)
}

fn carry(stage: &InCluster) -> anyhow::Result<()> {
    heading("All objects move into the cluster that they describe: windlass move (about 10 s)");
    show(&mut stage.move_command())?;
    println!("\nleft in the first cluster:");
    objects(stage, Side::First)?;
    // Nobody needs it any more; its hosts stay up, for the raised ones are beside it.
    let uninstall = ["uninstall", "windlass", "--namespace", SYSTEM].map(str::to_owned);
    show(&mut stage.helm(Side::First, &uninstall))
}

fn itself(stage: &InCluster, interrupted: &AtomicBool) -> anyhow::Result<()> {
    heading("The cluster works on itself: windlass converge (about 60 s)");
    stage.healthy(Side::Raised, HEALTHY)?;
    let converging = Instant::now();
    show(&mut stage.windlass(Side::Raised, &["converge"]))?;
    follow(stage, Side::Raised, interrupted)?;
    stage.healthy(Side::Raised, HEALTHY)?;
    println!(
        "converged in {} s; the Job, its pod and where that ran:",
        converging.elapsed().as_secs()
    );
    // Its pod ends a moment after the run.
    let done = [
        "--namespace",
        NAMESPACE,
        "wait",
        "--for=condition=Complete",
        "--timeout=60s",
    ];
    show(&mut stage.kubectl(
        Side::Raised,
        &[done.as_slice(), &["jobs", "--all"]].concat(),
    ))?;
    let pods = [
        "--namespace",
        NAMESPACE,
        "get",
        "jobs,pods",
        "--output",
        "wide",
    ];
    show(&mut stage.kubectl(Side::Raised, &pods))?;
    println!();
    objects(stage, Side::Raised)
}

fn helm(stage: &InCluster, side: Side) -> anyhow::Result<()> {
    show(&mut stage.helm(side, &stage.install_arguments()))?;
    show(&mut stage.kubectl(
        side,
        &["--namespace", SYSTEM, "get", "pods", "--output", "wide"],
    ))
}

fn objects(stage: &InCluster, side: Side) -> anyhow::Result<()> {
    let kinds = "clusters.kubespray.k8s.io,clusternodes,runs,jobs";
    let get = ["--namespace", NAMESPACE, "get", kinds];
    show(&mut stage.kubectl(side, &get))
}

/// Shows the live status until the operation ends.
fn follow(stage: &InCluster, side: Side, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let watched = watch(
        &mut stage.windlass(side, &["status", "--watch"]),
        interrupted,
    );
    go_on(interrupted)?;
    watched.with_context(|| logs(stage, side))
}

fn logs(stage: &InCluster, side: Side) -> String {
    let mut logs: Command = stage.windlass(side, &["logs"]);
    let said = lab::command::output(&mut logs).unwrap_or_else(|error| format!("{error:#}"));
    let lines: Vec<_> = said.lines().collect();
    let end = lines[lines.len().saturating_sub(40)..].join("\n");
    format!("the operation failed; the end of its log:\n{end}")
}

fn next(stage: &InCluster) {
    heading("To try next");
    let enter = format!("nsenter --target {} --net --", stage.node.lab.owner());
    println!("with --keep the clusters stay up until Ctrl-C; then, in another terminal:");
    let kubeconfig = stage.kubeconfig(Side::Raised);
    let options = format!("--kubeconfig {}", kubeconfig.display());
    println!("  {enter} target/debug/windlass {options} -n {NAMESPACE} status");
    println!("  {enter} target/debug/windlass {options} -n {NAMESPACE} converge");
    println!("  {enter} kubectl {options} -n {NAMESPACE} logs job/first-converge-2");
}
