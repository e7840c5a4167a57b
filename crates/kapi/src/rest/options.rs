//! Options of lists and watches that do not go together.
//!
//! # Source
//! Kubernetes `apimachinery/pkg/apis/meta/internalversion/validation/validation.go`, 1.34.

use super::request::Call;
use crate::failure::{Cause, Failure, Result};

/// Refuses options that a list cannot have.
pub(crate) fn check_list(call: &Call) -> Result<()> {
    let mut causes = Vec::new();
    if let Some(given) = call.query(MATCH) {
        let revision = call.query("resourceVersion");
        if revision.is_none() {
            causes.push(forbidden(MATCH, "unless resourceVersion is provided"));
        }
        if call.query("continue").is_some() {
            causes.push(forbidden(MATCH, "when continue is provided"));
        }
        if ![EXACT, NOT_OLDER].contains(&given) {
            causes.push(unsupported(given, "\"Exact\", \"NotOlderThan\""));
        }
        if given == EXACT && revision == Some("0") {
            causes.push(forbidden(MATCH, "as Exact for resourceVersion \"0\""));
        }
    }
    if call.query(INITIAL).is_some() {
        causes.push(forbidden(INITIAL, "for list"));
    }
    refuse(&causes)
}

/// Refuses options that a watch cannot have.
pub(crate) fn check_watch(call: &Call) -> Result<()> {
    let mut causes = Vec::new();
    let (given, initial) = (call.query(MATCH), call.query(INITIAL));
    if initial.is_some() && given != Some(NOT_OLDER) {
        let rule = "unless it is NotOlderThan, which sendInitialEvents requires";
        causes.push(forbidden(MATCH, rule));
    }
    if let Some(given) = given {
        if initial.is_none() {
            let rule = "for watch unless sendInitialEvents is provided";
            causes.push(forbidden(MATCH, rule));
        }
        if given != NOT_OLDER {
            causes.push(unsupported(given, "\"NotOlderThan\""));
        }
        if call.query("continue").is_some() {
            causes.push(forbidden(MATCH, "when continue is provided"));
        }
    }
    refuse(&causes)
}

fn refuse(causes: &[Cause]) -> Result<()> {
    match causes {
        [] => Ok(()),
        causes => Err(Failure::invalid_options("ListOptions", causes)),
    }
}

fn forbidden(field: &str, when: &str) -> Cause {
    Cause {
        reason: "FieldValueForbidden".into(),
        message: format!("Forbidden: {field} is forbidden {when}"),
        field: field.into(),
    }
}

fn unsupported(given: &str, supported: &str) -> Cause {
    Cause {
        reason: "FieldValueNotSupported".into(),
        message: format!("Unsupported value: {given:?}: supported values: {supported}"),
        field: MATCH.into(),
    }
}

const MATCH: &str = "resourceVersionMatch";
const INITIAL: &str = "sendInitialEvents";
const EXACT: &str = "Exact";
const NOT_OLDER: &str = "NotOlderThan";
