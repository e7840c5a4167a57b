//! What a release asserts of its variables, in a grammar of its own.
//!
//! Ansible's assertions are Python. These are read of them: `X in [WORDS]`, `X not in [WORDS]`, `X == WORD`, `X != WORD`, `X`,
//! `not X`, and several of them with `or` between; conditions of the task may also be `X is defined`. Of 2.31.0 that is every
//! assertion that needs neither a host nor arithmetic.

use std::{collections::BTreeSet, fmt, sync::LazyLock};

use regex::Regex;
use serde_json::Value;

/// Something that must hold, where its conditions do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Assertion {
    any: Vec<Test>,
    when: Vec<Vec<Test>>,
}

/// What one variable is asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Test {
    /// Whether it is one of these words, or none of them.
    Word {
        /// The variable.
        variable: String,
        /// The words.
        words: Vec<String>,
        /// Whether it is to be one of them.
        among: bool,
    },
    /// Whether it is true, or false.
    Truth {
        /// The variable.
        variable: String,
        /// What it is to be.
        wanted: bool,
    },
    /// Whether somebody gave it a value, or nobody.
    Defined {
        /// The variable.
        variable: String,
        /// What is to be.
        wanted: bool,
    },
}

/// What is known of a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Known<'a> {
    /// Its value.
    Value(&'a Value),
    /// Nobody gives it one.
    Unset,
    /// Somebody may, and what it is cannot be seen: a template, a Secret.
    Hidden,
}

impl Assertion {
    /// Reads one assertion with the conditions of its task. None: it is of another form, and nothing is known of it.
    pub(super) fn read(that: &str, when: &[String]) -> Option<Self> {
        let when = when.iter().filter(|when| !is_about_hosts(when));
        let when: Option<Vec<_>> = when.map(|when| alternatives(when)).collect();
        Some(Self {
            any: alternatives(that)?,
            when: when?,
        })
    }

    /// Whether it holds. None: that cannot be told, or it is not asked.
    pub fn holds<'a>(&self, known: impl Fn(&str) -> Known<'a>) -> Option<bool> {
        let any = |tests: &[Test]| {
            let mut found = Some(false);
            for test in tests {
                match test.holds(known(test.variable())) {
                    Some(true) => return Some(true),
                    Some(false) => {}
                    None => found = None,
                }
            }
            found
        };
        let asked = self.when.iter().all(|when| any(when) == Some(true));
        asked.then(|| any(&self.any)).flatten()
    }

    /// What is asserted: one of these.
    pub fn any(&self) -> &[Test] {
        &self.any
    }

    /// The variables that it is about: those of the assertion, then those of its conditions, each once.
    pub fn variables(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let tests = self.any.iter().chain(self.when.iter().flatten());
        let variables = tests.map(Test::variable);
        variables.filter(|name| seen.insert(*name)).collect()
    }
}

impl fmt::Display for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.any.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join(" or "))
    }
}

impl Test {
    /// The variable that it asks.
    pub fn variable(&self) -> &str {
        match self {
            Self::Word { variable, .. }
            | Self::Truth { variable, .. }
            | Self::Defined { variable, .. } => variable,
        }
    }

    fn holds(&self, known: Known<'_>) -> Option<bool> {
        match (self, known) {
            (_, Known::Hidden) => None,
            (Self::Defined { wanted, .. }, known) => Some((known != Known::Unset) == *wanted),
            (_, Known::Unset) => None,
            (Self::Word { words, among, .. }, Known::Value(value)) => {
                let is = |text: &str| words.iter().any(|word| word == text);
                Some(value.as_str().is_some_and(is) == *among)
            }
            (Self::Truth { wanted, .. }, Known::Value(value)) => Some(truth(value)? == *wanted),
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word {
                variable,
                words,
                among,
            } => {
                let is = match (among, words.len()) {
                    (true, 1) => "is",
                    (true, _) => "is one of",
                    (false, 1) => "is not",
                    (false, _) => "is none of",
                };
                write!(f, "{variable} {is} {}", words.join(", "))
            }
            Self::Truth { variable, wanted } => write!(f, "{variable} is {wanted}"),
            Self::Defined { variable, wanted } => {
                let not = if *wanted { "" } else { "not " };
                write!(f, "{variable} is {not}set")
            }
        }
    }
}

/// As Python takes a value. A text that looks like a truth value is one to some of Ansible's versions and not to others.
fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Null => Some(false),
        Value::Bool(is) => Some(*is),
        Value::Number(number) => Some(number.as_f64() != Some(0.0)),
        Value::String(text) => {
            let word = text.to_ascii_lowercase();
            let unclear = ["true", "false", "yes", "no", "on", "off", "0", "1"];
            (!unclear.contains(&word.as_str())).then_some(!text.is_empty())
        }
        Value::Array(items) => Some(!items.is_empty()),
        Value::Object(entries) => Some(!entries.is_empty()),
    }
}

/// A condition that is met by some host of every inventory, or by all.
fn is_about_hosts(when: &str) -> bool {
    when.starts_with("inventory_hostname in groups") || when.ends_with(" in group_names)")
}

/// A condition that holds unless a person says otherwise.
pub(super) fn is_usual(when: &str) -> bool {
    when.trim() == "not ignore_assert_errors"
}

fn alternatives(text: &str) -> Option<Vec<Test>> {
    // A longer one says more than a person would read.
    (text.len() <= 1024).then_some(())?;
    text.trim().split(" or ").map(test).collect()
}

fn test(text: &str) -> Option<Test> {
    let text = text.trim();
    if let Some(found) = AMONG.captures(text) {
        let words = &found["words"];
        let words: Option<Vec<_>> = words.split(',').map(|word| quoted(word.trim())).collect();
        return Some(Test::Word {
            variable: found["variable"].to_owned(),
            words: words?,
            among: found.name("not").is_none(),
        });
    }
    if let Some(found) = EQUAL.captures(text) {
        return Some(Test::Word {
            variable: found["variable"].to_owned(),
            words: vec![quoted(&found["word"])?],
            among: &found["sign"] == "==",
        });
    }
    if let Some(found) = DEFINED.captures(text) {
        return Some(Test::Defined {
            variable: found["variable"].to_owned(),
            wanted: found.name("not").is_none(),
        });
    }
    let found = TRUTH.captures(text)?;
    Some(Test::Truth {
        variable: found["variable"].to_owned(),
        wanted: found.name("not").is_none(),
    })
}

fn quoted(text: &str) -> Option<String> {
    let inner = ['\'', '"'].iter().find_map(|quote| {
        let rest = text.strip_prefix(*quote)?.strip_suffix(*quote)?;
        (!rest.contains(*quote)).then_some(rest)
    });
    inner.map(str::to_owned)
}

/// A default of a word is the release's own, which its defaults have too.
const VARIABLE: &str = r"^(?P<variable>[A-Za-z_]\w*)(?:\s*\|\s*d(?:efault)?\(\s*'[\w-]*'\s*\))?";

fn pattern(rest: &str) -> Regex {
    #[expect(clippy::expect_used, reason = "a test compiles each of them")]
    Regex::new(&format!("{VARIABLE}{rest}$")).expect("it is a pattern")
}

static AMONG: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\s+(?P<not>not\s+)?in\s+\[(?P<words>[^\[\]]+)\]"));
static EQUAL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"\s*(?P<sign>==|!=)\s*(?P<word>'[^']*'|"[^"]*")"#));
static DEFINED: LazyLock<Regex> = LazyLock::new(|| pattern(r"\s+is\s+(?P<not>not\s+)?defined"));
static TRUTH: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"^(?P<not>not\s+)?(?P<variable>[A-Za-z_]\w*)(?:\s*\|\s*bool)?$";
    #[expect(clippy::expect_used, reason = "a test compiles it")]
    Regex::new(pattern).expect("it is a pattern")
});

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(that: &str, when: &[&str]) -> Option<Assertion> {
        let when: Vec<_> = when.iter().map(|when| (*when).to_owned()).collect();
        Assertion::read(that, &when)
    }

    fn holds(assertion: &Assertion, values: &Value) -> Option<bool> {
        assertion.holds(|name| match values.get(name) {
            Some(value) if value == "?" => Known::Hidden,
            Some(value) => Known::Value(value),
            None => Known::Unset,
        })
    }

    #[test]
    fn assertions_are_read_as_releases_write_them() {
        let when = ["kata_containers_enabled"];
        for (that, when, values, expected) in [
            (
                "x in ['a', \"b\",'c-d']",
                &[][..],
                json!({"x": "c-d"}),
                Some(true),
            ),
            ("x in ['a', 'b']", &[], json!({"x": "c"}), Some(false)),
            ("x in ['a', 'b']", &[], json!({"x": 1}), Some(false)),
            ("x in ['a', 'b']", &[], json!({"x": "?"}), None),
            ("x in ['a', 'b']", &[], json!({}), None),
            (
                "x | d('a') in ['a', 'b']",
                &[],
                json!({"x": "c"}),
                Some(false),
            ),
            (
                "x|d('a') in ['a', 'b']",
                &["x is defined"],
                json!({"x": "c"}),
                Some(false),
            ),
            ("x not in ['a']", &[], json!({"x": "a"}), Some(false)),
            (
                "x != 'docker'",
                &when,
                json!({"x": "docker", "kata_containers_enabled": true}),
                Some(false),
            ),
            (
                "x != 'docker'",
                &when,
                json!({"x": "docker", "kata_containers_enabled": false}),
                None,
            ),
            (
                "x in ['a'] or y == 'b'",
                &[],
                json!({"x": "c", "y": "b"}),
                Some(true),
            ),
            (
                "x in ['a'] or y == 'b'",
                &[],
                json!({"x": "c", "y": "c"}),
                Some(false),
            ),
            (
                "x in ['a'] or y == 'b'",
                &[],
                json!({"x": "c", "y": "?"}),
                None,
            ),
            (
                "y",
                &["x | bool"],
                json!({"x": true, "y": false}),
                Some(false),
            ),
            (
                "not y",
                &["x", "not i"],
                json!({"x": true, "y": true, "i": false}),
                Some(false),
            ),
            (
                "not y",
                &["x", "not i"],
                json!({"x": true, "y": true, "i": true}),
                None,
            ),
            ("y", &[], json!({"y": "no"}), None),
            (
                "y is not defined",
                &["y is defined"],
                json!({"y": 1}),
                Some(false),
            ),
            (
                "x in ['a']",
                &["inventory_hostname in groups.get('etcd',[])"],
                json!({"x": "b"}),
                Some(false),
            ),
        ] {
            let assertion = read(that, when).unwrap_or_else(|| panic!("{that} is not read"));
            assert_eq!(
                holds(&assertion, &values),
                expected,
                "{that} {when:?} {values}"
            );
        }
    }

    #[test]
    fn what_is_something_else_is_left_to_ansible() {
        for that in [
            "x in y",
            "x in ['a', b]",
            "x in ['a'] and y",
            "(x or y)",
            "x | length == 0",
            "kube_version is version(kube_version_min_required, '>=')",
            "groups.get('etcd')",
            "x | type_debug == 'bool'",
            "{{ lookup('pipe', 'id') }}",
            "x in ['a'",
            "",
        ] {
            assert_eq!(read(that, &[]), None, "{that}");
        }
        assert_eq!(read("x in ['a']", &["groups.etcd | length > 2"]), None);
    }

    #[test]
    fn an_assertion_is_told_in_words() {
        let text = read("x in ['a', 'b'] or y != 'docker' or not z", &[]).unwrap();
        assert_eq!(
            text.to_string(),
            "x is one of a, b or y is not docker or z is false"
        );
        assert_eq!(text.variables(), ["x", "y", "z"]);
    }
}
