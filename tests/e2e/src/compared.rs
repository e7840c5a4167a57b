//! Requests to the Magnum API that Windlass and a real Magnum are both asked, and what of their answers has to be the same.
//!
//! `cases` makes the requests, in an order: what one makes, later ones name. [`normal`] takes out of an answer what differs between
//! any two services, [`allowed`] says what else may differ, and why; `docs/magnum.md` has that as a table.

use serde_json::Value;

pub mod allowed;
mod cases;
pub mod normal;

pub use cases::{after, before};

/// Who asks.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Who {
    /// A member of project `demo`.
    Ann,
    /// A reader of the same project.
    Bob,
    /// A member of another project.
    Eve,
    /// An administrator, of a third one.
    Admin,
    /// Somebody with a token that Keystone has not made.
    Forger,
    /// Somebody without a token.
    Nobody,
}

impl Who {
    /// The name of the account; none: there is none.
    pub const fn account(self) -> Option<&'static str> {
        match self {
            Self::Ann => Some("ann"),
            Self::Bob => Some("bob"),
            Self::Eve => Some("eve"),
            Self::Admin => Some("admin"),
            Self::Forger | Self::Nobody => None,
        }
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Who asks.
    pub who: Who,
    /// The verb.
    pub method: &'static str,
    /// The path with its query. `{name}` stands for the UUID that was kept under that name.
    pub path: String,
    /// The value of `OpenStack-API-Version`; none: it is not sent.
    pub version: Option<String>,
    /// What is sent.
    pub body: Body,
    /// The name under which the UUID in the answer is kept.
    pub keep: Option<&'static str>,
}

/// The body of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// There is none.
    None,
    /// JSON. `{name}` in a text stands for the UUID that was kept under that name.
    Json(Value),
    /// Anything, with its type.
    Raw(&'static str, &'static str),
}

impl Case {
    /// A request of a member of the project, in the newest version.
    pub fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self {
            who: Who::Ann,
            method,
            path: path.into(),
            version: Some("container-infra latest".to_owned()),
            body: Body::None,
            keep: None,
        }
    }

    fn by(mut self, who: Who) -> Self {
        self.who = who;
        self
    }

    fn at(mut self, version: &str) -> Self {
        self.version = Some(format!("container-infra {version}"));
        self
    }

    fn header(mut self, version: Option<&str>) -> Self {
        self.version = version.map(str::to_owned);
        self
    }

    fn json(mut self, body: Value) -> Self {
        self.body = Body::Json(body);
        self
    }

    fn raw(mut self, kind: &'static str, text: &'static str) -> Self {
        self.body = Body::Raw(kind, text);
        self
    }

    const fn kept_as(mut self, name: &'static str) -> Self {
        self.keep = Some(name);
        self
    }
}

/// In one line, as a person would ask again.
impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {} {}", self.who, self.method, self.path)?;
        if let Some(version) = &self.version {
            write!(f, " ({version})")?;
        }
        match &self.body {
            Body::None => Ok(()),
            Body::Json(body) => write!(f, " {:.400}", body.to_string()),
            Body::Raw(kind, text) => write!(f, " {kind}: {text}"),
        }
    }
}
