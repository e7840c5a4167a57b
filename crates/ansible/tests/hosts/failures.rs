//! Faults made for real, on a host with an sshd, a root user and file systems of its own: real Ansible and real programs say what is
//! wrong, and each must be told by its code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
};

use ansible::{
    failure::{Look, Suite, look},
    playbook::{Outcome, PlaybookRun, Verdict, failure},
    probe,
};
use api::run::Failure;

use crate::{
    environment,
    probe::Dead,
    sshd::{LONG, Setup, Sshd, need_root},
};

/// A fault: the host's variables beside those of all, the task that meets it, and its code.
struct Fault {
    code: &'static str,
    host: &'static str,
    task: &'static str,
}

const fn fault(code: &'static str, task: &'static str) -> Fault {
    Fault {
        code,
        host: "",
        task,
    }
}

const fn on_the_way(code: &'static str, host: &'static str) -> Fault {
    Fault {
        code,
        host,
        task: "ping:",
    }
}

/// `$D` is the host's directory, `$P` the port of the server, `$X`, `$F` and `$U` those behind a certificate that is expired, not valid
/// yet, and unknown; `$S` is a port that takes connections and says nothing,
/// `$T` one that takes none. Where ssh ends before all of a module is sent to it,
/// Ansible tells of a broken pipe, and of ssh's words only by chance: on the way nothing is sent.
const FAULTS: [Fault; 30] = [
    on_the_way("HostRefused", "ansible_pipelining=false ansible_port=1"),
    on_the_way("HostTimedOut", "ansible_pipelining=false ansible_port=$T"),
    on_the_way(
        "HostLoginTimedOut",
        "ansible_pipelining=false ansible_port=$S",
    ),
    on_the_way(
        "HostAuthentication",
        "ansible_pipelining=false ansible_ssh_private_key_file=$D/stranger",
    ),
    on_the_way(
        "HostKeyChanged",
        "ansible_pipelining=false ansible_ssh_common_args='-F /dev/null -o UserKnownHostsFile=$D/wrong_hosts -o StrictHostKeyChecking=yes'",
    ),
    on_the_way(
        "HostNoPython",
        "ansible_python_interpreter=/usr/bin/python2.0",
    ),
    on_the_way("HostSudo", "ansible_user=helper ansible_become=true"),
    Fault {
        code: "PermissionDenied",
        host: "ansible_user=helper",
        task: "command: cat /etc/shadow",
    },
    fault(
        "DiskFull",
        "copy: {content: \"{{ 'x' * 200000 }}\", dest: $D/full/file}",
    ),
    fault(
        "DiskFull",
        "command: dd if=/dev/zero of=$D/full/other bs=1M count=1",
    ),
    fault("ReadOnlyFileSystem", "command: touch $D/fixed/file"),
    fault(
        "OutOfMemory",
        "shell: ulimit -v 100000; exec python3 -c 'bytearray(10**9)'",
    ),
    fault(
        "KernelLimit",
        "shell: ulimit -n 32; exec python3 -c 'import os; [os.dup(0) for _ in range(64)]'",
    ),
    fault(
        "PortInUse",
        "command: python3 -c 'import socket; socket.create_server((\"127.0.0.1\", $P))'",
    ),
    fault("ProgramMissing", "command: kubeadm-of-nobody init"),
    fault("ProgramMissing", "shell: kubeadm-of-nobody init"),
    fault(
        "PackageManagerLocked",
        "command: apt-get -o Dir::State::status=$D/held/status -y -f install",
    ),
    fault(
        "PackagesInterrupted",
        "command: apt-get -o Dir::State::status=$D/broken/status -y -f install",
    ),
    fault(
        "NotInMirror",
        "command: apt-get -o Dir::State::status=$D/empty/status -o Dir::State::lists=$D/empty -y install no-such-package",
    ),
    fault(
        "RepositoryUntrusted",
        "command: apt-get -o Dir::Etc::sourcelist=$D/unsigned.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$D/empty -o APT::Get::List-Cleanup=0 -o Dir::Cache=$D/empty update",
    ),
    fault(
        "NameUnresolved",
        "get_url: {url: 'http://nowhere.invalid/file', dest: $D/file, timeout: 5}",
    ),
    fault(
        "Network",
        "get_url: {url: 'http://127.0.0.1:1/file', dest: $D/file}",
    ),
    fault(
        "DownloadTimedOut",
        "get_url: {url: 'http://127.0.0.1:$P/silent', dest: $D/file, timeout: 1}",
    ),
    fault(
        "DownloadRefused",
        "get_url: {url: 'http://user:sesame@127.0.0.1:$P/401?sesame', dest: $D/file}",
    ),
    fault(
        "TooManyRequests",
        "get_url: {url: 'http://127.0.0.1:$P/429', dest: $D/file}",
    ),
    fault(
        "NotInMirror",
        "get_url: {url: 'http://127.0.0.1:$P/404', dest: $D/file}",
    ),
    fault(
        "ChecksumMismatch",
        "get_url: {url: 'http://127.0.0.1:$P/file', dest: $D/file, checksum: 'sha256:00'}",
    ),
    fault(
        "CertificateExpired",
        "uri: {url: 'https://127.0.0.1:$X/file', ca_path: $D/expired.pem}",
    ),
    fault(
        "TimeSkew",
        "uri: {url: 'https://127.0.0.1:$F/file', ca_path: $D/future.pem}",
    ),
    fault(
        "CertificateUntrusted",
        "get_url: {url: 'https://127.0.0.1:$U/file', dest: $D/file}",
    ),
];

/// A user `helper` who must give sudo a password, file systems that are full or fixed, package states that are held or broken, and
/// a name server that nobody is.
const PREPARE: &str = r#"
    { cat /etc/passwd; echo 'helper:x:4242:4242::/tmp:/bin/sh'; } > $1/passwd
    { cat /etc/shadow; echo 'helper:*:1::::::'; } > $1/shadow
    echo 'helper ALL=(ALL) ALL' > $1/sudoers
    echo 'nameserver 127.0.0.1' > $1/resolv.conf
    chmod 755 $1; chmod 640 $1/shadow; chmod 440 $1/sudoers
    for file in passwd shadow sudoers resolv.conf; do mount --bind $1/$file $(readlink -f /etc/$file); done
    mkdir $1/full $1/fixed $1/held $1/broken $1/broken/updates $1/empty $1/empty/partial $1/repository
    mount -t tmpfs -o size=64k tmpfs $1/full
    mount -t tmpfs -o ro tmpfs $1/fixed
    for state in held broken empty; do touch $1/$state/status; done
    echo broken > $1/broken/updates/0001
    python3 -c 'import fcntl, sys, time
held = open(sys.argv[1], "w")
fcntl.lockf(held, fcntl.LOCK_EX)
open(sys.argv[1] + ".taken", "w")
time.sleep(600)' $1/held/lock-frontend &
    while ! test -e $1/held/lock-frontend.taken; do sleep 0.05; done
    touch $1/repository/Packages
    echo 'Date: Sat, 01 Jan 2000 00:00:00 UTC' > $1/repository/Release
    echo "deb file:$1/repository ./" > $1/unsigned.list"#;

/// What ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A certificate of its own authority, with its key, as Python reads them; valid in these years.
fn certificate(path: &Path, from: i32, to: i32) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut wanted =
        rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    wanted.not_before = rcgen::date_time_ymd(from, 1, 1);
    wanted.not_after = rcgen::date_time_ymd(to, 1, 1);
    let made = wanted.self_signed(&key).expect("a certificate");
    fs::write(path, made.pem() + &key.serialize_pem()).expect("the certificate");
}

/// The server of `failures.py`, and its ports by the names that tasks know them by.
fn serve(directory: &Path) -> (Server, Vec<(&'static str, String)>) {
    let names = [
        ("expired", 2000, 2001),
        ("future", 2100, 2101),
        ("unknown", 2000, 2100),
    ];
    let files = names.map(|(name, from, to)| {
        let path = directory.join(format!("{name}.pem"));
        certificate(&path, from, to);
        path
    });
    let mut child = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts/failures.py"))
        .args(files)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let output = child.stdout.take().expect("its output");
    let server = Server(child);
    let mut line = String::new();
    BufReader::new(output)
        .read_line(&mut line)
        .expect("the ports");
    let ports = line.split_whitespace().map(str::to_owned);
    (
        server,
        ["$P", "$X", "$F", "$U"].into_iter().zip(ports).collect(),
    )
}

/// Runs a task for each fault, on a host of its own name that is always the same one.
async fn meet(sshd: &Sshd, faults: &[Fault], words: &[(&'static str, String)]) -> Outcome {
    let filled = |text: &str| {
        let mut text = text.replace("$D", &sshd.directory.path().display().to_string());
        for (word, value) in words {
            text = text.replace(word, value);
        }
        text
    };
    // Of a play whose every host has failed no other is begun: they are one.
    let mut playbook = "- hosts: all\n  gather_facts: false\n  tasks:\n".to_owned();
    let mut hosts = String::new();
    for (number, fault) in faults.iter().enumerate() {
        hosts += &filled(&format!("case-{number} {}\n", fault.host));
        let task = filled(fault.task);
        playbook += &format!(
            "    - name: Meet it\n      when: inventory_hostname == 'case-{number}'\n      {task}\n"
        );
    }
    hosts += &filled(
        "[all:vars]\nansible_host=127.0.0.1\nansible_port=@PORT@\nansible_user=root\n\
         ansible_ssh_private_key_file=$D/user\nansible_python_interpreter=/usr/bin/python3\n\
         ansible_ssh_common_args='-F /dev/null -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no -o ConnectTimeout=2'\n",
    )
    .replace("@PORT@", &sshd.port.to_string());
    let (inventory, file) = (sshd.at("inventory"), sshd.at("play.yml"));
    fs::write(&inventory, hosts).expect("it");
    fs::write(&file, playbook).expect("the playbook");
    let run = PlaybookRun {
        id: "faults#1".into(),
        ansible_playbook: environment::sandbox().await.ansible_playbook(),
        directory: sshd.directory.path().to_owned(),
        playbooks: vec![file],
        inventory,
        work: sshd.at("work"),
        home: sshd.at("home"),
        events: sshd.at("events.jsonl"),
        log: sshd.at("ansible.log"),
        environment: BTreeMap::from([
            ("ANSIBLE_PIPELINING".to_owned(), "1".to_owned()),
            ("ANSIBLE_TIMEOUT".to_owned(), "2".to_owned()),
            ("LC_ALL".to_owned(), "C.UTF-8".to_owned()),
        ]),
        ..PlaybookRun::default()
    };
    let mut handle = run.start().await.expect("it starts");
    tokio::time::timeout(LONG * 2, handle.wait())
        .await
        .expect("it ends")
        .expect("its events are readable")
}

/// What the failure on one host is told as.
fn told(outcome: &Outcome, host: &str) -> Option<Failure> {
    let tally = &outcome.tally;
    let unreachable = tally.unreachable.get(host);
    let verdict = if let Some(why) = unreachable {
        Verdict::Unreachable {
            unreachable: BTreeMap::from([(host.to_owned(), why.clone())]),
        }
    } else {
        let mut failures = tally.failures.iter();
        Verdict::Failed {
            failures: vec![failures.find(|failure| failure.host == host)?.clone()],
            unreachable: BTreeMap::new(),
        }
    };
    failure(&verdict)
}

#[tokio::test]
async fn faults_that_are_made_for_real_are_told_by_their_codes() {
    need_root();
    let sshd = Sshd::with(Setup {
        configuration: "Subsystem sftp internal-sftp\nMaxStartups 100".to_owned(),
        namespaces: &["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"],
        prepare: PREPARE.to_owned(),
    })
    .await;
    let other = fs::read_to_string(sshd.at("stranger.pub")).expect("another key");
    let line = format!("[127.0.0.1]:{} {other}", sshd.port);
    fs::write(sshd.at("wrong_hosts"), line).expect("known_hosts");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (_server, mut words) = serve(sshd.directory.path());
    words.push(("$S", silent.local_addr().expect("it").port().to_string()));
    let dead = Dead::new();
    words.push(("$T", dead.port.to_string()));
    let outcome = meet(&sshd, &FAULTS, &words).await;
    let mut wrong = Vec::new();
    for (number, fault) in FAULTS.iter().enumerate() {
        let told = told(&outcome, &format!("case-{number}"));
        if told.as_ref().is_none_or(|told| told.code != fault.code) {
            let said = told.map_or("no failure".to_owned(), |told| {
                format!("{}: {}", told.code, told.message)
            });
            wrong.push(format!("{} ({}) is told as {said}", fault.code, fault.task));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // What a server answered is told with its place, and with no login or query.
    let refused = FAULTS
        .iter()
        .position(|fault| fault.code == "DownloadRefused");
    let refused = told(&outcome, &format!("case-{}", refused.expect("one")));
    let message = refused.expect("a failure").message;
    let place = format!(
        "HTTP Error 401: Unauthorized: http://127.0.0.1:{}/401",
        words[0].1
    );
    assert!(message.ends_with(&place), "{message}");
}

/// What the table says that is made here.
#[test]
fn what_is_claimed_to_be_made_here_is_made() {
    let by_words = FAULTS.iter().map(|fault| fault.code);
    let made: BTreeSet<&str> = by_words.chain([NO_INODES, READ_ONLY]).collect();
    assert_eq!(made, Suite::Hosts.codes().collect());
}

const NO_INODES: &str = "InodesFull";
const READ_ONLY: &str = "ReadOnlyFileSystem";

/// Ansible says the same words of both; only a look tells.
#[tokio::test]
async fn a_file_system_without_inodes_is_told_from_one_without_room() {
    let prepare = "mkdir $1/few; mount -t tmpfs -o nr_inodes=2 tmpfs $1/few; touch $1/few/last";
    let met = fault("DiskFull", "command: touch $D/few/file");
    looked_at(prepare, met, Look::Disks, NO_INODES, "/few").await;
}

/// Ansible asks for the right to write before it writes, and root has it everywhere else.
#[tokio::test]
async fn a_file_system_that_takes_no_writes_is_told_from_a_right_that_is_missing() {
    let prepare = "mkdir $1/fixed; echo old > $1/fixed/file; mount --bind $1/fixed $1/fixed; mount -o remount,bind,ro $1/fixed";
    let met = fault(
        "PermissionDenied",
        "copy: {content: new, dest: $D/fixed/file}",
    );
    looked_at(prepare, met, Look::Mounts, READ_ONLY, "/fixed").await;
}

/// A fault whose words leave open what it is, and what a look at the host tells.
async fn looked_at(prepare: &str, met: Fault, wanted: Look, code: &str, words: &str) {
    need_root();
    let sshd = Sshd::with(Setup {
        configuration: "Subsystem sftp internal-sftp".to_owned(),
        namespaces: &["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"],
        prepare: prepare.to_owned(),
    })
    .await;
    let by_words = met.code;
    let outcome = meet(&sshd, &[met], &[]).await;
    let failure = told(&outcome, "case-0").expect("a failure");
    assert_eq!(failure.code, by_words);
    assert_eq!(look(&failure.code), Some(wanted));
    let mut target = sshd.target();
    target.user = "root".into();
    let said = probe::run(&target, &sshd.options(), wanted.script(), LONG)
        .await
        .expect("an answer");
    let told = wanted.refined(failure, &said, 0);
    assert_eq!(told.code, code, "{said}");
    assert!(told.message.contains(words), "{told:?}");
}
