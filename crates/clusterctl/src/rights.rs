//! The rights that whoever installs, upgrades and removes a provider needs, computed from the objects that it is made of. Pure.
//!
//! Each object is named: nothing else of its kind can be read, written or deleted. Kinds alone are listed, by which one finds what
//! has the label of a provider, but not Secrets, which are looked at one by one.
//!
//! Kubernetes lets nobody give rights that he does not have (escalation): who writes a role must hold its rules, and who writes a
//! binding must hold those of the role that it gives. The verbs `escalate` and `bind` lift that, and whoever has them for a role can make
//! himself everything that the role's holders are; so they are never asked for. Instead the rules that a provider's own roles give are
//! among the rights, and what that cannot be done for is left to a person who holds everything ([`ByHand`]): a role with a `*`, which
//! would be a `*` here too; a role that gathers others, which the API takes from administrators alone; a binding to such a role, or to one
//! that is none of the release, whose rules are not known here.
//!
//! # Source
//! kubernetes v1.34 `pkg/registry/rbac/clusterrole/policybased`, and `createAuthorizerAttributes` of `endpoints/handlers/patch.go`: what
//! server-side apply creates is authorised by its name. `IsOnlyMutatingGCFields` of `pkg/registry/rbac`: whose owners a role has is no
//! escalation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::Object;

mod rule;

pub use rule::Rule;

/// What the installation of a provider takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rights {
    /// What the role of its installer has to give, without any `*`.
    pub rules: Vec<Rule>,
    /// What a person applies.
    pub by_hand: Vec<ByHand>,
}

/// A role or a binding that nobody can write by such rights.
#[derive(Clone, Debug, PartialEq)]
pub struct ByHand {
    /// The role or binding.
    pub object: Object,
    /// Why, as a clause for people.
    pub why: String,
}

/// The rights that these objects take.
pub fn rights(objects: &[Object]) -> Rights {
    let plurals = plurals(objects);
    let by_hand = by_hand(objects);
    let beyond: BTreeSet<_> = by_hand.iter().map(|one| one.object.title()).collect();
    let mut rules = Vec::new();
    for object in objects {
        let is_by_hand = is_rbac(object) && beyond.contains(&object.title());
        let verbs = if is_by_hand { LEFT } else { verbs(object) };
        rules.extend(of_object(object, verbs, &plurals));
        if is_role(object) && !is_by_hand {
            rules.extend(given(object));
        }
        if is_definition(object) {
            rules.extend(of_definition(object));
        }
    }
    Rights {
        rules: Rule::merged(rules),
        by_hand,
    }
}

/// What it takes to be told when these objects change: their kinds, and Secrets by name, which are listed so too, for a watch begins with a
/// list. Who may watch something may read it, and all of this may be read by [`rights`].
pub fn watching(objects: &[Object]) -> Vec<Rule> {
    let plurals = plurals(objects);
    let rules = objects.iter().filter(|object| !is_namespace(object));
    let rules = rules.map(|object| {
        let plural = plural_of(object, &plurals);
        if is_secret(object) {
            Rule::on(object.group(), &plural, &["list", "watch"]).named(object.name())
        } else {
            Rule::on(object.group(), &plural, &["watch"])
        }
    });
    Rule::merged(rules)
}

/// What is done with an object by its name. With a namespace would go all that is in it, and with a definition everything that is of it:
/// they are never removed.
fn verbs(object: &Object) -> &'static [&'static str] {
    if is_definition(object) || is_namespace(object) {
        &["get", "create", "patch"]
    } else {
        &["get", "create", "patch", "delete"]
    }
}

/// With its own name, and to find it.
fn of_object(
    object: &Object,
    verbs: &[&str],
    plurals: &BTreeMap<[String; 2], String>,
) -> impl Iterator<Item = Rule> + use<> {
    let resource = plural_of(object, plurals);
    let named = Rule::on(object.group(), &resource, verbs).named(object.name());
    let is_listed = !is_secret(object) && !is_namespace(object);
    let listed = is_listed.then(|| Rule::on(object.group(), &resource, &["list"]));
    std::iter::once(named).chain(listed)
}

fn plural_of(object: &Object, plurals: &BTreeMap<[String; 2], String>) -> String {
    let kind = [object.group(), object.kind()].map(str::to_owned);
    let known = plurals.get(&kind).cloned();
    known.unwrap_or_else(|| plural(object.kind()))
}

/// Objects of a definition are listed, for it does not go while there are some, and stored anew in a newer version.
fn of_definition(definition: &Object) -> [Rule; 2] {
    let text = |path| definition.value().pointer(path).and_then(Value::as_str);
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let status = Rule::on(
        definition.group(),
        "customresourcedefinitions/status",
        &["patch"],
    );
    [
        Rule::on(
            group.unwrap_or_default(),
            plural.unwrap_or_default(),
            &["list", "patch"],
        ),
        status.named(definition.name()),
    ]
}

fn by_hand(objects: &[Object]) -> Vec<ByHand> {
    let mut within = BTreeSet::new();
    let mut beyond = Vec::new();
    for role in objects.iter().filter(|object| is_role(object)) {
        match beyond_any(role) {
            Some(why) => beyond.push(ByHand {
                object: role.clone(),
                why,
            }),
            None => {
                within.insert(role.title());
            }
        }
    }
    let bindings = objects
        .iter()
        .filter(|object| is_rbac(object) && object.kind().ends_with("Binding"));
    for binding in bindings {
        let role = bound(binding);
        if !within.contains(&role) {
            beyond.push(ByHand {
                object: binding.clone(),
                why: format!("it gives {role}, whose rules the operator does not hold"),
            });
        }
    }
    beyond
}

/// Why a role gives what nobody can give by rules without a `*`.
fn beyond_any(role: &Object) -> Option<String> {
    let gathers = role
        .value()
        .pointer("/aggregationRule/clusterRoleSelectors")
        .and_then(Value::as_array);
    if gathers.is_some_and(|selectors| !selectors.is_empty()) {
        return Some(
            "it gathers the rules of other roles, which may be any (aggregationRule)".to_owned(),
        );
    }
    let rule = given(role).into_iter().find(Rule::has_wildcard)?;
    Some(format!("it gives {rule}, with a wildcard"))
}

/// The title of the role that a binding gives.
fn bound(binding: &Object) -> String {
    let text = |path| {
        let found = binding.value().pointer(path).and_then(Value::as_str);
        found.unwrap_or_default()
    };
    let (kind, name) = (text("/roleRef/kind"), text("/roleRef/name"));
    match kind {
        "Role" => format!("{kind} {}/{name}", binding.namespace()),
        _ => format!("{kind} {name}"),
    }
}

/// The rules of a role.
fn given(role: &Object) -> Vec<Rule> {
    let rules = role.value().get("rules").and_then(Value::as_array);
    rules.into_iter().flatten().map(Rule::read).collect()
}

/// What the kinds of the release's own definitions are called in paths, by group and kind.
fn plurals(objects: &[Object]) -> BTreeMap<[String; 2], String> {
    let named = objects
        .iter()
        .filter(|object| is_definition(object))
        .filter_map(|definition| {
            let text = |path| {
                let found = definition.value().pointer(path).and_then(Value::as_str);
                found.map(str::to_owned)
            };
            let kind = [text("/spec/group")?, text("/spec/names/kind")?];
            Some((kind, text("/spec/names/plural")?))
        });
    named.collect()
}

/// As the kinds of Kubernetes and cert-manager are called in paths.
fn plural(kind: &str) -> String {
    let word = kind.to_lowercase();
    if word.starts_with("endpoint") && word.ends_with('s') {
        return word;
    }
    if ["s", "x", "ch", "sh"].iter().any(|end| word.ends_with(end)) {
        return word + "es";
    }
    match word.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ => word + "s",
    }
}

fn is_definition(object: &Object) -> bool {
    object.kind() == "CustomResourceDefinition" && object.group() == "apiextensions.k8s.io"
}

fn is_namespace(object: &Object) -> bool {
    object.kind() == "Namespace" && object.group().is_empty()
}

fn is_secret(object: &Object) -> bool {
    object.kind() == "Secret" && object.group().is_empty()
}

fn is_rbac(object: &Object) -> bool {
    object.group() == "rbac.authorization.k8s.io"
}

fn is_role(object: &Object) -> bool {
    is_rbac(object) && matches!(object.kind(), "Role" | "ClusterRole")
}

/// What is done with what a person applied. A patch may change its owners alone: of any other the API holds the rules against those of who
/// asks for it.
const LEFT: &[&str] = &["get", "patch", "delete"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str, rules: &Value) -> Object {
        Object::new(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
        }))
        .unwrap()
    }

    fn binding(role: &str) -> Object {
        Object::new(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "binding"},
            "roleRef": {"kind": "ClusterRole", "name": role},
        }))
        .unwrap()
    }

    /// The rules as lines, and what is for a person.
    fn told(objects: &[Object]) -> (Vec<String>, Vec<String>) {
        let Rights { rules, by_hand } = rights(objects);
        let by_hand = by_hand
            .iter()
            .map(|one| format!("{}: {}", one.object.title(), one.why));
        (
            rules.iter().map(Rule::to_string).collect(),
            by_hand.collect(),
        )
    }

    #[test]
    fn whoever_writes_a_role_and_its_binding_holds_what_the_role_gives() {
        let rules = json!([
            {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get"]},
            {"nonResourceURLs": ["/version"], "verbs": ["get"]},
        ]);
        let (rules, by_hand) = told(&[role("manager", &rules), binding("manager")]);
        assert_eq!(by_hand, [""; 0]);
        assert_eq!(
            rules,
            [
                "get nodes, pods",
                "list clusterrolebindings.rbac.authorization.k8s.io, clusterroles.rbac.authorization.k8s.io",
                "create, delete, get, patch clusterrolebindings.rbac.authorization.k8s.io named binding",
                "create, delete, get, patch clusterroles.rbac.authorization.k8s.io named manager",
                "get /version",
            ]
        );
    }

    #[test]
    fn a_wildcard_is_for_a_person_and_so_is_a_binding_to_it_or_to_a_role_from_elsewhere() {
        for rules in [
            json!([{"apiGroups": ["infrastructure.example"], "resources": ["*"], "verbs": ["get"]}]),
            json!([{"apiGroups": [""], "resources": ["pods/*"], "verbs": ["get"]}]),
            json!([{"nonResourceURLs": ["/metrics/*"], "verbs": ["get"]}]),
        ] {
            let (rules, by_hand) = told(&[role("manager", &rules), binding("manager")]);
            assert_eq!(by_hand.len(), 2, "{by_hand:?}");
            assert!(
                by_hand[0].starts_with("ClusterRole manager: it gives get "),
                "{by_hand:?}"
            );
            assert!(
                by_hand[1]
                    .starts_with("ClusterRoleBinding binding: it gives ClusterRole manager, whose"),
                "{by_hand:?}"
            );
            for rule in rules {
                let is_harmless = ["list ", "delete, get, patch "]
                    .iter()
                    .any(|start| rule.starts_with(start));
                assert!(is_harmless && !rule.contains('*'), "{rule}");
            }
        }
        let (_, by_hand) = told(&[binding("cluster-admin")]);
        assert_eq!(by_hand.len(), 1, "{by_hand:?}");
    }

    #[test]
    fn kinds_are_called_in_paths_as_kubernetes_calls_them() {
        for (kind, expected) in [
            ("Deployment", "deployments"),
            ("NetworkPolicy", "networkpolicies"),
            ("Ingress", "ingresses"),
            ("PriorityClass", "priorityclasses"),
            ("Gateway", "gateways"),
            ("Endpoints", "endpoints"),
            ("APIService", "apiservices"),
        ] {
            assert_eq!(plural(kind), expected);
        }
    }
}
