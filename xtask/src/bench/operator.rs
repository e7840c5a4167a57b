//! An operator with many Clusters at rest: memory, processor time, and what it asks of the API.
//!
//! `windlass up` as people start it, with its embedded API; and `windlass controller` with a real API server, whose own metrics
//! say what was asked: those of a minute without the operator are taken off. Every Cluster wants more nodes than it has, so it waits for
//! its start conditions: a state that nothing but a person ends.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use e2e::wait_until;
use lab::{ControlPlane, Kubernetes, programs, progress::Terminal};
use serde_json::{Value, json};

use super::{
    Profile, Row, example, output,
    process::{Guard, cpu, resident},
};
use crate::tools;

/// How long the processor time is counted.
const REST: Duration = Duration::from_mins(1);
const NODES: u32 = 10;

pub(crate) fn measure(clusters: u32, program: &Path) -> anyhow::Result<Vec<Row>> {
    let mut rows = embedded(clusters, program)?;
    rows.extend(real(clusters, program)?);
    Ok(rows)
}

fn real(clusters: u32, program: &Path) -> anyhow::Result<Vec<Row>> {
    let load = example("kapi", "load", Profile::Release)?;
    let plane = ControlPlane::start(Kubernetes::Newest, &Terminal::default())?;
    let get = |path: &str| output(plane.kubectl().args(["get", "--raw", path]));
    let json = |path: &str| -> anyhow::Result<Value> {
        serde_json::from_str(&get(path)?).context("the API answered no JSON")
    };
    let definitions = plane.dir().join("crds.yaml");
    fs::write(&definitions, output(Command::new(program).arg("crds"))?)
        .context("failed to write the definitions")?;
    output(
        plane
            .kubectl()
            .args(["apply", "--server-side", "-f"])
            .arg(&definitions),
    )?;
    output(plane.kubectl().args([
        "wait",
        "--for=condition=Established",
        "crd",
        "--all",
        "--timeout=60s",
    ]))?;
    output(
        plane
            .kubectl()
            .args(["create", "namespace", "windlass-system"]),
    )?;
    let file = plane.dir().join("objects.tsv");
    for text in [namespaces(clusters), nodes(clusters), wishes(clusters)] {
        fs::write(&file, text).context("failed to write the objects")?;
        create(&load, &plane.kubeconfig(), &file)?;
    }
    let operator = Guard::start(
        Command::new(program)
            .arg("--data-dir")
            .arg(plane.dir().join("windlass"))
            .arg("--kubeconfig")
            .arg(plane.kubeconfig())
            .args(["controller", "--runners=process", "--listen=127.0.0.1:0"])
            .arg(format!("--source-root={}", tools::root().display()))
            .current_dir(tools::root()),
    )?;
    let started = Instant::now();
    // Leases are renewed and so never at rest: the kinds of Windlass are what to wait for.
    wait_until(
        "every Cluster to have a state",
        Duration::from_mins(5),
        || {
            let states = states(&json)?;
            Ok((!states.contains("no state")).then_some(()))
        },
    )?;
    let settling = started.elapsed();
    let states = states(&json)?;
    // It also writes the states of nodes; then it is at rest.
    settled_kinds(&json)?;
    let before = requests(&get("/metrics")?);
    let used = cpu(operator.pid())?;
    thread::sleep(REST);
    let used = cpu(operator.pid())?.saturating_sub(used).as_secs_f64() / REST.as_secs_f64() * 100.0;
    let after = requests(&get("/metrics")?);
    let memory = resident(operator.pid())?;
    drop(operator);
    thread::sleep(REST);
    let without = requests(&get("/metrics")?);
    let asked = asked([&before, &after, &without]);
    Ok(vec![
        Row::new(
            &format!(
                "operator on a real API server, {clusters} Clusters of {NODES} nodes at rest ({states}): resident"
            ),
            format!(
                "{memory:.0} MiB (settled after {:.0} s)",
                settling.as_secs_f64()
            ),
        ),
        Row::new(
            "the same: processor over 60 s",
            format!("{used:.1} % of one"),
        ),
        Row::new("the same: requests in 60 s, by the server's metrics", asked)
            .wanted("watches, renewals of the Lease"),
    ])
}

/// What was asked more often in the first time between three counts than in the second, which is as long.
pub(super) fn asked([before, after, without]: [&BTreeMap<String, f64>; 3]) -> String {
    let count =
        |counts: &BTreeMap<String, f64>, what: &String| counts.get(what).copied().unwrap_or(0.0);
    let mut asked: Vec<String> = Vec::new();
    for (what, then) in after {
        let own = then - count(before, what);
        let others = count(without, what) - then;
        if own > others {
            asked.push(format!("{what} {:.0}", own - others));
        }
    }
    if asked.is_empty() {
        return "none".to_owned();
    }
    asked.join(", ")
}

/// How often what was asked so far: verb and resource, and the count of all codes.
pub(super) fn requests(metrics: &str) -> BTreeMap<String, f64> {
    let mut counts = BTreeMap::new();
    for line in metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"))
    {
        let label = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\""))?;
            rest.split('"').next()
        };
        let value = line
            .rsplit(' ')
            .next()
            .and_then(|text| text.parse::<f64>().ok());
        if let (Some(verb), Some(resource), Some(value)) = (label("verb"), label("resource"), value)
        {
            let part = label("subresource").filter(|part| !part.is_empty());
            let part = part.map(|part| format!("/{part}")).unwrap_or_default();
            *counts
                .entry(format!("{verb} {resource}{part}"))
                .or_default() += value;
        }
    }
    counts
}

fn embedded(clusters: u32, program: &Path) -> anyhow::Result<Vec<Row>> {
    let load = example("kapi", "load", Profile::Release)?;
    let kubectl = programs::ensure(&Terminal::default())?.dir.join("kubectl");
    let scratch = tempfile::tempdir().context("failed to make a directory")?;
    let data = scratch.path().join("data");
    let kubeconfig = data.join("kubeconfig");
    let get = |path: &str| -> anyhow::Result<Value> {
        let text = output(
            Command::new(&kubectl)
                .arg("--kubeconfig")
                .arg(&kubeconfig)
                .args(["get", "--raw", path]),
        )?;
        serde_json::from_str(&text).context("the API answered no JSON")
    };

    let up = Guard::start(
        Command::new(program)
            .arg("--data-dir")
            .arg(&data)
            .arg("up")
            .current_dir(tools::root()),
    )?;
    wait_until("the API", Duration::from_secs(30), || {
        Ok((kubeconfig.exists() && get("/version").is_ok()).then_some(()))
    })?;
    let empty = resident(up.pid())?;
    let file = scratch.path().join("objects.tsv");
    let mut objects = 0;
    for text in [namespaces(clusters), nodes(clusters), wishes(clusters)] {
        objects += text.lines().count();
        fs::write(&file, text).context("failed to write the objects")?;
        create(&load, &kubeconfig, &file)?;
    }
    let started = Instant::now();
    let revision = settled(&get)?;
    let settling = started.elapsed();
    let states = states(&get)?;
    let before = cpu(up.pid())?;
    thread::sleep(REST);
    let used = cpu(up.pid())?.saturating_sub(before).as_secs_f64() / REST.as_secs_f64() * 100.0;
    let writes = revision_of(&get)? - revision;
    Ok(vec![
        Row::new(
            &format!("operator, {clusters} Clusters of {NODES} nodes at rest ({states}): resident"),
            format!(
                "{:.0} MiB ({empty:.0} MiB empty; {objects} objects; settled after {:.0} s)",
                resident(up.pid())?,
                settling.as_secs_f64()
            ),
        ),
        Row::new(
            "the same: processor over 60 s",
            format!("{used:.1} % of one"),
        ),
        Row::new("the same: writes in 60 s", writes.to_string()).wanted("0"),
    ])
}

fn create(load: &Path, kubeconfig: &Path, file: &Path) -> anyhow::Result<()> {
    output(Command::new(load).arg("create").arg(kubeconfig).arg(file)).map(drop)
}

/// Waits until nothing was written for ten seconds; gives the revision.
fn settled(get: &dyn Fn(&str) -> anyhow::Result<Value>) -> anyhow::Result<u64> {
    let mut last = (revision_of(get)?, Instant::now());
    wait_until(
        "the operator to come to rest",
        Duration::from_mins(5),
        || {
            let now = revision_of(get)?;
            if now != last.0 {
                last = (now, Instant::now());
            }
            Ok((last.1.elapsed() > Duration::from_secs(10)).then_some(now))
        },
    )
}

/// Waits until no Cluster and no ClusterNode was written for ten seconds.
fn settled_kinds(get: &dyn Fn(&str) -> anyhow::Result<Value>) -> anyhow::Result<()> {
    let newest = || -> anyhow::Result<u64> {
        let mut newest = 0;
        for kind in ["clusters", "clusternodes"] {
            let list = get(&format!("/apis/kubespray.k8s.io/v1/{kind}"))?;
            let revisions = list["items"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|item| {
                    item["metadata"]["resourceVersion"]
                        .as_str()?
                        .parse::<u64>()
                        .ok()
                });
            newest = revisions.fold(newest, u64::max);
        }
        Ok(newest)
    };
    let mut last = (newest()?, Instant::now());
    wait_until(
        "the operator to come to rest",
        Duration::from_mins(5),
        || {
            let now = newest()?;
            if now != last.0 {
                last = (now, Instant::now());
            }
            Ok((last.1.elapsed() > Duration::from_secs(10)).then_some(()))
        },
    )
}

/// The revision of the whole store: a list carries it, whatever it lists.
fn revision_of(get: &dyn Fn(&str) -> anyhow::Result<Value>) -> anyhow::Result<u64> {
    let list = get("/api/v1/namespaces?limit=1")?;
    list["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|revision| revision.parse().ok())
        .context("a list has no revision")
}

/// How the Clusters stand: state and count.
fn states(get: &dyn Fn(&str) -> anyhow::Result<Value>) -> anyhow::Result<String> {
    let list = get("/apis/kubespray.k8s.io/v1/clusters")?;
    let mut counts = BTreeMap::<&str, usize>::new();
    for cluster in list["items"].as_array().into_iter().flatten() {
        let state = cluster["status"]["state"].as_str().unwrap_or("no state");
        *counts.entry(state).or_default() += 1;
    }
    let counts: Vec<_> = counts
        .iter()
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    Ok(counts.join(", "))
}

fn namespaces(clusters: u32) -> String {
    lines((0..clusters).map(|number| {
        (
            "/api/v1/namespaces".to_owned(),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("n{number}")}}),
        )
    }))
}

fn wishes(clusters: u32) -> String {
    lines((0..clusters).map(|number| {
        let cluster = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
            "metadata": {"name": "first", "namespace": format!("n{number}")},
            "spec": {
                "kubespray": {"version": "2.30.0", "source": {"path": "bundle"}},
                "kubernetesVersion": "1.34.4",
                "ssh": {"user": "root"},
                "operations": {"creation": {"startConditions": {"nodes": {"minimum": NODES + 10}}}},
            },
        });
        (
            format!("/apis/kubespray.k8s.io/v1/namespaces/n{number}/clusters"),
            cluster,
        )
    }))
}

fn nodes(clusters: u32) -> String {
    let each = (0..clusters).flat_map(|number| (0..NODES).map(move |node| (number, node)));
    lines(each.map(|(number, node)| {
        let kind = if node < 3 { "master" } else { "worker" };
        let object = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
            "metadata": {"name": format!("{kind}-{node}"), "namespace": format!("n{number}")},
            "spec": {"type": kind, "inventory": {
                "ansible_host": format!("10.{}.{}.{}", number >> 8, number & 255, node + 1),
            }},
        });
        (
            format!("/apis/kubespray.k8s.io/v1/namespaces/n{number}/clusternodes"),
            object,
        )
    }))
}

fn lines(objects: impl Iterator<Item = (String, Value)>) -> String {
    let mut text = String::new();
    for (path, object) in objects {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{path}\t{object}");
    }
    text
}
