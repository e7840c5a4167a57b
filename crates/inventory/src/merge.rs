//! How values of several levels become one.
//!
//! Levels are folded from the weakest to the strongest. At each path one rule has the say: the first of the Hierarchy that fits the
//! path, else the one that stands above. A type never changes silently: null and templates fit any, all else must be the same.

use std::sync::Arc;

use api::inventory::{Lists, MergeRule, Segment, Strategy, ValuePath};
use serde_json::Value;

use crate::{
    problem::{Problem, Rule},
    tree::{Below, Leaf, Shape, Tree},
};

/// Merges a stronger level over what the weaker ones came to.
///
/// # Errors
/// The first value that cannot be merged.
pub fn merge(
    rules: &[MergeRule],
    lower: &Arc<Tree>,
    upper: &Arc<Tree>,
) -> Result<Arc<Tree>, Problem> {
    let merger = Merger { rules };
    merger.merge(&mut Vec::new(), Mode::ROOT, lower, upper)
}

struct Merger<'a> {
    rules: &'a [MergeRule],
}

/// What has the say at a path.
#[derive(Clone, Copy)]
struct Mode<'a> {
    strategy: Strategy,
    lists: Lists,
    knockout: Option<&'a str>,
    key: &'a str,
}

impl Mode<'_> {
    const ROOT: Mode<'static> = Mode {
        strategy: Strategy::Deep,
        lists: Lists::Replace,
        knockout: None,
        key: "",
    };

    /// What has the say in the entries of a list that is merged by key.
    const fn of_entries(self) -> Self {
        Self {
            strategy: Strategy::Deep,
            lists: Lists::Replace,
            ..self
        }
    }

    /// Whether Deep makes one list of two.
    const fn joins_lists(&self) -> bool {
        match self.lists {
            Lists::Unique => true,
            Lists::Replace => false,
        }
    }

    /// The text behind the prefix that takes something out.
    fn knocked<'t>(&self, text: Option<&'t str>) -> Option<&'t str> {
        text?.strip_prefix(self.knockout?)
    }

    fn is_knocked_key(&self, tree: &Tree) -> bool {
        self.knockout.is_some() && tree.text() == self.knockout
    }
}

impl<'a> Merger<'a> {
    fn mode(&self, path: &[Segment], above: Mode<'a>) -> Mode<'a> {
        let Some(rule) = self.rules.iter().find(|rule| rule.path.matches(path)) else {
            return above;
        };
        Mode {
            strategy: rule.strategy,
            lists: rule.lists.unwrap_or_default(),
            knockout: rule.knockout_prefix.as_deref(),
            key: rule.key.as_deref().unwrap_or_default(),
        }
    }

    fn merge(
        &self,
        path: &mut Vec<Segment>,
        above: Mode<'a>,
        lower: &Arc<Tree>,
        upper: &Arc<Tree>,
    ) -> Result<Arc<Tree>, Problem> {
        let mode = self.mode(path, above);
        // Of Unique, what is no list is a list of one.
        if mode.strategy != Strategy::Unique {
            same_type(lower, upper)?;
        }
        match (mode.strategy, &lower.shape, &upper.shape) {
            (Strategy::Unique, _, _) => {
                Ok(unique(mode, &as_list(upper, mode)?, &as_list(lower, mode)?))
            }
            (Strategy::Deep, Shape::Map(_), Shape::Map(_)) => self.maps(path, mode, lower, upper),
            (Strategy::Deep, Shape::List(_), Shape::List(_)) if mode.joins_lists() => {
                Ok(unique(mode, upper, lower))
            }
            (Strategy::Hash, Shape::Map(_), Shape::Map(_)) => hash(lower, upper),
            (Strategy::ListByKey, Shape::List(_), Shape::List(_)) => {
                self.by_key(path, mode, lower, upper)
            }
            (Strategy::First | Strategy::Hash | Strategy::Deep | Strategy::ListByKey, _, _) => {
                let upper = self.settle_here(path, mode, upper)?;
                Ok(replace(lower, &upper, mode.strategy))
            }
        }
    }

    fn maps(
        &self,
        path: &mut Vec<Segment>,
        mode: Mode<'a>,
        lower: &Arc<Tree>,
        upper: &Arc<Tree>,
    ) -> Result<Arc<Tree>, Problem> {
        let (Shape::Map(below), Shape::Map(over)) = (&lower.shape, &upper.shape) else {
            return Ok(upper.clone());
        };
        let mut merged = below.clone();
        let mut loses = false;
        for (key, value) in over {
            path.push(Segment::Key(key.clone()));
            let here = self.mode(path, mode);
            if mode.is_knocked_key(value) || here.is_knocked_key(value) {
                loses |= merged.remove(key).is_some();
            } else {
                let value = match below.get(key) {
                    Some(held) => self.merge(path, mode, held, value)?,
                    None => self.settle(path, mode, value)?,
                };
                merged.insert(key.clone(), value);
            }
            path.pop();
        }
        let merged = upper.with(Shape::Map(merged), Some(Strategy::Deep));
        Ok(remember(lower, merged, loses))
    }

    fn by_key(
        &self,
        path: &mut Vec<Segment>,
        mode: Mode<'a>,
        lower: &Arc<Tree>,
        upper: &Arc<Tree>,
    ) -> Result<Arc<Tree>, Problem> {
        let mut merged = keyed(lower, mode)?;
        let many = merged.len();
        let over = keyed(upper, mode)?;
        let marks = || {
            over.iter()
                .filter_map(|(key, _)| mode.knocked(key.as_str()))
        };
        // Of weaker levels, wherever the mark stands in the list: an entry of the same list is meant.
        merged.retain(|(held, _)| !marks().any(|gone| held.as_str() == Some(gone)));
        let loses = merged.len() < many;
        let is_mark = |(key, _): &(Value, _)| mode.knocked(key.as_str()).is_some();
        for (key, entry) in over.iter().filter(|entry| !is_mark(entry)).cloned() {
            let place = merged.iter().position(|(held, _)| *held == key);
            path.push(Segment::Index(place.unwrap_or(merged.len())));
            if let Some((_, held)) = place.and_then(|place| merged.get_mut(place)) {
                *held = self.merge(path, mode.of_entries(), held, &entry)?;
            } else {
                let entry = self.settle(path, mode.of_entries(), &entry)?;
                merged.push((key, entry));
            }
            path.pop();
        }
        let entries = merged.into_iter().map(|(_, entry)| entry).collect();
        let merged = upper.with(Shape::List(entries), Some(Strategy::ListByKey));
        Ok(remember(lower, merged, loses))
    }

    /// A value that one level alone sets: what takes out something has nothing to take out, and goes.
    fn settle(
        &self,
        path: &mut Vec<Segment>,
        above: Mode<'a>,
        tree: &Arc<Tree>,
    ) -> Result<Arc<Tree>, Problem> {
        if self.rules.is_empty() {
            return Ok(tree.clone());
        }
        let mode = self.mode(path, above);
        self.settle_here(path, mode, tree)
    }

    fn settle_here(
        &self,
        path: &mut Vec<Segment>,
        mode: Mode<'a>,
        tree: &Arc<Tree>,
    ) -> Result<Arc<Tree>, Problem> {
        match (mode.strategy, &tree.shape) {
            (Strategy::Unique, _) => {
                let tree = as_list(tree, mode)?;
                Ok(unique(
                    mode,
                    &tree,
                    &tree.with(Shape::List(Vec::new()), None),
                ))
            }
            (Strategy::Deep, Shape::Map(_)) => {
                let nothing = tree.with(Shape::Map(std::collections::BTreeMap::new()), None);
                let settled = self.maps(path, mode, &nothing, tree)?;
                Ok(tree.with(settled.shape.clone(), None))
            }
            (Strategy::Deep, Shape::List(_)) if mode.joins_lists() => Ok(unique(
                mode,
                tree,
                &tree.with(Shape::List(Vec::new()), None),
            )),
            (Strategy::ListByKey, Shape::List(_)) => {
                let nothing = tree.with(Shape::List(Vec::new()), None);
                self.by_key(path, mode, &nothing, tree)
            }
            (Strategy::First | Strategy::Hash | Strategy::Deep | Strategy::ListByKey, _) => {
                Ok(tree.clone())
            }
        }
    }
}

/// The stronger value, which remembers what it stands in place of.
fn replace(lower: &Arc<Tree>, upper: &Tree, how: Strategy) -> Arc<Tree> {
    let mut tree = upper.clone();
    tree.origin.how = Some(how);
    tree.origin.below = Some(Below::Replaced(lower.clone()));
    Arc::new(tree)
}

/// A merged map or list, which remembers what it was merged with where something was taken out, by this merge or by one before it.
fn remember(lower: &Arc<Tree>, merged: Arc<Tree>, loses: bool) -> Arc<Tree> {
    if !loses && lower.origin.below.is_none() {
        return merged;
    }
    let mut tree = Arc::unwrap_or_clone(merged);
    tree.origin.below = Some(Below::Merged(lower.clone()));
    Arc::new(tree)
}

fn hash(lower: &Arc<Tree>, upper: &Arc<Tree>) -> Result<Arc<Tree>, Problem> {
    let (Shape::Map(below), Shape::Map(over)) = (&lower.shape, &upper.shape) else {
        return Ok(upper.clone());
    };
    let mut merged = below.clone();
    for (key, value) in over {
        let value = match below.get(key) {
            Some(held) => {
                same_type(held, value)?;
                replace(held, value, Strategy::Hash)
            }
            None => value.clone(),
        };
        merged.insert(key.clone(), value);
    }
    let merged = upper.with(Shape::Map(merged), Some(Strategy::Hash));
    Ok(remember(lower, merged, false))
}

/// The entries of both lists, each once. The stronger's stand first, but in what Deep merges the weaker's, as Hiera has it.
fn unique(mode: Mode<'_>, upper: &Arc<Tree>, lower: &Arc<Tree>) -> Arc<Tree> {
    let (Shape::List(over), Shape::List(below)) = (&upper.shape, &lower.shape) else {
        return upper.clone();
    };
    let gone: Vec<_> = over
        .iter()
        .filter_map(|entry| mode.knocked(entry.text()))
        .collect();
    // The mark alone takes out whatever there is.
    let is_gone =
        |entry: &Tree| gone.contains(&"") || entry.text().is_some_and(|text| gone.contains(&text));
    let own = over
        .iter()
        .filter(|entry| mode.knocked(entry.text()).is_none());
    let others = below.iter().filter(|entry| !is_gone(entry));
    let entries: Vec<_> = match mode.strategy {
        Strategy::Deep => others.chain(own).collect(),
        Strategy::First | Strategy::Unique | Strategy::Hash | Strategy::ListByKey => {
            own.chain(others).collect()
        }
    };
    let mut merged: Vec<Arc<Tree>> = Vec::new();
    for entry in entries {
        if !merged.iter().any(|held| held.is_same(entry)) {
            merged.push(entry.clone());
        }
    }
    let how = (!below.is_empty()).then_some(Strategy::Unique);
    let loses = below.iter().any(|entry| is_gone(entry));
    let merged = upper.with(Shape::List(merged), how);
    remember(lower, merged, loses)
}

/// A value on its own as a list of one.
fn as_list(tree: &Arc<Tree>, mode: Mode<'_>) -> Result<Arc<Tree>, Problem> {
    match &tree.shape {
        Shape::List(_) => Ok(tree.clone()),
        Shape::Leaf(Leaf::Plain(Value::Null)) => Ok(tree.with(Shape::List(Vec::new()), None)),
        Shape::Leaf(Leaf::Plain(_) | Leaf::Secret(_)) => {
            Ok(tree.with(Shape::List(vec![tree.clone()]), None))
        }
        Shape::Map(_) => Err(unmergeable(tree, mode, "it is a map".into())),
        Shape::Leaf(Leaf::Template(_)) => Err(unmergeable(
            tree,
            mode,
            "it is a template, of which is not known yet whether it gives a list".into(),
        )),
    }
}

/// The entries of a list by the value of their key.
fn keyed(list: &Arc<Tree>, mode: Mode<'_>) -> Result<Vec<(Value, Arc<Tree>)>, Problem> {
    let Shape::List(entries) = &list.shape else {
        return Ok(Vec::new());
    };
    let mut found: Vec<(Value, Arc<Tree>)> = Vec::with_capacity(entries.len());
    for entry in entries {
        let key = entry.child(&Segment::Key(mode.key.into()));
        let key = match key.map(|key| &key.shape) {
            Some(Shape::Leaf(Leaf::Plain(key))) if !key.is_null() => key.clone(),
            _ => {
                let what = format!("it is no map with a plain value of {}", mode.key);
                return Err(unmergeable(entry, mode, what));
            }
        };
        if found.iter().any(|(held, _)| *held == key) {
            let what = format!("another entry has the {} {key} too", mode.key);
            return Err(unmergeable(entry, mode, what));
        }
        found.push((key, entry.clone()));
    }
    Ok(found)
}

/// Whether a stronger value is of the type of the weaker one.
pub(crate) fn same_type(lower: &Arc<Tree>, upper: &Arc<Tree>) -> Result<(), Problem> {
    let (Some(above), Some(here)) = (lower.type_name(), upper.type_name()) else {
        return Ok(());
    };
    // A secret stands for a text or a number, never for a map or a list.
    let has_parts = |name| matches!(name, "a map" | "a list");
    let fits = above == here
        || (above == "a secret" && !has_parts(here))
        || (here == "a secret" && !has_parts(above));
    if fits {
        return Ok(());
    }
    Err(problem(
        upper,
        Rule::TypeChanged {
            here,
            above,
            above_object: format!("{} {}", lower.origin.source.object, lower.origin.at),
        },
    ))
}

fn unmergeable(tree: &Arc<Tree>, mode: Mode<'_>, what: String) -> Problem {
    let strategy = name(mode.strategy);
    problem(tree, Rule::Unmergeable { strategy, what })
}

fn problem(tree: &Arc<Tree>, rule: Rule) -> Problem {
    let origin = &tree.origin;
    origin.source.problem(ValuePath::clone(&origin.at), rule)
}

/// What people write for a strategy.
pub fn name(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::First => "First",
        Strategy::Unique => "Unique",
        Strategy::Hash => "Hash",
        Strategy::Deep => "Deep",
        Strategy::ListByKey => "ListByKey",
    }
}
