//! The nodes and the pods of a built cluster, through its own API.

use std::time::Duration;

use ansible::probe::Machine;
use api::{HostName, text::plain};
use controller::{Rollout, kubeconfig::Foreign};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Node, Pod, Secret},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::token;

/// How long one answer of the cluster's API may take.
const ANSWER: Duration = Duration::from_secs(10);
/// What is said of an API that does not answer.
const SILENT: &str = "the API server does not answer within 10 s";
/// The annotation of a node that says why it is cordoned.
const CORDONED_BY: &str = "windlass.dev/cordoned-by";

/// A cluster, through its own API.
pub struct Workload(Client);

/// A client of that API, which waits for no answer longer than that.
pub(crate) async fn client(kubeconfig: &Foreign) -> Result<Client, String> {
    let addresses = tokio::time::timeout(ANSWER, kubeconfig.addresses());
    let addresses = addresses
        .await
        .map_err(|_| "nobody said within 10 s where the API server is")?
        .map_err(|error| crate::chain(&error))?;
    let client = kubeconfig.client(addresses, ANSWER);
    client.map_err(|error| crate::chain(&error))
}

impl Workload {
    /// The cluster that a kubeconfig leads to.
    ///
    /// # Errors
    ///
    /// Its address cannot be resolved or may not be used, or the kubeconfig holds what cannot be.
    pub async fn connect(kubeconfig: &Foreign) -> Result<Self, String> {
        client(kubeconfig).await.map(Self)
    }

    /// The nodes, each with the machine that it says it is.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn machines(&self) -> Result<Vec<(String, Machine)>, String> {
        let nodes = Api::<Node>::all(self.0.clone());
        let nodes = answered(nodes.list(&ListParams::default())).await?;
        let machine = |node: &Node| {
            let info = node.status.as_ref()?.node_info.as_ref()?;
            Some((
                node.name_any(),
                Machine::of(&info.machine_id, &info.boot_id)?,
            ))
        };
        Ok(nodes.items.iter().filter_map(machine).collect())
    }

    /// The node of a host, if there is one.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn node(&self, host: &HostName) -> Result<Option<Node>, String> {
        let nodes = Api::<Node>::all(self.0.clone());
        answered(nodes.get_opt(host.as_str())).await
    }

    /// The pod of the API server of a host, as its kubelet shows it, if it does.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn api_server(&self, host: &HostName) -> Result<Option<Pod>, String> {
        let pods = Api::<Pod>::namespaced(self.0.clone(), "kube-system");
        answered(pods.get_opt(&format!("kube-apiserver-{host}"))).await
    }

    /// Has no new pods come to a node.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn cordon(&self, node: &Node) -> Result<(), String> {
        if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"annotations": {CORDONED_BY: "remove"}},
            "spec": {"unschedulable": true},
        });
        let nodes = Api::<Node>::all(self.0.clone());
        let (name, parameters) = (node.name_any(), PatchParams::default());
        answered(nodes.patch(&name, &parameters, &Patch::Merge(&patch)))
            .await
            .map(drop)
    }

    /// Has no new pods come to a node, as a person wants it: no run takes that back.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn keep_out(&self, node: &Node) -> Result<(), String> {
        let patch = json!({
            "metadata": {"annotations": {CORDONED_BY: null}}, "spec": {"unschedulable": true},
        });
        let nodes = Api::<Node>::all(self.0.clone());
        let (name, parameters) = (node.name_any(), PatchParams::default());
        answered(nodes.patch(&name, &parameters, &Patch::Merge(&patch)))
            .await
            .map(drop)
    }

    /// Makes a token by which nodes join, unless it is there.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub(crate) async fn make_token(&self, token: &Secret) -> Result<(), String> {
        let secrets = Api::<Secret>::namespaced(self.0.clone(), token::NAMESPACE);
        made(secrets.create(&PostParams::default(), token)).await
    }

    /// The Secret of a token by which nodes join, by its first part, if there is one.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn token(&self, id: &str) -> Result<Option<Secret>, String> {
        let secrets = Api::<Secret>::namespaced(self.0.clone(), token::NAMESPACE);
        answered(secrets.get_opt(&token::secret_name(id))).await
    }

    /// What the cluster tells nodes that join of itself, if it does.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn told_to_joining(&self) -> Result<Option<ConfigMap>, String> {
        let maps = Api::<ConfigMap>::namespaced(self.0.clone(), "kube-public");
        answered(maps.get_opt("cluster-info")).await
    }

    /// Lets pods come to a node again that [`Workload::cordon`] has cordoned; whether it had.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn uncordon(&self, host: &HostName) -> Result<bool, String> {
        let ours = |node: &Node| node.annotations().contains_key(CORDONED_BY);
        let Some(node) = self.node(host).await?.filter(ours) else {
            return Ok(false);
        };
        self.let_in(&node).await.map(|()| true)
    }

    /// Lets pods come to a node, whoever has cordoned it.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn let_in(&self, node: &Node) -> Result<(), String> {
        let patch = json!({
            "metadata": {"annotations": {CORDONED_BY: null}}, "spec": {"unschedulable": null},
        });
        let nodes = Api::<Node>::all(self.0.clone());
        let (name, parameters) = (node.name_any(), PatchParams::default());
        answered(nodes.patch(&name, &parameters, &Patch::Merge(&patch)))
            .await
            .map(drop)
    }

    /// Deletes a node.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn delete(&self, node: &Node) -> Result<(), String> {
        let nodes = Api::<Node>::all(self.0.clone());
        match nodes
            .delete(&node.name_any(), &DeleteParams::default())
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            result => result.map(drop).map_err(|error| crate::chain(&error)),
        }
    }

    /// The pods of a node that must go elsewhere.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn pods(&self, host: &HostName) -> Result<Vec<Pod>, String> {
        let pods = Api::<Pod>::all(self.0.clone());
        let on_it = ListParams::default().fields(&format!("spec.nodeName={host}"));
        let mut found = answered(pods.list(&on_it)).await?.items;
        found.retain(goes);
        Ok(found)
    }

    /// The pods of a namespace that have all of these labels and are not at their end.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn pods_in(
        &self,
        namespace: &str,
        labels: &[(&String, &String)],
    ) -> Result<Vec<Pod>, String> {
        let pods = Api::<Pod>::namespaced(self.0.clone(), namespace);
        let selector = labels.iter().map(|(name, value)| format!("{name}={value}"));
        let selector: Vec<_> = selector.collect();
        let having = ListParams::default().labels(&selector.join(","));
        let mut found = answered(pods.list(&having)).await?.items;
        found.retain(|pod| !is_over(pod) && pod.metadata.deletion_timestamp.is_none());
        Ok(found)
    }

    /// The DaemonSets of a namespace.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn daemons_in(&self, namespace: &str) -> Result<Vec<DaemonSet>, String> {
        let daemons = Api::<DaemonSet>::namespaced(self.0.clone(), namespace);
        let found = answered(daemons.list(&ListParams::default())).await?;
        Ok(found.items)
    }

    /// The Lease of that name in a namespace, if there is one.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn lease(&self, namespace: &str, name: &str) -> Result<Option<Lease>, String> {
        let leases = Api::<Lease>::namespaced(self.0.clone(), namespace);
        answered(leases.get_opt(name)).await
    }

    /// The PodDisruptionBudgets of all namespaces.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub async fn budgets(&self) -> Result<Vec<PodDisruptionBudget>, String> {
        let budgets = Api::<PodDisruptionBudget>::all(self.0.clone());
        let found = answered(budgets.list(&ListParams::default())).await?;
        Ok(found.items)
    }

    /// Asks a pod to go. Some: it does not yet, and why.
    ///
    /// # Errors
    ///
    /// The API refuses for another reason than a budget, or does not answer.
    pub async fn end(&self, pod: &Pod, forced: bool) -> Result<Option<String>, String> {
        let pods = Api::<Pod>::namespaced(self.0.clone(), &pod.namespace().unwrap_or_default());
        let name = pod.name_any();
        let asked = if forced {
            pods.delete(&name, &DeleteParams::default()).await.map(drop)
        } else {
            pods.evict(&name, &EvictParams::default()).await.map(drop)
        };
        match asked {
            Ok(()) => Ok(Some("is ending".to_owned())),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 429 => {
                Ok(Some(format!("must stay: {}", plain(&status.message, 256))))
            }
            Err(error) => Err(crate::chain(&error)),
        }
    }
}

async fn answered<T>(asked: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(ANSWER, asked).await {
        Ok(answer) => answer.map_err(|error| plain(&crate::chain(&error), 512)),
        Err(_) => Err(SILENT.to_owned()),
    }
}

/// As [`answered`], of something that may be there already.
async fn made<T>(asked: impl Future<Output = kube::Result<T>>) -> Result<(), String> {
    answered(async {
        match asked.await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            answer => answer.map(drop),
        }
    })
    .await
}

/// Whether a pod must go before its node does.
///
/// # Source
/// kubectl `pkg/drain/filters.go`.
fn goes(pod: &Pod) -> bool {
    let mirror = pod
        .annotations()
        .contains_key("kubernetes.io/config.mirror");
    let owners = pod.owner_references().iter();
    let of_daemons = owners
        .filter(|owner| owner.controller == Some(true))
        .any(|owner| owner.kind == "DaemonSet");
    !mirror && !of_daemons && !is_over(pod)
}

/// Whether nothing of a pod runs any more, or ever will.
fn is_over(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a pod is Ready.
pub fn is_ready_pod(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether every node that is to have a pod of a DaemonSet has a new one that serves. One whose pods are replaced when somebody
/// deletes them may have old ones.
pub fn is_rolled_out(daemons: &DaemonSet) -> bool {
    let strategy = daemons
        .spec
        .as_ref()
        .and_then(|spec| spec.update_strategy.as_ref());
    let by_hand = strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete");
    let rollout = Rollout::of_daemon_set(daemons);
    rollout.is_done() || (by_hand && rollout.is_available())
}

/// Whether a node is Ready.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value};

    use super::*;

    fn pod(metadata: &Value, phase: &str) -> Pod {
        from_value(json!({"metadata": metadata, "status": {"phase": phase}})).unwrap()
    }

    #[test]
    fn daemons_are_rolled_out_when_each_node_has_a_new_one_that_serves() {
        for (strategy, generation, updated, available, expected) in [
            ("RollingUpdate", 2, 3, 3, true),
            ("RollingUpdate", 3, 3, 3, false),
            ("RollingUpdate", 2, 2, 3, false),
            ("RollingUpdate", 2, 3, 2, false),
            ("OnDelete", 2, 0, 3, true),
        ] {
            let daemons = json!({
                "metadata": {"name": "a", "generation": generation},
                "spec": {"selector": {}, "template": {}, "updateStrategy": {"type": strategy}},
                "status": {
                    "observedGeneration": 2, "desiredNumberScheduled": 3, "currentNumberScheduled": 3, "numberMisscheduled": 0,
                    "numberReady": available, "updatedNumberScheduled": updated, "numberAvailable": available,
                },
            });
            let daemons: DaemonSet = from_value(daemons).unwrap();
            assert_eq!(is_rolled_out(&daemons), expected, "{daemons:?}");
        }
    }

    #[test]
    fn what_ends_with_its_node_need_not_go_before_it() {
        let owner = |kind: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "a", "uid": "u", "controller": true}]);
        let mirror = json!({"kubernetes.io/config.mirror": "x"});
        for (metadata, phase, expected) in [
            (json!({"name": "a"}), "Running", true),
            (json!({"name": "a"}), "Pending", true),
            (
                json!({"name": "a", "ownerReferences": owner("ReplicaSet")}),
                "Running",
                true,
            ),
            (
                json!({"name": "a", "ownerReferences": owner("DaemonSet")}),
                "Running",
                false,
            ),
            (
                json!({"name": "a", "annotations": mirror}),
                "Running",
                false,
            ),
            (json!({"name": "a"}), "Succeeded", false),
            (json!({"name": "a"}), "Failed", false),
        ] {
            assert_eq!(goes(&pod(&metadata, phase)), expected, "{metadata} {phase}");
        }
    }
}
