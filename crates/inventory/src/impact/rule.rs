//! Which rule says what becomes of machines and hosts by an object, and of which objects none does.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Bound, Edit, Edits, Effect, Happens, KUBESPRAY, What, fields, topology, workers};
use crate::{
    contract::{self, CONTROL_PLANE, CORE},
    problem::Object,
};

/// Who says it, each in its own file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Rule {
    Deployment,
    Set,
    Machine,
    Pool,
    Topology,
    Kubeadm,
    OtherControlPlane,
    Hosts,
    Host,
    /// A VaultSecret: machines for which a value of it matters have a digest of that in their template.
    Nothing,
}

impl Rule {
    /// That of a kind; None: nothing is known of it.
    fn of(group: &str, kind: &str) -> Option<Self> {
        Some(match (group, kind) {
            (CORE, "MachineDeployment") => Self::Deployment,
            (CORE, "MachineSet") => Self::Set,
            (CORE, "Machine") => Self::Machine,
            (CORE, "MachinePool") => Self::Pool,
            (CORE, "Cluster") => Self::Topology,
            (CONTROL_PLANE, "KubeadmControlPlane") => Self::Kubeadm,
            (CONTROL_PLANE, kind) if kind.ends_with("ControlPlane") => Self::OtherControlPlane,
            (KUBESPRAY, "Cluster") => Self::Hosts,
            (KUBESPRAY, "ClusterNode") => Self::Host,
            (api::secrets::GROUP, "VaultSecret") => Self::Nothing,
            _ => return None,
        })
    }

    /// That of an object, if it is of a version that the rule reads, before and after.
    pub(super) fn reads(group: &str, object: &Object, edit: Edit<'_>) -> Option<Self> {
        let rule = Self::of(group, &object.kind)?;
        let values = [edit.before, edit.after];
        let mut versions = values.into_iter().flatten().map(contract::version_of);
        let is_read = versions.all(|version| match group {
            CORE | CONTROL_PLANE => contract::VERSIONS.contains(&version),
            KUBESPRAY => version == "v1",
            _ => true,
        });
        is_read.then_some(rule)
    }

    /// The objects that an object names whose change under their names is told of it.
    fn follows<'a>(
        self,
        object: &Object,
        value: &'a Value,
        all: &Edits<'a>,
    ) -> Vec<(&'a str, Object)> {
        let references = match self {
            Self::Deployment | Self::Set | Self::Pool => workers::named(value).to_vec(),
            Self::Kubeadm => vec![contract::infrastructure_of_control_plane(value)],
            Self::Topology => return topology::named(object, value, all),
            Self::Machine | Self::OtherControlPlane | Self::Hosts | Self::Host | Self::Nothing => {
                Vec::new()
            }
        };
        Edits::named(&object.namespace, &references)
    }
}

/// The objects whose change may do anything, for no rule reads them: those of a kind without a rule that say something else than before, and
/// those of a version that nobody here has seen, also where they come or go.
pub(super) fn unknown(all: &Edits<'_>) -> Vec<Effect> {
    let mut followed = BTreeSet::new();
    for ((group, object), edit) in &all.0 {
        if let Some(rule) = Rule::reads(group, object, *edit) {
            let values = [edit.before, edit.after].into_iter().flatten();
            followed.extend(values.flat_map(|value| rule.follows(object, value, all)));
        }
    }
    let others = all.0.iter().filter(|(key, edit)| {
        Rule::reads(key.0, &key.1, **edit).is_none() && !followed.contains(*key)
    });
    let effects = others.filter_map(|((group, object), edit)| {
        let has_rule = Rule::of(group, &object.kind).is_some();
        effect(object, *edit, has_rule)
    });
    effects.collect()
}

fn effect(object: &Object, edit: Edit<'_>, keeps_machines: bool) -> Option<Effect> {
    let mut because = match (edit.before, edit.after) {
        (Some(before), Some(after)) => {
            let of = |value: &Value| fields::without(value, &NOT_SAID);
            let mut because = fields::keys("spec", &before["spec"], &after["spec"]);
            because.extend(fields::keys("", &of(before), &of(after)));
            if because.is_empty() {
                return None;
            }
            because
        }
        _ if keeps_machines => Vec::new(),
        _ => return None,
    };
    let version = edit.after.or(edit.before)?["apiVersion"].as_str();
    because.insert(0, format!("apiVersion {}", version.unwrap_or_default()));
    Some(Effect {
        of: object.clone(),
        part: None,
        what: What::Unknown,
        happens: Happens::Unknown,
        count: None,
        bound: Bound::AtMost,
        names: Vec::new(),
        because,
    })
}

/// What names an object, what others write of it, and the spec, which is told by its fields.
const NOT_SAID: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
