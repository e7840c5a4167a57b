//! Lives of providers on the embedded API, by the real reconcilers and the real engine. Nothing runs there, so releases are of definitions and
//! settings alone, with stand-ins for the kinds that the API has not.

#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use api::{
    Run,
    provider::{CoreProvider, definitions, label},
};
use controller::{Manager, Metrics, Shutdown, manager::Settings};
use http::{Request, Response, StatusCode};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    client::Body,
    core::GroupVersionKind,
};
use providers::{
    Options,
    drift::{self, Applied},
    fetch::{Policy, Reach},
    names::{COMPONENTS_MANAGER, KEEP, PROVIDER_NAMESPACES, TARGET},
};
use runs::{
    operator::Place,
    runner::{self, TakenUp},
    supervisor::Command,
};
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::ServiceExt as _;

const NAMESPACE: &str = "capi-system";
const CORE: &str = "cluster-api";
const RECORD: &str = "windlass-applied-cluster-api";
/// Everything takes moments.
const LIMIT: Duration = Duration::from_mins(1);

struct World {
    /// As the operator and runners have it.
    client: Client,
    /// The beginning of paths that the API answers with an error of its own.
    broken: Arc<Mutex<Option<String>>>,
    data: tempfile::TempDir,
    _server: kapi::Server,
}

impl World {
    async fn start() -> Self {
        let mut kinds = api::custom_resource_definitions();
        kinds.extend(definitions());
        let server = kapi::Server::in_memory(&kinds).await.unwrap();
        let broken = Arc::new(Mutex::new(None::<String>));
        let (router, is_broken) = (server.router(), Arc::clone(&broken));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (router, broken) = (router.clone(), is_broken.lock().unwrap().clone());
            async move {
                let path = request.uri().path();
                if broken.is_some_and(|broken| path.starts_with(&broken)) {
                    return Ok(failed());
                }
                let address = request.uri().clone();
                match stand_in(&address).await {
                    Some(answer) => Ok::<_, Infallible>(answer),
                    None => router.oneshot(request).await,
                }
            }
        });
        let world = Self {
            client: Client::new(service, "default"),
            broken,
            data: tempfile::tempdir().unwrap(),
            _server: server,
        };
        world.operate();
        world.namespace(NAMESPACE).await;
        world
    }

    fn operate(&self) {
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
            runners: Place::Here(runs::Layout::new(self.data.path()), nobody),
            fetch: Policy {
                reach: Reach::Nowhere,
                ..Policy::default()
            },
            runs_pods: true,
        };
        let mut manager = Manager::new(self.client.clone(), settings);
        providers::operator::operate_kinds(&mut manager, &options);
        tokio::spawn(manager.run());
    }

    fn api(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, resource)
        }
    }

    /// Somebody applies an object.
    async fn applied(&self, manager: &str, resource: &ApiResource, object: &Value) {
        let mut object = object.clone();
        object["apiVersion"] = json!(resource.api_version);
        object["kind"] = json!(resource.kind);
        let text = |path: &str| {
            object
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let api = self.api(resource, &namespace);
        let parameters = PatchParams::apply(manager).force();
        let patch = Patch::Apply(&object);
        // A kind is served soon after its definition is there.
        until("it to be applied", async || {
            let applied = api.patch(&name, &parameters, &patch).await;
            applied.map_err(|error| error.to_string())
        })
        .await;
    }

    async fn namespace(&self, name: &str) {
        let resource = ApiResource::erase::<Namespace>(&());
        self.applied("kubectl", &resource, &json!({"metadata": {"name": name}}))
            .await;
    }

    /// A release of core that has these objects.
    async fn release(&self, namespace: &str, version: &str, objects: &[Value]) {
        let objects: Vec<_> = objects.iter().map(Value::to_string).collect();
        let metadata = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n\
             - {major: 1, minor: 13, contract: v1beta2}\n- {major: 1, minor: 14, contract: v1beta2}\n";
        let release = json!({
            "metadata": {"name": version, "namespace": namespace, "labels": {
                label::NAME: CORE, label::TYPE: "core", label::VERSION: version,
            }},
            "data": {"metadata": metadata, "components": objects.join("\n---\n")},
        });
        self.applied("kubectl", &maps(), &release).await;
    }

    fn cores(&self, namespace: &str) -> Api<CoreProvider> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn core(&self, namespace: &str, spec: &Value) {
        let core = json!({"metadata": {"name": CORE, "namespace": namespace}, "spec": spec});
        self.applied("kubectl", &ApiResource::erase::<CoreProvider>(&()), &core)
            .await;
    }

    async fn delete(&self, namespace: &str) {
        let cores = self.cores(namespace);
        cores.delete(CORE, &DeleteParams::default()).await.unwrap();
    }

    /// What `Ready` says, as reason and message.
    async fn ready(&self, namespace: &str) -> (String, String) {
        let core = self.cores(namespace).get(CORE).await.unwrap();
        let conditions = core.status.unwrap_or_default().conditions;
        let ready = conditions.into_iter().find(|one| one.type_ == "Ready");
        ready.map_or_else(Default::default, |ready| (ready.reason, ready.message))
    }

    async fn is_told(&self, namespace: &str, reason: &str) -> String {
        until(&format!("{namespace} to be {reason}"), async || {
            self.execute(namespace).await;
            let (found, message) = self.ready(namespace).await;
            if found == reason {
                Ok(message)
            } else {
                Err(format!("{found}: {message}"))
            }
        })
        .await
    }

    async fn is_gone(&self, namespace: &str) {
        until("it to be gone", async || {
            self.execute(namespace).await;
            match self.cores(namespace).get_opt(CORE).await.unwrap() {
                None => Ok(()),
                Some(core) => Err(format!("{:?}", core.status)),
            }
        })
        .await;
    }

    async fn runs(&self, namespace: &str) -> Vec<Run> {
        let runs = Api::<Run>::namespaced(self.client.clone(), namespace);
        let mut runs = runs.list(&ListParams::default()).await.unwrap().items;
        runs.sort_by_key(runs::object::age);
        runs
    }

    /// As runners do, of all that is to be done.
    async fn execute(&self, namespace: &str) {
        for run in self.runs(namespace).await {
            if !runs::is_active(runs::phase(&run)) {
                continue;
            }
            let options = runner::Options {
                namespace: namespace.to_owned(),
                run: run.name_any(),
                data_dir: self.data.path().to_owned(),
                kubeconfig: None,
            };
            let execute = async |run: TakenUp| run.execute(providers::Engine).await;
            let done = runner::take_up(self.client.clone(), options, execute).await;
            let _: runs::runner::Exit = done.unwrap();
        }
    }

    async fn is_there(&self, resource: &ApiResource, namespace: &str, name: &str) -> bool {
        let found = self.api(resource, namespace).get_opt(name).await;
        found.unwrap().is_some()
    }

    async fn has_version(&self, version: &str) {
        until(&format!("{version} to be installed"), async || {
            self.execute(NAMESPACE).await;
            let core = self.cores(NAMESPACE).get(CORE).await.unwrap();
            let status = core.status.unwrap_or_default();
            if status.installed_version.as_deref() == Some(version) {
                Ok(())
            } else {
                Err(format!("{:?}", status.conditions))
            }
        })
        .await;
    }

    /// What the steps of that id have said so far.
    async fn details(&self, step: &str) -> String {
        let runs = self.runs(NAMESPACE).await;
        let history = runs.into_iter().filter_map(|run| run.status);
        let history = history.flat_map(|status| status.history);
        let told = history.filter(|record| record.step.as_deref() == Some(step));
        told.map(|record| serde_json::to_string(&record).unwrap())
            .collect()
    }

    async fn thing(&self, manager: &str, name: &str, spec: &Value) {
        let thing = json!({
            "metadata": {"name": name, "namespace": "default", "labels": labels()}, "spec": spec,
        });
        self.applied(manager, &things(), &thing).await;
    }

    /// Core is installed, with this beside its definition.
    async fn installed(&self, objects: &[Value]) {
        let mut all = vec![namespace_of(), definition(&["size"])];
        all.extend_from_slice(objects);
        self.release(NAMESPACE, "v1.13.4", &all).await;
        self.core(NAMESPACE, &json!({"version": "v1.13.4"})).await;
        self.is_told(NAMESPACE, "DeploymentAvailable").await;
    }
}

/// What the embedded API has not: no pods, no webhooks and no roles.
async fn stand_in(address: &http::Uri) -> Option<Response<axum::body::Body>> {
    let path = address.path();
    let answer = |body: &Value| Response::new(axum::body::Body::from(body.to_string()));
    if path.ends_with("/selfsubjectrulesreviews") {
        let status = json!({"incomplete": true, "resourceRules": [], "nonResourceRules": []});
        return Some(answer(&json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "metadata": {}, "spec": {}, "status": status,
        })));
    }
    let none = [
        "/apis/apps/",
        "/apis/discovery.k8s.io/",
        "/apis/admissionregistration.k8s.io/",
    ];
    if !none.iter().any(|none| path.starts_with(none)) {
        return None;
    }
    if address
        .query()
        .is_some_and(|query| query.contains("watch="))
    {
        sleep(Duration::from_secs(290)).await;
        return Some(Response::new(axum::body::Body::empty()));
    }
    Some(answer(
        &json!({"metadata": {"resourceVersion": "1"}, "items": []}),
    ))
}

fn failed() -> Response<axum::body::Body> {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "InternalError", "code": 500,
        "message": "conversion webhook failed",
    });
    let mut answer = Response::new(axum::body::Body::from(status.to_string()));
    *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    answer
}

/// Waits for what comes by itself.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match ask().await {
            Ok(found) => return found,
            Err(seen) => assert!(begun.elapsed() < LIMIT, "{what}: {seen}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

fn maps() -> ApiResource {
    ApiResource::erase::<ConfigMap>(&())
}

fn things() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("core.example", "v1", "Thing"))
}

fn labels() -> Value {
    json!({label::PROVIDER: CORE})
}

fn namespace_of() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "capi-system"}})
}

/// The definition of things, whose spec has these fields.
fn definition(fields: &[&str]) -> Value {
    define("core.example", "Thing", fields)
}

fn define(group: &str, kind: &str, fields: &[&str]) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let text = |field: &&str| ((*field).to_owned(), json!({"type": "string"}));
    let fields: serde_json::Map<_, _> = fields.iter().map(text).collect();
    let schema = json!({"openAPIV3Schema": {
        "type": "object", "properties": {"spec": {"type": "object", "properties": fields}},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

/// Settings of a release.
fn settings(name: &str, level: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "capi-system"}, "data": {"level": level},
    })
}

/// What another installation of the same provider has applied in some namespace.
async fn of_another(world: &World, namespace: &str) {
    let theirs = json!({
        "metadata": {"name": "theirs", "namespace": namespace, "labels": labels()}, "data": {"level": "1"},
    });
    world.applied(COMPONENTS_MANAGER, &maps(), &theirs).await;
    let mut definition = definition(&["size"]);
    definition["metadata"]["labels"] = labels();
    let definitions = ApiResource::erase::<CustomResourceDefinition>(&());
    world
        .applied(COMPONENTS_MANAGER, &definitions, &definition)
        .await;
    world.thing("kubectl", "one", &json!({"size": "s"})).await;
}

#[tokio::test]
async fn a_provider_that_came_to_nothing_takes_nothing_of_another_one_along() {
    let world = World::start().await;
    world.namespace("other").await;
    of_another(&world, NAMESPACE).await;
    let unserved =
        json!({"apiVersion": "none.example/v1", "kind": "None", "metadata": {"name": "none"}});
    world
        .release("other", "v1.13.4", &[namespace_of(), unserved])
        .await;
    world.core("other", &json!({"version": "v1.13.4"})).await;
    let said = world.is_told("other", "InstallFailed").await;
    assert!(said.contains("none.example"), "{said}");

    // It has written nothing, so nobody needs it.
    world.delete("other").await;
    world.is_gone("other").await;
    assert!(world.is_there(&maps(), NAMESPACE, "theirs").await);
    assert!(world.is_there(&things(), "default", "one").await);
}

#[tokio::test]
async fn a_provider_that_was_never_installed_asks_who_needs_it_and_takes_its_own_along() {
    let world = World::start().await;
    let broken = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "No_Name", "namespace": "capi-system"}});
    let objects = [
        namespace_of(),
        definition(&["size"]),
        settings("own", "1"),
        broken,
    ];
    world.release(NAMESPACE, "v1.13.4", &objects).await;
    let theirs = json!({
        "metadata": {"name": "theirs", "namespace": NAMESPACE, "labels": labels()}, "data": {"level": "1"},
    });
    world.applied(COMPONENTS_MANAGER, &maps(), &theirs).await;
    world.core(NAMESPACE, &json!({"version": "v1.13.4"})).await;
    world.is_told(NAMESPACE, "InstallFailed").await;
    world.thing("kubectl", "one", &json!({"size": "s"})).await;

    world.delete(NAMESPACE).await;
    let said = world.is_told(NAMESPACE, "DependentsExist").await;
    assert!(said.contains("Thing default/one"), "{said}");
    let things = world.api(&things(), "default");
    things
        .delete("one", &DeleteParams::default())
        .await
        .unwrap();
    world.is_gone(NAMESPACE).await;
    assert!(!world.is_there(&maps(), NAMESPACE, "own").await);
    assert!(!world.is_there(&maps(), NAMESPACE, RECORD).await);
    assert!(world.is_there(&maps(), NAMESPACE, "theirs").await);
}

#[tokio::test]
async fn what_was_restored_goes_with_its_provider() {
    let world = World::start().await;
    // An object before this one has left what it applied, with the record: this one comes from a backup, without a status and without runs.
    of_another(&world, NAMESPACE).await;
    let found = world.api(&maps(), NAMESPACE).get("theirs").await.unwrap();
    let mut noted = Applied::default();
    noted.note(&maps(), &found.metadata);
    let noted = serde_json::to_string(&noted).unwrap();
    let record = json!({
        "metadata": {"name": RECORD, "namespace": NAMESPACE}, "data": {drift::KEY: noted},
    });
    world.applied(COMPONENTS_MANAGER, &maps(), &record).await;
    let unserved =
        json!({"apiVersion": "none.example/v1", "kind": "None", "metadata": {"name": "none"}});
    world
        .release(NAMESPACE, "v1.13.4", &[namespace_of(), unserved])
        .await;
    world.core(NAMESPACE, &json!({"version": "v1.13.4"})).await;
    world.is_told(NAMESPACE, "InstallFailed").await;

    world.delete(NAMESPACE).await;
    world.is_told(NAMESPACE, "DependentsExist").await;
    let things = world.api(&things(), "default");
    things
        .delete("one", &DeleteParams::default())
        .await
        .unwrap();
    world.is_gone(NAMESPACE).await;
    assert!(!world.is_there(&maps(), NAMESPACE, "theirs").await);
}

#[tokio::test]
async fn what_people_apply_with_its_label_stays() {
    let world = World::start().await;
    world
        .installed(&[settings("own", "1"), settings("old", "1")])
        .await;
    world.namespace("team").await;
    let dashboards = json!({
        "metadata": {"name": "dashboards", "namespace": "team", "labels": labels()}, "data": {"a": "b"},
    });
    world.applied("kubectl", &maps(), &dashboards).await;
    // Whoever a thing is of, with a definition goes nothing but by hand.
    world
        .thing(COMPONENTS_MANAGER, "one", &json!({"size": "s"}))
        .await;

    let objects = [namespace_of(), definition(&["size"]), settings("own", "2")];
    world.release(NAMESPACE, "v1.13.5", &objects).await;
    world.core(NAMESPACE, &json!({"version": "v1.13.5"})).await;
    world.has_version("v1.13.5").await;
    assert!(!world.is_there(&maps(), NAMESPACE, "old").await);
    assert!(world.is_there(&maps(), "team", "dashboards").await);
    assert!(world.is_there(&things(), "default", "one").await);

    let things = world.api(&things(), "default");
    things
        .delete("one", &DeleteParams::default())
        .await
        .unwrap();
    world.delete(NAMESPACE).await;
    world.is_gone(NAMESPACE).await;
    assert!(!world.is_there(&maps(), NAMESPACE, "own").await);
    assert!(world.is_there(&maps(), "team", "dashboards").await);
}

#[tokio::test]
async fn a_kind_of_somebody_else_that_the_api_fails_at_holds_nobody_up() {
    let world = World::start().await;
    world
        .installed(&[settings("own", "1"), settings("old", "1")])
        .await;
    let definitions = ApiResource::erase::<CustomResourceDefinition>(&());
    let widgets = define("foreign.example", "Widget", &[]);
    world.applied("kubectl", &definitions, &widgets).await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("foreign.example", "v1", "Widget"));
    let widget = json!({"metadata": {"name": "one", "namespace": "default"}});
    world.applied("kubectl", &resource, &widget).await;
    *world.broken.lock().unwrap() = Some("/apis/foreign.example/v1/".to_owned());

    let objects = [namespace_of(), definition(&["size"]), settings("own", "2")];
    world.release(NAMESPACE, "v1.13.5", &objects).await;
    world.core(NAMESPACE, &json!({"version": "v1.13.5"})).await;
    world.has_version("v1.13.5").await;
    assert!(!world.is_there(&maps(), NAMESPACE, "old").await);
    let told = world.details("apply/prune").await;
    assert!(told.contains("widgets.foreign.example"), "{told}");
    world.delete(NAMESPACE).await;
    world.is_gone(NAMESPACE).await;
    assert!(!world.is_there(&maps(), NAMESPACE, "own").await);
}

#[tokio::test]
async fn an_api_of_somebody_else_that_is_away_holds_no_first_installation_and_no_release_up() {
    let world = World::start().await;
    let definitions = ApiResource::erase::<CustomResourceDefinition>(&());
    let mut metrics = define("metrics.k8s.io", "NodeMetric", &[]);
    metrics["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved"});
    world.applied("kubectl", &definitions, &metrics).await;
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("metrics.k8s.io", "v1", "NodeMetric"));
    let metric = json!({"metadata": {"name": "one", "namespace": "default"}});
    world.applied("kubectl", &resource, &metric).await;
    *world.broken.lock().unwrap() = Some("/apis/metrics.k8s.io/v1/".to_owned());

    world.installed(&[settings("own", "1")]).await;
    let keep = Patch::Merge(json!({"metadata": {"annotations": {KEEP: "true"}}}));
    let cores = world.cores(NAMESPACE);
    cores
        .patch(CORE, &PatchParams::default(), &keep)
        .await
        .unwrap();
    world.delete(NAMESPACE).await;
    world.is_gone(NAMESPACE).await;
    assert!(world.is_there(&maps(), NAMESPACE, "own").await);
}

#[tokio::test]
async fn a_definition_of_another_scope_is_refused_before_anything_is_written() {
    let world = World::start().await;
    world.installed(&[settings("own", "1")]).await;
    let mut other = definition(&["size"]);
    other["spec"]["scope"] = "Cluster".into();
    let release = [namespace_of(), other, settings("own", "2")];
    world.release(NAMESPACE, "v1.13.5", &release).await;
    world.core(NAMESPACE, &json!({"version": "v1.13.5"})).await;
    let said = world.is_told(NAMESPACE, "InstallFailed").await;
    assert!(said.contains("things.core.example (spec.scope)"), "{said}");
    let own = world.api(&maps(), NAMESPACE).get("own").await.unwrap();
    assert_eq!(own.data["data"]["level"], "1");
}

#[tokio::test]
async fn a_provider_whose_record_is_gone_is_looked_at_and_noted_anew() {
    let world = World::start().await;
    world.installed(&[settings("own", "1")]).await;
    let maps_of = world.api(&maps(), NAMESPACE);
    for name in ["own", RECORD] {
        maps_of
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }
    until("it to be repaired", async || {
        world.execute(NAMESPACE).await;
        let runs = world.runs(NAMESPACE).await;
        let is_back = world.is_there(&maps(), NAMESPACE, RECORD).await;
        if is_back {
            Ok(())
        } else {
            Err(format!("{} runs", runs.len()))
        }
    })
    .await;
    assert!(world.is_there(&maps(), NAMESPACE, "own").await);
    let runs = world.runs(NAMESPACE).await;
    assert_eq!(runs.last().unwrap().spec.operation, "Repair");
    world.is_told(NAMESPACE, "DeploymentAvailable").await;
}

#[tokio::test]
async fn a_deletion_asks_where_the_provider_is_installed() {
    let world = World::start().await;
    world.installed(&[settings("own", "1")]).await;
    world.thing("kubectl", "one", &json!({"size": "s"})).await;
    let elsewhere = Patch::Merge(json!({"metadata": {"annotations": {TARGET: "another"}}}));
    let cores = world.cores(NAMESPACE);
    cores
        .patch(CORE, &PatchParams::default(), &elsewhere)
        .await
        .unwrap();
    let said = world.is_told(NAMESPACE, "InvalidSpec").await;
    assert!(said.contains("the cluster that has its object"), "{said}");
    world.delete(NAMESPACE).await;
    let said = world.is_told(NAMESPACE, "DependentsExist").await;
    assert!(said.contains("Thing default/one"), "{said}");
}

#[tokio::test]
async fn nothing_goes_back_by_hand_to_a_version_that_has_not_a_field_that_an_object_has() {
    let world = World::start().await;
    world.installed(&[settings("own", "1")]).await;
    let broken = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "No_Name", "namespace": "capi-system"}});
    let newer = [
        namespace_of(),
        definition(&["size", "colour"]),
        settings("own", "2"),
        broken,
    ];
    world.release(NAMESPACE, "v1.14.0", &newer).await;
    world.core(NAMESPACE, &json!({"version": "v1.14.0"})).await;
    world.is_told(NAMESPACE, "InstallFailed").await;
    world
        .thing("kubectl", "one", &json!({"size": "s", "colour": "red"}))
        .await;

    // A wish that is no other but for its version, and then one that is.
    for spec in [
        json!({"version": "v1.13.4"}),
        json!({"version": "v1.13.4", "manifestPatches": [settings("own", "3").to_string()]}),
    ] {
        world.core(NAMESPACE, &spec).await;
        let said = until("it to be refused", async || {
            world.execute(NAMESPACE).await;
            let (_, said) = world.ready(NAMESPACE).await;
            let is_it = said.contains("has .spec.colour, which it does not have and would lose");
            if is_it { Ok(said) } else { Err(said) }
        })
        .await;
        assert!(said.contains("back to v1.13.4 from v1.14.0"), "{said}");
    }
    let things = world.api(&things(), "default");
    let less = Patch::Merge(json!({"spec": {"colour": null}}));
    assert_eq!(
        things.get("one").await.unwrap().data["spec"]["colour"],
        "red"
    );
    things
        .patch("one", &PatchParams::default(), &less)
        .await
        .unwrap();
    world
        .core(
            NAMESPACE,
            &json!({"version": "v1.13.4", "manager": {"verbosity": 3}}),
        )
        .await;
    world.is_told(NAMESPACE, "DeploymentAvailable").await;
    let runs = world.runs(NAMESPACE).await;
    assert_eq!(
        runs.last().unwrap().spec.plan.inputs["goesBackFrom"],
        "v1.14.0"
    );
    assert_eq!(runs.last().unwrap().spec.operation, "Reconfigure");
}

#[tokio::test]
async fn nothing_goes_back_from_what_somebody_else_has_upgraded() {
    let world = World::start().await;
    world.installed(&[settings("own", "1")]).await;
    let definitions = ApiResource::erase::<CustomResourceDefinition>(&());
    let newer = definition(&["size", "colour"]);
    world.applied("another", &definitions, &newer).await;
    until("the field to be kept", async || {
        let spec = json!({"size": "s", "colour": "red"});
        world.thing("kubectl", "one", &spec).await;
        let thing = world.api(&things(), "default").get("one").await.unwrap();
        let is_kept = thing.data["spec"]["colour"] == "red";
        is_kept.then_some(()).ok_or_else(|| thing.data.to_string())
    })
    .await;

    // What is put back by itself, and what somebody wishes of the same version.
    for (spec, operation) in [
        (json!({"version": "v1.13.4"}), "Repair"),
        (
            json!({"version": "v1.13.4", "manager": {"verbosity": 3}}),
            "Reconfigure",
        ),
    ] {
        world.core(NAMESPACE, &spec).await;
        let is_refused = async || {
            world.execute(NAMESPACE).await;
            let last = world.runs(NAMESPACE).await.pop().unwrap();
            let failure = last.status.and_then(|status| status.failure);
            let said = failure.map(|failure| failure.message).unwrap_or_default();
            let is_it = last.spec.operation == operation
                && said.contains("has .spec.colour, which it does not have and would lose");
            is_it.then_some(()).ok_or(said)
        };
        until(operation, is_refused).await;
    }
    let thing = world.api(&things(), "default").get("one").await.unwrap();
    assert_eq!(thing.data["spec"]["colour"], "red");
}

#[tokio::test]
async fn nothing_of_another_namespace_is_told_or_used() {
    let world = World::start().await;
    world.namespace("vault").await;
    let secret = |namespace: &str, lent: &str| {
        json!({
            "metadata": {"name": "crown", "namespace": namespace, "annotations": {PROVIDER_NAMESPACES: lent}},
            "stringData": {"TOKEN": "hunter2.s3cr3t", "PART": "0123456789"},
        })
    };
    let secrets = ApiResource::erase::<Secret>(&());
    world
        .applied("kubectl", &secrets, &secret("vault", "others"))
        .await;
    let object = |group: &str| json!({"apiVersion": format!("{group}/v1"), "kind": "None", "metadata": {"name": "none"}});
    let release = [
        namespace_of(),
        object("${TOKEN}"),
        object("a${PART:0:3}"),
        object("none.example"),
    ];
    world.release(NAMESPACE, "v1.13.4", &release).await;
    let spec =
        json!({"version": "v1.13.4", "configSecret": {"name": "crown", "namespace": "vault"}});
    world.core(NAMESPACE, &spec).await;
    let said = world.is_told(NAMESPACE, "ComponentsFetchError").await;
    let remedy =
        "`kubectl -n vault annotate secret crown windlass.dev/provider-namespaces=capi-system`";
    assert!(said.contains(remedy), "{said}");
    assert_eq!(world.runs(NAMESPACE).await.len(), 0);

    // Once it is lent its values are used, and told nowhere.
    world
        .applied("kubectl", &secrets, &secret("vault", NAMESPACE))
        .await;
    let said = world.is_told(NAMESPACE, "InstallFailed").await;
    assert!(
        said.contains("none.example, 2 whose names variables make"),
        "{said}"
    );
    let runs = world.runs(NAMESPACE).await;
    let told = serde_json::to_string(&runs).unwrap();
    for secret in ["hunter2", "s3cr3t", "a012"] {
        assert!(!told.contains(secret), "{told}");
    }
}

#[tokio::test]
async fn what_the_api_never_changes_is_told_before_anything_moves() {
    let world = World::start().await;
    let fixed = |level: &str| {
        let mut fixed = settings("fixed", level);
        fixed["immutable"] = json!(true);
        fixed
    };
    world.installed(&[fixed("1")]).await;
    let objects = [namespace_of(), definition(&["size", "colour"]), fixed("2")];
    world.release(NAMESPACE, "v1.13.5", &objects).await;
    world.core(NAMESPACE, &json!({"version": "v1.13.5"})).await;
    let said = world.is_told(NAMESPACE, "InstallFailed").await;
    assert!(
        said.contains("ConfigMap capi-system/fixed (data)"),
        "{said}"
    );
    let definitions = ApiResource::erase::<CustomResourceDefinition>(&());
    let things = world.api(&definitions, "").get("things.core.example").await;
    let things = things.unwrap().data.to_string();
    assert!(!things.contains("colour"), "{things}");
}
