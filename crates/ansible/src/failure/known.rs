//! The kinds of failures.
//!
//! A remedy that does not fit the cause costs more than none: an entry that would take in what it has no remedy for is cut
//! narrower, and what is left is told as it is.

use api::run::FailureClass::{self, Config, External, Permanent, Transient};

use super::{
    Kind,
    Rank::{self, Cause, Symptom},
};

const fn by_words(
    code: &'static str,
    (class, rank): (FailureClass, Rank),
    pattern: &'static str,
    meaning: &'static str,
    remedy: &'static str,
) -> Kind {
    Kind {
        code,
        class,
        meaning,
        remedy,
        rank,
        pattern: Some(pattern),
    }
}

const fn by_verdict(
    code: &'static str,
    class: FailureClass,
    meaning: &'static str,
    remedy: &'static str,
) -> Kind {
    Kind {
        code,
        class,
        meaning,
        remedy,
        rank: Symptom,
        pattern: None,
    }
}

/// By how a play ended, and not by its words.
pub static VERDICTS: [Kind; 6] = [
    by_verdict(
        "TimedOut",
        Transient,
        "The step took longer than its timeout and was killed.",
        "It is tried again; give the step more time if its hosts are slow.",
    ),
    by_verdict(
        "HostsMissing",
        Permanent,
        "The playbook came to its end without hosts that it was started for.",
        "Look into the step's log: the play does not match these hosts.",
    ),
    by_verdict(
        "HostUnreachable",
        External,
        "A host was not reached.",
        "Bring the host back, or leave it out; then retry the step.",
    ),
    by_verdict(
        "Killed",
        Transient,
        "Ansible was killed on this machine.",
        "It is tried again. If it happens again, look for the out-of-memory killer in the kernel's log.",
    ),
    by_verdict(
        "Crashed",
        Permanent,
        "Ansible ended before its end.",
        "Look into the step's log.",
    ),
    by_verdict(
        "TaskFailed",
        Permanent,
        "A task failed with words that Windlass does not know.",
        "Look into the step's log, then retry the step.",
    ),
];

/// By their words. The first that fits wins: what is more particular stands first, and causes before what follows from them.
pub static KINDS: [Kind; 53] = [
    by_words(
        "HostKeyChanged",
        (External, Cause),
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key verification failed",
        "A host shows another key than the one that is known.",
        "If the host was made anew, remove its line from the cluster's known_hosts; otherwise find out who answers at its address.",
    ),
    by_words(
        "HostAuthentication",
        (Config, Cause),
        r"Permission denied \((publickey|password|keyboard|gssapi)|Too many authentication failures",
        "A host does not accept the ssh user and key.",
        "Put the cluster's public key into authorized_keys of the ssh user on the host, or correct ssh.user and ssh.privateKeySecretRef.",
    ),
    by_words(
        "HostRefused",
        (External, Cause),
        r"connect to host \S+ port \d+: Connection refused",
        "Nothing listens at the host's ssh port.",
        "Start sshd on the host, or correct its address and port; then retry the step.",
    ),
    by_words(
        "HostLoginTimedOut",
        (External, Cause),
        r"timed out during banner exchange|Timeout, server \S+ not responding",
        "A host takes the connection, and its sshd says nothing.",
        "Log in by hand and look what it waits for: disks, name service, load.",
    ),
    by_words(
        "HostTimedOut",
        (External, Cause),
        r"connect to host \S+ port \d+: (Connection|Operation) timed out|Connection to \S+ port \d+ timed out",
        "Nothing answers at the host's ssh port.",
        "Start the host, or mend the network or firewall between; then retry the step.",
    ),
    by_words(
        "HostNoRoute",
        (External, Cause),
        r"connect to host \S+ port \d+: (No route to host|Network is unreachable)",
        "There is no way to the host.",
        "Start the host, or mend the network between; then retry the step.",
    ),
    by_words(
        "HostUnresolved",
        (External, Cause),
        r"ssh: Could not resolve hostname",
        "The host's name has no address.",
        "Correct spec.inventory.ansible_host of its ClusterNode.",
    ),
    by_words(
        "PackageManagerLocked",
        (Transient, Cause),
        r"(?i)could not get lock|unable to (acquire|lock)[^\n]*(dpkg|apt)|Failed to lock apt|dpkg frontend lock|another app is currently holding the (yum|dnf) lock|waiting for process with pid \d+ to finish",
        "Another program installs packages on the host.",
        "Another program installs packages on the host; it is tried again.",
    ),
    by_words(
        "PackagesInterrupted",
        (External, Cause),
        r"(?i)dpkg was interrupted|dpkg --configure -a",
        "An earlier installation of packages was broken off.",
        "Run dpkg --configure -a on the host, then retry the step.",
    ),
    // The kernel says of both that there is no space, and of watches too.
    by_words(
        "KernelLimit",
        (External, Cause),
        r"(?i)too many open files|inotify[^\n]*(no space left|limit)|user limit on (the total number of )?inotify|fork: (retry: )?resource temporarily unavailable",
        "A limit of the host's kernel is reached: open files, watches or processes.",
        "Raise the limit that the message names (fs.inotify.max_user_instances and max_user_watches, fs.file-max, kernel.pid_max, nofile) with sysctl or limits.conf, then retry the step.",
    ),
    by_words(
        "InodesFull",
        (External, Cause),
        r"(?i)no free inodes|out of inodes|no inodes left",
        "A file system has no inode left for another file.",
        "Remove files, not bytes: df -i says where; old images and logs of many small files are the usual ones. Then retry the step.",
    ),
    by_words(
        "DiskFull",
        (External, Cause),
        r"(?i)no space left on device|disk quota exceeded|you don't have enough free space|at least \d+\S* more space needed",
        "A disk is full.",
        "Free space on the disk, then retry the step.",
    ),
    by_words(
        "ReadOnlyFileSystem",
        (External, Cause),
        r"(?i)read-only file system",
        "A file system of the host cannot be written.",
        "Mount the file system writable, then retry the step. One that turned so by itself has a broken disk: see the kernel's log.",
    ),
    by_words(
        "DiskBroken",
        (External, Cause),
        r"(?i)\binput/output error|structure needs cleaning|bad superblock",
        "A disk of the host does not read or write.",
        "Look into the kernel's log for the disk, and replace it or check its file system before the step is retried.",
    ),
    by_words(
        "HostSudo",
        (Config, Cause),
        r"(?i)missing sudo password|sudo: a password is required|a terminal is required to read the password|is not in the sudoers file|incorrect sudo password|is not allowed to execute",
        "The ssh user may not become root without a password.",
        "Let the ssh user run sudo without a password on the host.",
    ),
    by_words(
        "OutOfMemory",
        (External, Cause),
        r"(?i)cannot allocate memory|\bMemoryError\b|out of memory|oom-kill|OOMKilled",
        "A program got no memory.",
        "Give the host more memory, or end what takes it (the kernel's log names who was killed); then retry the step.",
    ),
    by_words(
        "SwapOn",
        (External, Cause),
        r"(?i)running with swap on is not supported|\[ERROR Swap\]",
        "Swap is on, and the kubelet does not start with it.",
        "Switch swap off: swapoff -a, and take it out of /etc/fstab; or set kubelet_fail_swap_on to false.",
    ),
    by_words(
        "PortInUse",
        (External, Cause),
        r"(?i)\[ERROR Port-\d+\]|address already in use|port \d+ is in use|port is already allocated",
        "A port that the cluster needs is taken by another program.",
        "Find the program (ss -ltnp) and end it, or reset the host if an earlier cluster left it; then retry the step.",
    ),
    by_words(
        "LeftFromBefore",
        (External, Cause),
        r"\[ERROR (FileAvailable|DirAvailable)-|member \S+ has already been bootstrapped|request cluster ID mismatch|cluster ID mismatch",
        "The host has files of an earlier cluster.",
        "Look first whether another cluster still uses the host. Where the cluster is built: windlass node reset NAME, after which the host joins by a run of its own. Where it is being created: kubeadm reset on the host, remove /etc/kubernetes and /var/lib/etcd, then retry the step.",
    ),
    by_words(
        "TooSmall",
        (External, Cause),
        r"\[ERROR (Mem|NumCPU)\]|system RAM \([^)]*\) is less than the minimum",
        "The host has less memory or fewer processors than Kubernetes needs.",
        "Give the host more, or another role.",
    ),
    by_words(
        "Cgroups",
        (External, Cause),
        r"(?i)missing (required|optional) cgroups|cgroup[s ]*(v1 )?(support )?(is )?(not (mounted|supported)|in maintenance mode|unsupported)|cgroup driver[^\n]{0,80}(different|mismatch)|misconfiguration: kubelet cgroup driver|no cgroup mount found|failed to (create|load|get)[^\n]{0,60}cgroup|cgroups: cannot found",
        "The host's control groups are not what the kubelet and the container engine need.",
        "Let the kernel mount all controllers (systemd.unified_cgroup_hierarchy=1, cgroup_enable=memory), and let kubelet and container engine use the same driver (kubelet_cgroup_driver, containerd_use_systemd_cgroup).",
    ),
    by_words(
        "KernelSettings",
        (External, Cause),
        r"\[ERROR FileContent-|bridge-nf-call-iptables[^\n]*(does not exist|not set to 1|No such file)|ip_forward contents are not set to 1|(?i)sysctl: cannot stat /proc/sys",
        "A setting of the kernel that pods need is not made, or its module is not loaded.",
        "Load br_netfilter and overlay, and set the sysctls that the message names; then retry the step.",
    ),
    by_words(
        "KernelModuleMissing",
        (External, Cause),
        r"(?i)modprobe: (FATAL|ERROR): (Module|could not)|module \S+ not found in (directory )?/lib/modules",
        "The running kernel has no such module.",
        "Install the modules of the running kernel (linux-modules-extra), or restart the host into the kernel that is installed; then retry the step.",
    ),
    by_words(
        "TimeSkew",
        (External, Cause),
        r"(?i)certificate is not yet valid|is not valid yet|clock difference against peer[^\n]*too high|clock skew|is not yet valid: current time \S+ is before",
        "The clock of a host is wrong: what was just made is in its future.",
        "Set the clock and let it be kept: chronyc makestep, timedatectl set-ntp true, ntp_enabled of the playbooks; then retry the step.",
    ),
    by_words(
        "CertificateExpired",
        (External, Cause),
        r"(?i)certificate has expired|certificate expired|CERTIFICATE_VERIFY_FAILED\S* certificate verify failed: certificate has expired|\bexpired (client |server )?certificate\b",
        "A certificate is past its end.",
        "Of the cluster's own: windlass renew. Of a mirror or registry: whoever runs it renews it. If the certificate is good, look at the host's clock.",
    ),
    by_words(
        "CertificateUntrusted",
        (External, Cause),
        r"(?i)certificate signed by unknown authority|self[- ]signed certificate|unable to get local issuer certificate|certificate is valid for [^\n]*, not |doesn't match any of|hostname mismatch",
        "A certificate is of nobody the host trusts, or for another name.",
        "Give the host the authority of the mirror or registry that the message names, or name the server as its certificate does.",
    ),
    // What a shell or a program calls a syntax error is not the playbook's.
    by_words(
        "PlaybookSyntax",
        (Config, Cause),
        r"(?i)syntax error while loading yaml|YAML parsing failed|unexpected parameter type in action|couldn't resolve module/action|is not a valid attribute for a|the playbook: \S+ could not be found|conflicting action statements|no module/action detected",
        "Ansible cannot read the playbook.",
        "The playbook source is broken: compare it with the release, or choose another source.",
    ),
    by_words(
        "FilterMissing",
        (Config, Cause),
        r#"(?i)No filter named|No test named|Could not load "[^"]+": '"#,
        "A template uses a filter or test that the release's Ansible does not have.",
        "A template uses a filter or test that the release's Ansible does not have: correct its name where it is one of extraVars; otherwise the source is not the release that it says it is.",
    ),
    // Python says of objects of its own that they have no attribute, with the quotes elsewhere.
    by_words(
        "UndefinedVariable",
        (Config, Cause),
        r"(?i)' is undefined|object' has no attribute|'None' has no attribute|object of type '\w+' has no attribute|object has no element|undefined variable|AnsibleUndefined|mandatory variable '",
        "The playbook needs a variable that nobody set.",
        "Set the variable in spec.nodes.all.deploy.extraVars of the Cluster, or in spec.inventory of its ClusterNodes.",
    ),
    by_words(
        "QuorumLost",
        (External, Cause),
        r"(?i)etcdserver: (no leader|unhealthy cluster|re-configuration failed due to not enough started members)|unhealthy cluster|has no leader|lost (its )?quorum",
        "Too few members of etcd work: it takes no change.",
        "Bring the members back that are missing (journalctl -u etcd on them). Where they are lost for good: windlass recover.",
    ),
    by_words(
        "EtcdSlow",
        (Transient, Symptom),
        r"(?i)etcdserver: (request timed out|leader changed|too many requests)",
        "etcd has not answered in time: it changed its leader, or its disk is slow.",
        "It is tried again. If it stays, look at the disks of its members (journalctl -u etcd says how long each write takes).",
    ),
    by_words(
        "PodsHeld",
        (External, Cause),
        r"(?i)violate the pod's disruption budget|needs \d+ healthy pods and has \d+ currently|global timeout reached|cannot delete (Pods|DaemonSet-managed Pods)[^\n]*--(force|ignore-daemonsets|delete)",
        "Pods do not leave a node: a PodDisruptionBudget holds them, or nobody would make them anew.",
        "See which pods the message names: add a replica, loosen their PodDisruptionBudget, or delete them; then retry the step.",
    ),
    // Without one kubectl asks a server on localhost:8080, which refuses.
    by_words(
        "KubeconfigMissing",
        (Permanent, Symptom),
        r"(?i)localhost:8080|(admin\.conf|kubeconfig)[^\n]{0,80}(no such file|not found|does not exist)|(no such file|not found|does not exist)[^\n]{0,60}(admin\.conf|kubeconfig)|failed to load admin kubeconfig|no configuration has been provided",
        "The host has no kubeconfig: its control plane was not brought up.",
        "The host has no kubeconfig: its control plane was not brought up. Look whether the step that does it (control-plane) failed or was skipped, and retry the run from there; to skip it leads here again.",
    ),
    // A new kubelet has just restarted the controller manager, which leads again a quarter of a minute later.
    by_words(
        "JobNotCompleted",
        (Transient, Symptom),
        r"\[ERROR CreateJob\]: [^\n]*did not complete in",
        "A Job by which kubeadm looks at the cluster's health did not complete.",
        "kubeadm gives a Job of its own a quarter of a minute to complete, and it did not; it is tried again. Look whether the controller manager and the scheduler run, and whether a node that takes pods can pull the pause image.",
    ),
    by_words(
        "ContainerEngineDown",
        (Transient, Symptom),
        r"(?i)\[ERROR CRI\]|container runtime is not running|(containerd|crio|cri-dockerd|docker)\.sock[^\n]*(connection refused|no such file|connect:)|validate (service connection|CRI v1 runtime API)",
        "The container engine does not answer on its host.",
        "It is tried again. Look at it on the host (systemctl status containerd, journalctl -u containerd).",
    ),
    // Not what a host fetches from elsewhere, but what runs, or does not, on the cluster's own hosts.
    by_words(
        "ApiServerDown",
        (Transient, Symptom),
        r"(?i)the connection to the server \S+ was refused|(dial tcp |https?://)\S*:6443[^\n]*(refused|timeout|deadline|EOF)",
        "The cluster's API server does not answer.",
        "The cluster's API server does not answer; it is tried again. Look on the first control plane at its container, at etcd and at the kubelet (journalctl -u kubelet).",
    ),
    by_words(
        "ServiceDown",
        (Transient, Symptom),
        r"(?i)(127\.0\.0\.1|localhost|\[::1\]|:2379|:2380)[^\n]*connection refused|connection refused[^\n]*(127\.0\.0\.1|localhost|\[::1\])|etcd cluster is unavailable",
        "A service of the cluster's own hosts does not answer.",
        "A service of the cluster's own hosts does not answer at the address that the message names; it is tried again. Look at it there (journalctl -u etcd, containerd, kubelet).",
    ),
    by_words(
        "TooManyRequests",
        (External, Cause),
        r"(?i)toomanyrequests|HTTP Error 429|429 Too Many Requests",
        "A registry or server has had too many requests from here.",
        "Wait until it takes requests again, log in to it, or use a mirror (registry_host, files_repo); then retry the step.",
    ),
    by_words(
        "DownloadRefused",
        (External, Cause),
        r"(?i)HTTP Error 40[137]|\b40[137] (Unauthorized|Forbidden|Proxy)|pull access denied|unauthorized: |authentication required|authorization failed|no basic auth credentials",
        "A registry or server answers and refuses.",
        "The place that the message names answers and refuses: it wants a login. Set its credentials, or use a mirror.",
    ),
    by_words(
        "ImageMissing",
        (External, Cause),
        r"(?i)manifest unknown|manifest for \S+ not found|failed to resolve reference[^\n]*: not found|ErrImageNeverPull|repository \S+ not found|name unknown",
        "A registry does not have the image.",
        "Look whether the image and its tag exist, and whether the registry or mirror that is set holds them; then retry the step.",
    ),
    by_words(
        "NotInMirror",
        (External, Cause),
        r"(?i)HTTP Error 404|404 +Not Found|unable to locate package|no package matching|No match for argument",
        "A server or package repository does not have what is asked of it.",
        "The place that the message names does not have it: look whether the version exists, and whether the mirror, registry or package repository that is set holds it.",
    ),
    by_words(
        "RepositoryUntrusted",
        (External, Cause),
        r"NO_PUBKEY|(?i)the repository '[^']*' is not signed|GPG (error|check FAILED)|public key for \S+ is not installed",
        "A package repository is signed by nobody the host knows.",
        "Give the host the key of the repository that the message names, then retry the step.",
    ),
    by_words(
        "NameUnresolved",
        (Transient, Cause),
        r"(?i)temporary failure in name resolution|temporary failure resolving|could not resolve host|name or service not known|no such host|server misbehaving|no address associated with hostname",
        "The host cannot resolve a name.",
        "The host cannot resolve a name; it is tried again. Check the host's DNS servers (/etc/resolv.conf), and the name where a mirror is set.",
    ),
    by_words(
        "DownloadTimedOut",
        (Transient, Cause),
        r"(?i)TLS handshake timeout|i/o timeout|request canceled while waiting for connection|Client\.Timeout exceeded|the (read|handshake) operation timed out|connection (failure: )?timed out|urlopen error timed out|context deadline exceeded|\b504\b[^\n]*gateway",
        "A registry or server does not answer in time.",
        "It is tried again. Check the host's network, proxy and mirrors, or use a mirror that is nearer.",
    ),
    by_words(
        "Network",
        (Transient, Cause),
        r"(?i)failed to fetch|connection timed out|connection refused|connection reset by peer|network is unreachable|no route to host|request failed|\b50[23]\b[^\n]*(gateway|unavailable)",
        "The host could not reach what the message names.",
        "The host could not reach what the message names; it is tried again. Where that lies outside of the cluster, check the host's network, proxy and mirrors.",
    ),
    by_words(
        "ChecksumMismatch",
        (External, Cause),
        r"(?i)checksum (mismatch|did not match)|destination checksum|checksum for \S+ did not match|hash sum mismatch|unexpected commit digest|digest mismatch",
        "A download is not what the release expects.",
        "A download is not what the release expects: check the mirror.",
    ),
    by_words(
        "ServiceNotStarted",
        (External, Symptom),
        r"(?i)unable to (re)?start service|Job for \S+\.service failed|A dependency job for|control process exited with error code",
        "A service of the host does not start.",
        "Look on the host why (systemctl status and journalctl -u of the service that the message names), then retry the step.",
    ),
    by_words(
        "HostNoPython",
        (External, Cause),
        r"(?i)python[^\n]*(not found|no such file)|requires python|future feature annotations is not defined",
        "The host has no Python that the modules can use.",
        "Install a Python that the kubespray release supports on the host.",
    ),
    by_words(
        "ProgramMissing",
        (External, Symptom),
        r"(?im)\[ERROR FileExisting-|\[Errno 2\] No such file or directory: b'|: (command )?not found$|executable file not found in \$PATH|error executing command \(ENOENT\)",
        "The host does not have a program that a task starts.",
        "Install the program that the message names, or look which earlier step should have (it may have been skipped); then retry the step.",
    ),
    by_words(
        "KubeadmPreflight",
        (External, Cause),
        r"\[ERROR [A-Za-z][\w.-]*\]|\[preflight\] Some fatal errors occurred",
        "kubeadm looked at the host before it began, and refused.",
        "Correct on the host what the lines with [ERROR ...] name, then retry the step.",
    ),
    by_words(
        "PermissionDenied",
        (External, Symptom),
        r"(?i)permission denied|operation not permitted|destination \S+ not writable",
        "A file or an operation is not allowed to the user of the task.",
        "Give the ssh user, or the files that the message names, the rights that the task needs.",
    ),
    by_words(
        "ModuleFailed",
        (External, Symptom),
        r"MODULE FAILURE",
        "What Ansible ran on the host broke off.",
        "What Ansible ran on the host broke off: its last words are in the step's log. Where there are none, look for the out-of-memory killer in the kernel's log of the host.",
    ),
    by_words(
        "AssertionFailed",
        (Config, Symptom),
        r"(?i)assertion failed|Evaluated to false",
        "The playbook refuses what was asked for.",
        "The playbook refuses what was asked for: correct what the message names.",
    ),
];
