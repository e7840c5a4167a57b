//! Templates, as far as they can be told without evaluating one: what is one, and which variables it cannot do without.

use std::{collections::BTreeSet, str::Chars};

/// Whether Ansible would take a text for a template.
///
/// # Source
/// Jinja's delimiters of expressions, statements and comments, which Ansible leaves as they are. The header `#jinja2:` of a
/// template changes them for files only, and not for variables.
pub fn is_template(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|open| text.contains(open))
}

/// The variables that an evaluation of a template surely reads, so that it fails where one of them is undefined. Where a part may be
/// left out (`if`, `and`, `or`), a default is given, or a statement stands, nothing is sure.
pub fn needs(text: &str) -> BTreeSet<String> {
    if text.contains("{%") {
        return BTreeSet::new();
    }
    expressions(text)
        .map(|expressions| expressions.iter().flat_map(|tokens| free(tokens)).collect())
        .unwrap_or_default()
}

/// Variables that Ansible itself defines, wherever a template is evaluated.
pub fn is_ansibles(name: &str) -> bool {
    name == "item" || name.starts_with("ansible_") || crate::inventory::is_magic(name)
}

#[derive(Debug, PartialEq)]
enum Token {
    Name(String),
    /// A text or a number.
    Literal,
    Sign(char),
}

/// The tokens of each expression. None: a text or an expression does not end.
fn expressions(text: &str) -> Option<Vec<Vec<Token>>> {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        let comment = rest.find("{#");
        let Some(open) = rest.find("{{") else {
            return Some(found);
        };
        if let Some(comment) = comment.filter(|comment| *comment < open) {
            let (_, inner) = rest.split_at_checked(comment)?;
            (_, rest) = inner.split_once("#}")?;
            continue;
        }
        let (_, inner) = rest.split_at_checked(open.checked_add(2)?)?;
        let mut chars = inner.chars();
        found.push(tokens(&mut chars)?);
        rest = chars.as_str();
    }
}

/// The tokens up to the end of an expression.
fn tokens(chars: &mut Chars<'_>) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut open = 0_usize;
    loop {
        let next = chars.next()?;
        match next {
            '}' if open == 0 && chars.as_str().starts_with('}') => {
                chars.next();
                return Some(tokens);
            }
            '\'' | '"' => {
                text(chars, next)?;
                tokens.push(Token::Literal);
            }
            _ if is_first(next) => {
                tokens.push(Token::Name(format!("{next}{}", word(chars))));
            }
            _ if next.is_ascii_digit() => {
                word(chars);
                tokens.push(Token::Literal);
            }
            _ if next.is_whitespace() => {}
            _ => {
                match next {
                    '{' => open = open.checked_add(1)?,
                    '}' => open = open.checked_sub(1)?,
                    _ => {}
                }
                tokens.push(Token::Sign(next));
            }
        }
    }
}

/// The rest of a word.
fn word(chars: &mut Chars<'_>) -> String {
    let rest = chars.as_str();
    let end = rest.find(|c: char| !(is_first(c) || c.is_ascii_digit()));
    let (word, rest) = rest
        .split_at_checked(end.unwrap_or(rest.len()))
        .unwrap_or_default();
    *chars = rest.chars();
    word.to_owned()
}

/// Goes on behind the end of a text.
fn text(chars: &mut Chars<'_>, quote: char) -> Option<()> {
    loop {
        match chars.next()? {
            '\\' => drop(chars.next()?),
            end if end == quote => return Some(()),
            _ => {}
        }
    }
}

fn is_first(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

/// What a name is in an expression.
enum Part {
    Variable,
    /// A function, an attribute, a filter, a test, the name of an argument, a word of the language.
    Other,
    /// It makes a variable dispensable.
    Unsure,
}

/// The variables of an expression; none where it may do without one.
fn free(tokens: &[Token]) -> Vec<String> {
    let mut names = Vec::new();
    let mut before = [None, None];
    for (at, token) in tokens.iter().enumerate() {
        if let Token::Name(name) = token {
            let after = tokens.get(at.saturating_add(1)..).unwrap_or_default();
            match part(before, name, after) {
                Part::Variable => names.push(name.clone()),
                Part::Other => {}
                Part::Unsure => return Vec::new(),
            }
        }
        before = [before[1], Some(token)];
    }
    names
}

fn part(before: [Option<&Token>; 2], name: &str, after: &[Token]) -> Part {
    let is = |token: Option<&Token>, word: &str| matches!(token, Some(Token::Name(name)) if name == word);
    let [first, second] = before;
    let is_attribute = second == Some(&Token::Sign('.'));
    let is_filter = second == Some(&Token::Sign('|'));
    let is_test = (is(second, "is") && name != "not") || (is(first, "is") && is(second, "not"));
    let is_called = after.first() == Some(&Token::Sign('('));
    let is_argument =
        matches!(after, [Token::Sign('='), rest @ ..] if rest.first() != Some(&Token::Sign('=')));
    let is_word = ["if", "and", "or"].contains(&name);
    match name {
        _ if is_attribute => Part::Other,
        "default" | "d" if is_filter => Part::Unsure,
        "defined" | "undefined" if is_test => Part::Unsure,
        _ if is_filter || is_test => Part::Other,
        _ if is_word => Part::Unsure,
        _ if is_called || is_argument || WORDS.contains(&name) => Part::Other,
        _ => Part::Variable,
    }
}

/// Words of the language.
const WORDS: &[&str] = &[
    "not", "in", "is", "true", "false", "none", "True", "False", "None", "else",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_template_cannot_do_without_is_told() {
        for (text, expected) in [
            ("{{ a }}/b/{{ c.d['e'].f }}", &["a", "c"][..]),
            ("{{ a | b('{{ c }}') | d2(e=f, g = h) }}", &["a", "f", "h"]),
            ("{{ a.b | ansible.utils.ipaddr(1) is not c.d }}", &["a"]),
            ("{{ a == b and c }}", &[]),
            ("{{ a == b }}", &["a", "b"]),
            ("{{ {'a': b}[c] }} {{ d }}", &["b", "c", "d"]),
            ("{{ lookup('pipe', a) }}", &["a"]),
            ("{{ a | default(b) }}{{ c }}", &["c"]),
            ("{{ a if b else c }}", &[]),
            ("{{ a is defined }}", &[]),
            ("{% if a %}{{ b }}{% endif %}", &[]),
            ("{# {{ a }} #}{{ b }}{# c", &["b"]),
            ("{# {{ a }}", &[]),
            ("{{.Names}}", &[]),
            ("{{ 'it\\'s' }}{{ \"}}\" ~ 1e5 ~ a }}", &["a"]),
            ("{{ a", &[]),
            ("{{ 'a }}", &[]),
            ("{{ ä }}{{ b }}", &["b"]),
            ("plain", &[]),
        ] {
            let found: Vec<_> = needs(text).into_iter().collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
