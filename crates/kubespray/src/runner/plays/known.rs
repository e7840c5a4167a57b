//! What the fact cache has of hosts that are part of the cluster.
//!
//! Ansible's own limit is how long it believes what it has; a host that joins is told the addresses of the others by it, so it is not
//! taken for more than a day.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use api::{HostName, run::Step};
use serde_json::{Map, Value};
use workflow::StepContext;

use super::KubesprayExecutor;
use crate::action::{self, FACTS_OF_OTHERS};

/// How long what the cache has is good enough for what joins.
const FRESH: Duration = Duration::from_hours(24);

/// A fact of every host whose facts were gathered, and not only settled by a play.
const GATHERED: &str = "ansible_architecture";

/// What is said of a step that has no facts to read, if it is one whose hosts are all known.
pub(super) fn all_known(
    executor: &KubesprayExecutor,
    step: &Step,
    context: &StepContext,
) -> Option<String> {
    if step.id != FACTS_OF_OTHERS {
        return None;
    }
    let left_out = action::hosts_left_out(&context.excluded);
    let mut hosts = action::hosts_of(executor.work.plan.plan(), step);
    hosts.retain(|host| !left_out.contains(host));
    let cache = executor.workspace.directories().facts;
    let all = hosts.iter().all(|host| is_known(&cache, host));
    all.then(|| {
        format!(
            "the cache has the facts of all {}, from the last day",
            hosts.len()
        )
    })
}

/// Whether the facts of a host were gathered lately.
pub(super) fn is_known(cache: &Path, host: &HostName) -> bool {
    let file = cache.join(host.as_str());
    let gathered = fs::metadata(&file).and_then(|metadata| metadata.modified());
    // A time to come is that of a clock which was wrong.
    let is_fresh = |at: SystemTime| at.elapsed().is_ok_and(|age| age < FRESH);
    let facts = || serde_json::from_slice::<Map<String, Value>>(&fs::read(&file).ok()?).ok();
    gathered.is_ok_and(is_fresh) && facts().is_some_and(|facts| facts.contains_key(GATHERED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_by_facts_that_were_gathered_within_a_day() {
        let cache = tempfile::tempdir().unwrap();
        let host: HostName = "worker-1".parse().unwrap();
        let file = cache.path().join("worker-1");
        assert!(!is_known(cache.path(), &host));
        let at = |facts: &str, age: i64| {
            fs::write(&file, facts).unwrap();
            let age_of = Duration::from_secs(age.unsigned_abs());
            let now = SystemTime::now();
            let time = if age < 0 { now + age_of } else { now - age_of };
            let opened = fs::File::options().write(true).open(&file).unwrap();
            opened.set_modified(time).unwrap();
            is_known(cache.path(), &host)
        };
        let gathered = r#"{"ansible_architecture": "x86_64", "main_ip": "10.0.0.1"}"#;
        assert!(at(gathered, 60));
        assert!(at(gathered, 86_000));
        assert!(!at(gathered, 86_500));
        assert!(!at(gathered, -3_600));
        // What a play settled alone, and what a disk that was full left.
        assert!(!at(r#"{"main_ip": "10.0.0.1"}"#, 60));
        assert!(!at(&gathered[..20], 60));
    }
}
