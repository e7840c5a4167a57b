//! A disk that fills in the middle of a run, on the machine of the runner and on a host; and a lock that another program holds there.

use std::{
    fs,
    process::{Command, Stdio},
};

use e2e::wait_until;
use serde_json::{Value, json};

use super::story::{LIMIT, Story, assert_each_step_once, step};

#[test]
fn a_full_disk_holds_the_run_until_there_is_room() {
    let mut story = Story::set(2);
    on_a_small_disk(&story);
    story.up().unwrap();
    what_holds_the_lock_is_waited_for_where_that_is_allowed(&story);
    caches_fill_a_disk_of_a_host(&story);
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
    let freed = [
        "cluster/gamma",
        "ClearCaches: worker-1: 1",
        "MiB freed on /var/cache/apt",
    ];
    story.assert_event("RemedyApplied", &freed);
    assert!(helped(&run, "/gamma"), "{run:#}");
    for host in ["host-1", "host-2"] {
        assert_eq!(story.done(host), ["alpha", "beta", "gamma"], "{host}");
    }
}

/// Somebody else installs packages on a host: without a remedy the run fails, with it the run waits and goes on.
fn what_holds_the_lock_is_waited_for_where_that_is_allowed(story: &Story) {
    let holder = "import fcntl, os, time\nheld = open('/var/lib/dpkg/lock-frontend', 'w')\nfcntl.lockf(held, fcntl.LOCK_EX)\n\
                  open('/root/taken', 'w')\nwhile not os.path.exists('/root/let-go'): time.sleep(0.1)";
    story.on(
        "host-2",
        &format!(
            "setsid python3 -c \"{holder}\" < /dev/null > /dev/null 2>&1 &\nwhile ! test -e /root/taken; do sleep 0.1; done"
        ),
    );
    let install = "apt-get -o DPkg::Lock::Timeout=0 -y -f install";
    story.fail("alpha", "host-2", install);
    story.apply_cluster(&json!({"remedies": [], "operations": {"creation": {"maxRetries": 0}}}));
    let failed = story.until_phase("Failed");
    let failure = &failed["status"]["failure"];
    assert_eq!(failure["code"], "PackageManagerLocked", "{failure:#}");
    assert_eq!(failure["targets"], json!(["worker-1"]), "{failure:#}");
    assert!(!helped(&failed, "/alpha"), "{failed:#}");

    story.hold("beta", "host-2");
    story.apply_cluster(&json!({
        "remedies": ["WaitForPackageLock", "ClearCaches"], "operations": {"creation": {"maxRetries": 2}},
    }));
    story.until("the lock to be waited for", |run| {
        let activity = step(run, "/alpha")["activity"].clone();
        activity == "WaitForPackageLock on worker-1"
    });
    story.on("host-2", "touch /root/let-go");
    let run = story.until_held("beta");
    assert!(helped(&run, "/alpha"), "{run:#}");
    story.assert_event(
        "RemedyApplied",
        &["cluster/alpha: WaitForPackageLock: worker-1: "],
    );
}

/// What fills it may go, and only that does.
fn caches_fill_a_disk_of_a_host(story: &Story) {
    story.on(
        "host-2",
        "mount -t tmpfs -o size=16m tmpfs /var/cache/apt && mkdir -p /var/cache/apt/archives/partial && \
         head -c 15728640 /dev/zero > /var/cache/apt/archives/a_1_all.deb && touch /root/kept",
    );
    let file = "/var/cache/apt/new";
    let fill =
        format!("dd if=/dev/zero of={file} bs=1M count=4\ncode=$?\nrm -f {file}\nexit $code");
    story.fail("gamma", "host-2", &fill);
}

/// Whether a step failed once, and a remedy let it go on.
fn helped(run: &Value, id: &str) -> bool {
    let history = run["status"]["history"].as_array().unwrap();
    let failed = history.iter().filter(|record| {
        let of_step = record["step"]
            .as_str()
            .is_some_and(|step| step.ends_with(id));
        of_step && record["event"] == "StepFailed"
    });
    let failed: Vec<_> = failed.collect();
    failed.len() == 1 && failed[0]["remedies"][0]["helped"] == true
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
