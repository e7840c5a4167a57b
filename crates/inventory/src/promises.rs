//! Values that are templates, held against what levels ask of values once it is known what they come to.
//!
//! Where values are merged a template fits any schema and type, since what it gives is known of a rendered cluster only. So those are asked
//! once more then, with what each template came to in its place, and rules of values with templates in them are asked only then. A template
//! that no object needs is not rendered and stands in them as it is written: it comes to nothing.

use std::{collections::HashMap, sync::Arc};

use api::inventory::ValuePath;

use crate::{
    chain::Resolved,
    merge::same_type,
    order::Order,
    problem::{Object, Problem, Rule},
    template::world::{Made, MadeShape, World},
    tree::{Leaf, Shape, Source, Tree},
};

/// What was asked of values with templates in them.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    pub(crate) order: Arc<Order>,
    /// Of which level; none: of the cluster.
    pub(crate) rank: Option<usize>,
    /// Whose values they are.
    pub(crate) source: Arc<Source>,
    /// What that object sets.
    pub(crate) own: Arc<Tree>,
    /// What the values down to it come to.
    pub(crate) values: Arc<Tree>,
}

impl Promise {
    /// Asks what the level asks of values together; where templates are among them, that is kept for later, with what is kept already.
    pub(crate) fn now_or_later(self, kept: &[Self]) -> Result<Vec<Self>, Vec<Problem>> {
        let mut kept = kept.to_vec();
        if self.values.has_template() {
            kept.push(self);
        } else {
            let (_, rules) = self.order.asks(self.rank);
            rules.check(&self.values, &self.source)?;
        }
        Ok(kept)
    }
}

/// What is wrong with what the templates in a cluster's values came to.
pub(crate) fn broken(resolved: &Resolved, world: &World) -> Vec<Problem> {
    if resolved.promises.is_empty() {
        return Vec::new();
    }
    let known = Known::of(world);
    let mut problems = Vec::new();
    for promise in &resolved.promises {
        problems.extend(known.held(promise).err().into_iter().flatten());
    }
    problems.extend(known.other_types(world));
    let own = resolved.levels.last();
    if let (Some(schema), Some(own)) = (&resolved.template.schema, own) {
        let values = known.put(&resolved.values);
        let checked = values.map_or(Ok(()), |values| schema.check(&values, own));
        problems.extend(checked.err().into_iter().flatten());
    }
    for problem in &mut problems {
        if let Rule::Schema { what, .. } = &mut problem.rule {
            *what = format!(
                "{what}, with what templates come to for {}",
                resolved.cluster
            );
        }
    }
    problems
}

/// What templates came to, by the object that sets them and their place there.
struct Known(HashMap<(Object, Arc<ValuePath>), Made>);

impl Known {
    fn of(world: &World) -> Self {
        let rendered = world.rendered().into_iter();
        let known = rendered.filter_map(|(path, made)| {
            let origin = &world.root().at(&path.0)?.origin;
            Some(((origin.source.object.clone(), origin.at.clone()), made))
        });
        Self(known.collect())
    }

    /// Asks of an object's values what its level asks.
    fn held(&self, promise: &Promise) -> Result<(), Vec<Problem>> {
        let (schema, rules) = promise.order.asks(promise.rank);
        if let (Some(schema), Some(own)) = (schema, self.put(&promise.own)) {
            schema.check(&own, &promise.source)?;
        }
        let values = self.put(&promise.values);
        rules.check(values.as_ref().unwrap_or(&promise.values), &promise.source)
    }

    /// What is of another type than the value that it stands in place of.
    fn other_types(&self, world: &World) -> Vec<Problem> {
        let rendered = world.rendered().into_iter();
        let of_another = rendered.filter_map(|(path, _)| {
            let tree = world.root().at(&path.0)?;
            let below = tree.origin.below.as_ref()?.tree();
            same_type(below, self.put(tree).as_ref()?).err()
        });
        of_another.collect()
    }

    /// A tree with what its templates came to. None: nothing is known of any.
    fn put(&self, tree: &Arc<Tree>) -> Option<Arc<Tree>> {
        match &tree.shape {
            Shape::Leaf(Leaf::Template(_)) => {
                let origin = &tree.origin;
                let place = (origin.source.object.clone(), origin.at.clone());
                self.0.get(&place).map(|made| grown(made, tree))
            }
            Shape::Leaf(_) => None,
            Shape::Map(map) => {
                let mut all = map.clone();
                let put = map
                    .iter()
                    .filter_map(|(key, part)| Some((key, self.put(part)?)));
                let before = put.map(|(key, part)| all.insert(key.clone(), part));
                (before.count() > 0).then(|| tree.with(Shape::Map(all), None))
            }
            Shape::List(list) => {
                let put: Vec<_> = list.iter().map(|part| self.put(part)).collect();
                if put.iter().all(Option::is_none) {
                    return None;
                }
                let all = put.into_iter().zip(list);
                let all = all.map(|(put, part)| put.unwrap_or_else(|| part.clone()));
                Some(tree.with(Shape::List(all.collect()), None))
            }
        }
    }
}

/// What a template came to as a tree, all of it from where the template stands.
fn grown(made: &Made, template: &Arc<Tree>) -> Arc<Tree> {
    let shape = match &made.shape {
        MadeShape::Leaf(value) => Shape::Leaf(Leaf::Plain(value.clone())),
        MadeShape::Secret(value) => Shape::Leaf(Leaf::Secret(value.clone())),
        MadeShape::Map(map) => {
            let parts = map.iter();
            Shape::Map(
                parts
                    .map(|(key, part)| (key.clone(), grown(part, template)))
                    .collect(),
            )
        }
        MadeShape::List(list) => {
            Shape::List(list.iter().map(|part| grown(part, template)).collect())
        }
    };
    template.with(shape, None)
}
