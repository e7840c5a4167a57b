//! What moves, beside what clusterctl moves. Only in a full run: it is built from source.

use std::{collections::BTreeSet, net::SocketAddr, path::Path, process::Command};

use lab::{Extent, programs::cluster_api::cluster_api, progress::Silent};
use relocation::Side;

use crate::{
    shared::raise_of_foreign_class,
    sides::{TEAM, definitions, patience},
    world::{install, raise},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_objects_move_as_with_clusterctl() {
    if Extent::of_this_run() != Extent::Full {
        return;
    }
    let program = cluster_api(&Silent).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let server = kapi::Server::open(kapi::Options {
        data_dir: scratch.path().join("api"),
        crds: definitions(|_| true),
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
    })
    .await
    .unwrap();
    let client = kube::Client::new(server.router(), "default");
    raise(&client).await;
    raise_of_foreign_class(&client).await;
    let there = kapi::Server::in_memory(&definitions(|_| true))
        .await
        .unwrap();
    let there = kube::Client::new(there.router(), "default");
    install(&there, "v0.3.0").await;
    let (source, target) = (
        Side::find(client, TEAM).await.unwrap(),
        Side::find(there, TEAM).await.unwrap(),
    );
    let this = pivot::Move::prepare(&source, &target, patience(), &|_| {});
    let planned = this.await.unwrap().plan().await.unwrap();
    let ours: BTreeSet<_> = planned.objects.iter().map(|shown| file(shown)).collect();

    let (done, serving) = (tokio::sync::Notify::new(), std::sync::Arc::new(server));
    let kubeconfig = serving.kubeconfig().unwrap().to_owned();
    let directory = scratch.path().join("moved");
    std::fs::create_dir(&directory).unwrap();
    let moved = async {
        let (clusterctl, home, to) = (
            program.clusterctl,
            scratch.path().to_owned(),
            directory.clone(),
        );
        let moved =
            tokio::task::spawn_blocking(move || to_directory(&clusterctl, &home, &kubeconfig, &to))
                .await;
        done.notify_one();
        moved.unwrap();
    };
    let (served, ()) = tokio::join!(serving.serve(done.notified()), moved);
    served.unwrap();
    let mut theirs: BTreeSet<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    println!("clusterctl moves {} objects", theirs.len());
    // It leaves behind what a ClusterResourceSet names and has not applied yet.
    theirs.insert(format!("ConfigMap_{TEAM}_named.yaml"));
    assert_eq!(ours, theirs);
}

/// What clusterctl calls the file of an object.
fn file(shown: &str) -> String {
    let (object, namespace) = match shown.split_once(" (namespace ") {
        Some((object, namespace)) => (object, namespace.trim_end_matches(')')),
        None if shown.starts_with("DevIdentity/") => (shown, ""),
        None => (shown, TEAM),
    };
    let (kind, name) = object.split_once('/').unwrap();
    format!("{kind}_{namespace}_{name}.yaml")
}

fn to_directory(clusterctl: &Path, home: &Path, kubeconfig: &Path, directory: &Path) {
    let output = Command::new(clusterctl)
        .args(["move", "--namespace", TEAM, "--to-directory"])
        .arg(directory)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .env_clear()
        .env("HOME", home)
        .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
