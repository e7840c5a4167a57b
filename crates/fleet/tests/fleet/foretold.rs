//! Ten random edits, each held against what was said of it, by the UIDs of Machines.
//!
//! Machines are in the memory of a Cluster API in small, which replaces them, brings fields to them and counts them by the rules of the real
//! one. `tests/e2e` makes the same edits under the real one, where its programs are built: with `--full`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::inventory::{ClusterTemplate, FleetCluster, FleetHealth, Hierarchy, Rollout};
use builders::foretold::{self, ALPHA, CLUSTERS, Declared, TEMPLATE, There, Values, compare};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
};
use rand::{SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    cluster_api::{CORE, definition},
    rolls::BOOTSTRAP,
    world::{FLEET, World, status},
};

const PLANES: &str = "controlplane.cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const KINDS: [(&str, &str); 7] = [
    (CORE, "Cluster"),
    (CORE, "Machine"),
    (CORE, "MachineDeployment"),
    (PLANES, "KubeadmControlPlane"),
    (BOOTSTRAP, "KubeadmConfigTemplate"),
    (INFRASTRUCTURE, "DevCluster"),
    (INFRASTRUCTURE, "DevMachineTemplate"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_random_edits_do_to_machines_what_was_said_of_them() {
    let seed = std::env::var("WINDLASS_FAULT_SEED").ok();
    let seed = seed.map_or(1, |seed| seed.parse().unwrap());
    eprintln!("WINDLASS_FAULT_SEED={seed}");
    let fleet = Fleet::born().await;
    let mut random = StdRng::seed_from_u64(seed);
    let mut declared = Declared::new(["fra1", "ams2"].map(|name| (name, plain())));
    let (mut replaced, mut updated) = (0, 0);
    for number in 0..10 {
        let object = declared.edit(&mut random);
        let what = format!(
            "edit {number}, {}: {}",
            object["kind"], object["spec"]["values"]
        );
        let plan = fleet::plan::plan(&fleet.world.client, FLEET, vec![object.clone()]);
        let plan = plan.await.unwrap();
        assert!(plan.unread.is_none(), "{what}: {:?}", plan.unread);
        let changed = plan.changes.iter();
        let changed: BTreeSet<_> = changed.map(|change| change.cluster.name.clone()).collect();
        let (before, was) = (fleet.there().await, fleet.rendered().await);
        fleet.apply(&object).await;
        fleet
            .until(&format!("{what} to be seen"), async || {
                let is = fleet.rendered().await;
                changed.iter().all(|name| is.get(name) != was.get(name))
            })
            .await;
        fleet.well(&what).await;
        fleet.have_arrived(&declared).await;
        let after = fleet.there().await;
        let told: Vec<Value> = plan.changes.iter().map(|change| json!(change)).collect();
        compare(&told, &before, &after).unwrap_or_else(|error| panic!("{what}: {error}"));
        replaced += after
            .keys()
            .filter(|key| !before.contains_key(*key))
            .count();
        updated += json!(told).to_string().matches("\"Updated\"").count();
    }
    assert!(
        replaced > 5 && updated > 0,
        "edits that do nothing show nothing"
    );
}

fn plain() -> Values {
    foretold::site("10.77.0.53", "2s")
}

struct Fleet {
    world: World,
    machines: JoinHandle<()>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.machines.abort();
    }
}

impl Fleet {
    async fn born() -> Self {
        let kinds = KINDS.map(|(group, kind)| definition(group, kind));
        let world = World::with(kinds.into()).await;
        let machines = tokio::spawn(machines(world.client.clone()));
        let fleet = Self { world, machines };
        let world = &fleet.world;
        let levels = json!({"levels": [{"name": "site", "kind": "Site"}]});
        world.apply::<Hierarchy>("default", levels).await;
        let template: Value = serde_saphyr::from_str(TEMPLATE).unwrap();
        world
            .apply::<ClusterTemplate>("memory", template["spec"].clone())
            .await;
        for site in ["fra1", "ams2"] {
            let spec = json!({"values": plain()});
            fleet.apply(&foretold::object("Site", site, &spec)).await;
        }
        for (name, site) in CLUSTERS {
            let spec = json!({"template": "memory", "parents": {"site": site}});
            world.apply::<FleetCluster>(name, spec).await;
        }
        let rollout = json!({"canary": {"clusters": [ALPHA]}, "parallel": 2, "soak": "0s"});
        world.apply::<Rollout>("all", rollout).await;
        fleet.well("births").await;
        assert_eq!(fleet.there().await.len(), 2 * CLUSTERS.len());
        fleet
    }

    async fn apply(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let spec = object["spec"].clone();
        match object["kind"].as_str().unwrap() {
            "Site" => self.world.apply::<api::inventory::Site>(name, spec).await,
            "FleetCluster" => self.world.apply::<FleetCluster>(name, spec).await,
            _ => self.world.apply::<ClusterTemplate>(name, spec).await,
        }
    }

    /// Waits for something of objects that nobody watches: whatever becomes of a Rollout has its clusters looked at.
    async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let rollouts = self.world.all::<Rollout>(FLEET);
        for look in 0..600 {
            if is_so().await {
                return;
            }
            let looked = json!({"metadata": {"annotations": {"test/look": look.to_string()}}});
            let looked = Patch::Merge(&looked);
            let parameters = PatchParams::default();
            rollouts.patch("all", &parameters, &looked).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let clusters = self.world.all::<FleetCluster>(FLEET);
        let clusters = clusters.list(&ListParams::default()).await.unwrap();
        let rollout = rollouts.get("all").await.unwrap();
        panic!(
            "{what}: {:#}\n{:#}",
            json!(clusters.items),
            json!(rollout.status)
        );
    }

    /// Waits until every cluster is well at what it is rendered to.
    async fn well(&self, what: &str) {
        let clusters = self.world.all::<FleetCluster>(FLEET);
        self.until(&format!("all to be well after {what}"), async || {
            let all = clusters.list(&ListParams::default()).await.unwrap();
            all.items.iter().all(|cluster| {
                let status = status(cluster);
                status.health == Some(FleetHealth::Well)
                    && status.applied.is_some()
                    && status.applied == status.rendered
                    && status.pending.is_none()
            })
        })
        .await;
    }

    /// What each cluster is rendered to.
    async fn rendered(&self) -> BTreeMap<String, Option<String>> {
        let clusters = self.world.all::<FleetCluster>(FLEET);
        let clusters = clusters.list(&ListParams::default()).await.unwrap();
        let clusters = clusters.items.iter();
        clusters
            .map(|cluster| (cluster.name_any(), status(cluster).rendered))
            .collect()
    }

    /// The Machines. Those that go are gone at once here.
    async fn there(&self) -> There {
        let machines = listed(&self.world.client, CORE, "Machine").await;
        let machines: Vec<_> = machines.iter().map(|machine| json!(machine)).collect();
        foretold::there(&machines)
    }

    /// Waits until what is brought to machines where they are is on all.
    async fn have_arrived(&self, declared: &Declared) {
        self.until("fields to be brought to Machines", async || {
            let machines = listed(&self.world.client, CORE, "Machine").await;
            let mut machines = machines.iter();
            machines.all(|machine| declared.has_arrived(&json!(machine)))
        })
        .await;
    }
}

/// A Cluster API in small.
async fn machines(client: Client) {
    loop {
        for object in listed(&client, CORE, "MachineDeployment").await {
            deployment(&client, &object).await;
        }
        for object in listed(&client, PLANES, "KubeadmControlPlane").await {
            plane(&client, &object).await;
        }
        for object in listed(&client, CORE, "Cluster").await {
            tell(&client, (CORE, "Cluster"), &object, false).await;
        }
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
}

/// Replaces Machines whose version, bootstrap or infrastructure is another one, brings all else to them, and keeps as many as are wished.
///
/// # Source
/// `EqualMachineTemplate` in `internal/controllers/machinedeployment/mdutil` of Cluster API.
async fn deployment(client: &Client, object: &DynamicObject) {
    let template = &object.data["spec"]["template"];
    let spec = &template["spec"];
    let rolled = json!([
        spec["version"],
        spec["bootstrap"],
        spec["infrastructureRef"],
        spec["failureDomain"]
    ]);
    let labels = json!({
        (CLUSTER_NAME): spec["clusterName"], (DEPLOYMENT_NAME): object.name_any(),
        "example.com/note": template["metadata"]["labels"]["example.com/note"],
    });
    let wish = Wish {
        rolled,
        replicas: object.data["spec"]["replicas"].as_u64().unwrap(),
        metadata: json!({"labels": labels}),
        spec: spec.clone(),
    };
    wish.come_true(client, (CORE, "MachineDeployment"), object)
        .await;
}

/// Replaces Machines whose version, configuration of kubeadm or infrastructure is another one.
///
/// # Source
/// `UpToDate` in `controlplane/kubeadm/internal` of Cluster API.
async fn plane(client: &Client, object: &DynamicObject) {
    let spec = &object.data["spec"];
    let infrastructure = &spec["machineTemplate"]["spec"]["infrastructureRef"];
    let name = object.name_any();
    let cluster = name.strip_suffix("-plane").unwrap();
    let wish = Wish {
        rolled: json!([spec["version"], spec["kubeadmConfigSpec"], infrastructure]),
        replicas: 1,
        metadata: json!({
            "labels": {
                (CLUSTER_NAME): cluster, "cluster.x-k8s.io/control-plane": "",
                "example.com/note": spec["machineTemplate"]["metadata"]["labels"]["example.com/note"],
            },
            "ownerReferences": [{
                "apiVersion": format!("{PLANES}/v1beta2"), "kind": "KubeadmControlPlane", "name": name,
                "uid": object.uid().unwrap(), "controller": true,
            }],
        }),
        spec: json!({
            "clusterName": cluster, "infrastructureRef": infrastructure,
            "deletion": spec["machineTemplate"]["spec"]["deletion"],
        }),
    };
    wish.come_true(client, (PLANES, "KubeadmControlPlane"), object)
        .await;
}

/// What the Machines of an object are to be.
struct Wish {
    /// By which they are replaced.
    rolled: Value,
    replicas: u64,
    metadata: Value,
    spec: Value,
}

impl Wish {
    /// One step a turn: the object says that something rolls until none is left.
    async fn come_true(&self, client: &Client, kind: (&str, &str), object: &DynamicObject) {
        let all = listed(client, CORE, "Machine").await;
        let own = all
            .into_iter()
            .filter(|machine| machine.annotations()[OF] == object.name_any());
        let rolled = self.rolled.to_string();
        let (current, outdated): (Vec<_>, Vec<_>) =
            own.partition(|machine| machine.annotations()[ROLLED] == rolled);
        let api = objects(client, CORE, "Machine");
        let missing = self.replicas.saturating_sub(current.len() as u64);
        for _ in 0..missing {
            let mut metadata = self.metadata.clone();
            let number = uuid::Uuid::new_v4().simple().to_string();
            metadata["name"] = json!(format!("{}-{}", object.name_any(), &number[..8]));
            metadata["annotations"] = json!({OF: object.name_any(), ROLLED: rolled});
            put(&api, &metadata, &self.spec).await;
        }
        let many = usize::try_from(self.replicas).unwrap().min(current.len());
        let (kept, surplus) = current.split_at(many);
        for machine in kept {
            let mut metadata = self.metadata.clone();
            metadata["name"] = json!(machine.name_any());
            metadata["annotations"] = json!(machine.annotations());
            put(&api, &metadata, &self.spec).await;
        }
        for machine in surplus.iter().chain(&outdated) {
            api.delete(&machine.name_any(), &DeleteParams::default())
                .await
                .unwrap();
        }
        let is_rolling = missing > 0 || !surplus.is_empty() || !outdated.is_empty();
        tell(client, kind, object, is_rolling).await;
    }
}

async fn put(api: &Api<DynamicObject>, metadata: &Value, spec: &Value) {
    let object = json!({
        "apiVersion": format!("{CORE}/v1beta2"), "kind": "Machine", "metadata": metadata, "spec": spec,
    });
    let name = metadata["name"].as_str().unwrap();
    let parameters = PatchParams::apply("machines").force();
    api.patch(name, &parameters, &Patch::Apply(&object))
        .await
        .unwrap();
}

/// Says what the operator of an object says of the change that was looked at.
async fn tell(
    client: &Client,
    (group, kind): (&str, &str),
    object: &DynamicObject,
    is_rolling: bool,
) {
    let conditions = json!([
        {"type": "Available", "status": "True"},
        {"type": "RollingOut", "status": if is_rolling { "True" } else { "False" }},
    ]);
    let status = json!({"status": {
        "observedGeneration": object.metadata.generation, "conditions": conditions,
    }});
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(&status));
    // It may be gone by now.
    let _ = objects(client, group, kind)
        .patch_status(&object.name_any(), &parameters, &patch)
        .await;
}

async fn listed(client: &Client, group: &str, kind: &str) -> Vec<DynamicObject> {
    let all = objects(client, group, kind)
        .list(&ListParams::default())
        .await;
    all.unwrap().items
}

fn objects(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1beta2", kind));
    Api::namespaced_with(client.clone(), FLEET, &resource)
}

const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";
/// Which object a Machine is of, and what it was made by.
const OF: &str = "test/of";
const ROLLED: &str = "test/rolled";
