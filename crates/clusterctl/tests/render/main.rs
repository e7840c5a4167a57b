//! Components as they are rendered, against clusterctl.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do"
)]

mod cases;
mod golden;
mod normal;
mod oracle;
mod refusals;
mod rights;
