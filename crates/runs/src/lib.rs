//! Runs as objects, whatever they do: who executes them, how they are steered, and what their status and Events tell.
//!
//! A domain gives its [`Engine`], from a Run to what executes its steps, and its [`Subjects`], from a Run to what its runner is and
//! may. Everything else is here, once:
//!
//! - [`reconciler`]: sees to it that every Run that needs a runner has one, through the [`launcher`];
//! - [`runner`]: the process that executes one Run, with its journal, its Lease, its controls and the copy in the Run's status;
//! - [`supervisor`] and [`process`]: runners as processes of this machine, which outlive who started them;
//! - [`job`]: runners as Jobs of the cluster that the operator runs in;
//! - [`calls`]: engines whose steps are calls of an API, made by the runner itself;
//! - [`child`]: runs that are steps of other runs;
//! - [`object`]: Runs as a domain makes them of its plans, and [`history`]: how long ended ones are kept;
//! - [`control`]: what people write into a Run to steer it;
//! - [`layout`]: where the files of runs lie, and [`sweep`]: when they go.

pub mod calls;
pub mod child;
pub mod control;
pub mod engine;
pub mod history;
pub mod job;
pub mod launcher;
pub mod layout;
pub mod object;
pub mod obstacle;
pub mod operator;
pub mod presence;
pub mod process;
pub mod reconciler;
pub mod runner;
pub mod small_log;
pub mod subject;
pub mod supervisor;
pub mod sweep;

use api::{Run, run::RunPhase};

pub use engine::{Engine, Words, Work};
pub use layout::Layout;
pub use operator::operate;
pub use subject::Subjects;

/// The Lease of a subject: whoever holds it is the only one at work on it.
pub fn lease_name(kind: &str, name: &str) -> String {
    format!("{}-{name}", kind.to_lowercase())
}

/// The number at the end of a run's name; 0 where there is none.
pub fn number(run: &str) -> u32 {
    run.rsplit_once('-')
        .and_then(|(_, number)| number.parse().ok())
        .unwrap_or_default()
}

/// How a run stands.
pub fn phase(run: &Run) -> RunPhase {
    run.status
        .as_ref()
        .map(|status| status.phase)
        .unwrap_or_default()
}

/// Whether a run goes on by itself or after a person's word.
pub const fn is_active(phase: RunPhase) -> bool {
    matches!(
        phase,
        RunPhase::Pending | RunPhase::Running | RunPhase::Paused | RunPhase::Waiting
    )
}
