//! A cluster's own credential: made with its user's token, rotated, renewed, and taken away with it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;

use super::*;

mod held;

const CLOUDS: &str = "clouds.yaml";

impl Cloud {
    async fn with_identity() -> Self {
        let cloud = Self::new(&Kind::ALL).await;
        let keystone = &cloud.world.keystone;
        keystone.offer("identity", "https://identity.example:5000/v3");
        cloud
    }

    fn of_user(&self, user: &str) -> Vec<Value> {
        let mut all = self.world.keystone.credentials();
        all.retain(|one| one["user"] == user);
        all
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.world.client.clone(), namespace)
    }

    /// What Cluster API uses the cloud by.
    async fn given(&self, uuid: &str) -> Value {
        let secrets = self.secrets(&format!("coe-{uuid}"));
        let secret = secrets.get("cloud-config").await.unwrap();
        let data = secret.data.unwrap();
        assert_eq!(data.keys().collect::<Vec<_>>(), [CLOUDS]);
        let clouds: Value = serde_json::from_slice(&data[CLOUDS].0).unwrap();
        clouds["clouds"]["openstack"].clone()
    }

    /// The record of a credential, changed by hand, and the cluster looked at again.
    async fn expire(&self, uuid: &str) {
        let expires = json!(Timestamp::now() + SignedDuration::from_hours(1));
        self.change_record(uuid, "expires", expires).await;
    }

    async fn change_record(&self, uuid: &str, member: &str, value: Value) {
        let secrets = self.secrets("magnum-p1");
        let name = format!("{uuid}-cloud-config");
        let data = secrets.get(&name).await.unwrap().data.unwrap();
        let mut record: Value = serde_json::from_slice(&data["credential.json"].0).unwrap();
        record[member] = value;
        let kept = ByteString(record.to_string().into_bytes());
        let kept = Patch::Merge(json!({"data": {"credential.json": kept}}));
        let parameters = PatchParams::default();
        secrets.patch(&name, &parameters, &kept).await.unwrap();
        self.look(uuid).await;
    }

    /// Has the operator look at a cluster again.
    async fn look(&self, uuid: &str) {
        let clusters: Api<CoeCluster> = Api::namespaced(self.world.client.clone(), "magnum-p1");
        let now = Timestamp::now().to_string();
        let looked = Patch::Merge(json!({"metadata": {"annotations": {"looked-at": now}}}));
        let parameters = PatchParams::default();
        clusters.patch(uuid, &parameters, &looked).await.unwrap();
    }

    async fn rotate(&self, token: &str, uuid: &str) {
        let path = format!("/v1/credentials/{uuid}");
        let rotated = self.world.ask(token, "PATCH", &path, Value::Null).await;
        assert_eq!(rotated.status, 202, "{rotated:?}");
        // A second one within a second says nothing else of the last change.
        self.look(uuid).await;
    }

    async fn until_told(&self, uuid: &str, words: &str) -> Value {
        self.until(uuid, words, |cluster| {
            let reason = cluster.and_then(|cluster| cluster["status_reason"].as_str());
            reason.is_some_and(|reason| reason.contains(words))
        })
        .await
    }

    async fn until_gone(&self, uuid: &str) {
        self.until(uuid, "it is gone", |cluster| cluster.is_none())
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_has_a_credential_of_its_own_until_it_is_gone() {
    let cloud = Cloud::with_identity().await;
    let template = cloud.template("small", "v1.34.3", "ubuntu").await;
    let uuid = cloud.create(&template).await;
    let made = cloud.until_state(&uuid, "CREATE_COMPLETE").await;
    assert!(!made.to_string().contains("secret-of"), "{made}");

    let all = cloud.of_user("ann");
    assert_eq!(all.len(), 2, "{all:?}");
    for one in &all {
        let name = one["name"].as_str().unwrap();
        assert!(name.starts_with(&format!("windlass-{uuid}-")), "{name}");
        // What can make others is given to nobody, and outlasts the other one.
        let days = if one["unrestricted"] == true { 60 } else { 30 };
        let expires: Timestamp = one["expires_at"].as_str().unwrap().parse().unwrap();
        let hours = expires.duration_since(Timestamp::now()).as_hours();
        assert_eq!((hours + 12) / 24, days, "{one}");
    }
    let used = all.iter().find(|one| one["unrestricted"] == false).unwrap();
    let given = cloud.given(&uuid).await;
    let auth = json!({
        "auth_url": "https://identity.example:5000/v3",
        "application_credential_id": used["id"], "application_credential_secret": used["secret"],
    });
    assert_eq!(given["auth"], auth);
    assert_eq!(given["auth_type"], "v3applicationcredential");
    assert_eq!(given["region_name"], "north");

    let path = format!("/v1/credentials/{uuid}");
    let by = async |token: &str| cloud.world.ask(token, "PATCH", &path, Value::Null).await;
    assert_fault(&by(READER).await, 403);
    assert_fault(&by(OTHER).await, 404);
    assert_eq!(cloud.of_user("ann").len(), 2);
    let rotated = by("p1:joe:member").await;
    assert_eq!(
        (rotated.status, &rotated.body),
        (202, &json!({"uuid": uuid})),
        "{rotated:?}"
    );
    cloud
        .until(&uuid, "it is of who rotated it", |_| {
            cloud.of_user("ann").is_empty() && cloud.of_user("joe").len() == 2
        })
        .await;
    let next = cloud.given(&uuid).await;
    assert_ne!(next["auth"], given["auth"]);

    cloud
        .ask("DELETE", &format!("/v1/clusters/{uuid}"), Value::Null)
        .await;
    cloud
        .until(&uuid, "it is gone", |cluster| cluster.is_none())
        .await;
    let left = cloud.world.keystone.credentials();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_is_renewed_before_it_ends_or_its_cluster_says_why_not() {
    let cloud = Cloud::with_identity().await;
    let template = cloud.template("small", "v1.34.3", "ubuntu").await;
    let uuid = cloud.create(&template).await;
    cloud.until_state(&uuid, "CREATE_COMPLETE").await;
    let before = cloud.of_user("ann");
    cloud.expire(&uuid).await;
    let is_next = |now: &[Value]| now.len() == 2 && !before.iter().any(|one| now.contains(one));
    cloud
        .until(&uuid, "others are used, and kept by", |_| {
            is_next(&cloud.of_user("ann"))
        })
        .await;

    cloud.world.keystone.forget("ann");
    cloud.expire(&uuid).await;
    // Somebody else looks, and helps.
    let path = format!("/v1/clusters/{uuid}");
    let told = tokio::time::timeout(LIMIT, async {
        loop {
            let told = cloud.world.get("p1:joe:member", &path).await.body;
            let reason = told["status_reason"].as_str().unwrap_or_default();
            if reason.contains("openstack coe credential rotate") {
                break told;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let told = told.await.expect("the cluster says that its user is gone");
    assert_eq!(told["status"], "CREATE_COMPLETE");
    let path = format!("/v1/credentials/{uuid}");
    let rotated = cloud
        .world
        .ask("p1:joe:member", "PATCH", &path, Value::Null)
        .await;
    assert_eq!(rotated.status, 202, "{rotated:?}");
    assert_eq!(cloud.of_user("joe").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_rotates_at_the_same_time_as_others_waits_for_them() {
    let cloud = Cloud::with_identity().await;
    let template = cloud.template("small", "v1.34.3", "ubuntu").await;
    let uuid = cloud.create(&template).await;
    cloud.until_state(&uuid, "CREATE_COMPLETE").await;
    let by = |token: &'static str| cloud.rotate(token, &uuid);
    tokio::join!(
        by(MEMBER),
        by("p1:joe:member"),
        by(MEMBER),
        by("p1:joe:member"),
    );
    cloud
        .until(&uuid, "only the last one's are left", |_| {
            let of = |user: &str| cloud.of_user(user).len();
            cloud.world.keystone.credentials().len() == 2 && (of("ann") == 2 || of("joe") == 2)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_can_make_no_credential_makes_no_cluster_unless_the_project_has_one() {
    let cloud = Cloud::with_identity().await;
    let template = cloud.template("small", "v1.34.3", "ubuntu").await;
    cloud.create(&template).await;
    let all = cloud.of_user("ann");
    let restricted = all.iter().find(|one| one["unrestricted"] == false).unwrap();
    let restricted = format!("p1:ann:member:{}", restricted["id"].as_str().unwrap());
    let body = |name: &str| json!({"name": name, "cluster_template_id": template});
    for (token, words) in [
        (restricted.as_str(), "unrestricted"),
        ("p1:root:admin", "the role member"),
    ] {
        let told = cloud
            .world
            .ask(token, "POST", "/v1/clusters", body("more"))
            .await;
        assert_fault(&told, 403);
        let detail = told.body["errors"][0]["detail"].as_str().unwrap();
        assert!(
            detail.contains(words) && detail.contains("cloud-config"),
            "{detail}"
        );
    }
    assert_eq!(cloud.world.keystone.credentials(), all);
    // An administrator's is not handed on where there is another role.
    let told = cloud
        .world
        .ask("p1:max:admin+member", "POST", "/v1/clusters", body("third"))
        .await;
    assert_eq!(told.status, 202, "{told:?}");
    for one in cloud.of_user("max") {
        assert_eq!(one["role"], "member");
    }
    cloud.give_credentials().await;
    let told = cloud
        .world
        .ask(&restricted, "POST", "/v1/clusters", body("shared"))
        .await;
    assert_eq!(told.status, 202, "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_credential_is_left_of_a_cluster_that_could_not_be_stored() {
    let cloud = Cloud::with_identity().await;
    let template = cloud.template("small", "v1.34.3", "ubuntu").await;
    let body = json!({"name": "first", "cluster_template_id": template});
    // A longer name of a user than the definition takes.
    let token = format!("p1:{}:member", "u".repeat(65));
    let told = cloud.world.ask(&token, "POST", "/v1/clusters", body).await;
    assert_fault(&told, 400);
    assert!(cloud.world.keystone.credentials().is_empty());
    let secrets = cloud.secrets("magnum-p1");
    let left = secrets.list(&ListParams::default()).await.unwrap();
    assert!(left.items.is_empty());
}

/// A complete cluster of joe's, to be seen by ann.
async fn of_joe(cloud: &Cloud) -> String {
    let template = cloud.template("small", "v1.34.3", "ubuntu").await;
    let body = json!({"name": "first", "cluster_template_id": template});
    let told = cloud
        .world
        .ask("p1:joe:member", "POST", "/v1/clusters", body)
        .await;
    let uuid = told.body["uuid"].as_str().unwrap().to_owned();
    cloud.until_state(&uuid, "CREATE_COMPLETE").await;
    uuid
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_user_is_gone_can_be_deleted_rotated_or_not() {
    let cloud = Cloud::with_identity().await;
    for is_rotated in [false, true] {
        let uuid = of_joe(&cloud).await;
        assert_eq!(cloud.of_user("joe").len(), 2);
        cloud.world.keystone.forget("joe");
        if is_rotated {
            cloud.rotate(MEMBER, &uuid).await;
        }
        let path = format!("/v1/clusters/{uuid}");
        cloud.ask("DELETE", &path, Value::Null).await;
        cloud.until_gone(&uuid).await;
        assert!(cloud.world.keystone.credentials().is_empty());
        cloud.world.keystone.remember("joe");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_forgotten_of_a_user_who_is_disabled() {
    let cloud = Cloud::with_identity().await;
    let uuid = of_joe(&cloud).await;
    let of_joe = cloud.of_user("joe");
    cloud.world.keystone.disable("joe");
    cloud.rotate(MEMBER, &uuid).await;
    let left = format!("windlass-{uuid} of user joe are left");
    cloud.until_told(&uuid, &left).await;
    assert_eq!(cloud.of_user("joe"), of_joe);
    cloud.world.keystone.enable("joe");
    cloud.look(&uuid).await;
    cloud
        .until(&uuid, "they are taken away", |_| {
            cloud.of_user("joe").is_empty() && cloud.of_user("ann").len() == 2
        })
        .await;

    // Who is used no more holds nothing up, and who is used does, until somebody else helps.
    cloud.rotate("p1:joe:member", &uuid).await;
    cloud
        .until(&uuid, "it is joe's", |_| cloud.of_user("ann").is_empty())
        .await;
    cloud.world.keystone.disable("joe");
    let path = format!("/v1/clusters/{uuid}");
    cloud.ask("DELETE", &path, Value::Null).await;
    let held = cloud
        .until_told(&uuid, "openstack coe credential rotate")
        .await;
    assert_eq!(held["status"], "DELETE_IN_PROGRESS");
    let of_joe = cloud.of_user("joe");
    assert_eq!(of_joe.len(), 2);
    cloud.rotate(MEMBER, &uuid).await;
    cloud.until_gone(&uuid).await;
    assert_eq!(cloud.world.keystone.credentials(), of_joe);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_made_to_its_end_though_who_asked_is_gone() {
    let cloud = Cloud::with_identity().await;
    let template = cloud.template("small", "v1.34.3", "ubuntu").await;
    let body = json!({"name": "first", "cluster_template_id": template});
    {
        let asked = cloud.world.ask(MEMBER, "POST", "/v1/clusters", body);
        let mut asked = std::pin::pin!(asked);
        let polled = futures::poll!(asked.as_mut());
        assert!(polled.is_pending());
    }
    let clusters: Api<CoeCluster> = Api::namespaced(cloud.world.client.clone(), "magnum-p1");
    let made = tokio::time::timeout(LIMIT, async {
        loop {
            let all = clusters.list(&ListParams::default()).await.unwrap();
            if let Some(made) = all.items.into_iter().next() {
                break made;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let made = made.await.expect("the cluster is made");
    cloud.until_state(&made.name_any(), "CREATE_COMPLETE").await;
    assert_eq!(cloud.of_user("ann").len(), 2);
}
