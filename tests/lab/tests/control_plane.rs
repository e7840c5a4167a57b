//! A control plane as its users meet it. Root is needed.
#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use std::process::{Command, Stdio};

use lab::control_plane::Part;
use lab::progress::Silent;
use lab::{ControlPlane, Extent, Kubernetes};

fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Processes whose arguments name this directory.
fn left(dir: &str) -> Vec<String> {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok())
        .filter(|arguments| arguments.contains(dir))
        .collect()
}

#[test]
fn it_collects_garbage_survives_crashes_and_leaves_nothing() {
    for kubernetes in Extent::of_this_run().kubernetes() {
        garbage_crashes_and_traces(*kubernetes);
    }
}

fn garbage_crashes_and_traces(kubernetes: Kubernetes) {
    let mut plane = ControlPlane::start(kubernetes, &Silent).unwrap();
    let version = output(plane.kubectl().args(["get", "--raw", "/version"]));
    assert!(
        version.contains(&format!("v{}", plane.version())),
        "{version}"
    );
    output(plane.kubectl().args(["create", "namespace", "work"]));
    output(
        plane
            .kubectl()
            .args(["-n", "work", "create", "configmap", "kept"]),
    );

    for part in [Part::ApiServer, Part::Etcd] {
        plane.kill(part).unwrap();
        plane.revive(part).unwrap();
        output(
            plane
                .kubectl()
                .args(["-n", "work", "get", "configmap", "kept"]),
        );
    }
    // The controller manager empties the namespace before it goes.
    output(
        plane
            .kubectl()
            .args(["delete", "namespace", "work", "--timeout=60s"]),
    );

    let dir = plane.dir().to_owned();
    assert!(!left(dir.to_str().unwrap()).is_empty());
    drop(plane);
    assert!(left(dir.to_str().unwrap()).is_empty());
    assert!(!dir.exists());
}
