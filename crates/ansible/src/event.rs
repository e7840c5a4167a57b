//! What a playbook does, as it does it.
//!
//! Our callback plugin ([`PLUGIN`]) appends every event as one line of JSON to a file and then rings a datagram socket. The
//! file is the stream and the socket only says that there is more: a reader that is away, or dies, loses nothing and
//! begins where it likes, and a playbook never waits for its reader. Sending the events over the socket and keeping the
//! file as a copy was rejected, because a reader that returns would have to merge the two.
//!
//! [`Tally`] adds events up in memory: a cluster of 100 nodes makes some 70,000 of them.

mod reader;
mod tally;
mod why;

use std::collections::BTreeMap;

use api::text::plain;
use serde::{Deserialize, Deserializer, Serialize};

pub use reader::{Error, Follower, read};
pub use tally::{Counts, CurrentTask, HostFailure, PlayTally, Tally, TaskTally};
pub use why::{Asked, Missing, Why};

/// The callback plugin, for ansible-core 2.12 to 2.19.
pub const PLUGIN: &str = include_str!("../plugins/windlass_events.py");

/// The plugin's name, which is also the stem of its file name.
pub const PLUGIN_NAME: &str = "windlass_events";

/// One event of one ansible-playbook process.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Event {
    /// The process that it comes from, as [`crate::playbook::PlaybookRun::id`] named it.
    pub run: String,
    /// Its number within the process, from 1, without gaps.
    pub sequence: u64,
    /// When it happened, in seconds since the epoch, for people.
    pub time: f64,
    /// How many events before it could not be written, for example because the disk was full.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
    /// What happened.
    #[serde(flatten)]
    pub kind: Kind,
}

/// What happened.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Kind {
    /// A playbook file starts.
    PlaybookStart {
        /// The file.
        #[serde(deserialize_with = "line")]
        playbook: String,
        /// How many plays it has, where known.
        plays: Option<u32>,
        /// The process.
        pid: Option<i32>,
    },
    /// A play, or the next batch of a serial play, starts.
    PlayStart {
        /// Its number within the process, from 1.
        play: u32,
        /// Its name.
        #[serde(deserialize_with = "line")]
        name: String,
        /// The hosts that it is about, after the limit; `None` if the plugin could not tell.
        hosts: Option<Vec<String>>,
    },
    /// No host matches the play.
    NoHostsMatched {
        /// The play.
        play: u32,
    },
    /// Every host of the play failed or is unreachable.
    NoHostsRemaining {
        /// The play.
        play: u32,
    },
    /// A task starts.
    TaskStart {
        /// Its play.
        play: u32,
        /// Its number within the process, from 1.
        task: u32,
        /// Its name, with the role's.
        #[serde(deserialize_with = "line")]
        name: String,
        /// The module.
        #[serde(default, deserialize_with = "line")]
        action: String,
        /// File and line.
        #[serde(default, deserialize_with = "line")]
        path: String,
        /// Whether it is a handler: those run only on hosts that were notified.
        #[serde(default)]
        handler: bool,
        /// Whether it runs on one host only.
        #[serde(default)]
        run_once: bool,
    },
    /// A file of tasks is included.
    Include {
        /// The file.
        #[serde(deserialize_with = "line")]
        file: String,
    },
    /// A task starts on a host.
    HostStart {
        /// The host.
        host: String,
        /// The task.
        task: u32,
    },
    /// A task is done on a host.
    Ok {
        /// The host.
        host: String,
        /// The task.
        task: u32,
        /// The task's name.
        #[serde(default, deserialize_with = "line")]
        name: String,
        /// Whether it changed something.
        changed: bool,
    },
    /// A task failed on a host.
    Failed {
        /// The host.
        host: String,
        /// The task.
        task: u32,
        /// The task's name.
        #[serde(default, deserialize_with = "line")]
        name: String,
        /// Whether the playbook says to go on.
        ignored: bool,
        /// Why.
        #[serde(flatten)]
        why: Why,
    },
    /// A host was not reached.
    Unreachable {
        /// The host.
        host: String,
        /// The task.
        task: u32,
        /// The task's name.
        #[serde(default, deserialize_with = "line")]
        name: String,
        /// Whether the playbook says to go on.
        ignored: bool,
        /// Why.
        #[serde(flatten)]
        why: Why,
    },
    /// A task did not apply to a host.
    Skipped {
        /// The host.
        host: String,
        /// The task.
        task: u32,
        /// The task's name.
        #[serde(default, deserialize_with = "line")]
        name: String,
    },
    /// A task is tried again on a host.
    Retry {
        /// The host.
        host: String,
        /// The task.
        task: u32,
        /// The task's name.
        #[serde(default, deserialize_with = "line")]
        name: String,
        /// Attempts so far.
        attempts: Option<u32>,
        /// Attempts in all.
        retries: Option<u32>,
        /// Why the last one failed.
        #[serde(flatten)]
        why: Why,
    },
    /// One item of a loop is done on a host.
    Item {
        /// The host.
        host: String,
        /// The task.
        task: u32,
        /// How it went.
        outcome: ItemOutcome,
        /// The item's label, unless it is secret.
        #[serde(default, deserialize_with = "some_line")]
        item: Option<String>,
        /// Whether it changed something.
        #[serde(default)]
        changed: bool,
        /// Why, for a failure.
        #[serde(flatten)]
        why: Why,
    },
    /// The playbook waits between two tasks.
    Paused {
        /// The play.
        play: u32,
    },
    /// The playbook goes on.
    Resumed {
        /// The play.
        play: u32,
    },
    /// The playbook ends between two tasks because it was asked to.
    Stopped {
        /// The play.
        play: u32,
    },
    /// The playbook came to its end, whether or not hosts failed.
    Stats {
        /// Counts by host.
        hosts: BTreeMap<String, Stats>,
    },
    /// An event of a later plugin.
    #[serde(other)]
    Unknown,
}

/// How one item of a loop went.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemOutcome {
    /// Done.
    Ok,
    /// Failed.
    Failed,
    /// Did not apply.
    Skipped,
}

/// Ansible's own counts of a host at the end, of which these tell more than the tasks did: a rescue block takes failures back.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Stats {
    /// Failed.
    #[serde(default)]
    pub failed: u32,
    /// Not reached.
    #[serde(default)]
    pub unreachable: u32,
}

/// The longest name or label that is kept of an event: the plugin sends less.
const LINE_LIMIT: usize = 1024;

/// What a playbook calls things, and what a host answers, is text of others: it passes the gate where it comes in.
fn line<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(|said| plain(&said, LINE_LIMIT))
}

fn some_line<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let said = Option::<String>::deserialize(deserializer)?;
    Ok(said.map(|said| plain(&said, LINE_LIMIT)))
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_says_moves_no_cursor_and_hides_nothing() {
        let line = serde_json::json!({
            "run": "r", "sequence": 1, "time": 0.0, "event": "failed", "host": "a", "task": 1, "ignored": false,
            "name": "in\u{1b}[2Jstall\nReady True",
            "message": "\u{1b}]0;owned\u{7}no\u{202e} space\r\nleft",
            "stderr": "\u{9b}31mred",
        });
        let event: Event = serde_json::from_value(line).unwrap();
        let Kind::Failed { name, why, .. } = event.kind else {
            panic!("{event:?}");
        };
        assert_eq!(name, "install Ready True");
        assert_eq!(why.message, "no space\nleft");
        assert_eq!(why.stderr.as_deref(), Some("red"));
    }
}
