//! Machines that are replaced when a secret in Vault changes, by a reference that says so: with a real server of OpenBao.

use api::{
    inventory::{
        ClusterTemplate, FleetCluster, FleetClusterStatus, FleetHealth, Hierarchy, Rollout,
        SECRETS_ANNOTATION,
    },
    secrets::{VaultSecret, definitions},
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    cluster_api::{CORE, definition, objects},
    vault::{Bao, Keeper, credentials, refresh_in, refresh_of, until},
    world::{FLEET, World, status},
};

pub const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";
pub const KIND: &str = "KubeadmConfigTemplate";

pub fn template() -> Value {
    json!({
        "backEnd": "Plain",
        "vaultSecrets": {"vault": {
            "address": "{{ vault.address }}",
            "auth": {"token": {"secretRef": {"name": "vault"}}},
        }},
        "documents": [
            {"naming": "Hashed", "object": {
                "apiVersion": format!("{BOOTSTRAP}/v1beta2"), "kind": KIND, "metadata": {"name": "{{ cluster.name }}"},
                "spec": {"template": {"spec": {"files": [{"path": "/etc/key", "contentFrom": {"secret": "{{ secret }}"}}]}}},
            }},
            {"object": {
                "apiVersion": format!("{CORE}/v1beta2"), "kind": "MachineDeployment", "metadata": {"name": "{{ cluster.name }}"},
                "spec": {"template": {"spec": {"bootstrap": {"configRef": {"kind": KIND, "name": "{{ cluster.name }}"}}}}},
            }},
            {"object": {
                "apiVersion": format!("{CORE}/v1beta2"), "kind": "Cluster", "metadata": {"name": "{{ cluster.name }}"},
                "spec": {"machines": {"kind": KIND, "name": "{{ cluster.name }}"}},
            }},
        ],
    })
}

struct Shop {
    world: World,
    address: String,
}

impl Shop {
    /// Writes the cluster, with what is rendered nowhere.
    async fn written(&self, turn: u32) {
        self.written_as("shop", turn).await;
    }

    async fn written_as(&self, name: &str, turn: u32) {
        let key = json!({"vault": {"path": "infra/ssh", "key": "key", "onChange": "RollMachines"}});
        let values = json!({"vault": {"address": self.address}, "secret": key, "turn": turn});
        let spec = json!({"template": "dev", "values": values});
        self.world.apply::<FleetCluster>(name, spec).await;
    }

    /// Says for the operator of the cluster that it is there as it is written now.
    async fn available(&self) {
        let clusters = objects(&self.world, CORE, "Cluster");
        let generation = clusters.get("shop").await.unwrap().metadata.generation;
        let available = json!({"status": {
            "observedGeneration": generation, "conditions": [{"type": "Available", "status": "True"}],
        }});
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&available));
        clusters
            .patch_status("shop", &parameters, &patch)
            .await
            .unwrap();
    }

    /// Has it looked at, and waits until it is well and as is wished.
    async fn looked_at(
        &self,
        turn: u32,
        what: &str,
        wanted: impl Fn(&FleetClusterStatus) -> bool,
    ) -> FleetClusterStatus {
        self.written(turn).await;
        let cluster = self.world.until::<FleetCluster>("shop", what, |cluster| {
            let status = status(cluster);
            let is_seen = status.observed_generation == cluster.metadata.generation;
            is_seen && status.health == Some(FleetHealth::Well) && wanted(&status)
        });
        status(&cluster.await)
    }

    /// The template that machines are made from, and what it tells of secrets.
    async fn template(&self) -> (String, Option<String>) {
        let cluster = objects(&self.world, CORE, "Cluster")
            .get("shop")
            .await
            .unwrap();
        let name = cluster.data["spec"]["machines"]["name"]
            .as_str()
            .unwrap()
            .to_owned();
        let template = objects(&self.world, BOOTSTRAP, KIND)
            .get(&name)
            .await
            .unwrap();
        assert!(
            !json!(template).to_string().contains("hush"),
            "{template:?}"
        );
        let annotations = template.metadata.annotations.unwrap_or_default();
        (name, annotations.get(SECRETS_ANNOTATION).cloned())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_replaced_for_a_value_that_changed_and_for_none_that_cannot_be_read() {
    let bao = Bao::start().await;
    let mut kinds = definitions();
    kinds.extend([
        definition(CORE, "Cluster"),
        definition(CORE, "MachineDeployment"),
        definition(BOOTSTRAP, KIND),
    ]);
    let world = World::with(kinds).await;
    let _keeper = Keeper::start(&world.client);
    let levels = json!({"levels": [{"name": "site", "kind": "Site", "presence": "Optional"}]});
    world.apply::<Hierarchy>("default", levels).await;
    world.apply::<ClusterTemplate>("dev", template()).await;
    let address = bao.server.address.clone();
    credentials(&world, FLEET, &address).await;
    let shop = Shop { world, address };

    // What is seen first replaces nothing.
    shop.written(1).await;
    let is_born = |cluster: &FleetCluster| status(cluster).applied.is_some();
    shop.world
        .until::<FleetCluster>("shop", "born", is_born)
        .await;
    shop.available().await;
    let seen = shop
        .looked_at(2, "seen", |status| !status.secrets.is_empty())
        .await;
    assert_eq!(seen.secrets[0].told, None);
    assert_eq!(seen.rendered, seen.applied);
    let (first, told) = shop.template().await;
    assert_eq!(told, None);

    // Another cluster reads the same.
    shop.written_as("annex", 1).await;
    let has_read = |cluster: &FleetCluster| {
        status(cluster)
            .secrets
            .iter()
            .any(|it| it.version == Some(1))
    };
    shop.world
        .until::<FleetCluster>("annex", "born", has_read)
        .await;

    // Another value is an edit as any other: it waits for a roll-out.
    bao.put("infra/ssh", json!({"key": "hush-other"})).await;
    let (vault_secret, key) = seen.secrets[0].name.split_once('/').unwrap();
    refresh_of(&shop.world, (FLEET, &[vault_secret]), "False").await;
    let vault_secrets = shop.world.all::<VaultSecret>(FLEET);
    until("the value to be read", async || {
        let object = vault_secrets.get(vault_secret).await.unwrap();
        object.status.unwrap().digests[key] != seen.secrets[0].digest
    })
    .await;
    let changed = shop
        .looked_at(3, "changed", |status| {
            status.secrets.iter().any(|secret| secret.told.is_some())
        })
        .await;
    assert_ne!(changed.secrets[0].digest, seen.secrets[0].digest);
    let pending = shop
        .looked_at(4, "pending", |status| status.pending.is_some())
        .await;
    assert_eq!(pending.applied, seen.applied);
    assert_eq!(shop.template().await.0, first);
    // No run begins before the other one has read it too, which it does as soon as it looks, though nobody asked for it.
    let rollout = json!({"soak": "0s", "canary": {"clusters": ["shop"]}});
    shop.world.apply::<Rollout>("all", rollout).await;
    let waits = |rollout: &Rollout| {
        let words = "FleetCluster annex is about to read version 2 of";
        json!(rollout).to_string().contains(words)
    };
    shop.world.until::<Rollout>("all", "waits", waits).await;
    let clusters = shop.world.all::<FleetCluster>(FLEET);
    let of_annex = status(&clusters.get("annex").await.unwrap());
    let (of_annex, _) = of_annex.secrets[0].name.split_once('/').unwrap();
    assert_ne!(of_annex, vault_secret);
    shop.written_as("annex", 2).await;
    until("the other one to read it", async || {
        let object = vault_secrets.get(of_annex).await.unwrap();
        object.status.unwrap().version == Some(2)
    })
    .await;
    shop.written_as("annex", 3).await;
    let begun = |rollout: &Rollout| {
        let status = rollout.status.as_ref();
        status.is_some_and(|status| status.run.is_some())
    };
    let begun = shop.world.until::<Rollout>("all", "begins", begun).await;
    let run = begun.status.unwrap().run.unwrap();
    let members: Vec<_> = run.clusters.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(members, ["shop", "annex"]);
    let is_rolled = |status: &FleetClusterStatus| {
        status.applied == status.rendered && status.applied != seen.applied
    };
    let is_written = |cluster: &FleetCluster| is_rolled(&status(cluster));
    shop.world
        .until::<FleetCluster>("shop", "rolled out", is_written)
        .await;
    shop.available().await;
    let rolled = shop.looked_at(5, "well", is_rolled).await;
    let (second, told) = shop.template().await;
    assert_ne!(second, first);
    let [secret] = &rolled.secrets[..] else {
        panic!("{rolled:?}")
    };
    assert_eq!(told.unwrap(), format!("{}={}", secret.name, secret.digest));

    // Vault is away: what was known counts.
    drop(bao);
    refresh_in(&shop.world, FLEET, "True").await;
    let away = shop.looked_at(6, "looked at without Vault", |_| true).await;
    let known = |status: &FleetClusterStatus| {
        let secret = status.secrets[0].clone();
        (secret.name, secret.digest, secret.told)
    };
    assert_eq!(known(&away), known(&rolled));
    assert_eq!(away.secrets[0].version, None, "nobody waits for it");
    assert_eq!((away.rendered, away.pending), (rolled.rendered, None));
    assert_eq!(shop.template().await.0, second);
}
