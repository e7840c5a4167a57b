//! Where a value stands in a tree of values.

use std::{fmt, str::FromStr, sync::Arc};

/// A path into values, for example `kubernetes.version`, `nodes[0].ip` or `labels["example.com/zone"]`.
///
/// A key of letters, digits, `_`, `-`, `$` and `~` stands as it is, another one in brackets and quotes, where `\` stands before
/// a quote and before itself. The number of a list's entry, from 0, stands in brackets. `*` is any key or entry; it is for
/// rules that speak of several values.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ValuePath(pub Vec<Segment>);

/// One step of a path.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Segment {
    /// The key of a map.
    Key(Arc<str>),
    /// The number of a list's entry, from 0.
    Index(usize),
    /// Any key or entry.
    Any,
}

/// Why a text is not a path.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "path {0:?} is not one: write keys with dots between them and others than letters, digits, '_', '-', '$' and '~' in \
     brackets and quotes, for example nodes[0].ip or labels[\"example.com/zone\"]"
)]
pub struct InvalidValuePath(String);

impl ValuePath {
    /// The path of a key below this one.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.with(Segment::Key(key.into()))
    }

    /// The path of an entry below this one.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.with(Segment::Index(index))
    }

    /// The path one step below this one.
    #[must_use]
    pub fn with(&self, segment: Segment) -> Self {
        let mut path = self.clone();
        path.0.push(segment);
        path
    }

    /// This path with another one below it.
    #[must_use]
    pub fn join(&self, below: &Self) -> Self {
        Self(self.0.iter().chain(&below.0).cloned().collect())
    }

    /// Whether a path is this one, with `*` here for any step there.
    pub fn matches(&self, path: &[Segment]) -> bool {
        self.0.len() == path.len()
            && self
                .0
                .iter()
                .zip(path)
                .all(|(own, other)| *own == Segment::Any || own == other)
    }

    /// Whether it names keys alone.
    pub fn is_of_keys(&self) -> bool {
        self.0.iter().all(|step| matches!(step, Segment::Key(_)))
    }
}

impl fmt::Display for ValuePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, segment) in self.0.iter().enumerate() {
            let dot = if number == 0 { "" } else { "." };
            match segment {
                Segment::Key(key) if is_bare(key) => write!(f, "{dot}{key}")?,
                Segment::Key(key) => {
                    let quoted = key.replace('\\', r"\\").replace('"', "\\\"");
                    write!(f, "[\"{quoted}\"]")?;
                }
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Any => write!(f, "{dot}*")?,
            }
        }
        Ok(())
    }
}

impl FromStr for ValuePath {
    type Err = InvalidValuePath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidValuePath(text.chars().take(200).collect());
        let mut segments = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (segment, after) = if let Some(inside) = rest.strip_prefix("[\"") {
                quoted(inside).ok_or_else(invalid)?
            } else if let Some(inside) = rest.strip_prefix('[') {
                let (digits, after) = inside.split_once(']').ok_or_else(invalid)?;
                let plain = digits.bytes().all(|b| b.is_ascii_digit());
                let index = digits.parse().ok().filter(|_| plain).ok_or_else(invalid)?;
                (Segment::Index(index), after)
            } else {
                let keys = match (segments.is_empty(), rest.strip_prefix('.')) {
                    (true, None) => rest,
                    (false, Some(keys)) => keys,
                    _ => return Err(invalid()),
                };
                let end = keys.find(['.', '[']).unwrap_or(keys.len());
                let (key, after) = keys.split_at(end);
                match key {
                    "*" => (Segment::Any, after),
                    key if is_bare(key) => (Segment::Key(key.into()), after),
                    _ => return Err(invalid()),
                }
            };
            segments.push(segment);
            rest = after;
        }
        if segments.is_empty() || segments.len() > MAX_SEGMENTS {
            return Err(invalid());
        }
        Ok(Self(segments))
    }
}

crate::schema::string_newtype!(
    ValuePath,
    "Where a value stands: keys with dots between them.",
    r".",
    1024
);

/// The key in quotes and what comes after its bracket.
fn quoted(text: &str) -> Option<(Segment, &str)> {
    let mut key = String::new();
    let mut rest = text.chars();
    loop {
        match rest.next()? {
            '"' => break,
            '\\' => key.push(rest.next().filter(|c| matches!(c, '"' | '\\'))?),
            character => key.push(character),
        }
    }
    let after = rest.as_str().strip_prefix(']')?;
    Some((Segment::Key(key.into()), after))
}

fn is_bare(key: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'$' | b'~');
    !key.is_empty() && key.bytes().all(plain)
}

/// As deep as values may be.
const MAX_SEGMENTS: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_read() {
        for (text, expected) in [
            ("a", vec![Segment::Key("a".into())]),
            (
                "a[0].b",
                vec![
                    Segment::Key("a".into()),
                    Segment::Index(0),
                    Segment::Key("b".into()),
                ],
            ),
            (
                r#"a["b.c/d\""]"#,
                vec![Segment::Key("a".into()), Segment::Key("b.c/d\"".into())],
            ),
            ("*.x", vec![Segment::Any, Segment::Key("x".into())]),
        ] {
            assert_eq!(text.parse::<ValuePath>().unwrap().0, expected, "{text}");
        }
        for text in [
            "", ".", "a.", ".a", "a..b", "a[", "a[x]", "a[-1]", "a[\"b", "a b", "a[0]b", "a/b",
        ] {
            assert!(text.parse::<ValuePath>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(
            segments in prop::collection::vec(
                prop_oneof![
                    any::<String>().prop_map(|key| Segment::Key(key.into())),
                    (0_usize..99).prop_map(Segment::Index),
                    Just(Segment::Any),
                ],
                1..6,
            ),
        ) {
            let path = ValuePath(segments);
            prop_assert_eq!(path.to_string().parse::<ValuePath>().unwrap(), path);
        }
    }
}
