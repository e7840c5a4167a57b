//! What clusterctl keeps of each installed provider: an object of its own kind, by which `clusterctl upgrade plan`, `describe` and
//! `move` know what there is.

use serde_json::{Value, json};

use crate::{
    Components, InvalidProvider, InvalidVersion, Object, Provider, ProviderType, Version, label,
    object::Lack,
};

/// An installed provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Installed {
    /// The provider.
    pub provider: Provider,
    /// The namespace that it is in.
    pub namespace: String,
    /// Its version.
    pub version: Version,
}

/// An object that says of no provider that it is installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InventoryError {
    /// Another kind.
    #[error("{0} is no Provider of group {GROUP}; list objects of that kind")]
    Kind(String),
    /// Its type.
    #[error("type of Provider {name}: {why}")]
    Type {
        /// The name of the object.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// Its provider.
    #[error("providerName of Provider {name}: {source}")]
    Provider {
        /// The name of the object.
        name: String,
        /// What is wrong.
        source: InvalidProvider,
    },
    /// Its version.
    #[error("version of Provider {name}: {source}")]
    Version {
        /// The name of the object.
        name: String,
        /// What is wrong.
        source: InvalidVersion,
    },
}

impl Installed {
    /// What there is once components are installed.
    pub fn of(components: &Components) -> Self {
        Self {
            provider: components.provider().clone(),
            namespace: components.target_namespace().to_owned(),
            version: components.version().clone(),
        }
    }

    /// The object that clusterctl keeps of it.
    ///
    /// # Errors
    ///
    /// None that a checked provider could lead to.
    pub fn object(&self) -> Result<Object, Lack> {
        let name = self.provider.manifest_label();
        Object::new(json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": KIND,
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": {
                    label::CLUSTERCTL: "",
                    label::PROVIDER: name,
                    label::CORE: "inventory",
                },
            },
            "providerName": self.provider.name(),
            "type": self.provider.provider_type().kind(),
            "version": self.version.to_string(),
        }))
    }

    /// What such an object says.
    ///
    /// # Errors
    ///
    /// An object of another kind, and fields that are none of a provider.
    pub fn read(object: &Object) -> Result<Self, InventoryError> {
        if object.group() != GROUP || object.kind() != KIND {
            return Err(InventoryError::Kind(object.title()));
        }
        let name = || object.name().to_owned();
        let text = |field: &str| {
            let found = object.value().get(field).and_then(Value::as_str);
            found.unwrap_or_default()
        };
        let provider_type: ProviderType = text("type")
            .parse()
            .map_err(|why| InventoryError::Type { name: name(), why })?;
        let provider = Provider::new(provider_type, text("providerName")).map_err(|source| {
            InventoryError::Provider {
                name: name(),
                source,
            }
        })?;
        let version = text("version")
            .parse()
            .map_err(|source| InventoryError::Version {
                name: name(),
                source,
            })?;
        Ok(Self {
            provider,
            namespace: object.namespace().to_owned(),
            version,
        })
    }
}

const GROUP: &str = "clusterctl.cluster.x-k8s.io";
const VERSION: &str = "v1alpha3";
const KIND: &str = "Provider";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_provider_is_kept_as_clusterctl_keeps_it() {
        let installed = Installed {
            provider: Provider::new(ProviderType::Bootstrap, "kubeadm").unwrap(),
            namespace: "bootstrap-system".to_owned(),
            version: "v1.14.2".parse().unwrap(),
        };
        let object = installed.object().unwrap();
        assert_eq!(
            *object.value(),
            json!({
                "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3",
                "kind": "Provider",
                "metadata": {
                    "name": "bootstrap-kubeadm",
                    "namespace": "bootstrap-system",
                    "labels": {
                        "clusterctl.cluster.x-k8s.io": "",
                        "clusterctl.cluster.x-k8s.io/core": "inventory",
                        "cluster.x-k8s.io/provider": "bootstrap-kubeadm",
                    },
                },
                "providerName": "kubeadm",
                "type": "BootstrapProvider",
                "version": "v1.14.2",
            })
        );
        assert_eq!(Installed::read(&object), Ok(installed));
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        let entry = |field: &str, value: Value| {
            let mut entry = json!({
                "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Provider", "metadata": {"name": "a", "namespace": "n"},
                "providerName": "a", "type": "AddonProvider", "version": "v1.0.0",
            });
            entry[field] = value;
            Installed::read(&Object::new(entry).unwrap()).map_err(|error| error.to_string())
        };
        let cases = [
            ("kind", json!("Metadata"), "Metadata n/a is no Provider"),
            (
                "type",
                json!("Addon"),
                "type of Provider a: there is no type of provider \"Addon\"; write one of CoreProvider,",
            ),
            (
                "type",
                json!(1),
                "type of Provider a: there is no type of provider \"\"",
            ),
            (
                "providerName",
                json!("A"),
                "providerName of Provider a: the name \"A\"",
            ),
            (
                "version",
                json!("1.0"),
                "version of Provider a: version \"1.0\"",
            ),
        ];
        for (field, value, said) in cases {
            let error = entry(field, value).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
