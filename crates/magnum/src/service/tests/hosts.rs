//! Clusters on hosts of the pool, by the service and the operator over the embedded API: what they cost that API, and what wakes them.

use std::time::Duration;

use api::magnum::{Host, HostSpec};
use k8s_openapi::api::core::v1::Secret;
use kube::{ResourceExt as _, api::PostParams, runtime::wait::await_condition};

use super::*;

/// What happens at once, on a loaded computer. Passes that only a timer begins come later than this.
const LIMIT: Duration = Duration::from_mins(1);

struct Pool {
    world: World,
    operating: tokio::task::JoinHandle<()>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.operating.abort();
    }
}

impl Pool {
    async fn new() -> Self {
        let mut definitions = api::magnum::definitions();
        definitions.extend(api::custom_resource_definitions());
        let (world, operating) = World::operated(&definitions).await;
        Self { world, operating }
    }

    /// A cluster with a control plane and a worker.
    async fn create(&self, name: &str) -> String {
        let template = self
            .world
            .template(MEMBER, json!({"name": name, "server_type": "bm"}));
        let body = json!({"name": name, "cluster_template_id": template.await, "node_count": 1});
        let told = self.world.ask(MEMBER, "POST", "/v1/clusters", body).await;
        assert_eq!(told.status, 202, "{told:?}");
        told.body["uuid"].as_str().unwrap().to_owned()
    }

    async fn give_host(&self, name: &str) {
        let host = Host::new(
            name,
            HostSpec {
                address: "192.0.2.1".to_owned(),
                ..HostSpec::default()
            },
        );
        self.hosts()
            .create(&PostParams::default(), &host)
            .await
            .unwrap();
    }

    async fn give_key(&self) {
        let secrets: Api<Secret> = Api::default_namespaced(self.world.client.clone());
        let secret =
            json!({"metadata": {"name": "magnum-ssh"}, "stringData": {"ssh-privatekey": "secret"}});
        let secret = serde_json::from_value(secret).unwrap();
        secrets
            .create(&PostParams::default(), &secret)
            .await
            .unwrap();
    }

    fn hosts(&self) -> Api<Host> {
        Api::default_namespaced(self.world.client.clone())
    }

    /// Waits until the reason of a cluster says this.
    async fn until_told(&self, uuid: &str, word: &str) {
        let clusters: Api<CoeCluster> = Api::namespaced(self.world.client.clone(), "magnum-p1");
        let is_told = |cluster: Option<&CoeCluster>| {
            let status = cluster.and_then(|cluster| cluster.status.as_ref());
            let reason = status.and_then(|status| status.reason.as_deref());
            reason.is_some_and(|reason| reason.contains(word))
        };
        let told = await_condition(clusters, uuid, is_told);
        let told = tokio::time::timeout(LIMIT, told).await;
        assert!(told.is_ok(), "{uuid} does not say {word}");
        told.unwrap().unwrap();
    }

    async fn until_claimed(&self, host: &str, uuid: &str) {
        let is_claimed = |host: Option<&Host>| {
            let claim = host.and_then(|host| host.spec.claim.as_ref());
            claim.is_some_and(|claim| claim.cluster == uuid)
        };
        let claimed = await_condition(self.hosts(), host, is_claimed);
        let claimed = tokio::time::timeout(LIMIT, claimed).await;
        assert!(claimed.is_ok(), "{uuid} does not claim {host}");
        claimed.unwrap().unwrap();
    }

    /// How often the API was asked for all of a kind, rather than for its changes.
    fn lists(&self, plural: &str) -> usize {
        let calls = self.world.calls.lock().unwrap();
        let is_list = |call: &&String| {
            let path = call.split('?').next().unwrap_or_default();
            call.starts_with("GET ")
                && path.ends_with(&format!("/{plural}"))
                && !call.contains("watch=")
                && !call.contains("fieldSelector=")
                && !call.contains("limit=1&")
                && !call.ends_with("limit=1")
        };
        calls.iter().filter(is_list).count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_that_wait_for_hosts_ask_for_them_no_more() {
    let pool = Pool::new().await;
    for name in ["a", "b", "c"] {
        let uuid = pool.create(name).await;
        pool.until_told(&uuid, "needs 1 more hosts").await;
    }
    // The watch began with one; kubectl's view of the pool costs nobody anything.
    assert_eq!(pool.lists("hosts"), 1);
    assert!(pool.lists("clusternodes") <= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_and_the_key_that_come_wake_whom_they_were_lacking() {
    let pool = Pool::new().await;
    let uuid = pool.create("first").await;
    pool.until_told(&uuid, "needs 1 more hosts").await;
    for host in ["one", "two"] {
        pool.give_host(host).await;
    }
    for host in ["one", "two"] {
        pool.until_claimed(host, &uuid).await;
    }
    pool.until_told(&uuid, "ssh key").await;
    pool.give_key().await;
    let namespace = crate::view::backing_namespace(&uuid);
    let clusters: Api<::api::Cluster> = Api::namespaced(pool.world.client.clone(), &namespace);
    let is_there = |cluster: Option<&::api::Cluster>| cluster.is_some();
    let made = await_condition(clusters, crate::bare_metal::NAME, is_there);
    let made = tokio::time::timeout(LIMIT, made).await;
    let made = made
        .expect("a cluster follows from its hosts and their key")
        .unwrap();
    assert_eq!(made.unwrap().name_any(), crate::bare_metal::NAME);
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_are_counted_without_being_read() {
    let world = World::new().await;
    for name in ["a", "b", "c"] {
        world.cluster(MEMBER, name).await;
    }
    let template = world.template(MEMBER, json!({"name": "more"})).await;
    let body = json!({"name": "d", "cluster_template_id": template});
    let told = world.ask(MEMBER, "POST", "/v1/clusters", body).await;
    assert_fault(&told, 403);
    let calls = world.calls.lock().unwrap().clone();
    let mut counts = calls
        .iter()
        .filter(|call| call.starts_with("GET ") && call.contains("/coeclusters"));
    assert!(counts.all(|call| call.contains("limit=1")), "{calls:?}");
}
