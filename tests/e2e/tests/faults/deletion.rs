//! Deletion that is disturbed: killed in the middle, asked for twice, and of a whole namespace.

use std::process::Output;

use e2e::{NAMESPACE, Signal, wait_until};
use serde_json::json;

use crate::story::{LIMIT, Story};

#[test]
fn a_disturbed_deletion_resets_each_host_once() {
    let mut story = Story::set(2);
    story.up().unwrap();
    let spec = json!({"deletionPolicy": "Reset", "operations": {"creation": {"maxRetries": 0}}});
    story.hold("beta", "host-2");
    story.hold("reset", "host-2");
    story.apply_cluster(&spec);
    story.until_held("beta");
    // The run that builds ends at its next task first.
    assert!(delete(&story, "cluster", "first").status.success());
    story.release("beta", "host-2");
    story.until_held("reset");
    story.down(Signal::Kill).unwrap();
    story.up().unwrap();
    assert!(delete(&story, "cluster", "first").status.success());
    story.release("reset", "host-2");
    gone(&story, "clusters");
    for host in ["host-1", "host-2"] {
        assert_eq!(story.done(host), ["alpha", "reset"], "{host}");
    }
    assert!(
        !story
            .data()
            .join("clusters")
            .join(NAMESPACE)
            .join("first")
            .exists()
    );

    // With the namespace go the ssh key, the hosts' objects and the Run: nobody can reset, and that is not passed over.
    story.hold("beta", "host-2");
    story.apply_cluster(&spec);
    story.until_held("beta");
    assert!(
        delete(&story, "namespace", NAMESPACE).status.success(),
        "the namespace is not deleted"
    );
    story.release("beta", "host-2");
    story.until_condition(
        "Stalled",
        "InvalidSpec",
        &["no host was reset", "write Retain to forget"],
    );
    let patch = json!({"spec": {"deletionPolicy": "Retain"}}).to_string();
    let arguments = [
        "--namespace",
        NAMESPACE,
        "patch",
        "cluster",
        "first",
        "--type=merge",
        "--patch",
        &patch,
    ];
    assert!(story.kubectl(&arguments).status().unwrap().success());
    gone(&story, "namespaces");
    for host in ["host-1", "host-2"] {
        assert_eq!(story.done(host), ["alpha", "reset", "alpha"], "{host}");
    }
}

fn delete(story: &Story, kind: &str, name: &str) -> Output {
    let arguments = [
        "--namespace",
        NAMESPACE,
        "delete",
        kind,
        name,
        "--wait=false",
    ];
    story.kubectl(&arguments).output().unwrap()
}

/// Waits until the Cluster, or the namespace, is gone.
fn gone(story: &Story, kind: &str) {
    let name = if kind == "namespaces" {
        NAMESPACE
    } else {
        "first"
    };
    let arguments = [
        "--namespace",
        NAMESPACE,
        "get",
        kind,
        name,
        "--ignore-not-found",
        "--output",
        "yaml",
    ];
    let mut last = String::new();
    wait_until("the end of the deletion", LIMIT, || {
        let output = story.kubectl(&arguments).output()?;
        last = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((output.status.success() && last.is_empty()).then_some(()))
    })
    .unwrap_or_else(|error| {
        panic!(
            "{error:#}: {last}\n{:?}\n{}",
            story.condition("Ready"),
            story.log_tail()
        )
    });
}
