//! How a cluster stands, by what its objects say of themselves. Pure.

use std::collections::BTreeMap;

use api::{cluster::request::waits_for_request, inventory::FleetHealth};
use serde_json::Value;

use super::{
    part::{Family, Part, Parts},
    pools,
};

/// How a cluster stands.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Standing {
    /// In a word.
    pub health: FleetHealth,
    /// In a sentence.
    pub message: Option<String>,
    /// The conditions of its own object.
    pub gates: BTreeMap<String, String>,
    /// That object, for rules about it.
    pub own: Option<Value>,
}

/// Whether a roll-out is at a cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rolling {
    /// One has begun it, and asks for what is carried out only when somebody asks.
    Begun,
    /// None has: what waits for a request waits for a person, and the cluster is as well as before.
    No,
}

impl Rolling {
    /// By whether a roll-out has begun it.
    pub fn of(is_granted: bool) -> Self {
        if is_granted { Self::Begun } else { Self::No }
    }
}

/// How a cluster stands whose objects are these, in the order of the parts.
pub fn standing(parts: &Parts, live: &[Option<Value>], rolling: Rolling) -> Standing {
    let Some((main, own)) = parts.main().zip(live.last()) else {
        return Standing::default();
    };
    let gates = own.as_ref().map(gates).unwrap_or_default();
    let (health, message) = of_main(main, own.as_ref(), rolling);
    let all = parts.objects.iter().zip(live);
    // A host that failed before its Cluster's operator was at work says nothing of what comes of that.
    let is_stale = |(other, _): &(FleetHealth, _)| {
        health == FleetHealth::AtWork && *other == FleetHealth::Failed
    };
    let mut others = all.filter_map(|(part, live)| {
        let of_node = of_node(part, live.as_ref()).filter(|of_node| !is_stale(of_node));
        of_node.or_else(|| of_part(part, live.as_ref()?))
    });
    // What does not become well by itself has the say, then what is at work.
    let worst = match health {
        FleetHealth::Failed => None,
        _ => others.find(|(other, _)| *other == FleetHealth::Failed || health == FleetHealth::Well),
    };
    let (health, message) = worst.unwrap_or((health, message));
    Standing {
        health,
        message: message.map(|message| api::text::lines(&message, 1000)),
        gates,
        own: own.clone(),
    }
}

fn gates(object: &Value) -> BTreeMap<String, String> {
    let conditions = object["status"]["conditions"].as_array();
    let conditions = conditions.into_iter().flatten().take(MOST_GATES);
    let pairs = conditions.filter_map(|condition| {
        let kind = condition["type"].as_str()?;
        let status = condition["status"].as_str()?;
        Some((api::text::plain(kind, 316), api::text::plain(status, 16)))
    });
    pairs.collect()
}

/// By what the cluster's own object says.
fn of_main(main: &Part, live: Option<&Value>, rolling: Rolling) -> (FleetHealth, Option<String>) {
    let title = main.title();
    let Some(live) = live else {
        return (
            FleetHealth::AtWork,
            Some(format!("{title} is not there yet")),
        );
    };
    if live["metadata"]["deletionTimestamp"].is_string() {
        return (
            FleetHealth::AtWork,
            Some(format!("{title} is being deleted")),
        );
    }
    let seen = live["status"]["observedGeneration"].as_i64();
    let is_seen = seen >= live["metadata"]["generation"].as_i64();
    if !is_seen {
        return (
            FleetHealth::AtWork,
            Some(format!(
                "{title} has a change that its operator is at work on"
            )),
        );
    }
    let condition = |kind: &str| {
        let conditions = live["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.find(|condition| condition["type"] == kind)
    };
    let is_true =
        |kind: &str| condition(kind).is_some_and(|condition| condition["status"] == "True");
    let said = |condition: Option<&Value>| {
        let message = condition.and_then(|condition| condition["message"].as_str());
        message.map_or_else(
            || format!("{title} says nothing of itself"),
            |message| format!("{title}: {message}"),
        )
    };
    if is_true("Stalled") {
        return (FleetHealth::Failed, Some(said(condition("Stalled"))));
    }
    // Cluster API says since v1beta2 that a cluster is Available.
    let ready = condition("Ready").or_else(|| condition("Available"));
    if ready.is_none_or(|ready| ready["status"] != "True") {
        let is_at_work = match main.family() {
            Family::Kubespray => is_true("Reconciling") || ready.is_none(),
            // They do not tell what has failed from what takes its time.
            Family::ClusterApi | Family::Vault | Family::Other => true,
        };
        let health = if is_at_work {
            FleetHealth::AtWork
        } else {
            FleetHealth::Failed
        };
        return (health, Some(said(ready)));
    }
    let waits = |pending: &Value| {
        let text = |key: &str| pending[key].as_str().unwrap_or_default();
        format!(
            "{title}: {} waits ({}): {}",
            text("operation"),
            text("reason"),
            text("message")
        )
    };
    let pending = live["status"]["pending"].as_array();
    // Somebody wrote another value into a Secret, or changed variables by hand: that is no reason to keep roll-outs away.
    let (asked, others): (Vec<_>, Vec<_>) = pending
        .into_iter()
        .flatten()
        .partition(|pending| rolling == Rolling::No && waits_for_request(pending));
    if let Some(pending) = others.first() {
        return (FleetHealth::AtWork, Some(waits(pending)));
    }
    if is_true("Reconciling") {
        return (FleetHealth::AtWork, Some(said(condition("Reconciling"))));
    }
    (
        FleetHealth::Well,
        asked.first().map(|pending| waits(pending)),
    )
}

/// By what a host of kubespray says. None: nothing that matters.
fn of_node(part: &Part, live: Option<&Value>) -> Option<(FleetHealth, Option<String>)> {
    if !part.is_kubespray() || part.kind != "ClusterNode" {
        return None;
    }
    let title = part.title();
    let Some(live) = live else {
        return Some((
            FleetHealth::AtWork,
            Some(format!("{title} is not there yet")),
        ));
    };
    let state = live["status"]["state"].as_str();
    let seen = live["status"]["observedGeneration"].as_i64();
    let is_seen = seen.is_none() || seen >= live["metadata"]["generation"].as_i64();
    match state {
        Some("Failed") if !is_seen => Some((
            FleetHealth::AtWork,
            Some(format!(
                "{title} has a change that its operator is at work on"
            )),
        )),
        Some("Joined" | "Excluded") => None,
        // A bastion is part of no cluster.
        Some("Waiting") if live["spec"]["type"] == "bastion" => None,
        Some("Failed") => Some((FleetHealth::Failed, Some(format!("{title} failed")))),
        state => {
            let state = state.unwrap_or("not seen yet");
            Some((FleetHealth::AtWork, Some(format!("{title} is {state}"))))
        }
    }
}

/// By what any object says: its operator has seen its last change, and no machine comes or goes. Cluster API says that a cluster is
/// Available while its machines are replaced one by one. None: nothing that matters.
fn of_part(part: &Part, live: &Value) -> Option<(FleetHealth, Option<String>)> {
    let title = part.title();
    let at_work = |said: String| Some((FleetHealth::AtWork, Some(said)));
    let status = &live["status"];
    // Kinds of infrastructure need not tell which change they speak of.
    let seen = status["observedGeneration"].as_i64();
    let must_tell = matches!(
        part.api_version.split('/').next(),
        Some("cluster.x-k8s.io" | "controlplane.cluster.x-k8s.io")
    );
    let has_status = status.as_object().is_some_and(|status| !status.is_empty());
    if has_status && (must_tell || seen.is_some()) && seen < live["metadata"]["generation"].as_i64()
    {
        return at_work(format!(
            "{title} has a change that its operator is at work on"
        ));
    }
    if part.is_pool()
        && let Some(why) = pools::at_work(live)
    {
        return at_work(format!("{title} {why}"));
    }
    // Of objects of v1beta1 they stand below v1beta2.
    let conditions = [&status["conditions"], &status["v1beta2"]["conditions"]];
    let mut conditions = conditions.into_iter().filter_map(Value::as_array).flatten();
    let rolling = conditions.find(|condition| {
        let kind = condition["type"].as_str();
        kind.is_some_and(|kind| ROLLING.contains(&kind)) && condition["status"] == "True"
    })?;
    let text = |key: &str| rolling[key].as_str().unwrap_or_default();
    at_work(format!("{title} is {}: {}", text("type"), text("message")))
}

/// What objects of Cluster API say while machines come or go.
const ROLLING: [&str; 4] = ["RollingOut", "ScalingUp", "ScalingDown", "Remediating"];
/// By the schema of the status.
const MOST_GATES: usize = 32;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::part::parts;

    #[expect(clippy::needless_pass_by_value, reason = "it is written in place")]
    fn cluster(generation: i64, status: Value) -> Value {
        json!({"metadata": {"generation": generation}, "spec": {}, "status": status})
    }

    fn condition(kind: &str, status: &str) -> Value {
        json!({"type": kind, "status": status, "message": "it says so"})
    }

    fn health(main: Value, node: Value) -> FleetHealth {
        let of = |kind: &str| json!({"apiVersion": "kubespray.k8s.io/v1", "kind": kind, "metadata": {"name": "x"}});
        let parts = parts("ns", "x", "r", &[of("Cluster"), of("ClusterNode")]).unwrap();
        standing(&parts, &[Some(node), Some(main)], Rolling::Begun).health
    }

    #[test]
    fn another_value_in_a_secret_keeps_no_rollout_away() {
        use FleetHealth::{AtWork, Well};
        let of = json!({"apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "x"}});
        let parts = parts("ns", "x", "r", &[of]).unwrap();
        let with = |operation: &str, reason: &str| {
            let pending = json!([{"operation": operation, "reason": reason, "message": "a changed Secret y"}]);
            let status = json!({"observedGeneration": 1, "conditions": [condition("Ready", "True")], "pending": pending});
            Some(cluster(1, status))
        };
        for (operation, reason, rolling, expected) in [
            ("Converge", "NotRequested", Rolling::No, Well),
            ("Converge", "NotRequested", Rolling::Begun, AtWork),
            ("Converge", "WaitingForWindow", Rolling::No, AtWork),
            ("Upgrade", "NotRequested", Rolling::No, AtWork),
        ] {
            let standing = standing(&parts, &[with(operation, reason)], rolling);
            assert_eq!(standing.health, expected, "{operation} {reason}");
            assert!(standing.message.unwrap().contains("a changed Secret y"));
        }
    }

    #[test]
    fn a_cluster_of_cluster_api_is_at_work_while_its_machines_roll() {
        use FleetHealth::{AtWork, Well};
        let of = |group: &str, kind: &str| json!({"apiVersion": format!("{group}/v1beta2"), "kind": kind, "metadata": {"name": "x"}});
        let parts = parts(
            "ns",
            "x",
            "r",
            &[
                of("infrastructure.cluster.x-k8s.io", "DevCluster"),
                of("cluster.x-k8s.io", "MachineDeployment"),
                of("cluster.x-k8s.io", "Cluster"),
            ],
        )
        .unwrap();
        let available =
            || json!({"observedGeneration": 1, "conditions": [condition("Available", "True")]});
        let with = |kind: &str, status: &str| {
            let mut own = available();
            own["conditions"] = json!([condition("Available", "True"), condition(kind, status)]);
            own
        };
        let older = json!({"v1beta2": {"conditions": [condition("RollingOut", "True")]}, "observedGeneration": 1});
        for (infrastructure, machines, own, expected) in [
            (json!({}), available(), available(), Well),
            (
                json!({"ready": true}),
                available(),
                with("RollingOut", "False"),
                Well,
            ),
            (
                json!({"observedGeneration": 0}),
                available(),
                available(),
                AtWork,
            ),
            (json!({}), json!({"replicas": 3}), available(), AtWork),
            (
                json!({}),
                json!({"observedGeneration": 0}),
                available(),
                AtWork,
            ),
            (json!({}), with("ScalingDown", "True"), available(), AtWork),
            (json!({}), older, available(), AtWork),
            (json!({}), available(), with("RollingOut", "True"), AtWork),
            (json!({}), available(), with("ScalingUp", "True"), AtWork),
            (json!({}), available(), with("Remediating", "True"), AtWork),
        ] {
            let live = [infrastructure, machines, own].map(|status| Some(cluster(1, status)));
            assert_eq!(
                standing(&parts, &live, Rolling::Begun).health,
                expected,
                "{live:?}"
            );
        }
    }

    #[test]
    fn a_pool_that_has_not_its_machines_is_no_well_cluster() {
        let of = |kind: &str| json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "x"}});
        let parts = parts("ns", "x", "r", &[of("MachinePool"), of("Cluster")]).unwrap();
        let own = json!({"observedGeneration": 1, "conditions": [condition("Available", "True")]});
        for (ready, expected) in [(3, FleetHealth::Well), (1, FleetHealth::AtWork)] {
            let status = json!({
                "observedGeneration": 1, "initialization": {"infrastructureProvisioned": true},
                "replicas": 3, "readyReplicas": ready,
            });
            let live = [status, own.clone()].map(|status| Some(cluster(1, status)));
            let standing = standing(&parts, &live, Rolling::No);
            assert_eq!(standing.health, expected, "{ready}: {:?}", standing.message);
        }
    }

    #[test]
    fn a_cluster_is_well_when_all_of_it_is_and_its_operator_has_seen_the_change() {
        use FleetHealth::{AtWork, Failed, Well};
        let ready = |more: Value| {
            let mut status =
                json!({"observedGeneration": 2, "conditions": [condition("Ready", "True")]});
            for (key, value) in more.as_object().into_iter().flatten() {
                status[key] = value.clone();
            }
            status
        };
        let node = |state: &str| json!({"status": {"state": state}});
        for (name, main, node, expected) in [
            ("well", cluster(2, ready(json!({}))), node("Joined"), Well),
            (
                "not seen",
                cluster(3, ready(json!({}))),
                node("Joined"),
                AtWork,
            ),
            (
                "nothing known",
                cluster(1, json!({})),
                node("Joined"),
                AtWork,
            ),
            (
                "stalled before the change",
                cluster(
                    3,
                    json!({"observedGeneration": 2, "conditions": [condition("Stalled", "True")]}),
                ),
                node("Joined"),
                AtWork,
            ),
            (
                "stalled",
                cluster(
                    2,
                    ready(
                        json!({"conditions": [condition("Ready", "False"), condition("Stalled", "True")]}),
                    ),
                ),
                node("Joined"),
                Failed,
            ),
            (
                "unhealthy",
                cluster(
                    2,
                    ready(json!({"conditions": [condition("Ready", "False")]})),
                ),
                node("Joined"),
                Failed,
            ),
            (
                "at work",
                cluster(
                    2,
                    ready(
                        json!({"conditions": [condition("Ready", "False"), condition("Reconciling", "True")]}),
                    ),
                ),
                node("Joined"),
                AtWork,
            ),
            (
                "ready at work",
                cluster(
                    2,
                    ready(
                        json!({"conditions": [condition("Ready", "True"), condition("Reconciling", "True")]}),
                    ),
                ),
                node("Joined"),
                AtWork,
            ),
            (
                "waits for a window",
                cluster(
                    2,
                    ready(
                        json!({"pending": [{"operation": "Upgrade", "reason": "WaitingForWindow"}]}),
                    ),
                ),
                node("Joined"),
                AtWork,
            ),
            (
                "a host joins",
                cluster(2, ready(json!({}))),
                node("Joining"),
                AtWork,
            ),
            (
                "a host is new",
                cluster(2, ready(json!({}))),
                json!({}),
                AtWork,
            ),
            (
                "a host failed",
                cluster(2, ready(json!({}))),
                node("Failed"),
                Failed,
            ),
            (
                "a host failed before the change",
                cluster(3, ready(json!({}))),
                node("Failed"),
                AtWork,
            ),
            (
                "a host failed before its own change",
                cluster(2, ready(json!({}))),
                json!({"metadata": {"generation": 2}, "status": {"state": "Failed", "observedGeneration": 1}}),
                AtWork,
            ),
            (
                "going",
                json!({"metadata": {"generation": 2, "deletionTimestamp": "x"}, "status": ready(json!({}))}),
                node("Joined"),
                AtWork,
            ),
        ] {
            assert_eq!(health(main, node), expected, "{name}");
        }
    }
}
