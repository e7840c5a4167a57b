//! `windlass init`: what it writes can be planned, and what it refuses it names.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

const BUNDLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bundle");

fn windlass(place: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windlass"))
        .arg("--data-dir")
        .arg(place.join("data"))
        .args(arguments)
        .current_dir(place)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_it_writes_can_be_planned() {
    let place = tempfile::tempdir().unwrap();
    let hosts = [
        "--control-plane",
        "10.0.0.11,10.0.0.12,10.0.0.13",
        "--worker",
        "big-1=10.0.0.21,10.0.0.22",
    ];
    let options = [
        "-n",
        "prod",
        "init",
        "my_first",
        "--checkout",
        BUNDLE,
        "--ssh-user",
        "ubuntu",
    ];
    let output = windlass(place.path(), &[&options[..], &hosts].concat());
    assert!(output.status.success(), "{}", said(&output));
    let next = String::from_utf8(output.stdout).unwrap();
    for word in [
        "create namespace prod",
        "-n prod create secret generic ssh --from-file=ssh-privatekey=",
        "windlass plan -f my_first",
        "windlass apply -f my_first",
        "windlass -n prod status --watch",
    ] {
        assert!(next.contains(word), "{word}: {next}");
    }
    let plan = windlass(
        place.path(),
        &["plan", "--output", "json", "-f", "my_first"],
    );
    let plans: Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert!(plan.status.success(), "{plans:#}");
    let order = &plans[0]["plan"]["inputs"]["inventory"]["order"];
    let planes = serde_json::json!(["control-plane-1", "control-plane-2", "control-plane-3"]);
    assert_eq!(order["kube_control_plane"], planes);
    assert_eq!(order["etcd"], planes);
    assert_eq!(order["kube_node"], serde_json::json!(["big-1", "worker-2"]));
    // What is there stays as it is.
    let before = fs::read_to_string(place.path().join("my_first/nodes.yaml")).unwrap();
    let again = windlass(
        place.path(),
        &["init", "my_first", "--control-plane", "10.9.9.9"],
    );
    assert!(!again.status.success());
    assert!(said(&again).contains("is not empty"), "{}", said(&again));
    let after = fs::read_to_string(place.path().join("my_first/nodes.yaml")).unwrap();
    assert_eq!(before, after);
}

#[test]
fn what_it_refuses_it_names_and_writes_nothing() {
    let place = tempfile::tempdir().unwrap();
    for (options, words) in [
        (&[][..], &["--control-plane is not set"][..]),
        (
            &[
                "--control-plane",
                "10.0.0.1,10.0.0.2",
                "--worker",
                "10.0.0.1",
            ],
            &["odd number of members", "ClusterNode/worker-1"],
        ),
        (
            &["--control-plane", "Big=10.0.0.1"],
            &["--control-plane", "\"Big\" is not RFC 1123"],
        ),
        (
            &[
                "--control-plane",
                "10.0.0.1",
                "--kubespray-version",
                "1.0.0",
            ],
            &["1.0.0"],
        ),
        (
            &["--control-plane", "10.0.0.1", "--name", "No_Name"],
            &["Cluster metadata.name", "--name"],
        ),
    ] {
        let output = windlass(place.path(), &[&["init", "new"][..], options].concat());
        assert!(!output.status.success(), "{options:?}");
        for word in words {
            assert!(said(&output).contains(word), "{word}: {}", said(&output));
        }
        assert!(!place.path().join("new").exists(), "{options:?}");
    }
}
