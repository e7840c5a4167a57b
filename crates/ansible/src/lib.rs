//! kubespray's playbooks made into steps.
//!
//! A release is read, never forked: [`catalogue`] knows the releases, [`source`] brings the playbooks, [`sandbox`] makes the
//! Python environment that the release needs, [`mod@slice`] cuts playbooks into single plays, [`inventory`] compiles hosts and
//! variables, [`listing`] reads those that others wrote, [`ssh`] says how hosts are reached, [`probe`] asks whether they answer, [`playbook`] runs plays and judges them
//! by [`event`]s, [`program`] has Ansible answer a question, [`failure`] knows what failures mean. What is secret goes another way than the rest, and is masked where anything is told: [`mask`].

pub mod catalogue;
pub mod downloads;
pub mod event;
pub mod failure;
mod file;
pub mod inventory;
pub mod listing;
pub mod mask;
pub mod playbook;
pub mod probe;
pub mod program;
pub mod sandbox;
pub mod slice;
pub mod source;
pub mod ssh;
pub mod template;

pub use file::{
    CHANCE_PREFIX, FileError, chance_directory, recorded_directory, remove_recorded, write_private,
};
