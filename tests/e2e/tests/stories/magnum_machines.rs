//! Clusters of servers by the Magnum API under the real managers of Cluster API: asked for by OpenStack's command line, used by the
//! kubeconfig that it fetches, resized, given a group that finds no room and one that does, upgraded and gone. Nova, Glance and Neutron
//! are told, and servers are in memory. Only in a full run.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use e2e::{Keystone, Management, Operator, Servers, wait_until, windlass};
use lab::{command::output, progress::Terminal};
use serde_json::{Value, json};

/// Machines take seconds each, and one that comes or goes is looked at every 15 seconds.
const LIMIT: Duration = Duration::from_mins(6);
/// Where the Magnum API is served, in the lab's network.
const MAGNUM: &str = "127.0.0.1:9511";
const ADDON: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: brought, namespace: default}\ndata: {by: addon}\n";

#[test]
fn a_cluster_of_servers_lives_under_the_real_managers() {
    let began = Instant::now();
    let tell = |what: &str| eprintln!("{:>5.1} s: {what}", began.elapsed().as_secs_f64());
    let terminal = Terminal::default();
    let [_, newest] = Management::VERSIONS;
    let management = Management::set(windlass().unwrap(), &terminal).unwrap();
    management.preload(newest).unwrap();
    management.install(newest).unwrap();
    tell("providers are installed");
    let cloud = Cloud::over(&management);
    tell("Keystone and Magnum are there");

    for (name, version) in [("small", "v1.34.3"), ("next", "v1.34.4")] {
        cloud.coe(&format!(
            "cluster template create {name} --coe kubernetes --server-type vm --image debian --flavor metal --master-flavor metal \
             --external-network public --labels kube_tag={version}"
        ));
    }
    cloud.coe("cluster create first --cluster-template small --node-count 1");
    let first = cloud.show("first").unwrap();
    let first = first["uuid"].as_str().unwrap();
    // Before there is a control plane, for nothing serves yet.
    let founded = wait_until("authorities of the cluster", LIMIT, || {
        Ok(cloud.servers.found_by_rsa(first)?.then_some(()))
    });
    founded.unwrap();
    let made = cloud.until("first", "CREATE_COMPLETE");
    assert_eq!(made["coe_version"], "v1.34.3");
    cloud.wait("first to be healthy", || {
        let shown = cloud.show("first")?;
        Ok((shown["health_status"] == "HEALTHY").then_some(()))
    });
    let uuid = made["uuid"].as_str().unwrap().to_owned();
    let namespace = format!("coe-{uuid}");
    tell("the cluster is there");

    // The certificate that the API signed is one of the authority that the managers founded the cluster with.
    let kubeconfig = cloud.config("first");
    assert_eq!(cloud.nodes(&kubeconfig, "v1.34.3").len(), 2);
    cloud.wait("what was brought along to be there", || {
        let get = [
            "get",
            "configmap",
            "brought",
            "--ignore-not-found",
            "--output=jsonpath={.data.by}",
        ];
        Ok((cloud.kubectl_by(&kubeconfig, &get)? == "addon").then_some(()))
    });

    cloud.coe("cluster resize first 2");
    cloud.until("first", "UPDATE_COMPLETE");
    let before = cloud.nodes(&kubeconfig, "v1.34.3");
    assert_eq!(before.len(), 3);
    tell("it has grown");

    // Where the cloud has no room, whoever asked is told what the cloud said, and the rest goes on.
    cloud.servers.fill(Some("-more-"));
    cloud.coe("nodegroup create first more --node-count 1");
    let told = cloud.until_told("first", "No valid host was found");
    assert_eq!(told["status"], "UPDATE_IN_PROGRESS", "{told:#}");
    cloud.servers.fill(None);
    cloud.until("first", "UPDATE_COMPLETE");
    let all = cloud.nodes(&kubeconfig, "v1.34.3");
    assert!(
        all.len() == 4 && all.is_superset(&before),
        "{before:?}, {all:?}"
    );
    cloud.coe("nodegroup delete first more");
    cloud.until("first", "UPDATE_COMPLETE");
    assert_eq!(cloud.nodes(&kubeconfig, "v1.34.3"), before);
    tell("a group came and went");

    cloud.coe("cluster upgrade first next");
    let upgraded = cloud.until("first", "UPDATE_COMPLETE");
    assert_eq!(upgraded["coe_version"], "v1.34.4");
    let after = cloud.nodes(&kubeconfig, "v1.34.4");
    assert!(
        after.len() == 3 && after.is_disjoint(&before),
        "{before:?}, {after:?}"
    );
    tell("it is upgraded, each Machine another");

    cloud.coe("cluster delete first");
    cloud.wait("the cluster to be gone", || {
        let left = cloud
            .keystone
            .coe("ann", &["cluster", "list", "-f", "json"]);
        Ok((output(&mut { left })?.trim() == "[]").then_some(()))
    });
    let kinds = "clusters.cluster.x-k8s.io,machines.cluster.x-k8s.io,openstackclusters,openstackmachines,openstackmachinetemplates,secrets";
    let left = [
        "--namespace",
        &namespace,
        "get",
        kinds,
        "--output=name",
        "--ignore-not-found",
    ];
    assert_eq!(management.kubectl(&left).unwrap(), "");
    tell("it is gone");
}

/// Keystone, `windlass magnum` and servers in memory, over a management cluster.
struct Cloud<'a> {
    keystone: Keystone,
    management: &'a Management,
    servers: Servers<'a>,
    magnum: Operator,
}

impl<'a> Cloud<'a> {
    fn over(management: &'a Management) -> Self {
        let terminal = Terminal::default();
        let servers = Servers::define(management, &terminal).unwrap();
        management.define("--magnum").unwrap();
        let node = &management.node;
        // The API of a cluster in memory is a pod, which its users and Windlass reach as servers of a cloud.
        node.open_pods().unwrap();
        let entrance = Some(node.lab.entrance());
        let keystone = Keystone::start(&node.dir().join("keystone"), entrance, &terminal);
        let keystone = keystone.unwrap().with_cloud().unwrap();
        keystone.people(&format!("http://{MAGNUM}/v1")).unwrap();
        let mut command = Command::new(windlass().unwrap());
        command.arg("--data-dir").arg(node.dir().join("magnum"));
        command.arg("--kubeconfig").arg(node.kubeconfig());
        command.args([
            "magnum",
            "--keystone",
            &keystone.address,
            "--listen",
            MAGNUM,
        ]);
        let log = node.dir().join("magnum.log");
        let magnum = Operator::start(&mut node.lab.enter_network(&command), log).unwrap();
        let addon = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "brought", "namespace": "default", "labels": {"magnum.windlass.dev/addon": "all"}},
            "data": {"brought.yaml": ADDON},
        });
        management.apply(&addon).unwrap();
        let cloud = Self {
            keystone,
            management,
            servers,
            magnum,
        };
        cloud.wait("windlass magnum to listen", || {
            Ok(cloud.magnum.said().contains(MAGNUM).then_some(()))
        });
        cloud
    }

    /// Waits while servers come and go; where it is in vain, Windlass tells what it waits for.
    fn wait<T>(&self, what: &str, mut ask: impl FnMut() -> anyhow::Result<Option<T>>) -> T {
        let answer = wait_until(what, LIMIT, || {
            self.servers.work()?;
            ask()
        });
        answer.unwrap_or_else(|error| {
            let objects = "clusters.cluster.x-k8s.io,kubeadmcontrolplanes,machinedeployments,machines.cluster.x-k8s.io,openstackclusters,openstackmachines,devclusters,devmachines";
            let objects = ["get", objects, "--all-namespaces", "--output=wide"];
            let objects = self.management.kubectl(&objects);
            let manager = ["logs", "--all-namespaces", "--selector", "cluster.x-k8s.io/provider=infrastructure-docker", "--tail=60"];
            let manager = self.management.kubectl(&manager);
            panic!(
                "{error:#}\n{}\n{}\n{}",
                objects.unwrap_or_default(),
                manager.unwrap_or_default(),
                self.magnum.said()
            )
        })
    }

    fn coe(&self, words: &str) {
        let words: Vec<_> = words.split_whitespace().collect();
        output(&mut self.keystone.coe("ann", &words)).unwrap();
    }

    fn show(&self, cluster: &str) -> anyhow::Result<Value> {
        let mut show = self
            .keystone
            .coe("ann", &["cluster", "show", cluster, "-f", "json"]);
        Ok(serde_json::from_str(&output(&mut show)?)?)
    }

    fn until(&self, cluster: &str, state: &str) -> Value {
        let mut last = Value::Null;
        let what = format!("{cluster} to be {state}");
        self.wait(&what, || {
            last = self.show(cluster)?;
            let now = last["status"].as_str().unwrap_or_default();
            anyhow::ensure!(!now.ends_with("_FAILED"), "{last:#}");
            Ok((now == state).then(|| last.clone()))
        })
    }

    /// Waits until the reason of a state says something.
    fn until_told(&self, cluster: &str, what: &str) -> Value {
        self.wait(what, || {
            let shown = self.show(cluster)?;
            let told = shown["status_reason"].as_str().unwrap_or_default();
            Ok(told.contains(what).then_some(shown.clone()))
        })
    }

    /// The kubeconfig that `openstack coe cluster config` writes.
    fn config(&self, cluster: &str) -> PathBuf {
        let directory = self.management.node.dir().join("config");
        fs::create_dir(&directory).unwrap();
        let to = directory.display().to_string();
        self.coe(&format!("cluster config {cluster} --dir {to}"));
        directory.join("config")
    }

    fn kubectl_by(&self, kubeconfig: &PathBuf, arguments: &[&str]) -> anyhow::Result<String> {
        let node = &self.management.node;
        let mut kubectl = Command::new(node.programs().join("kubectl"));
        kubectl.arg("--kubeconfig").arg(kubeconfig).args(arguments);
        output(&mut node.lab.enter_network(&kubectl))
    }

    /// The nodes that somebody sees who has this kubeconfig: all are Ready, and of this version.
    fn nodes(&self, kubeconfig: &PathBuf, version: &str) -> BTreeSet<String> {
        let nodes = ["get", "nodes", "--output=json"];
        let nodes: Value =
            serde_json::from_str(&self.kubectl_by(kubeconfig, &nodes).unwrap()).unwrap();
        let nodes = nodes["items"].as_array().unwrap().iter();
        nodes
            .map(|node| {
                assert!(e2e::is_true(node, "Ready"), "{node:#}");
                assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], version);
                node["metadata"]["name"].as_str().unwrap().to_owned()
            })
            .collect()
    }
}
