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
    for _ in 0..random.random_range(0..12) {
        let key = KEYS[random.random_range(0..KEYS.len())];
        let value = VALUES[random.random_range(0..VALUES.len())];
        let sign = ["=", " = ", ":", " : ", "  =\t"][random.random_range(0..5)];
        match random.random_range(0..100) {
            0..20 => text.push_str(&format!("[{key}]\n")),
            20..75 => text.push_str(&format!("{key}{sign}{value}\n")),
            75..85 if text.ends_with('\n') && !text.ends_with("]\n") && !text.ends_with("\n\n") => {
                text.push_str(&format!("  \t{value}\n"));
            }
            85..90 => text.push_str(&format!("# {value}\n")),
            90..93 => text.push_str(&format!(";{value}  \r\n")),
            93..98 => text.push_str(["\n", "   \n", "\t\r\n"][random.random_range(0..3)]),
            98 => text.push_str(&format!("{key}{sign}{value}")),
            _ => text
                .push_str(["[\n", "[]\n", "word\n", " lost\n", "= x\n"][random.random_range(0..5)]),
        }
    }
    text
}

const KEYS: &[&str] = &["a", "b", "debug", "DEFAULT", "x y", "ä", "hosts", "a.b-c"];
const VALUES: &[&str] = &[
    "", "1", "true", "a b", "'q'", "\"q\"", "\"", "''", "'a\"", "x = y", "# no", "ü\u{a0}", "a,b",
    "%(x)s", "\u{1f}z", "[s]",
];
