//! A namespace with a cluster, and what is around it.

use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::sides::{INFRASTRUCTURE, KINDS, SYSTEM, TEAM, version};

/// The uid and so on of what was made, as the reference of what it owns.
pub(crate) type Owner = Value;

const CORE: &str = "cluster.x-k8s.io";
const ADDONS: &str = "addons.cluster.x-k8s.io";
const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";
const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";

pub(crate) fn api(
    client: &Client,
    group: &str,
    kind: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let known = KINDS
        .iter()
        .find(|known| known.0 == group && known.1 == kind);
    let plural = known.map_or_else(
        || format!("{}s", kind.to_lowercase()),
        |known| known.2.to_owned(),
    );
    let gvk = GroupVersionKind::gvk(group, version(group), kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Makes an object of the team, with its status.
pub(crate) async fn make(
    client: &Client,
    group: &str,
    kind: &str,
    name: &str,
    owner: Option<&Owner>,
    rest: Value,
) -> Owner {
    let namespace = (kind != "DevIdentity").then_some(TEAM);
    make_in(client, namespace, group, kind, name, owner, rest).await
}

pub(crate) async fn make_in(
    client: &Client,
    namespace: Option<&str>,
    group: &str,
    kind: &str,
    name: &str,
    owner: Option<&Owner>,
    mut rest: Value,
) -> Owner {
    let api_version = if group.is_empty() {
        "v1".to_owned()
    } else {
        format!("{group}/{}", version(group))
    };
    rest["apiVersion"] = json!(api_version);
    rest["kind"] = json!(kind);
    rest["metadata"]["name"] = json!(name);
    if let Some(owner) = owner {
        rest["metadata"]["ownerReferences"] = json!([owner]);
    }
    let api = api(client, group, kind, namespace);
    let object: DynamicObject = serde_json::from_value(rest.clone()).unwrap();
    let made = api.create(&PostParams::default(), &object).await.unwrap();
    if !rest["status"].is_null() {
        let status = Patch::Merge(json!({"status": rest["status"]}));
        api.patch_status(name, &PatchParams::default(), &status)
            .await
            .unwrap();
    }
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": made.uid().unwrap(), "controller": true})
}

pub(crate) async fn namespace(client: &Client, name: &str) {
    let object = json!({"metadata": {}});
    make_in(client, None, "", "Namespace", name, None, object).await;
}

/// The providers of a side.
pub(crate) async fn install(client: &Client, infrastructure: &str) {
    namespace(client, SYSTEM).await;
    for (name, kind, version) in [
        ("cluster-api", "CoreProvider", "v1.14.2"),
        (
            "infrastructure-dev",
            "InfrastructureProvider",
            infrastructure,
        ),
    ] {
        let provider = name.trim_start_matches("infrastructure-");
        let entry = json!({"providerName": provider, "type": kind, "version": version});
        make_in(
            client,
            Some(SYSTEM),
            "clusterctl.cluster.x-k8s.io",
            "Provider",
            name,
            None,
            entry,
        )
        .await;
    }
}

fn held(finalizer: &str) -> Value {
    json!({"finalizers": [finalizer], "labels": {"cluster.x-k8s.io/cluster-name": "c"}})
}

/// Raises a cluster of a class, with two machines, a resource set, an identity, and what is none of it.
pub(crate) async fn raise(client: &Client) {
    let set = raise_small(client).await;
    machine(client, "c-md-1-a", &set).await;
}

/// As [`raise`], with one machine, and says who would own another one.
pub(crate) async fn raise_small(client: &Client) -> Owner {
    install(client, "v0.3.0").await;
    namespace(client, TEAM).await;
    let class = class(client, TEAM).await;
    make(
        client,
        INFRASTRUCTURE,
        "DevClusterTemplate",
        "class-infra",
        Some(&class),
        json!({"spec": {"a": 1}}),
    )
    .await;
    let cluster = make(client, CORE, "Cluster", "c", None, json!({
        "metadata": {"finalizers": ["cluster.cluster.x-k8s.io"], "annotations": {"own": "kept"}},
        "spec": {
            "topology": {"classRef": {"name": "class"}, "version": "v1.34.0"},
            "controlPlaneRef": {"apiGroup": CONTROL_PLANE, "kind": "KubeadmControlPlane", "name": "c-cp"},
        },
        "status": {
            "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true},
            "conditions": [{"type": "ControlPlaneInitialized", "status": "True"}],
        },
    })).await;
    let of_cluster = Some(&cluster);
    make(
        client,
        INFRASTRUCTURE,
        "DevCluster",
        "c",
        of_cluster,
        json!({"metadata": held("dev/cluster"), "spec": {"host": "10.0.0.1"}}),
    )
    .await;
    let plane = make(
        client,
        CONTROL_PLANE,
        "KubeadmControlPlane",
        "c-cp",
        of_cluster,
        json!({
            "metadata": held("kubeadm/cp"), "spec": {"replicas": 1}, "status": {"readyReplicas": 1},
        }),
    )
    .await;
    make(
        client,
        INFRASTRUCTURE,
        "DevMachineTemplate",
        "c-md",
        of_cluster,
        json!({"spec": {"size": "s"}}),
    )
    .await;
    make(
        client,
        BOOTSTRAP,
        "KubeadmConfigTemplate",
        "c-md",
        of_cluster,
        json!({"spec": {"format": "cloud-config"}}),
    )
    .await;
    let deployment = make(
        client,
        CORE,
        "MachineDeployment",
        "c-md",
        of_cluster,
        json!({"metadata": held("cluster/md")}),
    )
    .await;
    let set = make(
        client,
        CORE,
        "MachineSet",
        "c-md-1",
        Some(&deployment),
        json!({"metadata": held("cluster/ms")}),
    )
    .await;
    machine(client, "c-cp-a", &plane).await;
    make(
        client,
        "",
        "Secret",
        "c-kubeconfig",
        Some(&plane),
        json!({"data": {"value": "eA=="}}),
    )
    .await;
    make(
        client,
        "",
        "Secret",
        "c-ca",
        None,
        json!({"data": {"tls.key": "eA=="}}),
    )
    .await;
    make(
        client,
        "example.com",
        "Note",
        "about-c",
        of_cluster,
        json!({"spec": {"text": "stays"}}),
    )
    .await;
    around(client).await;
    set
}

pub(crate) async fn class(client: &Client, namespace: &str) -> Owner {
    let template = json!({"apiVersion": format!("{INFRASTRUCTURE}/v1beta2"), "kind": "DevClusterTemplate", "name": "class-infra"});
    let spec = json!({"spec": {"infrastructure": {"templateRef": template}}});
    make_in(
        client,
        Some(namespace),
        CORE,
        "ClusterClass",
        "class",
        None,
        spec,
    )
    .await
}

async fn machine(client: &Client, name: &str, owner: &Owner) {
    let machine = make(client, CORE, "Machine", name, Some(owner), json!({
        "metadata": held("machine.cluster.x-k8s.io"), "spec": {"clusterName": "c"}, "status": {"nodeRef": {"name": name}},
    })).await;
    make(
        client,
        INFRASTRUCTURE,
        "DevMachine",
        name,
        Some(&machine),
        json!({"metadata": held("dev/machine"), "spec": {"providerID": name}}),
    )
    .await;
    let config = make(
        client,
        BOOTSTRAP,
        "KubeadmConfig",
        name,
        Some(&machine),
        json!({"spec": {}}),
    )
    .await;
    make(
        client,
        "",
        "Secret",
        name,
        Some(&config),
        json!({"data": {"value": "eA=="}}),
    )
    .await;
}

async fn around(client: &Client) {
    let resources = json!([{"kind": "ConfigMap", "name": "applied"}, {"kind": "ConfigMap", "name": "named"}, {"kind": "Secret", "name": "gone"}]);
    let set = make(
        client,
        ADDONS,
        "ClusterResourceSet",
        "addons",
        None,
        json!({
            "metadata": {"finalizers": ["addons"]}, "spec": {"resources": resources},
            "status": {"conditions": [{"type": "Paused", "status": "False"}]},
        }),
    )
    .await;
    make(
        client,
        "",
        "ConfigMap",
        "applied",
        Some(&set),
        json!({"data": {"a": "b"}}),
    )
    .await;
    make(
        client,
        "",
        "ConfigMap",
        "named",
        None,
        json!({"data": {"a": "b"}}),
    )
    .await;
    make(
        client,
        "",
        "ConfigMap",
        "unnamed",
        None,
        json!({"data": {"a": "b"}}),
    )
    .await;
    make(
        client,
        ADDONS,
        "ClusterResourceSetBinding",
        "c",
        Some(&set),
        json!({"spec": {"clusterName": "c"}}),
    )
    .await;
    make(
        client,
        INFRASTRUCTURE,
        "DevPool",
        "pool",
        None,
        json!({"spec": {"range": 1}}),
    )
    .await;
    make(
        client,
        "",
        "Secret",
        "labelled",
        None,
        json!({"metadata": {"labels": {"clusterctl.cluster.x-k8s.io/move": ""}}}),
    )
    .await;
    make(client, "", "Secret", "x-unknown", None, json!({"data": {}})).await;
    let identity = make(
        client,
        INFRASTRUCTURE,
        "DevIdentity",
        "who",
        None,
        json!({"spec": {"secret": "who"}}),
    )
    .await;
    make_in(
        client,
        Some(SYSTEM),
        "",
        "Secret",
        "who",
        Some(&identity),
        json!({"data": {"token": "eA=="}}),
    )
    .await;
}
