//! Modules that go on on a host when their playbook has been killed.

use std::{fs, time::Duration};

use ansible::{
    event::Kind,
    playbook::{PlaybookRun, leftovers},
};

use super::{
    environment,
    sshd::{LONG, Setup, Sshd, need_root, until},
};

const PLAYBOOK: &str = "
- hosts: all
  gather_facts: false
  tasks: [{name: Hang, shell: 'echo $$ > {{ playbook_dir }}/pid; exec sleep 600'}]
";

/// The host has processes of its own: other tests run modules on this machine. What a killed module leaves goes with it.
async fn host() -> Sshd {
    Sshd::with(Setup {
        namespaces: &["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"],
        prepare: "echo SetEnv TMPDIR=$1 >> $1/conf".to_owned(),
        ..Setup::default()
    })
    .await
}

fn playbook(sshd: &Sshd) -> PlaybookRun {
    let inventory = format!(
        "[all]\none ansible_host=127.0.0.1 ansible_port={} ansible_user=root ansible_ssh_private_key_file={}\n\
         [all:vars]\nansible_python_interpreter=/usr/bin/python3\n\
         ansible_ssh_common_args='-F /dev/null -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null'\n",
        sshd.port,
        sshd.at("user").display(),
    );
    fs::write(sshd.at("hosts"), inventory).expect("the inventory");
    fs::write(sshd.at("play.yml"), PLAYBOOK).expect("the playbook");
    PlaybookRun {
        id: "leftover#1".into(),
        directory: sshd.directory.path().to_owned(),
        playbooks: vec![sshd.at("play.yml")],
        inventory: sshd.at("hosts"),
        work: sshd.at("work"),
        home: sshd.at("home"),
        events: sshd.at("events.jsonl"),
        log: sshd.at("ansible.log"),
        // As in Windlass' ansible.cfg. Without it ssh has a terminal, and what it started ends with it.
        environment: [("ANSIBLE_PIPELINING".to_owned(), "True".to_owned())].into(),
        ..PlaybookRun::default()
    }
}

#[tokio::test]
async fn a_module_of_a_killed_playbook_is_found_named_and_waited_for() {
    need_root();
    let sshd = host().await;
    let targets = [sshd.target()];
    assert_eq!(leftovers(&targets, &sshd.options(), LONG).await, []);

    let run = PlaybookRun {
        ansible_playbook: environment::sandbox().await.ansible_playbook(),
        ..playbook(&sshd)
    };
    let mut handle = run.start().await.expect("it starts");
    let mut events = handle.events();
    while let Some(event) = events.next().await.expect("events") {
        if matches!(event.kind, Kind::HostStart { .. }) {
            break;
        }
    }
    let pid = || {
        fs::read_to_string(sshd.at("pid"))
            .ok()?
            .trim()
            .parse::<i32>()
            .ok()
    };
    until("the module runs", || pid().is_some()).await;
    handle.kill().await.expect("kill");
    handle.wait().await.expect("its end");

    let left = leftovers(&targets, &sshd.options(), Duration::ZERO).await;
    let [leftover] = left.as_slice() else {
        panic!("{left:?}");
    };
    let [module] = leftover.processes.as_slice() else {
        panic!("one module, by its first process: {left:?}");
    };
    assert_eq!(module.program, "sleep");
    let told = format!("one (sleep in process {})", module.id);
    assert_eq!(leftover.to_string(), told);

    // It ends while it is waited for.
    let options = sshd.options();
    let waiting = leftovers(&targets, &options, LONG);
    let ending = async {
        // Its number is one of the host's own.
        let inside = std::process::Command::new("nsenter")
            .args(["--pid", "--mount", "--target", &first_process(&sshd)])
            .args(["kill", &pid().expect("a number").to_string()])
            .status();
        assert!(inside.expect("nsenter").success());
    };
    let (left, ()) = tokio::join!(waiting, ending);
    assert_eq!(left, []);
}

/// The host's first process, as this machine numbers it: the only child of `unshare`.
fn first_process(sshd: &Sshd) -> String {
    let unshare = sshd.child.id();
    let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"));
    children.expect("children").trim().to_owned()
}

#[tokio::test]
async fn a_host_that_does_not_say_is_told() {
    let sshd = Sshd::start().await;
    let mut options = sshd.options();
    options.access.key = Some(sshd.at("stranger"));
    let left = leftovers(&[sshd.target()], &options, Duration::ZERO).await;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].processes, []);
    assert_eq!(left[0].to_string(), "one");
}
