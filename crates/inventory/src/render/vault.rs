//! Secrets in Vault: each one that is used becomes a VaultSecret, and where a reference to it stood, one to its Secret stands.
//!
//! Nothing of Vault is read here: what it holds changes no rendered object, and so rolls nothing, unless a reference asks for it (`rolls`). A VaultSecret is named after the
//! secret that it is for, not after all that it says: another field of that secret, or another address of the server, changes the
//! VaultSecret and no object that refers to its Secret.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::{
    inventory::{MOST_SECRETS, Naming, Segment, ValuePath},
    secrets::{GROUP, VaultSecretSpec},
};
use serde_json::{Value, json};

use self::place::Form;
use super::{
    RenderedDocument, hashed,
    rolls::{self, Rolls},
    typed,
};
use crate::{
    fleet::{Changed, field},
    problem::{Object, Problem, Rule},
    template::{
        Compiled,
        world::{Made, MadeShape, Taken, Use, Uses, World},
    },
    tree::{Leaf, ON_CHANGE, Shape},
};

mod place;

/// The name of the VaultSecret that a cluster has for a secret in Vault, and of its Secret. The same secret of the same cluster has the
/// same name for ever.
pub fn name(cluster: &str, mount: &str, path: &str) -> String {
    let path_in_lower_case = path.to_ascii_lowercase();
    let readable = path_in_lower_case.chars().take(READABLE);
    let readable: String = readable
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let digest = hashed::of(&json!([cluster, mount, path]), hashed::DIGITS);
    format!("vault-{readable}-{digest}")
}

/// Puts references to Secrets where references to Vault stand, and the VaultSecrets before the first object that needs one.
/// `connection` is what they say beside path and keys, `changed` what is known to have changed in Vault.
pub(super) fn resolve(
    world: &World,
    template: &Compiled,
    (connection, changed): (Option<&Made>, Option<&Changed>),
    documents: &mut Vec<RenderedDocument>,
) -> Vec<Problem> {
    let templates = rolls::templates(documents);
    let mut work = Work {
        world,
        template,
        connection,
        used: BTreeMap::new(),
        rolling: BTreeMap::new(),
        rolls: Rolls::new(),
        problems: Vec::new(),
    };
    let mut first = None;
    for ((number, document), rolled) in documents.iter_mut().enumerate().zip(templates) {
        let at = document.object.clone();
        let api_version = document.api_version.clone();
        visit(
            &mut document.content,
            &ValuePath::default(),
            &mut |made, path| {
                first.get_or_insert(number);
                work.place(made, path, (&api_version, &at), rolled);
            },
        );
    }
    let (Some(first), Some(connection)) = (first, connection) else {
        return work.problems;
    };
    work.check(connection);
    rolls::mark(&work.rolls, changed, documents);
    let made = work.used.iter();
    let made: Vec<_> = made
        .map(|(place, used)| work.vault_secret(place, used, connection))
        .collect();
    documents.splice(first..first, made);
    work.problems
}

/// A secret in Vault that is used: the namespace where it is, and its path.
type Place = (String, String);

struct Work<'a> {
    world: &'a World,
    template: &'a Compiled,
    connection: Option<&'a Made>,
    /// The fields that are, and by which values.
    used: BTreeMap<Place, BTreeMap<String, BTreeSet<Use>>>,
    /// Those of them for which machines are replaced.
    rolling: BTreeMap<Place, BTreeMap<String, BTreeSet<Use>>>,
    /// The templates that tell it.
    rolls: Rolls,
    problems: Vec<Problem>,
}

impl Work<'_> {
    fn cluster(&self) -> &str {
        let cluster = self.world.levels().last();
        cluster.map_or("", |source| source.object.name.as_str())
    }

    fn mount(&self) -> String {
        let mount = self.connection.map(|made| made.to_value()["mount"].clone());
        let mount = mount.as_ref().and_then(Value::as_str);
        mount.unwrap_or("secret").to_owned()
    }

    /// Puts a reference to a Secret where one to Vault stands. `rolled` is the template that tells machines of it.
    fn place(
        &mut self,
        made: &mut Made,
        path: &ValuePath,
        (api_version, object): (&str, &Object),
        rolled: Option<usize>,
    ) {
        let MadeShape::Secret(value) = &made.shape else {
            return;
        };
        let text = |key: &str| value["vault"][key].as_str().unwrap_or_default().to_owned();
        let (in_vault, key) = (text("path"), text("key"));
        let rolls = rolls::is_asked(value);
        if rolls && rolled.is_none() {
            let what = format!(
                "is {}, and no machine is replaced by what {} {} says at {path}",
                shown(value),
                object.kind,
                object.name
            );
            let remedy = rolls::REMEDY;
            self.problems
                .push(self.problem(made, value, Rule::Rendered { what, remedy }));
            return;
        }
        let Some(form) = place::form(api_version, &object.kind, &path.0) else {
            let target = format!("{} {}, {path},", object.kind, object.name);
            let remedy = place::remedy(api_version, &object.kind);
            let problem = self.refused(made, value, &target, remedy);
            self.problems.push(problem);
            return;
        };
        if self.connection.is_none() {
            let problem = self.untold(made, value);
            if !self.problems.iter().any(|known| known.path == problem.path) {
                self.problems.push(problem);
            }
            return;
        }
        let name = name(self.cluster(), &self.mount(), &in_vault);
        let reference = json!({"name": &name, "key": &key});
        let place = (object.namespace.clone(), in_vault);
        if let Some(rolled) = rolled.filter(|_| rolls) {
            let told = self.rolls.entry(rolled).or_default();
            let told = told.entry(format!("{name}/{key}")).or_default();
            told.extend(made.uses.iter().cloned());
            let keys = self.rolling.entry(place.clone()).or_default();
            let uses = keys.entry(key.clone()).or_default();
            uses.extend(made.uses.iter().cloned());
            let asked: usize = self.rolling.values().map(BTreeMap::len).sum();
            if asked == MOST_SECRETS.saturating_add(1) {
                let what =
                    format!("is one more than {MOST_SECRETS} for which machines are replaced");
                let remedy = "keep what belongs together under one key of Vault, or take onChange out of some";
                let problem = self.problem(made, value, Rule::Rendered { what, remedy });
                self.problems.push(problem);
            }
        }
        let used = self.used.entry(place).or_default();
        let uses = used.entry(key).or_default();
        uses.extend(made.uses.iter().cloned());
        made.shape = MadeShape::Secret(match form {
            Form::Value => json!({"secretKeyRef": reference}),
            Form::Key => reference,
        });
    }

    /// A reference that stands where none can.
    fn refused(&self, made: &Made, value: &Value, target: &str, remedy: &'static str) -> Problem {
        let rule = Rule::NoReference {
            reference: shown(value),
            target: target.to_owned(),
            remedy,
        };
        self.problem(made, value, rule)
    }

    /// A problem of a reference, where it is said.
    fn problem(&self, made: &Made, value: &Value, rule: Rule) -> Problem {
        match self.origin(made, value) {
            Some((source, at)) => source.problem(ValuePath::clone(&at), rule),
            None => self
                .template
                .source
                .problem(ValuePath::clone(&made.at), rule),
        }
    }

    /// A reference of which nobody says how it is read.
    fn untold(&self, made: &Made, value: &Value) -> Problem {
        let by = self.origin(made, value).map(|(source, at)| {
            let level = &source.level;
            format!("{} (level {level}) {at} is {}", source.object, shown(value))
        });
        let rule = Rule::Rendered {
            what: format!("is not set, and {}", by.unwrap_or_else(|| shown(value))),
            remedy: "say how Vault is read, for example {vault: {address: URL, auth: {kubernetes: {role: ROLE}}}}; or refer to a Secret \
                     that is there, {secretKeyRef: {name: SECRET, key: KEY}}",
        };
        self.template.source.problem(field(&AT), rule)
    }

    /// Who says that a reference stands there, and where.
    fn origin(
        &self,
        made: &Made,
        value: &Value,
    ) -> Option<(Arc<crate::tree::Source>, Arc<ValuePath>)> {
        let values = made.uses.iter().filter(|used| used.what == Taken::Value);
        let mut trees = values.filter_map(|used| self.world.root().at(&used.path.0));
        let tree = trees
            .find(|tree| matches!(&tree.shape, Shape::Leaf(Leaf::Secret(it)) if it == value))?;
        Some((tree.origin.source.clone(), tree.origin.at.clone()))
    }

    /// Holds what VaultSecrets say against their definition.
    fn check(&mut self, connection: &Made) {
        let leaves = connection.leaves();
        let secret = leaves
            .iter()
            .find(|(_, leaf)| matches!(leaf.shape, MadeShape::Secret(_)));
        if let Some((path, leaf)) = secret {
            let target = format!("VaultSecret, spec.{path},");
            let remedy = "what reads Vault cannot be a secret there: name the Secret with the credentials as a text";
            let problem = self.refused(leaf, &leaf.to_value(), &target, remedy);
            self.problems.push(problem);
            return;
        }
        let mut spec = connection.to_value();
        spec["path"] = "path".into();
        for (path, what, remedy) in typed::problems::<VaultSecretSpec>(&spec) {
            let rule = Rule::Rendered { what, remedy };
            let at = field(&AT).join(&path);
            self.problems.push(self.template.source.problem(at, rule));
        }
    }

    fn vault_secret(
        &self,
        (namespace, path): &Place,
        fields: &BTreeMap<String, BTreeSet<Use>>,
        connection: &Made,
    ) -> RenderedDocument {
        let at = Arc::new(field(&AT));
        let object = Object {
            kind: "VaultSecret".into(),
            namespace: namespace.clone(),
            name: name(self.cluster(), &self.mount(), path),
        };
        let all: Uses = Arc::new(fields.values().flatten().cloned().collect());
        let leaf = |text: &str, uses: &Uses| Made {
            uses: uses.clone(),
            at: at.clone(),
            shape: MadeShape::Leaf(text.into()),
        };
        let map = |parts: BTreeMap<Arc<str>, Made>| Made {
            uses: Uses::default(),
            at: at.clone(),
            shape: MadeShape::Map(parts),
        };
        let keys = fields.iter().map(|(key, uses)| {
            let uses = Arc::new(uses.clone());
            (Arc::from(key.as_str()), leaf(key, &uses))
        });
        let mut spec = match &connection.shape {
            MadeShape::Map(parts) => parts.clone(),
            _ => BTreeMap::new(),
        };
        spec.insert("path".into(), leaf(path, &all));
        spec.insert("keys".into(), map(keys.collect()));
        let mut metadata = BTreeMap::from([("name".into(), leaf(&object.name, &all))]);
        if !namespace.is_empty() {
            metadata.insert("namespace".into(), leaf(namespace, &Uses::default()));
        }
        let api_version = format!("{GROUP}/v1alpha1");
        let content = map(BTreeMap::from([
            ("apiVersion".into(), leaf(&api_version, &Uses::default())),
            ("kind".into(), leaf(&object.kind, &Uses::default())),
            ("metadata".into(), map(metadata)),
            ("spec".into(), map(spec)),
        ]));
        let mut document = RenderedDocument {
            object,
            api_version,
            content,
            because: all,
            naming: Naming::Fixed,
            at,
        };
        if let Some(keys) = self.rolling.get(&(namespace.clone(), path.clone())) {
            rolls::tell(&mut document, keys);
        }
        document
    }
}

/// Calls `with` for each reference to Vault, with its path.
fn visit(made: &mut Made, path: &ValuePath, with: &mut impl FnMut(&mut Made, &ValuePath)) {
    match &mut made.shape {
        MadeShape::Secret(value) if value.get("vault").is_some() => with(made, path),
        MadeShape::Map(parts) => {
            for (key, part) in parts {
                visit(part, &path.with(Segment::Key(key.clone())), with);
            }
        }
        MadeShape::List(parts) => {
            for (number, part) in parts.iter_mut().enumerate() {
                visit(part, &path.index(number), with);
            }
        }
        MadeShape::Leaf(_) | MadeShape::Secret(_) => {}
    }
}

/// A reference as people write it.
fn shown(reference: &Value) -> String {
    let text = |key: &str| reference["vault"][key].as_str().unwrap_or_default();
    let (path, key) = (text("path"), text("key"));
    if path.is_empty() {
        return reference.to_string();
    }
    let declared = text(ON_CHANGE);
    if declared.is_empty() {
        return format!("{{vault: {{path: {path}, key: {key}}}}}");
    }
    format!("{{vault: {{path: {path}, key: {key}, {ON_CHANGE}: {declared}}}}}")
}

/// Where a ClusterTemplate says how Vault is read.
const AT: [&str; 2] = ["spec", "vaultSecrets"];
/// So much of a path as people tell secrets apart by, and a name of a Secret that fits into a label.
const READABLE: usize = 40;

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn a_name_is_of_the_secret_and_its_cluster_for_ever() {
        assert_eq!(
            name("shop", "secret", "infra/OpenStack"),
            "vault-infra-openstack-9b6b29256b"
        );
        let long = name("shop", "secret", &"a/".repeat(200));
        assert_eq!(long.len(), 57, "{long}");
        let others = [
            name("bill", "secret", "a"),
            name("shop", "kv", "a"),
            name("shop", "secret", "A"),
        ];
        assert!(!others.contains(&name("shop", "secret", "a")));
    }
}
