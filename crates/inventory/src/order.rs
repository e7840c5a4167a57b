//! Which levels there are, in which order.

use api::inventory::{HierarchySpec, LevelKind, MergeRule, Presence, Strategy};
use serde_json::{Map, Value};

use crate::{
    fleet::{Slot, field},
    problem::{Object, Problem, Rule},
    rules::Rules,
    schema::Schema,
};

/// A Hierarchy that does not contradict itself.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) object: Object,
    /// The weakest first.
    pub(crate) levels: Vec<Place>,
    pub(crate) merges: Vec<MergeRule>,
    /// What clusters may set.
    pub(crate) cluster: Option<Schema>,
    /// What must hold of clusters.
    pub(crate) cluster_rules: Rules,
}

/// A level.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) slot: Slot,
    pub(crate) presence: Presence,
    pub(crate) schema: Option<Schema>,
    pub(crate) rules: Rules,
}

/// The name of the last level.
pub(crate) const CLUSTER: &str = "cluster";

impl Order {
    /// Checks a Hierarchy.
    pub(crate) fn read(object: &Object, spec: HierarchySpec) -> Result<Self, Problem> {
        let HierarchySpec {
            levels,
            cluster,
            merges,
        } = spec;
        let fails = |path: &[&str], what: String, remedy| Problem {
            object: object.clone(),
            level: None,
            path: field(path),
            rule: Rule::Order { what, remedy },
        };
        if levels.is_empty() {
            let what = "has no levels".to_owned();
            return Err(fails(&["spec", "levels"], what, "write one at least"));
        }
        let mut places: Vec<Place> = Vec::new();
        for level in levels {
            let slot = match level.kind {
                LevelKind::ConfigMap => Slot::Label(level.name.clone()),
                kind => Slot::Kind(kind),
            };
            let name = level.name;
            if name == CLUSTER
                || places
                    .iter()
                    .any(|place| place.name == name || place.slot == slot)
            {
                return Err(fails(
                    &["spec", "levels", &name],
                    format!("has the level {name} or its kind twice, or calls a level {CLUSTER}"),
                    "give each level a name and a kind of its own; only ConfigMap may be the kind of several, and the cluster is always \
                     the last",
                ));
            }
            let schema = schema(object, &["spec", "levels", &name, "schema"], level.schema)?;
            let rules = Rules::read(object, &["spec", "levels", &name, "rules"], level.rules)?;
            places.push(Place {
                name,
                slot,
                presence: level.presence.unwrap_or_default(),
                schema,
                rules,
            });
        }
        for rule in &merges {
            if let Some(what) = contradiction(rule) {
                let path = rule.path.to_string();
                return Err(fails(
                    &["spec", "merges", &path],
                    what.into(),
                    "mend the rule",
                ));
            }
        }
        let cluster = cluster.unwrap_or_default();
        Ok(Self {
            object: object.clone(),
            levels: places,
            merges,
            cluster: schema(object, &["spec", "cluster", "schema"], cluster.schema)?,
            cluster_rules: Rules::read(object, &["spec", "cluster", "rules"], cluster.rules)?,
        })
    }

    /// The levels where a namespace has no Hierarchy.
    pub(crate) fn usual(namespace: &str) -> Self {
        let place = |name: &str, kind| Place {
            name: name.into(),
            slot: Slot::Kind(kind),
            presence: Presence::Required,
            schema: None,
            rules: Rules::default(),
        };
        Self {
            object: Object {
                kind: "Hierarchy".into(),
                namespace: namespace.into(),
                name: "(built in)".into(),
            },
            levels: vec![
                place("environment", LevelKind::Environment),
                place("customer", LevelKind::Customer),
                place("site", LevelKind::Site),
                place("infraProvider", LevelKind::InfraProvider),
            ],
            merges: Vec::new(),
            cluster: None,
            cluster_rules: Rules::default(),
        }
    }

    /// What is asked of the values of a level; none: of clusters.
    pub(crate) fn asks(&self, rank: Option<usize>) -> (Option<&Schema>, &Rules) {
        match rank.and_then(|rank| self.levels.get(rank)) {
            Some(place) => (place.schema.as_ref(), &place.rules),
            None => (self.cluster.as_ref(), &self.cluster_rules),
        }
    }

    pub(crate) fn rank(&self, level: &str) -> Option<usize> {
        self.levels.iter().position(|place| place.name == level)
    }

    /// The names of all levels.
    pub(crate) fn names(&self) -> Vec<String> {
        self.levels.iter().map(|place| place.name.clone()).collect()
    }
}

/// Reads a schema that a field of an object holds.
pub(crate) fn schema(
    object: &Object,
    path: &[&str],
    schema: Option<Map<String, Value>>,
) -> Result<Option<Schema>, Problem> {
    let Some(schema) = schema else {
        return Ok(None);
    };
    let name = format!("{object} {}", field(path));
    Schema::read(&name, &Value::Object(schema))
        .map(Some)
        .map_err(|what| Problem {
            object: object.clone(),
            level: None,
            path: field(path),
            rule: Rule::Order {
                what,
                remedy: "write type, properties, required, additionalProperties, items, enum, pattern, minimum, maximum, minLength, \
                         maxLength, minItems, maxItems and description only",
            },
        })
}

/// What may stand beside a strategy.
struct Takes {
    key: bool,
    lists: bool,
    knockout: bool,
}

impl Takes {
    const fn of(strategy: Strategy) -> Self {
        let (key, lists, knockout) = match strategy {
            Strategy::First | Strategy::Hash => (false, false, false),
            Strategy::Unique => (false, false, true),
            Strategy::Deep => (false, true, true),
            Strategy::ListByKey => (true, false, true),
        };
        Self {
            key,
            lists,
            knockout,
        }
    }
}

fn contradiction(rule: &MergeRule) -> Option<&'static str> {
    let takes = Takes::of(rule.strategy);
    if takes.key != rule.key.is_some() {
        return Some("key stands with the strategy ListByKey, and with no other");
    }
    if !takes.lists && rule.lists.is_some() {
        return Some("lists stands with the strategy Deep only");
    }
    if !takes.knockout && rule.knockout_prefix.is_some() {
        return Some("First and Hash have no knockoutPrefix");
    }
    if rule.knockout_prefix.as_deref() == Some("") {
        return Some("knockoutPrefix is empty, which would take out everything");
    }
    None
}
