//! From the database of another Magnum to objects.
//!
//! The database is read and never written: in one session that may only read, in one transaction, so that all rows are of one moment.
//! [`database`] does that, [`rows`] is what it reads, and all that is decided is pure: [`carried()`] makes objects of rows and says
//! of each value that cannot be carried over why, [`Authorities`] finds the keys of clusters, and [`there`] compares what is to be
//! with what is there, and writes what is missing. Nothing that is there is written again, so that a migration can be done again, and
//! goes on where one was broken off.
//!
//! A cluster comes as one that was [imported](api::magnum::Imported): what it is made of was made by a driver of that Magnum, and nobody
//! here knows how to change it. Rejected was to take the Cluster API objects of other drivers over: each names and shapes them in a way of
//! its own, and an operator that applies its own shape to them would make all machines anew.
//!
//! Passwords of trustees and ids of trusts are not read at all: nothing here asks for anything on behalf of a user that is gone.

use std::fmt;

use api::text::plain;

mod authorities;
mod carried;
pub mod database;
pub mod rows;
pub mod there;

pub use authorities::{Authorities, Directory};
pub use carried::{Carried, carried};

/// How much of a value, or of a name, is told.
const TOLD: usize = 80;

/// What happens to a row with a value that does not fit.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Outcome {
    /// The row is not carried over.
    Refused,
    /// The row is carried over, and this of it is not, or is something else here.
    Changed,
}

/// A value that cannot be carried over as it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// What happens to its row.
    pub outcome: Outcome,
    /// The table.
    pub table: rows::Table,
    /// The row, for people: its UUID, or else the number that it has in its table.
    pub row: String,
    /// The column.
    pub field: &'static str,
    /// What it is, or in how many words; never a secret.
    pub value: String,
    /// What would fit.
    pub rule: String,
    /// What can be done.
    pub remedy: &'static str,
}

impl fmt::Display for Finding {
    /// All of it comes through the gate for foreign text: names and words of rows are those of users of the cloud.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.outcome {
            Outcome::Refused => "not carried over",
            Outcome::Changed => "changed",
        };
        let (row, value) = (plain(&self.row, TOLD), plain(&self.value, TOLD));
        write!(
            f,
            "{word}: {} {row}: {} is {value}: {}",
            self.table.name(),
            self.field,
            self.rule
        )?;
        if self.remedy.is_empty() {
            return Ok(());
        }
        write!(f, "; {}", self.remedy)
    }
}

#[cfg(test)]
pub(crate) mod tests;
