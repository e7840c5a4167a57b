//! After an edit those clusters are rendered again that read what was edited, and no others.

use std::collections::BTreeSet;

use inventory::{Fleet, Memo};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Three sites of two environments with two clusters each, which have a template of their own or that of their environment.
fn objects() -> Vec<Value> {
    let object = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "inventory.windlass.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": "default"}, "spec": spec})
    };
    let template = json!({"backEnd": "Plain", "documents": [{"object": {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": "{{ data | default(omit) }}"}}]});
    let levels =
        json!([{"name": "environment", "kind": "Environment"}, {"name": "site", "kind": "Site"}]);
    let mut all = vec![
        object("Hierarchy", "default", json!({"levels": levels})),
        object("ClusterTemplate", "t", template.clone()),
        object("ClusterTemplate", "own", template),
    ];
    for environment in ["live", "test"] {
        let spec = json!({"template": "t", "values": {"data": {"e": 0}}});
        all.push(object("Environment", environment, spec));
    }
    for (site, environment) in [("x", "live"), ("y", "live"), ("z", "test")] {
        let parents = json!({"environment": environment});
        let spec = json!({"parents": parents, "values": {"data": {"s": 0}}});
        all.push(object("Site", site, spec));
        for number in 0..2 {
            let mut spec = json!({"parents": {"site": site}, "values": {"data": {"c": 0}}});
            if number == 1 {
                spec["template"] = json!("own");
            }
            all.push(object("FleetCluster", &format!("{site}{number}"), spec));
        }
    }
    all
}

/// Renders all clusters by what is remembered. Gives what they come to, and which were rendered.
fn render(
    memo: &mut Memo<Result<Vec<Value>, String>>,
    objects: &[Value],
) -> (Vec<Result<Vec<Value>, String>>, BTreeSet<String>) {
    let fleet = Fleet::read(objects.to_vec(), "default").unwrap();
    memo.retain(&fleet);
    let mut rendered = BTreeSet::new();
    let mut all = Vec::new();
    for cluster in fleet.clusters() {
        let fresh = || match fleet.render(&cluster) {
            Ok(made) => Ok(made.objects()),
            Err(problems) => Err(problems.to_string()),
        };
        let made = memo.render(&fleet, &cluster, || {
            rendered.insert(cluster.name.clone());
            fresh()
        });
        assert_eq!(made, fresh(), "{cluster}");
        all.push(made);
    }
    (all, rendered)
}

/// Which clusters an edit of an object has rendered again.
fn rendered_after(kind: &str, name: &str, edit: impl FnOnce(&mut Value)) -> Vec<String> {
    let mut all = objects();
    let mut memo = Memo::default();
    assert_eq!(render(&mut memo, &all).1.len(), 6);
    let is = |object: &&mut Value| object["kind"] == kind && object["metadata"]["name"] == name;
    edit(all.iter_mut().find(is).unwrap());
    let (_, rendered) = render(&mut memo, &all);
    assert_eq!(render(&mut memo, &all).1, BTreeSet::new());
    rendered.into_iter().collect()
}

#[test]
fn an_edit_renders_the_clusters_below_it() {
    let value = |object: &mut Value| object["spec"]["values"]["data"]["new"] = json!(1);
    assert_eq!(rendered_after("Site", "x", value), ["x0", "x1"]);
    assert_eq!(rendered_after("FleetCluster", "y1", value), ["y1"]);
    let below_live = ["x0", "x1", "y0", "y1"];
    assert_eq!(rendered_after("Environment", "live", value), below_live);
    let document = |object: &mut Value| {
        object["spec"]["documents"][0]["object"]["metadata"]["name"] = json!("d");
    };
    let of_their_own = ["x1", "y1", "z1"];
    assert_eq!(
        rendered_after("ClusterTemplate", "own", document),
        of_their_own
    );
    let rule = |object: &mut Value| {
        object["spec"]["merges"] = json!([{"path": "data", "strategy": "First"}]);
    };
    assert_eq!(rendered_after("Hierarchy", "default", rule).len(), 6);
    let parent = |object: &mut Value| object["spec"]["parents"]["environment"] = json!("test");
    assert_eq!(rendered_after("Site", "x", parent), ["x0", "x1"]);
}

#[test]
fn what_is_the_same_or_only_has_another_status_renders_nothing() {
    let none: [&str; 0] = [];
    assert_eq!(rendered_after("Site", "x", |_| {}), none);
    let status = |object: &mut Value| {
        object["status"] = json!({"ready": true});
        object["metadata"]["resourceVersion"] = json!("7");
    };
    assert_eq!(rendered_after("Site", "x", status), none);
    assert_eq!(rendered_after("FleetCluster", "x0", status), none);
}

#[test]
fn what_is_wrong_is_told_anew() {
    // What there is instead is another thing when another object goes.
    let mut all = objects();
    let mut memo = Memo::default();
    let lost = json!({"site": "nowhere"});
    let is = |object: &&mut Value| object["metadata"]["name"] == "x0";
    all.iter_mut().find(is).unwrap()["spec"]["parents"] = lost;
    render(&mut memo, &all);
    all.retain(|object| object["metadata"]["name"] != "z");
    let (_, rendered) = render(&mut memo, &all);
    assert_eq!(rendered.into_iter().collect::<Vec<_>>(), ["x0", "z0", "z1"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// [`render`] holds each cluster against a rendering of its own.
    #[test]
    fn what_is_remembered_is_what_would_be_rendered(edits in prop::collection::vec((0..14_usize, 0..4_u8, 0..3_u8), 1..12)) {
        let mut all = objects();
        let mut memo = Memo::default();
        for (number, what, value) in edits {
            let object = &mut all[number];
            match what {
                0 if object["spec"].get("values").is_some() => object["spec"]["values"]["data"]["s"] = json!(value),
                1 if object["kind"] == "Site" => object["spec"]["parents"]["environment"] = json!(["live", "test", "gone"][usize::from(value)]),
                2 if object["kind"] == "FleetCluster" => object["spec"]["parents"]["site"] = json!(["x", "z", "gone"][usize::from(value)]),
                3 if object["kind"] == "FleetCluster" => object["spec"]["template"] = json!(["t", "own", "gone"][usize::from(value)]),
                _ => {}
            }
            render(&mut memo, &all);
        }
    }
}
