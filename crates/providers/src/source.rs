//! Manifests in ConfigMaps: those that a selector names, or that were preloaded as the existing operator does.

use api::provider::{FetchConfig, Kind, Provider, label};
use clusterctl::{InvalidOverlay, Object, Overlay, Version, source::read_config_map};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt, api::ListParams, core::Selector};

use crate::{
    check::given,
    fetch,
    names::{FETCHED_FROM, REFETCH, REFETCHED, RELEASE_SERIES},
};

/// What a ConfigMap holds of one version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Held {
    /// The ConfigMap.
    pub config_map: String,
    /// The version.
    pub version: Version,
    /// The contract of that version.
    pub contract: String,
    /// Its `metadata.yaml`.
    pub metadata: String,
    /// Its objects.
    pub components: String,
    /// Their signature, where there is one.
    pub signature: Option<String>,
}

impl Held {
    /// SHA-256 of its components, in hex, as people can compute it.
    pub fn components_digest(&self) -> String {
        fetch::digest_of(&self.components)
    }

    /// SHA-256 of what it holds, in hex.
    pub fn digest(&self) -> String {
        controller::digest(&[&self.metadata, &self.components], 64)
    }
}

/// Why there are no manifests.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Missing {
    /// No ConfigMap has the labels.
    #[error(
        "no ConfigMap of namespace {namespace} has the labels {labels}; load one there with the keys metadata and components"
    )]
    Nothing {
        /// The namespace.
        namespace: String,
        /// The labels.
        labels: String,
    },
    /// What is there is to be brought anew.
    #[error("ConfigMap {config_map} is brought anew")]
    Stale {
        /// The ConfigMap.
        config_map: String,
    },
    /// None has the version.
    #[error(
        "the ConfigMaps hold the versions {there}, and {wanted} is none of them; load it, or write another in spec.version"
    )]
    Version {
        /// The version that is wanted.
        wanted: String,
        /// Those that are there.
        there: String,
    },
    /// Two have the version.
    #[error("ConfigMaps {one} and {other} both hold version {version}; delete one")]
    Twice {
        /// The one.
        one: String,
        /// The other.
        other: String,
        /// The version.
        version: String,
    },
    /// One cannot be read.
    #[error("ConfigMap {config_map} cannot be read: {what}")]
    Unreadable {
        /// The ConfigMap.
        config_map: String,
        /// What is wrong with it, and what to do.
        what: String,
    },
}

/// The labels of the ConfigMaps that hold the manifests of a provider.
///
/// # Errors
///
/// The selector is none, which the check of the spec says better.
pub fn selector<K: Kind>(provider: &Provider<K>) -> Result<Selector, String> {
    match &provider.spec.fetch_config {
        Some(FetchConfig {
            selector: Some(selector),
            ..
        }) => selector
            .clone()
            .try_into()
            .map_err(|error| format!("{error}")),
        // As the existing operator labels what it fetched, and what was loaded for it.
        _ => Ok(Selector::from_iter([
            (label::NAME.to_owned(), provider.name_any()),
            (label::TYPE.to_owned(), K::TYPE.word().to_owned()),
        ])),
    }
}

/// The ConfigMaps with these labels.
///
/// # Errors
///
/// The API refuses or does not answer.
pub async fn list(
    client: &Client,
    namespace: &str,
    selector: &Selector,
) -> Result<Vec<ConfigMap>, kube::Error> {
    let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let parameters = ListParams::default().labels_from(selector);
    Ok(api.list(&parameters).await?.items)
}

/// The manifests of the version that is wanted, or of the newest.
///
/// # Errors
///
/// None has it, or the one that has it cannot be read. What is wrong with others is theirs.
pub fn choose(
    maps: &[ConfigMap],
    wanted: Option<&Version>,
    overlay: &Overlay,
) -> Result<Held, Missing> {
    let mut versions: Vec<(Version, &ConfigMap)> = Vec::new();
    for map in maps {
        let version = version_of(map);
        match version.parse() {
            Ok(version) => versions.push((version, map)),
            Err(_) if maps.len() > 1 => {}
            Err(error) => {
                return Err(unreadable(
                    map,
                    format!(
                        "its version, in the label {} or its name: {error}",
                        label::VERSION
                    ),
                ));
            }
        }
    }
    versions.sort_by(|(one, _), (other, _)| one.cmp(other));
    let chosen = match wanted {
        Some(wanted) => versions.iter().find(|(version, _)| version == wanted),
        None => versions
            .iter()
            .rfind(|(version, _)| !version.is_prerelease())
            .or(versions.last()),
    };
    let Some((version, map)) = chosen else {
        let there: Vec<_> = versions
            .iter()
            .map(|(version, _)| version.to_string())
            .collect();
        return Err(Missing::Version {
            wanted: wanted.map(ToString::to_string).unwrap_or_default(),
            there: there.join(", "),
        });
    };
    if let Some((_, other)) = versions
        .iter()
        .find(|(other, there)| other == version && there.name_any() != map.name_any())
    {
        return Err(Missing::Twice {
            one: map.name_any(),
            other: other.name_any(),
            version: version.to_string(),
        });
    }
    held(map, overlay)
}

/// The series that a provider knows better than the metadata of its releases.
///
/// # Errors
///
/// The annotation names none, which the check of the provider says better.
pub fn overlay<K: Kind>(provider: &Provider<K>) -> Result<Overlay, InvalidOverlay> {
    match annotated(provider, RELEASE_SERIES) {
        Some(series) => series.parse(),
        None => Ok(Overlay::default()),
    }
}

/// The value for which a provider's release is to be brought anew.
pub fn refetch<K: Kind>(provider: &Provider<K>) -> Option<&str> {
    annotated(provider, REFETCH)
}

/// Whether what was brought is to be brought anew: a value is answered once, whatever version came of it. What somebody loaded is theirs.
pub fn is_stale(maps: &[ConfigMap], held: &Held, refetch: Option<&str>) -> bool {
    let Some(refetch) = refetch else {
        return false;
    };
    let says = |map: &ConfigMap, key: &str| map.annotations().get(key).cloned();
    let is_answered = |map: &ConfigMap| says(map, REFETCHED).as_deref() == Some(refetch);
    let was_brought =
        |map: &ConfigMap| map.name_any() == held.config_map && says(map, FETCHED_FROM).is_some();
    maps.iter().any(was_brought) && !maps.iter().any(is_answered)
}

fn annotated<'a, K: Kind>(provider: &'a Provider<K>, key: &str) -> Option<&'a str> {
    given(provider.annotations().get(key).map(String::as_str))
}

/// What a ConfigMap holds.
///
/// # Errors
///
/// It holds no release, or its metadata does not have the version.
pub fn held(map: &ConfigMap, overlay: &Overlay) -> Result<Held, Missing> {
    let failed = |what: String| unreadable(map, what);
    let value = serde_json::to_value(map).map_err(|error| failed(error.to_string()))?;
    let object = Object::new(value).map_err(|lack| failed(lack.to_string()))?;
    let (version, files) =
        read_config_map(&object).map_err(|error| failed(controller::chain(&error)))?;
    let metadata = files.metadata().map(|read| read.overlaid(overlay));
    let contract = metadata.and_then(|read| read.contract(&version).map(ToString::to_string));
    Ok(Held {
        config_map: map.name_any(),
        contract: contract.map_err(|error| failed(error.to_string()))?,
        version,
        metadata: files.metadata,
        components: files.components,
        signature: files.signature,
    })
}

/// Whether what a ConfigMap holds was brought from an address.
pub fn is_from(map: &ConfigMap, address: &str) -> bool {
    let from = map.annotations().get(FETCHED_FROM);
    from.map(String::as_str) == Some(address)
}

/// The version that a ConfigMap says it holds.
pub fn version_of(map: &ConfigMap) -> String {
    map.labels()
        .get(label::VERSION)
        .cloned()
        .unwrap_or_else(|| map.name_any())
}

fn unreadable(map: &ConfigMap, what: impl Into<String>) -> Missing {
    Missing::Unreadable {
        config_map: map.name_any(),
        what: what.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const METADATA: &str = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n- {major: 1, minor: 13, contract: v1beta2}\n- {major: 1, minor: 14, contract: v1beta2}\n";

    fn map(name: &str, label: Option<&str>) -> ConfigMap {
        let labels = label
            .map(|version| json!({label::VERSION: version}))
            .unwrap_or_default();
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "data": {"metadata": METADATA, "components": "# none"},
        }))
        .unwrap()
    }

    #[test]
    fn the_wanted_version_or_the_newest_is_chosen() {
        let maps = [
            map("v1.13.4", None),
            map("b", Some("v1.14.0-rc.1")),
            map("c", Some("v1.13.10")),
            map("notes", None),
        ];
        let none = Overlay::default();
        let chosen = |wanted: Option<&str>| {
            let wanted: Option<Version> = wanted.map(|text| text.parse().unwrap());
            choose(&maps, wanted.as_ref(), &none)
        };
        assert_eq!(chosen(None).unwrap().config_map, "c");
        assert_eq!(chosen(Some("v1.14.0-rc.1")).unwrap().config_map, "b");
        assert!(matches!(
            chosen(Some("v1.13.5")),
            Err(Missing::Version { .. })
        ));
        let twice = [map("v1.13.4", None), map("b", Some("v1.13.4"))];
        assert!(matches!(
            choose(&twice, None, &none),
            Err(Missing::Twice { .. })
        ));
        let alone = [map("notes", None)];
        assert!(matches!(
            choose(&alone, None, &none),
            Err(Missing::Unreadable { .. })
        ));
    }

    #[test]
    fn what_was_brought_from_elsewhere_is_not_from_here() {
        let mut map = map("v1.13.4", None);
        assert!(!is_from(&map, "r.example/a@sha256:1"));
        map.annotations_mut()
            .insert(FETCHED_FROM.to_owned(), "r.example/a@sha256:1".to_owned());
        assert!(is_from(&map, "r.example/a@sha256:1"));
        assert!(!is_from(&map, "r.example/a@sha256:2"));
    }

    #[test]
    fn what_was_brought_is_brought_anew_once_for_each_value() {
        let mut map = map("v1.13.4", None);
        let release = held(&map, &Overlay::default()).unwrap();
        let is_due =
            |map: &ConfigMap, refetch| is_stale(std::slice::from_ref(map), &release, refetch);
        assert!(!is_due(&map, Some("1")), "somebody loaded it");
        let annotate = |map: &mut ConfigMap, key: &str, value: &str| {
            map.annotations_mut()
                .insert(key.to_owned(), value.to_owned());
        };
        annotate(&mut map, FETCHED_FROM, "https://a.example");
        assert!(!is_due(&map, None));
        assert!(is_due(&map, Some("1")));
        annotate(&mut map, REFETCHED, "1");
        assert!(!is_due(&map, Some("1")), "it was answered");
        assert!(is_due(&map, Some("2")));
    }

    #[test]
    fn metadata_must_know_the_version() {
        let (none, later) = (Overlay::default(), map("a", Some("v1.15.0")));
        let error = held(&later, &none).unwrap_err().to_string();
        assert!(error.contains("v1.15"), "{error}");
        let overlay = "1.15=v1beta2".parse().unwrap();
        assert_eq!(held(&later, &overlay).unwrap().contract, "v1beta2");
        let mut without = map("v1.13.4", None);
        without.data.as_mut().unwrap().remove("metadata");
        let error = held(&without, &none).unwrap_err().to_string();
        let begins = "ConfigMap v1.13.4 cannot be read: data.metadata of";
        assert!(error.starts_with(begins), "{error}");
    }
}
