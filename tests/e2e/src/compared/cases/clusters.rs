//! Clusters: what is refused of a new one, and what is asked of one that is complete.

use serde_json::{Value, json};

use super::{Case, Who, everybody, junk, no_bodies, no_patches, pages};

const ALL: &str = "/v1/clusters";
const DETAIL: &str = "/v1/clusters/detail";
const ONE: &str = "/v1/clusters/{cluster}";
const GROUPS: &str = "/v1/clusters/{cluster}/nodegroups";

/// The cluster of all that follows.
pub(super) fn made() -> Case {
    let body = json!({
        "name": "first", "cluster_template_id": "{large}", "node_count": 1, "labels": {"a": "b"}, "merge_labels": true,
    });
    Case::new("POST", ALL).json(body).kept_as("cluster")
}

/// Each member with what it cannot be. What could be taken is left out: there is to be one cluster alone.
pub(super) fn refused() -> Vec<Case> {
    let mut all = Vec::new();
    for member in [
        "name",
        "cluster_template_id",
        "labels",
        "merge_labels",
        "floating_ip_enabled",
        "master_lb_enabled",
        "node_count",
        "master_count",
        "create_timeout",
        "docker_volume_size",
        "uuid",
        "status",
        "health_status",
        "api_address",
        "project_id",
        "word",
    ] {
        for value in junk().into_iter().filter(|value| !is_good(member, value)) {
            let mut body = json!({"name": "none", "cluster_template_id": "{large}"});
            body[member] = value;
            all.push(Case::new("POST", ALL).json(body));
        }
    }
    for body in [
        json!({"name": "none"}),
        json!({"name": "1none", "cluster_template_id": "{large}"}),
        json!({"name": "no ne", "cluster_template_id": "{large}"}),
        json!({"name": "n".repeat(243), "cluster_template_id": "{large}"}),
        json!({"name": "none", "cluster_template_id": "nowhere"}),
        json!({"name": "none", "cluster_template_id": "{large}", "master_count": 2, "master_lb_enabled": true}),
        json!({"name": "none", "cluster_template_id": "{large}", "master_count": 3}),
        json!({"name": "none", "cluster_template_id": "{large}", "master_count": 0}),
    ] {
        let post = || Case::new("POST", ALL).json(body.clone());
        all.extend([post(), post().at("1.9"), post().by(Who::Bob)]);
    }
    let whole = json!({"name": "none", "cluster_template_id": "{large}", "node_count": 0});
    let post = || Case::new("POST", ALL).json(whole.clone());
    all.extend([post().at("1.9"), post().by(Who::Eve), post().by(Who::Bob)]);
    all
}

/// Whether a cluster could be made with it.
fn is_good(member: &str, value: &Value) -> bool {
    let is_text = value.as_str().is_some_and(|text| !text.is_empty());
    let is_number = |least| match value {
        Value::Number(number) => !number.is_f64() && number.as_i64() >= Some(least),
        Value::String(text) => text.parse::<i64>().is_ok_and(|number| number >= least),
        _ => false,
    };
    match member {
        _ if value.is_null() || value == "" => true,
        "name" => is_text && value != "1" && value != "-1",
        // There may be a template of any name.
        "cluster_template_id" => is_text,
        "labels" => value.is_object(),
        // A truth is whatever Python takes for one.
        "merge_labels" | "floating_ip_enabled" | "master_lb_enabled" => value != "maybe",
        "node_count" | "create_timeout" => {
            is_number(0) || value.is_f64() || value.is_boolean() || value == "true"
        }
        "master_count" | "docker_volume_size" => {
            is_number(1) || value.is_f64() || value.is_boolean() || value == "true"
        }
        _ => false,
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = everybody(&Case::new("GET", ONE));
    for version in ["1.1", "1.12", "1.13"] {
        all.extend([ALL, ONE, DETAIL].map(|path| Case::new("GET", path).at(version)));
    }
    let named = ["/v1/clusters/first", "/v1/clusters/nowhere"];
    all.extend(named.map(|path| Case::new("GET", path)));
    all.extend([ALL, DETAIL].into_iter().flat_map(pages));
    all.extend(everybody(&Case::new("GET", "/v1/stats")));
    all.extend(patched());
    all.extend(resized());
    all.extend(upgraded());
    all.extend(groups());
    all.extend(certificates());
    all.extend(used());
    all.extend([Who::Bob, Who::Eve, Who::Nobody].map(|who| Case::new("DELETE", ONE).by(who)));
    all.push(Case::new("DELETE", "/v1/clusters/nowhere"));
    all
}

fn patched() -> Vec<Case> {
    let mut all = no_patches(ONE);
    let replaced = |member: &str, value: &Value| {
        let body = json!([{"op": "replace", "path": format!("/{member}"), "value": value}]);
        Case::new("PATCH", ONE).json(body)
    };
    for member in [
        "name",
        "labels",
        "keypair",
        "master_count",
        "status",
        "api_address",
        "cluster_template_id",
        "flavor_id",
        "create_timeout",
        "node_addresses",
        "stack_id",
    ] {
        all.push(replaced(member, &json!("1")));
        let body = json!([{"op": "remove", "path": format!("/{member}")}]);
        all.push(Case::new("PATCH", ONE).json(body));
    }
    for value in [json!("word"), json!(-1), json!(1.5), json!(""), json!({})] {
        all.push(replaced("node_count", &value));
    }
    let health = replaced("health_status", &json!("HEALTHY"));
    all.extend([Who::Bob, Who::Eve].map(|who| health.clone().by(who)));
    all.push(replaced("health_status", &json!("WORD")));
    all
}

fn resized() -> Vec<Case> {
    let path = "/v1/clusters/{cluster}/actions/resize";
    let mut all = no_bodies("POST", path);
    let numbers = junk().into_iter();
    // What is a number would be done.
    let numbers = numbers.filter(|value| !is_good("node_count", value) || value.is_null());
    all.extend(numbers.map(|value| Case::new("POST", path).json(json!({"node_count": value}))));
    for body in [
        json!({"node_count": 1, "word": 1}),
        json!({"node_count": 2, "nodegroup": "nowhere"}),
        json!({"node_count": 2, "nodegroup": "default-master"}),
        json!({"node_count": 2, "nodes_to_remove": "word"}),
        json!({"node_count": 2, "nodes_to_remove": {}}),
    ] {
        all.push(Case::new("POST", path).json(body));
    }
    let good = Case::new("POST", path).json(json!({"node_count": 2}));
    let others = [Who::Bob, Who::Eve, Who::Admin, Who::Nobody];
    all.extend(others.map(|who| good.clone().by(who)));
    all
}

fn upgraded() -> Vec<Case> {
    let path = "/v1/clusters/{cluster}/actions/upgrade";
    let mut all = no_bodies("POST", path);
    for body in [
        json!({"max_batch_size": 1}),
        json!({"cluster_template": "nowhere", "max_batch_size": 1}),
        json!({"cluster_template": 1, "max_batch_size": 1}),
        json!({"cluster_template": "{small}", "max_batch_size": 0}),
        json!({"cluster_template": "{small}", "max_batch_size": "word"}),
        json!({"cluster_template": "{small}", "max_batch_size": 1, "word": 1}),
        json!({"cluster_template": "{small}", "max_batch_size": 1, "nodegroup": "nowhere"}),
    ] {
        all.push(Case::new("POST", path).json(body));
    }
    let body = json!({"cluster_template": "{small}", "max_batch_size": 1});
    let good = Case::new("POST", path).json(body);
    all.extend([Who::Bob, Who::Eve, Who::Nobody].map(|who| good.clone().by(who)));
    all
}

fn groups() -> Vec<Case> {
    let mut all = everybody(&Case::new("GET", GROUPS));
    for query in [
        "role=worker",
        "role=master",
        "role=nobody",
        "limit=1",
        "sort_key=name",
        "word=1",
    ] {
        all.push(Case::new("GET", format!("{GROUPS}?{query}")));
    }
    for name in ["default-master", "default-worker", "nowhere"] {
        let one = |method| Case::new(method, format!("{GROUPS}/{name}"));
        all.extend(everybody(&one("GET")));
        all.extend([one("GET").at("1.9"), one("DELETE")]);
    }
    all.extend(no_bodies("POST", GROUPS));
    for body in [
        json!({"name": "default-worker"}),
        json!({"name": "more", "role": "master"}),
        json!({"name": "more", "node_count": -1}),
        json!({"name": "more", "node_count": "word"}),
        json!({"name": "more", "node_count": 1, "min_node_count": 2}),
        json!({"name": "more", "node_count": 3, "max_node_count": 2}),
        json!({"name": "more", "min_node_count": 3, "max_node_count": 2}),
        json!({"name": "more", "max_node_count": -1}),
        json!({"name": "more", "word": 1}),
        json!({"name": "more", "uuid": "word"}),
        json!({"name": "more", "labels": "word"}),
        json!({"name": "more", "node_labels": {"kubernetes.io/word": "a"}}),
        json!({"name": "more", "node_labels": {"-": "a"}}),
        json!({"name": "more", "node_labels": "word"}),
        json!({"name": "more", "node_taints": [{"key": "a", "effect": "Word"}]}),
        json!({"name": "more", "node_taints": [{"effect": "NoSchedule"}]}),
        json!({"name": "more", "node_taints": "word"}),
        json!({"name": "n".repeat(256)}),
    ] {
        all.push(Case::new("POST", GROUPS).json(body));
    }
    let good = Case::new("POST", GROUPS).json(json!({"name": "more", "node_count": 1}));
    all.extend([Who::Bob, Who::Eve, Who::Admin].map(|who| good.clone().by(who)));
    let group = format!("{GROUPS}/default-worker");
    all.extend(no_patches(&group));
    for (member, value) in [
        ("max_node_count", json!("word")),
        ("min_node_count", json!(5)),
        ("min_node_count", json!(-1)),
        ("node_count", json!(2)),
        ("role", json!("word")),
        ("is_default", json!(false)),
        ("node_labels", json!("word")),
        ("node_taints", json!("word")),
    ] {
        let body = json!([{"op": "replace", "path": format!("/{member}"), "value": value}]);
        all.push(Case::new("PATCH", group.clone()).json(body));
    }
    all
}

fn certificates() -> Vec<Case> {
    let path = "/v1/certificates/{cluster}";
    let mut all = everybody(&Case::new("GET", path));
    for kind in ["kubernetes", "etcd", "front_proxy", "word"] {
        all.push(Case::new("GET", format!("{path}?ca_cert_type={kind}")));
    }
    for body in [
        json!({"cluster_uuid": "{cluster}"}),
        json!({"csr": "word"}),
        json!({"cluster_uuid": "{cluster}", "csr": "word"}),
        json!({"cluster_uuid": "{cluster}", "csr": ""}),
        json!({"cluster_uuid": "{cluster}", "csr": 1}),
        json!({"cluster_uuid": "nowhere", "csr": "word"}),
        json!({"cluster_uuid": "{cluster}", "csr": "word", "word": 1}),
    ] {
        all.push(Case::new("POST", "/v1/certificates").json(body));
    }
    for path in [path, "/v1/credentials/{cluster}"] {
        all.extend([Who::Bob, Who::Eve].map(|who| Case::new("PATCH", path).by(who)));
    }
    all
}

/// A template that a cluster is made of.
fn used() -> Vec<Case> {
    let path = "/v1/clustertemplates/{large}";
    let change =
        |member: &str| json!([{"op": "replace", "path": format!("/{member}"), "value": "renamed"}]);
    vec![
        Case::new("DELETE", path),
        Case::new("PATCH", path).json(change("tags")),
        Case::new("PATCH", path).json(change("name")),
        Case::new("GET", path),
    ]
}
