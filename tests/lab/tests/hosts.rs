//! Labs as their users meet them: real hosts, each test with a lab of its own. Root is needed.
#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lab::progress::Silent;
use lab::{Lab, LabOptions};

fn start(hosts: u8, dead: u8, refusing: u8) -> Lab {
    Lab::start(
        &LabOptions {
            hosts,
            dead,
            refusing,
            ..LabOptions::default()
        },
        &Silent,
    )
    .unwrap()
}

/// Tries to open the ssh port from inside the lab's network.
fn connect(lab: &Lab, address: Ipv4Addr) -> ExitStatus {
    let script = format!("exec 3<> /dev/tcp/{address}/22");
    let mut bash = Command::new("timeout");
    bash.args(["2", "bash", "-c", &script]);
    lab.enter_network(&bash)
        .stderr(Stdio::null())
        .status()
        .unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "still waiting: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What of this lab the machine still has: processes that name it, mounts, control groups.
fn traces(dir: &Path) -> Vec<String> {
    let dir_name = dir.file_name().unwrap().to_str().unwrap().to_owned();
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let id = process.file_name();
        if !id
            .to_string_lossy()
            .bytes()
            .all(|byte| byte.is_ascii_digit())
        {
            continue;
        }
        let own = id.to_string_lossy() == std::process::id().to_string();
        for part in ["cmdline", "mountinfo", "cgroup"] {
            let text = fs::read(process.path().join(part)).unwrap_or_default();
            if !own && String::from_utf8_lossy(&text).contains(&dir_name) {
                found.push(format!("{part} of process {}", id.to_string_lossy()));
            }
        }
    }
    if fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .contains(&dir_name)
    {
        found.push("a mount".to_owned());
    }
    found
}

fn control_groups(dir: &Path) -> Vec<PathBuf> {
    let name = format!("windlass-{}", dir.file_name().unwrap().to_str().unwrap());
    let below = fs::read_dir("/sys/fs/cgroup")
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    std::iter::once(PathBuf::from("/sys/fs/cgroup"))
        .chain(below)
        .map(|hierarchy| hierarchy.join(&name))
        .filter(|group| group.exists())
        .collect()
}

/// The namespaces that a process is in: while one of them lives, somebody is in it.
fn namespace(process: u32, kind: &str) -> PathBuf {
    fs::read_link(format!("/proc/{process}/ns/{kind}")).unwrap()
}

fn someone_in(namespace: &Path, kind: &str) -> bool {
    fs::read_dir("/proc").unwrap().flatten().any(|process| {
        fs::read_link(process.path().join("ns").join(kind)).is_ok_and(|link| link == namespace)
    })
}

#[test]
fn two_hosts_boot_and_answer_ssh_with_strict_host_keys() {
    let mut lab = start(2, 0, 0);
    for name in ["host-1", "host-2"] {
        let output = lab.ssh(name, "hostname; cat /proc/1/comm").unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            format!("{name}\nsystemd\n")
        );
    }
    // The check is real: with the other host's key in its place, ssh refuses.
    let known = fs::read_to_string(lab.known_hosts()).unwrap();
    fs::write(
        lab.known_hosts(),
        known.replace("10.77.0.11,host-1", "10.77.0.9"),
    )
    .unwrap();
    let output = lab.ssh("host-1", "true").unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("Host key verification failed"));
    lab.stop().unwrap();
}

#[test]
fn a_dead_address_times_out_and_a_refusing_one_refuses() {
    let mut lab = start(1, 1, 1);
    let address = |name: &str| lab.host(name).unwrap().address;
    assert!(connect(&lab, address("host-1")).success());
    assert_eq!(
        connect(&lab, address("host-2")).code(),
        Some(124),
        "timeout(1) had to end it"
    );
    assert_eq!(
        connect(&lab, address("host-3")).code(),
        Some(1),
        "refused at once"
    );
    assert!(lab.start_host("host-2").is_err());
    lab.stop().unwrap();
}

#[test]
fn a_killed_host_is_gone_and_comes_back_with_its_disk() {
    let mut lab = start(1, 0, 0);
    assert!(
        lab.ssh("host-1", "echo kept > /root/file; sync")
            .unwrap()
            .status
            .success()
    );
    lab.kill_host("host-1").unwrap();
    let address = lab.host("host-1").unwrap().address;
    assert!(!connect(&lab, address).success());
    lab.start_host("host-1").unwrap();
    let output = lab.ssh("host-1", "cat /root/file").unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "kept\n");
    lab.stop().unwrap();
}

#[test]
fn two_labs_live_side_by_side() {
    let (mut one, mut two) = (start(1, 0, 0), start(1, 0, 0));
    for (lab, word) in [(&one, "one"), (&two, "two")] {
        assert!(
            lab.ssh("host-1", &format!("echo {word} > /root/word"))
                .unwrap()
                .status
                .success()
        );
    }
    one.stop().unwrap();
    let output = two.ssh("host-1", "cat /root/word").unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "two\n");
    two.stop().unwrap();
}

#[test]
fn stop_leaves_no_trace() {
    let mut lab = start(1, 1, 0);
    let dir = lab.dir().to_owned();
    assert!(!traces(&dir).is_empty(), "the search finds a living lab");
    assert!(!control_groups(&dir).is_empty());
    lab.stop().unwrap();
    assert_eq!(traces(&dir), Vec::<String>::new());
    assert_eq!(control_groups(&dir), Vec::<PathBuf>::new());
    assert!(!dir.exists());
}

#[test]
fn kill_of_the_owner_takes_everything_and_the_next_lab_sweeps_the_rest() {
    let parent = tempfile::tempdir().unwrap();
    let options = LabOptions {
        hosts: 1,
        dead: 1,
        dir: Some(parent.path().to_owned()),
        ..LabOptions::default()
    };
    let mut lab = Lab::start(&options, &Silent).unwrap();
    let dir = lab.dir().to_owned();
    let kinds = ["net", "pid", "mnt"];
    let namespaces = kinds.map(|kind| (kind, namespace(lab.owner(), kind)));
    // Whoever entered the lab goes with it.
    let mut sleep = Command::new("sleep");
    sleep.arg("1000");
    let mut guest = lab.enter(&sleep).spawn().unwrap();
    until("the guest is in", || Lab::inner(&guest).is_some());

    let status = Command::new("kill")
        .args(["-KILL", &lab.owner().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
    guest.wait().unwrap();
    for (kind, namespace) in &namespaces {
        until("the namespace is empty", || !someone_in(namespace, kind));
    }
    until("processes and mounts are gone", || traces(&dir).is_empty());

    // The kernel closes the files of a killed process a moment after it is gone from sight.
    until("the lock is free", || {
        std::fs::File::open(dir.join("lock")).is_ok_and(|lock| lock.try_lock().is_ok())
    });
    // What the kernel leaves, as after the death of this process too, is the next start's to remove.
    let mut next = Lab::start(&options, &Silent).unwrap();
    assert!(!dir.exists());
    assert_eq!(control_groups(&dir), Vec::<PathBuf>::new());
    next.stop().unwrap();
    lab.stop().unwrap();
}

#[test]
fn a_guest_dies_with_its_nsenter_but_its_children_stay_until_the_lab_ends() {
    let mut lab = start(0, 0, 0);
    let mark = tempfile::tempdir().unwrap();
    let file = mark.path().join("child");
    let mut operator = Command::new("bash");
    operator
        .args(["-c", "setsid sleep 1000 & echo $! > \"$0\"; wait"])
        .arg(&file);
    let mut operator = lab.enter(&operator).spawn().unwrap();
    until("the runner is started", || {
        fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n'))
    });
    let runner = fs::read_to_string(&file).unwrap();
    let inner = Lab::inner(&operator).unwrap();
    operator.kill().unwrap();
    operator.wait().unwrap();
    until("the operator is dead", || {
        !Path::new(&format!("/proc/{inner}")).exists()
    });
    let mut alive = Command::new("kill");
    alive.args(["-0", runner.trim()]);
    assert!(
        lab.enter(&alive).status().unwrap().success(),
        "the runner outlives the operator"
    );
    let pids = namespace(lab.owner(), "pid");
    lab.stop().unwrap();
    assert!(!someone_in(&pids, "pid"));
}
