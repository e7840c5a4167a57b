//! What a cluster inherits: its objects level by level, and what their values come to.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use api::inventory::{FleetClusterSpec, Presence, Segment, ValuePath};

use crate::{
    fleet::{Changed, Fleet, Layer, Name, field},
    memo::{Inputs, Named, Reads},
    merge::merge,
    order::{CLUSTER, Order},
    problem::{Object, Problem, Problems, Rule},
    promises::Promise,
    template::Compiled,
    tree::{Shape, Source, Tree},
};

/// What a cluster is before it is rendered.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The cluster.
    pub cluster: Object,
    /// The objects that it inherits from, the weakest first, and itself at the end.
    pub levels: Vec<Arc<Source>>,
    /// Its values, of all levels together.
    pub values: Arc<Tree>,
    /// What templates may say of it beside its values: `cluster` and `levels`.
    pub facts: Arc<Tree>,
    pub(crate) template: Arc<Compiled>,
    pub(crate) changed: Option<Arc<Changed>>,
    /// What is asked of its values once templates in them are rendered.
    pub(crate) promises: Vec<Promise>,
}

/// What the levels above a cluster come to.
#[derive(Debug)]
pub(crate) struct Prefix {
    pub(crate) values: Arc<Tree>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) levels: Vec<Arc<Source>>,
    pub(crate) template: Option<(String, Arc<Source>)>,
    pub(crate) promises: Vec<Promise>,
}

/// A path that no stronger level may set.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    path: ValuePath,
    by: Arc<Source>,
}

impl Fleet {
    /// Finds what a cluster inherits and merges it.
    ///
    /// # Errors
    /// Everything that is wrong with it, by level, object and path.
    pub fn resolve(&self, cluster: &Object) -> Result<Resolved, Problems> {
        self.resolve_cluster(cluster).map_err(Problems)
    }

    fn resolve_cluster(&self, cluster: &Object) -> Result<Resolved, Vec<Problem>> {
        let name = (cluster.namespace.clone(), cluster.name.clone());
        let spec = self.clusters.get(&name).ok_or_else(|| {
            let there = self.clusters.keys().filter(|(ns, _)| *ns == name.0);
            vec![Problem {
                object: cluster.clone(),
                level: None,
                path: ValuePath::default(),
                rule: Rule::NotThere {
                    wanted: format!("FleetCluster {}", cluster.name),
                    there: some(there.map(|(_, name)| name)),
                },
            }]
        })?;
        let order = self.order(cluster, spec)?;
        let chain = self.chain(cluster, spec, &order)?;
        let above = self.prefix(&order, &chain)?;
        let own = Arc::new(Source {
            level: CLUSTER.into(),
            object: cluster.clone(),
        });
        let upper = layer(&own, &spec.values, order.cluster.as_ref())?;
        let values = over(&order, &above.values, &above.locks, &upper)?;
        let asked = Promise {
            order: order.clone(),
            rank: None,
            source: own.clone(),
            own: upper,
            values: values.clone(),
        };
        let promises = asked.now_or_later(&above.promises)?;
        let mut levels = above.levels.clone();
        levels.push(own.clone());
        let template = match &spec.template {
            Some(template) => Some((template.clone(), own.clone())),
            None => above.template.clone(),
        };
        let template = self.template(&own, template)?;
        if let Some(schema) = &template.schema {
            schema.check(&values, &own)?;
        }
        Ok(Resolved {
            cluster: cluster.clone(),
            facts: facts(&own, &levels),
            levels,
            values,
            template,
            changed: self.changed.get(&name).cloned(),
            promises,
        })
    }

    /// What a cluster is rendered from. None: something that it names is not there, or too much.
    pub(crate) fn inputs(&self, cluster: &Object) -> Option<Inputs> {
        let name = (cluster.namespace.clone(), cluster.name.clone());
        let spec = self.clusters.get(&name)?;
        let named = Named {
            namespace: cluster.namespace.clone(),
            hierarchy: spec.hierarchy.clone(),
            parents: spec.parents.clone(),
            template: spec.template.clone(),
        };
        Some(Inputs {
            cluster: spec.clone(),
            changed: self.changed.get(&name).cloned(),
            read: self.reads_once(named, || self.reads(cluster, spec))?,
        })
    }

    /// The objects that a cluster reads, which follow from what it names alone.
    fn reads(&self, cluster: &Object, spec: &FleetClusterSpec) -> Option<Reads> {
        let namespace = &cluster.namespace;
        let order = self.order(cluster, spec).ok()?;
        let chain = self.chain(cluster, spec, &order).ok()?;
        let levels = chain.iter();
        let levels: Vec<_> = levels
            .filter_map(|(rank, name)| self.layer(namespace, &order, *rank, name))
            .collect();
        let mut strongest_first = levels.iter().rev();
        let template = spec.template.as_ref();
        let template = template
            .or_else(|| strongest_first.find_map(|layer| layer.settings.template.as_ref()))?;
        let template = self.templates.get(&(namespace.clone(), template.clone()))?;
        let read = levels.iter().map(|layer| &layer.object);
        let read = [&order.object, &template.source.object]
            .into_iter()
            .chain(read);
        let read = read.map(|object| (object.clone(), self.contents.get(object).cloned()));
        Some(read.collect())
    }

    fn order(&self, cluster: &Object, spec: &FleetClusterSpec) -> Result<Arc<Order>, Vec<Problem>> {
        let namespace = &cluster.namespace;
        let orders: Vec<_> = self
            .orders
            .iter()
            .filter(|((held, _), _)| held == namespace)
            .collect();
        let named = |wanted: &str| orders.iter().find(|((_, name), _)| name == wanted);
        let problem = |rule| {
            vec![Problem {
                object: cluster.clone(),
                level: Some(CLUSTER.into()),
                path: field(&["spec", "hierarchy"]),
                rule,
            }]
        };
        let found = match (&spec.hierarchy, orders.as_slice()) {
            (Some(wanted), _) => named(wanted).ok_or_else(|| {
                problem(Rule::NotThere {
                    wanted: format!("Hierarchy {wanted}"),
                    there: some(orders.iter().map(|((_, name), _)| name)),
                })
            })?,
            (None, []) => return Ok(Arc::new(Order::usual(namespace))),
            (None, [only]) => only,
            (None, _) => named("default").ok_or_else(|| {
                problem(Rule::Order {
                    what:
                        "is not set, and the namespace has several, none of which is named default"
                            .into(),
                    remedy: "name the Hierarchy",
                })
            })?,
        };
        Ok(found.1.clone())
    }

    /// The objects that a cluster and its parents name, by level.
    fn chain(
        &self,
        cluster: &Object,
        spec: &FleetClusterSpec,
        order: &Order,
    ) -> Result<Vec<(usize, String)>, Vec<Problem>> {
        let mut chosen: BTreeMap<usize, (String, Object)> = BTreeMap::new();
        let mut problems = Vec::new();
        let mut open = VecDeque::from([(None, cluster.clone(), &spec.parents)]);
        while let Some((rank, by, parents)) = open.pop_front() {
            for (level, name) in parents {
                let problem = |rule| Problem {
                    object: by.clone(),
                    level: Some(
                        rank.map_or_else(|| CLUSTER.into(), |rank| level_name(order, rank)),
                    ),
                    path: field(&["spec", "parents", level]),
                    rule,
                };
                let Some(above) = order.rank(level) else {
                    problems.push(problem(Rule::NotThere {
                        wanted: format!("the level {level} of {}", order.object),
                        there: order.names(),
                    }));
                    continue;
                };
                let Some(parent) = self.layer(&cluster.namespace, order, above, name) else {
                    problems.push(problem(Rule::NotThere {
                        wanted: format!("{name} of level {level}"),
                        there: self.names(&cluster.namespace, order, above),
                    }));
                    continue;
                };
                if let Some(own) = rank.filter(|own| above >= *own) {
                    problems.push(problem(Rule::NotAbove {
                        parent: parent.object.to_string(),
                        parent_level: level.clone(),
                        level: level_name(order, own),
                        cycle: self.cycle(&cluster.namespace, order, &by, parent),
                    }));
                    continue;
                }
                match chosen.get(&above) {
                    Some((held, _)) if held == name => {}
                    Some((held, by_held)) => problems.push(problem(Rule::TwoOfOneLevel {
                        level: level.clone(),
                        one: held.clone(),
                        by_one: by_held.to_string(),
                        other: name.clone(),
                        by_other: by.to_string(),
                    })),
                    None => {
                        chosen.insert(above, (name.clone(), by.clone()));
                        open.push_back((
                            Some(above),
                            parent.object.clone(),
                            &parent.settings.parents,
                        ));
                    }
                }
            }
        }
        for (rank, place) in order.levels.iter().enumerate() {
            // Where a reference fails, what it would bring is not missing as well.
            if place.presence == Presence::Required
                && !chosen.contains_key(&rank)
                && problems.is_empty()
            {
                problems.push(Problem {
                    object: cluster.clone(),
                    level: Some(CLUSTER.into()),
                    path: field(&["spec", "parents"]),
                    rule: Rule::MissingLevel {
                        missing: place.name.clone(),
                        hierarchy: order.object.name.clone(),
                    },
                });
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let chosen = chosen.into_iter();
        Ok(chosen.map(|(rank, (name, _))| (rank, name)).collect())
    }

    fn layer(&self, namespace: &str, order: &Order, rank: usize, name: &str) -> Option<&Layer> {
        let slot = order.levels.get(rank)?.slot.clone();
        self.layers.get(&(namespace.into(), slot, name.into()))
    }

    fn names(&self, namespace: &str, order: &Order, rank: usize) -> Vec<String> {
        let slot = order.levels.get(rank).map(|place| &place.slot);
        let held = self
            .layers
            .keys()
            .filter(|(ns, held, _)| ns == namespace && Some(held) == slot);
        some(held.map(|(_, _, name)| name))
    }

    /// The way from a parent back to who names it, if there is one.
    fn cycle(&self, namespace: &str, order: &Order, by: &Object, parent: &Layer) -> Vec<String> {
        let mut ways = VecDeque::from([vec![&parent.object]]);
        let mut seen = vec![&parent.object];
        while let Some(way) = ways.pop_front() {
            let Some(last) = way.last() else { continue };
            if *last == by {
                let back = std::iter::once(by).chain(way.iter().copied());
                return back.map(ToString::to_string).collect();
            }
            let held = self
                .layers
                .iter()
                .find(|(key, layer)| key.0 == namespace && layer.object == **last);
            for (level, name) in held.iter().flat_map(|(_, layer)| &layer.settings.parents) {
                let next = order
                    .rank(level)
                    .and_then(|rank| self.layer(namespace, order, rank, name));
                if let Some(next) = next.filter(|next| !seen.contains(&&next.object)) {
                    seen.push(&next.object);
                    let mut longer = way.clone();
                    longer.push(&next.object);
                    ways.push_back(longer);
                }
            }
        }
        Vec::new()
    }

    /// What the levels come to, each sequence of them once.
    fn prefix(
        &self,
        order: &Arc<Order>,
        chain: &[(usize, String)],
    ) -> Result<Arc<Prefix>, Vec<Problem>> {
        let namespace = &order.object.namespace;
        let objects: Vec<_> = chain
            .iter()
            .filter_map(|(rank, name)| self.layer(namespace, order, *rank, name))
            .map(|layer| layer.object.clone())
            .collect();
        let hierarchy: Name = (namespace.clone(), order.object.name.clone());
        let key = (hierarchy, objects);
        if let Some(known) = self.remembered(&key) {
            return known;
        }
        let prefix = match chain.split_last() {
            None => Ok(Arc::new(Prefix {
                values: nothing(&order.object),
                locks: Vec::new(),
                levels: Vec::new(),
                template: None,
                promises: Vec::new(),
            })),
            Some(((rank, name), weaker)) => self
                .prefix(order, weaker)
                .and_then(|weaker| self.longer(order, &weaker, *rank, name)),
        };
        self.remember(key, &prefix);
        prefix
    }

    fn longer(
        &self,
        order: &Arc<Order>,
        weaker: &Prefix,
        rank: usize,
        name: &str,
    ) -> Result<Arc<Prefix>, Vec<Problem>> {
        let (Some(held), Some(place)) = (
            self.layer(&order.object.namespace, order, rank, name),
            order.levels.get(rank),
        ) else {
            return Ok(Arc::new(Prefix {
                values: weaker.values.clone(),
                locks: weaker.locks.clone(),
                levels: weaker.levels.clone(),
                template: weaker.template.clone(),
                promises: weaker.promises.clone(),
            }));
        };
        let source = Arc::new(Source {
            level: place.name.clone(),
            object: held.object.clone(),
        });
        let upper = layer(&source, &held.settings.values, place.schema.as_ref())?;
        let values = over(order, &weaker.values, &weaker.locks, &upper)?;
        let asked = Promise {
            order: order.clone(),
            rank: Some(rank),
            source: source.clone(),
            own: upper,
            values: values.clone(),
        };
        let promises = asked.now_or_later(&weaker.promises)?;
        let mut locks = weaker.locks.clone();
        locks.extend(held.settings.locks.iter().map(|path| Lock {
            path: path.clone(),
            by: source.clone(),
        }));
        let mut levels = weaker.levels.clone();
        levels.push(source.clone());
        let own = held.settings.template.clone();
        Ok(Arc::new(Prefix {
            values,
            locks,
            levels,
            template: own
                .map(|template| (template, source))
                .or_else(|| weaker.template.clone()),
            promises,
        }))
    }

    fn template(
        &self,
        cluster: &Arc<Source>,
        wanted: Option<(String, Arc<Source>)>,
    ) -> Result<Arc<Compiled>, Vec<Problem>> {
        let namespace = &cluster.object.namespace;
        let Some((name, source)) = wanted else {
            return Err(vec![cluster.problem(
                field(&["spec", "template"]),
                Rule::Order {
                    what: "is not set, nor does a level above name a ClusterTemplate".into(),
                    remedy: "name one here or at a level above",
                },
            )]);
        };
        let found = self.templates.get(&(namespace.clone(), name.clone()));
        found.cloned().ok_or_else(|| {
            let held = self.templates.keys().filter(|(ns, _)| ns == namespace);
            vec![source.problem(
                field(&["spec", "template"]),
                Rule::NotThere {
                    wanted: format!("ClusterTemplate {name}"),
                    there: some(held.map(|(_, name)| name)),
                },
            )]
        })
    }
}

/// The tree of one object's values, checked against the schema of its level.
fn layer(
    source: &Arc<Source>,
    values: &serde_json::Map<String, serde_json::Value>,
    schema: Option<&crate::schema::Schema>,
) -> Result<Arc<Tree>, Vec<Problem>> {
    let at = field(&["spec", "values"]);
    if let Some(taken) = RESERVED.iter().find(|name| values.contains_key(**name)) {
        let rule = Rule::Reserved {
            what: format!("{taken} is a name that templates have already"),
            remedy: "call the value otherwise",
        };
        return Err(vec![source.problem(at.key(taken), rule)]);
    }
    let tree = Tree::read(source, &at, values).map_err(|problem| vec![problem])?;
    if let Some(schema) = schema {
        schema.check(&tree, source)?;
    }
    Ok(tree)
}

/// Merges a level over the weaker ones, whose locks hold.
fn over(
    order: &Order,
    lower: &Arc<Tree>,
    locks: &[Lock],
    upper: &Arc<Tree>,
) -> Result<Arc<Tree>, Vec<Problem>> {
    let broken: Vec<_> = locks
        .iter()
        .filter_map(|lock| touched(upper, &lock.path.0).map(|tree| locked(lock, tree)))
        .collect();
    if !broken.is_empty() {
        return Err(broken);
    }
    let merged = merge(&order.merges, lower, upper).map_err(|problem| vec![problem])?;
    // A strategy may replace a locked value without naming it.
    let lost: Vec<_> = locks
        .iter()
        .filter(|lock| !is_kept(lower, &merged, &lock.path.0))
        .map(|lock| locked(lock, upper))
        .collect();
    if lost.is_empty() {
        Ok(merged)
    } else {
        Err(lost)
    }
}

fn locked(lock: &Lock, tree: &Tree) -> Problem {
    let origin = &tree.origin;
    origin.source.problem(
        ValuePath::clone(&origin.at),
        Rule::Locked {
            by: format!("{} (level {})", lock.by.object, lock.by.level),
            lock: lock.path.to_string(),
        },
    )
}

/// What a level sets at or below a path, or in place of something above it.
fn touched<'a>(tree: &'a Arc<Tree>, path: &[Segment]) -> Option<&'a Arc<Tree>> {
    match (path.split_first(), &tree.shape) {
        (Some((step, rest)), Shape::Map(_)) => touched(tree.child(step)?, rest),
        _ => Some(tree),
    }
}

fn is_kept(lower: &Arc<Tree>, merged: &Arc<Tree>, path: &[Segment]) -> bool {
    match (lower.at(path), merged.at(path)) {
        (Some(before), Some(after)) => before.is_same(after),
        (None, None) => true,
        _ => false,
    }
}

/// What templates may say of the cluster itself.
fn facts(own: &Arc<Source>, levels: &[Arc<Source>]) -> Arc<Tree> {
    let name = |source: &Arc<Source>| fact(source, "name", &source.object.name);
    let cluster = map(
        own,
        [
            ("name", name(own)),
            ("namespace", fact(own, "namespace", &own.object.namespace)),
        ],
    );
    let of_levels = levels.iter().filter(|source| source.level != CLUSTER);
    let of_levels: Vec<_> = of_levels
        .map(|source| (source.level.as_str(), map(source, [("name", name(source))])))
        .collect();
    map(own, [("cluster", cluster), ("levels", map(own, of_levels))])
}

fn fact(source: &Arc<Source>, key: &str, text: &str) -> Arc<Tree> {
    let leaf = crate::tree::Leaf::Plain(text.into());
    Tree::new(source, field(&["metadata", key]), Shape::Leaf(leaf))
}

fn map<'a>(
    source: &Arc<Source>,
    parts: impl IntoIterator<Item = (&'a str, Arc<Tree>)>,
) -> Arc<Tree> {
    let parts = parts
        .into_iter()
        .map(|(key, tree)| (Arc::from(key), tree))
        .collect();
    Tree::new(source, field(&["metadata"]), Shape::Map(parts))
}

fn nothing(hierarchy: &Object) -> Arc<Tree> {
    let source = Arc::new(Source {
        level: String::new(),
        object: hierarchy.clone(),
    });
    Tree::new(&source, ValuePath::default(), Shape::Map(BTreeMap::new()))
}

fn level_name(order: &Order, rank: usize) -> String {
    let place = order.levels.get(rank);
    place.map(|place| place.name.clone()).unwrap_or_default()
}

/// The first of many names.
fn some<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    names.take(10).cloned().collect()
}

/// Names that templates have beside the values.
const RESERVED: [&str; 4] = ["cluster", "levels", "omit", "key"];
