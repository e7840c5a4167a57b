//! Existing clusters as an inventory: it renders to exactly what they are, and says what they share once.

use std::collections::BTreeMap;

use api::cluster::request;
use inventory::{
    Fleet,
    import::{Kind, Level, import},
};
use proptest::prelude::*;
use serde_json::{Value, json};

const API_VERSION: &str = "kubespray.k8s.io/v1";
const ENVIRONMENT: &str = "acme.example/environment";
const SITE: &str = "acme.example/site";

pub(crate) fn levels() -> [Level; 2] {
    [(Kind::Environment, ENVIRONMENT), (Kind::Site, SITE)].map(|(kind, label)| Level {
        kind,
        label: Some(label.to_owned()),
    })
}

fn an_object(kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

fn a_cluster(namespace: &str, variables: &Value) -> Value {
    an_object(
        "Cluster",
        namespace,
        "k",
        &json!({
            "kubespray": {"version": "2.30.0"},
            "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
            "nodes": {"all": {"deploy": {"extraVars": variables}}},
        }),
    )
}

pub(crate) fn placed(mut cluster: Value, environment: &str, site: &str) -> Value {
    cluster["metadata"]["labels"] = json!({ENVIRONMENT: environment, SITE: site});
    cluster
}

pub(crate) fn rendered(inventory: Vec<Value>) -> BTreeMap<String, Value> {
    let fleet = Fleet::read(inventory, "default").unwrap();
    let mut all = Vec::new();
    fleet
        .render_all(|cluster| all.extend(cluster.objects()))
        .unwrap();
    by_name(all)
}

pub(crate) fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
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

pub(crate) fn values<'a>(inventory: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut objects = inventory.iter();
    let is = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    &objects.find(is).unwrap()["spec"]["values"]
}

#[test]
fn what_the_clusters_of_a_site_share_stands_at_the_site() {
    let mut one = a_cluster(
        "a",
        &json!({"dns": ["10.0.0.1"], "mtu": 1500, "text": "{{ groups.all }} ${HOME}"}),
    );
    let other = a_cluster("b", &json!({"dns": ["10.0.0.1"], "mtu": 9000}));
    one["metadata"]["annotations"] = json!({"acme.example/owner": "shop"});
    let node = an_object(
        "ClusterNode",
        "a",
        "m",
        &json!({"type": "master", "inventory": {"ansible_host": "10.0.0.1"}}),
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
        json!({"spec": {
            "kubespray": {"version": "2.30.0"},
            "ssh": {"user": "root", "privateKeySecretRef": {"name": "ssh"}},
            "nodes": {"all": {"deploy": {"extraVars": {"dns": ["10.0.0.1"]}}}},
        }})
    );
    assert_eq!(
        *values(&inventory, "FleetCluster", "b-k"),
        json!({"name": "k", "namespace": "b", "nodes": {}, "spec": {"nodes": {"all": {"deploy": {"extraVars": {"mtu": 9000}}}}}})
    );
    assert_eq!(rendered(inventory), wanted);
}

#[test]
fn what_is_of_several_sites_stands_above_them_and_what_is_of_one_does_not() {
    let all = [
        placed(a_cluster("a", &json!({"all": 1, "at": "x"})), "live", "x"),
        placed(a_cluster("b", &json!({"all": 1, "at": "x"})), "live", "x"),
        placed(a_cluster("c", &json!({"all": 1, "at": "y"})), "live", "y"),
        placed(a_cluster("d", &json!({"all": 2})), "test", "z"),
        placed(a_cluster("e", &json!({"all": 2})), "test", "z"),
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
    let plain = |namespace: &str| a_cluster(namespace, &json!({}));
    let mut second = plain("a");
    second["metadata"]["name"] = json!("l");
    let mut moving = plain("a");
    moving["metadata"]["annotations"] = json!({"windlass.dev/moving": "being moved to elsewhere"});
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
            &[plain("a"), an_object("ClusterNode", "b", "m", &json!({}))],
            &[],
        ),
        said(&[plain("a"), plain("a")], &[]),
        said(&[moving, plain("b")], &[]),
        said(
            &[a_cluster("a", &json!({"x": [{"$template": "{{ y }}"}]}))],
            &[],
        ),
        said(
            &[a_cluster("a", &json!({"x": {"vault": {"path": "p"}}}))],
            &[],
        ),
    ];
    insta::assert_snapshot!(cases.join("\n"));
}

#[test]
fn an_adopted_cluster_stays_one_and_makes_none_of_its_neighbours() {
    let of = |namespace: &str| {
        let text = [
            include_str!("../../../../examples/adopted/objects/cluster.yaml"),
            include_str!("../../../../examples/adopted/objects/nodes.yaml"),
        ];
        let mut objects = crate::objects(&text.join("---\n"));
        for object in &mut objects {
            object["metadata"]["namespace"] = json!(namespace);
        }
        objects
    };
    let mut found = of("a");
    found.extend(of("b"));
    let mut wanted = found.clone();
    for object in &mut wanted {
        object.as_object_mut().unwrap().remove("status");
    }
    // What both say, and what was asked of one.
    for cluster in [&mut found, &mut wanted] {
        for object in cluster
            .iter_mut()
            .filter(|object| object["kind"] == "Cluster")
        {
            object["metadata"]["annotations"]["acme.example/owner"] = json!("shop");
        }
    }
    found[0]["metadata"]["annotations"]["kubespray.k8s.io/converge"] = json!("1");
    for note in [
        "start-again",
        "moved-to",
        "moved-from",
        "generations-before",
    ] {
        found[0]["metadata"]["annotations"][format!("windlass.dev/{note}")] = json!("1");
    }
    let inventory = import(&found, &[]).unwrap();
    let site = values(&inventory, "Site", "imported");
    assert_eq!(site["annotations"], json!({"acme.example/owner": "shop"}));
    let own = values(&inventory, "FleetCluster", "a-mycluster");
    assert_eq!(
        own["annotations"],
        json!({"kubespray.k8s.io/adopted": "true"})
    );
    let created = json!({"windlass.dev/created": "2000-01-01T00:00:00Z"});
    assert_eq!(own["nodes"]["node1"]["annotations"], created);
    assert_eq!(rendered(inventory), by_name(wanted));
}

/// A request that the import does not know would be asked for anew by whoever applies the inventory.
#[test]
fn every_request_to_kubespray_is_left_out() {
    let requests = request::ALL.map(|name| (name.to_owned(), json!("x")));
    let requests: serde_json::Map<_, _> = requests.into_iter().collect();
    let cluster = a_cluster("a", &json!({}));
    let mut asked = cluster.clone();
    asked["metadata"]["annotations"] = requests.into();
    let inventory = import(&[asked], &[]).unwrap();
    assert_eq!(rendered(inventory), by_name(vec![cluster]));
}

#[test]
fn what_an_inventory_would_not_render_is_refused() {
    let mut cluster = a_cluster("a", &json!({}));
    cluster["data"] = json!({"x": "y"});
    let problems = import(&[cluster], &[]).unwrap_err();
    assert_eq!(problems.0[0].rule.name(), "Rendered", "{problems}");
    assert_eq!(problems.0[0].path.to_string(), "data.x");
}

#[test]
fn the_same_hosts_in_two_clusters_are_those_of_neither_neighbour() {
    let host = json!({"type": "worker", "inventory": {"ansible_host": "10.0.0.1"}});
    let objects = ["a", "b"].map(|namespace| {
        [
            a_cluster(namespace, &json!({})),
            an_object("ClusterNode", namespace, "n", &host),
        ]
    });
    let inventory = import(&objects.concat(), &[]).unwrap();
    no_level_has_hosts(&inventory);
    for cluster in ["a-k", "b-k"] {
        let own = values(&inventory, "FleetCluster", cluster);
        assert_eq!(own["nodes"], json!({"n": {"spec": host}}));
    }
}

/// A cluster to come would have the hosts of others, and a host that is taken out of its cluster would be left.
fn no_level_has_hosts(inventory: &[Value]) {
    let kinds = ["Environment", "Site"];
    let levels = inventory
        .iter()
        .filter(|object| kinds.iter().any(|kind| object["kind"] == *kind));
    for level in levels {
        let values = &level["spec"]["values"];
        assert!(values.get("nodes").is_none(), "{level}");
        assert!(values.get("name").is_none(), "{level}");
    }
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

pub(crate) fn any_variables() -> impl Strategy<Value = Value> {
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
                a_cluster(&namespace, &variables),
                &format!("e{}", site / 2),
                &format!("s{site}"),
            );
            if has_own_name {
                cluster["metadata"]["name"] = json!(format!("k{number}"));
            }
            objects.push(cluster);
            for (name, variables) in nodes {
                let spec = json!({"type": "worker", "inventory": {"ansible_host": "10.0.0.1", "extra": variables}});
                objects.push(an_object("ClusterNode", &namespace, &name, &spec));
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
        no_level_has_hosts(&inventory);
        // Written to files and read again.
        let texts: Vec<_> = inventory.iter().map(|object| serde_saphyr::to_string(object).unwrap()).collect();
        let read = crate::objects(&texts.join("---\n"));
        prop_assert_eq!(&read, &inventory);
        prop_assert_eq!(rendered(inventory), by_name(objects));
    }

    #[test]
    fn no_two_clusters_of_a_site_both_say_what_all_say(objects in any_clusters()) {
        let inventory = import(&objects, &levels()).unwrap();
        let mut sites = BTreeMap::<String, Vec<Value>>::new();
        for object in inventory.iter().filter(|object| object["kind"] == "FleetCluster") {
            let site = object["spec"]["parents"]["site"].to_string();
            let mut values = object["spec"]["values"].clone();
            // A cluster's name and hosts stand with it.
            values.as_object_mut().unwrap().retain(|key, _| key != "nodes" && key != "name");
            sites.entry(site).or_default().push(values);
        }
        for clusters in sites.values().filter(|clusters| clusters.len() > 1) {
            let leaves = |values: &Value| {
                let mut found = Vec::new();
                leaves(values, "", &mut found);
                found
            };
            let mut all = clusters.iter().map(leaves);
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
