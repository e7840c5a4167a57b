//! Releases in ConfigMaps, as the existing operator keeps them: `metadata` and `components`, the latter compressed where both are
//! too much for a ConfigMap. Beside them, and unknown to that one, `signature`.

use std::io::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde_json::{Value, json};

use super::{Files, Unfit, text};
use crate::{InvalidVersion, Object, Provider, Version, object::Lack};

/// A ConfigMap that holds no release.
#[derive(Debug, thiserror::Error)]
pub enum ConfigMapError {
    /// Another kind.
    #[error("{0} is no ConfigMap; give one")]
    Kind(String),
    /// A key that is missing.
    #[error("{field} of {object} is missing; it holds {content}")]
    Missing {
        /// The ConfigMap.
        object: String,
        /// The key.
        field: &'static str,
        /// What it holds.
        content: &'static str,
    },
    /// Bytes that are no base64.
    #[error(
        "binaryData.components of {object} is no base64; put in the file compressed by gzip, as the API encodes it"
    )]
    Encoding {
        /// The ConfigMap.
        object: String,
    },
    /// Bytes that are no compressed text.
    #[error("binaryData.components of {object}: {source}")]
    Compressed {
        /// The ConfigMap.
        object: String,
        /// Why.
        source: Unfit,
    },
    /// A version that is none.
    #[error("label {VERSION} of {object}, or else its name: {source}")]
    Version {
        /// The ConfigMap.
        object: String,
        /// Why.
        source: InvalidVersion,
    },
    /// Text that could not be compressed.
    #[error("the components cannot be compressed: {0}")]
    Compress(#[source] std::io::Error),
    /// A release that is too large.
    #[error(
        "the release has {0} bytes when it is compressed, and a ConfigMap holds {MOST}; keep it elsewhere"
    )]
    Large(usize),
    /// A name that is none.
    #[error("the ConfigMap of the release: {0}")]
    Object(#[source] Lack),
}

/// The release in a ConfigMap, and its version: that of its label, or else its name.
///
/// # Errors
///
/// A ConfigMap that holds none.
pub fn read_config_map(object: &Object) -> Result<(Version, Files), ConfigMapError> {
    let title = || object.title();
    if object.kind() != "ConfigMap" || !object.group().is_empty() {
        return Err(ConfigMapError::Kind(title()));
    }
    let version = object.label(VERSION).unwrap_or(object.name());
    let version = version.parse().map_err(|source| ConfigMapError::Version {
        object: title(),
        source,
    })?;
    let get = |pointer: &str, field, content| {
        let found = object.value().pointer(pointer).and_then(Value::as_str);
        found.ok_or_else(|| ConfigMapError::Missing {
            object: title(),
            field,
            content,
        })
    };
    let metadata = get("/data/metadata", "data.metadata", "metadata.yaml")?.to_owned();
    let annotations = object.value().pointer("/metadata/annotations");
    let is_compressed = annotations.and_then(|all| all.get(COMPRESSED)) == Some(&json!("true"));
    let components = if is_compressed {
        let encoded = get(
            "/binaryData/components",
            "binaryData.components",
            "the components, compressed by gzip",
        )?;
        let bytes = STANDARD
            .decode(encoded)
            .map_err(|_| ConfigMapError::Encoding { object: title() })?;
        text(GzDecoder::new(&bytes[..])).map_err(|source| ConfigMapError::Compressed {
            object: title(),
            source,
        })?
    } else {
        get("/data/components", "data.components", "the components")?.to_owned()
    };
    let signature = object.value().pointer("/data/signature");
    let signature = signature.and_then(Value::as_str).map(str::to_owned);
    Ok((
        version,
        Files {
            metadata,
            components,
            signature,
        },
    ))
}

/// The ConfigMap that the existing operator would keep a release in, which finds it by its labels.
///
/// # Errors
///
/// A release that is too large even when it is compressed.
pub fn config_map(
    provider: &Provider,
    version: &Version,
    namespace: &str,
    files: &Files,
) -> Result<Object, ConfigMapError> {
    let mut labels = config_map_labels(provider);
    labels[VERSION] = json!(version.to_string());
    labels[MANAGED] = json!("true");
    let mut value = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": provider.config_map(version),
            "namespace": namespace,
            "labels": labels,
        },
        "data": {"metadata": files.metadata},
    });
    let mut beside = files.metadata.len();
    if let Some(signature) = &files.signature {
        value["data"]["signature"] = json!(signature);
        beside += signature.len();
    }
    if beside + files.components.len() > MOST {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder
            .write_all(files.components.as_bytes())
            .map_err(ConfigMapError::Compress)?;
        let bytes = encoder.finish().map_err(ConfigMapError::Compress)?;
        if beside + bytes.len() > MOST {
            return Err(ConfigMapError::Large(beside + bytes.len()));
        }
        value["binaryData"] = json!({"components": STANDARD.encode(bytes)});
        value["metadata"]["annotations"] = json!({COMPRESSED: "true"});
    } else {
        value["data"]["components"] = json!(files.components);
    }
    Object::new(value).map_err(ConfigMapError::Object)
}

/// The labels that [`config_map`] has in every version, as an object.
pub fn config_map_labels(provider: &Provider) -> Value {
    json!({
        TYPE: provider.provider_type().stored_word(),
        NAME: provider.name(),
    })
}

const VERSION: &str = "provider.cluster.x-k8s.io/version";
const TYPE: &str = "provider.cluster.x-k8s.io/type";
const NAME: &str = "provider.cluster.x-k8s.io/name";
const MANAGED: &str = "managed-by.operator.cluster.x-k8s.io";
const COMPRESSED: &str = "provider.cluster.x-k8s.io/compressed";

/// As many bytes as a ConfigMap may hold.
const MOST: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProviderType;

    fn written(components: &str) -> Result<Object, ConfigMapError> {
        let provider = Provider::new(ProviderType::RuntimeExtension, "one").unwrap();
        let files = Files {
            metadata: "m".to_owned(),
            components: components.to_owned(),
            signature: Some("s".to_owned()),
        };
        config_map(&provider, &"v1.2.3".parse().unwrap(), "n", &files)
    }

    #[test]
    fn a_release_is_read_as_it_was_written() {
        for components in ["small".to_owned(), "large ".repeat(1 << 20)] {
            let object = written(&components).unwrap();
            assert_eq!(object.name(), "runtimeextension-one-v1.2.3");
            assert_eq!(object.label(TYPE), Some("runtimeextension"));
            let is_compressed = object.value().get("binaryData").is_some();
            assert_eq!(is_compressed, components.len() > MOST);
            let (version, files) = read_config_map(&object).unwrap();
            assert_eq!(version.to_string(), "v1.2.3");
            assert_eq!(
                (files.metadata.as_str(), files.components),
                ("m", components)
            );
            assert_eq!(files.signature.as_deref(), Some("s"));
        }
    }

    #[test]
    fn the_name_is_the_version_where_no_label_says_it() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "v0.1.0"}, "data": {"metadata": "m", "components": "c"}});
        let (version, _) = read_config_map(&Object::new(object).unwrap()).unwrap();
        assert_eq!(version.to_string(), "v0.1.0");
    }

    #[test]
    fn what_holds_no_release_is_refused() {
        let bomb = {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            for _ in 0..40 {
                encoder.write_all(&vec![b' '; 1 << 20]).unwrap();
            }
            STANDARD.encode(encoder.finish().unwrap())
        };
        let compressed = |data: &str| json!({"metadata": {"name": "v1.0.0", "annotations": {COMPRESSED: "true"}}, "binaryData": {"components": data}});
        let cases = [
            (json!({"kind": "Secret"}), "Secret v1.0.0 is no ConfigMap"),
            (
                json!({"metadata": {"name": "capi"}}),
                "or else its name: version \"capi\" is not",
            ),
            (
                json!({"metadata": {"name": "v1.0.0", "labels": {VERSION: "1"}}}),
                "version \"1\" is not",
            ),
            (
                json!({"data": {"components": "c"}}),
                "data.metadata of ConfigMap v1.0.0 is missing; it holds metadata.yaml",
            ),
            (
                json!({"data": {"metadata": "m"}}),
                "data.components of ConfigMap v1.0.0 is missing; it holds the components",
            ),
            (
                json!({"metadata": {"name": "v1.0.0", "annotations": {COMPRESSED: "true"}}}),
                "binaryData.components of ConfigMap v1.0.0 is missing",
            ),
            (compressed("*"), "is no base64"),
            (
                compressed("YWJj"),
                "binaryData.components of ConfigMap v1.0.0: it cannot be read",
            ),
            (compressed(&bomb), "it has more than 33554432 bytes"),
        ];
        for (change, said) in cases {
            let mut value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "v1.0.0"}, "data": {"metadata": "m", "components": "c"}});
            for (field, changed) in change.as_object().unwrap() {
                value[field] = changed.clone();
            }
            let error = read_config_map(&Object::new(value).unwrap())
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{error}");
        }
        let mut noise = String::new();
        let mut state = 1_u64;
        while noise.len() < 4 << 20 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            noise.push_str(&state.to_string());
        }
        let error = written(&noise).unwrap_err().to_string();
        assert!(
            error.contains(
                "bytes when it is compressed, and a ConfigMap holds 1048576; keep it elsewhere"
            ),
            "{error}"
        );
    }
}
