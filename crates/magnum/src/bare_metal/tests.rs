use proptest::prelude::*;

use super::*;

const UUID: &str = "00000000-0000-4000-8000-00000000000a";

fn cluster(masters: u32, workers: u32) -> CoeCluster {
    serde_json::from_value(json!({
        "apiVersion": "magnum.windlass.dev/v1alpha1", "kind": "CoeCluster", "metadata": {"name": UUID},
        "spec": {
            "name": "first", "projectId": "p1", "userId": "u", "kubernetesVersion": "1.34.3",
            "clusterTemplateId": "00000000-0000-4000-8000-00000000000b",
            "nodeGroups": [
                {"uuid": "m", "name": "default-master", "role": "master", "nodeCount": masters},
                {"uuid": "w", "name": "default-worker", "role": "worker", "nodeCount": workers},
            ],
        },
    }))
    .unwrap()
}

fn pool(count: usize) -> Vec<Host> {
    let host = |at: usize| {
        let spec = json!({"address": format!("10.0.0.{at}"), "user": "debian"});
        serde_json::from_value(json!({
            "apiVersion": "magnum.windlass.dev/v1alpha1", "kind": "Host",
            "metadata": {"name": format!("host-{at}")}, "spec": spec,
        }))
        .unwrap()
    };
    (1..=count).map(host).collect()
}

/// Carries a plan out, and gives the ClusterNodes that there are then.
fn carry_out(plan: &Plan, hosts: &mut [Host], there: &mut BTreeSet<String>) {
    for host in hosts.iter_mut() {
        if let Some(claim) = plan.claims.get(&host.name_any()) {
            assert_eq!(host.spec.claim, None, "a host is never shared");
            host.spec.claim = Some(claim.clone());
        }
        if plan.releases.contains(&host.name_any()) {
            host.spec.claim = None;
        }
    }
    let wanted = plan.objects.iter().flat_map(|objects| &objects.nodes);
    there.extend(wanted.map(ResourceExt::name_any));
    there.retain(|name| !plan.leaving.contains(name));
}

fn settle(cluster: &CoeCluster, hosts: &mut [Host], there: &mut BTreeSet<String>) -> Plan {
    for _ in 0..4 {
        let plan = plan(cluster, hosts, there, &Settings::default());
        if plan.is_done() {
            return plan;
        }
        carry_out(&plan, hosts, there);
    }
    panic!("it does not come to an end");
}

fn names(plan: &Plan) -> Vec<String> {
    let objects = plan.objects.as_ref().unwrap();
    objects.nodes.iter().map(ResourceExt::name_any).collect()
}

#[test]
fn a_cluster_gets_the_first_free_hosts_control_planes_first() {
    let plan = plan(
        &cluster(1, 2),
        &pool(4),
        &BTreeSet::new(),
        &Settings::default(),
    );
    let claims: Vec<_> = plan
        .claims
        .iter()
        .map(|(host, claim)| (host.as_str(), claim.node.as_str()))
        .collect();
    assert_eq!(
        claims,
        [
            ("host-1", "default-master-1"),
            ("host-2", "default-worker-1"),
            ("host-3", "default-worker-2")
        ]
    );
    let Objects { cluster, nodes } = plan.objects.unwrap();
    assert_eq!(
        cluster.metadata.namespace.as_deref(),
        Some("coe-00000000-0000-4000-8000-00000000000a")
    );
    assert_eq!(
        cluster.spec.kubernetes_version,
        Some("1.34.3".parse().unwrap())
    );
    assert_eq!(cluster.spec.deletion_policy, Some(DeletionPolicy::Reset));
    let conditions = cluster
        .spec
        .operations
        .unwrap()
        .creation
        .unwrap()
        .start_conditions
        .unwrap();
    assert_eq!(conditions.nodes.unwrap().minimum, 3);
    assert_eq!(nodes[0].spec.node_type, NodeType::Master);
    assert_eq!(nodes[0].spec.roles, None);
    assert_eq!(nodes[1].spec.inventory.ansible_host, "10.0.0.2");
    assert_eq!(
        nodes[1].spec.inventory.ansible_user.as_deref(),
        Some("debian")
    );
}

#[test]
fn control_planes_alone_run_pods_too() {
    let plan = plan(
        &cluster(1, 0),
        &pool(1),
        &BTreeSet::new(),
        &Settings::default(),
    );
    let roles = plan.objects.unwrap().nodes[0].spec.roles.clone().unwrap();
    assert_eq!(roles, [Role::ControlPlane, Role::Etcd, Role::Worker]);
}

#[test]
fn a_cluster_that_cannot_have_all_takes_none() {
    let plan = plan(
        &cluster(1, 3),
        &pool(3),
        &BTreeSet::new(),
        &Settings::default(),
    );
    assert!(plan.claims.is_empty() && plan.objects.is_none(), "{plan:?}");
    assert!(
        plan.missing["w"].contains("3 more hosts of no flavor, and 2 are free"),
        "{plan:?}"
    );
}

#[test]
fn a_flavor_is_what_hosts_are_asked_by() {
    let mut cluster = cluster(1, 1);
    cluster.spec.node_groups[1].flavor_id = Some("gpu".to_owned());
    let mut hosts = pool(3);
    hosts[2].spec.flavor = Some("gpu".to_owned());
    let plan_of = |hosts: &[Host]| plan(&cluster, hosts, &BTreeSet::new(), &Settings::default());
    assert_eq!(plan_of(&hosts).claims["host-3"].node, "default-worker-1");
    // One of no flavor is for anybody, one of another flavor is not.
    hosts[2].spec.flavor = Some("other".to_owned());
    assert_eq!(plan_of(&hosts).claims["host-2"].node, "default-worker-1");
    hosts[1].spec.flavor = Some("other".to_owned());
    let lacking = plan_of(&hosts);
    assert!(
        lacking.missing["w"].contains("of flavor gpu"),
        "{lacking:?}"
    );
}

#[test]
fn what_is_settled_stays_as_it_is() {
    let (mut hosts, mut there) = (pool(4), BTreeSet::new());
    let first = settle(&cluster(1, 2), &mut hosts, &mut there);
    hosts.reverse();
    let again = plan(&cluster(1, 2), &hosts, &there, &Settings::default());
    assert!(again.is_done(), "{again:?}");
    assert_eq!(names(&again), names(&first));
}

#[test]
fn the_node_that_somebody_names_goes_and_its_host_is_free_when_it_has_gone() {
    for ident in ["10.0.0.2", "default-worker-1", "host-2"] {
        let (mut hosts, mut there) = (pool(3), BTreeSet::new());
        settle(&cluster(1, 2), &mut hosts, &mut there);
        let mut smaller = cluster(1, 1);
        smaller.spec.node_groups[1].nodes_to_remove = vec![ident.to_owned()];
        let leaving = plan(&smaller, &hosts, &there, &Settings::default());
        assert_eq!(
            leaving.leaving,
            BTreeSet::from(["default-worker-1".to_owned()]),
            "{ident}"
        );
        assert!(leaving.releases.is_empty(), "{ident}");
        there.remove("default-worker-1");
        let gone = plan(&smaller, &hosts, &there, &Settings::default());
        assert_eq!(
            gone.releases,
            BTreeSet::from(["host-2".to_owned()]),
            "{ident}"
        );
        assert_eq!(names(&gone), ["default-master-1", "default-worker-2"]);
    }
}

#[test]
fn without_a_name_the_newest_goes() {
    let (mut hosts, mut there) = (pool(12), BTreeSet::new());
    settle(&cluster(1, 11), &mut hosts, &mut there);
    let plan = plan(&cluster(1, 10), &hosts, &there, &Settings::default());
    assert_eq!(
        plan.leaving,
        BTreeSet::from(["default-worker-11".to_owned()])
    );
}

#[test]
fn a_group_that_is_gone_gives_its_hosts_back() {
    let (mut hosts, mut there) = (pool(3), BTreeSet::new());
    settle(&cluster(1, 2), &mut hosts, &mut there);
    let mut without = cluster(1, 2);
    without.spec.node_groups.truncate(1);
    settle(&without, &mut hosts, &mut there);
    let claimed = hosts
        .iter()
        .filter(|host| host.spec.claim.is_some())
        .count();
    assert_eq!((claimed, there.len()), (1, 1));
}

#[test]
fn labels_and_taints_are_kubespray_s_variables() {
    let mut cluster = cluster(1, 1);
    let group = &mut cluster.spec.node_groups[1];
    group.name = "GPU nodes".to_owned();
    group.node_labels.insert("gpu".to_owned(), "yes".to_owned());
    group.node_taints = serde_json::from_value(json!([{"key": "gpu", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoExecute"}])).unwrap();
    let plan = plan(&cluster, &pool(2), &BTreeSet::new(), &Settings::default());
    let node = &plan.objects.unwrap().nodes[1];
    assert_eq!(node.name_any(), "gpu-nodes-1");
    assert_eq!(
        node.spec.inventory.other["node_labels"],
        json!({"gpu": "yes"})
    );
    assert_eq!(
        node.spec.inventory.other["node_taints"],
        json!(["gpu=:NoSchedule", "a=b:NoExecute"])
    );
}

#[test]
fn another_plugin_than_kubespray_s_own_is_asked_for() {
    let mut cluster = cluster(1, 0);
    let of = |cluster: &CoeCluster| {
        let plan = plan(cluster, &pool(1), &BTreeSet::new(), &Settings::default());
        plan.objects
            .unwrap()
            .cluster
            .spec
            .nodes
            .map(|nodes| json!(nodes))
    };
    assert_eq!(of(&cluster), None);
    cluster.spec.network_driver = Some(NetworkDriver::Cilium);
    assert_eq!(
        of(&cluster).unwrap()["all"]["deploy"]["extraVars"],
        json!({"kube_network_plugin": "cilium"})
    );
}

#[test]
fn an_upgrade_takes_so_many_workers_at_once_as_were_named() {
    let mut cluster = cluster(1, 0);
    let of = |cluster: &CoeCluster| {
        let plan = plan(cluster, &pool(1), &BTreeSet::new(), &Settings::default());
        let operations = plan.objects.unwrap().cluster.spec.operations.unwrap();
        operations.upgrade.map(|upgrade| json!(upgrade))
    };
    assert_eq!(of(&cluster), None);
    cluster.spec.max_batch_size = Some(3);
    assert_eq!(
        of(&cluster).unwrap()["maxUnavailable"],
        json!(Threshold::Count(3))
    );
}

proptest! {
    /// However sizes change, hosts are never shared, every name is one host's, and all comes to an end.
    #[test]
    fn two_clusters_never_have_the_same_host(sizes in prop::collection::vec((0_u32..4, 0_u32..4), 1..8)) {
        let mut hosts = pool(9);
        let other = "00000000-0000-4000-8000-00000000000c";
        let (mut ours, mut theirs) = (BTreeSet::new(), BTreeSet::new());
        for (one, two) in sizes {
            settle(&cluster(1, one), &mut hosts, &mut ours);
            let mut second = cluster(1, two);
            second.metadata.name = Some(other.to_owned());
            settle(&second, &mut hosts, &mut theirs);
            let claims: Vec<_> = hosts.iter().filter_map(|host| host.spec.claim.clone()).collect();
            let distinct: BTreeSet<_> = claims.iter().map(|claim| (&claim.cluster, &claim.node)).collect();
            prop_assert_eq!(claims.len(), distinct.len());
            prop_assert_eq!(claims.len(), usize::try_from(one + two).unwrap() + 2);
        }
    }
}
