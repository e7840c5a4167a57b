//! What is to be done about a cluster of virtual machines, given what there is of it. Pure.

use std::collections::BTreeSet;

use api::magnum::{CLUSTER_LABEL, CoeCluster};
use controller::apply::contains;
use kube::ResourceExt;
use serde_json::Value;

use super::{GROUP_LABEL, Kind, Objects, bounds, is_scaled, name_of};

/// Has Cluster API take this machine first when a group shrinks.
pub(crate) const FIRST: &str = "cluster.x-k8s.io/delete-machine";
/// On a server: the template that it was made like.
const CLONED: &str = "cluster.x-k8s.io/cloned-from-name";

/// What there is of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Live(pub Vec<(Kind, Value)>);

impl Live {
    /// The objects of a kind.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        let all = self.0.iter().filter(move |(other, _)| *other == kind);
        all.map(|(_, object)| object)
    }

    /// An object by its name.
    pub fn get(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.of(kind).find(|object| name_of(object) == name)
    }
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Machines that have to go first, by name.
    pub marks: Vec<String>,
    /// Objects to write, in this order.
    pub apply: Vec<Value>,
    /// Objects to delete.
    pub delete: Vec<(Kind, String)>,
    /// Whether workers wait for the control planes to be of their version.
    pub waits: bool,
}

impl Plan {
    /// Whether all is as it should be.
    pub fn is_done(&self) -> bool {
        !self.waits && self.apply.is_empty() && self.delete.is_empty()
    }
}

/// What is to be done about a cluster.
pub fn plan(cluster: &CoeCluster, wanted: &Objects, live: &Live) -> Plan {
    let mut plan = Plan {
        marks: marks(cluster, live),
        ..Plan::default()
    };
    let is_ready = is_upgraded(&wanted.control_plane, live);
    for object in wanted.all() {
        let Some(kind) = Kind::of(object) else {
            continue;
        };
        let there = live.get(kind, name_of(object));
        let object = &scaled(cluster, object, there);
        let written = match (kind, there) {
            // Most of a network cannot be changed, and a template is another one where it differs.
            (Kind::Infrastructure | Kind::ServerTemplate | Kind::NodeTemplate, Some(_)) => continue,
            (Kind::Deployment, Some(there)) if !is_ready => held(object, there),
            _ => object.clone(),
        };
        plan.waits |= written != *object;
        if there.is_none_or(|there| !contains(there, &written)) {
            plan.apply.push(written);
        }
    }
    plan.delete = surplus(cluster, wanted, live);
    plan
}

/// A group that the autoscaler changes has as many nodes as it has, within its bounds.
///
/// The number stands in what is written: left out, it would be taken away from an object that nobody has scaled yet.
fn scaled(cluster: &CoeCluster, wanted: &Value, there: Option<&Value>) -> Value {
    let mut wanted = wanted.clone();
    let uuid = &wanted["metadata"]["labels"][GROUP_LABEL];
    let mut groups = cluster.spec.node_groups.iter();
    let group = groups.find(|group| *uuid == group.uuid && is_scaled(group));
    let has = there.and_then(|there| there["spec"]["replicas"].as_u64());
    if let (Some(group), Some(has), Some(Kind::Deployment)) = (group, has, Kind::of(&wanted)) {
        let (least, most) = bounds(group);
        wanted["spec"]["replicas"] = has.min(most.into()).max(least.into()).into();
    }
    wanted
}

/// Whether all control planes are of the version that they should be. Those that are only being made hold nobody up.
fn is_upgraded(wanted: &Value, live: &Live) -> bool {
    let Some(there) = live.get(Kind::ControlPlane, name_of(wanted)) else {
        return true;
    };
    let status = &there["status"];
    if status["initialization"]["controlPlaneInitialized"] != true {
        return true;
    }
    let spec = |object: &Value| object["spec"]["version"].clone();
    let count = |key: &str| status[key].as_u64().unwrap_or_default();
    spec(there) == spec(wanted)
        && status["version"] == spec(wanted)
        && count("replicas") == count("upToDateReplicas")
}

/// A group whose machines stay as they are: nodes must not be newer than their control planes.
fn held(wanted: &Value, there: &Value) -> Value {
    let mut held = wanted.clone();
    let (old, new) = (
        &there["spec"]["template"]["spec"],
        &wanted["spec"]["template"]["spec"],
    );
    if old["version"] != new["version"] {
        for key in ["version", "bootstrap", "infrastructureRef"] {
            held["spec"]["template"]["spec"][key] = old[key].clone();
        }
    }
    held
}

/// Machines that somebody named, of groups that have more than they should.
fn marks(cluster: &CoeCluster, live: &Live) -> Vec<String> {
    let mut marks = Vec::new();
    for group in &cluster.spec.node_groups {
        let of_group = |machine: &&Value| machine["metadata"]["labels"][GROUP_LABEL] == group.uuid;
        let machines: Vec<_> = live.of(Kind::Machine).filter(of_group).collect();
        let wanted = usize::try_from(group.node_count).unwrap_or(usize::MAX);
        if machines.len() <= wanted {
            continue;
        }
        let named = machines.into_iter().filter(|machine| {
            let idents = idents(machine);
            group
                .nodes_to_remove
                .iter()
                .any(|ident| idents.contains(&ident.as_str()))
                && machine["metadata"]["annotations"][FIRST].is_null()
        });
        marks.extend(named.map(|machine| name_of(machine).to_owned()));
    }
    marks
}

/// What people call a machine: its name, that of its node, its addresses, the id of its server.
fn idents(machine: &Value) -> Vec<&str> {
    let provider = machine["spec"]["providerID"].as_str();
    let addresses = machine["status"]["addresses"].as_array();
    let addresses = addresses.into_iter().flatten();
    let others = [
        Some(name_of(machine)),
        machine["status"]["nodeRef"]["name"].as_str(),
        provider.and_then(|id| id.rsplit('/').next()),
    ];
    let addresses = addresses.map(|address| address["address"].as_str());
    others.into_iter().chain(addresses).flatten().collect()
}

/// What was made for the cluster and is of no use any more.
fn surplus(cluster: &CoeCluster, wanted: &Objects, live: &Live) -> Vec<(Kind, String)> {
    let used = used(wanted, live);
    let uuid = cluster.name_any();
    let is_wanted = |kind: Kind, name: &str| {
        let mut all = wanted.all();
        all.any(|object| Kind::of(object) == Some(kind) && name_of(object) == name)
    };
    let mut surplus = Vec::new();
    for (kind, object) in &live.0 {
        let name = name_of(object);
        let is_ours = object["metadata"]["labels"][CLUSTER_LABEL] == uuid;
        let goes = object["metadata"]["deletionTimestamp"].is_string();
        let is_free = match kind {
            Kind::Deployment | Kind::HealthCheck | Kind::Addons => true,
            Kind::ServerTemplate | Kind::NodeTemplate => !used.contains(&(*kind, name.to_owned())),
            // They go with their cluster, or with what Cluster API made them for.
            Kind::Cluster
            | Kind::Infrastructure
            | Kind::ControlPlane
            | Kind::MachineSet
            | Kind::Machine
            | Kind::Server => false,
        };
        if is_ours && is_free && !goes && !is_wanted(*kind, name) {
            surplus.push((*kind, name.to_owned()));
        }
    }
    surplus
}

/// Templates that something refers to, or was made like.
fn used(wanted: &Objects, live: &Live) -> BTreeSet<(Kind, String)> {
    let name = |kind: Kind, name: &Value| Some((kind, name.as_str()?.to_owned()));
    let mut used = BTreeSet::new();
    let all = live.0.iter().map(|(_, object)| object);
    for object in all.chain(wanted.all()) {
        let of_workers = &object["spec"]["template"]["spec"];
        let of_control_planes = &object["spec"]["machineTemplate"]["spec"];
        let cloned = &object["metadata"]["annotations"][CLONED];
        used.extend(
            [
                name(
                    Kind::ServerTemplate,
                    &of_workers["infrastructureRef"]["name"],
                ),
                name(
                    Kind::NodeTemplate,
                    &of_workers["bootstrap"]["configRef"]["name"],
                ),
                name(
                    Kind::ServerTemplate,
                    &of_control_planes["infrastructureRef"]["name"],
                ),
                name(Kind::ServerTemplate, cloned),
            ]
            .into_iter()
            .flatten(),
        );
    }
    used
}
