//! Files are merged as kolla-ansible merges them, byte for byte: its own plug-in is asked.

use std::{
    fs::File,
    io::{Seek as _, Write as _},
    path::Path,
};

use lab::{OpenStack, command, progress::Terminal};
use openstack::config::{
    Merged, Source,
    tree::{Format, Tree},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::Value;

const TREES: usize = 1000;

#[test]
fn random_trees_are_merged_as_kolla_does() {
    let progress = Terminal::default();
    let kolla = lab::kolla_ansible(&progress).unwrap();
    let mut python = OpenStack::ensure(&progress).unwrap().python();
    let seed = rand::rng().random();
    let mut random = StdRng::seed_from_u64(seed);
    let trees: Vec<Vec<String>> = (0..TREES)
        .map(|_| {
            (0..random.random_range(1..5))
                .map(|_| text(&mut random))
                .collect()
        })
        .collect();
    let mut input: File = tempfile::tempfile().unwrap();
    input
        .write_all(&serde_json::to_vec(&trees).unwrap())
        .unwrap();
    input.rewind().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/merge.py");
    let said = command::output_from(input, python.arg(script).arg(kolla)).unwrap();
    let expected: Vec<Option<String>> = serde_json::from_str(&said).unwrap();
    let mut refused = 0;
    for (tree, expected) in trees.iter().zip(&expected) {
        let sources: Vec<_> = tree.iter().map(|text| Source::new("a", text)).collect();
        let merged = Merged::of(&sources).ok().map(|merged| merged.render());
        assert_eq!(&merged, expected, "seed {seed}: {tree:?}");
        refused += usize::from(expected.is_none());
    }
    assert!(refused < TREES / 2, "{refused} of {TREES} are refused");
}

#[test]
fn random_trees_of_yaml_and_json_are_merged_as_kolla_does() {
    let progress = Terminal::default();
    let kolla = lab::kolla_ansible(&progress).unwrap();
    let mut python = OpenStack::ensure(&progress).unwrap().python();
    let seed = rand::rng().random();
    let mut random = StdRng::seed_from_u64(seed);
    let trees: Vec<(Vec<String>, Option<String>)> = (0..TREES)
        .map(|at| {
            let format = [Format::Yaml, Format::Json][usize::from(at % 4 == 0)];
            let sources: Vec<_> = (0..random.random_range(1..5))
                .map(|_| match format {
                    Format::Yaml => yaml(&mut random),
                    Format::Json => json(&mut random, 0).to_string(),
                })
                .collect();
            let of = |text: &String| Source::new("a", text);
            let ours = Tree::of(format, &sources.iter().map(of).collect::<Vec<_>>());
            (sources, ours.ok().map(|ours| ours.render()))
        })
        .collect();
    let mut input: File = tempfile::tempfile().unwrap();
    input
        .write_all(&serde_json::to_vec(&trees).unwrap())
        .unwrap();
    input.rewind().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/merge_yaml.py");
    let said = command::output_from(input, python.arg(script).arg(kolla)).unwrap();
    let said: Vec<Value> = serde_json::from_str(&said).unwrap();
    let mut refused = 0;
    for ((sources, ours), said) in trees.iter().zip(&said) {
        let is_same = if said.is_null() {
            refused += 1;
            ours.is_none()
        } else {
            *said == Value::Bool(true)
        };
        assert!(
            is_same,
            "seed {seed}: of {sources:#?} we make {ours:?}, and Kolla {said}"
        );
    }
    // About half of them are, one time a few more: four sources refuse each other easily.
    assert!(refused < TREES / 4 * 3, "{refused} of {TREES} are refused");
}

/// A file of YAML with everything that is odd in some, and now and then one that is none.
fn yaml(random: &mut StdRng) -> String {
    let odd = [
        "", "# no\n", "[]", "0", "''", "~", "- a\n", "word", "a: [\n",
    ];
    match random.random_range(0..12) {
        0 => odd[random.random_range(0..odd.len())].to_owned(),
        _ => block(random, 0),
    }
}

/// A map in lines of their own.
fn block(random: &mut StdRng, indent: usize) -> String {
    let mut text = String::new();
    for key in keys(random) {
        let comment = ["", "", " # why"][random.random_range(0..3)];
        let inner = indent + random.random_range(1..4);
        let value = match random.random_range(0..12) {
            0..3 if indent < 8 => format!("{comment}\n{}", block(random, inner)),
            3 => {
                let items =
                    (0..random.random_range(1..3)).map(|_| match random.random_range(0..3) {
                        0 => format!("{:inner$}- {}", "", block(random, inner + 2).trim_start()),
                        _ => format!("{:inner$}- {}\n", "", scalar(random)),
                    });
                format!("\n{}", items.collect::<String>())
            }
            4 => format!(" |\n{:inner$}two\n\n{:inner$} lines\n", "", ""),
            5 => format!(" >-\n{:inner$}one\n{:inner$}line\n", "", ""),
            6 => format!(" {}{comment}\n", flow(random, 0)),
            _ => format!(" {}{comment}\n", scalar(random)),
        };
        text.push_str(&format!("{:indent$}{key}:{value}", ""));
    }
    text
}

fn flow(random: &mut StdRng, depth: usize) -> String {
    match random.random_range(0..4) {
        0 if depth < 3 => {
            let items: Vec<_> = (0..2).map(|_| flow(random, depth + 1)).collect();
            format!("[{}]", items.join(", "))
        }
        1 if depth < 3 => {
            let keys = keys(random).into_iter();
            let fields: Vec<_> = keys
                .map(|key| format!("{key}: {}", flow(random, depth + 1)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        2 => ["{}", "[]"][random.random_range(0..2)].to_owned(),
        _ => scalar(random).to_owned(),
    }
}

fn keys(random: &mut StdRng) -> Vec<&'static str> {
    let keys = ["a", "b", "'c d'", "e.f", "\"g\"", "ä"];
    let count = random.random_range(1..4);
    let begin = random.random_range(0..keys.len());
    keys.iter()
        .cycle()
        .skip(begin)
        .take(count)
        .copied()
        .collect()
}

fn scalar(random: &mut StdRng) -> &'static str {
    SCALARS[random.random_range(0..SCALARS.len())]
}

fn json(random: &mut StdRng, depth: usize) -> Value {
    let most = if depth == 0 { 1 } else { 7 };
    match random.random_range(0..most) {
        0 if depth < 4 => {
            let keys = ["a", "b", "c\n\"d", "1", "yes"].into_iter();
            let fields = keys.filter_map(|key| {
                let is_there = random.random_range(0..2) == 0;
                is_there.then(|| (key.to_owned(), json(random, depth + 1)))
            });
            Value::Object(fields.collect())
        }
        1 if depth < 4 => (0..2).map(|_| json(random, depth + 1)).collect(),
        2 => Value::Bool(true),
        3 => Value::from(random.random_range(-5..5)),
        4 => Value::from("ä\u{2028}\u{7f}\t: # yes"),
        5 => Value::from("yes"),
        _ => Value::Null,
    }
}

/// What means one thing to one reader of YAML and another to others, first of all.
const SCALARS: &[&str] = &[
    "1",
    "yes",
    "No",
    "0x1F",
    "0o17",
    "017",
    "1:30",
    "~",
    "null",
    "'q'",
    "\"a\\tb\\u2028\"",
    "2026-01-01",
    "1e3",
    "1.5e+3",
    ".inf",
    "a b",
    "a#b",
    "x:y",
    "'it''s'",
    "''",
    "\"\"",
    "-1",
    "ä",
    "a-b",
    "on",
    "'1'",
    "'~'",
    "_1",
    "=",
];

/// A file that looks like one, with everything that is odd in some.
fn text(random: &mut StdRng) -> String {
    let mut text = String::new();
    // Whether a further line would go on with a value: elsewhere one is refused, and most files are to be merged.
    let mut is_open = false;
    for _ in 0..random.random_range(0..12) {
        let key = KEYS[random.random_range(0..KEYS.len())];
        let value = VALUES[random.random_range(0..VALUES.len())];
        let sign = ["=", " = ", ":", " : ", "  =\t"][random.random_range(0..5)];
        let (line, opens) = match random.random_range(0..200) {
            0..40 => (format!("[{key}]\n"), false),
            40..60 if is_open => (format!("  \t{value}\n"), !value.is_empty()),
            60..75 => (format!("# {value}\n"), false),
            75..80 => (format!(";{value}  \r\n"), false),
            80..90 => ("\t \r\n".to_owned(), false),
            90 => ("word\n lost\n[]\n".to_owned(), false),
            _ => (format!("{key}{sign}{value}\n"), true),
        };
        text.push_str(&line);
        is_open = opens;
    }
    if random.random_range(0..10) == 0 {
        text.pop();
    }
    text
}

const KEYS: &[&str] = &["a", "b", "debug", "DEFAULT", "x y", "ä", "hosts", "a.b-c"];
const VALUES: &[&str] = &[
    "", "1", "true", "a b", "'q'", "\"q\"", "\"", "''", "'a\"", "x = y", "# no", "ü\u{a0}", "a,b",
    "%(x)s", "\u{1f}z", "[s]",
];
