//! Kinds of failures: what a failure is called, whose it is, what a person can do, and by what it is recognised.
//!
//! There is one table, [`KINDS`]; the reference people read is printed from it. What a text says goes before what follows from
//! it: a disk that is full makes a service fail, which makes an API server silent, and only the first is worth a remedy.

mod known;
mod look;
mod proof;
pub mod remedy;

use std::sync::LazyLock;

use api::run::FailureClass;
use regex::RegexSet;

pub use known::{KINDS, VERDICTS};
pub use look::{Look, look};
pub use proof::{PROOFS, Proof, Suite, proof};

use crate::probe::Reason;

/// A kind of failure.
#[derive(Debug)]
pub struct Kind {
    /// A constant in CamelCase, as in `Failure.code`.
    pub code: &'static str,
    /// Whose it is, and whether it passes.
    pub class: FailureClass,
    /// What has happened, for people: one sentence.
    pub meaning: &'static str,
    /// What to do.
    pub remedy: &'static str,
    /// Whether it is what other failures come from.
    pub rank: Rank,
    /// By which words it is recognised, as a regular expression; none: by how a play or a login ended.
    pub pattern: Option<&'static str>,
}

/// Where a failure stands among others of the same hosts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rank {
    /// It is wrong by itself.
    Cause,
    /// It may follow from another one.
    Symptom,
}

/// The kind that fits a text: the first of the table, since what others follow from stands before them.
pub fn of_text(text: &str) -> Option<&'static Kind> {
    static PATTERNS: LazyLock<Option<RegexSet>> = LazyLock::new(|| RegexSet::new(patterns()).ok());
    let first = PATTERNS.as_ref()?.matches(text).iter().next()?;
    KINDS.get(first)
}

/// One for each of [`KINDS`], in its order: every one of them has its words.
fn patterns() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.pattern.unwrap_or("$^"))
}

/// Every kind: by words, by how a play ended, by what a probe finds.
pub fn kinds() -> impl Iterator<Item = &'static Kind> {
    static HOSTS: LazyLock<Vec<Kind>> = LazyLock::new(|| of_probe().collect());
    KINDS.iter().chain(&VERDICTS).chain(HOSTS.iter())
}

/// What only a probe finds.
fn of_probe() -> impl Iterator<Item = Kind> {
    let others = Reason::ALL.into_iter().filter(|reason| {
        let mut known = KINDS.iter().chain(&VERDICTS);
        known.all(|kind| kind.code != reason.code())
    });
    others.map(|reason| Kind {
        code: reason.code(),
        class: FailureClass::External,
        meaning: reason.message(),
        remedy: reason.remedy(),
        rank: Rank::Cause,
        pattern: None,
    })
}

/// The kind of that code.
pub fn named(code: &str) -> Option<&'static Kind> {
    kinds().find(|kind| kind.code == code)
}

#[cfg(test)]
mod tests;
