//! Whole passes, on the embedded API with a stand-in for what it has not.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use api::{
    Run,
    openstack::{FINALIZER, OnDelete, OpenStack, OpenStackService, Phase, Standing},
    run::{RunPhase, RunStatus},
};
use controller::{Events, conditions};
use http::{Method, Request, Response};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    client::Body,
    core::DeserializeGuard,
    runtime::{reflector, watcher::Event},
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{
    Context, Error, HEALTH_LOOK, Meanings, Resolved, reconcile,
    refusal::tests::{empty, wait},
};
use crate::{
    engine::services::PATIENCE, health::Probes, seed::look::Looks, service::RENDERINGS, wish::Wish,
};

/// What was asked of the API, in its order.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

impl Asked {
    fn note(&self, request: &Request<Body>) {
        let what = format!("{} {}", request.method(), request.uri().path());
        self.0.lock().unwrap().push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// The embedded API, with a stand-in for what it has not: a Deployment that serves. It takes no runs while it refuses them.
async fn embedded(asked: &Asked, refuses: &Arc<AtomicBool>) -> Client {
    let mut kinds = api::custom_resource_definitions();
    kinds.extend(api::openstack::definitions());
    let server = kapi::Server::in_memory(&kinds).await.unwrap();
    let (asked, refuses, router) = (asked.clone(), Arc::clone(refuses), server.router());
    let answers = move |request: Request<Body>| {
        asked.note(&request);
        let refused = refuses.load(Ordering::Relaxed) && request.method() == Method::POST;
        let router = router.clone();
        async move {
            let path = request.uri().path();
            let (code, answer) = if let Some((_, name)) = path.split_once("/deployments/") {
                assert_eq!(request.method(), Method::GET);
                let serves = json!({
                    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                    "spec": {"selector": {}, "template": {}}, "status": {"availableReplicas": 1},
                });
                (200_u16, serves)
            } else if refused && path.ends_with("/runs") {
                let message = "runs is forbidden: exceeded quota: few";
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "reason": "Forbidden", "code": 403, "message": message});
                (403, status)
            } else {
                return router.oneshot(request).await;
            };
            let answer = Response::builder()
                .status(code)
                .body(answer.to_string().into());
            Ok::<_, Infallible>(answer.unwrap())
        }
    };
    Client::new(tower::service_fn(answers), "default")
}

/// A Keystone that was made and answers, and who looks at it.
struct World {
    asked: Asked,
    refuses: Arc<AtomicBool>,
    client: Client,
    context: Arc<Context<OpenStackService>>,
}

impl World {
    /// Made of this, beside what all have.
    async fn made(more: &Value) -> Self {
        let (asked, refuses) = (Asked::default(), Arc::default());
        let client = embedded(&asked, &refuses).await;
        let (runs, mut writer) = reflector::store();
        for event in [Event::Init, Event::InitDone] {
            writer.apply_watcher_event(&event);
        }
        let context = Context {
            client: client.clone(),
            own: empty(),
            services: empty(),
            runs,
            events: Events::new(client.clone(), "openstack"),
            meanings: Meanings::default(),
            probes: Probes::default(),
            looks: Looks::default(),
        };
        let world = Self {
            asked,
            refuses,
            client,
            context: Arc::new(context),
        };
        let mut spec = json!({"service": "keystone", "image": "k",
            "database": {"host": "db", "adminSecret": {"name": "admin"}}});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let service: OpenStackService = serde_json::from_value(json!({
            "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStackService",
            "metadata": {"name": "identity"}, "spec": spec,
        }))
        .unwrap();
        let services = world.services();
        let created = services.create(&PostParams::default(), &service).await;
        let uid = created.unwrap().uid().unwrap();
        let (_, rendered) = world.pass().await.unwrap();
        assert!(rendered > 0, "it is new");
        let runs = Api::<Run>::namespaced(world.client.clone(), "default");
        let runs = runs.list(&ListParams::default()).await;
        let mut run = runs.unwrap().items.remove(0);
        run.status = Some(RunStatus {
            phase: RunPhase::Succeeded,
            ..RunStatus::default()
        });
        world.context.probes.answers(uid, &run);
        writer.apply_watcher_event(&Event::Apply(DeserializeGuard(Ok(run))));
        world
    }

    fn services(&self) -> Api<OpenStackService> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn status(&self) -> Standing {
        self.services()
            .get("identity")
            .await
            .unwrap()
            .status
            .unwrap()
    }

    /// What a pass asks of the API, and how often it renders files.
    async fn pass(&self) -> Result<(Vec<String>, u32), Error> {
        let (asked, _) = self.look().await?;
        Ok((asked, RENDERINGS.take()))
    }

    /// What a pass asks of the API, and when the next one comes.
    async fn look(&self) -> Result<(Vec<String>, Option<Duration>), Error> {
        let made = self.services().get("identity").await.unwrap();
        self.asked.take();
        RENDERINGS.take();
        let made = Arc::new(DeserializeGuard(Ok(made)));
        let next = Box::pin(reconcile(made, Arc::clone(&self.context))).await?;
        Ok((self.asked.take(), wait(&next)))
    }
}

#[tokio::test]
async fn a_pass_at_rest_renders_nothing_and_asks_for_the_pods_alone() {
    let config = json!({"keystone.conf": "[token]\nexpiration = {{ 60 * 60 }}\n"});
    let world = World::made(&json!({"config": config})).await;
    let (_, rendered) = world.pass().await.unwrap();
    assert_eq!(rendered, 0, "its run has ended, and it is the same");
    let status = world.status().await;
    assert!(conditions::is_true(&status.conditions, conditions::READY));

    let pods = "GET /apis/apps/v1/namespaces/default/deployments/identity-api";
    for _ in 0..3 {
        assert_eq!(world.pass().await.unwrap(), (vec![pods.to_owned()], 0));
    }

    // Each change of what it says is seen by the next pass.
    let other = json!({"spec": {"config": {"keystone.conf": "[token]\nexpiration = 60\n"}}});
    let (services, parameters) = (world.services(), PatchParams::default());
    let other = Patch::Merge(&other);
    services
        .patch("identity", &parameters, &other)
        .await
        .unwrap();
    let (asked, rendered) = world.pass().await.unwrap();
    assert_eq!(rendered, 1);
    let stored = "POST /apis/workflow.windlass.dev/v1alpha1/namespaces/default/runs";
    assert!(asked.iter().any(|asked| asked == stored), "{asked:?}");
}

#[tokio::test]
async fn what_serves_is_ready_though_the_api_takes_no_run_of_a_rotation() {
    let keys = json!({"fernet": {"rotate": {"schedule": "0 3 * * 0"}}});
    let world = World::made(&json!({"keys": keys})).await;
    world.refuses.store(true, Ordering::Relaxed);
    // Nothing is noted of its keys, so that they are to be rotated. However often that is refused, what stands is looked at as ever.
    for _ in 0..12 {
        let (_, next) = world.look().await.unwrap();
        assert!(
            next.is_some_and(|next| next <= HEALTH_LOOK.0 * 2),
            "{next:?}"
        );
    }
    let status = world.status().await;
    assert!(conditions::is_true(&status.conditions, conditions::READY));
    assert_eq!(
        (status.phase, status.run.is_some()),
        (Some(Phase::Ready), true)
    );
    let blocked = status.blocked_on.unwrap();
    for part in [
        "refuses to store the run",
        "exceeded quota",
        "raise the quota",
    ] {
        assert!(blocked.contains(part), "{blocked}");
    }
    world.refuses.store(false, Ordering::Relaxed);
    world.pass().await.unwrap();
    assert!(
        world
            .status()
            .await
            .blocked_on
            .is_none_or(|blocked| !blocked.contains("quota"))
    );
}

#[tokio::test]
async fn what_is_refused_no_longer_is_begun_before_the_gate_of_an_update_shuts() {
    let world = World::made(&json!({})).await;
    let other = Patch::Merge(json!({"spec": {"image": "another"}}));
    let (services, parameters) = (world.services(), PatchParams::default());
    services
        .patch("identity", &parameters, &other)
        .await
        .unwrap();
    world.refuses.store(true, Ordering::Relaxed);
    let patience = Duration::try_from(PATIENCE).unwrap();
    // Whoever mends it needs the time of a look.
    let mended = patience.saturating_sub(HEALTH_LOOK.0 * 2);
    let mut now = Duration::ZERO;
    while now < mended {
        let (_, next) = world.look().await.unwrap();
        now += next.unwrap();
    }
    assert_eq!(world.status().await.phase, Some(Phase::Stalled));
    world.refuses.store(false, Ordering::Relaxed);
    world.look().await.unwrap();
    assert!(now < patience, "{now:?}");
    assert_ne!(world.status().await.phase, Some(Phase::Stalled));
}

/// A cloud that keeps its data or not, at rest or going, with a service that drops its own and goes before the cloud could tell it.
async fn going(on_delete: Option<&str>, is_cloud_going: bool) -> (World, OpenStackService) {
    let world = World::made(&json!({"onDelete": "Delete"})).await;
    let clouds = Api::<OpenStack>::namespaced(world.client.clone(), "default");
    let cloud = serde_json::from_value(json!({
        "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStack",
        "metadata": {"name": "one", "finalizers": [FINALIZER]},
        "spec": {"database": {"managed": {"image": "db"}}, "services": [{"name": "keystone", "image": "k"}],
            "onDelete": on_delete},
    }));
    let cloud = clouds.create(&PostParams::default(), &cloud.unwrap()).await;
    let owner = json!({"apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStack", "name": "one",
        "uid": cloud.unwrap().uid(), "controller": true, "blockOwnerDeletion": true});
    let owned = Patch::Merge(json!({"metadata": {"ownerReferences": [owner]}}));
    let (services, parameters) = (world.services(), PatchParams::default());
    services
        .patch("identity", &parameters, &owned)
        .await
        .unwrap();
    let deleted = DeleteParams::default();
    if is_cloud_going {
        let gone = clouds.delete("one", &deleted).await.unwrap();
        assert!(gone.is_left(), "it waits for its operator");
    }
    services.delete("identity", &deleted).await.unwrap();
    let mut passes = 0;
    // What the first writes wakes the next.
    while world
        .pass()
        .await
        .unwrap()
        .0
        .iter()
        .any(|asked| asked.starts_with("PATCH"))
    {
        passes += 1;
        assert!(passes < 9, "it comes to no rest");
    }
    let service = services.get("identity").await.unwrap();
    (world, service)
}

#[tokio::test]
async fn a_service_keeps_its_data_where_its_cloud_goes_and_says_so() {
    for (on_delete, is_cloud_going, is_kept) in [
        (None, true, true),
        (Some("Retain"), true, true),
        (Some("Delete"), true, false),
        (None, false, false),
    ] {
        let (world, service) = going(on_delete, is_cloud_going).await;
        let runs = Api::<Run>::namespaced(world.client.clone(), "default");
        let runs = runs.list(&ListParams::default()).await.unwrap();
        let mut removals = runs.items.iter();
        let removals = removals.find(|run| run.spec.operation == "Delete");
        let steps = &removals.unwrap().spec.plan.steps;
        let drops = steps.iter().any(|step| step.id == "database/drop");
        let says = service.spec.on_delete == Some(OnDelete::Delete);
        assert_eq!(
            (drops, says),
            (!is_kept, !is_kept),
            "{on_delete:?} {is_cloud_going}"
        );
    }
}

#[test]
fn what_an_object_means_is_said_by_its_name_and_its_spec() {
    let cloud: OpenStack = serde_json::from_value(json!({
        "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStack",
        "metadata": {"name": "one", "namespace": "cloud"},
        "spec": {"database": {"managed": {"image": "db"}}, "services": [{"name": "keystone", "image": "k"}]},
    }))
    .unwrap();
    let service: OpenStackService = serde_json::from_value(json!({
        "apiVersion": "openstack.windlass.dev/v1alpha1", "kind": "OpenStackService",
        "metadata": {"name": "identity", "namespace": "cloud"},
        "spec": {"service": "keystone", "image": "k", "keys": {"fernet": {"rotate": {"schedule": "0 3 * * 0"}}},
            "database": {"host": "db", "adminSecret": {"name": "admin"}}},
    }))
    .unwrap();
    is_said_by_name_and_spec(cloud);
    is_said_by_name_and_spec(service);
}

fn is_said_by_name_and_spec<K: Wish>(object: K) {
    let before = Resolved::of(&object);
    let mut other = object;
    let metadata = other.meta_mut();
    metadata.uid = Some("another".to_owned());
    metadata.resource_version = Some("7".to_owned());
    let words = || Some([("a".to_owned(), "b".to_owned())].into());
    (metadata.labels, metadata.annotations) = (words(), words());
    let after = Resolved::of(&other);
    assert_eq!(before.wanted.unwrap(), after.wanted.unwrap());
    assert_eq!(before.rotations, after.rotations);
}
