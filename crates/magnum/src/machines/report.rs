//! How a cluster of virtual machines stands, in Magnum's words. Pure.
//!
//! A cluster that was made once is not made again: what happens to its machines later is its health. And where something could not
//! be done the reason is what the machine or the network says of itself, not that something was late.

use std::collections::BTreeMap;

use api::magnum::{
    CoeCluster, CoeClusterStatus, CoeClusterTemplate, GroupStatus, HealthReport, HealthStatus,
    NOTICE_ANNOTATION, NodeGroup, State,
};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use super::{
    GROUP_LABEL, Kind, is_scaled, name, name_of,
    plan::{Live, Plan},
};
use crate::{
    labels,
    operator::report::{LONGEST, is_late, is_new, late, oldest},
    view::state_of_group,
};

/// What is seen of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What there is of it.
    pub live: Live,
    /// Its template.
    pub template: Option<CoeClusterTemplate>,
    /// What is to be put into it: kind and name.
    pub addons: Vec<(&'static str, String)>,
    /// What is not there that it cannot do without.
    pub lacks: Option<Trouble>,
    /// What people are told besides, which holds nothing up.
    pub notice: Option<String>,
    /// Whether not all that there is of it could be read. What was known before is told then.
    pub is_partial: bool,
}

impl Seen {
    /// Tells something more that holds nothing up.
    pub(crate) fn note(&mut self, notice: Option<String>) {
        let all: Vec<_> = self.notice.take().into_iter().chain(notice).collect();
        self.notice = (!all.is_empty()).then(|| all.join("; "));
    }
}

/// Why something does not go on.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    /// Whether it will not go on by itself.
    pub is_final: bool,
    /// What people are told.
    pub message: String,
}

/// How a cluster stands after a pass that did what the plan says.
pub fn status(cluster: &CoeCluster, seen: &Seen, plan: &Plan, now: Timestamp) -> CoeClusterStatus {
    let known = cluster.status.clone().unwrap_or_default();
    let (state, reason) = judged(cluster, seen, plan, now);
    let notice = cluster.annotations().get(NOTICE_ANNOTATION).cloned();
    let all = reason.into_iter().chain(seen.notice.clone()).chain(notice);
    let all: Vec<_> = all.collect();
    let reason = (!all.is_empty()).then(|| all.join("; "));
    let live = &seen.live;
    let groups = cluster.spec.node_groups.iter();
    let told = CoeClusterStatus {
        observed_generation: cluster.metadata.generation,
        state: Some(state),
        reason: reason.map(|reason| api::text::plain(&reason, LONGEST)),
        // Who installs them tells of them.
        addons: Vec::new(),
        ..known.clone()
    };
    if seen.is_partial {
        let groups = groups.map(|group| {
            let known = known.groups.get(&group.uuid).cloned().unwrap_or_default();
            let state = Some(state);
            (group.uuid.clone(), GroupStatus { state, ..known })
        });
        return CoeClusterStatus {
            groups: groups.collect(),
            ..told
        };
    }
    let name = name(cluster);
    let version = live
        .of(Kind::ControlPlane)
        .find_map(|object| object["status"]["version"].as_str());
    CoeClusterStatus {
        health: health(live, &name).or(known.health),
        api_address: live.get(Kind::Cluster, &name).and_then(endpoint),
        coe_version: version.map(|version| api::text::plain(version, 64)),
        groups: groups
            .map(|group| (group.uuid.clone(), of_group(group, live, state)))
            .collect(),
        ..told
    }
}

fn judged(
    cluster: &CoeCluster,
    seen: &Seen,
    plan: &Plan,
    now: Timestamp,
) -> (State, Option<String>) {
    let trouble = trouble(&seen.live);
    if cluster.metadata.deletion_timestamp.is_some() {
        let trouble = seen.lacks.clone().or(trouble);
        let why = trouble.map(|trouble| trouble.message);
        let long = lingers(&seen.live, now).then(|| LINGERS.to_owned());
        let why: Vec<_> = why.into_iter().chain(long).collect();
        let why = (!why.is_empty()).then(|| why.join("; "));
        return (State::DeleteInProgress, why);
    }
    let known = cluster.status.as_ref().and_then(|status| status.state);
    let was_made = !matches!(
        known,
        None | Some(State::CreateInProgress | State::CreateFailed)
    );
    let is_settled = seen.lacks.is_none() && plan.is_done() && is_settled(cluster, &seen.live);
    let is_new = is_new(cluster);
    if is_settled {
        let state = if is_new {
            State::CreateComplete
        } else {
            State::UpdateComplete
        };
        return (state, labels::notice(&cluster.spec));
    }
    let trouble = seen.lacks.clone().or(trouble);
    let is_final = trouble.as_ref().is_some_and(|trouble| trouble.is_final);
    let why = trouble.map(|trouble| trouble.message);
    let asked = cluster
        .status
        .as_ref()
        .is_some_and(|status| status.observed_generation != cluster.metadata.generation);
    match known {
        // Nobody asked for anything: a machine is being replaced, or a number was changed by the autoscaler.
        Some(known @ (State::CreateComplete | State::UpdateComplete)) if !asked => (known, why),
        _ if was_made && is_final => (State::UpdateFailed, why),
        _ if was_made => (State::UpdateInProgress, why),
        _ if is_final => (State::CreateFailed, why),
        _ if is_late(cluster, now) => (State::CreateFailed, Some(late(cluster, why))),
        _ => (State::CreateInProgress, why),
    }
}

/// Whether the Cluster has been going for longer than servers and networks take.
fn lingers(live: &Live, now: Timestamp) -> bool {
    live.of(Kind::Cluster).any(|object| {
        let since = object["metadata"]["deletionTimestamp"].as_str();
        let since: Option<Timestamp> = since.and_then(|since| since.parse().ok());
        since.is_some_and(|since| now.as_second() - since.as_second() > GOES)
    })
}

/// How long a Cluster may go before people are told what may hold it, in seconds.
const GOES: i64 = 15 * 60;
/// What Cluster API does not say of itself.
const LINGERS: &str = "it has been going for more than 15 minutes: what its users made in its network holds that, such as the load \
     balancer of a Service or a port; delete load balancers and ports of that network in OpenStack";

/// Whether Cluster API has done all that it was told.
fn is_settled(cluster: &CoeCluster, live: &Live) -> bool {
    let is_there = live
        .get(Kind::Cluster, &name(cluster))
        .is_some_and(|object| endpoint(object).is_some());
    // Whoever counts machines leaves out those that go, and a node that is drained still runs what people have there.
    let groups = &cluster.spec.node_groups;
    let goes = |machine: &Value| {
        let is_wanted = groups.iter().any(|group| is_of(machine, group));
        !is_wanted || machine["metadata"]["deletionTimestamp"].is_string()
    };
    is_there
        && !live.of(Kind::Machine).any(goes)
        && cluster
            .spec
            .node_groups
            .iter()
            .all(|group| is_group_settled(group, live))
}

fn is_group_settled(group: &NodeGroup, live: &Live) -> bool {
    let kind = if group.is_master() {
        Kind::ControlPlane
    } else {
        Kind::Deployment
    };
    let Some(object) = live.of(kind).find(|object| is_of(object, group)) else {
        return false;
    };
    let status = &object["status"];
    let count = |key: &str| status[key].as_u64().unwrap_or_default();
    let wanted = if is_scaled(group) {
        object["spec"]["replicas"].as_u64().unwrap_or_default()
    } else {
        u64::from(group.node_count)
    };
    let is_made = !group.is_master()
        || (status["initialization"]["controlPlaneInitialized"] == true
            && status["version"] == object["spec"]["version"]);
    let is_seen =
        status["observedGeneration"].as_i64() >= object["metadata"]["generation"].as_i64();
    let counts = ["replicas", "readyReplicas", "upToDateReplicas"];
    is_seen
        && is_made
        && counts.into_iter().all(|key| count(key) == wanted)
        && has_new_sets(group, object, live)
}

/// Whether no machine is of a set that was made for what the group was before.
///
/// A MachineDeployment counts as up to date what its MachineSets call so, and they look only after it has: for a moment after a change it
/// has seen the new machines' template, and counts all the old ones.
fn has_new_sets(group: &NodeGroup, deployment: &Value, live: &Live) -> bool {
    let is_new = |set: &Value| made_as(set) == made_as(deployment);
    let is_empty = |set: &Value| {
        let counts = [&set["spec"]["replicas"], &set["status"]["replicas"]];
        counts.iter().all(|count| count.as_u64() == Some(0))
    };
    let mut sets = live.of(Kind::MachineSet).filter(|set| is_of(set, group));
    sets.all(|set| is_new(set) || is_empty(set))
}

/// What makes machines others: their version, and the names of what they are made from.
fn made_as(object: &Value) -> [&Value; 3] {
    let spec = &object["spec"]["template"]["spec"];
    [
        &spec["version"],
        &spec["bootstrap"]["configRef"]["name"],
        &spec["infrastructureRef"]["name"],
    ]
}

fn is_of(object: &Value, group: &NodeGroup) -> bool {
    object["metadata"]["labels"][GROUP_LABEL] == group.uuid
}

/// Where the API is to answer.
fn endpoint(cluster: &Value) -> Option<String> {
    let endpoint = &cluster["spec"]["controlPlaneEndpoint"];
    let host = endpoint["host"].as_str().filter(|host| !host.is_empty())?;
    let port = endpoint["port"].as_u64().filter(|port| *port > 0)?;
    let host = api::text::plain(host, 200);
    Some(if host.contains(':') {
        format!("https://[{host}]:{port}")
    } else {
        format!("https://{host}:{port}")
    })
}

/// The first that does not go on: what will not by itself, or else what has not yet.
fn trouble(live: &Live) -> Option<Trouble> {
    let network = live
        .of(Kind::Infrastructure)
        .filter_map(|object| said("the network", object));
    let machines = live
        .of(Kind::Machine)
        .filter_map(|machine| of_machine(machine, live));
    let all: Vec<_> = network.chain(machines).collect();
    let worst = all.iter().find(|trouble| trouble.is_final);
    worst.or_else(|| all.first()).cloned()
}

/// What a machine says, or its server, which knows better.
fn of_machine(machine: &Value, live: &Live) -> Option<Trouble> {
    let title = format!("machine {}", name_of(machine));
    let server = machine["spec"]["infrastructureRef"]["name"].as_str();
    let server = server.and_then(|server| live.get(Kind::Server, server));
    let own = said(&title, machine);
    let better = server
        .and_then(|server| said(&title, server))
        .or_else(|| own.clone());
    let has_failed = own.is_some_and(|own| own.is_final) || machine["status"]["phase"] == "Failed";
    match better {
        Some(trouble) => Some(Trouble {
            is_final: trouble.is_final || has_failed,
            ..trouble
        }),
        None if has_failed => Some(Trouble {
            is_final: true,
            message: format!("{title} failed and says nothing of itself"),
        }),
        None => None,
    }
}

/// What an object says that is not well with it. Words without a message are those of what only waits.
fn said(title: &str, object: &Value) -> Option<Trouble> {
    let status = &object["status"];
    // Objects of v1beta2 keep what those of v1beta1 said under this.
    let failures = [status, &status["deprecated"]["v1beta1"]];
    let failure = failures
        .into_iter()
        .find_map(|status| status["failureMessage"].as_str());
    if let Some(failure) = failure {
        return Some(Trouble {
            is_final: true,
            message: format!("{title}: {failure}"),
        });
    }
    let conditions = status["conditions"].as_array();
    let mut bad: Vec<_> = conditions
        .into_iter()
        .flatten()
        .filter(|condition| {
            let kind = condition["type"].as_str().unwrap_or_default();
            let message = condition["message"].as_str().unwrap_or_default();
            let bad = if kind == "Deleting" { "True" } else { "False" };
            condition["status"] == bad && !message.is_empty() && TOLD.contains(&kind)
        })
        .collect();
    bad.sort_by_key(|condition| {
        let kind = condition["type"].as_str().unwrap_or_default();
        (
            condition["severity"] != "Error",
            TOLD.iter().position(|told| *told == kind),
        )
    });
    let message = bad.first()?["message"].as_str()?;
    Some(Trouble {
        is_final: false,
        message: format!("{title}: {message}"),
    })
}

/// Conditions that say why there is no machine yet, the nearest to the cause first.
const TOLD: [&str; 7] = [
    "InstanceReady",
    "APIServerIngressReadyCondition",
    "InfrastructureReady",
    "BootstrapConfigReady",
    "NodeHealthy",
    "Ready",
    "Deleting",
];

/// None: there is no Kubernetes yet that could have any.
fn health(live: &Live, name: &str) -> Option<HealthReport> {
    let cluster = live.get(Kind::Cluster, name)?;
    if cluster["status"]["initialization"]["controlPlaneInitialized"] != true {
        return None;
    }
    let available = condition(cluster, "Available");
    let mut reasons = BTreeMap::new();
    let api = live
        .of(Kind::ControlPlane)
        .find_map(|object| condition(object, "Available"));
    let api = if api == Some("True") { "ok" } else { "failed" };
    reasons.insert("api".to_owned(), api.to_owned());
    for machine in live.of(Kind::Machine).take(MOST) {
        let node = machine["status"]["nodeRef"]["name"].as_str();
        let node = api::text::plain(node.unwrap_or_else(|| name_of(machine)), 253);
        let ready = condition(machine, "NodeReady").or_else(|| condition(machine, "NodeHealthy"));
        let ready = api::text::plain(ready.unwrap_or("Unknown"), 16);
        reasons.insert(format!("{node}.Ready"), ready);
    }
    let all_ready = reasons
        .iter()
        .all(|(key, value)| !key.ends_with(".Ready") || value == "True");
    Some(HealthReport {
        status: match available {
            Some("True") if all_ready => HealthStatus::Healthy,
            Some("True" | "False") => HealthStatus::Unhealthy,
            _ => HealthStatus::Unknown,
        },
        reasons,
    })
}

/// By the schema of the status, with what is told of the API.
const MOST: usize = 255;

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == kind)?;
    found["status"].as_str()
}

fn of_group(group: &NodeGroup, live: &Live, whole: State) -> GroupStatus {
    let machines: Vec<_> = live
        .of(Kind::Machine)
        .filter(|machine| is_of(machine, group))
        .collect();
    let reason = machines
        .iter()
        .find_map(|machine| of_machine(machine, live));
    let state = match whole {
        // A group that has all its machines does not fail because another one does.
        State::CreateFailed if is_group_settled(group, live) => State::CreateComplete,
        State::UpdateFailed if is_group_settled(group, live) => State::UpdateComplete,
        whole => whole,
    };
    let addresses = machines.iter().filter_map(|machine| address(machine));
    GroupStatus {
        state: Some(state_of_group(group, state)),
        reason: reason.map(|reason| api::text::plain(&reason.message, LONGEST)),
        version: oldest(machines.iter().filter_map(|machine| version(machine))),
        node_addresses: addresses.take(1024).collect(),
    }
}

/// What runs on a machine that is a node.
fn version(machine: &Value) -> Option<&str> {
    machine["status"]["nodeRef"]["name"].as_str()?;
    let told = machine["status"]["nodeInfo"]["kubeletVersion"].as_str();
    told.or_else(|| machine["spec"]["version"].as_str())
}

/// Where a machine is reached: from outside where it can be.
fn address(machine: &Value) -> Option<String> {
    let addresses = machine["status"]["addresses"].as_array()?;
    let of = |kind: &str| addresses.iter().find(|address| address["type"] == kind);
    let address = of("ExternalIP").or_else(|| of("InternalIP"))?;
    Some(api::text::plain(address["address"].as_str()?, 255))
}

#[cfg(test)]
mod tests;
