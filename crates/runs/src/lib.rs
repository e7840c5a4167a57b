//! Runs as objects, whatever they do: who executes them, how they are steered, and what their status and Events tell.
//!
//! A domain gives its [`Engine`]: from a Run to what executes its steps. Everything else is here, once:
//!
//! - [`runner`]: the process that executes one Run, with its journal, its Lease, its controls and the copy in the Run's status;
//! - [`supervisor`] and [`process`]: runners as processes of this machine, which outlive who started them;
//! - [`control`]: what people write into a Run to steer it;
//! - [`layout`]: where the files of runs lie.

pub mod control;
pub mod engine;
pub mod layout;
pub mod obstacle;
pub mod process;
pub mod runner;
pub mod small_log;
pub mod supervisor;

pub use engine::{Engine, Words, Work};
pub use layout::Layout;

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
