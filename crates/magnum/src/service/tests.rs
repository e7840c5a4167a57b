//! The service over the embedded API, with a Keystone that knows a few tokens.

use std::sync::{Arc, Mutex, atomic::Ordering};

use api::magnum::CoeCluster;
use controller::{Manager, Metrics, Shutdown, manager::Settings};
use http_body_util::BodyExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use tower::ServiceExt as _;

use super::*;

mod addons;
mod hosts;
mod isolation;
mod keystone;
mod machines;
mod migration;

use keystone::Vouching;

/// What was answered.
#[derive(Debug)]
struct Told {
    status: u16,
    headers: HeaderMap,
    body: Value,
}

struct World {
    router: Router,
    client: Client,
    known: Arc<Keystone>,
    keystone: Vouching,
    /// Tasks of the Keystone; it is down when they are aborted.
    served: tokio::task::JoinHandle<()>,
    /// What the API server was asked, as method and address.
    calls: Arc<Mutex<Vec<String>>>,
    /// Method and end of a call that the API server does not do, once.
    failing: Arc<Mutex<Option<(&'static str, String)>>>,
    _server: kapi::Server,
}

const MEMBER: &str = "p1:ann:member";
const READER: &str = "p1:bob:reader";
const ADMIN: &str = "p0:root:admin";
const OTHER: &str = "p2:eve:member";

impl World {
    async fn new() -> Self {
        Self::with(&api::magnum::definitions()).await
    }

    async fn with(definitions: &[CustomResourceDefinition]) -> Self {
        Self::ruled(definitions, Policy::default()).await
    }

    /// With the operator at work, until its task is given up.
    async fn operated(
        definitions: &[CustomResourceDefinition],
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let world = Self::with(definitions).await;
        let settings = Settings {
            namespace: None,
            concurrency: 4,
            metrics: Metrics::default(),
            shutdown: Shutdown::default(),
        };
        let mut manager = Manager::new(world.client.clone(), settings);
        let options = crate::operator::Options {
            pool: "default".to_owned(),
            key: "magnum-ssh".to_owned(),
            settings: crate::bare_metal::Settings::default(),
            keystone: Arc::clone(&world.known),
            addons: crate::operator::addons::Settings {
                helm: "helm".into(),
                locks: std::env::temp_dir(),
            },
        };
        crate::operator::operate(&mut manager, options);
        let operating = tokio::spawn(async move { manager.run().await.unwrap() });
        (world, operating)
    }

    async fn ruled(definitions: &[CustomResourceDefinition], policy: Policy) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = kapi::Server::in_memory(definitions).await.unwrap();
        let calls = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&calls);
        let failing = Arc::<Mutex<Option<(&'static str, String)>>>::default();
        let fails = Arc::clone(&failing);
        let note = axum::middleware::map_request(move |request: Request| {
            let call = format!("{} {}", request.method(), request.uri());
            let is_bad = |(method, end): &mut (&str, String)| {
                call.starts_with(*method) && call.trim_end_matches('?').ends_with(end.as_str())
            };
            let fails = fails.lock().unwrap().take_if(is_bad).is_some();
            noted.lock().unwrap().push(call);
            std::future::ready(if fails {
                Err(StatusCode::SERVICE_UNAVAILABLE)
            } else {
                Ok(request)
            })
        });
        let client = Client::new(server.router().layer(note), "default");
        let keystone = Vouching::default();
        let (address, served) = keystone.clone().serve().await;
        let known = Arc::new(Keystone::new(&format!("http://{address}/v3")).unwrap());
        let options = Options {
            max_clusters_per_project: 3,
            host: "here".to_owned(),
            scheme: "http",
            policy,
            public_url: None,
        };
        Self {
            router: Service::new(client.clone(), Arc::clone(&known), options).router(),
            client,
            known,
            keystone,
            served,
            calls,
            failing,
            _server: server,
        }
    }

    async fn raw(&self, request: axum::http::request::Builder, body: String) -> Told {
        let request = request
            .header("host", "coe.example:9511")
            .body(Body::from(body))
            .unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Told {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        }
    }

    /// As a client of the newest version does.
    async fn ask(&self, token: &str, method: &str, path: &str, body: Value) -> Told {
        self.at("latest", token, method, path, body).await
    }

    async fn at(&self, version: &str, token: &str, method: &str, path: &str, body: Value) -> Told {
        let request = axum::http::Request::builder()
            .method(method)
            .uri(path)
            .header("x-auth-token", token)
            .header("content-type", "application/json")
            .header(version::HEADER, format!("container-infra {version}"));
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.raw(request, body).await
    }

    async fn get(&self, token: &str, path: &str) -> Told {
        self.ask(token, "GET", path, Value::Null).await
    }

    async fn template(&self, token: &str, more: Value) -> String {
        let told = self
            .ask(token, "POST", "/v1/clustertemplates", template(more))
            .await;
        assert_eq!(told.status, 201, "{told:?}");
        told.body["uuid"].as_str().unwrap().to_owned()
    }

    async fn cluster(&self, token: &str, name: &str) -> String {
        let template = self
            .template(token, json!({"name": format!("of-{name}")}))
            .await;
        let body = json!({"name": name, "cluster_template_id": template});
        let told = self.ask(token, "POST", "/v1/clusters", body).await;
        assert_eq!(told.status, 202, "{told:?}");
        told.body["uuid"].as_str().unwrap().to_owned()
    }

    /// What the operator would tell of a cluster.
    async fn tell(&self, uuid: &str, state: &str) {
        let api: Api<CoeCluster> = Api::namespaced(self.client.clone(), "magnum-p1");
        let generation = api.get(uuid).await.unwrap().metadata.generation;
        let status = json!({"status": {"state": state, "observedGeneration": generation}});
        let patch = kube::api::Patch::Merge(status);
        api.patch_status(uuid, &kube::api::PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

fn template(more: Value) -> Value {
    let mut body =
        json!({"name": "t", "coe": "kubernetes", "image_id": "debian", "server_type": "bm"});
    let Value::Object(more) = more else {
        panic!("an object")
    };
    body.as_object_mut().unwrap().extend(more);
    body
}

/// Every error has the envelope of the service, its status and a title that the detail begins with.
fn assert_fault(told: &Told, status: u16) {
    assert_eq!(told.status, status, "{told:?}");
    let entry = &told.body["errors"][0];
    assert_eq!(entry["status"], status, "{told:?}");
    let is_blank = entry["title"] == "";
    let code = if is_blank { "" } else { "client" };
    assert_eq!(entry["code"], code, "{told:?}");
    let names_versions = told.headers.contains_key("openstack-api-version");
    assert_eq!(names_versions, !is_blank, "{told:?}");
    let (title, detail) = (
        entry["title"].as_str().unwrap(),
        entry["detail"].as_str().unwrap(),
    );
    assert!(detail.starts_with(title), "{told:?}");
    assert!(
        told.headers.contains_key("x-openstack-request-id"),
        "{told:?}"
    );
}

#[tokio::test]
async fn versions_and_health_need_no_token() {
    let world = World::new().await;
    let ask = |path: &str| world.raw(axum::http::Request::get(path), String::new());
    let root = ask("/").await;
    assert_eq!(root.body["versions"][0]["max_version"], "1.14");
    assert!(!root.headers.contains_key("openstack-api-version"));
    let first = ask("/v1/").await;
    assert_eq!(
        first.headers["openstack-api-version"],
        "container-infrastructure-management 1.1"
    );
    assert_eq!(first.headers["vary"], "OpenStack-API-Version");
    assert_eq!(
        first.body["clusters"][0]["href"],
        "http://coe.example:9511/v1/clusters/"
    );
    assert_eq!(ask("/healthcheck").await.status, 200);
}

#[tokio::test]
async fn nobody_gets_in_without_a_token_that_keystone_vouches_for() {
    let world = World::new().await;
    for token in ["", "unknown", "p1:ann:expired"] {
        let told = world.get(token, "/v1/clusters").await;
        assert_eq!(told.status, 401, "{token}");
        assert_eq!(told.body["error"]["code"], 401);
        let keystone = told.headers["www-authenticate"].to_str().unwrap();
        assert!(
            keystone.starts_with("Keystone uri=\"http://127.0.0.1:"),
            "{keystone}"
        );
    }
    assert_fault(&world.get(":ann:admin", "/v1/clusters").await, 403);
    assert_fault(&world.get("p1:ann:service", "/v1/clusters").await, 403);
    assert_fault(
        &world.get("../kube-system:ann:member", "/v1/clusters").await,
        403,
    );
    let request = axum::http::Request::get("/v1/clusters")
        .header("x-auth-token", MEMBER)
        .header("x-service-token", "unknown");
    assert_eq!(world.raw(request, String::new()).await.status, 401);
}

#[tokio::test]
async fn keystone_is_asked_once_for_a_token_and_a_dead_one_opens_no_door() {
    let world = World::new().await;
    for _ in 0..3 {
        assert_eq!(world.get(MEMBER, "/v1/clusters").await.status, 200);
    }
    assert_eq!(world.keystone.asked.load(Ordering::Relaxed), 1);
    world.served.abort();
    let told = world.get(ADMIN, "/v1/clusters").await;
    assert_eq!(
        (told.status, &told.body["error"]["code"]),
        (503, &json!(503))
    );
}

#[tokio::test]
async fn a_version_that_is_not_served_is_not_acceptable() {
    let world = World::new().await;
    let told = world
        .at("1.99", MEMBER, "GET", "/v1/clusters", Value::Null)
        .await;
    assert_eq!(
        (told.status, &told.body["errors"][0]["max_version"]),
        (406, &json!("1.14"))
    );
    assert_eq!(
        told.headers["openstack-api-version"],
        "container-infrastructure-management 1.99"
    );
    assert_fault(
        &world
            .at("x", MEMBER, "GET", "/v1/clusters", Value::Null)
            .await,
        406,
    );
    assert_fault(
        &world
            .at(
                "1.8",
                MEMBER,
                "GET",
                "/v1/clusters/a/nodegroups",
                Value::Null,
            )
            .await,
        406,
    );
    assert_fault(
        &world
            .at(
                "1.6",
                MEMBER,
                "POST",
                "/v1/clusters/a/actions/resize",
                json!({"node_count": 1}),
            )
            .await,
        406,
    );
    assert_fault(
        &world
            .at(
                "1.7",
                MEMBER,
                "POST",
                "/v1/clusters/a/actions/upgrade",
                json!({"cluster_template": "x"}),
            )
            .await,
        400,
    );
    assert_fault(
        &world
            .at("1.11", MEMBER, "PATCH", "/v1/credentials/a", Value::Null)
            .await,
        406,
    );
}

#[tokio::test]
async fn paths_verbs_and_media_that_are_not_served_say_so() {
    let world = World::new().await;
    for (method, path, status) in [
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/clusters.json", 404),
        ("HEAD", "/v1/clusters", 405),
        ("PUT", "/v1/clusters", 405),
        ("DELETE", "/v1/clusters", 400),
        ("PATCH", "/v1/clustertemplates", 400),
        ("GET", "/v1/clusters/a/actions/word", 405),
        ("GET", "/v1/clusters/a?word=1", 400),
        ("GET", "/v1/stats?word=1", 400),
        ("PATCH", "/v1/clusters/a?word=1", 400),
        ("GET", "/v1/certificates", 405),
        ("OPTIONS", "/v1/clusters", 200),
        ("GET", "/clusters/", 200),
    ] {
        assert_eq!(
            world.ask(MEMBER, method, path, Value::Null).await.status,
            status,
            "{method} {path}"
        );
    }
    let xml = |name| {
        axum::http::Request::post("/v1/clusters")
            .header("x-auth-token", MEMBER)
            .header(name, "application/xml")
    };
    assert_fault(&world.raw(xml("content-type"), String::new()).await, 415);
    assert_fault(&world.raw(xml("accept"), String::new()).await, 406);
    let long = axum::http::Request::post("/v1/clusters").header("x-auth-token", MEMBER);
    assert_fault(&world.raw(long, "a".repeat(LONGEST_BODY + 1)).await, 413);
}

#[tokio::test]
async fn a_template_is_made_shown_changed_and_removed() {
    let world = World::new().await;
    let told = world
        .ask(
            MEMBER,
            "POST",
            "/v1/clustertemplates",
            template(json!({"labels": {"n": 1, "on": true}})),
        )
        .await;
    assert_eq!(told.status, 201, "{told:?}");
    let uuid = told.body["uuid"].as_str().unwrap();
    assert_eq!(
        told.headers["location"],
        format!("http://coe.example:9511/v1/clustertemplates/{uuid}")
    );
    assert_eq!(told.body["labels"], json!({"n": "1", "on": "True"}));
    assert_eq!(told.body["floating_ip_enabled"], true);
    assert_eq!(told.body["updated_at"], Value::Null);
    assert_eq!(
        world.get(READER, "/v1/clustertemplates/t").await.body,
        told.body
    );
    let listed = world.get(MEMBER, "/v1/clustertemplates").await;
    assert_eq!(listed.body["clustertemplates"][0], told.body);
    let patch = json!([
        {"op": "replace", "path": "/labels", "value": "{'a': 'b'}"},
        {"op": "add", "path": "/labels/c", "value": "d"},
    ]);
    let refused = world
        .ask(MEMBER, "PATCH", "/v1/clustertemplates/t", patch)
        .await;
    assert_fault(&refused, 400);
    let patch = json!([{"op": "replace", "path": "/labels", "value": "{'a': 'b'}"}]);
    let changed = world
        .ask(MEMBER, "PATCH", "/v1/clustertemplates/t", patch)
        .await;
    assert_eq!(changed.body["labels"], json!({"a": "b"}), "{changed:?}");
    assert!(changed.body["updated_at"].is_string());
    assert_eq!(
        world
            .ask(MEMBER, "DELETE", "/v1/clustertemplates/t", Value::Null)
            .await
            .status,
        204
    );
    assert_fault(
        &world
            .get(MEMBER, &format!("/v1/clustertemplates/{uuid}"))
            .await,
        404,
    );
}

/// B8.
#[tokio::test]
async fn a_template_without_a_flavor_can_be_patched() {
    let world = World::new().await;
    let uuid = world.template(MEMBER, json!({})).await;
    let patch = json!([{"op": "add", "path": "/flavor_id", "value": "m1"}]);
    let told = world
        .ask(
            MEMBER,
            "PATCH",
            &format!("/v1/clustertemplates/{uuid}"),
            patch,
        )
        .await;
    assert_eq!(
        (told.status, &told.body["flavor_id"]),
        (200, &json!("m1")),
        "{told:?}"
    );
    let empty = world
        .ask(
            MEMBER,
            "PATCH",
            &format!("/v1/clustertemplates/{uuid}"),
            json!([]),
        )
        .await;
    assert_eq!(empty.body, told.body);
}

#[tokio::test]
async fn a_template_that_is_none_is_a_bad_request() {
    let world = World::new().await;
    for more in [
        json!({"coe": "swarm"}),
        json!({"coe": null}),
        json!({"image_id": null}),
        json!({"name": "a".repeat(256)}),
        json!({"network_driver": "weave"}),
        json!({"volume_driver": "rexray"}),
        json!({"server_type": "lxd"}),
        json!({"server_type": null}),
        json!({"driver": "heat"}),
        json!({"name": ""}),
        json!({"dns_nameserver": "dns.example"}),
        json!({"dns_nameserver": "2001:db8::1"}),
        json!({"apiserver_port": 80}),
        json!({"apiserver_port": 65_536}),
        json!({"docker_volume_size": 0}),
        json!({"labels": {"a": {}}}),
        json!({"public": "perhaps"}),
        json!({"uuid": "x"}),
        json!({"unknown": 1}),
    ] {
        let told = world
            .ask(MEMBER, "POST", "/v1/clustertemplates", template(more))
            .await;
        assert_fault(&told, 400);
    }
    // As with Magnum, a null `uuid` is one that the service gives.
    world.template(MEMBER, json!({"uuid": null})).await;
    assert_fault(
        &world
            .ask(MEMBER, "POST", "/v1/clustertemplates", Value::Null)
            .await,
        400,
    );
    assert_fault(
        &world.get(MEMBER, "/v1/clustertemplates?unknown=1").await,
        400,
    );
}

#[tokio::test]
async fn only_an_administrator_publishes_and_only_what_is_public_is_seen_elsewhere() {
    let world = World::new().await;
    for member in ["public", "hidden"] {
        let told = world
            .ask(
                MEMBER,
                "POST",
                "/v1/clustertemplates",
                template(json!({member: true})),
            )
            .await;
        assert_fault(&told, 403);
    }
    assert_fault(
        &world
            .ask(READER, "POST", "/v1/clustertemplates", template(json!({})))
            .await,
        403,
    );
    let private = world.template(MEMBER, json!({"name": "private"})).await;
    world
        .template(ADMIN, json!({"name": "public", "public": true}))
        .await;
    world
        .template(
            ADMIN,
            json!({"name": "hidden", "public": true, "hidden": true}),
        )
        .await;
    let seen = world.get(OTHER, "/v1/clustertemplates").await;
    let names: Vec<_> = seen.body["clustertemplates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["name"])
        .collect();
    assert_eq!(names, ["public"]);
    assert_fault(
        &world
            .get(OTHER, &format!("/v1/clustertemplates/{private}"))
            .await,
        404,
    );
    assert_fault(
        &world
            .ask(OTHER, "DELETE", "/v1/clustertemplates/public", Value::Null)
            .await,
        403,
    );
    assert_fault(
        &world
            .ask(OTHER, "DELETE", "/v1/clustertemplates/hidden", Value::Null)
            .await,
        404,
    );
    assert_eq!(
        world
            .get(ADMIN, &format!("/v1/clustertemplates/{private}"))
            .await
            .status,
        200
    );
}

/// B2 and B3: what was accepted can be read, whole, by the very next request.
#[tokio::test]
async fn a_cluster_that_was_accepted_is_there_with_its_groups_and_its_authority() {
    let world = World::new().await;
    let uuid = world.cluster(MEMBER, "first").await;
    let told = world.get(MEMBER, &format!("/v1/clusters/{uuid}")).await;
    assert_eq!(told.status, 200, "{told:?}");
    assert_eq!(
        (&told.body["master_count"], &told.body["node_count"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(told.body["status"], "CREATE_IN_PROGRESS");
    assert_eq!(told.body["create_timeout"], 60);
    assert!(
        told.body.get("faults").is_none() && told.body.get("stack_id").is_none(),
        "{told:?}"
    );
    let groups = world.get(MEMBER, "/v1/clusters/first/nodegroups").await;
    let names: Vec<_> = groups.body["nodegroups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| &g["name"])
        .collect();
    assert_eq!(names, ["default-master", "default-worker"]);
    let certificate = world.get(MEMBER, &format!("/v1/certificates/{uuid}")).await;
    assert!(
        certificate.body["pem"]
            .as_str()
            .unwrap()
            .starts_with("-----BEGIN CERTIFICATE-----")
    );
    let listed = world.get(MEMBER, "/v1/clusters").await;
    assert_eq!(listed.body["clusters"][0].as_object().unwrap().len(), 16);
    let old = world
        .at("1.1", MEMBER, "GET", "/v1/clusters/first", Value::Null)
        .await;
    assert!(
        old.body["stack_id"].is_string() && old.body.get("cluster_id").is_none(),
        "{old:?}"
    );
}

#[tokio::test]
async fn a_cluster_that_is_none_is_a_bad_request() {
    let world = World::new().await;
    let template = world.template(MEMBER, json!({})).await;
    let vm = world
        .template(MEMBER, json!({"name": "vm", "server_type": "vm"}))
        .await;
    let body = |more: Value| {
        let mut body = json!({"name": "first", "cluster_template_id": template});
        let Value::Object(more) = more else {
            panic!("an object")
        };
        body.as_object_mut().unwrap().extend(more);
        body
    };
    for more in [
        json!({"name": "1st"}),
        json!({"name": "a".repeat(243)}),
        json!({"cluster_template_id": null}),
        json!({"cluster_template_id": vm}),
        json!({"node_count": -1}),
        json!({"node_count": "many"}),
        json!({"master_count": 0}),
        json!({"master_count": 2}),
        json!({"master_count": 3}),
        json!({"status": "CREATE_COMPLETE"}),
        json!({"labels": {"kube_tag": "new"}}),
        json!({"unknown": 1}),
    ] {
        assert_fault(
            &world.ask(MEMBER, "POST", "/v1/clusters", body(more)).await,
            400,
        );
    }
    let lost = body(json!({"cluster_template_id": "lost"}));
    assert_fault(
        &world
            .ask(MEMBER, "POST", "/v1/clusters", lost.clone())
            .await,
        404,
    );
    assert_fault(
        &world.at("1.9", MEMBER, "POST", "/v1/clusters", lost).await,
        400,
    );
    assert_fault(
        &world
            .at(
                "1.9",
                MEMBER,
                "POST",
                "/v1/clusters",
                body(json!({"node_count": 0})),
            )
            .await,
        400,
    );
    assert_fault(
        &world
            .ask(READER, "POST", "/v1/clusters", body(json!({})))
            .await,
        403,
    );
    let balanced = body(json!({"master_count": "3", "master_lb_enabled": true, "node_count": "0"}));
    assert_eq!(
        world
            .ask(MEMBER, "POST", "/v1/clusters", balanced)
            .await
            .status,
        202
    );
}

#[tokio::test]
async fn a_project_has_no_more_clusters_than_its_quota() {
    let world = World::new().await;
    for name in ["a", "b", "c"] {
        world.cluster(MEMBER, name).await;
    }
    let body = json!({"cluster_template_id": "of-a"});
    assert_fault(
        &world
            .ask(MEMBER, "POST", "/v1/clusters", body.clone())
            .await,
        403,
    );
    let quota = json!({"project_id": "p1", "resource": "Cluster", "hard_limit": 4});
    assert_fault(
        &world.ask(MEMBER, "POST", "/v1/quotas", quota.clone()).await,
        403,
    );
    assert_eq!(
        world
            .ask(ADMIN, "POST", "/v1/quotas", quota.clone())
            .await
            .status,
        201
    );
    assert_fault(&world.ask(ADMIN, "POST", "/v1/quotas", quota).await, 409);
    let asked = (0..4).map(|_| world.ask(MEMBER, "POST", "/v1/clusters", body.clone()));
    let mut told: Vec<_> = futures::future::join_all(asked)
        .await
        .iter()
        .map(|told| told.status)
        .collect();
    told.sort_unstable();
    assert_eq!(told, [202, 403, 403, 403]);
}

#[tokio::test]
async fn a_name_that_two_clusters_have_is_a_conflict() {
    let world = World::new().await;
    let first = world.cluster(MEMBER, "same").await;
    world.cluster(MEMBER, "same").await;
    assert_fault(&world.get(MEMBER, "/v1/clusters/same").await, 409);
    assert_eq!(
        world
            .get(MEMBER, &format!("/v1/clusters/{first}"))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_resize_keeps_to_the_bounds_of_its_group() {
    let world = World::new().await;
    let uuid = world.cluster(MEMBER, "first").await;
    let resize = |body: Value| world.ask(MEMBER, "POST", "/v1/clusters/first/actions/resize", body);
    // B4: what cannot be done now is not accepted.
    assert_fault(&resize(json!({"node_count": 2})).await, 400);
    world.tell(&uuid, "CREATE_COMPLETE").await;
    assert_fault(&resize(json!({})).await, 400);
    assert_fault(&resize(json!({"node_count": -1})).await, 400);
    assert_fault(
        &resize(json!({"node_count": 2, "nodegroup": "default-master"})).await,
        400,
    );
    assert_fault(
        &resize(json!({"node_count": 2, "nodegroup": "lost"})).await,
        404,
    );
    let told = resize(json!({"node_count": 3, "nodes_to_remove": ["10.0.0.1"]})).await;
    assert_eq!((told.status, &told.body), (202, &json!({"uuid": uuid})));
    let shown = world.get(MEMBER, "/v1/clusters/first").await;
    assert_eq!(
        (&shown.body["node_count"], &shown.body["status"]),
        (&json!(3), &json!("UPDATE_IN_PROGRESS"))
    );
    let patch = json!([{"op": "replace", "path": "/node_count", "value": 4}]);
    assert_eq!(
        world
            .ask(
                MEMBER,
                "PATCH",
                "/v1/clusters/first?rollback=true",
                patch.clone()
            )
            .await
            .status,
        202
    );
    assert_eq!(
        world.get(MEMBER, "/v1/clusters/first").await.body["node_count"],
        4
    );
    let removed = json!([{"op": "remove", "path": "/node_count"}]);
    world
        .ask(MEMBER, "PATCH", "/v1/clusters/first", removed)
        .await;
    assert_eq!(
        world.get(MEMBER, "/v1/clusters/first").await.body["node_count"],
        1
    );
    assert_fault(
        &world
            .ask(
                MEMBER,
                "PATCH",
                "/v1/clusters/first",
                json!([{"op": "replace", "path": "/name", "value": "x"}]),
            )
            .await,
        400,
    );
}

/// B5 and B6.
#[tokio::test]
async fn an_upgrade_needs_no_batch_size_and_follows_one_that_failed() {
    let world = World::new().await;
    let uuid = world.cluster(MEMBER, "first").await;
    for (name, tag) in [("old", "v1.33.1"), ("next", "v1.34.3"), ("far", "v1.36.0")] {
        world
            .template(MEMBER, json!({"name": name, "labels": {"kube_tag": tag}}))
            .await;
    }
    let upgrade =
        |body: Value| world.ask(MEMBER, "POST", "/v1/clusters/first/actions/upgrade", body);
    assert_fault(&upgrade(json!({"cluster_template": "old"})).await, 400);
    world.tell(&uuid, "UPDATE_FAILED").await;
    assert_fault(&upgrade(json!({})).await, 400);
    assert_fault(&upgrade(json!({"cluster_template": "lost"})).await, 404);
    assert_fault(
        &upgrade(json!({"cluster_template": "old", "max_batch_size": 0})).await,
        400,
    );
    assert_eq!(
        upgrade(json!({"cluster_template": "old"})).await.status,
        202
    );
    assert_fault(&upgrade(json!({"cluster_template": "next"})).await, 400);
    world.tell(&uuid, "UPDATE_COMPLETE").await;
    assert_fault(&upgrade(json!({"cluster_template": "far"})).await, 400);
    let batch = async || {
        let api: Api<CoeCluster> = Api::namespaced(world.client.clone(), "magnum-p1");
        api.get(&uuid).await.unwrap().spec.max_batch_size
    };
    // What somebody said of an earlier upgrade is not said of this one.
    assert_eq!(batch().await, Some(1));
    let next = json!({"cluster_template": "next", "max_batch_size": 3});
    assert_eq!(upgrade(next).await.status, 202);
    assert_eq!(batch().await, Some(3));
    world.tell(&uuid, "UPDATE_COMPLETE").await;
    assert_fault(&upgrade(json!({"cluster_template": "old"})).await, 400);
    assert_eq!(
        world.get(MEMBER, "/v1/clusters/first").await.body["labels"]["kube_tag"],
        "v1.34.3"
    );
}

#[tokio::test]
async fn one_group_of_a_bare_metal_cluster_is_not_upgraded_alone() {
    let world = World::new().await;
    let uuid = world.cluster(MEMBER, "first").await;
    let next = json!({"name": "next", "labels": {"kube_tag": "v1.34.3"}});
    world.template(MEMBER, next).await;
    world.tell(&uuid, "CREATE_COMPLETE").await;
    let path = "/v1/clusters/first/actions/upgrade";
    let alone = json!({"cluster_template": "next", "nodegroup": "default-worker"});
    let refused = world.ask(MEMBER, "POST", path, alone).await;
    assert_fault(&refused, 400);
    let told = refused.body.to_string();
    assert!(told.contains("without naming a nodegroup"), "{told}");
    let shown = world.get(MEMBER, "/v1/clusters/first").await;
    assert_eq!(shown.body["status"], "CREATE_COMPLETE");
}

#[tokio::test]
async fn groups_come_change_and_go() {
    let world = World::new().await;
    let uuid = world.cluster(MEMBER, "first").await;
    let path = "/v1/clusters/first/nodegroups";
    let body = json!({"name": "gpu", "role": "gpu", "node_count": 2, "node_labels": {"gpu": "yes"},
        "node_taints": [{"key": "gpu", "effect": "NoSchedule"}]});
    // B4.
    assert_fault(&world.ask(MEMBER, "POST", path, body.clone()).await, 400);
    world.tell(&uuid, "CREATE_COMPLETE").await;
    let told = world.ask(MEMBER, "POST", path, body.clone()).await;
    assert_eq!(
        (told.status, &told.body["image_id"]),
        (202, &json!("debian")),
        "{told:?}"
    );
    assert_fault(&world.ask(MEMBER, "POST", path, body).await, 409);
    for (more, status) in [
        (json!({"name": "x", "role": "master"}), 400),
        (json!({"role": "x"}), 400),
        (
            json!({"name": "x", "node_count": 5, "max_node_count": 4}),
            409,
        ),
        (
            json!({"name": "x", "node_labels": {"kubernetes.io/x": "y"}}),
            409,
        ),
        (
            json!({"name": "x", "node_taints": [{"key": "a", "effect": "No"}]}),
            409,
        ),
        (json!({"name": "x", "node_taints": "word"}), 400),
        (json!({"name": "x", "is_default": true}), 400),
    ] {
        assert_fault(&world.ask(MEMBER, "POST", path, more).await, status);
    }
    let of_role = world.get(MEMBER, &format!("{path}?role=gpu")).await;
    assert_eq!(of_role.body["nodegroups"].as_array().unwrap().len(), 1);
    let gpu = format!("{path}/gpu");
    let patch = json!([{"op": "add", "path": "/max_node_count", "value": 3}]);
    let changed = world.ask(MEMBER, "PATCH", &gpu, patch).await;
    assert_eq!(
        (changed.status, &changed.body["max_node_count"]),
        (202, &json!(3)),
        "{changed:?}"
    );
    let patch = json!([{"op": "replace", "path": "/max_node_count", "value": 1}]);
    assert_fault(&world.ask(MEMBER, "PATCH", &gpu, patch).await, 409);
    let patch = json!([{"op": "replace", "path": "/node_count", "value": 1}]);
    assert_fault(&world.ask(MEMBER, "PATCH", &gpu, patch).await, 400);
    assert_eq!(
        world.ask(MEMBER, "DELETE", &gpu, Value::Null).await.status,
        204
    );
    assert_fault(&world.get(MEMBER, &gpu).await, 404);
    assert_fault(
        &world
            .ask(
                MEMBER,
                "DELETE",
                &format!("{path}/default-worker"),
                Value::Null,
            )
            .await,
        400,
    );
}

#[tokio::test]
async fn groups_that_are_made_at_once_are_all_there() {
    let world = World::new().await;
    let uuid = world.cluster(MEMBER, "first").await;
    world.tell(&uuid, "CREATE_COMPLETE").await;
    let made = (0..5).map(|at| {
        let body = json!({"name": format!("g{at}")});
        world.ask(MEMBER, "POST", "/v1/clusters/first/nodegroups", body)
    });
    for told in futures::future::join_all(made).await {
        assert_eq!(told.status, 202, "{told:?}");
    }
    let groups = world.get(MEMBER, "/v1/clusters/first/nodegroups").await;
    assert_eq!(groups.body["nodegroups"].as_array().unwrap().len(), 7);
}

/// Whoever runs the service has the say about who may, and nobody sees more by that than before.
#[tokio::test]
async fn rules_of_a_policy_file_hold_instead_of_the_defaults() {
    let rules = [
        ("cluster:create", "role:builder"),
        (
            "cluster:get",
            "role:member and project_id:%(project_id)s or role:admin and project_id:%(project_id)s",
        ),
        ("cluster:delete", "!"),
        ("stats:get_all", "@"),
    ];
    let rules = rules.map(|(name, rule)| (name.to_owned(), rule.to_owned()));
    let policy = Policy::of(rules.into()).unwrap();
    let world = World::ruled(&api::magnum::definitions(), policy).await;
    let template = world.template(MEMBER, json!({"name": "t"})).await;
    let body = json!({"name": "first", "cluster_template_id": template});
    let create = |token| world.ask(token, "POST", "/v1/clusters", body.clone());
    assert_fault(&create(MEMBER).await, 403);
    let made = create("p1:ann:builder").await;
    assert_eq!(made.status, 202, "{made:?}");
    assert_eq!(world.get(MEMBER, "/v1/clusters/first").await.status, 200);
    assert_fault(&world.get(READER, "/v1/clusters/first").await, 403);
    assert_fault(&world.get(OTHER, "/v1/clusters/first").await, 404);
    // By default an administrator sees those of all.
    assert_fault(&world.get(ADMIN, "/v1/clusters/first").await, 404);
    let delete = world.ask(ADMIN, "DELETE", "/v1/clusters/first", Value::Null);
    assert_fault(&delete.await, 403);
    assert_eq!(world.get("p1:x:nobody", "/v1/stats").await.status, 200);
    // What no rule speaks of is as it was.
    assert_eq!(world.get(READER, "/v1/clusters").await.status, 200);
}

/// B1 and the second half of B9.
#[tokio::test]
async fn a_rotation_that_is_refused_leaves_the_authority_as_it_is() {
    let world = World::new().await;
    let uuid = world.cluster(MEMBER, "first").await;
    let path = format!("/v1/certificates/{uuid}");
    let before = world.get(MEMBER, &path).await;
    let refused = world.ask(MEMBER, "PATCH", &path, Value::Null).await;
    assert_fault(&refused, 400);
    let told = refused.body.to_string();
    assert!(told.contains("windlass renew"), "{told}");
    assert_eq!(world.get(MEMBER, &path).await.body, before.body);
    let etcd = world
        .get(MEMBER, &format!("{path}?ca_cert_type=etcd"))
        .await;
    assert_ne!(etcd.body["pem"], before.body["pem"]);
    assert_fault(
        &world
            .get(MEMBER, &format!("{path}?ca_cert_type=other"))
            .await,
        400,
    );
    assert_fault(
        &world
            .ask(
                MEMBER,
                "PATCH",
                &format!("/v1/credentials/{uuid}"),
                Value::Null,
            )
            .await,
        400,
    );
}

#[tokio::test]
async fn certificates_are_for_the_user_of_the_cluster_alone() {
    let world = World::new().await;
    let uuid = world.cluster(MEMBER, "first").await;
    let path = format!("/v1/certificates/{uuid}");
    assert_fault(&world.get(READER, &path).await, 403);
    assert_fault(&world.get(ADMIN, &path).await, 404);
    assert_fault(&world.get(OTHER, &path).await, 404);
    let body = json!({"cluster_uuid": uuid, "csr": "none"});
    assert_fault(
        &world
            .ask("p1:bob:member", "POST", "/v1/certificates", body.clone())
            .await,
        403,
    );
    assert_fault(
        &world.ask(MEMBER, "POST", "/v1/certificates", body).await,
        400,
    );
    let lost = json!({"cluster_uuid": "lost", "csr": "none"});
    assert_fault(
        &world.ask(MEMBER, "POST", "/v1/certificates", lost).await,
        400,
    );
    let mut params = rcgen::CertificateParams::default();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "admin");
    let key = rcgen::KeyPair::generate().unwrap();
    let csr = params.serialize_request(&key).unwrap().pem().unwrap();
    let told = world
        .ask(
            MEMBER,
            "POST",
            "/v1/certificates",
            json!({"cluster_uuid": uuid, "csr": csr}),
        )
        .await;
    assert_eq!(told.status, 201, "{told:?}");
    assert_eq!(told.body["csr"], csr);
}

#[tokio::test]
async fn another_project_s_cluster_is_not_there() {
    let world = World::new().await;
    let uuid = world.cluster(MEMBER, "first").await;
    let path = format!("/v1/clusters/{uuid}");
    for ident in [path.as_str(), "/v1/clusters/first"] {
        assert_fault(&world.get(OTHER, ident).await, 404);
        assert_fault(&world.ask(OTHER, "DELETE", ident, Value::Null).await, 404);
    }
    assert_eq!(
        world.get(OTHER, "/v1/clusters").await.body["clusters"],
        json!([])
    );
    assert_eq!(world.get(ADMIN, &path).await.status, 200);
    let resize = world
        .ask(
            ADMIN,
            "POST",
            &format!("{path}/actions/resize"),
            json!({"node_count": 2}),
        )
        .await;
    assert_fault(&resize, 404);
    assert_fault(&world.ask(READER, "DELETE", &path, Value::Null).await, 403);
}

#[tokio::test]
async fn a_deleted_cluster_is_shown_as_going_until_its_hosts_are_free() {
    let world = World::new().await;
    let uuid = world.cluster(MEMBER, "first").await;
    let path = format!("/v1/clusters/{uuid}");
    assert_eq!(
        world.ask(MEMBER, "DELETE", &path, Value::Null).await.status,
        204
    );
    assert_eq!(
        world.get(MEMBER, &path).await.body["status"],
        "DELETE_IN_PROGRESS"
    );
    let template = world.get(MEMBER, "/v1/clustertemplates/of-first").await;
    let used = format!(
        "/v1/clustertemplates/{}",
        template.body["uuid"].as_str().unwrap()
    );
    assert_fault(&world.ask(MEMBER, "DELETE", &used, Value::Null).await, 400);
    let patch = json!([{"op": "replace", "path": "/image_id", "value": "x"}]);
    assert_fault(&world.ask(MEMBER, "PATCH", &used, patch).await, 400);
    let tags = json!({"op": "replace", "path": "/tags", "value": "x"});
    let name = json!({"op": "replace", "path": "/name", "value": "x"});
    let both = json!([tags, name]);
    assert_fault(&world.ask(MEMBER, "PATCH", &used, both).await, 400);
    for one in [tags, name] {
        let told = world.ask(MEMBER, "PATCH", &used, json!([one])).await;
        assert_eq!(told.status, 200, "{told:?}");
    }
}

#[tokio::test]
async fn health_is_told_by_the_user_of_the_cluster() {
    let world = World::new().await;
    let uuid = world.cluster(MEMBER, "first").await;
    let path = format!("/v1/clusters/{uuid}");
    let patch = json!([
        {"op": "replace", "path": "/health_status", "value": "UNHEALTHY"},
        {"op": "replace", "path": "/health_status_reason", "value": "{'api': 'down'}"},
    ]);
    assert_fault(
        &world
            .ask("p1:bob:member", "PATCH", &path, patch.clone())
            .await,
        403,
    );
    assert_eq!(world.ask(MEMBER, "PATCH", &path, patch).await.status, 202);
    let told = world.get(MEMBER, &path).await.body;
    assert_eq!(
        (&told["health_status"], &told["health_status_reason"]),
        (&json!("UNHEALTHY"), &json!({"api": "down"}))
    );
}

#[tokio::test]
async fn lists_go_page_by_page() {
    let world = World::new().await;
    for name in ["a", "b", "c"] {
        world.cluster(MEMBER, name).await;
    }
    let first = world
        .get(MEMBER, "/v1/clusters?limit=2&sort_key=name")
        .await;
    let next = first.body["next"]
        .as_str()
        .unwrap()
        .strip_prefix("http://coe.example:9511")
        .unwrap();
    let second = world.get(MEMBER, next).await;
    assert_eq!(second.body["clusters"][0]["name"], "c");
    assert!(second.body.get("next").is_none(), "{second:?}");
    assert_fault(
        &world.get(MEMBER, "/v1/clusters?sort_key=node_count").await,
        400,
    );
    assert_fault(&world.get(MEMBER, "/v1/clusters?marker=x").await, 400);
    assert_fault(&world.get(MEMBER, "/v1/clusters?limit=0").await, 400);
}

#[tokio::test]
async fn quotas_statistics_and_services_are_told_to_whom_they_concern() {
    let world = World::new().await;
    world.cluster(MEMBER, "first").await;
    assert_eq!(
        world.get(MEMBER, "/v1/stats").await.body,
        json!({"clusters": 1, "nodes": 2})
    );
    assert_eq!(
        world.get(OTHER, "/v1/stats").await.body,
        json!({"clusters": 0, "nodes": 0})
    );
    assert_fault(&world.get(OTHER, "/v1/stats?project_id=p1").await, 403);
    assert_fault(&world.get(OTHER, "/v1/stats?type=node").await, 400);
    assert_fault(&world.get(MEMBER, "/v1/mservices").await, 403);
    assert_eq!(
        world.get(ADMIN, "/v1/mservices").await.body["mservices"][0]["state"],
        "up"
    );
    assert_fault(&world.get(MEMBER, "/v1/quotas").await, 403);
    assert_eq!(
        world.get(MEMBER, "/v1/quotas/p1/Cluster").await.body["hard_limit"],
        3
    );
    // B9.
    assert_fault(&world.get(MEMBER, "/v1/quotas/p1/Server").await, 404);
    assert_fault(&world.get(MEMBER, "/v1/quotas/p2/Cluster").await, 403);
    // What nobody has set has no number and no moment.
    assert_eq!(
        world.get(MEMBER, "/v1/quotas/p1/Cluster").await.body,
        json!({"project_id": "p1", "resource": "Cluster", "hard_limit": 3})
    );
    let quota = json!({"project_id": "p2", "hard_limit": 7});
    let made = world.ask(ADMIN, "POST", "/v1/quotas", quota.clone()).await;
    assert_eq!((made.status, &made.body["id"]), (201, &json!(1)));
    assert_eq!(made.body["resource"], "Cluster");
    let mut more = quota;
    more["hard_limit"] = json!(8);
    assert_eq!(
        world
            .ask(ADMIN, "PATCH", "/v1/quotas/p2/Cluster", more)
            .await
            .status,
        202
    );
    let every = "/v1/quotas?all_tenants=true";
    assert_eq!(
        world.get(ADMIN, every).await.body["quotas"][0]["hard_limit"],
        8
    );
    let own = world.get(ADMIN, "/v1/quotas").await.body;
    assert_eq!(own, json!({"quotas": []}), "an administrator's own project");
    assert_fault(&world.get(ADMIN, "/v1/quotas?all_tenants=some").await, 400);
    assert_eq!(
        world
            .ask(ADMIN, "DELETE", "/v1/quotas/p2/Cluster", Value::Null)
            .await
            .status,
        204
    );
    assert_fault(
        &world
            .ask(ADMIN, "DELETE", "/v1/quotas/p2/Cluster", Value::Null)
            .await,
        404,
    );
    assert_eq!(
        world.get(MEMBER, "/v1/federations").await.body,
        json!({"federations": []})
    );
    assert_fault(&world.get(MEMBER, "/v1/federations/x").await, 404);
    assert_fault(
        &world
            .ask(MEMBER, "POST", "/v1/federations", json!({}))
            .await,
        400,
    );
}
