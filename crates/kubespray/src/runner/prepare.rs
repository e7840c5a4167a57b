//! Steps before the playbook: the Python environment, and whether the hosts answer.

use api::run::{FailureClass, Step};
use workflow::{StepContext, StepOutcome};

use super::{
    executor::{KubesprayExecutor, failed},
    workspace::failure,
};

/// Makes the Python environment.
pub(crate) async fn sandbox(
    _executor: &KubesprayExecutor,
    _step: &Step,
    _context: &StepContext,
) -> StepOutcome {
    failed(failure(
        FailureClass::Permanent,
        "NotThere",
        "not there yet".to_owned(),
        None,
    ))
}

/// Asks every host whether it answers.
pub(crate) async fn probe(
    _executor: &KubesprayExecutor,
    _step: &Step,
    _context: &StepContext,
) -> StepOutcome {
    failed(failure(
        FailureClass::Permanent,
        "NotThere",
        "not there yet".to_owned(),
        None,
    ))
}
