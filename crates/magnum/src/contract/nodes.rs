//! Labels and taints that a node group may give its nodes.

use std::collections::BTreeMap;

use api::magnum::NodeTaint;
use serde_json::Value;

/// Namespaces of labels in which a kubelet may set its own.
const PREFIXES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Labels that a kubelet may set outside of these.
///
/// # Source
/// Kubernetes, the admission plugin NodeRestriction.
const KEYS: [&str; 12] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

/// Says what is wrong with labels of nodes, if anything is.
pub fn wrong_labels(labels: &BTreeMap<String, String>) -> Option<String> {
    labels.iter().find_map(|(key, value)| {
        if !is_key(key) || !is_value(value) {
            return Some(format!("{key}={value} is no label of Kubernetes"));
        }
        (!is_free(key)).then(|| format!("{key} is a label that a node may not give itself"))
    })
}

/// Reads taints of nodes.
///
/// # Errors
///
/// They are no list of `{key, value?, effect}` as Kubernetes takes it.
pub fn taints(value: &Value) -> Result<Vec<NodeTaint>, String> {
    let taints: Vec<NodeTaint> =
        serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    let is_wrong = |taint: &&NodeTaint| {
        !is_key(&taint.key) || !is_value(taint.value.as_deref().unwrap_or_default())
    };
    match taints.iter().find(is_wrong) {
        Some(taint) => Err(format!("{} is no taint of Kubernetes", taint.key)),
        None => Ok(taints),
    }
}

fn is_free(key: &str) -> bool {
    let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
    let is_below = |parent: &str| {
        namespace
            .strip_suffix(parent)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    KEYS.contains(&key)
        || PREFIXES.into_iter().any(is_below)
        || !(is_below("kubernetes.io") || is_below("k8s.io"))
}

fn is_key(key: &str) -> bool {
    let (namespace, name) = key.split_once('/').unwrap_or(("x", key));
    let is_domain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    !name.is_empty()
        && is_value(name)
        && (1..=253).contains(&namespace.len())
        && namespace.chars().all(is_domain)
}

fn is_value(value: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let bytes = value.as_bytes();
    bytes.len() <= 63 && bytes.iter().all(is_inner) && is_end(bytes.first()) && is_end(bytes.last())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn label(key: &str, value: &str) -> Option<String> {
        wrong_labels(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[test]
    fn a_node_gives_itself_only_what_a_kubelet_may() {
        for key in [
            "tier",
            "example.com/tier",
            "node.kubernetes.io/x",
            "topology.kubernetes.io/zone",
            "my.kubelet.kubernetes.io/a",
        ] {
            assert_eq!(label(key, "a"), None, "{key}");
        }
        for key in [
            "kubernetes.io/x",
            "node-role.kubernetes.io/control-plane",
            "a.k8s.io/b",
            "",
            "a/",
            "/a",
            "a b",
            "A.com/b",
        ] {
            assert!(label(key, "a").is_some(), "{key}");
        }
        assert!(label("tier", &"a".repeat(64)).is_some());
    }

    #[test]
    fn a_taint_has_one_of_three_effects() {
        let good = json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "a/b", "effect": "NoExecute"}]);
        assert_eq!(taints(&good).unwrap().len(), 2);
        for bad in [
            json!({}),
            json!([{"key": "a"}]),
            json!([{"key": "a", "effect": "Never"}]),
            json!([{"key": "a b", "effect": "NoExecute"}]),
            json!([{"key": "a", "effect": "NoExecute", "x": 1}]),
        ] {
            assert!(taints(&bad).is_err(), "{bad}");
        }
    }
}
