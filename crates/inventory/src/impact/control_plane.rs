//! Machines of a control plane.
//!
//! A KubeadmControlPlane replaces its Machines when the version, the reference to the template of their infrastructure, or what they are
//! bootstrapped with is another one; metadata, drain timeouts and taints are brought to them where they are. Of what they are bootstrapped
//! with, `initConfiguration` is the first Machine's alone and `joinConfiguration` that of the others: the first one stays as long as it is
//! what either of the two says.

use serde_json::{Value, json};

use super::{
    Bound, Edit, Edits, Effect, Happens, Live,
    fields::{self, Fields},
    group::{Change, Group, Outdated},
    workers,
};
use crate::{contract, problem::Object};

pub(super) fn kubeadm(
    object: &Object,
    edit: Edit<'_>,
    all: &Edits<'_>,
    live: Option<&Live>,
) -> Vec<Effect> {
    let group = group(object, live);
    let (before, after) = match workers::of_both(&group, edit) {
        Ok(both) => both,
        Err(effects) => return effects,
    };
    let because = fields::differing(&rolled(before), &rolled(after));
    let outdated = if because.is_empty() {
        let joins = Joins::of(before, after);
        joins
            .and_then(|joins| joins.outdated(&group, live))
            .or_else(|| {
                let restart = workers::restart(before, after)?;
                Some(Outdated {
                    bound: Bound::AtMost,
                    ..Outdated::all(Happens::Replaced, vec![restart])
                })
            })
            .or_else(|| {
                workers::under_its_name(
                    all,
                    object,
                    &[contract::infrastructure_of_control_plane(after)],
                )
            })
            .unwrap_or_else(|| Outdated::all(Happens::Replaced, Vec::new()))
    } else {
        Outdated::all(Happens::Replaced, because)
    };
    group.changed(Change {
        size: workers::size(before, after, group.there()),
        outdated,
        in_place: in_place(before, after),
    })
}

/// A control plane that is not kubeadm's: what its provider does with a field is not known here.
pub(super) fn other(object: &Object, edit: Edit<'_>, live: Option<&Live>) -> Vec<Effect> {
    let group = group(object, live);
    let (before, after) = match workers::of_both(&group, edit) {
        Ok(both) => both,
        Err(effects) => return effects,
    };
    let of = |object: &Value| fields::without(&object["spec"], &["replicas"]);
    let because = fields::keys("spec", &of(before), &of(after));
    group.changed(Change {
        size: workers::size(before, after, group.there()),
        outdated: Outdated {
            bound: Bound::AtMost,
            ..Outdated::all(Happens::Replaced, because)
        },
        in_place: Vec::new(),
    })
}

fn group<'a>(object: &'a Object, live: Option<&'a Live>) -> Group<'a> {
    Group {
        of: object,
        part: None,
        machines: live.map(|live| live.controlled(object)),
    }
}

/// The fields by which all its Machines are replaced.
fn rolled(object: &Value) -> Fields {
    let spec = &object["spec"];
    let mut known = Fields::from([
        ("spec.version".to_owned(), fields::version(&spec["version"])),
        (
            "spec.machineTemplate.spec.infrastructureRef".to_owned(),
            fields::reference(contract::infrastructure_of_control_plane(object)),
        ),
    ]);
    let mut config = fields::without(&spec["kubeadmConfigSpec"], &OF_ONE);
    // The first is written into the cluster as it stands, and the second is Cluster API's to say.
    let cluster = config.get_mut("clusterConfiguration");
    if let Some(cluster) = cluster.and_then(Value::as_object_mut) {
        cluster.remove("dns");
        cluster.remove("controlPlaneEndpoint");
    }
    for (key, value) in config.as_object().into_iter().flatten() {
        known.insert(
            format!("spec.kubeadmConfigSpec.{key}"),
            fields::filled(value),
        );
    }
    known.retain(|_, value| !value.is_null());
    known
}

/// How Machines come into the cluster, before and after: the first one, and the others.
struct Joins {
    init: (Value, Value),
    join: (Value, Value),
}

impl Joins {
    /// None: it is the same.
    fn of(before: &Value, after: &Value) -> Option<Self> {
        let of = |object: &Value, key: &str, dropped: &[&str]| {
            let config = &object["spec"]["kubeadmConfigSpec"][key];
            let mut config = fields::without(config, dropped);
            let timeouts = config.get_mut("timeouts");
            if let Some(timeouts) = timeouts.and_then(Value::as_object_mut) {
                timeouts.remove("controlPlaneComponentHealthCheckSeconds");
            }
            fields::filled(&config)
        };
        let both = |key, dropped| (of(before, key, dropped), of(after, key, dropped));
        let joins = Self {
            init: both("initConfiguration", &[]),
            join: both("joinConfiguration", &["discovery"]),
        };
        (joins.init.0 != joins.init.1 || joins.join.0 != joins.join.1).then_some(joins)
    }

    /// The Machines that are others by it.
    fn outdated<'a>(&self, group: &Group<'a>, live: Option<&Live>) -> Option<Outdated<'a>> {
        let because: Vec<_> = [
            ("initConfiguration", &self.init),
            ("joinConfiguration", &self.join),
        ]
        .into_iter()
        .filter(|(_, (before, after))| before != after)
        .map(|(key, _)| format!("spec.kubeadmConfigSpec.{key}"))
        .collect();
        let (first, others) = (self.is_first_outdated(), self.join.0 != self.join.1);
        let mut outdated = Outdated::all(Happens::Replaced, because);
        if first == others {
            return first.then_some(outdated);
        }
        let roles = group.machines.as_ref().zip(live).map(|(machines, live)| {
            let mut roles = machines.iter().map(|machine| {
                let config = live.config(machine)?;
                Some((*machine, has_joined(config)))
            });
            roles.by_ref().collect::<Option<Vec<_>>>()
        });
        match roles.flatten() {
            Some(roles) => {
                let is_old = |(_, joined): &(&Value, bool)| if *joined { others } else { first };
                let only: Vec<_> = roles.into_iter().filter(is_old).collect();
                outdated.only = Some(only.into_iter().map(|(machine, _)| machine).collect());
            }
            // Which one was the first, and whether it is still there, is not known.
            None => outdated.bound = Bound::AtMost,
        }
        Some(outdated)
    }

    /// It stays if it is what is said of those that join, or what is said of the first one.
    fn is_first_outdated(&self) -> bool {
        let (was, is) = &self.init;
        let as_joined = json!({
            "timeouts": was["timeouts"], "patches": was["patches"], "skipPhases": was["skipPhases"],
            "nodeRegistration": was["nodeRegistration"],
            "controlPlane": {"localAPIEndpoint": was["localAPIEndpoint"]},
        });
        let joins = fields::filled(&fields::without(&self.join.1, &["caCertPath"]));
        fields::filled(&as_joined) != joins && was != is
    }
}

/// Whether a Machine with this KubeadmConfig joined a cluster that was there.
fn has_joined(config: &Value) -> bool {
    let join = &config["spec"]["joinConfiguration"];
    let arguments = &join["nodeRegistration"]["kubeletExtraArgs"];
    join["controlPlane"].is_object() || !fields::filled(arguments).is_null()
}

/// The fields that are brought to Machines where they are.
fn in_place(before: &Value, after: &Value) -> Vec<String> {
    let of = |object: &Value| {
        let template = &object["spec"]["machineTemplate"];
        let spec = fields::without(&template["spec"], &["infrastructureRef"]);
        // In v1beta1 what is below `spec` stood beside it.
        let old = fields::without(template, &["infrastructureRef", "metadata", "spec"]);
        (template["metadata"].clone(), spec, old)
    };
    let (before, after) = (of(before), of(after));
    let mut paths = fields::keys("spec.machineTemplate.metadata", &before.0, &after.0);
    paths.extend(fields::keys(
        "spec.machineTemplate.spec",
        &before.1,
        &after.1,
    ));
    paths.extend(fields::keys("spec.machineTemplate", &before.2, &after.2));
    paths
}

/// What is said of the first Machine or of the others.
const OF_ONE: [&str; 2] = ["initConfiguration", "joinConfiguration"];
