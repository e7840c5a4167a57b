//! An inventory of existing clusters, which renders to exactly what they are: of kubespray here, of Cluster API in [`cluster_api`].
//!
//! A value stands at the strongest level at which all clusters that have it in common agree: an object of a level says what everything
//! below it shares, and nothing of a level moves up that has one object below it alone. What is true of one cluster only never moves up,
//! whoever else says the same: its name, its hosts, and the annotations that say how far it has come. Of a level they would be those of
//! clusters to come, too. What was found is rendered again and compared before it is handed out, so what cannot be said by an inventory
//! is refused, not changed.

mod bare;
pub mod cluster_api;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use api::inventory::{GROUP, ValuePath};
use serde_json::{Map, Value, json};

use crate::{
    diff::{self, Change},
    fleet::{Fleet, field},
    problem::{Object, Problem, Problems, Rule},
};

/// Where a level is read from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Level {
    /// The level.
    pub kind: Kind,
    /// The label of a Cluster whose value names the level's object; none: one object for all, [`ALL`].
    pub label: Option<String>,
}

/// The levels that an import knows, the weakest first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// The environment.
    Environment,
    /// The customer.
    Customer,
    /// The site.
    Site,
    /// The infra provider.
    InfraProvider,
}

impl Kind {
    /// Its name as a level.
    pub const fn level(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Customer => "customer",
            Self::Site => "site",
            Self::InfraProvider => "infraProvider",
        }
    }

    /// The kind of its objects.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Environment => "Environment",
            Self::Customer => "Customer",
            Self::Site => "Site",
            Self::InfraProvider => "InfraProvider",
        }
    }
}

/// The object of a level without a label.
pub const ALL: &str = "imported";

/// The inventory of the Clusters and `ClusterNode`s among these objects, for one namespace; none of them: no object. Other objects are
/// left alone. Without a level there is one site.
///
/// # Errors
/// Clusters that contradict each other, and what an inventory cannot say.
pub fn import(objects: &[Value], levels: &[Level]) -> Result<Vec<Value>, Problems> {
    let levels = ordered(levels);
    let is_ours = |object: &Object, value: &Value| {
        value["apiVersion"] == API_VERSION
            && matches!(object.kind.as_str(), "Cluster" | "ClusterNode")
    };
    let bare = bare::bare(objects, is_ours).map_err(Problems)?;
    let clusters = clusters(&bare, &levels).map_err(Problems)?;
    inventory(clusters, &levels, &bare, (TEMPLATE, template()))
}

/// The levels, the weakest first.
fn ordered(levels: &[Level]) -> Vec<Level> {
    let mut levels = levels.to_vec();
    levels.sort_by_key(|level| level.kind);
    if levels.is_empty() {
        levels.push(Level {
            kind: Kind::Site,
            label: None,
        });
    }
    levels
}

/// The inventory of clusters, whose objects one template renders.
fn inventory(
    mut clusters: Vec<Cluster<'_>>,
    levels: &[Level],
    bare: &BTreeMap<Object, Value>,
    (name, template): (&str, Value),
) -> Result<Vec<Value>, Problems> {
    if clusters.is_empty() {
        return Ok(Vec::new());
    }
    let mut inventory = vec![
        object(
            "Hierarchy",
            "default",
            json!({"levels": levels.iter().map(|level| json!({"name": level.kind.level(), "kind": level.kind.kind()})).collect::<Vec<_>>()}),
        ),
        object("ClusterTemplate", name, template),
    ];
    for place in 0..levels.len() {
        inventory.extend(settle(&mut clusters, levels, place, name));
    }
    for cluster in &clusters {
        let parent = levels.last().zip(cluster.places.last());
        let parents: BTreeMap<_, _> = parent
            .map(|(level, name)| (level.kind.level(), name))
            .into_iter()
            .collect();
        let spec = json!({"parents": parents, "values": cluster.says()});
        inventory.push(object("FleetCluster", &cluster.name, spec));
    }
    same(bare, &inventory)?;
    Ok(inventory)
}

/// A cluster on its way into an inventory.
struct Cluster<'a> {
    /// The Cluster.
    object: &'a Object,
    /// The name of its `FleetCluster`.
    name: String,
    /// The object of each level that it belongs to.
    places: Vec<String>,
    /// What no level has taken yet.
    values: Value,
    /// What no level may take.
    own: Map<String, Value>,
    /// The annotations that no level may take.
    state: Map<String, Value>,
}

impl Cluster<'_> {
    /// The values of its `FleetCluster`, once the levels have taken theirs.
    fn says(&self) -> Value {
        let mut values = self.values.as_object().cloned().unwrap_or_default();
        values.extend(self.own.clone());
        if !self.state.is_empty() {
            let annotations = values.entry("annotations").or_insert_with(|| json!({}));
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.extend(self.state.clone());
            }
        }
        values.into()
    }
}

/// The clusters, each with all of its values; each namespace has one.
fn clusters<'a>(
    bare: &'a BTreeMap<Object, Value>,
    levels: &[Level],
) -> Result<Vec<Cluster<'a>>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut by_namespace = BTreeMap::<&str, (&Object, &Value)>::new();
    let mut named = BTreeMap::<&str, usize>::new();
    for (object, value) in bare.iter().filter(|(object, _)| object.kind == "Cluster") {
        *named.entry(&object.name).or_default() += 1;
        let held = by_namespace.insert(&object.namespace, (object, value));
        if let Some((other, _)) = held {
            let what = format!(
                "stands in one namespace with {other}, so nobody knows whose the ClusterNodes there are"
            );
            let remedy = "move one of the two to a namespace of its own, or leave it out";
            let rule = Rule::Contradiction { what, remedy };
            problems.push(problem(
                object,
                Some("cluster"),
                field(&["metadata", "namespace"]),
                rule,
            ));
        }
    }
    let mut clusters = BTreeMap::new();
    for (namespace, (object, value)) in &by_namespace {
        let (name, own) = called(object, named.get(object.name.as_str()) == Some(&1));
        let mut values = parts(value);
        let state = state(&mut values);
        let places = places(object, value, levels, &mut problems);
        let cluster = Cluster {
            object,
            name,
            places,
            values,
            own,
            state,
        };
        clusters.insert(*namespace, (cluster, Map::new()));
    }
    for (object, value) in bare
        .iter()
        .filter(|(object, _)| object.kind == "ClusterNode")
    {
        if let Some((_, nodes)) = clusters.get_mut(object.namespace.as_str()) {
            nodes.insert(object.name.clone(), parts(value));
        } else {
            let what = "is of a namespace that has no Cluster, so of no cluster".to_owned();
            let remedy = "import its Cluster with it, or leave it out";
            let rule = Rule::Contradiction { what, remedy };
            problems.push(problem(
                object,
                None,
                field(&["metadata", "namespace"]),
                rule,
            ));
        }
    }
    let clusters = clusters.into_values().map(|(mut cluster, nodes)| {
        cluster.own.insert("nodes".into(), nodes.into());
        cluster
    });
    let clusters: Vec<_> = clusters.collect();
    agree(&clusters, levels, &mut problems);
    twice(&clusters, &mut problems);
    if problems.is_empty() {
        Ok(clusters)
    } else {
        Err(problems)
    }
}

/// The name of a cluster's `FleetCluster`, and the values that say what the cluster itself is called.
fn called(object: &Object, is_only_one: bool) -> (String, Map<String, Value>) {
    let mut own = Map::from_iter([("namespace".to_owned(), json!(object.namespace))]);
    if is_only_one {
        return (object.name.clone(), own);
    }
    own.insert("name".into(), json!(object.name));
    (format!("{}-{}", object.namespace, object.name), own)
}

/// What people say in an object, as values.
fn parts(value: &Value) -> Value {
    let mut parts = Map::new();
    for (key, part) in [
        ("spec", value.get("spec")),
        ("labels", value["metadata"].get("labels")),
        ("annotations", value["metadata"].get("annotations")),
    ] {
        parts.extend(part.map(|part| (key.to_owned(), part.clone())));
    }
    parts.into()
}

/// Takes out of a cluster's values the annotations that say how far it has come.
fn state(values: &mut Value) -> Map<String, Value> {
    let Some(Value::Object(annotations)) = values.get_mut("annotations") else {
        return Map::new();
    };
    let all = mem::take(annotations).into_iter();
    let (state, others): (_, Map<_, _>) = all.partition(|(name, _)| bare::is_state(name));
    if let Some(values) = values.as_object_mut() {
        values.remove("annotations");
        if !others.is_empty() {
            values.insert("annotations".into(), others.into());
        }
    }
    state
}

/// The object of each level that a Cluster says it belongs to.
fn places(
    object: &Object,
    value: &Value,
    levels: &[Level],
    problems: &mut Vec<Problem>,
) -> Vec<String> {
    let mut places = Vec::new();
    for level in levels {
        let Some(label) = &level.label else {
            places.push(ALL.to_owned());
            continue;
        };
        let name = value["metadata"]["labels"][label].as_str();
        let name = name.unwrap_or_default();
        if !is_name(name) {
            let rule = Rule::Unplaced {
                level: level.kind.level(),
                label: label.clone(),
            };
            let at = field(&["metadata", "labels", label]);
            problems.push(problem(object, Some(level.kind.level()), at, rule));
        }
        places.push(name.to_owned());
    }
    places
}

fn is_name(text: &str) -> bool {
    let is_end = |byte: Option<u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let mut bytes = text.bytes();
    is_end(bytes.next())
        && is_end(text.bytes().last())
        && bytes.all(|byte| is_end(Some(byte)) || byte == b'-')
}

/// Who belongs to an object belongs to its parent too: all clusters must say the same one.
fn agree(clusters: &[Cluster<'_>], levels: &[Level], problems: &mut Vec<Problem>) {
    for (place, pair) in levels.windows(2).enumerate() {
        let [above, level] = pair else { continue };
        let mut said = BTreeMap::<&str, (&str, &Object)>::new();
        for cluster in clusters {
            let [parent, name] = &cluster.places[place..=place + 1] else {
                continue;
            };
            let (first, by) = *said.entry(name).or_insert((parent, cluster.object));
            if first == parent {
                continue;
            }
            let (above, level) = (above, level.kind.level());
            let what = format!(
                "says that the {level} {name} belongs to the {} {parent}, and {by} that it belongs to {first}",
                above.kind.level()
            );
            let remedy =
                "correct the label of one of the two, or give each its own name for the level";
            let rule = Rule::Contradiction { what, remedy };
            let label = above.label.as_deref().unwrap_or_default();
            let at = field(&["metadata", "labels", label]);
            problems.push(problem(cluster.object, Some(level), at, rule));
        }
    }
}

/// Names of `FleetCluster`s that came out the same.
fn twice(clusters: &[Cluster<'_>], problems: &mut Vec<Problem>) {
    let mut names = BTreeMap::<&str, &Object>::new();
    for cluster in clusters {
        if let Some(other) = names.insert(&cluster.name, cluster.object) {
            let what = format!(
                "and {other} would both be the FleetCluster {}",
                cluster.name
            );
            let remedy = "import one of the two into an inventory of its own";
            let rule = Rule::Contradiction { what, remedy };
            problems.push(problem(
                cluster.object,
                Some("cluster"),
                field(&["metadata", "name"]),
                rule,
            ));
        }
    }
}

/// The objects of a level, which take from their clusters what all of these have in common.
fn settle(
    clusters: &mut [Cluster<'_>],
    levels: &[Level],
    place: usize,
    template: &str,
) -> Vec<Value> {
    let mut groups = BTreeMap::<String, Vec<&mut Cluster<'_>>>::new();
    for cluster in clusters {
        let name = cluster.places[place].clone();
        groups.entry(name).or_default().push(cluster);
    }
    let mut objects = Vec::new();
    for (name, mut members) in groups {
        let below: BTreeSet<_> = members
            .iter()
            .map(|member| member.places.get(place + 1).unwrap_or(&member.name))
            .collect();
        let all = members.iter().map(|member| member.values.clone());
        let shared = (below.len() > 1)
            .then(|| all.reduce(|one, other| common(&one, &other).unwrap_or_else(|| json!({}))))
            .flatten()
            .unwrap_or_else(|| json!({}));
        for member in &mut members {
            member.values = rest(&member.values, &shared).unwrap_or_else(|| json!({}));
        }
        let mut spec = json!({"values": shared});
        if place == 0 {
            spec["template"] = json!(template);
        } else if let Some(member) = members.first() {
            let parent = levels[place - 1].kind.level();
            spec["parents"] = json!({parent: member.places[place - 1]});
        }
        objects.push(object(levels[place].kind.kind(), &name, spec));
    }
    objects
}

/// What two values have in common, so that either is that and what is its own.
fn common(one: &Value, other: &Value) -> Option<Value> {
    if one == other {
        return Some(one.clone());
    }
    let (Some(left), Some(right)) = (map(one), map(other)) else {
        return None;
    };
    let shared = left.iter().filter_map(|(key, value)| {
        let value = common(value, right.get(key)?)?;
        Some((key.clone(), value))
    });
    let shared: Map<_, _> = shared.collect();
    (!shared.is_empty()).then(|| shared.into())
}

/// What is left of a value without what it has in common with others.
fn rest(own: &Value, shared: &Value) -> Option<Value> {
    if own == shared {
        return None;
    }
    let (Some(own), Some(shared)) = (map(own), map(shared)) else {
        return Some(own.clone());
    };
    let rest = own.iter().filter_map(|(key, value)| {
        let value = match shared.get(key) {
            Some(shared) => rest(value, shared)?,
            None => value.clone(),
        };
        Some((key.clone(), value))
    });
    let rest: Map<_, _> = rest.collect();
    (!rest.is_empty()).then(|| rest.into())
}

/// A map that may be taken apart: a part of one of the reserved forms would be another thing.
fn map(value: &Value) -> Option<&Map<String, Value>> {
    let map = value.as_object()?;
    let is_whole = ["secretKeyRef", "vault"]
        .iter()
        .any(|key| map.contains_key(*key));
    (!is_whole).then_some(map)
}

/// Renders what was found, and refuses it if that is anything else than what there was.
fn same(bare: &BTreeMap<Object, Value>, inventory: &[Value]) -> Result<(), Problems> {
    let mut rendered = Vec::new();
    let fleet = Fleet::read(inventory.iter().cloned(), "default")?;
    fleet.render_all(|cluster| rendered.extend(cluster.objects()))?;
    let wanted: Vec<_> = bare.values().cloned().collect();
    let changes = diff::between(&wanted, &rendered);
    let problems = changes.into_iter().map(|change| {
        let leaf = change.leaves.first();
        let path = leaf.and_then(|leaf| leaf.path.parse().ok());
        let what = match change.change {
            Change::Added => "would be rendered beside what there is",
            Change::Removed => "would not be rendered",
            Change::Changed => "would be rendered to another value",
        };
        let rule = Rule::Rendered {
            what: what.to_owned(),
            remedy: "leave the cluster out, and say that this happened: it is a defect of the import",
        };
        problem(&change.object, None, path.unwrap_or_default(), rule)
    });
    let problems: Vec<_> = problems.collect();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Problems(problems))
    }
}

fn problem(object: &Object, level: Option<&str>, path: ValuePath, rule: Rule) -> Problem {
    Problem {
        object: object.clone(),
        level: level.map(ToOwned::to_owned),
        path,
        rule,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is written in place")]
fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1alpha1"), "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Gives back the objects as the values have them.
fn template() -> Value {
    let metadata = |of: &str, name: &str| {
        json!({
            "name": name, "namespace": "{{ namespace }}",
            "labels": format!("{{{{ {of}labels | default(omit) }}}}"),
            "annotations": format!("{{{{ {of}annotations | default(omit) }}}}"),
        })
    };
    json!({"backEnd": "Kubespray", "documents": [
        {"object": {
            "apiVersion": API_VERSION, "kind": "Cluster",
            "metadata": metadata("", "{{ name | default(cluster.name) }}"),
            "spec": "{{ spec | default(omit) }}",
        }},
        {"forEach": {"values": "nodes", "as": "node"}, "object": {
            "apiVersion": API_VERSION, "kind": "ClusterNode",
            "metadata": metadata("node.", "{{ key }}"),
            "spec": "{{ node.spec | default(omit) }}",
        }},
    ]})
}

const API_VERSION: &str = "kubespray.k8s.io/v1";
/// The `ClusterTemplate` of what was imported.
const TEMPLATE: &str = "kubespray";
