//! What the API's answer to a try says of those whom it asked.
//!
//! # Source
//! kubernetes v1.34 `apiserver/pkg/admission/plugin/webhook/errors` and `pkg/util/webhook/error.go`, `apiextensions-apiserver`
//! `pkg/apiserver/conversion/webhook_converter.go`. There is no other mark than their words.

use api::text::plain;

/// What it says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    /// Everybody was asked, and has answered.
    Passed,
    /// This one refused the object: it has answered.
    Denied(String),
    /// The object does not fit its schema: those that change objects have answered, the others were not asked.
    Unfit,
    /// This one was called, and did not answer.
    Silent(String, String),
    /// Whoever converts the object was called, and did not answer.
    Unconverted(String),
    /// Whoever converts the object has answered that it cannot.
    Unconvertible,
    /// Nobody answered in time.
    Late,
    /// The operator may not ask.
    Forbidden(String),
    /// The API itself had no time, or did not answer: nobody is known to have been asked.
    Busy(String),
    /// Nothing of a webhook of the provider.
    Nothing,
}

pub(super) fn read(tried: Result<(), &kube::Error>) -> Answer {
    let status = match tried {
        Ok(()) => return Answer::Passed,
        Err(kube::Error::Api(status)) => status,
        Err(error) => return Answer::Busy(plain(&controller::chain(error), 200)),
    };
    let message = status.message.as_str();
    // A webhook may repeat what it was told itself, so what it says is not looked into.
    if let Some((name, _)) = quoted(message, "admission webhook ") {
        return Answer::Denied(name.to_owned());
    }
    // It comes once for each layer that it went through.
    let inner = message.trim_start_matches("Internal error occurred: ");
    if let Some((name, said)) = quoted(inner, "failed calling webhook ") {
        // Whoever breaks off over so small an object may well answer others.
        if said.ends_with(": EOF") {
            return Answer::Nothing;
        }
        return Answer::Silent(name.to_owned(), why(said));
    }
    if let Some(said) = inner.strip_prefix("conversion webhook for ") {
        // What comes of a call has its address; all else is an answer.
        return match said.split_once(" failed: Post ") {
            None => Answer::Unconvertible,
            Some((_, said)) if said.ends_with(": EOF") => Answer::Nothing,
            Some((_, said)) => Answer::Unconverted(why(said)),
        };
    }
    match status.code {
        504 => Answer::Late,
        // Others forbid things too, and it is not for want of a right then.
        403 if message.contains(" cannot ") => Answer::Forbidden(plain(message, 300)),
        422 => Answer::Unfit,
        408 | 429 | 500.. => Answer::Busy(plain(message, 200)),
        _ => Answer::Nothing,
    }
}

/// What stands in quotes behind these words at the beginning, and what follows.
fn quoted<'a>(text: &'a str, words: &str) -> Option<(&'a str, &'a str)> {
    text.strip_prefix(words)?.strip_prefix('"')?.split_once('"')
}

/// The last cause: what is before it has addresses and ports that change.
fn why(said: &str) -> String {
    let last = match said.split_once("x509: ") {
        // Behind it is what time it is.
        Some((_, said)) => said.split(": ").next(),
        None => said.rsplit(": ").next(),
    };
    plain(last.unwrap_or(said), 200)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answer(code: u16, message: &str) -> Answer {
        let status = Status::failure(message, "").with_code(code);
        read(Err(&kube::Error::Api(Box::new(status))))
    }

    #[test]
    fn each_answer_of_an_api_is_told_from_the_others() {
        let silent = |why: &str| Answer::Silent("default.boat.example".to_owned(), why.to_owned());
        let call = "Internal error occurred: failed calling webhook \"default.boat.example\": failed to call webhook: Post \
             \"https://webhook.boat-system.svc:443/mutate?timeout=10s\": ";
        for (said, why) in [
            (
                "no endpoints available for service \"webhook\"",
                "no endpoints available for service \"webhook\"",
            ),
            (
                "service \"webhook\" not found",
                "service \"webhook\" not found",
            ),
            (
                "dial tcp 10.0.0.7:9443: connect: connection refused",
                "connection refused",
            ),
            (
                "read tcp 10.0.0.1:50312->10.0.0.7:9443: read: connection reset by peer",
                "connection reset by peer",
            ),
            ("context deadline exceeded", "context deadline exceeded"),
            (
                "tls: failed to verify certificate: x509: certificate signed by unknown authority (possibly because of \"a: b\")",
                "certificate signed by unknown authority (possibly because of \"a",
            ),
            (
                "tls: failed to verify certificate: x509: certificate is valid for a.example, b.example, not webhook.boat-system.svc",
                "certificate is valid for a.example, b.example, not webhook.boat-system.svc",
            ),
            (
                "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-01-01T00:00:00Z is after 2025-01-01T00:00:00Z",
                "certificate has expired or is not yet valid",
            ),
        ] {
            assert_eq!(answer(500, &format!("{call}{said}")), silent(why), "{said}");
        }
        assert_eq!(answer(500, &format!("{call}EOF")), Answer::Nothing);

        let denied = Answer::Denied("validation.boat.example".to_owned());
        let said = "admission webhook \"validation.boat.example\" denied the request: ";
        for more in [
            "no sail",
            "Internal error occurred: failed calling webhook \"other\": no endpoints",
        ] {
            assert_eq!(answer(403, &format!("{said}{more}")), denied);
        }
        let said =
            "Boat.boat.example \"windlass-webhook-check\" is invalid: spec.sail: Required value";
        assert_eq!(answer(422, said), Answer::Unfit);
        let said = "boats.boat.example \"windlass-webhook-check\" is forbidden: User \"windlass\" cannot create resource \"boats\"";
        assert_eq!(answer(403, said), Answer::Forbidden(said.to_owned()));
        let said = "boats.boat.example \"windlass-webhook-check\" is forbidden: unable to create new content in namespace a because it is being terminated";
        assert_eq!(answer(403, said), Answer::Nothing);
        assert_eq!(
            answer(404, "the server could not find the requested resource"),
            Answer::Nothing
        );

        let said = "Internal error occurred: Internal error occurred: conversion webhook for boat.example/v1alpha1, Kind=Boat failed: ";
        let call = "Post \"https://webhook.boat-system.svc:443/convert?timeout=30s\": dial tcp 10.0.0.7:9443: connect: connection refused";
        let expected = Answer::Unconverted("connection refused".to_owned());
        assert_eq!(answer(500, &format!("{said}{call}")), expected);
        assert_eq!(
            answer(500, &format!("{said}no mast")),
            Answer::Unconvertible
        );
        assert_eq!(read(Ok(())), Answer::Passed);
        for (code, said) in [
            (429, "too many requests"),
            (500, "etcdserver: leader changed"),
            (503, "the server is currently unable to handle the request"),
        ] {
            assert_eq!(answer(code, said), Answer::Busy(said.to_owned()));
        }
        assert_eq!(
            answer(
                504,
                "the server was unable to return a response in the time allotted"
            ),
            Answer::Late
        );
    }
}
