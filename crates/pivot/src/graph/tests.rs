//! Graphs of objects in small: `KIND/NAME` with the owners behind it.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::*;
use crate::kind::Kind;

const HOME: &str = "team";

fn kind(group: &str, name: &str, scope: &str, label: &str) -> Arc<Kind> {
    if group.is_empty() {
        return Arc::new(match name {
            "Secret" => Kind::secret(),
            _ => Kind::config_map(),
        });
    }
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "x", "labels": {label: ""}},
        "spec": {
            "group": group, "scope": scope, "names": {"kind": name, "plural": name.to_lowercase()},
            "versions": [{"name": "v1", "served": true, "storage": true}],
        },
    }))
    .unwrap();
    Arc::new(Kind::of(&definition).unwrap())
}

/// An object whose uid is KIND/NAME.
fn object(shown: &str, owners: &[&str], more: &Value) -> Item {
    let (name_of_kind, name) = shown.split_once('/').unwrap();
    let kind = match name_of_kind {
        "Secret" | "ConfigMap" => kind("", name_of_kind, "", ""),
        "Cluster" | "ClusterClass" | "Machine" => {
            kind("cluster.x-k8s.io", name_of_kind, "Namespaced", "none")
        }
        "ClusterResourceSet" | "ClusterResourceSetBinding" => kind(
            "addons.cluster.x-k8s.io",
            name_of_kind,
            "Namespaced",
            "none",
        ),
        "Identity" => kind("infra", name_of_kind, "Cluster", MOVE_HIERARCHY),
        "Pool" => kind("infra", name_of_kind, "Namespaced", MOVE),
        _ => kind("infra", name_of_kind, "Namespaced", "none"),
    };
    let reference = |owner: &&str| {
        let (kind, name) = owner.split_once('/').unwrap();
        json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": owner})
    };
    let owners: Vec<_> = owners.iter().map(reference).collect();
    let mut value = json!({
        "apiVersion": kind.resource.api_version, "kind": name_of_kind,
        "metadata": {"name": name, "uid": shown, "ownerReferences": owners},
    });
    if kind.is_namespaced {
        value["metadata"]["namespace"] = json!(HOME);
    }
    for part in ["metadata", "spec"] {
        for (field, content) in more[part].as_object().into_iter().flatten() {
            value[part][field] = content.clone();
        }
    }
    Item {
        kind,
        object: serde_json::from_value(value).unwrap(),
    }
}

fn graph(items: Vec<Item>) -> Graph {
    Graph::new(items, HOME, &BTreeSet::new())
}

fn groups(graph: &Graph) -> Vec<Vec<String>> {
    let shown = |group: Vec<&Node>| group.iter().map(|node| node.item.shown(HOME)).collect();
    graph.groups().map(shown).collect()
}

#[test]
fn owners_come_before_what_they_own_whatever_order_is_read() {
    let mut items = vec![
        object("Secret/m", &["Config/m"], &json!({})),
        object("Config/m", &["Machine/m", "Cluster/c"], &json!({})),
        object("Machine/m", &["Cluster/c"], &json!({})),
        object("Cluster/c", &[], &json!({})),
        object("Secret/loose", &[], &json!({})),
        object("Template/loose", &[], &json!({})),
    ];
    for _ in 0..items.len() {
        items.rotate_left(1);
        let expected = [["Cluster/c"], ["Machine/m"], ["Config/m"], ["Secret/m"]];
        assert_eq!(groups(&graph(items.clone())), expected);
    }
}

#[test]
fn a_secret_that_nobody_owns_is_of_the_cluster_that_it_is_named_after() {
    let cases = [
        ("c-kubeconfig", true),
        ("c-ca", true),
        ("c-etcd", true),
        ("c-sa", true),
        ("c-proxy", true),
        ("c-apiserver-etcd-client", true),
        ("c", false),
        ("cca", false),
        ("c-other", false),
        ("d-ca", false),
        ("c-d-ca", false),
    ];
    for (name, moves) in cases {
        let shown = format!("Secret/{name}");
        let graph = graph(vec![
            object("Cluster/c", &[], &json!({})),
            object(&shown, &[], &json!({})),
        ]);
        assert_eq!(graph.moving().count() == 2, moves, "{name}");
    }
    let owned = object("Secret/c-ca", &["Template/t"], &json!({}));
    let graph = graph(vec![
        object("Cluster/c", &[], &json!({})),
        object("Template/t", &[], &json!({})),
        owned,
    ]);
    assert_eq!(graph.names(), ["Cluster/c"], "its owner says whose it is");
}

#[test]
fn a_class_comes_before_its_clusters_in_each_version_of_the_contract() {
    for topology in [json!({"class": "a"}), json!({"classRef": {"name": "a"}})] {
        let cluster = object("Cluster/c", &[], &json!({"spec": {"topology": topology}}));
        let class = object("ClusterClass/a", &[], &json!({}));
        let other = object("ClusterClass/b", &[], &json!({}));
        let expected = [vec!["ClusterClass/a", "ClusterClass/b"], vec!["Cluster/c"]];
        assert_eq!(groups(&graph(vec![cluster, other, class])), expected);
    }
}

#[test]
fn what_a_resource_set_names_and_its_bindings_go_with_it() {
    let resources = json!([{"kind": "ConfigMap", "name": "a"}, {"kind": "Secret", "name": "b"}, {"kind": "Secret", "name": "none"}]);
    let graph = graph(vec![
        object(
            "ClusterResourceSetBinding/c",
            &["ClusterResourceSet/s"],
            &json!({"spec": {"clusterName": "c"}}),
        ),
        object("ConfigMap/a", &[], &json!({})),
        object("ConfigMap/b", &[], &json!({})),
        object("Secret/b", &[], &json!({})),
        object(
            "ClusterResourceSet/s",
            &[],
            &json!({"spec": {"resources": resources}}),
        ),
        object("Cluster/c", &[], &json!({})),
    ]);
    let expected = [
        vec!["ClusterResourceSet/s", "Cluster/c"],
        vec!["ConfigMap/a", "Secret/b", "ClusterResourceSetBinding/c"],
    ];
    let sorted = |groups: Vec<Vec<String>>| -> Vec<BTreeSet<String>> {
        groups
            .into_iter()
            .map(|group| group.into_iter().collect())
            .collect()
    };
    let expected = expected.map(|group| group.into_iter().map(str::to_owned).collect());
    assert_eq!(sorted(groups(&graph)), expected);
}

#[test]
fn what_more_than_the_namespace_needs_is_copied_and_stays() {
    let mut secret = object("Secret/s", &["Identity/i"], &json!({}));
    secret.object.metadata.namespace = Some("system".to_owned());
    let mut labelled = object(
        "Secret/l",
        &[],
        &json!({"metadata": {"labels": {MOVE: ""}}}),
    );
    labelled.object.metadata.namespace = Some("system".to_owned());
    let used = BTreeSet::from([(HOME.to_owned(), "used".to_owned())]);
    let cluster = object(
        "Cluster/c",
        &[],
        &json!({"spec": {"topology": {"class": "used"}}}),
    );
    let graph = Graph::new(
        vec![
            object("Identity/i", &[], &json!({})),
            secret,
            labelled,
            object("ClusterClass/used", &[], &json!({})),
            object("Template/of-class", &["ClusterClass/used"], &json!({})),
            object("ClusterClass/own", &[], &json!({})),
            object("Pool/p", &[], &json!({})),
            cluster,
        ],
        HOME,
        &used,
    );
    let (mut stays, mut goes) = (BTreeSet::new(), BTreeSet::new());
    for node in graph.moving() {
        let names = if node.stays() { &mut stays } else { &mut goes };
        names.insert(node.item.uid());
    }
    let expected = [
        "ClusterClass/used",
        "Identity/i",
        "Secret/l",
        "Secret/s",
        "Template/of-class",
    ];
    assert_eq!(stays, BTreeSet::from(expected));
    assert_eq!(
        goes,
        BTreeSet::from(["Cluster/c", "ClusterClass/own", "Pool/p"])
    );
}

#[test]
fn what_cannot_follow_its_owners_is_named_once_where_it_begins() {
    let graph = graph(vec![
        object("Cluster/c", &["Fleet/unseen"], &json!({})),
        object("Machine/m", &["Cluster/c"], &json!({})),
        object("Cluster/d", &[], &json!({})),
        object("Machine/n", &["Cluster/d", "Template/loose"], &json!({})),
        object("Template/loose", &[], &json!({})),
        object("A/a", &["B/b", "Cluster/d"], &json!({})),
        object("B/b", &["A/a"], &json!({})),
    ]);
    let stranded = graph.stranded();
    let stranded: Vec<_> = stranded
        .iter()
        .map(|one| (one.item.uid(), one.owner.as_deref()))
        .collect();
    let expected = [
        ("Cluster/c", Some("Fleet unseen")),
        ("Machine/n", Some("Template loose")),
        ("A/a", None),
        ("B/b", None),
    ];
    assert_eq!(stranded, expected);
    assert_eq!(graph.names(), ["Cluster/d"]);
}

#[test]
fn copies_of_an_interrupted_move_have_an_order_without_what_is_missing() {
    let items = vec![
        object("Machine/m", &["Set/missing"], &json!({})),
        object("Config/m", &["Machine/m"], &json!({})),
        object("Cluster/c", &["Cluster/c"], &json!({})),
    ];
    let groups = owners_first(items);
    let names: Vec<Vec<_>> = groups
        .iter()
        .map(|group| group.iter().map(Item::uid).collect())
        .collect();
    assert_eq!(
        names,
        [vec!["Machine/m"], vec!["Config/m"], vec!["Cluster/c"]]
    );
}
