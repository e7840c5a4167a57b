//! Remedies at work on a host with an sshd, a root user and file systems of its own.

use std::fs;

use ansible::{
    failure::remedy::{judged, limit, script},
    probe,
};
use api::remedy::Remedy;

use crate::sshd::{Setup, Sshd, need_root};

/// Directories of packages, of another program and of a container engine that are small, an engine that is played, and somebody who
/// holds the lock of packages until he is told.
const PREPARE: &str = r#"
    mount -t tmpfs -o size=1m tmpfs /var/cache
    mount -t tmpfs -o size=1m tmpfs /var/lib
    mkdir -p /var/cache/apt/archives/partial /var/cache/other /var/lib/dpkg /var/lib/containerd $1/bin
    head -c 65536 /dev/zero > /var/cache/apt/archives/a_1_all.deb
    head -c 65536 /dev/zero > /var/cache/other/kept
    head -c 1000000 /dev/zero > /var/lib/containerd/image
    { echo '#!/bin/sh'; echo '[ "$*" = "rmi --prune" ] && rm /var/lib/containerd/image'; } > $1/bin/crictl
    chmod 755 $1/bin/crictl
    mount --bind $1/bin /usr/local/bin
    python3 -c 'import fcntl, os, sys, time
held = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(held, fcntl.LOCK_EX)
open(sys.argv[1] + "/taken", "w")
while not os.path.exists(sys.argv[1] + "/let-go"): time.sleep(0.1)' $1 &
    while ! test -e $1/taken; do sleep 0.05; done"#;

struct Host(Sshd);

impl Host {
    async fn boot() -> Self {
        let sshd = Sshd::with(Setup {
            configuration: "Subsystem sftp internal-sftp".to_owned(),
            namespaces: &["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"],
            prepare: PREPARE.to_owned(),
        })
        .await;
        Self(sshd)
    }

    fn target(&self) -> probe::Target {
        probe::Target {
            user: "root".into(),
            ..self.0.target()
        }
    }

    async fn run(&self, script: &str) -> String {
        let limit = limit(Remedy::ClearCaches);
        let said = probe::run(&self.target(), &self.0.options(), script, limit).await;
        said.expect("an answer")
    }

    /// Applies a remedy: whether it helped, and what was said.
    async fn get(&self, remedy: Remedy) -> (bool, String) {
        let answer = judged(remedy, &self.run(&script(remedy)).await);
        (answer.helped, answer.said)
    }
}

#[tokio::test]
async fn a_lock_is_waited_for_and_its_holder_is_named() {
    need_root();
    let host = Host::boot().await;
    let wait = script(Remedy::WaitForPackageLock);
    let mut output = probe::fetch(&host.target(), &host.0.options(), &wait)
        .await
        .expect("ssh");
    let mut said = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let read = output.read(&mut buffer).await.expect("a connection");
        if read == 0 {
            break;
        }
        said.extend_from_slice(&buffer[..read]);
        // Not before it has seen who holds it.
        fs::write(host.0.at("let-go"), "").expect("a file");
    }
    output.end().await.expect("a good end");
    let said = String::from_utf8(said).expect("text");
    let answer = judged(Remedy::WaitForPackageLock, &said);
    assert!(answer.helped, "{said}");
    assert!(answer.said.starts_with("python3 (process "), "{answer:?}");
    assert!(answer.said.contains("let the lock go after"), "{answer:?}");
    let (helped, said) = host.get(Remedy::WaitForPackageLock).await;
    assert!(helped && said == "nobody holds the lock any more", "{said}");
}

#[tokio::test]
async fn caches_are_cleared_where_their_file_system_is_full_and_nothing_else() {
    need_root();
    let host = Host::boot().await;
    let left = "ls /var/cache/apt/archives/*.deb /var/cache/other /var/lib/containerd";
    // The file system of the packages has room: they stay, and so does what is full and none of theirs.
    let before = host.run(left).await;
    let (helped, said) = host.get(Remedy::ClearCaches).await;
    assert!(!helped && said.starts_with("no file system"), "{said}");
    assert_eq!(host.run(left).await, before);

    host.run("head -c 1000000 /dev/zero > /var/cache/other/ballast")
        .await;
    let (helped, said) = host.get(Remedy::ClearCaches).await;
    assert!(helped && said == "64 KiB freed on /var/cache", "{said}");
    let after = host.run(left).await;
    assert!(!after.contains(".deb"), "{after}");
    for kept in ["kept", "ballast", "image"] {
        assert!(after.contains(kept), "{kept} is gone: {after}");
    }
    let (helped, said) = host.get(Remedy::ClearCaches).await;
    assert!(!helped && said.starts_with("nothing was there"), "{said}");

    let (helped, said) = host.get(Remedy::PruneImages).await;
    assert!(helped && said.ends_with("KiB freed on /var/lib"), "{said}");
}
