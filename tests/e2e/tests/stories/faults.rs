//! Faults and people's words in the middle of runs: real hosts, real Ansible, the real operator and runner.
//!
//! The playbooks are small ones with the bundle's contract that raise nothing: each play leaves a mark on each host, waits
//! while a file says so and does, and fails by, what another file says. So a story can break things at a place of its choice, prove by the
//! marks that no step was done twice, and take seconds where a real cluster takes minutes.

mod deletion;
mod disk;
mod hosts;
mod steering;
mod story;
