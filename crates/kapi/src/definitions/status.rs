//! The status of a definition: its names, its conditions, and the versions that were ever stored.

use serde_json::{Value, json};

use super::{CLEANUP, names::Verdict};
use crate::{apply as ssa, registry::Resource, value::now};

/// The status that follows from the names a definition got and from why it is not served.
pub(super) fn of(definition: &Value, verdict: &Verdict, problems: &[String]) -> Value {
    let mut status = definition["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    status["acceptedNames"] = verdict.names.clone();
    store_version(&mut status, &definition["spec"]);
    let conditions = &mut status["conditions"];
    match &verdict.conflict {
        None => set(
            conditions,
            "NamesAccepted",
            true,
            "NoConflicts",
            "no conflicts found",
        ),
        Some((reason, message)) => set(conditions, "NamesAccepted", false, reason, message),
    }
    if !problems.is_empty() {
        set(
            conditions,
            "Established",
            false,
            UNUSABLE,
            &problems.join("; "),
        );
    } else if verdict.conflict.is_none() && !is_true(conditions, "Established") {
        let message = "the initial names have been accepted";
        set(
            conditions,
            "Established",
            true,
            "InitialNamesAccepted",
            message,
        );
    } else if !is_true(conditions, "Established") {
        let message = "not all names are accepted";
        set(conditions, "Established", false, "NotAccepted", message);
    }
    if let Some((approved, reason, message)) = approval(definition) {
        let kind = "KubernetesAPIApprovalPolicyConformant";
        set(conditions, kind, approved, reason, &message);
    }
    status
}

/// Marks a definition as deleted; its objects hold it by a finalizer.
pub(crate) fn delete(definition: &mut Value) {
    let metadata = &mut definition["metadata"];
    metadata["deletionTimestamp"] = json!(now());
    if !metadata["finalizers"].is_array() {
        metadata["finalizers"] = json!([]);
    }
    if let Some(finalizers) = metadata["finalizers"].as_array_mut()
        && !finalizers.iter().any(|finalizer| finalizer == CLEANUP)
    {
        finalizers.push(json!(CLEANUP));
    }
    let message =
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    terminating(definition, true, "InstanceDeletionPending", message);
}

/// Notes how far a deletion is.
pub(crate) fn terminating(definition: &mut Value, holds: bool, reason: &str, message: &str) {
    if !definition["status"].is_object() {
        definition["status"] = json!({});
    }
    set(
        &mut definition["status"]["conditions"],
        "Terminating",
        holds,
        reason,
        message,
    );
}

/// Whether a definition was served before: its names stay its own, whatever it asks for since.
pub(super) fn established(definition: &Value) -> bool {
    is_true(&definition["status"]["conditions"], "Established")
}

/// The status of a definition that is new.
pub(crate) fn initial(spec: &Value) -> Value {
    let mut status = json!({
        "conditions": null,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": [],
    });
    store_version(&mut status, spec);
    status
}

/// Notes the version that is stored from now on.
pub(crate) fn store_version(status: &mut Value, spec: &Value) {
    let versions = spec["versions"].as_array();
    let storage = versions
        .into_iter()
        .flatten()
        .find(|version| version["storage"] == true);
    let Some(name) = storage.and_then(|version| version["name"].as_str()) else {
        return;
    };
    match status["storedVersions"].as_array_mut() {
        Some(stored) if stored.iter().any(|stored| stored == name) => {}
        Some(stored) => stored.push(json!(name)),
        None => status["storedVersions"] = json!([name]),
    }
}

/// Sets a condition; its time is that of the last change of its status.
fn set(conditions: &mut Value, kind: &str, holds: bool, reason: &str, message: &str) {
    let status = if holds { "True" } else { "False" };
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else {
        return;
    };
    let fresh = json!({
        "type": kind, "status": status, "lastTransitionTime": now(), "reason": reason, "message": message,
    });
    let Some(old) = list.iter_mut().find(|condition| condition["type"] == kind) else {
        list.push(fresh);
        return;
    };
    let since = old.get("lastTransitionTime").cloned();
    let same = old["status"] == status;
    if same && old["reason"] == reason && old["message"] == message {
        return;
    }
    *old = fresh;
    if let (true, Some(since)) = (same, since) {
        old["lastTransitionTime"] = since;
    }
}

fn is_true(conditions: &Value, kind: &str) -> bool {
    let conditions = conditions.as_array().into_iter().flatten();
    conditions
        .filter(|condition| condition["type"] == kind)
        .any(|condition| condition["status"] == "True")
}

/// Whether a definition in a group of Kubernetes itself was approved there; nothing for other groups.
fn approval(definition: &Value) -> Option<(bool, &'static str, String)> {
    let group = definition["spec"]["group"].as_str()?;
    if !is_protected(group) {
        return None;
    }
    let given = definition["metadata"]["annotations"][APPROVAL].as_str()?;
    Some(if given.starts_with("unapproved") {
        (
            false,
            "UnapprovedAnnotation",
            format!("not approved: {given:?}"),
        )
    } else if given.starts_with("https://") || given.starts_with("http://") {
        (true, "ApprovedAnnotation", format!("approved in {given}"))
    } else {
        let message = format!(
            "protected groups must have approval annotation {APPROVAL:?} with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
        );
        (false, "InvalidAnnotation", message)
    })
}

/// Groups of Kubernetes itself.
pub(super) fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        let rest = group.strip_suffix(domain);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// Notes who owns the status.
pub(super) fn track(old: &Value, new: &mut Value, resource: &Resource) {
    let options = ssa::Options {
        manager: "kube-apiserver",
        force: false,
        subresource: Some("status"),
        api_version: "apiextensions.k8s.io/v1",
        time: jiff::Timestamp::now(),
    };
    ssa::track_update(Some(old), new, &options, &resource.schema);
}

/// Who approved a definition in a group of Kubernetes itself.
pub(super) const APPROVAL: &str = "api-approved.kubernetes.io";

/// The reason of a definition that this program cannot serve, such as one of a later version of it.
const UNUSABLE: &str = "InvalidDefinition";
