//! The Magnum API beside a real Magnum 23 under the same client, with as many clusters in each; and its operator at rest.
//!
//! Keystone is one and real. Our API of objects and `windlass magnum` are processes of their own, the service on one processor; the
//! real one is its API alone, in one process of eight threads over SQLite, and nothing works on its clusters meanwhile. So each
//! figure of ours is of both processes together.

use std::{
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::Context;
use e2e::{Keystone, MagnumService, Token, wait_until};
use lab::{programs, progress::Terminal};
use serde_json::Value;

use super::{
    Profile, Row,
    api::free_port,
    creates, example, output,
    process::{Guard, cpu, resident},
};

/// How long the processor time of a service at rest is counted.
const REST: Duration = Duration::from_mins(1);
/// What is still told of clusters when all are complete.
const SETTLING: Duration = Duration::from_secs(15);
/// How many requests a second one processor is to bear, and for how long.
const RATE: u32 = 200;
const SECONDS: u32 = 30;
/// Who asks.
const USER: &str = "ann";

pub(crate) fn measure(clusters: u32, program: &Path) -> anyhow::Result<Vec<Row>> {
    let load = example("magnum", "requests", Profile::Release)?;
    let api = example("kubespray", "creates", Profile::Release)?;
    let scratch = tempfile::tempdir().context("failed to make a directory")?;
    let keystone = Keystone::start(&scratch.path().join("keystone"), None, &Terminal::default())?;
    // Nobody looks a service up here.
    keystone.people("http://127.0.0.1:9/v1")?;
    let token = keystone.token(USER)?;
    let load = Load {
        program: &load,
        token: &token,
    };
    let (ours, rest) = windlass(clusters, program, &api, &load, &keystone, scratch.path())?;
    let theirs = real(clusters, &load, &keystone, scratch.path())?;
    let mut rows = compare(clusters, &ours, &theirs);
    rows.extend(rest);
    Ok(rows)
}

/// The client's figures, and what the processes were that answered.
struct Seen {
    client: Value,
    /// Their processor time for all that the client asked.
    used: Duration,
    resident: f64,
}

impl Seen {
    fn number(&self, name: &str) -> f64 {
        self.client[name].as_f64().unwrap_or(f64::NAN)
    }
}

/// The client, with the token that lets it in.
struct Load<'a> {
    program: &'a Path,
    token: &'a Token,
}

impl Load<'_> {
    fn said(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(self.program);
        output(command.args(arguments).env("OS_TOKEN", &self.token.id))
    }

    fn measure(&self, address: &str, pids: &[u32]) -> anyhow::Result<Seen> {
        let all = || -> anyhow::Result<Duration> { pids.iter().map(|pid| cpu(*pid)).sum() };
        let before = all()?;
        let client = serde_json::from_str(&self.said(&["measure", address])?);
        let resident: anyhow::Result<f64> = pids.iter().map(|pid| resident(*pid)).sum();
        Ok(Seen {
            client: client.context("the example printed no JSON")?,
            used: all()?.saturating_sub(before),
            resident: resident?,
        })
    }
}

fn windlass(
    clusters: u32,
    program: &Path,
    api: &Path,
    load: &Load<'_>,
    keystone: &Keystone,
    scratch: &Path,
) -> anyhow::Result<(Seen, Vec<Row>)> {
    let (api, kubeconfig) = creates::serve(api, &scratch.join("api"))?;
    define(program, &kubeconfig)?;
    let port = free_port()?;
    let listen = format!("127.0.0.1:{port}");
    let magnum = Guard::start(
        Command::new("taskset")
            .args(["--cpu-list", "0"])
            .arg(program)
            .arg("--data-dir")
            .arg(scratch.join("windlass"))
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(["magnum", "--keystone", &keystone.address])
            .args(["--listen", &listen, "--max-clusters", "1000000"]),
    )?;
    wait_until("windlass magnum", Duration::from_mins(1), || {
        Ok(TcpStream::connect(&listen).ok())
    })?;
    let address = format!("http://{listen}/v1");
    let kubeconfig = kubeconfig.display().to_string();
    let count = clusters.to_string();
    eprintln!("magnum: {clusters} clusters are made");
    load.said(&["fill", &address, &count])?;
    load.said(&["build", &kubeconfig, &count])?;
    thread::sleep(SETTLING);
    let before = cpu(magnum.pid())?;
    thread::sleep(REST);
    let used = cpu(magnum.pid())?.saturating_sub(before);
    let idle = resident(magnum.pid())?;
    let seen = load.measure(&address, &[magnum.pid(), api.pid()])?;
    let (rate, seconds) = (RATE.to_string(), SECONDS.to_string());
    let paced: Value = serde_json::from_str(&load.said(&["pace", &address, &rate, &seconds])?)
        .context("the example printed no JSON")?;
    let changed = load.said(&["change", &kubeconfig, &address])?;
    let paced = |name: &str| paced[name].as_f64().unwrap_or(f64::NAN);
    let rows = vec![
        Row::new(
            &format!(
                "the same: {RATE} GETs a second for {SECONDS} s, the service on one processor, p99"
            ),
            format!("{:.1} ms (p50 {:.1} ms)", paced("p99_ms"), paced("p50_ms")),
        )
        .wanted("< 20 ms"),
        Row::new(
            &format!("service with {clusters} complete clusters at rest: processor over 60 s"),
            format!("{:.2} s", used.as_secs_f64()),
        )
        .wanted("< 0.6 s with 10,000"),
        Row::new(
            "the same: resident, its API of objects not counted",
            format!("{idle:.0} MiB"),
        )
        .wanted("< 60 MiB with 10,000"),
        Row::new(
            "the same: from a change of state until clients see it, median of 20",
            format!("{} ms", changed.trim()),
        )
        .wanted("< 200 ms"),
    ];
    Ok((seen, rows))
}

/// Gives an API the kinds of kubespray and of Magnum.
fn define(program: &Path, kubeconfig: &Path) -> anyhow::Result<()> {
    let kubectl = programs::ensure(&Terminal::default())?.dir.join("kubectl");
    for arguments in [&["crds"][..], &["crds", "--magnum"]] {
        let mut definitions = Command::new(program)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .context("failed to start windlass crds")?;
        let text = definitions.stdout.take().context("it has no output")?;
        let status = Command::new(&kubectl)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["apply", "--server-side", "--filename", "-"])
            .stdin(text)
            .stdout(Stdio::null())
            .status()
            .context("failed to start kubectl")?;
        anyhow::ensure!(status.success(), "kubectl apply failed ({status})");
        definitions.wait().context("windlass crds did not end")?;
    }
    Ok(())
}

fn real(
    clusters: u32,
    load: &Load<'_>,
    keystone: &Keystone,
    scratch: &Path,
) -> anyhow::Result<Seen> {
    let directory = scratch.join("magnum");
    let magnum = MagnumService::api(
        keystone,
        &directory,
        clusters,
        load.token,
        &Terminal::default(),
    )?;
    eprintln!("magnum: the real one is asked, some minutes");
    load.measure(&magnum.address, &[magnum.pid()])
}

fn compare(clusters: u32, ours: &Seen, theirs: &Seen) -> Vec<Row> {
    let row = |what: &str, figure: &dyn Fn(&Seen) -> f64, unit: &str, wanted: &str| {
        let (own, peer) = (figure(ours), figure(theirs));
        Row::new(
            &format!("Magnum API with {clusters} clusters: {what}"),
            format!("{own:.2}{unit}"),
        )
        .peer(&format!("Magnum 23 {peer:.2}{unit}"), own / peer)
        .wanted(wanted)
    };
    let number = |name: &'static str| move |seen: &Seen| seen.number(name);
    vec![
        row(
            "GET of one, 1 client, p50",
            &number("get_ms"),
            " ms",
            "< 1 ms",
        ),
        row("the same, p99", &number("get_p99_ms"), " ms", ""),
        row(
            "list of all, at most 1,000",
            &number("list_ms"),
            " ms",
            "< 20 ms",
        ),
        row(
            "a template is made",
            &number("template_ms"),
            " ms",
            "< 10 ms",
        ),
        row("GETs of one, 8 clients", &number("rate"), "/s", ""),
        row(
            "processor time of the services for all of this",
            &|seen| seen.used.as_secs_f64(),
            " s",
            "",
        ),
        row("resident after it", &|seen| seen.resident, " MiB", ""),
    ]
}
