//! Where a value comes from, through merges and templates, and what was overridden on the way.

use std::sync::Arc;

use api::inventory::{Segment, ValuePath};
use serde::Serialize;
use serde_json::Value;

use crate::{
    merge::name,
    problem::Problem,
    render::Rendered,
    template::world::{Made, Taken, Use},
    tree::{Below, Leaf, Shape, Tree},
};

/// One leaf and its origin.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The leaf: in the values, or in an object.
    pub path: String,
    /// Its value.
    pub value: Value,
    /// Where the template of it stands, for what was rendered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The values that it was made of.
    pub from: Vec<Contribution>,
}

/// A value of the inventory that another one was made of.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contribution {
    /// Its path in the cluster's values.
    pub path: String,
    /// What was taken from it: value, parts or absence.
    pub what: &'static str,
    /// As it was written; none where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The object that sets it; where nobody does, those that were looked through.
    pub by: String,
    /// The level of that object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Where it stands in that object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// By which strategy it was chosen, where several levels say something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<&'static str>,
    /// What it stands in place of, the strongest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrode: Vec<Overridden>,
    /// What a stronger level took out of the map or list that it stands in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<Removed>,
}

/// A value that another one stands in place of.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overridden {
    /// Its path in the cluster's values: that of the other one, or of a map or list above it that was replaced whole.
    pub path: String,
    /// The value.
    pub value: Value,
    /// The object that sets it.
    pub by: String,
    /// Where it stands in that object.
    pub at: String,
}

/// A value that a stronger level took out of a map or a list, whose other values stay.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Removed {
    /// Its path in the cluster's values; of an entry of a list that of the list.
    pub path: String,
    /// The value.
    pub value: Value,
    /// The object that sets it.
    pub by: String,
    /// Where it stands in that object.
    pub at: String,
    /// The object that took it out.
    pub removed_by: String,
    /// Where that says so.
    pub removed_at: String,
}

/// What may be asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// A value of the cluster, or all below it.
    Values(ValuePath),
    /// An object that was rendered, by kind and name, and a field of it, or all.
    Rendered {
        /// The kind.
        kind: String,
        /// The name.
        name: String,
        /// The field.
        path: ValuePath,
    },
}

/// Why a text is no question.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{0:?} is neither a path of values, as kubernetes.version, nor one of an object, as Cluster/NAME or Cluster/NAME:spec.runner"
)]
pub struct NoQuestion(String);

impl std::str::FromStr for Question {
    type Err = NoQuestion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || NoQuestion(text.to_owned());
        if text.is_empty() {
            return Ok(Self::Values(ValuePath::default()));
        }
        // A path has a slash in quotes only, and those follow a bracket.
        let before_quotes = text.split('[').next().unwrap_or_default();
        let Some((kind, rest)) = text.split_once('/').filter(|_| before_quotes.contains('/'))
        else {
            return text.parse().map(Self::Values).map_err(|_| invalid());
        };
        let (name, path) = rest.split_once(':').unwrap_or((rest, ""));
        let path = match path {
            "" => ValuePath::default(),
            path => path.parse().map_err(|_| invalid())?,
        };
        Ok(Self::Rendered {
            kind: kind.into(),
            name: name.into(),
            path,
        })
    }
}

impl Rendered {
    /// Explains every leaf that a question asks for; nothing, if there is no such value.
    ///
    /// # Errors
    /// A value that is a template which no object needs, and which fails.
    pub fn explain(&self, question: &Question) -> Result<Vec<Explanation>, Problem> {
        match question {
            Question::Values(path) => self.explain_values(path),
            Question::Rendered { kind, name, path } => {
                let documents = self.documents.iter().filter(|document| {
                    document.object.kind == *kind && document.object.name == *name
                });
                let mut all = Vec::new();
                for document in documents {
                    let leaves = document.content.leaves();
                    for (at, made) in leaves.iter().filter(|(at, _)| at.0.starts_with(&path.0)) {
                        all.push(self.explain_made(
                            format!("{kind}/{name}:{at}"),
                            made,
                            &document.because,
                        ));
                    }
                }
                Ok(all)
            }
        }
    }

    /// Which objects look at a path that nobody sets, and who was asked.
    pub fn levels(&self) -> Vec<String> {
        let levels = self.resolved.levels.iter();
        levels.map(|source| source.object.to_string()).collect()
    }

    fn explain_values(&self, path: &ValuePath) -> Result<Vec<Explanation>, Problem> {
        let values = &self.resolved.values;
        let Some(tree) = values.at(&path.0) else {
            return Ok(Vec::new());
        };
        let mut all = Vec::new();
        for (at, leaf) in tree.leaves(path) {
            let made = self.world.made(&at, &leaf)?;
            let own = Use {
                path: at.clone(),
                what: Taken::Value,
            };
            let others = made
                .uses
                .iter()
                .filter(|held| held.path != at)
                .map(|held| self.contribution(held));
            let from = std::iter::once(self.contribution(&own))
                .chain(others)
                .collect();
            let template = match &leaf.shape {
                Shape::Leaf(Leaf::Template(text)) => Some(text.to_string()),
                _ => None,
            };
            all.push(Explanation {
                path: at.to_string(),
                value: made.to_value(),
                template,
                from,
            });
        }
        Ok(all)
    }

    fn explain_made(
        &self,
        path: String,
        made: &Made,
        because: &std::collections::BTreeSet<Use>,
    ) -> Explanation {
        let uses = made.uses.iter().chain(because.difference(&made.uses));
        let template = &self.resolved.template.source.object;
        Explanation {
            path,
            value: made.to_value(),
            template: Some(format!("{template} {}", made.at)),
            from: uses.map(|held| self.contribution(held)).collect(),
        }
    }

    fn contribution(&self, held: &Use) -> Contribution {
        let path = held.path.to_string();
        let what = match held.what {
            Taken::Value => "value",
            Taken::Parts => "parts",
            Taken::Absence => "absence",
        };
        let Some(tree) = self.world.root().at(&held.path.0) else {
            return Contribution {
                path,
                what,
                value: None,
                by: self.levels().join(", "),
                level: None,
                at: None,
                strategy: None,
                overrode: Vec::new(),
                removed: Vec::new(),
            };
        };
        let origin = &tree.origin;
        let (overrode, removed) = self.instead_of(&held.path.0);
        Contribution {
            path,
            what,
            value: Some(tree.to_value()).filter(|_| held.what == Taken::Value),
            by: origin.source.object.to_string(),
            level: Some(origin.source.level.clone()),
            at: Some(origin.at.to_string()),
            strategy: origin.how.map(name),
            overrode,
            removed,
        }
    }

    /// What took out a value at a path, or a map or list above it. Empty: nothing did, or something stands there.
    pub fn removed(&self, question: &Question) -> Vec<Removed> {
        let Question::Values(path) = question else {
            return Vec::new();
        };
        let mut above = path.0.as_slice();
        while let Some((_, rest)) = above.split_last() {
            above = rest;
            if self.world.root().at(above).is_some() {
                break;
            }
        }
        let (gone, stands) = (path.to_string(), ValuePath(above.to_vec()).to_string());
        let (_, removed) = self.instead_of(above);
        // An entry of a list has the path of the list, which stands.
        let is_it = |removed: &Removed| {
            let rest = gone.strip_prefix(&removed.path);
            let is_below = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
            is_below && removed.path.len() > stands.len()
        };
        removed.into_iter().filter(is_it).collect()
    }

    /// What the value at a path stands in place of, and what the maps and lists above it do; and what was taken out of it and of these.
    fn instead_of(&self, path: &[Segment]) -> (Vec<Overridden>, Vec<Removed>) {
        let (mut overrode, mut removed) = (Vec::new(), Vec::new());
        for depth in (0..=path.len()).rev() {
            let (above, _) = path.split_at(depth);
            let mut tree: Option<&Arc<Tree>> = self.world.root().at(above);
            while let Some((held, below)) =
                tree.and_then(|tree| Some((tree, tree.origin.below.as_ref()?)))
            {
                let mut lost = Vec::new();
                match below {
                    Below::Merged(lower) => {
                        taken(above, lower, held, &mut lost);
                        removed.extend(lost.iter().map(|lost| taken_out(lost, held)));
                    }
                    Below::Replaced(lower) => {
                        said(above, lower, &mut lost);
                        overrode.extend(lost.iter().map(replaced));
                    }
                }
                tree = Some(below.tree());
            }
        }
        (overrode, removed)
    }
}

/// A value that is not there any more, at the path where it was.
type Lost = (ValuePath, Arc<Tree>);

fn replaced((path, lost): &Lost) -> Overridden {
    Overridden {
        path: path.to_string(),
        value: lost.to_value(),
        by: lost.origin.source.object.to_string(),
        at: lost.origin.at.to_string(),
    }
}

/// A value that a merged map or list no longer has.
fn taken_out((path, lost): &Lost, merged: &Tree) -> Removed {
    Removed {
        path: path.to_string(),
        value: lost.to_value(),
        by: lost.origin.source.object.to_string(),
        at: lost.origin.at.to_string(),
        removed_by: merged.origin.source.object.to_string(),
        removed_at: merged.origin.at.to_string(),
    }
}

/// All that a value says, by each object that says some of it, and what stood in its parts' place before.
fn said(path: &[Segment], tree: &Arc<Tree>, lost: &mut Vec<Lost>) {
    by_object(path, tree, lost);
    for (path, part) in parts(path, tree) {
        before_within(&path, part, lost);
    }
}

fn by_object(path: &[Segment], tree: &Arc<Tree>, lost: &mut Vec<Lost>) {
    let leaves = tree.leaves(&ValuePath::default());
    let is_of = |leaf: &Tree| Arc::ptr_eq(&leaf.origin.source, &tree.origin.source);
    if leaves.iter().all(|(_, leaf)| is_of(leaf)) {
        lost.push((ValuePath(path.to_vec()), tree.clone()));
        return;
    }
    for (path, part) in parts(path, tree) {
        by_object(&path, part, lost);
    }
}

fn before_within(path: &[Segment], tree: &Arc<Tree>, lost: &mut Vec<Lost>) {
    before(path, tree, lost);
    for (path, part) in parts(path, tree) {
        before_within(&path, part, lost);
    }
}

/// What stood in a value's place before, or was taken out of it.
fn before(path: &[Segment], tree: &Arc<Tree>, lost: &mut Vec<Lost>) {
    let mut held = tree;
    while let Some(below) = &held.origin.below {
        match below {
            Below::Merged(lower) => taken(path, lower, held, lost),
            Below::Replaced(lower) => said(path, lower, lost),
        }
        held = below.tree();
    }
}

/// What a merged map or list no longer has of the weaker one, and what stood there before.
fn taken(path: &[Segment], lower: &Tree, merged: &Tree, lost: &mut Vec<Lost>) {
    for (path, part) in gone(path, lower, merged) {
        said(&path, part, lost);
        before(&path, part, lost);
    }
}

/// The parts of a value, each with its path: that of an entry is its list's, for it stands elsewhere in another list.
fn parts<'a>(path: &[Segment], tree: &'a Tree) -> Vec<(Vec<Segment>, &'a Arc<Tree>)> {
    match &tree.shape {
        Shape::Map(map) => map
            .iter()
            .map(|(key, part)| ([path, &[Segment::Key(key.clone())]].concat(), part))
            .collect(),
        Shape::List(list) => list.iter().map(|part| (path.to_vec(), part)).collect(),
        Shape::Leaf(_) => Vec::new(),
    }
}

/// The parts of a map or list that are not in what it was merged into, each with its path.
fn gone<'a>(
    path: &[Segment],
    lower: &'a Tree,
    merged: &Tree,
) -> Vec<(Vec<Segment>, &'a Arc<Tree>)> {
    let mut all = parts(path, lower);
    all.retain(|(path, part)| match &merged.shape {
        Shape::Map(held) => {
            !matches!(path.last(), Some(Segment::Key(key)) if held.contains_key(key))
        }
        Shape::List(held) => !held
            .iter()
            .any(|held| held.is_same(part) || is_kept_of(part, held)),
        Shape::Leaf(_) => true,
    });
    all
}

/// Whether an entry of a list has anything of another one, so that both are the same entry by its key.
fn is_kept_of(other: &Arc<Tree>, tree: &Arc<Tree>) -> bool {
    let whole = ValuePath::default();
    let leaves = other.leaves(&whole);
    let is_kept = |held: &Arc<Tree>| {
        let mut held = Some(held);
        std::iter::from_fn(|| {
            let here = held?;
            held = here.origin.below.as_ref().map(Below::tree);
            Some(here)
        })
        .any(|held| leaves.iter().any(|(_, leaf)| Arc::ptr_eq(leaf, held)))
    };
    let is_parted = !matches!(tree.shape, Shape::Leaf(_));
    is_parted && tree.leaves(&whole).iter().any(|(_, held)| is_kept(held))
}
