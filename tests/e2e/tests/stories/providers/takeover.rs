//! What plain clusterctl installed is taken over without a write to it, and handed back.

use std::{collections::BTreeMap, fs};

use e2e::wait_until;
use lab::command::output;
use serde_json::{Value, json};

use super::{CORE, LIMIT, NAMESPACE, World, manifests, provider};

const DEPLOYMENT: &str = "deployment/cluster-api-controller-manager";
const ELSEWHERE: &str = "another-system";

/// The definitions of the providers before are still there; nothing else of them is.
pub(super) fn taken_over_and_handed_back(world: &World) {
    installed_by_clusterctl(world);
    let before = stands(world);
    let kinds: Vec<_> = before
        .keys()
        .map(|key| key.split('/').next().unwrap())
        .collect();
    let expected = [
        "ClusterRole",
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "Deployment",
        "Namespace",
        "Provider",
        "Service",
        "Service",
        "ServiceAccount",
    ];
    assert_eq!(kinds, expected);

    not_from_elsewhere(world);
    assert_eq!(
        stands(world),
        before,
        "a refusal, and a deletion that came of it"
    );

    let wish = json!({"version": "v1.13.4", "configSecret": {"name": "variables"}});
    world.apply(&provider("CoreProvider", "cluster-api", &wish));
    world.await_condition(CORE, "Ready", "DeploymentAvailable");
    assert_eq!(stands(world), before, "taken over");
    let core = world.get(CORE).unwrap();
    assert_eq!(core["status"]["installedVersion"], "v1.13.4");

    handed_back(world, &core, before);
}

/// As `clusterctl init` leaves it.
fn installed_by_clusterctl(world: &World) {
    world.kubectl(&["delete", "crd", "things.cluster-api.example.com"]);
    let releases = world.plane.dir().join("releases");
    let release = releases.join("cluster-api/v1.13.4");
    fs::create_dir_all(&release).unwrap();
    let files = manifests("core", "cluster-api", "v1.13.4", "Thing");
    for (key, file) in [
        ("metadata", "metadata.yaml"),
        ("components", "core-components.yaml"),
    ] {
        fs::write(release.join(file), files["data"][key].as_str().unwrap()).unwrap();
    }
    let mut generate = world.windlass(&[
        "generate",
        "--core",
        "cluster-api:v1.13.4",
        "--target-namespace",
        NAMESPACE,
        "--from",
    ]);
    let objects = output(generate.arg(&releases).env("GREETING", "from-the-secret")).unwrap();
    let entry = json!({
        "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Provider",
        "metadata": {"name": "cluster-api", "namespace": NAMESPACE, "labels": {
            "clusterctl.cluster.x-k8s.io": "", "clusterctl.cluster.x-k8s.io/core": "inventory",
            "cluster.x-k8s.io/provider": "cluster-api",
        }},
        "providerName": "cluster-api", "type": "CoreProvider", "version": "v1.13.4",
    });
    let file = world.plane.dir().join("installed.yaml");
    fs::write(&file, format!("{objects}---\n{entry}\n")).unwrap();
    world.kubectl(&["apply", "--filename", file.to_str().unwrap()]);
    world.run_pods("cluster-api");
    wait_until("the Deployment to come to rest", LIMIT, || {
        let found = world.get(DEPLOYMENT).unwrap_or_default();
        let conditions = found["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.into_iter().flatten();
        Ok(conditions
            .any(|condition| condition["reason"] == "NewReplicaSetAvailable")
            .then_some(()))
    })
    .unwrap();
}

/// The version of everything that has the provider's label, and who owns its fields.
fn stands(world: &World) -> BTreeMap<String, Value> {
    let kinds = "namespaces,deployments,services,serviceaccounts,clusterroles,clusterrolebindings,customresourcedefinitions,providers.clusterctl.cluster.x-k8s.io";
    stands_of(world, kinds)
}

/// The same of such kinds alone.
pub(super) fn stands_of(world: &World, kinds: &str) -> BTreeMap<String, Value> {
    let found = world.kubectl(&[
        "get",
        kinds,
        "--selector",
        "cluster.x-k8s.io/provider=cluster-api",
        "--show-managed-fields",
        "--output",
        "json",
    ]);
    let found: Value = serde_json::from_str(&found).unwrap();
    let objects = found["items"].as_array().unwrap().iter();
    objects
        .map(|object| {
            let meta = &object["metadata"];
            let name = format!(
                "{}/{}",
                object["kind"].as_str().unwrap(),
                meta["name"].as_str().unwrap()
            );
            (
                name,
                json!([meta["resourceVersion"], meta["managedFields"]]),
            )
        })
        .collect()
}

/// A provider in another namespace is another installation of the same, and goes again without taking anything along.
fn not_from_elsewhere(world: &World) {
    world.kubectl(&["create", "namespace", ELSEWHERE]);
    let elsewhere = |mut object: Value| {
        object["metadata"]["namespace"] = json!(ELSEWHERE);
        let file = world.plane.dir().join("elsewhere.json");
        fs::write(&file, object.to_string()).unwrap();
        output(
            world
                .plane
                .kubectl()
                .args(["apply", "--server-side", "--filename"])
                .arg(file),
        )
        .unwrap();
    };
    elsewhere(manifests("core", "cluster-api", "v1.13.4", "Thing"));
    elsewhere(provider(
        "CoreProvider",
        "cluster-api",
        &json!({"version": "v1.13.4"}),
    ));
    let kubectl = |arguments: &[&str]| {
        output(
            world
                .plane
                .kubectl()
                .args(["--namespace", ELSEWHERE])
                .args(arguments),
        )
        .unwrap()
    };
    let message = "jsonpath={.status.conditions[?(@.type=='Ready')].message}";
    let said = wait_until("the refusal", LIMIT, || {
        let said = kubectl(&["get", CORE, "--output", message]);
        Ok(said.contains("failed").then_some(said))
    })
    .unwrap();
    assert!(
        said.contains(&format!("is installed in namespace {NAMESPACE}")),
        "{said}"
    );
    kubectl(&["delete", CORE, "--timeout=2m"]);
    kubectl(&["delete", "namespace", ELSEWHERE, "--wait=false"]);
}

/// The provider's object goes, and nothing else, whoever has made it the owner of what.
fn handed_back(world: &World, core: &Value, mut before: BTreeMap<String, Value>) {
    // The existing operator does.
    let owner = json!({
        "apiVersion": core["apiVersion"], "kind": core["kind"], "name": core["metadata"]["name"], "uid": core["metadata"]["uid"],
    });
    let patch = json!({"metadata": {"ownerReferences": [owner]}}).to_string();
    world.kubectl(&[
        "patch",
        "service",
        "cluster-api",
        "--type=merge",
        "--patch",
        &patch,
    ]);
    let told = output(&mut world.windlass(&["release", "--core", "cluster-api"])).unwrap();
    assert!(
        told.contains("CoreProvider capi-system/cluster-api: it is gone"),
        "{told}"
    );
    assert_eq!(world.get(CORE), None);

    let mut now = stands(world);
    for stand in [&mut before, &mut now] {
        assert!(stand.remove("Service/cluster-api").is_some());
    }
    assert_eq!(now, before, "handed back");
    let service = world.get("service/cluster-api").unwrap();
    assert_eq!(service["metadata"].get("ownerReferences"), None);
    assert_eq!(world.get("configmap/windlass-applied-cluster-api"), None);
}
