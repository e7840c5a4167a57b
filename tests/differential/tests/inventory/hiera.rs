//! `puppet lookup` of the same levels.
//!
//! A process looks up one key, whose value is made of all others by `alias`: Hiera merges each by the rule that `lookup_options` has
//! for it. So one start answers for all trees that one node has.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use inventory::Fleet;
use lab::{command, packages, progress::Terminal};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::trees::{self, Nulls};

/// Trees of each rule.
const TREES: usize = 1000;

/// The objects that say something, the weakest first: two clusters of two sites, of one environment and one customer.
const PLACES: [&str; 6] = [
    "environment",
    "customer",
    "site-0",
    "site-1",
    "cluster-0",
    "cluster-1",
];

/// How values become one: its name, here, and in Hiera.
struct Rule {
    name: &'static str,
    here: fn() -> Value,
    hiera: fn() -> Value,
}

const RULES: [Rule; 5] = [
    Rule {
        name: "first",
        here: || json!({"strategy": "First"}),
        hiera: || json!("first"),
    },
    Rule {
        name: "unique",
        here: || json!({"strategy": "Unique"}),
        hiera: || json!("unique"),
    },
    Rule {
        name: "hash",
        here: || json!({"strategy": "Hash"}),
        hiera: || json!("hash"),
    },
    Rule {
        name: "deep",
        here: || json!({"strategy": "Deep", "lists": "Unique"}),
        hiera: || json!("deep"),
    },
    Rule {
        name: "knockout",
        here: || json!({"strategy": "Deep", "lists": "Unique", "knockoutPrefix": "--"}),
        hiera: || json!({"strategy": "deep", "knockout_prefix": "--"}),
    },
];

/// A key: its rule and what each of [`PLACES`] says.
#[derive(Clone, Debug)]
struct Tree {
    rule: &'static str,
    said: [Option<Value>; 6],
}

impl Tree {
    fn place(&self, place: &str) -> Option<&Value> {
        let number = PLACES.iter().position(|held| *held == place).unwrap();
        self.said[number].as_ref()
    }

    /// The levels of a cluster alone.
    fn told(&self, cluster: usize) -> String {
        let levels = places(cluster);
        let lines = levels.iter().filter_map(|place| {
            let value = self.place(place)?;
            Some(format!("  {place}: {value}\n"))
        });
        format!("{}\n{}", self.rule, lines.collect::<String>())
    }
}

/// The places of a cluster, the weakest first.
fn places(cluster: usize) -> [&'static str; 4] {
    [
        PLACES[0],
        PLACES[1],
        PLACES[2 + cluster],
        PLACES[4 + cluster],
    ]
}

#[test]
fn levels_come_to_what_hiera_makes_of_them() {
    for seed in crate::seeds() {
        eprintln!("WINDLASS_DIFFERENTIAL_SEED={seed}");
        let mut all = Vec::new();
        for rule in ["first", "unique", "hash", "deep"] {
            all.extend(crate::random(&said_anywhere(rule), seed, TREES));
        }
        all.extend(crate::random(&knocked_out(), seed, TREES));
        let fleet = fleet(&all);
        let mut differing = Vec::new();
        for cluster in 0..2 {
            let hiera = lookup(&all, cluster);
            let ours = crate::values(&fleet, PLACES[4 + cluster]);
            for (number, tree) in all.iter().enumerate() {
                let ours = ours[tree.rule].get(key(number));
                let theirs = hiera.get(&key(number)).map(without_empty_texts);
                if ours != theirs.as_ref() {
                    let told = tree.told(cluster);
                    differing.push(format!("{told}  ours {ours:?}\n  Hiera's {theirs:?}"));
                }
            }
        }
        crate::assert_none(differing);
    }
}

/// What `docs/fleets.md` says that is otherwise than in Hiera.
#[test]
fn what_is_meant_to_be_otherwise_than_in_hiera_is() {
    let rows = [
        (
            "a mark that takes out reaches all weaker levels, in Hiera the next one that says something",
            "knockout",
            vec![json!(["a", "b"]), json!(["c"]), json!(["--a"])],
            json!(["b", "c"]),
            json!(["a", "b", "c"]),
        ),
        (
            "a key that is taken out is gone, in Hiera an empty text",
            "knockout",
            vec![json!({"x": {"y": 1}, "z": 1}), json!({"x": "--"})],
            json!({"z": 1}),
            json!({"x": "", "z": 1}),
        ),
        (
            "a mark that takes out of nothing goes, in Hiera it stays at the weakest level",
            "knockout",
            vec![json!(["--a", "b"])],
            json!(["b"]),
            json!(["--a", "b"]),
        ),
        (
            "null overrides in maps that are merged deep, in Hiera it does not",
            "deep",
            vec![json!({"x": 1}), json!({"x": null})],
            json!({"x": null}),
            json!({"x": 1}),
        ),
        (
            "a list that one level alone sets has each entry once under Deep too",
            "deep",
            vec![json!([1, 1])],
            json!([1]),
            json!([1, 1]),
        ),
        (
            "lists in lists are not flattened",
            "unique",
            vec![json!([["a"]]), json!(["b"])],
            json!(["b", ["a"]]),
            json!(["b", "a"]),
        ),
        (
            "a mark that takes out of nothing goes, in Hiera it empties a list that one level alone sets in a map of its own",
            "knockout",
            vec![json!({"z": 1}), json!({"m": {"l": ["--a", "b"]}})],
            json!({"z": 1, "m": {"l": ["b"]}}),
            json!({"z": 1, "m": {"l": []}}),
        ),
    ];
    let all: Vec<_> = rows
        .iter()
        .map(|(_, rule, levels, ..)| {
            let mut said = [const { None }; 6];
            for (place, value) in [0, 1, 2].into_iter().zip(levels) {
                said[place] = Some(value.clone());
            }
            Tree { rule, said }
        })
        .collect();
    let fleet = fleet(&all);
    let values = crate::values(&fleet, PLACES[4]);
    let hiera = lookup(&all, 0);
    for (number, (what, rule, _, ours, theirs)) in rows.iter().enumerate() {
        assert_eq!(values[rule][key(number)], *ours, "{what}");
        assert_eq!(hiera[&key(number)], *theirs, "{what}");
    }
}

/// Every place may say something, and one above both clusters does.
fn said_anywhere(rule: &'static str) -> BoxedStrategy<Tree> {
    let value = match rule {
        "first" => prop_oneof![
            trees::map(1, Nulls::Some).prop_map(|map| ("map", Value::from(map))),
            trees::text().prop_map(|text| ("text", text)),
            Just(("text", Value::Null)),
        ]
        .boxed(),
        "unique" => prop_oneof![
            trees::text(),
            (0..3).prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            prop::collection::vec(prop_oneof![trees::text(), trees::entry()], 0..4)
                .prop_map(Value::from),
        ]
        .prop_map(|value| ("any", value))
        .boxed(),
        "hash" => trees::map(2, Nulls::Some)
            .prop_map(|map| ("map", Value::from(map)))
            .boxed(),
        _ => prop_oneof![
            3 => trees::map(3, Nulls::None).prop_map(|map| ("map", Value::from(map))),
            1 => trees::distinct(trees::text()).prop_map(|list| ("list", list)),
        ]
        .boxed(),
    };
    let all = prop::collection::vec((value, any::<bool>()), PLACES.len());
    (all, any::<bool>())
        .prop_map(move |(all, begins_below)| {
            let kind = all[0].0.0;
            let mut said = [const { None }; 6];
            for (place, ((held, value), is_said)) in all.into_iter().enumerate() {
                // A type may not change between levels.
                if place == 0 || (is_said && held == kind) {
                    said[place] = Some(value);
                }
            }
            if begins_below && said[1].is_some() {
                said[0] = None;
            }
            Tree { rule, said }
        })
        .boxed()
}

/// Two places of each cluster, of which the stronger one takes out: a mark of Hiera's reaches no further.
fn knocked_out() -> impl Strategy<Value = Tree> {
    let weak = trees::map(2, Nulls::None);
    let strong = || {
        (
            trees::map(2, Nulls::None),
            prop::collection::vec(0..4_u8, 24),
        )
    };
    let both = (weak, strong(), strong(), 0..2_usize, 0..2_usize);
    both.prop_map(|(weak, one, other, above, below)| {
        let mut said = [const { None }; 6];
        let weak = Value::from(weak);
        for (cluster, (map, dice)) in [one, other].into_iter().enumerate() {
            let mut value = Value::from(map);
            mark(&mut value, &weak, &mut dice.into_iter().cycle());
            said[2 + 2 * below + cluster] = Some(value);
        }
        said[above] = Some(weak);
        Tree {
            rule: "knockout",
            said,
        }
    })
}

/// Puts marks into a value: in place of values in maps, before texts in lists, alone in lists. In a map that the weaker level has not
/// there is nothing to take out.
fn mark(value: &mut Value, weak: &Value, dice: &mut impl Iterator<Item = u8>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if dice.next() == Some(0) {
                    *value = json!("--");
                } else if !value.is_object() || weak[key].is_object() {
                    mark(value, &weak[key], dice);
                }
            }
        }
        Value::Array(list) if list.iter().all(Value::is_string) => {
            for entry in list.iter_mut() {
                if dice.next() == Some(0) {
                    *entry = json!(format!("--{}", entry.as_str().unwrap_or_default()));
                }
            }
            if (dice.next(), dice.next()) == (Some(0), Some(0)) {
                list.push(json!("--"));
            }
        }
        _ => {}
    }
}

/// What Hiera says, but for the empty texts that stand for what was taken out.
fn without_empty_texts(value: &Value) -> Value {
    let Value::Object(map) = value else {
        return value.clone();
    };
    let kept = map.iter().filter(|(_, value)| *value != "");
    kept.map(|(key, value)| (key.clone(), without_empty_texts(value)))
        .collect::<Map<_, _>>()
        .into()
}

fn key(number: usize) -> String {
    format!("k{number}")
}

/// Trees stand below the name of their rule: one rule has the say for all of them.
fn fleet(all: &[Tree]) -> Fleet {
    let says = |place: &str| {
        let mut values = BTreeMap::<&str, Map<String, Value>>::new();
        for (number, tree) in all.iter().enumerate() {
            if let Some(value) = tree.place(place) {
                let below = values.entry(tree.rule).or_default();
                below.insert(key(number), value.clone());
            }
        }
        values
    };
    let merges = RULES.iter().map(|rule| {
        let mut merge = (rule.here)();
        merge["path"] = json!(format!("{}.*", rule.name));
        merge
    });
    let levels = [
        ("environment", "Environment"),
        ("customer", "Customer"),
        ("site", "Site"),
    ]
    .map(|(name, kind)| json!({"name": name, "kind": kind}));
    let order = json!({"levels": levels, "merges": merges.collect::<Vec<_>>()});
    let mut objects = vec![
        crate::template(),
        crate::object("Hierarchy", "default", order),
        crate::object("Environment", "o", json!({"values": says("environment")})),
        crate::object("Customer", "o", json!({"values": says("customer")})),
    ];
    for cluster in 0..2 {
        let [.., site, name] = places(cluster);
        objects.push(crate::object("Site", site, json!({"values": says(site)})));
        let parents = json!({"environment": "o", "customer": "o", "site": site});
        let spec = json!({"parents": parents, "template": "t", "values": says(name)});
        objects.push(crate::object("FleetCluster", name, spec));
    }
    Fleet::read(objects, "default").unwrap()
}

/// What Hiera makes of all trees for a node.
fn lookup(all: &[Tree], node: usize) -> Map<String, Value> {
    packages::ensure(packages::HIERA, &Terminal::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    write(all, directory.path());
    fs::write(place("facts.json"), json!({"node": node}).to_string()).unwrap();
    let mut puppet = Command::new("puppet");
    puppet
        .args(["lookup", "all", "--render-as", "json", "--node", "node"])
        .env("HOME", directory.path())
        .arg("--facts")
        .arg(place("facts.json"))
        .arg("--hiera_config")
        .arg(place("hiera.yaml"));
    for own in ["confdir", "codedir", "vardir", "rundir", "logdir"] {
        puppet.arg(format!("--{own}")).arg(place(own));
    }
    let said = command::output(&mut puppet).unwrap();
    // Before the answer there may be warnings.
    let answer = said.lines().find(|line| line.starts_with('{'));
    let answer: Map<_, _> = serde_json::from_str(answer.unwrap()).unwrap();
    // The names by which Hiera knows them have their rules in front.
    let answer = answer.into_iter();
    let answer = answer.map(|(name, value)| (name.split('_').nth(1).unwrap().to_owned(), value));
    answer.collect()
}

/// The hierarchy and the data of Hiera.
fn write(all: &[Tree], directory: &Path) {
    let name = |number: usize, tree: &Tree| format!("{}_{}", tree.rule, key(number));
    for place in PLACES {
        let said = all.iter().enumerate();
        let said = said.filter_map(|(number, tree)| {
            let value = tree.place(place)?;
            Some((name(number, tree), value.clone()))
        });
        let data: Map<_, _> = said.collect();
        let file = directory.join(format!("{place}.json"));
        fs::write(file, Value::from(data).to_string()).unwrap();
    }
    let names: Vec<_> = all
        .iter()
        .enumerate()
        .filter(|(_, tree)| tree.said.iter().any(Option::is_some))
        .map(|(number, tree)| name(number, tree))
        .collect();
    let aliases: Map<_, _> = names
        .iter()
        .map(|name| (name.clone(), json!(format!("%{{alias('{name}')}}"))))
        .collect();
    let options: Map<_, _> = RULES
        .iter()
        .map(|rule| (format!("^{}_", rule.name), json!({"merge": (rule.hiera)()})))
        .collect();
    let all = json!({"all": aliases, "lookup_options": options});
    fs::write(directory.join("all.json"), all.to_string()).unwrap();
    let levels = [
        "all",
        "cluster-%{facts.node}",
        "site-%{facts.node}",
        "customer",
        "environment",
    ];
    let levels = levels.map(|level| json!({"name": level, "path": format!("{level}.json")}));
    let hierarchy = json!({"version": 5, "hierarchy": levels,
        "defaults": {"datadir": directory, "data_hash": "json_data"}});
    fs::write(directory.join("hiera.yaml"), hierarchy.to_string()).unwrap();
}
