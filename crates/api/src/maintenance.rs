//! When what starts by itself may start: maintenance windows, as every kind that has them writes them.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Duration;

/// When operations may start that start by themselves. What a person asks for by a verb starts at any time, and so do creation
/// and reset.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Maintenance {
    /// The windows; those that overlap are one. Without any, everything starts at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub windows: Vec<Window>,
    /// What keeps to the windows. Default: Disruptive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confine: Option<Confine>,
    /// What becomes of an operation that is at work when the window closes. Default: Continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_window_end: Option<OnWindowEnd>,
}

/// A time that comes again and again.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// When it opens: minute, hour, day of the month, month and day of the week, as cron has them. `0 22 * * 6` is each Saturday
    /// at ten in the evening, `0 1 * * MON#1` the first Monday of a month, `0 1 L * *` its last day.
    #[schemars(length(min = 9, max = 128))]
    #[x_kube(validation = (
        "self.matches('^ *[^ ]+( +[^ ]+){4} *$')",
        "a schedule has five fields: minute, hour, day of the month, month, day of the week; write for example 0 22 * * 6"
    ))]
    pub schedule: String,
    /// How long it stays open, 1m to 31d. It is time that passes, whatever the clocks are put to meanwhile.
    pub duration: Duration,
    /// The time zone of the schedule, by its name in the IANA database, for example Europe/Berlin. Default: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
}

/// What keeps to the windows.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Confine {
    /// What moves pods or restarts what they rely on.
    #[default]
    Disruptive,
    /// Everything that starts by itself.
    All,
    /// Nothing: the windows stand there for later.
    None,
}

/// What becomes of an operation that is at work when the window closes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OnWindowEnd {
    /// It goes on to its end.
    #[default]
    Continue,
    /// It pauses after the step at which nothing is left half done, and goes on by itself when the next window opens.
    Pause,
}
