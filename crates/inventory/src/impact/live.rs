//! What there is of machines.

use serde_json::Value;

use crate::{contract::CLUSTER_NAME, problem::Object};

/// Objects of an API that say which machines there are. Those that are being deleted go in any case, and are not of it.
#[derive(Clone, Debug, Default)]
pub struct Live {
    machines: Vec<Value>,
    sets: Vec<Value>,
    configs: Vec<Value>,
}

impl Live {
    /// Of Machines, MachineSets and KubeadmConfigs, in any order.
    pub fn new(objects: impl IntoIterator<Item = Value>) -> Self {
        let mut live = Self::default();
        for object in objects {
            if object["metadata"]["deletionTimestamp"].is_string() {
                continue;
            }
            match object["kind"].as_str() {
                Some("Machine") => live.machines.push(object),
                Some("MachineSet") => live.sets.push(object),
                Some("KubeadmConfig") => live.configs.push(object),
                _ => {}
            }
        }
        live
    }

    /// The Machines with a label, or with any value of it, beside that of the cluster where one is named.
    pub(super) fn labelled(
        &self,
        namespace: &str,
        cluster: Option<&str>,
        label: &str,
        value: Option<&str>,
    ) -> Vec<&Value> {
        let is_it = |machine: &&Value| {
            let labels = &machine["metadata"]["labels"];
            let is_of = |cluster: &str| labels[CLUSTER_NAME] == *cluster;
            let own = labels.get(label);
            machine["metadata"]["namespace"] == *namespace
                && cluster.is_none_or(is_of)
                && own.is_some_and(|own| value.is_none_or(|value| own == value))
        };
        self.machines.iter().filter(is_it).collect()
    }

    /// The Machines that an object controls.
    pub(super) fn controlled(&self, by: &Object) -> Vec<&Value> {
        let is_it = |machine: &&Value| {
            machine["metadata"]["namespace"] == by.namespace
                && controller(machine, &by.kind) == Some(&by.name)
        };
        self.machines.iter().filter(is_it).collect()
    }

    /// The MachineSet that a Machine is of.
    pub(super) fn set(&self, machine: &Value) -> Option<&Value> {
        let name = controller(machine, "MachineSet")?;
        let mut sets = self.sets.iter();
        sets.find(|set| is(set, machine, name))
    }

    /// What a Machine was bootstrapped with.
    pub(super) fn config(&self, machine: &Value) -> Option<&Value> {
        let name = machine["spec"]["bootstrap"]["configRef"]["name"].as_str()?;
        let mut configs = self.configs.iter();
        configs.find(|config| is(config, machine, name))
    }
}

/// The name of a machine.
pub(super) fn name(machine: &Value) -> String {
    let name = machine["metadata"]["name"].as_str();
    name.unwrap_or_default().to_owned()
}

fn is(object: &Value, beside: &Value, name: &str) -> bool {
    object["metadata"]["name"] == name
        && object["metadata"]["namespace"] == beside["metadata"]["namespace"]
}

fn controller<'a>(machine: &'a Value, kind: &str) -> Option<&'a str> {
    let owners = machine["metadata"]["ownerReferences"].as_array()?;
    let owner = owners
        .iter()
        .find(|owner| owner["controller"] == true && owner["kind"] == kind)?;
    owner["name"].as_str()
}
