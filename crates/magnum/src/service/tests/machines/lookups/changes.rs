//! Where a cluster or a template changes, what new servers are made of is looked up, and nothing else.

use super::*;

/// A complete cluster of two workers, in a cloud that has all of it.
struct Changing {
    world: World,
    gone: Gone,
    uuid: String,
    /// Of the next version, with another image.
    newer: String,
}

impl Changing {
    async fn new() -> Self {
        let world = World::new().await;
        let gone = Gone::default();
        let cloud = openstack_without(&gone).await;
        for (kind, path) in [
            ("compute", "compute/v2.1"),
            ("image", "image"),
            ("network", "network"),
        ] {
            world.keystone.offer(kind, &format!("{cloud}/{path}"));
        }
        let mut templates = Vec::new();
        for (version, image) in [("v1.34.3", "ubuntu"), ("v1.35.0", "ubuntu-next")] {
            let more = json!({
                "name": version, "server_type": "vm", "image_id": image, "flavor_id": "m1.large",
                "external_network_id": "public", "labels": {"kube_tag": version},
            });
            templates.push(world.template(MEMBER, more).await);
        }
        let body = json!({"name": "first", "cluster_template_id": templates[0], "node_count": 2});
        let made = world.ask(MEMBER, "POST", "/v1/clusters", body).await;
        assert_eq!(made.status, 202, "{made:?}");
        let uuid = made.body["uuid"].as_str().unwrap().to_owned();
        world.tell(&uuid, "CREATE_COMPLETE").await;
        Self {
            world,
            gone,
            uuid,
            newer: templates.remove(1),
        }
    }

    fn lose(&self, name: &'static str) {
        self.gone.lock().unwrap().insert(name);
    }

    fn find(&self) {
        self.gone.lock().unwrap().clear();
    }

    async fn ask(&self, token: &str, method: &str, below: &str, body: Value) -> Told {
        let path = format!("/v1/clusters/{}{below}", self.uuid);
        self.world.ask(token, method, &path, body).await
    }

    async fn spec(&self) -> Value {
        let clusters: Api<CoeCluster> = Api::namespaced(self.world.client.clone(), "magnum-p1");
        json!(clusters.get(&self.uuid).await.unwrap().spec)
    }

    /// It is refused, and nothing has changed.
    async fn is_refused(&self, method: &str, below: &str, body: Value, words: &str) {
        let before = self.spec().await;
        let told = self.ask(MEMBER, method, below, body).await;
        assert_fault(&told, 400);
        let detail = told.body["errors"][0]["detail"].as_str().unwrap();
        assert_eq!(detail, words, "{method} {below}");
        assert_eq!(self.spec().await, before, "{method} {below}");
    }

    async fn is_done(&self, token: &str, method: &str, below: &str, body: Value) {
        let told = self.ask(token, method, below, body).await;
        assert_eq!(told.status, 202, "{method} {below}: {told:?}");
        self.world.tell(&self.uuid, "UPDATE_COMPLETE").await;
    }
}

fn patch(path: &str, value: impl Into<Value>) -> Value {
    let value: Value = value.into();
    json!([{"op": "replace", "path": path, "value": value}])
}

#[tokio::test]
async fn what_more_servers_are_made_of_is_there_before_a_cluster_changes() {
    let changing = Changing::new().await;
    changing.lose("m1.large");
    let words = "Unable to find flavor m1.large.";
    let workers = "/nodegroups/default-worker";
    let more = patch("/node_count", 3);
    let resize = json!({"node_count": 3});
    let labelled = patch("/node_labels", json!({"example.com/disk": "fast"}));
    let group = json!({"name": "more", "node_count": 0});
    for (method, below, body) in [
        ("PATCH", "", more.clone()),
        ("POST", "/actions/resize", resize),
        ("PATCH", workers, labelled.clone()),
        ("POST", "/nodegroups", group),
    ] {
        changing.is_refused(method, below, body, words).await;
    }
    // What cannot be done anyhow is told as that.
    let least = patch("/min_node_count", 9);
    let told = changing.ask(MEMBER, "PATCH", workers, least).await;
    assert_fault(&told, 409);

    // Nothing is made of it: it is not asked for.
    let health = patch("/health_status", "HEALTHY");
    let fewer = patch("/node_count", 1);
    changing.is_done(MEMBER, "PATCH", "", health).await;
    changing.is_done(MEMBER, "PATCH", "", fewer).await;
    let bounds = patch("/max_node_count", 5);
    changing.is_done(MEMBER, "PATCH", workers, bounds).await;
    // Nor is it where whoever asks sees another project's cloud.
    changing.is_done(ADMIN, "PATCH", "", more.clone()).await;

    changing.find();
    changing.is_done(MEMBER, "PATCH", workers, labelled).await;
    let most = patch("/node_count", 4);
    changing.is_done(MEMBER, "PATCH", "", most).await;
    assert_eq!(changing.spec().await["nodeGroups"][1]["nodeCount"], 4);
}

#[tokio::test]
async fn an_upgrade_begins_where_all_is_there_that_it_makes_servers_of() {
    let changing = Changing::new().await;
    let upgrade = json!({"cluster_template": changing.newer});
    let of_masters = json!({"cluster_template": changing.newer, "nodegroup": "default-master"});
    let path = "/actions/upgrade";
    for (lost, words) in [
        ("ubuntu-next", "Image ubuntu-next could not be found."),
        ("m1.large", "Unable to find flavor m1.large."),
    ] {
        changing.lose(lost);
        for body in [&upgrade, &of_masters] {
            changing.is_refused("POST", path, body.clone(), words).await;
        }
        changing.find();
    }
    changing.is_done(MEMBER, "POST", path, of_masters).await;
    // Workers keep their image until they follow; that of before is used no more then.
    changing.lose("ubuntu");
    changing.is_done(MEMBER, "POST", path, upgrade).await;
    for group in changing.spec().await["nodeGroups"].as_array().unwrap() {
        assert_eq!(group["imageId"], "ubuntu-next");
    }
}

#[tokio::test]
async fn a_service_that_is_down_holds_up_what_makes_servers_alone() {
    let world = World::new().await;
    let template = json!({"name": "t", "server_type": "vm", "flavor_id": "m1", "labels": {"kube_tag": "v1.34.3"}});
    let template = world.template(MEMBER, template).await;
    let body = json!({"name": "first", "cluster_template_id": template, "node_count": 2});
    let made = world.ask(MEMBER, "POST", "/v1/clusters", body).await;
    let path = format!("/v1/clusters/{}", made.body["uuid"].as_str().unwrap());
    let uuid = made.body["uuid"].as_str().unwrap();
    world.tell(uuid, "CREATE_COMPLETE").await;
    // Nothing listens there.
    world.keystone.offer("compute", "http://127.0.0.1:1");
    for (count, status) in [(3, 503), (1, 202)] {
        let body = patch("/node_count", count);
        let told = world.ask(MEMBER, "PATCH", &path, body).await;
        assert_eq!(told.status, status, "{told:?}");
    }
}

#[tokio::test]
async fn a_template_is_looked_up_where_it_names_something_else() {
    let changing = Changing::new().await;
    let more = json!({
        "name": "free", "server_type": "vm", "image_id": "ubuntu", "flavor_id": "m1.large", "external_network_id": "public",
    });
    let world = &changing.world;
    let path = format!(
        "/v1/clustertemplates/{}",
        world.template(MEMBER, more).await
    );
    for (member, value, words) in [
        ("flavor_id", "gone", "Unable to find flavor gone."),
        ("image_id", "gone", "Image gone could not be found."),
        (
            "external_network_id",
            "inside",
            "Unable to find external network inside.",
        ),
    ] {
        let body = patch(&format!("/{member}"), value);
        let told = world.ask(MEMBER, "PATCH", &path, body).await;
        assert_fault(&told, 400);
        assert_eq!(told.body["errors"][0]["detail"], words);
    }
    changing.lose("ubuntu");
    for (member, value) in [
        ("name", json!("kept")),
        ("http_proxy", json!("http://p:3128")),
    ] {
        let op = if member == "name" { "replace" } else { "add" };
        let body = json!([{"op": op, "path": format!("/{member}"), "value": value}]);
        let told = world.ask(MEMBER, "PATCH", &path, body).await;
        assert_eq!(told.status, 200, "{member}: {told:?}");
    }
    let shown = world.get(MEMBER, &path).await.body;
    assert_eq!(
        (&shown["name"], &shown["flavor_id"]),
        (&json!("kept"), &json!("m1.large"))
    );
}
