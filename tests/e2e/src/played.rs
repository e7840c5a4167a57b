//! Cluster API where there is none: its definitions, and a player of what it and a cloud do. Machines come up at once and nothing fails;
//! what goes wrong with machines is played by the tests of `crates/magnum`.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Error, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{runtime::Handle, task::JoinHandle};

/// The label of all that is of a group of nodes.
const GROUP: &str = "magnum.windlass.dev/node-group";
const FINALIZER: &str = "cluster.cluster.x-k8s.io";
/// Between two looks.
const PACE: Duration = Duration::from_millis(200);

const CLUSTER: Kind = Kind("cluster.x-k8s.io", "v1beta2", "Cluster");
const MACHINE: Kind = Kind("cluster.x-k8s.io", "v1beta2", "Machine");
const SERVER: Kind = Kind(
    "infrastructure.cluster.x-k8s.io",
    "v1beta1",
    "OpenStackMachine",
);
/// What has machines.
const OWNERS: [Kind; 2] = [
    Kind(
        "controlplane.cluster.x-k8s.io",
        "v1beta2",
        "KubeadmControlPlane",
    ),
    Kind("cluster.x-k8s.io", "v1beta2", "MachineDeployment"),
];
const OTHERS: [Kind; 6] = [
    Kind(
        "infrastructure.cluster.x-k8s.io",
        "v1beta1",
        "OpenStackCluster",
    ),
    Kind(
        "infrastructure.cluster.x-k8s.io",
        "v1beta1",
        "OpenStackMachineTemplate",
    ),
    Kind(
        "bootstrap.cluster.x-k8s.io",
        "v1beta2",
        "KubeadmConfigTemplate",
    ),
    Kind("cluster.x-k8s.io", "v1beta2", "MachineSet"),
    Kind("cluster.x-k8s.io", "v1beta2", "MachineHealthCheck"),
    Kind("addons.cluster.x-k8s.io", "v1beta2", "ClusterResourceSet"),
];

/// Group, version and word.
#[derive(Clone, Copy)]
struct Kind(&'static str, &'static str, &'static str);

impl Kind {
    fn all() -> impl Iterator<Item = Self> {
        [CLUSTER, MACHINE, SERVER]
            .into_iter()
            .chain(OWNERS)
            .chain(OTHERS)
    }

    fn resource(self) -> ApiResource {
        let Self(group, version, word) = self;
        ApiResource {
            group: group.into(),
            version: version.into(),
            api_version: format!("{group}/{version}"),
            kind: word.into(),
            plural: format!("{}s", word.to_lowercase()),
        }
    }

    fn definition(self) -> Result<CustomResourceDefinition> {
        let ApiResource {
            group,
            version,
            kind,
            plural,
            ..
        } = self.resource();
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema = json!({"type": "object", "properties": {"spec": open, "status": open}});
        serde_json::from_value(json!({
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                "versions": [{
                    "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }],
            },
        }))
        .context("a definition is none")
    }
}

/// Definitions of all kinds that clusters of machines are made of.
///
/// # Errors
///
/// None is expected.
pub fn cluster_api_definitions() -> Result<Vec<CustomResourceDefinition>> {
    Kind::all().map(Kind::definition).collect()
}

/// Plays until it is dropped.
pub struct PlayedClusterApi(JoinHandle<()>);

impl PlayedClusterApi {
    /// For all clusters of an API.
    pub fn start(runtime: &Handle, client: Client) -> Self {
        Self(runtime.spawn(async move {
            loop {
                // Objects go between two requests; the next look sees what there is then.
                if let Err(error) = step(&client).await {
                    eprintln!("the player of Cluster API: {error}");
                }
                tokio::time::sleep(PACE).await;
            }
        }))
    }
}

impl Drop for PlayedClusterApi {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn step(client: &Client) -> kube::Result<()> {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &CLUSTER.resource());
    for cluster in all.list(&ListParams::default()).await?.items {
        let place = Place {
            client,
            namespace: cluster.namespace().unwrap_or_default(),
        };
        let name = cluster.name_any();
        if cluster.metadata.deletion_timestamp.is_some() {
            for kind in Kind::all().filter(|kind| kind.2 != CLUSTER.2) {
                for object in place.list(kind).await? {
                    place.delete(kind, &object.name_any()).await?;
                }
            }
            let free = json!({"metadata": {"finalizers": null}});
            place.patch(CLUSTER, &name, &free).await?;
            continue;
        }
        if cluster.metadata.finalizers.is_none() {
            let held = json!({
                "metadata": {"finalizers": [FINALIZER]},
                "spec": {"controlPlaneEndpoint": {"host": "192.0.2.9", "port": 6443}},
            });
            place.patch(CLUSTER, &name, &held).await?;
        }
        let mut groups = Vec::new();
        for kind in OWNERS {
            for owner in place.list(kind).await? {
                groups.extend(owner.labels().get(GROUP).cloned());
                place.walk(kind, &owner).await?;
            }
        }
        // Machines go with what made them.
        for machine in place.list(MACHINE).await? {
            let group = machine.labels().get(GROUP);
            if group.is_none_or(|group| !groups.contains(group)) {
                place.take(&machine.name_any()).await?;
            }
        }
        place.tell(CLUSTER, &name, json!({})).await?;
    }
    Ok(())
}

/// The namespace of a cluster.
struct Place<'a> {
    client: &'a Client,
    namespace: String,
}

impl Place<'_> {
    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource())
    }

    async fn list(&self, kind: Kind) -> kube::Result<Vec<DynamicObject>> {
        Ok(self.api(kind).list(&ListParams::default()).await?.items)
    }

    async fn patch(&self, kind: Kind, name: &str, patch: &Value) -> kube::Result<()> {
        let parameters = PatchParams::default();
        let api = self.api(kind);
        unless_gone(api.patch(name, &parameters, &Patch::Merge(patch)).await)
    }

    /// Writes a status, with what every object says that is well.
    async fn tell(&self, kind: Kind, name: &str, mut status: Value) -> kube::Result<()> {
        status["initialization"] = json!({"controlPlaneInitialized": true});
        status["conditions"] = json!([{"type": "Available", "status": "True"}, {"type": "NodeReady", "status": "True"}]);
        let parameters = PatchParams::default();
        let patch = Patch::Merge(json!({"status": status}));
        let patched = self.api(kind).patch_status(name, &parameters, &patch).await;
        unless_gone(patched)
    }

    async fn delete(&self, kind: Kind, name: &str) -> kube::Result<()> {
        let deleted = self.api(kind).delete(name, &DeleteParams::default()).await;
        unless_gone(deleted)
    }

    async fn take(&self, machine: &str) -> kube::Result<()> {
        self.delete(SERVER, machine).await?;
        self.delete(MACHINE, machine).await
    }

    /// Brings the machines of a group to what it should have.
    async fn walk(&self, kind: Kind, owner: &DynamicObject) -> kube::Result<()> {
        let (spec, by) = (&owner.data["spec"], owner.name_any());
        let wanted = spec["replicas"].as_u64().unwrap_or_default();
        let labels = owner.labels();
        let group = labels.get(GROUP).cloned().unwrap_or_default();
        let mut there = self.list(MACHINE).await?;
        there.retain(|machine| machine.labels().get(GROUP) == Some(&group));
        for at in 0..wanted {
            let name = format!("{by}-{at}");
            if there.iter().any(|machine| machine.name_any() == name) {
                let host = u8::from(kind.2 != OWNERS[0].2);
                let address = format!("10.0.{host}.{}", at + 1);
                let addresses = json!([{"type": "InternalIP", "address": address}]);
                let status =
                    json!({"phase": "Running", "nodeRef": {"name": name}, "addresses": addresses});
                self.tell(MACHINE, &name, status).await?;
            } else {
                for kind in [SERVER, MACHINE] {
                    let object = json!({
                        "metadata": {"name": name, "labels": labels},
                        "spec": {"infrastructureRef": {"kind": SERVER.2, "name": name}},
                    });
                    let mut object: DynamicObject =
                        serde_json::from_value(object).map_err(Error::SerdeError)?;
                    let resource = kind.resource();
                    object.types = Some(kube::api::TypeMeta {
                        api_version: resource.api_version,
                        kind: resource.kind,
                    });
                    let made = self.api(kind).create(&PostParams::default(), &object).await;
                    made?;
                }
            }
        }
        for machine in &there {
            let name = machine.name_any();
            let number = name
                .rsplit('-')
                .next()
                .and_then(|number| number.parse::<u64>().ok());
            if number.is_none_or(|number| number >= wanted) {
                self.take(&name).await?;
            }
        }
        let count = there.len();
        let status = json!({
            "observedGeneration": owner.metadata.generation, "replicas": count, "readyReplicas": count, "upToDateReplicas": count,
            "version": spec["version"],
        });
        self.tell(kind, &by, status).await
    }
}

fn unless_gone<T>(done: kube::Result<T>) -> kube::Result<()> {
    match done {
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        done => done.map(drop),
    }
}
