//! Kubernetes Events, once an edge.
//!
//! An Event says that something happened, so it is written once however often a pass repeats and whoever restarts. Its
//! name is computed from the object and from what happened; a second attempt meets the first Event under that name and is
//! done. kube's `Recorder` is not used: it counts by reason, so two steps that start within six minutes would become one
//! Event with the first one's text, and it forgets everything at a restart.
//!
//! # Source
//! `events.k8s.io/v1`: `reason` at most 128 characters, `note` at most 1024.

use api::text::lines;
use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};

use crate::digest;

/// The longest note that the API accepts.
const NOTE_LIMIT: usize = 1024;

/// Whether an Event is news or trouble.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// News.
    Normal,
    /// Trouble.
    Warning,
}

/// Something that happened to an object.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Occurrence {
    /// News or trouble.
    pub severity: Severity,
    /// A CamelCase constant.
    pub reason: String,
    /// For people.
    pub note: String,
    /// What tells this occurrence from another with the same reason, for example the number of a run's record. The same edge
    /// is published once, whatever the note says.
    pub edge: String,
}

/// Publishes Events in the name of one controller.
#[derive(Clone)]
pub struct Events {
    client: Client,
    controller: &'static str,
}

impl Events {
    /// Publishes in the name of `controller`.
    pub const fn new(client: Client, controller: &'static str) -> Self {
        Self { client, controller }
    }

    /// Publishes what happened to `object`. That it has been published before is not an error, nor that its namespace is on
    /// its way out and takes no Events any more: whoever waits for the Event would wait for ever.
    ///
    /// # Errors
    ///
    /// The API refuses the Event, for another reason, or does not answer.
    pub async fn publish(
        &self,
        object: &ObjectReference,
        occurrence: &Occurrence,
    ) -> Result<(), kube::Error> {
        let namespace = object.namespace.as_deref().unwrap_or("default");
        let event = event(self.controller, object, occurrence, Timestamp::now());
        let api = Api::<Event>::namespaced(self.client.clone(), namespace);
        match api.create(&PostParams::default(), &event).await {
            // Another conflict, as of a quota, has not created it.
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(kube::Error::Api(status)) if status.message.contains(TERMINATED) => {
                tracing::debug!(
                    namespace,
                    reason = occurrence.reason,
                    "the namespace takes no Events any more"
                );
                Ok(())
            }
            result => result.map(drop),
        }
    }
}

/// # Source
/// Kubernetes `plugin/pkg/admission/namespace/lifecycle`: 403, "unable to create new content in namespace NAME because it is
/// being terminated".
const TERMINATED: &str = "because it is being terminated";

fn event(
    controller: &str,
    object: &ObjectReference,
    occurrence: &Occurrence,
    now: Timestamp,
) -> Event {
    let note = lines(&occurrence.note, NOTE_LIMIT);
    Event {
        metadata: ObjectMeta {
            name: Some(name(object, occurrence)),
            namespace: object.namespace.clone(),
            ..ObjectMeta::default()
        },
        action: Some("Reconcile".to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(note),
        reason: Some(occurrence.reason.clone()),
        regarding: Some(object.clone()),
        reporting_controller: Some(format!("windlass.dev/{controller}")),
        reporting_instance: Some(controller.to_owned()),
        type_: Some(
            match occurrence.severity {
                Severity::Normal => "Normal",
                Severity::Warning => "Warning",
            }
            .to_owned(),
        ),
        ..Event::default()
    }
}

/// The same occurrence has the same name, whoever tells of it.
fn name(object: &ObjectReference, occurrence: &Occurrence) -> String {
    let Occurrence {
        severity,
        reason,
        edge,
        note: _,
    } = occurrence;
    let severity = match severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    let uid = object.uid.as_deref().unwrap_or_default();
    let digest = digest(&[uid, severity, reason, edge], 16);
    let name = object.name.as_deref().unwrap_or("object");
    // Events of one occurrence are told apart by 64 bits; the head is for people and stays within 253 characters.
    let head: String = name.chars().take(200).collect();
    format!("{head}.{digest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(uid: &str) -> ObjectReference {
        ObjectReference {
            name: Some("first".to_owned()),
            namespace: Some("demo".to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        }
    }

    fn occurrence(note: &str, edge: &str) -> Occurrence {
        Occurrence {
            severity: Severity::Normal,
            reason: "StepStarted".to_owned(),
            note: note.to_owned(),
            edge: edge.to_owned(),
        }
    }

    #[test]
    fn one_occurrence_has_one_name() {
        let base = name(&object("1"), &occurrence("a", "1"));
        assert_eq!(base, name(&object("1"), &occurrence("a", "1")));
        assert_eq!(
            base,
            name(&object("1"), &occurrence("b", "1")),
            "the note is no part of it"
        );
        for (object, occurrence, what) in [
            (object("2"), occurrence("a", "1"), "another object"),
            (object("1"), occurrence("a", "2"), "another edge"),
        ] {
            assert_ne!(base, name(&object, &occurrence), "{what}");
        }
    }

    #[test]
    fn a_long_note_fits_the_api() {
        let long = occurrence(&"x".repeat(5000), "1");
        let event = event("cluster", &object("1"), &long, Timestamp::UNIX_EPOCH);
        assert!(event.note.unwrap().len() <= NOTE_LIMIT);
    }
}
