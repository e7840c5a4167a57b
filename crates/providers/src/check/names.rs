//! Names of objects, labels and arguments.

use api::provider::ObjectReference;

use super::Findings;

/// An object that is named.
pub(super) fn reference(field: &str, reference: Option<&ObjectReference>, findings: &mut Findings) {
    let Some(ObjectReference { name, namespace }) = reference else {
        return;
    };
    object_name(&format!("{field}.name"), name, findings);
    if let Some(namespace) = super::given(namespace.as_deref())
        && !is_label(namespace)
    {
        findings.invalid(
            &format!("{field}.namespace"),
            namespace,
            "a namespace has lower-case letters, digits and '-', at most 63",
            "write the namespace that it is in, or leave it out for the provider's",
        );
    }
}

/// The name of an object.
pub(super) fn object_name(field: &str, name: &str, findings: &mut Findings) {
    let valid = name.len() <= 253 && name.split('.').all(is_label);
    if !valid {
        findings.invalid(
            field,
            name,
            "the name of an object has lower-case letters, digits, '-' and '.', at most 253",
            "write the name as kubectl shows it",
        );
    }
}

/// Labels that select or are looked for.
pub(super) fn labels<'a>(
    field: &str,
    labels: impl Iterator<Item = (&'a String, &'a String)>,
    findings: &mut Findings,
) {
    for (key, value) in labels {
        label_key(field, key, findings);
        if !is_label_value(value) {
            findings.invalid(
                &format!("{field}[{key}]"),
                value,
                "the value of a label has letters, digits, '-', '_' and '.', at most 63",
                "write the value that the objects have",
            );
        }
    }
}

/// The key of a label.
pub(super) fn label_key(field: &str, key: &str, findings: &mut Findings) {
    if !is_label_key(key) {
        findings.invalid(
            field,
            key,
            "the key of a label is a name of at most 63 letters, digits, '-', '_' and '.', with a domain and '/' before it or without",
            "write the key that the objects have",
        );
    }
}

/// An argument by its name, as it is given to a container.
pub(super) fn argument(field: &str, name: &str, findings: &mut Findings) {
    let word = name.trim_start_matches('-');
    let dashes = name.len() - word.len();
    let plain = word
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'=');
    if !(1..=2).contains(&dashes) || word.is_empty() || !plain {
        findings.invalid(
            field,
            name,
            "an argument is named with its dashes and without its value",
            "write it as --NAME: VALUE",
        );
    }
}

/// A lower-case RFC 1123 label, as of a namespace.
pub(super) fn is_label(text: &str) -> bool {
    let edge =
        |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| edge(Some(byte)) || *byte == b'-')
}

pub(super) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

pub(super) fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => {
            domain.len() <= 253 && domain.split('.').all(is_label) && is_name(name)
        }
        None => is_name(key),
    }
}

fn is_name(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|byte| edge(Some(byte)) || matches!(byte, b'-' | b'_' | b'.'))
}
