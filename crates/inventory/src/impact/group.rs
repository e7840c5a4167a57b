//! A group of machines that one object keeps, and what comes of it when that changes.

use serde_json::Value;

use super::{Bound, Effect, Happens, What, autoscaler::Size, live};
use crate::problem::Object;

/// Who keeps the machines, and which there are, if anybody has looked.
pub(super) struct Group<'a> {
    pub(super) of: &'a Object,
    pub(super) part: Option<String>,
    pub(super) machines: Option<Vec<&'a Value>>,
}

/// What changes of a group that stays.
pub(super) struct Change<'a> {
    pub(super) size: Size,
    /// What becomes of those that are not what is declared, and why they are not.
    pub(super) outdated: Outdated<'a>,
    /// The fields that are brought to machines where they are.
    pub(super) in_place: Vec<String>,
}

/// Machines that are not what is declared.
pub(super) struct Outdated<'a> {
    pub(super) happens: Happens,
    pub(super) bound: Bound,
    pub(super) because: Vec<String>,
    /// Which of those that there are; None: all.
    pub(super) only: Option<Vec<&'a Value>>,
}

impl Outdated<'_> {
    /// All of them are, if there is a reason.
    pub(super) fn all(happens: Happens, because: Vec<String>) -> Self {
        Self {
            happens,
            bound: Bound::Exactly,
            because,
            only: None,
        }
    }
}

impl<'a> Group<'a> {
    /// How many there are.
    pub(super) fn there(&self) -> Option<u32> {
        self.machines
            .as_ref()
            .map(|machines| number(machines.len()))
    }

    /// All come.
    pub(super) fn born(&self, count: u32) -> Vec<Effect> {
        self.effect(Happens::Added, Some(count))
            .into_iter()
            .collect()
    }

    /// All go.
    pub(super) fn gone(&self, count: Option<u32>) -> Vec<Effect> {
        let count = self.there().or(count);
        let effect = self.effect(Happens::Removed, count);
        let effect = effect.map(|effect| Effect {
            names: self.names(),
            ..effect
        });
        effect.into_iter().collect()
    }

    /// What comes of a change. Machines that are outdated are the first to go where there are to be fewer.
    pub(super) fn changed(&self, change: Change<'a>) -> Vec<Effect> {
        let Change {
            size,
            outdated,
            in_place,
        } = change;
        let (grows, shrinks) = match (size.before, size.after) {
            (Some(before), Some(after)) => {
                (after.saturating_sub(before), before.saturating_sub(after))
            }
            _ => (0, 0),
        };
        let there = self.there().or(size.before);
        let all = self.names();
        let (old, old_count) = match (&outdated.only, outdated.because.is_empty()) {
            (_, true) => (Vec::new(), Some(0)),
            (Some(only), false) => (names(only), Some(number(only.len()))),
            (None, false) => (all.clone(), there),
        };
        let replaced = old_count.map(|count| count.saturating_sub(shrinks));
        let stay = old.len().saturating_sub(shrinks as usize);
        let mut effects = Vec::new();
        let effect = self.effect(outdated.happens, replaced);
        effects.extend(effect.map(|effect| Effect {
            bound: outdated.bound,
            names: old.iter().take(stay).cloned().collect(),
            because: outdated.because.clone(),
            ..effect
        }));
        let replicas = || vec!["replicas".to_owned()];
        let effect = self.effect(Happens::Added, Some(grows));
        effects.extend(effect.map(|effect| Effect {
            because: replicas(),
            ..effect
        }));
        let effect = self.effect(Happens::Removed, Some(shrinks));
        effects.extend(effect.map(|effect| Effect {
            names: match size.after {
                Some(0) => all.clone(),
                _ if old.len() > stay && old.len() - stay == shrinks as usize => {
                    old.iter().skip(stay).cloned().collect()
                }
                _ => Vec::new(),
            },
            because: replicas(),
            ..effect
        }));
        effects.extend(self.updated(in_place, there, old_count, shrinks, &old));
        effects
    }

    /// Those that stay what they are, but for what is brought to them where they are.
    fn updated(
        &self,
        in_place: Vec<String>,
        there: Option<u32>,
        old: Option<u32>,
        shrinks: u32,
        replaced: &[String],
    ) -> Option<Effect> {
        if in_place.is_empty() {
            return None;
        }
        let goes = old.map(|old| old.max(shrinks));
        let count = match (there, goes) {
            (Some(there), Some(goes)) => Some(there.saturating_sub(goes)),
            // All of an unknown number are replaced.
            (None, None) => Some(0),
            _ => None,
        };
        let is_known = shrinks == 0 || replaced.len() >= shrinks as usize;
        let stay = self
            .names()
            .into_iter()
            .filter(|name| !replaced.contains(name));
        let effect = self.effect(Happens::Updated, count)?;
        Some(Effect {
            names: if is_known { stay.collect() } else { Vec::new() },
            because: in_place,
            ..effect
        })
    }

    /// An effect, unless it is one on nothing.
    fn effect(&self, happens: Happens, count: Option<u32>) -> Option<Effect> {
        (count != Some(0)).then(|| Effect {
            of: self.of.clone(),
            part: self.part.clone(),
            what: What::Machine,
            happens,
            count,
            bound: Bound::Exactly,
            names: Vec::new(),
            because: Vec::new(),
        })
    }

    fn names(&self) -> Vec<String> {
        names(self.machines.as_deref().unwrap_or_default())
    }
}

fn names(machines: &[&Value]) -> Vec<String> {
    let mut names: Vec<_> = machines.iter().map(|machine| live::name(machine)).collect();
    names.sort();
    names
}

pub(super) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
