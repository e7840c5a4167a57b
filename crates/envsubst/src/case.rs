//! Upper and lower case, one character for one: `ß` has no upper case here.

/// All characters in upper case.
pub(crate) fn upper(text: &str) -> String {
    text.chars().map(upper_of).collect()
}

/// All characters in lower case.
pub(crate) fn lower(text: &str) -> String {
    text.chars().map(lower_of).collect()
}

/// The first character in upper case.
pub(crate) fn upper_first(text: &str) -> String {
    first(text, upper_of)
}

/// The first character in lower case.
pub(crate) fn lower_first(text: &str) -> String {
    first(text, lower_of)
}

fn first(text: &str, change: impl Fn(char) -> char) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(change);
    first.into_iter().chain(characters).collect()
}

fn upper_of(character: char) -> char {
    let mut upper = character.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(upper), None) => upper,
        // Greek letters with an iota below have several characters as their upper case, but also one, which stands behind them.
        _ => match character {
            'ᾀ'..='ᾇ' | 'ᾐ'..='ᾗ' | 'ᾠ'..='ᾧ' => offset(character, 8),
            'ᾳ' | 'ῃ' | 'ῳ' => offset(character, 9),
            _ => character,
        },
    }
}

fn lower_of(character: char) -> char {
    // Only a capital I with a dot has several, of which the first is meant.
    character.to_lowercase().next().unwrap_or(character)
}

fn offset(character: char, by: u32) -> char {
    char::from_u32(u32::from(character) + by).unwrap_or(character)
}
