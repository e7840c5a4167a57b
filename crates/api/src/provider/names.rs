//! The names by which the existing operator, clusterctl and people find things.

/// What keeps a provider until its objects are gone.
pub const FINALIZER: &str = "provider.cluster.x-k8s.io";

/// The conditions of a provider, beside Ready.
pub mod condition {
    /// Whether it can be installed at all.
    pub const PREFLIGHT_CHECK_PASSED: &str = "PreflightCheckPassed";
    /// Whether it is installed.
    pub const PROVIDER_INSTALLED: &str = "ProviderInstalled";
    /// Whether the last upgrade was carried out.
    pub const PROVIDER_UPGRADED: &str = "ProviderUpgraded";
    /// All of them.
    pub const ALL: [&str; 3] = [
        PREFLIGHT_CHECK_PASSED,
        PROVIDER_INSTALLED,
        PROVIDER_UPGRADED,
    ];
}

/// The labels of ConfigMaps with manifests, and of the objects that are made of them.
pub mod label {
    /// Of a ConfigMap with manifests: their version.
    pub const VERSION: &str = "provider.cluster.x-k8s.io/version";
    /// Of a ConfigMap with manifests: the provider's word for its type.
    pub const TYPE: &str = "provider.cluster.x-k8s.io/type";
    /// Of a ConfigMap with manifests: the provider's name.
    pub const NAME: &str = "provider.cluster.x-k8s.io/name";
    /// Of a ConfigMap with manifests that were fetched: where from, if that is a registry.
    pub const SOURCE: &str = "provider.cluster.x-k8s.io/source";
    /// Of a ConfigMap with manifests: `true`, if an operator fetched them.
    pub const MANAGED: &str = "managed-by.operator.cluster.x-k8s.io";
    /// Of every object of every provider. Its value is empty.
    pub const CLUSTERCTL: &str = "clusterctl.cluster.x-k8s.io";
    /// Of every object of a provider: the provider's [`manifest_label`](super::super::ProviderType::manifest_label).
    pub const PROVIDER: &str = "cluster.x-k8s.io/provider";
    /// Of a ClusterRole whose rules become the operator's, for a provider that a person let it install. Its value is `true`.
    pub const AGGREGATE: &str = "windlass.dev/aggregate-to-providers";
}

/// The annotations of ConfigMaps with manifests, and of providers.
pub mod annotation {
    /// Of a ConfigMap with manifests: `true`, if they are compressed by gzip.
    pub const COMPRESSED: &str = "provider.cluster.x-k8s.io/compressed";
    /// Of a ConfigMap with manifests that were fetched: where from.
    pub const SOURCE: &str = "provider.cluster.x-k8s.io/source";
    /// Of a provider of the existing operator: the digest of what it applied.
    pub const APPLIED_SPEC_HASH: &str = "operator.cluster.x-k8s.io/applied-spec-hash";
}

/// The keys of ConfigMaps with manifests.
pub mod key {
    /// `metadata.yaml` of the provider.
    pub const METADATA: &str = "metadata";
    /// The objects of the provider.
    pub const COMPONENTS: &str = "components";
    /// Of a ConfigMap that `additionalManifests` names: further objects.
    pub const MANIFESTS: &str = "manifests";
}
