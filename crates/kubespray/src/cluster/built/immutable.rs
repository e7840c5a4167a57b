//! Variables that a cluster keeps for as long as it lives: which network plugin and container engine it has, who makes its etcd, its
//! networks and its domain. Pure.
//!
//! The playbooks would take another value without a word, and leave a cluster of two minds: what hosts, certificates and objects have
//! from the day on which it was built they do not take back. So a changed one is carried out by no operation, and told by its name.
//! That is done only where both values are known: what a Secret holds, and what Ansible fills in, is left to the person who wrote it.

use std::fmt;

use ansible::template::is_template;
use serde_json::{Map, Value};

use crate::{inputs::Inputs, problem::Problem};

/// A variable with another value than that which the cluster was built with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Immutable {
    /// Its name.
    pub name: &'static str,
    was: String,
    is: String,
    why: &'static str,
}

/// The variables that a built cluster keeps and that are wished to have another value. `defaults` is what the playbooks take where
/// nobody says anything.
pub fn changed(
    before: &Inputs,
    wanted: &Inputs,
    defaults: Option<&Map<String, Value>>,
) -> Vec<Immutable> {
    let changed = VARIABLES.iter().filter_map(|&(name, why)| {
        if before.variables.get(name) == wanted.variables.get(name) {
            return None;
        }
        let was = known(name, before, defaults)?;
        let is = known(name, wanted, defaults)?;
        (was != is).then(|| Immutable {
            name,
            was: api::text::plain(was, LONGEST),
            is: api::text::plain(is, LONGEST),
            why,
        })
    });
    changed.collect()
}

/// The value of a variable, as far as it stands in the open.
fn known<'a>(
    name: &str,
    inputs: &'a Inputs,
    defaults: Option<&'a Map<String, Value>>,
) -> Option<&'a str> {
    // Variables of a Secret as a whole may be any.
    let may_hide = inputs.extra_vars_secret_ref.is_some() || inputs.operation_secret_ref.is_some();
    let value = match inputs.variables.get(name) {
        Some(value) => value,
        None if may_hide => return None,
        None if name == DNS_DOMAIN => return known(CLUSTER_NAME, inputs, defaults),
        None => defaults?.get(name)?,
    };
    value.as_str().filter(|text| !is_template(text))
}

impl Immutable {
    /// What is wrong with the spec.
    pub fn problem(&self) -> Problem {
        let Self { name, was, is, why } = self;
        Problem::new(
            format!("Cluster spec.nodes.all.deploy.extraVars.{name}"),
            is,
            format!("the cluster was built with {was}, and keeps it: {why}"),
            format!("write {name}: {was}, or build a new cluster with {is}"),
        )
    }
}

impl fmt::Display for Immutable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, was, is, why } = self;
        write!(
            f,
            "{name} {is} instead of {was} (spec.nodes.all.deploy.extraVars), which a built cluster keeps: {why}; to take it back: write \
             {name}: {was}; to have {is}: build a new cluster"
        )
    }
}

/// The variables, and why the playbooks cannot give them another value under a cluster that works.
///
/// # Source
/// kubespray 2.20 to 2.31: the roles `network_plugin` and `etcd` install what is named and remove nothing else;
/// `container-engine/validate-container-engine` drains a node and uninstalls its engine within the play of all nodes;
/// `docs/upgrades/migrate_docker2containerd.md` ("not officially supported"). Of networks: Kubernetes' reference of
/// `--service-cluster-ip-range`, and `Node.spec.podCIDR`, which cannot be changed.
const VARIABLES: &[(&str, &str)] = &[
    (
        "kube_network_plugin",
        "the playbooks install the other plugin beside the one at work and remove nothing of that, so pods lose their network",
    ),
    (
        "container_manager",
        "the playbooks take the engine from all nodes at once, with every pod on them",
    ),
    (
        "etcd_deployment_type",
        "the playbooks start etcd the other way beside the members at work, and move none of their data",
    ),
    (
        "kube_pods_subnet",
        "nodes and pods keep their addresses, and the playbooks give them no others",
    ),
    (
        "kube_service_addresses",
        "Services keep their addresses, those of the API and of DNS among them, which certificates and kubelets name",
    ),
    (
        CLUSTER_NAME,
        "it is the domain of Services, which certificates of the API servers and running pods have",
    ),
    (
        DNS_DOMAIN,
        "it is the domain of Services, which certificates of the API servers and running pods have",
    ),
];

/// How much of a value is shown, in characters.
const LONGEST: usize = 128;
const CLUSTER_NAME: &str = "cluster_name";
/// Where nobody says it, it is the name of the cluster.
const DNS_DOMAIN: &str = "dns_domain";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn inputs(variables: &Value, secret: &Value) -> Inputs {
        let mut inputs = json!({
            "kubespray": "2.30.0", "source": {"origin": "o", "digest": "d"}, "hosts": [], "renew": "1h",
            "ssh": {"user": "root", "port": 22, "connectTimeout": "10s"}, "variables": variables,
        });
        if !secret.is_null() {
            inputs["extraVarsSecretRef"] = secret.clone();
        }
        serde_json::from_value(inputs).unwrap()
    }

    #[test]
    fn what_is_known_on_both_sides_and_differs_is_named() {
        let defaults = json!({
            "kube_network_plugin": "calico", "cluster_name": "cluster.local", "dns_domain": "{{ cluster_name }}",
        });
        let defaults = defaults.as_object();
        let none = json!({});
        let secret = json!({"name": "vars"});
        let refers = json!({"kube_network_plugin": {"secretKeyRef": {"name": "a", "key": "b"}}});
        for (name, before, secret, wanted, expected) in [
            (
                "another value",
                &json!({"kube_network_plugin": "calico"}),
                &Value::Null,
                &json!({"kube_network_plugin": "cilium"}),
                &["kube_network_plugin"][..],
            ),
            (
                "the default by its name",
                &none,
                &Value::Null,
                &json!({"kube_network_plugin": "calico", "dns_domain": "cluster.local"}),
                &[],
            ),
            (
                "another one than the defaults",
                &none,
                &Value::Null,
                &json!({"kube_network_plugin": "cilium", "dns_domain": "b.local"}),
                &["kube_network_plugin", "dns_domain"],
            ),
            (
                "back to the default",
                &json!({"kube_network_plugin": "cilium"}),
                &Value::Null,
                &none,
                &["kube_network_plugin"],
            ),
            (
                "the domain goes with the name",
                &json!({"cluster_name": "a.local"}),
                &Value::Null,
                &json!({"cluster_name": "b.local"}),
                &["cluster_name"],
            ),
            (
                "no default is known",
                &none,
                &Value::Null,
                &json!({"container_manager": "crio"}),
                &[],
            ),
            (
                "a Secret may have said it",
                &none,
                &secret,
                &json!({"kube_network_plugin": "cilium"}),
                &[],
            ),
            (
                "a template",
                &json!({"kube_network_plugin": "{{ plugin }}"}),
                &Value::Null,
                &json!({"kube_network_plugin": "cilium"}),
                &[],
            ),
            (
                "a value from a Secret",
                &refers,
                &Value::Null,
                &json!({"kube_network_plugin": "cilium"}),
                &[],
            ),
            (
                "what a cluster may change",
                &json!({"calico_mtu": 1400}),
                &Value::Null,
                &json!({"calico_mtu": 1450}),
                &[],
            ),
        ] {
            let (before, wanted) = (inputs(before, secret), inputs(wanted, secret));
            let changed = changed(&before, &wanted, defaults);
            let names: Vec<_> = changed.iter().map(|changed| changed.name).collect();
            assert_eq!(names, expected, "{name}");
        }
    }
}
