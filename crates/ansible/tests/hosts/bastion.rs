//! Hosts behind a bastion: two real sshd, of which one is in a network that only the other reaches.

use std::{
    fs,
    net::TcpListener,
    os::fd::OwnedFd,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

use ansible::{
    inventory::{Configuration, ansible_cfg},
    playbook::{PlaybookRun, Verdict, judge},
    probe::{Options, Reason, Target, Unusable, connect, probe},
    ssh::{Bastion, HostKeys},
};

use super::{
    environment,
    sshd::{LONG, Setup, Sshd, free_port, need_root, one, write_configuration},
};

/// A host with a loopback of its own, and a bastion that listens on this machine's and connects on that one.
struct Network {
    host: Sshd,
    /// Its files; its name has a blank, as a person's directory may have.
    directory: tempfile::TempDir,
    /// The bastion's own.
    _files: tempfile::TempDir,
    port: u16,
}

impl Network {
    /// `restrictions` are lines of the bastion's configuration.
    async fn new(restrictions: &str) -> Self {
        let host = Sshd::with(Setup {
            namespaces: &[
                "--mount",
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ],
            prepare: "ip link set lo up".to_owned(),
            ..Setup::default()
        })
        .await;
        let directory = tempfile::Builder::new()
            .prefix("bastion's %h ")
            .tempdir()
            .expect("a directory");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its number").port();
        let files = tempfile::tempdir().expect("a directory");
        write_configuration(files.path(), port, restrictions);
        fs::copy(host.at("user.pub"), files.path().join("user.pub")).expect("the same key");
        fs::create_dir(directory.path().join("c")).expect("a directory");
        let network = format!("--net=/proc/{}/ns/net", host.child.id());
        let configuration = files.path().join("conf");
        thread::spawn(move || {
            // A socket stays in the network that it was made in, whichever its process is in.
            for stream in listener.incoming().flatten() {
                let socket = OwnedFd::from(stream);
                let served = Command::new("nsenter")
                    .arg(&network)
                    .args(["/usr/sbin/sshd", "-i", "-e", "-f"])
                    .arg(&configuration)
                    .stdout(socket.try_clone().expect("a second handle"))
                    .stdin(socket)
                    .stderr(Stdio::null())
                    .spawn();
                let mut served = served.expect("nsenter");
                thread::spawn(move || served.wait());
            }
        });
        Self {
            host,
            directory,
            _files: files,
            port,
        }
    }

    fn bastion(&self) -> Bastion {
        Bastion {
            address: "127.0.0.1".to_owned(),
            user: "root".to_owned(),
            port: self.port,
            control: self.directory.path().join("c"),
        }
    }

    /// With everything in the directory of the odd name.
    fn options(&self) -> Options {
        let mut options = self.host.options();
        let key = self.at("key");
        fs::copy(self.host.at("user"), &key).expect("the key");
        options.access.key = Some(key);
        options.access.known_hosts = self.at("known hosts");
        options.access.bastion = Some(self.bastion());
        options
    }

    async fn ask(&self, target: Target, options: &Options) -> Option<Unusable> {
        one(probe(&[target], options).await)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The name by which people know it.
    fn name(&self) -> String {
        format!("root@127.0.0.1 port {}", self.port)
    }
}

impl Drop for Network {
    /// The shared connection outlives the probe.
    fn drop(&mut self) {
        let sockets = fs::read_dir(self.at("c")).into_iter().flatten().flatten();
        for socket in sockets {
            let _ = Command::new("ssh")
                .args(["-F", "/dev/null", "-O", "exit", "-S"])
                .arg(socket.path().display().to_string().replace('%', "%%"))
                .arg("127.0.0.1")
                .stderr(Stdio::null())
                .status();
        }
    }
}

#[tokio::test]
async fn a_host_is_reached_through_the_bastion_only() {
    need_root();
    let network = Network::new("").await;
    let options = network.options();
    let direct = one(connect(&[network.host.target()], &options).await);
    assert_eq!(
        direct.map(|unusable| unusable.reason),
        Some(Reason::Refused)
    );
    assert_eq!(network.ask(network.host.target(), &options).await, None);
    let known = fs::read_to_string(network.at("known hosts")).expect("keys are recorded");
    assert_eq!(known.lines().count(), 2, "both keys: {known}");
    // Both keys are known now, and enough.
    let mut strict = options.clone();
    strict.access.host_keys = HostKeys::Strict;
    assert_eq!(network.ask(network.host.target(), &strict).await, None);

    let closed = Target {
        port: free_port(),
        ..network.host.target()
    };
    let unusable = network.ask(closed, &options).await.expect("a problem");
    assert_eq!(unusable.reason, Reason::Refused, "{unusable:?}");
    assert!(unusable.is_unreachable(), "{unusable:?}");

    let other = fs::read_to_string(network.host.at("stranger.pub")).expect("another key");
    let bastions = known
        .lines()
        .find(|line| line.contains(&network.port.to_string()));
    let changed = format!(
        "{}\n[127.0.0.1]:{} {other}",
        bastions.expect("the bastion's key"),
        network.host.port
    );
    fs::write(network.at("known hosts"), changed).expect("known_hosts");
    let unusable = network.ask(network.host.target(), &options).await;
    let unusable = unusable.expect("a problem");
    assert_eq!(
        (unusable.reason, unusable.bastion),
        (Reason::HostKeyChanged, None)
    );
}

#[tokio::test]
async fn a_bastion_that_cannot_be_used_is_named() {
    need_root();
    let network = Network::new("").await;
    let other = fs::read_to_string(network.host.at("stranger.pub")).expect("another key");
    let line = format!("[127.0.0.1]:{} {other}", network.port);
    let changed = network.at("changed");
    fs::write(&changed, line).expect("known_hosts");
    for (reason, change) in [
        (
            Reason::HostKeyChanged,
            Box::new(|options: &mut Options| options.access.known_hosts.clone_from(&changed))
                as Box<dyn Fn(&mut Options)>,
        ),
        (
            Reason::HostKeyUnknown,
            Box::new(|options| options.access.host_keys = HostKeys::Strict),
        ),
        (
            Reason::Authentication,
            Box::new(|options| options.access.key = Some(network.host.at("stranger"))),
        ),
        (
            Reason::Refused,
            Box::new(|options| {
                let bastion = options.access.bastion.as_mut().expect("a bastion");
                bastion.port = free_port();
            }),
        ),
    ] {
        let mut options = network.options();
        change(&mut options);
        let unusable = network.ask(network.host.target(), &options).await;
        let unusable = unusable.expect("a problem");
        assert_eq!(unusable.reason, reason, "{unusable:?}");
        // Of the hosts nothing is known, so none is left out.
        assert!(!unusable.is_unreachable());
        if reason != Reason::Refused {
            let named = format!("bastion {}: ", network.name());
            assert!(unusable.message().starts_with(&named), "{unusable:?}");
        }
    }
}

#[tokio::test]
async fn a_bastion_that_forwards_to_others_only_is_told() {
    need_root();
    let network = Network::new("PermitOpen 192.0.2.1:22\nForceCommand /bin/false").await;
    let options = network.options();
    let unusable = network.ask(network.host.target(), &options).await;
    let unusable = unusable.expect("a problem");
    assert_eq!(unusable.reason, Reason::Forwarding, "{unusable:?}");
    assert!(!unusable.is_unreachable());
}

/// What the probe can reach, Ansible can: the same keys, the same known hosts, the same connection.
#[tokio::test]
async fn ansible_goes_the_same_way() {
    need_root();
    let network = Network::new("").await;
    let options = network.options();
    assert_eq!(network.ask(network.host.target(), &options).await, None);
    let configuration = Configuration {
        checkout: network.at("checkout"),
        hosts: 1,
        facts: network.at("facts"),
        known_hosts: options.access.known_hosts.clone(),
        control: "/tmp/unused".into(),
        bastion: options.access.bastion.clone(),
        private_key: options.access.key.clone(),
        ..Configuration::default()
    };
    let text = ansible_cfg(&configuration).expect("a configuration");
    fs::write(network.at("ansible.cfg"), text).expect("the configuration");
    let inventory = format!(
        "[all]\none ansible_host=127.0.0.1 ansible_port={} ansible_user=root ansible_python_interpreter=/usr/bin/python3 ansible_ssh_private_key_file=\"{}\"\n",
        network.host.port,
        // Ansible itself takes no percent sign there.
        network.host.at("user").display()
    );
    fs::write(network.at("hosts"), inventory).expect("the inventory");
    let playbook = "- hosts: all\n  gather_facts: false\n  tasks: [{command: 'true'}]\n";
    fs::write(network.at("play.yml"), playbook).expect("the playbook");
    let run = PlaybookRun {
        id: "bastion#1".into(),
        ansible_playbook: environment::sandbox().await.ansible_playbook(),
        directory: network.directory.path().to_owned(),
        playbooks: vec![network.at("play.yml")],
        inventory: network.at("hosts"),
        config: Some(network.at("ansible.cfg")),
        work: network.at("work"),
        home: network.at("home"),
        events: network.at("events.jsonl"),
        log: network.at("log"),
        timeout: Some(LONG),
        ..PlaybookRun::default()
    };
    let outcome = run
        .start()
        .await
        .expect("it starts")
        .wait()
        .await
        .expect("an outcome");
    assert_eq!(
        judge(["one"], &outcome),
        Verdict::Succeeded,
        "{}",
        outcome.log_tail
    );
    ansible::playbook::forget(&run.home).expect("the sockets are removed");
}
