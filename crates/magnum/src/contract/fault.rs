//! Answers that are none of success.

use http::StatusCode;
use serde_json::{Value, json};

use super::version::Version;

/// Why a request is not done, as the client is told.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fault {
    /// Something that a client can read.
    #[error("{status}: {detail}")]
    Told {
        /// The status.
        status: StatusCode,
        /// What is wrong.
        detail: String,
    },
    /// A status alone: what lies outside of the API's own objects has an empty title and detail.
    #[error("{0}")]
    Blank(StatusCode),
    /// The version that was asked for is not served.
    #[error("version {0} is not served")]
    UnsupportedVersion(String),
    /// There is no token, or none that is valid.
    #[error("no valid token")]
    Unauthenticated,
    /// The identity service does not answer: nobody can be let in.
    #[error("the identity service does not answer")]
    IdentityUnavailable,
}

impl Fault {
    /// The header asks for something else than this service.
    pub const NOT_ACCEPTABLE: Self = Self::Blank(StatusCode::NOT_ACCEPTABLE);
    /// There is no such path.
    pub const NO_ROUTE: Self = Self::Blank(StatusCode::NOT_FOUND);
    /// The path is not served with this verb.
    pub const NO_VERB: Self = Self::Blank(StatusCode::METHOD_NOT_ALLOWED);

    /// What was sent cannot be done.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::told(StatusCode::BAD_REQUEST, detail)
    }

    /// A member of the body is wrong.
    pub fn field(name: &str, value: &Value, reason: impl std::fmt::Display) -> Self {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        // A value may be as long as a body: what is wrong with it is seen from its beginning.
        let value: String = value.chars().take(256).collect();
        Self::invalid(format!(
            "Invalid input for field/attribute {name}. Value: '{value}'. {reason}"
        ))
    }

    /// The caller may not do that.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::told(StatusCode::FORBIDDEN, detail)
    }

    /// There is no such object, or the caller may not see it.
    pub fn not_found(kind: &str, ident: &str) -> Self {
        let ident: String = ident.chars().take(256).collect();
        Self::told(
            StatusCode::NOT_FOUND,
            format!("{kind} {ident} could not be found."),
        )
    }

    /// It does not go together with what is there.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::told(StatusCode::CONFLICT, detail)
    }

    /// With a status of one's own.
    pub fn told(status: StatusCode, detail: impl Into<String>) -> Self {
        Self::Told {
            status,
            detail: detail.into(),
        }
    }

    /// The status.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Told { status, .. } | Self::Blank(status) => *status,
            Self::UnsupportedVersion(_) => StatusCode::NOT_ACCEPTABLE,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::IdentityUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The body. Failures of tokens have the shape of Keystone's middleware, all others that of the service.
    pub fn body(&self) -> Value {
        match self {
            Self::Told { detail, .. } => {
                let server = self.status().is_server_error();
                envelope(&self.entry(if server { "server" } else { "client" }, detail))
            }
            Self::Blank(_) => envelope(&self.entry("", "")),
            Self::UnsupportedVersion(_) => envelope(&unsupported()),
            Self::Unauthenticated => identity(
                StatusCode::UNAUTHORIZED,
                "The request you have made requires authentication.",
            ),
            Self::IdentityUnavailable => identity(
                StatusCode::SERVICE_UNAVAILABLE,
                "The identity service does not answer; try again later.",
            ),
        }
    }

    /// Whether the answer says which versions there are: it does where the service itself has looked at the request.
    pub const fn is_versioned(&self) -> bool {
        matches!(self, Self::Told { .. } | Self::UnsupportedVersion(_))
    }

    fn entry(&self, code: &str, detail: &str) -> Value {
        let status = self.status();
        let title = detail.split('.').next().unwrap_or_default();
        json!({
            "request_id": "",
            "code": code,
            "status": status.as_u16(),
            "title": title,
            "detail": detail,
            "links": [],
        })
    }
}

fn envelope(entry: &Value) -> Value {
    json!({"errors": [entry]})
}

fn unsupported() -> Value {
    json!({
        "max_version": Version::MAXIMUM.to_string(),
        "min_version": Version::MINIMUM.to_string(),
        "code": "magnum.microversion-unsupported",
        "links": [{"rel": "help", "href": "http://docs.openstack.org/api-guide/compute/microversions.html"}],
        "title": "Requested microversion is unsupported",
    })
}

fn identity(status: StatusCode, message: &str) -> Value {
    json!({"error": {
        "code": status.as_u16(),
        "title": status.canonical_reason().unwrap_or_default(),
        "message": message,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_has_the_envelope_of_the_service() {
        let body = Fault::conflict("There are two. Use the UUID.").body();
        let wanted = json!({"errors": [{
            "request_id": "", "code": "client", "status": 409, "title": "There are two",
            "detail": "There are two. Use the UUID.", "links": [],
        }]});
        assert_eq!(body, wanted);
    }

    #[test]
    fn a_failed_token_has_the_shape_of_the_middleware() {
        let error = &Fault::Unauthenticated.body()["error"];
        assert_eq!(error["code"], 401);
        assert_eq!(error["title"], "Unauthorized");
        assert_eq!(Fault::IdentityUnavailable.body()["error"]["code"], 503);
    }

    #[test]
    fn an_unsupported_version_is_told_with_those_that_are() {
        let body = Fault::UnsupportedVersion("1.99".to_owned()).body();
        let entry = &body["errors"][0];
        assert_eq!(entry["code"], "magnum.microversion-unsupported");
        assert_eq!(entry["max_version"], "1.14");
        assert_eq!(entry["min_version"], "1.1");
        assert_eq!(entry["links"][0]["rel"], "help");
    }

    #[test]
    fn only_what_the_service_looked_at_says_which_versions_there_are() {
        for (fault, is_versioned) in [
            (Fault::invalid("No."), true),
            (Fault::UnsupportedVersion("1.99".to_owned()), true),
            (Fault::NO_ROUTE, false),
            (Fault::Unauthenticated, false),
            (Fault::IdentityUnavailable, false),
        ] {
            assert_eq!(fault.is_versioned(), is_versioned, "{fault}");
        }
        let blank = Fault::NO_VERB.body();
        assert_eq!(blank["errors"][0]["code"], "");
    }

    #[test]
    fn the_server_s_fault_is_not_the_client_s() {
        let fault = Fault::told(StatusCode::INTERNAL_SERVER_ERROR, "It broke.");
        assert_eq!(fault.body()["errors"][0]["code"], "server");
    }

    #[test]
    fn a_long_value_is_not_sent_back_whole() {
        let value = Value::String("a".repeat(100_000));
        let Fault::Told { detail, .. } = Fault::field("name", &value, "too long") else {
            panic!("a field's fault is told");
        };
        assert!(detail.len() < 512, "{}", detail.len());
    }
}
