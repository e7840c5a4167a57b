//! What a provider is called, and everything that is named after it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::Version;

/// What a provider does. The order is that in which providers are installed and upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProviderType {
    /// Cluster API itself.
    #[serde(rename = "CoreProvider")]
    Core,
    /// Turns machines into nodes.
    #[serde(rename = "BootstrapProvider")]
    Bootstrap,
    /// Runs control planes.
    #[serde(rename = "ControlPlaneProvider")]
    ControlPlane,
    /// Makes machines and networks.
    #[serde(rename = "InfrastructureProvider")]
    Infrastructure,
    /// Hands out addresses.
    #[serde(rename = "IPAMProvider")]
    Ipam,
    /// Answers the hooks of Cluster API.
    #[serde(rename = "RuntimeExtensionProvider")]
    RuntimeExtension,
    /// Installs what clusters need beside themselves.
    #[serde(rename = "AddonProvider")]
    Addon,
}

/// A provider: its type and its name, which together are unique.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Provider {
    provider_type: ProviderType,
    name: String,
}

/// Why a name is none of a provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProvider {
    /// Not a name of Kubernetes.
    #[error(
        "the name {0:?} of a provider is not made of at most {LONGEST} lower-case letters, digits, hyphens and dots, beginning and \
         ending with a letter or digit; write the name that its objects have"
    )]
    Name(String),
    /// The one name of the one core provider.
    #[error(
        "a {provider_type} is called {name:?}; {CORE} is the name of the CoreProvider, and its only one"
    )]
    Core {
        /// The type.
        provider_type: ProviderType,
        /// The name.
        name: String,
    },
}

/// Labels that providers and their objects carry.
pub mod label {
    /// On everything that belongs to clusterctl; its value is empty.
    pub const CLUSTERCTL: &str = "clusterctl.cluster.x-k8s.io";
    /// On everything of a provider; its value is [`Provider::manifest_label`](super::Provider::manifest_label).
    pub const PROVIDER: &str = "cluster.x-k8s.io/provider";
    /// On what clusterctl keeps for itself: `inventory` or `cert-manager`.
    pub const CORE: &str = "clusterctl.cluster.x-k8s.io/core";
}

impl ProviderType {
    /// All of them, in their order.
    pub const ALL: [Self; 7] = [
        Self::Core,
        Self::Bootstrap,
        Self::ControlPlane,
        Self::Infrastructure,
        Self::Ipam,
        Self::RuntimeExtension,
        Self::Addon,
    ];

    /// The kind, as in `InfrastructureProvider`.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Core => "CoreProvider",
            Self::Bootstrap => "BootstrapProvider",
            Self::ControlPlane => "ControlPlaneProvider",
            Self::Infrastructure => "InfrastructureProvider",
            Self::Ipam => "IPAMProvider",
            Self::RuntimeExtension => "RuntimeExtensionProvider",
            Self::Addon => "AddonProvider",
        }
    }

    /// The word in names of files and labels, as in `control-plane-components.yaml`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Bootstrap => "bootstrap",
            Self::ControlPlane => "control-plane",
            Self::Infrastructure => "infrastructure",
            Self::Ipam => "ipam",
            Self::RuntimeExtension => "runtime-extension",
            Self::Addon => "addon",
        }
    }

    /// The word in names of ConfigMaps and artefacts, which the existing operator writes without a hyphen in one case.
    pub(crate) const fn stored_word(self) -> &'static str {
        match self {
            Self::RuntimeExtension => "runtimeextension",
            other => other.word(),
        }
    }

    /// The file of components that a release of this type is recommended to have.
    pub fn components_file(self) -> String {
        format!("{}-components.yaml", self.word())
    }
}

impl fmt::Display for ProviderType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

impl FromStr for ProviderType {
    type Err = String;

    /// From its kind.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL;
        known
            .into_iter()
            .find(|known| known.kind() == text)
            .ok_or_else(|| {
                let known = known.map(Self::kind).join(", ");
                format!("there is no type of provider {text:?}; write one of {known}")
            })
    }
}

impl Provider {
    /// A provider of a type and a name.
    ///
    /// # Errors
    ///
    /// A name that cannot be one of this type.
    pub fn new(provider_type: ProviderType, name: &str) -> Result<Self, InvalidProvider> {
        if !is_subdomain(name) {
            return Err(InvalidProvider::Name(name.to_owned()));
        }
        if (name == CORE) != (provider_type == ProviderType::Core) {
            return Err(InvalidProvider::Core {
                provider_type,
                name: name.to_owned(),
            });
        }
        Ok(Self {
            provider_type,
            name: name.to_owned(),
        })
    }

    /// The type.
    pub fn provider_type(&self) -> ProviderType {
        self.provider_type
    }

    /// The name, as in `kubeadm`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of the label [`label::PROVIDER`] and the name of its inventory object, as in `bootstrap-kubeadm`.
    pub fn manifest_label(&self) -> String {
        match self.provider_type {
            ProviderType::Core => self.name.clone(),
            other => format!("{}-{}", other.word(), self.name),
        }
    }

    /// The ConfigMap that the existing operator keeps a release in.
    pub fn config_map(&self, version: &Version) -> String {
        format!(
            "{}-{}-{version}",
            self.provider_type.stored_word(),
            self.name
        )
    }

    /// The Secret that the existing operator keeps what it rendered in.
    pub fn cache_secret(&self, version: &Version) -> String {
        format!("{}-cache", self.config_map(version))
    }

    /// The names under which an artefact may hold the components, the first of which counts.
    pub fn components_files(&self, version: &Version) -> [String; 3] {
        [
            format!("{}-components.yaml", self.config_map(version)),
            format!("{}-components.yaml", self.provider_type.stored_word()),
            "components.yaml".to_owned(),
        ]
    }

    /// The names under which an artefact may hold the metadata, the first of which counts.
    pub fn metadata_files(&self, version: &Version) -> [String; 2] {
        [
            format!("{}-metadata.yaml", self.config_map(version)),
            "metadata.yaml".to_owned(),
        ]
    }

    /// Whether it is cert-manager, which providers ask for certificates. It is installed as an add-on is, and belongs to no clusterctl: it keeps
    /// no contract, is no part of the inventory, and none of its objects moves with a cluster.
    pub fn is_cert_manager(&self) -> bool {
        self.provider_type == ProviderType::Addon && self.name == CERT_MANAGER
    }

    /// Whether its versions are those of Cluster API, so that its upgrades may skip no more than three minors.
    pub(crate) fn is_of_cluster_api(&self) -> bool {
        match self.provider_type {
            ProviderType::Core => true,
            ProviderType::Bootstrap | ProviderType::ControlPlane => self.name == "kubeadm",
            _ => false,
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.provider_type, self.name)
    }
}

/// As Kubernetes wants names of objects.
pub(crate) fn is_subdomain(name: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(is_inner)
            && bytes.last().is_some_and(is_inner)
            && bytes.iter().all(|byte| is_inner(byte) || *byte == b'-')
    };
    name.len() <= LONGEST && name.split('.').all(is_label)
}

const CORE: &str = "cluster-api";
const CERT_MANAGER: &str = "cert-manager";
const LONGEST: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_names_its_objects_and_files() {
        let version: Version = "v1.2.3".parse().unwrap();
        let cases = [
            (
                ProviderType::Core,
                "cluster-api",
                "cluster-api",
                "core-cluster-api-v1.2.3",
            ),
            (
                ProviderType::Bootstrap,
                "kubeadm",
                "bootstrap-kubeadm",
                "bootstrap-kubeadm-v1.2.3",
            ),
            (
                ProviderType::ControlPlane,
                "kubeadm",
                "control-plane-kubeadm",
                "control-plane-kubeadm-v1.2.3",
            ),
            (
                ProviderType::Infrastructure,
                "docker",
                "infrastructure-docker",
                "infrastructure-docker-v1.2.3",
            ),
            (
                ProviderType::Ipam,
                "in-cluster",
                "ipam-in-cluster",
                "ipam-in-cluster-v1.2.3",
            ),
            (
                ProviderType::RuntimeExtension,
                "nutanix",
                "runtime-extension-nutanix",
                "runtimeextension-nutanix-v1.2.3",
            ),
            (
                ProviderType::Addon,
                "helm",
                "addon-helm",
                "addon-helm-v1.2.3",
            ),
        ];
        for (provider_type, name, label, config_map) in cases {
            let provider = Provider::new(provider_type, name).unwrap();
            assert_eq!(provider.manifest_label(), label);
            assert_eq!(provider.config_map(&version), config_map);
            assert_eq!(provider_type.kind().parse(), Ok(provider_type));
        }
        let extension = Provider::new(ProviderType::RuntimeExtension, "one").unwrap();
        assert_eq!(
            ProviderType::RuntimeExtension.components_file(),
            "runtime-extension-components.yaml"
        );
        assert_eq!(
            extension.components_files(&version)[1],
            "runtimeextension-components.yaml"
        );
        assert_eq!(
            extension.metadata_files(&version)[0],
            "runtimeextension-one-v1.2.3-metadata.yaml"
        );
        assert_eq!(
            extension.cache_secret(&version),
            "runtimeextension-one-v1.2.3-cache"
        );
    }

    #[test]
    fn names_that_are_none_are_refused() {
        for name in [
            "",
            "A",
            "a_b",
            "-a",
            "a-",
            "a..b",
            "a/b",
            "../a",
            &"a".repeat(254),
        ] {
            let refused = Provider::new(ProviderType::Addon, name);
            assert!(matches!(refused, Err(InvalidProvider::Name(_))), "{name}");
        }
        for (provider_type, name) in [
            (ProviderType::Core, "capi"),
            (ProviderType::Addon, "cluster-api"),
        ] {
            let refused = Provider::new(provider_type, name);
            assert!(
                matches!(refused, Err(InvalidProvider::Core { .. })),
                "{name}"
            );
        }
        assert!("Provider".parse::<ProviderType>().is_err());
    }
}
