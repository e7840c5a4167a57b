//! Cluster templates: each member of a new one with each value, and each change.

use serde_json::{Value, json};

use super::{Case, Who, everybody, junk, no_patches, pages};

const ALL: &str = "/v1/clustertemplates";
const ONE: &str = "/v1/clustertemplates/{small}";
const OPEN: &str = "/v1/clustertemplates/{open}";

/// Members whose values the real one looks up in other services. A name that is nowhere is another matter than a value that is no
/// name.
const LOOKED_UP: [&str; 7] = [
    "image_id",
    "flavor_id",
    "master_flavor_id",
    "keypair_id",
    "external_network_id",
    "fixed_network",
    "fixed_subnet",
];

const OTHERS: [&str; 27] = [
    "name",
    "coe",
    "dns_nameserver",
    "network_driver",
    "apiserver_port",
    "docker_volume_size",
    "docker_storage_driver",
    "cluster_distro",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "volume_driver",
    "registry_enabled",
    "labels",
    "tls_disabled",
    "public",
    "hidden",
    "server_type",
    "insecure_registry",
    "master_lb_enabled",
    "floating_ip_enabled",
    "tags",
    "uuid",
    "project_id",
    "links",
    "created_at",
    "driver",
];

/// A template that both take.
fn template(name: &str) -> Value {
    json!({
        "name": name, "coe": "kubernetes", "image_id": "debian", "server_type": "bm", "external_network_id": "public",
        "flavor_id": "metal", "master_flavor_id": "metal", "network_driver": "calico",
        "labels": {"kube_tag": "v1.34.3"},
    })
}

fn with(member: &str, value: Value) -> Case {
    let mut body = template("made");
    body[member] = value;
    Case::new("POST", ALL).json(body)
}

pub(super) fn cases() -> Vec<Case> {
    let made = |name, keep| Case::new("POST", ALL).json(template(name)).kept_as(keep);
    let mut all = vec![made("small", "small"), made("large", "large")];
    all.extend(everybody(&Case::new("GET", ONE)));
    all.extend(pages(ALL));
    all.extend(created());
    let twin = |method| Case::new(method, format!("{ALL}/{{twin}}"));
    all.extend([
        Case::new("GET", format!("{ALL}/small")),
        Case::new("GET", format!("{ALL}/small?word=1")),
        made("small", "twin"),
        Case::new("GET", format!("{ALL}/small")),
        Case::new("DELETE", format!("{ALL}/small")),
        twin("DELETE").by(Who::Bob),
        twin("DELETE").by(Who::Eve),
        twin("DELETE"),
        twin("DELETE"),
        twin("GET"),
    ]);
    all.extend(no_patches(ONE));
    all.extend(patched());
    all.extend(published());
    all
}

fn created() -> Vec<Case> {
    let mut all = Vec::new();
    for member in LOOKED_UP {
        let values = junk().into_iter();
        let values = values.filter(|value| value.as_str().is_none_or(str::is_empty));
        all.extend(values.map(|value| with(member, value)));
    }
    for member in OTHERS {
        let values = junk().into_iter();
        // The real one makes a whole number of anything that is one in Python.
        let is_whole = |value: &Value| value.as_i64().is_some_and(|number| number < 1 << 31);
        let is_odd = |value: &Value| (value.is_number() || value.is_boolean()) && !is_whole(value);
        let values = values.filter(|value| member != "docker_volume_size" || !is_odd(value));
        all.extend(values.map(|value| with(member, value)));
    }
    for (member, value) in [
        ("labels", json!({"a": 1, "b": true, "c": 1.5})),
        ("labels", json!({"a": {"b": "c"}})),
        ("dns_nameserver", json!("8.8.8.8")),
        ("dns_nameserver", json!("8.8.8.8,8.8.4.4")),
        ("dns_nameserver", json!("8.8.8.8, 2001:db8::1")),
        ("dns_nameserver", json!("8.8.8.8,word")),
        ("volume_driver", json!("cinder")),
        ("network_driver", json!("flannel")),
        ("network_driver", json!("cilium")),
        ("server_type", json!("vm")),
        ("apiserver_port", json!(1023)),
        ("apiserver_port", json!("6443")),
        ("apiserver_port", json!(65535)),
        ("docker_volume_size", json!("20")),
    ] {
        all.push(with(member, value));
    }
    let good = || Case::new("POST", ALL).json(template("made"));
    all.extend([good().by(Who::Bob), good().by(Who::Nobody)]);
    all
}

fn change(op: &str, member: &str, value: &Value) -> Value {
    json!([{"op": op, "path": format!("/{member}"), "value": value}])
}

fn patched() -> Vec<Case> {
    let mut bodies = Vec::new();
    for member in OTHERS {
        bodies.push(json!([{"op": "remove", "path": format!("/{member}")}]));
        for value in [
            json!("word"),
            json!(""),
            json!("1"),
            json!("true"),
            json!(1),
            json!(-1),
            json!(true),
            json!(1.5),
        ] {
            bodies.push(change("replace", member, &value));
        }
    }
    for (op, member, value) in [
        ("add", "tags", json!("a")),
        ("add", "tags", json!("b")),
        ("add", "labels/new", json!("a")),
        ("replace", "labels/new", json!("b")),
        ("replace", "labels/none", json!("b")),
        ("add", "labels/number", json!(1)),
        ("replace", "labels", json!("{'a': 'b', \"c\": 1}")),
        ("replace", "labels", json!("{'a': 'b'")),
        ("replace", "labels", json!("word")),
        ("replace", "name", json!("small")),
        ("replace", "network_driver", json!("calico")),
        ("replace", "coe", json!("kubernetes")),
        ("replace", "server_type", json!("bm")),
    ] {
        bodies.push(change(op, member, &value));
    }
    bodies.extend([
        json!([{"op": "remove", "path": "/labels/none"}]),
        json!([{"op": "remove", "path": "/labels/a"}]),
        json!([
            {"op": "replace", "path": "/name", "value": "both"}, {"op": "replace", "path": "/word", "value": "x"},
        ]),
    ]);
    let patch = |body| Case::new("PATCH", ONE).json(body);
    let mut all: Vec<_> = bodies.into_iter().map(patch).collect();
    all.push(Case::new("GET", ONE));
    all
}

fn published() -> Vec<Case> {
    // Of the administrator's own project: what they change in others is not found in the end, there.
    let open = Case::new("POST", ALL).by(Who::Admin).json(template("open"));
    let mut all = vec![open.kept_as("open")];
    for (member, value) in [
        ("public", true),
        ("hidden", true),
        ("hidden", false),
        ("public", false),
    ] {
        let flag = Case::new("PATCH", OPEN).json(change("replace", member, &json!(value)));
        all.extend([Who::Ann, Who::Eve, Who::Admin].map(|who| flag.clone().by(who)));
        all.extend(everybody(&Case::new("GET", OPEN)));
        all.push(Case::new("GET", ALL).by(Who::Eve));
    }
    all
}
