//! What the API refuses to the operator, as its Cluster tells it: the log of the operator is read by nobody who can help.

use kube::core::Status;

use runs::control;

use crate::context::Error;

/// The reason while the API refuses what a pass needs.
pub(super) const REFUSED: &str = "Refused";

/// What was refused, by what word, and what helps. None: the API did not answer, or it passes by itself.
pub(super) fn refusal(error: &Error) -> Option<String> {
    let (operation, status) = refused(error)?;
    let remedy = remedy(status)?;
    Some(format!(
        "the API refuses to {operation}: {}; {remedy}, it is tried again",
        status.message
    ))
}

fn refused(error: &Error) -> Option<(String, &Status)> {
    let (operation, source) = match error {
        Error::Api { operation, source } => ((*operation).to_owned(), &**source),
        Error::Apply(error) => match error {
            controller::apply::Error::Api { source, .. } => (error.to_string(), source),
            controller::apply::Error::Serialize { .. } => return None,
        },
        Error::Control(error) => match error {
            control::Error::Api { source, .. } => (error.to_string(), &**source),
            control::Error::NoReason { .. } => return None,
        },
        Error::File { .. } => return None,
    };
    match source {
        kube::Error::Api(status) => Some((operation, status)),
        _ => None,
    }
}

/// What helps against a refusal that does not pass by itself.
fn remedy(status: &Status) -> Option<&'static str> {
    match status.code {
        403 if status.message.contains("exceeded quota") => {
            Some("raise the quota of the namespace, or free what it counts")
        }
        403 if status.message.contains("being terminated") => {
            Some("let the namespace end, or make the cluster in another one")
        }
        403 => Some("give the operator this right, as its chart does, or have the policy allow it"),
        400 | 422 if status.message.contains("admission webhook") => {
            Some("have the webhook allow it")
        }
        400 | 422 => Some("install the CustomResourceDefinitions of this version of Windlass"),
        413 => Some("make the cluster smaller, or give its hosts fewer variables"),
        _ if status.message.contains("webhook") => Some("see that the webhook answers"),
        _ if status.message.contains("request is too large") => {
            Some("make the cluster smaller, or give its hosts fewer variables")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, message: &str) -> Error {
        let status = Status {
            code,
            ..Status::failure(message, "Why")
        };
        Error::api("store the run", kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn a_refusal_is_told_with_what_helps() {
        for (code, message, helps) in [
            (403, "exceeded quota: objects", "raise the quota"),
            (
                403,
                "runs is forbidden: User \"w\" cannot create",
                "give the operator this right",
            ),
            (
                422,
                "Run \"r\" is invalid: spec.plan: too long",
                "CustomResourceDefinitions",
            ),
            (
                400,
                "admission webhook \"w\" denied the request",
                "webhook allow",
            ),
            (
                500,
                "failed calling webhook \"w\": timeout",
                "webhook answers",
            ),
            (500, "etcdserver: request is too large", "smaller"),
            (413, "limit is 3145728", "smaller"),
        ] {
            let told = refusal(&answer(code, message)).unwrap();
            for part in ["refuses to store the run", message, helps] {
                assert!(told.contains(part), "{told}");
            }
        }
    }

    #[test]
    fn what_passes_by_itself_is_no_refusal() {
        for code in [404, 409, 429, 500, 503, 504] {
            assert_eq!(refusal(&answer(code, "the server is busy")), None, "{code}");
        }
        let gone = kube::Error::Service("connection refused".into());
        assert_eq!(refusal(&Error::api("store the run", gone)), None);
    }
}
