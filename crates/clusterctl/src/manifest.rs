//! Objects from the documents of a YAML file.

use serde_json::Value;

use crate::{
    object::{Lack, Object},
    side_by_side::side_by_side,
};

/// A file that holds no objects.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not YAML. What the parser says is left out: it quotes the file, in which values of variables stand.
    #[error(
        "the file is no YAML at line {line}, column {column}, counted after variables are put in; mend it, or quote the variable \
         whose value stands there"
    )]
    Parse {
        /// The line, from 1; 0 where it is unknown.
        line: u64,
        /// The column, from 1; 0 where it is unknown.
        column: u64,
    },
    /// More documents, values or levels than are read.
    #[error(
        "the file has more documents, values, aliases or levels than a file of a provider may have; split or shorten it"
    )]
    TooMuch,
    /// A document that is no object.
    #[error("document {number} of the file is no object of Kubernetes: {lack}")]
    Object {
        /// Which document, from 1; empty ones do not count.
        number: usize,
        /// What it lacks.
        lack: Lack,
    },
}

/// The objects of a file, in its order. Documents that are empty are left out.
///
/// # Errors
///
/// Text that is no YAML, and documents that are no objects.
pub fn parse(text: &str) -> Result<Vec<Object>, ManifestError> {
    documents(text)?
        .into_iter()
        .filter(|document| !document.is_null())
        .enumerate()
        .map(|(index, document)| {
            Object::new(document).map_err(|lack| ManifestError::Object {
                number: index + 1,
                lack,
            })
        })
        .collect()
}

/// The documents of a file. A large one is read document by document, side by side; where that fails it is read whole, which alone knows
/// the line and what is too much of all.
fn documents(text: &str) -> Result<Vec<Value>, ManifestError> {
    if SIDE_BY_SIDE.contains(&text.len())
        && let Some(parts) = split(text)
        && let Ok(read) = side_by_side(&parts, |part| read(part))
            .into_iter()
            .collect()
    {
        let read: Vec<Vec<Value>> = read;
        return Ok(read.into_iter().flatten().collect());
    }
    read(text).map_err(|error| {
        if matches!(error.without_snippet(), serde_saphyr::Error::Budget { .. }) {
            return ManifestError::TooMuch;
        }
        let location = error.location();
        ManifestError::Parse {
            line: location.map_or(0, |location| location.line()),
            column: location.map_or(0, |location| location.column()),
        }
    })
}

fn read(text: &str) -> Result<Vec<Value>, serde_saphyr::Error> {
    // As clusterctl reads YAML: numbers that begin with 0 are in base eight, the schemas of CRDs are nested deeply.
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: 200,
            max_documents: MOST_DOCUMENTS,
            max_events: 4_000_000,
            max_nodes: 2_000_000,
        },
    };
    serde_saphyr::from_multiple_with_options(text, options)
}

/// The documents as they stand in the text. A line that begins with three hyphens begins one wherever it is, for no value goes over such a
/// line. None: there are directives, which say something of what follows, or more documents than are read.
///
/// # Source
/// YAML 1.2.2, 9.1.2 (document markers, `c-forbidden`).
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut begin, mut at) = (Vec::new(), 0, 0);
    for line in text.split_inclusive('\n') {
        if line.starts_with('%') {
            return None;
        }
        let rest = line.strip_prefix("---");
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n'])) {
            parts.push(&text[begin..at]);
            begin = at;
        }
        at += line.len();
    }
    parts.push(&text[begin..]);
    parts.retain(|part| !part.is_empty());
    (parts.len() <= MOST_DOCUMENTS).then_some(parts)
}

/// A smaller text is read at once before another thread has begun. What is too much is told of a larger one as a whole: one of this length
/// has no more nodes and events than that, whatever stands in it.
const SIDE_BY_SIDE: std::ops::RangeInclusive<usize> = 64 * 1024..=2 * 1024 * 1024;
const MOST_DOCUMENTS: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_where_its_documents_begin() {
        let text = "# a\na: 1\n--- # b\nb: |\n  ---\n  %c\n---\n---\td\n---e: 1\n...\n---";
        let parts = [
            "# a\na: 1\n",
            "--- # b\nb: |\n  ---\n  %c\n",
            "---\n",
            "---\td\n---e: 1\n...\n",
            "---",
        ];
        assert_eq!(split(text).unwrap(), parts);
        assert_eq!(split(text).unwrap().concat(), text);
        assert_eq!(split("%YAML 1.2\n---\na: 1\n"), None);
    }

    #[test]
    fn a_large_text_is_read_as_a_small_one() {
        let document = |number: usize| {
            let padding = "x".repeat(2_000);
            format!(
                "--- # {number}\napiVersion: v1\nkind: A\nmetadata: {{name: \"{number}\"}}\nmode: 0644\ntext: |\n  ---\n  {padding}\n"
            )
        };
        let text: String = (0..100).map(document).chain(["---\n".to_owned()]).collect();
        assert!(SIDE_BY_SIDE.contains(&text.len()));
        let whole: Vec<_> = read(&text).unwrap();
        let whole: Vec<_> = whole.into_iter().filter(|one| !one.is_null()).collect();
        let objects = parse(&text).unwrap();
        let objects: Vec<_> = objects.into_iter().map(Object::into_value).collect();
        assert_eq!(objects, whole);
        assert_eq!(objects[99]["mode"], 0o644);

        let broken = text.replace("name: \"70\"", "name: [");
        let Err(ManifestError::Parse { line, .. }) = parse(&broken) else {
            panic!("it is no YAML")
        };
        assert!((561..570).contains(&line), "{line}: of the whole file");
    }
}
