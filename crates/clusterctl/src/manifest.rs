//! Objects from the documents of a YAML file.

use serde_json::Value;

use crate::object::{Lack, Object};

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

/// The documents of a file.
fn documents(text: &str) -> Result<Vec<Value>, ManifestError> {
    // As clusterctl reads YAML: numbers that begin with 0 are in base eight, the schemas of CRDs are nested deeply.
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: 200,
            max_documents: 4_096,
            max_events: 4_000_000,
            max_nodes: 2_000_000,
        },
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
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
