//! A set of providers on the embedded API. The test plays the providers.

#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use std::time::{Duration, Instant};

use api::provider::{
    Bootstrap, BootstrapProvider, Core, Kind, PlanPhase, Provider, ProviderSet, ProviderSetStatus,
    definitions, label,
};
use controller::{Manager, Metrics, Shutdown, manager::Settings};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace},
    events::v1::Event,
};
use kube::{
    Api, Client, Resource,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use serde_json::{Value, json};

const CORE: &str = "capi-system";
const KUBEADM: &str = "kubeadm-system";

const METADATA: &str = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n\
     - {major: 1, minor: 13, contract: v1beta2}\n- {major: 1, minor: 14, contract: v1beta2}\n";
const COMPONENTS: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: some-system}\n";

struct World {
    _server: kapi::Server,
    client: Client,
}

impl World {
    async fn start() -> Self {
        let mut kinds = api::custom_resource_definitions();
        kinds.extend(definitions());
        let server = kapi::Server::in_memory(&kinds).await.unwrap();
        let client = Client::new(server.router(), "default");
        let world = Self {
            _server: server,
            client: client.clone(),
        };
        for namespace in [CORE, KUBEADM] {
            let object: Namespace =
                serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
            let all = Api::<Namespace>::all(client.clone());
            all.create(&PostParams::default(), &object).await.unwrap();
        }
        let settings = Settings {
            namespace: None,
            concurrency: 4,
            metrics: Metrics::default(),
            shutdown: Shutdown::default(),
        };
        let mut manager = Manager::new(client, settings);
        providers::operator::operate_sets(&mut manager);
        tokio::spawn(manager.run());
        world
    }

    fn of<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(
        &self,
        namespace: &str,
    ) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// A provider whose releases are kept, and that a run has installed.
    async fn install<K: Kind>(&self, namespace: &str, name: &str, version: &str) {
        for kept in ["v1.13.4", "v1.13.9", "v1.14.2"] {
            let map: ConfigMap = serde_json::from_value(json!({
                "metadata": {"name": format!("{name}-{kept}"), "labels": {
                    label::NAME: name, label::TYPE: K::TYPE.word(), label::VERSION: kept,
                }},
                "data": {"metadata": METADATA, "components": COMPONENTS},
            }))
            .unwrap();
            let maps = self.of::<ConfigMap>(namespace);
            maps.create(&PostParams::default(), &map).await.unwrap();
        }
        let spec = serde_json::from_value(json!({"version": version})).unwrap();
        let object = Provider::<K>::new(namespace, name, spec);
        let api = self.of::<Provider<K>>(namespace);
        api.create(&PostParams::default(), &object).await.unwrap();
        self.become_ready::<K>(namespace, name).await;
    }

    /// What its run does: the version that stands in its spec is installed.
    async fn become_ready<K: Kind>(&self, namespace: &str, name: &str) {
        let api = self.of::<Provider<K>>(namespace);
        let object = api.get(name).await.unwrap();
        let status = json!({"status": {
            "contract": "v1beta2", "installedVersion": object.spec.version, "observedGeneration": object.metadata.generation,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "DeploymentAvailable", "message": "all is well",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }});
        let patched = api
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await;
        patched.unwrap();
    }

    async fn make(&self, namespace: &str, spec: Value) {
        let set: ProviderSet = serde_json::from_value(json!({
            "apiVersion": "providers.windlass.dev/v1alpha1", "kind": "ProviderSet", "metadata": {"name": "main"}, "spec": spec,
        }))
        .unwrap();
        let api = self.of::<ProviderSet>(namespace);
        api.create(&PostParams::default(), &set).await.unwrap();
    }

    async fn version<K: Kind>(&self, namespace: &str, name: &str, wanted: &str) {
        let api = self.of::<Provider<K>>(namespace);
        until(&format!("{name} is to have {wanted}"), async || {
            let version = api.get(name).await.unwrap().spec.version;
            if version.as_deref() == Some(wanted) {
                Ok(())
            } else {
                Err(format!("{version:?}"))
            }
        })
        .await;
    }

    async fn set(&self, namespace: &str, is: impl Fn(&ProviderSetStatus) -> bool) -> ProviderSet {
        let api = self.of::<ProviderSet>(namespace);
        until("the set is as it should be", async || {
            let set = api.get("main").await.unwrap();
            match &set.status {
                Some(status) if is(status) => Ok(set),
                status => Err(format!("{status:?}")),
            }
        })
        .await
    }
}

/// Waits for what comes by itself.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match ask().await {
            Ok(found) => return found,
            Err(seen) => assert!(begun.elapsed() < Duration::from_secs(30), "{what}: {seen}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn reason(status: &ProviderSetStatus) -> &str {
    let mut conditions = status.conditions.iter();
    let ready = conditions.find(|condition| condition.type_ == "Ready");
    ready.map_or("", |ready| &ready.reason)
}

#[tokio::test]
async fn a_set_takes_its_providers_to_the_newest_patch_one_after_the_other() {
    let world = World::start().await;
    world.install::<Core>(CORE, "cluster-api", "v1.13.4").await;
    world
        .install::<Bootstrap>(KUBEADM, "kubeadm", "v1.13.4")
        .await;
    let spec = json!({"upgrade": {"patch": {"auto": true}}, "approval": "Always"});
    // Without a core in its namespace a set has no say.
    world.make(KUBEADM, spec.clone()).await;
    world.make(CORE, spec).await;
    world
        .set(KUBEADM, |status| reason(status) == "WaitingForCore")
        .await;
    let waiting = world
        .set(CORE, |status| reason(status) == "WaitingForApproval")
        .await;
    let plan = waiting.status.unwrap().plan.unwrap();
    assert_eq!((plan.phase, plan.upgrades.len()), (PlanPhase::Waiting, 2));

    let approval = json!({"metadata": {"annotations": {"windlass.dev/approve-plan": plan.id}}});
    let sets = world.of::<ProviderSet>(CORE);
    let approved = sets
        .patch("main", &PatchParams::default(), &Patch::Merge(&approval))
        .await;
    approved.unwrap();
    world.version::<Core>(CORE, "cluster-api", "v1.13.9").await;
    world
        .set(CORE, |status| reason(status) == "UpgradeUnderWay")
        .await;
    let kubeadm = world.of::<BootstrapProvider>(KUBEADM).get("kubeadm").await;
    assert_eq!(kubeadm.unwrap().spec.version.as_deref(), Some("v1.13.4"));
    world.become_ready::<Core>(CORE, "cluster-api").await;
    world
        .version::<Bootstrap>(KUBEADM, "kubeadm", "v1.13.9")
        .await;
    world.become_ready::<Bootstrap>(KUBEADM, "kubeadm").await;
    let done = world.set(CORE, |status| reason(status) == "UpToDate").await;
    let status = done.status.unwrap();
    let plan = status.plan.unwrap();
    assert_eq!((plan.phase, plan.done.as_str()), (PlanPhase::Done, "2/2"));
    assert_eq!(status.available.len(), 2, "{:?}", status.available);

    let events = world.of::<Event>(CORE).list(&ListParams::default()).await;
    let mut told: Vec<_> = events
        .unwrap()
        .items
        .into_iter()
        .filter_map(|event| event.reason)
        .filter(|reason| reason.starts_with("Upgrade"))
        .collect();
    told.sort();
    assert_eq!(
        told,
        ["UpgradeBegun", "UpgradeBegun", "Upgraded", "Upgraded"]
    );
}
