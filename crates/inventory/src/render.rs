//! What a cluster comes to: objects, each leaf of which knows what it was made of.

use std::{collections::BTreeSet, sync::Arc};

use api::inventory::{BackEnd, Naming, Segment, ValuePath};
use jinja::deep;
use serde_json::Value;

use crate::{
    chain::Resolved,
    contract,
    fleet::Fleet,
    problem::{Object, Problem, Problems, Rule},
    promises,
    template::{
        Compiled, Document, Node, NodeShape, Program,
        view::View,
        world::{Bound, Made, MadeShape, Scope, Taken, Use, Uses, World, also, bytes},
    },
};

mod autoscaled;
mod hashed;
mod kubespray;
mod rolls;
mod typed;
pub mod vault;

/// A cluster that was rendered.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// What it was before.
    pub resolved: Resolved,
    /// Its objects, in the order of the template.
    pub documents: Vec<RenderedDocument>,
    pub(crate) world: Arc<World>,
}

/// An object of a cluster.
#[derive(Clone, Debug)]
pub struct RenderedDocument {
    /// Its kind, namespace and name.
    pub object: Object,
    /// Its API version.
    pub api_version: String,
    /// What it holds.
    pub content: Made,
    /// What its being there depends on.
    pub because: Uses,
    naming: Naming,
    /// Where it stands in the ClusterTemplate.
    at: Arc<ValuePath>,
}

impl RenderedDocument {
    /// The object alone.
    pub fn to_value(&self) -> Value {
        self.content.to_value()
    }
}

/// The name of what a cluster was rendered to: a digest of its objects and their order. The same objects have the same name for ever,
/// however they were written.
pub fn revision(objects: &[Value]) -> String {
    hashed::of(&Value::from(objects.to_vec()), REVISION_DIGITS)
}

/// The whole digest of a value, however it was written.
pub(crate) fn digest(value: &Value) -> String {
    hashed::of(value, usize::MAX)
}

impl Rendered {
    /// Its objects alone, in the order of the template.
    pub fn objects(&self) -> Vec<Value> {
        let documents = self.documents.iter();
        documents.map(RenderedDocument::to_value).collect()
    }
}

impl Fleet {
    /// Renders a cluster.
    ///
    /// # Errors
    /// Everything that is wrong with it. Then there is nothing of it, not even the objects that could be rendered.
    pub fn render(&self, cluster: &Object) -> Result<Rendered, Problems> {
        let resolved = self.resolve(cluster)?;
        deep(|| render(resolved)).map_err(Problems)
    }

    /// Renders every cluster, in the order of their names, and hands each on.
    ///
    /// # Errors
    /// What is wrong with any of them, each problem once.
    pub fn render_all(&self, mut each: impl FnMut(Rendered)) -> Result<(), Problems> {
        let mut problems: Vec<Problem> = Vec::new();
        for cluster in self.clusters() {
            match self.render(&cluster) {
                Ok(rendered) => each(rendered),
                Err(Problems(found)) => {
                    for problem in found {
                        if !problems.contains(&problem) {
                            problems.push(problem);
                        }
                    }
                }
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Problems(problems))
        }
    }
}

fn render(resolved: Resolved) -> Result<Rendered, Vec<Problem>> {
    let template = resolved.template.clone();
    let world = World::new(
        &resolved.values,
        &resolved.facts,
        resolved.levels.clone(),
        template.environment.clone(),
    );
    let renderer = Renderer {
        world: &world,
        template: &template,
    };
    let mut documents = Vec::new();
    let mut problems = Vec::new();
    for document in &template.documents {
        if let Err(problem) = renderer.document(document, &mut documents) {
            problems.push(problem);
        }
    }
    // What VaultSecrets say may need values that only a cluster with references has.
    let connection = match &template.vault_secrets {
        Some(node) if Renderer::refers_to_vault(&documents) => renderer
            .node(node, &Scope::new())
            .unwrap_or_else(|problem| {
                problems.push(problem);
                None
            }),
        _ => None,
    };
    if problems.is_empty() {
        problems.extend(promises::broken(&resolved, &world));
    }
    if problems.is_empty() {
        let changed = resolved.changed.as_deref();
        let connection = connection.as_ref();
        let found = vault::resolve(&world, &template, (connection, changed), &mut documents);
        problems.extend(found);
    }
    if problems.is_empty() {
        autoscaled::hand_over(&mut documents);
        hashed::name(&mut documents);
        problems.extend(renderer.twice(&documents));
        match template.back_end {
            BackEnd::Kubespray => problems.extend(kubespray::check(&template, &documents)),
            BackEnd::Plain => {}
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Rendered {
        resolved,
        documents,
        world,
    })
}

struct Renderer<'a> {
    world: &'a Arc<World>,
    template: &'a Compiled,
}

/// What a loop runs over.
enum Turns {
    /// The parts of a value of the inventory, and that it is looked at which those are.
    Known(Vec<Scope>, Use),
    /// Something computed: the key or number of each entry, whether that is a key, and the entry.
    Computed(Vec<(minijinja::Value, bool, minijinja::Value)>),
}

impl Renderer<'_> {
    fn document(
        &self,
        document: &Document,
        into: &mut Vec<RenderedDocument>,
    ) -> Result<(), Problem> {
        let (scopes, because) = match &document.for_each {
            None => (vec![Scope::new()], Uses::default()),
            Some((program, name)) => self.turns(program, name)?,
        };
        for scope in scopes {
            let mut because = because.clone();
            if let Some(when) = &document.when {
                let (holds, uses) = self
                    .world
                    .run(when, &scope, |holds, _| Ok(holds.is_true()))?;
                if !holds {
                    continue;
                }
                because = Arc::new(because.union(&uses).cloned().collect());
            }
            if into.len() >= MAX_DOCUMENTS {
                return Err(self.problem(
                    &document.at,
                    &format!("gives more than {MAX_DOCUMENTS} objects for one cluster"),
                    "make several clusters of it",
                ));
            }
            let content = self.node(&document.object, &scope)?;
            let content = content.unwrap_or_else(|| Made {
                uses: Uses::default(),
                at: document.at.clone(),
                shape: MadeShape::Map(std::collections::BTreeMap::new()),
            });
            into.push(self.identified(document, content, because)?);
        }
        Ok(())
    }

    /// Whether any object holds a reference to Vault.
    fn refers_to_vault(documents: &[RenderedDocument]) -> bool {
        let mut leaves = documents
            .iter()
            .flat_map(|document| document.content.leaves());
        leaves.any(|(_, leaf)| {
            matches!(&leaf.shape, MadeShape::Secret(value) if value.get("vault").is_some())
        })
    }

    /// The turns of a loop: what an entry and its key are called in each.
    fn turns(&self, program: &Program, name: &Arc<str>) -> Result<(Vec<Scope>, Uses), Problem> {
        let (turns, uses) = self.world.run(program, &Scope::new(), |value, _| {
            self.entries(program, value, name)
        })?;
        let entries = match turns {
            Turns::Known(scopes, parts) => {
                let because = uses.iter().cloned().chain([parts]).collect();
                return Ok((scopes, Arc::new(because)));
            }
            Turns::Computed(entries) => entries,
        };
        let scope = |(key, is_key, entry): (minijinja::Value, bool, minijinja::Value)| {
            // The key of a computed map may be made of anything; the number of an entry is not.
            let of_key = if is_key {
                uses.clone()
            } else {
                Uses::default()
            };
            vec![
                (name.clone(), Bound::Computed(entry, uses.clone())),
                (Arc::from("key"), Bound::Computed(key, of_key)),
            ]
        };
        let scopes = entries.into_iter().map(scope).collect();
        Ok((scopes, uses))
    }

    /// The entries of what a loop runs over, taken while it is known who looks at them.
    fn entries(
        &self,
        program: &Program,
        value: &minijinja::Value,
        name: &Arc<str>,
    ) -> Result<Turns, Problem> {
        let key = |key: minijinja::Value| -> (Arc<str>, Bound) {
            (Arc::from("key"), Bound::Computed(key, Uses::default()))
        };
        if let Some(view) = value.downcast_object_ref::<View>() {
            let mut scopes = Vec::new();
            let parts: Vec<(minijinja::Value, Segment)> = match &view.tree.shape {
                crate::tree::Shape::Map(map) => map
                    .keys()
                    .map(|key| (key.as_ref().into(), Segment::Key(key.clone())))
                    .collect(),
                crate::tree::Shape::List(list) => (0..list.len())
                    .map(|number| (number.into(), Segment::Index(number)))
                    .collect(),
                crate::tree::Shape::Leaf(_) => Vec::new(),
            };
            for (number, step) in parts {
                if let Some(tree) = view.tree.child(&step) {
                    let entry = Bound::Tree(view.path.with(step), tree.clone());
                    scopes.push(vec![(name.clone(), entry), key(number)]);
                }
            }
            let parts = Use {
                path: view.path.clone(),
                what: Taken::Parts,
            };
            return Ok(Turns::Known(scopes, parts));
        }
        let not_a_list = || {
            let at = program.at.clone();
            self.problem(
                &at,
                &format!("`{}` gives neither a list nor a map", program.text),
                "name one",
            )
        };
        let is_list = matches!(
            value.kind(),
            minijinja::value::ValueKind::Seq
                | minijinja::value::ValueKind::Iterable
                | minijinja::value::ValueKind::Map
        );
        if !is_list {
            return Err(not_a_list());
        }
        let entries = value.try_iter().map_err(|_| not_a_list())?;
        let mut computed = Vec::new();
        for (number, entry) in entries.enumerate().take(MAX_DOCUMENTS + 1) {
            let is_map = value.kind() == minijinja::value::ValueKind::Map;
            computed.push(if is_map {
                let part = value.get_item(&entry).map_err(|_| not_a_list())?;
                (entry, true, part)
            } else {
                (number.into(), false, entry)
            });
        }
        Ok(Turns::Computed(computed))
    }

    /// A part of an object; none if it is left out.
    fn node(&self, node: &Node, scope: &Scope) -> Result<Option<Made>, Problem> {
        let bytes = match &node.shape {
            NodeShape::Literal(value) => bytes(value),
            _ => 0,
        };
        self.world
            .spend((1, bytes), &self.template.source, &node.at)?;
        let shape = match &node.shape {
            NodeShape::Literal(value) => MadeShape::Leaf(value.clone()),
            NodeShape::Program(program) => {
                return self.world.run_and_make(program, scope, &node.at);
            }
            NodeShape::Map(parts) => {
                let mut made = std::collections::BTreeMap::new();
                for (key, part) in parts {
                    if let Some(part) = self.node(part, scope)? {
                        made.insert(key.clone(), part);
                    }
                }
                MadeShape::Map(made)
            }
            NodeShape::List(parts) => {
                let mut made = Vec::new();
                for part in parts {
                    made.extend(self.node(part, scope)?);
                }
                MadeShape::List(made)
            }
        };
        Ok(Some(Made {
            uses: Uses::default(),
            at: node.at.clone(),
            shape,
        }))
    }

    fn identified(
        &self,
        document: &Document,
        content: Made,
        because: Uses,
    ) -> Result<RenderedDocument, Problem> {
        let text = |path: &[&str]| {
            let mut made = &content;
            for key in path {
                match &made.shape {
                    MadeShape::Map(map) => made = map.get(*key)?,
                    _ => return None,
                }
            }
            match &made.shape {
                MadeShape::Leaf(Value::String(text)) if !text.is_empty() => Some(text.clone()),
                _ => None,
            }
        };
        let wanted = |path: &[&str]| {
            text(path).ok_or_else(|| {
                self.problem(
                    &document.at,
                    &format!(
                        "gives an object whose {} is no text, or missing",
                        path.join(".")
                    ),
                    "every object has apiVersion, kind and metadata.name",
                )
            })
        };
        let name = wanted(&["metadata", "name"])?;
        if name.len() > 253 || !name.bytes().all(is_of_a_name) {
            return Err(self.problem(
                &document.at,
                &format!("gives an object with the name {name:?}"),
                "a name has at most 253 lower-case letters, digits, '-' and '.'",
            ));
        }
        Ok(RenderedDocument {
            object: Object {
                kind: wanted(&["kind"])?,
                namespace: text(&["metadata", "namespace"]).unwrap_or_default(),
                name,
            },
            api_version: wanted(&["apiVersion"])?,
            content,
            because,
            naming: document.naming,
            at: document.at.clone(),
        })
    }

    fn twice(&self, documents: &[RenderedDocument]) -> Vec<Problem> {
        let mut seen = BTreeSet::new();
        let mut problems = Vec::new();
        for document in documents {
            let group = contract::group(&document.api_version);
            if !seen.insert((group, &document.object)) {
                problems.push(self.problem(
                    &document.at,
                    &format!(
                        "gives {} {} twice",
                        document.object.kind, document.object.name
                    ),
                    "give each object a name of its own",
                ));
            }
        }
        problems
    }

    /// A problem of the template with this cluster.
    fn problem(&self, at: &ValuePath, what: &str, remedy: &'static str) -> Problem {
        let cluster = self.world.levels().last();
        let cluster = cluster.map(|source| source.object.to_string());
        let what = format!("{what}, for {}", cluster.unwrap_or_default());
        let rule = Rule::Rendered { what, remedy };
        self.template.source.problem(at.clone(), rule)
    }
}

fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
}

/// All uses of a rendered value and of what stands below it.
fn all_uses(made: &Made) -> BTreeSet<Use> {
    let leaves = made.leaves();
    leaves
        .iter()
        .flat_map(|(_, leaf)| leaf.uses.iter().cloned())
        .collect()
}

/// Puts another text in place of a leaf, which then also depends on what that was made of.
fn rename(made: &mut Made, path: &[&str], text: &str, uses: &BTreeSet<Use>) {
    match (path.split_first(), &mut made.shape) {
        (Some((key, rest)), MadeShape::Map(map)) => {
            if let Some(part) = map.get_mut(*key) {
                rename(part, rest, text, uses);
            }
        }
        (None, MadeShape::Leaf(value)) => {
            *value = text.into();
            *made = also(made.clone(), uses);
        }
        _ => {}
    }
}

/// More objects than the largest cluster of kubespray has hosts.
const MAX_DOCUMENTS: usize = 20_000;

/// Twelve digits of sixteen: of a cluster's revisions two meet by chance once in some million of them.
const REVISION_DIGITS: usize = 12;
