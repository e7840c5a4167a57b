//! Plays.

use api::run::Step;
use workflow::StepContext;

use super::executor::KubesprayExecutor;

/// Executes plays that follow each other in one process.
pub(crate) async fn execute(
    _executor: &KubesprayExecutor,
    _steps: Vec<Step>,
    _context: StepContext,
) {
}
