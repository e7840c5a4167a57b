//! Gates and controls: every word that a person has for a run, on real hosts.

use e2e::wait_until;
use serde_json::json;

use super::story::{LIMIT, Story, assert_each_step_once, name, step};

#[test]
fn people_steer_a_run_past_every_obstacle() {
    let mut story = Story::set(3);
    story.up().unwrap();
    cancelled_in_the_middle(&story);
    finished_without_a_host_and_without_the_api(&mut story);
}

/// Approved, paused by a gate, bounded, paused, and at last cancelled in the middle of a play.
fn cancelled_in_the_middle(story: &Story) {
    story.lab.kill_host("host-3").unwrap();
    story.hold("beta", "host-2");
    story.apply_cluster(&json!({"operations": {"creation": {
        "approval": "Manual", "maxRetries": 0, "thresholds": {"unreachable": 0, "onBreach": "Pause"},
    }}}));
    story.until_phase("Waiting");
    story.until_condition(
        "Ready",
        "WaitingForApproval",
        &["on 3 hosts", "windlass -n first-cluster approve"],
    );
    story.says(&["approve"], "is told of the approval").unwrap();

    let paused = story.until_phase("Paused");
    let message = paused["status"]["message"].as_str().unwrap();
    for words in ["1 of 3 do not answer", "worker-2", "retry or skip the step"] {
        assert!(message.contains(words), "{words:?} is not in {message}");
    }
    story.assert_event("RunPaused", &["worker-2"]);
    story.lab.start_host("host-3").unwrap();
    story
        .says(
            &["resume", "--until", "cluster/alpha"],
            "goes on and pauses after that step",
        )
        .unwrap();

    let paused = story.until("the run to pause after alpha", |run| {
        run["status"]["phase"] == "Paused" && step(run, "/alpha")["phase"] == "Succeeded"
    });
    assert_ne!(step(&paused, "/beta")["phase"], "Succeeded");
    story.says(&["resume"], "goes on").unwrap();
    story.until_held("beta");
    story
        .says(&["cancel"], "ends at the next task boundary")
        .unwrap();
    story.release("beta", "host-2");
    let run = story.until_phase("Cancelled");
    let message = run["status"]["message"].as_str().unwrap();
    for words in ["cancelled after", "cluster/beta", "cluster/gamma"] {
        assert!(message.contains(words), "{words:?} is not in {message}");
    }
    story.until_condition(
        "Stalled",
        "RunCancelled",
        &["cluster/beta", "windlass.dev/start-again"],
    );
    for host in ["host-1", "host-2", "host-3"] {
        assert_eq!(
            story.done(host),
            ["alpha"],
            "{host}: the play was not ended"
        );
    }
}

/// A host is lost and left out, a step fails and is tried again, and ends while there is no API.
fn finished_without_a_host_and_without_the_api(story: &mut Story) {
    story.hold("alpha", "host-2");
    story.on("host-1", "touch /root/fail-gamma");
    story.apply_cluster(&json!({"operations": {"creation": {
        "maxRetries": 0, "thresholds": {"unreachable": 0, "onBreach": "Exclude"},
    }}}));
    let first = story.until_held("alpha");
    story.skip_what_needs_kubernetes();
    // It ends its own connection as well.
    story.on(
        "host-3",
        "systemctl stop ssh.socket ssh.service; pkill sshd",
    );
    story.release("alpha", "host-2");

    let failed = story.until_phase("Failed");
    assert_eq!(name(&failed), name(&first));
    assert_eq!(
        failed["status"]["excluded"][0]["target"], "worker-2",
        "{failed:#}"
    );
    let failure = &failed["status"]["failure"];
    assert_eq!(failure["targets"], json!(["master-1"]), "{failure:#}");
    story.until_condition("Stalled", "RunFailed", &["master-1: Fail where asked"]);
    story.on("host-1", "rm /root/fail-gamma");
    story.hold("gamma", "host-2");
    story
        .says(&["retry"], "is asked to try the step again")
        .unwrap();
    story.until_held("gamma");

    // Nobody answers; the runner goes on.
    story.down().unwrap();
    let run = name(&first);
    let before = story.journal(&run).len();
    story.release("gamma", "host-2");
    wait_until("the run to end without the API", LIMIT, || {
        let events = story.journal(&run);
        Ok(events
            .iter()
            .any(|(event, _)| event == "RunSucceeded")
            .then_some(()))
    })
    .unwrap();
    let alone = story.journal(&run).split_off(before);
    let gamma = ("StepSucceeded".to_owned(), "cluster/gamma".to_owned());
    assert!(alone.contains(&gamma), "{alone:#?}");
    story.up().unwrap();
    let run = story.until_phase("Succeeded");
    let mirrored = run["status"]["history"].as_array().unwrap().len();
    assert_eq!(mirrored, story.journal(&name(&run)).len());
    assert_each_step_once(&run);
    for host in ["host-1", "host-2"] {
        assert_eq!(
            story.done(host),
            ["alpha", "alpha", "beta", "gamma"],
            "{host}"
        );
    }
}
