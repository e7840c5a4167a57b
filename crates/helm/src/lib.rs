//! Releases of Helm: the real program installs and removes them, and what it stored of them is read and recovered by us.
//!
//! There is no other implementation of Helm's templates, and an own one would render some charts in another way without anybody
//! noticing. So charts are the program's business ([`Helm`]): any of 3.14 or later. What it keeps of a release
//! ([`record`]) is read without it, for it has no words for a release whose client died: it refuses every further change.
//!
//! Whether an installation that waits can end is proved before it is begun ([`deadlock`]).
//!
//! Values go by a file that only its owner reads, and the program has directories of its own for each call, so that nothing that
//! a person configured for themselves has a say.

pub mod deadlock;
pub mod lock;
pub mod process;
pub mod program;
pub mod record;

pub use deadlock::{Deadlock, Proven, deadlocks};
pub use program::{Change, Chart, Helm, Place};
pub use record::{Outline, Record, State};
