//! The embedded API, durable, against etcd and kube-apiserver under the same client.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context;
use e2e::wait_until;
use lab::{programs, progress::Terminal};
use serde_json::{Value, json};

use super::{
    Profile, Row, example, output,
    process::{Guard, resident},
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

/// What the client saw, and how big the servers were after it.
struct Seen {
    client: Value,
    resident: f64,
}

impl Seen {
    fn number(&self, name: &str) -> f64 {
        self.client[name].as_f64().unwrap_or(f64::NAN)
    }
}

fn compare(ours: &Seen, theirs: &Seen) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, clients) in [("single", "1 client"), ("sixteen", "16 clients")] {
        let (own, peer) = (ours.number(name), theirs.number(name));
        rows.push(
            Row::new(
                &format!("API over TLS: durable creates of 4 KiB, {clients}"),
                format!("{own:.0}/s"),
            )
            .peer(&format!("kube-apiserver and etcd {peer:.0}/s"), own / peer),
        );
    }
    let (own, peer) = (ours.number("list_ms"), theirs.number("list_ms"));
    rows.push(
        Row::new(
            "API over TLS: list of 5,000 objects of 4 KiB",
            format!("{own:.0} ms"),
        )
        .peer(&format!("kube-apiserver and etcd {peer:.0} ms"), own / peer),
    );
    rows.push(
        Row::new(
            "API over TLS: resident after it",
            format!("{:.0} MiB", ours.resident),
        )
        .peer(
            &format!("kube-apiserver and etcd {:.0} MiB", theirs.resident),
            ours.resident / theirs.resident,
        ),
    );
    rows
}

fn client(load: &Path, kubeconfig: &Path) -> anyhow::Result<Value> {
    let text = output(Command::new(load).arg("measure").arg(kubeconfig))?;
    serde_json::from_str(&text).context("the example printed no JSON")
}

fn embedded(load: &Path, directory: &Path) -> anyhow::Result<Seen> {
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
    let client = client(load, Path::new(kubeconfig.trim_end()))?;
    Ok(Seen {
        client,
        resident: resident(server.pid())?,
    })
}

fn real(load: &Path, scratch: &Path) -> anyhow::Result<Seen> {
    let programs = programs::ensure(&Terminal::default())?.dir;
    let (etcd_port, peer_port, port) = (free_port()?, free_port()?, free_port()?);
    let etcd_address = format!("http://127.0.0.1:{etcd_port}");
    let peer_address = format!("http://127.0.0.1:{peer_port}");
    let etcd = Guard::start(
        Command::new(programs.join("etcd"))
            .arg(format!("--data-dir={}", scratch.join("etcd").display()))
            .arg(format!("--listen-client-urls={etcd_address}"))
            .arg(format!("--advertise-client-urls={etcd_address}"))
            .arg(format!("--listen-peer-urls={peer_address}"))
            .arg(format!("--initial-advertise-peer-urls={peer_address}"))
            .arg(format!("--initial-cluster=default={peer_address}")),
    )?;
    let files = Files::write(scratch, port)?;
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
    let kubectl = |path: &str| {
        let mut command = Command::new(programs.join("kubectl"));
        command
            .arg("--kubeconfig")
            .arg(&files.kubeconfig)
            .args(["get", "--raw", path]);
        command.output().map(|output| output.status.success())
    };
    wait_until("kube-apiserver", Duration::from_mins(1), || {
        Ok((kubectl("/readyz")? && kubectl("/api/v1/namespaces/default")?).then_some(()))
    })?;
    let client = client(load, &files.kubeconfig)?;
    Ok(Seen {
        client,
        resident: resident(etcd.pid())? + resident(server.pid())?,
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

fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("failed to find a free port")?;
    Ok(listener.local_addr()?.port())
}
