//! An answer without what differs between any two services that are alike: their addresses, what they call things, when they made
//! them, and the words for people.

use std::collections::BTreeMap;

use serde_json::Value;

/// Members that are words for people, or moments of a service's own work. Whether there is a word is compared, but for those of
/// [`FREE`].
const WORDS: [&str; 5] = ["title", "detail", "message", "description", "pem"];

/// Members that are not compared: what the reference's conductor writes when it looks, and what a driver may say.
const FREE: [&str; 4] = [
    "updated_at",
    "status_reason",
    "health_status_reason",
    "report_count",
];

/// What of an answer is compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Headers that clients read.
    pub headers: BTreeMap<String, String>,
    /// The body; null: there is none.
    pub body: Value,
}

impl Answer {
    /// Where two answers differ: the place, and what each has there.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.status != other.status {
            found.push(format!("status: {} | {}", self.status, other.status));
        }
        if self.headers != other.headers {
            found.push(format!("headers: {:?} | {:?}", self.headers, other.headers));
        }
        differ("", &self.body, &other.body, &mut found);
        found
    }
}

fn differ(place: &str, one: &Value, other: &Value, found: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let more = other.keys().filter(|name| !one.contains_key(*name));
            for name in one.keys().chain(more) {
                let place = format!("{place}/{name}");
                match (one.get(name), other.get(name)) {
                    (Some(one), Some(other)) => differ(&place, one, other, found),
                    (Some(one), None) => found.push(format!("{place}: {one} | is not there")),
                    (None, Some(other)) => found.push(format!("{place}: is not there | {other}")),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (at, (one, other)) in one.iter().zip(other).enumerate() {
                differ(&format!("{place}/{at}"), one, other, found);
            }
        }
        (one, other) if one == other => {}
        (one, other) => found.push(format!("{place}: {one} | {other}")),
    }
}

/// The names of what a service calls by itself: addresses, projects, users and what was kept.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<(String, String)>);

impl Names {
    /// Has something be called by a name. What contains another is to be named before it.
    pub fn add(&mut self, text: impl Into<String>, name: &str) {
        self.0.push((text.into(), format!("{{{name}}}")));
    }

    /// A text with what the names stand for.
    pub fn filled(&self, text: &str) -> String {
        let fill = |text: String, (real, name): &(String, String)| text.replace(name, real);
        self.0.iter().fold(text.to_owned(), fill)
    }

    /// A text with names in place of what they stand for; what is left of UUIDs is alike.
    pub fn named(&self, text: &str) -> String {
        let name = |text: String, (real, name): &(String, String)| text.replace(real, name);
        without_uuids(&self.0.iter().fold(text.to_owned(), name))
    }

    /// A body as it is compared.
    pub fn body(&self, value: &Value) -> Value {
        self.member("", value)
    }

    fn member(&self, member: &str, value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                let compared = members
                    .iter()
                    .filter(|(name, _)| !FREE.contains(&name.as_str()));
                let named =
                    compared.map(|(name, value)| (self.named(name), self.member(name, value)));
                Value::Object(named.collect())
            }
            Value::Array(entries) => {
                let named = entries.iter().map(|entry| self.member(member, entry));
                Value::Array(named.collect())
            }
            Value::String(text) if text.is_empty() => value.clone(),
            Value::String(_) if WORDS.contains(&member) => "a text".into(),
            Value::String(_) if member.ends_with("_at") || member == "last_seen_up" => {
                "a moment".into()
            }
            Value::String(text) if member == "name" && is_invented(text) => {
                "an invented name".into()
            }
            // The driver's word for what it made, and the machine that it runs on.
            Value::String(_) if ["cluster_id", "stack_id", "host"].contains(&member) => {
                "a name".into()
            }
            Value::String(text) => self.named(text).into(),
            other => other.clone(),
        }
    }
}

/// Whether a service has made the name up, as phi-21-template.
fn is_invented(name: &str) -> bool {
    let words: Vec<_> = name.split('-').collect();
    let [letter, number, kind] = words[..] else {
        return false;
    };
    letter.chars().all(|c| c.is_ascii_lowercase())
        && number.parse::<u32>().is_ok()
        && ["template", "cluster"].contains(&kind)
}

fn without_uuids(text: &str) -> String {
    const LENGTHS: [usize; 5] = [8, 4, 4, 4, 12];
    let is_word = |c: char| c.is_ascii_hexdigit() || c == '-';
    let is_uuid = |word: &str| {
        let parts = word.split('-').map(str::len);
        parts.eq(LENGTHS)
    };
    let mut rest = text;
    let mut told = String::new();
    while let Some(at) = rest.find(is_word) {
        told.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let word = &rest[..end];
        // Words before it may end in what begins a UUID, as in coe-UUID: the UUID is the end.
        let begin = word.len().saturating_sub(36);
        match word.get(begin..) {
            Some(end) if is_uuid(end) => {
                told.push_str(&word[..begin]);
                told.push_str("{uuid}");
            }
            _ => told.push_str(word),
        }
        rest = &rest[end..];
    }
    told + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UUID: &str = "0123abcd-0123-4567-89ab-0123456789ab";

    #[test]
    fn what_is_a_service_s_own_is_taken_out_and_nothing_else() {
        let mut names = Names::default();
        names.add("http://127.0.0.1:9511", "base");
        names.add(UUID, "small");
        let body = json!({
            "uuid": UUID, "links": [{"href": format!("http://127.0.0.1:9511/v1/x/{UUID}")}], "created_at": "2026-01-01",
            "updated_at": null, "name": "phi-21-template", "stack_id": "coe-1", "node_count": 2, "detail": "", "title": "No",
        });
        let wanted = json!({
            "uuid": "{small}", "links": [{"href": "{base}/v1/x/{small}"}], "created_at": "a moment",
            "name": "an invented name", "stack_id": "a name", "node_count": 2, "detail": "", "title": "a text",
        });
        assert_eq!(names.body(&body), wanted);
        assert_eq!(names.filled("/v1/x/{small}"), format!("/v1/x/{UUID}"));
    }

    #[test]
    fn uuids_that_nobody_kept_are_alike() {
        let names = Names::default();
        for (text, wanted) in [
            (format!("a {UUID} b"), "a {uuid} b"),
            (format!("coe-{UUID}"), "coe-{uuid}"),
            (format!("marker={UUID}&limit=1"), "marker={uuid}&limit=1"),
            ("small-1-2".to_owned(), "small-1-2"),
            ("grüße".to_owned(), "grüße"),
        ] {
            assert_eq!(names.named(&text), wanted, "{text}");
        }
    }

    #[test]
    fn each_difference_is_told_with_its_place() {
        let answer = |status, body| Answer {
            status,
            headers: BTreeMap::new(),
            body,
        };
        let one = answer(200, json!({"a": [1, {"b": 2}], "c": null}));
        assert_eq!(one.differences(&one), Vec::<String>::new());
        let other = answer(202, json!({"a": [1, {"b": 3}], "d": 4}));
        assert_eq!(
            one.differences(&other),
            [
                "status: 200 | 202",
                "/a/1/b: 2 | 3",
                "/c: null | is not there",
                "/d: is not there | 4"
            ]
        );
    }
}
