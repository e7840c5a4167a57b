//! Where a value comes from, through merges and templates, and what was overridden on the way.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use api::inventory::{Segment, Strategy, ValuePath};
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
        self.world.recount();
        let mut known = Histories::default();
        match question {
            Question::Values(path) => self.explain_values(path, &mut known),
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
                            &mut known,
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

    fn explain_values(
        &self,
        path: &ValuePath,
        known: &mut Histories,
    ) -> Result<Vec<Explanation>, Problem> {
        let values = &self.resolved.values;
        let Some(tree) = values.at(&path.0) else {
            return Ok(Vec::new());
        };
        let mut explained = Vec::new();
        for (at, leaf) in tree.leaves(path) {
            let made = self.world.made(&at, &leaf)?;
            let own = Use {
                path: at.clone(),
                what: Taken::Value,
            };
            // A map or a list that is given may be of several levels.
            let mut uses = BTreeSet::new();
            made.gather(&mut uses);
            let others = uses.iter().filter(|held| held.path != at);
            let all = std::iter::once(&own).chain(others);
            let from = all.map(|held| self.contribution(held, known)).collect();
            let template = match &leaf.shape {
                Shape::Leaf(Leaf::Template(text)) => Some(text.to_string()),
                _ => None,
            };
            explained.push(Explanation {
                path: at.to_string(),
                value: made.to_value(),
                template,
                from,
            });
        }
        Ok(explained)
    }

    fn explain_made(
        &self,
        path: String,
        made: &Made,
        because: &BTreeSet<Use>,
        known: &mut Histories,
    ) -> Explanation {
        let uses = made.uses.iter().chain(because.difference(&made.uses));
        let template = &self.resolved.template.source.object;
        Explanation {
            path,
            value: made.to_value(),
            template: Some(format!("{template} {}", made.at)),
            from: uses.map(|held| self.contribution(held, known)).collect(),
        }
    }

    fn contribution(&self, held: &Use, known: &mut Histories) -> Contribution {
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
        let History {
            overrode, removed, ..
        } = self.instead_of(&held.path.0, known);
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

    /// What took out a value at a path, or replaced a map or list above it. Empty: nothing did, or something stands there.
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
        let History {
            removed, replaced, ..
        } = self.instead_of(above, &mut Histories::default());
        let is_within = |path: &str, above: &str| {
            let rest = path.strip_prefix(above);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        // An entry of a list has the path of the list, which stands. Of what several levels had said each has its part.
        let is_it = |removed: &Removed| {
            let is_of_it = is_within(&gone, &removed.path) || is_within(&removed.path, &gone);
            is_of_it && removed.path.len() > stands.len()
        };
        // What was replaced whole had the value in it, or is a part of it.
        let had_it = |(lost, _): &(Lost, Removed)| {
            let rest = path.0.strip_prefix(lost.0.0.as_slice());
            let had = rest.is_some_and(|rest| lost.1.at(rest).is_some());
            had || lost.0.0.starts_with(&path.0)
        };
        let replaced = replaced.into_iter().filter(had_it);
        let removed = removed.into_iter().filter(is_it);
        removed
            .chain(replaced.map(|(_, replaced)| replaced))
            .collect()
    }

    /// What the value at a path stands in place of, and what the maps and lists above it do; and what was taken out of it and of these.
    fn instead_of(&self, path: &[Segment], known: &mut Histories) -> History {
        let mut all = History::default();
        for depth in (0..=path.len()).rev() {
            let (above, _) = path.split_at(depth);
            let Some(tree) = self.world.root().at(above) else {
                continue;
            };
            let history = known
                .0
                .entry(above.to_vec())
                .or_insert_with(|| History::of(above, tree));
            all.overrode.extend(history.overrode.iter().cloned());
            all.removed.extend(history.removed.iter().cloned());
            all.replaced.extend(history.replaced.iter().cloned());
        }
        all
    }
}

/// What stood where a value stands, the strongest first.
#[derive(Default)]
struct History {
    overrode: Vec<Overridden>,
    removed: Vec<Removed>,
    /// What it stands in place of, and who replaced it.
    replaced: Vec<(Lost, Removed)>,
}

/// Those that are known already, for what stands above many values is told of each.
#[derive(Default)]
struct Histories(HashMap<Vec<Segment>, History>);

impl History {
    fn of(path: &[Segment], tree: &Arc<Tree>) -> Self {
        let mut history = Self::default();
        let mut held = tree;
        while let Some(below) = &held.origin.below {
            let mut lost = Vec::new();
            match below {
                Below::Merged(lower) => {
                    taken(path, lower, held, &mut lost);
                    let removed = lost.iter().map(|lost| taken_out(lost, held));
                    history.removed.extend(removed);
                }
                Below::Replaced(lower) => {
                    said(path, lower, &mut lost);
                    history.overrode.extend(lost.iter().map(replaced));
                    let replaced = lost.into_iter().map(|lost| {
                        let by = taken_out(&lost, held);
                        (lost, by)
                    });
                    history.replaced.extend(replaced);
                }
            }
            held = below.tree();
        }
        history
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
    match &merged.shape {
        Shape::Map(held) => all.retain(
            |(path, _)| !matches!(path.last(), Some(Segment::Key(key)) if held.contains_key(key)),
        ),
        Shape::List(held) => {
            let mut kept = HashSet::new();
            for entry in held {
                keep(entry, &mut kept);
            }
            // Of two that are the same one is kept there.
            let is_set = merged.origin.how == Some(Strategy::Unique);
            let is_there = |part: &Tree| is_set && held.iter().any(|held| held.is_same(part));
            all.retain(|(_, part)| !has_of(part, &kept) && !is_there(part));
        }
        Shape::Leaf(_) => {}
    }
    all
}

/// All that an entry of a list is made of: of each level, as long as it was the same entry.
fn keep(tree: &Arc<Tree>, kept: &mut HashSet<*const Tree>) {
    let mut held = Some(tree);
    while let Some(here) = held {
        kept.insert(Arc::as_ptr(here));
        held = here.origin.below.as_ref().map(Below::tree);
    }
    for (_, part) in parts(&[], tree) {
        keep(part, kept);
    }
}

/// Whether anything of an entry was kept, so that it was merged by its key.
fn has_of(tree: &Arc<Tree>, kept: &HashSet<*const Tree>) -> bool {
    let is_kept = kept.contains(&Arc::as_ptr(tree));
    is_kept || parts(&[], tree).iter().any(|(_, part)| has_of(part, kept))
}
