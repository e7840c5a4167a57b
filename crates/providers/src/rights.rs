//! What the operator must be allowed for a provider: what its objects take, and what is written beside them. Pure.

use std::collections::BTreeSet;

use api::run::Failure;
use clusterctl::{
    Object, Provider,
    rights::{Rights, Rule, rights, watching},
};
use controller::apply::contains;
use k8s_openapi::api::authorization::v1::SubjectRulesReviewStatus;
use runs::calls::{FORBIDDEN, config};
use serde_json::{Value, json};

use crate::{certificates, drift, names::WEBHOOK_CHECK, render};

/// So many rules are named.
const SHOWN: usize = 8;

/// For objects as they are applied, and Secrets with certificates by name.
pub fn of(
    manifest_label: &str,
    objects: &[Object],
    secrets: impl IntoIterator<Item = String>,
) -> Rights {
    rights(&with_ours(manifest_label, objects, secrets))
}

/// Objects, and what is written beside them.
fn with_ours(
    manifest_label: &str,
    objects: &[Object],
    secrets: impl IntoIterator<Item = String>,
) -> Vec<Object> {
    let object = |kind: &str, name: &str| {
        Object::new(json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})).ok()
    };
    let mut all = objects.to_vec();
    all.extend(object("ConfigMap", &drift::config_map(manifest_label)));
    let secrets = secrets.into_iter();
    all.extend(secrets.filter_map(|name| object("Secret", &name)));
    all
}

/// For a release in the cluster that has the provider's object, whether or not a cert-manager makes its certificates there.
pub fn of_release(manifest_label: &str, mut objects: Vec<Object>) -> Rights {
    // What only cert-manager makes is none of ours.
    let wanted = certificates::wanted(&objects).unwrap_or_default();
    let secrets = wanted
        .into_iter()
        .flat_map(|one| [one.authority(), one.secret]);
    objects.retain(|object| !render::is_namespace(object));
    let all = with_ours(manifest_label, &objects, secrets);
    let mut rights = rights(&all);
    let rules = rights.rules.into_iter();
    // No run needs to be told of changes: who is not looks once a minute.
    let rules = rules.chain(asking(&objects)).chain(watching(&all));
    rights.rules = Rule::merged(rules);
    rights
}

/// To be told of another value of a variable, which begins with a list of that one Secret: whoever may watch it may read it.
pub fn watching_variables(name: &str) -> Rule {
    Rule {
        api_groups: BTreeSet::from([String::new()]),
        resources: BTreeSet::from(["secrets".to_owned()]),
        resource_names: BTreeSet::from([name.to_owned()]),
        verbs: ["list", "watch"].map(str::to_owned).into(),
        ..Rule::default()
    }
}

/// What it takes to see whether webhooks answer. No run needs it: who has it not is told that they are not asked.
fn asking(objects: &[Object]) -> Vec<Rule> {
    let rule = |group: &str, resource: &str, name: Option<&str>, verb: &str| Rule {
        api_groups: BTreeSet::from([group.to_owned()]),
        resources: BTreeSet::from([resource.to_owned()]),
        resource_names: name.into_iter().map(str::to_owned).collect(),
        verbs: BTreeSet::from([verb.to_owned()]),
        ..Rule::default()
    };
    let list = |group: &str, resource: &str| {
        ["list", "watch"].map(|verb| rule(group, resource, None, verb))
    };
    let admission = "admissionregistration.k8s.io";
    // By these it is seen whether there are any.
    let mut rules = [
        list(admission, "mutatingwebhookconfigurations"),
        list(admission, "validatingwebhookconfigurations"),
    ]
    .concat();
    if objects.iter().any(render::is_called_by) {
        rules.extend(list("discovery.k8s.io", "endpointslices"));
        let definitions = objects
            .iter()
            .filter(|object| render::is_definition(object));
        rules.extend(definitions.filter_map(|definition| {
            let text = |path| definition.value().pointer(path).and_then(Value::as_str);
            let (group, plural) = (text("/spec/group")?, text("/spec/names/plural")?);
            Some(rule(group, plural, Some(WEBHOOK_CHECK), "create"))
        }));
    }
    rules
}

/// The rules that somebody has, as the API tells them. None: others than roles decide, and not all is told.
pub(crate) fn held(status: &SubjectRulesReviewStatus) -> Option<Vec<Rule>> {
    if status.incomplete {
        return None;
    }
    let set = |texts: &Option<Vec<String>>| texts.iter().flatten().cloned().collect();
    let of_resources = status.resource_rules.iter().map(|rule| Rule {
        api_groups: set(&rule.api_groups),
        resources: set(&rule.resources),
        resource_names: set(&rule.resource_names),
        verbs: rule.verbs.iter().cloned().collect(),
        ..Rule::default()
    });
    let of_paths = status.non_resource_rules.iter().map(|rule| Rule {
        non_resource_urls: set(&rule.non_resource_urls),
        verbs: rule.verbs.iter().cloned().collect(),
        ..Rule::default()
    });
    Some(of_resources.chain(of_paths).collect())
}

/// That rules are missing.
pub(crate) fn lacking(provider: &Provider, missing: &[Rule]) -> Failure {
    let shown = missing.iter().take(SHOWN).map(Rule::to_string);
    let more = missing.len().saturating_sub(SHOWN);
    let more = (more > 0).then(|| format!("{more} more rules"));
    let rules: Vec<_> = shown.chain(more).collect();
    config(
        FORBIDDEN,
        format!(
            "the operator may not do what this version takes: {}",
            rules.join("; ")
        ),
        &format!("{}, and retry the run", command(provider)),
    )
}

/// What to do where the API refuses: whether that was for want of a right, it says in words alone.
pub(crate) fn remedy(provider: &Provider) -> String {
    format!(
        "where the operator lacks a right, {}; else mend what is named; then retry the run",
        command(provider)
    )
}

/// Why a call was not answered as it should, with what to do where it was refused.
pub(crate) fn told(error: &kube::Error, provider: &Provider) -> String {
    let why = controller::chain(error);
    match error {
        kube::Error::Api(status) if status.code == 403 => format!("{why}; {}", command(provider)),
        _ => why,
    }
}

/// What is not known for want of a right, with what to do.
pub(crate) fn unasked(what: &str, provider: &Provider) -> String {
    format!("{what}; {}", command(provider))
}

fn command(provider: &Provider) -> String {
    format!(
        "review what `windlass providers rights {}` prints, and apply it",
        provider.manifest_label()
    )
}

/// Whether a role or a binding stands as it is wanted, whoever wrote it. Others are written by whoever may.
pub(crate) fn stands(wanted: &Object, found: &Value) -> bool {
    let field = |path: &str| {
        let found = found.pointer(path).unwrap_or(&Value::Null);
        match wanted.value().pointer(path) {
            None | Some(Value::Null) => found.is_null(),
            // The API adds defaults to what it is given.
            Some(wanted) => contains(found, wanted),
        }
    };
    let is_gathered = |value: &Value| {
        value
            .pointer("/aggregationRule")
            .is_some_and(|rule| !rule.is_null())
    };
    let fields: &[&str] = match wanted.kind() {
        _ if wanted.group() != "rbac.authorization.k8s.io" => return false,
        // Its rules are those that were gathered.
        "ClusterRole" if is_gathered(wanted.value()) => &["/aggregationRule"],
        "Role" | "ClusterRole" if is_gathered(found) => return false,
        "Role" | "ClusterRole" => &["/rules"],
        _ => &["/roleRef", "/subjects"],
    };
    field("/metadata/labels") && fields.iter().all(|path| field(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider() -> Provider {
        Provider::new(clusterctl::ProviderType::Infrastructure, "boat").unwrap()
    }

    fn object(value: Value) -> Object {
        Object::new(value).unwrap()
    }

    #[test]
    fn what_is_written_beside_a_release_is_allowed_too_and_its_namespace_is_not_touched() {
        let certificate = object(json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "serving", "namespace": "boat-system"},
            "spec": {"dnsNames": ["webhook.boat-system.svc"], "secretName": "webhook-cert"},
        }));
        let namespace = object(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "boat-system"}}),
        );
        let rights = of_release("infrastructure-boat", vec![namespace, certificate]);
        let told: Vec<_> = rights.rules.iter().map(Rule::to_string).collect();
        for expected in [
            "create, delete, get, list, patch, watch secrets named webhook-cert, webhook-cert-authority",
            "create, delete, get, patch configmaps named windlass-applied-infrastructure-boat",
            "create, delete, get, patch certificates.cert-manager.io named serving",
        ] {
            assert!(told.iter().any(|told| told == expected), "{told:#?}");
        }
        assert!(!told.join(" ").contains("namespaces"), "{told:#?}");
    }

    #[test]
    fn whoever_asks_webhooks_may_make_objects_of_one_name_alone() {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.boat.example"},
            "spec": {"group": "boat.example", "names": {"kind": "Boat", "plural": "boats"}},
        });
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "boat"},
        });
        let told = |objects: &[&Value]| {
            let objects = objects.iter().map(|value| object((*value).clone()));
            let rights = of_release("infrastructure-boat", objects.collect());
            let told: Vec<_> = rights.rules.iter().map(Rule::to_string).collect();
            told.join("\n")
        };
        let both = told(&[&definition, &configuration]);
        for expected in [
            "create boats.boat.example named windlass-webhook-check",
            "list, watch mutatingwebhookconfigurations.admissionregistration.k8s.io, validatingwebhookconfigurations.",
            "list, watch endpointslices.discovery.k8s.io",
            "list, watch customresourcedefinitions.apiextensions.k8s.io",
            "list, patch boats.boat.example",
        ] {
            assert!(both.contains(expected), "{expected}: {both}");
        }
        let alone = told(&[&definition]);
        assert!(
            !alone.contains("windlass-webhook-check"),
            "nobody is to be asked: {alone}"
        );
        // A run goes on without them.
        let needed = of(
            "infrastructure-boat",
            &[object(definition), object(configuration)],
            [],
        );
        let needed: Vec<_> = needed.rules.iter().map(Rule::to_string).collect();
        assert!(
            !needed.join(" ").contains("windlass-webhook-check"),
            "{needed:?}"
        );
        assert!(!needed.join(" ").contains("watch"), "{needed:?}");
    }

    #[test]
    fn a_right_that_is_missing_is_told_with_the_command_that_prints_it() {
        let rule = json!({"verbs": ["get"], "apiGroups": ["*"], "resources": ["*"]});
        let status = |incomplete: bool| {
            let status =
                json!({"incomplete": incomplete, "resourceRules": [rule], "nonResourceRules": []});
            serde_json::from_value::<SubjectRulesReviewStatus>(status).unwrap()
        };
        assert_eq!(held(&status(true)), None);
        let held = held(&status(false)).unwrap();
        let role = object(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "boat"},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch", "get"]}],
        }));
        let needed = of("infrastructure-boat", &[role], []).rules;
        let missing = Rule::missing(&needed, &held);
        let failure = lacking(&provider(), &missing);
        assert!(failure.message.contains("patch nodes"), "{failure:?}");
        assert!(!failure.message.contains("get"), "{failure:?}");
        let remedy = failure.remedy.unwrap();
        let command = "`windlass providers rights infrastructure-boat`";
        assert!(remedy.contains(command), "{remedy}");
    }

    #[test]
    fn what_a_person_applied_is_left_as_long_as_it_is_what_is_wanted() {
        let role = |more: &Value| {
            let mut role = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "boat", "labels": {"a": "b"}},
            });
            for (key, value) in more.as_object().unwrap() {
                role[key] = value.clone();
            }
            role
        };
        let all = json!([{"apiGroups": ["boat.example"], "resources": ["*"], "verbs": ["get"]}]);
        let gathering = json!({"clusterRoleSelectors": [{"matchLabels": {"boat": "true"}}]});
        let plain = role(&json!({"rules": all}));
        let gathered = role(&json!({"rules": [], "aggregationRule": gathering}));
        let filled = role(&json!({"rules": all, "aggregationRule": gathering}));
        for (wanted, found, expected) in [
            (&plain, &plain, true),
            (&plain, &role(&json!({"rules": []})), false),
            (
                &plain,
                &role(&json!({"rules": all, "metadata": {"labels": {}}})),
                false,
            ),
            (&plain, &filled, false),
            (&gathered, &filled, true),
            (&gathered, &plain, false),
        ] {
            assert_eq!(
                stands(&object(wanted.clone()), found),
                expected,
                "{wanted} {found}"
            );
        }
        let binding = |account: &str| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "boat"},
                "roleRef": {"kind": "ClusterRole", "name": "boat"}, "subjects": [{"kind": "ServiceAccount", "name": account}],
            })
        };
        let mut found = binding("boat");
        found["roleRef"]["apiGroup"] = json!("rbac.authorization.k8s.io");
        assert!(stands(&object(binding("boat")), &found));
        assert!(!stands(&object(binding("other")), &found));
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        assert!(
            !stands(&object(map.clone()), &map),
            "others are not for a person"
        );
    }
}
