//! Existing clusters as an inventory: it renders to exactly what they are, and says what they share once.

use std::collections::BTreeMap;

use inventory::{
    Fleet,
    import::{Kind, Level, import},
};
use proptest::prelude::*;
use serde_json::{Value, json};

const API_VERSION: &str = "kubespray.k8s.io/v1";
const ENVIRONMENT: &str = "acme.example/environment";
const SITE: &str = "acme.example/site";

fn levels() -> [Level; 2] {
    [(Kind::Environment, ENVIRONMENT), (Kind::Site, SITE)].map(|(kind, label)| Level {
        kind,
        label: Some(label.to_owned()),
    })
}

fn an_object(kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

fn a_cluster(namespace: &str, variables: Value) -> Value {
    an_object(
        "Cluster",
        namespace,
        "k",
        json!({
            "kubespray": {"version": "2.30.0"},
            "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
            "nodes": {"all": {"deploy": {"extraVars": variables}}},
        }),
    )
}

fn placed(mut cluster: Value, environment: &str, site: &str) -> Value {
    cluster["metadata"]["labels"] = json!({ENVIRONMENT: environment, SITE: site});
    cluster
}

fn rendered(inventory: Vec<Value>) -> BTreeMap<String, Value> {
    let fleet = Fleet::read(inventory, "default").unwrap();
    let mut all = Vec::new();
    fleet
        .render_all(|cluster| all.extend(cluster.objects()))
        .unwrap();
    by_name(all)
}

fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let many = objects.len();
    let name = |object: &Value| {
        let metadata = &object["metadata"];
        format!(
            "{} {} {}",
            object["kind"], metadata["namespace"], metadata["name"]
        )
    };
    let named: BTreeMap<_, _> = objects
        .into_iter()
        .map(|object| (name(&object), object))
        .collect();
    assert_eq!(named.len(), many, "an object stands there twice");
    named
}

fn values<'a>(inventory: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut objects = inventory.iter();
    let is = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    &objects.find(is).unwrap()["spec"]["values"]
}

#[test]
fn what_the_clusters_of_a_site_share_stands_at_the_site() {
    let mut one = a_cluster(
        "a",
        json!({"dns": ["10.0.0.1"], "mtu": 1500, "text": "{{ groups.all }} ${HOME}"}),
    );
    let other = a_cluster("b", json!({"dns": ["10.0.0.1"], "mtu": 9000}));
    one["metadata"]["annotations"] = json!({"acme.example/owner": "shop"});
    let node = an_object(
        "ClusterNode",
        "a",
        "m",
        json!({"type": "master", "inventory": {"ansible_host": "10.0.0.1"}}),
    );
    let wanted = by_name(vec![one.clone(), other.clone(), node.clone()]);
    // What an API and operators write into objects is not theirs.
    one["metadata"]["annotations"]["kubespray.k8s.io/converge"] = json!("x");
    one["metadata"]["uid"] = json!("1");
    one["status"] = json!({"state": "Created"});
    let theirs = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "k", "namespace": "a"}});
    let inventory = import(&[one, other, node, theirs], &[]).unwrap();
    assert_eq!(
        *values(&inventory, "Site", "imported"),
        json!({"name": "k", "spec": {
            "kubespray": {"version": "2.30.0"},
            "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
            "nodes": {"all": {"deploy": {"extraVars": {"dns": ["10.0.0.1"]}}}},
        }})
    );
    assert_eq!(
        *values(&inventory, "FleetCluster", "b-k"),
        json!({"namespace": "b", "nodes": {}, "spec": {"nodes": {"all": {"deploy": {"extraVars": {"mtu": 9000}}}}}})
    );
    assert_eq!(rendered(inventory), wanted);
}

#[test]
fn what_is_of_several_sites_stands_above_them_and_what_is_of_one_does_not() {
    let all = [
        placed(a_cluster("a", json!({"all": 1, "at": "x"})), "live", "x"),
        placed(a_cluster("b", json!({"all": 1, "at": "x"})), "live", "x"),
        placed(a_cluster("c", json!({"all": 1, "at": "y"})), "live", "y"),
        placed(a_cluster("d", json!({"all": 2})), "test", "z"),
        placed(a_cluster("e", json!({"all": 2})), "test", "z"),
    ];
    let inventory = import(&all, &levels()).unwrap();
    let at = |kind: &str, name: &str| {
        values(&inventory, kind, name)["spec"]["nodes"]["all"]["deploy"]["extraVars"].clone()
    };
    assert_eq!(at("Environment", "live"), json!({"all": 1}));
    assert_eq!(at("Site", "x"), json!({"at": "x"}));
    assert_eq!(*values(&inventory, "Site", "y"), json!({}));
    // Of the one site of an environment the site speaks.
    assert_eq!(*values(&inventory, "Environment", "test"), json!({}));
    assert_eq!(at("Site", "z"), json!({"all": 2}));
    assert_eq!(rendered(inventory), by_name(all.to_vec()));
}

#[test]
fn clusters_that_contradict_are_refused() {
    let said = |objects: &[Value], levels: &[Level]| {
        let problems = import(objects, levels).unwrap_err();
        let rules: Vec<_> = problems
            .0
            .iter()
            .map(|problem| problem.rule.name())
            .collect();
        format!("{}: {problems}", rules.join(" "))
    };
    let plain = |namespace: &str| a_cluster(namespace, json!({}));
    let mut second = plain("a");
    second["metadata"]["name"] = json!("l");
    let cases = [
        said(
            &[
                placed(plain("a"), "live", "x"),
                placed(plain("b"), "test", "x"),
            ],
            &levels(),
        ),
        said(
            &[placed(plain("a"), "live", "x"), plain("b")],
            &levels()[1..],
        ),
        said(&[plain("a"), second], &[]),
        said(
            &[plain("a"), an_object("ClusterNode", "b", "m", json!({}))],
            &[],
        ),
        said(&[plain("a"), plain("a")], &[]),
        said(
            &[a_cluster("a", json!({"x": [{"$template": "{{ y }}"}]}))],
            &[],
        ),
        said(
            &[a_cluster("a", json!({"x": {"vault": {"path": "p"}}}))],
            &[],
        ),
    ];
    insta::assert_snapshot!(cases.join("\n"));
}

/// Values of few kinds, so that clusters have some in common by chance.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (0..2).prop_map(|number| json!(number)),
        Just(json!("{{ cluster.name }}")),
        Just(json!(null)),
        Just(json!({})),
        Just(json!([])),
        Just(json!({"secretKeyRef": {"name": "s", "key": "k"}})),
        Just(json!({"secretKeyRef": {"name": "s", "key": "l"}})),
        Just(json!({"secretKeyRef": {"name": "s", "key": "k"}, "a": 1})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_variables() -> impl Strategy<Value = Value> {
    let value = any_value();
    prop::collection::btree_map("[a-c]", value, 0..4)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

fn any_clusters() -> impl Strategy<Value = Vec<Value>> {
    let nodes = prop::collection::btree_map("n[a-b]", any_variables(), 0..3);
    let one = (any_variables(), nodes, 0..4_usize, any::<bool>());
    prop::collection::vec(one, 1..6).prop_map(|clusters| {
        let mut objects = Vec::new();
        for (number, (variables, nodes, site, has_own_name)) in clusters.into_iter().enumerate() {
            let namespace = format!("ns{number}");
            // Two sites are of one environment each.
            let mut cluster = placed(
                a_cluster(&namespace, variables),
                &format!("e{}", site / 2),
                &format!("s{site}"),
            );
            if has_own_name {
                cluster["metadata"]["name"] = json!(format!("k{number}"));
            }
            objects.push(cluster);
            for (name, variables) in nodes {
                let spec = json!({"type": "worker", "inventory": {"ansible_host": "10.0.0.1", "extra": variables}});
                objects.push(an_object("ClusterNode", &namespace, &name, spec));
            }
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
        // Written to files and read again.
        let texts: Vec<_> = inventory.iter().map(|object| serde_saphyr::to_string(object).unwrap()).collect();
        let read = crate::objects(&texts.join("---\n"));
        prop_assert_eq!(&read, &inventory);
        prop_assert_eq!(rendered(inventory), by_name(objects));
    }

    #[test]
    fn no_two_clusters_of_a_site_both_say_what_all_say(objects in any_clusters()) {
        let inventory = import(&objects, &levels()).unwrap();
        let mut sites = BTreeMap::<String, Vec<&Value>>::new();
        for object in inventory.iter().filter(|object| object["kind"] == "FleetCluster") {
            let site = object["spec"]["parents"]["site"].to_string();
            sites.entry(site).or_default().push(&object["spec"]["values"]);
        }
        for clusters in sites.values().filter(|clusters| clusters.len() > 1) {
            let leaves = |values: &Value| {
                let mut found = Vec::new();
                leaves(values, "", &mut found);
                found
            };
            let mut all = clusters.iter().map(|values| leaves(values));
            let mut shared = all.next().unwrap();
            all.for_each(|others| shared.retain(|leaf| others.contains(leaf)));
            prop_assert!(shared.is_empty(), "{:?} in {:?}", shared, clusters);
        }
    }
}

/// What stands below no other map, with its path. Of a reference to a secret no part is one.
fn leaves(value: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    match value.as_object() {
        Some(map) if !map.is_empty() && !map.contains_key("secretKeyRef") => {
            for (key, value) in map {
                leaves(value, &format!("{path}.{key}"), found);
            }
        }
        _ => found.push((path.to_owned(), value.clone())),
    }
}
