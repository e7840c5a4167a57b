//! Faults made for real with the programs of a built cluster, on one of its hosts: what they say must be told by its code. Those that
//! need no cluster are in `crates/ansible/tests/hosts/failures.rs`.

use std::collections::BTreeSet;

use ansible::{failure::Suite, playbook::failure_of_text};
use e2e::Stage;

/// A shell function that asks kubeadm about a host as it was before the cluster: `$1` is done to it first.
const BARE: &str = r#"
PATH=$PATH:/usr/local/bin
asked() {
  unshare --mount --net sh -ec "
    mount -t tmpfs tmpfs /etc/kubernetes
    echo 1 > /proc/sys/net/ipv4/ip_forward
    $1
    timeout 60 $2 kubeadm join phase preflight 127.0.0.1:1 --token abcdef.0123456789abcdef \
      --discovery-token-unsafe-skip-ca-verification" 2>&1
}
"#;

/// The codes, and what meets each on a worker.
const FAULTS: [(&str, &str); 8] = [
    (
        "KubeadmPreflight",
        "asked : 'setpriv --reuid=65534 --clear-groups'",
    ),
    (
        "Cgroups",
        "controllers=/sys/fs/cgroup/cgroup.controllers
         if [ -e $controllers ]; then echo cpu cpuset io pids > /root/few
         else controllers=/proc/cgroups; grep -v '^memory' $controllers > /root/few; fi
         asked \"mount --bind /root/few $controllers\"",
    ),
    ("LeftFromBefore", "asked 'umount /etc/kubernetes'"),
    (
        "SwapOn",
        "printf 'Filename Type Size Used Priority\\n/dev/sda2 partition 1048572 0 -2\\n' > /root/swaps
         unshare --mount --net sh -c 'mount --bind /root/swaps /proc/swaps; timeout 60 kubelet --root-dir=/root/none \
           --container-runtime-endpoint=unix:///run/containerd/containerd.sock' 2>&1",
    ),
    (
        "ApiServerDown",
        "kubectl --kubeconfig=/dev/null --token=none --server=https://127.0.0.1:1 get --raw /readyz 2>&1",
    ),
    (
        "ContainerEngineDown",
        "timeout 60 kubelet --root-dir=/root/none --container-runtime-endpoint=unix:///run/none.sock 2>&1",
    ),
    (
        "ImageMissing",
        "mkdir -p /root/empty; python3 -m http.server 5099 --bind 127.0.0.1 --directory /root/empty > /dev/null 2>&1 & server=$!
         until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 5099))' 2> /dev/null; do sleep 0.1; done
         ctr --namespace k8s.io images pull --plain-http 127.0.0.1:5099/none:1 2>&1
         kill $server",
    ),
    // One of two members is left.
    (
        "QuorumLost",
        "member() {
           etcd --name $1 --data-dir /root/etcd-$1 --listen-client-urls http://127.0.0.1:$2 --advertise-client-urls http://127.0.0.1:$2 \
             --listen-peer-urls http://127.0.0.1:$3 --initial-advertise-peer-urls http://127.0.0.1:$3 \
             --initial-cluster a=http://127.0.0.1:5102,b=http://127.0.0.1:5104 > /dev/null 2>&1 &
         }
         member a 5101 5102; a=$!
         member b 5103 5104; b=$!
         until etcdctl --endpoints 127.0.0.1:5101,127.0.0.1:5103 endpoint health > /dev/null 2>&1; do sleep 0.2; done
         kill $b; wait $b
         until etcdctl --endpoints 127.0.0.1:5101 endpoint status 2>&1 | grep -q 'no leader'; do sleep 0.2; done
         etcdctl --endpoints 127.0.0.1:5101 endpoint status 2>&1
         kill $a",
    ),
];

/// What the table says that is made here.
#[test]
fn what_is_claimed_to_be_made_here_is_made() {
    let made: BTreeSet<&str> = FAULTS.iter().map(|(code, _)| *code).collect();
    assert_eq!(made, Suite::Cluster.codes().collect());
}

/// Meets them all, those of etcd's and kubectl's programs where these are: on the control plane.
pub(crate) fn by_their_codes(stage: &Stage) {
    let hosts = stage.lab.hosts();
    let mut wrong = Vec::new();
    for (code, script) in FAULTS {
        let host = match code {
            "QuorumLost" | "ApiServerDown" => &hosts[0],
            _ => &hosts[1],
        };
        let answer = stage.lab.ssh(&host.name, &format!("{BARE}{script}"));
        let said = String::from_utf8_lossy(&answer.unwrap().stdout).into_owned();
        let told = failure_of_text(&said);
        if told.code != code {
            wrong.push(format!("{code} is told as {}: {said}", told.code));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
