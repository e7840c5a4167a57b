//! Label and field selectors of list, watch and deletecollection.

use std::cmp::Ordering;

use crate::{
    failure::{Failure, Result},
    registry::Resource,
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
    split_outside_parentheses(text)
        .into_iter()
        .map(str::trim)
        .filter(|rule| !rule.is_empty())
        .map(|rule| {
            label_rule(rule).ok_or_else(|| {
                Failure::bad_request(format!(
                    "unable to parse requirement of label selector: {rule:?}"
                ))
            })
        })
        .collect()
}

fn label_rule(rule: &str) -> Option<LabelRule> {
    let key = |text: &str| {
        let text = text.trim();
        let legal = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        (!text.is_empty() && text.chars().all(legal)).then(|| text.to_owned())
    };
    if let Some(rest) = rule.strip_prefix('!') {
        return Some(LabelRule::Absent(key(rest)?));
    }
    if let Some((name, values)) = rule.split_once('(') {
        let values = values.strip_suffix(')')?;
        let values = values.split(',').map(|v| v.trim().to_owned()).collect();
        let name = name.trim();
        if let Some(name) = name.strip_suffix(" notin") {
            return Some(LabelRule::NotIn(key(name)?, values));
        }
        return Some(LabelRule::In(key(name.strip_suffix(" in")?)?, values));
    }
    if let Some((name, value)) = rule.split_once("!=") {
        return Some(LabelRule::NotIn(key(name)?, vec![value.trim().to_owned()]));
    }
    if let Some((name, value)) = rule.split_once("==").or_else(|| rule.split_once('=')) {
        return Some(LabelRule::In(key(name)?, vec![value.trim().to_owned()]));
    }
    for (sign, than) in [('>', Ordering::Greater), ('<', Ordering::Less)] {
        if let Some((name, bound)) = rule.split_once(sign) {
            return Some(LabelRule::Beyond(
                key(name)?,
                bound.trim().parse().ok()?,
                than,
            ));
        }
    }
    Some(LabelRule::Exists(key(rule)?))
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

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

    use super::{LabelRule, label_rule, parse_labels, split_outside_parentheses};

    proptest! {
        /// Any text is rules or is refused, and no rule is lost: each part between commas is one.
        #[test]
        fn any_label_selector_is_read_or_refused(text in selector()) {
            let parts = split_outside_parentheses(&text);
            let parts = parts.iter().filter(|part| !part.trim().is_empty());
            if let Ok(rules) = parse_labels(&text) {
                prop_assert_eq!(rules.len(), parts.count());
            }
        }

        /// What a rule names is a key: nothing of the operators or the values is left in it.
        #[test]
        fn keys_are_keys(text in selector()) {
            if let Some(rule) = label_rule(&text) {
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
}
