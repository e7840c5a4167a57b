//! How a provider stands.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a provider stands.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderStatus {
    /// The contract of Cluster API that the provider keeps to, as v1beta2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract: Option<String>,
    /// How it stands, by aspect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the object that this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The version that is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed_version: Option<String>,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $text:literal),* $(,)?) => {
        /// Why a condition is as it is.
        ///
        /// # Source
        /// cluster-api-operator `api/v1alpha2/conditions_consts.go`, whose words are kept, also where they say that they are
        /// reasons: people and programs look for them.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum Reason {
            $($(#[$doc])* $variant),*
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// As a condition has it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),*
                }
            }
        }
    };
}

reasons! {
    /// Everything was checked.
    PreflightChecksPassed = "PreflightChecksPassed",
    /// Another object stands for the same provider.
    MoreThanOneExists = "MoreThanOneExists",
    /// The version is none.
    IncorrectVersionFormat = "IncorrectVersionFormat",
    /// The core provider is not called cluster-api.
    IncorrectCoreProviderName = "IncorrectCoreProviderNameReason",
    /// No version is given, and the source has none.
    EmptyVersion = "EmptyVersionReason",
    /// The source is not given as it must be.
    FetchConfigValidationError = "FetchConfigValidationError",
    /// Nobody knows where a provider of that name comes from.
    UnknownProvider = "UnknownProvider",
    /// The provider keeps to a contract that does not go with that of the core, or skips more minor versions than may be skipped.
    ContractIncompatible = "CAPIVersionIncompatibility",
    /// The manifests could not be had.
    ComponentsFetchError = "ComponentsFetchError",
    /// The manifests were brought and are kept. Not of the existing operator, which tells nothing of it.
    ComponentsFetched = "ComponentsFetched",
    /// The settings of the spec do not fit the manifests.
    ComponentsCustomizationError = "ComponentsCustomizationError",
    /// A patch does not fit the manifests.
    ComponentsPatchError = "ComponentsPatchError",
    /// The upgrade failed.
    ComponentsUpgradeError = "ComponentsUpgradeError",
    /// What is of no version any more could not be deleted.
    OldComponentsDeletionError = "OldComponentsDeletionError",
    /// The core provider is not ready yet.
    WaitingForCoreProviderReady = "WaitingForCoreProviderReady",
    /// cert-manager is not ready yet. Not of the existing operator, which does not install it.
    WaitingForCertManager = "WaitingForCertManager",
    /// The version is older than the installed one.
    UnsupportedDowngrade = "UnsupportedProviderDowngradeReason",
    /// A workload says nothing of its availability yet.
    NoDeploymentAvailable = "NoDeploymentAvailableConditionReason",
    /// A webhook does not answer. Not of the existing operator, which asks none.
    WebhookUnavailable = "WebhookUnavailable",
    /// Every workload is available.
    DeploymentAvailable = "DeploymentAvailable",
    /// The provider is installed.
    ProviderInstalled = "ProviderInstalled",
    /// The provider is upgraded.
    ProviderUpgraded = "ProviderUpgraded",
    /// The installation failed.
    InstallFailed = "InstallFailed",
    /// A run is at work.
    RunInProgress = "RunInProgress",
    /// What was applied is not as it was any more. Not of the existing operator, which does not look.
    Drifted = "Drifted",
    /// The spec cannot be carried out. Not of the existing operator, which has no such check.
    InvalidSpec = "InvalidSpec",
    /// Something still needs what is to be deleted. Not of the existing operator, which deletes it.
    DependentsExist = "DependentsExist",
}
