//! `cargo xtask demo --day-two`: what comes after a cluster is raised, on throw-away hosts. A worker joins, Kubernetes is
//! upgraded while somebody uses what runs in it, certificates are renewed, and a worker leaves that was switched off. etcd is saved and the
//! snapshot drilled, a file is edited by hand, which is named; what brings it back meets a broken disk, which is explained and mended, and
//! the run is replayed from its bundle.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use e2e::{NAMESPACE, Prober, Requests, Stage, Versions, WORKLOAD, node, wait_until};
use lab::{Kubernetes, command::output, progress::Terminal};
use serde_json::{Value, json};

use super::{
    HEALTH, first_lines, follow, go_on, heading, healthy, keep, named, needed, next, on_hosts,
    raise, show, up, watch,
};
use crate::tools;

/// How long Windlass may take to begin what it was asked for, and Kubernetes to miss a node.
const NOTICED: Duration = Duration::from_mins(2);
/// How much of a plan is shown.
const FIRST_LINES: usize = 12;
/// The host that joins.
const NEW: (&str, &str) = ("worker-3", "host-4");
/// The host that is switched off and leaves.
const DEAD: (&str, &str) = ("worker-2", "host-3");

/// The file that somebody edits: both the bundle and kubespray write it.
const EDITED: &str = "/etc/kubernetes/kubeadm-config.yaml";
/// The fault: what is edited can only be read, as Linux leaves a file system whose disk has failed.
const BROKEN: &str =
    "mount --bind /etc/kubernetes /etc/kubernetes && mount -o remount,bind,ro /etc/kubernetes";
const MENDED: &str = "umount /etc/kubernetes";

/// Plays it; whatever it made is gone when it ends.
pub(super) fn play(keep_up: bool, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let stage = stage()?;
    let mut day = Day {
        stage: &stage,
        interrupted,
        began: Instant::now(),
        told: BTreeSet::new(),
        entries: Vec::new(),
    };
    let files = day.raise()?;
    day.a_worker_joins()?;
    day.upgrade(&files)?;
    day.renew()?;
    day.a_dead_worker_leaves()?;
    day.a_snapshot_is_drilled()?;
    day.a_file_is_edited_by_hand()?;
    day.a_bundle_is_replayed()?;
    day.end()?;
    next(&stage);
    if keep_up {
        keep(interrupted);
    }
    Ok(())
}

/// Four hosts that have two versions of Kubernetes at hand, and `windlass up`.
fn stage() -> anyhow::Result<Stage> {
    let kubespray = needed()?;
    if kubespray.is_none() {
        println!(
            "Kubernetes of two versions: building the older one takes about four minutes the first time"
        );
    }
    let mut stage = Stage::set_with_older(
        on_hosts(4, 0),
        Kubernetes::Oldest,
        kubespray,
        &Terminal::default(),
    )?;
    up(&mut stage)?;
    Ok(stage)
}

/// What was asked for, and what became of it.
struct Entry {
    /// Since the demo had its hosts.
    at: Duration,
    took: Duration,
    asked: String,
    run: String,
    outcome: String,
}

/// The way through it, and what is told of it at the end.
struct Day<'a> {
    stage: &'a Stage,
    interrupted: &'a AtomicBool,
    began: Instant,
    /// The Events that were shown.
    told: BTreeSet<String>,
    entries: Vec<Entry>,
}

/// An operation on the cluster, as people ask for it.
struct Operation<'a> {
    /// What it is for.
    title: &'a str,
    /// Its word in the status.
    kind: &'a str,
    /// The arguments of windlass that show the plan, and those that ask for it.
    plan: &'a [&'a str],
    ask: &'a [&'a str],
}

impl Day<'_> {
    fn raise(&mut self) -> anyhow::Result<PathBuf> {
        let Versions { oldest, .. } = self.versions()?;
        let asked = format!("a cluster of three hosts with Kubernetes {oldest}");
        let at = self.began.elapsed();
        let files = self
            .stage
            .example(&tools::root().join("examples/first-cluster"), &[])?;
        raise(self.stage, &files, self.interrupted)?;
        healthy(self.stage, &HEALTH[..1])?;
        self.stage.ready_nodes(3)?;
        self.events()?;
        self.enter(at, &asked)?;
        Ok(files)
    }

    fn a_worker_joins(&mut self) -> anyhow::Result<()> {
        let (name, host) = NEW;
        let address = self.stage.lab.host(host)?.address.to_string();
        let worker = node(name, json!({"type": "worker"}), &address);
        let file = self.write("worker-3.json", &worker)?;
        self.operate(&Operation {
            title: "A worker joins",
            kind: "Scale",
            plan: &["plan", "--live", "-f", &file],
            ask: &["apply", "-f", &file],
        })?;
        self.stage.ready_nodes(4)?;
        Ok(())
    }

    fn upgrade(&mut self, files: &Path) -> anyhow::Result<()> {
        let Versions { oldest, newest } = self.versions()?;
        heading("Somebody uses it: two replicas behind a Service");
        self.stage.run_workload()?;
        let selector = format!("--selector={}={}", WORKLOAD.0, WORKLOAD.1);
        self.show_raised(&["get", "pods,services", &selector, "--output", "wide"])?;
        go_on(self.interrupted)?;

        let wish = self.write("upgrade.json", &wish(files, &newest)?)?;
        let prober = Prober::start(self.stage)?;
        let title = format!("From Kubernetes {oldest} to {newest}, with requests all the time");
        self.operate(&Operation {
            title: &title,
            kind: "Upgrade",
            plan: &["plan", "--live", "-f", &wish],
            ask: &["apply", "-f", &wish],
        })?;
        let Requests {
            answered,
            failed,
            failures,
        } = prober.end()?;
        let requests = format!("{} requests meanwhile, {failed} failed", answered + failed);
        println!("{requests}");
        for failure in failures {
            println!("  {failure}");
        }
        if let Some(entry) = self.entries.last_mut() {
            entry.outcome += &format!("; {requests}");
        }
        self.show_raised(&["get", "nodes"])
    }

    fn renew(&mut self) -> anyhow::Result<()> {
        self.operate(&Operation {
            title: "Certificates are renewed",
            kind: "Renew",
            plan: &["renew", "--dry-run"],
            ask: &["renew"],
        })
    }

    fn a_dead_worker_leaves(&mut self) -> anyhow::Result<()> {
        let (name, host) = DEAD;
        heading(&format!("{name} is switched off"));
        self.stage.lab.kill_host(host)?;
        let off = Instant::now();
        let kubeconfig = self.stage.kubeconfig()?;
        let ready = "--output=jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
        wait_until("Kubernetes to miss it", NOTICED, || {
            go_on(self.interrupted)?;
            let mut get = self
                .stage
                .kubectl_by(&kubeconfig, &["get", "node", name, ready]);
            Ok((output(&mut get)? != "True").then_some(()))
        })?;
        println!("Kubernetes misses it after {} s", off.elapsed().as_secs());
        self.operate(&Operation {
            title: "It is removed, without an answer",
            kind: "Remove",
            plan: &["node", "remove", name, "--dry-run"],
            ask: &["node", "remove", name],
        })?;
        self.stage.until_gone("clusternode", name, NOTICED)
    }

    fn a_snapshot_is_drilled(&mut self) -> anyhow::Result<()> {
        go_on(self.interrupted)?;
        heading("etcd is saved outside of the cluster: windlass snapshot");
        let at = self.began.elapsed();
        // kubespray installs it; what checks a snapshot must be there.
        if !self.stage.is_of_kubespray() {
            self.stage.bring_etcdutl(&self.stage.lab.hosts()[0].name)?;
        }
        let directory = self.stage.lab.dir().join("snapshots");
        fs::create_dir(&directory).context("failed to make a place for snapshots")?;
        let store = json!({"spec": {"etcd": {"snapshots": {"store": {"directory": directory}}}}});
        self.stage.merge("cluster", "first", &store)?;
        show(&mut self.stage.windlass(&["snapshot"]))?;
        let name = self.until("a snapshot to be kept", |status| {
            let name = &status["snapshots"]["kept"][0]["name"];
            name.as_str().map(str::to_owned)
        })?;
        show(&mut self.stage.windlass(&["snapshots", "list"]))?;
        let drill = ["snapshots", "drill", "first", &name];
        heading(&format!(
            "It is tried in an etcd of its own: windlass {}",
            words(&drill)
        ));
        show(&mut self.stage.windlass(&drill))?;
        let result = self.until("the drill to end", |status| {
            let drill = &status["snapshots"]["drill"];
            let told = || {
                Some(format!(
                    "{}: {}",
                    drill["result"].as_str()?,
                    drill["message"].as_str()?
                ))
            };
            told()
        })?;
        println!("{result}");
        ensure!(result.starts_with("Passed"), "the drill: {result}");
        self.events()?;
        self.enter(at, "A snapshot is taken and drilled")
    }

    fn a_file_is_edited_by_hand(&mut self) -> anyhow::Result<()> {
        go_on(self.interrupted)?;
        heading("Somebody edits a file on a host, and the radar names it");
        let radar = json!({"spec": {"radar": {"every": "10s"}}});
        self.stage.merge("cluster", "first", &radar)?;
        self.until("the hosts to be as they were left", |status| {
            drifted(status, "False")
        })?;
        let host = &self.stage.lab.hosts()[0].name;
        let edit = format!("echo '# by hand' >> {EDITED}");
        println!("on master-1: {edit}");
        self.stage.lab.ssh(host, &edit)?;
        let told = self.until("the radar to name it", |status| drifted(status, "True"))?;
        ensure!(
            told.contains(&format!("master-1: {EDITED}")),
            "the radar names something else: {told}"
        );
        show(&mut self.stage.windlass(&["status"]))?;
        self.what_brings_it_back_fails_and_is_explained(host)?;
        let told = self.until("the hosts to be as they were left", |status| {
            drifted(status, "False")
        })?;
        println!("{told}");
        Ok(())
    }

    fn what_brings_it_back_fails_and_is_explained(&mut self, host: &str) -> anyhow::Result<()> {
        heading("It is brought back, but the disk has failed: windlass converge");
        let at = self.began.elapsed();
        println!("on master-1: {BROKEN}");
        self.stage.lab.ssh(host, BROKEN)?;
        let before = self.last_run()?;
        show(&mut self.stage.windlass(&["converge"]))?;
        self.until_begun("Converge", &before)?;
        // It ends as the run does, which is to fail.
        if watch(
            &mut self.stage.windlass(&["status", "--watch"]),
            self.interrupted,
        )
        .is_ok()
        {
            bail!("the run does not meet the fault");
        }
        go_on(self.interrupted)?;
        self.events()?;
        heading("Why? windlass explain failure");
        let why = output(&mut self.stage.windlass(&["explain", "failure"]))?;
        println!("{why}");
        ensure!(
            why.contains("ReadOnlyFileSystem"),
            "the fault is taken for another"
        );
        heading("It is mended, and the run goes on: windlass retry");
        println!("on master-1: {MENDED}");
        self.stage.lab.ssh(host, MENDED)?;
        show(&mut self.stage.windlass(&["retry"]))?;
        self.until("the run to go on", |status| {
            let state = status["lastOperation"]["state"].as_str();
            state.filter(|state| *state != "Failed").map(str::to_owned)
        })?;
        follow(self.stage, self.interrupted)?;
        healthy(self.stage, &HEALTH[..1])?;
        self.events()?;
        self.enter(at, "It is brought back, past a disk that had failed")
    }

    fn a_bundle_is_replayed(&self) -> anyhow::Result<()> {
        let run = self.last_run()?;
        let file = self.stage.lab.dir().join(format!("{run}.windlass.tar.gz"));
        let file = file.display().to_string();
        let bundle = ["bundle", &run, "--to", &file];
        heading(&format!("A run as one file: windlass {}", words(&bundle)));
        show(&mut self.stage.windlass(&bundle))?;
        let replay = ["replay", &file];
        heading(&format!(
            "It is shown again, by that alone: windlass {}",
            words(&replay)
        ));
        show(&mut self.stage.windlass(&replay))
    }

    /// What is told once the status says it.
    fn until(&self, what: &str, told: impl Fn(&Value) -> Option<String>) -> anyhow::Result<String> {
        wait_until(what, NOTICED, || {
            go_on(self.interrupted)?;
            Ok(told(&self.status()?))
        })
    }

    fn end(&self) -> anyhow::Result<()> {
        heading("The cluster at the end");
        self.stage.ready_nodes(3)?;
        self.show_raised(&["get", "nodes", "--output", "wide"])?;
        println!();
        let kinds = "clusters.kubespray.k8s.io,clusternodes,runs";
        let get = ["--namespace", NAMESPACE, "get", kinds];
        show(&mut self.stage.kubectl(&get))?;
        heading("What happened");
        for entry in &self.entries {
            let Entry {
                at,
                took,
                asked,
                run,
                outcome,
            } = entry;
            let (minutes, seconds) = (at.as_secs() / 60, at.as_secs() % 60);
            println!("{minutes:>2}:{seconds:02}  {asked}");
            println!("       {run} took {} s; {outcome}", took.as_secs());
        }
        Ok(())
    }

    /// Shows the plan, asks for it, follows it to its end and tells of it.
    fn operate(&mut self, operation: &Operation) -> anyhow::Result<()> {
        go_on(self.interrupted)?;
        let Operation {
            title,
            kind,
            plan,
            ask,
        } = *operation;
        heading(&format!("{title}: windlass {}", words(ask)));
        let at = self.began.elapsed();
        println!(
            "the plan first, which touches nothing: windlass {}",
            words(plan)
        );
        self.show_plan(plan)?;
        println!();
        let before = self.last_run()?;
        show(&mut self.stage.windlass(ask))?;
        self.until_begun(kind, &before)?;
        follow(self.stage, self.interrupted)?;
        healthy(self.stage, &HEALTH[..1])?;
        self.events()?;
        self.enter(at, title)
    }

    fn show_plan(&self, plan: &[&str]) -> anyhow::Result<()> {
        first_lines(&output(&mut self.stage.windlass(plan))?, FIRST_LINES);
        Ok(())
    }

    /// Waits until the status tells of another run of this kind.
    fn until_begun(&self, kind: &str, before: &str) -> anyhow::Result<()> {
        let mut ready = Value::Null;
        wait_until(&format!("{kind} to begin"), NOTICED, || {
            go_on(self.interrupted)?;
            let status = self.status()?;
            ready = status["conditions"].clone();
            let last = &status["lastOperation"];
            let is_new = last["type"] == kind && last["run"] != before;
            let is_at_work = status["state"] != "Created" || last["state"] == "Succeeded";
            Ok((is_new && is_at_work).then_some(()))
        })
        .with_context(|| format!("the conditions of the Cluster: {ready:#}"))
    }

    /// Shows what Events tell since the last time, but for the steps, which were shown as they went.
    fn events(&mut self) -> anyhow::Result<()> {
        println!("\nits Events:");
        let mut events = self.stage.objects("events")?;
        events.sort_by_key(|event| event["metadata"]["creationTimestamp"].to_string());
        for event in events {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let is_new = self.told.insert(text(&event["metadata"]["uid"]));
            let (kind, reason) = (text(&event["type"]), text(&event["reason"]));
            let is_of_step = reason.starts_with("Step") && kind != "Warning";
            if is_new && !is_of_step {
                let at = text(&event["metadata"]["creationTimestamp"]);
                let clock = at.get(11..19).unwrap_or_default();
                let message = text(&event["message"]);
                println!("  {clock}  {kind:<8} {reason:<20} {message}");
            }
        }
        Ok(())
    }

    fn enter(&mut self, at: Duration, asked: &str) -> anyhow::Result<()> {
        let status = self.status()?;
        let entry = Entry {
            at,
            took: self.began.elapsed().saturating_sub(at),
            asked: asked.to_owned(),
            run: self.newest_run()?,
            outcome: format!(
                "{}, {}",
                status["state"].as_str().unwrap_or_default(),
                status["cluster"]["health"].as_str().unwrap_or_default()
            ),
        };
        self.entries.push(entry);
        Ok(())
    }

    fn status(&self) -> anyhow::Result<Value> {
        let mut cluster = self.stage.object("clusters.kubespray.k8s.io", "first")?;
        Ok(cluster["status"].take())
    }

    fn last_run(&self) -> anyhow::Result<String> {
        let status = self.status()?;
        let run = status["lastOperation"]["run"].as_str();
        Ok(run.unwrap_or_default().to_owned())
    }

    /// Of all there are: a snapshot is none of the operations that a Cluster is at.
    fn newest_run(&self) -> anyhow::Result<String> {
        let runs = self.stage.objects("runs")?;
        let newest = runs
            .iter()
            .max_by_key(|run| run["metadata"]["creationTimestamp"].to_string());
        let name = newest.and_then(|run| run["metadata"]["name"].as_str());
        Ok(name.unwrap_or_default().to_owned())
    }

    fn versions(&self) -> anyhow::Result<Versions> {
        let versions = self.stage.versions().cloned();
        versions.context("the hosts have one version of Kubernetes only")
    }

    fn show_raised(&self, arguments: &[&str]) -> anyhow::Result<()> {
        show(&mut self.stage.kubectl_by(&self.stage.kubeconfig()?, arguments))
    }

    /// Writes an object to a file, and gives its path.
    fn write(&self, name: &str, object: &Value) -> anyhow::Result<String> {
        let file = self.stage.lab.dir().join(name);
        fs::write(&file, serde_json::to_vec_pretty(object)?)
            .context("failed to write an object")?;
        Ok(file.display().to_string())
    }
}

/// The Cluster of these files with another version, whose pods of the workload are looked at between batches.
fn wish(files: &Path, version: &str) -> anyhow::Result<Value> {
    let list: Value = serde_json::from_slice(&fs::read(files)?)?;
    let mut items = list["items"].as_array().into_iter().flatten();
    let mut cluster = items
        .find(|item| item["kind"] == "Cluster")
        .cloned()
        .with_context(|| format!("{} holds no Cluster", named(files)))?;
    let (key, value) = WORKLOAD;
    cluster["spec"]["kubernetesVersion"] = json!(version);
    cluster["spec"]["operations"]["upgrade"] =
        json!({"gate": {"namespace": "default", "selector": {key: value}}});
    Ok(cluster)
}

/// What the condition `Drifted` says, where it stands so.
fn drifted(status: &Value, wanted: &str) -> Option<String> {
    let mut conditions = status["conditions"].as_array()?.iter();
    let found = conditions.find(|it| it["type"] == "Drifted" && it["status"] == wanted)?;
    found["message"].as_str().map(str::to_owned)
}

/// Arguments as people type them, with the names of files alone.
fn words(arguments: &[&str]) -> String {
    let name = |argument: &&str| {
        let name = argument.rsplit('/').next();
        name.unwrap_or_default().to_owned()
    };
    arguments.iter().map(name).collect::<Vec<_>>().join(" ")
}
