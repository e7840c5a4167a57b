//! A running cluster is carried from one management cluster to another by `windlass move --cluster-api`, which is killed on the way. The
//! controllers there take it up as it is: no machine is made or goes.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    process::Stdio,
    time::Duration,
};

use e2e::{Management, PROVIDERS, wait_until};
use lab::{command::output, progress::Terminal};
use serde_json::Value;

use super::LIMIT;

const NAMESPACE: &str = "site";
const NAME: &str = "carried";
/// Where the other management cluster is.
const HOST: &str = "host-2";
/// What a cluster in memory is made of, but for templates.
const KINDS: [&str; 7] = [
    "machinedeployments.cluster.x-k8s.io",
    "machinesets.cluster.x-k8s.io",
    "machines.cluster.x-k8s.io",
    "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io",
    "kubeadmconfigs.bootstrap.cluster.x-k8s.io",
    "devclusters.infrastructure.cluster.x-k8s.io",
    "devmachines.infrastructure.cluster.x-k8s.io",
];

pub(super) fn to_other_managers(management: &Management, tell: &dyn Fn(&str)) {
    let other = management.another(HOST, &Terminal::default()).unwrap();
    other.preload_patched().unwrap();
    other.install(Management::PATCHED).unwrap();
    tell("another management cluster is there");
    management.make_namespace(NAMESPACE).unwrap();
    management.begin_in(NAMESPACE, &[NAME]).unwrap();
    management.raised_in(NAMESPACE, NAME).unwrap();
    let before = stands(management);
    let kubeconfig = kubeconfig(management);
    let nodes = nodes(management, &kubeconfig);
    tell("a cluster is to be carried");

    let mover = Mover {
        from: management,
        to: &other,
    };
    let planned = output(&mut mover.command(&["--dry-run"])).unwrap();
    for object in [
        format!("Cluster/{NAME}"),
        format!("Secret/{NAME}-kubeconfig"),
    ] {
        assert!(planned.contains(&object), "{object} is not in {planned}");
    }
    mover.killed_while(&["copied Machine/"]);
    // What is there already is of no use to anybody yet.
    for side in [management, &other] {
        assert_eq!(cluster(side)["spec"]["paused"], true, "{:#}", cluster(side));
    }
    let gone_on = mover.killed_while(&["was stopped while it copied", "goes for good"]);
    eprintln!("{gone_on}");
    let moved = output(&mut mover.command(&[])).unwrap();
    assert!(moved.starts_with("moved "), "{moved}");
    tell("it was carried, by a move that was killed twice");
    assert_eq!(stands(management), BTreeMap::new(), "nothing is left here");
    assert_eq!(
        self::nodes(management, &kubeconfig),
        nodes,
        "no machine was deleted with what was moved"
    );
    taken_up(&other, &before);
    tell("the other controllers have taken it up");
    at_work(&other);
    tell("it has grown and is deleted there");
    management.node.lab.kill_host(HOST).unwrap();
}

/// The move from one to the other.
struct Mover<'a> {
    from: &'a Management,
    to: &'a Management,
}

impl Mover<'_> {
    fn command(&self, more: &[&str]) -> std::process::Command {
        let mut command = self.from.windlass(&["--namespace", NAMESPACE, "move"]);
        command
            .args(["--cluster-api", "--to-kubeconfig"])
            .arg(self.to.node.kubeconfig())
            .args(more);
        command
    }

    /// Kills it once it has said all of these, one after the other. Gives what it said.
    fn killed_while(&self, words: &[&str]) -> String {
        let mut command = self.command(&[]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let mut words = words.iter().peekable();
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            words.next_if(|word| line.contains(**word));
            said += &(line + "\n");
            if words.peek().is_none() {
                break;
            }
        }
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        assert!(
            words.peek().is_none(),
            "{words:?} were not said ({ended}): {said}"
        );
        said
    }
}

fn list(side: &Management, kind: &str) -> Vec<Value> {
    let get = ["--namespace", NAMESPACE, "get", kind, "--output=json"];
    let mut list: Value = serde_json::from_str(&side.kubectl(&get).unwrap()).unwrap();
    serde_json::from_value(list["items"].take()).unwrap()
}

fn cluster(side: &Management) -> Value {
    list(side, "clusters.cluster.x-k8s.io").pop().unwrap()
}

/// What there is of the cluster, by kind and name: which machine each is, and what it is to be.
fn stands(side: &Management) -> BTreeMap<String, [Value; 2]> {
    let objects = KINDS.iter().flat_map(|kind| {
        let named = move |object: Value| {
            let name = format!("{kind}/{}", object["metadata"]["name"].as_str().unwrap());
            let spec = &object["spec"];
            (name, [spec["providerID"].clone(), spec["replicas"].clone()])
        };
        list(side, kind).into_iter().map(named)
    });
    objects.collect()
}

/// The kubeconfig of the cluster, as its Secret has it.
fn kubeconfig(side: &Management) -> String {
    let secret = format!("secret/{NAME}-kubeconfig");
    let value = "--output=jsonpath={.data.value}";
    side.kubectl(&["--namespace", NAMESPACE, "get", &secret, value])
        .unwrap()
}

/// The nodes that the cluster has in the memory of a manager: names and since when. Its API is at the address of a pod, which the node alone reaches.
fn nodes(side: &Management, kubeconfig: &str) -> BTreeMap<String, String> {
    let shell = format!(
        "echo {kubeconfig} | base64 --decode > /root/{NAME}.kubeconfig && \
         kubectl --kubeconfig /root/{NAME}.kubeconfig get --raw /api/v1/nodes"
    );
    let list: Value = serde_json::from_str(&side.node.ssh(&shell).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let nodes = list["items"].as_array().unwrap().iter().map(|node| {
        let meta = &node["metadata"];
        (text(&meta["name"]), text(&meta["creationTimestamp"]))
    });
    let nodes: BTreeMap<_, _> = nodes.collect();
    assert_eq!(nodes.len(), 2, "{list:#}");
    nodes
}

/// It becomes Available by what its new controllers say, of whose statuses none was carried, and stays what it was.
fn taken_up(other: &Management, before: &BTreeMap<String, [Value; 2]>) {
    other.raised_in(NAMESPACE, NAME).unwrap();
    assert_eq!(stands(other), *before, "what was carried, and nothing else");
    let cluster = cluster(other);
    assert_eq!(cluster["spec"].get("paused"), None, "{cluster:#}");
    let annotations = cluster["metadata"]["annotations"].to_string();
    assert!(!annotations.contains("windlass.dev/"), "{annotations}");
    let mut machines = list(other, "machines.cluster.x-k8s.io");
    machines.retain(|machine| machine["status"]["phase"] != "Running");
    assert_eq!(machines, Vec::<Value>::new());
}

/// The controllers do what is asked of them: a machine more, and then the end.
fn at_work(other: &Management) {
    let deployment = format!("machinedeployments.cluster.x-k8s.io/{NAME}-worker");
    let of = ["--namespace", NAMESPACE];
    let kept = stands(other);
    let scale = ["scale", &deployment, "--replicas=2"];
    other.kubectl(&[&of, &scale[..]].concat()).unwrap();
    wait_until("another machine", LIMIT, || {
        let deployment = list(other, KINDS[0]).pop().unwrap_or_default();
        Ok((deployment["status"]["availableReplicas"] == 2).then_some(()))
    })
    .unwrap();
    let now = stands(other);
    let machines = |stands: &BTreeMap<String, [Value; 2]>| {
        let names = stands.keys().filter(|name| name.starts_with(KINDS[2]));
        names.cloned().collect::<Vec<_>>()
    };
    let (kept, now) = (machines(&kept), machines(&now));
    assert_eq!(now.len(), kept.len() + 1, "{now:?}");
    assert!(
        kept.iter().all(|name| now.contains(name)),
        "{kept:?} {now:?}"
    );
    other.remove_in(NAMESPACE, NAME).unwrap();
    let settled = wait_until("nothing to be left", Duration::from_mins(1), || {
        Ok(stands(other).is_empty().then_some(()))
    });
    settled.unwrap();
    for provider in PROVIDERS {
        other.installed(provider, Management::PATCHED).unwrap();
    }
}
