//! Existing clusters of Cluster API as an inventory: it renders to exactly what they are, and says what they share once.

use inventory::import::cluster_api::{classes, import};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::import::{any_variables, by_name, levels, placed, rendered, values};

const KUBEADM: &str = include_str!("cluster_api/kubeadm.yaml");
const OTHERS: &str = include_str!("cluster_api/others.yaml");

/// The whole corpus: the cluster shop twice, once under another name, and others.
fn corpus() -> Vec<Value> {
    let mut all = shop("shop");
    all.extend(shop("fair"));
    all.extend(crate::objects(OTHERS));
    all
}

/// What is imported of objects, as people wrote it.
fn written(objects: Vec<Value>) -> Vec<Value> {
    let mut objects = objects;
    objects.retain(|object| {
        let name = object["metadata"]["name"].as_str().unwrap();
        !["lab-x7", "usual", "bank-1", "bank-before"].contains(&name)
    });
    for object in &mut objects {
        object.as_object_mut().unwrap().remove("status");
        let metadata = object["metadata"].as_object_mut().unwrap();
        for key in ["uid", "finalizers", "ownerReferences"] {
            metadata.remove(key);
        }
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove("machinedeployment.clusters.x-k8s.io/revision");
        }
    }
    objects
}

/// The cluster shop under a name. What only speaks of the shop does so still.
fn shop(name: &str) -> Vec<Value> {
    let text = KUBEADM.replace("of shop $", "of SHOP $");
    let text = text.replace("shop-", &format!("{name}-"));
    let text = text.replace(": shop\n", &format!(": {name}\n"));
    let text = text.replace(": shop}", &format!(": {name}}}"));
    let text = text.replace("\"shop\"", &format!("{name:?}"));
    crate::objects(&text.replace("SHOP", "shop"))
}

#[test]
fn a_corpus_renders_to_what_was_imported() {
    let wanted = by_name(written(corpus()));
    assert_eq!(rendered(import(&corpus(), &[]).unwrap()), wanted);
    assert_eq!(rendered(import(&corpus(), &levels()).unwrap()), wanted);
}

#[test]
fn the_classes_that_are_left_out_are_named() {
    let left_out = classes(&corpus()).into_iter();
    let left_out: Vec<_> = left_out.map(|class| class.to_string()).collect();
    assert_eq!(left_out, ["ClusterClass/labs/usual"]);
    assert!(classes(&shop("shop")).is_empty());
}

#[test]
fn clusters_that_differ_in_names_alone_are_one_set_of_values() {
    let all = [shop("shop"), shop("fair")].concat();
    let inventory = import(&all, &levels()).unwrap();
    let site = &values(&inventory, "Site", "bonn")["objects"];
    assert_eq!(
        site["MachineDeployment-md-0"]["name"],
        json!({"$template": "{{ name | default(cluster.name) }}-md-0"})
    );
    assert_eq!(
        site["KubeadmControlPlane-control-plane"]["spec"]["replicas"],
        3
    );
    for name in ["shop", "fair"] {
        let own = values(&inventory, "FleetCluster", name);
        assert_eq!(*own, json!({"namespace": "shops"}));
    }
}

#[test]
fn what_is_of_one_cluster_stands_with_it() {
    let mut all = [shop("shop"), shop("fair")].concat();
    let is = |object: &&mut Value| {
        object["kind"] == "MachineDeployment" && object["metadata"]["name"] == "fair-md-0"
    };
    all.iter_mut().find(is).unwrap()["spec"]["replicas"] = json!(5);
    let inventory = import(&all, &levels()).unwrap();
    let own = values(&inventory, "FleetCluster", "fair");
    let replicas = json!({"MachineDeployment-md-0": {"spec": {"replicas": 5}}});
    assert_eq!(*own, json!({"namespace": "shops", "objects": replicas}));
    assert_eq!(rendered(inventory), by_name(written(all)));
}

/// Rule, level, object and path of each problem; its text has what to do.
fn refused(objects: &[Value]) -> Vec<String> {
    let problems = import(objects, &levels()).unwrap_err();
    let told = problems.0.iter().map(|problem| {
        assert!(problem.to_string().contains("; "), "{problem}");
        let level = problem.level.as_deref().unwrap_or_default();
        let (rule, object, path) = (problem.rule.name(), &problem.object, &problem.path);
        format!("{rule} {level} {object} {path}")
    });
    told.collect()
}

fn an_object(group: &str, kind: &str, name: &str, spec: Value) -> Value {
    let metadata = json!({"name": name, "namespace": "n"});
    let mut object =
        json!({"apiVersion": format!("{group}/v1beta2"), "kind": kind, "metadata": metadata});
    object["spec"] = spec;
    object
}

fn a_cluster(name: &str, site: &str, environment: &str) -> Value {
    let reference = json!({"kind": "DevCluster", "name": "shared"});
    let spec = json!({"infrastructureRef": reference});
    let cluster = an_object("cluster.x-k8s.io", "Cluster", name, spec);
    placed(cluster, environment, site)
}

#[test]
fn clusters_that_contradict_are_refused() {
    let shared = an_object(
        "infrastructure.cluster.x-k8s.io",
        "DevCluster",
        "shared",
        json!({}),
    );
    let orphan = |spec: Value| an_object("cluster.x-k8s.io", "MachineDeployment", "md", spec);
    let (a, b) = (a_cluster("a", "x", "live"), a_cluster("b", "x", "live"));
    assert_eq!(
        refused(&[a.clone(), b.clone(), shared]),
        ["Contradiction cluster Cluster/n/b spec.infrastructureRef"]
    );
    assert_eq!(
        refused(&[a.clone(), orphan(json!({"clusterName": "c"}))]),
        ["Contradiction cluster MachineDeployment/n/md spec.clusterName"]
    );
    let mut of_two = orphan(json!({"clusterName": "a"}));
    of_two["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "b"});
    assert_eq!(
        refused(&[a.clone(), b, of_two]),
        [
            "Contradiction cluster MachineDeployment/n/md metadata.labels[\"cluster.x-k8s.io/cluster-name\"]"
        ]
    );
    assert_eq!(
        refused(&[a.clone(), a_cluster("b", "x", "test")]),
        ["Contradiction site Cluster/n/b metadata.labels[\"acme.example/environment\"]"]
    );
    let mut nowhere = a_cluster("b", "x", "live");
    nowhere["metadata"]["labels"]["acme.example/site"] = json!("No Name");
    let refused = refused(&[a, nowhere]);
    assert_eq!(
        refused[0],
        "Unplaced site Cluster/n/b metadata.labels[\"acme.example/site\"]"
    );
}

/// Clusters with machine deployments that have names and texts like the clusters', by chance.
fn any_clusters() -> impl Strategy<Value = Vec<Value>> {
    let deployments = prop::collection::btree_map("[ab](-[ab])?", any_variables(), 0..3);
    let one = (any_variables(), deployments, 0..4_usize, 0..2_u8);
    prop::collection::btree_map("[ab](-[ab])?", one, 1..5).prop_map(|clusters| {
        let mut objects = Vec::new();
        for (name, (variables, deployments, site, namespace)) in clusters {
            let namespace = format!("n{namespace}");
            let spec = json!({"a": variables, "hostname": name, "text": name});
            let cluster = an_object("cluster.x-k8s.io", "Cluster", &name, spec);
            let mut of_it = vec![placed(
                cluster,
                &format!("e{}", site / 2),
                &format!("s{site}"),
            )];
            for (suffix, variables) in deployments {
                // Of others the names would be the same.
                let own = format!("{name}-x-{suffix}");
                let reference = json!({"kind": "DevMachineTemplate", "name": own});
                let spec = json!({"clusterName": name, "infrastructureRef": reference});
                of_it.push(an_object(
                    "cluster.x-k8s.io",
                    "MachineDeployment",
                    &own,
                    spec,
                ));
                let group = "infrastructure.cluster.x-k8s.io";
                of_it.push(an_object(group, "DevMachineTemplate", &own, variables));
            }
            for object in &mut of_it {
                object["metadata"]["namespace"] = json!(namespace);
            }
            objects.extend(of_it);
        }
        objects
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn an_import_renders_to_what_was_imported(objects in any_clusters(), has_levels: bool) {
        let levels = if has_levels { levels().to_vec() } else { Vec::new() };
        let inventory = import(&objects, &levels).unwrap();
        prop_assert_eq!(rendered(inventory), by_name(objects));
    }
}
