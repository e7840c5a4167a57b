//! Clients as other people write them, against the embedded API and a real one: one program, the same end.
//!
//! The program (`tests/lab/foreign`) is written with client-go and controller-runtime and knows nothing of Windlass.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use kapi::{Options, Server};
use lab::{ControlPlane, Kubernetes, command::output, progress::Terminal};
use serde_json::Value;

/// The embedded API over TLS, as `windlass up` serves it: it learns the foreign kind from the program.
struct Embedded {
    directory: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Embedded {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let options = Options {
            data_dir: directory.path().join("data"),
            crds: api::custom_resource_definitions(),
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        };
        let server = runtime.block_on(Server::open(options)).unwrap();
        runtime.spawn(async move { server.serve(std::future::pending()).await });
        Self { directory, runtime }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("data/kubeconfig")
    }
}

fn run(program: &Path, story: &str, kubeconfig: &Path) -> Value {
    let said = output(Command::new(program).arg(story).arg(kubeconfig)).unwrap();
    serde_json::from_str(&said).unwrap()
}

#[test]
fn a_controller_of_somebody_else_ends_with_the_same_objects() {
    let program = lab::foreign(&Terminal::default()).unwrap();
    let embedded = Embedded::start();
    let ours = run(&program, "controller", &embedded.kubeconfig());
    embedded.runtime.shutdown_background();
    let plane = ControlPlane::start(Kubernetes::Newest, &Terminal::default()).unwrap();
    let real = run(&program, "controller", &plane.kubeconfig());
    for part in ["answers", "events", "objects"] {
        let lists = [&ours, &real].map(|result| result[part].as_array().unwrap());
        assert!(!lists[0].is_empty(), "no {part}");
        let pairs = lists[0].iter().zip(lists[1]);
        let different: Vec<_> = pairs
            .filter(|(ours, real)| ours != real)
            .map(|(ours, real)| format!("ours: {ours:#}\nreal: {real:#}"))
            .collect();
        assert!(different.is_empty(), "{part}:\n{}", different.join("\n"));
        assert_eq!(lists[0].len(), lists[1].len(), "{part}");
    }
}

#[test]
fn many_watches_of_all_kinds_miss_nothing() {
    let program = lab::foreign(&Terminal::default()).unwrap();
    let embedded = Embedded::start();
    let ours = run(&program, "watch", &embedded.kubeconfig());
    embedded.runtime.shutdown_background();
    let plane = ControlPlane::start(Kubernetes::Newest, &Terminal::default()).unwrap();
    let real = run(&program, "watch", &plane.kubeconfig());
    assert_eq!(ours["writes"], real["writes"]);
    for result in [ours, real] {
        assert!(result["watches"].as_u64().unwrap() > 100, "{result}");
    }
}
