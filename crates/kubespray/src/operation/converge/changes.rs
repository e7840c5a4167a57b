//! What tasks of a converge changed, by host: as a runner tells it in the record of a step, and as the operator reads it there again, to
//! hold one converge against the one before.
//!
//! One text is for both, people and the operator, `changed on HOST, HOST: TASK; HOST: TASK; and 3 more`: a list beside it in each record
//! would say everything twice, and the text has its bound. Names of tasks come from the playbooks, and are only ever compared and shown.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use api::text::plain;
use controller::digest;

/// How the record of a step begins that says what changed in it.
const CHANGED: &str = "changed on ";
/// How long the text may be: a record's detail has 2048 characters.
const LENGTH: usize = 1900;
/// How many hosts of a task are named. Of more their digest tells whether they are the same ones.
const HOSTS: usize = 8;
/// How many tasks of a step are kept while it is at work.
const TASKS: usize = 256;

/// What tasks of a step changed.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The hosts of each task, in the order in which the tasks came.
    tasks: Vec<(String, BTreeSet<String>)>,
    /// How many changes are not among these.
    more: usize,
}

impl Changes {
    /// Adds one. Several of one task on a host are one.
    pub fn add(&mut self, host: &str, task: &str) {
        let host = plain(host, 64);
        // What stands between tasks stands in none, nor what a text ends with that was cut.
        let task = plain(task, 128).replace(';', ",");
        let task = task.trim_end_matches('…').to_owned();
        if let Some((_, hosts)) = self.tasks.iter_mut().find(|(known, _)| *known == task) {
            hosts.insert(host);
        } else if self.tasks.len() < TASKS {
            self.tasks.push((task, BTreeSet::from([host])));
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// The text of the record; nothing where nothing changed.
    pub fn told(&self) -> Option<String> {
        if self.tasks.is_empty() {
            return None;
        }
        let mut text = CHANGED.to_owned();
        let mut more = self.more;
        for (task, hosts) in &self.tasks {
            let entry = format!("{}: {task}; ", on(hosts));
            if text.len() + entry.len() > LENGTH {
                more = more.saturating_add(hosts.len());
            } else {
                text += &entry;
            }
        }
        if more > 0 {
            // Writing to a String cannot fail.
            let _ = write!(text, "and {more} more");
        }
        Some(text.trim_end_matches("; ").to_owned())
    }
}

/// The hosts of a task, in words that are the same for the same ones.
fn on(hosts: &BTreeSet<String>) -> String {
    let named: Vec<_> = hosts.iter().take(HOSTS).map(String::as_str).collect();
    let named = named.join(", ");
    match hosts.len().checked_sub(HOSTS) {
        None | Some(0) => named,
        Some(more) => {
            let all: Vec<_> = hosts.iter().map(String::as_str).collect();
            let digest = digest(&all, 8);
            format!("{named} and {more} more ({digest})")
        }
    }
}

/// What was told of a whole run: the hosts of a task, by step and task.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Told {
    /// The hosts of each.
    pub tasks: BTreeMap<(String, String), Hosts>,
    /// How many changes were not told.
    pub more: usize,
}

/// The hosts that a task changed something on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hosts {
    /// The first of them.
    named: BTreeSet<String>,
    /// How many more, and the digest of all.
    more: Option<(usize, String)>,
}

impl Hosts {
    fn read(text: &str) -> Option<Self> {
        let (named, more) = match text.split_once(" and ") {
            None => (text, None),
            Some((named, rest)) => {
                let (count, digest) = rest.strip_suffix(')')?.split_once(" more (")?;
                (named, Some((count.parse().ok()?, digest.to_owned())))
            }
        };
        let named = named.split(", ").map(str::to_owned).collect();
        Some(Self { named, more })
    }

    fn count(&self) -> usize {
        let more = self.more.as_ref().map_or(0, |(more, _)| *more);
        self.named.len().saturating_add(more)
    }

    /// Those that are not among `before`. Of sets that are not named as a whole nobody knows which, so it is all.
    fn beyond(&self, before: &Self) -> Option<Self> {
        if self == before {
            return None;
        }
        if self.more.is_some() || before.more.is_some() {
            return Some(self.clone());
        }
        let named: BTreeSet<_> = self.named.difference(&before.named).cloned().collect();
        (!named.is_empty()).then_some(Self { named, more: None })
    }
}

impl std::fmt::Display for Hosts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named: Vec<_> = self.named.iter().map(String::as_str).collect();
        formatter.write_str(&named.join(", "))?;
        match &self.more {
            Some((more, _)) => write!(formatter, " and {more} more"),
            None => Ok(()),
        }
    }
}

impl Told {
    /// Reads the record of a step. What cannot be read, because the record was cut, is one more that was not told.
    pub fn add(&mut self, step: &str, detail: &str) {
        let Some(text) = detail.strip_prefix(CHANGED) else {
            return;
        };
        for entry in text.split("; ") {
            let rest = entry
                .strip_prefix("and ")
                .and_then(|rest| rest.strip_suffix(" more"));
            if let Some(more) = rest.and_then(|more| more.parse().ok()) {
                self.more = self.more.saturating_add(more);
                continue;
            }
            let read = entry.split_once(": ").filter(|_| !text_is_cut(text, entry));
            match read.and_then(|(hosts, task)| Some((Hosts::read(hosts)?, task))) {
                Some((hosts, task)) => {
                    self.tasks.insert((step.to_owned(), task.to_owned()), hosts);
                }
                None => self.more = self.more.saturating_add(1),
            }
        }
    }

    /// What is here and was not `before`.
    #[must_use]
    pub fn beyond(&self, before: &Self) -> Self {
        let tasks = self.tasks.iter().filter_map(|(task, hosts)| {
            let beyond = match before.tasks.get(task) {
                Some(before) => hosts.beyond(before)?,
                None => hosts.clone(),
            };
            Some((task.clone(), beyond))
        });
        Self {
            tasks: tasks.collect(),
            more: self.more,
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        let counts = self.tasks.values().map(Hosts::count);
        counts.fold(self.more, usize::saturating_add)
    }
}

/// By step, for people; the empty text where nothing was told.
impl std::fmt::Display for Told {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tasks = self.tasks.iter();
        let tasks = tasks.map(|((step, task), hosts)| format!("{step}: {hosts}: {task}"));
        let more =
            (self.more > 0).then(|| format!("and {} more that were not recorded", self.more));
        let all: Vec<_> = tasks.chain(more).collect();
        formatter.write_str(&all.join("; "))
    }
}

/// Whether the entry is the last one of a text that somebody cut.
fn text_is_cut(text: &str, entry: &str) -> bool {
    text.ends_with('…') && text.ends_with(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(of: &[(&str, &[&str])]) -> Changes {
        let mut changes = Changes::default();
        for (task, hosts) in of {
            for host in *hosts {
                changes.add(host, task);
            }
        }
        changes
    }

    fn read(changes: &Changes) -> Told {
        let mut told = Told::default();
        told.add("etcd", &changes.told().unwrap());
        told
    }

    #[test]
    fn what_is_told_is_read_again() {
        let many: Vec<String> = (0..500).map(|at| format!("worker-{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let told = changes(&[
            ("etcd : Write etcd.env", &["b", "a", "a"]),
            ("odd: one; and 3 more", &["a"]),
            ("on all", &many),
        ]);
        let text = told.told().unwrap();
        let start = "changed on a, b: etcd : Write etcd.env; a: odd: one, and 3 more; worker-0, worker-1, worker-10, ";
        assert!(text.starts_with(start), "{text}");
        assert!(text.contains(" and 492 more ("), "{text}");
        let told = read(&told);
        assert_eq!((told.count(), told.more), (503, 0));
        let shown = told.to_string();
        assert!(
            shown.starts_with("etcd: a, b: etcd : Write etcd.env; etcd: a: odd: one, and 3 more; ")
        );
        assert!(shown.ends_with(" and 492 more: on all"), "{shown}");
        assert_eq!(Changes::default().told(), None);
    }

    #[test]
    fn only_what_was_not_before_is_beyond_it() {
        let many: Vec<String> = (0..20).map(|at| format!("w{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let before = read(&changes(&[("one", &["a", "b"]), ("all", &many)]));
        for (now, beyond) in [
            (&[("one", &["a", "b"][..]), ("all", &many)][..], ""),
            (&[("one", &["b"])], ""),
            (&[("one", &["b", "c"])], "etcd: c: one"),
            (&[("two", &["a"])], "etcd: a: two"),
            (&[("all", &["w1"])], "etcd: w1: all"),
        ] {
            let now = read(&changes(now));
            assert_eq!(now.beyond(&before).to_string(), beyond);
        }
        let others = read(&changes(&[("all", &many[..19])]));
        assert_eq!(others.beyond(&before).count(), 19);
        // The same task of another step is another one.
        let mut elsewhere = Told::default();
        elsewhere.add("network", "changed on a: one");
        assert_eq!(elsewhere.beyond(&before).to_string(), "network: a: one");
    }

    #[test]
    fn what_has_no_room_is_counted_and_what_was_cut_is_not_believed() {
        let tasks: Vec<String> = (0..600)
            .map(|at| format!("role : a task with a name {at}"))
            .collect();
        let tasks: Vec<(&str, &[&str])> = tasks
            .iter()
            .map(|task| (&**task, &["a", "b"][..]))
            .collect();
        let told = changes(&tasks);
        let text = told.told().unwrap();
        assert!(text.len() < 2048, "{}", text.len());
        let whole = read(&told);
        assert!(whole.more > 0);
        assert_eq!(whole.count(), 1200);

        let mut cut = Told::default();
        cut.add("etcd", "changed on a: one; a: the oth…");
        assert_eq!((cut.tasks.len(), cut.more), (1, 1));
        // A record of something else.
        cut.add("etcd", "ansible-core 2.17");
        assert_eq!((cut.tasks.len(), cut.more), (1, 1));
    }
}
