//! Steps of a cloud, one by one, on the embedded API.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{
    Run,
    openstack::{OnDelete, OpenStack, OpenStackService},
    run::{Record, Step},
};
use controller::lease::{BootClock, Proof};
use http::Request;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
    client::Body,
};
use runs::{Engine as _, Work};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt as _;
use workflow::{
    MemoryJournal, Observer, Outcome, State, Steering, SystemClock,
    runner::{self, Runner, STOP_GRACE},
};

use crate::{action::Action, engine::Engine};

/// An API with a cloud alone, and what was changed there, in its order.
struct World {
    client: Client,
    changed: Arc<Mutex<Vec<String>>>,
    /// The unique id of the cloud `one`.
    uid: String,
    directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let mut kinds = api::custom_resource_definitions();
        kinds.extend(api::openstack::definitions());
        let server = kapi::Server::in_memory(&kinds).await.unwrap();
        let changed = Arc::<Mutex<Vec<String>>>::default();
        let (router, noted) = (server.router(), Arc::clone(&changed));
        let answers = move |request: Request<Body>| {
            if request.method() != "GET" {
                let name = request.uri().path().rsplit('/').next().unwrap_or_default();
                let what = format!("{} {name}", request.method());
                noted.lock().unwrap().push(what);
            }
            let router = router.clone();
            router.oneshot(request)
        };
        let client = Client::new(tower::service_fn(answers), "default");
        let cloud = serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStack", "metadata": {"name": "one"},
            "spec": {"database": {"managed": {"image": "db"}}, "services": [{"name": "keystone", "image": "k"}]},
        }));
        let clouds = Api::<OpenStack>::namespaced(client.clone(), "default");
        let cloud = clouds.create(&PostParams::default(), &cloud.unwrap()).await;
        Self {
            client,
            changed,
            uid: cloud.unwrap().uid().unwrap(),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// Does one step of the cloud, which says nothing of its data.
    async fn act(&self, action: Action) -> Outcome {
        let step = action.step("a/step", "A step", None).unwrap();
        let run = run(&self.uid, &step);
        let directory = self.directory.path().to_owned();
        let work = Work::alone(self.client.clone(), run, directory).unwrap();
        let work = Arc::new(work);
        let engine = Engine {
            helm: "helm".into(),
            kubeconfig: None,
        };
        let held = Proof::until(BootClock::of(|| Duration::ZERO), Duration::MAX);
        self.changed.lock().unwrap().clear();
        let mut runner = Runner {
            journal: MemoryJournal::default(),
            executor: engine.prepare(&work, held).unwrap(),
            clock: SystemClock,
            observer: Nobody,
            stop_grace: STOP_GRACE,
        };
        let (_steers, steering) = watch::channel(Steering::default());
        runner::run(&work.plan, &mut runner, steering)
            .await
            .unwrap()
    }

    fn changed(&self) -> Vec<String> {
        self.changed.lock().unwrap().clone()
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), "default")
    }
}

struct Nobody;

impl Observer for Nobody {
    fn recorded(&mut self, _: &Record, _: &State) {}
}

fn run(uid: &str, step: &Step) -> Run {
    serde_json::from_value(json!({
        "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
        "metadata": {"name": "openstack-one-update-2", "namespace": "default"},
        "spec": {
            "subject": {"apiGroup": "openstack.windlass.dev", "kind": "OpenStack", "name": "one", "uid": uid},
            "operation": "Update", "generation": 2,
            "plan": {"digest": "d", "inputs": {"services": [], "drop": false}, "steps": [step]},
        },
    }))
    .unwrap()
}

/// The Secret of a RabbitMQ as a Windlass of before made it.
fn of_before(labels: &Value) -> Secret {
    let conf = "listeners.tcp.default = 5672\ndefault_user = openstack\ndefault_pass = hunter22\n";
    let mut secret: Secret = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "one-rabbitmq-admin", "labels": labels},
    }))
    .unwrap();
    let values = [
        ("username", "openstack"),
        ("password", "hunter22"),
        ("rabbitmq.conf", conf),
        (
            "transport_url",
            "rabbit://openstack:hunter22@one-rabbitmq:5672//",
        ),
    ];
    secret.string_data = Some(values.map(|(key, value)| (key.into(), value.into())).into());
    secret
}

fn value(secret: &Secret, key: &str) -> Option<String> {
    let value = secret.data.as_ref()?.get(key)?;
    Some(String::from_utf8(value.0.clone()).unwrap())
}

#[tokio::test]
async fn a_rabbitmq_of_before_gets_what_its_pod_mounts_and_keeps_its_password() {
    let world = World::new().await;
    let own =
        json!({"app.kubernetes.io/managed-by": "windlass", "openstack.windlass.dev/of": "one"});
    let parameters = PostParams::default();
    let made = world.secrets().create(&parameters, &of_before(&own)).await;
    let before = made.unwrap();
    assert_eq!(
        world.act(Action::MakeMessagingSecret).await,
        Outcome::Succeeded
    );
    let after = world.secrets().get("one-rabbitmq-admin").await.unwrap();
    for key in ["username", "password", "transport_url"] {
        assert_eq!(value(&after, key), value(&before, key), "{key}");
    }
    let conf = value(&after, "rabbitmq.conf").unwrap();
    assert!(
        conf.contains("load_definitions = /run/windlass/definitions.json"),
        "{conf}"
    );
    assert!(!conf.contains("hunter22"), "{conf}");
    let definitions = value(&after, "definitions.json").unwrap();
    let definitions: Value = serde_json::from_str(&definitions).unwrap();
    assert_eq!(definitions["users"][0]["password"], "hunter22");

    // What people write there since is theirs.
    let theirs = json!({"stringData": {"rabbitmq.conf": "a = b\n", "definitions.json": "{}"}});
    let theirs = kube::api::Patch::Merge(&theirs);
    let secrets = world.secrets();
    secrets
        .patch(
            "one-rabbitmq-admin",
            &kube::api::PatchParams::default(),
            &theirs,
        )
        .await
        .unwrap();
    assert_eq!(
        world.act(Action::MakeMessagingSecret).await,
        Outcome::Succeeded
    );
    assert_eq!(world.changed(), ["POST secrets"]);
    let after = world.secrets().get("one-rabbitmq-admin").await.unwrap();
    assert_eq!(value(&after, "rabbitmq.conf").as_deref(), Some("a = b\n"));
    assert_eq!(value(&after, "definitions.json").as_deref(), Some("{}"));
}

#[tokio::test]
async fn a_secret_of_somebody_else_at_the_name_of_a_rabbitmq_s_is_left_alone() {
    let world = World::new().await;
    let parameters = PostParams::default();
    let made = world
        .secrets()
        .create(&parameters, &of_before(&json!({})))
        .await;
    let before = made.unwrap();
    assert_eq!(
        world.act(Action::MakeMessagingSecret).await,
        Outcome::Succeeded
    );
    let after = world.secrets().get("one-rabbitmq-admin").await.unwrap();
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_service_is_told_what_becomes_of_its_data_when_it_goes_and_not_before() {
    let world = World::new().await;
    let services = Api::<OpenStackService>::namespaced(world.client.clone(), "default");
    for (service, on_delete) in [
        ("keystone", OnDelete::Delete),
        ("glance", OnDelete::Delete),
        ("placement", OnDelete::Retain),
    ] {
        let service = serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStackService",
            "metadata": {"name": format!("one-{service}"), "ownerReferences": [{
                "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStack", "name": "one", "uid": world.uid, "controller": true,
            }]},
            "spec": {"service": service, "image": "i", "onDelete": on_delete,
                "database": {"host": "db", "adminSecret": {"name": "admin"}}},
        }));
        let parameters = PostParams::default();
        services
            .create(&parameters, &service.unwrap())
            .await
            .unwrap();
    }
    assert_eq!(world.act(Action::RemoveServices).await, Outcome::Succeeded);
    assert_eq!(
        world.changed(),
        [
            "PATCH one-glance",
            "DELETE one-glance",
            "DELETE one-placement",
            "PATCH one-keystone",
            "DELETE one-keystone",
        ]
    );
    let left = services.list(&ListParams::default()).await.unwrap();
    assert!(left.items.is_empty());
}
