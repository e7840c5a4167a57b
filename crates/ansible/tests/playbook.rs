//! Real ansible-playbook processes on this machine: how they end, and what is told of them.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "support/environment.rs"]
mod environment;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use ansible::{
    event::{Kind, Tally},
    inventory::{SecretInventory, SecretValue},
    mask::{MASK, Mask},
    playbook::{Adopted, End, Handle, Leave, Outcome, PlaybookRun, Verdict, failure, judge},
};
use api::run::Failure;
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill, killpg},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};
use tokio::time::timeout;

/// No playbook here takes longer on a machine that does nothing else.
const LONG: Duration = Duration::from_mins(2);

struct Place {
    directory: tempfile::TempDir,
    run: PlaybookRun,
}

impl Place {
    async fn new(playbook: &str) -> Self {
        let inventory = "[all]\none\ntwo\n[all:vars]\nansible_connection=local\n";
        Self::with(inventory, playbook).await
    }

    async fn with(inventory: &str, playbook: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        fs::write(at("hosts"), inventory).expect("the inventory");
        fs::write(at("play.yml"), playbook).expect("the playbook");
        fs::write(at("vars.json"), r#"{"flag": true, "text": "a b"}"#).expect("the variables");
        let run = PlaybookRun {
            id: "test#1".into(),
            ansible_playbook: environment::sandbox().await.ansible_playbook(),
            directory: directory.path().to_owned(),
            playbooks: vec![at("play.yml")],
            inventory: at("hosts"),
            vars: vec![at("vars.json")],
            work: at("work"),
            home: at("home"),
            events: at("events.jsonl"),
            log: at("log"),
            environment: [
                ("ANSIBLE_PYTHON_INTERPRETER", "/usr/bin/python3".to_owned()),
                // What a killed module leaves goes with the directory.
                ("TMPDIR", directory.path().display().to_string()),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
            ..PlaybookRun::default()
        };
        Self { directory, run }
    }

    async fn start(&self) -> Handle {
        self.run.start().await.expect("it starts")
    }

    async fn outcome(&self) -> Outcome {
        end(&mut self.start().await).await
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Place {
    /// A test that fails leaves no process.
    fn drop(&mut self) {
        let Ok(record) = fs::read(self.run.work.join("process.json")) else {
            return;
        };
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap_or_default();
        let pid = record["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid
            && fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
                contains(&environ, self.run.work.as_os_str().as_encoded_bytes())
            })
        {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

async fn end(handle: &mut Handle) -> Outcome {
    timeout(LONG, handle.wait())
        .await
        .expect("it ends")
        .expect("its events are readable")
}

fn verdict(outcome: &Outcome) -> Verdict {
    judge(["one", "two"], outcome)
}

/// Follows until an event is seen.
async fn until(handle: &mut Handle, wanted: impl Fn(&Kind) -> bool) {
    let mut events = handle.events();
    let found = async {
        while let Some(event) = events.next().await.expect("events") {
            if wanted(&event.kind) {
                return;
            }
        }
        panic!("the playbook ended before");
    };
    timeout(LONG, found).await.expect("the event comes");
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The processes of a run, by their environment.
fn at_work(run: &PlaybookRun) -> Vec<i32> {
    let work = run.work.as_os_str().as_encoded_bytes();
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| contains(&environ, work))
        })
        .collect()
}

fn is_gone(pid: i32) -> bool {
    killpg(Pid::from_raw(pid), None) == Err(Errno::ESRCH)
}

/// Leave for the next seconds, by the clock that goes on while the machine is suspended.
fn seconds(seconds: u64) -> Duration {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("a clock");
    Duration::from(now) + Duration::from_secs(seconds)
}

const TWO_TASKS: &str = "
- name: First
  hosts: all
  gather_facts: false
  tasks:
    - {name: Begin, command: 'true'}
    - name: Middle
      command: sleep 0.5
    - {name: End, copy: {content: '{{ text }}', dest: '{{ playbook_dir }}/done-{{ inventory_hostname }}'}}
";

/// Prints what it knows in every way that Ansible has, and fails with it.
const INDISCREET: &str = r#"
- name: Play of {{ token }}
  hosts: all
  gather_facts: false
  tasks:
    - name: Task of {{ token }}
      ansible.builtin.debug: {msg: ["{{ token }}", "{{ token | b64encode }}", "{{ nested }}"]}
    - name: Write down
      ansible.builtin.copy:
        content: "{{ [token, nested.list.0.word, pin] | to_json }}"
        dest: "{{ playbook_dir }}/{{ inventory_hostname }}.seen"
        mode: "0600"
    - name: Loop
      ansible.builtin.debug: {msg: "{{ item }}"}
      loop: ["{{ token }}"]
    - name: Fail
      ansible.builtin.command: {argv: [sh, -c, 'echo "out $0"; echo "err $0" >&2; exit 3', "{{ token }}"]}
"#;

#[tokio::test]
async fn what_is_secret_arrives_as_it_is_and_is_told_nowhere() {
    const TOKEN: &str = "Xq7-{{ 6 * 7 }}-\"'\\-Vw9";
    let mut place = Place::new(INDISCREET).await;
    let secret = |text: &str| SecretValue::Secret(text.into());
    let of_host = |pin: &str| BTreeMap::from([("pin".to_owned(), secret(pin))]);
    let word = BTreeMap::from([("word".to_owned(), secret("Kp3Zt8"))]);
    let nested = BTreeMap::from([
        ("plain".to_owned(), SecretValue::Plain("{{ 6 * 7 }}".into())),
        (
            "list".to_owned(),
            SecretValue::List(vec![SecretValue::Map(word)]),
        ),
    ]);
    let secrets = SecretInventory {
        everywhere: BTreeMap::from([
            ("token".to_owned(), secret(TOKEN)),
            ("nested".to_owned(), SecretValue::Map(nested)),
        ]),
        hosts: BTreeMap::from([
            ("one".to_owned(), of_host("Rb5Ny1")),
            ("two".to_owned(), of_host("Hd6Gs4")),
        ]),
    };
    let memory = tempfile::tempdir().expect("a directory");
    let files = secrets.write(memory.path()).expect("the secrets");
    let mask = memory.path().join("mask.json");
    let texts = secrets.texts();
    Mask::of(texts.iter().map(String::as_str))
        .save(&mask)
        .expect("the mask");
    place.run.vars.extend(files.vars);
    place.run.host_secrets = files.hosts;
    place.run.mask = Some(mask.clone());
    place.run.temporary = Some(memory.path().to_owned());

    let outcome = place.outcome().await;
    let Verdict::Failed { .. } = verdict(&outcome) else {
        panic!("{outcome:?}");
    };
    for (host, pin) in [("one", "Rb5Ny1"), ("two", "Hd6Gs4")] {
        let seen = fs::read(place.at(&format!("{host}.seen"))).expect("what was seen");
        let seen: serde_json::Value = serde_json::from_slice(&seen).expect("JSON");
        assert_eq!(seen, serde_json::json!([TOKEN, "Kp3Zt8", pin]));
    }
    let told = |name: &str| fs::read_to_string(place.at(name)).expect("what was told");
    let (events, log) = (told("events.jsonl"), told("log"));
    assert!(events.contains(MASK), "{events}");
    assert!(log.contains(MASK), "{log}");
    assert!(
        log.contains("'plain': '42'") || log.contains("\"plain\": \"42\""),
        "{log}"
    );
    for told in [events, log, format!("{outcome:?}")] {
        // Of the token the parts that no escape changes, and the base 64 of its begin.
        for secret in ["Xq7-", "-Vw9", "Kp3Zt8", "Rb5Ny1", "Hd6Gs4", "WHE3LXt7"] {
            assert!(!told.contains(secret), "{secret}: {told}");
        }
    }

    // Without what is to be masked nothing is done: Ansible would only warn.
    fs::remove_file(mask).expect("the mask");
    fs::remove_file(place.at("one.seen")).expect("what was seen");
    place.run.id = "test#2".into();
    place.run.work = place.at("work-2");
    let outcome = place.outcome().await;
    assert!(outcome.log_tail.contains("to be masked"), "{outcome:?}");
    assert!(!place.at("one.seen").exists());
}

#[tokio::test]
async fn tells_of_every_task_on_every_host() {
    let place = Place::new(TWO_TASKS).await;
    let outcome = place.outcome().await;
    assert_eq!(outcome.end, End::Exit(0), "{}", outcome.log_tail);
    assert_eq!(verdict(&outcome), Verdict::Succeeded);
    let tally = &outcome.tally;
    assert_eq!(tally.tasks_started(), 3);
    assert_eq!(tally.results().changed, 6);
    assert_eq!(tally.hosts["one"].changed, 3);
    assert_eq!(tally.lost, 0);
    assert_eq!(
        fs::read_to_string(place.at("done-two")).expect("the variable"),
        "a b"
    );
    // A host that took no part is told, although the exit code is 0.
    let missing = judge(["one", "two", "three"], &outcome);
    assert_eq!(
        missing,
        Verdict::Missing {
            hosts: ["three".to_owned()].into()
        }
    );
}

#[tokio::test]
async fn a_play_for_nobody_is_no_success() {
    let mut place = Place::new("- {hosts: nobody, tasks: [{command: 'true'}]}\n").await;
    place.run.limit = vec!["one".into()];
    let outcome = place.outcome().await;
    assert_eq!(outcome.end, End::Exit(0));
    assert!(matches!(judge(["one"], &outcome), Verdict::Missing { .. }));
}

#[tokio::test]
async fn a_limit_leaves_the_others_alone() {
    let mut place = Place::new(TWO_TASKS).await;
    place.run.limit = vec!["two".into()];
    let outcome = place.outcome().await;
    assert_eq!(judge(["two"], &outcome), Verdict::Succeeded);
    assert!(!place.at("done-one").exists());
}

#[tokio::test]
async fn a_failure_names_host_task_and_words() {
    let playbook = "
- hosts: all
  gather_facts: false
  tasks:
    - {name: Ignored, command: 'false', ignore_errors: true}
    - name: Mended
      block: [{name: Break, command: 'false'}]
      rescue: [{name: Mend, command: 'true'}]
    - name: Write
      shell: \"echo 'cp: No space left on device' >&2; exit 3\"
      when: inventory_hostname == 'two'
";
    let outcome = Place::new(playbook).await.outcome().await;
    let verdict = verdict(&outcome);
    let Verdict::Failed { failures, .. } = &verdict else {
        panic!("{verdict:?}");
    };
    let told = failure(&verdict).expect("a failure");
    assert_eq!(told.code, "DiskFull");
    assert_eq!(
        told.targets
            .iter()
            .map(api::Target::as_str)
            .collect::<Vec<_>>(),
        ["two"]
    );
    let last = outcome.tally.failures.last().expect("a failure");
    assert_eq!(
        (last.host.as_str(), last.task.as_str(), last.why.rc),
        ("two", "Write", Some(3))
    );
    assert!(last.message.contains("No space left"), "{last:?}");
    assert!(
        failures.iter().all(|failure| failure.host == "two"),
        "{failures:?}"
    );
    assert!(
        told.message.contains("No space left"),
        "a failure that was mended is told: {told:?}"
    );
}

#[tokio::test]
async fn a_host_that_is_not_reached_is_told_apart() {
    let inventory = "[all]\none ansible_connection=local\n\
        two ansible_host=127.0.0.1 ansible_port=1 ansible_ssh_common_args='-F /dev/null'\n";
    let outcome = Place::with(inventory, TWO_TASKS).await.outcome().await;
    let verdict = verdict(&outcome);
    let Verdict::Unreachable { unreachable } = &verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(unreachable.keys().collect::<Vec<_>>(), ["two"]);
    let told = failure(&verdict).expect("a failure");
    assert_eq!(told.code, "HostRefused");
    assert!(
        told.message.contains("Connection refused"),
        "{}",
        told.message
    );
}

#[tokio::test]
async fn what_is_hidden_stays_hidden() {
    let playbook = "
- hosts: all
  gather_facts: false
  tasks:
    - name: Token
      shell: echo sesame; echo sesame >&2; exit 1
      no_log: true
      ignore_errors: true
    - name: Tokens
      command: echo {{ item }}
      loop: [sesame-one, sesame-two]
      no_log: true
    - {name: Plain, command: 'echo {{ item }}', loop: [left, right]}
    - {name: Command, command: 'sh -c \"exit 7\" open-sesame', ignore_errors: true}
";
    let place = Place::new(playbook).await;
    let outcome = place.outcome().await;
    assert_eq!(
        verdict(&outcome),
        Verdict::Succeeded,
        "{}",
        outcome.log_tail
    );
    let events = fs::read(&place.run.events).expect("events");
    assert!(
        !contains(&events, b"sesame"),
        "{}",
        String::from_utf8_lossy(&events)
    );
    assert!(contains(&events, br#""item":"right""#));
    assert_eq!(
        outcome
            .tally
            .tasks
            .iter()
            .map(|task| task.items)
            .collect::<Vec<_>>(),
        [0, 4, 4, 0]
    );
}

/// What the release, the Cluster and a Secret would set.
const VARIABLES: &str = "
- hosts: all
  gather_facts: false
  vars:
    cni: flanel
    members: [a, b]
    conf: {mode: x}
    top: '{{ middle }}-x'
    middle: '{{ bottom }}'
    db_password: sesame-1
    url: 'http://u:{{ db_password }}@h'
    looked_up: \"{{ lookup('pipe', 'echo sesame-2') }}\"
    file: '{{ pin }}'
  tasks:
";

/// What the failures of tasks, each on a host of its own, are told as, and all events. The tasks of a case are one block.
async fn told_of(cases: &[&str]) -> (Vec<Failure>, String) {
    let mut hosts = "[all]\none\ntwo\n".to_owned();
    let mut playbook = VARIABLES.to_owned();
    for (number, tasks) in cases.iter().enumerate() {
        hosts.push_str(&format!("case-{number}\n"));
        playbook.push_str(&format!(
            "    - {{when: inventory_hostname == 'case-{number}', block: [{tasks}]}}\n"
        ));
    }
    hosts.push_str("[all:vars]\nansible_connection=local\n");
    let mut place = Place::with(&hosts, &playbook).await;
    let names = place.at("names.json");
    fs::write(&names, r#"["pin"]"#).expect("the names");
    fs::write(place.at("vars.json"), r#"{"pin": 7}"#).expect("the variables");
    fs::write(place.at("filled.j2"), "{{ nowhere | basename }}").expect("the template");
    place.run.secret_names = Some(names);
    let outcome = place.outcome().await;
    let events = fs::read_to_string(&place.run.events).expect("events");
    let Verdict::Failed { failures, .. } = verdict(&outcome) else {
        panic!("{outcome:?}");
    };
    let told = (0..cases.len()).map(|number| {
        let host = format!("case-{number}");
        let of_host = failures.iter().find(|failure| failure.host == host);
        let only = Verdict::Failed {
            failures: vec![of_host.expect("it fails").clone()],
            unreachable: BTreeMap::new(),
        };
        failure(&only).expect("a failure")
    });
    (told.collect(), events)
}

/// The message without the host and the line.
fn said(told: &Failure) -> &str {
    let (_, message) = told.message.split_once(": ").expect("the host");
    let (message, place) = message.rsplit_once(" (").expect("the place");
    assert!(place.starts_with("play.yml:"), "{place}");
    message
}

#[tokio::test]
async fn what_the_playbook_refuses_is_told_by_name_and_value() {
    let cases = [
        (
            "{name: One, assert: {that: \"cni in ['calico', 'flannel']\", msg: The selected choice is not supported}}",
            "One: cni is \"flanel\"; the playbook wants cni in ['calico', 'flannel']: The selected choice is not supported",
            "Correct cni in spec.nodes.all.deploy.extraVars",
        ),
        (
            "{name: Two, assert: {that: [\"conf.mode == 'x'\", \"members | length > 2 or conf.mode == 'y'\"]}}",
            "Two: members is [\"a\", \"b\"], conf.mode is \"x\"; the playbook wants members | length > 2 or conf.mode == 'y'",
            "Correct conf.mode, members in",
        ),
        (
            "{name: None, assert: {that: 1 == 2}}",
            "None: the playbook wants 1 == 2",
            "The playbook refuses what was asked for",
        ),
        (
            "{name: Filled, assert: {that: '{{ members | length > 3 }}'}}",
            "Filled: members is [\"a\", \"b\"]; the playbook wants members | length > 3",
            "Correct members in",
        ),
        (
            "{name: Hosts, assert: {that: \"group_names | length > 5 and foo is defined\"}}",
            "Hosts: group_names is [\"ungrouped\"], foo is not set; the playbook wants group_names | length > 5 and foo is defined",
            "correct the ClusterNodes and their roles",
        ),
        (
            "{name: Loop, assert: {that: item == cni}, loop: [flanel, calico]}",
            "Loop: item is \"calico\", cni is \"flanel\"; the playbook wants item == cni",
            "Correct cni, item in",
        ),
    ];
    let (told, _) = told_of(&cases.map(|(tasks, ..)| tasks)).await;
    for ((_, message, remedy), told) in cases.iter().zip(told) {
        assert_eq!(told.code, "AssertionFailed", "{told:?}");
        assert_eq!(said(&told), *message);
        let given = told.remedy.expect("a remedy");
        assert!(given.contains(remedy), "{given}");
    }
}

#[tokio::test]
async fn an_undefined_variable_is_told_by_name() {
    let nowhere = "nowhere is undefined";
    let cases = [
        ("{name: A template, command: 'echo {{ nowhere }}'}", nowhere),
        (
            "{name: A chain, command: 'echo {{ top }}'}",
            "bottom is undefined: top is made of middle, middle of bottom",
        ),
        (
            "{name: A key, command: 'echo {{ conf.nope }}'}",
            "conf.nope is undefined",
        ),
        (
            "{name: Another host, command: \"echo {{ hostvars['two'].nope }}\"}",
            "hostvars.two.nope is undefined",
        ),
        (
            "{name: A condition, command: 'true', when: nowhere == 3}",
            nowhere,
        ),
        (
            "{name: A loop, command: 'true', loop: '{{ nowhere }}'}",
            nowhere,
        ),
        (
            "{name: An assertion, assert: {that: nowhere == 3}}",
            nowhere,
        ),
        // Ansible says that it expected a text, and names nothing.
        (
            "{name: Nameless, command: \"echo {{ spare | default('x') }} {{ nowhere | basename }}\"}",
            nowhere,
        ),
        (
            "{name: A file, template: {src: filled.j2, dest: /dev/null}}",
            nowhere,
        ),
        (
            "{name: Any host, command: 'echo {{ hostvars[inventory_hostname].nope }}'}",
            "'ansible.vars.hostvars.HostVarsVars object' has no attribute 'nope'",
        ),
    ];
    let (told, _) = told_of(&cases.map(|(tasks, _)| tasks)).await;
    for ((_, message), told) in cases.iter().zip(told) {
        assert_eq!(told.code, "UndefinedVariable", "{told:?}");
        let (_, words) = said(&told).split_once(": ").expect("the task");
        assert_eq!(words, *message);
        let remedy = told.remedy.expect("a remedy");
        assert!(
            remedy.contains("spec.nodes.all.deploy.extraVars"),
            "{remedy}"
        );
    }
}

#[tokio::test]
async fn no_failure_tells_the_value_of_what_may_be_secret() {
    let asks = "{name: Say, command: echo sesame-3, no_log: true, register: said}, \
                {name: Keep, set_fact: {kept: '{{ said.stdout }}'}}, \
                {name: Ask, assert: {that: \"false and (url == looked_up or file == db_password or said.stdout == kept)\"}}";
    let quiet = "{name: Quiet, assert: {that: cni == 'calico'}, no_log: true}";
    let (told, events) = told_of(&[asks, quiet]).await;
    let told = <[Failure; 2]>::try_from(told).expect("two failures");
    let names = "url is hidden, looked_up is hidden, file is hidden, db_password is hidden, said.stdout is hidden, kept is hidden";
    assert!(said(&told[0]).contains(names), "{told:?}");
    assert!(told[1].message.contains("no_log"), "{told:?}");
    for secret in ["sesame-", "\"7\"", "flanel", "calico"] {
        assert!(!events.contains(secret), "{secret}: {events}");
    }
}

#[tokio::test]
async fn retries_are_counted() {
    let playbook = "
- hosts: all
  gather_facts: false
  tasks:
    - {name: Again, command: 'false', retries: 2, delay: 0, register: r, until: r.rc == 0}
";
    let outcome = Place::new(playbook).await.outcome().await;
    assert_eq!(outcome.tally.tasks[0].retries, 4);
    assert!(matches!(verdict(&outcome), Verdict::Failed { .. }));
}

#[tokio::test]
async fn stops_between_two_tasks_and_leaves_nothing() {
    let place = Place::new(TWO_TASKS).await;
    let mut handle = place.start().await;
    until(
        &mut handle,
        |kind| matches!(kind, Kind::TaskStart { name, .. } if name == "Middle"),
    )
    .await;
    handle.stop().expect("stop");
    let outcome = end(&mut handle).await;
    assert_eq!(outcome.end, End::Exit(99), "{}", outcome.log_tail);
    let expected = Verdict::Interrupted {
        remote_work: false,
        timed_out: false,
    };
    assert_eq!(verdict(&outcome), expected);
    // The task that ran came to its end on both hosts, the next did not begin.
    assert_eq!(outcome.tally.results().changed, 4);
    assert!(!place.at("done-one").exists());
    assert!(is_gone(handle.pid()));
}

#[tokio::test]
async fn waits_between_two_tasks_and_goes_on() {
    let place = Place::new(TWO_TASKS).await;
    let mut handle = place.start().await;
    handle.pause().expect("pause");
    until(&mut handle, |kind| matches!(kind, Kind::Paused { .. })).await;
    assert!(!place.at("done-one").exists());
    handle.resume().expect("resume");
    let outcome = end(&mut handle).await;
    assert_eq!(
        verdict(&outcome),
        Verdict::Succeeded,
        "{}",
        outcome.log_tail
    );
    assert!(place.at("done-one").exists());
}

#[tokio::test]
async fn a_paused_playbook_can_be_stopped() {
    let place = Place::new(TWO_TASKS).await;
    let mut handle = place.start().await;
    handle.pause().expect("pause");
    until(&mut handle, |kind| matches!(kind, Kind::Paused { .. })).await;
    handle.stop().expect("stop");
    let outcome = end(&mut handle).await;
    assert!(matches!(
        verdict(&outcome),
        Verdict::Interrupted {
            remote_work: false,
            ..
        }
    ));
}

const HANGS: &str = "
- hosts: all
  gather_facts: false
  tasks: [{name: Hang, command: sleep 600}]
";

fn hangs(kind: &Kind) -> bool {
    matches!(kind, Kind::HostStart { .. })
}

#[tokio::test]
async fn a_process_that_somebody_killed_has_crashed() {
    let place = Place::new(HANGS).await;
    let mut handle = place.start().await;
    until(&mut handle, hangs).await;
    let module = async {
        let sleeps = |pid: i32| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sleep\x00600\0")
        };
        while !at_work(&place.run).into_iter().any(sleeps) {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, module).await.expect("the module runs");
    kill(Pid::from_raw(handle.pid()), Signal::SIGKILL).expect("kill");
    let waited = timeout(Duration::from_secs(5), handle.wait()).await;
    // Its workers and their modules go on until somebody comes back to it.
    assert_ne!(at_work(&place.run), Vec::<i32>::new());
    assert!(matches!(place.run.adopt(), Ok(Adopted::Ended(_))));
    let gone = async {
        while !at_work(&place.run).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let gone = timeout(Duration::from_secs(20), gone).await;
    assert!(gone.is_ok(), "left: {:?}", at_work(&place.run));
    let outcome = waited
        .expect("its end is seen at once")
        .expect("an outcome");
    assert_eq!(outcome.end, End::Signal(9));
    let verdict = verdict(&outcome);
    assert_eq!(
        failure(&verdict).expect("a failure").code,
        "Killed",
        "{verdict:?}"
    );
}

#[tokio::test]
async fn a_kill_of_ours_warns_of_work_on_hosts() {
    let place = Place::new(HANGS).await;
    let mut handle = place.start().await;
    until(&mut handle, hangs).await;
    handle.kill().await.expect("kill");
    let outcome = end(&mut handle).await;
    assert_eq!(outcome.end, End::Killed);
    assert!(matches!(
        verdict(&outcome),
        Verdict::Interrupted {
            remote_work: true,
            ..
        }
    ));
}

#[tokio::test]
async fn a_timeout_ends_it() {
    let mut place = Place::new(HANGS).await;
    place.run.timeout = Some(Duration::from_secs(4));
    let outcome = place.outcome().await;
    assert_eq!(outcome.end, End::TimedOut);
    let told = failure(&verdict(&outcome)).expect("a failure");
    assert_eq!(told.code, "TimedOut");
}

#[tokio::test]
async fn a_broken_playbook_is_named() {
    let outcome = Place::new("- hosts: all\n  tasks: [{nonsense: 1}]\n")
        .await
        .outcome()
        .await;
    let told = failure(&verdict(&outcome)).expect("a failure");
    assert_eq!(told.code, "PlaybookSyntax", "{told:?}");
}

/// A runner that comes back finds the process, hears every event from the first, and can steer it.
#[tokio::test]
async fn is_found_again_by_another_runner() {
    let place = Place::new(TWO_TASKS).await;
    assert!(matches!(place.run.adopt().expect("adopt"), Adopted::Never));
    let mut first = place.start().await;
    first.pause().expect("pause");
    until(&mut first, |kind| matches!(kind, Kind::Paused { .. })).await;
    let busy = place.run.start().await.expect_err("twice is refused");
    assert!(busy.to_string().contains("adopt"), "{busy}");

    let Adopted::Running(mut second) = place.run.adopt().expect("adopt") else {
        panic!("it runs");
    };
    assert_eq!(second.pid(), first.pid());
    let mut events = second.events();
    let mut tally = Tally::default();
    second.resume().expect("resume");
    let all = async {
        while let Some(event) = events.next().await.expect("events") {
            tally.add(&event);
        }
    };
    timeout(LONG, all).await.expect("the events end");
    let outcome = end(&mut second).await;
    assert_eq!(outcome.end, End::Unseen);
    assert_eq!(verdict(&outcome), Verdict::Succeeded);
    assert_eq!(tally, outcome.tally);
    // The one that started it sees the same, and afterwards it is known to have ended.
    assert_eq!(end(&mut first).await.tally, tally);
    let Adopted::Ended(late) = place.run.adopt().expect("adopt") else {
        panic!("it has ended");
    };
    assert_eq!(verdict(&late), Verdict::Succeeded);
}

#[tokio::test]
async fn two_runs_share_a_file_of_events() {
    let place = Place::new(TWO_TASKS).await;
    // What a process that was killed left half written.
    fs::write(&place.run.events, r#"{"run":"test#1","sequ"#).expect("a half line");
    let first = place.outcome().await;
    let again = PlaybookRun {
        id: "test#2".into(),
        work: place.at("work-2"),
        ..place.run.clone()
    };
    let mut handle = again.start().await.expect("it starts");
    let second = end(&mut handle).await;
    assert_eq!(first.tally.tasks_started(), 3);
    assert_eq!(second.tally.tasks_started(), 3);
}

#[tokio::test]
async fn nothing_secret_is_on_the_command_line() {
    let place = Place::new(HANGS).await;
    let mut handle = place.start().await;
    until(&mut handle, hangs).await;
    let line = fs::read(
        Path::new("/proc")
            .join(handle.pid().to_string())
            .join("cmdline"),
    );
    handle.kill().await.expect("kill");
    assert!(!contains(&line.expect("a command line"), b"a b"));
}

const FACTS: &str = "
- hosts: one
  gather_facts: false
  tasks:
    - {name: Gather, setup: {fact_path: '{{ playbook_dir }}/facts.d', gather_subset: ['!all', '!min', local]}}
    - {name: Remote, command: 'cat {{ playbook_dir }}/facts.d/hostile.fact', register: said}
    - {name: Told, debug: {msg: '{{ said.stdout }} {{ ansible_local.hostile.said }}'}}
";

const USES_FACTS: &str = "
- hosts: one
  gather_facts: false
  tasks:
    - {name: Cached, debug: {msg: '{{ ansible_local.hostile.said }}'}}
    - {name: Copied, set_fact: {copied: 'x {{ ansible_local.hostile.said }}'}}
    - {name: Again, debug: {msg: '{{ copied }}'}}
    - {name: Whole, assert: {that: \"'lookup' in ansible_local.hostile.said\"}}
";

/// What the promise about facts stands on: Ansible marks what a host says as data, when it gathers it, and when a later process
/// takes it out of the fact cache that Windlass keeps.
#[tokio::test]
async fn a_fact_that_is_a_template_is_not_run() {
    let place = Place::new(FACTS).await;
    let trace = place.at("trace");
    let said = format!("{{{{ lookup('pipe', 'touch {}') }}}}", trace.display());
    fs::create_dir(place.at("facts.d")).expect("a directory");
    let fact = serde_json::json!({"said": said}).to_string();
    fs::write(place.at("facts.d/hostile.fact"), fact).expect("the fact");
    fs::write(place.at("later.yml"), USES_FACTS).expect("the playbook");
    let cache = place.at("cache").display().to_string();
    let mut environment = place.run.environment.clone();
    environment.insert("ANSIBLE_CACHE_PLUGIN".to_owned(), "jsonfile".to_owned());
    environment.insert("ANSIBLE_CACHE_PLUGIN_CONNECTION".to_owned(), cache);
    let first = PlaybookRun {
        environment,
        ..place.run.clone()
    };
    let later = PlaybookRun {
        id: "test#2".into(),
        work: place.at("work-2"),
        playbooks: vec![place.at("later.yml")],
        ..first.clone()
    };
    for run in [first, later] {
        let outcome = end(&mut run.start().await.expect("it starts")).await;
        let log = fs::read_to_string(&run.log).expect("the log");
        assert_eq!(judge(["one"], &outcome), Verdict::Succeeded, "{log}");
        assert!(!trace.exists(), "{log}");
    }
}

#[tokio::test]
async fn without_leave_nothing_is_begun() {
    for given in [None, Some(Duration::ZERO), Some(Duration::from_nanos(1))] {
        let mut place = Place::new(TWO_TASKS).await;
        place.run.leave = Some(place.at("leave"));
        if let Some(end) = given {
            let leave = Leave::open(place.at("leave")).expect("the file");
            leave.until(end).expect("the leave");
        }
        let outcome = place.outcome().await;
        assert_eq!(outcome.end, End::Signal(9), "{given:?}");
        assert_eq!(outcome.tally.tasks_started(), 0, "{given:?}");
        assert!(
            outcome.log_tail.contains("nobody vouches"),
            "{}",
            outcome.log_tail
        );
    }
}

#[tokio::test]
async fn a_leave_that_ends_kills_modules_and_workers() {
    let mut place = Place::new(HANGS).await;
    place.run.leave = Some(place.at("leave"));
    let leave = Leave::open(place.at("leave")).expect("the file");
    leave.until(seconds(600)).expect("the leave");
    let mut handle = place.start().await;
    until(&mut handle, hangs).await;
    leave.until(Duration::ZERO).expect("the leave");
    let outcome = end(&mut handle).await;
    assert_eq!(outcome.end, End::Signal(9));
    let gone = async {
        while !at_work(&place.run).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let gone = timeout(Duration::from_secs(5), gone).await;
    assert!(gone.is_ok(), "left: {:?}", at_work(&place.run));
}

/// Says who is at work on the host, in each of its tasks and all the time in the last one.
const WRITES: &str = "
- hosts: one
  gather_facts: false
  tasks:
    - {name: Say, shell: 'echo {{ who }} >> {{ host }}', loop: '{{ range(3) | list }}'}
    - {name: Say again, shell: 'echo {{ who }} >> {{ host }}'}
    - {name: Go on, shell: 'while sleep 0.02; do echo {{ who }} >> {{ host }}; done'}
";

/// What a runner does for its playbook: gives leave for the next second and a half, again and again.
const RUNNER: &str = "
import sys, time
with open(sys.argv[1], 'r+b', buffering=0) as leave:
    while True:
        leave.seek(0)
        leave.write(b'%020d' % (time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 1500000000))
        time.sleep(0.1)
";

/// A runner that is stopped ends nothing; its playbook ends by itself, before anybody else begins. The host tells who was at
/// work.
#[tokio::test]
async fn the_playbook_of_a_runner_that_is_stopped_writes_nothing_after_its_leave() {
    let mut place = Place::new(WRITES).await;
    let host = place.at("host");
    let of = |who: &str| {
        let vars = place.at(&format!("{who}.json"));
        let text = format!(r#"{{"who": "{who}", "host": "{}"}}"#, host.display());
        fs::write(&vars, text).expect("the variables");
        vec![vars]
    };
    let (old, new) = (of("old"), of("new"));
    place.run.vars = old;
    place.run.leave = Some(place.at("leave"));
    drop(Leave::open(place.at("leave")).expect("the file"));
    let mut runner = tokio::process::Command::new("python3")
        .args(["-c", RUNNER])
        .arg(place.at("leave"))
        .kill_on_drop(true)
        .spawn()
        .expect("a runner");
    let given = async {
        while fs::read(place.at("leave")).is_ok_and(|leave| leave.is_empty()) {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, given).await.expect("leave");
    let mut first = place.start().await;
    until(
        &mut first,
        |kind| matches!(kind, Kind::TaskStart { name, .. } if name == "Go on"),
    )
    .await;
    let pid = runner.id().and_then(|pid| i32::try_from(pid).ok());
    let pid = Pid::from_raw(pid.expect("it runs"));
    kill(pid, Signal::SIGSTOP).expect("stop");
    let outcome = end(&mut first).await;
    assert_eq!(outcome.end, End::Signal(9));

    let second = PlaybookRun {
        id: "test#2".into(),
        vars: new,
        leave: None,
        work: place.at("work-2"),
        ..place.run.clone()
    };
    let mut second = second.start().await.expect("it starts");
    until(
        &mut second,
        |kind| matches!(kind, Kind::TaskStart { name, .. } if name == "Say again"),
    )
    .await;
    // It wakes up and finds nothing left to go on with.
    kill(pid, Signal::SIGCONT).expect("continue");
    until(
        &mut second,
        |kind| matches!(kind, Kind::TaskStart { name, .. } if name == "Go on"),
    )
    .await;
    second.kill().await.expect("kill");
    runner.kill().await.expect("kill");
    let said = fs::read_to_string(&host).expect("the host");
    let first_new = said.find("new").expect("the new one was at work");
    assert!(said.starts_with("old"), "the old one was at work");
    assert!(!said[first_new..].contains("old"), "{said}");
}

#[tokio::test]
async fn what_must_end_now_is_gone_at_once() {
    let place = Place::new(HANGS).await;
    let mut handle = place.start().await;
    until(&mut handle, hangs).await;
    let run = place.run.clone();
    let ending = tokio::task::spawn_blocking(move || run.end_now());
    ending.await.expect("no panic").expect("it is killed");
    assert_eq!(at_work(&place.run), Vec::<i32>::new());
    assert!(matches!(place.run.adopt(), Ok(Adopted::Ended(_))));
}
