//! What a credential is taken away by is there until it is: though somebody deletes the Secret, or the cluster is gone without it.

use kube::runtime::wait::await_condition;

use super::*;
use crate::{
    credential::{FINALIZER, LABEL},
    operator::orphans::sweep,
};

impl Cloud {
    /// Waits until the Secret with the credential is as it should be. None: it is gone.
    async fn until_secret(&self, uuid: &str, is_so: impl Fn(Option<&Secret>) -> bool + Send) {
        let secrets = self.secrets("magnum-p1");
        let name = format!("{uuid}-cloud-config");
        let seen = await_condition(secrets, &name, is_so);
        let seen = tokio::time::timeout(LIMIT, seen).await;
        seen.expect("the Secret is as it should be").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_somebody_deletes_serves_its_cluster_to_the_end() {
    let cloud = Cloud::with_identity().await;
    let template = cloud.template("small", "v1.34.3", "ubuntu").await;
    let uuid = cloud.create(&template).await;
    cloud.until_state(&uuid, "CREATE_COMPLETE").await;
    let secrets = cloud.secrets("magnum-p1");
    let name = format!("{uuid}-cloud-config");
    let parameters = DeleteParams::default();
    secrets.delete(&name, &parameters).await.unwrap();
    let is_going = |secret: &Secret| secret.metadata.deletion_timestamp.is_some();
    assert!(is_going(&secrets.get(&name).await.unwrap()));

    // It is renewed and rotated as before.
    let before = cloud.of_user("ann");
    cloud.expire(&uuid).await;
    cloud
        .until(&uuid, "others are used", |_| {
            let now = cloud.of_user("ann");
            now.len() == 2 && !before.iter().any(|one| now.contains(one))
        })
        .await;
    cloud.rotate("p1:joe:member", &uuid).await;
    cloud
        .until(&uuid, "it is joe's", |_| {
            cloud.of_user("ann").is_empty() && cloud.of_user("joe").len() == 2
        })
        .await;
    assert!(is_going(&secrets.get(&name).await.unwrap()));

    let path = format!("/v1/clusters/{uuid}");
    cloud.ask("DELETE", &path, Value::Null).await;
    cloud.until_gone(&uuid).await;
    let left = cloud.world.keystone.credentials();
    assert!(left.is_empty(), "{left:?}");
    cloud.until_secret(&uuid, |secret| secret.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_of_before_there_was_a_finalizer_gets_it() {
    let cloud = Cloud::with_identity().await;
    let template = cloud.template("small", "v1.34.3", "ubuntu").await;
    let uuid = cloud.create(&template).await;
    cloud.until_state(&uuid, "CREATE_COMPLETE").await;
    let bare = json!({"metadata": {"finalizers": ["example.com/other"], "labels": {LABEL: null}}});
    let (parameters, bare) = (PatchParams::default(), Patch::Merge(bare));
    let secrets = cloud.secrets("magnum-p1");
    let name = format!("{uuid}-cloud-config");
    secrets.patch(&name, &parameters, &bare).await.unwrap();
    cloud.look(&uuid).await;
    let both = ["example.com/other", FINALIZER];
    cloud
        .until_secret(&uuid, |secret| {
            secret.is_some_and(|secret| {
                secret.finalizers() == both && secret.labels().get(LABEL) == Some(&uuid)
            })
        })
        .await;
}

/// A cluster with a credential that nobody works on.
async fn accepted(world: &World, name: &str) -> String {
    let more = json!({
        "name": name, "server_type": "vm", "flavor_id": "m1.large", "labels": {"kube_tag": "v1.34.3"},
    });
    let template = world.template(MEMBER, more).await;
    let body = json!({"name": name, "cluster_template_id": template});
    let told = world.ask(MEMBER, "POST", "/v1/clusters", body).await;
    assert_eq!(told.status, 202, "{told:?}");
    told.body["uuid"].as_str().unwrap().to_owned()
}

/// Takes a cluster away by hand, its finalizer first.
async fn let_go_by_hand(world: &World, uuid: &str) {
    let clusters: Api<CoeCluster> = Api::namespaced(world.client.clone(), "magnum-p1");
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let parameters = PatchParams::default();
    clusters.patch(uuid, &parameters, &free).await.unwrap();
    let parameters = DeleteParams::default();
    clusters.delete(uuid, &parameters).await.unwrap();
}

#[tokio::test]
async fn a_credential_that_has_no_cluster_is_taken_away() {
    let world = World::new().await;
    let identity = "https://identity.example:5000/v3";
    world.keystone.offer("identity", identity);
    let uuid = accepted(&world, "first").await;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "magnum-p1");
    let name = format!("{uuid}-cloud-config");
    let now = Timestamp::now();
    let swept = async |hours: i64| {
        let then = now + SignedDuration::from_hours(hours);
        sweep(&world.client, &world.known, then).await.unwrap();
        let is_there = secrets.get_opt(&name).await.unwrap().is_some();
        (is_there, world.keystone.credentials().len())
    };
    // Its cluster is there.
    assert_eq!(swept(1).await, (true, 2));
    let_go_by_hand(&world, &uuid).await;
    // It may still come.
    assert_eq!(swept(0).await, (true, 2));
    // There may be servers of it.
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let built = format!("coe-{uuid}");
    let made = json!({"metadata": {"name": built}});
    let made = serde_json::from_value(made).unwrap();
    let (parameters, none) = (PostParams::default(), DeleteParams::default());
    namespaces.create(&parameters, &made).await.unwrap();
    assert_eq!(swept(1).await, (true, 2));
    namespaces.delete(&built, &none).await.unwrap();
    let is_gone = |namespace: Option<&Namespace>| namespace.is_none();
    let gone = await_condition(namespaces, &built, is_gone);
    let gone = tokio::time::timeout(LIMIT, gone).await;
    gone.expect("the namespace goes").unwrap();

    world.keystone.disable("ann");
    assert_eq!(swept(1).await, (true, 2));
    world.keystone.enable("ann");
    assert_eq!(swept(1).await, (false, 0));
}

#[tokio::test]
async fn a_credential_that_has_ended_holds_nothing() {
    let world = World::new().await;
    let identity = "https://identity.example:5000/v3";
    world.keystone.offer("identity", identity);
    let uuid = accepted(&world, "first").await;
    let_go_by_hand(&world, &uuid).await;
    world.keystone.disable("ann");
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "magnum-p1");
    let name = format!("{uuid}-cloud-config");
    let now = Timestamp::now();
    for (days, is_there) in [(59, true), (61, false)] {
        let then = now + SignedDuration::from_hours(days * 24);
        sweep(&world.client, &world.known, then).await.unwrap();
        let found = secrets.get_opt(&name).await.unwrap();
        assert_eq!(found.is_some(), is_there, "after {days} days");
    }
}

#[tokio::test]
async fn a_credential_of_a_cluster_that_could_not_be_stored_is_taken_away_later_where_it_cannot_be_now()
 {
    let world = World::new().await;
    let identity = "https://identity.example:5000/v3";
    world.keystone.offer("identity", identity);
    let more = json!({
        "name": "small", "server_type": "vm", "flavor_id": "m1.large", "labels": {"kube_tag": "v1.34.3"},
    });
    let template = world.template(MEMBER, more).await;
    *world.failing.lock().unwrap() = Some(("POST", "/coeclusters".to_owned()));
    world.keystone.cling(true);
    let body = json!({"name": "first", "cluster_template_id": template});
    let told = world.ask(MEMBER, "POST", "/v1/clusters", body).await;
    assert_eq!(told.status, 500, "{told:?}");
    assert_eq!(world.keystone.credentials().len(), 2);

    // Its authorities are gone, and what it is taken away by goes after it.
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "magnum-p1");
    let left = async || {
        let all = secrets.list(&ListParams::default()).await.unwrap().items;
        assert!(
            all.iter()
                .all(|one| one.metadata.deletion_timestamp.is_some())
        );
        (all.len(), world.keystone.credentials().len())
    };
    assert_eq!(left().await, (1, 2));
    let later = Timestamp::now() + SignedDuration::from_hours(1);
    for (clings, there) in [(true, (1, 2)), (false, (0, 0))] {
        world.keystone.cling(clings);
        sweep(&world.client, &world.known, later).await.unwrap();
        assert_eq!(left().await, there);
    }
}
