//! Which kinds of failures tests make for real on a host, and why the others are not made.
//!
//! There is one table, [`PROOFS`]: every kind is in it, the reference that people read is printed from it, and each suite fails unless it
//! makes exactly what it is named for here. So nothing is claimed that no test shows.

use Proof::{Made, Not};
use Suite::{Cluster, Hosts};

/// Whether a kind is made for real.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Proof {
    /// This suite makes it so on a host, where real programs say what is wrong.
    Made(Suite, &'static str),
    /// No test does, and why.
    Not(&'static str),
}

/// A suite that makes faults.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Suite {
    /// Real Ansible on a host with an sshd and file systems of its own.
    Hosts,
    /// The programs of Kubernetes and etcd on the hosts of a cluster.
    Cluster,
}

impl Suite {
    /// Where it is in this repository.
    pub const fn file(self) -> &'static str {
        match self {
            Hosts => "crates/ansible/tests/hosts/failures.rs",
            Cluster => "tests/e2e/tests/stories/told.rs",
        }
    }

    /// The codes of what it makes.
    pub fn codes(self) -> impl Iterator<Item = &'static str> {
        let made = PROOFS
            .iter()
            .filter(move |(_, proof)| matches!(proof, Made(suite, _) if *suite == self));
        made.map(|(code, _)| *code)
    }
}

/// Whether the kind of that code is made for real; nothing: it is none of what goes wrong on hosts.
pub fn proof(code: &str) -> Option<Proof> {
    let mut all = PROOFS.iter();
    all.find(|(known, _)| *known == code)
        .map(|(_, proof)| *proof)
}

const OF_PLAYBOOK: Proof = Not("it is the playbook's, not a host's");
const OF_PROBE: Proof = Not("a probe finds it: crates/ansible/tests/hosts/probe.rs");
const OF_PROCESS: Proof = Not("it is how Ansible ends, not a host's");
const OF_KERNEL: Proof = Not("hosts of tests share the kernel and the hardware of the machine");

/// Every kind of failure.
pub const PROOFS: [(&str, Proof); 64] = [
    // On the way to the host.
    ("HostRefused", Made(Hosts, "nothing listens at the port")),
    ("HostTimedOut", Made(Hosts, "the port answers nothing")),
    (
        "HostLoginTimedOut",
        Made(Hosts, "the port takes connections and says nothing"),
    ),
    ("HostAuthentication", Made(Hosts, "the key is a stranger's")),
    (
        "HostKeyChanged",
        Made(Hosts, "known_hosts has another key of the host"),
    ),
    (
        "HostNoRoute",
        Not("the network of tests has a route to everywhere"),
    ),
    ("HostUnresolved", OF_PROBE),
    ("HostNotSsh", OF_PROBE),
    ("HostKeyUnknown", OF_PROBE),
    ("HostPythonTooOld", OF_PROBE),
    ("HostBroken", OF_PROBE),
    (
        "HostForwarding",
        Not("a probe finds it: crates/ansible/tests/hosts/bastion.rs"),
    ),
    // What the user of a task lacks.
    ("HostSudo", Made(Hosts, "sudo asks the user for a password")),
    (
        "HostNoPython",
        Made(Hosts, "the interpreter that is set is not there"),
    ),
    ("PermissionDenied", Made(Hosts, "a user reads /etc/shadow")),
    (
        "ProgramMissing",
        Made(Hosts, "a command and a shell start what is not installed"),
    ),
    // Packages.
    (
        "PackageManagerLocked",
        Made(Hosts, "another process holds the lock of dpkg"),
    ),
    (
        "PackagesInterrupted",
        Made(Hosts, "dpkg has an update that was broken off"),
    ),
    (
        "RepositoryUntrusted",
        Made(Hosts, "apt reads a repository without a signature"),
    ),
    (
        "NotInMirror",
        Made(
            Hosts,
            "apt installs what no repository has, and a server answers 404",
        ),
    ),
    // Disks, memory, the kernel.
    (
        "DiskFull",
        Made(Hosts, "a module and a program write to a full tmpfs"),
    ),
    (
        "InodesFull",
        Made(Hosts, "a file is made on a tmpfs without inodes"),
    ),
    (
        "ReadOnlyFileSystem",
        Made(
            Hosts,
            "a file is made on a tmpfs, and written in a bind mount, that take no writes",
        ),
    ),
    (
        "OutOfMemory",
        Made(Hosts, "a program wants more memory than its limit"),
    ),
    (
        "KernelLimit",
        Made(Hosts, "a program opens more files than its limit"),
    ),
    (
        "PortInUse",
        Made(Hosts, "a program listens where another one does"),
    ),
    ("DiskBroken", OF_KERNEL),
    ("KernelModuleMissing", OF_KERNEL),
    ("KernelSettings", OF_KERNEL),
    ("TooSmall", OF_KERNEL),
    // What hosts fetch.
    ("NameUnresolved", Made(Hosts, "the name server is nobody")),
    (
        "Network",
        Made(Hosts, "a download from a port where nothing listens"),
    ),
    (
        "DownloadTimedOut",
        Made(Hosts, "a server that does not answer"),
    ),
    ("DownloadRefused", Made(Hosts, "a server answers 401")),
    ("TooManyRequests", Made(Hosts, "a server answers 429")),
    (
        "ChecksumMismatch",
        Made(Hosts, "a download has another checksum"),
    ),
    (
        "CertificateExpired",
        Made(Hosts, "a server with a certificate of 2000"),
    ),
    (
        "CertificateUntrusted",
        Made(Hosts, "a server with a certificate of nobody known"),
    ),
    (
        "TimeSkew",
        Made(Hosts, "a server with a certificate of 2100"),
    ),
    (
        "ImageMissing",
        Made(
            Cluster,
            "an image is pulled that the registry does not have",
        ),
    ),
    // The cluster's own programs.
    (
        "KubeadmPreflight",
        Made(Cluster, "kubeadm is not started by root"),
    ),
    (
        "Cgroups",
        Made(Cluster, "kubeadm finds no controller of memory"),
    ),
    (
        "LeftFromBefore",
        Made(Cluster, "kubeadm joins a host that has joined"),
    ),
    (
        "SwapOn",
        Made(Cluster, "the kubelet starts on a host with swap"),
    ),
    (
        "ApiServerDown",
        Made(Cluster, "kubectl asks a port where nothing listens"),
    ),
    (
        "ContainerEngineDown",
        Made(Cluster, "the kubelet asks a socket that is not there"),
    ),
    (
        "QuorumLost",
        Made(Cluster, "one of two members of etcd is killed"),
    ),
    (
        "EtcdSlow",
        Not("whether etcd is too slow depends on the moment"),
    ),
    (
        "PodsHeld",
        Not("a drain tells it as BudgetForbids: tests/e2e/tests/stories/first_cluster.rs"),
    ),
    (
        "KubeconfigMissing",
        Not("it follows from a step that was skipped"),
    ),
    (
        "JobNotCompleted",
        Not("whether a Job of kubeadm is too slow depends on the moment"),
    ),
    ("ServiceDown", Not("it follows from another failure")),
    ("ServiceNotStarted", Not("it follows from another failure")),
    // The playbook and its process.
    ("PlaybookSyntax", OF_PLAYBOOK),
    ("FilterMissing", OF_PLAYBOOK),
    ("UndefinedVariable", OF_PLAYBOOK),
    ("AssertionFailed", OF_PLAYBOOK),
    (
        "ModuleFailed",
        Not("what breaks a module off has a code of its own where it says so"),
    ),
    ("TimedOut", OF_PROCESS),
    ("HostsMissing", OF_PROCESS),
    (
        "HostUnreachable",
        Not("what ssh says of the host has a code of its own"),
    ),
    ("Killed", OF_PROCESS),
    ("Crashed", OF_PROCESS),
    ("TaskFailed", Not("it is every failure that is not known")),
];
