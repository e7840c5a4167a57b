//! The parts of a request that every verb reads.

use std::collections::HashMap;

use axum::extract::{Query, Request};
use http::{Method, header};

use crate::{
    apply,
    failure::{Cause, Failure, Result},
    registry::{Form, Registry, Resource},
    selector::Selector,
    state::Api,
};

/// Who asks. In-process callers are the operator itself; over TLS it is the subject of the client certificate.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub user: String,
    pub groups: Vec<String>,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            user: "windlass:in-process".into(),
            groups: vec!["system:masters".into(), "system:authenticated".into()],
        }
    }
}

/// A subresource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sub {
    Status,
    /// Of a Namespace: its `spec.finalizers`.
    Finalize,
    /// The replicas of a custom object.
    Scale,
}

impl Sub {
    /// Its name in a path.
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Finalize => "finalize",
            Self::Scale => "scale",
        }
    }
}

/// A request for a resource, parsed.
#[derive(Debug)]
pub(crate) struct Call {
    resource: usize,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub sub: Option<Sub>,
    pub manager: String,
    /// The kind that holds the parameters of this verb.
    pub options: &'static str,
    query: HashMap<String, String>,
}

/// What to do about fields that no schema knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl Call {
    /// How the request takes part in the ownership of fields.
    pub fn ownership<'a>(&'a self, api_version: &'a str) -> apply::Options<'a> {
        apply::Options {
            manager: &self.manager,
            force: self.flag("force"),
            subresource: self.sub.map(Sub::name),
            api_version,
            time: jiff::Timestamp::now(),
        }
    }

    pub fn parse(
        registry: &Registry,
        group: &str,
        version: &str,
        rest: &[&str],
        request: &Request,
    ) -> Result<Self> {
        let (namespace, rest) = match rest {
            // `namespaces/NAME/status` is the namespace itself; a resource of that name there is none.
            ["namespaces", _, "status" | "finalize"] if group.is_empty() => (None, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (plural, name, sub) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            [plural, name, sub] => (*plural, Some(*name), Some(*sub)),
            _ => return Err(Failure::no_route()),
        };
        let index = registry
            .resources
            .iter()
            .position(|r| r.group == group && r.version == version && r.plural == plural)
            .ok_or_else(Failure::no_route)?;
        let resource = &registry.resources[index];
        if resource.namespaced != namespace.is_some() && (name.is_some() || namespace.is_some()) {
            return Err(Failure::no_route());
        }
        let sub = match sub {
            None => None,
            Some("status") if resource.status => Some(Sub::Status),
            Some("scale") if resource.scale.is_some() => Some(Sub::Scale),
            Some("finalize") if resource.form == Form::Namespace => Some(Sub::Finalize),
            Some(_) if resource.form == Form::Custom => {
                return Err(Failure::not_found(resource, name.unwrap_or_default()));
            }
            Some(_) => return Err(Failure::no_route()),
        };
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(request.uri())
            .map_err(|error| Failure::bad_request(error.to_string()))?;
        let query: HashMap<String, String> = pairs.into_iter().collect();
        Ok(Self {
            resource: index,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            sub,
            manager: manager(&query, request),
            options: match *request.method() {
                Method::POST => "CreateOptions",
                Method::PUT => "UpdateOptions",
                Method::PATCH => "PatchOptions",
                Method::DELETE => "DeleteOptions",
                _ => "ListOptions",
            },
            query,
        })
    }

    pub fn resource<'a>(&self, api: &'a Api) -> &'a Resource {
        &api.registry.resources[self.resource]
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        self.query
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    pub fn flag(&self, name: &str) -> bool {
        matches!(self.query(name), Some("true" | "1" | "True"))
    }

    /// Refuses the name of a field manager that nobody could store or read.
    ///
    /// # Source
    /// Kubernetes `apimachinery/pkg/apis/meta/v1/validation/validation.go`, 1.34.
    pub fn check_manager(&self, method: &Method) -> Result<()> {
        if ![Method::POST, Method::PUT, Method::PATCH].contains(method) {
            return Ok(());
        }
        let given = self.query("fieldManager").unwrap_or_default();
        let cause = |reason: &str, message: String| Cause {
            reason: reason.into(),
            message,
            field: "fieldManager".into(),
        };
        let mut causes = Vec::new();
        if given.len() > MANAGER_MAX {
            let rule = format!("Too long: may not be more than {MANAGER_MAX} bytes");
            causes.push(cause("FieldValueTooLong", rule));
        }
        let unprintable = given.char_indices().filter(|(_, c)| !printable(*c));
        causes.extend(unprintable.map(|(at, c)| {
            let rule = format!(
                "invalid character U+{:04X} (at position {at})",
                u32::from(c)
            );
            cause(
                "FieldValueInvalid",
                format!("Invalid value: {given:?}: {rule}"),
            )
        }));
        match causes.as_slice() {
            [] => Ok(()),
            causes => Err(Failure::invalid_options(self.options, causes)),
        }
    }

    pub fn dry_run(&self) -> Result<bool> {
        dry_run(self.query("dryRun"), self.options)
    }

    pub fn field_validation(&self) -> Result<FieldValidation> {
        match self.query("fieldValidation") {
            None | Some("Warn") => Ok(FieldValidation::Warn),
            Some("Strict") => Ok(FieldValidation::Strict),
            Some("Ignore") => Ok(FieldValidation::Ignore),
            Some(other) => Err(unsupported(
                self.options,
                "fieldValidation",
                &format!("{other:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""),
            )),
        }
    }

    pub fn selector(&self, resource: &Resource) -> Result<Selector> {
        Selector::parse(
            self.query("labelSelector"),
            self.query("fieldSelector"),
            resource,
        )
    }

    /// The revision in the query; absent and "0" mean the same for a store that is always current.
    pub fn revision(&self) -> Result<Option<u64>> {
        match self.query("resourceVersion") {
            None | Some("0") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                Failure::bad_request(format!("invalid resource version {text:?}: not a number"))
            }),
        }
    }
}

/// A parameter with a value that is not one of its values.
pub(crate) fn unsupported(options: &str, field: &str, rest: &str) -> Failure {
    let cause = Cause {
        reason: "FieldValueNotSupported".into(),
        message: format!("Unsupported value: {rest}"),
        field: field.into(),
    };
    Failure::invalid_option(options, &cause)
}

pub(crate) fn dry_run(value: Option<&str>, options: &str) -> Result<bool> {
    match value {
        None => Ok(false),
        Some("All") => Ok(true),
        Some(other) => Err(unsupported(
            options,
            "dryRun",
            &format!("[{other:?}]: supported values: \"All\""),
        )),
    }
}

/// The field manager: as asked, or the program in the user agent as Kubernetes does.
fn manager(query: &HashMap<String, String>, request: &Request) -> String {
    let agent = || {
        let agent = request.headers().get(header::USER_AGENT)?.to_str().ok()?;
        let program = agent.split('/').next()?;
        let program = program.chars().filter(|c| printable(*c));
        Some(program.take(MANAGER_MAX).collect::<String>())
    };
    query
        .get("fieldManager")
        .filter(|manager| !manager.is_empty())
        .cloned()
        .or_else(agent)
        .filter(|manager| !manager.is_empty())
        .unwrap_or_else(|| "unknown".into())
}

/// Whether a character can be seen, or is a space: what Rust would write as it stands, and the quotes, which it would not.
fn printable(c: char) -> bool {
    matches!(c, ' ' | '\'' | '"' | '\\') || (!c.is_whitespace() && c.escape_debug().len() == 1)
}

/// What the name of a field manager has at most, in bytes.
const MANAGER_MAX: usize = 128;
