//! What Windlass calls itself, and its things, towards the API.

/// The field manager of what is written of a provider.
pub const MANAGER: &str = "windlass-provider";
/// The field manager of what is written of a set of providers.
pub const SET_MANAGER: &str = "windlass-provider-set";
/// The field manager of the objects that a provider is made of.
pub const COMPONENTS_MANAGER: &str = "windlass-provider-components";
/// The engine of the actions of a provider's runs.
pub const ENGINE: &str = "providers";
/// The annotation that names the Secret, in the provider's namespace, with the kubeconfig of the cluster to install in, under the
/// key [`KUBECONFIG_KEY`]. Default: the cluster whose API has the provider. The definitions have no field for it, and must not.
pub const TARGET: &str = "windlass.dev/target-kubeconfig";
/// The annotation of a Secret or ConfigMap with the namespaces, apart by commas, whose providers may be made of what it holds, beside its own one.
pub const PROVIDER_NAMESPACES: &str = "windlass.dev/provider-namespaces";
/// The key of such a Secret: that of the Secrets with kubeconfigs that Cluster API makes.
pub const KUBECONFIG_KEY: &str = "value";
/// The annotation with the digest that a provider's components must have: `sha256:` and what sha256sum says of their file.
pub const COMPONENTS_DIGEST: &str = "windlass.dev/components-digest";
/// The annotation with the public key, in PEM, that a provider's components must be signed by.
pub const COMPONENTS_KEY: &str = "windlass.dev/components-key";
/// The annotation with series of releases that stand in no `metadata.yaml`, or wrongly, as in `1.15=v1beta2,1.16=v1beta2`.
pub const RELEASE_SERIES: &str = "windlass.dev/release-series";
/// The annotation that has the release brought anew, with any value that it has not had yet.
pub const REFETCH: &str = "windlass.dev/refetch";
/// The annotation of a ConfigMap with the value of [`REFETCH`] that it was brought for last.
pub const REFETCHED: &str = "windlass.dev/refetched";
/// The annotation of a Secret with a certificate that was made here: from when on it is to be renewed.
pub const RENEWED_FROM: &str = "windlass.dev/renewed-from";
/// The annotation that leaves what others have written as it is, where its value is `false`: it is told, and not put back.
pub const REPAIR: &str = "windlass.dev/repair-drift";
/// The annotation that leaves everything where it is when the provider is deleted, where its value is `true`: somebody else goes on.
pub const KEEP: &str = "windlass.dev/keep-components";
/// The annotation of pods that tells which state of the Secret with variables they were made of. Of its values nothing can be told from it.
pub const VARIABLES_MARK: &str = "windlass.dev/variables";
/// The annotation of a ConfigMap with the address that its release was brought from.
pub const FETCHED_FROM: &str = "windlass.dev/fetched-from";
/// What objects are called that are only tried, to see whether webhooks answer.
pub const WEBHOOK_CHECK: &str = "windlass-webhook-check";
/// The annotation of a ProviderSet with the id of the plan that a person lets begin.
pub const APPROVE: &str = "windlass.dev/approve-plan";
/// The annotation of a ProviderSet that has a plan tried once more which stopped, or a version that was put back, with any value that it has not
/// had yet.
pub const START_AGAIN: &str = "windlass.dev/start-again";
