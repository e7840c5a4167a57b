//! Ansible's group variables as levels: a group is a level, whose order is Ansible's precedence.
//!
//! Of the groups of a host the deeper one is the stronger, of equally deep ones that of the higher `ansible_group_priority`, of those the one
//! whose name comes later in the alphabet. Which groups a host inherits from follows from the parents of each object, as in Ansible from those
//! of each group.

use std::{collections::BTreeMap, fs, process::Command};

use inventory::Fleet;
use lab::command;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::trees::{self, Nulls};

/// Trees of groups.
const TREES: usize = 300;

/// A group.
#[derive(Clone, Debug)]
struct Group {
    /// Before its number, so that the order of names is another one than that in which groups are made.
    letter: char,
    priority: Option<u8>,
    values: Map<String, Value>,
    /// For each group before it, whether that is a parent.
    parents: Vec<bool>,
}

/// A host with the groups that it stands in.
#[derive(Clone, Debug)]
struct Host {
    values: Map<String, Value>,
    groups: Vec<bool>,
}

#[derive(Clone, Debug)]
struct Tree {
    groups: Vec<Group>,
    hosts: Vec<Host>,
}

/// How Ansible has variables that several groups set become one.
#[derive(Clone, Copy, Debug)]
enum Behaviour {
    Replace,
    Merge,
}

impl Behaviour {
    fn variable(self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::Merge => "merge",
        }
    }

    fn rules(self) -> Value {
        match self {
            Self::Replace => json!([{"path": "*", "strategy": "First"}]),
            // Deep with lists replaced, which is so without a rule.
            Self::Merge => json!([]),
        }
    }
}

#[test]
fn groups_as_levels_give_hosts_what_ansible_gives_them() {
    for seed in crate::seeds() {
        eprintln!("WINDLASS_DIFFERENTIAL_SEED={seed}");
        let all = crate::random(&trees::map(1, Nulls::Some), seed, 1).remove(0);
        let trees = crate::random(&tree(), seed, TREES);
        for behaviour in [Behaviour::Replace, Behaviour::Merge] {
            let ansible = list(&inventory(&all, &trees), behaviour);
            let fleet = fleet(&all, &trees, behaviour);
            let mut differing = Vec::new();
            for (number, tree) in trees.iter().enumerate() {
                for at in 0..tree.hosts.len() {
                    let host = tree.host(number, at);
                    let ours = crate::values(&fleet, &host);
                    let theirs = ansible.get(&host).cloned().unwrap_or_else(|| json!({}));
                    if ours != theirs {
                        let told = format!(
                            "{behaviour:?} {host} of {tree:?} below {all:?}\n  ours {ours}\n  Ansible's {theirs}"
                        );
                        differing.push(told);
                    }
                }
            }
            crate::assert_none(differing);
        }
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let few = || prop::collection::vec(prop::bool::weighted(0.3), 7);
    let group = (
        prop::char::range('a', 'c'),
        prop::option::of(1..4_u8),
        trees::map(1, Nulls::Some),
        few(),
    );
    let group = group.prop_map(|(letter, priority, values, parents)| Group {
        letter,
        priority,
        values,
        parents,
    });
    let host =
        (trees::map(0, Nulls::Some), few()).prop_map(|(values, groups)| Host { values, groups });
    let groups = prop::collection::vec(group, 1..8);
    let hosts = prop::collection::vec(host, 1..4);
    (groups, hosts).prop_map(|(groups, hosts)| Tree { groups, hosts })
}

impl Tree {
    fn group(&self, number: usize, at: usize) -> String {
        format!("t{number}_{}{at}", self.groups[at].letter)
    }

    fn host(&self, number: usize, at: usize) -> String {
        format!("t{number}-h{at}-of-{}", self.hosts.len())
    }

    /// The groups above one, or those that a host stands in.
    fn above<'a>(&'a self, chosen: &'a [bool]) -> impl Iterator<Item = usize> + 'a {
        let chosen = chosen.iter().take(self.groups.len()).enumerate();
        chosen
            .filter(|(_, is_chosen)| **is_chosen)
            .map(|(at, _)| at)
    }

    fn parents(&self, at: usize) -> impl Iterator<Item = usize> {
        self.above(&self.groups[at].parents[..at])
    }

    /// How many groups stand above one at most; below `all` it is one.
    fn depth(&self, at: usize) -> usize {
        let above = self.parents(at).map(|parent| self.depth(parent));
        above.max().unwrap_or_default() + 1
    }

    /// Its groups, the weakest first.
    fn order(&self, number: usize) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.groups.len()).collect();
        order.sort_by_key(|at| {
            let priority = self.groups[*at].priority.unwrap_or(1);
            (self.depth(*at), priority, self.group(number, *at))
        });
        order
    }
}

/// All trees as an inventory of Ansible.
fn inventory(all: &Map<String, Value>, trees: &[Tree]) -> Value {
    let mut groups = BTreeMap::from([("all".to_owned(), json!({"vars": all, "hosts": {}}))]);
    for (number, tree) in trees.iter().enumerate() {
        for (at, group) in tree.groups.iter().enumerate() {
            let mut values = group.values.clone();
            let priority = group.priority.map(|priority| json!(priority));
            values.extend(priority.map(|priority| ("ansible_group_priority".to_owned(), priority)));
            let name = tree.group(number, at);
            groups.insert(name, json!({"vars": values, "hosts": {}, "children": {}}));
        }
        for at in 0..tree.groups.len() {
            for parent in tree.parents(at) {
                let parent = groups.get_mut(&tree.group(number, parent)).unwrap();
                parent["children"][tree.group(number, at)] = Value::Null;
            }
        }
        for (at, host) in tree.hosts.iter().enumerate() {
            let name = tree.host(number, at);
            groups.get_mut("all").unwrap()["hosts"][&name] = json!(host.values);
            for group in tree.above(&host.groups) {
                let group = groups.get_mut(&tree.group(number, group)).unwrap();
                group["hosts"][&name] = Value::Null;
            }
        }
    }
    json!(groups)
}

/// The same with levels. Each tree has a Hierarchy of its own, all have the group `all` in common.
fn fleet(all: &Map<String, Value>, trees: &[Tree], behaviour: Behaviour) -> Fleet {
    let mut objects = vec![crate::template(), level("all", &Map::new(), all)];
    for (number, tree) in trees.iter().enumerate() {
        let parents = |chosen: &mut dyn Iterator<Item = usize>| {
            let named = chosen.map(|at| tree.group(number, at));
            let named: Map<_, _> = named.map(|name| (name.clone(), json!(name))).collect();
            if named.is_empty() {
                return Map::from_iter([("all".to_owned(), json!("all"))]);
            }
            named
        };
        let groups = tree.order(number);
        let groups = groups.into_iter().map(|at| tree.group(number, at));
        let levels = std::iter::once("all".to_owned()).chain(groups);
        let levels =
            levels.map(|name| json!({"name": name, "kind": "ConfigMap", "presence": "Optional"}));
        let order = json!({"levels": levels.collect::<Vec<_>>(), "merges": behaviour.rules()});
        let hierarchy = format!("t{number}");
        objects.push(crate::object("Hierarchy", &hierarchy, order));
        for (at, group) in tree.groups.iter().enumerate() {
            let parents = parents(&mut tree.parents(at));
            objects.push(level(&tree.group(number, at), &parents, &group.values));
        }
        for (at, host) in tree.hosts.iter().enumerate() {
            let parents = parents(&mut tree.above(&host.groups));
            let spec = json!({"hierarchy": hierarchy, "parents": parents, "template": "t",
                "values": host.values});
            objects.push(crate::object("FleetCluster", &tree.host(number, at), spec));
        }
    }
    Fleet::read(objects, "default").unwrap()
}

/// A group as the one object of the level of its name.
fn level(name: &str, parents: &Map<String, Value>, values: &Map<String, Value>) -> Value {
    let labels = json!({"inventory.windlass.dev/level": name});
    let text = |map: &Map<String, Value>| Value::from(map.clone()).to_string();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels},
        "data": {"parents": text(parents), "values": text(values)}})
}

/// The variables of each host, by Ansible.
fn list(inventory: &Value, behaviour: Behaviour) -> Map<String, Value> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let sandbox = runtime.block_on(crate::environment::sandbox());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("inventory.json");
    fs::write(&file, inventory.to_string()).unwrap();
    let config = directory.path().join("ansible.cfg");
    fs::write(&config, "").unwrap();
    let mut listing = Command::new(sandbox.path.join("bin/ansible-inventory"));
    listing
        .args(["--list", "--inventory"])
        .arg(file)
        .current_dir(directory.path())
        .env("HOME", directory.path())
        .env("ANSIBLE_CONFIG", config)
        .env("ANSIBLE_INVENTORY_ENABLED", "yaml")
        .env("ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED", "1")
        .env("ANSIBLE_HASH_BEHAVIOUR", behaviour.variable());
    let printed = command::output(&mut listing).unwrap();
    let mut printed: Value = serde_json::from_str(&printed).unwrap();
    let hosts = printed["_meta"]["hostvars"].take();
    serde_json::from_value(hosts).unwrap()
}
