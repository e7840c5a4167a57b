//! Gates and controls: every word that a person has for a run, on real hosts.

use e2e::wait_until;
use serde_json::json;

use super::story::{LIMIT, Story, assert_each_step_once, name, step};

#[test]
fn people_steer_a_run_past_every_obstacle() {
    let mut story = Story::set(3);
    story.also("gamma", WRITES);
    for host in ["host-1", "host-2", "host-3"] {
        story.on(
            host,
            &format!("mkdir -p /etc/kubernetes; echo old > {CONFIGURATION}"),
        );
    }
    story.up().unwrap();
    cancelled_in_the_middle(&story);
    finished_without_a_host_and_without_the_api(&mut story);
}

/// What kubespray writes anew in each run, by a task as its own.
const CONFIGURATION: &str = "/etc/kubernetes/kubeadm-config.yaml";
const WRITES: &str = "    - name: Write the configuration\n      ansible.builtin.copy: {content: new, dest: \
                      /etc/kubernetes/kubeadm-config.yaml}\n";
/// A disk that has failed, as Linux leaves it, and one that is well again.
const BROKEN: &str =
    "mount --bind /etc/kubernetes /etc/kubernetes && mount -o remount,bind,ro /etc/kubernetes";
const MENDED: &str = "umount /etc/kubernetes";
/// What fails first names the disk, and what fails at last no more than what comes of that.
const FOLLOWS: &str = "test -e /root/tried || { touch /root/tried; exec touch /etc/kubernetes/pki; }
echo 'The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?' >&2
exit 1";

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

/// A disk takes no writes. First a command that needs it fails, and by another one later; then Ansible itself cannot write.
fn what_led_to_it_is_told_before_what_came_of_it(story: &Story) {
    let explained = || {
        let answer = story.windlass(&["explain", "failure"]).output().unwrap();
        assert!(answer.status.success(), "{answer:?}");
        String::from_utf8(answer.stdout).unwrap()
    };
    in_order(
        &explained(),
        &[
            "failed in step cluster/gamma, at ",
            "what led to it",
            "code: ReadOnlyFileSystem",
            "where: Fail where asked on master-1, ",
            "Read-only file system",
            "what to do: Mount the file system writable",
            "what came of that",
            "code: ApiServerDown",
            "where: master-1",
            "the log where it failed",
            "TASK [Fail where asked]",
            "failed: [master-1]",
            "the whole log: windlass -n first-cluster logs first-create-2 --step cluster/gamma",
            "when it is mended: windlass -n first-cluster retry first-create-2",
        ],
    );

    story.on("host-1", "rm /root/fail-gamma");
    let attempts = |run: &serde_json::Value| step(run, "/gamma")["attempt"].as_u64();
    let before = attempts(&story.run().unwrap());
    story
        .says(&["retry"], "is asked to try the step again")
        .unwrap();
    story.until("the second attempt to fail", |run| {
        run["status"]["phase"] == "Failed" && attempts(run) > before
    });
    let said = explained();
    in_order(
        &said,
        &[
            "failed in step cluster/gamma, attempt 2, at ",
            "code: ReadOnlyFileSystem",
            "where: master-1",
            "Write the configuration",
            "mounted to be read only: /etc/kubernetes",
            "what to do: Mount the file system writable",
            "TASK [Write the configuration]",
            "failed: [master-1] Destination /etc/kubernetes not writable",
        ],
    );
    assert!(!said.contains("what led to it"), "{said}");
}

/// Whether a text has all of these, one after the other.
fn in_order(text: &str, words: &[&str]) {
    let mut rest = text;
    for word in words {
        let Some((_, after)) = rest.split_once(word) else {
            panic!("{word:?} is not in its place in {text}");
        };
        rest = after;
    }
}

/// A host is lost and left out, a step fails and is tried again, and ends while there is no API.
fn finished_without_a_host_and_without_the_api(story: &mut Story) {
    story.hold("alpha", "host-2");
    story.on("host-1", BROKEN);
    story.fail("gamma", "host-1", FOLLOWS);
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
    what_led_to_it_is_told_before_what_came_of_it(story);
    story.on("host-1", MENDED);
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
    what_the_toolbox_would_do_is_only_shown(story);
}

fn what_the_toolbox_would_do_is_only_shown(story: &Story) {
    for (verb, words) in [
        ("token", "token/make"),
        ("join-command", "token/make"),
        ("certificates", "certificates/look"),
    ] {
        let answer = story.windlass(&["cluster", verb, "--dry-run"]).output();
        let answer = answer.unwrap();
        let said = String::from_utf8_lossy(&answer.stdout);
        assert!(
            answer.status.success() && said.contains(words),
            "{answer:?}"
        );
    }
    assert_eq!(name(&story.run().unwrap()), "first-create-2");
    let cluster = story.object("clusters", "first").unwrap();
    let asked = &cluster["metadata"]["annotations"]["kubespray.k8s.io/toolbox"];
    assert!(asked.is_null(), "{cluster:#}");
}
