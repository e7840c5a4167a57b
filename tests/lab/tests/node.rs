//! A cluster of one node as its users meet it. Root is needed.
#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use std::process::{Command, Stdio};

use lab::progress::Silent;
use lab::{LabOptions, Node};

fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn pods_run_have_logs_and_exec_and_reach_services_and_other_hosts() {
    let options = LabOptions {
        hosts: 2,
        ..LabOptions::default()
    };
    let node = Node::start(options, &Silent).unwrap();
    let busybox = [
        "--image=registry.k8s.io/busybox:1",
        "--image-pull-policy=Never",
    ];
    output(
        node.kubectl(&["run", "speaker", "--restart=Never"])
            .args(busybox)
            .args(["--command", "--", "sh", "-c", "echo spoken; sleep 600"]),
    );
    output(&mut node.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "pod/speaker",
        "--timeout=60s",
    ]));
    assert_eq!(output(&mut node.kubectl(&["logs", "speaker"])), "spoken\n");
    let names = [
        "exec",
        "speaker",
        "--",
        "nslookup",
        "kubernetes.default.svc.cluster.local",
    ];
    assert!(output(&mut node.kubectl(&names)).contains("10.96.0.1"));
    let other = node.lab.host("host-2").unwrap().address.to_string();
    output(&mut node.kubectl(&["exec", "speaker", "--", "ping", "-c", "1", &other]));
}
