//! What is wrong with what a person wrote: field, value, rule, remedy.

use std::fmt;

/// One thing that must be changed before anything can go on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// The object and field, for example `Cluster spec.kubernetesVersion`.
    pub field: String,
    /// What stands there. Empty: nothing.
    pub value: String,
    /// What it should be.
    pub rule: String,
    /// What to do.
    pub remedy: String,
}

impl Problem {
    /// A problem from its four parts.
    pub fn new(
        field: impl Into<String>,
        value: impl fmt::Display,
        rule: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            field: field.into(),
            value: value.to_string(),
            rule: rule.into(),
            remedy: remedy.into(),
        }
    }

    /// What is wrong, without the field and the remedy.
    pub fn what(&self) -> String {
        let Self { value, rule, .. } = self;
        if value.is_empty() {
            rule.clone()
        } else {
            format!("{value:?}: {rule}")
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            value,
            rule,
            remedy,
        } = self;
        write!(f, "{field}")?;
        if !value.is_empty() {
            write!(f, " is {value:?}")?;
        }
        write!(f, ": {rule}; {remedy}")
    }
}

/// All problems as one text, in their order.
pub fn text(problems: &[Problem]) -> String {
    let lines: Vec<_> = problems.iter().map(Problem::to_string).collect();
    lines.join(". ")
}

/// The word that a person may have meant, if one is near enough.
pub fn nearest<'a>(written: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A letter in four, and one at least.
    let most = written.chars().count().div_ceil(4);
    let distance = |word: &'a str| (strsim::damerau_levenshtein(written, word), word);
    let (distance, word) = words.map(distance).min()?;
    (distance <= most).then_some(word)
}

/// An error and its causes as one text.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    text
}
