//! Hosts that are asked and worked on: real sshd on loopback, ssh and Ansible.
//!
//! Where a host must differ from this machine (its users, its processes, its network), its sshd runs in namespaces of its own.
//! That takes root; without it those tests fail and say so.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod bastion;
#[path = "../support/environment.rs"]
mod environment;
mod failures;
mod leftover;
mod probe;
mod remedies;
mod sshd;
