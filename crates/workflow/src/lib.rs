//! Journalled runs of ordered steps: the one step model for all engines. It knows no domain.
//!
//! The serialized types ([`api::run`]) say what a plan, a record and a request look like; this crate gives them their
//! meaning:
//!
//! - [`plan`]: a plan that is proved to be a graph which can be executed in its order;
//! - [`journal`]: the append-only list of records, and where it is kept;
//! - [`state`]: how a run and its steps stand, derived from the records alone, with the table of legal transitions;
//! - [`control`]: what people ask of a run, and the answer to each request;
//! - [`gate`]: what follows from the way a step ended: thresholds, retries;
//! - [`executor`]: what an engine implements;
//! - [`runner`]: executes a plan, writing every edge to the journal before it acts on it;
//! - [`status`]: the `Run` status, derived from the state.
//!
//! Steps are executed one by one in the plan's order, unless the plan lets more of them run at a time: then those that depend
//! on nothing that is not done, and share no target, run side by side.

mod bounds;
pub mod clock;
pub mod control;
pub mod executor;
pub mod gate;
pub mod journal;
pub mod plan;
pub mod runner;
pub mod state;
pub mod status;

pub use clock::{Clock, SystemClock};
pub use control::{Rest, Steering};
pub use executor::{Executor, Reporter, Signal, StepContext, StepOutcome, StepProgress};
pub use journal::{FileJournal, JournalStore, MemoryJournal};
pub use plan::CheckedPlan;
pub use runner::{Observer, Outcome, RunError};
pub use state::State;
