//! Values that know where they come from.
//!
//! A tree is never changed: merging makes a new one that shares all that stays as it was. So thousands of clusters of one site hold
//! what the site gives them once, and a value that overrides another keeps the whole of what it overrode.

use std::{collections::BTreeMap, sync::Arc};

use api::inventory::{Segment, Strategy, ValuePath};
use serde_json::{Map, Value, json};

use crate::problem::{Object, Problem, Rule};

/// Who says something.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Source {
    /// The level of the object; empty for one that stands on none.
    pub level: String,
    /// The object.
    pub object: Object,
}

/// A value, or several below it.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Where it comes from.
    pub origin: Origin,
    /// What it is.
    pub shape: Shape,
}

/// Where a value comes from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Who says it.
    pub source: Arc<Source>,
    /// Where in that object.
    pub at: Arc<ValuePath>,
    /// By which strategy it was chosen, if several levels say something.
    pub how: Option<Strategy>,
    /// What weaker levels say, where that is not all in it.
    pub below: Option<Below>,
}

/// What weaker levels say where a value stands.
#[derive(Clone, Debug)]
pub enum Below {
    /// The value stands in place of it.
    Replaced(Arc<Tree>),
    /// The value was merged with it. What it has no more was taken out, there or further below.
    Merged(Arc<Tree>),
}

impl Below {
    /// What they say.
    pub const fn tree(&self) -> &Arc<Tree> {
        match self {
            Self::Replaced(tree) | Self::Merged(tree) => tree,
        }
    }
}

/// What a value is.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A value without parts.
    Leaf(Leaf),
    /// Values by their keys.
    Map(BTreeMap<Arc<str>, Arc<Tree>>),
    /// Values in order.
    List(Vec<Arc<Tree>>),
}

/// A value without parts.
#[derive(Clone, Debug, PartialEq)]
pub enum Leaf {
    /// A text, number, boolean or null, never looked into.
    Plain(Value),
    /// A reference to a secret, which stays one.
    Secret(Value),
    /// A text to be rendered.
    Template(Arc<str>),
}

/// The key that makes a text a template.
pub const TEMPLATE_MARK: &str = "$template";

impl Tree {
    /// The tree of values that one object sets.
    ///
    /// # Errors
    /// Values that are nested too deep, and misuse of the reserved forms.
    pub fn read(
        source: &Arc<Source>,
        at: &ValuePath,
        values: &Map<String, Value>,
    ) -> Result<Arc<Self>, Problem> {
        let mut maps = BTreeMap::new();
        for (key, value) in values {
            maps.insert(
                Arc::from(key.as_str()),
                Self::read_value(source, at.key(key), value)?,
            );
        }
        Ok(Self::new(source, at.clone(), Shape::Map(maps)))
    }

    fn read_value(
        source: &Arc<Source>,
        at: ValuePath,
        value: &Value,
    ) -> Result<Arc<Self>, Problem> {
        if at.0.len() > MAX_DEPTH {
            return Err(source.problem(
                at,
                Rule::Reserved {
                    what: format!("is nested deeper than {MAX_DEPTH} levels"),
                    remedy: "make it flatter",
                },
            ));
        }
        let shape = match value {
            Value::Object(map) => match mark(map) {
                Ok(Some(leaf)) => Shape::Leaf(leaf),
                Ok(None) => return Self::read(source, &at, map),
                Err(rule) => return Err(source.problem(at, rule)),
            },
            Value::Array(items) => {
                let mut list = Vec::with_capacity(items.len());
                for (number, item) in items.iter().enumerate() {
                    list.push(Self::read_value(source, at.index(number), item)?);
                }
                Shape::List(list)
            }
            plain => Shape::Leaf(Leaf::Plain(plain.clone())),
        };
        Ok(Self::new(source, at, shape))
    }

    /// A tree that stands in place of nothing.
    pub(crate) fn new(source: &Arc<Source>, at: ValuePath, shape: Shape) -> Arc<Self> {
        Arc::new(Self {
            origin: Origin {
                source: source.clone(),
                at: Arc::new(at),
                how: None,
                below: None,
            },
            shape,
        })
    }

    /// This tree with other parts, of the same origin.
    pub(crate) fn with(&self, shape: Shape, how: Option<Strategy>) -> Arc<Self> {
        let origin = Origin {
            how: how.or(self.origin.how),
            ..self.origin.clone()
        };
        Arc::new(Self { origin, shape })
    }

    /// What stands one step below.
    pub fn child(&self, step: &Segment) -> Option<&Arc<Self>> {
        match (&self.shape, step) {
            (Shape::Map(map), Segment::Key(key)) => map.get(key),
            (Shape::List(list), Segment::Index(index)) => list.get(*index),
            _ => None,
        }
    }

    /// What stands at a path.
    pub fn at<'a>(self: &'a Arc<Self>, path: &[Segment]) -> Option<&'a Arc<Self>> {
        path.iter().try_fold(self, |tree, step| tree.child(step))
    }

    /// Every value without parts below, and every map and list that is empty, with its path.
    pub fn leaves(self: &Arc<Self>, below: &ValuePath) -> Vec<(ValuePath, Arc<Self>)> {
        let mut found = Vec::new();
        self.collect(&mut below.0.clone(), &mut found);
        found
    }

    fn collect(self: &Arc<Self>, path: &mut Vec<Segment>, found: &mut Vec<(ValuePath, Arc<Self>)>) {
        let children: Vec<_> = match &self.shape {
            Shape::Map(map) => map
                .iter()
                .map(|(key, child)| (Segment::Key(key.clone()), child))
                .collect(),
            Shape::List(list) => list
                .iter()
                .enumerate()
                .map(|(number, child)| (Segment::Index(number), child))
                .collect(),
            Shape::Leaf(_) => Vec::new(),
        };
        if children.is_empty() {
            found.push((ValuePath(path.clone()), self.clone()));
        }
        for (step, child) in children {
            path.push(step);
            child.collect(path, found);
            path.pop();
        }
    }

    /// The values alone, as they were written.
    pub fn to_value(&self) -> Value {
        match &self.shape {
            Shape::Leaf(leaf) => leaf.to_value(),
            Shape::Map(map) => map
                .iter()
                .map(|(key, child)| (key.to_string(), child.to_value()))
                .collect::<Map<_, _>>()
                .into(),
            Shape::List(list) => list.iter().map(|child| child.to_value()).collect(),
        }
    }

    /// Whether any value of it is a template.
    pub(crate) fn has_template(&self) -> bool {
        match &self.shape {
            Shape::Leaf(leaf) => matches!(leaf, Leaf::Template(_)),
            Shape::Map(map) => map.values().any(|part| part.has_template()),
            Shape::List(list) => list.iter().any(|part| part.has_template()),
        }
    }

    /// Whether it holds the same values, wherever they come from.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.shape, &other.shape) {
            (Shape::Leaf(one), Shape::Leaf(other)) => one == other,
            (Shape::Map(one), Shape::Map(other)) => {
                one.len() == other.len()
                    && one
                        .iter()
                        .zip(other)
                        .all(|((key, one), (other_key, other))| {
                            key == other_key && one.is_same(other)
                        })
            }
            (Shape::List(one), Shape::List(other)) => {
                one.len() == other.len()
                    && one.iter().zip(other).all(|(one, other)| one.is_same(other))
            }
            _ => false,
        }
    }

    /// The text, where it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.shape {
            Shape::Leaf(Leaf::Plain(Value::String(text))) => Some(text),
            _ => None,
        }
    }

    /// What people call its type. A template and null may stand for any, and have none.
    pub(crate) fn type_name(&self) -> Option<&'static str> {
        match &self.shape {
            Shape::Map(_) => Some("a map"),
            Shape::List(_) => Some("a list"),
            Shape::Leaf(Leaf::Secret(_)) => Some("a secret"),
            Shape::Leaf(Leaf::Template(_) | Leaf::Plain(Value::Null)) => None,
            Shape::Leaf(Leaf::Plain(Value::Bool(_))) => Some("a boolean"),
            Shape::Leaf(Leaf::Plain(Value::Number(_))) => Some("a number"),
            Shape::Leaf(Leaf::Plain(_)) => Some("a text"),
        }
    }
}

impl Leaf {
    /// The value as it was written.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Plain(value) | Self::Secret(value) => value.clone(),
            Self::Template(text) => json!({TEMPLATE_MARK: text.as_ref()}),
        }
    }
}

impl Source {
    /// A problem of this object.
    pub(crate) fn problem(&self, path: ValuePath, rule: Rule) -> Problem {
        Problem {
            object: self.object.clone(),
            level: Some(self.level.clone()).filter(|level| !level.is_empty()),
            path,
            rule,
        }
    }
}

/// What a map of one of the reserved forms stands for.
fn mark(map: &Map<String, Value>) -> Result<Option<Leaf>, Rule> {
    if let Some(template) = map.get(TEMPLATE_MARK) {
        return match template {
            Value::String(text) if map.len() == 1 && text.len() <= MAX_TEMPLATE => {
                Ok(Some(Leaf::Template(text.as_str().into())))
            }
            _ => Err(Rule::Reserved {
                what: format!(
                    "has {TEMPLATE_MARK} beside other keys, with something else than a text, or with more than {MAX_TEMPLATE} bytes"
                ),
                remedy: "write {$template: TEXT} and nothing else there",
            }),
        };
    }
    let (Some((key, Value::Object(inside))), 1) = (map.iter().next(), map.len()) else {
        return Ok(None);
    };
    let wanted: &[&str] = match key.as_str() {
        "secretKeyRef" => &["name", "key"],
        "vault" => &["path", "key"],
        _ => return Ok(None),
    };
    let declared = on_change(key, inside)?;
    let is_text = |key: &&str| {
        inside
            .get(*key)
            .and_then(Value::as_str)
            .is_some_and(|text| !text.is_empty())
    };
    let in_vault = |wanted: &str| {
        inside
            .get(wanted)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    if inside.len() == wanted.len() + declared && wanted.iter().all(is_text) {
        if key == "vault" && !is_path(in_vault("path")) {
            return Err(Rule::Reserved {
                what: format!(
                    "is no reference to a secret: {:?} is no path in Vault",
                    in_vault("path")
                ),
                remedy: "write it as `vault kv get` takes it, letters, digits, dots, hyphens and underscores with slashes between them, \
                         for example infra/openstack",
            });
        }
        if key == "vault" && !is_key(in_vault("key")) {
            return Err(Rule::Reserved {
                what: format!(
                    "is no reference to a secret: {:?} can be no key of a Secret",
                    in_vault("key")
                ),
                remedy: "name a field with letters, digits, dots, hyphens and underscores only",
            });
        }
        return Ok(Some(Leaf::Secret(Value::Object(map.clone()))));
    }
    Err(Rule::Reserved {
        what: format!("is no reference to a secret: {key} has other fields than two texts"),
        remedy: "write {secretKeyRef: {name: SECRET, key: KEY}} or {vault: {path: PATH, key: KEY}}",
    })
}

/// The number of fields by which a reference declares what a change does.
fn on_change(key: &str, inside: &Map<String, Value>) -> Result<usize, Rule> {
    let Some(declared) = inside.get(ON_CHANGE) else {
        return Ok(0);
    };
    if key != "vault" {
        return Err(Rule::Reserved {
            what: format!(
                "has {ON_CHANGE}, and what changes in a Secret of yours is not looked at"
            ),
            remedy: "take it out, or keep the value in Vault: {vault: {path: PATH, key: KEY, onChange: RollMachines}}",
        });
    }
    if declared == "InPlace" || declared == ROLL_MACHINES {
        return Ok(1);
    }
    if declared == RESTART_PROVIDER {
        return Err(Rule::Reserved {
            what: format!(
                "has {ON_CHANGE}: {RESTART_PROVIDER}, and no provider of Cluster API is a cluster's alone: one would restart those of all others"
            ),
            remedy: "take it out: what a provider reads with each look, as the credentials that an object of a cluster names, it has in time. What \
                     it reads once, when it starts, is of the provider: a VaultSecret of the provider's namespace whose Secret its \
                     spec.configSecret names restarts it, docs/vault.md",
        });
    }
    Err(Rule::Reserved {
        what: format!("has {ON_CHANGE}: {declared}, which is neither InPlace nor {ROLL_MACHINES}"),
        remedy: "InPlace, as where nothing is said: the Secret is written anew, and who reads it reads the new value; RollMachines: machines are \
                 replaced too, by a roll-out. A provider of Cluster API restarts for what its own configuration refers to: write it there",
    })
}

/// Whether a text is a path in Vault, by the definition of VaultSecrets.
fn is_path(text: &str) -> bool {
    text.len() <= 512
        && text.split('/').all(|part| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !part.is_empty() && !part.starts_with('.') && part.chars().all(is_plain)
        })
}

/// Whether a text can be a key of a Secret, by Kubernetes.
fn is_key(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.len() <= 253 && text.chars().all(is_plain) && text != "." && !text.starts_with("..")
}

/// What a reference to Vault says of changes.
pub(crate) const ON_CHANGE: &str = "onChange";
/// That machines are replaced.
pub(crate) const ROLL_MACHINES: &str = "RollMachines";

/// That a provider restarts, which no cluster may ask for.
const RESTART_PROVIDER: &str = "RestartProvider";

/// As deep as the parser of YAML follows, and shallow enough for what recurses here.
const MAX_DEPTH: usize = 48;

/// Far more than a file of user data has.
const MAX_TEMPLATE: usize = 64 * 1024;
