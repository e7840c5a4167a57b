//! Inventories: what Ansible reads of them, and what is refused.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in what it calls"
)]
#![expect(
    clippy::needless_pass_by_value,
    clippy::semicolon_if_nothing_returned,
    reason = "rows of tables are short this way"
)]

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt as _, path::Path};

use ansible::inventory::{
    Directories, Host, Inventory, InventoryError, InventoryInput, Settings, appends, compile,
};
use api::{
    KubernetesVersion, KubesprayVersion,
    cluster::InventoryStatus,
    node::{HostVariables, Role},
};
use serde_json::{Map, Value, json};

fn host(name: &str, address: &str, roles: &[Role]) -> Host {
    Host {
        name: name.to_owned(),
        roles: roles.to_vec(),
        variables: HostVariables {
            ansible_host: address.to_owned(),
            ..HostVariables::default()
        },
        python: None,
        excluded: false,
    }
}

const MASTER: &[Role] = &[Role::ControlPlane, Role::Etcd];

fn three() -> InventoryInput {
    InventoryInput {
        hosts: vec![
            host("master-1", "10.0.0.11", MASTER),
            host("worker-1", "10.0.0.21", &[Role::Worker]),
            host("worker-2", "10.0.0.22", &[Role::Worker]),
        ],
        settings: Settings {
            kubespray: Some(KubesprayVersion::new(2, 30, 0)),
            kubernetes: Some(KubernetesVersion::new(1, 34, 3)),
            private_key: Some("/data/key".into()),
            directories: Directories::below(Path::new("/data/clusters/demo/first")),
            ..Settings::default()
        },
        ..InventoryInput::default()
    }
}

fn with(change: impl FnOnce(&mut InventoryInput)) -> InventoryInput {
    let mut input = three();
    change(&mut input);
    input
}

fn variables(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn status(order: Value) -> InventoryStatus {
    serde_json::from_value(json!({ "order": order })).unwrap()
}

fn names(inventory: &Inventory, group: &str) -> Vec<String> {
    inventory
        .group(group)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn three_hosts() {
    let input = with(|input| {
        input.hosts[1].variables.other = variables(json!({
            "node_labels": {"disk": "ssd"}, "kube_reserved": true, "kubelet_max_pods": 110
        }));
        input.hosts[1].variables.ansible_port = Some(2222);
        input.hosts[0].python = Some("/usr/bin/python3".parse().unwrap());
        input.settings.extra_vars = variables(json!({"helm_enabled": true, "retry_stagger": 5}));
        input.settings.operation_vars = variables(json!({"upgrade_cluster_setup": true}));
    });
    let inventory = compile(&input).unwrap();
    insta::assert_json_snapshot!("three_hosts_inventory", inventory.document());
    insta::assert_json_snapshot!("three_hosts_variables", inventory.extra_vars());
    insta::assert_json_snapshot!("three_hosts_order", inventory.order());
}

#[test]
fn the_version_is_written_as_the_release_does() {
    for (minor, written) in [(27, "v1.31.4"), (28, "1.31.4")] {
        let inventory = compile(&with(|input| {
            input.settings.kubespray = Some(KubesprayVersion::new(2, minor, 0));
            input.settings.kubernetes = Some(KubernetesVersion::new(1, 31, 4));
        }));
        assert_eq!(inventory.unwrap().extra_vars()["kube_version"], written);
    }
}

#[test]
fn a_person_may_ask_for_what_is_off() {
    let on = json!({"flush_iptables": true});
    let inventory = compile(&with(|input| input.settings.extra_vars = variables(on))).unwrap();
    assert_eq!(inventory.extra_vars()["flush_iptables"], true);
    assert_eq!(inventory.extra_vars()["reset_restart_network"], false);
}

#[test]
fn what_kubespray_itself_writes_as_a_text_may_be_one() {
    let text = json!({"docker_iptables_enabled": "false"});
    let inventory = compile(&with(|input| input.settings.extra_vars = variables(text))).unwrap();
    assert_eq!(inventory.extra_vars()["docker_iptables_enabled"], "false");
}

#[test]
fn new_hosts_stand_behind_the_persisted_ones() {
    let first = compile(&three()).unwrap();
    let input = with(|input| {
        input.persisted = first.order().clone();
        for (place, name) in ["a-master", "b-master"].into_iter().enumerate() {
            input
                .hosts
                .insert(0, host(name, &format!("10.0.0.{}", 30 + place), MASTER));
        }
        input
            .hosts
            .insert(0, host("a-worker", "10.0.0.40", &[Role::Worker]));
    });
    let inventory = compile(&input).unwrap();
    assert_eq!(
        names(&inventory, "etcd"),
        ["master-1", "b-master", "a-master"]
    );
    assert_eq!(
        names(&inventory, "kube_node"),
        ["worker-1", "worker-2", "a-worker"]
    );
    assert_eq!(inventory.order().etcd_member_names["master-1"], "etcd1");
    assert_eq!(
        inventory.host("a-master").unwrap()["etcd_member_name"],
        "etcd3"
    );
    assert!(appends(first.order(), inventory.order()).is_empty());
    assert!(
        !appends(inventory.order(), first.order()).is_empty()
            || names(&inventory, "etcd")[0] == "master-1"
    );
}

#[test]
fn a_removed_member_renames_nobody() {
    let members: BTreeMap<String, String> = [
        ("master-1", "etcd1"),
        ("master-2", "etcd2"),
        ("master-3", "etcd3"),
    ]
    .map(|(a, b)| (a.to_owned(), b.to_owned()))
    .into();
    let masters = json!(["master-1", "master-2", "master-3"]);
    let input = with(|input| {
        input.persisted = status(json!({"kube_control_plane": masters, "etcd": masters}));
        input.persisted.etcd_member_names = members;
        input.hosts.push(host("master-3", "10.0.0.13", MASTER));
        input.hosts.push(host("master-4", "10.0.0.14", MASTER));
    });
    let inventory = compile(&input).unwrap();
    let member = |name: &str| inventory.host(name).unwrap()["etcd_member_name"].clone();
    assert_eq!(
        [member("master-1"), member("master-3"), member("master-4")],
        ["etcd1", "etcd3", "etcd4"]
    );
}

#[test]
fn an_excluded_host_stays_in_its_groups() {
    let inventory = compile(&with(|input| input.hosts[2].excluded = true)).unwrap();
    assert_eq!(
        names(&inventory, "k8s_cluster"),
        ["master-1", "worker-1", "worker-2"]
    );
    assert_eq!(
        inventory.limit().as_deref(),
        Some("all:localhost:!worker-2")
    );
}

#[test]
fn nodes_need_etcd_where_the_network_does() {
    for (name, given, count) in [
        ("default", json!({}), 0),
        ("flannel", json!({"kube_network_plugin": "flannel"}), 2),
        ("calico on etcd", json!({"calico_datastore": "etcd"}), 2),
        (
            "flannel, etcd by kubeadm",
            json!({"kube_network_plugin": "flannel", "etcd_deployment_type": "kubeadm"}),
            0,
        ),
    ] {
        let inventory =
            compile(&with(|input| input.settings.extra_vars = variables(given))).unwrap();
        assert_eq!(
            inventory.group("_kubespray_needs_etcd").len(),
            count,
            "{name}"
        );
    }
}

/// A name, what is changed, the field and a word of the rule that the error must have.
type Row = (
    &'static str,
    fn(&mut InventoryInput),
    &'static str,
    &'static str,
);

const REFUSED: &[Row] = &[
    (
        "name",
        |i| i.hosts[1].name = "Worker_1".into(),
        "ClusterNode/Worker_1 metadata.name",
        "RFC 1123",
    ),
    (
        "name of a group",
        |i| i.hosts[1].name = "etcd".into(),
        "ClusterNode/etcd metadata.name",
        "group",
    ),
    (
        "same name",
        |i| i.hosts[2].name = "worker-1".into(),
        "ClusterNode/worker-1 metadata.name",
        "2 hosts",
    ),
    (
        "same address",
        |i| i.hosts[2].variables.ansible_host = "10.0.0.21".into(),
        "ClusterNode/worker-2 spec.inventory.ansible_host",
        "worker-1",
    ),
    (
        "same ip",
        |i| i.hosts[2].variables.ip = Some("10.0.0.21".into()),
        "ClusterNode/worker-2 spec.inventory.ip",
        "worker-1",
    ),
    (
        "called as another one",
        |i| {
            let other = &mut i.hosts[2].variables.other;
            other.insert("kube_override_hostname".into(), "worker-1".into());
        },
        "ClusterNode/worker-2 spec.inventory.kube_override_hostname",
        "called as its ClusterNode",
    ),
    (
        "reached where another one is",
        |i| {
            i.hosts[1].variables.ip = Some("10.1.0.21".into());
            i.hosts[2].variables.ansible_host = "10.1.0.21".into();
        },
        "ClusterNode/worker-2 spec.inventory.ansible_host",
        "worker-1",
    ),
    (
        "known to others as another one",
        |i| i.hosts[2].variables.access_ip = Some("10.0.0.21".into()),
        "ClusterNode/worker-2 spec.inventory.access_ip",
        "worker-1",
    ),
    (
        "no address",
        |i| i.hosts[2].variables.ansible_host = "-x y".into(),
        "ClusterNode/worker-2 spec.inventory.ansible_host",
        "neither",
    ),
    (
        "address that is none",
        |i| i.hosts[2].variables.ansible_host = "999.1.1.1".into(),
        "ClusterNode/worker-2 spec.inventory.ansible_host",
        "neither",
    ),
    (
        "option as address",
        |i| i.hosts[2].variables.ansible_host = "-oProxyCommand=x".into(),
        "ClusterNode/worker-2 spec.inventory.ansible_host",
        "neither",
    ),
    (
        "ip is none",
        |i| i.hosts[2].variables.ip = Some("worker".into()),
        "ClusterNode/worker-2 spec.inventory.ip",
        "IP",
    ),
    (
        "port 0",
        |i| i.hosts[2].variables.ansible_port = Some(0),
        "ClusterNode/worker-2 spec.inventory.ansible_port",
        "65535",
    ),
    (
        "no role",
        |i| i.hosts[2].roles.clear(),
        "ClusterNode/worker-2 spec.roles",
        "at least one group",
    ),
    (
        "null",
        |i| i.hosts[2].variables.other = variables(json!({"x": null})),
        "ClusterNode/worker-2 spec.inventory.x",
        "null",
    ),
    (
        "float",
        |i| i.hosts[2].variables.other = variables(json!({"x": {"y": [1.5]}})),
        "ClusterNode/worker-2 spec.inventory.x.y[0]",
        "float",
    ),
    (
        "reserved",
        |i| i.hosts[2].variables.other = variables(json!({"ansible_ssh_common_args": "-v"})),
        "ClusterNode/worker-2 spec.inventory.ansible_ssh_common_args",
        "reserved",
    ),
    (
        "magic",
        |i| i.hosts[2].variables.other = variables(json!({"group_names": []})),
        "ClusterNode/worker-2 spec.inventory.group_names",
        "reserved",
    ),
    (
        "name of a variable",
        |i| i.hosts[2].variables.other = variables(json!({"a-b": 1})),
        "ClusterNode/worker-2 spec.inventory.a-b",
        "letters",
    ),
    (
        "no control plane",
        |i| i.hosts[0].roles = vec![Role::Etcd],
        "ClusterNodes",
        "control-plane",
    ),
    (
        "no etcd",
        |i| i.hosts[0].roles = vec![Role::ControlPlane],
        "ClusterNodes",
        "etcd member",
    ),
    (
        "even etcd",
        |i| i.hosts[1].roles.push(Role::Etcd),
        "ClusterNodes",
        "odd",
    ),
    (
        "overlap",
        |i| i.settings.extra_vars = variables(json!({"kube_pods_subnet": "10.233.0.0/16"})),
        "Cluster spec.nodes.all.deploy.extraVars.kube_pods_subnet",
        "overlaps",
    ),
    (
        "no network",
        |i| i.settings.extra_vars = variables(json!({"kube_pods_subnet": "ten"})),
        "Cluster spec.nodes.all.deploy.extraVars.kube_pods_subnet",
        "not a network",
    ),
    (
        "host bits",
        |i| i.settings.extra_vars = variables(json!({"kube_service_addresses": "10.96.0.1/12"})),
        "Cluster spec.nodes.all.deploy.extraVars.kube_service_addresses",
        "inside",
    ),
    (
        "hosts in it",
        |i| i.settings.extra_vars = variables(json!({"kube_pods_subnet": "10.0.0.0/16"})),
        "ClusterNode/master-1 spec.inventory.ip",
        "kube_pods_subnet",
    ),
    (
        "too small",
        |i| {
            i.settings.extra_vars = variables(
                json!({"kube_network_plugin": "flannel", "kube_pods_subnet": "10.244.0.0/23"}),
            )
        },
        "Cluster spec.nodes.all.deploy.extraVars.kube_pods_subnet",
        "2 networks",
    ),
    (
        "too many pods",
        |i| {
            i.settings.extra_vars =
                variables(json!({"kube_network_plugin": "flannel", "kubelet_max_pods": 300}))
        },
        "Cluster spec.nodes.all.deploy.extraVars.kube_network_node_prefix",
        "254",
    ),
    (
        "ipv6 overlap",
        |i| {
            i.settings.extra_vars = variables(
                json!({"ipv6_stack": true, "kube_pods_subnet_ipv6": "fd85:ee78:d8a6:8607::/64"}),
            )
        },
        "Cluster spec.nodes.all.deploy.extraVars.kube_pods_subnet_ipv6",
        "overlaps",
    ),
    (
        "version as variable",
        |i| i.settings.extra_vars = variables(json!({"kube_version": "1.34.3"})),
        "Cluster spec.nodes.all.deploy.extraVars.kube_version",
        "reserved",
    ),
    (
        "text as boolean",
        |i| i.settings.extra_vars = variables(json!({"helm_enabled": "true"})),
        "Cluster spec.nodes.all.deploy.extraVars.helm_enabled",
        "boolean",
    ),
    (
        "negative port",
        |i| i.settings.extra_vars = variables(json!({"kube_apiserver_port": -1})),
        "Cluster spec.nodes.all.deploy.extraVars.kube_apiserver_port",
        "65535",
    ),
    (
        "asks a person",
        |i| i.settings.extra_vars = variables(json!({"upgrade_node_confirm": true})),
        "Cluster spec.nodes.all.deploy.extraVars.upgrade_node_confirm",
        "terminal",
    ),
    (
        "removed head",
        |i| i.persisted = status(json!({"etcd": ["master-0", "master-1"]})),
        "ClusterNode/master-0",
        "head of etcd",
    ),
    (
        "renamed member",
        |i| {
            i.persisted.etcd_member_names = [("master-1".to_owned(), "etcd1".to_owned())].into();
            i.hosts[0].variables.etcd_member_name = Some("other".into());
        },
        "ClusterNode/master-1 spec.inventory.etcd_member_name",
        "renamed",
    ),
];

#[test]
fn mistakes_are_named_with_field_value_rule_and_remedy() {
    for (name, change, field, rule) in REFUSED {
        let errors = compile(&with(change)).expect_err(name);
        let found = errors
            .iter()
            .find(|e| e.field == *field && e.rule.contains(rule));
        let error: &InventoryError = found.unwrap_or_else(|| panic!("{name}: {errors:#?}"));
        assert!(
            !error.value.is_empty() && !error.remedy.is_empty(),
            "{name}: {error}"
        );
    }
}

#[test]
fn every_mistake_is_told_at_once() {
    let errors = compile(&with(|input| {
        input.hosts[1].name = "B".into();
        input.hosts[2].variables.ip = Some("x".into());
        input.hosts[0].roles = vec![Role::ControlPlane];
    }));
    assert_eq!(errors.unwrap_err().len(), 3);
}

#[test]
fn an_order_may_only_grow_at_its_end() {
    let before = status(json!({"etcd": ["a", "b", "c"]}));
    for (name, after, errors) in [
        ("same", json!(["a", "b", "c"]), 0),
        ("longer", json!(["a", "b", "c", "d"]), 0),
        ("one removed", json!(["a", "c"]), 0),
        ("reordered", json!(["a", "c", "b"]), 1),
        ("in front", json!(["d", "a", "b", "c"]), 1),
        ("other head", json!(["b", "a", "c"]), 1),
        ("head removed", json!(["b", "c"]), 1),
    ] {
        assert_eq!(
            appends(&before, &status(json!({"etcd": after}))).len(),
            errors,
            "{name}"
        );
    }
}

#[test]
fn files_are_for_the_owner_alone() {
    let run = tempfile::tempdir().unwrap();
    let input = with(|input| input.settings.directories = Directories::below(run.path()));
    let inventory = compile(&input).unwrap();
    let files = inventory.write(run.path()).unwrap();
    for (path, mode) in [
        (&files.inventory, 0o600),
        (&files.vars, 0o600),
        (&run.path().join("facts"), 0o700),
    ] {
        let found = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{}", path.display());
    }
    let text = std::fs::read_to_string(files.vars).unwrap();
    assert_eq!(
        serde_json::from_str::<Map<String, Value>>(&text).unwrap(),
        *inventory.extra_vars()
    );
}
