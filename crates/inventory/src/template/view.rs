//! Values as templates see them: whoever looks at one is noted.

use std::{fmt, sync::Arc};

use api::inventory::{Segment, ValuePath};
use minijinja::{
    ErrorKind, Value,
    value::{Enumerator, Object, ObjectRepr, Serde},
};

use super::world::{Bound, MadeShape, Scope, Taken, World};
use crate::tree::{Leaf, Shape, Tree};

/// A map or a list of the inventory.
#[derive(Debug)]
pub(crate) struct View {
    world: Arc<World>,
    pub(crate) path: ValuePath,
    pub(crate) tree: Arc<Tree>,
}

/// A reference to a secret: it can be handed on, and nothing else.
#[derive(Debug)]
pub(crate) struct Secret {
    world: Arc<World>,
    path: ValuePath,
    pub(crate) value: serde_json::Value,
}

/// All that a template sees.
#[derive(Debug)]
struct Root {
    view: Arc<View>,
    scope: Scope,
}

/// What a program of a cluster begins with.
pub(crate) fn root(world: &Arc<World>, scope: &Scope) -> Value {
    Value::from_object(Root {
        view: Arc::new(View {
            world: world.clone(),
            path: ValuePath::default(),
            tree: world.root().clone(),
        }),
        scope: scope.clone(),
    })
}

/// A value as a template gets it.
pub(crate) fn give(world: &Arc<World>, path: ValuePath, tree: &Arc<Tree>) -> Value {
    match &tree.shape {
        Shape::Leaf(Leaf::Plain(value)) => {
            world.note(&path, Taken::Value);
            Value::from(Serde(value))
        }
        Shape::Leaf(Leaf::Secret(value)) => {
            world.note(&path, Taken::Value);
            secret(world, path, value)
        }
        Shape::Leaf(Leaf::Template(text)) => match world.look(&path, tree, text) {
            Ok(rendered) => {
                if let MadeShape::Secret(value) = &rendered.made.shape {
                    return secret(world, path, value);
                }
                // Shared: an expression that looks at it is one step, however large it is.
                let given = || Value::from(Serde(rendered.made.to_value()));
                rendered.given.get_or_init(given).clone()
            }
            Err(problem) => {
                world.note_failure(problem);
                Value::from(minijinja::Error::from(ErrorKind::InvalidOperation))
            }
        },
        Shape::Map(_) | Shape::List(_) => Value::from_object(View {
            world: world.clone(),
            path,
            tree: tree.clone(),
        }),
    }
}

fn secret(world: &Arc<World>, path: ValuePath, value: &serde_json::Value) -> Value {
    Value::from_object(Secret {
        world: world.clone(),
        path,
        value: value.clone(),
    })
}

impl Secret {
    /// Notes that somebody made a text of it.
    pub(crate) fn note(&self) {
        self.world.note_secret(&self.path);
    }
}

impl View {
    fn step(&self, step: &Segment) -> Option<Value> {
        let path = self.path.with(step.clone());
        if let Some(child) = self.tree.child(step) {
            return Some(give(&self.world, path, child));
        }
        self.world.note(&path, Taken::Absence);
        None
    }
}

impl Object for View {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        match &self.tree.shape {
            Shape::List(_) => ObjectRepr::Seq,
            _ => ObjectRepr::Map,
        }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let step = match &self.tree.shape {
            Shape::List(_) => Segment::Index(key.as_usize()?),
            _ => Segment::Key(key.as_str()?.into()),
        };
        self.step(&step)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.world.note(&self.path, Taken::Parts);
        match &self.tree.shape {
            Shape::List(list) => Enumerator::Seq(list.len()),
            Shape::Map(map) => {
                Enumerator::Values(map.keys().map(|key| Value::from(key.as_ref())).collect())
            }
            Shape::Leaf(_) => Enumerator::NonEnumerable,
        }
    }
}

impl Object for Root {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let name = key.as_str()?;
        if let Some((_, bound)) = self.scope.iter().find(|(bound, _)| bound.as_ref() == name) {
            return Some(match bound {
                Bound::Tree(path, tree) => give(&self.view.world, path.clone(), tree),
                Bound::Computed(value, uses) => {
                    self.view.world.note_all(uses);
                    value.clone()
                }
            });
        }
        // The engine asks here first for what it has itself.
        if GLOBALS.contains(&name) && self.view.tree.child(&Segment::Key(name.into())).is_none() {
            return None;
        }
        self.view.step(&Segment::Key(name.into()))
    }
}

impl Object for Secret {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.note();
        f.write_str("(a reference to a secret)")
    }
}

/// What the engine brings.
const GLOBALS: [&str; 4] = ["range", "dict", "namespace", "omit"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{problem::Object as Named, template, tree::Source};

    #[test]
    fn who_looks_at_a_computed_value_again_and_again_gets_the_same_one() {
        let source = Arc::new(Source {
            level: String::new(),
            object: Named {
                kind: "FleetCluster".into(),
                namespace: "fleet".into(),
                name: "shop".into(),
            },
        });
        let read = |values: serde_json::Value| {
            let values = values.as_object().unwrap();
            Tree::read(&source, &ValuePath::default(), values).unwrap()
        };
        let values = read(json!({"big": {"$template": "{{ range(1000) | list }}"}}));
        let environment = Arc::new(template::environment());
        let world = World::new(&values, &read(json!({})), Vec::new(), environment);
        let root = root(&world, &Scope::new());
        let (one, two) = (root.get_attr("big").unwrap(), root.get_attr("big").unwrap());
        let list = |value: &Value| {
            let list = value.downcast_object_ref::<Vec<Value>>();
            std::ptr::from_ref(list.unwrap())
        };
        assert_eq!(list(&one), list(&two));
        assert_eq!(one.len(), Some(1000));
    }
}
