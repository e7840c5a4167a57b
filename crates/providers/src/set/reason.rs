//! Why a set stands as it does, in one word.

/// Why a condition of a set is as it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// Every provider has the version that it is to have.
    UpToDate,
    /// There is a plan.
    PlanMade,
    /// A provider is not ready.
    ProviderNotReady,
    /// The spec cannot be carried out.
    InvalidSpec,
    /// Another set is of the same installation.
    MoreThanOneExists,
    /// There is no core that is installed.
    WaitingForCore,
    /// Providers are on their way to versions that the set did not write.
    WaitingForProviders,
    /// No plan leads to what is wanted.
    Refused,
    /// The plan waits for a person.
    WaitingForApproval,
    /// The plan waits for a maintenance window.
    WaitingForWindow,
    /// A provider is being upgraded.
    UpgradeUnderWay,
    /// An upgrade failed, and no other is begun.
    UpgradeFailed,
    /// A provider has the version again that it had, and no other is begun.
    WentBack,
}

impl Reason {
    /// As a condition has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UpToDate => "UpToDate",
            Self::PlanMade => "PlanMade",
            Self::ProviderNotReady => "ProviderNotReady",
            Self::InvalidSpec => "InvalidSpec",
            Self::MoreThanOneExists => "MoreThanOneExists",
            Self::WaitingForCore => "WaitingForCore",
            Self::WaitingForProviders => "WaitingForProviders",
            Self::Refused => "Refused",
            Self::WaitingForApproval => "WaitingForApproval",
            Self::WaitingForWindow => "WaitingForWindow",
            Self::UpgradeUnderWay => "UpgradeUnderWay",
            Self::UpgradeFailed => "UpgradeFailed",
            Self::WentBack => "WentBack",
        }
    }
}
