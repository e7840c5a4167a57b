//! A case: an object, and requests that change it.

use std::fmt;

use http::{Method, Request, header};
use kube::client::Body;
use serde_json::{Value, json};

use crate::kinds::{Kind, OWNERS};

/// How an object is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// POST.
    Create,
    /// PUT with the revision that was answered last.
    Replace,
    /// A JSON merge patch.
    Merge,
    /// A strategic merge patch.
    Strategic,
    /// A JSON patch.
    Json,
    /// A server-side apply.
    Apply,
    /// A server-side apply that takes what others own.
    Force,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Step {
    /// What it asks for.
    pub verb: Verb,
    /// The field manager.
    pub manager: &'static str,
    /// Whether it is for the status.
    pub status: bool,
    /// Without what says which object it is: that is added where it is needed.
    pub body: Value,
}

/// Requests about one object, in order.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its kind.
    pub kind: Kind,
    /// The requests.
    pub steps: Vec<Step>,
}

/// What a request needs to know of the server that it goes to.
#[derive(Debug)]
pub struct Place<'a> {
    /// The name of the object.
    pub name: &'a str,
    /// Its revision as it was answered last, or nothing.
    pub revision: &'a str,
    /// The uids of [`OWNERS`].
    pub owners: &'a [String],
}

impl Place<'_> {
    fn with_ids(&self, text: &str) -> String {
        let pairs = OWNERS.iter().zip(self.owners);
        pairs.fold(text.to_owned(), |text, (name, uid)| {
            text.replace(&format!("UID-of-{name}"), uid)
        })
    }

    /// The text as it would be from every server.
    pub fn without_ids(&self, text: &str) -> String {
        let pairs = OWNERS.iter().zip(self.owners);
        pairs.fold(text.to_owned(), |text, (name, uid)| {
            text.replace(uid, &format!("UID-of-{name}"))
        })
    }
}

/// Where the objects of namespaced kinds are.
pub const NAMESPACE: &str = "differential";

impl Step {
    /// The body as it is sent.
    pub fn body(&self, kind: &Kind, name: &str, revision: &str) -> Value {
        if matches!(self.verb, Verb::Merge | Verb::Strategic | Verb::Json) || !self.body.is_object()
        {
            return self.body.clone();
        }
        let mut body = json!({"apiVersion": kind.version, "kind": kind.name});
        for (field, value) in self.body.as_object().into_iter().flatten() {
            body[field] = value.clone();
        }
        if body["metadata"].is_object() || body["metadata"].is_null() {
            body["metadata"]["name"] = json!(name);
            if self.verb == Verb::Replace && !revision.is_empty() {
                body["metadata"]["resourceVersion"] = json!(revision);
            }
        }
        body
    }

    /// The request at this place.
    ///
    /// # Errors
    ///
    /// A name that makes no path.
    pub fn request(&self, kind: &Kind, place: &Place<'_>) -> http::Result<Request<Body>> {
        let Place { name, revision, .. } = place;
        let group = if kind.version.contains('/') {
            "apis"
        } else {
            "api"
        };
        let mut path = format!("/{group}/{}", kind.version);
        if kind.namespaced {
            path += &format!("/namespaces/{NAMESPACE}");
        }
        path += &format!("/{}", kind.plural);
        if self.verb != Verb::Create {
            path += &format!("/{name}");
        }
        if self.status {
            path += "/status";
        }
        path += &format!("?fieldManager={}", self.manager);
        if self.verb == Verb::Force {
            path += "&force=true";
        }
        let (method, content) = match self.verb {
            Verb::Create => (Method::POST, "application/json"),
            Verb::Replace => (Method::PUT, "application/json"),
            Verb::Merge => (Method::PATCH, "application/merge-patch+json"),
            Verb::Strategic => (Method::PATCH, "application/strategic-merge-patch+json"),
            Verb::Json => (Method::PATCH, "application/json-patch+json"),
            Verb::Apply | Verb::Force => (Method::PATCH, "application/apply-patch+yaml"),
        };
        let body = place.with_ids(&self.body(kind, name, revision).to_string());
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "differential/1")
            .body(Body::from(body.into_bytes()))
    }
}

/// As commands that do the same by hand.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            let mut options = format!(" --field-manager={}", step.manager);
            if self.kind.namespaced {
                options += &format!(" --namespace={NAMESPACE}");
            }
            if step.status {
                options += " --subresource=status";
            }
            let body = step.body(&self.kind, "case", "");
            let patched = |kind: &str| {
                format!(
                    "kubectl patch {} case --type={kind}{options} --patch='{body}'",
                    self.kind.plural
                )
            };
            let piped = |command: &str| format!("kubectl {command}{options} -f - <<< '{body}'");
            let line = match step.verb {
                Verb::Create => piped("create"),
                Verb::Replace => piped("replace"),
                Verb::Merge => patched("merge"),
                Verb::Strategic => patched("strategic"),
                Verb::Json => patched("json"),
                Verb::Apply => piped("apply --server-side"),
                Verb::Force => piped("apply --server-side --force-conflicts"),
            };
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}
