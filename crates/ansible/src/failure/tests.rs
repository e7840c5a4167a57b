use std::collections::BTreeSet;

use api::run::Failure;

use super::*;
use crate::playbook::failure_of_text;

/// What programs say, word by word, and what it is told as. Nothing: it is not known.
const SAID: &[(&str, &str)] = &[
    // ssh, as Ansible tells of a host that it does not reach.
    (
        "Failed to connect to the host via ssh: ssh: connect to host 127.0.0.1 port 1: Connection refused",
        "HostRefused",
    ),
    (
        "Failed to connect to the host via ssh: ssh: connect to host 10.0.0.9 port 22: Connection timed out",
        "HostTimedOut",
    ),
    (
        "Connection timed out during banner exchange\r\nConnection to 127.0.0.1 port 2222 timed out",
        "HostLoginTimedOut",
    ),
    (
        "ssh: connect to host 10.0.0.9 port 22: No route to host",
        "HostNoRoute",
    ),
    (
        "ssh: Could not resolve hostname nowhere.invalid: Name or service not known",
        "HostUnresolved",
    ),
    (
        "root@10.0.0.1: Permission denied (publickey).",
        "HostAuthentication",
    ),
    (
        "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @",
        "HostKeyChanged",
    ),
    // sudo, Python, packages.
    ("Missing sudo password", "HostSudo"),
    (
        "sudo: a terminal is required to read the password; either use the -S option to read from standard input or configure an askpass helper\nsudo: a password is required",
        "HostSudo",
    ),
    ("/bin/sh: 1: /usr/bin/python3: not found", "HostNoPython"),
    (
        "SyntaxError: future feature annotations is not defined",
        "HostNoPython",
    ),
    (
        "Failed to lock apt for exclusive operation: E:Could not get lock /var/lib/dpkg/lock",
        "PackageManagerLocked",
    ),
    (
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4242 (unattended-upgr)",
        "PackageManagerLocked",
    ),
    (
        "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem.",
        "PackagesInterrupted",
    ),
    (
        "W: GPG error: http://m bookworm InRelease: The following signatures couldn't be verified because the public key is not available: NO_PUBKEY 0E98404D386FA1D9",
        "RepositoryUntrusted",
    ),
    (
        "E: Release file for http://m/dists/x/InRelease is not valid yet (invalid for another 3h 2min 1s). Updates for this repository will not be applied.",
        "TimeSkew",
    ),
    ("E: Unable to locate package kubelett", "NotInMirror"),
    (
        "Err:1 http://m bookworm InRelease\n  Temporary failure resolving 'm'",
        "NameUnresolved",
    ),
    // Disks and kernel.
    ("[Errno 28] No space left on device", "DiskFull"),
    (
        "failed to create fsnotify watcher: too many open files",
        "KernelLimit",
    ),
    (
        "inotify_add_watch(/sys/fs/cgroup): no space left on device",
        "KernelLimit",
    ),
    (
        "touch: cannot touch '/x': Read-only file system",
        "ReadOnlyFileSystem",
    ),
    (
        "Destination /etc/kubernetes not writable",
        "PermissionDenied",
    ),
    ("cat: /x: Input/output error", "DiskBroken"),
    ("OSError: [Errno 12] Cannot allocate memory", "OutOfMemory"),
    (
        "modprobe: FATAL: Module br_netfilter not found in directory /lib/modules/6.1.0",
        "KernelModuleMissing",
    ),
    (
        "sysctl: cannot stat /proc/sys/net/bridge/bridge-nf-call-iptables: No such file or directory",
        "KernelSettings",
    ),
    // kubeadm looks at the host before it begins.
    (
        "error execution phase preflight: [preflight] Some fatal errors occurred:\n\t[ERROR Swap]: running with swap on is not supported. Please disable swap",
        "SwapOn",
    ),
    (
        "[preflight] Some fatal errors occurred:\n\t[ERROR Port-6443]: Port 6443 is in use\n\t[ERROR Port-10259]: Port 10259 is in use",
        "PortInUse",
    ),
    (
        "\t[ERROR Mem]: the system RAM (964 MB) is less than the minimum 1700 MB",
        "TooSmall",
    ),
    (
        "\t[ERROR NumCPU]: the number of available CPUs 1 is less than the required 2",
        "TooSmall",
    ),
    (
        "\t[ERROR DirAvailable--var-lib-etcd]: /var/lib/etcd is not empty",
        "LeftFromBefore",
    ),
    (
        "\t[ERROR FileContent--proc-sys-net-ipv4-ip_forward]: /proc/sys/net/ipv4/ip_forward contents are not set to 1",
        "KernelSettings",
    ),
    (
        "\t[ERROR CRI]: could not connect to the container runtime: failed to create new CRI runtime service",
        "ContainerEngineDown",
    ),
    (
        "\t[ERROR FileExisting-conntrack]: conntrack not found in system path",
        "ProgramMissing",
    ),
    (
        "\t[ERROR SystemVerification]: missing required cgroups: memory",
        "Cgroups",
    ),
    (
        "failed to run Kubelet: misconfiguration: kubelet cgroup driver: \"systemd\" is different from docker cgroup driver: \"cgroupfs\"",
        "Cgroups",
    ),
    (
        "\t[ERROR ImagePull]: failed to pull image registry.k8s.io/pause:3.10: rpc error: code = NotFound desc = failed to pull and unpack image \"registry.k8s.io/pause:3.10\": failed to resolve reference \"registry.k8s.io/pause:3.10\": registry.k8s.io/pause:3.10: not found",
        "ImageMissing",
    ),
    (
        "\t[ERROR IsPrivilegedUser]: user is not running as root",
        "KubeadmPreflight",
    ),
    (
        "[preflight] Some fatal errors occurred:\n\t[ERROR CreateJob]: Job \"upgrade-health-check-1\" in the namespace \
         \"kube-system\" did not complete in 15s: no condition of type Complete",
        "JobNotCompleted",
    ),
    // What hosts fetch.
    (
        "Request failed: <urlopen error [Errno 111] Connection refused>",
        "Network",
    ),
    ("Request failed: HTTP Error 404: Not Found", "NotInMirror"),
    ("HTTP Error 401: Unauthorized", "DownloadRefused"),
    (
        "failed to resolve reference \"m/a:1\": pulling from host m failed with status code [manifests 1]: 401 Unauthorized",
        "DownloadRefused",
    ),
    (
        "pull access denied for m/a, repository does not exist or may require 'docker login'",
        "DownloadRefused",
    ),
    (
        "toomanyrequests: You have reached your pull rate limit.",
        "TooManyRequests",
    ),
    ("Error: manifest unknown: manifest unknown", "ImageMissing"),
    (
        "failed to do request: Head \"https://m/v2/a/manifests/1\": net/http: TLS handshake timeout",
        "DownloadTimedOut",
    ),
    (
        "Request failed: <urlopen error timed out>",
        "DownloadTimedOut",
    ),
    (
        "curl: (6) Could not resolve host: dl.k8s.io",
        "NameUnresolved",
    ),
    (
        "dial tcp: lookup registry.k8s.io: no such host",
        "NameUnresolved",
    ),
    (
        "The checksum for /tmp/a did not match 00; it was 5e.",
        "ChecksumMismatch",
    ),
    (
        "E: Failed to fetch http://m/a.deb  Hash Sum mismatch",
        "Network",
    ),
    // Certificates and clocks.
    (
        "x509: certificate has expired or is not yet valid: current time 2026-01-02T03:04:05Z is after 2025-01-02T03:04:05Z",
        "CertificateExpired",
    ),
    (
        "x509: certificate has expired or is not yet valid: current time 2019-01-02T03:04:05Z is before 2025-01-02T03:04:05Z",
        "TimeSkew",
    ),
    (
        "<urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:992)>",
        "CertificateExpired",
    ),
    (
        "<urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate is not yet valid (_ssl.c:992)>",
        "TimeSkew",
    ),
    (
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:992)",
        "CertificateUntrusted",
    ),
    (
        "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        "CertificateUntrusted",
    ),
    (
        "the clock difference against peer 8e9e05c52164694d is too high [4.2s > 1s]",
        "TimeSkew",
    ),
    // The cluster.
    (
        "error when evicting pods/\"web-0\" -n \"shop\" (will retry after 5s): Cannot evict pod as it would violate the pod's disruption budget.",
        "PodsHeld",
    ),
    ("etcdserver: no leader", "QuorumLost"),
    (
        "etcdserver: request timed out, possibly due to previous leader failure",
        "EtcdSlow",
    ),
    (
        "{\"level\":\"warn\",\"error\":\"rpc error: code = Unavailable desc = etcdserver: unhealthy cluster\"}",
        "QuorumLost",
    ),
    (
        "The connection to the server localhost:8080 was refused - did you specify the right host or port?",
        "KubeconfigMissing",
    ),
    (
        "error: stat /etc/kubernetes/admin.conf: no such file or directory",
        "KubeconfigMissing",
    ),
    (
        "file not found: /etc/kubernetes/admin.conf",
        "KubeconfigMissing",
    ),
    (
        "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?",
        "ApiServerDown",
    ),
    (
        "Get \"https://10.0.0.1:6443/api?timeout=32s\": dial tcp 10.0.0.1:6443: i/o timeout",
        "ApiServerDown",
    ),
    (
        "dial tcp 10.0.0.1:6443: connect: connection refused",
        "ApiServerDown",
    ),
    (
        "dial tcp 10.0.0.1:2379: connect: connection refused",
        "ServiceDown",
    ),
    (
        "Unable to start service etcd: Job for etcd.service failed because the control process exited with error code.",
        "ServiceNotStarted",
    ),
    // Playbooks and variables.
    ("ERROR! Syntax Error while loading YAML.", "PlaybookSyntax"),
    ("sh: 1: Syntax error: \"(\" unexpected", ""),
    ("'foo' is undefined", "UndefinedVariable"),
    ("'dict object' has no attribute 'foo'", "UndefinedVariable"),
    (
        "'ansible.vars.hostvars.HostVarsVars object' has no attribute 'foo'",
        "UndefinedVariable",
    ),
    (
        "object of type 'dict' has no attribute 'foo'",
        "UndefinedVariable",
    ),
    ("list object has no element 3", "UndefinedVariable"),
    (
        "expected str, bytes or os.PathLike object, not AnsibleUndefined",
        "UndefinedVariable",
    ),
    (
        "Mandatory variable 'foo'  not defined.",
        "UndefinedVariable",
    ),
    (
        "AttributeError: 'HTTPResponse' object has no attribute 'foo'",
        "",
    ),
    ("module 'yaml' has no attribute 'CSafeLoader'", ""),
    (
        "template error while templating string: No filter named 'ipadr'.",
        "FilterMissing",
    ),
    ("Permission denied: '/etc/shadow'", "PermissionDenied"),
    (
        "[Errno 2] No such file or directory: b'conntrack'",
        "ProgramMissing",
    ),
    ("/bin/sh: 1: kubeadm: not found", "ProgramMissing"),
    (
        "MODULE FAILURE\nSee stdout/stderr for the exact error",
        "ModuleFailed",
    ),
    ("Assertion failed", "AssertionFailed"),
    ("something else", ""),
    ("non-zero return code", ""),
];

#[test]
fn what_programs_say_is_told_as_what_it_is() {
    RegexSet::new(patterns()).expect("patterns");
    for (text, code) in SAID {
        let found = of_text(text).map_or("", |kind| kind.code);
        assert_eq!(found, *code, "{text}");
    }
}

#[test]
fn a_cause_is_told_before_what_follows_from_it() {
    for (text, code) in [
        (
            "The connection to the server 10.0.0.1:6443 was refused\netcd: write /var/lib/etcd: no space left on device",
            "DiskFull",
        ),
        (
            "Unable to start service kubelet: Job for kubelet.service failed\nrunning with swap on is not supported",
            "SwapOn",
        ),
        (
            "[ERROR CRI]: container runtime is not running\n[ERROR Port-10250]: Port 10250 is in use",
            "PortInUse",
        ),
        (
            "MODULE FAILURE\n/bin/sh: 1: /usr/bin/python3: not found",
            "HostNoPython",
        ),
        (
            "Failed to fetch http://m/a: Temporary failure resolving 'm'",
            "NameUnresolved",
        ),
    ] {
        assert_eq!(of_text(text).expect("it is known").code, code, "{text}");
    }
}

/// What programs say in good health.
#[test]
fn what_is_no_failure_is_not_taken_for_one() {
    for text in [
        "",
        "ok",
        "Setting up containerd (1.6.20) ...",
        "etcd is healthy: successfully committed proposal: took = 2ms",
        "certificate valid until 2027",
        "the port is free",
        "swap is off",
        "memory: 4 GiB",
    ] {
        assert!(of_text(text).is_none(), "{text}");
    }
}

#[test]
fn every_kind_has_a_code_of_its_own_and_words_for_people() {
    let mut codes = BTreeSet::new();
    for kind in kinds() {
        assert!(codes.insert(kind.code), "{} twice", kind.code);
        assert!(
            kind.code.chars().all(char::is_alphanumeric),
            "{}",
            kind.code
        );
        assert!(kind.remedy.len() <= 1024, "{}: the API cuts it", kind.code);
        assert!(!kind.meaning.is_empty() && !kind.remedy.is_empty());
        assert_eq!(named(kind.code).expect("it is found").code, kind.code);
    }
    let said: BTreeSet<&str> = SAID.iter().map(|(_, code)| *code).collect();
    // Of inodes it is a look that tells.
    for kind in KINDS.iter().filter(|kind| kind.code != "InodesFull") {
        assert!(said.contains(kind.code), "no text is told as {}", kind.code);
    }
}

/// A kind that is claimed to be known, and that nobody shows, says so itself.
#[test]
fn every_kind_is_made_for_real_or_says_why_not() {
    let known: BTreeSet<&str> = kinds().map(|kind| kind.code).collect();
    let told: BTreeSet<&str> = PROOFS.iter().map(|(code, _)| *code).collect();
    assert_eq!(told, known);
    assert_eq!(told.len(), PROOFS.len(), "a code is there twice");
    let made = Suite::Hosts.codes().chain(Suite::Cluster.codes()).count();
    assert!(made >= 25, "only {made} are made for real");
    for suite in [Suite::Hosts, Suite::Cluster] {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(suite.file());
        assert!(file.exists(), "{}", file.display());
    }
}

fn looked(text: &str, said: &str, now: i64) -> Failure {
    let failure = failure_of_text(text);
    look(&failure.code)
        .expect("it is looked at")
        .refined(failure, said, now)
}

#[test]
fn a_look_tells_bytes_from_inodes() {
    const HEAD: &str = "Filesystem 1024-blocks Used Available Capacity Mounted on\n";
    let said = |bytes: &str, inodes: &str| {
        looked(
            "[Errno 28] No space left on device",
            &format!("{HEAD}{bytes}\ninodes\n{HEAD}{inodes}\n"),
            0,
        )
    };
    let told = said("/dev/a 100 90 10 90% /", "/dev/a 4 4 0 100% /var/lib");
    assert_eq!(told.code, "InodesFull");
    assert!(
        told.message.ends_with("(no inode is left on /var/lib)"),
        "{told:?}"
    );
    let told = said("/dev/a 100 100 0 100% /var", "/dev/a 4 4 0 100% /");
    assert_eq!(told.code, "DiskFull");
    assert!(told.message.ends_with("(full: /var)"), "{told:?}");
    // Neither, and what counts no inodes at all.
    let told = said("/dev/a 100 90 10 90% /", "btrfs 0 0 0 - /");
    assert_eq!(told.message, "[Errno 28] No space left on device");
    assert_eq!(said("nonsense", "").code, "DiskFull");
}

#[test]
fn a_look_tells_a_clock_from_a_certificate() {
    let expired = "certificate has expired";
    assert_eq!(looked(expired, "1000\n", 990).code, "CertificateExpired");
    let told = looked(expired, "90000", 1000);
    assert_eq!(told.code, "TimeSkew");
    assert!(told.message.contains("89000 s ahead of this machine's"));
    assert_eq!(looked(expired, "\u{1b}[2J", 0).code, "CertificateExpired");
    assert!(
        looked(expired, "-9223372036854775808", 9)
            .message
            .contains("behind")
    );
}
