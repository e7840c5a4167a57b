//! What a runner is in its namespace, and what it may do there: pure.
//!
//! Each subject has an account of its own with a Role of its own, whose every rule names the objects that it speaks of: the
//! subject, its Lease, the Secret that is written, the Secrets that the plan refers to, the runs that are at work, and those that
//! may be steps of these. A program
//! that reads the pod's token has no more than that. `create` cannot be bound to a name, so the operator makes the Lease and the
//! Secret that is written, empty, and the runner only changes them; it makes the runs that are steps, too ([`crate::child`]). What is left without a name is that it may tell Events.
//!
//! An API server lets nobody give rights that he has not himself. So the operator has them all, for every name; that is less
//! than the right to `escalate` or `bind` would be.

use std::collections::BTreeSet;

use api::Run;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Secret, ServiceAccount},
        networking::v1::NetworkPolicy,
        rbac::v1::{Role, RoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::manifest::{bounded, selector_labels};
use crate::{lease_name, subject::Reach};

/// What a runner needs in its namespace before its Job is made, in this order.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) identity: ServiceAccount,
    pub(super) role: Role,
    pub(super) binding: RoleBinding,
    pub(super) lease: Lease,
    /// What the runner writes.
    pub(super) written: Vec<Secret>,
    /// Where the network of runners is bounded.
    pub(super) network: Option<NetworkPolicy>,
}

/// Runs that the runners of a subject speak of, beside the one that the account is made for.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    /// Those whose runners may still be at work with this account.
    pub(super) others: BTreeSet<String>,
    /// Those that may be steps of all these.
    pub(super) children: BTreeSet<String>,
}

/// The name of the account, Role and the like of a subject whose runners' things are named after `owner`.
pub fn account_name(owner: &str) -> String {
    bounded(&format!("windlass-runner-{owner}"))
}

impl Account {
    /// Of the runner of `run`, beside runners of other runs that may still be at work for the subject.
    pub(super) fn new(
        run: &Run,
        name: &str,
        reach: &Reach,
        runs: &Runs,
        egress_ports: &[u16],
    ) -> Result<Self, serde_json::Error> {
        let subject = &run.spec.subject;
        let name = account_name(name);
        let owner = owner(run);
        let label = format!("windlass.dev/{}", subject.kind.to_lowercase());
        let object = |kind: &str, version: &str, name: &str| {
            json!({
                "apiVersion": version, "kind": kind,
                "metadata": {
                    "name": name, "ownerReferences": owner,
                    "labels": {
                        "app.kubernetes.io/name": "windlass",
                        "app.kubernetes.io/managed-by": "windlass",
                        (label.as_str()): bounded(&subject.name),
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
        let rules = rules(run, reach, runs);
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
                &lease_name(&subject.kind, &subject.name),
            ))?,
            written: reach
                .written
                .iter()
                .map(|name| typed(object("Secret", "v1", name)))
                .collect::<Result<_, _>>()?,
            network: (!egress_ports.is_empty())
                .then(|| {
                    let policy = object("NetworkPolicy", "networking.k8s.io/v1", &name);
                    typed(with(policy, "spec", network(egress_ports, &reach.ports)))
                })
                .transpose()?,
        })
    }
}

fn typed<K: DeserializeOwned>(object: Value) -> Result<K, serde_json::Error> {
    serde_json::from_value(object)
}

/// The subject, which the Run names as its owner: also when it cannot be read.
pub(super) fn owner(run: &Run) -> Vec<OwnerReference> {
    let owners = run.metadata.owner_references.iter().flatten();
    owners
        .filter(|owner| owner.kind == run.spec.subject.kind)
        .cloned()
        .collect()
}

fn rules(run: &Run, reach: &Reach, runs: &Runs) -> Value {
    let subject = &run.spec.subject;
    let Reach {
        resource,
        secrets,
        written,
        ports: _,
    } = reach;
    let Runs { others, children } = runs;
    let runs: BTreeSet<_> = others.iter().chain(&run.metadata.name).collect();
    let read: BTreeSet<_> = secrets.iter().chain(written).collect();
    let lease = lease_name(&subject.kind, &subject.name);
    let workflow = "workflow.windlass.dev";
    let mut rules = Vec::new();
    let mut rule = |group: &str, resource: &str, verbs: &[&str], names: BTreeSet<&String>| {
        // A rule that names nothing would speak of everything.
        if !names.is_empty() {
            rules.push(json!({
                "apiGroups": [group], "resources": [resource], "verbs": verbs, "resourceNames": names,
            }));
        }
    };
    rule(
        &subject.api_group,
        resource,
        &["get"],
        [&subject.name].into(),
    );
    // By its name alone: a watch with that as its field selector.
    rule(workflow, "runs", &["get", "list", "watch"], runs.clone());
    rule(workflow, "runs/status", &["patch"], runs);
    // To steer them; of their specs nothing else can change.
    rule(
        workflow,
        "runs",
        &["get", "list", "watch", "patch"],
        children.iter().collect(),
    );
    rule(
        "coordination.k8s.io",
        "leases",
        &["get", "update"],
        [&lease].into(),
    );
    rule("", "secrets", &["get"], read);
    rule("", "secrets", &["patch"], written.iter().collect());
    rules.push(
        json!({"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]}),
    );
    json!(rules)
}

/// Nobody reaches a runner; a runner reaches names, what it works on, and the ports that the operator adds.
fn network(added: &[u16], own: &BTreeSet<u16>) -> Value {
    let ports: BTreeSet<u16> = added.iter().chain(own).copied().collect();
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

    fn run(widget: &str) -> Run {
        serde_json::from_value(json!({
            "apiVersion": "workflow.windlass.dev/v1alpha1", "kind": "Run",
            "metadata": {
                "name": "first-make-1", "namespace": "demo", "uid": "u",
                "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Widget", "name": widget, "uid": "w"}],
            },
            "spec": {
                "subject": {"apiGroup": "example.com", "kind": "Widget", "name": widget}, "operation": "Make", "generation": 1,
                "plan": {"digest": "d", "steps": []},
            },
        }))
        .unwrap()
    }

    fn account(runs: &Runs, egress_ports: &[u16]) -> Account {
        let reach = Reach {
            resource: "widgets",
            secrets: ["glue".to_owned(), "paint".to_owned()].into(),
            written: ["first-receipt".to_owned(), "first-shelf".to_owned()].into(),
            ports: [2022, 2200, 2222].into(),
        };
        Account::new(&run("first"), "widget-first", &reach, runs, egress_ports).unwrap()
    }

    #[test]
    fn every_right_but_to_tell_events_names_its_objects() {
        let runs = Runs {
            others: ["first-mend-2".to_owned()].into(),
            children: ["first-make-1-0-1".to_owned()].into(),
        };
        let account = account(&runs, &[]);
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
        assert_eq!(named("widgets", "get"), ["first"]);
        let (own, child) = (["first-make-1", "first-mend-2"], ["first-make-1-0-1"]);
        assert_eq!(named("runs/status", "patch"), own);
        assert_eq!(named("runs", "watch"), [&own[..], &child].concat());
        // It steers its children, and not itself; and it makes none.
        assert_eq!(named("runs", "patch"), child);
        assert_eq!(named("runs", "create"), [""; 0]);
        assert_eq!(named("leases", "update"), ["widget-first"]);
        let read = ["first-receipt", "first-shelf", "glue", "paint"];
        assert_eq!(named("secrets", "get"), read);
        assert_eq!(named("secrets", "patch"), ["first-receipt", "first-shelf"]);
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
    fn a_runner_that_needs_no_secrets_has_no_right_to_any() {
        let reach = Reach {
            resource: "widgets",
            ..Reach::default()
        };
        let account = Account::new(&run("first"), "first", &reach, &Runs::default(), &[]).unwrap();
        let rules = account.role.rules.unwrap();
        let mut resources = rules
            .iter()
            .flat_map(|rule| rule.resources.iter().flatten());
        assert!(!resources.any(|resource| resource == "secrets"));
        assert!(account.written.is_empty());
    }

    #[test]
    fn all_of_it_goes_with_the_subject() {
        let Account {
            identity,
            role,
            binding,
            lease,
            written,
            network,
        } = account(&Runs::default(), &[443]);
        assert_eq!(written.len(), 2);
        let written = written.into_iter().map(|secret| secret.metadata);
        let others = [
            identity.metadata,
            role.metadata,
            binding.metadata,
            lease.metadata,
            network.unwrap().metadata,
        ];
        for metadata in others.into_iter().chain(written) {
            assert_eq!(
                metadata.owner_references.unwrap()[0].uid,
                "w",
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
    fn nobody_reaches_a_runner_and_it_reaches_what_it_works_on() {
        let account = account(&Runs::default(), &[443]);
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
