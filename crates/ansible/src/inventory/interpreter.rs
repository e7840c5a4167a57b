//! The path of a Python on a host.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The path of a Python on a host, which that host may have named itself.
///
/// Ansible takes `ansible_python_interpreter` for a template, so that a host that could write anything there would run what it
/// likes on the machine that runs Ansible. Absolute, of at most 256 letters, digits and `/_.+-`, without `..`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct PythonPath(String);

/// A text is not the path of a Python.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not an absolute path of at most 256 letters, digits, '/', '_', '.', '+' and '-'")]
pub struct InvalidPythonPath;

impl FromStr for PythonPath {
    type Err = InvalidPythonPath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/_.+-".contains(&byte);
        let valid = text.starts_with('/')
            && text.len() <= 256
            && text.bytes().all(allowed)
            && text.split('/').all(|part| part != "..");
        valid
            .then(|| Self(text.to_owned()))
            .ok_or(InvalidPythonPath)
    }
}

impl TryFrom<String> for PythonPath {
    type Error = InvalidPythonPath;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PythonPath> for String {
    fn from(path: PythonPath) -> Self {
        path.0
    }
}

impl fmt::Display for PythonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
