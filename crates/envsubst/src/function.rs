//! What can be done to a value.

use crate::{
    case,
    error::SubstituteError,
    glob::{self, Broken},
};

/// The longest length that there is.
const DIGITS: usize = 20;

/// A function of a reference, named by how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    /// None, or `=`, `:=`, `:-`, `:?`, `:+`; also two different casing signs, which do nothing.
    Default,
    /// `#` before the name.
    Length,
    /// `^`
    UpperFirst,
    /// `^^`
    Upper,
    /// `,`
    LowerFirst,
    /// `,,`
    Lower,
    /// `:`
    Substring,
    /// `#` and `##`
    TrimStart(Reach),
    /// `%` and `%%`
    TrimEnd(Reach),
    /// `/`
    ReplaceFirst,
    /// `//`
    ReplaceAll,
    /// `/#`
    ReplaceStart,
    /// `/%`
    ReplaceEnd,
}

/// How much a glob takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Shortest,
    Longest,
}

impl Function {
    /// How many bytes the result for a value has at most, without making it.
    pub(crate) fn most(self, value: &str, arguments: &[String]) -> usize {
        let length = |at: usize| arguments.get(at).map_or(0, String::len);
        match self {
            Self::Default if value.is_empty() => arguments
                .iter()
                .fold(0, |all, one| all.saturating_add(one.len())),
            Self::Length => DIGITS,
            // A letter of another case has up to three times as many bytes.
            Self::UpperFirst | Self::Upper | Self::LowerFirst | Self::Lower => {
                value.len().saturating_mul(3)
            }
            Self::Default | Self::Substring | Self::TrimStart(_) | Self::TrimEnd(_) => value.len(),
            Self::ReplaceFirst | Self::ReplaceStart | Self::ReplaceEnd => {
                value.len().saturating_add(length(1))
            }
            Self::ReplaceAll => {
                let first = arguments.first().map_or("", String::as_str);
                // Nothing is found before each letter and at the end.
                let found = value.matches(first).count();
                found.saturating_mul(length(1)).saturating_add(value.len())
            }
        }
    }

    /// The result for a value.
    pub(crate) fn apply(
        self,
        variable: &str,
        value: &str,
        arguments: &[String],
    ) -> Result<String, SubstituteError> {
        let first = arguments.first().map_or("", String::as_str);
        let second = arguments.get(1).map(String::as_str);
        Ok(match self {
            Self::Default if value.is_empty() => arguments.concat(),
            Self::Default => value.to_owned(),
            Self::Length => value.len().to_string(),
            Self::UpperFirst => case::upper_first(value),
            Self::Upper => case::upper(value),
            Self::LowerFirst => case::lower_first(value),
            Self::Lower => case::lower(value),
            Self::Substring => substring(variable, value, first, second)?.to_owned(),
            Self::TrimStart(reach) => trim_start(variable, value, first, reach)?,
            Self::TrimEnd(reach) => {
                let trimmed = trim_start(variable, &reversed(value), &reversed(first), reach)?;
                reversed(&trimmed)
            }
            Self::ReplaceFirst => value.replacen(first, second.unwrap_or_default(), 1),
            Self::ReplaceAll => value.replace(first, second.unwrap_or_default()),
            // Without a replacement these two do nothing, where the two above remove.
            Self::ReplaceStart => match (value.strip_prefix(first), second) {
                (Some(rest), Some(second)) => format!("{second}{rest}"),
                _ => value.to_owned(),
            },
            Self::ReplaceEnd => match (value.strip_suffix(first), second) {
                (Some(rest), Some(second)) => format!("{rest}{second}"),
                _ => value.to_owned(),
            },
        })
    }
}

/// Numbers that are none leave the value as it is.
fn substring<'a>(
    variable: &str,
    value: &'a str,
    position: &str,
    length: Option<&str>,
) -> Result<&'a str, SubstituteError> {
    let Ok(position) = position.parse::<i64>() else {
        return Ok(value);
    };
    let all = i64::try_from(value.len()).unwrap_or(i64::MAX);
    let start = if position < 0 {
        all.saturating_add(position).max(0)
    } else {
        position
    };
    let end = match length.map(str::parse::<i64>) {
        None => all,
        Some(Err(_)) => return Ok(value),
        Some(Ok(length)) => {
            let end = start.saturating_add(length);
            if length < 0 && end < all {
                return Err(SubstituteError::Length {
                    variable: variable.to_owned(),
                    length,
                });
            }
            end.min(all)
        }
    };
    if start >= all {
        return Ok("");
    }
    let range = |(start, end)| value.get(start..end);
    usize::try_from(start)
        .ok()
        .zip(usize::try_from(end).ok())
        .and_then(range)
        .ok_or_else(|| cut(variable))
}

/// A broken glob leaves the value as it is.
fn trim_start(
    variable: &str,
    value: &str,
    pattern: &str,
    reach: Reach,
) -> Result<String, SubstituteError> {
    if value.len() > glob::LONGEST {
        return Err(SubstituteError::Long {
            variable: variable.to_owned(),
            length: value.len(),
        });
    }
    match matched(value.as_bytes(), pattern.as_bytes(), reach) {
        Ok(length) => value
            .get(length..)
            .map(str::to_owned)
            .ok_or_else(|| cut(variable)),
        Err(Broken) => Ok(value.to_owned()),
    }
}

/// How long the beginning is that a pattern matches; 0 where there is none.
fn matched(value: &[u8], pattern: &[u8], reach: Reach) -> Result<usize, Broken> {
    let mut shortest = 0;
    // From the longest on, so that a broken pattern is found in the same cases.
    for length in (1..=value.len()).rev() {
        if glob::matches(pattern, value.get(..length).unwrap_or_default())? {
            shortest = length;
            if reach == Reach::Longest {
                break;
            }
        }
    }
    Ok(shortest)
}

/// The pattern is reversed too, so a class in it becomes a broken one.
fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

fn cut(variable: &str) -> SubstituteError {
    SubstituteError::Cut {
        variable: variable.to_owned(),
    }
}
