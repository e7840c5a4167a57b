//! The embedded API held against real ones: the same requests to each, compared answer by answer.
//!
//! [`play`] sends the scenarios of `scenarios/` and notes what comes back, [`target`] raises the servers, [`deviations`]
//! reads where the embedded API differs on purpose or not yet. The tests raise the embedded API in this process and over
//! TLS, and the real one in the newest version that Windlass claims to work with, and in a full run in the oldest one too.
//! Where those two differ, either is right; `scenarios/oldest.json` names where ours is like the oldest.

pub mod compare;
pub mod deviations;
mod normal;
pub mod play;
pub mod target;
