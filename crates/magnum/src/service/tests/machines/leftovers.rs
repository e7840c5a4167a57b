//! What the users of a cluster made in the cloud goes with it, or stays, as its labels say.

use tokio::net::TcpListener;

use super::*;

/// Octavia, Neutron and Cinder: what they have, by the name of its list.
#[derive(Clone, Default)]
struct Things(Arc<Mutex<Vec<(&'static str, Value)>>>);

impl Things {
    fn have(&self, list: &'static str, thing: Value) {
        self.0.lock().unwrap().push((list, thing));
    }

    fn has(&self, id: &str) -> bool {
        let all = self.0.lock().unwrap();
        all.iter().any(|(_, thing)| thing["id"] == id)
    }

    /// Lets nobody list load balancers.
    fn deny(&self) {
        self.have("denied", Value::Null);
    }

    fn is_denied(&self) -> bool {
        let all = self.0.lock().unwrap();
        all.iter().any(|(list, _)| *list == "denied")
    }

    fn set(&self, id: &str, status: &str) {
        for (_, thing) in self.0.lock().unwrap().iter_mut() {
            if thing["id"] == id {
                thing["provisioning_status"] = json!(status);
            }
        }
    }

    /// Serves them, and puts them into the catalogue.
    async fn offered(self, keystone: &Vouching) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(self);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        for (kind, path) in [
            ("load-balancer", "balance"),
            ("network", "network"),
            ("volumev3", "volume/v3/p1"),
        ] {
            keystone.offer(kind, &format!("http://{address}/{path}"));
        }
    }
}

async fn answer(State(things): State<Things>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let project = request.uri().query().unwrap_or_default();
    let is_of_project = project.contains("project_id=p1");
    let list = match path.as_str() {
        "/balance/v2/lbaas/loadbalancers" if things.is_denied() => {
            let message = json!({"faultstring": "Policy does not allow this request"});
            let denied = Response::builder().status(403);
            return denied.body(Body::from(message.to_string())).unwrap();
        }
        "/balance/v2/lbaas/loadbalancers" => "loadbalancers",
        "/network/v2.0/floatingips" => "floatingips",
        "/volume/v3/p1/volumes/detail" => "volumes",
        path => {
            assert_eq!(*request.method(), Method::DELETE, "{path}");
            let mut all = things.0.lock().unwrap();
            let is_balancer = path.starts_with("/balance/");
            assert_eq!(is_balancer, request.uri().query() == Some("cascade=true"));
            all.retain(|(_, thing)| {
                !path.ends_with(&format!("/{}", thing["id"].as_str().unwrap()))
            });
            return Response::builder().status(204).body(Body::empty()).unwrap();
        }
    };
    assert!(is_of_project || list == "volumes", "{project}");
    let all = things.0.lock().unwrap();
    let found = all.iter().filter(|(of, _)| *of == list);
    let found: Vec<_> = found.map(|(_, thing)| thing.clone()).collect();
    Response::new(Body::from(json!({list: found}).to_string()))
}

fn balancer(id: &str, cluster: &str, network: &str) -> Value {
    json!({
        "id": id, "description": format!("Kubernetes external service default/web from cluster {cluster}"),
        "vip_network_id": network, "vip_port_id": format!("port-of-{id}"), "provisioning_status": "ACTIVE",
    })
}

fn volume(id: &str, cluster: &str) -> Value {
    json!({"id": id, "status": "available", "metadata": {"cinder.csi.openstack.org/cluster": cluster}})
}

impl Cloud {
    /// A complete cluster with these labels, in a network of its own.
    async fn with_network(&self, labels: Value) -> String {
        let keystone = &self.world.keystone;
        keystone.offer("identity", "https://identity.example:5000/v3");
        let template = self.template("small", "v1.34.3", "ubuntu").await;
        let body = json!({
            "name": "first", "cluster_template_id": template, "labels": labels, "merge_labels": true,
        });
        let told = self.ask("POST", "/v1/clusters", body).await;
        let uuid = told["uuid"].as_str().unwrap().to_owned();
        self.until_state(&uuid, "CREATE_COMPLETE").await;
        let network = json!({"status": {"network": {"id": "own"}}});
        let name = format!("k8s-{}", &uuid[..8]);
        self.patch(&uuid, Kind::Infrastructure, &name, network)
            .await;
        uuid
    }

    /// Begins to delete it; its machines are gone, its network is not.
    async fn leaves(&mut self, uuid: &str) {
        self.clings = true;
        let path = format!("/v1/clusters/{uuid}");
        self.ask("DELETE", &path, Value::Null).await;
        // Until then others would be made.
        let goes = tokio::time::timeout(LIMIT, async {
            while self
                .all(uuid, Kind::Cluster)
                .await
                .iter()
                .any(|one| one.metadata.deletion_timestamp.is_none())
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        goes.await.expect("the Cluster is deleted");
        for machine in self.all(uuid, Kind::Machine).await {
            self.take(uuid, &machine.name_any()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_balancers_go_with_their_cluster_and_its_data_stays() {
    let mut cloud = Cloud::new(&Kind::ALL).await;
    let uuid = cloud.with_network(json!({})).await;
    let name = format!("k8s-{}", &uuid[..8]);
    let things = Things::default();
    things.have("loadbalancers", balancer("near", "kubernetes", "own"));
    things.have("loadbalancers", balancer("named", &name, "other"));
    things.have("loadbalancers", balancer("foreign", "kubernetes", "other"));
    things.set("near", "PENDING_UPDATE");
    for (id, said) in [
        (
            "made",
            "Floating IP for Kubernetes external service default/web from cluster kubernetes",
        ),
        (
            "lent",
            "Floating IP for Kubernetes external service default/other from cluster kubernetes",
        ),
        ("brought", ""),
    ] {
        things.have(
            "floatingips",
            json!({"id": id, "port_id": "port-of-near", "description": said}),
        );
    }
    things.have("volumes", volume("data", &name));
    things.clone().offered(&cloud.world.keystone).await;
    cloud.leaves(&uuid).await;
    let held = cloud
        .until(
            &uuid,
            "it waits for a load balancer that is changed",
            |cluster| {
                let reason = cluster.and_then(|cluster| cluster["status_reason"].as_str());
                reason.is_some_and(|reason| reason.contains("load balancer near"))
                    && !things.has("named")
            },
        )
        .await;
    assert_eq!(held["status"], "DELETE_IN_PROGRESS");
    assert!(things.has("near") && things.has("made"));
    things.set("near", "ACTIVE");
    cloud
        .until(&uuid, "its load balancers go", |_| {
            !things.has("near") && !things.has("made")
        })
        .await;
    cloud.clings = false;
    cloud
        .until(&uuid, "it is gone", |cluster| cluster.is_none())
        .await;
    for id in ["foreign", "brought", "lent", "data"] {
        assert!(things.has(id), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_go_with_their_cluster_where_its_labels_say_so_and_load_balancers_need_not() {
    let mut cloud = Cloud::new(&Kind::ALL).await;
    let labels = json!({"delete_volumes": "true", "delete_load_balancers": "false"});
    let uuid = cloud.with_network(labels).await;
    let things = Things::default();
    things.have("loadbalancers", balancer("near", "kubernetes", "own"));
    things.have("volumes", volume("data", &uuid));
    things.have("volumes", volume("foreign", "kubernetes"));
    things.clone().offered(&cloud.world.keystone).await;
    cloud.leaves(&uuid).await;
    cloud.clings = false;
    cloud
        .until(&uuid, "it is gone", |cluster| cluster.is_none())
        .await;
    assert!(!things.has("data"));
    for id in ["near", "foreign"] {
        assert!(things.has(id), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_could_not_be_let_go_is_let_go_later_though_its_credential_is_gone() {
    let mut cloud = Cloud::new(&Kind::ALL).await;
    let uuid = cloud.with_network(json!({})).await;
    let things = Things::default();
    things.clone().offered(&cloud.world.keystone).await;
    cloud.leaves(&uuid).await;
    *cloud.world.failing.lock().unwrap() = Some(("PATCH", format!("/coeclusters/{uuid}")));
    cloud.clings = false;
    cloud
        .until(&uuid, "it is gone", |cluster| cluster.is_none())
        .await;
    assert!(cloud.world.failing.lock().unwrap().is_none());
    assert!(cloud.world.keystone.credentials().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_that_another_cluster_uses_stays_and_is_told() {
    let mut cloud = Cloud::new(&Kind::ALL).await;
    let uuid = cloud.with_network(json!({})).await;
    let name = format!("k8s-{}", &uuid[..8]);
    let things = Things::default();
    for (id, network) in [("near", "own"), ("far", "other")] {
        let mut shared = balancer(id, &name, network);
        shared["tags"] = json!([
            format!("kube_service_{name}_default_web"),
            "kube_service_k8s-fedcba98_default_web",
        ]);
        things.have("loadbalancers", shared);
    }
    let mut own = balancer("own", &name, "own");
    own["tags"] = json!([format!("kube_service_{name}_default_web")]);
    things.have("loadbalancers", own);
    things.clone().offered(&cloud.world.keystone).await;
    cloud.leaves(&uuid).await;
    cloud
        .until(&uuid, "it says what holds it", |cluster| {
            let reason = cluster.and_then(|cluster| cluster["status_reason"].as_str());
            let words = "load balancer near, which Services of other clusters use (k8s-fedcba98)";
            reason.is_some_and(|reason| reason.contains(words)) && !things.has("own")
        })
        .await;
    cloud.clings = false;
    cloud
        .until(&uuid, "it is gone", |cluster| cluster.is_none())
        .await;
    assert!(things.has("near") && things.has("far"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_list_no_load_balancers_can_delete_a_cluster() {
    let mut cloud = Cloud::new(&Kind::ALL).await;
    let uuid = cloud.with_network(json!({})).await;
    let things = Things::default();
    things.deny();
    things.clone().offered(&cloud.world.keystone).await;
    cloud.leaves(&uuid).await;
    cloud
        .until(&uuid, "it says what it did not look for", |cluster| {
            let reason = cluster.and_then(|cluster| cluster["status_reason"].as_str());
            reason.is_some_and(|reason| reason.contains("load balancers, for user ann may not"))
        })
        .await;
    cloud.clings = false;
    cloud
        .until(&uuid, "it is gone", |cluster| cluster.is_none())
        .await;
}
