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
    }
}
