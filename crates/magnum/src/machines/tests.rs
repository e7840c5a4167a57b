use std::collections::{BTreeMap, BTreeSet};

use api::magnum::{CoeCluster, CoeClusterTemplateSpec};
use serde_json::{Value, json};

use super::{
    plan::{Live, Plan, plan},
    *,
};

mod cluster_api_definitions;

const ADDONS: [Addon<'_>; 2] = [
    Addon {
        kind: "ConfigMap",
        name: "calico",
    },
    Addon {
        kind: "Secret",
        name: "cloud-controller",
    },
];
const UUID: &str = "1b2c3d4e-0000-4000-8000-00000000000a";

#[expect(clippy::needless_pass_by_value, reason = "it is written in place")]
fn over(mut object: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

/// A cluster with a control plane and two workers, and more.
pub(super) fn cluster(more: Value) -> CoeCluster {
    let group = |uuid: &str, name: &str, role: &str, count: u32| {
        json!({
            "uuid": format!("{uuid}-0000-4000-8000-000000000000"), "name": name, "role": role, "nodeCount": count,
            "flavorId": "m1.large", "imageId": "ubuntu-24.04-k8s", "labels": more["labels"],
        })
    };
    let spec = json!({
        "name": "first", "projectId": "p1", "userId": "ann", "serverType": "vm", "kubernetesVersion": "1.34.3",
        "clusterTemplateId": "00000000-0000-4000-8000-00000000000b", "labels": {},
        "nodeGroups": [
            group("aaaaaaaa", "default-master", "master", 1),
            group("bbbbbbbb", "default-worker", "worker", 2),
        ],
    });
    let mut spec = over(spec, more);
    for group in spec["nodeGroups"].as_array_mut().unwrap() {
        if group["labels"].is_null() {
            group["labels"] = json!({});
        }
    }
    serde_json::from_value(json!({
        "apiVersion": "magnum.windlass.dev/v1alpha1", "kind": "CoeCluster",
        "metadata": {"name": UUID, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec,
    }))
    .unwrap()
}

fn template(more: Value) -> CoeClusterTemplateSpec {
    let spec = json!({
        "name": "t", "projectId": "p1", "userId": "ann", "imageId": "ubuntu-24.04-k8s", "externalNetworkId": "public",
    });
    serde_json::from_value(over(spec, more)).unwrap()
}

/// What is rendered for the goldens: a row for each version, plugin and set of options.
fn cases() -> BTreeMap<&'static str, (CoeCluster, CoeClusterTemplateSpec)> {
    let id = "5d0b1f6e-1111-4222-8333-444455556666";
    let labels = json!({
        "boot_volume_size": "40", "boot_volume_type": "ssd", "availability_zone": "az-1", "extra_network_names": "storage,backup",
        "cilium_ipv4pool": "10.200.0.0/16", "service_cluster_ip_range": "10.96.0.0/12", "dns_cluster_domain": "example.local",
        "container_infra_prefix": "registry.example/k8s/", "api_master_lb_allowed_cidrs": "192.0.2.0/24", "octavia_provider": "ovn",
        "api_server_cert_sans": "api.example,192.0.2.9", "kubelet_tls_cipher_suites": "TLS_AES_128_GCM_SHA256",
        "oidc_issuer_url": "https://login.example", "oidc_client_id": "k8s", "auto_scaling_enabled": "true", "max_node_count": "5",
    });
    let mut many = cluster(json!({
        "kubernetesVersion": "1.33.7", "networkDriver": "cilium", "masterLbEnabled": true, "keypair": "ann", "labels": labels,
    }));
    many.spec.node_groups[0].node_count = 3;
    let group = json!({
        "uuid": "cccccccc-0000-4000-8000-000000000000", "name": "GPU nodes!", "role": "gpu", "nodeCount": 0,
        "flavorId": id, "imageId": id, "nodeLabels": {"example.com/gpu": "yes"}, "labels": {"auto_healing_enabled": "false"},
        "nodeTaints": [{"key": "gpu", "effect": "NoSchedule"}],
    });
    many.spec
        .node_groups
        .push(serde_json::from_value(group).unwrap());
    BTreeMap::from([
        ("calico-1.34", (cluster(json!({})), template(json!({})))),
        (
            "cilium-1.33-many-options",
            (
                many,
                template(json!({"dnsNameserver": "192.0.2.53, 192.0.2.54", "apiserverPort": 8443})),
            ),
        ),
        (
            "flannel-1.35-own-network",
            (
                cluster(json!({
                    "kubernetesVersion": "1.35.0", "networkDriver": "flannel", "fixedNetwork": id, "fixedSubnet": "inner",
                    "floatingIpEnabled": false, "masterLbEnabled": true,
                })),
                template(json!({"externalNetworkId": id})),
            ),
        ),
    ])
}

fn all(objects: &Objects) -> Vec<Value> {
    objects.all().cloned().collect()
}

#[test]
fn objects_are_as_they_were() {
    for (name, (cluster, template)) in cases() {
        insta::assert_yaml_snapshot!(name, all(&objects(&cluster, &template, &ADDONS).unwrap()));
    }
}

#[test]
fn the_same_cluster_has_the_same_names_and_another_machine_another_one() {
    let (cluster, template) = cases().remove("calico-1.34").unwrap();
    let first = objects(&cluster, &template, &[]).unwrap();
    assert_eq!(
        all(&first),
        all(&objects(&cluster, &template, &[]).unwrap())
    );
    let mut resized = cluster.clone();
    resized.spec.node_groups[1].node_count = 7;
    resized.spec.name = "renamed".to_owned();
    let names = |objects: &Objects| -> BTreeSet<_> {
        objects
            .all()
            .map(|object| name_of(object).to_owned())
            .collect()
    };
    assert_eq!(
        names(&first),
        names(&objects(&resized, &template, &[]).unwrap())
    );
    let mut larger = cluster.clone();
    larger.spec.node_groups[1].flavor_id = Some("m1.huge".to_owned());
    let larger = objects(&larger, &template, &[]).unwrap();
    let new: Vec<_> = names(&larger).difference(&names(&first)).cloned().collect();
    assert_eq!(new.len(), 1, "{new:?}");
    assert!(
        new[0].starts_with("k8s-1b2c3d4e-default-worker-bbbbbbbb-"),
        "{new:?}"
    );
}

#[test]
fn what_could_never_be_made_is_told() {
    let good = |more| cluster(more);
    let without = |key: &str| {
        let mut cluster = serde_json::to_value(good(json!({}))).unwrap();
        cluster["spec"]["nodeGroups"][1]
            .as_object_mut()
            .unwrap()
            .remove(key);
        serde_json::from_value(cluster).unwrap()
    };
    let worker = || "default-worker".to_owned();
    for (cluster, distro, unfit) in [
        (
            good(json!({"kubernetesVersion": null})),
            "ubuntu",
            Unfit::Version,
        ),
        (without("flavorId"), "ubuntu", Unfit::Flavor(worker())),
        (without("imageId"), "ubuntu", Unfit::Image(worker())),
        (
            good(json!({"floatingIpEnabled": false})),
            "ubuntu",
            Unfit::Endpoint,
        ),
        (
            good(json!({})),
            "flatcar",
            Unfit::System("flatcar".to_owned()),
        ),
    ] {
        let template = template(json!({"clusterDistro": distro}));
        assert_eq!(objects(&cluster, &template, &[]).unwrap_err(), unfit);
    }
}

/// All of it as it is when it was applied.
fn live(objects: &Objects) -> Live {
    let all = objects.all();
    Live(
        all.map(|object| (Kind::of(object).unwrap(), object.clone()))
            .collect(),
    )
}

#[test]
fn what_is_there_is_not_written_and_what_is_not_is() {
    for (name, (cluster, template)) in cases() {
        let wanted = objects(&cluster, &template, &[]).unwrap();
        assert_eq!(
            plan(&cluster, &wanted, &live(&wanted)),
            Plan::default(),
            "{name}"
        );
        let new = plan(&cluster, &wanted, &Live::default());
        assert_eq!(new.apply, all(&wanted), "{name}");
    }
}

#[test]
fn an_old_template_stays_until_nothing_refers_to_it() {
    let (mut cluster, template) = cases().remove("calico-1.34").unwrap();
    let first = objects(&cluster, &template, &[]).unwrap();
    let old = first
        .templates
        .iter()
        .map(|object| (Kind::of(object).unwrap(), name_of(object)));
    let old: Vec<_> = old
        .filter(|(kind, _)| *kind == Kind::ServerTemplate)
        .collect();
    cluster.spec.node_groups[1].flavor_id = Some("m1.huge".to_owned());
    let wanted = objects(&cluster, &template, &[]).unwrap();
    let mut there = live(&first);
    let changed = plan(&cluster, &wanted, &there);
    let written: Vec<_> = changed.apply.iter().filter_map(Kind::of).collect();
    assert_eq!(written, [Kind::ServerTemplate, Kind::Deployment]);
    assert_eq!(changed.delete, [], "the group still refers to the old one");
    // Applied, and a machine of the old kind is still there.
    let (_, worker) = old
        .iter()
        .find(|(_, name)| name.contains("worker"))
        .unwrap();
    there.0 = live(&wanted).0;
    there.0.extend(
        live(&first)
            .0
            .into_iter()
            .filter(|(kind, object)| *kind == Kind::ServerTemplate && name_of(object) == *worker),
    );
    let machine = json!({"metadata": {"name": "s", "annotations": {"cluster.x-k8s.io/cloned-from-name": worker}}});
    there.0.push((Kind::Server, machine));
    assert_eq!(plan(&cluster, &wanted, &there), Plan::default());
    there.0.pop();
    let after = plan(&cluster, &wanted, &there);
    assert_eq!(after.delete, [(Kind::ServerTemplate, (*worker).to_owned())]);
}

#[test]
fn workers_wait_for_the_control_planes_of_a_new_version() {
    let (mut cluster, template) = cases().remove("calico-1.34").unwrap();
    let mut there = live(&objects(&cluster, &template, &[]).unwrap());
    let at = |there: &mut Live, version: &str| {
        for (kind, object) in &mut there.0 {
            if *kind == Kind::ControlPlane {
                object["status"] = json!({
                    "version": version, "replicas": 1, "upToDateReplicas": 1, "initialization": {"controlPlaneInitialized": true},
                });
            }
        }
    };
    at(&mut there, "v1.34.3");
    cluster.spec.kubernetes_version = Some("1.35.0".parse().unwrap());
    cluster.spec.node_groups[1].image_id = Some("newer".to_owned());
    let wanted = objects(&cluster, &template, &[]).unwrap();
    let versions = |plan: &Plan| -> Vec<_> {
        let all = plan.apply.iter();
        all.filter(|object| Kind::of(object) == Some(Kind::Deployment))
            .map(|object| object["spec"]["template"]["spec"]["version"].clone())
            .collect()
    };
    let first = plan(&cluster, &wanted, &there);
    assert!(first.waits);
    assert_eq!(versions(&first), Vec::<Value>::new());
    for (kind, object) in &mut there.0 {
        if *kind == Kind::ControlPlane {
            *object = wanted.control_plane.clone();
        }
    }
    at(&mut there, "v1.34.3");
    assert!(plan(&cluster, &wanted, &there).waits);
    at(&mut there, "v1.35.0");
    let then = plan(&cluster, &wanted, &there);
    assert!(!then.waits);
    assert_eq!(versions(&then), ["v1.35.0"]);
}

#[test]
fn an_upgrade_replaces_so_many_workers_at_once_as_were_named() {
    let (mut cluster, template) = cases().remove("calico-1.34").unwrap();
    let rollouts = |cluster: &CoeCluster| -> Vec<_> {
        let all = all(&objects(cluster, &template, &[]).unwrap());
        let deployments = all.into_iter();
        let deployments = deployments.filter(|object| Kind::of(object) == Some(Kind::Deployment));
        deployments
            .map(|object| object["spec"]["rollout"].clone())
            .collect()
    };
    assert_eq!(rollouts(&cluster), [Value::Null]);
    let live = live(&objects(&cluster, &template, &[]).unwrap());
    cluster.spec.max_batch_size = Some(3);
    let wanted = json!({"strategy": {
        "type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 0},
    }});
    assert_eq!(rollouts(&cluster), [wanted]);
    // Machines stay as they are.
    let wanted = objects(&cluster, &template, &[]).unwrap();
    let plan = plan(&cluster, &wanted, &live);
    let kinds: Vec<_> = plan.apply.iter().map(Kind::of).collect();
    assert_eq!(kinds, [Some(Kind::Deployment)]);
}

#[test]
fn a_group_that_shrinks_loses_the_machines_that_were_named() {
    let (mut cluster, template) = cases().remove("calico-1.34").unwrap();
    let wanted = objects(&cluster, &template, &[]).unwrap();
    let mut there = live(&wanted);
    let worker = cluster.spec.node_groups[1].uuid.clone();
    for at in 1..=3 {
        let machine = json!({
            "metadata": {"name": format!("w-{at}"), "labels": {GROUP_LABEL: worker}},
            "spec": {"providerID": format!("openstack:///id-{at}")},
            "status": {"nodeRef": {"name": format!("node-{at}")}, "addresses": [{"type": "InternalIP", "address": format!("10.0.0.{at}")}]},
        });
        there.0.push((Kind::Machine, machine));
    }
    for ident in ["w-2", "node-2", "id-2", "10.0.0.2"] {
        cluster.spec.node_groups[1].nodes_to_remove = vec![ident.to_owned()];
        assert_eq!(plan(&cluster, &wanted, &there).marks, ["w-2"], "{ident}");
    }
    cluster.spec.node_groups[1].node_count = 3;
    assert_eq!(plan(&cluster, &wanted, &there).marks, Vec::<String>::new());
}

#[test]
fn a_group_that_is_gone_goes_and_its_templates_after_it() {
    let (mut cluster, template) = cases().remove("cilium-1.33-many-options").unwrap();
    let there = live(&objects(&cluster, &template, &[]).unwrap());
    cluster.spec.node_groups.pop();
    let plan = plan(
        &cluster,
        &objects(&cluster, &template, &[]).unwrap(),
        &there,
    );
    assert_eq!(
        plan.delete,
        [(
            Kind::Deployment,
            "k8s-1b2c3d4e-gpu-nodes-cccccccc".to_owned()
        )]
    );
}

#[test]
fn more_nodes_than_a_cluster_may_have_are_refused_whoever_brings_them() {
    let with = |count: u32, labels: Value, most: Option<u32>| {
        let mut cluster = cluster(json!({"labels": labels}));
        let group = &mut cluster.spec.node_groups[1];
        (group.node_count, group.max_node_count) = (count, most);
        objects(&cluster, &template(json!({})), &[]).map(drop)
    };
    let scaled = || json!({"auto_scaling_enabled": "true"});
    assert_eq!(with(999, json!({}), Some(9999)), Ok(()));
    assert_eq!(with(1000, json!({}), None), Err(Unfit::Nodes(1001)));
    assert_eq!(with(u32::MAX, json!({}), None), Err(Unfit::Nodes(1 << 32)));
    assert_eq!(with(1, scaled(), Some(999)), Ok(()));
    assert_eq!(with(1, scaled(), Some(1000)), Err(Unfit::Nodes(1001)));
    let crossed =
        json!({"auto_scaling_enabled": "true", "min_node_count": "4", "max_node_count": "3"});
    let unfit = Unfit::Bounds {
        group: "default-worker".to_owned(),
        least: 4,
        most: 3,
    };
    assert_eq!(with(1, crossed, None), Err(unfit));
}

#[test]
fn a_group_of_the_autoscaler_begins_with_its_nodes_and_keeps_what_it_has() {
    let labels =
        json!({"auto_scaling_enabled": "true", "min_node_count": "1", "max_node_count": "5"});
    let mut cluster = cluster(json!({"labels": labels}));
    let template = template(json!({}));
    let wanted = objects(&cluster, &template, &[]).unwrap();
    assert_eq!(wanted.deployments[0]["spec"]["replicas"], 2);
    let mut there = live(&wanted);
    let mut planned = |has: u32, cluster: &CoeCluster| {
        for (kind, object) in &mut there.0 {
            if *kind == Kind::Deployment {
                object["spec"]["replicas"] = json!(has);
            }
        }
        let wanted = objects(cluster, &template, &[]).unwrap();
        let plan = plan(cluster, &wanted, &there);
        let counts = plan.apply.iter().map(|object| &object["spec"]["replicas"]);
        counts.cloned().collect::<Vec<_>>()
    };
    assert_eq!(planned(4, &cluster), Vec::<Value>::new());
    assert_eq!(planned(9, &cluster), [json!(5)]);
    // Something else of it is written: the number stands in it.
    cluster.spec.node_groups[1].max_node_count = Some(7);
    assert_eq!(planned(4, &cluster), [json!(4)]);
}
