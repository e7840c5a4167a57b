//! Label and field selectors of list, watch and deletecollection.

use std::cmp::Ordering;

use crate::{
    failure::{Failure, Result},
    registry::Resource,
    rest::check::{label_value, qualified},
    store::Object,
};

/// Which objects a request wants.
#[derive(Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<LabelRule>,
    fields: Vec<FieldRule>,
}

#[derive(Debug)]
enum LabelRule {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    /// A whole number that is greater or less than a bound.
    Beyond(String, i64, Ordering),
}

#[derive(Debug)]
struct FieldRule {
    field: Field,
    value: String,
    equal: bool,
}

#[derive(Debug)]
enum Field {
    Name,
    Namespace,
    Indexed(usize),
}

impl Selector {
    pub fn parse(labels: Option<&str>, fields: Option<&str>, resource: &Resource) -> Result<Self> {
        Ok(Self {
            labels: parse_labels(labels.unwrap_or_default())?,
            fields: parse_fields(fields.unwrap_or_default(), resource)?,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, object: &Object) -> bool {
        self.labels.iter().all(|rule| rule.matches(object))
            && self.fields.iter().all(|rule| rule.matches(object))
    }
}

impl LabelRule {
    fn matches(&self, object: &Object) -> bool {
        let label = |key: &str| object.meta.labels.get(key);
        match self {
            Self::In(key, values) => {
                label(key).is_some_and(|value| values.iter().any(|v| **v == **value))
            }
            Self::NotIn(key, values) => {
                label(key).is_none_or(|value| values.iter().all(|v| **v != **value))
            }
            Self::Exists(key) => label(key).is_some(),
            Self::Absent(key) => label(key).is_none(),
            Self::Beyond(key, bound, than) => label(key)
                .and_then(|value| value.parse::<i64>().ok())
                .is_some_and(|value| value.cmp(bound) == *than),
        }
    }
}

impl FieldRule {
    fn matches(&self, object: &Object) -> bool {
        let value = match self.field {
            Field::Name => &*object.key.name,
            Field::Namespace => &*object.key.namespace,
            Field::Indexed(index) => object.meta.fields.get(index).map_or("", |value| &**value),
        };
        (value == self.value) == self.equal
    }
}

fn parse_labels(text: &str) -> Result<Vec<LabelRule>> {
    let mut tokens = Tokens::of(text);
    let mut rules = Vec::new();
    let parsed = loop {
        match tokens.next() {
            None if rules.is_empty() => break Ok(()),
            Some(token) if token.is_word() || token == Token::Not => {}
            other => break Err(unexpected(other, "!, identifier, or 'end of string'")),
        }
        tokens.back();
        match tokens.rule() {
            Ok(rule) => rules.push(rule),
            Err(why) => break Err(format!("unable to parse requirement: {why}")),
        }
        match tokens.next() {
            None => break Ok(()),
            Some(Token::Comma) => {}
            other => break Err(unexpected(other, "',' or 'end of string'")),
        }
    };
    parsed.map(|()| rules).map_err(Failure::bad_request)
}

/// A part of a label selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// A key or a value, or an operator that is a word.
    Word(&'a str),
    Open,
    Close,
    Comma,
    Not,
    Equal,
    Unequal,
    Greater,
    Less,
}

impl Token<'_> {
    fn is_word(self) -> bool {
        matches!(self, Self::Word(_))
    }
}

/// The parts of a label selector, by the grammar of Kubernetes.
///
/// # Source
/// `apimachinery/pkg/labels/selector.go`, 1.34.
struct Tokens<'a> {
    all: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn of(mut text: &'a str) -> Self {
        let special = |c: char| "=!(),<>".contains(c);
        let space = |c: char| " \t\r\n".contains(c);
        let mut all = Vec::new();
        loop {
            text = text.trim_start_matches(space);
            if text.is_empty() {
                return Self { all, at: 0 };
            }
            let sign = SIGNS.iter().find(|(sign, _)| text.starts_with(sign));
            let (token, length) = sign.map_or_else(
                || {
                    let end = text.find(|c| special(c) || space(c)).unwrap_or(text.len());
                    (Token::Word(text.get(..end).unwrap_or_default()), end)
                },
                |(sign, token)| (*token, sign.len()),
            );
            all.push(token);
            text = text.get(length..).unwrap_or_default();
        }
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.all.get(self.at).copied();
        self.at += 1;
        token
    }

    fn back(&mut self) {
        self.at -= 1;
    }

    fn peek(&self) -> Option<Token<'a>> {
        self.all.get(self.at).copied()
    }

    fn at_end_of_rule(&self) -> bool {
        matches!(self.peek(), None | Some(Token::Comma))
    }

    fn rule(&mut self) -> Result<LabelRule, String> {
        let mut token = self.next();
        let absent = token == Some(Token::Not);
        if absent {
            token = self.next();
        }
        let Some(Token::Word(key)) = token else {
            return Err(unexpected(token, "identifier"));
        };
        if !qualified(key) {
            return Err(format!("{key:?} is no key of a label"));
        }
        let key = key.to_owned();
        if absent {
            return Ok(LabelRule::Absent(key));
        }
        if self.at_end_of_rule() {
            return Ok(LabelRule::Exists(key));
        }
        match self.next() {
            Some(Token::Word("in")) => Ok(LabelRule::In(key, self.values()?)),
            Some(Token::Word("notin")) => Ok(LabelRule::NotIn(key, self.values()?)),
            Some(Token::Equal) => Ok(LabelRule::In(key, vec![self.value()?])),
            Some(Token::Unequal) => Ok(LabelRule::NotIn(key, vec![self.value()?])),
            Some(sign @ (Token::Greater | Token::Less)) => {
                let than = match sign {
                    Token::Greater => Ordering::Greater,
                    _ => Ordering::Less,
                };
                let bound = self.value()?;
                let bound = bound
                    .parse()
                    .map_err(|_| format!("{bound:?} is no whole number"))?;
                Ok(LabelRule::Beyond(key, bound, than))
            }
            other => Err(unexpected(other, "in, notin, =, ==, !=, >, <")),
        }
    }

    /// One value, which may be empty.
    fn value(&mut self) -> Result<String, String> {
        if self.at_end_of_rule() {
            return Ok(String::new());
        }
        match self.next() {
            Some(Token::Word(value)) => legal(value),
            other => Err(unexpected(other, "identifier")),
        }
    }

    /// Values in parentheses, any of which may be empty.
    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != Some(Token::Open) {
            return Err(unexpected(open, "'('"));
        }
        let mut values = Vec::new();
        loop {
            let mut token = self.next();
            let mut value = String::new();
            if let Some(Token::Word(word)) = token {
                value = legal(word)?;
                token = self.next();
            }
            values.push(value);
            match token {
                Some(Token::Comma) => {}
                Some(Token::Close) => return Ok(values),
                other => return Err(unexpected(other, "',' or ')'")),
            }
        }
    }
}

fn legal(value: &str) -> Result<String, String> {
    if label_value(value) {
        return Ok(value.to_owned());
    }
    Err(format!("{value:?} is no value of a label"))
}

fn unexpected(token: Option<Token<'_>>, expected: &str) -> String {
    let found = match token {
        None => "",
        Some(Token::Word(word)) => word,
        Some(token) => {
            let mut signs = SIGNS.iter();
            signs
                .find(|(_, other)| *other == token)
                .map_or("", |(sign, _)| sign)
        }
    };
    format!("found '{found}', expected: {expected}")
}

/// The longer ones first.
const SIGNS: [(&str, Token<'static>); 9] = [
    ("==", Token::Equal),
    ("!=", Token::Unequal),
    ("=", Token::Equal),
    ("!", Token::Not),
    ("(", Token::Open),
    (")", Token::Close),
    (",", Token::Comma),
    (">", Token::Greater),
    ("<", Token::Less),
];

fn parse_fields(text: &str, resource: &Resource) -> Result<Vec<FieldRule>> {
    text.split(',')
        .filter(|rule| !rule.trim().is_empty())
        .map(|rule| {
            let (path, value, equal) = if let Some((path, value)) = rule.split_once("!=") {
                (path, value, false)
            } else if let Some((path, value)) =
                rule.split_once("==").or_else(|| rule.split_once('='))
            {
                (path, value, true)
            } else {
                return Err(Failure::bad_request(format!(
                    "invalid field selector: {rule:?}; can't understand"
                )));
            };
            let path = path.trim();
            let field = match path {
                "metadata.name" => Field::Name,
                "metadata.namespace" => Field::Namespace,
                path => Field::Indexed(resource.selectable_index(path).ok_or_else(|| {
                    Failure::bad_request(format!("field label not supported: {path}"))
                })?),
            };
            Ok(FieldRule {
                field,
                value: value.to_owned(),
                equal,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Any text is rules or is refused, and no rule is lost: each part between commas is one.
        #[test]
        fn any_label_selector_is_read_or_refused(text in selector()) {
            let mut depth = 0;
            let mut commas = 0;
            for sign in text.chars() {
                match sign {
                    '(' => depth += 1,
                    ')' => depth -= 1,
                    ',' if depth == 0 => commas += 1,
                    _ => {}
                }
            }
            if let Ok(rules) = parse_labels(&text) {
                let empty = text.trim().is_empty();
                prop_assert_eq!(rules.len(), if empty { 0 } else { commas + 1 });
            }
        }

        /// What a rule names is a key: nothing of the operators or the values is left in it.
        #[test]
        fn keys_are_keys(text in selector()) {
            for rule in parse_labels(&text).unwrap_or_default() {
                let (LabelRule::In(key, _)
                | LabelRule::NotIn(key, _)
                | LabelRule::Exists(key)
                | LabelRule::Absent(key)
                | LabelRule::Beyond(key, ..)) = rule;
                prop_assert!(!key.is_empty());
                prop_assert!(!key.contains(['(', ')', '!', '=', '<', '>', ',', ' ']), "{key}");
            }
        }
    }

    fn selector() -> impl Strategy<Value = String> {
        let words = [
            "a", "b.c/d", "=", "==", "!=", "!", " in ", " notin ", "(", ")", ",", " ", "<", ">",
            "-5", "ü", "\u{0}",
        ];
        let word = prop_oneof![
            8 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned),
            1 => ".{0,3}",
        ];
        proptest::collection::vec(word, 0..12).prop_map(|words| words.concat())
    }

    #[test]
    fn label_selectors_are_those_of_kubernetes() {
        for good in [
            "",
            "a",
            "!a",
            "a=b",
            "a==b",
            "a!=b",
            "a=",
            "a in (b)",
            "a in (b,c)",
            "a in ()",
            "a in (,b,)",
            "a notin (b),c",
            " a = b , ! c ",
            "in=in",
            "in in (in)",
            "a>1",
            "a<1",
            "example.com/a",
        ] {
            assert!(parse_labels(good).is_ok(), "{good}");
        }
        for bad in [
            ",",
            "a,",
            ",a",
            "a,,b",
            "a b",
            "a=b c",
            "a in b",
            "a in (b",
            "a in (b c)",
            "a in",
            "=b",
            "!",
            "!!a",
            "a!",
            "(a)",
            "a=b=c",
            "a>x",
            "a>-1",
            "a=not valid",
            "a=_b",
            "Example.COM/a=b",
            "a/b/c",
            "a=b)",
            "a ~ b",
        ] {
            assert!(parse_labels(bad).is_err(), "{bad}");
        }
    }
}
