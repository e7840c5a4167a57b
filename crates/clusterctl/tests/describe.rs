//! What the tree of a cluster says, of objects of either version of the contract.

#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use std::collections::BTreeMap;

use clusterctl::describe::{
    Grouping, Listing, Looked, Reference, Seen, Shown, State, document, lines, tree,
};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// So many minutes before now.
fn ago(minutes: i64) -> String {
    (now() - jiff::Span::new().minutes(minutes)).to_string()
}

/// A condition of v1beta2.
fn condition(kind: &str, status: &str, reason: &str, minutes: i64, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(minutes)})
}

#[expect(clippy::needless_pass_by_value, reason = "it is written in place")]
fn object(group: &str, kind: &str, name: &str, spec: Value, conditions: Value) -> Value {
    json!({
        "apiVersion": group, "kind": kind,
        "metadata": {"name": name, "namespace": "site", "creationTimestamp": ago(90), "generation": 1},
        "spec": spec, "status": {"observedGeneration": 1, "conditions": conditions},
    })
}

fn core(kind: &str, name: &str, spec: Value, conditions: Value) -> Value {
    object("cluster.x-k8s.io/v1beta2", kind, name, spec, conditions)
}

fn owned(mut object: Value, kind: &str, name: &str) -> Value {
    object["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "shop"},
        {"apiVersion": "x/v1", "kind": kind, "name": name, "controller": true},
    ]);
    object
}

fn machine(name: &str, conditions: Value) -> Value {
    let spec = json!({
        "clusterName": "shop",
        "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DevMachine", "name": name},
        "bootstrap": {"configRef": {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfig", "name": name}},
    });
    core("Machine", name, spec, conditions)
}

fn good(kinds: &[&str]) -> Value {
    let all = kinds
        .iter()
        .map(|kind| condition(kind, "True", "Fine", 60, ""));
    all.collect()
}

fn listing(objects: Vec<Value>) -> Listing {
    Listing {
        objects,
        lack: None,
    }
}

/// What machines refer to is ready, but for those that are given.
fn referred(seen: &mut Seen, given: &[(&str, Looked)]) {
    for reference in seen.references() {
        let Reference { group, kind, name } = &reference;
        let title = format!("{kind}/{name}");
        let looked = given.iter().find(|(of, _)| *of == title);
        let looked = looked.map_or_else(
            || {
                let group = format!("{group}/v1beta2");
                Looked::Found(object(&group, kind, name, json!({}), good(&["Ready"])))
            },
            |(_, looked)| looked.clone(),
        );
        seen.referenced.insert(reference, looked);
    }
}

/// A cluster of v1beta2 that comes up: of its control plane two machines of three are ready, of its workers two of three.
fn coming() -> Seen {
    let waiting = json!([
        condition(
            "Available",
            "False",
            "NotAvailable",
            9,
            "* WorkersAvailable:\n  * MachineDeployment shop-md: 1 available replicas required"
        ),
        condition("RemoteConnectionProbe", "True", "ProbeSucceeded", 50, ""),
        condition(
            "WorkersAvailable",
            "False",
            "NotAvailable",
            9,
            "* MachineDeployment shop-md: 3 available replicas required"
        ),
        condition("Paused", "False", "NotPaused", 90, ""),
    ]);
    let spec = json!({
        "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DevCluster", "name": "shop"},
        "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "shop-cp"},
    });
    let provisioning = json!([
        condition(
            "Ready",
            "False",
            "NotReady",
            7,
            "* InfrastructureReady: waiting"
        ),
        condition("BootstrapConfigReady", "True", "Ready", 8, ""),
        condition(
            "InfrastructureReady",
            "False",
            "NotReady",
            7,
            "DevMachine has not been provisioned"
        ),
        condition(
            "NodeHealthy",
            "Unknown",
            "InspectionFailed",
            20,
            "Waiting for a node"
        ),
    ]);
    let well = || good(&["Ready", "Available", "UpToDate"]);
    let plane =
        |name: &str, conditions| owned(machine(name, conditions), "KubeadmControlPlane", "shop-cp");
    let worker =
        |name: &str, conditions| owned(machine(name, conditions), "MachineSet", "shop-md-2");
    let set = |name: &str, replicas: u64, ready: u64, conditions| {
        let mut set = core(
            "MachineSet",
            name,
            json!({"replicas": replicas}),
            conditions,
        );
        set["status"]["readyReplicas"] = ready.into();
        owned(set, "MachineDeployment", "shop-md")
    };
    let mut deployment = core(
        "MachineDeployment",
        "shop-md",
        json!({"replicas": 3}),
        json!([
            condition(
                "Available",
                "False",
                "NotAvailable",
                9,
                "3 available replicas required"
            ),
            condition(
                "ScalingUp",
                "True",
                "ScalingUp",
                10,
                "Scaling up from 2 to 3 replicas"
            ),
        ]),
    );
    deployment["status"]["readyReplicas"] = 2.into();
    let mut check = core(
        "MachineHealthCheck",
        "shop-check",
        json!({}),
        good(&["RemediationAllowed"]),
    );
    check["status"]["expectedMachines"] = 3.into();
    check["status"]["currentHealthy"] = 3.into();
    let binding = json!({"spec": {"bindings": [
        {"clusterResourceSetName": "network", "resources": [
            {"kind": "ConfigMap", "name": "calico", "applied": true}, {"kind": "Secret", "name": "pool", "applied": false}]},
    ]}});
    let mut seen = Seen {
        cluster: core("Cluster", "shop", spec, waiting),
        deployments: listing(vec![deployment]),
        sets: listing(vec![
            set("shop-md-1", 0, 0, good(&["MachinesReady"])),
            set(
                "shop-md-2",
                3,
                2,
                json!([condition(
                    "MachinesReady",
                    "False",
                    "NotReady",
                    9,
                    "* Machine shop-md-2-c: NotReady"
                )]),
            ),
        ]),
        machines: listing(vec![
            plane("shop-cp-a", well()),
            plane("shop-cp-b", well()),
            plane(
                "shop-cp-c",
                json!([
                    condition(
                        "Ready",
                        "False",
                        "NotReady",
                        3,
                        "* BootstrapConfigReady: no"
                    ),
                    condition(
                        "BootstrapConfigReady",
                        "False",
                        "NotReady",
                        3,
                        "KubeadmConfig shop-cp-c is not ready"
                    )
                ]),
            ),
            worker("shop-md-2-a", well()),
            worker("shop-md-2-b", well()),
            worker("shop-md-2-c", provisioning),
        ]),
        checks: listing(vec![check]),
        binding: Some(Looked::Found(binding)),
        ..Seen::default()
    };
    let dev = json!([
        condition(
            "Ready",
            "False",
            "NotReady",
            6,
            "* InstanceProvisioned: no capacity"
        ),
        condition(
            "InstanceProvisioned",
            "False",
            "OutOfCapacity",
            6,
            "no host of size large is free"
        ),
    ]);
    let config = json!([
        condition("Ready", "False", "NotReady", 3, "waits"),
        condition(
            "DataSecretAvailable",
            "False",
            "WaitingForControlPlaneInitialized",
            3,
            "Waiting for the control plane to be initialized"
        ),
    ]);
    let plane = object(
        "controlplane.cluster.x-k8s.io/v1beta2",
        "KubeadmControlPlane",
        "shop-cp",
        json!({"replicas": 3}),
        json!([
            condition("Available", "True", "Available", 40, ""),
            condition(
                "ScalingUp",
                "True",
                "ScalingUp",
                4,
                "Scaling up from 2 to 3 replicas"
            )
        ]),
    );
    let mut plane = plane;
    plane["status"]["readyReplicas"] = 2.into();
    plane["status"]["initialization"] = json!({"controlPlaneInitialized": true});
    let of = |group: &str, kind: &str, name: &str, conditions| {
        Looked::Found(object(
            &format!("{group}.cluster.x-k8s.io/v1beta2"),
            kind,
            name,
            json!({}),
            conditions,
        ))
    };
    referred(
        &mut seen,
        &[
            ("KubeadmControlPlane/shop-cp", Looked::Found(plane)),
            (
                "DevMachine/shop-md-2-c",
                of("infrastructure", "DevMachine", "shop-md-2-c", dev),
            ),
            (
                "KubeadmConfig/shop-cp-c",
                of("bootstrap", "KubeadmConfig", "shop-cp-c", config),
            ),
        ],
    );
    seen
}

fn text(seen: &Seen, grouping: Grouping, shown: Shown) -> String {
    lines(&tree(seen, grouping), shown, now(), usize::MAX).join("\n")
}

#[test]
fn a_cluster_that_comes_up_says_first_what_stands_in_the_way() {
    insta::assert_snapshot!(text(&coming(), Grouping::Grouped, Shown::Nothing), @"
    Cluster/shop waits for:
      DevMachine/shop-md-2-c       waiting   6m   InstanceProvisioned (OutOfCapacity): no host of size large is free
      ClusterResourceSet/network   waiting        Secret/pool is not applied
      KubeadmConfig/shop-cp-c      waiting   3m   DataSecretAvailable (WaitingForControlPlaneInitialized): Waiting for the control plane to be initialized

    NAME                                             READY   STATE     SINCE   WAITS FOR
    Cluster/shop                                             waiting   9m      WorkersAvailable (NotAvailable): * MachineDeployment shop-md: 3 available replicas required
    ├─MachineDeployment/shop-md                      2/3     waiting   10m     ScalingUp (ScalingUp): Scaling up from 2 to 3 replicas
    │ └─MachineSet/shop-md-2                         2/3     waiting   9m      MachinesReady (NotReady): * Machine shop-md-2-c: NotReady
    │   ├─Machine/shop-md-2-c                                waiting   7m      InfrastructureReady (NotReady): DevMachine has not been provisioned
    │   │ ├─infrastructure: DevMachine/shop-md-2-c           waiting   6m      InstanceProvisioned (OutOfCapacity): no host of size large is free
    │   │ └─bootstrap: KubeadmConfig/shop-md-2-c             ready     60m
    │   └─2 Machines: shop-md-2-a, shop-md-2-b               ready     60m
    ├─control plane: KubeadmControlPlane/shop-cp     2/3     waiting   4m      ScalingUp (ScalingUp): Scaling up from 2 to 3 replicas
    │ ├─Machine/shop-cp-c                                    waiting   3m      BootstrapConfigReady (NotReady): KubeadmConfig shop-cp-c is not ready
    │ │ ├─bootstrap: KubeadmConfig/shop-cp-c                 waiting   3m      DataSecretAvailable (WaitingForControlPlaneInitialized): Waiting for the control plane to be initialized
    │ │ └─infrastructure: DevMachine/shop-cp-c               ready     60m
    │ └─2 Machines: shop-cp-a, shop-cp-b                     ready     60m
    ├─ClusterResourceSet/network                     1/2     waiting           Secret/pool is not applied
    ├─infrastructure: DevCluster/shop                        ready     60m
    └─MachineHealthCheck/shop-check                  3/3     ready     90m
    ");
}

#[test]
fn conditions_stand_below_their_objects() {
    let failing = text(&coming(), Grouping::Grouped, Shown::Failing);
    let plane = failing
        .lines()
        .skip_while(|line| !line.contains("control plane: "))
        .take(9);
    insta::assert_snapshot!(plane.collect::<Vec<_>>().join("\n"), @"
    ├─control plane: KubeadmControlPlane/shop-cp     2/3     waiting   4m      ScalingUp (ScalingUp): Scaling up from 2 to 3 replicas
    │ │   ScalingUp                                          True      4m      ScalingUp: Scaling up from 2 to 3 replicas
    │ ├─Machine/shop-cp-c                                    waiting   3m      BootstrapConfigReady (NotReady): KubeadmConfig shop-cp-c is not ready
    │ │ │   Ready                                            False     3m      NotReady: * BootstrapConfigReady: no
    │ │ │   BootstrapConfigReady                             False     3m      NotReady: KubeadmConfig shop-cp-c is not ready
    │ │ ├─bootstrap: KubeadmConfig/shop-cp-c                 waiting   3m      DataSecretAvailable (WaitingForControlPlaneInitialized): Waiting for the control plane to be initialized
    │ │ │     Ready                                          False     3m      NotReady: waits
    │ │ │     DataSecretAvailable                            False     3m      WaitingForControlPlaneInitialized: Waiting for the control plane to be initialized
    │ │ └─infrastructure: DevMachine/shop-cp-c               ready     60m
    ");
    // Nothing else changes.
    let is_condition = |line: &&str| {
        let mut statuses = [" True ", " False ", " Unknown "].into_iter();
        statuses.any(|status| line.contains(status))
    };
    let (conditions, objects): (Vec<_>, Vec<_>) = failing.lines().partition(is_condition);
    assert_eq!(conditions.len(), 15, "{failing}");
    let without = text(&coming(), Grouping::Grouped, Shown::Nothing);
    assert_eq!(objects.join("\n"), without);
    let all = text(&coming(), Grouping::Grouped, Shown::All);
    assert!(all.contains("RemoteConnectionProbe"), "{all}");
    assert!(all.contains("Paused"), "{all}");
}

#[test]
fn each_machine_has_its_line_where_that_is_wanted() {
    let single = text(&coming(), Grouping::Single, Shown::Nothing);
    for line in [
        "Machine/shop-cp-a ",
        "infrastructure: DevMachine/shop-cp-a ",
        "bootstrap: KubeadmConfig/shop-md-2-b ",
    ] {
        assert!(single.contains(line), "{single}");
    }
    assert!(!single.contains("Machines:"), "{single}");
}

/// A cluster as v1beta1 has it: references with versions, severities, and the newer conditions beside them.
fn older() -> Seen {
    let v1beta1 = |kind: &str, name: &str, spec, status| {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": kind,
            "metadata": {"name": name, "namespace": "site", "creationTimestamp": ago(600)}, "spec": spec, "status": status,
        })
    };
    let reference = |group: &str, kind: &str, name: &str| json!({"apiVersion": format!("{group}.cluster.x-k8s.io/v1beta1"), "kind": kind, "name": name, "namespace": "site"});
    let spec = json!({
        "infrastructureRef": reference("infrastructure", "TinCluster", "old"),
        "controlPlaneRef": reference("controlplane", "TinControlPlane", "old"),
    });
    let status = json!({"conditions": [
        {"type": "Ready", "status": "False", "severity": "Warning", "reason": "ScalingUp", "message": "Scaling up", "lastTransitionTime": ago(30)},
        {"type": "ControlPlaneInitialized", "status": "True", "lastTransitionTime": ago(500)},
    ]});
    let machine = |name: &str, status| {
        let spec = json!({
            "infrastructureRef": reference("infrastructure", "TinMachine", name),
            "bootstrap": {"configRef": reference("bootstrap", "TinConfig", name)},
        });
        v1beta1("Machine", name, spec, status)
    };
    let failed = json!({"failureReason": "CreateError", "failureMessage": "the image is gone", "conditions": [
        {"type": "Ready", "status": "False", "severity": "Info", "reason": "WaitingForInfrastructure", "lastTransitionTime": ago(25)}]});
    let ready = json!({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ago(400)}],
        "v1beta2": {"conditions": [condition("UpToDate", "False", "NotUpToDate", 12, "Version v1.33.0, v1.34.0 required")]}});
    let mut labelled = machine("old-cp", ready);
    labelled["metadata"]["labels"] = json!({"cluster.x-k8s.io/control-plane": ""});
    let mut seen = Seen {
        cluster: v1beta1("Cluster", "old", spec, status),
        machines: listing(vec![labelled, machine("old-x", failed)]),
        ..Seen::default()
    };
    let tin = |kind: &str, name: &str, status: Value| {
        Looked::Found(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": kind,
            "metadata": {"name": name, "creationTimestamp": ago(500)}, "status": status,
        }))
    };
    let error = json!({"ready": false, "conditions": [{"type": "LoadBalancerReady", "status": "False", "severity": "Error", "reason": "Quota", "message": "quota of addresses is used up", "lastTransitionTime": ago(200)}]});
    referred(
        &mut seen,
        &[
            ("TinCluster/old", tin("TinCluster", "old", error)),
            (
                "TinControlPlane/old",
                tin("TinControlPlane", "old", json!({"initialized": true})),
            ),
            (
                "TinMachine/old-cp",
                tin("TinMachine", "old-cp", json!({"ready": true})),
            ),
            (
                "TinMachine/old-x",
                tin("TinMachine", "old-x", json!({"ready": false})),
            ),
            ("TinConfig/old-x", tin("TinConfig", "old-x", json!({}))),
        ],
    );
    seen
}

#[test]
fn severities_flags_and_last_words_of_v1beta1_are_read() {
    insta::assert_snapshot!(text(&older(), Grouping::Grouped, Shown::Failing), @"
    Cluster/old waits for:
      TinCluster/old     failed    3h    LoadBalancerReady (Quota): quota of addresses is used up
      Machine/old-x      failed    25m   CreateError: the image is gone
      TinMachine/old-x   waiting   8h    status.initialization.provisioned or status.ready is not true yet
      Machine/old-cp     waiting   12m   UpToDate (NotUpToDate): Version v1.33.0, v1.34.0 required
      TinConfig/old-x    silent    8h    its controller has said nothing of it yet

    NAME                                      READY   STATE     SINCE   WAITS FOR
    Cluster/old                                       waiting   30m     Ready (ScalingUp): Scaling up
    │   Ready                                         False     30m     Warning, ScalingUp: Scaling up
    ├─Machine/old-x                                   failed    25m     CreateError: the image is gone
    │ │   Ready                                       False     25m     Info, WaitingForInfrastructure
    │ ├─infrastructure: TinMachine/old-x              waiting   8h      status.initialization.provisioned or status.ready is not true yet
    │ └─bootstrap: TinConfig/old-x                    silent    8h      its controller has said nothing of it yet
    ├─infrastructure: TinCluster/old                  failed    3h      LoadBalancerReady (Quota): quota of addresses is used up
    │     LoadBalancerReady                           False     3h      Error, Quota: quota of addresses is used up
    └─control plane: TinControlPlane/old              ready     8h
      └─Machine/old-cp                                waiting   12m     UpToDate (NotUpToDate): Version v1.33.0, v1.34.0 required
        │   UpToDate                                  False     12m     NotUpToDate: Version v1.33.0, v1.34.0 required
        ├─infrastructure: TinMachine/old-cp           ready     8h
        └─bootstrap: TinConfig/old-cp                 ready     60m
    ");
}

#[test]
fn what_cannot_be_read_is_said_in_its_place() {
    let mut seen = coming();
    seen.deployments.lack = Some("machinedeployments is forbidden".into());
    seen.deployments.objects.clear();
    seen.binding = Some(Looked::Unread("the server is busy".into()));
    seen.cluster["spec"]["infrastructureRef"] = json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DevCluster", "name": "gone"});
    let plane = seen
        .references()
        .into_iter()
        .find(|one| one.name == "shop-cp")
        .unwrap();
    let problem = "the API serves no KubeadmControlPlane of controlplane.cluster.x-k8s.io";
    seen.referenced
        .insert(plane, Looked::Unread(problem.into()));
    let gone = seen
        .references()
        .into_iter()
        .find(|one| one.name == "gone")
        .unwrap();
    seen.referenced.insert(gone, Looked::Missing);
    insta::assert_snapshot!(text(&seen, Grouping::Grouped, Shown::Nothing), @"
    Cluster/shop waits for:
      DevCluster/gone               missing        it is referred to and not there
      DevMachine/shop-md-2-c        waiting   6m   InstanceProvisioned (OutOfCapacity): no host of size large is free
      KubeadmConfig/shop-cp-c       waiting   3m   DataSecretAvailable (WaitingForControlPlaneInitialized): Waiting for the control plane to be initialized
      KubeadmControlPlane/shop-cp   unread         it cannot be read: the API serves no KubeadmControlPlane of controlplane.cluster.x-k8s.io
      ClusterResourceSetBinding     unread         it cannot be read: the server is busy
      and 1 more

    NAME                                           READY   STATE     SINCE   WAITS FOR
    Cluster/shop                                           waiting   9m      WorkersAvailable (NotAvailable): * MachineDeployment shop-md: 3 available replicas required
    ├─control plane: KubeadmControlPlane/shop-cp           unread            it cannot be read: the API serves no KubeadmControlPlane of controlplane.cluster.x-k8s.io
    │ ├─Machine/shop-cp-c                                  waiting   3m      BootstrapConfigReady (NotReady): KubeadmConfig shop-cp-c is not ready
    │ │ ├─bootstrap: KubeadmConfig/shop-cp-c               waiting   3m      DataSecretAvailable (WaitingForControlPlaneInitialized): Waiting for the control plane to be initialized
    │ │ └─infrastructure: DevMachine/shop-cp-c             ready     60m
    │ └─2 Machines: shop-cp-a, shop-cp-b                   ready     60m
    ├─MachineSet/shop-md-2                         2/3     waiting   9m      MachinesReady (NotReady): * Machine shop-md-2-c: NotReady
    │ ├─Machine/shop-md-2-c                                waiting   7m      InfrastructureReady (NotReady): DevMachine has not been provisioned
    │ │ ├─infrastructure: DevMachine/shop-md-2-c           waiting   6m      InstanceProvisioned (OutOfCapacity): no host of size large is free
    │ │ └─bootstrap: KubeadmConfig/shop-md-2-c             ready     60m
    │ └─2 Machines: shop-md-2-a, shop-md-2-b               ready     60m
    ├─infrastructure: DevCluster/gone                      missing           it is referred to and not there
    ├─ClusterResourceSetBinding                            unread            it cannot be read: the server is busy
    ├─MachineDeployments                                   unread            it cannot be read: machinedeployments is forbidden
    ├─MachineSet/shop-md-1                         0/0     ready     90m
    └─MachineHealthCheck/shop-check                3/3     ready     90m
    ");
}

/// A set that selects clusters, with resources that are all ConfigMaps.
fn resource_set(name: &str, selector: &Value, resources: &[&str], conditions: Value) -> Value {
    let resources = resources
        .iter()
        .map(|name| json!({"kind": "ConfigMap", "name": name}));
    let spec = json!({"clusterSelector": selector, "resources": resources.collect::<Vec<_>>()});
    let group = "addons.cluster.x-k8s.io/v1beta2";
    object(group, "ClusterResourceSet", name, spec, conditions)
}

#[test]
fn a_resource_is_applied_when_the_binding_says_so() {
    let labels = json!({"matchLabels": {"site": "north"}});
    let internal = json!([condition(
        "ResourcesApplied",
        "False",
        "InternalError",
        5,
        "Please check controller logs for errors"
    )]);
    // Its controller found no ConfigMap gone, and says nothing of that in the binding.
    let gone = ["calico", "gone"];
    let lacks = resource_set("lacks", &labels, &gone, internal.clone());
    let never = ["a", "b", "c", "d", "e"];
    let mut paused = resource_set("paused", &labels, &["a"], json!([]));
    paused["metadata"]["annotations"] = json!({"cluster.x-k8s.io/paused": ""});
    let mut cluster = core("Cluster", "shop", json!({}), good(&["Available"]));
    cluster["metadata"]["labels"] = json!({"site": "north"});
    let binding = json!({"spec": {"bindings": [
        {"clusterResourceSetName": "lacks", "resources": [
            {"kind": "ConfigMap", "name": "calico", "applied": true}, {"kind": "Secret", "name": "former", "applied": false}]},
        {"clusterResourceSetName": "fails-elsewhere", "resources": [{"kind": "ConfigMap", "name": "a", "applied": true}]},
    ]}});
    let seen = Seen {
        cluster,
        resource_sets: listing(vec![
            lacks,
            resource_set("fails-elsewhere", &labels, &["a"], internal),
            resource_set("never", &labels, &never, good(&["ResourcesApplied"])),
            resource_set(
                "of-others",
                &json!({"matchLabels": {"site": "south"}}),
                &["a"],
                json!([]),
            ),
            paused,
        ]),
        binding: Some(Looked::Found(binding)),
        ..Seen::default()
    };
    insta::assert_snapshot!(text(&seen, Grouping::Grouped, Shown::Nothing), @"
    Cluster/shop waits for:
      ClusterResourceSet/paused   paused    90m   ConfigMap/a is not applied: nothing is done while it has the annotation cluster.x-k8s.io/paused
      ClusterResourceSet/never    waiting   90m   ConfigMap/a, ConfigMap/b, ConfigMap/c, ConfigMap/d are not applied
      ClusterResourceSet/lacks    waiting   5m    ResourcesApplied (InternalError): ConfigMap/gone is not applied: Please check controller logs for errors

    NAME                                   READY   STATE     SINCE   WAITS FOR
    Cluster/shop                                   ready     60m
    ├─ClusterResourceSet/lacks             1/2     waiting   5m      ResourcesApplied (InternalError): ConfigMap/gone is not applied: Please check controller logs for errors
    ├─ClusterResourceSet/never             0/5     waiting   90m     ConfigMap/a, ConfigMap/b, ConfigMap/c, ConfigMap/d are not applied
    ├─ClusterResourceSet/paused            0/1     paused    90m     ConfigMap/a is not applied: nothing is done while it has the annotation cluster.x-k8s.io/paused
    └─ClusterResourceSet/fails-elsewhere   1/1     ready     5m
    ");
}

#[test]
fn sets_without_a_binding_are_those_that_select_the_cluster() {
    let titles = |selector: &Value, change: &dyn Fn(&mut Seen)| {
        let mut cluster = core("Cluster", "shop", json!({}), good(&["Available"]));
        cluster["metadata"]["labels"] = json!({"site": "north", "cni": "calico"});
        let mut seen = Seen {
            cluster,
            resource_sets: listing(vec![resource_set("set", selector, &["a"], json!([]))]),
            binding: Some(Looked::Missing),
            ..Seen::default()
        };
        change(&mut seen);
        let children = tree(&seen, Grouping::Grouped).children;
        let titles = children.iter().map(|node| (node.kind.clone(), node.state));
        titles.collect::<Vec<_>>()
    };
    let expression = |operator: &str, key: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    for (selector, is_for) in [
        (json!({}), false),
        (json!({"matchLabels": {}, "matchExpressions": []}), false),
        (json!({"matchLabels": {"site": "north"}}), true),
        (
            json!({"matchLabels": {"site": "north", "cni": "cilium"}}),
            false,
        ),
        (json!({"matchLabels": {"site": null}}), false),
        (expression("In", "cni", &["cilium", "calico"]), true),
        (expression("In", "cni", &["cilium"]), false),
        (expression("In", "other", &["a"]), false),
        (expression("NotIn", "cni", &["cilium"]), true),
        (expression("NotIn", "cni", &["calico"]), false),
        (expression("NotIn", "other", &["a"]), true),
        (expression("Exists", "cni", &[]), true),
        (expression("Exists", "other", &[]), false),
        (expression("DoesNotExist", "other", &[]), true),
        (expression("DoesNotExist", "cni", &[]), false),
        (expression("Near", "cni", &[]), false),
    ] {
        let waits = vec![("ClusterResourceSet".to_owned(), State::Waiting)];
        let expected = if is_for { waits } else { Vec::new() };
        assert_eq!(titles(&selector, &|_| {}), expected, "{selector}");
    }
    let labels = json!({"matchLabels": {"site": "north"}});
    let goes = titles(&labels, &|seen| {
        seen.cluster["metadata"]["deletionTimestamp"] = json!(NOW);
    });
    assert!(goes.is_empty(), "a cluster that goes gets nothing more");
    let goes = titles(&labels, &|seen| {
        seen.resource_sets.objects[0]["metadata"]["deletionTimestamp"] = json!(NOW);
    });
    assert!(goes.is_empty(), "a set that goes is applied no more");
    let unlisted = titles(&labels, &|seen| {
        seen.resource_sets = Listing {
            objects: Vec::new(),
            lack: Some("clusterresourcesets is forbidden".into()),
        };
    });
    let expected = [("ClusterResourceSets".to_owned(), State::Unread)];
    assert_eq!(unlisted, expected);
}

#[test]
fn a_cluster_that_waits_for_nothing_says_so() {
    let mut seen = Seen {
        cluster: core("Cluster", "shop", json!({}), good(&["Available"])),
        machines: listing(vec![machine("a", good(&["Ready"]))]),
        ..Seen::default()
    };
    referred(&mut seen, &[]);
    insta::assert_snapshot!(text(&seen, Grouping::Grouped, Shown::Nothing), @"
    Cluster/shop waits for nothing.

    NAME           READY   STATE   SINCE   WAITS FOR
    Cluster/shop           ready   60m
    └─Machine/a            ready   60m
    ");
}

#[test]
fn how_an_object_stands() {
    let state = |change: &dyn Fn(&mut Value)| {
        let mut cluster = core("Cluster", "shop", json!({}), good(&["Available"]));
        change(&mut cluster);
        let seen = Seen {
            cluster,
            ..Seen::default()
        };
        let root = tree(&seen, Grouping::Grouped);
        let told = root.waits_for.map(|fact| fact.message);
        (root.state, told.unwrap_or_default())
    };
    let at = |path: &'static str, value: Value| {
        move |object: &mut Value| *object.pointer_mut(path).unwrap() = value.clone()
    };
    for (name, change, expected, told) in [
        (
            "well",
            at("/metadata/name", json!("shop")),
            State::Ready,
            "",
        ),
        (
            "paused",
            at("/spec", json!({"paused": true})),
            State::Paused,
            "nothing is done while spec.paused is true",
        ),
        (
            "going",
            at(
                "/metadata",
                json!({"name": "shop", "deletionTimestamp": NOW, "finalizers": ["a/b", "c"]}),
            ),
            State::Deleting,
            "it is being deleted; finalizers: a/b, c",
        ),
        (
            "to go, and paused",
            at(
                "/metadata",
                json!({
                    "name": "shop", "deletionTimestamp": NOW, "finalizers": ["a/b"],
                    "annotations": {"cluster.x-k8s.io/paused": ""},
                }),
            ),
            State::Paused,
            "it is to be deleted, but nothing is done while it has the annotation cluster.x-k8s.io/paused",
        ),
        (
            "silent",
            at("/status", json!({})),
            State::Silent,
            "its controller has said nothing of it yet",
        ),
        (
            "changed",
            at("/metadata/generation", json!(2)),
            State::Waiting,
            "its controller has not seen its last change yet",
        ),
        (
            "rolling",
            at("/status/conditions/0/type", json!("RollingOut")),
            State::Waiting,
            "RollingOut is true",
        ),
        (
            "held by a hook",
            at(
                "/status/conditions",
                json!([
                    condition("Available", "True", "Available", 60, ""),
                    condition(
                        "TopologyReconciled",
                        "False",
                        "ClusterUpgrading",
                        9,
                        "BeforeClusterUpgrade hook is blocking"
                    ),
                ]),
            ),
            State::Waiting,
            "BeforeClusterUpgrade hook is blocking",
        ),
        (
            "failed",
            at("/status", json!({"failureReason": "Invalid"})),
            State::Failed,
            "Invalid",
        ),
        (
            "of v1beta1 alone",
            at(
                "/status",
                json!({"deprecated": {"v1beta1": {"conditions": [{"type": "Ready", "status": "False", "severity": "Error", "message": "no"}]}}}),
            ),
            State::Failed,
            "no",
        ),
        (
            "counted",
            at("/spec", json!({"replicas": 2})),
            State::Waiting,
            "0 of 2 are ready",
        ),
    ] {
        assert_eq!(state(&change), (expected, told.to_owned()), "{name}");
    }
}

#[test]
fn a_reference_that_leads_elsewhere_asks_for_nothing() {
    for (reference, told) in [
        (
            json!({"apiGroup": "x.io", "kind": "Dev", "name": "../../../../api/v1/secrets"}),
            "names no object",
        ),
        (
            json!({"apiGroup": "x.io/v1", "kind": "Dev", "name": "a"}),
            "names no object",
        ),
        (
            json!({"apiVersion": "x.io/v1", "kind": "Dev/status", "name": "a"}),
            "names no object",
        ),
        (
            json!({"apiVersion": "x.io/v1", "kind": "Dev", "name": "a?watch=1"}),
            "names no object",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "name": "a"}),
            "names no object",
        ),
        (
            json!({"apiVersion": "x.io/v1", "kind": "Dev", "name": "a", "namespace": "kube-system"}),
            "to another namespace: kube-system",
        ),
    ] {
        let seen = Seen {
            cluster: core(
                "Cluster",
                "shop",
                json!({"infrastructureRef": reference}),
                json!([]),
            ),
            ..Seen::default()
        };
        assert_eq!(seen.references(), [], "{reference}");
        let shown = text(&seen, Grouping::Grouped, Shown::Nothing);
        assert!(
            shown.contains("infrastructureRef ") && shown.contains(told),
            "{shown}"
        );
    }
}

#[test]
fn machines_that_own_each_other_are_shown_once() {
    let seen = Seen {
        cluster: core("Cluster", "shop", json!({}), json!([])),
        sets: listing(vec![owned(
            core("MachineSet", "s", json!({}), json!([])),
            "MachineSet",
            "s",
        )]),
        machines: listing(vec![
            owned(machine("a", json!([])), "Machine", "b"),
            owned(machine("b", json!([])), "Machine", "a"),
        ]),
        ..Seen::default()
    };
    let shown = text(&seen, Grouping::Single, Shown::Nothing);
    for title in ["─MachineSet/s", "─Machine/a", "─Machine/b"] {
        assert_eq!(shown.matches(title).count(), 1, "{shown}");
    }
}

#[test]
fn a_program_gets_the_same() {
    let document = document(&tree(&coming(), Grouping::Grouped));
    let first = &document["unfinished"][0];
    assert_eq!(first["names"], json!(["shop-md-2-c"]));
    assert_eq!(first["waitsFor"]["reason"], "OutOfCapacity");
    let tree = &document["tree"];
    assert_eq!(tree["state"], "waiting");
    assert_eq!(
        tree["children"][0]["replicas"],
        json!({"ready": 2, "wanted": 3})
    );
    assert_eq!(tree["conditions"][0]["type"], "Available");
}

proptest! {
    #[test]
    fn whatever_objects_say_no_line_steers_a_terminal_or_is_too_long(said in ".{0,40}", width in 20_usize..200) {
        let hostile = |kind: &str| {
            let conditions = json!([
                {"type": said, "status": said, "reason": said, "message": said, "severity": said, "lastTransitionTime": said},
                condition("Ready", "False", &said, 5, &said),
            ]);
            let mut object = core(kind, &said, json!({"replicas": 2, "infrastructureRef": {"kind": said, "name": said}}), conditions);
            object["metadata"]["finalizers"] = json!([said]);
            object
        };
        let mut seen = Seen { cluster: hostile("Cluster"), ..Seen::default() };
        seen.machines = Listing { objects: vec![hostile(&said), hostile("Machine")], lack: Some(said.clone()) };
        seen.machines.objects[0]["metadata"]["deletionTimestamp"] = json!(NOW);
        seen.binding = Some(Looked::Found(json!({"spec": {"bindings": [{"clusterResourceSetName": said, "resources": [{"kind": said, "name": said}]}]}})));
        seen.referenced = BTreeMap::new();
        for line in lines(&tree(&seen, Grouping::Grouped), Shown::All, now(), width) {
            prop_assert!(api::text::is_plain(&line), "{line:?}");
            prop_assert!(line.chars().count() <= width, "{line:?}");
        }
    }
}
