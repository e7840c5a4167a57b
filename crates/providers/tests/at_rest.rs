//! A provider in the cluster that has its object, and a set of it, at rest: for as long as nothing changes nothing is asked of the API but
//! that it tells of changes. On the embedded API with stand-ins for the kinds that it has not. Nothing runs there, so the test plays
//! what runs and kubelets do; time goes by when everybody waits.

#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{
    Run,
    provider::{CoreProvider, ProviderSet, definitions, label},
    run::RunPhase,
};
use controller::{Manager, Metrics, Shutdown, manager::Settings};
use http::{Request, Response};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    client::Body,
};
use providers::{
    Options,
    drift::{self, Applied},
    fetch::{Policy, Reach},
};
use runs::{operator::Place, supervisor::Command};
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::ServiceExt as _;

const NAMESPACE: &str = "capi-system";
const METADATA: &str = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n- {major: 1, minor: 13, contract: v1beta2}\n";
/// Looks that are for what is not yet as it should be are over then.
const SETTLED: Duration = Duration::from_mins(5);

/// What was asked, watches aside: how often each.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<BTreeMap<String, u32>>>);

impl Asked {
    fn note(&self, request: &Request<Body>) {
        if !is_watch(request) {
            let what = format!("{} {}", request.method(), request.uri().path());
            *self.0.lock().unwrap().entry(what).or_default() += 1;
        }
    }

    fn take(&self) -> BTreeMap<String, u32> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

struct World {
    server: kapi::Server,
    _data: tempfile::TempDir,
    /// Of the test: what it asks is not counted.
    client: Client,
    asked: Asked,
}

impl World {
    async fn start() -> Self {
        let mut kinds = api::custom_resource_definitions();
        kinds.extend(definitions());
        let server = kapi::Server::in_memory(&kinds).await.unwrap();
        let asked = Asked::default();
        let (noting, router) = (asked.clone(), server.router());
        let counted = tower::service_fn(move |request: Request<Body>| {
            noting.note(&request);
            let router = router.clone();
            async move {
                let path = request.uri().path();
                if !NONE.iter().any(|none| path.starts_with(none)) {
                    return router.oneshot(request).await;
                }
                let is_watch = is_watch(&request);
                if is_watch {
                    // As long as a watch goes on.
                    sleep(Duration::from_secs(290)).await;
                }
                let none = json!({"metadata": {"resourceVersion": "1"}, "items": []});
                let body = if is_watch {
                    String::new()
                } else {
                    none.to_string()
                };
                Ok::<_, Infallible>(Response::new(axum::body::Body::from(body)))
            }
        });
        let data = tempfile::tempdir().unwrap();
        let settings = Settings {
            namespace: None,
            concurrency: 4,
            metrics: Metrics::default(),
            shutdown: Shutdown::default(),
        };
        let nobody = Command {
            program: "/bin/false".into(),
            arguments: Vec::new(),
        };
        let options = Options {
            runners: Place::Here(runs::Layout::new(data.path()), nobody),
            fetch: Policy {
                reach: Reach::Nowhere,
                ..Policy::default()
            },
            runs_pods: true,
        };
        let mut manager = Manager::new(Client::new(counted, "default"), settings);
        providers::operator::operate_kinds(&mut manager, &options);
        providers::operator::operate_sets(&mut manager);
        tokio::spawn(manager.run());
        Self {
            client: Client::new(server.router(), "default"),
            server,
            _data: data,
            asked,
        }
    }

    async fn put(&self, resource: &ApiResource, object: &Value) -> DynamicObject {
        let client = self.client.clone();
        let api = if resource.kind == "CustomResourceDefinition" {
            Api::<DynamicObject>::all_with(client, resource)
        } else {
            Api::namespaced_with(client, NAMESPACE, resource)
        };
        let name = object["metadata"]["name"].as_str().unwrap();
        let mut object = object.clone();
        object["apiVersion"] = json!(resource.api_version);
        object["kind"] = json!(resource.kind);
        let parameters = PatchParams::apply("windlass-provider-components").force();
        let patch = Patch::Apply(object);
        api.patch(name, &parameters, &patch).await.unwrap()
    }

    /// A run has applied everything, and notes how it is then.
    async fn applied(&self) {
        let (client, mut applied) = (self.client.clone(), Applied::default());
        let definitions = Api::<CustomResourceDefinition>::all(client.clone());
        let made = definitions.get("boats.boat.example").await.unwrap();
        applied.note(&definitions_of(), &made.metadata);
        let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
        let made = secrets.get("serving").await.unwrap();
        applied.note(&ApiResource::erase::<Secret>(&()), &made.metadata);
        let noted = json!({
            "metadata": {"name": drift::config_map("cluster-api")},
            "data": {drift::KEY: serde_json::to_string(&applied).unwrap()},
        });
        self.put(&ApiResource::erase::<ConfigMap>(&()), &noted)
            .await;
        let runs = Api::<Run>::namespaced(client, NAMESPACE);
        let is_at_work =
            |run: &Run| run.status.as_ref().map(|status| status.phase) != Some(RunPhase::Succeeded);
        let run = loop {
            let found = runs.list(&ListParams::default()).await.unwrap().items;
            match found.into_iter().find(is_at_work) {
                Some(run) => break run.metadata.name.unwrap(),
                None => sleep(Duration::from_secs(1)).await,
            }
        };
        let done = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        let parameters = PatchParams::default();
        runs.patch_status(&run, &parameters, &done).await.unwrap();
    }

    async fn ready(&self) -> Condition {
        let cores = Api::<CoreProvider>::namespaced(self.client.clone(), NAMESPACE);
        let status = cores.get("cluster-api").await.unwrap().status;
        of(&status.unwrap_or_default().conditions, "Ready")
    }

    /// The provider is installed, and what was applied of it is noted.
    async fn install(&self) {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let apply = PatchParams::apply("kubectl");
        namespaces
            .patch(NAMESPACE, &apply, &Patch::Apply(namespace))
            .await
            .unwrap();
        let maps = ApiResource::erase::<ConfigMap>(&());
        let labels =
            json!({label::NAME: "cluster-api", label::TYPE: "core", label::VERSION: "v1.13.4"});
        let release = json!({
            "metadata": {"name": "release", "labels": labels},
            "data": {"metadata": METADATA, "components": "apiVersion: v1\nkind: Namespace\nmetadata: {name: capi-system}\n"},
        });
        self.put(&maps, &release).await;
        let cores = ApiResource::erase::<CoreProvider>(&());
        let core = json!({"metadata": {"name": "cluster-api"}, "spec": {"version": "v1.13.4"}});
        self.put(&cores, &core).await;
        self.put(&definitions_of(), &definition()).await;
        let secrets = ApiResource::erase::<Secret>(&());
        let secret = json!({"metadata": {"name": "serving"}, "data": {"tls.key": "b25l"}});
        self.put(&secrets, &secret).await;
        self.applied().await;
        let sets = ApiResource::erase::<ProviderSet>(&());
        self.put(&sets, &json!({"metadata": {"name": "main"}, "spec": {}}))
            .await;
    }
}

fn of(conditions: &[Condition], kind: &str) -> Condition {
    let mut conditions = conditions.iter();
    let found = conditions.find(|condition| condition.type_ == kind);
    found.cloned().unwrap()
}

fn definitions_of() -> ApiResource {
    ApiResource::erase::<CustomResourceDefinition>(&())
}

/// A definition, as a release brings it.
fn definition() -> Value {
    json!({
        "metadata": {"name": "boats.boat.example", "labels": {label::PROVIDER: "cluster-api"}},
        "spec": {
            "group": "boat.example", "scope": "Namespaced", "names": {"kind": "Boat", "plural": "boats", "singular": "boat"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

/// Kinds that the embedded API has not: there is none of them, and none comes.
const NONE: [&str; 3] = [
    "/apis/apps/",
    "/apis/discovery.k8s.io/",
    "/apis/admissionregistration.k8s.io/",
];

fn is_watch(request: &Request<Body>) -> bool {
    let mut parameters = request.uri().query().unwrap_or_default().split('&');
    parameters.any(|one| one.starts_with("watch="))
}

#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_asked_but_to_be_told_of_changes() {
    let world = World::start().await;
    world.install().await;
    sleep(SETTLED).await;
    let ready = world.ready().await;
    assert_eq!(ready.status, "True", "{}", ready.message);
    let sets = Api::<ProviderSet>::namespaced(world.client.clone(), NAMESPACE);
    let set = sets.get("main").await.unwrap().status.unwrap_or_default();
    assert_eq!(of(&set.conditions, "Ready").reason, "UpToDate");

    world.asked.take();
    sleep(Duration::from_mins(30)).await;
    assert_eq!(world.asked.take(), BTreeMap::new());

    // Whatever changes is seen, though: what it is made of, a Secret that has no label of it,
    let secrets = Api::<Secret>::namespaced(world.client.clone(), NAMESPACE);
    let edit = Patch::Merge(json!({"data": {"tls.key": "b3RoZXI="}}));
    let parameters = PatchParams::default();
    secrets.patch("serving", &parameters, &edit).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    let (ready, asked) = (world.ready().await, world.asked.take());
    let is_told = ready.message.contains("cluster-api-repair-");
    assert!(is_told, "{}: {asked:#?}", ready.message);
    world.applied().await;
    sleep(SETTLED).await;
    assert_eq!(world.ready().await.status, "True");
    world.asked.take();
    sleep(Duration::from_mins(10)).await;
    assert_eq!(world.asked.take(), BTreeMap::new());

    // and what it is made from, by the provider and by the set.
    let maps = Api::<ConfigMap>::namespaced(world.client.clone(), NAMESPACE);
    let edit = Patch::Merge(json!({"data": {"components": "# another one\n"}}));
    maps.patch("release", &parameters, &edit).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.ready().await.reason, "RunInProgress");
    let asked = world.asked.take();
    let listed = format!("GET /api/v1/namespaces/{NAMESPACE}/configmaps");
    assert!(asked[&listed] >= 2, "{asked:#?}");
    drop(world.server);
}
