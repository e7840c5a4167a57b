//! The Magnum API for people who know OpenStack: a real Keystone, the real `openstack coe`, and `windlass magnum` on the embedded
//! API.
//!
//! kubespray is played here: what the operator of its objects would tell is written into their status. Clusters on real hosts are
//! the other stories' matter.

use std::{net::SocketAddr, path::Path, process::Command, time::Duration};

use api::{
    Cluster, ClusterNode,
    magnum::{CoeCluster, Host},
};
use e2e::{Keystone, Operator, wait_until, windlass};
use k8s_openapi::{
    api::core::v1::Secret,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kapi::{Options, Server};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use lab::{command::output, progress::Terminal};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

mod compared;
mod credentials;
mod driver;
mod suites;

/// Python starts in seconds, on a loaded machine in many.
const LIMIT: Duration = Duration::from_secs(90);

#[test]
fn a_cluster_lives_as_users_of_openstack_know_it() {
    let world = World::start();
    world.pool(4);
    world.coe(
        "ann",
        &[
            "cluster",
            "template",
            "create",
            "small",
            "--coe",
            "kubernetes",
            "--image",
            "debian",
            "--server-type",
            "bm",
            "--external-network",
            "public",
            "--labels",
            "kube_tag=v1.34.3",
        ],
    );
    world.coe(
        "ann",
        &[
            "cluster",
            "create",
            "first",
            "--cluster-template",
            "small",
            "--node-count",
            "1",
        ],
    );
    let made = world.show("first");
    assert_eq!(
        (&made["status"], &made["node_count"]),
        (&json!("CREATE_IN_PROGRESS"), &json!(1))
    );
    let uuid = made["uuid"].as_str().unwrap().to_owned();
    world.play_kubespray(&uuid, 2);
    world.until("first", "CREATE_COMPLETE");
    let shown = world.show("first");
    assert_eq!(shown["coe_version"], "v1.34.3");
    assert_eq!(shown["api_address"], "https://10.0.0.1:6443");
    assert_eq!(shown["health_status"], "HEALTHY");
    let listed = world.coe("ann", &["cluster", "list", "-f", "json"]);
    assert_eq!(read(&listed)[0]["status"], "CREATE_COMPLETE");
    // Whoever may only read does so, and another project sees nothing.
    assert_eq!(
        read(&world.coe("bob", &["cluster", "list", "-f", "json"]))[0]["name"],
        "first"
    );
    assert_eq!(
        read(&world.coe("eve", &["cluster", "list", "-f", "json"])),
        json!([])
    );
    let refused = world.refused("bob", &["cluster", "delete", "first"]);
    assert!(refused.contains("Policy does not allow"), "{refused}");
    assert!(
        world
            .refused("eve", &["cluster", "show", "first"])
            .contains("could not be found")
    );

    world.may_enter("first", &uuid);
    let sdk = ["-c", include_str!("magnum/sdk.py"), "first", &uuid];
    output(&mut world.keystone.python_of("ann", &sdk)).unwrap();

    world.coe("ann", &["cluster", "resize", "first", "2"]);
    world.play_kubespray(&uuid, 3);
    world.until("first", "UPDATE_COMPLETE");
    assert_eq!(world.show("first")["node_count"], 2);
    world.coe(
        "ann",
        &["nodegroup", "create", "first", "more", "--node-count", "1"],
    );
    world.play_kubespray(&uuid, 4);
    world.until("first", "UPDATE_COMPLETE");
    let groups = read(&world.coe("ann", &["nodegroup", "list", "first", "-f", "json"]));
    let names: Vec<_> = groups
        .as_array()
        .unwrap()
        .iter()
        .map(|group| &group["name"])
        .collect();
    assert_eq!(names, ["default-master", "default-worker", "more"]);
    world.coe("ann", &["nodegroup", "delete", "first", "more"]);
    world.play_kubespray(&uuid, 3);
    world.until("first", "UPDATE_COMPLETE");

    // An edit of the object is seen by clients of Magnum, as theirs is seen in the object.
    world.edit(&uuid);
    assert_eq!(world.show("first")["node_count"], 1);
    let project = shown["project_id"].as_str().unwrap();
    let stats = world.coe("ann", &["stats", "list", project]);
    let mut lines = stats.lines().filter(|line| line.contains("clusters"));
    assert!(lines.any(|line| line.contains(" 1 ")), "{stats}");
    assert_eq!(
        read(&world.coe("admin", &["service", "list", "-f", "json"]))[0]["state"],
        "up"
    );

    world.coe("ann", &["cluster", "delete", "first"]);
    wait_until("the cluster to be gone", LIMIT, || {
        let left = read(&world.coe("ann", &["cluster", "list", "-f", "json"]));
        Ok((left == json!([])).then_some(()))
    })
    .unwrap();
    assert_eq!(world.claimed(), 0);
    world.coe("ann", &["cluster", "template", "delete", "small"]);

    world.gives_a_cluster_its_own_credential();
}

/// Fails unless the client's certificate in a kubeconfig is one of the authority in it.
const VERIFY: &str = "
import base64, sys, yaml
from cryptography import x509
config = yaml.safe_load(open(sys.argv[1]))
authority = config['clusters'][0]['cluster']['certificate-authority-data']
own = config['users'][0]['user']['client-certificate-data']
authority, own = (x509.load_pem_x509_certificate(base64.b64decode(data)) for data in (authority, own))
own.verify_directly_issued_by(authority)
";

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Keystone, the embedded API and `windlass magnum`.
struct World {
    keystone: Keystone,
    /// The address of Windlass' Magnum API.
    address: String,
    client: Client,
    runtime: Runtime,
    _magnum: Operator,
    directory: tempfile::TempDir,
}

impl World {
    fn start() -> Self {
        let (world, address) = Self::without_catalogue();
        world.keystone.people(&address).unwrap();
        world
    }

    /// Nobody has an account there, and nobody finds Magnum; the address is that of Windlass' own.
    fn without_catalogue() -> (Self, String) {
        Self::with(Vec::new())
    }

    /// The same, with further kinds in the API.
    fn with(definitions: Vec<CustomResourceDefinition>) -> (Self, String) {
        let directory = tempfile::tempdir().unwrap();
        let keystone = directory.path().join("keystone");
        let keystone = Keystone::start(&keystone, None, &Terminal::default()).unwrap();
        let runtime = Runtime::new().unwrap();
        let data = directory.path().join("data");
        let client = embedded(&runtime, &data, definitions);
        let (magnum, address) = magnum(
            &data.join("kubeconfig"),
            &keystone.address,
            directory.path(),
        );
        let address = format!("http://{address}/v1");
        let world = Self {
            keystone,
            address: address.clone(),
            client,
            runtime,
            _magnum: magnum,
            directory,
        };
        (world, address)
    }

    fn coe(&self, user: &str, arguments: &[&str]) -> String {
        output(&mut self.keystone.coe(user, arguments)).unwrap()
    }

    /// What somebody is told who may not do that.
    fn refused(&self, user: &str, arguments: &[&str]) -> String {
        let told = self.keystone.coe(user, arguments).output().unwrap();
        let mut text = String::from_utf8(told.stdout).unwrap();
        text.push_str(&String::from_utf8(told.stderr).unwrap());
        text
    }

    fn show(&self, cluster: &str) -> Value {
        read(&self.coe("ann", &["cluster", "show", cluster, "-f", "json"]))
    }

    fn until(&self, cluster: &str, state: &str) {
        wait_until(state, LIMIT, || {
            let shown = self.show(cluster);
            Ok((shown["status"] == state).then_some(()))
        })
        .unwrap();
    }

    /// Whoever has the kubeconfig may enter: it is of the authority that the API shows, and that the cluster is founded with.
    fn may_enter(&self, cluster: &str, uuid: &str) {
        let directory = self.directory.path().join("config");
        std::fs::create_dir(&directory).unwrap();
        let to = directory.to_str().unwrap();
        self.coe("ann", &["cluster", "config", cluster, "--dir", to]);
        let config = std::fs::read_to_string(directory.join("config")).unwrap();
        assert!(config.contains("server: https://10.0.0.1:6443"), "{config}");
        let mut verify = self.keystone.python();
        verify.args(["-c", VERIFY]);
        verify.arg(directory.join("config"));
        output(&mut verify).unwrap();
        let shown = self.coe("ann", &["ca", "show", cluster]);
        assert_eq!(shown.trim(), self.authority(uuid).trim());
    }

    /// Hosts that nobody logs in to, and a key that fits none.
    fn pool(&self, count: usize) {
        self.runtime.block_on(async {
            let hosts: Api<Host> = Api::default_namespaced(self.client.clone());
            for at in 1..=count {
                let host = json!({
                    "apiVersion": "magnum.windlass.dev/v1alpha1", "kind": "Host",
                    "metadata": {"name": format!("host-{at}")}, "spec": {"address": format!("10.0.0.{at}")},
                });
                let host = serde_json::from_value(host).unwrap();
                hosts.create(&PostParams::default(), &host).await.unwrap();
            }
            let key: Secret = serde_json::from_value(json!({
                "metadata": {"name": "magnum-ssh"}, "stringData": {"ssh-privatekey": "none"},
            }))
            .unwrap();
            let secrets: Api<Secret> = Api::default_namespaced(self.client.clone());
            secrets.create(&PostParams::default(), &key).await.unwrap();
        });
    }

    /// Waits for the objects of a cluster with so many hosts, and tells that it is built of them.
    fn play_kubespray(&self, uuid: &str, count: usize) {
        let namespace = format!("coe-{uuid}");
        let clusters: Api<Cluster> = Api::namespaced(self.client.clone(), &namespace);
        let nodes: Api<ClusterNode> = Api::namespaced(self.client.clone(), &namespace);
        wait_until("the objects of kubespray", LIMIT, || {
            self.runtime.block_on(async {
                let there = nodes.list(&ListParams::default()).await?.items;
                let Some(cluster) = clusters.get_opt("cluster").await? else {
                    return Ok(None);
                };
                if there.len() != count {
                    return Ok(None);
                }
                let joined = json!({"status": {"state": "Joined"}});
                for node in &there {
                    let patch = Patch::Merge(&joined);
                    nodes
                        .patch_status(&node.name_any(), &PatchParams::default(), &patch)
                        .await?;
                }
                let patch = Patch::Merge(built(cluster.metadata.generation));
                clusters
                    .patch_status("cluster", &PatchParams::default(), &patch)
                    .await?;
                Ok(Some(()))
            })
        })
        .unwrap();
    }

    /// The certificate of the authority that kubespray's Cluster refers to.
    fn authority(&self, uuid: &str) -> String {
        let namespace = format!("coe-{uuid}");
        let clusters: Api<Cluster> = Api::namespaced(self.client.clone(), &namespace);
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        self.runtime.block_on(async {
            let cluster = clusters.get("cluster").await.unwrap();
            let creation = cluster.spec.operations.unwrap().creation.unwrap();
            let name = creation.authorities_secret_ref.unwrap().name;
            let mut data = secrets.get(&name).await.unwrap().data.unwrap();
            String::from_utf8(data.remove("ca.crt").unwrap().0).unwrap()
        })
    }

    /// As somebody with kubectl would: one worker is enough.
    fn edit(&self, uuid: &str) {
        let all: Api<CoeCluster> = Api::all(self.client.clone());
        self.runtime.block_on(async {
            let named = ListParams::default().fields(&format!("metadata.name={uuid}"));
            let mut cluster = all.list(&named).await.unwrap().items.remove(0);
            let of_project: Api<CoeCluster> =
                Api::namespaced(self.client.clone(), &cluster.namespace().unwrap());
            cluster.spec.node_groups[1].node_count = 1;
            of_project
                .replace(uuid, &PostParams::default(), &cluster)
                .await
                .unwrap();
        });
    }

    fn claimed(&self) -> usize {
        let hosts: Api<Host> = Api::default_namespaced(self.client.clone());
        let hosts = self
            .runtime
            .block_on(hosts.list(&ListParams::default()))
            .unwrap();
        hosts
            .iter()
            .filter(|host| host.spec.claim.is_some())
            .count()
    }
}

fn built(generation: Option<i64>) -> Value {
    json!({"status": {
        "state": "Created", "observedGeneration": generation, "kubernetesVersion": "1.34.3",
        "cluster": {"health": "HEALTH_OK"},
    }})
}

fn embedded(runtime: &Runtime, data: &Path, definitions: Vec<CustomResourceDefinition>) -> Client {
    let mut crds = api::custom_resource_definitions();
    crds.extend(definitions);
    crds.extend(api::magnum::definitions());
    let options = Options {
        data_dir: data.to_owned(),
        crds,
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
    };
    runtime.block_on(async {
        let server = Server::open(options).await.unwrap();
        let client = Client::new(server.router(), "default");
        tokio::spawn(async move { server.serve(std::future::pending()).await });
        client
    })
}

/// Starts it on a free port, and gives the address that it says.
fn magnum(kubeconfig: &Path, keystone: &str, directory: &Path) -> (Operator, String) {
    let mut command = Command::new(windlass().unwrap());
    command
        .arg("--data-dir")
        .arg(directory.join("operator"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["magnum", "--keystone", keystone, "--listen", "127.0.0.1:0"]);
    let mut operator = Operator::start(&mut command, directory.join("magnum.log")).unwrap();
    let address = wait_until("windlass magnum to listen", LIMIT, || {
        assert!(
            !operator.has_ended()?,
            "windlass magnum ended: {}",
            operator.said()
        );
        let said = operator.said();
        let mut words = said.split_whitespace();
        let address = words.find_map(|word| word.strip_prefix("http://")?.strip_suffix("/v1"));
        Ok(address.map(str::to_owned))
    });
    (operator, address.unwrap())
}
