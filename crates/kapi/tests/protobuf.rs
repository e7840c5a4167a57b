//! Bodies as kubectl sends them.

#![expect(clippy::unwrap_used, reason = "a failing test may panic")]

use kapi::protobuf::{self, DecodeError};
use proptest::prelude::*;
use serde_json::json;

fn message(parts: &[(u8, &[u8])]) -> Vec<u8> {
    let part = |(number, bytes): &(u8, &[u8])| {
        let mut part = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        part.extend_from_slice(bytes);
        part
    };
    parts.iter().flat_map(part).collect()
}

fn body(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let meta = message(&[(1, api_version.as_bytes()), (2, kind.as_bytes())]);
    let mut body = b"k8s\0".to_vec();
    body.extend(message(&[(1, &meta), (2, object), (3, b""), (4, b"")]));
    body
}

/// A body of any length.
fn body_of(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let meta = message(&[(1, api_version.as_bytes()), (2, kind.as_bytes())]);
    [
        b"k8s\0".to_vec(),
        message_of(1, &meta),
        message_of(2, object),
    ]
    .concat()
}

#[test]
fn reads_a_secret() {
    let entry = message(&[(1, b"key"), (2, b"value")]);
    let metadata = message(&[(1, b"name"), (2, b""), (8, b"")]);
    let object = message(&[(1, &metadata), (2, &entry), (3, b"Opaque")]);
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "name"},
        "data": {"key": "dmFsdWU="},
        "type": "Opaque",
    });
    assert_eq!(
        protobuf::decode(&body("v1", "Secret", &object)),
        Ok(expected)
    );
}

/// With empty messages where Go keeps a pointer, and with the zeros that Go writes in any case.
#[test]
fn reads_a_definition() {
    let flag = |number: u8, value: u8| vec![number << 3, value];
    let wide = |number: u16, bytes: &[u8]| {
        let tag = number << 3 | 2;
        let mut part = vec![
            u8::try_from(tag & 0x7f).unwrap() | 0x80,
            u8::try_from(tag >> 7).unwrap(),
            u8::try_from(bytes.len()).unwrap(),
        ];
        part.extend_from_slice(bytes);
        part
    };
    let mut size = message(&[(5, b"integer"), (8, &message(&[(1, b"0")]))]);
    size.extend([vec![9 << 3 | 1], 2.5_f64.to_le_bytes().to_vec()].concat());
    size.extend([vec![11 << 3 | 1], 1_f64.to_le_bytes().to_vec()].concat());
    size.extend(flag(10, 0));
    let free = [
        message(&[(5, b"object"), (8, &message(&[(1, b"{}")]))]),
        wide(30, &[flag(1, 1), message(&[(2, b"")])].concat()),
        wide(28, b""),
    ];
    let list = [
        message(&[(5, b"array")]),
        wide(24, &message(&[(1, &message(&[(5, b"string")]))])),
        vec![0xa8, 2, 1], // nullable
        wide(44, &message(&[(1, b"true")])),
    ];
    let mut root = message(&[(5, b"object")]);
    for (name, schema) in [
        ("size", size),
        ("free", free.concat()),
        ("list", list.concat()),
    ] {
        root.extend(wide(29, &message(&[(1, name.as_bytes()), (2, &schema)])));
    }
    let mut version = message(&[(1, b"v1")]);
    version.extend([flag(2, 1), flag(3, 0)].concat());
    version.extend(message_of(4, &message_of(1, &root)));
    version.extend(message(&[(5, &message(&[(1, b"")]))]));
    version.extend(flag(7, 0));
    let mut spec = message(&[(1, b"example.com"), (3, &message(&[(1, b"sizes")]))]);
    spec.extend(message_of(7, &version));
    spec.extend(flag(10, 0));
    let object = [
        message(&[(1, &message(&[(1, b"sizes.example.com")]))]),
        message_of(2, &spec),
    ];
    let body = body_of(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &object.concat(),
    );
    let schema = json!({"type": "object", "properties": {
        "size": {"type": "integer", "default": 0, "maximum": 2.5, "minimum": 1},
        "free": {"type": "object", "default": {}, "additionalProperties": {}, "not": {}},
        "list": {
            "type": "array", "items": {"type": "string"}, "nullable": true,
            "x-kubernetes-validations": [{"rule": "true"}],
        },
    }});
    let version = json!({
        "name": "v1", "served": true, "storage": false,
        "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
    });
    let expected = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sizes.example.com"},
        "spec": {"group": "example.com", "names": {"plural": "sizes"}, "versions": [version]},
    });
    assert_eq!(protobuf::decode(&body), Ok(expected));
}

/// A field of any length.
fn message_of(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut part = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 127 {
        part.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    part.push(u8::try_from(length).unwrap());
    part.extend_from_slice(bytes);
    part
}

#[test]
fn refuses_a_definition_without_end() {
    // A schema in a schema in a schema.
    let mut schema = Vec::new();
    for _ in 0..1000 {
        let mut outer = vec![0xe2, 1]; // not
        outer.extend(&message_of(0, &schema)[1..]);
        schema = outer;
    }
    let version = message_of(4, &message_of(1, &schema));
    let object = message_of(2, &message_of(7, &version));
    let body = body_of(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &object,
    );
    assert_eq!(protobuf::decode(&body), Err(DecodeError::Depth));
}

#[test]
fn refuses_what_it_does_not_know() {
    assert_eq!(protobuf::decode(b"{}"), Err(DecodeError::Magic));
    let kind = DecodeError::Kind {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
    };
    assert_eq!(protobuf::decode(&body("v1", "Pod", b"")), Err(kind));
    assert_eq!(
        protobuf::decode(b"k8s\0\x0a\x7f"),
        Err(DecodeError::Truncated)
    );
}

proptest! {
    #[test]
    fn never_panics(object in prop::collection::vec(any::<u8>(), 0..100)) {
        for kind in ["Namespace", "Secret", "ConfigMap", "Event", "ServiceAccount", "DeleteOptions"] {
            let _ = protobuf::decode(&body("v1", kind, &object));
        }
        let definition = body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &object);
        let _ = protobuf::decode(&definition);
    }
}
