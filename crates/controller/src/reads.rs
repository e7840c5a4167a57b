//! What a controller reads of an object: it is woken when that changes, and not when anything else does.

use kube::{Resource, core::DeserializeGuard};

/// What a reconciler reads of its own object: not its status, which it writes.
pub fn wish<K: Resource<DynamicType = ()>>(
    object: &DeserializeGuard<K>,
) -> impl PartialEq + Send + use<K> {
    let meta = object.meta();
    let annotations = meta.annotations.iter().flatten();
    (
        meta.generation,
        meta.deletion_timestamp.is_some(),
        meta.finalizers.clone().unwrap_or_default(),
        annotations
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect::<Vec<_>>(),
    )
}

/// That it is there, and stays.
pub fn existence<K: Resource<DynamicType = ()>>(object: &DeserializeGuard<K>) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// All of it.
pub fn everything<K: Resource<DynamicType = ()>>(
    object: &DeserializeGuard<K>,
) -> impl PartialEq + Send + use<K> {
    object.meta().resource_version.clone()
}
