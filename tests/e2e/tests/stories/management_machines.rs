//! Real machines: providers that Windlass installs make throw-away hosts a real cluster by cloud-init and kubeadm, take a worker away and
//! delete the cluster, and the hosts are free again. Root is needed.

use std::time::{Duration, Instant};

use e2e::{Hosts, Management, PROVIDERS, is_true, wait_until, windlass};
use lab::{command::output, progress::Terminal};
use serde_json::Value;

mod objects;

/// A control plane comes up in a minute on an idle machine.
const LIMIT: Duration = Duration::from_mins(10);
const NAME: &str = "real";

#[test]
fn a_cluster_of_real_machines_is_raised_by_kubeadm() {
    let began = Instant::now();
    let tell = |what: &str| eprintln!("{:>5.1} s: {what}", began.elapsed().as_secs_f64());
    let terminal = Terminal::default();
    let management = Management::set_beside_machines(windlass().unwrap(), 2, &terminal).unwrap();
    tell("the management cluster is there");
    let [_, newest] = Management::VERSIONS;
    management.preload(newest).unwrap();
    let [of_cluster_api @ .., _in_memory] = PROVIDERS;
    for provider in of_cluster_api {
        management.declare(provider, newest).unwrap();
    }
    for provider in of_cluster_api {
        management.installed(provider, newest).unwrap();
    }
    let hosts = Hosts::install(&management).unwrap();
    tell("providers are installed");
    assert_eq!(free(&hosts), ["host-2", "host-3"]);

    let objects = objects::cluster(NAME, management.node.version(), &management.node.etcd_tag());
    management.apply(&objects).unwrap();
    wait(&hosts, &management, "the cluster to be Available", || {
        Ok(management.is_available(NAME)? && running(&management)? == 2)
    });
    tell("the cluster is Available");
    let both = ["host-2 is Ready", "host-3 is Ready"];
    assert_eq!(nodes(&management).unwrap(), both);
    assert!(free(&hosts).is_empty());
    has_names_and_services(&management);

    let scale = [
        "scale",
        "machinedeployment.cluster.x-k8s.io",
        "real-worker",
        "--replicas=0",
    ];
    management.kubectl(&scale).unwrap();
    wait(&hosts, &management, "the worker to be gone", || {
        Ok(running(&management)? == 1 && nodes(&management)? == ["host-2 is Ready"])
    });
    tell("the worker is a host again");
    assert_eq!(free(&hosts), ["host-3"]);
    is_no_node(&management, "host-3");

    let delete = ["delete", "clusters.cluster.x-k8s.io", NAME, "--wait=false"];
    management.kubectl(&delete).unwrap();
    wait(&hosts, &management, "the cluster to be gone", || {
        let left = [
            "get",
            "clusters.cluster.x-k8s.io",
            NAME,
            "--ignore-not-found",
            "--output=name",
        ];
        Ok(management.kubectl(&left)?.is_empty())
    });
    tell("the cluster is gone");
    assert_eq!(free(&hosts), ["host-2", "host-3"]);
    is_no_node(&management, "host-2");
}

/// Waits while the hosts' provider works; where it is in vain, Windlass tells what the cluster waits for.
fn wait(
    hosts: &Hosts<'_>,
    management: &Management,
    what: &str,
    mut is_so: impl FnMut() -> anyhow::Result<bool>,
) {
    let waited = wait_until(what, LIMIT, || {
        hosts.work()?;
        Ok(is_so()?.then_some(()))
    });
    if let Err(error) = waited {
        let mut describe = management.windlass(&["--namespace", "default"]);
        describe.args(["describe", "cluster", NAME]);
        let described = output(&mut describe).unwrap_or_else(|error| format!("{error:#}"));
        panic!("{error:#}\n{described}");
    }
}

fn free(hosts: &Hosts<'_>) -> Vec<String> {
    let free = hosts.free().unwrap();
    free.into_iter().map(|host| host.name.clone()).collect()
}

/// How many Machines are Running.
fn running(management: &Management) -> anyhow::Result<usize> {
    let get = ["get", "machines.cluster.x-k8s.io", "--output=json"];
    let machines = items(&management.kubectl(&get)?)?;
    let running = machines
        .iter()
        .filter(|machine| machine["status"]["phase"] == "Running");
    Ok(running.count())
}

/// The nodes of the workload cluster, as its own API has them, each by the host's name.
fn nodes(management: &Management) -> anyhow::Result<Vec<String>> {
    let nodes = items(&management.kubectl_in(NAME, &["get", "nodes", "--output=json"])?)?;
    let told = nodes.iter().map(|node| {
        let id = node["spec"]["providerID"].as_str().unwrap_or_default();
        assert!(id.starts_with("host:///"), "{node:#}");
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let ready = if is_true(node, "Ready") {
            "is"
        } else {
            "is not"
        };
        format!("{name} {ready} Ready")
    });
    Ok(told.collect())
}

/// A pod on the worker asks a service for a name, and those that answer are on the control plane, or beside it.
fn has_names_and_services(management: &Management) {
    let rollout = [
        "--namespace=kube-system",
        "rollout",
        "status",
        "--timeout=180s",
    ];
    for workload in ["daemonset/kube-proxy", "deployment/coredns"] {
        let rollout = [&rollout[..], &[workload]].concat();
        management.kubectl_in(NAME, &rollout).unwrap();
    }
    let run = [
        "run",
        "asks",
        "--restart=Never",
        "--stdin",
        "--rm",
        "--image=registry.k8s.io/busybox:1",
    ];
    let asks = "nslookup kubernetes.default.svc.cluster.local; true";
    let run = [&run[..], &["--command", "--", "sh", "-c", asks]].concat();
    let answer = management.kubectl_in(NAME, &run).unwrap();
    // kubeadm's own address of the API inside.
    assert!(answer.contains("10.96.0.1"), "{answer}");
}

fn is_no_node(management: &Management, host: &str) {
    let left = "find /etc/kubernetes /var/lib/etcd /var/lib/cloud -mindepth 1 2> /dev/null; pgrep -lx 'etcd|kube-.*'";
    let left = management.node.lab.ssh(host, left).unwrap();
    let left = String::from_utf8_lossy(&left.stdout).into_owned();
    assert_eq!(left, "", "{host}");
}

fn items(list: &str) -> anyhow::Result<Vec<Value>> {
    let mut list: Value = serde_json::from_str(list)?;
    Ok(serde_json::from_value(list["items"].take())?)
}
