//! Faults of hosts and of Ansible itself.

use std::{fs, process::Command};

use e2e::{NAMESPACE, wait_until};
use serde_json::{Value, json};

use super::story::{LIMIT, Story, assert_each_step_once, name, step};

#[test]
fn a_killed_playbook_and_new_host_keys_lose_nothing() {
    let mut story = Story::set(2);
    story.up().unwrap();
    a_host_with_another_key_is_named(&story);
    story.hold("beta", "host-2");
    story.hold("gamma", "host-1");
    story.apply_cluster(&spec(&known_hosts(&story)));
    let first = story.until_held("beta");
    assert_eq!(name(&first), "first-create-2");
    a_killed_playbook_is_waited_for_and_repeated(&story, &first);
    a_host_that_is_made_anew_is_named(&story);
    story.apply_cluster(&spec(&known_hosts(&story)));
    story.until("another run", |run| name(run) == "first-create-3");
    story.skip_what_needs_kubernetes();
    let run = story.until_phase("Succeeded");
    assert_each_step_once(&run);
    let twice = ["alpha", "beta", "alpha", "beta", "gamma"];
    assert_eq!(story.done("host-1"), twice);
    assert_eq!(story.done("host-2"), twice);
}

fn spec(known_hosts: &str) -> Value {
    json!({"ssh": {"knownHosts": known_hosts}, "operations": {"creation": {"maxRetries": 1}}})
}

fn known_hosts(story: &Story) -> String {
    fs::read_to_string(story.lab.known_hosts()).unwrap()
}

fn a_host_with_another_key_is_named(story: &Story) {
    let worker = story.lab.host("host-2").unwrap().address.to_string();
    let right = known_hosts(story);
    let key = right.lines().next().unwrap().split_once(' ').unwrap().1;
    let mut lines: Vec<_> = right
        .lines()
        .filter(|line| !line.starts_with(&worker))
        .collect();
    let other = format!("{worker} {key}");
    lines.push(&other);
    let wrong = lines.join("\n");
    story.apply_cluster(&spec(&wrong));
    let failed = story.until_phase("Failed");
    let failure = &failed["status"]["failure"];
    assert_eq!(failure["code"], "HostKeyChanged", "{failure:#}");
    assert_eq!(failure["targets"], json!(["worker-1"]), "{failure:#}");
    let words = ["worker-1: its host key changed", "spec.ssh.knownHosts"];
    story.assert_event("StepFailed", &words);
    story.until_condition("Reachable", "HostKeyChanged", &words[..1]);
    story.until_condition("Stalled", "RunFailed", &words);
    let node = story.object("clusternodes", "worker-1").unwrap();
    assert_eq!(
        node["status"]["failure"]["code"], "HostKeyChanged",
        "{node:#}"
    );
}

/// ansible-playbook dies while a module is at work on a host: nothing else starts before the module has ended.
fn a_killed_playbook_is_waited_for_and_repeated(story: &Story, run: &Value) {
    let work = story
        .data()
        .join("runs")
        .join(NAMESPACE)
        .join(name(run))
        .join("work");
    let records = fs::read_dir(work).unwrap().filter_map(|entry| {
        let text = fs::read(entry.ok()?.path().join("process.json")).ok()?;
        serde_json::from_slice::<Value>(&text).ok()?["pid"].as_i64()
    });
    let playbooks: Vec<_> = records.collect();
    assert_eq!(playbooks.len(), 1, "the plays share a process");
    story.kill_inside(playbooks[0]).unwrap();
    let waiting = story.until("the next attempt to wait", |run| {
        let task = step(run, "/beta")["activity"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        task.contains("still at work on the hosts")
    });
    story.assert_event(
        "StepFailed",
        &["cluster/beta", "killed by signal 9", "tried again"],
    );
    assert_eq!(step(&waiting, "/beta")["attempt"], 2);
    story.release("beta", "host-2");
    story.until_held("gamma");
    for host in ["host-1", "host-2"] {
        assert_eq!(story.done(host), ["alpha", "beta"], "{host}");
    }
}

/// A host gets a new disk, and with it a new key, while a play is at work.
fn a_host_that_is_made_anew_is_named(story: &Story) {
    story.lab.kill_host("host-2").unwrap();
    let disk = story.lab.dir().join("hosts/host-2");
    let key = disk.join("ssh_host_ed25519_key");
    fs::remove_file(&key).unwrap();
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&key)
        .status();
    assert!(made.unwrap().success());
    story.lab.start_host("host-2").unwrap();
    story.release("gamma", "host-1");
    let failed = story.until_phase("Failed");
    let failure = &failed["status"]["failure"];
    let message = failure["message"].as_str().unwrap();
    assert!(
        message.contains("worker-1") && message.contains("host key"),
        "{failure:#}"
    );
    story.until_condition(
        "Stalled",
        "RunFailed",
        &["worker-1", "host key", "spec.ssh.knownHosts"],
    );

    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
    let key = public
        .split_whitespace()
        .take(2)
        .collect::<Vec<_>>()
        .join(" ");
    let host = story.lab.host("host-2").unwrap();
    let old = host.known_hosts.clone().unwrap();
    let new = format!("{},{} {key}", host.address, host.name);
    fs::write(
        story.lab.known_hosts(),
        known_hosts(story).replace(&old, &new),
    )
    .unwrap();
    wait_until("the new host to be known", LIMIT, || {
        Ok((story.on("host-2", "echo here") == "here\n").then_some(()))
    })
    .unwrap();
}
