//! `cargo xtask demo`: the main job for real, on throw-away hosts.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Args;
use e2e::{Kubespray, NAMESPACE, Options, Stage, wait_until};
use lab::Presence;

use crate::tools;

mod day_two;
mod fleet;
mod in_cluster;
mod magnum;
mod openstack;
mod providers;

/// Options of `demo`.
#[derive(Args, Debug)]
#[command(after_help = KUBESPRAY)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option that people type"
)]
pub(crate) struct Demo {
    /// Leave the cluster up at the end, until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Declare a further worker that does not answer: it is left out, and said so
    #[arg(long, group = "story")]
    dead: bool,
    /// Raise it from a Job in a real cluster of one node; then it takes over its own management
    #[arg(long, group = "story")]
    in_cluster: bool,
    /// Go on with the raised cluster: a worker joins, Kubernetes is upgraded under load, certificates are renewed, a dead worker leaves
    #[arg(long, group = "story")]
    day_two: bool,
    /// Install providers of Cluster API in a real cluster of one node instead, raise clusters by them, and upgrade them under load
    #[arg(long, group = "story")]
    providers: bool,
    /// As a user of OpenStack instead: a real Keystone, and `openstack coe` makes a cluster on the hosts, resizes it and deletes it
    #[arg(long, group = "story")]
    magnum: bool,
    /// Services of OpenStack in a real cluster of one node instead: from one object to an uploaded image, and an upgrade of Keystone under load
    #[arg(long, group = "story")]
    openstack: bool,
    /// Twenty-one clusters from one inventory instead, one of them on hosts: a site is edited, the canary fails and holds the roll-out, and it is mended
    #[arg(long, group = "story")]
    fleet: bool,
}

/// Runs the demo; whatever it made is gone when it ends.
pub(crate) fn demo(options: &Demo) -> anyhow::Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .context("failed to listen for Ctrl-C")?;
    }
    let started = Instant::now();
    let result = if options.in_cluster {
        in_cluster::play(options.keep, &interrupted)
    } else if options.day_two {
        day_two::play(options.keep, &interrupted)
    } else if options.providers {
        providers::play(options.keep, &interrupted)
    } else if options.magnum {
        magnum::play(options.keep, &interrupted)
    } else if options.openstack {
        openstack::play(options.keep, &interrupted)
    } else if options.fleet {
        fleet::play(options.keep, &interrupted)
    } else {
        play(options, &interrupted)
    };
    if interrupted.load(Ordering::Relaxed) {
        eprintln!("\ninterrupted; everything that the demo made is removed");
        std::process::exit(130);
    }
    result?;
    println!(
        "\nThe demo took {} s. Everything that it made is removed.",
        started.elapsed().as_secs()
    );
    Ok(())
}

fn play(options: &Demo, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let kubespray = needed()?;
    let mut stage = stage(options, kubespray)?;
    up(&mut stage)?;

    let further: Vec<_> = options
        .dead
        .then(|| dead_worker(&stage))
        .into_iter()
        .collect();
    let files = stage.example(&tools::root().join("examples/first-cluster"), &further)?;
    heading(&format!("The plan: windlass plan -f {}", named(&files)));
    show(stage.windlass(&["plan", "-f"]).arg(&files))?;

    raise(&stage, &files, interrupted)?;

    heading("What Kubernetes says of its objects");
    // With a dead host it is built, and not well.
    let accepted: &[_] = if options.dead { &HEALTH } else { &HEALTH[..1] };
    healthy(&stage, accepted)?;
    show(&mut stage.kubectl(&[
        "--namespace",
        NAMESPACE,
        "get",
        "clusters,clusternodes,runs",
        "--output",
        "wide",
    ]))?;
    println!();
    show(&mut stage.kubectl(&[
        "--namespace",
        NAMESPACE,
        "get",
        "events",
        "--sort-by=.metadata.creationTimestamp",
    ]))?;

    heading("The raised cluster, by its kubeconfig");
    raised(&stage)?;
    next(&stage);
    if options.keep {
        keep(interrupted);
    }
    Ok(())
}

/// Builds what the demo runs, and says which kubespray raises clusters where it is not the bundle.
fn needed() -> anyhow::Result<Option<Kubespray>> {
    heading("What is needed (kept for the next time)");
    let kubespray = Kubespray::from_environment(tools::root().join("target/debug/mirror"))?;
    if let Some(kubespray) = &kubespray {
        println!(
            "kubespray {} in {}: it takes minutes where the bundle takes one",
            kubespray.version,
            kubespray.checkout.display()
        );
    }
    build(kubespray.is_some())?;
    Ok(kubespray)
}

fn build(for_kubespray: bool) -> anyhow::Result<()> {
    println!("windlass: building it takes about two minutes the first time");
    let mut build = tools::cargo(&["build", "--quiet", "--package", "windlass"]);
    if for_kubespray {
        build.args(["--package", "e2e", "--bin", "windlass", "--bin", "mirror"]);
    }
    tools::run(&mut build)
}

fn up(stage: &mut Stage) -> anyhow::Result<()> {
    up_with(stage, &[])
}

/// The same with arguments of `windlass up`.
fn up_with(stage: &mut Stage, more: &[&str]) -> anyhow::Result<()> {
    let live = stage.lab.hosts().iter();
    let live = live.filter(|host| host.presence == Presence::Live).count();
    let command = [&["windlass", "up"], more].concat().join(" ");
    heading(&format!("{live} hosts that answer ssh, and `{command}`"));
    for host in stage.lab.hosts() {
        println!("{:<8} {:<12} {:?}", host.name, host.address, host.presence);
    }
    stage.up_with(more)?;
    println!(
        "the embedded API answers; data in {}",
        stage.data().display()
    );
    Ok(())
}

/// Applies these files, and follows the cluster until it is raised.
fn raise(stage: &Stage, files: &Path, interrupted: &AtomicBool) -> anyhow::Result<()> {
    heading(&format!(
        "Raising the cluster: windlass apply -f {}",
        named(files)
    ));
    stage.apply_files(files)?;
    let raising = Instant::now();
    follow(stage, interrupted).context("the cluster was not raised")?;
    println!("raised in {} s", raising.elapsed().as_secs());
    Ok(())
}

/// Shows the live status until the operation ends; where it fails, its logs.
fn follow(stage: &Stage, interrupted: &AtomicBool) -> anyhow::Result<()> {
    if let Err(error) = watch(&mut stage.windlass(&["status", "--watch"]), interrupted) {
        go_on(interrupted)?;
        if let Err(error) = show(&mut stage.windlass(&["logs"])) {
            eprintln!("there are no logs: {error:#}");
        }
        return Err(error.context(format!("the end of the log:\n{}", stage.log_tail())));
    }
    Ok(())
}

/// Ends the demo where somebody asked for it.
fn go_on(interrupted: &AtomicBool) -> anyhow::Result<()> {
    ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
    Ok(())
}

/// A file as people call it who stand in the repository.
fn named(file: &Path) -> std::path::Display<'_> {
    file.strip_prefix(tools::root()).unwrap_or(file).display()
}

/// Waits for Ctrl-C.
fn keep(interrupted: &AtomicBool) {
    while !interrupted.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(200));
    }
}

/// Runs `windlass status --watch` until the operation ends. A signal may have reached this process alone.
fn watch(command: &mut Command, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let mut child = command
        .stdin(Stdio::null())
        .spawn()
        .context("failed to watch the status")?;
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(
                status.success(),
                "windlass status --watch ended with {status}"
            );
            return Ok(());
        }
        if interrupted.load(Ordering::Relaxed) {
            child.kill()?;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Three hosts, for the bundle or for real kubespray; and one that is dead, if it shall be.
fn stage(options: &Demo, kubespray: Option<Kubespray>) -> anyhow::Result<Stage> {
    let options = on_hosts(3, u8::from(options.dead));
    Stage::set_with(options, kubespray, &lab::progress::Terminal::default())
}

/// A stage of so many hosts, and of so many that do not answer.
fn on_hosts(hosts: u8, dead: u8) -> Options {
    Options {
        hosts,
        dead,
        windlass: tools::root().join("target/debug/windlass"),
        directory: tools::root(),
        playbooks: tools::root().join("bundle"),
    }
}

/// Waits until the cluster is Created and its health is known, and one of these.
fn healthy(stage: &Stage, accepted: &[&str]) -> anyhow::Result<()> {
    wait_until(
        "the cluster to be Created and healthy",
        Duration::from_mins(2),
        || {
            let status = stage.object("clusters.kubespray.k8s.io", "first")?["status"].clone();
            let health = status["cluster"]["health"].as_str().unwrap_or_default();
            Ok((status["state"] == "Created" && accepted.contains(&health)).then_some(()))
        },
    )
}

/// Shows the nodes, which must be Ready.
fn nodes(stage: &Stage) -> anyhow::Result<()> {
    stage.ready_nodes(3)?;
    let kubeconfig = stage.kubeconfig()?;
    show(&mut stage.kubectl_by(&kubeconfig, &["get", "nodes", "--output", "wide"]))
}

/// Shows the nodes, and runs a pod.
fn raised(stage: &Stage) -> anyhow::Result<()> {
    nodes(stage)?;
    let said = stage.in_pod("hello", "echo a pod runs on $(hostname)")?;
    println!("{said}");
    Ok(())
}

fn next(stage: &Stage) {
    next_of(stage, NAMESPACE);
}

fn next_of(stage: &Stage, namespace: &str) {
    heading("To try next");
    let enter = format!(
        "nsenter --target {} --mount --pid --net --wd=.",
        stage.lab.owner()
    );
    println!("with --keep the cluster stays up until Ctrl-C; then, in another terminal:");
    let windlass = format!(
        "target/debug/windlass --data-dir {} -n {namespace}",
        stage.data().display()
    );
    println!("  {enter} {windlass} status");
    println!("  {enter} {windlass} logs --step etcd/install");
    println!(
        "  {enter} kubectl --kubeconfig {} get pods -A",
        stage.data().join("raised.kubeconfig").display()
    );
}

fn dead_worker(stage: &Stage) -> serde_json::Value {
    let address = stage
        .lab
        .hosts()
        .last()
        .map(|host| host.address.to_string());
    serde_json::json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
        "metadata": {"name": "worker-3", "namespace": NAMESPACE},
        "spec": {"type": "worker", "inventory": {"ansible_host": address}},
    })
}

/// Shows the first lines of what is long.
fn first_lines(text: &str, most: usize) {
    let lines: Vec<_> = text.lines().collect();
    for line in lines.iter().take(most) {
        println!("  {}", line.trim_end());
    }
    if lines.len() > most {
        println!("  ... and {} lines more", lines.len() - most);
    }
}

fn heading(text: &str) {
    println!("\n== {text}");
}

/// Runs a command with its output shown.
fn show(command: &mut Command) -> anyhow::Result<()> {
    tools::run(command.stdin(Stdio::null()))
}

/// What is said of a cluster's health, the best first.
const HEALTH: [&str; 3] = ["HEALTH_OK", "HEALTH_WARN", "HEALTH_ERR"];

const KUBESPRAY: &str = "\
Environment, to raise the cluster by an unmodified kubespray instead of the bundle (docs/kubespray.md):
  WINDLASS_KUBESPRAY=DIR         a checkout
  WINDLASS_KUBESPRAY_VARS=FILE   its variables, JSON or YAML, such as where it downloads from
  WINDLASS_KUBESPRAY_MIRROR=DIR  what is served to the hosts on port 80 of their gateway, 10.77.0.1";
