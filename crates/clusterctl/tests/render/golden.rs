//! What clusterctl printed for the files that were made to show each rule, as a full run compares it with clusterctl.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::{
    cases::{self, Case},
    normal::normal,
};

#[test]
fn each_rule_is_applied_as_clusterctl_did() {
    for case in cases::made() {
        let kept: Vec<Value> =
            serde_json::from_str(&fs::read_to_string(path(&case)).unwrap()).unwrap();
        let ours = case.render().unwrap();
        let ours = normal(
            ours.into_objects()
                .into_iter()
                .map(clusterctl::Object::into_value),
        );
        equal(&case.name, &ours, &kept);
    }
}

/// Objects are told one by one: two lists of them side by side are not readable.
#[track_caller]
pub fn equal(name: &str, ours: &[Value], theirs: &[Value]) {
    let title = |object: &Value| {
        let name = |field: &str| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        format!("{} {}/{}", object["kind"], name("namespace"), name("name"))
    };
    let titles = |objects: &[Value]| objects.iter().map(title).collect::<Vec<_>>();
    assert_eq!(titles(ours), titles(theirs), "{name}");
    for (ours, theirs) in ours.iter().zip(theirs) {
        if ours != theirs {
            let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap();
            let (ours_text, theirs_text) = (pretty(ours), pretty(theirs));
            let different: Vec<_> = ours_text
                .lines()
                .zip(theirs_text.lines())
                .filter(|(a, b)| a != b)
                .take(9)
                .collect();
            panic!(
                "{name}: {} differs: {different:?}\nours: {ours_text}\nclusterctl: {theirs_text}",
                title(ours)
            );
        }
    }
}

/// Compares with what is kept, or keeps it where `WINDLASS_KEEP` says so.
pub fn keep_or_compare(case: &Case, theirs: &[Value]) {
    let theirs = normal(theirs.iter().cloned());
    let text = serde_json::to_string_pretty(&theirs).unwrap() + "\n";
    if std::env::var_os("WINDLASS_KEEP").is_some() {
        fs::write(path(case), text).unwrap();
        return;
    }
    let kept = fs::read_to_string(path(case)).unwrap();
    assert!(
        text == kept,
        "{}: clusterctl prints other objects than it did",
        case.name
    );
}

fn path(case: &Case) -> PathBuf {
    let made = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/render/made");
    made.join(format!("{}.json", case.name))
}
