//! What keeps pods where they are when their nodes are drained, and which of them come back nowhere: asked before one is told to go, by a
//! step of a run, and for a plan that somebody looks at.

use api::{HostName, run::Plan, text::plain};
use futures::future::try_join_all;
use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Client, ResourceExt,
    core::{Selector, SelectorExt},
};

use crate::{
    action::{self, Action},
    secret,
    workload::Workload,
};

/// How many of what is named a message holds.
const NAMED: usize = 5;
/// How many nodes are asked about at once.
const AT_ONCE: usize = 8;

/// What would become of the pods of nodes that are drained.
#[derive(Debug, Default)]
pub(crate) struct Going {
    /// How many go.
    pub(crate) number: usize,
    /// Those that a budget never lets go, with the budget.
    pub(crate) held: Vec<String>,
    /// Those that a budget does not let go at the moment, likewise.
    pub(crate) waiting: Vec<String>,
    /// Those without a controller, which nothing makes anew.
    pub(crate) alone: Vec<String>,
}

impl Going {
    /// Asks a cluster about the nodes of these hosts. Those that are forced go whatever budgets say.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub(crate) async fn of(
        cluster: &Workload,
        hosts: &[HostName],
        forced: &[HostName],
    ) -> Result<Self, String> {
        let budgets = cluster.budgets().await?;
        let mut going = Self::default();
        for some in hosts.chunks(AT_ONCE) {
            let pods = try_join_all(some.iter().map(|host| cluster.pods(host))).await?;
            for (host, pods) in some.iter().zip(pods) {
                let forced = forced.contains(host);
                let holding: &[PodDisruptionBudget] = if forced { &[] } else { &budgets };
                for pod in pods {
                    going.add(host, &pod, holding);
                }
            }
        }
        Ok(going)
    }

    fn add(&mut self, host: &HostName, pod: &Pod, budgets: &[PodDisruptionBudget]) {
        self.number = self.number.saturating_add(1);
        if pod.owner_references().is_empty() {
            self.alone.push(named(pod));
        }
        let covering = budgets.iter().filter(|budget| covers(budget, pod));
        let covering: Vec<&PodDisruptionBudget> = covering.collect();
        let mut all = covering.iter().copied();
        let mut now = covering.iter().copied();
        let told = |budget: &PodDisruptionBudget| {
            format!("{} on {host}, held by {}", named(pod), named(budget))
        };
        if let Some(budget) = all.find(|budget| never(budget)) {
            self.held.push(told(budget));
        } else if let Some(budget) = now.find(|budget| not_now(budget)) {
            self.waiting.push(told(budget));
        }
    }

    /// What a person is told of it before a run begins.
    fn told(&self) -> Vec<String> {
        let mut told = vec![format!(
            "pods that go from the nodes that are drained: {}",
            self.number
        )];
        if !self.held.is_empty() {
            told.push(format!(
                "no PodDisruptionBudget lets these go, now or later, and the run would fail before a node is touched: {}; give their \
                 workloads more replicas, or the budget a disruption that it allows",
                first(&self.held)
            ));
        }
        if !self.waiting.is_empty() {
            told.push(format!(
                "no PodDisruptionBudget lets these go at the moment, and the drain would wait for them: {}",
                first(&self.waiting)
            ));
        }
        if !self.alone.is_empty() {
            told.push(format!(
                "these have no controller, and would be lost: {}",
                first(&self.alone)
            ));
        }
        told
    }
}

/// What the drains of a plan for this cluster would meet, one line a matter: nothing where it drains no node. That the cluster does not
/// answer is a line of its own.
pub(crate) async fn ahead(
    client: &Client,
    (namespace, cluster): (&str, &str),
    plan: &Plan,
) -> Vec<String> {
    let asks = plan.steps.iter().filter_map(|step| match action::of(step) {
        Ok(Some(Action::Budgets { forced })) => Some((action::hosts_of(plan, step), forced)),
        _ => None,
    });
    let asks: Vec<(Vec<HostName>, Vec<HostName>)> = asks.collect();
    if asks.is_empty() {
        return Vec::new();
    }
    let looked = async {
        let kubeconfig = secret::read_kubeconfig(client, namespace, cluster)
            .await
            .map_err(|error| crate::chain(&error))?
            .ok_or_else(|| {
                let secret = secret::kubeconfig_name(cluster);
                format!("the kubeconfig Secret {secret} is not there")
            })?;
        let cluster = Workload::connect(&kubeconfig).await?;
        let mut told = Vec::new();
        for (hosts, forced) in asks {
            told.extend(Going::of(&cluster, &hosts, &forced).await?.told());
        }
        Ok::<_, String>(told)
    };
    looked.await.unwrap_or_else(|why| {
        vec![format!(
            "which pods the drain would meet is not known, because the cluster does not tell: {}",
            plain(&why, 512)
        )]
    })
}

/// Whether a budget lets none of its pods go, however well they are.
fn never(budget: &PodDisruptionBudget) -> bool {
    budget.status.as_ref().is_some_and(|status| {
        status.expected_pods > 0 && status.desired_healthy >= status.expected_pods
    })
}

fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
    budget.namespace() == pod.namespace()
        && selector.is_some_and(|selector: LabelSelector| {
            Selector::try_from(selector).is_ok_and(|selector| selector.matches(pod.labels()))
        })
}

/// Whether a budget lets none of its pods go as they are now.
fn not_now(budget: &PodDisruptionBudget) -> bool {
    budget
        .status
        .as_ref()
        .is_some_and(|status| status.expected_pods > 0 && status.disruptions_allowed <= 0)
}

/// What a tenant named, for people.
pub(crate) fn named(object: &impl ResourceExt) -> String {
    let name = format!(
        "{}/{}",
        object.namespace().unwrap_or_default(),
        object.name_any()
    );
    plain(&name, 128)
}

/// Some of it, and how much more there is.
pub(crate) fn first(all: &[String]) -> String {
    let more = all.len().saturating_sub(NAMED);
    let shown = all[..all.len() - more].join(", ");
    if more == 0 {
        shown
    } else {
        format!("{shown} and {more} more")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn pod(metadata: &Value, phase: &str) -> Pod {
        from_value(json!({"metadata": metadata, "status": {"phase": phase}})).unwrap()
    }

    #[test]
    fn a_budget_forbids_for_ever_what_it_will_never_allow() {
        let budget = |expected: i32, desired: i32, selector: Value| -> PodDisruptionBudget {
            from_value(json!({
                "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"selector": selector},
                "status": {"expectedPods": expected, "desiredHealthy": desired, "currentHealthy": 0, "disruptionsAllowed": 0},
            }))
            .unwrap()
        };
        let web = json!({"matchLabels": {"app": "web"}});
        let pod = pod(
            &json!({"name": "a", "namespace": "shop", "labels": {"app": "web"}}),
            "Running",
        );
        for (expected, desired, forbids) in
            [(2, 2, true), (1, 1, true), (2, 1, false), (0, 0, false)]
        {
            assert_eq!(never(&budget(expected, desired, web.clone())), forbids);
        }
        assert!(covers(&budget(2, 2, web), &pod));
        assert!(covers(&budget(2, 2, json!({})), &pod));
        let others =
            json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]});
        assert!(!covers(&budget(2, 2, others), &pod));
        let elsewhere = Pod {
            metadata: kube::api::ObjectMeta {
                namespace: Some("other".to_owned()),
                ..pod.metadata.clone()
            },
            ..pod
        };
        assert!(!covers(&budget(2, 2, json!({})), &elsewhere));
    }

    #[test]
    fn what_a_drain_would_meet_is_told_before_it_begins() {
        let budget = |name: &str, desired: i32| -> PodDisruptionBudget {
            from_value(json!({
                "metadata": {"name": name, "namespace": "shop"},
                "spec": {"selector": {"matchLabels": {"app": name}}},
                "status": {"expectedPods": 2, "desiredHealthy": desired, "currentHealthy": desired, "disruptionsAllowed": 0},
            }))
            .unwrap()
        };
        let budgets = [budget("web", 2), budget("mail", 1)];
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "u", "controller": true}]);
        let of = |app: &str| {
            let metadata = json!({
                "name": format!("{app}-0"), "namespace": "shop", "labels": {"app": app}, "ownerReferences": owner,
            });
            pod(&metadata, "Running")
        };
        let host: HostName = "worker-1".parse().unwrap();
        let mut going = Going::default();
        for app in ["web", "mail", "free"] {
            going.add(&host, &of(app), &budgets);
        }
        let alone = pod(&json!({"name": "by-hand", "namespace": "shop"}), "Running");
        going.add(&host, &alone, &budgets);
        let told = going.told();
        assert_eq!(told.len(), 4, "{told:?}");
        for (line, part) in told.iter().zip([
            "nodes that are drained: 4",
            "fail before a node is touched: shop/web-0 on worker-1, held by shop/web;",
            "would wait for them: shop/mail-0 on worker-1, held by shop/mail",
            "would be lost: shop/by-hand",
        ]) {
            assert!(line.contains(part), "{part:?} is not in: {line}");
        }

        // By force they go.
        let mut forced = Going::default();
        forced.add(&host, &of("web"), &[]);
        assert_eq!(
            forced.told(),
            ["pods that go from the nodes that are drained: 1"]
        );
    }
}
