//! Clusters of virtual machines, from the request to Cluster API and back, by the service and the operator over the embedded API.
//! Cluster API is played: a simulator walks machines, and some of them into a fault.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};

use super::*;
use crate::machines::{GROUP_LABEL, Kind, plan::FIRST};

mod credentials;
mod leftovers;
mod lookups;

/// Machines are there in seconds, on a loaded computer in many.
const LIMIT: Duration = Duration::from_mins(1);
const CLONED: &str = "cluster.x-k8s.io/cloned-from-name";

/// What happens to new machines of a group.
#[derive(Clone, Copy)]
enum Fault {
    /// They fail for good.
    Quota,
    /// They are tried again and again.
    NoHost,
}

/// Cluster API and a cloud. What they do is done by [`Cloud::step`].
struct Cloud {
    world: World,
    operating: tokio::task::JoinHandle<()>,
    faults: BTreeMap<&'static str, Fault>,
    /// Whether servers stay when their cluster goes.
    clings: bool,
}

impl Drop for Cloud {
    fn drop(&mut self) {
        self.operating.abort();
    }
}

fn definition(kind: Kind) -> CustomResourceDefinition {
    let resource = kind.resource();
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut spec = open.clone();
    if kind == Kind::ControlPlane {
        // What a webhook of Cluster API would refuse.
        spec["properties"] = json!({"replicas": {"type": "integer", "maximum": 5}});
    }
    serde_json::from_value(json!({
        "metadata": {"name": format!("{}.{}", resource.plural, resource.group)},
        "spec": {
            "group": resource.group, "scope": "Namespaced", "names": {"kind": resource.kind, "plural": resource.plural},
            "versions": [{
                "name": resource.version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": open}}},
            }],
        },
    }))
    .unwrap()
}

impl Cloud {
    async fn new(kinds: &[Kind]) -> Self {
        let mut definitions = api::magnum::definitions();
        definitions.extend(api::custom_resource_definitions());
        definitions.extend(kinds.iter().map(|kind| definition(*kind)));
        let (world, operating) = World::operated(&definitions).await;
        Self {
            world,
            operating,
            faults: BTreeMap::new(),
            clings: false,
        }
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let told = self.world.ask(MEMBER, method, path, body).await;
        assert!(told.status < 300, "{method} {path}: {told:?}");
        told.body
    }

    async fn template(&self, name: &str, version: &str, image: &str) -> String {
        let more = json!({
            "name": name, "server_type": "vm", "image_id": image, "flavor_id": "m1.large", "external_network_id": "public",
            "labels": {"kube_tag": version, "colour": "red"},
        });
        self.world.template(MEMBER, more).await
    }

    async fn create(&self, template: &str) -> String {
        let body = json!({"name": "first", "cluster_template_id": template, "node_count": 2});
        let told = self.ask("POST", "/v1/clusters", body).await;
        told["uuid"].as_str().unwrap().to_owned()
    }

    /// As whoever runs the service does for a project.
    async fn give_credentials(&self) {
        let secrets: Api<Secret> = Api::namespaced(self.world.client.clone(), "magnum-p1");
        let secret = json!({"metadata": {"name": "cloud-config"}, "stringData": {"clouds.yaml": "clouds: {openstack: {}}"}});
        let secret = serde_json::from_value(secret).unwrap();
        secrets
            .create(&PostParams::default(), &secret)
            .await
            .unwrap();
    }

    /// Manifests that go into clusters.
    async fn give_addon(&self, namespace: &str, name: &str, of: &str) {
        let maps: Api<ConfigMap> = Api::namespaced(self.world.client.clone(), namespace);
        let labels = json!({"magnum.windlass.dev/addon": of});
        let map = json!({"metadata": {"name": name, "labels": labels}, "data": {"of": namespace}});
        let map = serde_json::from_value(map).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
    }

    /// Walks machines until the cluster is as it should be. None: it is not found.
    async fn until(&self, uuid: &str, what: &str, is_so: impl Fn(Option<&Value>) -> bool) -> Value {
        let path = format!("/v1/clusters/{uuid}");
        let mut last = Value::Null;
        let walked = tokio::time::timeout(LIMIT, async {
            loop {
                self.step(uuid).await;
                let told = self.world.get(MEMBER, &path).await;
                let found = (told.status == 200).then_some(&told.body);
                let done = is_so(found);
                last = told.body.clone();
                if done {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(walked.await.is_ok(), "{what}: {last}");
        last
    }

    async fn until_state(&self, uuid: &str, state: &str) -> Value {
        self.until(uuid, state, |cluster| {
            cluster.is_some_and(|cluster| cluster["status"] == state)
        })
        .await
    }

    /// Lets the API serve a kind, or not; its objects stay.
    async fn serve(&self, kind: Kind, served: bool) {
        let name = definition(kind).metadata.name.unwrap();
        let patch = json!([{"op": "replace", "path": "/spec/versions/0/served", "value": served}]);
        let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
        let parameters = PatchParams::default();
        let patched = self.definitions().patch(&name, &parameters, &patch).await;
        patched.unwrap();
    }

    fn definitions(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.world.client.clone())
    }

    fn api(&self, uuid: &str, kind: Kind) -> Api<DynamicObject> {
        let namespace = format!("coe-{uuid}");
        Api::namespaced_with(self.world.client.clone(), &namespace, &kind.resource())
    }

    async fn all(&self, uuid: &str, kind: Kind) -> Vec<DynamicObject> {
        let listed = self.api(uuid, kind).list(&ListParams::default()).await;
        listed.map(|list| list.items).unwrap_or_default()
    }

    /// The operator may have taken away what was just seen.
    async fn patch(&self, uuid: &str, kind: Kind, name: &str, patch: Value) {
        let parameters = PatchParams::default();
        let api = self.api(uuid, kind);
        let body = Patch::Merge(&patch);
        let patched = if patch.get("status").is_some() {
            api.patch_status(name, &parameters, &body).await
        } else {
            api.patch(name, &parameters, &body).await
        };
        unless_gone(patched.map(drop));
    }

    async fn delete(&self, uuid: &str, kind: Kind, name: &str) {
        let api = self.api(uuid, kind);
        unless_gone(api.delete(name, &DeleteParams::default()).await.map(drop));
    }

    /// One step of what Cluster API and the cloud do.
    async fn step(&self, uuid: &str) {
        let clusters = self.all(uuid, Kind::Cluster).await;
        let Some(cluster) = clusters.first() else {
            return;
        };
        let name = cluster.name_any();
        if cluster.metadata.deletion_timestamp.is_some() {
            if !self.clings {
                self.end(uuid, &name).await;
            }
            return;
        }
        if cluster.metadata.finalizers.is_none() {
            let held = json!({
                "metadata": {"finalizers": ["cluster.cluster.x-k8s.io"]},
                "spec": {"controlPlaneEndpoint": {"host": "192.0.2.9", "port": 6443}},
            });
            self.patch(uuid, Kind::Cluster, &name, held).await;
        }
        for owner in self.all(uuid, Kind::ControlPlane).await {
            self.walk(uuid, Kind::ControlPlane, &owner).await;
        }
        let deployments = self.all(uuid, Kind::Deployment).await;
        for owner in &deployments {
            self.walk(uuid, Kind::Deployment, owner).await;
        }
        // Machines go with what made them.
        for machine in self.all(uuid, Kind::Machine).await {
            let by = machine.metadata.annotations.clone().unwrap_or_default()["by"].clone();
            let is_owned = deployments.iter().any(|owner| owner.name_any() == by);
            if !is_owned && !by.ends_with("-control-plane") {
                self.take(uuid, &machine.name_any()).await;
            }
        }
        let status = json!({
            "initialization": {"controlPlaneInitialized": true}, "conditions": [{"type": "Available", "status": "True"}],
        });
        self.patch(uuid, Kind::Cluster, &name, json!({"status": status}))
            .await;
    }

    async fn end(&self, uuid: &str, name: &str) {
        for kind in [
            Kind::Machine,
            Kind::Server,
            Kind::Deployment,
            Kind::ControlPlane,
            Kind::HealthCheck,
            Kind::Infrastructure,
        ] {
            for object in self.all(uuid, kind).await {
                self.delete(uuid, kind, &object.name_any()).await;
            }
        }
        self.patch(
            uuid,
            Kind::Cluster,
            name,
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    }

    async fn take(&self, uuid: &str, machine: &str) {
        self.delete(uuid, Kind::Server, machine).await;
        self.delete(uuid, Kind::Machine, machine).await;
    }

    /// Brings the machines of a group to what it should have.
    async fn walk(&self, uuid: &str, kind: Kind, owner: &DynamicObject) {
        let (spec, by) = (&owner.data["spec"], owner.name_any());
        let group = owner.labels()[GROUP_LABEL].clone();
        let machine_spec = if kind == Kind::ControlPlane {
            &spec["machineTemplate"]["spec"]
        } else {
            &spec["template"]["spec"]
        };
        let like = machine_spec["infrastructureRef"]["name"].as_str().unwrap();
        let is_there = async |kind, name: &str| {
            let found = self.api(uuid, kind).get_opt(name).await;
            found.unwrap().is_some()
        };
        if !is_there(Kind::ServerTemplate, like).await {
            assert!(!is_there(kind, &by).await, "{by} refers to {like}");
            return;
        }
        let wanted = usize::try_from(spec["replicas"].as_u64().unwrap()).unwrap();
        let mut there = self.all(uuid, Kind::Machine).await;
        there.retain(|machine| machine.labels().get(GROUP_LABEL) == Some(&group));
        let is_old = |machine: &DynamicObject| machine.annotations()[CLONED] != like;
        there.sort_by_key(|machine| {
            (
                !machine.annotations().contains_key(FIRST),
                !is_old(machine),
                machine.name_any(),
            )
        });
        if there.len() > wanted || there.iter().any(is_old) {
            self.take(uuid, &there.remove(0).name_any()).await;
        } else if there.len() < wanted {
            let at = (0..=there.len()).find(|at| {
                !there
                    .iter()
                    .any(|machine| machine.name_any() == format!("{by}-{at}"))
            });
            self.begin(uuid, &format!("{by}-{}", at.unwrap()), &by, &group, like)
                .await;
        }
        let fault = self
            .faults
            .iter()
            .find(|(name, _)| by.contains(**name))
            .map(|(_, fault)| *fault);
        let mut ready = 0;
        for (at, machine) in there.iter().enumerate() {
            let (name, is_up) = (
                machine.name_any(),
                machine.data["status"]["phase"] == "Running",
            );
            match fault {
                Some(fault) if !is_up => self.stumble(uuid, &name, fault).await,
                _ => {
                    ready += 1;
                    self.run(uuid, &name, &by, at).await;
                }
            }
        }
        let status = json!({
            "observedGeneration": owner.metadata.generation, "replicas": there.len(), "readyReplicas": ready,
            "upToDateReplicas": there.iter().filter(|machine| !is_old(machine)).count(), "version": spec["version"],
            "initialization": {"controlPlaneInitialized": true}, "conditions": [{"type": "Available", "status": "True"}],
        });
        self.patch(uuid, kind, &by, json!({"status": status})).await;
    }

    async fn begin(&self, uuid: &str, name: &str, by: &str, group: &str, like: &str) {
        let marks = json!({CLONED: like, "by": by});
        let labels = json!({GROUP_LABEL: group, "magnum.windlass.dev/cluster": uuid, "magnum.windlass.dev/project": "p1"});
        for kind in [Kind::Server, Kind::Machine] {
            let object = json!({
                "apiVersion": kind.api_version(), "kind": kind.word(),
                "metadata": {"name": name, "labels": labels, "annotations": marks},
                "spec": {"infrastructureRef": {"kind": "OpenStackMachine", "name": name}},
            });
            let object = serde_json::from_value(object).unwrap();
            self.api(uuid, kind)
                .create(&PostParams::default(), &object)
                .await
                .unwrap();
        }
    }

    async fn stumble(&self, uuid: &str, name: &str, fault: Fault) {
        let status = match fault {
            Fault::Quota => json!({"failureMessage": "Quota exceeded for instances"}),
            Fault::NoHost => json!({"conditions": [
                {"type": "InstanceReady", "status": "False", "severity": "Error", "message": "No valid host was found"},
            ]}),
        };
        self.patch(uuid, Kind::Server, name, json!({"status": status}))
            .await;
    }

    async fn run(&self, uuid: &str, name: &str, by: &str, at: usize) {
        let address = if by.ends_with("-control-plane") {
            format!("10.0.0.{}", at + 1)
        } else {
            format!("10.0.1.{}", number(name) + 1)
        };
        let status = json!({
            "phase": "Running", "nodeRef": {"name": name}, "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "NodeReady", "status": "True"}],
        });
        self.patch(uuid, Kind::Machine, name, json!({"status": status}))
            .await;
        self.patch(
            uuid,
            Kind::Server,
            name,
            json!({"status": {"conditions": []}}),
        )
        .await;
    }
}

fn unless_gone(done: kube::Result<()>) {
    match done {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        done => done.unwrap(),
    }
}

fn number(name: &str) -> u8 {
    name.rsplit('-').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_machines_lives_as_its_user_asks() {
    let mut cloud = Cloud::new(&Kind::ALL).await;
    let template = cloud.template("small", "v1.34.3", "ubuntu-1.34").await;
    let uuid = cloud.create(&template).await;
    let reason = |cluster: &Value| {
        cluster["status_reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    cloud
        .until(&uuid, "waits for credentials", |cluster| {
            cluster.is_some_and(|cluster| reason(cluster).contains("magnum-p1/cloud-config"))
        })
        .await;
    for (name, of) in [("network", "calico"), ("other", "cilium"), ("cloud", "all")] {
        cloud.give_addon("default", name, of).await;
    }
    cloud.give_addon("magnum-p1", "cloud", "all").await;
    cloud.give_credentials().await;
    let made = cloud.until_state(&uuid, "CREATE_COMPLETE").await;
    assert_eq!(made["api_address"], "https://192.0.2.9:6443");
    assert_eq!(made["coe_version"], "v1.34.3");
    assert_eq!(made["health_status"], "HEALTHY");
    assert!(
        reason(&made)
            .starts_with("labels that are not known: colour; not everything was looked up"),
        "{made}"
    );
    assert_eq!(made["master_addresses"], json!(["10.0.0.1"]));

    // What signs a kubeconfig for its user is what the cluster is founded with.
    let told = cloud
        .ask("GET", &format!("/v1/certificates/{uuid}"), Value::Null)
        .await;
    let secrets: Api<Secret> = Api::namespaced(cloud.world.client.clone(), &format!("coe-{uuid}"));
    let name = format!("k8s-{}", &uuid[..8]);
    let authority = secrets.get(&format!("{name}-ca")).await.unwrap();
    assert_eq!(authority.type_.as_deref(), Some("cluster.x-k8s.io/secret"));
    assert_eq!(
        authority.data.unwrap()["tls.crt"].0,
        told["pem"].as_str().unwrap().as_bytes()
    );
    for other in ["etcd", "proxy"] {
        secrets.get(&format!("{name}-{other}")).await.unwrap();
    }

    // Manifests of its plugin, and those of the project instead of everybody's.
    let addons = cloud.all(&uuid, Kind::Addons).await;
    assert_eq!(
        addons[0].data["spec"]["resources"],
        json!([{"kind": "ConfigMap", "name": "addon-cloud"}, {"kind": "ConfigMap", "name": "addon-network"}])
    );
    let maps: Api<ConfigMap> = Api::namespaced(cloud.world.client.clone(), &format!("coe-{uuid}"));
    let own = maps.get("addon-cloud").await.unwrap();
    assert_eq!(own.data.unwrap()["of"], "magnum-p1");

    let resize = format!("/v1/clusters/{uuid}/actions/resize");
    cloud.ask("POST", &resize, json!({"node_count": 3})).await;
    let larger = cloud.until_state(&uuid, "UPDATE_COMPLETE").await;
    assert_eq!(
        larger["node_addresses"],
        json!(["10.0.1.1", "10.0.1.2", "10.0.1.3"])
    );
    cloud
        .ask(
            "POST",
            &resize,
            json!({"node_count": 2, "nodes_to_remove": ["10.0.1.1"]}),
        )
        .await;
    let smaller = cloud.until_state(&uuid, "UPDATE_COMPLETE").await;
    assert_eq!(smaller["node_addresses"], json!(["10.0.1.2", "10.0.1.3"]));

    let groups = format!("/v1/clusters/{uuid}/nodegroups");
    let scaled =
        json!({"auto_scaling_enabled": "true", "min_node_count": "4", "max_node_count": "3"});
    for (path, body, words) in [
        (
            &resize,
            json!({"node_count": 1000}),
            "node_count. Value: '1001'",
        ),
        (
            &groups,
            json!({"name": "many", "node_count": 998}),
            "node_count. Value: '1001'",
        ),
        (
            &groups,
            json!({"name": "crossed", "node_count": 3, "labels": scaled}),
            "min_node_count 4 of node group crossed is more than its max_node_count 3",
        ),
    ] {
        let told = cloud.world.ask(MEMBER, "POST", path, body).await;
        refused(&told, words);
    }

    cloud.faults.insert("gpu", Fault::Quota);
    cloud
        .ask(
            "POST",
            &groups,
            json!({"name": "gpu", "flavor_id": "gpu", "node_count": 1}),
        )
        .await;
    let failed = cloud.until_state(&uuid, "UPDATE_FAILED").await;
    assert!(
        reason(&failed).contains("Quota exceeded for instances"),
        "{failed}"
    );
    assert!(
        failed["faults"]["gpu"]
            .as_str()
            .unwrap()
            .contains("Quota exceeded"),
        "{failed}"
    );
    cloud
        .ask("DELETE", &format!("{groups}/gpu"), Value::Null)
        .await;
    cloud.until_state(&uuid, "UPDATE_COMPLETE").await;
    cloud
        .until(&uuid, "the machine of the group goes", |cluster| {
            let reasons = cluster.map(|cluster| cluster["health_status_reason"].clone());
            !reasons.unwrap().to_string().contains("gpu")
        })
        .await;
    assert_eq!(cloud.all(&uuid, Kind::Deployment).await.len(), 1);

    let newer = cloud.template("newer", "v1.35.0", "ubuntu-1.35").await;
    let upgrade = format!("/v1/clusters/{uuid}/actions/upgrade");
    cloud
        .ask("POST", &upgrade, json!({"cluster_template": newer}))
        .await;
    let upgraded = cloud.until_state(&uuid, "UPDATE_COMPLETE").await;
    assert_eq!(upgraded["coe_version"], "v1.35.0");
    for machine in cloud.all(&uuid, Kind::Machine).await {
        let like = machine.annotations()[CLONED].clone();
        let like = cloud
            .api(&uuid, Kind::ServerTemplate)
            .get(&like)
            .await
            .unwrap();
        assert_eq!(
            like.data["spec"]["template"]["spec"]["image"]["filter"]["name"],
            "ubuntu-1.35"
        );
    }

    upgraded_one_group_after_the_other(&cloud, &uuid).await;

    cloud.clings = true;
    cloud
        .ask("DELETE", &format!("/v1/clusters/{uuid}"), Value::Null)
        .await;
    let going = cloud.until_state(&uuid, "DELETE_IN_PROGRESS").await;
    assert_eq!(going["uuid"], uuid);
    // By credentials that were exchanged meanwhile the servers go, by the others they would stay.
    let given: Api<Secret> = Api::namespaced(cloud.world.client.clone(), "magnum-p1");
    let newer = Patch::Merge(json!({"data": {"clouds.yaml": "bmV3ZXI="}}));
    let parameters = PatchParams::default();
    given
        .patch("cloud-config", &parameters, &newer)
        .await
        .unwrap();
    let copied = tokio::time::timeout(LIMIT, async {
        while secrets.get("cloud-config").await.unwrap().data.unwrap()["clouds.yaml"].0 != b"newer"
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    copied.await.expect("the credentials are copied");
    cloud.clings = false;
    cloud
        .until(&uuid, "it is gone", |cluster| cluster.is_none())
        .await;
    for kind in Kind::ALL {
        assert!(cloud.all(&uuid, kind).await.is_empty(), "{kind:?}");
    }
    let namespaces: Api<Namespace> = Api::all(cloud.world.client.clone());
    let left = namespaces.get_opt(&format!("coe-{uuid}")).await.unwrap();
    assert!(left.is_none_or(|left| left.metadata.deletion_timestamp.is_some()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_without_a_host_says_so_until_it_has_one() {
    let mut cloud = Cloud::new(&Kind::ALL).await;
    cloud.faults.insert("worker", Fault::NoHost);
    let template = cloud.template("small", "v1.34.3", "ubuntu").await;
    let uuid = cloud.create(&template).await;
    cloud.give_credentials().await;
    let waits = cloud
        .until(&uuid, "says why", |cluster| {
            let reason = cluster.and_then(|cluster| cluster["status_reason"].as_str());
            reason.is_some_and(|reason| reason.contains("No valid host was found"))
        })
        .await;
    assert_eq!(waits["status"], "CREATE_IN_PROGRESS");
    cloud.faults.clear();
    cloud.until_state(&uuid, "CREATE_COMPLETE").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cluster_api_refuses_is_told() {
    let cloud = Cloud::new(&Kind::ALL).await;
    let template = cloud.template("small", "v1.34.3", "ubuntu").await;
    let body = json!({
        "name": "large", "cluster_template_id": template, "master_count": 7, "master_lb_enabled": true,
    });
    let told = cloud.ask("POST", "/v1/clusters", body).await;
    let uuid = told["uuid"].as_str().unwrap();
    cloud.give_credentials().await;
    let failed = cloud.until_state(uuid, "CREATE_FAILED").await;
    let reason = failed["status_reason"].as_str().unwrap();
    assert!(
        reason.contains("KubeadmControlPlane") && reason.contains("replicas"),
        "{reason}"
    );
    // One that was never whole goes all the same.
    cloud
        .ask("DELETE", &format!("/v1/clusters/{uuid}"), Value::Null)
        .await;
    cloud
        .until(uuid, "it is gone", |cluster| cluster.is_none())
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_cluster_api_a_cluster_says_what_to_install() {
    let cloud = Cloud::new(&[]).await;
    let template = cloud.template("small", "v1.34.3", "ubuntu").await;
    let uuid = cloud.create(&template).await;
    let failed = cloud.until_state(&uuid, "CREATE_FAILED").await;
    let reason = failed["status_reason"].as_str().unwrap();
    assert!(reason.contains("install Cluster API"), "{reason}");
    cloud
        .ask("DELETE", &format!("/v1/clusters/{uuid}"), Value::Null)
        .await;
    cloud
        .until(&uuid, "it is gone", |cluster| cluster.is_none())
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_not_forgotten_because_its_kinds_are_not_served_for_a_while() {
    // Those that the API has from the beginning can never be changed.
    let cloud = Cloud::new(&[]).await;
    let definitions = cloud.definitions();
    for kind in Kind::ALL {
        let (parameters, definition) = (PostParams::default(), definition(kind));
        let made = definitions.create(&parameters, &definition).await;
        made.unwrap();
    }
    let template = cloud.template("small", "v1.34.3", "ubuntu").await;
    let uuid = cloud.create(&template).await;
    cloud.give_credentials().await;
    cloud.until_state(&uuid, "CREATE_COMPLETE").await;
    for kind in Kind::ALL {
        cloud.serve(kind, false).await;
    }
    cloud
        .ask("DELETE", &format!("/v1/clusters/{uuid}"), Value::Null)
        .await;
    let held = cloud
        .until(&uuid, "it says why", |cluster| {
            let reason = cluster.and_then(|cluster| cluster["status_reason"].as_str());
            reason.is_some_and(|reason| reason.contains("does not serve"))
        })
        .await;
    assert_eq!(held["status"], "DELETE_IN_PROGRESS");
    for kind in Kind::ALL {
        cloud.serve(kind, true).await;
    }
    cloud
        .until(&uuid, "it is gone", |cluster| cluster.is_none())
        .await;
    assert!(cloud.all(&uuid, Kind::Machine).await.is_empty());
}

#[tokio::test]
async fn a_label_that_is_none_is_refused_with_its_rule() {
    let world = World::new().await;
    let vm = world
        .template(
            MEMBER,
            json!({"name": "vm", "server_type": "vm", "flavor_id": "m1"}),
        )
        .await;
    let cluster =
        |labels: Value| json!({"name": "first", "cluster_template_id": vm, "labels": labels});
    let bad = json!({"kube_tag": "v1.34.3", "boot_volume_size": "large"});
    let template = template(json!({"labels": bad}));
    for (path, body) in [
        ("/v1/clusters", cluster(bad)),
        ("/v1/clustertemplates", template),
    ] {
        let told = world.ask(MEMBER, "POST", path, body).await;
        assert_fault(&told, 400);
        let detail = told.body["errors"][0]["detail"].as_str().unwrap();
        for part in [
            "labels",
            "large",
            "boot_volume_size",
            "a number from 0 to 65536",
        ] {
            assert!(detail.contains(part), "{detail}");
        }
    }
    let told = world
        .ask(MEMBER, "POST", "/v1/clusters", cluster(json!({})))
        .await;
    assert_fault(&told, 400);
    let detail = told.body["errors"][0]["detail"].to_string();
    assert!(detail.contains("kube_tag is missing"), "{detail}");
}

fn refused(told: &Told, words: &str) {
    assert_fault(told, 400);
    let detail = told.body["errors"][0]["detail"].as_str().unwrap();
    assert!(detail.contains(words), "{detail}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_nodes_is_the_autoscaler_s_where_it_is_left_to_it() {
    let cloud = Cloud::new(&Kind::ALL).await;
    let template = cloud.template("small", "v1.34.3", "ubuntu").await;
    let labels =
        json!({"kube_tag": "v1.34.3", "auto_scaling_enabled": "true", "max_node_count": "3"});
    let mut body = json!({
        "name": "first", "cluster_template_id": template, "node_count": 2, "labels": labels,
    });
    let told = cloud.ask("POST", "/v1/clusters", body.clone()).await;
    let uuid = told["uuid"].as_str().unwrap();
    cloud.give_credentials().await;
    let made = cloud.until_state(uuid, "CREATE_COMPLETE").await;
    assert_eq!(made["node_addresses"], json!(["10.0.1.1", "10.0.1.2"]));
    let resize = format!("/v1/clusters/{uuid}/actions/resize");
    let told = cloud
        .world
        .ask(MEMBER, "POST", &resize, json!({"node_count": 1}))
        .await;
    refused(&told, "auto_scaling_enabled");
    let deployments = cloud.all(uuid, Kind::Deployment).await;
    let more = json!({"spec": {"replicas": 3}});
    let name = deployments[0].name_any();
    cloud.patch(uuid, Kind::Deployment, &name, more).await;
    cloud
        .until(uuid, "what the autoscaler says", |cluster| {
            cluster.is_some_and(|cluster| {
                cluster["node_addresses"] == json!(["10.0.1.1", "10.0.1.2", "10.0.1.3"])
            })
        })
        .await;
    body["node_count"] = json!(1000);
    body["labels"] = json!({"kube_tag": "v1.34.3"});
    let told = cloud.world.ask(MEMBER, "POST", "/v1/clusters", body).await;
    refused(&told, "node_count. Value: '1001'");
}

/// The control planes first, then the workers; neither moves the other's machines.
async fn upgraded_one_group_after_the_other(cloud: &Cloud, uuid: &str) {
    let newest = cloud.template("newest", "v1.36.0", "ubuntu-1.36").await;
    let upgrade = format!("/v1/clusters/{uuid}/actions/upgrade");
    let of = |group: &str| json!({"cluster_template": newest, "nodegroup": group});
    let workers = cloud
        .world
        .ask(MEMBER, "POST", &upgrade, of("default-worker"));
    let refused = workers.await;
    assert_fault(&refused, 400);
    assert!(
        refused.body.to_string().contains("default-master first"),
        "{refused:?}"
    );
    for (group, image_of_workers, of_workers) in [
        ("default-master", "ubuntu-1.35", "v1.35.0"),
        ("default-worker", "ubuntu-1.36", "v1.36.0"),
    ] {
        cloud.ask("POST", &upgrade, of(group)).await;
        let upgraded = cloud.until_state(uuid, "UPDATE_COMPLETE").await;
        assert_eq!(upgraded["coe_version"], "v1.36.0");
        let path = format!("/v1/clusters/{uuid}/nodegroups/default-worker");
        let workers = cloud.ask("GET", &path, Value::Null).await;
        assert_eq!(workers["image_id"], image_of_workers, "{group}");
        for deployment in cloud.all(uuid, Kind::Deployment).await {
            let version = &deployment.data["spec"]["template"]["spec"]["version"];
            assert_eq!(version, of_workers, "{group}");
        }
    }
}
