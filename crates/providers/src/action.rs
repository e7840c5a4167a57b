//! What the steps of a provider's runs do.

use api::run::{Action as StepAction, EngineAction, Interrupt, Retry, Step};

use crate::names::ENGINE;

/// A step of a provider's run. Each can be repeated: it works from the plan and from what it finds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Reads the manifests and holds them against their digest.
    Fetch,
    /// Reaches the API that is installed in, and sees to it that it has what the manifests need.
    Preflight,
    /// Makes the objects of the manifests.
    Render,
    /// Makes the certificates of webhooks, where no cert-manager does.
    IssueCertificates,
    /// Stores objects anew that are stored in versions which the new definitions have no more.
    MigrateDropped,
    /// Applies definitions and waits until they are served.
    ApplyDefinitions,
    /// Applies all other objects.
    ApplyObjects,
    /// Applies what has the API ask webhooks.
    ApplyAdmission,
    /// Stores objects anew that are stored in an older version than their definition stores from now on.
    Migrate,
    /// Removes what the version does not have any more.
    Prune,
    /// Waits until every workload is available.
    AwaitReady,
    /// Writes what is installed where clusterctl looks for it.
    RecordInventory,
    /// Removes everything but definitions and namespaces.
    DeleteObjects,
    /// Removes what was written for clusterctl.
    ForgetInventory,
    /// Lets go of the objects, and leaves them where they are.
    ReleaseObjects,
}

impl Action {
    /// The steps that make a version the installed one. Definitions come before everything that is of them; what is no more is
    /// removed when all that is new is there, so that nothing is missing in between. The API asks webhooks for the first time when
    /// there is somebody who answers: new ones would have no answer from old pods. Objects are stored anew when the new pods convert
    /// them; before that only what a new definition could not be applied without.
    pub const INSTALL: [Self; 12] = [
        Self::Fetch,
        Self::Preflight,
        Self::Render,
        Self::IssueCertificates,
        Self::MigrateDropped,
        Self::ApplyDefinitions,
        Self::ApplyObjects,
        Self::AwaitReady,
        Self::ApplyAdmission,
        Self::Migrate,
        Self::Prune,
        Self::RecordInventory,
    ];

    /// The steps that remove a provider.
    pub const DELETE: [Self; 2] = [Self::DeleteObjects, Self::ForgetInventory];

    /// The step that hands a provider over to somebody else.
    pub const RELEASE: [Self; 1] = [Self::ReleaseObjects];

    /// As a step of a plan, after these.
    pub fn step(self, after: Option<Self>) -> Step {
        let (id, title, _, timeout, weight) = self.words();
        Step {
            id: id.to_owned(),
            title: title.to_owned(),
            depends_on: after
                .map(|before| before.id().to_owned())
                .into_iter()
                .collect(),
            action: StepAction::Engine(EngineAction {
                name: ENGINE.to_owned(),
                action: self.name().to_owned(),
                ..EngineAction::default()
            }),
            groups: Vec::new(),
            timeout: Some(api::Duration::from_seconds(timeout)),
            // An API that is away for a moment, a webhook that is not up yet.
            retry: Some(Retry {
                limit: 5,
                back_off: Some(api::Duration::from_seconds(2)),
            }),
            gate: None,
            on_failure: None,
            interrupt: Interrupt::AtTask,
            batch: None,
            weight: Some(weight),
        }
    }

    /// The id of its step.
    pub fn id(self) -> &'static str {
        self.words().0
    }

    /// As an action of the engine is called.
    pub fn name(self) -> &'static str {
        self.words().2
    }

    /// The action of that name.
    pub fn named(name: &str) -> Option<Self> {
        let all = Self::INSTALL
            .iter()
            .chain(&Self::DELETE)
            .chain(&Self::RELEASE);
        all.copied().find(|action| action.name() == name)
    }

    /// Whether it changes anything but what is noted of runs.
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Fetch | Self::Preflight | Self::Render)
    }

    /// Its step, its title, its name, how long it may take in seconds, and its weight.
    const fn words(self) -> (&'static str, &'static str, &'static str, u64, u32) {
        match self {
            Self::Fetch => ("source/fetch", "Read the manifests", "Fetch", 120, 2),
            Self::Preflight => ("check/preflight", "Check the cluster", "Preflight", 120, 2),
            Self::Render => ("source/render", "Make the objects", "Render", 120, 1),
            Self::IssueCertificates => (
                "apply/certificates",
                "Make certificates",
                "IssueCertificates",
                120,
                1,
            ),
            Self::ApplyAdmission => (
                "apply/admission",
                "Have the API ask the new webhooks",
                "ApplyAdmission",
                300,
                2,
            ),
            Self::ApplyDefinitions => (
                "apply/definitions",
                "Apply definitions",
                "ApplyDefinitions",
                300,
                10,
            ),
            Self::MigrateDropped => (
                "migrate/dropped",
                "Store objects anew that the new definitions could not have",
                "MigrateDropped",
                3600,
                2,
            ),
            // Hundreds of objects a second, and there may be a hundred thousand.
            Self::Migrate => (
                "migrate/stored",
                "Store objects in the new version",
                "Migrate",
                3600,
                5,
            ),
            Self::ApplyObjects => ("apply/objects", "Apply objects", "ApplyObjects", 600, 15),
            Self::Prune => ("apply/prune", "Remove what is no more", "Prune", 300, 5),
            // Longer than it waits by itself, which ends with what is not ready.
            Self::AwaitReady => (
                "check/ready",
                "Wait until all of it is ready",
                "AwaitReady",
                960,
                60,
            ),
            Self::RecordInventory => (
                "inventory/record",
                "Note what is installed",
                "RecordInventory",
                120,
                2,
            ),
            Self::DeleteObjects => (
                "delete/objects",
                "Delete the objects",
                "DeleteObjects",
                600,
                20,
            ),
            Self::ReleaseObjects => (
                "release/objects",
                "Let go of the objects",
                "ReleaseObjects",
                600,
                10,
            ),
            Self::ForgetInventory => (
                "inventory/forget",
                "Take it out of clusterctl's inventory",
                "ForgetInventory",
                120,
                2,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use workflow::CheckedPlan;

    use super::*;

    #[test]
    fn steps_follow_each_other_and_are_found_again() {
        for actions in [
            Action::INSTALL.as_slice(),
            &Action::DELETE,
            &Action::RELEASE,
        ] {
            let steps = crate::operation::steps(actions);
            let plan = api::run::Plan {
                steps,
                ..api::run::Plan::default()
            };
            let checked = CheckedPlan::new(plan.clone()).unwrap();
            assert_eq!(checked.steps(), plan.steps);
            for action in actions {
                assert_eq!(Action::named(action.name()), Some(*action));
            }
        }
    }
}
