//! The operations on a provider and their plans. Pure.

use api::run::{Plan, Step};

use crate::{action::Action, inputs::Inputs};

/// What a run does to its provider.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation {
    /// Nothing of it is there yet, or what somebody else installed, which is left as it is where it is right.
    Install,
    /// Another version is installed.
    Upgrade,
    /// This version is installed, with other settings.
    Reconfigure,
    /// What was applied is not as it was any more, and is applied again.
    Repair,
    /// The provider is being deleted.
    Delete,
    /// The provider is being deleted, and what it installed stays.
    Release,
}

impl Operation {
    /// As a run has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Install => "Install",
            Self::Upgrade => "Upgrade",
            Self::Reconfigure => "Reconfigure",
            Self::Repair => "Repair",
            Self::Delete => "Delete",
            Self::Release => "Release",
        }
    }

    /// Whether the operation of that name is the last one of a provider.
    pub fn is_last(name: &str) -> bool {
        [Self::Delete, Self::Release]
            .map(Self::name)
            .contains(&name)
    }

    /// That makes `wanted` of what is installed.
    pub fn towards(wanted: &str, installed: Option<&str>) -> Self {
        match installed {
            None => Self::Install,
            Some(installed) if installed == wanted => Self::Reconfigure,
            Some(_) => Self::Upgrade,
        }
    }

    /// Its plan.
    ///
    /// # Errors
    ///
    /// The inputs cannot be written as JSON.
    pub fn plan(self, inputs: &Inputs, reason: &str) -> Result<Plan, serde_json::Error> {
        let actions = match self {
            Self::Install | Self::Upgrade | Self::Reconfigure | Self::Repair => {
                Action::INSTALL.as_slice()
            }
            Self::Delete => &Action::DELETE,
            Self::Release => &Action::RELEASE,
        };
        let mut plan = Plan {
            reason: Some(reason.to_owned()),
            inputs: inputs.to_map()?,
            steps: steps(actions),
            ..Plan::default()
        };
        plan.digest = workflow::plan::digest_of(self.name(), &plan)?;
        Ok(plan)
    }
}

/// Steps of these actions, one after the other.
pub(crate) fn steps(actions: &[Action]) -> Vec<Step> {
    let before = std::iter::once(None).chain(actions.iter().copied().map(Some));
    actions
        .iter()
        .zip(before)
        .map(|(action, before)| action.step(before))
        .collect()
}
