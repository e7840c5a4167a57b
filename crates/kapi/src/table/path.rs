//! The dialect of JSONPath in printer columns: fields, indices, `[*]`, and filters by equality.

use serde_json::Value;

/// A parsed path. What does not parse finds nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Path(Option<Vec<Step>>);

#[derive(Clone, Debug)]
enum Step {
    Field(String),
    Index(i64),
    All,
    /// Items where the value at the path equals, or does not.
    Filter {
        path: Vec<String>,
        equal: bool,
        wanted: Value,
    },
}

impl Path {
    pub fn parse(text: &str) -> Self {
        let text = text.trim().trim_start_matches('{').trim_end_matches('}');
        Self(steps(text.strip_prefix('$').unwrap_or(text)))
    }

    pub fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        let Some(steps) = &self.0 else {
            return Vec::new();
        };
        steps.iter().fold(vec![root], |found, step| {
            found
                .into_iter()
                .flat_map(|value| step.follow(value))
                .collect()
        })
    }
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
            (Self::Index(at), Value::Array(items)) => {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let at = if *at < 0 { length + at } else { *at };
                usize::try_from(at)
                    .ok()
                    .and_then(|at| items.get(at))
                    .into_iter()
                    .collect()
            }
            (Self::All, Value::Array(items)) => items.iter().collect(),
            (Self::All, Value::Object(fields)) => fields.values().collect(),
            (
                Self::Filter {
                    path,
                    equal,
                    wanted,
                },
                Value::Array(items),
            ) => {
                let holds = |item: &&Value| {
                    let found = path.iter().try_fold(*item, |value, name| value.get(name));
                    found.is_some_and(|found| (found == wanted) == *equal)
                };
                items.iter().filter(holds).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn steps(text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            rest = after;
            let (name, after) = name(after);
            if name == "*" {
                steps.push(Step::All);
            } else if !name.is_empty() {
                steps.push(Step::Field(name));
            }
            rest = if after.len() < rest.len() {
                after
            } else {
                rest
            };
        } else if let Some(inner) = rest.strip_prefix('[') {
            let end = closing(inner)?;
            steps.push(bracket(inner.get(..end)?.trim())?);
            rest = inner.get(end + 1..)?;
        } else {
            return None;
        }
    }
    Some(steps)
}

/// A name up to the next step; a backslash takes the next character as it is.
fn name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '.' | '[' => return (name, text.get(at..).unwrap_or_default()),
            '\\' => name.extend(chars.next().map(|(_, char)| char)),
            char => name.push(char),
        }
    }
    (name, "")
}

fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, char) in text.char_indices() {
        match (quote, char) {
            (None, ']') => return Some(at),
            (None, '\'' | '"') => quote = Some(char),
            (Some(open), char) if char == open => quote = None,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(filter) = text
        .strip_prefix("?(")
        .and_then(|text| text.strip_suffix(')'))
    {
        let (left, equal, right) = match (filter.split_once("=="), filter.split_once("!=")) {
            (Some((left, right)), _) => (left, true, right),
            (None, Some((left, right))) => (left, false, right),
            (None, None) => return None,
        };
        let path = left
            .trim()
            .strip_prefix("@.")?
            .split('.')
            .map(str::to_owned)
            .collect();
        return Some(Step::Filter {
            path,
            equal,
            wanted: literal(right.trim())?,
        });
    }
    match literal(text)? {
        Value::String(name) => Some(Step::Field(name)),
        other => other.as_i64().map(Step::Index),
    }
}

fn literal(text: &str) -> Option<Value> {
    match text
        .strip_prefix('\'')
        .and_then(|text| text.strip_suffix('\''))
    {
        Some(inner) => Some(Value::from(inner)),
        None => serde_json::from_str(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::Path;

    proptest! {
        /// Any text finds parts of the object, each once at most, or nothing.
        #[test]
        fn any_path_finds_parts_of_the_object(text in path()) {
            let object = json!({
                "a": [{"b": 1, "c": "x"}, {"b": 2, "c": "y"}, [1, [2]], null],
                "b.c": {"a": {"a": {}}}, "": {"": "empty"}, "ü": [],
            });
            let found = Path::parse(&text).find(&object);
            let parts = parts(&object);
            prop_assert!(found.len() <= parts.len(), "{text}: {} of {}", found.len(), parts.len());
            for value in found {
                prop_assert!(parts.iter().any(|part| std::ptr::eq(*part, value)), "{text}");
            }
        }
    }

    fn parts(value: &Value) -> Vec<&Value> {
        let inner: Vec<&Value> = match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            _ => Vec::new(),
        };
        std::iter::once(value)
            .chain(inner.into_iter().flat_map(parts))
            .collect()
    }

    fn path() -> impl Strategy<Value = String> {
        let words = [
            ".",
            "a",
            "b",
            "b\\.c",
            "[",
            "]",
            "*",
            "..",
            "[0]",
            "[-1]",
            "[*]",
            "[9223372036854775807]",
            "[-9223372036854775808]",
            "[?(@.b==1)]",
            "[?(@.c!='x')]",
            "['b.c']",
            "[\"a\"]",
            "{",
            "}",
            "$",
            "@",
            "(",
            ")",
            "'",
            "\\",
            "ü",
            "[?(",
            "[?(@",
            "==",
            "[1:2]",
        ];
        let word = prop_oneof![
            8 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned),
            1 => ".{0,3}",
        ];
        proptest::collection::vec(word, 0..12).prop_map(|words| words.concat())
    }
}
