//! Playbooks cut into single plays, so that a run can decide, stop and resume between them.
//!
//! [`Playbook::read`] follows `import_playbook` and lists the plays in order, each with an id that is the same in every
//! release and playbook where it is the same thing. [`Playbook::write`] lays out a *view* of the checkout with a file per
//! group of plays. The checkout is never modified.
//!
//! A play is carried as the text that was written, never parsed and written again: Ansible reads YAML 1.1 with tags of its
//! own (`!vault`, `!unsafe`, `mode: 0644`), and what no one re-writes, no one can change. Imports that carry variables,
//! tags or conditions are carried in the same way, so that Ansible itself applies them. Each cut is proved by parsing the
//! piece and comparing it with what the whole file said. Cutting by `--tags` was rejected: facts under other tags are then
//! undefined (measured).

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use api::HostName;
use serde_json::Value;

mod cut;
mod downloads;
mod facts;
mod identity;
mod interrupted;
mod pattern;
mod tasks;
mod view;

pub use facts::{ADDED, KEEP_TOGETHER};
pub use interrupted::{FOUNDING, REPAIRS, Repair};
pub(crate) use pattern::distinct;
pub use pattern::{PatternError, Targets, resolve, select};
pub use tasks::{ListedPlay, ListedTask, list_tasks, parse_listed_tasks};
pub use view::SliceFile;

use crate::inventory::Inventory;

/// A playbook, flattened to its plays.
#[derive(Clone, Debug, PartialEq)]
pub struct Playbook {
    name: String,
    file: PathBuf,
    slices: Vec<Slice>,
}

/// One play.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// The place in the flattened playbook, from 0.
    pub index: usize,
    /// The id, for example `etcd/install`; unique in the playbook.
    pub id: String,
    /// What the play is called; its id where it has no name.
    pub name: String,
    /// The host pattern as written.
    pub hosts: String,
    /// The file that it stands in, relative to the checkout.
    pub file: PathBuf,
    /// The line where it begins, from 1.
    pub line: u64,
    /// Its tags and those of the imports that lead to it.
    pub tags: Vec<String>,
    /// Its roles, in order.
    pub roles: Vec<String>,
    /// How many hosts it works on at once, as written; all of them without it.
    pub serial: Option<Value>,
    /// Whether the next play reads what this one registers, so that both must run in one process.
    pub with_next: bool,
    /// Whether it reads facts that an earlier play sets without caching; they are computed again before it.
    pub needs_facts: bool,
    text: String,
    imports: Vec<Import>,
}

/// An import on the way to a play that changes it.
#[derive(Clone, Debug, PartialEq)]
struct Import {
    text: String,
    value: Value,
}

/// Why a playbook cannot be cut.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The checkout has no playbook of that name.
    #[error(
        "find the playbook {name} in {checkout}: looked for {}; is this a kubespray checkout?",
        looked_for.join(" and ")
    )]
    NoPlaybook {
        /// The name.
        name: String,
        /// The checkout.
        checkout: PathBuf,
        /// The files that would have been it.
        looked_for: Vec<String>,
    },
    /// An imported playbook is missing or outside the checkout.
    #[error("import {import} in {file}:{line}: {rule}")]
    Import {
        /// What is imported.
        import: String,
        /// The file with the import.
        file: PathBuf,
        /// The line of the import.
        line: u64,
        /// What is wrong.
        rule: &'static str,
    },
    /// A file cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not YAML.
    #[error("parse {file}:{line}:{column}")]
    Syntax {
        /// The file.
        file: PathBuf,
        /// The line, from 1; 0 if unknown.
        line: u64,
        /// The column, from 1; 0 if unknown.
        column: u64,
        /// Why.
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    /// A file is YAML, but no playbook, or one that cannot be cut.
    #[error("cut {file}:{line} into plays: {rule}")]
    Uncuttable {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        rule: String,
    },
    /// The playbook has no play.
    #[error("cut the playbook {name} in {file}: it has no play")]
    Empty {
        /// The name.
        name: String,
        /// Its file.
        file: PathBuf,
    },
    /// A play that is needed is not there.
    #[error("find the play {id} in the playbook {name}: it has {}", present.join(", "))]
    NoSlice {
        /// The id.
        id: String,
        /// The playbook.
        name: String,
        /// The ids that are there.
        present: Vec<String>,
    },
    /// A group of plays for one file is not possible.
    #[error("write plays {group:?} of {name} into one file: {rule}")]
    Group {
        /// The playbook.
        name: String,
        /// The indexes.
        group: Vec<usize>,
        /// What is wrong.
        rule: String,
    },
    /// The view cannot be written.
    #[error("write {path}")]
    Write {
        /// The file, link or directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// `ansible-playbook --list-tasks` failed.
    #[error("list the tasks of {playbook}: {reason}")]
    ListTasks {
        /// The playbook.
        playbook: PathBuf,
        /// What it said.
        reason: String,
    },
}

impl Playbook {
    /// Reads the playbook of that name (`cluster`, `scale`, `upgrade-cluster`, `reset`, `remove-node`,
    /// `recover-control-plane`) from the root of a checkout, spelled there with `-` or `_`.
    ///
    /// # Errors
    ///
    /// There is no such playbook, it or what it imports cannot be read, or it has no plays.
    pub fn read(checkout: &Path, name: &str) -> Result<Self, Error> {
        let candidates = spellings(name);
        let file = candidates.iter().find(|file| checkout.join(file).is_file());
        let file = file.map(PathBuf::from).ok_or_else(|| Error::NoPlaybook {
            name: name.to_owned(),
            checkout: checkout.to_owned(),
            looked_for: candidates.clone(),
        })?;
        let mut slices = cut::flatten(checkout, &file)?;
        if slices.is_empty() {
            return Err(Error::Empty {
                name: name.to_owned(),
                file,
            });
        }
        identity::name(name, &mut slices);
        facts::mark(checkout, &mut slices);
        Ok(Self {
            name: name.to_owned(),
            file,
            slices,
        })
    }

    /// Cuts a text that is of no checkout. Its plays run in a view of one, as if the text stood at the root, so that they find its
    /// roles; an import is refused.
    ///
    /// # Errors
    ///
    /// The text is no playbook, has no plays, or imports one.
    pub fn of_text(name: &str, text: &str) -> Result<Self, Error> {
        let file = PathBuf::from(format!("{name}.yml"));
        let mut slices = cut::plays(&file, text)?;
        if slices.is_empty() {
            return Err(Error::Empty {
                name: name.to_owned(),
                file,
            });
        }
        identity::name(name, &mut slices);
        Ok(Self {
            name: name.to_owned(),
            file,
            slices,
        })
    }

    /// The same with what its plays read of roles of a checkout: they run with it.
    #[must_use]
    pub fn with_facts_of(mut self, checkout: &Path) -> Self {
        facts::mark(checkout, &mut self.slices);
        self
    }

    /// The name it was read by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its file, relative to the checkout.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The plays, in order.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// The play of that id.
    ///
    /// # Errors
    ///
    /// The playbook has no play of that id.
    pub fn slice(&self, id: &str) -> Result<&Slice, Error> {
        let slice = self.slices.iter().find(|slice| slice.id == id);
        slice.ok_or_else(|| Error::NoSlice {
            id: id.to_owned(),
            name: self.name.clone(),
            present: self.slices.iter().map(|slice| slice.id.clone()).collect(),
        })
    }

    /// These plays, and each play before one of them that registers what it reads, in the playbook's order. A play that has none of the
    /// hosts that a run is limited to is in no plan, and does nothing here either.
    pub fn with_what_they_read(&self, plays: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let mut together = BTreeSet::new();
        for play in plays {
            together.insert(play);
            let before = self.slices.get(..play).unwrap_or_default().iter().rev();
            together.extend(
                before
                    .take_while(|slice| slice.with_next)
                    .map(|slice| slice.index),
            );
        }
        together.into_iter().collect()
    }

    /// The smallest groups of plays that may run in a process of their own: mostly single plays.
    pub fn units(&self) -> Vec<Vec<usize>> {
        let mut units: Vec<Vec<usize>> = Vec::new();
        let mut joined = false;
        for slice in &self.slices {
            match units.last_mut().filter(|_| joined) {
                Some(unit) => unit.push(slice.index),
                None => units.push(vec![slice.index]),
            }
            joined = slice.with_next;
        }
        units
    }
}

impl Slice {
    /// The hosts that the play works on, without those that the run leaves out.
    ///
    /// # Errors
    ///
    /// The pattern of the play cannot be resolved before a run: see [`PatternError`].
    pub fn targets(&self, inventory: &Inventory) -> Result<Targets, PatternError> {
        let pattern = resolve(&self.hosts, inventory.extra_vars())?;
        let mut targets = select(&pattern, inventory.groups())?;
        targets
            .hosts
            .retain(|host| !inventory.excluded().contains(host));
        Ok(targets)
    }

    /// The hosts that the play works on, without those that the run leaves out and without `localhost`.
    ///
    /// # Errors
    ///
    /// As of [`Slice::targets`].
    pub fn hosts(&self, inventory: &Inventory) -> Result<Vec<HostName>, PatternError> {
        self.targets(inventory).map(|targets| targets.hosts)
    }

    /// Whether the play has anything to work on. A play without costs a process start and does nothing.
    ///
    /// # Errors
    ///
    /// As of [`Slice::targets`].
    pub fn matches(&self, inventory: &Inventory) -> Result<bool, PatternError> {
        self.targets(inventory)
            .map(|targets| targets.localhost || !targets.hosts.is_empty())
    }

    /// The play as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The role with kubespray's defaults, as the release spells it, if the play has it.
    fn defaults(&self) -> Option<&str> {
        let mut roles = self.roles.iter().map(String::as_str);
        roles.find(|role| role.replace('_', "-") == "kubespray-defaults")
    }
}

fn spellings(name: &str) -> Vec<String> {
    let mut names = vec![
        format!("{name}.yml"),
        format!("{}.yml", name.replace('-', "_")),
    ];
    names.push(format!("{}.yml", name.replace('_', "-")));
    names.sort();
    names.dedup();
    names
}
