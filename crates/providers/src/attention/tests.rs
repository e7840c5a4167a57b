//! On the embedded API, whose watches are real.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use super::*;

const NAMESPACE: &str = "default";
/// A loaded machine takes its time.
const LIMIT: Duration = Duration::from_mins(1);

struct World {
    _server: kapi::Server,
    client: Client,
    attention: Attention,
}

impl World {
    async fn start() -> Self {
        let server = kapi::Server::in_memory(&[]).await.unwrap();
        Self {
            client: Client::new(server.router(), NAMESPACE),
            _server: server,
            attention: Attention::default(),
        }
    }

    /// Has somebody attend to ConfigMaps of providers, to the releases of one, and to a Secret.
    fn attend(
        &self,
        label: &str,
        further: Option<Part>,
    ) -> impl futures::Stream<Item = ()> + use<> {
        let wake_ups = WakeUps::default();
        let woken = wake_ups.stream().map(drop);
        let mut parts = HashSet::from([
            Part::of_providers(ApiResource::erase::<ConfigMap>(&())),
            Part::labelled::<ConfigMap>(NAMESPACE, format!("release={label}")),
            Part::named::<Secret>(NAMESPACE, label),
        ]);
        parts.extend(further);
        let who = Who {
            key: label.to_owned(),
            label: label.to_owned(),
            object: (NAMESPACE.to_owned(), label.to_owned()),
            wake_ups,
        };
        self.attention.attend(&self.client, who, parts);
        woken
    }

    async fn made(&self, name: &str, labels: &serde_json::Value) {
        let map = json!({"metadata": {"name": name, "labels": labels}});
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), NAMESPACE);
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
}

async fn next(woken: &mut (impl futures::Stream<Item = ()> + Unpin)) {
    let next = tokio::time::timeout(LIMIT, woken.next());
    next.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_changes_wakes_whom_it_belongs_to_and_nobody_else() {
    let world = World::start().await;
    let mut woken = Box::pin(world.attend("boat", None));
    let mut other = Box::pin(world.attend("raft", None));
    assert_eq!(world.attention.mark("boat"), None, "not yet");
    for woken in [&mut woken, &mut other] {
        next(woken).await;
    }
    let marks = || ["boat", "raft"].map(|key| world.attention.mark(key).unwrap());
    let [mut boat, raft] = marks();
    let maps = Api::<ConfigMap>::namespaced(world.client.clone(), NAMESPACE);
    world.made("nobody", &json!({})).await;
    world.made("part", &json!({label::PROVIDER: "boat"})).await;
    next(&mut woken).await;
    world.made("release", &json!({"release": "boat"})).await;
    next(&mut woken).await;
    let gone = DeleteParams::default();
    maps.delete("part", &gone).await.unwrap();
    next(&mut woken).await;
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "boat"}})).unwrap();
    let secrets = Api::<Secret>::namespaced(world.client.clone(), NAMESPACE);
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    next(&mut woken).await;
    assert!(marks()[0] > std::mem::replace(&mut boat, 0));
    assert_eq!(marks()[1], raft, "it is another's");

    world.attention.forget("boat");
    assert_eq!(world.attention.mark("boat"), None);
    assert_eq!(marks_of(&world), 3, "what the other one attends to");
}

fn marks_of(world: &World) -> usize {
    world.attention.state().watched.len()
}

#[tokio::test(start_paused = true)]
async fn many_changes_wake_once_in_a_while() {
    let world = World::start().await;
    let mut woken = Box::pin(world.attend("boat", None));
    next(&mut woken).await;
    let began = Instant::now();
    for number in 0..20 {
        let name = format!("part-{number}");
        world.made(&name, &json!({label::PROVIDER: "boat"})).await;
    }
    next(&mut woken).await;
    assert!(began.elapsed() >= PAUSE / 2, "{:?}", began.elapsed());
    let more = tokio::time::timeout(PAUSE * 3, woken.next()).await;
    assert!(more.is_err(), "all of them were told by one");
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_watched_is_not_relied_on() {
    let world = World::start().await;
    let unserved = ApiResource {
        group: "boat.example".to_owned(),
        version: "v1".to_owned(),
        api_version: "boat.example/v1".to_owned(),
        kind: "Boat".to_owned(),
        plural: "boats".to_owned(),
    };
    let _woken = world.attend("boat", Some(Part::of_providers(unserved)));
    tokio::time::sleep(REFUSED * 3).await;
    assert_eq!(world.attention.mark("boat"), None);
}
