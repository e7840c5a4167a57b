//! What is wrong with what a person wrote: [`Problem`], and how an inventory says it.

use ansible::inventory::InventoryError;

pub use controller::problem::{Problem, text};

/// What an inventory refuses, as a problem.
pub fn of_inventory(error: InventoryError) -> Problem {
    Problem {
        field: error.field,
        value: error.value,
        rule: error.rule,
        remedy: error.remedy,
    }
}

/// The word that a person may have meant, if one is near enough.
pub fn nearest<'a>(written: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A letter in four, and one at least.
    let most = written.chars().count().div_ceil(4);
    let distance = |word: &'a str| (strsim::damerau_levenshtein(written, word), word);
    let (distance, word) = words.map(distance).min()?;
    (distance <= most).then_some(word)
}
