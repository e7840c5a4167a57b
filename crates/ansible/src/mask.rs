//! Secret texts, to be masked wherever something is told: in events, in Ansible's output, in failures.
//!
//! The callback plugin masks at the source, so that nothing else reaches a disk; who reads what it wrote masks once more.
//! A search for known texts finds what is printed as it is, and in the few forms that Ansible itself prints: as JSON, as
//! Python's `repr`, in base 64, line by line. A text that a module hashes, cuts or spells in another way is not found: a
//! task that handles a secret says `no_log`, as ever.

use std::{borrow::Cow, collections::BTreeSet, io, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::FileError;

/// What stands in place of a secret text.
pub const MASK: &str = "********";

/// Shorter texts are in every other word: to mask them would hide what happened, and not the text.
const SHORTEST: usize = 4;

/// A line of a longer text, or a part of its base 64, says nothing when it is shorter.
const SHORTEST_PART: usize = 8;

/// Whether the value of a variable may be secret, as its name says: the plugin's `SECRET_NAME` says the same.
pub fn may_be_secret(name: &str) -> bool {
    const PARTS: [&str; 10] = [
        "pass",
        "secret",
        "token",
        "credential",
        "private",
        "_key",
        "-key",
        "key_",
        "key-",
        "apikey",
    ];
    let name = name.to_lowercase();
    PARTS.iter().any(|part| name.contains(part)) || name == "auth" || name.ends_with("_auth")
}

/// Texts to be masked.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Mask {
    /// The longest first, so that a text within another leaves nothing of it.
    texts: Vec<String>,
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mask({} texts)", self.texts.len())
    }
}

impl Mask {
    /// Masks these texts, in every form that they are known to be printed in. Such of less than four characters are left.
    pub fn of<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        Self::sorted(secrets.into_iter().flat_map(forms).collect())
    }

    /// Masks what either masks.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::sorted(self.texts.into_iter().chain(other.texts).collect())
    }

    fn sorted(texts: BTreeSet<String>) -> Self {
        let mut texts: Vec<_> = texts.into_iter().collect();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self { texts }
    }

    /// The text without what is secret.
    pub fn apply<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut masked = Cow::Borrowed(text);
        for secret in &self.texts {
            if masked.contains(secret) {
                masked = Cow::Owned(masked.replace(secret, MASK));
            }
        }
        masked
    }

    /// Writes the texts for the plugin, readable by the owner alone. To be written into memory.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        let bytes = serde_json::to_vec(&self.texts).map_err(io::Error::other);
        bytes
            .and_then(|bytes| crate::file::write_private(path, &bytes))
            .map_err(FileError::of(path))
    }

    /// Reads what [`Mask::save`] wrote. None: nothing was, or not as a whole.
    pub fn load(path: &Path) -> Option<Self> {
        let texts = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        Some(Self { texts })
    }
}

fn forms(secret: &str) -> Vec<String> {
    let trimmed = secret.trim();
    let long = |text: &str, least: usize| text.chars().count() >= least;
    if !long(trimmed, SHORTEST) {
        return Vec::new();
    }
    let mut forms = vec![secret.to_owned(), trimmed.to_owned()];
    let mut parts = Vec::new();
    for text in [secret, trimmed] {
        forms.push(json(text));
        forms.push(repr(text));
        parts.push(STANDARD.encode(text));
        parts.extend((0..3).map(|offset| in_base64(text, offset)));
    }
    if trimmed.contains('\n') {
        parts.extend(trimmed.lines().map(|line| line.trim().to_owned()));
    }
    forms.extend(parts.into_iter().filter(|part| long(part, SHORTEST_PART)));
    forms
}

fn json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    let inner = quoted.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
    inner.unwrap_or_default().to_owned()
}

/// As Python shows a text within a list or a dictionary.
fn repr(text: &str) -> String {
    let text = text.replace('\\', "\\\\");
    let text = text.replace('\n', "\\n").replace('\t', "\\t");
    text.replace('\'', "\\'")
}

/// What the text becomes in the base 64 of something longer, where `offset` bytes, modulo three, stand before it: the
/// characters that hold nothing but its own bits.
fn in_base64(text: &str, offset: usize) -> String {
    let mut bytes = vec![0; offset];
    bytes.extend(text.as_bytes());
    let whole = bytes.len() * 8 / 6;
    let first = (offset * 8).div_ceil(6);
    let encoded = STANDARD.encode(&bytes);
    encoded.get(first..whole).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "canary-\"7\\f3'e1\nsecond-line-of-it";

    #[test]
    fn a_secret_is_masked_in_every_form_that_it_is_printed_in() {
        let mask = Mask::of([SECRET]);
        let json = serde_json::json!({"a": [SECRET]}).to_string();
        let held = |before: &str| STANDARD.encode(format!("{before}{SECRET} behind"));
        for printed in [
            format!("fatal: {SECRET}!"),
            json,
            "{'a': 'canary-\"7\\\\f3\\'e1\\nsecond-line-of-it'}".to_owned(),
            "  second-line-of-it".to_owned(),
            STANDARD.encode(SECRET),
            held(""),
            held("b"),
            held("be"),
            held("bef"),
        ] {
            let masked = mask.apply(&printed);
            assert!(masked.contains(MASK), "{printed}: {masked}");
            assert!(!masked.contains("second-line"), "{printed}: {masked}");
        }
        assert_eq!(mask.apply("nothing of it"), "nothing of it");
    }

    #[test]
    fn a_short_text_is_left_and_a_part_of_another_leaves_nothing() {
        let mask = Mask::of(["abc", "pass", "pass-and-more"]);
        assert_eq!(mask.apply("abc pass-and-more"), format!("abc {MASK}"));
        assert_eq!(format!("{mask:?}").matches("pass").count(), 0);
    }
}
