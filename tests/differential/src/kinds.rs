//! The kinds whose objects are made, and what their fields may hold.

use serde_json::{Value, json};

/// What may stand at a place.
#[derive(Debug, Clone)]
pub enum Shape {
    /// One of these values.
    Scalar(Vec<Value>),
    /// Fields, each of which may be missing.
    Record(Vec<(&'static str, Shape)>),
    /// Some of these keys.
    Map(Vec<&'static str>, Box<Shape>),
    /// A few items.
    List(Box<Shape>),
    /// A few items that are told apart by the first fields, which are seldom missing.
    Keyed(Vec<(&'static str, Shape)>, Vec<(&'static str, Shape)>),
}

/// A kind.
#[derive(Debug, Clone)]
pub struct Kind {
    /// As in `kind`.
    pub name: &'static str,
    /// As in `apiVersion`.
    pub version: &'static str,
    /// As in paths.
    pub plural: &'static str,
    /// Whether it is in a namespace.
    pub namespaced: bool,
    /// Whether it is of a definition, and so takes no strategic merge patches.
    pub custom: bool,
    /// Whether the status is written through a subresource.
    pub status: bool,
    /// The fields beside apiVersion and kind.
    pub shape: Shape,
    /// What every object has.
    pub least: Value,
}

/// ConfigMaps that are there, to own others: garbage collection removes what has owners that are not. `UID-of-` and a name is
/// the uid.
pub const OWNERS: [&str; 2] = ["owner-1", "owner-2"];

/// All of them.
pub fn kinds() -> Vec<Kind> {
    vec![
        sample(),
        config_map(),
        secret(),
        service_account(),
        namespace(),
    ]
}

/// The definition of the kind that is not built in.
pub fn definition() -> Value {
    let text = json!({"type": "string"});
    let condition = json!({
        "type": "object", "required": ["type"],
        "properties": {"type": text, "status": text, "reason": text},
    });
    let port = json!({
        "type": "object", "required": ["port"],
        "properties": {
            "port": {"type": "integer"},
            "protocol": {"type": "string", "default": "TCP"},
            "name": text,
            "tags": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
        },
    });
    let host = json!({
        "type": "object", "required": ["name"],
        "properties": {
            "name": text,
            "port": {"type": "integer", "default": 22},
            "labels": {"type": "object", "additionalProperties": text},
            "words": {"type": "array", "items": text},
        },
    });
    let spec = json!({
        "type": "object",
        "properties": {
            "size": {"type": "integer", "minimum": 0},
            "color": {"type": "string", "default": "red"},
            "flag": {"type": "boolean"},
            "maybe": {"type": "string", "nullable": true},
            "either": {"x-kubernetes-int-or-string": true},
            "tags": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "numbers": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set"},
            "words": {"type": "array", "items": text},
            "hosts": {"type": "array", "items": host, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            "ports": {"type": "array", "items": port, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"]},
            "atom": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text, "b": text}},
            "extra": {"type": "object", "additionalProperties": text},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "nest": {
                "type": "object",
                "properties": {
                    "a": text,
                    "deep": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 3}, "c": text}},
                },
            },
        },
    });
    let status = json!({
        "type": "object",
        "properties": {
            "phase": text,
            "conditions": {"type": "array", "items": condition, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "samples.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Sample", "listKind": "SampleList", "plural": "samples", "singular": "sample"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
            }],
        },
    })
}

fn sample() -> Kind {
    let condition = Shape::Keyed(
        vec![("type", texts(&["Ready", "Up"]))],
        vec![
            ("status", texts(&["True", "False"])),
            ("reason", texts(&["a", "b"])),
        ],
    );
    let host = Shape::Keyed(
        vec![("name", texts(&["h", "i", "j"]))],
        vec![
            ("port", scalars(&[json!(22), json!(80)])),
            (
                "labels",
                Shape::Map(vec!["l", "m"], Box::new(texts(&["x", "y"]))),
            ),
            ("words", Shape::List(Box::new(texts(&["x", "y"])))),
        ],
    );
    let port = Shape::Keyed(
        vec![("port", scalars(&[json!(1), json!(2)]))],
        vec![
            ("protocol", texts(&["TCP", "UDP"])),
            ("name", texts(&["p", "q"])),
            ("tags", Shape::List(Box::new(texts(&["s", "t"])))),
        ],
    );
    let spec = Shape::Record(vec![
        ("size", scalars(&[json!(0), json!(1), json!(2), json!(-1)])),
        ("color", texts(&["red", "blue"])),
        ("flag", scalars(&[json!(true), json!(false)])),
        ("maybe", scalars(&[json!("one"), json!("two"), Value::Null])),
        ("either", scalars(&[json!(1), json!("1")])),
        ("tags", Shape::List(Box::new(texts(&["a", "b", "c", "d"])))),
        (
            "numbers",
            Shape::List(Box::new(scalars(&[json!(1), json!(2), json!(3)]))),
        ),
        ("words", Shape::List(Box::new(texts(&["a", "b"])))),
        ("hosts", host),
        ("ports", port),
        (
            "atom",
            Shape::Record(vec![("a", texts(&["1", "2"])), ("b", texts(&["1", "2"]))]),
        ),
        (
            "extra",
            Shape::Map(vec!["e", "f", "g/h"], Box::new(texts(&["1", "2"]))),
        ),
        (
            "free",
            Shape::Map(
                vec!["x", "y"],
                Box::new(scalars(&[
                    json!(1),
                    json!({"z": 1}),
                    json!({"z": 2, "w": null}),
                    json!([1, {"a": 1}]),
                    json!({}),
                    json!([]),
                ])),
            ),
        ),
        (
            "nest",
            Shape::Record(vec![
                ("a", texts(&["1", "2"])),
                (
                    "deep",
                    Shape::Record(vec![
                        ("b", scalars(&[json!(3), json!(4)])),
                        ("c", texts(&["1", "2"])),
                    ]),
                ),
            ]),
        ),
    ]);
    Kind {
        name: "Sample",
        version: "example.com/v1",
        plural: "samples",
        namespaced: true,
        custom: true,
        status: true,
        shape: Shape::Record(vec![
            ("metadata", metadata()),
            ("spec", spec),
            (
                "status",
                Shape::Record(vec![
                    ("phase", texts(&["Up", "Down"])),
                    ("conditions", condition),
                ]),
            ),
        ]),
        least: json!({}),
    }
}

fn config_map() -> Kind {
    Kind {
        name: "ConfigMap",
        version: "v1",
        plural: "configmaps",
        namespaced: true,
        custom: false,
        status: false,
        shape: Shape::Record(vec![
            ("metadata", metadata()),
            (
                "data",
                Shape::Map(vec!["k", "l", "m"], Box::new(texts(&["", "v", "w"]))),
            ),
            (
                "binaryData",
                Shape::Map(vec!["b", "c"], Box::new(texts(&["dg==", "dw=="]))),
            ),
            (
                "immutable",
                scalars(&[json!(false), json!(false), json!(true)]),
            ),
        ]),
        least: json!({}),
    }
}

fn secret() -> Kind {
    Kind {
        name: "Secret",
        version: "v1",
        plural: "secrets",
        namespaced: true,
        custom: false,
        status: false,
        shape: Shape::Record(vec![
            ("metadata", metadata()),
            (
                "data",
                Shape::Map(vec!["k", "l"], Box::new(texts(&["dg==", "dw=="]))),
            ),
            (
                "stringData",
                Shape::Map(vec!["k", "s"], Box::new(texts(&["v", "w"]))),
            ),
            ("type", texts(&["Opaque", "Opaque", "example.com/own"])),
        ]),
        least: json!({}),
    }
}

fn service_account() -> Kind {
    Kind {
        name: "ServiceAccount",
        version: "v1",
        plural: "serviceaccounts",
        namespaced: true,
        custom: false,
        status: false,
        shape: Shape::Record(vec![
            ("metadata", metadata()),
            (
                "automountServiceAccountToken",
                scalars(&[json!(true), json!(false)]),
            ),
            (
                "imagePullSecrets",
                Shape::List(Box::new(Shape::Record(vec![("name", texts(&["a", "b"]))]))),
            ),
            (
                "secrets",
                Shape::Keyed(
                    vec![("name", texts(&["s", "t", "u"]))],
                    vec![
                        ("namespace", texts(&["n", "o"])),
                        ("kind", texts(&["Secret"])),
                    ],
                ),
            ),
        ]),
        least: json!({}),
    }
}

fn namespace() -> Kind {
    Kind {
        name: "Namespace",
        version: "v1",
        plural: "namespaces",
        namespaced: false,
        custom: false,
        status: true,
        shape: Shape::Record(vec![("metadata", metadata_alone())]),
        least: json!({}),
    }
}

/// Metadata of an object in a namespace, which may have owners there.
fn metadata() -> Shape {
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": format!("UID-of-{name}")});
    let mut blocking = owner(OWNERS[0]);
    blocking["blockOwnerDeletion"] = json!(true);
    let owners = scalars(&[owner(OWNERS[0]), owner(OWNERS[1]), blocking]);
    let Shape::Record(mut fields) = metadata_alone() else {
        return owners;
    };
    fields.push(("ownerReferences", Shape::List(Box::new(owners))));
    Shape::Record(fields)
}

fn metadata_alone() -> Shape {
    let labels = vec!["one", "two", "example.com/three"];
    let finalizers = ["example.com/a", "example.com/b", "example.com/c"];
    Shape::Record(vec![
        ("labels", Shape::Map(labels, Box::new(texts(&["a", "b"])))),
        (
            "annotations",
            Shape::Map(vec!["one", "two"], Box::new(texts(&["a", ""]))),
        ),
        ("finalizers", Shape::List(Box::new(texts(&finalizers)))),
    ])
}

fn texts(all: &[&str]) -> Shape {
    Shape::Scalar(all.iter().map(|text| json!(text)).collect())
}

fn scalars(all: &[Value]) -> Shape {
    Shape::Scalar(all.to_vec())
}
