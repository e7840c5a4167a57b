//! What a runner is in its namespace, and what it may do there: pure.
//!
//! Each Cluster has an account of its own with a Role of its own, whose every rule names the objects that it speaks of: the
//! Cluster, its Lease, its kubeconfig, the Secrets that the plan refers to, and the runs that are at work. A playbook that reads
//! the pod's token has no more than that. `create` cannot be bound to a name, so the operator makes the Lease and the
//! kubeconfig's Secret, empty, and the runner only changes them. What is left without a name is that it may tell Events.
//!
//! An API server lets nobody give rights that he has not himself. So the operator has them all, for every name; that is less
//! than the right to `escalate` or `bind` would be.

use std::collections::BTreeSet;

use api::{Cluster, Run};
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Secret, ServiceAccount},
        networking::v1::NetworkPolicy,
        rbac::v1::{Role, RoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::manifest::{bounded, selector_labels};
use crate::{inputs::Inputs, moving::host_keys_name, runner::lease_name, secret::kubeconfig_name};

/// What a runner needs in its namespace before its Job is made, in this order.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) identity: ServiceAccount,
    pub(super) role: Role,
    pub(super) binding: RoleBinding,
    pub(super) lease: Lease,
    pub(super) kubeconfig: Secret,
    /// Where the network of runners is bounded.
    pub(super) network: Option<NetworkPolicy>,
}

/// The name of a cluster's account, Role and the like.
pub fn account_name(cluster: &str) -> String {
    bounded(&format!("windlass-runner-{cluster}"))
}

impl Account {
    /// Of the runner of `run`, beside runners of other runs that may still be at work for the cluster.
    pub(super) fn new(
        run: &Run,
        others: &BTreeSet<String>,
        egress_ports: &[u16],
    ) -> Result<Self, serde_json::Error> {
        let cluster = &run.spec.subject.name;
        let name = account_name(cluster);
        let inputs = Inputs::from_map(&run.spec.plan.inputs).ok();
        let owner = owner(run);
        let object = |kind: &str, version: &str, name: &str| {
            json!({
                "apiVersion": version, "kind": kind,
                "metadata": {
                    "name": name, "ownerReferences": owner,
                    "labels": {
                        "app.kubernetes.io/name": "windlass",
                        "app.kubernetes.io/managed-by": "windlass",
                        "windlass.dev/cluster": bounded(cluster),
                    },
                },
            })
        };
        let rbac = "rbac.authorization.k8s.io";
        let with = |mut object: Value, field: &str, value: Value| {
            object[field] = value;
            object
        };
        let mut binding = object("RoleBinding", &format!("{rbac}/v1"), &name);
        binding["roleRef"] = json!({"apiGroup": rbac, "kind": "Role", "name": name});
        binding["subjects"] = json!([{"kind": "ServiceAccount", "name": name}]);
        let rules = rules(run, others, inputs.as_ref());
        Ok(Self {
            identity: typed(object("ServiceAccount", "v1", &name))?,
            role: typed(with(
                object("Role", &format!("{rbac}/v1"), &name),
                "rules",
                rules,
            ))?,
            binding: typed(binding)?,
            lease: typed(object(
                "Lease",
                "coordination.k8s.io/v1",
                &lease_name(cluster),
            ))?,
            kubeconfig: typed(object("Secret", "v1", &kubeconfig_name(cluster)))?,
            network: (!egress_ports.is_empty())
                .then(|| {
                    let policy = object("NetworkPolicy", "networking.k8s.io/v1", &name);
                    typed(with(policy, "spec", network(egress_ports, inputs.as_ref())))
                })
                .transpose()?,
        })
    }
}

fn typed<K: DeserializeOwned>(object: Value) -> Result<K, serde_json::Error> {
    serde_json::from_value(object)
}

/// The Cluster, which the Run names as its owner: also when it cannot be read.
fn owner(run: &Run) -> Vec<OwnerReference> {
    let owners = run.metadata.owner_references.iter().flatten();
    owners
        .filter(|owner| owner.kind == Cluster::kind(&()))
        .cloned()
        .collect()
}

fn rules(run: &Run, others: &BTreeSet<String>, inputs: Option<&Inputs>) -> Value {
    let cluster = &run.spec.subject.name;
    let runs: BTreeSet<_> = others
        .iter()
        .cloned()
        .chain(run.metadata.name.clone())
        .collect();
    let mut secrets = inputs.map(Inputs::secrets).unwrap_or_default();
    let kubeconfig = kubeconfig_name(cluster);
    secrets.extend([host_keys_name(cluster), kubeconfig.clone()]);
    let rule = |group: &str, resource: &str, verbs: &[&str], names: Value| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs, "resourceNames": names});
    let workflow = "workflow.windlass.dev";
    json!([
        rule("kubespray.k8s.io", "clusters", &["get"], json!([cluster])),
        // By its name alone: a watch with that as its field selector.
        rule(workflow, "runs", &["get", "list", "watch"], json!(runs)),
        rule(workflow, "runs/status", &["patch"], json!(runs)),
        rule("coordination.k8s.io", "leases", &["get", "update"], json!([lease_name(cluster)])),
        rule("", "secrets", &["get"], json!(secrets)),
        rule("", "secrets", &["patch"], json!([kubeconfig])),
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
    ])
}

/// Nobody reaches a runner; a runner reaches names, the hosts by ssh, and these ports.
fn network(ports: &[u16], inputs: Option<&Inputs>) -> Value {
    let mut ports: BTreeSet<u16> = ports.iter().copied().collect();
    ports.extend(inputs.map(Inputs::ssh_ports).unwrap_or_default());
    let port = |port: u16, protocol: &str| json!({"port": port, "protocol": protocol});
    let reached: Vec<_> = ports
        .into_iter()
        .map(|number| port(number, "TCP"))
        .collect();
    json!({
        "podSelector": {"matchLabels": selector_labels()},
        "policyTypes": ["Ingress", "Egress"],
        "egress": [{"ports": [port(53, "UDP"), port(53, "TCP")]}, {"ports": reached}],
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(cluster: &str) -> Run {
        serde_json::from_value(json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {
                "name": "first-create-1", "namespace": "demo", "uid": "u",
                "ownerReferences": [{"apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "name": cluster, "uid": "c"}],
            },
            "spec": {
                "subject": {"apiGroup": "kubespray.k8s.io", "kind": "Cluster", "name": cluster}, "operation": "Create", "generation": 1,
                "plan": {"digest": "d", "steps": [], "inputs": {
                    "kubespray": "2.30.0", "source": {"origin": "o", "digest": "d"}, "renew": "30d",
                    "hosts": [
                        {"name": "a", "roles": [], "variables": {"ansible_host": "10.0.0.1", "ansible_port": 2022}},
                    ],
                    "ssh": {
                        "user": "root", "port": 2222, "connectTimeout": "5s", "key": {"name": "ssh"},
                        "knownHostsSecret": {"name": "hosts"},
                        "bastion": {"address": "10.0.0.9", "port": 2200},
                    },
                }},
            },
        }))
        .unwrap()
    }

    #[test]
    fn every_right_but_to_tell_events_names_its_objects() {
        let others = ["first-converge-2".to_owned()].into();
        let account = Account::new(&run("first"), &others, &[]).unwrap();
        let rules = account.role.rules.unwrap();
        let named = |resource: &str, verb: &str| {
            let rules = rules.iter().filter(|rule| {
                rule.resources.iter().flatten().any(|name| name == resource)
                    && rule.verbs.iter().any(|name| name == verb)
            });
            rules
                .flat_map(|rule| rule.resource_names.clone().unwrap_or_default())
                .collect::<Vec<_>>()
        };
        assert_eq!(named("clusters", "get"), ["first"]);
        for (resource, verb) in [("runs", "watch"), ("runs/status", "patch")] {
            assert_eq!(
                named(resource, verb),
                ["first-converge-2", "first-create-1"]
            );
        }
        assert_eq!(named("leases", "update"), ["cluster-first"]);
        let read = ["first-host-keys", "first-kubeconfig", "hosts", "ssh"];
        assert_eq!(named("secrets", "get"), read);
        assert_eq!(named("secrets", "patch"), ["first-kubeconfig"]);
        let unnamed: Vec<_> = rules
            .iter()
            .filter(|rule| rule.resource_names.is_none())
            .collect();
        assert_eq!(unnamed.len(), 1);
        assert_eq!(
            unnamed[0].resources.as_deref(),
            Some(&["events".to_owned()][..])
        );
        assert_eq!(unnamed[0].verbs, ["create"]);
        assert!(account.network.is_none());
    }

    #[test]
    fn all_of_it_goes_with_the_cluster() {
        let Account {
            identity,
            role,
            binding,
            lease,
            kubeconfig,
            network,
        } = Account::new(&run("first"), &BTreeSet::new(), &[443]).unwrap();
        let network = network.unwrap();
        for metadata in [
            identity.metadata,
            role.metadata,
            binding.metadata,
            lease.metadata,
            kubeconfig.metadata,
            network.metadata,
        ] {
            assert_eq!(
                metadata.owner_references.unwrap()[0].uid,
                "c",
                "{:?}",
                metadata.name
            );
        }
    }

    #[test]
    fn a_long_name_still_is_one_of_an_account() {
        let [one, other] = ["a", "b"].map(|end| account_name(&format!("{}{end}", "x".repeat(62))));
        assert!(
            one.len() <= 63 && one.starts_with("windlass-runner-x"),
            "{one}"
        );
        assert_ne!(one, other);
    }

    #[test]
    fn nobody_reaches_a_runner_and_it_reaches_its_hosts() {
        let account = Account::new(&run("first"), &BTreeSet::new(), &[443]).unwrap();
        let policy = serde_json::to_value(account.network.unwrap().spec.unwrap()).unwrap();
        assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
        assert!(policy.get("ingress").is_none(), "{policy:#}");
        let ports = policy["egress"][1]["ports"].as_array().unwrap();
        let ports: Vec<_> = ports
            .iter()
            .map(|port| port["port"].as_u64().unwrap())
            .collect();
        assert_eq!(ports, [443, 2022, 2200, 2222]);
        assert_eq!(
            policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"],
            "runner"
        );
    }
}
