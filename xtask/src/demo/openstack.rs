//! `cargo xtask demo --openstack`: a Keystone that issues tokens and a Glance that takes an image from one object, and an upgrade of
//! Keystone that nobody notices.

use std::{sync::atomic::AtomicBool, time::Instant};

use anyhow::ensure;
use e2e::Services;
use lab::progress::Terminal;
use serde_json::json;

use super::{build, go_on, heading, keep, show};
use crate::tools;

/// Plays it; whatever it made is gone when it ends.
pub(super) fn play(keep_up: bool, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let services = services()?;
    go_on(interrupted)?;
    install(&services)?;
    go_on(interrupted)?;
    take_an_image(&services)?;
    go_on(interrupted)?;
    upgrade(&services)?;
    next(&services);
    if keep_up {
        keep(interrupted);
    }
    Ok(())
}

fn services() -> anyhow::Result<Services> {
    heading("What is needed (kept for the next time)");
    println!(
        "windlass, Helm, and images of MariaDB and of the services: about ten minutes the first time"
    );
    build(false)?;
    heading(
        "A real cluster of one node, and `windlass controller --openstack` beside it (about a minute)",
    );
    let windlass = tools::root().join("target/debug/windlass");
    let services = Services::set(windlass, &Terminal::default())?;
    show(&mut services.ask(&["get", "nodes"]))?;
    Ok(services)
}

fn install(services: &Services) -> anyhow::Result<()> {
    heading("One object: Keystone, Placement and Glance of 2026.1 (about two minutes)");
    let started = Instant::now();
    services.apply(&Services::cloud("2026.1", &json!({})))?;
    services.until("openstack", Services::CLOUD, "Ready")?;
    println!("Ready after {} s", started.elapsed().as_secs());
    stand(services)?;
    println!();
    show(&mut services.ask(&["get", "pods,runs"]))
}

fn take_an_image(services: &Services) -> anyhow::Result<()> {
    heading("openstack token issue, openstack image create");
    let token = ["token", "issue", "-f", "value", "-c", "expires"];
    println!("a token, until {}", services.openstack(&token)?.trim());
    let started = Instant::now();
    let (sent, kept) = services.upload()?;
    ensure!(sent == kept, "sent was {sent}, and kept is {kept}");
    println!(
        "an image of 1 MiB after {} s; SHA-512 of what was sent and of what is kept:",
        started.elapsed().as_secs()
    );
    println!("{sent}\n{kept}\n");
    print!("{}", services.openstack(&["image", "list"])?);
    print!(
        "{}",
        services.openstack(&["endpoint", "list", "-c", "Service Name", "-c", "URL"])?
    );
    Ok(())
}

fn upgrade(services: &Services) -> anyhow::Result<()> {
    heading(
        "Keystone becomes 2026.2, while tokens are issued and validated all the time (about a minute)",
    );
    let started = Instant::now();
    let tokens = services.tokens()?;
    services.apply(&Services::cloud("2026.2", &json!({})))?;
    services.until("openstack", Services::CLOUD, "Ready")?;
    let (served, failed, first) = tokens.end()?;
    println!(
        "Ready after {} s; {served} tokens were issued and validated, {failed} were not {first}",
        started.elapsed().as_secs()
    );
    stand(services)?;
    ensure!(
        failed == 0,
        "{failed} tokens were not issued or not validated"
    );
    Ok(())
}

fn stand(services: &Services) -> anyhow::Result<()> {
    show(&mut services.ask(&["get", "openstacks,openstackservices"]))
}

fn next(services: &Services) {
    heading("To try next");
    println!("with --keep the cluster stays up until Ctrl-C; then, in another terminal:");
    let enter = format!("nsenter --target {} --net --", services.node.lab.owner());
    let kubeconfig = services.node.kubeconfig();
    let of = format!(
        "--kubeconfig {} --namespace {}",
        kubeconfig.display(),
        Services::NAMESPACE
    );
    println!("  {enter} kubectl {of} get openstackservices");
    println!("  {enter} target/debug/windlass {of} openstack run one-keystone api/token");
    println!("  {enter} helm {of} list");
}
