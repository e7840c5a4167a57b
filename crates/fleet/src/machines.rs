//! Which machines of Cluster API there are.

use std::collections::BTreeSet;

use inventory::impact::{Effect, Live, What};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
    core::TypeMeta,
    discovery,
};
use serde_json::Value;

/// The namespaces of which it matters for effects which machines there are.
pub fn places<'a>(effects: impl IntoIterator<Item = &'a Effect>) -> BTreeSet<String> {
    let effects = effects.into_iter();
    let machines = effects.filter(|effect| effect.what == What::Machine);
    machines.map(|effect| effect.of.namespace.clone()).collect()
}

/// The machines of namespaces. None: the API has no Cluster API.
///
/// # Errors
/// The API refuses or does not answer.
pub async fn read(
    client: &Client,
    namespaces: &BTreeSet<String>,
) -> Result<Option<Live>, kube::Error> {
    let mut objects = Vec::new();
    let mut is_served = false;
    for (group, kind) in KINDS {
        let served = match discovery::group(client, group).await {
            Ok(served) => served,
            Err(kube::Error::Discovery(_)) => continue,
            Err(error) => return Err(error),
        };
        let Some((resource, _)) = served.recommended_kind(kind) else {
            continue;
        };
        is_served = true;
        for namespace in namespaces {
            let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
            for mut object in api.list(&ListParams::default()).await? {
                // Entries of a list do not say what they are.
                object.types = Some(TypeMeta {
                    api_version: resource.api_version.clone(),
                    kind: resource.kind.clone(),
                });
                object.metadata.managed_fields = None;
                objects.push(serde_json::to_value(object).unwrap_or(Value::Null));
            }
        }
    }
    Ok(is_served.then(|| Live::new(objects)))
}

/// What says which machines there are, what they were made from, and how they came into their cluster.
const KINDS: [(&str, &str); 3] = [
    ("cluster.x-k8s.io", "Machine"),
    ("cluster.x-k8s.io", "MachineSet"),
    ("bootstrap.cluster.x-k8s.io", "KubeadmConfig"),
];
