//! The order in which objects are made.

use crate::Object;

/// Namespaces first, then what is cert-manager's, so that certificates are on their way when the webhooks that need them come;
/// the rest stays as it stands in the file.
pub(super) fn sort(objects: &mut [Object]) {
    objects.sort_by_key(|object| match (object.group(), object.kind()) {
        ("", "Namespace") => 0,
        ("cert-manager.io", _) => 1,
        _ => 2,
    });
}
