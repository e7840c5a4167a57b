//! Label selectors in their text form: `a=b,c!=d,e in (x, y),f notin (z),g,!h`.

use std::str::FromStr;

/// Requirements, all of which must be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Requirement>);

/// Why a text is no selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no requirement of labels; write KEY, !KEY, KEY=VALUE, KEY!=VALUE, KEY in (VALUE, VALUE) or KEY notin (VALUE), with commas between"
)]
pub struct InvalidSelector(String);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Exists,
    Absent,
    /// The label is there with one of these.
    In(Vec<String>),
    /// The label is not there, or with none of these.
    NotIn(Vec<String>),
}

impl Selector {
    pub(crate) fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let has = |values: &[String], value: &str| values.iter().any(|one| one == value);
        self.0.iter().all(|Requirement { key, rule }| {
            let value = label(key);
            match rule {
                Rule::Exists => value.is_some(),
                Rule::Absent => value.is_none(),
                Rule::In(values) => value.is_some_and(|value| has(values, value)),
                Rule::NotIn(values) => value.is_none_or(|value| !has(values, value)),
            }
        })
    }
}

impl FromStr for Selector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let requirements = split(text).into_iter().map(requirement);
        requirements.collect::<Result<_, _>>().map(Self)
    }
}

/// At the commas that are in no parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut rest, mut at, mut depth) = (Vec::new(), text, 0, 0_u32);
    while let Some(byte) = rest.as_bytes().get(at) {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                let (part, more) = rest.split_at(at);
                parts.push(part);
                rest = more.get(1..).unwrap_or_default();
                at = 0;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    parts.push(rest);
    parts
}

fn requirement(text: &str) -> Result<Requirement, InvalidSelector> {
    let invalid = || InvalidSelector(text.trim().chars().take(80).collect());
    let text = text.trim();
    let (key, rule) = if let Some(key) = text.strip_prefix('!') {
        (key, Rule::Absent)
    } else if let Some((key, value)) = text.split_once("!=") {
        (key, Rule::NotIn(vec![value.trim().to_owned()]))
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (key, Rule::In(vec![value.trim().to_owned()]))
    } else if let Some((key, set)) = text.split_once(char::is_whitespace) {
        let (operator, values) = set.split_once('(').ok_or_else(invalid)?;
        let values = values.trim_end().strip_suffix(')').ok_or_else(invalid)?;
        let values = values
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        match operator.trim() {
            "in" => (key, Rule::In(values)),
            "notin" => (key, Rule::NotIn(values)),
            _ => return Err(invalid()),
        }
    } else {
        (text, Rule::Exists)
    };
    let key = key.trim();
    let values: &[String] = match &rule {
        Rule::In(values) | Rule::NotIn(values) => values,
        Rule::Exists | Rule::Absent => &[],
    };
    if is_key(key) && values.iter().all(|value| is_value(value)) {
        let key = key.to_owned();
        Ok(Requirement { key, rule })
    } else {
        Err(invalid())
    }
}

fn is_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').unwrap_or(("a", key));
    crate::provider::is_subdomain(prefix) && !name.is_empty() && is_value(name)
}

fn is_value(value: &str) -> bool {
    let is_outer = |character: char| character.is_ascii_alphanumeric();
    let is_inner = |character: char| is_outer(character) || matches!(character, '-' | '_' | '.');
    value.len() <= 63
        && value.chars().all(is_inner)
        && value.chars().next().is_none_or(is_outer)
        && value.chars().next_back().is_none_or(is_outer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_those_of_kubernetes() {
        let labels = |name: &str| match name {
            "app" => Some("one"),
            "example.com/tier" => Some("front"),
            "empty" => Some(""),
            _ => None,
        };
        let cases = [
            ("app", true),
            ("!app", false),
            ("none", false),
            ("!none", true),
            ("app=one", true),
            ("app == one", true),
            ("app=two", false),
            ("app!=two", true),
            ("none!=two", true),
            ("app in (two, one)", true),
            ("app in (two)", false),
            ("none in (two)", false),
            ("app notin (two)", true),
            ("none notin (two)", true),
            ("empty=", true),
            ("app=one,example.com/tier in (front,back),!none", true),
            ("app=one,example.com/tier notin (front,back)", false),
        ];
        for (text, expected) in cases {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.matches(labels), expected, "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            ",",
            "a,",
            "a b",
            "a in",
            "a in (b",
            "a in b",
            "a within (b)",
            "a=b c",
            "-a=b",
            "a/b/c",
            "a>1",
            "a=b=c",
            "Ä",
        ] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }
}
