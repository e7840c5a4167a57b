//! Variables whose values are in Secrets: where a spec refers to them, and what is wrong with what is there. Pure but for
//! [`look`].
//!
//! A plan holds references, never values: the runner reads these anew whenever it starts a playbook. So that a change of a
//! Secret is noticed, a plan also says which revision it was made with: the uid and resourceVersion, which tell nothing of
//! the content. A digest would: a short password is soon guessed from its hash, and a keyed hash needs a key that outlives
//! pods and moves along, one more secret to keep. The price is that a label put on a Secret counts as a change of it. The
//! revision is no part of a plan's own digest, so that a new password supersedes no run that is at work.

use std::collections::{BTreeMap, BTreeSet};

use ansible::inventory::{Level, refused_as_secret};
use api::{Cluster, ClusterNode, cluster::SecretKeyRef, secrets::CREDENTIALS_TYPE};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use serde_json::{Map, Value};

use crate::{
    problem::{self, Problem},
    secret,
};

/// The only field of a value that stands in a Secret.
pub const REFERENCE: &str = "secretKeyRef";

/// Where a spec refers to a Secret for a variable, or for several.
#[derive(Clone, Debug, PartialEq)]
pub struct Referred {
    /// The object and field.
    pub field: String,
    /// What it refers to.
    pub reference: SecretKeyRef,
    /// What it is to hold.
    pub holds: Holds,
}

/// What a reference is to find.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Holds {
    /// Variables.
    Variables(Level),
    /// The value of one, or a part of it.
    Value,
}

/// What was found of a reference. Nothing secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Found {
    /// There is no such Secret.
    NoSecret,
    /// The Secret is what VaultSecrets log in with.
    ForVault,
    /// The Secret has no such key, but these.
    NoKey(Vec<String>),
    /// The value of this key is no text.
    NotText(String),
    /// The value is no YAML document with a map of variables.
    NotVariables,
    /// Variables of these names, or a value.
    Usable(Vec<String>),
}

/// What was found of all references.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sight {
    found: Vec<(Referred, Found)>,
    /// Whether nothing is known of some Secret.
    is_partial: bool,
    /// The revision of each Secret that is there, by name.
    pub revisions: BTreeMap<String, String>,
}

impl Sight {
    /// Whether each Secret is there and can be used as it is.
    pub fn is_usable(&self) -> bool {
        let mut found = self.found.iter();
        found.all(|(referred, found)| wrong(referred, found).is_empty())
    }

    /// The names of all variables that Secrets hold. None: not every Secret was seen and can be used.
    pub fn names(&self) -> Option<BTreeSet<&str>> {
        let names = self.found.iter().map(|(_, found)| match found {
            Found::Usable(names) => Some(names.iter().map(String::as_str)),
            _ => None,
        });
        let names: Option<Vec<_>> = names.collect();
        let names = names.filter(|_| !self.is_partial)?;
        Some(names.into_iter().flatten().collect())
    }
}

/// Reads the Secrets that variables come from.
///
/// # Errors
///
/// The API refuses or does not answer. That a Secret is missing is no error.
pub async fn look(
    client: &Client,
    namespace: &str,
    cluster: &Cluster,
    nodes: &[ClusterNode],
) -> Result<Sight, kube::Error> {
    let (referred, _) = referred(cluster, nodes);
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let mut secrets = BTreeMap::new();
    for reference in &referred {
        let name = &reference.reference.name;
        if !secrets.contains_key(name) {
            secrets.insert(name.clone(), api.get_opt(name).await?);
        }
    }
    Ok(judge(referred, |name| {
        Some(secrets.get(name).and_then(Option::as_ref))
    }))
}

/// What is to be said of references. `secret` gives each Secret: what it is, none, or that nothing is known of it.
pub fn judge<'a>(
    referred: Vec<Referred>,
    secret: impl Fn(&str) -> Option<Option<&'a Secret>>,
) -> Sight {
    let mut sight = Sight::default();
    for referred in referred {
        let name = referred.reference.name.clone();
        let Some(known) = secret(&name) else {
            sight.is_partial = true;
            continue;
        };
        if let Some(secret) = known
            && let (Some(uid), Some(version)) = (secret.uid(), secret.resource_version())
        {
            sight.revisions.insert(name, format!("{uid}/{version}"));
        }
        let found = known.map_or(Found::NoSecret, |secret| found(secret, &referred));
        sight.found.push((referred, found));
    }
    sight
}

fn found(secret: &Secret, referred: &Referred) -> Found {
    match read(secret, &referred.reference, referred.holds) {
        Ok(Content::Variables(variables)) => Found::Usable(variables.keys().cloned().collect()),
        Ok(Content::Value(_)) => Found::Usable(Vec::new()),
        Err(found) => found,
    }
}

/// What a Secret holds. There is no way to print it.
pub(crate) enum Content {
    Variables(Map<String, Value>),
    Value(String),
}

/// What a Secret holds for a reference, or why that cannot be used.
pub(crate) fn read(
    secret: &Secret,
    reference: &SecretKeyRef,
    holds: Holds,
) -> Result<Content, Found> {
    if secret::is_for_vault(secret) {
        return Err(Found::ForVault);
    }
    let text = |key: &str| match bytes(secret, key) {
        None => Err(Found::NoKey(secret::keys(secret))),
        Some(bytes) => {
            String::from_utf8(bytes.to_vec()).map_err(|_| Found::NotText(key.to_owned()))
        }
    };
    match (&reference.key, holds) {
        (Some(key), Holds::Value) => text(key).map(Content::Value),
        // Without a key there is nothing that could be meant.
        (None, Holds::Value) => Err(Found::NoKey(secret::keys(secret))),
        (Some(key), Holds::Variables(_)) => document(&text(key)?)
            .map_or(Err(Found::NotVariables), |variables| {
                Ok(Content::Variables(variables))
            }),
        (None, Holds::Variables(_)) => {
            let mut variables = Map::new();
            for key in secret::keys(secret) {
                variables.insert(key.clone(), Value::from(text(&key)?));
            }
            Ok(Content::Variables(variables))
        }
    }
}

fn bytes<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    let plain = secret.string_data.as_ref().and_then(|data| data.get(key));
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    plain
        .map(String::as_bytes)
        .or(data.map(|bytes| bytes.0.as_slice()))
}

/// The variables of a document, read as those of a spec are. What the parser says of a mistake shows the lines around it,
/// so it is not kept.
fn document(text: &str) -> Option<Map<String, Value>> {
    /// YAML bounds the keys of a map in one line to 1024 characters.
    const LONGEST_KEY: usize = 512;
    fn short(value: &Value) -> bool {
        match value {
            Value::Object(entries) => entries
                .iter()
                .all(|(key, value)| key.chars().count() <= LONGEST_KEY && short(value)),
            Value::Array(items) => items.iter().all(short),
            _ => true,
        }
    }
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    match serde_saphyr::from_str_with_options(text, options) {
        Ok(Value::Object(variables)) if variables.values().all(short) => Some(variables),
        _ => None,
    }
}

/// Where a cluster and its hosts refer to Secrets for variables, and what only looks like a reference.
pub fn referred(cluster: &Cluster, nodes: &[ClusterNode]) -> (Vec<Referred>, Vec<Problem>) {
    let mut referred = Vec::new();
    let mut problems = Vec::new();
    let mut whole = |field: String, reference: Option<&SecretKeyRef>, level| {
        referred.extend(reference.map(|reference| Referred {
            field,
            reference: reference.clone(),
            holds: Holds::Variables(level),
        }));
    };
    let spec = &cluster.spec;
    let deploy = spec.nodes.as_ref().and_then(|nodes| nodes.all.as_ref());
    let deploy = deploy.and_then(|all| all.deploy.as_ref());
    whole(
        CLUSTER.to_owned(),
        deploy.and_then(|deploy| deploy.extra_vars_secret_ref.as_ref()),
        Level::Cluster,
    );
    let creation = spec.operations.as_ref().and_then(|o| o.creation.as_ref());
    whole(
        CREATION.to_owned(),
        creation.and_then(|creation| creation.extra_vars_secret_ref.as_ref()),
        Level::Cluster,
    );
    for node in nodes {
        whole(
            format!("ClusterNode/{} spec.extraVarsSecretRef", node.name_any()),
            node.spec.extra_vars_secret_ref.as_ref(),
            Level::Host,
        );
    }
    let mut within = |level, path: String, variables: &Map<String, Value>| {
        for (name, value) in variables {
            let path = format!("{path}.{name}");
            if holds_reference(value) {
                let refused = refused_as_secret(level, &path, name);
                problems.extend(refused.map(problem::of_inventory));
            }
            walk(&path, value, &mut referred, &mut problems);
        }
    };
    if let Some(variables) = deploy.and_then(|deploy| deploy.extra_vars.as_ref()) {
        let path = "Cluster spec.nodes.all.deploy.extraVars".to_owned();
        within(Level::Cluster, path, variables);
    }
    for node in nodes {
        let path = format!("ClusterNode/{} spec.inventory", node.name_any());
        within(Level::Host, path, &node.spec.inventory.other);
    }
    (referred, problems)
}

fn walk(path: &str, value: &Value, referred: &mut Vec<Referred>, problems: &mut Vec<Problem>) {
    match (value, reference(value)) {
        (_, Some(Some(reference))) => referred.push(Referred {
            field: format!("{path}.{REFERENCE}"),
            reference,
            holds: Holds::Value,
        }),
        (_, Some(None)) => problems.push(Problem::new(
            format!("{path}.{REFERENCE}"),
            "",
            "a reference to a Secret names it and one of its keys, and nothing else",
            format!("write {{{REFERENCE}: {{name: SECRET, key: KEY}}}}"),
        )),
        (Value::Object(entries), None) => {
            for (name, value) in entries {
                walk(&format!("{path}.{name}"), value, referred, problems);
            }
        }
        (Value::Array(items), None) => {
            for (index, value) in items.iter().enumerate() {
                walk(&format!("{path}[{index}]"), value, referred, problems);
            }
        }
        _ => {}
    }
}

/// The reference that a value is: an object whose only field is [`REFERENCE`]. Some(None): it is meant to be one.
pub fn reference(value: &Value) -> Option<Option<SecretKeyRef>> {
    let fields = value.as_object().filter(|fields| fields.len() == 1)?;
    let target = fields.get(REFERENCE)?;
    let part = |name: &str| {
        let text = target.get(name)?.as_str()?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    let exact = target.as_object().is_some_and(|target| target.len() == 2);
    Some(
        (part("name").zip(part("key")))
            .filter(|_| exact)
            .map(|(name, key)| SecretKeyRef {
                name,
                key: Some(key),
            }),
    )
}

/// Calls `with` for every reference that a value is or contains.
pub fn each_reference(value: &Value, with: &mut impl FnMut(SecretKeyRef)) {
    match (value, reference(value)) {
        (_, Some(reference)) => reference.into_iter().for_each(with),
        (Value::Object(entries), None) => {
            for value in entries.values() {
                each_reference(value, with);
            }
        }
        (Value::Array(items), None) => {
            for item in items {
                each_reference(item, with);
            }
        }
        _ => {}
    }
}

/// Whether a value is a reference, or contains one.
pub fn holds_reference(value: &Value) -> bool {
    reference(value).is_some()
        || match value {
            Value::Object(entries) => entries.values().any(holds_reference),
            Value::Array(items) => items.iter().any(holds_reference),
            _ => false,
        }
}

/// What stands for what is in a Secret.
pub const HIDDEN: &str = "in-a-secret";

/// The same value with a text in the place of each reference, which says what it stands for.
pub fn hidden(value: &Value) -> Value {
    if reference(value).is_some() {
        return Value::from(HIDDEN);
    }
    match value {
        Value::Object(entries) => {
            let hidden = entries
                .iter()
                .map(|(name, value)| (name.clone(), hidden(value)));
            Value::Object(hidden.collect())
        }
        Value::Array(items) => items.iter().map(hidden).collect(),
        plain => plain.clone(),
    }
}

/// The variables that hold no reference.
pub fn plain(variables: &Map<String, Value>) -> Map<String, Value> {
    let plain = variables
        .iter()
        .filter(|(_, value)| !holds_reference(value));
    plain
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// What is wrong with references and with what they refer to.
pub fn problems(cluster: &Cluster, nodes: &[ClusterNode], sight: &Sight) -> Vec<Problem> {
    let (_, mut problems) = referred(cluster, nodes);
    for (referred, found) in &sight.found {
        problems.extend(wrong(referred, found));
    }
    problems
}

/// What is wrong with one reference.
pub(crate) fn wrong(referred: &Referred, found: &Found) -> Vec<Problem> {
    let Referred {
        field,
        reference,
        holds,
    } = referred;
    let name = &reference.name;
    let key = reference.key.as_deref().unwrap_or_default();
    match (found, holds) {
        (Found::NoSecret, _) if key.is_empty() => vec![Problem::new(
            format!("{field}.name"),
            name,
            "there is no such Secret in the cluster's namespace",
            format!("create it: kubectl create secret generic {name} --from-env-file=PATH"),
        )],
        (Found::NoSecret, _) => vec![secret::missing(field, name, key)],
        (Found::ForVault, _) => vec![Problem::new(
            format!("{field}.name"),
            name,
            format!(
                "a Secret of the type {CREDENTIALS_TYPE} is for a Vault alone, and is no variable"
            ),
            "refer to another Secret",
        )],
        (Found::NoKey(keys), _) => vec![secret::missing_key(field, name, key, keys)],
        (Found::NotText(key), _) => vec![Problem::new(
            format!("{field}.key"),
            key,
            format!("the value in Secret {name} is no text in UTF-8"),
            "store a text; bytes can be stored in base 64, and decoded where they are used",
        )],
        (Found::NotVariables, _) => vec![Problem::new(
            format!("{field}.key"),
            key,
            format!("the value in Secret {name} is no YAML document with a map of variables"),
            "store lines of the form NAME: VALUE, or leave the key out where each key of the Secret is a variable",
        )],
        (Found::Usable(names), Holds::Variables(level)) => names
            .iter()
            .filter_map(|name| refused_as_secret(*level, field, name))
            .map(problem::of_inventory)
            .collect(),
        (Found::Usable(_), Holds::Value) => Vec::new(),
    }
}

/// Where the variables for the whole cluster are referred to.
pub(crate) const CLUSTER: &str = "Cluster spec.nodes.all.deploy.extraVarsSecretRef";
/// Where those of the creation are.
pub(crate) const CREATION: &str = "Cluster spec.operations.creation.extraVarsSecretRef";

/// The Secrets that have changed between two plans. One that was made anew is not told from one that was moved here.
pub fn changed<'a>(
    before: &'a BTreeMap<String, String>,
    now: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = &'a str> {
    let uid = |revision: &'a str| revision.split('/').next();
    before.iter().filter_map(move |(name, before)| {
        let now = now.get(name)?;
        (before != now && uid(before) == uid(now)).then_some(name.as_str())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(extra_vars: &Value, whole: &Value) -> Cluster {
        serde_json::from_value(json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "Cluster", "metadata": {"name": "first"},
            "spec": {"nodes": {"all": {"deploy": {"extraVars": extra_vars, "extraVarsSecretRef": whole}}}},
        }))
        .unwrap()
    }

    fn secret(data: &Value) -> Secret {
        serde_json::from_value(json!({
            "metadata": {"name": "s", "uid": "u", "resourceVersion": "7"}, "stringData": data,
        }))
        .unwrap()
    }

    fn told(cluster: &Cluster, secret: Option<&Secret>) -> Vec<String> {
        let (referred, _) = referred(cluster, &[]);
        let sight = judge(referred, |_| Some(secret));
        problems(cluster, &[], &sight)
            .iter()
            .map(Problem::to_string)
            .collect()
    }

    #[test]
    fn what_only_looks_like_a_reference_is_refused() {
        let reference = |target: Value| json!({"a": [{"b": {REFERENCE: target}}]});
        for target in [
            json!({"name": "s"}),
            json!({"name": "s", "key": ""}),
            json!({"name": "s", "key": "k", "optional": true}),
            json!("s"),
        ] {
            let told = told(&cluster(&reference(target.clone()), &Value::Null), None);
            let place = "spec.nodes.all.deploy.extraVars.a[0].b.secretKeyRef";
            assert!(
                told.len() == 1 && told[0].contains(place),
                "{target}: {told:?}"
            );
        }
        let beside = json!({"a": {REFERENCE: {"name": "s", "key": "k"}, "other": 1}});
        assert!(!holds_reference(&beside));
    }

    #[test]
    fn what_cannot_be_used_is_named_with_field_rule_and_remedy_and_never_shown() {
        let by_key = json!({"name": "s", "key": "vars.yml"});
        let document = |text: &str| Some(secret(&json!({"vars.yml": text})));
        let long = format!("a: {{{}: hidden}}", "k".repeat(2000));
        for (whole, secret, words) in [
            (
                &by_key,
                None,
                "kubectl create secret generic s --from-file=vars.yml=PATH",
            ),
            (&json!({"name": "s"}), None, "--from-env-file=PATH"),
            (
                &by_key,
                Some(secret(&json!({"other": "hidden"}))),
                "it has: other",
            ),
            (&by_key, document("hidden"), "no YAML document"),
            (&by_key, document("a: [hidden"), "no YAML document"),
            (&by_key, document(&long), "no YAML document"),
            (
                &by_key,
                document("kube_version: hidden"),
                "spec.kubernetesVersion",
            ),
            (
                &by_key,
                document("kube_pods_subnet: hidden"),
                "cannot be a secret",
            ),
            (&by_key, document("a-b: hidden"), "the name of a variable"),
            (
                &json!({"name": "s"}),
                document("hidden"),
                "the name of a variable",
            ),
        ] {
            let told = told(&cluster(&json!({}), whole), secret.as_ref());
            assert!(
                told.len() == 1 && told[0].contains(words),
                "{words}: {told:?}"
            );
            assert!(told[0].contains("extraVarsSecretRef"), "{told:?}");
            assert!(!told[0].contains("hidden"), "{told:?}");
        }
    }

    #[test]
    fn references_are_found_however_deep_and_their_variables_are_kept_apart() {
        let extra = json!({
            "plain": "a",
            "deep": {"list": [1, {REFERENCE: {"name": "s", "key": "k"}}]},
        });
        let cluster = cluster(&extra, &Value::Null);
        let (referred, problems) = referred(&cluster, &[]);
        assert_eq!(problems, []);
        let field = "Cluster spec.nodes.all.deploy.extraVars.deep.list[1].secretKeyRef";
        assert_eq!(referred[0].field, field);
        let all = extra.as_object().unwrap();
        assert_eq!(Value::Object(plain(all)), json!({"plain": "a"}));
        assert_eq!(
            told(&cluster, Some(&secret(&json!({"k": "hidden"})))),
            [""; 0]
        );
    }

    #[test]
    fn what_vault_secrets_log_in_with_is_no_variable() {
        let mut credentials = secret(&json!({"token": "hidden"}));
        credentials.type_ = Some(CREDENTIALS_TYPE.to_owned());
        let reference = json!({REFERENCE: {"name": "s", "key": "token"}});
        for cluster in [
            cluster(&json!({"a": [reference]}), &Value::Null),
            cluster(&Value::Null, &json!({"name": "s"})),
            cluster(&Value::Null, &json!({"name": "s", "key": "token"})),
        ] {
            let told = told(&cluster, Some(&credentials));
            assert!(
                told.len() == 1 && told[0].contains("is for a Vault alone"),
                "{told:?}"
            );
            assert!(!told[0].contains("hidden"), "{told:?}");
        }
    }

    #[test]
    fn a_new_revision_is_a_change_and_a_new_secret_is_not() {
        let at = |revision: &str| BTreeMap::from([("s".to_owned(), revision.to_owned())]);
        let changed = |a: &str, b: &str| changed(&at(a), &at(b)).count();
        assert_eq!(changed("u/1", "u/1"), 0);
        assert_eq!(changed("u/1", "u/2"), 1);
        assert_eq!(changed("u/1", "v/2"), 0);
    }
}
