#![expect(
    clippy::needless_pass_by_value,
    reason = "rows of tables are short this way"
)]

use std::collections::BTreeSet;

use ansible::{
    inventory::Directories,
    listing::{Listing, UNSAFE, VAULTED},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{proof::Difference, *};
use crate::cluster::observe;

const CIPHER: &str = "$ANSIBLE_VAULT;1.1;AES256\n00\n";

/// What Ansible prints, with nothing but what a test changes being different from a common inventory.
fn printed() -> Value {
    json!({
        "_meta": {"hostvars": {
            "m2": {"ansible_host": "10.0.0.12", "ip": "10.0.0.12", "ansible_user": "ubuntu", "kube_version": "v1.34.3"},
            "m1": {"ansible_host": "10.0.0.11", "ip": "10.0.0.11", "ansible_user": "ubuntu", "kube_version": "v1.34.3"},
            "m3": {"ansible_host": "10.0.0.13", "ip": "10.0.0.13", "ansible_user": "ubuntu", "kube_version": "v1.34.3"},
            "w1": {"ansible_host": "10.0.0.21", "ip": "10.0.0.21", "ansible_user": "ubuntu", "kube_version": "v1.34.3"},
        }},
        "all": {"children": ["ungrouped", "etcd", "k8s_cluster"]},
        "k8s_cluster": {"children": ["kube_control_plane", "kube_node"]},
        "kube_control_plane": {"hosts": ["m2", "m1", "m3"]},
        "etcd": {"children": ["kube_control_plane"]},
        "kube_node": {"hosts": ["w1"]},
    })
}

const HOSTS: [&str; 4] = ["m1", "m2", "m3", "w1"];

struct Inventory {
    printed: Value,
    own: Value,
    vaulted: BTreeSet<String>,
}

impl Inventory {
    fn new() -> Self {
        Self {
            printed: printed(),
            own: json!({"_meta": {"hostvars": {}}}),
            vaulted: BTreeSet::new(),
        }
    }

    /// Gives hosts a variable, as from a group.
    fn set(mut self, hosts: &[&str], name: &str, value: Value) -> Self {
        for host in hosts {
            self.printed["_meta"]["hostvars"][host][name] = value.clone();
        }
        self
    }

    /// Takes a variable of a host away.
    fn without(mut self, host: &str, name: &str) -> Self {
        let variables = &mut self.printed["_meta"]["hostvars"][host];
        variables.as_object_mut().unwrap().remove(name);
        self
    }

    /// Gives each host a variable of its own.
    fn own(mut self, hosts: &[&str], name: &str, value: Value) -> Self {
        for host in hosts {
            self.own["_meta"]["hostvars"][host][name] = value.clone();
        }
        self.set(hosts, name, value)
    }

    /// Gives hosts a variable from an encrypted file.
    fn vaulted(mut self, hosts: &[&str], name: &str, value: Value) -> Self {
        self.vaulted.insert(name.to_owned());
        self.set(hosts, name, value)
    }

    fn group(mut self, name: &str, group: Value) -> Self {
        self.printed[name] = group;
        self
    }

    fn existing(&self) -> Existing {
        let listing = |value: &Value| Listing::of(value.as_object().unwrap().clone());
        let decrypted = BTreeMap::from([(CIPHER.to_owned(), "hidden".to_owned())]);
        Existing::new(
            listing(&self.printed),
            &listing(&self.own),
            &self.vaulted,
            &decrypted,
        )
    }

    fn adopt(&self) -> Adopted {
        adopt(&self.existing(), &wish()).unwrap()
    }

    fn problems(&self) -> Vec<String> {
        let problems = adopt(&self.existing(), &wish()).expect_err("a problem");
        problems.iter().map(ToString::to_string).collect()
    }

    /// What differs, with the files of the objects read as Ansible does: variables of a host win over those of all.
    fn differences(&self) -> Vec<Difference> {
        let adopted = self.adopt();
        let inventory = proof::inventory(&adopted, Directories::default()).unwrap();
        let document = inventory.document();
        let mut hosts = Map::new();
        for (host, own) in document["all"]["hosts"].as_object().unwrap() {
            let mut variables = document["all"]["vars"].as_object().unwrap().clone();
            variables.extend(own.as_object().unwrap().clone());
            hosts.insert(host.clone(), Value::Object(variables));
        }
        let read = json!({"_meta": {"hostvars": hosts}});
        let read = Listing::of(read.as_object().unwrap().clone());
        proof::differences(&self.existing(), &adopted, &inventory, &read)
    }

    /// Those that are not Windlass' own.
    fn open(&self) -> Vec<Difference> {
        let mut differences = self.differences();
        differences.retain(|difference| !difference.own);
        differences
    }
}

fn wish() -> Wish {
    Wish {
        namespace: "prod".into(),
        name: "first".into(),
        kubespray: KubesprayVersion::new(2, 30, 0),
        source: None,
        kubernetes: None,
        running: None,
        members: Vec::new(),
        user: None,
    }
}

fn node<'a>(adopted: &'a Adopted, name: &str) -> &'a ClusterNodeSpec {
    let mut nodes = adopted.nodes.iter();
    &nodes.find(|node| node.name_any() == name).unwrap().spec
}

fn extra_vars(adopted: &Adopted) -> Value {
    let cluster = serde_json::to_value(&adopted.cluster).unwrap();
    cluster["spec"]["nodes"]["all"]["deploy"]["extraVars"].clone()
}

#[test]
fn a_common_inventory_becomes_objects_that_give_every_host_the_same() {
    let inventory = Inventory::new()
        .set(&HOSTS, "helm_enabled", json!(true))
        .set(&HOSTS, "files_repo", json!("http://{{ registry }}"))
        .set(&["w1"], "kubelet_max_pods", json!(50))
        .set(&HOSTS, "ansible_become", json!("yes"))
        .set(&HOSTS, "ansible_connection", json!("ssh"))
        .set(&["m1"], "node_labels", json!({"disk": "ssd"}));
    let inventory = inventory.without("w1", "kubelet_max_pods");
    let adopted = inventory.adopt();
    assert_eq!(inventory.open(), []);
    let (cluster, nodes) = documents(&adopted.cluster, &adopted.nodes).unwrap();
    insta::assert_json_snapshot!("adopted", json!({"cluster": cluster, "nodes": nodes}));
}

#[test]
fn the_order_is_kept_by_objects_that_are_made_in_one_second() {
    let adopted = Inventory::new().adopt();
    let mut nodes = adopted.nodes.clone();
    for node in &mut nodes {
        node.metadata.creation_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    }
    nodes.reverse();
    nodes.sort_by_key(observe::joined);
    let names: Vec<_> = nodes.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["m2", "m1", "m3", "w1"]);
    // One that is declared later comes behind.
    let mut later = ClusterNode::new("a", nodes[0].spec.clone());
    later.metadata.creation_timestamp = Some(Time(jiff::Timestamp::now()));
    assert!(observe::joined(&later) > observe::joined(&nodes[3]));
    let order = adopted.cluster.status.unwrap().inventory.unwrap();
    let heads = ["kube_control_plane", "etcd"].map(|group| order.order[group][0].to_string());
    assert_eq!(heads, ["m2", "m2"]);
    assert_eq!(order.etcd_member_names["m1"], "etcd2");
}

#[test]
fn two_orders_become_one_where_they_can() {
    let inventory = Inventory::new()
        .group("kube_control_plane", json!({"hosts": ["m2", "m3"]}))
        .group("etcd", json!({"hosts": ["m1", "m2", "w1"]}));
    assert_eq!(inventory.open(), []);
    let adopted = inventory.adopt();
    let names: Vec<_> = adopted.nodes.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["m1", "m2", "m3", "w1"]);
    assert_eq!(node(&adopted, "m1").node_type, NodeType::Etcd);
    let roles = node(&adopted, "w1").roles.clone();
    assert_eq!(roles, Some(vec![Role::Etcd, Role::Worker]));
}

#[test]
fn groups_of_older_releases_give_the_same_roles() {
    let mut inventory = Inventory::new()
        .group("kube-master", json!({"hosts": ["m2", "m1", "m3"]}))
        .group("kube-node", json!({"hosts": ["w1"]}))
        .group(
            "k8s-cluster",
            json!({"children": ["kube-master", "kube-node"]}),
        )
        .group("etcd", json!({"hosts": ["m2", "m1", "m3"]}));
    let groups = inventory.printed.as_object_mut().unwrap();
    for newer in ["kube_control_plane", "kube_node", "k8s_cluster"] {
        groups.remove(newer);
    }
    assert_eq!(inventory.adopt().nodes.len(), 4);
    assert_eq!(inventory.open(), []);
}

#[test]
fn what_keeps_an_inventory_from_being_adopted_is_named() {
    let new = Inventory::new;
    let rows: Vec<(&str, Inventory, &str)> = vec![
        (
            "an even number of members",
            new().group("etcd", json!({"hosts": ["m2", "m1"]})),
            "odd number",
        ),
        (
            "contradicting orders",
            new().group("etcd", json!({"hosts": ["m1", "m2", "m3"]})),
            "contradict",
        ),
        (
            "the same address",
            new().set(&["w1"], "ansible_host", json!("10.0.0.11")),
            "same address",
        ),
        (
            "a host without a role",
            new().group(
                "k8s_cluster",
                json!({"hosts": ["x"], "children": ["kube_control_plane", "kube_node"]}),
            ),
            "stands in k8s_cluster",
        ),
        (
            "a name with a dot",
            new().group("kube_node", json!({"hosts": ["w1.example.com"]})),
            "63 lower-case",
        ),
        (
            "no group of kubespray",
            new()
                .group("kube_node", json!({}))
                .group("kube_control_plane", json!({}))
                .group("web", json!({"hosts": HOSTS})),
            "no host",
        ),
        (
            "an address that is a template",
            new().set(&["w1"], "ansible_host", json!("{{ x }}")),
            "template",
        ),
        (
            "an address that is encrypted",
            new().set(&["w1"], "ansible_host", json!({VAULTED: CIPHER})),
            "encrypted",
        ),
        (
            "no port",
            new().set(&["w1"], "ansible_port", json!("ssh")),
            "not a port",
        ),
        (
            "two versions",
            new().set(&["w1"], "kube_version", json!("v1.33.1")),
            "--kubernetes-version",
        ),
        (
            "a version that is a template",
            new().set(&HOSTS, "kube_version", json!("{{ x }}")),
            "--kubernetes-version",
        ),
        (
            "overlapping networks",
            new().set(&HOSTS, "kube_pods_subnet", json!("10.0.0.0/16")),
            "lies in kube_pods_subnet",
        ),
    ];
    for (name, inventory, word) in rows {
        let problems = inventory.problems();
        let told = problems.iter().any(|problem| problem.contains(word));
        assert!(told, "{name}: {problems:#?}");
        let all = problems.concat();
        assert!(!all.contains("hidden"), "{name}: {all}");
    }
}

#[test]
fn what_cannot_be_carried_over_is_noted_and_shows_as_a_difference() {
    let new = Inventory::new;
    let rows: Vec<(&str, Inventory, &str)> = vec![
        (
            "ansible_ssh_common_args",
            new().set(
                &HOSTS,
                "ansible_ssh_common_args",
                json!("-o ProxyCommand=id"),
            ),
            "spec.ssh",
        ),
        (
            "node_labels",
            new().set(&["w1"], "node_labels", json!({"a": "{{ b }}"})),
            "template",
        ),
        (
            "kube_network_plugin",
            new()
                .set(&["m1", "m2", "m3"], "kube_network_plugin", json!("calico"))
                .set(&["w1"], "kube_network_plugin", json!("cilium")),
            "disagree",
        ),
        (
            "helm_enabled",
            new().set(&HOSTS, "helm_enabled", json!("true")),
            "not a boolean",
        ),
        (
            "ansible_become_password",
            new().vaulted(&HOSTS, "ansible_become_password", json!("hidden")),
            "sudo without a password",
        ),
        (
            "kube_pods_subnet",
            new().vaulted(&HOSTS, "kube_pods_subnet", json!("10.1.0.0/16")),
            "cannot be a secret",
        ),
        (
            "registry_password",
            new().vaulted(&HOSTS, "registry_password", json!("{{ hidden }}")),
            "it is encrypted and a template",
        ),
    ];
    for (name, inventory, word) in rows {
        let notes = inventory.adopt().notes;
        let of = |note: &&String| note.starts_with(&format!("{name}: left out on"));
        let note = notes
            .iter()
            .find(of)
            .unwrap_or_else(|| panic!("{name}: {notes:#?}"));
        assert!(note.contains(word) && !note.contains("hidden"), "{note}");
        let open = inventory.open();
        assert!(
            open.iter().any(|difference| difference.name == name),
            "{open:#?}"
        );
        assert!(!format!("{open:?}").contains("hidden"), "{open:#?}");
    }
}

#[test]
fn hosts_and_groups_that_are_none_of_kubesprays_are_noted() {
    let inventory = Inventory::new()
        .group("gpu", json!({"hosts": ["w1"]}))
        .group("web", json!({"hosts": ["www"]}));
    let notes = inventory.adopt().notes.join("\n");
    for begin in ["group gpu: ", "group web: ", "host www: left out"] {
        assert!(notes.contains(begin), "{notes}");
    }
    assert_eq!(inventory.adopt().nodes.len(), 4);
}

#[test]
fn a_bastion_becomes_the_way_to_the_others_and_no_node() {
    let inventory = Inventory::new()
        .group("bastion", json!({"hosts": ["bastion"]}))
        .set(&["bastion"], "ansible_host", json!("192.0.2.1"))
        .set(&["bastion"], "ansible_user", json!("jump"));
    let adopted = inventory.adopt();
    assert_eq!((adopted.nodes.len(), inventory.open()), (4, Vec::new()));
    let bastion = adopted.cluster.spec.ssh.unwrap().bastion.unwrap();
    assert_eq!(
        (&bastion.address[..], bastion.user.as_deref()),
        ("192.0.2.1", Some("jump"))
    );
}

#[test]
fn a_host_without_an_address_is_reached_by_its_name_and_that_is_said() {
    let inventory = Inventory::new().without("w1", "ansible_host");
    let adopted = inventory.adopt();
    assert_eq!(node(&adopted, "w1").inventory.ansible_host, "w1");
    assert!(
        adopted
            .notes
            .iter()
            .any(|note| note.starts_with("host w1: ")),
        "{:?}",
        adopted.notes
    );
    assert_eq!(inventory.open(), []);
}

#[test]
fn variables_that_hosts_share_stand_in_the_cluster_and_others_at_hosts() {
    let masters = ["m1", "m2", "m3"];
    let adopted = Inventory::new()
        .set(&HOSTS, "shared", json!(1))
        .own(&HOSTS, "own", json!("alike"))
        .own(&HOSTS, "template", json!("{{ inventory_hostname }}"))
        .set(&masters, "differs", json!(1))
        .set(&["w1"], "differs", json!(2))
        .set(&masters, "some", json!([true]))
        .adopt();
    let expected = json!({"shared": 1, "template": "{{ inventory_hostname }}"});
    assert_eq!(extra_vars(&adopted), expected);
    let other = |host| Value::Object(node(&adopted, host).inventory.other.clone());
    assert_eq!(
        other("m1"),
        json!({"own": "alike", "differs": 1, "some": [true]})
    );
    assert_eq!(other("w1"), json!({"own": "alike", "differs": 2}));
}

#[test]
fn what_was_encrypted_stands_in_a_secret_alone_and_compares_equal() {
    let inventory = Inventory::new()
        .vaulted(&HOSTS, "token", json!({"deep": ["hidden", 7]}))
        .set(&HOSTS, "password", json!({VAULTED: CIPHER}))
        .set(
            &HOSTS,
            "registries",
            json!([{"user": "{{ me }}", "password": {VAULTED: CIPHER}}, {"password": {VAULTED: CIPHER}}]),
        )
        .set(&["w1"], "of_one", json!({VAULTED: CIPHER}))
        .set(&["w1"], "within", json!({"a": {VAULTED: CIPHER}}))
        .set(&HOSTS, "braces", json!({UNSAFE: "{{ hidden }}"}))
        .set(&HOSTS, "plain", json!({UNSAFE: "text"}));
    let adopted = inventory.adopt();
    assert_eq!(inventory.open(), []);
    let (cluster, nodes) = documents(&adopted.cluster, &adopted.nodes).unwrap();
    let differences = inventory.differences();
    let shown = format!("{cluster} {nodes:?} {:?} {differences:?}", adopted.notes);
    assert!(!shown.contains("hidden"), "{shown}");
    let reference = |key: &str| json!({"secretKeyRef": {"name": "first-vault", "key": key}});
    assert_eq!(
        extra_vars(&adopted),
        json!({
            "plain": "text",
            "registries": [
                {"user": "{{ me }}", "password": reference("registries")},
                {"password": reference("registries-2")},
            ],
        })
    );
    let of_one = node(&adopted, "w1");
    assert_eq!(
        of_one.inventory.other["within"]["a"],
        reference("w1.within")
    );
    let file = of_one.extra_vars_secret_ref.clone().unwrap();
    let data = adopted.secret.unwrap().string_data.unwrap();
    let parsed = |key: &str| -> Value { serde_json::from_str(&data[key]).unwrap() };
    assert_eq!(parsed(&file.key.unwrap()), json!({"of_one": "hidden"}));
    assert_eq!(
        parsed("vars.yml"),
        json!({"token": {"deep": ["hidden", 7]}, "password": "hidden", "braces": "{{ hidden }}"})
    );
}

#[test]
fn a_lost_or_changed_value_is_a_difference_and_what_windlass_sets_is_not() {
    let all = Inventory::new().differences();
    assert!(
        !all.is_empty() && all.iter().all(|difference| difference.own),
        "{all:#?}"
    );
    // Variables of the whole cluster reach hosts that are none of its nodes too.
    let inventory = Inventory::new()
        .group("etcd", json!({"hosts": ["m1"]}))
        .group("kube_control_plane", json!({"hosts": ["m2", "m3"]}))
        .set(&["m2", "m3", "w1"], "container_manager", json!("crio"));
    let [reaches] = &inventory.open()[..] else {
        panic!("{:#?}", inventory.open());
    };
    assert_eq!(
        (&reaches.name[..], &reaches.hosts[..]),
        ("container_manager", "m1")
    );
    assert_eq!(
        (&reaches.before, reaches.after.as_deref()),
        (&None, Some("\"crio\""))
    );
    for (inventory, name) in [
        (Inventory::new().without("w1", "ip"), "ip"),
        (
            Inventory::new().without("w1", "ansible_user"),
            "ansible_user",
        ),
        (
            Inventory::new().set(&HOSTS, "ansible_become", json!(false)),
            "ansible_become",
        ),
    ] {
        let open = inventory.open();
        assert!(
            open.iter().any(|open| open.name == name),
            "{name}: {open:#?}"
        );
    }
}

/// A cluster as the common inventory has it, whose API does nothing but answer what it is asked for.
struct Running {
    nodes: Vec<Value>,
    endpoints: Vec<&'static str>,
    member: Option<(&'static str, &'static str)>,
}

impl Running {
    fn new() -> Self {
        let node = |(name, address, minute): (&str, &str, u8)| {
            let labels = match name {
                "w1" => json!({}),
                _ => json!({"node-role.kubernetes.io/control-plane": ""}),
            };
            json!({
                "metadata": {"name": name, "labels": labels, "creationTimestamp": format!("2026-01-01T00:0{minute}:00Z")},
                "status": {
                    "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}],
                    "nodeInfo": {
                        "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                        "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "", "kubeletVersion": "v1.34.3",
                    },
                },
            })
        };
        let nodes = [
            ("m2", "10.0.0.12", 1),
            ("m1", "10.0.0.11", 2),
            ("m3", "10.0.0.13", 3),
            ("w1", "10.0.0.21", 4),
        ];
        Self {
            nodes: nodes.map(node).to_vec(),
            endpoints: vec!["10.0.0.12", "10.0.0.11", "10.0.0.13"],
            member: None,
        }
    }

    fn set(mut self, node: usize, pointer: &str, value: Value) -> Self {
        *self.nodes[node].pointer_mut(pointer).unwrap() = value;
        self
    }

    /// Reads it through a server that knows no other requests than to get these: another one would fail.
    async fn look(&self) -> live::Live {
        use axum::{Json, Router, routing::get};
        let answer = |value: Value| get(move || async { Json(value) });
        let endpoints = self.endpoints.iter();
        let endpoints: Vec<_> = endpoints
            .map(|at| format!("    - https://{at}:2379\n"))
            .collect();
        let configuration = format!("etcd:\n  external:\n    endpoints:\n{}", endpoints.concat());
        let settings = json!({"metadata": {"name": "kubeadm-config"}, "data": {"ClusterConfiguration": configuration}});
        let pods = self.member.iter().map(|(node, name)| {
            let command = ["etcd".to_owned(), format!("--name={name}")];
            json!({"metadata": {"name": "etcd"}, "spec": {"nodeName": node, "containers": [{"name": "etcd", "command": command}]}})
        });
        let pods: Vec<_> = pods.collect();
        let api = Router::new()
            .route(
                "/api/v1/nodes",
                answer(json!({"metadata": {}, "items": self.nodes})),
            )
            .route(
                "/api/v1/namespaces/kube-system/configmaps/kubeadm-config",
                answer(settings),
            )
            .route(
                "/api/v1/namespaces/kube-system/pods",
                answer(json!({"metadata": {}, "items": pods})),
            );
        live::look(&kube::Client::new(api, "default"))
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn an_inventory_that_the_cluster_contradicts_is_told_by_field_value_rule_and_remedy() {
    let adopted = Inventory::new().adopt();
    let live = Running::new().look().await;
    assert_eq!(live.contradictions(&adopted), [], "it is as the cluster");
    assert_eq!(live.doubts(&adopted), [""; 0]);
    let renamed = Running::new().set(3, "/metadata/name", json!("w9"));
    let moved = Running::new().set(3, "/status/addresses/1/address", json!("10.9.0.1"));
    let plane = json!({"node-role.kubernetes.io/control-plane": ""});
    let other = |endpoints: &[&'static str]| Running {
        endpoints: endpoints.to_vec(),
        ..Running::new()
    };
    for (name, running, expected) in [
        (
            "name",
            renamed,
            &[
                "host w1: the cluster has no node of that name; take it out of the inventory",
                "node w9: no host of kube_control_plane or kube_node",
            ][..],
        ),
        (
            "address",
            moved,
            &[
                "host w1 ip is \"10.0.0.21\": the cluster has its node at 10.9.0.1; write ip: 10.9.0.1",
            ],
        ),
        (
            "a plane more",
            Running::new().set(3, "/metadata/labels", plane),
            &["group kube_control_plane is \"w1\": its node is a control plane"],
        ),
        (
            "a plane less",
            Running::new().set(1, "/metadata/labels", json!({})),
            &["group kube_control_plane is \"m1\": its node is no control plane; take it out"],
        ),
        (
            "version",
            Running::new().set(3, "/status/nodeInfo/kubeletVersion", json!("v1.33.1")),
            &["kube_version is \"1.34.3\": nodes run another one: w1 has 1.33.1;"],
        ),
        (
            "members",
            other(&["10.0.0.12", "10.0.0.11", "10.0.0.99"]),
            &[
                "group etcd is \"10.0.0.99\": the API servers reach a member there",
                "group etcd is \"m3\": the API servers do not reach a member there",
            ],
        ),
        (
            "head of etcd",
            other(&["10.0.0.11", "10.0.0.12", "10.0.0.13"]),
            &["group etcd is \"m2\": it stands first, and m1 is the first"],
        ),
        (
            "name of a member",
            Running {
                member: Some(("m2", "m2")),
                ..Running::new()
            },
            &[
                "host m2 etcd_member_name is \"etcd1\": its member of etcd is called m2; write etcd_member_name: m2",
            ],
        ),
    ] {
        let told = running.look().await.contradictions(&adopted);
        assert_eq!(told.len(), expected.len(), "{name}: {told:?}");
        for (told, expected) in told.iter().zip(expected) {
            let told = told.to_string();
            assert!(told.starts_with(expected), "{name}: {told}");
        }
    }
    // An older node may have been set up before the one that is first was.
    let older = json!("2025-01-01T00:00:00Z");
    let older = Running::new().set(2, "/metadata/creationTimestamp", older);
    let live = older.look().await;
    assert_eq!(live.contradictions(&adopted), []);
    let [doubt] = &live.doubts(&adopted)[..] else {
        panic!("{:?}", live.doubts(&adopted));
    };
    assert!(doubt.starts_with("kube_control_plane: m2 stands first, and the node m3 is older"));
}

/// What etcdctl prints of the members of the common inventory, with these names.
fn member_list(names: [&str; 3]) -> Vec<members::Member> {
    let addresses = ["10.0.0.12", "10.0.0.11", "10.0.0.13"];
    let members = (1..).zip(names.iter().zip(addresses));
    let members = members.map(|(id, (name, at))| {
        json!({"ID": id, "name": name, "peerURLs": [format!("https://{at}:2380")], "clientURLs": [format!("https://{at}:2379")]})
    });
    let list = json!({"header": {}, "members": members.collect::<Value>()});
    members::read(&format!("{list}\n")).unwrap()
}

#[test]
fn members_are_called_as_etcd_calls_them_where_the_inventory_does_not_say() {
    let list = member_list(["etcd7", "m1", "etcd3"]);
    let wish = || Wish {
        members: list.clone(),
        ..wish()
    };
    let adopted = adopt(&Inventory::new().existing(), &wish()).unwrap();
    let inventory = adopted.cluster.status.clone().unwrap().inventory.unwrap();
    let names = ["m2", "m1", "m3"].map(|host| &inventory.etcd_member_names[host][..]);
    assert_eq!(names, ["etcd7", "m1", "etcd3"]);
    assert_eq!(members::contradictions(&list, &adopted), []);

    let said = Inventory::new().own(&["m2"], "etcd_member_name", json!("etcd1"));
    let said = adopt(&said.existing(), &wish()).unwrap();
    let group = Inventory::new().group("etcd", json!({"hosts": ["m2"]}));
    let group = adopt(&group.existing(), &wish()).unwrap();
    let fewer = &list[..2];
    for (name, list, adopted, expected) in [
        (
            "another name",
            &list[..],
            &said,
            &[
                "host m2 etcd_member_name is \"etcd1\": its member of etcd is called etcd7; write etcd_member_name: etcd7",
            ][..],
        ),
        (
            "hosts that are missing",
            &list,
            &group,
            &[
                "group etcd is \"10.0.0.11\": etcd has the member m1 there",
                "group etcd is \"10.0.0.13\": etcd has the member etcd3 there",
            ],
        ),
        (
            "a host too many",
            fewer,
            &adopted,
            &["group etcd: host m3 is \"10.0.0.13\": etcd has no member there"],
        ),
    ] {
        let told = members::contradictions(list, adopted);
        assert_eq!(told.len(), expected.len(), "{name}: {told:?}");
        for (told, expected) in told.iter().zip(expected) {
            let told = told.to_string();
            assert!(told.starts_with(expected), "{name}: {told}");
        }
    }
    for wrong in [
        "",
        "[]",
        "{\"members\": []}",
        "{\"members\": [{\"ID\": 1}]}",
    ] {
        let problem = members::read(wrong).unwrap_err().to_string();
        assert!(
            problem.starts_with("--etcd-members") && problem.contains("etcdctl member list"),
            "{problem}"
        );
    }
}

#[test]
fn the_version_that_runs_counts_where_the_inventory_says_none() {
    let version = |inventory: Inventory, running: Option<&str>| {
        let running = running.and_then(|text| text.parse().ok());
        let wish = Wish { running, ..wish() };
        let adopted = adopt(&inventory.existing(), &wish);
        adopted.map(|adopted| adopted.cluster.spec.kubernetes_version)
    };
    let none = || {
        HOSTS
            .iter()
            .fold(Inventory::new(), |of, host| of.without(host, KUBE_VERSION))
    };
    let template = || Inventory::new().set(&HOSTS, KUBE_VERSION, json!("{{ wanted }}"));
    let said = "1.34.3".parse().ok();
    let runs = "1.33.1".parse().ok();
    assert_eq!(version(none(), None), Ok(None));
    assert_eq!(version(none(), Some("1.33.1")), Ok(runs));
    assert_eq!(version(template(), Some("1.33.1")), Ok(runs));
    assert!(version(template(), None).is_err());
    // What a person says is held against the nodes, and not passed over.
    assert_eq!(version(Inventory::new(), Some("1.33.1")), Ok(said));
}

#[tokio::test]
async fn the_version_is_that_of_the_nodes_where_they_have_one() {
    let version = Running::new().look().await.version();
    assert_eq!(version, "1.34.3".parse().ok());
    let mixed = Running::new().set(0, "/status/nodeInfo/kubeletVersion", json!("v1.33.1"));
    assert_eq!(mixed.look().await.version(), None);
    let none = Running {
        nodes: Vec::new(),
        ..Running::new()
    };
    assert_eq!(none.look().await.version(), None);
}
