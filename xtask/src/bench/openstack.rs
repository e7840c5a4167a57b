//! A cloud from one object, in a real cluster of one node that has the images, against the same services raised by hand as plain processes of
//! the same packages; its Keystone upgraded while tokens are asked for; and its operator at rest.

use std::{
    collections::BTreeSet,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use e2e::Services;
use lab::{CloudImages, by_hand, progress::Terminal};
use serde_json::{Value, json};

use super::{Row, output, process::cpu};

/// A service is asked about every 20 s, so three of them are asked nine times, and the cloud is looked at beside them.
const REST: Duration = Duration::from_mins(1);
/// What an operator writes of a cloud. Its Lease tells only that it lives.
const WRITTEN: &str = "openstacks,openstackservices,runs,secrets,configmaps,jobs,deployments,statefulsets,services,events";

pub(crate) fn measure(windlass: &Path) -> anyhow::Result<Vec<Row>> {
    // One after the other, so that neither has the other beside it.
    let peer = raised_by_hand()?;
    let services = Services::set(windlass.to_owned(), &Terminal::default())?;
    let mut rows = vec![raised(&services, peer)?];
    rows.extend(at_rest(&services)?);
    rows.push(upgraded(&services)?);
    Ok(rows)
}

fn raised_by_hand() -> anyhow::Result<Duration> {
    let scratch = tempfile::tempdir().context("failed to make a directory")?;
    let images = CloudImages::ensure(&Terminal::default())?;
    let mut command = by_hand(&images, &scratch.path().join("image"))?;
    eprintln!("openstack: the services are raised by hand");
    let began = Instant::now();
    let said = output(&mut command)?;
    let took = began.elapsed();
    ensure!(said.trim().ends_with("active"), "no image is there: {said}");
    Ok(took)
}

fn raised(services: &Services, peer: Duration) -> anyhow::Result<Row> {
    eprintln!("openstack: the services are raised from an object");
    let began = Instant::now();
    services.apply(&Services::cloud("2026.1", &json!({})))?;
    services.until("openstack", Services::CLOUD, "Ready")?;
    let (sent, kept) = services.upload()?;
    let took = began.elapsed();
    ensure!(sent == kept, "sent was {sent}, and kept is {kept}");
    let (own, peer) = (took.as_secs_f64(), peer.as_secs_f64());
    let what = "Keystone, Placement and Glance from an empty namespace to an uploaded image";
    Ok(Row::new(what, format!("{own:.1} s"))
        .peer(&format!("the same by hand {peer:.1} s"), own / peer)
        .wanted("< 60 s"))
}

fn at_rest(services: &Services) -> anyhow::Result<[Row; 2]> {
    let pid = services.operator().context("nobody operates")?;
    let (before, used) = (versions(services)?, cpu(pid)?);
    thread::sleep(REST);
    let used = cpu(pid)?.saturating_sub(used);
    let after = versions(services)?;
    let what =
        "its operator at rest: processor over 60 s, in which it asks three services some ten times";
    Ok([
        Row::new(what, format!("{:.0} ms", used.as_secs_f64() * 1e3)).wanted("< 100 ms"),
        Row::new(
            "the same: objects that were written",
            after.difference(&before).count().to_string(),
        )
        .wanted("0"),
    ])
}

/// Each object with its version.
fn versions(services: &Services) -> anyhow::Result<BTreeSet<String>> {
    let found: Value = serde_json::from_str(&services.kubectl(&["get", WRITTEN, "-o", "json"])?)?;
    let items = found["items"].as_array().context("no list was printed")?;
    let of = |object: &Value| {
        let metadata = &object["metadata"];
        format!(
            "{} {} {}",
            object["kind"], metadata["name"], metadata["resourceVersion"]
        )
    };
    Ok(items.iter().map(of).collect())
}

fn upgraded(services: &Services) -> anyhow::Result<Row> {
    eprintln!("openstack: Keystone is upgraded");
    let tokens = services.tokens()?;
    services.apply(&Services::cloud("2026.2", &json!({})))?;
    services.until("openstack", Services::CLOUD, "Ready")?;
    let (served, failed, first) = tokens.end()?;
    let what =
        "Keystone 29 becomes 30 under tokens that are issued and validated: how many were not";
    let told = format!("{failed} of {} {first}", served + failed);
    Ok(Row::new(what, told.trim()).wanted("0"))
}
