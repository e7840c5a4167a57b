//! What is on a side, so that it can be compared.

use std::collections::BTreeMap;

use kube::{
    Client, ResourceExt,
    api::{DynamicObject, ListParams},
};
use serde_json::{Value, json};

use crate::{sides::KINDS, world::api};

/// What was not in the way of the move: it is here before and after.
pub(crate) const STAYS: [&str; 8] = [
    "ConfigMap/unnamed",
    "DevIdentity/who",
    "Note/about-c",
    "Provider/cluster-api",
    "Provider/infrastructure-dev",
    "Secret/who",
    "Secret/x-unknown",
    "ConfigMap/kube-root-ca.crt",
];

/// All objects of a side, by KIND/NAME, without what an API makes of them; owners by their names. With their statuses, if asked.
pub(crate) async fn snapshot(client: &Client) -> BTreeMap<String, Value> {
    let mut objects = BTreeMap::new();
    let kinds = KINDS.iter().map(|(group, kind, ..)| (*group, *kind));
    for (group, kind) in kinds.chain([("", "Secret"), ("", "ConfigMap")]) {
        let listed = api(client, group, kind, None)
            .list(&ListParams::default())
            .await;
        let Ok(listed) = listed else { continue };
        for object in listed {
            objects.insert(format!("{kind}/{}", object.name_any()), object);
        }
    }
    let names: BTreeMap<_, _> = objects
        .iter()
        .map(|(name, object)| (object.uid().unwrap(), name.clone()))
        .collect();
    let plain = |object: &DynamicObject| {
        let mut value = serde_json::to_value(object).unwrap();
        let metadata = value["metadata"].as_object_mut().unwrap();
        for field in [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "managedFields",
        ] {
            metadata.remove(field);
        }
        if metadata.get("annotations") == Some(&json!({})) {
            metadata.remove("annotations");
        }
        for owner in metadata
            .get_mut("ownerReferences")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let uid = owner["uid"].as_str().unwrap().to_owned();
            owner["uid"] = json!(names.get(&uid));
        }
        value
    };
    objects
        .iter()
        .map(|(name, object)| (name.clone(), plain(object)))
        .collect()
}

/// Without statuses, which a move leaves to controllers, and without providers, which each side has.
pub(crate) fn bare(objects: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let objects = objects
        .iter()
        .filter(|(name, _)| !name.starts_with("Provider/"));
    let objects = objects.map(|(name, object)| {
        let mut object = object.clone();
        object.as_object_mut().unwrap().remove("status");
        (name.clone(), object)
    });
    objects.collect()
}
