//! Which names a definition gets: those it asks for, unless another of its group has them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The names that the definitions have, by definition.
pub(super) struct Claims(BTreeMap<String, Claim>);

struct Claim {
    group: String,
    /// Plural, singular and short names.
    resources: Vec<String>,
    /// Kind and kind of the list.
    kinds: Vec<String>,
}

/// The names of a definition.
pub(super) struct Verdict {
    pub names: Value,
    /// The reason and the message of the last name that it did not get.
    pub conflict: Option<(&'static str, String)>,
}

/// A definition that gets every name it asks for.
pub(super) fn as_asked(definition: &Value) -> Verdict {
    Verdict {
        names: definition["spec"]["names"].clone(),
        conflict: None,
    }
}

impl Claims {
    /// What was accepted before.
    pub fn of<'a>(definitions: impl Iterator<Item = &'a Value>) -> Self {
        let mut claims = Self(BTreeMap::new());
        for definition in definitions {
            claims.note(definition, &definition["status"]["acceptedNames"]);
        }
        claims
    }

    pub fn note(&mut self, definition: &Value, names: &Value) {
        let text = |name: &str| texts(&names[name]).next();
        let claim = Claim {
            group: group(definition).to_owned(),
            resources: text("plural")
                .into_iter()
                .chain(text("singular"))
                .chain(texts(&names["shortNames"]))
                .collect(),
            kinds: text("kind").into_iter().chain(text("listKind")).collect(),
        };
        self.0.insert(name(definition).to_owned(), claim);
    }

    /// The names that a definition gets. A name that is refused stays what it was.
    pub fn decide(&self, definition: &Value) -> Verdict {
        let asked = &definition["spec"]["names"];
        let before = &definition["status"]["acceptedNames"];
        let mut verdict = Verdict {
            names: if before.is_object() {
                before.clone()
            } else {
                json!({})
            },
            conflict: None,
        };
        for (field, reason, list) in [
            ("plural", "PluralConflict", List::Resources),
            ("singular", "SingularConflict", List::Resources),
            ("shortNames", "ShortNamesConflict", List::Resources),
            ("kind", "KindConflict", List::Kinds),
            ("listKind", "ListKindConflict", List::Kinds),
        ] {
            let had: Vec<String> = texts(&before[field]).collect();
            let taken: Vec<String> = texts(&asked[field])
                .filter(|name| !had.contains(name) && self.is_taken(definition, list, name))
                .map(|name| format!("{name:?} is already in use"))
                .collect();
            match taken.as_slice() {
                [] => set(&mut verdict.names, field, &asked[field]),
                [one] => verdict.conflict = Some((reason, one.clone())),
                many => verdict.conflict = Some((reason, format!("[{}]", many.join(", ")))),
            }
        }
        set(&mut verdict.names, "categories", &asked["categories"]);
        verdict
    }

    fn is_taken(&self, definition: &Value, list: List, wanted: &str) -> bool {
        let others = self.0.iter().filter(|(other, claim)| {
            *other != name(definition) && claim.group == group(definition)
        });
        let mut taken = others.flat_map(|(_, claim)| match list {
            List::Resources => &claim.resources,
            List::Kinds => &claim.kinds,
        });
        taken.any(|taken| taken == wanted)
    }
}

#[derive(Clone, Copy)]
enum List {
    Resources,
    Kinds,
}

fn set(names: &mut Value, field: &str, value: &Value) {
    if value.is_null() {
        crate::value::remove(names, field);
    } else {
        names[field] = value.clone();
    }
}

/// The text, or the texts of a list.
fn texts(value: &Value) -> impl Iterator<Item = String> + use<> {
    let texts: Vec<String> = match value {
        Value::Array(items) => items
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        other => other.as_str().map(str::to_owned).into_iter().collect(),
    };
    texts.into_iter().filter(|text| !text.is_empty())
}

fn name(definition: &Value) -> &str {
    definition["metadata"]["name"].as_str().unwrap_or_default()
}

fn group(definition: &Value) -> &str {
    definition["spec"]["group"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str, short: &[&str]) -> Value {
        json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {"group": "example.com", "names": {
                "plural": plural, "singular": kind.to_lowercase(), "kind": kind,
                "listKind": format!("{kind}List"), "shortNames": short,
            }},
        })
    }

    #[test]
    fn a_name_of_another_is_refused_and_the_others_are_given() {
        let first = definition("widgets", "Widget", &["wd"]);
        let mut claims = Claims::of([&first].into_iter());
        let verdict = claims.decide(&first);
        assert!(verdict.conflict.is_none());
        claims.note(&first, &verdict.names);

        let second = definition("gadgets", "Widget", &["ga", "wd"]);
        let verdict = claims.decide(&second);
        let (reason, message) = verdict.conflict.unwrap();
        assert_eq!(
            (reason, message.as_str()),
            ("ListKindConflict", "\"WidgetList\" is already in use")
        );
        assert_eq!(verdict.names, json!({"plural": "gadgets"}));
    }

    #[test]
    fn what_was_accepted_stays_ones_own() {
        let mut first = definition("widgets", "Widget", &["wd"]);
        first["status"]["acceptedNames"] = first["spec"]["names"].clone();
        first["spec"]["names"]["shortNames"] = json!(["wd", "w"]);
        let claims = Claims::of([&first].into_iter());
        let verdict = claims.decide(&first);
        assert!(verdict.conflict.is_none());
        assert_eq!(verdict.names["shortNames"], json!(["wd", "w"]));
    }
}
