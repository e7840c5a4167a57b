//! What must not happen to a cluster is refused before a host is touched, and what is mended is seen at once.

use api::{Cluster, ClusterNode, Run, cluster::ClusterState};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::world::{World, condition, is};

impl World {
    /// A cluster that a run has built, as far as the API can tell.
    pub async fn built(&self) {
        self.built_as(json!({})).await;
    }

    /// A cluster that is built as a spec says.
    pub async fn built_as(&self, spec: Value) {
        self.three_nodes().await;
        self.cluster("first", spec).await;
        let run = self.run_until(1).await.remove(0);
        self.run_status(&run, json!({"phase": "Succeeded"})).await;
        self.until("first", "is built", |cluster| {
            let status = cluster.status.as_ref();
            status.is_some_and(|status| status.state == Some(ClusterState::Created))
        })
        .await;
    }

    /// Waits until the cluster stalls with all of the words.
    async fn stalls(&self, words: &[&str]) -> Cluster {
        self.until("first", "stalls", |cluster| {
            let message = condition(cluster, "Stalled").map_or("", |stalled| stalled.2);
            is(cluster, "Stalled", "InvalidSpec") && words.iter().all(|word| message.contains(word))
        })
        .await
    }

    /// Has the operator look at the cluster.
    async fn look(&self) {
        let patch = json!({"metadata": {"annotations": {"example.com/look": "now"}}});
        let clusters = self.all::<Cluster>();
        let parameters = PatchParams::default();
        clusters
            .patch("first", &parameters, &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    /// Stores a Secret of one key.
    async fn secret(&self, name: &str, key: &str, text: &str) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {key: text},
        });
        self.apply::<Secret>(name, secret).await;
    }

    /// Waits until the cluster stalls with all of the words, and proves that nothing else came of it.
    async fn refused(&self, words: &[&str]) {
        let stalled = self.stalls(words).await;
        let status = stalled.status.unwrap();
        let runs = self.all::<Run>().list(&ListParams::default()).await;
        let shown =
            serde_json::to_string_pretty(&(&status, &runs.unwrap().items[0].status)).unwrap();
        assert_eq!(status.kubernetes_version.unwrap().to_string(), "1.34.4");
        assert_eq!(status.state, Some(ClusterState::Created), "{shown}");
        let runs = self.all::<Run>().list(&ListParams::default()).await;
        assert_eq!(runs.unwrap().items.len(), 1, "a refusal starts no run");
    }

    async fn goes_on(&self) {
        self.until("first", "goes on", |cluster| {
            condition(cluster, "Stalled").is_none()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skipped_minor_is_refused_and_the_built_version_stays() {
    let world = World::start().await;
    world.built().await;
    world
        .cluster("first", json!({"kubernetesVersion": "1.36.0"}))
        .await;
    world
        .refused(&[
            "Cluster spec.kubernetesVersion",
            "1.36.0",
            "more than one minor version after the installed 1.34.4",
            "write a version of 1.35",
        ])
        .await;
    world.cluster("first", json!({})).await;
    world.goes_on().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_of_the_inventory_can_neither_go_nor_move() {
    let world = World::start().await;
    world.built().await;
    world.lose("master-1").await;
    world
        .refused(&[
            "ClusterNode/master-1",
            "missing",
            "head of etcd",
            "restore the ClusterNode master-1",
        ])
        .await;
    // Another host in its place is no remedy.
    world.node("master-2", "master", "10.0.0.9").await;
    world
        .refused(&["ClusterNode/master-1", "head of kube_control_plane"])
        .await;
    world.delete::<ClusterNode>("master-2").await;
    world.node("master-1", "master", "10.0.0.1").await;
    world.goes_on().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrected_secret_lets_the_cluster_go_on_within_seconds() {
    let world = World::start().await;
    world.three_nodes().await;
    let reference = json!({"ssh": {"privateKeySecretRef": {"name": "ssh"}}});
    world.cluster("first", reference).await;
    let says = async |words: &str| {
        world
            .until("first", words, |cluster| {
                let message = condition(cluster, "Stalled").map_or("", |stalled| stalled.2);
                message.contains(words)
            })
            .await;
    };
    let store = async |key: &str, text: &str| world.secret("ssh", key, text).await;
    // Each is seen within the patience of `until`, which is far shorter than the wait of a stalled cluster.
    says("no such Secret").await;
    store("id_rsa", "x").await;
    says("it has: id_rsa").await;
    store("ssh-privatekey", "ssh-ed25519 AAAA").await;
    says("not a private key").await;
    world.delete::<Secret>("ssh").await;
    says("no such Secret").await;
    store(
        "ssh-privatekey",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n",
    )
    .await;
    assert_eq!(
        world.run_until(1).await[0].name_any(),
        "first-create-1",
        "the cluster goes on"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_hosts_come_from_a_secret_as_soon_as_it_holds_some() {
    let world = World::start().await;
    world.three_nodes().await;
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHnd6aeKrvIUDCL0vxzx2mIJvGXxeoMFlzEQfKzPcMBy";
    let field = "spec.ssh.knownHosts";
    let own = json!({"ssh": {"knownHosts": "10.0.0.1 ssh-ed25519\n"}});
    world.cluster("first", own).await;
    world
        .stalls(&[field, "line 1", "HOSTS TYPE KEY", "ssh-keyscan"])
        .await;
    let reference = json!({"ssh": {"knownHostsSecretRef": {"name": "hosts"}}});
    world.cluster("first", reference.clone()).await;
    let field = "spec.ssh.knownHostsSecretRef";
    let create = "kubectl -n demo create secret generic hosts --from-file=known_hosts";
    world.stalls(&[field, "no such Secret", create]).await;
    for (text, said) in [
        ("# none\n", "holds no key of a host"),
        (
            "10.0.0.1 ssh-ed25519 AAAA\n",
            "line 1 of the value in Secret hosts",
        ),
    ] {
        world.secret("hosts", "known_hosts", text).await;
        world.stalls(&[field, said, "ssh-keyscan"]).await;
    }
    world
        .secret("hosts", "known_hosts", &format!("10.0.0.1 {key}\n"))
        .await;
    let run = world.run_until(1).await.remove(0);
    let ssh = &run.spec.plan.inputs["ssh"];
    assert_eq!(ssh["knownHostsSecret"]["name"], "hosts");
    assert!(
        ssh.get("knownHosts").is_none(),
        "the keys stay where they are"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_come_from_secrets_and_no_plan_or_status_holds_their_values() {
    const SECRET: &str = "Xq7Vw9Kp3";
    let world = World::start().await;
    world.three_nodes().await;
    let deploy = json!({
        "extraVarsSecretRef": {"name": "vars", "key": "vars.yml"},
        "extraVars": {"registry": {"token": {"secretKeyRef": {"name": "token", "key": "token"}}}},
    });
    let spec = json!({"nodes": {"all": {"deploy": deploy}}});
    world.cluster("first", spec).await;
    let missing = [
        "extraVars.registry.token.secretKeyRef.name is \"token\"",
        "--from-file=vars.yml=PATH",
    ];
    world.stalls(&missing).await;
    world.secret("token", "token", SECRET).await;
    let reserved = format!("{{kube_version: {SECRET}}}");
    world.secret("vars", "vars.yml", &reserved).await;
    world.stalls(&["write spec.kubernetesVersion"]).await;
    let vars = format!("{{registry_password: {SECRET}}}");
    world.secret("vars", "vars.yml", &vars).await;

    let run = world.run_until(1).await.remove(0);
    let text = serde_json::to_string(&run).unwrap();
    assert!(text.contains("secretKeyRef"), "{text}");
    assert!(!text.contains(SECRET), "{text}");
    world.run_status(&run, json!({"phase": "Succeeded"})).await;
    let built = |cluster: &Cluster| {
        let status = cluster.status.as_ref();
        status.is_some_and(|status| status.state == Some(ClusterState::Created))
    };
    world.until("first", "is built", built).await;
    world.secret("token", "token", "another").await;
    world.look().await;
    let told = world
        .until("first", "notices the change", |cluster| {
            condition(cluster, "Ready")
                .is_some_and(|ready| ready.2.contains("changed Secret token"))
        })
        .await;
    let text = serde_json::to_string(&told).unwrap();
    assert!(!text.contains(SECRET), "{text}");
}

/// A password that is changed while a run is at work is read by its next playbook: nothing begins anew for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_secret_supersedes_no_run() {
    let world = World::start().await;
    world.three_nodes().await;
    world.secret("vars", "password", "Xq7Vw9Kp3").await;
    let creation = json!({"extraVarsSecretRef": {"name": "vars"}});
    let spec = json!({"operations": {"creation": creation}});
    world.cluster("first", spec).await;
    let run = world.run_until(1).await.remove(0);
    world.run_status(&run, json!({"phase": "Running"})).await;
    let creates = |cluster: &Cluster| is(cluster, "Reconciling", "Creating");
    world.until("first", "creates", creates).await;
    world.secret("vars", "password", "another").await;
    // A pass over the change, and after it one that is seen.
    world.look().await;
    world
        .run_status(&run, json!({"phase": "Running", "progress": 7}))
        .await;
    let seen = world
        .until("first", "goes on", |cluster| {
            let status = cluster.status.as_ref();
            status.is_some_and(|s| {
                s.last_operation
                    .as_ref()
                    .is_some_and(|o| o.progress == Some(7))
            })
        })
        .await;
    assert!(creates(&seen), "{:?}", seen.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_cluster_goes_on_when_the_first_is_gone() {
    let world = World::start().await;
    world.cluster("first", json!({})).await;
    world
        .until("first", "is held", |cluster| {
            !cluster.finalizers().is_empty()
        })
        .await;
    world.cluster("second", json!({})).await;
    world
        .until("second", "stalls", |cluster| {
            is(cluster, "Stalled", "InvalidSpec")
        })
        .await;
    world.delete::<Cluster>("first").await;
    world
        .until("second", "goes on", |cluster| {
            is(cluster, "Reconciling", "WaitingForHosts")
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_that_lost_what_it_needs_is_not_passed_over() {
    let world = World::start().await;
    world.built().await;
    world
        .cluster("first", json!({"deletionPolicy": "Reset"}))
        .await;
    // As the deletion of a namespace does it: what has no finalizer is gone first. Of the hosts somebody takes it away.
    let all = ListParams::default();
    let none = DeleteParams::default();
    world
        .all::<Run>()
        .delete_collection(&none, &all)
        .await
        .unwrap();
    for name in ["master-1", "worker-1", "worker-2"] {
        world.lose(name).await;
    }
    world.delete::<Cluster>("first").await;
    world
        .until("first", "says that no host was reset", |cluster| {
            let message = condition(cluster, "Stalled").map_or("", |stalled| stalled.2);
            message.contains("no host was reset") && message.contains("write Retain to forget")
        })
        .await;
    world
        .cluster("first", json!({"deletionPolicy": "Retain"}))
        .await;
    world.until_gone("first").await;
}

/// The name becomes the host's, the node's, a label of its pods and part of steps: one that does not fit all of them is refused at the
/// door, and the longest that does goes all the way.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_named_by_one_label_and_the_longest_works() {
    let world = World::start().await;
    let longest = "w".repeat(63);
    let nodes = world.all::<ClusterNode>();
    let parameters = PatchParams::apply("test");
    for name in ["worker-3.example.com", &format!("{longest}w"), "worker_3"] {
        let node = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
            "metadata": {"name": name}, "spec": {"type": "worker", "inventory": {"ansible_host": "10.0.0.9"}},
        });
        let refused = nodes.patch(name, &parameters, &Patch::Apply(&node)).await;
        let refused = refused.unwrap_err().to_string();
        let words = ["at most 63 lower-case letters", "metadata.name", "RFC 1123"];
        assert!(
            words.iter().any(|word| refused.contains(word)),
            "{name}: {refused}"
        );
    }
    world.built().await;
    world.node(&longest, "worker", "10.0.0.4").await;
    world.run_until(2).await;
    let joins = world.run_named("first-scale-2").await;
    assert!(
        crate::scale::targets(&joins, "health/check").contains(&longest),
        "{:?}",
        joins.spec.plan.steps
    );
    world
        .run_status(&joins, json!({"phase": "Succeeded"}))
        .await;
    world
        .node_state(&longest, api::node::NodeState::Joined)
        .await;
    world.delete::<ClusterNode>(&longest).await;
    world.run_until(3).await;
    world.run_named("first-remove-3").await;
}
