//! What the settings of operations have in common. Pure.

use api::{
    Threshold,
    cluster::{self, Approval, Operations},
    run::OnBreach,
};

/// What a spec says of every operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Conduct {
    /// How many hosts may not answer.
    pub unreachable: Threshold,
    /// What happens when it is more.
    pub on_breach: OnBreach,
    /// How often a step is tried again.
    pub max_retries: u8,
    /// Whether a person must approve.
    pub approval: Approval,
}

/// As another operation, where it says nothing of its own. To approve the one is not to approve the other.
pub(super) fn or_as(own: Option<&cluster::Conduct>, other: Conduct) -> Conduct {
    let own = own.cloned().unwrap_or_default();
    let thresholds = own.thresholds.unwrap_or_default();
    Conduct {
        unreachable: thresholds.unreachable.unwrap_or(other.unreachable),
        on_breach: thresholds.on_breach.unwrap_or(other.on_breach),
        max_retries: own.max_retries.unwrap_or(other.max_retries),
        approval: own.approval.unwrap_or_default(),
    }
}

/// As creation, in whose place it stands: who wants to approve the one wants to approve the other.
pub(super) fn adoption(operations: &Operations, creation: Conduct) -> Conduct {
    let own = operations.adopt.as_ref();
    let approval = own.and_then(|own| own.approval);
    Conduct {
        approval: approval.unwrap_or(creation.approval),
        ..or_as(own, creation)
    }
}

pub(super) fn converging(operations: &Operations, creation: Conduct) -> Conduct {
    let own = operations.converge.clone().unwrap_or_default();
    let own = cluster::Conduct {
        thresholds: own.thresholds,
        max_retries: own.max_retries,
        approval: own.approval,
    };
    or_as(Some(&own), creation)
}

/// As removing, of which it is a part.
pub(super) fn replacement(operations: &Operations, removal: Conduct) -> Conduct {
    let own = operations.replace.clone().unwrap_or_default();
    Conduct {
        max_retries: own.max_retries.unwrap_or(removal.max_retries),
        approval: own.approval.unwrap_or(removal.approval),
        ..removal
    }
}

/// A host that it needs is never left out.
pub(super) fn recovery(operations: &Operations, creation: Conduct) -> Conduct {
    let recover = operations.recover.clone().unwrap_or_default();
    Conduct {
        unreachable: Threshold::Percent(0),
        on_breach: OnBreach::Fail,
        max_retries: recover.max_retries.unwrap_or(creation.max_retries),
        approval: recover.approval.unwrap_or_default(),
    }
}
