//! A server as a process, besieged by processes that open connections and say little or nothing.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(
    clippy::disallowed_methods,
    reason = "the kubeconfig is the server's own"
)]

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Namespace;
use kapi::{Options, Server};
use kube::{
    Api, Client, Config,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// With few files the server runs out of them; with more it never does.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_neither_keep_others_out_nor_hold_up_the_end() {
    for files in ["100", "1024"] {
        let directory = tempfile::tempdir().unwrap();
        let mut server = Process::start("besieged", files, &directory.path().display().to_string());
        let kubeconfig = PathBuf::from(server.told());
        let address = address(&kubeconfig);
        let start = Instant::now();
        let mut siege = Process::start("besieging", "4096", &address);
        assert_eq!(siege.told(), "2000 connections");
        println!("{files} files: besieged in {:?}", start.elapsed());

        let start = Instant::now();
        for _ in 0..5 {
            let listed = tokio::time::timeout(MOST, namespaces(&kubeconfig)).await;
            let names = listed
                .unwrap_or_else(|_| panic!("{files} files: no answer"))
                .unwrap();
            assert!(names > 0);
        }
        println!("{files} files: five clients in {:?}", start.elapsed());

        kill(server.pid(), Signal::SIGTERM).unwrap();
        let mut ended = None;
        let start = Instant::now();
        while ended.is_none() && start.elapsed() < MOST {
            ended = server.child.try_wait().unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        println!("{files} files: ended in {:?}", start.elapsed());
        assert!(
            ended.is_some_and(|status| status.success()),
            "{files} files: {ended:?}"
        );
    }
}

/// A new client, and what it is answered. Where the attackers leave it no processor between its connection and its hello, it is one of
/// those that say nothing, and comes again.
async fn namespaces(kubeconfig: &Path) -> kube::Result<usize> {
    for _ in 1..TRIES {
        match asked(kubeconfig).await {
            Err(error @ (kube::Error::Service(_) | kube::Error::HyperError(_))) => {
                println!("it comes again: {error}");
            }
            answered => return answered,
        }
    }
    asked(kubeconfig).await
}

async fn asked(kubeconfig: &Path) -> kube::Result<usize> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    let namespaces: Api<Namespace> = Api::all(Client::try_from(config)?);
    Ok(namespaces.list(&ListParams::default()).await?.items.len())
}

fn address(kubeconfig: &Path) -> String {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let server = kubeconfig.clusters[0]
        .cluster
        .clone()
        .unwrap()
        .server
        .unwrap();
    server.trim_start_matches("https://").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the process of the server, started by the test above"]
async fn besieged() {
    let Some(directory) = std::env::var_os(ARGUMENT) else {
        return;
    };
    let mut term =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
    let options = Options {
        data_dir: directory.into(),
        crds: Vec::new(),
        listen: Some("127.0.0.1:0".parse().unwrap()),
    };
    let server = Server::open(options).await.unwrap();
    tell(&server.kubeconfig().unwrap().display().to_string());
    let stopped = async { term.recv().await.unwrap_or_default() };
    server.serve(stopped).await.unwrap();
}

/// Half of the connections say nothing, the others a byte of what would be a handshake now and then; those that are
/// closed come again.
#[test]
#[ignore = "the process of the attacker, started by the test above"]
fn besieging() {
    let Ok(address) = std::env::var(ARGUMENT) else {
        return;
    };
    let address: SocketAddr = address.parse().unwrap();
    let connect = || TcpStream::connect(address).unwrap();
    let mut connections: Vec<TcpStream> = (0..2000).map(|_| connect()).collect();
    tell("2000 connections");
    loop {
        for connection in connections.iter_mut().step_by(2) {
            // The first byte of a record of a handshake.
            if connection.write_all(&[22]).is_err()
                && let Ok(again) = TcpStream::connect(address)
            {
                *connection = again;
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// An ignored test of this file as a process, with so many files; it ends with its owner.
struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Process {
    fn start(name: &str, files: &str, argument: &str) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", "ulimit -n $0; exec \"$@\"", files])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture", "--ignored"])
            .env(ARGUMENT, argument)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next thing that it tells.
    fn told(&mut self) -> String {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        let told = lines.find_map(|line| line.strip_prefix(TOLD).map(str::to_owned));
        told.unwrap()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tell(what: &str) {
    println!("{TOLD}{what}");
}

const ARGUMENT: &str = "KAPI_SIEGE";
const TOLD: &str = "told: ";
/// How often a client comes, at most.
const TRIES: u32 = 8;
/// Alone on the machine it takes some milliseconds.
const MOST: Duration = Duration::from_secs(10);
