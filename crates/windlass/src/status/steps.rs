//! The steps of a run of whatever subject, as lines.

use api::Run;

use super::{View, lines::Lines};
use crate::terminal::shown;

/// What was said of a run and those before it.
#[derive(Debug, Default)]
pub(crate) struct Steps(Lines);

impl Steps {
    /// The lines for what changed since the last call.
    pub(crate) fn edges(&mut self, run: Run) -> Vec<String> {
        self.0.edges(&View {
            run: Some(shown(run)),
            ..View::default()
        })
    }
}
