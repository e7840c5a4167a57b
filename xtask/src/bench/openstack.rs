//! A cloud from one object, in a real cluster of one node that has the images, against the same services raised by hand as plain processes of
//! the same packages; its Keystone upgraded while tokens are asked for; and passes over ten services that change nothing.

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

/// Each service is asked about every 20 s.
const REST: Duration = Duration::from_mins(1);
/// For how long nothing is written by an operator that is at rest.
const SETTLED: Duration = Duration::from_secs(10);
/// The clouds beside the first, and which service of the three they have where it is one.
const FURTHER: [(&str, Option<&str>); 3] =
    [("two", None), ("three", None), ("four", Some("keystone"))];
/// The services of all four.
const SERVICES: u32 = 10;
/// What an operator writes of a cloud. Its Lease tells only that it lives.
const WRITTEN: &str = "openstacks,openstackservices,runs,secrets,configmaps,jobs,deployments,statefulsets,services,events";

pub(crate) fn measure(windlass: &Path) -> anyhow::Result<Vec<Row>> {
    // One after the other, so that neither has the other beside it.
    let peer = raised_by_hand()?;
    let services = Services::set(windlass.to_owned(), &Terminal::default())?;
    let mut rows = vec![raised(&services, peer)?, upgraded(&services)?];
    rows.extend(at_rest(&services)?);
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
    for (name, only) in FURTHER {
        eprintln!("openstack: another cloud, {name}");
        let mut cloud = Services::cloud("2026.2", &json!({}));
        cloud["metadata"]["name"] = json!(name);
        if let (Some(only), Some(all)) = (only, cloud["spec"]["services"].as_array_mut()) {
            all.retain(|service| service["name"] == only);
        }
        services.apply(&cloud)?;
        services.until("openstack", name, "Ready")?;
    }
    let found = services.kubectl(&["get", "openstackservices", "-o", "name"])?;
    ensure!(
        found.lines().count() == SERVICES as usize,
        "there are {found}"
    );
    eprintln!("openstack: it comes to rest");
    let mut before = versions(services)?;
    loop {
        thread::sleep(SETTLED);
        let now = versions(services)?;
        if now == before {
            break;
        }
        before = now;
    }
    let pid = services.operator().context("nobody operates")?;
    let passes = || -> anyhow::Result<(u64, u64)> {
        Ok((
            services.passes("OpenStackService")?,
            services.passes("OpenStack")?,
        ))
    };
    let (before_rest, used) = (passes()?, cpu(pid)?);
    thread::sleep(REST);
    let used = cpu(pid)?.saturating_sub(used).as_secs_f64() * 1e3;
    let after_rest = passes()?;
    let passed = u32::try_from(after_rest.0 - before_rest.0)?;
    let of_clouds = after_rest.1 - before_rest.1;
    let after = versions(services)?;
    // All that the operator does is theirs: passes over their clouds, its watches and its Lease, too.
    let of_all = used * f64::from(SERVICES) / f64::from(passed);
    let what = "ten passes, each over one of ten services in four clouds, that change nothing and ask each a question: processor time";
    let told = format!(
        "{of_all:.0} ms, of {used:.0} ms in 60 s with {passed} passes over a service and {of_clouds} over a cloud"
    );
    Ok([
        Row::new(what, told).wanted("< 100 ms"),
        Row::new(
            "the same: objects that were written in 60 s",
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
