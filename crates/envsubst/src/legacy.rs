//! White space in braces, which clusterctl once allowed: `${ NAME }` is `${NAME}`.

use std::borrow::Cow;

/// Removes it where there is nothing else in the braces but a name, in which dollar signs are let through here.
pub(crate) fn strip(text: &str) -> Cow<'_, str> {
    let mut stripped = String::new();
    let mut rest = text;
    // What stands before `rest` and is not copied yet.
    let mut kept = text;
    while let Some(at) = rest.find("${") {
        let (_, inner) = rest.split_at(at + "${".len());
        rest = inner;
        if let Some((name, after)) = spaced(inner) {
            let before = kept.len() - inner.len();
            stripped.push_str(kept.get(..before).unwrap_or_default());
            stripped.push_str(name);
            stripped.push('}');
            (kept, rest) = (after, after);
        }
    }
    if kept.len() == text.len() {
        return Cow::Borrowed(text);
    }
    stripped.push_str(kept);
    Cow::Owned(stripped)
}

/// The name and what follows the brace, where there is white space to remove.
fn spaced(inner: &str) -> Option<(&str, &str)> {
    let named = inner.trim_start_matches(is_space);
    let end = named.find(|character: char| !is_named(character))?;
    let (name, tail) = named.split_at(end);
    let closed = tail.trim_start_matches(is_space);
    let after = closed.strip_prefix('}')?;
    let is_spaced = named.len() < inner.len() || closed.len() < tail.len();
    (is_spaced && !name.is_empty()).then_some((name, after))
}

fn is_named(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '$')
}

fn is_space(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\x0c' | '\r' | ' ')
}
