//! The kube runtime against the API in the same process: controllers, finalizers, watchers, events, leases.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use api::Cluster;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::ConfigMap},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kapi::Server;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{
        Controller,
        controller::Action,
        events::{Event, EventType, Recorder, Reporter},
        finalizer::{Event as Finalizer, finalizer},
        wait::{await_condition, conditions},
        watcher,
    },
};
use serde_json::json;

async fn client() -> (Server, Client) {
    let server = Server::in_memory(&api::custom_resource_definitions())
        .await
        .unwrap();
    let client = Client::new(server.router(), "default");
    (server, client)
}

fn cluster(name: &str) -> Cluster {
    serde_json::from_value(json!({
        "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster",
        "metadata": {"name": name}, "spec": {},
    }))
    .unwrap()
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within 20 s"))
}

#[tokio::test]
async fn definitions_are_established() {
    let (_server, client) = client().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    let condition = await_condition(
        definitions,
        "clusters.kubespray.k8s.io",
        conditions::is_crd_established(),
    );
    within("established", condition).await.unwrap();
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

#[tokio::test]
async fn a_controller_creates_owned_objects_and_heals_them() {
    let (_server, client) = client().await;
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), "default");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let passes = Arc::new(AtomicU32::new(0));
    let controller = Controller::new(clusters.clone(), watcher::Config::default())
        .owns(maps.clone(), watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            Arc::new((maps.clone(), Arc::clone(&passes))),
        )
        .for_each(|_| futures::future::ready(()));
    let running = tokio::spawn(controller);

    clusters
        .create(&PostParams::default(), &cluster("c"))
        .await
        .unwrap();
    let there = |map: Option<&ConfigMap>| map.is_some_and(|map| map.data.is_some());
    within("created", await_condition(maps.clone(), "c", there))
        .await
        .unwrap();
    let first = maps.get("c").await.unwrap();
    maps.delete("c", &DeleteParams::default()).await.unwrap();
    let anew = move |map: Option<&ConfigMap>| map.is_some_and(|map| map.uid() != first.uid());
    within("healed", await_condition(maps.clone(), "c", anew))
        .await
        .unwrap();

    // The status apply and the owned apply change nothing any more: no pass follows from them.
    let mut before = passes.load(Ordering::SeqCst);
    within("at rest", async {
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = passes.load(Ordering::SeqCst);
            if now == before {
                break;
            }
            before = now;
        }
    })
    .await;
    assert!(before < 20, "{before} passes");

    clusters
        .delete("c", &DeleteParams::default())
        .await
        .unwrap();
    let gone = |map: Option<&ConfigMap>| map.is_none();
    within("collected", await_condition(maps, "c", gone))
        .await
        .unwrap();
    running.abort();
}

async fn reconcile(
    cluster: Arc<Cluster>,
    context: Arc<(Api<ConfigMap>, Arc<AtomicU32>)>,
) -> Result<Action, Refused> {
    let (maps, passes) = &*context;
    passes.fetch_add(1, Ordering::SeqCst);
    let name = cluster.name_any();
    let owned = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": [cluster.controller_owner_ref(&())]},
        "data": {"name": name},
    });
    maps.patch(
        &name,
        &PatchParams::apply("test").force(),
        &Patch::Apply(owned),
    )
    .await
    .map_err(|error| Refused(error.to_string()))?;
    Ok(Action::requeue(Duration::from_mins(5)))
}

#[tokio::test]
async fn finalizer_runs_cleanup() {
    let (_server, client) = client().await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    maps.create(&PostParams::default(), &map("held"))
        .await
        .unwrap();
    let cleaned = AtomicU32::new(0);
    let pass = || async {
        let object = Arc::new(maps.get("held").await.unwrap());
        finalizer(&maps, "example.org/clean", object, |event| {
            if let Finalizer::Cleanup(_) = event {
                cleaned.fetch_add(1, Ordering::SeqCst);
            }
            futures::future::ok::<_, Refused>(Action::await_change())
        })
        .await
        .unwrap();
    };
    pass().await;
    assert_eq!(
        maps.get("held").await.unwrap().finalizers(),
        ["example.org/clean"]
    );
    maps.delete("held", &DeleteParams::default()).await.unwrap();
    pass().await;
    assert_eq!(cleaned.load(Ordering::SeqCst), 1);
    assert!(maps.get_opt("held").await.unwrap().is_none());
}

#[tokio::test]
async fn streaming_list_then_events() {
    let (_server, client) = client().await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    for index in 0..3 {
        maps.create(&PostParams::default(), &map(&format!("m{index}")))
            .await
            .unwrap();
    }
    let config = watcher::Config::default().streaming_lists();
    let mut events = std::pin::pin!(watcher(maps.clone(), config));
    let mut listed = Vec::new();
    loop {
        match within("listed", events.try_next()).await.unwrap().unwrap() {
            watcher::Event::Init => {}
            watcher::Event::InitApply(map) => listed.push(map.name_any()),
            watcher::Event::InitDone => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(listed, ["m0", "m1", "m2"]);
    maps.delete("m1", &DeleteParams::default()).await.unwrap();
    let event = within("deleted", events.try_next()).await.unwrap().unwrap();
    assert!(matches!(event, watcher::Event::Delete(map) if map.name_any() == "m1"));
}

/// A bookmark comes after a minute and does not break the typed watch.
#[tokio::test(start_paused = true)]
async fn bookmarks_do_not_break_a_watch() {
    let (_server, client) = client().await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let mut events = std::pin::pin!(watcher(maps.clone(), watcher::Config::default()));
    for _ in 0..2 {
        events.try_next().await.unwrap();
    }
    let quiet = tokio::time::timeout(Duration::from_hours(1), events.try_next()).await;
    assert!(
        quiet.is_err(),
        "an hour of bookmarks and new watches, and nothing to see: {quiet:?}"
    );
    maps.create(&PostParams::default(), &map("late"))
        .await
        .unwrap();
    let event = events.try_next().await.unwrap().unwrap();
    assert!(matches!(event, watcher::Event::Apply(map) if map.name_any() == "late"));
}

#[tokio::test]
async fn recorded_events_are_read_as_core_events() {
    let (_server, client) = client().await;
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), "default");
    let cluster = clusters
        .create(&PostParams::default(), &cluster("c"))
        .await
        .unwrap();
    let recorder = Recorder::new(client.clone(), Reporter::from("test"));
    let event = Event {
        type_: EventType::Warning,
        reason: "Unreachable".into(),
        note: Some("1 of 4 nodes does not answer".into()),
        action: "Probe".into(),
        secondary: None,
    };
    for _ in 0..3 {
        recorder
            .publish(&event, &cluster.object_ref(&()))
            .await
            .unwrap();
    }
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(client, "default");
    let selected = ListParams::default().fields("involvedObject.name=c");
    let list = events.list(&selected).await.unwrap();
    assert_eq!(list.items.len(), 1, "repeats are counted in one Event");
    let event = &list.items[0];
    assert_eq!(
        event.message.as_deref(),
        Some("1 of 4 nodes does not answer")
    );
    assert_eq!(
        event.series.as_ref().and_then(|series| series.count),
        Some(3)
    );
}

#[tokio::test]
async fn only_one_takes_a_lease() {
    let (_server, client) = client().await;
    let leases: Api<Lease> = Api::namespaced(client, "default");
    let lease: Lease = serde_json::from_value(
        json!({"metadata": {"name": "leader"}, "spec": {"holderIdentity": ""}}),
    )
    .unwrap();
    let seen = leases.create(&PostParams::default(), &lease).await.unwrap();
    let take = |holder: &str| {
        let mut lease = seen.clone();
        lease.spec.get_or_insert_default().holder_identity = Some(holder.into());
        let leases = leases.clone();
        async move {
            leases
                .replace("leader", &PostParams::default(), &lease)
                .await
        }
    };
    let (a, b) = tokio::join!(take("a"), take("b"));
    assert_eq!(u32::from(a.is_ok()) + u32::from(b.is_ok()), 1);
}

/// A day of operation in seconds: a controller that comes back every five minutes, its watches renewed on the way.
#[tokio::test(start_paused = true)]
async fn a_day_of_operation() {
    let (_server, client) = client().await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    maps.create(&PostParams::default(), &map("one"))
        .await
        .unwrap();
    let passes = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&passes);
    let controller = Controller::new(maps, watcher::Config::default())
        .run(
            move |_, _| {
                count.fetch_add(1, Ordering::SeqCst);
                futures::future::ok::<_, Refused>(Action::requeue(Duration::from_mins(5)))
            },
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            Arc::new(()),
        )
        .for_each(|_| futures::future::ready(()));
    let day = tokio::time::timeout(Duration::from_hours(24), controller).await;
    assert!(day.is_err());
    let passes = passes.load(Ordering::SeqCst);
    assert!((286..=290).contains(&passes), "{passes} passes");
}
