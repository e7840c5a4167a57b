//! `examples/fleet-cluster-api`: Cluster API without a topology, whose templates of machines are named by what is in them.

use std::{collections::BTreeMap, path::Path};

use inventory::{Fleet, diff};
use serde_json::{Value, json};

use crate::{cluster, objects};

/// The objects of the example, as the values of the object with that kind and name are changed.
fn example(of: (&str, &str), edit: impl Fn(&mut Value)) -> Fleet {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet-cluster-api");
    let mut all = Vec::new();
    for file in std::fs::read_dir(directory).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        all.extend(objects(&text));
    }
    let is_it = |object: &&mut Value| {
        (&object["kind"], &object["metadata"]["name"]) == (&json!(of.0), &json!(of.1))
    };
    all.iter_mut()
        .filter(is_it)
        .for_each(|object| edit(&mut object["spec"]["values"]));
    Fleet::read(all, "default").unwrap()
}

fn as_written() -> Fleet {
    example(("", ""), |_| ())
}

/// What an edit does to machines, in words.
fn effects(of: (&str, &str), edit: impl Fn(&mut Value)) -> Vec<String> {
    let changes = diff::diff(&as_written(), &example(of, edit)).unwrap();
    let effects = changes.iter().flat_map(|change| &change.effects);
    effects.map(ToString::to_string).collect()
}

#[test]
fn what_a_cluster_refers_to_is_all_there_and_values_of_cloud_init_stand_as_they_are() {
    let rendered = as_written().render(&cluster("shop")).unwrap();
    let objects = rendered.objects();
    let names = objects
        .iter()
        .map(|object| (object["kind"].clone(), object["metadata"]["name"].clone()));
    let names: Vec<_> = names.collect();
    let mut followed = 0;
    let mut open: Vec<&Value> = objects.iter().collect();
    while let Some(value) = open.pop() {
        if value["apiGroup"].is_string() {
            assert!(
                names.contains(&(value["kind"].clone(), value["name"].clone())),
                "{value}"
            );
            followed += 1;
        }
        match value {
            Value::Object(map) => open.extend(map.values()),
            Value::Array(list) => open.extend(list),
            _ => {}
        }
    }
    // Of the Cluster, of the control plane, and two of each group of workers.
    assert_eq!(followed, 7);
    let by_kind: BTreeMap<_, _> = objects
        .iter()
        .map(|object| (object["kind"].as_str().unwrap(), object))
        .collect();
    let registration = &by_kind["KubeadmControlPlane"]["spec"]["kubeadmConfigSpec"]["joinConfiguration"]
        ["nodeRegistration"];
    assert_eq!(registration["name"], "{{ local_hostname }}");
}

#[test]
fn an_edit_replaces_the_machines_that_it_reaches_and_no_others() {
    let batch = effects(("FleetCluster", "shop"), |values| {
        values["workers"]["batch"]["flavor"] = json!("c2.xlarge");
    });
    let [told] = batch.as_slice() else {
        panic!("{batch:?}")
    };
    assert!(
        told.contains("2 Machines") && told.contains("shop-batch") && told.contains("replaced"),
        "{told}"
    );
    // Of both clusters, control planes and workers.
    let image = effects(("Environment", "production"), |values| {
        values["image"] = json!("ubuntu-26.04-k8s");
    });
    assert_eq!(image.len(), 5, "{image:?}");
    assert!(
        image.iter().all(|told| told.contains("replaced")),
        "{image:?}"
    );
    let dns = effects(("Site", "fra1"), |values| {
        values["dns"] = json!(["10.6.0.3"]);
    });
    assert_eq!(dns.len(), 2, "{dns:?}");
    // What its provider does with a network is not known here; no Machine is named.
    let is_of_network = |told: &String| {
        told.starts_with("OpenStackCluster/")
            && told.contains("nothing is known")
            && told.ends_with("spec.managedSubnets)")
    };
    assert!(dns.iter().all(is_of_network), "{dns:?}");
}
