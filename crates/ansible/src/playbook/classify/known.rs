//! Kinds of failures that are known by their words, and what a person can do about each.
//!
//! A remedy that does not fit the cause costs more than none: an entry that would take in what it has no remedy for is cut
//! narrower, and what is left is told as it is.

use api::run::FailureClass;
use regex::RegexSet;

/// A kind of failure that is known by its words.
pub(super) struct Known {
    pattern: &'static str,
    pub(super) class: FailureClass,
    pub(super) code: &'static str,
    pub(super) remedy: &'static str,
}

/// The first that fits wins: what is more particular stands first.
const KNOWN: [Known; 22] = [
    Known {
        pattern: r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key verification failed",
        class: FailureClass::External,
        code: "HostKeyChanged",
        remedy: "If the host was made anew, remove its line from the cluster's known_hosts; otherwise find out who answers at its address.",
    },
    Known {
        pattern: r"Permission denied \((publickey|password|keyboard|gssapi)|Too many authentication failures",
        class: FailureClass::Config,
        code: "Authentication",
        remedy: "Put the cluster's public key into authorized_keys of the ssh user on the host, or correct ssh.user and ssh.privateKeySecretRef.",
    },
    Known {
        pattern: r"(?i)could not get lock|unable to (acquire|lock)[^\n]*(dpkg|apt)|Failed to lock apt|dpkg frontend lock|another app is currently holding the (yum|dnf) lock|waiting for process with pid \d+ to finish",
        class: FailureClass::Transient,
        code: "PackageManagerLocked",
        remedy: "Another program installs packages on the host; it is tried again.",
    },
    Known {
        pattern: r"(?i)no space left on device|disk quota exceeded|you don't have enough free space|at least \d+\S* more space needed",
        class: FailureClass::External,
        code: "DiskFull",
        remedy: "Free space on the disk, then retry the step.",
    },
    Known {
        pattern: r"(?i)missing sudo password|sudo: a password is required|is not in the sudoers file|incorrect sudo password",
        class: FailureClass::Config,
        code: "Sudo",
        remedy: "Let the ssh user run sudo without a password on the host.",
    },
    Known {
        pattern: r"(?i)read-only file system",
        class: FailureClass::External,
        code: "ReadOnlyFileSystem",
        remedy: "Mount the file system writable, then retry the step.",
    },
    // What a shell or a program calls a syntax error is not the playbook's.
    Known {
        pattern: r"(?i)syntax error while loading yaml|YAML parsing failed|unexpected parameter type in action|couldn't resolve module/action|is not a valid attribute for a|the playbook: \S+ could not be found|conflicting action statements|no module/action detected",
        class: FailureClass::Config,
        code: "PlaybookSyntax",
        remedy: "The playbook source is broken: compare it with the release, or choose another source.",
    },
    Known {
        pattern: r#"(?i)No filter named|No test named|Could not load "[^"]+": '"#,
        class: FailureClass::Config,
        code: "FilterMissing",
        remedy: "A template uses a filter or test that the release's Ansible does not have: correct its name where it is one of extraVars; otherwise the source is not the release that it says it is.",
    },
    // Python says of objects of its own that they have no attribute, with the quotes elsewhere.
    Known {
        pattern: r"(?i)' is undefined|object' has no attribute|'None' has no attribute|object of type '\w+' has no attribute|object has no element|undefined variable|AnsibleUndefined|mandatory variable '",
        class: FailureClass::Config,
        code: "UndefinedVariable",
        remedy: "Set the variable in spec.nodes.all.deploy.extraVars of the Cluster, or in spec.inventory of its ClusterNodes.",
    },
    // Without one kubectl asks a server on localhost:8080, which refuses.
    Known {
        pattern: r"(?i)localhost:8080|(admin\.conf|kubeconfig)[^\n]{0,80}(no such file|not found|does not exist)|(no such file|not found|does not exist)[^\n]{0,60}(admin\.conf|kubeconfig)|failed to load admin kubeconfig|no configuration has been provided",
        class: FailureClass::Permanent,
        code: "KubeconfigMissing",
        remedy: "The host has no kubeconfig: its control plane was not brought up. Look whether the step that does it (control-plane) failed or was skipped, and retry the run from there; to skip it leads here again.",
    },
    // A new kubelet has just restarted the controller manager, which leads again a quarter of a minute later.
    Known {
        pattern: r"\[ERROR CreateJob\]: [^\n]*did not complete in",
        class: FailureClass::Transient,
        code: "JobNotCompleted",
        remedy: "kubeadm gives a Job of its own a quarter of a minute to complete, and it did not; it is tried again. Look whether the controller manager and the scheduler run, and whether a node that takes pods can pull the pause image.",
    },
    // Not what a host fetches from elsewhere, but what runs, or does not, on the cluster's own hosts.
    Known {
        pattern: r"(?i)the connection to the server \S+ was refused|(dial tcp |https?://)\S*:6443[^\n]*(refused|timeout|deadline|EOF)",
        class: FailureClass::Transient,
        code: "ApiServerDown",
        remedy: "The cluster's API server does not answer; it is tried again. Look on the first control plane at its container, at etcd and at the kubelet (journalctl -u kubelet).",
    },
    Known {
        pattern: r"(?i)(127\.0\.0\.1|localhost|\[::1\]|:2379|:2380)[^\n]*connection refused|connection refused[^\n]*(127\.0\.0\.1|localhost|\[::1\])|etcd cluster is unavailable",
        class: FailureClass::Transient,
        code: "ServiceDown",
        remedy: "A service of the cluster's own hosts does not answer at the address that the message names; it is tried again. Look at it there (journalctl -u etcd, containerd, kubelet).",
    },
    Known {
        pattern: r"(?i)HTTP Error 404|404 +Not Found|manifest unknown|manifest for \S+ not found|unable to locate package|no package matching|No match for argument",
        class: FailureClass::External,
        code: "NotInMirror",
        remedy: "The place that the message names does not have it: look whether the version exists, and whether the mirror, registry or package repository that is set holds it.",
    },
    Known {
        pattern: r"(?i)HTTP Error 40[137]|pull access denied|unauthorized: |authentication required|toomanyrequests|HTTP Error 429",
        class: FailureClass::External,
        code: "DownloadRefused",
        remedy: "The place that the message names answers and refuses: it wants a login, or has had too many requests. Set its credentials, or use a mirror.",
    },
    Known {
        pattern: r"(?i)temporary failure in name resolution|could not resolve host|name or service not known|no such host|server misbehaving",
        class: FailureClass::Transient,
        code: "Network",
        remedy: "The host cannot resolve a name; it is tried again. Check the host's DNS servers (/etc/resolv.conf), and the name where a mirror is set.",
    },
    Known {
        pattern: r"(?i)failed to fetch|connection timed out|connection refused|network is unreachable|no route to host|request failed|TLS handshake timeout|\b50[234]\b[^\n]*(gateway|unavailable)|i/o timeout",
        class: FailureClass::Transient,
        code: "Network",
        remedy: "The host could not reach what the message names; it is tried again. Where that lies outside of the cluster, check the host's network, proxy and mirrors.",
    },
    Known {
        pattern: r"(?i)checksum (mismatch|did not match)|destination checksum",
        class: FailureClass::External,
        code: "ChecksumMismatch",
        remedy: "A download is not what the release expects: check the mirror.",
    },
    Known {
        pattern: r"(?i)permission denied|operation not permitted",
        class: FailureClass::External,
        code: "PermissionDenied",
        remedy: "Give the ssh user, or the files that the message names, the rights that the task needs.",
    },
    Known {
        pattern: r"(?i)python[^\n]*(not found|no such file)|requires python|future feature annotations is not defined",
        class: FailureClass::External,
        code: "Python",
        remedy: "Install a Python that the kubespray release supports on the host.",
    },
    Known {
        pattern: r"MODULE FAILURE",
        class: FailureClass::External,
        code: "ModuleFailed",
        remedy: "What Ansible ran on the host broke off: its last words are in the step's log. Where there are none, look for the out-of-memory killer in the kernel's log of the host.",
    },
    Known {
        pattern: r"(?i)assertion failed|Evaluated to false",
        class: FailureClass::Config,
        code: "AssertionFailed",
        remedy: "The playbook refuses what was asked for: correct what the message names.",
    },
];

/// The kind that fits a text.
pub(super) fn known(text: &str) -> Option<&'static Known> {
    static PATTERNS: std::sync::LazyLock<Option<RegexSet>> =
        std::sync::LazyLock::new(|| RegexSet::new(KNOWN.iter().map(|known| known.pattern)).ok());
    let first = PATTERNS.as_ref()?.matches(text).iter().next()?;
    KNOWN.get(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_compile_and_tell_kinds_apart() {
        RegexSet::new(KNOWN.iter().map(|known| known.pattern)).expect("patterns");
        for (text, code) in [
            (
                "Failed to lock apt for exclusive operation: E:Could not get lock /var/lib/dpkg/lock",
                "PackageManagerLocked",
            ),
            ("[Errno 28] No space left on device", "DiskFull"),
            (
                "root@10.0.0.1: Permission denied (publickey).",
                "Authentication",
            ),
            ("Permission denied: '/etc/shadow'", "PermissionDenied"),
            ("ERROR! Syntax Error while loading YAML.", "PlaybookSyntax"),
            ("sh: 1: Syntax error: \"(\" unexpected", ""),
            ("Missing sudo password", "Sudo"),
            ("something else", ""),
            (
                "[preflight] Some fatal errors occurred:\n\t[ERROR CreateJob]: Job \"upgrade-health-check-1\" in the namespace \
                 \"kube-system\" did not complete in 15s: no condition of type Complete",
                "JobNotCompleted",
            ),
            // Undefined, as ansible-core 2.14 to 2.19 say it, and what is not.
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
            // What runs on the hosts, and what they fetch.
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
                "Request failed: <urlopen error [Errno 111] Connection refused>",
                "Network",
            ),
            ("Request failed: HTTP Error 404: Not Found", "NotInMirror"),
            ("HTTP Error 401: Unauthorized", "DownloadRefused"),
            ("curl: (6) Could not resolve host: dl.k8s.io", "Network"),
            ("dial tcp: lookup registry.k8s.io: no such host", "Network"),
            ("/bin/sh: 1: /usr/bin/python3: not found", "Python"),
            (
                "MODULE FAILURE\nSee stdout/stderr for the exact error",
                "ModuleFailed",
            ),
            ("Assertion failed", "AssertionFailed"),
        ] {
            let found = known(text).map_or("", |known| known.code);
            assert_eq!(found, code, "{text}");
        }
    }
}
