//! What an object says of itself, wherever its version has it.

use api::text::plain;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::{WORD, message};

/// A condition of either form.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False or Unknown.
    pub status: String,
    /// How bad it is, which those of v1beta1 say: Error, Warning or Info.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// Why, in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Since when it has this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Which status of a condition is good.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Polarity {
    /// True.
    Positive,
    /// False.
    Negative,
    /// Any: it says what somebody wanted.
    Neutral,
}

impl Condition {
    /// All of an object. Of a type that stands in several places the newest form counts: `status.v1beta2.conditions` of objects of v1beta1,
    /// then `status.conditions`. Those that v1beta2 keeps of v1beta1 count where there are no others.
    pub(super) fn all(object: &Value) -> Vec<Self> {
        let status = &object["status"];
        let newest = [&status["v1beta2"]["conditions"], &status["conditions"]];
        let of_places = |places: &[&Value]| {
            let mut all: Vec<Self> = Vec::new();
            let places = places.iter().filter_map(|place| place.as_array());
            let found = places.flat_map(|place| place.iter().take(MOST));
            for condition in found.filter_map(Self::read) {
                if !all.iter().any(|known| known.kind == condition.kind) {
                    all.push(condition);
                }
            }
            all.truncate(MOST);
            all
        };
        match of_places(&newest) {
            none if none.is_empty() => of_places(&[&status["deprecated"]["v1beta1"]["conditions"]]),
            all => all,
        }
    }

    fn read(value: &Value) -> Option<Self> {
        let text = |key: &str, limit| {
            let text = value[key].as_str().map(|text| plain(text, limit));
            text.filter(|text| !text.is_empty())
        };
        Some(Self {
            kind: text("type", WORD)?,
            status: text("status", STATUS)?,
            severity: text("severity", STATUS),
            reason: text("reason", WORD),
            message: value["message"]
                .as_str()
                .map(message)
                .filter(|text| !text.is_empty()),
            since: time(&value["lastTransitionTime"]),
        })
    }

    /// Which status of it is good.
    pub fn polarity(&self) -> Polarity {
        match self.kind.as_str() {
            "Paused" => Polarity::Neutral,
            kind if NEGATIVE.contains(&kind) => Polarity::Negative,
            _ => Polarity::Positive,
        }
    }

    /// Whether it is as it is to be.
    pub fn is_good(&self) -> bool {
        match self.polarity() {
            Polarity::Neutral => true,
            Polarity::Positive => self.status == "True",
            // Unknown counts as not yet: whoever says it could not look.
            Polarity::Negative => self.status == "False",
        }
    }

    /// Whether it says that it does not become good by itself.
    pub(super) fn is_error(&self) -> bool {
        !self.is_good() && self.severity.as_deref() == Some("Error")
    }

    /// Whether it sums up the others.
    pub(super) fn is_summary(&self) -> bool {
        matches!(self.kind.as_str(), "Ready" | "Available")
    }

    /// Which of several tells the most: those that say why before those that repeat what others say, False before Unknown.
    pub(super) fn rank(&self) -> (u8, u8, Option<Timestamp>) {
        let severity = match self.severity.as_deref() {
            Some("Error") => 0,
            Some("Warning") => 1,
            _ if self.status != "Unknown" => 2,
            _ => 3,
        };
        let cause = match self.kind.as_str() {
            _ if self.is_summary() => 4,
            kind if NEGATIVE.contains(&kind) || AFTER.contains(&kind) => 3,
            "NodeHealthy" | "NodeReady" => 2,
            // The infrastructure of a machine waits for what makes it a node.
            "BootstrapConfigReady" | "BootstrapReady" => 0,
            _ => 1,
        };
        (cause, severity, self.since)
    }

    /// Whether an object that calls itself ready is at work all the same.
    pub(super) fn is_at_work(&self) -> bool {
        let kind = self.kind.as_str();
        !self.is_good() && (NEGATIVE.contains(&kind) || BESIDE.contains(&kind))
    }
}

/// A time as objects have it.
pub(super) fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// Those of Cluster API that are good when they are False.
const NEGATIVE: [&str; 6] = [
    "Deleting",
    "Remediating",
    "RollingOut",
    "ScalingDown",
    "ScalingUp",
    "Updating",
];
/// Those that no summary heeds: what is in an older version or of an older topology is available all the same. A hook that holds an
/// upgrade is told by the topology alone.
const BESIDE: [&str; 2] = ["TopologyReconciled", "UpToDate"];
/// Those that repeat what machines say.
const AFTER: [&str; 10] = [
    "ControlPlaneMachinesReady",
    "ControlPlaneMachinesUpToDate",
    "MachinesCreated",
    "MachinesReady",
    "MachinesUpToDate",
    "UpToDate",
    "WorkerMachinesReady",
    "WorkerMachinesUpToDate",
    "WorkersAvailable",
    "Resized",
];
/// How long a status may be.
const STATUS: usize = 16;
/// So many of an object are read.
const MOST: usize = 64;
