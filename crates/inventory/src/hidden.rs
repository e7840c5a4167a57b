//! What was made of values that must not be shown, as those that were encrypted in a file.
//!
//! A value that stands somewhere as it is can be found by how it reads. What a template made of it, reversed or cut, cannot: it is told by
//! what it was made of.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    diff::ClusterChange,
    fleet::Fleet,
    problem::{Object, Problems},
    render::Rendered,
    template::world::{Made, Taken},
};

/// Leaves of rendered objects, by cluster, object and path.
#[derive(Debug, Default)]
pub struct Hidden(BTreeSet<(Object, Object, String)>);

impl Hidden {
    /// Notes the leaves of an inventory that were made of such values; `is_hidden` says whether a value is one.
    ///
    /// # Errors
    /// What is wrong with the inventory.
    pub fn note(
        &mut self,
        fleet: &Fleet,
        is_hidden: impl Fn(&Value) -> bool,
    ) -> Result<(), Problems> {
        fleet.render_all(|rendered| {
            let cluster = &rendered.resolved.cluster;
            for document in &rendered.documents {
                for (path, made) in document.content.leaves() {
                    if is_made_of(&rendered, made, &is_hidden) {
                        let object = document.object.clone();
                        self.0.insert((cluster.clone(), object, path.to_string()));
                    }
                }
            }
        })
    }

    /// Puts a text in place of such leaves, before and after the change.
    pub fn hide(&self, changes: &mut [ClusterChange], mask: &str) {
        for change in changes {
            for object in &mut change.objects {
                for leaf in &mut object.leaves {
                    let place = (
                        change.cluster.clone(),
                        object.object.clone(),
                        leaf.path.clone(),
                    );
                    if self.0.contains(&place) {
                        let values = [&mut leaf.before, &mut leaf.after];
                        let values = values.into_iter().flatten();
                        values.for_each(|value| *value = mask.into());
                    }
                }
            }
        }
    }
}

fn is_made_of(rendered: &Rendered, made: &Made, is_hidden: &impl Fn(&Value) -> bool) -> bool {
    let values = made.uses.iter().filter(|used| used.what == Taken::Value);
    let mut trees = values.filter_map(|used| rendered.world.root().at(&used.path.0));
    trees.any(|tree| is_hidden(&tree.to_value()))
}
