//! What Windlass calls itself, and its things, towards the API.

use std::collections::BTreeMap;

use api::openstack::OF_LABEL;

use crate::definition::API;

/// The field manager of what is written of clouds and services.
pub const MANAGER: &str = "windlass-openstack";
/// The engine of the actions of their runs.
pub const ENGINE: &str = "openstack";
/// On what was made for a service: which of its parts it is.
pub const PART_LABEL: &str = "openstack.windlass.dev/part";
/// On what was made for a drill: the cloud that it is of. A service of that name is another one.
pub const DRILL_LABEL: &str = "openstack.windlass.dev/drill";
/// On a restore: when it was about to empty the databases, before it did.
pub const EMPTIED: &str = "openstack.windlass.dev/databases-emptied";
/// On a Deployment that a restore stopped. Who scales one does not mark it.
pub const STOPPED: &str = "openstack.windlass.dev/stopped";
/// On ConfigMaps with configuration files.
pub const CONFIG_PART: &str = "config";

/// The Secret of an object of that word.
pub fn secret(object: &str, word: &str) -> String {
    format!("{object}-{word}")
}

/// The release of the pods that serve.
pub fn api(object: &str) -> String {
    component(object, API)
}

/// The release of the pods of a component.
pub fn component(object: &str, component: &str) -> String {
    format!("{object}-{component}")
}

/// The release of what a step runs once.
pub fn step(object: &str, step: &str) -> String {
    format!("{object}-{}", step.replace('/', "-"))
}

/// What says whose something is outside of Kubernetes, in the cluster of this unique id.
pub fn owner(object: &str, namespace: &str, cluster: &str) -> String {
    format!("{OWNER}{namespace}/{object} of cluster {cluster}")
}

/// Whether that names an object of a Windlass, whichever it is.
pub fn is_owner(described: &str) -> bool {
    described.starts_with(OWNER)
}

const OWNER: &str = "windlass ";

/// The ConfigMap with the configuration files of this digest. Another text is another object: pods that stand keep theirs.
pub fn config(object: &str, digest: &str) -> String {
    format!("{object}-config-{digest}")
}

/// The same of one component alone.
pub fn config_of(object: &str, component: &str, digest: &str) -> String {
    config(&format!("{object}-{component}"), digest)
}

/// On everything that is made for an object, or for a drill of this cloud under its name.
pub fn labels(object: &str, drill_of: Option<&str>) -> BTreeMap<String, String> {
    let all = [
        ("app.kubernetes.io/managed-by", Some("windlass")),
        (OF_LABEL, Some(object)),
        (DRILL_LABEL, drill_of),
    ];
    let all = all.into_iter();
    all.filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect()
}

/// Whether what has these labels was made for that.
pub fn is_own(labels: &BTreeMap<String, String>, object: &str, drill_of: Option<&str>) -> bool {
    let of = |name: &str| labels.get(name).map(String::as_str);
    of(OF_LABEL) == Some(object) && of(DRILL_LABEL) == drill_of
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_drill_s_is_no_service_s_and_the_other_way_round() {
        let service = labels("one-drill", None);
        let drill = labels("one-drill", Some("one"));
        assert!(is_own(&service, "one-drill", None));
        assert!(is_own(&drill, "one-drill", Some("one")));
        assert!(!is_own(&service, "one-drill", Some("one")));
        assert!(!is_own(&drill, "one-drill", None));
        assert!(!is_own(&drill, "one-drill", Some("two")));
        assert!(!is_own(&service, "two-drill", None));
        assert!(!is_own(&BTreeMap::new(), "one-drill", None));
    }
}
