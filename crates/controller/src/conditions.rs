//! Conditions after kstatus.
//!
//! `Ready` is always there and only ever computed from a [`Summary`]; `Reconciling` and `Stalled` are there only while they
//! are true. A waiter needs `observedGeneration` and these three. Pure: the clock is an argument.
//!
//! `lastTransitionTime` moves only when the status of a condition changes, as the Kubernetes API conventions demand: a
//! message that changes while a run goes on does not look like a transition.

use api::text::lines;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Whether everything is as it should be. Always present.
pub const READY: &str = "Ready";
/// The operator is at work on the object. Present only while true.
pub const RECONCILING: &str = "Reconciling";
/// Nothing goes on until somebody changes something. Present only while true.
pub const STALLED: &str = "Stalled";

/// The longest message of a condition; longer ones are cut. What is quoted in one may be a host's or a playbook's words.
const MESSAGE_LIMIT: usize = 2048;

/// What a condition says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody knows.
    Unknown,
}

impl Status {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// How an object stands as a whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    /// As it should be, nothing to do.
    Ready,
    /// As it should be, and the operator is at work on a change that does not take that away.
    ReadyAtWork,
    /// Being worked on, or waiting for something that comes by itself.
    AtWork,
    /// Built, nothing to do, and not healthy.
    Unhealthy,
    /// Nothing goes on until somebody changes something.
    Stalled,
}

impl Standing {
    /// Whether the status now speaks of the generation that was seen: on success or stall only.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Ready | Self::Unhealthy | Self::Stalled)
    }
}

/// What `Ready`, `Reconciling` and `Stalled` are computed from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Summary {
    /// How the object stands.
    pub standing: Standing,
    /// A CamelCase constant.
    pub reason: &'static str,
    /// For people: what and what next, the same between passes while nothing changes.
    pub message: String,
}

/// The generation that a status speaks of after a pass: the seen one on success or stall, otherwise what it was.
pub fn observed_generation(
    previous: Option<i64>,
    seen: Option<i64>,
    standing: Standing,
) -> Option<i64> {
    if standing.is_final() { seen } else { previous }
}

/// The conditions of one object, being brought up to date.
#[derive(Clone, Debug)]
pub struct Conditions {
    generation: Option<i64>,
    now: Timestamp,
    items: Vec<Condition>,
}

impl Conditions {
    /// Starts from the conditions that the object has.
    pub fn new(previous: &[Condition], generation: Option<i64>, now: Timestamp) -> Self {
        Self {
            generation,
            now,
            items: previous.to_vec(),
        }
    }

    /// Sets one condition; its transition time moves only if its status changes.
    pub fn set(&mut self, kind: &str, status: Status, reason: &str, message: impl Into<String>) {
        let message = lines(&message.into(), MESSAGE_LIMIT);
        let since = self
            .items
            .iter()
            .find(|condition| condition.type_ == kind && condition.status == status.as_str())
            .map_or(Time(self.now), |condition| {
                condition.last_transition_time.clone()
            });
        self.remove(kind);
        self.items.push(Condition {
            type_: kind.to_owned(),
            status: status.as_str().to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: since,
            observed_generation: self.generation,
        });
    }

    /// Takes one condition away.
    pub fn remove(&mut self, kind: &str) {
        self.items.retain(|condition| condition.type_ != kind);
    }

    /// Computes `Ready`, `Reconciling` and `Stalled`.
    pub fn summarise(&mut self, summary: &Summary) {
        let Summary {
            standing,
            reason,
            message,
        } = summary;
        let (ready, at_work, stalled) = match standing {
            Standing::Ready => (Status::True, false, false),
            Standing::ReadyAtWork => (Status::True, true, false),
            Standing::AtWork => (Status::False, true, false),
            Standing::Unhealthy => (Status::False, false, false),
            Standing::Stalled => (Status::False, false, true),
        };
        self.set(READY, ready, reason, message);
        self.while_true(RECONCILING, at_work, reason, message);
        self.while_true(STALLED, stalled, reason, message);
    }

    /// The conditions, sorted by type so that equal sets are equal lists.
    pub fn into_vec(mut self) -> Vec<Condition> {
        self.items.sort_by(|a, b| a.type_.cmp(&b.type_));
        self.items
    }

    fn while_true(&mut self, kind: &str, holds: bool, reason: &str, message: &str) {
        if holds {
            self.set(kind, Status::True, reason, message);
        } else {
            self.remove(kind);
        }
    }
}

/// Whether a condition of that type is there and true.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions
        .iter()
        .any(|condition| condition.type_ == kind && condition.status == Status::True.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn summary(standing: Standing, message: &str) -> Summary {
        Summary {
            standing,
            reason: "Because",
            message: message.to_owned(),
        }
    }

    fn pass(previous: &[Condition], second: i64, summary: &Summary) -> Vec<Condition> {
        let mut conditions = Conditions::new(previous, Some(1), at(second));
        conditions.summarise(summary);
        conditions.into_vec()
    }

    #[test]
    fn the_three_conditions_follow_the_standing() {
        for (standing, expected) in [
            (Standing::Ready, "Ready=True"),
            (Standing::ReadyAtWork, "Ready=True Reconciling=True"),
            (Standing::AtWork, "Ready=False Reconciling=True"),
            (Standing::Unhealthy, "Ready=False"),
            (Standing::Stalled, "Ready=False Stalled=True"),
        ] {
            let shown: Vec<_> = pass(&[], 0, &summary(standing, ""))
                .iter()
                .map(|condition| format!("{}={}", condition.type_, condition.status))
                .collect();
            assert_eq!(shown.join(" "), expected, "{standing:?}");
        }
    }

    #[test]
    fn a_second_pass_with_nothing_new_changes_nothing() {
        let first = pass(&[], 1, &summary(Standing::AtWork, "step 1"));
        assert_eq!(pass(&first, 2, &summary(Standing::AtWork, "step 1")), first);
    }

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let first = pass(&[], 1, &summary(Standing::AtWork, "step 1"));
        let second = pass(&first, 2, &summary(Standing::AtWork, "step 2"));
        let third = pass(&second, 3, &summary(Standing::Ready, "done"));
        let ready = |conditions: &[Condition]| {
            conditions
                .iter()
                .find(|c| c.type_ == READY)
                .unwrap()
                .last_transition_time
                .0
        };
        assert_eq!(
            [ready(&first), ready(&second), ready(&third)],
            [at(1), at(1), at(3)]
        );
    }

    #[test]
    fn the_generation_is_observed_on_success_and_stall_only() {
        for (standing, expected) in [
            (Standing::Ready, Some(2)),
            (Standing::Stalled, Some(2)),
            (Standing::AtWork, Some(1)),
        ] {
            assert_eq!(
                observed_generation(Some(1), Some(2), standing),
                expected,
                "{standing:?}"
            );
        }
    }

    #[test]
    fn a_message_is_bounded_and_moves_no_cursor() {
        let mut conditions = Conditions::new(&[], Some(1), at(0));
        let message = format!("\u{1b}[2Ja: {}", "ä".repeat(5000));
        conditions.set(READY, Status::False, "Failed", message);
        let message = &conditions.into_vec()[0].message;
        assert!(message.starts_with("a: ä") && message.ends_with('…'));
        assert!(message.len() <= MESSAGE_LIMIT);
    }
}
