//! The embedded API, durable, against etcd and kube-apiserver under the same client.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use e2e::wait_until;
use lab::{programs, progress::Terminal};
use serde_json::{Value, json};

use super::{
    Profile, Row, example, output,
    process::{Guard, cpu, resident},
};

pub(crate) fn measure() -> anyhow::Result<Vec<Row>> {
    let inside = example("kapi", "bench", Profile::Release)?;
    let load = example("kapi", "load", Profile::Release)?;
    let scratch = tempfile::tempdir().context("failed to make a directory")?;
    let mut rows = in_process(&inside, &scratch.path().join("inside"))?;
    let ours = embedded(&load, &scratch.path().join("embedded"))?;
    let theirs = real(&load, scratch.path())?;
    rows.extend(compare(&ours, &theirs));
    Ok(rows)
}

/// What the example prints of clients in its own process, line by line.
fn in_process(program: &Path, directory: &Path) -> anyhow::Result<Vec<Row>> {
    let text = output(Command::new(program).arg(directory))?;
    let lines = text.lines().filter_map(|line| line.rsplit_once("  "));
    Ok(lines
        .map(|(what, figure)| Row::new(&format!("API in-process: {}", what.trim()), figure.trim()))
        .collect())
}

/// What the client saw, what the servers were after it, and how long they took to be ready.
struct Seen {
    client: Value,
    resident: f64,
    /// Their processor time for one list.
    list_cpu: Duration,
    ready: Duration,
}

impl Seen {
    fn number(&self, name: &str) -> f64 {
        self.client[name].as_f64().unwrap_or(f64::NAN)
    }

    fn ready_ms(&self) -> f64 {
        self.ready.as_secs_f64() * 1e3
    }
}

fn compare(ours: &Seen, theirs: &Seen) -> Vec<Row> {
    let row = |what: &str, figure: fn(&Seen) -> f64, unit: &str, goal: &str| {
        let (own, peer) = (figure(ours), figure(theirs));
        let digits = if own < 10.0 { 2 } else { 0 };
        let peer_digits = if peer < 10.0 { 2 } else { 0 };
        let row = Row::new(
            &format!("API over TLS: {what}"),
            format!("{own:.digits$}{unit}"),
        )
        .peer(
            &format!("kube-apiserver and etcd {peer:.peer_digits$}{unit}"),
            own / peer,
        );
        if goal.is_empty() {
            row
        } else {
            row.wanted(goal)
        }
    };
    vec![
        row(
            "durable creates of 4 KiB, 1 client",
            |seen| seen.number("single"),
            "/s",
            ">= 3",
        ),
        row(
            "durable creates of 4 KiB, 16 clients",
            |seen| seen.number("sixteen"),
            "/s",
            ">= 8",
        ),
        row(
            "list of 10,000 objects of 4 KiB",
            |seen| seen.number("list_ms"),
            " ms",
            "<= 0.2",
        ),
        row(
            "the same, processor time of the server",
            |seen| seen.list_cpu.as_secs_f64() * 1e3,
            " ms",
            "",
        ),
        row(
            "write to the last of 100 watchers, p50",
            |seen| seen.number("fan_out_ms"),
            " ms",
            "",
        ),
        row(
            "the same, p99",
            |seen| seen.number("fan_out_p99_ms"),
            " ms",
            "",
        ),
        row("resident after it", |seen| seen.resident, " MiB", "<= 0.1"),
        row(
            "from the start in an empty directory until ready",
            Seen::ready_ms,
            " ms",
            "",
        ),
    ]
}

fn client(load: &Path, kubeconfig: &Path) -> anyhow::Result<Value> {
    let text = output(Command::new(load).arg("measure").arg(kubeconfig))?;
    serde_json::from_str(&text).context("the example printed no JSON")
}

/// What a list costs these processes.
fn list_cpu(load: &Path, kubeconfig: &Path, servers: &[u32]) -> anyhow::Result<Duration> {
    let used = || -> anyhow::Result<Duration> { servers.iter().map(|pid| cpu(*pid)).sum() };
    let before = used()?;
    output(Command::new(load).arg("list").arg(kubeconfig))?;
    Ok(used()?.saturating_sub(before) / LISTS)
}

/// How many lists the example makes.
const LISTS: u32 = 20;

/// Until the API says that it is ready, whatever it says before.
fn wait_ready(load: &Path, kubeconfig: &Path) -> anyhow::Result<()> {
    output(Command::new(load).arg("ready").arg(kubeconfig)).map(drop)
}

fn embedded(load: &Path, directory: &Path) -> anyhow::Result<Seen> {
    let started = Instant::now();
    // Ended with its standard input.
    let child = Command::new(load)
        .arg("serve")
        .arg(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("failed to start the embedded API")?;
    let mut server = Guard(child);
    let lines = server.0.stdout.take().context("it has no output")?;
    let mut kubeconfig = String::new();
    BufReader::new(lines)
        .read_line(&mut kubeconfig)
        .context("failed to read the kubeconfig's path")?;
    let kubeconfig = Path::new(kubeconfig.trim_end());
    wait_ready(load, kubeconfig)?;
    let ready = started.elapsed();
    let client = client(load, kubeconfig)?;
    Ok(Seen {
        client,
        resident: resident(server.pid())?,
        list_cpu: list_cpu(load, kubeconfig, &[server.pid()])?,
        ready,
    })
}

fn real(load: &Path, scratch: &Path) -> anyhow::Result<Seen> {
    let programs = programs::ensure(&Terminal::default())?.dir;
    let (etcd_port, peer_port, port) = (free_port()?, free_port()?, free_port()?);
    let etcd_address = format!("http://127.0.0.1:{etcd_port}");
    let peer_address = format!("http://127.0.0.1:{peer_port}");
    let files = Files::write(scratch, port)?;
    let started = Instant::now();
    let etcd = Guard::start(
        Command::new(programs.join("etcd"))
            .arg(format!("--data-dir={}", scratch.join("etcd").display()))
            .arg(format!("--listen-client-urls={etcd_address}"))
            .arg(format!("--advertise-client-urls={etcd_address}"))
            .arg(format!("--listen-peer-urls={peer_address}"))
            .arg(format!("--initial-advertise-peer-urls={peer_address}"))
            .arg(format!("--initial-cluster=default={peer_address}")),
    )?;
    let server = Guard::start(
        Command::new(programs.join("kube-apiserver"))
            .arg(format!("--etcd-servers={etcd_address}"))
            .arg(format!("--secure-port={port}"))
            .arg("--bind-address=127.0.0.1")
            .arg("--advertise-address=127.0.0.1")
            .arg("--endpoint-reconciler-type=none")
            .arg("--authorization-mode=AlwaysAllow")
            .arg("--service-cluster-ip-range=10.96.0.0/16")
            .arg("--service-account-issuer=https://bench.invalid")
            .arg(format!(
                "--service-account-key-file={}",
                files.key.display()
            ))
            .arg(format!(
                "--service-account-signing-key-file={}",
                files.key.display()
            ))
            .arg(format!("--token-auth-file={}", files.tokens.display()))
            .arg(format!(
                "--cert-dir={}",
                scratch.join("certificates").display()
            )),
    )?;
    wait_ready(load, &files.kubeconfig)?;
    let ready = started.elapsed();
    let namespace = || {
        let mut command = Command::new(programs.join("kubectl"));
        command.arg("--kubeconfig").arg(&files.kubeconfig);
        command.args(["get", "--raw", "/api/v1/namespaces/default"]);
        command.output().map(|output| output.status.success())
    };
    wait_until("the first namespace", Duration::from_mins(1), || {
        Ok(namespace()?.then_some(()))
    })?;
    let client = client(load, &files.kubeconfig)?;
    Ok(Seen {
        client,
        resident: resident(etcd.pid())? + resident(server.pid())?,
        list_cpu: list_cpu(load, &files.kubeconfig, &[etcd.pid(), server.pid()])?,
        ready,
    })
}

/// What kube-apiserver and its client need, valid for this run alone.
struct Files {
    key: PathBuf,
    tokens: PathBuf,
    kubeconfig: PathBuf,
}

impl Files {
    fn write(scratch: &Path, port: u16) -> anyhow::Result<Self> {
        let files = Self {
            key: scratch.join("service-accounts.key"),
            tokens: scratch.join("tokens.csv"),
            kubeconfig: scratch.join("kubeconfig"),
        };
        output(
            Command::new("openssl")
                .args(["genrsa", "-out"])
                .arg(&files.key)
                .arg("2048"),
        )?;
        fs::write(&files.tokens, "bench,bench,bench,system:masters\n")?;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {
                "server": format!("https://127.0.0.1:{port}"),
                "insecure-skip-tls-verify": true,
            }}],
            "users": [{"name": "bench", "user": {"token": "bench"}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        });
        fs::write(&files.kubeconfig, kubeconfig.to_string())?;
        Ok(files)
    }
}

pub(super) fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("failed to find a free port")?;
    Ok(listener.local_addr()?.port())
}
