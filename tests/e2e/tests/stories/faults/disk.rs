//! A disk that fills in the middle of a run.

use std::{
    fs,
    process::{Command, Stdio},
};

use e2e::wait_until;
use serde_json::json;

use super::story::{LIMIT, Story, assert_each_step_once, step};

#[test]
fn a_full_disk_holds_the_run_until_there_is_room() {
    let mut story = Story::set(2);
    on_a_small_disk(&story);
    story.up().unwrap();
    story.hold("beta", "host-2");
    story.apply_cluster(&json!({"operations": {"creation": {"maxRetries": 2}}}));
    story.until_held("beta");
    story.skip_what_needs_kubernetes();
    let ballast = story.data().join("ballast").display().to_string();
    let fill = format!("dd if=/dev/zero of={ballast} bs=64k status=none");
    assert!(!inside(&story, &fill), "the disk is not full");
    // The runner looks at the disk once a second, and the play is to meet the pause that comes of it.
    let asked = format!(
        "find {}/runs -name PAUSE | grep -q .",
        story.data().display()
    );
    wait_until("a pause to be asked for", LIMIT, || {
        Ok(inside(&story, &asked).then_some(()))
    })
    .unwrap();
    story.release("beta", "host-2");
    let held = story.until_phase("Paused");
    let message = held["status"]["message"].as_str().unwrap();
    for words in ["disk of", "nearly full", "MiB free", "by itself"] {
        assert!(message.contains(words), "{words:?} is not in {message}");
    }
    story.until_condition("Ready", "Paused", &["nearly full"]);
    assert_ne!(step(&held, "/beta")["phase"], "Succeeded");

    // The operator finds a sound database and a sound journal, full as the disk is.
    story.down().unwrap();
    story.up().unwrap();
    assert!(inside(&story, &format!("rm {ballast}")));
    let run = story.until_phase("Succeeded");
    assert_each_step_once(&run);
    for host in ["host-1", "host-2"] {
        assert_eq!(story.done(host), ["alpha", "beta", "gamma"], "{host}");
    }
}

/// Puts the data directory on a file system of its own, which is gone with the lab.
fn on_a_small_disk(story: &Story) {
    let data = story.data();
    let sandboxes = fs::read_link(data.join("sandboxes")).unwrap();
    let (data, sandboxes) = (data.display(), sandboxes.display());
    let make = format!(
        "mount -t tmpfs -o size=64m,mode=700 tmpfs {data} && ln -s {sandboxes} {data}/sandboxes"
    );
    assert!(inside(story, &make));
}

/// Whether a shell command among the lab's processes succeeds.
fn inside(story: &Story, command: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    let mut shell = story.lab.enter(&shell);
    shell.stdin(Stdio::null()).stderr(Stdio::null());
    shell.status().unwrap().success()
}
