//! Effects in a sentence.

use std::{collections::BTreeMap, fmt};

use super::{Bound, Effect, Happens, What};

/// How many machines and hosts effects are about, added up over as many clusters as wanted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Summary(BTreeMap<(What, Happens), Sum>);

/// A sum, and how sure it is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Sum {
    count: u32,
    is_at_most: bool,
    /// Groups whose number is not known.
    unknown: u32,
}

impl Summary {
    /// Of effects.
    pub fn of<'a>(effects: impl IntoIterator<Item = &'a Effect>) -> Self {
        let mut summary = Self::default();
        for effect in effects {
            let sum = summary.0.entry((effect.what, effect.happens)).or_default();
            match effect.count {
                Some(count) => sum.count = sum.count.saturating_add(count),
                None => sum.unknown += 1,
            }
            sum.is_at_most |= effect.bound == Bound::AtMost;
        }
        summary
    }

    /// How many of these there are, without those whose number is not known.
    pub fn count(&self, what: What, happens: Happens) -> u32 {
        self.0.get(&(what, happens)).map_or(0, |sum| sum.count)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("no Machine and no host is touched");
        }
        for (number, ((what, happens), sum)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            match what {
                What::Machine | What::Host => {
                    let amount = amount(*what, sum);
                    write!(formatter, "{comma}{amount} {}", word(*happens))?;
                }
                What::Unknown => {
                    let objects = if sum.unknown == 1 {
                        "object"
                    } else {
                        "objects"
                    };
                    let many = sum.unknown;
                    write!(formatter, "{comma}nothing is known of {many} {objects}")?;
                }
            }
        }
        Ok(())
    }
}

fn amount(what: What, sum: &Sum) -> String {
    let Sum {
        count,
        is_at_most,
        unknown,
    } = *sum;
    let at_most = if is_at_most { "at most " } else { "" };
    let unit = match (what, count) {
        (What::Machine, 1) => "Machine",
        (What::Machine, _) => "Machines",
        (What::Host, 1) => "host",
        (What::Host, _) => "hosts",
        (What::Unknown, _) => "objects",
    };
    match (count, unknown) {
        (_, 0) => format!("{at_most}{count} {unit}"),
        (0, _) => format!("{at_most}all {unit} of {unknown} groups"),
        _ => format!("{at_most}{count} {unit} and all of {unknown} groups"),
    }
}

/// What happens, as a word behind a number.
pub(super) const fn word(happens: Happens) -> &'static str {
    match happens {
        Happens::Replaced => "replaced",
        Happens::Added => "added",
        Happens::Removed => "removed",
        Happens::Updated => "updated in place",
        Happens::Outdated => "left as they are until they are deleted",
        Happens::Unknown => "of which nothing is known",
    }
}

impl fmt::Display for Effect {
    /// One line: what keeps them, how many, what happens, which, and why.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            of,
            part,
            what,
            happens,
            count,
            bound,
            names,
            because,
        } = self;
        let part = part.as_ref().map(|part| format!(" {part}"));
        let sum = Sum {
            count: count.unwrap_or_default(),
            is_at_most: *bound == Bound::AtMost,
            unknown: u32::from(count.is_none()),
        };
        write!(formatter, "{of}{}: ", part.unwrap_or_default())?;
        match (what, count) {
            (What::Unknown, _) => {
                formatter.write_str("nothing is known of what its change touches")?;
            }
            (_, Some(_)) => write!(formatter, "{} {}", amount(*what, &sum), word(*happens))?,
            (_, None) => write!(formatter, "{ALL} {}", word(*happens))?,
        }
        if !names.is_empty() && (names.len() > 1 || names.first() != Some(&of.name)) {
            let some: Vec<_> = names.iter().take(MOST).map(String::as_str).collect();
            write!(formatter, ": {}", some.join(", "))?;
            if let Some(more) = names.len().checked_sub(MOST).filter(|more| *more > 0) {
                write!(formatter, " and {more} more")?;
            }
        }
        if !because.is_empty() {
            write!(formatter, " ({})", because.join(", "))?;
        }
        Ok(())
    }
}

/// Where nothing that was looked at says how many.
const ALL: &str = "all Machines, however many there are,";
/// A line names no more machines than a person reads; the other formats name all.
const MOST: usize = 20;
