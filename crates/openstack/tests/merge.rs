//! Files are merged as kolla-ansible merges them, byte for byte: its own plug-in is asked.

use std::{
    fs::File,
    io::{Seek as _, Write as _},
    path::Path,
};

use lab::{OpenStack, command, progress::Terminal};
use openstack::config::{Merged, Source};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

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
        let sources: Vec<_> = tree
            .iter()
            .map(|text| Source {
                name: "a".to_owned(),
                text: text.clone(),
            })
            .collect();
        let merged = Merged::of(&sources).ok().map(|merged| merged.render());
        assert_eq!(&merged, expected, "seed {seed}: {tree:?}");
        refused += usize::from(expected.is_none());
    }
    assert!(refused < TREES / 2, "{refused} of {TREES} are refused");
}

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
