//! What clients of Magnum send, damaged: it is read or refused, and never more than it should be.

use std::collections::BTreeMap;

use axum::http::HeaderValue;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use magnum::{
    authority::{Authority, Purpose},
    contract::{
        Version, literal,
        patch::{Patch, Rules},
    },
    labels,
};
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer, pem::PemObject};
use serde_json::{Value, json};

/// Of a client, and of who would be an authority.
const REQUESTS: [&str; 2] = [
    "-----BEGIN CERTIFICATE REQUEST-----\nMIIBDDCBsgIBADApMRcwFQYDVQQKDA5zeXN0ZW06bWFzdGVyczEOMAwGA1UEAwwF\nYWRtaW4wWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAR5MdFMcqDY/neOKRiuwkJH\nFWcad5E/RLsjgfnXb+8se0Sav8GXQgefEwi09jNXBX7QOcGF1hs0qTU8BOkoJnQm\noCcwJQYJKoZIhvcNAQkOMRgwFjAUBgNVHREEDTALgglhLmV4YW1wbGUwCgYIKoZI\nzj0EAwIDSQAwRgIhAKR7GKIbJQU40+C3u3RVBL3gnQQ2PNq3Z/aaJzmOXdfTAiEA\nkIWDsSVdbcks396GZIMxYA/BNmihHAdgYuIIBDCcY1M=\n-----END CERTIFICATE REQUEST-----\n",
    "-----BEGIN CERTIFICATE REQUEST-----\nMIH2MIGeAgEAMBAxDjAMBgNVBAMMBWFkbWluMFkwEwYHKoZIzj0CAQYIKoZIzj0D\nAQcDQgAEeTHRTHKg2P53jikYrsJCRxVnGneRP0S7I4H512/vLHtEmr/Bl0IHnxMI\ntPYzVwV+0DnBhdYbNKk1PATpKCZ0JqAsMCoGCSqGSIb3DQEJDjEdMBswDAYDVR0T\nBAUwAwEB/zALBgNVHQ8EBAMCAgQwCgYIKoZIzj0EAwIDRwAwRAIgMRDZonY33YRr\naZaq4+ML8rL9M4farVmTKfyBkal6cMkCICL8/65L16WsmHm4iQKOZYNM0Tvxv1EN\noYE32gipkch4\n-----END CERTIFICATE REQUEST-----\n",
];

fn authority() -> Authority {
    Authority::new("first", Purpose::Kubernetes, Timestamp::now()).unwrap()
}

/// What is signed signs nothing itself, and is of this authority.
fn signs_nothing(authority: &Authority, request: &str) {
    let Ok(signed) = authority.sign(request, Timestamp::now()) else {
        return;
    };
    let der = CertificateDer::from_pem_slice(signed.as_bytes()).unwrap();
    let (_, signed) = x509_parser::parse_x509_certificate(&der).unwrap();
    assert!(!signed.is_ca(), "{request}");
    let usage = signed.key_usage().unwrap().unwrap().value;
    assert!(!usage.key_cert_sign() && !usage.crl_sign(), "{request}");
    let own = CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap();
    let (_, own) = x509_parser::parse_x509_certificate(&own).unwrap();
    signed.verify_signature(Some(own.public_key())).unwrap();
}

#[test]
fn requests_for_certificates_survive_fuzzing() {
    let authority = authority();
    // Otherwise nothing below would be looked at.
    assert!(authority.sign(REQUESTS[0], Timestamp::now()).is_ok());
    assert!(authority.sign(REQUESTS[1], Timestamp::now()).is_err());
    fuzz::text("requests in PEM form", &REQUESTS, |request| {
        signs_nothing(&authority, request);
    });
}

/// Damage in PEM form is mostly damage of base64.
#[test]
fn the_insides_of_requests_survive_fuzzing() {
    let authority = authority();
    let whole = REQUESTS.map(|request| {
        let der = CertificateSigningRequestDer::from_pem_slice(request.as_bytes()).unwrap();
        der.as_ref().to_vec()
    });
    let corpus = whole.each_ref().map(Vec::as_slice);
    fuzz::bytes("requests in DER form", &corpus, |der| {
        let text = STANDARD.encode(der);
        let request = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n"
        );
        signs_nothing(&authority, &request);
    });
}

#[test]
fn patches_survive_fuzzing() {
    const RULES: Rules = Rules {
        only: None,
        internal: &["stack_id"],
        mandatory: &["coe"],
    };
    let object = json!({"name": "a", "flavor_id": null, "coe": "kubernetes", "labels": {"a": "b"}, "uuid": "u", "stack_id": "s"});
    let object = object.as_object().unwrap();
    let corpus: [&[u8]; 2] = [
        br#"[{"op": "replace", "path": "/name", "value": "b"}, {"op": "add", "path": "/labels/c", "value": "d"}]"#,
        br#"[{"op": "remove", "path": "/flavor_id"}, {"op": "replace", "path": "/uuid", "value": "v"}, {"op": "remove", "path": "/coe"}]"#,
    ];
    fuzz::bytes("patches", &corpus, |body| {
        let patched = Patch::of_body(body).and_then(|patch| patch.apply(object, &RULES));
        match patched {
            Ok(after) => {
                assert_eq!(after["uuid"], "u");
                assert_eq!(after["stack_id"], "s");
                assert_ne!(after["coe"], Value::Null);
            }
            Err(fault) => assert_eq!(fault.status(), 400),
        }
    });
}

fn depth(value: &Value) -> usize {
    let inner: Vec<_> = match value {
        Value::Array(list) => list.iter().map(depth).collect(),
        Value::Object(map) => map.values().map(depth).collect(),
        _ => Vec::new(),
    };
    1 + inner.into_iter().max().unwrap_or_default()
}

#[test]
fn literals_of_python_survive_fuzzing() {
    let corpus = [
        "{'kube_tag': \"v1.34.3\", 'n': 1, 'on': True, 'off': None}",
        r"['it\'s', '\x41\u00e9\n', -1.5, {1: 'one'}, [[[[[]]]]],]",
    ];
    for whole in corpus {
        assert!(literal::parse(whole).is_ok(), "{whole}");
    }
    fuzz::text("literals", &corpus, |text| {
        if let Ok(value) = literal::parse(text) {
            assert!(depth(&value) <= 8, "{text}");
        }
    });
}

#[test]
fn labels_survive_fuzzing() {
    let corpus = [
        "true",
        "v1.34.3",
        "10.0.0.0/16,fd00::/8",
        "a, b,c",
        "100",
        "calico",
    ];
    fuzz::text("labels", &corpus, |value| {
        for label in &labels::LABELS {
            let labels = BTreeMap::from([(label.name.to_owned(), value.to_owned())]);
            if labels::check(&labels).is_err() {
                continue;
            }
            // What was let pass is read as what it is.
            match label.kind {
                labels::Kind::Flag => {
                    assert!(
                        labels::flag(&labels, label.name).is_some(),
                        "{}",
                        label.name
                    );
                }
                labels::Kind::Count(least, most) => {
                    let count = labels::count(&labels, label.name);
                    let fits = count.is_some_and(|count| (least..=most).contains(&count));
                    assert!(fits, "{}: {count:?}", label.name);
                }
                _ => {}
            }
        }
    });
}

#[test]
fn headers_survive_fuzzing() {
    let corpus: [&[u8]; 3] = [
        b"container-infra 1.9",
        b"container-infra latest",
        b"container-infra 1.15",
    ];
    fuzz::bytes("headers", &corpus, |bytes| {
        let Ok(value) = HeaderValue::from_bytes(bytes) else {
            return;
        };
        match Version::requested(value.to_str().ok()) {
            Ok(version) => {
                assert!((Version::MINIMUM..=Version::MAXIMUM).contains(&version));
                let again = format!("container-infra {version}");
                assert_eq!(Version::requested(Some(&again)).unwrap(), version);
            }
            Err(fault) => assert_eq!(fault.status(), 406),
        }
    });
}
