//! `examples/fleet`, as a person renders it.

use std::path::Path;

use inventory::{Fleet, diff};
use serde_json::{Value, json};

use crate::cluster;

fn read() -> Vec<Value> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet");
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    let texts = files
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap());
    texts.flat_map(|text| crate::objects(&text)).collect()
}

#[test]
fn five_small_objects_are_a_whole_cluster() {
    let fleet = Fleet::read(read(), "default").unwrap();
    let rendered = fleet.render(&cluster("billing")).unwrap();
    let documents: Vec<_> = rendered
        .documents
        .iter()
        .map(inventory::RenderedDocument::to_value)
        .collect();
    insta::assert_yaml_snapshot!(documents);
}

#[test]
fn an_edit_of_one_level_changes_those_that_inherit_it() {
    let base = Fleet::read(read(), "default").unwrap();
    assert_eq!(diff::diff(&base, &base).unwrap(), []);
    let mut edited = read();
    for object in &mut edited {
        if object["kind"] == "Environment" {
            object["spec"]["values"]["unreachable"] = json!("20%");
        }
    }
    let head = Fleet::read(edited, "default").unwrap();
    let changes = diff::diff(&base, &head).unwrap();
    // billing has a bound of its own.
    insta::assert_yaml_snapshot!(changes);
}

#[test]
fn rendering_again_gives_the_same_whatever_the_order_of_the_files() {
    let mut objects = read();
    let render = |objects: &[Value]| {
        let fleet = Fleet::read(objects.to_vec(), "default").unwrap();
        let mut all = Vec::new();
        fleet
            .render_all(|rendered| {
                all.extend(
                    rendered
                        .documents
                        .iter()
                        .map(|document| document.to_value().to_string()),
                );
            })
            .unwrap();
        all
    };
    let once = render(&objects);
    objects.reverse();
    assert_eq!(render(&objects), once);
}
