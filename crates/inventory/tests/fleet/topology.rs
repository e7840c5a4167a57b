//! `examples/fleet-topology`: Clusters with a topology, whose classes are named by what is in them.

use std::{collections::BTreeMap, path::Path};

use inventory::Fleet;
use serde_json::{Value, json};

use crate::{cluster, objects, render, templates::one};

/// The objects of the example, as the values of its site are changed.
fn example(edit: impl Fn(&mut Value)) -> Vec<Value> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet-topology");
    let mut all = Vec::new();
    for file in std::fs::read_dir(directory).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        all.extend(objects(&text));
    }
    for object in all.iter_mut().filter(|object| object["kind"] == "Site") {
        edit(&mut object["spec"]["values"]);
    }
    all
}

/// What a cluster of it is rendered to, by kind.
fn rendered(name: &str, edit: impl Fn(&mut Value)) -> BTreeMap<String, Value> {
    let fleet = Fleet::read(example(edit), "default").unwrap();
    let rendered = fleet.render(&cluster(name)).unwrap();
    let objects = rendered.objects().into_iter();
    objects
        .map(|object| (object["kind"].as_str().unwrap().to_owned(), object))
        .collect()
}

/// The kinds whose objects differ, and of those the ones that are called otherwise.
fn changed(edit: impl Fn(&mut Value)) -> (Vec<String>, Vec<String>) {
    let (before, after) = (rendered("shop", |_| ()), rendered("shop", edit));
    let differ = before
        .iter()
        .filter(|(kind, object)| after[*kind] != **object);
    let differ: Vec<_> = differ.map(|(kind, _)| kind.clone()).collect();
    let name =
        |objects: &BTreeMap<String, Value>, kind: &str| objects[kind]["metadata"]["name"].clone();
    let renamed = differ
        .iter()
        .filter(|kind| name(&before, kind) != name(&after, kind));
    (differ.clone(), renamed.cloned().collect())
}

#[test]
fn a_cluster_names_a_class_whose_references_are_all_there() {
    let all = rendered("shop", |_| ());
    let topology = &all["Cluster"]["spec"]["topology"];
    let class = &all["ClusterClass"];
    assert_eq!(topology["classRef"]["name"], class["metadata"]["name"]);
    assert!(
        class["metadata"]["name"]
            .as_str()
            .unwrap()
            .starts_with("shop-")
    );
    assert_eq!(topology["version"], "v1.34.4");
    assert_eq!(
        topology["variables"],
        json!([{"name": "names", "value": ["api.fra1.acme.example"]}])
    );
    let mut followed = 0;
    let mut open = vec![&class["spec"]];
    while let Some(value) = open.pop() {
        if let Value::Object(map) = value {
            if let Some(reference) = map.get("templateRef") {
                let kind = reference["kind"].as_str().unwrap();
                assert_eq!(reference["name"], all[kind]["metadata"]["name"], "{kind}");
                followed += 1;
            }
            open.extend(map.values());
        }
        open.extend(value.as_array().into_iter().flatten());
    }
    assert_eq!(followed, 5);
    // An autoscaler has the say where nobody says how many.
    let workers = |all: &BTreeMap<String, Value>| {
        all["Cluster"]["spec"]["topology"]["workers"]["machineDeployments"][0]["replicas"].clone()
    };
    assert_eq!(workers(&all), 3);
    assert_eq!(workers(&rendered("billing", |_| ())), Value::Null);
}

#[test]
fn an_edit_of_machines_is_another_class_and_one_of_a_variable_is_none() {
    let none = Vec::<String>::new();
    assert_eq!(changed(|_| ()), (none.clone(), none.clone()));
    let (differ, renamed) = changed(|values| values["boot"] = json!("3s"));
    assert_eq!(differ, ["Cluster", "ClusterClass", "DevMachineTemplate"]);
    assert_eq!(renamed, ["ClusterClass", "DevMachineTemplate"]);
    for (key, value) in [
        ("names", json!(["api.acme.example"])),
        ("kubernetes", json!({"version": "1.34.5"})),
        ("controlPlanes", json!(5)),
    ] {
        let edited = changed(|values| values[key] = value.clone());
        assert_eq!(edited, (vec!["Cluster".to_owned()], none.clone()), "{key}");
    }
}

#[test]
fn a_class_is_followed_by_its_cluster_alone_in_either_version() {
    let documents = "[{naming: Hashed, object: {apiVersion: cluster.x-k8s.io/v1beta1, kind: ClusterClass, metadata: {name: c}, spec: {a: 1}}},
      {object: {apiVersion: cluster.x-k8s.io/v1beta1, kind: Cluster, metadata: {name: c}, spec: {topology: {class: c}}}},
      {object: {apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: d}, spec: {topology: {classRef: {name: c}}}}},
      {object: {apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: e}, spec: {topology: {classRef: {name: other}}}}},
      {object: {apiVersion: acme.example/v1, kind: Lecture, metadata: {name: f}, spec: {topology: {class: c}}}}]";
    let all = render(&one("{}", documents)).unwrap().objects();
    let class = all[0]["metadata"]["name"].clone();
    assert_ne!(class, "c");
    assert_eq!(all[1]["spec"]["topology"]["class"], class);
    assert_eq!(all[2]["spec"]["topology"]["classRef"]["name"], class);
    assert_eq!(all[3]["spec"]["topology"]["classRef"]["name"], "other");
    assert_eq!(all[4]["spec"]["topology"]["class"], "c");
}

#[test]
fn what_refers_to_another_is_named_after_it_wherever_it_stands() {
    let rendered = |jitter: &str| {
        let documents = format!(
            "[{{naming: Hashed, object: {{apiVersion: cluster.x-k8s.io/v1beta2, kind: ClusterClass, metadata: {{name: c}}, spec: {{
               infrastructure: {{templateRef: {{apiVersion: x/v1, kind: DevClusterTemplate, name: t}}}}}}}}}},
              {{naming: Hashed, object: {{apiVersion: x/v1, kind: DevClusterTemplate, metadata: {{name: t}}, spec: {{jitter: '{jitter}'}}}}}}]"
        );
        render(&one("{}", &documents)).unwrap().objects()
    };
    let (before, after) = (rendered("1"), rendered("2"));
    for all in [&before, &after] {
        let reference = &all[0]["spec"]["infrastructure"]["templateRef"];
        assert_eq!(reference["name"], all[1]["metadata"]["name"]);
    }
    for number in [0, 1] {
        let name = |all: &[Value]| all[number]["metadata"]["name"].clone();
        assert_ne!(
            name(&before),
            name(&after),
            "another content is another name"
        );
    }
}

#[test]
fn a_class_or_a_template_of_it_that_changes_under_its_name_may_replace_all() {
    let objects = |boot: &str| {
        vec![
            json!({"apiVersion": "x/v1", "kind": "DevMachineTemplate", "metadata": {"name": "t", "namespace": "n"}, "spec": {"boot": boot}}),
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterClass", "metadata": {"name": "c", "namespace": "n"},
                "spec": {"controlPlane": {"machineInfrastructure": {"templateRef": {"apiVersion": "x/v1", "kind": "DevMachineTemplate", "name": "t"}}}},
            }),
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "shop", "namespace": "n"},
                "spec": {"topology": {"classRef": {"name": "c"}, "version": "v1.34.4", "controlPlane": {"replicas": 3}}},
            }),
        ]
    };
    let effects = |after: &[Value]| {
        let effects = inventory::impact::impact("n", &objects("2s"), after, None);
        let told = effects.iter().map(|effect| {
            format!(
                "{:?} {:?} {:?}",
                effect.happens, effect.bound, effect.because
            )
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(
        effects(&objects("3s")),
        [r#"Replaced AtMost ["DevMachineTemplate/t under its name"]"#]
    );
    let mut after = objects("2s");
    after[1]["spec"]["more"] = json!(1);
    assert_eq!(
        effects(&after),
        [r#"Replaced AtMost ["ClusterClass/c under its name"]"#]
    );
    assert!(effects(&objects("2s")).is_empty());
}

#[test]
fn another_version_of_an_api_is_a_change_of_the_same_object() {
    let object = |version: &str| json!({"apiVersion": version, "kind": "Cluster", "metadata": {"name": "c", "namespace": "n"}});
    let changes = inventory::diff::between(
        &[object("cluster.x-k8s.io/v1beta1")],
        &[object("cluster.x-k8s.io/v1beta2")],
    );
    let [change] = &changes[..] else {
        panic!("{changes:?}")
    };
    assert_eq!(change.change, inventory::diff::Change::Changed);
    assert_eq!(change.leaves[0].path, "apiVersion");
}
