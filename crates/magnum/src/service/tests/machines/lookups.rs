//! What servers are made of is looked up by the token of who asks, in a cloud that has little.

use std::collections::BTreeSet;

use ::api::magnum::NOTICE_ANNOTATION;
use axum::{extract::Path, routing::get};
use tokio::net::TcpListener;

use super::*;

mod changes;

const IMAGE: &str = "1b8a0b66-8f6f-4a3d-9f2a-6a7d0d0b7c11";
const DENIED: &str = "1b8a0b66-8f6f-4a3d-9f2a-6a7d0d0b7c12";

/// What is there no more, by its name.
type Gone = Arc<Mutex<BTreeSet<&'static str>>>;

/// Nova, Glance and Neutron, as far as they are asked. They know members of the project alone.
async fn openstack() -> String {
    openstack_without(&Gone::default()).await
}

async fn openstack_without(gone: &Gone) -> String {
    let flavors = json!({"flavors": [
        {"id": "1", "name": "m1.large", "disk": 40}, {"id": "2", "name": "diskless", "disk": 0},
    ]});
    let images = json!({"images": [
        {"id": IMAGE, "name": "ubuntu"}, {"id": "i2", "name": "double"}, {"id": "i3", "name": "double"},
        {"id": "i4", "name": "ubuntu-next"}, {"id": "i5", "name": "told", "kube_version": "v1.33.5"},
        {"id": "i6", "name": "mistold", "kube_version": "latest"}, {"id": "i7", "name": "older", "kube_version": "v1.31.0"},
        {"id": "i8", "name": "newer", "kube_version": "v1.34.1"}, {"id": "i9", "name": "newest", "kube_version": "v1.36.0"},
    ]});
    let networks = json!({"networks": [
        {"id": "n1", "name": "public", "router:external": true}, {"id": "n2", "name": "inside", "router:external": false},
        {"id": "n3", "name": "twin", "router:external": false}, {"id": "n4", "name": "twin", "router:external": false},
    ]});
    let subnets = json!({"subnets": [{"id": "s1", "name": "low"}]});
    let lists = [
        ("/compute/v2.1/flavors/detail", flavors),
        ("/image/v2/images", images),
        ("/network/v2.0/networks", networks),
        ("/network/v2.0/subnets", subnets),
    ];
    let told = |status: u16, body: &Value| {
        let response = Response::builder().status(status);
        response.body(Body::from(body.to_string())).unwrap()
    };
    let mut router = Router::new()
        .route(
            "/compute/v2.1/os-keypairs/{name}",
            get(
                move |Path(name): Path<String>, headers: HeaderMap| async move {
                    let is_ann = headers["x-auth-token"].to_str().unwrap() == MEMBER;
                    let is_there = is_ann && name == "a key/of mine";
                    let status = if is_there { 200 } else { 404 };
                    told(
                        status,
                        &json!({"itemNotFound": {"message": "Keypair not found"}}),
                    )
                },
            ),
        )
        .route(
            "/image/v2/images/{id}",
            get(move |Path(id): Path<String>| async move {
                let status = match id.as_str() {
                    IMAGE => 200,
                    DENIED => 403,
                    _ => 404,
                };
                told(status, &json!({"id": id}))
            }),
        );
    for (path, list) in lists {
        let gone = Arc::clone(gone);
        let list = get(move |headers: HeaderMap| async move {
            let is_member = headers["x-auth-token"].to_str().unwrap().starts_with("p1:");
            let mut list = list;
            for all in list.as_object_mut().unwrap().values_mut() {
                let gone = gone.lock().unwrap();
                let is_there = |one: &Value| !gone.contains(one["name"].as_str().unwrap());
                all.as_array_mut().unwrap().retain(is_there);
            }
            told(if is_member { 200 } else { 401 }, &list)
        });
        router = router.route(path, list);
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    format!("http://{address}")
}

#[tokio::test]
async fn what_servers_are_made_of_is_there_before_anything_is_made() {
    let world = World::new().await;
    let cloud = openstack().await;
    for (kind, path) in [
        ("compute", "compute/v2.1"),
        // As installers put them into catalogues: with a version and without.
        ("image", "image"),
        ("network", "network/"),
    ] {
        world.keystone.offer(kind, &format!("{cloud}/{path}"));
    }
    let good = json!({
        "name": "of-servers", "server_type": "vm", "image_id": "ubuntu", "flavor_id": "m1.large",
        "external_network_id": "public", "labels": {"kube_tag": "v1.34.3"},
    });
    let with = |member: &str, value: &str| {
        let mut changed = good.clone();
        changed[member] = json!(value);
        template(changed)
    };
    for (member, value, status, words) in [
        ("image_id", "gone", 400, "Image gone could not be found."),
        ("image_id", DENIED, 403, "Not authorized for image"),
        (
            "image_id",
            "double",
            409,
            "Multiple images exist with same name 'double'. Please use the image ID instead.",
        ),
        ("flavor_id", "gone", 400, "Unable to find flavor gone."),
        (
            "master_flavor_id",
            "gone",
            400,
            "Unable to find flavor gone.",
        ),
        (
            "flavor_id",
            "diskless",
            400,
            "Flavor with zero root volume size is not supported",
        ),
        (
            "external_network_id",
            "gone",
            400,
            "Unable to find external network gone.",
        ),
        (
            "external_network_id",
            "inside",
            400,
            "Unable to find external network inside.",
        ),
        (
            "fixed_network",
            "gone",
            400,
            "Unable to find fixed network gone.",
        ),
        (
            "fixed_network",
            "twin",
            409,
            "Multiple networks exist with same name 'twin'. Please use the network ID instead.",
        ),
        (
            "fixed_subnet",
            "gone",
            400,
            "Unable to find fixed subnet gone.",
        ),
    ] {
        let told = world
            .ask(MEMBER, "POST", "/v1/clustertemplates", with(member, value))
            .await;
        assert_fault(&told, status);
        let detail = told.body["errors"][0]["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{member}: {detail}");
    }
    let of = world.template(MEMBER, good.clone()).await;
    world
        .template(
            MEMBER,
            json!({"name": "by-id", "server_type": "vm", "image_id": IMAGE, "flavor_id": "1"}),
        )
        .await;
    for (member, value, status, words) in [
        ("keypair", "gone", 404, "Unable to find keypair gone."),
        ("flavor_id", "gone", 400, "Unable to find flavor gone."),
        (
            "fixed_network",
            "gone",
            400,
            "Unable to find fixed network gone.",
        ),
    ] {
        let mut body = json!({"name": "first", "cluster_template_id": of});
        body[member] = json!(value);
        let told = world.ask(MEMBER, "POST", "/v1/clusters", body).await;
        assert_fault(&told, status);
        let detail = told.body["errors"][0]["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{member}: {detail}");
    }
    let body = json!({
        "name": "first", "cluster_template_id": of, "keypair": "a key/of mine", "fixed_network": "inside", "fixed_subnet": "low",
    });
    let made = world.ask(MEMBER, "POST", "/v1/clusters", body).await;
    assert_eq!(made.status, 202, "{made:?}");
    let uuid = made.body["uuid"].as_str().unwrap();
    world.tell(uuid, "CREATE_COMPLETE").await;
    let groups = format!("/v1/clusters/{uuid}/nodegroups");
    let group = json!({"name": "gpu", "flavor_id": "gone"});
    let told = world.ask(MEMBER, "POST", &groups, group).await;
    assert_fault(&told, 400);
    world
        .keystone
        .offer("identity", "https://identity.example:5000/v3");
    let credential = format!("/v1/credentials/{uuid}");
    let told = world
        .ask("p1:joe:member", "PATCH", &credential, Value::Null)
        .await;
    assert_fault(&told, 400);
    let detail = told.body["errors"][0]["detail"].as_str().unwrap();
    assert!(
        detail.contains("make a key pair a key/of mine first"),
        "{detail}"
    );
    assert!(world.keystone.credentials().is_empty());
    let rotated = world.ask(MEMBER, "PATCH", &credential, Value::Null).await;
    assert_eq!(rotated.status, 202, "{rotated:?}");
    // Everything was looked up, so there is nothing to tell.
    let clusters: Api<CoeCluster> = Api::namespaced(world.client.clone(), "magnum-p1");
    let stored = clusters.get(uuid).await.unwrap();
    assert!(!stored.annotations().contains_key(NOTICE_ANNOTATION));
    // On hosts a flavor is whatever the pool says.
    world
        .template(MEMBER, json!({"name": "hosts", "flavor_id": "gone"}))
        .await;
}

/// As images are for magnum-capi-helm: the label is not used there.
#[tokio::test]
async fn the_version_of_kubernetes_may_stand_in_the_image() {
    let world = World::new().await;
    let cloud = openstack().await;
    world.keystone.offer("image", &format!("{cloud}/image"));
    let template = async |image: &str| {
        let more =
            json!({"name": image, "server_type": "vm", "image_id": image, "flavor_id": "m1.large"});
        world.template(MEMBER, more).await
    };
    let create = async |image: &str, more: Value| {
        let mut body = json!({"name": image, "cluster_template_id": template(image).await});
        body["labels"] = more;
        world.ask(MEMBER, "POST", "/v1/clusters", body).await
    };
    let made = create("told", json!({"colour": "red"})).await;
    assert_eq!(made.status, 202, "{made:?}");
    let path = format!("/v1/clusters/{}", made.body["uuid"].as_str().unwrap());
    let shown = world.get(MEMBER, &path).await.body;
    assert_eq!(
        shown["labels"],
        json!({"colour": "red", "kube_tag": "v1.33.5"})
    );
    // What somebody says themselves stands.
    let made = create("mistold", json!({"kube_tag": "v1.34.3"})).await;
    assert_eq!(made.status, 202, "{made:?}");
    for (image, words) in [
        (
            "mistold",
            "The property kube_version of image mistold is \"latest\", which is no version",
        ),
        ("ubuntu", "or give the image the property kube_version"),
    ] {
        refused(&create(image, json!({})).await, words);
    }

    // So it is where a cluster is upgraded to a template that says none.
    let uuid = shown["uuid"].as_str().unwrap();
    world.tell(uuid, "CREATE_COMPLETE").await;
    let upgrade = async |image: &str, more: Value| {
        let mut body = json!({"cluster_template": template(image).await});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let path = format!("{path}/actions/upgrade");
        world.ask(MEMBER, "POST", &path, body).await
    };
    let alone = json!({"nodegroup": "default-worker"});
    for (image, more, words) in [
        ("older", json!({}), "can not be brought back to 1.31.0"),
        ("older", alone.clone(), "can not be brought back to 1.31.0"),
        ("newest", json!({}), "can not be brought to 1.36.0 at once"),
        ("newer", alone, "can not be brought to Kubernetes 1.34.1"),
        ("mistold", json!({}), "which is no version of Kubernetes"),
    ] {
        refused(&upgrade(image, more).await, words);
    }
    let done = upgrade("newer", json!({})).await;
    assert_eq!(done.status, 202, "{done:?}");
    let clusters: Api<CoeCluster> = Api::namespaced(world.client.clone(), "magnum-p1");
    let stored = clusters.get(uuid).await.unwrap();
    assert_eq!(stored.spec.labels["kube_tag"], "v1.34.1");
    let told = stored.spec.kubernetes_version.unwrap().to_string();
    assert_eq!(told, "1.34.1");
    // Each group was changed, and says so.
    let groups = &stored.spec.node_groups;
    assert!(groups.iter().all(|group| group.updated_at.is_some()));
}

#[tokio::test]
async fn a_service_that_is_not_in_the_catalogue_is_not_asked_and_one_that_is_down_is_told() {
    let world = World::new().await;
    let cloud = openstack().await;
    world
        .keystone
        .offer("compute", &format!("{cloud}/compute/v2.1"));
    let more = json!({
        "name": "small", "server_type": "vm", "image_id": "gone", "flavor_id": "m1.large", "labels": {"kube_tag": "v1.34.3"},
    });
    let of = world.template(MEMBER, more.clone()).await;
    let body = json!({"name": "first", "cluster_template_id": of});
    let made = world.ask(MEMBER, "POST", "/v1/clusters", body).await;
    assert_eq!(made.status, 202, "{made:?}");
    let clusters: Api<CoeCluster> = Api::namespaced(world.client.clone(), "magnum-p1");
    let stored = clusters
        .get(made.body["uuid"].as_str().unwrap())
        .await
        .unwrap();
    let notice = &stored.annotations()[NOTICE_ANNOTATION];
    assert!(notice.ends_with("image, network"), "{notice}");

    // Nothing listens there.
    world.keystone.offer("image", "http://127.0.0.1:1");
    let told = world
        .ask(MEMBER, "POST", "/v1/clustertemplates", template(more))
        .await;
    assert_eq!(told.status, 503, "{told:?}");
    let detail = told.body["errors"][0]["detail"].as_str().unwrap();
    assert_eq!(
        detail,
        "Glance does not answer as it should; try again later."
    );
}
